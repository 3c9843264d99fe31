/* SPDX-License-Identifier: MIT */
/*
 * Probing: small conversations are rendered at load, and the words found in the text show which
 * form of messages the template needs. A question that a template leaves open (it fails on
 * everything, or ignores what is asked about) is answered the way the field's templates mostly are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/chat/chat_internal.h"

/* Words that no template has by itself. */
#define USER "zqUserWord"
#define SYSTEM "zqSystemWord"
#define REMINDER "zqReminderWord"
#define KEY "zqKeyWord"
#define ARGUMENT "zqArgumentWord"
#define RESULT "zqResultWord"
#define ANSWER "zqAnswerWord"
#define LAST "zqLastWord"

#define USER_MESSAGE "{\"role\":\"user\",\"content\":\"" USER "\"}"
#define PARTS_MESSAGE "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" USER "\"}]}"
#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"zqTool\",\"description\":\"d\","             \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"" KEY                                   \
    "\":{\"type\":\"string\",\"description\":\"p\"}},\"required\":[\"" KEY "\"]}}}]"
#define OBJECT_ARGUMENTS "{\"" ARGUMENT "\":\"v\"}"
#define TEXT_ARGUMENTS "\"{\\\"" ARGUMENT "\\\": \\\"v\\\"}\""

enum { PROBE_STEPS = 100 * 1000 /* for each; the conversations are small */ };

struct probe {
    const struct tok_chat *chat;
    int rc; /* TOK_ENOMEM once memory ran out */
};

/* The rendered text, or NULL where the template does not render. Returns owned: free. */
static char *try_render(struct probe *p, const char *messages, const char *tools)
{
    char err[64];
    struct tok_prompt prompt = {0};
    const struct tok_chat_input in = {
        .messages = messages, .tools = tools, .add_generation_prompt = true, .verbatim = true};
    int rc = tok_chat_render(p->chat, &in, &prompt, err, sizeof(err));
    if (rc == TOK_ENOMEM) p->rc = rc;
    char *text = prompt.text;
    prompt.text = NULL;
    tok_prompt_finish(&prompt);
    return text;
}

/* True if messages render to a text with the word in it. */
static bool shows(struct probe *p, const char *messages, const char *word)
{
    char *text = try_render(p, messages, NULL);
    bool found = text && strstr(text, word);
    free(text);
    return found;
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = text; text && (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

/* user, an assistant that calls a tool, the tool's answer */
static char *render_call(struct probe *p, const char *content, const char *arguments,
                         const char *id)
{
    char messages[1024];
    int n = snprintf(messages, sizeof(messages),
                     "[" USER_MESSAGE ",{\"role\":\"assistant\",\"content\":%s,\"tool_calls\":"
                     "[{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"zqTool\","
                     "\"arguments\":%s}}]},{\"role\":\"tool\",\"tool_call_id\":\"%s\",\"name\":"
                     "\"zqTool\",\"content\":\"" RESULT "\"}]",
                     content, id, arguments, id);
    return n > 0 && (size_t)n < sizeof(messages) ? try_render(p, messages, TOOLS) : NULL;
}

static void probe_roles(struct probe *p, struct tok_chat *c)
{
    c->caps.system_role =
        shows(p, "[{\"role\":\"system\",\"content\":\"" SYSTEM "\"}," USER_MESSAGE "]", SYSTEM);
    bool developer =
        shows(p, "[{\"role\":\"developer\",\"content\":\"" SYSTEM "\"}," USER_MESSAGE "]", SYSTEM);
    c->needs.developer_as_system = c->caps.system_role && !developer;
}

/* Adds a message with the content that the template takes. */
static void add_message(const struct tok_chat *c, char *messages, size_t size, const char *role,
                        const char *text)
{
    bool parts = c->needs.only_parts;
    size_t n = strlen(messages);
    snprintf(messages + n, size - n, "%c{\"role\":\"%s\",\"content\":%s\"%s\"%s}", n ? ',' : '[',
             role, parts ? "[{\"type\":\"text\",\"text\":" : "", text, parts ? "}]" : "");
}

/* user, assistant, system if `late`, user, behind instructions where the template takes some. */
static char *render_late(struct probe *p, const struct tok_chat *c, bool late)
{
    char messages[1024] = "";
    if (c->caps.system_role) add_message(c, messages, sizeof(messages), "system", SYSTEM);
    add_message(c, messages, sizeof(messages), "user", USER);
    add_message(c, messages, sizeof(messages), "assistant", ANSWER);
    if (late) add_message(c, messages, sizeof(messages), "system", REMINDER);
    add_message(c, messages, sizeof(messages) - 1, "user", LAST);
    messages[strlen(messages)] = ']'; /* the rest is zeros */
    return try_render(p, messages, NULL);
}

/* A system message between the turns is taken if it comes out in its place. */
static void probe_late_system(struct probe *p, struct tok_chat *c)
{
    char *plain = render_late(p, c, false);
    char *late = render_late(p, c, true);
    const char *answer = late ? strstr(late, ANSWER) : NULL;
    const char *reminder = answer ? strstr(answer, REMINDER) : NULL;
    c->needs.reminders = plain && !(reminder && strstr(reminder, LAST));
    free(plain);
    free(late);
}

/* Parts are understood if they render to the same text as their string. */
static void probe_parts(struct probe *p, struct tok_chat *c)
{
    char *plain = try_render(p, "[" USER_MESSAGE "]", NULL);
    char *parts = try_render(p, "[" PARTS_MESSAGE "]", NULL);
    bool plain_shows = plain && strstr(plain, USER), parts_show = parts && strstr(parts, USER);
    c->needs.only_parts = parts_show && !plain_shows;
    c->caps.content_parts = parts_show && (!plain_shows || strcmp(plain, parts) == 0);
    free(plain);
    free(parts);
}

static void probe_tools(struct probe *p, struct tok_chat *c)
{
    const char *messages = c->needs.only_parts ? "[" PARTS_MESSAGE "]" : "[" USER_MESSAGE "]";
    char *without = try_render(p, messages, NULL), *with = try_render(p, messages, TOOLS);
    c->caps.tools = with && (!without || strcmp(with, without) != 0);
    free(without);
    free(with);
}

/*
 * An object comes out well where its key is there in double quotes or bare, not as Python prints a
 * dict; if it does not and the text of the object does, that is what the template wants.
 */
static void probe_arguments(struct probe *p, struct tok_chat *c)
{
    char *object = render_call(p, "\"\"", OBJECT_ARGUMENTS, "call00001");
    char *text = render_call(p, "\"\"", TEXT_ARGUMENTS, "call00001");
    bool object_shows = object && strstr(object, ARGUMENT) && !strstr(object, "{'" ARGUMENT "'");
    bool text_shows = text && strstr(text, ARGUMENT);
    c->caps.object_arguments = object_shows || !text_shows;
    free(object);
    free(text);
}

/* No content is fine where it renders and does not put a None that "" would not. */
static void probe_null(struct probe *p, struct tok_chat *c)
{
    const char *arguments = c->caps.object_arguments ? OBJECT_ARGUMENTS : TEXT_ARGUMENTS;
    char *empty = render_call(p, "\"\"", arguments, "call00001");
    char *none = render_call(p, "null", arguments, "call00001");
    if (!empty) { /* the template knows no tools: ask about a plain answer */
        free(none);
        empty = try_render(
            p, "[" USER_MESSAGE ",{\"role\":\"assistant\",\"content\":\"\"}," USER_MESSAGE "]",
            NULL);
        none = try_render(
            p, "[" USER_MESSAGE ",{\"role\":\"assistant\",\"content\":null}," USER_MESSAGE "]",
            NULL);
    }
    c->caps.null_content = none && count(none, "None") == count(empty, "None");
    free(empty);
    free(none);
}

/* Ids of nine characters, where others fail or do not come out whole. */
static void probe_ids(struct probe *p, struct tok_chat *c)
{
    static const char nine[] = "call00001", long_id[] = "call_0123456789abcdefghijkl";
    const char *arguments = c->caps.object_arguments ? OBJECT_ARGUMENTS : TEXT_ARGUMENTS;
    char *brief = render_call(p, "\"\"", arguments, nine);
    char *full = render_call(p, "\"\"", arguments, long_id);
    char *tiny = render_call(p, "\"\"", arguments, "c1");
    bool cut = full && brief && strstr(brief, nine) && !strstr(full, long_id);
    c->caps.short_call_ids = brief && (!full || !tiny || cut);
    free(brief);
    free(full);
    free(tiny);
}

int tok_chat_probe(struct tok_chat *c)
{
    struct tok_chat small = *c;
    struct probe p = {.chat = &small};
    if (small.max_steps > PROBE_STEPS) small.max_steps = PROBE_STEPS;
    probe_parts(&p, c);
    probe_roles(&p, c);
    probe_late_system(&p, c);
    probe_tools(&p, c);
    probe_arguments(&p, c);
    probe_null(&p, c);
    probe_ids(&p, c);
    return p.rc;
}
