/* SPDX-License-Identifier: MIT */
/*
 * hearth generate --prompt TEXT -n 32: the model's continuation to stdout as it comes, or with
 * --chat its answer; counts and times to stderr. --prompt - reads the text from stdin.
 *
 * Threads: the engine's callback puts ids into an array sized for all of them; the main thread
 * turns them into text and writes. Where stdout is closed the job is cancelled.
 */
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "engine/engine.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "server/engine_params.h"
#include "server/generation_config.h"
#include "server/grammar_cache.h"
#include "server/grammar_guide.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

enum { DEFAULT_TOKENS = 128 };

enum { MAX_GRAMMAR_BYTES = 1 << 20 }; /* the compiler's own limits are lower */

/* More than any context holds. */
#define MAX_STDIN_BYTES (64u << 20)

struct generation {
    const struct srv_config *config;
    struct eng *engine;
    struct tok *tok;
    struct tok_decoder *decoder;
    char *text; /* the prompt, owned; NULL for an empty one from stdin */
    size_t text_len;
    struct tok_ids prompt;
    struct grammar_cache *grammars; /* with a constraint: its vocabulary */
    struct gram *gram;
    struct grammar_rules rules;
    struct grammar_choice choice;
    void *state;
    char err[1024];

    pthread_mutex_t lock; /* guards what the callback writes */
    pthread_cond_t changed;
    int32_t *ids; /* [max_tokens] */
    int64_t max_tokens, n_ids;
    enum eng_finish finish;
    char failure[256];
    struct eng_usage usage;
    bool done;
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
    return tok_encode(g->tok, g->text ? g->text : "", g->text_len,
                      TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, &g->prompt, g->err, sizeof(g->err));
}

/* One user message through the template; nothing in it becomes a control token. */
static int encode_chat(struct generation *g)
{
    const struct srv_config *c = g->config;
    struct tok_chat_params params = {.template_file = c->chat_template_file};
    struct tok_chat *chat = NULL;
    struct tok_prompt prompt = {0};
    json_t *list =
        json_pack("[{s:s, s:s%}]", "role", "user", "content", g->text ? g->text : "", g->text_len);
    char *messages = list ? json_dumps(list, JSON_COMPACT) : NULL;
    json_decref(list);
    if (!messages) return fail(g, "the prompt is not valid UTF-8");
    int rc = tok_chat_open(&chat, c->model, &params, g->err, sizeof(g->err));
    if (rc) goto out;
    struct tok_chat_input input = {.messages = messages, .add_generation_prompt = true};
    rc = tok_chat_render(chat, &input, &prompt, g->err, sizeof(g->err));
    if (rc) goto out;
    rc = tok_encode_marked(g->tok, prompt.text, prompt.len, prompt.input, prompt.n_input,
                           TOK_PARSE_SPECIAL, &g->prompt, g->err, sizeof(g->err));
out:
    tok_prompt_finish(&prompt);
    tok_chat_close(chat);
    free(messages);
    return rc;
}

static int read_prompt(struct generation *g)
{
    int rc = tok_open(&g->tok, g->config->model, g->err, sizeof(g->err));
    if (!rc) rc = read_text(g);
    if (!rc) rc = g->config->chat ? encode_chat(g) : encode_plain(g);
    if (!rc && g->prompt.n == 0)
        rc = fail(g, "the prompt has no tokens, and this model needs at least one to go on from");
    if (rc) return rc;
    if (tok_decoder_create(&g->decoder, g->tok, true)) return fail(g, "no memory");
    return 0;
}

/* ---- on the scheduler's thread ------------------------------------------------------------- */

static void take_event(struct generation *g, const struct eng_event *e)
{
    switch (e->type) {
    case ENG_EVENT_TOKEN: g->ids[g->n_ids++] = e->id; break;
    case ENG_EVENT_CHOICE_DONE:
        g->finish = e->finish;
        if (e->error) snprintf(g->failure, sizeof(g->failure), "%s", e->error);
        break;
    case ENG_EVENT_JOB_DONE:
        g->usage = *e->usage;
        g->done = true;
        break;
    default: break;
    }
}

static void on_event(void *ctx, const struct eng_event *e)
{
    struct generation *g = ctx;
    pthread_mutex_lock(&g->lock);
    take_event(g, e);
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* ---- text ---------------------------------------------------------------------------------- */

static int write_text(const char *text, size_t len)
{
    if (len == 0) return 0;
    return fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0 ? 0 : -1;
}

/* Writes ids [from, to), which the callback has left behind. */
static int write_ids(struct generation *g, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        const char *text;
        size_t len;
        if (tok_decoder_push(g->decoder, g->ids[i], &text, &len) || write_text(text, len))
            return -1;
    }
    return 0;
}

/* Follows the job to its end. */
static int write_answer(struct generation *g, struct eng_job *job)
{
    int64_t n_written = 0;
    int rc = 0;
    bool done = false;
    while (!done) {
        pthread_mutex_lock(&g->lock);
        while (g->n_ids == n_written && !g->done)
            pthread_cond_wait(&g->changed, &g->lock);
        int64_t n = g->n_ids;
        done = g->done;
        pthread_mutex_unlock(&g->lock);
        if (!rc && write_ids(g, n_written, n)) {
            rc = fail(g, "the text cannot be written");
            eng_job_cancel(job);
        }
        n_written = n;
    }
    const char *text;
    size_t len;
    if (!rc && (tok_decoder_flush(g->decoder, &text, &len) || write_text(text, len) ||
                write_text("\n", 1)))
        rc = fail(g, "the text cannot be written");
    return rc;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int open_engine(struct generation *g)
{
    const struct srv_config *c = g->config;
    const struct eng_params params = srv_engine_params(c);
    if (eng_open(&g->engine, &params, g->err, sizeof(g->err))) return -1;
    int64_t ctx = eng_info(g->engine)->ctx_tokens;
    int64_t asked = c->max_tokens == SRV_UNSET ? DEFAULT_TOKENS : c->max_tokens;
    g->max_tokens = asked < ctx ? asked : ctx;
    g->ids = calloc((size_t)g->max_tokens + 1, sizeof(*g->ids));
    return g->ids ? 0 : fail(g, "no memory");
}

/* The flags, with --generation-config the model's own values, else the likeliest tokens. */
static int read_sampling(struct generation *g, struct eng_sampling *s)
{
    const struct srv_config *c = g->config;
    struct srv_defaults d = srv_defaults_neutral();
    if (!c->generation_config)
        d.temperature = 0;
    else if (srv_defaults_read(&d, c->model, g->err, sizeof(g->err)))
        return -1;
    srv_defaults_override(&d, c);
    s->temperature = (float)d.temperature;
    s->top_k = (int)d.top_k;
    s->top_p = (float)d.top_p;
    s->min_p = (float)d.min_p;
    s->typical_p = (float)d.typical_p;
    s->repetition_penalty = (float)d.repetition_penalty;
    s->seed = d.seed < 0 ? 0 : (uint64_t)d.seed;
    return 0;
}

/* ---- constraints --------------------------------------------------------------------------- */

/* The text of the constraint, owned; NULL: none was asked for. */
static int read_constraint(struct generation *g, enum gram_kind *ret_kind, char **ret_text,
                           size_t *ret_len)
{
    const struct srv_config *c = g->config;
    const char *file = c->json_schema ? c->json_schema : c->grammar;
    if (!!c->json_schema + !!c->regex + !!c->grammar > 1)
        return fail(g, "at most one of --json-schema, --regex and --grammar may be given");
    *ret_kind = c->json_schema ? GRAM_SCHEMA : c->regex ? GRAM_REGEX : GRAM_GBNF;
    if (file)
        return file_load(NULL, file, MAX_GRAMMAR_BYTES, ret_text, ret_len, g->err, sizeof(g->err));
    if (!c->regex) return 0;
    *ret_text = strdup(c->regex);
    *ret_len = strlen(c->regex);
    return *ret_text ? 0 : fail(g, "no memory");
}

static int compile_constraint(struct generation *g, enum gram_kind kind, const char *text,
                              size_t len)
{
    const struct eng_info *info = eng_info(g->engine);
    const struct gram_options options = {.strict = false};
    struct gram_error failure = {0};
    bool kept;
    const struct grammar_cache_params params = {.tok = g->tok,
                                                .n_ids = info->vocab_size,
                                                .end_ids = info->eos_ids,
                                                .n_end_ids = (size_t)info->n_eos_ids};
    if (grammar_cache_create(&g->grammars, &params))
        return fail(g, "the tokens of this model spell no single bytes");
    if (grammar_cache_get(g->grammars, kind, text, len, &options, &g->gram, &kept, &failure))
        return fail(g, failure.message);
    for (size_t i = 0; i < gram_n_relaxed(g->gram); i++)
        fprintf(stderr, "hearth: %s is only approximated\n", gram_relaxed(g->gram, i));
    g->state = aligned_alloc(64, gram_state_bytes());
    if (!g->state) return fail(g, "no memory");
    g->rules = (struct grammar_rules){.info = info, .tok = g->tok};
    g->choice.rules = &g->rules;
    grammar_guide_begin(&g->choice, g->state, g->gram);
    return 0;
}

static int open_constraint(struct generation *g)
{
    enum gram_kind kind;
    char *text = NULL;
    size_t len = 0;
    int rc = read_constraint(g, &kind, &text, &len);
    if (!rc && text) rc = compile_constraint(g, kind, text, len);
    free(text);
    return rc;
}

/* ---- the job ------------------------------------------------------------------------------- */

static int generate(struct generation *g)
{
    const struct eng_guide guide = grammar_guide(&g->choice);
    struct eng_job_params p = {
        .prompt = g->prompt.ids,
        .n_prompt = (int64_t)g->prompt.n,
        .n_choices = 1,
        .max_tokens = g->max_tokens,
        .sampling = eng_sampling_default(),
        .guides = g->gram ? &guide : NULL,
        .n_logprobs = -1,
        .n_prompt_logprobs = -1,
        .on_event = on_event,
        .ctx = g,
    };
    if (read_sampling(g, &p.sampling)) return -1;
    struct eng_job *job;
    if (eng_job_submit(g->engine, &p, &job, g->err, sizeof(g->err))) return -1;
    int rc = write_answer(g, job);
    eng_job_release(job);
    if (!rc && g->finish == ENG_FINISH_ERROR) rc = fail(g, g->failure);
    return rc;
}

static double per_second(int64_t n, uint64_t from_us, uint64_t to_us)
{
    return to_us > from_us ? 1e6 * (double)n / (double)(to_us - from_us) : 0;
}

static void print_statistics(const struct generation *g)
{
    const struct eng_info *info = eng_info(g->engine);
    const struct eng_usage *u = &g->usage;
    uint64_t first = u->first_token_us ? u->first_token_us : u->done_us;
    int64_t n_after = u->n_generated_tokens > 0 ? u->n_generated_tokens - 1 : 0;
    fprintf(
        stderr,
        "hearth: %s, numerics %s, kernels %s, %d threads, loaded in %.2f s\n"
        "hearth: prompt %lld tokens in %.1f ms (%.0f tok/s); %lld generated, %.1f ms (%.1f tok/s); "
        "finish reason: %s\n",
        info->architecture, info->numerics, info->kernels, info->n_threads, info->load_seconds,
        (long long)u->n_prompt_tokens, (double)(first - u->started_us) * 1e-3,
        per_second(u->n_prompt_tokens, u->started_us, first), (long long)u->n_generated_tokens,
        (double)(u->done_us - first) * 1e-3, per_second(n_after, first, u->done_us),
        g->finish == ENG_FINISH_STOP ? "stop" : "length");
}

int srv_cmd_generate(const struct srv_config *config)
{
    struct generation g = {.config = config};
    pthread_mutex_init(&g.lock, NULL);
    pthread_cond_init(&g.changed, NULL);
    int rc = read_prompt(&g);
    if (!rc) rc = open_engine(&g);
    if (!rc) rc = open_constraint(&g);
    if (!rc) rc = generate(&g);
    if (rc)
        fprintf(stderr, "hearth: %s\n", g.err);
    else
        print_statistics(&g);
    eng_close(g.engine);
    if (g.gram) grammar_cache_put(g.grammars, g.gram);
    grammar_cache_destroy(g.grammars);
    free(g.state);
    tok_decoder_destroy(g.decoder);
    tok_ids_finish(&g.prompt);
    tok_close(g.tok);
    free(g.ids);
    free(g.text);
    pthread_cond_destroy(&g.changed);
    pthread_mutex_destroy(&g.lock);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
