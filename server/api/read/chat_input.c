/* SPDX-License-Identifier: MIT */
/* Messages to prompt; see chat_input.h. Called on text workers. */
#include "server/api/read/chat_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/read/metadata_lines.h"
#include "server/config/config.h"
#include "server/api/read/json_fields.h"
#include "server/api/read/tools_request.h"
#include "server/models/app.h"

enum { MAX_MESSAGES = 4096 };

/* The path of a member of a message; fields are short, and paths of messages too. */
static const char *path_in(const char *message, const char *field, char path[PARAM_PATH_MAX])
{
    snprintf(path, PARAM_PATH_MAX, "%.40s%.54s", message, field);
    return path;
}

static int bad_type(const char *at, const char *field, const char *wanted)
{
    char path[PARAM_PATH_MAX];
    path_in(at, field, path);
    return param_wrong_type(path, wanted);
}

static int check_part(const json_t *part, const char *path, bool is_result)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!json_is_object(part) || !type) return param_wrong_type(path, "an object with a type");
    if (strcmp(type, "text") != 0) {
        char word[PARAM_WORD_MAX];
        if (is_result)
            return param_fail(SRV_ERR_UNSUPPORTED, path, "Only text is supported in tool results.");
        return param_fail(SRV_ERR_UNSUPPORTED, path,
                          "'%s' is of type '%s'; only content parts of type 'text' are supported.",
                          path, param_word(type, word));
    }
    if (!json_is_string(json_object_get(part, "text")))
        return param_fail(SRV_ERR_INVALID_TYPE, path, "'%s.text' must be a string.", path);
    return 0;
}

static int check_content(const json_t *message, const char *at, const char *role)
{
    const json_t *content = json_object_get(message, "content");
    bool has_calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
    char path[PARAM_PATH_MAX], field[32];
    if (!content || json_is_null(content)) {
        if (!strcmp(role, "assistant") && (has_calls || content)) return 0;
        path_in(at, ".content", path);
        return param_fail(SRV_ERR_MISSING, path, "'%s' is required.", path);
    }
    if (json_is_string(content)) return 0;
    if (!json_is_array(content))
        return bad_type(at, ".content", "a string or an array of content parts");
    for (size_t k = 0; k < json_array_size(content); k++) {
        snprintf(field, sizeof(field), ".content[%zu]", k);
        path_in(at, field, path);
        if (check_part(json_array_get(content, k), path, !strcmp(role, "tool"))) return -1;
    }
    return 0;
}

static int check_call(const json_t *call, const char *at, size_t k)
{
    char path[PARAM_PATH_MAX], of[64];
    const json_t *function = json_object_get(call, "function");
    snprintf(of, sizeof(of), ".tool_calls[%zu].function", k);
    path_in(at, of, path);
    if (!json_is_object(function))
        return param_fail(function ? SRV_ERR_INVALID_TYPE : SRV_ERR_MISSING, path,
                          "'%s' is required, an object.", path);
    snprintf(of, sizeof(of), ".tool_calls[%zu].function.name", k);
    if (param_check_string(json_object_get(function, "name"), path_in(at, of, path))) return -1;
    snprintf(of, sizeof(of), ".tool_calls[%zu].function.arguments", k);
    return param_check_string(json_object_get(function, "arguments"), path_in(at, of, path));
}

/* The calls of the assistant, and the call that a result belongs to. */
static int check_calls(const json_t *message, const char *at, const char *role)
{
    char path[PARAM_PATH_MAX];
    const json_t *calls = json_object_get(message, "tool_calls");
    if (!strcmp(role, "tool"))
        return param_check_string(json_object_get(message, "tool_call_id"),
                                  path_in(at, ".tool_call_id", path));
    if (strcmp(role, "assistant") != 0 || !calls || json_is_null(calls)) return 0;
    if (!json_is_array(calls)) return bad_type(at, ".tool_calls", "an array of calls");
    for (size_t k = 0; k < json_array_size(calls); k++)
        if (check_call(json_array_get(calls, k), at, k)) return -1;
    return 0;
}

int chat_input_check_message(const json_t *message, const char *at)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant",
                                        "tool",   "function",  NULL};
    if (!json_is_object(message)) return bad_type(at, "", "an object");
    const json_t *role = json_object_get(message, "role");
    char path[PARAM_PATH_MAX];
    path_in(at, ".role", path);
    if (!role) return param_fail(SRV_ERR_MISSING, path, "'%s' is required.", path);
    if (!json_is_string(role)) return bad_type(at, ".role", "a string");
    int k = param_find_word(roles, json_string_value(role));
    if (k >= 0)
        return check_content(message, at, roles[k]) || check_calls(message, at, roles[k]) ? -1 : 0;
    return param_fail(SRV_ERR_INVALID_VALUE, path,
                      "'%s' must be one of system, developer, user, assistant, tool, function.",
                      path);
}

int chat_input_check(const json_t *messages, const char *field)
{
    char path[PARAM_PATH_MAX];
    if (!messages)
        return param_fail(SRV_ERR_MISSING, field, "The parameter '%s' is required.", field);
    if (!json_is_array(messages)) return param_wrong_type(field, "an array");
    size_t n = json_array_size(messages);
    if (n == 0 || n > MAX_MESSAGES)
        return param_fail(SRV_ERR_INVALID_VALUE, field,
                          "'%s' holds %zu messages; 1 to %d are allowed.", field, n, MAX_MESSAGES);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s[%zu]", field, i);
        if (chat_input_check_message(json_array_get(messages, i), path)) return -1;
    }
    return 0;
}

int chat_input_check_flags(const json_t *body)
{
    if (!json_is_true(json_object_get(body, "continue_final_message")) ||
        !json_is_true(json_object_get(body, "add_generation_prompt")))
        return 0;
    return param_fail(SRV_ERR_INVALID_VALUE, "continue_final_message",
                      "'continue_final_message' and 'add_generation_prompt' exclude each other.");
}

bool chat_input_ends_open(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    return role && !strcmp(role, "assistant");
}

static int render_failure(int rc, const char *field, const char *message)
{
    switch (rc) {
    case TOK_ENOMEM: return param_no_memory();
    case TOK_ERAISE:
        return param_fail(SRV_ERR_TEMPLATE, field,
                          "The model's chat template refused the messages: %.200s", message);
    default:
        return param_fail(SRV_ERR_TEMPLATE, field,
                          "The model's chat template failed on the messages: %.200s", message);
    }
}

/* The JSON text of the messages, owned, without metadata lines unless the server keeps them. NULL:
 * out of memory. */
static char *text_of_messages(const struct srv_model *model, const struct chat_input *in)
{
    if (model->config->keep_metadata_lines || metadata_lines_length(in->messages) == 0)
        return srv_body_list_text(in->body, in->messages);
    srv_json_ran_out();
    json_auto_t *list = metadata_lines_take(in->messages, in->metadata);
    return srv_json_ran_out() ? NULL : srv_body_list_text(in->body, list);
}

/* The same of an object. */
static char *text_of_object(const struct srv_body *body, const json_t *object)
{
    struct srv_span span = {NULL, 0};
    if (body) span = srv_body_span(body, object);
    return span.text ? strndup(span.text, span.len) : json_dumps(object, JSON_COMPACT);
}

static int check_kwargs(const json_t *kwargs)
{
    static const char *const own[] = {"messages", "tools", "add_generation_prompt"};
    if (kwargs && !json_is_object(kwargs))
        return param_wrong_type("chat_template_kwargs", "an object");
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (json_object_get(kwargs, own[i]))
            return param_fail(SRV_ERR_INVALID_VALUE, "chat_template_kwargs",
                              "'chat_template_kwargs' must not name '%s': it is a field of the "
                              "request itself.",
                              own[i]);
    return 0;
}

/* *ret is owned: tok_prompt_finish. */
static int render(const struct srv_model *model, const struct chat_input *in,
                  struct tok_prompt *ret)
{
    char message[256] = "";
    struct srv_tools *t = in->tools;
    if (!model->chat)
        return param_fail(SRV_ERR_UNSUPPORTED, in->field,
                          "This model has no chat template; use /v1/completions.");
    if (check_kwargs(in->kwargs)) return -1;
    char *messages = text_of_messages(model, in);
    char *kwargs = in->kwargs ? text_of_object(in->body, in->kwargs) : NULL;
    int rc = TOK_ENOMEM;
    struct tools_prompt prompt = {0};
    if (messages && (kwargs || !in->kwargs)) {
        struct tools_prompt_params params = {
            .style = &model->style,
            .messages = messages,
            .server_kwargs = model->config->chat_template_kwargs,
            .kwargs = kwargs,
            .add_generation_prompt = in->add_generation_prompt && !in->continue_final_message,
            .continue_final_message = in->continue_final_message,
            .tools = t && t->active ? t->ask.list.data : NULL,
            .thinking = t ? t->thinking : TOOLS_THINKING_UNSAID,
            .effort = t ? t->effort : NULL,
        };
        rc = tools_prompt_render(&prompt, model->chat, &params, message, sizeof(message));
    }
    free(messages);
    free(kwargs);
    if (rc) return render_failure(rc, in->field, message);
    *ret = prompt.prompt;
    if (t) srv_tools_set_prompt(t, &prompt);
    return 0;
}

int chat_input_make(const struct srv_model *model, const struct chat_input *in,
                    struct tok_prompt *prompt, struct tok_ids *ids)
{
    char message[256] = "";
    if (render(model, in, prompt)) return -1;
    int rc = tok_encode_marked(model->tok, prompt->text, prompt->len, prompt->input,
                               prompt->n_input, TOK_PARSE_SPECIAL, ids, message, sizeof(message));
    return rc ? param_encode_failed(rc, in->field, message) : 0;
}

/* Messages from the last one of the user on; all, if none is the user's. */
static size_t last_turn(const json_t *messages)
{
    size_t n = json_array_size(messages);
    for (size_t i = n; i > 0; i--) {
        const json_t *role = json_object_get(json_array_get(messages, i - 1), "role");
        if (json_is_string(role) && !strcmp(json_string_value(role), "user")) return n - i + 1;
    }
    return n;
}

int chat_input_ends(const struct tok *tok, const struct tok_prompt *prompt, const int32_t *ids,
                    int64_t n_ids, const json_t *messages, int64_t ret[CHAT_MOST_ENDS])
{
    /* A message may have two: before its calls, and after them. One is that before the turn. */
    size_t most = 2 * last_turn(messages) + 2, byte = 0, range = 0, n = 0;
    if (most > CHAT_MOST_ENDS) most = CHAT_MOST_ENDS;
    for (int64_t i = 0; i < n_ids; i++) {
        bool after_text = range < prompt->n_input && prompt->input[range].begin < byte;
        if (after_text && tok_is_special(tok, ids[i])) {
            if (n == most) memmove(ret + 1, ret + 2, (--n - 1) * sizeof(*ret));
            ret[n++] = i;
            while (range < prompt->n_input && prompt->input[range].begin < byte)
                range++;
        }
        byte += tok_token_bytes(tok, ids[i], NULL, 0);
    }
    return (int)n;
}
