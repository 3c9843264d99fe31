/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/responses, stateless: the request becomes a chat, the answer a response object or its
 * named stream events. Nothing is stored; previous_response_id is refused, store: true is named as
 * ignored.
 */
#include <string.h>

#include "base/auto.h"
#include "server/api/read/chat_input.h"
#include "server/api/write/dialects.h"
#include "server/api/read/history.h"
#include "server/api/generate.h"
#include "server/api/routes.h"

const struct param_field srv_fields_responses[] = {
    GEN_FIELD("input", PARAM_JSON, messages, NULL,
              "a text, or the conversation: `message`, `function_call`, `function_call_output`, "
              "`reasoning`; [of others what has text](tools.md#histories-of-another-provider)"),
    GEN_FIELD("instructions", PARAM_JSON, extra, NULL, "a system message in front"),
    GEN_INT("max_output_tokens", max_completion_tokens, 0, 1e15, -1, "the rest of the context",
            "tokens to generate"),
    GEN_FIELD("text", PARAM_JSON, prompt, NULL, NULL),
    /* tools_fields.c and tools_request.c read these */
    GEN_NAME("tools", PARAM_IGNORED, NULL,
             "`{\"type\": \"function\", \"name\", \"description\", \"parameters\", "
             "\"strict\"}`; see [tools](tools.md)"),
    GEN_NAME("tool_choice", PARAM_IGNORED, "`\"auto\"` with tools",
             "as in chat; a function is `{\"type\": \"function\", \"name\"}`"),
    GEN_NAME("parallel_tool_calls", PARAM_IGNORED, "true", "more than one call in an answer"),
    GEN_NAME("reasoning", PARAM_IGNORED, NULL, "its `effort` as chat's `reasoning_effort`"),
    GEN_NAME("thinking_token_budget", PARAM_IGNORED, NULL, "as chat's"),
    GEN_NAME("reasoning_format", PARAM_IGNORED, "`--reasoning-format`",
             "none: reasoning stays in the text"),
    GEN_TRUNCATION,
    GEN_NAME("include", PARAM_IGNORED, NULL, /* note_members reads it */
             "`message.output_text.logprobs`: log-probabilities; other values have no effect"),
    GEN_INT("top_logprobs", top_logprobs, 0, GEN_MAX_LOGPROBS, -1, "0",
            "with that value of `include`: alternatives per token; all together at most 262,144"),
    GEN_INT("max_tool_calls", max_tool_calls, 1, 1e15, -1, "none",
            "of tools that the server runs, and it runs none; repeated in the answer"),
    GEN_FIELD("user", PARAM_STRING, user, NULL, "repeated in the answer, no effect"),
    GEN_FIELD("safety_identifier", PARAM_STRING, safety_identifier, NULL,
              "repeated in the answer, no effect"),
    GEN_REFUSED("prediction"),
    GEN_REFUSED("prompt_logprobs"),
    GEN_NAMED("return_token_ids"),
    GEN_REFUSED("previous_response_id"),
    GEN_REFUSED("prompt"), /* one kept by the server */
    GEN_REFUSED("conversation"),
    GEN_REFUSED("background"),
    {0},
};

/* ---- input --------------------------------------------------------------------------------- */

enum { MAX_LOGPROBS = 1 << 18 }; /* of all tokens: an event or answer has some 100 bytes for each */

/* Values ask for additional output; note_members names those of which this server never has any. */
static int check_include(const json_t *include)
{
    if (!include || json_is_null(include)) return 0;
    bool valid = json_is_array(include);
    for (size_t i = 0; valid && i < json_array_size(include); i++)
        valid = json_is_string(json_array_get(include, i));
    if (valid) return 0;
    return param_wrong_type("include", "a list of strings");
}

/* Members without effect of objects that have some with one; those of the fields for structured
 * output are noted where these are read. */
static void note_members(struct srv_gen *g)
{
    static const char *const text[] = {"format", NULL};
    static const char *const format[] = {"type",        "name",  "schema",      "strict",
                                         "description", "value", "json_schema", NULL};
    static const char *const reasoning[] = {"effort", "summary", "generate_summary", NULL};
    const json_t *include = json_object_get(g->body.root, "include");
    const json_t *text_field = json_object_get(g->body.root, "text");
    param_note_members(&g->unknown, text_field, "text", text);
    param_note_members(&g->unknown, json_object_get(text_field, "format"), "text.format", format);
    param_note_members(&g->unknown, json_object_get(g->body.root, "reasoning"), "reasoning",
                       reasoning);
    bool logprobs = false, others = false;
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *value = json_string_value(json_array_get(include, i));
        bool known = value && !strcmp(value, "message.output_text.logprobs");
        logprobs |= known;
        others |= !known;
    }
    if (others) param_note(&g->unknown, "include");
    g->params.want_logprobs = logprobs;
    if (!logprobs && g->params.top_logprobs > 0) param_note(&g->unknown, "top_logprobs");
}

/* Every token of a long answer with its alternatives would not fit in an event. */
static int check_logprobs(const struct srv_gen *g)
{
    int64_t width = g->params.logprobs_count + 1;
    int64_t n = srv_gen_token_capacity(g, &g->prompts[0]);
    if (!g->params.want_logprobs || g->counts || n <= MAX_LOGPROBS / width) return 0;
    return param_fail(SRV_ERR_INVALID_VALUE, "top_logprobs",
                      "%lld tokens with %lld log-probabilities each are more than %d; set "
                      "'max_output_tokens' to at most %lld, or 'top_logprobs' lower.",
                      (long long)n, (long long)width, MAX_LOGPROBS,
                      (long long)(MAX_LOGPROBS / width));
}

static int check_fields(struct srv_gen *g)
{
    struct srv_gen_params *p = &g->params;
    if (p->want_logprobs) p->logprobs_count = p->top_logprobs > 0 ? p->top_logprobs : 0;
    if (!p->messages) return param_missing(g->body.root, "input");
    if (!json_is_string(p->messages) && !json_is_array(p->messages))
        return param_wrong_type("input", "a string or an array of messages");
    if (p->extra && !json_is_string(p->extra)) return param_wrong_type("instructions", "a string");
    return guide_ask_read_format(&g->guide.ask, &g->body, "text.format") ||
           check_include(json_object_get(g->body.root, "include"));
}

/* ---- what an answer repeats ---------------------------------------------------------------- */

/* A tool as sent; of a function, what was left out is null, as the Open Responses schema wants. */
static void write_tool(struct jw *w, const json_t *tool, struct srv_span text)
{
    static const char *const members[] = {"description", "parameters", "strict"};
    const char *type = json_string_value(json_object_get(tool, "type"));
    AUTO(buf_finish) struct buf b = {.max = TOOLS_TEXT_MAX + 64};
    buf_add(&b, text.text, text.len - 1);
    for (size_t i = 0; type && !strcmp(type, "function") && i < 3; i++)
        if (!json_object_get(tool, members[i])) buf_printf(&b, ",\"%s\":null", members[i]);
    buf_puts(&b, "}");
    if (!b.failed) jw_json(w, NULL, b.data, b.len);
}

static int write_tools(const struct srv_gen *g, struct srv_span *ret)
{
    const json_t *tools = json_object_get(g->body.root, "tools");
    AUTO(buf_finish) struct buf b = {.max = 2 * TOOLS_TEXT_MAX};
    struct jw w = {.out = &b};
    jw_open(&w, NULL, '[');
    for (size_t i = 0; i < json_array_size(tools); i++)
        write_tool(&w, json_array_get(tools, i), srv_body_span(&g->body, json_array_get(tools, i)));
    jw_close(&w);
    jw_end(&w);
    *ret = (struct srv_span){b.failed ? NULL : srv_request_copy(g->req, b.data, b.len), b.len};
    return ret->text ? 0 : -1;
}

static int make_echo(struct srv_gen *g)
{
    struct response_echo *e = g->dialect = srv_request_alloc(g->req, sizeof(*e));
    const json_t *root = g->body.root, *metadata = json_object_get(root, "metadata");
    if (!e || write_tools(g, &e->tools)) return param_no_memory();
    e->metadata = (struct srv_span){"{}", 2};
    if (json_is_object(metadata)) e->metadata = srv_body_span(&g->body, metadata);
    e->instructions =
        (struct srv_span){json_string_value(g->params.extra), json_string_length(g->params.extra)};
    e->prompt_cache_retention = json_string_value(json_object_get(root, "prompt_cache_retention"));
    const char *truncation = json_string_value(json_object_get(root, "truncation"));
    e->truncation = truncation ? truncation : "disabled"; /* truncate_read checks it */
    return 0;
}

/* ---- the prompt ---------------------------------------------------------------------------- */

static int make_prompt(struct srv_gen *g)
{
    if (check_fields(g) || make_echo(g)) return -1;
    json_auto_t *ends = json_array(), *messages = responses_to_chat(&g->body, ends, &g->unknown);
    struct chat_input in = {
        .messages = messages, .ends = ends, .field = "input", .add_generation_prompt = true};
    const char *first = g->params.extra ? "instructions" : NULL;
    if (srv_json_ran_out()) return param_no_memory();
    if (!messages) return -1;
    return srv_gen_chat_prompt(g, &in, first) || check_logprobs(g) ? -1 : 0;
}

static const struct srv_gen_format format = {
    .endpoint = "responses",
    .input = "input",
    .id_prefix = "resp_",
    .counted = "response.input_tokens",
    .dialect = TOOLS_RESPONSES,
    .fields = srv_fields_responses,
    .note = note_members,
    .one_choice = true,
    .prepare = make_prompt,
    .answer = &srv_write_responses,
};

const struct srv_route srv_routes_responses[] = {
    {"POST", "/v1/responses/input_tokens", SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, srv_gen_count,
     &format},
    {"POST", "/v1/responses", SRV_ROUTE_STREAMS | SRV_ROUTE_BARE, SRV_DIALECT_TYPED, srv_gen_handle,
     &format},
    {0},
};
