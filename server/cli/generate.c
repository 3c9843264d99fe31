/* SPDX-License-Identifier: MIT */
/*
 * hearth generate --prompt TEXT -n 32: the model's continuation to stdout as it comes, or with
 * --chat its answer; counts and times to stderr. --prompt - reads the text from stdin. Where stdout
 * is closed the answer is given up. Main thread.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/shown.h"
#include "engine/engine.h"
#include "server/cli/cli.h"
#include "server/cli/client.h"
#include "server/config/config.h"
#include "server/log.h"

enum { DEFAULT_TOKENS = 128 };

/* More than any context holds. */
#define MAX_STDIN_BYTES (64u << 20)

struct generation {
    struct srv_config config;
    struct client *client;
    json_t *body;
    bool is_empty; /* the prompt */
    struct client_result result;
    char err[1024];
};

#define fail(g, ...) fail_with(-1, (g)->err, sizeof((g)->err), __VA_ARGS__)

/* All of stdin, without the line's end that echo adds. */
static int read_stdin(struct generation *g, struct buf *b)
{
    char block[16384];
    for (size_t n; !b->failed && (n = fread(block, 1, sizeof(block), stdin)) > 0;)
        buf_add(b, block, n);
    if (b->len && b->data[b->len - 1] == '\n') b->len--;
    if (!b->failed && !ferror(stdin)) return 0;
    return fail(g, "the prompt on stdin cannot be read, or has more than %u bytes",
                MAX_STDIN_BYTES);
}

/* The text as it is, or as one user message. An empty prompt is one too: the model starts from its
 * begin-of-text token. */
static int make_body(struct generation *g)
{
    const struct srv_config *c = &g->config;
    const char *prompt = c->prompt ? c->prompt : "";
    struct buf b = {.max = MAX_STDIN_BYTES};
    int rc = 0;
    if (strcmp(prompt, "-") == 0)
        rc = read_stdin(g, &b);
    else
        buf_puts(&b, prompt);
    const char *text = b.len ? b.data : "";
    g->is_empty = b.len == 0;
    if (!rc && c->chat)
        g->body =
            json_pack("{s:[{s:s, s:s%}]}", "messages", "role", "user", "content", text, b.len);
    else if (!rc)
        g->body = json_pack("{s:s%}", "prompt", text, b.len);
    buf_finish(&b);
    if (!rc && !g->body) rc = fail(g, "the prompt is not valid UTF-8");
    return rc ? rc : client_constrain(c, g->body, g->err, sizeof(g->err));
}

/* A file gets the very bytes; a terminal would obey some of them. */
static bool write_text(void *ctx, const char *text, size_t len)
{
    bool good = isatty(STDOUT_FILENO) ? shown_write(stdout, text, len)
                                      : fwrite(text, 1, len, stdout) == len;
    return good && fflush(stdout) == 0;
}

static int generate(struct generation *g)
{
    struct srv_config *c = &g->config;
    const struct client_calls calls = {.on_text = write_text};
    if (!c->generation_config && c->temperature < 0) c->temperature = 0;
    if (c->seed < 0) c->seed = 0;
    if (c->max_tokens < 0) c->max_tokens = DEFAULT_TOKENS;
    if (make_body(g)) return -1;
    g->client = client_open_here(c, "", NULL, g->err, sizeof(g->err));
    if (!g->client) return -1;
    if (client_answer(g->client, c->chat ? "/chat/completions" : "/completions", g->body, &calls,
                      &g->result, g->err, sizeof(g->err))) {
        size_t len = g->is_empty ? strlen(g->err) : sizeof(g->err) - 1;
        snprintf(g->err + len, sizeof(g->err) - len, " Give --prompt TEXT, or --prompt -: stdin.");
        return -1;
    }
    return write_text(NULL, "\n", 1) ? 0 : fail(g, "the text cannot be written");
}

static double per_second(int64_t n, double ms)
{
    return n > 0 && ms > 0 ? 1e3 * (double)n / ms : 0;
}

static void print_statistics(const struct generation *g)
{
    const struct eng_info *info = client_info(g->client);
    const struct client_result *r = &g->result;
    shown_line(stderr, "hearth: %s, numerics %s, kernels %s, %d threads, loaded in %.2f s",
               info->architecture, info->numerics, info->kernels, info->n_threads,
               info->load_seconds);
    shown_line(
        stderr,
        "hearth: prompt %lld tokens in %.1f ms (%.0f tok/s); %lld generated, %.1f ms (%.1f tok/s); "
        "finish reason: %s",
        (long long)r->n_prompt, r->prompt_ms, per_second(r->n_prompt, r->prompt_ms),
        (long long)r->n_generated, r->generated_ms, per_second(r->n_generated - 1, r->generated_ms),
        r->finish);
}

int srv_cmd_generate(const struct srv_config *config)
{
    struct generation g = {.config = *config};
    srv_log_init("text", "warning");
    int rc = generate(&g);
    if (rc)
        shown_line(stderr, "hearth: %s", g.err);
    else
        print_statistics(&g);
    client_close(g.client);
    json_decref(g.body);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
