/* SPDX-License-Identifier: MIT */
/* The front end of JSON schemas: keywords, goals, and what the whole comes to. See schema.h. */
#include "tokenizer/grammar/schema/goals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/grammar/front.h"
#include "tokenizer/grammar/lexer.h"
#include "tokenizer/grammar/vocab.h"

/* ---- keywords ------------------------------------------------------------------------------ */

/* Required type of a keyword's value; 0: looked at elsewhere. */
enum {
    IS_SCHEMA = 1,
    IS_SCHEMAS = 2, /* an array of them, not empty */
    IS_MAP = 4,     /* an object of schemas */
    IS_NUMBER = 8,
    IS_COUNT = 16,
    IS_STRING = 32,
    IS_NAMES = 64, /* an array of strings */
    IS_BOOLEAN = 128,
    IS_LIST = 256, /* an array of anything */
    IS_TYPE = 512,
    IS_NAME_MAP = 1024, /* an object of arrays of strings */
};

static const struct {
    const char *name;
    uint8_t kw;
    uint16_t shape;
    uint16_t since; /* the draft that brought it; 0: older than those we know */
} keywords[] = {
    /* sorted by name */
    {"$dynamicRef", GRAM_KW_DYNAMIC_REF, 0, 2020},
    {"$recursiveRef", GRAM_KW_DYNAMIC_REF, 0, 2019},
    {"$ref", GRAM_KW_REF, IS_STRING, 0},
    {"additionalItems", GRAM_KW_ADDITIONAL_ITEMS, IS_SCHEMA, 0},
    {"additionalProperties", GRAM_KW_ADDITIONAL_PROPERTIES, IS_SCHEMA, 0},
    {"allOf", GRAM_KW_ALL_OF, IS_SCHEMAS, 0},
    {"anyOf", GRAM_KW_ANY_OF, IS_SCHEMAS, 0},
    {"const", GRAM_KW_CONST, 0, 6},
    {"contains", GRAM_KW_CONTAINS, IS_SCHEMA, 6},
    {"dependencies", GRAM_KW_DEPENDENCIES, IS_MAP | IS_NAME_MAP, 0},
    {"dependentRequired", GRAM_KW_DEPENDENT_REQUIRED, IS_NAME_MAP, 2019},
    {"dependentSchemas", GRAM_KW_DEPENDENT_SCHEMAS, IS_MAP, 2019},
    {"else", GRAM_KW_THEN_ELSE, IS_SCHEMA, 7},
    {"enum", GRAM_KW_ENUM, IS_LIST, 0},
    {"exclusiveMaximum", GRAM_KW_EXCLUSIVE_MAXIMUM, IS_NUMBER | IS_BOOLEAN, 0},
    {"exclusiveMinimum", GRAM_KW_EXCLUSIVE_MINIMUM, IS_NUMBER | IS_BOOLEAN, 0},
    {"format", GRAM_KW_FORMAT, IS_STRING, 0},
    {"if", GRAM_KW_IF, IS_SCHEMA, 7},
    {"items", GRAM_KW_ITEMS, IS_SCHEMA | IS_SCHEMAS, 0},
    {"maxContains", GRAM_KW_CONTAINS_COUNT, IS_COUNT, 2019},
    {"maxItems", GRAM_KW_MAX_ITEMS, IS_COUNT, 0},
    {"maxLength", GRAM_KW_MAX_LENGTH, IS_COUNT, 0},
    {"maxProperties", GRAM_KW_MAX_PROPERTIES, IS_COUNT, 0},
    {"maximum", GRAM_KW_MAXIMUM, IS_NUMBER, 0},
    {"minContains", GRAM_KW_CONTAINS_COUNT, IS_COUNT, 2019},
    {"minItems", GRAM_KW_MIN_ITEMS, IS_COUNT, 0},
    {"minLength", GRAM_KW_MIN_LENGTH, IS_COUNT, 0},
    {"minProperties", GRAM_KW_MIN_PROPERTIES, IS_COUNT, 0},
    {"minimum", GRAM_KW_MINIMUM, IS_NUMBER, 0},
    {"multipleOf", GRAM_KW_MULTIPLE_OF, IS_NUMBER, 0},
    {"not", GRAM_KW_NOT, IS_SCHEMA, 0},
    {"nullable", GRAM_KW_NULLABLE, IS_BOOLEAN, 0},
    {"oneOf", GRAM_KW_ONE_OF, IS_SCHEMAS, 0},
    {"pattern", GRAM_KW_PATTERN, IS_STRING, 0},
    {"patternProperties", GRAM_KW_PATTERN_PROPERTIES, IS_MAP, 0},
    {"prefixItems", GRAM_KW_PREFIX_ITEMS, IS_SCHEMAS, 2020},
    {"properties", GRAM_KW_PROPERTIES, IS_MAP, 0},
    {"propertyNames", GRAM_KW_PROPERTY_NAMES, IS_SCHEMA, 6},
    {"required", GRAM_KW_REQUIRED, IS_NAMES, 0},
    {"then", GRAM_KW_THEN_ELSE, IS_SCHEMA, 7},
    {"type", GRAM_KW_TYPE, IS_TYPE, 0},
    {"unevaluatedItems", GRAM_KW_UNEVALUATED_ITEMS, IS_SCHEMA, 2019},
    {"unevaluatedProperties", GRAM_KW_UNEVALUATED_PROPERTIES, IS_SCHEMA, 2019},
    {"uniqueItems", GRAM_KW_UNIQUE_ITEMS, IS_BOOLEAN, 0},
};

#define N_KEYWORDS (sizeof(keywords) / sizeof(keywords[0]))

static int find_keyword(const struct gram_js *member)
{
    int lo = 0, hi = (int)N_KEYWORDS;

    while (lo < hi) {
        int mid = (lo + hi) / 2;
        size_t n = strlen(keywords[mid].name);
        int order =
            memcmp(keywords[mid].name, member->key, n < member->key_len ? n : member->key_len);
        if (!order) order = (n > member->key_len) - (n < member->key_len);
        if (!order) return mid;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

enum gram_kw gram_kw_of(const struct gram_build *b, const struct gram_js *member)
{
    int i = find_keyword(member);
    return i < 0 || keywords[i].since > b->schema->draft ? GRAM_KW_NONE : keywords[i].kw;
}

static bool is_schema(const struct gram_js *v)
{
    return v->type == GRAM_JS_OBJECT || v->type == GRAM_JS_TRUE || v->type == GRAM_JS_FALSE;
}

static bool is_boolean(const struct gram_js *v)
{
    return v->type == GRAM_JS_TRUE || v->type == GRAM_JS_FALSE;
}

/* Not negative, an integer; its spelling may be 2.0. */
static bool is_count(struct gram_build *b, const struct gram_js *v)
{
    if (v->type != GRAM_JS_NUMBER) return false;
    struct gram_decimal x = gram_decimal_read(b, v->text, v->len);
    return !x.negative && gram_decimal_is_integer(&x);
}

_Noreturn static void wrong_type(struct gram_build *b, const struct gram_js *v, const char *keyword,
                                 const char *wanted)
{
    gram_fail_at(b, v, keyword, "must be %s, is %s.", wanted, gram_js_type_name(v));
}

static void check_names(struct gram_build *b, const struct gram_js *list, const char *keyword)
{
    if (list->type != GRAM_JS_ARRAY) wrong_type(b, list, keyword, "an array of strings");
    for (const struct gram_js *v = list->child; v; v = v->next)
        if (v->type != GRAM_JS_STRING) wrong_type(b, v, keyword, "a string");
}

static void check_map(struct gram_build *b, const struct gram_js *map, const char *keyword,
                      unsigned shape)
{
    if (map->type != GRAM_JS_OBJECT) wrong_type(b, map, keyword, "an object");
    for (const struct gram_js *v = map->child; v; v = v->next) {
        if ((shape & IS_NAME_MAP) && v->type == GRAM_JS_ARRAY)
            check_names(b, v, keyword);
        else if (!(shape & IS_MAP))
            wrong_type(b, v, keyword, "an array of strings");
        else if (!is_schema(v))
            wrong_type(b, v, keyword, "a schema");
    }
}

static void check_schemas(struct gram_build *b, const struct gram_js *list, const char *keyword)
{
    if (list->n == 0 && strcmp(keyword, "items") != 0)
        gram_fail_at(b, list, keyword, "must not be empty.");
    for (const struct gram_js *v = list->child; v; v = v->next)
        if (!is_schema(v)) wrong_type(b, v, keyword, "a schema");
}

static void check_shape(struct gram_build *b, const struct gram_js *v, const char *keyword,
                        unsigned shape)
{
    if (shape & (IS_MAP | IS_NAME_MAP))
        check_map(b, v, keyword, shape);
    else if ((shape & IS_SCHEMAS) && v->type == GRAM_JS_ARRAY)
        check_schemas(b, v, keyword);
    else if ((shape & IS_SCHEMA) && !is_schema(v))
        wrong_type(b, v, keyword, "a schema");
    else if ((shape & IS_SCHEMAS) && !(shape & IS_SCHEMA))
        wrong_type(b, v, keyword, "an array");
    else if (shape & IS_NAMES)
        check_names(b, v, keyword);
    else if ((shape & IS_LIST) && v->type != GRAM_JS_ARRAY)
        wrong_type(b, v, keyword, "an array");
    else if ((shape & IS_STRING) && v->type != GRAM_JS_STRING)
        wrong_type(b, v, keyword, "a string");
    else if (shape & IS_TYPE)
        gram_types_named(b, v);
    else if ((shape & IS_BOOLEAN) && !is_boolean(v) &&
             !((shape & IS_NUMBER) && v->type == GRAM_JS_NUMBER))
        wrong_type(b, v, keyword, shape & IS_NUMBER ? "a number" : "a boolean");
    else if (shape == IS_NUMBER && v->type != GRAM_JS_NUMBER)
        wrong_type(b, v, keyword, "a number");
    else if (shape == IS_COUNT && v->type != GRAM_JS_NUMBER)
        wrong_type(b, v, keyword, "a non-negative integer");
    else if (shape == IS_COUNT && !is_count(b, v))
        gram_fail_at(b, v, keyword, "must be a non-negative integer.");
}

void gram_check_keyword(struct gram_build *b, enum gram_kw kw, struct gram_js *value)
{
    (void)kw;
    if (value->marks & GRAM_MARK_CHECKED) return;
    value->marks |= GRAM_MARK_CHECKED;
    int i = find_keyword(value);
    if (i < 0) return;
    gram_steps(b, 1 + value->n / 8);
    check_shape(b, value, keywords[i].name, keywords[i].shape);
    if (kw == GRAM_KW_ENUM && value->n > GRAM_MAX_ENUM)
        gram_fail_at(b, value, "enum", "%u values; at most %d.", value->n, GRAM_MAX_ENUM);
    if (kw == GRAM_KW_DYNAMIC_REF)
        gram_fail_at(b, value, keywords[i].name, "dynamic references are not supported.");
}

uint64_t gram_count_of(struct gram_build *b, const struct gram_js *value)
{
    struct gram_decimal x = gram_decimal_read(b, value->text, value->len);
    uint64_t n;
    if (!gram_decimal_scaled(&x, 0, &n) || n > INT32_MAX) return GRAM_INFINITE;
    return n;
}

/* ---- types --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t types;
} type_names[] = {
    {"null", GRAM_T_NULL},     {"boolean", GRAM_T_BOOLEAN}, {"integer", GRAM_T_INTEGER},
    {"number", GRAM_T_NUMBER}, {"string", GRAM_T_STRING},   {"array", GRAM_T_ARRAY},
    {"object", GRAM_T_OBJECT},
};

static uint32_t type_named(struct gram_build *b, const struct gram_js *name)
{
    if (name->type != GRAM_JS_STRING) wrong_type(b, name, "type", "a string");
    for (size_t i = 0; i < sizeof(type_names) / sizeof(type_names[0]); i++)
        if (gram_js_text_is(name, type_names[i].name)) return type_names[i].types;
    gram_fail_at(b, name, "type", "%s is not a type.", gram_quote(b, name->text, name->len));
}

uint32_t gram_types_named(struct gram_build *b, const struct gram_js *type)
{
    uint32_t types = 0;

    if (type->type != GRAM_JS_ARRAY) return type_named(b, type);
    for (const struct gram_js *v = type->child; v; v = v->next)
        types |= type_named(b, v);
    return types;
}

uint32_t gram_type_of_value(struct gram_build *b, const struct gram_js *v)
{
    switch (v->type) {
    case GRAM_JS_NULL: return GRAM_T_NULL;
    case GRAM_JS_TRUE:
    case GRAM_JS_FALSE: return GRAM_T_BOOLEAN;
    case GRAM_JS_STRING: return GRAM_T_STRING;
    case GRAM_JS_ARRAY: return GRAM_T_ARRAY;
    case GRAM_JS_OBJECT: return GRAM_T_OBJECT;
    default: {
        struct gram_decimal x = gram_decimal_read(b, v->text, v->len);
        return gram_decimal_is_integer(&x) ? GRAM_T_INTEGER : GRAM_T_FRACTION;
    }
    }
}

/* ---- relaxed keywords ---------------------------------------------------------------------- */

void gram_relax(struct gram_build *b, struct gram_js *value, const char *why)
{
    struct gram_schema *s = b->schema;
    bool annotation = gram_js_key_is(value, "format");

    if (s->level > 1) return; /* nobody asked for it yet */
    if (s->strict && !annotation) {
        const char *keyword =
            gram_text(b, "%.*s", (int)(value->key_len < 60 ? value->key_len : 60), value->key);
        gram_fail_at(b, value, keyword, "%s, which 'strict' forbids.", why);
    }
    if (value->marks & GRAM_MARK_RELAXED) return;
    value->marks |= GRAM_MARK_RELAXED;
    s->relaxed = gram_grow(b, s->relaxed, s->n_relaxed, &s->cap_relaxed, sizeof(*s->relaxed));
    s->relaxed[s->n_relaxed++] = value;
}

static int by_id(const void *x, const void *y)
{
    const struct gram_js *a = *(struct gram_js *const *)x, *b = *(struct gram_js *const *)y;
    return (a->id > b->id) - (a->id < b->id);
}

void gram_schema_relaxed(struct gram_build *b, struct gram_schema *s)
{
    char pointer[8 * GRAM_POINTER_BYTES];

    if (s->n_relaxed) qsort(s->relaxed, s->n_relaxed, sizeof(*s->relaxed), by_id);
    for (uint32_t i = 0; i < s->n_relaxed; i++) {
        size_t n =
            (size_t)snprintf(pointer, sizeof(pointer), "%.*s", GRAM_POINTER_BYTES, b->pointer);
        n += gram_js_pointer(s->relaxed[i], pointer + n, sizeof(pointer) - n);
        b->relaxed = gram_grow(b, b->relaxed, b->n_relaxed, &b->cap_relaxed, sizeof(*b->relaxed));
        b->relaxed[b->n_relaxed++] =
            gram_keep_copy(b, pointer, n < sizeof(pointer) ? n + 1 : sizeof(pointer), 1);
    }
}

/* ---- goals --------------------------------------------------------------------------------- */

struct gram_goal_entry {
    struct gram_goal_entry *hash_next, *next;
    struct gram_member *members;
    uint32_t n;
    uint32_t value;
};

enum { GOAL_BUCKETS = 1024 };

/* A schema that is nothing but a reference stands for what it refers to. */
static struct gram_js *follow(struct gram_build *b, struct gram_js *s)
{
    for (int i = 0; i < 100 && s->type == GRAM_JS_OBJECT; i++) {
        struct gram_js *ref = gram_js_get(s, "$ref");
        if (!ref || ref->type != GRAM_JS_STRING || (b->schema->siblings && s->n > 1)) return s;
        s = gram_resolve(b, ref);
    }
    return s;
}

/* A schema without any say. */
static bool says_nothing(const struct gram_member *m)
{
    if (m->negated) return m->schema->type == GRAM_JS_FALSE;
    return m->schema->type == GRAM_JS_TRUE || (m->schema->type == GRAM_JS_OBJECT && !m->schema->n);
}

/* The members that count, each once. */
static struct gram_member *clean(struct gram_build *b, const struct gram_member *members,
                                 uint32_t n, uint32_t *ret_n)
{
    struct gram_member *out = gram_temp_array(b, n, sizeof(*out));
    uint32_t k = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct gram_member m = {follow(b, members[i].schema), members[i].negated};
        bool known = says_nothing(&m);
        for (uint32_t j = 0; j < k && !known; j++)
            known = out[j].schema == m.schema && out[j].negated == m.negated;
        if (!known) out[k++] = m;
    }
    *ret_n = k;
    return out;
}

static uint32_t hash_goal(const struct gram_member *members, uint32_t n)
{
    uint32_t h = n;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ (members[i].schema->id * 2 + members[i].negated)) * 0x9E3779B1u;
    return (h ^ h >> 15) % GOAL_BUCKETS;
}

static bool same_goal(const struct gram_goal_entry *e, const struct gram_member *members,
                      uint32_t n)
{
    if (e->n != n) return false;
    for (uint32_t i = 0; i < n; i++)
        if (e->members[i].schema != members[i].schema ||
            e->members[i].negated != members[i].negated)
            return false;
    return true;
}

uint32_t gram_goal(struct gram_build *b, const struct gram_member *members, uint32_t n)
{
    struct gram_schema *s = b->schema;
    struct gram_member *own = clean(b, members, n, &n);
    struct gram_goal_entry **bucket = &s->buckets[hash_goal(own, n)], *e;

    gram_steps(b, 1 + n / 4);
    for (e = *bucket; e; e = e->hash_next)
        if (same_goal(e, own, n)) return e->value;
    e = gram_temp(b, sizeof(*e));
    *e = (struct gram_goal_entry){.hash_next = *bucket, .members = own, .n = n};
    e->value = gram_add_value(b);
    *bucket = e;
    if (s->last)
        s->last->next = e;
    else
        s->first = e;
    s->last = e;
    return e->value;
}

/* ---- building a goal ----------------------------------------------------------------------- */

void gram_note_reason(struct gram_build *b, uint32_t value, const struct gram_js *at,
                      const char *text)
{
    struct gram_reason *r = &b->rules->reasons[value];
    if (r->text) return;
    if (at) r->at = at;
    r->text = text;
}

void gram_add_branch(struct gram_build *b, struct gram_value_draft *d, enum gram_branch_kind kind,
                     uint32_t node)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (d->branches[i].kind == kind && d->branches[i].node == node) return;
    d->branches = gram_grow(b, d->branches, d->n, &d->cap, sizeof(*d->branches));
    d->branches[d->n++] = (struct gram_branch){(uint8_t)kind, node};
}

void gram_add_literal(struct gram_build *b, struct gram_value_draft *d, const char *text,
                      size_t len, const char *same, size_t same_len)
{
    for (size_t i = 0; i < len; i++)
        if (gram_vocab_byte_id(b->vocab, (uint8_t)text[i]) < 0) return;
    if (!gram_trie_add(b, &d->literals, text, len, true, d->n_hashes)) return;
    d->hashes = gram_grow(b, d->hashes, d->n_hashes, &d->cap_hashes, sizeof(*d->hashes));
    d->hashes[d->n_hashes++] = gram_hash_bytes(GRAM_HASH_SEED, same, same_len);
}

/* All literals of the value are one branch. */
static void finish_literals(struct gram_build *b, struct gram_value_draft *d)
{
    struct gram_trie trie;

    if (!d->n_hashes) return;
    gram_trie_finish(b, &d->literals, &trie);
    if (b->schema->has_unique) {
        uint64_t *hashes = gram_keep_array(b, trie.n_leaves, sizeof(*hashes));
        for (uint32_t i = 0; i < trie.n_leaves; i++)
            hashes[i] = d->hashes[trie.leaves[i]];
        trie.hashes = hashes;
    }
    gram_add_branch(b, d, GRAM_BRANCH_LITERAL, gram_add_trie(b, &trie));
}

static bool excludes(struct gram_build *b, const struct gram_alt *alt, enum gram_js_type type)
{
    for (const struct gram_item *i = alt->last; i; i = i->before) {
        if (!i->negated || (i->kw != GRAM_KW_CONST && i->kw != GRAM_KW_ENUM)) continue;
        if (i->kw == GRAM_KW_CONST && i->value->type == type) return true;
        for (const struct gram_js *v = i->value->child; i->kw == GRAM_KW_ENUM && v; v = v->next)
            if (v->type == type) return true;
    }
    gram_steps(b, 1);
    return false;
}

static bool has_values(const struct gram_alt *alt)
{
    for (const struct gram_item *i = alt->last; i; i = i->before)
        if (!i->negated && (i->kw == GRAM_KW_CONST || i->kw == GRAM_KW_ENUM)) return true;
    return false;
}

void gram_build_alt(struct gram_build *b, struct gram_value_draft *d, const struct gram_alt *alt)
{
    gram_steps(b, 1);
    if (has_values(alt)) {
        gram_build_values(b, d, alt);
        return;
    }
    if ((alt->types & GRAM_T_NULL) && !excludes(b, alt, GRAM_JS_NULL))
        gram_add_literal(b, d, "null", 4, "null", 4);
    if ((alt->types & GRAM_T_BOOLEAN) && !excludes(b, alt, GRAM_JS_TRUE))
        gram_add_literal(b, d, "true", 4, "true", 4);
    if ((alt->types & GRAM_T_BOOLEAN) && !excludes(b, alt, GRAM_JS_FALSE))
        gram_add_literal(b, d, "false", 5, "false", 5);
    if (alt->types & GRAM_T_NUMBER) gram_build_number(b, d, alt);
    if (alt->types & GRAM_T_STRING) gram_build_string(b, d, alt);
    if (alt->types & GRAM_T_ARRAY) gram_build_array(b, d, alt);
    if (alt->types & GRAM_T_OBJECT) gram_build_object(b, d, alt);
}

static void build_goal(struct gram_build *b, const struct gram_goal_entry *e)
{
    struct gram_value_draft d = {.value = e->value};

    b->rules->reasons[e->value].at = e->n ? e->members[0].schema : NULL;
    struct gram_alts alts = gram_expand(b, e->members, e->n);
    if (alts.n == 0) gram_note_reason(b, e->value, NULL, "nothing fits all that it says");
    for (uint32_t i = 0; i < alts.n; i++)
        gram_build_alt(b, &d, &alts.alts[i]);
    finish_literals(b, &d);
    b->rules->values[e->value].branches = d.branches;
    b->rules->values[e->value].n_branches = d.n;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int draft_of(const struct gram_js *root)
{
    static const struct {
        const char *part;
        int draft;
    } drafts[] = {{"draft-03", 3}, {"draft-04", 4},   {"draft-06", 6},
                  {"draft-07", 7}, {"2019-09", 2019}, {"2020-12", 2020}};
    const struct gram_js *v = gram_js_get(root, "$schema");
    char uri[200];

    if (!v || v->type != GRAM_JS_STRING || v->len >= sizeof(uri)) return 2020;
    memcpy(uri, v->text, v->len);
    uri[v->len] = '\0';
    for (size_t i = 0; i < sizeof(drafts) / sizeof(drafts[0]); i++)
        if (strstr(uri, drafts[i].part)) return drafts[i].draft;
    return 2020;
}

/* uniqueItems is used anywhere in the document. */
static bool uses_unique(const struct gram_js *v)
{
    if (v->type == GRAM_JS_TRUE && v->key && gram_js_key_is(v, "uniqueItems")) return true;
    for (const struct gram_js *child = v->child; child; child = child->next)
        if (uses_unique(child)) return true;
    return false;
}

/* The document's root, and a schema for objects if only those are wanted. */
static uint32_t root_goal(struct gram_build *b, bool object)
{
    static const char any_object[] = "{\"type\":\"object\"}";
    struct gram_schema *s = b->schema;
    struct gram_member members[2] = {{.schema = s->root}};

    if (object)
        members[1].schema = gram_js_parse(b, any_object, sizeof(any_object) - 1, 4, GRAM_EINVAL,
                                          "schema", &s->n_ids);
    return gram_goal(b, members, object ? 2 : 1);
}

/* Patterns and strings are shared with the schema before. */
static void begin_schema(struct gram_build *b, bool strict)
{
    const struct gram_schema *before = b->schema;
    struct gram_schema *s = gram_temp(b, sizeof(*s));

    if (before) {
        s->patterns = before->patterns;
        s->strings = before->strings;
    }
    s->strict = strict;
    s->level = 1;
    s->buckets = gram_temp_array(b, GOAL_BUCKETS, sizeof(*s->buckets));
    b->schema = s;
}

static void read_schema(struct gram_build *b, const char *text, size_t len)
{
    struct gram_schema *s = b->schema;

    if (len > GRAM_MAX_SCHEMA_BYTES)
        gram_fail_at(b, NULL, NULL, "the schema has %zu bytes; at most %d.", len,
                     GRAM_MAX_SCHEMA_BYTES);
    s->root = gram_js_parse(b, text, len, GRAM_MAX_SCHEMA_DEPTH, GRAM_EINVAL, "schema", &s->n_ids);
    if (!is_schema(s->root))
        gram_fail_at(b, NULL, NULL, "the schema must be an object or a boolean, is %s.",
                     gram_js_type_name(s->root));
    s->draft = draft_of(s->root);
    s->siblings = s->draft >= 2019;
    s->has_unique = uses_unique(s->root);
    gram_find_resources(b);
}

static void require_json(struct gram_build *b)
{
    uint8_t missing;
    if (gram_vocab_spells_json(b->vocab, &missing)) return;
    gram_fail(b, GRAM_EUNSUPPORTED, "JSON cannot be written with this tokenizer: no token is '%c'.",
              missing);
}

uint32_t gram_schema_node(struct gram_build *b, const char *text, size_t len, bool strict,
                          bool object)
{
    require_json(b);
    begin_schema(b, strict);
    read_schema(b, text, len);
    b->schema->value = root_goal(b, object);
    for (struct gram_goal_entry *e = b->schema->first; e; e = e->next)
        build_goal(b, e);
    uint32_t node = gram_add_node(b, GRAM_NODE_VALUE);
    b->rules->nodes[node].ref = b->schema->value;
    return node;
}

/* Follows the reasons from the root to the rule where the trouble begins. */
void gram_schema_empty(struct gram_build *b, const struct gram_schema *s)
{
    const struct gram_reason *why = &b->rules->reasons[s->value];

    for (int i = 0; i < 1000 && !why->text && why->because != GRAM_NONE; i++)
        why = &b->rules->reasons[why->because];
    gram_fail_at(b, why->at, NULL, "no value is possible: %s.",
                 why->text ? why->text : "it refers to itself without an end");
}
