/* SPDX-License-Identifier: MIT */
/*
 * Request bodies into structs: types, ranges, null, unknown keys, and texts no parser should see.
 */
#include "test.h"

#include "base/buf.h"
#include "base/json_reader.h"
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

static void test_read(void **state)
{
    for (size_t i = 0; i < N_OF(read_cases); i++) {
        const struct read_case *c = &read_cases[i];
        struct param_error err = {0};
        struct target t = {0};
        json_t *body = params_parse(c->body, strlen(c->body), PARAM_MAX_VALUES, &err);
        REQUIRE_MSG(body != NULL, "%s: %s", c->body, err.message);
        int rc = params_read(body, fields, &t, NULL, &err);
        REQUIRE_MSG((rc == 0) == (c->expected < 0), "%s: %s", c->body, err.message);
        if (rc) {
            REQUIRE_EQ_INT(err.kind, c->expected);
            REQUIRE_EQ_STR(err.path, c->path);
        }
        json_decref(body);
    }
}

static void test_values(void **state)
{
    const char *text = read_cases[1].body;
    struct param_error err = {0};
    struct target t = {0};
    json_t *body = params_parse(text, strlen(text), PARAM_MAX_VALUES, &err);
    REQUIRE(body && params_read(body, fields, &t, NULL, &err) == 0);
    REQUIRE(t.flag && t.count == 7 && t.ratio == -1.5 && json_is_array(t.any));
    REQUIRE_EQ_STR(t.name, "x");
    json_decref(body);
}

static void test_unknown(void **state)
{
    const char *text = "{\"zig\":1,\"count\":2,\"zag\":null,\"b\\nd\":3}";
    struct param_error err = {0};
    struct param_unknown unknown = {0};
    struct target t = {0};
    json_t *body = params_parse(text, strlen(text), PARAM_MAX_VALUES, &err);
    REQUIRE(body && params_read(body, fields, &t, &unknown, &err) == 0);
    REQUIRE_EQ_INT(unknown.n, 3);
    REQUIRE_EQ_STR(unknown.list, "zig,zag");
    json_decref(body);
}

static const char *const bad_texts[] = {
    "",
    "   ",
    "null",
    "[]",
    "\"x\"",
    "1",
    "{",
    "{\"a\":1",
    "{\"a\":1}x",
    "{'a':1}",
    "{\"a\":1,}",
    "{\"a\":NaN}",
    "{\"a\":Infinity}",
    "{\"a\":1e999}",
    "{\"a\":018446744073709551616}",
    "{\"a\":18446744073709551616.}",
    "{\"a\":--18446744073709551616}",
    "{\"a\":18446744073709551616 5}",
    "{\"a\":+18446744073709551616}",
    "{\"a\":01}",
    "{\"a\":1}//c",
    "{\"a\":\"\xff\"}",
    "{\"a\":\"\xc0\x80\"}",
    "{\"a\":\"\xed\xa0\x80\"}",
    "{\"a\":\"\xe2\x82\"}",
    "{\"a\":\"\n\"}",
    "{\"a\":\"\\ud800\"}",
    "{\"a\":1,\"a\":2}",
    "\xef\xbb\xbf{}",
};

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
        struct param_error err = {0};
        json_t *body = json_loads(cases[i].body, 0, NULL);
        int rc = params_read(body, fields, &t, &unknown, &err);
        json_decref(body);
        REQUIRE_MSG((rc != 0) == (cases[i].meant != NULL), "%s: %s", cases[i].body, err.message);
        if (!rc) continue;
        REQUIRE_EQ_INT(err.kind, SRV_ERR_UNSUPPORTED);
        REQUIRE_MSG(strstr(err.message, cases[i].meant), "%s", err.message);
        REQUIRE_MSG(strstr(err.message, "did you mean"), "%s", err.message);
    }
}

static void test_bad_texts(void **state)
{
    for (size_t i = 0; i < N_OF(bad_texts); i++) {
        struct param_error err = {0};
        json_t *body = params_parse(bad_texts[i], strlen(bad_texts[i]), PARAM_MAX_VALUES, &err);
        REQUIRE_MSG(body == NULL, "accepted: %s", bad_texts[i]);
        REQUIRE_EQ_INT(err.kind, SRV_ERR_INVALID_JSON);
        REQUIRE(strlen(err.message) < 200);
    }
}

/* Deep and wide texts are refused before a tree is built. */
static void test_shape(void **state)
{
    static const struct {
        const char *head, *unit, *tail;
        int n;
        bool good;
    } shapes[] = {
        {"{\"a\":", "[", "", 100000, false},      {"{\"a\":", "{\"b\":", "", 100000, false},
        {"{\"a\":[", "1,", "1]}", 300000, false}, {"{\"a\":[", "1,", "1]}", 100000, true},
        {"{\"a\":\"", "[", "\"}", 100000, true},
    };
    for (size_t i = 0; i < N_OF(shapes); i++) {
        struct buf b;
        buf_init(&b, 4 << 20);
        buf_puts(&b, shapes[i].head);
        for (int k = 0; k < shapes[i].n; k++)
            buf_puts(&b, shapes[i].unit);
        buf_puts(&b, shapes[i].tail);
        struct param_error err = {0};
        json_t *body = params_parse(b.data, b.len, PARAM_MAX_VALUES, &err);
        REQUIRE_MSG((body != NULL) == shapes[i].good, "shape %zu: %s", i, err.message);
        json_decref(body);
        buf_finish(&b);
    }
}

/* An integer of any size is a real to the tree; its digits stay in the text. */
static void test_integers_beyond_64_bits(void **state)
{
    static const char text[] = "{ \"o\\u0074her\" : {\"a\":1} , \"a\\\"\":[\"]\",{\"n\":\"}\"}],\n"
                               "\"n\":-123456789012345678901234567890 }";
    static const struct {
        const char *key, *span;
    } members[] = {
        {"other", "{\"a\":1}"},
        {"a\"", "[\"]\",{\"n\":\"}\"}]"},
        {"n", "-123456789012345678901234567890"},
        {"a", NULL},
        {"", NULL},
    };
    struct param_error err = {0};
    (void)state;
    json_t *body = params_parse(text, sizeof(text) - 1, PARAM_MAX_VALUES, &err);
    REQUIRE(body != NULL && json_is_real(json_object_get(body, "n")));
    REQUIRE(json_real_value(json_object_get(body, "n")) < -1.2e29);
    for (size_t i = 0; i < N_OF(members); i++) {
        struct srv_span span;
        bool found = jr_member(text, sizeof(text) - 1, members[i].key, &span.text, &span.len);
        REQUIRE_MSG(found == (members[i].span != NULL), "%s", members[i].key);
        if (found)
            REQUIRE(span.len == strlen(members[i].span) &&
                    !memcmp(span.text, members[i].span, span.len));
    }
    json_decref(body);
}

static void test_presets(void **state)
{
    static const struct param_field rows[] = {
        FIELD(PARAM_BOOL, flag, .preset = true),
        FIELD(PARAM_INT, count, .max = 100, .preset = -1),
        FIELD(PARAM_NUMBER, ratio, .preset = 0.5),
        FIELD(PARAM_STRING, name),
        {.name = "user", .type = PARAM_IGNORED},
        {0},
    };
    struct target t = {.name = "kept"};
    (void)state;
    params_preset(rows, &t);
    REQUIRE(t.flag && t.count == -1 && t.ratio == 0.5);
    REQUIRE_EQ_STR(t.name, "kept");
    params_preset(fields, &t);
    REQUIRE(!t.flag && t.count == 0 && t.ratio == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),       cmocka_unit_test(test_values),
        cmocka_unit_test(test_presets),    cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_misspelled), cmocka_unit_test(test_bad_texts),
        cmocka_unit_test(test_shape),      cmocka_unit_test(test_integers_beyond_64_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
