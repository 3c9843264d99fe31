/* SPDX-License-Identifier: MIT */
/*
 * Numbers: integers at the edge of 64 bits, longer ones, floats, comparison; against what Python
 * prints, or the error where it computes and this project does not.
 */
#include "test.h"

#include "tokenizer/template/value.h"
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
    bool negative = *text == '-';
    if (jinja_int_parse(r, text + negative, strlen(text + negative), negative, &v)) return v;
    return jinja_float(strtod(text, NULL));
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
        {"-7", JINJA_MOD, "2", "1", ""},
        {"7", JINJA_MOD, "-2", "-1", ""},
        {"6", JINJA_MOD, "3", "0", ""},
        {"-9223372036854775807", JINJA_MOD, "-1", "0", ""},
        {"-7.5", JINJA_MOD, "2", "'%' of floats is not supported in chat templates", ""},
        {"18446744073709551616", JINJA_ADD, "0.5",
         "'+' of floats is not supported in chat templates", ""},
        {"1", JINJA_MOD, "0", "integer modulo by zero", ""},
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
        {"9007199254740991", "9007199254740991.5", -1},
        {"9007199254740993", "9007199254740992", 1},
        {"-3", "2", -1},
        {"2.5", "2", 1},
        {"nan", "1", 2},
        {"inf", "1", 1},
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

static void compare_big(struct jinja_run *r, void *arg)
{
    (void)arg;
    jinja_num_compare(r, jinja_int(1), number(r, "18446744073709551616"));
}

static void compare_rounded(struct jinja_run *r, void *arg)
{
    (void)arg;
    jinja_num_compare(r, number(r, "9007199254740993"), jinja_float(1));
}

static void read_texts(struct jinja_run *r, void *arg)
{
    static const struct {
        const char *text;
        const char *wanted; /* NULL: not an integer */
    } cases[] = {
        {"1000", "1000"},
        {"-00012345678901234567890", "-12345678901234567890"},
        {"9223372036854775807", "9223372036854775807"},
        {"9223372036854775808", "9223372036854775808"},
        {"1_0", NULL},
        {"1 0", NULL},
        {"", NULL},
        {"0x10", NULL},
        {"1e4", NULL},
    };
    struct jinja_value v;
    (void)arg;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool negative = cases[i].text[0] == '-';
        const char *digits = cases[i].text + negative;
        bool ok = jinja_int_parse(r, digits, strlen(digits), negative, &v);
        REQUIRE_MSG(ok == (cases[i].wanted != NULL), "%s", cases[i].text);
        if (ok) REQUIRE_EQ_STR(jinja_int_digits(r, v), cases[i].wanted);
    }
}

static void bounds(struct jinja_run *r, void *arg)
{
    (void)arg;
    REQUIRE(jinja_negate(r, jinja_int(3)).u.i == -3 && jinja_to_index(r, jinja_int(3)) == 3);
    jinja_to_index(r, jinja_float(1));
}

static void test_numbers(void **state)
{
    static const struct {
        void (*body)(struct jinja_run *r, void *arg);
        const char *err;
    } parts[] = {
        {compare, ""},
        {compare_big, "comparing an integer beyond 64 bits is not supported in chat templates"},
        {compare_rounded,
         "comparing an integer over 53 bits with a float is not supported in chat templates"},
        {read_texts, ""},
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
