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

static const struct eng_names phi3_names = {
    .attn_norm = "input_layernorm", .qkv = "self_attn.qkv_proj", .o = "self_attn.o_proj",
    .ffn_norm = "post_attention_layernorm", .gate_up = "mlp.gate_up_proj", .down = "mlp.down_proj",
};
static const struct eng_names granite4_names = {
    .attn_norm = "input_layernorm", QKV, .o = "self_attn.o_proj",
    .ffn_norm = "post_attention_layernorm",
    .gate_up = "shared_mlp.input_linear", .down = "shared_mlp.output_linear",
};
/* The norms of OLMo and EXAONE stand after attention and feed-forward alone. */
static const struct eng_names olmo_names = {
    QKV, QK_NORMS, .o = "self_attn.o_proj", .attn_post = "post_attention_layernorm",
    GATE_UP, .down = "mlp.down_proj", .ffn_post = "post_feedforward_layernorm",
};
static const struct eng_names glm4_names = {
    .attn_norm = "input_layernorm", QKV, .o = "self_attn.o_proj",
    .attn_post = "post_self_attn_layernorm", .ffn_norm = "post_attention_layernorm",
    .gate_up = "mlp.gate_up_proj", .down = "mlp.down_proj", .ffn_post = "post_mlp_layernorm",
};
static const struct eng_names hunyuan_names = {
    .attn_norm = "input_layernorm", QKV, .q_norm = "self_attn.query_layernorm",
    .k_norm = "self_attn.key_layernorm", .o = "self_attn.o_proj",
    .ffn_norm = "post_attention_layernorm", GATE_UP, .down = "mlp.down_proj",
};
#define GEMMA_NORMS                                                                                \
    .attn_norm = "input_layernorm", .attn_post = "post_attention_layernorm",                       \
    .ffn_norm = "pre_feedforward_layernorm", .ffn_post = "post_feedforward_layernorm"
static const struct eng_names gemma2_names = {
    GEMMA_NORMS, QKV, .o = "self_attn.o_proj", GATE_UP, .down = "mlp.down_proj",
};
static const struct eng_names gemma3_names = {
    GEMMA_NORMS, QKV, QK_NORMS, .o = "self_attn.o_proj", GATE_UP, .down = "mlp.down_proj",
};

static const struct eng_names gemma4_names = {
    GEMMA_NORMS, QKV, QK_NORMS, .o = "self_attn.o_proj", GATE_UP, .down = "mlp.down_proj",
    .ple_gate = "per_layer_input_gate", .ple_proj = "per_layer_projection",
    .ple_post = "post_per_layer_input_norm", .scale = "layer_scalar",
};

static const struct eng_names lfm2_names = {
    .attn_norm = "operator_norm", QKV, .q_norm = "self_attn.q_layernorm",
    .k_norm = "self_attn.k_layernorm", .o = "self_attn.out_proj",
    .conv_in = "conv.in_proj", .conv = "conv.conv", .conv_out = "conv.out_proj",
    .ffn_norm = "ffn_norm", .gate = "feed_forward.w1", .up = "feed_forward.w3",
    .down = "feed_forward.w2", .final_norm = "embedding_norm",
};

static const struct eng_names qwen3_5_names = {
    .attn_norm = "input_layernorm", QKV, QK_NORMS, .o = "self_attn.o_proj",
    .delta_qkv = "linear_attn.in_proj_qkv", .delta_z = "linear_attn.in_proj_z",
    .delta_b = "linear_attn.in_proj_b", .delta_a = "linear_attn.in_proj_a",
    .conv = "linear_attn.conv1d", .a_log = "linear_attn.A_log", .dt_bias = "linear_attn.dt_bias",
    .delta_norm = "linear_attn.norm", .conv_out = "linear_attn.out_proj",
    .ffn_norm = "post_attention_layernorm", GATE_UP, .down = "mlp.down_proj",
};

/* The second is that of a model of hidden states, saved without what is around it. */
static const char *const plain_prefix[] = {"model.", "", NULL};
/* As published, and as the reference saves them today. */
static const char *const wrapped_prefixes[] = {
    "language_model.model.", "model.language_model.", NULL,
};
static const char *const vision_parts[] = {
    "vision_tower.", "multi_modal_projector.", "model.vision_tower.",
    "model.multi_modal_projector.", NULL,
};

static const char *const gemma4_prefixes[] = {"model.language_model.", "model.", NULL};
static const char *const gemma4_parts[] = {
    "model.vision_tower.", "model.audio_tower.", "model.embed_vision.", "model.embed_audio.",
    "model.vision_embedder.", "vision_embedder.", NULL,
};

/* Of Qwen3.5: the vision tower, and the layer that predicts a second token. */
static const char *const qwen3_5_prefixes[] = {"model.language_model.", "model.", "", NULL};
static const char *const qwen3_5_parts[] = {"model.visual.", "visual.", "mtp.", NULL};

/* ---- encoders ------------------------------------------------------------------------------ */

static const struct eng_names bert_names = {
    .q = "attention.self.query", .k = "attention.self.key", .v = "attention.self.value",
    .o = "attention.output.dense", .attn_post = "attention.output.LayerNorm",
    .up = "intermediate.dense", .down = "output.dense", .ffn_post = "output.LayerNorm",
};
static const struct eng_names mpnet_names = {
    .q = "attention.attn.q", .k = "attention.attn.k", .v = "attention.attn.v",
    .o = "attention.attn.o", .attn_post = "attention.LayerNorm",
    .up = "intermediate.dense", .down = "output.dense", .ffn_post = "output.LayerNorm",
};
static const struct eng_names distilbert_names = {
    .q = "attention.q_lin", .k = "attention.k_lin", .v = "attention.v_lin",
    .o = "attention.out_lin", .attn_post = "sa_layer_norm",
    .up = "ffn.lin1", .down = "ffn.lin2", .ffn_post = "output_layer_norm",
};
static const struct eng_names nomic_names = {
    .qkv = "attn.Wqkv", .o = "attn.out_proj", .attn_post = "norm1",
    .gate = "mlp.fc12", .up = "mlp.fc11", .down = "mlp.fc2", .ffn_post = "norm2",
};
static const struct eng_names modernbert_names = {
    .attn_norm = "attn_norm", .qkv = "attn.Wqkv", .o = "attn.Wo",
    .ffn_norm = "mlp_norm", .gate_up = "mlp.Wi", .down = "mlp.Wo",
};

static const struct eng_label_head bert_labels = {
    .dense = "pooler.dense", .dense_in_base = true, .act = ENG_HEAD_TANH, .out = "classifier",
};
static const struct eng_label_head roberta_labels = {
    .dense = "classifier.dense", .act = ENG_HEAD_TANH, .out = "classifier.out_proj",
};
static const struct eng_label_head distilbert_labels = {
    .dense = "pre_classifier", .act = ENG_HEAD_RELU, .out = "classifier",
};
static const struct eng_label_head modernbert_labels = {
    .dense = "head.dense", .act = ENG_HEAD_GELU, .norm = "head.norm", .out = "classifier",
    .bias_key = true,
};

static const char *const bert_renames[][2] = {{"rms_norm_eps", "layer_norm_eps"}, {NULL, NULL}};
static const char *const distilbert_renames[][2] = {
    {"hidden_size", "dim"}, {"intermediate_size", "hidden_dim"}, {"num_hidden_layers", "n_layers"},
    {"num_attention_heads", "n_heads"}, {"hidden_act", "activation"}, {NULL, NULL},
};
static const char *const nomic_renames[][2] = {
    {"hidden_size", "n_embd"}, {"intermediate_size", "n_inner"}, {"num_hidden_layers", "n_layer"},
    {"num_attention_heads", "n_head"}, {"hidden_act", "activation_function"},
    {"max_position_embeddings", "n_positions"}, {"rms_norm_eps", "layer_norm_eps"},
    {"rms_norm_eps", "layer_norm_epsilon"}, {"rope_theta", "rotary_emb_base"}, {NULL, NULL},
};
static const char *const modernbert_renames[][2] = {
    {"rms_norm_eps", "norm_eps"}, {"hidden_act", "hidden_activation"},
    {"rope_theta", "global_rope_theta"}, {NULL, NULL},
};
static const char *const nomic_off[] = {
    "prenorm", "use_rms_norm", "rotary_emb_interleaved", "qkv_proj_bias", "mlp_fc1_bias",
    "mlp_fc2_bias", "rotary_scaling_factor", NULL,
};
static const char *const modernbert_off[] = {"norm_bias", NULL};

/* LayerNorm of the sum of word, position and type; norms behind the branches; no gate. */
#define BERT                                                                                       \
    .embed = "embeddings.word_embeddings",                                                         \
    .embed_norm = "embeddings.LayerNorm", .positions = "embeddings.position_embeddings",           \
    .biases = true, .norm_bias = true, .post_norms = true, .ungated = true
static const struct eng_encoder bert_encoder = {
    BERT, .layers = "encoder.layer.",
    .types = "embeddings.token_type_embeddings", .labels = &bert_labels,
    .renames = bert_renames,
};
static const struct eng_encoder roberta_encoder = {
    BERT, .layers = "encoder.layer.",
    .types = "embeddings.token_type_embeddings", .labels = &roberta_labels,
    .renames = bert_renames, .positions_from_pad = true,
};
static const struct eng_encoder mpnet_encoder = {
    BERT, .layers = "encoder.layer.",
    .distances = "encoder.relative_attention_bias", .labels = &roberta_labels,
    .renames = bert_renames, .positions_from_pad = true,
};
static const struct eng_encoder distilbert_encoder = {
    BERT, .layers = "transformer.layer.", .labels = &distilbert_labels,
    .renames = distilbert_renames,
};
static const struct eng_encoder nomic_encoder = {
    .layers = "encoder.layers.", .embed = "embeddings.word_embeddings", .embed_norm = "emb_ln",
    .types = "embeddings.token_type_embeddings", .renames = nomic_renames, .off = nomic_off,
    .norm_bias = true, .post_norms = true, .rope = true,
};
static const struct eng_encoder modernbert_encoder = {
    .layers = "layers.", .embed = "embeddings.tok_embeddings", .embed_norm = "embeddings.norm",
    .final_norm = "final_norm", .labels = &modernbert_labels, .renames = modernbert_renames,
    .off = modernbert_off, .rope = true, .local_layers = true,
};

static const char *const bert_prefixes[] = {"bert.", "", NULL};
static const char *const roberta_prefixes[] = {"roberta.", "", NULL};
static const char *const mpnet_prefixes[] = {"mpnet.", "", NULL};
static const char *const distilbert_prefixes[] = {"distilbert.", "", NULL};
/* Heads of training, and the pooler, which only labels need. */
static const char *const encoder_parts[] = {
    "pooler.", "bert.pooler.", "roberta.pooler.", "mpnet.pooler.", "cls.", "lm_head.",
    "vocab_", "head.", "decoder.", NULL,
};

/* ---- settings ------------------------------------------------------------------------------ */

#define AT(field) offsetof(struct eng_hparams, field)

static const struct eng_config_key granite_keys[] = {
    {.name = "embedding_multiplier", .at = AT(embed_scale), .fallback = 1},
    {.name = "residual_multiplier", .at = AT(residual_scale), .fallback = 1},
    {.name = "attention_multiplier", .at = AT(attn_scale), .fallback = 1},
    {.name = "logits_scaling", .at = AT(logits_scaling), .fallback = 1},
    {.name = NULL},
};
#define QUERY_SCALAR                                                                               \
    {.name = "query_pre_attn_scalar", .at = AT(attn_scale), .fallback = 256, .inverse_root = true}
static const struct eng_config_key gemma2_keys[] = {
    QUERY_SCALAR,
    {.name = "attn_logit_softcapping", .at = AT(attn_softcap), .fallback = 50, .null_is_off = true},
    {.name = "final_logit_softcapping", .at = AT(logit_softcap), .fallback = 30,
     .null_is_off = true},
    {.name = NULL},
};
/* Its reference reads attn_logit_softcapping too, and does not use it. */
static const struct eng_config_key gemma3_keys[] = {
    QUERY_SCALAR,
    {.name = "final_logit_softcapping", .at = AT(logit_softcap), .null_is_off = true},
    {.name = NULL},
};

static const struct eng_config_key gemma4_keys[] = {
    {.name = "final_logit_softcapping", .at = AT(logit_softcap), .null_is_off = true},
    {.name = NULL},
};

static const char *const lfm2_renames[][2] = {
    {"rms_norm_eps", "norm_eps"}, {"intermediate_size", "block_ff_dim"},
    {"tie_word_embeddings", "tie_embedding"}, {NULL, NULL},
};

/* ---- experts ------------------------------------------------------------------------------- */

#define EXPERTS                                                                                    \
    .router = "mlp.gate", .experts = "mlp.experts",                                                \
    .gate = "gate_proj", .up = "up_proj", .down = "down_proj",                                     \
    .gate_up = "mlp.experts.gate_up_proj", .all_down = "mlp.experts.down_proj"
static const struct eng_mixture lfm2_mixture = {
    .router = "feed_forward.gate", .select_bias = "feed_forward.expert_bias",
    .experts = "feed_forward.experts", .gate = "w1", .up = "w3", .down = "w2",
    .gate_up = "feed_forward.experts.gate_up_proj", .all_down = "feed_forward.experts.down_proj",
    .count_key = "num_experts", .chosen_key = "num_experts_per_tok",
    .size_key = "moe_intermediate_size", .first_key = "num_dense_layers",
    .bias_key = "use_expert_bias", .renorm_key = "norm_topk_prob", .renorm = true,
    .scale_key = "routed_scaling_factor", .renorm_eps = 1e-6, .sigmoid = true,
    .n_experts = 32, .n_chosen = 4, .d_expert = 1792, .first = 2,
};
static const char *const lfm2_moe_renames[][2] = {
    {"rms_norm_eps", "norm_eps"}, {"tie_word_embeddings", "tie_embedding"}, {NULL, NULL},
};
static const struct eng_mixture qwen3_mixture = {
    EXPERTS, .count_key = "num_experts", .other_count_key = "num_local_experts",
    .chosen_key = "num_experts_per_tok", .size_key = "moe_intermediate_size",
    .renorm_key = "norm_topk_prob", .step_key = "decoder_sparse_step",
    .dense_key = "mlp_only_layers", .off = "use_sliding_window",
    .n_experts = 128, .n_chosen = 8, .d_expert = 768,
};
static const struct eng_mixture olmoe_mixture = {
    EXPERTS, .count_key = "num_experts", .other_count_key = "num_local_experts",
    .chosen_key = "num_experts_per_tok", .size_key = "intermediate_size",
    .renorm_key = "norm_topk_prob", .off = "clip_qkv",
    .n_experts = 64, .n_chosen = 8, .d_expert = 2048,
};
/* A softmax over the chosen alone is that over all, renormalised. */
static const struct eng_mixture granite_mixture = {
    .router = "block_sparse_moe.router.layer",
    .gate_up = "block_sparse_moe.input_linear.weight",
    .all_down = "block_sparse_moe.output_linear.weight",
    .count_key = "num_local_experts", .chosen_key = "num_experts_per_tok",
    .size_key = "intermediate_size", .renorm = true,
    .n_experts = 8, .n_chosen = 2, .d_expert = 11008,
};
static const struct eng_mixture ernie_mixture = {
    EXPERTS, .select_bias = "mlp.moe_statics.e_score_correction_bias", .bias_rank2 = true,
    .shared = "mlp.shared_experts", .count_key = "moe_num_experts", .chosen_key = "moe_k",
    .size_key = "moe_intermediate_size", .shared_key = "moe_num_shared_experts",
    .first_key = "moe_layer_start_index", .last_key = "moe_layer_end_index",
    .step_key = "moe_layer_interval", .floor_key = "moe_norm_min", .renorm = true,
    .off = "use_bias",
    .n_experts = 64, .n_chosen = 6, .d_expert = 1536, .n_shared = 2, .first = 1,
};
static const struct eng_mixture qwen3_5_mixture = {
    EXPERTS, .shared = "mlp.shared_expert", .shared_gate = "mlp.shared_expert_gate",
    .count_key = "num_experts", .chosen_key = "num_experts_per_tok",
    .size_key = "moe_intermediate_size", .shared_key = "shared_expert_intermediate_size",
    .renorm = true, .n_experts = 256, .n_chosen = 8, .d_expert = 512, .n_shared = 512,
};
static const struct eng_mixture gemma4_mixture = {
    .router = "router.proj", .router_scale = "router.scale",
    .expert_scale = "router.per_expert_scale", .experts = "experts",
    .gate = "gate_proj", .up = "up_proj", .down = "down_proj",
    .gate_up = "experts.gate_up_proj", .all_down = "experts.down_proj",
    .norm = "pre_feedforward_layernorm_2", .dense_post = "post_feedforward_layernorm_1",
    .post = "post_feedforward_layernorm_2", .switch_key = "enable_moe_block",
    .count_key = "num_experts", .chosen_key = "top_k_experts",
    .size_key = "moe_intermediate_size", .renorm = true,
};
/* A second token's prediction. */
static const char *const ernie_parts[] = {"model.mtp_", NULL};

/* ---- the table ----------------------------------------------------------------------------- */

#define GEMMA                                                                                      \
    .act_key = "hidden_activation", .act = KERN_ACT_GELU_TANH, .attn_bias_key = "attention_bias",  \
    .norm_plus_one = true, .embed_sqrt = true, .window_rule = ENG_WINDOW_PERIOD,                   \
    .hidden_size = 2304, .intermediate_size = 9216, .n_layers = 26, .n_heads = 8, .n_kv_heads = 4, \
    .head_dim = 256, .sliding_window = 4096, .eos_id = 1, .tie_word_embeddings = true
#define GEMMA3                                                                                     \
    GEMMA, .names = &gemma3_names, .keys = gemma3_keys, .qk_norm = ENG_QK_NORM_HEAD,               \
    .window_period = 6, .vocab_size = 262208, .max_position_embeddings = 131072,                   \
    .rope_theta = 1000000.0, .rope_local = true, .local_theta = 10000.0,                           \
    .local_theta_key = "rope_local_base_freq"

#define GEMMA4                                                                                     \
    .title = "Gemma 4", .names = &gemma4_names, .keys = gemma4_keys, .prefixes = gemma4_prefixes,  \
    .other_parts = gemma4_parts, .act_key = "hidden_activation", .act = KERN_ACT_GELU_TANH,        \
    .attn_bias_key = "attention_bias", .qk_norm = ENG_QK_NORM_HEAD, .embed_sqrt = true,            \
    .window_rule = ENG_WINDOW_PERIOD, .window_period = 6, .vocab_size = 262144,                    \
    .hidden_size = 2304, .intermediate_size = 9216, .n_layers = 30, .n_heads = 8, .n_kv_heads = 4, \
    .head_dim = 256, .full_head_dim = 512, .rope_theta = 1000000.0, .rope_local = true,            \
    .local_theta = 10000.0, .eos_id = 1, .tie_word_embeddings = true
#define GEMMA4_PLE                                                                                 \
    GEMMA4, .mixture = &gemma4_mixture, .d_ple = 256, .sliding_window = 512,                       \
    .max_position_embeddings = 131072
#define GEMMA4_UNIFIED GEMMA4, .sliding_window = 1024, .max_position_embeddings = 262144

#define QWEN3_5_ANY                                                                                \
    .title = "Qwen3.5", .names = &qwen3_5_names, .prefixes = qwen3_5_prefixes,                     \
    .other_parts = qwen3_5_parts, .attn_bias_key = "attention_bias", .norm_plus_one = true,        \
    .qk_norm = ENG_QK_NORM_HEAD, .delta = true, .partial_rotary = 0.25,                            \
    .vocab_size = 248320, .n_heads = 16, .head_dim = 256, .max_position_embeddings = 32768,        \
    .eos_id = -1, .rope_theta = 10000.0, .intermediate_size = 12288
#define QWEN3_5                                                                                    \
    QWEN3_5_ANY, .hidden_size = 4096, .n_layers = 32, .n_kv_heads = 4
#define QWEN3_5_MOE                                                                                \
    QWEN3_5_ANY, .hidden_size = 2048, .n_layers = 40, .n_kv_heads = 2

#define ENCODER_BASE                                                                               \
    .other_parts = encoder_parts, .hidden_size = 768, .n_heads = 12, .eos_id = -1
#define BERT_BASE                                                                                  \
    ENCODER_BASE, .act = KERN_ACT_GELU, .intermediate_size = 3072, .n_layers = 12,                 \
    .max_position_embeddings = 512, .eps = 1e-12

static const struct eng_family families[] = {
    {
        .architecture = "LlamaForCausalLM", .model_type = "llama", .title = "Llama",
        .names = &llama_names, .prefixes = plain_prefix,
        .attn_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias",
        .vocab_size = 32000, .hidden_size = 4096, .intermediate_size = 11008,
        .n_layers = 32, .n_heads = 32, .max_position_embeddings = 2048,
        .eos_id = 2, .rope_theta = 10000.0,
    },
    {
        .architecture = "MistralForCausalLM", .model_type = "mistral", .title = "Mistral",
        .names = &llama_names, .prefixes = plain_prefix,
        .window_rule = ENG_WINDOW_ALL, .sliding_window = 4096,
        .vocab_size = 32000, .hidden_size = 4096, .intermediate_size = 14336,
        .n_layers = 32, .n_heads = 32, .n_kv_heads = 8, .max_position_embeddings = 131072,
        .eos_id = 2, .rope_theta = 10000.0,
    },
    {
        .architecture = "Qwen2ForCausalLM", .model_type = "qwen2", .title = "Qwen2",
        .names = &llama_names, .prefixes = plain_prefix, .qkv_bias = true,
        .window_rule = ENG_WINDOW_FROM, .sliding_window = 4096,
        .vocab_size = 151936, .hidden_size = 4096, .intermediate_size = 22016,
        .n_layers = 32, .n_heads = 32, .n_kv_heads = 32, .max_position_embeddings = 32768,
        .eos_id = -1, .rope_theta = 10000.0,
    },
    {
        .architecture = "Qwen3ForCausalLM", .model_type = "qwen3", .title = "Qwen3",
        .names = &qwen3_names, .prefixes = plain_prefix,
        .attn_bias_key = "attention_bias", .qk_norm = ENG_QK_NORM_HEAD,
        .window_rule = ENG_WINDOW_FROM, .sliding_window = 4096,
        .vocab_size = 151936, .hidden_size = 4096, .intermediate_size = 22016,
        .n_layers = 32, .n_heads = 32, .n_kv_heads = 32, .head_dim = 128,
        .max_position_embeddings = 32768,
        .eos_id = -1, .rope_theta = 10000.0,
    },
    {
        .architecture = "SmolLM3ForCausalLM", .model_type = "smollm3", .title = "SmolLM3",
        .names = &llama_names, .prefixes = plain_prefix,
        .attn_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias",
        .nope_layers = true, .window_rule = ENG_WINDOW_NOPE,
        .vocab_size = 128256, .hidden_size = 2048, .intermediate_size = 11008,
        .n_layers = 36, .n_heads = 16, .n_kv_heads = 4, .max_position_embeddings = 32768,
        .eos_id = 128001, .rope_theta = 2000000.0,
        .tie_word_embeddings = true,
    },
    {
        .architecture = "GraniteForCausalLM", .model_type = "granite", .title = "Granite",
        .names = &llama_names, .prefixes = plain_prefix, .keys = granite_keys,
        .attn_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias",
        .vocab_size = 32000, .hidden_size = 4096, .intermediate_size = 11008,
        .n_layers = 32, .n_heads = 32, .max_position_embeddings = 2048,
        .eos_id = 2, .rope_theta = 10000.0,
    },
    {
        .architecture = "GraniteMoeHybridForCausalLM", .model_type = "granitemoehybrid",
        .title = "Granite 4", .names = &granite4_names, .prefixes = plain_prefix,
        .keys = granite_keys, .attn_bias_key = "attention_bias", .hybrid = true,
        .ffn_key = "shared_intermediate_size",
        .vocab_size = 32000, .hidden_size = 4096, .intermediate_size = 1024,
        .n_layers = 32, .n_heads = 32, .max_position_embeddings = 2048,
        .eos_id = 2, .rope_theta = 10000.0,
    },
    {
        .architecture = "Phi3ForCausalLM", .model_type = "phi3", .title = "Phi-3",
        .names = &phi3_names, .prefixes = plain_prefix,
        .partial_rotary = 1, .rope_longrope = true, .window_rule = ENG_WINDOW_ALL,
        .vocab_size = 32064, .hidden_size = 3072, .intermediate_size = 8192,
        .n_layers = 32, .n_heads = 32, .max_position_embeddings = 4096,
        .eos_id = 32000, .rope_theta = 10000.0, .eps = 1e-5,
    },
    {
        .architecture = "Ernie4_5ForCausalLM", .model_type = "ernie4_5", .title = "Ernie 4.5",
        .names = &llama_names, .prefixes = plain_prefix, .rope_pairs = true,
        .attn_bias_key = "use_bias", .mlp_bias_key = "use_bias",
        .vocab_size = 103424, .hidden_size = 1024, .intermediate_size = 3072,
        .n_layers = 18, .n_heads = 16, .n_kv_heads = 2, .head_dim = 128,
        .max_position_embeddings = 131072,
        .eos_id = 2, .rope_theta = 500000.0, .eps = 1e-5,
        .tie_word_embeddings = true,
    },
    {
        .architecture = "Olmo2ForCausalLM", .model_type = "olmo2", .title = "OLMo 2",
        .names = &olmo_names, .prefixes = plain_prefix,
        .attn_bias_key = "attention_bias", .qk_norm = ENG_QK_NORM_ROW,
        .vocab_size = 50304, .hidden_size = 4096, .intermediate_size = 11008,
        .n_layers = 32, .n_heads = 32, .max_position_embeddings = 2048,
        .eos_id = 50279, .rope_theta = 10000.0, .eps = 1e-5,
    },
    {
        .architecture = "Olmo3ForCausalLM", .model_type = "olmo3", .title = "OLMo 3",
        .names = &olmo_names, .prefixes = plain_prefix,
        .attn_bias_key = "attention_bias", .qk_norm = ENG_QK_NORM_ROW,
        .window_rule = ENG_WINDOW_PERIOD, .window_period = 4, .sliding_window = 4096,
        .rope_local = true, .local_theta = 500000.0,
        .vocab_size = 50304, .hidden_size = 4096, .intermediate_size = 11008,
        .n_layers = 32, .n_heads = 32, .max_position_embeddings = 2048,
        .eos_id = 50279, .rope_theta = 500000.0, .eps = 1e-5,
    },
    {
        .architecture = "Glm4ForCausalLM", .model_type = "glm4", .title = "GLM-4",
        .names = &glm4_names, .prefixes = plain_prefix,
        .attn_bias_key = "attention_bias", .bias_default = true, .no_o_bias = true,
        .rope_pairs = true, .partial_rotary = 0.5,
        .vocab_size = 151552, .hidden_size = 4096, .intermediate_size = 13696,
        .n_layers = 40, .n_heads = 32, .n_kv_heads = 2, .head_dim = 128,
        .max_position_embeddings = 131072,
        .eos_id = -1, .rope_theta = 10000.0, .eps = 1.5625e-7,
    },
    {
        .architecture = "Exaone4ForCausalLM", .model_type = "exaone4", .title = "EXAONE 4",
        .names = &olmo_names, .prefixes = plain_prefix, .qk_norm = ENG_QK_NORM_HEAD,
        .window_rule = ENG_WINDOW_PERIOD, .window_period = 4, .sliding_window = 4096,
        .nope_full = true,
        .vocab_size = 102400, .hidden_size = 4096, .intermediate_size = 16384,
        .n_layers = 32, .n_heads = 32, .n_kv_heads = 32, .max_position_embeddings = 2048,
        .eos_id = 2, .rope_theta = 10000.0, .eps = 1e-5,
    },
    {
        .architecture = "HunYuanDenseV1ForCausalLM", .model_type = "hunyuan_v1_dense",
        .title = "Hunyuan", .names = &hunyuan_names, .prefixes = plain_prefix,
        .attn_bias_key = "attention_bias", .qk_norm = ENG_QK_NORM_AFTER_ROPE, .rope_alpha = true,
        .vocab_size = 290943, .hidden_size = 4096, .intermediate_size = 11008,
        .n_layers = 32, .n_heads = 32, .max_position_embeddings = 2048,
        .eos_id = 2, .rope_theta = 10000.0, .eps = 1e-5,
    },
    {
        .architecture = "Lfm2ForCausalLM", .model_type = "lfm2", .title = "LFM2",
        .names = &lfm2_names, .prefixes = plain_prefix, .renames = lfm2_renames,
        .qk_norm = ENG_QK_NORM_HEAD, .short_conv = true,
        .vocab_size = 65536, .hidden_size = 2560, .intermediate_size = 12288,
        .n_layers = 32, .n_heads = 32, .n_kv_heads = 8, .max_position_embeddings = 128000,
        .eos_id = 2, .rope_theta = 1000000.0, .eps = 1e-5,
        .tie_word_embeddings = true,
    },
    {
        .architecture = "Lfm2MoeForCausalLM", .model_type = "lfm2_moe", .title = "LFM2",
        .names = &lfm2_names, .mixture = &lfm2_mixture, .prefixes = plain_prefix,
        .renames = lfm2_moe_renames,
        .qk_norm = ENG_QK_NORM_HEAD, .short_conv = true,
        .vocab_size = 65536, .hidden_size = 2048, .intermediate_size = 7168,
        .n_layers = 32, .n_heads = 32, .n_kv_heads = 8, .max_position_embeddings = 128000,
        .eos_id = 2, .rope_theta = 1000000.0, .eps = 1e-5,
        .tie_word_embeddings = true,
    },
    {
        .architecture = "Qwen3MoeForCausalLM", .model_type = "qwen3_moe", .title = "Qwen3",
        .names = &qwen3_names, .mixture = &qwen3_mixture, .prefixes = plain_prefix,
        .attn_bias_key = "attention_bias", .qk_norm = ENG_QK_NORM_HEAD,
        .vocab_size = 151936, .hidden_size = 2048, .intermediate_size = 6144,
        .n_layers = 24, .n_heads = 32, .n_kv_heads = 4,
        .max_position_embeddings = 32768,
        .eos_id = -1, .rope_theta = 10000.0,
    },
    {
        .architecture = "OlmoeForCausalLM", .model_type = "olmoe", .title = "OLMoE",
        .names = &qwen3_names, .mixture = &olmoe_mixture, .prefixes = plain_prefix,
        .attn_bias_key = "attention_bias", .qk_norm = ENG_QK_NORM_ROW,
        .vocab_size = 50304, .hidden_size = 2048, .intermediate_size = 2048,
        .n_layers = 16, .n_heads = 16, .max_position_embeddings = 4096,
        .eos_id = 50279, .rope_theta = 10000.0, .eps = 1e-5,
    },
    {
        .architecture = "GraniteMoeForCausalLM", .model_type = "granitemoe", .title = "Granite",
        .names = &llama_names, .mixture = &granite_mixture, .prefixes = plain_prefix,
        .keys = granite_keys, .attn_bias_key = "attention_bias",
        .vocab_size = 32000, .hidden_size = 4096, .intermediate_size = 11008,
        .n_layers = 32, .n_heads = 32, .max_position_embeddings = 2048,
        .eos_id = 2, .rope_theta = 10000.0,
    },
    {
        .architecture = "Ernie4_5_MoeForCausalLM", .model_type = "ernie4_5_moe",
        .title = "Ernie 4.5", .names = &llama_names, .mixture = &ernie_mixture,
        .prefixes = plain_prefix, .other_parts = ernie_parts, .rope_pairs = true,
        .vocab_size = 103424, .hidden_size = 2560, .intermediate_size = 12288,
        .n_layers = 28, .n_heads = 20, .n_kv_heads = 4, .max_position_embeddings = 131072,
        .eos_id = 2, .rope_theta = 500000.0, .eps = 1e-5,
        .tie_word_embeddings = true,
    },
    {
        .architecture = "Gemma2ForCausalLM", .model_type = "gemma2", .title = "Gemma 2",
        .names = &gemma2_names, .prefixes = plain_prefix, .keys = gemma2_keys, GEMMA,
        .window_period = 2, .vocab_size = 256000, .max_position_embeddings = 8192,
        .rope_theta = 10000.0,
    },
    {
        .architecture = "Gemma3ForCausalLM", .model_type = "gemma3_text", .title = "Gemma 3",
        .prefixes = plain_prefix, GEMMA3,
    },
    {
        .architecture = "Gemma3ForConditionalGeneration", .model_type = "gemma3",
        .title = "Gemma 3", .config_key = "text_config", .prefixes = wrapped_prefixes,
        .other_parts = vision_parts, GEMMA3,
    },
    {
        .architecture = "Gemma4ForCausalLM", .model_type = "gemma4_text", GEMMA4_PLE,
    },
    {
        .architecture = "Gemma4ForConditionalGeneration", .model_type = "gemma4",
        .config_key = "text_config", GEMMA4_PLE,
    },
    {
        .architecture = "Gemma4UnifiedForCausalLM", .model_type = "gemma4_unified_text",
        GEMMA4_UNIFIED,
    },
    {
        .architecture = "Gemma4UnifiedForConditionalGeneration", .model_type = "gemma4_unified",
        .config_key = "text_config", GEMMA4_UNIFIED,
    },
    {
        .architecture = "Qwen3_5ForCausalLM", .model_type = "qwen3_5_text", QWEN3_5,
    },
    {
        .architecture = "Qwen3_5ForConditionalGeneration", .model_type = "qwen3_5",
        .config_key = "text_config", QWEN3_5,
    },
    {
        .architecture = "Qwen3_5MoeForCausalLM", .model_type = "qwen3_5_moe_text",
        .mixture = &qwen3_5_mixture, QWEN3_5_MOE,
    },
    {
        .architecture = "Qwen3_5MoeForConditionalGeneration", .model_type = "qwen3_5_moe",
        .mixture = &qwen3_5_mixture, .config_key = "text_config", QWEN3_5_MOE,
    },
    {
        .architecture = "BertModel", .model_type = "bert", .title = "BERT",
        .names = &bert_names, .encoder = &bert_encoder, .prefixes = bert_prefixes,
        BERT_BASE, .vocab_size = 30522,
    },
    {
        .architecture = "RobertaModel", .model_type = "roberta", .title = "RoBERTa",
        .names = &bert_names, .encoder = &roberta_encoder, .prefixes = roberta_prefixes,
        BERT_BASE, .vocab_size = 50265,
    },
    {
        .architecture = "XLMRobertaModel", .model_type = "xlm-roberta", .title = "XLM-RoBERTa",
        .names = &bert_names, .encoder = &roberta_encoder, .prefixes = roberta_prefixes,
        BERT_BASE, .vocab_size = 30522,
    },
    {
        .architecture = "MPNetModel", .model_type = "mpnet", .title = "MPNet",
        .names = &mpnet_names, .encoder = &mpnet_encoder, .prefixes = mpnet_prefixes,
        BERT_BASE, .vocab_size = 30527,
    },
    {
        .architecture = "DistilBertModel", .model_type = "distilbert", .title = "DistilBERT",
        .names = &distilbert_names, .encoder = &distilbert_encoder,
        .prefixes = distilbert_prefixes, BERT_BASE, .vocab_size = 30522,
    },
    {
        .architecture = "NomicBertModel", .model_type = "nomic_bert", .title = "Nomic BERT",
        .names = &nomic_names, .encoder = &nomic_encoder, .prefixes = bert_prefixes,
        ENCODER_BASE, .act = KERN_ACT_SILU, .vocab_size = 30528, .eps = 1e-12,
        .intermediate_size = 3072, .n_layers = 12,
        .max_position_embeddings = 2048, .rope_theta = 1000.0,
    },
    {
        .architecture = "ModernBertModel", .model_type = "modernbert", .title = "ModernBERT",
        .names = &modernbert_names, .encoder = &modernbert_encoder, .prefixes = plain_prefix,
        ENCODER_BASE, .act = KERN_ACT_GELU,
        .attn_bias_key = "attention_bias", .mlp_bias_key = "mlp_bias",
        .vocab_size = 50368, .intermediate_size = 1152, .n_layers = 22, .eps = 1e-5,
        .max_position_embeddings = 8192, .rope_theta = 160000.0, .rope_local = true,
        .local_theta = 10000.0, .local_theta_key = "local_rope_theta",
    },
};
/* clang-format on */

enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

const struct eng_family *eng_family_at(int i)
{
    return i >= 0 && i < N_FAMILIES ? &families[i] : NULL;
}

const struct eng_family *eng_family_by_architecture(const char *architecture,
                                                    enum eng_task *ret_task)
{
    static const struct {
        const char *ending;
        enum eng_task task;
    } tasks[] = {
        {"Model", ENG_TASK_STATES},
        {"TextModel", ENG_TASK_STATES},
        {"ForMaskedLM", ENG_TASK_STATES},
        {"ForSequenceClassification", ENG_TASK_LABELS},
    };
    for (int i = 0; i < N_FAMILIES; i++) {
        const struct eng_encoder *encoder = families[i].encoder;
        const char *name = families[i].architecture;
        const char *ending = strstr(name, encoder ? "Model" : "ForCausalLM");
        *ret_task = encoder ? ENG_TASK_STATES : ENG_TASK_TOKENS;
        if (strcmp(name, architecture) == 0) return &families[i];
        size_t stem = ending ? (size_t)(ending - name) : 0;
        if (stem == 0 || strncmp(name, architecture, stem) != 0) continue;
        for (size_t k = 0; k < sizeof(tasks) / sizeof(tasks[0]); k++) {
            if (strcmp(architecture + stem, tasks[k].ending) != 0) continue;
            if (tasks[k].task == ENG_TASK_LABELS && encoder && !encoder->labels) continue;
            *ret_task = tasks[k].task;
            return &families[i];
        }
    }
    return NULL;
}

const struct eng_family *eng_family_by_model_type(const char *model_type)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].model_type, model_type) == 0) return &families[i];
    return NULL;
}
