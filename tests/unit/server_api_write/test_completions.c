/* SPDX-License-Identifier: MIT */
/* Completions: whole answers and chunks with an echoed prompt, the four arrays and ids. */
#include "answer_case.h"

#define HEAD                                                                                       \
    "{'id':'id-1','object':'text_completion','created':7,'model':'demo',"                          \
    "'system_fingerprint':'fp','choices':["
#define WHOLE(choices, n, total)                                                                   \
    HEAD choices "],'usage':{'prompt_tokens':3,'completion_tokens':" n ",'total_tokens':" total    \
                 ",'prompt_tokens_details':{'cached_tokens':1,'cache_write_tokens':2}}}"
#define CHUNK(text, members) "data: " HEAD "{'index':0,'text':'" text "'," members "}]}\n\n"
#define NO_END "'logprobs':null,'finish_reason':null"
/* of "abc" and of "hi" */
#define ECHO_TOKENS "'a','b','c'"
#define ECHO_LOGPROBS "null,-1.0,-1.0"
#define ECHO_TOPS "null,{'a':-0.5,'b':-1.0},{'b':-0.5,'c':-1.0}"
#define ECHO_OFFSETS "0,1,2"
#define OWN_TOPS "{'g':-0.5,'h':-1.0},{'h':-0.5,'i':-1.0}"

static struct completion_echo echo;
static uint32_t starts[] = {0, 1, 2};

static struct srv_gen *open_completion(bool echoes)
{
    static struct completion cp = {.echoes = &echo};
    struct srv_gen *g = open_answer(&srv_write_completions);
    echo = (struct completion_echo){.text = "abc", .len = 3, .is_text = true};
    if (echoes) echo.n_characters = 3;
    if (echoes) echo.starts = starts;
    g->params.echo = echoes;
    g->params.prompt_tops = -1;
    g->dialect = &cp;
    return g;
}

static void test_text(void **state)
{
    struct srv_gen *g = open_completion(false);
    (void)state;
    g->n_choices = g->n_candidates = 2;
    g->params.return_token_ids = true;
    g->params.prompt_tops = 0;
    log_prompt();
    add_tokens(&ac.choices[0], (int32_t[]){7, 8}, 2);
    ac.choices[1].finish_reason = "length";
    check_whole(g, WHOLE("{'index':0,'text':'hi','logprobs':null,'finish_reason':'stop',"
                         "'prompt_token_ids':[0,1,2],'token_ids':[7,8],'prompt_logprobs':[null,"
                         "{'1':{'logprob':-1.0,'decoded_token':'b'}},"
                         "{'2':{'logprob':-1.0,'decoded_token':'c'}}]},"
                         "{'index':1,'text':'','logprobs':null,'finish_reason':'length',"
                         "'prompt_token_ids':[0,1,2],'token_ids':[],'prompt_logprobs':null}",
                         "2", "5"));
    close_answer(g);
}

static void test_arrays(void **state)
{
    static const struct {
        bool echo;
        const char *choice;
    } cases[] = {
        {false,
         "{'index':0,'text':'hi','logprobs':{'tokens':['h','i'],'token_logprobs':[-1.0,-1.0],"
         "'top_logprobs':[" OWN_TOPS "],'text_offset':[0,1]},'finish_reason':'stop'}"},
        {true, "{'index':0,'text':'abchi','logprobs':{'tokens':[" ECHO_TOKENS ",'h','i'],"
               "'token_logprobs':[" ECHO_LOGPROBS ",-1.0,-1.0],'top_logprobs':[" ECHO_TOPS
               "," OWN_TOPS "],'text_offset':[" ECHO_OFFSETS ",3,4]},'finish_reason':'stop'}"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char expected[2000];
        struct srv_gen *g = open_completion(cases[i].echo);
        g->params.want_logprobs = true;
        g->params.logprobs_count = 1;
        log_prompt();
        add_tokens(&ac.choices[0], (int32_t[]){7, 8}, 2);
        snprintf(expected, sizeof(expected), WHOLE("%s", "2", "5"), cases[i].choice);
        check_whole(g, expected);
        close_answer(g);
    }
}

/* The sampled token once; of a prompt's alternatives no more than asked for. */
static void test_tops(void **state)
{
    struct srv_gen *g = open_completion(false);
    (void)state;
    g->params.want_logprobs = true;
    g->params.logprobs_count = 1;
    add_tokens(&ac.choices[0], (int32_t[]){7, 8}, 2);
    ac.tops[0][0] = (struct eng_logprob){7, -1};
    ac.records[0][1].n_top = 0;
    check_whole(
        g, WHOLE("{'index':0,'text':'hi','logprobs':{'tokens':['h','i'],'token_logprobs':[-1.0,"
                 "-1.0],'top_logprobs':[{'h':-1.0},{'i':-1.0}],'text_offset':[0,1]},"
                 "'finish_reason':'stop'}",
                 "2", "5"));
    close_answer(g);
}

static void test_stream(void **state)
{
    struct srv_gen *g = open_completion(true);
    const struct srv_gen_dialect *d = &srv_write_completions;
    struct gen_choice *c = &ac.choices[0];
    (void)state;
    srv_stream_open(g->req);
    add_tokens(c, (int32_t[]){7, 8}, 2);
    send_delta(g, c, &c->parts[0], 0, 1, 0, 1);
    check_events(g, CHUNK("abc", NO_END) CHUNK("h", NO_END));
    send_delta(g, c, &c->parts[0], 1, 2, 1, 2);
    check_events(g, CHUNK("i", NO_END));
    d->stream_finish(g, c);
    check_events(g, CHUNK("", "'logprobs':null,'finish_reason':'stop'"));
    close_answer(g);
}

static void test_stream_of_tokens(void **state)
{
    struct srv_gen *g = open_completion(true);
    struct gen_choice *c = &ac.choices[0];
    (void)state;
    g->params.want_logprobs = g->params.return_token_ids = true;
    g->params.logprobs_count = 1;
    log_prompt();
    srv_stream_open(g->req);
    add_tokens(c, (int32_t[]){7, 8}, 2);
    c->n_showable = 1;
    send_delta(g, c, &c->parts[0], 0, 2, 0, 2);
    check_events(
        g, CHUNK("abc", "'logprobs':{'tokens':[" ECHO_TOKENS "],'token_logprobs':[" ECHO_LOGPROBS
                        "],'top_logprobs':[" ECHO_TOPS "],'text_offset':[" ECHO_OFFSETS
                        "]},'finish_reason':null,'prompt_token_ids':[0,1,2]")
               CHUNK("hi", "'logprobs':{'tokens':['h'],'token_logprobs':[-1.0],'top_logprobs':"
                           "[{'g':-0.5,'h':-1.0}],'text_offset':[3]},'finish_reason':null,"
                           "'token_ids':[7,8]"));
    send_delta(g, c, &c->parts[0], 2, 2, 1, 2);
    check_events(g, CHUNK("", NO_END ",'token_ids':[8]"));
    close_answer(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_tops),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_of_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
