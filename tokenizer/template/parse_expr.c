/* SPDX-License-Identifier: MIT */
/*
 * The expression half of the template parser: recursive descent, one function per level of
 * precedence, from the conditional expression down to names and literals. The grammar is the
 * reference's; what looks odd here (a unary minus that binds tighter than a filter, tests without
 * parentheses) is so there.
 */
#include "tokenizer/template/parser.h"

static struct jinja_node *parse_or(struct jinja_cursor *c);
static struct jinja_node *parse_unary(struct jinja_cursor *c, bool with_filter);
static struct jinja_node *parse_primary(struct jinja_cursor *c, bool with_namespace);
static struct jinja_node *parse_postfix(struct jinja_cursor *c, struct jinja_node *node);

static int type_of(const struct jinja_cursor *c)
{
    return jinja_peek(c)->type;
}

static int line_of(const struct jinja_cursor *c)
{
    return jinja_peek(c)->line;
}

static struct jinja_node *new_binary(struct jinja_cursor *c, enum jinja_kind kind, int line,
                                     struct jinja_node *left, struct jinja_node *right)
{
    struct jinja_node *node = jinja_node_new(c, kind, line);
    node->u.binary.left = jinja_node_adopt(c, node, left);
    node->u.binary.right = jinja_node_adopt(c, node, right);
    return node;
}

static struct jinja_node *new_unary(struct jinja_cursor *c, enum jinja_kind kind, int line,
                                    struct jinja_node *operand)
{
    struct jinja_node *node = jinja_node_new(c, kind, line);
    node->u.operand = jinja_node_adopt(c, node, operand);
    return node;
}

static struct jinja_node *new_const(struct jinja_cursor *c, int line, struct jinja_value v)
{
    struct jinja_node *node = jinja_node_new(c, JINJA_CONST, line);
    node->u.value = v;
    return node;
}

/* ---- operators, loosest first -------------------------------------------------------------- */

/* or { 'if' or [ 'else' cond ] }: without an else the value is undefined. */
static struct jinja_node *parse_cond(struct jinja_cursor *c)
{
    int line = line_of(c);
    struct jinja_node *node = parse_or(c);
    while (jinja_skip_name(c, "if")) {
        struct jinja_node *cond = jinja_node_new(c, JINJA_COND, line);
        cond->u.cond.test = jinja_node_adopt(c, cond, parse_or(c));
        cond->u.cond.yes = jinja_node_adopt(c, cond, node);
        if (jinja_skip_name(c, "else")) {
            jinja_descend(c);
            cond->u.cond.no = jinja_node_adopt(c, cond, parse_cond(c));
            jinja_ascend(c);
        }
        node = cond;
        line = line_of(c);
    }
    return node;
}

/* Every nested expression passes here, so this is where the depth of the descent is counted. */
struct jinja_node *jinja_parse_expression(struct jinja_cursor *c, bool with_cond)
{
    jinja_descend(c);
    struct jinja_node *node = with_cond ? parse_cond(c) : parse_or(c);
    jinja_ascend(c);
    return node;
}

static struct jinja_node *parse_sum(struct jinja_cursor *c);

/* An operator of comparison, 'in' or 'not in'; the latter needs a look past the 'not'. 0: none. */
static int next_compare_op(struct jinja_cursor *c)
{
    static const int ops[] = {JINJA_T_EQ, JINJA_T_NE, '<', JINJA_T_LTEQ, '>', JINJA_T_GTEQ};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (jinja_skip(c, ops[i])) return ops[i];
    if (jinja_skip_name(c, "in")) return JINJA_IN;
    const struct jinja_token *next = jinja_look(c);
    if (!jinja_at_name(c, "not") || next->type != JINJA_T_NAME || !jinja_str_is(next->text, "in"))
        return 0;
    jinja_advance(c);
    jinja_advance(c);
    return JINJA_NOT_IN;
}

/* sum { op sum }: a chain compares neighbours, so it is one node and not nested ones. */
static struct jinja_node *parse_compare(struct jinja_cursor *c)
{
    int line = line_of(c), op;
    struct jinja_node *left = parse_sum(c), *node = NULL;
    for (size_t n = 0; (op = next_compare_op(c)); n++) {
        if (!node) {
            node = jinja_node_new(c, JINJA_COMPARE, line);
            jinja_node_adopt(c, node, left);
        }
        node->u.compare.ops = jinja_room(c->r, node->u.compare.ops, n, &node->u.compare.cap_ops,
                                         sizeof(*node->u.compare.ops));
        node->u.compare.ops[n] = op;
        jinja_node_adopt(c, node, parse_sum(c));
    }
    return node ? node : left;
}

/* { 'not' } compare: 'not' binds looser than comparison, tighter than 'and'. */
static struct jinja_node *parse_not(struct jinja_cursor *c)
{
    if (!jinja_at_name(c, "not")) return parse_compare(c);
    int line = jinja_advance(c)->line;
    jinja_descend(c);
    struct jinja_node *node = new_unary(c, JINJA_NOT, line, parse_not(c));
    jinja_ascend(c);
    return node;
}

/* and { 'or' and }, where `and` is not { 'and' not } */
static struct jinja_node *parse_logic(struct jinja_cursor *c, enum jinja_kind kind)
{
    int line = line_of(c);
    bool is_or = kind == JINJA_OR;
    struct jinja_node *left = is_or ? parse_logic(c, JINJA_AND) : parse_not(c);
    while (jinja_skip_name(c, is_or ? "or" : "and")) {
        left = new_binary(c, kind, line, left, is_or ? parse_logic(c, JINJA_AND) : parse_not(c));
        line = line_of(c);
    }
    return left;
}

static struct jinja_node *parse_or(struct jinja_cursor *c)
{
    return parse_logic(c, JINJA_OR);
}

/* An operator token and what it means; a level of precedence is a table of them. */
struct level {
    int token;
    enum jinja_op op;
};

/* Left-associative operators of one level, on operands of the next. */
static struct jinja_node *parse_level(struct jinja_cursor *c, const struct level *ops, size_t n,
                                      struct jinja_node *(*operand)(struct jinja_cursor *))
{
    int line = line_of(c);
    struct jinja_node *left = operand(c);
    for (size_t i = 0; i < n;) {
        if (!jinja_skip(c, ops[i].token)) {
            i++;
            continue;
        }
        if (ops[i].op == JINJA_MOD && left->kind == JINJA_CONST &&
            jinja_is(left->u.value, JINJA_STR))
            jinja_raise_at(c->r, line, "'%%' on a string is not supported in chat templates");
        struct jinja_node *node = new_binary(c, JINJA_BINARY, line, left, operand(c));
        node->u.binary.op = ops[i].op;
        left = node;
        line = line_of(c);
        i = 0;
    }
    return left;
}

/* An operand of a product; powers, which bind tighter, and division are left out. */
static struct jinja_node *parse_factor(struct jinja_cursor *c)
{
    struct jinja_node *node = parse_unary(c, true);
    int op = type_of(c);
    if (op == JINJA_T_POW || op == '/' || op == JINJA_T_FLOORDIV)
        jinja_raise_at(c->r, line_of(c), "the operator '%s' is not supported in chat templates",
                       jinja_token_name(jinja_peek(c), c->r));
    return node;
}

/* factor { ('*' | '%') factor } */
static struct jinja_node *parse_product(struct jinja_cursor *c)
{
    static const struct level ops[] = {{'*', JINJA_MUL}, {'%', JINJA_MOD}};
    return parse_level(c, ops, 2, parse_factor);
}

/* product { '~' product }: between sums and products, so 1 + 2 ~ 3 is 1 + '23'. */
static struct jinja_node *parse_concat(struct jinja_cursor *c)
{
    int line = line_of(c);
    struct jinja_node *first = parse_product(c);
    if (type_of(c) != '~') return first;
    struct jinja_node *node = jinja_node_new(c, JINJA_CONCAT, line);
    jinja_node_adopt(c, node, first);
    while (jinja_skip(c, '~'))
        jinja_node_adopt(c, node, parse_product(c));
    return node;
}

/* concat { ('+' | '-') concat } */
static struct jinja_node *parse_sum(struct jinja_cursor *c)
{
    static const struct level ops[] = {{'+', JINJA_ADD}, {'-', JINJA_SUB}};
    return parse_level(c, ops, 2, parse_concat);
}

/* ---- calls, filters, tests ----------------------------------------------------------------- */

/* name '=' expression; the name and the sign are still ahead. */
static void add_keyword(struct jinja_cursor *c, struct jinja_node *owner, struct jinja_call *call)
{
    const struct jinja_token *key = jinja_advance(c);
    jinja_advance(c);
    for (size_t i = 0; i < call->kwargs.n; i++)
        if (jinja_str_equal(call->keys[i], key->text))
            jinja_raise_at(c->r, key->line, "keyword argument repeated: %s",
                           jinja_token_name(key, c->r));
    size_t n = call->kwargs.n;
    struct jinja_node *value = jinja_parse_expression(c, true);
    call->keys =
        jinja_grow(c->r, call->keys, n * sizeof(*call->keys), (n + 1) * sizeof(*call->keys));
    call->keys[n] = key->text;
    jinja_nodes_add(c->r, &call->kwargs, jinja_node_adopt(c, owner, value));
}

/* One argument of a call; positional ones come first. */
static void parse_argument(struct jinja_cursor *c, struct jinja_node *owner,
                           struct jinja_call *call, int line)
{
    bool keyword = type_of(c) == JINJA_T_NAME && jinja_look(c)->type == '=';
    if (type_of(c) == '*' || type_of(c) == JINJA_T_POW)
        jinja_raise_at(c->r, line, "arguments with '*' are not supported in chat templates");
    if (!keyword && call->kwargs.n > 0) {
        jinja_raise_at(c->r, line, "invalid syntax for function call expression");
    } else if (keyword) {
        add_keyword(c, owner, call);
    } else {
        struct jinja_node *arg = jinja_parse_expression(c, true);
        jinja_nodes_add(c->r, &call->args, jinja_node_adopt(c, owner, arg));
    }
}

static void parse_call_args(struct jinja_cursor *c, struct jinja_node *owner,
                            struct jinja_call *call)
{
    int line = jinja_expect(c, '(', "(")->line;
    bool comma = false;
    while (type_of(c) != ')') {
        if (comma) {
            jinja_expect(c, ',', ",");
            if (type_of(c) == ')') break;
        }
        parse_argument(c, owner, call, line);
        comma = true;
    }
    jinja_advance(c);
}

/* callee '(' arguments ')' */
static struct jinja_node *parse_call(struct jinja_cursor *c, struct jinja_node *callee)
{
    struct jinja_node *node = jinja_node_new(c, JINJA_CALL, line_of(c));
    node->u.call.callee = jinja_node_adopt(c, node, callee);
    parse_call_args(c, node, &node->u.call.args);
    return node;
}

/* A name of a filter or test: name { . name } */
static const struct jinja_str *parse_dotted(struct jinja_cursor *c, int *ret_line)
{
    const struct jinja_token *t = jinja_expect(c, JINJA_T_NAME, "name");
    const struct jinja_str *name = t->text;
    *ret_line = t->line;
    struct jinja_str dot = JINJA_TEXT(".");
    while (jinja_skip(c, '.')) {
        name = jinja_str_concat(c->r, name, &dot);
        name = jinja_str_concat(c->r, name, jinja_expect(c, JINJA_T_NAME, "name")->text);
    }
    return name;
}

/*
 * name [ '(' arguments ')' ]; the bar has been read. The filter itself is looked up by scope.c.
 */
static struct jinja_node *parse_filter(struct jinja_cursor *c, struct jinja_node *subject)
{
    struct jinja_node *node = jinja_node_new(c, JINJA_FILTER, 0);
    node->u.apply.name = parse_dotted(c, &node->line);
    node->u.apply.subject = jinja_node_adopt(c, node, subject);
    if (type_of(c) == '(') parse_call_args(c, node, &node->u.apply.args);
    return node;
}

struct jinja_node *jinja_parse_filters(struct jinja_cursor *c, struct jinja_node *subject,
                                       bool inline_)
{
    if (inline_) subject = parse_filter(c, subject);
    while (jinja_skip(c, '|'))
        subject = parse_filter(c, subject);
    return subject;
}

/* True if an argument without parentheses follows a test's name. */
static bool at_bare_argument(struct jinja_cursor *c)
{
    switch (type_of(c)) {
    case JINJA_T_NAME:
        return !jinja_at_name(c, "else") && !jinja_at_name(c, "or") && !jinja_at_name(c, "and");
    case JINJA_T_STRING:
    case JINJA_T_NUMBER:
    case '[':
    case '{': return true;
    default: return false;
    }
}

/* 'is' [ 'not' ] name [ argument ]: x is divisibleby 3 needs no parentheses. */
static struct jinja_node *parse_test(struct jinja_cursor *c, struct jinja_node *subject)
{
    int line = jinja_advance(c)->line, name_line;
    bool negated = jinja_skip_name(c, "not");
    struct jinja_node *node = jinja_node_new(c, JINJA_TEST, line);
    node->u.apply.name = parse_dotted(c, &name_line);
    node->u.apply.subject = jinja_node_adopt(c, node, subject);
    if (type_of(c) == '(') {
        parse_call_args(c, node, &node->u.apply.args);
    } else if (at_bare_argument(c)) {
        if (jinja_at_name(c, "is"))
            jinja_raise_at(c->r, line, "You cannot chain multiple tests with is");
        struct jinja_node *arg = parse_postfix(c, parse_primary(c, false));
        jinja_nodes_add(c->r, &node->u.apply.args.args, jinja_node_adopt(c, node, arg));
    }
    return negated ? new_unary(c, JINJA_NOT, line, node) : node;
}

/*
 * { '|' filter | 'is' test | call }: what may follow an operand and applies to all of it, sign
 * included.
 */
static struct jinja_node *parse_filter_expr(struct jinja_cursor *c, struct jinja_node *node)
{
    for (;;) {
        if (jinja_skip(c, '|'))
            node = parse_filter(c, node);
        else if (jinja_at_name(c, "is"))
            node = parse_test(c, node);
        else if (type_of(c) == '(')
            node = parse_call(c, node);
        else
            return node;
    }
}

/* ---- subscripts ---------------------------------------------------------------------------- */

static struct jinja_node *parse_slice_part(struct jinja_cursor *c, struct jinja_node *slice)
{
    if (type_of(c) == ':' || type_of(c) == ']' || type_of(c) == ',') return NULL;
    return jinja_node_adopt(c, slice, jinja_parse_expression(c, true));
}

/* An index, or start:stop:step with any of them left out. */
static struct jinja_node *parse_subscribed(struct jinja_cursor *c)
{
    int line = line_of(c);
    struct jinja_node *start = NULL;
    if (type_of(c) != ':') {
        start = jinja_parse_expression(c, true);
        if (type_of(c) != ':') return start;
    }
    jinja_advance(c);
    struct jinja_node *slice = jinja_node_new(c, JINJA_SLICE, line);
    slice->u.slice.start = jinja_node_adopt(c, slice, start);
    slice->u.slice.stop = parse_slice_part(c, slice);
    if (jinja_skip(c, ':')) slice->u.slice.step = parse_slice_part(c, slice);
    return slice;
}

/* '.' name is an attribute, '.' integer an item. */
static struct jinja_node *parse_dot(struct jinja_cursor *c, struct jinja_node *object)
{
    int line = jinja_advance(c)->line;
    const struct jinja_token *attr = jinja_advance(c);
    if (attr->type == JINJA_T_NUMBER)
        return new_binary(c, JINJA_GETITEM, line, object, new_const(c, attr->line, attr->number));
    if (attr->type != JINJA_T_NAME) jinja_raise_at(c->r, attr->line, "expected name or number");
    struct jinja_node *node = jinja_node_new(c, JINJA_GETATTR, line);
    node->u.getattr.object = jinja_node_adopt(c, node, object);
    node->u.getattr.name = jinja_from_str(attr->text);
    return node;
}

/* '[' index { ',' index } ']': several make a tuple, in which slices have no place. */
static struct jinja_node *parse_bracket(struct jinja_cursor *c, struct jinja_node *object)
{
    int line = jinja_advance(c)->line;
    struct jinja_node *tuple = jinja_node_new(c, JINJA_TUPLE_EXPR, line);
    while (type_of(c) != ']') {
        if (tuple->below.n) jinja_expect(c, ',', ",");
        jinja_node_adopt(c, tuple, parse_subscribed(c));
    }
    jinja_advance(c);
    if (tuple->below.n == 1) return new_binary(c, JINJA_GETITEM, line, object, tuple->below.all[0]);
    for (size_t i = 0; i < tuple->below.n; i++)
        if (tuple->below.all[i]->kind == JINJA_SLICE) jinja_raise_at(c->r, line, "invalid slice");
    return new_binary(c, JINJA_GETITEM, line, object, tuple);
}

/* { '.' ... | '[' ... ']' | '(' ... ')' } */
static struct jinja_node *parse_postfix(struct jinja_cursor *c, struct jinja_node *node)
{
    for (;;) {
        switch (type_of(c)) {
        case '.': node = parse_dot(c, node); break;
        case '[': node = parse_bracket(c, node); break;
        case '(': node = parse_call(c, node); break;
        default: return node;
        }
    }
}

/* ---- the innermost ------------------------------------------------------------------------- */

/* { '-' | '+' } primary postfix; filters apply to the signed value: -1|abs is 1. */
static struct jinja_node *parse_unary(struct jinja_cursor *c, bool with_filter)
{
    int line = line_of(c);
    struct jinja_node *node;
    if (type_of(c) == '-' || type_of(c) == '+') {
        enum jinja_kind kind = jinja_advance(c)->type == '-' ? JINJA_NEG : JINJA_POS;
        jinja_descend(c);
        node = new_unary(c, kind, line, parse_unary(c, false));
        jinja_ascend(c);
    } else {
        node = parse_primary(c, false);
    }
    node = parse_postfix(c, node);
    return with_filter ? parse_filter_expr(c, node) : node;
}

/* '[' { expression ',' } ']' or '{' { key ':' value ',' } '}', a last comma being welcome. */
static struct jinja_node *parse_items(struct jinja_cursor *c, enum jinja_kind kind, int close)
{
    struct jinja_node *node = jinja_node_new(c, kind, jinja_advance(c)->line);
    while (type_of(c) != close) {
        if (node->below.n) jinja_expect(c, ',', ",");
        if (type_of(c) == close) break;
        jinja_node_adopt(c, node, jinja_parse_expression(c, true));
        if (kind == JINJA_LIST_EXPR) continue;
        jinja_expect(c, ':', ":");
        jinja_node_adopt(c, node, jinja_parse_expression(c, true));
    }
    jinja_advance(c);
    return node;
}

/* A name, a word that is a constant, or (in targets) an attribute of a namespace. */
static struct jinja_node *parse_name(struct jinja_cursor *c, bool with_namespace)
{
    static const struct {
        const char *name;
        enum jinja_type type;
        bool value;
    } words[] = {{"true", JINJA_BOOL, true},   {"True", JINJA_BOOL, true},
                 {"false", JINJA_BOOL, false}, {"False", JINJA_BOOL, false},
                 {"none", JINJA_NONE, false},  {"None", JINJA_NONE, false}};
    const struct jinja_token *t = jinja_advance(c);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (jinja_str_is(t->text, words[i].name))
            return new_const(c, t->line,
                             words[i].type == JINJA_NONE ? jinja_none()
                                                         : jinja_bool(words[i].value));
    if (with_namespace && jinja_skip(c, '.')) {
        struct jinja_node *ref = jinja_node_new(c, JINJA_NSREF, t->line);
        ref->u.nsref.name = t->text;
        ref->u.nsref.attr = jinja_from_str(jinja_expect(c, JINJA_T_NAME, "name")->text);
        return ref;
    }
    struct jinja_node *node = jinja_node_new(c, JINJA_NAME, t->line);
    node->u.name.name = t->text;
    node->u.name.text = jinja_copy(c->r, t->text->s, t->text->len);
    return node;
}

/* Neighbouring string literals are one. */
static struct jinja_node *parse_string(struct jinja_cursor *c)
{
    const struct jinja_token *t = jinja_advance(c);
    const struct jinja_str *text = t->text;
    while (type_of(c) == JINJA_T_STRING)
        text = jinja_str_concat(c->r, text, jinja_advance(c)->text);
    if (text->tail) { /* a constant must not be appended to by threads that render */
        struct jinja_str *copy = jinja_str_new(c->r, text->s, text->len, JINJA_TRUSTED);
        text = copy;
    }
    return new_const(c, t->line, jinja_from_str(text));
}

static struct jinja_node *parse_primary(struct jinja_cursor *c, bool with_namespace)
{
    const struct jinja_token *t = jinja_peek(c);
    struct jinja_node *node;
    switch (t->type) {
    case JINJA_T_NAME: return parse_name(c, with_namespace);
    case JINJA_T_STRING: return parse_string(c);
    case JINJA_T_NUMBER: return new_const(c, t->line, jinja_advance(c)->number);
    case '(':
        jinja_advance(c);
        node = jinja_parse_tuple(c, JINJA_TUPLE_PAREN);
        jinja_expect(c, ')', ")");
        return node;
    case '[': return parse_items(c, JINJA_LIST_EXPR, ']');
    case '{': return parse_items(c, JINJA_DICT_EXPR, '}');
    default: jinja_raise_at(c->r, t->line, "unexpected '%s'", jinja_token_name(t, c->r));
    }
}

/* Where a tuple without brackets may stop after a comma. */
static bool at_tuple_end(const struct jinja_cursor *c)
{
    int type = type_of(c);
    return type == JINJA_T_VARIABLE_END || type == JINJA_T_BLOCK_END || type == ')';
}

/* expression { ',' expression } [ ',' ]: a tuple once there is a comma, else the one expression. */
struct jinja_node *jinja_parse_tuple(struct jinja_cursor *c, unsigned flags)
{
    struct jinja_node *tuple = jinja_node_new(c, JINJA_TUPLE_EXPR, line_of(c));
    bool is_tuple = false;
    for (;;) {
        if (tuple->below.n) jinja_expect(c, ',', ",");
        if (at_tuple_end(c)) break;
        struct jinja_node *element = NULL;
        jinja_descend(c);
        if (flags & JINJA_TUPLE_SIMPLE)
            element = parse_primary(c, (flags & JINJA_TUPLE_NAMESPACE) != 0);
        else
            element = jinja_parse_expression(c, !(flags & JINJA_TUPLE_NO_COND));
        jinja_ascend(c);
        jinja_node_adopt(c, tuple, element);
        if (type_of(c) != ',') break;
        is_tuple = true;
    }
    if (is_tuple) return tuple;
    if (tuple->below.n) return tuple->below.all[0];
    if (!(flags & JINJA_TUPLE_PAREN))
        jinja_raise_at(c->r, line_of(c), "Expected an expression, got '%s'",
                       jinja_token_name(jinja_peek(c), c->r));
    return tuple;
}
