/* SPDX-License-Identifier: MIT */
/* Texts of vectors: prompts by the names of both sides, special tokens around ids, and cuts that leave them. */
#include "test.h"

#include "engine/engine.h"
#include "server/models/retrieval.h"
#include "tokenizer/tokenizer.h"

static struct srv_retrieval files_with(const char *prompts)
{
    struct srv_retrieval files = {.prompts = json_loads(prompts, 0, NULL)};
    REQUIRE(files.prompts);
    return files;
}

static void prompts_have_many_names(void **state)
{
    static const struct {
        const char *name, *text;
    } cases[] = {{"search_query", "Q: "},      {"query", "Q: "},   {"retrieval.query", "Q: "},
                 {"document", "D: "},          {"passage", "D: "}, {"search_document", "D: "},
                 {"retrieval.passage", "D: "}, {"classify", "C"},  {"clustering", NULL}};
    struct srv_retrieval files =
        files_with("{\"search_query\": \"Q: \", \"passage\": \"D: \", \"classify\": \"C\"}");
    char names[80];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const json_t *text = srv_text_prompt(&files, cases[i].name);
        REQUIRE_MSG(!text == !cases[i].text, "%s", cases[i].name);
        if (text) REQUIRE_EQ_STR(json_string_value(text), cases[i].text);
    }
    REQUIRE_EQ_STR(srv_text_prompt_names(&files, names, sizeof(names)),
                   "the prompts 'search_query', 'passage', 'classify'");
    REQUIRE_EQ_STR(srv_text_prompt_names(&files, names, 40),
                   "the prompts 'search_query', 'passage'");
    json_decref(files.prompts);
    files.prompts = NULL;
    REQUIRE_EQ_STR(srv_text_prompt_names(&files, names, sizeof(names)), "no prompts");
}

static void longest_is_the_smaller(void **state)
{
    const struct eng_info info = {.ctx_tokens = 100};
    static const int64_t cases[][2] = {{0, 100}, {7, 7}, {100, 100}, {101, 100}};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct srv_retrieval files = {.max_tokens = cases[i][0]};
        REQUIRE_EQ_INT(srv_text_longest(&files, &info), cases[i][1]);
    }
}

static void cuts_leave_head_and_tail(void **state)
{
    static const struct {
        size_t most, head, tail;
        bool keep_end, good;
        const char *left; /* of abcdefgh */
    } cases[] = {
        {8, 1, 1, false, true, "abcdefgh"}, {9, 9, 9, true, true, "abcdefgh"},
        {5, 1, 1, false, true, "abcdh"},    {5, 1, 1, true, true, "aefgh"},
        {5, 0, 2, false, true, "abcgh"},    {3, 2, 0, true, true, "abh"},
        {3, 1, 1, false, true, "abh"},      {2, 1, 1, false, false, "abcdefgh"},
        {1, 0, 0, true, true, "h"},         {1, 0, 1, false, false, "abcdefgh"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int32_t ids[8] = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'};
        size_t n = 8;
        char text[9] = "";
        bool good =
            srv_text_cut(ids, &n, cases[i].most, cases[i].keep_end, cases[i].head, cases[i].tail);
        REQUIRE_MSG(good == cases[i].good, "case %zu", i);
        for (size_t k = 0; k < n; k++)
            text[k] = (char)ids[k];
        REQUIRE_EQ_STR(text, cases[i].left);
    }
}

static void ids_of_prompt_and_text(void **state)
{
    char dir[1024], err[200];
    const char *root = getenv("HEARTH_SOURCE_ROOT");
    const struct eng_info takes = {.unpooled_prompt = true}, leaves = {.unpooled_prompt = false};
    struct tok *tok;
    struct tok_ids joined = {0}, apart = {0};
    int64_t n_unpooled = 9;
    (void)state;
    snprintf(dir, sizeof(dir), "%s/deploy/demo", root ? root : ".");
    REQUIRE(tok_open(&tok, dir, err, sizeof(err)) == 0);
    REQUIRE(srv_text_encode(tok, "search: ", 8, "a cat", 5, &joined, err, sizeof(err)) == 0);
    REQUIRE(tok_encode(tok, "search: a cat", 13, TOK_ADD_SPECIAL, &apart, err, sizeof(err)) == 0);
    REQUIRE_EQ_INT(joined.n, apart.n);
    REQUIRE(!memcmp(joined.ids, apart.ids, joined.n * sizeof(*joined.ids)));
    REQUIRE(srv_text_unpooled(tok, &takes, "search: ", 8, &n_unpooled, err, sizeof(err)) == 0);
    REQUIRE(n_unpooled > 0 && n_unpooled < (int64_t)joined.n);
    REQUIRE(srv_text_unpooled(tok, &leaves, "search: ", 8, &n_unpooled, err, sizeof(err)) == 0);
    REQUIRE_EQ_INT(n_unpooled, 0);
    tok_ids_finish(&joined);
    tok_ids_finish(&apart);
    tok_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_have_many_names),
        cmocka_unit_test(longest_is_the_smaller),
        cmocka_unit_test(cuts_leave_head_and_tail),
        cmocka_unit_test(ids_of_prompt_and_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
