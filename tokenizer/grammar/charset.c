/* SPDX-License-Identifier: MIT */
/* Sets of code points; see charset.h. */
#include "tokenizer/grammar/charset.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/category.h"
#include "base/utf8.h"
#include "tokenizer/grammar/build.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

void gram_charset_add(struct gram_build *b, struct gram_charset *s, uint32_t lo, uint32_t hi)
{
    assert(lo <= hi);
    s->ranges = gram_grow(b, s->ranges, s->n, &s->cap, sizeof(*s->ranges));
    s->ranges[s->n++] = (struct gram_range){lo, hi};
}

void gram_charset_add_set(struct gram_build *b, struct gram_charset *s,
                          const struct gram_charset *other)
{
    for (uint32_t i = 0; i < other->n; i++)
        gram_charset_add(b, s, other->ranges[i].lo, other->ranges[i].hi);
}

bool gram_charset_equal(const struct gram_charset *x, const struct gram_charset *y)
{
    return x == y || (x->n == y->n && memcmp(x->ranges, y->ranges, x->n * sizeof(*x->ranges)) == 0);
}
static int by_lo(const void *x, const void *y)
{
    const struct gram_range *a = x, *b = y;
    return (a->lo > b->lo) - (a->lo < b->lo);
}

/* Sorted ranges joined where they overlap or touch. */
static uint32_t join(struct gram_range *r, uint32_t n)
{
    uint32_t out = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (out && r[i].lo <= r[out - 1].hi + 1) {
            if (r[i].hi > r[out - 1].hi) r[out - 1].hi = r[i].hi;
        } else {
            r[out++] = r[i];
        }
    }
    return out;
}

void gram_charset_finish(struct gram_build *b, struct gram_charset *s)
{
    bool sorted = true;
    for (uint32_t i = 1; i < s->n; i++)
        sorted &= s->ranges[i - 1].lo <= s->ranges[i].lo;
    gram_steps(b, sorted ? s->n / 8 : 2 * s->n);
    if (!sorted) qsort(s->ranges, s->n, sizeof(*s->ranges), by_lo);
    s->n = join(s->ranges, s->n);
    gram_steps(b, 1 + s->n / 2);
    /* The surrogates: at most one range holds some, or some lie inside. */
    struct gram_charset out = {0};
    for (uint32_t i = 0; i < s->n; i++) {
        struct gram_range r = s->ranges[i];
        if (r.hi < 0xD800 || r.lo > 0xDFFF) {
            gram_charset_add(b, &out, r.lo, r.hi);
            continue;
        }
        if (r.lo < 0xD800) gram_charset_add(b, &out, r.lo, 0xD7FF);
        if (r.hi > 0xDFFF) gram_charset_add(b, &out, 0xE000, r.hi);
    }
    *s = out;
}

void gram_charset_invert(struct gram_build *b, struct gram_charset *s)
{
    struct gram_charset out = {0};
    uint32_t next = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->ranges[i].lo > next) gram_charset_add(b, &out, next, s->ranges[i].lo - 1);
        next = s->ranges[i].hi + 1;
    }
    assert(next <= GRAM_MAX_CODE_POINT + 1);
    if (next <= GRAM_MAX_CODE_POINT) gram_charset_add(b, &out, next, GRAM_MAX_CODE_POINT);
    gram_charset_finish(b, &out);
    *s = out;
}

/* ---- classes ------------------------------------------------------------------------------- */

static const struct gram_range digits[] = {{'0', '9'}};
static const struct gram_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct gram_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
/* WhiteSpace and LineTerminator of ECMA-262 */
static const struct gram_range spaces[] = {
    {0x9, 0xD},       {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF},
};

static void add_table(struct gram_build *b, struct gram_charset *s, const struct gram_range *table,
                      size_t n, bool inverted)
{
    struct gram_charset set = {0};
    for (size_t i = 0; i < n; i++)
        gram_charset_add(b, &set, table[i].lo, table[i].hi);
    if (inverted) gram_charset_invert(b, &set);
    gram_charset_add_set(b, s, &set);
}

void gram_charset_add_class(struct gram_build *b, struct gram_charset *s, char name)
{
    switch (name) {
    case 'd':
    case 'D': add_table(b, s, digits, N_OF(digits), name == 'D'); break;
    case 'w':
    case 'W': add_table(b, s, words, N_OF(words), name == 'W'); break;
    case 's':
    case 'S': add_table(b, s, spaces, N_OF(spaces), name == 'S'); break;
    default: add_table(b, s, line_ends, N_OF(line_ends), true); break;
    }
}

/* ---- categories ---------------------------------------------------------------------------- */

/* The names of PropertyValueAliases.txt for gc that Oniguruma does not have. */
static const struct category more[] = {
    {"LC", "Cased_Letter", CATEGORY_CASED},
    {"M", "Combining_Mark", CATEGORY_M},
    {"Nd", "digit", CATEGORY(ND)},
    {"P", "punct", CATEGORY_P},
    {"C", "Other", CATEGORY(CC) | CATEGORY(CF) | CATEGORY(CS) | CATEGORY(CO) | CATEGORY(CN)},
    {"Cc", "cntrl", CATEGORY(CC)},
    {"Cn", "Unassigned", CATEGORY(CN)},
};

static bool same(const char *name, size_t len, const char *text)
{
    return strlen(text) == len && memcmp(name, text, len) == 0;
}

/* Cuts "prefix=" off; false if it is not there. */
static bool cut_prefix(const char **name, size_t *len, const char *prefix)
{
    size_t n = strlen(prefix);
    if (*len <= n || memcmp(*name, prefix, n) != 0) return false;
    *name += n;
    *len -= n;
    return true;
}

/* Runs of code points of one category; found once per compilation. */
struct gram_category_run {
    uint32_t lo;
    uint32_t category; /* as a bit */
};

/* Planes 4 to 13 are unassigned as a whole: one look is enough for 4,096 code points there. */
static void find_category_runs(struct gram_build *b)
{
    uint32_t cap = 0, last = 0;
    for (uint32_t cp = 0; cp <= GRAM_MAX_CODE_POINT;) {
        uint32_t category = 1u << utf8proc_category((utf8proc_int32_t)cp);
        if (category != last) {
            b->category_runs =
                gram_grow(b, b->category_runs, b->n_category_runs, &cap, sizeof(*b->category_runs));
            b->category_runs[b->n_category_runs++] = (struct gram_category_run){cp, category};
        }
        last = category;
        cp += cp >= 0x40000 && cp < 0xE0000 ? 0x1000 : 1;
    }
    gram_steps(b, 40000);
}

static void add_categories(struct gram_build *b, struct gram_charset *s, uint32_t wanted)
{
    if (!b->n_category_runs) find_category_runs(b);
    for (uint32_t i = 0; i < b->n_category_runs; i++) {
        const struct gram_category_run *r = &b->category_runs[i];
        uint32_t end = i + 1 < b->n_category_runs ? r[1].lo : GRAM_MAX_CODE_POINT + 1;
        if (r->category & wanted) gram_charset_add(b, s, r->lo, end - 1);
    }
    gram_steps(b, b->n_category_runs / 8);
}

static bool add_category(struct gram_build *b, struct gram_charset *s, const char *name, size_t len)
{
    for (size_t i = 0; i < N_OF(categories) + N_OF(more); i++) {
        const struct category *c =
            i < N_OF(categories) ? &categories[i] : &more[i - N_OF(categories)];
        if (!same(name, len, c->name) && !same(name, len, c->long_name)) continue;
        add_categories(b, s, c->set);
        return true;
    }
    return false;
}

/* ---- scripts ------------------------------------------------------------------------------- */

/* Code points are looked at in blocks that are surrogates or not as a whole. */
enum { BLOCK = 0x800, MAX_RUNS = 1024 };

/* Adds the runs of a block to runs[0..n) and returns how many there are then. */
static uint32_t find_in_block(const pcre2_code *code, pcre2_match_data *match, uint32_t block,
                              struct gram_range *runs, uint32_t n)
{
    char text[4 * BLOCK];
    const PCRE2_SIZE *run = pcre2_get_ovector_pointer(match) + 2;
    size_t len = 0;
    for (uint32_t cp = block; cp < block + BLOCK; cp++)
        len += utf8_put(text + len, cp);
    for (size_t pos = 0; n < MAX_RUNS; pos = run[1]) {
        if (pcre2_match(code, (PCRE2_SPTR)text, len, pos, PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED,
                        match, NULL) < 0)
            break;
        const unsigned char *first = (const unsigned char *)text + run[0], *last;
        uint32_t hi = utf8_before((const unsigned char *)text + run[1], &last);
        runs[n++] = (struct gram_range){utf8_next(&first), hi};
    }
    return n;
}

/* As PCRE2 knows them, without a jump while its memory is held; 0: it knows no such script. */
static uint32_t find_script(const char *name, size_t len, struct gram_range *runs)
{
    int error;
    PCRE2_SIZE at;
    char pattern[96];
    uint32_t n = 0;
    snprintf(pattern, sizeof(pattern), "\\P{sc:%.*s}*(\\p{sc:%.*s}+)", (int)len, name, (int)len,
             name);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &at, NULL);
    pcre2_match_data *match = code ? pcre2_match_data_create_from_pattern(code, NULL) : NULL;
    /* Of planes 4 and up only the first blocks of plane 14 have scripts. */
    for (uint32_t block = 0; match && block < 0xE1000; block += BLOCK) {
        if (block == 0x40000) block = 0xE0000;
        if (block != 0xD800) n = find_in_block(code, match, block, runs, n);
    }
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return n;
}

static bool add_script(struct gram_build *b, struct gram_charset *s, const char *name, size_t len)
{
    struct gram_range *runs = gram_temp_array(b, MAX_RUNS, sizeof(*runs));
    for (size_t i = 0; i < len; i++)
        if (name[i] != '_' && (unsigned)(name[i] | 0x20) - 'a' >= 26u) return false;
    uint32_t n = len < 32 ? find_script(name, len, runs) : 0;
    for (uint32_t i = 0; i < n; i++)
        gram_charset_add(b, s, runs[i].lo, runs[i].hi);
    gram_steps(b, 20000);
    return n > 0;
}

/* ---- properties ---------------------------------------------------------------------------- */

bool gram_charset_add_property(struct gram_build *b, struct gram_charset *s, const char *name,
                               size_t len)
{
    if (cut_prefix(&name, &len, "Script=") || cut_prefix(&name, &len, "sc="))
        return add_script(b, s, name, len);
    if (cut_prefix(&name, &len, "General_Category=") || cut_prefix(&name, &len, "gc="))
        return add_category(b, s, name, len);
    if (same(name, len, "Any")) {
        gram_charset_add(b, s, 0, GRAM_MAX_CODE_POINT);
        return true;
    }
    if (same(name, len, "ASCII")) {
        gram_charset_add(b, s, 0, 0x7F);
        return true;
    }
    return add_category(b, s, name, len);
}
