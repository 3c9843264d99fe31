/* SPDX-License-Identifier: MIT */
/* Hyper-parameters of a model, as config.h fills them from its files. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/kernels/kernels.h"

struct eng_family;

enum eng_rope_type {
    ENG_ROPE_DEFAULT,
    ENG_ROPE_LINEAR,
    ENG_ROPE_LLAMA3,
    ENG_ROPE_YARN,
    ENG_ROPE_DYNAMIC,
    ENG_ROPE_LONGROPE,
    ENG_ROPE_PROPORTIONAL /* the frequencies of a whole head, of which some turn */
};

enum { ENG_MAX_HEAD_DIM = 1024 };

struct eng_rope {
    enum eng_rope_type type;
    double theta, factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_ctx;                      /* llama3, yarn, longrope */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor;                  /* of cos and sin; 1 but for yarn and longrope */
    bool truncate;                            /* yarn */
    int d_head;                               /* proportional */
    /* longrope's divisors of the frequencies, for contexts up to original_ctx and longer ones */
    double short_factors[ENG_MAX_HEAD_DIM / 2], long_factors[ENG_MAX_HEAD_DIM / 2];
};

/*
 * RMSNorm of queries and keys. HEAD: of each head, before RoPE or after it; ROW: of all heads of a
 * token together, before RoPE.
 */
enum eng_qk_norm { ENG_QK_NORM_NONE, ENG_QK_NORM_HEAD, ENG_QK_NORM_AFTER_ROPE, ENG_QK_NORM_ROW };

enum { ENG_MAX_EOS = 16, ENG_MAX_LAYERS = 512, ENG_MAX_TAPS = 8, ENG_MAX_EXPERTS = 512 };

/*
 * The operator that mixes the tokens of a layer. CONV: out(C * conv(B * u)), where B, C and u are
 * products of the token and conv sums over the last few tokens. DELTA: heads of a delta net, whose
 * state is a matrix, after a convolution of queries, keys and values; see kern.delta_token.
 */
enum eng_mixer { ENG_ATTENTION, ENG_CONV, ENG_DELTA };

/*
 * The task that the weights were saved for, as the architecture's name says: logits of tokens,
 * hidden states alone, or logits of labels.
 */
enum eng_task { ENG_TASK_TOKENS, ENG_TASK_STATES, ENG_TASK_LABELS };

/* The ids that end a sequence, each once. */
struct eng_end_ids {
    int32_t ids[ENG_MAX_EOS];
    int n;
};

struct eng_hparams {
    const struct eng_family *family;
    int d_model, n_layers, n_heads, n_kv_heads, d_head, d_ff;
    int32_t vocab;     /* vocab_size of config.json */
    int64_t ctx_train; /* max_position_embeddings */
    int64_t ctx_max;   /* longest context that can be served exactly */
    double rms_eps;
    bool tied; /* the embedding is also the head */
    /* Layers without a window have other heads than those with one, if d_head is not 0; of each
     * d_rot dimensions turn, i and i + d_head / 2. */
    struct {
        int d_head, n_kv_heads, d_rot;
    } full;
    int n_shared;     /* layers, the last ones, that have no keys and values: they read those of the
                   * last layer before them of the same window */
    bool shared_wide; /* the feed-forward size of these is twice d_ff */
    bool v_norm;      /* values are normed, without weights */
    bool keys_are_values; /* in full layers: of the keys as they are before their norm */
    int d_ple;      /* per-layer embeddings (PLE): numbers of a token for each layer, 0: none */
    int n_ple_rows; /* of their table in the file */
    int32_t soft_ids[3]; /* of images, sounds and films: embedded as pad_id; -1: none */
    bool attn_bias_qkv, attn_bias_o, mlp_bias;
    enum kern_act act;
    enum eng_qk_norm qk_norm;
    /*
     * An encoder: a token sees those behind it too, and a text is read in one step. Its norms are
     * LayerNorms; post_norms come after the sum of stream and branch. Where windows are, a token
     * sees so many on each side, itself not counted.
     */
    bool encoder, post_norms, embed_norm;
    bool norm_bias;
    bool ungated;       /* the feed-forward layer is down(act(up)); gate_up holds up alone */
    int n_positions;    /* rows of the table of positions, 0: none */
    int first_position; /* of a text's first token; ids pad_id do not count if it is not 0 */
    int n_types;        /* rows of the table of token types, 0: none */
    int n_distances;    /* buckets of the distance between two tokens, 0: none */
    bool branch_norms;  /* a layer's branches are normed before they are added to the stream */
    /* Factors, 1 if the model has none. Branches are added to the stream times residual_scale. */
    double embed_scale, residual_scale, attn_scale, logits_scaling; /* logits are divided by it */
    double attn_softcap, logit_softcap;                             /* 0: none */
    int d_rot;            /* dimensions of a head that RoPE turns, the first ones */
    struct eng_rope rope; /* of all layers, or, with a local one, of those without a window */
    struct eng_rope local_rope;
    bool has_local_rope;
    struct eng_end_ids eos;
    enum eng_task task;
    char architecture[64]; /* of config.json; "Qwen3Model" is of the family "Qwen3ForCausalLM" */
    int n_labels;          /* LABELS */
    bool labels_of_mean;   /* LABELS of an encoder: of the mean, not of the first token */
    bool label_bias;       /* the products before the last one have a bias, if the family asks */
    int32_t pad_id;        /* -1: none. LABELS of a decoder: not looked at at the end */
    uint8_t layer_mixer[ENG_MAX_LAYERS]; /* enum eng_mixer */
    int n_kv_layers;                     /* layers with keys and values in a page */
    int n_taps;                          /* tokens of a convolution, the present one included */
    bool conv_bias;                      /* of convolutions and the products around them */
    int n_delta_keys, n_delta_values;    /* heads of a delta net: of queries and keys, of values; */
    int d_delta_key, d_delta_value;      /* and the size of each */
    bool delta_tiled;                    /* value head j has key head j mod n_delta_keys, else
                                          * those of a key head are next to each other */
    bool attn_gate;                      /* attention's output is multiplied by sigmoid(gate) */
    /*
     * Experts, 0: none. A token takes the n_chosen of the largest score, the softmax of the
     * router's logits or their sigmoid, plus a bias that only chooses. Their weights are the
     * scores, with route_renorm over max(the sum of theirs, route_floor) + route_eps, times
     * route_scale. d_shared: the dense feed-forward size of a layer with experts, 0: it has none;
     * with shared_gate its output is multiplied by the sigmoid of a logit behind the router's.
     * expert_norms: a whole dense layer is beside them, each of the two has a norm of its own, and
     * the branch is the sum.
     */
    int n_experts, n_chosen, d_expert, d_shared;
    bool layer_experts[ENG_MAX_LAYERS];
    bool route_sigmoid, route_bias, route_renorm, shared_gate, expert_norms;
    double route_floor, route_eps, route_scale;
    bool layer_rope[ENG_MAX_LAYERS];      /* the layer has RoPE */
    int32_t layer_window[ENG_MAX_LAYERS]; /* keys visible, the token itself included; 0: all;
                                           * on each side, without it, of an encoder */
    uint64_t config_hash[2]; /* of the bytes of config.json and generation_config.json */
};

static inline bool eng_layer_is_full(const struct eng_hparams *hp, int layer)
{
    return hp->full.d_head > 0 && hp->layer_window[layer] == 0;
}

static inline int eng_layer_d_head(const struct eng_hparams *hp, int layer)
{
    return eng_layer_is_full(hp, layer) ? hp->full.d_head : hp->d_head;
}

static inline int eng_layer_kv_heads(const struct eng_hparams *hp, int layer)
{
    return eng_layer_is_full(hp, layer) ? hp->full.n_kv_heads : hp->n_kv_heads;
}

static inline bool eng_layer_shares(const struct eng_hparams *hp, int layer)
{
    return layer >= hp->n_layers - hp->n_shared;
}

static inline int eng_layer_d_ff(const struct eng_hparams *hp, int layer)
{
    return hp->d_ff * (hp->shared_wide && eng_layer_shares(hp, layer) ? 2 : 1);
}

/* Pairs of dimensions that RoPE turns, of the model's RoPE or the local one, and of a layer. */
static inline int eng_rope_pairs(const struct eng_hparams *hp, bool local)
{
    return (local || hp->full.d_head == 0 ? hp->d_rot : hp->full.d_rot) / 2;
}

static inline int eng_layer_pairs(const struct eng_hparams *hp, int layer)
{
    return eng_rope_pairs(hp, !eng_layer_is_full(hp, layer));
}

/* The distance between the two dimensions of a pair. */
static inline int eng_layer_apart(const struct eng_hparams *hp, int layer)
{
    return eng_layer_is_full(hp, layer) ? hp->full.d_head / 2 : hp->d_rot / 2;
}
