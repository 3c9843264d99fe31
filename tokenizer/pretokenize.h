/* SPDX-License-Identifier: MIT */
/*
 * Pre-tokenizers: a stretch of normalized text -> the pieces that the model encodes one by one. The
 * components of a Sequence form stages; a piece runs through all of them before the next one is
 * cut, so nothing is collected.
 *
 * Threads: a pretok is const once loaded. A work belongs to one call at a time.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "tokenizer/normalize.h"
#include "tokenizer/unicode.h"

struct tok_pre_stage;

struct tok_pretok {
    const struct tok_uni *uni; /* borrowed */
    struct tok_pre_stage *stages;
    size_t n_stages;
    bool raw_bytes; /* the last stage is ByteLevel and leaves its pieces as the bytes they are */
};

/*
 * Loads the "pre_tokenizer" member (NULL or JSON null: none). allow_raw: the model takes raw bytes
 * in place of the byte alphabet. TOK_EINVAL names the unknown part.
 */
int tok_pretok_load(struct tok_pretok *p, const struct tok_uni *uni, const json_t *json,
                    bool allow_raw, char *err, size_t errlen);
/* Zeroed memory is fine. */
void tok_pretok_finish(struct tok_pretok *p);

/* Takes one piece, borrowed for the call. Anything but 0 stops the splitting and is its result. */
typedef int tok_piece_fn(void *data, const char *piece, size_t len);

/*
 * Splits text[0..len), valid UTF-8. at_start: how many of its first bytes come from the very first
 * character of the caller's text (what Metaspace's scheme "first" asks). What stages add to pieces
 * is taken from the growth budget; TOK_ELIMIT when it or the regular expressions' is spent.
 */
int tok_pretok_split(const struct tok_pretok *p, struct tok_work *w, const char *text, size_t len,
                     size_t at_start, tok_piece_fn *fn, void *data);
