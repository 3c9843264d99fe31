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
 * A head of a delta net has a matrix that every token changes. It has taken the positions that are
 * surely the sequence's: the first row of a step, or all of a long segment. What the rows behind
 * that say to it is kept by position too, and the next step takes as many of them as were right,
 * before its own, with the same arithmetic. So a step reads and writes a matrix once.
 *
 * Threads: a state belongs to its sequence; inside a step, the items of a layer share no channels.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eng_hparams;
struct eng_layer;
struct eng_model;
struct kern;
struct fwd_segment;

/* A power of two: the rows of a step with a draft, and those that its first row looks back at, or
 * that a matrix has not taken. */
enum { STATE_ROWS = 16 };

/* Channels of an item of a short convolution. */
enum { STATE_CHANNELS = 256 };

struct state_layout {
    int n_layers; /* with a state; 0: the model has none */
    int n_channels, n_taps;
    size_t n_floats; /* of a state: [n_layers][STATE_ROWS][n_channels], [n_layers][n_heads] heads */
    size_t n_kept;   /* of a snapshot: [n_layers][n_taps - 1][n_channels], and their matrices */
    const struct kern *kern;
    int n_keys, n_heads; /* of a delta net: heads of queries and keys, of values; 0: it is none */
    bool tiled;          /* as hp.delta_tiled */
    int d_key, d_value;
    size_t matrix_floats, log_floats, head_floats; /* of a head, a row of its log, both */
};

/* Sizes are the model's, checked when it was opened. */
void state_layout_init(struct state_layout *l, const struct eng_hparams *hp,
                       const struct kern *kern);

/*
 * One item of a convolution over a segment's rows, of state_n_conv_items. A short convolution: in
 * [n_tokens][ld_in] holds B, C and u of each, out [n_tokens][ld_out] gets C * conv(B * u). A delta
 * net: in holds what eng_layer.qkv gives; q, k and v become silu(conv), q and k normed, and the
 * gates what kern.delta_gates makes of them.
 */
int state_n_conv_items(const struct state_layout *l);
void state_convolve(const struct state_layout *l, const struct eng_layer *layer,
                    const struct fwd_segment *seg, float *in, size_t ld_in, float *out,
                    size_t ld_out, int item);

/*
 * One head of a delta net after that: out gets norm(o) * silu(z) in the head's columns. tmp:
 * [state_tmp_floats] of the thread.
 */
void state_delta(const struct state_layout *l, const struct eng_model *m, int layer,
                 const struct fwd_segment *seg, const float *in, size_t ld_in, float *out,
                 size_t ld_out, int head, float *tmp);
size_t state_tmp_floats(const struct state_layout *l);

/*
 * Copies the taps that a position looks back at from a state into a snapshot, and back. pos >=
 * n_taps - 1; it is at most a draft behind the last one that was computed.
 */
void state_save(const struct state_layout *l, const float *state, int64_t pos, float *ret_kept);
void state_restore(const struct state_layout *l, float *state, int64_t pos, const float *kept);
