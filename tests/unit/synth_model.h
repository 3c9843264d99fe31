/* SPDX-License-Identifier: MIT */
/*
 * Small models built in memory from random numbers, and the plain double-precision transformer they
 * are compared with. One test program includes this once.
 *
 * The reference reads the weights back from the packed panels (kern->unpack_row), so that what it
 * shows is the error of the arithmetic, not of storing weights in fewer bits.
 */
#pragma once

#include <math.h>

#include "engine/kernels/kernels.h"
#include "engine/model/load.h"
#include "engine/model/model.h"
#include "engine/model/numerics.h"
#include "test.h"

struct synth_shape {
    const char *name;
    int n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, vocab;
    bool qk_norm, bias, tied;
    int window;     /* of the odd layers; 0: none */
    int nope_layer; /* a layer without RoPE; -1: none */
    int n_taps;     /* of the even layers, which are convolutions; 0: none is; */
    struct {
        int n_keys, n_values, d_key, d_value;
    } delta; /* or delta nets, if there are heads */
};

enum { SYNTH_CTX = 1200 };

/* xorshift: the same numbers everywhere. */
static uint64_t synth_state;

static float synth_random(void)
{
    synth_state ^= synth_state << 13;
    synth_state ^= synth_state >> 7;
    synth_state ^= synth_state << 17;
    return (float)((double)(int64_t)synth_state * 0x1p-63);
}

static void *synth_alloc(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    REQUIRE(p != NULL);
    memset(p, 0, bytes);
    return p;
}

static float *synth_vector(int n, float mean, float spread)
{
    float *v = synth_alloc((size_t)n * sizeof(*v));
    for (int i = 0; i < n; i++)
        v[i] = mean + spread * synth_random();
    return v;
}

/* Whether row i is one of n_out; negative: of so many gate rows and as many up rows. */
static bool synth_has_row(int n_out, int i)
{
    return n_out < 0 ? i / (2 * KERN_PANEL) * KERN_PANEL + i % KERN_PANEL < -n_out : i < n_out;
}

/* One matrix; n_out negative: panels of gate rows and of up rows take turns. */
static struct eng_mat synth_mat(const struct kern *kern, enum kern_wfmt fmt, int n_out, int n_in,
                                bool bias, float spread)
{
    int n_pairs = (KERN_PANEL - 1 - n_out) / KERN_PANEL;
    struct eng_mat m = {
        .fmt = fmt, .n_out = n_out < 0 ? 2 * KERN_PANEL * n_pairs : n_out, .n_in = n_in};
    m.k_pad = (n_in + KERN_K_ALIGN - 1) / KERN_K_ALIGN * KERN_K_ALIGN;
    m.n_panels = (m.n_out + KERN_PANEL - 1) / KERN_PANEL;
    m.panel_bytes = kern_panel_bytes(fmt, m.k_pad);
    m.panels = synth_alloc((size_t)m.n_panels * m.panel_bytes);
    float *rows = synth_vector(KERN_PANEL * n_in, 0, 0);
    for (int p = 0; p < m.n_panels; p++) {
        const void *row[KERN_PANEL];
        for (int i = 0; i < KERN_PANEL; i++) {
            bool is_row = synth_has_row(n_out, p * KERN_PANEL + i);
            row[i] = is_row ? rows + (size_t)i * (size_t)n_in : NULL;
            for (int k = 0; k < n_in; k++)
                rows[(size_t)i * (size_t)n_in + (size_t)k] = spread * synth_random();
        }
        kern->pack_panel(fmt, KERN_SRC_F32, row, NULL, n_in, m.k_pad,
                         m.panels + (size_t)p * m.panel_bytes);
    }
    free(rows);
    if (bias) {
        float *b = synth_vector(m.n_panels * KERN_PANEL, 0, 0.3f);
        for (int i = 0; i < m.n_panels * KERN_PANEL; i++)
            if (!synth_has_row(n_out, i)) b[i] = 0;
        m.bias = b;
    }
    return m;
}

static void synth_rope(struct eng_model *m, int nope_layer)
{
    int half = m->hp.d_head / 2;
    float *cosines = synth_alloc(2 * (size_t)SYNTH_CTX * (size_t)half * sizeof(*cosines));
    float *sines = cosines + (size_t)SYNTH_CTX * (size_t)half;
    for (int pos = 0; pos < SYNTH_CTX; pos++)
        for (int i = 0; i < half; i++) {
            double angle = pos * pow(10000.0, -2.0 * i / m->hp.d_head);
            cosines[pos * half + i] = (float)cos(angle);
            sines[pos * half + i] = (float)sin(angle);
        }
    m->ropes = cosines;
    for (int i = 0; i < m->hp.n_layers; i++)
        if (i != nope_layer) {
            m->layers[i].rope_cos = cosines;
            m->layers[i].rope_sin = sines;
        }
    m->ctx = SYNTH_CTX;
}

static void synth_layer(struct eng_layer *l, const struct eng_model *m, const struct synth_shape *s,
                        int i)
{
    const struct kern *k = m->kern;
    enum kern_wfmt fmt = m->numerics->matrix;
    int d = s->d_model;
    float spread = 1.7f / sqrtf((float)d);
    *l = (struct eng_layer){
        .attn_norm = synth_vector(d, 1, 0.2f),
        .ffn_norm = synth_vector(d, 1, 0.2f),
        .q_norm = s->qk_norm ? synth_vector(s->d_head, 1, 0.2f) : NULL,
        .k_norm = s->qk_norm ? synth_vector(s->d_head, 1, 0.2f) : NULL,
        .qkv = synth_mat(k, fmt,
                         (s->n_heads * (1 + (s->delta.n_keys > 0)) + 2 * s->n_kv_heads) * s->d_head,
                         d, s->bias, spread),
        .o = synth_mat(k, fmt, d, s->n_heads * s->d_head, s->bias, spread),
        .gate_up = synth_mat(k, fmt, -s->d_ff, d, s->bias, spread),
        .down = synth_mat(k, fmt, d, s->d_ff, s->bias, spread),
        .window = i % 2 ? s->window : 0,
    };
}

static void synth_conv(struct eng_layer *l, const struct eng_model *m, const struct synth_shape *s)
{
    enum kern_wfmt fmt = m->numerics->matrix;
    int d = s->d_model;
    float spread = 1.7f / sqrtf((float)d);
    free(l->qkv.panels), free(l->o.panels);
    free((void *)(uintptr_t)l->qkv.bias), free((void *)(uintptr_t)l->o.bias);
    l->qkv = synth_mat(m->kern, fmt, 3 * d, d, s->bias, spread);
    l->o = synth_mat(m->kern, fmt, d, d, s->bias, spread);
    l->conv = synth_vector(s->n_taps * d, 0.2f, 0.7f);
    l->conv_bias = s->bias ? synth_vector(d, 0, 0.3f) : NULL;
}

static void synth_delta(struct eng_layer *l, const struct eng_model *m, const struct synth_shape *s)
{
    enum kern_wfmt fmt = m->numerics->matrix;
    int d = s->d_model, n_v = s->delta.n_values * s->delta.d_value;
    int n_qkv = 2 * s->delta.n_keys * s->delta.d_key + n_v;
    float spread = 1.7f / sqrtf((float)d);
    synth_conv(l, m, s);
    free(l->qkv.panels), free(l->o.panels), free((void *)(uintptr_t)l->conv);
    l->qkv = synth_mat(m->kern, fmt, n_qkv + n_v + 2 * s->delta.n_values, d, false, spread);
    l->o = synth_mat(m->kern, fmt, d, n_v, false, 1.7f / sqrtf((float)n_v));
    l->conv = synth_vector(s->n_taps * n_qkv, 0.2f, 0.7f);
    l->a_log = synth_vector(s->delta.n_values, -1, 1);
    l->dt_bias = synth_vector(s->delta.n_values, -2, 1);
    l->delta_norm = synth_vector(s->delta.d_value, 1, 0.2f);
}

static void synth_use_blas(struct eng_model *m)
{
    for (int i = 0; i < m->hp.n_layers; i++) {
        struct eng_layer *l = &m->layers[i];
        l->qkv.use_blas = l->o.use_blas = l->gate_up.use_blas = l->down.use_blas = true;
    }
    m->head.use_blas = true;
}

static struct eng_model *synth_create(const struct synth_shape *s, const struct kern *kern,
                                      const struct eng_numerics *numerics, uint64_t seed)
{
    synth_state = seed;
    struct eng_model *m = synth_alloc(sizeof(*m));
    m->kern = kern;
    m->numerics = numerics;
    m->hp = (struct eng_hparams){
        .d_model = s->d_model,
        .n_layers = s->n_layers,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .d_head = s->d_head,
        .d_ff = s->d_ff,
        .vocab = s->vocab,
        .ctx_train = SYNTH_CTX,
        .ctx_max = SYNTH_CTX,
        .rms_eps = 1e-5,
        .tied = s->tied,
        .qk_norm = s->qk_norm ? ENG_QK_NORM_HEAD : ENG_QK_NORM_NONE,
        .attn_scale = 1.0 / sqrt((double)s->d_head),
        .d_rot = s->d_head,
        .attn_gate = s->delta.n_keys > 0,
        .n_delta_keys = s->delta.n_keys,
        .n_delta_values = s->delta.n_values,
        .d_delta_key = s->delta.d_key,
        .d_delta_value = s->delta.d_value,
    };
    m->embed_scale = 1;
    m->has_head = true;
    m->heads.width = s->d_model;
    m->stream_eps = m->hp.rms_eps;
    m->embed = synth_mat(kern, numerics->head, s->vocab, s->d_model, false, 1);
    m->head = m->embed;
    if (!s->tied) m->head = synth_mat(kern, numerics->head, s->vocab, s->d_model, false, 0.3f);
    m->final_norm = m->head_norm = synth_vector(s->d_model, 1, 0.2f);
    m->layers = synth_alloc((size_t)s->n_layers * sizeof(*m->layers));
    m->hp.n_taps = s->n_taps;
    int n_of_kind[ENG_DELTA + 1] = {0};
    enum eng_mixer kind = s->delta.n_keys > 0 ? ENG_DELTA : ENG_CONV;
    for (int i = 0; i < s->n_layers; i++) {
        m->hp.layer_mixer[i] = s->n_taps > 0 && i % 2 == 0 ? kind : ENG_ATTENTION;
        synth_layer(&m->layers[i], m, s, i);
        if (m->hp.layer_mixer[i] == ENG_CONV) synth_conv(&m->layers[i], m, s);
        if (m->hp.layer_mixer[i] == ENG_DELTA) synth_delta(&m->layers[i], m, s);
        m->layers[i].place = n_of_kind[m->hp.layer_mixer[i]]++;
    }
    synth_rope(m, s->nope_layer);
    return m;
}

static void synth_mat_destroy(struct eng_mat *m)
{
    free(m->panels);
    free((void *)(uintptr_t)m->bias);
}

static void synth_destroy(struct eng_model *m)
{
    for (int i = 0; i < m->hp.n_layers; i++) {
        struct eng_layer *l = &m->layers[i];
        const float *vectors[] = {l->attn_norm, l->ffn_norm, l->q_norm,  l->k_norm,    l->conv,
                                  l->conv_bias, l->a_log,    l->dt_bias, l->delta_norm};
        for (size_t k = 0; k < N_OF(vectors); k++)
            free((void *)(uintptr_t)vectors[k]);
        synth_mat_destroy(&l->qkv);
        synth_mat_destroy(&l->o);
        synth_mat_destroy(&l->gate_up);
        synth_mat_destroy(&l->down);
    }
    free((void *)(uintptr_t)m->final_norm);
    free(m->ropes);
    synth_mat_destroy(&m->embed);
    if (!m->hp.tied) synth_mat_destroy(&m->head);
    free(m->layers);
    free(m);
}

/* ---- the reference ------------------------------------------------------------------------- */

/* Weights of one matrix in double, read back: [n_panels * 32][n_in]. */
static double *synth_weights(const struct kern *kern, const struct eng_mat *m)
{
    size_t n = (size_t)m->n_panels * KERN_PANEL;
    double *w = synth_alloc(n * (size_t)m->n_in * sizeof(*w));
    float *row = synth_alloc((size_t)m->n_in * sizeof(*row));
    for (size_t i = 0; i < n; i++) {
        kern->unpack_row(m->fmt, m->panels + i / KERN_PANEL * m->panel_bytes, (int)(i % KERN_PANEL),
                         m->n_in, row);
        for (int k = 0; k < m->n_in; k++)
            w[i * (size_t)m->n_in + (size_t)k] = (double)row[k];
    }
    free(row);
    return w;
}

/* y[n_rows][n] = x[n_rows][n_in] W^T + bias, n = n_panels * 32 */
static double *synth_multiply(const struct kern *kern, const struct eng_mat *m, const double *x,
                              int n_rows, size_t ldx)
{
    size_t n = (size_t)m->n_panels * KERN_PANEL, n_in = (size_t)m->n_in;
    double *w = synth_weights(kern, m), *y = synth_alloc((size_t)n_rows * n * sizeof(*y));
    for (size_t r = 0; r < (size_t)n_rows; r++)
        for (size_t i = 0; i < n; i++) {
            double sum = 0;
            for (size_t k = 0; k < n_in; k++)
                sum += x[r * ldx + k] * w[i * n_in + k];
            y[r * n + i] = sum + (m->bias ? (double)m->bias[i] : 0);
        }
    free(w);
    return y;
}

static void synth_norm(const double *x, const float *w, double *o, int n, double eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    double inv = 1 / sqrt(sum / n + eps);
    for (int i = 0; i < n; i++)
        o[i] = x[i] * inv * (double)w[i];
}

static double *synth_normed(const double *x, const float *w, int n_rows, int n, double eps)
{
    double *o = synth_alloc((size_t)n_rows * (size_t)n * sizeof(*o));
    for (int r = 0; r < n_rows; r++)
        synth_norm(x + (size_t)r * (size_t)n, w, o + (size_t)r * (size_t)n, n, eps);
    return o;
}

static void synth_rotate(const struct eng_model *m, const struct eng_layer *l, const float *norm,
                         double *x, int pos)
{
    int d = m->hp.d_head, half = d / 2;
    if (norm) synth_norm(x, norm, x, d, m->hp.rms_eps);
    for (int i = 0; i < half && l->rope_cos; i++) {
        double c = (double)l->rope_cos[pos * half + i], s = (double)l->rope_sin[pos * half + i];
        double a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

/* One query row over keys lo .. pos of one kv head. */
static void synth_attend(const double *q, const double *k, const double *v, size_t ld, int lo,
                         int pos, int d, double *o)
{
    double *p = synth_alloc((size_t)(pos + 1) * sizeof(*p)), max = -INFINITY, sum = 0;
    for (int t = lo; t <= pos; t++) {
        for (int i = 0; i < d; i++)
            p[t] += q[i] * k[(size_t)t * ld + (size_t)i] / sqrt((double)d);
        if (p[t] > max) max = p[t];
    }
    for (int i = 0; i < d; i++)
        o[i] = 0;
    for (int t = lo; t <= pos; t++)
        sum += p[t] = exp(p[t] - max);
    for (int t = lo; t <= pos; t++)
        for (int i = 0; i < d; i++)
            o[i] += p[t] / sum * v[(size_t)t * ld + (size_t)i];
    free(p);
}

static double *synth_attention(const struct eng_model *m, const struct eng_layer *l, double *qkv,
                               int n)
{
    const struct eng_hparams *hp = &m->hp;
    int d = hp->d_head, group = hp->n_heads / hp->n_kv_heads;
    size_t ld = (size_t)l->qkv.n_panels * KERN_PANEL, width = (size_t)(hp->n_heads * d);
    double *gates = qkv;
    if (hp->attn_gate) qkv += width;
    double *o = synth_alloc((size_t)n * width * sizeof(*o));
    for (int t = 0; t < n; t++)
        for (int h = 0; h < hp->n_heads + hp->n_kv_heads; h++)
            synth_rotate(m, l, h < hp->n_heads ? l->q_norm : l->k_norm,
                         qkv + (size_t)t * ld + (size_t)(h * d), t);
    for (int t = 0; t < n; t++)
        for (int h = 0; h < hp->n_heads; h++) {
            const double *k = qkv + (size_t)((hp->n_heads + h / group) * d);
            int lo = l->window > 0 && t + 1 > l->window ? t + 1 - l->window : 0;
            synth_attend(qkv + (size_t)t * ld + (size_t)(h * d), k, k + hp->n_kv_heads * d, ld, lo,
                         t, d, o + (size_t)t * width + (size_t)(h * d));
        }
    for (size_t i = 0; hp->attn_gate && i < (size_t)n * width; i++)
        o[i] /= 1 + exp(-gates[i / width * ld + i % width]);
    return o;
}

static double *synth_convolve(const struct eng_model *m, const struct eng_layer *l,
                              const double *in, int n)
{
    int d = m->hp.d_model, taps = m->hp.n_taps;
    size_t ld = (size_t)l->qkv.n_panels * KERN_PANEL;
    double *o = synth_alloc((size_t)n * (size_t)d * sizeof(*o));
    for (int t = 0; t < n; t++)
        for (int i = 0; i < d; i++) {
            double sum = l->conv_bias ? (double)l->conv_bias[i] : 0;
            for (int j = 0; j < taps; j++) {
                const double *x = in + (size_t)(t - taps + 1 + j) * ld + (size_t)i;
                if (t - taps + 1 + j >= 0) sum += (double)l->conv[j * d + i] * x[0] * x[2 * d];
            }
            o[t * d + i] = in[(size_t)t * ld + (size_t)(d + i)] * sum;
        }
    return o;
}

static double synth_silu(double x)
{
    return x / (1 + exp(-x));
}

/* Convolved queries, keys and values [n][channels]. */
static double *synth_convolved(const struct eng_layer *l, const double *in, size_t ld, int n,
                               int taps, int channels)
{
    double *x = synth_alloc((size_t)n * (size_t)channels * sizeof(*x));
    for (int t = 0; t < n; t++)
        for (int i = 0; i < channels; i++) {
            double sum = 0;
            for (int j = 0; j < taps; j++)
                if (t - taps + 1 + j >= 0)
                    sum += (double)l->conv[j * channels + i] *
                           in[(size_t)(t - taps + 1 + j) * ld + (size_t)i];
            x[t * channels + i] = synth_silu(sum);
        }
    return x;
}

static double synth_length(const double *x, int n)
{
    double sum = 1e-6;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* The rows of one value of a head: v, beta and decay of every token, o of every token. */
static void synth_delta_value(const double *x, int n, int channels, int q_at, int k_at, int v_at,
                              int d_key, const double *beta, const double *decay, double *o,
                              int ld_o)
{
    double *s = synth_alloc((size_t)d_key * sizeof(*s));
    for (int t = 0; t < n; t++, x += channels) {
        double q_len = synth_length(x + q_at, d_key) * sqrt((double)d_key), u = 0;
        double k_len = synth_length(x + k_at, d_key);
        o[t * ld_o] = 0;
        for (int i = 0; i < d_key; i++)
            u += (s[i] *= decay[t]) * x[k_at + i] / k_len;
        for (int i = 0; i < d_key; i++) {
            s[i] += x[k_at + i] / k_len * (x[v_at] - u) * beta[t];
            o[t * ld_o] += s[i] * x[q_at + i] / q_len;
        }
    }
    free(s);
}

static double *synth_delta_net(const struct eng_model *m, const struct eng_layer *l,
                               const double *in, int n)
{
    const struct eng_hparams *hp = &m->hp;
    int dk = hp->d_delta_key, dv = hp->d_delta_value, nv = hp->n_delta_values;
    int keys = hp->n_delta_keys * dk, channels = 2 * keys + nv * dv;
    size_t ld = (size_t)l->qkv.n_panels * KERN_PANEL;
    double *x = synth_convolved(l, in, ld, n, hp->n_taps, channels);
    double *o = synth_alloc((size_t)(n * nv * dv) * sizeof(*o));
    double *beta = synth_alloc((size_t)n * sizeof(*beta));
    double *decay = synth_alloc((size_t)n * sizeof(*decay));
    for (int h = 0; h < nv; h++) {
        int key = h / (nv / hp->n_delta_keys) * dk;
        for (int t = 0; t < n; t++) {
            const double *gates = in + (size_t)t * ld + (size_t)(channels + nv * dv + h);
            beta[t] = 1 / (1 + exp(-gates[0]));
            decay[t] =
                exp(-exp((double)l->a_log[h]) * log1p(exp(gates[nv] + (double)l->dt_bias[h])));
        }
        for (int i = h * dv; i < (h + 1) * dv; i++)
            synth_delta_value(x, n, channels, key, keys + key, 2 * keys + i, dk, beta, decay, o + i,
                              nv * dv);
        for (int t = 0; t < n; t++) {
            double *row = o + (t * nv + h) * dv;
            synth_norm(row, l->delta_norm, row, dv, hp->rms_eps);
            for (int i = 0; i < dv; i++)
                row[i] *= synth_silu(in[(size_t)t * ld + (size_t)(channels + h * dv + i)]);
        }
    }
    free(x), free(beta), free(decay);
    return o;
}

static void synth_add(double *x, const double *y, int n_rows, int n, size_t ldy)
{
    for (int r = 0; r < n_rows; r++)
        for (int i = 0; i < n; i++)
            x[r * n + i] += y[(size_t)r * ldy + (size_t)i];
}

static double *synth_ffn(const struct eng_model *m, const struct eng_layer *l, const double *x,
                         int n)
{
    size_t ld = (size_t)l->gate_up.n_panels * KERN_PANEL, ff = (size_t)m->hp.d_ff;
    double *gu = synth_multiply(m->kern, &l->gate_up, x, n, (size_t)m->hp.d_model);
    double *h = synth_alloc((size_t)n * ff * sizeof(*h));
    for (size_t r = 0; r < (size_t)n; r++)
        for (size_t i = 0; i < ff; i++) {
            size_t at = r * ld + i / KERN_PANEL * 64 + i % KERN_PANEL;
            h[r * ff + i] = gu[at] / (1 + exp(-gu[at])) * gu[at + KERN_PANEL];
        }
    double *y = synth_multiply(m->kern, &l->down, h, n, ff);
    free(h);
    free(gu);
    return y;
}

/*
 * Logits of all positions of one sequence, [n][head.n_panels * 32]; hidden (or NULL): [n][d_model]
 * after the final norm.
 */
static double *synth_reference(const struct eng_model *m, const int32_t *tokens, int n,
                               double **ret_hidden)
{
    int d = m->hp.d_model;
    double *embed = synth_weights(m->kern, &m->embed);
    double *x = synth_alloc((size_t)n * (size_t)d * sizeof(*x));
    for (int t = 0; t < n; t++)
        memcpy(x + t * d, embed + (size_t)tokens[t] * (size_t)d, (size_t)d * sizeof(*x));
    for (int i = 0; i < m->hp.n_layers; i++) {
        const struct eng_layer *l = &m->layers[i];
        double *h = synth_normed(x, l->attn_norm, n, d, m->hp.rms_eps);
        double *qkv = synth_multiply(m->kern, &l->qkv, h, n, (size_t)d);
        double *att = l->a_log  ? synth_delta_net(m, l, qkv, n)
                      : l->conv ? synth_convolve(m, l, qkv, n)
                                : synth_attention(m, l, qkv, n);
        double *o = synth_multiply(m->kern, &l->o, att, n, (size_t)l->o.n_in);
        synth_add(x, o, n, d, (size_t)l->o.n_panels * KERN_PANEL);
        double *g = synth_normed(x, l->ffn_norm, n, d, m->hp.rms_eps);
        double *y = synth_ffn(m, l, g, n);
        synth_add(x, y, n, d, (size_t)l->down.n_panels * KERN_PANEL);
        free(h), free(qkv), free(att), free(o), free(g), free(y);
    }
    double *hidden = synth_normed(x, m->final_norm, n, d, m->hp.rms_eps);
    double *logits = synth_multiply(m->kern, &m->head, hidden, n, (size_t)d);
    free(embed);
    free(x);
    if (ret_hidden)
        *ret_hidden = hidden;
    else
        free(hidden);
    return logits;
}
