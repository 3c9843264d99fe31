/* SPDX-License-Identifier: MIT */
/* Normalizers and decoders that make texts longer: bounded at load or per text. */
#include "test.h"

#include "load_tokenizer.h"

/* A tokenizer whose MEMBER is a Sequence (of LIST): `head`, then the components n times. Owned. */
static char *with_sequence(const char *member, const char *list, const char *head,
                           const char *components, int n)
{
    size_t size = strlen(head) + strlen(components) * (size_t)n + (size_t)n + 512;
    char *json = malloc(size);

    REQUIRE(json);
    size_t len =
        (size_t)snprintf(json, size, "{'%s':{'type':'Sequence','%s':[%s", member, list, head);
    for (int i = 0; i < n; i++)
        len += (size_t)snprintf(json + len, size - len, "%s%s", i || *head ? "," : "", components);
    snprintf(json + len, size - len,
             "]},'model':{'vocab':{'a':0,'b':1,'_':2,'.':3,' ':4},'merges':[]}}");
    return json;
}

static struct tok *load_sequence(const char *member, const char *list, const char *head,
                                 const char *components, int n)
{
    char *json = with_sequence(member, list, head, components, n);
    struct tok *t = load(json);

    free(json);
    return t;
}

#define REPLACE(kind, pattern, content)                                                            \
    "{'type':'Replace','pattern':{'" kind "':'" pattern "'},'content':'" content "'}"
#define METASPACE(mark) "{'type':'Metaspace','replacement':'" mark "','prepend_scheme':'always'}"
#define SPLIT_ALL "{'type':'Split','pattern':{'Regex':''},'behavior':'Isolated','invert':false}"
#define MAPPED "{'type':'ByteLevel','add_prefix_space':false,'use_regex':false}"
#define E_ACUTE "\xc3\xa9"

/* Every chain here makes some text at least twice as long with each of its seven rounds. */
static void chains_that_multiply_their_own_pattern_are_refused_at_load(void **state)
{
    static const struct {
        const char *member, *list, *head, *components;
    } cases[] = {
        {"normalizer", "normalizers", "", REPLACE("String", "a", "aa")},
        {"normalizer", "normalizers", "{'type':'Lowercase'}",
         REPLACE("String", "A", "b") "," REPLACE("String", "a", "aa")},
        {"normalizer", "normalizers", "", REPLACE("String", "a", "a_a")},
        {"decoder", "decoders", "", REPLACE("String", "a", "aa")},
        {"decoder", "decoders", "", REPLACE("Regex", "[ab]", "ab")},
        {"decoder", "decoders", "{'type':'ByteFallback'}",
         REPLACE("String", E_ACUTE, E_ACUTE E_ACUTE)},
        {"decoder", "decoders", "{'type':'Fuse'}", REPLACE("String", "a", "bb")},
        {"decoder", "decoders", MAPPED, REPLACE("String", "xy", "xxyy")},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok *t =
            load_sequence(cases[i].member, cases[i].list, cases[i].head, cases[i].components, 7);
        REQUIRE_MSG(!t, "accepted: %s", cases[i].components);
        REQUIRE_MSG(strstr(err, cases[i].member) && strstr(err, "16 times"), "%zu: %s", i, err);
    }
}

/* No pattern's own text shows this growth: the request that meets it is refused. */
static void growth_of_a_text_is_bounded(void **state)
{
    static const struct {
        const char *member, *list, *components;
        int n;
        const char *text;
    } cases[] = {
        {"normalizer", "normalizers", REPLACE("Regex", "[ab]", "aa"), 24, "aaaaaaaaaa"},
        {"normalizer", "normalizers", REPLACE("Regex", "", "ab"), 12, "b"},
        {"pre_tokenizer", "pretokenizers", MAPPED, 24, "a " E_ACUTE},
        {"pre_tokenizer", "pretokenizers",
         SPLIT_ALL "," METASPACE("a") "," SPLIT_ALL "," METASPACE("b"), 15, "_"},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok_ids ids = {0};
        struct tok *t =
            load_sequence(cases[i].member, cases[i].list, "", cases[i].components, cases[i].n);
        REQUIRE_MSG(t, "%zu: %s", i, err);
        int rc = tok_encode(t, cases[i].text, strlen(cases[i].text), 0, &ids, err, sizeof(err));
        REQUIRE_MSG(rc == TOK_ELIMIT && ids.n == 0, "%zu: %d, %zu ids", i, rc, ids.n);
        REQUIRE_MSG(strstr(err, "bytes to a text of"), "%zu: %s", i, err);
        tok_ids_finish(&ids);
        tok_close(t);
    }
}

/* The bound is for the whole text, however many stretches added tokens cut it into. */
static void growth_is_counted_over_all_stretches(void **state)
{
    enum { N = 1000 };
    static char json[70000], text[2 * N + 1];
    struct tok_ids ids = {0};
    size_t len =
        (size_t)snprintf(json, sizeof(json), "{'normalizer':{'type':'Prepend','prepend':'");

    (void)state;
    memset(json + len, 'b', 60000);
    snprintf(json + len + 60000, sizeof(json) - len - 60000,
             "'},'added_tokens':[" ADDED(2, "|") "],'model':{'vocab':{'a':0,'b':1},'merges':[]}}");
    struct tok *t = load_good(json);
    for (int i = 0; i < N; i++)
        memcpy(text + 2 * i, "a|", 2);
    REQUIRE_EQ_INT(tok_encode(t, text, 2, TOK_PARSE_SPECIAL, &ids, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(ids.n, 60002);
    ids.n = 0;
    int rc = tok_encode(t, text, sizeof(text) - 1, TOK_PARSE_SPECIAL, &ids, err, sizeof(err));
    REQUIRE_EQ_INT(rc, TOK_ELIMIT);
    REQUIRE_EQ_INT(ids.n, 0);
    tok_ids_finish(&ids);
    tok_close(t);
}

/* The largest growth that Unicode has: U+FDFA becomes 18 characters, a third of them blanks. */
static void growth_that_models_need_is_not_refused(void **state)
{
    enum { N = 100000 };
    struct tok_ids ids = {0};
    char *text = malloc(3 * N);
    struct tok *t = load_good(
        "{'normalizer':{'type':'Sequence','normalizers':[{'type':'NFKC'},{'type':'Prepend',"
        "'prepend':'\xe2\x96\x81'}," REPLACE("String", " ",
                                             "\xe2\x96\x81") "]},"
                                                             "'model':{'vocab':{'\xe2\x96\x81':0,'?"
                                                             "':1},'merges':[],'unk_token':'?'}}");

    (void)state;
    REQUIRE(text);
    for (int i = 0; i < N; i++)
        memcpy(text + 3 * i, "\xef\xb7\xba", 3);
    int rc = tok_encode(t, text, 3 * N, 0, &ids, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    REQUIRE_EQ_INT(ids.n, 18 * N + 1);
    tok_ids_finish(&ids);
    free(text);
    tok_close(t);
}

/* The placeholders of ten digits become three bytes each: no token grows by more than three. */
static void decoders_may_replace_many_short_tokens(void **state)
{
    char components[2048] = "";
    size_t len = 0;

    (void)state;
    for (int i = 0; i < 10; i++)
        len += (size_t)snprintf(components + len, sizeof(components) - len,
                                "%s{'type':'Replace','pattern':{'String':'%d'},'content':"
                                "'\xe0\xa5%c'}",
                                i ? "," : "", i, 0xA6 + i);
    struct tok *t = load_sequence("decoder", "decoders", "", components, 1);
    REQUIRE_MSG(t, "%s", err);
    tok_close(t);
}

/* Two thousand references to one list of two thousand ids: four million ids around each text. */
static void special_tokens_around_a_text_are_bounded(void **state)
{
    enum { NAMES = 2000 };
    static char json[200000];
    size_t len = (size_t)snprintf(json, sizeof(json),
                                  "{'post_processor':{'type':"
                                  "'TemplateProcessing','single':[{'Sequence':{'id':'A'}}");

    (void)state;
    for (int i = 0; i < NAMES; i++)
        len += (size_t)snprintf(json + len, sizeof(json) - len, ",{'SpecialToken':{'id':'x'}}");
    len += (size_t)snprintf(json + len, sizeof(json) - len, "],'special_tokens':{'x':{'ids':[0");
    for (int i = 0; i < NAMES; i++)
        len += (size_t)snprintf(json + len, sizeof(json) - len, ",0");
    snprintf(json + len, sizeof(json) - len, "]}}}," MODEL "}");
    REQUIRE(!load(json));
    REQUIRE_MSG(strstr(err, "more than 1024"), "%s", err);
}

/* Its normalized form is compared with the text; it is made when the file is loaded. */
static void added_tokens_that_grow_are_refused(void **state)
{
    char *json = with_sequence("normalizer", "normalizers", "", REPLACE("Regex", "[ab]", "aa"), 24);
    static char file[8192];

    (void)state;
    snprintf(file, sizeof(file),
             "{'added_tokens':[{'id':5,'content':'aaaa','special':false,'normalized':true,"
             "'single_word':false,'lstrip':false,'rstrip':false}],%s",
             json + 1);
    free(json);
    REQUIRE(!load(file));
    REQUIRE_MSG(strstr(err, "added_tokens") && strstr(err, "bytes to a text of"), "%s", err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_that_multiply_their_own_pattern_are_refused_at_load),
        cmocka_unit_test(growth_of_a_text_is_bounded),
        cmocka_unit_test(growth_is_counted_over_all_stretches),
        cmocka_unit_test(growth_that_models_need_is_not_refused),
        cmocka_unit_test(decoders_may_replace_many_short_tokens),
        cmocka_unit_test(special_tokens_around_a_text_are_bounded),
        cmocka_unit_test(added_tokens_that_grow_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
