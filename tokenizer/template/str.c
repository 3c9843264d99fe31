/* SPDX-License-Identifier: MIT */
/*
 * Strings with provenance: building, sharing, comparing, searching; see str.h.
 *
 * A string is a view. Concatenation in a loop stays linear because the result of one is the end of
 * a buffer with room to spare, and the next appends in place when its left side is that end;
 * earlier views of the buffer keep their own length and are not disturbed.
 */
#include "tokenizer/template/str.h"

#include <assert.h>
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"

enum { LARGE_BYTES = 1 << 20 };

/* Makes room and keeps the mask as long as the text. Long texts grow by less than double: a few of
 * them are all that a run's memory holds. */
static void reserve(struct jinja_sb *sb, size_t more)
{
    size_t need;
    if (__builtin_add_overflow(sb->len, more, &need) || (sb->max_bytes && need > sb->max_bytes))
        jinja_fail(sb->r, JINJA_ELIMIT, "the text grows beyond %zu bytes",
                   sb->max_bytes ? sb->max_bytes : SIZE_MAX);
    if (need <= sb->cap) return;
    size_t cap = sb->cap ? sb->cap : 64;
    while (cap < need && cap < LARGE_BYTES)
        cap *= 2;
    if (cap < need && __builtin_add_overflow(need, need / 4, &cap)) cap = need;
    sb->data = jinja_grow(sb->r, sb->data, sb->cap, cap);
    if (sb->mask) sb->mask = jinja_grow(sb->r, sb->mask, sb->cap, cap);
    sb->cap = cap;
}

/* Notes that text of this origin comes next; starts the mask when the origins begin to differ. */
static void note_origin(struct jinja_sb *sb, uint8_t origin)
{
    assert(origin >= JINJA_TRUSTED && origin <= JINJA_MIXED);
    uint8_t before = sb->origin;
    sb->origin |= origin;
    if (sb->origin != JINJA_MIXED || sb->mask) return;
    sb->mask = jinja_alloc(sb->r, sb->cap, 1);
    memset(sb->mask, before, sb->len);
}

void jinja_sb_add_bytes(struct jinja_sb *sb, const char *bytes, size_t len, uint8_t origin)
{
    if (len == 0) return;
    reserve(sb, len);
    note_origin(sb, origin);
    memcpy(sb->data + sb->len, bytes, len);
    if (sb->mask) memset(sb->mask + sb->len, origin, len);
    sb->len += len;
}

/* Copies origins along: one value for all of it, or byte by byte. */
void jinja_sb_add_part(struct jinja_sb *sb, const struct jinja_str *s, size_t begin, size_t len)
{
    assert(begin <= s->len && len <= s->len - begin);
    if (!s->mask) {
        jinja_sb_add_bytes(sb, s->s + begin, len, s->origin);
        return;
    }
    if (len == 0) return;
    reserve(sb, len);
    note_origin(sb, JINJA_MIXED);
    memcpy(sb->data + sb->len, s->s + begin, len);
    memcpy(sb->mask + sb->len, s->mask + begin, len);
    sb->len += len;
}

void jinja_sb_add(struct jinja_sb *sb, const struct jinja_str *s)
{
    jinja_sb_add_part(sb, s, 0, s->len);
}

void jinja_sb_add_lit(struct jinja_sb *sb, const char *text)
{
    jinja_sb_add_bytes(sb, text, strlen(text), JINJA_TRUSTED);
}

void jinja_sb_add_cp(struct jinja_sb *sb, int32_t cp, uint8_t origin)
{
    char buf[4];
    jinja_sb_add_bytes(sb, buf, utf8_put(buf, (uint32_t)cp), origin);
}

/* One character is set at once: padding can be long. */
void jinja_sb_repeat(struct jinja_sb *sb, const struct jinja_str *s, int64_t times)
{
    size_t total;
    if (times <= 0 || s->len == 0) return;
    if (__builtin_mul_overflow(s->len, (uint64_t)times, &total))
        jinja_fail(sb->r, JINJA_ELIMIT, "a text of %zu bytes repeated %lld times is too long",
                   s->len, (long long)times);
    jinja_spend_bytes(sb->r, total);
    reserve(sb, total);
    if (s->len == 1) {
        note_origin(sb, s->origin);
        memset(sb->data + sb->len, s->s[0], total);
        if (sb->mask) memset(sb->mask + sb->len, s->origin, total);
        sb->len += total;
        return;
    }
    jinja_spend(sb->r, (uint64_t)times / 8);
    for (int64_t i = 0; i < times; i++)
        jinja_sb_add(sb, s);
}

void jinja_sb_add_quoted(struct jinja_sb *sb, const struct jinja_str *s, char quote, bool ascii,
                         void (*put)(struct jinja_sb *sb, int32_t cp, char quote, uint8_t origin))
{
    uint8_t outer = s->origin == JINJA_INPUT ? JINJA_INPUT : JINJA_TRUSTED;
    unsigned end = ascii ? 0x7F : 0x100;
    jinja_spend_bytes(sb->r, s->len);
    jinja_sb_add_bytes(sb, &quote, 1, outer);
    for (size_t at = 0; at < s->len;) {
        size_t begin = at;
        for (unsigned char c; at < s->len; at++)
            if ((c = (unsigned char)s->s[at]) < 0x20 || c >= end || s->s[at] == quote || c == '\\')
                break;
        jinja_sb_add_part(sb, s, begin, at - begin);
        begin = at;
        if (at == s->len) break;
        int32_t cp = jinja_str_next(s, &at);
        jinja_spend_chars(sb->r, 8);
        put(sb, cp, quote, jinja_str_origin_at(s, begin));
    }
    jinja_sb_add_bytes(sb, &quote, 1, outer);
}

struct jinja_str *jinja_sb_str(struct jinja_sb *sb)
{
    assert(sb->len <= sb->cap);
    struct jinja_str *s = JINJA_NEW(sb->r, struct jinja_str);
    s->s = sb->len ? sb->data : "";
    s->len = sb->len;
    s->mask = sb->mask;
    s->origin = sb->len ? sb->origin : JINJA_TRUSTED;
    return s;
}

struct jinja_value jinja_sb_value(struct jinja_sb *sb)
{
    return jinja_from_str(jinja_sb_str(sb));
}

struct jinja_value jinja_sb_value_like(struct jinja_sb *sb, const struct jinja_str *like)
{
    struct jinja_str *s = jinja_sb_str(sb);
    s->markup = like->markup;
    return jinja_from_str(s);
}

/* ---- making strings ------------------------------------------------------------------------ */

struct jinja_str *jinja_str_new(struct jinja_run *r, const char *bytes, size_t len, uint8_t origin)
{
    struct jinja_str *s = JINJA_NEW(r, struct jinja_str);
    jinja_spend_bytes(r, len);
    s->s = jinja_copy(r, bytes, len);
    s->len = len;
    s->origin = origin;
    return s;
}

struct jinja_value jinja_lit(struct jinja_run *r, const char *text)
{
    struct jinja_str *s = JINJA_NEW(r, struct jinja_str);
    s->s = text;
    s->len = strlen(text);
    s->origin = JINJA_TRUSTED;
    return jinja_from_str(s);
}

/* Shares the bytes; only a part up to the very end may go on growing in place. */
const struct jinja_str *jinja_str_part(struct jinja_run *r, const struct jinja_str *s, size_t begin,
                                       size_t len)
{
    if (begin == 0 && len == s->len) return s;
    struct jinja_str *part = JINJA_NEW(r, struct jinja_str);
    *part = *s;
    part->s = s->s + begin;
    part->len = len;
    if (s->mask) part->mask = s->mask + begin;
    return part;
}

struct jinja_value jinja_str_part_value(struct jinja_run *r, const struct jinja_str *s,
                                        size_t begin, size_t len)
{
    return jinja_from_str(jinja_str_part(r, s, begin, len));
}

const struct jinja_str *jinja_str_as(struct jinja_run *r, const struct jinja_str *s, bool markup)
{
    if (s->markup == markup) return s;
    struct jinja_str *copy = JINJA_NEW(r, struct jinja_str);
    *copy = *s;
    copy->markup = markup;
    return copy;
}

const struct jinja_str *jinja_str_tainted(struct jinja_run *r, const struct jinja_str *s)
{
    if (s->origin == JINJA_INPUT) return s;
    struct jinja_str *copy = JINJA_NEW(r, struct jinja_str);
    *copy = *s;
    copy->mask = NULL;
    copy->tail = NULL;
    copy->origin = JINJA_INPUT;
    return copy;
}

const struct jinja_str *jinja_str_escape(struct jinja_run *r, const struct jinja_str *s)
{
    if (s->markup) return s;
    struct jinja_sb sb = {.r = r};
    jinja_spend_chars(r, s->len);
    for (size_t i = 0; i < s->len; i++) {
        const char *entity = s->s[i] == '&'    ? "&amp;"
                             : s->s[i] == '<'  ? "&lt;"
                             : s->s[i] == '>'  ? "&gt;"
                             : s->s[i] == '\'' ? "&#39;"
                             : s->s[i] == '"'  ? "&#34;"
                                               : NULL;
        if (entity)
            jinja_sb_add_bytes(&sb, entity, strlen(entity), jinja_str_origin_at(s, i));
        else
            jinja_sb_add_part(&sb, s, i, 1);
    }
    struct jinja_str *escaped = jinja_sb_str(&sb);
    escaped->markup = true;
    return escaped;
}

/* The buffer that a + b goes to: a's own when a is its end and it has room, else a larger copy. */
static struct jinja_sb *concat_buffer(struct jinja_run *r, const struct jinja_str *a, size_t more)
{
    struct jinja_sb *sb = a->tail;
    if (sb && a->s + a->len == sb->data + sb->len && sb->cap - sb->len >= more) return sb;
    struct jinja_sb *fresh = JINJA_NEW(r, struct jinja_sb);
    fresh->r = r;
    size_t total;
    if (__builtin_add_overflow(a->len, more, &total) || total > SIZE_MAX / 4)
        jinja_fail(r, JINJA_ELIMIT, "a text of more than %zu bytes", a->len);
    reserve(fresh, sb && total < LARGE_BYTES ? total * 2 : total + total / 4);
    jinja_spend_bytes(r, a->len);
    jinja_sb_add(fresh, a);
    return fresh;
}

/* Where one side is Markup the other is escaped, and the result is Markup. */
const struct jinja_str *jinja_str_concat(struct jinja_run *r, const struct jinja_str *a,
                                         const struct jinja_str *b)
{
    if (a->markup != b->markup) {
        a = jinja_str_escape(r, a);
        b = jinja_str_escape(r, b);
    }
    if (a->len == 0) return b;
    if (b->len == 0) return a;
    struct jinja_sb *sb = concat_buffer(r, a, b->len);
    size_t begin = sb == a->tail ? (size_t)(a->s - sb->data) : 0;
    jinja_spend_bytes(r, b->len);
    jinja_sb_add(sb, b);
    struct jinja_str *s = JINJA_NEW(r, struct jinja_str);
    s->s = sb->data + begin;
    s->len = a->len + b->len;
    s->mask = sb->mask ? sb->mask + begin : NULL;
    s->origin = sb->origin;
    s->markup = a->markup;
    s->tail = sb;
    return s;
}

/* ---- looking at strings -------------------------------------------------------------------- */

bool jinja_str_is(const struct jinja_str *s, const char *text)
{
    if (s->len && s->s[0] != text[0]) return false; /* most tables of names end here */
    return strlen(text) == s->len && memcmp(s->s, text, s->len) == 0;
}

bool jinja_str_equal(const struct jinja_str *a, const struct jinja_str *b)
{
    return a->len == b->len && (a->s == b->s || memcmp(a->s, b->s, a->len) == 0);
}

/* UTF-8 orders by bytes as by code points. */
int jinja_str_compare(const struct jinja_str *a, const struct jinja_str *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    int c = n ? memcmp(a->s, b->s, n) : 0;
    if (c) return c;
    return a->len < b->len ? -1 : a->len > b->len;
}

bool jinja_str_is_digits(const struct jinja_str *s)
{
    for (size_t i = 0; i < s->len; i++)
        if (s->s[i] < '0' || s->s[i] > '9') return false;
    return s->len > 0;
}

bool jinja_str_starts(const struct jinja_str *s, const struct jinja_str *prefix)
{
    return prefix->len <= s->len && memcmp(s->s, prefix->s, prefix->len) == 0;
}

bool jinja_str_ends(const struct jinja_str *s, const struct jinja_str *suffix)
{
    return suffix->len <= s->len &&
           memcmp(s->s + s->len - suffix->len, suffix->s, suffix->len) == 0;
}

size_t jinja_str_find(const struct jinja_str *s, const struct jinja_str *needle, size_t from)
{
    if (from > s->len) return SIZE_MAX;
    if (needle->len == 0) return from;
    const char *at = memmem(s->s + from, s->len - from, needle->s, needle->len);
    return at ? (size_t)(at - s->s) : SIZE_MAX;
}

uint8_t jinja_str_origin_at(const struct jinja_str *s, size_t at)
{
    assert(at < s->len);
    return s->mask ? s->mask[at] : s->origin;
}

size_t jinja_str_chars(struct jinja_run *r, const struct jinja_str *s)
{
    jinja_spend_bytes(r, s->len);
    return utf8_count(s->s, s->len);
}

/* Counting the bytes that begin a character is all it takes. */
size_t jinja_str_char_at(struct jinja_run *r, const struct jinja_str *s, size_t nth)
{
    size_t at = 0;
    if (nth >= s->len) return s->len;
    for (; at < s->len; at++)
        if (((unsigned char)s->s[at] & 0xC0) != 0x80 && nth-- == 0) break;
    jinja_spend_search(r, at);
    return at;
}

int32_t jinja_str_next(const struct jinja_str *s, size_t *at)
{
    const unsigned char *begin = (const unsigned char *)s->s, *p = begin + *at;
    uint32_t cp = utf8_next(&p);
    *at = (size_t)(p - begin);
    return (int32_t)cp;
}

size_t jinja_str_skip(const struct jinja_str *s, size_t at, bool (*wanted)(int32_t cp))
{
    while (at < s->len) {
        size_t next = at;
        if (!wanted(jinja_str_next(s, &next))) break;
        at = next;
    }
    return at;
}

size_t jinja_str_prev(const struct jinja_str *s, size_t end, int32_t *ret)
{
    const unsigned char *text = (const unsigned char *)s->s, *begin;
    *ret = (int32_t)utf8_before(text + end, &begin);
    return (size_t)(begin - text);
}

bool jinja_cp_space(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    return (c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_ZP) || (cp >= '\t' && cp <= '\r') ||
           (cp >= 0x1C && cp <= 0x1F) || cp == 0x85;
}
