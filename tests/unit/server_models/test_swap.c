/* SPDX-License-Identifier: MIT */
/* What a swap looks for, its states, and who is told what. Directories, plans and engines are the
 * test's; so is the loader. */
#include "test.h"

#include <limits.h>

#include "server/models/app.h"
#include "server/models/catalogue.h"
#include "server/models/swap.h"

enum { MIB = 1 << 20 };

/* ---- what a swap calls --------------------------------------------------------------------- */

static int n_counted[SWAP_GIVEN_UP + 1];
static uint64_t counted_us;

void __wrap_srv_metrics_count_swap(struct srv_metrics *m, enum srv_swap_result result,
                                   uint64_t load_us);
void __wrap_srv_metrics_count_swap(struct srv_metrics *m, enum srv_swap_result result,
                                   uint64_t load_us)
{
    (void)m;
    n_counted[result]++;
    counted_us = load_us;
}

/* Models of the cache are in /hub, others where they are said to be; "gone" is nowhere. */
static int find(const char *root, const char *spec, char *dir, size_t size, char *err,
                size_t errlen)
{
    snprintf(dir, size, "%s%s", root, spec);
    snprintf(err, errlen, "no directory %s", spec);
    return strstr(spec, "gone") ? -1 : 0;
}

int __wrap_srv_hub_resolve(const char *spec, const char *(*env)(const char *name), char *dir,
                           size_t size, char *err, size_t errlen);
int __wrap_srv_hub_resolve(const char *spec, const char *(*env)(const char *name), char *dir,
                           size_t size, char *err, size_t errlen)
{
    (void)env;
    return find("", spec, dir, size, err, errlen);
}

int __wrap_srv_hub_resolve_cached(const char *spec, const char *(*env)(const char *name), char *dir,
                                  size_t size, char *err, size_t errlen);
int __wrap_srv_hub_resolve_cached(const char *spec, const char *(*env)(const char *name), char *dir,
                                  size_t size, char *err, size_t errlen)
{
    (void)env;
    return find("/hub/", spec, dir, size, err, errlen);
}

int __wrap_srv_hub_check(const char *dir, char *err, size_t errlen);
int __wrap_srv_hub_check(const char *dir, char *err, size_t errlen)
{
    snprintf(err, errlen, "%s has no weights", dir);
    return strstr(dir, "empty") ? -1 : 0;
}

/* The digest of a directory is its last letter. */
int __wrap_srv_model_source(const char *dir, const char *draft_dir, uint8_t ret[32]);
int __wrap_srv_model_source(const char *dir, const char *draft_dir, uint8_t ret[32])
{
    memset(ret, dir[strlen(dir) - 1] + (draft_dir ? 1 : 0), 32);
    return strstr(dir, "locked") ? -1 : 0;
}

static int64_t planned;
static int rc_of_plan;

int __wrap_srv_model_plan(struct eng_memory *ret, const struct srv_model_params *p,
                          int64_t memory_bytes, char *err, size_t errlen);
int __wrap_srv_model_plan(struct eng_memory *ret, const struct srv_model_params *p,
                          int64_t memory_bytes, char *err, size_t errlen)
{
    (void)p;
    (void)memory_bytes;
    *ret = (struct eng_memory){.weights_bytes = planned};
    snprintf(err, errlen, "unknown architecture");
    return rc_of_plan;
}

int64_t __wrap_eng_memory_limit(int64_t asked_bytes);
int64_t __wrap_eng_memory_limit(int64_t asked_bytes)
{
    return asked_bytes;
}

int64_t __wrap_srv_process_bytes(const struct srv_config *c, int entry);
int64_t __wrap_srv_process_bytes(const struct srv_config *c, int entry)
{
    (void)c;
    (void)entry;
    return 0;
}

const struct eng_info *__wrap_eng_info(const struct eng *e);
const struct eng_info *__wrap_eng_info(const struct eng *e)
{
    static const struct eng_info info = {.memory.weights_bytes = 100 * MIB};
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
}

void __wrap_eng_stats(struct eng *e, struct eng_stats *ret);
void __wrap_eng_stats(struct eng *e, struct eng_stats *ret)
{
    (void)e;
    *ret = (struct eng_stats){0};
}

/* ---- a server of two models: chat, of directory /a, and embed ------------------------------ */

static struct srv_config configs[2];
static struct srv_app app;
static struct srv_swap *swap;

static struct srv_model *publish(int entry, const char *name, uint8_t digest,
                                 struct srv_source *next, struct srv_model **before)
{
    struct srv_model *m = calloc(1, sizeof(*m));
    const struct srv_list names = {&name, 1};
    int n = 0;
    m->entry = entry;
    m->names = srv_names_copy(&names).items;
    memset(m->source, digest, sizeof(m->source));
    snprintf(m->fingerprint, sizeof(m->fingerprint), "print-%s", name);
    *before = srv_models_publish(&app.models, m, next, &n);
    return m;
}

static void open_app(void)
{
    static const char *const names[] = {"chat", "embed"};
    struct srv_model *before;
    memset(n_counted, 0, sizeof(n_counted));
    rc_of_plan = 0;
    planned = 50 * MIB;
    app = (struct srv_app){.config = &configs[0]};
    srv_models_init(&app.models);
    for (int i = 0; i < 2; i++) {
        configs[i] =
            (struct srv_config){.model_shown = i ? "/b" : "/a", .memory_bytes = 1000 * MIB};
        const char *name = names[i];
        const struct srv_model_params p = {.dir = configs[i].model_shown, .names = {&name, 1}};
        REQUIRE(srv_models_add(&app.models, &configs[i], &p));
        publish(i, name, (uint8_t)configs[i].model_shown[1], NULL, &before);
    }
    swap = srv_swap_create(&app);
    REQUIRE(swap);
}

static void close_app(void)
{
    srv_swap_destroy(swap);
    srv_models_finish(&app.models);
}

static int n_told;

static void note_told(struct srv_wait *w, bool ended)
{
    REQUIRE(ended && atomic_load(&w->end) == SRV_WAIT_DONE);
    n_told++;
}

static struct srv_wait asker;
static struct srv_outcome outcome;

static enum srv_swap_result start(struct srv_swap_params params, char err[200])
{
    n_told = 0;
    outcome = (struct srv_outcome){0};
    asker = (struct srv_wait){.wake = note_told, .outcome = &outcome};
    params.wait = &asker;
    return srv_swap_start(swap, &params, err, 200);
}

/* Starts a swap and plans it as the loader does. */
static const struct srv_entry *plan(struct srv_swap_params params, struct srv_source *ret)
{
    char err[200];
    REQUIRE(start(params, err) == SWAP_OK);
    REQUIRE(srv_models_await(&app.models).kind == SRV_TASK_SWAP);
    return srv_swap_plan(swap, ret);
}

static struct srv_swap_view view(void)
{
    struct srv_swap_view v;
    srv_swap_look(swap, &v);
    return v;
}

/* ---- the tests ----------------------------------------------------------------------------- */

/* From the first state to the last; what is told with the switch. */
static void one_swap(void **state)
{
    (void)state;
    struct srv_source next;
    struct srv_model *before;
    char err[200];
    const char *names[] = {"new", "two"};
    open_app();
    REQUIRE(view().state == SWAP_IDLE && !view().since && !*view().model);
    const struct srv_entry *e =
        plan((struct srv_swap_params){.model = "/x", .names = {names, 2}}, &next);
    REQUIRE(e == app.models.entries[0] && next.plan_bytes == 50 * MIB && !next.draft_dir);
    REQUIRE_EQ_STR(next.dir, "/x");
    REQUIRE_EQ_STR(next.names[1], "two");
    /* What the two that live leave. */
    REQUIRE(next.share.memory_bytes == 800 * MIB);
    REQUIRE(view().state == SWAP_PLANNING && view().since > 0);
    REQUIRE_EQ_STR(view().model, "new");
    REQUIRE_EQ_STR(view().previous, "");
    REQUIRE(start((struct srv_swap_params){0}, err) == SWAP_BUSY && n_counted[SWAP_BUSY] == 1);
    REQUIRE_EQ_STR(err, "Another swap is planning.");
    srv_swap_enter(swap, SWAP_LOADING);
    REQUIRE(view().state == SWAP_LOADING && n_told == 0);
    struct srv_model *m = publish(0, "new", 'x', &next, &before);
    srv_swap_switched(swap, m, before, 3, 412, 18);
    REQUIRE(n_told == 1 && outcome.result == SWAP_OK && view().state == SWAP_DRAINING);
    REQUIRE(outcome.load_ms == 412 && outcome.self_test_ms == 18 && outcome.n_draining == 3);
    REQUIRE_EQ_STR(outcome.previous, "chat");
    REQUIRE_EQ_STR(outcome.model, "new");
    REQUIRE_EQ_STR(outcome.fingerprint, "print-new");
    REQUIRE_EQ_STR(view().previous, "chat");
    REQUIRE(n_counted[SWAP_OK] == 1 && counted_us == 412000);
    REQUIRE(start((struct srv_swap_params){0}, err) == SWAP_BUSY);
    srv_swap_end(swap);
    REQUIRE(view().state == SWAP_IDLE && n_told == 0 && n_counted[SWAP_OK] == 1);
    close_app();
}

/* The one who waits for the end of the model before is told when that is closed, and no swap runs
 * then; without one, or when the server ends, at once. */
static void until_drained(void **state)
{
    (void)state;
    struct srv_source next;
    struct srv_model *before;
    for (int how = 0; how < 3; how++) {
        open_app();
        REQUIRE(plan((struct srv_swap_params){.model = "/x", .until_drained = true}, &next));
        struct srv_model *m = publish(0, "x", 'x', &next, &before);
        if (how == 2) srv_models_stop(&app.models);
        srv_swap_switched(swap, m, how == 1 ? NULL : before, 0, 1, 1);
        REQUIRE(n_told == (how == 2) && view().state == SWAP_DRAINING);
        struct srv_wait *w = srv_models_close(&app.models, before);
        REQUIRE(w == (how ? NULL : &asker));
        srv_swap_end(swap);
        REQUIRE(view().state == SWAP_IDLE && n_told == (how != 0));
        srv_wait_done(w);
        REQUIRE(n_told == 1 && outcome.result == SWAP_OK);
        REQUIRE_EQ_STR(outcome.fingerprint, "print-x");
        close_app();
    }
}

/* Where models are looked for. */
static void sources(void **state)
{
    (void)state;
    static const struct {
        const char *model, *draft, *shown, *draft_shown;
        const char *dir, *draft_dir, *draft_name, *name;
    } cases[] = {
        {"/x", NULL, "/a", "/d", "/x", NULL, "/d", "/x"},
        {"acme/x", NULL, "/a", NULL, "/hub/acme/x", NULL, NULL, "acme/x"},
        {"/x", "/y", "/a", "/d", "/x", "/y", "/y", "/x"},
        {"/x", "acme/y", "/a", NULL, "/x", "/hub/acme/y", "acme/y", "/x"},
        {NULL, NULL, "acme/x", "/d", "acme/x", "/d", "/d", "acme/x"},
        {NULL, "/y", "/a", "/d", "/a", "/y", "/y", "/a"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct srv_source next;
        open_app();
        configs[0].model_shown = cases[i].shown;
        configs[0].draft_shown = cases[i].draft_shown;
        const struct srv_swap_params p = {.model = cases[i].model, .draft_model = cases[i].draft};
        REQUIRE_MSG(plan(p, &next), "case %zu", i);
        REQUIRE_EQ_STR(next.dir, cases[i].dir);
        REQUIRE_EQ_STR(next.names[0], cases[i].name);
        REQUIRE(!cases[i].draft_dir == !next.draft_dir);
        if (next.draft_dir) REQUIRE_EQ_STR(next.draft_dir, cases[i].draft_dir);
        if (next.draft_dir) REQUIRE_EQ_STR(next.draft_name, cases[i].draft_name);
        srv_source_finish(&next);
        close_app();
    }
}

/* Nothing changes, and the one who waits has the reason. */
static void refusals(void **state)
{
    (void)state;
    static const char *const chat[] = {"chat", NULL}, *const embed[] = {"embed", NULL};
    static const struct {
        const char *model, *draft;
        const char *const *names;
        int rc_of_plan, plan_mib;
        enum srv_swap_result result;
        const char *message;
    } cases[] = {
        {"/gone", NULL, NULL, 0, 50, SWAP_NOT_FOUND, "no directory /gone"},
        {"acme/gone", NULL, NULL, 0, 50, SWAP_NOT_FOUND,
         "The model 'acme/gone' is not in the cache; hearth pull acme/gone fetches it"},
        {"/empty", NULL, NULL, 0, 50, SWAP_INVALID, "/empty has no weights"},
        {"/x", "/gone", NULL, 0, 50, SWAP_NOT_FOUND, "draft_model: no directory /gone"},
        {"/x", "/empty", NULL, 0, 50, SWAP_INVALID, "draft_model: /empty has no weights"},
        {"/x", NULL, embed, 0, 50, SWAP_INVALID,
         "another model answers to the name 'embed'; choose one by 'alias'"},
        {"/locked", NULL, NULL, 0, 50, SWAP_NOT_FOUND, "the directory of the model cannot be read"},
        {"/a", NULL, chat, 0, 50, SWAP_UNCHANGED, ""},
        {"/x", NULL, NULL, ENG_EINVAL, 50, SWAP_INVALID, "unknown architecture"},
        {"/x", NULL, NULL, 0, 801, SWAP_NO_MEMORY,
         "the model takes 801 MiB next to the running one's 200 MiB, but the limit is 1000 MiB "
         "(--memory)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct srv_source next;
        struct srv_swap_params p = {.model = cases[i].model, .draft_model = cases[i].draft};
        open_app();
        if (cases[i].names) p.names = srv_names_list(cases[i].names);
        rc_of_plan = cases[i].rc_of_plan;
        planned = (int64_t)cases[i].plan_mib * MIB;
        REQUIRE_MSG(!plan(p, &next), "case %zu", i);
        REQUIRE(n_told == 0);
        srv_swap_end(swap);
        REQUIRE(n_told == 1 && n_counted[cases[i].result] == 1 && view().state == SWAP_IDLE);
        REQUIRE_EQ_INT(outcome.result, cases[i].result);
        REQUIRE_EQ_STR(outcome.message, cases[i].message);
        REQUIRE((outcome.memory.limit != 0) == (cases[i].result == SWAP_NO_MEMORY));
        REQUIRE_EQ_STR(view().last_error, srv_public_reason(cases[i].message));
        struct srv_model *m = srv_models_of(&app.models, 0);
        REQUIRE(m && m->n_refs == 1);
        srv_model_release(m, false);
        close_app();
    }
}

static void loads_that_fail(void **state)
{
    (void)state;
    static const struct {
        enum srv_swap_state at;
        int rc;
        bool stopped;
        enum srv_swap_result result;
    } cases[] = {
        {SWAP_LOADING, ENG_EINVAL, false, SWAP_INVALID},
        {SWAP_LOADING, ENG_EFAILED, false, SWAP_INVALID},
        {SWAP_LOADING, ENG_ENOMEM, false, SWAP_NO_MEMORY},
        {SWAP_TESTING, ENG_EFAILED, false, SWAP_SELF_TEST},
        {SWAP_TESTING, ENG_EINVAL, false, SWAP_INVALID},
        {SWAP_TESTING, ENG_ENOMEM, false, SWAP_NO_MEMORY},
        {SWAP_LOADING, ENG_EINVAL, true, SWAP_GIVEN_UP},
        {SWAP_TESTING, ENG_EFAILED, true, SWAP_GIVEN_UP},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct srv_source next;
        char err[200];
        open_app();
        REQUIRE(plan((struct srv_swap_params){.model = "/x"}, &next));
        srv_source_finish(&next);
        srv_swap_enter(swap, cases[i].at);
        if (cases[i].stopped) srv_models_stop(&app.models);
        REQUIRE(n_told == 0); /* it is still the loader's */
        srv_swap_fail(swap, cases[i].rc, "torn");
        srv_swap_end(swap);
        REQUIRE(n_told == 1 && outcome.result == cases[i].result && outcome.memory.limit == 0);
        REQUIRE_EQ_STR(outcome.message, "torn");
        if (cases[i].stopped) {
            REQUIRE(start((struct srv_swap_params){0}, err) == SWAP_GIVEN_UP && n_told == 0);
            REQUIRE_EQ_STR(err, "The server is shutting down.");
        }
        close_app();
    }
}

/* The end of the server comes between the start of a swap and its planning; or its entry leaves. */
static void swaps_that_come_too_late(void **state)
{
    (void)state;
    struct srv_source next;
    char err[200];
    for (int vanishes = 0; vanishes < 2; vanishes++) {
        open_app();
        REQUIRE(start((struct srv_swap_params){.entry = 1, .model = "/x"}, err) == SWAP_OK);
        if (vanishes)
            srv_models_remove(&app.models, 1);
        else
            srv_models_stop(&app.models);
        REQUIRE(srv_models_await(&app.models).kind == SRV_TASK_SWAP);
        REQUIRE(!srv_swap_plan(swap, &next));
        srv_swap_end(swap);
        REQUIRE(n_told == 1 && outcome.result == (vanishes ? SWAP_NOT_FOUND : SWAP_GIVEN_UP));
        REQUIRE_EQ_STR(outcome.message, vanishes ? "The model 'embed' has vanished."
                                                 : "the server is shutting down");
        close_app();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_swap),        cmocka_unit_test(until_drained),
        cmocka_unit_test(sources),         cmocka_unit_test(refusals),
        cmocka_unit_test(loads_that_fail), cmocka_unit_test(swaps_that_come_too_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
