/* SPDX-License-Identifier: MIT */
/*
 * Draft tokens: guesses at what a sequence generates next, so that one step can check several.
 *
 * A draft is copied from text: from a prediction that came with the request, or from the prompt and
 * answer themselves, after the last place where their newest three ids, else two, occurred before
 * (Saxena, "Prompt Lookup Decoding", 2023). Where a guide leaves one text only, its ids are a draft
 * too. Each token generated shows whether the id proposed for
 * it was right, tried or not. So source and rates are functions of the text alone; only the number
 * of ids that are tried depends on what a row costs at the moment.
 *
 * There is no index. A search reads four bytes per token of text; the step that follows reads the
 * keys and values of the same tokens, which are hundreds of times as much.
 *
 * Threads: the scheduler thread only. Nothing is allocated.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/job_types.h"

enum { DRAFT_MAX = ENG_DRAFT_IDS }; /* ids tried per step */

/* How sure a source is: by the number of ids that have agreed so far, a prediction, or a guide. */
enum draft_trust {
    DRAFT_AFTER_2,
    DRAFT_AFTER_3,
    DRAFT_AFTER_MORE,
    DRAFT_PREDICTED,
    DRAFT_FORCED,
    DRAFT_TRUSTS
};

/* The text of a sequence and its prediction; borrowed. */
struct draft_text {
    const int32_t *ids; /* [n] prompt and answer */
    int64_t n;
    const int32_t *prediction; /* [n_prediction] */
    int64_t n_prediction;
};

struct draft {
    bool predicted; /* the source is the prediction, else the text */
    int64_t next;   /* place of the id proposed next, in the source; -1: none is proposed */
    int64_t anchor; /* prediction: the place after the last id that was right */
    int n_agreed;   /* ids before `next` that agreed with the text */
    int n_forced;   /* ids of the guide's text that come next */
    int32_t forced[DRAFT_MAX];
    float rate[DRAFT_TRUSTS]; /* share of proposals that were right, newer ones weigh more */
};

/* Before the first token is generated. */
void draft_begin(struct draft *d, const struct draft_text *t);

/* The ids of a text that a guide leaves as the only one; n of 0 to DRAFT_MAX, until the next call.
 * They are proposed unless the other source has been right more often. */
void draft_force(struct draft *d, const int32_t *ids, int n);

/*
 * Takes notice of a generated id, the last of the text. Returns 1 if the prediction proposed it, -1
 * if the prediction proposed another, 0 if it proposed none.
 */
int draft_note(struct draft *d, const struct draft_text *t);

/* Copies the ids proposed next, at most n, to ret; returns their number. */
int draft_copy(const struct draft *d, const struct draft_text *t, int n, int32_t *ret);

/* The source of the ids proposed next. */
enum eng_draft_source draft_source(const struct draft *d);

/* The estimated share of cases in which proposal i is right if all before it are. */
double draft_rate(const struct draft *d, int i);

/*
 * The tokens that a step is expected to give, per time of a step of one row, at the best length up
 * to n. row_cost is from draft_cost_row.
 */
double draft_value(const struct draft *d, int n, double row_cost);

/* ---- the cost of a row ----------------------------------------------------------------------- */

/*
 * Time per step as base + slope x rows, fitted by least squares over steps without prompt rows,
 * newer ones weighing more.
 */
struct draft_cost {
    double weight, rows, rows2, us, rows_us; /* weighted sums */
};
void draft_cost_note(struct draft_cost *c, int n_rows, double us);

/* The time of one more row, as measured: noise can make it 0 or less. */
double draft_cost_more_us(const struct draft_cost *c);

/* The cost of one more row, as a share of a step of one row; not below that of arithmetic. */
double draft_cost_row(const struct draft_cost *c);

/* The time of a step of n_rows, as far as it is known; 0: not at all. */
double draft_cost_us(const struct draft_cost *c, int n_rows);

/*
 * Decides how many ids a sequence may try. n_tokens is what the step is expected to give without
 * them, n_rows its rows; both grow by the decision. row_cost is from draft_cost_row.
 */
int draft_length(const struct draft *d, int most, double row_cost, double *n_tokens, int *n_rows);
