/* SPDX-License-Identifier: MIT */
/* Names and shares of several models; their plans are the test's. */
#include "test.h"

#include <stdlib.h>

#include "server/models/catalogue.h"
#include "server/models/lookup.h"

enum { MIB = 1 << 20 };

static int64_t fixed[3], wanted[3]; /* bytes of each model: without its KV cache, and of that */
static int64_t limit;
static int n_plans;

int __wrap_srv_model_plan(struct eng_memory *ret, const struct srv_model_params *params,
                          int64_t memory_bytes, char *err, size_t errlen);
int64_t __wrap_eng_memory_limit(int64_t asked_bytes);
int64_t __wrap_srv_process_bytes(const struct srv_config *c, int entry);

/* As the engine does: a KV cache without a size of its own is as small as it must be. */
int __wrap_srv_model_plan(struct eng_memory *ret, const struct srv_model_params *p,
                          int64_t memory_bytes, char *err, size_t errlen)
{
    int64_t most = p->share.memory_bytes ? p->share.memory_bytes : limit,
            kv = p->config->kv_memory_bytes ? p->config->kv_memory_bytes : wanted[p->entry];
    (void)memory_bytes;
    n_plans++;
    if (!p->config->kv_memory_bytes && kv > most - fixed[p->entry]) kv = most - fixed[p->entry];
    *ret = (struct eng_memory){.weights_bytes = fixed[p->entry], .kv_bytes = kv};
    if (kv > 0 && fixed[p->entry] + kv <= most) return 0;
    snprintf(err, errlen, "too large");
    return ENG_ENOMEM;
}

int64_t __wrap_eng_memory_limit(int64_t asked_bytes)
{
    (void)asked_bytes;
    return limit;
}

/* Requests and the program take nothing here. */
int64_t __wrap_srv_process_bytes(const struct srv_config *c, int entry)
{
    (void)c;
    (void)entry;
    return 0;
}

static const char *alias_of_chat[] = {"gpt", "mini"};

static struct srv_config more[2];
static struct srv_config config;

static void three_models(void)
{
    more[0] =
        (struct srv_config){.load = "auto", .entry = "embed", .model = "/e", .model_shown = "/e"};
    more[1] =
        (struct srv_config){.load = "auto", .entry = "rank", .model = "/r", .model_shown = "/r"};
    config = (struct srv_config){.load = "auto",
                                 .entry = "chat",
                                 .model = "/c",
                                 .model_shown = "/c",
                                 .alias = {alias_of_chat, 2},
                                 .more = more,
                                 .n_more = 2};
    limit = 1000 * MIB;
    for (int i = 0; i < 3; i++) {
        fixed[i] = 100 * MIB;
        wanted[i] = (i + 1) * 50 * MIB;
    }
    n_plans = 0;
}

static int plan(struct srv_plan plans[3], char err[300])
{
    *err = '\0';
    int rc = srv_catalogue_plan(&config, "/dir", plans, err, 300);
    for (int i = 0; i <= config.n_more; i++)
        free(plans[i].names.items);
    return rc;
}

static void names_of_an_entry(void **state)
{
    (void)state;
    struct srv_list names;
    three_models();
    REQUIRE_EQ_INT(srv_catalogue_names(&config, "own", &names), 0);
    REQUIRE_EQ_INT(names.n, 3);
    REQUIRE_EQ_STR(names.items[0], "chat");
    REQUIRE_EQ_STR(names.items[2], "mini");
    free(names.items);
    config.entry = NULL;
    REQUIRE_EQ_INT(srv_catalogue_names(&config, "own", &names), 0);
    REQUIRE_EQ_INT(names.n, 2);
    REQUIRE_EQ_STR(names.items[0], "gpt");
    free(names.items);
    config.alias.n = 0;
    REQUIRE_EQ_INT(srv_catalogue_names(&config, "own", &names), 0);
    REQUIRE_EQ_INT(names.n, 1);
    REQUIRE_EQ_STR(names.items[0], "own");
    free(names.items);
}

/* Compared as answers show them. */
static void a_repeated_name_is_dropped(void **state)
{
    (void)state;
    static const char *repeated[] = {"gpt", "chat", "gpt", "a\xff", "a\xfe", "a?", "mini"};
    struct srv_list names;
    three_models();
    config.alias = (struct srv_list){repeated, 7};
    REQUIRE_EQ_INT(srv_catalogue_names(&config, "own", &names), 0);
    REQUIRE_EQ_INT(names.n, 4);
    static const char *const left[] = {"chat", "gpt", "a?", "mini"};
    for (int i = 0; i < 4; i++)
        REQUIRE_EQ_STR(names.items[i], left[i]);
    REQUIRE(!names.items[4]);
    free(names.items);
}

static void a_name_is_of_one_model(void **state)
{
    (void)state;
    struct srv_plan plans[3];
    char err[300];
    three_models();
    more[1].entry = "mini";
    REQUIRE_EQ_INT(plan(plans, err), ENG_EINVAL);
    REQUIRE(strstr(err, "'chat' and 'mini'") && strstr(err, "the name 'mini'"));
    three_models();
    static const char *first[] = {"m\xff"}, *second[] = {"m\xfe"};
    more[0].alias = (struct srv_list){first, 1};
    more[1].alias = (struct srv_list){second, 1};
    REQUIRE_EQ_INT(plan(plans, err), ENG_EINVAL);
    REQUIRE(strstr(err, "'embed' and 'rank'") && strstr(err, "the name 'm?'"));
    three_models();
    config.entry = NULL;
    config.alias.n = 0;
    char own[256]; /* the name of its directory is the second one's */
    more[0].entry = srv_hub_model_name(config.model_shown, own, sizeof(own));
    REQUIRE_EQ_INT(plan(plans, err), ENG_EINVAL);
    REQUIRE(strstr(err, own));
    REQUIRE_EQ_INT(n_plans, 0);
}

static void one_model_is_as_configured(void **state)
{
    (void)state;
    struct srv_plan one = {.share = {1, 1}};
    char err[300];
    three_models();
    config.n_more = 0;
    REQUIRE_EQ_INT(srv_catalogue_plan(&config, "/dir", &one, err, sizeof(err)), 0);
    free(one.names.items);
    REQUIRE(one.share.memory_bytes == 0 && one.share.answer_bytes == 0 && n_plans == 1);
    REQUIRE(one.starts && one.bytes == 150 * MIB);
}

static int64_t sum(const struct srv_plan plans[3])
{
    return plans[0].share.memory_bytes + plans[1].share.memory_bytes + plans[2].share.memory_bytes;
}

static void room_for_all(void **state)
{
    (void)state;
    struct srv_plan plans[3];
    char err[300];
    three_models();
    REQUIRE_EQ_INT(plan(plans, err), 0);
    int64_t spare = (1000 - 300 - 300) * (int64_t)MIB / 3;
    for (int i = 0; i < 3; i++) {
        REQUIRE_EQ_INT(plans[i].share.memory_bytes, fixed[i] + wanted[i] + spare);
        REQUIRE_EQ_INT(plans[i].share.answer_bytes, limit / 16 / 3);
    }
    config.swap_memory_bytes = 100 * MIB;
    REQUIRE_EQ_INT(plan(plans, err), 0);
    REQUIRE(sum(plans) <= 900 * (int64_t)MIB && sum(plans) > 899 * (int64_t)MIB);
}

/* KV caches become smaller by the same part; one with a size of its own does not. */
static void too_little_for_all_caches(void **state)
{
    (void)state;
    struct srv_plan plans[3];
    char err[300];
    three_models();
    limit = 450 * MIB;
    REQUIRE_EQ_INT(plan(plans, err), 0);
    for (int i = 0; i < 3; i++)
        REQUIRE_EQ_INT(plans[i].share.memory_bytes, fixed[i] + wanted[i] / 2);
    more[1].kv_memory_bytes = 100 * MIB;
    REQUIRE_EQ_INT(plan(plans, err), 0);
    REQUIRE_EQ_INT(plans[2].share.memory_bytes, 200 * MIB);
    REQUIRE(sum(plans) <= limit && plans[1].share.memory_bytes > plans[0].share.memory_bytes);
}

/* Then each fits next to the pinned ones, and the first is loaded at the start. */
static void too_little_for_all(void **state)
{
    (void)state;
    struct srv_plan plans[3];
    char err[300];
    three_models();
    limit = 290 * MIB;
    fixed[2] = 150 * MIB;
    REQUIRE_EQ_INT(plan(plans, err), 0);
    REQUIRE(plans[0].starts && !plans[1].starts && !plans[2].starts);
    int64_t quarter = (290 - 150) * (int64_t)MIB / 4;
    REQUIRE_EQ_INT(plans[0].share.memory_bytes, fixed[0] + quarter);
    REQUIRE_EQ_INT(plans[2].share.memory_bytes, fixed[2] + quarter);
    more[0].pin = true;
    quarter = (290 - 100 - 150) * (int64_t)MIB / 4;
    REQUIRE_EQ_INT(plan(plans, err), 0);
    REQUIRE(plans[0].starts && plans[1].starts && !plans[2].starts);
    REQUIRE_EQ_INT(plans[1].bytes, fixed[1] + quarter);
    more[0].pin = false;
    more[1].load = "start";
    REQUIRE_EQ_INT(plan(plans, err), ENG_ENOMEM);
    REQUIRE(strstr(err, "2 models that are pinned or loaded at the start take 320 MiB"));
    config.load = "demand";
    REQUIRE_EQ_INT(plan(plans, err), 0);
    REQUIRE(!plans[0].starts && !plans[1].starts && plans[2].starts);
    more[1].load = "demand";
    REQUIRE_EQ_INT(plan(plans, err), 0);
    REQUIRE(!plans[0].starts && plans[1].starts && !plans[2].starts);
}

static void models_that_never_fit(void **state)
{
    (void)state;
    struct srv_plan plans[3];
    char err[300];
    three_models();
    limit = 190 * MIB;
    config.pin = true;
    REQUIRE_EQ_INT(plan(plans, err), ENG_ENOMEM);
    REQUIRE(strstr(err, "pinned models take 100 MiB") &&
            strstr(err, "model embed next to them 100"));
    fixed[1] = 300 * MIB;
    REQUIRE_EQ_INT(plan(plans, err), ENG_ENOMEM);
    REQUIRE_EQ_STR(err, "model embed: too large");
}

static void no_more_than_so_many(void **state)
{
    (void)state;
    struct srv_plan plans[3];
    char err[300];
    three_models();
    config.models_max = 2;
    REQUIRE_EQ_INT(plan(plans, err), 0);
    REQUIRE(plans[0].starts && !plans[1].starts && !plans[2].starts);
    more[0].pin = more[1].pin = true;
    REQUIRE_EQ_INT(plan(plans, err), ENG_ENOMEM);
    REQUIRE(strstr(err, "2 models (--models-max"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_an_entry),
        cmocka_unit_test(a_name_is_of_one_model),
        cmocka_unit_test(a_repeated_name_is_dropped),
        cmocka_unit_test(one_model_is_as_configured),
        cmocka_unit_test(room_for_all),
        cmocka_unit_test(too_little_for_all_caches),
        cmocka_unit_test(too_little_for_all),
        cmocka_unit_test(models_that_never_fit),
        cmocka_unit_test(no_more_than_so_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
