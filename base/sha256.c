/* SPDX-License-Identifier: MIT */
/* See sha256.h. */
#include "base/sha256.h"

#include <assert.h>
#include <nettle/nettle-meta.h>
#include <string.h>

static void begin(struct sha256 *s, const struct nettle_hash *hash)
{
    assert(hash->context_size <= sizeof(s->state));
    s->hash = hash;
    hash->init(s->state);
}

void sha256_init(struct sha256 *s)
{
    begin(s, &nettle_sha256);
}

void sha1_init(struct sha256 *s)
{
    begin(s, &nettle_sha1);
}

void sha256_update(struct sha256 *s, const void *data, size_t len)
{
    s->hash->update(s->state, len, data);
}

void sha256_final(struct sha256 *s, uint8_t ret[SHA256_BYTES])
{
    s->hash->digest(s->state, s->hash->digest_size, ret);
}

void sha256(uint8_t ret[SHA256_BYTES], const void *data, size_t len)
{
    struct sha256 s;
    sha256_init(&s);
    sha256_update(&s, data, len);
    sha256_final(&s, ret);
}

uint64_t sha256_64(const uint64_t key[2], const void *data, size_t len)
{
    struct sha256 s;
    uint8_t digest[SHA256_BYTES];
    uint64_t name;
    sha256_init(&s);
    sha256_update(&s, key, 2 * sizeof(*key));
    sha256_update(&s, data, len);
    sha256_final(&s, digest);
    memcpy(&name, digest, sizeof(name));
    return name;
}
