/* SPDX-License-Identifier: MIT */
/* Exact decimal numbers; see decimal.h. */
#include "tokenizer/grammar/schema/decimal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/json_doc.h"

/* Exponents are kept within these; outside them every number is zero or infinite anyway. */
#define MAX_EXP 1000000000

/* Takes zeros off both ends; zero has neither sign nor exponent. */
static void normalise(struct gram_decimal *x)
{
    while (x->n && x->digits[0] == '0') {
        x->digits++;
        x->n--;
    }
    while (x->n && x->digits[x->n - 1] == '0') {
        x->n--;
        x->exp++;
    }
    if (x->n == 0) *x = (struct gram_decimal){.digits = x->digits};
}

struct gram_decimal gram_decimal_read(struct gram_build *b, const char *text, size_t len)
{
    struct gram_decimal x = {.negative = len && text[0] == '-'};
    char *digits = gram_temp(b, len + 1);
    bool behind_point = false;
    gram_steps(b, len / 16);
    for (size_t i = x.negative; i < len; i++) {
        if (text[i] == 'e' || text[i] == 'E') {
            long long e = strtoll(text + i + 1, NULL, 10);
            x.exp += e > MAX_EXP ? MAX_EXP : e < -MAX_EXP ? -MAX_EXP : e;
            break;
        }
        if (text[i] == '.') {
            behind_point = true;
            continue;
        }
        digits[x.n++] = text[i];
        x.exp -= behind_point;
    }
    assert(x.n <= len);
    x.digits = digits;
    normalise(&x);
    return x;
}

/* Fits an integer of 64 bits, signed or not. */
static bool is_64_bit(const struct gram_decimal *x)
{
    uint64_t v;
    return gram_decimal_scaled(x, 0, &v) && (!x->negative || v <= (uint64_t)1 << 63);
}

struct gram_decimal gram_decimal_bound(struct gram_build *b, const char *text, size_t len,
                                       bool *ret_infinite)
{
    struct gram_decimal exact = gram_decimal_read(b, text, len);
    char shortest[40];
    *ret_infinite = false;
    if (is_64_bit(&exact)) return exact;
    gram_steps(b, 20 + len / 16); /* up to 17 tries */
    double v = strtod(text, NULL);
    if (isinf(v)) {
        *ret_infinite = true;
        return exact;
    }
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(shortest, sizeof(shortest), "%.*e", precision - 1, v);
        if (strtod(shortest, NULL) == v) break;
    }
    return gram_decimal_read(b, shortest, strlen(shortest));
}

/* The power of ten of the first digit. */
static int64_t top(const struct gram_decimal *x)
{
    return x->exp + (int64_t)x->n - 1;
}

char gram_decimal_digit(const struct gram_decimal *x, int64_t power)
{
    int64_t i = top(x) - power;
    return x->n && i >= 0 && i < (int64_t)x->n ? x->digits[i] : '0';
}

static int compare_magnitudes(const struct gram_decimal *x, const struct gram_decimal *y)
{
    if (!x->n || !y->n) return (x->n > 0) - (y->n > 0);
    if (top(x) != top(y)) return top(x) < top(y) ? -1 : 1;
    uint32_t n = x->n < y->n ? x->n : y->n;
    int order = memcmp(x->digits, y->digits, n);
    if (order) return order < 0 ? -1 : 1;
    return (x->n > y->n) - (x->n < y->n);
}

int gram_decimal_compare(const struct gram_decimal *x, const struct gram_decimal *y)
{
    if (x->negative != y->negative) return x->negative ? -1 : 1;
    int order = compare_magnitudes(x, y);
    return x->negative ? -order : order;
}

bool gram_decimal_is_integer(const struct gram_decimal *x)
{
    return x->exp >= 0;
}

/* v * 10^n mod m */
static uint64_t shift(uint64_t v, int64_t n, uint64_t m)
{
    __uint128_t power = 10 % m, result = v % m;
    for (; n > 0; n >>= 1) {
        if (n & 1) result = result * power % m;
        power = power * power % m;
    }
    return (uint64_t)result;
}

bool gram_decimal_is_multiple(const struct gram_decimal *x, uint64_t m, int places)
{
    uint64_t rest = 0;
    if (x->n && x->exp < -places) return false;
    for (uint32_t i = 0; i < x->n; i++)
        rest = (uint64_t)(((__uint128_t)rest * 10 + (uint64_t)(x->digits[i] - '0')) % m);
    return !x->n || shift(rest, x->exp + places, m) == 0;
}

uint32_t gram_decimal_integer_digits(const struct gram_decimal *x)
{
    return x->n && top(x) >= 0 ? (uint32_t)top(x) + 1 : 1;
}

uint32_t gram_decimal_places(const struct gram_decimal *x)
{
    return x->exp < 0 ? (uint32_t)-x->exp : 0;
}

bool gram_decimal_scaled(const struct gram_decimal *x, int places, uint64_t *ret)
{
    uint64_t v = 0;
    if (x->exp < -places || (x->n && top(x) + places > 19)) return false;
    for (int64_t power = x->n ? top(x) : 0; power >= -places; power--) {
        uint64_t digit = (uint64_t)(gram_decimal_digit(x, power) - '0');
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, digit, &v))
            return false;
    }
    *ret = v;
    return true;
}

/* d.ddde+x, without trailing zeros. */
static const char *print_scientific(struct gram_build *b, const struct gram_decimal *x)
{
    char *text = gram_temp(b, x->n + 32);
    int n = snprintf(text, x->n + 32, "%s%c", x->negative ? "-" : "", x->digits[0]);
    if (x->n > 1) n += snprintf(text + n, x->n + 2, ".%.*s", (int)x->n - 1, x->digits + 1);
    snprintf(text + n, 24, "e%s%lld", top(x) < 0 ? "-" : "+", llabs((long long)top(x)));
    return text;
}

const char *gram_decimal_print(struct gram_build *b, const struct gram_decimal *x)
{
    enum { MAX_PLAIN = 25 };
    char *text, *p;
    if (!x->n) return "0";
    if (top(x) > MAX_PLAIN || x->exp < -MAX_PLAIN) return print_scientific(b, x);
    p = text = gram_temp(b, 2 * MAX_PLAIN + 8);
    if (x->negative) *p++ = '-';
    int64_t first = top(x) > 0 ? top(x) : 0, last = x->exp < 0 ? x->exp : 0;
    if (first - last > 2 * MAX_PLAIN) return print_scientific(b, x);
    for (int64_t power = first; power >= last; power--) {
        if (power == -1) *p++ = '.';
        *p++ = gram_decimal_digit(x, power);
    }
    return text;
}
