/* SPDX-License-Identifier: MIT */
/*
 * Regular expressions of tokenizer.json at work, by PCRE2.
 *
 * Whatever the pattern, a search ends: every repetition is counted together with the distance it
 * covered, and the sum over one call is bounded by a multiple of the text's length.
 *
 * Threads: a regex is const once made. A scratch belongs to one call at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tokenizer/unicode.h"

struct tok_regex;

/* Translates and compiles pattern (valid UTF-8). Returns owned: tok_regex_destroy. */
int tok_regex_create(struct tok_regex **ret, const struct tok_uni *uni, const char *pattern,
                     size_t len, char *err, size_t errlen);
void tok_regex_destroy(struct tok_regex *re);

/* Working memory and work budget of one call. Zero-initialise. */
struct tok_regex_scratch {
    void *match_data, *match_context, *jit_stack; /* PCRE2's */
    uint64_t budget;                              /* work units left */
    size_t last_position;                         /* where the last callout of this search was */
};

/* Gives the call its budget, for a text of text_len bytes. */
void tok_regex_scratch_init(struct tok_regex_scratch *s, size_t text_len);
/* The budget of one short text of very many, such as a token; the working memory is kept. */
void tok_regex_scratch_next(struct tok_regex_scratch *s, size_t text_len);
void tok_regex_scratch_finish(struct tok_regex_scratch *s);

/* The successive matches in one text, as the reference iterates them. */
struct tok_regex_iter {
    const struct tok_regex *re;
    const char *text; /* borrowed, valid UTF-8 */
    size_t len;
    size_t pos;      /* where the next search begins */
    size_t last_end; /* end of the last match, SIZE_MAX before the first */
};

static inline struct tok_regex_iter tok_regex_iter(const struct tok_regex *re, const char *text,
                                                   size_t len)
{
    return (struct tok_regex_iter){re, text, len, 0, SIZE_MAX};
}

/* 1: [*ret_begin, *ret_end) is the next match, possibly empty; 0: no more; TOK_ELIMIT: err says so.
 */
int tok_regex_next(struct tok_regex_iter *it, struct tok_regex_scratch *s, size_t *ret_begin,
                   size_t *ret_end, char *err, size_t errlen);
