/* SPDX-License-Identifier: MIT */
/* Families of models that can be served, and what differs between them. Const; any thread. */
#ifndef HEARTH_ENGINE_MODEL_FAMILY_H
#define HEARTH_ENGINE_MODEL_FAMILY_H

#include <stdbool.h>

/* One row per entry of config.json's `architectures`. */
struct eng_family {
    const char *architecture;   /* "LlamaForCausalLM" */
    const char *model_type;     /* "llama" */
    bool qkv_bias;              /* q, k, v have a bias whatever the config says (Qwen2) */
    bool attention_bias_option; /* attention_bias is read: q, k, v, o */
    bool mlp_bias_option;       /* mlp_bias is read: gate, up, down */
    bool qk_norm;               /* q_norm and k_norm before RoPE (Qwen3) */
    bool window_always;         /* sliding_window applies to every layer when not null (Mistral) */
    bool window_from_layer;     /* use_sliding_window: from max_window_layers on (Qwen2, Qwen3) */
    bool nope_layers;           /* no_rope_layers, which also take the window in use (SmolLM3) */
    /* the reference's defaults for fields that config.json leaves out */
    int vocab_size, hidden_size, intermediate_size, n_layers, n_heads;
    int n_kv_heads; /* 0: as many as heads */
    int head_dim;   /* 0: hidden_size / heads */
    int max_position_embeddings;
    int sliding_window; /* 0: none */
    int bos_id, eos_id; /* -1: none */
    double rope_theta;
    bool tie_word_embeddings;
};

/* NULL if no family has this name. */
const struct eng_family *eng_family_by_architecture(const char *architecture);
const struct eng_family *eng_family_by_model_type(const char *model_type);

/* The i-th row; NULL after the last. */
const struct eng_family *eng_family_at(int i);

#endif
