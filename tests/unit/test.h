/* SPDX-License-Identifier: MIT */
/*
 * Included by every unit test: cmocka with the headers it needs before it, checks that print both
 * values, and the way to skip. One program per source file; table-driven if there are cases.
 */
#pragma once

/* clang-format off: cmocka.h needs these four before it */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exit status that Meson counts as skipped. */
#define TEST_SKIPPED 77

#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);                       \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

/* As REQUIRE, with a printf-style note on which case it was. */
#define REQUIRE_MSG(cond, ...)                                                                     \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("%s:%d: not true: %s: ", __FILE__, __LINE__, #cond);                       \
            print_error(__VA_ARGS__);                                                              \
            print_error("\n");                                                                     \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

#define REQUIRE_EQ_INT(a, b)                                                                       \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_) {                                                                            \
            print_error("%s:%d: %s = %lld, %s = %lld\n", __FILE__, __LINE__, #a, a_, #b, b_);      \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

#define REQUIRE_EQ_STR(a, b)                                                                       \
    do {                                                                                           \
        const char *a_ = (a), *b_ = (b);                                                           \
        if (!a_ || !b_ || strcmp(a_, b_) != 0) {                                                   \
            print_error("%s:%d: %s = \"%s\", %s = \"%s\"\n", __FILE__, __LINE__, #a,               \
                        a_ ? a_ : "(null)", #b, b_ ? b_ : "(null)");                               \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The root of the source tree, where fixtures are found. */
static inline const char *test_source_root(void)
{
    const char *root = getenv("HEARTH_SOURCE_ROOT");
    return root ? root : ".";
}

/* Reference data kept outside the repository, or NULL: then the test returns TEST_SKIPPED. */
static inline const char *test_reference(void)
{
    const char *dir = getenv("HEARTH_REFERENCE");
    return dir && *dir ? dir : NULL;
}
