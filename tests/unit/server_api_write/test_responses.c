/* SPDX-License-Identifier: MIT */
/* Responses: items of whole answers, and the numbered events of a stream. */
#include "answer_case.h"

#define REQUEST                                                                                    \
    "'parallel_tool_calls':false,'previous_response_id':null,'reasoning':{'effort':'low',"         \
    "'summary':null},'store':false,'background':false,'service_tier':'default',"                   \
    "'max_tool_calls':5,'temperature':0.5,'presence_penalty':0.25,'frequency_penalty':0.75,"       \
    "'top_logprobs':0,'user':null,'safety_identifier':null,'prompt_cache_key':'k',"                \
    "'text':{'format':{'type':'text'}},'tool_choice':'auto','tools':[],'top_p':0.875,"             \
    "'truncation':'disabled','metadata':{}"
#define RESPONSE(status, details, output, usage)                                                   \
    "{'id':'id-1','object':'response','created_at':7,'completed_at':null,'status':'" status        \
    "','error':null,'incomplete_details':" details ",'instructions':'Be.',"                        \
    "'max_output_tokens':9,'model':'demo','output':[" output "]," REQUEST ",'usage':" usage "}"
#define USAGE(output, total)                                                                       \
    "{'input_tokens':3,'input_tokens_details':{'cached_tokens':1,'cache_write_tokens':2},"         \
    "'output_tokens':" output                                                                      \
    ",'output_tokens_details':{'reasoning_tokens':0},'total_tokens':" total "}"
#define CUT(output, n, total)                                                                      \
    RESPONSE("incomplete", "{'reason':'max_output_tokens'}", output, USAGE(n, total))
#define PART(text, logprobs)                                                                       \
    "{'type':'output_text','text':'" text "','annotations':[],'logprobs':[" logprobs "]}"
#define MESSAGE(id, part, status)                                                                  \
    "{'type':'message','id':'msg_abc" id "','role':'assistant','content':[" part                   \
    "],'status':'" status "'}"
#define THOUGHT(text) "{'type':'reasoning_text','text':'" text "'}"
#define REASONING(part, status)                                                                    \
    "{'type':'reasoning','id':'rs_abc','summary':[],'content':[" part "],'status':'" status "'}"
#define CALL(arguments, status)                                                                    \
    "{'type':'function_call','id':'fc_call56789','call_id':'call56789','name':'add','arguments':"  \
    "'" arguments "','status':'" status "'}"
#define EVENT(number, name, members)                                                               \
    "event: response." name "\ndata: {'type':'response." name                                      \
    "','sequence_number':" number members "}\n\n"

/* Cut, so that no time is in it. */
static struct srv_gen *open_response(void)
{
    static struct response_echo sent = {.tools = {"[]", 2},
                                        .metadata = {"{}", 2},
                                        .instructions = {"Be.", 3},
                                        .truncation = "disabled"};
    struct srv_gen *g = open_answer(&srv_write_responses);
    g->dialect = &sent;
    g->params.max_completion_tokens = 9;
    g->params.max_tool_calls = 5;
    g->params.prompt_cache_key = "k";
    g->params.given.temperature = 0.5;
    g->params.given.top_p = 0.875;
    g->params.given.presence_penalty = 0.25;
    g->params.given.frequency_penalty = 0.75;
    g->tools.effort = "low";
    ac.choices[0].finish_reason = "length";
    return g;
}

static void test_items(void **state)
{
    static const struct {
        const char *reasoning, *text, *call;
        bool complete;
        const char *output;
    } cases[] = {
        {NULL, NULL, NULL, false, MESSAGE("", PART("", ""), "incomplete")},
        {NULL, "x", NULL, false, MESSAGE("", PART("x", ""), "incomplete")},
        {"so", "x", NULL, false,
         REASONING(THOUGHT("so"), "completed") "," MESSAGE("_1", PART("x", ""), "incomplete")},
        {"so", "", NULL, false, REASONING(THOUGHT("so"), "completed")},
        {NULL, "x", "{", false,
         MESSAGE("", PART("x", ""), "completed") "," CALL("{", "incomplete")},
        {NULL, NULL, "{}", true, CALL("{}", "completed")},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char expected[2000];
        struct srv_gen *g = open_response();
        struct gen_choice *c = &ac.choices[0];
        if (cases[i].reasoning) add_part(c, CHOICE_REASONING, cases[i].reasoning);
        if (cases[i].text) add_part(c, CHOICE_CONTENT, cases[i].text);
        if (cases[i].call) add_call(c, "add", cases[i].call);
        if (cases[i].call) c->parts[c->n_parts - 1].complete = cases[i].complete;
        snprintf(expected, sizeof(expected), CUT("%s", "0", "3"), cases[i].output);
        check_whole(g, expected);
        close_answer(g);
    }
}

/* A tool of a namespace has the name that it has there. */
static void test_call_names(void **state)
{
    struct srv_gen *g = open_response();
    struct tools_place place = {.space = "math", .name = "add", .full = "math__add"};
    (void)state;
    g->tools.ask.n = 1;
    g->tools.ask.tools = &(struct tools_tool){.name = "math__add", .name_len = 9};
    g->tools.ask.places = &place;
    add_call(&ac.choices[0], "math__add", "{}");
    check_whole(
        g, CUT("{'type':'function_call','id':'fc_call56789','call_id':'call56789','name':'add',"
               "'namespace':'math','arguments':'{}','status':'completed'}",
               "0", "3"));
    close_answer(g);
}

static void test_logprobs(void **state)
{
    struct srv_gen *g = open_response();
    (void)state;
    g->params.want_logprobs = true;
    add_tokens(&ac.choices[0], (int32_t[]){7}, 1);
    check_whole(g,
                CUT(MESSAGE("",
                            PART("h", "{'token':'h','bytes':[104],'logprob':-1.0,'top_logprobs':[{"
                                      "'token':'g','bytes':[103],'logprob':-0.5}]}"),
                            "incomplete"),
                    "1", "4"));
    close_answer(g);
}

static void test_stream(void **state)
{
    struct srv_gen *g = open_response();
    const struct srv_gen_dialect *d = &srv_write_responses;
    struct gen_choice *c = &ac.choices[0];
    (void)state;
    srv_stream_open(g->req);
    d->stream_begin(g);
    check_events(
        g, EVENT("0", "created", ",'response':" RESPONSE("in_progress", "null", "", "null")) EVENT(
               "1", "in_progress", ",'response':" RESPONSE("in_progress", "null", "", "null")));
    add_part(c, CHOICE_CONTENT, "hi");
    d->stream_part(g, c, &c->parts[0], false);
    send_delta(g, c, &c->parts[0], 0, 2, 0, 0);
    add_call(c, "add", "{}");
    d->stream_part(g, c, &c->parts[0], true);
    check_events(
        g,
        EVENT("2", "output_item.added", ",'output_index':0,'item':" MESSAGE("", "", "in_progress"))
            EVENT("3", "content_part.added",
                  ",'item_id':'msg_abc','output_index':0,'content_index':0,'part':" PART("", ""))
                EVENT("4", "output_text.delta",
                      ",'item_id':'msg_abc','output_index':0,'content_index':0,'delta':'hi','"
                      "logprobs':[]") EVENT("5", "output_text.done",
                                            ",'item_id':'msg_abc','output_index':0,'content_index':"
                                            "0,'text':'hi','logprobs':[]")
                    EVENT("6", "content_part.done",
                          ",'item_id':'msg_abc','output_index':0,'content_index':0,'part':" PART(
                              "hi", "")) EVENT("7", "output_item.done",
                                               ",'output_index':0,'item':" MESSAGE(
                                                   "", PART("hi", ""), "completed")));
    d->stream_part(g, c, &c->parts[1], false);
    send_delta(g, c, &c->parts[1], 2, 4, 0, 0);
    d->stream_part(g, c, &c->parts[1], true);
    c->n_parts_begun = 2;
    d->stream_finish(g, c);
    check_events(
        g, EVENT("8", "output_item.added", ",'output_index':1,'item':" CALL("", "in_progress"))
               EVENT("9", "function_call_arguments.delta",
                     ",'item_id':'fc_call56789','output_index':1,'delta':'{}'")
                   EVENT("10", "function_call_arguments.done",
                         ",'item_id':'fc_call56789','output_index':1,'name':'add','arguments':'{}'")
                       EVENT("11", "output_item.done",
                             ",'output_index':1,'item':" CALL("{}", "completed")));
    d->stream_end(g);
    check_events(g, EVENT("12", "incomplete",
                          ",'response':" CUT(
                              MESSAGE("", PART("hi", ""), "completed") "," CALL("{}", "completed"),
                              "0", "3")));
    close_answer(g);
}

static void test_reasoning_events(void **state)
{
    struct srv_gen *g = open_response();
    const struct srv_gen_dialect *d = &srv_write_responses;
    struct gen_choice *c = &ac.choices[0];
    (void)state;
    srv_stream_open(g->req);
    add_part(c, CHOICE_REASONING, "so");
    d->stream_part(g, c, &c->parts[0], false);
    send_delta(g, c, &c->parts[0], 0, 2, 0, 0);
    check_events(
        g, EVENT("0", "output_item.added", ",'output_index':0,'item':" REASONING("", "in_progress"))
               EVENT("1", "content_part.added",
                     ",'item_id':'rs_abc','output_index':0,'content_index':0,'part':" THOUGHT(""))
                   EVENT("2", "reasoning_text.delta",
                         ",'item_id':'rs_abc','output_index':0,'content_index':0,'delta':'so'"));
    close_answer(g);
}

/* The end of an answer has its time. */
static void test_end(void **state)
{
    struct srv_gen *g = open_response();
    (void)state;
    srv_stream_open(g->req);
    ac.choices[0].finish_reason = "stop";
    srv_write_responses.stream_end(g);
    char *answer = take_answer(g->req);
    REQUIRE(strstr(answer, "event: response.completed\n") &&
            strstr(answer, "\"status\":\"completed\""));
    const char *at = strstr(answer, "\"completed_at\":");
    REQUIRE(at && strtoll(at + strlen("\"completed_at\":"), NULL, 10) > 1700000000);
    free(answer);
    srv_write_responses.stream_error(g, SRV_ERR_INTERNAL, "no");
    check_events(g,
                 "event: error\ndata: {'type':'error','sequence_number':1,'code':'internal_error',"
                 "'message':'no','param':null}\n\n");
    close_answer(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items),
        cmocka_unit_test(test_call_names),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_reasoning_events),
        cmocka_unit_test(test_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
