/* SPDX-License-Identifier: MIT */
/*
 * Probing: small conversations are rendered at load, and the words found in the text show which
 * form of messages the template needs. A question that a template leaves open (it fails on
 * everything, or ignores the question) is answered the way the field's templates mostly are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "tokenizer/chat/chat_internal.h"

/* Words that no template has by itself. */
#define USER "zqUserWord"
#define KEY "zqKeyWord"
#define ARGUMENT "zqArgumentWord"
#define RESULT "zqResultWord"

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
    const char *tools; /* given with messages: some templates fail without; or NULL */
    int rc;            /* TOK_ENOMEM once memory ran out */
};

/* The rendered text, or NULL where the template does not render. Returns owned: free. */
static char *try_render(struct probe *p, const char *messages, const char *tools)
{
    char err[64];
    AUTO(tok_prompt_finish) struct tok_prompt prompt = {0};
    const struct tok_chat_input in = {
        .messages = messages, .tools = tools, .add_generation_prompt = true, .verbatim = true};
    int rc = tok_chat_render(p->chat, &in, &prompt, err, sizeof(err));
    if (rc == TOK_ENOMEM) p->rc = rc;
    char *text = prompt.text;
    prompt.text = NULL;
    return text;
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

/* ---- roles --------------------------------------------------------------------------------- */

/* A role that no template knows; as long as developer, and otherwise spelled like it. */
#define MADE_UP "zeveloper"

/* The texts of a conversation's messages, in their order. */
static const char *const words[] = {"zqFirstWord", "zqSecondWord", "zqThirdWord", "zqFourthWord",
                                    "zqFifthWord"};
enum { N_WORDS = sizeof(words) / sizeof(words[0]) };

static const char *role_of(char letter)
{
    return letter == 's'   ? "system"
           : letter == 'd' ? "developer"
           : letter == 'u' ? "user"
           : letter == 'a' ? "assistant"
                           : MADE_UP;
}

/* The text of a conversation, for each message a letter of its role; the i-th message is the i-th
 * word, as the content that the template takes. Returns owned, or NULL. */
static char *render_roles(struct probe *p, const struct tok_chat *c, const char *roles)
{
    char messages[1024] = "";
    const char *begin = "", *end = "";
    size_t n = 0;
    if (c->needs.only_parts) begin = "[{\"type\":\"text\",\"text\":", end = "}]";
    for (size_t i = 0; roles[i] && i < N_WORDS; i++)
        n += (size_t)snprintf(messages + n, sizeof(messages) - n,
                              "%c{\"role\":\"%s\",\"content\":%s\"%s\"%s}", i ? ',' : '[',
                              role_of(roles[i]), begin, words[i], end);
    snprintf(messages + n, sizeof(messages) - n, "]");
    return try_render(p, messages, p->tools);
}

/* Returns true if the words of the messages from the i-th on are in the text, in their order. */
static bool in_place(const char *text, const char *roles, size_t i)
{
    for (const char *at = text; text && roles[i]; i++, text = at)
        at = strstr(at, words[i]);
    return text != NULL;
}

/* Returns true if each message of a conversation comes out in its place. */
static bool shows(struct probe *p, const struct tok_chat *c, const char *roles)
{
    AUTO_FREE char *text = render_roles(p, c, roles);
    return in_place(text, roles, 0);
}

/* Returns true if the developer's role is refused or dropped, or comes out as a made-up one does: a
 * name that the template prints as it would any, and that the model never saw. */
static bool is_unknown_role(struct probe *p, const struct tok_chat *c)
{
    AUTO_FREE char *known = render_roles(p, c, "du"), *made_up = render_roles(p, c, "xu");
    bool shown = in_place(known, "du", 0), same = shown && made_up;
    for (size_t i = 0; same && (known[i] || made_up[i]); i++)
        same = known[i] == made_up[i] || ((known[i] | 0x20) == 'd' && (made_up[i] | 0x20) == 'z');
    return !shown || same;
}

static void probe_roles(struct probe *p, struct tok_chat *c)
{
    static const char *const alone[] = {"su", "du"}, *const pairs[2][2] = {{"ssu", "sdu"},
                                                                           {"dsu", "ddu"}};
    bool user = shows(p, c, "u");
    c->caps.system_role = shows(p, c, "su");
    c->needs.developer_as_system = c->caps.system_role && is_unknown_role(p, c);
    c->needs.no_system = user && !c->caps.system_role;
    c->needs.with_last_user = c->caps.system_role && shows(p, c, "ua") && !shows(p, c, "sua");
    bool moves = c->needs.no_system || c->needs.with_last_user;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            c->needs.joined[i][k] =
                moves || (user && shows(p, c, alone[i]) && !shows(p, c, pairs[i][k]));
    c->needs.one_user = user && !shows(p, c, "uu");
    c->needs.one_assistant = shows(p, c, "uau") && !shows(p, c, "uaau");
}

/* A system message between the turns is taken if it comes out in its place; instructions come
 * before the turns where the template takes some. */
static void probe_late_system(struct probe *p, struct tok_chat *c)
{
    const char *roles = c->caps.system_role ? "suasu" : "uasu";
    AUTO_FREE char *plain = render_roles(p, c, c->caps.system_role ? "suau" : "uau");
    AUTO_FREE char *late = render_roles(p, c, roles);
    c->needs.reminders = plain && !in_place(late, roles, strlen(roles) - 3);
}

/* ---- the form of messages ------------------------------------------------------------------ */

/* Parts are understood if they render to the same text as their string. */
static void probe_parts(struct probe *p, struct tok_chat *c)
{
    AUTO_FREE char *plain = try_render(p, "[" USER_MESSAGE "]", p->tools);
    AUTO_FREE char *parts = try_render(p, "[" PARTS_MESSAGE "]", p->tools);
    bool plain_shows = plain && strstr(plain, USER), parts_show = parts && strstr(parts, USER);
    c->needs.only_parts = parts_show && !plain_shows;
    c->caps.content_parts = parts_show && (!plain_shows || strcmp(plain, parts) == 0);
}

static void probe_tools(struct probe *p, struct tok_chat *c)
{
    const char *messages = c->needs.only_parts ? "[" PARTS_MESSAGE "]" : "[" USER_MESSAGE "]";
    AUTO_FREE char *without = try_render(p, messages, NULL), *with = try_render(p, messages, TOOLS);
    c->caps.tools = with && (!without || strcmp(with, without) != 0);
}

/*
 * An object comes out well where its key is there in double quotes or bare, not as Python prints a
 * dict; if it does not and the text of the object does, that is what the template wants.
 */
static void probe_arguments(struct probe *p, struct tok_chat *c)
{
    AUTO_FREE char *object = render_call(p, "\"\"", OBJECT_ARGUMENTS, "call00001");
    AUTO_FREE char *text = render_call(p, "\"\"", TEXT_ARGUMENTS, "call00001");
    bool object_shows = object && strstr(object, ARGUMENT) && !strstr(object, "{'" ARGUMENT "'");
    bool text_shows = text && strstr(text, ARGUMENT);
    c->caps.object_arguments = object_shows || !text_shows;
}

/* No content is fine where it renders and does not put a None that "" would not. */
static void probe_null(struct probe *p, struct tok_chat *c)
{
    const char *arguments = c->caps.object_arguments ? OBJECT_ARGUMENTS : TEXT_ARGUMENTS;
    AUTO_FREE char *empty = render_call(p, "\"\"", arguments, "call00001");
    AUTO_FREE char *none = render_call(p, "null", arguments, "call00001");
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
}

/* Ids of nine characters, where others fail or do not come out whole. */
static void probe_ids(struct probe *p, struct tok_chat *c)
{
    static const char nine[] = "call00001", long_id[] = "call_0123456789abcdefghijkl";
    const char *arguments = c->caps.object_arguments ? OBJECT_ARGUMENTS : TEXT_ARGUMENTS;
    AUTO_FREE char *brief = render_call(p, "\"\"", arguments, nine);
    AUTO_FREE char *full = render_call(p, "\"\"", arguments, long_id);
    AUTO_FREE char *tiny = render_call(p, "\"\"", arguments, "c1");
    bool cut = full && brief && strstr(brief, nine) && !strstr(full, long_id);
    c->caps.short_call_ids = brief && (!full || !tiny || cut);
}

int tok_chat_probe(struct tok_chat *c)
{
    struct tok_chat small = *c;
    struct probe p = {.chat = &small};
    if (small.max_steps > PROBE_STEPS) small.max_steps = PROBE_STEPS;
    probe_parts(&p, c);
    if (!shows(&p, c, "u")) {
        p.tools = TOOLS;
        probe_parts(&p, c);
    }
    probe_roles(&p, c);
    probe_late_system(&p, c);
    probe_tools(&p, c);
    probe_arguments(&p, c);
    probe_null(&p, c);
    probe_ids(&p, c);
    return p.rc;
}
