/* SPDX-License-Identifier: MIT */
/*
 * Trees of texts: which members with one name count, roots, constants, limits, the sentences of
 * files, and a tree or nothing whichever allocation fails.
 */
#include "base/json_tree.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_reader.h"
#include "test.h"

static json_t *read_text(const char *text, unsigned flags, struct jt_fault *fault)
{
    const struct jt_params params = {.flags = flags, .max_values = 10};
    json_t *root = NULL;
    int rc = jt_read(&root, text, strlen(text), &params, fault);
    REQUIRE((rc == 0) == (root != NULL));
    return root;
}

static void test_flags(void **state)
{
    static const struct {
        const char *text;
        unsigned flags;
        const char *tree, *problem; /* one of them */
    } cases[] = {
        {"{\"a\":1,\"b\":2,\"a\":3}", JT_REPEATS, "{\"a\": 3, \"b\": 2}", NULL},
        {"{\"a\":1,\"b\":2,\"a\":3}", 0, NULL, "a key that comes twice,"},
        {"{\"a\":{\"x\":1},\"a\":[]}", JT_REPEATS, "{\"a\": []}", NULL},
        {" [1, \"a\\u0000\"]", JR_NUL, "[1, \"a\\u0000\"]", NULL},
        {"[\"a\\u0000\"]", 0, NULL, "\\u0000 is not allowed"},
        {"5", JT_ANY, "5", NULL},
        {"null", JT_ANY, "null", NULL},
        {"true x", JT_ANY, NULL, "text after the end"},
        {"5", 0, NULL, "expected an object or an array"},
        {"", 0, NULL, "expected an object or an array"},
        {"", JT_ANY, NULL, "expected a value"},
        {"[NaN]", 0, NULL, "NaN and Infinity are not numbers of JSON"},
        {"[\xff]", 0, NULL, "bytes that are not UTF-8"},
        {"[1e999]", JR_CONSTANTS, NULL, "a number out of range"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct jt_fault f;
        json_t *root = read_text(cases[i].text, cases[i].flags, &f);
        REQUIRE_MSG(!root == !cases[i].tree, "%s", cases[i].text);
        char *shown = root ? json_dumps(root, JSON_ENCODE_ANY) : NULL;
        if (root) REQUIRE_EQ_STR(shown, cases[i].tree);
        if (!root) REQUIRE_EQ_STR(f.problem, cases[i].problem);
        free(shown);
        json_decref(root);
    }
}

/* Beyond every range, so that who asks for such a number refuses it. */
static void test_constants(void **state)
{
    struct jt_fault f;
    (void)state;
    json_t *root = read_text("[NaN, Infinity, -Infinity]", JR_CONSTANTS, &f);
    for (size_t i = 0; i < 3; i++) {
        const json_t *n = json_array_get(root, i);
        REQUIRE(json_is_real(n) && (i < 2 ? 1 : -1) * json_real_value(n) > 1e300);
    }
    json_decref(root);
}

static void test_limits(void **state)
{
    struct jt_fault f;
    char deep[2 * JT_MAX_DEPTH + 8];
    (void)state;
    json_decref(read_text("[1,2,3,4,5,6,7,8,9]", 0, &f));
    REQUIRE(!read_text("[1,2,3,4,5,6,7,8,9,10]", 0, &f) &&
            !strcmp(f.problem, "more than 10 values"));
    for (int n = JT_MAX_DEPTH; n <= JT_MAX_DEPTH + 1; n++) {
        json_t *root = NULL;
        char err[100];
        memset(deep, '[', (size_t)n);
        memset(deep + n, ']', (size_t)n);
        deep[2 * n] = '\0';
        int rc = jt_read_file(&root, "f.json", deep, 2 * (size_t)n, 0, err, sizeof(err));
        REQUIRE(rc == (n > JT_MAX_DEPTH ? JR_EINVAL : 0));
        if (rc) REQUIRE_EQ_STR(err, "f.json: line 1: more than 160 levels");
        json_decref(root);
    }
    /* The bytes behind the text are another's. */
    const struct jt_params params = {.max_values = 10};
    json_t *root;
    REQUIRE(jt_read(&root, "[12345", 3, &params, &f) && *f.problem);
}

static void test_sentences(void **state)
{
    static const struct {
        const char *text, *err;
    } cases[] = {
        {"{\n\"a\": x}", "f.json: line 2: expected a value"},
        {"{\"a\":1,\n\n\"b\\u001b\":1,\"b\\u001b\":2}",
         "f.json: line 3: a key that comes twice, b\\x1b"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        json_t *root = NULL;
        char err[100];
        int rc = jt_read_file(&root, "f.json", cases[i].text, strlen(cases[i].text), 0, err,
                              sizeof(err));
        REQUIRE(rc == JR_EINVAL && !root);
        REQUIRE_EQ_STR(err, cases[i].err);
    }
}

/* ---- memory -------------------------------------------------------------------------------- */

static long n_allocations, fails_at;

static void *count_alloc(size_t size)
{
    return ++n_allocations == fails_at ? NULL : malloc(size);
}

/* Strings longer than any buffer that begins small, escapes, and an object that must grow. */
static void test_no_memory(void **state)
{
    char text[8192] = "{\"list\":[1,2.5,null,true,[[],{}],\"", *end = text + strlen(text);
    int n_failures = 0;
    (void)state;
    memset(end, 'x', 3000);
    end += 3000 + sprintf(end + 3000, "\\n\"],\"more\":{");
    for (int i = 0; i < 100; i++)
        end += sprintf(end, "%s\"key %d\":\"value\\t%d\"", i ? "," : "", i, i);
    memcpy(end, "}}", 3);
    json_set_alloc_funcs(count_alloc, free);
    for (long k = 1; k <= n_allocations + 1; k++) {
        json_t *root = NULL;
        char err[100] = "";
        n_allocations = 0;
        fails_at = k;
        int rc = jt_read_file(&root, "f", text, strlen(text), 0, err, sizeof(err));
        REQUIRE(rc == (n_allocations < k ? 0 : JR_ENOMEM) && !root == (rc != 0));
        if (rc) REQUIRE_EQ_STR(err, "f: out of memory");
        if (!rc) REQUIRE_EQ_INT(json_object_size(json_object_get(root, "more")), 100);
        n_failures += rc != 0;
        json_decref(root);
    }
    REQUIRE_MSG(n_failures > 200, "%d", n_failures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags),     cmocka_unit_test(test_constants),
        cmocka_unit_test(test_limits),    cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
