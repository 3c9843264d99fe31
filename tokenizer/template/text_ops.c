/* SPDX-License-Identifier: MIT */
/*
 * Text operations that filters and str methods share: case, strip, replace, split, with
 * Python's semantics; see text_ops.h. All cost time linear in their input and output.
 */
#include "tokenizer/template/text_ops.h"

#include <assert.h>
#include <string.h>
#include <utf8proc.h>

/* ---- case ---------------------------------------------------------------------------------- */

/* An upper, lower or title case letter. */
static bool is_cased(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LT;
}

/*
 * A character in the other case. Where that is several characters, or depends on the neighbours as
 * that of a capital sigma, it is refused.
 */
static int32_t map_case(struct jinja_run *r, int32_t cp, bool lower)
{
    if (lower ? cp == 0x3A3 || cp == 0x130 : is_cased(cp) && cp > 0x7F)
        jinja_raise(r, "the %s case of U+%04X is not supported in chat templates",
                    lower ? "lower" : "upper", (unsigned)cp);
    return lower ? utf8proc_tolower(cp) : utf8proc_toupper(cp);
}

/* The same for ASCII, where one case is enough to know: 0 where it is not. */
static char map_ascii(char c, enum jinja_case to)
{
    bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z';
    if (to == JINJA_UPPER) return lower ? (char)(c - 32) : c;
    if (to == JINJA_LOWER) return upper ? (char)(c + 32) : c;
    return 0;
}

struct jinja_value jinja_str_case(struct jinja_run *r, const struct jinja_str *s,
                                  enum jinja_case to)
{
    struct jinja_sb sb = {.r = r};
    jinja_spend_chars(r, 2 * s->len);
    bool in_word = false;
    for (size_t at = 0; at < s->len;) {
        size_t begin = at;
        int32_t cp = jinja_str_next(s, &at);
        uint8_t origin = jinja_str_origin_at(s, begin);
        char c = cp < 0x80 ? map_ascii((char)cp, to) : 0;
        if (c) {
            jinja_sb_add_bytes(&sb, &c, 1, origin);
            continue;
        }
        bool lower = to == JINJA_LOWER || (to == JINJA_TITLE && in_word) ||
                     (to == JINJA_CAPITALIZE && begin);
        jinja_sb_add_cp(&sb, map_case(r, cp, lower), origin);
        if (to == JINJA_TITLE) in_word = is_cased(cp);
    }
    return jinja_sb_value_like(&sb, s);
}

/* ---- strip --------------------------------------------------------------------------------- */

/* Among the characters to strip; NULL: white space. */
static bool is_stripped(struct jinja_run *r, const struct jinja_str *chars,
                        const struct jinja_str *s, size_t begin, size_t end)
{
    size_t at = begin;
    if (!chars) return jinja_cp_space(jinja_str_next(s, &at));
    jinja_spend_search(r, chars->len);
    return memmem(chars->s, chars->len, s->s + begin, end - begin) != NULL;
}

struct jinja_value jinja_str_strip(struct jinja_run *r, const struct jinja_str *s,
                                   const struct jinja_str *chars, enum jinja_sides sides)
{
    size_t begin = 0, end = s->len;
    while ((sides & JINJA_LEFT) && begin < end) {
        size_t next = begin;
        jinja_str_next(s, &next);
        if (!is_stripped(r, chars, s, begin, next)) break;
        begin = next;
    }
    while ((sides & JINJA_RIGHT) && end > begin) {
        int32_t cp;
        size_t last = jinja_str_prev(s, end, &cp);
        if (!is_stripped(r, chars, s, last, end)) break;
        end = last;
    }
    jinja_spend_chars(r, s->len - (end - begin));
    assert(begin <= end);
    return jinja_str_part_value(r, s, begin, end - begin);
}

/* ---- replace ------------------------------------------------------------------------------- */

struct jinja_value jinja_str_replace(struct jinja_run *r, const struct jinja_str *s,
                                     const struct jinja_str *old, const struct jinja_str *new_,
                                     int64_t count)
{
    struct jinja_sb sb = {.r = r};
    jinja_spend_search(r, s->len);
    if (old->len == 0) jinja_raise(r, "replacing an empty text is not supported in chat templates");
    size_t at = 0;
    while (count != 0) {
        size_t hit = jinja_str_find(s, old, at);
        if (hit == SIZE_MAX) break;
        jinja_spend(r, 1);
        jinja_sb_add_part(&sb, s, at, hit - at);
        jinja_sb_add(&sb, new_);
        at = hit + old->len;
        if (count > 0) count--;
    }
    if (at == 0) return jinja_from_str(s);
    jinja_sb_add_part(&sb, s, at, s->len - at);
    struct jinja_value v = jinja_sb_value_like(&sb, s);
    /* a request that cuts out parts of the template's text may join unrelated parts */
    return (old->origin & JINJA_INPUT) ? jinja_from_str(jinja_str_tainted(r, v.u.str)) : v;
}

/* ---- split --------------------------------------------------------------------------------- */

static void add_part(struct jinja_run *r, struct jinja_list *l, const struct jinja_str *s,
                     size_t begin, size_t end)
{
    jinja_spend(r, 2);
    jinja_list_add(r, l, jinja_str_part_value(r, s, begin, end - begin));
}

static bool is_not_space(int32_t cp)
{
    return !jinja_cp_space(cp);
}

/* Runs of white space separate; the rest after the last split loses only its leading run. */
static void split_spaces(struct jinja_run *r, struct jinja_list *l, const struct jinja_str *s,
                         int64_t max)
{
    size_t at = jinja_str_skip(s, 0, jinja_cp_space);
    while (at < s->len && max != 0) {
        size_t end = jinja_str_skip(s, at, is_not_space);
        add_part(r, l, s, at, end);
        at = jinja_str_skip(s, end, jinja_cp_space);
        if (max > 0) max--;
    }
    if (at < s->len) add_part(r, l, s, at, s->len);
}

/* Pieces may be empty, and there is always one more than separators. */
static void split_sep(struct jinja_run *r, struct jinja_list *l, const struct jinja_str *s,
                      const struct jinja_str *sep, int64_t max)
{
    size_t at = 0;
    while (max != 0) {
        size_t hit = jinja_str_find(s, sep, at);
        if (hit == SIZE_MAX) break;
        add_part(r, l, s, at, hit);
        at = hit + sep->len;
        if (max > 0) max--;
    }
    add_part(r, l, s, at, s->len);
}

struct jinja_list *jinja_str_split(struct jinja_run *r, const struct jinja_str *s,
                                   const struct jinja_str *sep, int64_t max)
{
    struct jinja_list *l = jinja_list_new(r, 4);
    if (sep && sep->len == 0) jinja_raise(r, "split by an empty separator");
    if (sep) {
        jinja_spend_search(r, s->len);
        split_sep(r, l, s, sep, max);
    } else {
        jinja_spend_chars(r, s->len);
        split_spaces(r, l, s, max);
    }
    return l;
}

/* More than the newline: all that splitlines() splits at. */
static bool is_line_end(int32_t cp)
{
    return (cp >= '\n' && cp <= '\r') || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

struct jinja_list *jinja_str_lines(struct jinja_run *r, const struct jinja_str *s, bool keep_ends)
{
    struct jinja_list *l = jinja_list_new(r, 4);
    jinja_spend_chars(r, s->len);
    size_t begin = 0;
    for (size_t at = 0; at < s->len;) {
        size_t end = at;
        int32_t cp = jinja_str_next(s, &at);
        if (!is_line_end(cp)) continue;
        if (cp == '\r' && at < s->len && s->s[at] == '\n') at++;
        add_part(r, l, s, begin, keep_ends ? at : end);
        begin = at;
    }
    if (begin < s->len) add_part(r, l, s, begin, s->len);
    return l;
}
