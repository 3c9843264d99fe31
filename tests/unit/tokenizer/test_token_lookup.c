/* SPDX-License-Identifier: MIT */
/* Whether two tokenizers have the same tokens: the ids that both have, or the first that differs. */
#include "test.h"

#include "load_tokenizer.h"

#define VOCAB(entries) "'model':{'vocab':{" entries "},'merges':[]}"
#define ADD(id, content, special)                                                                  \
    "{'id':" #id ",'content':'" content "','special':" special ",'normalized':false,"              \
    "'single_word':false,'lstrip':false,'rstrip':false}"

/* The words that tok_fits writes, and one behind them. */
static uint64_t bits[3];

static bool fits(const char *a, const char *b)
{
    struct tok *x = load_good(a), *y = load_good(b);
    bool result;
    REQUIRE(tok_vocab_size(x) <= 128);
    memset(bits, 0xa5, sizeof(bits));
    err[0] = '\0';
    result = tok_fits(x, y, bits, err, sizeof(err));
    REQUIRE_EQ_INT(result, err[0] == '\0');
    tok_close(x);
    tok_close(y);
    return result;
}

static void only_ids_of_both_are_named(void **state)
{
    static const char holes[] = "{" VOCAB("'a':0,'c':2,'d':3,'y':70,'z':71") "}";
    static const char fewer[] = "{" VOCAB("'a':0,'b':1,'d':3,'y':70") "}";
    (void)state;
    REQUIRE(
        fits(holes, fewer)); /* neither 1, a hole of the first, nor 71, behind the second's end */
    REQUIRE_EQ_INT(bits[0], 1 | 1 << 3);
    REQUIRE_EQ_INT(bits[1], 1 << 6);
    REQUIRE_EQ_INT(bits[2] & 0xff, 0xa5);
    REQUIRE(fits(fewer, holes));
    REQUIRE_EQ_INT(bits[0], 1 | 1 << 3);
    REQUIRE_EQ_INT(bits[1], 1 << 6);
    REQUIRE(fits("{" VOCAB("'a':0,'b':1") "}", holes));
    REQUIRE_EQ_INT(bits[0], 1);
    REQUIRE_EQ_INT(bits[1] & 0xff, 0xa5); /* of the first one's size */
}

static void the_first_difference_is_named(void **state)
{
    static const char plain[] = "{" VOCAB("'a':0,'b':1,'c':2") "}";
    static const char special[] =
        "{'added_tokens':[" ADD(2, "c", "true") "]," VOCAB("'a':0,'b':1,'c':2") "}";
    static const char added[] =
        "{'added_tokens':[" ADD(2, "c", "false") "]," VOCAB("'a':0,'b':1,'c':2") "}";
    static const struct {
        const char *a, *b, *says;
    } cases[] = {
        {plain, "{" VOCAB("'a':0,'xx':1,'y':2") "}",
         "id 1 is a token, 'b', in one tokenizer, and a token, 'xx', in the other"},
        {plain, "{" VOCAB("'a':0,'bc':1,'c':2") "}", "'bc', in the other"}, /* one begins alike */
        {plain, special, "id 2 is a token, 'c', in one tokenizer, and a special token, 'c', in"},
        {plain, added, "and an added token, 'c'"},
        {added, special, "id 2 is an added token, 'c', in one tokenizer, and a special token, 'c'"},
    };
    (void)state;
    REQUIRE(fits(plain, plain) && fits(added, added) && fits(special, special));
    for (size_t i = 0; i < N_OF(cases); i++) {
        REQUIRE(!fits(cases[i].a, cases[i].b));
        REQUIRE_MSG(strstr(err, cases[i].says), "%s", err);
        REQUIRE(!fits(cases[i].b, cases[i].a));
    }
}

/* The same spellings, of which one decoder makes other bytes, as many and fewer. */
static void bytes_are_compared(void **state)
{
    static const char space[] = "{'decoder':{'type':'Replace','pattern':{'String':'_'},"
                                "'content':' '}," VOCAB("'a':0,'_b':1") "}";
    static const char comma[] = "{'decoder':{'type':'Replace','pattern':{'String':'_'},"
                                "'content':','}," VOCAB("'a':0,'_b':1") "}";
    static const char none[] = "{'decoder':{'type':'Replace','pattern':{'String':'_'},"
                               "'content':''}," VOCAB("'a':0,'_b':1") "}";
    (void)state;
    REQUIRE(fits(space, space));
    REQUIRE(!fits(space, comma) && strstr(err, "id 1 is a token, '_b'"));
    REQUIRE(!fits(space, none) && !fits(none, comma));
}

/* Spellings longer than any buffer: all of them count, and 60 bytes are shown. */
static void long_tokens_are_compared(void **state)
{
    char x[700], a[800], b[800];
    (void)state;
    memset(x, 'x', 600);
    memcpy(x + 600, "y", 2);
    snprintf(a, sizeof(a), "{" VOCAB("'%s':0") "}", x);
    x[600] = 'z';
    snprintf(b, sizeof(b), "{" VOCAB("'%s':0") "}", x);
    REQUIRE(fits(a, a) && !fits(a, b));
    const char *shown = strchr(err, '\'');
    REQUIRE(shown && strspn(shown + 1, "x") == 60 && shown[61] == '\'');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_ids_of_both_are_named),
        cmocka_unit_test(the_first_difference_is_named),
        cmocka_unit_test(bytes_are_compared),
        cmocka_unit_test(long_tokens_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
