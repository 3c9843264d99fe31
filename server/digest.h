/* SPDX-License-Identifier: MIT */
/* SHA-256 (FIPS 180-4): API keys are kept, compared and told apart by it. Pure; threads: safe. */
#ifndef HEARTH_SERVER_DIGEST_H
#define HEARTH_SERVER_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { SRV_DIGEST_BYTES = 32 };

/* Digest of a followed by b; either may be empty. */
void srv_digest(uint8_t ret[SRV_DIGEST_BYTES], const void *a, size_t a_len, const void *b,
                size_t b_len);

#endif
