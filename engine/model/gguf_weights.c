/* SPDX-License-Identifier: MIT */
/* GGUF files as shards of a model: architectures, names of tensors, sets of files; see gguf.h. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/gguf.h"
#include "base/gguf_names.h"
#include "engine/eng_error.h"
#include "engine/model/family.h"
#include "engine/model/weights.h"

enum { ERR_BYTES = 512, MAX_FILES = 1024 };

/* clang-format off */
static const struct eng_gguf architectures[] = {
    {.name = "llama", .architecture = "LlamaForCausalLM", .pairs = true},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM"},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM"},
    {.name = "gemma2", .architecture = "Gemma2ForCausalLM", .keeps_window = true,
     .other_scale_layers = 46},
    {.name = "gemma3", .architecture = "Gemma3ForCausalLM", .keeps_window = true,
     .other_scale_layers = 62},
    {.name = "gemma4", .architecture = "Gemma4ForCausalLM", .keeps_window = true,
     .full_heads = true, .renorm = true},
    {.name = "phi3", .architecture = "Phi3ForCausalLM"},
    {.name = "granite", .architecture = "GraniteForCausalLM", .pairs = true},
    {.name = "olmo2", .architecture = "Olmo2ForCausalLM"}, /* Olmo3 if it has a window */
    {.name = "glm4", .architecture = "Glm4ForCausalLM"},
    {.name = "exaone4", .architecture = "Exaone4ForCausalLM"},
    {.name = "hunyuan-dense", .architecture = "HunYuanDenseV1ForCausalLM"},
    {.name = "lfm2", .architecture = "Lfm2ForCausalLM"},
    {.name = "ernie4_5", .architecture = "Ernie4_5ForCausalLM"},
    {.name = "smollm3", .architecture = "SmolLM3ForCausalLM", .pairs = true},
    {.name = "qwen35", .architecture = "Qwen3_5ForCausalLM"},
    {.name = "lfm2moe", .architecture = "Lfm2MoeForCausalLM", .renorm = true},
    {.name = "qwen3moe", .architecture = "Qwen3MoeForCausalLM", .renorm = true},
    {.name = "olmoe", .architecture = "OlmoeForCausalLM"},
};

#define AT(field) .at = offsetof(struct eng_names, field)
#define IN(field) .at = offsetof(struct eng_mixture, field)

/* STACK: of all experts, under the name of one without its number. */
enum name_kind { LAYER, EXPERTS, STACK };

/*
 * Names after "blk.N.", without an ending unless `whole`, and the family's for them. Of those with
 * the same name the first that the family has is meant.
 */
static const struct {
    const char *name;
    size_t at;
    bool whole;
    enum name_kind kind;
} layer_names[] = {
    {"attn_norm", AT(attn_norm), false}, {"attn_q", AT(q), false}, {"attn_k", AT(k), false},
    {"attn_v", AT(v), false}, {"attn_qkv", AT(qkv), false}, {"attn_q_norm", AT(q_norm), false},
    {"attn_k_norm", AT(k_norm), false}, {"attn_output", AT(o), false},
    {"post_attention_norm", AT(attn_post), false}, {"post_attention_norm", AT(ffn_norm), false},
    {"ffn_norm", AT(ffn_norm), false}, {"ffn_gate", AT(gate), false}, {"ffn_up", AT(up), false},
    {"ffn_up", AT(gate_up), false}, {"ffn_down", AT(down), false},
    {"post_ffw_norm", AT(ffn_post), false}, {"shortconv.in_proj", AT(conv_in), false},
    {"shortconv.conv", AT(conv), false}, {"shortconv.out_proj", AT(conv_out), false},
    {"attn_qkv", AT(delta_qkv), false}, {"attn_gate", AT(delta_z), false},
    {"ssm_beta", AT(delta_b), false}, {"ssm_alpha", AT(delta_a), false},
    {"ssm_a", AT(a_log), true}, {"ssm_dt.bias", AT(dt_bias), true},
    {"ssm_norm", AT(delta_norm), false}, {"ssm_conv1d", AT(conv), false},
    {"ssm_out", AT(conv_out), false}, {"ffn_gate_inp.scale", IN(router_scale), true, EXPERTS},
    {"ffn_gate_inp", IN(router), false, EXPERTS}, {"pre_ffw_norm_2", IN(norm), false, EXPERTS},
    {"post_ffw_norm_1", IN(dense_post), false, EXPERTS},
    {"post_ffw_norm_2", IN(post), false, EXPERTS},
    {"ffn_down_exps.scale", IN(expert_scale), true, EXPERTS},
    {"exp_probs_b.bias", IN(select_bias), true, EXPERTS},
    {"ffn_gate_up_exps.weight", IN(gate_up), true, EXPERTS},
    {"ffn_gate_exps", IN(gate), false, STACK}, {"ffn_up_exps", IN(up), false, STACK},
    {"ffn_down_exps", IN(down), false, STACK}, {"inp_gate", AT(ple_gate), false},
    {"proj", AT(ple_proj), false}, {"post_norm", AT(ple_post), false},
    {"layer_output_scale.weight", AT(scale), true},
};
/* clang-format on */

enum { N_LAYER_NAMES = sizeof(layer_names) / sizeof(layer_names[0]) };

/* And the reference's after the prefix; NULL: the family's final norm. */
static const struct {
    const char *name, *own;
    bool head; /* has no prefix */
} outer_names[] = {
    {"token_embd.weight", "embed_tokens", false},
    {"output_norm.weight", NULL, false},
    {"token_embd_norm.weight", NULL, false},
    {"output.weight", "lm_head", true},
    {"per_layer_token_embd.weight", "embed_tokens_per_layer", false},
    {"per_layer_model_proj.weight", "per_layer_model_projection", false},
    {"per_layer_proj_norm.weight", "per_layer_projection_norm", false},
};
enum { N_OUTER_NAMES = sizeof(outer_names) / sizeof(outer_names[0]) };

/* Those that the configuration takes in. */
static const char *const config_tensors[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                             "rope_factors_short.weight"};

static const struct eng_family *family_of(const struct eng_gguf *a)
{
    enum eng_task task;
    return eng_family_by_architecture(a->architecture, &task);
}

/* ---- names --------------------------------------------------------------------------------- */

/* The family's name of layer_names[i], or NULL. */
static const char *name_of(const struct eng_family *f, int i)
{
    const void *in = layer_names[i].kind == LAYER ? (const void *)f->names : f->mixture;
    return in ? *(const char *const *)((const char *)in + layer_names[i].at) : NULL;
}

/* The number of a layer in "blk.N.REST"; -1: it is none. */
static int layer_of(const char *name, const char *before, const char **ret_rest)
{
    size_t n = strlen(before);
    char *end;
    if (strncmp(name, before, n) != 0 || name[n] < '0' || name[n] > '9') return -1;
    long layer = strtol(name + n, &end, 10);
    *ret_rest = end + 1;
    return *end == '.' && layer < ENG_MAX_LAYERS ? (int)layer : -1;
}

/* The reference's name of a tensor into buf; false: it has none. */
static bool translate(const struct eng_family *f, const char *name, char buf[ENG_GGUF_NAME],
                      bool *ret_conv)
{
    const char *rest, *norm = f->names->final_norm ? f->names->final_norm : "norm";
    int layer = layer_of(name, "blk.", &rest);
    *ret_conv = false;
    for (int i = 0; layer < 0 && i < N_OUTER_NAMES; i++) {
        if (strcmp(name, outer_names[i].name) != 0) continue;
        snprintf(buf, ENG_GGUF_NAME, "%s%s.weight", outer_names[i].head ? "" : f->prefixes[0],
                 outer_names[i].own ? outer_names[i].own : norm);
        return true;
    }
    if (layer < 0) return false;
    for (int i = 0; i < N_LAYER_NAMES; i++) {
        size_t n = strlen(layer_names[i].name);
        if (!name_of(f, i) || strncmp(rest, layer_names[i].name, n) != 0) continue;
        if (rest[n] != (layer_names[i].whole ? '\0' : '.')) continue;
        bool stack = layer_names[i].kind == STACK;
        snprintf(buf, ENG_GGUF_NAME, "%slayers.%d.%s%s%s%s", f->prefixes[0], layer,
                 stack ? f->mixture->experts : "", stack ? "." : "", name_of(f, i), rest + n);
        *ret_conv = name_of(f, i) == f->names->conv && strcmp(rest + n, ".weight") == 0;
        return true;
    }
    return false;
}

const char *eng_gguf_file_name(const struct eng_weights *w, const char *name,
                               char buf[ENG_GGUF_NAME])
{
    static const char *const endings[] = {"", ".weight", ".bias"};
    const struct eng_family *f = family_of(w->gguf);
    char prefix[64], found[ENG_GGUF_NAME];
    const char *rest;
    bool conv;
    for (int i = 0; i < N_OUTER_NAMES; i++)
        if (translate(f, outer_names[i].name, found, &conv) && strcmp(found, name) == 0)
            return outer_names[i].name;
    snprintf(prefix, sizeof(prefix), "%slayers.", f->prefixes[0]);
    int layer = layer_of(name, prefix, &rest);
    for (int i = 0; layer >= 0 && i < 3 * N_LAYER_NAMES; i++) {
        snprintf(buf, ENG_GGUF_NAME, "blk.%d.%s%s", layer, layer_names[i / 3].name, endings[i % 3]);
        if (translate(f, buf, found, &conv) && strcmp(found, name) == 0) return buf;
    }
    return name;
}

/* ---- tensors ------------------------------------------------------------------------------- */

static int refuse_type(const struct gguf *g, const struct gguf_tensor *t, struct eng_report *r)
{
    char known[256];
    int at = snprintf(known, sizeof(known), "F32, F16, BF16");
    for (int i = ENG_DTYPE_Q4_0; i < ENG_DTYPE_COUNT; i++)
        at += snprintf(known + at, sizeof(known) - (size_t)at, ", %s",
                       eng_dtype_name((enum eng_dtype)i));
    return eng_report_problem(r, ENG_EUNSUPPORTED, "%s: tensor %s is %s; read are %s", g->name,
                              t->name, gguf_block_type(t->type)->name, known);
}

/* Dimensions in the reference's order; a convolution's with the 1 between them. */
static void set_shape(struct eng_tensor *to, const struct gguf_tensor *t, bool conv)
{
    to->rank = t->n_dims;
    to->n_elements = 1;
    for (int i = 0; i < t->n_dims; i++) {
        to->shape[i] = t->dims[t->n_dims - 1 - i];
        to->n_elements *= to->shape[i];
    }
    if (!conv || to->rank != 2) return;
    to->rank = 3;
    to->shape[2] = to->shape[1];
    to->shape[1] = 1;
}

static bool find_type(const struct gguf_tensor *t, enum eng_dtype *ret)
{
    return eng_dtype_find(gguf_block_type(t->type)->name, ret) &&
           (*ret <= ENG_DTYPE_BF16 || eng_dtype_is_blocks(*ret));
}

/* first_left_out: layers from here on are for drafts, and no part of the model. */
static int add_tensor(struct eng_shard *s, const struct gguf_tensor *t,
                      const struct eng_family *family, int64_t first_left_out, struct eng_report *r)
{
    struct eng_tensor *to = &s->tensors[s->n_tensors];
    char *name = s->names + s->n_tensors++ * ENG_GGUF_NAME;
    const char *rest;
    bool conv;
    *to = (struct eng_tensor){.name = t->name,
                              .file_name = t->name,
                              .offset = t->offset,
                              .n_bytes = t->n_bytes,
                              .shard = s};
    if (!find_type(t, &to->dtype)) return refuse_type(s->gguf, t, r);
    if (translate(family, t->name, name, &conv)) to->name = name;
    set_shape(to, t, conv);
    for (size_t i = 0; i < sizeof(config_tensors) / sizeof(config_tensors[0]); i++)
        to->used = to->used || strcmp(t->name, config_tensors[i]) == 0;
    if (layer_of(t->name, "blk.", &rest) >= first_left_out) to->used = true;
    return 0;
}

static int add_tensors(struct eng_weights *w, struct eng_shard *s, struct eng_report *r)
{
    const struct gguf *g = s->gguf, *first = w->shards[0].gguf;
    const struct eng_family *family = family_of(w->gguf);
    char key[128], err[ERR_BYTES];
    int64_t n_blocks = ENG_MAX_LAYERS, n_drafts = 0;
    snprintf(key, sizeof(key), "%s.block_count", w->gguf->name);
    int rc = gguf_int(first, key, 1, ENG_MAX_LAYERS, &n_blocks, err, sizeof(err));
    snprintf(key, sizeof(key), "%s.nextn_predict_layers", w->gguf->name);
    if (rc >= 0) rc = gguf_int(first, key, 0, n_blocks - 1, &n_drafts, err, sizeof(err));
    if (rc < 0) return eng_report_problem(r, rc, "%s", err);
    s->tensors = calloc(g->n_tensors + 1, sizeof(*s->tensors));
    s->names = calloc(g->n_tensors + 1, ENG_GGUF_NAME);
    if (!s->tensors || !s->names)
        return eng_report_problem(r, ENG_ENOMEM, "%s: no memory for its tensors", g->name);
    int64_t first_left_out = n_drafts ? n_blocks - n_drafts : ENG_MAX_LAYERS;
    for (size_t i = 0; i < g->n_tensors; i++)
        add_tensor(s, &g->tensors[i], family, first_left_out, r);
    return r->rc;
}

/* ---- files --------------------------------------------------------------------------------- */

/* The architecture of a model's first file; refuses files of other things, and others. */
static int find_architecture(struct eng_weights *w, const struct gguf *g, struct eng_report *r)
{
    const char *type = "model", *name = NULL;
    char err[ERR_BYTES], key[128];
    int rc = gguf_string(g, "general.type", &type, err, sizeof(err));
    if (rc >= 0) rc = gguf_string(g, "general.architecture", &name, err, sizeof(err));
    if (rc < 0) return eng_report_problem(r, rc, "%s", err);
    if (strcmp(type, "mmproj") == 0 || (name && strcmp(name, "clip") == 0))
        return eng_report_problem(r, ENG_EUNSUPPORTED, "%s: is a projector (mmproj), not a model",
                                  g->name);
    if (strcmp(type, "model") != 0)
        return eng_report_problem(r, ENG_EUNSUPPORTED, "%s: is an %.100s, not a model", g->name,
                                  type);
    if (!name)
        return eng_report_problem(r, ENG_EINVAL, "%s: key general.architecture is missing",
                                  g->name);
    for (size_t i = 0; i < sizeof(architectures) / sizeof(architectures[0]); i++)
        if (strcmp(name, architectures[i].name) == 0) w->gguf = &architectures[i];
    if (!w->gguf)
        return eng_report_problem(
            r, ENG_EUNSUPPORTED, "%s: general.architecture %.100s is not supported", g->name, name);
    int64_t n_experts = 0;
    snprintf(key, sizeof(key), "%s.expert_count", name);
    rc = gguf_int(g, key, 0, INT32_MAX, &n_experts, err, sizeof(err));
    if (rc < 0) return eng_report_problem(r, rc, "%s", err);
    if (n_experts == 0 || family_of(w->gguf)->mixture) return 0;
    return eng_report_problem(r, ENG_EUNSUPPORTED,
                              "%s: key %s is %lld: experts are not supported in this architecture",
                              g->name, key, (long long)n_experts);
}

int eng_gguf_check(const struct gguf *g, struct eng_report *r)
{
    struct eng_weights w = {0};
    char err[ERR_BYTES];
    int64_t no = 0;
    enum eng_dtype dtype;
    int rc = gguf_int(g, "split.no", 0, INT32_MAX, &no, err, sizeof(err));
    if (rc < 0) return eng_report_problem(r, rc, "%s", err);
    if (no == 0) find_architecture(&w, g, r);
    for (size_t i = 0; !r->rc && i < g->n_tensors; i++)
        if (!find_type(&g->tensors[i], &dtype)) refuse_type(g, &g->tensors[i], r);
    return r->rc;
}

/* File i of n of a set. */
static int open_file(struct eng_weights *w, const char *path, int i, int n, int64_t *ret_tensors,
                     struct eng_report *r)
{
    struct eng_shard *s = &w->shards[w->n_shards++];
    char err[ERR_BYTES];
    int64_t no = 0, count = 1;
    *s = (struct eng_shard){.fd = -1, .name = strdup(path)};
    if (!s->name) return eng_report_problem(r, ENG_ENOMEM, "%s: no memory", path);
    int rc = gguf_open(&s->gguf, NULL, path, 0, err, sizeof(err));
    if (rc) return eng_report_problem(r, rc, "%s", err);
    s->fd = s->gguf->fd;
    rc = gguf_int(s->gguf, "split.count", 0, INT32_MAX, &count, err, sizeof(err));
    if (rc >= 0) rc = gguf_int(s->gguf, "split.no", 0, INT32_MAX, &no, err, sizeof(err));
    if (rc >= 0 && i == 0)
        rc = gguf_int(s->gguf, "split.tensors.count", 0, INT32_MAX, ret_tensors, err, sizeof(err));
    if (rc < 0) return eng_report_problem(r, rc, "%s", err);
    if (n > 1 ? count != n || no != i : count > 1)
        return eng_report_problem(
            r, ENG_EINVAL,
            "%s: keys split.no and split.count say part %lld of %lld, the name part %d of %d", path,
            (long long)no + 1, (long long)count, i + 1, n);
    return 0;
}

int eng_gguf_open(struct eng_weights *w, const char *path, struct eng_report *r)
{
    size_t n_tensors = 0;
    int64_t want = -1;
    int n;
    char name[4096];
    gguf_split(path, &n);
    if (n > MAX_FILES)
        return eng_report_problem(r, ENG_EINVAL, "%s: names a set of more than %d files", path,
                                  MAX_FILES);
    w->shards = calloc((size_t)n, sizeof(*w->shards));
    if (!w->shards) return eng_report_problem(r, ENG_ENOMEM, "no memory for %d files", n);
    for (int i = 0; i < n; i++) {
        if (gguf_split_name(path, i + 1, name, sizeof(name)))
            return eng_report_problem(r, ENG_EINVAL, "%s: the path is too long", path);
        int rc = open_file(w, name, i, n, &want, r);
        if (!rc && i == 0) rc = find_architecture(w, w->shards[0].gguf, r);
        if (!rc) add_tensors(w, &w->shards[i], r);
        if (rc) return rc;
        n_tensors += w->shards[i].n_tensors;
    }
    if (n > 1 && want >= 0 && (size_t)want != n_tensors)
        eng_report_problem(r, ENG_EINVAL,
                           "%s: key split.tensors.count is %lld, its files have %zu tensors",
                           w->shards[0].name, (long long)want, n_tensors);
    return r->rc;
}
