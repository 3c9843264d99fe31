/* SPDX-License-Identifier: MIT */
/*
 * Finding the style of a chat template: small conversations are rendered, and the texts around
 * known words, or between two renderings that differ in one thing, show how the template writes
 * calls and reasoning, what it drops and which variables it reads. See tools_detect.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "tokenizer/tools/call_shape.h"

/* Words that no template has by itself. */
#define USER "zqAskOne"
#define NEXT_USER "zqAskTwo"
#define SAY "zqSay"
#define RESULT "zqResult"
#define THINK "zqThink"
#define TOOL "zqTool"

#define TOOL_LIST                                                                                  \
    "[{\"type\":\"function\",\"function\":{\"name\":\"" TOOL "\",\"description\":\"d\","           \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"p\":{\"type\":\"string\","              \
    "\"description\":\"d\"}},\"required\":[\"p\"]}}}]"
#define BARE_LIST "[{\"type\":\"function\",\"function\":{\"name\":\"" TOOL "\"}}]"
#define ASK "{\"role\":\"user\",\"content\":\"" USER "\"}"
#define ASK_NEXT "{\"role\":\"user\",\"content\":\"" NEXT_USER "\"}"
#define ANSWER "{\"role\":\"assistant\",\"content\":\"" SAY "\"}"
#define CALL(name, id)                                                                             \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name                      \
    "\",\"arguments\":\"{\\\"" SHAPE_KEY "\\\": \\\"" SHAPE_VALUE "\\\"}\"}}"
#define CALLS(calls) "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" calls "]}"
#define ANSWERED(id) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" RESULT "\"}"
#define THOUGHT                                                                                    \
    "{\"role\":\"assistant\",\"content\":\"" SAY "\",\"reasoning_content\":\"" THINK "\"}"

static const char plain_turns[] = "[" ASK "," ANSWER "," ASK_NEXT "]";
static const char one_call[] =
    "[" ASK "," CALLS(CALL(SHAPE_NAME, SHAPE_ID)) "," ANSWERED(SHAPE_ID) "," ANSWER "," ASK_NEXT
                                                                         "]";
static const char no_result[] = "[" ASK "," CALLS(CALL(SHAPE_NAME, SHAPE_ID)) "," ASK_NEXT "]";
static const char two_calls[] =
    "[" ASK "," CALLS(CALL(SHAPE_NAME, SHAPE_ID) "," CALL(SHAPE_NEXT_NAME, SHAPE_NEXT_ID)) "," //
    ANSWERED(SHAPE_ID) "," ANSWERED(SHAPE_NEXT_ID) "," ANSWER "," ASK_NEXT "]";

static const char full_list[] = TOOL_LIST, bare_list[] = BARE_LIST;

enum { PROBE_STEPS = 100 * 1000 /* for each; the conversations are small */ };

struct probe {
    const struct tok_chat *chat;
    const char *tools; /* rendered with these, or NULL */
    int rc;            /* TOK_ENOMEM once memory ran out */
};

/* ---- rendering ----------------------------------------------------------------------------- */

/* The text, or NULL where the template does not render. Returns owned: free. */
static char *render(struct probe *p, const char *messages, const char *kwargs, bool prompt)
{
    char err[64], variables[512];
    AUTO(tok_prompt_finish) struct tok_prompt ret = {0};
    snprintf(variables, sizeof(variables), "{\"xml_tools\":%s}", p->tools ? p->tools : "null");
    const struct tok_chat_input in = {
        .messages = messages,
        .tools = p->tools,
        .kwargs = kwargs ? kwargs : variables,
        .add_generation_prompt = prompt,
        .max_steps = PROBE_STEPS,
    };
    int rc = tok_chat_render(p->chat, &in, &ret, err, sizeof(err));
    if (rc == TOK_ENOMEM) p->rc = rc;
    char *text = ret.text;
    ret.text = NULL;
    return text;
}

static bool shows(struct probe *p, const char *messages, const char *kwargs, const char *word)
{
    AUTO_FREE char *text = render(p, messages, kwargs, true);
    return text && strstr(text, word);
}

/* Returns true if two values of a variable give different prompts. */
static bool differ(struct probe *p, const char *kwargs, const char *other_kwargs)
{
    AUTO_FREE char *one = render(p, "[" ASK "]", kwargs, true),
                   *two = render(p, "[" ASK "]", other_kwargs, true);
    return one && two && strcmp(one, two) != 0;
}

static size_t common(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

/* ---- calls --------------------------------------------------------------------------------- */

/* The effect of one way of rendering, with tools or without, on past calls. */
struct calls {
    struct tools_style style; /* its form, if it has one that we know */
    bool known, written;      /* in a form that we know; in any */
    bool results;
};

/* The texts of a conversation without a call and of the same with one, cut to what matters. */
static void compare(struct calls *ret, const char *plain, const char *called)
{
    const char *say = strstr(plain, SAY);
    const char *next = say ? strstr(say, NEXT_USER) : NULL;
    size_t begin = common(plain, called);
    const char *end = strstr(called + begin, RESULT);
    ret->results = end != NULL;
    if (!end) end = strstr(called + begin, SAY);
    if (!end) end = strstr(called + begin, NEXT_USER);
    if (!next || !end) return;
    struct tools_span text = {.s = called + begin, .len = (size_t)(end - called) - begin};
    struct tools_span turn_end = {.s = say + strlen(SAY),
                                  .len = (size_t)(next - say) - strlen(SAY)};
    ret->written = memmem(text.s, text.len, SHAPE_NAME, strlen(SHAPE_NAME)) != NULL;
    ret->known = tools_shape_find(&ret->style, text, turn_end);
}

static void look_at_separator(struct probe *p, struct tools_style *style, const char *plain)
{
    AUTO_FREE char *text = render(p, two_calls, NULL, false);
    const char *begin = text ? text + common(plain, text) : NULL;
    const char *end = begin ? strstr(begin, RESULT) : NULL;
    if (end) tools_shape_find_separator(style, (struct tools_span){begin, (size_t)(end - begin)});
}

static void look_at_calls(struct probe *p, bool tools, struct calls *ret)
{
    *ret = (struct calls){0};
    p->tools = tools ? full_list : NULL;
    AUTO_FREE char *plain = render(p, plain_turns, NULL, false);
    AUTO_FREE char *called = render(p, one_call, NULL, false);
    if (!called) called = render(p, no_result, NULL, false);
    if (plain && called) compare(ret, plain, called);
    if (ret->known) look_at_separator(p, &ret->style, plain);
}

/* The format that the instructions around the list of tools show. */
static enum tools_format shown_format(struct probe *p)
{
    enum tools_format format = TOOLS_UNKNOWN;
    p->tools = full_list;
    AUTO_FREE char *text = render(p, "[" ASK "]", NULL, true);
    if (text && tools_shape_is_shown(TOOLS_HERMES, text)) format = TOOLS_HERMES;
    if (text && tools_shape_is_shown(TOOLS_QWEN_XML, text)) format = TOOLS_QWEN_XML;
    if (text && tools_shape_is_shown(TOOLS_PYTHONIC, text)) format = TOOLS_PYTHONIC;
    return format;
}

/* Past calls are the template's where it writes them in the form of the style; if that has none, in
 * any form. */
static bool is_theirs(const struct tools_style *style, const struct calls *calls)
{
    if (style->format == TOOLS_UNKNOWN || style->format == TOOLS_NONE) return calls->written;
    return calls->known && calls->style.format == style->format;
}

static void divide_writing(struct tools_style *style, const struct calls *with,
                           const struct calls *without)
{
    style->writes_calls = is_theirs(style, with);
    bool apart = style->format == TOOLS_PYTHONIC; /* LFM2's templates drop calls, not results */
    style->writes_results = (apart || style->writes_calls) && with->results;
    style->plain_writes_calls = is_theirs(style, without);
    style->plain_writes_results = (apart || style->plain_writes_calls) && without->results;
}

/* Returns true if the template lists full tools and fails on bare ones. */
static bool needs_full_tools(struct probe *p)
{
    p->tools = full_list;
    bool full = shows(p, "[" ASK "]", NULL, TOOL);
    p->tools = bare_list;
    bool bare = shows(p, "[" ASK "]", NULL, TOOL);
    return full && !bare;
}

static void find_calls(struct probe *p, struct tools_style *style, const enum tools_format *option)
{
    struct calls with, without;
    look_at_calls(p, true, &with);
    look_at_calls(p, false, &without);
    p->tools = full_list;
    bool xml_tools = shows(p, "[" ASK "]", "{\"xml_tools\":" TOOL_LIST "}", TOOL);
    bool tools = shows(p, "[" ASK "]", "{}", TOOL);
    enum tools_format format = with.known ? with.style.format : TOOLS_UNKNOWN;
    if (!with.known && (tools || xml_tools) && !with.written) format = shown_format(p);
    if (!with.known && !tools && !xml_tools) format = TOOLS_LIST;
    bool found = !option || *option == format;
    tools_style_of(style, found ? format : *option, NULL, NULL);
    if (found && with.known) *style = with.style;
    style->source = option                                ? TOOLS_OPTION
                    : !with.known && format == TOOLS_LIST ? TOOLS_FALLBACK
                                                          : TOOLS_DETECTED;
    style->reads_xml_tools = xml_tools && !tools;
    style->writes_tools = tools || xml_tools;
    style->fills_tools = needs_full_tools(p);
    divide_writing(style, &with, &without);
}

/* ---- reasoning ----------------------------------------------------------------------------- */

static const char *const known_pairs[][2] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"}, /* Apriel 1.6 */
    {TOOLS_CHANNEL, "<channel|>"},                              /* Gemma 4 */
};
enum { N_PAIRS = sizeof(known_pairs) / sizeof(known_pairs[0]) };

static bool set_marker(char to[TOOLS_TEXT_BYTES], const char *begin, const char *end)
{
    struct tools_span s = tools_span_trim((struct tools_span){begin, (size_t)(end - begin)});
    bool printed =
        memchr(s.s, '\'', s.len) || memchr(s.s, '"', s.len); /* a list that was printed */
    return s.len && !printed && tools_span_put(to, s);
}

/* The texts around the reasoning of an answer, which `plain` has not. */
static bool find_pair(struct tools_style *style, const char *plain, const char *text)
{
    struct tools_style s = *style;
    size_t begin = common(plain, text);
    const char *think = text ? strstr(text + begin, THINK) : NULL;
    const char *say = think ? strstr(think, SAY) : NULL;
    if (!say || !set_marker(s.think_open, text + begin, think) ||
        !set_marker(s.think_close, think + strlen(THINK), say))
        return false;
    if (!strncmp(s.think_open, TOOLS_CHANNEL, strlen(TOOLS_CHANNEL)))
        s.think_open[strlen(TOOLS_CHANNEL)] = '\0';
    *style = s;
    return true;
}

/* An answer with markers in its content, the last one or followed by another: the template knows
 * the pair if it cuts the reasoning out or writes it in another way. */
static bool knows_pair(struct probe *p, const char *const pair[2], const char *after)
{
    char messages[384], inside[64];
    snprintf(inside, sizeof(inside), "%s" THINK "%s" SAY, pair[0], pair[1]);
    snprintf(messages, sizeof(messages), "[" ASK ",{\"role\":\"assistant\",\"content\":\"%s\"}%s]",
             inside, after);
    AUTO_FREE char *text = render(p, messages, NULL, false);
    return text && strstr(text, SAY) && !strstr(text, inside);
}

static bool prompt_has(struct probe *p, const char *kwargs, const char *const pair[2])
{
    AUTO_FREE char *text = render(p, "[" ASK "]", kwargs, true);
    const char *user = text ? strstr(text, USER) : NULL;
    return user && (strstr(user, pair[0]) || strstr(user, pair[1]));
}

static bool find_known_pair(struct probe *p, struct tools_style *style)
{
    for (int i = 0; i < N_PAIRS; i++) {
        const char *const *pair = known_pairs[i];
        if (!knows_pair(p, pair, "") && !knows_pair(p, pair, "," ASK_NEXT "," ANSWER) &&
            !prompt_has(p, NULL, pair) && !prompt_has(p, "{\"enable_thinking\":true}", pair) &&
            !prompt_has(p, "{\"enable_thinking\":false}", pair))
            continue;
        snprintf(style->think_open, TOOLS_TEXT_BYTES, "%s", pair[0]);
        snprintf(style->think_close, TOOLS_TEXT_BYTES, "%s", pair[1]);
        return true;
    }
    return false;
}

static void find_markers(struct probe *p, struct tools_style *style)
{
    static const char parts[] =
        "[" ASK ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"" THINK
        "\"},{\"type\":\"text\",\"text\":\"" SAY "\"}]}]";
    AUTO_FREE char *plain = render(p, plain_turns, NULL, false);
    AUTO_FREE char *field = render(p, "[" ASK "," THOUGHT "]", NULL, false);
    AUTO_FREE char *part = render(p, parts, NULL, false);
    if (!(plain && field && find_pair(style, plain, field)) && !find_known_pair(p, style) &&
        plain && part)
        find_pair(style, plain, part);
}

/* A generation prompt that ends inside an open block. */
static bool is_forced(struct probe *p, const struct tools_style *style)
{
    AUTO_FREE char *text = render(p, "[" ASK "]", NULL, true);
    const char *user = text ? strstr(text, USER) : NULL;
    return user && tools_think_is_open(style, user, strlen(user));
}

static void find_reasoning(struct probe *p, struct tools_style *style)
{
    p->tools = NULL;
    char *text = render(p, plain_turns, NULL, false);
    if (!text) p->tools = full_list; /* some templates fail without tools */
    free(text);
    find_markers(p, style);
    style->think_forced = is_forced(p, style);
    style->think_kept = shows(p, "[" ASK "," THOUGHT "," ASK_NEXT "]", NULL, THINK);
    style->reads_enable_thinking =
        differ(p, "{\"enable_thinking\":true}", "{\"enable_thinking\":false}");
    style->reads_reasoning_effort =
        differ(p, "{\"reasoning_effort\":\"low\"}", "{\"reasoning_effort\":\"high\"}");
}

/* ---- all of it ----------------------------------------------------------------------------- */

int tools_detect(struct tools_style *ret, const struct tok_chat *chat, const char *option)
{
    struct probe p = {.chat = chat};
    enum tools_format format;
    bool given = option && strcmp(option, "auto") != 0;
    if (given && !tools_format_find(option, &format)) return TOK_EINVAL;
    if (!chat) {
        tools_style_of(ret, TOOLS_NONE, NULL, NULL);
        ret->source = TOOLS_FALLBACK;
        return 0;
    }
    find_calls(&p, ret, given ? &format : NULL);
    find_reasoning(&p, ret);
    ret->object_arguments = tok_chat_caps(chat)->object_arguments;
    ret->short_ids = tok_chat_caps(chat)->short_call_ids;
    return p.rc;
}
