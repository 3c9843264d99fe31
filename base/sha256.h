/* SPDX-License-Identifier: MIT */
/*
 * SHA-256, and SHA-1, which names git's objects and should name nothing else (FIPS 180-4), as
 * nettle computes them. Pure; one owner per state.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA1_BYTES = 20 };

struct sha256 {
    const struct nettle_hash *hash;
    uint64_t state[14]; /* nettle's */
};

/* A message in pieces of any length; after sha256_final the state is used up. */
void sha256_init(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t len);
void sha256_final(struct sha256 *s, uint8_t ret[SHA256_BYTES]);

/* Begins a message of SHA-1: sha256_final gives the SHA1_BYTES of its digest. */
void sha1_init(struct sha256 *s);

/* A message in one piece. */
void sha256(uint8_t ret[SHA256_BYTES], const void *data, size_t len);

/* Of a key and a message: a short name for what strangers send, which they cannot make collide
 * without the key. */
uint64_t sha256_64(const uint64_t key[2], const void *data, size_t len);
