/* SPDX-License-Identifier: MIT */
/*
 * The % operator and str.format: fields, widths, precisions, errors, and whose text the padding is;
 * against what Python prints.
 */
#include "test.h"

#include "tokenizer/template/json.h"
#include "tokenizer/template/library.h"

struct formatted {
    const char *format, *args; /* a JSON array */
    const char *wanted;        /* text, or the error */
    bool percent;              /* %, not str.format */
    char got[JINJA_ERR_BYTES];
    char marks[100]; /* '#': text of the request */
};

static void format(struct jinja_run *r, void *arg)
{
    struct formatted *f = arg;
    struct jinja_value v = jinja_json_parse(r, f->args, strlen(f->args), JINJA_INPUT, "arguments");
    const struct jinja_args args = {.pos = v.u.list->items, .n_pos = v.u.list->n};
    const struct jinja_str *format = jinja_lit(r, f->format).u.str;
    struct jinja_value text = f->percent ? jinja_percent(r, format, jinja_from_tuple(v.u.list))
                                         : jinja_format(r, format, &args);
    const struct jinja_str *s = text.u.str;
    snprintf(f->got, sizeof(f->got), "%.*s", (int)s->len, s->s);
    for (size_t i = 0; i < s->len && i + 1 < sizeof(f->marks); i++)
        f->marks[i] = jinja_str_origin_at(s, i) == JINJA_INPUT ? '#' : '.';
}

static void run_format(struct formatted *f)
{
    struct jinja_run r;
    jinja_run_init(&r, 1 << 20, 100000);
    if (jinja_guard(&r, format, f)) snprintf(f->got, sizeof(f->got), "%s", r.err);
    jinja_run_finish(&r);
}

static void check_all(const struct formatted *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct formatted f = cases[i];
        run_format(&f);
        REQUIRE_EQ_STR(f.got, f.wanted);
    }
}

#define PERCENT(format, args, wanted)                                                              \
    {                                                                                              \
        format, args, wanted, true, "", ""                                                         \
    }
#define BRACES(format, args, wanted)                                                               \
    {                                                                                              \
        format, args, wanted, false, "", ""                                                        \
    }

static void test_percent(void **state)
{
    static const struct formatted cases[] = {
        PERCENT("%s and %r", "[\"a\", \"b\"]", "a and 'b'"),
        PERCENT("[%5d|%-5d|%05d|%+d]", "[42, 42, 42, 42]", "[   42|42   |00042|+42]"),
        PERCENT("%.5d|%8.5d|%-8.5d|", "[42, -42, 42]", "00042|  -00042|00042   |"),
        PERCENT("%x|%#X|%#o|%#06x", "[255, 255, 8, 255]", "ff|0XFF|0o10|0x00ff"),
        PERCENT("%.2f|%8.3e|%g|%G", "[1.005, 12345.678, 0.0001, 1e-10]",
                "1.00|1.235e+04|0.0001|1E-10"),
        PERCENT("%d", "[3.99]", "3"),
        PERCENT("%*d|%.*f", "[5, 42, 1, 2.55]", "   42|2.5"),
        PERCENT("%.2s|%5s|%c|%c", "[\"h\\u00e9llo\", \"x\", 233, \"z\"]",
                "h\xc3\xa9|    x|\xc3\xa9|z"),
        PERCENT("100%%", "[]", "100%"),
        PERCENT("%d", "[]", "not enough arguments for format string"),
        PERCENT("%d", "[1, 2]", "not all arguments converted during string formatting"),
        PERCENT("%d", "[\"x\"]", "%d format: a real number is required, not str"),
        PERCENT("%y", "[1]", "unsupported format character at index 1"),
        PERCENT("%99999999d", "[1]", "width or precision too big"),
        PERCENT("%", "[]", "incomplete format"),
    };
    (void)state;
    check_all(cases, sizeof(cases) / sizeof(cases[0]));
}

static void test_braces(void **state)
{
    static const struct formatted cases[] = {
        BRACES("{} {} {{}}", "[1, \"a\"]", "1 a {}"),
        BRACES("{1}{0}{1}", "[1, \"a\"]", "a1a"),
        BRACES("{:>5}", "[1]",
               "the format field '{:>5}' is not supported in chat templates, only {}, {0} and "
               "{name} are"),
        BRACES("{0.x}", "[1]",
               "the format field '{0.x}' is not supported in chat templates, only {}, {0} and "
               "{name} are"),
        BRACES("{0[1]}", "[1]",
               "the format field '{0[1]}' is not supported in chat templates, only {}, {0} and "
               "{name} are"),
        BRACES("{!r}", "[1]",
               "the format field '{!r}' is not supported in chat templates, only {}, {0} and "
               "{name} are"),
        BRACES("{} {0}", "[1]", "cannot switch between automatic and manual field numbering"),
        BRACES("{5}", "[1]", "Replacement index 5 out of range for positional args tuple"),
        BRACES("{", "[]", "expected '}' before end of string"),
        BRACES("}", "[]", "Single '}' encountered in format string"),
    };
    (void)state;
    check_all(cases, sizeof(cases) / sizeof(cases[0]));
}

/* Padding belongs to the value it pads: the request may have chosen its width. */
static void test_origin(void **state)
{
    struct formatted percent = PERCENT("a%5db", "[7]", ""), braces = BRACES("a{}b", "[7]", "");
    (void)state;
    run_format(&percent);
    REQUIRE_EQ_STR(percent.marks, ".#####.");
    run_format(&braces);
    REQUIRE_EQ_STR(braces.marks, ".#.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percent),
        cmocka_unit_test(test_braces),
        cmocka_unit_test(test_origin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
