/* SPDX-License-Identifier: MIT */
/* Keywords: their names, the types of their values, which are relaxed, and equality of values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/schema/goals.h"

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
    {"$dynamicRef", GRAM_KW_DYNAMIC_REF, IS_STRING, 2020},
    {"$recursiveRef", GRAM_KW_DYNAMIC_REF, IS_STRING, 2019},
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

static int find_keyword(const struct gram_js *member)
{
    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++)
        if (member->key[0] == keywords[i].name[0] && gram_js_key_is(member, keywords[i].name))
            return (int)i;
    return -1;
}

enum gram_kw gram_kw_of(const struct gram_build *b, struct gram_js *member)
{
    enum { LOOKED_UP = 128 };
    if (!member->keyword) {
        int i = find_keyword(member);
        bool known = i >= 0 && keywords[i].since <= b->schema->draft;
        member->keyword = (uint8_t)(LOOKED_UP | (known ? keywords[i].kw : GRAM_KW_NONE));
    }
    return member->keyword & ~LOOKED_UP;
}

int gram_kw_schemas(const struct gram_build *b, struct gram_js *member)
{
    if (gram_kw_of(b, member) == GRAM_KW_NONE) return 0;
    unsigned shape = keywords[find_keyword(member)].shape;
    if ((shape & IS_MAP) || ((shape & IS_SCHEMAS) && member->type == GRAM_JS_ARRAY)) return 2;
    return (shape & IS_SCHEMA) != 0;
}

bool gram_js_is_schema(const struct gram_js *v)
{
    return v->type == GRAM_JS_OBJECT || v->type == GRAM_JS_TRUE || v->type == GRAM_JS_FALSE;
}

/* Not negative, an integer; its spelling may be 2.0. */
static bool is_count(struct gram_build *b, const struct gram_js *v)
{
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
        else if (!gram_js_is_schema(v))
            wrong_type(b, v, keyword, "a schema");
    }
}

static void check_schemas(struct gram_build *b, const struct gram_js *list, const char *keyword)
{
    if (list->n == 0 && strcmp(keyword, "items") != 0)
        gram_fail_at(b, list, keyword, "must not be empty.");
    for (const struct gram_js *v = list->child; v; v = v->next)
        if (!gram_js_is_schema(v)) wrong_type(b, v, keyword, "a schema");
}

static void check_shape(struct gram_build *b, const struct gram_js *v, const char *keyword,
                        unsigned shape)
{
    if (shape & (IS_MAP | IS_NAME_MAP))
        check_map(b, v, keyword, shape);
    else if ((shape & IS_SCHEMAS) && v->type == GRAM_JS_ARRAY)
        check_schemas(b, v, keyword);
    else if ((shape & IS_SCHEMA) && !gram_js_is_schema(v))
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
    else if ((shape & IS_BOOLEAN) && v->type != GRAM_JS_TRUE && v->type != GRAM_JS_FALSE &&
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
    if (value->marks & GRAM_MARK_CHECKED) return;
    value->marks |= GRAM_MARK_CHECKED;
    int i = find_keyword(value);
    if (i < 0) return;
    gram_steps(b, 1 + value->n / 8);
    check_shape(b, value, keywords[i].name, keywords[i].shape);
    if (kw == GRAM_KW_ENUM && value->n > GRAM_MAX_ENUM)
        gram_leave_out(b, value, "enum", "%u values; at most %d.", value->n, GRAM_MAX_ENUM);
    if (kw == GRAM_KW_DYNAMIC_REF)
        gram_leave_out(b, value, keywords[i].name, "dynamic references are not supported.");
}

/* A non-negative integer, GRAM_INFINITE if it is larger. */
static uint64_t count_of(struct gram_build *b, const struct gram_js *value)
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

/* Once, however often the part stands in the tree. */
static void add_relaxed(struct gram_build *b, const char *pointer)
{
    char text[9 * GRAM_POINTER_BYTES];
    size_t n =
        (size_t)snprintf(text, sizeof(text), "%.*s%s", GRAM_POINTER_BYTES, b->pointer, pointer);
    gram_steps(b, b->n_relaxed);
    for (uint32_t i = 0; i < b->n_relaxed; i++)
        if (!strcmp(b->relaxed[i], text)) return;
    b->relaxed = gram_grow(b, b->relaxed, b->n_relaxed, &b->cap_relaxed, sizeof(*b->relaxed));
    b->relaxed[b->n_relaxed++] =
        gram_keep_copy(b, text, n < sizeof(text) ? n + 1 : sizeof(text), 1);
}

void gram_schema_relaxed(struct gram_build *b, struct gram_schema *s)
{
    char pointer[8 * GRAM_POINTER_BYTES];
    if (s->n_relaxed) qsort(s->relaxed, s->n_relaxed, sizeof(*s->relaxed), by_id);
    for (uint32_t i = 0; i < s->n_relaxed; i++) {
        gram_js_pointer(s->relaxed[i], pointer, sizeof(pointer));
        add_relaxed(b, pointer);
    }
}

void gram_name_relaxed(struct gram_build *b, const char *keyword, size_t len, bool strict)
{
    const char *name = gram_text(b, "%.*s", (int)len, keyword);
    if (strict)
        gram_fail_at(
            b, NULL, name,
            "%s cannot be followed where parameters are written one by one, which 'strict' "
            "forbids.",
            name);
    add_relaxed(b, gram_text(b, "/%s", name));
}

/* ---- equality ------------------------------------------------------------------------------ */

/* As JSON values: numbers by value, members in any order. */
static bool equal(struct gram_build *b, const struct gram_js *x, const struct gram_js *y)
{
    gram_steps(b, 1);
    if (x->type != y->type || x->n != y->n) return false;
    if (x->type == GRAM_JS_STRING) return x->len == y->len && !memcmp(x->text, y->text, x->len);
    if (x->type == GRAM_JS_NUMBER) {
        struct gram_decimal u = gram_decimal_read(b, x->text, x->len);
        struct gram_decimal v = gram_decimal_read(b, y->text, y->len);
        return gram_decimal_compare(&u, &v) == 0;
    }
    if (x->type == GRAM_JS_ARRAY) {
        const struct gram_js *e = y->child;
        for (const struct gram_js *v = x->child; v; v = v->next, e = e->next)
            if (!equal(b, v, e)) return false;
    }
    if (x->type == GRAM_JS_OBJECT) {
        for (const struct gram_js *v = x->child; v; v = v->next) {
            const struct gram_js *e = gram_js_get_n(y, v->key, v->key_len);
            if (!e || !equal(b, v, e)) return false;
        }
    }
    return true;
}

static bool lists_value(struct gram_build *b, const struct gram_item *i, const struct gram_js *v)
{
    for (const struct gram_js *e = NULL; (e = gram_next_listed(i, e));)
        if (equal(b, e, v)) return true;
    return false;
}

bool gram_lists_fit(struct gram_build *b, const struct gram_alt *alt, const struct gram_item *from,
                    const struct gram_js *v)
{
    if (!(gram_type_of_value(b, v) & alt->types)) return false;
    for (const struct gram_item *i = alt->last; i; i = i->before)
        if (i != from && gram_is_values(i) && lists_value(b, i, v) == i->negated) return false;
    return true;
}

/* ---- counts -------------------------------------------------------------------------------- */

bool gram_count_add(struct gram_build *b, struct gram_count *r, const struct gram_item *i,
                    enum gram_kw min, enum gram_kw max)
{
    if (i->kw != min && i->kw != max) return false;
    uint64_t n = count_of(b, i->value);
    if ((i->kw == min) != i->negated) {
        if (n + i->negated > r->min) r->min = n + i->negated;
    } else if (n == 0 && i->negated) {
        r->min = UINT64_MAX; /* less than nothing */
    } else if (n - i->negated < r->max) {
        r->max = n - i->negated;
    }
    return true;
}
