/* SPDX-License-Identifier: MIT */
/* GET /openapi.json: the description of this API, server/api/openapi.json as it was built in. */
#include "server/api/routes.h"
#include "server/embedded.h"

static void handle(struct srv_request *req)
{
    struct buf b = {.max = 1 << 20};
    srv_facts(req)->account.endpoint = "openapi";
    buf_add(&b, (const char *)srv_embedded_openapi_json, srv_embedded_openapi_json_bytes);
    srv_reply(req, 200, NULL, &b);
}

const struct srv_route srv_routes_openapi[] = {
    {"GET", "/openapi.json", SRV_ROUTE_INLINE | SRV_ROUTE_EARLY, SRV_DIALECT_OPENAI, handle, NULL},
    {0},
};
