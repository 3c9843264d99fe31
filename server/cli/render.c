/* SPDX-License-Identifier: MIT */
/*
 * hearth render --model DIR: chat messages to prompts, with nothing of the directory but its chat
 * template and special tokens. JSON lines on stdin to JSON lines on stdout, in order, one answer a
 * line, at once:
 *
 *   {"messages", "tools", "add_generation_prompt", "continue_final_message", "kwargs"} -> {"text"}
 *   {"context": {...}}                                                                 -> {"text"}
 *
 * Messages reach the template exactly as they stand; a context is the template's whole set of
 * variables. What is wrong with a line is its answer: {"error": "..."}; so is a template that does
 * not parse, for every line. Members are handed on as the text they are, so that numbers keep their
 * spelling until the template's own reader sees them.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

#define MAX_LINE_BYTES (64u << 20)
#define MAX_ANSWER_BYTES (256u << 20)

struct error {
    char text[1024];
};

static int fail(struct error *e, const char *what)
{
    snprintf(e->text, sizeof(e->text), "%s", what);
    return -1;
}

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

struct scan {
    const char *s;
    size_t len, at;
};

static void skip_blanks(struct scan *sc)
{
    while (sc->at < sc->len && memchr(" \t\r\n", sc->s[sc->at], 4))
        sc->at++;
}

static bool take(struct scan *sc, char c)
{
    skip_blanks(sc);
    if (sc->at >= sc->len || sc->s[sc->at] != c) return false;
    sc->at++;
    return true;
}

static void skip_string(struct scan *sc)
{
    for (sc->at++; sc->at < sc->len && sc->s[sc->at] != '"'; sc->at++)
        if (sc->s[sc->at] == '\\') sc->at++;
    sc->at = sc->at < sc->len ? sc->at + 1 : sc->len;
}

/* Over a value, up to the comma or bracket behind it; what it is made of others will check. */
static void skip_value(struct scan *sc)
{
    size_t depth = 0;
    while (sc->at < sc->len) {
        char c = sc->s[sc->at];
        if (c == '"') {
            skip_string(sc);
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}' || c == ']')) return;
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        sc->at++;
    }
}

static char *copy_text(const char *s, size_t len)
{
    char *text = malloc(len + 1);
    if (!text) return NULL;
    memcpy(text, s, len);
    text[len] = '\0';
    return text;
}

/* Keeps a value under its name; names that are not known are passed over. */
static int keep(struct request *q, const char *name, size_t name_len, const char *value, size_t len,
                struct error *e)
{
    for (size_t i = 0; i < N_MEMBERS; i++) {
        if (strlen(members[i].name) != name_len || memcmp(members[i].name, name, name_len) != 0)
            continue;
        if (memchr(value, '\0', len)) return fail(e, "the line holds a NUL");
        char *text = copy_text(value, len);
        if (!text) return fail(e, "no memory for the line");
        free(*slot_of(q, i));
        *slot_of(q, i) = text;
    }
    return 0;
}

static int read_request(const char *s, size_t len, struct request *q, struct error *e)
{
    struct scan sc = {.s = s, .len = len};
    if (!take(&sc, '{')) return fail(e, "the line must be an object");
    bool more = !take(&sc, '}');
    while (more) {
        skip_blanks(&sc);
        size_t name = sc.at;
        if (name >= len || s[name] != '"')
            return fail(e, "the line is not JSON: a name is expected");
        skip_string(&sc);
        size_t name_end = sc.at;
        if (!take(&sc, ':')) return fail(e, "the line is not JSON: a colon is expected");
        size_t value = sc.at;
        skip_value(&sc);
        if (keep(q, s + name + 1, name_end - name - 2, s + value, sc.at - value, e)) return -1;
        more = take(&sc, ',');
        if (!more && !take(&sc, '}')) return fail(e, "the line is not JSON: it does not end");
    }
    skip_blanks(&sc);
    return sc.at == len ? 0 : fail(e, "the line is not JSON: there is more after the object");
}

/* A member that is true or false; absent and null are false. */
static int get_flag(const char *text, const char *name, bool *ret, struct error *e)
{
    char word[8] = "";
    *ret = false;
    if (!text) return 0;
    if (sscanf(text, " %7s", word) == 1 && strcmp(word, "true") == 0)
        *ret = true;
    else if (strcmp(word, "false") != 0 && strcmp(word, "null") != 0) {
        snprintf(e->text, sizeof(e->text), "%s must be true or false", name);
        return -1;
    }
    return 0;
}

/* ---- answers ------------------------------------------------------------------------------- */

static int render(const struct tok_chat *chat, const struct request *q, struct buf *out,
                  struct error *e)
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
    if (!q->messages == !q->context) return fail(e, "one of messages and context is needed");
    if (tok_chat_render(chat, &in, &prompt, e->text, sizeof(e->text))) return -1;
    buf_puts(out, "{\"text\":");
    buf_json_string(out, prompt.text, prompt.len);
    buf_puts(out, "}");
    tok_prompt_finish(&prompt);
    return 0;
}

/* chat NULL: `broken` says why there is none. */
static int answer(const struct tok_chat *chat, const char *broken, const char *line, size_t len,
                  struct buf *out, struct error *e)
{
    struct request q = {0};
    if (!chat) return fail(e, broken);
    if (len > MAX_LINE_BYTES) return fail(e, "the line is longer than 67108864 bytes");
    int rc = read_request(line, len, &q, e);
    if (!rc) rc = render(chat, &q, out, e);
    request_finish(&q);
    return rc;
}

/* Answers every line; -1 when one cannot be read or an answer not be written. */
static int run_filter(const struct tok_chat *chat, const char *broken, FILE *in, FILE *to)
{
    struct buf out;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;
    buf_init(&out, MAX_ANSWER_BYTES);
    while (!rc && (n = getline(&line, &cap, in)) >= 0) {
        struct error e = {""};
        size_t len = (size_t)n;
        if (len && line[len - 1] == '\n') len--;
        buf_clear(&out);
        if (answer(chat, broken, line, len, &out, &e) || out.failed) {
            buf_clear(&out);
            buf_puts(&out, "{\"error\":");
            if (!e.text[0]) fail(&e, "no memory for the answer");
            buf_json_string(&out, e.text, strlen(e.text));
            buf_puts(&out, "}");
        }
        buf_puts(&out, "\n");
        if (fwrite(out.data, 1, out.len, to) != out.len || fflush(to) != 0) rc = -1;
    }
    if (ferror(in)) rc = -1;
    buf_finish(&out);
    free(line);
    return rc;
}

int srv_cmd_render(const struct srv_config *config)
{
    struct tok_chat_params params = {.template_file = config->chat_template_file};
    struct tok_chat *chat = NULL;
    char err[1024] = "";
    int rc = tok_chat_open(&chat, config->model, &params, err, sizeof(err));
    if (rc && rc != TOK_EINVAL && rc != TOK_ELIMIT) {
        fprintf(stderr, "hearth: %s\n", err);
        return 1;
    }
    rc = run_filter(chat, err, stdin, stdout);
    if (rc) fprintf(stderr, "hearth: the lines cannot be read or the answers not be written\n");
    tok_chat_close(chat);
    return rc ? 1 : 0;
}
