/* SPDX-License-Identifier: MIT */
/* Post-processors for one sequence of ids: the ids they add before and after it. */
#ifndef HEARTH_TOKENIZER_POSTPROCESS_H
#define HEARTH_TOKENIZER_POSTPROCESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "tokenizer/tokenizer.h"

/* Zeroed memory is a post-processor that adds nothing. */
struct tok_post {
    struct tok_ids before, behind;
    bool has_template, has_sequence; /* while loading */
};

/* Loads the "post_processor" member (NULL or JSON null: none). TOK_EINVAL names what is unknown. */
int tok_post_load(struct tok_post *p, const json_t *json, char *err, size_t errlen);
void tok_post_finish(struct tok_post *p);

#endif
