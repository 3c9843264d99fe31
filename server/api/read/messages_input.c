/* SPDX-License-Identifier: MIT */
/* Blocks of Anthropic's to chat messages; see history.h. Called on text workers. */
#include "server/api/read/history.h"

#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/utf8.h"

/* A conversation on its way. */
struct conversion {
    const struct srv_body *body;
    json_t *list;
    json_t *gone; /* the ids of calls that are left out with their results, as members */
    struct param_unknown *ignored;
};

/* A block on its way, and where it is. */
struct block {
    const struct conversion *c;
    size_t message, place;
    const json_t *value;
    const char *type;
};

static int fail_field(const struct block *b, const char *field, enum srv_error kind,
                      const char *wanted)
{
    char path[PARAM_PATH_MAX];
    snprintf(path, sizeof(path), "messages.%zu.content.%zu%s%s", b->message, b->place,
             *field ? "." : "", field);
    return param_fail(kind, path, "%s: %s.", path, wanted);
}

/* Returns the string member of a block, or NULL with the error. */
static const json_t *string_of(const struct block *b, const char *field)
{
    const json_t *value = json_object_get(b->value, field);
    if (json_is_string(value)) return value;
    bool absent = !value || json_is_null(value);
    fail_field(b, field, absent ? SRV_ERR_MISSING : SRV_ERR_INVALID_TYPE,
               absent ? "this field is required" : "this field must be a string");
    return NULL;
}

static int leave_out(const struct block *b)
{
    char path[PARAM_PATH_MAX];
    snprintf(path, sizeof(path), "messages.%zu.content.%zu", b->message, b->place);
    history_leave_out(b->c->ignored, path, b->type);
    return 0;
}

/* A change of the tools on the way is left out. */
static int unsupported(const struct block *b)
{
    char wanted[120], word[PARAM_WORD_MAX];
    if (!strcmp(b->type, "tool_addition") || !strcmp(b->type, "tool_removal")) return leave_out(b);
    snprintf(wanted, sizeof(wanted), "blocks of type '%s' are not supported",
             param_word(b->type, word));
    return fail_field(b, "", SRV_ERR_UNSUPPORTED, wanted);
}

static int add_text(const struct block *b, json_t *parts)
{
    const json_t *text = string_of(b, "text");
    if (!text) return -1;
    history_add_text(parts, text);
    return 0;
}

/* ---- documents and search results: text between tags ---------------------------------------- */

static void add_line(struct buf *out, const json_t *text)
{
    if (json_string_length(text) == 0) return;
    buf_add(out, json_string_value(text), json_string_length(text));
    buf_add(out, "\n", 1);
}

/* Of a string, or text blocks; returns false if the content is anything else. */
static bool add_lines(struct buf *out, const json_t *content)
{
    size_t n = json_array_size(content), i = 0;
    for (; i < n; i++) {
        const json_t *text = json_object_get(json_array_get(content, i), "text");
        if (!json_is_string(text)) break;
        add_line(out, text);
    }
    if (json_is_string(content)) add_line(out, content);
    return json_is_string(content) || (json_is_array(content) && i == n);
}

static bool is_source(const char *type)
{
    return !strcmp(type, "document") || !strcmp(type, "search_result");
}

/* value: a block, or one inside it; type: of it. HISTORY_NOT_TAKEN: it has more than text. */
static int add_source(const json_t *value, const char *type, json_t *parts)
{
    const json_t *source = json_object_get(value, "source"), *content = NULL;
    const char *kind = json_string_value(json_object_get(source, "type"));
    bool document = !strcmp(type, "document");
    AUTO(buf_finish) struct buf out = {.max = 256u << 20};
    if (!document) content = json_object_get(value, "content");
    if (document && kind && !strcmp(kind, "text")) content = json_object_get(source, "data");
    if (document && kind && !strcmp(kind, "content")) content = json_object_get(source, "content");
    buf_printf(&out, "<%s>\n", type);
    add_line(&out, json_object_get(value, "title"));
    add_line(&out, document ? json_object_get(value, "context") : source);
    int rc = add_lines(&out, content) ? 0 : HISTORY_NOT_TAKEN;
    buf_printf(&out, "</%s>\n", type);
    if (!rc && out.failed) rc = param_no_memory();
    if (!rc)
        json_array_append_new(parts, json_pack("{s:s, s:o}", "type", "text", "text",
                                               json_stringn(out.data, out.len)));
    return rc;
}

/* ---- results of tools ----------------------------------------------------------------------- */

/* Of a tool that the provider ran, as web_fetch_tool_result. */
static bool is_foreign_result(const char *type)
{
    return utf8_ends_with(type, "_tool_result");
}

/* Block k of a result. */
static int add_result_block(const struct block *b, size_t k, const json_t *block, json_t *parts)
{
    const json_t *text = json_object_get(block, "text");
    const char *type = json_string_value(json_object_get(block, "type"));
    char path[PARAM_PATH_MAX];
    if (type && is_source(type)) {
        int rc = add_source(block, type, parts);
        if (rc != HISTORY_NOT_TAKEN) return rc;
    } else if (!type || !strcmp(type, "text")) {
        if (!type || !json_is_string(text))
            return fail_field(b, "content", SRV_ERR_UNSUPPORTED,
                              "Only text is supported in tool results");
        history_add_text(parts, text);
        return 0;
    }
    snprintf(path, sizeof(path), "messages.%zu.content.%zu.content.%zu", b->message, b->place, k);
    history_leave_out_of_result(b->c->ignored, path, block, parts);
    return 0;
}

static int add_result_parts(const struct block *b, const json_t *content, json_t *parts)
{
    if (!content || json_is_null(content) || json_is_string(content)) {
        json_t *text = json_is_string(content) ? json_incref((json_t *)content) : json_string("");
        json_array_append_new(parts, json_pack("{s:s, s:o}", "type", "text", "text", text));
        return 0;
    }
    bool inner = is_foreign_result(b->type) && json_is_object(content);
    if (inner && json_object_get(content, "source")) return add_result_block(b, 0, content, parts);
    if (inner) {
        struct srv_span text = srv_body_span(b->c->body, content);
        json_array_append_new(
            parts, json_pack("{s:s, s:s%}", "type", "text", "text", text.text, text.len));
        return 0;
    }
    if (!json_is_array(content))
        return fail_field(b, "content", SRV_ERR_INVALID_TYPE,
                          "this field must be a string or text blocks");
    for (size_t k = 0; k < json_array_size(content); k++)
        if (add_result_block(b, k, json_array_get(content, k), parts)) return -1;
    return 0;
}

static int mark_error(json_t *parts)
{
    static const char word[] = "Error: ";
    json_t *first = json_array_get(parts, 0), *text = json_object_get(first, "text");
    if (!text || !strncmp(json_string_value(text), word, sizeof(word) - 1)) return 0;
    AUTO(buf_finish) struct buf b = {.max = 256u << 20};
    buf_puts(&b, word);
    buf_add(&b, json_string_value(text), json_string_length(text));
    if (!b.failed) json_object_set_new(first, "text", json_stringn(b.data, b.len));
    return b.failed ? param_no_memory() : 0;
}

static int add_result(const struct block *b, const json_t *content, json_t *list)
{
    const json_t *id = string_of(b, "tool_use_id");
    if (!id) return -1;
    json_t *parts = json_array();
    int rc = add_result_parts(b, content, parts);
    if (!rc && json_is_true(json_object_get(b->value, "is_error"))) rc = mark_error(parts);
    json_array_append_new(
        list, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", parts));
    return rc;
}

/* The text in the result of such a tool: a string, a list of blocks, a page that was fetched, or an
 * object with what a program wrote, a file or advice. NULL: there is none. */
static const json_t *foreign_content(const json_t *result)
{
    const json_t *content = json_object_get(result, "content"),
                 *inner = json_object_get(content, "content");
    if (json_is_object(inner)) return inner;
    bool has_text = json_is_string(content) || json_is_string(inner) ||
                    json_is_string(json_object_get(content, "stdout")) ||
                    json_is_string(json_object_get(content, "text")) ||
                    json_is_string(json_object_get(json_array_get(content, 0), "text"));
    return has_text ? content : NULL;
}

/* ---- assistant ----------------------------------------------------------------------------- */

static int add_call(const struct block *b, json_t *calls)
{
    const json_t *id = string_of(b, "id");
    const json_t *name = id ? string_of(b, "name") : NULL;
    const json_t *input = json_object_get(b->value, "input");
    if (!name) return -1;
    if (!json_is_object(input))
        return fail_field(b, "input", input ? SRV_ERR_INVALID_TYPE : SRV_ERR_MISSING,
                          "this field must be an object");
    struct srv_span text = srv_body_span(b->c->body, input);
    json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", id, "type", "function",
                                           "function", "name", name, "arguments",
                                           json_stringn(text.text, text.len)));
    return 0;
}

/* Several blocks of thinking are lines of one. */
static int add_thinking(const struct block *b, struct buf *reasoning)
{
    const json_t *text = string_of(b, "thinking");
    if (!text) return -1;
    if (reasoning->data) buf_puts(reasoning, "\n");
    buf_add(reasoning, json_string_value(text), json_string_length(text));
    buf_puts(reasoning, "");
    return reasoning->failed ? param_no_memory() : 0;
}

/* A turn of the assistant on its way. */
struct assistant {
    json_t *list, *parts, *calls;
    struct buf reasoning; /* without data: there is none */
    bool any;             /* its message has added one already */
};

static void begin_turn(struct assistant *a)
{
    a->parts = json_array();
    a->calls = json_array();
    buf_init(&a->reasoning, 256u << 20);
}

/* Adds its message; an empty one only if the turn would have none. */
static void end_turn(struct assistant *a)
{
    bool parts = json_array_size(a->parts) > 0, calls = json_array_size(a->calls) > 0;
    if (parts || calls || a->reasoning.data || !a->any) {
        json_t *made = json_pack("{s:s}", "role", "assistant");
        json_object_set_new(made, "content",
                            parts   ? json_incref(a->parts)
                            : calls ? json_null()
                                    : json_string(""));
        if (a->reasoning.data)
            json_object_set_new(made, "reasoning_content",
                                json_stringn(a->reasoning.data, a->reasoning.len));
        if (calls) json_object_set(made, "tool_calls", a->calls);
        json_array_append_new(a->list, made);
    }
    a->any = true;
    json_decref(a->parts);
    json_decref(a->calls);
    buf_finish(&a->reasoning);
}

/* A result inside of the assistant's message: what follows is another one. */
static int add_inner_result(const struct block *b, struct assistant *a)
{
    const json_t *content = foreign_content(b->value);
    if (!content) return leave_out(b);
    end_turn(a);
    begin_turn(a);
    return add_result(b, content, a->list);
}

static int add_assistant_block(const struct block *b, void *ctx)
{
    struct assistant *a = ctx;
    const char *id = json_string_value(json_object_get(b->value, "id"));
    const json_t *summary = json_object_get(b->value, "content");
    if (!strcmp(b->type, "text")) return add_text(b, a->parts);
    if (!strcmp(b->type, "tool_use")) return add_call(b, a->calls);
    if (!strcmp(b->type, "thinking")) return add_thinking(b, &a->reasoning);
    if (!strcmp(b->type, "redacted_thinking")) return 0;
    if (!strcmp(b->type, "tool_result")) return unsupported(b);
    if (is_foreign_result(b->type)) return add_inner_result(b, a);
    if (utf8_ends_with(b->type, "_tool_use") && !(id && json_object_get(b->c->gone, id)))
        return add_call(b, a->calls);
    if (strcmp(b->type, "compaction") != 0 || !json_is_string(summary)) return leave_out(b);
    history_add_text(a->parts, summary);
    return 0;
}

/* ---- user ---------------------------------------------------------------------------------- */

static int add_user_block(const struct block *b, void *ctx)
{
    if (!strcmp(b->type, "text")) return add_text(b, ctx);
    /* Results come before the text of their message. */
    if (!strcmp(b->type, "tool_result"))
        return add_result(b, json_object_get(b->value, "content"), b->c->list);
    if (!is_source(b->type)) return unsupported(b);
    int rc = add_source(b->value, b->type, ctx);
    if (rc != HISTORY_NOT_TAKEN) return rc;
    return fail_field(b, "", SRV_ERR_UNSUPPORTED,
                      "only text is supported in documents and search results");
}

/* ---- messages ------------------------------------------------------------------------------ */

/* place: of the message. */
static int each_block(const struct conversion *c, const json_t *content, size_t place,
                      int (*add)(const struct block *b, void *ctx), void *ctx)
{
    for (size_t k = 0; k < json_array_size(content); k++) {
        struct block b = {c, place, k, json_array_get(content, k), NULL};
        b.type = json_string_value(json_object_get(b.value, "type"));
        if (!b.type)
            return fail_field(&b, "type", SRV_ERR_INVALID_TYPE, "this field must be a string");
        if (add(&b, ctx)) return -1;
    }
    return 0;
}

static int add_assistant(const struct conversion *c, const json_t *content, size_t place)
{
    struct assistant a = {.list = c->list};
    begin_turn(&a);
    int rc = each_block(c, content, place, add_assistant_block, &a);
    end_turn(&a);
    return rc;
}

static int add_user(const struct conversion *c, const json_t *content, size_t place)
{
    json_auto_t *parts = json_array();
    int rc = each_block(c, content, place, add_user_block, parts);
    if (json_array_size(parts) > 0)
        json_array_append_new(c->list, json_pack("{s:s, s:O}", "role", "user", "content", parts));
    return rc;
}

static int fail_message(size_t i, const char *field, enum srv_error kind, const char *wanted)
{
    char path[PARAM_PATH_MAX];
    snprintf(path, sizeof(path), "messages.%zu%s%s", i, *field ? "." : "", field);
    return param_fail(kind, path, "%s: %s.", path, wanted);
}

static int add_system_block(const struct block *b, void *ctx)
{
    return strcmp(b->type, "text") ? unsupported(b) : add_text(b, ctx);
}

static int add_system(const struct conversion *c, const json_t *content, size_t place)
{
    json_t *parts = json_array();
    int rc = each_block(c, content, place, add_system_block, parts);
    json_array_append_new(c->list, json_pack("{s:s, s:o}", "role", "system", "content", parts));
    return rc;
}

static int add_message(const struct conversion *c, json_t *message, size_t i)
{
    const json_t *role = json_object_get(message, "role"),
                 *content = json_object_get(message, "content");
    const char *word = json_string_value(role);
    if (!json_is_object(message))
        return fail_message(i, "", SRV_ERR_INVALID_TYPE, "a message must be an object");
    if (!role || json_is_null(role))
        return fail_message(i, "role", SRV_ERR_MISSING, "this field is required");
    if (!word || (strcmp(word, "user") && strcmp(word, "assistant") && strcmp(word, "system")))
        return fail_message(i, "role", word ? SRV_ERR_INVALID_VALUE : SRV_ERR_INVALID_TYPE,
                            "a role must be 'user', 'assistant' or 'system'");
    if (!content || json_is_null(content))
        return fail_message(i, "content", SRV_ERR_MISSING, "this field is required");
    if (json_array_size(content) > 0)
        return (*word == 's' ? add_system : *word == 'u' ? add_user : add_assistant)(c, content, i);
    if (json_is_string(content) || json_is_array(content))
        return json_array_append(c->list, message), 0;
    return fail_message(i, "content", SRV_ERR_INVALID_TYPE,
                        "this field must be a string or an array of blocks");
}

/* ---- the system prompt --------------------------------------------------------------------- */

static int check_system(const json_t *system)
{
    char path[PARAM_PATH_MAX];
    if (!json_is_string(system) && !json_is_array(system))
        return param_wrong_type("system", "a string or an array of text blocks");
    for (size_t k = 0; k < json_array_size(system); k++) {
        const json_t *block = json_array_get(system, k);
        const char *type = json_string_value(json_object_get(block, "type"));
        snprintf(path, sizeof(path), "system.%zu", k);
        if (type && strcmp(type, "text") != 0)
            return param_fail(SRV_ERR_UNSUPPORTED, path, "%s: only text is supported.", path);
        if (!type || !json_is_string(json_object_get(block, "text")))
            return param_fail(SRV_ERR_INVALID_TYPE, path,
                              "%s: a block must be an object with the type 'text' and a text.",
                              path);
    }
    return 0;
}

/* A call of the provider's tools whose result has no text is left out with it. */
static void find_gone(const struct conversion *c, const json_t *blocks)
{
    for (size_t k = 0; json_is_array(blocks) && k < json_array_size(blocks); k++) {
        const json_t *block = json_array_get(blocks, k);
        const char *type = json_string_value(json_object_get(block, "type")),
                   *id = json_string_value(json_object_get(block, "tool_use_id"));
        if (type && id && is_foreign_result(type) && !foreign_content(block))
            json_object_set_new(c->gone, id, json_true());
    }
}

json_t *messages_to_chat(const struct srv_body *body, json_t *ends, struct param_unknown *ignored)
{
    const json_t *messages = json_object_get(body->root, "messages"),
                 *system = json_object_get(body->root, "system");
    if (messages && !json_is_null(messages) && !json_is_array(messages)) {
        param_wrong_type("messages", "an array");
        return NULL;
    }
    if (system && !json_is_null(system) && check_system(system)) return NULL;
    if (json_is_array(messages) && json_array_size(messages) == 0) {
        param_fail(SRV_ERR_INVALID_VALUE, "messages",
                   "'messages' holds 0 messages; at least 1 is required.");
        return NULL;
    }
    const struct conversion c = {body, json_array(), json_object(), ignored};
    if (system && !json_is_null(system))
        json_array_append_new(c.list, json_pack("{s:s, s:O}", "role", "system", "content", system));
    int rc = 0;
    for (size_t i = 0; i < json_array_size(messages); i++)
        find_gone(&c, json_object_get(json_array_get(messages, i), "content"));
    for (size_t i = 0; !rc && i < json_array_size(messages); i++) {
        rc = add_message(&c, json_array_get(messages, i), i);
        json_array_append_new(ends, json_integer((json_int_t)json_array_size(c.list)));
    }
    json_decref(c.gone);
    if (!rc) return c.list;
    json_decref(c.list);
    return NULL;
}
