/* SPDX-License-Identifier: MIT */
/* Messages: the blocks of whole answers and of streams, reasons to stop, and usage. */
#include "answer_case.h"

#define HEAD "'id':'id-1','type':'message','role':'assistant','model':'demo','content':["
#define USAGE(input, output, created, minutes, hour)                                               \
    "'usage':{'input_tokens':" input ",'output_tokens':" output ",'cache_read_input_tokens':1,"    \
    "'cache_creation_input_tokens':" created                                                       \
    ",'cache_creation':{'ephemeral_5m_input_tokens':" minutes ",'ephemeral_1h_input_tokens':" hour \
    "}}"
#define WHOLE(blocks, stop, sequence)                                                              \
    "{" HEAD blocks "],'stop_reason':'" stop "','stop_sequence':" sequence                         \
    "," USAGE("2", "0", "0", "0", "0") "}"
#define TEXT(text) "{'type':'text','text':'" text "'}"
#define EVENT(name, members) "event: " name "\ndata: {'type':'" name "'" members "}\n\n"
#define INPUT(input) "{'type':'tool_use','id':'call56789','name':'add','input':" input "}"

static void test_blocks(void **state)
{
    static const struct {
        const char *thinking, *text, *blocks;
    } cases[] = {
        {NULL, NULL, TEXT("")},
        {NULL, "x", TEXT("x")},
        {"so", "x", "{'type':'thinking','thinking':'so','signature':''}," TEXT("x")},
        {"so", "", "{'type':'thinking','thinking':'so','signature':''}"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char expected[1000];
        struct srv_gen *g = open_answer(&srv_write_messages);
        if (cases[i].thinking) add_part(&ac.choices[0], CHOICE_REASONING, cases[i].thinking);
        if (cases[i].text) add_part(&ac.choices[0], CHOICE_CONTENT, cases[i].text);
        snprintf(expected, sizeof(expected), WHOLE("%s", "end_turn", "null"), cases[i].blocks);
        check_whole(g, expected);
        close_answer(g);
    }
}

/* An input that was cut keeps its complete members. */
static void test_inputs(void **state)
{
    static const struct {
        const char *text;
        bool complete;
        const char *input;
    } cases[] = {
        {"{\"a\": 1}", true, "{'a': 1}"},
        {"{}", true, "{}"},
        {"", false, "{}"},
        {"{\"a\":\"x\",\"b\":\"y", false, "{'a':'x'}"},
        {"{\"a\":[1],\"b\":{\"c\":2}", false, "{'a':[1],'b':{'c':2}}"},
        {"{\"a\":12", false, "{}"},
        {"{\"a\":12,", false, "{'a':12}"},
        {"{\"a\":true,\"b\"", false, "{'a':true}"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char expected[1000];
        struct srv_gen *g = open_answer(&srv_write_messages);
        add_call(&ac.choices[0], "add", cases[i].text);
        ac.parts[0][0].complete = cases[i].complete;
        ac.choices[0].finish_reason = "tool_calls";
        snprintf(expected, sizeof(expected), WHOLE(INPUT("%s"), "tool_use", "null"),
                 cases[i].input);
        check_whole(g, expected);
        close_answer(g);
    }
}

static void test_stops(void **state)
{
    struct srv_gen *g = open_answer(&srv_write_messages);
    (void)state;
    add_part(&ac.choices[0], CHOICE_CONTENT, "x");
    ac.choices[0].finish_reason = "length";
    check_whole(g, WHOLE(TEXT("x"), "max_tokens", "null"));
    ac.choices[0].finish_reason = "stop";
    ac.choices[0].stop_string = ac.stops.stop[0].text = "END";
    ac.stops.stop[0].len = 3;
    check_whole(g, WHOLE(TEXT("x"), "stop_sequence", "'END'"));
    close_answer(g);
}

/* Three prompt tokens, one cached, two up to a breakpoint of five minutes or one of an hour. */
static void test_usage(void **state)
{
    struct srv_gen *g = open_answer(&srv_write_messages);
    (void)state;
    g->params.cache_prompt = test_config.prefix_cache = true;
    add_tokens(&ac.choices[0], (int32_t[]){7, 8}, 2);
    g->cache.n_marked = 3;
    g->cache.n_marked_hour = 2;
    check_whole(g, "{" HEAD TEXT("hi") "],'stop_reason':'end_turn','stop_sequence':null," USAGE(
                       "0", "2", "2", "1", "1") "}");
    close_answer(g);
}

static void test_stream(void **state)
{
    struct srv_gen *g = open_answer(&srv_write_messages);
    const struct srv_gen_dialect *d = &srv_write_messages;
    struct gen_choice *c = &ac.choices[0];
    (void)state;
    srv_stream_open(g->req);
    d->stream_begin(g);
    check_events(g, EVENT("message_start",
                          ",'message':{" HEAD "],'stop_reason':null,'stop_sequence':null," USAGE(
                              "2", "0", "0", "0", "0") "}"));
    add_part(c, CHOICE_REASONING, "so");
    add_part(c, CHOICE_CONTENT, "hi");
    add_call(c, "add", "{}");
    for (int i = 0; i < 3; i++) {
        d->stream_part(g, c, &c->parts[i], false);
        send_delta(g, c, &c->parts[i], 2 * (size_t)i, 2 * (size_t)i + 2, 0, 0);
        d->stream_part(g, c, &c->parts[i], true);
        c->n_parts_begun++;
    }
    check_events(
        g, EVENT("content_block_start",
                 ",'index':0,'content_block':{'type':'thinking','thinking':'','signature':''}")
               EVENT("content_block_delta",
                     ",'index':0,'delta':{'type':'thinking_delta','thinking':'so'}")
                   EVENT("content_block_delta",
                         ",'index':0,'delta':{'type':'signature_delta','signature':''}")
                       EVENT("content_block_stop", ",'index':0") EVENT(
                           "content_block_start", ",'index':1,'content_block':" TEXT(""))
                           EVENT("content_block_delta",
                                 ",'index':1,'delta':{'type':'text_delta','text':'hi'}")
                               EVENT("content_block_stop", ",'index':1") EVENT(
                                   "content_block_start", ",'index':2,'content_block':" INPUT("{}"))
                                   EVENT("content_block_delta", ",'index':2,'delta':{'type':'input_"
                                                                "json_delta','partial_json':'{}'}")
                                       EVENT("content_block_stop", ",'index':2"));
    c->n_tokens = 4;
    d->stream_finish(g, c);
    d->stream_end(g);
    check_events(
        g,
        EVENT("message_delta",
              ",'delta':{'stop_reason':'end_turn','stop_sequence':null},'usage':{'input_tokens':2,"
              "'output_tokens':4,'cache_read_input_tokens':1,'cache_creation_input_tokens':0}")
            EVENT("message_stop", ""));
    close_answer(g);
}

/* A stream without text has one empty block; tokens without a part have no event. */
static void test_empty_stream(void **state)
{
    struct srv_gen *g = open_answer(&srv_write_messages);
    const struct srv_gen_dialect *d = &srv_write_messages;
    (void)state;
    srv_stream_open(g->req);
    send_delta(g, &ac.choices[0], NULL, 0, 0, 0, 1);
    check_events(g, "");
    d->stream_finish(g, &ac.choices[0]);
    check_events(g,
                 EVENT("content_block_start", ",'index':0,'content_block':" TEXT(""))
                     EVENT("content_block_stop", ",'index':0")
                         EVENT("message_delta",
                               ",'delta':{'stop_reason':'end_turn','stop_sequence':null},'usage':{"
                               "'input_tokens':2,'output_tokens':0,'cache_read_input_tokens':1,"
                               "'cache_creation_input_tokens':0}"));
    srv_facts(g->req)->dialect = SRV_DIALECT_ANTHROPIC;
    d->stream_error(g, SRV_ERR_INTERNAL, "no");
    check_events(g,
                 "event: error\ndata: {'type':'error','error':{'type':'api_error','message':'no'},"
                 "'request_id':'req_1'}\n\n");
    close_answer(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks), cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_stops),  cmocka_unit_test(test_usage),
        cmocka_unit_test(test_stream), cmocka_unit_test(test_empty_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
