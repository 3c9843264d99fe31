/* SPDX-License-Identifier: MIT */
/*
 * Tools, calls and results put into messages as text, for templates that have no form for them or
 * drop them. The fixed texts are the server's own and count as the template's; everything else
 * stays marked as text of the request.
 */
#include <string.h>

#include "tokenizer/chat/chat_internal.h"
#include "tokenizer/template/dict.h"
#include "tokenizer/template/json.h"

/* The run of one rewriting: old messages in, new ones out. */
struct rewrite {
    struct jinja_run *r;
    const struct tok_chat_tool_writing *w;
    struct jinja_list *out;
};

static struct jinja_value new_message(struct jinja_run *r, const char *role,
                                      struct jinja_value content)
{
    struct jinja_dict *d = jinja_dict_new(r);
    jinja_dict_put_name(r, d, "role", jinja_lit(r, role));
    jinja_dict_put_name(r, d, "content", content);
    return jinja_from_dict(d);
}

static struct jinja_value text_of(struct rewrite *rw, struct jinja_value message)
{
    return tok_chat_content_text(rw->r, tok_chat_member(rw->r, message, "content"));
}

/* ---- calls --------------------------------------------------------------------------------- */

/* Strings as they are, other values as JSON. */
static void add_tags(struct rewrite *rw, struct jinja_sb *sb, const struct jinja_dict *arguments)
{
    for (size_t i = 0; i < arguments->n; i++) {
        struct jinja_value value = arguments->pairs[i].value;
        if (!jinja_is(value, JINJA_STR)) value = tok_chat_json(rw->r, value);
        jinja_sb_add_lit(sb, "<parameter=");
        jinja_sb_add(sb, arguments->pairs[i].key.u.str);
        jinja_sb_add_lit(sb, ">\n");
        jinja_sb_add(sb, value.u.str);
        jinja_sb_add_lit(sb, "\n</parameter>\n");
    }
}

static void add_keywords(struct rewrite *rw, struct jinja_sb *sb,
                         const struct jinja_dict *arguments);

/* Of a format without quotes, the contents of lists and objects are JSON. */
static void add_value(struct rewrite *rw, struct jinja_sb *sb, struct jinja_value value)
{
    const char *quote = rw->w->calls->quote;
    if (quote && jinja_is(value, JINJA_STR)) {
        jinja_sb_add_lit(sb, quote);
        jinja_sb_add(sb, value.u.str);
        jinja_sb_add_lit(sb, quote);
    } else if (quote && jinja_is(value, JINJA_DICT)) {
        jinja_sb_add_lit(sb, "{");
        add_keywords(rw, sb, value.u.dict);
        jinja_sb_add_lit(sb, "}");
    } else if (quote && jinja_is(value, JINJA_LIST)) {
        for (size_t i = 0; i < value.u.list->n; i++) {
            jinja_sb_add_lit(sb, i ? rw->w->calls->comma : "[");
            add_value(rw, sb, value.u.list->items[i]);
        }
        jinja_sb_add_lit(sb, value.u.list->n ? "]" : "[]");
    } else if (!quote && jinja_is(value, JINJA_NONE)) {
        jinja_sb_add_lit(sb, "None");
    } else if (!quote && jinja_is(value, JINJA_BOOL)) {
        jinja_sb_add_lit(sb, value.u.i ? "True" : "False");
    } else {
        jinja_sb_add(sb, tok_chat_json(rw->r, value).u.str);
    }
}

static void add_keywords(struct rewrite *rw, struct jinja_sb *sb,
                         const struct jinja_dict *arguments)
{
    for (size_t i = 0; i < arguments->n; i++) {
        if (i) jinja_sb_add_lit(sb, rw->w->calls->comma);
        jinja_sb_add(sb, arguments->pairs[i].key.u.str);
        jinja_sb_add_lit(sb, rw->w->calls->assign);
        add_value(rw, sb, arguments->pairs[i].value);
    }
}

/* JSON text as it was sent, so that it is the text that the model wrote. */
static void add_arguments(struct rewrite *rw, struct jinja_sb *sb,
                          const struct jinja_value *arguments)
{
    struct jinja_value object;
    bool absent = !arguments || jinja_is(*arguments, JINJA_NONE) || tok_chat_is_text(arguments, "");
    bool tags = rw->w->calls->tags, members = tags || rw->w->calls->assign;
    if (members && !absent && tok_chat_as_object(rw->r, *arguments, &object))
        (tags ? add_tags : add_keywords)(rw, sb, object.u.dict);
    else if (absent)
        jinja_sb_add_lit(sb, members ? "" : "{}");
    else if (jinja_is(*arguments, JINJA_STR))
        jinja_sb_add(sb, arguments->u.str);
    else
        jinja_sb_add(sb, tok_chat_json(rw->r, *arguments).u.str);
}

static void add_call(struct rewrite *rw, struct jinja_sb *sb, struct jinja_value call)
{
    const struct jinja_value *function = tok_chat_member(rw->r, call, "function");
    if (!function) function = &call;
    const struct jinja_value *name = tok_chat_member(rw->r, *function, "name");
    jinja_sb_add_lit(sb, rw->w->calls->before_name);
    jinja_sb_add(sb, tok_chat_content_text(rw->r, name).u.str);
    jinja_sb_add_lit(sb, rw->w->calls->before_arguments);
    add_arguments(rw, sb, tok_chat_member(rw->r, *function, "arguments"));
    jinja_sb_add_lit(sb, rw->w->calls->after);
}

/* The message with its calls, if it has some, as text after its content. */
static struct jinja_value write_calls(struct rewrite *rw, struct jinja_value message)
{
    const struct jinja_value *v = tok_chat_member(rw->r, message, "tool_calls");
    if (!rw->w->calls || !v || !jinja_is(*v, JINJA_LIST) || !v->u.list->n) return message;
    const struct jinja_list *calls = v->u.list;
    struct jinja_sb sb = {.r = rw->r};
    const struct jinja_str *content = text_of(rw, message).u.str;
    jinja_sb_add(&sb, content);
    if (content->len) jinja_sb_add_lit(&sb, "\n");
    jinja_sb_add_lit(&sb, rw->w->calls->begin);
    for (size_t i = 0; i < calls->n; i++) {
        if (i) jinja_sb_add_lit(&sb, rw->w->calls->separator);
        add_call(rw, &sb, calls->items[i]);
    }
    jinja_sb_add_lit(&sb, rw->w->calls->end);
    struct jinja_value written = tok_chat_without(rw->r, message, "tool_calls");
    jinja_dict_put_name(rw->r, written.u.dict, "content", jinja_sb_value(&sb));
    return written;
}

/* ---- results ------------------------------------------------------------------------------- */

static bool is_result(struct rewrite *rw, struct jinja_value message)
{
    return rw->w->results && (tok_chat_has_role(rw->r, message, "tool") ||
                              tok_chat_has_role(rw->r, message, "function"));
}

/* Results that follow each other are one user message, and a user's text after them ends it. */
static size_t write_results(struct rewrite *rw, const struct jinja_list *messages, size_t i)
{
    struct jinja_sb sb = {.r = rw->r};
    for (bool first = true; i < messages->n && is_result(rw, messages->items[i]); i++) {
        jinja_sb_add_lit(&sb, first ? "<tool_response>\n" : "\n<tool_response>\n");
        jinja_sb_add(&sb, text_of(rw, messages->items[i]).u.str);
        jinja_sb_add_lit(&sb, "\n</tool_response>");
        first = false;
    }
    if (i < messages->n && tok_chat_has_role(rw->r, messages->items[i], "user")) {
        jinja_sb_add_lit(&sb, "\n");
        jinja_sb_add(&sb, text_of(rw, messages->items[i++]).u.str);
    }
    jinja_list_add(rw->r, rw->out, new_message(rw->r, "user", jinja_sb_value(&sb)));
    return i;
}

/* ---- the list of tools --------------------------------------------------------------------- */

/* After `text` and a blank line, or in front of it. */
static struct jinja_value add_tools(struct rewrite *rw, const struct jinja_str *text, bool in_front)
{
    const struct tok_chat_tool_text *t = rw->w->tools;
    struct jinja_value tools =
        jinja_json_parse(rw->r, t->tools, strlen(t->tools), JINJA_INPUT, "tools");
    struct jinja_sb sb = {.r = rw->r};
    if (text->len && !in_front) {
        jinja_sb_add(&sb, text);
        jinja_sb_add_lit(&sb, "\n\n");
    }
    jinja_sb_add_lit(&sb, t->before);
    jinja_sb_add(&sb, tok_chat_json(rw->r, tools).u.str);
    jinja_sb_add_lit(&sb, t->after);
    if (text->len && in_front) {
        jinja_sb_add_lit(&sb, "\n\n");
        jinja_sb_add(&sb, text);
    }
    return jinja_sb_value(&sb);
}

/* The first message of the role that carries the tools, or NULL. */
static struct jinja_value *find_carrier(struct rewrite *rw, bool system_role)
{
    for (size_t i = 0; i < rw->out->n; i++) {
        struct jinja_value *m = &rw->out->items[i];
        bool system =
            tok_chat_has_role(rw->r, *m, "system") || tok_chat_has_role(rw->r, *m, "developer");
        if (system_role ? system : tok_chat_has_role(rw->r, *m, "user")) return m;
    }
    return NULL;
}

/* At the end of the first system message, which is made if there is none; without that role before
 * the first text of the user. */
static void write_tools(struct rewrite *rw, bool system_role)
{
    struct jinja_value *to = find_carrier(rw, system_role);
    struct jinja_value text = to ? text_of(rw, *to) : tok_chat_content_text(rw->r, NULL);
    struct jinja_value content = add_tools(rw, text.u.str, !system_role);
    if (to) {
        jinja_dict_put_name(rw->r, to->u.dict, "content", content);
        return;
    }
    struct jinja_list *l = rw->out;
    jinja_list_add(rw->r, l, jinja_none());
    memmove(l->items + 1, l->items, (l->n - 1) * sizeof(*l->items));
    l->items[0] = new_message(rw->r, system_role ? "system" : "user", content);
}

/* ---- all of it ----------------------------------------------------------------------------- */

struct jinja_value tok_chat_write_tools(struct jinja_run *r, struct jinja_value messages,
                                        const struct tok_chat_tool_writing *writing,
                                        bool system_role)
{
    const struct jinja_list *in = messages.u.list;
    struct rewrite rw = {.r = r, .w = writing, .out = jinja_list_new(r, in->n + 1)};
    for (size_t i = 0; i < in->n;) {
        if (is_result(&rw, in->items[i]))
            i = write_results(&rw, in, i);
        else
            jinja_list_add(r, rw.out, write_calls(&rw, in->items[i++]));
    }
    if (writing->tools) write_tools(&rw, system_role);
    return jinja_tainted(jinja_from_list(rw.out), messages.input);
}
