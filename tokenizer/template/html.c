/* SPDX-License-Identifier: MIT */
/*
 * Text out of HTML: striptags and unescape, as MarkupSafe 3 and Python's html.unescape have them.
 *
 * Provenance: a character made of a reference is input where any byte of the reference is. A tag
 * that the request has put between two stretches of the template's text would join them when it
 * goes; then the whole text counts as input, as in jinja_str_replace.
 */
#include "tokenizer/template/html.h"

#include <string.h>

#include "tokenizer/template/char_class.h"
#include "tokenizer/template/html_entities.h"
#include "tokenizer/template/number.h"

enum {
    MAX_NAME_CHARS = 32,      /* between & and ; */
    MAX_NUMBER_DIGITS = 4300, /* of a decimal reference: Python's limit for integers */
    REFERENCE_STEPS = 4,      /* up to six searches of the table */
};

static bool is_input(const struct jinja_str *s, size_t begin, size_t end)
{
    if (!s->mask) return s->origin & JINJA_INPUT;
    for (size_t i = begin; i < end; i++)
        if (s->mask[i] & JINJA_INPUT) return true;
    return false;
}

static size_t find_from(const struct jinja_str *s, const char *text, size_t from)
{
    const struct jinja_str needle = {.s = text, .len = strlen(text)};
    return jinja_str_find(s, &needle, from);
}

/* ---- tags ---------------------------------------------------------------------------------- */

/* The end of the tag or comment that begins at `start`, or SIZE_MAX if it is not closed. */
static size_t tag_end(const struct jinja_str *s, size_t start)
{
    bool comment = s->len - start >= 4 && memcmp(s->s + start, "<!--", 4) == 0;
    size_t end = comment ? find_from(s, "-->", start + 4) : find_from(s, ">", start);
    return end == SIZE_MAX ? SIZE_MAX : end + (comment ? 3 : 1);
}

/* The text outside of tags. A tag that is not closed stays, and so does everything behind it. */
static const struct jinja_str *without_tags(struct jinja_run *r, const struct jinja_str *s)
{
    struct jinja_sb sb = {.r = r};
    size_t at = 0, start, end;
    bool joins = false,
         left_is_input = true; /* of the last byte kept; at the front nothing joins */
    while ((start = find_from(s, "<", at)) != SIZE_MAX && (end = tag_end(s, start)) != SIZE_MAX) {
        jinja_sb_add_part(&sb, s, at, start - at);
        if (start > at) left_is_input = is_input(s, start - 1, start);
        bool right_is_input = end == s->len || is_input(s, end, end + 1);
        joins |= !left_is_input && !right_is_input && is_input(s, start, end);
        at = end;
    }
    if (at == 0) return s;
    jinja_sb_add_part(&sb, s, at, s->len - at);
    const struct jinja_str *text = jinja_sb_str(&sb);
    return joins ? jinja_str_tainted(r, text) : text;
}

/* One blank between words, none at the ends. */
static const struct jinja_str *with_single_blanks(struct jinja_run *r, const struct jinja_str *s)
{
    struct jinja_sb sb = {.r = r};
    size_t gap = 0;
    for (size_t at = 0; at < s->len;) {
        size_t begin = at;
        if (jinja_cp_space(jinja_str_next(s, &at))) continue;
        if (begin > gap && sb.len)
            jinja_sb_add_bytes(&sb, " ", 1, is_input(s, gap, begin) ? JINJA_INPUT : JINJA_TRUSTED);
        jinja_sb_add_part(&sb, s, begin, at - begin);
        gap = at;
    }
    return jinja_sb_str(&sb);
}

/* ---- references ---------------------------------------------------------------------------- */

static int compare_names(const char *name, size_t len, const struct html_entity *e)
{
    size_t n = len < e->name_len ? len : e->name_len;
    int c = memcmp(name, html_entity_bytes + e->at, n);
    return c ? c : (len > e->name_len) - (len < e->name_len);
}

static const struct html_entity *find_entity(const char *name, size_t len)
{
    size_t low = 0, high = sizeof(html_entities) / sizeof(html_entities[0]);
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = compare_names(name, len, &html_entities[mid]);
        if (c == 0) return &html_entities[mid];
        if (c < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

/* Bytes of the name at s[at], which ends before white space, <, &, # and ;. */
static size_t name_length(const struct jinja_str *s, size_t at)
{
    size_t end = at;
    for (int n = 0; end < s->len && n < MAX_NAME_CHARS; n++) {
        if (strchr("\t\n\f <&#;", s->s[end]) && s->s[end]) break;
        jinja_str_next(s, &end);
    }
    return end - at;
}

/*
 * &name; for all names. A few old names need no semicolon, and then the longest that the text
 * begins with counts. Returns where the reference ends, or 0 if it is not a reference.
 */
static size_t add_named(struct jinja_sb *sb, const struct jinja_str *s, size_t at)
{
    const char *name = s->s + at + 1;
    size_t len = name_length(s, at + 1), end = at + 1 + len;
    bool closed = end < s->len && s->s[end] == ';';
    const struct html_entity *e = closed ? find_entity(name, len) : NULL;
    if (e) end++;
    for (size_t n = len < HTML_LEGACY_BYTES ? len : HTML_LEGACY_BYTES; !e && n >= 2; n--) {
        e = find_entity(name, n);
        if (e && !e->legacy) e = NULL;
        end = at + 1 + n;
    }
    if (!e) return 0;
    jinja_sb_add_bytes(sb, html_entity_bytes + e->at + e->name_len, e->text_len,
                       is_input(s, at, end) ? JINJA_INPUT : JINJA_TRUSTED);
    return end;
}

/* The code point of a number; -1: the reference vanishes. */
static int32_t numbered(uint32_t n)
{
    /* the printable characters of windows-1252 in the place of control characters */
    static const uint16_t windows[32] = {
        0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
        0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
        0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};
    if (n >= 0x80 && n < 0xA0) return windows[n - 0x80];
    if (n == 0 || n > 0x10FFFF || (n >= 0xD800 && n <= 0xDFFF)) return 0xFFFD;
    bool control = (n < 0x20 && n != '\t' && n != '\n' && n != '\f' && n != '\r') || n == 0x7F;
    bool reserved = (n >= 0xFDD0 && n <= 0xFDEF) || (n & 0xFFFE) == 0xFFFE;
    return control || reserved ? -1 : (int32_t)n;
}

/* &#123; and &#x7b;, the semicolon optional. Returns where it ends, or 0 without digits. */
static size_t add_numbered(struct jinja_sb *sb, const struct jinja_str *s, size_t at)
{
    size_t digits = at + 2;
    bool hex = digits < s->len && (s->s[digits] == 'x' || s->s[digits] == 'X');
    if (hex) digits++;
    size_t end = digits;
    uint32_t n = 0;
    for (; end < s->len; end++) {
        int digit = jinja_digit_value(s->s[end]);
        if (digit >= (hex ? 16 : 10)) break;
        if (n <= 0x10FFFF) n = n * (hex ? 16u : 10u) + (uint32_t)digit;
    }
    if (end == digits) return 0;
    if (!hex && end - digits > MAX_NUMBER_DIGITS)
        jinja_raise(sb->r, "a character reference of more than %d digits", MAX_NUMBER_DIGITS);
    if (end < s->len && s->s[end] == ';') end++;
    int32_t cp = numbered(n);
    if (cp >= 0) jinja_sb_add_cp(sb, cp, is_input(s, at, end) ? JINJA_INPUT : JINJA_TRUSTED);
    return end;
}

struct jinja_value jinja_html_unescape(struct jinja_run *r, const struct jinja_str *s)
{
    struct jinja_sb sb = {.r = r};
    size_t at = 0, hit;
    jinja_spend_chars(r, s->len);
    while ((hit = find_from(s, "&", at)) != SIZE_MAX) {
        jinja_spend(r, REFERENCE_STEPS);
        jinja_sb_add_part(&sb, s, at, hit - at);
        bool number = hit + 1 < s->len && s->s[hit + 1] == '#';
        at = number ? add_numbered(&sb, s, hit) : add_named(&sb, s, hit);
        if (at) continue;
        jinja_sb_add_part(&sb, s, hit, 1);
        at = hit + 1;
    }
    jinja_sb_add_part(&sb, s, at, s->len - at);
    return jinja_sb_value(&sb);
}

struct jinja_value jinja_html_striptags(struct jinja_run *r, const struct jinja_str *s)
{
    jinja_spend_chars(r, 2 * s->len);
    return jinja_html_unescape(r, with_single_blanks(r, without_tags(r, s)));
}
