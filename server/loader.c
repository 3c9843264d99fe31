/* SPDX-License-Identifier: MIT */
/* The loader: one thread for the engine, another for text. See loader.h. */
#include "server/loader.h"

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "server/app.h"
#include "server/bounds.h"
#include "server/config/config.h"
#include "server/engine_params.h"
#include "server/generation_config.h"
#include "server/grammar_cache.h"
#include "server/log.h"
#include "server/model_lookup.h"
#include "server/serve_pull.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

enum { ERROR_BYTES = 512, MIB = 1 << 20 };

struct srv_loader {
    struct srv_app *app;
    int event_fd;
    pthread_t thread;
    struct eng *engine;
    struct tok *tok;
    struct tok_chat *chat;
    struct grammar_cache *grammars;
    const char **names; /* NULL-terminated; the strings are the configuration's, or default_name */
    struct srv_defaults defaults;
    char default_name[256];
    char fingerprint[160];
    char model_dir[PATH_MAX];
    bool text_failed, joined;
    int status; /* exit status, once loading has ended */
    char text_error[ERROR_BYTES], error[ERROR_BYTES];
};

/* Prefixes an error with the part that was being read, unless it names it. */
static void fail_text(struct srv_loader *l, const char *what, const char *reason)
{
    l->text_failed = true;
    snprintf(l->text_error, sizeof(l->text_error), "%s: %s", what, reason);
}

static void *load_text(void *arg)
{
    struct srv_loader *l = arg;
    const struct srv_config *c = l->app->config;
    char err[ERROR_BYTES - 64] = "";
    if (tok_open(&l->tok, l->model_dir, err, sizeof(err))) {
        fail_text(l, "tokenizer", err);
        return NULL;
    }
    struct tok_chat_params params = {.template_file = c->chat_template_file};
    int rc = tok_chat_open(&l->chat, l->model_dir, &params, err, sizeof(err));
    /* A model without a template is fine. */
    if (rc && (rc != TOK_ENOENT || c->chat_template_file)) fail_text(l, "chat template", err);
    if (tools_detect(&l->app->style, l->chat, c->tool_format))
        fail_text(l, "chat template", "out of memory");
    return NULL;
}

static int load_engine(struct srv_loader *l)
{
    const struct srv_config *c = l->app->config;
    struct eng_params params = srv_engine_params(c);
    params.model_dir = l->model_dir;
    params.n_parallel = c->parallel;
    params.caller_bytes = c->grammar_cache_mb << 20;
    params.caller_bytes_per_id = GRAM_VOCAB_BYTES_PER_ID;
    params.answer_bytes = c->answer_memory_bytes ? c->answer_memory_bytes : -1;
    params.no_prefix_cache = !c->prefix_cache;
    params.max_queued_jobs = c->max_queue;
    params.max_queued_tokens = c->max_queue_tokens;
    params.n_batch_choices = c->max_choices;
    params.global_priority = strcmp(c->priority_policy, "global") == 0;
    return eng_open(&l->engine, &params, l->error, sizeof(l->error));
}

/* The names the model answers to: the aliases, else its own name. */
static int choose_names(struct srv_loader *l)
{
    const struct srv_config *c = l->app->config;
    int n = c->alias.n ? c->alias.n : 1;
    l->names = calloc((size_t)n + 1, sizeof(*l->names));
    if (!l->names) return -1;
    for (int i = 0; i < c->alias.n; i++)
        l->names[i] = c->alias.items[i];
    if (c->alias.n) return 0;
    if (c->model_is_demo)
        snprintf(l->default_name, sizeof(l->default_name), "hearth-demo");
    else
        srv_hub_model_name(c->model_shown, l->default_name, sizeof(l->default_name));
    l->names[0] = l->default_name;
    return 0;
}

/* b<version>-<weights and tokenizer>-<path>[-kv8]-<kernels>-<gemm>: all that decides the bits. */
static void make_fingerprint(struct srv_loader *l)
{
    const struct eng_info *info = eng_info(l->engine);
    char weights[2 * 6 + 1];
    for (int i = 0; i < 6; i++) {
        snprintf(weights + 2 * i, 3, "%02x", info->fingerprint[i] ^ tok_fingerprint(l->tok)[i]);
    }
    const char *kv = strcmp(info->kv_dtype, "int8") == 0 ? "-kv8" : "";
    snprintf(l->fingerprint, sizeof(l->fingerprint), "b%s-%s-%s%s-%s-%s", HEARTH_VERSION, weights,
             info->numerics, kv, info->kernels, info->gemm);
}

static void publish(struct srv_loader *l)
{
    struct srv_app *app = l->app;
    app->engine = l->engine;
    app->tok = l->tok;
    app->chat = l->chat;
    app->grammars = l->grammars;
    app->model_names = l->names;
    app->fingerprint = l->fingerprint;
    app->defaults = l->defaults;
    app->created = (int64_t)time(NULL);
    app->is_demo = l->app->config->model_is_demo;
    atomic_store(&app->loaded, true);
}

static void check_vocabulary(const struct srv_loader *l)
{
    int32_t n_rows = eng_info(l->engine)->vocab_size, n_ids = tok_vocab_size(l->tok);
    if (n_ids > n_rows)
        srv_log(SRV_LOG_WARNING, "the tokenizer has %d ids, the model %d: larger ids are refused",
                n_ids, n_rows);
}

/* The markers of calls and reasoning that the vocabulary has as tokens. */
static void find_markers(struct srv_loader *l)
{
    struct tools_markers *markers = &l->app->markers;
    for (int m = 0; m < TOOLS_N_MARKERS; m++) {
        const char *text = tools_marker_text(&l->app->style, (enum tools_marker)m);
        markers->id[m] = *text ? tok_token_id(l->tok, text, strlen(text)) : -1;
        markers->control[m] = tok_is_special(l->tok, markers->id[m]);
    }
}

/* Structured output needs tokens that spell bytes; a model without them serves the rest. */
static int make_grammars(struct srv_loader *l)
{
    const struct eng_info *info = eng_info(l->engine);
    const struct grammar_cache_params params = {
        .tok = l->tok,
        .n_ids = info->vocab_size,
        .end_ids = info->eos_ids,
        .n_end_ids = (size_t)info->n_eos_ids,
        .max_bytes = l->app->config->grammar_cache_mb << 20,
        .style = &l->app->style,
        .markers = &l->app->markers,
    };
    int rc = grammar_cache_create(&l->grammars, &params);
    if (rc == GRAM_ENOMEM) {
        snprintf(l->error, sizeof(l->error), "no memory for the vocabulary of structured output");
        return -1;
    }
    int64_t bytes = rc ? 0 : grammar_cache_stats(l->grammars).vocab_bytes;
    int64_t planned = (int64_t)GRAM_VOCAB_BYTES_PER_ID * info->vocab_size + MIB;
    if (bytes > planned)
        srv_log(SRV_LOG_WARNING,
                "the vocabulary of structured output takes %lld MiB; the memory plan has %lld MiB",
                (long long)(bytes / MIB), (long long)(planned / MIB));
    return 0;
}

/*
 * Finds the directory of the model, after fetching it if --pull is given. Returns the exit status.
 */
static int find_model(struct srv_loader *l)
{
    struct srv_pull *pull = l->app->pull;
    if (pull)
        return srv_pull_run(pull, l->model_dir, sizeof(l->model_dir), l->error, sizeof(l->error));
    int len = snprintf(l->model_dir, sizeof(l->model_dir), "%s", l->app->config->model);
    if ((size_t)len < sizeof(l->model_dir)) return EXIT_SUCCESS;
    snprintf(l->error, sizeof(l->error), "the path of the model is too long");
    return EXIT_FAILURE;
}

/* Everything from the files of the directory. Returns 0 or -1. */
static int load_files(struct srv_loader *l)
{
    pthread_t text;
    bool in_parallel = pthread_create(&text, NULL, load_text, l) == 0;
    int rc = load_engine(l);
    if (in_parallel)
        pthread_join(text, NULL);
    else
        load_text(l);
    if (rc == 0 && l->text_failed) {
        snprintf(l->error, sizeof(l->error), "%s", l->text_error);
        rc = -1;
    }
    if (rc == 0) check_vocabulary(l);
    if (rc == 0) find_markers(l);
    if (rc == 0) rc = make_grammars(l);
    l->defaults = srv_defaults_neutral();
    if (rc == 0 && l->app->config->generation_config)
        rc = srv_defaults_read(&l->defaults, l->model_dir, l->error, sizeof(l->error));
    srv_defaults_override(&l->defaults, l->app->config);
    if (rc == 0 && choose_names(l)) {
        snprintf(l->error, sizeof(l->error), "out of memory");
        rc = -1;
    }
    return rc;
}

static void *load(void *arg)
{
    struct srv_loader *l = arg;
    while (l->app->config->debug_hold_load)
        pause();
    l->status = find_model(l);
    if (!l->status && load_files(l)) l->status = EXIT_FAILURE;
    if (!l->status) {
        make_fingerprint(l);
        publish(l);
    }
    int loading = SRV_LOADING;
    /* A drain that has begun meanwhile keeps its state. */
    atomic_compare_exchange_strong(&l->app->state, &loading, l->status ? SRV_FAILED : SRV_READY);
    uint64_t one = 1;
    if (write(l->event_fd, &one, sizeof(one)) < 0)
        srv_log(SRV_LOG_ERROR, "the loader cannot report its end");
    return NULL;
}

int srv_loader_start(struct srv_loader **ret, struct srv_app *app, int event_fd, char *err,
                     size_t errlen)
{
    struct srv_loader *l = calloc(1, sizeof(*l));
    pthread_attr_t attr;
    int rc = -1;
    if (!l || pthread_attr_init(&attr)) {
        free(l);
        snprintf(err, errlen, "out of memory");
        return -1;
    }
    l->app = app;
    l->event_fd = event_fd;
    pthread_attr_setstacksize(&attr, SRV_WORKER_STACK_BYTES);
    rc = pthread_create(&l->thread, &attr, load, l);
    pthread_attr_destroy(&attr);
    if (rc) {
        snprintf(err, errlen, "loader thread: %s", strerror(rc));
        free(l);
        return -1;
    }
    pthread_setname_np(l->thread, "hearth-load");
    *ret = l;
    return 0;
}

int srv_loader_result(struct srv_loader *l, char *err, size_t errlen)
{
    if (!l->joined) pthread_join(l->thread, NULL);
    l->joined = true;
    if (l->status) snprintf(err, errlen, "%s", l->error);
    return l->status;
}

void srv_loader_abandon(struct srv_loader *l)
{
    pthread_detach(l->thread);
}

void srv_loader_finish(struct srv_loader *l)
{
    if (!l) return;
    if (!l->joined) pthread_join(l->thread, NULL);
    eng_close(l->engine);
    grammar_cache_destroy(l->grammars);
    tok_chat_close(l->chat);
    tok_close(l->tok);
    free(l->names);
    free(l);
}
