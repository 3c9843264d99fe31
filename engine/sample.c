/* SPDX-License-Identifier: MIT */
/*
 * The sampling chain; see sample.h for its order and its rules.
 *
 * Two arrays describe the candidates: x, the adjusted logits, which define the order, and weight,
 * by id, the unnormalised probability exp((x - max) / temperature). A truncating step only shortens
 * the ranked list and sums its mass again; nothing is renormalised.
 */
#include "engine/sample.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "engine/kernels/kernels.h"
#include "engine/race.h"
#include "engine/scratch.h"
#include "engine/topk.h"

enum { KEY_ALIGN = 32 };

/* A temperature below this counts as 0: its inverse would exceed the range of floats. */
static const float MIN_TEMPERATURE = 1e-5f;

struct sampler {
    int32_t vocab, vocab_pad; /* vocab up to a multiple of KEY_ALIGN */
    const struct kern *kern;
    float *x;      /* [vocab_pad] adjusted logits */
    float *weight; /* [vocab_pad] by id */
    float *gather; /* [vocab_pad] weights by rank, while they are computed; x after typical-p */
    struct rank rank;
    struct race race;
};

/*
 * The remaining candidates: the first n, at most RANK_MAX, in order of rank; or, if is_cut, those
 * that the cut leaves of the whole row. And the sum of their weights.
 */
struct pick {
    int n;
    double total;
    bool is_cut;
    struct rank_cut cut;
};

struct sampler *sampler_init(struct scratch *m, int32_t vocab, const struct kern *kern)
{
    size_t n = ((size_t)vocab + KEY_ALIGN - 1) / KEY_ALIGN * KEY_ALIGN;
    struct sampler *s = scratch_take(m, 1, sizeof(*s));
    struct sampler cut = {.vocab = vocab,
                          .vocab_pad = (int32_t)n,
                          .kern = kern,
                          .x = scratch_take(m, n, sizeof(float)),
                          .weight = scratch_take(m, n, sizeof(float)),
                          .gather = scratch_take(m, n, sizeof(float))};
    rank_init(&cut.rank, m, vocab, kern);
    race_init(&cut.race, m, vocab, kern);
    if (s) *s = cut;
    return s;
}

/* ---- history ------------------------------------------------------------------------------- */

void sample_history_init(struct sample_history *h, struct scratch *m, int32_t vocab)
{
    *h = (struct sample_history){
        .counts = scratch_take(m, (size_t)vocab, sizeof(*h->counts)),
        .touched = scratch_take(m, (size_t)vocab, sizeof(*h->touched)),
    };
}

void sample_history_add(struct sample_history *h, int32_t id, bool in_prompt)
{
    if (h->counts[id] == 0) h->touched[h->n_touched++] = id;
    if (in_prompt)
        h->counts[id] |= SAMPLE_IN_PROMPT;
    else
        h->counts[id]++;
}

void sample_history_pop(struct sample_history *h, int32_t id)
{
    assert((h->counts[id] & ~SAMPLE_IN_PROMPT) > 0);
    if (--h->counts[id] > 0) return;
    h->n_touched--;
    assert(h->touched[h->n_touched] == id);
}

void sample_history_clear(struct sample_history *h)
{
    for (int32_t i = 0; i < h->n_touched; i++)
        h->counts[h->touched[i]] = 0;
    h->n_touched = 0;
}

/* ---- adjusting the logits ------------------------------------------------------------------ */

struct eng_sampling eng_sampling_default(void)
{
#define NEUTRAL(name, type, least, most, neutral, ...) .name = neutral,
    return (struct eng_sampling){ENG_SAMPLING_PARAMS(NEUTRAL)};
}

bool sample_has_penalty(const struct eng_sampling *c)
{
    return c->repetition_penalty != 1.0f || c->frequency_penalty != 0.0f ||
           c->presence_penalty != 0.0f;
}

static bool has_adjustment(const struct eng_sampling *c)
{
    return c->n_bias > 0 || c->allowed_ids || sample_has_penalty(c);
}

static bool is_greedy(const struct eng_sampling *c)
{
    return c->temperature < MIN_TEMPERATURE || c->top_k == 1;
}

bool sample_is_argmax(const struct eng_sampling *c)
{
    return is_greedy(c) && !has_adjustment(c);
}

static void apply_penalties(float *x, const struct eng_sampling *c, const struct sample_history *h)
{
    for (int32_t i = 0; i < h->n_touched; i++) {
        int32_t id = h->touched[i];
        uint32_t n = h->counts[id] & ~SAMPLE_IN_PROMPT;
        x[id] = x[id] > 0.0f ? x[id] / c->repetition_penalty : x[id] * c->repetition_penalty;
        x[id] -= c->frequency_penalty * (float)n;
        if (n > 0) x[id] -= c->presence_penalty;
    }
}

static void keep_allowed(float *x, const float *logits, int32_t vocab, const struct eng_sampling *c)
{
    for (int32_t i = 0; i < vocab; i++)
        x[i] = -INFINITY;
    for (int i = 0; i < c->n_allowed_ids; i++)
        x[c->allowed_ids[i]] = logits[c->allowed_ids[i]];
}

/* Sets the values of the ids whose bit is not set, 64 at a time. */
static void set_masked(float *x, int32_t vocab, const uint64_t *mask, float value)
{
    for (int32_t at = 0; at < vocab; at += 64) {
        int32_t n = vocab - at < 64 ? vocab - at : 64;
        uint64_t removed = ~mask[at / 64] & (UINT64_MAX >> (64 - n));
        if (removed == UINT64_MAX) {
            for (int32_t i = 0; i < 64; i++)
                x[at + i] = value;
            continue;
        }
        for (; removed; removed &= removed - 1)
            x[at + __builtin_ctzll(removed)] = value;
    }
}

/* The logits after the steps before temperature: the row's own if no step changes them. */
static const float *adjust(struct sampler *s, const struct sample_row *row)
{
    const struct eng_sampling *c = row->chain;
    if (!row->mask && !has_adjustment(c) && row->n_banned[0] + row->n_banned[1] == 0)
        return row->logits;
    if (c->allowed_ids)
        keep_allowed(s->x, row->logits, s->vocab, c);
    else
        memcpy(s->x, row->logits, (size_t)s->vocab * sizeof(*s->x));
    if (row->mask) set_masked(s->x, s->vocab, row->mask, -INFINITY);
    for (int i = 0; i < c->n_bias; i++)
        s->x[c->bias[i].id] += c->bias[i].value;
    for (int list = 0; list < 2; list++)
        for (int i = 0; i < row->n_banned[list]; i++)
            s->x[row->banned[list][i]] = -INFINITY;
    if (row->history && sample_has_penalty(c)) apply_penalties(s->x, c, row->history);
    return s->x;
}

/* ---- truncation ---------------------------------------------------------------------------- */

static int32_t id_at(struct sampler *s, int i)
{
    rank_upto(&s->rank, i + 1);
    return s->rank.ids[i];
}

static double weight_at(struct sampler *s, int i)
{
    return s->weight[id_at(s, i)];
}

/* Sum by id; four chains so that additions overlap, joined in one fixed order. */
static double sum_all(const float *w, int n_padded)
{
    double sum[4] = {0};
    for (int i = 0; i < n_padded; i += 4)
        for (int l = 0; l < 4; l++)
            sum[l] += w[i + l];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/*
 * Weights of every id, 0 outside the cut. Those that a mask removes go through the softmax as the
 * best one and are 0 after it: exponentials that underflow take many times as long.
 */
static double weigh_all(struct sampler *s, const struct rank_cut *cut, const float *x, float best,
                        const uint64_t *mask, float temperature)
{
    memcpy(s->weight, x, (size_t)s->vocab * sizeof(*x));
    if (mask) set_masked(s->weight, s->vocab, mask, best);
    s->kern->softmax_keys(s->weight, s->vocab_pad, 0, s->vocab, 1.0f / temperature);
    if (mask) set_masked(s->weight, s->vocab, mask, 0.0f);
    for (int32_t i = 0; i < s->vocab && cut->value > -INFINITY; i++)
        if (!rank_is_left(cut, x[i], i)) s->weight[i] = 0.0f;
    return sum_all(s->weight, s->vocab_pad);
}

/* Weights of the n best only: the others are never looked at. */
static double weigh_best(struct sampler *s, int n, const float *x, float temperature)
{
    int padded = (n + KEY_ALIGN - 1) / KEY_ALIGN * KEY_ALIGN;
    double total = 0.0;
    rank_upto(&s->rank, n);
    for (int i = 0; i < n; i++)
        s->gather[i] = x[s->rank.ids[i]];
    s->kern->softmax_keys(s->gather, padded, 0, n, 1.0f / temperature);
    for (int i = 0; i < n; i++) {
        s->weight[s->rank.ids[i]] = s->gather[i];
        total += (double)s->gather[i];
    }
    return total;
}

/*
 * Typical-p (Meister et al. 2022): keeps the candidates whose surprise is nearest the mean
 * surprise, until their mass reaches p. The log of the total cancels and the temperature only
 * scales, so the distance is |x - mean(x)|. Listed ones that are not kept leave the list; else the
 * values of all others become -INFINITY.
 */
static struct pick truncate_typical(struct sampler *s, struct pick p, const float *x,
                                    float typical_p)
{
    float listed[RANK_MAX], *w = p.is_cut ? s->weight : listed;
    int32_t *ids = s->rank.ids;
    double max = (double)x[id_at(s, 0)], sum = 0.0;
    struct pick kept = {.is_cut = p.is_cut, .n = p.is_cut ? p.n : 0, .cut = {-INFINITY, p.n}};
    for (int i = 0; i < p.n; i++) {
        int32_t id = p.is_cut ? i : ids[i];
        w[i] = s->weight[id];
        if (w[i] > 0.0f) sum += (double)w[i] * ((double)x[id] - max);
    }
    double mean = max + sum / p.total;
    for (int i = 0; i < p.n; i++) {
        double at = (double)x[p.is_cut ? i : ids[i]];
        s->gather[i] = w[i] > 0.0f ? (float)-fabs(at - mean) : -INFINITY;
    }
    struct rank_cut near = rank_mass_cut(s->gather, w, p.n, (double)typical_p * p.total);
    for (int i = 0; i < p.n; i++) {
        bool left = rank_is_left(&near, s->gather[i], i);
        if (left) kept.total += (double)w[i];
        if (!p.is_cut) {
            if (left) ids[kept.n++] = ids[i];
            continue;
        }
        s->gather[i] = left ? x[i] : -INFINITY;
        if (!left) s->weight[i] = 0.0f;
    }
    if (p.is_cut) rank_begin(&s->rank, s->gather, s->vocab);
    return kept;
}

/* The fewest candidates whose mass reaches top_p; one if it is 0. */
static struct pick truncate_top_p(struct sampler *s, struct pick p, float top_p)
{
    struct pick kept = {.n = 0};
    double mass = (double)top_p * p.total;
    while (kept.n < p.n && kept.n < RANK_MAX && (kept.n == 0 || kept.total < mass))
        kept.total += weight_at(s, kept.n++);
    if (!p.is_cut || kept.total >= mass) return kept;
    p.cut = rank_mass_cut(s->rank.values, s->weight, s->vocab, mass);
    return p;
}

/* The candidates at least min_p times as likely as the likeliest. */
static struct pick truncate_min_p(struct sampler *s, struct pick p, float min_p)
{
    struct pick kept = {.n = 0};
    double least = (double)min_p * weight_at(s, 0);
    int most = p.n < RANK_MAX ? p.n : RANK_MAX;
    while (kept.n < most && (kept.n == 0 || weight_at(s, kept.n) >= least))
        kept.total += weight_at(s, kept.n++);
    if (!p.is_cut || kept.n < most) return kept;
    const float *x = s->rank.values;
    float low = INFINITY;
    for (int32_t i = 0; i < s->vocab; i++)
        if ((double)s->weight[i] >= least && x[i] < low) low = x[i];
    if (low > p.cut.value) p.cut = (struct rank_cut){low, s->vocab};
    return p;
}

/* ---- the draw ------------------------------------------------------------------------------ */

/* The k best, or all if k is not from 1 to below their number; not weighed. */
static struct pick pick_best(const struct sampler *s, int k, const float *x)
{
    struct pick p = {.n = s->vocab, .is_cut = true, .cut = {-INFINITY, s->vocab}};
    if (k <= 0 || k >= s->vocab) return p;
    if (k <= RANK_MAX) return (struct pick){.n = k};
    p.cut = rank_mass_cut(x, NULL, s->vocab, k);
    return p;
}

/* The candidates left race. */
static int32_t draw_from(struct sampler *s, struct race_field *f, const struct pick *p,
                         float *ret_margin)
{
    assert(p->n > 0);
    f->x = s->rank.values;
    f->top = f->x[id_at(s, 0)];
    if (p->is_cut) return race_draw(&s->race, f, &p->cut, ret_margin);
    rank_upto(&s->rank, p->n);
    return race_draw_listed(&s->race, f, s->rank.ids, p->n, ret_margin);
}

static int32_t draw_best(struct sampler *s, const float *x, int32_t best, float *ret_margin)
{
    if (!ret_margin) return best;
    rank_begin(&s->rank, x, s->vocab);
    *ret_margin = rank_upto(&s->rank, 2) == 2 ? x[best] - x[s->rank.ids[1]] : INFINITY;
    return best;
}

int32_t sampler_draw(struct sampler *s, const struct sample_row *row)
{
    const struct eng_sampling *c = row->chain;
    const float *x = adjust(s, row);
    bool finite;
    int32_t best = s->kern->argmax(x, s->vocab, &finite);
    if (x[best] == -INFINITY) return SAMPLE_NOTHING;
    if (is_greedy(c)) return draw_best(s, x, best, row->ret_margin);

    struct race_field f = {
        .x = x,
        .top = x[best],
        .scale = 1.0f / c->temperature,
        .numbers = race_numbers(c->seed, (uint32_t)row->choice, (uint64_t)row->index),
    };
    bool typical = c->typical_p > 0.0f && c->typical_p < 1.0f;
    bool truncates = typical || c->top_p < 1.0f || c->min_p > 0.0f;
    struct pick p = pick_best(s, c->top_k, x);
    if (p.is_cut && !truncates) return race_draw(&s->race, &f, &p.cut, row->ret_margin);

    rank_begin(&s->rank, x, s->vocab);
    if (truncates)
        p.total = p.is_cut ? weigh_all(s, &p.cut, x, x[best], row->mask, c->temperature)
                           : weigh_best(s, p.n, x, c->temperature);
    if (typical) p = truncate_typical(s, p, x, c->typical_p);
    if (c->top_p < 1.0f) p = truncate_top_p(s, p, c->top_p);
    if (c->min_p > 0.0f) p = truncate_min_p(s, p, c->min_p);
    return draw_from(s, &f, &p, row->ret_margin);
}

/* ---- log-probabilities --------------------------------------------------------------------- */

float sampler_logprobs(struct sampler *s, const float *logits, int32_t id, const int32_t *ids,
                       int n, struct eng_logprob *ret)
{
    double lse = s->kern->log_sum_exp(logits, s->vocab);
    if (!ids && n > 0) {
        rank_begin(&s->rank, logits, s->vocab);
        n = rank_upto(&s->rank, n);
        ids = s->rank.ids;
    }
    for (int i = 0; i < n; i++)
        ret[i] = (struct eng_logprob){ids[i], (float)((double)logits[ids[i]] - lse)};
    return (float)((double)logits[id] - lse);
}

int sample_rank(const float *logits, int32_t vocab, int32_t id)
{
    int rank = 1;
    float v = logits[id];
    for (int32_t i = 0; i < vocab; i++)
        rank += logits[i] > v || (logits[i] == v && i < id);
    return rank;
}

/* ---- checking ------------------------------------------------------------------------------ */

struct sample_range {
    const char *name;
    double value, min, max;
};

static int check_ids(const struct eng_sampling *c, int32_t vocab, char *err, size_t errlen)
{
    for (int i = 0; i < c->n_bias; i++) {
        int32_t id = c->bias[i].id;
        float v = c->bias[i].value;
        if (id < 0 || id >= vocab || isnan(v) || (isinf(v) && v > 0.0f))
            return fail_with(
                ENG_EINVAL, err, errlen,
                "logit bias %g of token %d: ids are in [0, %d), values finite or -infinity",
                (double)v, (int)id, (int)vocab);
    }
    for (int i = 0; i < c->n_allowed_ids; i++)
        if (c->allowed_ids[i] < 0 || c->allowed_ids[i] >= vocab)
            return fail_with(ENG_EINVAL, err, errlen, "allowed token %d is outside [0, %d)",
                             (int)c->allowed_ids[i], (int)vocab);
    return 0;
}

int sample_check(const struct eng_sampling *c, int32_t vocab, char *err, size_t errlen)
{
/* The ends of a range are rounded as a value of that type is. */
#define RANGE(name, type, least, most, ...)                                                        \
    {#name, (double)c->name, (double)(type)(least), (double)(type)(most)},
    const struct sample_range ranges[] = {ENG_SAMPLING_PARAMS(RANGE)};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const struct sample_range *r = &ranges[i];
        if (!(r->value >= r->min && r->value <= r->max))
            return fail_with(ENG_EINVAL, err, errlen, "%s is %g but must be in [%g, %g]", r->name,
                             r->value, r->min, r->max);
    }
    if (c->n_bias < 0 || c->n_allowed_ids < 0)
        return fail_with(ENG_EINVAL, err, errlen,
                         "the counts of biases (%d) and allowed tokens (%d) must be >= 0",
                         c->n_bias, c->n_allowed_ids);
    return check_ids(c, vocab, err, errlen);
}
