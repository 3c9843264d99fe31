/* SPDX-License-Identifier: MIT */
/* The list of route tables: one for each endpoint file. */
#include "server/api.h"

extern const struct srv_route srv_routes_completions[];
extern const struct srv_route srv_routes_chat[];
extern const struct srv_route srv_routes_models[];
extern const struct srv_route srv_routes_tokenize[];
extern const struct srv_route srv_routes_props[];
extern const struct srv_route srv_routes_health[];
extern const struct srv_route srv_routes_responses[];
extern const struct srv_route srv_routes_messages[];
extern const struct srv_route srv_routes_embeddings[];
extern const struct srv_route srv_routes_openapi[];

const struct srv_route *const srv_route_tables[] = {
    srv_routes_completions,
    srv_routes_chat,
    srv_routes_models,
    srv_routes_tokenize,
    srv_routes_props,
    srv_routes_health,
    srv_routes_responses,
    srv_routes_messages,
    srv_routes_embeddings,
    srv_routes_openapi,
    NULL,
};
