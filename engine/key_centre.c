/* SPDX-License-Identifier: MIT */
/* See key_centre.h. */
#include "engine/key_centre.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/eng_error.h"
#include "engine/forward.h"
#include "engine/kernels/kv_int8.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/state.h"

bool key_centre_helps(const struct eng_model *m, const struct kv_layout *l)
{
    return l->fmt == KERN_KV_I8 && !(m->hp.attn_softcap > 0) && !m->hp.encoder;
}

size_t key_centre_floats(const struct kv_layout *l)
{
    return kv_first_dim(l, l->n_layers, 0);
}

/* One page of tokens, a text of its own, in steps of at most max_rows. */
static void compute(const struct eng_model *m, struct fwd *fwd, int max_rows, uint8_t **page,
                    int n_tokens, uint32_t first, float *state)
{
    int32_t tokens[KV_PAGE_TOKENS];
    for (int i = 0; i < n_tokens; i++)
        tokens[i] = (int32_t)(((first + (uint32_t)i) * 2654435761u >> 8) % (uint32_t)m->hp.vocab);
    struct fwd_segment seg = {.pages = page, .state = state, .want = FWD_WANT_NONE};
    struct fwd_step step = {&seg, 1, NULL};
    for (int done = 0; done < n_tokens; done += seg.n_tokens) {
        seg.tokens = tokens + done;
        seg.n_tokens = n_tokens - done < max_rows ? n_tokens - done : max_rows;
        seg.pos0 = done;
        fwd_run(fwd, &step);
    }
}

/* Takes the rotation of a position away. */
static void turn_back(const struct eng_model *m, int layer, int64_t pos, float *key)
{
    int n = eng_layer_pairs(&m->hp, layer), apart = eng_layer_apart(&m->hp, layer);
    const float *cos = m->layers[layer].rope_cos + pos * n;
    const float *sin = m->layers[layer].rope_sin + pos * n;
    for (int i = 0; i < n; i++) {
        float a = key[i], b = key[i + apart], size = cos[i] * cos[i] + sin[i] * sin[i];
        key[i] = (a * cos[i] + b * sin[i]) / size;
        key[i + apart] = (b * cos[i] - a * sin[i]) / size;
    }
}

/*
 * The sums of the rotations to all positions, as cosines and sines [pairs][2]: the same for all
 * heads, and for all layers with these tables.
 */
static void sum_turns(const struct eng_layer *layer, int half, double *sums)
{
    for (int i = 0; i < half; i++) {
        /* rows 0 and 1 of the tables: the attention factor, and the angle of one position */
        double c = layer->rope_cos[half + i], s = layer->rope_sin[half + i];
        double size = sqrt(c * c + s * s), x = 1, y = 0, sum_x = 0, sum_y = 0;
        c /= size;
        s /= size;
        for (int p = 0; p < KEY_CENTRE_POSITIONS; p++) {
            double next = x * c - y * s;
            sum_x += x;
            sum_y += y;
            y = x * s + y * c;
            x = next;
        }
        sums[2 * i] = sum_x;
        sums[2 * i + 1] = sum_y;
    }
}

/* Rotates a mean to all positions, and averages. */
static void turn_on(const struct eng_model *m, int layer, const double *sums, double *mean)
{
    int apart = eng_layer_apart(&m->hp, layer);
    for (int i = 0; i < eng_layer_pairs(&m->hp, layer); i++) {
        double factor = m->layers[layer].rope_cos[i] / KEY_CENTRE_POSITIONS;
        double a = mean[i], b = mean[i + apart];
        mean[i] = (a * sums[2 * i] - b * sums[2 * i + 1]) * factor;
        mean[i + apart] = (b * sums[2 * i] + a * sums[2 * i + 1]) * factor;
    }
}

/* Heads with keys of a layer's own. */
static int n_heads(const struct eng_model *m, int layer)
{
    bool own = m->hp.layer_mixer[layer] == ENG_ATTENTION && !eng_layer_shares(&m->hp, layer);
    return own ? eng_layer_kv_heads(&m->hp, layer) : 0;
}

static bool turns(const struct eng_model *m, const struct eng_layer *layer, int n_tokens)
{
    return layer->rope_cos && m->hp.qk_norm != ENG_QK_NORM_AFTER_ROPE && n_tokens > 1;
}

/* Adds the keys of a page, without their rotation, to the sums of all heads. */
static void add_keys(const struct eng_model *m, const struct kv_layout *l, const uint8_t *page,
                     int n_tokens, double *sums)
{
    float key[ENG_MAX_HEAD_DIM];
    for (int i = 0; i < m->hp.n_layers; i++) {
        const struct eng_layer *layer = &m->layers[i];
        for (int head = 0, d_head = eng_layer_d_head(&m->hp, i); head < n_heads(m, i); head++) {
            double *sum = sums + kv_first_dim(l, layer->place, head);
            for (int slot = 0; slot < n_tokens; slot++) {
                read_key_i8(page + kv_key_offset(l, layer->place, head), d_head, slot, key);
                if (turns(m, layer, n_tokens)) turn_back(m, i, slot, key);
                for (int d = 0; d < d_head; d++)
                    sum[d] += (double)key[d];
            }
        }
    }
}

static void settle(const struct eng_model *m, const struct kv_layout *l, int n_tokens, double *sums,
                   float *centre)
{
    double turned[ENG_MAX_HEAD_DIM];
    const float *table = NULL;
    double n = KEY_CENTRE_TOKENS / KV_PAGE_TOKENS * n_tokens;
    for (int i = 0; i < m->hp.n_layers; i++) {
        const struct eng_layer *layer = &m->layers[i];
        if (turns(m, layer, n_tokens) && layer->rope_cos != table)
            sum_turns(layer, eng_layer_pairs(&m->hp, i), turned);
        table = layer->rope_cos;
        for (int head = 0; head < n_heads(m, i); head++) {
            size_t at = kv_first_dim(l, layer->place, head);
            if (turns(m, layer, n_tokens)) turn_on(m, i, turned, sums + at);
            for (size_t d = at; d < at + (size_t)eng_layer_d_head(&m->hp, i); d++)
                centre[d] = isfinite(sums[d]) ? (float)(sums[d] / n) : 0.0f;
        }
    }
}

int key_centre_fill(const struct eng_model *m, struct fwd *fwd, int max_rows, int64_t ctx,
                    struct kv_pages *pages, const struct kv_layout *l, float *centre, char *err,
                    size_t errlen)
{
    int n_tokens = ctx < KV_PAGE_TOKENS ? (int)ctx : KV_PAGE_TOKENS;
    struct state_layout states;
    state_layout_init(&states, &m->hp, m->kern);
    float *state = calloc(states.n_floats + 1, sizeof(*state));
    double *sums = calloc(key_centre_floats(l), sizeof(*sums));
    bool enough = state && sums;
    int32_t page = kv_page_get(pages);
    uint8_t *data = kv_page_data(pages, page);
    for (uint32_t i = 0; enough && i < KEY_CENTRE_TOKENS; i += KV_PAGE_TOKENS) {
        memset(state, 0, states.n_floats * sizeof(*state));
        compute(m, fwd, max_rows, &data, n_tokens, i, state);
        add_keys(m, l, data, n_tokens, sums);
    }
    kv_page_unref(pages, page);
    if (enough) settle(m, l, n_tokens, sums, centre);
    free(state);
    free(sums);
    if (!enough) snprintf(err, errlen, "no memory for the centre of keys");
    return enough ? 0 : ENG_ENOMEM;
}
