/* SPDX-License-Identifier: MIT */
/*
 * Order of compilations, their waits, and the share of a core that they take. gram_compile comes
 * through here (the linker sends it, see meson.build): a text that begins with 'h' is held until
 * the test opens the gate or the queue stops it, one that begins with 'w' works for as many
 * milliseconds as it says.
 */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "server/grammars/compile_queue.h"
#include "tokenizer/tokenizer.h"

int __real_gram_compile(struct gram **ret, const struct gram_vocab *vocab, enum gram_kind kind,
                        const char *text, size_t len, const struct gram_options *options,
                        struct gram_error *err);
int __wrap_gram_compile(struct gram **ret, const struct gram_vocab *vocab, enum gram_kind kind,
                        const char *text, size_t len, const struct gram_options *options,
                        struct gram_error *err);

enum { MAX_COMPILED = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static char order[MAX_COMPILED][16]; /* the texts compiled */
static int n_begun, n_done;
static atomic_bool gate_open, computes; /* an engine computes */
static uint64_t work_cpu_us, work_begin_us, work_end_us;
static long n_sleeps; /* of the last work */

static uint64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static bool work(int ms, const struct gram_options *options)
{
    struct rusage before, after;
    uint64_t begin_us = cpu_us(), end_us = begin_us + (uint64_t)ms * 1000;
    bool stopped = false;
    if (!work_begin_us) work_begin_us = clock_now_us();
    getrusage(RUSAGE_THREAD, &before);
    while (!stopped && cpu_us() < end_us)
        stopped = options->stop(options->stop_ctx);
    getrusage(RUSAGE_THREAD, &after);
    n_sleeps = after.ru_nvcsw - before.ru_nvcsw;
    work_cpu_us += cpu_us() - begin_us;
    work_end_us = clock_now_us();
    return stopped;
}

int __wrap_gram_compile(struct gram **ret, const struct gram_vocab *vocab, enum gram_kind kind,
                        const char *text, size_t len, const struct gram_options *options,
                        struct gram_error *err)
{
    bool stopped = false;
    pthread_mutex_lock(&lock);
    snprintf(order[n_begun++ % MAX_COMPILED], sizeof(order[0]), "%.*s", (int)len, text);
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    while (*text == 'h' && !atomic_load(&gate_open) && !stopped)
        stopped = options->stop(options->stop_ctx);
    if (*text == 'w') stopped = work(atoi(text + 1), options);
    if (!stopped) return __real_gram_compile(ret, vocab, kind, text, len, options, err);
    *err = (struct gram_error){.code = GRAM_ESTOPPED};
    return GRAM_ESTOPPED;
}

static bool busy(void *ctx)
{
    return atomic_load((atomic_bool *)ctx);
}

/* ---- the server ---------------------------------------------------------------------------- */

static struct tok *tok;
static struct grammar_cache *cache;
static struct compile_queue *queue;

static int load(void **state)
{
    (void)state;
    char dir[1000], err[300];
    snprintf(dir, sizeof(dir), "%s/deploy/demo", test_source_root());
    return tok_open(&tok, dir, err, sizeof(err));
}

static int unload(void **state)
{
    (void)state;
    tok_close(tok);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    static const int32_t end[] = {0};
    const struct grammar_cache_params p = {.tok = tok,
                                           .n_ids = tok_vocab_size(tok),
                                           .end_ids = end,
                                           .n_end_ids = 1,
                                           .max_bytes = 1 << 20};
    char err[200] = "";
    n_begun = n_done = 0;
    work_cpu_us = work_begin_us = 0;
    atomic_store(&gate_open, false);
    atomic_store(&computes, false);
    REQUIRE_EQ_INT(grammar_cache_create(&cache, &p), 0);
    REQUIRE_MSG(!compile_queue_create(&queue, busy, &computes, err, sizeof(err)), "%s", err);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    REQUIRE_EQ_INT(compile_queue_length(queue), 0);
    compile_queue_destroy(queue);
    grammar_cache_destroy(cache); /* no grammar is held */
    return 0;
}

/* ---- who waits ----------------------------------------------------------------------------- */

struct client {
    struct compile_wait wait;
    int n_done;
};

static void on_done(struct compile_wait *w)
{
    struct client *c = (struct client *)w;
    pthread_mutex_lock(&lock);
    c->n_done++;
    n_done++;
    grammar_cache_put(cache, w->result.gram);
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static void await(const int *counter, int n)
{
    pthread_mutex_lock(&lock);
    while (*counter < n)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}

static void ask(struct client *c, const char *text, uint64_t tenant, uint64_t deadline_us)
{
    static const struct gram_options options = {.strict = false};
    *c = (struct client){
        .wait = {.cache = cache, .tenant = tenant, .deadline_us = deadline_us, .done = on_done}};
    grammar_source_text(&c->wait.source, GRAM_REGEX, text, strlen(text), &options);
    compile_ask(queue, &c->wait);
}

static bool is_done_with(const struct client *c, enum compile_end end)
{
    return c->n_done == 1 && c->wait.end == end;
}

/* A compilation that another request waits for goes on although the first one has left. */
static void test_equal_grammars_are_compiled_once(void **state)
{
    (void)state;
    struct client a, b, c;
    ask(&a, "h1", 1, 0);
    await(&n_begun, 1);
    ask(&b, "h1", 2, 0);
    ask(&c, "h1", 1, 0);
    REQUIRE_EQ_INT(compile_queue_length(queue), 3);
    compile_leave(queue, &a.wait, NULL);
    compile_leave(queue, &a.wait, NULL);
    compile_leave(queue, &c.wait, NULL);
    REQUIRE(a.n_done == 0 && is_done_with(&c, COMPILE_LEFT));
    REQUIRE_EQ_INT(compile_queue_length(queue), 1);
    atomic_store(&gate_open, true);
    await(&n_done, 3);
    REQUIRE(is_done_with(&a, COMPILE_LEFT) && !a.wait.result.gram);
    REQUIRE(is_done_with(&b, COMPILE_DONE) && b.wait.result.gram && b.wait.result.kept);
    REQUIRE_EQ_INT(n_begun, 1);
    compile_leave(queue, &b.wait, NULL); /* nothing happens */
    REQUIRE_EQ_INT(b.n_done, 1);
}

static void test_errors_come_through(void **state)
{
    (void)state;
    struct client a, b, c;
    ask(&a, "(", 2, 0);
    ask(&b, "(", 2, 0);
    ask(&c, "(", 3, 0);
    await(&n_done, 3);
    REQUIRE(is_done_with(&a, COMPILE_DONE) && is_done_with(&b, COMPILE_DONE));
    REQUIRE(!a.wait.result.gram && a.wait.result.error.code == GRAM_EGRAMMAR);
    REQUIRE_EQ_STR(a.wait.result.error.message, b.wait.result.error.message);
    REQUIRE_EQ_INT(n_begun, 2); /* once per tenant */
}

static void test_the_last_to_leave_stops_the_compilation(void **state)
{
    (void)state;
    struct client a, b;
    ask(&a, "h1", 1, 0);
    await(&n_begun, 1);
    ask(&b, "h1", 2, 0);
    compile_leave(queue, &a.wait, NULL);
    compile_leave(queue, &b.wait, NULL);
    await(&n_done, 2);
    REQUIRE(is_done_with(&a, COMPILE_LEFT) && is_done_with(&b, COMPILE_LEFT));
    ask(&a, "h1", 1, 0); /* a stopped one is not remembered */
    await(&n_begun, 2);
    atomic_store(&gate_open, true);
    await(&n_done, 3);
    REQUIRE(is_done_with(&a, COMPILE_DONE) && a.wait.result.gram);
}

/* Someone who comes while a compilation is about to stop gets one of his own. */
static void test_a_compilation_that_stops_is_not_joined(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct client a, b;
        ask(&a, "h1", 1, 0);
        await(&n_begun, 1);
        compile_leave(queue, &a.wait, NULL);
        ask(&b, "h1", 1, 0);
        atomic_store(&gate_open, true);
        await(&n_done, 2);
        REQUIRE(is_done_with(&a, COMPILE_LEFT) && is_done_with(&b, COMPILE_DONE));
        REQUIRE(b.wait.result.gram != NULL);
        tear_down(NULL);
        set_up(NULL);
    }
}

static void test_leaving_the_line(void **state)
{
    (void)state;
    struct client held, a, b, c;
    ask(&held, "h", 1, 0);
    await(&n_begun, 1);
    ask(&a, "a", 1, 0);
    ask(&b, "b", 1, 0);
    ask(&c, "c", 1, 0);
    compile_leave(queue, &c.wait, NULL);
    compile_leave(queue, &a.wait, NULL);
    REQUIRE(is_done_with(&a, COMPILE_LEFT) && is_done_with(&c, COMPILE_LEFT));
    REQUIRE_EQ_INT(compile_queue_length(queue), 2);
    atomic_store(&gate_open, true);
    await(&n_done, 4);
    REQUIRE(is_done_with(&held, COMPILE_DONE) && is_done_with(&b, COMPILE_DONE));
    REQUIRE_EQ_INT(n_begun, 2);
    REQUIRE_EQ_STR(order[1], "b");
}

/* In the line, and while it is compiled. */
static void test_deadlines(void **state)
{
    (void)state;
    struct client held, queued, last;
    ask(&held, "h1", 1, 0);
    ask(&queued, "h2", 1, clock_now_us());
    await(&n_done, 1);
    REQUIRE(is_done_with(&queued, COMPILE_LATE) && held.n_done == 0);
    compile_leave(queue, &held.wait, NULL);
    await(&n_done, 2);
    ask(&last, "h3", 1, clock_now_us() + 2000);
    await(&n_done, 3);
    REQUIRE(is_done_with(&last, COMPILE_LATE));
}

static void test_tenants_take_turns(void **state)
{
    (void)state;
    static const char *const wanted[] = {"h", "b1", "c1", "a1", "b2", "a2", "a3"};
    static const struct {
        const char *text;
        uint64_t tenant;
    } rows[] = {{"h", 1}, {"a1", 1}, {"a2", 1}, {"a3", 1}, {"b1", 2}, {"b2", 2}, {"c1", 3}};
    struct client clients[7];
    for (int i = 0; i < 7; i++) {
        ask(&clients[i], rows[i].text, rows[i].tenant, 0);
        if (i == 0) await(&n_begun, 1);
    }
    atomic_store(&gate_open, true);
    await(&n_done, 7);
    for (int i = 0; i < 7; i++)
        REQUIRE_EQ_STR(order[i], wanted[i]);
}

static void test_ending_all_waits(void **state)
{
    (void)state;
    struct client a, b, c;
    ask(&a, "h1", 1, 0);
    await(&n_begun, 1);
    ask(&b, "h2", 1, 0);
    compile_leave(queue, NULL, (struct grammar_cache *)&a);
    REQUIRE_EQ_INT(compile_queue_length(queue), 2);
    compile_leave(queue, NULL, cache);
    await(&n_done, 2);
    ask(&a, "h1", 1, 0);
    ask(&b, "h2", 1, 0);
    compile_queue_close(queue);
    await(&n_done, 4);
    ask(&c, "c", 1, 0);
    REQUIRE(is_done_with(&a, COMPILE_LEFT) && is_done_with(&b, COMPILE_LEFT));
    REQUIRE(is_done_with(&c, COMPILE_LEFT));
}

/* ---- the share of a core ------------------------------------------------------------------- */

/* Work of one long compilation or of many short ones: a quarter of the time, but for a slice. */
static void test_a_quarter_while_an_engine_computes(void **state)
{
    (void)state;
    atomic_store(&computes, true);
    for (int n = 1; n <= 30; n += 29) {
        struct client clients[30];
        char texts[30][32];
        int before = n_done;
        work_cpu_us = work_begin_us = 0;
        for (int i = 0; i < n; i++) {
            snprintf(texts[i], sizeof(texts[i]), "w%dx%d", 30 / n, i);
            ask(&clients[i], texts[i], 1, 0);
        }
        await(&n_done, before + n);
        uint64_t took_us = work_end_us - work_begin_us;
        REQUIRE_MSG(work_cpu_us >= 30000 && took_us >= 4 * (work_cpu_us - 4000),
                    "%d compilations: %llu us of %llu us", n, (unsigned long long)work_cpu_us,
                    (unsigned long long)took_us);
    }
}

static void test_no_rest_otherwise(void **state)
{
    (void)state;
    struct client a;
    ask(&a, "w20", 1, 0);
    await(&n_done, 1);
    REQUIRE_MSG(n_sleeps <= 1, "%ld sleeps", n_sleeps);
}

/* Whoever rests hears that he is to stop. */
static void test_a_rest_ends_with_the_last_wait(void **state)
{
    (void)state;
    struct client a;
    atomic_store(&computes, true);
    ask(&a, "h1", 1, 0);
    await(&n_begun, 1);
    compile_leave(queue, &a.wait, NULL);
    await(&n_done, 1);
    REQUIRE(is_done_with(&a, COMPILE_LEFT));
}

/* ---- threads ------------------------------------------------------------------------------- */

enum { N_THREADS = 6, N_ROUNDS = 60 };

static void *ask_and_leave(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    for (int i = 0; i < N_ROUNDS; i++) {
        struct client c;
        char text[] = "a{1,9}";
        text[0] = (char)('a' + rand_r(&seed) % 6);
        ask(&c, text, (uint64_t)rand_r(&seed) % 3,
            rand_r(&seed) % 4 ? 0 : clock_now_us() + (uint64_t)rand_r(&seed) % 2000);
        if (rand_r(&seed) % 2) compile_leave(queue, &c.wait, NULL);
        await(&c.n_done, 1);
        REQUIRE(c.wait.end != COMPILE_DONE || c.wait.result.gram);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        REQUIRE_EQ_INT(pthread_create(&threads[i], NULL, ask_and_leave, (void *)(uintptr_t)(i + 1)),
                       0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    REQUIRE_EQ_INT(n_done, N_THREADS * N_ROUNDS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_equal_grammars_are_compiled_once),
        TEST(test_errors_come_through),
        TEST(test_the_last_to_leave_stops_the_compilation),
        TEST(test_a_compilation_that_stops_is_not_joined),
        TEST(test_leaving_the_line),
        TEST(test_deadlines),
        TEST(test_tenants_take_turns),
        TEST(test_ending_all_waits),
        TEST(test_a_quarter_while_an_engine_computes),
        TEST(test_no_rest_otherwise),
        TEST(test_a_rest_ends_with_the_last_wait),
        TEST(test_many_threads),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
