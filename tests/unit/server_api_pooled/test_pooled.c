/* SPDX-License-Identifier: MIT */
/*
 * Requests that are answered with numbers: rows, their memory, their prompts, what fills them and what is answered. The
 * jobs are played here. Linked with --wrap=eng_info, --wrap=srv_jobs_start and --wrap=srv_jobs_pause.
 */
#include "server/api/pooled/pooled.h"

#include "open_request.h"

static const struct srv_jobs_ops *jobs_ops; /* that srv_jobs_start got */
static struct srv_pooled *started;

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
    started = p;
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
        struct srv_pooled p = {.req = req, .served = &test_model, .info = &test_info};
        test_info.memory.answer_bytes = cases[i].budget;
        atomic_store(&test_model.answer_bytes, cases[i].in_use);
        int rc = srv_pooled_open(&p, "input", cases[i].n, 4);
        REQUIRE_MSG((rc == 0) == (cases[i].kind < 0), "%zu: %s", i, param_error.message);
        if (rc) REQUIRE_EQ_INT(param_error.kind, cases[i].kind);
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
    struct srv_pooled p = {.req = req, .served = &test_model, .info = &test_info};
    int32_t ids[] = {1, 2, 3, 4, 5, 6};
    (void)state;
    test_info.ctx_tokens = SHORT;
    REQUIRE_EQ_INT(srv_pooled_open(&p, "input", 3, 4), 0);
    REQUIRE_EQ_INT(srv_pooled_add(&p, ids, 2), 0);
    REQUIRE_EQ_INT(srv_pooled_add(&p, ids + 1, SHORT), 0);
    ids[0] = ids[1] = 0; /* they are copied */
    REQUIRE(p.n == 2 && p.n_tokens == 2 + SHORT);
    REQUIRE(p.rows[0].ids[0] == 1 && p.rows[0].ids[1] == 2 && p.rows[1].ids[0] == 2);
    p.rows[0].values[3] = 7;
    REQUIRE(p.rows[1].values[0] == 0 && p.rows[0].n_ids == 2);
    REQUIRE(srv_pooled_add(&p, ids, SHORT + 1) < 0 && param_error.kind == SRV_ERR_CONTEXT);
    REQUIRE_EQ_STR(param_error.path, "input");
    REQUIRE(p.n == 2 && p.n_tokens == 2 + SHORT && p.n_long == SHORT + 1);
    atomic_store(&test_model.answer_bytes, 0);
    close_request(req);
}

/* ---- jobs ---------------------------------------------------------------------------------- */

enum { WIDTH = 3, CTX = 40 };

static struct {
    struct srv_request *req;
    int n; /* prompts */
    int n_described, n_sorted;
    int n_shown;                   /* items of the answer; 0: all */
    int number_chars;              /* of an item */
    enum srv_jobs_state pauses[2]; /* what srv_jobs_pause returns before row i; READY afterwards */
    int n_pauses, refused;         /* the row that is not added, 0: none */
    bool fails;                    /* the fields are wrong */
} w;

enum srv_jobs_state __wrap_srv_jobs_pause(struct srv_jobs *j);

enum srv_jobs_state __wrap_srv_jobs_pause(struct srv_jobs *j)
{
    REQUIRE(j == &started->jobs);
    int i = w.n_pauses++;
    return i < 2 ? w.pauses[i] : JOBS_READY;
}

static int check_fields(struct srv_pooled *p)
{
    REQUIRE(p->req == w.req && p->served == &test_model);
    return w.fails ? param_fail(SRV_ERR_INVALID_VALUE, "input", "wrong") : 0;
}

static int open_rows(struct srv_pooled *p)
{
    p->answer_bytes = (size_t)w.n * (size_t)w.number_chars;
    return srv_pooled_open(p, "input", (size_t)w.n, WIDTH);
}

/* The i-th prompt has i + 1 ids from i on. */
static int add(struct srv_pooled *p, int i)
{
    int32_t ids[CTX + 1];
    REQUIRE(i == p->n);
    for (int k = 0; k <= CTX; k++)
        ids[k] = i + k;
    return srv_pooled_add(p, ids, w.refused && i == w.refused ? CTX + 1 : (size_t)i + 1);
}

static void describe_job(struct srv_pooled *p, int i, struct eng_job_params *params)
{
    REQUIRE(p == started && params->prompt == p->rows[i].ids);
    w.n_described++;
    params->n_logprobs = WIDTH;
}

static void sort_rows(struct srv_pooled *p)
{
    REQUIRE_EQ_INT(p->n_items, p->n);
    w.n_sorted++;
    if (w.n_shown) p->n_items = w.n_shown;
}

static void write_item(struct srv_pooled *p, struct jw *jw, int i)
{
    char text[20000];
    REQUIRE(p == started && i == p->n_written);
    memset(text, 'a' + i % 26, sizeof(text));
    jw_string(jw, NULL, text, (size_t)w.number_chars);
}

static const struct param_field fields[] = {
    {PARAM_FIELD(struct srv_pooled, "model", PARAM_STRING, model, NULL, NULL)},
    {0},
};

static void request(int n, const char *list, bool in_pieces)
{
    static struct pooled_endpoint endpoint;
    static struct pooled_dialect dialect;
    static const char *const names[] = {"m", NULL};
    endpoint = (struct pooled_endpoint){"numbers",    sizeof(struct srv_pooled),
                                        fields,       in_pieces,
                                        check_fields, open_rows,
                                        add,          describe_job,
                                        NULL,         sort_rows,
                                        NULL};
    dialect = (struct pooled_dialect){.endpoint = &endpoint, .list = list, .item = write_item};
    w.req = open_request();
    w.n = n;
    test_info.ctx_tokens = CTX;
    test_model.names = names;
    started = NULL;
    srv_facts(w.req)->arg = &dialect;
    srv_facts(w.req)->body = "{\"model\": \"m\"}";
    srv_facts(w.req)->body_len = strlen(srv_facts(w.req)->body);
    srv_pooled_handle(w.req);
    REQUIRE_EQ_STR(srv_facts(w.req)->account.endpoint, "numbers");
}

static void begin(int n)
{
    memset(&w, 0, sizeof(w));
    w.number_chars = 1;
    request(n, "data", false);
}

/* n prompts that run. */
static void run(void)
{
    REQUIRE_EQ_INT(jobs_ops->prepare(started), JOBS_READY);
    REQUIRE_EQ_INT(started->n, w.n);
    started->jobs.n_submitted = w.n;
}

static void start(int n)
{
    begin(n);
    run();
}

static void stop(void)
{
    jobs_ops->release(started);
    REQUIRE(!started->body.root);
    atomic_store(&test_model.answer_bytes, 0);
    close_request(w.req);
}

static void end_row(int i, enum eng_finish finish)
{
    jobs_ops->event(started, i,
                    &(struct eng_event){.type = ENG_EVENT_CHOICE_DONE, .finish = finish});
}

/* It goes on with the prompt that comes next after others had their turn. */
static void test_turns(void **state)
{
    (void)state;
    begin(3);
    w.pauses[1] = JOBS_YIELD;
    REQUIRE_EQ_INT(jobs_ops->prepare(started), JOBS_YIELD);
    REQUIRE_EQ_INT(started->n, 1);
    REQUIRE_EQ_INT(jobs_ops->prepare(started), JOBS_READY);
    REQUIRE(started->n == 3 && started->n_tokens == 1 + 2 + 3 && w.n_pauses == 4);
    stop();
    begin(3);
    w.pauses[1] = JOBS_REFUSED; /* and answered */
    REQUIRE(jobs_ops->prepare(started) == JOBS_REFUSED && started->n == 1 && w.req->status == 0);
    stop();
    begin(3);
    w.refused = 2;
    REQUIRE(jobs_ops->prepare(started) == JOBS_REFUSED && started->n == 2);
    REQUIRE_EQ_INT(w.req->status, 400);
    REQUIRE_MSG(strstr(w.req->reply.data, "\"n_prompt_tokens\":41"), "%s", w.req->reply.data);
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
        started->rows[1].n_first = 7;
        REQUIRE_EQ_INT(jobs_ops->describe(started, 1, &params), 0);
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
        jobs_ops->event(started, 1, &cases[i].event);
        for (int k = 0; k < WIDTH; k++) {
            REQUIRE_MSG(started->rows[1].values[k] == cases[i].row[k], "%zu: number %d is %f", i, k,
                        (double)started->rows[1].values[k]);
            REQUIRE(started->rows[0].values[k] == 0);
        }
        REQUIRE(!started->rows[1].finish);
        stop();
    }
}

/* All rows are there, and the client takes the answer; returns it, owned. */
static char *answer(void)
{
    struct buf all;
    bool written = false;
    buf_init(&all, 16 << 20);
    for (int i = 0; i < w.n; i++)
        end_row(i, ENG_FINISH_LENGTH);
    started->jobs.finished = true;
    for (int i = 0; i < 1000 && !written; i++) {
        written = jobs_ops->advance(started);
        char *part = take_answer(w.req);
        buf_puts(&all, part);
        free(part);
    }
    REQUIRE(written && w.n_sorted == 1 && !all.failed);
    return all.data;
}

static void test_answer(void **state)
{
    (void)state;
    start(2);
    const struct srv_account *a = &srv_facts(w.req)->account;
    end_row(0, ENG_FINISH_LENGTH);
    REQUIRE(!jobs_ops->advance(started) && w.n_sorted == 0 && !a->finish_reason);
    char *text = answer();
    REQUIRE_EQ_STR(text,
                   "{\"id\":\"req_1\",\"object\":\"list\",\"model\":\"m\",\"data\":[\"a\",\"b\"],"
                   "\"usage\":{\"prompt_tokens\":3,\"total_tokens\":3}}");
    REQUIRE(a->n_prompt_tokens == 1 + 2 && w.req->answer == SRV_ANSWER_WHOLE);
    REQUIRE_EQ_STR(a->finish_reason, "stop");
    free(text);
    stop();
    request(3, NULL, true); /* the bare array, with fewer items than rows */
    w.n_sorted = 0;
    w.n_shown = 1;
    run();
    text = answer();
    REQUIRE_EQ_STR(text, "[\"a\"]");
    REQUIRE_EQ_INT(w.req->answer, SRV_ANSWER_WHOLE); /* it is short */
    free(text);
    stop();
}

/* A long one is written as the client takes it, each item once. */
static void test_answer_in_pieces(void **state)
{
    enum { N = 30, CHARS = 10000 };
    (void)state;
    memset(&w, 0, sizeof(w));
    w.number_chars = CHARS;
    request(N, NULL, true);
    run();
    char *text = answer();
    REQUIRE_EQ_INT(w.req->answer, SRV_ANSWER_PIECES);
    REQUIRE_EQ_INT(strlen(text), 1 + N * (CHARS + 3));
    for (int i = 0; i < N; i++)
        REQUIRE_EQ_INT(text[i * (CHARS + 3) + 2], 'a' + i % 26);
    free(text);
    stop();
    w.n_sorted = 0;
    request(N, NULL, false); /* an endpoint with long items */
    run();
    text = answer();
    REQUIRE_EQ_INT(w.req->answer, SRV_ANSWER_WHOLE);
    REQUIRE_EQ_INT(strlen(text), 1 + N * (CHARS + 3));
    free(text);
    stop();
}

static void test_wrong_fields(void **state)
{
    (void)state;
    memset(&w, 0, sizeof(w));
    w.fails = true;
    request(1, NULL, false);
    REQUIRE(!started && w.req->status == 400);
    REQUIRE_MSG(strstr(w.req->reply.data, "wrong"), "%s", w.req->reply.data);
    close_request(w.req);
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
        REQUIRE(jobs_ops->advance(started) && w.n_sorted == 0);
        REQUIRE_EQ_INT(w.req->status, cases[i].status);
        REQUIRE_EQ_STR(srv_facts(w.req)->account.finish_reason, "error");
        stop();
    }
    start(1);
    started->jobs.n_submitted = 0; /* the first job was refused: nothing was computed */
    jobs_ops->refuse(started, SRV_ERR_QUEUE_FULL, "full");
    REQUIRE(w.req->status == 429 && !srv_facts(w.req)->account.finish_reason);
    stop();
}

/* Nothing is written for a client that has left, even if its rows are there or have failed. */
static void test_client_leaves(void **state)
{
    (void)state;
    start(1);
    end_row(0, ENG_FINISH_ERROR);
    started->jobs.finished = true;
    atomic_store(&started->jobs.gone, true);
    REQUIRE(jobs_ops->advance(started) && w.n_sorted == 0 && w.req->status == 0);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_answer),
        cmocka_unit_test(test_answer_in_pieces),
        cmocka_unit_test(test_wrong_fields),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_client_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
