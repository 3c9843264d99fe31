/* SPDX-License-Identifier: MIT */
/* See metadata_lines.h. Called on text workers. */
#include "server/api/read/metadata_lines.h"

#include <stdio.h>
#include <string.h>

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

/* The bytes of such lines, and of blank ones behind them, at the beginning of a text. */
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

size_t metadata_lines_of_text(const json_t *text)
{
    return lines_of(text, NULL);
}

/* The text that may begin with them, or NULL. */
static const json_t *first_text(const json_t *messages)
{
    const json_t *first = json_array_get(messages, 0), *content = json_object_get(first, "content");
    const char *role = json_string_value(json_object_get(first, "role"));
    if (json_is_array(content)) content = json_object_get(json_array_get(content, 0), "text");
    bool leads = role && (!strcmp(role, "system") || !strcmp(role, "developer"));
    return leads && json_is_string(content) ? content : NULL;
}

size_t metadata_lines_length(const json_t *messages)
{
    const json_t *text = first_text(messages);
    return text ? lines_of(text, NULL) : 0;
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

json_t *metadata_lines_take(const json_t *messages, struct metadata_lines *lines)
{
    const json_t *text = first_text(messages);
    json_t *list = json_copy((json_t *)messages);
    json_t *first =
        without(json_array_get(messages, 0), lines_of(text, lines), json_array_size(messages) == 1);
    if (first)
        json_array_set_new(list, 0, first);
    else
        json_array_remove(list, 0);
    return list;
}
