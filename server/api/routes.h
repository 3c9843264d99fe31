/* SPDX-License-Identifier: MIT */
/* The API's routes: a table for each endpoint file, ended by a row with a NULL method, and the list
 * of all tables, ended by NULL. Const. */
#ifndef HEARTH_SERVER_API_ROUTES_H
#define HEARTH_SERVER_API_ROUTES_H

#include "server/http/endpoint.h"

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
extern const struct srv_route srv_routes_page[];
extern const struct srv_route srv_routes_swap[];

extern const struct srv_route *const srv_route_tables[];

#endif
