/* SPDX-License-Identifier: MIT */
/*
 * Negation. The opposite of a schema is that one of its keywords does not hold, and a keyword that
 * does not hold says which type the value has: "not {minLength: 3}" is a string shorter than 3.
 * That is exact for the keywords below; a schema with any other cannot be negated.
 */
#include <assert.h>

#include "tokenizer/grammar/format.h"
#include "tokenizer/grammar/schema/goals.h"

/* ---- what can be negated ------------------------------------------------------------------- */

static bool is_scalar(const struct gram_js *v)
{
    return v->type < GRAM_JS_ARRAY;
}

static bool can_negate_keyword(struct gram_build *b, struct gram_js *schema, struct gram_js *v)
{
    enum gram_kw kw = gram_kw_of(b, v);
    gram_check_keyword(b, kw, v);
    switch (kw) {
    case GRAM_KW_LEFT_OUT: return false;
    case GRAM_KW_REF: return gram_can_negate(b, gram_resolve(b, v));
    case GRAM_KW_ALL_OF:
    case GRAM_KW_ANY_OF:
    case GRAM_KW_PROPERTIES:
        for (struct gram_js *s = v->child; s; s = s->next)
            if (!gram_can_negate(b, s)) return false;
        return true;
    case GRAM_KW_NOT: return gram_can_negate(b, v) && gram_is_exact(b, v);
    case GRAM_KW_CONST: return is_scalar(v);
    case GRAM_KW_ENUM:
        for (const struct gram_js *e = v->child; e; e = e->next)
            if (!is_scalar(e)) return false;
        return true;
    case GRAM_KW_IF: {
        struct gram_js *then = gram_js_get(schema, "then"), *other = gram_js_get(schema, "else");
        return gram_can_negate(b, v) && gram_is_exact(b, v) &&
               (!then || gram_can_negate(b, then)) && (!other || gram_can_negate(b, other));
    }
    case GRAM_KW_FORMAT: return gram_format_find(v->text, v->len) == GRAM_FORMAT_NONE;
    case GRAM_KW_UNIQUE_ITEMS: return v->type == GRAM_JS_FALSE;
    case GRAM_KW_ITEMS:
    case GRAM_KW_ADDITIONAL_ITEMS:
    case GRAM_KW_ADDITIONAL_PROPERTIES:
    case GRAM_KW_UNEVALUATED_ITEMS:
    case GRAM_KW_UNEVALUATED_PROPERTIES:
    case GRAM_KW_PROPERTY_NAMES: return gram_is_trivial(v);
    case GRAM_KW_ONE_OF:
    case GRAM_KW_MULTIPLE_OF:
    case GRAM_KW_PATTERN_PROPERTIES:
    case GRAM_KW_DEPENDENT_REQUIRED:
    case GRAM_KW_DEPENDENT_SCHEMAS:
    case GRAM_KW_DEPENDENCIES:
    case GRAM_KW_PREFIX_ITEMS:
    case GRAM_KW_CONTAINS: return v->n == 0 && v->type != GRAM_JS_NUMBER;
    default: return true;
    }
}

bool gram_can_negate(struct gram_build *b, struct gram_js *schema)
{
    bool can = true;
    if (schema->type != GRAM_JS_OBJECT) return true;
    if (schema->marks & (GRAM_MARK_CAN_NEGATE | GRAM_MARK_CANNOT_NEGATE))
        return schema->marks & GRAM_MARK_CAN_NEGATE;
    if (schema->marks & GRAM_MARK_BUSY) return false; /* it refers to itself */
    schema->marks |= GRAM_MARK_BUSY;
    struct gram_js *ref = gram_js_get(schema, "$ref");
    if (ref && !b->schema->siblings) {
        can = can_negate_keyword(b, schema, ref);
    } else {
        for (struct gram_js *v = schema->child; v && can; v = v->next)
            can = can_negate_keyword(b, schema, v);
    }
    schema->marks &= (uint8_t)~GRAM_MARK_BUSY;
    schema->marks |= can ? GRAM_MARK_CAN_NEGATE : GRAM_MARK_CANNOT_NEGATE;
    assert(!(schema->marks & GRAM_MARK_BUSY));
    gram_steps(b, 1 + schema->n);
    return can;
}

static bool is_exact_keyword(struct gram_build *b, struct gram_js *v)
{
    int schemas = gram_kw_schemas(b, v);
    switch (gram_kw_of(b, v)) {
    case GRAM_KW_REF: return gram_is_exact(b, gram_resolve(b, v));
    case GRAM_KW_NOT:
    case GRAM_KW_IF: return gram_can_negate(b, v) && gram_is_exact(b, v);
    case GRAM_KW_LEFT_OUT:
    case GRAM_KW_ONE_OF:
    case GRAM_KW_CONTAINS:
    case GRAM_KW_UNEVALUATED_ITEMS:
    case GRAM_KW_UNEVALUATED_PROPERTIES: return false;
    case GRAM_KW_UNIQUE_ITEMS: return v->type == GRAM_JS_FALSE;
    default: break;
    }
    for (struct gram_js *s = schemas == 2 ? v->child : NULL; s; s = s->next)
        if (s->type != GRAM_JS_ARRAY && !gram_is_exact(b, s)) return false;
    return schemas != 1 || gram_is_exact(b, v);
}

bool gram_is_exact(struct gram_build *b, struct gram_js *schema)
{
    bool exact = true;
    if (schema->type != GRAM_JS_OBJECT) return true;
    if (schema->marks & (GRAM_MARK_EXACT | GRAM_MARK_INEXACT))
        return schema->marks & GRAM_MARK_EXACT;
    schema->marks |= GRAM_MARK_EXACT; /* assumed while it refers to itself */
    for (struct gram_js *v = schema->child; v && exact; v = v->next)
        exact = is_exact_keyword(b, v);
    if (!exact) schema->marks = (uint8_t)((schema->marks & ~GRAM_MARK_EXACT) | GRAM_MARK_INEXACT);
    gram_steps(b, 1 + schema->n);
    return exact;
}

/* ---- negating ------------------------------------------------------------------------------ */

static struct gram_alts not_keyword(struct gram_build *b, struct gram_alts in,
                                    struct gram_js *schema, struct gram_js *v, uint32_t types)
{
    struct gram_item item = {
        .schema = schema, .value = v, .kw = (uint8_t)gram_kw_of(b, v), .negated = true};
    return gram_assert(b, in, item, types);
}

static struct gram_alts negate_keyword(struct gram_build *b, struct gram_alts in,
                                       struct gram_js *schema, struct gram_js *v)
{
    struct gram_js *then = gram_js_get(schema, "then"), *other = gram_js_get(schema, "else");
    struct gram_alts out = {.too_many = in.too_many};
    switch (gram_kw_of(b, v)) {
    case GRAM_KW_REF: return gram_apply(b, in, gram_resolve(b, v), true);
    case GRAM_KW_ALL_OF:
        for (struct gram_js *s = v->child; s; s = s->next)
            out = gram_alts_join(b, out, gram_apply(b, in, s, true));
        return out;
    case GRAM_KW_ANY_OF:
        for (struct gram_js *s = v->child; s; s = s->next)
            in = gram_apply(b, in, s, true);
        return in;
    case GRAM_KW_NOT: return gram_apply(b, in, v, false);
    case GRAM_KW_IF:
        if (then) out = gram_apply(b, gram_apply(b, in, v, false), then, true);
        if (!other) return out;
        return gram_alts_join(b, out, gram_apply(b, gram_apply(b, in, v, true), other, true));
    case GRAM_KW_TYPE: return gram_restrict(b, in, GRAM_T_ALL & ~gram_types_named(b, v));
    case GRAM_KW_CONST:
    case GRAM_KW_ENUM: return not_keyword(b, in, schema, v, GRAM_T_ALL);
    case GRAM_KW_PATTERN:
    case GRAM_KW_MIN_LENGTH:
    case GRAM_KW_MAX_LENGTH: return not_keyword(b, in, schema, v, GRAM_T_STRING);
    case GRAM_KW_MINIMUM:
    case GRAM_KW_MAXIMUM:
    case GRAM_KW_EXCLUSIVE_MINIMUM:
    case GRAM_KW_EXCLUSIVE_MAXIMUM:
        if (v->type != GRAM_JS_NUMBER) return out; /* a flag of another keyword */
        return not_keyword(b, in, schema, v, GRAM_T_NUMBER);
    case GRAM_KW_REQUIRED: /* one of the keys is missing */
        for (const struct gram_js *s = v->child; s; s = s->next) {
            struct gram_item item = {.kw = GRAM_KW_ABSENT, .name = s->text, .name_len = s->len};
            out = gram_alts_join(b, out, gram_assert(b, in, item, GRAM_T_OBJECT));
        }
        return out;
    case GRAM_KW_PROPERTIES: /* one of the keys is there with a value that does not fit */
        for (struct gram_js *s = v->child; s; s = s->next) {
            struct gram_item item = {.value = s, .name = s->key, .name_len = s->key_len};
            if (gram_is_trivial(s)) continue;
            item.kw = GRAM_KW_PRESENT;
            struct gram_alts with = gram_assert(b, in, item, GRAM_T_OBJECT);
            item.kw = GRAM_KW_NOT_PROPERTY;
            out = gram_alts_join(b, out, gram_assert(b, with, item, GRAM_T_OBJECT));
        }
        return out;
    case GRAM_KW_MIN_PROPERTIES:
    case GRAM_KW_MAX_PROPERTIES: return not_keyword(b, in, schema, v, GRAM_T_OBJECT);
    case GRAM_KW_MIN_ITEMS:
    case GRAM_KW_MAX_ITEMS: return not_keyword(b, in, schema, v, GRAM_T_ARRAY);
    default: return out;
    }
}

struct gram_alts gram_apply_negated(struct gram_build *b, struct gram_alts in,
                                    struct gram_js *schema)
{
    struct gram_alts out = {.too_many = in.too_many};
    struct gram_js *ref = gram_js_get(schema, "$ref"), *nullable = gram_js_get(schema, "nullable");
    if (ref && !b->schema->siblings) return gram_apply(b, in, gram_resolve(b, ref), true);
    if (nullable && nullable->type == GRAM_JS_TRUE)
        in = gram_restrict(b, in, GRAM_T_ALL & ~GRAM_T_NULL);
    for (struct gram_js *v = schema->child; v; v = v->next)
        out = gram_alts_join(b, out, negate_keyword(b, in, schema, v));
    return out;
}
