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

/* Prints d, positive and finite, rounded to nearest or upwards. Returns true if it reads back. */
static bool print_at(char *buf, double d, bool fixed, int precision, bool up)
{
    fesetround(up ? FE_UPWARD : FE_TONEAREST);
    snprintf(buf, JINJA_FLOAT_BYTES - 1, fixed ? "%.*f" : "%.*e", precision, d);
    fesetround(FE_TONEAREST);
    return strtod(buf, NULL) == d;
}

/*
 * Below a power of two doubles lie half as far apart as above it, so there the digits next above
 * may read back although the nearest ones do not. There is always a fraction or an exponent.
 */
void jinja_float_repr(struct jinja_run *r, double d, char buf[JINJA_FLOAT_BYTES])
{
    int precision = 0, binary_exponent;
    bool up = false, is_power = frexp(fabs(d), &binary_exponent) == 0.5;
    jinja_spend_digits(r, DIGITS_TRIED);
    if (!isfinite(d)) {
        snprintf(buf, JINJA_FLOAT_BYTES, "%s", isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
        return;
    }
    if (signbit(d)) *buf++ = '-';
    d = fabs(d);
    while (!print_at(buf, d, false, precision, false) && precision < 16 &&
           !(up = is_power && print_at(buf, d, false, precision, true)))
        precision++;
    long exp = strtol(strchr(buf, 'e') + 1, NULL, 10);
    if (exp >= -4 && exp < 16)
        print_at(buf, d, true, precision > exp ? precision - (int)exp : 1, up);
}

/* True, 7, 7.0: what str() and repr() agree on. */
/* ---- strings ------------------------------------------------------------------------------- */

static bool is_printable(int32_t cp)
{
    char group = *utf8proc_category_string(cp);
    return cp == ' ' || (group != 'C' && group != 'Z');
}

static void add_repr_char(struct jinja_sb *sb, int32_t cp, char quote, uint8_t origin)
{
    static const char named[] = "\nn\rr\tt";
    const char *name = cp > 0 && cp < 0x20 ? strchr(named, (char)cp) : NULL;
    const char *letter = cp <= 0xFF ? "x" : cp <= 0xFFFF ? "u" : "U";
    char buf[16] = {'\\', name ? name[1] : (char)cp};
    if (!name && cp != quote && cp != '\\') {
        if (is_printable(cp)) {
            jinja_sb_add_cp(sb, cp, origin);
            return;
        }
        snprintf(buf, sizeof(buf), "\\%s%0*x", letter,
                 cp <= 0xFF     ? 2
                 : cp <= 0xFFFF ? 4
                                : 8,
                 (unsigned)cp);
    }
    jinja_sb_add_bytes(sb, buf, strlen(buf), origin);
}

static void repr_str(struct jinja_sb *sb, const struct jinja_str *s)
{
    uint8_t outer = s->origin == JINJA_INPUT ? JINJA_INPUT : JINJA_TRUSTED;
    bool single = s->len && memchr(s->s, '\'', s->len), dbl = s->len && memchr(s->s, '"', s->len);
    if (s->markup) jinja_sb_add_bytes(sb, "Markup(", 7, outer);
    jinja_sb_add_quoted(sb, s, single && !dbl ? '"' : '\'', true, add_repr_char);
    if (s->markup) jinja_sb_add_bytes(sb, ")", 1, outer);
}

/* ---- containers ---------------------------------------------------------------------------- */

static void repr_items(struct jinja_sb *sb, struct jinja_value v, int depth)
{
    bool list = jinja_is(v, JINJA_LIST), dict = jinja_is(v, JINJA_DICT);
    size_t n = dict ? v.u.dict->n : v.u.list->n;
    add(sb, v, dict ? "{" : list ? "[" : "(");
    for (size_t i = 0; i < n; i++) {
        if (i) add(sb, v, ", ");
        if (dict) {
            repr_in(sb, v.u.dict->pairs[i].key, depth);
            add(sb, v, ": ");
        }
        repr_in(sb, dict ? v.u.dict->pairs[i].value : v.u.list->items[i], depth);
    }
    add(sb, v, dict ? "}" : list ? "]" : n == 1 ? ",)" : ")");
}

static void repr_in(struct jinja_sb *sb, struct jinja_value v, int depth)
{
    char buf[JINJA_FLOAT_BYTES];
    jinja_check_depth(sb->r, depth);
    switch (v.type) {
    case JINJA_UNDEFINED: add(sb, v, "Undefined"); break;
    case JINJA_NONE: add(sb, v, "None"); break;
    case JINJA_BOOL: add(sb, v, v.u.i ? "True" : "False"); break;
    case JINJA_INT:
    case JINJA_BIG: add(sb, v, jinja_int_digits(sb->r, v)); break;
    case JINJA_FLOAT:
        jinja_float_repr(sb->r, v.u.d, buf);
        add(sb, v, buf);
        break;
    case JINJA_STR: repr_str(sb, v.u.str); break;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT: repr_items(sb, v, depth + 1); break;
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
