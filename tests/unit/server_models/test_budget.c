/* SPDX-License-Identifier: MIT */
/* Memory that requests may hold, by the memory available. */
#include "test.h"

#include "server/models/budget.h"
#include "server/config/config.h"

#define MIB ((int64_t)1 << 20)

static struct srv_config settled(struct srv_config c)
{
    REQUIRE_EQ_INT(srv_budget_settle(&c), 0);
    REQUIRE_EQ_INT(c.warnings.n, 0);
    return c;
}

static void by_memory(void **state)
{
    static const struct {
        int64_t mib;
        int n_workers, n_connections;
        int64_t body_kib;
    } cases[] = {
        {16, 3, 64, 64}, /* the least */
        {128, 3, 107, 128},  {280, 3, 235, 384},        {1024, 3, 862, 1472},
        {1024, 4, 862, 896}, {16 << 10, 3, 1024, 4096},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_config c = settled((struct srv_config){.memory_bytes = cases[i].mib * MIB,
                                                          .text_workers = cases[i].n_workers});
        REQUIRE_EQ_INT(c.max_connections, cases[i].n_connections);
        REQUIRE_EQ_INT(c.max_body_bytes, cases[i].body_kib << 10);
        /* Two shares, the connections that are only refused, and small bodies. */
        if (i) REQUIRE(srv_budget_bytes(&c) <= c.memory_bytes / 8 + 12 * MIB);
    }
}

static void what_is_asked_for_is_kept(void **state)
{
    (void)state;
    struct srv_config c = settled((struct srv_config){
        .memory_bytes = 128 * MIB, .max_connections = 5000, .max_body_bytes = 9 << 20});
    REQUIRE_EQ_INT(c.max_connections, 5000);
    REQUIRE_EQ_INT(c.max_body_bytes, 9 << 20);
    REQUIRE(c.text_workers >= 3 && srv_budget_bytes(&c) > 700 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_memory),
        cmocka_unit_test(what_is_asked_for_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
