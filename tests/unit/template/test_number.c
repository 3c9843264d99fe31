/* SPDX-License-Identifier: MIT */
/*
 * Numbers: integers at the edge of 64 bits and beyond, floats, texts, comparison; against what Python
 * prints, or the error where it computes and this project does not.
 */
#include "test.h"

#include "tokenizer/template/number.h"
#include "tokenizer/template/print.h"
#include "tokenizer/template/str.h"

struct sum {
    const char *a;
    enum jinja_op op;
    const char *b;
    const char *wanted; /* the result, or the error */
    char got[JINJA_ERR_BYTES];
};

static struct jinja_value number(struct jinja_run *r, const char *text)
{
    struct jinja_value v;
    double d;
    bool negative = *text == '-';
    if (jinja_int_parse(r, text + negative, strlen(text + negative), 10, negative, &v)) return v;
    if (strcmp(text, "nan") == 0 || strcmp(text, "inf") == 0)
        return jinja_float(strtod(text, NULL));
    REQUIRE_MSG(jinja_float_parse(r, text, strlen(text), &d), "%s", text);
    return jinja_float(d);
}

static void add_up(struct jinja_run *r, void *arg)
{
    struct sum *s = arg;
    struct jinja_value v = jinja_arith(r, s->op, number(r, s->a), number(r, s->b));
    const struct jinja_str *text = jinja_repr(r, v);
    snprintf(s->got, sizeof(s->got), "%.*s", (int)text->len, text->s);
}

static void test_arithmetic(void **state)
{
    static const struct sum cases[] = {
        {"9223372036854775806", JINJA_ADD, "1", "9223372036854775807", ""},
        {"9223372036854775807", JINJA_ADD, "1",
         "'+' with an integer beyond 64 bits is not supported in chat templates", ""},
        {"18446744073709551616", JINJA_SUB, "1",
         "'-' with an integer beyond 64 bits is not supported in chat templates", ""},
        {"4294967296", JINJA_MUL, "4294967296",
         "'*' with an integer beyond 64 bits is not supported in chat templates", ""},
        {"-9223372036854775807", JINJA_SUB, "1", "-9223372036854775808", ""},
        {"7", JINJA_FLOORDIV, "2", "3", ""},
        {"-7", JINJA_FLOORDIV, "2", "-4", ""},
        {"-7", JINJA_MOD, "2", "1", ""},
        {"7", JINJA_MOD, "-2", "-1", ""},
        {"6", JINJA_MOD, "3", "0", ""},
        {"1", JINJA_DIV, "3", "0.3333333333333333", ""},
        {"9007199254740992", JINJA_DIV, "1", "9007199254740992.0", ""},
        {"9007199254740993", JINJA_DIV, "1",
         "'/' with an integer beyond 53 bits is not supported in chat templates", ""},
        {"18446744073709551616", JINJA_ADD, "0.5", "1.8446744073709552e+19", ""},
        {"-7.5", JINJA_MOD, "2", "'%' of floats is not supported in chat templates", ""},
        {"0.1", JINJA_ADD, "0.2", "0.30000000000000004", ""},
        {"0.5", JINJA_SUB, "2", "-1.5", ""},
        {"1e300", JINJA_MUL, "1e300", "inf", ""},
        {"1", JINJA_DIV, "0", "division by zero", ""},
        {"1", JINJA_MOD, "0", "integer division or modulo by zero", ""},
        {"1.5", JINJA_DIV, "0", "float division by zero", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jinja_run r;
        struct sum s = cases[i];
        jinja_run_init(&r, 1 << 20, 100000);
        int rc = jinja_guard(&r, add_up, &s);
        REQUIRE_EQ_STR(rc ? r.err : s.got, s.wanted);
        jinja_run_finish(&r);
    }
}

static void compare(struct jinja_run *r, void *arg)
{
    static const struct {
        const char *a, *b;
        int wanted;
    } cases[] = {
        {"1", "1.0", 0},
        {"9007199254740993", "9007199254740992.0", 1},
        {"18446744073709551616", "18446744073709551615", 1},
        {"-18446744073709551616", "1", -1},
        {"-18446744073709551616", "-18446744073709551617", 1},
        {"100000000000000000000", "18446744073709551616", 1},
        {"-3", "2", -1},
        {"2.5", "2", 1},
        {"18446744073709551616", "1.8446744073709552e19", 0},
        {"1e300", "18446744073709551616", 1},
        {"nan", "1", 2},
        {"inf", "18446744073709551616", 1},
    };
    (void)arg;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jinja_value a = number(r, cases[i].a), b = number(r, cases[i].b);
        int c = jinja_num_compare(r, a, b), back = jinja_num_compare(r, b, a);
        REQUIRE_MSG(c == cases[i].wanted && back == (c == 2 ? 2 : -c), "%s, %s", cases[i].a,
                    cases[i].b);
        if (c == 0) REQUIRE(jinja_num_hash(r, a) == jinja_num_hash(r, b));
    }
}

static void read_texts(struct jinja_run *r, void *arg)
{
    static const struct {
        const char *text;
        const char *wanted; /* NULL: not an integer */
    } cases[] = {
        {" \t-1_000\n", "-1000"},
        {"+5", "5"},
        {"-3.9", "-3"},
        {"1e3", "1000"},
        {".5", "0"},
        {"-00012345678901234567890", "-12345678901234567890"},
        {"1_2345678901234567890_1", "123456789012345678901"},
        {"9223372036854775807", "9223372036854775807"},
        {"1__0", NULL},
        {"_1", NULL},
        {"1 0", NULL},
        {"", NULL},
        {"0x10", NULL},
        {"inf", NULL},
        {"1e400", NULL},
    };
    struct jinja_value v;
    double d;
    (void)arg;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool ok = jinja_int_from_text(r, jinja_lit(r, cases[i].text).u.str, &v);
        REQUIRE_MSG(ok == (cases[i].wanted != NULL), "%s", cases[i].text);
        if (ok) REQUIRE_EQ_STR(jinja_int_digits(r, v), cases[i].wanted);
    }
    REQUIRE(jinja_int_parse(r, "ff", 2, 16, false, &v) && v.u.i == 255);
    REQUIRE(!jinja_int_parse(r, "2", 1, 2, false, &v));
    REQUIRE(!jinja_int_parse(r, "10000000000000000", 17, 16, false, &v));
    REQUIRE(jinja_float_parse(r, "1_0.5e-1", 8, &d) && d == 1.05);
    REQUIRE(!jinja_float_parse(r, "0x1p3", 5, &d) && !jinja_float_parse(r, "1e", 2, &d));
    REQUIRE(!jinja_float_parse(r, "1\0", 2, &d));
    jinja_int_from_text(r, jinja_lit(r, "\xd9\xa1").u.str, &v); /* an Arabic-Indic digit */
}

static void bounds(struct jinja_run *r, void *arg)
{
    (void)arg;
    REQUIRE(jinja_to_bound(r, number(r, "18446744073709551616")) == INT64_MAX);
    REQUIRE(jinja_to_bound(r, number(r, "-18446744073709551616")) == INT64_MIN);
    REQUIRE(jinja_int_from_double(r, -3.9).u.i == -3);
    REQUIRE(jinja_negate(r, jinja_int(3)).u.i == -3 && jinja_negate(r, jinja_float(1)).u.d == -1);
    jinja_to_index(r, jinja_float(1));
}

static void beyond(struct jinja_run *r, void *arg)
{
    (void)arg;
    jinja_int_from_double(r, 1e20);
}

static void test_numbers(void **state)
{
    static const struct {
        void (*body)(struct jinja_run *r, void *arg);
        const char *err;
    } parts[] = {
        {compare, ""},
        {read_texts, "int of a text beyond ASCII is not supported in chat templates"},
        {beyond, "a float beyond 64 bits as an integer is not supported in chat templates"},
        {bounds, "'float' object cannot be interpreted as an integer"}};
    (void)state;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct jinja_run r;
        jinja_run_init(&r, 1 << 20, 100000);
        jinja_guard(&r, parts[i].body, NULL);
        REQUIRE_EQ_STR(r.err, parts[i].err);
        jinja_run_finish(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
