/* SPDX-License-Identifier: MIT */
/* The messages of a conversation; see chat_conversation.h. */
#include "server/cli/chat_conversation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/utf8.h"

enum { FILE_MAX_BYTES = 32 << 20, MESSAGE_MAX_BYTES = 16 << 20, TITLE_BYTES = 60 };

static const char format[] = "hearth-conversations";

int conversation_init(struct conversation *c)
{
    c->system = json_string("");
    c->messages = json_array();
    return c->system && c->messages ? 0 : -1;
}

void conversation_finish(struct conversation *c)
{
    json_decref(c->system);
    json_decref(c->messages);
}

int conversation_add(struct conversation *c, const char *role, const char *text, size_t len,
                     const char *state)
{
    json_t *message = json_pack("{s:s, s:s%}", "role", role, "content", text ? text : "", len);
    if (message && state) json_object_set_new(message, "state", json_string(state));
    return json_array_append_new(c->messages, message);
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

char *conversation_undo(struct conversation *c)
{
    for (size_t n = json_array_size(c->messages); n > 0; n--) {
        json_t *last = json_array_get(c->messages, n - 1);
        bool is_question = strcmp(text_of(last, "role"), "user") == 0;
        char *question = is_question ? strdup(text_of(last, "content")) : NULL;
        json_array_remove(c->messages, n - 1);
        if (is_question) return question;
    }
    return NULL;
}

/* Adds a message to the list, or its text to the last one if that has the same role. */
static int append(json_t *list, const char *role, const json_t *content)
{
    const char *text = json_string_value(content);
    size_t len = json_string_length(content), n = json_array_size(list);
    json_t *last = n ? json_array_get(list, n - 1) : NULL;
    if (!len) return 0;
    if (!last || strcmp(text_of(last, "role"), role) != 0)
        return json_array_append_new(list,
                                     json_pack("{s:s, s:s%}", "role", role, "content", text, len));
    json_t *before = json_object_get(last, "content");
    json_t *joined = json_pack("s%++%", json_string_value(before), json_string_length(before),
                               "\n\n", text, len);
    return json_object_set_new(last, "content", joined);
}

json_t *conversation_request(const struct conversation *c)
{
    json_t *list = json_array(), *message;
    size_t i;
    int rc = append(list, "system", c->system);
    json_array_foreach(c->messages, i, message) rc =
        rc ? rc : append(list, text_of(message, "role"), json_object_get(message, "content"));
    if (!rc) return list;
    json_decref(list);
    return NULL;
}

/* ---- files ---------------------------------------------------------------------------------- */

void conversation_quote_file(struct buf *message, const char *name, const char *text, size_t len)
{
    size_t longest = 2, run = 0;
    for (size_t i = 0; i < len; i++) {
        run = text[i] == '`' ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    if (len && text[len - 1] == '\n') len--;
    buf_printf(message, "%s%s:\n", message->len ? "\n\n" : "", name);
    for (size_t i = 0; i <= longest; i++)
        buf_puts(message, "`");
    buf_puts(message, "\n");
    buf_add(message, text, len);
    buf_puts(message, "\n");
    for (size_t i = 0; i <= longest; i++)
        buf_puts(message, "`");
}

/* The beginning of the first question, of whole characters. */
static json_t *title_of(const struct conversation *c)
{
    const char *text = text_of(json_array_get(c->messages, 0), "content");
    size_t len = text ? strlen(text) : 0, n = 0;
    while (n < len && n + utf8_len((unsigned char)text[n]) <= TITLE_BYTES)
        n += utf8_len((unsigned char)text[n]);
    return json_stringn(text ? text : "", n);
}

int conversation_save(const struct conversation *c, const char *path, char *err, size_t errlen)
{
    json_auto_t *file =
        json_pack("{s:s, s:i, s:[{s:o, s:I, s:O, s:O}]}", "format", format, "version", 1,
                  "conversations", "title", title_of(c), "updated", (json_int_t)time(NULL) * 1000,
                  "system", c->system, "messages", c->messages);
    int fd = file ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    bool good = fd >= 0 && !json_dumpfd(file, fd, JSON_INDENT(1));
    if (fd >= 0 && close(fd)) good = false;
    if (!good) snprintf(err, errlen, "%s: %s", path, file ? strerror(errno) : "out of memory");
    return good ? 0 : -1;
}

/* Takes over a message with the files that the page attached to it. */
static int take_message(struct conversation *c, const json_t *m)
{
    const char *role = text_of(m, "role");
    json_t *content = json_object_get(m, "content"), *state = json_object_get(m, "state"), *file;
    AUTO(buf_finish) struct buf text = {.max = MESSAGE_MAX_BYTES};
    size_t i;
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)) return -1;
    if (content && !json_is_string(content)) return -1;
    buf_add(&text, content ? json_string_value(content) : "", json_string_length(content));
    json_array_foreach(json_object_get(m, "files"), i, file)
    {
        json_t *body = json_object_get(file, "text");
        const char *name = text_of(file, "name");
        if (!name || !json_is_string(body)) text.failed = true;
        if (!text.failed)
            conversation_quote_file(&text, name, json_string_value(body), json_string_length(body));
    }
    if (text.failed) return -1;
    return conversation_add(c, role, text.data, text.len, json_string_value(state));
}

static int take_conversation(struct conversation *c, const json_t *file)
{
    const json_t *first = json_array_get(json_object_get(file, "conversations"), 0);
    json_t *system = json_object_get(first, "system"), *messages, *message;
    size_t i;
    messages = json_object_get(first, "messages");
    if (!json_is_array(messages) || (system && !json_is_string(system))) return -1;
    if (json_string_set(c->system, system ? json_string_value(system) : "")) return -1;
    json_array_foreach(messages, i, message) if (take_message(c, message)) return -1;
    return 0;
}

int conversation_load(struct conversation *c, const char *path, char *err, size_t errlen)
{
    struct conversation loaded;
    char *text;
    size_t len;
    if (file_load(NULL, path, FILE_MAX_BYTES, &text, &len, err, errlen)) return -1;
    json_auto_t *file = json_loadb(text, len, 0, NULL);
    free(text);
    const char *name = text_of(file, "format");
    bool good = name && strcmp(name, format) == 0 &&
                json_integer_value(json_object_get(file, "version")) == 1;
    int rc = conversation_init(&loaded);
    if (!rc) rc = good ? take_conversation(&loaded, file) : -1;
    if (rc) {
        snprintf(err, errlen, "%s is not a conversation of /save or the chat page", path);
        conversation_finish(&loaded);
        return -1;
    }
    conversation_finish(c);
    *c = loaded;
    return 0;
}
