/* SPDX-License-Identifier: MIT */
/*
 * SHA-1 (FIPS 180-4), which names git's objects; nothing else should use it. Pure; one owner per
 * state.
 */
#pragma once

#include "base/sha256.h"

enum { SHA1_BYTES = 20 };

/*
 * Begins a message of SHA-1, which goes on as one of SHA-256: its digest is the first SHA1_BYTES of
 * what sha256_final gives.
 */
void sha1_init(struct sha256 *s);
