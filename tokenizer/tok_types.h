/* SPDX-License-Identifier: MIT */
/* The types that the headers of the tokenizer library share. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum tok_error {
    TOK_EINVAL = -1, /* the file or the request is wrong; err says what */
    TOK_ENOMEM = -2,
    TOK_EIO = -3,    /* a file cannot be read */
    TOK_ENOENT = -4, /* the file, or the thing asked for, is not there */
    TOK_ELIMIT = -5, /* a budget (steps, depth, output) ran out */
    TOK_EUTF8 = -6,  /* the text is not valid UTF-8 */
    TOK_ERAISE = -7, /* the template called raise_exception; err holds its message */
};

/* Bytes [begin, end) of a text. */
struct tok_range {
    size_t begin;
    size_t end;
};

/* A growable list of token ids. Zero-initialise, fill by the calls of tokenizer.h, then
 * tok_ids_finish. */
struct tok_ids {
    int32_t *ids;
    size_t n;
    size_t cap;
};

void tok_ids_finish(struct tok_ids *ids);
