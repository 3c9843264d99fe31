/* SPDX-License-Identifier: MIT */
/*
 * The model: hyper-parameters and packed weights. Everything is const after eng_model_fill of
 * load.h.
 *
 * Shapes in comments use n_layers, n_heads, n_kv_heads, d_head, d_model, d_ff, vocab.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/kernels.h"
#include "engine/model/hparams.h"

struct eng_model;
struct eng_numerics;
struct pool;

/* Runs the model on a text of at most so many tokens; see eng_model_params. */
enum { ENG_CALIBRATE_TOKENS = 256 };

typedef int eng_calibrate_fn(void *ctx, const struct eng_model *m, struct pool *pool, char *err,
                             size_t errlen);

/* One packed matrix, n_out outputs of n_in inputs; row n of the source is output n. */
struct eng_mat {
    enum kern_wfmt fmt;
    bool use_blas; /* fixed at load */
    /* How BLAS is called for it, see engine/gemm_blas.h; set before the first product. */
    struct {
        bool swapped;    /* panel times rows instead of rows times panel */
        uint8_t heights; /* a sum of powers of two: the rows of a call */
    } blas;
    int n_out, n_in; /* valid sizes */
    int k_pad;       /* n_in up to KERN_K_ALIGN */
    int n_panels;    /* ceil(n_out / 32); outputs beyond n_out are zero rows */
    int n_fine;      /* of the panels, the last: of fine_fmt */
    enum kern_wfmt fine_fmt;
    size_t panel_bytes, fine_bytes;
    uint8_t *panels;   /* 64-byte aligned, in the model's arena */
    const float *bias; /* [32 * n_panels], or NULL */
    float *squares;    /* while the model is calibrated: [k_pad], to which products add the squares
                        * of their rows, in sum; of experts [n_experts][k_pad]; else NULL */
    bool takes_f32;    /* its rows are f32 on every path */
};

static inline bool eng_mat_is_fine(const struct eng_mat *m, int panel)
{
    return panel >= m->n_panels - m->n_fine;
}

static inline enum kern_wfmt eng_mat_format(const struct eng_mat *m, int panel)
{
    return eng_mat_is_fine(m, panel) ? m->fine_fmt : m->fmt;
}

/* The format that rows are packed for: half sums give the corrections of any other. */
static inline enum kern_wfmt eng_mat_rows_format(const struct eng_mat *m)
{
    bool alike = m->n_fine == 0 || kern_corr_of(m->fmt) == kern_corr_of(m->fine_fmt);
    return alike ? m->fmt : KERN_W_I6S;
}

/* Bytes from the first panel to `panel`; of n_panels, those of all. */
static inline size_t eng_mat_offset(const struct eng_mat *m, int panel)
{
    int first = m->n_panels - m->n_fine, n_fine = panel > first ? panel - first : 0;
    return (size_t)(panel - n_fine) * m->panel_bytes + (size_t)n_fine * m->fine_bytes;
}

/*
 * The experts of a layer, each a gated feed-forward layer, and what chooses among them. A matrix
 * of all experts has those of each in as many whole panels, one expert after the other.
 */
struct eng_experts {
    struct eng_mat router;    /* [n_experts] of [d_model] */
    const float *select_bias; /* [n_experts] or NULL */
    struct eng_mat gate_up;   /* of each: as eng_layer.gate_up, of d_expert */
    struct eng_mat down;      /* of each: [d_model] of [d_expert] */
    const float *scale;       /* [n_experts]: factors of their weights; or NULL */
    /* [d_model], NULL without hp.expert_norms: norms before the router and before the experts, both
     * in place of ffn_norm; of the dense layer's output, and of theirs */
    const float *router_norm, *norm, *dense_post, *post;
};

struct eng_layer {
    const float *attn_norm; /* [d_model] or NULL: attention reads the stream as it is */
    const float *attn_post; /* [d_model] or NULL: norm of attention's output */
    const float *ffn_norm;  /* [d_model] or NULL */
    const float *ffn_post;  /* [d_model] or NULL */
    const float *attn_norm_bias, *attn_post_bias, *ffn_norm_bias, *ffn_post_bias; /* or NULL */
    const float *q_norm;    /* [d_head], by rows [n_heads * d_head], or NULL */
    const float *k_norm;    /* [d_head], by rows [n_kv_heads * d_head], or NULL */
    struct eng_mat qkv;     /* rows: q [n_heads * d_head], k and v [n_kv_heads * d_head], without
                             * both or v as hp.n_shared and keys_are_values say, before them with
                             * attn_gate its gates [n_heads * d_head]; of a convolution B, C and u
                             * [d_model]; of a delta net q, k [n_delta_keys * d_delta_key], v, z
                             * [n_delta_values * d_delta_value], beta and decay [n_delta_values] */
    struct eng_mat o;       /* [d_model] of [n_heads * d_head], [d_model], or [n_delta_values *
                             * d_delta_value] */
    const float *conv;      /* [n_taps][channels], the oldest token's first; or NULL. Channels are
                             * d_model, or q, k and v of a delta net */
    const float *conv_bias; /* [d_model] or NULL */
    const float *a_log, *dt_bias; /* [n_delta_values] or NULL */
    const float *delta_norm;      /* [d_delta_value] or NULL: of a head's output */
    struct eng_mat gate_up;       /* panels alternate: 32 gate rows, the same 32 up rows, ...;
                                   n_out = 2 * 32 * ceil(d_ff / 32); empty if a layer has
                                   experts alone */
    struct eng_mat down;          /* [d_model] of [d_ff] */
    struct eng_experts experts;   /* empty: none */
    struct eng_mat ple_gate;      /* [d_ple] of [d_model], and [d_model] of [d_ple]; empty: none */
    struct eng_mat ple_proj;
    const float *ple_post; /* [d_model] or NULL: norm of its output */
    const float *scale;    /* [1] or NULL: of the stream after the layer */
    const float *rope_cos; /* [ctx][d_rot / 2], with the attention factor; NULL: no RoPE */
    const float *rope_sin;
    int window; /* as hp.layer_window */
    int place;  /* of its kind: in a page of KV, or in a state */
};

/*
 * How the final hidden states of a text become one row. WEIGHTED: a mean whose weights are 1, 2, 3
 * and so on; SQRT_LEN: the sum over the square root of the number of tokens.
 */
enum eng_pooling {
    ENG_POOL_MEAN,
    ENG_POOL_CLS, /* the first token's */
    ENG_POOL_LAST,
    ENG_POOL_MAX,
    ENG_POOL_WEIGHTED,
    ENG_POOL_SQRT_LEN,
    ENG_N_POOLINGS
};

/* The step done with that row: a product, its length becomes 1 (L2), or a LayerNorm. */
enum eng_head_kind { ENG_HEAD_DENSE, ENG_HEAD_L2, ENG_HEAD_NORM };
enum eng_head_act { ENG_HEAD_IDENTITY, ENG_HEAD_TANH, ENG_HEAD_RELU, ENG_HEAD_GELU };

struct eng_head_op {
    enum eng_head_kind kind;
    struct eng_mat mat;    /* DENSE */
    enum eng_head_act act; /* DENSE: of the product */
    const float *norm;     /* NORM */
};

enum { ENG_MAX_HEAD_OPS = 8 };

/* The way from a text's hidden states to its vector, or to the logits of its labels. */
struct eng_heads {
    enum eng_pooling pooling;
    bool leaves_prompt; /* a prompt's tokens at the start are left out of means and maxima */
    bool given;         /* by the model's files; else the mean is only a guess */
    struct eng_head_op ops[ENG_MAX_HEAD_OPS];
    int n_ops;
    int width; /* of the last row */
};

/* How weights are kept and read; see reading.h. */
struct eng_reading {
    bool coded;        /* bf16 weights in 12 bits, where kernels and weights allow */
    bool may_be_plain; /* or not, if that is measured to be faster */
    size_t ahead;      /* bytes that few rows prefetch weights before they read them; 0: that is
                        * left to the processor */
    double coded_rate, plain_rate; /* weights read per second, in 12 bits and otherwise; 0: not
                                    * measured */
};

struct eng_model {
    struct eng_hparams hp;
    const struct eng_numerics *numerics;
    const struct kern *kern;
    struct eng_layer *layers; /* [n_layers] */
    struct eng_mat embed;     /* rows: tokens; when hp.tied also the head */
    struct eng_mat head;      /* equal to embed (same panels) when tied; unless has_head, empty */
    bool has_head;            /* gives logits of tokens */
    struct eng_heads heads;   /* gives vectors or logits of labels */
    struct eng_mat ple_table; /* per-layer embeddings: [vocab] of [n_layers][d_ple]; or empty */
    struct eng_mat ple_model; /* [n_layers][d_ple] of [d_model]: what the token's embedding adds */
    const float *ple_norm;    /* [d_ple] or NULL: of each layer's part of that */
    const float *pos_rows;    /* [n_positions][d_model] or NULL */
    const float *type_rows;   /* [n_types][d_model] or NULL */
    const float *embed_norm, *embed_norm_bias; /* [d_model] or NULL: of the sum of the embeddings */
    const float *distances;                    /* [n_distances][n_heads] or NULL, as in the file */
    float *distance_bias; /* [n_heads][2 * ctx - 1]: of scaled scores, over the scale, by key minus
                               * query plus ctx - 1; or NULL */
    const float *final_norm; /* [d_model]; NULL: the stream is final as it is */
    const float *head_norm;  /* the same over logits_scaling */
    float embed_scale;       /* of the embeddings, as the stream needs them: see plan.c */
    double stream_eps;       /* of norms over the stream */
    float *ropes;            /* the tables: cos and sin, then those of the local RoPE */
    int64_t ctx;             /* rows of the tables of positions, no fewer than are served */
    struct eng_reading reading;
    int64_t n_params, n_active_params; /* in all, and those that a token uses */
    int n_rounded_mats;                /* on path file: of blocks of several types, rounded again */
    int64_t weights_bytes;             /* packed size; before eng_model_fill its maximum */
    const char *weights_dtype;
    uint8_t fingerprint[16];
    void *arena; /* one mapping for all panels and vectors */
    size_t arena_bytes;
    void *plain; /* a second one, for BF16 matrices that do not fit B12; or NULL */
    size_t plain_bytes;
    const atomic_bool *stop;     /* of eng_model_params */
    eng_calibrate_fn *calibrate; /* of eng_model_params; NULL where numerics need none */
    void *calibrate_ctx;
    bool adapters;         /* of eng_model_params */
    struct eng_load *load; /* the plan between open and fill; afterwards NULL unless adapters */
};
