/* SPDX-License-Identifier: MIT */
/* Arrays: items by their place, counts, unique items. */
#include "tokenizer/grammar/schema/goals.h"

/* The schemas that one schema of the alternative has for items. */
struct group {
    const struct gram_js *prefix; /* an array, or NULL */
    const struct gram_js *next;   /* its item whose turn it is */
    const struct gram_js *rest;   /* for the others, or NULL */
    uint32_t from;                /* unevaluatedItems: the first item that it is about */
};

struct facts {
    struct gram_build *b;
    struct group *groups;
    uint32_t n, cap;
    struct gram_count count;
    struct gram_js *unique;
};

static void raise(uint64_t *min, uint64_t n)
{
    if (n > *min) *min = n;
}

static void add_group(struct facts *f, struct group g)
{
    if (g.prefix) g.next = g.prefix->child;
    f->groups = gram_grow(f->b, f->groups, f->n, &f->cap, sizeof(*f->groups));
    f->groups[f->n++] = g;
}

static struct group group_of(const struct gram_js *schema)
{
    struct group g = {.prefix = gram_js_get(schema, "prefixItems")};
    const struct gram_js *items = gram_js_get(schema, "items");
    if (!g.prefix && items && items->type == GRAM_JS_ARRAY) {
        g.prefix = items;
        g.rest = gram_js_get(schema, "additionalItems");
    } else if (items && items->type != GRAM_JS_ARRAY) {
        g.rest = items;
    }
    return g;
}

/* How many items the schema, and those applied in place with it, look at. */
static uint64_t count_evaluated(struct gram_build *b, const struct gram_js *schema, bool inner)
{
    gram_steps(b, 2);
    if (schema->type != GRAM_JS_OBJECT) return 0;
    struct group g = group_of(schema);
    uint64_t n = g.prefix ? g.prefix->n : 0;
    struct gram_js *ref = gram_js_get(schema, "$ref"), *all = gram_js_get(schema, "allOf");
    if (g.rest || (inner && gram_js_get(schema, "unevaluatedItems"))) return GRAM_INFINITE;
    if (ref) raise(&n, count_evaluated(b, gram_resolve(b, ref), true));
    for (const struct gram_js *s = all ? all->child : NULL; s; s = s->next)
        raise(&n, count_evaluated(b, s, true));
    return n;
}

/* A schema's items are one group, which its first keyword about them stands for. */
static void add_items(struct facts *f, const struct gram_item *item)
{
    const struct gram_js *prefix = gram_js_get(item->schema, "prefixItems");
    if (item->kw == GRAM_KW_ITEMS && prefix && prefix != item->value) return;
    add_group(f, group_of(item->schema));
}

static void collect(struct gram_build *b, const struct gram_alt *alt, struct facts *f)
{
    const struct gram_item **items = gram_items(b, alt);
    *f = (struct facts){.b = b, .count.max = GRAM_INFINITE};
    for (uint32_t i = 0; i < alt->n; i++) {
        const struct gram_item *item = items[i];
        uint64_t n;
        gram_count_add(b, &f->count, item, GRAM_KW_MIN_ITEMS, GRAM_KW_MAX_ITEMS);
        switch (item->kw) {
        case GRAM_KW_ITEMS:
        case GRAM_KW_PREFIX_ITEMS: add_items(f, item); break;
        case GRAM_KW_UNEVALUATED_ITEMS:
            n = count_evaluated(b, item->schema, false);
            if (n >= GRAM_INFINITE) break;
            add_group(f, (struct group){.rest = item->value, .from = (uint32_t)n});
            break;
        case GRAM_KW_UNIQUE_ITEMS:
            if (item->value->type == GRAM_JS_TRUE) f->unique = (struct gram_js *)item->value;
            break;
        default: break;
        }
    }
}

/*
 * The schemas of item i, one after the other from 0 on; returns how many there are, or GRAM_NONE if
 * one of them is false.
 */
static uint32_t members_of(struct facts *f, uint64_t i, struct gram_member *out)
{
    uint32_t n = 0;
    gram_steps(f->b, 1 + f->n / 8);
    for (uint32_t k = 0; k < f->n; k++) {
        struct group *g = &f->groups[k];
        const struct gram_js *s = NULL;
        if (g->prefix && i < g->prefix->n) {
            s = g->next;
            g->next = s->next;
        } else if (i >= g->from) {
            s = g->rest;
        }
        if (!s) continue;
        if (s->type == GRAM_JS_FALSE) return GRAM_NONE;
        out[n++] = (struct gram_member){(struct gram_js *)s, false};
    }
    return n;
}

/* Items are values that can be told apart by their spelling. */
static bool can_be_unique(struct gram_build *b, const struct gram_member *members, uint32_t n)
{
    struct gram_alts alts = gram_expand(b, members, n);
    for (uint32_t i = 0; i < alts.n; i++) {
        uint32_t types = alts.alts[i].types;
        for (const struct gram_item *k = alts.alts[i].last; k; k = k->before) {
            bool listed = !k->negated && (k->kw == GRAM_KW_CONST || k->kw == GRAM_KW_ENUM);
            if (listed) types &= ~(uint32_t)GRAM_T_FRACTION;
        }
        if (types & (GRAM_T_FRACTION | GRAM_T_ARRAY | GRAM_T_OBJECT)) return false;
    }
    return true;
}

static void set_unique(struct gram_build *b, struct facts *f, struct gram_array *a)
{
    struct gram_member *members = gram_temp_array(b, f->n + 1, sizeof(*members));
    if (!f->unique || a->max <= 1) return;
    uint32_t n = a->n_prefix ? GRAM_NONE : members_of(f, 0, members);
    if (n != GRAM_NONE && can_be_unique(b, members, n))
        a->unique = true;
    else
        gram_relax(b, f->unique, "it can only be left out");
}

static void set_items(struct gram_build *b, struct facts *f, struct gram_array *a)
{
    struct gram_member *members = gram_temp_array(b, f->n + 1, sizeof(*members));
    uint64_t n_prefix = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        if (f->groups[k].prefix) raise(&n_prefix, f->groups[k].prefix->n);
        raise(&n_prefix, f->groups[k].from);
    }
    if (n_prefix > a->max) n_prefix = a->max;
    uint32_t *prefix = gram_keep_array(b, n_prefix, sizeof(*prefix));
    for (uint32_t i = 0; i < n_prefix; i++) {
        uint32_t n = members_of(f, i, members);
        if (n == GRAM_NONE) {
            a->max = n_prefix = i;
            break;
        }
        prefix[i] = gram_goal(b, members, n);
    }
    a->prefix = prefix;
    a->n_prefix = (uint32_t)n_prefix;
    a->rest = GRAM_NONE;
    if (a->max <= n_prefix) return;
    uint32_t n = members_of(f, n_prefix, members);
    if (n == GRAM_NONE)
        a->max = (uint32_t)n_prefix;
    else
        a->rest = gram_goal(b, members, n);
}

void gram_build_array(struct gram_build *b, struct gram_value_draft *d, const struct gram_alt *alt)
{
    struct facts f;
    struct gram_array a = {.n_prefix = 0};
    collect(b, alt, &f);
    if (f.count.min <= f.count.max && f.count.min < GRAM_INFINITE) {
        a.min = (uint32_t)f.count.min;
        a.max = f.count.max < GRAM_INFINITE ? (uint32_t)f.count.max : GRAM_INFINITE;
        set_items(b, &f, &a);
        set_unique(b, &f, &a);
    }
    if (f.count.min > f.count.max || f.count.min >= GRAM_INFINITE || a.min > a.max) {
        uint64_t max = f.count.min <= f.count.max && a.max < f.count.max ? a.max : f.count.max;
        gram_note_reason(b, d->value, NULL,
                         gram_text(b, "minItems is %llu and maxItems is %llu",
                                   (unsigned long long)f.count.min, (unsigned long long)max));
        return;
    }
    gram_add_branch(b, d, GRAM_BRANCH_ARRAY, gram_add_array(b, &a));
}
