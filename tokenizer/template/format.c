/* SPDX-License-Identifier: MIT */
/*
 * printf-style formatting (the % operator and the format filter) and str.format with its
 * mini-language. Both come down to a number or a text set into a field.
 *
 * Widths and precisions are bounded by the memory a run may take; precisions of floats by
 * MAX_PRECISION, beyond which digits are zeros anyway.
 *
 * No known model's template calls str.format or formats Markup. Both are kept because the reference
 * renders them: a template that uses them must give the same prompt here.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/template/dict.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/number.h"
#include "tokenizer/template/print.h"
#include "tokenizer/template/undefined.h"

enum { MAX_PRECISION = 1200, MAX_WIDTH = 1 << 24, MAX_FORMAT_NESTING = 2 };

/* One field: how its value is to look. */
struct field {
    struct jinja_str fill; /* len 0: blank */
    char align;            /* '<' '>' '^' '=' or 0 */
    char sign;             /* '+' ' ' or 0 */
    bool alt;              /* '#' */
    bool zero;
    char group; /* ',' '_' or 0 */
    int64_t width;
    int64_t precision; /* -1: none */
    char type;         /* 0: none */
};

/* A number in pieces. */
struct number {
    char sign;          /* 0: none */
    const char *prefix; /* "0x" */
    int64_t zeros;      /* before the digits */
    char *digits;
    const char *suffix; /* "%" */
};

/* ---- fields -------------------------------------------------------------------------------- */

static uint8_t value_origin(struct jinja_value v)
{
    return v.input ? JINJA_INPUT : JINJA_TRUSTED;
}

static void add_char(struct jinja_sb *sb, char c, int64_t n, uint8_t origin)
{
    const struct jinja_str s = {.s = &c, .len = 1, .origin = origin};
    jinja_sb_repeat(sb, &s, n);
}

/* Fill counts as the value's own text: a width may come from the request too. */
static void add_fill(struct jinja_sb *sb, const struct field *f, int64_t n, uint8_t origin)
{
    struct jinja_str fill = f->fill;
    fill.mask = NULL;
    fill.origin = origin;
    if (fill.len)
        jinja_sb_repeat(sb, &fill, n);
    else
        add_char(sb, f->zero ? '0' : ' ', n, origin);
}

/* Head and body in a field; '=' puts the fill between them. */
static void set_in_field(struct jinja_sb *sb, const struct field *f, char align,
                         const struct jinja_str *head, const struct jinja_str *body, uint8_t origin)
{
    struct jinja_run *r = sb->r;
    int64_t n = f->width - (int64_t)(jinja_str_chars(r, head) + jinja_str_chars(r, body));
    if (n < 0) n = 0;
    int64_t left = align == '>' ? n : align == '^' ? n / 2 : 0;
    int64_t middle = align == '=' ? n : 0;
    add_fill(sb, f, left, origin);
    jinja_sb_add(sb, head);
    add_fill(sb, f, middle, origin);
    jinja_sb_add(sb, body);
    add_fill(sb, f, n - left - middle, origin);
}

/* The sign and the prefix stay in front of zeros. */
static void set_number(struct jinja_sb *sb, const struct field *f, const struct number *num,
                       uint8_t origin)
{
    struct jinja_sb head = {.r = sb->r}, body = {.r = sb->r};
    char sign = num->sign == '-' ? '-' : f->sign;
    if (sign) jinja_sb_add_bytes(&head, &sign, 1, origin);
    jinja_sb_add_bytes(&head, num->prefix, strlen(num->prefix), origin);
    add_char(&body, '0', num->zeros, origin);
    jinja_sb_add_bytes(&body, num->digits, strlen(num->digits), origin);
    jinja_sb_add_bytes(&body, num->suffix, strlen(num->suffix), origin);
    char align = f->align ? f->align : f->zero ? '=' : '>';
    set_in_field(sb, f, align, jinja_sb_str(&head), jinja_sb_str(&body), origin);
}

/* The precision of text cuts it, in characters. */
static void set_text(struct jinja_sb *sb, const struct field *f, const struct jinja_str *s,
                     char align)
{
    const struct jinja_str none = {.s = "", .origin = JINJA_TRUSTED};
    if (f->precision >= 0)
        s = jinja_str_part(sb->r, s, 0, jinja_str_char_at(sb->r, s, (size_t)f->precision));
    set_in_field(sb, f, align, &none, s, s->origin & JINJA_INPUT ? JINJA_INPUT : JINJA_TRUSTED);
}

/* ---- numbers ------------------------------------------------------------------------------- */

/* 1234567 to 1,234,567; the fraction and the exponent have no groups. */
static char *with_groups(struct jinja_run *r, const char *digits, char group, size_t every)
{
    size_t whole = strspn(digits, "0123456789abcdefABCDEF"), at = 0;
    if (memchr(digits, 'e', whole) && every == 3) whole = strcspn(digits, "e");
    char *out = jinja_alloc(r, strlen(digits) * 2 + 1, 1);
    for (size_t i = 0; digits[i]; i++) {
        if (i > 0 && i < whole && (whole - i) % every == 0) out[at++] = group;
        out[at++] = digits[i];
    }
    return out;
}

static void upper_case(char *text)
{
    for (; *text; text++)
        *text = (char)toupper((unsigned char)*text);
}

/* Digits of an integer in the base its type letter names. */
static struct number int_number(struct jinja_run *r, const struct field *f, struct jinja_value v)
{
    struct number num = {.prefix = "", .suffix = "", .sign = jinja_int_sign(v) < 0 ? '-' : 0};
    char type = (char)tolower((unsigned char)f->type);
    int base = type == 'x' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    num.digits = jinja_int_digits(r, v, base);
    if (*num.digits == '-') num.digits++;
    if (f->group) num.digits = with_groups(r, num.digits, f->group, base == 10 ? 3 : 4);
    if (f->alt && base != 10) num.prefix = base == 16 ? "0x" : base == 8 ? "0o" : "0b";
    if (f->type == 'X') {
        upper_case(num.digits);
        if (f->alt) num.prefix = "0X";
    }
    return num;
}

/* snprintf of one float; the conversion is one of a fixed set. */
static char *print_float(struct jinja_run *r, double d, char type, bool alt, int precision)
{
    size_t size = (size_t)precision + 400;
    char *buf = jinja_alloc(r, size, 1);
    switch (tolower((unsigned char)type)) {
    case 'e': snprintf(buf, size, alt ? "%#.*e" : "%.*e", precision, d); break;
    case 'f': snprintf(buf, size, alt ? "%#.*f" : "%.*f", precision, d); break;
    default: snprintf(buf, size, alt ? "%#.*g" : "%.*g", precision, d); break;
    }
    jinja_spend_digits(r, strlen(buf));
    return buf;
}

/* No type letter but a precision: like 'g', but never looking like an integer. */
static char *print_general(struct jinja_run *r, double d, int precision)
{
    char *exp = print_float(r, d, 'e', false, precision > 0 ? precision - 1 : 0);
    const char *e = strchr(exp, 'e');
    long exp10 = e ? strtol(e + 1, NULL, 10) : 0;
    char *text = print_float(r, d, 'g', false, precision > 0 ? precision : 1);
    if (strchr(text, 'e') || strchr(text, '.') || strchr(text, 'n')) return text;
    if (exp10 >= precision - 1) { /* the point would come last: the exponent form it is */
        char *out = jinja_alloc(r, strlen(exp) + 1, 1);
        size_t mantissa = (size_t)(e - exp), n = mantissa;
        if (memchr(exp, '.', mantissa)) {
            while (exp[n - 1] == '0')
                n--;
            if (exp[n - 1] == '.') n--;
        }
        memcpy(out, exp, n);
        memcpy(out + n, e, strlen(e));
        return out;
    }
    memcpy(text + strlen(text), ".0", 3); /* print_float leaves room */
    return text;
}

/* Sign aside; what a letter means (fixed, exponent, percent, upper case) comes one by one. */
static struct number float_number(struct jinja_run *r, const struct field *f, double d)
{
    bool percent = f->type == '%';
    struct number num = {
        .prefix = "", .suffix = percent ? "%" : "", .sign = signbit(d) && !isnan(d) ? '-' : 0};
    d = isnan(d) ? d : fabs(d);
    if (f->precision > MAX_PRECISION) jinja_raise(r, "precision too big");
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    char *text;
    if (f->type == 0 && f->precision < 0) {
        text = jinja_alloc(r, JINJA_FLOAT_BYTES, 1);
        jinja_float_repr(r, d, text);
    } else if (f->type == 0) {
        text = print_general(r, d, precision);
    } else {
        char type = percent ? 'f' : f->type == 'n' ? 'g' : f->type;
        text = print_float(r, percent ? d * 100 : d, type, f->alt, precision);
    }
    if (f->group && isfinite(d)) text = with_groups(r, text, f->group, 3);
    if (isupper((unsigned char)f->type)) upper_case(text);
    num.digits = text;
    return num;
}

/* ---- the % operator ------------------------------------------------------------------------ */

struct percent {
    struct jinja_run *r;
    const struct jinja_str *format;
    size_t at;
    struct jinja_value args; /* as given */
    bool is_tuple;
    size_t next; /* argument, of a tuple */
    bool used;   /* the one argument that is not a tuple */
    struct jinja_sb out;
};

static int peek(const struct percent *p)
{
    return p->at < p->format->len ? (unsigned char)p->format->s[p->at] : -1;
}

/* A value that is not a tuple can be used once. */
static struct jinja_value next_arg(struct percent *p)
{
    if (p->is_tuple && p->next < p->args.u.list->n) return p->args.u.list->items[p->next++];
    if (p->is_tuple || p->used) jinja_raise(p->r, "not enough arguments for format string");
    p->used = true;
    return p->args;
}

/* (name): the value is looked up instead of taken in turn. */
static struct jinja_value keyed_arg(struct percent *p)
{
    size_t begin = ++p->at;
    int depth = 1;
    for (; depth > 0; p->at++) {
        if (peek(p) < 0) jinja_raise(p->r, "incomplete format key");
        depth += peek(p) == '(' ? 1 : peek(p) == ')' ? -1 : 0;
    }
    if (!jinja_is(p->args, JINJA_DICT)) jinja_raise(p->r, "format requires a mapping");
    const struct jinja_str *key = jinja_str_part(p->r, p->format, begin, p->at - 1 - begin);
    const struct jinja_value *v = jinja_dict_get(p->r, p->args.u.dict, jinja_from_str(key));
    if (!v) jinja_raise(p->r, "format key '%.*s' is missing", (int)key->len, key->s);
    return *v;
}

/* In any order, any number of times. */
static void read_flags(struct percent *p, struct field *f)
{
    for (;; p->at++) {
        switch (peek(p)) {
        case '-': f->align = '<'; break;
        case '+': f->sign = '+'; break;
        case ' ': f->sign = f->sign ? f->sign : ' '; break;
        case '#': f->alt = true; break;
        case '0': f->zero = true; break;
        default: return;
        }
    }
}

/* Digits, or * for the next argument. */
static int64_t read_size(struct percent *p, bool *ret_negative)
{
    int64_t n = 0;
    if (peek(p) == '*') {
        p->at++;
        struct jinja_value v = next_arg(p);
        if (!jinja_is(v, JINJA_INT) && !jinja_is(v, JINJA_BOOL)) jinja_raise(p->r, "* wants int");
        *ret_negative = v.u.i < 0;
        n = v.u.i < 0 ? -v.u.i : v.u.i;
    }
    while (isdigit(peek(p)) && n <= MAX_WIDTH)
        n = n * 10 + (p->format->s[p->at++] - '0');
    if (n > MAX_WIDTH || n < 0) jinja_raise(p->r, "width or precision too big");
    return n;
}

/* %d takes floats and cuts them; %x and %o want integers. */
static void add_int(struct percent *p, struct field *f, struct jinja_value v)
{
    bool hex = f->type == 'x' || f->type == 'X' || f->type == 'o';
    if (jinja_is(v, JINJA_UNDEFINED)) jinja_fail_undefined(p->r, v);
    if (!jinja_is_number(v) || (hex && jinja_is(v, JINJA_FLOAT)))
        jinja_raise(p->r, "%%%c format: %s is required, not %s", f->type,
                    hex ? "an integer" : "a real number", jinja_type_name(v));
    uint8_t origin = value_origin(v);
    if (jinja_is(v, JINJA_FLOAT)) v = jinja_int_from_double(p->r, v.u.d);
    struct number num = int_number(p->r, f, v);
    num.zeros = f->precision - (int64_t)strlen(num.digits);
    set_number(&p->out, f, &num, origin);
}

static void add_float(struct percent *p, struct field *f, struct jinja_value v)
{
    if (jinja_is(v, JINJA_UNDEFINED)) jinja_fail_undefined(p->r, v);
    if (!jinja_is_number(v)) jinja_raise(p->r, "must be real number, not %s", jinja_type_name(v));
    struct number num = float_number(p->r, f, jinja_to_double(p->r, v));
    set_number(&p->out, f, &num, value_origin(v));
}

/* %c and :c take a code point or a string of one character. */
static const struct jinja_str *one_char(struct percent *p, struct jinja_value v)
{
    struct jinja_sb sb = {.r = p->r};
    if (jinja_is(v, JINJA_STR) && jinja_str_chars(p->r, v.u.str) == 1) return v.u.str;
    if (!jinja_is_integer(v)) jinja_raise(p->r, "%%c requires int or char");
    int64_t cp = jinja_to_index(p->r, v);
    if (cp < 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
        jinja_raise(p->r, "%%c arg not in range(0x110000)");
    jinja_sb_add_cp(&sb, (int32_t)cp, value_origin(v));
    return jinja_sb_str(&sb);
}

/* %s, %r, %a: a Markup format escapes what it inserts. */
static void add_text(struct percent *p, struct field *f, struct jinja_value v)
{
    const struct jinja_str *s;
    if (f->type == 'c')
        s = one_char(p, v);
    else if (f->type == 's')
        s = jinja_to_str(p->r, v);
    else
        s = jinja_repr(p->r, v, f->type == 'a');
    if (p->format->markup) s = jinja_str_escape(p->r, s);
    f->zero = false;
    set_text(&p->out, f, s, f->align ? f->align : '>');
}

/* Everything after a '%'. */
static void add_conversion(struct percent *p)
{
    struct field f = {.precision = -1};
    struct jinja_value v = jinja_missing();
    bool negative = false;
    jinja_spend(p->r, 8);
    if (peek(p) == '%') {
        jinja_sb_add_part(&p->out, p->format, p->at++, 1);
        return;
    }
    if (peek(p) == '(') v = keyed_arg(p);
    read_flags(p, &f);
    f.width = read_size(p, &negative);
    if (negative) f.align = '<';
    if (peek(p) == '.') {
        p->at++;
        negative = false;
        f.precision = read_size(p, &negative);
        if (negative) f.precision = 0;
    }
    if (peek(p) == 'h' || peek(p) == 'l' || peek(p) == 'L') p->at++;
    if (peek(p) < 0) jinja_raise(p->r, "incomplete format");
    f.type = p->format->s[p->at++];
    if (!strchr("diuoxXeEfFgGcrsa", f.type) || f.type == '\0')
        jinja_raise(p->r, "unsupported format character at index %zu", p->at - 1);
    if (jinja_is(v, JINJA_MISSING)) v = next_arg(p);
    if (f.align == '<') f.zero = false;
    if (strchr("crsa", f.type))
        add_text(p, &f, v);
    else if (strchr("diuoxX", f.type))
        add_int(p, &f, v);
    else
        add_float(p, &f, v);
}

/* A tuple must be used up, as must a plain value; containers may be left alone. */
static void check_all_used(const struct percent *p)
{
    bool container = jinja_is(p->args, JINJA_DICT) || jinja_is(p->args, JINJA_LIST) ||
                     jinja_is(p->args, JINJA_UNDEFINED) || jinja_is(p->args, JINJA_RANGE);
    if (p->is_tuple ? p->next < p->args.u.list->n : !p->used && !container)
        jinja_raise(p->r, "not all arguments converted during string formatting");
}

struct jinja_value jinja_percent(struct jinja_run *r, const struct jinja_str *format,
                                 struct jinja_value args)
{
    struct percent p = {.r = r, .format = format, .args = args, .out = {.r = r}};
    p.is_tuple = jinja_is(args, JINJA_TUPLE);
    jinja_spend_bytes(r, format->len);
    while (p.at < format->len) {
        const char *hit = memchr(format->s + p.at, '%', format->len - p.at);
        size_t end = hit ? (size_t)(hit - format->s) : format->len;
        jinja_sb_add_part(&p.out, format, p.at, end - p.at);
        p.at = end + 1;
        if (hit) add_conversion(&p);
    }
    check_all_used(&p);
    return jinja_sb_value_like(&p.out, format);
}

/* ---- str.format ---------------------------------------------------------------------------- */

struct formatter {
    struct jinja_run *r;
    const struct jinja_args *args;
    struct jinja_value map; /* instead of keyword arguments */
    bool markup;
    jinja_lookup *getattr, *getitem;
    int64_t next;           /* argument of "{}" */
    bool automatic, manual; /* numbering seen so far */
};

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static size_t read_digits(const struct jinja_str *s, size_t at, struct jinja_run *r, int64_t *ret)
{
    int64_t n = 0;
    size_t begin = at;
    for (; at < s->len && isdigit((unsigned char)s->s[at]); at++) {
        n = n * 10 + (s->s[at] - '0');
        if (n > MAX_WIDTH) jinja_raise(r, "Too many decimal digits in format string");
    }
    if (at > begin) *ret = n;
    return at;
}

/* [[fill]align][sign][z][#][0][width][group][.precision][type] */
static struct field parse_spec(struct jinja_run *r, const struct jinja_str *s)
{
    struct field f = {.precision = -1};
    size_t at = 0, first = 0;
    if (s->len) jinja_str_next(s, &first);
    if (first && first < s->len && is_align(s->s[first])) {
        f.fill = *jinja_str_part(r, s, 0, first);
        f.align = s->s[first];
        at = first + 1;
    } else if (s->len && is_align(s->s[0])) {
        f.align = s->s[at++];
    }
    if (at < s->len && strchr("+- ", s->s[at]) && s->s[at]) {
        f.sign = s->s[at] == '-' ? 0 : s->s[at];
        at++;
    }
    if (at < s->len && s->s[at] == '#') f.alt = true, at++;
    if (at < s->len && s->s[at] == '0' && !f.fill.len) f.zero = true, at++;
    at = read_digits(s, at, r, &f.width);
    if (at < s->len && (s->s[at] == ',' || s->s[at] == '_')) f.group = s->s[at++];
    if (at < s->len && s->s[at] == '.') {
        at = read_digits(s, at + 1, r, &f.precision);
        if (f.precision < 0) jinja_raise(r, "Format specifier missing precision");
    }
    if (at < s->len) f.type = s->s[at++];
    if (at < s->len) jinja_raise(r, "Invalid format specifier");
    return f;
}

static _Noreturn void bad_code(struct jinja_run *r, const struct field *f, struct jinja_value v)
{
    jinja_raise(r, "Unknown format code '%c' for object of type '%s'", f->type, jinja_type_name(v));
}

/* Integers refuse a precision and letters that are not theirs. */
static void format_int(struct jinja_sb *sb, struct field *f, struct jinja_value v)
{
    if (f->precision >= 0) jinja_raise(sb->r, "Precision not allowed in integer format specifier");
    if (f->type && !strchr("bdoxXnc", f->type)) bad_code(sb->r, f, v);
    if (f->type == 'c') {
        struct percent p = {.r = sb->r};
        set_text(sb, f, one_char(&p, v), f->align ? f->align : '<');
        return;
    }
    struct number num = int_number(sb->r, f, v);
    set_number(sb, f, &num, value_origin(v));
}

/* Text refuses what only numbers have. */
static void format_text(struct jinja_sb *sb, struct field *f, struct jinja_value v)
{
    if (f->type && f->type != 's') bad_code(sb->r, f, v);
    if (f->sign || f->alt || f->group || f->align == '=')
        jinja_raise(sb->r, "format option not allowed in string format specifier");
    set_text(sb, f, v.u.str, f->align ? f->align : '<');
}

/* format(v, spec) */
static const struct jinja_str *format_value(struct jinja_run *r, struct jinja_value v,
                                            const struct jinja_str *spec, bool markup)
{
    struct jinja_sb sb = {.r = r};
    if (spec->len == 0) return jinja_to_str(r, v);
    if (!jinja_is_number(v) && !jinja_is(v, JINJA_STR))
        jinja_raise(r, "unsupported format string passed to %s.__format__", jinja_type_name(v));
    if (markup && jinja_is(v, JINJA_STR) && v.u.str->markup)
        jinja_raise(r, "Unsupported format specification for Markup.");
    struct field f = parse_spec(r, spec);
    bool as_float = f.type && strchr("eEfFgG%", f.type);
    if (jinja_is(v, JINJA_STR)) {
        format_text(&sb, &f, v);
    } else if (jinja_is(v, JINJA_FLOAT) || as_float) {
        if (f.type && !as_float && f.type != 'n') bad_code(r, &f, v);
        struct number num = float_number(r, &f, jinja_to_double(r, v));
        set_number(&sb, &f, &num, value_origin(v));
    } else {
        format_int(&sb, &f, v);
    }
    return jinja_sb_str(&sb);
}

/* An index is short: longer digits are a name. */
static bool is_index(const struct jinja_str *s)
{
    return jinja_str_is_digits(s) && s->len < 10;
}

static int64_t to_number(const struct jinja_str *s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->len; i++)
        n = n * 10 + (s->s[i] - '0');
    return n;
}

static struct jinja_value positional(struct formatter *f, int64_t n)
{
    if ((uint64_t)n >= f->args->n_pos)
        jinja_raise(f->r, "Replacement index %lld out of range for positional args tuple",
                    (long long)n);
    return f->args->pos[n];
}

/* From the mapping of format_map, or a keyword argument. */
static struct jinja_value named(struct formatter *f, const struct jinja_str *name)
{
    if (jinja_is(f->map, JINJA_DICT)) {
        const struct jinja_value *v = jinja_dict_get(f->r, f->map.u.dict, jinja_from_str(name));
        if (v) return *v;
    }
    for (size_t i = 0; i < f->args->n_kw; i++)
        if (jinja_str_equal(f->args->keys[i], name)) return f->args->kw[i];
    jinja_raise(f->r, "format key '%.*s' is missing", (int)name->len, name->s);
}

/* {} counts by itself, {0} counts for itself: a format must not mix the two. */
static struct jinja_value first_of_field(struct formatter *f, const struct jinja_str *name,
                                         bool whole)
{
    bool automatic = whole && name->len == 0, manual = whole && is_index(name);
    f->automatic = f->automatic || automatic;
    f->manual = f->manual || manual;
    if (f->automatic && f->manual)
        jinja_raise(f->r, "cannot switch between automatic and manual field numbering");
    if (automatic) return positional(f, f->next++);
    return is_index(name) ? positional(f, to_number(name)) : named(f, name);
}

/* first { .attr | [item] } */
static struct jinja_value look_up(struct formatter *f, const struct jinja_str *name)
{
    struct jinja_run *r = f->r;
    size_t at = 0;
    while (at < name->len && name->s[at] != '.' && name->s[at] != '[')
        at++;
    struct jinja_value v = first_of_field(f, jinja_str_part(r, name, 0, at), at == name->len);
    while (at < name->len) {
        bool item = name->s[at] == '[';
        size_t begin = ++at;
        while (at < name->len &&
               (item ? name->s[at] != ']' : name->s[at] != '.' && name->s[at] != '['))
            at++;
        if (item && at == name->len) jinja_raise(r, "Missing ']' in format string");
        const struct jinja_str *key = jinja_str_part(r, name, begin, at - begin);
        if (key->len == 0) jinja_raise(r, "Empty attribute in format string");
        if (!item)
            v = f->getattr(r, v, jinja_from_str(key));
        else
            v = f->getitem(r, v, is_index(key) ? jinja_int(to_number(key)) : jinja_from_str(key));
        at += item;
    }
    return v;
}

static const struct jinja_str *expand(struct formatter *f, const struct jinja_str *format,
                                      int depth);

/* name[!conversion][:spec] */
static void add_field(struct formatter *f, struct jinja_sb *out, const struct jinja_str *field,
                      int depth)
{
    struct jinja_run *r = f->r;
    size_t at = 0;
    bool bracket = false;
    for (; at < field->len; at++) {
        char c = field->s[at];
        if (c == '[')
            bracket = true;
        else if (c == ']')
            bracket = false;
        else if (!bracket && (c == '!' || c == ':'))
            break;
        else if (c == '{' || c == '}')
            jinja_raise(r, "unexpected '%c' in field name", c);
    }
    struct jinja_value v = look_up(f, jinja_str_part(r, field, 0, at));
    if (at < field->len && field->s[at] == '!') {
        char c = at + 1 < field->len ? field->s[at + 1] : '\0';
        if (c == 'r' || c == 'a')
            v = jinja_from_str(jinja_repr(r, v, c == 'a'));
        else if (c == 's')
            v = jinja_from_str(jinja_to_str(r, v));
        else
            jinja_raise(r, "Unknown conversion specifier in format string");
        at += 2;
        if (at < field->len && field->s[at] != ':')
            jinja_raise(r, "expected ':' after conversion specifier");
    }
    size_t spec_at = at < field->len ? at + 1 : at;
    const struct jinja_str *spec =
        expand(f, jinja_str_part(r, field, spec_at, field->len - spec_at), depth - 1);
    const struct jinja_str *text = format_value(r, v, spec, f->markup);
    jinja_sb_add(out, f->markup ? jinja_str_escape(r, text) : text);
}

/* The '}' that closes the '{' before `at`. */
static size_t field_end(struct formatter *f, const struct jinja_str *s, size_t at)
{
    int depth = 1;
    for (; at < s->len; at++) {
        depth += s->s[at] == '{' ? 1 : s->s[at] == '}' ? -1 : 0;
        if (depth == 0) return at;
    }
    jinja_raise(f->r, "expected '}' before end of string");
}

static const struct jinja_str *expand(struct formatter *f, const struct jinja_str *format,
                                      int depth)
{
    struct jinja_sb out = {.r = f->r};
    if (depth < 0) jinja_raise(f->r, "Max string recursion exceeded");
    jinja_spend_chars(f->r, format->len);
    for (size_t at = 0; at < format->len; at++) {
        char c = format->s[at];
        if (c != '{' && c != '}') {
            jinja_sb_add_part(&out, format, at, 1);
        } else if (at + 1 < format->len && format->s[at + 1] == c) {
            jinja_sb_add_part(&out, format, at++, 1);
        } else if (c == '}') {
            jinja_raise(f->r, "Single '}' encountered in format string");
        } else {
            size_t end = field_end(f, format, at + 1);
            add_field(f, &out, jinja_str_part(f->r, format, at + 1, end - at - 1), depth);
            at = end;
        }
    }
    return jinja_sb_str(&out);
}

struct jinja_value jinja_format(struct jinja_run *r, const struct jinja_str *format,
                                const struct jinja_args *args, struct jinja_value map,
                                jinja_lookup *getattr, jinja_lookup *getitem)
{
    struct formatter f = {.r = r,
                          .args = args,
                          .map = map,
                          .markup = format->markup,
                          .getattr = getattr,
                          .getitem = getitem};
    const struct jinja_str *s = expand(&f, format, MAX_FORMAT_NESTING);
    return jinja_from_str(jinja_str_as(r, s, format->markup));
}
