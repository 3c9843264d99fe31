/* SPDX-License-Identifier: MIT */
/*
 * States of sequences in recurrent layers.
 *
 * A short convolution looks back at its own inputs of a few tokens. A state holds them by position,
 * as pages hold keys: that of position p in row p % STATE_ROWS of its layer. So there is nothing to
 * undo when the ids of a draft turn out wrong, or when the twin has written its own inputs behind
 * what is done: these positions are computed again before anything reads them. Rows are walked
 * token by token whatever their number, so bits do not depend on how a prompt is cut.
 *
 * Threads: a state belongs to its sequence; inside a step, the items of a layer share no channels.
 */
#ifndef HEARTH_ENGINE_STATE_H
#define HEARTH_ENGINE_STATE_H

#include <stddef.h>
#include <stdint.h>

struct eng_hparams;
struct eng_model;
struct fwd_segment;

/* A power of two: the rows of a step with a draft, and those that its first row looks back at. */
enum { STATE_ROWS = 16 };

/* Most channels of one call of state_convolve. */
enum { STATE_CHANNELS = 256 };

struct state_layout {
    int n_layers; /* with a state; 0: the model has none */
    int n_channels, n_taps;
    size_t n_floats; /* of a state: [n_layers][STATE_ROWS][n_channels] */
    size_t n_kept;   /* of a snapshot: [n_layers][n_taps - 1][n_channels] */
};

/* Sizes are the model's, checked when it was opened. */
void state_layout_init(struct state_layout *l, const struct eng_hparams *hp);

/*
 * Channels [first, first + n) of a convolution over a segment's rows: in [n_tokens][ld_in] holds B,
 * C and u of each, out [n_tokens][ld_out] gets C * conv(B * u).
 */
void state_convolve(const struct state_layout *l, const struct eng_model *m, int layer,
                    const struct fwd_segment *seg, const float *in, size_t ld_in, float *out,
                    size_t ld_out, int first, int n);

/*
 * What a position looks back at, from a state into a snapshot and back. pos >= n_taps - 1; it is at
 * most a draft behind the last one that was computed.
 */
void state_save(const struct state_layout *l, const float *state, int64_t pos, float *ret_kept);
void state_restore(const struct state_layout *l, float *state, int64_t pos, const float *kept);

#endif
