/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/messages and /v1/messages/count_tokens: the Anthropic dialect, stateless; text, thinking
 * and calls of tools.
 */

#include "server/api/read/cache_fields.h"
#include "server/api/read/chat_input.h"
#include "server/api/read/history.h"
#include "server/api/write/dialects.h"
#include "server/api/generate.h"
#include "server/api/routes.h"

const struct param_field srv_fields_messages[] = {
    GEN_FIELD(
        "messages", PARAM_JSON, messages, NULL,
        "roles `user`, `assistant` and, for instructions on the way, `system` (with a template "
        "that refuses it there, a `<system-reminder>` in the next user message); blocks "
        "`text`, `tool_use`, `tool_result`, `thinking`, `document` (of text), "
        "`search_result`; [of others what has text](tools.md#histories-of-another-provider)"),
    GEN_NAME("system", PARAM_IGNORED, NULL, "the system prompt"), /* messages_input.c reads it */
    GEN_FIELD("stop_sequences", PARAM_JSON, stop, NULL, "end before one of these texts"),
    /* tools_fields.c and tools_request.c read these */
    GEN_NAME("tools", PARAM_IGNORED, NULL,
             "`{\"name\", \"description\", \"input_schema\", \"strict\"}`; see "
             "[tools](tools.md)"),
    GEN_NAME("tool_choice", PARAM_IGNORED, "auto with tools",
             "type `auto`, `any`, `tool` with a `name`, or `none`; `disable_parallel_tool_use`"),
    GEN_NAME("thinking", PARAM_IGNORED, NULL,
             "type `enabled`, `adaptive` or `disabled`; `budget_tokens` as chat's "
             "`thinking_token_budget`"),
    GEN_NAME("reasoning_format", PARAM_IGNORED, "`--reasoning-format`",
             "none: reasoning stays in the text"),
    GEN_TRUNCATION,
    GEN_NAME("cache_control", PARAM_IGNORED, NULL, /* cache_control.c reads it */
             "`{\"type\": \"ephemeral\"}`, `ttl` `\"5m\"` or `\"1h\"`; also on tools and "
             "blocks, 4 in all: [kept in the cache](api.md#cached-prompts)"),
    GEN_NAME("output_config", PARAM_NAMED, NULL,
             "its `format` is [structured output](structured-output.md), the rest has no effect"),
    GEN_IGNORED("thread"), /* prepare refuses it */
    /* clang-format off */
    GEN_IGNORED("output_format"), GEN_REFUSED("prediction"), GEN_REFUSED("prompt_logprobs"),
    GEN_REFUSED("mcp_servers"), GEN_REFUSED("container"), GEN_NAMED("return_token_ids"),
    GEN_NAMED("timings"), GEN_NAMED("timings_per_token"), GEN_NAMED("return_progress"),
    /* clang-format on */
    {0},
};

/* ---- input --------------------------------------------------------------------------------- */

static int check_max_tokens(const struct srv_gen *g)
{
    if (g->counts || g->max_tokens > 0) return 0;
    if (g->max_tokens == 0)
        return param_fail(SRV_ERR_INVALID_VALUE, "max_tokens",
                          "'max_tokens' is 0, but must be at least 1.");
    return param_fail(SRV_ERR_MISSING, "max_tokens", "The parameter 'max_tokens' is required.");
}

static int prepare(struct srv_gen *g)
{
    if (check_max_tokens(g)) return -1;
    if (!g->params.messages) return param_missing(g->body.root, "messages");
    const json_t *thread = json_object_get(g->body.root, "thread");
    if (thread && !json_is_null(thread))
        return param_fail(SRV_ERR_THREAD, "thread",
                          "'thread' is not supported; send the whole conversation without it.");
    if (cache_control_check(g->body.root) ||
        guide_ask_read_format(&g->guide.ask, &g->body, "output_config.format") ||
        guide_ask_read_format(&g->guide.ask, &g->body, "output_format"))
        return -1;
    json_auto_t *ends = json_array(), *messages = messages_to_chat(&g->body, ends, &g->unknown);
    struct chat_input in = {.messages = messages,
                            .ends = ends,
                            .field = "messages",
                            .add_generation_prompt = true,
                            .continue_final_message = chat_input_ends_open(messages)};
    const json_t *system = json_object_get(g->body.root, "system");
    const char *place = json_is_array(system)    ? "system.0"
                        : json_is_string(system) ? "system"
                                                 : "messages.0";
    if (srv_json_ran_out()) return param_no_memory();
    if (!messages) return -1;
    return srv_gen_chat_prompt(g, &in, place);
}

static const struct srv_gen_format format = {
    .endpoint = "messages",
    .input = "messages",
    .id_prefix = "msg_",
    .dialect = TOOLS_MESSAGES,
    .fields = srv_fields_messages,
    .prepare = prepare,
    .one_choice = true,
    .answer = &srv_write_messages,
};

const struct srv_route srv_routes_messages[] = {
    {"POST", "/v1/messages", SRV_ROUTE_STREAMS, SRV_DIALECT_ANTHROPIC, srv_gen_handle, &format},
    {"POST", "/v1/messages/count_tokens", 0, SRV_DIALECT_ANTHROPIC, srv_gen_count, &format},
    {0},
};
