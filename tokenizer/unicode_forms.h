/* SPDX-License-Identifier: MIT */
/*
 * The Unicode normalization forms over code points with origins. utf8proc supplies the properties
 * of single characters; ordering is our own, because it must stay n log n on any text, and
 * characters newer than the reference's normalization are left alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tok_norm_char {
    uint32_t cp;
    uint32_t origin;
    uint8_t ccc; /* canonical combining class */
};

struct tok_norm_chars {
    struct tok_norm_char *v;
    size_t n, cap;
};

/* NULL is fine. */
void tok_norm_chars_destroy(struct tok_norm_chars *c);

/* Appends the full decomposition of cp, canonical or compatible. 0 or TOK_ENOMEM. */
int tok_uniform_decompose(struct tok_norm_chars *c, uint32_t cp, uint32_t origin, bool compat);

/* Puts runs of combining characters in canonical order. 0 or TOK_ENOMEM. */
int tok_uniform_order(struct tok_norm_chars *c);

/* Canonical composition; a composed character has the origin of its first. */
void tok_uniform_compose(struct tok_norm_chars *c);
