/* SPDX-License-Identifier: MIT */
/*
 * Python's arithmetic on bool and int; see value.h. An integer over 64 bits is the text of its
 * digits: it is printed, and all else with it is an error.
 */
#include "tokenizer/template/value.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "tokenizer/template/str.h"

enum { MAX_INT_DIGITS = 4300 /* Python's limit between text and integer */ };

const char *jinja_op_name(enum jinja_op op)
{
    static const char *const names[] = {"+", "-", "*", "%"};
    assert((size_t)op < sizeof(names) / sizeof(names[0]));
    return names[op];
}

/* ---- arithmetic ---------------------------------------------------------------------------- */

_Noreturn static void fail_beyond(struct jinja_run *r, enum jinja_op op)
{
    jinja_raise(r, "'%s' with an integer beyond 64 bits is not supported in chat templates",
                jinja_op_name(op));
}

static struct jinja_value int_arith(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                                    struct jinja_value b)
{
    int64_t n;
    if (jinja_is(a, JINJA_BIG) || jinja_is(b, JINJA_BIG)) fail_beyond(r, op);
    if (op == JINJA_MOD) {
        if (b.u.i == 0) jinja_raise(r, "integer modulo by zero");
        if (b.u.i == -1) return jinja_int(0);
        n = a.u.i % b.u.i; /* the remainder takes the sign of the divisor */
        return jinja_int(n != 0 && (n < 0) != (b.u.i < 0) ? n + b.u.i : n);
    }
    bool over = op == JINJA_ADD   ? __builtin_add_overflow(a.u.i, b.u.i, &n)
                : op == JINJA_SUB ? __builtin_sub_overflow(a.u.i, b.u.i, &n)
                                  : __builtin_mul_overflow(a.u.i, b.u.i, &n);
    if (over) fail_beyond(r, op);
    return jinja_int(n);
}

/* Input on either side makes the result input. */
struct jinja_value jinja_arith(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                               struct jinja_value b)
{
    assert(jinja_is_number(a) && jinja_is_number(b));
    if (jinja_is(a, JINJA_FLOAT) || jinja_is(b, JINJA_FLOAT))
        jinja_raise(r, "'%s' of floats is not supported in chat templates", jinja_op_name(op));
    return jinja_tainted(int_arith(r, op, a, b), a.input || b.input);
}

struct jinja_value jinja_negate(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_FLOAT)) return jinja_tainted(jinja_float(-v.u.d), v.input);
    return jinja_arith(r, JINJA_SUB, jinja_int(0), v);
}

/* ---- comparison ---------------------------------------------------------------------------- */

/* A float has 53 bits: a longer integer would be rounded. */
static double as_double(struct jinja_run *r, struct jinja_value v)
{
    const int64_t max = (int64_t)1 << 53;
    if (jinja_is(v, JINJA_FLOAT)) return v.u.d;
    if (v.u.i > max || v.u.i < -max)
        jinja_raise(r, "comparing an integer over 53 bits with a float is not supported in chat "
                       "templates");
    return (double)v.u.i;
}

static _Noreturn void fail_big(struct jinja_run *r)
{
    jinja_raise(r, "comparing an integer beyond 64 bits is not supported in chat templates");
}

int jinja_num_compare(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    assert(jinja_is_number(a) && jinja_is_number(b));
    if (jinja_is(a, JINJA_BIG) || jinja_is(b, JINJA_BIG)) fail_big(r);
    if (!jinja_is(a, JINJA_FLOAT) && !jinja_is(b, JINJA_FLOAT))
        return a.u.i < b.u.i ? -1 : a.u.i > b.u.i;
    double x = as_double(r, a), y = as_double(r, b);
    if (isnan(x) || isnan(y)) return 2;
    return x < y ? -1 : x > y;
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
    if (jinja_is(v, JINJA_BIG)) fail_big(r);
    if (jinja_is(v, JINJA_FLOAT)) return mix(fabs(v.u.d) < 9.0e18 ? (uint64_t)(int64_t)v.u.d : 0);
    return mix((uint64_t)v.u.i);
}

/* ---- indices ------------------------------------------------------------------------------- */

int64_t jinja_to_index(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_BIG)) jinja_raise(r, "cannot fit 'int' into an index-sized integer");
    if (!jinja_is_integer(v))
        jinja_raise(r, "'%s' object cannot be interpreted as an integer", jinja_type_name(v));
    return v.u.i;
}

/* ---- text ---------------------------------------------------------------------------------- */

/* Digits over 64 bits as a value: sign and digits, without zeros in front. */
static struct jinja_value big_of(struct jinja_run *r, const char *digits, size_t len, bool negative)
{
    struct jinja_sb sb = {.r = r};
    if (negative) jinja_sb_add_lit(&sb, "-");
    while (*digits == '0') {
        digits++;
        len--;
    }
    jinja_sb_add_bytes(&sb, digits, len, JINJA_TRUSTED);
    jinja_sb_add_bytes(&sb, "", 1, JINJA_TRUSTED);
    return (struct jinja_value){.type = JINJA_BIG, .u.str = jinja_sb_str(&sb)};
}

bool jinja_int_parse(struct jinja_run *r, const char *digits, size_t len, bool negative,
                     struct jinja_value *ret)
{
    int64_t n = 0;
    bool over = false;
    if (len == 0 || len > MAX_INT_DIGITS) return false;
    for (size_t i = 0; i < len; i++) {
        if (digits[i] < '0' || digits[i] > '9') return false;
        over = over || __builtin_mul_overflow(n, (int64_t)10, &n) ||
               __builtin_add_overflow(n, (int64_t)(digits[i] - '0'), &n);
    }
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
