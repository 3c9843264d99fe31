/* SPDX-License-Identifier: MIT */
/* The types of a tool's parameters; see param_types.h. */
#include "tokenizer/tools/param_types.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/hex.h"
#include "base/json_reader.h"
#include "tokenizer/tok_types.h"

/* Bounds for references that go round, and for schemas that branch into them. */
enum { MAX_DEPTH = 16, MAX_BYTES = 16 << 20, MAX_PARAMS = 4096 };

struct span {
    const char *s;
    size_t n;
};

struct types {
    struct span root;
    size_t read; /* bytes, over all passes */
    struct param *params;
    size_t n;
    int depth; /* of visit_conjunction */
    bool no_memory;
};

/* Gets each member of an object or element of an array (key "") until it returns false. */
typedef bool (*visit_fn)(struct types *t, struct span key, struct span value, void *ctx);

static void visit(struct types *t, struct span text, visit_fn fn, void *ctx)
{
    AUTO(jr_finish) struct jr r = {0};
    char err[128], open = text.n ? text.s[0] : 0, close = open == '{' ? '}' : ']';
    bool more = true;
    if (open != '{' && open != '[') return;
    jr_init(&r, text.s, text.n, JR_NUL, err, sizeof(err));
    jr_open(&r, open);
    while (more && t->read < MAX_BYTES && jr_more(&r, close) > 0) {
        struct span key = {"", 0}, value;
        char name[256];
        if (open == '{') {
            jr_key(&r, &key.s, &key.n);
            if (key.n >= sizeof(name)) key.n = 0; /* not a keyword, and hardly a parameter */
            key.s = memcpy(name, key.s, key.n);
        }
        if (jr_skip(&r, &value.s, &value.n)) break;
        t->read += key.n + value.n + 16;
        more = fn(t, key, value, ctx);
    }
}

static bool is(struct span key, const char *name)
{
    return strlen(name) == key.n && memcmp(key.s, name, key.n) == 0;
}

/* ---- references ---------------------------------------------------------------------------- */

struct lookup {
    struct span key, found;
    size_t index;
};

static bool look_up(struct types *t, struct span key, struct span value, void *ctx)
{
    struct lookup *l = ctx;
    char number[24];
    bool hit = is(l->key, "") ? false : key.n == l->key.n && memcmp(key.s, l->key.s, key.n) == 0;
    if (!key.n && l->key.n < sizeof(number)) { /* an element of an array */
        memcpy(number, l->key.s, l->key.n);
        number[l->key.n] = '\0';
        hit = l->key.n && strtoull(number, NULL, 10) == l->index;
    }
    l->index++;
    if (hit) l->found = value;
    return !hit;
}

/* One token of a JSON pointer in a URI fragment, decoded: ~0, ~1 and %XX. */
static struct span pointer_token(const char **p, const char *end, char *out, size_t size)
{
    size_t n = 0;
    for (; *p < end && **p != '/' && n < size; n++) {
        const char *s = *p;
        if (*s == '~' && end - s > 1) {
            out[n] = s[1] == '1' ? '/' : '~';
            *p += 2;
        } else if (*s == '%' && end - s > 2 && hex_value(s[1]) >= 0 && hex_value(s[2]) >= 0) {
            out[n] = (char)(hex_value(s[1]) << 4 | hex_value(s[2]));
            *p += 3;
        } else {
            out[n] = *(*p)++;
        }
    }
    return (struct span){out, n};
}

/* The schema that a $ref (a JSON string) of the form #/a/b points at; empty if there is none. */
static struct span resolve(struct types *t, struct span ref)
{
    AUTO(jr_finish) struct jr r;
    struct span text, at = t->root, none = {"", 0};
    char err[128], token[256];
    jr_init(&r, ref.s, ref.n, JR_NUL, err, sizeof(err));
    bool local = !jr_string(&r, &text.s, &text.n) && text.n && text.s[0] == '#';
    const char *p = local ? text.s + 1 : "", *end = local ? text.s + text.n : p;
    while (p < end && *p == '/' && at.n) {
        p++;
        struct lookup l = {.key = pointer_token(&p, end, token, sizeof(token)), .found = none};
        visit(t, at, look_up, &l);
        at = l.found;
    }
    return local && p == end ? at : none;
}

/* ---- types --------------------------------------------------------------------------------- */

struct branch {
    unsigned types; /* so far */
    bool all;       /* allOf: what all allow; else what any allows */
    int depth;
};

static unsigned types_of(struct types *t, struct span schema, int depth);

static unsigned type_named(struct span name)
{
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"\"null\"", PARAM_NULL},     {"\"boolean\"", PARAM_BOOLEAN},
                 {"\"number\"", PARAM_NUMBER}, {"\"integer\"", PARAM_NUMBER},
                 {"\"string\"", PARAM_STRING}, {"\"array\"", PARAM_ARRAY},
                 {"\"object\"", PARAM_OBJECT}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (is(name, names[i].name)) return names[i].type;
    return 0;
}

static unsigned type_of_value(struct span value)
{
    switch (value.n ? value.s[0] : 0) {
    case 'n': return PARAM_NULL;
    case 't':
    case 'f': return PARAM_BOOLEAN;
    case '"': return PARAM_STRING;
    case '[': return PARAM_ARRAY;
    case '{': return PARAM_OBJECT;
    }
    return PARAM_NUMBER;
}

static bool add_type(struct types *t, struct span key, struct span value, void *ctx)
{
    (void)t, (void)key;
    *(unsigned *)ctx |= type_named(value);
    return true;
}

static bool add_value(struct types *t, struct span key, struct span value, void *ctx)
{
    (void)t, (void)key;
    *(unsigned *)ctx |= type_of_value(value);
    return true;
}

/* Both must say something for "any of" to be known; one is enough for "all of". */
static unsigned both(unsigned a, unsigned b)
{
    return (a & b & PARAM_ANY) | ((a | b) & PARAM_KNOWN);
}

static unsigned either(unsigned a, unsigned b)
{
    return ((a | b) & PARAM_ANY) | (a & b & PARAM_KNOWN);
}

static bool add_branch(struct types *t, struct span key, struct span value, void *ctx)
{
    struct branch *b = ctx;
    unsigned types = types_of(t, value, b->depth);
    b->types = b->all ? both(b->types, types) : either(b->types, types);
    return true;
}

static unsigned types_of_branches(struct types *t, struct span list, bool all, int depth)
{
    struct branch b = {all ? PARAM_ANY : PARAM_KNOWN, all, depth};
    visit(t, list, add_branch, &b);
    return b.types;
}

/* One keyword of a schema: narrows what the others allow. */
static bool add_keyword(struct types *t, struct span key, struct span value, void *ctx)
{
    struct branch *b = ctx;
    unsigned types = PARAM_KNOWN;
    if (is(key, "type") && value.s[0] == '[')
        visit(t, value, add_type, &types);
    else if (is(key, "type"))
        types |= type_named(value);
    else if (is(key, "enum"))
        visit(t, value, add_value, &types);
    else if (is(key, "const"))
        types |= type_of_value(value);
    else if (is(key, "anyOf") || is(key, "oneOf"))
        types = types_of_branches(t, value, false, b->depth);
    else if (is(key, "allOf"))
        types = types_of_branches(t, value, true, b->depth);
    else if (is(key, "$ref"))
        types = types_of(t, resolve(t, value), b->depth);
    else
        return true;
    b->types = both(b->types, types);
    return true;
}

static unsigned types_of(struct types *t, struct span schema, int depth)
{
    struct branch b = {PARAM_ANY, true, depth + 1};
    if (depth < MAX_DEPTH && schema.n && schema.s[0] == '{') visit(t, schema, add_keyword, &b);
    return b.types;
}

/* ---- parameters ---------------------------------------------------------------------------- */

const struct param *param_find(const struct param *params, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (params[i].name_len == len && memcmp(params[i].name, name, len) == 0) return &params[i];
    return NULL;
}

static bool add_param(struct types *t, struct span key, struct span value, void *ctx)
{
    if (t->n == MAX_PARAMS || !key.n) return t->n < MAX_PARAMS;
    if (param_find(t->params, t->n, key.s, key.n)) return true;
    struct param *params = realloc(t->params, (t->n + 1) * sizeof(*params));
    char *name = params ? malloc(key.n) : NULL;
    if (params) t->params = params;
    t->no_memory |= !name;
    if (!name) return false;
    memcpy(name, key.s, key.n);
    t->params[t->n++] = (struct param){.name = name,
                                       .name_len = key.n,
                                       .types = types_of(t, value, 0),
                                       .schema = value.s,
                                       .schema_len = value.n};
    return true;
}

/* Visits the members of the schemas that hold besides one, by allOf and $ref. Returns true. */
static bool visit_conjunction(struct types *t, struct span key, struct span value, visit_fn fn,
                              void *ctx)
{
    if (t->depth == MAX_DEPTH) return true;
    t->depth++;
    if (is(key, "$ref"))
        visit(t, resolve(t, value), fn, ctx);
    else if (is(key, "allOf") || (!key.n && value.s[0] == '{'))
        visit(t, value, fn, ctx);
    t->depth--;
    return true;
}

/* An item of "required": a string, whose escapes are not looked at. */
static bool add_required(struct types *t, struct span key, struct span value, void *ctx)
{
    (void)key, (void)ctx;
    for (size_t i = 0; i < t->n; i++) {
        struct param *p = &t->params[i];
        if (value.n == p->name_len + 2 && !memcmp(value.s + 1, p->name, p->name_len))
            p->required = true;
    }
    return true;
}

static bool find_required(struct types *t, struct span key, struct span value, void *ctx)
{
    if (is(key, "required")) visit(t, value, add_required, ctx);
    return visit_conjunction(t, key, value, find_required, ctx);
}

/* The properties of a schema, wherever its parts have them. */
static bool add_params(struct types *t, struct span key, struct span value, void *ctx)
{
    int depth = *(int *)ctx + 1;
    if (is(key, "properties"))
        visit(t, value, add_param, NULL);
    else if (depth >= MAX_DEPTH)
        return true;
    else if (is(key, "$ref"))
        visit(t, resolve(t, value), add_params, &depth);
    else if (is(key, "allOf") || is(key, "anyOf") || is(key, "oneOf") || !key.n)
        visit(t, value, add_params, &depth);
    return !t->no_memory;
}

static struct span trimmed(const char *s, size_t n)
{
    while (n && strchr(" \t\r\n", *s))
        s++, n--;
    return (struct span){s, n};
}

int param_types(const char *schema, size_t len, struct param **ret, size_t *ret_n)
{
    struct types t = {.root = trimmed(schema, len)};
    int depth = 0;
    visit(&t, t.root, add_params, &depth);
    visit(&t, t.root, find_required, NULL);
    if (t.no_memory) param_types_free(t.params, t.n);
    *ret = t.no_memory ? NULL : t.params;
    *ret_n = t.no_memory ? 0 : t.n;
    return t.no_memory ? TOK_ENOMEM : 0;
}

struct param param_of(const char *schema, size_t len, const char *keyword)
{
    struct types t = {.root = trimmed(schema, len)};
    struct lookup l = {.key = {keyword, strlen(keyword)}, .found = {"", 0}};
    visit(&t, t.root, look_up, &l);
    if (!l.found.n || *l.found.s == '[') l.found = (struct span){"{}", 2};
    return (struct param){
        .types = types_of(&t, l.found, 0), .schema = l.found.s, .schema_len = l.found.n};
}

struct choice {
    enum param_type type;
    struct span found;
    int n;
    bool declares; /* the schema says something of its own about containers */
};

static bool add_choice(struct types *t, struct span key, struct span value, void *ctx)
{
    struct choice *c = ctx;
    (void)key;
    if (!(types_of(t, value, 0) & c->type)) return true;
    c->found = value;
    return ++c->n < 2;
}

static bool find_choice(struct types *t, struct span key, struct span value, void *ctx)
{
    struct choice *c = ctx;
    static const char *const own[] = {
        "properties", "additionalProperties", "required", "items", "minItems", "maxItems"};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        c->declares |= is(key, own[i]);
    if (is(key, "$ref")) c->found = resolve(t, value), c->n++;
    if (is(key, "anyOf") || is(key, "oneOf")) visit(t, value, add_choice, c);
    return true;
}

const char *param_branch(const char *schema, size_t len, enum param_type type, size_t *ret_len)
{
    struct types t = {.root = trimmed(schema, len)};
    struct span at = t.root;
    for (int i = 0; i < MAX_DEPTH; i++) {
        struct choice c = {.type = type};
        visit(&t, at, find_choice, &c);
        if (c.n != 1 || c.declares || !c.found.n) break;
        at = c.found;
    }
    *ret_len = at.n;
    return at.s;
}

void param_types_free(struct param *params, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(params[i].name);
    free(params);
}

/* ---- rules --------------------------------------------------------------------------------- */

const char *const param_rules[] = {"required",
                                   "allOf",
                                   "anyOf",
                                   "oneOf",
                                   "not",
                                   "if",
                                   "enum",
                                   "const",
                                   "patternProperties",
                                   "propertyNames",
                                   "minProperties",
                                   "maxProperties",
                                   "dependentRequired",
                                   "dependentSchemas",
                                   "dependencies",
                                   "prefixItems",
                                   "contains",
                                   "uniqueItems",
                                   "items", /* a list of schemas */
                                   NULL};

struct rules {
    const struct param *params;
    size_t n;
    unsigned found;
};

/* A required name that no property declares cannot be written. */
static bool check_required(struct types *t, struct span key, struct span value, void *ctx)
{
    struct rules *rules = ctx;
    (void)t, (void)key;
    size_t n = value.n > 1 ? value.n - 2 : 0;
    if (!param_find(rules->params, rules->n, value.s + 1, n)) rules->found |= PARAM_RULE_REQUIRED;
    return true;
}

/* Of two declarations of a property only the first is followed. */
static bool check_property(struct types *t, struct span key, struct span value, void *ctx)
{
    struct rules *rules = ctx;
    const struct param *p = param_find(rules->params, rules->n, key.s, key.n);
    if (!p || p->schema != value.s) rules->found |= PARAM_RULE_ALL_OF;
    return true;
}

static bool find_rule(struct types *t, struct span key, struct span value, void *ctx)
{
    struct rules *rules = ctx;
    if (is(key, "required")) visit(t, value, check_required, rules);
    if (is(key, "properties")) visit(t, value, check_property, rules);
    for (unsigned i = 2; param_rules[i]; i++)
        if (is(key, param_rules[i]) && *value.s != 'f' && (!is(key, "items") || *value.s == '['))
            rules->found |= 1u << i;
    return visit_conjunction(t, key, value, find_rule, ctx);
}

unsigned param_rules_of(const char *schema, size_t len, const struct param *params, size_t n)
{
    struct types t = {.root = trimmed(schema, len)};
    struct rules rules = {params, n, 0};
    visit(&t, t.root, find_rule, &rules);
    return rules.found;
}
