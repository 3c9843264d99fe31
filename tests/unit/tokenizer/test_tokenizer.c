/* SPDX-License-Identifier: MIT */
/* A loaded tokenizer: its ids, the bytes of its tokens, and threads that share it. */
#include "test.h"

#include <pthread.h>

#include "load_tokenizer.h"

static void ids_may_have_holes(void **state)
{
    struct tok *t = load_good("{'added_tokens':[" ADDED(
        3, "<s>") "],'model':{'vocab':{'a':0,'b':7,'<s>':3},'merges':[]}}");
    size_t len;

    (void)state;
    REQUIRE_EQ_INT(tok_vocab_size(t), 8);
    REQUIRE(tok_token_string(t, 0, &(size_t){0}) && tok_token_string(t, 7, &(size_t){0}) &&
            tok_token_string(t, 3, &(size_t){0}));
    REQUIRE(!tok_token_string(t, 1, &(size_t){0}) && !tok_token_string(t, -1, &(size_t){0}) &&
            !tok_token_string(t, 8, &(size_t){0}) && !tok_token_string(t, INT32_MAX, &(size_t){0}));
    REQUIRE(tok_is_special(t, 3) && !tok_is_special(t, 0) && !tok_is_special(t, 99));
    REQUIRE_EQ_INT(tok_token_id(t, "<s>", 3), 3);
    REQUIRE_EQ_INT(tok_token_id(t, "b", 1), 7);
    REQUIRE_EQ_INT(tok_token_id(t, "c", 1), -1);
    REQUIRE(!tok_token_string(t, 1, &len) && memcmp(tok_token_string(t, 3, &len), "<s>", 3) == 0);
    REQUIRE_EQ_INT(tok_token_bytes(t, 1, NULL, 0), 0);
    tok_close(t);
}

static void tokens_stand_for_bytes(void **state)
{
    static const char bytes[] = "{'decoder':{'type':'ByteLevel'},'model':{'vocab':{'\xc4\xa0the':0,"
                                "'\xc3\xa6':1,'\xe6\xb0\xb4':2},'merges':[]}}";
    static const char marks[] =
        "{'decoder':{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'_'},'"
        "content':' '},"
        "{'type':'ByteFallback'},{'type':'Fuse'},{'type':'Strip','content':' "
        "','start':1,'stop':0}]},"
        "'model':{'vocab':{'_the':0,'<0xE6>':1,'<0x0a>':2,'<0xZZ>':3},'merges':[]}}";
    static const struct {
        const char *json;
        int32_t id;
        const char *bytes;
    } cases[] = {{bytes, 0, " the"},  {bytes, 1, "\xe6"}, {bytes, 2, "\xe6\xb0\xb4"},
                 {marks, 0, " the"},  {marks, 1, "\xe6"}, {marks, 2, "\n"},
                 {marks, 3, "<0xZZ>"}};

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok *t = load_good(cases[i].json);
        char buf[32] = "";
        REQUIRE_EQ_INT(tok_token_bytes(t, cases[i].id, buf, sizeof(buf)), strlen(cases[i].bytes));
        REQUIRE_EQ_STR(buf, cases[i].bytes);
        char one[2] = "";
        REQUIRE_EQ_INT(tok_token_bytes(t, cases[i].id, one, 1), strlen(cases[i].bytes));
        REQUIRE(one[0] == cases[i].bytes[0] && one[1] == 0);
        tok_close(t);
    }
}

static void *encode_many(void *data)
{
    const struct tok *t = data;
    static const char text[] = "The miller's daughter counts 12 boats; \xe6\xb0\xb4\xe8\xbb\x8a.\n";
    struct tok_ids first = {0}, ids = {0};
    char message[128];
    uintptr_t wrong =
        tok_encode(t, text, sizeof(text) - 1, 3, &first, message, sizeof(message)) != 0;

    for (int i = 0; i < 300; i++) {
        ids.n = 0;
        wrong += tok_encode(t, text, sizeof(text) - 1, 3, &ids, message, sizeof(message)) != 0;
        wrong += ids.n != first.n || memcmp(ids.ids, first.ids, first.n * sizeof(*first.ids)) != 0;
    }
    tok_ids_finish(&first);
    tok_ids_finish(&ids);
    return (void *)wrong;
}

static void threads_share_a_tokenizer(void **state)
{
    struct tok *t = open_demo();
    pthread_t threads[4];
    void *wrong;

    (void)state;
    for (int i = 0; i < 4; i++)
        REQUIRE_EQ_INT(pthread_create(&threads[i], NULL, encode_many, t), 0);
    for (int i = 0; i < 4; i++) {
        REQUIRE_EQ_INT(pthread_join(threads[i], &wrong), 0);
        REQUIRE(!wrong);
    }
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_may_have_holes),
        cmocka_unit_test(tokens_stand_for_bytes),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
