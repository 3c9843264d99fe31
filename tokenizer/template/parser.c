/* SPDX-License-Identifier: MIT */
/*
 * The statement half of the template parser. Expressions are in parse_expr.c.
 *
 * Refused although the reference knows them: include, import, from, extends and block (a chat
 * template is one file), and what no published template uses: call, with, print, autoescape, and
 * recursive loops.
 */
#include "tokenizer/template/parser.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- the tree ------------------------------------------------------------------------------ */

struct jinja_node *jinja_node_new(struct jinja_cursor *c, enum jinja_kind kind, int line)
{
    struct jinja_node *node = JINJA_NEW(c->r, struct jinja_node);
    jinja_spend(c->r, 1);
    node->kind = kind;
    node->line = line;
    node->height = 1;
    return node;
}

struct jinja_node *jinja_node_adopt(struct jinja_cursor *c, struct jinja_node *node,
                                    struct jinja_node *child)
{
    if (!child) return NULL;
    assert(child != node && child->height > 0);
    if (child->height >= node->height) node->height = child->height + 1;
    if (node->height > JINJA_MAX_NESTING)
        jinja_raise_at(c->r, node->line, "nested deeper than %d", JINJA_MAX_NESTING);
    jinja_nodes_add(c->r, &node->below, child);
    return child;
}

static void adopt_all(struct jinja_cursor *c, struct jinja_node *node, struct jinja_nodes *children)
{
    for (size_t i = 0; i < children->n; i++)
        jinja_node_adopt(c, node, children->all[i]);
}

void jinja_nodes_add(struct jinja_run *r, struct jinja_nodes *list, struct jinja_node *node)
{
    list->all = jinja_room(r, list->all, list->n, &list->cap, sizeof(*list->all));
    list->all[list->n++] = node;
}

/* ---- bodies -------------------------------------------------------------------------------- */

/* The names that may end the body of a statement, e.g. "elif", "else", "endif" of "if". */
struct ends {
    const char *of;
    const char *names[3];
};

static bool at_end(const struct jinja_cursor *c, const struct ends *ends)
{
    for (size_t i = 0; i < 3 && ends->names[i]; i++)
        if (jinja_at_name(c, ends->names[i])) return true;
    return false;
}

/* `ends` are the tags that would close the innermost statement; NULL: none is open. */
static _Noreturn void fail_tag(struct jinja_cursor *c, const struct ends *ends, const char *unknown)
{
    char found[200] = "Unexpected end of template.";
    int line = jinja_peek(c)->line;
    if (unknown) snprintf(found, sizeof(found), "Encountered unknown tag '%s'.", unknown);
    if (!ends) jinja_raise_at(c->r, line, "%s", found);
    jinja_raise_at(c->r, line, "%s The innermost block that needs to be closed is '%s'.", found,
                   ends->of);
}

static struct jinja_node *parse_statement(struct jinja_cursor *c, const struct ends *ends);

/* Text, variables and statements up to a statement that `ends` names; NULL: up to the end. */
static void parse_until(struct jinja_cursor *c, struct jinja_nodes *body, const struct ends *ends)
{
    jinja_descend(c);
    for (;;) {
        const struct jinja_token *t = jinja_peek(c);
        struct jinja_node *node;
        if (t->type == JINJA_T_EOF) break;
        if (t->type == JINJA_T_DATA) {
            node = jinja_node_new(c, JINJA_DATA, jinja_advance(c)->line);
            node->u.data = t->text;
        } else if (t->type == JINJA_T_VARIABLE_BEGIN) {
            node = jinja_node_new(c, JINJA_OUTPUT, jinja_advance(c)->line);
            node->u.operand = jinja_node_adopt(c, node, jinja_parse_tuple(c, 0));
            node->line = node->u.operand->line;
            jinja_expect(c, JINJA_T_VARIABLE_END, "end of print statement");
        } else {
            jinja_advance(c);
            if (ends && at_end(c, ends)) break;
            node = parse_statement(c, ends);
            jinja_expect(c, JINJA_T_BLOCK_END, "end of statement block");
        }
        if (node) jinja_nodes_add(c->r, body, node);
    }
    jinja_ascend(c);
}

/* The rest of the opening statement and the body; stops at the name that ends it. */
static void parse_body(struct jinja_cursor *c, struct jinja_node *owner, struct jinja_nodes *body,
                       const struct ends *ends)
{
    jinja_skip(c, ':');
    jinja_expect(c, JINJA_T_BLOCK_END, "end of statement block");
    parse_until(c, body, ends);
    if (jinja_peek(c)->type == JINJA_T_EOF) fail_tag(c, ends, NULL);
    adopt_all(c, owner, body);
}

/* The same for a body with one possible end, "end" and the statement's name, which is skipped. */
static void parse_whole_body(struct jinja_cursor *c, struct jinja_node *owner,
                             struct jinja_nodes *body, const char *end)
{
    struct ends ends = {end + strlen("end"), {end}};
    parse_body(c, owner, body, &ends);
    jinja_advance(c);
}

/* ---- targets ------------------------------------------------------------------------------- */

/* Names, tuples of targets and attributes of namespaces can be assigned to. */
static void make_target(struct jinja_cursor *c, struct jinja_node *node)
{
    if (node->kind == JINJA_NAME) {
        node->u.name.store = true;
    } else if (node->kind == JINJA_TUPLE_EXPR) {
        for (size_t i = 0; i < node->below.n; i++)
            make_target(c, node->below.all[i]);
    } else if (node->kind != JINJA_NSREF) {
        static const char *const what[] = {
            [JINJA_CONST] = "const", [JINJA_LIST_EXPR] = "list", [JINJA_DICT_EXPR] = "dict"};
        const char *kind = node->kind <= JINJA_DICT_EXPR ? what[node->kind] : NULL;
        jinja_raise_at(c->r, node->line, "can't assign to '%s'", kind ? kind : "expression");
    }
}

static struct jinja_node *parse_target(struct jinja_cursor *c, unsigned flags)
{
    struct jinja_node *node = jinja_parse_tuple(c, JINJA_TUPLE_SIMPLE | flags);
    make_target(c, node);
    return node;
}

/* A name that is being defined: a macro, a parameter. */
static struct jinja_node *parse_new_name(struct jinja_cursor *c)
{
    const struct jinja_token *t = jinja_expect(c, JINJA_T_NAME, "name");
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (jinja_str_is(t->text, reserved[i]))
            jinja_raise_at(c->r, t->line, "can't assign to 'name'");
    struct jinja_node *node = jinja_node_new(c, JINJA_NAME, t->line);
    node->u.name.name = t->text;
    node->u.name.text = jinja_copy(c->r, t->text->s, t->text->len);
    node->u.name.store = true;
    return node;
}

/* ---- statements ---------------------------------------------------------------------------- */

/* set targets = values, or a block: set target | filters ... endset */
static struct jinja_node *parse_set(struct jinja_cursor *c, const struct jinja_token *tag)
{
    struct jinja_node *node = jinja_node_new(c, JINJA_SET, tag->line);
    node->u.block.target = jinja_node_adopt(c, node, parse_target(c, JINJA_TUPLE_NAMESPACE));
    if (jinja_skip(c, '=')) {
        node->u.block.value = jinja_node_adopt(c, node, jinja_parse_tuple(c, 0));
        return node;
    }
    node->kind = JINJA_SET_BLOCK;
    node->u.block.filter = jinja_node_adopt(c, node, jinja_parse_filters(c, NULL, false));
    parse_whole_body(c, node, &node->u.block.body, "endset");
    return node;
}

/* for target in iter [ if test ] ... [ else ... ] endfor */
static struct jinja_node *parse_for(struct jinja_cursor *c, const struct jinja_token *tag)
{
    static const struct ends ends = {"for", {"endfor", "else"}};
    struct jinja_node *node = jinja_node_new(c, JINJA_FOR, tag->line);
    struct jinja_for *loop = node->u.loop = JINJA_NEW(c->r, struct jinja_for);
    loop->target = jinja_node_adopt(c, node, parse_target(c, 0));
    if (!jinja_skip_name(c, "in"))
        jinja_raise_at(c->r, jinja_peek(c)->line, "expected token 'in', got '%s'",
                       jinja_token_name(jinja_peek(c), c->r));
    loop->iter = jinja_node_adopt(c, node, jinja_parse_tuple(c, JINJA_TUPLE_NO_COND));
    if (jinja_skip_name(c, "if")) loop->test = jinja_parse_expression(c, true);
    if (jinja_at_name(c, "recursive"))
        jinja_raise_at(c->r, tag->line, "'recursive' is not supported in chat templates");
    parse_body(c, node, &loop->body, &ends);
    if (!jinja_skip_name(c, "endfor")) {
        jinja_advance(c);
        parse_whole_body(c, node, &loop->otherwise, "endfor");
    }
    jinja_node_adopt(c, node, loop->test);
    return node;
}

/* if test ... { elif test ... } [ else ... ] endif */
static struct jinja_node *parse_if(struct jinja_cursor *c, const struct jinja_token *tag)
{
    static const struct ends ends = {"if", {"elif", "else", "endif"}};
    struct jinja_node *node = jinja_node_new(c, JINJA_IF, tag->line);
    do {
        size_t n = node->u.cond_block.n_branches++;
        node->u.cond_block.branches =
            jinja_room(c->r, node->u.cond_block.branches, n, &node->u.cond_block.cap_branches,
                       sizeof(struct jinja_branch));
        struct jinja_branch *b = &node->u.cond_block.branches[n];
        *b = (struct jinja_branch){0};
        b->test = jinja_node_adopt(c, node, jinja_parse_tuple(c, JINJA_TUPLE_NO_COND));
        parse_body(c, node, &b->body, &ends);
    } while (jinja_skip_name(c, "elif"));
    if (jinja_skip_name(c, "else"))
        parse_whole_body(c, node, &node->u.cond_block.otherwise, "endif");
    else
        jinja_advance(c);
    return node;
}

/* (a, b=1, ...) */
static void parse_signature(struct jinja_cursor *c, struct jinja_node *owner,
                            struct jinja_macro_code *code)
{
    jinja_expect(c, '(', "(");
    while (jinja_peek(c)->type != ')') {
        if (code->params.n) jinja_expect(c, ',', ",");
        struct jinja_node *param = parse_new_name(c);
        param->u.name.param = true;
        for (size_t i = 0; i < code->params.n; i++)
            if (jinja_str_equal(code->params.all[i]->u.name.name, param->u.name.name))
                jinja_raise_at(c->r, param->line, "duplicate argument '%s'", param->u.name.text);
        if (jinja_skip(c, '=')) {
            jinja_nodes_add(c->r, &code->defaults, jinja_parse_expression(c, true));
        } else if (code->defaults.n) {
            jinja_raise_at(c->r, jinja_peek(c)->line,
                           "non-default argument follows default argument");
        }
        jinja_nodes_add(c->r, &code->params, param);
    }
    adopt_all(c, owner, &code->params);
    adopt_all(c, owner, &code->defaults);
    jinja_advance(c);
}

/* macro name(signature) ... endmacro */
static struct jinja_node *parse_macro(struct jinja_cursor *c, const struct jinja_token *tag)
{
    struct jinja_node *node = jinja_node_new(c, JINJA_MACRO_DEF, tag->line);
    struct jinja_macro_code *code = node->u.macro.code = JINJA_NEW(c->r, struct jinja_macro_code);
    code->name = parse_new_name(c)->u.name.name;
    parse_signature(c, node, code);
    parse_whole_body(c, node, &code->body, "endmacro");
    return node;
}

/* filter name [ (arguments) ] { | ... } ... endfilter */
static struct jinja_node *parse_filter_block(struct jinja_cursor *c, const struct jinja_token *tag)
{
    struct jinja_node *node = jinja_node_new(c, JINJA_FILTER_BLOCK, tag->line);
    node->u.block.filter = jinja_parse_filters(c, NULL, true);
    parse_whole_body(c, node, &node->u.block.body, "endfilter");
    jinja_node_adopt(c, node, node->u.block.filter);
    return node;
}

/* In the reference a generation block marks words for training; here it only renders. */
static struct jinja_node *parse_generation(struct jinja_cursor *c, const struct jinja_token *tag)
{
    struct jinja_node *node = jinja_node_new(c, JINJA_SCOPE, tag->line);
    parse_whole_body(c, node, &node->u.block.body, "endgeneration");
    return node;
}

static struct jinja_node *parse_loop_control(struct jinja_cursor *c, const struct jinja_token *tag)
{
    return jinja_node_new(c, jinja_str_is(tag->text, "break") ? JINJA_BREAK : JINJA_CONTINUE,
                          tag->line);
}

static const struct {
    const char *name;
    struct jinja_node *(*parse)(struct jinja_cursor *c, const struct jinja_token *tag);
} statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"generation", parse_generation},
    {"break", parse_loop_control},
    {"continue", parse_loop_control},
    {"filter", parse_filter_block},
};

/* A tag by its name; `ends` are the tags that would have closed the block around it. */
static struct jinja_node *parse_statement(struct jinja_cursor *c, const struct ends *ends)
{
    const struct jinja_token *t = jinja_peek(c);
    if (t->type != JINJA_T_NAME) jinja_raise_at(c->r, t->line, "tag name expected");
    for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
        if (!jinja_str_is(t->text, statements[i].name)) continue;
        jinja_advance(c);
        return statements[i].parse(c, t);
    }
    fail_tag(c, ends, jinja_token_name(t, c->r));
}

void jinja_parse(struct jinja_run *r, const char *source, size_t len, struct jinja_tree *ret)
{
    struct jinja_cursor c;
    *ret = (struct jinja_tree){0};
    jinja_lex(r, source, len, &c);
    parse_until(&c, &ret->body, NULL);
    r->line = 0;
}
