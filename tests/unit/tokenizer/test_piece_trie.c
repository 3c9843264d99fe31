/* SPDX-License-Identifier: MIT */
/* A trie holds its tokens and nothing else, whatever they are. */
#include "test.h"

#include "load_tokenizer.h"

/* Random tokens over few or many bytes: each is found by its id, and each prefix is judged as by the vocabulary. */
static void every_token_is_found(void **state)
{
    enum { TOKENS = 3000 };
    uint64_t random = 88172645463325252u;

    (void)state;
    for (int alphabet = 2; alphabet <= 256; alphabet = alphabet == 2    ? 40
                                                       : alphabet == 40 ? 256
                                                                        : 257) {
        struct tok_vocab v = {0};
        struct tok_added added = {0};
        struct tok_trie trie = {0};
        for (uint32_t id = 0; id < TOKENS; id++) {
            char s[24];
            size_t len = 1 + next_random(&random) % sizeof(s);
            for (size_t i = 0; i < len; i++)
                s[i] = (char)(next_random(&random) % (unsigned)alphabet);
            tok_vocab_add(&v, s, len, id, err, sizeof(err)); /* some occur twice: holes */
        }
        REQUIRE_EQ_INT(tok_trie_build(&trie, &v, &added, "", 0, err, sizeof(err)), 0);
        for (int32_t id = 0; (uint32_t)id < v.n_ids; id++) {
            size_t len, i = 0;
            uint32_t node = 0;
            const char *s = tok_vocab_string(&v, id, &len);
            for (; s && i < len && tok_trie_step(&trie, &node, (unsigned char)s[i]); i++)
                REQUIRE_EQ_INT(tok_trie_id(&trie, node), tok_vocab_find(&v, s, i + 1));
            REQUIRE(!s || i == len);
        }
        for (int i = 0; i < 100000; i++) {
            char s[24];
            uint32_t node = 0;
            for (size_t n = 0; n < sizeof(s); n++) {
                s[n] = (char)(next_random(&random) % (unsigned)alphabet);
                bool more = tok_trie_step(&trie, &node, (unsigned char)s[n]);
                int32_t id = tok_vocab_find(&v, s, n + 1);
                REQUIRE(more || id < 0);
                if (!more) break;
                REQUIRE_EQ_INT(tok_trie_id(&trie, node), id);
            }
        }
        tok_trie_finish(&trie);
        tok_vocab_finish(&v);
    }
}

static void a_token_that_is_too_long_is_named(void **state)
{
    static char json[4096], token[TOK_MAX_PIECE_BYTES + 2];

    (void)state;
    for (int extra = 0; extra < 2; extra++) {
        memset(token, 'x', TOK_MAX_PIECE_BYTES + (size_t)extra);
        snprintf(json, sizeof(json),
                 "{'model':{'type':'Unigram','unk_id':0,'vocab':[['?',0],['%s',-1]]}}", token);
        struct tok *t = load(json);
        REQUIRE_EQ_INT(t != NULL, extra == 0);
        REQUIRE(t || (strstr(err, "longer than 1024") && strstr(err, "id 1")));
        if (t) REQUIRE_EQ_STR(encode(t, token, 0), "1");
        tok_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_is_found),
        cmocka_unit_test(a_token_that_is_too_long_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
