/* SPDX-License-Identifier: MIT */
/*
 * Normalizers: what happens to a stretch of text before it is split. The steps of a Sequence run in
 * order, each from one buffer into the other; for every byte of the result its origin is kept, the
 * position in the caller's text it comes from, by the reference's rules of alignment.
 *
 * Threads: a normalizer is const once loaded. A work belongs to one call at a time.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/bounded_regex.h"
#include "tokenizer/json_component.h"
#include "tokenizer/unicode.h"

struct tok_norm_step;

struct tok_normalizer {
    const struct tok_uni *uni; /* borrowed */
    struct tok_norm_step *steps;
    size_t n_steps;
};

/*
 * Loads the "normalizer" member (NULL or JSON null: none). TOK_EINVAL names an unknown one, or the
 * pattern whose repetition grows above the bound of struct tok_growth.
 */
int tok_normalizer_load(struct tok_normalizer *n, const struct tok_uni *uni, const json_t *json,
                        char *err, size_t errlen);
/* Zeroed memory is fine. */
void tok_normalizer_finish(struct tok_normalizer *n);

/* Text with the origin of each byte. */
struct tok_norm_text {
    char *bytes;
    uint32_t *origin; /* [len] */
    size_t len, cap;
    size_t max; /* len may not become larger */
};

/* What one call on a text works with: buffers, budgets, and where its error goes. */
struct tok_work {
    struct tok_norm_text text[2];
    struct tok_norm_chars *chars; /* code points, for the Unicode forms */
    struct tok_component_text pieces[TOK_MAX_COMPONENTS + 1]; /* of pre-tokenizers, by stage */
    struct tok_regex_scratch regex;
    struct tok_growth growth; /* of all stretches of the text together */
    char *err;
    size_t errlen;
};

void tok_work_init(struct tok_work *w, size_t text_len, char *err, size_t errlen);
void tok_work_finish(struct tok_work *w);

/*
 * Normalizes text[0..len) (valid UTF-8), whose first byte has origin `base`. When at
 * most the ends were cut off, *ret lies in text and *ret_origin is NULL; else both point into the
 * work's buffers, valid until their next use. What the steps add is taken from the growth budget;
 * TOK_ELIMIT when it or the regular expressions' is spent.
 */
int tok_normalize(const struct tok_normalizer *n, struct tok_work *w, const char *text, size_t len,
                  uint32_t base, const char **ret, size_t *ret_len, const uint32_t **ret_origin);
