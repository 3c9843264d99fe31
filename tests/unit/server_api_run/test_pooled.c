/* SPDX-License-Identifier: MIT */
/*
 * Rows of a request for vectors: their memory, their prompts, what fills them and what is answered. The jobs are played
 * here. Linked with --wrap=eng_info, --wrap=srv_jobs_start and --wrap=srv_jobs_pause.
 */
#include "server/api/run/pooled.h"

#include "open_request.h"

static const struct srv_jobs_ops *jobs_ops; /* that srv_jobs_start got */

void __wrap_srv_jobs_start(struct srv_jobs *j, struct srv_request *req, int n,
                           const struct srv_jobs_ops *ops, void *ctx);

void __wrap_srv_jobs_start(struct srv_jobs *j, struct srv_request *req, int n,
                           const struct srv_jobs_ops *ops, void *ctx)
{
    struct srv_pooled *p = ctx;
    REQUIRE(j == &p->jobs && req == p->req && n == p->n_max);
    j->req = req;
    j->n = n;
    jobs_ops = ops;
}

static void test_open(void **state)
{
    static const struct {
        size_t n;
        int64_t budget, in_use;
        int kind; /* -1: fine, else enum srv_error */
    } cases[] = {
        {4, 64, 0, -1},
        {4, 63, 0, SRV_ERR_TOO_LARGE},
        {4, 64, 1, SRV_ERR_QUEUE_FULL},
        {1, 64, 48, -1},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_request *req = open_request();
        struct srv_pooled p;
        struct param_error err = {0};
        test_info.memory.answer_bytes = cases[i].budget;
        atomic_store(&test_model.answer_bytes, cases[i].in_use);
        int rc = srv_pooled_open(&p, req, "input", cases[i].n, 4, &err);
        REQUIRE_MSG((rc == 0) == (cases[i].kind < 0), "%zu: %s", i, err.message);
        if (rc) REQUIRE_EQ_INT(err.kind, cases[i].kind);
        if (!rc)
            REQUIRE_EQ_INT(atomic_load(&test_model.answer_bytes),
                           cases[i].in_use + 16 * (int)cases[i].n);
        if (!rc) REQUIRE(p.rows && p.n == 0 && p.n_max == (int)cases[i].n && p.width == 4);
        atomic_store(&test_model.answer_bytes, 0);
        close_request(req);
    }
}

static void test_add(void **state)
{
    enum { SHORT = 5 };
    struct srv_request *req = open_request();
    struct srv_pooled p;
    struct param_error err = {0};
    int32_t ids[] = {1, 2, 3, 4, 5, 6};
    (void)state;
    test_info.ctx_tokens = SHORT;
    REQUIRE_EQ_INT(srv_pooled_open(&p, req, "input", 3, 4, &err), 0);
    REQUIRE_EQ_INT(srv_pooled_add(&p, ids, 2, &err), 0);
    REQUIRE_EQ_INT(srv_pooled_add(&p, ids + 1, SHORT, &err), 0);
    ids[0] = ids[1] = 0; /* they are copied */
    REQUIRE(p.n == 2 && p.n_tokens == 2 + SHORT);
    REQUIRE(p.rows[0].ids[0] == 1 && p.rows[0].ids[1] == 2 && p.rows[1].ids[0] == 2);
    p.rows[0].values[3] = 7;
    REQUIRE(p.rows[1].values[0] == 0 && p.rows[0].n_ids == 2);
    REQUIRE(srv_pooled_add(&p, ids, SHORT + 1, &err) < 0 && err.kind == SRV_ERR_CONTEXT);
    REQUIRE_EQ_STR(err.path, "input");
    REQUIRE(p.n == 2 && p.n_tokens == 2 + SHORT && p.rows[2].n_ids == SHORT + 1);
    atomic_store(&test_model.answer_bytes, 0);
    close_request(req);
}

/* ---- jobs ---------------------------------------------------------------------------------- */

enum { WIDTH = 3 };

static struct {
    struct srv_pooled p;
    int n_described, n_answers, n_released;
    bool answers;                  /* what answer returns */
    enum srv_jobs_state pauses[2]; /* what srv_jobs_pause returns before row i; READY afterwards */
    int n_pauses, refused;         /* the row that is not added, 0: none */
} w;

enum srv_jobs_state __wrap_srv_jobs_pause(struct srv_jobs *j);

enum srv_jobs_state __wrap_srv_jobs_pause(struct srv_jobs *j)
{
    REQUIRE(j == &w.p.jobs);
    int i = w.n_pauses++;
    return i < 2 ? w.pauses[i] : JOBS_READY;
}

static void describe_job(void *ctx, struct eng_job_params *params)
{
    REQUIRE(ctx == &w && params->prompt);
    w.n_described++;
    params->n_logprobs = WIDTH;
}

static bool answer(void *ctx)
{
    REQUIRE(ctx == &w);
    w.n_answers++;
    return w.answers;
}

static void release_rows(void *ctx)
{
    REQUIRE(ctx == &w);
    w.n_released++;
}

enum { CTX = 40 };

/* The i-th prompt has i + 1 ids from i on. */
static int add(void *ctx, int i, struct param_error *err)
{
    int32_t ids[CTX + 1];
    REQUIRE(ctx == &w && i == w.p.n);
    for (int k = 0; k <= CTX; k++)
        ids[k] = i + k;
    return srv_pooled_add(&w.p, ids, w.refused && i == w.refused ? CTX + 1 : (size_t)i + 1, err);
}

static void open_rows(int n)
{
    static const struct srv_pooled_ops ops = {add, describe_job, answer, release_rows};
    struct param_error err = {0};
    memset(&w, 0, sizeof(w));
    test_info.ctx_tokens = CTX;
    REQUIRE_EQ_INT(srv_pooled_open(&w.p, open_request(), "input", (size_t)n, WIDTH, &err), 0);
    srv_pooled_start(&w.p, &ops, &w);
}

/* n prompts that run. */
static void start(int n)
{
    open_rows(n);
    REQUIRE_EQ_INT(jobs_ops->prepare(&w.p), JOBS_READY);
    REQUIRE_EQ_INT(w.p.n, n);
    w.p.jobs.n_submitted = n;
}

static void stop(void)
{
    jobs_ops->release(&w.p);
    REQUIRE_EQ_INT(w.n_released, 1);
    atomic_store(&test_model.answer_bytes, 0);
    close_request(w.p.req);
}

static void end_row(int i, enum eng_finish finish)
{
    jobs_ops->event(&w.p, i, &(struct eng_event){.type = ENG_EVENT_CHOICE_DONE, .finish = finish});
}

/* It goes on with the prompt that comes next after others had their turn. */
static void test_turns(void **state)
{
    (void)state;
    open_rows(3);
    w.pauses[1] = JOBS_YIELD;
    REQUIRE_EQ_INT(jobs_ops->prepare(&w.p), JOBS_YIELD);
    REQUIRE_EQ_INT(w.p.n, 1);
    REQUIRE_EQ_INT(jobs_ops->prepare(&w.p), JOBS_READY);
    REQUIRE(w.p.n == 3 && w.p.n_tokens == 1 + 2 + 3 && w.n_pauses == 4);
    stop();
    open_rows(3);
    w.pauses[1] = JOBS_REFUSED; /* and answered */
    REQUIRE(jobs_ops->prepare(&w.p) == JOBS_REFUSED && w.p.n == 1 && w.p.req->status == 0);
    stop();
    open_rows(3);
    w.refused = 2;
    REQUIRE(jobs_ops->prepare(&w.p) == JOBS_REFUSED && w.p.n == 2);
    REQUIRE_EQ_INT(w.p.req->status, 400);
    REQUIRE_MSG(strstr(w.p.req->reply.data, "\"n_prompt_tokens\":41"), "%s", w.p.req->reply.data);
    stop();
}

/* A request of many prompts lets the others of its key pass. */
static void test_describe(void **state)
{
    static const struct {
        int n, priority;
    } cases[] = {{2, 0}, {16, 0}, {17, 1}};
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct eng_job_params params = {.priority = -1};
        start(cases[i].n);
        w.p.rows[1].n_first = 7;
        REQUIRE_EQ_INT(jobs_ops->describe(&w.p, 1, &params), 0);
        REQUIRE(params.n_prompt == 2 && params.prompt[0] == 1 && params.prompt[1] == 2);
        REQUIRE(params.n_first == 7 && w.n_described == 1 && params.n_logprobs == WIDTH);
        REQUIRE_EQ_INT(params.priority, cases[i].priority);
        stop();
    }
}

/* The events of each kind of job fill its row and no other. */
static void test_events(void **state)
{
    static const float numbers[] = {4, 5, 6};
    static const struct eng_logprob top[] = {{9, -1}, {8, -2}, {7, -3}};
    static const struct {
        struct eng_event event;
        float row[WIDTH];
    } cases[] = {
        {{.type = ENG_EVENT_POOLED, .logits = numbers, .n_logits = WIDTH}, {4, 5, 6}},
        {{.type = ENG_EVENT_TOKEN, .top = top, .n_top = 3}, {-1, -2, -3}},
        {{.type = ENG_EVENT_TOKEN, .top = top, .n_top = 1}, {-1, 0, 0}},
        {{.type = ENG_EVENT_LOGITS, .logits = numbers, .n_logits = WIDTH}, {6, 0, 0}},
        {{.type = ENG_EVENT_STARTED, .logits = numbers, .n_logits = WIDTH}, {0, 0, 0}},
    };
    (void)state;
    test_model.pairs.ids[0] = 2;
    for (size_t i = 0; i < N_OF(cases); i++) {
        start(2);
        jobs_ops->event(&w.p, 1, &cases[i].event);
        for (int k = 0; k < WIDTH; k++) {
            REQUIRE_MSG(w.p.rows[1].values[k] == cases[i].row[k], "%zu: number %d is %f", i, k,
                        (double)w.p.rows[1].values[k]);
            REQUIRE(w.p.rows[0].values[k] == 0);
        }
        REQUIRE(!w.p.rows[1].finish);
        stop();
    }
}

/* The endpoint answers once all rows are there, again until it has written all. */
static void test_answer(void **state)
{
    (void)state;
    start(2);
    const struct srv_account *a = &srv_facts(w.p.req)->account;
    end_row(0, ENG_FINISH_LENGTH);
    REQUIRE(!jobs_ops->advance(&w.p) && w.n_answers == 0 && !a->finish_reason);
    end_row(1, ENG_FINISH_LENGTH);
    w.p.jobs.finished = true;
    REQUIRE(!jobs_ops->advance(&w.p) && w.n_answers == 1);
    w.answers = true;
    REQUIRE(jobs_ops->advance(&w.p) && w.n_answers == 2);
    REQUIRE_EQ_INT(a->n_prompt_tokens, 1 + 2);
    REQUIRE_EQ_STR(a->finish_reason, "stop");
    stop();
}

static void test_failures(void **state)
{
    static const struct {
        enum eng_finish finish;
        int status;
    } cases[] = {{ENG_FINISH_ERROR, 500}, {ENG_FINISH_DEADLINE, 504}};
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        start(2);
        end_row(1, cases[i].finish);
        REQUIRE(jobs_ops->advance(&w.p) && w.n_answers == 0);
        REQUIRE_EQ_INT(w.p.req->status, cases[i].status);
        REQUIRE_EQ_STR(srv_facts(w.p.req)->account.finish_reason, "error");
        stop();
    }
    start(1);
    w.p.jobs.n_submitted = 0; /* the first job was refused: nothing was computed */
    jobs_ops->refuse(&w.p, SRV_ERR_QUEUE_FULL, "full");
    REQUIRE(w.p.req->status == 429 && !srv_facts(w.p.req)->account.finish_reason);
    stop();
}

/* Nothing is written for a client that has left, even if its rows are there or have failed. */
static void test_client_leaves(void **state)
{
    (void)state;
    start(1);
    end_row(0, ENG_FINISH_ERROR);
    w.p.jobs.finished = true;
    atomic_store(&w.p.jobs.gone, true);
    REQUIRE(jobs_ops->advance(&w.p) && w.n_answers == 0 && w.p.req->status == 0);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),     cmocka_unit_test(test_add),
        cmocka_unit_test(test_turns),    cmocka_unit_test(test_describe),
        cmocka_unit_test(test_events),   cmocka_unit_test(test_answer),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_client_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
