/* SPDX-License-Identifier: MIT */
/*
 * What the fuzz targets of grammars check of every compilation and of every text under a grammar.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tests/unit/toy_vocab.h"
#include "tokenizer/grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Where an input is cut in two: at its first zero byte. */
static inline size_t fuzz_cut(const uint8_t *data, size_t size, const uint8_t **rest,
                              size_t *n_rest)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    *rest = zero ? zero + 1 : data + size;
    *n_rest = zero ? size - n - 1 : 0;
    return n;
}

/* NULL if it is refused, which it is with a code and one readable sentence. */
static inline struct gram *fuzz_compile(enum gram_kind kind, const uint8_t *text, size_t n,
                                        bool strict)
{
    static struct gram_vocab *v;
    struct gram_options options = {.strict = strict, .max_steps = 300000};
    struct gram_error err;
    struct gram *g = NULL;

    if (!v) v = toy_vocab();
    int rc = gram_compile(&g, v, kind, (const char *)text, n, &options, &err);
    CHECK(rc == (int)err.code && !g == (rc != 0));
    if (!rc) return g;
    CHECK(rc != GRAM_ENOMEM && err.message[0] && strlen(err.message) <= 300);
    CHECK(utf8_valid(err.message, strlen(err.message)));
    CHECK(utf8_valid(err.pointer, strlen(err.pointer)));
    for (const char *p = err.message; *p; p++)
        CHECK((uint8_t)*p >= 0x20 && *p != 0x7F);
    return NULL;
}

/* Takes a text byte by byte as far as it goes. The mask always knows; true if it is complete. */
static inline bool fuzz_text(const struct gram *g, const uint8_t *text, size_t n)
{
    static void *memory;
    uint64_t bits[TOY_MASK_WORDS];

    if (!memory) memory = toy_state_memory();
    struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
    for (size_t i = 0; i < n; i++) {
        int32_t id = TOY_BYTES + text[i];
        enum gram_next next = gram_mask(s, bits);
        CHECK(next != GRAM_NEXT_FAIL);
        bool allowed = toy_allows(bits, id), taken = gram_take(s, id);
        CHECK(gram_overflows(s) || allowed == taken);
        if (!taken) return false;
    }
    CHECK(gram_mask(s, bits) != GRAM_NEXT_FAIL);
    CHECK(toy_allows(bits, TOY_END) == gram_accepting(s));
    return gram_accepting(s);
}

/* Answers with ids that the bytes choose: there is always a next one, or the answer is complete. */
static inline void fuzz_answer(const struct gram *g, const uint8_t *choices, size_t n)
{
    static void *memory;
    uint64_t bits[TOY_MASK_WORDS];

    if (!memory) memory = toy_state_memory();
    struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
    for (size_t i = 0; i < n; i++) {
        enum gram_next next = gram_mask(s, bits);
        CHECK(next != GRAM_NEXT_FAIL);
        if (next == GRAM_NEXT_END) return;
        int32_t id = 1 + choices[i] * 3 % (TOY_IDS - 1), tried = 0;
        for (; tried < TOY_IDS && (id == TOY_END || !toy_allows(bits, id)); tried++)
            id = (id + 1) % TOY_IDS;
        if (tried == TOY_IDS) {
            CHECK(gram_accepting(s));
            return;
        }
        CHECK(gram_take(s, id));
    }
}
