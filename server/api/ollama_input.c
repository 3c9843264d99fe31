/* SPDX-License-Identifier: MIT */
/* See ollama_input.h. Called on text workers. */
#include "server/api/ollama_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls that may wait for a result, which looks at all of them. */
enum { MAX_OPEN_CALLS = 1024 };

/* A conversation on its way. */
struct conversion {
    const struct srv_body *body;
    json_t *open; /* calls without a result: [id, name] */
    int n_made;   /* ids so far */
};

static int fail(size_t message, const char *field, enum srv_error kind, const char *wanted)
{
    char path[PARAM_PATH_MAX];
    snprintf(path, sizeof(path), "messages[%zu].%s", message, field);
    return param_fail(kind, path, "'%s' %s.", path, wanted);
}

/* A copy of a call with an id and its arguments as text: it waits for a result from now on. */
static json_t *take_call(struct conversion *c, const json_t *given)
{
    json_t *function = json_copy(json_object_get(given, "function")),
           *id = json_incref(json_object_get(given, "id")),
           *name = json_object_get(function, "name"),
           *arguments = json_object_get(function, "arguments");
    struct srv_span text = srv_body_span(c->body, arguments);
    if (!arguments || json_is_null(arguments)) text = (struct srv_span){"{}", 2};
    if (!arguments || json_is_null(arguments) || json_is_object(arguments))
        json_object_set_new(function, "arguments", json_stringn(text.text, text.len));
    if (json_string_length(id) == 0) {
        json_decref(id);
        id = json_sprintf("call_%d", c->n_made++);
    }
    if (json_is_string(name) && json_array_size(c->open) < MAX_OPEN_CALLS)
        json_array_append_new(c->open, json_pack("[O, O]", id, name));
    return json_pack("{s:o, s:s, s:o*}", "id", id, "type", "function", "function", function);
}

static void take_calls(struct conversion *c, json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    json_auto_t *list = json_array();
    for (size_t k = 0; k < json_array_size(calls); k++)
        json_array_append_new(list, take_call(c, json_array_get(calls, k)));
    if (json_array_size(list) == 0) json_object_del(message, "tool_calls");
    if (json_array_size(list) > 0) json_object_set(message, "tool_calls", list);
}

/* The open call with this text at `place` of its pair, or -1. */
static int find_call(const struct conversion *c, size_t place, const char *text)
{
    for (size_t k = 0; text && *text && k < json_array_size(c->open); k++)
        if (!strcmp(json_string_value(json_array_get(json_array_get(c->open, k), place)), text))
            return (int)k;
    return -1;
}

static int take_result(struct conversion *c, size_t i, json_t *message)
{
    const char *id = json_string_value(json_object_get(message, "tool_call_id")),
               *name = json_string_value(json_object_get(message, "tool_name"));
    int at = find_call(c, 0, id);
    if (at < 0) at = find_call(c, 1, name);
    if (at < 0) at = 0;
    json_t *call = json_array_get(c->open, (size_t)at);
    if (!call)
        return fail(i, "role", SRV_ERR_INVALID_VALUE,
                    "is 'tool', but no call before it waits for a result");
    json_object_set(message, "tool_call_id", json_array_get(call, 0));
    json_object_set(message, "name", json_array_get(call, 1));
    json_object_del(message, "tool_name");
    json_array_remove(c->open, (size_t)at);
    return 0;
}

/* Changes a copy of message i. */
static int take_message(struct conversion *c, size_t i, json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content"),
                 *images = json_object_get(message, "images");
    json_t *thinking = json_object_get(message, "thinking");
    if (images && !json_is_null(images) && !(json_is_array(images) && !json_array_size(images)))
        return fail(i, "images", SRV_ERR_UNSUPPORTED, "is not supported: no model sees here");
    json_object_del(message, "images");
    if (!content || json_is_null(content)) json_object_set_new(message, "content", json_string(""));
    if (json_string_length(thinking) > 0) json_object_set(message, "reasoning_content", thinking);
    json_object_del(message, "thinking");
    if (role && !strcmp(role, "tool")) return take_result(c, i, message);
    take_calls(c, message);
    return 0;
}

json_t *ollama_messages(const struct srv_body *body, const json_t *messages)
{
    struct conversion c = {.body = body, .open = json_array()};
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; i < json_array_size(messages) && !rc; i++) {
        json_t *given = json_array_get(messages, i);
        json_t *message = json_is_object(given) ? json_copy(given) : json_incref(given);
        if (json_is_object(given)) rc = take_message(&c, i, message);
        json_array_append_new(list, message);
    }
    json_decref(c.open);
    if (!rc) return list;
    json_decref(list);
    return NULL;
}

/* ---- keep_alive ---------------------------------------------------------------------------- */

/* A duration of Go: "0", or numbers with units. *ret_zero: it is 0. */
static bool is_duration(const char *text, bool *ret_zero)
{
    static const char *const units[] = {"ns", "us", "µs", "ms", "s", "m", "h"};
    text += *text == '-' || *text == '+';
    *ret_zero = true;
    if (!strcmp(text, "0")) return true;
    for (bool any = false;; any = true) {
        size_t n = strspn(text, "0123456789."), u = 0;
        char *end;
        if (n == 0) return any && !*text;
        if (strtod(text, &end) > 0) *ret_zero = false;
        if (end != text + n) return false;
        while (u < sizeof(units) / sizeof(units[0]) && strncmp(end, units[u], strlen(units[u])))
            u++;
        if (u == sizeof(units) / sizeof(units[0])) return false;
        text = end + strlen(units[u]);
    }
}

int ollama_read_keep_alive(const json_t *root, bool *ret_now)
{
    const json_t *value = json_object_get(root, "keep_alive");
    const char *text = json_string_value(value);
    *ret_now = json_is_number(value) && json_number_value(value) == 0;
    if (!value || json_is_null(value) || json_is_number(value)) return 0;
    if (text && is_duration(text, ret_now)) return 0;
    return param_fail(text ? SRV_ERR_INVALID_VALUE : SRV_ERR_INVALID_TYPE, "keep_alive",
                      "'keep_alive' must be a number of seconds or a duration such as \"5m\".");
}
