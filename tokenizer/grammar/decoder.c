/* SPDX-License-Identifier: MIT */
/*
 * Builds the automaton of decoder.h. A block of 64, 4,096 or 262,144 code points is what follows a
 * lead byte; equal blocks are one state, and a block of a single class is found without looking at
 * its code points.
 */
#include "tokenizer/grammar/decoder.h"

#include <string.h>

#include "base/hex.h"
#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/nfa.h"

enum { MAX_STATES = 2000, FIRST = GRAM_DEC_UTF8 };

struct builder {
    struct gram_build *b;
    const struct gram_classes *classes;
    const uint64_t *spellable;
    struct gram_table rows;                /* of the states inside characters */
    uint16_t uniform[4][GRAM_MAX_CLASSES]; /* by bytes to come and class: state + 1, or 0 */
    bool too_large;
};

static bool can_spell(const uint64_t *spellable, uint32_t byte)
{
    return spellable[byte / 64] >> byte % 64 & 1;
}

/* The number of a row of the table; equal rows are one state. */
static uint16_t intern(struct builder *d, const uint16_t row[64])
{
    bool dead = true;
    for (int i = 0; i < 64; i++)
        dead &= row[i] == GRAM_DEC_DEAD;
    gram_steps(d->b, 6);
    if (dead || d->too_large) return GRAM_DEC_DEAD;
    uint32_t i = gram_table_add(d->b, &d->rows, row, 64 * sizeof(*row));
    d->too_large = i >= MAX_STATES;
    return (uint16_t)(FIRST + i);
}

/*
 * Node for the code points lo .. lo + 64^n - 1, n bytes still to come. Those outside of
 * min..max cannot be spelled (overlong forms, surrogates, past the end).
 */
static uint16_t block(struct builder *d, uint32_t lo, int n, uint32_t min, uint32_t max)
{
    uint32_t span = (uint32_t)1 << 6 * n, run = gram_run_of(d->classes, lo);
    uint32_t run_end = run + 1 < d->classes->n_runs ? d->classes->runs[run + 1].lo : UINT32_MAX;
    uint8_t class = d->classes->runs[run].class;
    if (lo > max || lo + span - 1 < min) return GRAM_DEC_DEAD;
    if (n == 0) return GRAM_DEC_CLASS | class;
    bool uniform = run_end >= lo + span && lo >= min && lo + span - 1 <= max;
    if (uniform && d->uniform[n][class]) return (uint16_t)(d->uniform[n][class] - 1);
    uint16_t row[64];
    for (uint32_t i = 0; i < 64; i++) {
        row[i] = GRAM_DEC_DEAD;
        if (can_spell(d->spellable, 0x80 + i))
            row[i] = block(d, lo + (i << 6 * (n - 1)), n - 1, min, max);
    }
    uint16_t state = intern(d, row);
    if (uniform && state != GRAM_DEC_DEAD) d->uniform[n][class] = (uint16_t)(state + 1);
    return state;
}

/* Surrogates lie in the middle of the block of ED: its second half does not exist. */
static uint16_t lead(struct builder *d, uint32_t byte)
{
    if (byte < 0xC2 || byte > 0xF4) return GRAM_DEC_DEAD;
    if (byte < 0xE0) return block(d, (byte & 0x1F) << 6, 1, 0x80, 0x7FF);
    if (byte == 0xED) return block(d, 0xD000, 2, 0xD000, 0xD7FF);
    if (byte < 0xF0) return block(d, (byte & 0x0F) << 12, 2, 0x800, 0xFFFF);
    return block(d, (byte & 0x07) << 18, 3, 0x10000, 0x10FFFF);
}

/* ---- escapes ------------------------------------------------------------------------------- */

static const char letters[] = "\"\\bfnrt", chars[] = "\"\\\b\f\n\r\t";

uint8_t gram_escape_char(uint8_t letter)
{
    const char *p = letter ? strchr(letters, letter) : NULL;
    return p ? (uint8_t)chars[p - letters] : 0;
}

uint8_t gram_escape_letter(uint8_t c)
{
    const char *p = c ? strchr(chars, c) : NULL;
    return p ? (uint8_t)letters[p - chars] : 0;
}

/* The last digit of \u000x or \u001x: a control character that has no letter. */
static uint16_t control(const struct gram_decoder *d, int high, uint8_t byte)
{
    int low = hex_value(byte);
    if (low < 0 || gram_escape_letter((uint8_t)(high * 16 + low))) return GRAM_DEC_DEAD;
    return d->ascii[high * 16 + low];
}

uint16_t gram_decoder_escape(const struct gram_decoder *d, uint32_t state, uint8_t byte)
{
    if (!can_spell(d->bytes, byte)) return GRAM_DEC_DEAD;
    switch (state) {
    case GRAM_DEC_BACKSLASH:
        if (byte == 'u') return GRAM_DEC_U;
        return gram_escape_char(byte) ? d->ascii[gram_escape_char(byte)] : GRAM_DEC_DEAD;
    case GRAM_DEC_U: return byte == '0' ? GRAM_DEC_U0 : GRAM_DEC_DEAD;
    case GRAM_DEC_U0: return byte == '0' ? GRAM_DEC_U00 : GRAM_DEC_DEAD;
    case GRAM_DEC_U00:
        return byte == '0' ? GRAM_DEC_U000 : byte == '1' ? GRAM_DEC_U001 : GRAM_DEC_DEAD;
    case GRAM_DEC_U000: return control(d, 0, byte);
    default: return control(d, 1, byte);
    }
}

/* ---- what can come of a state -------------------------------------------------------------- */

static void add_reach(uint64_t *reach, uint32_t n_words, uint32_t to, uint16_t what)
{
    uint64_t *set = reach + to * n_words;
    if (what >= GRAM_DEC_QUOTE) return;
    if (what & GRAM_DEC_CLASS) {
        set[(what & 0xFF) / 64] |= (uint64_t)1 << (what & 63);
        return;
    }
    for (uint32_t w = 0; w < n_words; w++)
        set[w] |= reach[what * n_words + w];
}

/* States inside characters lead to lower ones, escapes to higher ones, the root to all. */
static void find_reach(struct gram_build *b, struct gram_decoder *d)
{
    uint64_t *reach = gram_keep_array(b, (size_t)d->n_states * d->n_words, 8);
    for (uint32_t s = FIRST; s < d->n_states; s++)
        for (uint32_t i = 0; i < 64; i++)
            add_reach(reach, d->n_words, s, d->inside[s - FIRST][i]);
    for (uint32_t s = d->json ? GRAM_DEC_U001 : 0; s >= GRAM_DEC_BACKSLASH; s--)
        for (uint32_t byte = 0x20; byte < 0x7F; byte++)
            add_reach(reach, d->n_words, s, gram_decoder_escape(d, s, (uint8_t)byte));
    for (uint32_t byte = 0; byte < 256; byte++)
        add_reach(reach, d->n_words, 0, d->root[byte]);
    gram_steps(b, d->n_states);
    d->reach = reach;
}

bool gram_decoder_build(struct gram_build *b, struct gram_decoder *d,
                        const struct gram_classes *classes, const uint64_t spellable[4], bool json)
{
    struct builder *build = gram_temp(b, sizeof(*build));
    build->b = b;
    build->classes = classes;
    build->spellable = spellable;
    *d = (struct gram_decoder){.json = json, .n_words = classes->n / 64 + 1};
    memcpy(d->bytes, spellable, sizeof(d->bytes));
    for (uint32_t c = 0; c < 128; c++) {
        d->ascii[c] = (uint16_t)(GRAM_DEC_CLASS | classes->runs[gram_run_of(classes, c)].class);
        d->root[c] = json && c < 0x20 ? GRAM_DEC_DEAD : d->ascii[c];
    }
    if (json) {
        d->root['"'] = GRAM_DEC_QUOTE;
        d->root['\\'] = GRAM_DEC_BACKSLASH;
    }
    for (uint32_t byte = 128; byte < 256; byte++)
        d->root[byte] = lead(build, byte);
    for (uint32_t byte = 0; byte < 256; byte++)
        if (!can_spell(spellable, byte)) d->root[byte] = GRAM_DEC_DEAD;
    d->n_states = FIRST + build->rows.n;
    uint16_t(*inside)[64] = gram_keep_array(b, build->rows.n, sizeof(*inside));
    for (uint32_t i = 0; i < build->rows.n; i++)
        memcpy(inside[i], build->rows.entries[i].key, sizeof(*inside));
    d->inside = (const uint16_t(*)[64])inside;
    find_reach(b, d);
    return !build->too_large;
}
