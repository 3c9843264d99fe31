/* SPDX-License-Identifier: MIT */
/*
 * JSON in and out: json.loads and json.dumps; see json.h and print.h.
 *
 * The reader exists beside the JSON library the server has because values here need what that one
 * drops: integers beyond 64 bits, NUL in strings, and the origin of every string.
 */
#include "tokenizer/template/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/template/dict.h"
#include "tokenizer/template/number.h"
#include "tokenizer/template/order.h"
#include "tokenizer/template/print.h"

/* ---- reading ------------------------------------------------------------------------------- */

struct reader {
    struct jinja_run *r;
    const char *text;
    size_t len;
    size_t at;
    uint8_t origin;
    const char *what;
};

static struct jinja_value read_value(struct reader *rd, int depth);

_Noreturn static void fail_at(const struct reader *rd, const char *problem)
{
    jinja_raise(rd->r, "%s: %s at byte %zu", rd->what, problem, rd->at);
}

static int peek(const struct reader *rd)
{
    return rd->at < rd->len ? (unsigned char)rd->text[rd->at] : -1;
}

/* JSON's white space is these four characters. */
static void skip_blanks(struct reader *rd)
{
    while (rd->at < rd->len && strchr(" \t\n\r", rd->text[rd->at]) && rd->text[rd->at])
        rd->at++;
}

static bool accept(struct reader *rd, const char *word)
{
    size_t n = strlen(word);
    if (rd->len - rd->at < n || memcmp(rd->text + rd->at, word, n) != 0) return false;
    rd->at += n;
    return true;
}

/* The four digits of \uXXXX. */
static uint32_t read_hex4(struct reader *rd)
{
    uint32_t cp = 0;
    for (int i = 0; i < 4; i++, rd->at++) {
        int c = peek(rd);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) fail_at(rd, "invalid \\u escape");
        cp = cp << 4 | (uint32_t)digit;
    }
    return cp;
}

/* A character beyond the first 65536 is two escapes, high half first. */
static int32_t read_unicode_escape(struct reader *rd)
{
    uint32_t cp = read_hex4(rd);
    if (cp < 0xD800 || cp > 0xDFFF) return (int32_t)cp;
    if (cp > 0xDBFF || !accept(rd, "\\u")) fail_at(rd, "half of a surrogate pair");
    uint32_t low = read_hex4(rd);
    if (low < 0xDC00 || low > 0xDFFF) fail_at(rd, "half of a surrogate pair");
    return (int32_t)(0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00));
}

static void read_escape(struct reader *rd, struct jinja_sb *sb)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = peek(rd);
    const char *p = c > 0 ? strchr(from, c) : NULL;
    if (!p && c != 'u') fail_at(rd, "invalid escape");
    rd->at++;
    jinja_spend(rd->r, 1);
    if (p)
        jinja_sb_add_bytes(sb, to + (p - from), 1, rd->origin);
    else
        jinja_sb_add_cp(sb, read_unicode_escape(rd), rd->origin);
}

static struct jinja_value read_string(struct reader *rd)
{
    struct jinja_sb sb;
    jinja_sb_init(&sb, rd->r);
    rd->at++;
    for (;;) {
        size_t begin = rd->at;
        while (rd->at < rd->len && rd->text[rd->at] != '"' && rd->text[rd->at] != '\\' &&
               (unsigned char)rd->text[rd->at] >= 0x20)
            rd->at++;
        jinja_sb_add_bytes(&sb, rd->text + begin, rd->at - begin, rd->origin);
        int c = peek(rd);
        if (c < 0) fail_at(rd, "unterminated string");
        if (c < 0x20) fail_at(rd, "control character in a string");
        rd->at++;
        if (c == '"') break;
        read_escape(rd, &sb);
    }
    jinja_spend_bytes(rd->r, sb.len);
    struct jinja_str *s = jinja_sb_str(&sb);
    s->origin = rd->origin; /* also of the empty string: it is a value from there */
    return jinja_from_str(s);
}

static size_t count_digits(const struct reader *rd, size_t at)
{
    size_t n = 0;
    while (at + n < rd->len && rd->text[at + n] >= '0' && rd->text[at + n] <= '9')
        n++;
    return n;
}

/* -? (0 | [1-9] digits) [. digits] [e [sign] digits] */
static struct jinja_value read_number(struct reader *rd)
{
    size_t begin = rd->at, at = begin + (rd->text[begin] == '-');
    bool is_float = false;
    size_t n = count_digits(rd, at);
    if (n == 0) fail_at(rd, "a value is expected");
    at += rd->text[at] == '0' ? 1 : n;
    if (at < rd->len && rd->text[at] == '.' && (n = count_digits(rd, at + 1)) > 0) {
        at += 1 + n;
        is_float = true;
    }
    if (at < rd->len && (rd->text[at] == 'e' || rd->text[at] == 'E')) {
        size_t sign = at + 1 < rd->len && (rd->text[at + 1] == '-' || rd->text[at + 1] == '+');
        if ((n = count_digits(rd, at + 1 + sign)) > 0) {
            at += 1 + sign + n;
            is_float = true;
        }
    }
    struct jinja_value v;
    bool negative = rd->text[begin] == '-';
    rd->at = at;
    if (is_float) {
        jinja_spend_digits(rd->r, at - begin);
        return jinja_float(strtod(jinja_copy(rd->r, rd->text + begin, at - begin), NULL));
    }
    if (!jinja_int_parse(rd->r, rd->text + begin + negative, at - begin - negative, 10, negative,
                         &v))
        fail_at(rd, "an integer with too many digits");
    return v;
}

static struct jinja_value read_array(struct reader *rd, int depth)
{
    struct jinja_list *l = jinja_list_new(rd->r, 0);
    rd->at++;
    skip_blanks(rd);
    if (accept(rd, "]")) return jinja_from_list(l);
    for (;;) {
        jinja_list_add(rd->r, l, read_value(rd, depth + 1));
        skip_blanks(rd);
        if (accept(rd, "]")) return jinja_from_list(l);
        if (!accept(rd, ",")) fail_at(rd, "',' or ']' is expected");
    }
}

/* The last of equal keys wins and stands where the first stood. */
static struct jinja_value read_object(struct reader *rd, int depth)
{
    struct jinja_dict *d = jinja_dict_new(rd->r);
    rd->at++;
    skip_blanks(rd);
    if (accept(rd, "}")) return jinja_from_dict(d);
    for (;;) {
        skip_blanks(rd);
        if (peek(rd) != '"') fail_at(rd, "a key in double quotes is expected");
        struct jinja_value key = read_string(rd);
        skip_blanks(rd);
        if (!accept(rd, ":")) fail_at(rd, "':' is expected");
        jinja_dict_put(rd->r, d, key, read_value(rd, depth + 1));
        skip_blanks(rd);
        if (accept(rd, "}")) return jinja_from_dict(d);
        if (!accept(rd, ",")) fail_at(rd, "',' or '}' is expected");
    }
}

/* NaN and the infinities are no JSON, but json.loads reads them. */
static struct jinja_value read_plain(struct reader *rd)
{
    if (accept(rd, "null")) return jinja_none();
    if (accept(rd, "true")) return jinja_bool(true);
    if (accept(rd, "false")) return jinja_bool(false);
    if (accept(rd, "NaN")) return jinja_float(__builtin_nan(""));
    if (accept(rd, "Infinity")) return jinja_float(__builtin_inf());
    if (accept(rd, "-Infinity")) return jinja_float(-__builtin_inf());
    int c = peek(rd);
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(rd);
    fail_at(rd, "a value is expected");
}

/* Lists and dicts from the request are marked too: their brackets, printed, are its text. */
static struct jinja_value read_value(struct reader *rd, int depth)
{
    struct jinja_value v;
    jinja_spend(rd->r, 1);
    if (depth > JINJA_MAX_VALUE_DEPTH) fail_at(rd, "too deeply nested");
    skip_blanks(rd);
    switch (peek(rd)) {
    case '"': return read_string(rd);
    case '[': v = read_array(rd, depth); break;
    case '{': v = read_object(rd, depth); break;
    default: v = read_plain(rd); break;
    }
    return jinja_tainted(v, rd->origin == JINJA_INPUT);
}

struct jinja_value jinja_json_parse(struct jinja_run *r, const char *text, size_t len,
                                    uint8_t origin, const char *what)
{
    struct reader rd = {.r = r, .text = text, .len = len, .origin = origin, .what = what};
    if (!utf8_valid(text, len)) jinja_raise(r, "%s is not valid UTF-8", what);
    struct jinja_value v = read_value(&rd, 0);
    skip_blanks(&rd);
    if (rd.at != len) fail_at(&rd, "more text after the value");
    return v;
}

/* ---- writing ------------------------------------------------------------------------------- */

struct writer {
    struct jinja_sb sb;
    const struct jinja_json_style *style;
};

static void write_value(struct writer *w, struct jinja_value v, int depth);

static void add(struct writer *w, struct jinja_value v, const char *text)
{
    jinja_sb_add_bytes(&w->sb, text, strlen(text), v.input ? JINJA_INPUT : JINJA_TRUSTED);
}

/* A separator or an indent: the template's text, but input where the value is. */
static void add_style(struct writer *w, struct jinja_value v, const struct jinja_str *text)
{
    jinja_sb_add(&w->sb, v.input ? jinja_str_tainted(w->sb.r, text) : text);
}

/* As UTF-16, two escapes where it takes two. */
static void write_unicode_escape(struct jinja_sb *sb, int32_t cp, uint8_t origin)
{
    char buf[16];
    int n;
    if (cp > 0xFFFF) {
        unsigned high = 0xD800 + ((unsigned)(cp - 0x10000) >> 10);
        unsigned low = 0xDC00 + ((unsigned)(cp - 0x10000) & 0x3FF);
        n = snprintf(buf, sizeof(buf), "\\u%04x\\u%04x", high, low);
    } else {
        n = snprintf(buf, sizeof(buf), "\\u%04x", (unsigned)cp);
    }
    jinja_sb_add_bytes(sb, buf, (size_t)n, origin);
}

static void write_char(struct jinja_sb *sb, int32_t cp, bool ensure_ascii, uint8_t origin)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const char *p = cp > 0 && cp < 0x80 ? strchr(from, (char)cp) : NULL;
    if (p) {
        char buf[2] = {'\\', to[p - from]};
        jinja_sb_add_bytes(sb, buf, 2, origin);
    } else if (cp < 0x20 || (cp >= 0x7F && ensure_ascii)) {
        write_unicode_escape(sb, cp, origin);
    } else {
        jinja_sb_add_cp(sb, cp, origin);
    }
}

/* Copied as it is; bytes beyond ASCII too, unless they are to be escaped. */
static bool is_plain(const struct writer *w, char c)
{
    bool ascii = (unsigned char)c < 0x7F;
    return (unsigned char)c >= 0x20 && c != '"' && c != '\\' && (ascii || !w->style->ensure_ascii);
}

static void write_string(struct writer *w, const struct jinja_str *s)
{
    uint8_t outer = s->origin == JINJA_INPUT ? JINJA_INPUT : JINJA_TRUSTED;
    jinja_spend_bytes(w->sb.r, s->len);
    jinja_sb_add_bytes(&w->sb, "\"", 1, outer);
    for (size_t at = 0; at < s->len;) {
        size_t begin = at;
        while (at < s->len && is_plain(w, s->s[at]))
            at++;
        jinja_sb_add_part(&w->sb, s, begin, at - begin);
        begin = at;
        if (at == s->len) break;
        int32_t cp = jinja_str_next(s, &at);
        jinja_spend_chars(w->sb.r, 8);
        write_char(&w->sb, cp, w->style->ensure_ascii, jinja_str_origin_at(s, begin));
    }
    jinja_sb_add_bytes(&w->sb, "\"", 1, outer);
}

/* Floats as repr() has them, but for the three that have other names in JavaScript. */
static void write_number(struct writer *w, struct jinja_value v)
{
    char buf[JINJA_FLOAT_BYTES];
    if (!jinja_is(v, JINJA_FLOAT)) {
        add(w, v, jinja_int_digits(w->sb.r, v, 10));
        return;
    }
    jinja_float_repr(w->sb.r, v.u.d, buf);
    add(w, v,
        strcmp(buf, "nan") == 0    ? "NaN"
        : strcmp(buf, "inf") == 0  ? "Infinity"
        : strcmp(buf, "-inf") == 0 ? "-Infinity"
                                   : buf);
}

/* With an indent every element has its own line, also with an empty indent. */
static void new_line(struct writer *w, struct jinja_value v, int depth)
{
    if (!w->style->indent) return;
    add(w, v, "\n");
    for (int i = 0; i < depth; i++)
        add_style(w, v, w->style->indent);
}

static void write_list(struct writer *w, struct jinja_value v, int depth)
{
    const struct jinja_list *l = v.u.list;
    add(w, v, "[");
    for (size_t i = 0; i < l->n; i++) {
        if (i) add_style(w, v, w->style->item_sep);
        new_line(w, v, depth + 1);
        write_value(w, l->items[i], depth + 1);
    }
    if (l->n) new_line(w, v, depth);
    add(w, v, "]");
}

/* Keys that are not strings are written as the strings Python makes of them. */
static void write_key(struct writer *w, struct jinja_value key)
{
    if (jinja_is(key, JINJA_STR)) {
        write_string(w, key.u.str);
        return;
    }
    if (!jinja_is_number(key) && !jinja_is(key, JINJA_NONE))
        jinja_raise(w->sb.r, "keys must be str, int, float, bool or None, not %s",
                    jinja_type_name(key));
    add(w, key, "\"");
    write_value(w, key, 0);
    add(w, key, "\"");
}

/* The dict's pairs, sorted by key where the style wants it. */
static const struct jinja_pair *ordered_pairs(struct writer *w, const struct jinja_dict *d)
{
    if (!w->style->sort_keys || d->n < 2) return d->pairs;
    struct jinja_run *r = w->sb.r;
    struct jinja_value *keys = JINJA_NEW_N(r, d->n, struct jinja_value);
    struct jinja_value *values = JINJA_NEW_N(r, d->n, struct jinja_value);
    for (size_t i = 0; i < d->n; i++) {
        keys[i] = d->pairs[i].key;
        values[i] = d->pairs[i].value;
    }
    jinja_sort(r, keys, values, d->n, false);
    struct jinja_pair *pairs = JINJA_NEW_N(r, d->n, struct jinja_pair);
    for (size_t i = 0; i < d->n; i++)
        pairs[i] = (struct jinja_pair){.key = keys[i], .value = values[i]};
    return pairs;
}

static void write_dict(struct writer *w, struct jinja_value v, int depth)
{
    const struct jinja_pair *pairs = ordered_pairs(w, v.u.dict);
    size_t n = v.u.dict->n;
    add(w, v, "{");
    for (size_t i = 0; i < n; i++) {
        if (i) add_style(w, v, w->style->item_sep);
        new_line(w, v, depth + 1);
        write_key(w, pairs[i].key);
        add_style(w, v, w->style->key_sep);
        write_value(w, pairs[i].value, depth + 1);
    }
    if (n) new_line(w, v, depth);
    add(w, v, "}");
}

static void write_value(struct writer *w, struct jinja_value v, int depth)
{
    jinja_check_depth(w->sb.r, depth);
    switch (v.type) {
    case JINJA_NONE: add(w, v, "null"); break;
    case JINJA_BOOL: add(w, v, v.u.i ? "true" : "false"); break;
    case JINJA_INT:
    case JINJA_BIG:
    case JINJA_FLOAT: write_number(w, v); break;
    case JINJA_STR: write_string(w, v.u.str); break;
    case JINJA_LIST:
    case JINJA_TUPLE: write_list(w, v, depth); break;
    case JINJA_DICT: write_dict(w, v, depth); break;
    default: jinja_raise(w->sb.r, "Object of type %s is not JSON serializable", jinja_type_name(v));
    }
}

struct jinja_value jinja_json_dumps(struct jinja_run *r, struct jinja_value v,
                                    const struct jinja_json_style *style)
{
    struct writer w = {.style = style};
    jinja_sb_init(&w.sb, r);
    write_value(&w, v, 0);
    return jinja_sb_value(&w.sb);
}
