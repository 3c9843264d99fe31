/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/responses, stateless: the request becomes a chat, the answer a response object or its
 * named stream events. Nothing is stored; previous_response_id is refused, store: true is named as
 * ignored.
 */
#include <string.h>
#include <time.h>

#include "server/api/read/chat_input.h"
#include "server/api/read/json_memory.h"
#include "server/api/write/cache_report.h"
#include "server/api/write/dialects.h"
#include "server/api/write/call_ids.h"
#include "server/api/write/openai_json.h"
#include "server/api/read/responses_input.h"
#include "server/api/generate.h"
#include "server/api/routes.h"

const struct param_field srv_fields_responses[] = {
    GEN_FIELD("input", PARAM_JSON, messages, NULL,
              "a text, or the conversation: `message`, `function_call`, `function_call_output`, "
              "`reasoning`"),
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
    GEN_NAME("truncation", PARAM_IGNORED, "`disabled`", /* check_truncation reads it */
             "`auto`: drop the oldest turns until the input fits; `x-dropped-input-items` counts "
             "them"),
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
static int check_include(const json_t *include, struct param_error *err)
{
    if (!include || json_is_null(include)) return 0;
    bool valid = json_is_array(include);
    for (size_t i = 0; valid && i < json_array_size(include); i++) {
        valid = json_is_string(json_array_get(include, i));
    }
    if (valid) return 0;
    return param_fail(err, SRV_ERR_INVALID_TYPE, "include", "'include' must be a list of strings.");
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
static int check_logprobs(const struct srv_gen *g, struct param_error *err)
{
    int64_t width = g->params.logprobs_count + 1;
    int64_t n = srv_gen_token_capacity(g, &g->prompts[0]);
    if (!g->params.want_logprobs || g->counts || n <= MAX_LOGPROBS / width) return 0;
    return param_fail(err, SRV_ERR_INVALID_VALUE, "top_logprobs",
                      "%lld tokens with %lld log-probabilities each are more than %d; set "
                      "'max_output_tokens' to at most %lld, or 'top_logprobs' lower.",
                      (long long)n, (long long)width, MAX_LOGPROBS,
                      (long long)(MAX_LOGPROBS / width));
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

static int check_fields(struct srv_gen *g, struct param_error *err)
{
    struct srv_gen_params *p = &g->params;
    if (p->want_logprobs) p->logprobs_count = p->top_logprobs > 0 ? p->top_logprobs : 0;
    if (!p->messages)
        return param_fail(err, SRV_ERR_MISSING, "input", "The parameter 'input' is required.");
    if (!json_is_string(p->messages) && !json_is_array(p->messages))
        return param_fail(err, SRV_ERR_INVALID_TYPE, "input",
                          "'input' must be a string or an array of messages.");
    if (p->extra && !json_is_string(p->extra))
        return param_fail(err, SRV_ERR_INVALID_TYPE, "instructions",
                          "'instructions' must be a string.");
    return guide_ask_read_format(&g->guide.ask, &g->body, "text.format", err) ||
           check_include(json_object_get(g->body.root, "include"), err) ||
           check_truncation(json_object_get(g->body.root, "truncation"), err);
}

/* ---- truncation ---------------------------------------------------------------------------- */

static bool is_auto(const struct srv_gen *g)
{
    const char *value = json_string_value(json_object_get(g->body.root, "truncation"));
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
    struct chat_input in = {.messages = messages,
                            .field = "input",
                            .add_generation_prompt = true,
                            .tools = (struct srv_tools *)&g->tools};
    struct tok_ids ids = {0};
    int rc = chat_input_encode(g->served, &in, &ids, err);
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
    int64_t ctx = eng_info(g->served->engine)->ctx_tokens, n_tokens, room = ctx / 4;
    size_t n = json_array_size(*messages), n_starts = 0, cut = 0;
    if (count_tokens(g, *messages, &n_tokens, err)) return -1;
    if (n_tokens <= ctx) return 0;
    size_t *starts = srv_request_alloc(g->req, (n + 1) * sizeof(*starts));
    if (!starts) return param_no_memory(err);
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
    if (chat_input_check(*messages, "input", err) || (is_auto(g) && drop_oldest(g, messages, err)))
        return -1;
    /* jansson leaves out what it cannot append when out of memory. */
    if (srv_json_ran_out()) return param_no_memory(err);
    struct chat_input in = {
        .messages = *messages, .field = "input", .add_generation_prompt = true, .tools = &g->tools};
    const char *first = g->params.extra ? "instructions" : NULL;
    return srv_gen_chat_prompt(g, &in, first, err) || check_logprobs(g, err) ? -1 : 0;
}

static int make_prompt(struct srv_gen *g, struct param_error *err)
{
    if (check_fields(g, err)) return -1;
    json_t *messages = responses_to_chat(g->params.extra, g->params.messages, err);
    bool no_memory = srv_json_ran_out();
    if (!messages && !no_memory) return -1;
    int rc = no_memory ? param_no_memory(err) : prompt_of(g, &messages, err);
    json_decref(messages);
    return rc ? -1 : 0;
}

/* ---- the object ---------------------------------------------------------------------------- */

static bool is_cut(const struct gen_choice *c)
{
    return c->finish_reason && !strcmp(c->finish_reason, "length");
}

/* The items of an answer are the parts of its text; without any it is one message. */
static const struct gen_choice *answer(const struct srv_gen *g)
{
    return &g->prompts[0].choices[0];
}

static enum choice_kind kind_of(const struct gen_choice *c, int i)
{
    return i < c->n_parts ? c->parts[i].kind : CHOICE_CONTENT;
}

/* The text of an item up to `len` bytes of it. */
static void write_item_text(struct jw *w, const char *name, const struct gen_choice *c, int i,
                            bool whole)
{
    if (i < c->n_parts && whole)
        srv_gen_write_part(w, name, c, i);
    else
        jw_text(w, name, "");
}

/* The member "logprobs" of tokens [from, to) in the text of item i. */
static void write_logprobs(const struct srv_gen *g, struct jw *w, int i, int64_t from, int64_t to)
{
    jw_open(w, "logprobs", '[');
    if (g->params.want_logprobs) srv_gen_write_logprobs(g, w, answer(g), i, from, to);
    jw_close(w);
}

/* A content part of a message or of reasoning. */
static void write_part(const struct srv_gen *g, struct jw *w, const char *name, int i, bool whole)
{
    const struct gen_choice *c = answer(g);
    bool reasoning = kind_of(c, i) == CHOICE_REASONING;
    jw_open(w, name, '{');
    jw_text(w, "type", reasoning ? "reasoning_text" : "output_text");
    write_item_text(w, "text", c, i, whole);
    if (!reasoning) {
        jw_open(w, "annotations", '[');
        jw_close(w);
        write_logprobs(g, w, i, 0, whole ? srv_gen_shown_tokens(c) : 0);
    }
    jw_close(w);
}

/* Ids of items: of a call the letters of its call_id, else those of the answer and a number. */
static void write_item_id(const struct srv_gen *g, struct jw *w, const char *name,
                          const struct gen_choice *c, int i)
{
    char id[80], number[16] = "";
    if (kind_of(c, i) == CHOICE_CALL) {
        char letters[SRV_CALL_ID_MAX];
        srv_tools_call_id(&g->tools, srv_body_text(&g->body), c, &c->parts[i], "", letters);
        snprintf(id, sizeof(id), "fc_%s", letters);
    } else {
        if (i > 0) snprintf(number, sizeof(number), "_%d", i);
        snprintf(id, sizeof(id), "%s_%s%s", kind_of(c, i) == CHOICE_REASONING ? "rs" : "msg",
                 srv_facts(g->req)->unique, number);
    }
    jw_text(w, name, id);
}

/* The name as the client knows it: with its namespace, if it has one. */
static void write_call_name(const struct srv_gen *g, struct jw *w, const struct choice_part *call)
{
    const struct tools_place *place = tools_ask_place(&g->tools.ask, call->name);
    jw_text(w, "name", place ? place->name : call->name);
    if (place && place->space) jw_text(w, "namespace", place->space);
}

static void write_call(const struct srv_gen *g, struct jw *w, const struct gen_choice *c, int i,
                       bool whole)
{
    srv_gen_write_call_id(g, w, "call_id", c, &c->parts[i], "call_");
    write_call_name(g, w, &c->parts[i]);
    write_item_text(w, "arguments", c, i, whole);
}

static const char *item_type(enum choice_kind kind)
{
    return kind == CHOICE_CALL        ? "function_call"
           : kind == CHOICE_REASONING ? "reasoning"
                                      : "message";
}

/* status: in_progress, without its text, completed or incomplete. */
static void write_item(const struct srv_gen *g, struct jw *w, const char *name, int i,
                       const char *status)
{
    const struct gen_choice *c = answer(g);
    enum choice_kind kind = kind_of(c, i);
    bool whole = strcmp(status, "in_progress") != 0;
    jw_open(w, name, '{');
    jw_text(w, "type", item_type(kind));
    write_item_id(g, w, "id", c, i);
    if (kind == CHOICE_CONTENT) jw_text(w, "role", "assistant");
    if (kind == CHOICE_REASONING) {
        jw_open(w, "summary", '[');
        jw_close(w);
    }
    if (kind == CHOICE_CALL) {
        write_call(g, w, c, i, whole);
    } else {
        jw_open(w, "content", '[');
        if (whole) write_part(g, w, NULL, i, true);
        jw_close(w);
    }
    jw_text(w, "status", status);
    jw_close(w);
}

/* A stop string may have taken all text of the last part. */
static bool is_shown(const struct gen_choice *c, int i)
{
    return c->parts[i].kind == CHOICE_CALL || choice_part_end(c, i) > c->parts[i].from;
}

/* Only the last item can have been cut. */
static const char *item_status(const struct gen_choice *c, int i)
{
    bool cut = is_cut(c) && i + 1 >= c->n_parts;
    if (cut && i < c->n_parts && c->parts[i].kind == CHOICE_CALL) cut = !c->parts[i].complete;
    return cut ? "incomplete" : "completed";
}

static void write_output(const struct srv_gen *g, struct jw *w)
{
    const struct gen_choice *c = answer(g);
    bool empty = true;
    for (int i = 0; i < c->n_parts; i++) {
        if (!is_shown(c, i)) continue;
        write_item(g, w, NULL, i, item_status(c, i));
        empty = false;
    }
    if (empty) write_item(g, w, NULL, 0, item_status(c, 0));
}

static void write_usage(struct srv_gen *g, struct jw *w)
{
    struct gen_totals t = srv_gen_totals(g);
    jw_open(w, "usage", '{');
    jw_int(w, "input_tokens", t.n_prompt);
    jw_open(w, "input_tokens_details", '{');
    jw_int(w, "cached_tokens", t.n_cached);
    jw_int(w, "cache_write_tokens", t.n_written);
    jw_close(w);
    srv_cache_write_report(g, w);
    jw_int(w, "output_tokens", t.n_completion);
    jw_open(w, "output_tokens_details", '{');
    jw_int(w, "reasoning_tokens", t.n_reasoning);
    jw_close(w);
    jw_int(w, "total_tokens", t.n_prompt + t.n_completion);
    jw_close(w);
}

/* Returns true if the member is there and not null. */
static bool is_sent(const struct srv_span *member)
{
    return member->text && member->text[0] != 'n';
}

static void write_count_or_null(struct jw *w, const char *name, int64_t n)
{
    if (n >= 0)
        jw_int(w, name, n);
    else
        jw_null(w, name);
}

/* A tool as sent; of a function, what was left out is null, as the Open Responses schema wants. */
static void write_tool(struct jw *w, const json_t *tool, struct srv_span text)
{
    static const char *const members[] = {"description", "parameters", "strict"};
    const char *type = json_string_value(json_object_get(tool, "type"));
    struct buf b;
    buf_init(&b, TOOLS_TEXT_MAX + 64);
    buf_add(&b, text.text, text.len - 1);
    for (size_t i = 0; type && !strcmp(type, "function") && i < 3; i++)
        if (!json_object_get(tool, members[i])) buf_printf(&b, ",\"%s\":null", members[i]);
    buf_puts(&b, "}");
    if (!b.failed) jw_json(w, NULL, b.data, b.len);
    buf_finish(&b);
}

static void write_tools(const struct srv_gen *g, struct jw *w)
{
    const json_t *tools = json_object_get(g->body.root, "tools");
    jw_open(w, "tools", '[');
    for (size_t i = 0; i < json_array_size(tools); i++)
        write_tool(w, json_array_get(tools, i), srv_body_span(&g->body, json_array_get(tools, i)));
    jw_close(w);
}

/* The members that repeat the request or show what is not supported. */
static void write_request(struct srv_gen *g, struct jw *w)
{
    static const char free_text[] = "{\"type\":\"text\"}";
    const struct srv_span *format = &g->guide.ask.format;
    const struct tools_ask *ask = &g->tools.ask;
    jw_bool(w, "parallel_tool_calls", ask->parallel);
    jw_null(w, "previous_response_id");
    jw_open(w, "reasoning", '{');
    jw_text(w, "effort", g->tools.effort);
    jw_null(w, "summary");
    jw_close(w);
    jw_bool(w, "store", false);
    jw_bool(w, "background", false);
    jw_text(w, "service_tier", "default");
    write_count_or_null(w, "max_tool_calls", g->params.max_tool_calls);
    jw_number(w, "temperature", g->params.given.temperature);
    jw_number(w, "presence_penalty", g->params.given.presence_penalty);
    jw_number(w, "frequency_penalty", g->params.given.frequency_penalty);
    jw_int(w, "top_logprobs", g->params.top_logprobs > 0 ? g->params.top_logprobs : 0);
    jw_text(w, "user", g->params.user);
    jw_text(w, "safety_identifier", g->params.safety_identifier);
    jw_text(w, "prompt_cache_key", g->params.prompt_cache_key);
    const char *retention =
        json_string_value(json_object_get(g->body.root, "prompt_cache_retention"));
    if (retention) jw_text(w, "prompt_cache_retention", retention);
    jw_open(w, "text", '{');
    if (format->text)
        jw_json(w, "format", format->text, format->len);
    else
        jw_json(w, "format", free_text, strlen(free_text));
    jw_close(w);
    if (is_sent(&ask->choice_text))
        jw_json(w, "tool_choice", ask->choice_text.text, ask->choice_text.len);
    else
        jw_text(w, "tool_choice", "auto");
    write_tools(g, w);
    jw_number(w, "top_p", g->params.given.top_p);
    jw_text(w, "truncation", is_auto(g) ? "auto" : "disabled");
    const json_t *sent = json_object_get(g->body.root, "metadata");
    struct srv_span metadata = {"{}", 2};
    if (json_is_object(sent)) metadata = srv_body_span(&g->body, sent);
    jw_json(w, "metadata", metadata.text, metadata.len);
}

static void write_incomplete(struct jw *w, const char *status)
{
    if (strcmp(status, "incomplete") != 0) {
        jw_null(w, "incomplete_details");
        return;
    }
    jw_open(w, "incomplete_details", '{');
    jw_text(w, "reason", "max_output_tokens");
    jw_close(w);
}

/* status: in_progress, completed or incomplete. */
static void write_response(struct srv_gen *g, struct jw *w, const char *name, const char *status)
{
    bool over = strcmp(status, "in_progress") != 0;
    const json_t *instructions = g->params.extra;
    jw_open(w, name, '{');
    jw_text(w, "id", g->id);
    jw_text(w, "object", "response");
    jw_int(w, "created_at", g->created);
    write_count_or_null(w, "completed_at", strcmp(status, "completed") ? -1 : (int64_t)time(NULL));
    jw_text(w, "status", status);
    jw_null(w, "error");
    write_incomplete(w, status);
    if (instructions)
        jw_string(w, "instructions", json_string_value(instructions),
                  json_string_length(instructions));
    else
        jw_null(w, "instructions");
    write_count_or_null(w, "max_output_tokens", g->params.max_completion_tokens);
    jw_text(w, "model", g->model);
    jw_open(w, "output", '[');
    if (over) write_output(g, w);
    jw_close(w);
    write_request(g, w);
    if (over) {
        write_usage(g, w);
        srv_gen_write_timings(g, w);
    } else {
        jw_null(w, "usage");
    }
    jw_close(w);
}

static const char *final_status(const struct srv_gen *g)
{
    return is_cut(&g->prompts[0].choices[0]) ? "incomplete" : "completed";
}

static bool whole(struct srv_gen *g, struct jw *w, struct gen_cursor *at)
{
    write_response(g, w, NULL, final_status(g));
    return true;
}

/* ---- stream -------------------------------------------------------------------------------- */

/* The caller adds members to the event and sends it. */
static void begin(struct srv_gen *g, struct gen_event *e, const char *name)
{
    srv_gen_begin_typed_event(e, name);
    jw_int(&e->w, "sequence_number", g->sequence++);
}

static void send_response(struct srv_gen *g, const char *name, const char *status)
{
    struct gen_event e;
    begin(g, &e, name);
    write_response(g, &e.w, "response", status);
    srv_gen_close_event(g, &e);
}

static void send_item(struct srv_gen *g, const char *name, int i, const char *status)
{
    struct gen_event e;
    begin(g, &e, name);
    jw_int(&e.w, "output_index", i);
    write_item(g, &e.w, "item", i, status);
    srv_gen_close_event(g, &e);
}

/* Begins an event about the text or the arguments of an item. */
static void begin_in_item(struct srv_gen *g, struct gen_event *e, const char *name, int i)
{
    begin(g, e, name);
    write_item_id(g, &e->w, "item_id", answer(g), i);
    jw_int(&e->w, "output_index", i);
    if (kind_of(answer(g), i) != CHOICE_CALL) jw_int(&e->w, "content_index", 0);
}

static void send_part(struct srv_gen *g, const char *name, int i, bool whole)
{
    struct gen_event e;
    begin_in_item(g, &e, name, i);
    write_part(g, &e.w, "part", i, whole);
    srv_gen_close_event(g, &e);
}

/* Names of the events of a kind's text. */
static const struct {
    const char *delta, *done, *member;
} text_events[] = {
    [CHOICE_CONTENT] = {"response.output_text.delta", "response.output_text.done", "text"},
    [CHOICE_REASONING] = {"response.reasoning_text.delta", "response.reasoning_text.done", "text"},
    [CHOICE_CALL] = {"response.function_call_arguments.delta",
                     "response.function_call_arguments.done", "arguments"},
};

/* Ends an event about text of item i, that of tokens [from, to). */
static void end_text_event(struct srv_gen *g, struct gen_event *e, int i, int64_t from, int64_t to)
{
    if (kind_of(answer(g), i) == CHOICE_CONTENT) write_logprobs(g, &e->w, i, from, to);
    srv_gen_close_event(g, e);
}

static void begin_item(struct srv_gen *g, int i)
{
    send_item(g, "response.output_item.added", i, "in_progress");
    if (kind_of(answer(g), i) != CHOICE_CALL) send_part(g, "response.content_part.added", i, false);
}

static void end_item(struct srv_gen *g, int i)
{
    const struct gen_choice *c = answer(g);
    enum choice_kind kind = kind_of(c, i);
    struct gen_event e;
    begin_in_item(g, &e, text_events[kind].done, i);
    if (kind == CHOICE_CALL) write_call_name(g, &e.w, &c->parts[i]);
    write_item_text(&e.w, text_events[kind].member, c, i, true);
    end_text_event(g, &e, i, 0, srv_gen_shown_tokens(c));
    if (kind != CHOICE_CALL) send_part(g, "response.content_part.done", i, true);
    send_item(g, "response.output_item.done", i, item_status(c, i));
}

static void stream_begin(struct srv_gen *g)
{
    send_response(g, "response.created", "in_progress");
    send_response(g, "response.in_progress", "in_progress");
}

static void stream_part(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                        bool ended)
{
    if (ended)
        end_item(g, (int)(part - c->parts));
    else
        begin_item(g, (int)(part - c->parts));
}

static void stream_delta(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c,
                         const struct choice_part *part, size_t from, size_t to, int64_t token_from,
                         int64_t token_to)
{
    struct gen_event e;
    if (!part) return;
    int i = (int)(part - c->parts);
    begin_in_item(g, &e, text_events[part->kind].delta, i);
    srv_gen_write_text(&e.w, "delta", c, from, to);
    if (g->params.timings_per_token) srv_gen_write_timings(g, &e.w);
    end_text_event(g, &e, i, token_from, token_to < c->n_showable ? token_to : c->n_showable);
}

static void stream_finish(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    if (c->n_parts_begun > 0) return;
    begin_item(g, 0);
    end_item(g, 0);
}

/* Reports the progress in an event that every client knows, with one more member. */
static void stream_progress(struct srv_gen *g, const struct gen_progress *progress)
{
    struct gen_event e;
    begin(g, &e, "response.in_progress");
    write_response(g, &e.w, "response", "in_progress");
    srv_gen_write_progress(&e.w, progress);
    srv_gen_close_event(g, &e);
}

static void stream_end(struct srv_gen *g)
{
    const char *status = final_status(g);
    send_response(g, strcmp(status, "completed") ? "response.incomplete" : "response.completed",
                  status);
}

static void stream_error(struct srv_gen *g, enum srv_error kind, const char *message)
{
    struct gen_event e;
    begin(g, &e, "error");
    jw_text(&e.w, "code", srv_error_code(kind));
    jw_text(&e.w, "message", message);
    jw_null(&e.w, "param");
    const char *trace_parent = srv_facts(g->req)->trace_parent;
    if (*trace_parent) jw_text(&e.w, "traceparent", trace_parent);
    srv_gen_close_event(g, &e);
}

const struct srv_gen_dialect srv_write_responses = {
    .stream_begin = stream_begin,
    .stream_part = stream_part,
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_progress = stream_progress,
    .stream_end = stream_end,
    .stream_error = stream_error,
    .tail = whole,
};

static const struct srv_gen_format format = {
    .endpoint = "responses",
    .input = "input",
    .id_prefix = "resp_",
    .dialect = TOOLS_RESPONSES,
    .fields = srv_fields_responses,
    .note = note_members,
    .one_choice = true,
    .prepare = make_prompt,
    .answer = &srv_write_responses,
};

static void handle(struct srv_request *req)
{
    srv_gen_handle(req, &format);
}

static void count(struct srv_request *req)
{
    srv_gen_count(req, &format, "response.input_tokens");
}

const struct srv_route srv_routes_responses[] = {
    {"POST", "/v1/responses/input_tokens", 0, count},
    {"POST", "/responses/input_tokens", 0, count},
    {"POST", "/v1/responses", 0, handle},
    {"POST", "/responses", 0, handle},
    {0},
};
