/* SPDX-License-Identifier: MIT */
/*
 * Token strings by id and ids by token string. Ids may have holes; each id and each string occurs
 * once. Filled while loading, const afterwards.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Ids and merge ranks stay below 2^21, so that a merge fits in 64 bits (bpe.c). */
#define TOK_MAX_IDS (1u << 21)

struct tok_vocab_entry {
    uint32_t offset; /* into the arena */
    uint32_t len;    /* UINT32_MAX: no such id */
};

struct tok_vocab {
    char *arena;
    size_t arena_len, arena_cap;
    struct tok_vocab_entry *entries; /* [n_ids] */
    uint32_t n_ids;                  /* one more than the largest id */
    uint32_t entries_cap;
    uint64_t *slots;  /* hash << 32 | id + 1, or 0; open addressing */
    uint32_t n_slots; /* a power of two */
    uint32_t n_tokens;
};

/* Zeroed memory is an empty vocabulary. */
void tok_vocab_finish(struct tok_vocab *v);

/*
 * Adds a token. 0, TOK_ENOMEM, or TOK_EINVAL with a sentence in err when the string or the id is
 * taken or the id is not below TOK_MAX_IDS.
 */
int tok_vocab_add(struct tok_vocab *v, const char *s, size_t len, uint32_t id, char *err,
                  size_t errlen);

/* The id of a string, or -1. */
int32_t tok_vocab_find(const struct tok_vocab *v, const char *s, size_t len);
/* The ids of the tokens <0x00> to <0xFF>; -1: none. */
void tok_vocab_find_bytes(const struct tok_vocab *v, int32_t ids[256]);

/* The string of an id, borrowed, not NUL-terminated; NULL if it is not an id. */
const char *tok_vocab_string(const struct tok_vocab *v, int32_t id, size_t *ret_len);

/* A fast hash of bytes, for tables whose content is ours or whose collisions cost nothing. */
uint64_t tok_hash_bytes(const char *s, size_t len);
