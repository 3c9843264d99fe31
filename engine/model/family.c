/* SPDX-License-Identifier: MIT */
/*
 * The families of models that are served, one row each, and the names and settings that rows share.
 * A field that a row leaves out is 0: Llama's way.
 */
#include "engine/model/family.h"

#include <stddef.h>
#include <string.h>

/* clang-format off */

/* ---- tensors ------------------------------------------------------------------------------- */

#define QKV .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj"
#define GATE_UP .gate = "mlp.gate_proj", .up = "mlp.up_proj"
#define QK_NORMS .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"

static const struct eng_names llama_names = {
    .attn_norm = "input_layernorm", QKV, .o = "self_attn.o_proj",
    .ffn_norm = "post_attention_layernorm", GATE_UP, .down = "mlp.down_proj",
};
static const struct eng_names qwen3_names = {
    .attn_norm = "input_layernorm", QKV, QK_NORMS, .o = "self_attn.o_proj",
    .ffn_norm = "post_attention_layernorm", GATE_UP, .down = "mlp.down_proj",
};

/* ---- the table ----------------------------------------------------------------------------- */

static const char *const plain_prefix[] = {"model.", NULL};

static const struct eng_family families[] = {
    {
        .architecture = "LlamaForCausalLM", .model_type = "llama", .title = "Llama",
        .names = &llama_names, .prefixes = plain_prefix,
        .attn_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias",
        .vocab_size = 32000, .hidden_size = 4096, .intermediate_size = 11008,
        .n_layers = 32, .n_heads = 32, .max_position_embeddings = 2048,
        .bos_id = 1, .eos_id = 2, .rope_theta = 10000.0,
    },
    {
        .architecture = "MistralForCausalLM", .model_type = "mistral", .title = "Mistral",
        .names = &llama_names, .prefixes = plain_prefix,
        .window_rule = ENG_WINDOW_ALL, .sliding_window = 4096,
        .vocab_size = 32000, .hidden_size = 4096, .intermediate_size = 14336,
        .n_layers = 32, .n_heads = 32, .n_kv_heads = 8, .max_position_embeddings = 131072,
        .bos_id = 1, .eos_id = 2, .rope_theta = 10000.0,
    },
    {
        .architecture = "Qwen2ForCausalLM", .model_type = "qwen2", .title = "Qwen2",
        .names = &llama_names, .prefixes = plain_prefix, .qkv_bias = true,
        .window_rule = ENG_WINDOW_FROM, .sliding_window = 4096,
        .vocab_size = 151936, .hidden_size = 4096, .intermediate_size = 22016,
        .n_layers = 32, .n_heads = 32, .n_kv_heads = 32, .max_position_embeddings = 32768,
        .bos_id = -1, .eos_id = -1, .rope_theta = 10000.0,
    },
    {
        .architecture = "Qwen3ForCausalLM", .model_type = "qwen3", .title = "Qwen3",
        .names = &qwen3_names, .prefixes = plain_prefix,
        .attn_bias_key = "attention_bias", .qk_norm = ENG_QK_NORM_HEAD,
        .window_rule = ENG_WINDOW_FROM, .sliding_window = 4096,
        .vocab_size = 151936, .hidden_size = 4096, .intermediate_size = 22016,
        .n_layers = 32, .n_heads = 32, .n_kv_heads = 32, .head_dim = 128,
        .max_position_embeddings = 32768,
        .bos_id = -1, .eos_id = -1, .rope_theta = 10000.0,
    },
    {
        .architecture = "SmolLM3ForCausalLM", .model_type = "smollm3", .title = "SmolLM3",
        .names = &llama_names, .prefixes = plain_prefix,
        .attn_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias",
        .nope_layers = true, .window_rule = ENG_WINDOW_NOPE,
        .vocab_size = 128256, .hidden_size = 2048, .intermediate_size = 11008,
        .n_layers = 36, .n_heads = 16, .n_kv_heads = 4, .max_position_embeddings = 32768,
        .bos_id = 128000, .eos_id = 128001, .rope_theta = 2000000.0,
        .tie_word_embeddings = true,
    },
};
/* clang-format on */

enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

const struct eng_family *eng_family_at(int i)
{
    return i >= 0 && i < N_FAMILIES ? &families[i] : NULL;
}

const struct eng_family *eng_family_by_architecture(const char *architecture)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].architecture, architecture) == 0) return &families[i];
    return NULL;
}

const struct eng_family *eng_family_by_model_type(const char *model_type)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].model_type, model_type) == 0) return &families[i];
    return NULL;
}
