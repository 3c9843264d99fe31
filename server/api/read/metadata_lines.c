/* SPDX-License-Identifier: MIT */
/* See metadata_lines.h. Called on text workers. */
#include "server/api/read/metadata_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/api/read/json_memory.h"

/* A line is a name, a colon and anything: how the name begins, and what it goes on with. */
static const struct {
    const char *begin, *rest;
} forms[] = {
    {"x-anthropic-", "abcdefghijklmnopqrstuvwxyz0123456789-"},
};

/* Texts may hold NUL bytes. */
static bool is_one_of(char c, const char *set)
{
    return c && strchr(set, c);
}

/* The length of the name of a line that begins at s, or 0. */
static size_t name_at(const char *s, size_t len)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        size_t begin = strlen(forms[i].begin), n = begin;
        if (len <= begin || memcmp(s, forms[i].begin, begin) != 0) continue;
        while (n < len && is_one_of(s[n], forms[i].rest))
            n++;
        if (n > begin && n < len && s[n] == ':') return n;
    }
    return 0;
}

/* The length of the blank line at s with its newline, which the last one needs not have; or 0. */
static size_t blank_at(const char *s, size_t len)
{
    size_t n = 0;
    while (n < len && is_one_of(s[n], " \t\r"))
        n++;
    if (n < len && s[n] != '\n') return 0;
    return n < len ? n + 1 : n;
}

static void note(struct metadata_lines *lines, const char *name, size_t len)
{
    char shown[PARAM_PATH_MAX];
    if (!lines) return;
    snprintf(shown, sizeof(shown), "%s:%.*s", lines->place,
             (int)(len < sizeof(shown) ? len : sizeof(shown)), name);
    param_note(lines->noted, shown);
    lines->n++;
}

/* How many bytes of a text are such lines and blank ones behind them. */
static size_t lines_of(const json_t *text, struct metadata_lines *lines)
{
    const char *s = json_string_value(text);
    size_t len = json_string_length(text), at = 0, n;
    while ((n = name_at(s + at, len - at)) > 0) {
        const char *end = memchr(s + at, '\n', len - at);
        note(lines, s + at, n);
        at = end ? (size_t)(end - s) + 1 : len;
    }
    while (at > 0 && (n = blank_at(s + at, len - at)) > 0)
        at += n;
    return at;
}

size_t metadata_lines_length(const json_t *text)
{
    return lines_of(text, NULL);
}

static json_t *behind(const json_t *text, size_t n)
{
    return json_stringn(json_string_value(text) + n, json_string_length(text) - n);
}

/* The first message without n bytes of its text; NULL: nothing is left of it, or out of memory. */
static json_t *without(const json_t *message, size_t n, bool only)
{
    json_t *content = json_object_get(message, "content"), *first = json_array_get(content, 0);
    const json_t *text = first ? json_object_get(first, "text") : content;
    bool empty = n == json_string_length(text) && (!first || json_array_size(content) == 1);
    if (empty && !only) return NULL;
    json_t *changed = json_copy((json_t *)message), *left = NULL;
    if (empty || !first) {
        left = behind(text, n);
    } else {
        left = json_copy(content);
        json_array_remove(left, 0);
        if (n < json_string_length(text)) {
            json_t *part = json_copy(first);
            json_object_set_new(part, "text", behind(text, n));
            json_array_insert_new(left, 0, part);
        }
    }
    json_object_set_new(changed, "content", left);
    return changed;
}

/* The list with another first message, or without it; the rest of its text stays as it is. NULL:
 * out of memory. */
static char *with_first(const char *list, const json_t *first)
{
    struct srv_json_items items;
    struct srv_span item = {list, 0};
    struct buf b;
    size_t len = strlen(list);
    srv_json_items_begin(&items, (struct srv_span){list, len});
    bool found =
        srv_json_items_next(&items, &item) && (first || srv_json_items_next(&items, &item));
    char *own = first ? json_dumps(first, JSON_COMPACT) : NULL;
    const char *rest = first ? item.text + item.len : item.text;
    buf_init(&b, len + (own ? strlen(own) : 0) + 2);
    buf_puts(&b, "[");
    if (own) buf_puts(&b, own);
    buf_add(&b, rest, len - (size_t)(rest - list));
    srv_json_items_end(&items);
    if (!found || (first && !own) || b.failed) buf_finish(&b);
    free(own);
    return b.data;
}

int metadata_lines_take(const json_t *messages, char **text, struct metadata_lines *lines)
{
    const json_t *first = json_array_get(messages, 0), *content = json_object_get(first, "content");
    const char *role = json_string_value(json_object_get(first, "role"));
    if (json_is_array(content)) content = json_object_get(json_array_get(content, 0), "text");
    if (!role || (strcmp(role, "system") && strcmp(role, "developer")) || !json_is_string(content))
        return 0;
    size_t n = lines_of(content, lines);
    if (n == 0) return 0;
    json_t *changed = without(first, n, json_array_size(messages) == 1);
    char *list = srv_json_ran_out() ? NULL : with_first(*text, changed);
    json_decref(changed);
    if (!list) return -1;
    free(*text);
    *text = list;
    return 0;
}
