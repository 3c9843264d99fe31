/* SPDX-License-Identifier: MIT */
/* Special tokens around one text and two, token types, and what limits leave. */
#include "test.h"

#include "load_tokenizer.h"

#define PIECE(kind, id, type) "{'" kind "':{'id':'" id "','type_id':" type "}}"
#define TEMPLATE(pair)                                                                             \
    "'post_processor':{'type':'TemplateProcessing','single':[" PIECE(                              \
        "Sequence", "A", "0") "," PIECE("SpecialToken", "s",                                       \
                                        "0") "],'pair':[" pair                                     \
                                             "],'special_tokens':{'s':{'ids':[7,8]}}},"
#define A PIECE("Sequence", "A", "0")

/* Ids 1 2 and 3 joined, as "ids|n_first". */
static const char *join(const struct tok *t, bool pair)
{
    static char out[256];
    struct tok_ids a = {(int32_t[]){1, 2}, 2, 0}, b = {(int32_t[]){3}, 1, 0}, ids = {0};
    size_t n_first = 99;

    int rc = tok_join(t, &a, pair ? &b : NULL, &ids, &n_first, err, sizeof(err));
    if (rc) return err;
    size_t n_before, n_after;
    tok_special_around(t, &n_before, &n_after);
    REQUIRE(pair || (ids.n == n_before + a.n + n_after && ids.ids[n_before] == 1 &&
                     ids.ids[n_before + 1] == 2));
    REQUIRE_EQ_INT(ids.n, a.n + (pair ? b.n : 0) + tok_n_special(t, pair));
    snprintf(out, sizeof(out), "%s|%zu", print_ids(&ids), n_first);
    tok_ids_finish(&ids);
    return out;
}

static void texts_are_joined_as_the_file_says(void **state)
{
    static const struct {
        const char *post, *single, *pair;
    } cases[] = {
        {"", "1 2|2", "1 2 3|2"},
        {"'post_processor':{'type':'BertProcessing','sep':[']',6],'cls':['[',5]},", "5 1 2 6|4",
         "5 1 2 6 3 6|4"},
        {"'post_processor':{'type':'RobertaProcessing','sep':[']',6],'cls':['[',5]},", "5 1 2 6|4",
         "5 1 2 6 6 3 6|7"},
        {TEMPLATE(A "," PIECE("SpecialToken", "s", "0") "," PIECE("Sequence", "B", "1")),
         "1 2 7 8|4", "1 2 7 8 3|4"},
        {TEMPLATE(A "," PIECE("SpecialToken", "s", "1") "," PIECE("Sequence", "B", "1")),
         "1 2 7 8|4", "1 2 7 8 3|2"},
        {TEMPLATE(A "," PIECE("Sequence", "B", "0") "," PIECE("SpecialToken", "s", "1")),
         "1 2 7 8|4", "1 2 3 7 8|3"},
        {TEMPLATE(PIECE("Sequence", "B", "0") "," A), "1 2 7 8|4",
         "the tokenizer cannot join two texts: TemplateProcessing: \"pair\" should hold special "
         "tokens and the sequence A once, for a pair then B"},
        {TEMPLATE(A), "1 2 7 8|4",
         "the tokenizer cannot join two texts: TemplateProcessing: \"pair\" lacks the sequence A "
         "or "
         "B"},
        {TEMPLATE(A "," PIECE("Sequence", "B", "1") "," PIECE("SpecialToken", "s", "0")),
         "1 2 7 8|4",
         "the tokenizer cannot join two texts: TemplateProcessing: \"pair\" has token types other "
         "than 0, then 1"},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char json[1024];
        snprintf(json, sizeof(json), "{%s" MODEL "}", cases[i].post);
        struct tok *t = load_good(json);
        REQUIRE_EQ_STR(join(t, false), cases[i].single);
        REQUIRE_EQ_STR(join(t, true), cases[i].pair);
        tok_close(t);
    }
}

static void bad_processors_are_refused(void **state)
{
    static const char *const posts[][2] = {
        {"{'type':'BertProcessing','sep':['x'],'cls':['x',1]}", "BertProcessing"},
        {"{'type':'RobertaProcessing','sep':['x',-1],'cls':['x',1]}", "RobertaProcessing"},
        {"{'type':'Sequence','processors':[{'type':'BertProcessing','sep':['x',1],'cls':['x',1]},"
         "{'type':'BertProcessing','sep':['x',1],'cls':['x',1]}]}",
         "another one"},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(posts); i++) {
        char json[1024];
        snprintf(json, sizeof(json), "{'post_processor':%s," MODEL "}", posts[i][0]);
        REQUIRE(!load(json));
        REQUIRE_MSG(strstr(err, posts[i][1]), "%s", err);
    }
}

static void the_longer_text_is_cut_first(void **state)
{
    static const size_t cases[][5] = {/* room, lengths before, lengths after */
                                      {9, 4, 5, 4, 5}, {8, 4, 5, 4, 4}, {8, 5, 4, 4, 4},
                                      {7, 4, 5, 3, 4}, {7, 5, 4, 4, 3}, {7, 5, 5, 3, 4},
                                      {7, 2, 9, 2, 5}, {7, 9, 2, 5, 2}, {0, 3, 3, 0, 0},
                                      {1, 3, 3, 0, 1}, {5, 0, 9, 0, 5}};

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        size_t a = cases[i][1], b = cases[i][2];
        tok_cut_pair(cases[i][0], &a, &b);
        REQUIRE_EQ_INT(a, cases[i][3]);
        REQUIRE_EQ_INT(b, cases[i][4]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_joined_as_the_file_says),
        cmocka_unit_test(bad_processors_are_refused),
        cmocka_unit_test(the_longer_text_is_cut_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
