/* SPDX-License-Identifier: MIT */
/* The bounded buffer: its bound, and its failure. */
#include "test.h"

#include "base/buf.h"

static void grows_to_its_maximum_and_no_further(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b, 1000);
    for (int i = 0; i < 1000; i++)
        buf_add(&b, "x", 1);
    REQUIRE(!b.failed);
    REQUIRE_EQ_INT(b.len, 1000);
    REQUIRE_EQ_INT(strlen(b.data), 1000);
    buf_add(&b, "y", 1);
    REQUIRE(b.failed);
    REQUIRE_EQ_INT(b.len, 1000);
    buf_add(&b, "", 0); /* a failed buffer stays failed */
    REQUIRE(b.failed);
    buf_clear(&b);
    REQUIRE(!b.failed && b.len == 0);
    buf_puts(&b, "again");
    REQUIRE_EQ_STR(b.data, "again");
    buf_finish(&b);
    buf_finish(&b);
}

static void printf_that_does_not_fit_changes_nothing(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b, 8);
    buf_printf(&b, "%d", 1234);
    buf_printf(&b, "%s", "12345");
    REQUIRE(b.failed);
    REQUIRE_EQ_STR(b.data, "1234");
    buf_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_to_its_maximum_and_no_further),
        cmocka_unit_test(printf_that_does_not_fit_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
