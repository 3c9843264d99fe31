/* SPDX-License-Identifier: MIT */
/*
 * The keys that an alternative names, and the schemas that apply to the value of a key: by its
 * name, or by the patterns that it matches if it has no name here.
 */
#include <string.h>

#include "tokenizer/grammar/schema/keys.h"

/* ---- the list of names --------------------------------------------------------------------- */

struct gram_named_key *gram_named_key(struct gram_build *b, struct gram_key_list *list,
                                      const char *name, uint32_t len)
{
    uint32_t i = gram_table_add(b, &list->names, name, len);
    if (i == list->n) {
        list->keys = gram_grow(b, list->keys, i, &list->cap, sizeof(*list->keys));
        list->keys[list->n++] =
            (struct gram_named_key){.name = name, .len = len, .value = GRAM_NONE};
    }
    return &list->keys[i];
}

/* ---- patterns ------------------------------------------------------------------------------ */

static bool same_pattern(const struct gram_js *x, const struct gram_js *y)
{
    return x->key_len == y->key_len && memcmp(x->key, y->key, x->key_len) == 0;
}

/* It was left out. */
static bool is_unknown(const struct gram_js *pattern)
{
    return pattern->keyword == GRAM_KW_LEFT_OUT;
}

static void add_pattern(struct gram_object_facts *f, struct gram_js *pattern)
{
    if (is_unknown(pattern)) {
        f->has_unknown = true;
        return;
    }
    for (uint32_t i = 0; i < f->n_patterns; i++)
        if (same_pattern(f->patterns[i], pattern)) return;
    if (f->n_patterns == GRAM_MAX_PARTS)
        gram_leave_out(f->b, pattern, "patternProperties", "too complex: more than %d patterns.",
                       GRAM_MAX_PARTS);
    f->patterns[f->n_patterns++] = pattern;
}

void gram_collect_patterns(struct gram_object_facts *f)
{
    for (uint32_t i = 0; i < f->alt->n; i++) {
        const struct gram_item *item = f->items[i];
        if (item->kw == GRAM_KW_PROPERTY_NAMES && item->value->type != GRAM_JS_TRUE)
            f->has_names = true;
        if (item->kw != GRAM_KW_PATTERN_PROPERTIES) continue;
        for (struct gram_js *p = item->value->child; p; p = p->next)
            add_pattern(f, p);
    }
}

/* ---- values -------------------------------------------------------------------------------- */

/* A key with a name, or the keys without one that match a set of patterns. */
struct key {
    const struct gram_named_key *named; /* NULL: those of the class */
    uint64_t class;
};

static bool matches(const struct gram_object_facts *f, const struct key *k,
                    const struct gram_js *pattern)
{
    if (k->named)
        return gram_pattern_matches(f->b, pattern, "patternProperties", pattern->key,
                                    pattern->key_len, k->named->name, k->named->len);
    gram_steps(f->b, 1 + f->n_patterns / 32);
    for (uint32_t i = 0; i < f->n_patterns; i++)
        if (same_pattern(f->patterns[i], pattern)) return k->class >> i & 1;
    return false;
}

/* An unknown pattern may match: nothing is said of such a key, so that the language only widens. */
static bool matches_any(const struct gram_object_facts *f, const struct key *k,
                        const struct gram_js *schema)
{
    const struct gram_js *patterns = gram_js_get(schema, "patternProperties");
    gram_steps(f->b, 1);
    for (const struct gram_js *p = patterns ? patterns->child : NULL; p; p = p->next)
        if (is_unknown(p) || matches(f, k, p)) return true;
    return false;
}

/* The schema, or one that is applied in place with it, looks at the key. */
static bool is_evaluated(const struct gram_object_facts *f, const struct key *k,
                         const struct gram_js *schema, bool inner)
{
    gram_steps(f->b, 2);
    if (schema->type != GRAM_JS_OBJECT) return false;
    const struct gram_js *properties = gram_js_get(schema, "properties");
    if (gram_js_get(schema, "additionalProperties")) return true;
    if (inner && gram_js_get(schema, "unevaluatedProperties")) return true;
    if (k->named && properties && gram_js_get_n(properties, k->named->name, k->named->len))
        return true;
    if (matches_any(f, k, schema)) return true;
    struct gram_js *ref = gram_js_get(schema, "$ref"), *all = gram_js_get(schema, "allOf");
    if (ref && is_evaluated(f, k, gram_resolve(f->b, ref), true)) return true;
    for (const struct gram_js *s = all ? all->child : NULL; s; s = s->next)
        if (is_evaluated(f, k, s, true)) return true;
    return false;
}

/* additionalProperties of the schema is about the key. */
static bool is_additional(const struct gram_object_facts *f, const struct key *k,
                          const struct gram_js *schema)
{
    uint32_t n = 0;
    for (const struct gram_key_schema *s = k->named ? k->named->schemas : NULL; s; s = s->next) {
        if (++n % 32 == 0) gram_steps(f->b, 1);
        if (s->item->kw == GRAM_KW_PROPERTIES && s->item->schema == schema) return false;
    }
    return !matches_any(f, k, schema);
}

struct members {
    struct gram_member *list;
    uint32_t n, cap;
    bool is_false;
    uint32_t n_seen; /* schemas of the key that were looked at */
};

static void push_member(struct gram_build *b, struct members *m, const struct gram_js *schema,
                        bool negated)
{
    if (schema->type == GRAM_JS_FALSE && !negated) m->is_false = true;
    m->list = gram_grow(b, m->list, m->n, &m->cap, sizeof(*m->list));
    m->list[m->n++] = (struct gram_member){(struct gram_js *)schema, negated};
}

static void push_item(const struct gram_object_facts *f, struct members *m,
                      const struct gram_item *item, const struct key *k)
{
    bool applies = false;
    switch (item->kw) {
    case GRAM_KW_PROPERTIES:
    case GRAM_KW_NOT_PROPERTY:
        for (const struct gram_key_schema *s = k->named ? k->named->schemas : NULL; s;
             s = s->next) {
            if (++m->n_seen % 32 == 0) gram_steps(f->b, 1);
            if (s->item == item) push_member(f->b, m, s->schema, item->kw == GRAM_KW_NOT_PROPERTY);
        }
        break;
    case GRAM_KW_PATTERN_PROPERTIES:
        for (const struct gram_js *p = item->value->child; p; p = p->next)
            if (!is_unknown(p) && matches(f, k, p)) push_member(f->b, m, p, false);
        break;
    case GRAM_KW_ADDITIONAL_PROPERTIES: applies = is_additional(f, k, item->schema); break;
    case GRAM_KW_UNEVALUATED_PROPERTIES: applies = !is_evaluated(f, k, item->schema, false); break;
    default: break;
    }
    if (applies) push_member(f->b, m, item->value, false);
}

static uint32_t value_of(const struct gram_object_facts *f, const struct key *k)
{
    struct members m = {0};
    for (uint32_t i = 0; i < f->alt->n; i++)
        push_item(f, &m, f->items[i], k);
    gram_steps(f->b, 1 + f->alt->n / 16);
    return m.is_false ? GRAM_NONE : gram_goal(f->b, m.list, m.n);
}

uint32_t gram_value_of_key(struct gram_object_facts *f, const struct gram_named_key *key)
{
    if (key->forbidden || (f->has_names && !gram_name_fits(f, key->name, key->len)))
        return GRAM_NONE;
    return value_of(f, &(struct key){.named = key});
}

uint32_t gram_value_of_class(const struct gram_object_facts *f, uint64_t patterns)
{
    return value_of(f, &(struct key){.class = patterns});
}
