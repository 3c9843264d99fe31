/* SPDX-License-Identifier: MIT */
/*
 * The guides of a request: the grammar that is asked for, the errors of one that is not there, and which states a prompt
 * gets. The compile queue and the jobs are played here. Linked with --wrap of eng_info, compile_ask, compile_leave,
 * srv_jobs_go_on and srv_metrics_count.
 */
#include "server/api/run/guide.h"

#include "open_request.h"
#include "server/api/read/generation_fields.h"
#include "server/api/read/tools_request.h"
#include "server/api/run/jobs.h"

enum { N_PARALLEL = 2 };

static struct {
    struct srv_guide guide;
    struct srv_jobs jobs;
    struct srv_gen_params params;
    struct srv_tools tools;
    struct compile_wait *wait; /* that the queue was asked for */
    int n_go_on, n_left;
    int counts[SRV_COUNT_N];
} w;

static struct tok *tok;

/* ---- what is played ------------------------------------------------------------------------ */

void __wrap_compile_ask(struct compile_queue *q, struct compile_wait *wait);
void __wrap_compile_leave(struct compile_queue *q, const struct compile_wait *wait,
                          const struct grammar_cache *cache);
void __wrap_srv_jobs_go_on(struct srv_jobs *j);
void __wrap_srv_metrics_count(struct srv_metrics *m, enum srv_count what);

void __wrap_compile_ask(struct compile_queue *q, struct compile_wait *wait)
{
    (void)q;
    REQUIRE(!w.wait);
    w.wait = wait;
}

void __wrap_compile_leave(struct compile_queue *q, const struct compile_wait *wait,
                          const struct grammar_cache *cache)
{
    (void)q;
    REQUIRE(wait == &w.guide.wait);
    w.n_left++;
}

void __wrap_srv_jobs_go_on(struct srv_jobs *j)
{
    REQUIRE(j == &w.jobs);
    w.n_go_on++;
}

void __wrap_srv_metrics_count(struct srv_metrics *m, enum srv_count what)
{
    (void)m;
    w.counts[what]++;
}

static void end_wait(enum compile_end end)
{
    w.wait->end = end;
    w.wait->done(w.wait);
    w.wait = NULL;
}

static void compile(void)
{
    struct compile_wait *wait = w.wait;
    grammar_cache_compile(wait->cache, &wait->source, wait->tenant, NULL, NULL, &wait->result);
    end_wait(COMPILE_DONE);
}

/* ---- a request ----------------------------------------------------------------------------- */

static int load(void **state)
{
    (void)state;
    char dir[1000], err[300];
    snprintf(dir, sizeof(dir), "%s/deploy/demo", test_source_root());
    test_app.metrics = srv_metrics_create();
    return test_app.metrics ? tok_open(&tok, dir, err, sizeof(err)) : -1;
}

static int unload(void **state)
{
    (void)state;
    tok_close(tok);
    srv_metrics_destroy(test_app.metrics);
    return 0;
}

/* A request for answers of the kind; the model keeps max_bytes of grammars. */
static void open_guide(const char *param, enum gram_kind kind, const char *text, int64_t max_bytes)
{
    static const int32_t end[] = {0};
    const struct grammar_cache_params p = {.tok = tok,
                                           .n_ids = tok_vocab_size(tok),
                                           .end_ids = end,
                                           .n_end_ids = 1,
                                           .max_bytes = max_bytes};
    memset(&w, 0, sizeof(w));
    test_config = (struct srv_config){0};
    test_info = (struct eng_info){.n_parallel = N_PARALLEL};
    test_model.tok = tok;
    REQUIRE_EQ_INT(grammar_cache_create(&test_model.grammars, &p), 0);
    w.jobs.req = open_request();
    w.guide.ask =
        (struct guide_ask){.param = param, .kind = kind, .text = {text, text ? strlen(text) : 0}};
}

static void close_guide(void)
{
    srv_guide_release(&w.guide);
    grammar_cache_destroy(test_model.grammars);
    atomic_store(&test_model.answer_bytes, 0);
    close_request(w.jobs.req);
}

static int ask(void)
{
    return srv_guide_ask(&w.guide, w.jobs.req, &w.jobs, &w.params);
}

static int open_states(int64_t max_tokens, int n_prompts, int n_choices)
{
    return srv_guide_open(&w.guide, w.jobs.req, &w.params, max_tokens, n_prompts, n_choices);
}

/* ---- the grammar --------------------------------------------------------------------------- */

static void test_without_bytes(void **state)
{
    (void)state;
    open_guide("guided_regex", GRAM_REGEX, "a+", 1 << 20);
    struct grammar_cache *cache = test_model.grammars;
    test_model.grammars = NULL;
    REQUIRE(ask() == -1 && !w.wait && param_error.kind == SRV_ERR_UNSUPPORTED);
    REQUIRE_EQ_STR(param_error.path, "guided_regex");
    test_model.grammars = cache;
    close_guide();
}

/* The jobs go on once it is compiled; a second request finds it. */
static void test_ask(void **state)
{
    (void)state;
    open_guide("guided_regex", GRAM_REGEX, "a+", 1 << 20);
    REQUIRE(ask() == 1 && w.wait == &w.guide.wait && !w.guide.gram);
    compile_leave(srv_facts(w.jobs.req)->app->compiles, &w.guide.wait, NULL);
    REQUIRE(w.n_left == 1 && w.n_go_on == 0);
    compile();
    REQUIRE(w.n_go_on == 1 && w.guide.gram);
    REQUIRE_EQ_INT(open_states(10, 1, 1), 0);
    REQUIRE_EQ_INT(atomic_load(&test_model.answer_bytes), grammar_guide_bytes()); /* it is kept */
    struct gram *first = w.guide.gram;
    srv_guide_release(&w.guide);
    REQUIRE(!w.guide.gram && !w.guide.memory);
    REQUIRE(ask() == 0 && !w.wait && w.guide.gram == first);
    REQUIRE_EQ_INT(open_states(10, 1, 1), 0);
    close_guide();
}

/* A grammar that the cache has no room for is the request's, and so is its memory. */
static void test_memory(void **state)
{
    (void)state;
    open_guide("guided_regex", GRAM_REGEX, "a+", 0);
    REQUIRE_EQ_INT(ask(), 1);
    compile();
    int64_t gram = (int64_t)(gram_bytes(w.guide.gram) + gram_cache_bytes(w.guide.gram));
    int64_t states = N_PARALLEL * 3 * (int64_t)grammar_guide_bytes();
    test_info.memory.answer_bytes = gram - 1;
    REQUIRE(open_states(10, 5, 3) == -1 && param_error.kind == SRV_ERR_OVERLOADED);
    REQUIRE_EQ_STR(param_error.path, "guided_regex");
    test_info.memory.answer_bytes = gram + states - 1;
    REQUIRE(open_states(10, 5, 3) == -1 && param_error.kind == SRV_ERR_OVERLOADED);
    atomic_store(&test_model.answer_bytes, 0);
    test_info.memory.answer_bytes = gram + states;
    REQUIRE_EQ_INT(open_states(10, 5, 3), 0);
    REQUIRE_EQ_INT(atomic_load(&test_model.answer_bytes), gram + states);
    close_guide();
}

static void test_refusals(void **state)
{
    static const struct {
        const char *param;
        struct gram_error error;
        enum srv_error kind;
        int count; /* an enum srv_count; -1: none */
        const char *path;
    } cases[] = {
        {"response_format",
         {.code = GRAM_EINVAL, .message = "m"},
         SRV_ERR_INVALID_SCHEMA,
         SRV_COUNT_SCHEMAS_REFUSED,
         "response_format"},
        {"response_format",
         {.code = GRAM_EINVAL, .has_pointer = true, .pointer = "/tools/0/x", .message = "m"},
         SRV_ERR_INVALID_SCHEMA,
         SRV_COUNT_SCHEMAS_REFUSED,
         "tools"},
        {NULL,
         {.code = GRAM_EINVAL, .message = "m"},
         SRV_ERR_INVALID_SCHEMA,
         SRV_COUNT_SCHEMAS_REFUSED,
         "tools"},
        {"grammar",
         {.code = GRAM_EGRAMMAR, .message = "m"},
         SRV_ERR_INVALID_GRAMMAR,
         SRV_COUNT_GRAMMARS_REFUSED,
         "grammar"},
        {"grammar",
         {.code = GRAM_EUNSUPPORTED, .message = "m"},
         SRV_ERR_UNSUPPORTED,
         SRV_COUNT_GRAMMARS_UNSUPPORTED,
         "grammar"},
        {NULL, {.code = GRAM_ENOMEM, .message = "m"}, SRV_ERR_OVERLOADED, -1, "tools"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        open_guide(cases[i].param, GRAM_SCHEMA, "{}", 1 << 20);
        w.guide.tools = &w.tools;
        REQUIRE_EQ_INT(ask(), 1);
        w.wait->result.error = cases[i].error;
        end_wait(COMPILE_DONE);
        REQUIRE_EQ_INT(open_states(10, 1, 1), -1);
        REQUIRE_EQ_INT(param_error.kind, cases[i].kind);
        REQUIRE_EQ_STR(param_error.path, cases[i].path);
        for (int k = 0; k < SRV_COUNT_N; k++)
            REQUIRE_EQ_INT(w.counts[k], k == cases[i].count);
        close_guide();
    }
}

/* The wait ends with the request's own time or that of the queue, and the error says which. */
static void test_deadlines(void **state)
{
    static const struct {
        int64_t queue_ms, request_ms, own_ms, wait_ms; /* the last: 0: it does not end */
        enum srv_error kind;
    } cases[] = {
        {0, 0, 0, 0, SRV_ERR_DEADLINE}, {5, 0, 0, 5, SRV_ERR_QUEUE_TIMEOUT},
        {0, 7, 0, 7, SRV_ERR_DEADLINE}, {5, 7, 0, 5, SRV_ERR_QUEUE_TIMEOUT},
        {5, 7, 3, 3, SRV_ERR_DEADLINE}, {5, 3, 9, 5, SRV_ERR_QUEUE_TIMEOUT},
        {5, 0, 5, 5, SRV_ERR_DEADLINE},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        open_guide("guided_regex", GRAM_REGEX, "a+", 1 << 20);
        srv_facts(w.jobs.req)->start_us = 100;
        test_config.queue_timeout_ms = cases[i].queue_ms;
        test_config.request_timeout_ms = cases[i].request_ms;
        w.params.deadline_ms = cases[i].own_ms;
        REQUIRE_EQ_INT(ask(), 1);
        REQUIRE_EQ_INT(w.wait->deadline_us, cases[i].wait_ms ? 100 + cases[i].wait_ms * 1000 : 0);
        end_wait(COMPILE_LATE);
        REQUIRE(open_states(10, 1, 1) == -1 && w.n_go_on == 1);
        REQUIRE_EQ_INT(param_error.kind, cases[i].kind);
        close_guide();
    }
    open_guide("guided_regex", GRAM_REGEX, "a+", 1 << 20);
    REQUIRE_EQ_INT(ask(), 1);
    end_wait(COMPILE_LEFT);
    REQUIRE(open_states(10, 1, 1) == -1 && param_error.kind == SRV_ERR_SHUTTING_DOWN);
    close_guide();
}

/* ---- relaxed keywords ---------------------------------------------------------------------- */

static const char *relaxed_of(const char *schema)
{
    open_guide("response_format", GRAM_SCHEMA, schema, 1 << 24);
    REQUIRE_EQ_INT(ask(), 1);
    compile();
    REQUIRE_MSG(open_states(10, 1, 1) == 0, "%s", param_error.message);
    const struct srv_request *req = w.jobs.req;
    REQUIRE_EQ_INT(w.counts[SRV_COUNT_GRAMMAR_RELAXED], req->n_reply_headers);
    if (!req->n_reply_headers) return NULL;
    REQUIRE_EQ_STR(req->reply_headers[0].name, "x-schema-relaxed");
    return req->reply_headers[0].value;
}

static void test_relaxed(void **state)
{
    enum { MOST = 1000, N_KEYS = 200 };
    struct buf schema;
    (void)state;
    REQUIRE(!relaxed_of("{\"type\":\"integer\"}"));
    close_guide();
    REQUIRE_EQ_STR(relaxed_of("{\"properties\":{\"a b\":{\"format\":\"x\"}},\"format\":\"y\"}"),
                   "/properties/a%20b/format, /format");
    close_guide();
    buf_init(&schema, 1 << 20);
    buf_puts(&schema, "{\"properties\":{");
    for (int i = 0; i < N_KEYS; i++)
        buf_printf(&schema, "%s\"%03d\":{\"format\":\"x\"}", i ? "," : "", i);
    buf_add(&schema, "}}", 3);
    const char *all = relaxed_of(schema.data), *more = strstr(all, ", ...+");
    int n = 0;
    for (const char *p = all; (p = strstr(p, "/properties/")); p++)
        n++;
    REQUIRE(more && n > 30 && strlen(all) <= MOST);
    REQUIRE_EQ_INT(atoi(more + strlen(", ...+")), N_KEYS - n);
    close_guide();
    buf_finish(&schema);
}

/* ---- states -------------------------------------------------------------------------------- */

/* Without a word on it, reasoning leaves half of the tokens to an answer that must follow. */
static void test_think_budget(void **state)
{
    static const struct {
        const char *param;
        int64_t asked, budget;
    } cases[] = {
        {"guided_regex", SRV_THINK_UNSAID, 50},
        {NULL, SRV_THINK_UNSAID, SRV_THINK_UNSAID},
        {"guided_regex", SRV_THINK_ANY, SRV_THINK_ANY},
        {"guided_regex", 7, 7},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct grammar_source plain;
        open_guide(cases[i].param, GRAM_REGEX, "a+", 1 << 20);
        w.tools = (struct srv_tools){.may_think = true, .think_budget = cases[i].asked};
        w.tools.request.style = &test_model.style;
        w.guide.tools = &w.tools;
        REQUIRE_EQ_INT(ask(), 1);
        REQUIRE(w.guide.has_parts && w.guide.request.choice == TOOLS_CHOICE_AUTO);
        REQUIRE(w.guide.parts.auto_free == !cases[i].param);
        REQUIRE(w.guide.asked.content == (cases[i].param ? &w.guide.content : NULL));
        grammar_source_text(&plain, GRAM_REGEX, "a+", 2, &w.guide.ask.options);
        grammar_cache_compile(test_model.grammars, &plain, 0, NULL, NULL, &w.wait->result);
        end_wait(COMPILE_DONE);
        REQUIRE_EQ_INT(open_states(100, 1, 1), 0);
        REQUIRE_EQ_INT(w.guide.parts.think_budget, cases[i].budget);
        close_guide();
    }
}

static bool is_done(const void *ctx, int prompt)
{
    return ((const bool *)ctx)[prompt];
}

static struct grammar_choice *begin(int prompt, const bool *done)
{
    const struct eng_guide *guides = srv_guide_begin(&w.guide, prompt, 100, is_done, done);
    return w.guide.choices + (guides - w.guide.guides);
}

/* Each running prompt has states of its own, at the beginning; those of one that is done are taken over. */
static void test_slots(void **state)
{
    enum { N_PROMPTS = 3, N_CHOICES = 2 };
    bool done[N_PROMPTS] = {false};
    (void)state;
    open_guide("guided_regex", GRAM_REGEX, "ab", 1 << 20);
    REQUIRE_EQ_INT(ask(), 1);
    compile();
    REQUIRE_EQ_INT(open_states(10, N_PROMPTS, N_CHOICES), 0);
    REQUIRE_EQ_INT(w.guide.n_slots, N_PARALLEL);
    struct grammar_choice *first = begin(0, done), *second = begin(1, done);
    REQUIRE(first != second && first[0].state != first[1].state);
    REQUIRE(gram_take_bytes(first[0].state, "a", 1));
    REQUIRE(gram_take_bytes(first[1].state, "ab", 2));
    REQUIRE(gram_take_bytes(second[0].state, "a", 1));
    REQUIRE(begin(0, done) == first); /* its job was refused before */
    REQUIRE(gram_take_bytes(first[0].state, "a", 1) && gram_take_bytes(first[1].state, "a", 1));
    REQUIRE(gram_take_bytes(second[0].state, "b", 1) && gram_accepting(second[0].state));
    done[1] = true;
    REQUIRE(begin(2, done) == second);
    REQUIRE(!gram_accepting(second[0].state) && gram_take_bytes(second[0].state, "ab", 2));
    REQUIRE(gram_take_bytes(first[0].state, "b", 1));
    close_guide();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_bytes), cmocka_unit_test(test_ask),
        cmocka_unit_test(test_memory),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_deadlines),     cmocka_unit_test(test_relaxed),
        cmocka_unit_test(test_think_budget),  cmocka_unit_test(test_slots),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
