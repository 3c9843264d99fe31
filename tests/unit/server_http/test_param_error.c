/* SPDX-License-Identifier: MIT */
/* The error of a field, words of clients in messages, and the list of fields without effect. */
#include "server/http/param_error.h"

#include "open_request.h"

#define TEN "0123456789"

static void test_fail(void **state)
{
    (void)state;
    REQUIRE_EQ_INT(param_fail(SRV_ERR_MISSING, "a.b", "%s has %d", "it", 5), -1);
    REQUIRE_EQ_INT(param_error.kind, SRV_ERR_MISSING);
    REQUIRE_EQ_STR(param_error.path, "a.b");
    REQUIRE_EQ_STR(param_error.message, "it has 5");
    REQUIRE_EQ_INT(param_no_memory(), -1);
    REQUIRE(param_error.kind == SRV_ERR_OVERLOADED && !param_error.path[0] &&
            strstr(param_error.message, "memory"));
}

static void test_reply(void **state)
{
    static const struct {
        const char *path, *answer;
    } cases[] = {
        {"n", "\"param\":\"n\",\"code\":\"invalid_value\""},
        {NULL, "\"param\":null,\"code\":\"invalid_value\""},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_request *req = open_request();
        param_fail(SRV_ERR_INVALID_VALUE, cases[i].path, "100%% wrong");
        param_reply(req);
        char *answer = take_answer(req);
        REQUIRE_EQ_INT(req->status, 400);
        REQUIRE_MSG(strstr(answer, cases[i].answer) && strstr(answer, "\"message\":\"100% wrong\""),
                    "%s", answer);
        free(answer);
        close_request(req);
    }
}

/* The same error in the shapes that clients of other servers read. */
static void test_shapes(void **state)
{
    static const struct {
        enum srv_dialect dialect;
        enum srv_error kind;
        int status;
        const char *answer;
    } cases[] = {
        {SRV_DIALECT_TEI, SRV_ERR_MISSING, 400, "{\"error\":\"no\",\"error_type\":\"Validation\"}"},
        {SRV_DIALECT_TEI, SRV_ERR_QUEUE_FULL, 429,
         "{\"error\":\"no\",\"error_type\":\"Overloaded\"}"},
        {SRV_DIALECT_TEI, SRV_ERR_LOADING, 503, "{\"error\":\"no\",\"error_type\":\"Overloaded\"}"},
        {SRV_DIALECT_TEI, SRV_ERR_INTERNAL, 500, "{\"error\":\"no\",\"error_type\":\"Backend\"}"},
        {SRV_DIALECT_COHERE, SRV_ERR_MISSING, 400, "{\"message\":\"no\"}"},
        {SRV_DIALECT_OLLAMA, SRV_ERR_MODEL_NOT_FOUND, 404,
         "{\"error\":\"no\",\"code\":\"model_not_found\"}"},
        {SRV_DIALECT_DETAIL, SRV_ERR_MISSING, 400,
         "{\"error\":{\"message\":\"no\",\"type\":\"invalid_request_error\",\"param\":\"n\","
         "\"code\":"
         "\"missing_required_parameter\"},\"detail\":\"no\"}"},
        {SRV_DIALECT_OPENAI, SRV_ERR_MISSING, 400,
         "{\"error\":{\"message\":\"no\",\"type\":\"invalid_request_error\",\"param\":\"n\","
         "\"code\":"
         "\"missing_required_parameter\"}}"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_request *req = open_request();
        srv_facts(req)->dialect = cases[i].dialect;
        srv_reply_error(req, cases[i].kind, "n", "no");
        char *answer = take_answer(req);
        REQUIRE_EQ_INT(req->status, cases[i].status);
        REQUIRE_EQ_STR(answer, cases[i].answer);
        free(answer);
        close_request(req);
    }
}

static void test_word(void **state)
{
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"", ""},
        {"a word ~", "a word ~"},
        {"a\tb\x7f\xc3\xa9", "a?b???"},
        {TEN TEN TEN TEN "abc", TEN TEN TEN TEN "abc"},
        {TEN TEN TEN TEN "abcd", TEN TEN TEN TEN "..."},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char buf[PARAM_WORD_MAX];
        REQUIRE_EQ_STR(param_word(cases[i].text, buf), cases[i].word);
    }
}

static void test_note(void **state)
{
    static const struct {
        const char *keys[8], *list;
        int n_left;
    } cases[] = {
        {{"a"}, "a", 0},
        {{"a", "b!", "~"}, "a,b!,~", 0},
        {{"a b", "", "a,b", "\x7f", "\xc3\xa9", "c"}, "c", 5},
        {{TEN TEN TEN TEN TEN TEN "abcd"}, TEN TEN TEN TEN TEN TEN "abcd", 0},
        {{TEN TEN TEN TEN TEN TEN "abcde"}, "", 1},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct param_unknown unknown = {0};
        for (int k = 0; k < 8 && cases[i].keys[k]; k++)
            param_note(&unknown, cases[i].keys[k]);
        REQUIRE_EQ_STR(unknown.list, cases[i].list);
        REQUIRE_EQ_INT(unknown.n_left, cases[i].n_left);
    }
}

/* The list takes keys until it is full, and a short one after a long one that did not fit. */
static void test_the_list_is_full(void **state)
{
    struct param_unknown unknown = {0};
    (void)state;
    for (int i = 0; i < 50; i++)
        param_note(&unknown, TEN);
    REQUIRE_EQ_INT(unknown.n_left, 50 - 23);
    REQUIRE_EQ_INT(strlen(unknown.list), 23 * 11 - 1);
    param_note(&unknown, "ab");
    REQUIRE_EQ_INT(unknown.n_left, 50 - 23);
    REQUIRE_EQ_INT(strlen(unknown.list), sizeof(unknown.list) - 1);
    param_note(&unknown, "a");
    REQUIRE_EQ_INT(unknown.n_left, 50 - 22);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail),   cmocka_unit_test(test_reply),
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_word),
        cmocka_unit_test(test_note),   cmocka_unit_test(test_the_list_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
