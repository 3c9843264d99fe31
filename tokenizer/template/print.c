/* SPDX-License-Identifier: MIT */
/*
 * str() and repr() of values, as Python has them; see print.h. The text of a value
 * from the request carries the value's origin, brackets and quotes included.
 */
#include "tokenizer/template/print.h"

#include <assert.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static void repr_in(struct jinja_sb *sb, struct jinja_value v, int depth);

static void add(struct jinja_sb *sb, struct jinja_value v, const char *text)
{
    jinja_sb_add_bytes(sb, text, strlen(text), v.input ? JINJA_INPUT : JINJA_TRUSTED);
}

/* ---- numbers ------------------------------------------------------------------------------- */

enum { DIGITS_TRIED = 64 /* up to 17 precisions are printed and read back */ };

/*
 * The fewest decimal digits of d (positive, finite) that read back the same, and the exponent of
 * the first. Below a power of two doubles lie half as far apart as above it, so there the digits
 * next above may read back although the nearest ones do not.
 */
static int shortest_digits(double d, char digits[20])
{
    assert(d > 0 && isfinite(d));
    char buf[40];
    int binary_exponent;
    bool is_power = frexp(d, &binary_exponent) == 0.5;
    for (int precision = 0; precision < 17; precision++) {
        snprintf(buf, sizeof(buf), "%.*e", precision, d);
        if (strtod(buf, NULL) == d) break;
        if (!is_power) continue;
        fesetround(FE_UPWARD);
        snprintf(buf, sizeof(buf), "%.*e", precision, d);
        fesetround(FE_TONEAREST);
        if (strtod(buf, NULL) == d) break;
    }
    size_t n = 0;
    const char *p = buf;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9' && n < 18) digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    return *p ? (int)strtol(p + 1, NULL, 10) : 0;
}

/* Digits with a point after the (exp + 1)th, zeros filled in, and always a fraction. */
static void put_fixed(char *out, size_t size, const char *digits, int exp)
{
    int n = (int)strlen(digits);
    if (exp < 0)
        snprintf(out, size, "0.%.*s%s", -exp - 1, "0000000000", digits);
    else if (n <= exp + 1)
        snprintf(out, size, "%s%.*s.0", digits, exp + 1 - n, "00000000000000000");
    else
        snprintf(out, size, "%.*s.%s", exp + 1, digits, digits + exp + 1);
}

void jinja_float_repr(struct jinja_run *r, double d, char buf[JINJA_FLOAT_BYTES])
{
    char digits[20];
    jinja_spend_digits(r, DIGITS_TRIED);
    if (isnan(d) || isinf(d)) {
        snprintf(buf, JINJA_FLOAT_BYTES, "%s", isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
        return;
    }
    if (d == 0) {
        snprintf(buf, JINJA_FLOAT_BYTES, "%s", signbit(d) ? "-0.0" : "0.0");
        return;
    }
    int exp = shortest_digits(fabs(d), digits);
    size_t at = 0;
    if (d < 0) buf[at++] = '-';
    if (exp >= -4 && exp < 16)
        put_fixed(buf + at, JINJA_FLOAT_BYTES - at, digits, exp);
    else
        snprintf(buf + at, JINJA_FLOAT_BYTES - at, "%c%s%se%c%02d", digits[0], digits[1] ? "." : "",
                 digits + 1, exp < 0 ? '-' : '+', abs(exp));
}

/* True, 7, 7.0: what str() and repr() agree on. */
static void print_number(struct jinja_sb *sb, struct jinja_value v)
{
    char buf[JINJA_FLOAT_BYTES];
    if (jinja_is(v, JINJA_BOOL))
        add(sb, v, v.u.i ? "True" : "False");
    else if (!jinja_is(v, JINJA_FLOAT))
        add(sb, v, jinja_int_digits(sb->r, v));
    else {
        jinja_float_repr(sb->r, v.u.d, buf);
        add(sb, v, buf);
    }
}

/* ---- strings ------------------------------------------------------------------------------- */

static bool is_printable(int32_t cp)
{
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return cp == ' ';
    default: return true;
    }
}

static void add_escape(struct jinja_sb *sb, int32_t cp, uint8_t origin)
{
    char buf[16];
    const char *letter = cp <= 0xFF ? "x" : cp <= 0xFFFF ? "u" : "U";
    int width = cp <= 0xFF ? 2 : cp <= 0xFFFF ? 4 : 8;
    int n = snprintf(buf, sizeof(buf), "\\%s%0*x", letter, width, (unsigned)cp);
    jinja_sb_add_bytes(sb, buf, (size_t)n, origin);
}

static void add_repr_char(struct jinja_sb *sb, int32_t cp, char quote, uint8_t origin)
{
    static const char named[] = "\nn\rr\tt";
    const char *name = cp > 0 && cp < 0x20 ? strchr(named, (char)cp) : NULL;
    if (cp == quote || cp == '\\' || name) {
        char buf[2] = {'\\', name ? name[1] : (char)cp};
        jinja_sb_add_bytes(sb, buf, 2, origin);
    } else if (is_printable(cp)) {
        jinja_sb_add_cp(sb, cp, origin);
    } else {
        add_escape(sb, cp, origin);
    }
}

/* Copied as it is. */
static bool is_plain(char c, char quote)
{
    return c >= 0x20 && c < 0x7F && c != quote && c != '\\';
}

static void repr_str(struct jinja_sb *sb, const struct jinja_str *s)
{
    uint8_t outer = s->origin == JINJA_INPUT ? JINJA_INPUT : JINJA_TRUSTED;
    bool single = s->len && memchr(s->s, '\'', s->len), dbl = s->len && memchr(s->s, '"', s->len);
    char quote = single && !dbl ? '"' : '\'';
    jinja_spend_bytes(sb->r, s->len);
    if (s->markup) jinja_sb_add_bytes(sb, "Markup(", 7, outer);
    jinja_sb_add_bytes(sb, &quote, 1, outer);
    for (size_t at = 0; at < s->len;) {
        size_t begin = at;
        while (at < s->len && is_plain(s->s[at], quote))
            at++;
        jinja_sb_add_part(sb, s, begin, at - begin);
        begin = at;
        if (at == s->len) break;
        int32_t cp = jinja_str_next(s, &at);
        jinja_spend_chars(sb->r, 8);
        add_repr_char(sb, cp, quote, jinja_str_origin_at(s, begin));
    }
    jinja_sb_add_bytes(sb, &quote, 1, outer);
    if (s->markup) jinja_sb_add_bytes(sb, ")", 1, outer);
}

/* ---- containers ---------------------------------------------------------------------------- */

static void repr_items(struct jinja_sb *sb, struct jinja_value v, int depth)
{
    const struct jinja_list *l = v.u.list;
    for (size_t i = 0; i < l->n; i++) {
        if (i) add(sb, v, ", ");
        repr_in(sb, l->items[i], depth);
    }
}

static void repr_dict(struct jinja_sb *sb, struct jinja_value v, int depth)
{
    const struct jinja_dict *d = v.u.dict;
    add(sb, v, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i) add(sb, v, ", ");
        repr_in(sb, d->pairs[i].key, depth);
        add(sb, v, ": ");
        repr_in(sb, d->pairs[i].value, depth);
    }
    add(sb, v, "}");
}

static void repr_in(struct jinja_sb *sb, struct jinja_value v, int depth)
{
    jinja_check_depth(sb->r, depth);
    switch (v.type) {
    case JINJA_UNDEFINED: add(sb, v, "Undefined"); break;
    case JINJA_NONE: add(sb, v, "None"); break;
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_BIG:
    case JINJA_FLOAT: print_number(sb, v); break;
    case JINJA_STR: repr_str(sb, v.u.str); break;
    case JINJA_LIST:
        add(sb, v, "[");
        repr_items(sb, v, depth + 1);
        add(sb, v, "]");
        break;
    case JINJA_TUPLE:
        add(sb, v, "(");
        repr_items(sb, v, depth + 1);
        add(sb, v, v.u.list->n == 1 ? ",)" : ")");
        break;
    case JINJA_DICT: repr_dict(sb, v, depth + 1); break;
    default:
        jinja_raise(sb->r, "printing a %s is not supported in chat templates", jinja_type_name(v));
    }
}

void jinja_print(struct jinja_sb *sb, struct jinja_value v)
{
    if (jinja_is(v, JINJA_STR)) {
        jinja_spend_bytes(sb->r, v.u.str->len);
        jinja_sb_add(sb, v.u.str);
    } else if (!jinja_is(v, JINJA_UNDEFINED)) {
        repr_in(sb, v, 0);
    }
}

/* Strings are themselves; undefined is the empty text. */
const struct jinja_str *jinja_to_str(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_STR)) return v.u.str;
    struct jinja_sb sb = {.r = r};
    jinja_print(&sb, v);
    return jinja_sb_str(&sb);
}

const struct jinja_str *jinja_repr(struct jinja_run *r, struct jinja_value v)
{
    struct jinja_sb sb = {.r = r};
    repr_in(&sb, v, 0);
    return jinja_sb_str(&sb);
}
