/* SPDX-License-Identifier: MIT */
/*
 * Regular expressions of tokenizer.json, which are written for Oniguruma (Ruby syntax), rewritten
 * for PCRE2 so that they mean the same: character classes of the reference's Unicode version, \h,
 * \v, (?m:), possessive intervals and similar. A construct without an equal is refused by name.
 */
#pragma once

#include <stddef.h>

#include "tokenizer/unicode.h"

/* Longest pattern and deepest nesting of groups accepted. */
#define TOK_PATTERN_MAX_BYTES 8192
#define TOK_PATTERN_MAX_DEPTH 100

/*
 * Translates pattern[0..len) (valid UTF-8). After everything repeated stands a callout, by which
 * the matcher counts its work. *ret is owned (free). TOK_EINVAL: err names the unsupported part.
 */
int tok_pattern_translate(const struct tok_uni *uni, const char *pattern, size_t len, char **ret,
                          size_t *ret_len, char *err, size_t errlen);
