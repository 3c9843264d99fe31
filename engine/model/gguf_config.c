/* SPDX-License-Identifier: MIT */
/*
 * The keys of a GGUF file as the text of a config.json, for config.c to check and read. Where a key
 * is missing, the default is that of the programs these files are made for.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/gguf.h"
#include "base/json_writer.h"
#include "engine/eng_error.h"
#include "engine/model/family.h"
#include "engine/model/weights.h"

enum { ERR_BYTES = 512, KEY_BYTES = 128, MAX_SIZE = 1 << 20, MAX_HEADS = 4096, MAX_CTX = 1 << 28 };

/* One translation. */
struct reading {
    const struct gguf *g;
    const struct eng_weights *weights;
    const struct eng_gguf *arch;
    struct jw w;
    struct eng_report *report;
    char err[ERR_BYTES];
    int64_t n_layers, n_heads, vocab;
};

/* ---- keys ---------------------------------------------------------------------------------- */

/* A problem of a key of the architecture, whose name begins the format. */
#define REPORT(rd, rc, format, ...)                                                                \
    eng_report_problem((rd)->report, rc, "%s: key %s." format, (rd)->g->name, (rd)->arch->name,    \
                       __VA_ARGS__)

static const char *key_name(const struct reading *rd, const char *name, char buf[KEY_BYTES])
{
    snprintf(buf, KEY_BYTES, "%s.%s", rd->arch->name, name);
    return buf;
}

/* The getters of gguf.h, whose errors go to the report: true if there is a value. */
static bool found(struct reading *rd, int rc)
{
    if (rc < 0) eng_report_problem(rd->report, rc, "%s", rd->err);
    return rc > 0;
}

static bool get_int(struct reading *rd, const char *name, int64_t min, int64_t max, int64_t *ret)
{
    char key[KEY_BYTES];
    return found(rd, gguf_int(rd->g, key_name(rd, name, key), min, max, ret, rd->err, ERR_BYTES));
}

static bool get_number(struct reading *rd, const char *name, double *ret)
{
    char key[KEY_BYTES];
    return found(rd, gguf_number(rd->g, key_name(rd, name, key), ret, rd->err, ERR_BYTES));
}

static void missing(struct reading *rd, const char *name)
{
    REPORT(rd, ENG_EINVAL, "%s is missing", name);
}

static bool has_key(const struct reading *rd, const char *name)
{
    char key[KEY_BYTES];
    return gguf_find(rd->g, key_name(rd, name, key)) != NULL;
}

static bool need_int(struct reading *rd, const char *name, int64_t max, int64_t *ret)
{
    if (!has_key(rd, name)) missing(rd, name);
    return get_int(rd, name, 1, max, ret);
}

/* Keys and settings of one meaning. A family does not look at those of others. */
static const struct {
    const char *key, *setting;
    int64_t max; /* integers from 1 on; 0: a number */
    bool required;
} settings[] = {
    {"context_length", "max_position_embeddings", MAX_CTX, true},
    {"embedding_length", "hidden_size", MAX_SIZE, true},
    {"feed_forward_length", "intermediate_size", MAX_SIZE, true},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", 0, true},
    {"attn_logit_softcapping", "attn_logit_softcapping", 0, false},
    {"final_logit_softcapping", "final_logit_softcapping", 0, false},
    {"rope.freq_base_swa", "rope_local_base_freq", 0, false},
    {"embedding_scale", "embedding_multiplier", 0, false},
    {"residual_scale", "residual_multiplier", 0, false},
    {"logit_scale", "logits_scaling", 0, false},
    {"shortconv.l_cache", "conv_L_cache", ENG_MAX_TAPS, false},
    {"ssm.conv_kernel", "linear_conv_kernel_dim", ENG_MAX_TAPS, false},
    {"ssm.state_size", "linear_key_head_dim", ENG_MAX_HEAD_DIM, false},
    {"ssm.group_count", "linear_num_key_heads", MAX_HEADS, false},
    {"ssm.time_step_rank", "linear_num_value_heads", MAX_HEADS, false},
    {"full_attention_interval", "full_attention_interval", ENG_MAX_LAYERS, false},
    {"expert_group_count", "n_group", ENG_MAX_EXPERTS, false},
    {"attention.clamp_kqv", "clip_qkv", 0, false},
};

/* An array with an element for each layer: NULL if the key is none. */
static const struct gguf_key *get_per_layer(struct reading *rd, const char *name,
                                            enum gguf_type kind)
{
    char full[KEY_BYTES];
    const struct gguf_key *key = gguf_find(rd->g, key_name(rd, name, full));
    if (!key || !key->is_array) return NULL;
    if (!found(rd, gguf_array(rd->g, full, kind, &key, rd->err, ERR_BYTES))) return NULL;
    if (key->n >= (size_t)rd->n_layers) return key;
    eng_report_problem(rd->report, ENG_EINVAL, "%s: key %s has %zu elements for %lld layers",
                       rd->g->name, full, key->n, (long long)rd->n_layers);
    return NULL;
}

/* Layers that share keys and values may be twice as wide. Returns false if the size is one key. */
static bool read_widths(struct reading *rd, const char *name, const char *setting)
{
    const struct gguf_key *list = get_per_layer(rd, name, GGUF_I64);
    int64_t shared = 0;
    if (!list || !rd->arch->full_heads) return false;
    get_int(rd, "attention.shared_kv_layers", 0, rd->n_layers, &shared);
    int64_t n = gguf_int_at(list, 0), last = gguf_int_at(list, (size_t)rd->n_layers - 1);
    for (int64_t i = 0; i < rd->n_layers; i++) {
        int64_t own = gguf_int_at(list, (size_t)i), want = i >= rd->n_layers - shared ? last : n;
        if (own == want && (last == n || last == 2 * n) && n > 0 && n <= MAX_SIZE) continue;
        REPORT(rd, ENG_EUNSUPPORTED, "%s: %lld of layer %lld is not supported", name,
               (long long)own, (long long)i);
        break;
    }
    jw_int(&rd->w, setting, n);
    jw_bool(&rd->w, "use_double_wide_mlp", last != n);
    return true;
}

static void copy_settings(struct reading *rd)
{
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        int64_t n;
        double x;
        if (strcmp(settings[i].key, "feed_forward_length") == 0 &&
            read_widths(rd, settings[i].key, settings[i].setting))
            continue;
        if (settings[i].required && !has_key(rd, settings[i].key)) missing(rd, settings[i].key);
        if (settings[i].max > 0 && get_int(rd, settings[i].key, 1, settings[i].max, &n))
            jw_int(&rd->w, settings[i].setting, n);
        if (settings[i].max == 0 && get_number(rd, settings[i].key, &x))
            jw_number(&rd->w, settings[i].setting, x);
    }
}

/* ---- layers and heads ---------------------------------------------------------------------- */

static void write_types(struct reading *rd, const struct gguf_key *flags, const char *set,
                        const char *unset)
{
    jw_open(&rd->w, "layer_types", '[');
    for (int64_t i = 0; i < rd->n_layers; i++)
        jw_text(&rd->w, NULL, gguf_int_at(flags, (size_t)i) != 0 ? set : unset);
    jw_close(&rd->w);
}

static void read_kv_heads(struct reading *rd)
{
    static const char name[] = "attention.head_count_kv";
    const struct gguf_key *list = get_per_layer(rd, name, GGUF_I64);
    int64_t n = rd->n_heads;
    if (!list) {
        get_int(rd, name, 1, MAX_HEADS, &n);
    } else {
        for (int64_t i = 0; i < rd->n_layers; i++) {
            int64_t own = gguf_int_at(list, (size_t)i);
            if (own == 0) continue;
            if ((n != rd->n_heads && own != n) || own < 0 || own > MAX_HEADS)
                REPORT(rd, ENG_EUNSUPPORTED, "%s: %lld differs from other layers", name,
                       (long long)own);
            n = own;
        }
        write_types(rd, list, "full_attention", "conv");
    }
    jw_int(&rd->w, "num_key_value_heads", n);
}

/* The size of a head, and how many of its dimensions turn. */
static void read_head_dim(struct reading *rd)
{
    int64_t width = 0, head = 0, value = 0, turned = 0;
    get_int(rd, "embedding_length", 1, MAX_SIZE, &width);
    bool given = get_int(rd, "attention.key_length", 1, ENG_MAX_HEAD_DIM, &head);
    if (!given && width % rd->n_heads == 0) head = width / rd->n_heads;
    if (head == 0) {
        missing(rd, "attention.key_length");
        return;
    }
    jw_int(&rd->w, "head_dim", head);
    if (get_int(rd, "attention.value_length", 1, ENG_MAX_HEAD_DIM, &value) && value != head)
        REPORT(rd, ENG_EUNSUPPORTED,
               "attention.value_length is %lld, that of keys %lld: heads that differ are not "
               "supported",
               (long long)value, (long long)head);
    bool partial = get_int(rd, "rope.dimension_count", 2, head, &turned) && turned < head;
    /* a quarter more, so that the product with the head's size is not rounded below the number */
    jw_number(&rd->w, "partial_rotary_factor",
              partial ? ((double)turned + 0.25) / (double)head : 1);
    jw_number(&rd->w, "query_pre_attn_scalar", (double)head);
    double scale = 0;
    get_number(rd, "attention.scale", &scale);
    jw_number(&rd->w, "attention_multiplier", scale != 0 ? scale : 1 / sqrt((double)head));
    int64_t inner, n_values;
    if (get_int(rd, "ssm.inner_size", 1, MAX_SIZE, &inner) &&
        get_int(rd, "ssm.time_step_rank", 1, MAX_HEADS, &n_values))
        jw_int(&rd->w, "linear_value_head_dim", inner / n_values);
}

/* Returns true if the model has a sliding window. */
static bool read_window(struct reading *rd)
{
    static const char pattern[] = "attention.sliding_window_pattern";
    int64_t window = 0, period = 0;
    get_int(rd, "attention.sliding_window", 0, INT32_MAX, &window);
    if (window > 0)
        jw_int(&rd->w, "sliding_window", window);
    else if (!rd->arch->keeps_window)
        jw_null(&rd->w, "sliding_window");
    const struct gguf_key *list = get_per_layer(rd, pattern, GGUF_BOOL);
    if (list && window > 0)
        write_types(rd, list, "sliding_attention", "full_attention");
    else if (!list && has_key(rd, pattern) && get_int(rd, pattern, 1, ENG_MAX_LAYERS, &period))
        jw_int(&rd->w, "sliding_window_pattern", period);
    return window > 0;
}

/* ---- tensors ------------------------------------------------------------------------------- */

static const struct eng_tensor *find_tensor(const struct reading *rd, const char *file_name)
{
    for (size_t i = 0; i < rd->weights->n_tensors; i++)
        if (strcmp(rd->weights->by_name[i]->file_name, file_name) == 0)
            return rd->weights->by_name[i];
    return NULL;
}

/* Factors of RoPE's frequencies as a list, if the file has them. */
static bool write_factors(struct reading *rd, const char *tensor, const char *setting)
{
    const struct eng_tensor *t = find_tensor(rd, tensor);
    float values[ENG_MAX_HEAD_DIM / 2];
    if (!t) return false;
    if (t->dtype != ENG_DTYPE_F32 || t->n_bytes > (int64_t)sizeof(values) ||
        file_pread(t->shard->fd, values, (size_t)t->n_bytes, t->offset)) {
        eng_report_problem(rd->report, ENG_EINVAL,
                           "%s: tensor %s cannot be read, or is not at most %d numbers of F32",
                           t->shard->name, tensor, ENG_MAX_HEAD_DIM / 2);
        return false;
    }
    jw_open(&rd->w, setting, '[');
    for (int64_t i = 0; i < t->n_elements; i++)
        jw_number(&rd->w, NULL, (double)values[i]);
    jw_close(&rd->w);
    return true;
}

/*
 * The factors of llama3 are in a tensor, its numbers in no key: they are given as longrope's, equal
 * for contexts of any length.
 */
static bool read_longrope(struct reading *rd)
{
    bool llama3 = find_tensor(rd, "rope_freqs.weight") != NULL;
    const char *of_short = llama3 ? "rope_freqs.weight" : "rope_factors_short.weight";
    double attention = 1;
    int64_t original;
    if (!find_tensor(rd, of_short)) return false;
    jw_fields(&rd->w, "rope_scaling { rope_type %s", "longrope");
    write_factors(rd, of_short, "short_factor");
    write_factors(rd, llama3 ? of_short : "rope_factors_long.weight", "long_factor");
    if (get_number(rd, "rope.scaling.attn_factor", &attention) || llama3)
        jw_number(&rd->w, "attention_factor", attention);
    if (get_int(rd, "rope.scaling.original_context_length", 1, MAX_CTX, &original))
        jw_int(&rd->w, "original_max_position_embeddings", original);
    jw_close(&rd->w);
    return true;
}

/* The share of pairs that turn: their frequencies are divided by 1, those of the others by 1e30. */
static double read_turned(struct reading *rd, int64_t d_head)
{
    static const char name[] = "rope_freqs.weight";
    const struct eng_tensor *t = find_tensor(rd, name);
    float values[ENG_MAX_HEAD_DIM / 2] = {0};
    int64_t n = 0, n_pairs = d_head / 2;
    if (!t) return 1;
    bool fits = t->dtype == ENG_DTYPE_F32 && t->n_elements == n_pairs &&
                !file_pread(t->shard->fd, values, (size_t)t->n_bytes, t->offset);
    while (n < n_pairs && values[n] == 1)
        n++;
    for (int64_t i = n; i < n_pairs; i++)
        fits = fits && values[i] >= 9e29f;
    if (!fits)
        eng_report_problem(
            rd->report, ENG_EUNSUPPORTED,
            "%s: tensor %s: supported are %lld numbers of F32, 1 for the first pairs "
            "and 1e30 for the rest",
            t->shard->name, name, (long long)n_pairs);
    return ((double)n + 0.25) / (double)(n_pairs > 0 ? n_pairs : 1);
}

/* The size of the heads of one type of layers: of keys and values, all of which RoPE covers. */
static int64_t read_size_of_heads(struct reading *rd, const char *const names[3])
{
    int64_t n, d_head = 0;
    if (!need_int(rd, names[0], ENG_MAX_HEAD_DIM, &d_head)) return 2;
    for (int i = 1; i < 3; i++)
        if (get_int(rd, names[i], 1, ENG_MAX_HEAD_DIM, &n) && n != d_head)
            REPORT(rd, ENG_EUNSUPPORTED, "%s is %lld, %s %lld: sizes that differ are not supported",
                   names[i], (long long)n, names[0], (long long)d_head);
    return d_head;
}

/* Heads of keys and values by the window of a layer; without one, keys may be values too. */
static void read_full_kv_heads(struct reading *rd)
{
    const struct gguf_key *flags = get_per_layer(rd, "attention.sliding_window_pattern", GGUF_BOOL);
    const struct gguf_key *list = get_per_layer(rd, "attention.head_count_kv", GGUF_I64);
    int64_t one = rd->n_heads, n_kv[2] = {0, 0}; /* with a window, and without */
    bool values = true;
    if (!flags) missing(rd, "attention.sliding_window_pattern");
    if (!list) get_int(rd, "attention.head_count_kv", 1, MAX_HEADS, &one);
    for (int64_t i = 0; flags && i < rd->n_layers; i++) {
        int64_t own = list ? gguf_int_at(list, (size_t)i) : one;
        int64_t *n = &n_kv[!gguf_int_at(flags, (size_t)i)];
        char name[64];
        snprintf(name, sizeof(name), "blk.%d.attn_v.weight", (int)i);
        if (n == &n_kv[1] && *n == 0) values = find_tensor(rd, name);
        if (own < 1 || own > MAX_HEADS || (*n > 0 && *n != own))
            REPORT(rd, ENG_EUNSUPPORTED, "attention.head_count_kv: %lld differs from other layers",
                   (long long)own);
        *n = own;
    }
    jw_int(&rd->w, "num_key_value_heads", n_kv[0] ? n_kv[0] : n_kv[1]);
    if (n_kv[1]) jw_int(&rd->w, "num_global_key_value_heads", n_kv[1]);
    jw_bool(&rd->w, "attention_k_eq_v", !values);
}

/* Layers that share keys and values, and embeddings of each layer. */
static void read_layer_inputs(struct reading *rd)
{
    const struct eng_tensor *table = find_tensor(rd, "per_layer_token_embd.weight");
    int64_t n_shared, width = 0;
    if (get_int(rd, "attention.shared_kv_layers", 0, rd->n_layers, &n_shared))
        jw_int(&rd->w, "num_kv_shared_layers", n_shared);
    get_int(rd, "embedding_length_per_layer_input", 0, MAX_SIZE, &width);
    jw_int(&rd->w, "hidden_size_per_layer_input", width);
    jw_int(&rd->w, "vocab_size_per_layer_input", table ? table->shape[0] : rd->vocab);
}

/* Sizes of heads by the window of a layer, and their RoPE. */
static void read_full_heads(struct reading *rd)
{
    static const char *const full[] = {"attention.key_length", "attention.value_length",
                                       "rope.dimension_count"};
    static const char *const windowed[] = {"attention.key_length_swa", "attention.value_length_swa",
                                           "rope.dimension_count_swa"};
    int64_t d_full = read_size_of_heads(rd, full);
    double theta = 1000000, local = 10000;
    jw_int(&rd->w, "head_dim", read_size_of_heads(rd, windowed));
    jw_int(&rd->w, "global_head_dim", d_full);
    get_number(rd, "rope.freq_base", &theta);
    get_number(rd, "rope.freq_base_swa", &local);
    jw_fields(&rd->w,
              "rope_parameters { full_attention { rope_type %s rope_theta %g partial_rotary_factor "
              "%g } sliding_attention { rope_theta %g } }",
              "proportional", theta, read_turned(rd, d_full), local);
}

static void read_rope(struct reading *rd)
{
    char key[KEY_BYTES];
    const char *type = "none";
    double theta = 10000, factor = 1, x;
    int64_t original;
    bool tuned = true;
    get_number(rd, "rope.freq_base", &theta);
    jw_number(&rd->w, "rope_theta", theta);
    found(rd, gguf_bool(rd->g, key_name(rd, "rope.scaling.finetuned", key), &tuned, rd->err,
                        ERR_BYTES));
    if (!tuned && strcmp(rd->arch->name, "granite") == 0)
        eng_report_problem(rd->report, ENG_EUNSUPPORTED,
                           "%s: key %s is false: Granite without RoPE is not supported",
                           rd->g->name, key);
    found(rd,
          gguf_string(rd->g, key_name(rd, "rope.scaling.type", key), &type, rd->err, ERR_BYTES));
    if (read_longrope(rd)) return;
    if (get_number(rd, "rope.scale_linear", &factor) && strcmp(type, "none") == 0) type = "linear";
    get_number(rd, "rope.scaling.factor", &factor);
    if (strcmp(type, "none") == 0 || factor == 1) return;
    jw_fields(&rd->w, "rope_scaling { rope_type %s factor %g", type, factor);
    if (get_int(rd, "rope.scaling.original_context_length", 1, MAX_CTX, &original))
        jw_int(&rd->w, "original_max_position_embeddings", original);
    if (get_number(rd, "rope.scaling.yarn_beta_fast", &x)) jw_number(&rd->w, "beta_fast", x);
    if (get_number(rd, "rope.scaling.yarn_beta_slow", &x)) jw_number(&rd->w, "beta_slow", x);
    if (get_number(rd, "rope.scaling.attn_factor", &x) && x != 1)
        jw_number(&rd->w, "attention_factor", x * (1 + 0.1 * log(factor)));
    jw_close(&rd->w);
}

/* ---- token ids ----------------------------------------------------------------------------- */

struct ends {
    int64_t ids[ENG_MAX_EOS];
    int n;
};

static void add_end(struct ends *ends, int64_t id)
{
    for (int i = 0; i < ends->n; i++)
        if (ends->ids[i] == id) return;
    if (ends->n < ENG_MAX_EOS) ends->ids[ends->n++] = id;
}

/*
 * Control tokens that end a turn in some family, whatever the keys say. Gemma 4 hands over to its
 * tools with one that its converter types as text to be shown.
 */
static void add_named_ends(struct reading *rd, struct ends *ends)
{
    static const char gemma4_result[] = "<|tool_response>";
    static const char *const names[] = {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
        "<|eom_id|>", "<|return|>", "<eos>",   "<turn|>",       gemma4_result};
    enum { CONTROL = 3 };
    const struct gguf_key *tokens, *types;
    if (!found(rd, gguf_array(rd->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, rd->err,
                              ERR_BYTES)) ||
        !found(rd, gguf_array(rd->g, "tokenizer.ggml.token_type", GGUF_I64, &types, rd->err,
                              ERR_BYTES)))
        return;
    const unsigned char *at = tokens->data;
    for (size_t i = 0; i < tokens->n && i < types->n && i < (size_t)rd->vocab; i++) {
        const char *text = gguf_next_string(&at, NULL);
        if (*text != '<' || (gguf_int_at(types, i) != CONTROL && strcmp(text, gemma4_result) != 0))
            continue;
        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
            if (strcmp(text, names[k]) == 0) add_end(ends, (int64_t)i);
    }
}

static void read_end_ids(struct reading *rd)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    struct ends ends = {.n = 0};
    int64_t id;
    for (int i = 0; i < 3; i++)
        if (found(rd, gguf_int(rd->g, keys[i], 0, rd->vocab - 1, &id, rd->err, ERR_BYTES)))
            add_end(&ends, id);
    add_named_ends(rd, &ends);
    jw_open(&rd->w, "eos_token_id", '[');
    for (int i = 0; i < ends.n; i++)
        jw_int(&rd->w, NULL, ends.ids[i]);
    jw_close(&rd->w);
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* Biases are there if the first layer's tensors say so. */
static void read_biases(struct reading *rd, const struct eng_family *f)
{
    bool qkv = find_tensor(rd, "blk.0.attn_q.bias"), mlp = find_tensor(rd, "blk.0.ffn_up.bias");
    bool one_key = f->attn_bias_key && f->mlp_bias_key && f->attn_bias_key == f->mlp_bias_key;
    if (f->attn_bias_key) jw_bool(&rd->w, f->attn_bias_key, qkv);
    if (f->mlp_bias_key && !one_key) jw_bool(&rd->w, f->mlp_bias_key, mlp);
}

/* Keys without a setting of the family must be as its reference computes. */
static void read_experts(struct reading *rd, const struct eng_mixture *x)
{
    const struct {
        const char *key, *setting;
    } sizes[] = {{"expert_count", x->count_key},
                 {"expert_used_count", x->chosen_key},
                 {"expert_feed_forward_length", x->size_key},
                 {"leading_dense_block_count", x->first_key}};
    char key[KEY_BYTES];
    int64_t n, gate = 1, own = x->sigmoid ? 2 : 1;
    double scale = 0;
    bool renorm = rd->arch->renorm;
    if (x->switch_key) {
        bool on = get_int(rd, "expert_count", 0, MAX_SIZE, &n) && n > 0;
        jw_bool(&rd->w, x->switch_key, on);
        if (!on) return;
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        /* without a setting no layer is dense; intermediate_size is feed_forward_length */
        if (!sizes[i].setting || strcmp(sizes[i].setting, "intermediate_size") == 0) continue;
        if (!has_key(rd, sizes[i].key)) missing(rd, sizes[i].key);
        if (get_int(rd, sizes[i].key, 0, MAX_SIZE, &n)) jw_int(&rd->w, sizes[i].setting, n);
    }
    if (x->renorm_key) jw_bool(&rd->w, x->renorm_key, renorm);
    get_number(rd, "expert_weights_scale", &scale);
    if (scale != 0 && x->scale_key)
        jw_number(&rd->w, x->scale_key, scale);
    else if (scale != 0 && scale != 1)
        REPORT(rd, ENG_EUNSUPPORTED, "expert_weights_scale is %g; supported: 1", scale);
    get_int(rd, "expert_gating_func", 0, INT32_MAX, &gate);
    if (gate != own)
        REPORT(rd, ENG_EUNSUPPORTED,
               "expert_gating_func is %lld; supported: %lld (1: softmax, 2: sigmoid)",
               (long long)gate, (long long)own);
    found(rd,
          gguf_bool(rd->g, key_name(rd, "expert_weights_norm", key), &renorm, rd->err, ERR_BYTES));
    if (renorm != rd->arch->renorm)
        REPORT(rd, ENG_EUNSUPPORTED, "expert_weights_norm is %s; supported: %s",
               renorm ? "true" : "false", renorm ? "false" : "true");
}

static bool read_sizes(struct reading *rd)
{
    int64_t n_drafts = 0;
    const struct eng_tensor *embed = find_tensor(rd, "token_embd.weight");
    if (!embed || embed->rank != 2) {
        eng_report_problem(rd->report, ENG_EINVAL,
                           "%s: tensor token_embd.weight is missing or not a matrix", rd->g->name);
        return false;
    }
    rd->vocab = embed->shape[0];
    if (!need_int(rd, "block_count", ENG_MAX_LAYERS, &rd->n_layers) ||
        !need_int(rd, "attention.head_count", MAX_HEADS, &rd->n_heads))
        return false;
    get_int(rd, "nextn_predict_layers", 0, rd->n_layers - 1, &n_drafts);
    rd->n_layers -= n_drafts;
    if (rd->n_layers != rd->arch->other_scale_layers) return true;
    REPORT(rd, ENG_EUNSUPPORTED,
           "block_count is %lld: this size's scale of queries is in no key, which is not supported",
           (long long)rd->n_layers);
    return false;
}

int eng_gguf_config(const struct eng_weights *weights, struct buf *text, struct eng_report *r)
{
    struct reading rd = {
        .g = weights->shards[0].gguf, .weights = weights, .arch = weights->gguf, .report = r};
    enum eng_task task;
    if (!read_sizes(&rd)) return r->rc;
    jw_init(&rd.w, text);
    jw_open(&rd.w, NULL, '{');
    bool olmo3 = read_window(&rd) && strcmp(rd.arch->name, "olmo2") == 0;
    const char *architecture = olmo3 ? "Olmo3ForCausalLM" : rd.arch->architecture;
    const struct eng_family *family = eng_family_by_architecture(architecture, &task);
    jw_open(&rd.w, "architectures", '[');
    jw_text(&rd.w, NULL, architecture);
    jw_fields(&rd.w,
              "] model_type %s vocab_size %jd num_hidden_layers %jd num_attention_heads %jd"
              " tie_word_embeddings %i block_auto_adjust_ff_dim %i",
              family->model_type, (intmax_t)rd.vocab, (intmax_t)rd.n_layers, (intmax_t)rd.n_heads,
              !find_tensor(&rd, "output.weight"), false);
    copy_settings(&rd);
    if (rd.arch->full_heads) {
        read_full_kv_heads(&rd);
        read_layer_inputs(&rd);
        read_full_heads(&rd);
    } else {
        read_kv_heads(&rd);
        read_head_dim(&rd);
        read_rope(&rd);
    }
    read_biases(&rd, family);
    if (family->mixture) read_experts(&rd, family->mixture);
    read_end_ids(&rd);
    jw_close(&rd.w);
    if (jw_end(&rd.w)->failed)
        eng_report_problem(r, ENG_ENOMEM, "%s: no memory for its settings", rd.g->name);
    return r->rc;
}
