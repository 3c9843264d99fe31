/* SPDX-License-Identifier: MIT */
/*
 * Grammars that requests share: kept while there is room, the least recently used one dropped,
 * those in use never. Compiling yields to threads that compute; gram_compile comes through here
 * (the linker sends it, see meson.build).
 */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "server/grammar_cache.h"
#include "tokenizer/tokenizer.h"

int __real_gram_compile(struct gram **ret, const struct gram_vocab *vocab, enum gram_kind kind,
                        const char *text, size_t len, const struct gram_options *options,
                        struct gram_error *err);
int __wrap_gram_compile(struct gram **ret, const struct gram_vocab *vocab, enum gram_kind kind,
                        const char *text, size_t len, const struct gram_options *options,
                        struct gram_error *err);

static atomic_int n_compiled, nice_seen;

int __wrap_gram_compile(struct gram **ret, const struct gram_vocab *vocab, enum gram_kind kind,
                        const char *text, size_t len, const struct gram_options *options,
                        struct gram_error *err)
{
    atomic_fetch_add(&n_compiled, 1);
    atomic_store(&nice_seen, getpriority(PRIO_PROCESS, 0));
    return __real_gram_compile(ret, vocab, kind, text, len, options, err);
}

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

/* The grammar of a regular expression, and whether it was compiled now. */
static struct gram *get(struct grammar_cache *c, const char *regex, bool *ret_kept, bool *ret_made)
{
    struct gram_options options = {.strict = false};
    struct gram_error err = {0};
    struct gram *g = NULL;
    int before = atomic_load(&n_compiled);
    int rc = grammar_cache_get(c, GRAM_REGEX, regex, strlen(regex), &options, &g, ret_kept, &err);
    REQUIRE_MSG(rc == 0, "%s", err.message);
    *ret_made = atomic_load(&n_compiled) > before;
    return g;
}

static void test_compiling_yields(void **state)
{
    (void)state;
    struct grammar_cache *c = open_cache(1 << 20);
    bool kept, made;
    int own = getpriority(PRIO_PROCESS, 0);
    grammar_cache_put(c, get(c, "a+", &kept, &made));
    REQUIRE(made);
    int highest = own + 10 < 19 ? own + 10 : 19;
    REQUIRE_EQ_INT(atomic_load(&nice_seen), highest);
    REQUIRE_EQ_INT(getpriority(PRIO_PROCESS, 0), own);
    grammar_cache_destroy(c);
}

static void test_errors_come_through(void **state)
{
    (void)state;
    struct grammar_cache *c = open_cache(1 << 20);
    struct gram_options options = {.strict = false};
    struct gram_error err = {0};
    struct gram *g = NULL;
    bool kept = false;
    REQUIRE_EQ_INT(grammar_cache_get(c, GRAM_REGEX, "(", 1, &options, &g, &kept, &err),
                   GRAM_EGRAMMAR);
    REQUIRE(!g && err.message[0]);
    REQUIRE_EQ_INT(grammar_cache_stats(c).n_entries, 0);
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
        cmocka_unit_test(test_compiling_yields),  cmocka_unit_test(test_errors_come_through),
        cmocka_unit_test(test_oldest_goes_first), cmocka_unit_test(test_without_room),
        cmocka_unit_test(test_many_threads),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
