/* SPDX-License-Identifier: MIT */
/*
 * Expressions: a walk over the tree, one case per kind of node. Operators, attributes and
 * calls are in operators.c, attributes.c and the library.
 */
#include "tokenizer/template/eval.h"

#include <assert.h>

#include "tokenizer/template/dict.h"
#include "tokenizer/template/lexer.h"
#include "tokenizer/template/print.h"

enum { LOADS_PER_STEP = 16 };

struct jinja_frame *jinja_frame_new(struct jinja_run *r, struct jinja_frame *up, uint32_t n_slots)
{
    struct jinja_frame *f = JINJA_NEW(r, struct jinja_frame);
    f->up = up;
    f->n_slots = n_slots;
    f->slots = JINJA_NEW_N(r, n_slots, struct jinja_value);
    return f;
}

struct jinja_value *jinja_slot(struct jinja_frame *f, struct jinja_ref ref)
{
    for (uint32_t i = 0; i < ref.up; i++)
        f = f->up;
    assert(f && ref.slot < f->n_slots);
    return &f->slots[ref.slot];
}

void jinja_enter_scope(struct jinja_run *r, struct jinja_frame *f,
                       const struct jinja_scope_code *scope)
{
    jinja_spend(r, scope->n_loads / LOADS_PER_STEP);
    for (size_t i = 0; i < scope->n_loads; i++) {
        const struct jinja_load *l = &scope->loads[i];
        struct jinja_value v = jinja_missing();
        if (l->action == JINJA_LOAD_ALIAS) {
            v = *jinja_slot(f, l->from);
        } else if (l->action == JINJA_LOAD_RESOLVE) {
            const struct jinja_value *found =
                jinja_dict_get(r, r->context, jinja_from_str(l->name));
            if (found) v = *found;
        }
        *jinja_slot(f, l->to) = v;
    }
}

/* A slot that nothing was put into reads as undefined, under the name the template used. */
static struct jinja_value eval_name(struct jinja_run *r, struct jinja_frame *f,
                                    const struct jinja_node *node)
{
    struct jinja_value v = *jinja_slot(f, node->u.name.ref);
    return jinja_is(v, JINJA_MISSING) ? jinja_undefined_name(r, node->u.name.text) : v;
}

static struct jinja_list *eval_all(struct jinja_run *r, struct jinja_frame *f,
                                   const struct jinja_nodes *nodes)
{
    struct jinja_list *l = jinja_list_new(r, nodes->n);
    for (size_t i = 0; i < nodes->n; i++)
        jinja_list_add(r, l, jinja_eval(r, f, nodes->all[i]));
    return l;
}

/* Keys and values in turn; a key that comes again keeps its place and takes the new value. */
static struct jinja_value eval_dict(struct jinja_run *r, struct jinja_frame *f,
                                    const struct jinja_nodes *pairs)
{
    struct jinja_dict *d = jinja_dict_new(r);
    for (size_t i = 0; i + 1 < pairs->n; i += 2) {
        struct jinja_value key = jinja_eval(r, f, pairs->all[i]);
        jinja_dict_put(r, d, key, jinja_eval(r, f, pairs->all[i + 1]));
    }
    return jinja_from_dict(d);
}

/* str() of every part; a Markup among them counts as plain text here. */
static struct jinja_value eval_concat(struct jinja_run *r, struct jinja_frame *f,
                                      const struct jinja_nodes *parts)
{
    struct jinja_sb sb = {.r = r};
    struct jinja_list *values = eval_all(r, f, parts);
    for (size_t i = 0; i < values->n; i++)
        jinja_print(&sb, values->items[i]);
    return jinja_sb_value(&sb);
}

/* <= and >= are asked as two questions, which comes to the same for all values that order. */
static bool compare(struct jinja_run *r, int op, struct jinja_value a, struct jinja_value b)
{
    switch (op) {
    case JINJA_T_EQ: return jinja_equal(r, a, b);
    case JINJA_T_NE: return !jinja_equal(r, a, b);
    case '<': return jinja_less(r, a, b, "<");
    case '>': return jinja_less(r, b, a, ">");
    case JINJA_T_LTEQ: return jinja_less(r, a, b, "<=") || jinja_equal(r, a, b);
    case JINJA_T_GTEQ: return jinja_less(r, b, a, ">=") || jinja_equal(r, a, b);
    case JINJA_IN: return jinja_contains(r, b, a);
    default: return !jinja_contains(r, b, a);
    }
}

/* a < b < c: every neighbouring pair, up to the first that fails. */
static struct jinja_value eval_compare(struct jinja_run *r, struct jinja_frame *f,
                                       const struct jinja_node *node)
{
    struct jinja_value left = jinja_eval(r, f, node->below.all[0]);
    for (size_t i = 1; i < node->below.n; i++) {
        struct jinja_value right = jinja_eval(r, f, node->below.all[i]);
        if (!compare(r, node->u.compare.ops[i - 1], left, right)) return jinja_bool(false);
        left = right;
    }
    return jinja_bool(true);
}

/* The branch not taken is not evaluated, unknown filters in it included. */
static struct jinja_value eval_cond(struct jinja_run *r, struct jinja_frame *f,
                                    const struct jinja_node *node)
{
    if (jinja_truth(jinja_eval(r, f, node->u.cond.test))) return jinja_eval(r, f, node->u.cond.yes);
    if (node->u.cond.no) return jinja_eval(r, f, node->u.cond.no);
    return jinja_undefined_hint(r, "the inline if-expression evaluated to false and no else "
                                   "section was defined.");
}

static struct jinja_value eval_optional(struct jinja_run *r, struct jinja_frame *f,
                                        const struct jinja_node *node)
{
    return node ? jinja_eval(r, f, node) : jinja_none();
}

/* A slice never falls back to attributes and fails where an index would be undefined. */
static struct jinja_value eval_getitem(struct jinja_run *r, struct jinja_frame *f,
                                       const struct jinja_node *node)
{
    const struct jinja_node *index = node->u.binary.right;
    struct jinja_value obj = jinja_eval(r, f, node->u.binary.left);
    if (index->kind != JINJA_SLICE) return jinja_getitem(r, obj, jinja_eval(r, f, index));
    struct jinja_value start = eval_optional(r, f, index->u.slice.start);
    struct jinja_value stop = eval_optional(r, f, index->u.slice.stop);
    return jinja_slice(r, obj, start, stop, eval_optional(r, f, index->u.slice.step));
}

/* ---- calls --------------------------------------------------------------------------------- */

/* The arguments of a call. */
static void eval_args(struct jinja_run *r, struct jinja_frame *f, const struct jinja_call *call,
                      struct jinja_args *ret)
{
    struct jinja_list *pos = eval_all(r, f, &call->args);
    struct jinja_list *kw = eval_all(r, f, &call->kwargs);
    *ret = (struct jinja_args){.pos = pos->items, .n_pos = pos->n};
    ret->keys = JINJA_NEW_N(r, kw->n, const struct jinja_str *);
    ret->kw = JINJA_NEW_N(r, kw->n, struct jinja_value);
    ret->n_kw = kw->n;
    for (size_t i = 0; i < kw->n; i++) {
        ret->keys[i] = call->keys[i];
        ret->kw[i] = kw->items[i];
    }
}

/* A macro moves the line of the run; errors after it are the caller's again. */
static struct jinja_value eval_call(struct jinja_run *r, struct jinja_frame *f,
                                    const struct jinja_node *node)
{
    struct jinja_args args;
    struct jinja_value v, callee = jinja_eval(r, f, node->u.call.callee);
    eval_args(r, f, &node->u.call.args, &args);
    int line = r->line;
    switch (callee.type) {
    case JINJA_BUILTIN: v = jinja_apply(r, callee.u.builtin, jinja_none(), &args); break;
    case JINJA_METHOD:
        v = jinja_apply(r, callee.u.method->method, callee.u.method->self, &args);
        break;
    case JINJA_MACRO: v = jinja_call_macro(r, callee.u.macro, &args); break;
    case JINJA_UNDEFINED: jinja_fail_undefined(r, callee);
    default: jinja_raise(r, "'%s' object is not callable", jinja_type_name(callee));
    }
    r->line = line;
    return v;
}

/* Names that are unknown were let pass inside conditions: here they are reached. */
static struct jinja_value eval_apply(struct jinja_run *r, struct jinja_frame *f,
                                     const struct jinja_node *node)
{
    struct jinja_args args;
    bool is_filter = node->kind == JINJA_FILTER;
    if (!node->u.apply.function)
        jinja_raise(r, "No %s named '%.*s' found.", is_filter ? "filter" : "test",
                    (int)node->u.apply.name->len, node->u.apply.name->s);
    struct jinja_value v = node->u.apply.subject ? jinja_eval(r, f, node->u.apply.subject)
                                                 : jinja_from_str(r->block_text);
    eval_args(r, f, &node->u.apply.args, &args);
    return jinja_apply(r, node->u.apply.function, v, &args);
}

/* ---- all ----------------------------------------------------------------------------------- */

/* +true and -true are integers. */
static struct jinja_value eval_sign(struct jinja_run *r, struct jinja_frame *f,
                                    const struct jinja_node *node)
{
    struct jinja_value v = jinja_eval(r, f, node->u.operand);
    if (jinja_is(v, JINJA_UNDEFINED)) jinja_fail_undefined(r, v);
    if (!jinja_is_number(v))
        jinja_raise(r, "bad operand type for unary %s: '%s'", node->kind == JINJA_NEG ? "-" : "+",
                    jinja_type_name(v));
    if (node->kind == JINJA_NEG) return jinja_negate(r, v);
    if (jinja_is(v, JINJA_BOOL)) v.type = JINJA_INT;
    return v;
}

/* The operand that decided, not a bool. */
static struct jinja_value eval_logic(struct jinja_run *r, struct jinja_frame *f,
                                     const struct jinja_node *node)
{
    struct jinja_value left = jinja_eval(r, f, node->u.binary.left);
    if (jinja_truth(left) == (node->kind == JINJA_OR)) return left;
    return jinja_eval(r, f, node->u.binary.right);
}

static struct jinja_value eval_binary(struct jinja_run *r, struct jinja_frame *f,
                                      const struct jinja_node *node)
{
    struct jinja_value left = jinja_eval(r, f, node->u.binary.left);
    return jinja_binary(r, node->u.binary.op, left, jinja_eval(r, f, node->u.binary.right));
}

static struct jinja_value eval_node(struct jinja_run *r, struct jinja_frame *f,
                                    const struct jinja_node *node)
{
    switch (node->kind) {
    case JINJA_CONST: return node->u.value;
    case JINJA_NAME: return eval_name(r, f, node);
    case JINJA_TUPLE_EXPR: return jinja_from_tuple(eval_all(r, f, &node->below));
    case JINJA_LIST_EXPR: return jinja_from_list(eval_all(r, f, &node->below));
    case JINJA_DICT_EXPR: return eval_dict(r, f, &node->below);
    case JINJA_BINARY: return eval_binary(r, f, node);
    case JINJA_AND:
    case JINJA_OR: return eval_logic(r, f, node);
    case JINJA_NOT: return jinja_bool(!jinja_truth(jinja_eval(r, f, node->u.operand)));
    case JINJA_NEG:
    case JINJA_POS: return eval_sign(r, f, node);
    case JINJA_CONCAT: return eval_concat(r, f, &node->below);
    case JINJA_COMPARE: return eval_compare(r, f, node);
    case JINJA_COND: return eval_cond(r, f, node);
    case JINJA_GETATTR:
        return jinja_getattr(r, jinja_eval(r, f, node->u.getattr.object), node->u.getattr.name);
    case JINJA_GETITEM: return eval_getitem(r, f, node);
    case JINJA_CALL: return eval_call(r, f, node);
    case JINJA_FILTER:
    case JINJA_TEST: return eval_apply(r, f, node);
    default: jinja_raise(r, "not an expression");
    }
}

/* Where evaluation recurses, and so where its depth is counted and each step paid for. */
struct jinja_value jinja_eval(struct jinja_run *r, struct jinja_frame *f,
                              const struct jinja_node *node)
{
    jinja_enter(r);
    struct jinja_value v = eval_node(r, f, node);
    jinja_leave(r);
    return v;
}
