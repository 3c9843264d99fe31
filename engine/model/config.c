/* SPDX-License-Identifier: MIT */
/* config.json -> hyper-parameters; see config.h. */
#include "base/buf.h"
#include "base/file.h"
#include "base/gguf_names.h"
#include "engine/model/config.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "engine/eng_error.h"
#include "engine/model/config_json.h"
#include "engine/model/family.h"
#include "engine/model/rope.h"
#include "engine/model/weight_hash.h"
#include "engine/model/weights.h"

static const char config_name[] = "config.json";
static const char generation_name[] = "generation_config.json";

/* Larger than any known model; products of any three fit into 63 bits. */
enum {
    MAX_CONFIG_BYTES = 4 << 20,
    MAX_SIZE = 1 << 20,
    MAX_HEADS = 4096,
    MAX_VOCAB = 1 << 22,
    MAX_CTX = 1 << 28,
};

/*
 * One object being read; `where` names it in messages ("config.json", "config.json:
 * rope_scaling").
 */
struct object {
    const json_t *json;
    const char *where;
    struct eng_report *report;
    const char *const (*renames)[2]; /* of the family, or NULL */
};

#define REPORT(o, rc, format, ...)                                                                 \
    eng_report_problem((o)->report, rc, "%s: " format, (o)->where, __VA_ARGS__)

/* NULL: absent or null. */
static const json_t *find(const struct object *o, const char *key)
{
    for (int i = 0; o->renames && o->renames[i][0]; i++) {
        const json_t *value = json_object_get(o->json, o->renames[i][1]);
        if (value && !json_is_null(value) && strcmp(o->renames[i][0], key) == 0) return value;
    }
    const json_t *value = json_object_get(o->json, key);
    return json_is_null(value) ? NULL : value;
}

static void wrong(const struct object *o, const char *key, const char *what)
{
    REPORT(o, ENG_EINVAL, "%s %s", key, what);
}

/* An integer in [min, max]; the fallback if absent or null, min if invalid. */
static int64_t read_int(const struct object *o, const char *key, int64_t min, int64_t max,
                        int64_t fallback)
{
    const json_t *value = find(o, key);
    if (!value) return fallback;
    int64_t n = json_integer_value(value);
    if (json_is_integer(value) && n >= min && n <= max) return n;
    char got[64] = "not an integer";
    if (json_is_integer(value)) snprintf(got, sizeof(got), "%lld", (long long)n);
    REPORT(o, ENG_EINVAL, "%s must be within %lld..%lld, it is %s", key, (long long)min,
           (long long)max, got);
    return min;
}

static bool read_bool(const struct object *o, const char *key, bool fallback)
{
    const json_t *value = find(o, key);
    if (!value) return fallback;
    if (!json_is_boolean(value)) wrong(o, key, "must be true or false");
    return json_is_true(value);
}

/* A number in [min, max]; the fallback if absent or null. */
static double read_real(const struct object *o, const char *key, double min, double max,
                        double fallback)
{
    const json_t *value = find(o, key);
    if (!value) return fallback;
    double x = json_number_value(value);
    if (json_is_number(value) && x >= min && x <= max) return x;
    char got[64] = "not a number";
    if (json_is_number(value)) snprintf(got, sizeof(got), "%g", x);
    REPORT(o, ENG_EINVAL, "%s must be within %g..%g, it is %s", key, min, max, got);
    return max;
}

/* As read_real, but the field is required. */
static double need_real(const struct object *o, const char *key, double min, double max)
{
    if (!find(o, key)) wrong(o, key, "is missing");
    return read_real(o, key, min, max, max);
}

static const char *read_string(const struct object *o, const char *key)
{
    const json_t *value = find(o, key);
    if (value && !json_is_string(value)) wrong(o, key, "must be a string");
    return json_string_value(value);
}

/* ---- the family ---------------------------------------------------------------------------- */

static const char *first_architecture(const struct object *o)
{
    const json_t *list = find(o, "architectures");
    if (!list) return NULL;
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name) wrong(o, "architectures", "must be a list of strings");
    return name;
}

static void refuse_family(const struct object *o, const char *field, const char *name)
{
    char known[1024] = "";
    size_t at = 0;
    for (int i = 0; eng_family_at(i) && at < sizeof(known); i++)
        if (!eng_family_at(i)->encoder)
            at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "",
                                   eng_family_at(i)->architecture);
    REPORT(o, ENG_EUNSUPPORTED, "%s %.100s is not supported; supported: %s", field, name, known);
}

/*
 * The reference reads model_type, most other tools architectures: if both are present, they must
 * agree.
 */
static const struct eng_family *read_family(const struct object *o, struct eng_hparams *hp)
{
    const char *architecture = first_architecture(o), *type = read_string(o, "model_type");
    const struct eng_family *family = NULL;
    if (architecture) {
        family = eng_family_by_architecture(architecture, &hp->task);
        if (!family) refuse_family(o, "architecture", architecture);
        snprintf(hp->architecture, sizeof(hp->architecture), "%s", architecture);
    } else if (type) {
        family = eng_family_by_model_type(type);
        if (!family) refuse_family(o, "model_type", type);
        if (family && family->encoder) hp->task = ENG_TASK_STATES;
    } else {
        wrong(o, "architectures", "and model_type are missing");
    }
    if (family && type && strcmp(type, family->model_type) != 0)
        REPORT(o, ENG_EINVAL, "model_type is %.100s, which does not match architecture %s", type,
               family->architecture);
    return family;
}

/* ---- unsupported features ------------------------------------------------------------------ */

static void refuse_if_set(const struct object *o, const char *key, const char *why)
{
    const json_t *value = find(o, key);
    bool off = !value || json_is_false(value) ||
               (json_is_integer(value) && json_integer_value(value) == 0) ||
               (json_is_object(value) && json_object_size(value) == 0);
    if (!off) REPORT(o, ENG_EUNSUPPORTED, "%s: %s", key, why);
}

static void refuse_experts(const struct object *o)
{
    refuse_if_set(o, "num_experts", "mixtures of experts are not supported in this family");
    refuse_if_set(o, "num_local_experts", "mixtures of experts are not supported in this family");
}

static void refuse_unsupported(const struct object *o, const struct eng_family *f)
{
    const char *both = json_string_value(find(o, "use_bidirectional_attention"));
    if (!f->full_head_dim || !both || strcmp(both, "vision") != 0) /* of images' tokens alone */
        refuse_if_set(o, "use_bidirectional_attention", "bidirectional attention is not supported");
    refuse_if_set(o, "quantization_config", "quantised weights are not supported");
    refuse_if_set(o, "compression_config", "compressed weights are not supported");
    if (!f->mixture && !f->hybrid) refuse_experts(o);
    refuse_if_set(o, "is_encoder_decoder", "encoder-decoder models are not supported");
    if (!f->mixture || !f->mixture->switch_key)
        refuse_if_set(o, "enable_moe_block",
                      "mixtures of experts are not supported in this family");
    if (!f->full_head_dim)
        refuse_if_set(o, "per_layer_config", "settings that differ by layer are not supported");
    refuse_if_set(o, "add_cross_attention", "cross attention is not supported");
    if (!read_bool(o, "is_causal", true))
        REPORT(o, ENG_EUNSUPPORTED, "%s is false: bidirectional attention is not supported",
               "is_causal");
    /* Splits products in training; the results are the same. */
    read_int(o, "pretraining_tp", 1, MAX_SIZE, 1);
}

static enum kern_act read_act(const struct object *o, const struct eng_family *f)
{
    static const struct {
        const char *name;
        enum kern_act act;
    } acts[] = {
        {"silu", KERN_ACT_SILU},
        {"swish", KERN_ACT_SILU},
        {"gelu_pytorch_tanh", KERN_ACT_GELU_TANH},
        {"gelu_new", KERN_ACT_GELU_TANH},
        {"gelu", KERN_ACT_GELU},
        {"swiglu", KERN_ACT_SILU},
    };
    const char *key = f->act_key ? f->act_key : "hidden_act", *name = read_string(o, key);
    for (size_t i = 0; name && i < sizeof(acts) / sizeof(acts[0]); i++)
        if (strcmp(name, acts[i].name) == 0) return acts[i].act;
    if (name)
        REPORT(o, ENG_EUNSUPPORTED,
               "%s %.100s is not supported; supported: silu, gelu, gelu_pytorch_tanh", key, name);
    return f->act;
}

/* ---- sizes --------------------------------------------------------------------------------- */

static void read_heads(const struct object *o, struct eng_hparams *hp)
{
    const struct eng_family *f = hp->family;
    hp->n_heads = (int)read_int(o, "num_attention_heads", 1, MAX_HEADS, f->n_heads);
    /*
     * null means the number of heads; if absent the family's default is used, which may be the
     * same.
     */
    bool given = json_object_get(o->json, "num_key_value_heads");
    int n_kv_heads = given || f->n_kv_heads == 0 ? hp->n_heads : f->n_kv_heads;
    hp->n_kv_heads = (int)read_int(o, "num_key_value_heads", 1, MAX_HEADS, n_kv_heads);
    if (hp->n_heads % hp->n_kv_heads != 0)
        REPORT(o, ENG_EINVAL,
               "num_attention_heads (%d) is not a multiple of num_key_value_heads (%d)",
               hp->n_heads, hp->n_kv_heads);
    if (find(o, "head_dim")) {
        hp->d_head = (int)read_int(o, "head_dim", 1, ENG_MAX_HEAD_DIM, 0);
    } else if (f->head_dim) {
        hp->d_head = f->head_dim;
    } else if (hp->d_model % hp->n_heads != 0 || hp->d_model / hp->n_heads > ENG_MAX_HEAD_DIM) {
        REPORT(o, ENG_EINVAL,
               "hidden_size (%d) does not divide by num_attention_heads (%d) into heads of 2..%d",
               hp->d_model, hp->n_heads, ENG_MAX_HEAD_DIM);
        hp->d_head = 2;
    } else {
        hp->d_head = hp->d_model / hp->n_heads;
    }
    if (hp->d_head % 2 != 0)
        REPORT(o, ENG_EINVAL, "head_dim (%d) must be even%s", hp->d_head,
               f->encoder && !f->encoder->rope ? ": odd heads are not supported" : " for RoPE");
}

static void read_sizes(const struct object *o, struct eng_hparams *hp)
{
    const struct eng_family *f = hp->family;
    hp->vocab = (int32_t)read_int(o, "vocab_size", 1, MAX_VOCAB, f->vocab_size);
    hp->d_model = (int)read_int(o, "hidden_size", 1, MAX_SIZE, f->hidden_size);
    hp->d_ff = (int)read_int(o, f->ffn_key ? f->ffn_key : "intermediate_size", 1, MAX_SIZE,
                             f->intermediate_size);
    hp->n_layers = (int)read_int(o, "num_hidden_layers", 1, ENG_MAX_LAYERS, f->n_layers);
    hp->ctx_train = read_int(o, "max_position_embeddings", 1, MAX_CTX, f->max_position_embeddings);
    hp->ctx_max = hp->ctx_train;
    hp->rms_eps = read_real(o, "rms_norm_eps", 0, 1, f->eps > 0 ? f->eps : 1e-6);
    read_heads(o, hp);
    bool bias = f->attn_bias_key && read_bool(o, f->attn_bias_key, f->bias_default);
    hp->attn_bias_qkv = f->qkv_bias || bias;
    hp->attn_bias_o = bias && !f->no_o_bias;
    hp->mlp_bias = f->mlp_bias_key && read_bool(o, f->mlp_bias_key, false);
    hp->qk_norm = f->qk_norm;
    hp->branch_norms = f->names->attn_post;
}

/* Factors and caps: those of every family, then the family's own settings for them. */
static void read_factors(const struct object *o, struct eng_hparams *hp)
{
    const struct eng_family *f = hp->family;
    hp->embed_scale = f->embed_sqrt ? sqrt((double)hp->d_model) : 1;
    hp->residual_scale = hp->logits_scaling = 1;
    hp->attn_scale = f->full_head_dim ? 1 : 1.0 / sqrt((double)hp->d_head);
    for (const struct eng_config_key *k = f->keys; k && k->name; k++) {
        bool off = k->null_is_off && json_is_null(json_object_get(o->json, k->name));
        double x = off ? 0 : read_real(o, k->name, k->null_is_off ? 0 : 1e-6, 1e6, k->fallback);
        *(double *)((char *)hp + k->at) = k->inverse_root ? 1.0 / sqrt(x) : x;
    }
}

/* ---- RoPE ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum eng_rope_type type;
} rope_types[] = {
    {"default", ENG_ROPE_DEFAULT}, {"linear", ENG_ROPE_LINEAR},   {"llama3", ENG_ROPE_LLAMA3},
    {"yarn", ENG_ROPE_YARN},       {"dynamic", ENG_ROPE_DYNAMIC},
};

/* The names under which longrope was published. */
static const char *const longrope_names[] = {"longrope", "su", "yarn"};

static const char *rope_type_name(const struct object *o)
{
    const char *now = read_string(o, "rope_type"), *old = read_string(o, "type");
    if (now && old && strcmp(now, old) != 0) wrong(o, "rope_type and type", "differ");
    return now ? now : old ? old : "default";
}

static enum eng_rope_type read_rope_type(const struct object *o, const struct eng_family *f)
{
    const char *name = rope_type_name(o);
    for (int i = 0; i < (f->rope_longrope ? 3 : 1); i++)
        if (strcmp(name, longrope_names[i]) == 0) return ENG_ROPE_LONGROPE;
    size_t n = f->rope_longrope ? 1 : sizeof(rope_types) / sizeof(rope_types[0]);
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, rope_types[i].name) == 0) return rope_types[i].type;
    REPORT(o, ENG_EUNSUPPORTED, "rope_type %.100s is not supported; supported: %s", name,
           f->rope_longrope ? "default, longrope"
                            : "default, linear, llama3, yarn, dynamic, longrope");
    return ENG_ROPE_DEFAULT;
}

static void read_rope_llama3(const struct object *o, struct eng_rope *rope)
{
    rope->low_freq_factor = need_real(o, "low_freq_factor", 1e-6, 1e6);
    rope->high_freq_factor = need_real(o, "high_freq_factor", 1e-6, 1e6);
    if (rope->high_freq_factor <= rope->low_freq_factor)
        wrong(o, "high_freq_factor", "must be greater than low_freq_factor");
}

static void read_rope_yarn(const struct object *o, struct eng_rope *rope)
{
    rope->beta_fast = read_real(o, "beta_fast", 0, 1e6, 0);
    rope->beta_slow = read_real(o, "beta_slow", 0, 1e6, 0);
    if (rope->beta_fast == 0) rope->beta_fast = 32;
    if (rope->beta_slow == 0) rope->beta_slow = 1;
    rope->truncate = read_bool(o, "truncate", true);
    double mscale = read_real(o, "mscale", 0, 1e6, 0);
    double mscale_all_dim = read_real(o, "mscale_all_dim", 0, 1e6, 0);
    rope->attention_factor =
        read_real(o, "attention_factor", 1e-6, 1e6,
                  eng_rope_yarn_attention(rope->factor, mscale, mscale_all_dim));
    if (rope->theta <= 1) wrong(o, "rope_theta", "must be greater than 1 for yarn");
}

/* A list of one factor per pair of dimensions. */
static void read_factor_list(const struct object *o, const char *key, int n, double *ret)
{
    const json_t *list = find(o, key);
    if (!json_is_array(list) || json_array_size(list) != (size_t)n) {
        REPORT(o, ENG_EINVAL, "%s must be a list of %d numbers", key, n);
        return;
    }
    for (int i = 0; i < n; i++) {
        ret[i] = json_number_value(json_array_get(list, (size_t)i));
        if (!(ret[i] >= 1e-6 && ret[i] <= 1e6)) {
            REPORT(o, ENG_EINVAL, "%s[%d] must be within 1e-06..1e+06", key, i);
            return;
        }
    }
}

/* Its attention factor counts for short contexts too. */
static void read_rope_longrope(const struct object *o, struct eng_rope *rope,
                               const struct eng_hparams *hp)
{
    read_factor_list(o, "short_factor", hp->d_rot / 2, rope->short_factors);
    read_factor_list(o, "long_factor", hp->d_rot / 2, rope->long_factors);
    double original = rope->original_ctx;
    rope->factor = read_real(o, "factor", 1e-6, 1e6, (double)hp->ctx_train / original);
    double a = rope->factor > 1 && original > 1 ? sqrt(1 + log(rope->factor) / log(original)) : 1;
    rope->attention_factor = read_real(o, "attention_factor", 1e-6, 1e6, a);
}

static void read_rope_scaling(const struct object *o, const struct object *config,
                              const struct eng_hparams *hp, struct eng_rope *rope)
{
    const struct eng_family *f = hp->family;
    rope->theta = read_real(o, "rope_theta", 1e-6, 1e30, rope->theta);
    if (f->rope_alpha && find(o, "alpha")) {
        double d = hp->d_head > 2 ? hp->d_head : 4;
        rope->theta *= pow(read_real(o, "alpha", 1e-6, 1e6, 1), d / (d - 2));
        return;
    }
    rope->type = read_rope_type(o, f);
    if (rope->type == ENG_ROPE_DEFAULT) return;
    if (rope->type != ENG_ROPE_LINEAR && rope->type != ENG_ROPE_DYNAMIC) {
        /* of this object, else of the config, else the model's */
        static const char key[] = "original_max_position_embeddings";
        double outer = read_real(config, key, 1, MAX_CTX, (double)hp->ctx_train);
        rope->original_ctx = read_real(o, key, 1, MAX_CTX, outer);
    }
    if (rope->type == ENG_ROPE_LONGROPE) {
        read_rope_longrope(o, rope, hp);
        return;
    }
    rope->factor = need_real(o, "factor", 1e-6, 1e6);
    if (rope->type == ENG_ROPE_LLAMA3) read_rope_llama3(o, rope);
    if (rope->type == ENG_ROPE_YARN) read_rope_yarn(o, rope);
}

/* The object of a kind of layers, NULL: there is none; another key with an object is refused. */
static const json_t *rope_of_layers(const struct object *o, const struct eng_family *f,
                                    const char *kind)
{
    const char *key;
    json_t *value;
    const json_t *found = NULL;
    json_object_foreach((json_t *)o->json, key, value)
    {
        if (!json_is_object(value)) continue;
        bool known = f->rope_local &&
                     (strcmp(key, "full_attention") == 0 || strcmp(key, "sliding_attention") == 0);
        if (!known)
            REPORT(o, ENG_EUNSUPPORTED,
                   "%.100s: RoPE that differs by type of layer is not supported", key);
        if (strcmp(key, kind) == 0) found = value;
    }
    return found;
}

/* The local RoPE may change theta, nothing else. */
static void read_local_rope(const struct object *o, struct eng_rope *rope)
{
    rope->theta = read_real(o, "rope_theta", 1e-6, 1e30, rope->theta);
    const char *type = rope_type_name(o);
    if (strcmp(type, "default") != 0)
        REPORT(o, ENG_EUNSUPPORTED,
               "sliding_attention has rope_type %.100s; supported there: default", type);
}

/* The dimensions of a head that turn. */
static void read_rotated(const struct object *o, const struct object *scaling,
                         struct eng_hparams *hp)
{
    static const char key[] = "partial_rotary_factor";
    double whole = hp->family->partial_rotary, share = whole > 0 ? whole : 1;
    share = read_real(o, key, 0, 1, share);
    if (scaling) share = read_real(scaling, key, 0, 1, share);
    if (whole == 0 && share != 1)
        eng_report_problem(o->report, ENG_EUNSUPPORTED, "%s: %s other than 1 is not supported",
                           scaling && find(scaling, key) ? scaling->where : o->where, key);
    hp->d_rot = (int)(hp->d_head * share);
    if (whole > 0 && (hp->d_rot < 2 || hp->d_rot % 2 != 0))
        REPORT(o, ENG_EUNSUPPORTED, "%s %g of a head of %d must give an even number of dimensions",
               key, share, hp->d_head);
}

/*
 * A family whose windowed layers have a RoPE of their own gives it a setting, or a theta that both
 * share.
 */
static void check_local_theta(const struct object *o, const struct eng_hparams *hp)
{
    const struct eng_family *f = hp->family;
    bool shared = f->rope_local && !f->local_theta_key && f->rope_theta == f->local_theta;
    if (shared && hp->rope.theta != hp->local_rope.theta)
        REPORT(o, ENG_EUNSUPPORTED, "rope_theta %g: %s is supported with %g only", hp->rope.theta,
               f->title, f->local_theta);
}

static void read_rope(const struct object *o, struct eng_hparams *hp)
{
    const struct eng_family *f = hp->family;
    static const struct {
        const char *key, *where;
    } spellings[] = {
        {"rope_scaling", "config.json: rope_scaling"},
        {"rope_parameters", "config.json: rope_parameters"},
    };
    struct object scaling = {NULL, NULL, o->report, NULL};
    for (int i = 0; i < 2 && !scaling.json; i++) {
        const json_t *value = find(o, spellings[i].key);
        if (value && !json_is_object(value)) wrong(o, spellings[i].key, "must be an object");
        if (json_object_size(value) == 0) continue;
        scaling = (struct object){value, spellings[i].where, o->report, NULL};
    }
    struct eng_rope plain = {.type = ENG_ROPE_DEFAULT, .factor = 1, .attention_factor = 1};
    hp->rope = hp->local_rope = plain;
    hp->rope.theta = read_real(o, "rope_theta", 1e-6, 1e30, f->rope_theta);
    hp->has_local_rope = f->rope_local;
    hp->local_rope.theta = f->local_theta;
    if (f->local_theta_key)
        hp->local_rope.theta = read_real(o, f->local_theta_key, 1e-6, 1e30, f->local_theta);
    read_rotated(o, scaling.json ? &scaling : NULL, hp);
    if (!scaling.json) {
        check_local_theta(o, hp);
        return;
    }
    const json_t *full = rope_of_layers(&scaling, f, "full_attention");
    const json_t *local = rope_of_layers(&scaling, f, "sliding_attention");
    if (f->rope_local && (full || local)) {
        struct object own = {local, scaling.where, o->report, NULL};
        if (local) read_local_rope(&own, &hp->local_rope);
        scaling.json = full;
        if (full && !f->full_head_dim) read_rope_scaling(&scaling, o, hp, &hp->rope);
        return;
    }
    read_rope_scaling(&scaling, o, hp, &hp->rope);
    check_local_theta(o, hp);
}

/* ---- differences between layers ------------------------------------------------------------ */

/* no_rope_layers holds 1 for a layer that HAS RoPE. */
static void read_nope(const struct object *o, struct eng_hparams *hp)
{
    int64_t interval = read_int(o, "no_rope_layer_interval", 1, INT32_MAX, 4);
    const json_t *list = find(o, "no_rope_layers");
    if (list && json_array_size(list) < (size_t)hp->n_layers) {
        wrong(o, "no_rope_layers", "must be a list with one number per layer");
        return;
    }
    for (int i = 0; i < hp->n_layers; i++) {
        const json_t *flag = json_array_get(list, (size_t)i);
        if (list && !json_is_integer(flag) && !json_is_boolean(flag))
            wrong(o, "no_rope_layers", "must hold 0 or 1");
        hp->layer_rope[i] =
            list ? json_is_true(flag) || json_integer_value(flag) != 0 : (i + 1) % interval != 0;
    }
}

/* Which of two types layer i has according to layer_types, or -1: another, which is reported. */
static int listed_type(const struct object *o, const json_t *list, int i, const char *first,
                       const char *second)
{
    const char *type = json_string_value(json_array_get(list, (size_t)i));
    if (type && strcmp(type, first) == 0) return 0;
    if (type && strcmp(type, second) == 0) return 1;
    REPORT(o, ENG_EUNSUPPORTED, "layer_types[%d] is %.100s; supported: %s, %s", i,
           type ? type : "not a string", first, second);
    return -1;
}

static bool is_list_of_layers(const struct object *o, const json_t *list,
                              const struct eng_hparams *hp)
{
    if (json_is_array(list) && json_array_size(list) == (size_t)hp->n_layers) return true;
    wrong(o, "layer_types", "must be a list with one string per layer");
    return false;
}

static void read_listed_windows(const struct object *o, const json_t *list, int window,
                                struct eng_hparams *hp)
{
    if (!is_list_of_layers(o, list, hp)) return;
    for (int i = 0; i < hp->n_layers; i++) {
        if (listed_type(o, list, i, "full_attention", "sliding_attention") < 1) continue;
        if (window == 0) {
            wrong(o, "layer_types", "asks for a sliding window, but sliding_window is not in use");
            return;
        }
        hp->layer_window[i] = window;
    }
}

/* Returns true if layer i has the window by the family's rule. */
static bool ruled_window(const struct eng_hparams *hp, int64_t first, int64_t period, int i)
{
    switch (hp->family->window_rule) {
    case ENG_WINDOW_NONE: break;
    case ENG_WINDOW_ALL: return true;
    case ENG_WINDOW_FROM: return i >= first;
    case ENG_WINDOW_NOPE: return !hp->layer_rope[i];
    case ENG_WINDOW_PERIOD: return (i + 1) % period != 0;
    }
    return false;
}

static void read_windows(const struct object *o, struct eng_hparams *hp)
{
    const struct eng_family *f = hp->family;
    if (f->window_rule == ENG_WINDOW_NONE) return;
    bool optional = f->window_rule == ENG_WINDOW_FROM || f->window_rule == ENG_WINDOW_NOPE;
    bool used = !optional || read_bool(o, "use_sliding_window", false);
    bool given = json_object_get(o->json, "sliding_window"); /* null: none; absent: the default */
    int window = 0;                                          /* no layer has one */
    if (used || f->window_rule == ENG_WINDOW_NOPE)
        window = (int)read_int(o, "sliding_window", 1, INT32_MAX, given ? 0 : f->sliding_window);
    int64_t first = read_int(o, "max_window_layers", 0, INT32_MAX, 28), period = 1;
    const json_t *list = f->window_rule == ENG_WINDOW_ALL ? NULL : find(o, "layer_types");
    if (list)
        read_listed_windows(o, list, window, hp);
    else if (f->window_rule == ENG_WINDOW_PERIOD)
        period = read_int(o, "sliding_window_pattern", 1, INT32_MAX, f->window_period);
    for (int i = 0; !list && used && i < hp->n_layers; i++)
        if (ruled_window(hp, first, period, i)) hp->layer_window[i] = window;
    for (int i = 0; f->nope_full && window > 0 && i < hp->n_layers; i++)
        hp->layer_rope[i] = hp->layer_window[i] > 0;
}

/*
 * Heads of layers without a window: by two settings, or as the reference saves them, by settings of
 * each layer.
 */
static void read_full_heads(const struct object *o, struct eng_hparams *hp)
{
    struct object all = {find(o, "per_layer_config"), "config.json: per_layer_config", o->report,
                         NULL};
    hp->full.d_head =
        (int)read_int(o, "global_head_dim", 2, ENG_MAX_HEAD_DIM, hp->family->full_head_dim);
    hp->full.n_kv_heads = hp->n_kv_heads;
    if (hp->keys_are_values)
        hp->full.n_kv_heads =
            (int)read_int(o, "num_global_key_value_heads", 1, hp->n_heads, hp->n_kv_heads);
    size_t n_read = 0;
    bool first = true;
    for (int i = 0; all.json && i < hp->n_layers; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        struct object own = {find(&all, name), all.where, o->report, NULL};
        n_read += own.json != NULL;
        int d_head = (int)read_int(&own, "head_dim", 2, ENG_MAX_HEAD_DIM, hp->d_head);
        int n_kv = (int)read_int(&own, "num_key_value_heads", 1, hp->n_heads, hp->n_kv_heads);
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)own.json, key, value)
        {
            if (strcmp(key, "head_dim") != 0 && strcmp(key, "num_key_value_heads") != 0)
                REPORT(&own, ENG_EUNSUPPORTED, "%.100s of layer %d is not supported", key, i);
        }
        if (hp->layer_window[i] == 0 && first) {
            hp->full.d_head = d_head;
            hp->full.n_kv_heads = n_kv;
            first = false;
        } else if (d_head != eng_layer_d_head(hp, i) || n_kv != eng_layer_kv_heads(hp, i)) {
            REPORT(&own, ENG_EUNSUPPORTED,
                   "heads of layer %d differ from others of its type: this "
                   "is not supported",
                   i);
        }
    }
    if (all.json && n_read != json_object_size(all.json))
        wrong(o, "per_layer_config", "must hold objects of layers");
    if (hp->full.d_head % 2 != 0 || hp->n_heads % hp->full.n_kv_heads != 0)
        REPORT(o, ENG_EINVAL,
               "layers without a window have %d heads of %d, %d of keys: sizes must be even, and "
               "the second number divide the first",
               hp->n_heads, hp->full.d_head, hp->full.n_kv_heads);
}

/* The RoPE of layers without a window turns a share of their dimensions. */
static void read_full_rope(const struct object *o, struct eng_hparams *hp)
{
    const json_t *ropes = find(o, "rope_parameters");
    struct object own = {json_object_get(ropes, "full_attention"),
                         "config.json: rope_parameters: full_attention", o->report, NULL};
    const char *type = own.json ? rope_type_name(&own) : "proportional";
    if (strcmp(type, "proportional") != 0)
        REPORT(&own, ENG_EUNSUPPORTED, "rope_type %.100s is not supported; supported: proportional",
               type);
    double share = read_real(&own, "partial_rotary_factor", 0, 1, own.json ? 1 : 0.25);
    hp->rope.type = ENG_ROPE_PROPORTIONAL;
    hp->rope.theta = read_real(&own, "rope_theta", 1e-6, 1e30, hp->family->rope_theta);
    hp->rope.factor = read_real(&own, "factor", 1e-6, 1e6, 1);
    hp->rope.d_head = hp->full.d_head;
    hp->full.d_rot = (int)(share * hp->full.d_head / 2) * 2;
}

/* The last layers may read keys and values of earlier ones. */
static void read_sharing(const struct object *o, struct eng_hparams *hp)
{
    int n = hp->n_layers, last[2] = {-1, -1};
    hp->n_shared = (int)read_int(o, "num_kv_shared_layers", 0, n - 1, 0);
    hp->shared_wide = read_bool(o, "use_double_wide_mlp", false);
    hp->n_kv_layers -= hp->n_shared;
    for (int i = 0; i < n; i++) {
        bool windowed = hp->layer_window[i] > 0;
        if (!eng_layer_shares(hp, i)) last[windowed] = i;
        if (last[windowed] >= 0) continue;
        REPORT(o, ENG_EUNSUPPORTED,
               "num_kv_shared_layers (%d): layer %d of layer_types has none of its type before "
               "them",
               hp->n_shared, i);
        return;
    }
}

static void read_ple(const struct object *o, struct eng_hparams *hp)
{
    static const char size[] = "hidden_size_per_layer_input";
    static const char rows[] = "vocab_size_per_layer_input";
    if (!hp->family->d_ple || json_is_null(json_object_get(o->json, size))) return;
    hp->d_ple = (int)read_int(o, size, 0, MAX_SIZE / hp->n_layers, hp->family->d_ple);
    if (hp->d_ple)
        hp->n_ple_rows = (int)read_int(o, rows, hp->vocab, MAX_VOCAB, hp->family->vocab_size);
}

/* Gemma 4. */
static void read_full_layers(const struct object *o, const struct object *config,
                             struct eng_hparams *hp)
{
    static const char *const soft[] = {"image_token_id", "audio_token_id", "video_token_id"};
    int n = hp->n_layers;
    if (hp->layer_window[n - 1] > 0 && find(o, "layer_types"))
        wrong(o, "layer_types", "must end with full_attention");
    hp->layer_window[n - 1] = 0;
    hp->v_norm = true;
    hp->keys_are_values = read_bool(o, "attention_k_eq_v", false);
    read_full_heads(o, hp);
    read_full_rope(o, hp);
    read_sharing(o, hp);
    read_ple(o, hp);
    hp->pad_id = (int32_t)read_int(o, "pad_token_id", 0, hp->vocab - 1, 0);
    for (int i = 0; hp->family->config_key && i < 3; i++)
        hp->soft_ids[i] = (int32_t)read_int(config, soft[i], -1, MAX_VOCAB, -1);
}

/* Models that may have recurrent layers and experts are served if they have neither. */
static void read_hybrid(const struct object *o, struct eng_hparams *hp)
{
    const json_t *list = find(o, "layer_types");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (listed_type(o, list, (int)i, "attention", "full_attention") < 0) return;
    if (!find(o, "num_local_experts")) wrong(o, "num_local_experts", "is missing, which means 8");
    refuse_experts(o);
    if (!list) {
        REPORT(o, ENG_EUNSUPPORTED, "%s is missing, which means mamba; supported: attention",
               "layer_types");
        return;
    }
    if (!is_list_of_layers(o, list, hp)) return;
    const char *position = read_string(o, "position_embedding_type");
    for (int i = 0; i < hp->n_layers; i++)
        hp->layer_rope[i] = position && strcmp(position, "rope") == 0;
}

/* ---- recurrent layers ---------------------------------------------------------------------- */

/* full_attn_idxs, which lists layers; absent: all. */
static bool is_listed(const struct object *o, const json_t *list, int layer)
{
    bool found = !list;
    if (list && !json_is_array(list)) wrong(o, "full_attn_idxs", "must be a list of layers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *n = json_array_get(list, i);
        if (!json_is_integer(n)) wrong(o, "full_attn_idxs", "must hold integers");
        found = found || (json_is_integer(n) && json_integer_value(n) == layer);
    }
    return found;
}

/* Returns true if layer i is attention by the family's rule. */
static bool is_attention(const struct object *o, const struct eng_hparams *hp, int i)
{
    if (!hp->family->delta) return is_listed(o, find(o, "full_attn_idxs"), i);
    return (i + 1) % read_int(o, "full_attention_interval", 1, ENG_MAX_LAYERS, 4) == 0;
}

static void read_mixers(const struct object *o, struct eng_hparams *hp)
{
    const json_t *list = find(o, "layer_types");
    enum eng_mixer kind = hp->family->delta ? ENG_DELTA : ENG_CONV;
    const char *kind_name = kind == ENG_DELTA ? "linear_attention" : "conv";
    if (list && !is_list_of_layers(o, list, hp)) return;
    for (int i = 0; i < hp->n_layers; i++) {
        int recurrent =
            list ? listed_type(o, list, i, "full_attention", kind_name) : !is_attention(o, hp, i);
        if (recurrent < 0) return;
        hp->layer_mixer[i] = recurrent ? kind : ENG_ATTENTION;
        hp->n_kv_layers -= recurrent;
    }
    if (hp->n_kv_layers == 0)
        REPORT(o, ENG_EUNSUPPORTED, "none of the layers is %s: this is not supported",
               "full_attention");
}

static void read_delta(const struct object *o, struct eng_hparams *hp)
{
    hp->attn_gate = true;
    hp->n_taps = (int)read_int(o, "linear_conv_kernel_dim", 2, ENG_MAX_TAPS, 4);
    hp->n_delta_keys = (int)read_int(o, "linear_num_key_heads", 1, MAX_HEADS, 16);
    hp->n_delta_values = (int)read_int(o, "linear_num_value_heads", 1, MAX_HEADS, 32);
    hp->d_delta_key = (int)read_int(o, "linear_key_head_dim", 1, ENG_MAX_HEAD_DIM, 128);
    hp->d_delta_value = (int)read_int(o, "linear_value_head_dim", 1, ENG_MAX_HEAD_DIM, 128);
    if (hp->n_delta_values % hp->n_delta_keys != 0)
        REPORT(o, ENG_EINVAL,
               "linear_num_value_heads (%d) is not a multiple of linear_num_key_heads (%d)",
               hp->n_delta_values, hp->n_delta_keys);
}

/* Two thirds of the size that is given, times a factor, up to a multiple. */
static void adjust_ffn(const struct object *o, struct eng_hparams *hp)
{
    static const char factor_key[] = "block_ffn_dim_multiplier";
    bool adjust = read_bool(o, "block_auto_adjust_ff_dim", true);
    double factor = read_real(o, factor_key, 1e-3, 1e3, 1);
    int multiple = (int)read_int(o, "block_multiple_of", 1, MAX_SIZE, 256);
    if (!adjust) return;
    double size = floor(2.0 * hp->d_ff / 3);
    if (!json_is_null(json_object_get(o->json, factor_key)))
        size = ceil(floor(factor * size) / multiple) * multiple;
    if (size < 1 || size > MAX_SIZE)
        REPORT(o, ENG_EINVAL,
               "intermediate_size, adjusted by %s and block_multiple_of, must be within 1..%d, it "
               "is %.0f",
               factor_key, MAX_SIZE, size);
    else
        hp->d_ff = (int)size;
}

/* ---- experts ------------------------------------------------------------------------------- */

/* An integer of a family's own setting; the fallback if it has none. */
static int read_own(const struct object *o, const char *key, int min, int max, int fallback)
{
    return key ? (int)read_int(o, key, min, max, fallback) : fallback;
}

static void read_expert_layers(const struct object *o, struct eng_hparams *hp)
{
    const struct eng_mixture *x = hp->family->mixture;
    int first = read_own(o, x->first_key, 0, ENG_MAX_LAYERS, x->first);
    int last = read_own(o, x->last_key, -1, hp->n_layers - 1, -1);
    int step = read_own(o, x->step_key, 1, ENG_MAX_LAYERS, 1);
    if (last < 0) last = hp->n_layers - 1;
    for (int i = first; i <= last; i++)
        hp->layer_experts[i] = (i + 1) % step == 0;
    const json_t *dense = x->dense_key ? find(o, x->dense_key) : NULL;
    if (dense && !json_is_array(dense)) wrong(o, x->dense_key, "must be a list of layers");
    for (size_t i = 0; i < json_array_size(dense); i++) {
        const json_t *layer = json_array_get(dense, i);
        json_int_t n = json_is_integer(layer) ? json_integer_value(layer) : -1;
        if (n < 0 || n >= hp->n_layers) {
            wrong(o, x->dense_key, "must hold layers of num_hidden_layers");
            return;
        }
        hp->layer_experts[n] = false;
    }
}

/* Not every model of some families has experts. */
static bool has_experts(const struct object *o, const struct eng_mixture *x)
{
    const char *const sizes[] = {x->count_key, x->chosen_key, x->size_key};
    if (!x->switch_key) return true;
    if (!read_bool(o, x->switch_key, false)) {
        refuse_experts(o);
        return false;
    }
    for (int i = 0; i < 3; i++)
        if (!find(o, sizes[i])) wrong(o, sizes[i], "is missing");
    return true;
}

static void read_experts(const struct object *o, struct eng_hparams *hp)
{
    enum { MAX_UNITS = 1 << 24, MAX_SHARED = 64 };
    const struct eng_mixture *x = hp->family->mixture;
    if (!has_experts(o, x)) return;
    int n = (int)read_int(o, x->count_key, 2, ENG_MAX_EXPERTS, x->n_experts);
    hp->n_experts = read_own(o, x->other_count_key, 2, ENG_MAX_EXPERTS, n);
    if (find(o, x->count_key) && hp->n_experts != n)
        REPORT(o, ENG_EINVAL, "%s (%d) and %s (%d) differ", x->count_key, n, x->other_count_key,
               hp->n_experts);
    hp->n_chosen = (int)read_int(o, x->chosen_key, 1, hp->n_experts, x->n_chosen);
    if (!find(o, x->chosen_key) && hp->n_chosen > hp->n_experts)
        REPORT(o, ENG_EINVAL, "%s is missing, which means %d, of %d experts", x->chosen_key,
               hp->n_chosen, hp->n_experts);
    hp->d_expert = (int)read_int(o, x->size_key, 1, MAX_SIZE, x->d_expert);
    hp->shared_gate = x->shared_gate;
    hp->expert_norms = x->norm;
    hp->d_shared = x->shared_gate
                       ? (int)read_int(o, x->shared_key, 1, MAX_SIZE, x->n_shared)
                       : read_own(o, x->shared_key, 0, MAX_SHARED, x->n_shared) * hp->d_expert;
    int widest = hp->d_expert > hp->d_model ? hp->d_expert : hp->d_model;
    if ((int64_t)hp->n_experts * widest > MAX_UNITS)
        REPORT(o, ENG_EUNSUPPORTED,
               "%s (%d) times %s (%d) or hidden_size (%d): more than %d are not supported",
               x->count_key, hp->n_experts, x->size_key, hp->d_expert, hp->d_model, MAX_UNITS);
    hp->route_sigmoid = x->sigmoid;
    hp->route_bias = x->bias_key ? read_bool(o, x->bias_key, true) : x->select_bias != NULL;
    hp->route_renorm = x->renorm_key ? read_bool(o, x->renorm_key, x->renorm) : x->renorm;
    hp->route_floor = x->floor_key ? read_real(o, x->floor_key, 0, 1, 1e-12) : 0;
    hp->route_eps = x->renorm_eps;
    hp->route_scale = x->scale_key ? read_real(o, x->scale_key, 1e-6, 1e6, 1) : 1;
    read_expert_layers(o, hp);
    read_int(o, "n_group", 1, 1, 1);
    if (x->off) refuse_if_set(o, x->off, "is not supported");
    if (hp->act != KERN_ACT_SILU && !hp->expert_norms)
        REPORT(o, ENG_EUNSUPPORTED, "hidden_act %s of experts is not supported; supported: silu",
               read_string(o, "hidden_act"));
}

/* ---- token ids ----------------------------------------------------------------------------- */

static bool ends_already(const struct eng_end_ids *eos, int64_t id)
{
    for (int i = 0; i < eos->n; i++)
        if (eos->ids[i] == id) return true;
    return false;
}

bool eng_config_add_end(struct eng_hparams *hp, int64_t id)
{
    if (id < 0 || id >= hp->vocab || ends_already(&hp->eos, id) || hp->eos.n == ENG_MAX_EOS)
        return false;
    hp->eos.ids[hp->eos.n++] = (int32_t)id;
    return true;
}

/* An id that is none of the model's is a fault only in the first file that has any: the others were
 * not written for this one. */
static void add_eos(const struct object *o, const json_t *id, bool first, struct eng_hparams *hp)
{
    int64_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    if (value < 0 || value >= hp->vocab) {
        if (!first) return;
        REPORT(o, ENG_EINVAL, "eos_token_id must be within the %d tokens of vocab_size",
               (int)hp->vocab);
    } else if (!eng_config_add_end(hp, value) && !ends_already(&hp->eos, value)) {
        REPORT(o, ENG_EUNSUPPORTED, "eos_token_id holds more than %d ids", ENG_MAX_EOS);
    }
}

/* Returns true if this file has end ids. */
static bool read_eos(const struct object *o, bool first, struct eng_hparams *hp)
{
    const json_t *value = find(o, "eos_token_id");
    if (!value) return false;
    if (!json_is_array(value)) add_eos(o, value, first, hp);
    for (size_t i = 0; i < json_array_size(value) && i <= ENG_MAX_EOS; i++)
        add_eos(o, json_array_get(value, i), first, hp);
    return true;
}

/* The end ids of these files and objects are one set. */
static void read_end_ids(const struct object *config, const struct object *text,
                         const struct object *generation, struct eng_hparams *hp)
{
    const struct object *places[] = {generation, config, text};
    bool found = false, given = false;
    for (int i = 0; i < 3; i++) {
        found = read_eos(places[i], !found, hp) || found;
        given = given || (i > 0 && json_object_get(places[i]->json, "eos_token_id"));
    }
    if (!found && !given) eng_config_add_end(hp, hp->family->eos_id);
}

/* ---- encoders ------------------------------------------------------------------------------ */

/* Local layers see a window of local_attention tokens, half of it on each side. */
static void read_local_layers(const struct object *o, struct eng_hparams *hp)
{
    int64_t period = read_int(o, "global_attn_every_n_layers", 1, ENG_MAX_LAYERS, 3);
    int window = (int)read_int(o, "local_attention", 2, INT32_MAX, 128) / 2;
    const json_t *list = find(o, "layer_types");
    if (list) read_listed_windows(o, list, window, hp);
    for (int i = 0; !list && i < hp->n_layers; i++)
        hp->layer_window[i] = i % period == 0 ? 0 : window;
}

static void read_positions(const struct object *o, struct eng_hparams *hp)
{
    const struct eng_encoder *e = hp->family->encoder;
    const char *type = read_string(o, "position_embedding_type");
    hp->pad_id = (int32_t)read_int(o, "pad_token_id", -1, MAX_VOCAB, e->positions_from_pad ? 1 : 0);
    if (!e->positions) return;
    if (type && strcmp(type, "absolute") != 0)
        REPORT(o, ENG_EUNSUPPORTED,
               "position_embedding_type %.100s is not supported; supported: absolute", type);
    hp->n_positions = (int)hp->ctx_train;
    hp->first_position = e->positions_from_pad ? hp->pad_id + 1 : 0;
    hp->ctx_max = hp->ctx_train - hp->first_position;
    if (hp->ctx_max < 1) wrong(o, "max_position_embeddings", "must be above pad_token_id + 1");
}

static void read_encoder(const struct object *o, struct eng_hparams *hp)
{
    const struct eng_encoder *e = hp->family->encoder;
    hp->encoder = true;
    hp->post_norms = e->post_norms;
    hp->ungated = e->ungated;
    hp->norm_bias = e->norm_bias;
    hp->attn_bias_qkv = hp->attn_bias_qkv || e->biases;
    hp->attn_bias_o = hp->attn_bias_o || e->biases;
    hp->mlp_bias = hp->mlp_bias || e->biases;
    if (!e->rope) hp->d_rot = 0;
    for (int i = 0; i < hp->n_layers; i++)
        hp->layer_rope[i] = e->rope;
    read_positions(o, hp);
    if (e->types) hp->n_types = (int)read_int(o, "type_vocab_size", 1, 64, 2);
    if (e->distances)
        hp->n_distances = (int)read_int(o, "relative_attention_num_buckets", 4, 1024, 32);
    if (hp->n_distances % 4 != 0) wrong(o, "relative_attention_num_buckets", "must divide by 4");
    if (e->local_layers) read_local_layers(o, hp);
    refuse_if_set(o, "is_decoder", "decoders of this family are not supported");
    for (const char *const *key = e->off; key && *key; key++)
        refuse_if_set(o, *key, "is not supported");
    if (read_real(o, "rotary_emb_fraction", 0, 1, 1) != 1)
        REPORT(o, ENG_EUNSUPPORTED, "%s other than 1 is not supported", "rotary_emb_fraction");
}

/* The names of the labels say how many there are. */
static void read_labels(const struct object *o, struct eng_hparams *hp)
{
    const json_t *names = find(o, "id2label");
    int64_t n = read_int(o, "num_labels", 1, MAX_SIZE, 2);
    if (names && !json_is_object(names)) wrong(o, "id2label", "must be an object");
    if (json_object_size(names) > 0) n = (int64_t)json_object_size(names);
    hp->n_labels = (int)(n < MAX_SIZE ? n : MAX_SIZE);
    if (!hp->encoder) hp->pad_id = (int32_t)read_int(o, "pad_token_id", -1, MAX_VOCAB, -1);
    const char *pooling = read_string(o, "classifier_pooling");
    hp->labels_of_mean = pooling && strcmp(pooling, "mean") == 0;
    if (pooling && strcmp(pooling, "mean") != 0 && strcmp(pooling, "cls") != 0)
        REPORT(o, ENG_EUNSUPPORTED,
               "classifier_pooling %.100s is not supported; supported: cls, mean", pooling);
    hp->label_bias = read_bool(o, "classifier_bias", false);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void read_all(const struct object *config, const struct object *generation,
                     struct eng_hparams *hp)
{
    struct object text = *config;
    const struct eng_family *f = hp->family = read_family(config, hp);
    if (!f) return;
    text.renames = f->encoder ? f->encoder->renames : f->renames;
    if (!*hp->architecture)
        snprintf(hp->architecture, sizeof(hp->architecture), "%s", f->architecture);
    refuse_unsupported(config, f);
    if (f->config_key) {
        text = (struct object){find(config, f->config_key), "config.json: text_config",
                               config->report, NULL};
        if (!json_is_object(text.json)) {
            wrong(config, f->config_key, text.json ? "must be an object" : "is missing");
            return;
        }
        refuse_unsupported(&text, f);
    }
    hp->act = read_act(&text, f);
    read_sizes(&text, hp);
    hp->tied = read_bool(&text, "tie_word_embeddings",
                         read_bool(config, "tie_word_embeddings", f->tie_word_embeddings));
    if (hp->task != ENG_TASK_TOKENS) hp->tied = false; /* the embedding is not a head */
    read_factors(&text, hp);
    read_rope(&text, hp);
    for (int i = 0; i < hp->n_layers; i++)
        hp->layer_rope[i] = true;
    if (f->nope_layers) read_nope(&text, hp);
    if (f->hybrid) read_hybrid(&text, hp);
    hp->n_kv_layers = f->encoder ? 1 : hp->n_layers; /* those of an encoder take turns */
    if (f->short_conv || f->delta) read_mixers(&text, hp);
    if (f->delta) read_delta(&text, hp);
    if (f->short_conv) {
        hp->n_taps = (int)read_int(&text, "conv_L_cache", 2, ENG_MAX_TAPS, 3);
        hp->conv_bias = read_bool(&text, "conv_bias", false);
        if (!f->mixture) adjust_ffn(&text, hp);
    }
    if (f->mixture) read_experts(&text, hp);
    read_windows(&text, hp);
    if (f->full_head_dim) read_full_layers(&text, config, hp);
    if (f->encoder) read_encoder(&text, hp);
    if (hp->task == ENG_TASK_LABELS) read_labels(config, hp);
    read_end_ids(config, &text, generation, hp);
    if (config->report->rc) return;
    assert(hp->n_kv_heads > 0 && hp->n_heads % hp->n_kv_heads == 0);
    assert(hp->d_rot <= hp->d_head && hp->d_rot % 2 == 0);
}

int eng_config_refuse_reader(const struct eng_hparams *hp, struct eng_report *r)
{
    return eng_report_problem(r, ENG_EUNSUPPORTED,
                              "%s: architecture %s is not supported: the model makes no tokens",
                              config_name, hp->architecture);
}

static json_t *parse(const char *text, size_t len, const char *name, struct eng_report *r)
{
    json_t *root = NULL;
    char err[512] = "";
    int rc = eng_json_parse(&root, text, len, name, err, sizeof(err));
    if (rc) eng_report_problem(r, rc, "%s", err);
    return root;
}

int eng_config_parse(struct eng_hparams *ret_hp, const char *config, size_t config_len,
                     const char *generation, size_t generation_len, struct eng_report *r)
{
    *ret_hp = (struct eng_hparams){.pad_id = -1, .soft_ids = {-1, -1, -1}};
    struct object c = {parse(config, config_len, config_name, r), config_name, r, NULL};
    struct object g = {NULL, generation_name, r, NULL};
    if (generation) g.json = parse(generation, generation_len, generation_name, r);
    if (c.json && (g.json || !generation)) read_all(&c, &g, ret_hp);
    json_decref((json_t *)c.json);
    json_decref((json_t *)g.json);

    struct eng_hash sum = eng_hash_bytes(config, config_len, (struct eng_hash){{1, 2}});
    if (generation)
        eng_hash_add(&sum, eng_hash_bytes(generation, generation_len, (struct eng_hash){{3, 4}}));
    memcpy(ret_hp->config_hash, sum.lane, sizeof(ret_hp->config_hash));
    return r->rc;
}

int eng_config_read(struct eng_hparams *ret_hp, const char *dir, struct eng_report *r)
{
    AUTO_FREE char *config = NULL, *generation = NULL;
    char err[512] = "";
    size_t config_len = 0, generation_len = 0;
    *ret_hp = (struct eng_hparams){0};
    int rc = file_load(dir, config_name, MAX_CONFIG_BYTES, &config, &config_len, err, sizeof(err));
    if (!rc && file_exists(dir, generation_name))
        rc = file_load(dir, generation_name, MAX_CONFIG_BYTES, &generation, &generation_len, err,
                       sizeof(err));
    if (rc)
        eng_report_problem(r, rc, "%s", err);
    else
        eng_config_parse(ret_hp, config, config_len, generation, generation_len, r);
    return r->rc;
}

int eng_config_read_gguf(struct eng_hparams *ret_hp, const struct eng_weights *weights,
                         struct eng_report *r)
{
    AUTO(buf_finish) struct buf text = {.max = MAX_CONFIG_BYTES};
    char err[512] = "", folder[4096], *generation = NULL;
    size_t generation_len = 0;
    struct eng_report own = {.err = err, .errlen = sizeof(err)};
    *ret_hp = (struct eng_hparams){0};
    const char *name = weights->shards[0].name, *dir = gguf_folder_of(name, folder, sizeof(folder));
    int rc = eng_gguf_config(weights, &text, r);
    if (!rc && dir)
        rc = file_load_optional(dir, generation_name, MAX_CONFIG_BYTES, &generation,
                                &generation_len, err, sizeof(err));
    if (!rc) rc = eng_config_parse(ret_hp, text.data, text.len, generation, generation_len, &own);
    if (own.rc)
        eng_report_problem(r, rc, "%s: its keys, read as %s", name, err);
    else if (rc && !r->rc)
        eng_report_problem(r, rc, "%s", err);
    free(generation);
    ret_hp->delta_tiled = true; /* in every file of the format */
    return r->rc;
}
