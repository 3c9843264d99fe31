/* SPDX-License-Identifier: MIT */
/* Texts to ids: the errors of a tokenizer as those of a field, and ids in the request's memory. Linked with
 * --wrap=tok_encode: it gives the id 7 and what the test wants. */
#include "server/api/read/json_fields.h"

#include "open_request.h"
#include "tokenizer/token_ids.h"

static int tokenizer_says;

int __wrap_tok_encode(const struct tok *t, const char *text, size_t len, unsigned flags,
                      struct tok_ids *ids, char *err, size_t errlen);

int __wrap_tok_encode(const struct tok *t, const char *text, size_t len, unsigned flags,
                      struct tok_ids *ids, char *err, size_t errlen)
{
    (void)t;
    REQUIRE(len == 2 && !memcmp(text, "ab", 2) && flags == TOK_PARSE_SPECIAL);
    REQUIRE_EQ_INT(tok_ids_add(ids, (int32_t[]){7}, 1), 0);
    snprintf(err, errlen, "why");
    return tokenizer_says;
}

static void test_cases(void **state)
{
    static const struct {
        int says;
        enum srv_error kind;
        const char *path;
    } cases[] = {{0, 0, ""},
                 {TOK_EINVAL, SRV_ERR_INVALID_VALUE, "field"},
                 {TOK_ENOMEM, SRV_ERR_OVERLOADED, ""}};
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_request *req = open_request();
        struct tok_ids ids = {0};
        const int32_t *kept = (const int32_t[]){0};
        int64_t n = 9;
        tokenizer_says = cases[i].says;
        int rc = param_encode(NULL, "ab", 2, TOK_PARSE_SPECIAL, "field", &ids);
        REQUIRE_EQ_INT(rc, cases[i].says ? -1 : 0);
        REQUIRE(param_error.kind == cases[i].kind && !strcmp(param_error.path, cases[i].path));
        if (cases[i].says == TOK_EINVAL) REQUIRE_EQ_STR(param_error.message, "why");
        REQUIRE_EQ_INT(param_keep_ids(req, rc, &ids, &kept, &n), rc);
        REQUIRE(!ids.ids && ids.n == 0 && n == !rc);
        REQUIRE(rc ? !kept : kept[0] == 7);
        close_request(req);
    }
}

/* A request's memory ends; no ids at all need none that matters. */
static void test_memory(void **state)
{
    struct srv_request *req = open_request();
    struct tok_ids none = {0}, many = {0};
    const int32_t *kept;
    int64_t n;
    (void)state;
    REQUIRE(!param_keep_ids(req, 0, &none, &kept, &n) && kept && n == 0);
    many.n = SRV_ARENA_MAX_BYTES / sizeof(*many.ids) + 1;
    many.ids = calloc(many.n, sizeof(*many.ids));
    REQUIRE(many.ids);
    REQUIRE_EQ_INT(param_keep_ids(req, 0, &many, &kept, &n), -1);
    REQUIRE(!kept && param_error.kind == SRV_ERR_OVERLOADED && !many.ids);
    close_request(req);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
