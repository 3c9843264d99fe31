/* SPDX-License-Identifier: MIT */
/*
 * From bytes to classes of code points: a small automaton over UTF-8, shared by all states of a
 * deterministic automaton. Between characters it is in state 0. For strings of JSON it also takes
 * escapes apart, in their one spelling, and knows the closing quote. Bytes that no token spells
 * alone match nothing.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct gram_build;
struct gram_classes;

/* Target of a byte: a state below GRAM_DEC_CLASS, a class, or one of these. */
enum {
    GRAM_DEC_CLASS = 0x8000, /* | class */
    GRAM_DEC_QUOTE = 0xFFFE,
    GRAM_DEC_DEAD = 0xFFFF,
};

/* States of escapes: after a backslash, and after \u, \u0, \u00, \u000, \u001. */
enum {
    GRAM_DEC_BACKSLASH = 1,
    GRAM_DEC_U,
    GRAM_DEC_U0,
    GRAM_DEC_U00,
    GRAM_DEC_U000,
    GRAM_DEC_U001,
    GRAM_DEC_UTF8, /* the first state inside a character */
};

struct gram_decoder {
    uint16_t root[256];
    const uint16_t (*inside)[64]; /* per state from GRAM_DEC_UTF8, by the low bits of the byte */
    uint16_t ascii[128];          /* the state after an ASCII character escaped in JSON */
    uint32_t n_states;
    uint32_t n_words;      /* words of a set of classes */
    const uint64_t *reach; /* [n_states][n_words]: classes that can come of a state */
    uint64_t bytes[4];     /* spellable bytes, for escapes */
    bool json;
};

/* Fills a decoder; its tables are kept. spellable: a bit per byte. False if it grows too large. */
bool gram_decoder_build(struct gram_build *b, struct gram_decoder *d,
                        const struct gram_classes *classes, const uint64_t spellable[4], bool json);

/* The escapes of JSON: the character of one letter, or 0; and back. */
uint8_t gram_escape_char(uint8_t letter);
uint8_t gram_escape_letter(uint8_t c);

uint16_t gram_decoder_escape(const struct gram_decoder *d, uint32_t state, uint8_t byte);

static inline uint16_t gram_decoder_step(const struct gram_decoder *d, uint32_t state, uint8_t byte)
{
    if (state == 0) return d->root[byte];
    if (state < GRAM_DEC_UTF8) return gram_decoder_escape(d, state, byte);
    return (byte & 0xC0) == 0x80 ? d->inside[state - GRAM_DEC_UTF8][byte & 63] : GRAM_DEC_DEAD;
}
