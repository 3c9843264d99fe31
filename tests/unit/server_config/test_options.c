/* SPDX-License-Identifier: MIT */
/* The options table: every row is complete, and no two share a name or a field. */
#include "test.h"

#include "server/config/options.h"

static void table_is_consistent(void **state)
{
    (void)state;
    REQUIRE(srv_n_options < 192); /* MAX_OPTIONS of load.c */
    for (int i = 0; i < srv_n_options; i++) {
        const struct srv_option *o = &srv_options[i];
        REQUIRE(o->key && o->help && o->group && o->commands);
        REQUIRE_EQ_INT(strncmp(o->key, "no-", 3) == 0, 0);
        for (int k = 0; k < i; k++) {
            REQUIRE_MSG(strcmp(srv_options[k].key, o->key) != 0, "%s twice", o->key);
            REQUIRE_MSG(srv_options[k].offset != o->offset, "%s and %s share a field", o->key,
                        srv_options[k].key);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
