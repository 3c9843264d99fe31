/* SPDX-License-Identifier: MIT */
/* See history.h. Called on text workers. */
#include "server/api/read/history.h"

#include <stdio.h>
#include <string.h>

#include "base/auto.h"

static const char *type_of(const json_t *part)
{
    return json_string_value(json_object_get(part, "type"));
}

/* ---- left out ------------------------------------------------------------------------------ */

void history_leave_out(struct param_unknown *ignored, const char *path, const char *type)
{
    char name[PARAM_PATH_MAX + 48];
    snprintf(name, sizeof(name), "%s=%.40s", path, type);
    param_note(ignored, name);
    ignored->n++;
}

/* The word for what the type of a part holds, or NULL. */
static const char *media_of(const char *type)
{
    static const char *const words[] = {"image", "audio", "video", "file"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strstr(type, words[i])) return words[i];
    return strcmp(type, "document") ? NULL : "file";
}

void history_leave_out_of_result(struct param_unknown *ignored, const char *path,
                                 const json_t *part, json_t *parts)
{
    const json_t *file = json_object_get(part, "file"); /* as chat has it */
    const char *name = json_string_value(json_object_get(file ? file : part, "filename"));
    const char *media = media_of(type_of(part));
    history_leave_out(ignored, path, type_of(part));
    if (!name) name = json_string_value(json_object_get(part, "title"));
    if (!media) return;
    json_auto_t *text =
        json_sprintf("[%s left out%s%s]", media, name ? ": " : "", name ? name : "");
    history_add_text(parts, text);
}

/* ---- text ---------------------------------------------------------------------------------- */

enum { ANY_TEXT = HISTORY_MESSAGE | HISTORY_ANSWER | HISTORY_RESULT };

static const struct part_kind {
    const char *type, *member; /* that has the text */
    unsigned places;
} part_kinds[] = {
    {"text", "text", ANY_TEXT},
    {"input_text", "text", ANY_TEXT},
    {"output_text", "text", ANY_TEXT},
    {"refusal", "refusal", HISTORY_ANSWER},
    {"logs", "logs", HISTORY_RESULT},
    {"reasoning_text", "text", HISTORY_REASONING},
    {"summary_text", "text", HISTORY_SUMMARY},
};

void history_add_text(json_t *parts, const json_t *text)
{
    json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
}

int history_add_part(struct param_unknown *ignored, const char *path, const json_t *part,
                     enum history_place place, json_t *parts)
{
    const char *type = type_of(part);
    if (!type) return HISTORY_NO_TEXT;
    for (size_t i = 0; i < sizeof(part_kinds) / sizeof(part_kinds[0]); i++) {
        if (!(part_kinds[i].places & place) || strcmp(type, part_kinds[i].type) != 0) continue;
        const json_t *text = json_object_get(part, part_kinds[i].member);
        if (!json_is_string(text)) return HISTORY_NO_TEXT;
        history_add_text(parts, text);
        return 0;
    }
    if (place == HISTORY_MESSAGE) return HISTORY_NOT_TAKEN;
    if (place == HISTORY_RESULT)
        history_leave_out_of_result(ignored, path, part, parts);
    else
        history_leave_out(ignored, path, type);
    return 0;
}

json_t *history_arguments(const char *name, const json_t *input)
{
    json_auto_t *object = json_pack("{s:O}", name, input);
    AUTO_FREE char *text = json_dumps(object, 0);
    return text ? json_string(text) : NULL;
}

/* ---- messages of the chat dialect ----------------------------------------------------------- */

/* The parts that stay of a content at `path`, or NULL if it is all of them. */
static json_t *take_parts(struct param_unknown *ignored, const char *path, const json_t *content,
                          enum history_place place)
{
    bool any = false;
    for (size_t k = 0; json_is_array(content) && k < json_array_size(content); k++) {
        const char *type = type_of(json_array_get(content, k));
        any |= type && strcmp(type, "text") != 0;
    }
    json_t *parts = any ? json_array() : NULL;
    for (size_t k = 0; any && k < json_array_size(content); k++) {
        char at[PARAM_PATH_MAX];
        json_t *part = json_array_get(content, k);
        snprintf(at, sizeof(at), "%.60s[%zu]", path, k);
        if (history_add_part(ignored, at, part, place, parts)) json_array_append(parts, part);
    }
    return parts;
}

/* The calls with those of custom tools as calls of functions, or NULL if there are none. */
static json_t *take_calls(const json_t *calls)
{
    json_t *taken = NULL;
    for (size_t k = 0; json_is_array(calls) && k < json_array_size(calls); k++) {
        const json_t *call = json_array_get(calls, k), *custom = json_object_get(call, "custom"),
                     *id = json_object_get(call, "id"), *name = json_object_get(custom, "name"),
                     *input = json_object_get(custom, "input");
        if (!json_is_string(id) || !json_is_string(name) || !json_is_string(input)) continue;
        if (!taken) taken = json_copy((json_t *)calls);
        json_array_set_new(taken, k,
                           json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", id, "type", "function",
                                     "function", "name", name, "arguments",
                                     history_arguments("input", input)));
    }
    return taken;
}

/* The text of a refusal that an answer without content has beside it, or NULL. */
static json_t *take_refusal(const json_t *answer)
{
    const json_t *content = json_object_get(answer, "content");
    json_t *refusal = json_object_get(answer, "refusal");
    bool empty = !content || json_is_null(content) ||
                 (json_is_string(content) && json_string_length(content) == 0);
    return empty && json_string_length(refusal) > 0 ? json_incref(refusal) : NULL;
}

/* The message in the one form; NULL: it has it. */
static json_t *take_message(const json_t *message, const char *path, struct param_unknown *ignored)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    bool answer = role && !strcmp(role, "assistant"), result = role && !strcmp(role, "tool");
    json_t *content = NULL, *calls = NULL;
    if (answer || result)
        content = take_parts(ignored, path, json_object_get(message, "content"),
                             answer ? HISTORY_ANSWER : HISTORY_RESULT);
    if (answer && !content) content = take_refusal(message);
    if (answer) calls = take_calls(json_object_get(message, "tool_calls"));
    json_t *taken = content || calls ? json_copy((json_t *)message) : NULL;
    if (content) json_object_set_new(taken, "content", content);
    if (calls) json_object_set_new(taken, "tool_calls", calls);
    return taken;
}

int history_of_chat(json_t *messages, const char *field, struct param_unknown *ignored,
                    json_t **ret)
{
    json_t *list = NULL;
    for (size_t i = 0; json_is_array(messages) && i < json_array_size(messages); i++) {
        char path[PARAM_PATH_MAX];
        snprintf(path, sizeof(path), "%.40s[%zu].content", field, i);
        json_t *taken = take_message(json_array_get(messages, i), path, ignored);
        if (taken && !list) list = json_copy(messages);
        if (taken) json_array_set_new(list, i, taken);
    }
    *ret = list ? list : json_incref(messages);
    return srv_json_ran_out() ? param_no_memory() : 0;
}
