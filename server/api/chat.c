/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/chat/completions: messages in; role chunk, text chunks, finish chunk, usage chunk,
 * [DONE] out.
 */
#include "server/api/read/chat_input.h"
#include "server/api/read/history.h"
#include "server/api/write/dialects.h"
#include "server/api/generate.h"
#include "server/api/routes.h"

const struct param_field srv_fields_chat[] = {
    GEN_FIELD("messages", PARAM_JSON, messages, NULL, "the conversation"),
    GEN_FLAG("logprobs", logprobs_flag, false, "log-probability and bytes of each token"),
    GEN_INT("top_logprobs", top_logprobs, 0, GEN_MAX_LOGPROBS, -1, "0", "alternatives per token"),
    GEN_FLAG("choice_probabilities", choice_probabilities, false,
             "with a list of choices: the best one, and the "
             "[probabilities of all](api-routes.md#choose); no sampling, not with a stream"),
    /* tools_fields.c and tools_request.c read these */
    GEN_NAME("tools", PARAM_IGNORED, NULL, "functions that the model may call ([tools](tools.md))"),
    GEN_NAME("tool_choice", PARAM_IGNORED, "`\"auto\"` with tools",
             "`none`, `auto`, `required`, one function, or `allowed_tools`"),
    GEN_NAME("parallel_tool_calls", PARAM_IGNORED, "true", "more than one call in an answer"),
    GEN_IGNORED("functions"),
    GEN_IGNORED("function_call"),
    GEN_NAME("reasoning_effort", PARAM_IGNORED, NULL, "handed to the chat template"),
    GEN_NAME("thinking_token_budget", PARAM_IGNORED, NULL,
             "[reasoning](tools.md#reasoning) is closed after so many tokens; -1: never"),
    GEN_IGNORED("enable_thinking"),
    GEN_IGNORED("think"),
    GEN_IGNORED("thinking"),
    GEN_IGNORED("reasoning_budget"),
    GEN_NAME("reasoning_format", PARAM_IGNORED, "`--reasoning-format`",
             "none: reasoning stays in the content"),
    GEN_TRUNCATION,
    GEN_FIELD("chat_template_kwargs", PARAM_JSON, chat_template_kwargs, NULL,
              "more variables for the chat template"),
    GEN_FLAG("add_generation_prompt", add_generation_prompt, true,
             "end the prompt where the assistant begins"),
    GEN_FLAG("continue_final_message", continue_final_message, false,
             "continue the last message instead of answering it; not with "
             "`add_generation_prompt: true`"),
    {0},
};

static int prepare(struct srv_gen *g)
{
    struct srv_gen_params *p = &g->params;
    struct chat_input in = {
        .body = &g->body,
        .field = "messages",
        .kwargs = p->chat_template_kwargs,
        .add_generation_prompt = p->add_generation_prompt,
        .continue_final_message = p->continue_final_message,
    };
    if (p->top_logprobs > 0 && !p->logprobs_flag)
        return param_fail(SRV_ERR_INVALID_VALUE, "top_logprobs",
                          "'top_logprobs' is only allowed when 'logprobs' is true.");
    if (p->logprobs_flag) p->logprobs_count = p->top_logprobs > 0 ? p->top_logprobs : 0;
    p->want_logprobs = p->logprobs_flag;
    json_auto_t *messages = NULL;
    int rc = history_of_chat(p->messages, "messages", &g->unknown, &messages);
    in.messages = messages;
    return rc ? rc : srv_gen_chat_prompt(g, &in, NULL);
}

static const struct srv_gen_format format = {
    .endpoint = "chat",
    .input = "messages",
    .id_prefix = "chatcmpl-",
    .counted = "response.input_tokens", /* as in llama-server */
    .dialect = TOOLS_CHAT,
    .fields = srv_fields_chat,
    .prepare = prepare,
    .answer = &srv_write_chat,
};

const struct srv_route srv_routes_chat[] = {
    {"POST", "/v1/chat/completions/input_tokens", SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, srv_gen_count,
     &format},
    {"POST", "/v1/chat/completions", SRV_ROUTE_STREAMS | SRV_ROUTE_BARE, SRV_DIALECT_OPENAI,
     srv_gen_handle, &format},
    {0},
};
