/* SPDX-License-Identifier: MIT */
/* What fits; the plans are the test's. */
#include "test.h"

#include <string.h>

#include "server/models/fit.h"
#include "server/models/served_model.h"

enum { MIB = 1 << 20, LIMIT = 1000 * MIB, ONCE = 10 * MIB };

/* Of the model that is planned: all but its KV cache, the one that it wants, the smallest. */
static int64_t fixed, kv, least_kv;
static int rc_of_headers;

int __wrap_srv_model_plan(struct eng_memory *ret, const struct srv_model_params *p,
                          int64_t memory_bytes, char *err, size_t errlen);
int64_t __wrap_eng_memory_limit(int64_t asked_bytes);
int64_t __wrap_srv_process_bytes(const struct srv_config *c, int entry);

int __wrap_srv_model_plan(struct eng_memory *ret, const struct srv_model_params *p,
                          int64_t memory_bytes, char *err, size_t errlen)
{
    int64_t most = memory_bytes            ? memory_bytes
                   : p->share.memory_bytes ? p->share.memory_bytes
                                           : LIMIT;
    int64_t left = most - fixed < kv ? most - fixed : kv;
    *ret = (struct eng_memory){.weights_bytes = fixed, .kv_bytes = left};
    snprintf(err, errlen, "%s", rc_of_headers ? "no model" : "too large alone");
    return rc_of_headers ? rc_of_headers : left < least_kv ? ENG_ENOMEM : 0;
}

int64_t __wrap_eng_memory_limit(int64_t asked_bytes)
{
    return asked_bytes;
}

int64_t __wrap_srv_process_bytes(const struct srv_config *c, int entry)
{
    (void)c;
    return entry ? 0 : ONCE;
}

static void sums(void **state)
{
    (void)state;
    const struct fit_room by_bytes = {.limit_bytes = 11},
                          by_number = {.limit_bytes = 100, .max_models = 2};
    struct fit_sum sum = {0};
    fit_add(&sum, 4);
    fit_add(&sum, 7);
    REQUIRE(sum.bytes == 11 && sum.n == 2);
    REQUIRE(fit_holds(&by_bytes, sum) && fit_holds(&by_number, sum));
    fit_add(&sum, 1);
    REQUIRE(!fit_holds(&by_bytes, sum) && !fit_holds(&by_number, sum));
    struct fit_sum more = fit_excess(&by_bytes, sum);
    REQUIRE(more.bytes == 1 && more.n == 0);
    more = fit_excess(&by_number, sum);
    REQUIRE(more.bytes == -88 && more.n == 1);
    REQUIRE(fit_mib(0) == 0 && fit_mib(1) == 1 && fit_mib(MIB) == 1 && fit_mib(MIB + 1) == 2);
}

static const struct srv_config config = {.memory_bytes = LIMIT};

/* A model of the entry beside others that take in_use MiB, KV cache of the replaced one included. */
static int beside(int entry, int in_use, int kv_mib, bool alone, struct fit_bytes *ret,
                  struct srv_model_params *params, char err[300])
{
    *params = (struct srv_model_params){.config = &config, .entry = entry};
    *ret = (struct fit_bytes){0};
    return fit_beside(ret, params, (int64_t)in_use * MIB, (int64_t)kv_mib * MIB, alone, err, 300);
}

static void beside_those_that_live(void **state)
{
    (void)state;
    struct srv_model_params p;
    struct fit_bytes b;
    char err[300];
    fixed = 300 * MIB;
    kv = 200 * MIB;
    least_kv = 50 * MIB;
    /* Alone it has the plan of its configuration; next to others what they leave. */
    REQUIRE(beside(0, 510, 100, true, &b, &p, err) == 0);
    REQUIRE(p.share.memory_bytes == 0 && b.needed == 490 * MIB);
    REQUIRE(beside(1, 600, 100, false, &b, &p, err) == 0);
    REQUIRE(p.share.memory_bytes == 400 * MIB && b.needed == 400 * MIB);
    REQUIRE(beside(0, 600, 100, false, &b, &p, err) == 0);
    REQUIRE(p.share.memory_bytes == 410 * MIB && b.needed == 400 * MIB);
    /* A smaller KV cache of the other one would make room. */
    REQUIRE(beside(0, 511, 100, true, &b, &p, err) == ENG_ENOMEM);
    REQUIRE(b.needed == 490 * MIB && b.available == 489 * MIB && b.limit == LIMIT);
    REQUIRE_EQ_STR(err,
                   "the model takes 490 MiB next to the running one's 511 MiB, but the limit is "
                   "1000 MiB; with --swap-memory 490M the server leaves room for it");
    REQUIRE(beside(0, 511, 1, true, &b, &p, err) == ENG_ENOMEM && strstr(err, " MiB (--memory)"));
    REQUIRE(beside(0, 511, 2, true, &b, &p, err) == ENG_ENOMEM && strstr(err, "--swap-memory"));
    REQUIRE(beside(1, 651, 0, false, &b, &p, err) == ENG_ENOMEM && strstr(err, "next to"));
    REQUIRE(b.needed == 500 * MIB && b.available == 349 * MIB && b.limit == LIMIT);
    REQUIRE(beside(1, 1200, 0, false, &b, &p, err) == ENG_ENOMEM);
    REQUIRE(p.share.memory_bytes == 1 && b.available == -200 * MIB);
}

static void models_that_never_fit(void **state)
{
    (void)state;
    struct srv_model_params p;
    struct fit_bytes b;
    char err[300];
    fixed = 990 * MIB;
    REQUIRE(beside(0, 0, 0, true, &b, &p, err) == ENG_ENOMEM && b.limit == LIMIT);
    REQUIRE_EQ_STR(err, "too large alone");
    rc_of_headers = ENG_EINVAL;
    REQUIRE(beside(0, 0, 0, true, &b, &p, err) == ENG_EINVAL && b.limit == 0);
    REQUIRE_EQ_STR(err, "no model");
    rc_of_headers = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),
        cmocka_unit_test(beside_those_that_live),
        cmocka_unit_test(models_that_never_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
