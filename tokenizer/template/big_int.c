/* SPDX-License-Identifier: MIT */
/*
 * Bounded big integers, schoolbook algorithms throughout: numbers of a few thousand bits at most
 * meet here, and hardly ever. See big_int.h.
 */
#include "tokenizer/template/big_int.h"

#include <math.h>
#include <string.h>

/* One limb more than n is allocated, so that shifts by limbs never read outside. */
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

struct jinja_value jinja_big_value(struct jinja_run *r, struct jinja_big *a)
{
    (void)r;
    trim(a);
    if (a->n <= 2) {
        uint64_t m = (a->n > 0 ? a->limb[0] : 0) | (a->n > 1 ? (uint64_t)a->limb[1] << 32 : 0);
        if (!a->negative && m <= INT64_MAX) return jinja_int((int64_t)m);
        if (a->negative && m <= (uint64_t)INT64_MAX + 1) return jinja_int((int64_t)(0 - m));
    }
    return (struct jinja_value){.type = JINJA_BIG, .u.big = a};
}

const struct jinja_big *jinja_big_of(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_BIG)) return v.u.big;
    struct jinja_big *b = new_big(r, 2);
    uint64_t m = v.u.i < 0 ? 0 - (uint64_t)v.u.i : (uint64_t)v.u.i;
    b->negative = v.u.i < 0;
    b->limb[0] = (uint32_t)m;
    b->limb[1] = (uint32_t)(m >> 32);
    trim(b);
    return b;
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
    int c = compare_magnitude(a, b);
    return a->negative ? -c : c;
}

static struct jinja_big *add_magnitude(struct jinja_run *r, const struct jinja_big *a,
                                       const struct jinja_big *b)
{
    uint32_t n = a->n > b->n ? a->n : b->n;
    struct jinja_big *sum = new_big(r, n + 1);
    uint64_t carry = 0;
    for (uint32_t i = 0; i < n; i++) {
        carry += (i < a->n ? a->limb[i] : 0) + (uint64_t)(i < b->n ? b->limb[i] : 0);
        sum->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    sum->limb[n] = (uint32_t)carry;
    return sum;
}

/* |a| >= |b| */
static struct jinja_big *sub_magnitude(struct jinja_run *r, const struct jinja_big *a,
                                       const struct jinja_big *b)
{
    struct jinja_big *diff = new_big(r, a->n);
    int64_t borrow = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        borrow += (int64_t)a->limb[i] - (i < b->n ? b->limb[i] : 0);
        diff->limb[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    return diff;
}

/* Equal signs add, unlike ones subtract the smaller from the larger. */
struct jinja_value jinja_big_add(struct jinja_run *r, const struct jinja_big *a,
                                 const struct jinja_big *b, bool subtract)
{
    struct jinja_big *sum;
    bool b_negative = b->negative != subtract;
    if (a->negative == b_negative) {
        sum = add_magnitude(r, a, b);
        sum->negative = a->negative;
    } else if (compare_magnitude(a, b) >= 0) {
        sum = sub_magnitude(r, a, b);
        sum->negative = a->negative;
    } else {
        sum = sub_magnitude(r, b, a);
        sum->negative = b_negative;
    }
    return jinja_big_value(r, sum);
}

struct jinja_value jinja_big_mul(struct jinja_run *r, const struct jinja_big *a,
                                 const struct jinja_big *b)
{
    struct jinja_big *p = new_big(r, (size_t)a->n + b->n);
    jinja_spend(r, 1 + (uint64_t)a->n * b->n / 16);
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t carry = 0;
        for (uint32_t j = 0; j < b->n; j++) {
            carry += (uint64_t)a->limb[i] * b->limb[j] + p->limb[i + j];
            p->limb[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        p->limb[i + b->n] = (uint32_t)carry;
    }
    p->negative = a->negative != b->negative;
    return jinja_big_value(r, p);
}

/* q = a / d, returns the remainder. q has room for a->n limbs and may be a itself. */
static uint32_t divide_small(const struct jinja_big *a, uint32_t d, struct jinja_big *q)
{
    uint64_t rem = 0;
    for (uint32_t i = a->n; i-- > 0;) {
        rem = rem << 32 | a->limb[i];
        q->limb[i] = (uint32_t)(rem / d);
        rem %= d;
    }
    return (uint32_t)rem;
}

/* Shifts left by bits < 32 into `out`, which has n + 1 limbs. */
static void shift_left(const struct jinja_big *a, int bits, uint32_t *out)
{
    uint64_t carry = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        carry |= (uint64_t)a->limb[i] << bits;
        out[i] = (uint32_t)carry;
        carry >>= 32;
    }
    out[a->n] = (uint32_t)carry;
}

/* u[0..n] -= q * v[0..n); returns the borrow out of the top. */
static bool subtract_multiple(uint32_t *u, const uint32_t *v, uint32_t n, uint64_t q)
{
    uint64_t carry = 0;
    int64_t borrow = 0;
    for (uint32_t i = 0; i < n; i++) {
        carry += q * v[i];
        borrow += (int64_t)u[i] - (int64_t)(uint32_t)carry;
        u[i] = (uint32_t)borrow;
        borrow >>= 32;
        carry >>= 32;
    }
    borrow += (int64_t)u[n] - (int64_t)carry;
    u[n] = (uint32_t)borrow;
    return borrow < 0;
}

/* Undoes one subtraction too many in long division. */
static void add_back(uint32_t *u, const uint32_t *v, uint32_t n)
{
    uint64_t carry = 0;
    for (uint32_t i = 0; i < n; i++) {
        carry += (uint64_t)u[i] + v[i];
        u[i] = (uint32_t)carry;
        carry >>= 32;
    }
    u[n] += (uint32_t)carry;
}

/* Long division (Knuth's algorithm D) of magnitudes; b has 2 limbs or more, a at least as many. */
static void divide_long(struct jinja_run *r, const struct jinja_big *a, const struct jinja_big *b,
                        struct jinja_big *q, struct jinja_big *rem)
{
    int bits = __builtin_clz(b->limb[b->n - 1]);
    uint32_t *u = JINJA_NEW_N(r, (size_t)a->n + 1, uint32_t);
    uint32_t *v = JINJA_NEW_N(r, (size_t)b->n + 1, uint32_t);
    shift_left(a, bits, u);
    shift_left(b, bits, v);
    uint32_t n = b->n;
    for (uint32_t j = a->n - n + 1; j-- > 0;) {
        uint64_t top = (uint64_t)u[j + n] << 32 | u[j + n - 1];
        uint64_t digit = top / v[n - 1], rest = top % v[n - 1];
        while (digit > UINT32_MAX || digit * v[n - 2] > (rest << 32 | u[j + n - 2])) {
            digit--;
            rest += v[n - 1];
            if (rest > UINT32_MAX) break;
        }
        if (subtract_multiple(u + j, v, n, digit)) {
            digit--;
            add_back(u + j, v, n);
        }
        q->limb[j] = (uint32_t)digit;
    }
    for (uint32_t i = 0; i < n; i++)
        rem->limb[i] = (uint32_t)(((uint64_t)u[i + 1] << 32 | u[i]) >> bits);
}

/* Magnitudes only, towards zero. */
static void divide(struct jinja_run *r, const struct jinja_big *a, const struct jinja_big *b,
                   struct jinja_big **ret_q, struct jinja_big **ret_rem)
{
    struct jinja_big *q = new_big(r, a->n), *rem = new_big(r, b->n > a->n ? b->n : a->n);
    jinja_spend(r, 1 + (uint64_t)a->n * b->n / 16);
    if (compare_magnitude(a, b) < 0)
        memcpy(rem->limb, a->limb, a->n * sizeof(a->limb[0]));
    else if (b->n == 1)
        rem->limb[0] = divide_small(a, b->limb[0], q);
    else
        divide_long(r, a, b, q, rem);
    trim(q);
    trim(rem);
    *ret_q = q;
    *ret_rem = rem;
}

/* Division of magnitudes, then moved towards the floor where signs differ. */
void jinja_big_divmod(struct jinja_run *r, const struct jinja_big *a, const struct jinja_big *b,
                      struct jinja_value *ret_q, struct jinja_value *ret_rem)
{
    struct jinja_big *q, *rem;
    divide(r, a, b, &q, &rem);
    bool negative = a->negative != b->negative;
    if (negative && rem->n > 0) { /* floor, not truncation */
        q = add_magnitude(r, q, jinja_big_of(r, jinja_int(1)));
        rem = sub_magnitude(r, b, rem);
    }
    q->negative = negative;
    rem->negative = b->negative;
    *ret_q = jinja_big_value(r, q);
    *ret_rem = jinja_big_value(r, rem);
}

/* The top 64 bits, the exponent they are scaled by, and whether anything was cut off below them. */
static uint64_t top_bits(const struct jinja_big *a, int *ret_exp, bool *ret_more)
{
    uint64_t m = 0;
    uint32_t taken = 0;
    *ret_more = false;
    for (uint32_t i = a->n; i-- > 0 && taken < 2; taken++)
        m = m << 32 | a->limb[i];
    *ret_exp = ((int)a->n - (int)taken) * 32;
    if (m == 0 || a->n <= 2) return m;
    int shift = __builtin_clzll(m);
    uint32_t next = a->limb[a->n - 3];
    if (shift) m = m << shift | next >> (32 - shift);
    *ret_exp -= shift;
    *ret_more = shift < 32 ? (uint32_t)(next << shift) != 0 : false;
    for (uint32_t i = 0; i + 3 < a->n; i++)
        *ret_more |= a->limb[i] != 0;
    return m;
}

/* Rounds a 64-bit magnitude with a sticky tail to the nearest double, ties to even. */
static double round_bits(uint64_t m, int exp, bool more)
{
    if (m >> 63) { /* keep 55 bits and fold the rest into the last: the conversion rounds right */
        bool tail = (m & 0x1FF) != 0 || more;
        m = m >> 9 | tail;
        exp += 9;
    }
    return ldexp((double)m, exp);
}

double jinja_big_double(const struct jinja_big *a)
{
    int exp;
    bool more;
    uint64_t m = top_bits(a, &exp, &more);
    double d = round_bits(m, exp, more);
    return a->negative ? -d : d;
}

double jinja_big_ratio(struct jinja_run *r, const struct jinja_big *a, const struct jinja_big *b)
{
    /* scale a so that the quotient has at least 64 bits, then round once */
    uint32_t up = a->n >= b->n + 3 ? 0 : b->n + 3 - a->n;
    struct jinja_big *scaled = new_big(r, (size_t)a->n + up);
    memcpy(scaled->limb + up, a->limb, a->n * sizeof(a->limb[0]));
    trim(scaled);
    struct jinja_big *q, *rem;
    divide(r, scaled, b, &q, &rem);
    int exp;
    bool more;
    uint64_t m = top_bits(q, &exp, &more);
    double d = round_bits(m, exp - (int)up * 32, more || rem->n > 0);
    return a->negative != b->negative ? -d : d;
}

struct jinja_value jinja_big_from_double(struct jinja_run *r, double d)
{
    int exp;
    double f = frexp(fabs(trunc(d)), &exp);
    struct jinja_big *b = new_big(r, (size_t)(exp > 0 ? exp : 0) / 32 + 4);
    uint64_t m = (uint64_t)ldexp(f, 53);
    int shift = exp - 53;
    if (shift < 0) {
        m >>= -shift > 63 ? 63 : -shift;
        shift = 0;
    }
    uint32_t at = (uint32_t)shift / 32;
    int bits = shift % 32;
    b->limb[at] = (uint32_t)(m << bits);
    b->limb[at + 1] = (uint32_t)(m >> (32 - bits));
    b->limb[at + 2] = bits ? (uint32_t)(m >> (64 - bits)) : 0;
    b->negative = d < 0;
    return jinja_big_value(r, b);
}

struct jinja_big *jinja_big_zero(struct jinja_run *r)
{
    struct jinja_big *b = new_big(r, JINJA_BIG_LIMBS);
    b->n = 0;
    return b;
}

void jinja_big_push(struct jinja_run *r, struct jinja_big *a, uint32_t factor, uint32_t digit)
{
    uint64_t carry = digit;
    jinja_spend(r, 1 + a->n / 32);
    for (uint32_t i = 0; i < a->n; i++) {
        carry += (uint64_t)a->limb[i] * factor;
        a->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry == 0) return;
    if (a->n >= JINJA_BIG_LIMBS)
        jinja_fail(r, JINJA_ELIMIT, "an integer of more than %d bits", JINJA_BIG_LIMBS * 32);
    a->limb[a->n++] = (uint32_t)carry;
}

/* The largest power of the base that fits a limb, and its exponent. */
static uint32_t largest_power(int base, int *ret_exp)
{
    uint64_t power = (uint64_t)base;
    for (*ret_exp = 1; power * (uint64_t)base <= UINT32_MAX; (*ret_exp)++)
        power *= (uint64_t)base;
    return (uint32_t)power;
}

/* Digits fall out from the lowest, as many at once as one division by a limb gives. */
char *jinja_big_digits(struct jinja_run *r, const struct jinja_big *a, int base)
{
    int per_limb;
    uint32_t power = largest_power(base, &per_limb);
    size_t room = (size_t)a->n * 32 + (size_t)per_limb + 3, at = room;
    char *text = jinja_alloc(r, room + 1, 1);
    struct jinja_big *rest = new_big(r, a->n);
    memcpy(rest->limb, a->limb, a->n * sizeof(a->limb[0]));
    jinja_spend(r, 1 + (uint64_t)a->n * a->n / 8 + room / 16);
    do {
        uint32_t digits = divide_small(rest, power, rest);
        trim(rest);
        for (int i = 0; i < per_limb && (rest->n > 0 || digits > 0 || at == room); i++) {
            text[--at] = "0123456789abcdef"[digits % (uint32_t)base];
            digits /= (uint32_t)base;
        }
    } while (rest->n > 0);
    if (a->negative) text[--at] = '-';
    return text + at;
}
