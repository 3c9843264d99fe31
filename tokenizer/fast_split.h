/* SPDX-License-Identifier: MIT */
/*
 * Hand-written splitters for the patterns that nearly every model uses. Each equals its regular
 * expression exactly (tests/unit/tokenizer/test_fast_split.c compares them), an order faster.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "tokenizer/unicode.h"

/* A splitter: these patterns match at every position, so a text is a row of matches. */
enum tok_split_kind {
    TOK_SPLIT_GPT2,   /* GPT-2, also what ByteLevel's use_regex means */
    TOK_SPLIT_LLAMA3, /* numbers in threes */
    TOK_SPLIT_QWEN2,  /* single digits */
};

/* The regular expression that a splitter stands for. */
const char *tok_split_pattern(enum tok_split_kind kind);

/* Returns true if the pattern is a known one; then which. */
bool tok_split_find(const char *pattern, size_t len, enum tok_split_kind *ret);

/* Length of the match at the front of s[0..len), len > 0, valid UTF-8. s is seen as a text of its
 * own. */
size_t tok_split_next(enum tok_split_kind kind, const struct tok_uni *uni, const char *s,
                      size_t len);
