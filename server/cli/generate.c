/* SPDX-License-Identifier: MIT */
/*
 * hearth generate --prompt TEXT -n 32: the model's continuation to stdout as it comes, or with
 * --chat its answer; counts and times to stderr. --prompt - reads the text from stdin. Where stdout
 * is closed the job is cancelled. Main thread.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/shown.h"
#include "engine/engine.h"
#include "server/cli/cli.h"
#include "server/cli/local_model.h"
#include "server/config/config.h"
#include "tokenizer/tokenizer.h"

enum { DEFAULT_TOKENS = 128 };

/* More than any context holds. */
#define MAX_STDIN_BYTES (64u << 20)

struct generation {
    const struct srv_config *config;
    struct local_model model;
    char *text; /* the prompt, owned; NULL for an empty one from stdin */
    size_t text_len;
    struct tok_ids prompt;
    char err[1024];
};

/* ---- the prompt ---------------------------------------------------------------------------- */

static int fail(struct generation *g, const char *what)
{
    snprintf(g->err, sizeof(g->err), "%s", what);
    return -1;
}

/* All of stdin, without the line's end that echo adds. */
static int read_stdin(struct generation *g)
{
    struct buf b;
    char block[16384];
    buf_init(&b, MAX_STDIN_BYTES);
    for (size_t n; !b.failed && (n = fread(block, 1, sizeof(block), stdin)) > 0;)
        buf_add(&b, block, n);
    if (b.failed || ferror(stdin)) {
        buf_finish(&b);
        snprintf(g->err, sizeof(g->err),
                 "the prompt on stdin cannot be read, or has more than %u "
                 "bytes",
                 MAX_STDIN_BYTES);
        return -1;
    }
    if (b.len && b.data[b.len - 1] == '\n') b.len--;
    g->text = b.data;
    g->text_len = b.len;
    return 0;
}

/* An empty prompt is one too: the model starts from its begin-of-text token. */
static int read_text(struct generation *g)
{
    const char *prompt = g->config->prompt ? g->config->prompt : "";
    if (strcmp(prompt, "-") == 0) return read_stdin(g);
    g->text = strdup(prompt);
    g->text_len = strlen(prompt);
    return g->text ? 0 : fail(g, "no memory");
}

static int encode_plain(struct generation *g)
{
    return tok_encode(g->model.tok, g->text ? g->text : "", g->text_len,
                      TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, &g->prompt, g->err, sizeof(g->err));
}

/* One user message through the template; nothing in it becomes a control token. */
static int encode_chat(struct generation *g)
{
    json_t *list =
        json_pack("[{s:s, s:s%}]", "role", "user", "content", g->text ? g->text : "", g->text_len);
    char *messages = list ? json_dumps(list, JSON_COMPACT) : NULL;
    json_decref(list);
    if (!messages) return fail(g, "the prompt is not valid UTF-8");
    int rc = local_encode_chat(&g->model, messages, &g->prompt, g->err, sizeof(g->err));
    free(messages);
    return rc;
}

static int read_prompt(struct generation *g)
{
    int rc = local_open_text(&g->model, g->config, g->config->chat, g->err, sizeof(g->err));
    if (!rc) rc = read_text(g);
    if (!rc) rc = g->config->chat ? encode_chat(g) : encode_plain(g);
    if (!rc && g->prompt.n == 0)
        rc = fail(g,
                  "the prompt has no tokens, and this model needs at least one to go on from: give "
                  "--prompt TEXT, or --prompt - for stdin");
    return rc;
}

/* ---- all of it ----------------------------------------------------------------------------- */

/* A file gets the very bytes; a terminal would obey some of them. */
static bool write_text(void *ctx, const char *text, size_t len)
{
    bool good = isatty(STDOUT_FILENO) ? shown_write(stdout, text, len)
                                      : fwrite(text, 1, len, stdout) == len;
    return good && fflush(stdout) == 0;
}

static int generate(struct generation *g, struct local_result *ret)
{
    const struct srv_config *c = g->config;
    struct eng_sampling sampling;
    const struct local_job job = {
        .prompt = &g->prompt,
        .max_tokens = c->max_tokens == SRV_UNSET ? DEFAULT_TOKENS : c->max_tokens,
        .sampling = &sampling,
        .on_text = write_text,
    };
    if (local_sampling(c, 0, &sampling, g->err, sizeof(g->err)) ||
        local_run(&g->model, &job, ret, g->err, sizeof(g->err)))
        return -1;
    return write_text(NULL, "\n", 1) ? 0 : fail(g, "the text cannot be written");
}

static double per_second(int64_t n, uint64_t from_us, uint64_t to_us)
{
    return to_us > from_us ? 1e6 * (double)n / (double)(to_us - from_us) : 0;
}

static void print_statistics(const struct generation *g, const struct local_result *result)
{
    const struct eng_info *info = eng_info(g->model.engine);
    const struct eng_usage *u = &result->usage;
    uint64_t first = u->first_token_us ? u->first_token_us : u->done_us;
    int64_t n_after = u->n_generated_tokens > 0 ? u->n_generated_tokens - 1 : 0;
    shown_line(stderr, "hearth: %s, numerics %s, kernels %s, %d threads, loaded in %.2f s",
               info->architecture, info->numerics, info->kernels, info->n_threads,
               info->load_seconds);
    shown_line(
        stderr,
        "hearth: prompt %lld tokens in %.1f ms (%.0f tok/s); %lld generated, %.1f ms (%.1f tok/s); "
        "finish reason: %s",
        (long long)u->n_prompt_tokens, (double)(first - u->started_us) * 1e-3,
        per_second(u->n_prompt_tokens, u->started_us, first), (long long)u->n_generated_tokens,
        (double)(u->done_us - first) * 1e-3, per_second(n_after, first, u->done_us),
        result->finish == ENG_FINISH_STOP ? "stop" : "length");
}

int srv_cmd_generate(const struct srv_config *config)
{
    struct generation g = {.config = config};
    struct local_result result;
    int rc = read_prompt(&g);
    if (!rc) rc = local_open_engine(&g.model, config, g.err, sizeof(g.err));
    if (!rc) rc = generate(&g, &result);
    if (rc)
        shown_line(stderr, "hearth: %s", g.err);
    else
        print_statistics(&g, &result);
    local_finish(&g.model);
    tok_ids_finish(&g.prompt);
    free(g.text);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
