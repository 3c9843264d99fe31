/* SPDX-License-Identifier: MIT */
/*
 * The reserve of jansson's parses: whichever allocations fail, a parse ends in an error and never
 * in a wrong tree. The reserve is measured for one version of jansson.
 */
#include "test.h"

#include <limits.h>

#include "base/buf.h"
#include "server/api/read/json_fields.h"
#include "server/api/read/json_memory.h"

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

/* With another version, measure again what json_memory.c says about it, then change this. */
static void test_version(void **state)
{
    (void)state;
    REQUIRE_EQ_STR(jansson_version_str(), "2.14");
}

/* Parses with the allocations of [from, to) failing; the number there were. */
static long parse_short_of_memory(const char *text, size_t len, long from, long to)
{
    struct param_error err = {0};
    n_allocations = 0;
    fail_from = from;
    fail_to = to;
    json_t *body = params_parse(text, len, PARAM_MAX_VALUES, &err);
    long n = n_allocations;
    fail_from = fail_to = 0;
    REQUIRE((body == NULL) == (from <= n && from < to));
    REQUIRE(body || err.kind == SRV_ERR_OVERLOADED);
    json_decref(body);
    return n;
}

/* Each allocation alone, and it with all that follow: 503, whatever jansson makes of NULL. */
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
    srv_json_watch_memory();
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        check_short_of_memory(texts[i], strlen(texts[i]), 1);
    check_repeated("{\"a\":[", "{}", "]}", 20000);
    check_repeated("{\"a\":[", "{\"\":{}}", "]}", 5000);
    check_repeated("{", "\"#\":{}", "}", 20000);
    check_repeated("{\"a\":[", "7", "]}", 20000);
    check_repeated("{\"a\":[", "[\"x\"]", "]}", 5000);
    check_repeated("{\"a\":\"", "0123456789abcdef0123456789abcdef", "\"}", 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
