/* SPDX-License-Identifier: MIT */
/*
 * Python's arithmetic on bool, int and float; see number.h. Integers of 64 bits take the fast
 * way, and whatever overflows goes on as a bounded big integer.
 */
#include "tokenizer/template/number.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/template/big_int.h"
#include "tokenizer/template/char_class.h"
#include "tokenizer/template/str.h"

enum {
    MAX_INT_DIGITS = 4300, /* what Python converts between text and integer */
    MAX_EXACT_BITS = 53,
    BIG_STEPS = 8,   /* of looking at all limbs of an integer beyond 64 bits */
    FMOD_STEPS = 24, /* fmod works bit by bit where the exponents are far apart */
};

const char *jinja_op_name(enum jinja_op op)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    return names[op];
}

/* ---- integers ------------------------------------------------------------------------------ */

/* Results that do not fit 64 bits, or might not. */
static struct jinja_value slow_int_arith(struct jinja_run *r, enum jinja_op op,
                                         struct jinja_value a, struct jinja_value b)
{
    const struct jinja_big *x = jinja_big_of(r, a), *y = jinja_big_of(r, b);
    struct jinja_value q, rem;
    switch (op) {
    case JINJA_ADD:
    case JINJA_SUB: return jinja_big_add(r, x, y, op == JINJA_SUB);
    case JINJA_MUL: return jinja_big_mul(r, x, y);
    default: jinja_big_divmod(r, x, y, &q, &rem); return op == JINJA_MOD ? rem : q;
    }
}

/* Floor division of 64-bit integers; INT64_MIN / -1 is left to the slow way. */
static struct jinja_value small_divmod(enum jinja_op op, int64_t a, int64_t b)
{
    int64_t q = a / b, rem = a % b;
    if (rem != 0 && (rem < 0) != (b < 0)) {
        q--;
        rem += b;
    }
    return jinja_int(op == JINJA_MOD ? rem : q);
}

/* A float, correctly rounded also where the operands have more bits than a float. */
static struct jinja_value int_div(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    const int64_t exact = (int64_t)1 << MAX_EXACT_BITS;
    if (!jinja_is(a, JINJA_BIG) && !jinja_is(b, JINJA_BIG) && llabs(a.u.i / 2) < exact / 2 &&
        llabs(b.u.i / 2) < exact / 2)
        return jinja_float((double)a.u.i / (double)b.u.i);
    double d = jinja_big_ratio(r, jinja_big_of(r, a), jinja_big_of(r, b));
    if (isinf(d)) jinja_raise(r, "integer division result too large for a float");
    return jinja_float(d);
}

static struct jinja_value float_pow(struct jinja_run *r, double a, double b);

/* By squaring; a negative exponent makes it a float. */
static struct jinja_value int_pow(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    if (jinja_int_sign(b) < 0) return float_pow(r, jinja_to_double(r, a), jinja_to_double(r, b));
    if (jinja_is(b, JINJA_BIG)) {
        if (jinja_is(a, JINJA_BIG) || a.u.i < -1 || a.u.i > 1)
            jinja_fail(r, JINJA_ELIMIT, "an integer of more than %d bits", JINJA_BIG_LIMBS * 32);
        bool odd = b.u.big->limb[0] & 1;
        return jinja_int(a.u.i < 0 && !odd ? 1 : a.u.i);
    }
    struct jinja_value result = jinja_int(1);
    for (uint64_t n = (uint64_t)b.u.i; n > 0; n >>= 1) {
        if (n & 1) result = jinja_arith(r, JINJA_MUL, result, a);
        if (n > 1) a = jinja_arith(r, JINJA_MUL, a, a);
    }
    return result;
}

static struct jinja_value int_arith(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                                    struct jinja_value b)
{
    int64_t n;
    if (op >= JINJA_DIV && op <= JINJA_MOD && jinja_int_sign(b) == 0)
        jinja_raise(r, op == JINJA_DIV ? "division by zero" : "integer division or modulo by zero");
    if (op == JINJA_DIV) return int_div(r, a, b);
    if (op == JINJA_POW) return int_pow(r, a, b);
    if (jinja_is(a, JINJA_BIG) || jinja_is(b, JINJA_BIG)) return slow_int_arith(r, op, a, b);
    if (op == JINJA_ADD && !__builtin_add_overflow(a.u.i, b.u.i, &n)) return jinja_int(n);
    if (op == JINJA_SUB && !__builtin_sub_overflow(a.u.i, b.u.i, &n)) return jinja_int(n);
    if (op == JINJA_MUL && !__builtin_mul_overflow(a.u.i, b.u.i, &n)) return jinja_int(n);
    if (op >= JINJA_FLOORDIV && !(a.u.i == INT64_MIN && b.u.i == -1))
        return small_divmod(op, a.u.i, b.u.i);
    return slow_int_arith(r, op, a, b);
}

/* ---- floats -------------------------------------------------------------------------------- */

static struct jinja_value float_pow(struct jinja_run *r, double a, double b)
{
    if (a == 0 && b < 0) jinja_raise(r, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
        jinja_raise(r, "a negative number to a fractional power is complex");
    double d = pow(a, b);
    if (isinf(d) && isfinite(a) && isfinite(b))
        jinja_raise(r, "the power is too large for a float");
    return jinja_float(d);
}

/* The remainder takes the sign of the divisor. */
static double float_mod(double a, double b)
{
    double mod = fmod(a, b);
    if (mod == 0) return copysign(0.0, b);
    return (b < 0) != (mod < 0) ? mod + b : mod;
}

/* Computed from the remainder, so that the two belong together. */
static double float_floordiv(double a, double b)
{
    double mod = fmod(a, b);
    double div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1.0;
    if (div == 0) return copysign(0.0, a / b);
    double whole = floor(div);
    return div - whole > 0.5 ? whole + 1.0 : whole;
}

static struct jinja_value float_arith(struct jinja_run *r, enum jinja_op op, double a, double b)
{
    if (op >= JINJA_DIV && op <= JINJA_MOD && b == 0) jinja_raise(r, "float division by zero");
    if (op == JINJA_FLOORDIV || op == JINJA_MOD) jinja_spend(r, FMOD_STEPS);
    switch (op) {
    case JINJA_ADD: return jinja_float(a + b);
    case JINJA_SUB: return jinja_float(a - b);
    case JINJA_MUL: return jinja_float(a * b);
    case JINJA_DIV: return jinja_float(a / b);
    case JINJA_FLOORDIV: return jinja_float(float_floordiv(a, b));
    case JINJA_MOD: return jinja_float(float_mod(a, b));
    default: return float_pow(r, a, b);
    }
}

/* ---- both ---------------------------------------------------------------------------------- */

/* A float on either side makes it float arithmetic; input on either side makes the result input. */
struct jinja_value jinja_arith(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                               struct jinja_value b)
{
    struct jinja_value v;
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

int jinja_int_sign(struct jinja_value v)
{
    if (jinja_is(v, JINJA_BIG)) return v.u.big->negative ? -1 : 1;
    return v.u.i < 0 ? -1 : v.u.i > 0;
}

double jinja_to_double(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_FLOAT)) return v.u.d;
    if (!jinja_is(v, JINJA_BIG)) return (double)v.u.i;
    double d = jinja_big_double(v.u.big, 0);
    if (isinf(d)) jinja_raise(r, "int too large to convert to float");
    return d;
}

struct jinja_value jinja_int_from_double(struct jinja_run *r, double d)
{
    if (isnan(d)) jinja_raise(r, "cannot convert float NaN to integer");
    if (isinf(d)) jinja_raise(r, "cannot convert float infinity to integer");
    if (fabs(d) < 9.0e18) return jinja_int((int64_t)d);
    return jinja_big_from_double(r, d);
}

static int compare_doubles(double a, double b)
{
    if (isnan(a) || isnan(b)) return 2;
    return a < b ? -1 : a > b;
}

/* Exact, also where the integer has more bits than a double. */
static int compare_int_double(struct jinja_value a, double d)
{
    if (isnan(d)) return 2;
    if (isinf(d)) return d > 0 ? -1 : 1;
    if (jinja_is(a, JINJA_BIG)) return compare_doubles(jinja_big_double(a.u.big, 0), d);
    if (d >= 9223372036854775808.0) return -1;
    if (d < -9223372036854775808.0) return 1;
    int64_t whole = (int64_t)d;
    if (a.u.i != whole) return a.u.i < whole ? -1 : 1;
    return compare_doubles(0.0, d - (double)whole);
}

/* Those beyond 64 bits have up to a thousand limbs. */
int jinja_num_compare(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    bool a_float = jinja_is(a, JINJA_FLOAT), b_float = jinja_is(b, JINJA_FLOAT);
    bool a_big = jinja_is(a, JINJA_BIG), b_big = jinja_is(b, JINJA_BIG);
    if (a_big || b_big) jinja_spend(r, BIG_STEPS);
    if (a_float && b_float) return compare_doubles(a.u.d, b.u.d);
    if (b_float) return compare_int_double(a, b.u.d);
    if (a_float) {
        int c = compare_int_double(b, a.u.d);
        return c == 2 ? 2 : -c;
    }
    if (a_big && b_big) return jinja_big_compare(a.u.big, b.u.big);
    if (a_big) return a.u.big->negative ? -1 : 1;
    if (b_big) return b.u.big->negative ? 1 : -1;
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
    if (jinja_is(v, JINJA_BIG)) jinja_spend(r, BIG_STEPS);
    double d = jinja_is(v, JINJA_BIG) ? jinja_big_double(v.u.big, 0) : v.u.d;
    if (d == floor(d) && fabs(d) < 9.0e18) return mix((uint64_t)(int64_t)d);
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    return mix(bits);
}

/* ---- indices ------------------------------------------------------------------------------- */

int64_t jinja_to_bound(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_BIG)) return jinja_int_sign(v) < 0 ? INT64_MIN : INT64_MAX;
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

/* 64 bits as long as they hold, then a big integer takes over. */
bool jinja_int_parse(struct jinja_run *r, const char *digits, size_t len, int base, bool negative,
                     struct jinja_value *ret)
{
    bool power_of_two = (base & (base - 1)) == 0;
    if (len == 0 || digits[0] == '_' || digits[len - 1] == '_') return false;
    if (!power_of_two && len > MAX_INT_DIGITS) return false;
    struct jinja_big *big = NULL;
    int64_t small = 0;
    for (size_t i = 0; i < len; i++) {
        if (digits[i] == '_' && digits[i + 1] != '_') continue;
        int d = jinja_digit_value(digits[i]);
        if (d >= base) return false;
        int64_t next;
        if (!big && !__builtin_mul_overflow(small, (int64_t)base, &next) &&
            !__builtin_add_overflow(next, (int64_t)d, &next)) {
            small = next;
            continue;
        }
        if (!big) big = jinja_big_start(r, small, JINJA_BIG_LIMBS);
        jinja_big_push(r, big, (uint32_t)base, (uint32_t)d);
    }
    if (!big) {
        *ret = jinja_int(negative ? -small : small);
        return true;
    }
    big->negative = negative;
    *ret = jinja_big_value(big);
    return true;
}

char *jinja_int_digits(struct jinja_run *r, struct jinja_value v, int base)
{
    if (jinja_is(v, JINJA_BIG) || base != 10) {
        char *digits = jinja_big_digits(r, jinja_big_of(r, v), base);
        if (base == 10 && strlen(digits) > MAX_INT_DIGITS + 1)
            jinja_raise(r, "an integer of more than %d digits as text", MAX_INT_DIGITS);
        return digits;
    }
    char buf[24];
    int n = snprintf(buf, sizeof(buf), "%lld", (long long)v.u.i);
    return jinja_copy(r, buf, n > 0 ? (size_t)n : 0);
}

/* Text without white space around it, decimal digits of any script made ASCII; NULL if anything
 * else is not ASCII. */
static char *plain_number(struct jinja_run *r, const struct jinja_str *s, size_t *ret_len)
{
    char *plain = jinja_alloc(r, s->len + 1, 1);
    size_t n = 0;
    jinja_spend(r, s->len);
    for (size_t at = 0; at < s->len;) {
        int32_t cp = jinja_str_next(s, &at);
        int digit = jinja_cp_decimal_value(cp);
        bool space = jinja_cp_space(cp);
        if (cp >= 0x80 && digit < 0 && !space) return NULL;
        if (space && n == 0) continue;
        plain[n++] = space ? ' ' : digit >= 0 ? (char)('0' + digit) : (char)cp;
    }
    while (n > 0 && plain[n - 1] == ' ')
        n--;
    plain[n] = '\0';
    *ret_len = n;
    return plain;
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

/* The grammar of float(): [sign] (digits [. [digits]] | . digits) [e [sign] digits] | inf | nan */
static bool is_float_text(const char *p)
{
    if (*p == '+' || *p == '-') p++;
    if (strcasecmp(p, "inf") == 0 || strcasecmp(p, "infinity") == 0 || strcasecmp(p, "nan") == 0)
        return true;
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
    struct jinja_str s = {.s = text, .len = len, .origin = JINJA_TRUSTED};
    size_t n;
    char *plain = plain_number(r, &s, &n);
    if (!plain || strlen(plain) != n || !is_float_text(plain)) return false;
    char *to = plain;
    for (const char *from = plain; *from; from++)
        if (*from != '_') *to++ = *from;
    *to = '\0';
    *ret = strtod(plain, NULL);
    return true;
}

/* The base of a prefix such as 0x, or 0. */
static int prefix_base(const char *p)
{
    if (p[0] != '0') return 0;
    switch (p[1]) {
    case 'x':
    case 'X': return 16;
    case 'o':
    case 'O': return 8;
    case 'b':
    case 'B': return 2;
    default: return 0;
    }
}

bool jinja_int_from_text(struct jinja_run *r, const struct jinja_value *text, int base,
                         struct jinja_value *ret)
{
    size_t n;
    const char *p = plain_number(r, text->u.str, &n);
    if (!p || strlen(p) != n) return false;
    bool negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    int prefix = prefix_base(p);
    if (prefix && (base == 0 || base == prefix)) {
        p += p[2] == '_' ? 3 : 2;
        base = prefix;
    } else if (base == 0) {
        base = 10;
        if (p[0] == '0' && strspn(p, "0_") != strlen(p)) return false;
    }
    return jinja_int_parse(r, p, strlen(p), base, negative, ret);
}

/* ---- rounding ------------------------------------------------------------------------------ */

/* Half goes to the even multiple, as for floats. */
static struct jinja_value round_int(struct jinja_run *r, struct jinja_value v, int64_t digits)
{
    if (digits >= 0) return v;
    if (digits < -MAX_INT_DIGITS) return jinja_int(0);
    struct jinja_value unit = int_pow(r, jinja_int(10), jinja_int(-digits));
    struct jinja_value rem = jinja_arith(r, JINJA_MOD, v, unit);
    struct jinja_value low = jinja_arith(r, JINJA_SUB, v, rem);
    int c = jinja_num_compare(r, jinja_arith(r, JINJA_MUL, rem, jinja_int(2)), unit);
    struct jinja_value q = jinja_arith(r, JINJA_FLOORDIV, low, unit);
    bool odd = jinja_int_sign(jinja_arith(r, JINJA_MOD, q, jinja_int(2))) != 0;
    return c > 0 || (c == 0 && odd) ? jinja_arith(r, JINJA_ADD, low, unit) : low;
}

/* The exact decimal value rounded half to even, which is what printf does. */
static double round_double(struct jinja_run *r, double d, int64_t digits)
{
    char buf[DBL_MAX_10_EXP + 400];
    if (!isfinite(d) || digits > 322) return d;
    if (digits >= 0) {
        int n = snprintf(buf, sizeof(buf), "%.*f", (int)digits, d);
        jinja_spend_digits(r, (size_t)n);
        return strtod(buf, NULL);
    }
    jinja_spend_digits(r, DBL_MAX_10_EXP);
    if (digits < -DBL_MAX_10_EXP || d == 0) return copysign(0.0, d);
    int exp10 = (int)floor(log10(fabs(d)));
    snprintf(buf, sizeof(buf), "%.17e", d);
    const char *e = strchr(buf, 'e');
    if (e) exp10 = (int)strtol(e + 1, NULL, 10);
    int64_t keep = exp10 + 1 + digits;
    if (keep < 0) return copysign(0.0, d);
    if (keep == 0) {
        double unit = pow(10, (double)-digits);
        return copysign(fabs(d) > unit / 2 ? unit : 0.0, d);
    }
    snprintf(buf, sizeof(buf), "%.*e", (int)keep - 1, d);
    return strtod(buf, NULL);
}

struct jinja_value jinja_round(struct jinja_run *r, struct jinja_value v, int64_t digits)
{
    struct jinja_value rounded = jinja_is(v, JINJA_FLOAT)
                                     ? jinja_float(round_double(r, v.u.d, digits))
                                     : round_int(r, v, digits);
    if (jinja_is(rounded, JINJA_BOOL)) rounded.type = JINJA_INT;
    return jinja_tainted(rounded, v.input);
}
