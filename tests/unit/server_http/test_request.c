/* SPDX-License-Identifier: MIT */
/* A request. The header traceparent: what is read, and what is treated as absent. */
#include "open_request.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"
#define FIELDS "-" TRACE "-" SPAN "-01"

static void add_header(struct srv_request *req, const char *value, size_t len)
{
    static const char name[] = "traceparent";
    REQUIRE(srv_request_add_header(req, name, sizeof(name) - 1, value, len));
}

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
        struct srv_request *req = open_request();
        add_header(req, cases[i].value, strlen(cases[i].value));
        REQUIRE_EQ_STR(req->facts.trace_parent, cases[i].kept);
        add_header(req, "00" FIELDS, sizeof("00" FIELDS) - 1);
        REQUIRE_EQ_STR(req->facts.trace_parent, "");
        close_request(req);
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
        struct srv_request *req = open_request();
        add_header(req, cases[i], strlen(cases[i]));
        REQUIRE_EQ_STR(req->facts.trace_parent, "");
        close_request(req);
    }
}

/* Every cut of a good value is refused. */
static void cut(void **state)
{
    static const char whole[] = "00" FIELDS;
    (void)state;
    for (size_t len = 0; len < sizeof(whole) - 1; len++) {
        struct srv_request *req = open_request();
        add_header(req, whole, len);
        REQUIRE_EQ_STR(req->facts.trace_parent, "");
        close_request(req);
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
