/* SPDX-License-Identifier: MIT */
/*
 * One arena of bytes, one array by id, one open-addressing table. A slot keeps 32 bits of the hash,
 * so that a miss seldom touches the arena and growing does not hash again.
 */
#include "tokenizer/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/fail.h"
#include "base/shown.h"
#include "tokenizer/tok_types.h"

#define NO_TOKEN UINT32_MAX

static uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t tok_hash_bytes(const char *s, size_t len)
{
    const uint64_t k0 = 0x9E3779B97F4A7C15u, k1 = 0xD1B54A32D192ED03u;
    uint64_t h = k0 ^ len, a, b = 0;
    while (len > 16) {
        memcpy(&a, s, 8);
        memcpy(&b, s + 8, 8);
        h = mix(h ^ a, k1 ^ b);
        s += 16;
        len -= 16;
    }
    if (len >= 8) {
        memcpy(&a, s, 8);
        memcpy(&b, s + len - 8, 8);
    } else if (len >= 4) {
        uint32_t low, high;
        memcpy(&low, s, 4);
        memcpy(&high, s + len - 4, 4);
        a = low;
        b = high;
    } else {
        const unsigned char *u = (const unsigned char *)s;
        a = len ? (uint64_t)u[0] << 16 | (uint64_t)u[len / 2] << 8 | u[len - 1] : 0;
        b = 0;
    }
    return mix(h ^ a, k1 ^ b);
}

void tok_vocab_finish(struct tok_vocab *v)
{
    free(v->arena);
    free(v->entries);
    free(v->slots);
    memset(v, 0, sizeof(*v));
}

static void insert_slot(uint64_t *slots, uint32_t n_slots, uint64_t slot)
{
    uint32_t i = (uint32_t)(slot >> 32) & (n_slots - 1);
    while (slots[i])
        i = (i + 1) & (n_slots - 1);
    slots[i] = slot;
}

/* At most half of the slots are taken. */
static int grow_slots(struct tok_vocab *v)
{
    if (v->n_tokens * 2 < v->n_slots) return 0;
    uint32_t n = v->n_slots ? v->n_slots * 2 : 1024;
    uint64_t *slots = calloc(n, sizeof(*slots));
    if (!slots) return TOK_ENOMEM;
    for (uint32_t i = 0; i < v->n_slots; i++)
        if (v->slots[i]) insert_slot(slots, n, v->slots[i]);
    free(v->slots);
    v->slots = slots;
    v->n_slots = n;
    return 0;
}

static int32_t find_hashed(const struct tok_vocab *v, const char *s, size_t len, uint32_t hash)
{
    uint32_t mask = v->n_slots - 1;
    if (v->n_slots == 0) return -1;
    for (uint32_t i = hash & mask; v->slots[i]; i = (i + 1) & mask) {
        if ((uint32_t)(v->slots[i] >> 32) != hash) continue;
        uint32_t id = (uint32_t)v->slots[i] - 1;
        const struct tok_vocab_entry *e = &v->entries[id];
        if (e->len == len && memcmp(v->arena + e->offset, s, len) == 0) return (int32_t)id;
    }
    return -1;
}

static int refuse(const char *what, const char *s, size_t len, uint32_t id, char *err,
                  size_t errlen)
{
    char shown[64];
    return fail_with(TOK_EINVAL, err, errlen, "vocabulary: token \"%s\" with id %u: %s",
                     shown_text(shown, sizeof(shown), s, len), id, what);
}

int tok_vocab_add(struct tok_vocab *v, const char *s, size_t len, uint32_t id, char *err,
                  size_t errlen)
{
    uint32_t hash = (uint32_t)tok_hash_bytes(s, len);
    if (id >= TOK_MAX_IDS) return refuse("ids must be below 2097152", s, len, id, err, errlen);
    if (find_hashed(v, s, len, hash) >= 0)
        return refuse("the token occurs twice", s, len, id, err, errlen);
    if (len > UINT32_MAX - v->arena_len || grow_slots(v) ||
        ARRAY_ROOM(v->arena, v->arena_cap, v->arena_len + len, 4096) ||
        ARRAY_ROOM(v->entries, v->entries_cap, id + 1, 256))
        return TOK_ENOMEM;
    for (; v->n_ids <= id; v->n_ids++)
        v->entries[v->n_ids].len = NO_TOKEN;
    if (v->entries[id].len != NO_TOKEN)
        return refuse("another token has this id", s, len, id, err, errlen);
    v->entries[id] = (struct tok_vocab_entry){(uint32_t)v->arena_len, (uint32_t)len};
    memcpy(v->arena + v->arena_len, s, len);
    v->arena_len += len;
    v->n_tokens++;
    insert_slot(v->slots, v->n_slots, (uint64_t)hash << 32 | (id + 1));
    return 0;
}

int32_t tok_vocab_find(const struct tok_vocab *v, const char *s, size_t len)
{
    return find_hashed(v, s, len, (uint32_t)tok_hash_bytes(s, len));
}

void tok_vocab_find_bytes(const struct tok_vocab *v, int32_t ids[256])
{
    char name[8];
    for (unsigned i = 0; i < 256; i++) {
        snprintf(name, sizeof(name), "<0x%02X>", i);
        ids[i] = tok_vocab_find(v, name, 6);
    }
}

const char *tok_vocab_string(const struct tok_vocab *v, int32_t id, size_t *ret_len)
{
    if (id < 0 || (uint32_t)id >= v->n_ids || v->entries[id].len == NO_TOKEN) return NULL;
    *ret_len = v->entries[id].len;
    return v->arena + v->entries[id].offset;
}
