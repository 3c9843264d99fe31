/* SPDX-License-Identifier: MIT */
/*
 * Resolving names alone: which slot, how far out, and what a scope loads when it is entered.
 */
#include "test.h"

#include "tokenizer/template/parser.h"
#include "tokenizer/template/ast.h"

struct resolved {
    const char *source;
    void (*check)(const struct jinja_tree *tree);
};

static void resolve(struct jinja_run *r, void *arg)
{
    struct resolved *s = arg;
    struct jinja_tree tree;
    jinja_parse(r, s->source, strlen(s->source), &tree);
    jinja_resolve_names(r, &tree);
    if (s->check) s->check(&tree);
}

/* 0, or the error in err. */
static int run_resolver(const char *source, void (*check)(const struct jinja_tree *), char *err)
{
    struct jinja_run r;
    struct resolved s = {source, check};
    jinja_run_init(&r, 1 << 20, 100000);
    int rc = jinja_guard(&r, resolve, &s);
    if (err) jinja_copy_sentence(err, JINJA_ERR_BYTES, r.err);
    jinja_run_finish(&r);
    return rc;
}

static bool same(struct jinja_ref a, uint32_t up, uint32_t slot)
{
    return a.up == up && a.slot == slot;
}

/* Read only: looked up by name once, when the template starts. */
static void check_read(const struct jinja_tree *tree)
{
    const struct jinja_ref first = tree->body.all[0]->u.operand->u.name.ref;
    REQUIRE_EQ_INT(tree->n_slots, 1);
    REQUIRE_EQ_INT(tree->scope.n_loads, 1);
    REQUIRE_EQ_INT(tree->scope.loads[0].action, JINJA_LOAD_RESOLVE);
    REQUIRE(same(first, 0, 0));
    REQUIRE(same(tree->body.all[1]->u.operand->u.name.ref, 0, first.slot));
}

/* Assigned anywhere: unset from the start, even for the read before. */
static void check_store(const struct jinja_tree *tree)
{
    REQUIRE_EQ_INT(tree->scope.n_loads, 1);
    REQUIRE_EQ_INT(tree->scope.loads[0].action, JINJA_LOAD_RESOLVE);
    REQUIRE(same(tree->body.all[0]->u.operand->u.name.ref, 0, 0));
    REQUIRE(same(tree->body.all[1]->u.block.target->u.name.ref, 0, 0));
}

static void check_store_first(const struct jinja_tree *tree)
{
    REQUIRE_EQ_INT(tree->scope.n_loads, 1);
    REQUIRE_EQ_INT(tree->scope.loads[0].action, JINJA_LOAD_UNSET);
}

/* A loop's assignment is the loop's own variable, which begins as the outer one. */
static void check_loop(const struct jinja_tree *tree)
{
    const struct jinja_for *loop = tree->body.all[1]->u.loop;
    REQUIRE_EQ_INT(tree->n_slots, 3); /* x, i, x of the loop */
    REQUIRE_EQ_INT(loop->scope.n_loads, 1);
    REQUIRE_EQ_INT(loop->scope.loads[0].action, JINJA_LOAD_ALIAS);
    REQUIRE(loop->scope.loads[0].to.slot != loop->scope.loads[0].from.slot);
    REQUIRE(!loop->uses_loop);
}

/* A macro is a unit: names outside of it are one step up. */
static void check_macro(const struct jinja_tree *tree)
{
    const struct jinja_macro_code *code = tree->body.all[1]->u.macro.code;
    REQUIRE_EQ_INT(code->n_slots, 1); /* p */
    REQUIRE(same(code->body.all[0]->u.operand->u.name.ref, 0, code->param_refs[0].slot));
    REQUIRE_EQ_INT(code->body.all[1]->u.operand->u.name.ref.up, 1);
}

static void test_slots(void **state)
{
    static const struct resolved cases[] = {
        {"{{ a }}{{ a }}", check_read},
        {"{{ a }}{% set a = 1 %}", check_store},
        {"{% set a = 1 %}{{ a }}", check_store_first},
        {"{% set x = 1 %}{% for i in [1] %}{% set x = i %}{% endfor %}", check_loop},
        {"{% set x = 1 %}{% macro m(p) %}{{ p }}{{ x }}{% endmacro %}", check_macro},
    };
    char err[JINJA_ERR_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        REQUIRE_MSG(run_resolver(cases[i].source, cases[i].check, err) == 0, "%s: %s",
                    cases[i].source, err);
}

static void test_errors(void **state)
{
    static const struct {
        const char *source, *err;
    } cases[] = {
        {"\n{{ a|nope }}", "line 2: No filter named 'nope'."},
        {"{{ a is nope }}", "line 1: No test named 'nope'."},
        {"{% if a %}\n{{ '{} {:>4}'.format(a, b) }}{% endif %}",
         "line 2: the format field '{:>4}' is not supported in chat templates, only {}, {0} and "
         "{name} are"},
        {"{% break %}", "line 1: 'break' outside loop"},
        {"{% for x in y %}{% set loop = 1 %}{% endfor %}",
         "line 1: Can't assign to special loop variable in for-loop target"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char err[JINJA_ERR_BYTES];
        REQUIRE_MSG(run_resolver(cases[i].source, NULL, err) == JINJA_EINVAL, "%s",
                    cases[i].source);
        REQUIRE_EQ_STR(err, cases[i].err);
    }
    /* an unknown filter in a branch fails only if it is reached */
    REQUIRE_EQ_INT(run_resolver("{% if a %}{{ a|nope }}{% endif %}", NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
