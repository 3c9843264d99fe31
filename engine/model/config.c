/* SPDX-License-Identifier: MIT */
/* config.json -> hyper-parameters; see config.h. */
#include "base/file.h"
#include "engine/model/config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/eng_error.h"
#include "engine/model/config_json.h"
#include "engine/model/family.h"
#include "engine/model/rope.h"
#include "engine/model/weight_hash.h"

static const char config_name[] = "config.json";
static const char generation_name[] = "generation_config.json";

/* Larger than any known model; products of any three fit into 63 bits. */
enum {
    MAX_CONFIG_BYTES = 4 << 20,
    MAX_SIZE = 1 << 20,
    MAX_HEADS = 4096,
    MAX_HEAD_DIM = 1024,
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
};

/* NULL: absent or null. */
static const json_t *find(const struct object *o, const char *key)
{
    const json_t *value = json_object_get(o->json, key);
    return json_is_null(value) ? NULL : value;
}

static void wrong(const struct object *o, const char *key, const char *what)
{
    eng_report_problem(o->report, ENG_EINVAL, "%s: %s %s", o->where, key, what);
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
    eng_report_problem(o->report, ENG_EINVAL, "%s: %s must be within %lld..%lld, it is %s",
                       o->where, key, (long long)min, (long long)max, got);
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
    eng_report_problem(o->report, ENG_EINVAL, "%s: %s must be within %g..%g, it is %s", o->where,
                       key, min, max, got);
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
    char known[256] = "";
    size_t at = 0;
    for (int i = 0; eng_family_at(i) && at < sizeof(known); i++)
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "",
                               eng_family_at(i)->architecture);
    eng_report_problem(o->report, ENG_EUNSUPPORTED, "%s: %s %.100s is not supported; supported: %s",
                       o->where, field, name, known);
}

/*
 * The reference reads model_type, most other tools architectures: if both are present, they must
 * agree.
 */
static const struct eng_family *read_family(const struct object *o)
{
    const char *architecture = first_architecture(o), *type = read_string(o, "model_type");
    const struct eng_family *family = NULL;
    if (architecture) {
        family = eng_family_by_architecture(architecture);
        if (!family) refuse_family(o, "architecture", architecture);
    } else if (type) {
        family = eng_family_by_model_type(type);
        if (!family) refuse_family(o, "model_type", type);
    } else {
        wrong(o, "architectures", "and model_type are missing");
    }
    if (family && type && strcmp(type, family->model_type) != 0)
        eng_report_problem(o->report, ENG_EINVAL,
                           "%s: model_type is %.100s, which does not match "
                           "architecture %s",
                           o->where, type, family->architecture);
    return family;
}

/* ---- unsupported features ------------------------------------------------------------------ */

static void refuse_if_set(const struct object *o, const char *key, const char *why)
{
    const json_t *value = find(o, key);
    bool off = !value || json_is_false(value) ||
               (json_is_integer(value) && json_integer_value(value) == 0);
    if (!off) eng_report_problem(o->report, ENG_EUNSUPPORTED, "%s: %s: %s", o->where, key, why);
}

static void refuse_partial_rotary(const struct object *o)
{
    if (read_real(o, "partial_rotary_factor", 0, 1, 1) != 1)
        eng_report_problem(o->report, ENG_EUNSUPPORTED,
                           "%s: partial_rotary_factor other than 1 is "
                           "not supported",
                           o->where);
}

static void refuse_unsupported(const struct object *o)
{
    refuse_if_set(o, "quantization_config", "quantised weights are not supported");
    refuse_if_set(o, "compression_config", "compressed weights are not supported");
    refuse_if_set(o, "num_experts", "mixtures of experts are not supported");
    refuse_if_set(o, "num_local_experts", "mixtures of experts are not supported");
    refuse_if_set(o, "is_encoder_decoder", "encoder-decoder models are not supported");
    refuse_if_set(o, "add_cross_attention", "cross attention is not supported");
    refuse_partial_rotary(o);
    /* Splits products in training; the results are the same. */
    read_int(o, "pretraining_tp", 1, MAX_SIZE, 1);
    const char *act = read_string(o, "hidden_act");
    if (act && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        eng_report_problem(o->report, ENG_EUNSUPPORTED,
                           "%s: hidden_act %.100s is not supported, "
                           "only silu",
                           o->where, act);
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
        eng_report_problem(o->report, ENG_EINVAL,
                           "%s: num_attention_heads (%d) is not a multiple "
                           "of num_key_value_heads (%d)",
                           o->where, hp->n_heads, hp->n_kv_heads);
    if (find(o, "head_dim")) {
        hp->d_head = (int)read_int(o, "head_dim", 1, MAX_HEAD_DIM, 0);
    } else if (f->head_dim) {
        hp->d_head = f->head_dim;
    } else if (hp->d_model % hp->n_heads != 0 || hp->d_model / hp->n_heads > MAX_HEAD_DIM) {
        eng_report_problem(o->report, ENG_EINVAL,
                           "%s: hidden_size (%d) does not divide by "
                           "num_attention_heads (%d) into heads of 2..%d",
                           o->where, hp->d_model, hp->n_heads, MAX_HEAD_DIM);
        hp->d_head = 2;
    } else {
        hp->d_head = hp->d_model / hp->n_heads;
    }
    if (hp->d_head % 2 != 0)
        eng_report_problem(o->report, ENG_EINVAL, "%s: head_dim (%d) must be even for RoPE",
                           o->where, hp->d_head);
}

static void read_sizes(const struct object *o, struct eng_hparams *hp)
{
    const struct eng_family *f = hp->family;
    hp->vocab = (int32_t)read_int(o, "vocab_size", 1, MAX_VOCAB, f->vocab_size);
    hp->d_model = (int)read_int(o, "hidden_size", 1, MAX_SIZE, f->hidden_size);
    hp->d_ff = (int)read_int(o, "intermediate_size", 1, MAX_SIZE, f->intermediate_size);
    hp->n_layers = (int)read_int(o, "num_hidden_layers", 1, ENG_MAX_LAYERS, f->n_layers);
    hp->ctx_train = read_int(o, "max_position_embeddings", 1, MAX_CTX, f->max_position_embeddings);
    hp->ctx_max = hp->ctx_train;
    hp->rms_eps = read_real(o, "rms_norm_eps", 0, 1, 1e-6);
    hp->tied = read_bool(o, "tie_word_embeddings", f->tie_word_embeddings);
    read_heads(o, hp);
    bool attention_bias = f->attention_bias_option && read_bool(o, "attention_bias", false);
    hp->attn_bias_qkv = f->qkv_bias || attention_bias;
    hp->attn_bias_o = attention_bias;
    hp->mlp_bias = f->mlp_bias_option && read_bool(o, "mlp_bias", false);
}

/* ---- RoPE ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum eng_rope_type type;
} rope_types[] = {
    {"default", ENG_ROPE_DEFAULT}, {"linear", ENG_ROPE_LINEAR},   {"llama3", ENG_ROPE_LLAMA3},
    {"yarn", ENG_ROPE_YARN},       {"dynamic", ENG_ROPE_DYNAMIC},
};

static enum eng_rope_type read_rope_type(const struct object *o)
{
    const char *now = read_string(o, "rope_type"), *old = read_string(o, "type");
    const char *name = now ? now : old ? old : "default";
    if (now && old && strcmp(now, old) != 0) wrong(o, "rope_type and type", "differ");
    for (size_t i = 0; i < sizeof(rope_types) / sizeof(rope_types[0]); i++)
        if (strcmp(name, rope_types[i].name) == 0) return rope_types[i].type;
    eng_report_problem(o->report, ENG_EUNSUPPORTED,
                       "%s: rope_type %.100s is not supported; "
                       "supported: default, linear, llama3, yarn, dynamic",
                       o->where, name);
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

/* The original context of llama3 and yarn: of this object, else of the config, else the model's. */
static double read_original_ctx(const struct object *o, const struct object *config,
                                const struct eng_hparams *hp)
{
    static const char key[] = "original_max_position_embeddings";
    double outer = read_real(config, key, 1, MAX_CTX, (double)hp->ctx_train);
    return read_real(o, key, 1, MAX_CTX, outer);
}

static void refuse_rope_by_layer(const struct object *o)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)o->json, key, value)
    {
        if (json_is_object(value))
            eng_report_problem(o->report, ENG_EUNSUPPORTED,
                               "%s: %.100s: RoPE that differs by type "
                               "of layer is not supported",
                               o->where, key);
    }
}

static void read_rope_scaling(const struct object *o, const struct object *config,
                              struct eng_hparams *hp)
{
    struct eng_rope *rope = &hp->rope;
    refuse_rope_by_layer(o);
    refuse_partial_rotary(o);
    rope->theta = read_real(o, "rope_theta", 1e-6, 1e30, rope->theta);
    rope->type = read_rope_type(o);
    if (rope->type == ENG_ROPE_DEFAULT) return;
    if (rope->type == ENG_ROPE_LLAMA3 || rope->type == ENG_ROPE_YARN)
        rope->original_ctx = read_original_ctx(o, config, hp);
    rope->factor = need_real(o, "factor", 1e-6, 1e6);
    if (rope->type == ENG_ROPE_LLAMA3) read_rope_llama3(o, rope);
    if (rope->type == ENG_ROPE_YARN) read_rope_yarn(o, rope);
}

static void read_rope(const struct object *o, struct eng_hparams *hp)
{
    hp->rope = (struct eng_rope){
        .type = ENG_ROPE_DEFAULT,
        .factor = 1,
        .attention_factor = 1,
        .theta = read_real(o, "rope_theta", 1e-6, 1e30, hp->family->rope_theta),
    };
    static const struct {
        const char *key, *where;
    } spellings[] = {
        {"rope_scaling", "config.json: rope_scaling"},
        {"rope_parameters", "config.json: rope_parameters"},
    };
    for (int i = 0; i < 2; i++) {
        const json_t *value = find(o, spellings[i].key);
        if (!value) continue;
        struct object scaling = {value, spellings[i].where, o->report};
        if (!json_is_object(value)) wrong(o, spellings[i].key, "must be an object");
        if (json_object_size(value) == 0) continue;
        read_rope_scaling(&scaling, o, hp);
        return;
    }
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

/* Returns true if layer i has the window according to layer_types. */
static bool listed_window(const struct object *o, const json_t *list, int i)
{
    const char *type = json_string_value(json_array_get(list, (size_t)i));
    if (type && strcmp(type, "full_attention") == 0) return false;
    if (type && strcmp(type, "sliding_attention") == 0) return true;
    eng_report_problem(o->report, ENG_EUNSUPPORTED,
                       "%s: layer_types[%d] is %.100s; supported: "
                       "full_attention, sliding_attention",
                       o->where, i, type ? type : "not a string");
    return false;
}

static void read_listed_windows(const struct object *o, const json_t *list, int window,
                                struct eng_hparams *hp)
{
    if (!json_is_array(list) || json_array_size(list) != (size_t)hp->n_layers) {
        wrong(o, "layer_types", "must be a list with one string per layer");
        return;
    }
    for (int i = 0; i < hp->n_layers; i++) {
        if (!listed_window(o, list, i)) continue;
        if (window == 0) {
            wrong(o, "layer_types", "asks for a sliding window, but sliding_window is not in use");
            return;
        }
        hp->layer_window[i] = window;
    }
}

static void read_windows(const struct object *o, struct eng_hparams *hp)
{
    const struct eng_family *f = hp->family;
    if (!f->window_always && !f->window_from_layer && !f->nope_layers) return;
    bool used = f->window_always || read_bool(o, "use_sliding_window", false);
    bool given = json_object_get(o->json, "sliding_window"); /* null: none; absent: the default */
    int window = 0;
    if (used || f->nope_layers)
        window = (int)read_int(o, "sliding_window", 1, INT32_MAX, given ? 0 : f->sliding_window);
    int64_t first = read_int(o, "max_window_layers", 0, INT32_MAX, 28);
    const json_t *list = f->window_always ? NULL : find(o, "layer_types");
    if (list) {
        read_listed_windows(o, list, window, hp);
        return;
    }
    for (int i = 0; used && i < hp->n_layers; i++) {
        if (f->window_always || (f->window_from_layer && i >= first) ||
            (f->nope_layers && !hp->layer_rope[i]))
            hp->layer_window[i] = window;
    }
}

/* ---- token ids ----------------------------------------------------------------------------- */

static void add_eos(const struct object *o, const json_t *id, struct eng_hparams *hp)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= hp->vocab) {
        eng_report_problem(o->report, ENG_EINVAL,
                           "%s: eos_token_id must be within the %d tokens "
                           "of vocab_size",
                           o->where, (int)hp->vocab);
    } else if (hp->n_eos_ids == ENG_MAX_EOS) {
        eng_report_problem(o->report, ENG_EUNSUPPORTED, "%s: eos_token_id holds more than %d ids",
                           o->where, ENG_MAX_EOS);
    } else {
        hp->eos_ids[hp->n_eos_ids++] = (int32_t)json_integer_value(id);
    }
}

/* Returns true if this file sets the end ids; null sets them only in config.json. */
static bool read_eos(const struct object *o, struct eng_hparams *hp)
{
    const json_t *value = find(o, "eos_token_id");
    if (!value) return false;
    if (!json_is_array(value)) add_eos(o, value, hp);
    for (size_t i = 0; i < json_array_size(value) && i <= ENG_MAX_EOS; i++)
        add_eos(o, json_array_get(value, i), hp);
    return true;
}

/* A begin-of-text id is only passed on, so one out of range is ignored. */
static bool read_bos(const struct object *o, struct eng_hparams *hp)
{
    const json_t *value = find(o, "bos_token_id");
    if (!json_is_integer(value)) return false;
    int64_t id = json_integer_value(value);
    hp->bos_id = id >= 0 && id < hp->vocab ? (int32_t)id : -1;
    return true;
}

static void read_token_ids(const struct object *config, const struct object *generation,
                           struct eng_hparams *hp)
{
    const struct eng_family *f = hp->family;
    if (!read_eos(generation, hp) && !read_eos(config, hp) &&
        !json_object_get(config->json, "eos_token_id") && f->eos_id >= 0 && f->eos_id < hp->vocab)
        hp->eos_ids[hp->n_eos_ids++] = f->eos_id;
    hp->bos_id = -1;
    if (!read_bos(generation, hp) && !read_bos(config, hp) &&
        !json_object_get(config->json, "bos_token_id") && f->bos_id < hp->vocab)
        hp->bos_id = f->bos_id;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void read_all(const struct object *config, const struct object *generation,
                     struct eng_hparams *hp)
{
    hp->family = read_family(config);
    if (!hp->family) return;
    refuse_unsupported(config);
    read_sizes(config, hp);
    read_rope(config, hp);
    for (int i = 0; i < hp->n_layers; i++)
        hp->layer_rope[i] = true;
    if (hp->family->nope_layers) read_nope(config, hp);
    read_windows(config, hp);
    read_token_ids(config, generation, hp);
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
    *ret_hp = (struct eng_hparams){.bos_id = -1};
    struct object c = {parse(config, config_len, config_name, r), config_name, r};
    struct object g = {NULL, generation_name, r};
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
    char *config = NULL, *generation = NULL, err[512] = "";
    size_t config_len = 0, generation_len = 0;
    *ret_hp = (struct eng_hparams){.bos_id = -1};
    int rc = file_load(dir, config_name, MAX_CONFIG_BYTES, &config, &config_len, err, sizeof(err));
    if (!rc && file_exists(dir, generation_name))
        rc = file_load(dir, generation_name, MAX_CONFIG_BYTES, &generation, &generation_len, err,
                       sizeof(err));
    if (rc)
        eng_report_problem(r, rc, "%s", err);
    else
        eng_config_parse(ret_hp, config, config_len, generation, generation_len, r);
    free(config);
    free(generation);
    return r->rc;
}
