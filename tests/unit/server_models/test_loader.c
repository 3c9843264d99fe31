/* SPDX-License-Identifier: MIT */
/* The loader's thread with models that are the test's: loads of the start, on demand, next sources,
 * and what is in hand when the server ends. */
#include "test.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/grammars/compile_queue.h"
#include "server/models/app.h"
#include "server/models/catalogue.h"
#include "server/models/loader.h"
#include "server/models/swap.h"

enum { MIB = 1 << 20 };

/* ---- what happens ---------------------------------------------------------------------------- */

/* Where the loader's thread is held, until the test or the end of the server lets it go on. */
enum place { NOWHERE, IN_PLAN, IN_OPEN, IN_TEST };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards these */
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static enum place hold, held_at;
static int n_told, n_cut, n_given_up;
static char order[64]; /* o: opened, c: closed, D: drafts are loaded, t: a twin is dropped */

/* Set between two loads. */
static int rc_of_open, rc_of_text;

static void note(char what)
{
    pthread_mutex_lock(&lock);
    size_t len = strlen(order);
    if (len + 1 < sizeof(order)) memcpy(order + len, (char[]){what, '\0'}, 2);
    pthread_mutex_unlock(&lock);
}

/* Returns true if the load is to be given up. */
static bool pass(enum place place, const atomic_bool *stop)
{
    pthread_mutex_lock(&lock);
    if (hold == place) {
        held_at = place;
        pthread_cond_broadcast(&news);
    }
    while (hold == place && !(stop && atomic_load(stop)))
        pthread_cond_wait(&news, &lock);
    pthread_mutex_unlock(&lock);
    return stop && atomic_load(stop);
}

static void set_hold(enum place place)
{
    pthread_mutex_lock(&lock);
    hold = place;
    held_at = NOWHERE;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
}

static void await_held(void)
{
    pthread_mutex_lock(&lock);
    while (held_at != hold)
        pthread_cond_wait(&news, &lock);
    pthread_mutex_unlock(&lock);
}

/* Waits until a number is reached. */
static void await(const int *counter, int n)
{
    pthread_mutex_lock(&lock);
    while (*counter < n)
        pthread_cond_wait(&news, &lock);
    pthread_mutex_unlock(&lock);
}

static void count(int *counter)
{
    pthread_mutex_lock(&lock);
    ++*counter;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
}

static void note_told(struct srv_wait *w, bool ended)
{
    (void)w;
    if (ended) count(&n_told);
}

/* ---- models ---------------------------------------------------------------------------------- */

static struct srv_model_params opened; /* of the last one */

int __wrap_srv_model_open(struct srv_model **ret, const struct srv_model_params *p, char *err,
                          size_t errlen);
int __wrap_srv_model_open(struct srv_model **ret, const struct srv_model_params *p, char *err,
                          size_t errlen)
{
    opened = *p;
    bool given_up = pass(IN_OPEN, p->stop);
    if (p->on_self_test) p->on_self_test(p->on_self_test_ctx);
    given_up = pass(IN_TEST, p->stop) || given_up;
    snprintf(err, errlen, "%s", given_up ? "given up" : "torn");
    if (given_up) {
        count(&n_given_up);
        return ENG_ECLOSED;
    }
    if (rc_of_open) return rc_of_open;
    struct srv_model *m = calloc(1, sizeof(*m));
    m->entry = p->entry;
    m->config = p->config;
    m->names = srv_names_copy(&p->names).items;
    snprintf(m->fingerprint, sizeof(m->fingerprint), "print-%s", p->dir + 1);
    memset(m->source, p->dir[1], sizeof(m->source));
    note('o');
    *ret = m;
    return 0;
}

int __wrap_srv_model_try_text(const struct srv_model *m, char *err, size_t errlen);
int __wrap_srv_model_try_text(const struct srv_model *m, char *err, size_t errlen)
{
    (void)m;
    snprintf(err, errlen, "no sentence");
    return rc_of_text;
}

int __wrap_srv_model_source(const char *dir, const char *draft_dir, uint8_t ret[32]);
int __wrap_srv_model_source(const char *dir, const char *draft_dir, uint8_t ret[32])
{
    (void)draft_dir;
    memset(ret, dir[1], 32);
    return 0;
}

static struct srv_config configs[2]; /* chat of /a, which is loaded at the start; embed of /b */
static struct srv_app app;

int __wrap_srv_model_plan(struct eng_memory *ret, const struct srv_model_params *p,
                          int64_t memory_bytes, char *err, size_t errlen);
int __wrap_srv_model_plan(struct eng_memory *ret, const struct srv_model_params *p,
                          int64_t memory_bytes, char *err, size_t errlen)
{
    (void)p;
    (void)memory_bytes;
    (void)err;
    (void)errlen;
    pass(IN_PLAN, &app.models.stop);
    *ret = (struct eng_memory){.weights_bytes = 50 * MIB};
    return 0;
}

int __wrap_srv_catalogue_plan(const struct srv_config *c, const char *dir, struct srv_plan *plans,
                              char *err, size_t errlen);
int __wrap_srv_catalogue_plan(const struct srv_config *c, const char *dir, struct srv_plan *plans,
                              char *err, size_t errlen)
{
    static const char *names[] = {"chat", "embed"};
    (void)err;
    (void)errlen;
    REQUIRE_EQ_STR(dir, "/a");
    for (int i = 0; i <= c->n_more; i++)
        plans[i] = (struct srv_plan){.names = srv_names_copy(&(struct srv_list){&names[i], 1}),
                                     .share = {.memory_bytes = 100 + i},
                                     .bytes = 40 + i,
                                     .starts = i == 0};
    return 0;
}

void __wrap_srv_catalogue_facts(struct srv_model_facts *ret, const char *dir, int64_t ctx_tokens);
void __wrap_srv_catalogue_facts(struct srv_model_facts *ret, const char *dir, int64_t ctx_tokens)
{
    *ret = (struct srv_model_facts){.ctx_tokens = ctx_tokens, .n_params = dir[1]};
}

int64_t __wrap_eng_memory_limit(int64_t asked_bytes);
int64_t __wrap_eng_memory_limit(int64_t asked_bytes)
{
    (void)asked_bytes;
    return 1000 * MIB;
}

int64_t __wrap_srv_process_bytes(const struct srv_config *c, int entry);
int64_t __wrap_srv_process_bytes(const struct srv_config *c, int entry)
{
    (void)c;
    (void)entry;
    return 0;
}

int __wrap_srv_hub_check(const char *dir, char *err, size_t errlen);
int __wrap_srv_hub_check(const char *dir, char *err, size_t errlen)
{
    (void)dir;
    (void)err;
    (void)errlen;
    return 0;
}

int __wrap_srv_hub_resolve(const char *spec, const char *(*env)(const char *name), char *dir,
                           size_t size, char *err, size_t errlen);
int __wrap_srv_hub_resolve(const char *spec, const char *(*env)(const char *name), char *dir,
                           size_t size, char *err, size_t errlen)
{
    (void)env;
    (void)err;
    (void)errlen;
    snprintf(dir, size, "%s", spec);
    return 0;
}

const struct eng_info *__wrap_eng_info(const struct eng *e);
const struct eng_info *__wrap_eng_info(const struct eng *e)
{
    static const struct eng_info info = {.ctx_tokens = 77, .self_test_seconds = 0.005};
    (void)e;
    return &info;
}

bool __wrap_eng_stop_begin(struct eng *e);
bool __wrap_eng_stop_begin(struct eng *e)
{
    (void)e;
    return true;
}

void __wrap_eng_stop(struct eng *e);
void __wrap_eng_stop(struct eng *e)
{
    (void)e;
}

void __wrap_eng_close(struct eng *e);
void __wrap_eng_close(struct eng *e)
{
    (void)e;
    note('c');
}

void __wrap_eng_stats(struct eng *e, struct eng_stats *ret);
void __wrap_eng_stats(struct eng *e, struct eng_stats *ret)
{
    (void)e;
    *ret = (struct eng_stats){0};
}

int __wrap_eng_load_drafts(struct eng *e, const uint64_t *common);
int __wrap_eng_load_drafts(struct eng *e, const uint64_t *common)
{
    (void)e;
    (void)common;
    note('D');
    return 0;
}

void __wrap_eng_drop_twin(struct eng *e);
void __wrap_eng_drop_twin(struct eng *e)
{
    (void)e;
    note('t');
}

void __wrap_srv_metrics_count_swap(struct srv_metrics *m, enum srv_swap_result result,
                                   uint64_t load_us);
void __wrap_srv_metrics_count_swap(struct srv_metrics *m, enum srv_swap_result result,
                                   uint64_t load_us)
{
    (void)m;
    (void)result;
    (void)load_us;
}

void __wrap_srv_metrics_observe(struct srv_metrics *m, enum srv_time what, uint64_t us);
void __wrap_srv_metrics_observe(struct srv_metrics *m, enum srv_time what, uint64_t us)
{
    (void)m;
    REQUIRE(what == SRV_TIME_MODEL_LOAD && us < clock_now_us());
}

void __wrap_compile_leave(struct compile_queue *q, const struct compile_wait *w,
                          const struct grammar_cache *cache);
void __wrap_compile_leave(struct compile_queue *q, const struct compile_wait *w,
                          const struct grammar_cache *cache)
{
    (void)q;
    (void)cache;
    count(&n_cut);
}

/* ---- a server -------------------------------------------------------------------------------- */

static struct srv_loader *loader;
static struct eng_cores *const cores = (struct eng_cores *)&configs; /* never followed */
static int event_fd;

/* Returns what srv_loader_result says of the start. */
static int open_app(char err[200])
{
    n_told = n_cut = n_given_up = 0;
    *order = '\0';
    configs[0] = (struct srv_config){.model = "/a",
                                     .model_shown = "/a",
                                     .load = "auto",
                                     .parallel = 1,
                                     .n_more = 1,
                                     .more = &configs[1]};
    configs[1] = (struct srv_config){
        .model = "/b", .model_shown = "/b", .load = "demand", .entry = "embed", .parallel = 1};
    app = (struct srv_app){.config = &configs[0]};
    srv_models_init(&app.models);
    app.swap = srv_swap_create(&app);
    event_fd = eventfd(0, EFD_CLOEXEC);
    REQUIRE(app.swap && event_fd >= 0);
    REQUIRE(srv_loader_start(&loader, &app, cores, event_fd, err, 200) == 0);
    uint64_t ready;
    REQUIRE(read(event_fd, &ready, sizeof(ready)) == sizeof(ready));
    return srv_loader_result(loader, err, 200);
}

static void open_good(void)
{
    char err[200];
    REQUIRE(open_app(err) == 0 && atomic_load(&app.state) == SRV_READY);
}

static void stop_app(void)
{
    srv_models_stop(&app.models);
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&news); /* a load that is held sees it */
    pthread_mutex_unlock(&lock);
}

static void close_app(void)
{
    stop_app();
    srv_loader_finish(loader);
    srv_swap_destroy(app.swap);
    srv_models_finish(&app.models);
    close(event_fd);
}

static struct srv_wait waits[2];

static enum srv_ask ask(int entry, int i)
{
    waits[i] = (struct srv_wait){.wake = note_told, .by_operator = true};
    return srv_models_ask(&app.models, entry, &waits[i]);
}

/* Embed is loaded; the wait's reference to it. */
static struct srv_model *load_embed(void)
{
    int before = n_told;
    REQUIRE(ask(1, 0) == SRV_ASK_WAITS);
    await(&n_told, before + 1);
    REQUIRE(atomic_load(&waits[0].end) == SRV_WAIT_GIVEN);
    return waits[0].model;
}

static struct srv_outcome outcome;

static void start_swap(bool until_drained)
{
    static const char *names[] = {"new"};
    char err[200];
    waits[1] = (struct srv_wait){.wake = note_told, .outcome = &outcome};
    const struct srv_swap_params params = {
        .model = "/x", .names = {names, 1}, .until_drained = until_drained, .wait = &waits[1]};
    outcome = (struct srv_outcome){0};
    REQUIRE(srv_swap_start(app.swap, &params, err, sizeof(err)) == SWAP_OK);
}

static enum srv_swap_state state_of_swap(void)
{
    struct srv_swap_view v;
    srv_swap_look(app.swap, &v);
    return v.state;
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void loads_of_the_start(void **state)
{
    (void)state;
    char err[200];
    open_good();
    REQUIRE(srv_models_is_loaded(&app.models, 0) && !srv_models_is_loaded(&app.models, 1));
    REQUIRE(!opened.stop && !opened.in_background && !opened.beside_others);
    REQUIRE(opened.cores == cores);
    REQUIRE(opened.share.memory_bytes == 100 && !strcmp(opened.dir, "/a"));
    const struct srv_source *embed = &app.models.entries[1]->source;
    REQUIRE(embed->plan_bytes == 41 && embed->facts.n_params == 'b');
    close_app();
    REQUIRE_EQ_STR(order + 2, "c");
    rc_of_text = -1; /* it is not tried at the start: what is wrong shows with a request */
    open_good();
    rc_of_text = 0;
    close_app();
    rc_of_open = ENG_EINVAL;
    REQUIRE(open_app(err) == EXIT_FAILURE && atomic_load(&app.state) == SRV_FAILED);
    REQUIRE_EQ_STR(err, "model chat: torn");
    rc_of_open = 0;
    close_app();
}

static void loads_on_demand(void **state)
{
    (void)state;
    int n = -1;
    open_good();
    struct srv_model *m = load_embed();
    waits[1] = (struct srv_wait){.wake = note_told};
    REQUIRE(opened.stop == &app.models.give_up && opened.beside_others && !opened.in_background);
    REQUIRE(m->plan_bytes == 41 && !strcmp(m->fingerprint, "print-b"));
    REQUIRE(srv_models_unload(&app.models, 1, &n, &waits[1]) == SRV_UNLOAD_WAITS && n == 1);
    srv_model_release(m, true);
    await(&n_told, 2);
    REQUIRE(atomic_load(&waits[1].end) == SRV_WAIT_DONE);
    REQUIRE_EQ_STR(order, "oDoDc");
    /* A load that fails leaves nothing; the next one is another. */
    rc_of_open = ENG_EINVAL;
    REQUIRE(ask(1, 0) == SRV_ASK_WAITS);
    await(&n_told, 3);
    REQUIRE(atomic_load(&waits[0].end) == SRV_WAIT_FAILED && !strcmp(waits[0].message, "torn"));
    rc_of_open = 0;
    rc_of_text = -1;
    REQUIRE(ask(1, 0) == SRV_ASK_WAITS);
    await(&n_told, 4);
    REQUIRE(atomic_load(&waits[0].end) == SRV_WAIT_FAILED);
    REQUIRE_EQ_STR(waits[0].message, "no sentence");
    REQUIRE_EQ_STR(order, "oDoDcoc");
    rc_of_text = 0;
    srv_model_release(load_embed(), true);
    close_app();
}

/* Nobody waits any longer. */
static void a_load_that_is_given_up(void **state)
{
    (void)state;
    open_good();
    set_hold(IN_OPEN);
    REQUIRE(ask(1, 0) == SRV_ASK_WAITS);
    await_held();
    srv_models_leave(&app.models, &waits[0]);
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
    await(&n_given_up, 1);
    set_hold(NOWHERE);
    srv_model_release(load_embed(), true);
    REQUIRE(app.models.entries[1]->n_failed_loads == 0);
    close_app();
}

/* The twins of all go before; drafts come back when the model before is gone, and then who waits
 * for that is told. */
static void the_next_source(void **state)
{
    (void)state;
    open_good();
    struct srv_model *before = srv_models_of(&app.models, 0);
    start_swap(true);
    struct srv_model *m;
    while ((m = srv_models_of(&app.models, 0)) == before) {
        srv_model_release(m, false);
        sched_yield();
    }
    REQUIRE(opened.stop == &app.models.stop && opened.in_background);
    REQUIRE(app.models.entries[0]->source.facts.n_params == 'x');
    REQUIRE(app.models.entries[0]->source.facts.ctx_tokens == 77);
    REQUIRE(n_told == 0 && m->plan_bytes == 50 * MIB);
    srv_model_release(m, true);
    srv_model_release(before, true);
    await(&n_told, 1);
    REQUIRE(state_of_swap() == SWAP_IDLE && outcome.result == SWAP_OK && outcome.self_test_ms >= 5);
    REQUIRE_EQ_STR(outcome.fingerprint, "print-x");
    REQUIRE_EQ_STR(order, "oDtocD");
    /* It fails: all stays. */
    rc_of_text = -1;
    start_swap(false);
    await(&n_told, 2);
    REQUIRE(outcome.result == SWAP_UNCHANGED); /* of the same directory and names */
    m = srv_models_of(&app.models, 0);
    memset(m->source, 0, sizeof(m->source));
    srv_model_release(m, false);
    start_swap(false);
    await(&n_told, 3);
    REQUIRE(outcome.result == SWAP_SELF_TEST && !strcmp(outcome.message, "no sentence"));
    REQUIRE(state_of_swap() == SWAP_IDLE && srv_models_is_loaded(&app.models, 0));
    rc_of_text = 0;
    close_app();
}

/* The end of the server in each state of a swap. */
static void the_end_in_each_state(void **state)
{
    (void)state;
    static const struct {
        enum place at;
        enum srv_swap_state state;
        enum srv_swap_result result;
    } cases[] = {{IN_PLAN, SWAP_PLANNING, SWAP_GIVEN_UP},
                 {IN_OPEN, SWAP_LOADING, SWAP_GIVEN_UP},
                 {IN_TEST, SWAP_TESTING, SWAP_GIVEN_UP},
                 {NOWHERE, SWAP_DRAINING, SWAP_OK}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_good();
        struct srv_model *before = srv_models_of(&app.models, 0);
        set_hold(cases[i].at);
        start_swap(true);
        if (cases[i].at)
            await_held();
        else
            while (state_of_swap() != SWAP_DRAINING)
                sched_yield();
        REQUIRE(state_of_swap() == cases[i].state && n_told == 0);
        stop_app();
        await(&n_told, 1);
        REQUIRE_MSG(outcome.result == cases[i].result, "%d", outcome.result);
        set_hold(NOWHERE);
        srv_model_release(before, true);
        close_app();
    }
}

/* The time of a model to drain is over: its requests are cut, and it goes when they have ended. */
static void a_model_that_is_cut(void **state)
{
    (void)state;
    int n;
    open_good();
    struct srv_model *m = load_embed();
    configs[1].swap_drain_ms = 1;
    waits[1] = (struct srv_wait){.wake = note_told};
    REQUIRE(srv_models_unload(&app.models, 1, &n, &waits[1]) == SRV_UNLOAD_WAITS);
    pthread_mutex_lock(&app.models.lock);
    m->cut_us = 1;
    pthread_mutex_unlock(&app.models.lock);
    srv_models_tick(&app.models);
    await(&n_cut, 1);
    REQUIRE(atomic_load(&m->unloaded) && n_told == 1);
    srv_model_release(m, true);
    await(&n_told, 2);
    close_app();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_of_the_start),      cmocka_unit_test(loads_on_demand),
        cmocka_unit_test(a_load_that_is_given_up), cmocka_unit_test(the_next_source),
        cmocka_unit_test(the_end_in_each_state),   cmocka_unit_test(a_model_that_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
