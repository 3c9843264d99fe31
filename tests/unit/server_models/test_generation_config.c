/* SPDX-License-Identifier: MIT */
/* Sampling defaults: neutral ones, those of a generation_config.json, and of options. */
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "server/config/config.h"
#include "server/models/generation_config.h"

/* Reads a generation_config.json of this text over neutral defaults. */
static int read_text(const char *text, struct srv_defaults *ret, char *err, size_t errlen)
{
    char dir[] = "/tmp/hearth-generation-config-XXXXXX", path[64];
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(path, sizeof(path), "%s/generation_config.json", dir);
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL);
    fputs(text, f);
    fclose(f);
    *ret = srv_defaults_neutral();
    int rc = srv_defaults_read(ret, dir, err, errlen);
    REQUIRE(unlink(path) == 0 && rmdir(dir) == 0);
    return rc;
}

static void test_every_parameter_is_read(void **state)
{
    char err[256] = "", text[128];
    struct srv_defaults d;
    (void)state;
#define READ(name, type, least, most, ...)                                                         \
    for (int end = 0; end < 2; end++) {                                                            \
        double value = end ? most : least, beyond = end ? value + 1 : value - 1;                   \
        snprintf(text, sizeof(text), "{\"" #name "\": %.17g}", value);                             \
        REQUIRE_MSG(read_text(text, &d, err, sizeof(err)) == 0, "%s", err);                        \
        REQUIRE((double)d.sampling.name == value);                                                 \
        snprintf(text, sizeof(text), "{\"" #name "\": %.17g}", beyond);                            \
        REQUIRE(read_text(text, &d, err, sizeof(err)) < 0);                                        \
        REQUIRE_MSG(strstr(err, "generation_config.json: " #name " must be"), "%s", err);          \
        REQUIRE(d.sampling.name == srv_defaults_neutral().sampling.name);                          \
    }
    ENG_SAMPLING_DEFAULTS(READ)
}

static void test_other_members(void **state)
{
    char err[256] = "";
    struct srv_defaults d;
    (void)state;
    REQUIRE_EQ_INT(read_text("{\"do_sample\": false, \"temperature\": 0.7}", &d, err, sizeof(err)),
                   0);
    REQUIRE(d.sampling.temperature == 0);
    REQUIRE_EQ_INT(read_text("{\"do_sample\": true, \"top_k\": null}", &d, err, sizeof(err)), 0);
    REQUIRE(d.sampling.temperature == 1 && d.sampling.top_k == 0);
    /* requests only */
    REQUIRE_EQ_INT(read_text("{\"presence_penalty\": 1}", &d, err, sizeof(err)), 0);
    REQUIRE(d.sampling.presence_penalty == 0);
    REQUIRE(read_text("{\"top_p\": \"1\"}", &d, err, sizeof(err)) < 0 && strstr(err, "top_p"));
    REQUIRE(read_text("[", &d, err, sizeof(err)) < 0 && strstr(err, "line 1"));
}

static void test_a_directory_without_the_file(void **state)
{
    char err[256] = "";
    struct srv_defaults d = srv_defaults_neutral();
    (void)state;
    d.sampling.top_k = 7;
    REQUIRE_EQ_INT(srv_defaults_read(&d, "/proc/self/fdinfo", err, sizeof(err)), 0);
    REQUIRE(d.sampling.top_k == 7 && d.seed == -1 && d.max_tokens == -1);
}

static void test_options_override(void **state)
{
    struct srv_config c = {.temperature = 0.5,
                           .top_p = SRV_UNSET,
                           .top_k = 3,
                           .min_p = SRV_UNSET,
                           .seed = 9,
                           .max_tokens = SRV_UNSET};
    struct srv_defaults d = srv_defaults_neutral();
    (void)state;
    d.sampling.min_p = 0.25;
    srv_defaults_override(&d, &c);
    REQUIRE(d.sampling.temperature == 0.5 && d.sampling.top_k == 3);
    REQUIRE(d.sampling.top_p == 1 && d.sampling.min_p == 0.25);
    REQUIRE(d.seed == 9 && d.max_tokens == -1);
}

static void test_chain_takes_every_value(void **state)
{
    struct srv_sampling values = srv_defaults_neutral().sampling;
    struct eng_sampling off = eng_sampling_default(), chain = off;
    srv_sampling_set(&chain, &values);
    int n = 0;
    (void)state;
#define EQUAL(name, ...) REQUIRE(chain.name == off.name);
    ENG_SAMPLING_PARAMS(EQUAL)
    REQUIRE(chain.bias == NULL && chain.allowed_ids == NULL && chain.seed == 0);
#define SET(name, ...) values.name = ++n;
    ENG_SAMPLING_PARAMS(SET)
    srv_sampling_set(&chain, &values);
    n = 0;
#define IS_SET(name, ...) REQUIRE((int)chain.name == ++n);
    ENG_SAMPLING_PARAMS(IS_SET)
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_parameter_is_read),
        cmocka_unit_test(test_other_members),
        cmocka_unit_test(test_a_directory_without_the_file),
        cmocka_unit_test(test_options_override),
        cmocka_unit_test(test_chain_takes_every_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
