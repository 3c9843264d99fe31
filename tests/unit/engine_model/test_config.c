/* SPDX-License-Identifier: MIT */
/*
 * config.json: both spellings, the reference's defaults, and every refusal by the name of its
 * field.
 */
#include "engine/model/config.h"

#include "engine/engine.h"
#include "engine/model/config_json.h"
#include "engine/model/family.h"
#include "test.h"

enum { ERR_BYTES = 512 };

static int parse(struct eng_hparams *hp, const char *config, const char *generation, char *err)
{
    struct eng_report r = {.err = err, .errlen = ERR_BYTES};
    err[0] = '\0';
    return eng_config_parse(hp, config, strlen(config), generation,
                            generation ? strlen(generation) : 0, &r);
}

static struct eng_hparams good(const char *config, const char *generation)
{
    struct eng_hparams hp;
    char err[ERR_BYTES];
    int rc = parse(&hp, config, generation, err);
    REQUIRE_MSG(rc == 0, "%s: %s", config, err);
    return hp;
}

/* A small model of a family with further fields; the later of two equal keys is not allowed. */
#define SMALL                                                                                      \
    "\"hidden_size\":64,\"num_attention_heads\":4,\"num_hidden_layers\":4,"                        \
    "\"vocab_size\":100"
#define LLAMA(more) "{\"architectures\":[\"LlamaForCausalLM\"]," SMALL more "}"
#define FAMILY(name, more) "{\"architectures\":[\"" name "ForCausalLM\"]," SMALL more "}"

static void test_llama_defaults(void **state)
{
    (void)state;
    struct eng_hparams hp = good("{\"model_type\":\"llama\"}", NULL);
    REQUIRE_EQ_STR(hp.family->architecture, "LlamaForCausalLM");
    REQUIRE_EQ_INT(hp.vocab, 32000);
    REQUIRE_EQ_INT(hp.d_model, 4096);
    REQUIRE_EQ_INT(hp.d_ff, 11008);
    REQUIRE_EQ_INT(hp.n_layers, 32);
    REQUIRE_EQ_INT(hp.n_heads, 32);
    REQUIRE_EQ_INT(hp.n_kv_heads, 32);
    REQUIRE_EQ_INT(hp.d_head, 128);
    REQUIRE_EQ_INT(hp.ctx_train, 2048);
    REQUIRE(hp.rms_eps == 1e-6 && hp.rope.theta == 10000 && !hp.tied);
    REQUIRE(!hp.attn_bias_qkv && !hp.attn_bias_o && !hp.mlp_bias);
    REQUIRE_EQ_INT(hp.eos.n, 1);
    REQUIRE_EQ_INT(hp.eos.ids[0], 2);
    REQUIRE(hp.layer_rope[31] && hp.layer_window[31] == 0);
}

/* family, key/value heads, head size, theta, window of layers 0 and 30, tied, bias of q */
static void test_family_defaults(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        int n_kv_heads, d_head, window0, window30;
        double theta;
        bool tied, bias;
        int n_eos;
    } rows[] = {
        {"mistral", 8, 128, 4096, 4096, 10000, false, false, 1},
        {"qwen2", 32, 128, 0, 0, 10000, false, true, 0},
        {"qwen3", 32, 128, 0, 0, 10000, false, false, 0},
        {"smollm3", 4, 128, 0, 0, 2000000, true, false, 1},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        char text[64];
        snprintf(text, sizeof(text), "{\"model_type\":\"%s\"}", rows[i].type);
        struct eng_hparams hp = good(text, NULL);
        REQUIRE_EQ_INT(hp.n_kv_heads, rows[i].n_kv_heads);
        REQUIRE_EQ_INT(hp.d_head, rows[i].d_head);
        REQUIRE_EQ_INT(hp.layer_window[0], rows[i].window0);
        REQUIRE_EQ_INT(hp.layer_window[30], rows[i].window30);
        REQUIRE_EQ_INT(hp.tied, rows[i].tied);
        REQUIRE_EQ_INT(hp.attn_bias_qkv, rows[i].bias);
        REQUIRE_EQ_INT(hp.eos.n, rows[i].n_eos);
        REQUIRE(hp.rope.theta == rows[i].theta);
    }
}

static void test_heads(void **state)
{
    (void)state;
    REQUIRE_EQ_INT(good(LLAMA(""), NULL).n_kv_heads, 4);
    REQUIRE_EQ_INT(good(LLAMA(",\"num_key_value_heads\":null"), NULL).n_kv_heads, 4);
    REQUIRE_EQ_INT(good(LLAMA(",\"num_key_value_heads\":2"), NULL).n_kv_heads, 2);
    REQUIRE_EQ_INT(good(LLAMA(",\"head_dim\":null"), NULL).d_head, 16);
    REQUIRE_EQ_INT(good(LLAMA(",\"head_dim\":40"), NULL).d_head, 40);
    REQUIRE_EQ_INT(good(FAMILY("Mistral", ",\"num_key_value_heads\":null"), NULL).n_kv_heads, 4);
}

static void test_biases(void **state)
{
    (void)state;
    struct eng_hparams hp = good(LLAMA(",\"attention_bias\":true"), NULL);
    REQUIRE(hp.attn_bias_qkv && hp.attn_bias_o && !hp.mlp_bias);
    hp = good(LLAMA(",\"mlp_bias\":true"), NULL);
    REQUIRE(!hp.attn_bias_qkv && !hp.attn_bias_o && hp.mlp_bias);
    hp = good(FAMILY("Qwen2", ",\"num_key_value_heads\":4,\"attention_bias\":false"), NULL);
    REQUIRE(hp.attn_bias_qkv && !hp.attn_bias_o);
    hp = good(FAMILY("Qwen3", ",\"num_key_value_heads\":4,\"attention_bias\":true"), NULL);
    REQUIRE(hp.attn_bias_qkv && hp.attn_bias_o && hp.qk_norm == ENG_QK_NORM_HEAD);
    hp = good(FAMILY("Mistral", ",\"num_key_value_heads\":4,\"attention_bias\":true"), NULL);
    REQUIRE(!hp.attn_bias_qkv && !hp.attn_bias_o);
}

static void test_rope_spellings(void **state)
{
    (void)state;
    struct eng_hparams hp = good(LLAMA(",\"rope_theta\":5e5,\"rope_scaling\":null"), NULL);
    REQUIRE(hp.rope.type == ENG_ROPE_DEFAULT && hp.rope.theta == 5e5);
    hp = good(LLAMA(",\"time_step_limit\":[0.0,Infinity],\"initializer_range\":NaN"), NULL);
    REQUIRE(hp.rope.theta == 10000);
    hp = good(LLAMA(",\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"default\"}"), NULL);
    REQUIRE(hp.rope.type == ENG_ROPE_DEFAULT && hp.rope.theta == 5e5);
    hp = good(LLAMA(",\"rope_theta\":7,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}"), NULL);
    REQUIRE(hp.rope.type == ENG_ROPE_LINEAR && hp.rope.theta == 7 && hp.rope.factor == 4);
    hp = good(LLAMA(",\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,"
                    "\"low_freq_factor\":1,\"high_freq_factor\":4}"),
              NULL);
    REQUIRE(hp.rope.type == ENG_ROPE_LLAMA3 && hp.rope.original_ctx == 2048);
    hp = good(LLAMA(",\"original_max_position_embeddings\":77,\"rope_scaling\":{\"rope_type\":"
                    "\"yarn\",\"factor\":4,\"beta_fast\":null,\"beta_slow\":2}"),
              NULL);
    REQUIRE(hp.rope.type == ENG_ROPE_YARN && hp.rope.original_ctx == 77 && hp.rope.truncate);
    REQUIRE(hp.rope.beta_fast == 32 && hp.rope.beta_slow == 2);
    REQUIRE(hp.rope.attention_factor > 1.138 && hp.rope.attention_factor < 1.139);
    hp = good(LLAMA(",\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2}"), NULL);
    REQUIRE(hp.rope.type == ENG_ROPE_DYNAMIC && hp.ctx_max == 2048);
    hp = good(LLAMA(",\"rope_scaling\":{},\"rope_parameters\":{\"rope_theta\":3.0}"), NULL);
    REQUIRE(hp.rope.theta == 3);
}

/* The windows of layers 0..3, as text: '.' none, else a digit. */
static void windows_of(const struct eng_hparams *hp, char text[5])
{
    for (int i = 0; i < 4; i++)
        text[i] = hp->layer_window[i] ? (char)('0' + hp->layer_window[i]) : '.';
    text[4] = '\0';
}

static void test_windows(void **state)
{
    (void)state;
#define KV ",\"num_key_value_heads\":4"
#define USED KV ",\"use_sliding_window\":true,\"sliding_window\":5"
#define TYPES                                                                                      \
    ",\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","               \
    "\"sliding_attention\"]"
    static const struct {
        const char *config, *windows;
    } rows[] = {
        {FAMILY("Mistral", KV ",\"sliding_window\":7"), "7777"},
        {FAMILY("Mistral", KV ",\"sliding_window\":null"), "...."},
        {FAMILY("Mistral", KV ",\"sliding_window\":7" TYPES), "7777"},
        {LLAMA(",\"sliding_window\":7"), "...."},
        {FAMILY("Qwen2", USED), "...."},
        {FAMILY("Qwen2", USED ",\"max_window_layers\":2"), "..55"},
        {FAMILY("Qwen2", USED ",\"max_window_layers\":0"), "5555"},
        {FAMILY("Qwen2", KV ",\"sliding_window\":5,\"max_window_layers\":0"), "...."},
        {FAMILY("Qwen3", USED TYPES), ".5.5"},
        {FAMILY("SmolLM3", USED ",\"no_rope_layer_interval\":2"), ".5.5"},
        {FAMILY("SmolLM3", USED ",\"no_rope_layers\":[0,1,1,1,0]"), "5..."},
        {FAMILY("SmolLM3", KV ",\"sliding_window\":5,\"no_rope_layers\":[0,1,1,1]"), "...."},
        {FAMILY("SmolLM3", KV ",\"sliding_window\":5" TYPES), ".5.5"},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        char text[5];
        struct eng_hparams hp = good(rows[i].config, NULL);
        windows_of(&hp, text);
        REQUIRE_MSG(strcmp(text, rows[i].windows) == 0, "%s: %s", rows[i].config, text);
    }
}

static void test_nope(void **state)
{
    (void)state;
    struct eng_hparams hp = good(FAMILY("SmolLM3", KV), NULL);
    REQUIRE(hp.layer_rope[0] && hp.layer_rope[2] && !hp.layer_rope[3]);
    hp = good(FAMILY("SmolLM3", KV ",\"no_rope_layers\":[0,1,0,1]"), NULL);
    REQUIRE(!hp.layer_rope[0] && hp.layer_rope[1] && !hp.layer_rope[2] && hp.layer_rope[3]);
}

static void test_token_ids(void **state)
{
    (void)state;
    struct eng_hparams hp = good(LLAMA(",\"eos_token_id\":[5,6]"), NULL);
    REQUIRE_EQ_INT(hp.eos.n, 2);
    REQUIRE_EQ_INT(hp.eos.ids[1], 6);
    hp = good(LLAMA(",\"eos_token_id\":5"), "{\"eos_token_id\":[8,9,10]}");
    REQUIRE_EQ_INT(hp.eos.n, 4);
    REQUIRE(hp.eos.ids[0] == 8 && hp.eos.ids[3] == 5);
    hp = good(LLAMA(",\"eos_token_id\":[5,999,8]"), "{\"eos_token_id\":8}");
    REQUIRE(hp.eos.n == 2 && hp.eos.ids[0] == 8 && hp.eos.ids[1] == 5);
    REQUIRE(eng_config_add_end(&hp, 9) && hp.eos.n == 3 && hp.eos.ids[2] == 9);
    REQUIRE(!eng_config_add_end(&hp, 8) && !eng_config_add_end(&hp, -1));
    REQUIRE(!eng_config_add_end(&hp, hp.vocab) && hp.eos.n == 3);
    hp = good(LLAMA(",\"eos_token_id\":5"), "{\"eos_token_id\":null}");
    REQUIRE_EQ_INT(hp.eos.ids[0], 5);
    hp = good(LLAMA(",\"eos_token_id\":null"), NULL);
    REQUIRE_EQ_INT(hp.eos.n, 0);
    hp = good(FAMILY("SmolLM3", KV), NULL); /* the family's defaults lie beyond this vocabulary */
    REQUIRE_EQ_INT(hp.eos.n, 0);
}

/* Fields that change nothing, whatever they hold. */
static void test_ignored(void **state)
{
    (void)state;
    good(LLAMA(",\"torch_dtype\":\"bfloat16\",\"dtype\":\"float8\",\"rope_interleaved\":true,"
               "\"pretraining_tp\":2,\"num_experts\":0,\"quantization_config\":null,"
               "\"per_layer_config\":{},"
               "\"partial_rotary_factor\":1.0,\"hidden_act\":\"swish\",\"use_cache\":false,"
               "\"auto_map\":{\"a\":\"b\"},\"transformers.js_config\":{}"),
         NULL);
}

static const struct {
    const char *config, *says;
    int rc;
} refusals[] = {
    {"", "config.json: line", ENG_EINVAL},
    {"[]", "is not a JSON object", ENG_EINVAL},
    {"{", "config.json: line 1", ENG_EINVAL},
    {"{\"a\":1,\"a\":2}", "comes twice", ENG_EINVAL},
    {"{}", "architectures and model_type are missing", ENG_EINVAL},
    {"{\"architectures\":\"LlamaForCausalLM\"}", "architectures must be a list", ENG_EINVAL},
    {"{\"architectures\":[\"MixtralForCausalLM\"]}",
     "architecture MixtralForCausalLM is not supported; supported: LlamaForCausalLM, ",
     ENG_EUNSUPPORTED},
    {"{\"architectures\":[\"LlamaForTokenClassification\"]}", "is not supported", ENG_EUNSUPPORTED},
    {"{\"model_type\":\"gpt2\"}", "model_type gpt2 is not supported", ENG_EUNSUPPORTED},
    {LLAMA(",\"model_type\":\"qwen2\""), "does not match", ENG_EINVAL},
    {"{\"model_type\":\"llama\",\"hidden_size\":0}", "hidden_size must be within 1..", ENG_EINVAL},
    {"{\"model_type\":\"llama\",\"hidden_size\":-64}", "it is -64", ENG_EINVAL},
    {"{\"model_type\":\"llama\",\"hidden_size\":64.5}", "not an integer", ENG_EINVAL},
    {"{\"model_type\":\"llama\",\"hidden_size\":\"64\"}", "not an integer", ENG_EINVAL},
    {"{\"model_type\":\"llama\",\"num_hidden_layers\":1000000000}", "num_hidden_layers must be",
     ENG_EINVAL},
    {"{\"model_type\":\"llama\",\"num_hidden_layers\":0}", "num_hidden_layers must be", ENG_EINVAL},
    {"{\"model_type\":\"llama\",\"vocab_size\":0}", "vocab_size must be", ENG_EINVAL},
    {"{\"model_type\":\"llama\",\"vocab_size\":9223372036854775807}", "vocab_size must be",
     ENG_EINVAL},
    {"{\"model_type\":\"llama\",\"intermediate_size\":0}", "intermediate_size must", ENG_EINVAL},
    {"{\"model_type\":\"llama\",\"num_attention_heads\":0}", "num_attention_heads must",
     ENG_EINVAL},
    {"{\"model_type\":\"llama\",\"num_attention_heads\":33}", "does not divide by", ENG_EINVAL},
    {LLAMA(",\"num_key_value_heads\":3"), "not a multiple of num_key_value_heads", ENG_EINVAL},
    {LLAMA(",\"num_key_value_heads\":0"), "num_key_value_heads must", ENG_EINVAL},
    {LLAMA(",\"head_dim\":15"), "head_dim (15) must be even for RoPE", ENG_EINVAL},
    {"{\"model_type\":\"bert\",\"hidden_size\":30,\"num_attention_heads\":2}",
     "head_dim (15) must be even: odd heads are not supported", ENG_EINVAL},
    {LLAMA(",\"head_dim\":0"), "head_dim must be within", ENG_EINVAL},
    {LLAMA(",\"max_position_embeddings\":0"), "max_position_embeddings must", ENG_EINVAL},
    {LLAMA(",\"rms_norm_eps\":-1"), "rms_norm_eps must", ENG_EINVAL},
    {LLAMA(",\"rms_norm_eps\":\"1e-5\""), "rms_norm_eps must be within 0..1, it is not a number",
     ENG_EINVAL},
    {LLAMA(",\"tie_word_embeddings\":1"), "tie_word_embeddings must be true or false", ENG_EINVAL},
    {LLAMA(",\"attention_bias\":\"no\""), "attention_bias must be true or false", ENG_EINVAL},
    {LLAMA(",\"rope_theta\":0"), "rope_theta must", ENG_EINVAL},
    {LLAMA(",\"rope_theta\":Infinity"), "rope_theta must be within", ENG_EINVAL},
    {LLAMA(",\"rope_theta\":NaN"), "rope_theta must be within", ENG_EINVAL},
    {LLAMA(",\"intermediate_size\":-Infinity"), "intermediate_size must", ENG_EINVAL},
    {LLAMA(",\"intermediate_size\":99999999999999999999"), "intermediate_size must", ENG_EINVAL},
    {LLAMA(",\"rope_theta\":-10000"), "rope_theta must", ENG_EINVAL},
    {LLAMA(",\"rope_scaling\":5"), "rope_scaling must be an object", ENG_EINVAL},
    {LLAMA(",\"rope_scaling\":{\"rope_type\":\"su\"}"), "rope_type su is not supported",
     ENG_EUNSUPPORTED},
    {LLAMA(",\"rope_scaling\":{\"type\":\"mrope\"}"), "rope_type mrope", ENG_EUNSUPPORTED},
    {LLAMA(",\"rope_scaling\":{\"type\":\"linear\",\"rope_type\":\"yarn\",\"factor\":2}"), "differ",
     ENG_EINVAL},
    {LLAMA(",\"rope_scaling\":{\"type\":\"linear\"}"),
     "config.json: rope_scaling: factor is missing", ENG_EINVAL},
    {LLAMA(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}"), "factor must", ENG_EINVAL},
    {LLAMA(",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8}"), "low_freq_factor is missing",
     ENG_EINVAL},
    {LLAMA(",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
           "\"high_freq_factor\":4}"),
     "high_freq_factor must be greater", ENG_EINVAL},
    {LLAMA(",\"rope_theta\":1,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}"),
     "rope_theta must be greater than 1", ENG_EINVAL},
    {LLAMA(",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e4}}"),
     "rope_parameters: full_attention: RoPE that differs", ENG_EUNSUPPORTED},
    {LLAMA(",\"rope_parameters\":{\"partial_rotary_factor\":0.5}"), "partial_rotary_factor other",
     ENG_EUNSUPPORTED},
    {LLAMA(",\"partial_rotary_factor\":0.25"), "partial_rotary_factor other", ENG_EUNSUPPORTED},
    {LLAMA(",\"hidden_act\":\"relu\""), "hidden_act relu is not supported", ENG_EUNSUPPORTED},
    {LLAMA(",\"hidden_act\":3"), "hidden_act must be a string", ENG_EINVAL},
    {LLAMA(",\"per_layer_config\":{\"0\":{\"num_attention_heads\":1}}"),
     "per_layer_config: settings that differ by layer", ENG_EUNSUPPORTED},
    {LLAMA(",\"quantization_config\":{\"bits\":4}"), "quantization_config: quantised weights",
     ENG_EUNSUPPORTED},
    {LLAMA(",\"num_local_experts\":8"), "num_local_experts: mixtures", ENG_EUNSUPPORTED},
    {LLAMA(",\"pretraining_tp\":0"), "pretraining_tp must", ENG_EINVAL},
    {LLAMA(",\"eos_token_id\":100"), "eos_token_id must be within the 100 tokens", ENG_EINVAL},
    {LLAMA(",\"eos_token_id\":-1"), "eos_token_id must", ENG_EINVAL},
    {LLAMA(",\"eos_token_id\":\"</s>\""), "eos_token_id must", ENG_EINVAL},
    {LLAMA(",\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"), "more than 16",
     ENG_EUNSUPPORTED},
    {FAMILY("Mistral", KV ",\"sliding_window\":0"), "sliding_window must", ENG_EINVAL},
    {FAMILY("Qwen2", USED ",\"layer_types\":[\"full_attention\"]"), "layer_types must be a list",
     ENG_EINVAL},
    {FAMILY("Qwen2", KV TYPES), "layer_types asks for a sliding window", ENG_EINVAL},
    {FAMILY("Qwen3", KV ",\"layer_types\":[\"full_attention\",\"chunked_attention\","
                        "\"full_attention\",\"full_attention\"]"),
     "layer_types[1] is chunked_attention", ENG_EUNSUPPORTED},
    {FAMILY("SmolLM3", KV ",\"no_rope_layers\":[1]"), "no_rope_layers must be a list", ENG_EINVAL},
    {FAMILY("SmolLM3", KV ",\"no_rope_layers\":[1,1,1,\"x\"]"), "no_rope_layers must hold",
     ENG_EINVAL},
    {FAMILY("SmolLM3", KV ",\"no_rope_layer_interval\":0"), "no_rope_layer_interval must",
     ENG_EINVAL},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(refusals); i++) {
        struct eng_hparams hp;
        char err[ERR_BYTES];
        int rc = parse(&hp, refusals[i].config, NULL, err);
        REQUIRE_MSG(rc == refusals[i].rc, "%s: rc %d, %s", refusals[i].config, rc, err);
        REQUIRE_MSG(strstr(err, refusals[i].says) && strncmp(err, "config.json: ", 13) == 0,
                    "%s: %s", refusals[i].config, err);
    }
}

static void test_generation_config(void **state)
{
    (void)state;
    struct eng_hparams hp;
    char err[ERR_BYTES];
    REQUIRE_EQ_INT(parse(&hp, LLAMA(""), "{\"eos_token_id\":100}", err), ENG_EINVAL);
    REQUIRE(strstr(err, "generation_config.json: eos_token_id"));
    REQUIRE_EQ_INT(parse(&hp, LLAMA(""), "nonsense", err), ENG_EINVAL);
    REQUIRE(strstr(err, "generation_config.json: line 1"));
}

/* ---- more families ------------------------------------------------------------------------- */

#define FOUR "\"num_hidden_layers\":4,\"vocab_size\":100"

/* Windows (as windows_of), layers with RoPE ('r', or 'l': by the local one), and sizes of heads. */
static void test_layers_of_families(void **state)
{
    (void)state;
    static const struct {
        const char *config, *windows, *ropes;
        int d_head, d_rot;
    } rows[] = {
        {"{\"model_type\":\"gemma2\",\"sliding_window\":5," FOUR "}", "5.5.", "rrrr", 256, 256},
        {"{\"model_type\":\"gemma3_text\",\"sliding_window\":5," FOUR "}", "5555", "llll", 256,
         256},
        {"{\"model_type\":\"gemma3_text\",\"sliding_window\":5,\"sliding_window_pattern\":2," FOUR
         "}",
         "5.5.", "lrlr", 256, 256},
        {"{\"model_type\":\"gemma3_text\",\"sliding_window\":5" TYPES "," FOUR "}", ".5.5", "rlrl",
         256, 256},
        {"{\"model_type\":\"gemma3\",\"text_config\":{\"sliding_window\":6," FOUR "}}", "6666",
         "llll", 256, 256},
        {"{\"model_type\":\"olmo3\",\"sliding_window\":5," FOUR "}", "555.", "lllr", 128, 128},
        {"{\"model_type\":\"exaone4\",\"sliding_window\":5," FOUR "}", "555.", "rrr.", 128, 128},
        {"{\"model_type\":\"exaone4\",\"sliding_window\":null," FOUR "}", "....", "rrrr", 128, 128},
        {"{\"model_type\":\"phi3\"," FOUR "}", "....", "rrrr", 96, 96},
        {"{\"model_type\":\"phi3\",\"sliding_window\":7,\"partial_rotary_factor\":0.75," FOUR "}",
         "7777", "rrrr", 96, 72},
        {"{\"model_type\":\"glm4\"," FOUR "}", "....", "rrrr", 128, 64},
        {"{\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0,\"layer_types\":["
         "\"attention\","
         "\"attention\",\"full_attention\",\"attention\"]," FOUR "}",
         "....", "....", 128, 128},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        char windows[5], ropes[5] = "....";
        struct eng_hparams hp = good(rows[i].config, NULL);
        windows_of(&hp, windows);
        for (int k = 0; k < 4; k++)
            if (hp.layer_rope[k])
                ropes[k] = hp.has_local_rope && hp.layer_window[k] > 0 ? 'l' : 'r';
        REQUIRE_MSG(strcmp(windows, rows[i].windows) == 0, "%s: %s", rows[i].config, windows);
        REQUIRE_MSG(strcmp(ropes, rows[i].ropes) == 0, "%s: %s", rows[i].config, ropes);
        REQUIRE_EQ_INT(hp.d_head, rows[i].d_head);
        REQUIRE_EQ_INT(hp.d_rot, rows[i].d_rot);
    }
}

static bool is_near(double a, double b)
{
    return a > b * 0.999999 && a < b * 1.000001;
}

static void test_factors(void **state)
{
    (void)state;
    struct eng_hparams hp = good("{\"model_type\":\"granite\"}", NULL);
    REQUIRE(hp.embed_scale == 1 && hp.residual_scale == 1 && hp.attn_scale == 1);
    hp =
        good("{\"model_type\":\"granite\",\"embedding_multiplier\":12,\"residual_multiplier\":0.22,"
             "\"attention_multiplier\":0.015625,\"logits_scaling\":8}",
             NULL);
    REQUIRE(hp.embed_scale == 12 && hp.residual_scale == 0.22 && hp.attn_scale == 0.015625 &&
            hp.logits_scaling == 8);
    hp = good("{\"model_type\":\"gemma2\"}", NULL);
    REQUIRE(hp.embed_scale == 48 && hp.attn_scale == 0.0625);
    REQUIRE(hp.attn_softcap == 50 && hp.logit_softcap == 30 && hp.act == KERN_ACT_GELU_TANH);
    hp = good("{\"model_type\":\"gemma2\",\"attn_logit_softcapping\":null,"
              "\"final_logit_softcapping\":null,\"query_pre_attn_scalar\":144}",
              NULL);
    REQUIRE(hp.attn_softcap == 0 && hp.logit_softcap == 0 && is_near(hp.attn_scale, 1 / 12.0));
    hp = good("{\"model_type\":\"gemma3_text\",\"attn_logit_softcapping\":50}", NULL);
    REQUIRE(hp.attn_softcap == 0 && hp.logit_softcap == 0);
    REQUIRE_EQ_INT(hp.eos.n, 1);
    hp = good("{\"model_type\":\"gemma3\",\"eos_token_id\":[1,106],\"text_config\":{}}", NULL);
    REQUIRE_EQ_INT(hp.eos.n, 2);
    hp = good("{\"model_type\":\"glm4\"}", NULL);
    REQUIRE(hp.rms_eps == 1.5625e-7 && hp.attn_bias_qkv && !hp.attn_bias_o && !hp.tied);
    hp = good("{\"model_type\":\"ernie4_5\",\"use_bias\":true}", NULL);
    REQUIRE(hp.attn_bias_qkv && hp.attn_bias_o && hp.mlp_bias && hp.tied);
    hp =
        good("{\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0,\"num_hidden_layers\":1,"
             "\"layer_types\":[\"attention\"],\"intermediate_size\":9,"
             "\"shared_intermediate_size\":77}",
             NULL);
    REQUIRE_EQ_INT(hp.d_ff, 77);
}

/* Experts: defaults, the layers that have them, and what is refused. */
static void test_experts(void **state)
{
    (void)state;
    struct eng_hparams hp = good("{\"model_type\":\"lfm2_moe\"}", NULL);
    REQUIRE(hp.n_experts == 32 && hp.n_chosen == 4 && hp.d_expert == 1792 && hp.d_shared == 0);
    REQUIRE(hp.d_ff == 7168 && hp.tied && !hp.layer_experts[1] && hp.layer_experts[2]);
    REQUIRE(hp.route_sigmoid && hp.route_bias && hp.route_renorm && hp.route_eps == 1e-6);
    hp = good("{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":6,\"mlp_only_layers\":[3],"
              "\"decoder_sparse_step\":2,\"num_local_experts\":16}",
              NULL);
    REQUIRE(hp.n_experts == 16 && hp.n_chosen == 8 && !hp.route_renorm && !hp.route_bias);
    REQUIRE(hp.layer_experts[1] && !hp.layer_experts[2] && !hp.layer_experts[3]);
    hp = good("{\"model_type\":\"olmoe\"}", NULL);
    REQUIRE(hp.n_experts == 64 && hp.d_expert == 2048 && hp.layer_experts[0] && !hp.route_renorm);
    REQUIRE(hp.qk_norm == ENG_QK_NORM_ROW && hp.route_scale == 1 && hp.route_floor == 0);
    hp = good("{\"model_type\":\"granitemoe\",\"intermediate_size\":512}", NULL);
    REQUIRE(hp.n_experts == 8 && hp.n_chosen == 2 && hp.d_expert == 512 && hp.route_renorm);
    hp = good("{\"model_type\":\"ernie4_5_moe\",\"moe_layer_end_index\":3}", NULL);
    REQUIRE(hp.d_shared == 3072 && hp.route_bias && hp.route_floor == 1e-12 && !hp.mlp_bias);
    REQUIRE(!hp.layer_experts[0] && hp.layer_experts[3] && !hp.layer_experts[4]);
    REQUIRE(!hp.shared_gate);
    hp = good("{\"model_type\":\"qwen3_5_moe_text\",\"shared_expert_intermediate_size\":48}", NULL);
    REQUIRE(hp.n_experts == 256 && hp.n_chosen == 8 && hp.d_expert == 512 && hp.d_shared == 48);
    REQUIRE(hp.shared_gate && hp.route_renorm && hp.layer_experts[0] && hp.attn_gate);
    static const struct {
        const char *config, *says;
    } refused[] = {
        {"{\"model_type\":\"lfm2_moe\",\"num_experts_per_tok\":33}", "within 1..32, it is 33"},
        {"{\"model_type\":\"qwen3_moe\",\"num_experts\":6}", "which means 8, of 6 experts"},
        {"{\"model_type\":\"lfm2_moe\",\"num_experts\":513}", "num_experts must be within 2..512"},
        {"{\"model_type\":\"qwen3_moe\",\"num_experts\":8,\"num_local_experts\":16}",
         "num_experts (8) and num_local_experts (16) differ"},
        {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":[24]}", "mlp_only_layers must hold"},
        {"{\"model_type\":\"qwen3_moe\",\"use_sliding_window\":true}", "use_sliding_window"},
        {"{\"model_type\":\"qwen3_moe\",\"hidden_act\":\"gelu\"}", "hidden_act gelu of experts"},
        {"{\"model_type\":\"qwen3_moe\",\"n_group\":2}", "n_group must be within 1..1"},
        {"{\"model_type\":\"olmoe\",\"clip_qkv\":8.0}", "clip_qkv"},
        {"{\"model_type\":\"olmoe\",\"intermediate_size\":524288}", "are not supported"},
        {"{\"model_type\":\"ernie4_5_moe\",\"use_bias\":true}", "use_bias"},
        {"{\"model_type\":\"ernie4_5_moe\",\"moe_num_experts\":[8,8]}", "moe_num_experts"},
        {"{\"model_type\":\"ernie4_5_moe\",\"moe_layer_end_index\":28}", "moe_layer_end_index"},
    };
    for (size_t i = 0; i < N_OF(refused); i++) {
        char err[ERR_BYTES];
        REQUIRE(parse(&hp, refused[i].config, NULL, err) < 0);
        REQUIRE_MSG(strstr(err, refused[i].says), "%s: %s", refused[i].config, err);
    }
}

#define GEMMA4(more) "{\"model_type\":\"gemma4_text\",\"num_hidden_layers\":6" more "}"
#define EXPERTS4(more)                                                                             \
    ",\"enable_moe_block\":true,\"num_experts\":6,\"moe_intermediate_size\":40" more
#define TYPES6                                                                                     \
    ",\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","            \
    "\"full_attention\",\"sliding_attention\",\"full_attention\"]"

/* Gemma 4: heads by the window of a layer, shared keys and values, per-layer embeddings. */
static void test_gemma4(void **state)
{
    (void)state;
    struct eng_hparams hp = good("{\"model_type\":\"gemma4_text\"}", NULL);
    REQUIRE(hp.d_head == 256 && hp.full.d_head == 512 && hp.n_kv_heads == 4 && hp.d_ple == 256);
    REQUIRE(hp.full.n_kv_heads == 4 && hp.full.d_rot == 128 && hp.d_rot == 256 && hp.tied);
    REQUIRE(hp.attn_scale == 1 && hp.embed_scale == 48 && hp.logit_softcap == 0 && hp.v_norm);
    REQUIRE(hp.rope.type == ENG_ROPE_PROPORTIONAL && hp.rope.theta == 1e6 && hp.pad_id == 0);
    REQUIRE(hp.local_rope.theta == 1e4 && hp.layer_window[0] == 512 && hp.layer_window[5] == 0);
    REQUIRE(hp.n_shared == 0 && hp.n_kv_layers == 30 && !hp.keys_are_values);
    hp = good(GEMMA4(",\"global_head_dim\":64,\"num_global_key_value_heads\":2,"
                     "\"num_kv_shared_layers\":3,\"use_double_wide_mlp\":true,"
                     "\"hidden_size_per_layer_input\":null,\"intermediate_size\":10" TYPES6),
              NULL);
    REQUIRE(hp.full.d_head == 64 && hp.full.n_kv_heads == 4 && hp.d_ple == 0); /* unless k is v */
    REQUIRE(hp.n_shared == 3 && hp.n_kv_layers == 3 && eng_layer_shares(&hp, 3));
    REQUIRE(eng_layer_d_ff(&hp, 2) == 10 && eng_layer_d_ff(&hp, 3) == 20);
    REQUIRE(eng_layer_d_head(&hp, 0) == 256 && eng_layer_d_head(&hp, 1) == 64);
    REQUIRE(eng_layer_pairs(&hp, 1) == 8 && eng_layer_apart(&hp, 1) == 32);
    REQUIRE(eng_layer_pairs(&hp, 0) == 128 && eng_layer_apart(&hp, 0) == 128);
    hp = good(GEMMA4(",\"per_layer_config\":{\"5\":{\"head_dim\":80,\"num_key_value_heads\":1}}"),
              NULL);
    REQUIRE(hp.full.d_head == 80 && hp.full.n_kv_heads == 1 && hp.n_experts == 0);
    hp = good(GEMMA4(EXPERTS4(",\"top_k_experts\":2")), NULL);
    REQUIRE(hp.n_experts == 6 && hp.n_chosen == 2 && hp.d_expert == 40 && hp.expert_norms);
    REQUIRE(hp.layer_experts[0] && hp.route_renorm && !hp.shared_gate && hp.d_shared == 0);
    hp = good("{\"architectures\":[\"Gemma4UnifiedForConditionalGeneration\"],"
              "\"image_token_id\":7,\"text_config\":{\"attention_k_eq_v\":true,"
              "\"num_global_key_value_heads\":2,\"use_bidirectional_attention\":\"vision\","
              "\"num_hidden_layers\":4}}",
              NULL);
    REQUIRE(hp.full.n_kv_heads == 2 && hp.keys_are_values && hp.d_ple == 0);
    REQUIRE(hp.layer_window[2] == 1024 && hp.layer_window[3] == 0 && hp.soft_ids[0] == 7);
    static const struct {
        const char *config, *says;
    } refused[] = {
        {GEMMA4(",\"num_kv_shared_layers\":6"), "num_kv_shared_layers must be within 0..5"},
        {GEMMA4(",\"num_kv_shared_layers\":5" TYPES6),
         "layer 1 of layer_types has none of its type"},
        {GEMMA4(",\"per_layer_config\":{\"x\":{}}"),
         "per_layer_config must hold objects of layers"},
        {GEMMA4(",\"per_layer_config\":{\"0\":{\"head_dim\":16}}"), "heads of layer 0 differ"},
        {GEMMA4(",\"per_layer_config\":{\"5\":{\"theta\":1}}"),
         "theta of layer 5 is not supported"},
        {GEMMA4(",\"global_head_dim\":33"), "heads of 33"},
        {GEMMA4(",\"enable_moe_block\":true"), "num_experts is missing"},
        {GEMMA4(",\"enable_moe_block\":1"), "enable_moe_block must be true or false"},
        {GEMMA4(EXPERTS4(",\"top_k_experts\":7")), "top_k_experts must be within 1..6, it is 7"},
        {GEMMA4(EXPERTS4("")), "top_k_experts is missing"},
        {GEMMA4(",\"num_experts\":6"), "num_experts: mixtures of experts are not supported"},
        {"{\"model_type\":\"gemma4_unified_text\",\"enable_moe_block\":true}",
         "enable_moe_block: mixtures"},
        {GEMMA4(",\"use_bidirectional_attention\":\"all\""), "use_bidirectional_attention"},
        {GEMMA4(",\"vocab_size_per_layer_input\":3"), "vocab_size_per_layer_input must be within"},
        {GEMMA4(",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"yarn\"}}"),
         "rope_type yarn is not supported; supported: proportional"},
        {GEMMA4(",\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","
                "\"full_attention\",\"full_attention\",\"sliding_attention\"]"),
         "layer_types must end with full_attention"},
    };
    for (size_t i = 0; i < N_OF(refused); i++) {
        char err[ERR_BYTES];
        REQUIRE(parse(&hp, refused[i].config, NULL, err) < 0);
        REQUIRE_MSG(strstr(err, refused[i].says), "%s: %s", refused[i].config, err);
    }
}

#define LONGROPE(type, more)                                                                       \
    "{\"model_type\":\"phi3\",\"hidden_size\":16,\"num_attention_heads\":4," FOUR                  \
    ",\"max_position_embeddings\":131072,\"original_max_position_embeddings\":4096,"               \
    "\"rope_scaling\":{\"type\":\"" type "\",\"short_factor\":[1,2],\"long_factor\":[3,4]" more    \
    "}}"

static void test_ropes_of_families(void **state)
{
    (void)state;
    static const char *const names[] = {LONGROPE("longrope", ""), LONGROPE("su", ""),
                                        LONGROPE("yarn", "")};
    for (size_t i = 0; i < N_OF(names); i++) {
        struct eng_hparams hp = good(names[i], NULL);
        REQUIRE(hp.rope.type == ENG_ROPE_LONGROPE && hp.rope.original_ctx == 4096);
        REQUIRE(is_near(hp.rope.attention_factor, 1.1902380714238083));
        REQUIRE(hp.rope.short_factors[1] == 2 && hp.rope.long_factors[0] == 3);
    }
    struct eng_hparams hp = good(LONGROPE("longrope", ",\"attention_factor\":1.5"), NULL);
    REQUIRE(hp.rope.attention_factor == 1.5);
    hp = good("{\"model_type\":\"hunyuan_v1_dense\",\"head_dim\":128,\"rope_scaling\":"
              "{\"type\":\"dynamic\",\"alpha\":1000,\"factor\":3}}",
              NULL);
    REQUIRE(hp.rope.type == ENG_ROPE_DEFAULT && hp.rope.theta > 1.11e7 && hp.rope.theta < 1.12e7);
    hp =
        good("{\"model_type\":\"gemma3_text\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":8}}",
             NULL);
    REQUIRE(hp.rope.type == ENG_ROPE_LINEAR && hp.rope.theta == 1e6);
    REQUIRE(hp.local_rope.type == ENG_ROPE_DEFAULT && hp.local_rope.theta == 1e4);
    hp = good(
        "{\"model_type\":\"gemma3_text\",\"rope_parameters\":{\"full_attention\":{\"rope_type\":"
        "\"linear\",\"factor\":4,\"rope_theta\":5e6},\"sliding_attention\":{\"rope_theta\":7}}}",
        NULL);
    REQUIRE(hp.rope.type == ENG_ROPE_LINEAR && hp.rope.theta == 5e6 && hp.local_rope.theta == 7);
}

static const struct {
    const char *config, *says;
    int rc;
} family_refusals[] = {
    {"{\"model_type\":\"gemma3\"}", "text_config is missing", ENG_EINVAL},
    {"{\"model_type\":\"gemma3\",\"text_config\":[]}", "text_config must be an object", ENG_EINVAL},
    {"{\"model_type\":\"gemma3_text\",\"use_bidirectional_attention\":true}",
     "use_bidirectional_attention: bidirectional attention", ENG_EUNSUPPORTED},
    {"{\"model_type\":\"qwen2\",\"is_causal\":false}",
     "is_causal is false: bidirectional attention", ENG_EUNSUPPORTED},
    {"{\"model_type\":\"gemma3_text\",\"hidden_activation\":\"relu2\"}",
     "hidden_activation relu2 is not supported; supported: silu, gelu, gelu_pytorch_tanh",
     ENG_EUNSUPPORTED},
    {"{\"model_type\":\"gemma3_text\",\"query_pre_attn_scalar\":0}", "query_pre_attn_scalar must",
     ENG_EINVAL},
    {"{\"model_type\":\"gemma3_text\",\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":"
     "\"yarn\"}}}",
     "sliding_attention has rope_type yarn; supported there: default", ENG_EUNSUPPORTED},
    {"{\"model_type\":\"gemma3_text\",\"rope_parameters\":{\"chunked_attention\":{}}}",
     "chunked_attention: RoPE that differs", ENG_EUNSUPPORTED},
    {"{\"model_type\":\"gemma3_text\",\"sliding_window_pattern\":0}", "sliding_window_pattern must",
     ENG_EINVAL},
    {"{\"model_type\":\"granitemoehybrid\",\"layer_types\":[]}", "num_local_experts is missing",
     ENG_EINVAL},
    {"{\"model_type\":\"granitemoehybrid\",\"num_local_experts\":64}",
     "num_local_experts: mixtures", ENG_EUNSUPPORTED},
    {"{\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0}", "layer_types is missing",
     ENG_EUNSUPPORTED},
    {"{\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0," FOUR
     ",\"layer_types\":[\"attention\",\"mamba\",\"mamba\",\"attention\"]}",
     "layer_types[1] is mamba; supported: attention", ENG_EUNSUPPORTED},
    {"{\"model_type\":\"granite\",\"residual_multiplier\":0}", "residual_multiplier must",
     ENG_EINVAL},
    {"{\"model_type\":\"phi3\",\"rope_scaling\":{\"type\":\"llama3\"}}",
     "rope_type llama3 is not supported; supported: default, longrope", ENG_EUNSUPPORTED},
    {LONGROPE("longrope", ",\"short_factor\":[1]"), "comes twice", ENG_EINVAL},
    {"{\"model_type\":\"phi3\",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1]}}",
     "short_factor must be a list of 48 numbers", ENG_EINVAL},
    {"{\"model_type\":\"phi3\",\"hidden_size\":128,\"rope_scaling\":{\"type\":\"longrope\","
     "\"short_factor\":[1,\"x\"]}}",
     "short_factor[1] must be within", ENG_EINVAL},
    {"{\"model_type\":\"phi3\",\"partial_rotary_factor\":0.01}", "must give an even number",
     ENG_EUNSUPPORTED},
    {"{\"model_type\":\"olmo3\",\"rope_theta\":10000}", "OLMo 3 is supported with 500000 only",
     ENG_EUNSUPPORTED},
    {"{\"model_type\":\"gemma3n\"}", "model_type gemma3n is not supported", ENG_EUNSUPPORTED},
};

static void test_family_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(family_refusals); i++) {
        struct eng_hparams hp;
        char err[ERR_BYTES];
        int rc = parse(&hp, family_refusals[i].config, NULL, err);
        REQUIRE_MSG(rc == family_refusals[i].rc, "%s: rc %d, %s", family_refusals[i].config, rc,
                    err);
        REQUIRE_MSG(strstr(err, family_refusals[i].says), "%s: %s", family_refusals[i].config, err);
    }
}

/* ---- every setting of a family is known ---------------------------------------------------- */

static char looked_up[1 << 14];

json_t *__real_json_object_get(const json_t *object, const char *key);
json_t *__wrap_json_object_get(const json_t *object, const char *key);

json_t *__wrap_json_object_get(const json_t *object, const char *key)
{
    size_t n = strlen(looked_up);
    if (n + strlen(key) + 3 < sizeof(looked_up))
        snprintf(looked_up + n, sizeof(looked_up) - n, " %s ", key);
    return __real_json_object_get(object, key);
}

/* Settings of configuration classes that change no logits, with those of training and of tools. */
static const char ignored[] =
    " _name_or_path architectures attention_dropout bos_token_id chunk_size_feed_forward dtype "
    "embd_pdrop id2label "
    "initializer_range label2id model_type output_attentions output_hidden_states pad_token_id "
    "problem_type resid_pdrop return_dict transformers_version use_cache "
    /* Gemma 3: only informative; read by the reference without effect */
    "_sliding_window_pattern attn_logit_softcapping "
    /* Hunyuan: not used by the reference's model */
    "eod_token_id "
    /* Qwen3.5: images, videos and the layer that predicts a second token, whose tensors are left
     * alone; what the reference's model does not use: delta nets compute in float32 whatever
     * mamba_ssm_dtype says, and without a gate q_proj has another shape, which is refused */
    "image_token_id video_token_id vision_config vision_end_token_id vision_start_token_id "
    "attn_output_gate mamba_ssm_dtype mlp_only_layers mtp_num_hidden_layers "
    "mtp_use_dedicated_embeddings mrope_interleaved mrope_section "
    /* LFM2: of training, and names that the reference's class does not have */
    "block_dim block_mlp_init_scale block_norm_eps block_out_init_scale block_use_swiglu "
    "block_use_xavier_init conv_dim conv_dim_out conv_use_xavier_init num_heads theta use_pos_enc "
    /* Granite 4: of experts and recurrent layers, which are refused */
    "intermediate_size mamba_chunk_size mamba_conv_bias mamba_d_conv mamba_d_head mamba_d_state "
    "mamba_expand mamba_n_groups mamba_n_heads mamba_proj_bias num_experts_per_tok "
    "output_router_logits router_aux_loss_coef time_step_limit "
    /* Mixtures: of training, and a window that is refused if it is used */
    "moe_capacity moe_gate moe_use_aux_free num_nextn_predict_layers max_window_layers "
    "sliding_window "
    /* Gemma 4: of experts, which are refused */
    "moe_intermediate_size top_k_experts ";

static const struct {
    const char *model_type, *keys;
} family_keys[] = {
#include "family_keys.inc"
    /* in published files, besides those of the class */
    {"lfm2", "block_dim block_ff_dim block_mlp_init_scale block_norm_eps block_out_init_scale "
             "block_use_swiglu block_use_xavier_init conv_dim conv_dim_out conv_use_xavier_init "
             "num_heads rope_theta tie_embedding theta use_pos_enc "},
    {"qwen3_moe", "max_window_layers num_experts "},
    {"ernie4_5_moe", "moe_capacity moe_gate moe_use_aux_free num_nextn_predict_layers "},
    {"qwen3_5_text",
     "attn_output_gate mamba_ssm_dtype mlp_only_layers mrope_interleaved mrope_section "
     "mtp_num_hidden_layers mtp_use_dedicated_embeddings per_layer_config rope_theta "},
};

static bool holds(const char *list, const char *key, size_t len)
{
    char word[128];
    snprintf(word, sizeof(word), " %.*s ", (int)len, key);
    return strstr(list, word) != NULL;
}

/* Settings of encoders, by their own names, and what is refused of them. */
static void test_encoders(void **state)
{
    (void)state;
    struct eng_hparams hp = good("{\"architectures\":[\"BertForMaskedLM\"]}", NULL);
    REQUIRE(hp.encoder && hp.post_norms && hp.ungated && hp.norm_bias && hp.mlp_bias);
    REQUIRE(hp.task == ENG_TASK_STATES && hp.act == KERN_ACT_GELU && hp.rms_eps == 1e-12);
    REQUIRE(hp.ctx_max == 512 && hp.n_positions == 512 && hp.first_position == 0);
    REQUIRE(hp.n_types == 2 && hp.d_rot == 0 && !hp.layer_rope[0] && hp.n_kv_heads == 12);
    hp = good("{\"model_type\":\"xlm-roberta\",\"max_position_embeddings\":514,"
              "\"type_vocab_size\":1,\"layer_norm_eps\":1e-5}",
              NULL);
    REQUIRE(hp.ctx_max == 512 && hp.first_position == 2 && hp.pad_id == 1 && hp.n_types == 1);
    REQUIRE(hp.rms_eps == 1e-5);
    hp = good("{\"model_type\":\"mpnet\"}", NULL);
    REQUIRE(hp.n_distances == 32 && hp.n_types == 0);
    hp = good("{\"model_type\":\"distilbert\",\"dim\":24,\"n_heads\":3,\"n_layers\":5,"
              "\"hidden_dim\":40,\"activation\":\"gelu_new\"}",
              NULL);
    REQUIRE(hp.d_model == 24 && hp.n_heads == 3 && hp.n_layers == 5 && hp.d_ff == 40);
    REQUIRE(hp.act == KERN_ACT_GELU_TANH);
    hp = good("{\"model_type\":\"nomic_bert\",\"n_embd\":64,\"n_head\":4,\"n_inner\":96,"
              "\"rotary_emb_base\":500,\"activation_function\":\"swiglu\"}",
              NULL);
    REQUIRE(hp.d_model == 64 && hp.d_ff == 96 && !hp.ungated && hp.act == KERN_ACT_SILU);
    REQUIRE(hp.rope.theta == 500 && hp.layer_rope[0] && hp.d_rot == 16 && hp.n_positions == 0);
    hp = good("{\"architectures\":[\"ModernBertForSequenceClassification\"],"
              "\"classifier_pooling\":\"mean\",\"local_attention\":16,\"norm_eps\":1e-4}",
              NULL);
    REQUIRE(hp.task == ENG_TASK_LABELS && hp.labels_of_mean && !hp.post_norms && !hp.norm_bias);
    REQUIRE(hp.layer_window[0] == 0 && hp.layer_window[1] == 8 && hp.layer_window[3] == 0);
    REQUIRE(hp.rope.theta == 160000 && hp.local_rope.theta == 10000 && hp.rms_eps == 1e-4);
    static const struct {
        const char *config, *says;
    } refused[] = {
        {"{\"model_type\":\"bert\",\"position_embedding_type\":\"relative_key\"}",
         "position_embedding_type relative_key"},
        {"{\"model_type\":\"bert\",\"is_decoder\":true}", "is_decoder"},
        {"{\"model_type\":\"bert\",\"hidden_act\":\"relu\"}", "hidden_act relu"},
        {"{\"model_type\":\"roberta\",\"max_position_embeddings\":2}", "above pad_token_id"},
        {"{\"model_type\":\"mpnet\",\"relative_attention_num_buckets\":30}", "must divide by 4"},
        {"{\"model_type\":\"nomic_bert\",\"prenorm\":true}", "prenorm"},
        {"{\"model_type\":\"nomic_bert\",\"rotary_emb_fraction\":0.5}", "rotary_emb_fraction"},
        {"{\"model_type\":\"modernbert\",\"norm_bias\":true}", "norm_bias"},
        {"{\"architectures\":[\"ModernBertForSequenceClassification\"],"
         "\"classifier_pooling\":\"max\"}",
         "classifier_pooling max"},
        {"{\"architectures\":[\"NomicBertForSequenceClassification\"]}", "is not supported"},
    };
    for (size_t i = 0; i < N_OF(refused); i++) {
        char err[ERR_BYTES] = "";
        struct eng_report r = {.err = err, .errlen = sizeof(err)};
        REQUIRE(eng_config_parse(&hp, refused[i].config, strlen(refused[i].config), NULL, 0, &r));
        REQUIRE_MSG(strstr(err, refused[i].says), "%zu: %s", i, err);
    }
}

/* Layers that are convolutions, by either list; the feed-forward size by its rule. */
static void test_short_convolutions(void **state)
{
    (void)state;
    struct eng_hparams hp = good("{\"model_type\":\"lfm2\"}", NULL);
    REQUIRE(hp.n_kv_layers == 32 && hp.layer_mixer[0] == ENG_ATTENTION && hp.n_taps == 3);
    REQUIRE(hp.d_ff == 8192 && hp.tied && !hp.conv_bias && hp.rms_eps == 1e-5);
    hp = good("{\"model_type\":\"lfm2\",\"num_hidden_layers\":4,\"full_attn_idxs\":[2],"
              "\"block_ff_dim\":6656,\"tie_embedding\":false,\"conv_L_cache\":4,"
              "\"conv_bias\":true,\"norm_eps\":1e-3,\"intermediate_size\":7}",
              NULL);
    REQUIRE(hp.n_kv_layers == 1 && hp.layer_mixer[2] == ENG_ATTENTION);
    REQUIRE(hp.layer_mixer[0] == ENG_CONV && hp.layer_mixer[3] == ENG_CONV && hp.conv_bias);
    REQUIRE(hp.d_ff == 4608 && !hp.tied && hp.n_taps == 4 && hp.rms_eps == 1e-3);
    static const struct {
        const char *config;
        int d_ff;
    } sizes[] = {
        {"\"intermediate_size\":100,\"block_auto_adjust_ff_dim\":false", 100},
        {"\"intermediate_size\":100,\"block_ffn_dim_multiplier\":null", 66},
        {"\"intermediate_size\":100,\"block_multiple_of\":8", 72},
        {"\"intermediate_size\":96,\"block_multiple_of\":64", 64},
        {"\"intermediate_size\":109,\"block_multiple_of\":1,\"block_ffn_dim_multiplier\":0.9", 64},
    };
    for (size_t i = 0; i < N_OF(sizes); i++) {
        char config[256];
        snprintf(config, sizeof(config), "{\"model_type\":\"lfm2\",%s}", sizes[i].config);
        REQUIRE_EQ_INT(good(config, NULL).d_ff, sizes[i].d_ff);
    }
    hp = good("{\"model_type\":\"lfm2\",\"num_hidden_layers\":2,\"full_attn_idxs\":[0],"
              "\"layer_types\":[\"conv\",\"full_attention\"]}",
              NULL);
    REQUIRE(hp.layer_mixer[0] == ENG_CONV && hp.layer_mixer[1] == ENG_ATTENTION);
    static const struct {
        const char *config, *says;
    } refused[] = {
        {"\"layer_types\":[\"full_attention\",\"mamba\"]", "layer_types[1] is mamba; supported"},
        {"\"layer_types\":[\"conv\",\"conv\"]", "none of the layers is full_attention"},
        {"\"layer_types\":[\"conv\"]", "one string per layer"},
        {"\"full_attn_idxs\":3", "full_attn_idxs must be a list"},
        {"\"full_attn_idxs\":[\"1\",0]", "full_attn_idxs must hold integers"},
        {"\"conv_L_cache\":9", "conv_L_cache must be within 2..8, it is 9"},
        {"\"intermediate_size\":1", "must be within 1..1048576, it is 0"},
        {"\"intermediate_size\":1000000,\"block_ffn_dim_multiplier\":2", "it is 1333504"},
    };
    for (size_t i = 0; i < N_OF(refused); i++) {
        char config[256], err[ERR_BYTES];
        snprintf(config, sizeof(config), "{\"model_type\":\"lfm2\",\"num_hidden_layers\":2,%s}",
                 refused[i].config);
        parse(&hp, config, NULL, err);
        REQUIRE_MSG(strstr(err, refused[i].says), "%zu: %s", i, err);
    }
}

/* Delta nets, by the list or every n-th layer but one; in an object of its own too. */
static void test_delta_nets(void **state)
{
    (void)state;
    struct eng_hparams hp = good("{\"model_type\":\"qwen3_5_text\"}", NULL);
    REQUIRE(hp.n_kv_layers == 8 && hp.layer_mixer[0] == ENG_DELTA && hp.attn_gate);
    REQUIRE(hp.layer_mixer[3] == ENG_ATTENTION && hp.layer_mixer[31] == ENG_ATTENTION);
    REQUIRE(hp.n_taps == 4 && hp.n_delta_keys == 16 && hp.n_delta_values == 32);
    REQUIRE(hp.d_delta_key == 128 && hp.d_delta_value == 128 && hp.d_rot == 64 && !hp.tied);
    hp = good("{\"architectures\":[\"Qwen3_5ForConditionalGeneration\"],"
              "\"tie_word_embeddings\":true,\"eos_token_id\":7,\"text_config\":{"
              "\"num_hidden_layers\":3,\"full_attention_interval\":2,\"linear_key_head_dim\":24,"
              "\"linear_value_head_dim\":40,\"linear_num_key_heads\":3,"
              "\"linear_num_value_heads\":9,\"linear_conv_kernel_dim\":2,"
              "\"rope_parameters\":{\"partial_rotary_factor\":0.5,\"mrope_section\":[1,1,2]}}}",
              NULL);
    REQUIRE(hp.n_kv_layers == 1 && hp.layer_mixer[1] == ENG_ATTENTION && hp.n_taps == 2);
    REQUIRE(hp.layer_mixer[2] == ENG_DELTA && hp.n_delta_keys == 3 && hp.n_delta_values == 9);
    REQUIRE(hp.d_delta_key == 24 && hp.d_delta_value == 40 && hp.d_rot == 128);
    REQUIRE(hp.tied && hp.eos.n == 1 && hp.eos.ids[0] == 7);
    static const struct {
        const char *config, *says;
    } refused[] = {
        {"\"layer_types\":[\"full_attention\",\"conv\",\"conv\",\"conv\"]",
         "layer_types[1] is conv; supported: full_attention, linear_attention"},
        {"\"full_attention_interval\":5", "none of the layers is full_attention"},
        {"\"linear_num_key_heads\":5", "linear_num_value_heads (32) is not a multiple"},
        {"\"linear_key_head_dim\":0", "linear_key_head_dim must be within 1..1024, it is 0"},
        {"\"linear_conv_kernel_dim\":1", "linear_conv_kernel_dim must be within 2..8, it is 1"},
    };
    for (size_t i = 0; i < N_OF(refused); i++) {
        char config[256], err[ERR_BYTES];
        snprintf(config, sizeof(config),
                 "{\"model_type\":\"qwen3_5_text\",\"num_hidden_layers\":4,%s}", refused[i].config);
        parse(&hp, config, NULL, err);
        REQUIRE_MSG(strstr(err, refused[i].says), "%zu: %s", i, err);
    }
}

/* The task of a model, by the name of its architecture. */
static void test_tasks(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        enum eng_task task;
        int n_labels;
        int32_t pad_id;
    } cases[] = {
        {"{\"architectures\":[\"Qwen3ForCausalLM\"]}", ENG_TASK_TOKENS, 0, -1},
        {"{\"model_type\":\"qwen3\"}", ENG_TASK_TOKENS, 0, -1},
        {"{\"architectures\":[\"Qwen3Model\"],\"tie_word_embeddings\":true}", ENG_TASK_STATES, 0,
         -1},
        {"{\"architectures\":[\"Gemma3TextModel\"]}", ENG_TASK_STATES, 0, -1},
        {"{\"architectures\":[\"MistralForSequenceClassification\"]}", ENG_TASK_LABELS, 2, -1},
        {"{\"architectures\":[\"LlamaForSequenceClassification\"],\"pad_token_id\":7,"
         "\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"}}",
         ENG_TASK_LABELS, 3, 7},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct eng_hparams hp;
        char err[ERR_BYTES], refusal[ERR_BYTES] = ""; /* a model of any task can be fetched */
        parse(&hp, cases[i].config, NULL, err);
        REQUIRE_MSG(err[0] == '\0', "%s", err);
        REQUIRE(hp.task == cases[i].task && hp.n_labels == cases[i].n_labels);
        REQUIRE(hp.pad_id == cases[i].pad_id);
        REQUIRE(hp.task == ENG_TASK_TOKENS || !hp.tied);
        REQUIRE_EQ_INT(
            eng_check_config(cases[i].config, strlen(cases[i].config), refusal, ERR_BYTES), 0);
    }
}

/* Every setting that the reference's class has is read, refused by its name, or ignored on purpose. */
static void test_settings_are_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(family_keys); i++) {
        static const char *const layers[] = {"", ",\"layer_types\":[\"full_attention\"]"};
        char config[256], err[ERR_BYTES];
        looked_up[0] = '\0';
        for (int k = 0; k < 2; k++) {
            struct eng_hparams hp;
            snprintf(config, sizeof(config),
                     "{\"model_type\":\"%s\",\"num_local_experts\":0,\"use_sliding_window\":true,"
                     "\"num_hidden_layers\":1,\"text_config\":{},"
                     "\"rope_parameters\":{\"type\":\"yarn\",\"factor\":2}%s}",
                     family_keys[i].model_type, layers[k]);
            parse(&hp, config, NULL, err);
        }
        for (const char *key = family_keys[i].keys; *key; key += strcspn(key, " ") + 1) {
            size_t len = strcspn(key, " ");
            REQUIRE_MSG(holds(looked_up, key, len) || holds(ignored, key, len),
                        "%s: %.*s is neither read nor ignored on purpose",
                        family_keys[i].model_type, (int)len, key);
        }
    }
    REQUIRE(N_OF(family_keys) >= 15);
}

static void count_problem(void *ctx, const char *sentence)
{
    int *n = ctx;
    REQUIRE(*sentence && !strchr(sentence, '\n'));
    ++*n;
}

/* A listing gets every problem; names from the file cannot break its lines. */
static void test_all_problems(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\":\"llama\",\"hidden_size\":0,\"vocab_size\":0,\"hidden_act\":\"a\\nb\"}";
    int n = 0;
    char err[ERR_BYTES] = "";
    struct eng_report r = {.err = err, .errlen = sizeof(err), .problem = count_problem, .ctx = &n};
    struct eng_hparams hp;
    REQUIRE(eng_config_parse(&hp, config, strlen(config), NULL, 0, &r) < 0);
    REQUIRE_MSG(n >= 3 && n == r.n_problems, "%d problems", n);
    REQUIRE_MSG(strstr(err, "hidden_act a\\x"), "%s", err);
}

static void test_config_hash(void **state)
{
    (void)state;
    struct eng_hparams a = good(LLAMA(""), NULL), b = good(LLAMA(" "), NULL);
    struct eng_hparams c = good(LLAMA(""), "{}"), d = good(LLAMA(""), NULL);
    REQUIRE(memcmp(a.config_hash, b.config_hash, sizeof(a.config_hash)) != 0);
    REQUIRE(memcmp(a.config_hash, c.config_hash, sizeof(a.config_hash)) != 0);
    REQUIRE(memcmp(a.config_hash, d.config_hash, sizeof(a.config_hash)) == 0);
}

/* A small text that would become a very large tree. */
static void test_json_values(void **state)
{
    (void)state;
    enum { N = 1000001 };
    char *text = malloc(2 * N + 16), err[256] = "";
    REQUIRE(text);
    size_t len = 0;
    memcpy(text, "{\"a\":[0", 7);
    len = 7;
    for (int i = 0; i < N; i++, len += 2)
        memcpy(text + len, ",0", 2);
    memcpy(text + len, "]}", 2);
    json_t *root = NULL;
    REQUIRE_EQ_INT(eng_json_parse(&root, text, len + 2, "f", err, sizeof(err)), ENG_EINVAL);
    REQUIRE_MSG(strstr(err, "more than 1000000 values"), "%s", err);
    REQUIRE(root == NULL);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_defaults),
        cmocka_unit_test(test_family_defaults),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_biases),
        cmocka_unit_test(test_rope_spellings),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_nope),
        cmocka_unit_test(test_token_ids),
        cmocka_unit_test(test_ignored),
        cmocka_unit_test(test_layers_of_families),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_gemma4),
        cmocka_unit_test(test_ropes_of_families),
        cmocka_unit_test(test_family_refusals),
        cmocka_unit_test(test_short_convolutions),
        cmocka_unit_test(test_delta_nets),
        cmocka_unit_test(test_tasks),
        cmocka_unit_test(test_encoders),
        cmocka_unit_test(test_settings_are_known),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_generation_config),
        cmocka_unit_test(test_all_problems),
        cmocka_unit_test(test_config_hash),
        cmocka_unit_test(test_json_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
