/* SPDX-License-Identifier: MIT */
/* The memory of all bodies: its parts, and what one key may hold of them. */
#include "test.h"

#include "server/bounds.h"
#include "server/http/bodies.h"

enum { LARGEST = 4 * SRV_SMALL_BODY_BYTES, N_BODIES = 200 };

struct fixture {
    struct srv_bodies bodies;
    struct srv_body_charge held[N_BODIES];
    bool several;
    int n; /* bodies that were begun */
};

static int open_bodies(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    srv_bodies_init(&f->bodies, LARGEST);
    f->several = true;
    *state = f;
    return 0;
}

static int close_bodies(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < f->n; i++)
        srv_bodies_drop(&f->bodies, &f->held[i]);
    REQUIRE_EQ_INT(f->bodies.held[SRV_BODIES_ALL], 0);
    REQUIRE_EQ_INT(f->bodies.held[SRV_BODIES_SMALL], 0);
    REQUIRE(!f->bodies.first);
    srv_bodies_finish(&f->bodies);
    free(f);
    return 0;
}

/* A key's next body gets its first bytes. */
static bool begin(struct fixture *f, uint64_t key, size_t n, bool large)
{
    struct srv_body_charge *body = &f->held[f->n++];
    *body = (struct srv_body_charge){.key = key, .large = large};
    return srv_bodies_add(&f->bodies, body, n, f->several);
}

/* How many bodies of that size a key can begin. */
static int fill(struct fixture *f, uint64_t key, size_t n)
{
    int n_begun = 0;
    while (begin(f, key, n, n > SRV_SMALL_BODY_BYTES))
        n_begun++;
    return n_begun;
}

static void a_key_holds_half(void **state)
{
    struct fixture *f = *state;
    REQUIRE_EQ_INT(fill(f, 'a', LARGEST), SRV_BODIES_FACTOR / 2);
    REQUIRE_EQ_INT(fill(f, 'b', LARGEST), SRV_BODIES_FACTOR / 2);
    REQUIRE(!begin(f, 'c', 1 + SRV_SMALL_BODY_BYTES, true));
}

static void small_ones_have_more(void **state)
{
    struct fixture *f = *state;
    fill(f, 'a', LARGEST);
    fill(f, 'b', LARGEST);
    REQUIRE(!begin(f, 'c', SRV_SMALL_BODY_BYTES, true)); /* of one that will be larger */
    int half = SRV_SMALL_BODIES_FACTOR * LARGEST / SRV_SMALL_BODY_BYTES / 2;
    REQUIRE_EQ_INT(fill(f, 'a', SRV_SMALL_BODY_BYTES), half);
    REQUIRE_EQ_INT(fill(f, 'c', SRV_SMALL_BODY_BYTES), half);
    REQUIRE(!begin(f, 'd', 1, false));
}

static void one_key_has_all(void **state)
{
    struct fixture *f = *state;
    f->several = false;
    REQUIRE_EQ_INT(fill(f, 'a', LARGEST), SRV_BODIES_FACTOR);
    REQUIRE_EQ_INT(fill(f, 'a', SRV_SMALL_BODY_BYTES),
                   SRV_SMALL_BODIES_FACTOR * LARGEST / SRV_SMALL_BODY_BYTES);
}

/* One of unknown length that grows too large for the small part needs room in the other. */
static void a_body_grows(void **state)
{
    struct fixture *f = *state;
    fill(f, 'a', LARGEST);
    fill(f, 'b', LARGEST);
    struct srv_body_charge *body = &f->held[f->n];
    REQUIRE(begin(f, 'c', SRV_SMALL_BODY_BYTES, false));
    REQUIRE_EQ_INT(f->bodies.held[SRV_BODIES_SMALL], SRV_SMALL_BODY_BYTES);
    REQUIRE(!srv_bodies_add(&f->bodies, body, 1, true));
    REQUIRE_EQ_INT(f->bodies.held[SRV_BODIES_SMALL], 0); /* it is refused whole */
    REQUIRE(begin(f, 'c', SRV_SMALL_BODY_BYTES, false));
    body = &f->held[f->n - 1];
    srv_bodies_drop(&f->bodies, &f->held[0]);
    REQUIRE(srv_bodies_add(&f->bodies, body, 1, true));
    REQUIRE_EQ_INT(f->bodies.held[SRV_BODIES_SMALL], 0);
    REQUIRE_EQ_INT(f->bodies.held[SRV_BODIES_ALL],
                   (SRV_BODIES_FACTOR - 1) * LARGEST + SRV_SMALL_BODY_BYTES + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_key_holds_half, open_bodies, close_bodies),
        cmocka_unit_test_setup_teardown(small_ones_have_more, open_bodies, close_bodies),
        cmocka_unit_test_setup_teardown(one_key_has_all, open_bodies, close_bodies),
        cmocka_unit_test_setup_teardown(a_body_grows, open_bodies, close_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
