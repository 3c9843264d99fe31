/* SPDX-License-Identifier: MIT */
/* Rotary position embeddings; see rope.h. */
#include "engine/model/rope.h"

#include <assert.h>
#include <math.h>

#include "engine/model/hparams.h"

static const double two_pi = 6.283185307179586476925287;

/*
 * llama3: long waves are slowed down by the factor, short ones stay, those between are blended by
 * how many times they fit the original context.
 */
static double scale_llama3(const struct eng_rope *rope, double freq)
{
    double waves = rope->original_ctx * freq / two_pi;
    if (waves > rope->high_freq_factor) return freq;
    if (waves < rope->low_freq_factor) return freq / rope->factor;
    double smooth =
        (waves - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * freq / rope->factor + smooth * freq;
}

/* yarn: the (fractional) index of the pair that turns `turns` times within the original context. */
static double yarn_index(const struct eng_rope *rope, int d_rot, double turns)
{
    return d_rot * log(rope->original_ctx / (turns * two_pi)) / (2 * log(rope->theta));
}

/* yarn: pairs below low keep their frequency, those above high are slowed, with a ramp between. */
static void scale_yarn(const struct eng_rope *rope, int d_rot, double *freqs)
{
    assert(rope->beta_fast > 0 && rope->beta_slow > 0);
    double low = yarn_index(rope, d_rot, rope->beta_fast);
    double high = yarn_index(rope, d_rot, rope->beta_slow);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, d_rot - 1);
    if (low == high) high += 0.001; /* the reference's guard against dividing by 0 */
    for (int i = 0; i < d_rot / 2; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        freqs[i] = freqs[i] / rope->factor * ramp + freqs[i] * (1 - ramp);
    }
}

bool eng_rope_is_long(const struct eng_rope *rope, int64_t ctx)
{
    return rope->type == ENG_ROPE_LONGROPE && (double)ctx > rope->original_ctx;
}

const char *eng_rope_name(const struct eng_rope *rope, int64_t ctx)
{
    static const char *const names[] = {
        [ENG_ROPE_DEFAULT] = "default",
        [ENG_ROPE_LINEAR] = "linear",
        [ENG_ROPE_LLAMA3] = "llama3",
        [ENG_ROPE_YARN] = "yarn",
        [ENG_ROPE_DYNAMIC] = "dynamic",
        [ENG_ROPE_LONGROPE] = "longrope, short factors",
        [ENG_ROPE_PROPORTIONAL] = "proportional",
    };
    return eng_rope_is_long(rope, ctx) ? "longrope, long factors" : names[rope->type];
}

void eng_rope_freqs(const struct eng_rope *rope, int d_rot, int64_t ctx, double *ret_freqs)
{
    assert(d_rot % 2 == 0 && d_rot <= ENG_MAX_HEAD_DIM);
    const double *factors = eng_rope_is_long(rope, ctx) ? rope->long_factors : rope->short_factors;
    for (int i = 0; i < d_rot / 2; i++) {
        bool whole = rope->type == ENG_ROPE_PROPORTIONAL;
        double freq = pow(rope->theta, -2.0 * i / (whole ? rope->d_head : d_rot));
        if (rope->type == ENG_ROPE_LONGROPE) freq /= factors[i];
        if (rope->type == ENG_ROPE_LINEAR || whole) freq /= rope->factor;
        if (rope->type == ENG_ROPE_LLAMA3) freq = scale_llama3(rope, freq);
        ret_freqs[i] = freq; /* dynamic: as default up to the original length, which is the limit */
    }
    if (rope->type == ENG_ROPE_YARN) scale_yarn(rope, d_rot, ret_freqs);
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

double eng_rope_yarn_attention(double factor, double mscale, double mscale_all_dim)
{
    if (mscale != 0 && mscale_all_dim != 0)
        return yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim);
    return yarn_mscale(factor, 1);
}

/*
 * One exact angle per block, then turned step by step by the addition theorem: a few rounding
 * errors of double, far below those of float, much cheaper than sin and cos for each position.
 */
void eng_rope_rows(const double *freqs, int n_freqs, double scale, int64_t pos0, int n,
                   float *cos_rows, float *sin_rows)
{
    assert(pos0 >= 0 && pos0 % ENG_ROPE_BLOCK == 0);
    assert(n > 0 && n <= ENG_ROPE_BLOCK);
    for (int i = 0; i < n_freqs; i++) {
        double base_cos = cos((double)pos0 * freqs[i]), base_sin = sin((double)pos0 * freqs[i]);
        double step_cos = cos(freqs[i]), step_sin = sin(freqs[i]);
        double c = 1, s = 0; /* of p * freq, by turning p times: at most 63 roundings */
        for (int p = 0; p < n; p++) {
            cos_rows[p * n_freqs + i] = (float)((base_cos * c - base_sin * s) * scale);
            sin_rows[p * n_freqs + i] = (float)((base_sin * c + base_cos * s) * scale);
            double next = c * step_cos - s * step_sin;
            s = s * step_cos + c * step_sin;
            c = next;
        }
    }
}
