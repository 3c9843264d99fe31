/* SPDX-License-Identifier: MIT */
/*
 * The prompt of a text with a hole: the texts before and after it between the model's marks, and
 * files in front of them that the model may look at. Text of the request never becomes a mark.
 *
 * Threads: the text worker that holds the request.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "server/http/param_error.h"

struct tok_ids;

struct infill_input {
    const char *prefix; /* a text of n_prefix bytes, or NULL: prefix_ids */
    size_t n_prefix;
    const int32_t *prefix_ids;
    size_t n_prefix_ids;
    const char *prompt; /* goes on where the prefix ends; NULL: nothing */
    const char *suffix;
    struct tok_ids *suffix_ids; /* the caller's: made from it unless there are some */
    const json_t *extra;        /* [{"text", "filename"}], oldest first; NULL: none */
    const char *repo, *file;    /* names in front of the files and of the prefix; NULL: no files */
    bool no_begin; /* leave out the tokens that the tokenizer puts in front of a text */
    /* A longer prompt is cut: the oldest files are left out, then prefix and suffix keep what is
     * nearest to the hole, three tokens to one. 0: nothing is cut. */
    int64_t max_tokens;
};

struct infill_prompt {
    const int32_t *ids; /* [n_ids], in the request's memory */
    int64_t n_ids;
    bool cut; /* the header x-infill-cut says how much */
};

/* Returns 0, or -1 after param_fail: also if the model has no marks. */
int infill_prompt_make(struct srv_request *req, const struct infill_input *in,
                       struct infill_prompt *ret);
