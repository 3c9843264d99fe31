/* SPDX-License-Identifier: MIT */
/*
 * Values: equality, hash and identity, dicts below and above the size at which they are indexed,
 * order, sorting, walks, what counts as undefined.
 */
#include "test.h"

#include "tokenizer/template/dict.h"
#include "tokenizer/template/str.h"

enum { KEYS = 1000 };

/* Runs body in a guard; its error, or "". */
static const char *run(void (*body)(struct jinja_run *r, void *arg), void *arg)
{
    static char err[JINJA_ERR_BYTES];
    struct jinja_run r;
    jinja_run_init(&r, 16 << 20, 2000000);
    int rc = jinja_guard(&r, body, arg);
    snprintf(err, sizeof(err), "%s", rc ? r.err : "");
    jinja_run_finish(&r);
    return err;
}

static struct jinja_value list(struct jinja_run *r, int64_t a, int64_t b)
{
    return jinja_from_list(jinja_list_of(r, (struct jinja_value[]){jinja_int(a), jinja_int(b)}, 2));
}

static void equality(struct jinja_run *r, void *arg)
{
    struct jinja_value one = jinja_int(1), text = jinja_lit(r, "1");
    (void)arg;
    REQUIRE(jinja_equal(r, one, jinja_bool(true)) && jinja_equal(r, one, jinja_float(1)));
    REQUIRE(jinja_hash(r, one) == jinja_hash(r, jinja_bool(true)));
    REQUIRE(jinja_hash(r, one) == jinja_hash(r, jinja_float(1)));
    REQUIRE(!jinja_equal(r, one, text) && jinja_equal(r, text, jinja_lit(r, "1")));
    REQUIRE(jinja_equal(r, list(r, 1, 2), list(r, 1, 2)));
    struct jinja_value tuple = jinja_pair_tuple(r, one, text);
    REQUIRE(!jinja_equal(r, list(r, 1, 2), jinja_pair_tuple(r, one, jinja_int(2))));
    REQUIRE(jinja_is_hashable(r, tuple) && !jinja_is_hashable(r, list(r, 1, 2)));
    REQUIRE(!jinja_is_hashable(r, jinja_pair_tuple(r, one, list(r, 1, 2))));
    double nan = __builtin_nan("");
    REQUIRE(!jinja_equal(r, jinja_float(nan), jinja_float(nan)));
    jinja_hash(r, list(r, 1, 2));
}

static void test_equality(void **state)
{
    (void)state;
    REQUIRE_EQ_STR(run(equality, NULL), "unhashable type: 'list'");
}

static void fill_dict(struct jinja_run *r, void *arg)
{
    struct jinja_dict *d = jinja_dict_new(r), *copy = jinja_dict_new(r);
    (void)arg;
    for (int64_t i = 0; i < KEYS; i++) {
        jinja_dict_put(r, d, jinja_int(i * 7), jinja_int(i));
        REQUIRE_EQ_INT(d->n, i + 1);
        for (int64_t k = 0; k <= i; k += 1 + i / 5)
            REQUIRE_EQ_INT(jinja_dict_get(r, d, jinja_int(k * 7))->u.i, k);
        REQUIRE(!jinja_dict_get(r, d, jinja_int(i * 7 + 1)));
    }
    jinja_dict_put(r, d, jinja_float(7), jinja_int(-1)); /* an equal key keeps its place */
    REQUIRE_EQ_INT(d->n, KEYS);
    REQUIRE(d->pairs[1].key.type == JINJA_INT && d->pairs[1].value.u.i == -1);
    jinja_dict_add_all(r, copy, d);
    REQUIRE(jinja_equal(r, jinja_from_dict(copy), jinja_from_dict(d)));
    jinja_dict_put_name(r, copy, "a", jinja_none());
    REQUIRE(jinja_dict_get_name(r, copy, "a") && !jinja_dict_get_name(r, copy, "b"));
    REQUIRE(!jinja_equal(r, jinja_from_dict(copy), jinja_from_dict(d)));
}

static void test_dict(void **state)
{
    (void)state;
    REQUIRE_EQ_STR(run(fill_dict, NULL), "");
}

static void order(struct jinja_run *r, void *arg)
{
    enum { N = 200 };
    struct jinja_value keys[N], items[N];
    (void)arg;
    REQUIRE(jinja_less(r, jinja_int(1), jinja_float(1.5), "<"));
    REQUIRE(jinja_less(r, jinja_lit(r, "a"), jinja_lit(r, "\xc3\xa9"), "<"));
    for (int i = 0; i < N; i++) {
        keys[i] = jinja_int(i * 37 % 10);
        items[i] = jinja_int(i);
    }
    jinja_sort(r, keys, items, N);
    for (int i = 1; i < N; i++) {
        int64_t step = keys[i].u.i - keys[i - 1].u.i;
        REQUIRE(step > 0 || (step == 0 && items[i].u.i > items[i - 1].u.i)); /* stable */
    }
    REQUIRE(jinja_contains(r, list(r, 1, 2), jinja_float(2)));
    REQUIRE(jinja_contains(r, jinja_lit(r, "abc"), jinja_lit(r, "bc")));
    jinja_less(r, jinja_int(1), jinja_lit(r, "a"), "<");
}

static void test_order(void **state)
{
    (void)state;
    REQUIRE_EQ_STR(run(order, NULL), "'<' not supported between instances of 'int' and 'str'");
}

static bool next_over(struct jinja_run *r, void *state, struct jinja_value *ret)
{
    return jinja_iter_next(r, state, ret);
}

/* A generator of the elements of v. */
static struct jinja_value gen_over(struct jinja_run *r, struct jinja_value v)
{
    struct jinja_iter *it = JINJA_NEW(r, struct jinja_iter);
    jinja_iter_start(r, it, v);
    return jinja_gen_new(r, next_over, it);
}

static void walk(struct jinja_run *r, void *arg)
{
    struct jinja_range range = {.start = 5, .stop = 11, .step = 2, .n = 3};
    struct jinja_value v = {.type = JINJA_RANGE, .u.range = &range}, item;
    (void)arg;
    const struct jinja_list *l = jinja_to_list(r, v);
    REQUIRE(l->n == 3 && l->items[0].u.i == 5 && l->items[2].u.i == 9);
    struct jinja_value gen = gen_over(r, jinja_lit(r, "a\xc3\xa9"));
    REQUIRE(jinja_gen_next(r, gen.u.gen, &item) && item.u.str->len == 1);
    REQUIRE(jinja_gen_next(r, gen.u.gen, &item) && item.u.str->len == 2);
    REQUIRE(!jinja_gen_next(r, gen.u.gen, &item) && !jinja_gen_next(r, gen.u.gen, &item));
    struct jinja_loop loop;
    jinja_loop_init(r, &loop, gen_over(r, v));
    REQUIRE(jinja_loop_next(r, &loop, &item) && item.u.i == 5);
    REQUIRE_EQ_INT(jinja_loop_peek(r, &loop).u.i, 7);
    REQUIRE_EQ_INT(jinja_loop_length(r, &loop), 3); /* reads ahead and loses nothing */
    REQUIRE(jinja_loop_next(r, &loop, &item) && item.u.i == 7);
    REQUIRE(jinja_loop_next(r, &loop, &item) && item.u.i == 9 && loop.before.u.i == 7);
    REQUIRE(!jinja_loop_next(r, &loop, &item));
    jinja_to_list(r, jinja_int(1));
}

static void test_walks(void **state)
{
    (void)state;
    REQUIRE_EQ_STR(run(walk, NULL), "'int' object is not iterable");
}

static void use_undefined(struct jinja_run *r, void *arg)
{
    int which = *(int *)arg;
    const struct jinja_str *name = jinja_lit(r, "k").u.str;
    struct jinja_value v = which == 0   ? jinja_undefined_name(r, "x")
                           : which == 1 ? jinja_undefined_attr(r, list(r, 1, 2), name)
                                        : jinja_undefined_hint(r, "no such thing");
    REQUIRE(!jinja_truth(v) && jinja_is_iterable(v) && jinja_length(r, v) == 0);
    jinja_fail_undefined(r, v);
}

static void test_undefined(void **state)
{
    static const char *const errors[] = {"'x' is undefined", "'list object' has no attribute 'k'",
                                         "no such thing"};
    (void)state;
    for (int i = 0; i < 3; i++)
        REQUIRE_EQ_STR(run(use_undefined, &i), errors[i]);
}

static void nest(struct jinja_run *r, void *arg)
{
    struct jinja_value a = jinja_none(), b = jinja_none();
    (void)arg;
    for (int i = 0; i < JINJA_MAX_VALUE_DEPTH + 2; i++) {
        a = jinja_from_list(jinja_list_of(r, &a, 1));
        b = jinja_from_list(jinja_list_of(r, &b, 1));
    }
    jinja_equal(r, a, b);
}

static void test_depth(void **state)
{
    (void)state;
    REQUIRE_EQ_STR(run(nest, NULL), "a value nested deeper than 500");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equality),  cmocka_unit_test(test_dict),
        cmocka_unit_test(test_order),     cmocka_unit_test(test_walks),
        cmocka_unit_test(test_undefined), cmocka_unit_test(test_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
