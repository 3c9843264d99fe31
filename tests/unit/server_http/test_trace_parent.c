/* SPDX-License-Identifier: MIT */
/* The header traceparent: what is read, and what is treated as absent. */
#include "test.h"

#include <string.h>

#include "server/http/trace_parent.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"
#define FIELDS "-" TRACE "-" SPAN "-01"

static void well_formed(void **state)
{
    static const struct {
        const char *value, *kept;
    } cases[] = {
        {"00" FIELDS, "00" FIELDS},     {"00-" TRACE "-" SPAN "-ff", "00-" TRACE "-" SPAN "-ff"},
        {"01" FIELDS, "01" FIELDS},     {"cc" FIELDS "-what-comes-later", "cc" FIELDS},
        {"fe" FIELDS "-", "fe" FIELDS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char got[SRV_TRACE_PARENT_CHARS + 1] = "";
        REQUIRE(srv_trace_parent_read(got, cases[i].value, strlen(cases[i].value)));
        REQUIRE_EQ_STR(got, cases[i].kept);
    }
}

static void malformed(void **state)
{
    static const char *const cases[] = {
        "",
        "00",
        "ff" FIELDS,
        "0g" FIELDS,
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-" TRACE "-" SPAN "-1",
        "00-" TRACE "-" SPAN "-0 ",
        "00_" TRACE "-" SPAN "-01",
        "00" FIELDS "-later",
        "00" FIELDS " ",
        "01" FIELDS "x",
        " 00" FIELDS,
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char got[SRV_TRACE_PARENT_CHARS + 1] = "kept";
        REQUIRE(!srv_trace_parent_read(got, cases[i], strlen(cases[i])));
        REQUIRE_EQ_STR(got, "kept");
    }
}

/* Every cut of a good value is refused, without a look behind its end. */
static void cut(void **state)
{
    static const char whole[] = "00" FIELDS;
    (void)state;
    for (size_t len = 0; len < sizeof(whole) - 1; len++) {
        char got[SRV_TRACE_PARENT_CHARS + 1], *copy = malloc(len + 1);
        REQUIRE(copy);
        memcpy(copy, whole, len);
        REQUIRE(!srv_trace_parent_read(got, copy, len));
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_formed),
        cmocka_unit_test(malformed),
        cmocka_unit_test(cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
