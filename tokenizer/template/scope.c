/* SPDX-License-Identifier: MIT */
/*
 * Names to slots, by the reference's own analysis.
 *
 * The reference compiles a template to a function whose local variables are named by scope level,
 * and decides beforehand what each name means: assigned anywhere in a scope, it is that scope's
 * variable from the start (even before the assignment, even where the template was given a variable
 * of the name); read only, it is the next outer scope's, or looked up by name once when the scope
 * is entered. Templates can tell, so the same is done here: `visit` collects what a scope reads and
 * assigns without looking into inner scopes, `resolve` then walks the tree and gives every name the
 * slot that this analysis found.
 */
#include "tokenizer/template/ast.h"

#include <assert.h>
#include <string.h>

#include "tokenizer/template/library.h"

/* A function of the reference's compiled code: variables of outer units are reached by closure. */
struct unit {
    uint32_t depth;
    uint32_t n_slots;
    struct ident *idents;
};

/* A variable: unique by unit, level and name. */
struct ident {
    struct ident *next; /* of the unit */
    const struct unit *unit;
    const struct jinja_str *name;
    uint32_t level;
    uint32_t slot;
};

/* The meaning of a name in a scope, and its first value. */
struct symbol {
    struct ident *ident;
    enum jinja_load_action load;
    const struct ident *from; /* of JINJA_LOAD_ALIAS */
    bool stored;              /* assigned in the scope */
    bool in_branch;           /* while branches are merged: assigned only there */
};

struct symbols {
    struct symbols *parent;
    struct unit *unit;
    uint32_t level;
    struct symbol *all;
    size_t n, cap;
};

/* Where in the tree the second walk stands. */
struct frame {
    struct jinja_run *r;
    struct symbols *sym;
    bool in_loop; /* break and continue have a loop to go to */
    bool soft;    /* in a condition: unknown filters fail only when reached */
};

/* ---- symbols ------------------------------------------------------------------------------- */

/* A scope inside `parent`, whose variables live in `unit`. */
static struct symbols *new_symbols(struct jinja_run *r, struct symbols *parent, struct unit *unit)
{
    struct symbols *sym = JINJA_NEW(r, struct symbols);
    sym->parent = parent;
    sym->unit = unit;
    sym->level = parent ? parent->level + 1 : 0;
    return sym;
}

static struct unit *new_unit(struct jinja_run *r, const struct unit *outer)
{
    struct unit *unit = JINJA_NEW(r, struct unit);
    unit->depth = outer ? outer->depth + 1 : 0;
    return unit;
}

/* The variable of this name at this level: scopes side by side share it, as in the reference. */
static struct ident *get_ident(struct jinja_run *r, struct unit *unit, uint32_t level,
                               const struct jinja_str *name)
{
    for (struct ident *id = unit->idents; id; id = id->next) {
        jinja_spend(r, 1);
        if (id->level == level && jinja_str_equal(id->name, name)) return id;
    }
    struct ident *id = JINJA_NEW(r, struct ident);
    *id = (struct ident){
        .next = unit->idents, .unit = unit, .name = name, .level = level, .slot = unit->n_slots++};
    unit->idents = id;
    return id;
}

/* The meaning of a name in this very scope, or NULL. */
static struct symbol *own_symbol(struct jinja_run *r, const struct symbols *sym,
                                 const struct jinja_str *name)
{
    jinja_spend(r, 1 + sym->n / 8);
    for (size_t i = 0; i < sym->n; i++)
        if (jinja_str_equal(sym->all[i].ident->name, name)) return &sym->all[i];
    return NULL;
}

/* The meaning of a name here: that of the innermost scope that knows it. */
static struct ident *find_ref(struct jinja_run *r, const struct symbols *sym,
                              const struct jinja_str *name)
{
    for (; sym; sym = sym->parent) {
        const struct symbol *s = own_symbol(r, sym, name);
        if (s) return s->ident;
    }
    return NULL;
}

/* The last decision about a name counts. */
static struct symbol *define(struct jinja_run *r, struct symbols *sym, const struct jinja_str *name,
                             enum jinja_load_action load, const struct ident *from)
{
    struct symbol *s = own_symbol(r, sym, name);
    if (!s) {
        jinja_spend(r, 1);
        sym->all = jinja_room(r, sym->all, sym->n, &sym->cap, sizeof(*sym->all));
        s = &sym->all[sym->n++];
        *s = (struct symbol){.ident = get_ident(r, sym->unit, sym->level, name)};
    }
    s->load = load;
    s->from = from;
    return s;
}

/* Given a value before the scope is entered: nothing is loaded. */
static struct ident *declare_param(struct jinja_run *r, struct symbols *sym,
                                   const struct jinja_str *name)
{
    struct symbol *s = define(r, sym, name, JINJA_LOAD_NOTHING, NULL);
    s->stored = true;
    return s->ident;
}

/* Read: known further out, or to be looked up by name on entering. */
static void note_load(struct jinja_run *r, struct symbols *sym, const struct jinja_str *name)
{
    if (!find_ref(r, sym, name)) define(r, sym, name, JINJA_LOAD_RESOLVE, NULL);
}

/* Assigned: the scope's own from the start; it begins as what it is outside, or unset. */
static void note_store(struct jinja_run *r, struct symbols *sym, const struct jinja_str *name)
{
    struct symbol *s = own_symbol(r, sym, name);
    struct ident *outer = sym->parent ? find_ref(r, sym->parent, name) : NULL;
    if (!s) s = define(r, sym, name, outer ? JINJA_LOAD_ALIAS : JINJA_LOAD_UNSET, outer);
    s->stored = true;
}

/* ---- first walk: what a scope reads and assigns -------------------------------------------- */

struct visit {
    struct jinja_run *r;
    struct symbols *sym;
    bool as_param;
};

static void visit(struct visit *v, struct jinja_node *node);

static void visit_all(struct visit *v, const struct jinja_nodes *nodes)
{
    for (size_t i = 0; i < nodes->n; i++)
        visit(v, nodes->all[i]);
}

/* Branches are analysed apart, each from the same state. */
static struct symbols *copy_symbols(struct jinja_run *r, const struct symbols *sym)
{
    struct symbols *copy = JINJA_NEW(r, struct symbols);
    *copy = *sym;
    copy->all = JINJA_NEW_N(r, sym->n, struct symbol);
    copy->cap = sym->n;
    if (sym->n) memcpy(copy->all, sym->all, sym->n * sizeof(*sym->all));
    jinja_spend(r, 1 + sym->n / 8);
    return copy;
}

/* A name that only branches assign is loaded beforehand, for the branches that do not. */
static void merge_branches(struct jinja_run *r, struct symbols *sym, struct symbols **branches,
                           size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < branches[i]->n; k++) {
            const struct symbol *from = &branches[i]->all[k];
            struct symbol *s = define(r, sym, from->ident->name, from->load, from->from);
            s->in_branch |= from->stored && !s->stored;
        }
    for (size_t i = 0; i < sym->n; i++) {
        struct symbol *s = &sym->all[i];
        if (!s->in_branch) continue;
        s->from = sym->parent ? find_ref(r, sym->parent, s->ident->name) : NULL;
        s->load = s->from ? JINJA_LOAD_ALIAS : JINJA_LOAD_RESOLVE;
        s->stored = true;
        s->in_branch = false;
    }
}

/* One branch and, as the reference nests them, the elifs in a branch of their own. */
static void visit_if(struct visit *v, const struct jinja_branch *b, size_t n, bool elif,
                     const struct jinja_nodes *otherwise)
{
    struct symbols *sym = v->sym;
    visit(v, b->test);
    struct symbols *branches[3] = {copy_symbols(v->r, sym), copy_symbols(v->r, sym),
                                   copy_symbols(v->r, sym)};
    v->sym = branches[0];
    visit_all(v, &b->body);
    v->sym = branches[1];
    for (size_t i = 1; i < n && !elif; i++)
        visit_if(v, &b[i], 1, true, NULL);
    v->sym = branches[2];
    if (otherwise) visit_all(v, otherwise);
    v->sym = sym;
    merge_branches(v->r, sym, branches, 3);
}

/* Loop targets and parameters are declared, other targets stored, the rest loaded. */
static void visit_name(struct visit *v, const struct jinja_node *node)
{
    const struct jinja_str *name = node->u.name.name;
    if (v->as_param || node->u.name.param)
        declare_param(v->r, v->sym, name);
    else if (node->u.name.store)
        note_store(v->r, v->sym, name);
    else
        note_load(v->r, v->sym, name);
}

static void visit(struct visit *v, struct jinja_node *node)
{
    jinja_spend(v->r, 1);
    switch (node->kind) {
    case JINJA_NAME: visit_name(v, node); break;
    case JINJA_NSREF: note_load(v->r, v->sym, node->u.nsref.name); break;
    case JINJA_IF:
        visit_if(v, node->u.cond_block.branches, node->u.cond_block.n_branches, false,
                 &node->u.cond_block.otherwise);
        break;
    case JINJA_FOR: visit(v, node->u.loop->iter); break;
    case JINJA_SET:
        visit(v, node->u.block.value);
        visit(v, node->u.block.target);
        break;
    case JINJA_SET_BLOCK: visit(v, node->u.block.target); break;
    case JINJA_MACRO_DEF: note_store(v->r, v->sym, node->u.macro.code->name); break;
    case JINJA_FILTER_BLOCK: visit(v, node->u.block.filter); break;
    case JINJA_SCOPE: break;
    default: visit_all(v, &node->below); break;
    }
}

static void analyze(struct frame *f, const struct jinja_nodes *nodes, bool as_param)
{
    struct visit v = {.r = f->r, .sym = f->sym, .as_param = as_param};
    visit_all(&v, nodes);
}

static void analyze_one(struct frame *f, struct jinja_node *node, bool as_param)
{
    struct visit v = {.r = f->r, .sym = f->sym, .as_param = as_param};
    if (node) visit(&v, node);
}

/* ---- which special names a body mentions, inner scopes included ---------------------------- */

struct mentions {
    struct jinja_run *r;
    const char *name;
    bool found;  /* read before any assignment that the walk came across */
    bool hidden; /* assigned first */
    bool stored; /* assigned anywhere */
};

/* After an assignment of the name a read is not of the outer one. */
static void mention_name(struct mentions *m, const struct jinja_node *node)
{
    if (!jinja_str_is(node->u.name.name, m->name)) return;
    bool store = node->u.name.store && !node->u.name.param;
    m->stored = m->stored || store;
    if (node->u.name.store)
        m->hidden = m->hidden || !m->found;
    else
        m->found = m->found || !m->hidden;
}

static void mention(struct mentions *m, const struct jinja_node *node)
{
    jinja_spend(m->r, 1);
    if (node->kind == JINJA_NAME) mention_name(m, node);
    for (size_t i = 0; i < node->below.n; i++)
        mention(m, node->below.all[i]);
}

/* True if a body reads a name before it assigns it, in the order of the tree. */
static bool reads(struct jinja_run *r, const struct jinja_nodes *body, const char *name)
{
    struct mentions m = {.r = r, .name = name};
    for (size_t i = 0; i < body->n; i++)
        mention(&m, body->all[i]);
    return m.found;
}

/* ---- second walk: slots -------------------------------------------------------------------- */

static void resolve(struct frame *f, struct jinja_node *node);

static void resolve_all(struct frame *f, const struct jinja_nodes *nodes)
{
    for (size_t i = 0; i < nodes->n; i++)
        resolve(f, nodes->all[i]);
}

static struct jinja_ref ref_of(const struct frame *f, const struct ident *id)
{
    assert(id->unit->depth <= f->sym->unit->depth); /* never of an inner function */
    return (struct jinja_ref){.up = f->sym->unit->depth - id->unit->depth, .slot = id->slot};
}

static struct jinja_ref ref_of_name(struct frame *f, const struct jinja_str *name, int line)
{
    struct ident *id = find_ref(f->r, f->sym, name);
    if (id) return ref_of(f, id);
    jinja_raise_at(f->r, line,
                   "the name '%.*s' cannot be used in the filter of a set block unless it is used "
                   "in its body",
                   (int)name->len, name->s);
}

/* A scope inside this one, in the same unit or one of its own; conditions end here. */
static struct frame inner(const struct frame *f, struct unit *unit)
{
    struct frame in = {.r = f->r, .in_loop = f->in_loop};
    in.sym = new_symbols(f->r, f->sym, unit ? unit : f->sym->unit);
    return in;
}

/* The loads on entering the frame's scope. */
static struct jinja_scope_code scope_code(const struct frame *f)
{
    struct jinja_scope_code code = {0};
    code.loads = JINJA_NEW_N(f->r, f->sym->n, struct jinja_load);
    for (size_t i = 0; i < f->sym->n; i++) {
        const struct symbol *from = &f->sym->all[i];
        if (from->load == JINJA_LOAD_NOTHING) continue;
        struct jinja_load *l = &code.loads[code.n_loads++];
        l->action = from->load;
        l->to = ref_of(f, from->ident);
        l->name = from->ident->name;
        if (from->from) l->from = ref_of(f, from->from);
    }
    return code;
}

/* Filters and tests are looked up once and for all. */
static void resolve_apply(struct frame *f, struct jinja_node *node)
{
    const struct jinja_str *name = node->u.apply.name;
    bool is_filter = node->kind == JINJA_FILTER;
    node->u.apply.function =
        is_filter ? jinja_find_filter(name) : jinja_find_function(jinja_tests, name);
    if (!f->soft && !node->u.apply.function)
        jinja_raise_at(f->r, node->line, "No %s named '%.*s'.", is_filter ? "filter" : "test",
                       (int)name->len, name->s);
    resolve_all(f, &node->below);
}

/* The fields of a format that the template spells are known now. */
static void resolve_method(struct frame *f, const struct jinja_node *callee)
{
    const struct jinja_str *name = callee->u.getattr.name.u.str;
    const struct jinja_node *object = callee->u.getattr.object;
    if (!jinja_str_is(name, "format") || object->kind != JINJA_CONST ||
        !jinja_is(object->u.value, JINJA_STR))
        return;
    f->r->line = callee->line;
    jinja_check_format(f->r, object->u.value.u.str);
}

static void resolve_call(struct frame *f, struct jinja_node *node)
{
    const struct jinja_node *callee = node->u.call.callee;
    if (callee->kind == JINJA_GETATTR) resolve_method(f, callee);
    resolve_all(f, &node->below);
}

/* Below a condition, names of filters and tests may be unknown until they are reached. */
static void resolve_soft(struct frame *f, struct jinja_node *node)
{
    struct frame soft = *f;
    soft.soft = true;
    resolve_all(&soft, &node->below);
}

/* The condition assigns the loop's target too, to variables of its own. */
static struct jinja_node *copy_target(struct jinja_run *r, const struct jinja_node *node)
{
    struct jinja_node *copy = JINJA_NEW(r, struct jinja_node);
    *copy = *node;
    if (node->kind != JINJA_TUPLE_EXPR) return copy;
    copy->below = (struct jinja_nodes){0};
    for (size_t i = 0; i < node->below.n; i++)
        jinja_nodes_add(r, &copy->below, copy_target(r, node->below.all[i]));
    return copy;
}

/* The condition of a loop is a unit of its own: it runs ahead of the body. */
static void resolve_loop_test(struct frame *f, struct jinja_for *loop)
{
    struct frame test = inner(f, new_unit(f->r, f->sym->unit));
    loop->test_target = copy_target(f->r, loop->target);
    analyze_one(&test, loop->test_target, true);
    analyze_one(&test, loop->test, false);
    loop->test_scope = scope_code(&test);
    resolve(&test, loop->test_target);
    resolve(&test, loop->test);
    loop->n_test_slots = test.sym->unit->n_slots;
}

/* `loop` belongs to the statement; assigning it anywhere inside is refused. */
static void check_loop_name(struct frame *f, struct jinja_node *node)
{
    struct mentions m = {.r = f->r, .name = "loop"};
    mention(&m, node);
    if (m.stored)
        jinja_raise_at(f->r, node->line,
                       "Can't assign to special loop variable in for-loop target");
}

/* Body and else are scopes side by side. */
static void resolve_for(struct frame *f, struct jinja_node *node)
{
    struct jinja_for *loop = node->u.loop;
    struct frame body = inner(f, NULL), otherwise = inner(f, NULL);
    loop->uses_loop = reads(f->r, &loop->body, "loop");
    if (loop->uses_loop) {
        const struct jinja_str *name = jinja_str_new(f->r, "loop", 4, JINJA_TRUSTED);
        loop->loop = ref_of(&body, declare_param(f->r, body.sym, name));
    }
    analyze_one(&body, loop->target, true);
    analyze(&body, &loop->body, false);
    analyze(&otherwise, &loop->otherwise, false);
    if (loop->test) resolve_loop_test(f, loop);
    check_loop_name(f, node);
    resolve(f, loop->iter);
    body.in_loop = true;
    otherwise.in_loop = f->in_loop;
    resolve(&body, loop->target);
    resolve_all(&body, &loop->body);
    resolve_all(&otherwise, &loop->otherwise);
    loop->scope = scope_code(&body);
    loop->else_scope = scope_code(&otherwise);
}

/* In the reference a macro that reads such a name takes further arguments. */
static void refuse_special(const struct frame *f, const struct jinja_macro_code *code,
                           const char *name, int line)
{
    for (size_t i = 0; i < code->params.n; i++)
        if (jinja_str_is(code->params.all[i]->u.name.name, name)) return;
    if (!reads(f->r, &code->body, name)) return;
    jinja_raise_at(f->r, line, "'%s' of a macro is not supported in chat templates", name);
}

static void resolve_macro(struct frame *outer, struct jinja_macro_code *code, int line)
{
    struct frame f = inner(outer, new_unit(outer->r, outer->sym->unit));
    f.in_loop = false;
    analyze(&f, &code->params, true);
    analyze(&f, &code->defaults, false);
    analyze(&f, &code->body, false);
    refuse_special(&f, code, "kwargs", line);
    refuse_special(&f, code, "varargs", line);
    code->param_refs = JINJA_NEW_N(f.r, code->params.n, struct jinja_ref);
    for (size_t i = 0; i < code->params.n; i++)
        code->param_refs[i] = ref_of_name(&f, code->params.all[i]->u.name.name, line);
    resolve_all(&f, &code->defaults);
    resolve_all(&f, &code->body);
    code->scope = scope_code(&f);
    code->n_slots = f.sym->unit->n_slots;
}

/* A block's body is a scope; the target of a set block belongs outside. */
static void resolve_block(struct frame *f, struct jinja_node *node)
{
    struct frame body = inner(f, NULL);
    if (node->kind == JINJA_SCOPE) body.in_loop = false;
    analyze(&body, &node->u.block.body, false);
    if (node->kind == JINJA_FILTER_BLOCK) /* not of a set block: so does the reference */
        analyze_one(&body, node->u.block.filter, false);
    resolve_all(&body, &node->u.block.body);
    if (node->u.block.filter) resolve(&body, node->u.block.filter);
    if (node->u.block.target) resolve(f, node->u.block.target);
    node->u.block.scope = scope_code(&body);
}

static void resolve(struct frame *f, struct jinja_node *node)
{
    jinja_spend(f->r, 1);
    switch (node->kind) {
    case JINJA_NAME: node->u.name.ref = ref_of_name(f, node->u.name.name, node->line); break;
    case JINJA_NSREF: node->u.nsref.ref = ref_of_name(f, node->u.nsref.name, node->line); break;
    case JINJA_FILTER:
    case JINJA_TEST: resolve_apply(f, node); break;
    case JINJA_CALL: resolve_call(f, node); break;
    case JINJA_COND:
    case JINJA_IF: resolve_soft(f, node); break;
    case JINJA_FOR: resolve_for(f, node); break;
    case JINJA_MACRO_DEF:
        resolve_macro(f, node->u.macro.code, node->line);
        node->u.macro.ref = ref_of_name(f, node->u.macro.code->name, node->line);
        break;
    case JINJA_SET_BLOCK:
    case JINJA_FILTER_BLOCK:
    case JINJA_SCOPE: resolve_block(f, node); break;
    case JINJA_BREAK:
        if (!f->in_loop) jinja_raise_at(f->r, node->line, "'break' outside loop");
        break;
    case JINJA_CONTINUE:
        if (!f->in_loop) jinja_raise_at(f->r, node->line, "'continue' not properly in loop");
        break;
    default: resolve_all(f, &node->below); break;
    }
}

void jinja_resolve_names(struct jinja_run *r, struct jinja_tree *tree)
{
    struct frame root = {.r = r};
    root.sym = new_symbols(r, NULL, new_unit(r, NULL));
    analyze(&root, &tree->body, false);
    resolve_all(&root, &tree->body);
    tree->scope = scope_code(&root);
    tree->n_slots = root.sym->unit->n_slots;
}
