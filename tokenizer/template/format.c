/* SPDX-License-Identifier: MIT */
/*
 * printf-style formatting (the % operator and the format filter), and the plain fields of
 * str.format.
 *
 * Widths and precisions are bounded by the memory a run may take; precisions of floats by
 * MAX_PRECISION, beyond which digits are zeros anyway.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer/template/dict.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/number.h"
#include "tokenizer/template/print.h"
#include "tokenizer/template/undefined.h"

enum { MAX_PRECISION = 1200, MAX_WIDTH = 1 << 24 };

/* One field: how its value is to look. */
struct field {
    char align; /* '<' or 0 */
    char sign;  /* '+' ' ' or 0 */
    bool alt;   /* '#' */
    bool zero;
    int64_t width;
    int64_t precision; /* -1: none */
    char type;
};

/* A number in pieces. */
struct number {
    char sign;          /* 0: none */
    const char *prefix; /* "0x" */
    int64_t zeros;      /* before the digits */
    char *digits;
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

/*
 * Head and body in a field; '=' puts the fill between them. Fill counts as the value's own text: a
 * width may come from the request too.
 */
static void set_in_field(struct jinja_sb *sb, const struct field *f, char align,
                         const struct jinja_str *head, const struct jinja_str *body, uint8_t origin)
{
    struct jinja_run *r = sb->r;
    int64_t n = f->width - (int64_t)(jinja_str_chars(r, head) + jinja_str_chars(r, body));
    if (n < 0) n = 0;
    if (align == '>') add_char(sb, ' ', n, origin);
    jinja_sb_add(sb, head);
    if (align == '=') add_char(sb, '0', n, origin);
    jinja_sb_add(sb, body);
    if (align == '<') add_char(sb, ' ', n, origin);
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

static void upper_case(char *text)
{
    for (; *text; text++)
        *text = (char)toupper((unsigned char)*text);
}

/* Digits of an integer in the base its type letter names. */
static struct number int_number(struct jinja_run *r, const struct field *f, struct jinja_value v)
{
    struct number num = {.prefix = "", .sign = jinja_int_sign(v) < 0 ? '-' : 0};
    char type = (char)tolower((unsigned char)f->type);
    int base = type == 'x' ? 16 : type == 'o' ? 8 : 10;
    num.digits = jinja_int_digits(r, v, base);
    if (*num.digits == '-') num.digits++;
    if (f->alt && base != 10) num.prefix = base == 16 ? "0x" : "0o";
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

/* Sign aside. */
static struct number float_number(struct jinja_run *r, const struct field *f, double d)
{
    struct number num = {.prefix = "", .sign = signbit(d) && !isnan(d) ? '-' : 0};
    if (f->precision > MAX_PRECISION) jinja_raise(r, "precision too big");
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    num.digits = print_float(r, isnan(d) ? d : fabs(d), f->type, f->alt, precision);
    if (isupper((unsigned char)f->type)) upper_case(num.digits);
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

/* %c takes a code point or a string of one character. */
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

/* {} counts by itself, {0} counts for itself: a format must not mix the two. */
struct formatter {
    struct jinja_run *r;
    const struct jinja_args *args; /* NULL: only looks whether the fields are known */
    size_t next;                   /* argument of "{}" */
    bool automatic, manual;        /* numbering seen so far */
};

static struct jinja_value positional(struct formatter *f, size_t n)
{
    if (n >= f->args->n_pos)
        jinja_raise(f->r, "Replacement index %zu out of range for positional args tuple", n);
    return f->args->pos[n];
}

/* An index is short: longer digits are a name. */
static struct jinja_value field_value(struct formatter *f, const struct jinja_str *name)
{
    size_t n = 0;
    bool index = jinja_str_is_digits(name) && name->len < 10;
    f->automatic = f->automatic || name->len == 0;
    f->manual = f->manual || index;
    if (f->automatic && f->manual)
        jinja_raise(f->r, "cannot switch between automatic and manual field numbering");
    if (name->len == 0) return positional(f, f->next++);
    for (size_t i = 0; index && i < name->len; i++)
        n = n * 10 + (size_t)(name->s[i] - '0');
    if (index) return positional(f, n);
    for (size_t i = 0; i < f->args->n_kw; i++)
        if (jinja_str_equal(f->args->keys[i], name)) return f->args->kw[i];
    jinja_raise(f->r, "format key '%.*s' is missing", (int)name->len, name->s);
}

/* The field from its '{' at `at`; returns where its '}' is. */
static size_t add_format_field(struct formatter *f, struct jinja_sb *out,
                               const struct jinja_str *format, size_t at)
{
    const char *name = format->s + at + 1, *close = memchr(name, '}', format->len - at - 1);
    if (!close) jinja_raise(f->r, "expected '}' before end of string");
    size_t len = (size_t)(close - name);
    for (size_t i = 0; i < len; i++)
        if (strchr(".[!:{", name[i]) && name[i])
            jinja_raise(
                f->r,
                "the format field '{%.*s}' is not supported in chat templates, only {}, {0} "
                "and {name} are",
                (int)len, name);
    if (f->args) {
        struct jinja_value v = field_value(f, jinja_str_part(f->r, format, at + 1, len));
        const struct jinja_str *text = jinja_to_str(f->r, v);
        jinja_sb_add(out, format->markup ? jinja_str_escape(f->r, text) : text);
    }
    return at + 1 + len;
}

static struct jinja_value expand(struct formatter *f, const struct jinja_str *format)
{
    struct jinja_sb out = {.r = f->r};
    jinja_spend_chars(f->r, format->len);
    for (size_t at = 0; at < format->len; at++) {
        char c = format->s[at];
        bool brace = c == '{' || c == '}';
        if (!brace || (at + 1 < format->len && format->s[at + 1] == c)) {
            jinja_sb_add_part(&out, format, at, 1);
            at += brace;
        } else if (c == '}') {
            jinja_raise(f->r, "Single '}' encountered in format string");
        } else {
            at = add_format_field(f, &out, format, at);
        }
    }
    return jinja_sb_value_like(&out, format);
}

struct jinja_value jinja_format(struct jinja_run *r, const struct jinja_str *format,
                                const struct jinja_args *args)
{
    struct formatter f = {.r = r, .args = args};
    return expand(&f, format);
}

void jinja_check_format(struct jinja_run *r, const struct jinja_str *format)
{
    struct formatter f = {.r = r};
    expand(&f, format);
}
