/* SPDX-License-Identifier: MIT */
/* The byte ring: order across the wrap and growth, and its bounds. */
#include "test.h"

#include "server/bounds.h"
#include "server/http/byte_ring.h"

enum { SEED = 12345, ROUNDS = 20000 };

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Byte number i of the endless sequence that goes through the ring. */
static char byte_at(size_t i)
{
    return (char)(i * 31 + i / 251);
}

static void bytes_come_out_in_order(void **state)
{
    struct srv_ring r = {0};
    unsigned random = SEED;
    size_t n_in = 0, n_out = 0;
    static char buf[70000];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        size_t len = next_random(&random) % (round % 100 == 0 ? sizeof(buf) : 300);
        if (next_random(&random) % 2) {
            for (size_t i = 0; i < len; i++)
                buf[i] = byte_at(n_in + i);
            if (srv_ring_write(&r, buf, len))
                n_in += len;
            else
                REQUIRE_MSG(r.len > SRV_STREAM_MAX_BYTES, "seed %d round %d", SEED, round);
        } else {
            size_t got = srv_ring_read(&r, buf, len);
            REQUIRE(got <= len);
            for (size_t i = 0; i < got; i++) {
                REQUIRE_MSG(buf[i] == byte_at(n_out + i), "seed %d round %d byte %zu", SEED, round,
                            n_out + i);
            }
            n_out += got;
        }
        REQUIRE_EQ_INT(r.len, n_in - n_out);
    }
    REQUIRE(n_out > 100000);
    srv_ring_finish(&r);
}

static void a_reader_too_far_behind_is_refused(void **state)
{
    struct srv_ring r = {0};
    static char block[4096];
    size_t written = 0;
    (void)state;
    while (srv_ring_write(&r, block, sizeof(block)))
        written += sizeof(block);
    REQUIRE(written > SRV_STREAM_MAX_BYTES && written <= SRV_STREAM_MAX_BYTES + sizeof(block));
    REQUIRE_EQ_INT(r.len, written);
    REQUIRE(srv_ring_write(&r, block, 0));
    while (srv_ring_read(&r, block, sizeof(block))) {
    }
    REQUIRE(srv_ring_write(&r, block, 1));
    srv_ring_finish(&r);
}

static void one_large_event_is_taken(void **state)
{
    struct srv_ring r = {0};
    (void)state;
    char *event = calloc(1, SRV_STREAM_EVENT_MAX_BYTES + 1);
    REQUIRE(event != NULL);
    REQUIRE(srv_ring_write(&r, "x", 1));
    REQUIRE(srv_ring_write(&r, event, SRV_STREAM_EVENT_MAX_BYTES));
    REQUIRE(!srv_ring_write(&r, "x", 1));
    srv_ring_finish(&r);
    REQUIRE(!srv_ring_write(&r, event, SRV_STREAM_EVENT_MAX_BYTES + 1));
    REQUIRE(r.data == NULL);
    free(event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_out_in_order),
        cmocka_unit_test(a_reader_too_far_behind_is_refused),
        cmocka_unit_test(one_large_event_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
