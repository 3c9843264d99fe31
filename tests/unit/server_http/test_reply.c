/* SPDX-License-Identifier: MIT */
/* Streams: the order of their bytes, and the bounds of what waits. */
#include "open_request.h"
#include "server/metrics.h"

enum { SEED = 12345, ROUNDS = 20000 };

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Byte number i of the endless sequence that goes through the stream. */
static char byte_at(size_t i)
{
    return (char)(i * 31 + i / 251);
}

static struct srv_request *open_stream(void)
{
    struct srv_request *req = open_request();
    if (!test_server.metrics) test_server.metrics = srv_metrics_create();
    REQUIRE(test_server.metrics);
    srv_stream_open(req);
    return req;
}

static void bytes_come_out_in_order(void **state)
{
    struct srv_request *req = open_stream();
    unsigned random = SEED;
    size_t n_in = 0, n_out = 0;
    static char buf[70000];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        size_t len = next_random(&random) % (round % 100 == 0 ? sizeof(buf) : 300);
        if (next_random(&random) % 2) {
            if (n_in - n_out > SRV_STREAM_MAX_BYTES) continue;
            for (size_t i = 0; i < len; i++)
                buf[i] = byte_at(n_in + i);
            REQUIRE_MSG(srv_stream_write(req, buf, len), "seed %d round %d", SEED, round);
            n_in += len;
        } else {
            ssize_t got = srv_request_read(req, buf, len);
            REQUIRE(got >= 0 && (size_t)got <= len && (size_t)got <= n_in - n_out);
            for (ssize_t i = 0; i < got; i++) {
                REQUIRE_MSG(buf[i] == byte_at(n_out + (size_t)i), "seed %d round %d byte %zu", SEED,
                            round, n_out + (size_t)i);
            }
            n_out += (size_t)got;
        }
    }
    REQUIRE(n_out > 100000 && !test_cut);
    close_request(req);
}

static void a_reader_too_far_behind_is_cut(void **state)
{
    struct srv_request *req = open_stream();
    static char block[4096];
    size_t written = 0;
    (void)state;
    while (written <= SRV_STREAM_MAX_BYTES) {
        REQUIRE(srv_stream_write(req, block, sizeof(block)));
        written += sizeof(block);
        REQUIRE(srv_stream_has_room(req) == (written < SRV_STREAM_ROOM_BYTES));
    }
    REQUIRE(srv_stream_write(req, block, 0) && !test_cut);
    REQUIRE(!srv_stream_write(req, block, 1) && test_cut);
    REQUIRE_EQ_INT(srv_request_read(req, block, sizeof(block)), SRV_READ_CUT);
    close_request(req);
}

static void one_large_event_is_taken(void **state)
{
    char *event = calloc(1, SRV_STREAM_EVENT_MAX_BYTES + 1);
    (void)state;
    REQUIRE(event != NULL);
    for (int more = 0; more < 2; more++) {
        struct srv_request *req = open_stream();
        size_t len = SRV_STREAM_EVENT_MAX_BYTES + (size_t)more;
        REQUIRE(srv_stream_write(req, "x", 1));
        REQUIRE(srv_stream_write(req, event, len) == !more);
        REQUIRE(!srv_stream_write(req, "x", 1) && test_cut);
        close_request(req);
    }
    free(event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_out_in_order),
        cmocka_unit_test(a_reader_too_far_behind_is_cut),
        cmocka_unit_test(one_large_event_is_taken),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    srv_metrics_destroy(test_server.metrics);
    return failed;
}
