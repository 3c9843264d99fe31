/* SPDX-License-Identifier: MIT */
/* WordPiece by hand-made vocabularies. Equality with the reference library is shown by tests/golden. */
#include "test.h"

#include "load_tokenizer.h"

#define WORDPIECE(options, vocab)                                                                  \
    "'model':{'type':'WordPiece','unk_token':'[UNK]','continuing_subword_prefix':'##',"            \
    "'max_input_chars_per_word':" options ",'vocab':{'[UNK]':0,'un':1,'##aff':2,'##able':3,"       \
    "'##a':4,'unaff':5,'\xc3\xa9':6,'##\xc3\xa9':7,'a':8,'##':9,'#':10" vocab "}}}"

static void the_longest_token_counts(void **state)
{
    static const struct {
        const char *text, *ids;
    } cases[] = {
        {"un", "1"},
        {"unaffable", "5 3"},
        {"unable", "1 3"},
        {"unx", "0"},
        {"xun", "0"},
        {"unaffa un", "5 4 1"},
        {"\xc3\xa9\xc3\xa9", "6 7"},
        {"\xc3\xaa", "0"},
        {"aff", "0"},
        {"##a", "4"},
        {"", ""},
        {"##", "9"},
    };
    struct tok *t = load_good("{'pre_tokenizer':{'type':'WhitespaceSplit'}," WORDPIECE("9", ""));

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++)
        REQUIRE_EQ_STR(encode(t, cases[i].text, 0), cases[i].ids);
    tok_close(t);
}

static void long_words_are_unknown(void **state)
{
    struct tok *t = load_good("{" WORDPIECE("3", ""));

    (void)state;
    REQUIRE_EQ_STR(encode(t, "\xc3\xa9\xc3\xa9\xc3\xa9", 0), "6 7 7");
    REQUIRE_EQ_STR(encode(t, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 0), "0");
    tok_close(t);
}

/* What stands for the end of a text must not come from its inside. */
static void no_text_spells_a_special_token(void **state)
{
    struct tok *t =
        load_good("{'added_tokens':[" ADDED(11, "end") "]," WORDPIECE("9", ",'end':11"));

    (void)state;
    REQUIRE_EQ_STR(encode(t, "end", TOK_PARSE_SPECIAL), "11");
    REQUIRE_EQ_STR(encode(t, "end", 0), "0");
    tok_close(t);
}

static void a_missing_unknown_token_is_an_error_when_needed(void **state)
{
    struct tok *t =
        load_good("{'model':{'type':'WordPiece','unk_token':'?','max_input_chars_per_word"
                  "':9,'continuing_subword_prefix':'##','vocab':{'a':0}}}");
    struct tok_ids ids = {0};

    (void)state;
    REQUIRE_EQ_STR(encode(t, "a", 0), "0");
    REQUIRE_EQ_INT(tok_encode(t, "b", 1, 0, &ids, err, sizeof(err)), TOK_EINVAL);
    REQUIRE(strstr(err, "unknown token"));
    tok_ids_finish(&ids);
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_token_counts),
        cmocka_unit_test(long_words_are_unknown),
        cmocka_unit_test(no_text_spells_a_special_token),
        cmocka_unit_test(a_missing_unknown_token_is_an_error_when_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
