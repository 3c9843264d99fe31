/* SPDX-License-Identifier: MIT */
/*
 * Rotary position embeddings: frequencies of every scaling type, and tables of cos and sin. Pure,
 * in double; one rounding to float at the end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct eng_rope;

/*
 * Angle per position of each pair of the d_rot dimensions that turn: ret_freqs [d_rot / 2]. d_rot
 * is even. longrope has other frequencies for a served context beyond its original one.
 */
void eng_rope_freqs(const struct eng_rope *rope, int d_rot, int64_t ctx, double *ret_freqs);

/* Returns true if a served context has longrope's angles for long texts. */
bool eng_rope_is_long(const struct eng_rope *rope, int64_t ctx);

/* "linear", "longrope, short factors" ...: for people. */
const char *eng_rope_name(const struct eng_rope *rope, int64_t ctx);

/* yarn's factor of cos and sin if the config has none; mscale values are 0 if absent. */
double eng_rope_yarn_attention(double factor, double mscale, double mscale_all_dim);

/*
 * Rows pos0 .. pos0 + n - 1 of the tables: cos, sin [n][n_freqs], times scale. pos0 is a multiple
 * of ENG_ROPE_BLOCK and n at most that, so that values do not depend on the number of calls.
 */
enum { ENG_ROPE_BLOCK = 64 };
void eng_rope_rows(const double *freqs, int n_freqs, double scale, int64_t pos0, int n,
                   float *cos_rows, float *sin_rows);
