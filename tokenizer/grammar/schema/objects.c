/* SPDX-License-Identifier: MIT */
/*
 * Objects: all names that an alternative mentions, in their order, with the schemas that apply to
 * their values; counts; dependencies.
 */
#include <string.h>

#include "tokenizer/grammar/schema/goals.h"
#include "tokenizer/grammar/schema/keys.h"
#include "tokenizer/grammar/vocab.h"

/* ---- the list of names --------------------------------------------------------------------- */

static uint32_t hash_name(const char *name, uint32_t len)
{
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)name[i]) * 16777619u;
    return h;
}

static void rehash(struct gram_build *b, struct gram_key_list *list)
{
    list->n_buckets = list->n_buckets ? list->n_buckets * 4 : 16;
    list->buckets = gram_temp_array(b, list->n_buckets, sizeof(*list->buckets));
    for (uint32_t i = 0; i < list->n; i++) {
        struct gram_named_key *k = &list->keys[i];
        uint32_t *bucket = &list->buckets[hash_name(k->name, k->len) % list->n_buckets];
        k->hash_next = *bucket;
        *bucket = i + 1;
    }
}

struct gram_named_key *gram_named_key(struct gram_build *b, struct gram_key_list *list,
                                      const char *name, uint32_t len)
{
    if (list->n >= list->n_buckets) rehash(b, list);
    uint32_t *bucket = &list->buckets[hash_name(name, len) % list->n_buckets];
    for (uint32_t i = *bucket; i; i = list->keys[i - 1].hash_next)
        if (list->keys[i - 1].len == len && memcmp(list->keys[i - 1].name, name, len) == 0)
            return &list->keys[i - 1];
    gram_steps(b, 1 + len / 32);
    list->keys = gram_grow(b, list->keys, list->n, &list->cap, sizeof(*list->keys));
    struct gram_named_key *k = &list->keys[list->n];
    *k =
        (struct gram_named_key){.name = name, .len = len, .hash_next = *bucket, .value = GRAM_NONE};
    *bucket = ++list->n;
    return k;
}

/* ---- reading the alternative --------------------------------------------------------------- */

static void add_schema(struct gram_build *b, struct gram_named_key *k, const struct gram_item *item,
                       struct gram_js *schema)
{
    struct gram_key_schema *s = gram_temp(b, sizeof(*s)), **last = &k->schemas;
    *s = (struct gram_key_schema){.item = item, .schema = schema};
    while (*last)
        last = &(*last)->next;
    *last = s;
}

static void read_names(struct gram_object_facts *f, const struct gram_item *item)
{
    if (item->kw == GRAM_KW_NOT_PROPERTY) {
        struct gram_named_key *k = gram_named_key(f->b, &f->list, item->name, item->name_len);
        k->declared = true;
        add_schema(f->b, k, item, (struct gram_js *)item->value);
    }
    for (struct gram_js *s = item->value->child; item->kw == GRAM_KW_PROPERTIES && s; s = s->next) {
        struct gram_named_key *k = gram_named_key(f->b, &f->list, s->key, s->key_len);
        k->declared = true;
        add_schema(f->b, k, item, s);
    }
}

/* Names of `properties` in order, those of conditions last. */
static void read_properties(struct gram_object_facts *f)
{
    for (int quiet = 0; quiet < 2; quiet++) {
        for (uint32_t i = 0; i < f->alt->n; i++) {
            const struct gram_item *item = f->items[i];
            bool names = item->kw == GRAM_KW_NOT_PROPERTY || item->kw == GRAM_KW_PROPERTIES;
            if (names && item->quiet == quiet) read_names(f, item);
        }
    }
}

static void require(struct gram_object_facts *f, const char *name, uint32_t len)
{
    struct gram_named_key *k = gram_named_key(f->b, &f->list, name, len);
    k->declared = true;
    k->required = true;
}

static void raise(uint64_t *min, uint64_t n)
{
    if (n > *min) *min = n;
}

static void read_count(struct gram_object_facts *f, const struct gram_item *item)
{
    uint64_t n = gram_count_of(f->b, item->value);

    if ((item->kw == GRAM_KW_MIN_PROPERTIES) != item->negated) {
        raise(&f->min, n + item->negated);
    } else if (n == 0 && item->negated) {
        f->min = UINT64_MAX;
    } else if (n - item->negated < f->max) {
        f->max = n - item->negated;
    }
}

/* Names of dependencies that nothing else mentions may come among the free keys. */
static void read_wants(struct gram_object_facts *f, const struct gram_item *item)
{
    gram_named_key(f->b, &f->list, item->name, item->name_len)->watched = true;
    for (const struct gram_js *v = item->value->child; v; v = v->next)
        gram_named_key(f->b, &f->list, v->text, v->len)->watched = true;
}

static void read_others(struct gram_object_facts *f)
{
    for (uint32_t i = 0; i < f->alt->n; i++) {
        const struct gram_item *item = f->items[i];
        switch (item->kw) {
        case GRAM_KW_REQUIRED:
            for (const struct gram_js *v = item->value->child; v; v = v->next)
                require(f, v->text, v->len);
            break;
        case GRAM_KW_PRESENT: require(f, item->name, item->name_len); break;
        case GRAM_KW_MIN_PROPERTIES:
        case GRAM_KW_MAX_PROPERTIES: read_count(f, item); break;
        default: break;
        }
    }
    for (uint32_t i = 0; i < f->alt->n; i++) {
        const struct gram_item *item = f->items[i];
        if (item->kw == GRAM_KW_ABSENT)
            gram_named_key(f->b, &f->list, item->name, item->name_len)->forbidden = true;
        if (item->kw == GRAM_KW_WANTS && item->value->n) read_wants(f, item);
    }
}

/* ---- values of keys ------------------------------------------------------------------------ */

/* The key's schema in the `properties` of a schema. */
static struct gram_js *own_property(const struct gram_named_key *k, const struct gram_js *schema)
{
    for (const struct gram_key_schema *s = k->schemas; s; s = s->next)
        if (s->item->kw == GRAM_KW_PROPERTIES && s->item->schema == schema) return s->schema;
    return NULL;
}

static bool pattern_matches(struct gram_build *b, const struct gram_js *pattern, const char *name,
                            uint32_t len)
{
    return gram_pattern_matches(b, pattern, "patternProperties", pattern->key, pattern->key_len,
                                name, len);
}

/* The schema, or one that is applied in place with it, looks at the key. */
static bool is_evaluated(struct gram_build *b, const struct gram_js *schema, const char *name,
                         uint32_t len, bool inner)
{
    if (schema->type != GRAM_JS_OBJECT) return false;
    const struct gram_js *properties = gram_js_get(schema, "properties");
    const struct gram_js *patterns = gram_js_get(schema, "patternProperties");
    if (gram_js_get(schema, "additionalProperties")) return true;
    if (inner && gram_js_get(schema, "unevaluatedProperties")) return true;
    if (properties && gram_js_get_n(properties, name, len)) return true;
    for (const struct gram_js *p = patterns ? patterns->child : NULL; p; p = p->next)
        if (pattern_matches(b, p, name, len)) return true;
    struct gram_js *ref = gram_js_get(schema, "$ref"), *all = gram_js_get(schema, "allOf");
    if (ref && is_evaluated(b, gram_resolve(b, ref), name, len, true)) return true;
    for (const struct gram_js *s = all ? all->child : NULL; s; s = s->next)
        if (is_evaluated(b, s, name, len, true)) return true;
    return false;
}

/* additionalProperties of the item's schema is about the key. */
static bool is_additional(struct gram_object_facts *f, const struct gram_item *item,
                          const struct gram_named_key *k)
{
    const struct gram_js *patterns = gram_js_get(item->schema, "patternProperties");

    if (own_property(k, item->schema)) return false;
    for (const struct gram_js *p = patterns ? patterns->child : NULL; p; p = p->next)
        if (pattern_matches(f->b, p, k->name, k->len)) return false;
    return true;
}

struct members {
    struct gram_member *list;
    uint32_t n, cap;
    bool is_false;
};

static void push_member(struct gram_build *b, struct members *m, const struct gram_js *schema,
                        bool negated)
{
    if (schema->type == GRAM_JS_FALSE && !negated) m->is_false = true;
    m->list = gram_grow(b, m->list, m->n, &m->cap, sizeof(*m->list));
    m->list[m->n++] = (struct gram_member){(struct gram_js *)schema, negated};
}

static void push_item(struct gram_object_facts *f, struct members *m, const struct gram_item *item,
                      const struct gram_named_key *k)
{
    switch (item->kw) {
    case GRAM_KW_PROPERTIES: {
        for (const struct gram_key_schema *s = k->schemas; s; s = s->next)
            if (s->item == item) push_member(f->b, m, s->schema, false);
        break;
    }
    case GRAM_KW_NOT_PROPERTY:
        if (item->name_len == k->len && memcmp(item->name, k->name, k->len) == 0)
            push_member(f->b, m, item->value, true);
        break;
    case GRAM_KW_PATTERN_PROPERTIES:
        for (const struct gram_js *p = item->value->child; p; p = p->next)
            if (pattern_matches(f->b, p, k->name, k->len)) push_member(f->b, m, p, false);
        break;
    case GRAM_KW_ADDITIONAL_PROPERTIES:
        if (is_additional(f, item, k)) push_member(f->b, m, item->value, false);
        break;
    case GRAM_KW_UNEVALUATED_PROPERTIES:
        if (!is_evaluated(f->b, item->schema, k->name, k->len, false))
            push_member(f->b, m, item->value, false);
        break;
    default: break;
    }
}

uint32_t gram_value_of_key(struct gram_object_facts *f, const struct gram_named_key *key)
{
    struct members m = {0};

    if (key->forbidden || (f->has_names && !gram_name_fits(f, key->name, key->len)))
        return GRAM_NONE;
    for (uint32_t i = 0; i < f->alt->n; i++)
        push_item(f, &m, f->items[i], key);
    return m.is_false ? GRAM_NONE : gram_goal(f->b, m.list, m.n);
}

/* ---- values of free keys ------------------------------------------------------------------- */

static bool in_class(const struct gram_object_facts *f, uint64_t class,
                     const struct gram_js *pattern)
{
    for (uint32_t i = 0; i < f->n_patterns; i++)
        if (f->patterns[i]->key_len == pattern->key_len &&
            memcmp(f->patterns[i]->key, pattern->key, pattern->key_len) == 0)
            return class >> i & 1;
    return false;
}

static bool class_is_evaluated(const struct gram_object_facts *f, const struct gram_js *schema,
                               uint64_t class, bool inner)
{
    if (schema->type != GRAM_JS_OBJECT) return false;
    const struct gram_js *patterns = gram_js_get(schema, "patternProperties");
    if (gram_js_get(schema, "additionalProperties")) return true;
    if (inner && gram_js_get(schema, "unevaluatedProperties")) return true;
    for (const struct gram_js *p = patterns ? patterns->child : NULL; p; p = p->next)
        if (in_class(f, class, p)) return true;
    struct gram_js *ref = gram_js_get(schema, "$ref"), *all = gram_js_get(schema, "allOf");
    if (ref && class_is_evaluated(f, gram_resolve(f->b, ref), class, true)) return true;
    for (const struct gram_js *s = all ? all->child : NULL; s; s = s->next)
        if (class_is_evaluated(f, s, class, true)) return true;
    return false;
}

static bool class_is_additional(const struct gram_object_facts *f, const struct gram_item *item,
                                uint64_t class)
{
    const struct gram_js *patterns = gram_js_get(item->schema, "patternProperties");
    for (const struct gram_js *p = patterns ? patterns->child : NULL; p; p = p->next)
        if (in_class(f, class, p)) return false;
    return true;
}

uint32_t gram_value_of_class(struct gram_object_facts *f, uint64_t class)
{
    struct members m = {0};

    for (uint32_t i = 0; i < f->alt->n; i++) {
        const struct gram_item *item = f->items[i];
        if (item->kw == GRAM_KW_PATTERN_PROPERTIES) {
            for (const struct gram_js *p = item->value->child; p; p = p->next)
                if (in_class(f, class, p)) push_member(f->b, &m, p, false);
        } else if (item->kw == GRAM_KW_ADDITIONAL_PROPERTIES) {
            if (class_is_additional(f, item, class)) push_member(f->b, &m, item->value, false);
        } else if (item->kw == GRAM_KW_UNEVALUATED_PROPERTIES) {
            if (!class_is_evaluated(f, item->schema, class, false))
                push_member(f->b, &m, item->value, false);
        }
    }
    return m.is_false ? GRAM_NONE : gram_goal(f->b, m.list, m.n);
}

/* ---- the node ------------------------------------------------------------------------------ */

/* Declared keys first, in their order; the others behind them. Returns their new numbers. */
static uint32_t *order_keys(struct gram_object_facts *f, struct gram_object *o)
{
    uint32_t *number = gram_temp_array(f->b, f->list.n + 1, sizeof(*number)), n = 0;

    for (int declared = 1; declared >= 0; declared--) {
        for (uint32_t i = 0; i < f->list.n; i++)
            if (f->list.keys[i].declared == declared) number[i] = n++;
        if (declared) o->n_declared = n;
    }
    o->n_keys = n;
    return number;
}

static void add_keys(struct gram_object_facts *f, struct gram_object *o, const uint32_t *number)
{
    struct gram_build *b = f->b;
    struct gram_trie_builder trie = {0};

    o->keys = gram_temp_array(b, o->n_keys + 1, sizeof(*o->keys));
    for (uint32_t i = 0; i < f->list.n; i++) {
        const struct gram_named_key *k = &f->list.keys[i];
        struct gram_key *key = &o->keys[number[i]];
        size_t len;
        const char *text = gram_json_spell(b, k->name, k->len, &len);
        *key = (struct gram_key){
            .value = k->value, .required = k->required, .watched = k->watched || !k->declared};
        for (size_t c = 0; c < len; c++)
            if (gram_vocab_byte_id(b->vocab, (uint8_t)text[c]) < 0) key->value = GRAM_NONE;
        gram_trie_add(b, &trie, text, len, true, number[i]);
    }
    gram_trie_finish(b, &trie, &o->trie);
}

static void add_dependencies(struct gram_object_facts *f, struct gram_object *o,
                             const uint32_t *number)
{
    struct gram_dependency *list = NULL;
    uint32_t n = 0, cap = 0;

    for (uint32_t i = 0; i < f->alt->n; i++) {
        const struct gram_item *item = f->items[i];
        if (item->kw != GRAM_KW_WANTS || !item->value->n) continue;
        struct gram_named_key *k = gram_named_key(f->b, &f->list, item->name, item->name_len);
        uint32_t if_key = number[k - f->list.keys];
        for (const struct gram_js *v = item->value->child; v; v = v->next) {
            k = gram_named_key(f->b, &f->list, v->text, v->len);
            uint32_t then_key = number[k - f->list.keys];
            if (then_key == if_key) continue;
            list = gram_grow(f->b, list, n, &cap, sizeof(*list));
            list[n++] = (struct gram_dependency){if_key, then_key};
        }
    }
    o->dependencies = gram_keep_copy(f->b, list, n, sizeof(*list));
    o->n_dependencies = n;
    bool complex = o->min > 1 && o->max != GRAM_INFINITE;
    if (n && (complex || o->n_keys > GRAM_MAX_DEPENDENT_KEYS))
        gram_fail_at(f->b, f->items[0]->schema, NULL,
                     "too complex: dependencies together with minProperties and maxProperties.");
}

/* A required key that is impossible by itself; false: the object has no member. */
static bool check_required(struct gram_object_facts *f, struct gram_value_draft *d)
{
    for (uint32_t i = 0; i < f->list.n; i++) {
        const struct gram_named_key *k = &f->list.keys[i];
        if (!k->required || k->value != GRAM_NONE) continue;
        gram_note_reason(f->b, d->value, NULL,
                         gram_text(f->b, "the required property %s is not allowed",
                                   gram_quote(f->b, k->name, k->len)));
        return false;
    }
    return true;
}

static struct gram_object_facts *read_facts(struct gram_build *b, const struct gram_alt *alt)
{
    struct gram_object_facts *f = gram_temp(b, sizeof(*f));

    *f = (struct gram_object_facts){
        .b = b, .alt = alt, .items = gram_items(b, alt), .max = GRAM_INFINITE};
    read_properties(f);
    read_others(f);
    gram_collect_patterns(f);
    for (uint32_t i = 0; i < f->list.n; i++) {
        uint32_t value = gram_value_of_key(f, &f->list.keys[i]);
        f->list.keys[i].value = value;
    }
    return f;
}

void gram_build_object(struct gram_build *b, struct gram_value_draft *d, const struct gram_alt *alt)
{
    struct gram_object_facts *f = read_facts(b, alt);
    struct gram_object o = {.n_keys = 0};

    if (f->min > f->max || f->min >= GRAM_INFINITE) {
        gram_note_reason(b, d->value, NULL,
                         gram_text(b, "minProperties is %llu and maxProperties is %llu",
                                   (unsigned long long)f->min, (unsigned long long)f->max));
        return;
    }
    if (!check_required(f, d)) return;
    o.min = (uint32_t)f->min;
    o.max = f->max < GRAM_INFINITE ? (uint32_t)f->max : GRAM_INFINITE;
    gram_find_free_keys(f, &o);
    uint32_t *number = order_keys(f, &o);
    add_keys(f, &o, number);
    add_dependencies(f, &o, number);
    if (o.free_kind == GRAM_FREE_DFA) gram_object_build_free(b, &o);
    gram_add_branch(b, d, GRAM_BRANCH_OBJECT, gram_add_object(b, &o));
}
