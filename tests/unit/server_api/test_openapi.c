/* SPDX-License-Identifier: MIT */
/* GET /openapi.json: whole, and of every route that a client may ask. */
#include "local_server.h"

static void the_description(void **state)
{
    (void)state;
    send_request("GET", "/openapi.json", NULL, NULL);
    REQUIRE_EQ_INT(answered.status, 200);
    REQUIRE_EQ_STR(header_of("Content-Type") ? header_of("Content-Type") : "-",
                   "-"); /* JSON, as of any answer */
    REQUIRE(answered.json && !strncmp(at("openapi"), "3.", 2));
    const json_t *paths = json_object_get(answered.json, "paths");
    REQUIRE(json_object_get(json_object_get(paths, "/v1/chat/completions"), "post"));
    REQUIRE(json_object_get(json_object_get(paths, "/v1/models"), "get"));
}

static void while_the_model_loads(void **state)
{
    (void)state;
    atomic_store(&local.core.app.state, SRV_LOADING);
    send_request("GET", "/openapi.json", NULL, NULL);
    int status = answered.status;
    send_request("POST", "/openapi.json", "{}", NULL);
    atomic_store(&local.core.app.state, SRV_READY);
    REQUIRE_EQ_INT(status, 200);
    REQUIRE_EQ_INT(answered.status, 405);
    REQUIRE(strstr(header_of("Allow"), "GET"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_description),
        cmocka_unit_test(while_the_model_loads),
    };
    return cmocka_run_group_tests(tests, open_demo, close_server);
}
