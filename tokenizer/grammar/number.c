/* SPDX-License-Identifier: MIT */
/* JSON numbers within bounds; see number.h. */
#include "tokenizer/grammar/number.h"

#include <assert.h>
#include <stddef.h>

#include "tokenizer/grammar/gram_types.h"
#include "tokenizer/grammar/lexer.h"

enum phase {
    START,
    MINUS,
    ZERO,   /* the integer part is 0 */
    DIGITS, /* inside the integer part */
    POINT,
    PLACES,
    E,
    E_SIGN,
    EXPONENT,
};

static const struct gram_num_side *side_of(const struct gram_number *n,
                                           const struct gram_num_state *s)
{
    return &n->side[s->negative];
}

/* ---- comparisons with bounds --------------------------------------------------------------- */

/* Goes on comparing: i is the place of the new digit, counted from the first of the bound. */
static int8_t compare_digit(int8_t so_far, const struct gram_num_bound *b, uint32_t i, int digit)
{
    assert(digit >= 0 && digit <= 9);
    if (so_far) return so_far;
    int other = i < b->n_integer + b->n_places ? b->digits[i] - '0' : 0;
    return (int8_t)((digit > other) - (digit < other));
}

/* One more digit of the integer part: more digits than the bound has are more. */
static void compare_integer_digit(const struct gram_num_side *side, struct gram_num_state *s,
                                  int digit)
{
    assert(s->n_integer > 0);
    uint32_t i = (uint32_t)s->n_integer - 1;
    if (side->has_low)
        s->low = i >= side->low.n_integer ? 1 : compare_digit(s->low, &side->low, i, digit);
    if (side->has_high)
        s->high = i >= side->high.n_integer ? 1 : compare_digit(s->high, &side->high, i, digit);
}

/* The integer part is complete: its length decides unless it is the bound's. */
static int8_t settle(const struct gram_num_bound *b, const struct gram_num_state *s, int8_t so_far)
{
    if (s->n_integer != b->n_integer) return s->n_integer < b->n_integer ? -1 : 1;
    return so_far;
}

/* Some number of digits from min to max makes an integer part that can be within the bounds. */
static bool integer_part_fits(const struct gram_number *n, const struct gram_num_state *s)
{
    const struct gram_num_side *side = side_of(n, s);
    uint32_t shortest = s->n_integer, longest = s->phase == ZERO ? 1 : n->max_integer;
    if (side->has_low) {
        uint32_t least = side->low.n_integer + (s->low < 0);
        if (least > shortest) shortest = least;
    }
    if (side->has_high) {
        uint32_t most = side->high.n_integer - (s->high > 0);
        if (most < longest) longest = most;
    }
    return shortest <= longest;
}

/* The fraction so far can become a number within the bounds. */
static bool fraction_fits(const struct gram_number *n, const struct gram_num_state *s)
{
    const struct gram_num_side *side = side_of(n, s);
    if (n->not_integer && !s->nonzero_place && s->n_places == n->max_places) return false;
    return (!side->has_low || s->low >= 0) && (!side->has_high || s->high <= 0);
}

/* ---- exact values -------------------------------------------------------------------------- */

static gram_u128 power_of_ten(uint32_t n)
{
    gram_u128 p = 1;
    while (n-- > 0)
        p *= 10;
    return p;
}

/* Some value in lo..hi, as a multiple of 10^-places, is in the language. */
static bool interval_fits(const struct gram_number *n, const struct gram_num_state *s, gram_u128 lo,
                          gram_u128 hi)
{
    const struct gram_num_side *side = side_of(n, s);
    if (lo < side->exact_low) lo = side->exact_low;
    if (hi > side->exact_high) hi = side->exact_high;
    if (lo > hi) return false;
    gram_u128 m = n->multiple, v = (lo + m - 1) / m * m;
    for (uint32_t i = 0; v <= hi; v += m) {
        while (i < n->n_excluded[s->negative] && n->excluded[s->negative][i] < v)
            i++;
        if (n->not_integer && v % n->one == 0) continue;
        if (i == n->n_excluded[s->negative] || n->excluded[s->negative][i] != v) return true;
    }
    return false;
}

/* The digits so far, and any that may follow, can become a number of the language. */
static bool exact_fits(const struct gram_number *n, const struct gram_num_state *s)
{
    uint32_t behind = s->n_places < n->places ? n->places - s->n_places : 0;
    uint32_t more = s->phase == DIGITS ? n->max_integer - s->n_integer : 0;
    for (uint32_t k = 0; k <= more; k++) {
        gram_u128 p = power_of_ten(behind + k);
        if (interval_fits(n, s, s->value * p, s->value * p + p - 1)) return true;
    }
    return false;
}

static bool exact_complete(const struct gram_number *n, const struct gram_num_state *s)
{
    uint32_t behind = s->n_places < n->places ? n->places - s->n_places : 0;
    gram_u128 v = s->value * power_of_ten(behind);
    return interval_fits(n, s, v, v);
}

bool gram_number_side_fits(const struct gram_number *n, int sign)
{
    struct gram_num_state s = {.negative = sign == 1};
    return interval_fits(n, &s, n->side[sign].exact_low, n->side[sign].exact_high);
}

/* ---- digits -------------------------------------------------------------------------------- */

static bool integer_digit(const struct gram_number *n, struct gram_num_state *s, int digit)
{
    if (s->phase == ZERO || s->n_integer >= n->max_integer) return false;
    s->phase = s->phase != DIGITS && digit == 0 ? ZERO : DIGITS;
    s->n_integer++;
    if (n->exact) {
        s->value = s->value * 10 + (unsigned)digit;
        return side_of(n, s)->possible && exact_fits(n, s);
    }
    compare_integer_digit(side_of(n, s), s, digit);
    return side_of(n, s)->possible && integer_part_fits(n, s);
}

static bool place_digit(const struct gram_number *n, struct gram_num_state *s, int digit)
{
    const struct gram_num_side *side = side_of(n, s);
    if (s->n_places >= n->max_places) return false;
    s->phase = PLACES;
    s->n_places++;
    s->nonzero_place |= digit != 0;
    if (n->exact) {
        if (s->n_places > n->places) return digit == 0;
        s->value = s->value * 10 + (unsigned)digit;
        return exact_fits(n, s);
    }
    uint32_t k = (uint32_t)s->n_places - 1;
    if (side->has_low) s->low = compare_digit(s->low, &side->low, side->low.n_integer + k, digit);
    if (side->has_high)
        s->high = compare_digit(s->high, &side->high, side->high.n_integer + k, digit);
    return fraction_fits(n, s);
}

static bool exponent_digit(struct gram_num_state *s, int digit)
{
    s->phase = EXPONENT;
    s->n_exponent++;
    s->exponent = (uint16_t)(s->exponent * 10 + digit);
    return s->n_exponent <= 3 && s->exponent <= GRAM_NUM_MAX_EXPONENT;
}

static bool point(const struct gram_number *n, struct gram_num_state *s)
{
    const struct gram_num_side *side = side_of(n, s);
    if (n->integer || n->max_places == 0 || (s->phase != ZERO && s->phase != DIGITS)) return false;
    s->phase = POINT;
    if (n->exact) return exact_fits(n, s);
    if (side->has_low) s->low = settle(&side->low, s, s->low);
    if (side->has_high) s->high = settle(&side->high, s, s->high);
    return fraction_fits(n, s);
}

bool gram_number_step(const struct gram_number *n, struct gram_num_state *s, uint8_t byte)
{
    int digit = byte - '0';
    if (digit >= 0 && digit <= 9) {
        if (s->phase <= DIGITS) return integer_digit(n, s, digit);
        if (s->phase <= PLACES) return place_digit(n, s, digit);
        return exponent_digit(s, digit);
    }
    switch (byte) {
    case '-':
        if (s->phase == E) {
            s->phase = E_SIGN;
            return true;
        }
        if (s->phase != START) return false;
        s->phase = MINUS;
        s->negative = true;
        return n->side[1].possible;
    case '+':
        if (s->phase != E) return false;
        s->phase = E_SIGN;
        return true;
    case '.': return point(n, s);
    case 'e':
    case 'E':
        if (!n->exponent || s->phase == EXPONENT || !gram_number_complete(n, s)) return false;
        s->phase = E;
        return true;
    default: return false;
    }
}

/* The size so far is within the bounds as it is. */
static bool within(const struct gram_number *n, const struct gram_num_state *s)
{
    const struct gram_num_side *side = side_of(n, s);
    int8_t low = s->low, high = s->high;
    if (s->phase < POINT) {
        if (side->has_low) low = settle(&side->low, s, low);
        if (side->has_high) high = settle(&side->high, s, high);
    }
    if (side->has_low && (low < 0 || (low == 0 && s->n_places < side->low.n_places))) return false;
    return !side->has_high || high <= 0;
}

bool gram_number_complete(const struct gram_number *n, const struct gram_num_state *s)
{
    if (s->phase == EXPONENT) return true;
    if (s->phase != ZERO && s->phase != DIGITS && s->phase != PLACES) return false;
    if (n->not_integer && !s->nonzero_place) return false;
    return n->exact ? exact_complete(n, s) : within(n, s);
}

bool gram_number_extends(const struct gram_number *n, const struct gram_num_state *s)
{
    for (const char *p = "0.e123456789"; *p; p++) {
        struct gram_num_state next = *s;
        if (gram_number_step(n, &next, (uint8_t)*p)) return true;
    }
    return false;
}

static const char number_bytes[] = "0123456789-.+";

/* By a byte that makes it complete, or else the first that may come, each time. */
static uint32_t straight_rest(const struct gram_number *n, struct gram_num_state s)
{
    uint32_t length = 0;
    for (; !gram_number_complete(n, &s); length++) {
        struct gram_num_state chosen = s;
        bool found = false, complete = false;
        for (const char *p = number_bytes; *p && !complete; p++) {
            struct gram_num_state next = s;
            if (!gram_number_step(n, &next, (uint8_t)*p)) continue;
            complete = gram_number_complete(n, &next);
            if (complete || !found) chosen = next;
            found = true;
        }
        if (!found) return GRAM_INFINITE;
        s = chosen;
    }
    return length;
}

uint32_t gram_number_rest(const struct gram_number *n, const struct gram_num_state *s)
{
    uint32_t best = GRAM_INFINITE;
    if (gram_number_complete(n, s)) return 0;
    for (const char *p = number_bytes; *p && best > 1; p++) {
        struct gram_num_state next = *s;
        uint32_t rest = gram_number_step(n, &next, (uint8_t)*p) ? straight_rest(n, next) : best;
        if (rest < best) best = rest + 1;
    }
    return best;
}

/* As the digits of an integer hash that is taken digit by digit. */
uint64_t gram_number_hash(const struct gram_num_state *s)
{
    char text[48];
    size_t at = sizeof(text);
    gram_u128 v = s->value;
    do
        text[--at] = (char)('0' + (int)(v % 10));
    while (v /= 10);
    if (s->negative) text[--at] = '-';
    return gram_hash_bytes(GRAM_HASH_SEED, text + at, sizeof(text) - at);
}

/* ---- packing ------------------------------------------------------------------------------- */

void gram_number_pack(const struct gram_number *n, const struct gram_num_state *s, uint16_t *word,
                      uint64_t bits[2])
{
    *word = (uint16_t)(s->phase | s->negative << 4 | s->nonzero_place << 5);
    if (n->exact) { /* at most 31 digits each before and after the point */
        *word |= (uint16_t)(s->n_integer << 6 | s->n_places << 11);
        bits[0] = (uint64_t)s->value;
        bits[1] = (uint64_t)(s->value >> 64);
        return;
    }
    *word |= (uint16_t)(s->n_exponent << 6);
    bits[0] = (uint64_t)s->n_integer | (uint64_t)s->n_places << 16 | (uint64_t)s->exponent << 32 |
              (uint64_t)(s->low + 1) << 48 | (uint64_t)(s->high + 1) << 56;
}

void gram_number_unpack(const struct gram_number *n, struct gram_num_state *s, uint16_t word,
                        const uint64_t bits[2])
{
    *s = (struct gram_num_state){
        .phase = word & 15, .negative = word >> 4 & 1, .nonzero_place = word >> 5 & 1};
    if (n->exact) {
        s->n_integer = word >> 6 & 31;
        s->n_places = word >> 11;
        s->value = (gram_u128)bits[1] << 64 | bits[0];
        return;
    }
    s->n_exponent = (uint8_t)(word >> 6);
    s->n_integer = (uint16_t)bits[0];
    s->n_places = (uint16_t)(bits[0] >> 16);
    s->exponent = (uint16_t)(bits[0] >> 32);
    s->low = (int8_t)((bits[0] >> 48 & 255) - 1);
    s->high = (int8_t)((bits[0] >> 56) - 1);
}
