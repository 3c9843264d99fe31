/* SPDX-License-Identifier: MIT */
/*
 * Messages with tools to a prompt, in the way of the style: the template lists the tools, writes
 * past calls and results, or we do. See tools_prompt_render.
 */
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/json_reader.h"
#include "tokenizer/tools/json_scan.h"
#include "tokenizer/tools/tools.h"

enum { MAX_TEXT_BYTES = 32 << 20, FORM_BYTES = 2 * TOOLS_TEXT_BYTES };

static const char list_before[] = "You can use functions. They are listed here as JSON:\n<tools>\n";
static const char list_after[] = "\nUse only these functions and their parameters. If none of them "
                                 "helps, answer in plain words.";

/* Texts made for one render. */
struct texts {
    struct buf tools, kwargs; /* for the template */
    struct buf after;         /* after our list of tools */
    char before_name[FORM_BYTES], after_call[FORM_BYTES];
};

/* ---- for the template ---------------------------------------------------------------------- */

/* Adds a member, unless the object (JSON text that was just skipped) has it; its brace is open. */
static void fill(struct buf *b, const char *object, size_t len, const char *name, const char *value)
{
    size_t n;
    if (!json_member(object, len, name, &n)) buf_printf(b, ",\"%s\":%s", name, value);
}

/* A tool as the API has it. */
static void wrap_tool(struct buf *b, const char *tool, size_t len, bool fills)
{
    buf_puts(b, "{\"type\":\"function\",\"function\":");
    buf_add(b, tool, len - 1);
    if (fills) fill(b, tool, len, "description", "\"\"");
    if (fills) fill(b, tool, len, "parameters", "{\"type\":\"object\",\"properties\":{}}");
    buf_puts(b, "}}");
}

static int wrap_tools(struct buf *b, const struct tools_prompt_params *p, char *err, size_t errlen)
{
    AUTO(jr_finish) struct jr r;
    const char *s;
    size_t n;
    jr_init(&r, p->tools, strlen(p->tools), JR_NUL | JR_CONSTANTS, err, errlen);
    jr_open(&r, '[');
    buf_puts(b, "[");
    while (jr_more(&r, ']') > 0) {
        if (jr_peek(&r) != '{') jr_refuse(&r, JR_EINVAL, "a tool is not an object");
        if (jr_skip(&r, &s, &n)) break;
        if (b->len > 1) buf_puts(b, ",");
        wrap_tool(b, s, n, p->style->fills_tools);
    }
    buf_puts(b, "]");
    int rc = jr_end(&r);
    return rc == JR_ENOMEM ? TOK_ENOMEM : rc ? TOK_EINVAL : 0;
}

/* Adds the members of an object's text; of equal names the last one counts. */
static void add_members(struct buf *b, const char *object)
{
    if (!object) return;
    size_t begin = strspn(object, " \t\r\n"), end = strlen(object);
    while (end > begin && strchr(" \t\r\n", object[end - 1]))
        end--;
    if (end < begin + 2 || object[begin] != '{') return;
    begin += 1 + strspn(object + begin + 1, " \t\r\n");
    if (begin >= end - 1) return;
    if (b->len > 1) buf_puts(b, ",");
    buf_add(b, object + begin, end - 1 - begin);
}

static const char *make_kwargs(struct texts *t, const struct tools_prompt_params *p, bool shown)
{
    struct buf *b = &t->kwargs;
    buf_puts(b, "{");
    if (shown && p->style->reads_xml_tools) buf_printf(b, "\"xml_tools\":%s", t->tools.data);
    add_members(b, p->server_kwargs);
    if (p->thinking == TOOLS_THINKING_ON) add_members(b, "{\"enable_thinking\":true}");
    if (p->thinking == TOOLS_THINKING_OFF) add_members(b, "{\"enable_thinking\":false}");
    if (p->effort) buf_printf(b, "%s\"reasoning_effort\":\"%s\"", b->len > 1 ? "," : "", p->effort);
    add_members(b, p->kwargs);
    buf_puts(b, "}");
    return b->data;
}

/* ---- written by us ------------------------------------------------------------------------- */

/* Calls of an unknown format that the template drops are written as in the list. */
static struct tools_style writing_style(const struct tools_style *style)
{
    struct tools_style s = *style;
    if (s.format == TOOLS_NONE || s.format == TOOLS_UNKNOWN)
        tools_style_of(&s, TOOLS_LIST, NULL, NULL);
    return s;
}

/* Without ids: no result refers to one. */
static struct tok_chat_call_form form_of(const struct tools_style *s, struct texts *t)
{
    bool each = s->one_per_block;
    snprintf(t->before_name, FORM_BYTES, "%s%s", each ? s->block_open : "", s->call_open);
    snprintf(t->after_call, FORM_BYTES, "%s%s", s->call_close, each ? s->block_close : "");
    return (struct tok_chat_call_form){
        .begin = each ? "" : s->block_open,
        .end = each ? "" : s->block_close,
        .separator = each ? s->block_sep : s->call_sep,
        .before_name = t->before_name,
        .before_arguments = s->name_close,
        .after = t->after_call,
        .tags = s->format == TOOLS_QWEN_XML,
        .assign = s->assign,
        .comma = s->comma,
        .quote = s->quote,
    };
}

/* The list of tools, with an example of a call. */
static struct tok_chat_tool_text list_of(const struct tools_style *s,
                                         const struct tok_chat_call_form *form, const char *tools,
                                         struct texts *t)
{
    struct buf *b = &t->after;
    buf_puts(b, "\n</tools>\nTo use functions, write only ");
    if (s->format == TOOLS_LIST)
        buf_printf(b, "a JSON list between %s and %s, one object for each use:\n", s->open,
                   s->close);
    else
        buf_puts(b, "this, once for each use:\n");
    const char *quote = s->quote ? s->quote : "\"";
    buf_printf(b, "%s%sfunction name%s", form->begin, form->before_name, form->before_arguments);
    if (s->assign)
        buf_printf(b, "parameter_name%s%svalue%s", s->assign, quote, quote);
    else
        buf_puts(b, form->tags ? "<parameter=parameter name>\nvalue\n</parameter>\n"
                               : "{\"parameter name\": \"value\"}");
    buf_printf(b, "%s%s", form->after, form->end);
    buf_puts(b, list_after);
    return (struct tok_chat_tool_text){.before = list_before, .tools = tools, .after = b->data};
}

/* ---- all of it ----------------------------------------------------------------------------- */

/* A prompt ends inside or after a reasoning block by the template's own last text; one that goes
 * on with a message of the request by that message. */
static void find_thought(struct tools_prompt *ret, const struct tools_style *style)
{
    const struct tok_prompt *p = &ret->prompt;
    const struct tok_range *last = p->n_input ? &p->input[p->n_input - 1] : NULL;
    size_t from = !last ? 0 : last->end < p->len ? last->end : last->begin;
    ret->think_open = tools_think_is_open(style, p->text + from, p->len - from);
    ret->think_closed = tools_think_is_closed(style, p->text + from, p->len - from);
}

static int render(struct tools_prompt *ret, const struct tok_chat *chat,
                  const struct tools_prompt_params *p, struct texts *t, char *err, size_t errlen)
{
    const struct tools_style *style = p->style, ours = writing_style(style);
    const struct tok_chat_call_form form = form_of(&ours, t);
    struct tok_chat_tool_text list;
    bool shown = p->tools && style->writes_tools;
    int rc = shown ? wrap_tools(&t->tools, p, err, errlen) : 0;
    if (rc) return rc;
    bool calls = shown ? style->writes_calls : style->plain_writes_calls;
    bool results = shown ? style->writes_results : style->plain_writes_results;
    struct tok_chat_tool_writing writing = {.calls = calls ? NULL : &form, .results = !results};
    if (p->tools && !shown) {
        list = list_of(&ours, &form, p->tools, t);
        writing.tools = &list;
    }
    const struct tok_chat_input in = {
        .messages = p->messages,
        .tools = shown ? t->tools.data : NULL,
        .kwargs = make_kwargs(t, p, shown),
        .writing = &writing,
        .add_generation_prompt = p->add_generation_prompt,
        .continue_final_message = p->continue_final_message,
    };
    if (t->tools.failed || t->kwargs.failed || t->after.failed)
        return fail_with(TOK_ENOMEM, err, errlen, "out of memory");
    rc = tok_chat_render(chat, &in, &ret->prompt, err, errlen);
    if (rc) return rc;
    find_thought(ret, style);
    ret->begun = p->continue_final_message;
    return 0;
}

int tools_prompt_render(struct tools_prompt *ret, const struct tok_chat *chat,
                        const struct tools_prompt_params *params, char *err, size_t errlen)
{
    struct texts t = {
        .tools.max = MAX_TEXT_BYTES, .kwargs.max = MAX_TEXT_BYTES, .after.max = MAX_TEXT_BYTES};
    *ret = (struct tools_prompt){0};
    int rc = render(ret, chat, params, &t, err, errlen);
    buf_finish(&t.tools);
    buf_finish(&t.kwargs);
    buf_finish(&t.after);
    return rc;
}
