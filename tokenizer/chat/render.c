/* SPDX-License-Identifier: MIT */
/*
 * Chat messages to a prompt, as transformers' apply_chat_template does it: the template's variables
 * are the special tokens, overridden by the caller's own, and messages, tools, documents and
 * add_generation_prompt. See chat.h.
 *
 * Each render is a run of its own (run.h) with its memory, so any number of threads may use
 * one struct tok_chat.
 */
#include "base/fail.h"
#include "tokenizer/chat/chat_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "tokenizer/template/dict.h"
#include "tokenizer/template/json.h"
#include "tokenizer/template/text_ops.h"

/* ---- the clock ----------------------------------------------------------------------------- */

/* HEARTH_NOW where it is set, for tests and comparisons; else the local time. */
static void read_clock(struct jinja_run *r, struct tm *ret)
{
    const char *fixed = getenv("HEARTH_NOW");
    time_t now = time(NULL);
    if (!fixed || !*fixed) {
        localtime_r(&now, ret);
        return;
    }
    struct tm tm = {.tm_isdst = -1};
    const char *end = strptime(fixed, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!end || *end) jinja_raise(r, "HEARTH_NOW is not of the form 2025-03-09T14:05:06");
    struct tm utc = tm;
    utc.tm_isdst = 0;
    timegm(&utc); /* fills in the day of the week and of the year */
    tm.tm_wday = utc.tm_wday;
    tm.tm_yday = utc.tm_yday;
    *ret = tm;
}

/* ---- variables ----------------------------------------------------------------------------- */

/* All of it is input; the rest comes from the template and the model's files. */
static struct jinja_value parse_input(struct jinja_run *r, const char *text, const char *what)
{
    return jinja_json_parse(r, text, strlen(text), JINJA_INPUT, what);
}

/* Roles that the API knows are taken for the server's own words; see tok_chat_trust_roles. */
static struct jinja_value read_messages(struct jinja_run *r, const struct tok_chat_input *in)
{
    if (!in->messages) jinja_raise(r, "messages are required");
    struct jinja_value v = parse_input(r, in->messages, "messages");
    if (!jinja_is(v, JINJA_LIST)) jinja_raise(r, "messages must be a list");
    tok_chat_trust_roles(r, v);
    return v;
}

static struct jinja_value read_tools(struct jinja_run *r, const struct tok_chat_input *in)
{
    if (!in->tools) return jinja_none();
    struct jinja_value v = parse_input(r, in->tools, "tools");
    if (jinja_is(v, JINJA_NONE)) return v;
    if (!jinja_is(v, JINJA_LIST)) jinja_raise(r, "tools must be a list");
    for (size_t i = 0; i < v.u.list->n; i++)
        if (!jinja_is(v.u.list->items[i], JINJA_DICT)) jinja_raise(r, "tools must be objects");
    return v;
}

/*
 * The caller's variables override special tokens, as in the reference, but not the request itself.
 */
static void add_kwargs(struct jinja_run *r, struct jinja_dict *to, const struct tok_chat_input *in)
{
    static const char *const reserved[] = {"messages", "tools", "add_generation_prompt"};
    if (!in->kwargs) return;
    struct jinja_value v = parse_input(r, in->kwargs, "kwargs");
    if (jinja_is(v, JINJA_NONE)) return;
    if (!jinja_is(v, JINJA_DICT)) jinja_raise(r, "kwargs must be an object");
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (jinja_dict_get_name(r, v.u.dict, reserved[i]))
            jinja_raise(r, "kwargs must not name '%s'", reserved[i]);
    jinja_dict_add_all(r, to, v.u.dict);
}

/* The variables of apply_chat_template. */
static struct jinja_dict *build_context(struct jinja_run *r, const struct tok_chat *c,
                                        const struct tok_chat_input *in,
                                        struct jinja_value messages, struct jinja_value tools)
{
    struct jinja_dict *d = jinja_dict_new(r);
    struct jinja_value special =
        jinja_json_parse(r, c->variables, strlen(c->variables), JINJA_TRUSTED, "special tokens");
    jinja_dict_add_all(r, d, special.u.dict);
    jinja_dict_put_name(r, d, "documents", jinja_none());
    add_kwargs(r, d, in);
    jinja_dict_put_name(r, d, "messages", messages);
    jinja_dict_put_name(r, d, "tools", tools);
    jinja_dict_put_name(r, d, "add_generation_prompt", jinja_bool(in->add_generation_prompt));
    return d;
}

/* The one for tools when tools are given, even an empty list. */
static const struct jinja_template *choose_template(struct jinja_run *r, const struct tok_chat *c,
                                                    bool tools)
{
    if (tools && c->with_tools) return c->with_tools;
    if (!c->plain) jinja_raise(r, "the model has a chat template for tools only");
    return c->plain;
}

/* ---- an open last message ------------------------------------------------------------------ */

/* Marks where the last message ends; the same words as the reference, so that templates that look
 * for them find them. */
static const char CONTINUE_TAG[] = "CONTINUE_FINAL_MESSAGE_TAG ";

/* Its text in the last message: the string, or the last part that has text. NULL: there is none. */
static struct jinja_value *final_text(struct jinja_run *r, struct jinja_value messages)
{
    const struct jinja_list *l = messages.u.list;
    struct jinja_value *content = l->n ? tok_chat_member(r, l->items[l->n - 1], "content") : NULL;
    if (!content || !jinja_is(*content, JINJA_LIST)) return content;
    for (size_t i = content->u.list->n; i-- > 0;) {
        struct jinja_value *text = tok_chat_member(r, content->u.list->items[i], "text");
        if (text) return text;
    }
    return NULL;
}

/* Adds the tag to the last message; returns the message as it was. */
static const struct jinja_str *
tag_final_message(struct jinja_run *r, const struct tok_chat_input *in, struct jinja_value messages)
{
    if (!in->continue_final_message) return NULL;
    if (in->add_generation_prompt)
        jinja_raise(r, "continue_final_message and add_generation_prompt exclude each other");
    struct jinja_value *text = final_text(r, messages);
    if (!text || !jinja_is(*text, JINJA_STR))
        jinja_raise(r,
                    "continue_final_message is set but the final message has no text to continue");
    const struct jinja_str *before = text->u.str;
    *text = jinja_from_str(
        jinja_str_concat(r, before, jinja_str_tainted(r, jinja_lit(r, CONTINUE_TAG).u.str)));
    return before;
}

/* The last place of a word that is not empty, or SIZE_MAX. */
static size_t find_last(struct jinja_run *r, const struct jinja_str *text,
                        const struct jinja_str *word)
{
    size_t last = SIZE_MAX;
    jinja_spend_search(r, text->len);
    for (size_t at = jinja_str_find(text, word, 0); at != SIZE_MAX;
         at = jinja_str_find(text, word, at + word->len))
        last = at;
    return last;
}

/* Up to the tag; blanks before it go where the template had stripped the one after it. */
static const struct jinja_str *cut_at_tag(struct jinja_run *r, const struct jinja_str *text,
                                          const struct jinja_str *message)
{
    const struct jinja_str *tag = jinja_lit(r, CONTINUE_TAG).u.str;
    const struct jinja_str *word = jinja_str_part(r, tag, 0, tag->len - 1);
    const struct jinja_str *stripped = jinja_str_strip(r, message, NULL, JINJA_BOTH).u.str;
    size_t at = find_last(r, text, word);
    if (at == SIZE_MAX || jinja_str_find(text, stripped, 0) == SIZE_MAX)
        jinja_raise(r, "continue_final_message is set but the final message does not appear in the "
                       "chat after applying the chat template");
    const struct jinja_str *head = jinja_str_part(r, text, 0, at);
    const struct jinja_str *rest = jinja_str_part(r, text, at, text->len - at);
    if (jinja_str_starts(rest, tag)) return head;
    return jinja_str_strip(r, head, NULL, JINJA_RIGHT).u.str;
}

/* ---- ranges -------------------------------------------------------------------------------- */

/* The runs of input bytes; counts them where `ranges` is NULL. */
static size_t find_ranges(const struct jinja_str *s, struct tok_range *ranges)
{
    size_t n = 0;
    for (size_t at = 0; at < s->len;) {
        uint8_t origin = jinja_str_origin_at(s, at);
        size_t begin = at;
        if (!s->mask) at = s->len;
        while (at < s->len && s->mask[at] == origin)
            at++;
        if (!(origin & JINJA_INPUT)) continue;
        if (ranges) ranges[n] = (struct tok_range){.begin = begin, .end = at};
        n++;
    }
    return n;
}

/* ---- rendering ----------------------------------------------------------------------------- */

struct job {
    const struct tok_chat *chat;
    const struct tok_chat_input *in;
    const struct jinja_str *text;
    size_t n_ranges; /* of input in the text */
};

/* The ranges will be copied out of the run, but what they take counts as its memory. */
static void count_ranges(struct jinja_run *r, struct job *job)
{
    job->n_ranges = find_ranges(job->text, NULL);
    if (job->n_ranges > (r->max_memory_bytes - r->memory_bytes) / sizeof(struct tok_range))
        jinja_fail(r, TOK_ELIMIT, "the ranges of input need more than %zu bytes of memory",
                   r->max_memory_bytes);
}

/* Whatever the template uses must be in the context: no special tokens are added. */
static void render_context(struct jinja_run *r, struct job *job, const struct tm *now)
{
    struct jinja_value v = parse_input(r, job->in->context, "context");
    if (!jinja_is(v, JINJA_DICT)) jinja_raise(r, "context must be an object");
    const struct jinja_value *tools = jinja_dict_get_name(r, v.u.dict, "tools");
    bool has_tools = tools && !jinja_is(*tools, JINJA_NONE);
    const struct jinja_template *t = choose_template(r, job->chat, has_tools);
    job->text = jinja_template_render(r, t, v.u.dict, now);
}

/* Renders a request, in the order of apply_chat_template. */
static void render_messages(struct jinja_run *r, struct job *job, const struct tm *now)
{
    struct jinja_value messages = read_messages(r, job->in), tools = read_tools(r, job->in);
    if (!job->in->verbatim) tok_chat_arrange(r, job->chat, messages);
    if (job->in->writing)
        messages = tok_chat_write_tools(r, messages, job->in->writing, job->chat->caps.system_role);
    if (!job->in->verbatim) tok_chat_prepare(r, job->chat, messages);
    const struct jinja_str *open = tag_final_message(r, job->in, messages);
    struct jinja_dict *context = build_context(r, job->chat, job->in, messages, tools);
    const struct jinja_template *t = choose_template(r, job->chat, !jinja_is(tools, JINJA_NONE));
    job->text = jinja_template_render(r, t, context, now);
    if (open) job->text = cut_at_tag(r, job->text, open);
}

static void render(struct jinja_run *r, void *arg)
{
    struct job *job = arg;
    struct tm now;
    read_clock(r, &now);
    if (job->in->context)
        render_context(r, job, &now);
    else
        render_messages(r, job, &now);
    count_ranges(r, job);
}

static int copy_prompt(const struct jinja_str *s, size_t n, struct tok_prompt *ret)
{
    struct tok_prompt p = {.len = s->len, .n_input = n};
    p.text = malloc(s->len + 1);
    p.input = calloc(n ? n : 1, sizeof(*p.input));
    if (!p.text || !p.input) {
        tok_prompt_finish(&p);
        return TOK_ENOMEM;
    }
    memcpy(p.text, s->s, s->len);
    p.text[s->len] = '\0';
    find_ranges(s, p.input);
    *ret = p;
    return 0;
}

int tok_chat_render(const struct tok_chat *c, const struct tok_chat_input *in,
                    struct tok_prompt *ret, char *err, size_t errlen)
{
    AUTO_FREE struct jinja_run *r = calloc(1, sizeof(*r));
    struct job job = {.chat = c, .in = in};
    if (!r) return fail_with(TOK_ENOMEM, err, errlen, "out of memory");
    bool fewer = in->max_steps && in->max_steps < c->max_steps;
    jinja_run_init(r, c->max_memory_bytes, fewer ? in->max_steps : c->max_steps);
    r->max_output_bytes = c->max_output_bytes;
    jinja_run_bound_cpu(r, c->max_cpu_ms);
    int rc = jinja_guard(r, render, &job);
    if (rc) {
        jinja_copy_sentence(err, errlen, r->err);
    } else {
        rc = copy_prompt(job.text, job.n_ranges, ret);
        if (rc) snprintf(err, errlen, "out of memory");
    }
    jinja_run_finish(r);
    return rc;
}

void tok_prompt_finish(struct tok_prompt *p)
{
    free(p->text);
    free(p->input);
    *p = (struct tok_prompt){0};
}
