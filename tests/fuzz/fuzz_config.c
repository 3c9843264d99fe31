/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes config.json and generation_config.json: the input is both, with a byte 0 between them.
 * Whatever is accepted must be a model whose sizes can be computed with.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/config.h"
#include "engine/model/rope.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rope(const struct eng_hparams *hp, const struct eng_rope *rope, bool local)
{
    int n = eng_rope_pairs(hp, local);
    double *freqs = calloc((size_t)n + 1, sizeof(*freqs));
    if (!freqs) return;
    eng_rope_freqs(rope, 2 * n, hp->ctx_max, freqs);
    for (int i = 0; i < n; i++)
        if (!isfinite(freqs[i])) abort();
    if (!(rope->attention_factor > 0)) abort();
    free(freqs);
}

static void check_factors(const struct eng_hparams *hp)
{
    const double positive[] = {hp->embed_scale, hp->residual_scale, hp->attn_scale,
                               hp->logits_scaling};
    for (int i = 0; i < 4; i++)
        if (!(positive[i] > 0) || !isfinite(positive[i])) abort();
    if (!(hp->attn_softcap >= 0) || !(hp->logit_softcap >= 0)) abort();
}

static void check_experts(const struct eng_hparams *hp)
{
    if (hp->n_experts == 0) return;
    if (hp->n_experts > ENG_MAX_EXPERTS || hp->n_chosen < 1 || hp->n_chosen > hp->n_experts)
        abort();
    if (hp->d_expert < 1 || hp->d_shared < 0 || (hp->shared_gate && hp->d_shared < 1)) abort();
    if (!(hp->route_floor >= 0) || !(hp->route_eps >= 0) || !isfinite(hp->route_scale)) abort();
}

/* Layers without a window have heads of their own, and each layer that shares keys a donor. */
static void check_full(const struct eng_hparams *hp)
{
    int d_head = hp->full.d_head, d_rot = hp->full.d_rot, donors[2] = {0, 0};
    if (d_head > ENG_MAX_HEAD_DIM || d_head % 2 != 0 || d_rot < 0 || d_rot > d_head) abort();
    if (hp->full.n_kv_heads < 1 || hp->n_heads % hp->full.n_kv_heads != 0) abort();
    if (hp->n_shared < 0 || hp->n_kv_layers != hp->n_layers - hp->n_shared) abort();
    for (int i = 0; i < hp->n_layers; i++) {
        int *n = &donors[hp->layer_window[i] > 0];
        *n += !eng_layer_shares(hp, i);
        if (*n == 0) abort();
    }
    if (hp->d_ple < 0 || (hp->d_ple > 0 && hp->n_ple_rows < hp->vocab)) abort();
    if (hp->pad_id < 0 || hp->pad_id >= hp->vocab) abort();
}

static void check(const struct eng_hparams *hp)
{
    if (!hp->family || hp->d_model < 1 || hp->d_ff < 1 || hp->vocab < 1 || hp->ctx_max < 1) abort();
    if (hp->n_layers < 1 || hp->n_layers > ENG_MAX_LAYERS) abort();
    if (hp->n_kv_heads < 1 || hp->n_heads % hp->n_kv_heads != 0) abort();
    if (hp->d_head < 2 || hp->d_head % 2 != 0) abort();
    for (int i = 0; i < hp->eos.n; i++)
        if (hp->eos.ids[i] < 0 || hp->eos.ids[i] >= hp->vocab) abort();
    for (int i = 0; i < hp->n_layers; i++)
        if (hp->layer_window[i] < 0) abort();
    if (hp->d_rot < (hp->encoder ? 0 : 2) || hp->d_rot > hp->d_head || hp->d_rot % 2 != 0) abort();
    check_rope(hp, &hp->rope, false);
    if (hp->has_local_rope) check_rope(hp, &hp->local_rope, true);
    check_factors(hp);
    check_experts(hp);
    if (hp->full.d_head) check_full(hp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[256] = "", *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0'; /* as files end */
    size_t config_len = strlen(text);
    const char *generation = config_len < size ? text + config_len + 1 : NULL;
    struct eng_report r = {.err = err, .errlen = sizeof(err)};
    struct eng_hparams hp;
    int rc = eng_config_parse(&hp, text, config_len, generation,
                              generation ? size - config_len - 1 : 0, &r);
    free(text);
    if (rc == 0)
        check(&hp);
    else if (!err[0])
        abort();
    return 0;
}
