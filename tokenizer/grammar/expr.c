/* SPDX-License-Identifier: MIT */
/* Expressions; see expr.h. */
#include "tokenizer/grammar/expr.h"

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

static struct gram_ex *with_kids(struct gram_build *b, enum gram_ex_kind kind,
                                 const struct gram_ex_list *list)
{
    struct gram_ex *x = gram_ex_new(b, kind);
    x->kids = list->items;
    x->n = list->n;
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

/* Sets among the alternatives become one set, where the first of them is. */
struct gram_ex *gram_ex_alt(struct gram_build *b, const struct gram_ex_list *list)
{
    struct gram_ex_list out = {0};
    struct gram_charset *joined = NULL;
    uint32_t n_sets = 0, at = 0;

    for (uint32_t i = 0; i < list->n; i++) {
        struct gram_ex *x = list->items[i];
        if (x->kind == GRAM_EX_NONE) continue;
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
    rep->min = min;
    rep->max = max;
    return rep;
}

/* ---- measures ------------------------------------------------------------------------------ */

bool gram_ex_fixed_length(const struct gram_ex *x, uint64_t *ret)
{
    uint64_t one, sum = 0;

    switch (x->kind) {
    case GRAM_EX_EMPTY:
    case GRAM_EX_BEGIN:
    case GRAM_EX_END:
    case GRAM_EX_WORD:
    case GRAM_EX_NOT_WORD: *ret = 0; return true;
    case GRAM_EX_SET: *ret = 1; return true;
    case GRAM_EX_SEQ:
        for (uint32_t i = 0; i < x->n; i++) {
            if (!gram_ex_fixed_length(x->kids[i], &one)) return false;
            sum += one;
        }
        *ret = sum;
        return true;
    case GRAM_EX_ALT:
        for (uint32_t i = 0; i < x->n; i++) {
            if (!gram_ex_fixed_length(x->kids[i], &one) || (i && one != sum)) return false;
            sum = one;
        }
        *ret = sum;
        return true;
    case GRAM_EX_REP:
        if (x->min != x->max || !gram_ex_fixed_length(x->kids[0], &one)) return false;
        return !__builtin_mul_overflow(one, (uint64_t)x->min, ret) && *ret < UINT32_MAX;
    default: return false;
    }
}

/* A repetition that is long when written out, of something of fixed length. */
static bool is_long_count(const struct gram_ex *x, uint64_t *ret_unit)
{
    enum { LONG = 8 };
    if (x->kind != GRAM_EX_REP || !gram_ex_fixed_length(x->kids[0], ret_unit) || *ret_unit == 0)
        return false;
    return x->min > LONG || (x->max > LONG && x->max != GRAM_INFINITE);
}

/* The only kid of varying or long count, if all others have fixed lengths, summed in *rest. */
static bool find_count(const struct gram_ex *x, uint32_t *ret_at, uint64_t *ret_unit,
                       uint64_t *ret_rest)
{
    uint64_t one;
    bool found = false;

    *ret_rest = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        bool fixed = gram_ex_fixed_length(x->kids[i], &one);
        if (!found && is_long_count(x->kids[i], ret_unit)) {
            found = true;
            *ret_at = i;
        } else if (fixed) {
            *ret_rest += one;
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

uint32_t gram_ex_size(const struct gram_ex *x)
{
    uint64_t sum = 1;

    for (uint32_t i = 0; i < x->n; i++)
        sum += gram_ex_size(x->kids[i]);
    if (x->kind == GRAM_EX_REP) {
        uint64_t times = x->max == GRAM_INFINITE ? (uint64_t)x->min + 1 : x->max;
        sum *= times ? times : 1;
    }
    return sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX;
}
