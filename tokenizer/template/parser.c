/* SPDX-License-Identifier: MIT */
/*
 * The statement half of the template parser, and what both halves stand on: the token cursor, tree
 * nodes, errors. Expressions are in parse_expr.c.
 *
 * Refused although the reference knows them: include, import, from, extends and block (a chat
 * template is one file), and autoescape unless it is switched off.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer/template/ast.h"

/* ---- nodes --------------------------------------------------------------------------------- */

struct jinja_node *jinja_node_new(struct jinja_parser *p, enum jinja_kind kind, int line)
{
    struct jinja_node *node = JINJA_NEW(p->r, struct jinja_node);
    jinja_spend(p->r, 1);
    node->kind = kind;
    node->line = line;
    node->height = 1;
    return node;
}

void jinja_node_adopt(struct jinja_parser *p, struct jinja_node *node,
                      const struct jinja_node *child)
{
    if (child->height >= node->height) node->height = child->height + 1;
    if (node->height > JINJA_MAX_NESTING)
        jinja_parse_fail(p, node->line, "nested deeper than %d", JINJA_MAX_NESTING);
}

void jinja_nodes_add(struct jinja_run *r, struct jinja_nodes *list, struct jinja_node *node)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 4;
        list->all =
            jinja_grow(r, list->all, list->cap * sizeof(*list->all), cap * sizeof(*list->all));
        list->cap = cap;
    }
    list->all[list->n++] = node;
}

static void adopt_all(struct jinja_parser *p, struct jinja_node *node,
                      const struct jinja_nodes *list)
{
    for (size_t i = 0; i < list->n; i++)
        jinja_node_adopt(p, node, list->all[i]);
}

/* ---- cursor -------------------------------------------------------------------------------- */

void jinja_parse_fail(struct jinja_parser *p, int line, const char *fmt, ...)
{
    char message[JINJA_ERR_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    p->r->line = line;
    jinja_raise(p->r, "%s", message);
}

const struct jinja_token *jinja_peek(const struct jinja_parser *p)
{
    return &p->tokens.all[p->at];
}

const struct jinja_token *jinja_look(const struct jinja_parser *p)
{
    return &p->tokens.all[p->at + 1 < p->tokens.n ? p->at + 1 : p->at];
}

const struct jinja_token *jinja_advance(struct jinja_parser *p)
{
    const struct jinja_token *t = jinja_peek(p);
    if (t->type != JINJA_T_EOF) p->at++;
    return t;
}

bool jinja_at_name(const struct jinja_parser *p, const char *name)
{
    const struct jinja_token *t = jinja_peek(p);
    return t->type == JINJA_T_NAME && jinja_str_is(t->text, name);
}

bool jinja_skip_name(struct jinja_parser *p, const char *name)
{
    if (!jinja_at_name(p, name)) return false;
    jinja_advance(p);
    return true;
}

bool jinja_skip(struct jinja_parser *p, enum jinja_token_type type)
{
    if (jinja_peek(p)->type != type) return false;
    jinja_advance(p);
    return true;
}

const struct jinja_token *jinja_expect(struct jinja_parser *p, enum jinja_token_type type,
                                       const char *what)
{
    const struct jinja_token *t = jinja_peek(p);
    if (t->type == type) return jinja_advance(p);
    if (t->type == JINJA_T_EOF)
        jinja_parse_fail(p, t->line, "unexpected end of template, expected '%s'.", what);
    jinja_parse_fail(p, t->line, "expected token '%s', got '%s'", what, jinja_token_name(t, p->r));
}

void jinja_descend(struct jinja_parser *p)
{
    if (++p->depth > JINJA_MAX_NESTING)
        jinja_parse_fail(p, jinja_peek(p)->line, "nested deeper than %d", JINJA_MAX_NESTING);
}

void jinja_ascend(struct jinja_parser *p)
{
    p->depth--;
}

/* ---- bodies -------------------------------------------------------------------------------- */

/* The names that may end a body, e.g. "elif", "else", "endif". */
struct ends {
    const char *names[3];
};

static bool at_end(const struct jinja_parser *p, const struct ends *ends)
{
    for (size_t i = 0; i < 3 && ends->names[i]; i++)
        if (jinja_at_name(p, ends->names[i])) return true;
    return false;
}

/* "'elif' or 'else' or 'endif'" */
static void describe_ends(const struct ends *ends, char *buf, size_t size)
{
    size_t at = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < 3 && ends->names[i] && at < size; i++) {
        int n = snprintf(buf + at, size - at, "%s'%s'", i ? " or " : "", ends->names[i]);
        at += n > 0 ? (size_t)n : 0;
    }
}

static _Noreturn void fail_tag(struct jinja_parser *p, const struct ends *ends, const char *unknown)
{
    char wanted[100] = "", message[400];
    if (ends) describe_ends(ends, wanted, sizeof(wanted));
    int n = unknown ? snprintf(message, sizeof(message), "Encountered unknown tag '%s'.", unknown)
                    : snprintf(message, sizeof(message), "Unexpected end of template.");
    size_t at = n > 0 && (size_t)n < sizeof(message) ? (size_t)n : 0;
    if (*wanted)
        n = snprintf(message + at, sizeof(message) - at,
                     " Jinja was looking for the following tags: %s.", wanted);
    at += *wanted && n > 0 ? (size_t)n : 0;
    if (p->n_tags && at < sizeof(message))
        snprintf(message + at, sizeof(message) - at,
                 " The innermost block that needs to be closed is '%s'.", p->tags[p->n_tags - 1]);
    jinja_parse_fail(p, jinja_peek(p)->line, "%s", message);
}

static struct jinja_node *parse_statement(struct jinja_parser *p, const struct ends *ends);

/* {{ expression }} */
static struct jinja_node *parse_variable(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_node_new(p, JINJA_OUTPUT, jinja_advance(p)->line);
    node->u.operand = jinja_parse_tuple(p, 0);
    node->line = node->u.operand->line;
    jinja_node_adopt(p, node, node->u.operand);
    jinja_expect(p, JINJA_T_VARIABLE_END, "end of print statement");
    return node;
}

/* Text, variables and statements up to a statement that `ends` names; NULL: up to the end. */
static void parse_until(struct jinja_parser *p, struct jinja_nodes *body, const struct ends *ends)
{
    jinja_descend(p);
    for (;;) {
        const struct jinja_token *t = jinja_peek(p);
        struct jinja_node *node;
        if (t->type == JINJA_T_EOF) break;
        if (t->type == JINJA_T_DATA) {
            node = jinja_node_new(p, JINJA_DATA, jinja_advance(p)->line);
            node->u.data = t->text;
        } else if (t->type == JINJA_T_VARIABLE_BEGIN) {
            node = parse_variable(p);
        } else {
            jinja_advance(p);
            if (ends && at_end(p, ends)) break;
            node = parse_statement(p, ends);
            jinja_expect(p, JINJA_T_BLOCK_END, "end of statement block");
        }
        if (node) jinja_nodes_add(p->r, body, node);
    }
    jinja_ascend(p);
}

/* The rest of the opening statement and the body; stops at the name that ends it. */
static void parse_body(struct jinja_parser *p, struct jinja_node *owner, struct jinja_nodes *body,
                       const struct ends *ends)
{
    jinja_skip(p, JINJA_T_COLON);
    jinja_expect(p, JINJA_T_BLOCK_END, "end of statement block");
    parse_until(p, body, ends);
    if (jinja_peek(p)->type == JINJA_T_EOF) fail_tag(p, ends, NULL);
    adopt_all(p, owner, body);
}

/* The same for a body with one possible end, which is skipped. */
static void parse_whole_body(struct jinja_parser *p, struct jinja_node *owner,
                             struct jinja_nodes *body, const char *end)
{
    struct ends ends = {{end}};
    parse_body(p, owner, body, &ends);
    jinja_advance(p);
}

/* ---- targets ------------------------------------------------------------------------------- */

/* Names, tuples of targets and attributes of namespaces can be assigned to. */
static void make_target(struct jinja_parser *p, struct jinja_node *node)
{
    if (node->kind == JINJA_NAME) {
        node->u.name.store = true;
    } else if (node->kind == JINJA_TUPLE_EXPR) {
        for (size_t i = 0; i < node->u.seq.n; i++)
            make_target(p, node->u.seq.all[i]);
    } else if (node->kind != JINJA_NSREF) {
        static const char *const what[] = {
            [JINJA_CONST] = "const", [JINJA_LIST_EXPR] = "list", [JINJA_DICT_EXPR] = "dict"};
        const char *kind = node->kind <= JINJA_DICT_EXPR ? what[node->kind] : NULL;
        jinja_parse_fail(p, node->line, "can't assign to '%s'", kind ? kind : "expression");
    }
}

static struct jinja_node *parse_target(struct jinja_parser *p, unsigned flags)
{
    struct jinja_node *node = jinja_parse_tuple(p, JINJA_TUPLE_SIMPLE | flags);
    make_target(p, node);
    return node;
}

/* A name that is being defined: a macro, a parameter. */
static struct jinja_node *parse_new_name(struct jinja_parser *p)
{
    const struct jinja_token *t = jinja_expect(p, JINJA_T_NAME, "name");
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (jinja_str_is(t->text, reserved[i]))
            jinja_parse_fail(p, t->line, "can't assign to 'name'");
    struct jinja_node *node = jinja_node_new(p, JINJA_NAME, t->line);
    node->u.name.name = t->text;
    node->u.name.text = jinja_copy(p->r, t->text->s, t->text->len);
    node->u.name.store = true;
    return node;
}

/* ---- statements ---------------------------------------------------------------------------- */

/* set targets = values, or a block: set target | filters ... endset */
static struct jinja_node *parse_set(struct jinja_parser *p, int line)
{
    struct jinja_node *node = jinja_node_new(p, JINJA_SET, line);
    node->u.set.target = parse_target(p, JINJA_TUPLE_NAMESPACE);
    jinja_node_adopt(p, node, node->u.set.target);
    if (jinja_skip(p, JINJA_T_ASSIGN)) {
        node->u.set.value = jinja_parse_tuple(p, 0);
        jinja_node_adopt(p, node, node->u.set.value);
        return node;
    }
    node->kind = JINJA_SET_BLOCK;
    node->u.set.filter = jinja_parse_filters(p, NULL, false);
    if (node->u.set.filter) jinja_node_adopt(p, node, node->u.set.filter);
    parse_whole_body(p, node, &node->u.set.body, "endset");
    return node;
}

/* for target in iter [ if test ] [ recursive ] ... [ else ... ] endfor */
static struct jinja_node *parse_for(struct jinja_parser *p, int line)
{
    static const struct ends ends = {{"endfor", "else"}};
    struct jinja_node *node = jinja_node_new(p, JINJA_FOR, line);
    struct jinja_for *loop = node->u.loop = JINJA_NEW(p->r, struct jinja_for);
    loop->target = parse_target(p, 0);
    if (!jinja_skip_name(p, "in"))
        jinja_parse_fail(p, jinja_peek(p)->line, "expected token 'in', got '%s'",
                         jinja_token_name(jinja_peek(p), p->r));
    loop->iter = jinja_parse_tuple(p, JINJA_TUPLE_NO_COND);
    if (jinja_skip_name(p, "if")) loop->test = jinja_parse_expression(p, true);
    loop->recursive = jinja_skip_name(p, "recursive");
    jinja_node_adopt(p, node, loop->target);
    jinja_node_adopt(p, node, loop->iter);
    if (loop->test) jinja_node_adopt(p, node, loop->test);
    parse_body(p, node, &loop->body, &ends);
    if (jinja_skip_name(p, "endfor")) return node;
    jinja_advance(p);
    parse_whole_body(p, node, &loop->otherwise, "endfor");
    return node;
}

static struct jinja_branch *add_branch(struct jinja_parser *p, struct jinja_node *node)
{
    size_t n = node->u.cond_block.n_branches, cap = node->u.cond_block.cap_branches;
    if (n == cap) {
        size_t more = cap ? cap * 2 : 1;
        node->u.cond_block.branches =
            jinja_grow(p->r, node->u.cond_block.branches, cap * sizeof(struct jinja_branch),
                       more * sizeof(struct jinja_branch));
        node->u.cond_block.cap_branches = more;
    }
    struct jinja_branch *b = &node->u.cond_block.branches[n];
    *b = (struct jinja_branch){0};
    node->u.cond_block.n_branches++;
    return b;
}

/* if test ... { elif test ... } [ else ... ] endif */
static struct jinja_node *parse_if(struct jinja_parser *p, int line)
{
    static const struct ends ends = {{"elif", "else", "endif"}};
    struct jinja_node *node = jinja_node_new(p, JINJA_IF, line);
    do {
        struct jinja_node *test = jinja_parse_tuple(p, JINJA_TUPLE_NO_COND);
        struct jinja_branch *b = add_branch(p, node);
        b->test = test;
        jinja_node_adopt(p, node, test);
        parse_body(p, node, &b->body, &ends);
    } while (jinja_skip_name(p, "elif"));
    if (jinja_skip_name(p, "else"))
        parse_whole_body(p, node, &node->u.cond_block.otherwise, "endif");
    else
        jinja_advance(p);
    return node;
}

/* with target = value { , target = value } ... endwith */
static struct jinja_node *parse_with(struct jinja_parser *p, int line)
{
    struct jinja_node *node = jinja_node_new(p, JINJA_WITH, line);
    while (jinja_peek(p)->type != JINJA_T_BLOCK_END) {
        if (node->u.scoped.targets.n) jinja_expect(p, JINJA_T_COMMA, ",");
        struct jinja_node *target = parse_target(p, 0);
        jinja_expect(p, JINJA_T_ASSIGN, "=");
        struct jinja_node *value = jinja_parse_expression(p, true);
        jinja_nodes_add(p->r, &node->u.scoped.targets, target);
        jinja_nodes_add(p->r, &node->u.scoped.values, value);
    }
    adopt_all(p, node, &node->u.scoped.targets);
    adopt_all(p, node, &node->u.scoped.values);
    parse_whole_body(p, node, &node->u.scoped.body, "endwith");
    return node;
}

/* (a, b=1, ...) */
static void parse_signature(struct jinja_parser *p, struct jinja_node *owner,
                            struct jinja_macro_code *code)
{
    jinja_expect(p, JINJA_T_LPAREN, "(");
    while (jinja_peek(p)->type != JINJA_T_RPAREN) {
        if (code->params.n) jinja_expect(p, JINJA_T_COMMA, ",");
        struct jinja_node *param = parse_new_name(p);
        param->u.name.param = true;
        for (size_t i = 0; i < code->params.n; i++)
            if (jinja_str_equal(code->params.all[i]->u.name.name, param->u.name.name))
                jinja_parse_fail(p, param->line, "duplicate argument '%s'", param->u.name.text);
        if (jinja_skip(p, JINJA_T_ASSIGN)) {
            struct jinja_node *value = jinja_parse_expression(p, true);
            jinja_nodes_add(p->r, &code->defaults, value);
            jinja_node_adopt(p, owner, value);
        } else if (code->defaults.n) {
            jinja_parse_fail(p, jinja_peek(p)->line,
                             "non-default argument follows default argument");
        }
        jinja_nodes_add(p->r, &code->params, param);
    }
    jinja_advance(p);
}

/* macro name(signature) ... endmacro */
static struct jinja_node *parse_macro(struct jinja_parser *p, int line)
{
    struct jinja_node *node = jinja_node_new(p, JINJA_MACRO_DEF, line);
    struct jinja_macro_code *code = node->u.macro.code = JINJA_NEW(p->r, struct jinja_macro_code);
    code->name = parse_new_name(p)->u.name.name;
    parse_signature(p, node, code);
    parse_whole_body(p, node, &code->body, "endmacro");
    return node;
}

/* call [ (signature) ] callee(arguments) ... endcall */
static struct jinja_node *parse_call_block(struct jinja_parser *p, int line)
{
    struct jinja_node *node = jinja_node_new(p, JINJA_CALL_BLOCK, line);
    struct jinja_macro_code *code = node->u.macro.code = JINJA_NEW(p->r, struct jinja_macro_code);
    if (jinja_peek(p)->type == JINJA_T_LPAREN) parse_signature(p, node, code);
    node->u.macro.call = jinja_parse_expression(p, true);
    jinja_node_adopt(p, node, node->u.macro.call);
    if (node->u.macro.call->kind != JINJA_CALL) jinja_parse_fail(p, line, "expected call");
    parse_whole_body(p, node, &code->body, "endcall");
    return node;
}

/* filter name [ (arguments) ] { | ... } ... endfilter */
static struct jinja_node *parse_filter_block(struct jinja_parser *p, int line)
{
    struct jinja_node *node = jinja_node_new(p, JINJA_FILTER_BLOCK, line);
    node->u.scoped.filter = jinja_parse_filters(p, NULL, true);
    jinja_node_adopt(p, node, node->u.scoped.filter);
    parse_whole_body(p, node, &node->u.scoped.body, "endfilter");
    return node;
}

/* print a, b: each is a variable of its own; wrapped into a scope-less "if true". */
static struct jinja_node *parse_print(struct jinja_parser *p, int line)
{
    struct jinja_node *node = jinja_node_new(p, JINJA_IF, line);
    while (jinja_peek(p)->type != JINJA_T_BLOCK_END) {
        if (node->u.cond_block.otherwise.n) jinja_expect(p, JINJA_T_COMMA, ",");
        struct jinja_node *out = jinja_node_new(p, JINJA_OUTPUT, line);
        out->u.operand = jinja_parse_expression(p, true);
        jinja_node_adopt(p, out, out->u.operand);
        jinja_nodes_add(p->r, &node->u.cond_block.otherwise, out);
    }
    adopt_all(p, node, &node->u.cond_block.otherwise);
    return node;
}

/* In the reference a generation block marks words for training; here it only renders. */
static struct jinja_node *parse_generation(struct jinja_parser *p, int line)
{
    struct jinja_node *node = jinja_node_new(p, JINJA_SCOPE, line);
    node->u.scoped.detached = true;
    parse_whole_body(p, node, &node->u.scoped.body, "endgeneration");
    return node;
}

/* Switched off it is what holds anyway; switched on it is not supported. */
static struct jinja_node *parse_autoescape(struct jinja_parser *p, int line)
{
    struct jinja_node *node = jinja_node_new(p, JINJA_SCOPE, line);
    struct jinja_node *on = jinja_parse_expression(p, true);
    if (on->kind != JINJA_CONST || jinja_truth(on->u.value))
        jinja_parse_fail(p, line, "'autoescape' is not supported in chat templates");
    parse_whole_body(p, node, &node->u.scoped.body, "endautoescape");
    return node;
}

static struct jinja_node *parse_loop_control(struct jinja_parser *p, int line)
{
    bool is_break = strcmp(p->tags[p->n_tags - 1], "break") == 0;
    return jinja_node_new(p, is_break ? JINJA_BREAK : JINJA_CONTINUE, line);
}

/* Statements of templates that consist of several files. */
static struct jinja_node *refuse(struct jinja_parser *p, int line)
{
    jinja_parse_fail(p, line, "'%s' is not supported in chat templates", p->tags[p->n_tags - 1]);
}

static const struct {
    const char *name;
    struct jinja_node *(*parse)(struct jinja_parser *p, int line);
} statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"generation", parse_generation},
    {"break", parse_loop_control},
    {"continue", parse_loop_control},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"print", parse_print},
    {"autoescape", parse_autoescape},
    {"block", refuse},
    {"extends", refuse},
    {"include", refuse},
    {"import", refuse},
    {"from", refuse},
};

static void push_tag(struct jinja_parser *p, const char *tag)
{
    if (p->n_tags == p->cap_tags) {
        size_t cap = p->cap_tags ? p->cap_tags * 2 : 16;
        p->tags = jinja_grow(p->r, p->tags, p->cap_tags * sizeof(*p->tags), cap * sizeof(*p->tags));
        p->cap_tags = cap;
    }
    p->tags[p->n_tags++] = tag;
}

/* A tag by its name; `ends` are the tags that would have closed what is around it. */
static struct jinja_node *parse_statement(struct jinja_parser *p, const struct ends *ends)
{
    const struct jinja_token *t = jinja_peek(p);
    if (t->type != JINJA_T_NAME) jinja_parse_fail(p, t->line, "tag name expected");
    for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
        if (!jinja_str_is(t->text, statements[i].name)) continue;
        jinja_advance(p);
        push_tag(p, statements[i].name);
        struct jinja_node *node = statements[i].parse(p, t->line);
        p->n_tags--;
        return node;
    }
    fail_tag(p, ends, jinja_token_name(t, p->r));
}

void jinja_parse(struct jinja_run *r, const char *source, size_t len, struct jinja_tree *ret)
{
    struct jinja_parser p = {.r = r};
    *ret = (struct jinja_tree){0};
    jinja_lex(r, source, len, &p.tokens);
    parse_until(&p, &ret->body, NULL);
    r->line = 0;
    jinja_resolve_names(r, ret);
    r->line = 0;
}
