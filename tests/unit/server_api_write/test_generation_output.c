/* SPDX-License-Identifier: MIT */
/* The wake loop of an answer: which events of a dialect come, in which order, of which text and tokens; whole answers. */
#include "server/api/write/dialects.h"

#include "answer_case.h"

/* ---- a dialect that writes its calls ------------------------------------------------------- */

static void write(struct srv_gen *g, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void write(struct srv_gen *g, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    srv_stream_write(g->req, text, (size_t)n);
}

static void stream_begin(struct srv_gen *g)
{
    write(g, "begin ");
}

static void stream_part(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                        bool ended)
{
    write(g, "%s%d ", ended ? "-" : "+", (int)(part - c->parts));
}

static void stream_delta(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                         size_t to, int64_t token_to)
{
    write(g, "%d:%.*s[%d-%d] ", part ? (int)(part - c->parts) : -1, (int)(to - c->n_sent),
          c->text.text.data + c->n_sent, (int)c->n_shown, (int)token_to);
}

static void stream_finish(struct srv_gen *g, struct gen_choice *c)
{
    write(g, "%s ", c->finish_reason);
}

static void stream_progress(struct srv_gen *g, const struct gen_progress *progress)
{
    write(g, "%d/%d,%d ", (int)progress->n_done, (int)progress->n_total, (int)progress->n_cached);
}

static void stream_end(struct srv_gen *g)
{
    write(g, "end");
}

static void stream_error(struct srv_gen *g, enum srv_error kind, const char *message)
{
    write(g, "error %s", srv_errors[kind].code);
    REQUIRE(*message);
}

static void head(struct srv_gen *g, struct jw *w)
{
    (void)g;
    jw_open(w, NULL, '[');
}

static bool choice(struct srv_gen *g, struct jw *w, struct gen_choice *c, struct gen_cursor *at)
{
    if (at->part++ == 0) {
        jw_int(w, NULL, c - g->prompts[0].choices);
        jw_string_begin(w, NULL);
        return false;
    }
    if (!jw_string_next(w, c->text.text.data, c->text.text.len, GEN_PART_BYTES, &at->at))
        return false;
    jw_string_end(w);
    return true;
}

static bool tail(struct srv_gen *g, struct jw *w, struct gen_cursor *at)
{
    (void)g;
    REQUIRE(at->part == 0 && at->at == 0);
    jw_close(w);
    return true;
}

static const struct srv_gen_dialect dialect = {.stream_begin = stream_begin,
                                               .stream_part = stream_part,
                                               .stream_delta = stream_delta,
                                               .stream_finish = stream_finish,
                                               .stream_progress = stream_progress,
                                               .stream_end = stream_end,
                                               .stream_error = stream_error,
                                               .head = head,
                                               .choice = choice,
                                               .tail = tail};

/* ---- generations --------------------------------------------------------------------------- */

static struct srv_gen *open_running(bool stream)
{
    struct srv_gen *g = open_answer(&dialect);
    g->params.stream = stream;
    g->writer = &srv_gen_output;
    g->jobs.req = g->req;
    g->jobs.n = g->jobs.n_submitted = g->jobs.n_running = 1;
    g->max_tokens = 100;
    test_info.ctx_tokens = 50;
    return g;
}

static void end_choice(struct gen_choice *c)
{
    c->ended = true;
    c->finish = ENG_FINISH_STOP;
}

static void advance(struct srv_gen *g, bool over, const char *expected)
{
    REQUIRE(srv_gen_advance(g) == over);
    check_events(g, expected);
}

static void test_stream(void **state)
{
    struct srv_gen *g = open_running(true);
    struct gen_choice *c = &ac.choices[0];
    (void)state;
    ac.prompt.stage = GEN_WAITING;
    advance(g, false, "");
    REQUIRE(!g->streaming);
    ac.prompt.stage = GEN_STARTED;
    advance(g, false, "begin ");
    add_tokens(c, (int32_t[]){7, 8}, 2);
    c->parts[0].ended = false;
    advance(g, false, "+0 0:hi[0-2] ");
    advance(g, false, "");
    add_tokens(c, (int32_t[]){9}, 1);
    end_choice(c);
    advance(g, false, "0:j[2-3] -0 stop ");
    g->jobs.n_running = 0;
    g->jobs.finished = true;
    ac.prompt.stage = GEN_DONE;
    advance(g, true, "end");
    const struct srv_account *a = &srv_facts(g->req)->account;
    REQUIRE(a->n_prompt_tokens == 3 && a->n_generated_tokens == 3 && a->n_cached_tokens == 1);
    REQUIRE(a->max_tokens == 48 && !strcmp(a->finish_reason, "stop") && a->n_choices == 1);
    close_answer(g);
}

/* With a deadline of its own a request is answered when there is a token. */
static void test_stream_opens(void **state)
{
    static const struct {
        int64_t deadline;
        enum gen_stage stage;
        int n_tokens;
        bool open;
    } cases[] = {
        {0, GEN_WAITING, 0, false}, {0, GEN_STARTED, 0, true}, {5, GEN_STARTED, 0, false},
        {5, GEN_STARTED, 1, true},  {5, GEN_DONE, 0, true},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen *g = open_running(true);
        g->params.deadline_ms = cases[i].deadline;
        ac.prompt.stage = cases[i].stage;
        add_tokens(&ac.choices[0], (int32_t[]){7}, cases[i].n_tokens);
        REQUIRE(!srv_gen_advance(g));
        REQUIRE(g->streaming == cases[i].open);
        close_answer(g);
    }
}

/* Every part has its own events; tokens go with the text that they begin in. */
static void test_parts(void **state)
{
    static const struct {
        bool logprobs;
        const char *events;
    } cases[] = {
        {false, "begin +0 0:so[0-2] -0 +1 1:hi[2-4] -1 +2 2:{}[4-4] -2 stop "},
        {true, "begin +0 0:so[0-2] -0 +1 1:hi[2-4] -1 +2 2:{}[4-4] -2 stop "},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen *g = open_running(true);
        struct gen_choice *c = &ac.choices[0];
        g->params.want_logprobs = cases[i].logprobs;
        add_part(c, CHOICE_REASONING, "");
        add_tokens(c, (int32_t[]){'s' - 'a', 'o' - 'a'}, 2);
        add_part(c, CHOICE_CONTENT, "");
        add_tokens(c, (int32_t[]){7, 8}, 2);
        add_call(c, "add", "{}");
        end_choice(c);
        advance(g, false, cases[i].events);
        close_answer(g);
    }
}

/* Tokens without text have events if they are asked for. */
static void test_tokens_without_text(void **state)
{
    static const struct {
        bool ids, logprobs;
        int64_t chunk;
        const char *events;
    } cases[] = {
        {false, false, 0, "-0 stop "},         {true, false, 0, "0:[1-3] -0 stop "},
        {false, true, 0, "0:[1-3] -0 stop "},  {false, false, 1, "0:[1-2] 0:[2-3] -0 stop "},
        {false, false, 2, "0:[1-3] -0 stop "},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen *g = open_running(true);
        struct gen_choice *c = &ac.choices[0];
        g->params.return_token_ids = cases[i].ids;
        g->params.want_logprobs = cases[i].logprobs;
        g->params.chunk_tokens = cases[i].chunk;
        add_tokens(c, (int32_t[]){7}, 1);
        c->parts[0].ended = false;
        advance(g, false, "begin +0 0:h[0-1] ");
        add_tokens(c, (int32_t[]){NO_TEXT, NO_TEXT}, 2);
        end_choice(c);
        advance(g, false, cases[i].events);
        close_answer(g);
    }
}

static void test_progress(void **state)
{
    struct srv_gen *g = open_running(true);
    struct gen_step steps[3] = {{2, 1, 5}, {3, 1, 9}};
    (void)state;
    g->reports_progress = true;
    ac.prompt.stage = GEN_STARTED;
    ac.prompt.first_usage = (struct eng_usage){.started_us = 1, .n_cached_tokens = 1};
    ac.prompt.steps = steps;
    ac.prompt.n_steps = 1;
    advance(g, false, "begin 1/3,1 2/3,1 ");
    ac.prompt.n_steps = 2;
    add_tokens(&ac.choices[0], (int32_t[]){7}, 1);
    ac.choices[0].parts[0].ended = false;
    advance(g, false, "3/3,1 +0 0:h[0-1] ");
    close_answer(g);
}

/* A client that is behind gets the rest in one event, once there is room. */
static void test_slow_client(void **state)
{
    struct srv_gen *g = open_running(true);
    struct gen_choice *c = &ac.choices[0];
    static char filling[SRV_STREAM_ROOM_BYTES];
    (void)state;
    advance(g, false, "begin ");
    memset(filling, 'x', sizeof(filling));
    REQUIRE(srv_stream_write(g->req, filling, sizeof(filling)));
    add_tokens(c, (int32_t[]){7}, 1);
    c->parts[0].ended = false;
    REQUIRE(!srv_gen_advance(g) && c->n_sent == 0 && g->req->wants_room);
    add_tokens(c, (int32_t[]){8}, 1);
    end_choice(c);
    g->jobs.n_running = 0;
    g->jobs.finished = true;
    REQUIRE(!srv_gen_advance(g));
    free(take_answer(g->req));
    advance(g, true, "+0 0:hi[0-2] -0 stop end");
    close_answer(g);
}

/* best_of picks the likeliest; else choices come by number. */
static void test_whole(void **state)
{
    static const struct {
        int n_choices, n_candidates;
        const char *answer;
    } cases[] = {
        {1, 1, "[0,'a']"},
        {3, 3, "[0,'a',1,'b',2,'c']"},
        {1, 3, "[1,'b']"},
        {2, 3, "[1,'b',2,'c']"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen *g = open_running(false);
        g->n_choices = cases[i].n_choices;
        g->n_candidates = cases[i].n_candidates;
        for (int k = 0; k < 3; k++) {
            add_tokens(&ac.choices[k], &k, 1);
            end_choice(&ac.choices[k]);
            ac.choices[k].sum_logprob = k == 1 ? -1 : -3 + 0.5 * k;
        }
        REQUIRE(!srv_gen_advance(g));
        g->jobs.n_running = 0;
        g->jobs.finished = true;
        advance(g, true, cases[i].answer);
        REQUIRE(g->req->answer == SRV_ANSWER_WHOLE && g->req->status == 200);
        close_answer(g);
    }
}

/* A long answer goes out in pieces as the client takes them. */
static void test_long_answer(void **state)
{
    enum { LONG = 3 << 20 };
    struct srv_gen *g = open_running(false);
    struct buf *text = &ac.choices[0].text.text;
    size_t n = 0;
    (void)state;
    buf_init(text, LONG + 10);
    for (int i = 0; i < LONG; i++)
        buf_add(text, "x", 1);
    add_part(&ac.choices[0], CHOICE_CONTENT, "");
    end_choice(&ac.choices[0]);
    g->jobs.n_running = 0;
    g->jobs.finished = true;
    for (bool over = false; !over;) {
        over = srv_gen_advance(g);
        REQUIRE(g->req->answer == SRV_ANSWER_PIECES);
        char *answer = take_answer(g->req);
        REQUIRE(strlen(answer) < SRV_STREAM_MAX_BYTES);
        n += strlen(answer);
        free(answer);
    }
    REQUIRE_EQ_INT(n, strlen("[0,\"\"]") + LONG);
    close_answer(g);
}

static void test_failures(void **state)
{
    static const struct {
        bool stream, answered;
        enum eng_finish finish;
        const char *events;
        int status;
    } cases[] = {
        {false, false, ENG_FINISH_ERROR, NULL, 500},
        {false, false, ENG_FINISH_DEADLINE, NULL, 504},
        {true, false, ENG_FINISH_ERROR, "begin error internal_error", 200},
        {true, true, ENG_FINISH_CANCELLED, "begin stop ", 200}, /* by a stop string */
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen *g = open_running(cases[i].stream);
        if (cases[i].stream) srv_gen_advance(g);
        ac.choices[0].finish = cases[i].finish;
        ac.choices[0].ended = true;
        REQUIRE(srv_gen_advance(g) == !cases[i].answered);
        REQUIRE_EQ_INT(g->req->status, cases[i].status);
        if (cases[i].stream) check_events(g, cases[i].events);
        if (!cases[i].answered) REQUIRE_EQ_STR(srv_facts(g->req)->account.finish_reason, "error");
        close_answer(g);
    }
}

static void test_client_leaves(void **state)
{
    struct srv_gen *g = open_running(true);
    (void)state;
    add_tokens(&ac.choices[0], (int32_t[]){7}, 1);
    atomic_store(&g->jobs.gone, true);
    advance(g, true, "");
    REQUIRE_EQ_INT(srv_facts(g->req)->account.n_generated_tokens, 1);
    close_answer(g);
}

/* The text is charged as it grows; without room the request fails. */
static void test_text_is_charged(void **state)
{
    struct srv_gen *g = open_running(false);
    struct gen_choice *c = &ac.choices[0];
    (void)state;
    long long before = atomic_load(&test_model.answer_bytes);
    add_tokens(c, (int32_t[]){7}, 1);
    REQUIRE(!srv_gen_advance(g));
    REQUIRE_EQ_INT(atomic_load(&test_model.answer_bytes) - before, c->text.text.cap);
    REQUIRE(!srv_gen_advance(g));
    REQUIRE_EQ_INT(atomic_load(&test_model.answer_bytes) - before, c->text_charged);
    test_info.memory.answer_bytes = 0;
    c->text_charged = 0;
    REQUIRE(srv_gen_advance(g));
    REQUIRE_EQ_INT(g->req->status, 503);
    close_answer(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream),          cmocka_unit_test(test_stream_opens),
        cmocka_unit_test(test_parts),           cmocka_unit_test(test_tokens_without_text),
        cmocka_unit_test(test_progress),        cmocka_unit_test(test_slow_client),
        cmocka_unit_test(test_whole),           cmocka_unit_test(test_long_answer),
        cmocka_unit_test(test_failures),        cmocka_unit_test(test_client_leaves),
        cmocka_unit_test(test_text_is_charged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
