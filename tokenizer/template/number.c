/* SPDX-License-Identifier: MIT */
/*
 * Python's arithmetic on bool, int and float; see number.h. An integer over 64 bits is the text
 * of its digits: it is printed, compared and hashed, and computing with it is an error.
 */
#include "tokenizer/template/number.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/template/str.h"

enum {
    MAX_INT_DIGITS = 4300, /* Python's limit between text and integer */
    BIG_STEPS = 8,         /* of looking at all digits of an integer over 64 bits */
};

const char *jinja_op_name(enum jinja_op op)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%"};
    assert((size_t)op < sizeof(names) / sizeof(names[0]));
    return names[op];
}

/* ---- arithmetic ---------------------------------------------------------------------------- */

_Noreturn static void fail_beyond(struct jinja_run *r, enum jinja_op op)
{
    jinja_raise(r, "'%s' with an integer beyond 64 bits is not supported in chat templates",
                jinja_op_name(op));
}

/* Floor division; the remainder takes the sign of the divisor. */
static struct jinja_value int_divmod(struct jinja_run *r, enum jinja_op op, int64_t a, int64_t b)
{
    if (a == INT64_MIN && b == -1) fail_beyond(r, op);
    int64_t q = a / b, rem = a % b;
    if (rem != 0 && (rem < 0) != (b < 0)) {
        q--;
        rem += b;
    }
    return jinja_int(op == JINJA_MOD ? rem : q);
}

/* A float has 53 bits: longer operands would be rounded before they are divided. */
static struct jinja_value int_div(struct jinja_run *r, int64_t a, int64_t b)
{
    const int64_t max = (int64_t)1 << 53;
    if (a > max || a < -max || b > max || b < -max)
        jinja_raise(r, "'/' with an integer beyond 53 bits is not supported in chat templates");
    return jinja_float((double)a / (double)b);
}

static struct jinja_value int_arith(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                                    struct jinja_value b)
{
    int64_t n;
    if (jinja_is(a, JINJA_BIG) || jinja_is(b, JINJA_BIG)) fail_beyond(r, op);
    if (op >= JINJA_DIV && b.u.i == 0)
        jinja_raise(r, op == JINJA_DIV ? "division by zero" : "integer division or modulo by zero");
    if (op == JINJA_DIV) return int_div(r, a.u.i, b.u.i);
    if (op > JINJA_DIV) return int_divmod(r, op, a.u.i, b.u.i);
    bool over = op == JINJA_ADD   ? __builtin_add_overflow(a.u.i, b.u.i, &n)
                : op == JINJA_SUB ? __builtin_sub_overflow(a.u.i, b.u.i, &n)
                                  : __builtin_mul_overflow(a.u.i, b.u.i, &n);
    if (over) fail_beyond(r, op);
    return jinja_int(n);
}

static struct jinja_value float_arith(struct jinja_run *r, enum jinja_op op, double a, double b)
{
    switch (op) {
    case JINJA_ADD: return jinja_float(a + b);
    case JINJA_SUB: return jinja_float(a - b);
    case JINJA_MUL: return jinja_float(a * b);
    case JINJA_DIV:
        if (b == 0) jinja_raise(r, "float division by zero");
        return jinja_float(a / b);
    default: jinja_raise(r, "'%s' of floats is not supported in chat templates", jinja_op_name(op));
    }
}

/* A float on either side makes it float arithmetic; input on either side makes the result input. */
struct jinja_value jinja_arith(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                               struct jinja_value b)
{
    struct jinja_value v;
    assert(jinja_is_number(a) && jinja_is_number(b));
    if (jinja_is(a, JINJA_FLOAT) || jinja_is(b, JINJA_FLOAT))
        v = float_arith(r, op, jinja_to_double(r, a), jinja_to_double(r, b));
    else
        v = int_arith(r, op, a, b);
    return jinja_tainted(v, a.input || b.input);
}

struct jinja_value jinja_negate(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_FLOAT)) return jinja_tainted(jinja_float(-v.u.d), v.input);
    return jinja_arith(r, JINJA_SUB, jinja_int(0), v);
}

/* ---- comparison ---------------------------------------------------------------------------- */

double jinja_to_double(struct jinja_run *r, struct jinja_value v)
{
    assert(jinja_is_number(v));
    if (jinja_is(v, JINJA_FLOAT)) return v.u.d;
    if (!jinja_is(v, JINJA_BIG)) return (double)v.u.i;
    jinja_spend_digits(r, v.u.str->len);
    return strtod(v.u.str->s, NULL);
}

static int compare_doubles(double a, double b)
{
    if (isnan(a) || isnan(b)) return 2;
    return a < b ? -1 : a > b;
}

/* Exact, also where the integer has more bits than a double. */
static int compare_int_double(int64_t i, double d)
{
    if (isnan(d)) return 2;
    if (d >= 9223372036854775808.0) return -1;
    if (d < -9223372036854775808.0) return 1;
    int64_t whole = (int64_t)d;
    if (i != whole) return i < whole ? -1 : 1;
    return compare_doubles(0.0, d - (double)whole);
}

static int sign_of(struct jinja_value v)
{
    if (jinja_is(v, JINJA_BIG)) return *v.u.str->s == '-' ? -1 : 1;
    return v.u.i < 0 ? -1 : v.u.i > 0;
}

/* One of them is over 64 bits, none is a float: sign, then number of digits, then digits. */
static int compare_big(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    int sign = sign_of(a);
    jinja_spend(r, BIG_STEPS);
    if (sign != sign_of(b)) return sign < sign_of(b) ? -1 : 1;
    if (!jinja_is(a, JINJA_BIG)) return -sign;
    if (!jinja_is(b, JINJA_BIG)) return sign;
    const struct jinja_str *x = a.u.str, *y = b.u.str;
    int c = x->len != y->len ? (x->len < y->len ? -1 : 1) : memcmp(x->s, y->s, x->len);
    return sign * (c < 0 ? -1 : c > 0);
}

int jinja_num_compare(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    bool a_float = jinja_is(a, JINJA_FLOAT), b_float = jinja_is(b, JINJA_FLOAT);
    bool big = jinja_is(a, JINJA_BIG) || jinja_is(b, JINJA_BIG);
    assert(jinja_is_number(a) && jinja_is_number(b));
    if (big && !a_float && !b_float) return compare_big(r, a, b);
    if (big || (a_float && b_float))
        return compare_doubles(jinja_to_double(r, a), jinja_to_double(r, b));
    if (b_float) return compare_int_double(a.u.i, b.u.d);
    if (a_float) {
        int c = compare_int_double(b.u.i, a.u.d);
        return c == 2 ? 2 : -c;
    }
    return a.u.i < b.u.i ? -1 : a.u.i > b.u.i;
}

static uint64_t mix(uint64_t h)
{
    h ^= h >> 33;
    h *= 0xFF51AFD7ED558CCDu;
    h ^= h >> 33;
    return h;
}

/* By value, so that a whole float hashes as the integer it equals. */
uint64_t jinja_num_hash(struct jinja_run *r, struct jinja_value v)
{
    if (!jinja_is(v, JINJA_FLOAT) && !jinja_is(v, JINJA_BIG)) return mix((uint64_t)v.u.i);
    double d = jinja_to_double(r, v);
    if (d == floor(d) && fabs(d) < 9.0e18) return mix((uint64_t)(int64_t)d);
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    return mix(bits);
}

/* ---- indices ------------------------------------------------------------------------------- */

int64_t jinja_to_bound(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_BIG)) return sign_of(v) < 0 ? INT64_MIN : INT64_MAX;
    return jinja_to_index(r, v);
}

int64_t jinja_to_index(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_BIG)) jinja_raise(r, "cannot fit 'int' into an index-sized integer");
    if (!jinja_is_integer(v))
        jinja_raise(r, "'%s' object cannot be interpreted as an integer", jinja_type_name(v));
    return v.u.i;
}

/* ---- text ---------------------------------------------------------------------------------- */

int jinja_digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
    return 99;
}

/* Decimal digits over 64 bits as a value: sign and digits, without zeros in front. */
static struct jinja_value big_of(struct jinja_run *r, const char *digits, size_t len, bool negative)
{
    struct jinja_sb sb = {.r = r};
    if (negative) jinja_sb_add_lit(&sb, "-");
    while (*digits == '0' || *digits == '_') {
        digits++;
        len--;
    }
    for (size_t i = 0; i < len; i++)
        if (digits[i] != '_') jinja_sb_add_bytes(&sb, digits + i, 1, JINJA_TRUSTED);
    jinja_sb_add_bytes(&sb, "", 1, JINJA_TRUSTED);
    struct jinja_str *s = jinja_sb_str(&sb);
    s->len--; /* the NUL is for strtod */
    return (struct jinja_value){.type = JINJA_BIG, .u.str = s};
}

bool jinja_int_parse(struct jinja_run *r, const char *digits, size_t len, int base, bool negative,
                     struct jinja_value *ret)
{
    if (len == 0 || digits[0] == '_' || digits[len - 1] == '_' || len > MAX_INT_DIGITS)
        return false;
    int64_t n = 0;
    bool over = false;
    for (size_t i = 0; i < len; i++) {
        if (digits[i] == '_' && digits[i + 1] != '_') continue;
        int d = jinja_digit_value(digits[i]);
        if (d >= base) return false;
        over = over || __builtin_mul_overflow(n, (int64_t)base, &n) ||
               __builtin_add_overflow(n, (int64_t)d, &n);
    }
    if (over && base != 10) return false;
    *ret = over ? big_of(r, digits, len, negative) : jinja_int(negative ? -n : n);
    return true;
}

const char *jinja_int_digits(struct jinja_run *r, struct jinja_value v)
{
    assert(jinja_is_integer(v));
    if (jinja_is(v, JINJA_BIG)) return v.u.str->s;
    char buf[24];
    int n = snprintf(buf, sizeof(buf), "%lld", (long long)v.u.i);
    return jinja_copy(r, buf, n > 0 ? (size_t)n : 0);
}

/* Digits with single underscores between them; returns how many digits. */
static size_t skip_digits(const char **p)
{
    size_t n = 0;
    while (isdigit((unsigned char)**p) ||
           (**p == '_' && n > 0 && isdigit((unsigned char)(*p)[1]))) {
        n += **p != '_';
        (*p)++;
    }
    return n;
}

/* The grammar of float(): [sign] (digits [. [digits]] | . digits) [e [sign] digits] */
static bool is_float_text(const char *p)
{
    if (*p == '+' || *p == '-') p++;
    size_t n = skip_digits(&p);
    if (*p == '.') {
        p++;
        n += skip_digits(&p);
    }
    if (n == 0) return false;
    if (*p == 'e' || *p == 'E') {
        p++;
        if (*p == '+' || *p == '-') p++;
        if (skip_digits(&p) == 0) return false;
    }
    return *p == '\0';
}

bool jinja_float_parse(struct jinja_run *r, const char *text, size_t len, double *ret)
{
    char *plain = jinja_copy(r, text, len), *to = plain;
    if (strlen(plain) != len || !is_float_text(plain)) return false;
    jinja_spend_digits(r, len);
    for (const char *from = plain; *from; from++)
        if (*from != '_') *to++ = *from;
    *to = '\0';
    *ret = strtod(plain, NULL);
    return true;
}

struct jinja_value jinja_int_from_double(struct jinja_run *r, double d)
{
    if (isnan(d)) jinja_raise(r, "cannot convert float NaN to integer");
    if (isinf(d)) jinja_raise(r, "cannot convert float infinity to integer");
    if (fabs(d) >= 9.0e18)
        jinja_raise(r, "a float beyond 64 bits as an integer is not supported in chat templates");
    return jinja_int((int64_t)d);
}

bool jinja_int_from_text(struct jinja_run *r, const struct jinja_str *s, struct jinja_value *ret)
{
    size_t begin = 0, end = s->len;
    double d;
    jinja_spend(r, s->len);
    for (size_t i = 0; i < s->len; i++)
        if ((unsigned char)s->s[i] >= 0x80)
            jinja_raise(r, "int of a text beyond ASCII is not supported in chat templates");
    while (begin < end && (isspace(s->s[begin]) || (s->s[begin] >= 0x1C && s->s[begin] <= 0x1F)))
        begin++;
    while (end > begin &&
           (isspace(s->s[end - 1]) || (s->s[end - 1] >= 0x1C && s->s[end - 1] <= 0x1F)))
        end--;
    bool sign = begin < end && (s->s[begin] == '-' || s->s[begin] == '+');
    if (jinja_int_parse(r, s->s + begin + sign, end - begin - sign, 10, sign && s->s[begin] == '-',
                        ret))
        return true;
    if (!jinja_float_parse(r, s->s + begin, end - begin, &d) || !isfinite(d)) return false;
    *ret = jinja_int_from_double(r, d);
    return true;
}
