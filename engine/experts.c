/* SPDX-License-Identifier: MIT */
/* See experts.h. */
#include "engine/experts.h"

#include <stdbool.h>
#include <string.h>

#include "engine/model/numerics.h"

enum {
    CHOOSE_ROWS = 8,      /* of an item */
    LEAST_RUN = 64 << 10, /* bytes of an expert that an item reads: shorter runs are slower */
};

struct experts {
    const struct eng_model *model;
    int n_threads, n, k; /* experts, and how many a row chooses */
    size_t act_bytes;    /* of a packed number */
    float *logits;       /* [max_rows][ld_logits]: the router's, then scores */
    size_t ld_logits;
    int32_t *chosen; /* [max_rows][k], ascending */
    float *weight;   /* [max_rows][k] */

    /* by experts: those that were chosen, and the slots of their rows */
    int32_t *hit, *longest; /* [n_hit]: ascending, and those with most rows first */
    int n_hit;
    int32_t *first;     /* [n + 1]: an expert's first slot */
    int32_t *slot_row;  /* [max_rows * k] */
    float *slot_weight; /* [max_rows * k] */

    struct gemm_rows in, hidden; /* packed, of all slots: rows, and act(gate) * up of them */
    float *out;                  /* [n_threads][out_floats] */
    size_t out_floats;
};

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* ---- choosing ------------------------------------------------------------------------------ */

static void take_sigmoid(const struct kern *kern, float *z, size_t n)
{
    static const float ones[KERN_PANEL] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                           1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (size_t i = 0; i < n; i += KERN_PANEL)
        kern->glu[KERN_ACT_SIGMOID](z + i, ones, z + i, KERN_PANEL);
}

/* Logits to scores, and that of the shared expert to its factor. */
static void score(const struct experts *x, float *z)
{
    const struct kern *kern = x->model->kern;
    if (x->model->hp.route_sigmoid) {
        take_sigmoid(kern, z, x->ld_logits);
        return;
    }
    float shared[KERN_PANEL] = {x->model->hp.shared_gate ? z[x->n] : 0};
    float sum = kern->softmax_keys(z, (int)x->ld_logits, 0, x->n, 1.0f).sum;
    for (int i = 0; i < x->n; i++)
        z[i] /= sum;
    if (!x->model->hp.shared_gate) return;
    take_sigmoid(kern, shared, KERN_PANEL);
    z[x->n] = shared[0];
}

float experts_shared_factor(const struct experts *x, int row)
{
    return x->logits[(size_t)row * x->ld_logits + (size_t)x->n];
}

/* Marks the k of the largest keys, of equal ones the first; of a row that is not a number any. */
static void mark_largest(const float *key, int n, int k, bool *ret)
{
    for (; k > 0; k--) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!ret[i] && (best < 0 || key[i] > key[best])) best = i;
        ret[best] = true;
    }
}

static void choose(const struct experts *x, const struct eng_experts *of, int row)
{
    const struct eng_hparams *hp = &x->model->hp;
    float *z = x->logits + (size_t)row * x->ld_logits, key[ENG_MAX_EXPERTS], sum = 0;
    float *weight = x->weight + (size_t)row * (size_t)x->k;
    int32_t *chosen = x->chosen + (size_t)row * (size_t)x->k;
    bool marked[ENG_MAX_EXPERTS] = {false};
    int n = 0;
    memcpy(key, z, (size_t)x->n * sizeof(*key));
    score(x, z);
    for (int i = 0; of->select_bias && i < x->n; i++)
        key[i] = z[i] + of->select_bias[i];
    mark_largest(key, x->n, x->k, marked);
    for (int i = 0; i < x->n; i++) {
        if (!marked[i]) continue;
        chosen[n] = i;
        weight[n++] = z[i];
        sum += z[i];
    }
    if (sum < (float)hp->route_floor) sum = (float)hp->route_floor;
    for (int i = 0; i < n; i++) {
        if (hp->route_renorm) weight[i] /= sum + (float)hp->route_eps;
        weight[i] *= (float)hp->route_scale;
        if (of->scale) weight[i] *= of->scale[chosen[i]];
    }
}

/* ---- grouping ------------------------------------------------------------------------------ */

static int n_slots(const struct experts_work *w)
{
    return w->n_rows * w->experts->k;
}

static int rows_of(const struct experts *x, int expert)
{
    return x->first[expert + 1] - x->first[expert];
}

static void group(const struct experts_work *w)
{
    struct experts *x = w->experts;
    int32_t next[ENG_MAX_EXPERTS];
    memset(x->first, 0, (size_t)(x->n + 1) * sizeof(*x->first));
    for (int i = 0; i < n_slots(w); i++)
        x->first[x->chosen[i] + 1]++;
    x->n_hit = 0;
    for (int e = 0; e < x->n; e++) {
        int n = x->first[e + 1], at = x->n_hit;
        next[e] = x->first[e];
        x->first[e + 1] += x->first[e];
        if (n == 0) continue;
        x->hit[x->n_hit++] = e;
        for (; at > 0 && rows_of(x, x->longest[at - 1]) < n; at--)
            x->longest[at] = x->longest[at - 1];
        x->longest[at] = e;
    }
    for (int i = 0; i < n_slots(w); i++) {
        int slot = next[x->chosen[i]]++;
        x->slot_row[slot] = i / x->k;
        x->slot_weight[slot] = x->weight[i];
    }
}

/* Experts that may be chosen, at most. */
static int most_hit(const struct experts_work *w)
{
    return min_int(w->experts->n, n_slots(w));
}

/* ---- products ------------------------------------------------------------------------------ */

/* n panels of a matrix of all experts, of expert e from its panel `first` on. */
static struct eng_mat part_of(const struct experts *x, const struct eng_mat *all, int e, int first,
                              int n)
{
    struct eng_mat m = *all;
    m.panels += eng_mat_offset(all, e * (all->n_panels / x->n) + first);
    m.n_panels = n;
    if (m.squares) m.squares += (size_t)e * (size_t)m.k_pad;
    return m;
}

static struct eng_mat whole_of(const struct experts *x, const struct eng_mat *all, int e)
{
    return part_of(x, all, e, 0, all->n_panels / x->n);
}

/* The packed rows of an expert. A single row is the same for all experts before their products. */
static struct gemm_rows packed_of(const struct experts_work *w, const struct gemm_rows *all,
                                  const struct eng_mat *m, int e)
{
    const struct experts *x = w->experts;
    bool shared = w->n_rows == 1 && all == &x->in;
    size_t slot = shared ? 0 : (size_t)x->first[e], k = (size_t)m->k_pad;
    struct gemm_rows r = {.data = all->data + slot * k * x->act_bytes,
                          .scale = all->scale + slot * (k / KERN_GROUP),
                          .corr = all->corr + slot * (k / KERN_GROUP)};
    gemm_rows_init(&r, x->model, m, rows_of(x, e));
    return r;
}

static void pack_item(const struct experts_work *w, int item, float *tmp)
{
    struct experts *x = w->experts;
    if (item >= x->n_hit) return;
    int e = x->longest[item];
    struct eng_mat m = whole_of(x, &w->of->gate_up, e);
    struct gemm_rows rows = packed_of(w, &x->in, &m, e);
    struct gemm_source src = w->src;
    src.map = x->slot_row + x->first[e];
    for (int i = 0; i < gemm_n_pack_items(&rows); i++)
        gemm_pack_item(x->model, &m, &src, &rows, i, tmp);
}

static void choose_item(const struct experts_work *w, int item, float *tmp)
{
    int end = min_int((item + 1) * CHOOSE_ROWS, w->n_rows);
    for (int row = item * CHOOSE_ROWS; row < end; row++)
        choose(w->experts, w->of, row);
    if (w->n_rows <= CHOOSE_ROWS) group(w);
    if (w->n_rows == 1) pack_item(w, 0, tmp);
}

/* Items of each expert. */
static int n_up_items(const struct experts_work *w)
{
    return ceil_div(w->of->gate_up.n_panels / w->experts->n / 2, w->units);
}

static void up_item(const struct experts_work *w, int item, const struct gemm_thread *t)
{
    struct experts *x = w->experts;
    int per_expert = n_up_items(w), next = item + x->n_threads;
    if (item / per_expert >= x->n_hit) return;
    int e = x->longest[item / per_expert], pair = item % per_expert * w->units;
    struct eng_mat m = whole_of(x, &w->of->gate_up, e), down = whole_of(x, &w->of->down, e);
    struct gemm_rows rows = packed_of(w, &x->in, &m, e);
    struct gemm_rows ret = packed_of(w, &x->hidden, &down, e);
    struct gemm_ahead ahead = {.bytes = 2 * m.panel_bytes};
    if (next / per_expert < x->n_hit) {
        int at = 2 * (next % per_expert * w->units);
        ahead.data = part_of(x, &w->of->gate_up, x->longest[next / per_expert], at, 1).panels;
    }
    if (m.squares && pair == 0) gemm_add_squares(&rows, m.squares);
    gemm_gate_up(x->model, &m, &rows, pair, min_int(w->units, m.n_panels / 2 - pair), &ret, NULL,
                 &ahead, t);
}

/* Adds the weighted outputs of an expert to its rows. */
static void add_outputs(const struct experts_work *w, int e, float *out, int first, int n)
{
    const struct experts *x = w->experts;
    const struct kern *kern = x->model->kern;
    for (int i = x->first[e]; i < x->first[e + 1]; i++, out += n) {
        kern->scale(out, x->slot_weight[i], n);
        kern->add(w->out.c + (size_t)x->slot_row[i] * w->out.ld + first, out, n);
    }
}

static void down_item(const struct experts_work *w, int item, int thread,
                      const struct gemm_thread *t)
{
    struct experts *x = w->experts;
    const struct eng_mat *all = &w->of->down;
    int n_panels = all->n_panels / x->n, first = item * w->units;
    int n = min_int(w->units, n_panels - first), next = first + x->n_threads * w->units;
    struct kern_out out = {x->out + (size_t)thread * x->out_floats, (size_t)n * KERN_PANEL, false};
    for (int i = 0; i < x->n_hit; i++) {
        int e = x->hit[i];
        struct eng_mat m = part_of(x, all, e, first, n);
        struct gemm_rows rows = packed_of(w, &x->hidden, &m, e);
        struct gemm_ahead ahead = {w->next->panels, w->next->panel_bytes, {.end = 0}};
        if (i + 1 < x->n_hit || next < n_panels) {
            bool same = i + 1 < x->n_hit; /* panels, of the next expert */
            ahead.data = part_of(x, all, x->hit[same ? i + 1 : 0], same ? first : next, 1).panels;
            ahead.bytes = m.panel_bytes;
        }
        if (m.squares && item == 0) gemm_add_squares(&rows, m.squares);
        gemm_panels(x->model, &m, &rows, 0, n, &out, &ahead, t);
        add_outputs(w, e, out.c, first * KERN_PANEL, n * KERN_PANEL);
    }
}

/* ---- phases -------------------------------------------------------------------------------- */

int experts_n_items(const struct experts_work *w)
{
    switch (w->phase) {
    case EXPERTS_CHOOSE: return ceil_div(w->n_rows, CHOOSE_ROWS);
    case EXPERTS_GROUP: return w->n_rows > CHOOSE_ROWS;
    case EXPERTS_PACK: return w->n_rows > 1 ? most_hit(w) : 0;
    case EXPERTS_UP: return most_hit(w) * n_up_items(w);
    case EXPERTS_DOWN: break;
    }
    return w->n_rows > 0 ? ceil_div(w->of->down.n_panels / w->experts->n, w->units) : 0;
}

void experts_item(const struct experts_work *w, int item, int thread, float *tmp,
                  const struct gemm_thread *t)
{
    switch (w->phase) {
    case EXPERTS_CHOOSE: choose_item(w, item, tmp); break;
    case EXPERTS_GROUP: group(w); break;
    case EXPERTS_PACK: pack_item(w, item, tmp); break;
    case EXPERTS_UP: up_item(w, item, t); break;
    case EXPERTS_DOWN: down_item(w, item, thread, t); break;
    }
}

int experts_units(const struct experts *x, const struct eng_experts *of, enum experts_phase phase)
{
    int pairs = of->gate_up.n_panels / x->n / 2, n_panels = of->down.n_panels / x->n;
    int share = ceil_div(n_panels, x->n_threads);
    int least = (int)((LEAST_RUN + of->down.panel_bytes - 1) / of->down.panel_bytes);
    if (phase == EXPERTS_DOWN) return min_int(least, share);
    return min_int(gemm_units_per_item(pairs * x->k, 2 * of->gate_up.panel_bytes, x->n_threads),
                   pairs);
}

/* ---- memory -------------------------------------------------------------------------------- */

static size_t padded(int n)
{
    return (size_t)ceil_div(n, KERN_PANEL) * KERN_PANEL;
}

struct experts *experts_init(struct scratch *s, const struct eng_model *model, int n_threads,
                             int max_rows)
{
    const struct eng_hparams *hp = &model->hp;
    if (hp->n_experts == 0) return NULL;
    struct experts zero = {.model = model,
                           .n_threads = n_threads,
                           .n = hp->n_experts,
                           .k = hp->n_chosen,
                           .act_bytes = (size_t)model->kern->act_bytes[model->numerics->act],
                           .ld_logits = padded(hp->n_experts + hp->shared_gate)};
    size_t rows = (size_t)max_rows, slots = rows * (size_t)hp->n_chosen, n = (size_t)zero.n;
    int widest = 0; /* panels of an item of down */
    for (int i = 0; i < hp->n_layers; i++) {
        const struct eng_experts *of = &model->layers[i].experts;
        int units = hp->layer_experts[i] ? experts_units(&zero, of, EXPERTS_DOWN) : 0;
        if (units > widest) widest = units;
    }
    struct experts *x = scratch_take(s, 1, sizeof(*x));
    zero.logits = scratch_take(s, rows * zero.ld_logits, sizeof(float));
    zero.chosen = scratch_take(s, slots, sizeof(int32_t));
    zero.weight = scratch_take(s, slots, sizeof(float));
    zero.hit = scratch_take(s, n, sizeof(int32_t));
    zero.longest = scratch_take(s, n, sizeof(int32_t));
    zero.first = scratch_take(s, n + 1, sizeof(int32_t));
    zero.slot_row = scratch_take(s, slots, sizeof(int32_t));
    zero.slot_weight = scratch_take(s, slots, sizeof(float));
    zero.in = gemm_rows_take(s, slots, padded(hp->d_model), zero.act_bytes);
    zero.hidden = gemm_rows_take(s, slots, padded(hp->d_expert), zero.act_bytes);
    zero.out_floats = rows * (size_t)widest * KERN_PANEL;
    zero.out = scratch_take(s, (size_t)n_threads * zero.out_floats, sizeof(float));
    if (x) *x = zero;
    return x;
}

struct kern_out experts_logits(const struct experts *x)
{
    return (struct kern_out){x->logits, x->ld_logits, false};
}
