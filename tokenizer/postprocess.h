/* SPDX-License-Identifier: MIT */
/* Post-processors: the special ids around one sequence of ids, or around and between two. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "tokenizer/tok_types.h"

/* before A behind, or before A between B behind. */
struct tok_post_form {
    struct tok_ids before, between, behind;
    size_t n_first; /* special ids of token type 0; they come first, as A does */
    bool b_first;   /* B has type 0 */
};

struct tok_post {
    struct tok_post_form single, pair;
    char pair_problem[128]; /* why pairs cannot be joined, or empty */
    bool has_form;          /* while loading: a processor other than ByteLevel was met */
};

/*
 * Loads the "post_processor" member (NULL or JSON null: none) into a zeroed post. TOK_EINVAL names
 * the unknown part. A "pair" that cannot be joined is an error only when it is used.
 */
int tok_post_load(struct tok_post *p, const json_t *json, char *err, size_t errlen);
void tok_post_finish(struct tok_post *p);
