/* SPDX-License-Identifier: MIT */
/* Marks around a hole in a text: which ones a vocabulary has, and texts that spell them. */
#include "test.h"

#include "load_tokenizer.h"

#define PLAIN(id, content)                                                                         \
    "{'id':" #id ",'content':'" content "','special':false,'normalized':false,"                    \
    "'single_word':false,'lstrip':false,'rstrip':false}"
#define VOCAB(words) "'model':{'vocab':{'<':0,'x':1,'>':2,'|':3," words "},'merges':[]}}"

static struct tok_fim find(const struct tok *t, const char *option)
{
    struct tok_fim fim;
    REQUIRE_MSG(!tok_fim_find(&fim, t, 100, option, err, sizeof(err)), "%s", err);
    return fim;
}

static void families_are_known_by_their_marks(void **state)
{
    static const struct {
        const char *vocab;
        int prefix, suffix, middle, repo, file;
        bool suffix_first;
    } cases[] = {
        {VOCAB("'<|fim_prefix|>':4,'<|fim_middle|>':5,'<|fim_suffix|>':6,'<|repo_name|>':7,"
               "'<|file_sep|>':8"),
         4, 6, 5, 7, 8, false},
        {VOCAB("'<fim_prefix>':4,'<fim_middle>':5,'<fim_suffix>':6,'<reponame>':7,'<filename>':8"),
         4, 6, 5, 7, 8, false},
        {VOCAB("'<｜fim▁begin｜>':4,'<｜fim▁hole｜>':5,'<｜fim▁end｜>':6"), 4, 5, 6, -1, -1, false},
        {VOCAB("'▁<PRE>':4,'▁<SUF>':5,'▁<MID>':6"), 4, 5, 6, -1, -1, false},
        {VOCAB("'<[fim-prefix]>':4,'<[fim-suffix]>':5,'<[fim-middle]>':6"), 4, 5, 6, -1, -1, true},
        {VOCAB("'[PREFIX]':4,'[SUFFIX]':5"), 4, 5, -1, -1, -1, true},
        {VOCAB("'<repo_name>':4,'<file_sep>':5,'<filename>':6"), -1, -1, -1, -1, -1, false},
        {VOCAB("'<fim_prefix>':4,'<fim_suffix>':5"), -1, -1, -1, -1, -1, false},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char json[512];
        snprintf(json, sizeof(json), "{%s", cases[i].vocab);
        struct tok *t = load_good(json);
        struct tok_fim fim = find(t, NULL);
        REQUIRE_EQ_INT(fim.id[TOK_FIM_PREFIX], cases[i].prefix);
        REQUIRE_EQ_INT(fim.id[TOK_FIM_SUFFIX], cases[i].suffix);
        REQUIRE_EQ_INT(fim.id[TOK_FIM_MIDDLE], cases[i].middle);
        REQUIRE_EQ_INT(fim.id[TOK_FIM_REPO], cases[i].repo);
        REQUIRE_EQ_INT(fim.id[TOK_FIM_FILE], cases[i].file);
        REQUIRE_EQ_INT(fim.suffix_first, cases[i].suffix_first);
        REQUIRE(!tok_fim_find(&fim, t, 4, NULL, err, sizeof(err)) && fim.id[TOK_FIM_PREFIX] == -1);
        tok_close(t);
    }
}

static void an_option_names_them(void **state)
{
    static const char *const bad[] = {"<a>",      "<a>,<b>",    "<a>,<b>,", "<a>,<b>,<c>,,<d>,<a>",
                                      "<a>,,<c>", "<a>,<b>,no", "",         "<a>,<b>,<c>,,,,spm"};
    struct tok *t = load_good("{" VOCAB("'<a>':4,'<b>':5,'<c>':6,'<d>':7"));
    struct tok_fim fim = find(t, "<a>,<b>,<c>,,<d>,spm");

    (void)state;
    REQUIRE_EQ_INT(fim.id[TOK_FIM_MIDDLE], 6);
    REQUIRE_EQ_INT(fim.id[TOK_FIM_REPO], -1);
    REQUIRE_EQ_INT(fim.id[TOK_FIM_FILE], 7);
    REQUIRE(fim.suffix_first && !find(t, "<a>,<b>,<c>").suffix_first);
    REQUIRE(find(t, "<a>,<b>,,spm").id[TOK_FIM_MIDDLE] == -1);
    REQUIRE_EQ_INT(tok_fim_find(&fim, t, 5, "<a>,<b>,<c>", err, sizeof(err)), TOK_EINVAL);
    for (size_t i = 0; i < N_OF(bad); i++) {
        err[0] = 0;
        REQUIRE_EQ_INT(tok_fim_find(&fim, t, 100, bad[i], err, sizeof(err)), TOK_EINVAL);
        REQUIRE_MSG(strstr(err, "--fim-marks"), "%s", bad[i]);
    }
    tok_close(t);
}

static char *encode_fim(const struct tok *t, const char *text)
{
    struct tok_fim fim = find(t, NULL);
    struct tok_ids ids = {0};
    REQUIRE_EQ_INT(tok_fim_encode(t, &fim, text, strlen(text), &ids, err, sizeof(err)), 0);
    char *out = print_ids(&ids);
    tok_ids_finish(&ids);
    return out;
}

static void marks_in_a_text_stay_text(void **state)
{
    struct tok *t = load_good("{'added_tokens':[" PLAIN(4, "[PREFIX]") "," PLAIN(
        5, "[SUFFIX]") "," PLAIN(6, "<x>") "]," VOCAB("'[PREFIX]':4,'[SUFFIX]':5,'<x>':6,'[':7,'P':"
                                                      "8,'R':9,'E':10,'F':11,'I':12,'X':13,"
                                                      "']':14,'S':15,'U':16"));

    (void)state;
    REQUIRE_EQ_STR(encode(t, "[PREFIX]<x>", 0), "4 6");
    REQUIRE_EQ_STR(encode_fim(t, "[PREFIX]<x>"), "7 8 9 10 11 12 13 14 6");
    REQUIRE_EQ_STR(encode_fim(t, "[[SUFFIX][PREFIX]"),
                   "7 7 15 16 11 11 12 13 14 7 8 9 10 11 12 13 14");
    REQUIRE_EQ_STR(encode_fim(t, "[SUFFIX"), "7 15 16 11 11 12 13");
    REQUIRE_EQ_STR(encode_fim(t, ""), "");
    tok_close(t);
}

/* As Llama's tokenizers, which begin a text with a blank. */
static void a_suffix_begins_without_a_blank(void **state)
{
    struct tok *t = load_good(
        "{'normalizer':{'type':'Prepend','prepend':'▁'},"
        "'model':{'vocab':{'▁':0,'☺':1,'a':2,'▁a':3,'▁<PRE>':4,'▁<SUF>':5,'▁<MID>':6,'▁☺':7},"
        "'merges':['▁ a','▁ ☺']}}");
    struct tok_fim fim = find(t, NULL);
    struct tok_ids ids = {0};

    (void)state;
    REQUIRE_EQ_STR(encode(t, "a", 0), "3");
    REQUIRE_EQ_INT(tok_fim_encode(t, &fim, "a", 1, &ids, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(tok_fim_encode_suffix(t, &fim, "aa", 2, &ids, err, sizeof(err)), 0);
    REQUIRE_EQ_STR(print_ids(&ids), "3 2 2");
    REQUIRE_EQ_INT(tok_fim_encode_suffix(t, &fim, "\xff", 1, &ids, err, sizeof(err)), TOK_EUTF8);
    REQUIRE_EQ_INT(ids.n, 3);
    tok_ids_finish(&ids);
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_known_by_their_marks),
        cmocka_unit_test(an_option_names_them),
        cmocka_unit_test(marks_in_a_text_stay_text),
        cmocka_unit_test(a_suffix_begins_without_a_blank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
