/* SPDX-License-Identifier: MIT */
/*
 * The families of models that are served, one row each. Defaults are those of the reference's
 * configuration classes; eps is 1e-6 and the activation silu in all of them.
 */
#include "engine/model/family.h"

#include <stddef.h>
#include <string.h>

/* clang-format off */
static const struct eng_family families[] = {
    {
        .architecture = "LlamaForCausalLM", .model_type = "llama",
        .attention_bias_option = true, .mlp_bias_option = true,
        .vocab_size = 32000, .hidden_size = 4096, .intermediate_size = 11008,
        .n_layers = 32, .n_heads = 32, .max_position_embeddings = 2048,
        .bos_id = 1, .eos_id = 2, .rope_theta = 10000.0,
    },
    {
        .architecture = "MistralForCausalLM", .model_type = "mistral",
        .window_always = true, .sliding_window = 4096,
        .vocab_size = 32000, .hidden_size = 4096, .intermediate_size = 14336,
        .n_layers = 32, .n_heads = 32, .n_kv_heads = 8, .max_position_embeddings = 131072,
        .bos_id = 1, .eos_id = 2, .rope_theta = 10000.0,
    },
    {
        .architecture = "Qwen2ForCausalLM", .model_type = "qwen2",
        .qkv_bias = true, .window_from_layer = true, .sliding_window = 4096,
        .vocab_size = 151936, .hidden_size = 4096, .intermediate_size = 22016,
        .n_layers = 32, .n_heads = 32, .n_kv_heads = 32, .max_position_embeddings = 32768,
        .bos_id = -1, .eos_id = -1, .rope_theta = 10000.0,
    },
    {
        .architecture = "Qwen3ForCausalLM", .model_type = "qwen3",
        .attention_bias_option = true, .qk_norm = true,
        .window_from_layer = true, .sliding_window = 4096,
        .vocab_size = 151936, .hidden_size = 4096, .intermediate_size = 22016,
        .n_layers = 32, .n_heads = 32, .n_kv_heads = 32, .head_dim = 128,
        .max_position_embeddings = 32768,
        .bos_id = -1, .eos_id = -1, .rope_theta = 10000.0,
    },
    {
        .architecture = "SmolLM3ForCausalLM", .model_type = "smollm3",
        .attention_bias_option = true, .mlp_bias_option = true, .nope_layers = true,
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
