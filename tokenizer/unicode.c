/* SPDX-License-Identifier: MIT */
/*
 * The generated runs of unicode_data.h are spread over pages of 256 code points, so that a lookup
 * is two loads. Pages of a single class (most of them) share one block for that class.
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
#define N_CLASSES N_OF(uni_class_props)

_Static_assert(N_CLASSES <= 256, "a class fits a byte");

static const struct tok_uni_range white_space[] = {
    {0x9, 0xD, 0},       {0x20, 0x20, 0},     {0x85, 0x85, 0},     {0xA0, 0xA0, 0},
    {0x1680, 0x1680, 0}, {0x2000, 0x200A, 0}, {0x2028, 0x2029, 0}, {0x202F, 0x202F, 0},
    {0x205F, 0x205F, 0}, {0x3000, 0x3000, 0},
};

static uint32_t run_end(size_t run)
{
    return run + 1 < N_OF(uni_class_starts) ? uni_class_starts[run + 1] >> 8 : 0x110000;
}

/* Pages that begin inside one run and end in another need a block of their own. */
static size_t count_mixed_pages(void)
{
    size_t n = 0;
    uint32_t last_page = UINT32_MAX;

    for (size_t run = 1; run < N_OF(uni_class_starts); run++) {
        uint32_t start = uni_class_starts[run] >> 8;
        if ((start & 0xFF) == 0 || start >> 8 == last_page) continue;
        last_page = start >> 8;
        n++;
    }
    return n;
}

/*
 * Writes the classes of one page to block. *run is the run that holds its first code point, and is
 * moved along.
 */
static void fill_page(uint8_t *block, uint32_t page, size_t *run)
{
    for (uint32_t cp = page << 8; cp < (page + 1) << 8; cp++) {
        while (run_end(*run) <= cp)
            ++*run;
        block[cp & 0xFF] = (uint8_t)uni_class_starts[*run];
    }
}

static void fill_props(struct tok_uni *u)
{
    for (size_t i = 0; i < N_CLASSES; i++) {
        unsigned category = uni_class_props[i] & TOK_UNI_CATEGORY;
        unsigned props = uni_class_props[i];
        if (category >= TOK_UNI_LU && category <= TOK_UNI_LO) props |= TOK_UNI_LETTER;
        if (category >= TOK_UNI_ND && category <= TOK_UNI_NO) props |= TOK_UNI_NUMBER;
        u->props[i] = (uint16_t)props;
    }
}

int tok_uni_init(struct tok_uni *u)
{
    memset(u, 0, sizeof(*u));
    u->blocks = malloc((N_CLASSES + count_mixed_pages()) * 256);
    if (!u->blocks) return TOK_ENOMEM;
    for (size_t i = 0; i < N_CLASSES; i++)
        memset(u->blocks + i * 256, (int)i, 256);
    fill_props(u);

    uint8_t *next = u->blocks + N_CLASSES * 256;
    size_t run = 0;
    for (uint32_t page = 0; page < N_PAGES; page++) {
        while (run_end(run) <= page << 8)
            run++;
        if (run_end(run) >= (page + 1) << 8) {
            u->page[page] = u->blocks + (size_t)(uint8_t)uni_class_starts[run] * 256;
            continue;
        }
        fill_page(next, page, &run);
        u->page[page] = next;
        next += 256;
    }
    return 0;
}

void tok_uni_finish(struct tok_uni *u)
{
    free(u->blocks);
    u->blocks = NULL;
}

static bool in_ranges(const struct tok_uni_range *ranges, size_t n, uint32_t cp)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (cp > ranges[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && cp >= ranges[low].first;
}

bool tok_uni_is_inert(uint32_t cp)
{
    return in_ranges(uni_inert, N_OF(uni_inert), cp);
}

size_t tok_uni_lower(uint32_t cp, uint32_t out[2])
{
    if (cp == 0x130) { /* the only one that becomes two */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    for (size_t i = 0; i < N_OF(uni_extra_lower); i++) {
        if (uni_extra_lower[i].from == cp) out[0] = uni_extra_lower[i].to;
    }
    return 1;
}

const struct tok_uni_range *tok_uni_newer(size_t *ret_n)
{
    *ret_n = N_OF(uni_newer);
    return uni_newer;
}

const struct tok_uni_range *tok_uni_word_extra(size_t *ret_n)
{
    *ret_n = N_OF(uni_regex_word_extra);
    return uni_regex_word_extra;
}

const struct tok_uni_range *tok_uni_newer_script(size_t *ret_n)
{
    *ret_n = N_OF(uni_newer_script);
    return uni_newer_script;
}

const struct tok_uni_range *tok_uni_white(size_t *ret_n)
{
    *ret_n = N_OF(white_space);
    return white_space;
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
