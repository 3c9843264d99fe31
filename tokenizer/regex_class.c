/* SPDX-License-Identifier: MIT */
/* A set is put as PCRE2's own property plus the code points that its Unicode version lacks. */
#include "tokenizer/regex_class.h"

#include <string.h>
#include <strings.h>
#include <utf8proc.h>

#include "base/category.h"

/* ---- output -------------------------------------------------------------------------------- */

/* Letters and digits as they are, everything else by number. */
static void put_char(struct buf *o, uint32_t cp)
{
    bool plain = (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || (cp >= '0' && cp <= '9');
    buf_printf(o, plain ? "%c" : "\\x{%x}", cp);
}

void tok_pattern_put_range(struct buf *o, uint32_t first, uint32_t last)
{
    put_char(o, first);
    if (first == last) return;
    buf_puts(o, "-");
    put_char(o, last);
}

/* ---- sets ---------------------------------------------------------------------------------- */

#define N_PROPERTIES (sizeof(categories) / sizeof(categories[0]))

/*
 * Characters of \w besides its categories. Inside a class the reference has none of it below
 * U+0100.
 */
static const struct tok_uni_range *word_extra(const struct tok_char_set *set, size_t *ret_n)
{
    const struct tok_uni_range *extra = tok_uni_ranges(TOK_UNI_WORD_EXTRA, ret_n);
    while (set->in_class && *ret_n && extra->first < 0x100) {
        extra++;
        --*ret_n;
    }
    return extra;
}

static bool in_set(const struct tok_uni *uni, const struct tok_char_set *set, uint32_t cp)
{
    unsigned props = tok_uni_props(uni, cp);
    size_t n;
    if (set->white && props & TOK_UNI_WHITE) return true;
    if (set->categories >> (props & TOK_UNI_CATEGORY) & 1) return true;
    if (set->hex && cp < 0x80 && strchr("0123456789abcdefABCDEF", (int)cp) && cp) return true;
    if (!set->word) return false;
    const struct tok_uni_range *extra = word_extra(set, &n);
    for (size_t i = 0; i < n; i++)
        if (cp >= extra[i].first && cp <= extra[i].last) return true;
    return false;
}

void tok_char_set_put_complement(struct buf *o, const struct tok_uni *uni,
                                 const struct tok_char_set *set)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t cp = 0; cp <= 0x110000; cp++) {
        bool surrogate = cp >= 0xD800 && cp <= 0xDFFF;
        bool outside = cp < 0x110000 && !surrogate && !in_set(uni, set, cp);
        if (outside && first == UINT32_MAX) first = cp;
        if (!outside && first != UINT32_MAX) {
            tok_pattern_put_range(o, first, cp - 1);
            first = UINT32_MAX;
        }
    }
}

static void put_ranges(struct buf *o, const struct tok_uni_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tok_pattern_put_range(o, ranges[i].first, ranges[i].last);
}

static void put_categories(struct buf *o, uint32_t set)
{
    uint32_t left = set;
    size_t n;
    for (size_t i = 0; i < N_PROPERTIES; i++) { /* the wide ones come first */
        uint32_t own = categories[i].set;
        if ((left & own) != own) continue;
        buf_printf(o, "\\p{%s}", categories[i].name);
        left &= ~own;
    }
    const struct tok_uni_range *newer = tok_uni_ranges(TOK_UNI_NEWER, &n);
    for (size_t i = 0; i < n; i++)
        if (set >> newer[i].value & 1) tok_pattern_put_range(o, newer[i].first, newer[i].last);
}

static void put_script(struct buf *o, const struct tok_char_set *set)
{
    size_t n;
    buf_printf(o, "\\p{sc:%s}", set->script);
    const struct tok_uni_range *newer = tok_uni_ranges(TOK_UNI_NEWER_SCRIPT, &n);
    for (size_t i = 0; i < n; i++)
        if (newer[i].value == set->script_index)
            tok_pattern_put_range(o, newer[i].first, newer[i].last);
}

void tok_char_set_put(struct buf *o, const struct tok_char_set *set)
{
    size_t n;
    if (set->white) {
        const struct tok_uni_range *white = tok_uni_ranges(TOK_UNI_WHITE_SPACE, &n);
        put_ranges(o, white, n);
    }
    if (set->hex) buf_puts(o, "0-9A-Fa-f");
    if (set->categories) put_categories(o, set->categories);
    if (set->folded && set->categories == CATEGORY_L) tok_pattern_put_range(o, 0x345, 0x345);
    if (set->script) put_script(o, set);
    if (set->word) {
        const struct tok_uni_range *extra = word_extra(set, &n);
        put_ranges(o, extra, n);
    }
}

/* ---- names --------------------------------------------------------------------------------- */

/* Compares names as the reference does: case, blanks, '-' and '_' do not count. */
static bool same_name(const char *known, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (s[i] == ' ' || s[i] == '-' || s[i] == '_') continue;
        known += *known == '_';
        if (!*known || strncasecmp(known++, s + i, 1) != 0) return false;
    }
    return !*known;
}

bool tok_char_set_find(const char *name, size_t len, struct tok_char_set *set)
{
    for (size_t i = 0; i < N_PROPERTIES; i++)
        if (same_name(categories[i].name, name, len) ||
            same_name(categories[i].long_name, name, len)) {
            set->categories = categories[i].set;
            return true;
        }
    return tok_uni_script(name, len, &set->script_index, &set->script);
}

bool tok_char_set_escape(unsigned char c, struct tok_char_set *set)
{
    *set = (struct tok_char_set){.negated = c >= 'A' && c <= 'Z'};
    switch (c | 0x20) {
    case 's': set->white = true; return true;
    case 'd': set->categories = CATEGORY(ND); return true;
    case 'h': set->hex = true; return true;
    case 'w':
        set->categories = CATEGORY_L | CATEGORY_M | CATEGORY(ND) | CATEGORY(NL) | CATEGORY(PC);
        set->word = true;
        return true;
    default: return false;
    }
}

bool tok_char_set_is_cased(const struct tok_char_set *set)
{
    return set->categories & CATEGORY_CASED && set->categories != CATEGORY_L;
}

bool tok_char_set_folds(const struct tok_uni *uni, const struct tok_char_set *set,
                        bool class_negated)
{
    bool sharp_s = in_set(uni, set, 0xDF) != set->negated;
    if (set->script || (sharp_s && !class_negated)) return true;
    if (set->word) return false;
    return set->categories & CATEGORY_M || (set->categories & CATEGORY_L && set->negated);
}
