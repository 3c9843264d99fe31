/* SPDX-License-Identifier: MIT */
/*
 * Schemas to alternatives: lists of plain assertions in text order.
 *
 * A schema is applied to all alternatives found so far. A schema that is applied inside itself,
 * with nothing in between, adds nothing to what its other branches say: that alternative is
 * dropped.
 */

#include "tokenizer/grammar/format.h"
#include "tokenizer/grammar/schema/goals.h"

enum { MAX_EXPANSION_DEPTH = 300 };

/* ---- lists --------------------------------------------------------------------------------- */

void gram_alts_push(struct gram_build *b, struct gram_alts *list, struct gram_alt alt)
{
    if (list->n >= GRAM_MAX_BRANCHES) {
        list->too_many = true;
        return;
    }
    list->alts = gram_grow(b, list->alts, list->n, &list->cap, sizeof(*list->alts));
    list->alts[list->n++] = alt;
}

struct gram_alts gram_alts_join(struct gram_build *b, struct gram_alts x, struct gram_alts y)
{
    struct gram_alts out = {.too_many = x.too_many || y.too_many};
    for (uint32_t i = 0; i < x.n; i++)
        gram_alts_push(b, &out, x.alts[i]);
    for (uint32_t i = 0; i < y.n; i++)
        gram_alts_push(b, &out, y.alts[i]);
    return out;
}

struct gram_alts gram_restrict(struct gram_build *b, struct gram_alts in, uint32_t types)
{
    struct gram_alts out = {.too_many = in.too_many};
    for (uint32_t i = 0; i < in.n; i++) {
        struct gram_alt alt = in.alts[i];
        alt.types &= types;
        if (alt.types) gram_alts_push(b, &out, alt);
    }
    gram_steps(b, 1 + in.n / 8);
    return out;
}

struct gram_alts gram_assert(struct gram_build *b, struct gram_alts in, struct gram_item item,
                             uint32_t types)
{
    struct gram_alts out = gram_restrict(b, in, types);
    for (uint32_t i = 0; i < out.n; i++) {
        struct gram_item *new_item = gram_temp(b, sizeof(*new_item));
        *new_item = item;
        new_item->quiet = b->schema->quiet > 0;
        new_item->before = out.alts[i].last;
        out.alts[i].last = new_item;
        out.alts[i].n++;
    }
    return out;
}

const struct gram_item **gram_items(struct gram_build *b, const struct gram_alt *alt)
{
    const struct gram_item **items = gram_temp_array(b, alt->n + 1, sizeof(struct gram_item *));
    uint32_t n = alt->n;
    for (const struct gram_item *i = alt->last; i; i = i->before)
        items[--n] = i;
    return items;
}

/* ---- keywords ------------------------------------------------------------------------------ */

static struct gram_alts assert_keyword(struct gram_build *b, struct gram_alts in,
                                       struct gram_js *schema, struct gram_js *value,
                                       enum gram_kw kw)
{
    struct gram_item item = {.schema = schema, .value = value, .kw = (uint8_t)kw};
    return gram_assert(b, in, item, GRAM_T_ALL);
}

struct gram_alts gram_apply_any_of(struct gram_build *b, struct gram_alts in, struct gram_js *list,
                                   const char *keyword)
{
    struct gram_alts out = {0};
    for (struct gram_js *s = list->child; s; s = s->next)
        out = gram_alts_join(b, out, gram_apply(b, in, s, false));
    if (in.n > 1 && out.n > 16) out = gram_drop_contradictions(b, out);
    if (b->schema->level > 1) return out;
    if (out.too_many || (in.n > 1 && out.n > GRAM_MAX_ALTERNATIVES))
        gram_leave_out(b, list, keyword, "merging gives more than %d alternatives.",
                       GRAM_MAX_ALTERNATIVES);
    return out;
}

static struct gram_alts apply_not(struct gram_build *b, struct gram_alts in, struct gram_js *schema)
{
    if (gram_can_negate(b, schema)) {
        struct gram_alts out = gram_apply(b, in, schema, true);
        if (!out.too_many && (in.n <= 1 || out.n <= GRAM_MAX_ALTERNATIVES)) return out;
    }
    gram_relax(b, schema, "it can only be left out");
    return in;
}

/* if S then T else E: S and T, or not S and E. */
static struct gram_alts apply_if(struct gram_build *b, struct gram_alts in, struct gram_js *schema,
                                 struct gram_js *condition)
{
    struct gram_js *then = gram_js_get(schema, "then"), *other = gram_js_get(schema, "else");
    if (!then && !other) return in;
    if (then) gram_check_keyword(b, GRAM_KW_THEN_ELSE, then);
    if (other) gram_check_keyword(b, GRAM_KW_THEN_ELSE, other);
    if (gram_can_negate(b, condition)) {
        b->schema->quiet++;
        struct gram_alts yes = gram_apply(b, in, condition, false);
        b->schema->quiet--;
        struct gram_alts no = gram_apply(b, in, condition, true);
        if (then) yes = gram_apply(b, yes, then, false);
        if (other) no = gram_apply(b, no, other, false);
        struct gram_alts out = gram_alts_join(b, yes, no);
        if (in.n > 1 && out.n > 16) out = gram_drop_contradictions(b, out);
        if (!out.too_many && (in.n <= 1 || out.n <= GRAM_MAX_ALTERNATIVES)) return out;
    }
    gram_relax(b, condition, "it can only be left out");
    return in;
}

/* ---- dependencies -------------------------------------------------------------------------- */

/* If an object has the key, the schema applies. */
static struct gram_alts depend_on_key(struct gram_build *b, struct gram_alts in,
                                      struct gram_js *schema)
{
    struct gram_item key = {.name = schema->key, .name_len = schema->key_len};
    key.kw = GRAM_KW_ABSENT;
    struct gram_alts without = gram_assert(b, in, key, GRAM_T_ALL);
    key.kw = GRAM_KW_PRESENT;
    struct gram_alts with = gram_assert(b, in, key, GRAM_T_OBJECT);
    return gram_alts_join(b, without, gram_apply(b, with, schema, false));
}

static struct gram_alts apply_dependencies(struct gram_build *b, struct gram_alts in,
                                           struct gram_js *map)
{
    struct gram_alts begin = in;
    for (struct gram_js *v = map->child; v; v = v->next) {
        if (v->type == GRAM_JS_ARRAY) {
            struct gram_item item = {
                .value = v, .kw = GRAM_KW_WANTS, .name = v->key, .name_len = v->key_len};
            in = gram_assert(b, in, item, GRAM_T_ALL);
            continue;
        }
        in = depend_on_key(b, in, v);
        if (in.n > 16) in = gram_drop_contradictions(b, in);
        if (!in.too_many && in.n <= GRAM_MAX_ALTERNATIVES) continue;
        gram_relax(b, map, "it can only be left out");
        return begin;
    }
    return in;
}

/* ---- enum, format and relaxed keywords ----------------------------------------------------- */

static struct gram_alts apply_values(struct gram_build *b, struct gram_alts in,
                                     struct gram_js *schema, struct gram_js *value, enum gram_kw kw)
{
    uint32_t types = 0;
    if (kw == GRAM_KW_CONST) types = gram_type_of_value(b, value);
    for (const struct gram_js *v = value->child; kw == GRAM_KW_ENUM && v; v = v->next)
        types |= gram_type_of_value(b, v);
    gram_steps(b, 1 + value->n / 4);
    return assert_keyword(b, gram_restrict(b, in, types), schema, value, kw);
}

static struct gram_alts apply_format(struct gram_build *b, struct gram_alts in,
                                     struct gram_js *schema, struct gram_js *value)
{
    if (gram_format_find(value->text, value->len) == GRAM_FORMAT_NONE) {
        gram_relax(b, value, "it is an annotation");
        return in;
    }
    return assert_keyword(b, in, schema, value, GRAM_KW_FORMAT);
}

static struct gram_alts apply_contains(struct gram_build *b, struct gram_alts in,
                                       struct gram_js *schema, struct gram_js *value)
{
    static const char *const counts[] = {"minContains", "maxContains"};
    gram_relax(b, value, "it can only be left out");
    for (int i = 0; i < 2; i++) {
        struct gram_js *count = gram_js_get(schema, counts[i]);
        if (!count) continue;
        gram_check_keyword(b, GRAM_KW_CONTAINS_COUNT, count);
        gram_relax(b, count, "it can only be left out");
    }
    return in;
}

/* Some alternative applies in place, so that the evaluated members depend on the value. */
static bool has_choices(struct gram_build *b, const struct gram_js *schema, int depth)
{
    static const char *const names[] = {
        "anyOf",        "oneOf",    "if",          "not",          "dependentSchemas",
        "dependencies", "contains", "$dynamicRef", "$recursiveRef"};
    gram_steps(b, 3);
    if (schema->type != GRAM_JS_OBJECT) return false;
    if (depth > 20) return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (gram_js_get(schema, names[i])) return true;
    struct gram_js *ref = gram_js_get(schema, "$ref"), *all = gram_js_get(schema, "allOf");
    if (ref &&
        (gram_kw_of(b, ref) == GRAM_KW_LEFT_OUT || has_choices(b, gram_resolve(b, ref), depth + 1)))
        return true;
    for (const struct gram_js *s = all ? all->child : NULL; s; s = s->next)
        if (has_choices(b, s, depth + 1)) return true;
    return false;
}

/*
 * unevaluated*: what that is depends on the schema alone if it makes no choices. Otherwise nothing
 * is asserted, but the object is one that says something about its other keys.
 */
static struct gram_alts apply_unevaluated(struct gram_build *b, struct gram_alts in,
                                          struct gram_js *schema, struct gram_js *value,
                                          enum gram_kw kw)
{
    if (!gram_is_trivial(value) && has_choices(b, schema, 0)) {
        gram_relax(b, value, "it can only be left out");
        value = &gram_anything;
    }
    if (gram_is_trivial(value) && kw == GRAM_KW_UNEVALUATED_ITEMS) return in;
    return assert_keyword(b, in, schema, value, kw);
}

/* ---- schemas ------------------------------------------------------------------------------- */

static struct gram_alts apply_keyword(struct gram_build *b, struct gram_alts in,
                                      struct gram_js *schema, struct gram_js *value)
{
    enum gram_kw kw = gram_kw_of(b, value);
    if (kw == GRAM_KW_NONE) return in;
    gram_check_keyword(b, kw, value);
    switch (kw) {
    case GRAM_KW_REF: return gram_apply(b, in, gram_resolve(b, value), false);
    case GRAM_KW_ALL_OF:
        for (struct gram_js *s = value->child; s; s = s->next)
            in = gram_apply(b, in, s, false);
        return in;
    case GRAM_KW_ANY_OF: return gram_apply_any_of(b, in, value, "anyOf");
    case GRAM_KW_ONE_OF: return gram_apply_one_of(b, in, value);
    case GRAM_KW_NOT: return apply_not(b, in, value);
    case GRAM_KW_IF: return apply_if(b, in, schema, value);
    case GRAM_KW_TYPE: return gram_restrict(b, in, gram_types_named(b, value));
    case GRAM_KW_CONST:
    case GRAM_KW_ENUM: return apply_values(b, in, schema, value, kw);
    case GRAM_KW_FORMAT: return apply_format(b, in, schema, value);
    case GRAM_KW_DEPENDENT_SCHEMAS:
    case GRAM_KW_DEPENDENT_REQUIRED:
    case GRAM_KW_DEPENDENCIES: return apply_dependencies(b, in, value);
    case GRAM_KW_CONTAINS: return apply_contains(b, in, schema, value);
    case GRAM_KW_UNEVALUATED_ITEMS:
    case GRAM_KW_UNEVALUATED_PROPERTIES: return in; /* after all others */
    case GRAM_KW_CONTAINS_COUNT:
    case GRAM_KW_NULLABLE:
    case GRAM_KW_THEN_ELSE: return in;
    case GRAM_KW_LEFT_OUT: /* an object stays open to keys that it may have named */
        return assert_keyword(b, in, schema, &gram_anything, GRAM_KW_UNEVALUATED_PROPERTIES);
    default: return assert_keyword(b, in, schema, value, kw);
    }
}

/* The keywords that say which keys an object may have are read together, where the first is. */
static bool is_about_keys(enum gram_kw kw)
{
    return kw == GRAM_KW_PROPERTIES || kw == GRAM_KW_PATTERN_PROPERTIES ||
           kw == GRAM_KW_ADDITIONAL_PROPERTIES;
}

static struct gram_alts apply_keywords(struct gram_build *b, struct gram_alts in,
                                       struct gram_js *schema)
{
    bool keys = false;
    for (struct gram_js *v = schema->child; v && in.n; v = v->next) {
        bool about_keys = is_about_keys(gram_kw_of(b, v));
        if (!about_keys) in = apply_keyword(b, in, schema, v);
        for (struct gram_js *k = v; about_keys && !keys && k && in.n; k = k->next)
            if (is_about_keys(gram_kw_of(b, k))) in = apply_keyword(b, in, schema, k);
        keys |= about_keys;
    }
    for (struct gram_js *v = schema->child; v && in.n; v = v->next) {
        enum gram_kw kw = gram_kw_of(b, v);
        if (kw == GRAM_KW_UNEVALUATED_ITEMS || kw == GRAM_KW_UNEVALUATED_PROPERTIES)
            in = apply_unevaluated(b, in, schema, v, kw);
    }
    return in;
}

static struct gram_alts apply_object(struct gram_build *b, struct gram_alts in,
                                     struct gram_js *schema)
{
    struct gram_js *ref = gram_js_get(schema, "$ref"), *nullable = gram_js_get(schema, "nullable");
    if (ref && !b->schema->siblings) return apply_keyword(b, in, schema, ref);
    struct gram_alts out = apply_keywords(b, in, schema);
    if (nullable) gram_check_keyword(b, GRAM_KW_NULLABLE, nullable);
    if (!nullable || nullable->type != GRAM_JS_TRUE) return out;
    return gram_alts_join(b, out, gram_restrict(b, in, GRAM_T_NULL));
}

struct gram_alts gram_apply(struct gram_build *b, struct gram_alts in, struct gram_js *schema,
                            bool negated)
{
    struct gram_alts none = {.too_many = in.too_many};
    gram_steps(b, 1 + in.n / 8 + schema->n / 4);
    if (in.n == 0) return in;
    if (schema->type == GRAM_JS_TRUE || schema->type == GRAM_JS_FALSE)
        return (schema->type == GRAM_JS_TRUE) != negated ? in : none;
    if (schema->type != GRAM_JS_OBJECT)
        gram_fail_at(b, schema, NULL, "must be a schema, is %s.", gram_js_type_name(schema));
    uint8_t level = b->schema->level, outside = schema->active[negated];
    if (outside == level) return none;
    if (b->schema->depth == MAX_EXPANSION_DEPTH)
        gram_fail_at(b, schema, NULL, "references nest too deep.");
    schema->active[negated] = level;
    b->schema->quiet += negated;
    b->schema->depth++;
    struct gram_alts out =
        negated ? gram_apply_negated(b, in, schema) : apply_object(b, in, schema);
    b->schema->depth--;
    b->schema->quiet -= negated;
    schema->active[negated] = outside;
    return out;
}

struct gram_alts gram_expand(struct gram_build *b, const struct gram_member *members, uint32_t n)
{
    struct gram_alts alts = {0};
    gram_alts_push(b, &alts, (struct gram_alt){.types = GRAM_T_ALL});
    for (uint32_t i = 0; i < n; i++)
        alts = gram_apply(b, alts, members[i].schema, members[i].negated);
    if (alts.too_many)
        gram_fail_at(b, members[0].schema, NULL, "merging gives more than %d alternatives.",
                     GRAM_MAX_BRANCHES);
    return alts;
}
