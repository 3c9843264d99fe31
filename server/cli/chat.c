/* SPDX-License-Identifier: MIT */
/*
 * hearth chat: a conversation on the terminal, with the model in this process or, with --url, one
 * behind an OpenAI-style HTTP API. Without a terminal the message is read from stdin and one answer
 * is written to stdout.
 *
 * SIGINT stops the answer in progress. Everything here runs on the main thread.
 */
#include <jansson.h>
#include <locale.h>
#include <langinfo.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "server/cli/chat_conversation.h"
#include "server/cli/chat_input.h"
#include "server/cli/chat_screen.h"
#include "server/cli/cli.h"
#include "server/cli/client.h"
#include "server/cli/interrupt.h"
#include "server/config/config.h"
#include "server/log.h"
#include "server/models/lookup.h"

enum {
    ANSWER_MAX_BYTES = 64 << 20,
    ATTACHED_MAX_BYTES = 256 << 10,
    PROGRESS_AFTER_US = 500000,
};

struct chat {
    const struct srv_config *config;
    struct srv_config settings; /* the same with what /set and /model changed; strings borrowed */
    struct client *client;
    struct screen screen;
    struct input input;
    bool interactive;
    struct conversation conversation;
    struct buf attached; /* files for the next message */
    char *unanswered;    /* the last question, if it got no answer; else NULL */
    int64_t n_used;      /* tokens of the conversation as last counted */
    int status;          /* exit status */
    bool ended;
    char err[1024];
};

/* The answer in progress. */
struct answer {
    struct chat *chat;
    struct buf text;
    struct client_result result;
    uint64_t begin_us, first_us, end_us; /* first_us 0: no text has come */
};

/* 8190 -> "8,190" */
static const char *grouped(int64_t n, char buf[32])
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%lld", (long long)n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

#define fail(c, ...) fail_with(-1, (c)->err, sizeof((c)->err), __VA_ARGS__)

/* ---- one answer ----------------------------------------------------------------------------- */

static bool take_text(void *ctx, const char *text, size_t len)
{
    struct answer *a = ctx;
    if (!a->first_us) a->first_us = clock_now_us();
    buf_add(&a->text, text, len);
    if (a->text.failed) return false;
    return a->chat->config->json || screen_text(&a->chat->screen, text, len);
}

static void show_progress(void *ctx, int64_t n_done, int64_t n_prompt)
{
    struct answer *a = ctx;
    char text[64];
    if (a->first_us || n_prompt <= 0 || clock_now_us() - a->begin_us < PROGRESS_AFTER_US) return;
    snprintf(text, sizeof(text), "reading %d %%", (int)(100 * n_done / n_prompt));
    screen_progress(&a->chat->screen, text);
}

/* The tokens that a model in this process can hold; 0: it is elsewhere. */
static int64_t context_of(const struct chat *c)
{
    const struct eng_info *info = client_info(c->client);
    return info ? info->ctx_tokens : 0;
}

static void say_full(struct chat *c, int64_t n)
{
    char used[32], all[32];
    size_t len = strlen(c->err);
    if (context_of(c))
        snprintf(c->err, sizeof(c->err),
                 "the conversation has %s of %s tokens: /new, /undo or /clear", grouped(n, used),
                 grouped(context_of(c), all));
    else
        snprintf(c->err + len, sizeof(c->err) - len, ": /new, /undo or /clear");
}

/* Values that were not set are the model's choice. */
static int answer(struct chat *c, struct answer *a, json_t *messages)
{
    const struct srv_config *s = &c->settings;
    const struct client_calls calls = {take_text, show_progress, a};
    json_auto_t *body = json_pack("{s:O}", "messages", messages);
    if (!body) return fail(c, "out of memory");
#define JSON_float json_real
#define JSON_int json_integer
#define SET(name, type, ...)                                                                       \
    if (s->name >= 0) json_object_set_new(body, #name, JSON_##type(s->name));
    ENG_SAMPLING_OPTIONS(SET)
    if (s->seed >= 0) json_object_set_new(body, "seed", json_integer(s->seed));
    if (s->max_tokens >= 0) json_object_set_new(body, "max_tokens", json_integer(s->max_tokens));
    int rc = client_constrain(s, body, c->err, sizeof(c->err));
    if (!rc)
        rc = client_answer(c->client, "/chat/completions", body, &calls, &a->result, c->err,
                           sizeof(c->err));
    if (rc && a->result.is_full) say_full(c, a->result.n_prompt);
    return rc;
}

static void say_timings(struct chat *c, const struct answer *a)
{
    const struct client_result *r = &a->result;
    uint64_t first = a->first_us ? a->first_us : a->end_us;
    double read_s = (double)(first - a->begin_us) * 1e-6;
    double write_s = (double)(a->end_us - first) * 1e-6;
    char cached[40] = "";
    if (r->n_cached >= 0)
        snprintf(cached, sizeof(cached), " (%lld cached)", (long long)r->n_cached);
    if (r->n_prompt < 0 || r->n_generated < 0)
        screen_say(&c->screen, "[first text after %.2f s, the rest in %.2f s]", read_s, write_s);
    else
        screen_say(&c->screen, "[%lld tokens read%s in %.2f s, %lld written, %.1f tokens/s]",
                   (long long)r->n_prompt, cached, read_s, (long long)r->n_generated,
                   r->n_generated > 1 && write_s > 0 ? (double)(r->n_generated - 1) / write_s : 0);
}

/* The words under an answer that did not end by itself, and the figures. */
static void say_end(struct chat *c, const struct answer *a, int rc)
{
    int64_t n = a->result.n_prompt + a->result.n_generated;
    bool is_cut = strcmp(a->result.finish, "length") == 0;
    if (rc) {
        screen_say(&c->screen, "%s", c->err);
    } else if (!a->result.finish[0]) {
        screen_say(&c->screen, "[stopped]");
    } else if (is_cut && context_of(c) && n >= context_of(c)) {
        say_full(c, n);
        screen_say(&c->screen, "[cut: %s]", c->err);
    } else if (is_cut) {
        screen_say(&c->screen, "[cut at the most tokens of an answer: /set max-tokens N]");
    }
    if (!rc && c->config->timings) say_timings(c, a);
}

/* Keeps what came. A question without any answer is taken out again, for /retry. */
static void keep_answer(struct chat *c, const struct answer *a, int rc)
{
    free(c->unanswered);
    c->unanswered = NULL;
    if (!rc || a->text.len) {
        const char *state = rc ? "error" : a->result.finish[0] ? "done" : "stopped";
        conversation_add(&c->conversation, "assistant", a->text.data, a->text.len, state);
        c->n_used = a->result.n_prompt + a->result.n_generated;
    }
    if (a->text.len || (!rc && a->result.finish[0])) return;
    c->unanswered = conversation_undo(&c->conversation);
}

static int ask(struct chat *c, const char *question, struct answer *a)
{
    *a = (struct answer){.chat = c, .begin_us = clock_now_us()};
    buf_init(&a->text, ANSWER_MAX_BYTES);
    if (conversation_add(&c->conversation, "user", question, strlen(question), NULL))
        return fail(c, "the message is not valid UTF-8");
    json_auto_t *messages = conversation_request(&c->conversation);
    if (c->interactive) screen_begin_answer(&c->screen);
    int rc = messages ? answer(c, a, messages) : fail(c, "out of memory");
    a->end_us = clock_now_us();
    if (c->interactive) screen_end_answer(&c->screen);
    keep_answer(c, a, rc);
    return rc;
}

/* After an answer, which SIGINT has stopped; sigint_ends: after other work. */
static void take_signals(struct chat *c, bool sigint_ends)
{
    for (int number; !c->ended && (number = interrupt_take());) {
        if ((number == SIGINT && !sigint_ends) || number == SIGWINCH) continue;
        c->status = 128 + number;
        c->ended = true;
    }
}

static void converse(struct chat *c, const char *text)
{
    struct answer a;
    AUTO(buf_finish) struct buf message = c->attached;
    buf_init(&c->attached, INPUT_MAX_BYTES);
    if (message.len) buf_puts(&message, "\n\n");
    if (!message.data) buf_init(&message, INPUT_MAX_BYTES);
    buf_puts(&message, text);
    if (message.failed) {
        screen_say(&c->screen, "the message is too large");
    } else {
        int rc = ask(c, message.data, &a);
        say_end(c, &a, rc);
        buf_finish(&a.text);
    }
    take_signals(c, false);
}

/* ---- commands ------------------------------------------------------------------------------- */

static void do_help(struct chat *c, char *arg);

static void do_exit(struct chat *c, char *arg)
{
    c->ended = true;
}

static void do_new(struct chat *c, char *arg)
{
    json_array_clear(c->conversation.messages);
    buf_clear(&c->attached);
    free(c->unanswered);
    c->unanswered = NULL;
    c->n_used = 0;
    screen_say(&c->screen, "a new conversation");
}

static void do_clear(struct chat *c, char *arg)
{
    if (c->screen.moves) fputs("\033[H\033[2J", stdout);
    do_new(c, arg);
}

static void do_system(struct chat *c, char *arg)
{
    if (*arg && json_string_set(c->conversation.system, arg))
        screen_say(&c->screen, "the text is not valid UTF-8");
    else
        screen_say(&c->screen, "system: %s", json_string_value(c->conversation.system));
}

static void do_undo(struct chat *c, char *arg)
{
    AUTO_FREE char *question = conversation_undo(&c->conversation);
    free(c->unanswered);
    c->unanswered = NULL;
    if (question)
        screen_say(&c->screen, "removed: %.100s", question);
    else
        screen_say(&c->screen, "there is no question to remove");
}

static void do_retry(struct chat *c, char *arg)
{
    AUTO_FREE char *question =
        c->unanswered ? strdup(c->unanswered) : conversation_undo(&c->conversation);
    if (question)
        converse(c, question);
    else
        screen_say(&c->screen, "there is no question to ask again");
}

/* Requests spell the names of options with underscores. */
static void spell_as_option(char *name)
{
    for (char *p = name; (p = strchr(p, '_'));)
        *p = '-';
}

static void do_set(struct chat *c, char *arg)
{
    size_t len = strcspn(arg, " ");
    const char *value = arg + len + strspn(arg + len, " ");
    arg[len] = '\0';
    spell_as_option(arg);
    if (srv_config_set(&c->settings, "sampling", arg, value, c->err, sizeof(c->err)))
        screen_say(&c->screen, "%s", c->err);
}

static void show_number(struct chat *c, const char *name, double value)
{
    char key[32];
    snprintf(key, sizeof(key), "%s", name);
    spell_as_option(key);
    if (value >= 0) screen_say(&c->screen, "%s: %.15g", key, value);
}

static void do_show(struct chat *c, char *arg)
{
    const struct srv_config *s = &c->settings;
    char used[32], all[32];
    screen_say(&c->screen, "model: %s", client_model(c->client));
    screen_say(&c->screen, "system: %s", json_string_value(c->conversation.system));
    if (context_of(c))
        screen_say(&c->screen, "tokens: %s of %s", grouped(c->n_used, used),
                   grouped(context_of(c), all));
    else if (c->n_used > 0)
        screen_say(&c->screen, "tokens: %s", grouped(c->n_used, used));
#define SHOW(name, type, ...) show_number(c, #name, s->name);
    ENG_SAMPLING_OPTIONS(SHOW)
    show_number(c, "seed", (double)s->seed);
    show_number(c, "max_tokens", s->max_tokens);
}

static void do_save(struct chat *c, char *arg)
{
    if (conversation_save(&c->conversation, arg, c->err, sizeof(c->err)))
        screen_say(&c->screen, "%s", c->err);
    else
        screen_say(&c->screen, "saved: %s", arg);
}

static void do_load(struct chat *c, char *arg)
{
    if (conversation_load(&c->conversation, arg, c->err, sizeof(c->err))) {
        screen_say(&c->screen, "%s", c->err);
        return;
    }
    free(c->unanswered);
    c->unanswered = NULL;
    c->n_used = 0;
    screen_say(&c->screen, "loaded: %zu messages", json_array_size(c->conversation.messages));
}

static void do_file(struct chat *c, char *arg)
{
    AUTO_FREE char *text = NULL;
    size_t len;
    if (file_load(NULL, arg, ATTACHED_MAX_BYTES, &text, &len, c->err, sizeof(c->err))) {
        screen_say(&c->screen, "%s", c->err);
        return;
    }
    const char *name = strrchr(arg, '/') ? strrchr(arg, '/') + 1 : arg;
    if (memchr(text, '\0', len) || !utf8_valid(text, len)) {
        screen_say(&c->screen, "%s is not a text file", arg);
    } else {
        conversation_quote_file(&c->attached, name, text, len);
        screen_say(&c->screen, "%s goes with the next message", name);
    }
}

/* n_signals: of SIGINT, that end the process meanwhile. */
static struct client *open_here(struct chat *c, const char *dir, const char *name, int n_signals)
{
    struct srv_config own = c->settings;
    own.model = dir;
    own.max_tokens = SRV_UNSET; /* bodies have these */
    own.seed = SRV_UNSET;
#define UNSET(name, ...) own.name = SRV_UNSET;
    ENG_SAMPLING_OPTIONS(UNSET)
    interrupt_ends(n_signals);
    struct client *client = client_open_here(&own, name, interrupt_stop(), c->err, sizeof(c->err));
    interrupt_ends(0);
    return client;
}

/* The present model stays until the new one is ready. */
static int open_other(struct chat *c, const char *spec)
{
    char dir[PATH_MAX], name[256];
    if (srv_hub_resolve(spec, NULL, dir, sizeof(dir), c->err, sizeof(c->err)) ||
        srv_hub_check(dir, c->err, sizeof(c->err)))
        return -1;
    srv_hub_model_name(spec, name, sizeof(name));
    struct client *other = open_here(c, dir, name, 2);
    bool stopped = atomic_load(interrupt_stop());
    if (other && !stopped) {
        client_close(c->client);
        c->client = other;
        return 0;
    }
    client_close(other);
    return stopped ? fail(c, "stopped") : -1;
}

static void do_model(struct chat *c, char *arg)
{
    int rc =
        context_of(c) ? open_other(c, arg) : client_choose(c->client, arg, c->err, sizeof(c->err));
    if (rc)
        screen_say(&c->screen, "%s; %s stays", c->err, client_model(c->client));
    else
        screen_say(&c->screen, "model: %s", client_model(c->client));
    take_signals(c, false);
}

static const struct command {
    const char *name, *argument; /* argument: needed, unless in brackets; NULL: none */
    const char *help;
    void (*run)(struct chat *c, char *arg);
} commands[] = {
    {"/help", NULL, "show this list", do_help},
    {"/exit", NULL, "end, as Ctrl-D does", do_exit},
    {"/new", NULL, "begin a new conversation; the system text stays", do_new},
    {"/clear", NULL, "the same on an empty screen", do_clear},
    {"/system", "[TEXT]", "set or show the system text", do_system},
    {"/undo", NULL, "remove the last question and its answer", do_undo},
    {"/retry", NULL, "ask the last question again", do_retry},
    {"/set", "NAME VALUE", "temperature, top-p, top-k, min-p, seed, max-tokens", do_set},
    {"/show", NULL, "show model, system text and settings", do_show},
    {"/save", "FILE", "write the conversation; the chat page can import it", do_save},
    {"/load", "FILE", "read one, as /save or the page wrote it", do_load},
    {"/file", "FILE", "put a text file into the next message", do_file},
    {"/model", "NAME", "talk to another model", do_model},
};
enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void do_help(struct chat *c, char *arg)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        char left[32];
        snprintf(left, sizeof(left), "%s %s", commands[i].name,
                 commands[i].argument ? commands[i].argument : "");
        screen_say(&c->screen, "%-16s %s", left, commands[i].help);
    }
    screen_say(&c->screen,
               "A line that ends in \\ goes on in the next one; \"\"\" begins and ends a "
               "message of several lines. // is a message that begins with /. Ctrl-C "
               "stops an answer.");
}

static void run_command(struct chat *c, char *line)
{
    size_t len = strcspn(line, " \n"), end = strlen(line);
    while (end > len && line[end - 1] == ' ')
        line[--end] = '\0';
    char *arg = line + len + strspn(line + len, " ");
    for (int i = 0; i < N_COMMANDS; i++) {
        const struct command *command = &commands[i];
        if (strlen(command->name) != len || strncmp(command->name, line, len) != 0) continue;
        bool has = *arg != '\0', needs = command->argument && command->argument[0] != '[';
        if ((has && !command->argument) || (needs && !has))
            screen_say(&c->screen, "it is %s%s%s", command->name, needs ? " " : "",
                       needs ? command->argument : "");
        else
            command->run(c, arg);
        return;
    }
    screen_say(&c->screen, "%.*s is not a command: /help lists them, // begins a message with /",
               (int)len, line);
}

/* ---- with a terminal ------------------------------------------------------------------------ */

static void take_message(struct chat *c, char *text)
{
    if (text[0] == '/' && text[1] == '/')
        converse(c, text + 1);
    else if (text[0] == '/')
        run_command(c, text);
    else if (text[strspn(text, " \t\n")])
        converse(c, text);
}

static void read_one(struct chat *c, bool *was_interrupted)
{
    AUTO_FREE char *text = NULL;
    int number = 0;
    enum line_end end = input_message(&c->input, &text, &number);
    bool is_interrupt = end == LINE_SIGNAL && number == SIGINT;
    c->ended = end && end != LINE_CLEARED && !(is_interrupt && !*was_interrupted);
    if (end == LINE_SIGNAL) c->status = is_interrupt && !c->ended ? 0 : 128 + number;
    if (end == LINE_NOMEM) {
        screen_say(&c->screen, "the line is too long");
        c->status = EXIT_FAILURE;
    }
    if (is_interrupt && !c->ended) screen_say(&c->screen, "(press Ctrl-C again or Ctrl-D to exit)");
    *was_interrupted = is_interrupt;
    if (!end) take_message(c, text);
}

static void talk(struct chat *c)
{
    const char *words[N_COMMANDS + 1] = {NULL};
    bool was_interrupted = false;
    for (int i = 0; i < N_COMMANDS; i++)
        words[i] = commands[i].name;
    screen_say(&c->screen, "%s; /help lists the commands, Ctrl-D ends", client_model(c->client));
    if (input_init(&c->input, words, c->config->history, c->err, sizeof(c->err)))
        screen_say(&c->screen, "%s", c->err);
    if (c->config->prompt) {
        screen_say(&c->screen, "> %s", c->config->prompt);
        converse(c, c->config->prompt);
    }
    while (!c->ended)
        read_one(c, &was_interrupted);
    input_finish(&c->input);
}

/* ---- without one ---------------------------------------------------------------------------- */

/* -p TEXT, then stdin unless it is a terminal and there is a text. */
static int read_question(struct chat *c, struct buf *b)
{
    char block[16384];
    bool has_prompt = c->config->prompt != NULL;
    if (has_prompt) buf_puts(b, c->config->prompt);
    if (has_prompt && isatty(STDIN_FILENO)) return 0;
    size_t before = b->len;
    for (ssize_t n; !b->failed && (n = read(STDIN_FILENO, block, sizeof(block))) > 0;) {
        if (has_prompt && b->len == before) buf_puts(b, "\n");
        buf_add(b, block, (size_t)n);
    }
    if (b->failed) return fail(c, "the message on stdin is too large");
    if (b->len && b->data[b->len - 1] == '\n') b->data[--b->len] = '\0';
    if (!b->len) return fail(c, "there is no message: give one by -p or on stdin");
    if (!utf8_valid(b->data, b->len) || memchr(b->data, '\0', b->len))
        return fail(c, "the message is not text in UTF-8");
    return 0;
}

/* On stderr, which may be a terminal. */
static void say_error(struct chat *c)
{
    screen_init(&c->screen, stderr);
    screen_say(&c->screen, "hearth: %s", c->err);
}

static int write_json(struct chat *c, const struct answer *a)
{
    const struct client_result *r = &a->result;
    json_t *message = json_pack("{s:s, s:s%}", "role", "assistant", "content",
                                a->text.len ? a->text.data : "", a->text.len);
    json_auto_t *object =
        json_pack("{s:s, s:s, s:[{s:i, s:o, s:s?}]}", "object", "chat.completion", "model",
                  client_model(c->client), "choices", "index", 0, "message", message,
                  "finish_reason", r->finish[0] ? r->finish : NULL);
    if (r->n_prompt >= 0 && r->n_generated >= 0)
        json_object_set_new(
            object, "usage",
            json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)r->n_prompt,
                      "completion_tokens", (json_int_t)r->n_generated, "total_tokens",
                      (json_int_t)(r->n_prompt + r->n_generated), "prompt_tokens_details",
                      "cached_tokens", (json_int_t)(r->n_cached > 0 ? r->n_cached : 0)));
    AUTO_FREE char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    return text && puts(text) >= 0 ? 0 : fail(c, "the answer cannot be written");
}

static void answer_once(struct chat *c)
{
    struct answer a = {.chat = c};
    AUTO(buf_finish) struct buf question = {.max = INPUT_MAX_BYTES};
    int rc = read_question(c, &question);
    if (rc) c->status = SRV_EXIT_USAGE;
    if (!rc && (rc = ask(c, question.data, &a))) c->status = EXIT_FAILURE;
    if (!rc && c->config->json) rc = write_json(c, &a);
    if (!rc && !c->config->json && !screen_text(&c->screen, "\n", 1))
        rc = fail(c, "the text cannot be written");
    if (rc && !c->status) c->status = EXIT_FAILURE;
    take_signals(c, true);
    if (rc && !c->ended) say_error(c);
    if (!rc && c->config->timings) {
        screen_init(&c->screen, stderr);
        say_timings(c, &a);
    }
    buf_finish(&a.text);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int open_remote(struct chat *c)
{
    const struct srv_config *s = c->config;
    if (s->json_schema || s->regex || s->grammar) {
        c->status = SRV_EXIT_USAGE;
        return fail(c, "--json-schema, --regex and --grammar need the model in this process, and "
                       "cannot be used with --url");
    }
    c->client =
        client_open(s->chat_url, client_key(s), s->model, interrupt_stop(), c->err, sizeof(c->err));
    return c->client ? 0 : -1;
}

static int open_local(struct chat *c)
{
    const struct srv_config *s = c->config;
    char name[256] = "hearth-demo";
    if (!s->model_is_demo)
        srv_hub_model_name(s->model_shown ? s->model_shown : s->model, name, sizeof(name));
    c->client = open_here(c, s->model, name, 1);
    return c->client ? 0 : -1;
}

int srv_cmd_chat(const struct srv_config *config)
{
    struct chat c = {.config = config, .settings = *config, .status = EXIT_SUCCESS};
    srv_log_init("text", "warning");
    c.interactive = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !config->json;
    /* Widths of characters and the editor need a UTF-8 locale; numbers stay those of C. */
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    screen_init(&c.screen, stdout);
    c.screen.colours = c.screen.colours && c.interactive;
    buf_init(&c.attached, INPUT_MAX_BYTES);
    int rc = interrupt_begin() ? fail(&c, "cannot receive signals") : 0;
    if (!rc) rc = conversation_init(&c.conversation) ? fail(&c, "out of memory") : 0;
    if (!rc && config->system && json_string_set(c.conversation.system, config->system))
        rc = fail(&c, "the system text is not valid UTF-8");
    if (!rc) rc = config->chat_url ? open_remote(&c) : open_local(&c);
    take_signals(&c, true);
    if (rc && !c.ended) say_error(&c);
    if (rc || c.ended) {
        c.status = c.status ? c.status : EXIT_FAILURE;
    } else if (c.interactive) {
        talk(&c);
    } else {
        answer_once(&c);
    }
    interrupt_end();
    client_close(c.client);
    conversation_finish(&c.conversation);
    buf_finish(&c.attached);
    free(c.unanswered);
    return c.status;
}
