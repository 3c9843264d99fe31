/* SPDX-License-Identifier: MIT */
/* The field prediction: its text in ids, and what is refused. Linked with --wrap=tok_encode: a letter is a token, and no
 * text with '!' can be encoded. */
#include "server/api/read/generation_fields.h"

#include "open_request.h"
#include "tokenizer/tokenizer.h"

int __wrap_tok_encode(const struct tok *t, const char *text, size_t len, unsigned flags,
                      struct tok_ids *ids, char *err, size_t errlen);

int __wrap_tok_encode(const struct tok *t, const char *text, size_t len, unsigned flags,
                      struct tok_ids *ids, char *err, size_t errlen)
{
    (void)t;
    REQUIRE_EQ_INT(flags, 0); /* text of the request never becomes special tokens */
    ids->ids = calloc(len, sizeof(*ids->ids));
    REQUIRE(ids->ids);
    for (; ids->n < len; ids->n++)
        ids->ids[ids->n] = text[ids->n];
    if (!memchr(text, '!', len)) return 0;
    snprintf(err, errlen, "no such text");
    return TOK_EINVAL;
}

static const struct {
    const char *field;
    const char *text; /* NULL: an error */
    enum srv_error kind;
    const char *path;
} cases[] = {
    {"{\"type\":\"content\",\"content\":\"ab\"}", "ab", 0, NULL},
    {"{\"type\":\"content\",\"content\":\"\"}", "", 0, NULL},
    {"{\"type\":\"content\",\"content\":[]}", "", 0, NULL},
    {"{\"type\":\"content\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
     "\"text\":\"bc\"}]}",
     "abc", 0, NULL},
    {"{\"content\":\"ab\"}", NULL, SRV_ERR_INVALID_VALUE, "prediction.type"},
    {"{\"type\":\"text\",\"content\":\"ab\"}", NULL, SRV_ERR_INVALID_VALUE, "prediction.type"},
    {"[]", NULL, SRV_ERR_INVALID_VALUE, "prediction.type"},
    {"{\"type\":\"content\"}", NULL, SRV_ERR_INVALID_TYPE, "prediction.content"},
    {"{\"type\":\"content\",\"content\":5}", NULL, SRV_ERR_INVALID_TYPE, "prediction.content"},
    {"{\"type\":\"content\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},5]}", NULL,
     SRV_ERR_INVALID_VALUE, "prediction.content[1]"},
    {"{\"type\":\"content\",\"content\":[{\"type\":\"image\",\"text\":\"a\"}]}", NULL,
     SRV_ERR_INVALID_VALUE, "prediction.content[0]"},
    {"{\"type\":\"content\",\"content\":[{\"type\":\"text\",\"text\":5}]}", NULL,
     SRV_ERR_INVALID_VALUE, "prediction.content[0]"},
    {"{\"type\":\"content\",\"content\":\"a!\"}", NULL, SRV_ERR_INVALID_VALUE,
     "prediction.content"},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_request *req = open_request();
        const int32_t *ids = NULL;
        int64_t n = 0;
        json_t *field = json_loads(cases[i].field, 0, NULL);
        REQUIRE(field);
        int rc = srv_prediction_read(req, field, &ids, &n);
        REQUIRE_MSG((rc == 0) == (cases[i].text != NULL), "%s: %s", cases[i].field,
                    param_error.message);
        if (rc) REQUIRE_EQ_INT(param_error.kind, cases[i].kind);
        if (rc) REQUIRE_EQ_STR(param_error.path, cases[i].path);
        if (!rc) REQUIRE_EQ_INT(n, strlen(cases[i].text));
        for (int64_t k = 0; !rc && k < n; k++)
            REQUIRE_EQ_INT(ids[k], cases[i].text[k]);
        json_decref(field);
        close_request(req);
    }
}

static void test_none(void **state)
{
    const int32_t *ids = NULL;
    int64_t n = 7;
    (void)state;
    REQUIRE_EQ_INT(srv_prediction_read(NULL, NULL, &ids, &n), 0);
    REQUIRE(!ids && n == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
