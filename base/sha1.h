/* SPDX-License-Identifier: MIT */
/*
 * SHA-1 (FIPS 180-4), which names git's objects; nothing else should use it. Pure; one owner per
 * state.
 */
#pragma once

#include "base/sha256.h"

enum { SHA1_BYTES = 20 };

struct sha1 {
    struct sha256 fed;
};

/* A message in pieces of any length; after sha1_final the state is used up. */
void sha1_init(struct sha1 *s);
void sha1_update(struct sha1 *s, const void *data, size_t len);
void sha1_final(struct sha1 *s, uint8_t ret[SHA1_BYTES]);
