/* SPDX-License-Identifier: MIT */
/* The set of models: who gets a request, who drains, what is counted. Engines are only counters. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/models/set.h"

/* Of the engines of the test, which are numbers instead of pointers. */
static int n_stopped;

void __wrap_eng_stats(struct eng *e, struct eng_stats *ret);
void __wrap_eng_stop(struct eng *e);
void __wrap_eng_close(struct eng *e);
bool __wrap_eng_stop_begin(struct eng *e);

/* The engine whose pages are being written. */
static uintptr_t writes;

bool __wrap_eng_stop_begin(struct eng *e)
{
    return (uintptr_t)e != writes;
}

void __wrap_eng_stats(struct eng *e, struct eng_stats *ret)
{
    *ret = (struct eng_stats){.n_steps = (uint64_t)(uintptr_t)e, .n_pages_total = (int)(intptr_t)e};
}

void __wrap_eng_stop(struct eng *e)
{
    (void)e;
    n_stopped++;
}

void __wrap_eng_close(struct eng *e)
{
    (void)e;
}

/* Its request ends as soon as somebody waits for a change, and its answers of 70 bytes are sent. */
static struct srv_model *held;
static int n_answers, n_signals;

int __wrap_pthread_cond_signal(pthread_cond_t *cond);

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    (void)cond;
    n_signals++;
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until)
{
    (void)cond;
    (void)until;
    pthread_mutex_unlock(lock);
    for (; n_answers > 0; n_answers--) {
        srv_model_drop_answer(held, 70);
        REQUIRE(n_signals == (n_answers == 1)); /* by the last one */
    }
    if (held && held->n_refs) srv_model_release(held, true);
    held = NULL;
    pthread_mutex_lock(lock);
    return 0;
}

static struct srv_config configs[4];

/* Entries of 40 bytes each. */
static void open_set(struct srv_models *set, const char *const (*names)[3], int n)
{
    srv_models_init(set);
    for (int i = 0; i < n; i++) {
        configs[i] = (struct srv_config){.parallel = 1, .max_queue = 2};
        struct srv_list list = {(const char **)names[i], names[i][1] ? 2 : 1};
        struct srv_entry *e = srv_models_add(
            set, &configs[i], &(struct srv_model_params){.dir = "/d", .names = list});
        REQUIRE(e && e->number == i);
        e->source.plan_bytes = 40;
    }
    n_stopped = 0;
}

static struct srv_model *new_model(int entry, uintptr_t engine)
{
    struct srv_model *m = calloc(1, sizeof(*m));
    const char **names = calloc(1, sizeof(*names));
    REQUIRE(m && names);
    m->names = names;
    m->entry = entry;
    m->engine = (struct eng *)engine; // NOLINT: never followed
    return m;
}

static struct srv_model *publish(struct srv_models *set, struct srv_model *m, int want_requests)
{
    int n = -1;
    struct srv_model *before = srv_models_publish(set, m, NULL, &n);
    REQUIRE(n == want_requests);
    REQUIRE(m->set == set && m->created > 0);
    return before;
}

static const char *const three[][3] = {{"chat", "gpt"}, {"embed"}, {"rerank", "judge"}};

/* The model of the name, or for NULL of the default entry. */
static struct srv_model *take(struct srv_models *set, const char *name)
{
    return srv_models_of(set, name ? srv_models_find(set, name) : atomic_load(&set->default_entry));
}

/* A name leads to its model, every other one to none. */
static void a_name_leads_to_its_model(void **state)
{
    (void)state;
    struct srv_models set;
    char text[100], small[8];
    open_set(&set, three, 3);
    REQUIRE(!take(&set, NULL) && !take(&set, "chat"));
    struct srv_model *embed = new_model(1, 2), *chat = new_model(0, 1), *rerank = new_model(2, 3);
    REQUIRE(!publish(&set, embed, 0) && !publish(&set, rerank, 0));
    REQUIRE(!take(&set, NULL)); /* the first entry is not loaded */
    REQUIRE(!publish(&set, chat, 0));
    const struct {
        const char *name;
        struct srv_model *want;
    } cases[] = {{NULL, chat},      {"chat", chat},  {"gpt", chat}, {"embed", embed},
                 {"judge", rerank}, {"EMBED", NULL}, {"", NULL},    {"embe", NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct srv_model *m = take(&set, cases[i].name);
        REQUIRE(m == cases[i].want && (!m || m->n_refs == 1));
        srv_model_release(m, true);
    }
    REQUIRE(chat->n_refs == 0 && embed->n_refs == 0 && rerank->n_refs == 0);
    REQUIRE(srv_models_find(&set, "judge") == 2 && srv_models_find(&set, "nope") == -1);
    REQUIRE(srv_models_of(&set, 1) == embed && !srv_models_of(&set, 3));
    srv_model_release(embed, false);
    REQUIRE_EQ_STR(srv_models_names(&set, NULL, text, sizeof(text)),
                   "'chat', 'gpt', 'embed', 'rerank', 'judge'");
    REQUIRE_EQ_STR(srv_models_names(&set, NULL, small, sizeof(small)), "'chat',");
    srv_models_finish(&set);
}

static void note_engine(void *ctx, struct srv_model *m)
{
    char **at = ctx;
    *(*at)++ = (char)('0' + (uintptr_t)m->engine);
}

static const char *order(struct srv_models *set, char text[8])
{
    char *at = text;
    srv_models_each(set, note_engine, &at);
    *at = '\0';
    return text;
}

static struct srv_task next_task(struct srv_models *set)
{
    srv_models_stop(set); /* so that it does not wait; what is there comes first */
    atomic_store(&set->stop, false);
    set->has_swap = true;
    struct srv_task task = srv_models_await(set);
    REQUIRE(task.kind == SRV_TASK_SWAP);
    return srv_models_await(set);
}

/* Several models of one entry drain at once; the other entry is not touched. */
static void models_drain_in_any_number(void **state)
{
    (void)state;
    struct srv_models set;
    struct srv_models_view view;
    char text[8];
    open_set(&set, three, 2);
    struct srv_model *a = new_model(0, 1), *b = new_model(1, 2), *c = new_model(1, 3),
                     *d = new_model(1, 4);
    publish(&set, a, 0);
    publish(&set, b, 0);
    REQUIRE(take(&set, "embed") == b && take(&set, "embed") == b);
    REQUIRE(publish(&set, c, 2) == b && b->drains && !c->drains);
    REQUIRE(take(&set, "embed") == c);
    REQUIRE(publish(&set, d, 1) == c);
    REQUIRE_EQ_STR(order(&set, text), "1423");
    srv_models_look(&set, &view);
    REQUIRE(view.n_loaded == 4 && view.n_draining == 3 && view.stats.n_steps == 1 + 2 + 3 + 4);
    REQUIRE(view.stats.n_pages_total == 1 + 4);
    srv_model_release(b, true);
    srv_model_release(b, true);
    struct srv_task task = next_task(&set);
    REQUIRE(task.kind == SRV_TASK_FREE && task.model == b);
    srv_models_close(&set, b);
    REQUIRE_EQ_STR(order(&set, text), "143");
    REQUIRE(n_stopped == 1);
    srv_models_look(&set, &view);
    REQUIRE(view.n_loaded == 3 && view.n_draining == 1 && view.stats.n_steps == 1 + 2 + 3 + 4);
    c->cut_us = 1; /* its time is over */
    task = next_task(&set);
    REQUIRE(task.kind == SRV_TASK_CUT && task.model == c);
    srv_model_release(c, true);
    srv_models_finish(&set);
}

static int n_woken;

static void note_wake(struct srv_wait *w, bool ended)
{
    (void)w;
    n_woken += ended ? 1 : 100;
}

static struct srv_wait waits[8];

static enum srv_ask ask_by(struct srv_models *set, int entry, int i, uint64_t key)
{
    waits[i] = (struct srv_wait){.wake = note_wake, .key = key, .several_keys = key != 0};
    return srv_models_ask(set, entry, &waits[i]);
}

static enum srv_ask ask(struct srv_models *set, int entry, int i)
{
    return ask_by(set, entry, i, 0);
}

/* All that wait for a load have the model in the moment in which it is there. */
static void waiters(void **state)
{
    (void)state;
    struct srv_models set;
    open_set(&set, three, 3);
    set.limit_bytes = 100;
    n_woken = 0;
    for (int i = 0; i < 3; i++)
        REQUIRE(ask(&set, 1, i) == SRV_ASK_WAITS);
    REQUIRE(ask(&set, 1, 3) == SRV_ASK_FULL); /* one runs and two wait */
    REQUIRE_EQ_STR(srv_entry_state_name(set.entries[1]), "queued");
    srv_models_leave(&set, &waits[1]);
    srv_models_leave(&set, &waits[1]);
    REQUIRE(n_woken == 1 && atomic_load(&waits[1].end) == SRV_WAIT_LEFT);
    struct srv_task task = srv_models_await(&set);
    REQUIRE(task.kind == SRV_TASK_LOAD && task.entry == 1);
    REQUIRE_EQ_STR(srv_entry_state_name(set.entries[1]), "loading");
    struct srv_model *m = new_model(1, 2);
    publish(&set, m, 0);
    REQUIRE(n_woken == 3 && m->n_refs == 2 && waits[0].model == m && waits[2].model == m);
    REQUIRE(atomic_load(&waits[0].end) == SRV_WAIT_GIVEN);
    REQUIRE(ask(&set, 1, 4) == SRV_ASK_GIVEN && m->n_refs == 3);
    int n = -1;
    REQUIRE(srv_models_unload(&set, 1, &n, NULL) == SRV_UNLOAD_OK && n == 3);
    REQUIRE(srv_models_unload(&set, 1, &n, NULL) == SRV_UNLOAD_NOT_LOADED);
    REQUIRE(ask(&set, 1, 5) == SRV_ASK_WAITS); /* of the next load */
    task = srv_models_await(&set);
    REQUIRE(task.kind == SRV_TASK_LOAD && task.entry == 1);
    srv_models_leave(&set, &waits[5]);
    REQUIRE(atomic_load(&set.give_up));
    srv_models_fail(&set, 1, "", true);
    REQUIRE_EQ_STR(srv_entry_state_name(set.entries[1]), "unloaded");
    for (int i = 0; i < 3; i++)
        srv_model_release(m, true);
    srv_models_finish(&set);
}

/* A model whose pages are still being written to a disk holds up no load. */
static void a_model_that_writes(void **state)
{
    (void)state;
    struct srv_models set;
    open_set(&set, three, 3);
    set.limit_bytes = 100;
    struct srv_model *a = new_model(0, 1);
    publish(&set, a, 0);
    int n = -1;
    writes = 1;
    REQUIRE(srv_models_unload(&set, 0, &n, NULL) == SRV_UNLOAD_OK && n == 0);
    REQUIRE(ask(&set, 1, 0) == SRV_ASK_WAITS);
    struct srv_task task = srv_models_await(&set);
    REQUIRE(task.kind == SRV_TASK_LOAD && task.entry == 1);
    publish(&set, new_model(1, 2), 0);
    writes = 0;
    task = srv_models_await(&set);
    REQUIRE(task.kind == SRV_TASK_FREE && task.model == a);
    srv_models_close(&set, a);
    srv_model_release(waits[0].model, true);
    srv_models_finish(&set);
}

/* Of several keys none fills more than half of the places. */
static void places_of_keys(void **state)
{
    (void)state;
    struct srv_models set;
    open_set(&set, three, 2);
    configs[0].max_queue = configs[1].max_queue = 5; /* and one runs */
    for (int i = 0; i < 3; i++)
        REQUIRE(ask_by(&set, 0, i, 7) == SRV_ASK_WAITS);
    REQUIRE(ask_by(&set, 0, 3, 7) == SRV_ASK_FULL);
    for (int i = 3; i < 6; i++)
        REQUIRE(ask_by(&set, 0, i, 8) == SRV_ASK_WAITS);
    REQUIRE(ask_by(&set, 0, 6, 9) == SRV_ASK_FULL);
    srv_models_leave(&set, &waits[1]);
    REQUIRE(ask_by(&set, 0, 6, 8) == SRV_ASK_FULL && ask_by(&set, 0, 6, 7) == SRV_ASK_WAITS);
    for (int i = 0; i < 7; i++)
        srv_models_leave(&set, &waits[i]);
    for (int i = 0; i < 6; i++)
        REQUIRE(ask(&set, 1, i) == SRV_ASK_WAITS); /* one key has all */
    REQUIRE(ask(&set, 1, 6) == SRV_ASK_FULL);
    srv_models_stop(&set);
    srv_models_finish(&set);
}

/* The model of another entry, idle for long, whose room is wanted. */
static struct srv_model *publish_idle(struct srv_models *set)
{
    struct srv_model *m = new_model(0, 1);
    publish(set, m, 0);
    set->entries[0]->load_us = 0;
    set->entries[0]->loaded_us -= 10000000;
    set->entries[0]->used_us -= 10000000;
    return m;
}

/* A key whose load was given up after an eviction evicts no more for a while; others do. */
static void evictors_who_leave(void **state)
{
    (void)state;
    struct srv_models set;
    open_set(&set, three, 2);
    set.limit_bytes = 60;
    for (int loading = 0; loading < 2; loading++) {
        uint64_t key = 7 + (uint64_t)loading;
        struct srv_model *m = publish_idle(&set);
        REQUIRE(ask_by(&set, 1, 0, key) == SRV_ASK_WAITS);
        waits[0].since_us -= POLICY_LOOK_US;
        struct srv_task task = srv_models_await(&set);
        REQUIRE(task.kind == SRV_TASK_FREE && task.model == m);
        srv_models_close(&set, m);
        if (loading) REQUIRE(srv_models_await(&set).kind == SRV_TASK_LOAD);
        REQUIRE(policy_may_evict(&set.keys, key, clock_now_us()));
        srv_models_leave(&set, &waits[0]);
        if (loading) srv_models_fail(&set, 1, "", true);
        REQUIRE(!policy_may_evict(&set.keys, key, clock_now_us()));
    }
    /* For one that has a load, and for a third key, all is as before. */
    struct srv_model *m = publish_idle(&set);
    REQUIRE(ask_by(&set, 1, 0, 7) == SRV_ASK_WAITS && ask_by(&set, 1, 1, 9) == SRV_ASK_WAITS);
    waits[0].since_us -= 2 * POLICY_LOOK_US;
    waits[1].since_us -= POLICY_LOOK_US;
    REQUIRE(srv_models_await(&set).model == m && set.entries[1]->evictor == 9);
    srv_models_close(&set, m);
    REQUIRE(srv_models_await(&set).kind == SRV_TASK_LOAD);
    struct srv_model *wanted = new_model(1, 2);
    publish(&set, wanted, 0);
    REQUIRE(wanted->n_refs == 2 && policy_may_evict(&set.keys, 9, clock_now_us()));
    srv_model_release(wanted, true);
    srv_model_release(wanted, true);
    srv_models_finish(&set);
}

static void loads_that_fail_or_never_fit(void **state)
{
    (void)state;
    struct srv_models set;
    open_set(&set, three, 3);
    set.limit_bytes = 100;
    n_woken = 0;
    REQUIRE(ask(&set, 0, 0) == SRV_ASK_WAITS && srv_models_await(&set).entry == 0);
    srv_models_fail(&set, 0, "torn", false);
    REQUIRE(n_woken == 1 && atomic_load(&waits[0].end) == SRV_WAIT_FAILED);
    REQUIRE_EQ_STR(waits[0].message, "torn");
    REQUIRE(ask(&set, 0, 1) == SRV_ASK_FAILED);
    REQUIRE_EQ_STR(waits[1].message, "torn");
    set.entries[0]->failed_us = 1; /* long ago */
    REQUIRE(ask(&set, 0, 2) == SRV_ASK_WAITS);
    srv_models_leave(&set, &waits[2]);
    configs[1].pin = configs[2].pin = true;
    REQUIRE(ask(&set, 0, 3) == SRV_ASK_UNAVAILABLE);
    REQUIRE_EQ_STR(waits[3].message, "there is no room for it next to the pinned models");
    waits[4] = (struct srv_wait){.by_operator = true};
    REQUIRE(srv_models_ask(&set, 0, &waits[4]) == SRV_ASK_UNAVAILABLE);
    REQUIRE(strstr(waits[4].message, "pinned models have theirs: embed rerank"));
    const struct fit_bytes room = srv_models_room(&set, 0);
    REQUIRE(room.needed == 40 && room.available == 20 && room.limit == 100);
    int n;
    publish(&set, new_model(1, 2), 0);
    REQUIRE(srv_models_unload(&set, 1, &n, NULL) == SRV_UNLOAD_PINNED);
    set.autoload = false;
    configs[1].pin = false;
    REQUIRE(ask(&set, 0, 4) == SRV_ASK_UNLOADED);
    waits[5] = (struct srv_wait){.wake = note_wake, .by_operator = true};
    REQUIRE(srv_models_ask(&set, 0, &waits[5]) == SRV_ASK_WAITS);
    set.wait_us = 1;
    srv_models_tick(&set);
    REQUIRE(atomic_load(&waits[5].end) == SRV_WAITS); /* an operator waits as long as it takes */
    srv_models_stop(&set);
    REQUIRE(atomic_load(&waits[5].end) == SRV_WAIT_CLOSED);
    REQUIRE(ask(&set, 0, 6) == SRV_ASK_CLOSED && !srv_models_post(&set, SRV_TASK_SWAP));
    REQUIRE(srv_models_await(&set).kind == SRV_TASK_STOP);
    srv_models_finish(&set);
}

static void late_and_noticed(void **state)
{
    (void)state;
    struct srv_models set;
    open_set(&set, three, 3);
    n_woken = 0;
    set.notice_us = 1;
    REQUIRE(ask(&set, 2, 0) == SRV_ASK_WAITS);
    waits[0].since_us -= 1000;
    srv_models_tick(&set);
    srv_models_tick(&set);
    REQUIRE(n_woken == 100 && waits[0].noticed);
    set.wait_us = 1;
    srv_models_tick(&set);
    REQUIRE(n_woken == 101 && atomic_load(&waits[0].end) == SRV_WAIT_LATE);
    srv_models_finish(&set);
}

/* The one that nobody has used for the time of its configuration leaves. */
static void idle_models_leave(void **state)
{
    (void)state;
    struct srv_models set;
    open_set(&set, three, 2);
    struct srv_model *a = new_model(0, 1);
    publish(&set, a, 0);
    publish(&set, new_model(1, 2), 0);
    configs[0].idle_unload_s = configs[1].idle_unload_s = 5;
    set.entries[0]->used_us -= 6000000;
    struct srv_task task = srv_models_await(&set);
    REQUIRE(task.kind == SRV_TASK_FREE && task.model == a && !set.entries[0]->model);
    REQUIRE(set.entries[0]->n_evictions[SRV_EVICT_IDLE] == 1 && set.entries[1]->model);
    srv_models_close(&set, a);
    srv_models_finish(&set);
}

/* A swap gives an entry another directory and other names; until the model before has drained both
 * plans count. */
static void another_source(void **state)
{
    (void)state;
    struct srv_models set;
    struct srv_source next;
    int n = -1;
    open_set(&set, three, 2);
    set.limit_bytes = 100;
    struct srv_model *a = new_model(0, 1), *b = new_model(0, 2);
    publish(&set, a, 0);
    REQUIRE(take(&set, "chat") == a && a->plan_bytes == 40);
    const char *names[] = {"new"};
    const struct srv_model_params params = {
        .dir = "/e", .draft_dir = "/f", .names = {names, 1}, .share = {.memory_bytes = 7}};
    REQUIRE(srv_source_copy(&next, &params) == 0);
    next.plan_bytes = 50;
    REQUIRE(srv_models_publish(&set, b, &next, &n) == a && n == 1);
    REQUIRE(b->plan_bytes == 50 && a->drains &&
            set.entries[0]->n_evictions[SRV_EVICT_REPLACED] == 1);
    const struct srv_model_params now = srv_source_params(set.entries[0], &set.entries[0]->source);
    REQUIRE_EQ_STR(now.dir, "/e");
    REQUIRE_EQ_STR(now.draft_dir, "/f");
    REQUIRE(now.share.memory_bytes == 7 && now.names.n == 1 && !now.draft_name);
    REQUIRE(srv_models_find(&set, "new") == 0 && srv_models_find(&set, "gpt") == -1);
    /* 40 drain, 50 are loaded: no room for 40 more until the first are gone. */
    REQUIRE(ask(&set, 1, 0) == SRV_ASK_WAITS);
    held = a;
    struct srv_task task = srv_models_await(&set);
    REQUIRE(!held && task.kind == SRV_TASK_FREE && task.model == a);
    srv_models_close(&set, a);
    task = srv_models_await(&set);
    REQUIRE(task.kind == SRV_TASK_LOAD && task.entry == 1);
    srv_models_fail(&set, 1, "", false);
    srv_models_finish(&set);
}

/* Answers of a closed model that are being sent take room until the last one is gone. */
static void answers_of_a_closed_model(void **state)
{
    (void)state;
    struct srv_models set;
    int n = -1;
    open_set(&set, three, 2);
    set.limit_bytes = 100;
    struct srv_model *a = new_model(0, 1);
    publish(&set, a, 0);
    atomic_store(&a->answer_bytes, 140);
    for (n_answers = 0; n_answers < 2; n_answers++)
        srv_model_keep_answer(a);
    REQUIRE(srv_models_unload(&set, 0, &n, NULL) == SRV_UNLOAD_OK);
    srv_models_close(&set, a);
    REQUIRE(set.unsent == a && ask(&set, 1, 0) == SRV_ASK_WAITS);
    held = a;
    n_signals = 0;
    struct srv_task task = srv_models_await(&set);
    REQUIRE(!held && n_signals == 1 && task.kind == SRV_TASK_LOAD && !set.unsent);
    srv_models_fail(&set, 1, "", false);
    srv_models_finish(&set);
}

/* One who waits for the end of a model is told when it is closed, or at the end of the server. */
static void operators_who_wait_for_an_end(void **state)
{
    (void)state;
    struct srv_models set;
    int n = -1;
    open_set(&set, three, 2);
    n_woken = 0;
    struct srv_model *a = new_model(0, 1), *b = new_model(1, 2), *c = new_model(0, 3);
    publish(&set, a, 0);
    publish(&set, b, 0);
    waits[0] = waits[1] = waits[2] = (struct srv_wait){.wake = note_wake, .by_operator = true};
    REQUIRE(take(&set, "embed") == b);
    REQUIRE(srv_models_unload(&set, 0, &n, &waits[0]) == SRV_UNLOAD_WAITS && n == 0);
    REQUIRE(srv_models_unload(&set, 1, &n, &waits[1]) == SRV_UNLOAD_WAITS && n == 1);
    REQUIRE(n_woken == 0);
    srv_wait_done(srv_models_close(&set, a));
    REQUIRE(n_woken == 1 && atomic_load(&waits[0].end) == SRV_WAIT_DONE);
    srv_wait_done(NULL);
    publish(&set, c, 0);
    srv_models_stop(&set);
    srv_models_stop(&set);
    REQUIRE(n_woken == 2 && atomic_load(&waits[1].end) == SRV_WAIT_DONE);
    REQUIRE(srv_models_unload(&set, 0, &n, &waits[2]) == SRV_UNLOAD_OK); /* nobody would tell it */
    srv_model_release(b, true);
    REQUIRE(!srv_models_close(&set, b) && !srv_models_close(&set, c) && n_woken == 2);
    srv_models_finish(&set);
}

/* A directory that has vanished leaves no name, no place in the count, and no default entry. */
static void an_entry_that_vanishes(void **state)
{
    (void)state;
    struct srv_models set;
    open_set(&set, three, 3);
    publish(&set, new_model(1, 2), 0);
    atomic_store(&set.default_entry, 1);
    REQUIRE(atomic_load(&set.default_entry) == 1 && srv_models_count(&set) == 3);
    struct srv_model *m = take(&set, NULL);
    REQUIRE(m == srv_models_of(&set, 1) && srv_models_is_loaded(&set, 1));
    srv_models_remove(&set, 2);
    REQUIRE(atomic_load(&set.default_entry) == 1 && srv_models_count(&set) == 2);
    srv_models_remove(&set, 1);
    REQUIRE(m->drains && atomic_load(&set.default_entry) == -1 && srv_models_count(&set) == 1);
    REQUIRE(!take(&set, NULL) && !srv_models_is_loaded(&set, -1));
    REQUIRE(srv_models_find(&set, "embed") == -1 && srv_models_find(&set, "judge") == -1);
    srv_model_release(m, false);
    srv_model_release(m, false);
    srv_models_finish(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_leads_to_its_model),
        cmocka_unit_test(models_drain_in_any_number),
        cmocka_unit_test(waiters),
        cmocka_unit_test(a_model_that_writes),
        cmocka_unit_test(places_of_keys),
        cmocka_unit_test(evictors_who_leave),
        cmocka_unit_test(loads_that_fail_or_never_fit),
        cmocka_unit_test(late_and_noticed),
        cmocka_unit_test(idle_models_leave),
        cmocka_unit_test(another_source),
        cmocka_unit_test(answers_of_a_closed_model),
        cmocka_unit_test(operators_who_wait_for_an_end),
        cmocka_unit_test(an_entry_that_vanishes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
