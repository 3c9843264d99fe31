/* SPDX-License-Identifier: MIT */
/* Chat completions: whole answers and chunks of text, reasoning, calls and log-probabilities. */
#include "answer_case.h"

#define HEAD(object)                                                                               \
    "{'id':'id-1','object':'" object "','created':7,'model':'demo','system_fingerprint':'fp',"     \
    "'choices':["
#define WHOLE(choices, n, total)                                                                   \
    HEAD("chat.completion")                                                                        \
    choices "],'usage':{'prompt_tokens':3,'completion_tokens':" n ",'total_tokens':" total         \
            ",'prompt_tokens_details':{'cached_tokens':1,'cache_write_tokens':2}}"
#define MESSAGE(index, members) "{'index':" index ",'message':{'role':'assistant'," members "}"
#define CHUNK(delta, members)                                                                      \
    "data: " HEAD("chat.completion.chunk") "{'index':0,'delta':{" delta "}," members "}]}\n\n"
#define LOGGED(letter, byte, before, byte_before)                                                  \
    "'logprobs':{'content':[{'token':'" letter "','bytes':[" byte                                  \
    "],'logprob':-1.0,'top_logprobs':[{'token':'" before "','bytes':[" byte_before                 \
    "],'logprob':-0.5}]}],'refusal':null}"
#define CALL_HEAD "'id':'call56789','type':'function','function':{'name':'add','arguments':'"
#define NO_END "'logprobs':null,'finish_reason':null"

static void test_texts(void **state)
{
    struct srv_gen *g = open_answer(&srv_write_chat);
    (void)state;
    g->n_choices = g->n_candidates = 2;
    g->params.return_token_ids = true;
    add_tokens(&ac.choices[0], (int32_t[]){7, 8}, 2);
    ac.choices[1].finish_reason = "length";
    check_whole(
        g, WHOLE(MESSAGE("0", "'content':'hi','refusal':null") ",'logprobs':null,"
                                                               "'finish_reason':'stop','token_ids':"
                                                               "[7,8]}," MESSAGE(
                                                                   "1", "'content':'','refusal':"
                                                                        "null") ",'logprobs':null,'"
                                                                                "finish_reason':'"
                                                                                "length','token_"
                                                                                "ids':[]}",
                 "2", "5") ",'prompt_token_ids':[0,1,2]}");
    close_answer(g);
}

/* Reasoning by the names of the options; content is null if there are calls and no text. */
static void test_parts(void **state)
{
    static const struct {
        const char *field, *reasoning, *content, *call;
        const char *members;
    } cases[] = {
        {"reasoning_content", "so", "x", NULL,
         "'content':'x','refusal':null,'reasoning_content':'so'"},
        {"reasoning", "so", "x", NULL, "'content':'x','refusal':null,'reasoning':'so'"},
        {"both", "so", NULL, NULL,
         "'content':'','refusal':null,'reasoning_content':'so','reasoning':'so'"},
        {"both", NULL, NULL, "{}",
         "'content':null,'refusal':null,'tool_calls':[{" CALL_HEAD "{}'}}]"},
        {"both", NULL, "", "{}",
         "'content':null,'refusal':null,'tool_calls':[{" CALL_HEAD "{}'}}]"},
        {"both", NULL, "x", "{}",
         "'content':'x','refusal':null,'tool_calls':[{" CALL_HEAD "{}'}}]"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen *g = open_answer(&srv_write_chat);
        struct gen_choice *c = &ac.choices[0];
        char expected[1000];
        test_config.reasoning_field = cases[i].field;
        if (cases[i].reasoning) add_part(c, CHOICE_REASONING, cases[i].reasoning);
        if (cases[i].content) add_part(c, CHOICE_CONTENT, cases[i].content);
        if (cases[i].call) add_call(c, "add", cases[i].call);
        snprintf(expected, sizeof(expected),
                 WHOLE(MESSAGE("0", "%s") ",'logprobs':null,'finish_reason':'stop'}", "0", "3") "}",
                 cases[i].members);
        check_whole(g, expected);
        close_answer(g);
    }
}

static void test_logprobs(void **state)
{
    struct srv_gen *g = open_answer(&srv_write_chat);
    (void)state;
    g->params.want_logprobs = true;
    g->params.n_asked_stop_ids = 1;
    g->params.stop_ids = (int32_t[]){8};
    add_tokens(&ac.choices[0], (int32_t[]){7, 8}, 2);
    ac.choices[0].ended = true;
    ac.choices[0].stop_id = 8;
    log_prompt();
    g->params.prompt_tops = 1;
    check_whole(g, WHOLE(MESSAGE("0", "'content':'hi','refusal':null") "," LOGGED(
                             "h", "104", "g", "103") ",'finish_reason':'stop','stop_reason':8}",
                         "2", "5") ",'prompt_logprobs':[null,"
                                   "{'0':{'logprob':-0.5,'rank':1,'decoded_token':'a'},'1':{'"
                                   "logprob':-1.0,'decoded_token':'b'}},"
                                   "{'1':{'logprob':-0.5,'rank':1,'decoded_token':'b'},'2':{'"
                                   "logprob':-1.0,'decoded_token':'c'}}]}");
    close_answer(g);
}

static void test_stream(void **state)
{
    struct srv_gen *g = open_answer(&srv_write_chat);
    const struct srv_gen_dialect *d = &srv_write_chat;
    struct gen_choice *c = &ac.choices[0];
    (void)state;
    srv_stream_open(g->req);
    d->stream_begin(g);
    check_events(g, CHUNK("'role':'assistant','content':''", NO_END));
    add_part(c, CHOICE_REASONING, "so");
    add_part(c, CHOICE_CONTENT, "hi");
    add_call(c, "add", "{}");
    send_delta(g, c, &c->parts[0], 0, 2, 0, 0);
    check_events(g, CHUNK("'reasoning_content':'so'", NO_END));
    send_delta(g, c, &c->parts[1], 2, 4, 0, 0);
    check_events(g, CHUNK("'content':'hi'", NO_END));
    d->stream_call(g, c, &c->parts[2]);
    check_events(g, CHUNK("'tool_calls':[{'index':0," CALL_HEAD "'}}]", NO_END));
    send_delta(g, c, &c->parts[2], 4, 6, 0, 0);
    check_events(g, CHUNK("'tool_calls':[{'index':0,'function':{'arguments':'{}'}}]", NO_END));
    d->stream_finish(g, c);
    check_events(g, CHUNK("", "'logprobs':null,'finish_reason':'stop'"));
    close_answer(g);
}

static void test_stream_of_tokens(void **state)
{
    struct srv_gen *g = open_answer(&srv_write_chat);
    const struct srv_gen_dialect *d = &srv_write_chat;
    struct gen_choice *c = &ac.choices[0];
    (void)state;
    g->params.want_logprobs = g->params.return_token_ids = true;
    srv_stream_open(g->req);
    d->stream_begin(g);
    check_events(g, "data: " HEAD("chat.completion.chunk") "{'index':0,'delta':{'role':'assistant',"
                                                           "'content':''}," NO_END
                                                           "}],'prompt_token_ids':[0,1,2]}\n\n");
    add_tokens(c, (int32_t[]){7, 8}, 2);
    c->n_showable = 1;
    send_delta(g, c, NULL, 0, 2, 0, 2);
    check_events(g,
                 CHUNK("'content':'hi'",
                       LOGGED("h", "104", "g", "103") ",'finish_reason':null,'token_ids':[7,8]"));
    close_answer(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_of_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
