/* SPDX-License-Identifier: MIT */
/*
 * The transformer, in reading order: see build_program.
 *
 * The whole step is set up once as a list of ops; an op is a phase of the pool. A step only counts
 * each op's items (0: the phase is skipped) and lets the pool run the list.
 *
 * Packing. Rows are normalised and packed for a product either by a phase of their own, tile by
 * tile into a common buffer, or, if they are few, by every thread for itself at its first item of
 * the product: that costs less than another phase. The results of gate and up are packed for the
 * down product as soon as they are computed.
 *
 * The last layer that has keys and values. After these, only rows that want logits or hidden states
 * are needed: these "kept" rows are gathered, and attention's output is read through a map. Layers
 * after it, which share keys and values, work on kept rows alone.
 */
#include "engine/forward.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fail.h"
#include "engine/attention.h"
#include "engine/batch_model.h"
#include "engine/eng_error.h"
#include "engine/experts.h"
#include "engine/gemm.h"
#include "engine/gemm_blas.h"
#include "engine/job_types.h"
#include "engine/kv/kv.h"
#include "engine/lora.h"
#include "engine/model/model.h"
#include "engine/pool.h"
#include "engine/scratch.h"
#include "engine/state.h"

enum {
    PRIVATE_ROWS = 4, /* up to this many rows are packed by each thread for itself */
    FEW_ROWS = 8,     /* of one item that works row by row */
    OPS_PER_LAYER = 32,
    OPS_OUTSIDE = 11 + 3 * ENG_MAX_HEAD_OPS,
};

enum op_kind {
    OP_EMBED,
    OP_PACK,
    OP_SHRINK,
    OP_PRODUCT,
    OP_GATE_UP,
    OP_QK_NORM,
    OP_POST,
    OP_NORM,
    OP_PLE,
    OP_STORE, /* attention's phases */
    OP_ATTEND,
    OP_MERGE,
    OP_CONV,
    OP_DELTA,
    OP_GATHER,
    OP_EXPERTS,
    OP_POOL,
    OP_HEAD,
    OP_REFINE,
};

/* The rows that an op works on. */
enum op_rows { ROWS_ALL, ROWS_KEPT, ROWS_LOGITS, ROWS_POOLED, N_ROWS };

/* One phase. */
struct op {
    struct fwd *f;
    enum op_kind kind;
    enum op_rows rows;
    void (*row)(const struct op *op, int i, int thread); /* of an op that works row by row */
    int layer;
    int site;                   /* OP_SHRINK and products of layers and head: see lora.h */
    const struct eng_mat *mat;  /* products and their packing */
    const struct eng_mat *next; /* the matrix read after this one */
    struct gemm_source src;     /* x NULL: the op before left its rows packed in f->ffn */
    struct kern_out out;
    int units_per_item, n_units;    /* panels, or pairs of them */
    const struct eng_head_op *head; /* OP_REFINE */
    enum experts_phase phase;       /* OP_EXPERTS */
    const float *norm_bias;         /* OP_NORM */
    const float *scale;             /* OP_POST: [1], of the sum; or NULL */
    int reads_layer; /* the layer whose keys and values the product prefetches; -1: none */
    double reads_from, reads_to; /* this product's share of them, 0 .. 1 */
};

/* Argmax over the part of a row of logits that one item of the head computed. */
struct best {
    float value;
    int32_t id;
    bool finite;
};

struct thread_state {
    struct gemm_rows own;
    const struct op *packed_for; /* the op and step whose rows `own` holds */
    uint64_t packed_step;
    float *row;   /* [as long as its rows] */
    float *ple;   /* [n_layers * d_ple] */
    float *state; /* [state_tmp_floats] */
    float *lora;  /* a tile of adapted rows */
    struct gemm_thread gemm;
};

struct fwd {
    struct fwd_params p;
    int n_threads;
    void *mapping;
    size_t mapping_bytes;

    /* activations, f32, rows padded to whole panels */
    float *x;         /* [max_rows][d_model]: the residual stream */
    float *kept;      /* [max_rows][d_model]: the same for kept rows */
    float *branch;    /* [max_rows][d_model]: a branch's output before its norm, or its input after
                    * a LayerNorm */
    float *mixed;     /* [max_rows][d_model]: the sum of a row's experts before its norm */
    float *qkv;       /* [max_rows][rows of eng_layer.qkv]: a mixer's input */
    float *ple;       /* [max_rows][n_layers][d_ple]: per-layer embeddings */
    float *heads;     /* [max_rows][n_heads d_head]: attention's output, or another mixer's */
    float *logits;    /* [max_logit_rows][vocab] */
    float *pooled[2]; /* [max_segs][ld_pooled]: inputs and outputs of the heads, in turn */
    const float *result; /* the one with the last outputs */
    size_t ld_x, ld_qkv, ld_ple, ld_heads, ld_logits, ld_pooled;
    struct best *best; /* [max_logit_rows][n_head_items] */
    int n_head_items;
    float *u;        /* [max_rows * ENG_MAX_LORAS][ld_u]: rows times A of adapters */
    float *ffn_rows; /* [max_rows][k_pad of down]: f->ffn before packing, for adapters */
    size_t ld_u, ld_ffn;

    struct gemm_rows packed; /* [max_rows][d_model, or attention's output if that is longer] */
    struct gemm_rows ffn;    /* [max_rows][ld_ffn]: act(gate) * up */
    struct attn *attn[ATTN_PLANS];
    struct experts *experts; /* NULL: the model has none */
    struct state_layout states;
    struct thread_state *threads; /* [n_threads] */
    struct op *ops;               /* [n_ops] */
    struct pool_phase *phases;    /* [n_ops] */
    int n_ops, max_ops;

    /* the present step */
    uint64_t step;
    const struct fwd_step *in;
    int *seg_row;                   /* [max_segs]: first row of a segment */
    int *seg_kept;                  /* [max_segs]: first kept row of a segment */
    struct fwd_segment *kept_segs;  /* [max_segs]: the kept rows of segments that have any */
    int *kept_seg_row, n_kept_segs; /* [max_segs]: their first rows, among the kept */
    int *seg_pooled;    /* [max_segs]: row of the pooled ones; -1: the segment ends no text */
    int32_t *row_token; /* [max_rows] */
    int32_t *row_pos;   /* [max_rows]: in the table of positions */
    int32_t *row_type;  /* [max_rows] */
    int32_t *kept_row;  /* [max_rows]: those of all that are kept */
    int32_t *logit_row; /* [max_logit_rows]: indices into kept rows */
    int n_rows[N_ROWS]; /* by enum op_rows */
    struct lora_pieces pieces[ROWS_POOLED]; /* likewise, of rows with adapters */
    bool has_down;                          /* some adapter of them */
    bool pools;                             /* some segment */
    int n_done;                             /* of the ops */
    int n_attn_items[ATTN_PLANS][ATTN_PHASES];
};

/* ---- items --------------------------------------------------------------------------------- */

/* An op that works row by row. */
static void rows_item(void *arg, int item, int thread)
{
    const struct op *op = arg;
    int end = (item + 1) * FEW_ROWS, n = op->f->n_rows[op->rows];
    for (int i = item * FEW_ROWS; i < (end < n ? end : n); i++)
        op->row(op, i, thread);
}

/* Adds a row of a table, if the model has it. */
static void add_row(const struct fwd *f, const float *table, int row, float *x)
{
    size_t d = (size_t)f->p.model->hp.d_model;
    if (table) f->p.model->kern->add(x, table + (size_t)row * d, (int)d);
}

/* The row of a token in a table. */
static void look_up(const struct eng_model *m, const struct eng_mat *table, int token, float *ret)
{
    m->kern->unpack_row(eng_mat_format(table, token / KERN_PANEL),
                        table->panels + eng_mat_offset(table, token / KERN_PANEL),
                        token % KERN_PANEL, table->n_in, ret);
}

static void embed_row(const struct op *op, int i, int thread)
{
    struct fwd *f = op->f;
    (void)thread;
    const struct eng_model *m = f->p.model;
    float *x = f->x + (size_t)i * f->ld_x;
    look_up(m, &m->embed, f->row_token[i], x);
    if (m->embed_scale != 1) m->kern->scale(x, m->embed_scale, m->hp.d_model);
    add_row(f, m->pos_rows, f->row_pos[i], x);
    add_row(f, m->type_rows, f->row_type[i], x);
}

/*
 * Per-layer embeddings of a token: the product with its embedding over sqrt(d_model), normed for
 * each layer, plus the table's row times sqrt(d_ple), and the sum over sqrt(2).
 */
static void ple_row(const struct op *op, int i, int thread)
{
    const struct fwd *f = op->f;
    const struct eng_model *m = f->p.model;
    const struct kern *kern = m->kern;
    int d = m->hp.d_ple, n = m->hp.n_layers * d;
    float *x = f->ple + (size_t)i * f->ld_ple, *e = f->threads[thread].ple;
    float eps = (float)(m->hp.rms_eps * m->hp.d_model); /* instead of a division before the norm */
    for (int k = 0; k < n; k += d)
        kern->rmsnorm(x + k, m->ple_norm, x + k, d, eps);
    look_up(m, &m->ple_table, f->row_token[i], e);
    kern->scale(e, sqrtf((float)d), n);
    kern->add(x, e, n);
    kern->scale(x, (float)M_SQRT1_2, n);
}

/* The gate of a layer's, times its part of the embeddings. */
static void ple_gate_row(const struct op *op, int i, int thread)
{
    const struct fwd *f = op->f;
    const struct eng_model *m = f->p.model;
    size_t row = (size_t)(op->rows == ROWS_KEPT ? f->kept_row[i] : i);
    float *gate = f->qkv + (size_t)i * f->ld_qkv;
    (void)thread;
    m->kern->glu[m->hp.act](gate, f->ple + row * f->ld_ple + op->layer * m->hp.d_ple, gate,
                            m->hp.d_ple);
}

/* Queries and keys of a token, normed over all heads together. */
static void qk_norm_row(const struct op *op, int i, int thread)
{
    (void)thread;
    const struct eng_hparams *hp = &op->f->p.model->hp;
    const struct eng_layer *l = &op->f->p.model->layers[op->layer];
    const struct kern *kern = op->f->p.model->kern;
    int n_q = hp->n_heads * hp->d_head, n_k = hp->n_kv_heads * hp->d_head;
    float *q = op->f->qkv + (size_t)i * op->f->ld_qkv, *k = q + n_q;
    kern->rmsnorm(q, l->q_norm, q, n_q, (float)hp->rms_eps);
    kern->rmsnorm(k, l->k_norm, k, n_k, (float)hp->rms_eps);
}

/* The norm of a branch's output, added to the stream. */
static void post_row(const struct op *op, int i, int thread)
{
    (void)thread;
    const struct eng_model *m = op->f->p.model;
    float *branch = op->f->branch + (size_t)i * op->f->ld_x,
          *x = op->out.c + (size_t)i * op->out.ld;
    m->kern->rmsnorm(branch, op->src.norm, branch, m->hp.d_model, op->src.eps);
    m->kern->add(x, branch, m->hp.d_model);
    if (op->scale) m->kern->scale(x, *op->scale, m->hp.d_model);
}

/* The norm of the dense layer's output, before the experts beside it add up theirs. */
static void beside_row(const struct op *op, int i, int thread)
{
    (void)thread;
    const struct eng_model *m = op->f->p.model;
    size_t ld = op->f->ld_x;
    float *branch = op->f->branch + (size_t)i * ld;
    m->kern->rmsnorm(branch, op->src.norm, branch, m->hp.d_model, op->src.eps);
    memset(op->f->mixed + (size_t)i * ld, 0, ld * sizeof(float));
}

/* The norm of the experts' sum is added to that of the dense layer, and the branch ends as any. */
static void mix_row(const struct op *op, int i, int thread)
{
    const struct eng_model *m = op->f->p.model;
    float *mixed = op->f->mixed + (size_t)i * op->f->ld_x;
    m->kern->rmsnorm(mixed, m->layers[op->layer].experts.post, mixed, m->hp.d_model, op->src.eps);
    m->kern->add(op->f->branch + (size_t)i * op->f->ld_x, mixed, m->hp.d_model);
    post_row(op, i, thread);
}

/* A row's share of the shared expert's output, added to the stream. */
static void share_row(const struct op *op, int i, int thread)
{
    (void)thread;
    const struct eng_model *m = op->f->p.model;
    float *branch = op->f->branch + (size_t)i * op->f->ld_x;
    m->kern->scale(branch, experts_shared_factor(op->f->experts, i), m->hp.d_model);
    m->kern->add(op->out.c + (size_t)i * op->out.ld, branch, m->hp.d_model);
}

/* Returns true if row k of a segment wants logits. */
static bool wants_row(const struct fwd_segment *seg, int k)
{
    return seg->want == FWD_WANT_ALL || (seg->want == FWD_WANT_LAST && k == seg->n_tokens - 1);
}

/* LayerNorm of a row that no product norms while it packs it. */
static void norm_row(const struct op *op, int i, int thread)
{
    (void)thread;
    const struct eng_model *m = op->f->p.model;
    m->kern->layernorm(op->src.x + (size_t)i * op->src.ld, op->src.norm, op->norm_bias,
                       op->out.c + (size_t)i * op->out.ld, m->hp.d_model, op->src.eps);
}

static struct gemm_rows rows_in(const struct gemm_rows *buffers, const struct op *op)
{
    struct gemm_rows r = *buffers;
    gemm_rows_init(&r, op->f->p.model, op->mat, op->f->n_rows[op->rows]);
    return r;
}

static bool is_packed(const struct op *op)
{
    return !op->src.x;
}

static struct gemm_rows common_rows(const struct op *op)
{
    return rows_in(is_packed(op) ? &op->f->ffn : &op->f->packed, op);
}

static void pack_item(void *arg, int item, int thread)
{
    const struct op *op = arg;
    struct gemm_rows rows = common_rows(op);
    gemm_pack_item(op->f->p.model, op->mat, &op->src, &rows, item, op->f->threads[thread].row);
}

/* The packed rows of a product: the common ones, or this thread's own, packed at its first item. */
static struct gemm_rows packed_rows(const struct op *op, struct thread_state *t)
{
    struct fwd *f = op->f;
    if (f->n_rows[op->rows] > PRIVATE_ROWS || is_packed(op)) return common_rows(op);
    struct gemm_rows r = rows_in(&t->own, op);
    if (t->packed_for == op && t->packed_step == f->step) return r;
    for (int i = 0; i < gemm_n_pack_items(&r); i++)
        gemm_pack_item(f->p.model, op->mat, &op->src, &r, i, t->row);
    t->packed_for = op;
    t->packed_step = f->step;
    return r;
}

/* Gate and up go together. */
static int panels_per_unit(const struct op *op)
{
    return op->kind == OP_GATE_UP && !op->f->p.model->hp.ungated ? 2 : 1;
}

static size_t unit_bytes(const struct op *op)
{
    return op->mat->panel_bytes * (size_t)panels_per_unit(op);
}

/* The panel, or pair of them, at which a unit begins: two fine panels count as three. */
static int unit_start(const struct op *op, int unit)
{
    int first = op->mat->n_panels - op->mat->n_fine;
    if (op->mat->n_fine == 0 || unit <= first) return unit;
    return first + (2 * (unit - first) + 2) / 3;
}

static const uint8_t *unit_at(const struct op *op, size_t unit)
{
    int start = unit_start(op, (int)unit);
    return op->mat->panels + eng_mat_offset(op->mat, panels_per_unit(op) * start);
}

/* This product's share of the keys and values that the next attention reads. */
static struct gemm_blocks coming_reads(const struct op *op)
{
    if (op->reads_layer < 0) return (struct gemm_blocks){.end = 0};
    struct attn *attn = op->f->attn[attn_plan(&op->f->p.model->hp, op->reads_layer)];
    struct gemm_blocks b = attn_reads(attn, op->reads_layer);
    int n = b.end;
    b.first = (int)(n * op->reads_from);
    b.end = (int)(n * op->reads_to);
    return b;
}

/*
 * The data to have in L2 at the end of an item: the start of the item this thread will probably
 * claim next, or, at the end of a matrix, of its first item of the next matrix.
 */
static struct gemm_ahead guess_ahead(const struct op *op, int item, int thread)
{
    int n_threads = op->f->n_threads;
    size_t next = (size_t)(item + n_threads) * (size_t)op->units_per_item;
    if (next < (size_t)op->n_units)
        return (struct gemm_ahead){unit_at(op, next), unit_bytes(op), coming_reads(op)};
    const struct eng_mat *m = op->next;
    size_t first = (size_t)m->n_panels * (size_t)thread / (size_t)n_threads;
    return (struct gemm_ahead){m->panels + eng_mat_offset(m, (int)first), m->panel_bytes,
                               coming_reads(op)};
}

static int item_units(const struct op *op, int item, int *ret_first)
{
    int first = item * op->units_per_item, end = first + op->units_per_item;
    *ret_first = unit_start(op, first);
    return unit_start(op, end < op->n_units ? end : op->n_units) - *ret_first;
}

static void shrink_item(void *arg, int item, int thread)
{
    const struct op *op = arg;
    struct fwd *f = op->f;
    struct thread_state *t = &f->threads[thread];
    lora_shrink(f->p.model->kern, &f->pieces[op->rows].list[item], op->site, &op->src, t->lora,
                f->u, f->ld_u);
}

static bool adapts(const struct op *op)
{
    return op->site >= 0 && op->rows < ROWS_POOLED && op->f->pieces[op->rows].n > 0;
}

/* Adds what adapters give to panels of a product; out: the first row and panel. */
static void expand(const struct op *op, int panel, int n, int row, int n_rows,
                   const struct kern_out *out)
{
    const struct fwd *f = op->f;
    if (adapts(op))
        lora_expand(f->p.model->kern, &f->pieces[op->rows], op->site, f->u, f->ld_u, panel, n, row,
                    n_rows, out);
}

static void expand_gate_up(const struct gemm_delta *d, int panel, int n, int row, int n_rows,
                           const struct kern_out *out)
{
    expand(d->ctx, panel, n, row, n_rows, out);
}

static void product_item(void *arg, int item, int thread)
{
    const struct op *op = arg;
    struct thread_state *t = &op->f->threads[thread];
    struct gemm_rows rows = packed_rows(op, t);
    struct gemm_ahead ahead = guess_ahead(op, item, thread);
    int first, n = item_units(op, item, &first);
    if (op->mat->squares && item == 0) gemm_add_squares(&rows, op->mat->squares);
    gemm_panels(op->f->p.model, op->mat, &rows, first, n, &op->out, &ahead, &t->gemm);
    struct kern_out out = op->out;
    out.c += (size_t)first * KERN_PANEL;
    expand(op, first, n, 0, rows.n_rows, &out);
}

static void gate_up_item(void *arg, int item, int thread)
{
    const struct op *op = arg, *down = op + 1 + (op[1].kind == OP_SHRINK);
    struct thread_state *t = &op->f->threads[thread];
    struct gemm_rows rows = packed_rows(op, t), ret = common_rows(down);
    struct gemm_ahead ahead = guess_ahead(op, item, thread);
    int first, n = item_units(op, item, &first);
    if (op->mat->squares && item == 0) gemm_add_squares(&rows, op->mat->squares);
    const struct fwd *f = op->f;
    struct gemm_delta delta = {.add = expand_gate_up,
                               .ctx = arg,
                               .rows = f->has_down ? f->ffn_rows : NULL,
                               .ld = (size_t)ret.k_pad};
    gemm_gate_up(f->p.model, op->mat, &rows, first, n, &ret, adapts(op) ? &delta : NULL, &ahead,
                 &t->gemm);
}

/* A phase of attention. */
static void attention_item(void *arg, int item, int thread)
{
    static void (*const items[ATTN_PHASES])(struct attn *, int, int,
                                            int) = {attn_store_item, attn_item, attn_merge_item};
    const struct op *op = arg;
    int plan = attn_plan(&op->f->p.model->hp, op->layer);
    items[op->kind - OP_STORE](op->f->attn[plan], op->layer, item, thread);
}

/* Some channels of a convolution over one segment. */
static void conv_item(void *arg, int item, int thread)
{
    const struct op *op = arg;
    const struct fwd *f = op->f;
    int n_parts = state_n_conv_items(&f->states), seg = item / n_parts;
    size_t row = (size_t)f->seg_row[seg];
    (void)thread;
    state_convolve(&f->states, &f->p.model->layers[op->layer], &f->in->segs[seg],
                   f->qkv + row * f->ld_qkv, f->ld_qkv, f->heads + row * f->ld_heads, f->ld_heads,
                   item % n_parts);
}

/* A head of a delta net over one segment. */
static void delta_item(void *arg, int item, int thread)
{
    const struct op *op = arg;
    const struct fwd *f = op->f;
    int n_heads = f->states.n_heads, seg = item / n_heads;
    size_t row = (size_t)f->seg_row[seg];
    state_delta(&f->states, f->p.model, op->layer, &f->in->segs[seg], f->qkv + row * f->ld_qkv,
                f->ld_qkv, f->heads + row * f->ld_heads, f->ld_heads, item % n_heads,
                f->threads[thread].state);
}

static struct experts_work experts_of(const struct op *op)
{
    return (struct experts_work){.experts = op->f->experts,
                                 .of = &op->f->p.model->layers[op->layer].experts,
                                 .phase = op->phase,
                                 .n_rows = op->f->n_rows[op->rows],
                                 .src = op->src,
                                 .out = op->out,
                                 .units = op->units_per_item,
                                 .next = op->next};
}

static void experts_op_item(void *arg, int item, int thread)
{
    const struct op *op = arg;
    struct thread_state *t = &op->f->threads[thread];
    struct experts_work w = experts_of(op);
    experts_item(&w, item, thread, t->row, &t->gemm);
}

static void gather_item(void *arg, int item, int thread)
{
    const struct op *op = arg;
    struct fwd *f = op->f;
    (void)item, (void)thread;
    for (int i = 0; i < f->n_rows[ROWS_KEPT]; i++)
        memcpy(f->kept + (size_t)i * f->ld_x, f->x + (size_t)f->kept_row[i] * f->ld_x,
               f->ld_x * sizeof(float));
}

/* The text's position from which rows are pooled. */
static int64_t first_pooled(const struct fwd *f, const struct fwd_segment *seg)
{
    enum eng_pooling pooling = f->p.model->heads.pooling;
    if (pooling == ENG_POOL_LAST) return seg->ends ? seg->pos0 + seg->n_tokens - 1 : INT64_MAX;
    return pooling == ENG_POOL_CLS ? 0 : seg->n_unpooled;
}

/* Returns true if row k of a segment is pooled. */
static bool pools_row(const struct fwd *f, const struct fwd_segment *seg, int k)
{
    int64_t first = first_pooled(f, seg), pos = seg->pos0 + k;
    return seg->pool && (f->p.model->heads.pooling == ENG_POOL_CLS ? pos == first : pos >= first);
}

/* Kept rows of a segment are its last ones if layers attend for them alone. */
static bool is_kept(const struct fwd *f, const struct fwd_segment *seg, int k)
{
    return wants_row(seg, k) || pools_row(f, seg, k) || (seg->pool && f->p.model->hp.n_shared > 0);
}

/* Adds the row at a position to the state of a pooling. */
static void pool_row(const struct fwd *f, const struct fwd_segment *seg, int64_t pos, float *row)
{
    const struct eng_model *m = f->p.model;
    int n = m->hp.d_model;
    if (m->heads.pooling == ENG_POOL_WEIGHTED) m->kern->scale(row, (float)(pos + 1), n);
    if (pos == first_pooled(f, seg)) {
        memcpy(seg->pool, row, (size_t)n * sizeof(*row));
    } else if (m->heads.pooling == ENG_POOL_MAX) {
        for (int i = 0; i < n; i++)
            if (row[i] > seg->pool[i] || isnan(row[i])) seg->pool[i] = row[i];
    } else {
        m->kern->add(seg->pool, row, n);
    }
}

/* The state of a text that has ended, over what its pooling divides by. */
static void finish_pool(const struct fwd *f, const struct fwd_segment *seg, float *ret)
{
    const struct eng_model *m = f->p.model;
    double n = (double)(seg->pos0 + seg->n_tokens), left_out = (double)seg->n_unpooled, by = 1;
    switch (m->heads.pooling) {
    case ENG_POOL_MEAN: by = n - left_out; break;
    case ENG_POOL_SQRT_LEN: by = sqrt(n - left_out); break;
    case ENG_POOL_WEIGHTED: by = (n * (n + 1) - left_out * (left_out + 1)) / 2; break;
    default: break;
    }
    for (int i = 0; i < m->hp.d_model; i++)
        ret[i] = seg->pool[i] / (float)by;
}

static void final_row(const struct eng_model *m, const float *x, float *ret)
{
    int n = m->hp.d_model;
    if (!m->final_norm)
        memcpy(ret, x, (size_t)n * sizeof(*ret));
    else if (m->hp.encoder)
        m->kern->layernorm(x, m->final_norm, NULL, ret, n, (float)m->stream_eps);
    else
        m->kern->rmsnorm(x, m->final_norm, ret, n, (float)m->stream_eps);
}

/* Final hidden states of one segment, pooled in order of position. */
static void pool_item(void *arg, int item, int thread)
{
    const struct op *op = arg;
    struct fwd *f = op->f;
    const struct eng_model *m = f->p.model;
    const struct fwd_segment *seg = &f->in->segs[item];
    float *row = f->threads[thread].row;
    if (!seg->pool) return;
    int kept = f->seg_kept[item];
    for (int k = 0; k < seg->n_tokens; k++) {
        if (pools_row(f, seg, k)) {
            final_row(m, f->kept + (size_t)kept * f->ld_x, row);
            pool_row(f, seg, seg->pos0 + k, row);
        }
        kept += is_kept(f, seg, k);
    }
    if (seg->ends) finish_pool(f, seg, f->pooled[0] + (size_t)f->seg_pooled[item] * f->ld_pooled);
}

/* x / max(its length, 1e-12) */
static void normalise(float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    double length = sqrt(sum);
    if (length < 1e-12) length = 1e-12;
    for (int i = 0; i < n; i++)
        x[i] = (float)((double)x[i] / length);
}

static float activate(enum eng_head_act act, float x)
{
    switch (act) {
    case ENG_HEAD_IDENTITY: break;
    case ENG_HEAD_TANH: return tanhf(x);
    case ENG_HEAD_RELU: return x < 0 ? 0 : x;
    case ENG_HEAD_GELU: return x / 2 * (1 + erff(x * (float)M_SQRT1_2));
    }
    return x;
}

/* The part of a head that works on each row by itself. */
static void refine_item(void *arg, int item, int thread)
{
    const struct op *op = arg;
    (void)thread;
    float *x = op->out.c + (size_t)item * op->out.ld;
    if (op->head->kind == ENG_HEAD_L2) {
        normalise(x, op->units_per_item);
        return;
    }
    if (op->head->kind == ENG_HEAD_NORM) {
        const struct eng_model *m = op->f->p.model;
        m->kern->layernorm(x, op->head->norm, NULL, x, op->units_per_item, (float)m->stream_eps);
        return;
    }
    for (int i = 0; i < op->units_per_item; i++)
        x[i] = activate(op->head->act, x[i]);
}

/* Some panels of the head for all rows, and the largest logit among them. */
static void head_item(void *arg, int item, int thread)
{
    const struct op *op = arg;
    struct fwd *f = op->f;
    product_item(arg, item, thread);
    int first, n = item_units(op, item, &first) * KERN_PANEL;
    first *= KERN_PANEL;
    if (n > f->p.model->hp.vocab - first) n = f->p.model->hp.vocab - first;
    float cap = (float)f->p.model->hp.logit_softcap;
    for (int i = 0; i < f->n_rows[ROWS_LOGITS]; i++) {
        float *row = f->logits + (size_t)i * f->ld_logits + first;
        if (cap > 0) f->p.model->kern->softcap(row, n, 1.0f, cap);
        struct best *best = &f->best[(size_t)i * (size_t)f->n_head_items + (size_t)item];
        int at = f->p.model->kern->argmax(row, n, &best->finite);
        best->value = row[at];
        best->id = (int32_t)(first + at);
    }
}

/* ---- the program --------------------------------------------------------------------------- */

static struct op *add_op(struct fwd *f, enum op_kind kind, enum op_rows rows,
                         void (*fn)(void *arg, int item, int thread))
{
    assert(f->n_ops < f->max_ops);
    struct op *op = &f->ops[f->n_ops];
    *op = (struct op){.f = f, .kind = kind, .rows = rows, .reads_layer = -1};
    f->phases[f->n_ops++] = (struct pool_phase){fn, op, 0};
    return op;
}

static struct op *add_layer_op(struct fwd *f, enum op_kind kind, int layer,
                               void (*fn)(void *arg, int item, int thread))
{
    struct op *op = add_op(f, kind, ROWS_ALL, fn);
    op->layer = layer;
    return op;
}

static struct gemm_source plain(const float *x, size_t ld, const int32_t *map)
{
    return (struct gemm_source){.x = x, .ld = ld, .map = map};
}

/* The first products of adapters at a matrix; its place among their pairs, -1: none. */
static int add_shrink(struct fwd *f, enum op_rows rows, struct gemm_source src,
                      const struct eng_mat *m)
{
    int site = f->p.lora_rank > 0 ? eng_lora_site_of(f->p.model, m) : -1;
    if (site < 0) return -1;
    struct op *op = add_op(f, OP_SHRINK, rows, shrink_item);
    op->site = site;
    op->src = src;
    if (!src.x) op->src = plain(f->ffn_rows, (size_t)m->k_pad, NULL);
    return site;
}

/* The packing of rows, if src has any, and their product with a matrix. */
static struct op *add_product(struct fwd *f, enum op_kind kind, enum op_rows rows,
                              struct gemm_source src, const struct eng_mat *m, struct kern_out out)
{
    int site = add_shrink(f, rows, src, m);
    if (src.x) {
        struct op *pack = add_op(f, OP_PACK, rows, pack_item);
        pack->src = src;
        pack->mat = m;
    }
    struct op *op = add_op(f, kind, rows,
                           kind == OP_GATE_UP ? gate_up_item
                           : kind == OP_HEAD  ? head_item
                                              : product_item);
    op->site = site;
    op->src = src;
    op->mat = m;
    op->out = out;
    op->n_units =
        kind == OP_GATE_UP ? m->n_panels / panels_per_unit(op) : m->n_panels + m->n_fine / 2;
    op->units_per_item = gemm_units_per_item(op->n_units, unit_bytes(op), f->n_threads);
    return op;
}

static struct gemm_source normed(const struct fwd *f, const float *x, const float *weights)
{
    return (struct gemm_source){
        .x = x, .ld = f->ld_x, .norm = weights, .eps = (float)f->p.model->stream_eps};
}

static struct kern_out into(float *c, size_t ld)
{
    return (struct kern_out){c, ld, false};
}

static struct kern_out added_to(float *c, size_t ld)
{
    return (struct kern_out){c, ld, true};
}

static bool is_product(const struct op *op)
{
    return op->mat && op->kind != OP_PACK;
}

/* Links every product to the matrix read after it; the last one to the first of the next step. */
static void link_products(struct fwd *f)
{
    const struct eng_mat *next = &f->p.model->layers[0].qkv;
    for (int i = f->n_ops - 1; i >= 0; i--) {
        struct op *op = &f->ops[i];
        op->next = next;
        if (!is_product(op)) continue;
        if (op->rows != ROWS_POOLED) next = op->mat;
    }
}

/* The products between two attentions share the prefetch for the second by their sizes. */
static void link_attention(struct fwd *f)
{
    size_t total = 0, done = 0;
    int first = 0;
    for (int i = 0; i < f->n_ops; i++) {
        struct op *op = &f->ops[i];
        if (is_product(op)) total += eng_mat_offset(op->mat, op->mat->n_panels);
        if (op->kind != OP_ATTEND) continue;
        for (; first < i; first++) {
            struct op *p = &f->ops[first];
            if (!is_product(p)) continue;
            p->reads_layer = op->layer;
            p->reads_from = (double)done / (double)total;
            done += eng_mat_offset(p->mat, p->mat->n_panels);
            p->reads_to = (double)done / (double)total;
        }
        total = done = 0;
    }
}

/* The way of a branch's output into the stream x, which may then be scaled. */
static struct op *add_post(struct fwd *f, enum op_rows rows,
                           void (*row)(const struct op *op, int i, int thread), const float *norm,
                           const float *scale, float *x)
{
    struct op *op = add_op(f, OP_POST, rows, rows_item);
    op->row = row;
    op->src = (struct gemm_source){.norm = norm, .eps = (float)f->p.model->hp.rms_eps};
    op->scale = scale;
    op->out = added_to(x, f->ld_x);
    return op;
}

/*
 * A product whose result is added to the stream x: at once, or, if the layer has a norm for it,
 * after that; then it may be scaled.
 */
static void add_branch(struct fwd *f, enum op_rows rows, struct gemm_source src,
                       const struct eng_mat *m, const float *norm, const float *scale, float *x)
{
    struct kern_out stream = added_to(x, f->ld_x);
    add_product(f, OP_PRODUCT, rows, src, m, norm ? into(f->branch, f->ld_x) : stream);
    if (norm) add_post(f, rows, post_row, norm, scale, x);
}

/* A LayerNorm of x, into `to`, which may be x. */
static void add_norm(struct fwd *f, enum op_rows rows, const float *x, const float *norm,
                     const float *bias, float *to)
{
    struct op *op = add_op(f, OP_NORM, rows, rows_item);
    op->row = norm_row;
    op->src = normed(f, x, norm);
    op->norm_bias = bias;
    op->out = into(to, f->ld_x);
}

/* The stream as a branch reads it: normed by its product's packing, or by an op of its own. */
static struct gemm_source branch_input(struct fwd *f, enum op_rows rows, const float *x,
                                       const float *norm, const float *bias)
{
    if (!f->p.model->hp.encoder || !norm) return normed(f, x, norm);
    add_norm(f, rows, x, norm, bias, f->branch);
    return plain(f->branch, f->ld_x, NULL);
}

/* Makes a row of the final hidden states of each text that ends. */
static void add_heads(struct fwd *f)
{
    const struct eng_heads *heads = &f->p.model->heads;
    int width = f->p.model->hp.d_model, at = 0;
    add_op(f, OP_POOL, ROWS_KEPT, pool_item);
    for (int i = 0; i < heads->n_ops; i++) {
        const struct eng_head_op *head = &heads->ops[i];
        if (head->kind == ENG_HEAD_DENSE) {
            struct gemm_source src = plain(f->pooled[at], f->ld_pooled, NULL);
            at = !at;
            add_product(f, OP_PRODUCT, ROWS_POOLED, src, &head->mat,
                        into(f->pooled[at], f->ld_pooled));
            width = head->mat.n_out;
            if (head->act == ENG_HEAD_IDENTITY) continue;
        }
        struct op *op = add_op(f, OP_REFINE, ROWS_POOLED, refine_item);
        op->head = head;
        op->out = into(f->pooled[at], f->ld_pooled);
        op->units_per_item = width;
    }
    f->result = f->pooled[at];
}

static void add_mixer(struct fwd *f, int layer)
{
    const struct eng_hparams *hp = &f->p.model->hp;
    if (hp->layer_mixer[layer] != ENG_ATTENTION) {
        add_layer_op(f, OP_CONV, layer, conv_item);
        if (hp->layer_mixer[layer] == ENG_DELTA) add_layer_op(f, OP_DELTA, layer, delta_item);
        return;
    }
    if (hp->qk_norm == ENG_QK_NORM_ROW)
        add_layer_op(f, OP_QK_NORM, layer, rows_item)->row = qk_norm_row;
    for (int i = 0; i < ATTN_PHASES; i++)
        add_layer_op(f, (enum op_kind)(OP_STORE + i), layer, attention_item);
}

/*
 * Phases of a layer's experts. The last one changes the rows that a dense layer beside them reads
 * too.
 */
static void add_experts(struct fwd *f, enum op_rows rows, int layer, float *x,
                        enum experts_phase first, enum experts_phase last)
{
    const struct eng_layer *l = &f->p.model->layers[layer];
    for (enum experts_phase phase = first; phase <= last; phase++) {
        struct op *op = add_op(f, OP_EXPERTS, rows, experts_op_item);
        op->layer = layer;
        op->phase = phase;
        op->src = normed(f, x, l->experts.norm ? l->experts.norm : l->ffn_norm);
        op->out = added_to(f->p.model->hp.expert_norms ? f->mixed : x, f->ld_x);
        op->units_per_item = experts_units(f->experts, &l->experts, phase);
    }
}

static void add_ple_inputs(struct fwd *f)
{
    const struct eng_model *m = f->p.model;
    if (m->hp.d_ple == 0) return;
    add_product(f, OP_PRODUCT, ROWS_ALL, plain(f->x, f->ld_x, NULL), &m->ple_model,
                into(f->ple, f->ld_ple));
    add_op(f, OP_PLE, ROWS_ALL, rows_item)->row = ple_row;
}

/* Adds a layer's part of the per-layer embeddings. */
static void add_ple(struct fwd *f, enum op_rows rows, int layer, float *x)
{
    const struct eng_layer *l = &f->p.model->layers[layer];
    if (f->p.model->hp.d_ple == 0) return;
    add_product(f, OP_PRODUCT, rows, plain(x, f->ld_x, NULL), &l->ple_gate,
                into(f->qkv, f->ld_qkv));
    struct op *op = add_op(f, OP_PLE, rows, rows_item);
    op->row = ple_gate_row;
    op->layer = layer;
    add_branch(f, rows, plain(f->qkv, f->ld_qkv, NULL), &l->ple_proj, l->ple_post, l->scale, x);
}

/* The transformer. */
static void build_program(struct fwd *f)
{
    const struct gemm_source packed_in = {.x = NULL};
    const struct kern_out packed_out = {.c = NULL};
    const struct eng_model *m = f->p.model;
    bool post = m->hp.post_norms; /* behind the sum, not before it */
    add_op(f, OP_EMBED, ROWS_ALL, rows_item)->row = embed_row;
    if (m->embed_norm) add_norm(f, ROWS_ALL, f->x, m->embed_norm, m->embed_norm_bias, f->x);
    add_ple_inputs(f);
    enum op_rows rows = ROWS_ALL;
    float *x = f->x;
    for (int i = 0; i < m->hp.n_layers; i++) {
        const struct eng_layer *l = &m->layers[i];
        bool last = i == m->hp.n_layers - m->hp.n_shared - 1; /* of those with keys and values */
        const float *scale = m->hp.d_ple ? NULL : l->scale;
        add_product(f, OP_PRODUCT, rows, branch_input(f, rows, x, l->attn_norm, l->attn_norm_bias),
                    &l->qkv, into(f->qkv, f->ld_qkv));
        add_mixer(f, i);
        if (last) {
            add_op(f, OP_GATHER, ROWS_KEPT, gather_item);
            rows = ROWS_KEPT;
            x = f->kept;
        }
        add_branch(f, rows, plain(f->heads, f->ld_heads, last ? f->kept_row : NULL), &l->o,
                   post ? NULL : l->attn_post, NULL, x);
        if (post) add_norm(f, rows, x, l->attn_post, l->attn_post_bias, x);
        if (m->hp.layer_experts[i]) {
            const float *norm = l->experts.router_norm ? l->experts.router_norm : l->ffn_norm;
            add_product(f, OP_PRODUCT, rows, normed(f, x, norm), &l->experts.router,
                        experts_logits(f->experts));
            add_experts(f, rows, i, x, EXPERTS_CHOOSE, EXPERTS_UP);
        }
        if (l->gate_up.n_panels > 0) {
            add_product(f, OP_GATE_UP, rows,
                        branch_input(f, rows, x, l->ffn_norm, l->ffn_norm_bias), &l->gate_up,
                        packed_out);
            if (m->hp.shared_gate || m->hp.expert_norms) {
                add_product(f, OP_PRODUCT, rows, packed_in, &l->down, into(f->branch, f->ld_x));
                add_post(f, rows, m->hp.shared_gate ? share_row : beside_row, l->experts.dense_post,
                         NULL, x);
            } else {
                add_branch(f, rows, packed_in, &l->down, post ? NULL : l->ffn_post, scale, x);
            }
        }
        if (m->hp.layer_experts[i]) add_experts(f, rows, i, x, EXPERTS_DOWN, EXPERTS_DOWN);
        if (m->hp.expert_norms) add_post(f, rows, mix_row, l->ffn_post, scale, x)->layer = i;
        if (post) add_norm(f, rows, x, l->ffn_post, l->ffn_post_bias, x);
        add_ple(f, rows, i, x);
    }
    if (m->has_head) {
        struct gemm_source final = normed(f, f->kept, m->head_norm);
        final.map = f->logit_row;
        add_product(f, OP_HEAD, ROWS_LOGITS, final, &m->head, into(f->logits, f->ld_logits));
    }
    add_heads(f);
    link_products(f);
    link_attention(f);
}

/* ---- a step -------------------------------------------------------------------------------- */

static int count_pack_items(const struct op *op)
{
    struct gemm_rows rows = common_rows(op);
    return gemm_n_pack_items(&rows);
}

static int count_items(const struct op *op)
{
    const struct fwd *f = op->f;
    int n_rows = f->n_rows[op->rows];
    struct experts_work w;
    switch (op->kind) {
    case OP_EXPERTS: w = experts_of(op); return experts_n_items(&w);
    case OP_EMBED:
    case OP_QK_NORM:
    case OP_POST:
    case OP_PLE:
    case OP_NORM: return ceil_div(n_rows, FEW_ROWS);
    case OP_PACK: return n_rows > PRIVATE_ROWS ? count_pack_items(op) : 0;
    case OP_SHRINK: return f->pieces[op->rows].n;
    case OP_PRODUCT:
    case OP_GATE_UP:
    case OP_HEAD: return n_rows > 0 ? ceil_div(op->n_units, op->units_per_item) : 0;
    case OP_STORE:
    case OP_ATTEND:
    case OP_MERGE:
        return f->n_attn_items[attn_plan(&f->p.model->hp, op->layer)][op->kind - OP_STORE];
    case OP_CONV: return f->in->n_segs * state_n_conv_items(&f->states);
    case OP_DELTA: return f->in->n_segs * f->states.n_heads;
    case OP_GATHER: return n_rows > 0;
    case OP_POOL: return f->pools ? f->in->n_segs : 0;
    case OP_REFINE: return n_rows;
    }
    return 0;
}

/* The row of the table of positions for the next token of a text. */
static int next_position(const struct eng_hparams *hp, int32_t token, int *pos)
{
    if (hp->first_position > 0 && token == hp->pad_id) return hp->pad_id;
    return hp->first_position + (*pos)++;
}

/* Adds the rows that a segment has brought to those with adapters. */
static void add_adapted(struct fwd *f, const struct fwd_segment *seg, const int before[N_ROWS])
{
    if (f->p.lora_rank == 0) return;
    for (int i = 0; i < ROWS_POOLED; i++)
        lora_add(&f->pieces[i], seg->loras, seg->n_loras, before[i], f->n_rows[i] - before[i],
                 f->p.model->kern->max_rows[KERN_A_F32]);
    for (int i = 0; i < seg->n_loras; i++)
        f->has_down = f->has_down || (seg->loras[i].scale != 0 && seg->loras[i].lora->has_down);
}

/* Notes the kept rows of a segment, its last n, for the layers that attend for them alone. */
static void add_kept(struct fwd *f, const struct fwd_segment *seg, int first, int n)
{
    if (n == 0 || f->p.model->hp.n_shared == 0) return;
    struct fwd_segment *kept = &f->kept_segs[f->n_kept_segs];
    f->kept_seg_row[f->n_kept_segs++] = first;
    *kept = *seg;
    kept->pos0 += seg->n_tokens - n;
    kept->n_tokens = n;
}

/* The id whose embedding a token has. */
static int32_t embedded_as(const struct eng_hparams *hp, int32_t token)
{
    for (int i = 0; i < 3; i++)
        if (token == hp->soft_ids[i]) return hp->pad_id;
    return token;
}

/* Adds a segment's rows to the step's lists. */
static void take_segment(struct fwd *f, int i)
{
    const struct fwd_segment *seg = &f->in->segs[i];
    int *n = f->n_rows, before[N_ROWS];
    memcpy(before, n, sizeof(before));
    assert(n[ROWS_ALL] + seg->n_tokens <= f->p.max_rows);
    assert(seg->pos0 + seg->n_tokens <= f->p.ctx);
    assert(seg->state || f->states.n_layers == 0);
    f->seg_row[i] = n[ROWS_ALL];
    f->seg_kept[i] = n[ROWS_KEPT];
    int pos = (int)seg->pos0;
    f->pools = f->pools || seg->pool;
    f->seg_pooled[i] = seg->pool && seg->ends ? n[ROWS_POOLED]++ : -1;
    for (int k = 0; k < seg->n_tokens; k++) {
        if (wants_row(seg, k)) {
            assert(n[ROWS_LOGITS] < f->p.max_logit_rows);
            f->logit_row[n[ROWS_LOGITS]++] = n[ROWS_KEPT];
        }
        if (is_kept(f, seg, k)) f->kept_row[n[ROWS_KEPT]++] = n[ROWS_ALL];
        f->row_token[n[ROWS_ALL]] = embedded_as(&f->p.model->hp, seg->tokens[k]);
        f->row_type[n[ROWS_ALL]] =
            f->p.model->hp.n_types > 1 && seg->n_first > 0 && k >= seg->n_first;
        f->row_pos[n[ROWS_ALL]++] = next_position(&f->p.model->hp, seg->tokens[k], &pos);
    }
    add_kept(f, seg, before[ROWS_KEPT], n[ROWS_KEPT] - before[ROWS_KEPT]);
    add_adapted(f, seg, before);
}

bool fwd_run(struct fwd *f, const struct fwd_step *step)
{
    assert(step->n_segs <= f->p.max_segs);
    f->in = step;
    f->step++;
    f->pools = f->has_down = false;
    f->n_kept_segs = 0;
    for (int i = 0; i < ROWS_POOLED; i++)
        f->pieces[i].n = f->pieces[i].n_u = 0;
    memset(f->n_rows, 0, sizeof(f->n_rows));
    for (int i = 0; i < step->n_segs; i++)
        take_segment(f, i);
    for (int i = 0; i < ATTN_PLANS; i++)
        if (f->attn[i] && attn_plan_shares(i))
            attn_begin(f->attn[i], f->kept_segs, f->kept_seg_row, f->n_kept_segs,
                       f->n_attn_items[i]);
        else if (f->attn[i])
            attn_begin(f->attn[i], step->segs, f->seg_row, step->n_segs, f->n_attn_items[i]);
    for (int i = 0; i < f->n_ops; i++)
        f->phases[i].n_items = count_items(&f->ops[i]);
    f->n_done = pool_run(f->p.pool, f->phases, f->n_ops, step->stop);
    return f->n_done == f->n_ops;
}

bool fwd_resume(struct fwd *f)
{
    assert(f->n_done < f->n_ops);
    f->n_done += pool_run(f->p.pool, f->phases + f->n_done, 1, NULL);
    f->n_done += pool_run(f->p.pool, f->phases + f->n_done, f->n_ops - f->n_done, f->in->stop);
    return f->n_done == f->n_ops;
}

const float *fwd_logits(const struct fwd *f, int i)
{
    assert(i >= 0 && i < f->n_rows[ROWS_LOGITS]);
    return f->logits + (size_t)i * f->ld_logits;
}

const float *fwd_pooled(const struct fwd *f, int i)
{
    assert(i >= 0 && i < f->p.max_segs && f->seg_pooled[i] >= 0);
    return f->result + (size_t)f->seg_pooled[i] * f->ld_pooled;
}

int32_t fwd_argmax(const struct fwd *f, int i, bool *ret_finite)
{
    assert(i >= 0 && i < f->n_rows[ROWS_LOGITS]);
    const struct best *parts = &f->best[(size_t)i * (size_t)f->n_head_items];
    struct best best = parts[0];
    for (int k = 1; k < f->n_head_items; k++) {
        bool finite = best.finite && parts[k].finite;
        if (parts[k].value > best.value) best = parts[k];
        best.finite = finite;
    }
    *ret_finite = best.finite;
    return best.id;
}

struct batch_model batch_model_of(const struct eng_model *model, struct fwd *fwd)
{
    return (struct batch_model){.run = fwd_run,
                                .resume = fwd_resume,
                                .logits = fwd_logits,
                                .argmax = fwd_argmax,
                                .pooled = fwd_pooled,
                                .ctx = fwd,
                                .vocab = model->hp.vocab,
                                .d_model = model->hp.d_model,
                                .pooled_width = model->heads.width,
                                .eos = &model->hp.eos};
}

/* ---- memory -------------------------------------------------------------------------------- */

/* The largest number of inputs of the matrices that use BLAS; 0: none does. */
static int longest_blas_row(const struct eng_model *m)
{
    int longest = 0;
    for (int i = 0; i <= m->hp.n_layers; i++) {
        const struct eng_layer *l = &m->layers[i];
        const struct eng_mat *mats[] = {&l->qkv, &l->o, &l->gate_up, &l->down, &l->ple_proj};
        if (i == m->hp.n_layers) mats[0] = mats[1] = mats[2] = mats[3] = mats[4] = &m->head;
        for (size_t k = 0; k < sizeof(mats) / sizeof(mats[0]); k++)
            if (mats[k]->use_blas && mats[k]->k_pad > longest) longest = mats[k]->k_pad;
    }
    for (int i = 0; i < m->heads.n_ops; i++)
        if (m->heads.ops[i].mat.use_blas && m->heads.ops[i].mat.k_pad > longest)
            longest = m->heads.ops[i].mat.k_pad;
    return longest;
}

static size_t columns(const struct eng_mat *m)
{
    return (size_t)m->n_panels * KERN_PANEL;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void take_thread(struct fwd *f, struct scratch *s, int i, size_t longest)
{
    const struct eng_model *m = f->p.model;
    struct thread_state t = {.packed_for = NULL};
    int longest_blas = longest_blas_row(m);
    t.own = gemm_rows_take(s, PRIVATE_ROWS, longest, sizeof(float));
    t.row = scratch_take(s, longest, sizeof(float));
    t.ple = scratch_take(s, (size_t)m->ple_table.k_pad, sizeof(float));
    t.state = scratch_take(s, state_tmp_floats(&f->states), sizeof(float));
    t.gemm.corr = scratch_take(s, gemm_corr_numbers(m, longest), sizeof(int32_t));
    t.gemm.gate_up = scratch_take(s, gemm_gate_up_floats(m, f->p.max_rows), sizeof(float));
    if (longest_blas > 0) t.gemm.blas = scratch_take(s, gemm_blas_scratch_bytes(longest_blas), 1);
    if (s->base) f->threads[i] = t;
}

static void take_activations(struct fwd *f, struct scratch *s)
{
    const struct eng_model *m = f->p.model;
    size_t rows = (size_t)f->p.max_rows;
    f->ld_x = columns(&m->layers[0].o);
    f->ld_qkv = f->ld_heads = f->ld_ffn = 0;
    for (int i = 0; i < m->hp.n_layers; i++) {
        f->ld_ffn = larger(f->ld_ffn, (size_t)m->layers[i].down.k_pad);
        f->ld_qkv = larger(f->ld_qkv, columns(&m->layers[i].qkv));
        f->ld_qkv = larger(f->ld_qkv, columns(&m->layers[i].ple_gate));
        f->ld_heads = larger(f->ld_heads, (size_t)m->layers[i].o.k_pad);
    }
    f->x = scratch_take(s, rows * f->ld_x, sizeof(float));
    f->kept = scratch_take(s, rows * f->ld_x, sizeof(float));
    f->branch = scratch_take(
        s, m->hp.branch_norms || m->hp.encoder || m->hp.shared_gate ? rows * f->ld_x : 0,
        sizeof(float));
    f->mixed = scratch_take(s, m->hp.expert_norms ? rows * f->ld_x : 0, sizeof(float));
    f->qkv = scratch_take(s, rows * f->ld_qkv, sizeof(float));
    f->ld_ple = columns(&m->ple_model);
    f->ple = scratch_take(s, rows * f->ld_ple, sizeof(float));
    f->heads = scratch_take(s, rows * f->ld_heads, sizeof(float));
    f->ffn = gemm_rows_take(s, rows, f->ld_ffn, sizeof(float));
    f->ld_pooled = f->ld_x;
    for (int i = 0; i < m->heads.n_ops; i++)
        if (columns(&m->heads.ops[i].mat) > f->ld_pooled)
            f->ld_pooled = columns(&m->heads.ops[i].mat);
    for (int i = 0; i < 2; i++)
        f->pooled[i] = scratch_take(s, (size_t)f->p.max_segs * f->ld_pooled, sizeof(float));
}

static void take_logits(struct fwd *f, struct scratch *s)
{
    const struct eng_mat *head = &f->p.model->head;
    size_t rows = (size_t)f->p.max_logit_rows;
    if (!f->p.model->has_head) return;
    int per_item = gemm_units_per_item(head->n_panels, head->panel_bytes, f->n_threads);
    f->n_head_items = ceil_div(head->n_panels, per_item);
    f->ld_logits = columns(head);
    f->logits = scratch_take(s, rows * f->ld_logits, sizeof(float));
    f->best = scratch_take(s, rows * (size_t)f->n_head_items, sizeof(struct best));
}

static void take_lists(struct fwd *f, struct scratch *s)
{
    size_t rows = (size_t)f->p.max_rows, segs = (size_t)f->p.max_segs;
    f->seg_row = scratch_take(s, segs, sizeof(int));
    f->seg_kept = scratch_take(s, segs, sizeof(int));
    f->seg_pooled = scratch_take(s, segs, sizeof(int));
    f->kept_segs = scratch_take(s, f->p.model->hp.n_shared ? segs : 0, sizeof(*f->kept_segs));
    f->kept_seg_row = scratch_take(s, segs, sizeof(int));
    f->row_token = scratch_take(s, rows, sizeof(int32_t));
    f->row_pos = scratch_take(s, rows, sizeof(int32_t));
    f->row_type = scratch_take(s, rows, sizeof(int32_t));
    f->kept_row = scratch_take(s, rows, sizeof(int32_t));
    f->logit_row = scratch_take(s, (size_t)f->p.max_logit_rows, sizeof(int32_t));
    f->max_ops = f->p.model->hp.n_layers * OPS_PER_LAYER + OPS_OUTSIDE;
    f->ops = scratch_take(s, (size_t)f->max_ops, sizeof(struct op));
    f->phases = scratch_take(s, (size_t)f->max_ops, sizeof(struct pool_phase));
}

/* Memory for the products of adapters. */
static void take_loras(struct fwd *f, struct scratch *s)
{
    size_t longest = (size_t)f->p.model->layers[0].qkv.k_pad;
    size_t rows = (size_t)f->p.max_rows, tile = (size_t)f->p.model->kern->max_rows[KERN_A_F32];
    if (f->p.lora_rank == 0) return;
    f->ld_u =
        (size_t)(ENG_LORA_TARGETS * f->p.lora_rank + KERN_NARROW - 1) / KERN_NARROW * KERN_NARROW;
    f->u = scratch_take(s, rows * ENG_MAX_LORAS * f->ld_u, sizeof(float));
    f->ffn_rows = scratch_take(s, rows * f->ld_ffn, sizeof(float));
    for (int i = 0; i < ROWS_POOLED; i++)
        f->pieces[i].list = scratch_take(s, rows * ENG_MAX_LORAS, sizeof(struct lora_piece));
    tile *= larger(f->ld_heads, longest); /* of rows that are normed or gathered */
    for (int i = 0; i < f->n_threads; i++) {
        float *rows_of_tile = scratch_take(s, tile, sizeof(float));
        if (s->base) f->threads[i].lora = rows_of_tile;
    }
}

/* Everything but the logits. */
static void take_scratch(struct fwd *f, struct scratch *s)
{
    const struct eng_hparams *hp = &f->p.model->hp;
    size_t longest = (size_t)f->p.model->layers[0].qkv.k_pad;
    for (int i = 0; i < f->p.model->heads.n_ops; i++)
        longest = larger(longest, (size_t)f->p.model->heads.ops[i].mat.k_pad);
    state_layout_init(&f->states, &f->p.model->hp, f->p.model->kern);
    take_lists(f, s);
    take_activations(f, s);
    longest = larger(longest, f->ld_heads);
    f->packed = gemm_rows_take(s, (size_t)f->p.max_rows, longest, sizeof(float));
    f->threads = scratch_take(s, (size_t)f->n_threads, sizeof(*f->threads));
    for (int i = 0; i < f->n_threads; i++)
        take_thread(f, s, i, longest);
    take_loras(f, s);
    f->experts = experts_init(s, f->p.model, f->n_threads, f->p.max_rows);
    struct attn_params attn = {
        .model = f->p.model,
        .layout = f->p.layout,
        .n_threads = f->n_threads,
        .max_rows = f->p.max_rows,
        .max_segs = f->p.max_segs,
        .ctx = f->p.ctx,
        .qkv = s->base && hp->attn_gate ? f->qkv + hp->n_heads * hp->d_head : f->qkv,
        .ld_qkv = f->ld_qkv,
        .out = f->heads,
        .ld_out = f->ld_heads,
    };
    attn_init(s, &attn, f->attn);
}

static int64_t as_bytes(size_t n)
{
    return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

void fwd_plan(const struct fwd_params *params, int n_threads, int64_t *ret_scratch_bytes,
              int64_t *ret_logits_bytes)
{
    struct fwd f = {.p = *params, .n_threads = n_threads};
    struct scratch scratch = {NULL, 0}, logits = {NULL, 0};
    take_scratch(&f, &scratch);
    take_logits(&f, &logits);
    *ret_scratch_bytes = as_bytes(scratch.used);
    *ret_logits_bytes = as_bytes(logits.used);
}

static int map_memory(struct fwd *f, char *err, size_t errlen)
{
    struct scratch count = {NULL, 0};
    take_scratch(f, &count);
    take_logits(f, &count);
    void *map = MAP_FAILED;
    if (count.used != SIZE_MAX)
        map = mmap(NULL, count.used, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return fail_with(ENG_ENOMEM, err, errlen,
                         "%zu bytes for activations and logits cannot be allocated: %s", count.used,
                         strerror(count.used == SIZE_MAX ? ENOMEM : errno));
    madvise(map, count.used, MADV_HUGEPAGE); /* only faster */
    f->mapping = map;
    f->mapping_bytes = count.used;
    return 0;
}

int fwd_create(struct fwd **ret, const struct fwd_params *params, char *err, size_t errlen)
{
    if (params->max_rows < 1 || params->max_segs < 1 || params->max_logit_rows < 1)
        return fail_with(
            ENG_EINVAL, err, errlen,
            "a step of %d rows, %d sequences, %d rows of logits: each must be at least 1",
            params->max_rows, params->max_segs, params->max_logit_rows);
    if (params->ctx > params->model->ctx)
        return fail_with(ENG_EINVAL, err, errlen,
                         "a context of %lld tokens: the model was loaded for %lld",
                         (long long)params->ctx, (long long)params->model->ctx);
    struct fwd *f = calloc(1, sizeof(*f));
    if (!f) return fail_with(ENG_ENOMEM, err, errlen, "no memory for the forward pass");
    f->p = *params;
    f->n_threads = pool_n_threads(params->pool);
    int rc = map_memory(f, err, errlen);
    if (rc) {
        fwd_destroy(f);
        return rc;
    }
    struct scratch s = {f->mapping, 0};
    take_scratch(f, &s);
    take_logits(f, &s);
    assert(s.used == f->mapping_bytes);
    build_program(f);
    *ret = f;
    return 0;
}

void fwd_destroy(struct fwd *f)
{
    if (!f) return;
    if (f->mapping) munmap(f->mapping, f->mapping_bytes);
    free(f);
}
