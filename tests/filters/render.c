/* SPDX-License-Identifier: MIT */
/*
 * hearth-filter render --model DIR: chat messages to prompts, with nothing of the directory but its
 * chat template and special tokens. JSON lines on stdin to JSON lines on stdout, in order, one
 * answer per line:
 *
 *   {"messages", "tools", "add_generation_prompt", "continue_final_message", "kwargs"} -> {"text"}
 *   {"context": {...}}                                                                 -> {"text"}
 *
 * Messages reach the template as they are; a context is the template's whole set of variables. A
 * line that cannot be rendered gets {"error": "..."}, as does every line if the template does not
 * parse. Members are passed on as JSON text, so that numbers keep their digits.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "tests/filters/filter.h"
#include "server/config/config.h"
#include "tests/filters/filters.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

#define MAX_LINE_BYTES (64u << 20)
#define MAX_ANSWER_BYTES (256u << 20)

/* ---- members of a line --------------------------------------------------------------------- */

/* The line's members, as NUL-terminated JSON texts; NULL: not there. All owned. */
struct request {
    char *messages, *tools, *kwargs, *context;
    char *add_generation_prompt, *continue_final_message;
};

struct member {
    const char *name;
    size_t offset;
};

static const struct member members[] = {
    {"messages", offsetof(struct request, messages)},
    {"tools", offsetof(struct request, tools)},
    {"kwargs", offsetof(struct request, kwargs)},
    {"context", offsetof(struct request, context)},
    {"add_generation_prompt", offsetof(struct request, add_generation_prompt)},
    {"continue_final_message", offsetof(struct request, continue_final_message)},
};

enum { N_MEMBERS = sizeof(members) / sizeof(members[0]) };

static char **slot_of(struct request *q, size_t i)
{
    return (char **)(void *)((char *)q + members[i].offset);
}

static void request_finish(struct request *q)
{
    for (size_t i = 0; i < N_MEMBERS; i++)
        free(*slot_of(q, i));
}

/* Keeps a value under its name; other names are skipped. */
static int keep(struct request *q, const char *name, size_t name_len, const char *value, size_t len,
                struct filter_error *e)
{
    for (size_t i = 0; i < N_MEMBERS; i++) {
        if (strlen(members[i].name) != name_len || memcmp(members[i].name, name, name_len) != 0)
            continue;
        free(*slot_of(q, i));
        *slot_of(q, i) = strndup(value, len);
        if (!*slot_of(q, i)) return filter_fail(e, "no memory for the line");
    }
    return 0;
}

static int read_request(const char *line, size_t len, struct request *q, struct filter_error *e)
{
    struct jr r;
    const char *s;
    size_t n;
    int more = 0;
    jr_init(&r, line, len, JR_NUL | JR_CONSTANTS, e->text, sizeof(e->text));
    int rc = jr_open(&r, '{');
    while (!rc && (more = jr_more(&r, '}')) == 1) {
        char name[32]; /* longer than any that is kept */
        rc = jr_key(&r, &s, &n);
        size_t name_len = !rc && n < sizeof(name) ? n : 0;
        memcpy(name, s, name_len);
        if (!rc) rc = jr_skip(&r, &s, &n);
        if (!rc) rc = keep(q, name, name_len, s, n, e);
    }
    if (!rc) rc = more < 0 ? more : jr_end(&r);
    jr_finish(&r);
    return rc;
}

/* A member that is true or false; absent and null are false. */
static int get_flag(const char *text, const char *name, bool *ret, struct filter_error *e)
{
    *ret = text && strcmp(text, "true") == 0;
    if (!text || *ret || !strcmp(text, "false") || !strcmp(text, "null")) return 0;
    return filter_fail(e, "%s must be true or false", name);
}

/* ---- answers ------------------------------------------------------------------------------- */

static int render(const struct tok_chat *chat, const struct request *q, struct jw *w,
                  struct filter_error *e)
{
    struct tok_chat_input in = {.messages = q->messages,
                                .tools = q->tools,
                                .kwargs = q->kwargs,
                                .context = q->context,
                                .verbatim = true};
    struct tok_prompt prompt = {0};
    if (get_flag(q->add_generation_prompt, "add_generation_prompt", &in.add_generation_prompt, e) ||
        get_flag(q->continue_final_message, "continue_final_message", &in.continue_final_message,
                 e))
        return -1;
    if (!q->messages == !q->context) return filter_fail(e, "one of messages and context is needed");
    if (tok_chat_render(chat, &in, &prompt, e->text, sizeof(e->text))) return -1;
    jw_open(w, NULL, '{');
    jw_string(w, "text", prompt.text, prompt.len);
    jw_close(w);
    tok_prompt_finish(&prompt);
    return 0;
}

/* chat NULL: `problem` says why there is none. */
struct renderer {
    struct tok_chat *chat;
    char problem[1024];
};

static int answer(void *ctx, const char *line, size_t len, struct jw *w, struct filter_error *e)
{
    const struct renderer *r = ctx;
    struct request q = {0};
    if (!r->chat) return filter_fail(e, "%s", r->problem);
    int rc = read_request(line, len, &q, e);
    if (!rc) rc = render(r->chat, &q, w, e);
    request_finish(&q);
    return rc;
}

int filter_render(const struct srv_config *config)
{
    struct tok_chat_params params = {.template_file = config->chat_template_file};
    struct renderer r = {.chat = NULL};
    int rc = tok_chat_open(&r.chat, config->model, &params, r.problem, sizeof(r.problem));
    if (rc && rc != TOK_EINVAL && rc != TOK_ELIMIT) {
        shown_line(stderr, "hearth: %s", r.problem);
        return EXIT_FAILURE;
    }
    const struct filter filter = {.max_line_bytes = MAX_LINE_BYTES,
                                  .max_answer_bytes = MAX_ANSWER_BYTES,
                                  .answer = answer,
                                  .ctx = &r};
    int status = filter_run(&filter);
    tok_chat_close(r.chat);
    return status;
}
