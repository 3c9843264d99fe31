/* SPDX-License-Identifier: MIT */
/*
 * Numbers: integers at the edge of 64 bits and beyond, floats, texts, comparison, rounding; against
 * what Python prints.
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
    struct jinja_value s = jinja_lit(r, text), v;
    double d;
    if (jinja_int_from_text(r, &s, 10, &v)) return v;
    REQUIRE_MSG(jinja_float_parse(r, text, strlen(text), &d), "%s", text);
    return jinja_float(d);
}

static void add_up(struct jinja_run *r, void *arg)
{
    struct sum *s = arg;
    struct jinja_value v = jinja_arith(r, s->op, number(r, s->a), number(r, s->b));
    const struct jinja_str *text = jinja_repr(r, v, false);
    snprintf(s->got, sizeof(s->got), "%.*s", (int)text->len, text->s);
}

static void test_arithmetic(void **state)
{
    static const struct sum cases[] = {
        {"9223372036854775807", JINJA_ADD, "1", "9223372036854775808", ""},
        {"9223372036854775808", JINJA_SUB, "1", "9223372036854775807", ""},
        {"-9223372036854775808", JINJA_SUB, "1", "-9223372036854775809", ""},
        {"-9223372036854775808", JINJA_FLOORDIV, "-1", "9223372036854775808", ""},
        {"4294967296", JINJA_MUL, "4294967296", "18446744073709551616", ""},
        {"18446744073709551616", JINJA_SUB, "18446744073709551616", "0", ""},
        {"-7", JINJA_FLOORDIV, "2", "-4", ""},
        {"-7", JINJA_MOD, "2", "1", ""},
        {"-100000000000000000001", JINJA_FLOORDIV, "10", "-10000000000000000001", ""},
        {"-100000000000000000001", JINJA_MOD, "10", "9", ""},
        {"340282366920938463463374607431768211455", JINJA_FLOORDIV, "18446744073709551615",
         "18446744073709551617", ""},
        {"170141183460469231731687303715884105728", JINJA_MOD, "18446744073709551617",
         "9223372036854775809", ""},
        {"2", JINJA_POW, "100", "1267650600228229401496703205376", ""},
        {"-3", JINJA_POW, "41", "-36472996377170786403", ""},
        {"2", JINJA_POW, "-2", "0.25", ""},
        {"1", JINJA_DIV, "3", "0.3333333333333333", ""},
        {"100000000000000000000000000001", JINJA_DIV, "3", "3.3333333333333333e+28", ""},
        {"9007199254740993", JINJA_DIV, "1", "9007199254740992.0", ""},
        {"0", JINJA_DIV, "-100000000000000000000", "-0.0", ""},
        {"-7.5", JINJA_MOD, "2", "0.5", ""},
        {"-7.5", JINJA_FLOORDIV, "2", "-4.0", ""},
        {"0.1", JINJA_ADD, "0.2", "0.30000000000000004", ""},
        {"1e300", JINJA_MUL, "1e300", "inf", ""},
        {"1", JINJA_DIV, "0", "division by zero", ""},
        {"1", JINJA_MOD, "0", "integer division or modulo by zero", ""},
        {"1.5", JINJA_MOD, "0", "float division by zero", ""},
        {"2", JINJA_POW, "40000", "an integer of more than 32768 bits", ""},
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
        int base;
        const char *wanted; /* NULL: not an integer */
    } cases[] = {
        {" \xc2\xa0-1_000\n", 10, "-1000"},
        {"\xd9\xa1\xd9\xa2", 10, "12"}, /* Arabic-Indic digits */
        {"0x_ff", 0, "255"},
        {"ff", 16, "255"},
        {"0b101", 2, "5"},
        {"zz", 36, "1295"},
        {"1__0", 10, NULL},
        {"_1", 10, NULL},
        {"1 0", 10, NULL},
        {"", 10, NULL},
        {"08", 0, NULL},
        {"2", 2, NULL},
    };
    double d;
    (void)arg;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jinja_value s = jinja_lit(r, cases[i].text), v;
        bool ok = jinja_int_from_text(r, &s, cases[i].base, &v);
        REQUIRE_MSG(ok == (cases[i].wanted != NULL), "%s", cases[i].text);
        if (ok) REQUIRE_EQ_STR(jinja_int_digits(r, v, 10), cases[i].wanted);
    }
    REQUIRE(jinja_float_parse(r, " 1_0.5e-1 ", 10, &d) && d == 1.05);
    REQUIRE(jinja_float_parse(r, "-Infinity", 9, &d) && d < 0);
    REQUIRE(!jinja_float_parse(r, "0x1p3", 5, &d) && !jinja_float_parse(r, "1e", 2, &d));
    REQUIRE(!jinja_float_parse(r, "1\0", 2, &d));
}

static void round_and_index(struct jinja_run *r, void *arg)
{
    (void)arg;
    REQUIRE(jinja_round(r, jinja_float(2.5), 0).u.d == 2.0);
    REQUIRE(jinja_round(r, jinja_float(2.675), 2).u.d == 2.67);
    REQUIRE(jinja_round(r, jinja_float(1250), -2).u.d == 1200.0);
    REQUIRE(jinja_round(r, jinja_int(25), -1).u.i == 20 &&
            jinja_round(r, jinja_int(35), -1).u.i == 40);
    REQUIRE(jinja_to_bound(r, number(r, "18446744073709551616")) == INT64_MAX);
    REQUIRE(jinja_to_bound(r, number(r, "-18446744073709551616")) == INT64_MIN);
    REQUIRE_EQ_STR(jinja_int_digits(r, jinja_int_from_double(r, -1e20), 16), "-56bc75e2d63100000");
    jinja_to_index(r, jinja_float(1));
}

static void test_numbers(void **state)
{
    static const struct {
        void (*body)(struct jinja_run *r, void *arg);
        const char *err;
    } parts[] = {{compare, ""},
                 {read_texts, ""},
                 {round_and_index, "'float' object cannot be interpreted as an integer"}};
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
