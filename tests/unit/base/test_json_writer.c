/* SPDX-License-Identifier: MIT */
/*
 * The JSON writer: commas, names and nesting; escapes; numbers; texts written in pieces; and the
 * asserts that catch a wrong order of calls.
 */
#include "test.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/json_writer.h"

static void nested_values_have_commas_and_names(void **state)
{
    struct buf b;
    struct jw w;
    (void)state;
    buf_init(&b, 1000);
    buf_puts(&b, "data: ");
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_text(&w, "a", "x");
    jw_open(&w, "b", '[');
    jw_int(&w, NULL, 1);
    jw_open(&w, NULL, '{');
    jw_close(&w);
    jw_open(&w, NULL, '[');
    jw_close(&w);
    jw_text(&w, NULL, NULL);
    jw_close(&w);
    jw_key(&w, "c\n", 2);
    jw_open(&w, NULL, '{');
    jw_bool(&w, "d", true);
    jw_bool(&w, "e", false);
    jw_close(&w);
    jw_key(&w, "", 0);
    jw_null(&w, NULL);
    jw_fixed(&w, "f", 1.0 / 3, 2);
    jw_close(&w);
    REQUIRE(jw_end(&w) == &b);
    REQUIRE_EQ_STR(b.data, "data: {\"a\":\"x\",\"b\":[1,{},[],null],\"c\\n\":{\"d\":true,"
                           "\"e\":false},\"\":null,\"f\":0.33}");
    buf_finish(&b);
}

static void members_are_written_by_a_format(void **state)
{
    AUTO(buf_finish) struct buf b = {.max = 1000};
    struct jw w = {.out = &b};
    const char *volatile none = NULL; /* that the compiler does not see */
    (void)state;
    jw_fields(&w, "{ a %s b %s c_1 { d %d e %jd f [", "x\n", none, -1, (intmax_t)1 << 40);
    jw_fields(&w, "{ g %g } } } h %i i %i j null k [ } }", 2.0, true, false);
    REQUIRE_EQ_STR(jw_end(&w)->data, "{\"a\":\"x\\n\",\"b\":null,\"c_1\":{\"d\":-1,\"e\":"
                                     "1099511627776,\"f\":[{\"g\":2.0}]},\"h\":true,\"i\":false,"
                                     "\"j\":null,\"k\":[]}");
}

static void deepest_nesting_closes_with_the_right_brackets(void **state)
{
    struct buf b;
    struct jw w;
    (void)state;
    buf_init(&b, 1000);
    jw_init(&w, &b);
    for (int i = 0; i < JW_MAX_DEPTH; i++)
        jw_open(&w, i % 2 ? "k" : NULL, i % 2 ? '[' : '{');
    for (int i = 0; i < JW_MAX_DEPTH; i++)
        jw_close(&w);
    jw_end(&w);
    for (int i = 0; i < JW_MAX_DEPTH; i++)
        REQUIRE_EQ_INT(b.data[b.len - 1 - (size_t)i], i % 2 ? ']' : '}');
    buf_finish(&b);
}

static void pieces_make_the_same_text(void **state)
{
    struct buf a, b;
    struct jw w;
    (void)state;
    buf_init(&a, 100);
    buf_init(&b, 100);
    jw_init(&w, &a);
    jw_open(&w, NULL, '[');
    jw_string_begin(&w, NULL);
    jw_string_part(&w, "ab", 2);
    w.out = &b;
    jw_string_part(&w, "\"", 1);
    jw_string_part(&w, NULL, 0);
    jw_string_end(&w);
    jw_int(&w, NULL, 2);
    jw_close(&w);
    jw_end(&w);
    REQUIRE_EQ_STR(a.data, "[\"ab");
    REQUIRE_EQ_STR(b.data, "\\\"\",2]");
    buf_finish(&a);
    buf_finish(&b);
}

static void json_goes_on_one_line(void **state)
{
    struct buf b;
    struct jw w;
    (void)state;
    buf_init(&b, 100);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_json(&w, "a", "{\r\n \"x\\n\":1\n}\n", 14);
    jw_json(&w, "b", "2", 1);
    jw_close(&w);
    jw_end(&w);
    REQUIRE_EQ_STR(b.data, "{\"a\":{ \"x\\n\":1},\"b\":2}");
    buf_finish(&b);
}

static void strings_are_valid_json(void **state)
{
    static const struct {
        const char *in;
        size_t len;
        const char *out;
    } cases[] = {
        {"", 0, "\"\""},
        {"a\"b\\c", 5, "\"a\\\"b\\\\c\""},
        {"\n\r\t\b\f", 5, "\"\\n\\r\\t\\b\\f\""},
        {"\x01\x1f\x7f", 3, "\"\\u0001\\u001f\\u007f\""},
        {"\xc2\x9b\u202e\u200d", 8, "\"\\u009b\\u202e\u200d\""},
        {"a\0b", 3, "\"a\\u0000b\""},
        {"h\xc3\xa9", 3, "\"h\xc3\xa9\""},
        {"\xf0\x9f\x99\x82", 4, "\"\xf0\x9f\x99\x82\""},
        {"\xff", 1, "\"\xef\xbf\xbd\""},
        {"\xc3", 1, "\"\xef\xbf\xbd\""},                                 /* cut */
        {"\xc0\x80", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\""},                 /* overlong */
        {"\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* surrogate */
        {"\xf4\x90\x80\x80", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xe2\x82"
         "A",
         3,
         "\"\xef\xbf\xbd\xef\xbf\xbd"
         "A\""},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct buf b;
        struct jw w;
        buf_init(&b, 1000);
        jw_init(&w, &b);
        jw_string(&w, NULL, cases[i].in, cases[i].len);
        REQUIRE_EQ_STR(jw_end(&w)->data, cases[i].out);
        buf_finish(&b);
    }
}

static void integers_are_whole(void **state)
{
    static const struct {
        int64_t in;
        const char *out;
    } cases[] = {{0, "0"},
                 {-1, "-1"},
                 {90, "90"},
                 {INT64_MAX, "9223372036854775807"},
                 {INT64_MIN, "-9223372036854775808"}};
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct buf b;
        struct jw w;
        buf_init(&b, 100);
        jw_init(&w, &b);
        jw_int(&w, NULL, cases[i].in);
        REQUIRE_EQ_STR(jw_end(&w)->data, cases[i].out);
        buf_finish(&b);
    }
}

static void numbers_are_finite_and_real(void **state)
{
    static const struct {
        double in;
        const char *out;
    } cases[] = {{0.1, "0.1"},         {3, "3.0"},
                 {-0.25, "-0.25"},     {1e-20, "1e-20"},
                 {1e300, "1e+300"},    {1.0 / 3, "0.333333333"},
                 {INFINITY, "9999.0"}, {-INFINITY, "-9999.0"},
                 {NAN, "-9999.0"},     {-123456789, "-123456789.0"}};
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct buf b;
        struct jw w;
        buf_init(&b, 100);
        jw_init(&w, &b);
        jw_number(&w, NULL, cases[i].in);
        REQUIRE_EQ_STR(jw_end(&w)->data, cases[i].out);
        buf_finish(&b);
    }
}

static void a_full_buffer_is_noted(void **state)
{
    struct buf b;
    struct jw w;
    (void)state;
    buf_init(&b, 4);
    jw_init(&w, &b);
    jw_open(&w, NULL, '[');
    jw_text(&w, NULL, "too long");
    jw_close(&w);
    REQUIRE(jw_end(&w)->too_large);
    buf_finish(&b);
}

/* ---- mistakes ------------------------------------------------------------------------------ */

static void end_too_early(struct jw *w)
{
    jw_open(w, NULL, '{');
    jw_end(w);
}

static void close_too_often(struct jw *w)
{
    jw_open(w, NULL, '[');
    jw_close(w);
    jw_close(w);
}

static void member_without_name(struct jw *w)
{
    jw_open(w, NULL, '{');
    jw_int(w, NULL, 1);
}

static void element_with_name(struct jw *w)
{
    jw_open(w, NULL, '[');
    jw_int(w, "a", 1);
}

static void two_values_at_the_top(struct jw *w)
{
    jw_int(w, NULL, 1);
    jw_int(w, NULL, 2);
}

static void name_without_value(struct jw *w)
{
    jw_open(w, NULL, '{');
    jw_key(w, "a", 1);
    jw_close(w);
}

static void value_inside_a_string(struct jw *w)
{
    jw_string_begin(w, NULL);
    jw_int(w, NULL, 1);
}

static void nested_too_deep(struct jw *w)
{
    for (int i = 0; i <= JW_MAX_DEPTH; i++)
        jw_open(w, NULL, '[');
}

/* Returns true if the calls end the process by abort. */
static bool aborts(void (*calls)(struct jw *w))
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        struct buf b;
        struct jw w;
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL); /* cmocka reports it otherwise */
        if (!freopen("/dev/null", "w", stderr)) _exit(2);
        buf_init(&b, 1000);
        jw_init(&w, &b);
        calls(&w);
        _exit(0);
    }
    REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void a_wrong_order_of_calls_aborts(void **state)
{
    static const struct {
        const char *name;
        void (*calls)(struct jw *w);
    } cases[] = {
        {"end too early", end_too_early},
        {"close too often", close_too_often},
        {"member without name", member_without_name},
        {"element with name", element_with_name},
        {"two values at the top", two_values_at_the_top},
        {"name without value", name_without_value},
        {"value inside a string", value_inside_a_string},
        {"nested too deep", nested_too_deep},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++)
        REQUIRE_MSG(aborts(cases[i].calls), "%s", cases[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_values_have_commas_and_names),
        cmocka_unit_test(members_are_written_by_a_format),
        cmocka_unit_test(deepest_nesting_closes_with_the_right_brackets),
        cmocka_unit_test(pieces_make_the_same_text),
        cmocka_unit_test(json_goes_on_one_line),
        cmocka_unit_test(strings_are_valid_json),
        cmocka_unit_test(integers_are_whole),
        cmocka_unit_test(numbers_are_finite_and_real),
        cmocka_unit_test(a_full_buffer_is_noted),
        cmocka_unit_test(a_wrong_order_of_calls_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
