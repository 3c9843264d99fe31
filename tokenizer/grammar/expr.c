/* SPDX-License-Identifier: MIT */
/* Expressions; see expr.h. */
#include "tokenizer/grammar/expr.h"

#include <assert.h>

#include "base/utf8.h"
#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/charset.h"

void gram_ex_push(struct gram_build *b, struct gram_ex_list *list, struct gram_ex *x)
{
    list->items = gram_grow(b, list->items, list->n, &list->cap, sizeof(*list->items));
    list->items[list->n++] = x;
}

struct gram_ex *gram_ex_new(struct gram_build *b, enum gram_ex_kind kind)
{
    struct gram_ex *x = gram_temp(b, sizeof(*x));
    x->kind = (uint8_t)kind;
    x->size = 1;
    x->length = kind == GRAM_EX_SET ? 1 : 0;
    if (kind == GRAM_EX_NONE) x->length = GRAM_INFINITE;
    return x;
}

struct gram_ex *gram_ex_rule(struct gram_build *b, uint32_t rule)
{
    struct gram_ex *x = gram_ex_new(b, GRAM_EX_RULE);
    x->ref = rule;
    x->has_rules = true;
    x->length = GRAM_INFINITE;
    return x;
}

struct gram_ex *gram_ex_set(struct gram_build *b, const struct gram_charset *finished)
{
    struct gram_ex *x = gram_ex_new(b, finished->n ? GRAM_EX_SET : GRAM_EX_NONE);
    x->set = finished;
    return x;
}

struct gram_ex *gram_ex_char(struct gram_build *b, uint32_t cp)
{
    struct gram_charset *s = gram_temp(b, sizeof(*s));
    gram_charset_add(b, s, cp, cp);
    gram_charset_finish(b, s);
    return gram_ex_set(b, s);
}

struct gram_ex *gram_ex_any(struct gram_build *b)
{
    struct gram_charset *s = gram_temp(b, sizeof(*s));
    gram_charset_invert(b, s);
    return gram_ex_set(b, s);
}

struct gram_ex *gram_ex_text(struct gram_build *b, const char *text, size_t len)
{
    struct gram_ex_list list = {0};
    const unsigned char *p = (const unsigned char *)text, *end = p + len;
    while (p < end)
        gram_ex_push(b, &list, gram_ex_char(b, utf8_next(&p)));
    return gram_ex_seq(b, &list);
}

static uint32_t saturated(uint64_t n)
{
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* A sequence or a choice. */
static struct gram_ex *with_kids(struct gram_build *b, enum gram_ex_kind kind,
                                 const struct gram_ex_list *list)
{
    struct gram_ex *x = gram_ex_new(b, kind);
    uint64_t size = 1, length = 0;
    assert(list->n > 0);
    gram_steps(b, 1 + list->n / 8);
    x->kids = list->items;
    x->n = list->n;
    for (uint32_t i = 0; i < x->n; i++) {
        const struct gram_ex *kid = x->kids[i];
        size += kid->size;
        x->has_rules |= kid->has_rules;
        if (kid->looks > x->looks) {
            x->looks = kid->looks;
            x->ref = kid->ref;
        }
        if (kind == GRAM_EX_ALT && i && kid->length != length) length = GRAM_INFINITE;
        if (kind == GRAM_EX_SEQ || !i) length += kid->length;
    }
    x->size = saturated(size);
    x->length = saturated(length);
    return x;
}

struct gram_ex *gram_ex_seq(struct gram_build *b, const struct gram_ex_list *list)
{
    struct gram_ex_list flat = {0};
    for (uint32_t i = 0; i < list->n; i++) {
        struct gram_ex *x = list->items[i];
        if (x->kind == GRAM_EX_NONE) return x;
        if (x->kind == GRAM_EX_EMPTY) continue;
        if (x->kind != GRAM_EX_SEQ) gram_ex_push(b, &flat, x);
        for (uint32_t k = 0; x->kind == GRAM_EX_SEQ && k < x->n; k++)
            gram_ex_push(b, &flat, x->kids[k]);
    }
    if (flat.n == 0) return gram_ex_new(b, GRAM_EX_EMPTY);
    return flat.n == 1 ? flat.items[0] : with_kids(b, GRAM_EX_SEQ, &flat);
}

/* A sequence whose first kid is a set, and that names no rules, which have forms of their own. */
static bool begins_with_set(const struct gram_ex *x)
{
    return x->kind == GRAM_EX_SEQ && x->kids[0]->kind == GRAM_EX_SET && !x->has_rules;
}

/* The kids that all sequences begin with, all of them sets. */
static uint32_t common_prefix(struct gram_build *b, const struct gram_ex_list *list)
{
    const struct gram_ex *first = list->items[0];
    uint32_t n = first->n;
    assert(list->n > 0 && n > 0);
    for (uint32_t i = 1; i < list->n; i++) {
        const struct gram_ex *x = list->items[i];
        uint32_t k = 1;
        while (k < n && k < x->n && first->kids[k]->kind == GRAM_EX_SET &&
               x->kids[k]->kind == GRAM_EX_SET &&
               gram_charset_equal(first->kids[k]->set, x->kids[k]->set))
            k++;
        gram_steps(b, 1 + k / 8);
        n = k;
    }
    return n;
}

struct gram_ex *gram_ex_slice(struct gram_build *b, const struct gram_ex *x, uint32_t from,
                              uint32_t to)
{
    assert(from <= to && to <= x->n);
    struct gram_ex_list list = {.items = x->kids + from, .n = to - from, .cap = to - from};
    return gram_ex_seq(b, &list);
}

/* Sequences that begin alike as one: ab|ac is a(b|c). */
static struct gram_ex *join_sequences(struct gram_build *b, const struct gram_ex_list *list)
{
    struct gram_ex_list rests = {0}, both = {0};
    if (list->n == 1) return list->items[0];
    uint32_t n = common_prefix(b, list);
    for (uint32_t i = 0; i < list->n; i++)
        gram_ex_push(b, &rests, gram_ex_slice(b, list->items[i], n, list->items[i]->n));
    gram_ex_push(b, &both, gram_ex_slice(b, list->items[0], 0, n));
    gram_ex_push(b, &both, gram_ex_alt(b, &rests));
    return gram_ex_seq(b, &both);
}

/*
 * Alternatives that begin with the same set are joined where the first of them is, so that a choice
 * among many words is a tree of few branches.
 */
static struct gram_ex_list join_prefixes(struct gram_build *b, const struct gram_ex_list *list)
{
    struct gram_ex_list *groups = gram_temp_array(b, list->n, sizeof(*groups)), out = {0};
    uint32_t *group_of = gram_temp_array(b, list->n, sizeof(*group_of));
    struct gram_table firsts = {0};
    for (uint32_t i = 0; i < list->n; i++) {
        struct gram_ex *x = list->items[i];
        uint32_t g = out.n, known = firsts.n;
        if (begins_with_set(x)) {
            const struct gram_charset *s = x->kids[0]->set;
            uint32_t first = gram_table_add(b, &firsts, s->ranges, s->n * sizeof(*s->ranges));
            if (first == known) group_of[first] = g;
            g = group_of[first];
        }
        gram_ex_push(b, &groups[g], x);
        if (g == out.n) gram_ex_push(b, &out, x);
    }
    for (uint32_t g = 0; g < out.n; g++)
        out.items[g] = join_sequences(b, &groups[g]);
    return out;
}

/* Sets among the alternatives become one set, where the first of them is. */
struct gram_ex *gram_ex_alt(struct gram_build *b, const struct gram_ex_list *list)
{
    struct gram_ex_list out = {0};
    struct gram_charset *joined = NULL;
    uint32_t n_sets = 0, n_empty = 0, at = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        struct gram_ex *x = list->items[i];
        if (x->kind == GRAM_EX_NONE || (x->kind == GRAM_EX_EMPTY && n_empty++)) continue;
        if (x->kind == GRAM_EX_SET) {
            if (n_sets++ == 0) {
                joined = gram_temp(b, sizeof(*joined));
                at = out.n;
                gram_ex_push(b, &out, x);
            }
            gram_charset_add_set(b, joined, x->set);
            continue;
        }
        gram_ex_push(b, &out, x);
    }
    if (n_sets > 1) {
        gram_charset_finish(b, joined);
        out.items[at] = gram_ex_set(b, joined);
    }
    if (out.n == 0) return gram_ex_new(b, GRAM_EX_NONE);
    out = join_prefixes(b, &out);
    return out.n == 1 ? out.items[0] : with_kids(b, GRAM_EX_ALT, &out);
}

struct gram_ex *gram_ex_rep(struct gram_build *b, struct gram_ex *x, uint32_t min, uint32_t max)
{
    struct gram_ex_list one = {0};
    if (x->kind == GRAM_EX_EMPTY || max == 0) return gram_ex_new(b, GRAM_EX_EMPTY);
    if (x->kind == GRAM_EX_NONE) return min ? x : gram_ex_new(b, GRAM_EX_EMPTY);
    if (min == 1 && max == 1) return x;
    /* (x*)* and (x+)* are x*; so are (x*)+ and (x*)? */
    if (x->kind == GRAM_EX_REP && x->max == GRAM_INFINITE && x->min <= 1 && min <= 1) {
        uint32_t both = x->min < min ? x->min : min;
        return both == x->min ? x : gram_ex_rep(b, x->kids[0], both, GRAM_INFINITE);
    }
    gram_ex_push(b, &one, x);
    struct gram_ex *rep = with_kids(b, GRAM_EX_REP, &one);
    uint64_t times = max == GRAM_INFINITE ? (uint64_t)min + 1 : max;
    uint64_t length = min == max ? (uint64_t)x->length * min : GRAM_INFINITE;
    rep->size = saturated(rep->size * times);
    rep->length = x->length == GRAM_INFINITE ? GRAM_INFINITE : saturated(length);
    rep->min = min;
    rep->max = max;
    return rep;
}

/* ---- look-aheads --------------------------------------------------------------------------- */

bool gram_ex_is_optional(struct gram_build *b, const struct gram_ex *x, const bool *rules)
{
    bool one = x->kind == GRAM_EX_ALT;
    uint32_t i = 0;
    if (x->kind == GRAM_EX_EMPTY || (x->kind == GRAM_EX_REP && x->min == 0)) return true;
    if (x->kind == GRAM_EX_RULE) return rules && rules[x->ref];
    if (x->kind != GRAM_EX_SEQ && x->kind != GRAM_EX_REP && !one) return false;
    while (i < x->n && gram_ex_is_optional(b, x->kids[i], rules) != one)
        i++;
    gram_steps(b, i / 16);
    return one == (i < x->n);
}

struct gram_ex *gram_ex_without_tail(struct gram_build *b, struct gram_ex *x)
{
    uint32_t n = x->n;
    if (gram_ex_is_optional(b, x, NULL)) return gram_ex_new(b, GRAM_EX_EMPTY);
    if (x->kind != GRAM_EX_SEQ) return x;
    while (gram_ex_is_optional(b, x->kids[n - 1], NULL))
        n--;
    return n < x->n ? gram_ex_slice(b, x, 0, n) : x;
}

struct gram_ex *gram_ex_look(struct gram_build *b, struct gram_ex *x, bool negated, uint32_t at)
{
    struct gram_ex_list one = {0};
    x = gram_ex_without_tail(b, x);
    if (x->kind == GRAM_EX_EMPTY || x->kind == GRAM_EX_NONE)
        return gram_ex_new(b, (x->kind == GRAM_EX_EMPTY) != negated ? GRAM_EX_EMPTY : GRAM_EX_NONE);
    if (x->kind == GRAM_EX_END) {
        if (!negated) return x;
        x = gram_ex_any(b);
        negated = false;
    }
    gram_ex_push(b, &one, x);
    bool far = x->kind != GRAM_EX_SET;
    struct gram_ex *look = with_kids(b, far ? GRAM_EX_LOOK : GRAM_EX_NEXT, &one);
    look->looks = far ? GRAM_LOOKS_FAR : GRAM_LOOKS_NEXT;
    look->set = x->set;
    look->negated = negated;
    look->length = 0;
    look->ref = at;
    return look;
}

/* ---- counts -------------------------------------------------------------------------------- */

/* A repetition that is long when written out, of something of fixed length. */
static bool is_long_count(const struct gram_ex *x, uint64_t *ret_unit)
{
    enum { LONG = 8 };
    if (x->kind != GRAM_EX_REP) return false;
    *ret_unit = x->kids[0]->length;
    if (*ret_unit == 0 || *ret_unit == GRAM_INFINITE) return false;
    return x->min > LONG || (x->max > LONG && x->max != GRAM_INFINITE);
}

/* The only kid of varying or long count, if all others have fixed lengths, summed in *rest. */
static bool find_count(const struct gram_ex *x, uint32_t *ret_at, uint64_t *ret_unit,
                       uint64_t *ret_rest)
{
    bool found = false;
    *ret_rest = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        if (found && x->kids[i]->looks) return false; /* its place would be lost */
        if (!found && is_long_count(x->kids[i], ret_unit)) {
            found = true;
            *ret_at = i;
        } else if (x->kids[i]->length != GRAM_INFINITE) {
            *ret_rest += x->kids[i]->length;
        } else {
            return false;
        }
    }
    return found && *ret_rest < UINT32_MAX / 2;
}

bool gram_ex_hoist_count(struct gram_build *b, struct gram_ex **x, uint32_t *ret_min,
                         uint32_t *ret_max)
{
    struct gram_ex_list list = {0};
    uint64_t unit = 0, rest = 0, min, max;
    uint32_t at = 0;
    gram_ex_push(b, &list, *x);
    struct gram_ex as_seq = {.kind = GRAM_EX_SEQ, .n = 1, .kids = list.items};
    const struct gram_ex *seq = (*x)->kind == GRAM_EX_SEQ ? *x : &as_seq;
    if (!find_count(seq, &at, &unit, &rest)) return false;
    const struct gram_ex *rep = seq->kids[at];
    assert(rep->kind == GRAM_EX_REP);
    min = rest + unit * rep->min;
    max = rep->max == GRAM_INFINITE ? GRAM_INFINITE : rest + unit * rep->max;
    if (min >= GRAM_INFINITE || max > GRAM_INFINITE) return false;
    struct gram_ex_list out = {0};
    for (uint32_t i = 0; i < seq->n; i++) {
        struct gram_ex *star = seq->kids[i];
        if (i == at) star = gram_ex_rep(b, rep->kids[0], 0, GRAM_INFINITE);
        gram_ex_push(b, &out, star);
    }
    *x = gram_ex_seq(b, &out);
    *ret_min = (uint32_t)min;
    *ret_max = (uint32_t)max;
    return true;
}
