/* SPDX-License-Identifier: MIT */
/*
 * Statements: what a template does. Output goes to r->out; whatever captures text (macros, set and
 * filter blocks) puts a buffer of its own there for the time.
 */
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
        jinja_enter(r);
        r->line = body->all[i]->line;
        enum flow flow = exec(r, f, body->all[i]);
        jinja_leave(r);
        if (flow != FLOW_NEXT) return flow;
    }
    return FLOW_NEXT;
}

/* What a body writes. */
static const struct jinja_str *captured(struct jinja_run *r, struct jinja_frame *f,
                                        const struct jinja_nodes *body, enum flow *ret)
{
    struct jinja_sb sb = {.r = r}, *outer = r->out;
    r->out = &sb;
    *ret = exec_body(r, f, body);
    r->out = outer;
    return jinja_sb_str(&sb);
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
 * A set or filter block: its text, filtered, is assigned or written; to be written it must be text
 * still, as in the reference. break and continue leave the block and drop the text.
 */
static enum flow exec_block(struct jinja_run *r, struct jinja_frame *f,
                            const struct jinja_node *node)
{
    enum flow flow;
    jinja_enter_scope(r, f, &node->u.block.scope);
    const struct jinja_str *text = captured(r, f, &node->u.block.body, &flow);
    const struct jinja_str *outer = r->block_text;
    struct jinja_value v = jinja_from_str(text);
    if (flow != FLOW_NEXT) return flow;
    r->block_text = text;
    if (node->u.block.filter) v = jinja_eval(r, f, node->u.block.filter);
    r->block_text = outer;
    if (node->u.block.target) {
        check_namespaces(r, f, node->u.block.target);
        assign(r, f, node->u.block.target, v);
        return FLOW_NEXT;
    }
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

/*
 * The elements are evaluated outside the loop's scope. Fails, as the reference does, for what
 * cannot be walked, before anything of the loop runs.
 */
static enum flow exec_for(struct jinja_run *r, struct jinja_frame *f, const struct jinja_for *code)
{
    struct jinja_value v = jinja_eval(r, f, code->iter);
    struct jinja_loop *loop = JINJA_NEW(r, struct jinja_loop);
    bool ran = false; /* some pass came to its end: the reference's condition for no else */
    if (code->test) v = filter_elements(r, f, code, v);
    jinja_loop_init(r, loop, v);
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
    enum flow flow;
    if (++r->n_calls > JINJA_MAX_CALLS) /* bounded more tightly than evaluation as such */
        jinja_fail(r, JINJA_ELIMIT, "macros call each other deeper than %d", JINJA_MAX_CALLS);
    bind_arguments(r, f, code, args);
    jinja_enter_scope(r, f, &code->scope);
    fill_defaults(r, f, code);
    const struct jinja_str *text = captured(r, f, &code->body, &flow);
    r->n_calls--;
    return jinja_from_str(text);
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

static enum flow exec(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *node)
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
        check_namespaces(r, f, node->u.block.target);
        assign(r, f, node->u.block.target, jinja_eval(r, f, node->u.block.value));
        break;
    case JINJA_MACRO_DEF:
        macro = JINJA_NEW(r, struct jinja_macro);
        *macro =
            (struct jinja_macro){node->u.macro.code, f}; /* it sees later changes of the frame */
        *jinja_slot(f, node->u.macro.ref) =
            (struct jinja_value){.type = JINJA_MACRO, .u.macro = macro};
        break;
    case JINJA_SET_BLOCK:
    case JINJA_FILTER_BLOCK: return exec_block(r, f, node);
    case JINJA_SCOPE:
        jinja_enter_scope(r, f, &node->u.block.scope);
        return exec_body(r, f, &node->u.block.body);
    case JINJA_BREAK: return FLOW_BREAK;
    case JINJA_CONTINUE: return FLOW_CONTINUE;
    default: break;
    }
    return FLOW_NEXT;
}

void jinja_exec_tree(struct jinja_run *r, const struct jinja_tree *tree)
{
    struct jinja_frame *f = jinja_frame_new(r, NULL, tree->n_slots);
    jinja_enter_scope(r, f, &tree->scope);
    exec_body(r, f, &tree->body);
    r->line = 0;
}
