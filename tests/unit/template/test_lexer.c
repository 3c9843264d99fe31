/* SPDX-License-Identifier: MIT */
/*
 * The lexer alone: tokens of a source, what is stripped around tags, literals, lines, errors.
 */
#include "test.h"

#include "tokenizer/template/lexer.h"

struct lexed {
    const char *source;
    char tokens[512]; /* names, blanks between them; text of data and strings in brackets */
    char err[JINJA_ERR_BYTES];
};

static void append(char *to, size_t size, const char *text)
{
    size_t n = strlen(to);
    snprintf(to + n, size - n, "%s", text);
}

static void lex(struct jinja_run *r, void *arg)
{
    struct lexed *lx = arg;
    struct jinja_cursor c;
    jinja_lex(r, lx->source, strlen(lx->source), &c);
    for (;;) {
        const struct jinja_token *t = jinja_advance(&c);
        bool text = t->type == JINJA_T_DATA || t->type == JINJA_T_STRING;
        char word[200];
        if (t->type == JINJA_T_EOF) break;
        if (text)
            snprintf(word, sizeof(word), "[%.*s] ", (int)t->text->len, t->text->s);
        else if (t->type == JINJA_T_NUMBER && t->number.type == JINJA_FLOAT)
            snprintf(word, sizeof(word), "%g ", t->number.u.d);
        else if (t->type == JINJA_T_NUMBER)
            snprintf(word, sizeof(word), "%s ", jinja_int_digits(r, t->number));
        else if (t->type == JINJA_T_VARIABLE_BEGIN || t->type == JINJA_T_BLOCK_BEGIN)
            snprintf(word, sizeof(word), "%s ", t->type == JINJA_T_BLOCK_BEGIN ? "{%" : "{{");
        else if (t->type == JINJA_T_VARIABLE_END || t->type == JINJA_T_BLOCK_END)
            snprintf(word, sizeof(word), "%s ", t->type == JINJA_T_BLOCK_END ? "%}" : "}}");
        else
            snprintf(word, sizeof(word), "%s ", jinja_token_name(t, r));
        append(lx->tokens, sizeof(lx->tokens), word);
    }
}

static int run_lexer(struct lexed *lx)
{
    struct jinja_run r;
    jinja_run_init(&r, 1 << 20, 100000);
    int rc = jinja_guard(&r, lex, lx);
    if (rc) jinja_copy_sentence(lx->err, sizeof(lx->err), r.err);
    jinja_run_finish(&r);
    return rc;
}

static void test_tokens(void **state)
{
    static const struct {
        const char *source, *tokens;
    } cases[] = {
        {"", ""},
        {"a\n", "[a] "},
        {"a{{ b }}c", "[a] {{ b }} [c] "},
        {"{{a.b['k']|f(1,x=2.5)}}", "{{ a . b [ [k] ] | f ( 1 , x = 2.5 ) }} "},
        {"{{ 1//2**3 != 4 >= -5 ~ x }}", "{{ 1 // 2 ** 3 != 4 >= - 5 ~ x }} "},
        {"{{ 007 + a.0.1 + _b1 + 1e3 + 1.5e-1 }}", "{{ 0 7 + a . 0 . 1 + _b1 + 1000 + 0.15 }} "},
        {"{{ 99999999999999999999 }}", "{{ 99999999999999999999 }} "},
        {"{{ 1.real }}", "{{ 1 . real }} "},
        {"{{ 'a\\n\\x41\\u00e9\\q' }}", "{{ [a\nA\xc3\xa9\\q] }} "},
        {"{{ {'a': [1, (2)]} }}", "{{ { [a] : [ 1 , ( 2 ) ] } }} "},
        {"{{ '}}' }}", "{{ [}}] }} "},
        {"a {# {{ b }} #} c", "[a ] [ c] "},
        {"  {% if a %}\n  b\n", "{% if a %} [  b] "},
        {"  {%+ if a %}\nb", "[  ] {% if a %} [b] "},
        {"x  {%- if a -%}  \n b", "[x] {% if a %} [b] "},
        {"x\n  {{ a }}\n", "[x\n  ] {{ a }} "},
        {"a\r\nb\rc", "[a\nb\nc] "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lexed lx = {.source = cases[i].source};
        REQUIRE_MSG(run_lexer(&lx) == 0, "%s: %s", lx.source, lx.err);
        REQUIRE_EQ_STR(lx.tokens, cases[i].tokens);
    }
}

static void test_errors(void **state)
{
    static const struct {
        const char *source, *err;
    } cases[] = {
        {"\n{{ a ? b }}", "line 2: unexpected char '?'"},
        {"{{ (a] }}", "line 1: unexpected ']', expected ')'"},
        {"{{ a) }}", "line 1: unexpected ')'"},
        {"{{ 'open }}", "line 1: unexpected char '''"},
        {"{% raw %}x", "line 1: 'raw' is not supported in chat templates"},
        {"{# x", "line 1: Missing end of comment tag"},
        {"{{ '\\ud800' }}", "line 1: half of a surrogate pair in a string"},
        {"{{ '\\x4' }}", "line 1: truncated escape in a string"},
        {"{{ '\\N{BULLET}' }}", "line 1: characters by name (\\N{...}) are not supported"},
        {"{{ 1\xcc\x81 }}", "line 1: unexpected char '\xcc\x81'"},
        {"\xff", "the template is not valid UTF-8"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lexed lx = {.source = cases[i].source};
        REQUIRE_MSG(run_lexer(&lx) == JINJA_EINVAL, "%s", lx.source);
        REQUIRE_EQ_STR(lx.err, cases[i].err);
    }
}

static void read_ahead(struct jinja_run *r, void *arg)
{
    struct jinja_cursor c;
    (void)arg;
    jinja_lex(r, "{{ a\nb }}", 9, &c);
    REQUIRE(jinja_skip(&c, JINJA_T_VARIABLE_BEGIN) && !jinja_skip(&c, ','));
    REQUIRE(jinja_at_name(&c, "a") && !jinja_at_name(&c, "b"));
    REQUIRE_EQ_INT(jinja_look(&c)->line, 2);
    REQUIRE(jinja_skip_name(&c, "a") && !jinja_skip_name(&c, "a"));
    jinja_advance(&c);
    REQUIRE_EQ_INT(jinja_look(&c)->type, JINJA_T_EOF);
    jinja_advance(&c);
    REQUIRE_EQ_INT(jinja_advance(&c)->type, JINJA_T_EOF); /* and stays there */
    REQUIRE_EQ_INT(jinja_look(&c)->type, JINJA_T_EOF);
    jinja_expect(&c, ',', ",");
}

static void test_cursor(void **state)
{
    struct jinja_run r;
    (void)state;
    jinja_run_init(&r, 1 << 20, 100000);
    REQUIRE_EQ_INT(jinja_guard(&r, read_ahead, NULL), JINJA_EINVAL);
    REQUIRE_EQ_STR(r.err, "line 2: unexpected end of template, expected ','.");
    jinja_run_finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_cursor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
