/* SPDX-License-Identifier: MIT */
/*
 * The jobs of a request against an engine, a request and a clock that are played here, so that every order of
 * submit, event, disconnect and wake can be played. Linked with --wrap=clock_gettime.
 */
#include "test.h"

#include "server/api/run/jobs.h"
#include "server/config/config.h"
#include "server/http/endpoint.h"

enum { MAX_JOBS = 8, N_PARALLEL = 2 };

struct eng_job {
    struct eng_job_params p;
    bool cancelled, released;
    int stopped_choice;
};

/* The request: one at a time. */
struct srv_request {
    struct srv_facts facts;
    struct srv_callbacks callbacks;
    void *api_data;
    bool gone, no_memory, stopped;
    int n_wakes, n_done, n_yields;
    _Alignas(16) char memory[4096];
};

static struct {
    struct srv_app app;
    struct srv_model model;
    struct srv_config config;
    struct eng_info info;
    struct srv_request req;
    struct eng_job jobs[MAX_JOBS];
    int n_jobs;
    int refuse_with[MAX_JOBS]; /* what submit returns for the i-th call; 0: it takes the job */
    int n_submits;
    void (*inside_submit)(struct eng_job *job); /* called before submit returns */
    /* the endpoint */
    uint64_t now_us;
    bool describe_fails, answered;
    enum srv_jobs_state prepares[2]; /* what prepare returns for the i-th call */
    int n_prepared, n_hurried;
    void (*inside_prepare)(void); /* called before prepare returns */
    int n_described, n_failed, n_released, n_advanced;
    int events[MAX_JOBS];
    enum srv_error kind;
    char message[256];
} w;

static struct srv_jobs jobs;

/* ---- the played request -------------------------------------------------------------------- */

void *srv_request_alloc(struct srv_request *req, size_t bytes)
{
    REQUIRE(bytes <= sizeof(req->memory));
    return req->no_memory ? NULL : req->memory;
}

bool srv_request_set_callbacks(struct srv_request *req, const struct srv_callbacks *callbacks,
                               void *api_data)
{
    req->callbacks = *callbacks;
    req->api_data = api_data;
    return req->gone;
}

int srv_request_ask_place(struct srv_request *req, int n_slots, bool busy)
{
    (void)req;
    REQUIRE_EQ_INT(n_slots, N_PARALLEL);
    REQUIRE(busy);
    return 3;
}

void srv_request_wake(struct srv_request *req)
{
    req->n_wakes++;
}

void srv_request_yield(struct srv_request *req)
{
    req->n_yields++;
}

bool srv_request_is_stopped(struct srv_request *req)
{
    return req->stopped;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    *t = (struct timespec){(time_t)(w.now_us / 1000000), (long)(w.now_us % 1000000) * 1000};
    return 0;
}

void srv_request_done(struct srv_request *req)
{
    REQUIRE_EQ_INT(atomic_load(&jobs.n_inside), 0);
    req->n_done++;
}

/* ---- the played engine --------------------------------------------------------------------- */

void eng_stats(struct eng *e, struct eng_stats *ret_stats)
{
    (void)e;
    *ret_stats = (struct eng_stats){.n_waiting = 1};
}

const struct eng_info *eng_info(const struct eng *e)
{
    (void)e;
    return &w.info;
}

struct eng_sampling eng_sampling_default(void)
{
    return (struct eng_sampling){.temperature = 1};
}

int eng_job_submit(struct eng *e, const struct eng_job_params *params, struct eng_job **ret,
                   char *err, size_t errlen)
{
    (void)e;
    int rc = w.refuse_with[w.n_submits++];
    if (rc) {
        snprintf(err, errlen, "refused with %d", rc);
        return rc;
    }
    struct eng_job *job = &w.jobs[w.n_jobs++];
    job->p = *params;
    job->stopped_choice = -1;
    *ret = job;
    if (w.inside_submit) w.inside_submit(job);
    return 0;
}

void eng_job_cancel(struct eng_job *job)
{
    job->cancelled = true;
}

void eng_job_stop_choice(struct eng_job *job, int choice)
{
    job->stopped_choice = choice;
}

void eng_job_release(struct eng_job *job)
{
    if (job) job->released = true;
}

static void emit(struct eng_job *job, enum eng_event_type type)
{
    struct eng_event ev = {.type = type};
    job->p.on_event(job->p.ctx, &ev);
}

static void leave(struct eng_job *job)
{
    (void)job;
    w.req.gone = true;
    w.req.callbacks.on_gone(w.req.api_data);
}

static void run_at_once(struct eng_job *job)
{
    emit(job, ENG_EVENT_STARTED);
    emit(job, ENG_EVENT_CHOICE_DONE);
    emit(job, ENG_EVENT_JOB_DONE);
}

/* ---- the played endpoint ------------------------------------------------------------------- */

static int describe(void *ctx, int i, struct eng_job_params *p)
{
    REQUIRE(ctx == &w);
    w.n_described++;
    p->max_tokens = 100 + i;
    return w.describe_fails ? -1 : 0;
}

static void event(void *ctx, int i, const struct eng_event *ev)
{
    REQUIRE(ctx == &w && ev);
    REQUIRE_EQ_INT(atomic_load(&jobs.n_inside), 1);
    w.events[i]++;
}

static bool advance(void *ctx)
{
    REQUIRE(ctx == &w);
    w.n_advanced++;
    w.answered = atomic_load(&jobs.gone) || jobs.finished;
    return w.answered;
}

static void fail_request(void *ctx, enum srv_error kind, const char *message)
{
    REQUIRE(ctx == &w && !w.answered);
    w.n_failed++;
    w.kind = kind;
    snprintf(w.message, sizeof(w.message), "%s", message);
}

static void release(void *ctx)
{
    REQUIRE(ctx == &w);
    w.n_released++;
}

static enum srv_jobs_state prepare(void *ctx)
{
    REQUIRE(ctx == &w && w.n_described == 0);
    if (w.inside_prepare) w.inside_prepare();
    return w.prepares[w.n_prepared++];
}

static void hurry(void *ctx)
{
    REQUIRE(ctx == &w);
    w.n_hurried++;
}

static int set_up(void **state)
{
    (void)state;
    memset(&w, 0, sizeof(w));
    memset(&jobs, 0, sizeof(jobs));
    w.info.n_parallel = N_PARALLEL;
    w.info.max_queued_jobs = 8;
    w.config.request_timeout_ms = 2000;
    w.config.queue_timeout_ms = 1000;
    w.app.config = &w.config;
    w.req.facts = (struct srv_facts){
        .app = &w.app, .model = &w.model, .start_us = 5000000, .tenant = {7, 8, 9}};
    return 0;
}

static void start(int n)
{
    static const struct srv_jobs_ops ops = {.describe = describe,
                                            .event = event,
                                            .advance = advance,
                                            .refuse = fail_request,
                                            .release = release,
                                            .prepare = prepare,
                                            .hurry = hurry};
    srv_jobs_start(&jobs, &w.req, n, &ops, &w);
}

static void wake(void)
{
    w.req.callbacks.on_wake(w.req.api_data);
}

/* ---- tests --------------------------------------------------------------------------------- */

static void test_all_run(void **state)
{
    start(3);
    REQUIRE_EQ_INT(w.n_jobs, N_PARALLEL);
    REQUIRE_EQ_INT(w.jobs[0].p.max_tokens, 100);
    REQUIRE_EQ_INT(w.jobs[0].p.tenant[2], 9);
    REQUIRE(memcmp(&w.jobs[0].p.fair_key, w.jobs[0].p.tenant, 8) == 0);
    REQUIRE_EQ_INT(w.jobs[0].p.deadline_us, 7000000);
    REQUIRE_EQ_INT(w.jobs[0].p.queue_deadline_us, 6000000);
    REQUIRE_EQ_INT(w.jobs[1].p.queue_deadline_us, 0);
    REQUIRE_EQ_INT(w.jobs[0].p.n_for_others, 3);
    REQUIRE_EQ_INT(w.jobs[1].p.n_for_others, 4); /* half of the queue */
    emit(&w.jobs[0], ENG_EVENT_PROMPT_TOKEN);
    emit(&w.jobs[0], ENG_EVENT_POOLED);
    REQUIRE_EQ_INT(w.req.n_wakes, 0);
    srv_jobs_stop_choice(&jobs, 1, 4);
    REQUIRE_EQ_INT(w.jobs[1].stopped_choice, 4);
    run_at_once(&w.jobs[1]);
    REQUIRE_EQ_INT(w.req.n_wakes, 3);
    wake();
    REQUIRE_EQ_INT(w.n_jobs, 3);
    REQUIRE_EQ_INT(w.jobs[2].p.n_for_others, 4);
    run_at_once(&w.jobs[0]);
    run_at_once(&w.jobs[2]);
    REQUIRE_EQ_INT(w.req.n_done, 0);
    wake();
    REQUIRE_EQ_INT(w.req.n_done, 1);
    REQUIRE_EQ_INT(w.n_failed, 0);
    REQUIRE_EQ_INT(w.events[0], 5);
    REQUIRE_EQ_INT(w.n_released, 0);
    w.req.callbacks.on_free(w.req.api_data);
    REQUIRE_EQ_INT(w.n_released, 1);
    for (int i = 0; i < 3; i++)
        REQUIRE(w.jobs[i].released && !w.jobs[i].cancelled);
}

/* Tokens of an answer that is sent whole wake its request now and then. */
static void test_wakes_of_a_whole_answer(void **state)
{
    jobs.is_whole = true;
    start(1);
    for (int64_t i = 1; i < 200; i++) {
        struct eng_event ev = {.type = ENG_EVENT_TOKEN, .index = i};
        w.jobs[0].p.on_event(w.jobs[0].p.ctx, &ev);
    }
    REQUIRE_EQ_INT(w.req.n_wakes, 3);
    run_at_once(&w.jobs[0]);
    REQUIRE_EQ_INT(w.req.n_wakes, 6);
    wake();
    REQUIRE_EQ_INT(w.req.n_done, 1);
}

static void test_events_before_submit_returns(void **state)
{
    w.inside_submit = run_at_once;
    start(3);
    REQUIRE_EQ_INT(w.n_jobs, N_PARALLEL);
    wake();
    REQUIRE_EQ_INT(w.n_jobs, 3);
    REQUIRE_EQ_INT(w.jobs[2].p.n_for_others,
                   ENG_BEFORE_OTHERS); /* none of the others runs any more */
    wake();
    REQUIRE_EQ_INT(w.req.n_done, 1);
    REQUIRE_EQ_INT(w.n_failed, 0);
}

static void test_client_leaves_before_submit_returns(void **state)
{
    w.inside_submit = leave;
    start(3);
    REQUIRE_EQ_INT(w.n_jobs, 1);
    REQUIRE(w.jobs[0].cancelled);
    REQUIRE_EQ_INT(w.req.n_done, 0);
    wake();
    REQUIRE_EQ_INT(w.req.n_done, 0);
    run_at_once(&w.jobs[0]);
    wake();
    REQUIRE_EQ_INT(w.req.n_done, 1);
    REQUIRE_EQ_INT(w.n_jobs, 1);
    REQUIRE_EQ_INT(w.n_failed, 0);
    REQUIRE_EQ_INT(w.n_advanced, 1);
}

static void test_client_leaves_in_the_middle(void **state)
{
    start(2);
    leave(NULL);
    REQUIRE(w.jobs[0].cancelled && w.jobs[1].cancelled);
    wake();
    run_at_once(&w.jobs[0]);
    wake();
    REQUIRE_EQ_INT(w.req.n_done, 0);
    run_at_once(&w.jobs[1]);
    wake();
    REQUIRE_EQ_INT(w.req.n_done, 1);
}

/* Wakes for other reasons change nothing while the endpoint waits. */
static void test_preparing_takes_a_while(void **state)
{
    w.prepares[0] = JOBS_WAIT;
    start(1);
    wake();
    REQUIRE(w.n_prepared == 1 && w.n_submits == 0 && w.n_advanced == 0 && w.req.n_done == 0);
    srv_jobs_go_on(&jobs);
    REQUIRE_EQ_INT(w.req.n_wakes, 1);
    wake();
    REQUIRE(w.n_prepared == 2 && w.n_jobs == 1);
    run_at_once(&w.jobs[0]);
    wake();
    REQUIRE(w.req.n_done == 1 && w.n_prepared == 2 && w.n_hurried == 0);
}

static void go_on(void)
{
    srv_jobs_go_on(&jobs);
    w.inside_prepare = NULL;
}

static void test_goes_on_before_prepare_returns(void **state)
{
    w.prepares[0] = JOBS_WAIT;
    w.inside_prepare = go_on;
    start(1);
    REQUIRE(w.n_jobs == 0 && w.req.n_wakes == 1);
    wake();
    REQUIRE_EQ_INT(w.n_jobs, 1);
}

static void test_prepare_refuses(void **state)
{
    for (int i = 0; i < 2; i++) {
        set_up(NULL);
        w.prepares[0] = JOBS_WAIT;
        w.prepares[i] = JOBS_REFUSED; /* at once, or later */
        start(1);
        if (i) srv_jobs_go_on(&jobs);
        if (i) wake();
        REQUIRE(w.req.n_done == 1 && w.n_prepared == i + 1 && w.n_submits == 0);
        REQUIRE(w.n_failed == 0 && w.n_advanced == 0);
    }
}

static void leave_inside(void)
{
    leave(NULL);
}

/* The request lives until what it waits for has come. */
static void test_client_leaves_while_preparing(void **state)
{
    for (int i = 0; i < 2; i++) {
        set_up(NULL);
        w.prepares[0] = JOBS_WAIT;
        w.inside_prepare = i ? leave_inside : NULL;
        start(1);
        if (i == 0) leave(NULL);
        REQUIRE_EQ_INT(w.n_hurried, i + 1); /* the second time for sure */
        wake();
        REQUIRE_EQ_INT(w.req.n_done, 0);
        srv_jobs_go_on(&jobs);
        wake();
        REQUIRE(w.req.n_done == 1 && w.n_prepared == 1 && w.n_submits == 0 && w.n_failed == 0);
    }
}

/* A turn is over after 20 ms; the next one has as long again. */
static void test_preparing_takes_turns(void **state)
{
    w.prepares[0] = JOBS_YIELD;
    start(2);
    REQUIRE(w.req.n_yields == 1 && w.n_prepared == 1 && w.n_submits == 0 && w.req.n_done == 0);
    w.now_us += 500000;
    wake();
    REQUIRE(w.req.n_yields == 1 && w.n_prepared == 2 && w.n_jobs == 2);
    for (int turn = 0; turn < 2; turn++) {
        jobs.turn_us = w.now_us;
        w.now_us += 19999;
        REQUIRE_EQ_INT(srv_jobs_pause(&jobs), JOBS_READY);
        w.now_us += 1;
        REQUIRE_EQ_INT(srv_jobs_pause(&jobs), JOBS_YIELD);
    }
    REQUIRE_EQ_INT(w.n_failed, 0);
}

/* What ends a prepare between two pieces of its work, and what is answered. */
static void test_preparing_is_given_up(void **state)
{
    static const struct {
        bool gone, stopped, unloaded;
        int64_t ms; /* since the head */
        enum srv_jobs_state state;
        int failed;
        enum srv_error kind;
    } cases[] = {
        {.ms = 1999, .state = JOBS_READY},
        {.ms = 2000, .state = JOBS_REFUSED, .failed = 1, .kind = SRV_ERR_DEADLINE},
        {.stopped = true, .state = JOBS_REFUSED, .failed = 1, .kind = SRV_ERR_SHUTTING_DOWN},
        {.unloaded = true, .state = JOBS_REFUSED, .failed = 1, .kind = SRV_ERR_MODEL_UNLOADED},
        {.gone = true, .stopped = true, .ms = 2000, .state = JOBS_REFUSED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        set_up(NULL);
        start(1);
        w.now_us = jobs.turn_us = w.req.facts.start_us + (uint64_t)cases[i].ms * 1000;
        w.req.stopped = cases[i].stopped;
        atomic_store(&jobs.gone, cases[i].gone);
        atomic_store(&w.model.unloaded, cases[i].unloaded);
        REQUIRE_MSG(srv_jobs_pause(&jobs) == cases[i].state, "case %zu", i);
        REQUIRE_MSG(w.n_failed == cases[i].failed, "case %zu", i);
        if (w.n_failed) REQUIRE_EQ_INT(w.kind, cases[i].kind);
    }
    atomic_store(&w.model.unloaded, false);
    set_up(NULL);
    w.config.request_timeout_ms = 0; /* none */
    start(1);
    w.now_us = jobs.turn_us = UINT64_C(1) << 40;
    REQUIRE_EQ_INT(srv_jobs_pause(&jobs), JOBS_READY);
}

/* While others have their turn: prepare is not called again. */
static void test_client_leaves_between_turns(void **state)
{
    w.prepares[0] = JOBS_YIELD;
    start(1);
    leave(NULL);
    REQUIRE(w.req.n_done == 0 && w.n_hurried == 1);
    wake();
    REQUIRE(w.req.n_done == 1 && w.n_prepared == 1 && w.n_submits == 0 && w.n_failed == 0);
}

static void test_client_has_left_before_start(void **state)
{
    w.req.gone = true;
    start(2);
    REQUIRE_EQ_INT(w.n_submits, 0);
    REQUIRE_EQ_INT(w.req.n_done, 1);
    REQUIRE_EQ_INT(w.n_failed, 0);
}

static void test_server_stops(void **state)
{
    start(1);
    w.req.callbacks.on_stop(w.req.api_data);
    REQUIRE(w.jobs[0].cancelled && !atomic_load(&jobs.gone));
}

static void test_engine_refuses_the_first(void **state)
{
    static const struct {
        int rc;
        enum srv_error kind;
    } cases[] = {
        {ENG_EINVAL, SRV_ERR_INVALID_VALUE},
        {ENG_ECONTEXT, SRV_ERR_CONTEXT},
        {ENG_EUNSUPPORTED, SRV_ERR_UNSUPPORTED_TASK},
        {ENG_EQUEUEFULL, SRV_ERR_QUEUE_FULL},
        {ENG_ECLOSED, SRV_ERR_SHUTTING_DOWN},
        {ENG_ENOMEM, SRV_ERR_OVERLOADED},
        {ENG_EIO, SRV_ERR_INTERNAL},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        char message[64];
        set_up(NULL);
        w.refuse_with[0] = cases[i].rc;
        start(2);
        REQUIRE_EQ_INT(w.n_failed, 1);
        REQUIRE_EQ_INT(w.kind, cases[i].kind);
        snprintf(message, sizeof(message), "refused with %d", cases[i].rc);
        REQUIRE_EQ_STR(w.message, message);
        REQUIRE_EQ_INT(w.req.n_done, 1);
    }
}

static void test_engine_refuses_a_later_one(void **state)
{
    w.refuse_with[1] = w.refuse_with[2] = ENG_EQUEUEFULL;
    start(2);
    wake();
    REQUIRE_EQ_INT(w.n_submits, 3);
    REQUIRE_EQ_INT(w.n_failed, 0);
    run_at_once(&w.jobs[0]);
    wake();
    REQUIRE_EQ_INT(w.n_jobs, 2);
    REQUIRE_EQ_INT(w.jobs[1].p.n_for_others, ENG_BEFORE_OTHERS);

    set_up(NULL);
    w.refuse_with[1] = ENG_EINVAL;
    start(2);
    REQUIRE_EQ_INT(w.n_failed, 1);
    REQUIRE(w.jobs[0].cancelled);
    REQUIRE_EQ_INT(w.req.n_done, 0);
    run_at_once(&w.jobs[0]);
    wake();
    REQUIRE_EQ_INT(w.req.n_done, 1);
    REQUIRE_EQ_INT(w.n_failed, 1);
    REQUIRE_EQ_INT(w.n_advanced, 0);
}

static void test_no_memory(void **state)
{
    w.describe_fails = true;
    start(1);
    REQUIRE_EQ_INT(w.kind, SRV_ERR_OVERLOADED);
    REQUIRE_EQ_INT(w.n_submits, 0);
    REQUIRE_EQ_INT(w.req.n_done, 1);

    set_up(NULL);
    w.req.no_memory = true;
    start(1);
    REQUIRE_EQ_INT(w.n_failed, 1);
    REQUIRE_EQ_INT(w.kind, SRV_ERR_OVERLOADED);
    REQUIRE_EQ_INT(w.req.n_done, 1);
    w.req.callbacks.on_free(w.req.api_data);
    REQUIRE_EQ_INT(w.n_released, 1);
}

static void test_failures(void **state)
{
    static const struct {
        enum eng_finish finish;
        int64_t n_tokens;
        int kind; /* -1: the tokens are the answer */
    } cases[] = {
        {0, 0, -1},
        {ENG_FINISH_STOP, 0, -1},
        {ENG_FINISH_LENGTH, 3, -1},
        {ENG_FINISH_CANCELLED, 3, SRV_ERR_SHUTTING_DOWN},
        {ENG_FINISH_DEADLINE, 0, SRV_ERR_DEADLINE},
        {ENG_FINISH_DEADLINE, 1, -1},
        {ENG_FINISH_QUEUE_TIMEOUT, 0, SRV_ERR_QUEUE_TIMEOUT},
        {ENG_FINISH_ERROR, 3, SRV_ERR_INTERNAL},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        jobs.req = &w.req;
        const struct srv_job_failure *f =
            srv_jobs_failure(&jobs, (int)cases[i].finish, cases[i].n_tokens);
        REQUIRE_EQ_INT(f ? (int)f->kind : -1, cases[i].kind);
        REQUIRE(!f || strlen(f->message) > 10);
    }
    atomic_store(&w.model.unloaded, true); /* its model was replaced */
    REQUIRE_EQ_INT(srv_jobs_failure(&jobs, ENG_FINISH_CANCELLED, 3)->kind, SRV_ERR_MODEL_UNLOADED);
    REQUIRE(!srv_jobs_failure(&jobs, ENG_FINISH_LENGTH, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_all_run, set_up),
        cmocka_unit_test_setup(test_wakes_of_a_whole_answer, set_up),
        cmocka_unit_test_setup(test_events_before_submit_returns, set_up),
        cmocka_unit_test_setup(test_client_leaves_before_submit_returns, set_up),
        cmocka_unit_test_setup(test_client_leaves_in_the_middle, set_up),
        cmocka_unit_test_setup(test_client_has_left_before_start, set_up),
        cmocka_unit_test_setup(test_preparing_takes_a_while, set_up),
        cmocka_unit_test_setup(test_goes_on_before_prepare_returns, set_up),
        cmocka_unit_test_setup(test_prepare_refuses, set_up),
        cmocka_unit_test_setup(test_client_leaves_while_preparing, set_up),
        cmocka_unit_test_setup(test_preparing_takes_turns, set_up),
        cmocka_unit_test_setup(test_preparing_is_given_up, set_up),
        cmocka_unit_test_setup(test_client_leaves_between_turns, set_up),
        cmocka_unit_test_setup(test_server_stops, set_up),
        cmocka_unit_test_setup(test_engine_refuses_the_first, set_up),
        cmocka_unit_test_setup(test_engine_refuses_a_later_one, set_up),
        cmocka_unit_test_setup(test_no_memory, set_up),
        cmocka_unit_test_setup(test_failures, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
