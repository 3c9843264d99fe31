/* SPDX-License-Identifier: MIT */
/*
 * The input of one step: segments of sequences, each with its tokens and pages. Everything is
 * borrowed until the step ends.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The rows of a segment that want logits. */
enum fwd_want { FWD_WANT_NONE, FWD_WANT_LAST, FWD_WANT_ALL };

struct eng_lora_use;

struct fwd_segment {
    const int32_t *tokens; /* [n_tokens], each in [0, vocab) */
    int n_tokens;          /* >= 1 */
    int64_t pos0;          /* of the first token; earlier positions are in the pages */
    uint8_t *const *pages; /* data of page i of the sequence: positions 32 i .. 32 i + 31; covers
                              pos0 + n_tokens */
    float *state;          /* of the sequence, see state.h; NULL if the model has none */
    bool drafts;           /* the twin's: no id after the sequence's last one is known yet */
    const struct eng_lora_use *loras; /* [n_loras] */
    int n_loras;
    enum fwd_want want;
    int n_first; /* with token types: tokens of the first type; the others have the second */
    /*
     * NULL, or [d_model]: the state of the text's pooling, which the segments of a text from its
     * first one on pass on; its contents before position 0 do not matter.
     */
    float *pool;
    int64_t n_unpooled; /* tokens at the start that means and maxima leave out */
    bool ends;          /* the last segment of the text: fwd_pooled has its row */
};

/* No two segments of a step belong to one sequence. */
struct fwd_step {
    const struct fwd_segment *segs;
    int n_segs;
    const atomic_bool *stop; /* NULL, or: abandon the step between layers once true */
};
