/* SPDX-License-Identifier: MIT */
/*
 * Objects whose keys depend on each other (dependentRequired). Every key of a dependency is
 * remembered when it comes. After a key the object can be completed if all that is needed, and all
 * that those keys need in turn, can still come, is not too much, and is enough.
 */
#include <string.h>

#include "tokenizer/grammar/cells.h"
#include "tokenizer/grammar/rules.h"

enum { WORDS = GRAM_MAX_DEPENDENT_KEYS / 64 };

struct keys {
    uint64_t words[WORDS];
};

static bool has(const struct keys *k, uint32_t key)
{
    return k->words[key / 64] >> key % 64 & 1;
}

static void add(struct keys *k, uint32_t key)
{
    k->words[key / 64] |= (uint64_t)1 << key % 64;
}

static uint32_t count(const struct keys *k)
{
    uint32_t n = 0;
    for (int i = 0; i < WORDS; i++)
        n += (uint32_t)__builtin_popcountll(k->words[i]);
    return n;
}

/* Keys that are there, and keys that can still come, behind `key`. */
static void split(const struct gram_object *o, const struct gram_cells *cells,
                  const struct gram_frame *f, uint32_t key, struct keys *there, struct keys *open)
{
    uint32_t pos = key >= o->n_declared ? o->n_declared : key + 1;

    for (uint32_t k = 0; k < o->n_keys; k++) {
        bool word = k >= o->n_declared, known = gram_key_known(cells, f->list, k);
        if (k == key || known)
            add(there, k);
        else if (!word && k < pos && o->keys[k].required)
            add(there, k);
        else if ((word || k >= pos) && o->keys[k].value != GRAM_NONE)
            add(open, k);
    }
}

/* Takes keys out of `open` that need one that can no longer come, until nothing changes. */
static void close_hopeless(const struct gram_object *o, const struct keys *there, struct keys *open)
{
    bool changed = true;

    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < o->n_dependencies; i++) {
            uint32_t k = o->dependencies[i].if_key, wanted = o->dependencies[i].then_key;
            if (!has(open, k) || has(there, wanted) || has(open, wanted)) continue;
            open->words[k / 64] &= ~((uint64_t)1 << k % 64);
            changed = true;
        }
    }
}

/* All that must still come; false if something of it cannot. */
static bool find_needed(const struct gram_object *o, const struct keys *there,
                        const struct keys *open, struct keys *needed)
{
    bool changed = true;

    for (uint32_t k = 0; k < o->n_keys; k++)
        if (o->keys[k].required && !has(there, k)) add(needed, k);
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < o->n_dependencies; i++) {
            uint32_t k = o->dependencies[i].if_key, wanted = o->dependencies[i].then_key;
            if (!has(there, k) && !has(needed, k)) continue;
            if (has(there, wanted) || has(needed, wanted)) continue;
            add(needed, wanted);
            changed = true;
        }
    }
    for (int i = 0; i < WORDS; i++)
        if (needed->words[i] & ~open->words[i]) return false;
    return true;
}

bool gram_object_feasible(const struct gram_object *o, const struct gram_cells *cells,
                          const struct gram_frame *f, uint32_t key)
{
    struct keys there = {{0}}, open = {{0}}, needed = {{0}};

    split(o, cells, f, key, &there, &open);
    close_hopeless(o, &there, &open);
    if (!find_needed(o, &there, &open, &needed)) return false;
    if (o->max != GRAM_INFINITE && f->count + 1 + count(&needed) > o->max) return false;
    return o->free_kind != GRAM_FREE_NONE || f->count + 1 + count(&open) >= o->min;
}
