/* SPDX-License-Identifier: MIT */
/*
 * Grammars that requests share: kept while there is room, the least recently used one dropped,
 * those in use never; and errors that are remembered.
 */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "server/grammars/cache.h"
#include "tokenizer/tokenizer.h"

static struct tok *tok;

static int load(void **state)
{
    (void)state;
    char dir[1000], err[300];
    snprintf(dir, sizeof(dir), "%s/deploy/demo", test_source_root());
    return tok_open(&tok, dir, err, sizeof(err));
}

static int unload(void **state)
{
    (void)state;
    tok_close(tok);
    return 0;
}

static struct grammar_cache *open_cache(int64_t max_bytes)
{
    static const int32_t end[] = {0};
    struct grammar_cache_params p = {
        .tok = tok, .n_ids = tok_vocab_size(tok), .end_ids = end, .n_end_ids = 1};
    struct grammar_cache *c = NULL;
    p.max_bytes = max_bytes;
    REQUIRE_EQ_INT(grammar_cache_create(&c, &p), 0);
    return c;
}

static struct grammar_source source_of(const char *regex)
{
    static const struct gram_options options = {.strict = false};
    struct grammar_source source;
    grammar_source_text(&source, GRAM_REGEX, regex, strlen(regex), &options);
    return source;
}

/* The grammar of a regular expression, and whether it was compiled now. */
static struct gram *get(struct grammar_cache *c, const char *regex, bool *ret_kept, bool *ret_made)
{
    struct grammar_source source = source_of(regex);
    struct grammar_result result;
    *ret_made = !grammar_cache_find(c, &source, 0, &result);
    if (*ret_made) grammar_cache_compile(c, &source, 0, NULL, NULL, &result);
    REQUIRE_MSG(result.gram, "%s", result.error.message);
    *ret_kept = result.kept;
    return result.gram;
}

static bool knows_failure(struct grammar_cache *c, const char *regex, uint64_t tenant)
{
    struct grammar_source source = source_of(regex);
    struct grammar_result result;
    if (!grammar_cache_find(c, &source, tenant, &result)) return false;
    REQUIRE(!result.gram && result.error.code == GRAM_EGRAMMAR && result.error.message[0]);
    return true;
}

static void compile_bad(struct grammar_cache *c, const char *regex, uint64_t tenant)
{
    struct grammar_source source = source_of(regex);
    struct grammar_result result;
    grammar_cache_compile(c, &source, tenant, NULL, NULL, &result);
    REQUIRE(!result.gram && result.error.code == GRAM_EGRAMMAR && result.error.message[0]);
}

static void test_failures_are_remembered(void **state)
{
    (void)state;
    struct grammar_cache *c = open_cache(1 << 20);
    char regex[32];
    REQUIRE(!knows_failure(c, "(", 7));
    compile_bad(c, "(", 7);
    REQUIRE(knows_failure(c, "(", 7) && !knows_failure(c, "(", 8) && !knows_failure(c, "((", 7));
    for (int i = 0; i < 64; i++) {
        REQUIRE(knows_failure(c, "(", 7));
        snprintf(regex, sizeof(regex), "(a{%d}", i);
        compile_bad(c, regex, 8);
    }
    REQUIRE(!knows_failure(c, "(", 7)); /* the oldest has gone */
    REQUIRE(knows_failure(c, "(a{0}", 8) && knows_failure(c, "(a{63}", 8));
    REQUIRE_EQ_INT(grammar_cache_stats(c).n_entries, 0);
    grammar_cache_destroy(c);
}

static bool stop(void *ctx)
{
    return *(bool *)ctx;
}

static void test_stopped_compilations_are_not(void **state)
{
    (void)state;
    struct grammar_cache *c = open_cache(1 << 20);
    struct grammar_source source = source_of("a+");
    struct grammar_result result;
    bool stops = true;
    grammar_cache_compile(c, &source, 1, stop, &stops, &result);
    REQUIRE(!result.gram && result.error.code == GRAM_ESTOPPED);
    REQUIRE(!grammar_cache_find(c, &source, 1, &result));
    stops = false;
    grammar_cache_compile(c, &source, 1, stop, &stops, &result);
    REQUIRE(result.gram && result.kept);
    grammar_cache_put(c, result.gram);
    grammar_cache_destroy(c);
}

static void test_oldest_goes_first(void **state)
{
    (void)state;
    bool kept, made;
    struct grammar_cache *all = open_cache(1 << 30);
    grammar_cache_put(all, get(all, "a+", &kept, &made));
    int64_t one = grammar_cache_stats(all).bytes;
    grammar_cache_destroy(all);

    struct grammar_cache *c = open_cache(one * 2);
    struct gram *held = get(c, "a+", &kept, &made);
    REQUIRE(kept && made);
    grammar_cache_put(c, get(c, "b+", &kept, &made));
    grammar_cache_put(c, get(c, "c+", &kept, &made)); /* b+ goes: a+ is held */
    REQUIRE(kept && grammar_cache_stats(c).bytes <= one * 2);
    grammar_cache_put(c, get(c, "a+", &kept, &made));
    REQUIRE(!made);
    grammar_cache_put(c, get(c, "b+", &kept, &made));
    REQUIRE(made);
    grammar_cache_put(c, held);
    struct gram *mine = get(c, "d{2,4000}(e|f){3,900}g", &kept, &made);
    grammar_cache_put(c, mine);
    REQUIRE(made && grammar_cache_stats(c).bytes <= one * 2);
    grammar_cache_destroy(c);
}

/* Answers have closed objects unless the cache says otherwise; then a request may close them. */
static void test_objects_are_closed(void **state)
{
    (void)state;
    static const int32_t end[] = {0};
    static const char schema[] = "{\"properties\":{\"a\":{}}}";
    void *memory = aligned_alloc(64, gram_state_bytes());
    for (int open = 0; open < 2; open++) {
        struct grammar_cache_params p = {.tok = tok,
                                         .n_ids = tok_vocab_size(tok),
                                         .end_ids = end,
                                         .n_end_ids = 1,
                                         .max_bytes = 1 << 24,
                                         .open_objects = open};
        struct grammar_cache *c = NULL;
        REQUIRE_EQ_INT(grammar_cache_create(&c, &p), 0);
        for (int closed = 0; closed < 2; closed++) {
            struct gram_options options = {.closed_objects = closed};
            struct grammar_source source;
            struct grammar_result made;
            grammar_source_text(&source, GRAM_SCHEMA, schema, strlen(schema), &options);
            grammar_cache_compile(c, &source, 0, NULL, NULL, &made);
            REQUIRE_MSG(made.gram, "%s", made.error.message);
            struct gram_state *s = gram_state_init(memory, made.gram, NULL, NULL);
            REQUIRE(gram_take_bytes(s, "{\"b\":1}", 7) == (open && !closed));
            grammar_cache_put(c, made.gram);
        }
        grammar_cache_destroy(c);
    }
    free(memory);
}

static void test_without_room(void **state)
{
    (void)state;
    struct grammar_cache *c = open_cache(0);
    bool kept, made;
    for (int i = 0; i < 2; i++) {
        grammar_cache_put(c, get(c, "a+", &kept, &made));
        REQUIRE(!kept && made);
    }
    REQUIRE_EQ_INT(grammar_cache_stats(c).n_misses, 2);
    grammar_cache_destroy(c);
}

/* ---- threads ------------------------------------------------------------------------------- */

enum { N_THREADS = 8, N_ROUNDS = 40 };

/* Takes the grammars of few texts, draws with them, and gives them back. */
static void *use(void *arg)
{
    struct grammar_cache *c = arg;
    void *memory = aligned_alloc(64, gram_state_bytes());
    uint64_t bits[1024];
    for (int i = 0; i < N_ROUNDS; i++) {
        char regex[] = "a{2,30}[b-f]+";
        bool kept, made;
        regex[0] = (char)('a' + i % 5);
        struct gram *g = get(c, regex, &kept, &made);
        struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
        for (int k = 0; k < 4; k++) {
            REQUIRE_EQ_INT(gram_mask(s, bits), GRAM_NEXT_MASK);
            int32_t id = 0;
            while (!(bits[id / 64] >> id % 64 & 1) || !gram_take(s, id))
                id++;
        }
        grammar_cache_put(c, g);
    }
    free(memory);
    return NULL;
}

/* A cache with room for some of the texts: all threads compile, share, drop. */
static void test_many_threads(void **state)
{
    (void)state;
    struct grammar_cache *c = open_cache(100000);
    pthread_t threads[N_THREADS];
    REQUIRE(tok_vocab_size(tok) <= 1024 * 64);
    for (int i = 0; i < N_THREADS; i++)
        REQUIRE_EQ_INT(pthread_create(&threads[i], NULL, use, c), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    struct grammar_cache_stats stats = grammar_cache_stats(c);
    REQUIRE_EQ_INT(stats.n_hits + stats.n_misses, N_THREADS * N_ROUNDS);
    REQUIRE(stats.n_hits > 0 && stats.n_misses >= 5 && stats.bytes <= 100000);
    grammar_cache_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures_are_remembered),
        cmocka_unit_test(test_stopped_compilations_are_not),
        cmocka_unit_test(test_objects_are_closed),
        cmocka_unit_test(test_oldest_goes_first),
        cmocka_unit_test(test_without_room),
        cmocka_unit_test(test_many_threads),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
