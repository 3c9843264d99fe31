/* SPDX-License-Identifier: MIT */
/*
 * oneOf, and the contradictions that show that branches are disjoint: their types, constants and
 * enums, lengths and bounds, keys that one requires and the other forbids, and the same for the
 * values of keys that both require.
 */
#include <assert.h>
#include <string.h>

#include "tokenizer/grammar/schema/goals.h"

/* ---- contradictions ------------------------------------------------------------------------ */

/* There are constants or enums, and no value fits all of them. */
static bool values_contradict(struct gram_build *b, const struct gram_alt *alt)
{
    const struct gram_item *first = alt->last;
    while (first && (!gram_is_values(first) || first->negated))
        first = first->before;
    if (!first) return false;
    for (const struct gram_js *v = NULL; (v = gram_next_listed(first, v));)
        if (gram_lists_fit(b, alt, NULL, v)) return false;
    return true;
}

/* A pair of keywords that count something allows no count. */
static bool counts_contradict(struct gram_build *b, const struct gram_alt *alt, enum gram_kw min,
                              enum gram_kw max)
{
    struct gram_count r = {0, GRAM_INFINITE};
    for (const struct gram_item *i = alt->last; i; i = i->before)
        gram_count_add(b, &r, i, min, max);
    return r.min > r.max;
}

static bool same_name(const struct gram_item *i, const char *name, uint32_t len)
{
    return i->name_len == len && memcmp(i->name, name, len) == 0;
}

/*
 * The schemas that apply to the value of a key, as far as `properties` says. False if the key must
 * not be there.
 */
static bool collect_members(struct gram_build *b, const struct gram_alt *alt, const char *name,
                            uint32_t len, struct gram_member *out, uint32_t max, uint32_t *ret_n)
{
    uint32_t n = 0;
    gram_steps(b, 1 + alt->n / 16);
    for (const struct gram_item *i = alt->last; i; i = i->before) {
        if (i->kw == GRAM_KW_ABSENT && same_name(i, name, len)) return false;
        if (n == max) continue;
        if (i->kw == GRAM_KW_PROPERTIES) {
            struct gram_js *s = gram_js_get_n(i->value, name, len);
            gram_steps(b, 1);
            if (s) out[n++] = (struct gram_member){s, false};
        } else if (i->kw == GRAM_KW_NOT_PROPERTY && same_name(i, name, len)) {
            out[n++] = (struct gram_member){(struct gram_js *)i->value, true};
        }
    }
    *ret_n = n;
    return true;
}

static bool alt_contradicts(struct gram_build *b, const struct gram_alt *alt, int depth);

/* A key that must be there has no value. */
static bool key_contradicts(struct gram_build *b, const struct gram_alt *alt, const char *name,
                            uint32_t len, int depth)
{
    enum { MAX_MEMBERS = 8 };
    struct gram_member members[MAX_MEMBERS];
    bool contradicts = true;
    uint32_t n;
    if (!collect_members(b, alt, name, len, members, depth ? MAX_MEMBERS : 0, &n)) return true;
    if (n < 2 && !(n == 1 && members[0].schema->type == GRAM_JS_FALSE)) return false;
    b->schema->level++;
    struct gram_alts alts = {0};
    gram_alts_push(b, &alts, (struct gram_alt){.types = GRAM_T_ALL});
    for (uint32_t i = 0; i < n; i++)
        alts = gram_apply(b, alts, members[i].schema, members[i].negated);
    for (uint32_t i = 0; i < alts.n && contradicts; i++)
        contradicts = alt_contradicts(b, &alts.alts[i], depth - 1);
    assert(b->schema->level > 0);
    b->schema->level--;
    return contradicts && !alts.too_many;
}

static bool object_contradicts(struct gram_build *b, const struct gram_alt *alt, int depth)
{
    for (const struct gram_item *i = alt->last; i; i = i->before) {
        if (i->kw == GRAM_KW_PRESENT && key_contradicts(b, alt, i->name, i->name_len, depth))
            return true;
        if (i->kw != GRAM_KW_REQUIRED) continue;
        for (const struct gram_js *v = i->value->child; v; v = v->next)
            if (key_contradicts(b, alt, v->text, v->len, depth)) return true;
    }
    return counts_contradict(b, alt, GRAM_KW_MIN_PROPERTIES, GRAM_KW_MAX_PROPERTIES);
}

static bool alt_contradicts(struct gram_build *b, const struct gram_alt *alt, int depth)
{
    uint32_t types = alt->types;
    gram_steps(b, 1 + alt->n / 2);
    if (!types || values_contradict(b, alt)) return true;
    if ((types & GRAM_T_STRING) &&
        counts_contradict(b, alt, GRAM_KW_MIN_LENGTH, GRAM_KW_MAX_LENGTH))
        types &= ~(uint32_t)GRAM_T_STRING;
    if ((types & GRAM_T_ARRAY) && counts_contradict(b, alt, GRAM_KW_MIN_ITEMS, GRAM_KW_MAX_ITEMS))
        types &= ~(uint32_t)GRAM_T_ARRAY;
    if ((types & GRAM_T_NUMBER) && !gram_number_possible(b, alt)) types &= ~(uint32_t)GRAM_T_NUMBER;
    if ((types & GRAM_T_OBJECT) && object_contradicts(b, alt, depth))
        types &= ~(uint32_t)GRAM_T_OBJECT;
    return types == 0;
}

/* ---- oneOf --------------------------------------------------------------------------------- */

/* No value fits both schemas, as far as it shows. */
static bool are_disjoint(struct gram_build *b, struct gram_js *x, struct gram_js *y)
{
    enum { MAX_LOOKED_AT = 64 };
    struct gram_alts alts = {0};
    bool disjoint = true;
    b->schema->level++;
    gram_alts_push(b, &alts, (struct gram_alt){.types = GRAM_T_ALL});
    alts = gram_apply(b, alts, x, false);
    if (alts.n <= MAX_LOOKED_AT) alts = gram_apply(b, alts, y, false);
    if (alts.n > MAX_LOOKED_AT || alts.too_many) disjoint = false;
    for (uint32_t i = 0; i < alts.n && disjoint; i++)
        disjoint = alt_contradicts(b, &alts.alts[i], 2);
    assert(b->schema->level > 0);
    b->schema->level--;
    return disjoint;
}

/* The pairs of branches that may overlap, as a matrix; returns how many there are. */
static uint32_t find_overlaps(struct gram_build *b, const struct gram_js *list, uint8_t *overlap,
                              uint32_t ret_first[2])
{
    uint32_t n = 0, i = 0, j;
    for (struct gram_js *x = list->child; x; x = x->next, i++) {
        j = i + 1;
        for (struct gram_js *y = x->next; y; y = y->next, j++) {
            if (are_disjoint(b, x, y)) continue;
            overlap[i * list->n + j] = overlap[j * list->n + i] = 1;
            if (n++ == 0) ret_first[0] = i, ret_first[1] = j;
        }
        assert(j == list->n);
    }
    return n;
}

struct gram_alts gram_drop_contradictions(struct gram_build *b, struct gram_alts in)
{
    struct gram_alts out = {.too_many = in.too_many};
    for (uint32_t i = 0; i < in.n; i++)
        if (!alt_contradicts(b, &in.alts[i], 2)) gram_alts_push(b, &out, in.alts[i]);
    return out;
}

/*
 * Each branch, and none of those it may overlap with. False if that cannot be said, or is too long.
 */
static bool apply_exactly(struct gram_build *b, struct gram_alts in, const struct gram_js *list,
                          const uint8_t *overlap, struct gram_alts *ret)
{
    struct gram_alts out = {0};
    uint32_t i = 0, j;
    for (struct gram_js *x = list->child; x; x = x->next, i++) {
        struct gram_alts one = gram_apply(b, in, x, false);
        j = 0;
        for (struct gram_js *y = list->child; y; y = y->next, j++) {
            if (!overlap[i * list->n + j]) continue;
            if (!gram_can_negate(b, y)) return false;
            one = gram_drop_contradictions(b, gram_apply(b, one, y, true));
            if (one.too_many || one.n > GRAM_MAX_ALTERNATIVES / 2) return false;
        }
        out = gram_alts_join(b, out, one);
        if (out.too_many || out.n > GRAM_MAX_ALTERNATIVES) return false;
    }
    *ret = out;
    return true;
}

struct gram_alts gram_apply_one_of(struct gram_build *b, struct gram_alts in, struct gram_js *list)
{
    uint32_t first[2] = {0, 0};
    struct gram_alts out = {0};
    if (list->n == 1) return gram_apply(b, in, list->child, false);
    if (b->schema->level > 1) { /* a look only: more is as good */
        for (struct gram_js *s = list->child; s; s = s->next)
            out = gram_alts_join(b, out, gram_apply(b, in, s, false));
        return out;
    }
    uint8_t *overlap = gram_temp_array(b, list->n, list->n);
    if (find_overlaps(b, list, overlap, first)) {
        if (apply_exactly(b, in, list, overlap, &out)) return out;
        gram_relax(b, list,
                   gram_text(b,
                             "branches %u and %u may overlap; it can only be treated as "
                             "anyOf",
                             first[0], first[1]));
    }
    return gram_apply_any_of(b, in, list, "oneOf");
}
