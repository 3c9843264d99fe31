/* SPDX-License-Identifier: MIT */
/* Request bodies into structs: types, ranges, null and unknown keys. */
#include "test.h"

#include "server/api/read/json_fields.h"

struct target {
    bool flag;
    int64_t count;
    double ratio;
    const char *name;
    json_t *any;
};

#define FIELD(type_, member, ...)                                                                  \
    {                                                                                              \
        .name = #member, .type = type_, .offset = offsetof(struct target, member), __VA_ARGS__     \
    }

static const struct param_field fields[] = {
    FIELD(PARAM_BOOL, flag),
    FIELD(PARAM_INT, count, .max = 100, .also = "amount"),
    FIELD(PARAM_NUMBER, ratio, .min = -2, .max = 2),
    FIELD(PARAM_STRING, name),
    FIELD(PARAM_JSON, any),
    {.name = "user", .type = PARAM_IGNORED},
    {.name = "tools", .type = PARAM_UNSUPPORTED},
    {0},
};

struct read_case {
    const char *body;
    int expected; /* -1 good, else enum srv_error */
    const char *path;
};

static const struct read_case read_cases[] = {
    {"{}", -1, ""},
    {"{\"flag\":true,\"count\":7,\"ratio\":-1.5,\"name\":\"x\",\"any\":[1]}", -1, ""},
    {"{\"flag\":null,\"count\":null,\"ratio\":null,\"name\":null,\"any\":null,\"tools\":null}", -1,
     ""},
    {"{\"count\":7.0}", -1, ""},
    {"{\"amount\":7}", -1, ""},
    {"{\"amount\":101}", SRV_ERR_INVALID_VALUE, "amount"},
    {"{\"count\":7.5}", SRV_ERR_INVALID_TYPE, "count"},
    {"{\"count\":\"7\"}", SRV_ERR_INVALID_TYPE, "count"},
    {"{\"count\":true}", SRV_ERR_INVALID_TYPE, "count"},
    {"{\"count\":-1}", SRV_ERR_INVALID_VALUE, "count"},
    {"{\"count\":101}", SRV_ERR_INVALID_VALUE, "count"},
    {"{\"count\":9223372036854775807}", SRV_ERR_INVALID_VALUE, "count"},
    {"{\"count\":{}}", SRV_ERR_INVALID_TYPE, "count"},
    {"{\"count\":9223372036854775808}", SRV_ERR_INVALID_VALUE, "count"},
    {"{\"count\":-9223372036854775809}", SRV_ERR_INVALID_VALUE, "count"},
    {"{\"count\":18446744073709551616 }", SRV_ERR_INVALID_VALUE, "count"},
    {"{\"ratio\":123456789012345678901234567890}", SRV_ERR_INVALID_VALUE, "ratio"},
    {"{\"name\":123456789012345678901234567890}", SRV_ERR_INVALID_TYPE, "name"},
    {"{\"user\":-123456789012345678901234567890,\"any\":[99999999999999999999]}", -1, ""},
    {"{\"ratio\":2.01}", SRV_ERR_INVALID_VALUE, "ratio"},
    {"{\"ratio\":\"1\"}", SRV_ERR_INVALID_TYPE, "ratio"},
    {"{\"flag\":1}", SRV_ERR_INVALID_TYPE, "flag"},
    {"{\"name\":5}", SRV_ERR_INVALID_TYPE, "name"},
    {"{\"name\":\"a\\u0000b\"}", SRV_ERR_INVALID_VALUE, "name"},
    {"{\"user\":{\"any\":[\"thing\"]}}", -1, ""},
    {"{\"tools\":[]}", -1, ""},
    {"{\"tools\":\"none\"}", -1, ""},
    {"{\"tools\":{\"type\":\"text\"}}", -1, ""},
    {"{\"tools\":[{\"type\":\"function\"}]}", SRV_ERR_UNSUPPORTED, "tools"},
    {"{\"tools\":true}", SRV_ERR_UNSUPPORTED, "tools"},
};

static void test_words(void **state)
{
    static const char *const words[] = {"a", "ab", NULL};
    (void)state;
    REQUIRE(param_find_word(words, "a") == 0 && param_find_word(words, "ab") == 1);
    REQUIRE(param_find_word(words, "b") == -1 && param_find_word(words, NULL) == -1);
}

static void test_read(void **state)
{
    for (size_t i = 0; i < N_OF(read_cases); i++) {
        const struct read_case *c = &read_cases[i];
        struct target t = {0};
        struct srv_body read;
        REQUIRE_MSG(!srv_body_read(&read, c->body, strlen(c->body), PARAM_MAX_VALUES), "%s: %s",
                    c->body, param_error.message);
        int rc = params_read(read.root, fields, &t, NULL);
        REQUIRE_MSG((rc == 0) == (c->expected < 0), "%s: %s", c->body, param_error.message);
        if (rc) {
            REQUIRE_EQ_INT(param_error.kind, c->expected);
            REQUIRE_EQ_STR(param_error.path, c->path);
        }
        srv_body_finish(&read);
    }
}

static void test_values(void **state)
{
    const char *text = read_cases[1].body;
    struct target t = {0};
    json_t *body = json_loads(text, 0, NULL);
    REQUIRE(body && params_read(body, fields, &t, NULL) == 0);
    REQUIRE(t.flag && t.count == 7 && t.ratio == -1.5 && json_is_array(t.any));
    REQUIRE_EQ_STR(t.name, "x");
    json_decref(body);
}

static void test_unknown(void **state)
{
    const char *text = "{\"zig\":1,\"count\":2,\"zag\":null,\"b\\nd\":3}";
    struct param_unknown unknown = {0};
    struct target t = {0};
    json_t *body = json_loads(text, 0, NULL);
    REQUIRE(body && params_read(body, fields, &t, &unknown) == 0);
    REQUIRE_EQ_INT(unknown.n, 3);
    REQUIRE_EQ_STR(unknown.list, "zig,zag");
    json_decref(body);
}

/* One letter missing, doubled, or two exchanged, and the field itself absent. */
static void test_misspelled(void **state)
{
    static const struct {
        const char *body, *meant; /* NULL: only unknown */
    } cases[] = {
        {"{\"cout\":1}", "count"},
        {"{\"coun\":1}", "count"},
        {"{\"ount\":1}", "count"},
        {"{\"ccount\":1}", "count"},
        {"{\"countt\":1}", "count"},
        {"{\"cuont\":1}", "count"},
        {"{\"ratoi\":1}", "ratio"},
        {"{\"tool\":[]}", "tools"},
        {"{\"uesr\":\"x\"}", "user"},
        {"{\"counts\":1}", NULL},
        {"{\"court\":1}", NULL},
        {"{\"Count\":1}", NULL},
        {"{\"con\":1}", NULL},
        {"{\"tnuoc\":1}", NULL},
        {"{\"\":1}", NULL},
        {"{\"cout\":null}", NULL},
        {"{\"cout\":1,\"count\":2}", NULL},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct target t = {0};
        struct param_unknown unknown = {0};
        json_t *body = json_loads(cases[i].body, 0, NULL);
        int rc = params_read(body, fields, &t, &unknown);
        json_decref(body);
        REQUIRE_MSG((rc != 0) == (cases[i].meant != NULL), "%s: %s", cases[i].body,
                    param_error.message);
        if (!rc) continue;
        REQUIRE_EQ_INT(param_error.kind, SRV_ERR_UNSUPPORTED);
        REQUIRE_MSG(strstr(param_error.message, cases[i].meant), "%s", param_error.message);
        REQUIRE_MSG(strstr(param_error.message, "did you mean"), "%s", param_error.message);
    }
}

/* A message has the number as it was sent, and the range. */
static void test_messages(void **state)
{
    static const struct {
        const char *body, *message;
    } cases[] = {
        {"{\"count\":101}", "'count' is 101, but must be between 0 and 100."},
        {"{\"amount\":101.0}", "'amount' is 101, but must be between 0 and 100."},
        {"{\"ratio\":2.1}", "'ratio' is 2.1, but must be between -2 and 2."},
        {"{\"ratio\":2.0000001}", "'ratio' is 2.0000001, but must be between -2 and 2."},
        {"{\"count\":0.5}", "'count' must be an integer, but is a number."},
        {"{\"flag\":[]}", "'flag' must be a boolean, but is an array."},
        {"{\"name\":7}", "'name' must be a string, but is an integer."},
        {"{\"ratio\":false}", "'ratio' must be a number, but is a boolean."},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct target t = {0};
        json_t *body = json_loads(cases[i].body, 0, NULL);
        REQUIRE(params_read(body, fields, &t, NULL) < 0);
        REQUIRE_EQ_STR(param_error.message, cases[i].message);
        json_decref(body);
    }
}

static void test_neutral(void **state)
{
    static const struct {
        const char *value;
        bool neutral;
    } cases[] = {
        {"false", true},      {"0", true},        {"-1", true},
        {"0.0", true},        {"\"\"", true},     {"{}", true},
        {"[\"text\"]", true}, {"1", false},       {"\"auto\"", true},
        {"\"x\"", false},     {"[\"x\"]", false}, {"[\"text\",\"text\"]", false},
        {"{\"a\":1}", false},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct target t = {0};
        json_t *body =
            json_pack("{s:o}", "tools", json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        REQUIRE_MSG((params_read(body, fields, &t, NULL) == 0) == cases[i].neutral, "%s",
                    cases[i].value);
        json_decref(body);
    }
}

static void test_members(void **state)
{
    static const char *const known[] = {"a", "b", NULL};
    struct param_unknown unknown = {0};
    json_t *object = json_loads("{\"b\":1,\"x\":2,\"y\":null,\"z\":[]}", 0, NULL);
    (void)state;
    param_note_members(&unknown, object, "at", known);
    REQUIRE_EQ_STR(unknown.list, "at.x,at.z");
    json_decref(object);
}

static void test_preset(void **state)
{
    static const struct param_field presets[] = {FIELD(PARAM_BOOL, flag, .preset = 1),
                                                 FIELD(PARAM_INT, count, .preset = 7),
                                                 FIELD(PARAM_NUMBER, ratio, .preset = 0.5),
                                                 {0}};
    struct target t = {0};
    (void)state;
    params_preset(presets, &t);
    REQUIRE(t.flag && t.count == 7 && t.ratio == 0.5 && !t.name);
}

static void test_ids(void **state)
{
    static const struct {
        const char *value;
        int32_t id; /* -1: refused */
        const char *message;
    } cases[] = {
        {"0", 0, ""},
        {"99", 99, ""},
        {"100", -1, "holds the token id 100; ids run from 0 to 99."},
        {"-1", -1, "holds the token id -1; ids run"},
        {"1.0", -1, "must hold integers."},
        {"\"1\"", -1, "must hold integers."},
        {"1e30", -1, "holds the token id 1e+30; ids run"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        int32_t id = -1;
        json_t *value = json_loads(cases[i].value, JSON_DECODE_ANY, NULL);
        int rc = param_read_id(value, 100, "ids", &id);
        REQUIRE_MSG((rc < 0) == (cases[i].id < 0) && id == cases[i].id, "%s", cases[i].value);
        REQUIRE_MSG(strstr(param_error.message, cases[i].message), "%s", param_error.message);
        json_decref(value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),      cmocka_unit_test(test_read),
        cmocka_unit_test(test_values),     cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_misspelled), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_neutral),    cmocka_unit_test(test_members),
        cmocka_unit_test(test_preset),     cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
