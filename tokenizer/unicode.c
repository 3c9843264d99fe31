/* SPDX-License-Identifier: MIT */
/*
 * Properties come from utf8proc; the generated ranges of unicode_data.h say where the reference
 * differs. Both are spread over pages of 256 code points, so that a lookup is two loads. A page
 * that is equal to the one before shares its block.
 */
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <utf8proc.h>

#include "tokenizer/tok_types.h"

struct tok_uni_pair {
    uint32_t from, to;
};

#include "tokenizer/unicode_data.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))
#define N_PAGES (0x110000 >> 8)

static const struct tok_uni_range white_space[] = {
    {0x9, 0xD, 0},       {0x20, 0x20, 0},     {0x85, 0x85, 0},     {0xA0, 0xA0, 0},
    {0x1680, 0x1680, 0}, {0x2000, 0x200A, 0}, {0x2028, 0x2029, 0}, {0x202F, 0x202F, 0},
    {0x205F, 0x205F, 0}, {0x3000, 0x3000, 0},
};

/* Returns true if NFC makes something else of a character that has a decomposition. */
static bool nfc_changes(uint32_t cp)
{
    utf8proc_int32_t s[32];
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, s, 32, UTF8PROC_DECOMPOSE, &boundary);
    if (n > 0 && n < 32)
        n = utf8proc_normalize_utf32(s, n, (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    return n != 1 || s[0] != (utf8proc_int32_t)cp;
}

static const uint16_t category_flags[TOK_UNI_CATEGORY + 1] = {
    [UTF8PROC_CATEGORY_LU] = TOK_UNI_LETTER | TOK_UNI_WORD,
    [UTF8PROC_CATEGORY_LL] = TOK_UNI_LETTER | TOK_UNI_WORD,
    [UTF8PROC_CATEGORY_LT] = TOK_UNI_LETTER | TOK_UNI_WORD,
    [UTF8PROC_CATEGORY_LM] = TOK_UNI_LETTER | TOK_UNI_WORD,
    [UTF8PROC_CATEGORY_LO] = TOK_UNI_LETTER | TOK_UNI_WORD,
    [UTF8PROC_CATEGORY_MN] = TOK_UNI_BERT_MARK | TOK_UNI_WORD,
    [UTF8PROC_CATEGORY_MC] = TOK_UNI_WORD,
    [UTF8PROC_CATEGORY_ME] = TOK_UNI_WORD,
    [UTF8PROC_CATEGORY_ND] = TOK_UNI_NUMBER | TOK_UNI_WORD,
    [UTF8PROC_CATEGORY_NL] = TOK_UNI_NUMBER | TOK_UNI_WORD,
    [UTF8PROC_CATEGORY_NO] = TOK_UNI_NUMBER,
    [UTF8PROC_CATEGORY_PC] = TOK_UNI_PUNCT | TOK_UNI_WORD,
    [UTF8PROC_CATEGORY_PD] = TOK_UNI_PUNCT,
    [UTF8PROC_CATEGORY_PS] = TOK_UNI_PUNCT,
    [UTF8PROC_CATEGORY_PE] = TOK_UNI_PUNCT,
    [UTF8PROC_CATEGORY_PI] = TOK_UNI_PUNCT,
    [UTF8PROC_CATEGORY_PF] = TOK_UNI_PUNCT,
    [UTF8PROC_CATEGORY_PO] = TOK_UNI_PUNCT,
    [UTF8PROC_CATEGORY_CC] = TOK_UNI_BERT_DROP,
    [UTF8PROC_CATEGORY_CF] = TOK_UNI_BERT_DROP,
    [UTF8PROC_CATEGORY_CO] = TOK_UNI_BERT_DROP,
};

/* Pages that are all like the one before: inside of large scripts, and where nothing is. */
static bool is_like_last(uint32_t page)
{
    static const uint16_t spans[][2] = {
        {0x35, 0x4C},   {0x4F, 0x9E},   {0xAD, 0xD6},   {0xE1, 0xF8},    {0x136, 0x142},
        {0x148, 0x160}, {0x171, 0x186}, {0x18F, 0x1AE}, {0x1BE, 0x1CB},  {0x201, 0x2A5},
        {0x2A8, 0x2B6}, {0x2BA, 0x2CD}, {0x2D0, 0x2EA}, {0x301, 0x312},  {0x315, 0x322},
        {0x325, 0xDFF}, {0xE03, 0xEFF}, {0xF01, 0xFFE}, {0x1001, 0x10FE}};
    for (size_t i = 0; i < N_OF(spans); i++)
        if (page <= spans[i][1]) return page >= spans[i][0];
    return false;
}

/* By utf8proc alone. */
static void fill_page(uint16_t *props, uint32_t first)
{
    for (uint32_t cp = first; cp < first + 256; cp++) {
        const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
        unsigned flags = category_flags[p->category];
        if (p->combining_class ||
            (p->decomp_seqindex != UINT16_MAX && !p->decomp_type && nfc_changes(cp)))
            flags |= TOK_UNI_NFC_CARE;
        props[cp] = (uint16_t)((unsigned)p->category | flags);
    }
}

static void mend(uint16_t *props, const struct tok_uni_range *ranges, size_t n, unsigned drop,
                 unsigned add)
{
    for (const struct tok_uni_range *r = ranges; r < ranges + n; r++)
        for (uint32_t cp = r->first; cp <= r->last; cp++)
            props[cp] = (uint16_t)((props[cp] & ~drop) | add | r->value);
}

#define MEND(props, ranges, drop, add) mend(props, ranges, N_OF(ranges), drop, add)

/* As the reference has them. */
static void mend_all(uint16_t *props)
{
    static const struct tok_uni_range ascii_punctuation[] = {
        {'!', '/', 0}, {':', '@', 0}, {'[', '`', 0}, {'{', '~', 0}};
    static const struct tok_uni_range kept[] = {{'\t', '\n', 0}, {'\r', '\r', 0}};
    size_t n_latin = 0;
    while (uni_regex_word_extra[n_latin].first < 0x100)
        n_latin++;
    for (size_t i = 0; i < N_OF(uni_newer); i++)
        mend(props, &uni_newer[i], 1, (unsigned)~TOK_UNI_NFC_CARE,
             category_flags[uni_newer[i].value]);
    MEND(props, uni_older, TOK_UNI_PUNCT | TOK_UNI_BERT_DROP | TOK_UNI_BERT_MARK, 0);
    MEND(props, uni_more, 0, 0);
    MEND(props, uni_inert, TOK_UNI_NFC_CARE, 0);
    MEND(props, uni_joining, 0, TOK_UNI_NFC_CARE);
    MEND(props, white_space, 0, TOK_UNI_WHITE);
    MEND(props, ascii_punctuation, 0, TOK_UNI_PUNCT);
    MEND(props, kept, TOK_UNI_BERT_DROP, 0);
    mend(props, uni_regex_word_extra + n_latin, N_OF(uni_regex_word_extra) - n_latin, 0,
         TOK_UNI_WORD);
}

int tok_uni_init(struct tok_uni *u)
{
    size_t n = 0;
    u->blocks = malloc(N_PAGES * sizeof(*u->blocks));
    if (!u->blocks) return TOK_ENOMEM;
    for (uint32_t page = 0; page < N_PAGES; page++)
        if (!is_like_last(page)) fill_page(u->blocks[0], page << 8);
    mend_all(u->blocks[0]);
    for (uint32_t page = 0; page < N_PAGES; page++) {
        bool same = n && (is_like_last(page) ||
                          !memcmp(u->blocks[page], u->blocks[n - 1], sizeof(*u->blocks)));
        if (!same) memmove(u->blocks[n++], u->blocks[page], sizeof(*u->blocks));
        u->page[page] = (uint16_t)(n - 1);
    }
    void *blocks = realloc(u->blocks, n * sizeof(*u->blocks));
    if (blocks) u->blocks = blocks;
    return 0;
}

void tok_uni_finish(struct tok_uni *u)
{
    free(u->blocks);
    u->blocks = NULL;
}

bool tok_uni_is_inert(uint32_t cp)
{
    size_t low = 0, high = N_OF(uni_inert);
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (cp > uni_inert[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < N_OF(uni_inert) && cp >= uni_inert[low].first;
}

size_t tok_uni_lower(uint32_t cp, uint32_t out[2])
{
    if (cp == 0x130) { /* the only one that becomes two */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    for (size_t i = 0; i < N_OF(uni_extra_lower); i++)
        if (uni_extra_lower[i].from == cp) out[0] = uni_extra_lower[i].to;
    return 1;
}

const struct tok_uni_range *tok_uni_ranges(enum tok_uni_list list, size_t *ret_n)
{
    static const struct {
        const struct tok_uni_range *ranges;
        size_t n;
    } lists[] = {
        [TOK_UNI_NEWER] = {uni_newer, N_OF(uni_newer)},
        [TOK_UNI_WORD_EXTRA] = {uni_regex_word_extra, N_OF(uni_regex_word_extra)},
        [TOK_UNI_NEWER_SCRIPT] = {uni_newer_script, N_OF(uni_newer_script)},
        [TOK_UNI_WHITE_SPACE] = {white_space, N_OF(white_space)},
    };
    *ret_n = lists[list].n;
    return lists[list].ranges;
}

bool tok_uni_script(const char *name, size_t len, uint32_t *ret_index, const char **ret_spelling)
{
    for (uint32_t i = 0; i < N_OF(uni_script_names); i++) {
        const char *known = uni_script_names[i];
        if (strlen(known) != len || strncasecmp(known, name, len) != 0) continue;
        *ret_index = i;
        *ret_spelling = known;
        return true;
    }
    return false;
}
