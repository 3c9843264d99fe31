/* SPDX-License-Identifier: MIT */
/* Input items to chat messages; see responses_input.h. Called on text workers. */
#include "server/api/read/responses_input.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "server/api/read/chat_input.h"

/* The turn of the assistant that items are added to. */
struct conversion {
    json_t *list;
    json_t *turn; /* borrowed from list; NULL: none is open */
    bool after_message;
    struct param_error *err;
};

struct item {
    const json_t *value;
    char path[PARAM_PATH_MAX];
};

/* ---- text ---------------------------------------------------------------------------------- */

static bool is_one_of(const char *type, const char *const *types)
{
    while (*types && strcmp(type, *types) != 0)
        types++;
    return *types != NULL;
}

/* One content part as the chat dialect's text part; NULL with err if it is not text. */
static json_t *text_part(const json_t *part, const char *path, const char *const *types,
                         struct param_error *err)
{
    char word[PARAM_WORD_MAX];
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");
    bool is_text = type && is_one_of(type, types);
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

/* Appends the parts of a list of texts. 0 or -1 with err. */
static int add_parts(const struct item *item, const char *member, const char *const *types,
                     json_t *parts, struct param_error *err)
{
    const json_t *list = json_object_get(item->value, member);
    for (size_t k = 0; json_is_array(list) && k < json_array_size(list); k++) {
        char path[PARAM_PATH_MAX + 48];
        snprintf(path, sizeof(path), "%s.%s[%zu]", item->path, member, k);
        json_t *part = text_part(json_array_get(list, k), path, types, err);
        if (!part) return -1;
        json_array_append_new(parts, part);
    }
    return 0;
}

/* Returns the string member of an item, or NULL with err. */
static const json_t *string_of(const struct item *item, const char *field, struct param_error *err)
{
    const json_t *value = json_object_get(item->value, field);
    char path[PARAM_PATH_MAX + 48];
    if (json_is_string(value)) return value;
    snprintf(path, sizeof(path), "%s.%s", item->path, field);
    if (!value || json_is_null(value))
        param_fail(err, SRV_ERR_MISSING, path, "'%s' is required.", path);
    else
        param_fail(err, SRV_ERR_INVALID_TYPE, path, "'%s' must be a string.", path);
    return NULL;
}

/* ---- the assistant's turn ------------------------------------------------------------------ */

/* The open turn, or a new one without content. */
static json_t *open_turn(struct conversion *c)
{
    if (c->turn) return c->turn;
    c->turn = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    json_array_append_new(c->list, c->turn);
    c->after_message = false;
    return c->turn;
}

static int add_call(struct conversion *c, const struct item *item)
{
    const json_t *id = string_of(item, "call_id", c->err);
    const json_t *name = id ? string_of(item, "name", c->err) : NULL;
    const json_t *arguments = name ? string_of(item, "arguments", c->err) : NULL;
    const char *space = json_string_value(json_object_get(item->value, "namespace"));
    if (!arguments) return -1;
    json_t *turn = open_turn(c), *calls = json_object_get(turn, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(turn, "tool_calls", calls);
        const json_t *content = json_object_get(turn, "content");
        if (json_is_string(content) && !json_string_length(content))
            json_object_set_new(turn, "content", json_null());
    }
    /* The tool's name as the model sees it; see tools_fields.h. */
    json_t *full = space ? json_sprintf("%s__%s", space, json_string_value(name))
                         : json_incref((json_t *)name);
    json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:o, s:O}}", "id", id, "type", "function",
                                           "function", "name", full, "arguments", arguments));
    c->after_message = false;
    return 0;
}

/* The texts of parts, one per line; they may hold NUL bytes. NULL: out of memory. */
static json_t *lines_of(const json_t *parts)
{
    struct buf b;
    buf_init(&b, 256u << 20);
    for (size_t k = 0; k < json_array_size(parts); k++) {
        const json_t *text = json_object_get(json_array_get(parts, k), "text");
        if (k > 0) buf_add(&b, "\n", 1);
        buf_add(&b, json_string_value(text), json_string_length(text));
    }
    json_t *lines = b.failed ? NULL : json_stringn(b.data ? b.data : "", b.len);
    buf_finish(&b);
    return lines;
}

/* Its full text if it was sent, else the summary. */
static int add_reasoning(struct conversion *c, const struct item *item)
{
    static const char *const texts[] = {"reasoning_text", NULL}, *const summaries[] = {
                                                                     "summary_text", NULL};
    json_t *parts = json_array();
    int rc = add_parts(item, "content", texts, parts, c->err);
    if (!rc && json_array_size(parts) == 0)
        rc = add_parts(item, "summary", summaries, parts, c->err);
    if (!rc && json_array_size(parts) > 0) {
        /* A second block of reasoning is of another turn. */
        if (c->turn && json_object_get(c->turn, "reasoning_content")) c->turn = NULL;
        json_t *turn = open_turn(c);
        json_object_set_new(turn, "reasoning_content", lines_of(parts));
    }
    json_decref(parts);
    c->after_message = false;
    return rc;
}

/* A part of the turn's text that came behind a call or reasoning. Parts in a turn are its own. */
static void add_to_turn(struct conversion *c, const json_t *content)
{
    json_t *parts = json_object_get(c->turn, "content");
    if (!json_is_array(parts)) {
        json_t *before = parts;
        parts = json_array();
        if (json_string_length(before) > 0)
            json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", before));
        json_object_set_new(c->turn, "content", parts);
    }
    if (json_is_array(content)) json_array_extend(parts, (json_t *)content);
    if (json_is_string(content))
        json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", content));
}

/* ---- items --------------------------------------------------------------------------------- */

static int add_message(struct conversion *c, const struct item *item)
{
    static const char *const types[] = {"input_text", "output_text", "text", NULL};
    const json_t *role = json_object_get(item->value, "role");
    json_t *content = json_object_get(item->value, "content"), *parts = json_array();
    const char *word = json_string_value(role);
    if (add_parts(item, "content", types, parts, c->err)) {
        json_decref(parts);
        return -1;
    }
    json_t *message = json_object();
    json_object_set(message, "role", (json_t *)role);
    json_object_set(message, "content", json_is_array(content) ? parts : content);
    json_decref(parts);
    if (chat_input_check_message(message, item->path, c->err)) {
        json_decref(message);
        return -1;
    }
    bool assistant = word && !strcmp(word, "assistant");
    if (assistant && c->turn && !c->after_message) {
        add_to_turn(c, json_object_get(message, "content"));
        json_decref(message);
    } else {
        json_array_append_new(c->list, message);
        c->turn = assistant ? message : NULL;
    }
    c->after_message = assistant;
    return 0;
}

static int add_output(struct conversion *c, const struct item *item)
{
    static const char *const types[] = {"input_text", "output_text", "text", NULL};
    const json_t *id = string_of(item, "call_id", c->err);
    json_t *output = json_object_get(item->value, "output"), *parts = json_array();
    int rc = id ? add_parts(item, "output", types, parts, c->err) : -1;
    if (!rc && !json_is_array(output) && !string_of(item, "output", c->err)) rc = -1;
    if (json_is_array(output)) output = parts;
    if (!rc)
        json_array_append_new(c->list, json_pack("{s:s, s:O, s:O}", "role", "tool", "tool_call_id",
                                                 id, "content", output));
    c->turn = NULL;
    json_decref(parts);
    return rc;
}

static int add_item(struct conversion *c, const struct item *item)
{
    const char *type = json_string_value(json_object_get(item->value, "type"));
    if (json_is_object(item->value) && (!type || !strcmp(type, "message")))
        return add_message(c, item);
    if (type && !strcmp(type, "function_call")) return add_call(c, item);
    if (type && !strcmp(type, "function_call_output")) return add_output(c, item);
    if (type && !strcmp(type, "reasoning")) return add_reasoning(c, item);
    char word[PARAM_WORD_MAX];
    return param_fail(c->err, SRV_ERR_UNSUPPORTED, item->path, "'%s' must be a message%s%s%s.",
                      item->path, type ? ", but is of type '" : "",
                      type ? param_word(type, word) : "", type ? "'" : "");
}

json_t *responses_to_chat(const json_t *instructions, const json_t *input, struct param_error *err)
{
    struct conversion c = {.list = json_array(), .err = err};
    if (json_is_string(instructions))
        json_array_append_new(c.list,
                              json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    if (json_is_string(input)) {
        json_array_append_new(c.list, json_pack("{s:s, s:O}", "role", "user", "content", input));
        return c.list;
    }
    for (size_t i = 0; i < json_array_size(input); i++) {
        struct item item = {.value = json_array_get(input, i)};
        snprintf(item.path, sizeof(item.path), "input[%zu]", i);
        if (add_item(&c, &item)) {
            json_decref(c.list);
            return NULL;
        }
    }
    return c.list;
}
