/* SPDX-License-Identifier: MIT */
/* llama-server's own dialect: whole answers of one choice and of several, and events. */
#include "answer_case.h"

#define COUNTS(n) "'tokens_predicted':" n ",'tokens_evaluated':3"
#define END(type, word, ids, n, cached, cut)                                                       \
    "'stop':true,'stop_type':'" type "','stopping_word':'" word "'," ids COUNTS(                   \
        n) ",'tokens_cached':" cached ",'truncated':" cut                                          \
           ",'model':'demo','generation_settings':{"                                               \
           "'n_ctx':50}}"
#define ENDS(type, word) END(type, word, "", "2", "5", "false")

static struct completion completion;

static struct srv_gen *open_native(void)
{
    struct srv_gen *g = open_answer(&srv_write_native);
    completion = (struct completion){0};
    g->dialect = &completion;
    test_info.ctx_tokens = 50;
    add_tokens(&ac.choices[0], (int32_t[]){7, 8}, 2);
    return g;
}

static void test_ends(void **state)
{
    static const struct {
        const char *reason, *stop, *answer;
    } cases[] = {
        {"stop", NULL, "{'index':0,'content':'hi'," ENDS("eos", "")},
        {"length", NULL, "{'index':0,'content':'hi'," ENDS("limit", "")},
        {"stop", "END", "{'index':0,'content':'hi'," ENDS("word", "END")},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen *g = open_native();
        ac.choices[0].finish_reason = cases[i].reason;
        ac.choices[0].stop_string = cases[i].stop;
        ac.stops.stop[0].len = 3;
        check_whole(g, cases[i].answer);
        close_answer(g);
    }
}

static void test_choices(void **state)
{
    struct srv_gen *g = open_native();
    (void)state;
    g->n_choices = g->n_candidates = 2;
    g->params.return_token_ids = completion.cut = true;
    check_whole(g, "[{'index':0,'content':'hi'," END(
                       "eos", "", "'tokens':[7,8],", "2", "5",
                       "true") ","
                               "{'index':1,'content':''," END("eos", "", "'tokens':[],", "0", "3",
                                                              "true") "]");
    close_answer(g);
}

static void test_stream(void **state)
{
    struct srv_gen *g = open_native();
    const struct srv_gen_dialect *d = g->format->answer;
    const struct gen_progress progress = {.n_total = 9, .n_done = 5, .n_cached = 2, .us = 7999};
    struct gen_choice *c = &ac.choices[0];
    (void)state;
    srv_stream_open(g->req);
    d->stream_progress(g, &progress);
    check_events(g, "data: {'content':'','stop':false,'prompt_progress':{'total':9,'cache':2,"
                    "'processed':5,'time_ms':7}}\n\n");
    send_delta(g, c, &c->parts[0], 0, 1, 0, 1);
    check_events(g, "data: {'index':0,'content':'h','stop':false," COUNTS("1") "}\n\n");
    g->params.return_token_ids = true;
    send_delta(g, c, &c->parts[0], 1, 2, 1, 2);
    check_events(g,
                 "data: {'index':0,'content':'i','stop':false,'tokens':[8]," COUNTS("2") "}\n\n");
    d->stream_finish(g, c);
    check_events(g, "data: {'index':0,'content':''," END("eos", "", "'tokens':[],", "2", "5",
                                                         "false") "\n\n");
    close_answer(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
