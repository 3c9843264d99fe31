/* SPDX-License-Identifier: MIT */
/* Loading a model and its references; see served_model.h. */
#include "server/served_model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"
#include "server/bounds.h"
#include "server/config/config.h"
#include "server/engine_params.h"
#include "server/grammar_cache.h"
#include "server/log.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

enum { ERROR_BYTES = 512, MIB = 1 << 20 };

/* A model that is being loaded. */
struct loading {
    const struct srv_model_params *p;
    struct srv_model *model;
    bool text_failed;
    char text_error[ERROR_BYTES];
    char *err;
    size_t errlen;
};

/* Prefixes an error with the part that was being read, unless it names it. */
static void fail_text(struct loading *l, const char *what, const char *reason)
{
    l->text_failed = true;
    snprintf(l->text_error, sizeof(l->text_error), "%s: %s", what, reason);
}

static void *load_text(void *arg)
{
    struct loading *l = arg;
    const struct srv_config *c = l->p->config;
    char err[ERROR_BYTES - 64] = "";
    if (tok_open(&l->model->tok, l->p->dir, err, sizeof(err))) {
        fail_text(l, "tokenizer", err);
        return NULL;
    }
    struct tok_chat_params params = {.template_file = c->chat_template_file};
    int rc = tok_chat_open(&l->model->chat, l->p->dir, &params, err, sizeof(err));
    /* A model without a template is fine. */
    if (rc && (rc != TOK_ENOENT || c->chat_template_file)) fail_text(l, "chat template", err);
    if (tools_detect(&l->model->style, l->model->chat, c->tool_format))
        fail_text(l, "chat template", "out of memory");
    return NULL;
}

static int load_engine(struct loading *l)
{
    const struct srv_config *c = l->p->config;
    struct eng_params params = srv_engine_params(c);
    params.model_dir = l->p->dir;
    params.n_parallel = c->parallel;
    params.caller_bytes = c->grammar_cache_mb << 20;
    params.caller_bytes_per_id = GRAM_VOCAB_BYTES_PER_ID;
    params.answer_bytes = c->answer_memory_bytes ? c->answer_memory_bytes : -1;
    params.no_prefix_cache = !c->prefix_cache;
    params.max_queued_jobs = c->max_queue;
    params.max_queued_tokens = c->max_queue_tokens;
    params.n_batch_choices = c->max_choices;
    params.global_priority = strcmp(c->priority_policy, "global") == 0;
    return eng_open(&l->model->engine, &params, l->err, l->errlen);
}

/* Names and their texts in one block. */
static int copy_names(struct loading *l)
{
    const struct srv_list *from = &l->p->names;
    size_t bytes = ((size_t)from->n + 1) * sizeof(char *);
    for (int i = 0; i < from->n; i++)
        bytes += strlen(from->items[i]) + 1;
    const char **names = malloc(bytes);
    if (!names) return -1;
    char *text = (char *)(names + from->n + 1);
    for (int i = 0; i < from->n; i++) {
        names[i] = text;
        text = stpcpy(text, from->items[i]) + 1;
    }
    names[from->n] = NULL;
    l->model->names = names;
    return 0;
}

/* b<version>-<weights and tokenizer>-<path>[-kv8]-<kernels>-<gemm>: all that decides the bits. */
static void make_fingerprint(struct srv_model *m)
{
    const struct eng_info *info = eng_info(m->engine);
    const uint8_t *text = tok_fingerprint(m->tok);
    char weights[2 * 6 + 1];
    for (int i = 0; i < 6; i++)
        snprintf(weights + 2 * i, 3, "%02x", info->fingerprint[i] ^ text[i]);
    const char *kv = strcmp(info->kv_dtype, "int8") == 0 ? "-kv8" : "";
    snprintf(m->fingerprint, sizeof(m->fingerprint), "b%s-%s-%s%s-%s-%s", HEARTH_VERSION, weights,
             info->numerics, kv, info->kernels, info->gemm);
}

static void check_vocabulary(const struct loading *l)
{
    int32_t n_rows = eng_info(l->model->engine)->vocab_size, n_ids = tok_vocab_size(l->model->tok);
    if (n_ids > n_rows)
        srv_log(SRV_LOG_WARNING, "the tokenizer has %d ids, the model %d: larger ids are refused",
                n_ids, n_rows);
}

/* The markers of calls and reasoning that the vocabulary has as tokens. */
static void find_markers(struct loading *l)
{
    struct tools_markers *markers = &l->model->markers;
    for (int m = 0; m < TOOLS_N_MARKERS; m++) {
        const char *text = tools_marker_text(&l->model->style, (enum tools_marker)m);
        markers->id[m] = *text ? tok_token_id(l->model->tok, text, strlen(text)) : -1;
        markers->control[m] = tok_is_special(l->model->tok, markers->id[m]);
    }
}

/* Structured output needs tokens that spell bytes; a model without them serves the rest. */
static int make_grammars(struct loading *l)
{
    const struct eng_info *info = eng_info(l->model->engine);
    const struct grammar_cache_params params = {
        .tok = l->model->tok,
        .n_ids = info->vocab_size,
        .end_ids = info->eos_ids,
        .n_end_ids = (size_t)info->n_eos_ids,
        .max_bytes = l->p->config->grammar_cache_mb << 20,
        .style = &l->model->style,
        .markers = &l->model->markers,
    };
    int rc = grammar_cache_create(&l->model->grammars, &params);
    if (rc == GRAM_ENOMEM) {
        snprintf(l->err, l->errlen, "no memory for the vocabulary of structured output");
        return -1;
    }
    int64_t bytes = rc ? 0 : grammar_cache_stats(l->model->grammars).vocab_bytes;
    int64_t planned = (int64_t)GRAM_VOCAB_BYTES_PER_ID * info->vocab_size + MIB;
    if (bytes > planned)
        srv_log(SRV_LOG_WARNING,
                "the vocabulary of structured output takes %lld MiB; the memory plan has %lld MiB",
                (long long)(bytes / MIB), (long long)(planned / MIB));
    return 0;
}

/* Everything from the files of the directory. Returns 0 or -1. */
static int load_files(struct loading *l)
{
    pthread_t text;
    bool in_parallel = pthread_create(&text, NULL, load_text, l) == 0;
    int rc = load_engine(l);
    if (in_parallel)
        pthread_join(text, NULL);
    else
        load_text(l);
    if (rc == 0 && l->text_failed) {
        snprintf(l->err, l->errlen, "%s", l->text_error);
        rc = -1;
    }
    if (rc == 0) check_vocabulary(l);
    if (rc == 0) find_markers(l);
    if (rc == 0) rc = make_grammars(l);
    l->model->defaults = srv_defaults_neutral();
    if (rc == 0 && l->p->config->generation_config)
        rc = srv_defaults_read(&l->model->defaults, l->p->dir, l->err, l->errlen);
    srv_defaults_override(&l->model->defaults, l->p->config);
    if (rc == 0 && copy_names(l)) {
        snprintf(l->err, l->errlen, "out of memory");
        rc = -1;
    }
    return rc;
}

int srv_model_open(struct srv_model **ret, const struct srv_model_params *params, char *err,
                   size_t errlen)
{
    struct srv_model *m = calloc(1, sizeof(*m));
    if (!m) {
        snprintf(err, errlen, "out of memory");
        return -1;
    }
    m->config = params->config;
    m->is_demo = params->is_demo;
    struct loading l = {.p = params, .model = m, .err = err, .errlen = errlen};
    if (load_files(&l)) {
        srv_model_close(m);
        return -1;
    }
    make_fingerprint(m);
    *ret = m;
    return 0;
}

void srv_model_close(struct srv_model *m)
{
    if (!m) return;
    assert(m->n_refs == 0);
    eng_close(m->engine);
    grammar_cache_destroy(m->grammars);
    tok_chat_close(m->chat);
    tok_close(m->tok);
    free((void *)m->names);
    free(m);
}

/* ---- the models that are alive -------------------------------------------------------------- */

int srv_models_init(struct srv_models *set)
{
    *set = (struct srv_models){.has_lock = false};
    set->has_lock = pthread_mutex_init(&set->lock, NULL) == 0;
    return set->has_lock ? 0 : -1;
}

void srv_models_finish(struct srv_models *set)
{
    srv_model_close(set->current);
    if (set->has_lock) pthread_mutex_destroy(&set->lock);
}

void srv_models_publish(struct srv_models *set, struct srv_model *model)
{
    model->set = set;
    model->created = (int64_t)time(NULL);
    pthread_mutex_lock(&set->lock);
    set->current = model;
    pthread_mutex_unlock(&set->lock);
}

struct srv_model *srv_models_take(struct srv_models *set)
{
    pthread_mutex_lock(&set->lock);
    struct srv_model *model = set->current;
    if (model) model->n_refs++;
    pthread_mutex_unlock(&set->lock);
    return model;
}

void srv_model_release(struct srv_model *model)
{
    if (!model) return;
    pthread_mutex_lock(&model->set->lock);
    assert(model->n_refs > 0);
    model->n_refs--;
    pthread_mutex_unlock(&model->set->lock);
}
