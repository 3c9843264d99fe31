/* SPDX-License-Identifier: MIT */
/*
 * A model in this process; see local_model.h. The engine's callback puts ids into an array sized
 * for all of them; the caller's thread turns them into text.
 */
#include "server/cli/local_model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/shown.h"
#include "base/thread.h"
#include "server/config/config.h"
#include "server/models/draft_ids.h"
#include "server/models/engine_params.h"
#include "server/models/generation_config.h"
#include "server/grammars/cache.h"
#include "server/models/token_facts.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

enum {
    MAX_GRAMMAR_BYTES = 1 << 20, /* the compiler's own limits are lower */
    LOOK_MS = 20,                /* how often the stop flag is looked at */
};

struct run {
    struct local_model *model;
    const struct local_job *job;
    pthread_mutex_t lock; /* guards what the callback writes */
    pthread_cond_t changed;
    int32_t *ids; /* [max_tokens] */
    int64_t n_ids, n_read, n_prompt;
    struct local_result result;
    char failure[256];
    bool done;
};

static int fail(char *err, size_t errlen, const char *what)
{
    snprintf(err, errlen, "%s", what);
    return -1;
}

/* ---- opening ------------------------------------------------------------------------------- */

int local_open_text(struct local_model *m, const struct srv_config *config, bool with_chat,
                    char *err, size_t errlen)
{
    const struct tok_chat_params params = {.template_file = config->chat_template_file};
    if (tok_open(&m->tok, config->model, err, errlen)) return -1;
    if (tok_decoder_create(&m->decoder, m->tok, true)) return fail(err, errlen, "no memory");
    return with_chat && tok_chat_open(&m->chat, config->model, &params, err, errlen) ? -1 : 0;
}

/* The text of the constraint, owned; NULL: none was asked for. */
static int read_constraint(const struct srv_config *c, enum gram_kind *ret_kind, char **ret_text,
                           size_t *ret_len, char *err, size_t errlen)
{
    const char *file = c->json_schema ? c->json_schema : c->grammar;
    if (!!c->json_schema + !!c->regex + !!c->grammar > 1)
        return fail(err, errlen,
                    "at most one of --json-schema, --regex and --grammar may be given");
    *ret_kind = c->json_schema ? GRAM_SCHEMA : c->regex ? GRAM_REGEX : GRAM_GBNF;
    if (file) return file_load(NULL, file, MAX_GRAMMAR_BYTES, ret_text, ret_len, err, errlen);
    if (!c->regex) return 0;
    *ret_text = strdup(c->regex);
    *ret_len = strlen(c->regex);
    return *ret_text ? 0 : fail(err, errlen, "no memory");
}

static int compile_constraint(struct local_model *m, enum gram_kind kind, const char *text,
                              size_t len, const struct srv_config *config, char *err, size_t errlen)
{
    const struct eng_info *info = eng_info(m->engine);
    const struct gram_options options = {.strict = false};
    struct grammar_source source;
    struct grammar_result made;
    const struct grammar_cache_params params = {.tok = m->tok,
                                                .n_ids = info->vocab_size,
                                                .end_ids = info->eos_ids,
                                                .n_end_ids = (size_t)info->n_eos_ids,
                                                .open_objects =
                                                    !strcmp(config->schema_objects, "open")};
    if (grammar_cache_create(&m->grammars, &params))
        return fail(err, errlen, "the tokens of this model spell no single bytes");
    grammar_source_text(&source, kind, text, len, &options);
    grammar_cache_compile(m->grammars, &source, 0, NULL, NULL, &made);
    if (!made.gram) return fail(err, errlen, made.error.message);
    m->gram = made.gram;
    for (size_t i = 0; i < gram_n_relaxed(m->gram); i++)
        shown_line(stderr, "hearth: %s is only approximated", gram_relaxed(m->gram, i));
    m->state = aligned_alloc(64, grammar_guide_bytes());
    if (!m->state) return fail(err, errlen, "no memory");
    m->rules = (struct grammar_rules){.info = info, .tok = m->tok};
    m->choice.rules = &m->rules;
    return 0;
}

int local_open_engine(struct local_model *m, const struct srv_config *config, char *err,
                      size_t errlen)
{
    const struct eng_params params = srv_engine_params(config);
    enum gram_kind kind;
    char *text = NULL;
    size_t len = 0;
    if (eng_open(&m->engine, &params, err, errlen)) return -1;
    if (tok_chat_info_read(&text, config->model, err, errlen)) return -1;
    eng_add_end_id(m->engine, srv_tokenizer_eos(m->tok, text));
    free(text);
    text = NULL;
    if (srv_draft_ids(&m->draft_ids, m->engine, m->tok, config->draft_model, err, errlen))
        return -1;
    eng_load_drafts(m->engine, m->draft_ids);
    if (m->draft_ids) eng_await_drafts(m->engine);
    int rc = read_constraint(config, &kind, &text, &len, err, errlen);
    if (!rc && text) rc = compile_constraint(m, kind, text, len, config, err, errlen);
    free(text);
    return rc;
}

void local_finish(struct local_model *m)
{
    eng_close(m->engine);
    free(m->draft_ids);
    if (m->gram) grammar_cache_put(m->grammars, m->gram);
    grammar_cache_destroy(m->grammars);
    free(m->state);
    tok_decoder_destroy(m->decoder);
    tok_chat_close(m->chat);
    tok_close(m->tok);
    *m = (struct local_model){0};
}

int local_encode_chat(const struct local_model *m, const char *messages, struct tok_ids *ids,
                      char *err, size_t errlen)
{
    const struct tok_chat_input input = {.messages = messages, .add_generation_prompt = true};
    struct tok_prompt prompt = {0};
    int rc = tok_chat_render(m->chat, &input, &prompt, err, errlen);
    if (!rc)
        rc = tok_encode_marked(m->tok, prompt.text, prompt.len, prompt.input, prompt.n_input,
                               TOK_PARSE_SPECIAL, ids, err, errlen);
    tok_prompt_finish(&prompt);
    return rc;
}

int local_sampling(const struct srv_config *config, double temperature, struct eng_sampling *ret,
                   char *err, size_t errlen)
{
    struct srv_defaults d = srv_defaults_neutral();
    if (!config->generation_config)
        d.sampling.temperature = temperature;
    else if (srv_defaults_read(&d, config->model, err, errlen))
        return -1;
    srv_defaults_override(&d, config);
    *ret = eng_sampling_default();
    srv_sampling_set(ret, &d.sampling);
    ret->seed = d.seed < 0 ? 0 : (uint64_t)d.seed;
    return 0;
}

/* ---- on the scheduler's thread ------------------------------------------------------------- */

static void take_event(struct run *r, const struct eng_event *e)
{
    switch (e->type) {
    case ENG_EVENT_TOKEN: r->ids[r->n_ids++] = e->id; break;
    case ENG_EVENT_PROGRESS: r->n_read = e->index; break;
    case ENG_EVENT_CHOICE_DONE:
        r->result.finish = e->finish;
        if (e->error) snprintf(r->failure, sizeof(r->failure), "%s", e->error);
        break;
    case ENG_EVENT_JOB_DONE:
        r->result.usage = *e->usage;
        r->done = true;
        break;
    default: break;
    }
}

static void on_event(void *ctx, const struct eng_event *e)
{
    struct run *r = ctx;
    pthread_mutex_lock(&r->lock);
    take_event(r, e);
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* ---- one answer ---------------------------------------------------------------------------- */

/* Hands over the text of ids [from, to), which the callback has left behind. */
static bool give_text(struct run *r, int64_t from, int64_t to)
{
    const char *text;
    size_t len;
    for (int64_t i = from; i < to; i++) {
        if (tok_decoder_push(r->model->decoder, r->ids[i], &text, &len)) return false;
        if (len && !r->job->on_text(r->job->ctx, text, len)) return false;
    }
    return true;
}

static bool give_rest(struct run *r)
{
    const char *text;
    size_t len;
    if (tok_decoder_flush(r->model->decoder, &text, &len)) return false;
    return !len || r->job->on_text(r->job->ctx, text, len);
}

/* Waits for an event or, if there is a stop flag, until it is time to look at it. */
static void wait_for_event(struct run *r)
{
    if (!r->job->stop) {
        pthread_cond_wait(&r->changed, &r->lock);
        return;
    }
    struct timespec until = clock_after_ms(LOOK_MS);
    pthread_cond_timedwait(&r->changed, &r->lock, &until);
}

/* Follows the job to its end. */
static int follow(struct run *r, struct eng_job *job, char *err, size_t errlen)
{
    const struct local_job *j = r->job;
    int64_t n_given = 0, n_read_shown = 0;
    bool good = true, done = false;
    while (!done) {
        pthread_mutex_lock(&r->lock);
        if (r->n_ids == n_given && !r->done) wait_for_event(r);
        int64_t n = r->n_ids, n_read = r->n_read;
        done = r->done;
        pthread_mutex_unlock(&r->lock);
        if (j->on_progress && n == 0 && n_read > n_read_shown)
            j->on_progress(j->ctx, n_read_shown = n_read, r->n_prompt);
        if (good) good = give_text(r, n_given, n);
        if (!good || (j->stop && atomic_load(j->stop))) eng_job_cancel(job);
        n_given = n;
    }
    if (good) good = give_rest(r);
    if (!good) return fail(err, errlen, "the text cannot be written");
    return r->result.finish == ENG_FINISH_ERROR ? fail(err, errlen, r->failure) : 0;
}

static int run_job(struct run *r, char *err, size_t errlen)
{
    struct local_model *m = r->model;
    struct eng_guide guide = {0};
    const struct eng_job_params p = {
        .prompt = r->job->prompt->ids,
        .n_prompt = (int64_t)r->job->prompt->n,
        .n_choices = 1,
        .max_tokens = r->job->max_tokens,
        .sampling = *r->job->sampling,
        .guides = m->gram ? &guide : NULL,
        .n_logprobs = -1,
        .n_prompt_logprobs = -1,
        .want_progress = r->job->on_progress != NULL,
        .on_event = on_event,
        .ctx = r,
    };
    struct eng_job *job;
    if (m->gram) guide = grammar_guide_begin(&m->choice, m->state, m->gram, NULL);
    tok_decoder_reset(m->decoder);
    if (eng_job_submit(m->engine, &p, &job, err, errlen)) return -1;
    int rc = follow(r, job, err, errlen);
    eng_job_release(job);
    return rc;
}

int local_run(struct local_model *m, const struct local_job *job, struct local_result *ret,
              char *err, size_t errlen)
{
    struct run r = {.model = m, .job = job, .n_prompt = (int64_t)job->prompt->n};
    int64_t ctx = eng_info(m->engine)->ctx_tokens;
    r.ids = calloc((size_t)(job->max_tokens < ctx ? job->max_tokens : ctx) + 1, sizeof(*r.ids));
    if (!r.ids) return fail(err, errlen, "no memory");
    pthread_mutex_init(&r.lock, NULL);
    thread_cond_init(&r.changed);
    int rc = run_job(&r, err, errlen);
    if (!rc) *ret = r.result;
    pthread_cond_destroy(&r.changed);
    pthread_mutex_destroy(&r.lock);
    free(r.ids);
    return rc;
}
