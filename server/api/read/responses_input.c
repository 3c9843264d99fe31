/* SPDX-License-Identifier: MIT */
/* Input items of Responses to chat messages; see history.h. Called on text workers. */
#include "server/api/read/history.h"

#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "server/api/read/chat_input.h"

struct conversion {
    const struct srv_body *body;
    json_t *list;
    json_t *turn; /* of the assistant, that items are added to; of list; NULL: none is open */
    bool after_message;
    json_t *gone; /* the ids of calls that are left out with their results, as members */
    struct param_unknown *ignored;
};

struct item {
    const json_t *value;
    const char *type; /* NULL: none */
    char path[PARAM_PATH_MAX];
};

/* ---- parts of text ------------------------------------------------------------------------- */

/* Adds the text of a content part. 0 or -1 after param_fail. */
static int add_part(struct conversion *c, const json_t *part, const char *path,
                    enum history_place place, json_t *parts)
{
    char word[PARAM_WORD_MAX];
    const char *type = json_string_value(json_object_get(part, "type"));
    int rc = history_add_part(c->ignored, path, part, place, parts);
    if (rc == HISTORY_NOT_TAKEN)
        return param_fail(SRV_ERR_UNSUPPORTED, path,
                          "'%s' is of type '%s'; only text is supported.", path,
                          param_word(type, word));
    if (!rc) return 0;
    return param_wrong_type(path, "an object with a type and a text");
}

/* Appends the parts of a list of texts, which is a member of the item. 0 or -1 after param_fail. */
static int add_parts(struct conversion *c, const struct item *item, const char *member,
                     const json_t *list, enum history_place place, json_t *parts)
{
    for (size_t k = 0; json_is_array(list) && k < json_array_size(list); k++) {
        char path[PARAM_PATH_MAX + 48];
        snprintf(path, sizeof(path), "%s.%s[%zu]", item->path, member, k);
        if (add_part(c, json_array_get(list, k), path, place, parts)) return -1;
    }
    return 0;
}

/* Returns the string member of an item, or NULL after param_fail. */
static const json_t *string_of(const struct item *item, const char *field)
{
    const json_t *value = json_object_get(item->value, field);
    char path[PARAM_PATH_MAX + 48];
    snprintf(path, sizeof(path), "%s.%s", item->path, field);
    return param_check_string(value, path) ? NULL : value;
}

/* ---- calls and results ---------------------------------------------------------------------- */

/* Calls of functions, and of tools that are no functions or that the provider ran. */
static const struct call_kind {
    const char *type;      /* without "_call" the tool's name, if the item has none */
    const char *arguments; /* the member that they are */
    bool alone;            /* they are an object with that member alone */
    const char *result;    /* the member that has it; NULL: it comes in an item TYPE_output */
} call_kinds[] = {
    {"function_call", "arguments", false, NULL},
    {"custom_tool_call", "input", true, NULL},
    {"mcp_call", "arguments", false, "output"},
    {"local_shell_call", "action", false, NULL},
    {"shell_call", "action", false, NULL},
    {"apply_patch_call", "operation", false, NULL},
    {"code_interpreter_call", "code", true, "outputs"},
    {"file_search_call", "queries", true, "results"},
    {"program", "code", true, NULL},
};

static const struct call_kind *find_call(const struct item *item)
{
    for (size_t i = 0; i < sizeof(call_kinds) / sizeof(call_kinds[0]); i++)
        if (!strcmp(item->type, call_kinds[i].type)) return &call_kinds[i];
    return NULL;
}

/* The id by which a call and its result belong together, or NULL. */
static const json_t *id_of(const json_t *item)
{
    const json_t *id = json_object_get(item, "call_id");
    if (!json_is_string(id)) id = json_object_get(item, "id");
    return json_is_string(id) ? id : NULL;
}

/* The result that the item is or, as a call, has in it: a text, a list, an error of any form. NULL:
 * none. */
static const json_t *result_of(const struct item *item, const struct call_kind *call)
{
    const json_t *result = json_object_get(item->value, call ? call->result : "output");
    if (!call && !result) result = json_object_get(item->value, "result");
    if (json_is_string(result) || json_is_array(result)) return result;
    result = call && call->result ? json_object_get(item->value, "error") : NULL;
    return json_is_null(result) ? NULL : result;
}

static bool is_function(const struct item *item)
{
    return !strcmp(item->type, "function_call") || !strcmp(item->type, "function_call_output");
}

/* Returns true for an item that a chat cannot hold: no call and no result, or without text. */
static bool is_foreign(const struct item *item)
{
    static const char *const others[] = {"message", "reasoning", "item_reference", NULL};
    const struct call_kind *call = find_call(item);
    const char *end = strstr(item->type, "_output");
    if (is_function(item) || param_find_word(others, item->type) >= 0) return false;
    if (!id_of(item->value)) return true;
    if (!call) return !end || end[strlen("_output")] || !result_of(item, NULL);
    const json_t *arguments = json_object_get(item->value, call->arguments);
    return !(json_is_string(arguments) || json_is_array(arguments) || json_is_object(arguments)) ||
           (call->result && !result_of(item, call));
}

/* A value as text; that of an object or list is the body's own. A new reference. */
static json_t *text_of(const struct conversion *c, const json_t *value)
{
    if (json_is_string(value)) return json_incref((json_t *)value);
    struct srv_span span = srv_body_span(c->body, value);
    return json_stringn(span.text, span.len);
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

/* The tool's name as the model sees it; see tools_fields.h. A new reference. */
static json_t *name_of(const struct item *item)
{
    const char *space = json_string_value(json_object_get(item->value, "namespace"));
    const char *end = strstr(item->type, "_call");
    json_t *name = json_object_get(item->value, "name");
    if (!json_is_string(name))
        return json_stringn(item->type, end ? (size_t)(end - item->type) : strlen(item->type));
    return space ? json_sprintf("%s__%s", space, json_string_value(name)) : json_incref(name);
}

static void add_call(struct conversion *c, const struct item *item, const struct call_kind *call)
{
    json_t *turn = open_turn(c), *calls = json_object_get(turn, "tool_calls");
    const json_t *value = json_object_get(item->value, call->arguments);
    if (!calls) {
        calls = json_array();
        json_object_set_new(turn, "tool_calls", calls);
        const json_t *content = json_object_get(turn, "content");
        if (json_is_string(content) && !json_string_length(content))
            json_object_set_new(turn, "content", json_null());
    }
    json_t *arguments = call->alone ? history_arguments(call->arguments, value) : text_of(c, value);
    json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:o, s:o}}", "id", id_of(item->value),
                                           "type", "function", "function", "name", name_of(item),
                                           "arguments", arguments));
    c->after_message = false;
}

/* The texts of parts, one per line; they may hold NUL bytes. NULL: out of memory. */
static json_t *lines_of(const json_t *parts)
{
    AUTO(buf_finish) struct buf b = {.max = 256u << 20};
    for (size_t k = 0; k < json_array_size(parts); k++) {
        const json_t *text = json_object_get(json_array_get(parts, k), "text");
        if (k > 0) buf_add(&b, "\n", 1);
        buf_add(&b, json_string_value(text), json_string_length(text));
    }
    return b.failed ? NULL : json_stringn(b.data ? b.data : "", b.len);
}

/* Its full text if it was sent, else the summary. */
static int add_reasoning(struct conversion *c, const struct item *item)
{
    const json_t *content = json_object_get(item->value, "content"),
                 *summary = json_object_get(item->value, "summary");
    json_auto_t *parts = json_array();
    int rc = add_parts(c, item, "content", content, HISTORY_REASONING, parts);
    if (!rc && json_array_size(parts) == 0)
        rc = add_parts(c, item, "summary", summary, HISTORY_SUMMARY, parts);
    if (!rc && json_array_size(parts) > 0) {
        /* A second block of reasoning is of another turn. */
        if (c->turn && json_object_get(c->turn, "reasoning_content")) c->turn = NULL;
        json_t *turn = open_turn(c);
        json_object_set_new(turn, "reasoning_content", lines_of(parts));
    }
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
        if (json_string_length(before) > 0) history_add_text(parts, before);
        json_object_set_new(c->turn, "content", parts);
    }
    if (json_is_array(content)) json_array_extend(parts, (json_t *)content);
    if (json_is_string(content)) history_add_text(parts, content);
}

/* ---- items --------------------------------------------------------------------------------- */

static int add_message(struct conversion *c, const struct item *item)
{
    const json_t *role = json_object_get(item->value, "role");
    json_t *content = json_object_get(item->value, "content");
    json_auto_t *parts = json_array(), *message = json_object();
    const char *word = json_string_value(role);
    bool assistant = word && !strcmp(word, "assistant");
    if (add_parts(c, item, "content", content, assistant ? HISTORY_ANSWER : HISTORY_MESSAGE, parts))
        return -1;
    json_object_set(message, "role", (json_t *)role);
    json_object_set(message, "content", json_is_array(content) ? parts : content);
    if (chat_input_check_message(message, item->path)) return -1;
    if (assistant && c->turn && !c->after_message) {
        add_to_turn(c, json_object_get(message, "content"));
    } else {
        json_array_append(c->list, message);
        c->turn = assistant ? message : NULL;
    }
    c->after_message = assistant;
    return 0;
}

/* A list of parts, or of what has no type and goes as text. */
static int add_result(struct conversion *c, const struct item *item, const char *member,
                      const json_t *result)
{
    bool parts = is_function(item) || json_object_get(json_array_get(result, 0), "type");
    json_t *content = parts && json_is_array(result) ? json_array() : text_of(c, result);
    int rc =
        json_is_array(content) ? add_parts(c, item, member, result, HISTORY_RESULT, content) : 0;
    json_array_append_new(c->list, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id",
                                             id_of(item->value), "content", content));
    c->turn = NULL;
    return rc;
}

static int check_function(const struct item *item, bool call)
{
    bool list = !call && json_is_array(json_object_get(item->value, "output"));
    return string_of(item, "call_id") && (!call || string_of(item, "name")) &&
                   (list || string_of(item, call ? "arguments" : "output"))
               ? 0
               : -1;
}

static int add_call_or_result(struct conversion *c, const struct item *item)
{
    const struct call_kind *call = find_call(item);
    const json_t *id = id_of(item->value);
    if (is_foreign(item) || (id && json_object_get(c->gone, json_string_value(id)))) {
        history_leave_out(c->ignored, item->path, item->type);
        return 0;
    }
    if (is_function(item) && check_function(item, call != NULL)) return -1;
    if (call) add_call(c, item, call);
    const json_t *result = result_of(item, call);
    return result ? add_result(c, item, call ? call->result : "output", result) : 0;
}

static int add_item(struct conversion *c, const struct item *item)
{
    if (json_is_object(item->value) && (!item->type || !strcmp(item->type, "message")))
        return add_message(c, item);
    if (!item->type || !strcmp(item->type, "item_reference"))
        return param_fail(SRV_ERR_UNSUPPORTED, item->path, "'%s' must be a message%s.", item->path,
                          item->type ? ", but is of type 'item_reference'" : "");
    if (!strcmp(item->type, "reasoning")) return add_reasoning(c, item);
    return add_call_or_result(c, item);
}

static struct item item_at(const json_t *input, size_t i)
{
    struct item item = {.value = json_array_get(input, i)};
    item.type = json_string_value(json_object_get(item.value, "type"));
    snprintf(item.path, sizeof(item.path), "input[%zu]", i);
    return item;
}

/* A call whose result is left out goes too, and a result whose call is. */
static void find_gone(struct conversion *c, const json_t *input)
{
    for (size_t i = 0; i < json_array_size(input); i++) {
        const struct item item = item_at(input, i);
        const json_t *id = id_of(item.value);
        if (json_string_length(id) > 0 && item.type && is_foreign(&item))
            json_object_set_new(c->gone, json_string_value(id), json_true());
    }
}

json_t *responses_to_chat(const struct srv_body *body, json_t *ends, struct param_unknown *ignored)
{
    const json_t *instructions = json_object_get(body->root, "instructions"),
                 *input = json_object_get(body->root, "input");
    struct conversion c = {
        .body = body, .list = json_array(), .gone = json_object(), .ignored = ignored};
    int rc = 0;
    if (json_is_string(instructions))
        json_array_append_new(c.list,
                              json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    if (json_is_string(input))
        json_array_append_new(c.list, json_pack("{s:s, s:O}", "role", "user", "content", input));
    find_gone(&c, input);
    for (size_t i = 0; !rc && i < json_array_size(input); i++) {
        const struct item item = item_at(input, i);
        rc = add_item(&c, &item);
        json_array_append_new(ends, json_integer((json_int_t)json_array_size(c.list)));
    }
    json_decref(c.gone);
    if (!rc) return c.list;
    json_decref(c.list);
    return NULL;
}
