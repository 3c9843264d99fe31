/* SPDX-License-Identifier: MIT */
/*
 * Logits -> token: a chain of pure steps, and the random numbers for the draw.
 *
 * sampling_params.h has the chain's order. Truncating steps see candidates in order of (logit
 * descending, id ascending); sums are taken in double in that order. Temperature 0 is the argmax
 * after penalties, lowest id on a tie.
 *
 * The draw is a race (race.h), whose random numbers are a function of seed, choice, token index and
 * id: without state, so a token's draw does not depend on earlier draws.
 *
 * Threads: a sampler belongs to one thread at a time. Nothing is allocated.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/job_types.h"

struct kern;
struct sampler;
struct scratch;

/* For rows of `vocab` logits; borrows kern. Cut from m, all zeros; NULL while m only counts. */
struct sampler *sampler_init(struct scratch *m, int32_t vocab, const struct kern *kern);

/* Input of penalties: the ids of the prompt, and how often each id was generated. */
struct sample_history {
    uint32_t *counts; /* [vocab]: SAMPLE_IN_PROMPT and the number of times generated */
    int32_t *touched; /* [vocab]: ids whose count is not 0 */
    int32_t n_touched;
};

#define SAMPLE_IN_PROMPT 0x80000000u

/* Its memory is cut from m, all zeros. */
void sample_history_init(struct sample_history *h, struct scratch *m, int32_t vocab);
void sample_history_add(struct sample_history *h, int32_t id, bool in_prompt);
/* Undoes the last add of a generated id, which is this one. */
void sample_history_pop(struct sample_history *h, int32_t id);
void sample_history_clear(struct sample_history *h);

/* One draw. Everything is borrowed for the call. */
struct sample_row {
    const float *logits; /* [vocab], finite or -INFINITY */
    const struct eng_sampling *chain;
    const uint64_t *mask;                 /* one bit per id; NULL: every id is allowed */
    const struct sample_history *history; /* NULL: no penalty is on */
    const int32_t *banned[2];             /* end and stop ids while min_tokens lasts */
    int n_banned[2];
    int choice;
    int64_t index;
    float *ret_margin; /* how sure the draw is, see race_draw; of the argmax: its logit less the
                        * second; NULL: not wanted */
};

enum { SAMPLE_NOTHING = -1 }; /* every id is banned */

/* The id drawn, or SAMPLE_NOTHING. */
int32_t sampler_draw(struct sampler *s, const struct sample_row *row);

/* Returns true if the draw is the argmax of the raw logits. */
bool sample_is_argmax(const struct eng_sampling *chain);
bool sample_has_penalty(const struct eng_sampling *chain);

/*
 * Log-probability of id under the softmax of the raw logits, and those of n ids into ret; ids NULL:
 * of the n most likely (best first, ties by lower id).
 */
float sampler_logprobs(struct sampler *s, const float *logits, int32_t id, const int32_t *ids,
                       int n, struct eng_logprob *ret);

/* 1 for the most likely id; ties go to the lower id. */
int sample_rank(const float *logits, int32_t vocab, int32_t id);

/* 0, or ENG_EINVAL and a sentence naming the field. */
int sample_check(const struct eng_sampling *chain, int32_t vocab, char *err, size_t errlen);
