/* SPDX-License-Identifier: MIT */
/*
 * SHA-256 (FIPS 180-4): API keys are kept, compared and told apart by it. SipHash-2-4: short names
 * for what clients send, which they cannot make collide. Pure; threads: safe.
 */
#ifndef HEARTH_SERVER_DIGEST_H
#define HEARTH_SERVER_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { SRV_DIGEST_BYTES = 32 };

/* Digest of a followed by b; either may be empty. */
void srv_digest(uint8_t ret[SRV_DIGEST_BYTES], const void *a, size_t a_len, const void *b,
                size_t b_len);

/* SipHash-2-4 of the bytes under a key of 128 bits. */
uint64_t srv_digest_keyed(const uint64_t key[2], const void *data, size_t len);

#endif
