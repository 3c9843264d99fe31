/* SPDX-License-Identifier: MIT */
/*
 * Order and membership of values; see value.h. Numbers and strings have an order.
 */
#include "tokenizer/template/value.h"

#include <assert.h>
#include <string.h>

#include "tokenizer/template/dict.h"
#include "tokenizer/template/str.h"

bool jinja_less(struct jinja_run *r, struct jinja_value a, struct jinja_value b, const char *op)
{
    if (jinja_is_number(a) && jinja_is_number(b)) return jinja_num_compare(r, a, b) == -1;
    if (jinja_is(a, JINJA_UNDEFINED)) jinja_fail_undefined(r, a);
    if (jinja_is(b, JINJA_UNDEFINED)) jinja_fail_undefined(r, b);
    if (jinja_is(a, JINJA_STR) && jinja_is(b, JINJA_STR)) {
        jinja_spend_bytes(r, a.u.str->len < b.u.str->len ? a.u.str->len : b.u.str->len);
        return jinja_str_compare(a.u.str, b.u.str) < 0;
    }
    if (a.type == b.type && (jinja_is(a, JINJA_LIST) || jinja_is(a, JINJA_TUPLE)))
        jinja_raise(r, "'%s' of lists is not supported in chat templates", op);
    jinja_raise(r, "'%s' not supported between instances of '%s' and '%s'", op, jinja_type_name(a),
                jinja_type_name(b));
}

bool jinja_contains(struct jinja_run *r, struct jinja_value container, struct jinja_value item)
{
    struct jinja_iter it;
    struct jinja_value v;
    switch (container.type) {
    case JINJA_STR:
        if (!jinja_is(item, JINJA_STR))
            jinja_raise(r, "'in <string>' requires string as left operand, not %s",
                        jinja_type_name(item));
        jinja_spend_search(r, container.u.str->len + item.u.str->len);
        return jinja_str_find(container.u.str, item.u.str, 0) != SIZE_MAX;
    case JINJA_DICT: return jinja_dict_get(r, container.u.dict, item) != NULL;
    default:
        if (!jinja_is_iterable(container))
            jinja_raise(r, "argument of type '%s' is not iterable", jinja_type_name(container));
        jinja_iter_start(r, &it, container);
        while (jinja_iter_next(r, &it, &v))
            if (jinja_equal(r, v, item)) return true;
        return false;
    }
}

/* ---- sorting ------------------------------------------------------------------------------- */

/* Merges two neighbouring sorted runs of `order`; the left one wins ties. */
static void merge(struct jinja_run *r, const struct jinja_value *keys, size_t *order, size_t *tmp,
                  size_t lo, size_t mid, size_t hi)
{
    assert(lo < mid && mid <= hi);
    size_t i = lo, j = mid, n = 0;
    while (i < mid && j < hi)
        tmp[n++] = jinja_less(r, keys[order[j]], keys[order[i]], "<") ? order[j++] : order[i++];
    while (i < mid)
        tmp[n++] = order[i++];
    memcpy(order + lo, tmp, n * sizeof(*tmp)); /* the rest of the right run is in place */
}

/* A merge sort from below: stable, and n log n comparisons whatever the order was. */
void jinja_sort(struct jinja_run *r, struct jinja_value *keys, struct jinja_value *items, size_t n)
{
    if (n < 2) return;
    size_t *order = JINJA_NEW_N(r, n, size_t), *tmp = JINJA_NEW_N(r, n, size_t);
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t width = 1; width < n; width *= 2)
        for (size_t lo = 0; lo + width < n; lo += 2 * width) {
            size_t hi = lo + 2 * width < n ? lo + 2 * width : n;
            merge(r, keys, order, tmp, lo, lo + width, hi);
        }
    struct jinja_value *sorted = JINJA_NEW_N(r, 2 * n, struct jinja_value);
    for (size_t i = 0; i < n; i++) {
        sorted[i] = keys[order[i]];
        sorted[n + i] = items[order[i]];
    }
    memcpy(keys, sorted, n * sizeof(*keys));
    memcpy(items, sorted + n, n * sizeof(*items));
}
