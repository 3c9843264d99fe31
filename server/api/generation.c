/* SPDX-License-Identifier: MIT */
/*
 * The life of a generation: submit, events in, text out, end. See generation.h for the threads.
 *
 * What a choice's text is depends on its records alone, never on how wakes cut them: tokens are
 * decoded one by one, stop strings matched byte by byte, and everything after the token that ended
 * the choice is thrown away, however late the engine hears of it.
 */
#include "server/api/generation.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sha256.h"
#include "server/api/chat_input.h"
#include "server/config/config.h"
#include "tokenizer/tokenizer.h"

enum {
    PRIME_TOKENS = 8,
    TEXT_BYTES_MAX = 64 << 20,
    WHOLE_BYTES = 1 << 20, /* answers up to about this size are written at once */
    PIECE_BYTES_MAX = 16 << 20,
    CHOICE_BYTES =
        1024, /* of a choice besides its logs and text: this module's and the decoder's */
};

/* ---- logs: the engine thread writes, the text worker reads --------------------------------- */

/* Bytes of a log, each part rounded up so that the next one is aligned. */
static int64_t log_bytes(int64_t capacity, int64_t n_top)
{
    int64_t records = capacity * (int64_t)sizeof(struct gen_record);
    int64_t tops = n_top > 0 ? capacity * n_top * (int64_t)sizeof(struct eng_logprob) : 0;
    return (records + tops + 15) / 16 * 16;
}

/* Lays the log out in memory that begins at *at, and moves *at behind it; no capacity: no log. */
static void log_init(struct gen_log *log, int64_t capacity, int64_t n_top, char **at)
{
    if (!capacity) return;
    log->capacity = capacity;
    log->top_width = n_top > 0 ? (int)n_top : 0;
    log->records = (struct gen_record *)(void *)*at;
    if (log->top_width) log->tops = (struct eng_logprob *)(void *)(log->records + capacity);
    *at += log_bytes(capacity, n_top);
}

static void log_append(struct gen_log *log, const struct eng_event *ev)
{
    long long at = atomic_load_explicit(&log->n_written, memory_order_relaxed);
    if (at >= log->capacity) return;
    int n_top = ev->n_top < log->top_width ? ev->n_top : log->top_width;
    if (!ev->top) n_top = 0;
    log->records[at] = (struct gen_record){ev->id, ev->logprob, n_top};
    if (n_top > 0)
        memcpy(log->tops + at * log->top_width, ev->top, (size_t)n_top * sizeof(*ev->top));
    atomic_store_explicit(&log->n_written, at + 1, memory_order_release);
}

/* A step computes at least one token, so there is room for all. */
static void note_step(struct gen_prompt *p, const struct eng_event *ev)
{
    long long at = atomic_load_explicit(&p->n_steps, memory_order_relaxed);
    if (!p->steps || at >= p->n_ids) return;
    p->steps[at] = (struct gen_step){.n_done = (int32_t)ev->index,
                                     .n_cached = (int32_t)ev->usage->n_cached_tokens,
                                     .us = ev->now_us - ev->usage->started_us};
    atomic_store_explicit(&p->n_steps, at + 1, memory_order_release);
}

/* ---- engine thread ------------------------------------------------------------------------- */

/* What an event needs besides the prompt: a job's ctx. */
struct gen_link {
    struct srv_gen *g;
    struct gen_prompt *p;
};

static void on_event(void *ctx, const struct eng_event *ev)
{
    struct gen_link *link = ctx;
    struct srv_gen *g = link->g;
    struct gen_prompt *p = link->p;
    atomic_fetch_add_explicit(&g->n_inside, 1, memory_order_relaxed);
    switch (ev->type) {
    case ENG_EVENT_STARTED:
        p->first_usage = *ev->usage;
        atomic_store_explicit(&p->started, true, memory_order_release);
        break;
    case ENG_EVENT_PROMPT_TOKEN: log_append(&p->log, ev); break;
    case ENG_EVENT_TOKEN: log_append(&p->choices[ev->choice].log, ev); break;
    case ENG_EVENT_CHOICE_DONE:
        atomic_store_explicit(&p->choices[ev->choice].finish, (int)ev->finish,
                              memory_order_release);
        break;
    case ENG_EVENT_JOB_DONE:
        p->usage = *ev->usage;
        atomic_store_explicit(&p->done, true, memory_order_release);
        break;
    case ENG_EVENT_PROGRESS: note_step(p, ev); break;
    case ENG_EVENT_LOGITS:
    case ENG_EVENT_EMBEDDING: break;
    }
    if (ev->type != ENG_EVENT_PROMPT_TOKEN) srv_request_wake(g->req);
    /* The last touch: once every job is done and this is 0 the request may be freed. */
    atomic_fetch_sub_explicit(&g->n_inside, 1, memory_order_release);
}

/* ---- making one ---------------------------------------------------------------------------- */

struct srv_gen *srv_gen_create(struct srv_request *req, json_t *body,
                               const struct srv_gen_format *format)
{
    struct srv_gen *g = srv_request_alloc(req, sizeof(*g));
    if (!g) {
        json_decref(body);
        return NULL;
    }
    g->req = req;
    g->app = srv_request_app(req);
    g->format = format;
    g->body = body;
    g->created = (int64_t)time(NULL);
    g->n_progress_sent = -1;
    const struct srv_defaults *defaults = &g->app->defaults;
    g->params = (struct srv_gen_params){
        .temperature = defaults->temperature,
        .top_p = defaults->top_p,
        .min_p = defaults->min_p,
        .typical_p = defaults->typical_p,
        .repetition_penalty = defaults->repetition_penalty,
        .top_k = defaults->top_k,
        .n = 1,
        .seed = defaults->seed,
        .max_tokens = -1,
        .max_completion_tokens = -1,
        .n_predict = -2,
        .logprobs_count = -1,
        .prompt_logprobs = -1,
        .top_logprobs = -1,
        .add_generation_prompt = true,
        .add_special = true,
        .skip_special = true,
        .cache_prompt = true,
    };
    srv_request_account(req)->endpoint = format->endpoint;
    return g;
}

void srv_gen_set_prompt(struct srv_gen *g, int i, const int32_t *ids, int64_t n_ids)
{
    g->prompts[i].ids = ids;
    g->prompts[i].n_ids = n_ids;
}

int32_t *srv_gen_copy_ids(struct srv_gen *g, const int32_t *ids, size_t n)
{
    int32_t *copy = srv_request_alloc(g->req, (n ? n : 1) * sizeof(*copy));
    if (copy && n) memcpy(copy, ids, n * sizeof(*copy));
    return copy;
}

int srv_gen_chat_prompt(struct srv_gen *g, const struct chat_input *in, struct param_error *err)
{
    struct tok_ids ids = {0};
    int rc = chat_input_encode(g->app, in, &ids, err);
    g->prompts = srv_request_alloc(g->req, sizeof(*g->prompts));
    int32_t *copy = rc ? NULL : srv_gen_copy_ids(g, ids.ids, ids.n);
    size_t n = ids.n;
    tok_ids_finish(&ids);
    if (rc) return rc;
    if (!g->prompts || !copy)
        return param_fail(err, SRV_ERR_OVERLOADED, NULL, "There is no memory for the request.");
    g->n_prompts = 1;
    srv_gen_set_prompt(g, 0, copy, (int64_t)n);
    if (g->max_tokens < 0) g->max_tokens = eng_info(g->app->engine)->ctx_tokens;
    return 0;
}

static void free_choice(struct gen_choice *c)
{
    textout_finish(&c->text);
    tok_decoder_destroy(c->decoder);
}

/* on_free: nothing runs any more. */
static void gen_free(struct srv_request *req)
{
    struct srv_gen *g = srv_request_api_data(req);
    for (int i = 0; g->prompts && i < g->n_prompts; i++) {
        struct gen_prompt *p = &g->prompts[i];
        eng_job_release(p->job);
        for (int k = 0; p->choices && k < g->n_candidates; k++)
            free_choice(&p->choices[k]);
        free(p->memory);
    }
    textout_stops_finish(&g->stops);
    json_decref(g->body);
}

void srv_gen_refuse(struct srv_gen *g, const struct param_error *err)
{
    srv_reply_error(g->req, err->kind, err->path[0] ? err->path : NULL, "%s", err->message);
    json_decref(g->body);
    g->body = NULL;
}

/* ---- submitting ---------------------------------------------------------------------------- */

static int64_t token_capacity(const struct srv_gen *g, const struct gen_prompt *p)
{
    int64_t room = eng_info(g->app->engine)->ctx_tokens - p->n_ids + 1;
    return g->max_tokens < room ? g->max_tokens : room;
}

static int64_t prompt_log_capacity(const struct srv_gen *g, const struct gen_prompt *p)
{
    return g->params.prompt_logprobs >= 0 ? p->n_ids : 0;
}

static int64_t offsets_bytes(int64_t capacity)
{
    return (capacity * (int64_t)sizeof(uint32_t) + 15) / 16 * 16;
}

/* Returns true if the stream reports the steps of the prefill. */
static bool reports_progress(const struct srv_gen *g)
{
    return g->params.return_progress && g->params.stream && g->format->stream_progress;
}

static int64_t steps_bytes(const struct srv_gen *g, const struct gen_prompt *p)
{
    return reports_progress(g) ? p->n_ids * (int64_t)sizeof(struct gen_step) : 0;
}

/* What the choices of a prompt take. No overflow: prompts and contexts are far below 2^40 tokens. */
static int64_t prompt_bytes(const struct srv_gen *g, const struct gen_prompt *p)
{
    int64_t capacity = token_capacity(g, p);
    int64_t choice = log_bytes(capacity, g->params.logprobs_count) + offsets_bytes(capacity);
    return log_bytes(prompt_log_capacity(g, p), g->params.prompt_logprobs) + steps_bytes(g, p) +
           g->n_candidates * (choice + CHOICE_BYTES);
}

static long long mib(int64_t bytes)
{
    return (long long)((bytes + (1 << 20) - 1) >> 20);
}

/* All that the logs of the request can come to is charged before anything is computed. */
static int charge_logs(struct srv_gen *g, struct param_error *err)
{
    int64_t bytes = 0, used = 0, limit = eng_info(g->app->engine)->memory.answer_bytes;
    for (int i = 0; i < g->n_prompts; i++)
        bytes += prompt_bytes(g, &g->prompts[i]);
    if (bytes > limit)
        return param_fail(err, SRV_ERR_TOO_LARGE, NULL,
                          "The answer may take %lld MiB of memory (%d prompts, %d choices each, up "
                          "to %lld tokens a choice, %d log-probabilities a token), but this server "
                          "has %lld MiB for all answers.",
                          mib(bytes), g->n_prompts, g->n_candidates,
                          (long long)token_capacity(g, &g->prompts[0]),
                          (int)g->params.logprobs_count + 1, mib(limit));
    if (srv_request_charge(g->req, bytes, &used)) return 0;
    return param_fail(err, SRV_ERR_QUEUE_FULL, NULL,
                      "The answer may take %lld MiB of memory, but answers under way hold %lld of "
                      "the %lld MiB there are.",
                      mib(bytes), mib(used), mib(limit));
}

/* The decoder sees the prompt's last tokens first, so that a space mark in front of the answer
 * stays. */
static int prime_decoder(const struct srv_gen *g, const struct gen_prompt *p, struct gen_choice *c)
{
    int rc = tok_decoder_create(&c->decoder, g->app->tok, g->params.skip_special);
    int64_t from = p->n_ids > PRIME_TOKENS ? p->n_ids - PRIME_TOKENS : 0;
    const char *text;
    size_t len;
    for (int64_t i = from; !rc && i < p->n_ids; i++)
        rc = tok_decoder_push(c->decoder, p->ids[i], &text, &len);
    return rc;
}

static int prepare_choice(struct srv_gen *g, struct gen_prompt *p, int number, char **at)
{
    struct gen_choice *c = &p->choices[number];
    int64_t capacity = token_capacity(g, p);
    c->index = (int)(p - g->prompts) * g->n_choices + number;
    c->stop_id = -1;
    textout_init(&c->text, &g->stops, g->params.include_stop, TEXT_BYTES_MAX);
    log_init(&c->log, capacity, g->params.logprobs_count, at);
    c->offsets = (uint32_t *)(void *)*at;
    *at += offsets_bytes(capacity);
    return prime_decoder(g, p, c);
}

/* Zero pages from the system: of the logs only what is used becomes resident. */
static int prepare_prompt(struct srv_gen *g, struct gen_prompt *p)
{
    p->choices = srv_request_alloc(g->req, (size_t)g->n_candidates * sizeof(*p->choices));
    p->memory = calloc(1, (size_t)prompt_bytes(g, p));
    if (!p->choices || !p->memory) return -1;
    char *at = p->memory;
    log_init(&p->log, prompt_log_capacity(g, p), g->params.prompt_logprobs, &at);
    p->steps = reports_progress(g) ? (struct gen_step *)(void *)at : NULL;
    at += steps_bytes(g, p);
    for (int k = 0; k < g->n_candidates; k++)
        if (prepare_choice(g, p, k, &at)) return -1;
    return 0;
}

static uint64_t deadline_after(const struct srv_gen *g, int64_t ms)
{
    return ms > 0 ? srv_request_start_us(g->req) + (uint64_t)ms * 1000 : 0;
}

/* A salt makes a tenant of its own within the key's. */
static void set_tenant(const struct srv_gen *g, struct eng_job_params *jp)
{
    memcpy(jp->tenant, srv_request_tenant(g->req), sizeof(jp->tenant));
    memcpy(&jp->fair_key, jp->tenant, sizeof(jp->fair_key));
    const char *salt = g->params.cache_salt;
    if (!salt) return;
    struct sha256 digest;
    sha256_init(&digest);
    sha256_update(&digest, jp->tenant, sizeof(jp->tenant));
    sha256_update(&digest, salt, strlen(salt));
    sha256_final(&digest, jp->tenant);
}

static int submit_prompt(struct srv_gen *g, struct gen_prompt *p, char *err, size_t errlen)
{
    const struct srv_gen_params *gp = &g->params;
    const struct srv_config *config = g->app->config;
    struct gen_link *link = srv_request_alloc(g->req, sizeof(*link));
    if (!link || (!p->choices && prepare_prompt(g, p))) {
        snprintf(err, errlen, "There is no memory for the request.");
        return ENG_ENOMEM;
    }
    *link = (struct gen_link){g, p};
    int64_t total_ms = gp->deadline_ms > 0 ? gp->deadline_ms : config->request_timeout_ms;
    struct eng_job_params jp = {
        .prompt = p->ids,
        .n_prompt = p->n_ids,
        .n_choices = g->n_candidates,
        .max_tokens = g->max_tokens,
        .min_tokens = gp->min_tokens,
        .sampling = gp->sampling,
        .stop_ids = gp->stop_ids,
        .n_stop_ids = gp->n_stop_ids,
        .ignore_eos = gp->ignore_eos,
        .n_logprobs = (int)gp->logprobs_count,
        .n_prompt_logprobs = (int)gp->prompt_logprobs,
        .no_cache = !gp->cache_prompt,
        .want_progress = reports_progress(g),
        .priority = (int)gp->priority,
        .n_places_kept = g->n_places_kept,
        .goes_on = g->n_submitted > 0 && g->n_outstanding == 0,
        .deadline_us = deadline_after(g, total_ms),
        /* The first prompt waits for the request; once it is in, the others do not time out. */
        .queue_deadline_us = p == g->prompts ? deadline_after(g, config->queue_timeout_ms) : 0,
        .on_event = on_event,
        .ctx = link,
    };
    set_tenant(g, &jp);
    struct eng_job *job = NULL;
    p->submitted = true;
    int rc = eng_job_submit(g->app->engine, &jp, &job, err, errlen);
    if (rc) {
        p->submitted = false;
        return rc;
    }
    p->job = job;
    g->n_outstanding++;
    g->n_submitted++;
    /* on_gone may have looked before the handle was there. */
    if (atomic_load(&g->gone)) eng_job_cancel(job);
    return 0;
}

/* Prompts of an array go in as earlier ones finish, so that one request does not fill the queue. */
static int submit_more(struct srv_gen *g, char *err, size_t errlen)
{
    int at_once = eng_info(g->app->engine)->n_parallel;
    for (int i = g->n_submitted; i < g->n_prompts; i = g->n_submitted) {
        if (g->n_outstanding >= at_once || atomic_load(&g->gone)) return 0;
        int rc = submit_prompt(g, &g->prompts[i], err, errlen);
        if (rc == ENG_EQUEUEFULL && g->n_outstanding > 0) return 0;
        if (rc) return rc;
    }
    return 0;
}

static enum srv_error error_of_engine(int rc)
{
    switch (rc) {
    case ENG_EINVAL: return SRV_ERR_INVALID_VALUE;
    case ENG_ECONTEXT: return SRV_ERR_CONTEXT;
    case ENG_EQUEUEFULL: return SRV_ERR_QUEUE_FULL;
    case ENG_ECLOSED: return SRV_ERR_SHUTTING_DOWN;
    case ENG_ENOMEM: return SRV_ERR_OVERLOADED;
    default: return SRV_ERR_INTERNAL;
    }
}

/* ---- records to text ----------------------------------------------------------------------- */

static bool is_stop_id(const struct srv_gen *g, int32_t id)
{
    const struct eng_info *info = eng_info(g->app->engine);
    for (int i = 0; i < g->params.n_stop_ids; i++)
        if (g->params.stop_ids[i] == id) return true;
    for (int i = 0; !g->params.ignore_eos && i < info->n_eos_ids; i++)
        if (info->eos_ids[i] == id) return true;
    return false;
}

static void end_choice(struct gen_choice *c, const char *reason)
{
    c->ended = true;
    c->finish_reason = reason;
    textout_flush(&c->text);
    tok_decoder_destroy(c->decoder);
    c->decoder = NULL;
}

/* What the decoder still holds (half a character) becomes text. Returns true where that completes a
 * stop string. */
static bool flush_decoder(struct gen_choice *c, bool armed)
{
    const char *text = "";
    size_t len = 0;
    if (tok_decoder_flush(c->decoder, &text, &len)) return false;
    return textout_push(&c->text, text, len, armed);
}

static void take_record(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c, int64_t at)
{
    const struct gen_record *record = &c->log.records[at];
    bool armed = at >= g->params.min_tokens;
    c->offsets[at] = (uint32_t)c->text.text.len;
    c->n_tokens = at + 1;
    c->sum_logprob += record->logprob;
    /* Told from the id itself: the engine's own word on the end may come after the token. */
    bool is_stop = is_stop_id(g, record->id);
    if (is_stop) c->stop_id = record->id;
    if (is_stop && !g->params.include_stop) {
        bool cut = flush_decoder(c, armed);
        if (cut) c->stop_string = g->params.stops[c->text.stop_index];
        end_choice(c, "stop");
        return;
    }
    const char *text = "";
    size_t len = 0;
    if (tok_decoder_push(c->decoder, record->id, &text, &len)) return;
    bool stopped = textout_push(&c->text, text, len, armed);
    if (!stopped && !is_stop) return;
    if (stopped) {
        c->stop_string = g->params.stops[c->text.stop_index];
        eng_job_stop_choice(p->job, (int)(c - p->choices));
    }
    end_choice(c, "stop");
}

/* Reads what is new in a choice's log; decides its end when the engine has ended it. */
static void advance_choice(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    int finish = atomic_load_explicit(&c->finish, memory_order_acquire);
    int64_t n = atomic_load_explicit(&c->log.n_written, memory_order_acquire);
    for (; c->log.n_read < n; c->log.n_read++)
        if (!c->ended) take_record(g, p, c, c->log.n_read);
    /* A choice that was cancelled has no end of its own: check_failure says what became of it. */
    if (c->ended || !finish || finish == ENG_FINISH_CANCELLED) return;
    bool armed = c->n_tokens >= g->params.min_tokens;
    if (flush_decoder(c, armed)) {
        c->stop_string = g->params.stops[c->text.stop_index];
        end_choice(c, "stop");
        return;
    }
    end_choice(c, finish == ENG_FINISH_STOP ? "stop" : "length");
}

/* How many of the choice's tokens lie wholly in released text, or will never be longer. */
static int64_t showable_tokens(const struct gen_choice *c)
{
    int64_t n = c->n_shown;
    if (c->ended) {
        if (!c->stop_string) return c->n_tokens;
        while (n < c->n_tokens && c->offsets[n] < c->text.text.len)
            n++;
        return n;
    }
    while (n + 1 < c->n_tokens && c->offsets[n + 1] <= c->text.n_released)
        n++;
    if (n + 1 == c->n_tokens && c->text.text.len <= c->text.n_released) n++;
    return n;
}

/* Everything new in one event. */
static void stream_new(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    size_t to = c->text.n_released;
    int64_t token_to = showable_tokens(c);
    bool new_tokens =
        token_to > c->n_shown && (g->params.want_logprobs || g->params.return_token_ids);
    if (to > c->n_sent || new_tokens)
        g->format->stream_delta(g, p, c, c->n_sent, to, c->n_shown, token_to);
    c->n_sent = to;
    c->n_shown = token_to;
}

/*
 * Tokens whose events can go out. A last token without text may hold the first bytes of a character:
 * it waits for the next token or the end, which bring its text.
 */
static int64_t tokens_for_events(const struct gen_choice *c, int64_t n_showable)
{
    if (c->ended) return c->n_tokens;
    bool is_last = n_showable > 0 && n_showable == c->n_tokens;
    return is_last && c->offsets[n_showable - 1] == c->text.text.len ? n_showable - 1 : n_showable;
}

/*
 * Everything new in events of at most chunk_tokens tokens, each with the text of its tokens. Tokens
 * that a stop string has swallowed have events without text. Returns false if the client lags.
 */
static bool stream_by_tokens(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    int64_t n_showable = showable_tokens(c);
    int64_t end = tokens_for_events(c, n_showable);
    while (c->n_shown < end) {
        if (!srv_stream_has_room(g->req)) return false;
        int64_t from = c->n_shown;
        int64_t next = end - from > g->params.chunk_tokens ? from + g->params.chunk_tokens : end;
        size_t to = c->text.n_released;
        if (next < c->n_tokens && c->offsets[next] < to) to = c->offsets[next];
        g->format->stream_delta(g, p, c, c->n_sent, to, from < n_showable ? from : n_showable,
                                next < n_showable ? next : n_showable);
        c->n_sent = to;
        c->n_shown = next;
    }
    size_t rest = c->ended ? c->text.n_released : c->n_sent;
    if (rest > c->n_sent) g->format->stream_delta(g, p, c, c->n_sent, rest, c->n_shown, c->n_shown);
    c->n_sent = rest;
    return true;
}

static void stream_choice(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    if (g->params.chunk_tokens > 0) {
        if (!stream_by_tokens(g, p, c)) return;
    } else {
        stream_new(g, p, c);
    }
    if (c->ended && !c->closed) {
        g->format->stream_finish(g, p, c);
        c->closed = true;
    }
}

/* ---- the end ------------------------------------------------------------------------------- */

struct eng_usage srv_gen_usage(const struct gen_prompt *p)
{
    if (p->reaped) return p->usage;
    if (atomic_load_explicit(&p->started, memory_order_acquire)) return p->first_usage;
    return (struct eng_usage){0};
}

struct gen_totals srv_gen_totals(const struct srv_gen *g)
{
    struct gen_totals t = {0};
    for (int i = 0; i < g->n_prompts; i++) {
        const struct gen_prompt *p = &g->prompts[i];
        t.n_prompt += p->n_ids;
        t.n_cached += srv_gen_usage(p).n_cached_tokens;
        for (int k = 0; p->choices && k < g->n_candidates; k++)
            t.n_completion += p->choices[k].n_tokens;
    }
    return t;
}

static void account(struct srv_gen *g)
{
    struct srv_account *a = srv_request_account(g->req);
    struct gen_totals t = srv_gen_totals(g);
    struct eng_usage u = srv_gen_usage(&g->prompts[0]);
    a->model = g->model;
    a->n_prompt_tokens = t.n_prompt;
    a->n_cached_tokens = t.n_cached;
    a->n_generated_tokens = t.n_completion;
    a->n_choices = g->n_choices;
    a->max_tokens = token_capacity(g, &g->prompts[0]);
    a->queue_us = u.started_us ? (int64_t)(u.started_us - u.submitted_us) : -1;
    uint64_t start = srv_request_start_us(g->req);
    a->ttft_us = u.first_token_us > start ? (int64_t)(u.first_token_us - start) : -1;
    const struct gen_choice *c = g->prompts[0].choices;
    if (c && c->finish_reason) a->finish_reason = c->finish_reason;
}

static void cancel_jobs(struct srv_gen *g)
{
    for (int i = 0; i < g->n_prompts; i++) {
        struct eng_job *job = g->prompts[i].job;
        if (job) eng_job_cancel(job);
    }
}

static void fail(struct srv_gen *g, enum srv_error kind, const char *message)
{
    if (g->answered) return;
    g->answered = true;
    srv_request_account(g->req)->finish_reason = "error";
    if (g->streaming) {
        g->format->stream_error(g, kind, message);
        srv_stream_close(g->req);
    } else {
        srv_reply_error(g->req, kind, NULL, "%s", message);
    }
    cancel_jobs(g);
}

/* About how long the answer will be: log-probabilities are by far the largest part. */
static int64_t estimate_answer(const struct srv_gen *g)
{
    enum { ENTRY_BYTES = 64 };
    int64_t bytes = 0;
    for (int i = 0; i < g->n_prompts; i++) {
        const struct gen_prompt *p = &g->prompts[i];
        int64_t n_shown = g->params.echo ? g->n_candidates : 1;
        bytes += p->log.capacity * (1 + p->log.top_width) * ENTRY_BYTES * n_shown;
        for (int k = 0; k < g->n_candidates; k++) {
            const struct gen_choice *c = &p->choices[k];
            bytes += (int64_t)c->text.text.len + c->n_tokens * (1 + c->log.top_width) * ENTRY_BYTES;
        }
    }
    return bytes;
}

static void write_at_once(struct srv_gen *g)
{
    struct buf body;
    buf_init(&body, 256u << 20);
    while (!g->format->whole(g, &g->cursor, &body) && !body.failed)
        ;
    srv_reply(g->req, 200, NULL, &body);
}

/* Returns false while the client is behind. */
static bool write_pieces(struct srv_gen *g)
{
    bool last = false, failed = false;
    if (!g->in_pieces) srv_reply_in_pieces(g->req);
    g->in_pieces = true;
    while (!last && !failed) {
        if (!srv_stream_has_room(g->req)) return false;
        struct buf piece;
        buf_init(&piece, PIECE_BYTES_MAX);
        last = g->format->whole(g, &g->cursor, &piece);
        failed = piece.failed;
        if (!failed && !srv_stream_write(g->req, piece.data, piece.len)) last = true;
        buf_finish(&piece);
    }
    if (failed)
        srv_stream_abort(g->req);
    else
        srv_stream_close(g->req);
    return true;
}

/* Everything is there. Returns false while the client is behind: on_wake comes again. */
static bool succeed(struct srv_gen *g)
{
    if (!g->in_pieces) account(g);
    if (g->streaming) {
        g->format->stream_end(g);
        srv_stream_close(g->req);
    } else if (!g->in_pieces && estimate_answer(g) <= WHOLE_BYTES) {
        write_at_once(g);
    } else if (!write_pieces(g)) {
        return false;
    }
    g->answered = true;
    return true;
}

/* Ends of the engine that are no answer. Returns true where the request has failed by one. */
static bool check_failure(struct srv_gen *g, const struct gen_choice *c)
{
    switch (atomic_load_explicit(&c->finish, memory_order_acquire)) {
    case ENG_FINISH_QUEUE_TIMEOUT:
        fail(g, SRV_ERR_QUEUE_TIMEOUT, "The request waited in the queue for too long.");
        return true;
    case ENG_FINISH_DEADLINE:
        if (c->log.n_written > 0) return false;
        fail(g, SRV_ERR_DEADLINE, "The request's deadline passed before its first token.");
        return true;
    case ENG_FINISH_ERROR:
        fail(g, SRV_ERR_INTERNAL, "The model gave no usable numbers for this request.");
        return true;
    case ENG_FINISH_CANCELLED:
        if (c->ended) return false;
        fail(g, SRV_ERR_SHUTTING_DOWN, "The server ended the request.");
        return true;
    default: return false;
    }
}

static void open_stream(struct srv_gen *g)
{
    bool ready = false;
    for (int i = 0; i < g->n_submitted && !ready; i++) {
        struct gen_prompt *p = &g->prompts[i];
        bool has_token = false;
        for (int k = 0; k < g->n_candidates; k++)
            has_token |= atomic_load(&p->choices[k].log.n_written) > 0;
        /* With a deadline of its own the status must stay open until the first token. */
        ready = atomic_load(&p->done) || has_token ||
                (g->params.deadline_ms <= 0 && atomic_load(&p->started));
    }
    if (!ready) return;
    g->streaming = true;
    srv_stream_open(g->req);
    g->format->stream_begin(g);
}

/* Counts finished jobs; true once nothing is left to wait for. */
static bool reap(struct srv_gen *g)
{
    for (int i = 0; i < g->n_prompts; i++) {
        struct gen_prompt *p = &g->prompts[i];
        if (!p->submitted || p->reaped || !atomic_load_explicit(&p->done, memory_order_acquire))
            continue;
        p->reaped = true;
        g->n_outstanding--;
    }
    return g->n_outstanding == 0;
}

static void send_progress(struct srv_gen *g, struct gen_prompt *p, struct gen_step step)
{
    struct gen_progress t = {.us = step.us};
    p->reported = step;
    for (int i = 0; i < g->n_prompts; i++) {
        t.n_total += g->prompts[i].n_ids;
        t.n_done += g->prompts[i].reported.n_done;
        t.n_cached += g->prompts[i].reported.n_cached;
    }
    if (t.n_done <= g->n_progress_sent) return; /* a later prompt's start, nothing of it cached */
    g->n_progress_sent = t.n_done;
    g->format->stream_progress(g, &t);
}

/* The text grows with what is generated, so it is charged as it does. */
static void charge_text(struct srv_gen *g, struct gen_choice *c)
{
    int64_t grown = (int64_t)c->text.text.cap - c->text_charged, used = 0;
    if (c->text.text.failed)
        fail(g, SRV_ERR_OVERLOADED, "There is no memory for the answer.");
    else if (grown > 0 && !srv_request_charge(g->req, grown, &used))
        fail(g, SRV_ERR_OVERLOADED, "The memory for all answers is spent.");
    else
        c->text_charged += grown;
}

/* Reports the cached tokens, then every step of the prefill. Returns false if the client lags. */
static bool stream_progress(struct srv_gen *g, struct gen_prompt *p)
{
    if (!atomic_load_explicit(&p->started, memory_order_acquire)) return true;
    int64_t n = atomic_load_explicit(&p->n_steps, memory_order_acquire);
    if (!p->start_reported) {
        if (!srv_stream_has_room(g->req)) return false;
        int32_t n_cached = (int32_t)p->first_usage.n_cached_tokens;
        p->start_reported = true;
        send_progress(g, p, (struct gen_step){n_cached, n_cached, 0});
    }
    for (; p->n_steps_reported < n; p->n_steps_reported++) {
        if (!srv_stream_has_room(g->req)) return false;
        send_progress(g, p, p->steps[p->n_steps_reported]);
    }
    return true;
}

static void advance_prompt(struct srv_gen *g, struct gen_prompt *p)
{
    /* The prefill is reported before the text that follows from it. */
    bool ready = g->streaming && (!reports_progress(g) || stream_progress(g, p));
    for (int k = 0; k < g->n_candidates && !g->answered; k++) {
        struct gen_choice *c = &p->choices[k];
        advance_choice(g, p, c);
        charge_text(g, c);
        if (check_failure(g, c)) return;
        /* While the client is behind, text gathers; it goes out in larger events later. */
        if (ready && srv_stream_has_room(g->req)) stream_choice(g, p, c);
    }
}

/* False while the client is behind: on_wake comes again when it has caught up. */
static bool all_sent(const struct srv_gen *g)
{
    for (int i = 0; i < g->n_prompts; i++) {
        const struct gen_choice *choices = g->prompts[i].choices;
        for (int k = 0; k < g->n_candidates; k++)
            if (!choices || !choices[k].closed) return false;
    }
    return true;
}

/* on_wake: on a text worker, never twice at once. */
static void gen_wake(struct srv_request *req)
{
    struct srv_gen *g = srv_request_api_data(req);
    char err[256] = "";
    bool idle = reap(g);
    if (atomic_load(&g->gone)) {
        if (!g->answered) account(g);
        g->answered = true;
        cancel_jobs(g);
    }
    if (!g->answered && g->params.stream && !g->streaming) open_stream(g);
    for (int i = 0; i < g->n_submitted && !g->answered; i++)
        advance_prompt(g, &g->prompts[i]);
    if (!g->answered && g->n_submitted < g->n_prompts) {
        int rc = submit_more(g, err, sizeof(err));
        if (rc) fail(g, error_of_engine(rc), err);
        idle = g->n_outstanding == 0;
    }
    if (!idle || (!g->answered && g->streaming && !all_sent(g))) return;
    if (!g->answered && !succeed(g)) return;
    while (atomic_load_explicit(&g->n_inside, memory_order_acquire))
        sched_yield();
    srv_request_done(req);
}

static void gen_gone(struct srv_request *req)
{
    struct srv_gen *g = srv_request_api_data(req);
    atomic_store(&g->gone, true);
    cancel_jobs(g);
}

static void gen_stop(struct srv_request *req)
{
    cancel_jobs(srv_request_api_data(req));
}

/* ---- start --------------------------------------------------------------------------------- */

static int check_lengths(struct srv_gen *g, struct param_error *err)
{
    int64_t ctx = eng_info(g->app->engine)->ctx_tokens;
    for (int i = 0; i < g->n_prompts; i++) {
        int64_t n = g->prompts[i].n_ids;
        if (n < 1)
            return param_fail(err, SRV_ERR_INVALID_VALUE, g->format->input,
                              "The prompt has no tokens.");
        if (n > ctx)
            return param_fail(err, SRV_ERR_CONTEXT, g->format->input,
                              "This model's maximum context length is %lld tokens. However, your "
                              "prompt has %lld tokens, so the request exceeds the available "
                              "context size (%lld tokens).",
                              (long long)ctx, (long long)n, (long long)ctx);
    }
    return 0;
}

/* The context error carries its numbers as members too; clients read them. */
static void refuse_context(struct srv_gen *g, const struct param_error *err)
{
    int64_t ctx = eng_info(g->app->engine)->ctx_tokens, longest = 0;
    for (int i = 0; i < g->n_prompts; i++)
        if (g->prompts[i].n_ids > longest) longest = g->prompts[i].n_ids;
    char extra[160];
    snprintf(extra, sizeof(extra), ",\"n_prompt_tokens\":%lld,\"n_ctx\":%lld,\"max_tokens\":%lld",
             (long long)longest, (long long)ctx, (long long)g->max_tokens);
    struct buf b;
    buf_init(&b, 4096);
    srv_error_write_for(g->req, &b, err->kind, err->path, err->message, extra);
    srv_reply(g->req, srv_error_status(err->kind), NULL, &b);
    json_decref(g->body);
    g->body = NULL;
}

/* Everything that can be refused with a status has been; now memory and the queue. */
static int start_jobs(struct srv_gen *g, struct param_error *err)
{
    if (textout_stops_init(&g->stops, g->params.stops, g->params.stop_lens, g->params.n_stops))
        return param_fail(err, SRV_ERR_OVERLOADED, NULL, "There is no memory for the request.");
    if (charge_logs(g, err)) return -1;
    char text[256] = "";
    g->n_places_kept = srv_request_ask_place(g->req, eng_info(g->app->engine)->n_parallel);
    int rc = submit_more(g, text, sizeof(text));
    if (rc && g->n_outstanding == 0) return param_fail(err, error_of_engine(rc), NULL, "%s", text);
    return 0;
}

void srv_gen_start(struct srv_gen *g)
{
    static const struct srv_callbacks callbacks = {gen_wake, gen_gone, gen_free, gen_stop};
    struct param_error err = {0};
    if (check_lengths(g, &err)) {
        if (err.kind == SRV_ERR_CONTEXT)
            refuse_context(g, &err);
        else
            srv_gen_refuse(g, &err);
        return;
    }
    /* From here on the callbacks own the body and all memory. */
    srv_request_set_callbacks(g->req, &callbacks, g);
    if (srv_request_is_gone(g->req)) atomic_store(&g->gone, true);
    if (start_jobs(g, &err)) {
        g->answered = true;
        srv_reply_error(g->req, err.kind, err.path[0] ? err.path : NULL, "%s", err.message);
        srv_request_done(g->req);
    } else if (g->n_submitted == 0) {
        srv_request_done(g->req); /* the client left before there was anything to call back */
    }
}
