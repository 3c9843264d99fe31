/* SPDX-License-Identifier: MIT */
/*
 * Executes the plan of a model: allocates the arena, reads every tensor once and packs it, on all
 * threads of the pool.
 *
 * An item of the pool is one panel. The thread reads its 32 rows by pread into a staging buffer,
 * updates the fingerprint's hash with them, and packs them into the arena. The weights are never in
 * memory twice. Unlike mmap, pread works with any file offset, and a failing disk is an error
 * instead of a signal. A thread that waits for the disk does not delay the others.
 *
 * BF16 panels are compressed to 12 bits per weight (B12). If a panel of a matrix has too many
 * exceptions, the matrix is read again at the end and kept as BF16, in a mapping of its own, and
 * its memory in the arena is released: memory never exceeds that of BF16 panels.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "engine/eng_error.h"
#include "engine/kernels/blocks.h"
#include "engine/kernels/convert.h"
#include "engine/model/load.h"
#include "engine/model/numerics.h"
#include "engine/model/plan.h"
#include "engine/model/rope.h"
#include "engine/model/weight_hash.h"
#include "engine/pool.h"

/* The file became shorter; a number in it is infinite or NaN. */
enum { TOO_SHORT = -1, NOT_FINITE = -2 };

/* Buffers and results of one thread; on cache lines of its own. */
struct worker {
    _Alignas(64) uint8_t *staging; /* 32 rows as in the file */
    void *words;                   /* a BF16 panel before compression */
    struct eng_hash hash;          /* sum over the rows this thread read */
    int error;                     /* of a read: an errno, or one of these */
    const struct eng_tensor *at;   /* the tensor of the failed read */
    int64_t row;
};

_Static_assert(sizeof(struct worker) % 64 == 0, "workers share no cache line");

struct fill {
    struct eng_model *m;
    int64_t ctx;            /* that is served, by which longrope chooses its factors */
    const int *first_panel; /* [n_mats + 1]: running count of panels over the matrices */
    int panels_per_item;
    struct worker *workers; /* [n_threads] */
    int n_threads;
    atomic_bool failed;
    atomic_bool *read_again;               /* [n_mats]: does not fit B12, or is to be calibrated */
    float *squares;                        /* of these */
    bool again;                            /* those matrices are being read again */
    double freqs[2][ENG_MAX_HEAD_DIM / 2]; /* of the model's RoPE and the local one */
};

/* ---- the arena ----------------------------------------------------------------------------- */

/* cos and sin, then cos and sin of the local RoPE: [ctx][its pairs] each. */
static float *rope_table(const struct eng_model *m, bool local, int i)
{
    size_t first = local ? 2 * (size_t)eng_rope_pairs(&m->hp, false) : 0;
    return m->ropes + (size_t)m->ctx * (first + (size_t)i * (size_t)eng_rope_pairs(&m->hp, local));
}

static int make_arena(struct eng_model *m, int64_t ctx, char *err, size_t errlen)
{
    struct eng_load *load = m->load;
    assert(ctx > 0 && load->arena_bytes % PLAN_ALIGN == 0);
    size_t rope_at = load->arena_bytes, rope_bytes = (size_t)eng_model_rope_bytes(m, ctx);
    m->arena_bytes = rope_at + rope_bytes;
    m->arena = eng_arena_map(m->arena_bytes);
    if (!m->arena)
        return fail_with(ENG_ENOMEM, err, errlen, "no memory for %zu MiB of weights",
                         m->arena_bytes >> 20);
    uint8_t *base = m->arena;
    for (int i = 0; i < load->n_vecs; i++)
        *load->vecs[i].vec = (float *)(base + load->vecs[i].at);
    for (int i = 0; i < load->n_mats; i++) {
        struct plan_mat *pm = &load->mats[i];
        pm->mat->panels = base + pm->panels_at;
        if (pm->parts[0].bias) pm->mat->bias = (float *)(base + pm->bias_at);
    }
    if (m->hp.tied) m->head = m->embed;
    if (!m->head_norm) m->head_norm = m->final_norm;
    m->ropes = (float *)(base + rope_at);
    m->ctx = eng_model_positions(m, ctx);
    for (int i = 0; i < m->hp.n_layers; i++) {
        if (!m->hp.layer_rope[i]) continue;
        bool local = m->hp.has_local_rope && m->hp.layer_window[i] > 0;
        m->layers[i].rope_cos = rope_table(m, local, 0);
        m->layers[i].rope_sin = rope_table(m, local, 1);
    }
    return 0;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Rows [row, row + n) of a tensor (a vector is one row) into buf. */
static bool read_rows(const struct eng_tensor *t, int64_t row, int n, size_t row_bytes, void *buf,
                      struct worker *w)
{
    assert(row >= 0 && (row + n) * (int64_t)row_bytes <= t->n_bytes);
    const struct eng_shard *s = t->shard;
    int64_t offset = s->data_start + t->offset + row * (int64_t)row_bytes;
    if (file_pread(s->fd, buf, (size_t)n * row_bytes, offset) == 0) return true;
    w->error = errno ? errno : TOO_SHORT;
    w->at = t;
    w->row = row;
    return false;
}

/* Returns false if a scale of n rows of blocks is not finite; quants always are. */
static bool check_blocks(const struct eng_tensor *t, int64_t row, int n, size_t row_bytes,
                         const uint8_t *rows, struct worker *w)
{
    enum kern_src src = eng_dtype_source(t->dtype);
    for (int i = 0; i < n; i++) {
        if (kern_blocks_finite(src, rows + (size_t)i * row_bytes, t->shape[t->rank - 1])) continue;
        w->error = NOT_FINITE;
        w->at = t;
        w->row = row + i;
        return false;
    }
    return true;
}

/*
 * Every row is hashed with its tensor's name and its index, so the sum does not depend on packing.
 */
static void hash_rows(const struct eng_tensor *t, int64_t row, int n, size_t row_bytes,
                      const uint8_t *rows, struct worker *w)
{
    struct eng_hash name =
        eng_hash_bytes(t->name, strlen(t->name), (struct eng_hash){{(uint64_t)t->dtype, 5}});
    for (int i = 0; i < n; i++) {
        struct eng_hash seed = {{name.lane[0] + (uint64_t)(row + i), name.lane[1]}};
        eng_hash_add(&w->hash, eng_hash_bytes(rows + (size_t)i * row_bytes, row_bytes, seed));
    }
}

void eng_widen(enum eng_dtype dtype, const uint8_t *src, float *dst, size_t n)
{
    if (eng_dtype_is_blocks(dtype)) {
        kern_blocks_f32(eng_dtype_source(dtype), src, (int64_t)n, dst);
        return;
    }
    for (size_t i = n; i-- > 0;) {
        uint16_t half;
        if (dtype == ENG_DTYPE_F32) {
            memmove(&dst[i], src + i * sizeof(float), sizeof(float));
            continue;
        }
        memcpy(&half, src + i * sizeof(half), sizeof(half));
        dst[i] = dtype == ENG_DTYPE_BF16 ? kern_f32_of_bf16(half) : kern_f32_of_f16(half);
    }
}

/* A whole vector as f32; `to` may be the staging buffer. */
static bool read_vector(const struct eng_tensor *t, float *to, struct worker *w)
{
    if (!read_rows(t, 0, 1, (size_t)t->n_bytes, w->staging, w)) return false;
    hash_rows(t, 0, 1, (size_t)t->n_bytes, w->staging, w);
    eng_widen(t->dtype, w->staging, to, (size_t)t->n_elements);
    for (int64_t i = 0; t->shard->gguf && i < t->n_elements; i++)
        if (!isfinite(to[i])) {
            w->error = NOT_FINITE;
            w->at = t;
            return false;
        }
    return true;
}

static bool fill_vector(const struct plan_vec *pv, struct worker *w)
{
    assert(pv->tensor->n_elements == pv->n);
    float *to = (float *)*pv->vec, *whole = (float *)(void *)w->staging;
    if (!read_vector(pv->tensor, pv->n_cols ? whole : to, w)) return false;
    for (int i = 0; pv->n_cols && i < pv->n; i++)
        to[i % pv->n_cols * (pv->n / pv->n_cols) + i / pv->n_cols] = whole[i];
    for (int i = 0; pv->is_log && i < pv->n; i++)
        to[i] = logf(-to[i]);
    if (pv->add == 0 && pv->factor == 1) return true;
    for (int i = 0; i < pv->n; i++)
        to[i] = (to[i] + pv->add) * pv->factor;
    return true;
}

/* ---- packing ------------------------------------------------------------------------------- */

/* Reads the 32 rows of a panel run by run; rows that do not exist stay NULL. */
static bool stage_panel(const struct fill *f, const struct plan_mat *pm, int panel, bool widened,
                        struct worker *w, const void *rows[KERN_PANEL])
{
    size_t n_in = (size_t)pm->mat->n_in;
    for (int i = 0; i < KERN_PANEL;) {
        int row, next, n = 1;
        const struct plan_part *part = eng_plan_row(pm, panel * KERN_PANEL + i, &row);
        if (!part) {
            rows[i++] = NULL;
            continue;
        }
        while (i + n < KERN_PANEL && eng_plan_row(pm, panel * KERN_PANEL + i + n, &next) == part &&
               next == row + n)
            n++;
        const struct eng_tensor *t = part->weight;
        size_t bytes = (size_t)eng_dtype_bytes(t->dtype, pm->mat->n_in);
        size_t pitch = widened ? n_in * sizeof(float) : bytes;
        uint8_t *to = w->staging + (size_t)i * pitch;
        if (!read_rows(t, row, n, bytes, to, w)) return false;
        if (eng_dtype_is_blocks(t->dtype) && !check_blocks(t, row, n, bytes, to, w)) return false;
        if (!f->again) hash_rows(t, row, n, bytes, to, w);
        if (widened) eng_widen(t->dtype, to, (float *)(void *)to, (size_t)n * n_in);
        for (int j = 0; j < n; j++)
            rows[i + j] = to + (size_t)j * pitch;
        i += n;
    }
    return true;
}

static bool pack_panel(const struct fill *f, int i, int panel, struct worker *w)
{
    const void *rows[KERN_PANEL];
    const struct plan_mat *pm = &f->m->load->mats[i];
    const struct eng_mat *mat = pm->mat;
    enum kern_wfmt fmt = eng_mat_format(mat, panel);
    enum eng_dtype dtype = ENG_DTYPE_F32;
    /* from f32 if its rows differ in type, or if these blocks are not kept */
    bool widened = !eng_plan_panel_dtype(pm, panel, &dtype) ||
                   (eng_dtype_is_blocks(dtype) && fmt != kern_blocks_form(eng_dtype_source(dtype)));
    if (!stage_panel(f, pm, panel, widened, w, rows)) return false;
    const float *importance = mat->squares;
    if (importance)
        importance += (size_t)(panel / (mat->n_panels / pm->n_groups)) * (size_t)mat->k_pad;
    if (!kern_pack_panel(f->m->kern, fmt, widened ? KERN_SRC_F32 : eng_dtype_source(dtype), rows,
                         importance, mat->n_in, mat->k_pad, w->words,
                         mat->panels + eng_mat_offset(mat, panel)))
        atomic_store_explicit(&f->read_again[i], true, memory_order_relaxed);
    return true;
}

/* The matrix that holds a panel of the running count. */
static int find_mat(const struct fill *f, int panel)
{
    int lo = 0, hi = f->m->load->n_mats;
    assert(panel >= 0 && panel < f->first_panel[hi]);
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        if (f->first_panel[mid] <= panel)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static bool is_stopped(const struct fill *f)
{
    return f->m->stop && atomic_load_explicit(f->m->stop, memory_order_relaxed);
}

static void pack_item(void *arg, int item, int thread)
{
    struct fill *f = arg;
    int end = f->first_panel[f->m->load->n_mats];
    int panel = item * f->panels_per_item, last = panel + f->panels_per_item;
    for (; panel < last && panel < end; panel++) {
        if (atomic_load_explicit(&f->failed, memory_order_relaxed) || is_stopped(f)) return;
        int i = find_mat(f, panel);
        if (f->again && !f->read_again[i]) continue;
        if (!pack_panel(f, i, panel - f->first_panel[i], &f->workers[thread]))
            atomic_store(&f->failed, true);
    }
}

/* ---- matrices that stay BF16 --------------------------------------------------------------- */

/* Moves those matrices to a mapping of their own, as plain BF16. */
static int place_plain(struct fill *f, char *err, size_t errlen)
{
    struct eng_model *m = f->m;
    size_t bytes = 0;
    for (int i = 0; i < m->load->n_mats; i++) {
        const struct eng_mat *mat = m->load->mats[i].mat;
        if (f->read_again[i])
            bytes += (size_t)mat->n_panels * kern_panel_bytes(KERN_W_BF16, mat->k_pad);
    }
    if (bytes == 0) return 0;
    m->plain = eng_arena_map(bytes);
    m->plain_bytes = bytes;
    if (!m->plain)
        return fail_with(ENG_ENOMEM, err, errlen, "no memory for %zu MiB of weights", bytes >> 20);
    uint8_t *at = m->plain;
    for (int i = 0; i < m->load->n_mats; i++) {
        struct eng_mat *mat = m->load->mats[i].mat;
        if (!f->read_again[i]) continue;
        size_t compressed_bytes = (size_t)mat->n_panels * mat->panel_bytes;
        eng_arena_give_back(mat->panels, compressed_bytes);
        mat->fmt = KERN_W_BF16;
        mat->panel_bytes = kern_panel_bytes(KERN_W_BF16, mat->k_pad);
        mat->panels = at;
        at += (size_t)mat->n_panels * mat->panel_bytes;
        m->weights_bytes -= (int64_t)compressed_bytes;
    }
    assert(at == (uint8_t *)m->plain + bytes);
    m->weights_bytes += (int64_t)bytes;
    if (m->hp.tied) m->head = m->embed;
    return 0;
}

/* ---- calibration --------------------------------------------------------------------------- */

static bool is_affine(enum kern_wfmt fmt)
{
    return fmt == KERN_W_I4K || fmt == KERN_W_I5K;
}

/*
 * Makes of sums of squares how much each column counts; one that nothing reached as their mean. The
 * few rows that reach an expert say less: there each column counts half as the mean.
 */
static void settle_squares(const struct eng_mat *mat, float *squares, bool few)
{
    double sum = 0;
    for (int k = 0; k < mat->n_in; k++)
        sum += (double)squares[k];
    float mean = (float)(sum / mat->n_in);
    for (int k = 0; k < mat->n_in; k++) {
        float share = squares[k] / mean;
        if (few) share = 0.5f * share + 0.5f;
        squares[k] = share > 0.0f && isfinite(share) ? share : 1.0f;
    }
}

/* Gives the matrices to read again their importances. */
static int calibrate(struct fill *f, struct pool *pool, char *err, size_t errlen)
{
    const struct eng_model *m = f->m;
    size_t n = 0;
    if (!m->calibrate) return 0;
    for (int i = 0; i < m->load->n_mats; i++)
        if (is_affine(m->load->mats[i].mat->fmt))
            n += (size_t)m->load->mats[i].mat->k_pad * (size_t)m->load->mats[i].n_groups;
    if (n == 0 || is_stopped(f)) return 0;
    float *at = f->squares = calloc(n, sizeof(*at));
    if (!at) return fail_with(ENG_ENOMEM, err, errlen, "no memory to calibrate the model");
    for (int i = 0; i < m->load->n_mats; i++) {
        struct eng_mat *mat = m->load->mats[i].mat;
        f->read_again[i] = is_affine(mat->fmt);
        if (!f->read_again[i]) continue;
        mat->squares = at;
        at += (size_t)mat->k_pad * (size_t)m->load->mats[i].n_groups;
    }
    int rc = m->calibrate(m->calibrate_ctx, m, pool, err, errlen);
    for (int i = 0; i < m->load->n_mats; i++) {
        const struct plan_mat *pm = &m->load->mats[i];
        for (int k = 0; pm->mat->squares && k < pm->n_groups; k++)
            settle_squares(pm->mat, pm->mat->squares + (size_t)k * (size_t)pm->mat->k_pad,
                           pm->n_groups > 1);
    }
    return rc;
}

/* ---- vectors and tables -------------------------------------------------------------------- */

/* Biases are in the order of the rows; the padding after them is 0 from the mapping. */
static bool fill_bias(const struct plan_mat *pm, struct worker *w)
{
    float *bias = (float *)pm->mat->bias, *whole = (float *)(void *)w->staging;
    int start = 0;
    assert(!pm->interleaved || pm->n_parts > 1);
    for (int i = 0; i < pm->n_parts; start += pm->parts[i++].n_rows) {
        const struct plan_part *part = &pm->parts[i];
        if (!read_vector(part->bias, whole, w)) return false;
        for (int row = 0; row < part->n_rows; row++) {
            int at = start + row;
            if (pm->interleaved)
                at = (row / KERN_PANEL * pm->n_parts + i) * KERN_PANEL + row % KERN_PANEL;
            bias[at] = whole[eng_plan_source(part, row)];
        }
    }
    return true;
}

static bool fill_vectors(struct fill *f)
{
    const struct eng_load *load = f->m->load;
    struct worker *w = &f->workers[0];
    bool ok = true;
    for (int i = 0; ok && i < load->n_vecs; i++)
        ok = fill_vector(&load->vecs[i], w);
    for (int i = 0; ok && i < load->n_mats; i++)
        ok = !load->mats[i].mat->bias || fill_bias(&load->mats[i], w);
    return ok;
}

static void fill_rope_block(void *arg, int item, int thread)
{
    (void)thread;
    struct fill *f = arg;
    const struct eng_model *m = f->m;
    int64_t pos0 = (int64_t)item * ENG_ROPE_BLOCK, left = m->ctx - pos0;
    for (int i = 0; i <= m->hp.has_local_rope; i++) {
        int n = eng_rope_pairs(&m->hp, i);
        size_t at = (size_t)pos0 * (size_t)n;
        eng_rope_rows(f->freqs[i], n, (i ? &m->hp.local_rope : &m->hp.rope)->attention_factor, pos0,
                      left < ENG_ROPE_BLOCK ? (int)left : ENG_ROPE_BLOCK, rope_table(m, i, 0) + at,
                      rope_table(m, i, 1) + at);
    }
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* The most a thread stages: 32 rows of the widest matrix as f32, or the longest vector. */
static size_t staging_bytes(const struct eng_load *load)
{
    size_t most = 0;
    for (int i = 0; i < load->n_vecs; i++)
        if ((size_t)load->vecs[i].n > most) most = (size_t)load->vecs[i].n;
    for (int i = 0; i < load->n_mats; i++) {
        size_t n = (size_t)load->mats[i].mat->n_in * KERN_PANEL;
        if (n > most) most = n;
    }
    for (int i = 0; i < load->n_parts; i++) {
        const struct eng_tensor *bias = load->parts[i].bias;
        if (bias && (size_t)bias->n_elements > most) most = (size_t)bias->n_elements;
    }
    return (most * sizeof(float) + 63) / 64 * 64;
}

static int *count_panels(const struct eng_load *load)
{
    int *first = calloc((size_t)load->n_mats + 1, sizeof(*first));
    for (int i = 0; first && i < load->n_mats; i++)
        first[i + 1] = first[i] + load->mats[i].mat->n_panels;
    return first;
}

static size_t words_bytes(const struct eng_load *load)
{
    size_t most = 64;
    for (int i = 0; i < load->n_mats; i++) {
        size_t bytes = kern_panel_bytes(KERN_W_BF16, load->mats[i].mat->k_pad);
        if (load->mats[i].mat->fmt == KERN_W_B12 && bytes > most) most = bytes;
    }
    return most;
}

static bool make_workers(struct fill *f)
{
    size_t bytes = staging_bytes(f->m->load), words = words_bytes(f->m->load);
    f->workers = aligned_alloc(64, (size_t)f->n_threads * sizeof(*f->workers));
    if (!f->workers) return false;
    memset(f->workers, 0, (size_t)f->n_threads * sizeof(*f->workers));
    for (int i = 0; i < f->n_threads; i++) {
        f->workers[i].staging = aligned_alloc(64, bytes);
        f->workers[i].words = aligned_alloc(64, words);
        if (!f->workers[i].staging || !f->workers[i].words) return false;
    }
    return true;
}

static int report_failure(const struct fill *f, char *err, size_t errlen)
{
    for (int i = 0; i < f->n_threads; i++) {
        const struct worker *w = &f->workers[i];
        if (!w->error) continue;
        if (w->error == NOT_FINITE) {
            bool blocks = eng_dtype_is_blocks(w->at->dtype);
            return fail_with(ENG_EINVAL, err, errlen,
                             "%s: tensor %.200s: a %s of row %lld is infinite or not a number",
                             w->at->shard->name, w->at->file_name, blocks ? "scale" : "number",
                             (long long)w->row);
        }
        return fail_with(ENG_EIO, err, errlen, "%s: tensor %.200s cannot be read: %s",
                         w->at->shard->name, w->at->file_name,
                         w->error < 0 ? "the file became shorter" : strerror(w->error));
    }
    return 0;
}

/* Sums what the threads hashed, the configuration, and what the served context changes. */
static void set_fingerprint(const struct fill *f)
{
    struct eng_model *m = f->m;
    struct eng_hash sum = {{m->hp.config_hash[0], m->hp.config_hash[1]}};
    if (eng_rope_is_long(&m->hp.rope, f->ctx)) eng_hash_add(&sum, (struct eng_hash){{6, 7}});
    for (int i = 0; i < f->n_threads; i++)
        eng_hash_add(&sum, f->workers[i].hash);
    memcpy(m->fingerprint, sum.lane, sizeof(m->fingerprint));
}

static int run(struct fill *f, struct pool *pool, char *err, size_t errlen)
{
    int n_panels = f->first_panel[f->m->load->n_mats];
    int n_blocks = (int)((f->m->ctx + ENG_ROPE_BLOCK - 1) / ENG_ROPE_BLOCK);
    f->panels_per_item = n_panels / POOL_MAX_ITEMS + 1;
    int n_items = (n_panels + f->panels_per_item - 1) / f->panels_per_item;
    eng_rope_freqs(&f->m->hp.rope, 2 * eng_rope_pairs(&f->m->hp, false), f->ctx, f->freqs[0]);
    if (f->m->hp.has_local_rope)
        eng_rope_freqs(&f->m->hp.local_rope, f->m->hp.d_rot, f->ctx, f->freqs[1]);
    if (fill_vectors(f)) {
        struct pool_phase phases[] = {{pack_item, f, n_items}, {fill_rope_block, f, n_blocks}};
        pool_run(pool, phases, 2, NULL);
    }
    int rc = report_failure(f, err, errlen);
    if (rc) return rc;
    set_fingerprint(f);
    f->m->weights_bytes = (int64_t)f->m->load->arena_bytes;
    rc = place_plain(f, err, errlen);
    if (!rc && !f->m->plain) rc = calibrate(f, pool, err, errlen);
    if (rc || (!f->m->plain && !f->squares)) return rc;
    struct pool_phase phase = {pack_item, f, n_items};
    f->again = true;
    pool_run(pool, &phase, 1, NULL);
    return report_failure(f, err, errlen);
}

/* The same, but ENG_ECLOSED if loading was cancelled, which leaves panels unfilled. */
static int run_unless_stopped(struct fill *f, struct pool *pool, char *err, size_t errlen)
{
    int rc = run(f, pool, err, errlen);
    if (rc || !is_stopped(f)) return rc;
    return fail_with(ENG_ECLOSED, err, errlen, "loading was given up");
}

/* The bucket of a distance, key minus query: half of them for each sign, half of these by size. */
static int distance_bucket(int distance, int n_buckets)
{
    enum { MAX_DISTANCE = 128 };
    int half = n_buckets / 2, exact = half / 2, first = distance > 0 ? half : 0;
    int n = abs(distance);
    if (n < exact) return first + n;
    float far = logf((float)n / (float)exact) / (float)log((double)MAX_DISTANCE / exact);
    int bucket = exact + (int)(far * (float)(half - exact));
    return first + (bucket < half - 1 ? bucket : half - 1);
}

/* The additions to scores by distance; attention scales the sum later. */
static bool spread_distances(struct eng_model *m)
{
    if (!m->distances) return true;
    int n = (int)(2 * m->ctx - 1);
    m->distance_bias = calloc((size_t)m->hp.n_heads * (size_t)n, sizeof(*m->distance_bias));
    for (int i = 0; m->distance_bias && i < n; i++) {
        int bucket = distance_bucket(i - (int)(m->ctx - 1), m->hp.n_distances);
        for (int head = 0; head < m->hp.n_heads; head++)
            m->distance_bias[(size_t)head * (size_t)n + (size_t)i] =
                m->distances[bucket * m->hp.n_heads + head] / (float)m->hp.attn_scale;
    }
    return m->distance_bias;
}

int eng_model_fill(struct eng_model *m, struct pool *pool, int64_t ctx, char *err, size_t errlen)
{
    struct fill f = {.m = m, .ctx = ctx, .n_threads = pool_n_threads(pool)};
    int *first_panel = NULL;
    int rc = make_arena(m, ctx, err, errlen);
    if (rc) return rc;
    first_panel = count_panels(m->load);
    f.first_panel = first_panel;
    f.read_again = calloc((size_t)m->load->n_mats, sizeof(*f.read_again));
    if (!first_panel || !f.read_again || !make_workers(&f)) {
        rc = fail_with(ENG_ENOMEM, err, errlen, "no memory to load the model");
    } else {
        rc = run_unless_stopped(&f, pool, err, errlen);
    }
    if (rc == 0 && !spread_distances(m))
        rc = fail_with(ENG_ENOMEM, err, errlen, "no memory for the distances of tokens");
    for (int i = 0; f.workers && i < f.n_threads; i++) {
        free(f.workers[i].staging);
        free(f.workers[i].words);
    }
    free(f.workers);
    free(f.read_again);
    for (int i = 0; f.squares && i < m->load->n_mats; i++)
        m->load->mats[i].mat->squares = NULL;
    free(f.squares);
    free(first_panel);
    if (rc == 0 && !m->adapters) {
        eng_load_destroy(m->load);
        m->load = NULL;
    }
    return rc;
}
