/* SPDX-License-Identifier: MIT */
/* The list of route tables: one for each endpoint file. */
#include "server/api/routes.h"

#include <stddef.h>

/* clang-format off */
const struct srv_route *const srv_route_tables[] = {
    srv_routes_files,       srv_routes_batches,
    srv_routes_completions, srv_routes_chat,          srv_routes_models,
    srv_routes_tokenize,    srv_routes_props,         srv_routes_health,
    srv_routes_responses,   srv_routes_messages,      srv_routes_embeddings,
    srv_routes_choose,      srv_routes_classify,      srv_routes_rerank,
    srv_routes_ollama,      srv_routes_ollama_models, srv_routes_openapi,
    srv_routes_page,        srv_routes_swap,          srv_routes_lora,
    NULL,
};
/* clang-format on */
