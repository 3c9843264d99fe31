/* SPDX-License-Identifier: MIT */
/*
 * The tensors a model must have, by the reference's names: found, checked against the
 * configuration, and planned into one arena. No memory for weights is allocated here.
 *
 * Tensors that are known to have no effect (frequencies of old files, a head next to tied
 * embeddings, the vision tower of a checkpoint whose text part is served) are ignored; any other
 * that the family does not use is refused, since the model would need it.
 */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/gguf_names.h"
#include "base/utf8.h"
#include "engine/eng_error.h"
#include "engine/kernels/blocks.h"
#include "engine/kernels/convert.h"
#include "engine/model/config.h"
#include "engine/model/family.h"
#include "engine/model/heads.h"
#include "engine/model/numerics.h"
#include "engine/model/plan.h"

enum {
    MATS_PER_LAYER = 9,
    PARTS_PER_MAT = 4, /* but of experts */
    MATS_OUTSIDE = 4 + ENG_MAX_HEAD_OPS,
    VECS_PER_LAYER = 13,
    VECS_OUTSIDE = 8 + ENG_MAX_HEAD_OPS,
    NAME_BYTES = 128
};

/* The check in progress. */
struct check {
    struct eng_model *m;
    struct eng_report *report;
    const struct eng_weights *weights; /* that tensors are looked for in */
    const char *prefix;                /* of the tensors' names */
};

static void report_missing(const struct check *c, const char *name)
{
    const struct eng_weights *w = c->weights;
    char buf[ENG_GGUF_NAME];
    if (w->gguf)
        eng_report_problem(c->report, ENG_EINVAL, "%s: tensor %s is missing", w->shards[0].name,
                           eng_gguf_file_name(w, name, buf));
    else
        eng_report_problem(c->report, ENG_EINVAL, "tensor %s is missing", name);
}

/* The tensor of that name if its dtype and shape are right, else NULL. */
static const struct eng_tensor *need_shape(const struct check *c, const char *name,
                                           const struct eng_tensor *shape, const char *fields)
{
    struct eng_tensor *t = eng_weights_find(c->weights, name);
    if (!t) {
        report_missing(c, name);
        return NULL;
    }
    t->used = true;
    if (t->dtype > ENG_DTYPE_BF16 && !(eng_dtype_is_blocks(t->dtype) && shape->rank > 1)) {
        eng_report_problem(c->report, ENG_EUNSUPPORTED,
                           "%s: tensor %s is %s; supported: F32, F16, BF16", t->shard->name,
                           t->file_name, eng_dtype_name(t->dtype));
        return NULL;
    }
    bool equal = t->rank == shape->rank;
    for (int i = 0; equal && i < t->rank; i++)
        equal = t->shape[i] == shape->shape[i];
    if (equal) return t;
    char got[ENG_SHAPE_TEXT], want[ENG_SHAPE_TEXT];
    eng_tensor_shape(t, got);
    eng_tensor_shape(shape, want);
    eng_report_problem(
        c->report, ENG_EINVAL, "%s: tensor %s is %s; %s %s (%s)", t->shard->name, t->file_name, got,
        c->weights->gguf ? "its keys require" : "config.json requires", want, fields);
    return NULL;
}

/* The same of [n_rows, n_cols]; n_cols 0: a vector. */
static const struct eng_tensor *need(const struct check *c, const char *name, int64_t n_rows,
                                     int64_t n_cols, const char *fields)
{
    struct eng_tensor shape = {.rank = n_cols ? 2 : 1, .shape = {n_rows, n_cols}};
    return need_shape(c, name, &shape, fields);
}

/* Adds a matrix to the plan; its parts follow by add_part. */
static struct plan_mat *add_mat(const struct check *c, struct eng_mat *mat, enum plan_role role,
                                int n_in)
{
    assert(c->m->load->n_mats < c->m->hp.n_layers * MATS_PER_LAYER + MATS_OUTSIDE);
    struct plan_mat *pm = &c->m->load->mats[c->m->load->n_mats++];
    *pm = (struct plan_mat){
        .mat = mat, .role = role, .n_groups = 1, .parts = c->m->load->parts + c->m->load->n_parts};
    mat->n_in = n_in;
    return pm;
}

/* A part of the matrix that was added last. */
static struct plan_part *new_part(const struct check *c, struct plan_mat *pm)
{
    c->m->load->n_parts++;
    return &pm->parts[pm->n_parts++];
}

/*
 * Rows [first_row, first_row + n_rows) of the `total` rows of NAME.weight, and of NAME.bias if
 * there is a bias.
 */
static struct plan_part *add_rows(const struct check *c, struct plan_mat *pm, const char *name,
                                  int first_row, int n_rows, int total, bool bias,
                                  const char *fields)
{
    char full[NAME_BYTES];
    struct plan_part *part = new_part(c, pm);
    part->first_row = first_row;
    part->n_rows = n_rows;
    snprintf(full, sizeof(full), "%s.weight", name);
    part->weight = need(c, full, total, pm->mat->n_in, fields);
    pm->mat->n_out += n_rows;
    if (!bias) return part;
    snprintf(full, sizeof(full), "%s.bias", name);
    part->bias = need(c, full, total, 0, fields);
    return part;
}

static struct plan_part *add_part(const struct check *c, struct plan_mat *pm, const char *name,
                                  int n_rows, bool bias, const char *fields)
{
    return add_rows(c, pm, name, 0, n_rows, n_rows, bias, fields);
}

/* Adds a vector of n numbers to the plan. */
static struct plan_vec *new_vec(const struct check *c, const float **vec, int n)
{
    assert(c->m->load->n_vecs < c->m->hp.n_layers * VECS_PER_LAYER + VECS_OUTSIDE);
    struct plan_vec *pv = &c->m->load->vecs[c->m->load->n_vecs++];
    *pv = (struct plan_vec){.vec = vec, .n = n, .factor = 1.0f};
    return pv;
}

/* The vector of that name and ending. */
static struct plan_vec *add_named_vec(const struct check *c, const float **vec, const char *name,
                                      const char *ending, int n, const char *fields)
{
    char full[NAME_BYTES + 8];
    snprintf(full, sizeof(full), "%s%s", name, ending);
    struct plan_vec *pv = new_vec(c, vec, n);
    pv->tensor = need(c, full, n, 0, fields);
    return pv;
}

/* NAME.weight, unless the family has no such vector. */
static void add_vec(const struct check *c, const float **vec, const char *name, int n,
                    const char *fields)
{
    bool plus_one = c->m->hp.family->norm_plus_one && !c->weights->gguf;
    if (name) add_named_vec(c, vec, name, ".weight", n, fields)->add = plus_one ? 1.0f : 0.0f;
}

/* NAME.bias of a norm, if the family's have one. */
static void add_norm_bias(const struct check *c, const float **vec, const char *name,
                          const char *fields)
{
    if (name && c->m->hp.norm_bias) add_named_vec(c, vec, name, ".bias", c->m->hp.d_model, fields);
}

/* A small table of rows, kept as f32. */
static void add_table(const struct check *c, const float **vec, const char *name, int n_rows,
                      int n_cols, const char *fields)
{
    if (!name) return;
    char full[NAME_BYTES];
    snprintf(full, sizeof(full), "%s%s.weight", c->prefix, name);
    int n;
    if (__builtin_mul_overflow(n_rows, n_cols, &n))
        eng_report_problem(c->report, ENG_EUNSUPPORTED,
                           "tensor %s is [%d, %d] (%s); at most %d numbers are supported", full,
                           n_rows, n_cols, fields, INT_MAX);
    else
        new_vec(c, vec, n)->tensor = need(c, full, n_rows, n_cols, fields);
}

/* The name of a tensor of layer i, without its ending; NULL if `rest` is. */
static const char *layer_name(char buf[NAME_BYTES], const struct check *c, int layer,
                              const char *rest)
{
    if (!rest) return NULL;
    const struct eng_encoder *e = c->m->hp.family->encoder;
    snprintf(buf, NAME_BYTES, "%s%s%d.%s", c->prefix, e ? e->layers : "layers.", layer, rest);
    return buf;
}

static enum plan_role layer_role(const struct eng_hparams *hp, int layer)
{
    return layer == 0 || layer == hp->n_layers - 1 ? PLAN_FINE : PLAN_MATRIX;
}

/* The gates of all heads, then their queries, from a tensor in which they alternate. */
static void plan_gated_q(const struct check *c, struct plan_mat *qkv, const char *name)
{
    const struct eng_hparams *hp = &c->m->hp;
    int d = hp->d_head, n = hp->n_heads * d;
    for (int first = d; first >= 0; first -= d) {
        struct plan_part *part = add_rows(c, qkv, name, first, n, 2 * n, hp->attn_bias_qkv,
                                          "2 x num_attention_heads x head_dim, hidden_size");
        part->d_head = d;
        part->stride = 2 * d;
    }
}

static void plan_qkv(const struct check *c, int i)
{
    const struct eng_hparams *hp = &c->m->hp;
    const struct eng_names *names = hp->family->names;
    struct eng_layer *l = &c->m->layers[i];
    int d = eng_layer_d_head(hp, i), n_q = hp->n_heads * d, n_kv = eng_layer_kv_heads(hp, i) * d;
    int n_parts = 3 - (hp->keys_are_values && eng_layer_is_full(hp, i));
    char name[NAME_BYTES];
    static const char q_fields[] = "num_attention_heads x head_dim, hidden_size";
    static const char kv_fields[] = "num_key_value_heads x head_dim, hidden_size";
    static const char fused_fields[] =
        "(num_attention_heads + 2 x num_key_value_heads) x head_dim, hidden_size";
    const struct {
        const char *own, *fields;
        int n_rows;
    } parts[] = {
        {names->q, q_fields, n_q}, {names->k, kv_fields, n_kv}, {names->v, kv_fields, n_kv}};

    struct plan_mat *qkv = add_mat(c, &l->qkv, layer_role(hp, i), hp->d_model);
    qkv->fine_row = n_q;
    if (hp->attn_gate) {
        plan_gated_q(c, qkv, layer_name(name, c, i, names->q));
        qkv->fine_row = 2 * n_q;
    }
    if (eng_layer_shares(hp, i)) n_parts = 1;
    for (int k = hp->attn_gate, first = 0; k < n_parts; first += parts[k++].n_rows) {
        struct plan_part *part;
        if (names->qkv)
            part = add_rows(c, qkv, layer_name(name, c, i, names->qkv), first, parts[k].n_rows,
                            n_q + 2 * n_kv, hp->attn_bias_qkv, fused_fields);
        else
            part = add_part(c, qkv, layer_name(name, c, i, parts[k].own), parts[k].n_rows,
                            hp->attn_bias_qkv, parts[k].fields);
        bool pairs = hp->family->rope_pairs || (c->weights->gguf && c->weights->gguf->pairs);
        if (pairs && k < 2) {
            part->pairs = hp->d_rot;
            part->d_head = hp->d_head;
        }
    }
}

static void plan_attention(const struct check *c, int i)
{
    const struct eng_hparams *hp = &c->m->hp;
    const struct eng_names *names = hp->family->names;
    struct eng_layer *l = &c->m->layers[i];
    char name[NAME_BYTES];
    bool rows = hp->qk_norm == ENG_QK_NORM_ROW;
    int d = eng_layer_d_head(hp, i), n_q = hp->n_heads * d, n_kv = eng_layer_kv_heads(hp, i) * d;

    plan_qkv(c, i);
    add_vec(c, &l->q_norm, layer_name(name, c, i, names->q_norm), rows ? n_q : d,
            rows ? "num_attention_heads x head_dim" : "head_dim");
    if (!eng_layer_shares(hp, i))
        add_vec(c, &l->k_norm, layer_name(name, c, i, names->k_norm), rows ? n_kv : d,
                rows ? "num_key_value_heads x head_dim" : "head_dim");
    struct plan_mat *o = add_mat(c, &l->o, PLAN_FINE, n_q);
    add_part(c, o, layer_name(name, c, i, names->o), hp->d_model, hp->attn_bias_o,
             "hidden_size, num_attention_heads x head_dim");
    add_vec(c, &l->attn_post, layer_name(name, c, i, names->attn_post), hp->d_model, "hidden_size");
    add_norm_bias(c, &l->attn_post_bias, layer_name(name, c, i, names->attn_post), "hidden_size");
}

/* A convolution, kept with the channels of a token side by side. */
static void add_conv(const struct check *c, struct eng_layer *l, const char *name, int n_channels,
                     const char *fields)
{
    const struct eng_hparams *hp = &c->m->hp;
    char full[NAME_BYTES + 8];
    struct eng_tensor shape = {.rank = 3, .shape = {n_channels, 1, hp->n_taps}};
    struct plan_vec *pv = new_vec(c, &l->conv, n_channels * hp->n_taps);
    snprintf(full, sizeof(full), "%s.weight", name);
    pv->n_cols = hp->n_taps;
    pv->tensor = need_shape(c, full, &shape, fields);
    if (hp->conv_bias) add_named_vec(c, &l->conv_bias, name, ".bias", n_channels, "hidden_size");
}

static void plan_conv(const struct check *c, int i)
{
    const struct eng_hparams *hp = &c->m->hp;
    const struct eng_names *names = hp->family->names;
    struct eng_layer *l = &c->m->layers[i];
    char name[NAME_BYTES];
    add_part(c, add_mat(c, &l->qkv, layer_role(hp, i), hp->d_model),
             layer_name(name, c, i, names->conv_in), 3 * hp->d_model, hp->conv_bias,
             "3 x hidden_size, hidden_size");
    add_conv(c, l, layer_name(name, c, i, names->conv), hp->d_model,
             "hidden_size, 1, conv_L_cache");
    add_part(c, add_mat(c, &l->o, PLAN_FINE, hp->d_model), layer_name(name, c, i, names->conv_out),
             hp->d_model, hp->conv_bias, "hidden_size, hidden_size");
}

static void plan_delta(const struct check *c, int i)
{
    const struct eng_hparams *hp = &c->m->hp;
    const struct eng_names *names = hp->family->names;
    struct eng_layer *l = &c->m->layers[i];
    int n_heads = hp->n_delta_values, n_v = n_heads * hp->d_delta_value;
    int n_qkv = 2 * hp->n_delta_keys * hp->d_delta_key + n_v;
    char name[NAME_BYTES];
    static const char heads[] = "linear_num_value_heads";
    static const char qkv_fields[] = "2 x linear_num_key_heads x linear_key_head_dim + "
                                     "linear_num_value_heads x linear_value_head_dim, hidden_size";
    static const char v_fields[] = "linear_num_value_heads x linear_value_head_dim, hidden_size";

    struct plan_mat *in = add_mat(c, &l->qkv, layer_role(hp, i), hp->d_model);
    add_part(c, in, layer_name(name, c, i, names->delta_qkv), n_qkv, false, qkv_fields);
    add_part(c, in, layer_name(name, c, i, names->delta_z), n_v, false, v_fields);
    add_part(c, in, layer_name(name, c, i, names->delta_b), n_heads, false, heads);
    add_part(c, in, layer_name(name, c, i, names->delta_a), n_heads, false, heads);
    in->fine_row = n_qkv + n_v;
    add_conv(c, l, layer_name(name, c, i, names->conv), n_qkv,
             "rows of in_proj_qkv, 1, linear_conv_kernel_dim");
    add_named_vec(c, &l->a_log, layer_name(name, c, i, names->a_log), "", n_heads, heads)->is_log =
        c->weights->gguf;
    add_named_vec(c, &l->dt_bias, layer_name(name, c, i, names->dt_bias), "", n_heads, heads);
    add_vec(c, &l->delta_norm, layer_name(name, c, i, names->delta_norm), hp->d_delta_value,
            "linear_value_head_dim");
    c->m->load->vecs[c->m->load->n_vecs - 1].add = 0;
    add_part(c, add_mat(c, &l->o, PLAN_FINE, n_v), layer_name(name, c, i, names->conv_out),
             hp->d_model, false, "hidden_size, linear_num_value_heads x linear_value_head_dim");
}

/*
 * A matrix of all experts of a layer. n_names tensors of n_rows make that of an expert, by their
 * names after "EXPERTS.E."; or, in a GGUF file, after "EXPERTS." those of all; or all are one,
 * named `whole`.
 */
static void plan_expert_mat(const struct check *c, int layer, struct plan_mat *pm, int n_rows,
                            const char *const *names, int n_names, const char *whole)
{
    const struct eng_hparams *hp = &c->m->hp;
    const struct eng_mixture *x = hp->family->mixture;
    const struct eng_tensor *stacks[2] = {NULL, NULL};
    char rest[NAME_BYTES / 2], name[NAME_BYTES];
    int n_in = pm->mat->n_in;
    static const char fields[] = "experts, rows and inputs of each";
    bool one = !x->experts || eng_weights_find(c->weights, layer_name(name, c, layer, whole));
    int n_stacks = one ? 1 : c->weights->gguf ? n_names : 0;
    int in_stack = one ? n_names : 1; /* tensors of an expert */
    struct eng_tensor shape = {.rank = 3, .shape = {hp->n_experts, in_stack * n_rows, n_in}};
    for (int i = 0; i < n_stacks; i++) {
        if (!one) snprintf(rest, sizeof(rest), "%s.%s.weight", x->experts, names[i]);
        stacks[i] = need_shape(c, layer_name(name, c, layer, one ? whole : rest), &shape, fields);
    }
    pm->n_groups = hp->n_experts;
    pm->interleaved = n_names > 1;
    for (int i = 0; i < hp->n_experts * n_names; i++) {
        if (n_stacks > 0) {
            *new_part(c, pm) = (struct plan_part){.weight = stacks[i % n_stacks],
                                                  .first_row = i / n_stacks * n_rows,
                                                  .n_rows = n_rows};
            continue;
        }
        snprintf(rest, sizeof(rest), "%s.%d.%s", x->experts, i / n_names, names[i % n_names]);
        add_part(c, pm, layer_name(name, c, layer, rest), n_rows, false, fields);
    }
    pm->mat->n_out =
        hp->n_experts * n_names * ((n_rows + KERN_PANEL - 1) / KERN_PANEL * KERN_PANEL);
}

static void plan_experts(const struct check *c, int i)
{
    const struct eng_hparams *hp = &c->m->hp;
    const struct eng_mixture *x = hp->family->mixture;
    struct eng_experts *e = &c->m->layers[i].experts;
    int n = hp->n_experts;
    char name[NAME_BYTES];
    const char *const ups[] = {x->gate, x->up}, *const downs[] = {x->down};
    e->router.takes_f32 = true;
    struct plan_mat *router = add_mat(c, &e->router, PLAN_ROUTER, hp->d_model);
    add_part(c, router, layer_name(name, c, i, x->router), n, false, "experts, hidden_size");
    if (x->shared_gate)
        add_part(c, router, layer_name(name, c, i, x->shared_gate), 1, false, "1, hidden_size");
    if (hp->route_bias)
        new_vec(c, &e->select_bias, n)->tensor =
            need(c, layer_name(name, c, i, x->select_bias), x->bias_rank2 ? 1 : n,
                 x->bias_rank2 ? n : 0, "experts");
    if (x->router_scale)
        add_named_vec(c, &e->router_norm, layer_name(name, c, i, x->router_scale), "", hp->d_model,
                      "hidden_size")
            ->factor = (float)(1 / sqrt((double)hp->d_model));
    if (x->expert_scale)
        add_named_vec(c, &e->scale, layer_name(name, c, i, x->expert_scale), "", n, "experts");
    add_vec(c, &e->norm, layer_name(name, c, i, x->norm), hp->d_model, "hidden_size");
    add_vec(c, &e->dense_post, layer_name(name, c, i, x->dense_post), hp->d_model, "hidden_size");
    add_vec(c, &e->post, layer_name(name, c, i, x->post), hp->d_model, "hidden_size");
    plan_expert_mat(c, i, add_mat(c, &e->gate_up, layer_role(hp, i), hp->d_model), hp->d_expert,
                    ups, 2, x->gate_up);
    plan_expert_mat(c, i, add_mat(c, &e->down, PLAN_FINE, hp->d_expert), hp->d_model, downs, 1,
                    x->all_down);
}

/* The name of a dense layer's tensor, or of the shared expert's. */
static const char *mlp_name(char buf[NAME_BYTES], const struct check *c, int layer,
                            const char *dense, const char *shared)
{
    char rest[NAME_BYTES / 2];
    if (!c->m->hp.layer_experts[layer] || c->m->hp.expert_norms)
        return layer_name(buf, c, layer, dense);
    snprintf(rest, sizeof(rest), "%s.%s", c->m->hp.family->mixture->shared, shared);
    return layer_name(buf, c, layer, rest);
}

static void plan_mlp(const struct check *c, int i)
{
    const struct eng_hparams *hp = &c->m->hp;
    const struct eng_names *names = hp->family->names;
    static const struct eng_mixture none;
    const struct eng_mixture *x = hp->family->mixture ? hp->family->mixture : &none;
    struct eng_layer *l = &c->m->layers[i];
    char name[NAME_BYTES];
    static const char fields[] = "intermediate_size, hidden_size";
    static const char fused_fields[] = "2 x intermediate_size, hidden_size";
    bool dense = !hp->layer_experts[i] || hp->expert_norms;
    int d_ff = dense ? eng_layer_d_ff(hp, i) : hp->d_shared;

    add_vec(c, &l->ffn_norm, layer_name(name, c, i, names->ffn_norm), hp->d_model, "hidden_size");
    if (hp->layer_experts[i]) plan_experts(c, i);
    if (d_ff == 0) return;
    struct plan_mat *gate_up = add_mat(c, &l->gate_up, layer_role(hp, i), hp->d_model);
    gate_up->interleaved = !hp->ungated;
    for (int k = hp->ungated; k < 2; k++) {
        if (names->gate_up)
            add_rows(c, gate_up, layer_name(name, c, i, names->gate_up), k * d_ff, d_ff, 2 * d_ff,
                     hp->mlp_bias, fused_fields);
        else
            add_part(c, gate_up,
                     mlp_name(name, c, i, k ? names->up : names->gate, k ? x->up : x->gate), d_ff,
                     hp->mlp_bias, fields);
    }
    if (!hp->ungated) l->gate_up.n_out = 2 * KERN_PANEL * ((d_ff + KERN_PANEL - 1) / KERN_PANEL);
    struct plan_mat *down = add_mat(c, &l->down, PLAN_FINE, d_ff);
    add_part(c, down, mlp_name(name, c, i, names->down, x->down), hp->d_model, hp->mlp_bias,
             "hidden_size, intermediate_size");
    add_vec(c, &l->ffn_post, layer_name(name, c, i, names->ffn_post), hp->d_model, "hidden_size");
    add_norm_bias(c, &l->ffn_post_bias, layer_name(name, c, i, names->ffn_post), "hidden_size");
}

/* Per-layer embeddings after the feed-forward layer, and the scale of the whole. */
static void plan_ple(const struct check *c, int i)
{
    const struct eng_hparams *hp = &c->m->hp;
    const struct eng_names *names = hp->family->names;
    struct eng_layer *l = &c->m->layers[i];
    char name[NAME_BYTES];
    if (names->scale) add_named_vec(c, &l->scale, layer_name(name, c, i, names->scale), "", 1, "1");
    if (hp->d_ple == 0) return;
    add_part(c, add_mat(c, &l->ple_gate, PLAN_FINE, hp->d_model),
             layer_name(name, c, i, names->ple_gate), hp->d_ple, false,
             "hidden_size_per_layer_input, hidden_size");
    add_part(c, add_mat(c, &l->ple_proj, PLAN_FINE, hp->d_ple),
             layer_name(name, c, i, names->ple_proj), hp->d_model, false,
             "hidden_size, hidden_size_per_layer_input");
    add_vec(c, &l->ple_post, layer_name(name, c, i, names->ple_post), hp->d_model, "hidden_size");
}

/* The table of per-layer embeddings, in the head's format, and what is not a layer's of them. */
static void plan_ple_inputs(const struct check *c)
{
    struct eng_model *m = c->m;
    const struct eng_hparams *hp = &m->hp;
    int n = hp->n_layers * hp->d_ple;
    char name[NAME_BYTES];
    if (n == 0) return;
    snprintf(name, sizeof(name), "%sembed_tokens_per_layer", c->prefix);
    add_rows(c, add_mat(c, &m->ple_table, PLAN_HEAD, n), name, 0, hp->vocab, hp->n_ple_rows, false,
             "vocab_size_per_layer_input, num_hidden_layers x hidden_size_per_layer_input");
    snprintf(name, sizeof(name), "%sper_layer_model_projection", c->prefix);
    add_part(c, add_mat(c, &m->ple_model, PLAN_FINE, hp->d_model), name, n, false,
             "num_hidden_layers x hidden_size_per_layer_input, hidden_size");
    snprintf(name, sizeof(name), "%sper_layer_projection_norm", c->prefix);
    add_vec(c, &m->ple_norm, name, hp->d_ple, "hidden_size_per_layer_input");
}

/* Where a layer's keys and values are: a new place, or, if it shares them, that of another. */
static int kv_place(const struct eng_hparams *hp, const struct eng_layer *layers, int i, int *n)
{
    if (!eng_layer_shares(hp, i)) return hp->encoder ? 0 : (*n)++;
    int donor = hp->n_layers - hp->n_shared - 1;
    while ((hp->layer_window[donor] > 0) != (hp->layer_window[i] > 0))
        donor--;
    return layers[donor].place;
}

static const char *embed_name(const struct eng_model *m)
{
    const struct eng_encoder *e = m->hp.family->encoder;
    return e ? e->embed : "embed_tokens";
}

/* The first of the family's prefixes that the file's names have; its first one if none has. */
static const char *find_prefix(const struct eng_model *m)
{
    char name[NAME_BYTES];
    for (const char *const *p = m->hp.family->prefixes; *p; p++) {
        snprintf(name, sizeof(name), "%s%s.weight", *p, embed_name(m));
        if (eng_weights_find(m->load->weights, name)) return *p;
    }
    return m->hp.family->prefixes[0];
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* A product with an activation, perhaps a norm, and the product that gives the logits. */
static void plan_encoder_labels(const struct check *c, const struct eng_label_head *labels)
{
    struct eng_model *m = c->m;
    struct eng_heads *h = &m->heads;
    int d = m->hp.d_model;
    char name[NAME_BYTES];
    h->pooling = m->hp.labels_of_mean ? ENG_POOL_MEAN : ENG_POOL_CLS;
    h->n_ops = 0;
    struct eng_head_op *op = &h->ops[h->n_ops++];
    op->act = labels->act;
    snprintf(name, sizeof(name), "%s%s", labels->dense_in_base ? c->prefix : "", labels->dense);
    add_part(c, add_mat(c, &op->mat, PLAN_POOLED, d), name, d,
             labels->bias_key ? m->hp.label_bias : true, "hidden_size, hidden_size");
    if (labels->norm) {
        op = &h->ops[h->n_ops++];
        op->kind = ENG_HEAD_NORM;
        add_vec(c, &op->norm, labels->norm, d, "hidden_size");
    }
    op = &h->ops[h->n_ops++];
    add_part(c, add_mat(c, &op->mat, PLAN_POOLED, d), labels->out, m->hp.n_labels, true,
             "id2label, hidden_size");
}

/* A head of one product: the logits of labels, from the last token. */
static void plan_labels(const struct check *c)
{
    struct eng_model *m = c->m;
    m->heads = (struct eng_heads){
        .pooling = ENG_POOL_LAST, .given = true, .n_ops = 1, .width = m->hp.n_labels};
    const struct eng_encoder *e = m->hp.family->encoder;
    if (e) {
        plan_encoder_labels(c, e->labels);
        return;
    }
    struct plan_mat *pm = add_mat(c, &m->heads.ops[0].mat, PLAN_POOLED, m->hp.d_model);
    add_part(c, pm, "score", m->hp.n_labels, false, "id2label, hidden_size");
}

/* The products of Dense modules, whose weights are in folders of their own. */
static void plan_dense(const struct check *c, const struct eng_dense *dense, const char *dir)
{
    struct eng_model *m = c->m;
    for (int i = 0; i < m->heads.n_ops && c->report->rc == 0; i++) {
        if (dense[i].n_in == 0) continue;
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", dir, dense[i].folder);
        struct eng_weights **weights = &m->load->dense_weights[i];
        if (eng_weights_open(weights, path, c->report)) return;
        struct check in = {m, c->report, *weights, ""};
        struct plan_mat *pm = add_mat(&in, &m->heads.ops[i].mat, PLAN_POOLED, dense[i].n_in);
        add_part(&in, pm, "linear", dense[i].n_out, dense[i].bias, "out_features, in_features");
    }
}

/* An encoder's tensors besides those of its layers. */
static void plan_encoder(const struct check *c)
{
    struct eng_model *m = c->m;
    const struct eng_hparams *hp = &m->hp;
    const struct eng_encoder *e = hp->family->encoder;
    char name[NAME_BYTES];
    add_table(c, &m->pos_rows, e->positions, hp->n_positions, hp->d_model,
              "max_position_embeddings, hidden_size");
    add_table(c, &m->type_rows, e->types, hp->n_types, hp->d_model, "type_vocab_size, hidden_size");
    add_table(c, &m->distances, e->distances, hp->n_distances, hp->n_heads,
              "relative_attention_num_buckets, num_attention_heads");
    snprintf(name, sizeof(name), "%s%s", c->prefix, e->embed_norm);
    add_vec(c, &m->embed_norm, name, hp->d_model, "hidden_size");
    add_norm_bias(c, &m->embed_norm_bias, name, "hidden_size");
    if (!e->final_norm) return;
    snprintf(name, sizeof(name), "%s%s", c->prefix, e->final_norm);
    add_vec(c, &m->final_norm, name, hp->d_model, "hidden_size");
}

static void plan_tensors(const struct check *c)
{
    struct eng_model *m = c->m;
    const struct eng_hparams *hp = &m->hp;
    char name[NAME_BYTES];
    static const char fields[] = "vocab_size, hidden_size";
    struct plan_mat *embed = add_mat(c, &m->embed, hp->tied ? PLAN_HEAD : PLAN_LOOKUP, hp->d_model);
    snprintf(name, sizeof(name), "%s%s", c->prefix, embed_name(m));
    add_part(c, embed, name, hp->vocab, false, fields);
    static void (*const plan_mixer[])(const struct check *c, int layer) = {
        [ENG_ATTENTION] = plan_attention, [ENG_CONV] = plan_conv, [ENG_DELTA] = plan_delta};
    int n_of_kind[ENG_DELTA + 1] = {0};
    for (int i = 0; i < hp->n_layers; i++) {
        bool unnormed = hp->encoder && i == 0; /* the norm of the embeddings is right before it */
        const char *norm = unnormed ? NULL : hp->family->names->attn_norm;
        add_vec(c, &m->layers[i].attn_norm, layer_name(name, c, i, norm), hp->d_model,
                "hidden_size");
        plan_mixer[hp->layer_mixer[i]](c, i);
        plan_mlp(c, i);
        plan_ple(c, i);
        m->layers[i].window = hp->layer_window[i];
        m->layers[i].place = kv_place(hp, m->layers, i, &n_of_kind[hp->layer_mixer[i]]);
    }
    plan_ple_inputs(c);
    if (hp->encoder) {
        plan_encoder(c);
        return;
    }
    const char *final_norm = hp->family->names->final_norm;
    snprintf(name, sizeof(name), "%s%s", c->prefix, final_norm ? final_norm : "norm");
    add_vec(c, &m->final_norm, name, hp->d_model, "hidden_size");
    if (hp->logits_scaling != 1) {
        add_vec(c, &m->head_norm, name, hp->d_model, "hidden_size");
        m->load->vecs[m->load->n_vecs - 1].factor = (float)(1 / hp->logits_scaling);
    }
    /* published checkpoints of several parts have the head inside language_model */
    bool inside = begins(c->prefix, "language_model.");
    snprintf(name, sizeof(name), "%slm_head", inside ? "language_model." : "");
    if (m->has_head && !hp->tied)
        add_part(c, add_mat(c, &m->head, PLAN_HEAD, hp->d_model), name, hp->vocab, false, fields);
}

/* Keys and values that a layer has in the file, but reads those of another. */
static bool is_shared_kv(const struct check *c, const char *name)
{
    int layer, at = 0;
    if (!begins(name, c->prefix)) return false;
    name += strlen(c->prefix);
    if (sscanf(name, "layers.%d.self_attn.%n", &layer, &at) < 1 || at == 0) return false;
    bool kv = begins(name + at, "k_proj.") || begins(name + at, "v_proj.") ||
              begins(name + at, "k_norm.");
    return kv && layer < c->m->hp.n_layers && eng_layer_shares(&c->m->hp, layer);
}

/* Returns true if a tensor that the family does not use has no effect on text. */
static bool has_no_effect(const struct check *c, const char *name)
{
    const struct eng_model *m = c->m;
    const struct eng_hparams *hp = &m->hp;
    static const char *const endings[] = {".rotary_emb.inv_freq", ".attn.bias", ".masked_bias",
                                          "embeddings.position_ids", "embeddings.token_type_ids"};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (utf8_ends_with(name, endings[i])) return true;
    for (const char *const *p = hp->family->other_parts; p && *p; p++)
        if (begins(name, *p)) return true;
    return is_shared_kv(c, name) ||
           ((hp->tied || !m->has_head) && utf8_ends_with(name, "lm_head.weight"));
}

/* Refuses tensors that the model would need and the family does not know. */
static void check_unused(const struct check *c)
{
    const struct eng_weights *w = c->m->load->weights;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct eng_tensor *t = w->by_name[i];
        if (!t->used && !has_no_effect(c, t->name))
            eng_report_problem(c->report, ENG_EUNSUPPORTED,
                               "%s: tensor %.200s is not part of a %s model of %d layers as %s it",
                               t->shard->name, t->file_name, c->m->hp.family->title,
                               c->m->hp.n_layers,
                               w->gguf ? "its keys describe" : "config.json describes");
    }
}

/* Counts parameters and names the dtype of the tensors in use. */
static void sum_up(struct eng_model *m)
{
    const struct eng_load *load = m->load;
    bool seen[ENG_DTYPE_COUNT] = {false};
    int n_seen = 0;
    int64_t n_idle = 0; /* of experts that a token does not choose */
    for (int i = 0; i < load->n_mats; i++)
        for (int j = 0; j < load->mats[i].n_parts; j++) {
            const struct plan_part *part = &load->mats[i].parts[j];
            int64_t n = (int64_t)part->n_rows * (load->mats[i].mat->n_in + (part->bias ? 1 : 0));
            seen[part->weight->dtype] = true;
            m->n_params += n;
            if (load->mats[i].n_groups > 1 && j % load->mats[i].n_groups >= m->hp.n_chosen)
                n_idle += n;
        }
    for (int i = 0; i < load->n_vecs; i++) {
        seen[load->vecs[i].tensor->dtype] |=
            !m->load->weights->gguf; /* where they always are F32 */
        if (load->vecs[i].vec != &m->head_norm) m->n_params += load->vecs[i].n;
    }
    m->n_active_params = m->n_params - n_idle;
    for (int i = 0; i < ENG_DTYPE_COUNT; i++) {
        n_seen += seen[i];
        if (seen[i]) m->weights_dtype = n_seen > 1 ? "mixed" : eng_dtype_name((enum eng_dtype)i);
    }
}

int eng_plan_make(struct eng_model *m, const char *dir, struct eng_report *r)
{
    m->load = calloc(1, sizeof(*m->load));
    if (!m->load) return eng_report_problem(r, ENG_ENOMEM, "no memory for the plan of the model");
    bool gguf = gguf_is_name(dir); /* its settings are in the files of the weights */
    int config_rc = gguf ? 0 : eng_config_read(&m->hp, dir, r);
    int weights_rc = eng_weights_open(&m->load->weights, dir, r);
    if (gguf && !weights_rc) config_rc = eng_config_read_gguf(&m->hp, m->load->weights, r);
    if (config_rc) m->hp.family = NULL; /* nothing of it can be relied on */
    if (config_rc || weights_rc) return r->rc;
    struct eng_dense dense[ENG_MAX_HEAD_OPS] = {{.n_in = 0}};
    bool labels = m->hp.task == ENG_TASK_LABELS;
    if (!labels && eng_heads_read(&m->heads, dense, m->hp.d_model, dir, m->hp.config_hash, r))
        return r->rc;
    /* a model of vectors may be saved without the head that its architecture has */
    m->has_head =
        m->hp.task == ENG_TASK_TOKENS &&
        (!m->heads.given || m->hp.tied || eng_weights_find(m->load->weights, "lm_head.weight"));

    size_t n = (size_t)m->hp.n_layers;
    m->layers = calloc(n, sizeof(*m->layers));
    size_t n_mats = n * MATS_PER_LAYER + MATS_OUTSIDE;
    m->load->mats = calloc(n_mats, sizeof(*m->load->mats));
    m->load->parts =
        calloc(n_mats * PARTS_PER_MAT + 3 * n * (size_t)m->hp.n_experts, sizeof(*m->load->parts));
    m->load->vecs = calloc(n * VECS_PER_LAYER + VECS_OUTSIDE, sizeof(*m->load->vecs));
    if (!m->layers || !m->load->mats || !m->load->parts || !m->load->vecs)
        return eng_report_problem(r, ENG_ENOMEM, "no memory for %zu layers", n);
    struct check c = {m, r, m->load->weights, find_prefix(m)};
    plan_tensors(&c);
    if (labels) plan_labels(&c);
    plan_dense(&c, dense, dir);
    if (r->rc == 0) check_unused(&c);
    if (r->rc == 0) sum_up(m);
    return r->rc;
}

/* Returns true if every matrix but those of heads over pooled rows is BF16 in the files. */
static bool is_bf16(const struct eng_load *load)
{
    for (int i = 0; i < load->n_mats; i++)
        for (int j = 0; j < load->mats[i].n_parts; j++)
            if (load->mats[i].role < PLAN_POOLED &&
                load->mats[i].parts[j].weight->dtype != ENG_DTYPE_BF16)
                return false;
    return true;
}

bool eng_plan_is_quantised(const struct eng_load *load)
{
    for (int i = 0; i < load->n_mats; i++)
        for (int j = 0; j < load->mats[i].n_parts; j++)
            if (load->mats[i].role != PLAN_LOOKUP &&
                eng_dtype_is_blocks(load->mats[i].parts[j].weight->dtype))
                return true;
    return false;
}

const struct eng_numerics *eng_plan_default_path(const struct eng_load *load)
{
    bool bf16 = kern_select("auto")->fast_bf16 && is_bf16(load);
    return eng_numerics_find(eng_plan_is_quantised(load) ? "file" : bf16 ? "bf16" : "exact");
}

int eng_plan_source(const struct plan_part *part, int row)
{
    assert(row >= 0 && row < part->n_rows);
    if (part->stride > 0) row = row / part->d_head * part->stride + row % part->d_head;
    if (part->pairs > 0) {
        int in_head = row % part->d_head, half = part->pairs / 2;
        if (in_head < half)
            row += in_head;
        else if (in_head < part->pairs)
            row += in_head - part->pairs + 1;
    }
    return part->first_row + row;
}

const struct plan_part *eng_plan_row(const struct plan_mat *pm, int row, int *ret_row)
{
    const struct plan_part *part = pm->parts;
    int n_parts = pm->n_parts;
    if (pm->n_groups > 1) {
        int n_rows = pm->mat->n_out / pm->n_groups;
        n_parts /= pm->n_groups;
        part += row / n_rows * n_parts;
        row %= n_rows;
    }
    const struct plan_part *last = part + n_parts - 1;
    if (pm->interleaved) {
        int block = row / KERN_PANEL;
        part += block % n_parts;
        row = block / n_parts * KERN_PANEL + row % KERN_PANEL;
    } else {
        while (part < last && row >= part->n_rows) {
            row -= part->n_rows;
            part++;
        }
    }
    if (row >= part->n_rows) return NULL;
    *ret_row = eng_plan_source(part, row);
    return part;
}

bool eng_plan_panel_dtype(const struct plan_mat *pm, int panel, enum eng_dtype *ret)
{
    const struct plan_part *first = NULL;
    for (int i = 0; i < KERN_PANEL; i++) {
        int row;
        const struct plan_part *part = eng_plan_row(pm, panel * KERN_PANEL + i, &row);
        if (!part) continue;
        if (!first) first = part;
        if (part->weight->dtype != first->weight->dtype) return false;
    }
    if (first) *ret = first->weight->dtype;
    return first;
}

/* ---- formats and places -------------------------------------------------------------------- */

/* The format before compression. */
static enum kern_wfmt choose_format(const struct eng_numerics *numerics, const struct plan_mat *pm)
{
    enum eng_dtype dtype = pm->parts[0].weight->dtype;
    if (pm->role == PLAN_LOOKUP || pm->role == PLAN_ROUTER || numerics->keep_source) {
        for (int i = 1; i < pm->n_parts; i++)
            if (pm->parts[i].weight->dtype != dtype) dtype = ENG_DTYPE_F32;
        return dtype == ENG_DTYPE_BF16  ? KERN_W_BF16
               : dtype == ENG_DTYPE_F16 ? KERN_W_F16
                                        : KERN_W_F32;
    }
    return pm->role == PLAN_MATRIX ? numerics->matrix
           : pm->role == PLAN_FINE ? numerics->fine
                                   : numerics->head;
}

/* The form of a panel's blocks, or the path's format for it. */
static enum kern_wfmt panel_format(const struct eng_numerics *numerics, const struct plan_mat *pm,
                                   int panel)
{
    enum eng_dtype dtype;
    bool keeps =
        numerics->keep_blocks && pm->role != PLAN_ROUTER && eng_plan_panel_dtype(pm, panel, &dtype);
    return keeps && eng_dtype_is_blocks(dtype) ? kern_blocks_form(eng_dtype_source(dtype))
                                               : choose_format(numerics, pm);
}

/*
 * The formats of a matrix: int4's finer part, or where the blocks of a file change. A third format
 * in one matrix is the path's own, from values.
 */
static void set_formats(const struct eng_numerics *numerics, struct plan_mat *pm)
{
    struct eng_mat *mat = pm->mat;
    int first = pm->fine_row / KERN_PANEL;
    mat->fmt = panel_format(numerics, pm, 0);
    mat->n_fine = 0;
    mat->fine_fmt = numerics->fine;
    if (!numerics->keep_blocks) {
        if (mat->fmt != mat->fine_fmt && mat->fmt == numerics->matrix && first > 0)
            mat->n_fine = mat->n_panels - first;
        return;
    }
    int n = mat->n_panels / pm->n_groups; /* the groups of a stack are alike */
    first = 1;
    while (first < n && panel_format(numerics, pm, first) == mat->fmt)
        first++;
    if (first == n) return;
    mat->n_fine = n - first;
    mat->fine_fmt = panel_format(numerics, pm, first);
    for (int i = first + 1; i < n; i++)
        if (panel_format(numerics, pm, i) != mat->fine_fmt) mat->fine_fmt = KERN_W_I8;
    if (!pm->interleaved) return;
    mat->n_fine = 0; /* pairs of panels go together */
    mat->fmt = KERN_W_I8;
}

/* True if panels of blocks are rounded again, to a format of the whole matrix. */
static bool rounds_blocks(const struct eng_numerics *numerics, const struct plan_mat *pm)
{
    const struct eng_mat *mat = pm->mat;
    enum eng_dtype dtype;
    for (int i = 0; numerics->keep_blocks && i < mat->n_panels / pm->n_groups; i++) {
        bool fine = i >= mat->n_panels - mat->n_fine;
        if (!eng_plan_panel_dtype(pm, i, &dtype) ||
            panel_format(numerics, pm, i) != (fine ? mat->fine_fmt : mat->fmt))
            return true;
    }
    return false;
}

/* Takes n bytes of the arena. Sizes were bounded by the configuration's limits. */
static size_t take(struct eng_load *load, size_t n)
{
    size_t at = load->arena_bytes;
    assert(at % PLAN_ALIGN == 0);
    load->arena_bytes = at + (n + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    return at;
}

/*
 * A residual scale r is not applied to each branch: the stream is kept divided by r, so embeddings
 * are divided once, and its norms, which divide by its size, get eps / r^2. Gemma was trained with
 * sqrt(hidden_size) rounded to bf16; `exact` follows the formula.
 */
void eng_plan_stream(struct eng_model *m)
{
    const struct eng_hparams *hp = &m->hp;
    float scale = (float)hp->embed_scale;
    bool bf16 = m->load->mats[0].parts[0].weight->dtype == ENG_DTYPE_BF16;
    if (hp->family->embed_sqrt && bf16 && !m->numerics->keep_source)
        scale = kern_f32_of_bf16(kern_bf16_of_f32(scale));
    m->embed_scale = (float)((double)scale / hp->residual_scale);
    m->stream_eps = hp->rms_eps / (hp->residual_scale * hp->residual_scale);
}

void eng_plan_place(struct eng_model *m, const char *gemm)
{
    struct eng_load *load = m->load;
    /* BLAS multiplies in f32: it is faster only than the plain C kernels */
    bool wants_blas =
        strcmp(gemm, "auto") ? strcmp(gemm, "blas") == 0 : strcmp(m->kern->name, "c") == 0;
    bool blas = wants_blas && m->numerics->act == KERN_A_F32;
    size_t reserve = 0; /* more bytes for compressed matrices if they must stay BF16 */
    load->arena_bytes = 0;
    m->n_rounded_mats = 0;
    for (int i = 0; i < load->n_vecs; i++)
        load->vecs[i].at = take(load, (size_t)load->vecs[i].n * sizeof(float));
    for (int i = 0; i < load->n_mats; i++) {
        struct plan_mat *pm = &load->mats[i];
        struct eng_mat *mat = pm->mat;
        mat->use_blas =
            blas && pm->role != PLAN_LOOKUP && pm->role != PLAN_ROUTER && pm->n_groups == 1;
        mat->k_pad = (mat->n_in + KERN_K_ALIGN - 1) / KERN_K_ALIGN * KERN_K_ALIGN;
        mat->n_panels = (mat->n_out + KERN_PANEL - 1) / KERN_PANEL;
        set_formats(m->numerics, pm);
        m->n_rounded_mats += rounds_blocks(m->numerics, pm);
        size_t plain_bytes = kern_panel_bytes(mat->fmt, mat->k_pad);
        if (!mat->use_blas && m->reading.coded)
            mat->fmt = kern_kept_as(m->kern, mat->fmt, mat->k_pad);
        mat->panel_bytes = kern_panel_bytes(mat->fmt, mat->k_pad);
        mat->fine_bytes = kern_panel_bytes(mat->fine_fmt, mat->k_pad);
        pm->panels_at = take(load, eng_mat_offset(mat, mat->n_panels));
        if (plain_bytes > mat->panel_bytes)
            reserve += (plain_bytes - mat->panel_bytes) * (size_t)mat->n_panels;
        if (pm->parts[0].bias)
            pm->bias_at = take(load, (size_t)mat->n_panels * KERN_PANEL * sizeof(float));
    }
    if (m->hp.tied) m->head = m->embed; /* its shape, for memory plans; panels are set later */
    m->weights_bytes = (int64_t)(load->arena_bytes + reserve);
}
