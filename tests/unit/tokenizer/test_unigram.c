/* SPDX-License-Identifier: MIT */
/* Unigram by hand-made scores. Equality with the reference library is shown by tests/golden. */
#include "test.h"

#include <math.h>

#include "load_tokenizer.h"

#define UNIGRAM(options, vocab) "'model':{'type':'Unigram'," options "'vocab':[['?',0]," vocab "]}}"

static void the_largest_sum_counts(void **state)
{
    static const struct {
        const char *text, *ids;
    } cases[] = {
        {"ab", "3"},
        {"abc", "1 4"},
        {"aab", "1 3"},
        {"xx", "0"},
        {"axxb", "1 0 2"},
        {"abcabc", "1 4 1 4"},
        {"\xc3\xa9"
         "a",
         "5 1"},
        {"\xc3\xaa\xc3\xa9", "0 5"},
        {"", ""},
    };
    struct tok *t = load_good(
        "{" UNIGRAM("'unk_id':0,", "['a',-1],['b',-2],['ab',-2.5],['bc',-1.25],['\xc3\xa9',-9]"));

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++)
        REQUIRE_EQ_STR(encode(t, cases[i].text, 0), cases[i].ids);
    tok_close(t);
}

/* Of equal sums the longer last token. */
static void ties_keep_the_first_way(void **state)
{
    struct tok *t = load_good("{" UNIGRAM("'unk_id':0,", "['a',-1],['aa',-2],['aaa',-3]"));

    (void)state;
    REQUIRE_EQ_STR(encode(t, "aa", 0), "2");
    REQUIRE_EQ_STR(encode(t, "aaaa", 0), "1 3");
    tok_close(t);
}

/* Taking "b" as unknown costs -25 here, so "ab" is better than "a" and that. */
static void an_unknown_character_costs_10_more_than_the_worst(void **state)
{
    struct tok *t = load_good("{" UNIGRAM("'unk_id':0,", "['a',5],['ab',-15]"));

    (void)state;
    REQUIRE_EQ_STR(encode(t, "ab", 0), "2");
    tok_close(t);
    t = load_good("{" UNIGRAM("'unk_id':0,", "['a',11],['ab',-15]"));
    REQUIRE_EQ_STR(encode(t, "ab", 0), "1 0");
    tok_close(t);
}

static void unknown_characters_become_bytes(void **state)
{
    struct tok *t = load_good(
        "{" UNIGRAM("'unk_id':0,'byte_fallback':true,", "['a',-1],['<0xC3>',-3],['<0xAA>',-3]"));

    (void)state;
    REQUIRE_EQ_STR(encode(t, "a\xc3\xaa", 0), "1 2 3");
    REQUIRE_EQ_STR(encode(t,
                          "\xc3\xaa"
                          "a\xc3\xaa\xc3\xab",
                          0),
                   "2 3 1 0"); /* no <0xAB> */
    tok_close(t);
}

static void no_text_spells_a_special_token(void **state)
{
    struct tok *t = load_good("{'added_tokens':[" ADDED(1, "ab") "]," UNIGRAM(
        "'unk_id':0,", "['ab',0],['a',-1],['b',-1]"));

    (void)state;
    REQUIRE_EQ_STR(encode(t, "ab", TOK_PARSE_SPECIAL), "1");
    REQUIRE_EQ_STR(encode(t, "ab", 0), "2 3");
    tok_close(t);
}

static void an_unknown_token_that_is_missing_is_an_error_when_needed(void **state)
{
    struct tok *t = load_good("{" UNIGRAM("", "['a',-1]"));
    struct tok_ids ids = {0};

    (void)state;
    REQUIRE_EQ_STR(encode(t, "a", 0), "1");
    REQUIRE_EQ_INT(tok_encode(t, "b", 1, 0, &ids, err, sizeof(err)), TOK_EINVAL);
    REQUIRE_EQ_INT(ids.n, 0);
    tok_ids_finish(&ids);
    tok_close(t);
}

/* The reference rounds 17 digits before it divides; the nearest double is another for the first. */
static void scores_are_read_as_the_reference_does(void **state)
{
    static const struct {
        const char *text;
        double value;
    } cases[] = {
        {"-36472274096111494e-16", -36472274096111494.0 / 1e16},
        {"-3.6472274096111494", -36472274096111494.0 / 1e16},
        {"12", 12},
        {"-0.5e1", -5},
        {"1E+2", 100},
        {"18446744073709551617.5", 1844674407370955161.0 * 10},
        {"0.00000000000000000000125", 125 / 1e23},
        {"1e-400", 0},
        {"0e999", 0},
    };
    struct tok_unigram u = {0};

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        REQUIRE_EQ_INT(
            tok_unigram_add_score(&u, cases[i].text, strlen(cases[i].text), err, sizeof(err)), 0);
        REQUIRE_MSG(u.score[i] == cases[i].value, "%s: %.20g", cases[i].text, u.score[i]);
    }
    REQUIRE_EQ_INT(tok_unigram_add_score(&u, "1e309", 5, err, sizeof(err)), TOK_EINVAL);
    tok_unigram_finish(&u);
}

/* A piece far longer than the window of sums, with tokens of all lengths. */
static void long_pieces_wrap_the_window(void **state)
{
    static char vocab[4096], text[4001];
    size_t n = 0;

    (void)state;
    for (int i = 1; i <= 40; i++)
        n += (size_t)snprintf(vocab + n, sizeof(vocab) - n, "%s['%.*s',%d]", i > 1 ? "," : "", i,
                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", -i - 1);
    char *json = malloc(8192);
    snprintf(json, 8192, "{'model':{'type':'Unigram','unk_id':0,'vocab':[['?',0],%s]}}", vocab);
    struct tok *t = load_good(json);
    struct tok_ids ids = {0};
    memset(text, 'a', 4000);
    REQUIRE_EQ_INT(tok_encode(t, text, 4000, 0, &ids, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(ids.n, 100);
    for (size_t i = 0; i < ids.n; i++)
        REQUIRE_EQ_INT(ids.ids[i], 40);
    tok_ids_finish(&ids);
    tok_close(t);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_sum_counts),
        cmocka_unit_test(ties_keep_the_first_way),
        cmocka_unit_test(an_unknown_character_costs_10_more_than_the_worst),
        cmocka_unit_test(unknown_characters_become_bytes),
        cmocka_unit_test(no_text_spells_a_special_token),
        cmocka_unit_test(an_unknown_token_that_is_missing_is_an_error_when_needed),
        cmocka_unit_test(scores_are_read_as_the_reference_does),
        cmocka_unit_test(long_pieces_wrap_the_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
