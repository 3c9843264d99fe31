/* SPDX-License-Identifier: MIT */
/*
 * SHA-256 of a buffer (FIPS 180-4), for the fingerprint of tokenizer.json. Pure, any thread.
 */
#ifndef HEARTH_TOKENIZER_SHA256_H
#define HEARTH_TOKENIZER_SHA256_H

#include <stddef.h>
#include <stdint.h>

void tok_sha256(const void *data, size_t len, uint8_t ret_digest[32]);

#endif
