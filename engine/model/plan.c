/* SPDX-License-Identifier: MIT */
/*
 * The tensors a model must have, by the reference's names: found, checked against the
 * configuration, and planned into one arena. No memory for weights is allocated here.
 *
 * Tensors that the model does not use (frequencies of old files, a head next to tied embeddings)
 * are ignored, as in the reference.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/eng_error.h"
#include "engine/model/config.h"
#include "engine/model/family.h"
#include "engine/model/numerics.h"
#include "engine/model/plan.h"

enum { MATS_PER_LAYER = 4, VECS_PER_LAYER = 4, NAME_BYTES = 96 };

/* The check in progress. */
struct check {
    struct eng_model *m;
    struct eng_report *report;
};

/* The tensor of that name if its dtype and shape are right, else NULL; n_cols 0: a vector. */
static const struct eng_tensor *need(const struct check *c, const char *name, int64_t n_rows,
                                     int64_t n_cols, const char *fields)
{
    struct eng_tensor *t = eng_weights_find(c->m->load->weights, name);
    if (!t) {
        eng_report_problem(c->report, ENG_EINVAL, "tensor %s is missing", name);
        return NULL;
    }
    t->used = true;
    if (t->dtype > ENG_DTYPE_BF16) {
        eng_report_problem(c->report, ENG_EUNSUPPORTED,
                           "%s: tensor %s is %s; supported: F32, F16, "
                           "BF16",
                           t->shard->name, name, eng_dtype_name(t->dtype));
        return NULL;
    }
    int rank = n_cols ? 2 : 1;
    if (t->rank == rank && t->shape[0] == n_rows && (!n_cols || t->shape[1] == n_cols)) return t;
    char got[ENG_SHAPE_TEXT], want[ENG_SHAPE_TEXT];
    eng_tensor_shape(t, got);
    eng_tensor_shape(&(struct eng_tensor){.rank = rank, .shape = {n_rows, n_cols}}, want);
    eng_report_problem(c->report, ENG_EINVAL, "%s: tensor %s is %s; config.json requires %s (%s)",
                       t->shard->name, name, got, want, fields);
    return NULL;
}

/* Adds a matrix to the plan; its parts follow by add_part. */
static struct plan_mat *add_mat(const struct check *c, struct eng_mat *mat, enum plan_role role,
                                int n_in)
{
    assert(c->m->load->n_mats < c->m->hp.n_layers * MATS_PER_LAYER + 2);
    struct plan_mat *pm = &c->m->load->mats[c->m->load->n_mats++];
    *pm = (struct plan_mat){.mat = mat, .role = role};
    mat->n_in = n_in;
    return pm;
}

/* Rows from the tensor PREFIX.weight, and PREFIX.bias if there is a bias. */
static void add_part(const struct check *c, struct plan_mat *pm, const char *prefix, int n_rows,
                     bool bias, const char *fields)
{
    char name[NAME_BYTES];
    struct plan_part *part = &pm->parts[pm->n_parts++];
    part->n_rows = n_rows;
    snprintf(name, sizeof(name), "%s.weight", prefix);
    part->weight = need(c, name, n_rows, pm->mat->n_in, fields);
    pm->mat->n_out += n_rows;
    if (!bias) return;
    snprintf(name, sizeof(name), "%s.bias", prefix);
    part->bias = need(c, name, n_rows, 0, fields);
}

static void add_vec(const struct check *c, const float **vec, const char *name, int n,
                    const char *fields)
{
    assert(c->m->load->n_vecs < c->m->hp.n_layers * VECS_PER_LAYER + 1);
    struct plan_vec *pv = &c->m->load->vecs[c->m->load->n_vecs++];
    *pv = (struct plan_vec){.vec = vec, .n = n, .tensor = need(c, name, n, 0, fields)};
}

/* The name of a tensor (or its prefix) of layer i. */
static const char *layer_name(char buf[NAME_BYTES], int layer, const char *rest)
{
    snprintf(buf, NAME_BYTES, "model.layers.%d.%s", layer, rest);
    return buf;
}

static enum plan_role layer_role(const struct eng_hparams *hp, int layer)
{
    return layer == 0 || layer == hp->n_layers - 1 ? PLAN_FINE : PLAN_MATRIX;
}

static void plan_attention(const struct check *c, int i)
{
    const struct eng_hparams *hp = &c->m->hp;
    struct eng_layer *l = &c->m->layers[i];
    int n_q = hp->n_heads * hp->d_head, n_kv = hp->n_kv_heads * hp->d_head;
    bool bias = hp->attn_bias_qkv;
    char name[NAME_BYTES];
    static const char q_fields[] = "num_attention_heads x head_dim, hidden_size";
    static const char kv_fields[] = "num_key_value_heads x head_dim, hidden_size";

    add_vec(c, &l->attn_norm, layer_name(name, i, "input_layernorm.weight"), hp->d_model,
            "hidden_size");
    struct plan_mat *qkv = add_mat(c, &l->qkv, layer_role(hp, i), hp->d_model);
    qkv->fine_row = n_q;
    add_part(c, qkv, layer_name(name, i, "self_attn.q_proj"), n_q, bias, q_fields);
    add_part(c, qkv, layer_name(name, i, "self_attn.k_proj"), n_kv, bias, kv_fields);
    add_part(c, qkv, layer_name(name, i, "self_attn.v_proj"), n_kv, bias, kv_fields);
    if (hp->family->qk_norm) {
        add_vec(c, &l->q_norm, layer_name(name, i, "self_attn.q_norm.weight"), hp->d_head,
                "head_dim");
        add_vec(c, &l->k_norm, layer_name(name, i, "self_attn.k_norm.weight"), hp->d_head,
                "head_dim");
    }
    struct plan_mat *o = add_mat(c, &l->o, layer_role(hp, i), n_q);
    add_part(c, o, layer_name(name, i, "self_attn.o_proj"), hp->d_model, hp->attn_bias_o,
             "hidden_size, num_attention_heads x head_dim");
}

static void plan_mlp(const struct check *c, int i)
{
    const struct eng_hparams *hp = &c->m->hp;
    struct eng_layer *l = &c->m->layers[i];
    char name[NAME_BYTES];
    static const char fields[] = "intermediate_size, hidden_size";

    add_vec(c, &l->ffn_norm, layer_name(name, i, "post_attention_layernorm.weight"), hp->d_model,
            "hidden_size");
    struct plan_mat *gate_up = add_mat(c, &l->gate_up, layer_role(hp, i), hp->d_model);
    gate_up->interleaved = true;
    add_part(c, gate_up, layer_name(name, i, "mlp.gate_proj"), hp->d_ff, hp->mlp_bias, fields);
    add_part(c, gate_up, layer_name(name, i, "mlp.up_proj"), hp->d_ff, hp->mlp_bias, fields);
    l->gate_up.n_out = 2 * KERN_PANEL * ((hp->d_ff + KERN_PANEL - 1) / KERN_PANEL);
    struct plan_mat *down = add_mat(c, &l->down, layer_role(hp, i), hp->d_ff);
    add_part(c, down, layer_name(name, i, "mlp.down_proj"), hp->d_model, hp->mlp_bias,
             "hidden_size, intermediate_size");
}

static void plan_tensors(const struct check *c)
{
    struct eng_model *m = c->m;
    const struct eng_hparams *hp = &m->hp;
    static const char fields[] = "vocab_size, hidden_size";
    struct plan_mat *embed = add_mat(c, &m->embed, hp->tied ? PLAN_HEAD : PLAN_LOOKUP, hp->d_model);
    add_part(c, embed, "model.embed_tokens", hp->vocab, false, fields);
    for (int i = 0; i < hp->n_layers; i++) {
        plan_attention(c, i);
        plan_mlp(c, i);
        m->layers[i].rope = hp->layer_rope[i];
        m->layers[i].window = hp->layer_window[i];
    }
    add_vec(c, &m->final_norm, "model.norm.weight", hp->d_model, "hidden_size");
    if (!hp->tied)
        add_part(c, add_mat(c, &m->head, PLAN_HEAD, hp->d_model), "lm_head", hp->vocab, false,
                 fields);
}

/* Counts parameters and names the dtype of the tensors in use. */
static void sum_up(struct eng_model *m)
{
    const struct eng_load *load = m->load;
    bool seen[ENG_DTYPE_BF16 + 1] = {false};
    for (int i = 0; i < load->n_mats; i++) {
        for (int j = 0; j < load->mats[i].n_parts; j++) {
            const struct plan_part *part = &load->mats[i].parts[j];
            seen[part->weight->dtype] = true;
            m->n_params += part->weight->n_elements + (part->bias ? part->bias->n_elements : 0);
        }
    }
    for (int i = 0; i < load->n_vecs; i++) {
        seen[load->vecs[i].tensor->dtype] = true;
        m->n_params += load->vecs[i].tensor->n_elements;
    }
    m->weights_dtype = "mixed";
    for (int i = 0; i <= ENG_DTYPE_BF16; i++)
        if (seen[i] && seen[0] + seen[1] + seen[2] == 1)
            m->weights_dtype = eng_dtype_name((enum eng_dtype)i);
}

int eng_plan_make(struct eng_model *m, const char *dir, struct eng_report *r)
{
    m->load = calloc(1, sizeof(*m->load));
    if (!m->load) return eng_report_problem(r, ENG_ENOMEM, "no memory for the plan of the model");
    int config_rc = eng_config_read(&m->hp, dir, r);
    int weights_rc = eng_weights_open(&m->load->weights, dir, r);
    if (config_rc) m->hp.family = NULL; /* nothing of it can be relied on */
    if (config_rc || weights_rc) return r->rc;

    size_t n = (size_t)m->hp.n_layers;
    m->layers = calloc(n, sizeof(*m->layers));
    m->load->mats = calloc(n * MATS_PER_LAYER + 2, sizeof(*m->load->mats));
    m->load->vecs = calloc(n * VECS_PER_LAYER + 1, sizeof(*m->load->vecs));
    if (!m->layers || !m->load->mats || !m->load->vecs)
        return eng_report_problem(r, ENG_ENOMEM, "no memory for %zu layers", n);
    struct check c = {m, r};
    plan_tensors(&c);
    if (r->rc == 0) sum_up(m);
    return r->rc;
}

bool eng_plan_is_bf16(const struct eng_load *load)
{
    for (int i = 0; i < load->n_mats; i++)
        for (int j = 0; j < load->mats[i].n_parts; j++)
            if (load->mats[i].parts[j].weight->dtype != ENG_DTYPE_BF16) return false;
    return true;
}

const struct plan_part *eng_plan_row(const struct plan_mat *pm, int row, int *ret_row)
{
    const struct plan_part *part = pm->parts;
    if (pm->interleaved) {
        int block = row / KERN_PANEL;
        part += block % pm->n_parts;
        row = block / pm->n_parts * KERN_PANEL + row % KERN_PANEL;
    } else {
        while (part < pm->parts + pm->n_parts - 1 && row >= part->n_rows) {
            row -= part->n_rows;
            part++;
        }
    }
    *ret_row = row;
    return row < part->n_rows ? part : NULL;
}

/* ---- formats and places -------------------------------------------------------------------- */

/* The format before compression. */
static enum kern_wfmt choose_format(const struct eng_numerics *numerics, const struct plan_mat *pm)
{
    if (pm->role == PLAN_LOOKUP || numerics->keep_source) {
        enum eng_dtype dtype = pm->parts[0].weight->dtype;
        for (int i = 1; i < pm->n_parts; i++)
            if (pm->parts[i].weight->dtype != dtype) dtype = ENG_DTYPE_F32;
        return dtype == ENG_DTYPE_BF16  ? KERN_W_BF16
               : dtype == ENG_DTYPE_F16 ? KERN_W_F16
                                        : KERN_W_F32;
    }
    return pm->role == PLAN_MATRIX ? numerics->matrix : numerics->head;
}

/* BLAS multiplies in f32: it is faster only than the plain C kernels. */
static bool choose_blas(const struct eng_model *m, const char *gemm)
{
    if (m->numerics->act != KERN_A_F32) return false;
    return strcmp(gemm, "blas") == 0 ||
           (strcmp(gemm, "auto") == 0 && strcmp(m->kern->name, "c") == 0);
}

/* Takes n bytes of the arena. Sizes were bounded by the configuration's limits. */
static size_t take(struct eng_load *load, size_t n)
{
    size_t at = load->arena_bytes;
    load->arena_bytes = at + (n + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    return at;
}

void eng_plan_place(struct eng_model *m, const char *gemm)
{
    struct eng_load *load = m->load;
    bool blas = choose_blas(m, gemm);
    size_t reserve = 0; /* what compressed matrices need more if they must stay BF16 */
    load->arena_bytes = 0;
    for (int i = 0; i < load->n_vecs; i++)
        load->vecs[i].at = take(load, (size_t)load->vecs[i].n * sizeof(float));
    for (int i = 0; i < load->n_mats; i++) {
        struct plan_mat *pm = &load->mats[i];
        struct eng_mat *mat = pm->mat;
        mat->fmt = choose_format(m->numerics, pm);
        mat->use_blas = blas && pm->role != PLAN_LOOKUP;
        mat->k_pad = (mat->n_in + KERN_K_ALIGN - 1) / KERN_K_ALIGN * KERN_K_ALIGN;
        mat->n_panels = (mat->n_out + KERN_PANEL - 1) / KERN_PANEL;
        size_t plain_bytes = kern_panel_bytes(mat->fmt, mat->k_pad);
        if (!mat->use_blas && m->reading.coded)
            mat->fmt = kern_kept_as(m->kern, mat->fmt, mat->k_pad);
        mat->panel_bytes = kern_panel_bytes(mat->fmt, mat->k_pad);
        bool splits = mat->fmt == KERN_W_I4 && pm->fine_row > 0;
        mat->n_fine = splits ? mat->n_panels - pm->fine_row / KERN_PANEL : 0;
        mat->fine_bytes = kern_panel_bytes(KERN_W_I6, mat->k_pad);
        pm->panels_at = take(load, eng_mat_offset(mat, mat->n_panels));
        if (plain_bytes > mat->panel_bytes)
            reserve += (plain_bytes - mat->panel_bytes) * (size_t)mat->n_panels;
        if (pm->parts[0].bias)
            pm->bias_at = take(load, (size_t)mat->n_panels * KERN_PANEL * sizeof(float));
    }
    if (m->hp.tied) m->head = m->embed; /* its shape, for memory plans; panels are set later */
    m->weights_bytes = (int64_t)(load->arena_bytes + reserve);
}

int64_t eng_model_rope_bytes(const struct eng_model *m, int64_t ctx)
{
    return 2 * ctx * (m->hp.d_head / 2) * (int64_t)sizeof(float);
}
