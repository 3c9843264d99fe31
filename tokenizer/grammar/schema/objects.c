/* SPDX-License-Identifier: MIT */
/*
 * Objects: all names that an alternative mentions, in their order, with the schemas that apply to
 * their values; counts; dependencies.
 */

#include "tokenizer/grammar/rules.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/grammar/schema/keys.h"
#include "tokenizer/grammar/vocab.h"

/* ---- reading the alternative --------------------------------------------------------------- */

static void add_schema(struct gram_build *b, struct gram_named_key *k, const struct gram_item *item,
                       struct gram_js *schema)
{
    struct gram_key_schema *s = gram_temp(b, sizeof(*s));
    *s = (struct gram_key_schema){.item = item, .schema = schema};
    if (k->last_schema)
        k->last_schema->next = s;
    else
        k->schemas = s;
    k->last_schema = s;
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
    for (int quiet = 0; quiet < 2; quiet++)
        for (uint32_t i = 0; i < f->alt->n; i++) {
            const struct gram_item *item = f->items[i];
            bool names = item->kw == GRAM_KW_NOT_PROPERTY || item->kw == GRAM_KW_PROPERTIES;
            if (names && item->quiet == quiet) read_names(f, item);
        }
}

static void require(struct gram_object_facts *f, const char *name, uint32_t len)
{
    struct gram_named_key *k = gram_named_key(f->b, &f->list, name, len);
    k->declared = true;
    k->required = true;
}

/* Names of dependencies that nothing else mentions may come among the free keys. */
static void read_wants(struct gram_object_facts *f, const struct gram_item *item)
{
    gram_named_key(f->b, &f->list, item->name, item->name_len)->watched = true;
    for (const struct gram_js *v = item->value->child; v; v = v->next) {
        struct gram_named_key *k = gram_named_key(f->b, &f->list, v->text, v->len);
        k->watched = k->wanted = true;
    }
}

static void read_others(struct gram_object_facts *f)
{
    for (uint32_t i = 0; i < f->alt->n; i++) {
        const struct gram_item *item = f->items[i];
        gram_count_add(f->b, &f->count, item, GRAM_KW_MIN_PROPERTIES, GRAM_KW_MAX_PROPERTIES);
        switch (item->kw) {
        case GRAM_KW_REQUIRED:
            for (const struct gram_js *v = item->value->child; v; v = v->next)
                require(f, v->text, v->len);
            break;
        case GRAM_KW_PRESENT: require(f, item->name, item->name_len); break;
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

/*
 * The merged object declares properties and says nothing about other keys. With minProperties it
 * may need some: see may_open of struct gram_object, which is not for patterns.
 */
static bool is_closed(const struct gram_object_facts *f)
{
    bool properties = false;
    for (uint32_t i = 0; i < f->alt->n; i++) {
        const struct gram_item *item = f->items[i];
        properties |= item->kw == GRAM_KW_PROPERTIES && !item->quiet;
        if (item->kw == GRAM_KW_ADDITIONAL_PROPERTIES || item->kw == GRAM_KW_UNEVALUATED_PROPERTIES)
            return false;
    }
    if (f->has_unknown || (f->count.min > 0 && (f->n_patterns || f->has_names))) return false;
    return properties && f->b->options->closed_objects;
}

/* ---- the node ------------------------------------------------------------------------------ */

/* Declared keys first, in their order; the others after them. Returns their new numbers. */
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
    const struct gram_js *last = NULL;
    uint32_t n = 0, cap = 0;
    for (uint32_t i = 0; i < f->alt->n; i++) {
        const struct gram_item *item = f->items[i];
        if (item->kw != GRAM_KW_WANTS || !item->value->n) continue;
        struct gram_named_key *k = gram_named_key(f->b, &f->list, item->name, item->name_len);
        uint32_t if_key = number[k - f->list.keys];
        last = item->value;
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
        gram_leave_out(f->b, last->parent, last->parent->key,
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
        .b = b, .alt = alt, .items = gram_items(b, alt), .count.max = GRAM_INFINITE};
    read_properties(f);
    read_others(f);
    gram_collect_patterns(f);
    f->closed = is_closed(f);
    for (uint32_t i = 0; i < f->list.n; i++) {
        const struct gram_named_key *k = &f->list.keys[i];
        bool possible = !f->closed || k->declared || k->wanted;
        uint32_t value = possible ? gram_value_of_key(f, k) : GRAM_NONE;
        f->list.keys[i].value = value;
    }
    return f;
}

void gram_build_object(struct gram_build *b, struct gram_value_draft *d, const struct gram_alt *alt)
{
    struct gram_object_facts *f = read_facts(b, alt);
    struct gram_object o = {.n_keys = 0};
    if (f->count.min > f->count.max || f->count.min >= GRAM_INFINITE) {
        gram_note_reason(b, d->value, NULL,
                         gram_text(b, "minProperties is %llu and maxProperties is %llu",
                                   (unsigned long long)f->count.min,
                                   (unsigned long long)f->count.max));
        return;
    }
    if (!check_required(f, d)) return;
    o.min = (uint32_t)f->count.min;
    o.max = f->count.max < GRAM_INFINITE ? (uint32_t)f->count.max : GRAM_INFINITE;
    gram_find_free_keys(f, &o);
    uint32_t *number = order_keys(f, &o);
    add_keys(f, &o, number);
    add_dependencies(f, &o, number);
    if (o.free_kind == GRAM_FREE_DFA) gram_object_build_free(b, &o);
    gram_add_branch(b, d, GRAM_BRANCH_OBJECT, gram_add_object(b, &o));
}
