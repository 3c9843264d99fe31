/* SPDX-License-Identifier: MIT */
/* States of sequences; see state.h. */
#include "engine/state.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/draft.h"
#include "engine/kernels/kernels.h"
#include "engine/model/model.h"
#include "engine/step.h"

_Static_assert((STATE_ROWS & (STATE_ROWS - 1)) == 0, "positions are taken modulo it");
_Static_assert(1 + DRAFT_MAX + ENG_MAX_TAPS - 1 <= STATE_ROWS, "a draft's rows replace none that "
                                                               "are still looked back at");
_Static_assert(2 * DRAFT_MAX <= STATE_ROWS, "the rows kept of a draft, and those of the next one");

enum { LINE = 16 }; /* floats of a cache line */

/* Rows of a convolution's input are too far apart for a processor to foresee the next ones. */
enum { ROWS_AHEAD = 4 };

static size_t whole_lines(size_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

static int n_blocks(const struct state_layout *l)
{
    return (l->d_value + KERN_DELTA - 1) / KERN_DELTA;
}

void state_layout_init(struct state_layout *l, const struct eng_hparams *hp,
                       const struct kern *kern)
{
    *l = (struct state_layout){.n_channels = hp->d_model, .n_taps = hp->n_taps, .kern = kern};
    if (hp->n_delta_values > 0) {
        l->n_keys = hp->n_delta_keys;
        l->tiled = hp->delta_tiled;
        l->n_heads = hp->n_delta_values;
        l->d_key = hp->d_delta_key;
        l->d_value = hp->d_delta_value;
        l->n_channels = 2 * l->n_keys * l->d_key + l->n_heads * l->d_value;
        size_t width = (size_t)n_blocks(l) * KERN_DELTA;
        l->matrix_floats = width * (size_t)l->d_key;
        l->log_floats = whole_lines(width + (size_t)l->d_key + 1);
        l->head_floats = LINE + l->matrix_floats + STATE_ROWS * l->log_floats;
    }
    for (int i = 0; i < hp->n_layers; i++)
        l->n_layers += hp->layer_mixer[i] != ENG_ATTENTION;
    size_t layers = (size_t)l->n_layers, channels = (size_t)l->n_channels;
    size_t heads = (size_t)l->n_heads;
    l->n_floats = layers * (STATE_ROWS * channels + heads * l->head_floats);
    if (l->n_layers > 0)
        l->n_kept = layers * ((size_t)(l->n_taps - 1) * channels + heads * l->matrix_floats);
}

/* ---- heads of delta nets ------------------------------------------------------------------- */

/*
 * A head's part of a state: the number of positions that its matrix has taken, a line; the matrix,
 * [blocks of KERN_DELTA values][d_key][KERN_DELTA]; and a row for each of the last positions:
 * delta [blocks][KERN_DELTA], k [d_key], decay.
 */
struct head {
    float *n_taken, *matrix, *log;
};

static struct head head_at(const struct state_layout *l, float *state, int i)
{
    float *at = state + (size_t)l->n_layers * STATE_ROWS * (size_t)l->n_channels +
                (size_t)i * l->head_floats;
    return (struct head){at, at + LINE, at + LINE + l->matrix_floats};
}

static int64_t taken(const struct head *h)
{
    int64_t n;
    memcpy(&n, h->n_taken, sizeof(n));
    return n;
}

static void set_taken(const struct head *h, int64_t n)
{
    memcpy(h->n_taken, &n, sizeof(n));
}

static float *log_row(const struct state_layout *l, const struct head *h, int64_t pos)
{
    return h->log + (size_t)(pos % STATE_ROWS) * l->log_floats;
}

/* Positions [from, to), which the log has, into a block of a matrix. */
static void take_logged(const struct state_layout *l, const struct head *h, int block, int64_t from,
                        int64_t to, float *s)
{
    assert(from <= to && to - from <= STATE_ROWS);
    for (int64_t pos = from; pos < to; pos++) {
        const float *row = log_row(l, h, pos), *k = row + n_blocks(l) * KERN_DELTA;
        struct kern_delta t = {.k = k, .decay = k[l->d_key], .d_k = l->d_key, .n = KERN_DELTA};
        l->kern->delta_again(&t, row + block * KERN_DELTA, s);
    }
}

/* ---- snapshots ----------------------------------------------------------------------------- */

/* Where a state holds the i-th row of a snapshot. */
static size_t row_of(const struct state_layout *l, int64_t pos, int i)
{
    int per_layer = l->n_taps - 1, layer = i / per_layer;
    int64_t at = (pos - per_layer + i % per_layer) % STATE_ROWS;
    return ((size_t)layer * STATE_ROWS + (size_t)at) * (size_t)l->n_channels;
}

void state_save(const struct state_layout *l, const float *state, int64_t pos, float *ret_kept)
{
    size_t n = (size_t)l->n_channels;
    assert(pos >= l->n_taps - 1);
    for (int i = 0; i < l->n_layers * (l->n_taps - 1); i++, ret_kept += n)
        memcpy(ret_kept, state + row_of(l, pos, i), n * sizeof(*state));
    for (int i = 0; i < l->n_layers * l->n_heads; i++) {
        struct head h = head_at(l, (float *)(uintptr_t)state, i);
        memcpy(ret_kept, h.matrix, l->matrix_floats * sizeof(*state));
        for (int block = 0; block < n_blocks(l); block++, ret_kept += l->d_key * KERN_DELTA)
            take_logged(l, &h, block, taken(&h), pos, ret_kept);
    }
}

void state_restore(const struct state_layout *l, float *state, int64_t pos, const float *kept)
{
    size_t n = (size_t)l->n_channels;
    assert(pos >= l->n_taps - 1);
    for (int i = 0; i < l->n_layers * (l->n_taps - 1); i++, kept += n)
        memcpy(state + row_of(l, pos, i), kept, n * sizeof(*state));
    for (int i = 0; i < l->n_layers * l->n_heads; i++, kept += l->matrix_floats) {
        struct head h = head_at(l, state, i);
        memcpy(h.matrix, kept, l->matrix_floats * sizeof(*state));
        set_taken(&h, pos);
    }
}

/* ---- items --------------------------------------------------------------------------------- */

/* Channels [first, first + n) of a convolution over a segment's rows, with gates or without. */
static void convolve(const struct state_layout *l, const struct eng_layer *layer,
                     const struct fwd_segment *seg, const float *in, size_t ld_in, float *out,
                     size_t ld_out, int first, int n)
{
    static const float before_the_text[ENG_MAX_HEAD_DIM];
    size_t d = (size_t)l->n_channels, at = (size_t)first;
    const float *bias = layer->conv_bias ? layer->conv_bias + at : NULL;
    struct kern_conv conv = {layer->conv + at, d, bias, l->n_taps};
    float *rows = seg->state + (size_t)layer->place * STATE_ROWS * d + at;
    bool gates = l->n_heads == 0;
    assert(n <= ENG_MAX_HEAD_DIM && at + (size_t)n <= d);
    in += at;
    for (int i = 0; i < seg->n_tokens; i++, in += ld_in, out += ld_out) {
        const float *before[ENG_MAX_TAPS];
        int64_t pos = seg->pos0 + i, oldest = pos - (l->n_taps - 1);
        for (int j = 0; i + ROWS_AHEAD < seg->n_tokens && j < n; j += LINE)
            __builtin_prefetch(in + ROWS_AHEAD * ld_in + j);
        for (int j = 0; j < l->n_taps - 1; j++)
            before[j] =
                oldest + j < 0 ? before_the_text : rows + (size_t)((oldest + j) % STATE_ROWS) * d;
        l->kern->conv_token(&conv, gates ? in : NULL, gates ? in + d : NULL,
                            gates ? in + 2 * d : in, before, rows + (size_t)(pos % STATE_ROWS) * d,
                            out + at, n);
    }
}

/* The length of queries and keys becomes 1, that of queries also d_key^-1/2. */
static void normalise(const struct state_layout *l, bool queries, float *x, size_t ld, int n_rows)
{
    float w[ENG_MAX_HEAD_DIM], d = (float)l->d_key;
    for (int i = 0; i < l->d_key; i++)
        w[i] = queries ? 1.0f / d : 1.0f / sqrtf(d);
    for (int i = 0; i < n_rows; i++, x += ld)
        l->kern->rmsnorm(x, w, x, l->d_key, 1e-6f / d);
}

/* Of a delta net, in place: a head's queries, keys, or values and gates. */
static void prepare_heads(const struct state_layout *l, const struct eng_layer *layer,
                          const struct fwd_segment *seg, float *rows, size_t ld, int item)
{
    int head = item - 2 * l->n_keys, n = head < 0 ? l->d_key : l->d_value;
    int first = head < 0 ? item * n : l->n_channels - (l->n_heads - head) * n;
    float *x = rows + first, *beta = rows + l->n_channels + l->n_heads * l->d_value + head;
    convolve(l, layer, seg, rows, ld, rows, ld, first, n);
    for (int i = 0; i < seg->n_tokens; i++)
        l->kern->glu[KERN_ACT_SIGMOID](x + (size_t)i * ld, x + (size_t)i * ld, x + (size_t)i * ld,
                                       n);
    if (head < 0) normalise(l, item < l->n_keys, x, ld, seg->n_tokens);
    for (int i = 0; head >= 0 && i < seg->n_tokens; i++, beta += ld)
        l->kern->delta_gates(layer->a_log + head, layer->dt_bias + head, beta, beta + l->n_heads,
                             1);
}

int state_n_conv_items(const struct state_layout *l)
{
    if (l->n_heads > 0) return 2 * l->n_keys + l->n_heads;
    return (l->n_channels + STATE_CHANNELS - 1) / STATE_CHANNELS;
}

void state_convolve(const struct state_layout *l, const struct eng_layer *layer,
                    const struct fwd_segment *seg, float *in, size_t ld_in, float *out,
                    size_t ld_out, int item)
{
    int first = item * STATE_CHANNELS, n = l->n_channels - first;
    if (l->n_heads > 0)
        prepare_heads(l, layer, seg, in, ld_in, item);
    else
        convolve(l, layer, seg, in, ld_in, out, ld_out, first,
                 n < STATE_CHANNELS ? n : STATE_CHANNELS);
}

/* The inputs of a row to a block of a head. */
static struct kern_delta token_of(const struct state_layout *l, const float *row, int head,
                                  int block)
{
    int key = l->tiled ? head % l->n_keys : head / (l->n_heads / l->n_keys),
        left = l->d_value - block * KERN_DELTA;
    const float *z = row + l->n_channels, *beta = z + l->n_heads * l->d_value + head;
    return (struct kern_delta){
        .q = row + key * l->d_key,
        .k = row + (l->n_keys + key) * l->d_key,
        .v = z - (l->n_heads - head) * l->d_value + block * KERN_DELTA,
        .beta = beta[0],
        .decay = beta[l->n_heads],
        .d_k = l->d_key,
        .n = left < KERN_DELTA ? left : KERN_DELTA,
    };
}

/*
 * The rows of a segment whose ids are surely those of the sequence: the first one, unless the twin
 * drafts; all if they are too many for a draft.
 */
static int n_sure_rows(const struct fwd_segment *seg)
{
    if (seg->drafts) return 0;
    return seg->n_tokens > 1 + DRAFT_MAX ? seg->n_tokens : 1;
}

/* Makes the log's row of a position known to all blocks. */
static void log_token(const struct state_layout *l, const struct head *h, int64_t pos,
                      const struct kern_delta *t)
{
    float *k = log_row(l, h, pos) + n_blocks(l) * KERN_DELTA;
    memcpy(k, t->k, (size_t)l->d_key * sizeof(*k));
    k[l->d_key] = t->decay;
}

/* A block of a head over a segment's rows: the sure ones into its matrix, the others into tmp. */
static void walk_block(const struct state_layout *l, const struct head *h,
                       const struct fwd_segment *seg, const float *in, size_t ld_in, float *out,
                       size_t ld_out, int head, int block, float *tmp)
{
    size_t bytes = (size_t)l->d_key * KERN_DELTA * sizeof(*tmp);
    float *s = h->matrix + (size_t)block * (size_t)l->d_key * KERN_DELTA, unused[KERN_DELTA];
    int n_sure = n_sure_rows(seg);
    if (n_sure == 0) s = memcpy(tmp, s, bytes);
    take_logged(l, h, block, taken(h), seg->pos0, s);
    for (int i = 0; i < seg->n_tokens; i++, in += ld_in, out += ld_out) {
        struct kern_delta t = token_of(l, in, head, block);
        if (i > 0 && i == n_sure) s = memcpy(tmp, s, bytes);
        float *delta = log_row(l, h, seg->pos0 + i) + block * KERN_DELTA;
        if (i >= n_sure) log_token(l, h, seg->pos0 + i, &t);
        l->kern->delta_token(&t, s, i < n_sure ? unused : delta, out + block * KERN_DELTA);
    }
}

void state_delta(const struct state_layout *l, const struct eng_model *m, int layer,
                 const struct fwd_segment *seg, const float *in, size_t ld_in, float *out,
                 size_t ld_out, int head, float *tmp)
{
    const struct eng_layer *layer_of = &m->layers[layer];
    struct head h = head_at(l, seg->state, layer_of->place * l->n_heads + head);
    const float *z = in + l->n_channels + head * l->d_value;
    out += head * l->d_value;
    if (seg->pos0 == 0) {
        memset(h.matrix, 0, l->matrix_floats * sizeof(*h.matrix));
        set_taken(&h, 0);
    }
    for (int block = 0; block < n_blocks(l); block++)
        walk_block(l, &h, seg, in, ld_in, out, ld_out, head, block, tmp);
    if (!seg->drafts) set_taken(&h, seg->pos0 + n_sure_rows(seg));
    for (int i = 0; i < seg->n_tokens; i++, z += ld_in, out += ld_out) {
        l->kern->rmsnorm(out, layer_of->delta_norm, out, l->d_value, (float)m->hp.rms_eps);
        l->kern->glu[KERN_ACT_SILU](z, out, out, l->d_value);
    }
}

size_t state_tmp_floats(const struct state_layout *l)
{
    return (size_t)l->d_key * KERN_DELTA;
}
