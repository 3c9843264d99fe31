/* SPDX-License-Identifier: MIT */
/*
 * Text to ids: special tokens in marked text, bad UTF-8, long words. Equality with the reference
 * library is shown by tests/golden.
 */
#include "test.h"

#include <time.h>

#include "base/utf8.h"
#include "load_tokenizer.h"

static void text_that_is_not_utf8_is_refused(void **state)
{
    static const char *const texts[] = {"\xff",     "a\x80",           "\xc3",
                                        "\xe6\xb0", "\xed\xa0\x80",    "\xf4\x90\x80\x80",
                                        "\xc0\xaf", "\xf0\x80\x80\x80"};
    struct tok *t = open_demo();
    struct tok_ids ids = {0};

    (void)state;
    for (size_t i = 0; i < N_OF(texts); i++) {
        REQUIRE_EQ_INT(tok_encode(t, texts[i], strlen(texts[i]), 3, &ids, err, sizeof(err)),
                       TOK_EUTF8);
        REQUIRE_EQ_INT(ids.n, 0);
    }
    tok_ids_finish(&ids);
    tok_close(t);
}

static void ids_are_appended_and_kept_on_failure(void **state)
{
    struct tok *t = open_demo();
    struct tok_ids ids = {0};

    (void)state;
    REQUIRE_EQ_INT(tok_encode(t, "one", 3, 0, &ids, err, sizeof(err)), 0);
    size_t n = ids.n;
    REQUIRE_EQ_INT(tok_encode(t, "two", 3, 0, &ids, err, sizeof(err)), 0);
    REQUIRE(ids.n > n);
    n = ids.n;
    REQUIRE_EQ_INT(tok_encode(t, "\xff", 1, 0, &ids, err, sizeof(err)), TOK_EUTF8);
    REQUIRE_EQ_INT(ids.n, n);
    tok_ids_finish(&ids);
    tok_close(t);
}

static void special_tokens_from_input_are_plain_text(void **state)
{
    static const struct {
        const char *text;
        struct tok_range input[2];
        size_t n_input;
        unsigned flags;
        const char *ids;
    } cases[] = {
        {"<a>[x]", {{0, 0}}, 0, TOK_PARSE_SPECIAL, "3 5"},
        {"<a>[x]", {{0, 0}}, 0, 0, "0 2 1 7 8 9"},
        {"<a>[x]", {{0, 3}}, 1, TOK_PARSE_SPECIAL, "0 2 1 5"},
        {"<a>[x]", {{3, 6}}, 1, TOK_PARSE_SPECIAL, "3 7 8 9"},
        {"<a>[x]", {{2, 4}}, 1, TOK_PARSE_SPECIAL, "0 2 1 7 8 9"},
        {"<a>[x]", {{1, 2}, {5, 6}}, 2, TOK_PARSE_SPECIAL, "0 2 1 7 8 9"},
        {"<a><b>", {{0, 0}}, 0, TOK_PARSE_SPECIAL, "4"},
        {"<a><b>", {{3, 6}}, 1, TOK_PARSE_SPECIAL, "3 0 6 1"}, /* the template's token stays */
        {"<a><a>", {{0, 1}}, 1, TOK_PARSE_SPECIAL, "0 2 1 3"},
    };
    struct tok *t = load_good("{" SPECIALS "}");

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok_ids ids = {0};
        int rc = tok_encode_marked(t, cases[i].text, strlen(cases[i].text), cases[i].input,
                                   cases[i].n_input, cases[i].flags, &ids, err, sizeof(err));
        REQUIRE_EQ_INT(rc, 0);
        REQUIRE_MSG(strcmp(print_ids(&ids), cases[i].ids) == 0, "case %zu: %s, not %s", i,
                    print_ids(&ids), cases[i].ids);
        tok_ids_finish(&ids);
    }
    tok_close(t);
}

/* Special tokens that are looked for in normalized text are traced back to where they came from. */
static void marks_hold_behind_a_normalizer(void **state)
{
    static const char json[] =
        "{'normalizer':{'type':'Sequence','normalizers':[{'type':'Strip','strip_left':true,'strip_"
        "right':false},"
        "{'type':'Prepend','prepend':'__'},{'type':'Replace','pattern':{'String':'ss'},'content':'-"
        "'},{'type':'Lowercase'},{'type':'NFKC'}]},"
        "'added_tokens':[{'id':0,'content':'<E>','special':true,'normalized':true,'single_word':"
        "false,'lstrip':false,'rstrip':false}],"
        "'model':{'vocab':{'<E>':0,'<':1,'e':2,'>':3,'_':4,'-':5,'__<e>':6,'fi':7,'f':8,'i':9},'"
        "merges':[]}}";
    static const struct {
        const char *text;
        struct tok_range input;
        const char *ids;
    } cases[] = {
        {"  <E>ss<e>", {0, 0}, "0 5 1 2 3"}, /* the pattern is normalized too: it begins with the
                                                prefix */
        {"  <E>ss", {6, 7}, "0 5"},          {"  <E>ss", {3, 4}, "4 4 1 2 3 5"},
        {"  <E>ss", {0, 1}, "0 5"},          {"\xef\xac\x81", {0, 3}, "4 4 8 9"},
    };
    struct tok *t = load_good(json);

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok_ids ids = {0};
        REQUIRE_EQ_INT(tok_encode_marked(t, cases[i].text, strlen(cases[i].text), &cases[i].input,
                                         1, TOK_PARSE_SPECIAL, &ids, err, sizeof(err)),
                       0);
        REQUIRE_MSG(strcmp(print_ids(&ids), cases[i].ids) == 0, "case %zu: %s, not %s", i,
                    print_ids(&ids), cases[i].ids);
        tok_ids_finish(&ids);
    }
    tok_close(t);
}

static void harmless_marks_change_nothing(void **state)
{
    struct tok *t = open_demo();
    static const char text[] =
        "<|im_start|>user\nThe river runs past the mill. It's 12 o'clock.<|im_end|>";
    struct tok_range all = {17, 60};
    struct tok_ids plain = {0}, marked = {0};

    (void)state;
    REQUIRE_EQ_INT(
        tok_encode(t, text, sizeof(text) - 1, TOK_PARSE_SPECIAL, &plain, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(tok_encode_marked(t, text, sizeof(text) - 1, &all, 1, TOK_PARSE_SPECIAL, &marked,
                                     err, sizeof(err)),
                   0);
    REQUIRE_EQ_INT(plain.n, marked.n);
    REQUIRE(memcmp(plain.ids, marked.ids, plain.n * sizeof(*plain.ids)) == 0);
    tok_ids_finish(&plain);
    tok_ids_finish(&marked);
    tok_close(t);
}

static void an_unknown_token_that_is_missing_is_an_error_when_needed(void **state)
{
    struct tok *t = load_good("{'model':{'vocab':{'a':0},'merges':[],'unk_token':'<unk>'}}");
    struct tok_ids ids = {0};

    (void)state;
    REQUIRE_EQ_STR(encode(t, "aa", 0), "0 0");
    REQUIRE_EQ_INT(tok_encode(t, "ab", 2, 0, &ids, err, sizeof(err)), TOK_EINVAL);
    REQUIRE(strstr(err, "unknown token"));
    tok_ids_finish(&ids);
    tok_close(t);
}

/* The heap of long words and the scan of short ones choose the same merges. */
static void long_words_merge_like_short_ones(void **state)
{
    struct tok *t =
        load_good("{'model':{'vocab':{'a':0,'b':1,'aa':2,'ab':3,'aaaa':4,'ba':5,'aba':6},"
                  "'merges':['a a','a b','aa aa','b a','ab a']}}");
    static char text[1201];
    struct tok_ids ids = {0};
    char *back;
    size_t len;
    uint64_t seed = 88172645463325252u;

    (void)state;
    REQUIRE_EQ_STR(encode(t, "aaaaaaaabab", 0), "4 4 1 3");
    memset(text, 'a', 1200);
    REQUIRE_EQ_INT(tok_encode(t, text, 1200, 0, &ids, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(ids.n, 300);
    for (size_t i = 0; i < 1200; i++)
        text[i] = next_random(&seed) % 3 ? 'a' : 'b';
    ids.n = 0;
    REQUIRE_EQ_INT(tok_encode(t, text, 1200, 0, &ids, err, sizeof(err)), 0);
    for (size_t i = 0; i + 1 < ids.n; i++)
        REQUIRE(!(ids.ids[i] == 0 && ids.ids[i + 1] == 0)); /* "a a" is merged */
    tok_close(t);
    t = load_good("{'decoder':{'type':'Fuse'},'model':{'vocab':{'a':0,'b':1,'aa':2,'ab':3,'aaaa':4,"
                  "'ba':5,'aba':6},'merges':[]}}");
    REQUIRE_EQ_INT(tok_decode(t, ids.ids, ids.n, false, &back, &len), 0);
    REQUIRE_EQ_STR(back, text);
    free(back);
    tok_ids_finish(&ids);
    tok_close(t);
}

/* Canonical order and composition, also where a run of marks is longer than any text's. */
static void runs_of_combining_marks_are_ordered(void **state)
{
    static const char json[] = "{'normalizer':{'type':'NFC'},'model':{'vocab':{'e':0,'\xc3\xa9':1,'"
                               "\xcc\x81':2,'\xcc\x96':3,"
                               "'\xe1\x84\x92':4,'\xed\x95\x9c':5},'merges':[]}}";
    struct tok *t = load_good(json);
    char text[512] = "e";
    struct tok_ids ids = {0};

    (void)state;
    REQUIRE_EQ_STR(encode(t, "e\xcc\x81\xcc\x96", 0), "1 3");
    REQUIRE_EQ_STR(encode(t, "e\xcc\x96\xcc\x81", 0), "1 3");
    REQUIRE_EQ_STR(encode(t, "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab\xe1\x84\x92", 0), "5 4");
    for (size_t i = 0; i < 50; i++)
        memcpy(text + 1 + 4 * i, "\xcc\x81\xcc\x96", 4);
    REQUIRE_EQ_INT(tok_encode(t, text, 201, 0, &ids, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(ids.n, 100);
    for (size_t i = 0; i < ids.n; i++)
        REQUIRE_EQ_INT(ids.ids[i], i == 0 ? 1 : i <= 50 ? 3 : 2);
    tok_ids_finish(&ids);
    tok_close(t);
}

/*
 * Processor seconds to encode `len` bytes of one repeated unit, or of drawn letters where it is
 * NULL.
 */
static double seconds_for(const struct tok *t, const char *unit, char *text, size_t len)
{
    struct timespec from, to;
    struct tok_ids ids = {0};
    uint64_t seed = 1;
    size_t n = unit ? strlen(unit) : 1, at = 0;

    for (; at + n <= len; at += n) {
        if (unit)
            memcpy(text + at, unit, n);
        else
            text[at] = (char)('a' + next_random(&seed) % 26);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    REQUIRE_EQ_INT(tok_encode(t, text, at, 3, &ids, err, sizeof(err)), 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    REQUIRE(ids.n > 0);
    tok_ids_finish(&ids);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

/*
 * A megabyte without a break takes about 8 times as long as an 8th of one, where quadratic work
 * would take 64 times as long; the best of three tries.
 */
static void a_megabyte_without_a_break_takes_linear_time(void **state)
{
    static const char *const units[] = {"a", " ",     "\n", "\xe6\xb0\xb4",     "e\xcc\x81",
                                        "7", "<|im_", "!?", "\xf0\x9f\x91\xa9", "ab",
                                        NULL};
    struct tok *t = open_demo();
    char *text = malloc(1 << 20);

    (void)state;
    REQUIRE(text);
    for (size_t i = 0; i < N_OF(units); i++) {
        double best = 1e9;
        for (int k = 0; k < 3 && best > 30; k++) {
            double part = seconds_for(t, units[i], text, 1 << 17);
            double whole = seconds_for(t, units[i], text, 1 << 20);
            if (whole / (part + 1e-3) < best) best = whole / (part + 1e-3);
        }
        REQUIRE_MSG(best < 30, "%s: 8 times the text takes %.1f times as long",
                    units[i] ? units[i] : "letters", best);
    }
    free(text);
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_that_is_not_utf8_is_refused),
        cmocka_unit_test(ids_are_appended_and_kept_on_failure),
        cmocka_unit_test(special_tokens_from_input_are_plain_text),
        cmocka_unit_test(marks_hold_behind_a_normalizer),
        cmocka_unit_test(harmless_marks_change_nothing),
        cmocka_unit_test(an_unknown_token_that_is_missing_is_an_error_when_needed),
        cmocka_unit_test(long_words_merge_like_short_ones),
        cmocka_unit_test(runs_of_combining_marks_are_ordered),
        cmocka_unit_test(a_megabyte_without_a_break_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
