/* SPDX-License-Identifier: MIT */
/* The set of models: who gets a request, who drains, what is counted. Engines are only counters. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "server/model_set.h"

/* Of the engines of the test, which are numbers instead of pointers. */
static int n_stopped;

void __wrap_eng_stats(struct eng *e, struct eng_stats *ret);
void __wrap_eng_stop(struct eng *e);
void __wrap_eng_close(struct eng *e);

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

static struct srv_config configs[4];

/* Entries of 40 bytes each. */
static void open_set(struct srv_models *set, const char *const (*names)[3], int n)
{
    REQUIRE(srv_models_init(set) == 0);
    for (int i = 0; i < n; i++) {
        configs[i] = (struct srv_config){.parallel = 1, .max_queue = 2};
        struct srv_list list = {(const char **)names[i], names[i][1] ? 2 : 1};
        struct srv_entry *e = srv_models_add(
            set, &configs[i], &(struct srv_model_params){.dir = "/d", .names = list});
        REQUIRE(e && e->number == i);
        e->plan_bytes = 40;
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
    m->plan_bytes = 40;
    m->engine = (struct eng *)engine; // NOLINT: never followed
    return m;
}

static struct srv_model *publish(struct srv_models *set, struct srv_model *m, int want_requests)
{
    int n = -1;
    struct srv_model *before = srv_models_publish(set, m, &n);
    REQUIRE(n == want_requests);
    REQUIRE(m->set == set && m->created > 0);
    return before;
}

static const char *const three[][3] = {{"chat", "gpt"}, {"embed"}, {"rerank", "judge"}};

/* A name leads to its model, every other one to the default entry's. */
static void a_name_leads_to_its_model(void **state)
{
    (void)state;
    struct srv_models set;
    char text[100], small[8];
    open_set(&set, three, 3);
    REQUIRE(!srv_models_take(&set, NULL) && !srv_models_take(&set, "chat"));
    struct srv_model *embed = new_model(1, 2), *chat = new_model(0, 1), *rerank = new_model(2, 3);
    REQUIRE(!publish(&set, embed, 0) && !publish(&set, rerank, 0));
    REQUIRE(!srv_models_take(&set, NULL)); /* the first entry is not loaded */
    REQUIRE(!publish(&set, chat, 0));
    const struct {
        const char *name;
        struct srv_model *want;
    } cases[] = {{NULL, chat},      {"chat", chat},  {"gpt", chat}, {"embed", embed},
                 {"judge", rerank}, {"EMBED", chat}, {"", chat},    {"embe", chat}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct srv_model *m = srv_models_take(&set, cases[i].name);
        REQUIRE(m == cases[i].want && m->n_refs == 1);
        srv_model_release(m, true);
    }
    REQUIRE(chat->n_refs == 0 && embed->n_refs == 0 && rerank->n_refs == 0);
    REQUIRE(srv_models_find(&set, "judge") == 2 && srv_models_find(&set, "nope") == -1);
    REQUIRE(srv_models_of(&set, 1) == embed && !srv_models_of(&set, 3));
    srv_model_release(embed, false);
    REQUIRE_EQ_STR(srv_models_list_names(embed, text, sizeof(text)),
                   "'chat', 'gpt', 'embed', 'rerank', 'judge'");
    REQUIRE_EQ_STR(srv_models_list_names(embed, small, sizeof(small)), "'chat',");
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
    REQUIRE(srv_models_take(&set, "embed") == b && srv_models_take(&set, "embed") == b);
    REQUIRE(publish(&set, c, 2) == b && b->drains && !c->drains);
    REQUIRE(srv_models_take(&set, "embed") == c);
    REQUIRE(publish(&set, d, 1) == c);
    REQUIRE_EQ_STR(order(&set, text), "1423");
    srv_models_look(&set, &view);
    REQUIRE(view.n_loaded == 4 && view.n_draining == 3 && view.stats.n_steps == 1 + 2 + 3 + 4);
    REQUIRE(view.stats.n_pages_total == 1 + 4);
    REQUIRE(srv_models_wait(&set, b, 1) == 2); /* the time is over */
    srv_model_release(b, true);
    srv_model_release(b, true);
    REQUIRE(srv_models_wait(&set, b, 0) == 0);
    srv_models_close(&set, b);
    REQUIRE_EQ_STR(order(&set, text), "143");
    REQUIRE(n_stopped == 1);
    srv_models_look(&set, &view);
    REQUIRE(view.n_loaded == 3 && view.n_draining == 1 && view.stats.n_steps == 1 + 2 + 3 + 4);
    srv_model_release(c, true);
    srv_models_finish(&set);
}

/* A swap gives an entry another directory and other names. */
static void another_source(void **state)
{
    (void)state;
    struct srv_models set;
    struct srv_model *before = NULL;
    int n = -1;
    open_set(&set, three, 2);
    struct srv_model *a = new_model(0, 1), *b = new_model(0, 2);
    publish(&set, a, 0);
    const char *names[] = {"new"};
    const struct srv_model_params params = {.dir = "/e", .names = {names, 1}};
    b->plan_bytes = 50;
    REQUIRE(srv_models_replace(&set, b, &params, &(struct srv_model_facts){.n_params = 7}, &before,
                               &n) == 0);
    REQUIRE(before == a && n == 0 && set.entries[0]->plan_bytes == 50);
    REQUIRE_EQ_STR(srv_entry_params(set.entries[0]).dir, "/e");
    REQUIRE(srv_models_find(&set, "new") == 0 && srv_models_find(&set, "gpt") == -1);
    srv_models_finish(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_leads_to_its_model),
        cmocka_unit_test(models_drain_in_any_number),
        cmocka_unit_test(another_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
