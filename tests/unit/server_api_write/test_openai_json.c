/* SPDX-License-Identifier: MIT */
/* What the dialects write alike: usage, timings, chunks, tokens, and long values in parts. */
#include "server/api/write/openai_json.c"

#include "answer_case.h"
#include "base/utf8.h"

#define CHUNK(choice, rest)                                                                        \
    "data: {'id':'id-1','object':'chat.completion.chunk','created':7,'model':'demo',"              \
    "'system_fingerprint':'fp','choices':[" choice "]" rest "}\n\n"
#define USAGE(n, total, details)                                                                   \
    "'usage':{'prompt_tokens':3,'completion_tokens':" n ",'total_tokens':" total                   \
    ",'prompt_tokens_details':{'cached_tokens':1,'cache_write_tokens':2}" details "}"

static struct buf out;
static struct jw w;

/* One value in an object or an array. */
static void begin(char bracket)
{
    buf_init(&out, 1 << 20);
    jw_init(&w, &out);
    jw_open(&w, NULL, bracket);
}

static void check(const char *expected)
{
    jw_close(&w);
    buf_add(jw_end(&w), "", 1);
    REQUIRE(!out.failed);
    check_text(out.data, expected);
}

static void test_usage(void **state)
{
    struct srv_gen *g = open_answer(&srv_write_chat);
    struct gen_choice *c = &ac.choices[0];
    (void)state;
    add_tokens(c, (int32_t[]){7, 8, 9}, 3);
    c->n_reasoning = 2;
    c->n_accepted = 1;
    begin('{');
    srv_gen_write_usage(g, &w);
    check("{" USAGE("3", "6", "") "}");
    g->n_prediction = 4;
    begin('{');
    srv_gen_write_usage(g, &w);
    check("{" USAGE("3", "6",
                    ",'completion_tokens_details':{'accepted_prediction_tokens':1,"
                    "'rejected_prediction_tokens':0}") "}");
    g->tools.can_reason = true;
    begin('{');
    srv_gen_write_usage(g, &w);
    check("{" USAGE("3", "6",
                    ",'completion_tokens_details':{'reasoning_tokens':2,"
                    "'accepted_prediction_tokens':1,'rejected_prediction_tokens':0}") "}");
    close_answer(g);
}

static void test_timings(void **state)
{
    struct srv_gen *g = open_answer(&srv_write_chat);
    (void)state;
    add_tokens(&ac.choices[0], (int32_t[]){7, 8, 9}, 3);
    begin('{');
    srv_gen_write_timings(g, &w);
    check("{}");
    g->params.timings = true;
    struct eng_usage *u = &ac.prompt.usage;
    u->submitted_us = 1000;
    u->started_us = 3500;
    u->first_token_us = 5500;
    u->done_us = 11500;
    u->n_computed_prompt_tokens = 2;
    begin('{');
    srv_gen_write_timings(g, &w);
    check("{'timings':{'cache_n':1,'prompt_n':2,'queue_ms':2.5,'prompt_ms':2.0,'prompt_per_second':"
          "1000.0,"
          "'predicted_n':3,'predicted_ms':6.0,'predicted_per_second':500.0,'draft_n':0,'draft_n_"
          "accepted':0}}");
    *u = (struct eng_usage){.n_cached_tokens = 1};
    begin('{');
    srv_gen_write_timings(g, &w);
    check("{'timings':{'cache_n':1,'prompt_n':2,'queue_ms':0.0,'prompt_ms':0.0,'prompt_per_second':"
          "0.0,"
          "'predicted_n':3,'predicted_ms':0.0,'predicted_per_second':0.0,'draft_n':0,"
          "'draft_n_accepted':0}}");
    close_answer(g);
}

static void test_chunks(void **state)
{
    static const struct {
        bool usage, continuous;
        int64_t n_tokens;
        const char *rest;
    } cases[] = {
        {false, false, 2, ""},
        {false, true, 2, ""},
        {true, false, 2, ",'usage':null"},
        {true, true, 2,
         ",'usage':{'prompt_tokens':3,'completion_tokens':2,'total_tokens':5,"
         "'prompt_tokens_details':{'cached_tokens':1,'cache_write_tokens':0}}"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char expected[1000];
        struct srv_gen *g = open_answer(&srv_write_chat);
        struct gen_event e;
        g->params.include_usage = cases[i].usage;
        g->params.continuous_usage = cases[i].continuous;
        srv_stream_open(g->req);
        srv_gen_begin_chunk(g, &e, 4);
        srv_gen_end_chunk(g, &e, &ac.choices[0], cases[i].n_tokens);
        snprintf(expected, sizeof(expected), CHUNK("{'index':4}", "%s"), cases[i].rest);
        check_events(g, expected);
        close_answer(g);
    }
}

static void test_other_chunks(void **state)
{
    struct srv_gen *g = open_answer(&srv_write_chat);
    const struct gen_progress progress = {.n_total = 9, .n_done = 5, .n_cached = 2, .us = 7999};
    (void)state;
    srv_stream_open(g->req);
    srv_gen_last_chunk(g);
    check_events(g, "data: [DONE]\n\n");
    g->params.include_usage = true;
    g->params.service_tier = "auto";
    srv_gen_last_chunk(g);
    check_events(g,
                 "data: {'id':'id-1','object':'chat.completion.chunk','created':7,'model':'demo',"
                 "'system_fingerprint':'fp','service_tier':'default','choices':[]," USAGE(
                     "0", "3", "") "}\n\ndata: [DONE]\n\n");
    g->params.service_tier = NULL;
    srv_gen_progress_chunk(g, &progress);
    check_events(
        g,
        CHUNK("",
              ",'usage':null,'prompt_progress':{'total':9,'cache':2,'processed':5,'time_ms':7}"));
    srv_gen_error_chunk(g, SRV_ERR_INTERNAL, "no");
    check_events(
        g, "data: "
           "{'error':{'message':'no','type':'server_error','param':null,'code':'internal_error'}}"
           "\n\ndata: [DONE]\n\n");
    close_answer(g);
}

static void test_stop_reason(void **state)
{
    static const struct {
        const char *string;
        int n_stops, n_ids;
        int32_t ended_by;
        const char *reason;
    } cases[] = {
        {NULL, 0, 0, 5, "{}"},
        {NULL, 1, 0, -1, "{'stop_reason':null}"},
        {"END", 1, 0, -1, "{'stop_reason':'END'}"},
        {NULL, 0, 2, 6, "{'stop_reason':6}"},
        {NULL, 0, 2, 9, "{'stop_reason':null}"}, /* the model's own end */
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen *g = open_answer(&srv_write_chat);
        struct gen_choice *c = &ac.choices[0];
        g->params.n_stops = cases[i].n_stops;
        g->params.n_asked_stop_ids = cases[i].n_ids;
        g->params.stop_ids = (int32_t[]){5, 6};
        c->stop_string = cases[i].string;
        c->stop_id = cases[i].ended_by;
        c->text.stop_index = 1;
        ac.stops.stop[1].len = 3;
        begin('{');
        srv_gen_write_stop_reason(g, &w, c);
        check(cases[i].reason);
        close_answer(g);
    }
}

static void test_tokens(void **state)
{
    static const struct {
        int32_t id;
        bool as_ids;
        const char *legacy, *chat;
    } cases[] = {
        {7, false, "['h']", "{'token':'h','bytes':[104]}"},
        {7, true, "['token_id:7']", "{'token':'token_id:7','bytes':[104]}"},
        {E_ACUTE, false, "['bytes:\\\\xc3']", "{'token':'�','bytes':[195]}"},
        {NO_TEXT, false, "['']", "{'token':'','bytes':[]}"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen *g = open_answer(&srv_write_chat);
        g->params.tokens_as_ids = cases[i].as_ids;
        begin('[');
        srv_gen_write_token(g, &w, NULL, cases[i].id);
        check(cases[i].legacy);
        begin('{');
        write_token_bytes(g, &w, cases[i].id);
        check(cases[i].chat);
        close_answer(g);
    }
}

static void test_characters(void **state)
{
    struct srv_gen *g = open_answer(&srv_write_chat);
    struct gen_choice *c = &ac.choices[0];
    (void)state;
    add_part(c, CHOICE_CONTENT, "a\xc3\xa9\xe2\x82\xac z");
    REQUIRE_EQ_INT(utf8_count(c->text.text.data, c->text.text.len), 5);
    REQUIRE_EQ_INT(srv_gen_characters_before(c, 1), 1);
    REQUIRE_EQ_INT(srv_gen_characters_before(c, 6), 3);
    REQUIRE_EQ_INT(srv_gen_characters_before(c, 3), 2);
    REQUIRE_EQ_INT(srv_gen_characters_before(c, 8), 5);
    REQUIRE_EQ_INT(srv_gen_characters_before(c, 0), 0);
    close_answer(g);
}

static void test_next_tokens(void **state)
{
    static const int64_t sizes[] = {0, 1, 16, 17, 32, 40};
    (void)state;
    for (size_t i = 0; i < N_OF(sizes); i++) {
        int64_t at = 0, to, expected = 0;
        bool last = false;
        while (!last) {
            last = srv_gen_next_tokens(sizes[i], &at, &to);
            expected = expected + 16 < sizes[i] ? expected + 16 : sizes[i];
            REQUIRE_EQ_INT(to, expected);
            REQUIRE(last == (to == sizes[i]));
            REQUIRE_EQ_INT(at, last ? 0 : to);
        }
    }
}

/* The parts of a kind, joined; a long one in several pieces of whole characters. */
static void test_kind_parts(void **state)
{
    enum { LONG = 3 * GEN_PART_BYTES };
    struct srv_gen *g = open_answer(&srv_write_chat);
    struct gen_choice *c = &ac.choices[0];
    char *text = malloc(LONG + 1);
    int64_t at = 0;
    int n_pieces = 0;
    (void)state;
    memset(text, 'x', LONG);
    text[LONG] = '\0';
    add_part(c, CHOICE_REASONING, "so");
    add_part(c, CHOICE_CONTENT, "a");
    add_call(c, "add", "{}");
    add_part(c, CHOICE_CONTENT, text);
    begin('{');
    jw_string_begin(&w, "t");
    for (; !srv_gen_write_kind_part(&w, c, CHOICE_CONTENT, &at); n_pieces++)
        REQUIRE(at > 0);
    jw_string_end(&w);
    REQUIRE(at == 0 && n_pieces == 4);
    REQUIRE_EQ_INT(out.len, strlen("{\"t\":\"a\"") + LONG);
    jw_close(&w);
    buf_finish(jw_end(&w));
    free(text);
    close_answer(g);
}

/* The end token, and tokens of other parts, are not the content's. */
static void test_logprobs(void **state)
{
#define LOGGED(token, byte, before, byte_before)                                                   \
    "{'token':'" token "','bytes':[" byte "],'logprob':-1.0,'top_logprobs':[{'token':'" before     \
    "','bytes':[" byte_before "],'logprob':-0.5}]}"
    static const struct {
        bool ended;
        int part;
        int64_t from, to;
        const char *list;
    } cases[] = {
        {false, -1, 0, 2,
         "[" LOGGED("h", "104", "g", "103") "," LOGGED("i", "105", "h", "104") "]"},
        {false, 0, 1, 2, "[" LOGGED("i", "105", "h", "104") "]"},
        {false, 1, 0, 2, "[]"},
        {true, -1, 0, 2, "[" LOGGED("h", "104", "g", "103") "]"},
        {true, -1, 1, 2, "[]"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen *g = open_answer(&srv_write_chat);
        struct gen_choice *c = &ac.choices[0];
        add_tokens(c, (int32_t[]){7, 8}, 2);
        c->ended = cases[i].ended;
        c->stop_id = 8;
        begin('[');
        srv_gen_write_logprobs(g, &w, c, cases[i].part, cases[i].from, cases[i].to);
        check(cases[i].list);
        close_answer(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usage),       cmocka_unit_test(test_timings),
        cmocka_unit_test(test_chunks),      cmocka_unit_test(test_other_chunks),
        cmocka_unit_test(test_stop_reason), cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_characters),  cmocka_unit_test(test_next_tokens),
        cmocka_unit_test(test_kind_parts),  cmocka_unit_test(test_logprobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
