/* SPDX-License-Identifier: MIT */
/*
 * str.format: fields, errors, and whose text the result is; against what Python prints.
 */
#include "test.h"

#include "tokenizer/template/json.h"
#include "tokenizer/template/library.h"

struct formatted {
    const char *format, *args; /* a JSON array */
    const char *wanted;        /* text, or the error */
    char got[JINJA_ERR_BYTES];
    char marks[100]; /* '#': text of the request */
};

static void format(struct jinja_run *r, void *arg)
{
    struct formatted *f = arg;
    struct jinja_value v = jinja_json_parse(r, f->args, strlen(f->args), JINJA_INPUT, "arguments");
    const struct jinja_args args = {.pos = v.u.list->items, .n_pos = v.u.list->n};
    const struct jinja_str *format = jinja_lit(r, f->format).u.str;
    struct jinja_value text = jinja_format(r, format, &args);
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

#define BRACES(format, args, wanted)                                                               \
    {                                                                                              \
        format, args, wanted, "", ""                                                               \
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

/* The text of a value carries its origin into the format. */
static void test_origin(void **state)
{
    struct formatted braces = BRACES("a{}b", "[7]", "");
    (void)state;
    run_format(&braces);
    REQUIRE_EQ_STR(braces.marks, ".#.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_braces),
        cmocka_unit_test(test_origin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
