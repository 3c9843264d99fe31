/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/responses, stateless: the request becomes a chat, the answer a response object or its
 * named stream events. Nothing is stored; previous_response_id is refused, store: true is named as
 * ignored.
 */
#include <string.h>

#include "server/api/chat_input.h"
#include "server/api/json_memory.h"
#include "server/api/openai_json.h"
#include "server/api/routes.h"

static const struct param_field fields[] = {
    GEN_FIELD("input", PARAM_JSON, messages),
    GEN_FIELD("instructions", PARAM_JSON, extra),
    GEN_RANGE("max_output_tokens", PARAM_INT, max_completion_tokens, 0, 1e15),
    GEN_FIELD("text", PARAM_JSON, prompt),
    GEN_OTHER("prompt_logprobs", PARAM_UNSUPPORTED),
    GEN_OTHER("return_token_ids", PARAM_NAMED),
    GEN_OTHER("truncation", PARAM_IGNORED), /* read by check_truncation */
    GEN_OTHER("include", PARAM_NAMED),      /* and by check_include */
    GEN_OTHER("previous_response_id", PARAM_UNSUPPORTED),
    GEN_OTHER("conversation", PARAM_UNSUPPORTED),
    GEN_OTHER("background", PARAM_UNSUPPORTED),
    {0},
};

/* ---- input --------------------------------------------------------------------------------- */

/* One content part as the chat dialect's text part; NULL with err if it is not text. */
static json_t *text_part(const json_t *part, const char *item_path, size_t k,
                         struct param_error *err)
{
    char path[PARAM_PATH_MAX + 32], word[PARAM_WORD_MAX];
    snprintf(path, sizeof(path), "%s.content[%zu]", item_path, k);
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");
    bool is_text = type && (!strcmp(type, "input_text") || !strcmp(type, "output_text") ||
                            !strcmp(type, "text"));
    if (is_text && json_is_string(text))
        return json_pack("{s:s, s:O}", "type", "text", "text", text);
    if (is_text || !type)
        param_fail(err, SRV_ERR_INVALID_TYPE, path,
                   "'%s' must be an object with a type and a text.", path);
    else
        param_fail(err, SRV_ERR_UNSUPPORTED, path, "'%s' is of type '%s'; only text is supported.",
                   path, param_word(type, word));
    return NULL;
}

/* A chat message from an input item: parts become the chat dialect's text parts. */
static json_t *message_of_item(const json_t *item, size_t i, struct param_error *err)
{
    char path[PARAM_PATH_MAX];
    snprintf(path, sizeof(path), "input[%zu]", i);
    const char *type = json_string_value(json_object_get(item, "type"));
    if (!json_is_object(item) || (type && strcmp(type, "message") != 0)) {
        char word[PARAM_WORD_MAX];
        param_fail(err, SRV_ERR_UNSUPPORTED, path, "'%s' must be a message%s%s%s.", path,
                   type ? ", but is of type '" : "", type ? param_word(type, word) : "",
                   type ? "'" : "");
        return NULL;
    }
    json_t *content = json_object_get(item, "content");
    json_t *parts = json_array();
    for (size_t k = 0; json_is_array(content) && k < json_array_size(content); k++) {
        json_t *part = text_part(json_array_get(content, k), path, k, err);
        if (!part) {
            json_decref(parts);
            return NULL;
        }
        json_array_append_new(parts, part);
    }
    json_t *message = json_object();
    json_object_set(message, "role", json_object_get(item, "role"));
    json_object_set(message, "content", json_is_array(content) ? parts : content);
    json_decref(parts);
    return message;
}

static json_t *messages_of(const struct srv_gen_params *p, struct param_error *err)
{
    json_t *list = json_array();
    if (json_is_string(p->extra))
        json_array_append_new(list, json_pack("{s:s, s:O}", "role", "system", "content", p->extra));
    if (json_is_string(p->messages)) {
        json_array_append_new(list,
                              json_pack("{s:s, s:O}", "role", "user", "content", p->messages));
        return list;
    }
    for (size_t i = 0; i < json_array_size(p->messages); i++) {
        json_t *message = message_of_item(json_array_get(p->messages, i), i, err);
        if (!message) {
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, message);
    }
    return list;
}

/* Values ask for more output; all but one for output of a kind that there never is here. */
static int check_include(const json_t *include, struct param_error *err)
{
    if (!include || json_is_null(include)) return 0;
    bool valid = json_is_array(include);
    for (size_t i = 0; valid && i < json_array_size(include); i++) {
        const char *value = json_string_value(json_array_get(include, i));
        valid = value != NULL;
        if (valid && !strcmp(value, "message.output_text.logprobs"))
            return param_fail(err, SRV_ERR_UNSUPPORTED, "include",
                              "'include' of '%s' is not supported here; /v1/chat/completions has "
                              "log-probabilities.",
                              value);
    }
    if (valid) return 0;
    return param_fail(err, SRV_ERR_INVALID_TYPE, "include", "'include' must be a list of strings.");
}

static int check_truncation(const json_t *truncation, struct param_error *err)
{
    const char *value = json_string_value(truncation);
    if (!truncation || json_is_null(truncation)) return 0;
    if (!value)
        return param_fail(err, SRV_ERR_INVALID_TYPE, "truncation",
                          "'truncation' must be 'auto' or 'disabled'.");
    if (!strcmp(value, "auto") || !strcmp(value, "disabled")) return 0;
    return param_fail(err, SRV_ERR_INVALID_VALUE, "truncation",
                      "'truncation' must be 'auto' or 'disabled'.");
}

static int check_fields(const struct srv_gen *g, struct param_error *err)
{
    const struct srv_gen_params *p = &g->params;
    if (!p->messages)
        return param_fail(err, SRV_ERR_MISSING, "input", "The parameter 'input' is required.");
    if (!json_is_string(p->messages) && !json_is_array(p->messages))
        return param_fail(err, SRV_ERR_INVALID_TYPE, "input",
                          "'input' must be a string or an array of messages.");
    if (p->extra && !json_is_string(p->extra))
        return param_fail(err, SRV_ERR_INVALID_TYPE, "instructions",
                          "'instructions' must be a string.");
    const char *format =
        json_string_value(json_object_get(json_object_get(p->prompt, "format"), "type"));
    if (format && strcmp(format, "text") != 0)
        return param_fail(err, SRV_ERR_UNSUPPORTED, "text.format",
                          "Only the text format 'text' is supported.");
    return check_include(json_object_get(g->body, "include"), err) ||
           check_truncation(json_object_get(g->body, "truncation"), err);
}

/* ---- truncation ---------------------------------------------------------------------------- */

static bool is_auto(const struct srv_gen *g)
{
    const char *value = json_string_value(json_object_get(g->body, "truncation"));
    return value && !strcmp(value, "auto");
}

static bool has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && !strcmp(own, role);
}

/* The messages from number `from` on, and earlier ones that instruct. A new reference. */
static json_t *without_oldest(const json_t *messages, size_t from)
{
    json_t *kept = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        if (i >= from || has_role(message, "system") || has_role(message, "developer"))
            json_array_append(kept, message);
    }
    return kept;
}

/* Tokens of the prompt that the messages make. 0 or -1 with err. */
static int count_tokens(const struct srv_gen *g, const json_t *messages, int64_t *ret,
                        struct param_error *err)
{
    struct chat_input in = {.messages = messages, .add_generation_prompt = true};
    struct tok_ids ids = {0};
    int rc = chat_input_encode(g->app, &in, &ids, err);
    *ret = (int64_t)ids.n;
    tok_ids_finish(&ids);
    return rc;
}

/* The fewest turns, counted in turn starts, whose removal leaves at most `limit` tokens, or all but
 * the last turn. A turn begins with a message of the user, which every template takes first. */
static int find_cut(const struct srv_gen *g, const json_t *messages, const size_t *starts, size_t n,
                    int64_t limit, size_t *ret_cut, struct param_error *err)
{
    size_t low = 0, high = n - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int64_t n_tokens;
        json_t *kept = without_oldest(messages, starts[middle]);
        int rc = count_tokens(g, kept, &n_tokens, err);
        json_decref(kept);
        if (rc) return rc;
        if (n_tokens <= limit)
            high = middle;
        else
            low = middle + 1;
    }
    *ret_cut = starts[low];
    return 0;
}

/*
 * truncation: "auto". A prompt that the context does not hold loses its oldest turns, until what
 * stays leaves room for the answer too: max_output_tokens, but at most a quarter of the context.
 * Replaces *messages. If the last turn alone is too long it stays, for the error with the numbers.
 */
static int drop_oldest(struct srv_gen *g, json_t **messages, struct param_error *err)
{
    int64_t ctx = eng_info(g->app->engine)->ctx_tokens, n_tokens, room = ctx / 4;
    size_t n = json_array_size(*messages), n_starts = 0, cut = 0;
    if (count_tokens(g, *messages, &n_tokens, err)) return -1;
    if (n_tokens <= ctx) return 0;
    size_t *starts = srv_request_alloc(g->req, (n + 1) * sizeof(*starts));
    if (!starts)
        return param_fail(err, SRV_ERR_OVERLOADED, NULL, "There is no memory for the request.");
    for (size_t i = 0; i < n; i++)
        if (has_role(json_array_get(*messages, i), "user")) starts[n_starts++] = i;
    if (n_starts == 0) return 0;
    if (g->max_tokens >= 0 && g->max_tokens < room) room = g->max_tokens;
    if (find_cut(g, *messages, starts, n_starts, ctx - room, &cut, err)) return -1;
    json_t *kept = without_oldest(*messages, cut);
    char dropped[32];
    snprintf(dropped, sizeof(dropped), "%zu", n - json_array_size(kept));
    srv_reply_header(g->req, "x-dropped-input-items", dropped);
    json_decref(*messages);
    *messages = kept;
    return 0;
}

/* ---- the prompt ---------------------------------------------------------------------------- */

static int prompt_of(struct srv_gen *g, json_t **messages, struct param_error *err)
{
    if (chat_input_check(*messages, err) || (is_auto(g) && drop_oldest(g, messages, err)))
        return -1;
    /* Out of memory, jansson leaves out what it cannot append. */
    if (srv_json_ran_out())
        return param_fail(err, SRV_ERR_OVERLOADED, NULL, "There is no memory for the request.");
    struct chat_input in = {.messages = *messages, .add_generation_prompt = true};
    return srv_gen_chat_prompt(g, &in, err);
}

static int make_prompt(struct srv_gen *g, struct param_error *err)
{
    if (check_fields(g, err)) return -1;
    json_t *messages = messages_of(&g->params, err);
    bool no_memory = srv_json_ran_out();
    if (!messages && !no_memory) return -1;
    int rc = no_memory
                 ? param_fail(err, SRV_ERR_OVERLOADED, NULL, "There is no memory for the request.")
                 : prompt_of(g, &messages, err);
    json_decref(messages);
    return rc ? -1 : 0;
}

/* ---- the object ---------------------------------------------------------------------------- */

static bool is_cut(const struct gen_choice *c)
{
    return c->finish_reason && !strcmp(c->finish_reason, "length");
}

static void write_part(struct buf *b, const struct gen_choice *c)
{
    buf_puts(b, "{\"type\":\"output_text\",\"text\":");
    buf_json_string(b, c->text.text.data ? c->text.text.data : "", c->text.text.len);
    buf_puts(b, ",\"annotations\":[],\"logprobs\":[]}");
}

static void write_item(struct srv_gen *g, struct buf *b, const char *status)
{
    const struct gen_choice *c = &g->prompts[0].choices[0];
    buf_printf(b,
               "{\"type\":\"message\",\"id\":\"msg_%s\",\"role\":\"assistant\","
               "\"status\":\"%s\",\"content\":[",
               srv_request_unique(g->req), status);
    if (strcmp(status, "in_progress") != 0) write_part(b, c);
    buf_puts(b, "]}");
}

static void write_usage(struct srv_gen *g, struct buf *b)
{
    struct gen_totals t = srv_gen_totals(g);
    buf_printf(b,
               "{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld,"
               "\"cache_write_tokens\":0},"
               "\"output_tokens\":%lld,\"output_tokens_details\":{\"reasoning_tokens\":0},"
               "\"total_tokens\":%lld}",
               (long long)t.n_prompt, (long long)t.n_cached, (long long)t.n_completion,
               (long long)(t.n_prompt + t.n_completion));
}

/* status: in_progress, completed or incomplete. */
static void write_response(struct srv_gen *g, struct buf *b, const char *status)
{
    bool over = strcmp(status, "in_progress") != 0;
    buf_printf(b,
               "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\","
               "\"error\":null,\"incomplete_details\":%s,\"instructions\":",
               g->id, (long long)g->created, status,
               strcmp(status, "incomplete") ? "null" : "{\"reason\":\"max_output_tokens\"}");
    if (g->params.extra)
        buf_json_string(b, json_string_value(g->params.extra), json_string_length(g->params.extra));
    else
        buf_puts(b, "null");
    buf_puts(b, ",\"max_output_tokens\":");
    if (g->params.max_completion_tokens >= 0)
        buf_json_int(b, g->params.max_completion_tokens);
    else
        buf_puts(b, "null");
    buf_puts(b, ",\"model\":");
    buf_json_string(b, g->model, strlen(g->model));
    buf_puts(b, ",\"output\":[");
    if (over) write_item(g, b, status);
    buf_puts(b, "],\"parallel_tool_calls\":false,\"previous_response_id\":null,"
                "\"store\":false,\"temperature\":");
    buf_json_number(b, g->params.temperature);
    buf_puts(b, ",\"text\":{\"format\":{\"type\":\"text\"}},\"tool_choice\":\"none\","
                "\"tools\":[],\"top_p\":");
    buf_json_number(b, g->params.top_p);
    buf_printf(
        b, ",\"truncation\":\"%s\",\"metadata\":{},\"usage\":", is_auto(g) ? "auto" : "disabled");
    if (over) {
        write_usage(g, b);
        srv_gen_add_timings(g, b);
    } else {
        buf_puts(b, "null");
    }
    buf_puts(b, "}");
}

static const char *final_status(const struct srv_gen *g)
{
    return is_cut(&g->prompts[0].choices[0]) ? "incomplete" : "completed";
}

static bool whole(struct srv_gen *g, struct gen_cursor *at, struct buf *b)
{
    write_response(g, b, final_status(g));
    return true;
}

/* ---- stream -------------------------------------------------------------------------------- */

/* Opens {"type": name, "sequence_number": n; the caller adds members and ends the object by send.
 */
static void begin(struct srv_gen *g, struct buf *b, const char *name)
{
    buf_init(b, 64 << 20);
    buf_printf(b, "{\"type\":\"%s\",\"sequence_number\":%d", name, g->sequence++);
}

static void send(struct srv_gen *g, struct buf *b, const char *name)
{
    buf_puts(b, "}");
    srv_gen_event(g, name, b);
    buf_finish(b);
}

static void send_response(struct srv_gen *g, const char *name, const char *status)
{
    struct buf b;
    begin(g, &b, name);
    buf_puts(&b, ",\"response\":");
    write_response(g, &b, status);
    send(g, &b, name);
}

static void send_item(struct srv_gen *g, const char *name, const char *status)
{
    struct buf b;
    begin(g, &b, name);
    buf_puts(&b, ",\"output_index\":0,\"item\":");
    write_item(g, &b, status);
    send(g, &b, name);
}

static void add_place(struct srv_gen *g, struct buf *b)
{
    buf_printf(b, ",\"item_id\":\"msg_%s\",\"output_index\":0,\"content_index\":0",
               srv_request_unique(g->req));
}

static void stream_begin(struct srv_gen *g)
{
    struct buf b;
    send_response(g, "response.created", "in_progress");
    send_response(g, "response.in_progress", "in_progress");
    send_item(g, "response.output_item.added", "in_progress");
    begin(g, &b, "response.content_part.added");
    add_place(g, &b);
    buf_puts(&b, ",\"part\":{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[],"
                 "\"logprobs\":[]}");
    send(g, &b, "response.content_part.added");
}

static void stream_delta(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c, size_t from,
                         size_t to, int64_t token_from, int64_t token_to)
{
    struct buf b;
    if (to == from && !g->params.chunk_tokens) return;
    begin(g, &b, "response.output_text.delta");
    add_place(g, &b);
    buf_puts(&b, ",\"delta\":");
    buf_json_string(&b, c->text.text.data ? c->text.text.data + from : "", to - from);
    buf_puts(&b, ",\"logprobs\":[]");
    send(g, &b, "response.output_text.delta");
}

static void stream_finish(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    struct buf b;
    begin(g, &b, "response.output_text.done");
    add_place(g, &b);
    buf_puts(&b, ",\"text\":");
    buf_json_string(&b, c->text.text.data ? c->text.text.data : "", c->text.text.len);
    buf_puts(&b, ",\"logprobs\":[]");
    send(g, &b, "response.output_text.done");
    begin(g, &b, "response.content_part.done");
    add_place(g, &b);
    buf_puts(&b, ",\"part\":");
    write_part(&b, c);
    send(g, &b, "response.content_part.done");
    send_item(g, "response.output_item.done", is_cut(c) ? "incomplete" : "completed");
}

/* An event that every client knows, with a member more. */
static void stream_progress(struct srv_gen *g, const struct gen_progress *progress)
{
    struct buf b;
    begin(g, &b, "response.in_progress");
    buf_puts(&b, ",\"response\":");
    write_response(g, &b, "in_progress");
    srv_gen_add_progress(&b, progress);
    send(g, &b, "response.in_progress");
}

static void stream_end(struct srv_gen *g)
{
    const char *status = final_status(g);
    send_response(g, strcmp(status, "completed") ? "response.incomplete" : "response.completed",
                  status);
}

static void stream_error(struct srv_gen *g, enum srv_error kind, const char *message)
{
    struct buf b;
    begin(g, &b, "error");
    buf_printf(&b, ",\"code\":\"%s\",\"message\":", srv_error_code(kind));
    buf_json_string(&b, message, strlen(message));
    buf_puts(&b, ",\"param\":null");
    send(g, &b, "error");
}

static const struct srv_gen_format format = {
    .endpoint = "responses",
    .input = "input",
    .stream_begin = stream_begin,
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_progress = stream_progress,
    .stream_end = stream_end,
    .stream_error = stream_error,
    .whole = whole,
};

static void handle(struct srv_request *req)
{
    struct param_error err = {0};
    struct srv_gen *g = srv_gen_open(req, &format, fields);
    if (!g) return;
    if (g->n_choices != 1)
        param_fail(&err, SRV_ERR_UNSUPPORTED, "n", "'n' must be 1 here.");
    else if (!make_prompt(g, &err)) {
        snprintf(g->id, sizeof(g->id), "resp_%s", srv_request_unique(req));
        srv_gen_start(g);
        return;
    }
    srv_gen_refuse(g, &err);
}

/* Counting runs no model. */
static void count(struct srv_request *req)
{
    struct param_error err = {0};
    struct srv_gen *g = srv_gen_open(req, &format, fields);
    if (!g) return;
    if (make_prompt(g, &err))
        srv_gen_refuse(g, &err);
    else
        srv_gen_reply_count(g, "\"object\":\"response.input_tokens\",");
}

const struct srv_route srv_routes_responses[] = {
    {"POST", "/v1/responses/input_tokens", 0, count},
    {"POST", "/responses/input_tokens", 0, count},
    {"POST", "/v1/responses", 0, handle},
    {"POST", "/responses", 0, handle},
    {0},
};
