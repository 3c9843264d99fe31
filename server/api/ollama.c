/* SPDX-License-Identifier: MIT */
/*
 * POST /api/chat and /api/generate: Ollama's dialect. Without messages or a prompt they load the
 * model, or with `keep_alive: 0` unload it.
 */
#include <string.h>

#include "server/api/generate.h"
#include "server/api/ollama_input.h"
#include "server/api/read/chat_input.h"
#include "server/api/routes.h"
#include "server/api/write/dialects.h"
#include "server/models/app.h"

#define SHARED_FIELDS                                                                              \
    GEN_FLAG("stream", stream, true, "answer in lines of JSON"),                                   \
        GEN_FIELD("options", PARAM_JSON, options, NULL,                                            \
                  "sampling, `seed`, `stop`, `num_predict`; others have no effect, and are named " \
                  "in `x-ignored-params`"),                                                        \
        GEN_NAME("format", PARAM_IGNORED, NULL, "`\"json\"`, or a JSON schema"),                   \
        GEN_NAME("think", PARAM_IGNORED, "the template's own",                                     \
                 "reasoning on or off, or `low`, `medium`, `high`, `max`"),                        \
        GEN_FLAG("logprobs", logprobs_flag, false, "log-probability and bytes of each token"),     \
        GEN_INT("top_logprobs", top_logprobs, 0, GEN_MAX_LOGPROBS, -1, "0",                        \
                "alternatives per token"),                                                         \
        GEN_NAME("keep_alive", PARAM_IGNORED, NULL,                                                \
                 "0 without messages or a prompt unloads the model; else no effect"),              \
        GEN_IGNORED("shift")

const struct param_field srv_fields_ollama_chat[] = {
    GEN_FIELD("messages", PARAM_JSON, messages, NULL,
              "the conversation; a result of a tool belongs to the call of its `tool_call_id`, of "
              "its `tool_name`, or to the first without a result"),
    GEN_NAME("tools", PARAM_IGNORED, NULL, "functions that the model may call ([tools](tools.md))"),
    GEN_FLAG("truncate", truncate, true,
             "[the oldest turns go](tools.md#long-conversations) if the context is full"),
    SHARED_FIELDS,
    {0},
};

const struct param_field srv_fields_ollama_generate[] = {
    GEN_FIELD("prompt", PARAM_JSON, prompt, NULL, "the text of one turn of the user"),
    GEN_FIELD("system", PARAM_JSON, extra, NULL, "the system prompt"),
    GEN_FLAG("raw", raw, false, "the prompt is not put into the chat template"),
    GEN_FIELD("suffix", PARAM_STRING, suffix, NULL,
              "the text after the answer ([a text with a hole](infill.md))"),
    GEN_REFUSED("template"),
    GEN_REFUSED("context"),
    GEN_REFUSED("images"),
    GEN_IGNORED("truncate"),
    SHARED_FIELDS,
    {0},
};

/* ---- both ---------------------------------------------------------------------------------- */

static int check_think(const struct srv_gen *g)
{
    const json_t *think = json_object_get(g->body.root, "think");
    const char *word = json_string_value(think);
    bool asks = json_is_true(think) || (word && strcmp(word, "none") != 0);
    if (!asks || g->served->style.think_open[0]) return 0;
    return param_fail(SRV_ERR_UNSUPPORTED, "think", "\"%.80s\" does not support thinking",
                      g->model);
}

/* There is nothing to answer: the model is loaded by now, or leaves if the client may say so. */
static int load_only(struct srv_gen *g, bool unloads)
{
    struct srv_facts *facts = srv_facts(g->req);
    int n_draining;
    bool gone =
        unloads && facts->may_operate &&
        srv_models_unload(&facts->app->models, facts->entry, &n_draining, NULL) == SRV_UNLOAD_OK;
    if (unloads && !gone) param_note(&g->unknown, "keep_alive");
    if (param_name_ignored(g->req, &g->unknown)) return -1;
    srv_write_ollama_reason(g, gone ? "unload" : "load");
    return SRV_GEN_ANSWERED;
}

/* Reads the shared fields. `empty`: the request asks for no answer. Returns 0, SRV_GEN_ANSWERED, or
 * -1 after param_fail. */
static int prepare_both(struct srv_gen *g, bool empty)
{
    struct srv_gen_params *p = &g->params;
    const json_t *kept = json_object_get(g->body.root, "keep_alive");
    bool now;
    if (ollama_read_keep_alive(g->body.root, &now) || check_think(g) ||
        guide_ask_read_ollama(&g->guide.ask, &g->body))
        return -1;
    if (empty) return load_only(g, now);
    if (kept && !json_is_null(kept)) param_note(&g->unknown, "keep_alive");
    if (p->logprobs_flag) p->logprobs_count = p->top_logprobs > 0 ? p->top_logprobs : 0;
    p->want_logprobs = p->logprobs_flag;
    return 0;
}

static int prepare_chat(struct srv_gen *g)
{
    const json_t *given = g->params.messages;
    int rc = prepare_both(g, !given || (json_is_array(given) && !json_array_size(given)));
    if (rc) return rc;
    if (!json_is_array(given))
        return param_fail(SRV_ERR_INVALID_TYPE, "messages", "'messages' must be an array.");
    json_auto_t *messages = ollama_messages(&g->body, given);
    struct chat_input in = {.messages = messages,
                            .field = "messages",
                            .add_generation_prompt = true,
                            .continue_final_message = chat_input_ends_open(messages)};
    if (srv_json_ran_out()) return param_no_memory();
    return messages ? srv_gen_chat_prompt(g, &in, NULL) : -1;
}

/* ---- generate ------------------------------------------------------------------------------ */

/* The prompt is the turn of a user. */
static int make_turn(struct srv_gen *g, json_t *system)
{
    json_auto_t *messages = json_array();
    if (json_string_length(system) > 0)
        json_array_append_new(messages,
                              json_pack("{s:s, s:O}", "role", "system", "content", system));
    json_array_append_new(messages,
                          json_pack("{s:s, s:O}", "role", "user", "content", g->params.prompt));
    struct chat_input in = {.messages = messages, .field = "prompt", .add_generation_prompt = true};
    return srv_json_ran_out() ? param_no_memory() : srv_gen_chat_prompt(g, &in, "prompt");
}

/* The prompt as it stands, or the text before a hole. */
static int make_text(struct srv_gen *g)
{
    struct srv_gen_params *p = &g->params;
    bool logged = p->want_logprobs;
    if (p->suffix && g->served->fim.id[TOK_FIM_PREFIX] < 0)
        return param_fail(SRV_ERR_UNSUPPORTED, "suffix", "\"%.80s\" does not support insert",
                          g->model);
    p->add_special = true;
    g->tools.can_reason = false;
    srv_gen_default_tokens(g, eng_info(g->served->engine)->ctx_tokens);
    int rc = srv_completion_prompt(g);
    p->want_logprobs = logged;
    return rc || param_name_ignored(g->req, &g->unknown) ? -1 : 0;
}

static int prepare_generate(struct srv_gen *g)
{
    struct srv_gen_params *p = &g->params;
    json_t *system = p->extra;
    if (p->prompt && !json_is_string(p->prompt))
        return param_fail(SRV_ERR_INVALID_TYPE, "prompt", "'prompt' must be a string here.");
    if (system && !json_is_string(system))
        return param_fail(SRV_ERR_INVALID_TYPE, "system", "'system' must be a string.");
    if (p->raw && json_string_length(system) > 0)
        return param_fail(SRV_ERR_INVALID_VALUE, "raw",
                          "'raw' and 'system' exclude each other: a raw prompt has no template.");
    if (p->suffix && !*p->suffix) p->suffix = NULL;
    int rc = prepare_both(g, json_string_length(p->prompt) == 0);
    if (rc) return rc;
    return p->raw || p->suffix || !g->served->chat ? make_text(g) : make_turn(g, system);
}

/* ---- routes -------------------------------------------------------------------------------- */

static const struct srv_gen_format chat = {
    .endpoint = "chat",
    .input = "messages",
    .id_prefix = "chatcmpl-",
    .dialect = TOOLS_CHAT,
    .fields = srv_fields_ollama_chat,
    .one_choice = true,
    .prepare = prepare_chat,
    .answer = &srv_write_ollama,
};

static const struct srv_gen_format generate = {
    .endpoint = "completions",
    .input = "prompt",
    .id_prefix = "cmpl-",
    .dialect = TOOLS_CHAT,
    .fields = srv_fields_ollama_generate,
    .one_choice = true,
    .prepare = prepare_generate,
    .answer = &srv_write_ollama,
};

const struct srv_route srv_routes_ollama[] = {
    {"POST", "/api/chat", SRV_ROUTE_STREAMS, SRV_DIALECT_OLLAMA, srv_gen_handle, &chat},
    {"POST", "/api/generate", SRV_ROUTE_STREAMS, SRV_DIALECT_OLLAMA, srv_gen_handle, &generate},
    {0},
};
