/* SPDX-License-Identifier: MIT */
/*
 * Families of models that can be served, as data: one row per entry of config.json's
 * `architectures`, with the names of its tensors and of its own settings. Nothing outside
 * engine/model/ asks which family a model is of. Const; any thread.
 *
 * Formulas and defaults are those of the reference's model and configuration classes
 * (transformers 5.23).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "engine/model/model.h"

/*
 * Names of a layer's tensors, after "PREFIXlayers.N." and without ".weight"; NULL: the family has
 * none. Either q, k, v or qkv, whose rows are all three; either gate, up or gate_up. A delta net
 * has conv and conv_out too; a_log and dt_bias have no ending. final_norm is not a layer's; NULL:
 * "norm".
 */
struct eng_names {
    const char *attn_norm, *q, *k, *v, *qkv, *q_norm, *k_norm, *o, *attn_post;
    const char *ffn_norm, *gate, *up, *gate_up, *down, *ffn_post;
    const char *ple_gate, *ple_proj, *ple_post, *scale;
    const char *conv_in, *conv, *conv_out, *final_norm;
    const char *delta_qkv, *delta_z, *delta_b, *delta_a, *a_log, *dt_bias, *delta_norm;
};

/* A real number that config.json may set; positive. */
struct eng_config_key {
    const char *name;
    size_t at; /* offset of a double in struct eng_hparams */
    double fallback;
    bool null_is_off;  /* null means 0, not the default */
    bool inverse_root; /* 1 / sqrt(x) is what goes there */
};

/* A head of labels: DENSE with an activation, a LayerNorm, then OUT. */
struct eng_label_head {
    const char *dense, *norm, *out; /* norm NULL: none */
    bool dense_in_base;             /* its name has the prefix of the other tensors */
    bool bias_key;                  /* dense has a bias if classifier_bias says so */
    enum eng_head_act act;
};

/* The parts that encoders have and decoders do not. Names are those of tensors, NULL: the family
 * has none. */
struct eng_encoder {
    const char *layers; /* "encoder.layer." */
    const char *embed, *embed_norm, *positions, *types, *distances, *final_norm;
    const struct eng_label_head *labels; /* NULL: no such models */
    const char *const (*renames)[2];     /* {the usual setting, its name here}, up to NULL */
    const char *const *off;              /* settings that must not be on, up to NULL */
    bool biases, norm_bias;              /* of all products, of all norms */
    bool post_norms, ungated, rope;
    bool positions_from_pad; /* the first token's is pad_token_id + 1 */
    bool local_layers;       /* but every global_attn_every_n_layers-th */
};

/*
 * The experts of a family: names of tensors as in eng_names, and of settings, NULL: it has none.
 * Tensors of expert E are "EXPERTS.E.GATE", or those of all are one, [n_experts, rows, inputs],
 * whose names are with their ending: gate_up, in which an expert's rows of gate come before those
 * of up, and all_down.
 */
struct eng_mixture {
    const char *router, *select_bias, *experts, *shared, *gate, *up, *down, *gate_up, *all_down;
    /* Of a family whose layers have a dense feed-forward layer and experts side by side: norms
     * before the experts, after the dense layer, and after them; the router's own norm, over
     * sqrt(hidden_size), and factors of the experts, both without an ending. */
    const char *norm, *dense_post, *post, *router_scale, *expert_scale;
    const char *shared_gate; /* its logit's sigmoid is the shared expert's factor; then shared_key
                              * is a size, else a number of experts */
    const char *count_key, *other_count_key, *chosen_key, *size_key, *shared_key;
    const char *renorm_key, *bias_key, *floor_key, *scale_key;
    /* layers from first to last, of them every step-th, without the listed ones, have experts */
    const char *first_key, *last_key, *step_key, *dense_key;
    const char *off;        /* a setting that must not be on */
    const char *switch_key; /* models have experts only if it is on; then sizes have no defaults */
    bool sigmoid, renorm, bias_rank2;
    double renorm_eps;
    int n_experts, n_chosen, d_expert, n_shared, first; /* defaults */
};

/* Which layers have the sliding window, if config.json has no layer_types. */
enum eng_window_rule {
    ENG_WINDOW_NONE,   /* the family knows no window */
    ENG_WINDOW_ALL,    /* every layer, if sliding_window is not null */
    ENG_WINDOW_FROM,   /* with use_sliding_window, layers from max_window_layers on */
    ENG_WINDOW_NOPE,   /* with use_sliding_window, the layers without RoPE */
    ENG_WINDOW_PERIOD, /* all but every window_period-th */
};

struct eng_family {
    const char *architecture; /* "LlamaForCausalLM" */
    const char *model_type;   /* "llama" */
    const char *title;        /* "Llama", for people */
    const struct eng_names *names;
    const struct eng_encoder *encoder; /* NULL: a decoder */
    const struct eng_mixture *mixture; /* NULL: no layer has experts */
    const char *config_key;            /* "text_config": the settings are in that object, or NULL */
    const char *const *prefixes;       /* NULL-terminated: of tensor names, the first that fits */
    const char *const *other_parts;    /* NULL-terminated or NULL: prefixes of tensors of parts of a
                                      * checkpoint that are not served, as its vision tower */
    const struct eng_config_key *keys; /* its own numbers, up to a NULL name; or NULL */
    const char *const (*renames)[2];   /* of a decoder: {the usual setting, its name here}, up to
                                        * NULL; or NULL */
    const char *ffn_key;               /* of the feed-forward size; NULL: intermediate_size */
    const char *act_key;               /* NULL: hidden_act */
    const char *attn_bias_key;         /* setting for biases of q, k, v; NULL: none */
    const char *mlp_bias_key;          /* of gate, up, down; NULL: none */
    const char *local_theta_key;       /* of rope_local; NULL: theta must be local_theta */
    enum kern_act act;                 /* if config.json names none */
    enum eng_qk_norm qk_norm;
    bool qkv_bias;      /* q, k, v have a bias whatever the config says */
    bool bias_default;  /* of attn_bias_key */
    bool no_o_bias;     /* attn_bias_key does not mean o */
    bool norm_plus_one; /* norms multiply by 1 + weight */
    bool embed_sqrt;    /* embeddings are multiplied by sqrt(hidden_size) */
    bool rope_pairs;    /* RoPE rotates dimensions 2i and 2i + 1, not i and i + d / 2 */
    bool rope_alpha;    /* rope_scaling's alpha changes theta, whatever its type */
    bool rope_longrope; /* rope_scaling is longrope, under this or an older name */
    bool rope_local;    /* windowed layers have a RoPE of their own, unscaled: local_theta */
    bool nope_layers;   /* no_rope_layers */
    bool nope_full;     /* layers without the window have no RoPE, if any layer has the window */
    bool hybrid;        /* layers might be recurrent and experts mixed: refused unless neither */
    bool short_conv;    /* some layers are convolutions, and the feed-forward size has a rule */
    bool delta;         /* some layers are delta nets, and attention has a gate */
    /*
     * Gemma 4: layers without a window have heads of this size, of whose dimensions a share turns;
     * scores are not scaled and values normed; the last layers may share keys and values. 0: no.
     */
    int full_head_dim;
    int d_ple; /* numbers of per-layer embeddings; 0: it has none */
    enum eng_window_rule window_rule;
    /* the reference's defaults for settings that config.json leaves out */
    int window_period; /* if config.json lacks sliding_window_pattern too */
    int vocab_size, hidden_size, intermediate_size, n_layers, n_heads;
    int n_kv_heads; /* 0: as many as heads */
    int head_dim;   /* 0: hidden_size / heads */
    int max_position_embeddings;
    int sliding_window; /* 0: none */
    int eos_id;         /* -1: none */
    double rope_theta, local_theta;
    double partial_rotary; /* 0: 1, the whole head */
    double eps;            /* 0: 1e-6 */
    bool tie_word_embeddings;
};

/*
 * NULL if no family has this name, nor one that differs from it by what the model is for:
 * "Qwen3Model" gives hidden states, "Qwen3ForSequenceClassification" labels.
 */
const struct eng_family *eng_family_by_architecture(const char *architecture,
                                                    enum eng_task *ret_task);
const struct eng_family *eng_family_by_model_type(const char *model_type);

/* The i-th row; NULL after the last. */
const struct eng_family *eng_family_at(int i);
