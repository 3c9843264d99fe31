/* SPDX-License-Identifier: MIT */
/*
 * Every allocating call of the library comes through here (the linker sends it, see meson.build).
 *
 * Nothing is allocated while an answer is made. If memory runs out, at any allocation of reading a
 * vocabulary or of a compilation, that is an error and leaves nothing behind. And what a grammar
 * says it takes is what it takes.
 */
#include "test.h"

#include "tokenizer/grammar/grammar.h"
#include "toy_vocab.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static int n_allocations;
static int fail_at; /* the number of the call that fails; 0: none */
static size_t n_bytes;

static bool may_allocate(size_t bytes)
{
    n_bytes += bytes;
    return ++n_allocations != fail_at;
}

void *__wrap_malloc(size_t n)
{
    return may_allocate(n) ? __real_malloc(n) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_allocate(n * size) ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *p, size_t n)
{
    return may_allocate(n) ? __real_realloc(p, n) : NULL;
}

static const struct {
    enum gram_kind kind;
    const char *text;
} sources[] = {
    {GRAM_SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":"
                  "\"^x+[a-z]\"},\"b\":{\"enum\":[1,\"two\",null,{\"c\":[]}]},\"d\":{\"oneOf\":[{"
                  "\"$ref\":\"#\"},{\"type\":\"number\",\"minimum\":1.5}]}},\"required\":[\"b\"],"
                  "\"patternProperties\":{\"^n\":{\"format\":\"date-time\"}},\"allOf\":[{"
                  "\"minProperties\":1}]}"},
    {GRAM_SCHEMA, "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"format\":\"ipv6\"}}"},
    {GRAM_JSON_OBJECT, ""},
    {GRAM_REGEX, "(?:ab|c[d-f]{2,300})+\\p{Lu}"},
    {GRAM_CHOICE, "[\"one\",\"two\"]"},
    {GRAM_GBNF, "root ::= \"(\" root? \")\" x{2,500}\nx ::= [a-f] | \"\\u00e4\""},
    {GRAM_REPEAT, "calls"},
};

/* Random ids to the end, or many of them. */
static int answer(struct gram_state *s, uint64_t seed)
{
    uint64_t bits[TOY_MASK_WORDS];
    int n = 0;

    for (; n < 300 && gram_mask(s, bits) == GRAM_NEXT_MASK; n++) {
        int32_t id = (int32_t)toy_draw(&seed, TOY_IDS);
        for (int32_t i = 0; i < TOY_IDS && (id == TOY_END || !toy_allows(bits, id)); i++)
            id = (id + 1) % TOY_IDS;
        uint64_t mark = gram_mark(s);
        if (!gram_take(s, id)) break;
        if (n % 5 == 0) REQUIRE(gram_rollback(s, mark) && gram_take(s, id));
    }
    return n;
}

static void test_nothing_is_allocated_for_tokens(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    int n_tokens = 0;

    for (size_t i = 0; i < N_OF(sources); i++) {
        int before = n_allocations;
        struct gram *g = toy_compile(v, sources[i].kind, sources[i].text, NULL);
        REQUIRE_MSG(n_allocations > before, "the count does not count");
        before = n_allocations;
        for (uint64_t seed = 1; seed <= 20; seed++)
            n_tokens += answer(gram_state_init(memory, g, NULL, NULL), seed);
        REQUIRE_EQ_INT(n_allocations - before, 0);
        gram_release(g);
    }
    REQUIRE_MSG(n_tokens > 2000, "%d tokens", n_tokens);
    free(memory);
    gram_vocab_destroy(v);
}

static void test_compiling_without_memory(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    for (size_t i = 0; i < N_OF(sources); i++) {
        struct gram_part part = toy_part(sources[i].kind, sources[i].text);
        int n_failed = 0;
        for (int k = 1;; k++) {
            struct gram *g = NULL;
            struct gram_error err;
            n_allocations = 0;
            fail_at = k;
            int rc = gram_compile_parts(&g, v, &part, NULL, &err);
            bool reached = n_allocations >= k;
            fail_at = 0;
            if (rc) {
                REQUIRE_MSG(rc == GRAM_ENOMEM && err.code == rc && err.message[0] && !g,
                            "%s, allocation %d: %d %s", sources[i].text, k, rc, err.message);
                n_failed++;
            }
            gram_release(g);
            if (!reached) break;
        }
        REQUIRE_MSG(n_failed > 2, "%s: %d", sources[i].text, n_failed);
    }
    gram_vocab_destroy(v);
}

static void test_vocabulary_without_memory(void **state)
{
    (void)state;
    static const int32_t end[] = {TOY_END};
    struct gram_vocab_params params = {
        .n_ids = TOY_IDS, .bytes = toy_bytes, .end_ids = end, .n_end_ids = 1};
    int n_failed = 0;
    for (int k = 1;; k++) {
        struct gram_vocab *v = NULL;
        n_allocations = 0;
        fail_at = k;
        int rc = gram_vocab_create(&v, &params);
        bool reached = n_allocations >= k;
        fail_at = 0;
        if (rc) {
            REQUIRE_MSG(rc == GRAM_ENOMEM && !v, "allocation %d: %d", k, rc);
            n_failed++;
        }
        gram_vocab_destroy(v);
        if (!reached) break;
    }
    REQUIRE_MSG(n_failed > 5, "%d", n_failed);
}

/* Temporary memory aside, gram_bytes and gram_cache_bytes are not less than what stays. */
static void test_memory_is_as_stated(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    REQUIRE(gram_state_bytes() <= 128 * 1024);
    REQUIRE(gram_vocab_bytes(v) > TOY_IDS);
    for (size_t i = 0; i < N_OF(sources); i++) {
        n_bytes = 0;
        struct gram *g = toy_compile(v, sources[i].kind, sources[i].text, NULL);
        size_t stated = gram_bytes(g) + gram_cache_bytes(g);
        REQUIRE_MSG(stated <= n_bytes, "%zu of %zu", stated, n_bytes);
        REQUIRE_MSG(gram_cache_bytes(g) <= 256 * TOY_MASK_WORDS * 8, "%zu", gram_cache_bytes(g));
        REQUIRE_MSG(gram_bytes(g) < 200000, "%s: %zu", sources[i].text, gram_bytes(g));
        gram_release(g);
    }
    gram_vocab_destroy(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_allocated_for_tokens),
        cmocka_unit_test(test_compiling_without_memory),
        cmocka_unit_test(test_vocabulary_without_memory),
        cmocka_unit_test(test_memory_is_as_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
