/* SPDX-License-Identifier: MIT */
/*
 * The draw of a token as a race: each candidate id runs for E / w, where w is its weight,
 * exp((x - top) * scale), and E its random number with the exponential distribution of mean 1; the
 * first to arrive, which is the largest key w / E, is drawn (on a tie the lowest id). So an id is
 * drawn with probability w / sum of w, without any sum: the draw depends neither on the order of
 * ids nor on those without a chance.
 *
 * E is a function of (seed, choice, token index, id) alone. Two rows of logits that are nearly the
 * same therefore nearly always draw the same id, whatever each of them truncates: this is what
 * makes a draft by a coarser model useful (drafter.h).
 *
 * Most numbers are never computed. A block of 32 ids has its least number, an exponential one of
 * mean 1/32, at a uniform place; any other is the least plus a fresh one, since the distribution
 * has no memory. A block is opened only if its largest x over its least E could win.
 *
 * Threads: an object belongs to one thread at a time. Nothing is allocated after race_init.
 */
#pragma once

#include <stdint.h>

#include "engine/kernels/kernels.h"
#include "engine/topk.h"

struct scratch;

struct race {
    const struct kern *kern;
    int32_t vocab;
    float *least, *top, *bound; /* [blocks of the vocab] */
    uint8_t *place;
};

/* For rows of vocab values; borrows kern. Its memory is cut from m, which may only count. */
void race_init(struct race *r, struct scratch *m, int32_t vocab, const struct kern *kern);

/* The numbers of a draw. */
struct kern_race race_numbers(uint64_t seed, uint32_t choice, uint64_t index);

/* Candidates and their weights. Borrowed for the call. */
struct race_field {
    const float *x; /* [vocab], -INFINITY: no candidate */
    float top;      /* the largest, finite */
    float scale;    /* > 0 */
    struct kern_race numbers;
};

/*
 * The winner among all ids, if cut is NULL, or those it leaves, at least one. *ret_margin: the
 * logarithm of its key over the second key; NULL: not wanted.
 */
int32_t race_draw(struct race *r, const struct race_field *f, const struct rank_cut *cut,
                  float *ret_margin);

/* The same among n >= 1 ids, those with larger x first: faster if they are few. */
int32_t race_draw_listed(struct race *r, const struct race_field *f, const int32_t *ids, int n,
                         float *ret_margin);
