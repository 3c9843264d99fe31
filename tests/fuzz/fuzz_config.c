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

static void check_rope(const struct eng_hparams *hp, const struct eng_rope *rope)
{
    double *freqs = calloc((size_t)hp->d_head, sizeof(*freqs));
    if (!freqs) return;
    eng_rope_freqs(rope, hp->d_rot, hp->ctx_max, freqs);
    for (int i = 0; i < hp->d_rot / 2; i++)
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

static void check(const struct eng_hparams *hp)
{
    if (!hp->family || hp->d_model < 1 || hp->d_ff < 1 || hp->vocab < 1 || hp->ctx_max < 1) abort();
    if (hp->n_layers < 1 || hp->n_layers > ENG_MAX_LAYERS) abort();
    if (hp->n_kv_heads < 1 || hp->n_heads % hp->n_kv_heads != 0) abort();
    if (hp->d_head < 2 || hp->d_head % 2 != 0 || hp->bos_id >= hp->vocab) abort();
    for (int i = 0; i < hp->eos.n; i++)
        if (hp->eos.ids[i] < 0 || hp->eos.ids[i] >= hp->vocab) abort();
    for (int i = 0; i < hp->n_layers; i++)
        if (hp->layer_window[i] < 0) abort();
    if (hp->d_rot < 2 || hp->d_rot > hp->d_head || hp->d_rot % 2 != 0) abort();
    check_rope(hp, &hp->rope);
    if (hp->has_local_rope) check_rope(hp, &hp->local_rope);
    check_factors(hp);
    check_experts(hp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t config_len = zero ? (size_t)(zero - data) : size;
    char err[256] = "";
    struct eng_report r = {.err = err, .errlen = sizeof(err)};
    struct eng_hparams hp;
    int rc =
        eng_config_parse(&hp, (const char *)data, config_len, zero ? (const char *)zero + 1 : NULL,
                         zero ? size - config_len - 1 : 0, &r);
    if (rc == 0)
        check(&hp);
    else if (!err[0])
        abort();
    return 0;
}
