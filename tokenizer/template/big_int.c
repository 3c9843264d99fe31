/* SPDX-License-Identifier: MIT */
/*
 * Bounded big integers with schoolbook algorithms; see big_int.h. No known model's template
 * computes with one. They are kept for equality with the reference: a request's 70-bit id prints as
 * it came.
 */
#include "tokenizer/template/big_int.h"

#include <assert.h>
#include <math.h>
#include <string.h>

__extension__ typedef __int128 wide;

/* One limb more than n is allocated, for the carry out of the highest. */
static struct jinja_big *new_big(struct jinja_run *r, size_t n)
{
    if (n > JINJA_BIG_LIMBS)
        jinja_fail(r, JINJA_ELIMIT, "an integer of more than %d bits", JINJA_BIG_LIMBS * 32);
    jinja_spend_bytes(r, n * sizeof(uint32_t));
    struct jinja_big *b = jinja_alloc(r, 1, sizeof(*b) + (n + 1) * sizeof(b->limb[0]));
    b->n = (uint32_t)n;
    return b;
}

/* No leading zero limbs, and no negative zero. */
static void trim(struct jinja_big *a)
{
    while (a->n > 0 && a->limb[a->n - 1] == 0)
        a->n--;
    if (a->n == 0) a->negative = false;
}

struct jinja_value jinja_big_value(struct jinja_big *a)
{
    trim(a);
    wide m = (a->n > 0 ? a->limb[0] : 0) | (a->n > 1 ? (wide)a->limb[1] << 32 : 0);
    if (a->negative) m = -m;
    if (a->n <= 2 && m == (int64_t)m) return jinja_int((int64_t)m);
    return (struct jinja_value){.type = JINJA_BIG, .u.big = a};
}

struct jinja_big *jinja_big_start(struct jinja_run *r, int64_t i, size_t n)
{
    struct jinja_big *b = new_big(r, n);
    uint64_t m = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    b->negative = i < 0;
    b->limb[0] = (uint32_t)m;
    b->limb[1] = (uint32_t)(m >> 32);
    trim(b);
    return b;
}

const struct jinja_big *jinja_big_of(struct jinja_run *r, struct jinja_value v)
{
    return jinja_is(v, JINJA_BIG) ? v.u.big : jinja_big_start(r, v.u.i, 2);
}

/* By length, then from the highest limb down. */
static int compare_magnitude(const struct jinja_big *a, const struct jinja_big *b)
{
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    for (uint32_t i = a->n; i-- > 0;)
        if (a->limb[i] != b->limb[i]) return a->limb[i] < b->limb[i] ? -1 : 1;
    return 0;
}

int jinja_big_compare(const struct jinja_big *a, const struct jinja_big *b)
{
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return compare_magnitude(a, b) * (a->negative ? -1 : 1);
}

/*
 * u[0..n) += q * |v| + add, where v has at most n limbs and may be u itself; |q| < 2^32. Returns
 * the carry out of u: below zero if the sum is negative, which u then holds in two's complement.
 */
static int64_t add_multiple(uint32_t *u, uint32_t n, const struct jinja_big *v, int64_t q,
                            uint32_t add)
{
    wide carry = add;
    for (uint32_t i = 0; i < n; i++) {
        carry += u[i] + (i < v->n ? (wide)q * v->limb[i] : 0);
        u[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return (int64_t)carry;
}

/* |a| + sign * |b|; not negative. */
static struct jinja_big *add_magnitude(struct jinja_run *r, const struct jinja_big *a,
                                       const struct jinja_big *b, int sign)
{
    uint32_t n = (a->n > b->n ? a->n : b->n) + (sign > 0);
    struct jinja_big *sum = new_big(r, n);
    memcpy(sum->limb, a->limb, a->n * sizeof(a->limb[0]));
    int64_t carry = add_multiple(sum->limb, n, b, sign, 0);
    assert(carry == 0);
    return sum;
}

struct jinja_value jinja_big_add(struct jinja_run *r, const struct jinja_big *a,
                                 const struct jinja_big *b, bool subtract)
{
    bool b_negative = b->negative != subtract, swap = compare_magnitude(a, b) < 0;
    int sign = a->negative == b_negative ? 1 : -1;
    struct jinja_big *sum = add_magnitude(r, swap ? b : a, swap ? a : b, sign);
    sum->negative = swap ? b_negative : a->negative;
    return jinja_big_value(sum);
}

struct jinja_value jinja_big_mul(struct jinja_run *r, const struct jinja_big *a,
                                 const struct jinja_big *b)
{
    struct jinja_big *p = new_big(r, (size_t)a->n + b->n);
    jinja_spend(r, 1 + (uint64_t)a->n * b->n / 16);
    for (uint32_t i = 0; i < a->n; i++)
        add_multiple(p->limb + i, b->n + 1, b, a->limb[i], 0);
    p->negative = a->negative != b->negative;
    return jinja_big_value(p);
}

/*
 * One limb of the quotient of u[0..n] by v of n limbs, where u < v * 2^32; u becomes the remainder.
 * The top three limbs by the top two, which have at least 33 bits, give the limb or a little more.
 */
static uint32_t divide_step(uint32_t *u, const struct jinja_big *v)
{
    uint32_t n = v->n;
    wide top = (wide)u[n] << 64 | (uint64_t)u[n - 1] << 32 | (n > 1 ? u[n - 2] : 0);
    wide digit = top / (wide)((uint64_t)v->limb[n - 1] << 32 | (n > 1 ? v->limb[n - 2] : 0));
    if (digit > UINT32_MAX) digit = UINT32_MAX;
    add_multiple(u, n + 1, v, -(int64_t)digit, 0);
    for (; u[n] != 0; digit--) /* negative: too much was taken */
        add_multiple(u, n + 1, v, 1, 0);
    return (uint32_t)digit;
}

/* Magnitudes only, towards zero. b is not 0. */
static struct jinja_big *divide(struct jinja_run *r, const struct jinja_big *a,
                                const struct jinja_big *b, struct jinja_big **ret_rem)
{
    struct jinja_big *q = new_big(r, a->n), *rem = new_big(r, a->n);
    assert(b->n > 0);
    jinja_spend(r, 1 + (uint64_t)a->n * b->n / 16);
    memcpy(rem->limb, a->limb, a->n * sizeof(a->limb[0]));
    for (uint32_t j = a->n; j-- >= b->n;)
        q->limb[j + 1 - b->n] = divide_step(rem->limb + (j + 1 - b->n), b);
    trim(q);
    trim(rem);
    *ret_rem = rem;
    return q;
}

/* Division of magnitudes, then moved towards the floor if signs differ. */
void jinja_big_divmod(struct jinja_run *r, const struct jinja_big *a, const struct jinja_big *b,
                      struct jinja_value *ret_q, struct jinja_value *ret_rem)
{
    struct jinja_big *rem, *q = divide(r, a, b, &rem);
    bool negative = a->negative != b->negative;
    if (negative && rem->n > 0) {
        q = add_magnitude(r, q, jinja_big_start(r, 1, 2), 1);
        rem = add_magnitude(r, b, rem, -1);
    }
    q->negative = negative;
    rem->negative = b->negative;
    *ret_q = jinja_big_value(q);
    *ret_rem = jinja_big_value(rem);
}

/* Rounded once: of three limbs, with all below folded into the lowest bit. */
double jinja_big_double(const struct jinja_big *a, uint32_t down)
{
    wide top = 0;
    uint32_t i = a->n, low = a->n > 3 ? a->n - 3 : 0;
    while (i > low)
        top = top << 32 | a->limb[--i];
    while (i-- > 0)
        top |= a->limb[i] != 0;
    return (a->negative ? -1 : 1) * ldexp((double)top, 32 * ((int)low - (int)down));
}

/* a is moved up so that the quotient has more bits than a double keeps, and the rest is one bit. */
double jinja_big_ratio(struct jinja_run *r, const struct jinja_big *a, const struct jinja_big *b)
{
    uint32_t up = a->n >= b->n + 3 ? 0 : b->n + 3 - a->n;
    struct jinja_big *rem, *moved = new_big(r, (size_t)a->n + up);
    memcpy(moved->limb + up, a->limb, a->n * sizeof(a->limb[0]));
    struct jinja_big *q = divide(r, moved, b, &rem);
    if (rem->n > 0) q->limb[0] |= 1;
    q->negative = a->negative != b->negative;
    return jinja_big_double(q, up);
}

void jinja_big_push(struct jinja_run *r, struct jinja_big *a, uint32_t factor, uint32_t digit)
{
    jinja_spend(r, 1 + a->n / 32);
    int64_t carry = add_multiple(a->limb, a->n, a, (int64_t)factor - 1, digit);
    if (carry == 0) return;
    if (a->n == JINJA_BIG_LIMBS)
        jinja_fail(r, JINJA_ELIMIT, "an integer of more than %d bits", JINJA_BIG_LIMBS * 32);
    a->limb[a->n++] = (uint32_t)carry;
}

struct jinja_value jinja_big_from_double(struct jinja_run *r, double d)
{
    int exp;
    int64_t m = (int64_t)ldexp(frexp(fabs(d), &exp), 53);
    struct jinja_big *b = jinja_big_start(r, m, JINJA_BIG_LIMBS);
    assert(exp >= 53);
    for (exp -= 53; exp > 0; exp -= 31)
        jinja_big_push(r, b, 1u << (exp < 31 ? exp : 31), 0);
    b->negative = d < 0;
    return jinja_big_value(b);
}

/* a /= d, returns the remainder. */
static uint32_t divide_small(struct jinja_big *a, uint32_t d)
{
    uint64_t rem = 0;
    for (uint32_t i = a->n; i-- > 0; rem %= d) {
        rem = rem << 32 | a->limb[i];
        a->limb[i] = (uint32_t)(rem / d);
    }
    trim(a);
    return (uint32_t)rem;
}

/* Digits from the lowest up, as many at once as one division by a limb gives. */
char *jinja_big_digits(struct jinja_run *r, const struct jinja_big *a, int base)
{
    uint32_t power = (uint32_t)base;
    int per_limb = 1;
    for (; (uint64_t)power * (uint32_t)base <= UINT32_MAX; per_limb++)
        power *= (uint32_t)base;
    size_t room = (size_t)a->n * 32 + (size_t)per_limb + 3, at = room;
    char *text = jinja_alloc(r, room + 1, 1);
    struct jinja_big *rest = new_big(r, a->n);
    memcpy(rest->limb, a->limb, a->n * sizeof(a->limb[0]));
    jinja_spend(r, 1 + (uint64_t)a->n * a->n / 8 + room / 16);
    do {
        uint32_t digits = divide_small(rest, power);
        for (int i = 0; i < per_limb && (rest->n > 0 || digits > 0 || at == room); i++) {
            text[--at] = "0123456789abcdef"[digits % (uint32_t)base];
            digits /= (uint32_t)base;
        }
    } while (rest->n > 0);
    if (a->negative) text[--at] = '-';
    return text + at;
}
