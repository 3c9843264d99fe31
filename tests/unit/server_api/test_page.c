/* SPDX-License-Identifier: MIT */
/* GET /: the page as it is or packed, known copies, its policy, and where there is none. */
#include "local_server.h"

static void get(const char *name, const char *value)
{
    const char *const headers[] = {"Accept", "text/html,*/*;q=0.8", name, value, NULL};
    send_request("GET", "/", NULL, headers);
}

static void the_page(void **state)
{
    (void)state;
    get(NULL, NULL);
    REQUIRE_EQ_INT(answered.status, 200);
    REQUIRE(strstr(answered.text.data, "<script") && !header_of("Content-Encoding"));
    REQUIRE_EQ_STR(header_of("Cache-Control"), "no-cache");
    REQUIRE_EQ_STR(header_of("Vary"), "Accept, Accept-Encoding");
    REQUIRE_EQ_STR(header_of("X-Frame-Options"), "DENY");
    REQUIRE_EQ_STR(header_of("X-Content-Type-Options"), "nosniff");
    REQUIRE_EQ_STR(header_of("Referrer-Policy"), "no-referrer");
    const char *policy = header_of("Content-Security-Policy");
    REQUIRE_MSG(policy && strstr(policy, "default-src 'none'; script-src 'sha") &&
                    strstr(policy, "style-src 'sha") && strstr(policy, "connect-src 'self'"),
                "%s", policy);
}

static void packed_if_wanted(void **state)
{
    static const struct {
        const char *accepts;
        bool packed;
    } rows[] = {{"gzip", true},          {"br, GZIP;q=0.5", true}, {"gzip;q=0", false},
                {"gzip; q=0.00", false}, {"gzip;q=0.001", true},   {"identity", false},
                {"xgzip", false},        {"deflate , gzip", true}, {"br;q=0, gzip", true}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        get("Accept-Encoding", rows[i].accepts);
        const char *encoding = header_of("Content-Encoding");
        REQUIRE_MSG((encoding != NULL) == rows[i].packed, "%s", rows[i].accepts);
        REQUIRE(!encoding ||
                (!strcmp(encoding, "gzip") && !memcmp(answered.text.data, "\x1f\x8b", 2)));
    }
}

static void a_known_copy_is_not_sent(void **state)
{
    char tag[128], list[400];
    (void)state;
    get(NULL, NULL);
    snprintf(tag, sizeof(tag), "%s", header_of("ETag"));
    const char *known[] = {tag, "*", list};
    snprintf(list, sizeof(list), "\"x\", W/%s", tag);
    for (int i = 0; i < 3; i++) {
        get("If-None-Match", known[i]);
        REQUIRE_MSG(answered.status == 304 && !answered.text.len, "%s", known[i]);
        REQUIRE_EQ_STR(header_of("ETag"), tag);
    }
    get("If-None-Match", "\"x\"");
    REQUIRE_EQ_INT(answered.status, 200);
    const char *const both[] = {"Accept", "text/html", "If-None-Match", tag, "Accept-Encoding",
                                "gzip",   NULL};
    send_request("GET", "/", NULL, both); /* the packed copy has a tag of its own */
    REQUIRE_EQ_INT(answered.status, 200);
}

/* Clients that know servers by their words accept anything. */
static void others_are_greeted(void **state)
{
    const char *const any[] = {"Accept", "*/*", NULL};
    (void)state;
    for (int i = 0; i < 2; i++) {
        send_request("GET", "/", NULL, i ? any : NULL);
        REQUIRE_EQ_INT(answered.status, 200);
        REQUIRE_EQ_STR(answered.text.data, "Ollama is running");
        REQUIRE_EQ_STR(header_of("Vary"), "Accept, Accept-Encoding");
    }
}

static void it_can_be_off(void **state)
{
    (void)state;
    local.config.page = false;
    get(NULL, NULL);
    local.config.page = true;
    REQUIRE_EQ_INT(answered.status, 404);
    REQUIRE_EQ_STR(at("error.code"), "unknown_url");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page),
        cmocka_unit_test(packed_if_wanted),
        cmocka_unit_test(a_known_copy_is_not_sent),
        cmocka_unit_test(others_are_greeted),
        cmocka_unit_test(it_can_be_off),
    };
    return cmocka_run_group_tests(tests, open_demo, close_server);
}
