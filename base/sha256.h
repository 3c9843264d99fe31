/* SPDX-License-Identifier: MIT */
/* SHA-256 (FIPS 180-4). Pure; one owner per state. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA_BLOCK = 64 };

struct sha256 {
    void (*compress)(uint32_t *h, const uint8_t *p, size_t n); /* n blocks into the state */
    uint32_t h[8];
    uint8_t block[SHA_BLOCK];
    size_t n_pending; /* bytes in block */
    uint64_t n_bytes;
};

/* A message in pieces of any length; after sha256_final the state is used up. */
void sha256_init(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t len);
void sha256_final(struct sha256 *s, uint8_t ret[SHA256_BYTES]);

/* A message in one piece. */
void sha256(uint8_t ret[SHA256_BYTES], const void *data, size_t len);
