/* SPDX-License-Identifier: MIT */
/* The rules of a GBNF grammar; see gbnf_rules.h. */
#include "tokenizer/grammar/front/gbnf_rules.h"

#include <string.h>

#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/expr.h"
#include "tokenizer/grammar/rules.h"

/* A rule is written into others up to this size; no rule grows above the other. */
enum { SMALL = 600, MAX_DEPTH = 1000 };

enum { NEW, OPEN, DONE };

static const char *quoted(struct gram_build *b, const struct gram_gbnf_rule *r)
{
    return gram_quote(b, r->name, r->name_len);
}
uint32_t gram_gbnf_rule(struct gram_build *b, struct gram_gbnf *g, const char *name, size_t len,
                        uint32_t line)
{
    uint32_t i = gram_table_add(b, &g->names, name, len);
    if (i < g->n) return i;
    if (i == GRAM_MAX_RULES)
        gram_fail(b, GRAM_EGRAMMAR, "The grammar needs more than %d rules.", GRAM_MAX_RULES);
    g->rules = gram_grow(b, g->rules, i, &g->cap, sizeof(*g->rules));
    g->rules[g->n++] = (struct gram_gbnf_rule){
        .name = name, .name_len = (uint32_t)len, .line = line, .node = GRAM_NONE};
    return i;
}

void gram_gbnf_define(struct gram_build *b, struct gram_gbnf *g, const char *name, size_t len,
                      uint32_t line, struct gram_ex *x)
{
    uint32_t i = gram_gbnf_rule(b, g, name, len, line); /* may move the rules */
    struct gram_gbnf_rule *r = &g->rules[i];
    if (r->x)
        gram_fail(b, GRAM_EGRAMMAR, "grammar line %u: rule %s is defined twice.", line,
                  quoted(b, r));
    r->x = x;
}

static void find_nullable(struct gram_build *b, struct gram_gbnf *g)
{
    bool changed = true;
    g->nullable = gram_temp_array(b, g->n, sizeof(*g->nullable));
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < g->n; i++) {
            if (g->nullable[i] || !gram_ex_is_optional(b, g->rules[i].x, g->nullable)) continue;
            g->nullable[i] = changed = true;
        }
        gram_steps(b, g->n);
    }
}

static void check_left(struct gram_build *b, struct gram_gbnf *g, uint32_t rule, int depth);

/* Visits the rules that x can begin with. */
static void visit_left(struct gram_build *b, struct gram_gbnf *g, const struct gram_ex *x,
                       int depth)
{
    switch (x->kind) {
    case GRAM_EX_RULE: check_left(b, g, x->ref, depth); break;
    case GRAM_EX_REP: visit_left(b, g, x->kids[0], depth); break;
    case GRAM_EX_ALT:
        for (uint32_t i = 0; i < x->n; i++)
            visit_left(b, g, x->kids[i], depth);
        break;
    case GRAM_EX_SEQ:
        for (uint32_t i = 0; i < x->n; i++) {
            visit_left(b, g, x->kids[i], depth);
            if (!gram_ex_is_optional(b, x->kids[i], g->nullable)) break;
        }
        break;
    default: break;
    }
}

static void check_left(struct gram_build *b, struct gram_gbnf *g, uint32_t rule, int depth)
{
    struct gram_gbnf_rule *r = &g->rules[rule];
    gram_steps(b, 1);
    if (r->left_visit == OPEN)
        gram_fail(b, GRAM_EGRAMMAR, "grammar: rule %s is left-recursive.", quoted(b, r));
    if (r->left_visit == DONE) return;
    if (depth == MAX_DEPTH) gram_fail(b, GRAM_EGRAMMAR, "grammar: rules nest too deep.");
    r->left_visit = OPEN;
    visit_left(b, g, r->x, depth + 1);
    r->left_visit = DONE;
}

/* ---- recursion ----------------------------------------------------------------------------- */

static void find_recursion(struct gram_build *b, struct gram_gbnf *g, uint32_t rule, int depth);

/* Returns true if x refers to a rule that is recursive or still being looked at. */
static bool refers_to_recursive(struct gram_build *b, struct gram_gbnf *g, const struct gram_ex *x,
                                int depth)
{
    bool found = false;
    if (x->kind == GRAM_EX_RULE) {
        find_recursion(b, g, x->ref, depth);
        return g->rules[x->ref].recursive || g->rules[x->ref].visit == OPEN;
    }
    for (uint32_t i = 0; i < x->n && x->has_rules; i++)
        found |= refers_to_recursive(b, g, x->kids[i], depth);
    return found;
}

static void find_recursion(struct gram_build *b, struct gram_gbnf *g, uint32_t rule, int depth)
{
    struct gram_gbnf_rule *r = &g->rules[rule];
    gram_steps(b, 1);
    if (r->visit != NEW) return;
    if (depth == MAX_DEPTH) gram_fail(b, GRAM_EGRAMMAR, "grammar: rules nest too deep.");
    r->visit = OPEN;
    bool recursive = refers_to_recursive(b, g, r->x, depth + 1);
    r->visit = DONE;
    r->recursive = recursive;
}

/* ---- loops --------------------------------------------------------------------------------- */

static bool mentions(const struct gram_ex *x, uint32_t rule)
{
    if (x->kind == GRAM_EX_RULE) return x->ref == rule;
    for (uint32_t i = 0; i < x->n && x->has_rules; i++)
        if (mentions(x->kids[i], rule)) return true;
    return false;
}

/* An alternative that ends in the rule, and mentions it nowhere else: what comes before. */
static struct gram_ex *before_itself(struct gram_build *b, struct gram_ex *x, uint32_t rule)
{
    if (x->kind != GRAM_EX_SEQ) return NULL;
    const struct gram_ex *last = x->kids[x->n - 1];
    struct gram_ex_list list = {.items = x->kids, .n = x->n - 1, .cap = x->n - 1};
    if (last->kind != GRAM_EX_RULE || last->ref != rule) return NULL;
    struct gram_ex *rest = gram_ex_seq(b, &list);
    return mentions(rest, rule) ? NULL : rest;
}

/* a ::= (x a)? is a ::= x*. */
static bool make_star(struct gram_build *b, struct gram_gbnf_rule *r, uint32_t rule)
{
    if (r->x->kind != GRAM_EX_REP || r->x->min != 0 || r->x->max != 1) return false;
    struct gram_ex *round = before_itself(b, r->x->kids[0], rule);
    if (round) r->x = gram_ex_rep(b, round, 0, GRAM_INFINITE);
    return round;
}

/* a ::= x a | y | z a is a ::= (x | z)* y: no recursion at all. */
static void make_loop(struct gram_build *b, struct gram_gbnf_rule *r, uint32_t rule)
{
    struct gram_ex_list rounds = {0}, ends = {0}, both = {0};
    if (make_star(b, r, rule) || r->x->kind != GRAM_EX_ALT || !mentions(r->x, rule)) return;
    for (uint32_t i = 0; i < r->x->n; i++) {
        struct gram_ex *x = r->x->kids[i], *round = before_itself(b, x, rule);
        if (!round && mentions(x, rule)) return;
        gram_ex_push(b, round ? &rounds : &ends, round ? round : x);
    }
    gram_ex_push(b, &both, gram_ex_rep(b, gram_ex_alt(b, &rounds), 0, GRAM_INFINITE));
    gram_ex_push(b, &both, gram_ex_alt(b, &ends));
    r->x = gram_ex_seq(b, &both);
}

/* ---- writing rules into others ------------------------------------------------------------- */

static struct gram_ex *inlined(struct gram_build *b, struct gram_gbnf *g, struct gram_ex *x);

static void inline_kids(struct gram_build *b, struct gram_gbnf *g, const struct gram_ex *x,
                        struct gram_ex_list *out)
{
    for (uint32_t i = 0; i < x->n; i++)
        gram_ex_push(b, out, inlined(b, g, x->kids[i]));
}

/* x with the small rules that are not recursive in the place of their names. */
static struct gram_ex *inlined(struct gram_build *b, struct gram_gbnf *g, struct gram_ex *x)
{
    struct gram_ex_list kids = {0};
    switch (x->kind) {
    case GRAM_EX_RULE: {
        struct gram_gbnf_rule *r = &g->rules[x->ref];
        if (r->recursive) return x;
        if (r->x->has_rules) r->x = inlined(b, g, r->x);
        return r->x->size <= SMALL && !r->x->has_rules ? r->x : x;
    }
    case GRAM_EX_SEQ: inline_kids(b, g, x, &kids); return gram_ex_seq(b, &kids);
    case GRAM_EX_ALT: inline_kids(b, g, x, &kids); return gram_ex_alt(b, &kids);
    case GRAM_EX_REP: return gram_ex_rep(b, inlined(b, g, x->kids[0]), x->min, x->max);
    default: return x;
    }
}

/* ---- nodes --------------------------------------------------------------------------------- */

/* Marks the rules that are still named somewhere, from the root on. */
static void mark_used(struct gram_gbnf *g, const struct gram_ex *x, uint32_t *queue, uint32_t *n)
{
    if (x->kind == GRAM_EX_RULE && g->rules[x->ref].visit != OPEN) {
        g->rules[x->ref].visit = OPEN;
        queue[(*n)++] = x->ref;
    }
    for (uint32_t i = 0; i < x->n && x->has_rules; i++)
        mark_used(g, x->kids[i], queue, n);
}

/* A node per used rule first, so that rules can refer to each other; then what they are. */
static uint32_t build_nodes(struct gram_build *b, struct gram_gbnf *g, uint32_t root)
{
    uint32_t *queue = gram_temp_array(b, g->n, sizeof(*queue)), n = 0;
    uint32_t *nodes = gram_temp_array(b, g->n, sizeof(*nodes));
    struct gram_ex start = {.kind = GRAM_EX_RULE, .has_rules = true, .ref = root};
    mark_used(g, &start, queue, &n);
    for (uint32_t i = 0; i < n; i++)
        mark_used(g, g->rules[queue[i]].x, queue, &n);
    for (uint32_t i = 0; i < n; i++)
        nodes[queue[i]] = gram_add_node(b, GRAM_NODE_ALT);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *kid = gram_temp(b, sizeof(*kid));
        *kid = gram_node_of(b, g->rules[queue[i]].x, nodes);
        b->rules->nodes[nodes[queue[i]]].kids = kid;
        b->rules->nodes[nodes[queue[i]]].n = 1;
    }
    return nodes[root];
}

uint32_t gram_gbnf_finish(struct gram_build *b, struct gram_gbnf *g)
{
    uint32_t n = g->n, root = gram_gbnf_rule(b, g, "root", 4, 0);
    for (uint32_t i = 0; i < g->n; i++) {
        const struct gram_gbnf_rule *r = &g->rules[i];
        if (r->x) continue;
        if (i == root && n < g->n) gram_fail(b, GRAM_EGRAMMAR, "grammar: rule 'root' is missing.");
        gram_fail(b, GRAM_EGRAMMAR, "grammar line %u: rule %s is not defined.", r->line,
                  quoted(b, r));
    }
    find_nullable(b, g);
    for (uint32_t i = 0; i < g->n; i++)
        check_left(b, g, i, 0);
    for (uint32_t i = 0; i < g->n; i++)
        make_loop(b, &g->rules[i], i);
    for (uint32_t i = 0; i < g->n; i++)
        find_recursion(b, g, i, 0);
    for (uint32_t i = 0; i < g->n; i++)
        g->rules[i].x = inlined(b, g, g->rules[i].x);
    return build_nodes(b, g, root);
}
