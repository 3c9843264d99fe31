/* SPDX-License-Identifier: MIT */
/* Bodies: texts that are refused and where, numbers, spans, and every allocation failing; who builds a tree of jansson's
 * learns of that. */
#include "test.h"

#include <limits.h>
#include <pthread.h>

#include "base/buf.h"
#include "server/api/read/body.h"

/*
 * Every malloc of the server's sources comes through here (the linker sends it, see meson.build).
 */
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
static long n_allocations, fail_from, fail_to; /* calls from..to - 1 fail */

void *__wrap_malloc(size_t n)
{
    n_allocations++;
    return n_allocations >= fail_from && n_allocations < fail_to ? NULL : __real_malloc(n);
}

/* Parses with the allocations of [from, to) failing; the number there were. */
static long parse_short_of_memory(const char *text, size_t len, long from, long to)
{
    n_allocations = 0;
    fail_from = from;
    fail_to = to;
    struct srv_body body;
    int rc = srv_body_read(&body, text, len, PARAM_MAX_VALUES);
    long n = n_allocations;
    fail_from = fail_to = 0;
    REQUIRE((rc != 0) == (from <= n && from < to));
    REQUIRE(!rc || param_error.kind == SRV_ERR_OVERLOADED);
    srv_body_finish(&body);
    return n;
}

/* Each allocation alone, and it with all that follow: 503, whatever it was for. */
static void check_short_of_memory(const char *text, size_t len, long step)
{
    long n = parse_short_of_memory(text, len, 0, 0);
    REQUIRE(n > 0);
    for (long k = 1; k <= n; k += step) {
        parse_short_of_memory(text, len, k, k + 1);
        parse_short_of_memory(text, len, k, LONG_MAX);
    }
}

/*
 * `head`, then n times `item` with a comma between, then `tail`; a '#' of the item is its number.
 */
static void check_repeated(const char *head, const char *item, const char *tail, int n)
{
    struct buf b;
    buf_init(&b, 1 << 22);
    buf_puts(&b, head);
    for (int i = 0; i < n; i++) {
        if (i) buf_puts(&b, ",");
        for (const char *c = item; *c; c++)
            if (*c == '#')
                buf_printf(&b, "%d", i);
            else
                buf_add(&b, c, 1);
    }
    buf_puts(&b, tail);
    check_short_of_memory(b.data, b.len, n > 100 ? 4999 : 1);
    buf_finish(&b);
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"prompt\":\"Tom has a ball\"}",
        "{\"n\":123456789012345,\"m\":-1234567890123456789,\"x\":1.2345678901234567e123}",
        "{\"s\":\"0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0\\u00e9\"}",
        "{\"a\":[true,false,null,{},[[[[]]]],{\"b\":{\"c\":\"\\n\"}}]}",
        "{\"a\":[123456789012345678901234567890,1]}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        check_short_of_memory(texts[i], strlen(texts[i]), 1);
    check_repeated("{\"a\":[", "{}", "]}", 20000);
    check_repeated("{\"a\":[", "{\"\":{}}", "]}", 5000);
    check_repeated("{", "\"#\":{}", "}", 20000);
    check_repeated("{\"a\":[", "7", "]}", 20000);
    check_repeated("{\"a\":[", "[\"x\"]", "]}", 5000);
    check_repeated("{\"a\":\"", "0123456789abcdef0123456789abcdef", "\"}", 3000);
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

static void test_bad_texts(void **state)
{
    for (size_t i = 0; i < N_OF(bad_texts); i++) {
        struct srv_body body;
        int rc = srv_body_read(&body, bad_texts[i], strlen(bad_texts[i]), PARAM_MAX_VALUES);
        REQUIRE_MSG(rc && !body.root, "accepted: %s", bad_texts[i]);
        REQUIRE_EQ_INT(param_error.kind, SRV_ERR_INVALID_JSON);
        REQUIRE(strlen(param_error.message) < 200);
    }
}

/* Deep and wide texts are refused. */
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
        struct srv_body body;
        int rc = srv_body_read(&body, b.data, b.len, PARAM_MAX_VALUES);
        REQUIRE_MSG((rc == 0) == shapes[i].good, "shape %zu: %s", i, param_error.message);
        srv_body_finish(&body);
        buf_finish(&b);
    }
}

/* The place of the first byte that cannot be, in lines and characters. */
static void test_positions(void **state)
{
    static const struct {
        const char *text, *place;
    } cases[] = {
        {"{\"a\":1,}", "line 1, column 8): expected a string."},
        {"{\n \"\xc3\xa9\": x}", "line 2, column 7"},
        {"{\"a\"", "line 1, column 4"},
        {"{\"a\":1,\"a\":2}", "line 1, column 13): a key that comes twice, 'a'."},
        {"{\"b\":{\"\xc3\xa9\\n\":1,\"\xc3\xa9\\n\":[]}}", "a key that comes twice, '?\?\?'."},
        {"{\"a\\u0000\":2}", "line 1, column 12): a key holds \\u0000."},
        {"{\"\xc3\xa9\":\n\"\xc3\xa9\xff\"}", "line 2, column 3): bytes that are not UTF-8."},
        {"{\"a\":\"\xe2\x82\"}", "line 1, column 7): bytes that are not UTF-8."},
        {"\xff", "line 1, column 1): bytes that are not UTF-8."},
        {"{\"a\":\"\\ud800\"}", ": a lone surrogate."},
        {"{\"a\":NaN}", ": NaN and Infinity are not numbers of JSON."},
        {"{\"a\":-Infinity}", ": NaN and Infinity are not numbers of JSON."},
        {"{\"a\":1e999}", ": a number out of range."},
        {"{\"a\":1}x", "line 1, column 8): text after the end."},
        {"{\"a\":1", ": expected a comma or a closing bracket."},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_body body;
        REQUIRE(srv_body_read(&body, cases[i].text, strlen(cases[i].text), 10));
        REQUIRE_MSG(strstr(param_error.message, cases[i].place), "%s: %s", cases[i].text,
                    param_error.message);
    }
}

/* An integer of any size is a real to the tree; its digits stay in the text. */
static void test_numbers(void **state)
{
    static const struct {
        const char *text;
        bool real;
        double value;
    } cases[] = {
        {"{\"n\":9223372036854775807}", false, 9223372036854775807.0},
        {"{\"n\":-9223372036854775808}", false, -9223372036854775808.0},
        {"{\"n\":9223372036854775808}", true, 9223372036854775808.0},
        {"{\"n\":-123456789012345678901234567890}", true, -123456789012345678901234567890.0},
        {"{\"n\":-9223372036854775809}", true, -9223372036854777856.0},
        {"{\"n\":-0}", false, 0},
        {"{\"n\":1e2}", true, 100},
        {"{\"n\":2.5}", true, 2.5},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_body body;
        REQUIRE(!srv_body_read(&body, cases[i].text, strlen(cases[i].text), 10));
        const json_t *n = json_object_get(body.root, "n");
        REQUIRE_MSG(json_is_real(n) == cases[i].real, "%s", cases[i].text);
        REQUIRE_MSG(json_number_value(n) == cases[i].value, "%s", cases[i].text);
        srv_body_finish(&body);
    }
}

static void test_spans(void **state)
{
    static const char text[] = "{ \"o\\u0074her\" : {\"a\":1} , \"a\\\"\":[\"]\",{\"n\":\"}\"}],\n"
                               "\"t\":true,\"x\":null,\"n\":12345678901234567890123, \"s\":\"\" }";
    static const struct {
        const char *key, *span; /* NULL: none */
    } members[] = {
        {"other", "{\"a\":1}"},
        {"a\"", "[\"]\",{\"n\":\"}\"}]"},
        {"t", "true"},
        {"x", "null"},
        {"n", NULL},
        {"s", NULL},
    };
    struct srv_body body;
    (void)state;
    REQUIRE(!srv_body_read(&body, text, sizeof(text) - 1, PARAM_MAX_VALUES));
    for (size_t i = 0; i < N_OF(members); i++) {
        struct srv_span span = srv_body_span(&body, json_object_get(body.root, members[i].key));
        REQUIRE_MSG((span.text != NULL) == (members[i].span != NULL), "%s", members[i].key);
        if (span.text)
            REQUIRE_MSG(span.len == strlen(members[i].span) &&
                            !memcmp(span.text, members[i].span, span.len),
                        "%s: %.*s", members[i].key, (int)span.len, span.text);
    }
    const json_t *inner = json_array_get(json_object_get(body.root, "a\""), 1);
    struct srv_span span = srv_body_span(&body, inner);
    REQUIRE(span.len == 9 && !memcmp(span.text, "{\"n\":\"}\"}", 9));
    REQUIRE(srv_body_span(&body, body.root).len == sizeof(text) - 1);
    json_t *other = json_object();
    REQUIRE(!srv_body_span(&body, other).text);
    json_decref(other);
    srv_body_finish(&body);
}

/* ---- trees that the server builds ---------------------------------------------------------- */

/* {"a": ["b"]}, or less of it if all allocations after the first n fail; n < 0: none does. */
static json_t *build(long n)
{
    n_allocations = 0;
    fail_from = n < 0 ? 0 : n + 1;
    fail_to = n < 0 ? 0 : LONG_MAX;
    json_t *list = json_array(), *tree = json_object();
    json_array_append_new(list, json_string("b"));
    json_object_set_new(tree, "a", list);
    fail_from = fail_to = 0;
    return tree;
}

/* Each failure is told, once; a tree without one is whole. */
static void test_failures_are_told(void **state)
{
    int n_failures = 0;
    bool failed = true;
    (void)state;
    srv_json_ran_out(); /* of the tests before */
    for (long n = 0; failed; n++) {
        json_t *tree = build(n);
        const json_t *text = json_array_get(json_object_get(tree, "a"), 0);
        failed = srv_json_ran_out();
        REQUIRE_MSG((text && !strcmp(json_string_value(text), "b")) == !failed, "%ld allocations",
                    n);
        REQUIRE(!srv_json_ran_out());
        n_failures += failed;
        json_decref(tree);
    }
    REQUIRE_MSG(n_failures >= 4, "%d failures", n_failures);
}

static void *ask(void *ret)
{
    *(bool *)ret = srv_json_ran_out();
    return NULL;
}

/* A failure is remembered until it is asked for on its thread. */
static void test_failures_are_remembered(void **state)
{
    pthread_t thread;
    bool told = true;
    (void)state;
    json_decref(build(1));
    json_decref(build(-1));
    REQUIRE_EQ_INT(pthread_create(&thread, NULL, ask, &told), 0);
    pthread_join(thread, NULL);
    REQUIRE(!told && srv_json_ran_out());
    json_decref(build(-1));
    REQUIRE(!srv_json_ran_out());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_texts),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_failures_are_told),
        cmocka_unit_test(test_failures_are_remembered),
    };
    srv_json_watch_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
