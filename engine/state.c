/* SPDX-License-Identifier: MIT */
/* States of sequences; see state.h. */
#include "engine/state.h"

#include <assert.h>
#include <string.h>

#include "engine/draft.h"
#include "engine/kernels/kernels.h"
#include "engine/model/model.h"
#include "engine/step.h"

_Static_assert((STATE_ROWS & (STATE_ROWS - 1)) == 0, "positions are taken modulo it");
_Static_assert(1 + DRAFT_MAX + ENG_MAX_TAPS - 1 <= STATE_ROWS, "a draft's rows replace none that "
                                                               "are still looked back at");

void state_layout_init(struct state_layout *l, const struct eng_hparams *hp)
{
    *l = (struct state_layout){.n_channels = hp->d_model, .n_taps = hp->n_taps};
    for (int i = 0; i < hp->n_layers; i++)
        l->n_layers += hp->layer_mixer[i] == ENG_CONV;
    l->n_floats = (size_t)l->n_layers * STATE_ROWS * (size_t)l->n_channels;
    if (l->n_layers > 0)
        l->n_kept = (size_t)l->n_layers * (size_t)(l->n_taps - 1) * (size_t)l->n_channels;
}

/* Where a state holds the i-th row of a snapshot. */
static size_t row_of(const struct state_layout *l, int64_t pos, int i)
{
    int per_layer = l->n_taps - 1, layer = i / per_layer;
    int64_t at = (pos - per_layer + i % per_layer) % STATE_ROWS;
    return ((size_t)layer * STATE_ROWS + (size_t)at) * (size_t)l->n_channels;
}

void state_save(const struct state_layout *l, const float *state, int64_t pos, float *ret_kept)
{
    size_t n = (size_t)l->n_channels;
    assert(pos >= l->n_taps - 1);
    for (int i = 0; i < l->n_layers * (l->n_taps - 1); i++)
        memcpy(ret_kept + (size_t)i * n, state + row_of(l, pos, i), n * sizeof(*state));
}

void state_restore(const struct state_layout *l, float *state, int64_t pos, const float *kept)
{
    size_t n = (size_t)l->n_channels;
    assert(pos >= l->n_taps - 1);
    for (int i = 0; i < l->n_layers * (l->n_taps - 1); i++)
        memcpy(state + row_of(l, pos, i), kept + (size_t)i * n, n * sizeof(*state));
}

void state_convolve(const struct state_layout *l, const struct eng_model *m, int layer,
                    const struct fwd_segment *seg, const float *in, size_t ld_in, float *out,
                    size_t ld_out, int first, int n)
{
    static const float before_the_text[STATE_CHANNELS];
    const struct eng_layer *layer_of = &m->layers[layer];
    size_t d = (size_t)l->n_channels, at = (size_t)first;
    const float *bias = layer_of->conv_bias ? layer_of->conv_bias + at : NULL;
    struct kern_conv conv = {layer_of->conv + at, d, bias, l->n_taps};
    float *rows = seg->state + (size_t)layer_of->place * STATE_ROWS * d + at;
    assert(n <= STATE_CHANNELS && at + (size_t)n <= d);
    for (int i = 0; i < seg->n_tokens; i++, in += ld_in, out += ld_out) {
        const float *before[ENG_MAX_TAPS];
        int64_t pos = seg->pos0 + i, oldest = pos - (l->n_taps - 1);
        for (int j = 0; j < l->n_taps - 1; j++)
            before[j] =
                oldest + j < 0 ? before_the_text : rows + (size_t)((oldest + j) % STATE_ROWS) * d;
        m->kern->conv_token(&conv, in + at, in + d + at, in + 2 * d + at, before,
                            rows + (size_t)(pos % STATE_ROWS) * d, out + at, n);
    }
}
