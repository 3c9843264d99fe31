/* SPDX-License-Identifier: MIT */
/* Ids to text: whole characters, special tokens, and round trips of random texts. */
#include "test.h"

#include "base/utf8.h"
#include "load_tokenizer.h"

#define BYTES                                                                                      \
    "{'decoder':{'type':'ByteLevel'},'model':{'vocab':{'a':0,'\xc3\xa6':1,'\xc2\xb0':2,'\xc2\xb4'" \
    ":3,'\xc3\xbf':4},'merges':[]}}"
#define MARKS                                                                                      \
    "{'decoder':{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'_'},'"       \
    "content':' '},"                                                                               \
    "{'type':'ByteFallback'},{'type':'Fuse'},{'type':'Strip','content':' ','start':1,'stop':0}]}," \
    "'model':{'vocab':{'a':0,'<0xE6>':1,'<0xB0>':2,'<0xB4>':3,'<0xFF>':4,'_':5,'_a':6},'merges':[" \
    "]}}"
#define BAD "\xef\xbf\xbd"

static void characters_come_out_when_they_are_complete(void **state)
{
    static const struct {
        const char *json;
        int32_t ids[8];
        const char *pieces[8]; /* the last one is what the flush gives */
        size_t n;
    } cases[] = {
        {BYTES, {1, 2, 3}, {"", "", "\xe6\xb0\xb4", ""}, 3},
        {BYTES, {1, 2}, {"", "", BAD}, 2},
        {BYTES, {1, 2, 0}, {"", "", BAD "a", ""}, 3},
        {BYTES, {1, 1}, {"", BAD, BAD}, 2},
        {BYTES, {4, 2, 0}, {BAD, BAD, "a", ""}, 3},
        {BYTES, {1, 99, -5, 2, 3}, {"", "", "", "", "\xe6\xb0\xb4", ""}, 5},
        {MARKS, {1, 2, 3}, {"", "", "\xe6\xb0\xb4", ""}, 3},
        {MARKS, {1, 2, 0}, {"", "", BAD BAD "a", ""}, 3},
        {MARKS, {1, 2}, {"", "", BAD BAD}, 2},
        {MARKS, {4, 3, 0}, {BAD, BAD, "a", ""}, 3},
        {MARKS, {6, 6, 5, 5}, {"a", " a", " ", " ", ""}, 4},
        {MARKS, {5, 6}, {"", " a", ""}, 2},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok *t = load_good(cases[i].json);
        struct tok_decoder *d;
        const char *s;
        size_t len;
        REQUIRE_EQ_INT(tok_decoder_create(&d, t, false), 0);
        for (int round = 0; round < 2; round++) {
            for (size_t k = 0; k <= cases[i].n; k++) {
                int rc = k < cases[i].n ? tok_decoder_push(d, cases[i].ids[k], &s, &len)
                                        : tok_decoder_flush(d, &s, &len);
                REQUIRE_EQ_INT(rc, 0);
                REQUIRE_MSG(len == strlen(cases[i].pieces[k]) &&
                                memcmp(s, cases[i].pieces[k], len) == 0,
                            "case %zu, piece %zu: \"%.*s\"", i, k, (int)len, s);
            }
            tok_decoder_reset(d);
        }
        tok_decoder_destroy(d);
        tok_close(t);
    }
    tok_decoder_destroy(NULL);
}

static void special_tokens_are_skipped_when_asked(void **state)
{
    struct tok *t = load_good("{'decoder':{'type':'Fuse'}," SPECIALS "}");
    const int32_t ids[] = {3, 2, 5, 6};
    char *text;
    size_t len;

    (void)state;
    REQUIRE_EQ_INT(tok_decode(t, ids, 4, false, &text, &len), 0);
    REQUIRE_EQ_STR(text, "<a>a[x]b");
    free(text);
    REQUIRE_EQ_INT(tok_decode(t, ids, 4, true, &text, &len), 0);
    REQUIRE_EQ_STR(text, "ab");
    free(text);
    REQUIRE_EQ_INT(tok_decode(t, NULL, 0, true, &text, &len), 0);
    REQUIRE_EQ_STR(text, "");
    free(text);
    tok_close(t);
}

static size_t random_text(char *out, size_t n_chars, uint64_t *seed)
{
    static const uint32_t limits[] = {0x80, 0x80, 0x80, 0x800, 0x3000, 0x10000, 0x110000};
    size_t len = 0;

    for (size_t i = 0; i < n_chars; i++) {
        uint64_t r = next_random(seed);
        uint32_t cp = (uint32_t)(r >> 8) % limits[r % N_OF(limits)];
        if (r >> 61 == 0) cp = ' ';
        len += utf8_put(out + len, cp >= 0xD800 && cp <= 0xDFFF ? 'x' : cp);
    }
    return len;
}

static void decoding_gives_the_text_back(void **state)
{
    struct tok *t = open_demo();
    static char text[4 * 100];

    (void)state;
    for (uint64_t i = 1; i <= 3000; i++) {
        uint64_t seed = i * 0x9E3779B97F4A7C15u;
        size_t n = random_text(text, i % 100, &seed), len;
        struct tok_ids ids = {0};
        char *back;
        REQUIRE_EQ_INT(tok_encode(t, text, n, 0, &ids, err, sizeof(err)), 0);
        REQUIRE_EQ_INT(tok_decode(t, ids.ids, ids.n, false, &back, &len), 0);
        REQUIRE_MSG(len == n && memcmp(back, text, n) == 0, "seed %llu", (unsigned long long)i);
        free(back);
        tok_ids_finish(&ids);
    }
    tok_close(t);
}

static void streamed_is_plain(void **state)
{
    struct tok *t = open_demo();
    int32_t size = tok_vocab_size(t);

    (void)state;
    for (uint64_t i = 1; i <= 2000; i++) {
        uint64_t seed = i * 0xD1B54A32D192ED03u;
        int32_t ids[60];
        size_t n = i % 60, at = 0, len, plain_len;
        struct tok_decoder *d;
        const char *s;
        char *plain;
        for (size_t k = 0; k < n; k++)
            ids[k] = (int32_t)(next_random(&seed) % (uint64_t)(size + 5));
        REQUIRE_EQ_INT(tok_decode(t, ids, n, i & 1, &plain, &plain_len), 0);
        REQUIRE_EQ_INT(tok_decoder_create(&d, t, i & 1), 0);
        for (size_t k = 0; k <= n; k++) {
            REQUIRE_EQ_INT(
                k < n ? tok_decoder_push(d, ids[k], &s, &len) : tok_decoder_flush(d, &s, &len), 0);
            REQUIRE_MSG(at + len <= plain_len && memcmp(plain + at, s, len) == 0 &&
                            utf8_valid(s, len),
                        "seed %llu", (unsigned long long)i);
            at += len;
        }
        REQUIRE_EQ_INT(at, plain_len);
        tok_decoder_destroy(d);
        free(plain);
    }
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_come_out_when_they_are_complete),
        cmocka_unit_test(special_tokens_are_skipped_when_asked),
        cmocka_unit_test(decoding_gives_the_text_back),
        cmocka_unit_test(streamed_is_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
