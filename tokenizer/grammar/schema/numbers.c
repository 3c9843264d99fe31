/* SPDX-License-Identifier: MIT */
/*
 * Numbers: bounds of all keywords become an interval of sizes for each sign, inclusive and on the
 * grid of the last place; multiples and excluded constants become values that are kept.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/grammar/format.h"
#include "tokenizer/grammar/schema/goals.h"

/* ---- facts --------------------------------------------------------------------------------- */

struct limit {
    bool set, exclusive;
    struct gram_decimal v;
};

struct facts {
    struct limit low, high;
    bool impossible;
    uint64_t multiple; /* value * 10^places is a multiple of this; 0: none asked for */
    int places;
    const struct gram_js **excluded; /* numbers */
    uint32_t n_excluded, cap_excluded;
};

/* One more limit on the low side, or on the high one. */
static void set_limit(struct facts *f, bool is_low, const struct gram_decimal *v, bool exclusive)
{
    struct limit *l = is_low ? &f->low : &f->high;
    int order = l->set ? gram_decimal_compare(v, &l->v) : is_low ? 1 : -1;
    if (order == 0)
        l->exclusive |= exclusive;
    else if ((order > 0) == is_low)
        *l = (struct limit){true, exclusive, *v};
}

static void add_bound(struct gram_build *b, struct facts *f, const struct gram_item *i)
{
    bool is_low = i->kw == GRAM_KW_MINIMUM || i->kw == GRAM_KW_EXCLUSIVE_MINIMUM, infinite;
    bool exclusive = i->kw == GRAM_KW_EXCLUSIVE_MINIMUM || i->kw == GRAM_KW_EXCLUSIVE_MAXIMUM;
    if (i->value->type != GRAM_JS_NUMBER) return; /* a flag */
    if (!exclusive && i->schema) { /* draft 4: a flag next to the bound makes it so */
        const struct gram_js *flag =
            gram_js_get(i->schema, is_low ? "exclusiveMinimum" : "exclusiveMaximum");
        exclusive = flag && flag->type == GRAM_JS_TRUE;
    }
    struct gram_decimal v = gram_decimal_bound(b, i->value->text, i->value->len, &infinite);
    if (i->negated) {
        is_low = !is_low;
        exclusive = !exclusive;
    }
    if (infinite) {
        if (v.negative != is_low) f->impossible = true;
    } else {
        set_limit(f, is_low, &v, exclusive);
    }
}

static uint64_t gcd(uint64_t x, uint64_t y)
{
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

static bool power_of_ten(int n, uint64_t *ret)
{
    *ret = 1;
    while (n-- > 0)
        if (__builtin_mul_overflow(*ret, 10u, ret)) return false;
    return true;
}

/* One more multipleOf. False if it is not one that values can be kept for. */
static bool add_multiple(struct gram_build *b, struct facts *f, const struct gram_js *v)
{
    struct gram_decimal m = gram_decimal_read(b, v->text, v->len);
    uint64_t scaled, up;
    int places = (int)(m.exp < -GRAM_NUM_PLACES ? GRAM_NUM_PLACES + 1 : gram_decimal_places(&m));
    if (m.negative || m.n == 0) gram_fail_at(b, v, "multipleOf", "must be greater than 0.");
    if (places > GRAM_NUM_PLACES || !gram_decimal_scaled(&m, places, &scaled)) return false;
    if (f->multiple == 0) {
        f->multiple = scaled;
        f->places = places;
        return true;
    }
    int more = places > f->places ? places : f->places;
    if (!power_of_ten(more - places, &up) || __builtin_mul_overflow(scaled, up, &scaled) ||
        !power_of_ten(more - f->places, &up) ||
        __builtin_mul_overflow(f->multiple, up, &f->multiple))
        return false;
    f->places = more;
    uint64_t rest = f->multiple / gcd(f->multiple, scaled);
    return !__builtin_mul_overflow(rest, scaled, &f->multiple);
}

static void exclude(struct gram_build *b, struct facts *f, const struct gram_item *i)
{
    for (const struct gram_js *v = NULL; (v = gram_next_listed(i, v));) {
        if (v->type != GRAM_JS_NUMBER) continue;
        f->excluded =
            gram_grow(b, f->excluded, f->n_excluded, &f->cap_excluded, sizeof(*f->excluded));
        f->excluded[f->n_excluded++] = v;
    }
}

static void add_format(struct gram_build *b, struct facts *f, const struct gram_alt *alt,
                       const struct gram_js *v)
{
    const char *low, *high;
    if (gram_format_find(v->text, v->len) != GRAM_FORMAT_INTEGER || (alt->types & GRAM_T_FRACTION))
        return;
    gram_format_bounds(v->text, v->len, &low, &high);
    struct gram_decimal least = gram_decimal_read(b, low, strlen(low));
    struct gram_decimal most = gram_decimal_read(b, high, strlen(high));
    set_limit(f, true, &least, false);
    set_limit(f, false, &most, false);
}

static void collect(struct gram_build *b, const struct gram_alt *alt, struct facts *f)
{
    *f = (struct facts){.impossible = false};
    for (const struct gram_item *i = alt->last; i; i = i->before) {
        switch (i->kw) {
        case GRAM_KW_MINIMUM:
        case GRAM_KW_MAXIMUM:
        case GRAM_KW_EXCLUSIVE_MINIMUM:
        case GRAM_KW_EXCLUSIVE_MAXIMUM: add_bound(b, f, i); break;
        case GRAM_KW_MULTIPLE_OF: {
            uint64_t multiple = f->multiple;
            int places = f->places;
            if (add_multiple(b, f, i->value)) break;
            f->multiple = multiple;
            f->places = places;
            gram_relax(b, (struct gram_js *)i->value, "it can only be left out");
            break;
        }
        case GRAM_KW_FORMAT: add_format(b, f, alt, i->value); break;
        case GRAM_KW_CONST:
        case GRAM_KW_ENUM:
            if (i->negated) exclude(b, f, i);
            break;
        default: break;
        }
    }
    gram_steps(b, 1 + alt->n / 4);
}

static bool bounds_contradict(const struct facts *f)
{
    if (f->impossible) return true;
    if (!f->low.set || !f->high.set) return false;
    int order = gram_decimal_compare(&f->low.v, &f->high.v);
    return order > 0 || (order == 0 && (f->low.exclusive || f->high.exclusive));
}

bool gram_number_possible(struct gram_build *b, const struct gram_alt *alt)
{
    struct facts f;
    collect(b, alt, &f);
    return !bounds_contradict(&f);
}

bool gram_number_fits(struct gram_build *b, const struct gram_alt *alt,
                      const struct gram_decimal *v)
{
    struct facts f;
    collect(b, alt, &f);
    if (f.impossible) return false;
    int low = f.low.set ? gram_decimal_compare(v, &f.low.v) : 1;
    int high = f.high.set ? gram_decimal_compare(v, &f.high.v) : -1;
    if (low < (f.low.exclusive ? 1 : 0) || high > (f.high.exclusive ? -1 : 0)) return false;
    return !f.multiple || gram_decimal_is_multiple(v, f.multiple, f.places);
}

/* ---- bounds on a grid ---------------------------------------------------------------------- */

/* The digits of |v| * 10^places, cut there; *rest: something was cut off. First digit 0. */
static char *grid_digits(struct gram_build *b, const struct gram_decimal *v, uint32_t places,
                         uint32_t *ret_n, bool *rest)
{
    uint32_t integer = gram_decimal_integer_digits(v), n = 1 + integer + places;
    char *digits = gram_temp(b, n + 1);
    digits[0] = '0';
    for (uint32_t i = 1; i < n; i++)
        digits[i] = gram_decimal_digit(v, (int64_t)integer - i);
    *rest = v->n && v->exp < -(int64_t)places;
    *ret_n = n;
    return digits;
}

/* Adds one to the last digit, or takes one off; false below zero. */
static bool step_digits(char *digits, uint32_t n, bool up)
{
    while (n-- > 0) {
        if (digits[n] != (up ? '9' : '0')) {
            digits[n] = (char)(digits[n] + (up ? 1 : -1));
            return true;
        }
        digits[n] = up ? '0' : '9';
    }
    return false;
}

static struct gram_num_bound bound_of(struct gram_build *b, const char *digits, uint32_t n,
                                      uint32_t places)
{
    struct gram_num_bound bound;
    while (n > places + 1 && digits[0] == '0') {
        digits++;
        n--;
    }
    bound.n_integer = n - places;
    while (places > 0 && digits[n - 1] == '0') {
        n--;
        places--;
    }
    bound.n_places = places;
    bound.digits = gram_keep_copy(b, digits, n, 1);
    return bound;
}

static bool is_integer(const char *digits, uint32_t n, uint32_t places)
{
    for (uint32_t i = n - places; i < n; i++)
        if (digits[i] != '0') return false;
    return true;
}

/*
 * The least size above the limit (or the largest below it) that is on the grid; false: none. For
 * numbers that are not integers the bound is not one either.
 */
static bool grid_bound(struct gram_build *b, const struct limit *l, uint32_t places, bool is_low,
                       bool not_integer, struct gram_num_bound *ret)
{
    uint32_t n;
    bool rest;
    char *digits = grid_digits(b, &l->v, places, &n, &rest);
    if (is_low && (rest || l->exclusive)) step_digits(digits, n, true);
    if (!is_low && !rest && l->exclusive && !step_digits(digits, n, false)) return false;
    if (not_integer && is_integer(digits, n, places) && !step_digits(digits, n, is_low))
        return false;
    *ret = bound_of(b, digits, n, places);
    return true;
}

/* Compares bounds of one grid. */
static int compare_bounds(const struct gram_num_bound *x, const struct gram_num_bound *y)
{
    if (x->n_integer != y->n_integer) return x->n_integer < y->n_integer ? -1 : 1;
    uint32_t nx = x->n_integer + x->n_places, ny = y->n_integer + y->n_places;
    int order = memcmp(x->digits, y->digits, nx < ny ? nx : ny);
    return order ? order : (nx > ny) - (nx < ny);
}

/* The sizes of one sign: those of values between low and high, which are limits of sizes. */
static void fill_side(struct gram_build *b, struct gram_num_side *side, const struct limit *low,
                      const struct limit *high, uint32_t places, bool not_integer)
{
    side->possible = true;
    if (low->set) side->has_low = grid_bound(b, low, places, true, not_integer, &side->low);
    if (high->set) {
        side->has_high = true;
        side->possible = grid_bound(b, high, places, false, not_integer, &side->high);
    }
    if (side->possible && side->has_low && side->has_high)
        side->possible = compare_bounds(&side->low, &side->high) <= 0;
}

static void fill_sides(struct gram_build *b, const struct facts *f, struct gram_number *n,
                       uint32_t places)
{
    struct limit none = {.set = false},
                 zero = {.set = true, .exclusive = true, .v = {.digits = ""}};
    bool low_negative = !f->low.set || f->low.v.negative;
    bool high_negative = f->high.set && f->high.v.negative;
    /* Zero and more: from the lower limit, or 0. */
    if (!high_negative)
        fill_side(b, &n->side[0], low_negative ? &none : &f->low, f->high.set ? &f->high : &none,
                  places, n->not_integer);
    /* Below zero sizes count the other way. */
    if (low_negative)
        fill_side(b, &n->side[1], high_negative ? &f->high : &zero, f->low.set ? &f->low : &none,
                  places, n->not_integer);
    for (int i = 0; i < 2; i++) {
        const struct gram_num_side *s = &n->side[i];
        if (s->has_low && s->low.n_integer > n->max_integer) n->max_integer = s->low.n_integer;
        if (s->has_high && s->high.n_integer > n->max_integer) n->max_integer = s->high.n_integer;
    }
}

/* ---- values that are kept ------------------------------------------------------------------ */

static gram_u128 value_of(const struct gram_num_bound *bound, uint32_t places)
{
    gram_u128 v = 0;
    for (uint32_t i = 0; i < bound->n_integer + places; i++)
        v = v * 10 +
            (i < bound->n_integer + bound->n_places ? (unsigned)(bound->digits[i] - '0') : 0);
    return v;
}

static int by_value(const void *x, const void *y)
{
    const gram_u128 *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

/* Excluded values of one sign, ascending. Those that are not on the grid cannot come anyway. */
static void exclude_side(struct gram_build *b, const struct facts *f, struct gram_number *n,
                         int sign)
{
    gram_u128 *values = gram_keep_array(b, f->n_excluded, sizeof(*values));
    uint32_t k = 0, len;
    bool rest;
    for (uint32_t i = 0; i < f->n_excluded; i++) {
        struct gram_decimal v = gram_decimal_read(b, f->excluded[i]->text, f->excluded[i]->len);
        if (v.negative != (sign == 1) || gram_decimal_integer_digits(&v) > GRAM_NUM_EXACT_DIGITS)
            continue;
        char *digits = grid_digits(b, &v, n->places, &len, &rest);
        struct gram_num_bound bound = {digits, len - n->places, n->places};
        if (!rest) values[k++] = value_of(&bound, n->places);
    }
    qsort(values, k, sizeof(*values), by_value);
    n->excluded[sign] = values;
    n->n_excluded[sign] = k;
}

static void keep_values(struct gram_build *b, const struct facts *f, struct gram_number *n)
{
    gram_u128 most = 1;
    n->exact = true;
    n->max_integer = GRAM_NUM_EXACT_DIGITS;
    for (uint32_t i = 0; i < n->places; i++)
        most *= 10;
    n->one = most;
    for (uint32_t i = 0; i < GRAM_NUM_EXACT_DIGITS; i++)
        most *= 10;
    for (int sign = 0; sign < 2; sign++) {
        struct gram_num_side *s = &n->side[sign];
        bool huge = s->has_high && s->high.n_integer > GRAM_NUM_EXACT_DIGITS;
        if (s->has_low && s->low.n_integer > GRAM_NUM_EXACT_DIGITS) s->possible = false;
        s->exact_low = s->has_low && s->possible ? value_of(&s->low, n->places) : 0;
        s->exact_high =
            s->has_high && !huge && s->possible ? value_of(&s->high, n->places) : most - 1;
        exclude_side(b, f, n, sign);
        if (n->not_integer && n->multiple % n->one == 0) s->possible = false;
        if (s->possible) s->possible = gram_number_side_fits(n, sign);
    }
}

/* ---- the node ------------------------------------------------------------------------------ */

static uint32_t places_of(const struct facts *f)
{
    uint32_t places = GRAM_NUM_PLACES;
    if (f->low.set && gram_decimal_places(&f->low.v) > places)
        places = gram_decimal_places(&f->low.v);
    if (f->high.set && gram_decimal_places(&f->high.v) > places)
        places = gram_decimal_places(&f->high.v);
    return places;
}

static void fill_number(struct gram_build *b, const struct facts *f, uint32_t types,
                        struct gram_number *n)
{
    uint64_t p = 1;
    n->integer = !(types & GRAM_T_FRACTION);
    n->not_integer = !(types & GRAM_T_INTEGER);
    n->max_integer = GRAM_NUM_INTEGER_DIGITS;
    n->max_places = n->integer ? 0 : places_of(f);
    n->exponent = !n->integer && !n->not_integer && !f->low.set && !f->high.set && !f->multiple &&
                  !f->n_excluded;
    n->multiple = f->multiple ? f->multiple : 1;
    bool exact = f->multiple > 0 || f->n_excluded > 0;
    if (exact && !n->integer) n->max_places = GRAM_NUM_PLACES;
    n->places = n->integer ? 0 : f->multiple ? (uint32_t)f->places : n->max_places;
    if (n->integer && f->multiple) {
        power_of_ten(f->places, &p);
        n->multiple = f->multiple / gcd(f->multiple, p);
    }
    fill_sides(b, f, n, exact ? n->places : n->max_places);
    if (exact) keep_values(b, f, n);
}

void gram_build_number(struct gram_build *b, struct gram_value_draft *d, const struct gram_alt *alt)
{
    struct facts f;
    struct gram_number n;
    collect(b, alt, &f);
    if (bounds_contradict(&f)) {
        gram_note_reason(b, d->value, NULL,
                         f.impossible ? "a bound is beyond all numbers"
                                      : gram_text(b, "minimum is %s and maximum is %s",
                                                  gram_decimal_print(b, &f.low.v),
                                                  gram_decimal_print(b, &f.high.v)));
        return;
    }
    memset(&n, 0, sizeof(n));
    fill_number(b, &f, alt->types, &n);
    if (n.side[0].possible || n.side[1].possible)
        gram_add_branch(b, d, GRAM_BRANCH_NUMBER, gram_add_number(b, &n));
    else
        gram_note_reason(b, d->value, NULL, "no number fits its bounds and multiples");
}
