/* SPDX-License-Identifier: MIT */
/* The engine jobs of one request; see jobs.h. */
#include "server/api/run/jobs.h"

#include <assert.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "server/config/config.h"
#include "server/http/endpoint.h"

/* ---- errors -------------------------------------------------------------------------------- */

/* Returns true if the request's model was replaced and its time to drain is over. */
static bool is_unloaded(const struct srv_jobs *j)
{
    return atomic_load(&srv_facts(j->req)->model->unloaded);
}

static enum srv_error error_of_engine(const struct srv_jobs *j, int rc)
{
    switch (rc) {
    case ENG_EINVAL: return SRV_ERR_INVALID_VALUE;
    case ENG_EUNSUPPORTED: return SRV_ERR_UNSUPPORTED_TASK;
    case ENG_ECONTEXT: return SRV_ERR_CONTEXT;
    case ENG_EQUEUEFULL: return SRV_ERR_QUEUE_FULL;
    case ENG_ECLOSED: return is_unloaded(j) ? SRV_ERR_MODEL_UNLOADED : SRV_ERR_SHUTTING_DOWN;
    case ENG_ENOMEM: return SRV_ERR_OVERLOADED;
    default: return SRV_ERR_INTERNAL;
    }
}

const struct srv_job_failure *srv_jobs_failure(const struct srv_jobs *j, int finish,
                                               int64_t n_tokens)
{
    static const struct srv_job_failure unloaded = {
        SRV_ERR_MODEL_UNLOADED, "The model was replaced, and its time to finish is over."};
    static const struct srv_job_failure failures[] = {
        [ENG_FINISH_CANCELLED] = {SRV_ERR_SHUTTING_DOWN, "The server ended the request."},
        [ENG_FINISH_DEADLINE] = {SRV_ERR_DEADLINE,
                                 "The request's deadline passed before its first token."},
        [ENG_FINISH_QUEUE_TIMEOUT] = {SRV_ERR_QUEUE_TIMEOUT,
                                      "The request waited in the queue for too long."},
        [ENG_FINISH_NO_TOKEN] = {SRV_ERR_NO_TOKEN_LEFT,
                                 "logit_bias, allowed_token_ids and min_tokens leave no token that "
                                 "the grammar allows."},
        [ENG_FINISH_ERROR] = {SRV_ERR_INTERNAL,
                              "The model computed NaN or infinite values for this request."},
    };
    assert(finish >= 0 && finish < (int)(sizeof(failures) / sizeof(failures[0])));
    if (finish == ENG_FINISH_DEADLINE && n_tokens > 0) return NULL;
    if (finish == ENG_FINISH_CANCELLED && is_unloaded(j)) return &unloaded;
    return failures[finish].message ? &failures[finish] : NULL;
}

/* ---- submitting ---------------------------------------------------------------------------- */

/* A job waits from before it is submitted, then runs, until its last event. */
static void count_for_key(struct srv_job *job, enum eng_event_type type)
{
    struct srv_key_counts *key = srv_facts(job->owner->req)->account.key_counts;
    if (!key || (type != ENG_EVENT_STARTED && type != ENG_EVENT_JOB_DONE)) return;
    atomic_fetch_sub(job->started ? &key->running : &key->waiting, 1);
    if (type == ENG_EVENT_STARTED) atomic_fetch_add(&key->running, 1);
    job->started = true;
}

static void on_event(void *ctx, const struct eng_event *ev)
{
    struct srv_job *job = ctx;
    struct srv_jobs *j = job->owner;
    atomic_fetch_add_explicit(&j->n_inside, 1, memory_order_relaxed);
    count_for_key(job, ev->type);
    j->ops->event(j->ctx, (int)(job - j->jobs), ev);
    if (ev->type == ENG_EVENT_JOB_DONE)
        atomic_store_explicit(&job->done, true, memory_order_release);
    bool rests = ev->type == ENG_EVENT_TOKEN && j->is_whole && ev->index % 64; /* spares cores */
    if (!rests && ev->type != ENG_EVENT_PROMPT_TOKEN && ev->type != ENG_EVENT_POOLED &&
        ev->type != ENG_EVENT_LOGITS)
        srv_request_wake(j->req);
    /* Must be the last access: once every job is done and this is 0 the request may be freed. */
    atomic_fetch_sub_explicit(&j->n_inside, 1, memory_order_release);
}

uint64_t srv_jobs_deadline(const struct srv_facts *facts, int64_t ms)
{
    return ms > 0 ? facts->start_us + (uint64_t)ms * 1000 : 0;
}

/* All but the first job wait in half of the queue, so that large requests leave room for others. */
static int places_for_others(const struct srv_jobs *j, const struct eng_info *info)
{
    int half = info->max_queued_jobs / 2;
    if (j->n_submitted > 0 && j->n_running == 0) return ENG_BEFORE_OTHERS;
    return j->n_submitted > 0 && j->n_reserved < half ? half : j->n_reserved;
}

static int submit_next(struct srv_jobs *j, char *err, size_t errlen)
{
    int i = j->n_submitted;
    const struct srv_facts *facts = srv_facts(j->req);
    const struct srv_config *config = facts->app->config;
    bool spare = facts->account.spare;
    struct srv_job *job = &j->jobs[i];
    struct eng_job *handle = NULL;
    struct eng_job_params p = {
        .sampling = eng_sampling_default(),
        .n_choices = 1,
        .n_logprobs = -1,
        .n_prompt_logprobs = -1,
        .n_for_others = places_for_others(j, eng_info(facts->model->engine)),
        .spare = spare,
        .deadline_us = srv_jobs_deadline(facts, spare ? 0 : config->request_timeout_ms),
        /* The first job has the queue timeout of the request; the others have none. */
        .queue_deadline_us =
            srv_jobs_deadline(facts, i > 0 || spare ? 0 : config->queue_timeout_ms),
        .on_event = on_event,
        .ctx = job,
    };
    memcpy(p.tenant, facts->tenant, sizeof(p.tenant));
    memcpy(&p.fair_key, p.tenant, sizeof(p.fair_key));
    p.key_slots = facts->key_slots;
    memcpy(p.loras, facts->loras, sizeof(p.loras));
    p.n_loras = facts->n_loras;
    job->owner = j;
    if (j->ops->describe(j->ctx, i, &p))
        return fail_with(ENG_ENOMEM, err, errlen, "The server is out of memory for this request.");
    struct srv_key_counts *key = facts->account.key_counts;
    if (key) atomic_fetch_add(&key->waiting, 1);
    int rc = eng_job_submit(facts->model->engine, &p, &handle, err, errlen);
    if (rc && key) atomic_fetch_sub(&key->waiting, 1);
    if (rc) return rc;
    atomic_store(&job->handle, handle);
    j->n_submitted++;
    j->n_running++;
    /* on_gone may have run before the handle was set. */
    if (atomic_load(&j->gone)) eng_job_cancel(handle);
    return 0;
}

/* Submits jobs as earlier ones finish, so that one request does not fill the queue. If the queue is
 * full only the first job fails. */
static void submit(struct srv_jobs *j)
{
    char err[256] = "";
    int rc = 0, at_once = eng_info(srv_facts(j->req)->model->engine)->n_parallel,
        slots = srv_facts(j->req)->key_slots;
    if (slots && slots < at_once)
        at_once = slots; /* so one request does not fill the key's queue */
    while (!rc && j->n_submitted < j->n && j->n_running < at_once && !atomic_load(&j->gone))
        rc = submit_next(j, err, sizeof(err));
    if (!rc || (rc == ENG_EQUEUEFULL && j->n_running > 0)) return;
    j->ops->refuse(j->ctx, error_of_engine(j, rc), err);
    j->answered = true;
}

/* ---- the request's callbacks --------------------------------------------------------------- */

static void cancel(void *ctx)
{
    struct srv_jobs *j = ctx;
    for (int i = 0; i < j->n_max; i++) {
        struct eng_job *handle = atomic_load(&j->jobs[i].handle);
        if (handle) eng_job_cancel(handle);
    }
}

static void on_gone(void *ctx)
{
    struct srv_jobs *j = ctx;
    atomic_store(&j->gone, true);
    cancel(j);
    if (j->ops->hurry) j->ops->hurry(j->ctx);
}

static void on_free(void *ctx)
{
    struct srv_jobs *j = ctx;
    for (int i = 0; i < j->n_max; i++)
        eng_job_release(j->jobs[i].handle);
    j->ops->release(j->ctx);
}

static void reap(struct srv_jobs *j)
{
    for (int i = 0; i < j->n_submitted; i++) {
        struct srv_job *job = &j->jobs[i];
        if (job->reaped || !atomic_load_explicit(&job->done, memory_order_acquire)) continue;
        job->reaped = true;
        j->n_running--;
    }
    assert(j->n_running >= 0);
    j->finished = j->n_submitted == j->n && j->n_running == 0;
}

/* Ends the request if there is no more to write and nothing runs. */
static void settle(struct srv_jobs *j)
{
    if (!j->answered) return;
    if (j->n_running > 0) {
        cancel(j);
        return;
    }
    while (atomic_load_explicit(&j->n_inside, memory_order_acquire))
        sched_yield();
    srv_request_done(j->req);
}

/* Prepares, and submits the first jobs once that has ended. */
static void begin(struct srv_jobs *j)
{
    const struct srv_jobs_ops *ops = j->ops;
    struct eng *engine = srv_facts(j->req)->model->engine;
    j->turn_us = clock_now_us();
    j->state = ops->prepare && !atomic_load(&j->gone) ? ops->prepare(j->ctx) : JOBS_READY;
    if (j->state == JOBS_WAIT) {
        /* on_gone may have run before there was anything to hurry. */
        if (atomic_load(&j->gone)) ops->hurry(j->ctx);
        return;
    }
    if (j->state == JOBS_YIELD) {
        srv_request_yield(j->req);
        return;
    }
    if (j->state == JOBS_READY) {
        struct eng_stats stats;
        eng_stats(engine, &stats);
        j->n_reserved =
            srv_request_ask_place(j->req, eng_info(engine)->n_parallel, stats.n_waiting > 0);
        submit(j);
    }
    if (j->n_submitted == 0) j->answered = true; /* refused, or the client has disconnected */
}

enum srv_jobs_state srv_jobs_pause(struct srv_jobs *j)
{
    const struct srv_facts *facts = srv_facts(j->req);
    uint64_t now = clock_now_us(),
             deadline = srv_jobs_deadline(facts, facts->app->config->request_timeout_ms);
    if (atomic_load(&j->gone)) return JOBS_REFUSED;
    bool ends = srv_request_is_stopped(j->req) || is_unloaded(j);
    bool late = deadline > 0 && now >= deadline;
    if (!ends && !late) return now - j->turn_us < SRV_TEXTS_TURN_US ? JOBS_READY : JOBS_YIELD;
    const struct srv_job_failure *failure =
        srv_jobs_failure(j, ends ? ENG_FINISH_CANCELLED : ENG_FINISH_DEADLINE, 0);
    j->ops->refuse(j->ctx, failure->kind, failure->message);
    return JOBS_REFUSED;
}

void srv_jobs_go_on(struct srv_jobs *j)
{
    atomic_fetch_add_explicit(&j->n_inside, 1, memory_order_relaxed);
    atomic_store_explicit(&j->resumed, true, memory_order_release);
    srv_request_wake(j->req);
    atomic_fetch_sub_explicit(&j->n_inside, 1, memory_order_release); /* as in on_event */
}

static void on_wake(void *ctx)
{
    struct srv_jobs *j = ctx;
    if (j->state == JOBS_WAIT || j->state == JOBS_YIELD) {
        if (j->state == JOBS_YIELD || atomic_exchange(&j->resumed, false)) begin(j);
    } else {
        reap(j);
        if (!j->answered) j->answered = j->ops->advance(j->ctx);
        if (!j->answered) submit(j);
    }
    settle(j);
}

void srv_jobs_start(struct srv_jobs *j, struct srv_request *req, int n,
                    const struct srv_jobs_ops *ops, void *ctx)
{
    static const struct srv_callbacks callbacks = {on_wake, on_gone, on_free, cancel};
    assert(n > 0 && !j->req);
    j->req = req;
    j->ops = ops;
    j->ctx = ctx;
    j->jobs = srv_request_alloc(req, (size_t)n * sizeof(*j->jobs));
    if (j->jobs) j->n = j->n_max = n;
    if (srv_request_set_callbacks(req, &callbacks, j)) atomic_store(&j->gone, true);
    if (j->jobs) {
        begin(j);
    } else {
        ops->refuse(ctx, SRV_ERR_OVERLOADED, "The server is out of memory for this request.");
        j->answered = true;
    }
    settle(j);
}

void srv_jobs_stop_choice(struct srv_jobs *j, int i, int choice)
{
    assert(i >= 0 && i < j->n_submitted);
    eng_job_stop_choice(atomic_load(&j->jobs[i].handle), choice);
}
