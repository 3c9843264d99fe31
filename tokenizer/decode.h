/* SPDX-License-Identifier: MIT */
/*
 * Decoders: token strings -> text, as a plan that a stream can follow. Components up to the one
 * that joins the tokens (Fuse, ByteLevel, or the end) work on single tokens; those after it on the
 * text.
 *
 * What a Replace makes longer is bounded when the file is loaded, so that no stream fails on it: on
 * tokens by checking each token of the vocabulary, on the text by the ratio of content to pattern.
 *
 * Threads: a plan is const once loaded. A run belongs to one decoder or call.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/json_component.h"
#include "tokenizer/unicode.h"

enum tok_join {
    TOK_JOIN_PLAIN,     /* one after the other */
    TOK_JOIN_SPACES,    /* no decoder at all: a blank between tokens */
    TOK_JOIN_BYTELEVEL, /* tokens are bytes in the byte alphabet */
};

struct tok_decode_op;

struct tok_decode_plan {
    struct tok_decode_op *ops; /* [n_ops] in order */
    size_t n_ops;
    size_t n_token_ops; /* the first of them work on tokens, the rest on the text */
    size_t fallback;    /* index of ByteFallback among the token ops; n_token_ops: none */
    enum tok_join join;
    bool joined;   /* while loading: Fuse or ByteLevel was met */
    bool by_token; /* some token may come out longer: tok_decode_check must see them all */
};

/*
 * Loads the "decoder" member (NULL or JSON null: tokens with blanks between). TOK_EINVAL names what
 * is unknown, or known but in an order that no stream can follow.
 */
int tok_decode_load(struct tok_decode_plan *p, const struct tok_uni *uni, const json_t *json,
                    char *err, size_t errlen);
/* Zeroed memory is fine. */
void tok_decode_finish(struct tok_decode_plan *p);

/* A growable byte buffer. */
struct tok_decode_text {
    char *s;
    size_t len, cap;
    size_t max; /* TOK_ELIMIT above it; 0: none */
};

#define TOK_MAX_TEXT_OPS 8

/* State of a text op. */
struct tok_decode_state {
    uint32_t leading;             /* Strip: characters still to take off the front */
    uint32_t held;                /* Strip: characters held back at the end */
    struct tok_decode_text match; /* Replace: the beginning of a match, perhaps */
};

/* One stream of tokens. Zero-initialise, then tok_decode_reset. */
struct tok_decode_run {
    unsigned char bytes[4]; /* of a character not complete yet */
    size_t n_bytes;
    bool started;    /* a token was taken */
    bool in_bytes;   /* the last token was a byte token */
    bool past_first; /* the first token, or run of byte tokens, is over */
    int rc;          /* of the call: the first failure */
    struct tok_decode_text work[2], out;
    struct tok_decode_state states[TOK_MAX_TEXT_OPS];
    struct tok_regex_scratch regex;
};

void tok_decode_reset(const struct tok_decode_plan *p, struct tok_decode_run *r);
void tok_decode_run_finish(struct tok_decode_run *r);

/*
 * Called for every token of the vocabulary while loading, if by_token is set. TOK_EINVAL, with a
 * sentence, for a token that becomes more than TOK_GROWTH_PER_BYTE times as long.
 */
int tok_decode_check(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *token,
                     size_t len, char *err, size_t errlen);

/* Empties r->out and appends the text that the token completes. Returns 0 or a tok_error. */
int tok_decode_push(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *token,
                    size_t len);

/* Empties r->out and appends the text that was held back. */
int tok_decode_flush(const struct tok_decode_plan *p, struct tok_decode_run *r);

/* Writes the bytes that a token stands for in the middle of a text to r->out. */
int tok_decode_bytes(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *token,
                     size_t len);
