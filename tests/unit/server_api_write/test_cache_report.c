/* SPDX-License-Identifier: MIT */
/* What an answer says of the prefix cache: tokens up to breakpoints, and where a prompt left it. */
#include "server/api/write/openai_json.h"

#include "answer_case.h"

static void test_created(void **state)
{
    static const struct {
        bool asked, served;
        int64_t marked, hour, cached, created, created_hour;
    } cases[] = {
        {true, true, 9, 0, 4, 5, 0}, {true, true, 9, 7, 4, 5, 3},  {true, true, 4, 4, 4, 0, 0},
        {true, true, 3, 2, 4, 0, 0}, {false, true, 9, 7, 4, 0, 0}, {true, false, 9, 7, 4, 0, 0},
        {true, true, 0, 0, 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen *g = open_answer(&srv_write_chat);
        int64_t hour = -1;
        g->params.cache_prompt = cases[i].asked;
        test_config.prefix_cache = cases[i].served;
        g->cache.n_marked = cases[i].marked;
        g->cache.n_marked_hour = cases[i].hour;
        REQUIRE_EQ_INT(srv_cache_created(g, cases[i].cached, &hour), cases[i].created);
        REQUIRE_EQ_INT(hour, cases[i].created_hour);
        close_answer(g);
    }
}

static void check_report(struct srv_gen *g, const char *expected)
{
    struct buf b;
    struct jw w;
    buf_init(&b, 1000);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    srv_cache_write_report(g, &w);
    jw_close(&w);
    buf_add(jw_end(&w), "", 1);
    check_text(b.data, expected);
}

#define REPORT(diverges, reason)                                                                   \
    "{'cache_report':{'matched_tokens':1,'prompt_tokens':12,'diverges':" diverges                  \
    ",'reason':" reason "}}"
#define PLACE(part, byte) "{'part':'" part "','byte':" byte "}"

/* A prompt of twelve bytes, one per token, the texts of which are [2, 4) and [6, 9). */
static struct srv_gen *open_report(void)
{
    static const int32_t ids[12];
    static struct cache_part parts[] = {{.path = "system", .begin = 2, .end = 4, .skipped = 10},
                                        {.path = "messages[0]", .begin = 6, .end = 9}};
    struct srv_gen *g = open_answer(&srv_write_chat);
    g->cache.reports = true;
    g->cache.parts = parts;
    g->cache.n_parts = 2;
    g->cache.n_front = 1;
    ac.prompt.ids = ids;
    ac.prompt.n_ids = 12;
    return g;
}

static void test_reasons(void **state)
{
    static const struct {
        enum eng_miss miss;
        int64_t known;
        const char *report;
    } cases[] = {
        {ENG_MISS_NONE, 3, REPORT("null", "null")},
        {ENG_MISS_SCOPE, 3, REPORT("null", "'scope'")},
        {ENG_MISS_TOO_SHORT, 0, REPORT("null", "'too_short'")},
        {ENG_MISS_EVICTED, 3, REPORT(PLACE("system", "11"), "'evicted'")},
        {ENG_MISS_CONTENT, 1, REPORT(PLACE("system", "0"), "'content'")},
        {ENG_MISS_CONTENT, 0, REPORT("null", "null")}, /* more is cached by now */
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen *g = open_report();
        ac.prompt.usage.miss = cases[i].miss;
        ac.prompt.usage.n_known_tokens = cases[i].known;
        check_report(g, cases[i].report);
        g->cache.reports = false;
        check_report(g, "{}");
        close_answer(g);
    }
}

static void test_places(void **state)
{
    static const struct {
        int64_t known;
        bool tools;
        int n_parts;
        const char *place;
    } cases[] = {
        {2, false, 2, PLACE("system", "10")},     {3, true, 2, PLACE("system", "11")},
        {4, false, 2, PLACE("messages[0]", "0")}, {5, true, 2, PLACE("tools", "1")},
        {1, true, 2, PLACE("tools", "1")},        {6, true, 2, PLACE("messages[0]", "0")},
        {8, false, 2, PLACE("messages[0]", "2")}, {9, true, 2, PLACE("template", "0")},
        {11, false, 2, PLACE("template", "2")},   {5, false, 0, PLACE("prompt", "5")},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char expected[300];
        struct srv_gen *g = open_report();
        g->tools.ask.n = cases[i].tools;
        g->cache.n_parts = cases[i].n_parts;
        ac.prompt.usage.miss = ENG_MISS_CONTENT;
        ac.prompt.usage.n_known_tokens = cases[i].known;
        snprintf(expected, sizeof(expected), REPORT("%s", "'content'"), cases[i].place);
        check_report(g, expected);
        close_answer(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_created),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
