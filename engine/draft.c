/* SPDX-License-Identifier: MIT */
/* Where drafts come from and how long they may be; see draft.h. */
#include "engine/draft.h"

#include <assert.h>
#include <string.h>

enum { SEARCH_BLOCK = 64, PREDICTION_WINDOW = 4096 };

/* A proposal changes the estimate of its rate by this share of the difference. */
static const float LEARNING = 1.0f / 8;

/* Rates before anything is known. */
static const float FIRST_RATES[DRAFT_TRUSTS] = {
    [DRAFT_AFTER_2] = 0.15f,  [DRAFT_AFTER_3] = 0.4f, [DRAFT_AFTER_MORE] = 0.8f,
    [DRAFT_PREDICTED] = 0.8f, [DRAFT_FORCED] = 0.8f,
};

/* ---- searching ----------------------------------------------------------------------------- */

/* Returns true if some i in [0, n) has ids[i] == a and ids[i + 1] == b. */
static bool has_pair(const int32_t *ids, int n, int32_t a, int32_t b)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        found |= (ids[i] == a) & (ids[i + 1] == b);
    return found;
}

/*
 * The place after the last occurrence in ids[from, end) of the three ids before `newest`, else of
 * the two before it, or -1. *ret_agreed: how many they are.
 */
static int64_t find_last(const int32_t *ids, int64_t end, const int32_t *newest, int *ret_agreed)
{
    int32_t a = newest[-2], b = newest[-1];
    int64_t pair = -1;
    for (int64_t high = end - 1; high > 0; high -= SEARCH_BLOCK) {
        int64_t low = high > SEARCH_BLOCK ? high - SEARCH_BLOCK : 0;
        if (!has_pair(ids + low, (int)(high - low), a, b)) continue;
        for (int64_t i = high - 1; i >= low; i--) {
            if (ids[i] != a || ids[i + 1] != b) continue;
            if (pair < 0) pair = i + 2;
            if (i == 0 || ids[i - 1] != newest[-3]) continue;
            *ret_agreed = 3;
            return i + 2;
        }
    }
    *ret_agreed = 2;
    return pair;
}

/*
 * The first index after the anchor, within the prediction's window, whose preceding n ids are the
 * newest n of the text; but not the index whose draft was just rejected.
 */
static int64_t find_ahead(const struct draft *d, const struct draft_text *t, int n)
{
    int64_t end = t->n_prediction, first = d->anchor >= n ? d->anchor + 1 : n;
    int64_t wrong = d->predicted ? d->next : -1;
    const int32_t *newest = t->ids + t->n;
    if (t->n < n) return -1;
    if (end - first > PREDICTION_WINDOW) end = first + PREDICTION_WINDOW;
    for (int64_t i = first; i < end; i++) {
        const int32_t *before = t->prediction + i;
        if (before[-1] != newest[-1] || before[-2] != newest[-2] || i == wrong) continue;
        if (n == 2 || before[-3] == newest[-3]) return i;
    }
    return -1;
}

/* Looks for the newest ids in the text before them. */
static void search_text(struct draft *d, const struct draft_text *t)
{
    d->predicted = false;
    d->next = t->n < 3 ? -1 : find_last(t->ids, t->n - 1, t->ids + t->n, &d->n_agreed);
}

/*
 * Looks for the newest ids in the prediction. Where it is wrong for the first time, one id may have
 * been replaced; two ids that agree are enough only while nothing else is right.
 */
static bool search_prediction(struct draft *d, const struct draft_text *t, bool right)
{
    bool replaced = d->predicted && d->next == d->anchor && d->next + 1 < t->n_prediction;
    int64_t at = replaced ? d->next + 1 : find_ahead(d, t, 3);
    if (at < 0 && !right) at = find_ahead(d, t, 2);
    if (at < 0) return false;
    d->predicted = true;
    d->next = at;
    return true;
}

/* ---- sources ------------------------------------------------------------------------------- */

void draft_begin(struct draft *d, const struct draft_text *t)
{
    *d = (struct draft){.predicted = t->n_prediction > 0};
    memcpy(d->rate, FIRST_RATES, sizeof(d->rate));
    if (!d->predicted) search_text(d, t);
}

static enum draft_trust trust_after(const struct draft *d, int n_agreed)
{
    if (d->predicted) return DRAFT_PREDICTED;
    return n_agreed > 3 ? DRAFT_AFTER_MORE : n_agreed > 2 ? DRAFT_AFTER_3 : DRAFT_AFTER_2;
}

/* Returns true if the guide's ids are proposed. */
static bool proposes_forced(const struct draft *d)
{
    return d->n_forced > 0 &&
           (d->next < 0 || d->rate[DRAFT_FORCED] >= d->rate[trust_after(d, d->n_agreed)]);
}

enum eng_draft_source draft_source(const struct draft *d)
{
    if (proposes_forced(d)) return ENG_DRAFT_FORCED;
    return d->predicted ? ENG_DRAFT_PREDICTION : ENG_DRAFT_TEXT;
}

double draft_rate(const struct draft *d, int i)
{
    if (proposes_forced(d)) return d->rate[DRAFT_FORCED];
    return d->rate[trust_after(d, d->n_agreed + i)];
}

double draft_value(const struct draft *d, int n, double row_cost)
{
    double chance = 1, n_tokens = 1, best = 1;
    for (int i = 0; i < n; i++) {
        chance *= draft_rate(d, i);
        n_tokens += chance;
        double value = n_tokens / (1 + row_cost * (i + 1));
        if (value > best) best = value;
    }
    return best;
}

static void learn(struct draft *d, enum draft_trust trust, bool right)
{
    float *rate = &d->rate[trust];
    *rate += LEARNING * ((right ? 1.0f : 0.0f) - *rate);
}

void draft_force(struct draft *d, const int32_t *ids, int n)
{
    assert(n >= 0 && n <= DRAFT_MAX);
    d->n_forced = n;
    memcpy(d->forced, ids, (size_t)n * sizeof(*ids));
}

static void note_forced(struct draft *d, int32_t id)
{
    if (d->n_forced == 0) return;
    bool right = d->forced[0] == id;
    learn(d, DRAFT_FORCED, right);
    d->n_forced = right ? d->n_forced - 1 : 0;
    memmove(d->forced, d->forced + 1, (size_t)d->n_forced * sizeof(*d->forced));
}

static void follow(struct draft *d, const struct draft_text *t)
{
    d->next++;
    d->n_agreed++;
    if (!d->predicted) return;
    d->anchor = d->next;
    if (d->next == t->n_prediction) search_text(d, t);
}

int draft_note(struct draft *d, const struct draft_text *t)
{
    bool proposed = d->next >= 0, predicted = proposed && d->predicted;
    const int32_t *source = d->predicted ? t->prediction : t->ids;
    bool right = proposed && source[d->next] == t->ids[t->n - 1];
    if (proposed) learn(d, trust_after(d, d->n_agreed), right);
    note_forced(d, t->ids[t->n - 1]);
    if (right && predicted)
        follow(d, t);
    else if (t->n_prediction == 0 || !search_prediction(d, t, right)) {
        if (right)
            follow(d, t);
        else
            search_text(d, t);
    }
    assert(d->next < (d->predicted ? t->n_prediction : t->n));
    return !predicted ? 0 : right ? 1 : -1;
}

int draft_copy(const struct draft *d, const struct draft_text *t, int n, int32_t *ret)
{
    int i = 0;
    if (proposes_forced(d)) {
        n = n < d->n_forced ? n : d->n_forced;
        memcpy(ret, d->forced, (size_t)n * sizeof(*ret));
        return n;
    }
    if (d->next < 0) return 0;
    for (; i < n; i++) {
        int64_t at = d->next + i;
        if (d->predicted && at == t->n_prediction) break;
        if (d->predicted)
            ret[i] = t->prediction[at];
        else
            ret[i] = at < t->n ? t->ids[at] : ret[at - t->n]; /* the text repeats itself */
    }
    return i;
}

/* ---- lengths ------------------------------------------------------------------------------- */

/* Steps are forgotten at this rate. */
static const double KEEP = 0.98;

/* The cost of a row while nothing is known, and the variance of rows at which what was measured
 * counts as much: of steps with almost as many rows each, noise is all that is measured. */
static const double FIRST_COST = 1.0 / 16, HALF_VARIANCE = 1;
static const double MIN_COST = 0.03; /* less is noise: a row has its arithmetic */

/* A row must bring this much more than it costs. */
static const double MARGIN = 1.25;

void draft_cost_note(struct draft_cost *c, int n_rows, double us)
{
    double r = n_rows;
    c->weight = c->weight * KEEP + 1;
    c->rows = c->rows * KEEP + r;
    c->rows2 = c->rows2 * KEEP + r * r;
    c->us = c->us * KEEP + us;
    c->rows_us = c->rows_us * KEEP + r * us;
}

double draft_cost_more_us(const struct draft_cost *c)
{
    if (c->weight <= 0) return 0;
    double rows = c->rows / c->weight, us = c->us / c->weight;
    double variance = c->rows2 / c->weight - rows * rows;
    double first = FIRST_COST * us / (1 + FIRST_COST * (rows - 1));
    return (c->rows_us / c->weight - rows * us + HALF_VARIANCE * first) /
           (variance + HALF_VARIANCE);
}

double draft_cost_row(const struct draft_cost *c)
{
    if (c->weight <= 0) return FIRST_COST;
    double slope = draft_cost_more_us(c);
    double one = (c->us - slope * (c->rows - c->weight)) / c->weight; /* a step of one row */
    if (slope <= MIN_COST * one) return MIN_COST;
    return slope < one ? slope / one : 1;
}

double draft_cost_us(const struct draft_cost *c, int n_rows)
{
    if (c->weight <= 0) return 0;
    double share = draft_cost_row(c), rows = c->rows / c->weight;
    return c->us / c->weight * (1 + share * (n_rows - 1)) / (1 + share * (rows - 1));
}

int draft_length(const struct draft *d, int most, double row_cost, double *n_tokens, int *n_rows)
{
    double chance = 1;
    int n = 0;
    for (; n < most; n++) {
        double time = 1 + row_cost * (*n_rows - 1);
        chance *= draft_rate(d, n);
        if (chance <= MARGIN * row_cost * *n_tokens / time) break;
        *n_tokens += chance;
        ++*n_rows;
    }
    return n;
}
