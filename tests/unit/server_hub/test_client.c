/* SPDX-License-Identifier: MIT */
/* Header fields of the hub: taken only if they are exactly as expected. */
#include "test.h"

#include "server/hub/client.h"

enum { NOW = 1000000000 }; /* Sun, 09 Sep 2001 01:46:40 GMT */

static void content_range(void **state)
{
    static const char *const refused[] = {
        "bytes 10-98/100",  "bytes 9-99/100",   "bytes 10-99/101", "bytes 10-99/*",
        "bytes 10-99/100 ", "bytes=10-99/100",  "bytes */100",     "",
        "bytes 10-99",      "bytes 010-99/100", "items 10-99/100", "bytes 10-99/100, x",
    };
    (void)state;
    REQUIRE(hub_range_is("bytes 10-99/100", 10, 100));
    REQUIRE(
        hub_range_is("bytes 0-4611686018427387902/4611686018427387903", 0, 4611686018427387903));
    for (size_t i = 0; i < N_OF(refused); i++)
        REQUIRE_MSG(!hub_range_is(refused[i], 10, 100), "%s", refused[i]);
}

static void link_next(void **state)
{
    static const struct {
        const char *text, *wanted; /* NULL: none */
    } cases[] = {
        {"<https://h/x?cursor=2>; rel=\"next\"", "https://h/x?cursor=2"},
        {"<https://h/a>; rel=\"prev\", <https://h/b>; rel=\"next\"", "https://h/b"},
        {"<https://h/a,b>; title=\"x, y\"; rel=\"next\"", "https://h/a,b"},
        {"<https://h/a>; rel=\"prev\"", NULL},
        {"https://h/a; rel=\"next\"", NULL},
        {"<https://h/a", NULL},
        {"", NULL},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char url[64] = "";
        int rc = hub_link_next(cases[i].text, url, sizeof(url));
        REQUIRE_MSG((rc == 0) == (cases[i].wanted != NULL), "%s", cases[i].text);
        if (cases[i].wanted) REQUIRE_EQ_STR(url, cases[i].wanted);
    }
    char small[8];
    REQUIRE(hub_link_next("<https://h/long>; rel=\"next\"", small, sizeof(small)) < 0);
}

static void waits(void **state)
{
    (void)state;
    REQUIRE_EQ_INT(hub_retry_after("120", NOW), 120);
    REQUIRE_EQ_INT(hub_retry_after("0", NOW), 0);
    REQUIRE_EQ_INT(hub_retry_after("Sun, 09 Sep 2001 01:47:40 GMT", NOW), 60);
    REQUIRE(hub_retry_after("Sun, 09 Sep 2001 01:45:40 GMT", NOW) <= 0);
    REQUIRE_EQ_INT(hub_retry_after("", NOW), -1);
    REQUIRE_EQ_INT(hub_retry_after("soon", NOW), -1);
    REQUIRE_EQ_INT(hub_retry_after("-5", NOW), -1);
    REQUIRE_EQ_INT(hub_rate_limit("\"api\";r=0;t=55"), 55);
    REQUIRE_EQ_INT(hub_rate_limit("\"api\";r=3;t=55"), -1);
    REQUIRE_EQ_INT(hub_rate_limit("nonsense"), -1);
    REQUIRE_EQ_INT(hub_rate_limit(""), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_range),
        cmocka_unit_test(link_next),
        cmocka_unit_test(waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
