/* SPDX-License-Identifier: MIT */
/*
 * Statements: what a template does. Output goes to r->out; whatever captures text (macros, set and
 * filter blocks) puts a buffer of its own there for the time.
 */
#include <assert.h>

#include "tokenizer/template/dict.h"
#include "tokenizer/template/eval.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/print.h"

/* How a body ended: at its end, or by break or continue on the way to its loop. */
enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

static enum flow exec(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *node);

static enum flow exec_body(struct jinja_run *r, struct jinja_frame *f,
                           const struct jinja_nodes *body)
{
    for (size_t i = 0; i < body->n; i++) {
        enum flow flow = exec(r, f, body->all[i]);
        if (flow != FLOW_NEXT) return flow;
    }
    return FLOW_NEXT;
}

/* ---- capturing output ---------------------------------------------------------------------- */

struct capture {
    struct jinja_sb sb;
    struct jinja_sb *outer;
};

/* Output goes to the capture's own buffer, until capture_end. */
static void capture_start(struct jinja_run *r, struct capture *c)
{
    c->sb = (struct jinja_sb){.r = r};
    c->outer = r->out;
    r->out = &c->sb;
}

static const struct jinja_str *capture_end(struct jinja_run *r, struct capture *c)
{
    assert(r->out == &c->sb);
    r->out = c->outer;
    return jinja_sb_str(&c->sb);
}

/* ---- assignment ---------------------------------------------------------------------------- */

static void assign(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *target,
                   struct jinja_value v);

/* All elements are taken before the first is assigned, as in Python. */
static void unpack(struct jinja_run *r, struct jinja_frame *f, const struct jinja_nodes *targets,
                   struct jinja_value v)
{
    struct jinja_iter it;
    struct jinja_value item, *items = JINJA_NEW_N(r, targets->n, struct jinja_value);
    size_t n = 0;
    jinja_iter_start(r, &it, v);
    while (jinja_iter_next(r, &it, &item)) {
        if (n == targets->n) jinja_raise(r, "too many values to unpack (expected %zu)", targets->n);
        items[n++] = item;
    }
    if (n < targets->n)
        jinja_raise(r, "not enough values to unpack (expected %zu, got %zu)", targets->n, n);
    for (size_t i = 0; i < n; i++)
        assign(r, f, targets->all[i], items[i]);
}

static void assign(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *target,
                   struct jinja_value v)
{
    if (target->kind == JINJA_NAME) {
        *jinja_slot(f, target->u.name.ref) = v;
    } else if (target->kind == JINJA_TUPLE_EXPR) {
        unpack(r, f, &target->below, v);
    } else {
        struct jinja_value ns = *jinja_slot(f, target->u.nsref.ref);
        jinja_dict_put(r, ns.u.dict, target->u.nsref.attr, v);
    }
}

/* Assignment to an attribute works on namespaces only, which is found out beforehand. */
static void check_namespaces(struct jinja_run *r, struct jinja_frame *f,
                             const struct jinja_node *target)
{
    if (target->kind == JINJA_TUPLE_EXPR) {
        for (size_t i = 0; i < target->below.n; i++)
            check_namespaces(r, f, target->below.all[i]);
    } else if (target->kind == JINJA_NSREF &&
               !jinja_is(*jinja_slot(f, target->u.nsref.ref), JINJA_NAMESPACE)) {
        jinja_raise(r, "cannot assign attribute on non-namespace object");
    }
}

/*
 * The text of a set or filter block, filtered. break and continue leave the block and drop the text
 * it captured.
 */
static enum flow exec_captured(struct jinja_run *r, struct jinja_frame *f,
                               const struct jinja_scope_code *scope, const struct jinja_nodes *body,
                               const struct jinja_node *filter, struct jinja_value *ret)
{
    struct capture c;
    jinja_enter_scope(r, f, scope);
    capture_start(r, &c);
    enum flow flow = exec_body(r, f, body);
    const struct jinja_str *text = capture_end(r, &c), *outer = r->block_text;
    if (flow != FLOW_NEXT) return flow;
    r->block_text = text;
    *ret = filter ? jinja_eval(r, f, filter) : jinja_from_str(text);
    r->block_text = outer;
    return FLOW_NEXT;
}

static enum flow exec_set_block(struct jinja_run *r, struct jinja_frame *f,
                                const struct jinja_node *node)
{
    struct jinja_value v;
    enum flow flow =
        exec_captured(r, f, &node->u.set.scope, &node->u.set.body, node->u.set.filter, &v);
    if (flow != FLOW_NEXT) return flow;
    check_namespaces(r, f, node->u.set.target);
    assign(r, f, node->u.set.target, v);
    return FLOW_NEXT;
}

/* The output must be text already, as in the reference. */
static enum flow exec_filter_block(struct jinja_run *r, struct jinja_frame *f,
                                   const struct jinja_node *node)
{
    struct jinja_value v;
    enum flow flow =
        exec_captured(r, f, &node->u.scoped.scope, &node->u.scoped.body, node->u.scoped.filter, &v);
    if (flow != FLOW_NEXT) return flow;
    if (!jinja_is(v, JINJA_STR))
        jinja_raise(r, "expected str instance, %s found", jinja_type_name(v));
    jinja_print(r->out, v);
    return FLOW_NEXT;
}

/* ---- loops --------------------------------------------------------------------------------- */

/* The elements of a loop that pass its condition, tested as they are asked for. */
struct tested {
    const struct jinja_for *code;
    struct jinja_frame *frame;
    struct jinja_iter iter;
    bool started;
};

static bool next_tested(struct jinja_run *r, void *state, struct jinja_value *ret)
{
    struct tested *t = state;
    if (!t->started) jinja_enter_scope(r, t->frame, &t->code->test_scope);
    t->started = true;
    while (jinja_iter_next(r, &t->iter, ret)) {
        assign(r, t->frame, t->code->test_target, *ret);
        if (jinja_truth(jinja_eval(r, t->frame, t->code->test))) return true;
    }
    return false;
}

/* `outer`: the frame in which the condition is defined. */
static struct jinja_value filter_elements(struct jinja_run *r, struct jinja_frame *outer,
                                          const struct jinja_for *code, struct jinja_value v)
{
    struct tested *t = JINJA_NEW(r, struct tested);
    t->code = code;
    t->frame = jinja_frame_new(r, outer, code->n_test_slots);
    jinja_iter_start(r, &t->iter, v);
    return jinja_gen_new(r, next_tested, t);
}

/* The loop itself, in frame f; `loop` is ready to give its elements. */
static enum flow run_loop(struct jinja_run *r, struct jinja_frame *f, const struct jinja_for *code,
                          struct jinja_loop *loop)
{
    struct jinja_value v;
    bool ran = false; /* some pass came to its end: the reference's condition for no else */
    while (jinja_loop_next(r, loop, &v)) {
        assign(r, f, code->target, v);
        if (code->uses_loop)
            *jinja_slot(f, code->loop) = (struct jinja_value){.type = JINJA_LOOP, .u.loop = loop};
        jinja_enter_scope(r, f, &code->scope);
        enum flow flow = exec_body(r, f, &code->body);
        if (flow == FLOW_BREAK) break;
        ran = ran || flow == FLOW_NEXT;
    }
    if (ran || code->otherwise.n == 0) return FLOW_NEXT;
    jinja_enter_scope(r, f, &code->else_scope);
    return exec_body(r, f, &code->otherwise);
}

/*
 * The elements are evaluated outside the loop's scope. Fails, as the reference does, for what
 * cannot be walked, before anything of the loop runs.
 */
static enum flow exec_for(struct jinja_run *r, struct jinja_frame *f, const struct jinja_for *code)
{
    struct jinja_value iterable = jinja_eval(r, f, code->iter);
    struct jinja_loop *loop = JINJA_NEW(r, struct jinja_loop);
    if (code->test) iterable = filter_elements(r, f, code, iterable);
    jinja_loop_init(r, loop, iterable);
    return run_loop(r, f, code, loop);
}

/* ---- macros -------------------------------------------------------------------------------- */

/* Puts the arguments into the slots of their parameters. */
static void bind_arguments(struct jinja_run *r, struct jinja_frame *f,
                           const struct jinja_macro_code *code, const struct jinja_args *args)
{
    const struct jinja_str *name = code->name;
    size_t n = code->params.n;
    for (size_t i = 0; i < args->n_pos && i < n; i++)
        *jinja_slot(f, code->param_refs[i]) = args->pos[i];
    for (size_t i = 0; i < args->n_kw; i++) {
        const struct jinja_str *key = args->keys[i];
        size_t at = args->n_pos;
        jinja_spend(r, 1 + n / 8);
        while (at < n && !jinja_str_equal(key, code->params.all[at]->u.name.name))
            at++;
        if (at >= n)
            jinja_raise(r, "macro '%.*s' takes no keyword argument '%.*s'", (int)name->len, name->s,
                        (int)key->len, key->s);
        *jinja_slot(f, code->param_refs[at]) = args->kw[i];
    }
    if (args->n_pos > n)
        jinja_raise(r, "macro '%.*s' takes not more than %zu argument(s)", (int)name->len, name->s,
                    n);
}

/* Parameters not given have their default, evaluated now, or are undefined. */
static void fill_defaults(struct jinja_run *r, struct jinja_frame *f,
                          const struct jinja_macro_code *code)
{
    size_t first = code->params.n - code->defaults.n;
    for (size_t i = 0; i < code->params.n; i++) {
        struct jinja_value *slot = jinja_slot(f, code->param_refs[i]);
        if (!jinja_is(*slot, JINJA_MISSING)) continue;
        struct jinja_value v = i >= first
                                   ? jinja_eval(r, f, code->defaults.all[i - first])
                                   : jinja_undefined_name(r, code->params.all[i]->u.name.text);
        *jinja_slot(f, code->param_refs[i]) = v;
    }
}

struct jinja_value jinja_call_macro(struct jinja_run *r, const struct jinja_macro *macro,
                                    const struct jinja_args *args)
{
    const struct jinja_macro_code *code = macro->code;
    struct jinja_frame *f = jinja_frame_new(r, macro->frame, code->n_slots);
    struct capture c;
    if (++r->n_calls > JINJA_MAX_CALLS) /* bounded more tightly than evaluation as such */
        jinja_fail(r, JINJA_ELIMIT, "macros call each other deeper than %d", JINJA_MAX_CALLS);
    bind_arguments(r, f, code, args);
    jinja_enter_scope(r, f, &code->scope);
    fill_defaults(r, f, code);
    capture_start(r, &c);
    exec_body(r, f, &code->body);
    r->n_calls--;
    return jinja_from_str(capture_end(r, &c));
}

/* ---- all ----------------------------------------------------------------------------------- */

static enum flow exec_if(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *node)
{
    for (size_t i = 0; i < node->u.cond_block.n_branches; i++) {
        const struct jinja_branch *b = &node->u.cond_block.branches[i];
        r->line = b->test->line;
        if (jinja_truth(jinja_eval(r, f, b->test))) return exec_body(r, f, &b->body);
    }
    return exec_body(r, f, &node->u.cond_block.otherwise);
}

static enum flow exec_node(struct jinja_run *r, struct jinja_frame *f,
                           const struct jinja_node *node)
{
    struct jinja_macro *macro;
    switch (node->kind) {
    case JINJA_DATA:
        jinja_spend_bytes(r, node->u.data->len);
        jinja_sb_add(r->out, node->u.data);
        break;
    case JINJA_OUTPUT: jinja_print(r->out, jinja_eval(r, f, node->u.operand)); break;
    case JINJA_IF: return exec_if(r, f, node);
    case JINJA_FOR: return exec_for(r, f, node->u.loop);
    case JINJA_SET:
        check_namespaces(r, f, node->u.set.target);
        assign(r, f, node->u.set.target, jinja_eval(r, f, node->u.set.value));
        break;
    case JINJA_SET_BLOCK: return exec_set_block(r, f, node);
    case JINJA_MACRO_DEF:
        macro = JINJA_NEW(r, struct jinja_macro);
        *macro =
            (struct jinja_macro){node->u.macro.code, f}; /* it sees later changes of the frame */
        *jinja_slot(f, node->u.macro.ref) =
            (struct jinja_value){.type = JINJA_MACRO, .u.macro = macro};
        break;
    case JINJA_FILTER_BLOCK: return exec_filter_block(r, f, node);
    case JINJA_SCOPE:
        jinja_enter_scope(r, f, &node->u.scoped.scope);
        return exec_body(r, f, &node->u.scoped.body);
    case JINJA_BREAK: return FLOW_BREAK;
    case JINJA_CONTINUE: return FLOW_CONTINUE;
    default: break;
    }
    return FLOW_NEXT;
}

static enum flow exec(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *node)
{
    jinja_enter(r);
    r->line = node->line;
    enum flow flow = exec_node(r, f, node);
    jinja_leave(r);
    return flow;
}

void jinja_exec_tree(struct jinja_run *r, const struct jinja_tree *tree)
{
    struct jinja_frame *f = jinja_frame_new(r, NULL, tree->n_slots);
    jinja_enter_scope(r, f, &tree->scope);
    exec_body(r, f, &tree->body);
    r->line = 0;
}
