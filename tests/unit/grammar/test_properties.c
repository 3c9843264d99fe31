/* SPDX-License-Identifier: MIT */
/*
 * What holds for every grammar, on random answers with a fixed seed: the mask is what taking each
 * id says; a text has one verdict however it is cut into tokens; rollback equals replay; there are
 * no dead ends. And one cold grammar serves many threads.
 */
#include "test.h"

#include <pthread.h>

#include "tokenizer/grammar/grammar.h"
#include "toy_vocab.h"

#define S GRAM_SCHEMA

static const struct {
    enum gram_kind kind;
    const char *text;
} sources[] = {
    {S, "true"},
    {GRAM_JSON_OBJECT, ""},
    {S, "{\"type\":\"number\",\"minimum\":-2.5,\"maximum\":1000}"},
    {S, "{\"type\":\"integer\",\"multipleOf\":12,\"not\":{\"const\":24}}"},
    {S, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":9}"},
    {S, "{\"type\":\"string\",\"pattern\":\"^(a|bc){2,40}d?$\"}"},
    {S, "{\"type\":\"string\",\"pattern\":\"a.*b\",\"minLength\":4,\"maxLength\":12}"},
    {S, "{\"type\":\"string\",\"pattern\":\"^.*[}e]$\"}"},
    {S, "{\"type\":\"string\",\"pattern\":\"^[a-h ]+$\",\"minLength\":6,\"maxLength\":9}"},
    {S, "{\"type\":\"string\",\"not\":{\"pattern\":\"aab|he|l+o\"}}"},
    {S, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"date-time\"},\"maxItems\":"
        "3}"},
    {S, "{\"type\":\"string\",\"format\":\"uri\",\"maxLength\":30}"},
    {S,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"a\":{\"type\":["
     "\"null\","
     "\"integer\"]},\"ab\":{\"enum\":[\"ab\",12,null]}},\"required\":[\"a\"],\"minProperties\":2}"},
    {S, "{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"null\"}},"
        "\"additionalProperties\":{\"type\":\"boolean\"},\"maxProperties\":4}"},
    {S, "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[ab]{1,2}$\"},\"minProperties\":3,"
        "\"additionalProperties\":{\"type\":\"integer\",\"maximum\":12}}"},
    {S, "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"integer\",\"minimum\":0,"
        "\"maximum\":12},\"minItems\":14}"},
    {S, "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"a\",\"ab\",1,12,null]},"
        "\"minItems\":3}"},
    {S,
     "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"string\",\"maxLength\":1}}"},
    {S,
     "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},"
     "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":12},\"b\":{\"$ref\":\"#\"}},"
     "\"required\":[\"a\",\"b\"]}]}"},
    {S, "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"ab\":{},\"abc\":{}},"
        "\"dependentRequired\":{\"a\":[\"abc\"],\"b\":[\"ab\"]},\"additionalProperties\":false}"},
    {S, "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"array\",\"maxItems\":2,\"items\":{"
        "\"anyOf\":[{\"$ref\":\"#/$defs/t\"},{\"const\":null}]}}}}"},
    {GRAM_REGEX, "(?:hello|the|aa+b){1,3}[^x]{0,5}"},
    {GRAM_REGEX, "[a-c]{3,900}\\d"},
    {GRAM_CHOICE, "[\"hello\",\"hell\",\"the aa\",\"\xf0\x9f\x98\x80\"]"},
    {GRAM_GBNF, "root ::= (expr \";\")+\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]{1,3} | "
                "\"(\" expr \")\" | \"the\""},
    {GRAM_GBNF,
     "root ::= (name | name \"(\" root \")\") ws (\"+\" root)?\nname ::= [a-h] [a-h0-9]*\n"
     "ws ::= ([ \\n] ws)?"},
    {GRAM_REPEAT, "calls"},
    {GRAM_GBNF, "root ::= \"\xc3\xa4\"{2,300} (\" \" [a-h]+){0,2}"},
};

#undef S

enum { MAX_ANSWER = 6000 };

/* What the tests share: a vocabulary, and room for two states. */
struct bench {
    struct gram_vocab *v;
    void *memory, *other;
};

static struct bench bench_open(void)
{
    return (struct bench){toy_vocab(), toy_state_memory(), toy_state_memory()};
}

static void bench_close(struct bench *b)
{
    free(b->memory);
    free(b->other);
    gram_vocab_destroy(b->v);
}

/* Ids that bring an answer to its end rather soon. */
static int closing_rank(int32_t id)
{
    static const char order[] = "\"}]);:,";
    if (id >= TOY_WORDS) return strcmp(toy_words[id - TOY_WORDS], "\n</p>") == 0 ? 0 : -1;
    const char *p = id > TOY_BYTES ? strchr(order, id - TOY_BYTES) : NULL;
    return p ? (int)(p - order) + 1 : -1;
}

/* A random id of the mask: with `closing` one that closes something, if there is one. */
static int32_t pick(const uint64_t *bits, uint64_t *seed, bool closing)
{
    int32_t ids[TOY_IDS], best = -1;
    uint32_t n = 0;

    for (int32_t id = 1; id < TOY_IDS; id++) {
        if (!toy_allows(bits, id)) continue;
        ids[n++] = id;
        int rank = closing_rank(id);
        if (rank >= 0 && (best < 0 || rank < closing_rank(best))) best = id;
    }
    if (!n) return -1;
    return closing && best >= 0 ? best : ids[toy_draw(seed, n)];
}

/* ---- masks --------------------------------------------------------------------------------- */

/* Each id alone, taken and taken back, says what the mask says. */
static void check_mask(struct gram_state *s, const uint64_t *bits, const char *source)
{
    uint64_t mark = gram_mark(s);
    bool taken = false;

    for (int32_t id = 0; id < TOY_IDS; id++) {
        bool allowed = toy_allows(bits, id);
        if (id == TOY_END) {
            REQUIRE(allowed == gram_accepting(s));
            REQUIRE(!gram_take(s, id));
            continue;
        }
        taken = gram_take(s, id);
        REQUIRE_MSG(taken == allowed, "%s: id %d: mask %d, taken %d", source, id, allowed, taken);
        if (taken) REQUIRE(gram_rollback(s, mark));
    }
}

/* Answers by random ids; what is not complete always has a next id, and the end comes. */
static void walk(const struct bench *b, const struct gram *g, const char *source, uint64_t seed,
                 bool check)
{
    struct gram_state *s = gram_state_init(b->memory, g, NULL, NULL);
    uint64_t bits[TOY_MASK_WORDS], again[TOY_MASK_WORDS];

    for (int i = 0; i < MAX_ANSWER; i++) {
        enum gram_next next = gram_mask(s, bits);
        REQUIRE_MSG(next != GRAM_NEXT_FAIL, "%s: dead end", source);
        if (check && i < 24) {
            check_mask(s, bits, source);
            gram_mask(s, again); /* by warm caches now */
            REQUIRE(memcmp(bits, again, sizeof(bits)) == 0);
        }
        if (next == GRAM_NEXT_END || (i > 24 && gram_accepting(s))) return;
        int32_t id = pick(bits, &seed, i > 24);
        REQUIRE_MSG(id >= 0, "%s: the mask is empty after %d tokens", source, i);
        REQUIRE(gram_take(s, id));
    }
    fail_msg("%s: no end within %d tokens", source, MAX_ANSWER);
}

static void test_masks_are_what_taking_says(void **state)
{
    (void)state;
    struct bench b = bench_open();
    for (size_t i = 0; i < N_OF(sources); i++) {
        struct gram *g = toy_compile(b.v, sources[i].kind, sources[i].text, NULL);
        for (uint64_t seed = 1; seed <= 6; seed++)
            walk(&b, g, sources[i].text, seed * 7919, true);
        gram_release(g);
    }
    bench_close(&b);
}

static void test_there_are_no_dead_ends(void **state)
{
    (void)state;
    struct bench b = bench_open();
    for (size_t i = 0; i < N_OF(sources); i++) {
        struct gram *g = toy_compile(b.v, sources[i].kind, sources[i].text, NULL);
        for (uint64_t seed = 1; seed <= 100; seed++)
            walk(&b, g, sources[i].text, seed, false);
        gram_release(g);
    }
    bench_close(&b);
}

/* ---- cutting ------------------------------------------------------------------------------- */

/* A random answer of at most `cap` bytes, perhaps not complete; returns its length. */
static size_t random_text(const struct bench *b, const struct gram *g, uint64_t seed, char *out,
                          size_t cap)
{
    struct gram_state *s = gram_state_init(b->memory, g, NULL, NULL);
    uint64_t bits[TOY_MASK_WORDS];
    size_t n = 0;

    while (n + 16 < cap && gram_mask(s, bits) == GRAM_NEXT_MASK) {
        int32_t id = pick(bits, &seed, toy_draw(&seed, 4) == 0);
        if (id < 0) break;
        REQUIRE(gram_take(s, id));
        n += toy_bytes(NULL, id, out + n, cap - n);
    }
    return n;
}

/* The longest, or a random, token that the text goes on with. */
static int32_t next_token(const char *text, size_t n, uint64_t *seed)
{
    char token[64];
    int32_t id = TOY_BYTES + (uint8_t)text[0];

    for (int32_t i = TOY_WORDS; i < TOY_IDS; i++) {
        size_t len = toy_bytes(NULL, i, token, sizeof(token));
        if (len > n || memcmp(token, text, len) != 0) continue;
        if (text[0] == '\xff' || toy_draw(seed, 2)) id = i; /* 0xFF alone is not a token */
    }
    return id;
}

/* 2: complete, 1: can go on, 0: refused. */
static int verdict_cut(void *memory, const struct gram *g, const char *text, size_t n,
                       uint64_t seed)
{
    struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
    uint64_t bits[TOY_MASK_WORDS];
    char token[64];

    for (size_t at = 0; at < n;) {
        int32_t id = next_token(text + at, n - at, &seed);
        gram_mask(s, bits);
        bool taken = gram_take(s, id);
        REQUIRE_EQ_INT(taken, toy_allows(bits, id));
        if (!taken) return 0;
        at += toy_bytes(NULL, id, token, sizeof(token));
    }
    return 1 + gram_accepting(s);
}

static int verdict_bytes(void *memory, const struct gram *g, const char *text, size_t n)
{
    struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
    return gram_take_bytes(s, text, n) ? 1 + gram_accepting(s) : 0;
}

/* Whole, byte by byte, and cut at random; the answer itself and with one byte changed. */
static void test_cutting_does_not_show(void **state)
{
    (void)state;
    static const char changes[] = "\"\\,:{}[]0a \n\x80";
    struct bench b = bench_open();
    int n_refused = 0, n_complete = 0;

    for (size_t i = 0; i < N_OF(sources); i++) {
        struct gram *g = toy_compile(b.v, sources[i].kind, sources[i].text, NULL);
        for (uint64_t seed = 1; seed <= 60; seed++) {
            char text[120];
            uint64_t draw = seed * 104729;
            size_t n = random_text(&b, g, draw, text, sizeof(text));
            if (n && seed % 3 == 0)
                text[toy_draw(&draw, (uint32_t)n)] = changes[toy_draw(&draw, sizeof(changes) - 1)];
            int whole = verdict_bytes(b.memory, g, text, n);
            REQUIRE_MSG(whole > 0 || seed % 3 == 0, "%s: %.*s", sources[i].text, (int)n, text);
            for (uint64_t cut = 1; cut <= 4; cut++)
                REQUIRE_MSG(verdict_cut(b.memory, g, text, n, cut * 31 + seed) == whole, "%s: %.*s",
                            sources[i].text, (int)n, text);
            n_refused += whole == 0;
            n_complete += whole == 2;
        }
        gram_release(g);
    }
    REQUIRE_MSG(n_refused > 50 && n_complete > 50, "%d refused, %d complete", n_refused,
                n_complete);
    bench_close(&b);
}

/* ---- what must come ------------------------------------------------------------------------ */

/* The only id of one byte that the mask allows, or -1: none, more, or the answer may end. */
static int32_t only_byte(struct gram_state *s)
{
    uint64_t bits[TOY_MASK_WORDS];
    int32_t only = -1;
    if (gram_mask(s, bits) != GRAM_NEXT_MASK || gram_accepting(s)) return -1;
    for (int32_t id = TOY_BYTES; id < TOY_WORDS; id++) {
        if (!toy_allows(bits, id)) continue;
        if (only >= 0) return -1;
        only = id;
    }
    return only;
}

/* The ids spell bytes each of which is the only one, and the byte behind them is so too. */
static size_t check_forced(struct gram_state *s, const char *source)
{
    int32_t ids[8];
    uint64_t mark = gram_mark(s);
    size_t n = gram_forced(s, ids, N_OF(ids));
    for (size_t i = 0; i < n; i++) {
        char text[GRAM_MAX_TOKEN_BYTES] = "";
        size_t len = toy_bytes(NULL, ids[i], text, sizeof(text));
        REQUIRE(len > 0);
        for (size_t k = 0; k < len && text[0] != '\xff'; k++) {
            int32_t byte = only_byte(s);
            REQUIRE_MSG(byte == TOY_BYTES + (uint8_t)text[k], "%s: id %d", source, ids[i]);
            REQUIRE(gram_take(s, byte));
        }
        if (text[0] == '\xff') REQUIRE(gram_take(s, ids[i]));
    }
    REQUIRE(gram_rollback(s, mark));
    return n;
}

/* All along random answers; looking ahead leaves the state as it was. */
static void test_forced_ids(void **state)
{
    (void)state;
    struct bench b = bench_open();
    size_t n_forced = 0;
    for (size_t i = 0; i < N_OF(sources); i++) {
        struct gram *g = toy_compile(b.v, sources[i].kind, sources[i].text, NULL);
        for (uint64_t seed = 1; seed <= 10; seed++) {
            struct gram_state *s = gram_state_init(b.memory, g, NULL, NULL),
                              *plain = gram_state_init(b.other, g, NULL, NULL);
            uint64_t bits[TOY_MASK_WORDS], same[TOY_MASK_WORDS], draw = seed * 1299709;
            for (int step = 0; step < 60; step++) {
                int32_t ids[8];
                gram_forced(s, ids, N_OF(ids));
                enum gram_next next = gram_mask(s, bits);
                REQUIRE(next == gram_mask(plain, same));
                REQUIRE_MSG(memcmp(bits, same, sizeof(bits)) == 0, "%s", sources[i].text);
                n_forced += check_forced(s, sources[i].text);
                int32_t id = next == GRAM_NEXT_MASK ? pick(bits, &draw, false) : -1;
                if (id < 0) break;
                REQUIRE(gram_take(s, id) && gram_take(plain, id));
            }
        }
        gram_release(g);
    }
    REQUIRE_MSG(n_forced > 100, "%zu", n_forced);
    bench_close(&b);
}

/* Longest tokens first, without the last one: it may go on. */
static void test_forced_ids_are_usual(void **state)
{
    (void)state;
    static const struct {
        enum gram_kind kind;
        const char *grammar, *before;
        const char *ids[4];
    } cases[] = {
        {GRAM_GBNF, "root ::= \"the hello aaa12x\" [0-9]", "", {"the", " ", "hello", " a"}},
        {GRAM_GBNF, "root ::= \"the hello aaa12x\" [0-9]", "the hello a", {"aa", "12"}},
        {GRAM_GBNF, "root ::= \"the\" \"x\"?", "", {NULL}}, /* it may end behind "the" */
        {GRAM_GBNF, "root ::= \"the\" \" hello\"?", "the", {NULL}},
        {GRAM_GBNF, "root ::= [ab] \"the\"", "", {NULL}},
        {GRAM_REGEX, "[a-h]the hello [0-9]", "a", {"the", " ", "hello"}},
        {GRAM_CHOICE, "[\"hello name\",\"hello true\"]", "", {"hello"}},
        {GRAM_CHOICE, "[\"hello name\",\"hello true\"]", "hello t", {"r"}},
        {GRAM_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"name\":{},\"true\":{}},"
         "\"additionalProperties\":false,\"minProperties\":1}",
         "{\"",
         {NULL}},
        {GRAM_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"name\":{},\"true\":{}},"
         "\"additionalProperties\":false,\"minProperties\":1}",
         "{\"n",
         {"a", "m", "e"}},
    };
    struct bench b = bench_open();
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct gram *g = toy_compile(b.v, cases[i].kind, cases[i].grammar, NULL);
        struct gram_state *s = gram_state_init(b.memory, g, NULL, NULL);
        int32_t ids[4];
        REQUIRE(gram_take_bytes(s, cases[i].before, strlen(cases[i].before)));
        size_t n = gram_forced(s, ids, N_OF(ids)), want = 0;
        while (want < N_OF(ids) && cases[i].ids[want])
            want++;
        REQUIRE_MSG(n == want, "%s behind '%s': %zu ids", cases[i].grammar, cases[i].before, n);
        for (size_t k = 0; k < n; k++) {
            char text[GRAM_MAX_TOKEN_BYTES + 1] = "";
            toy_bytes(NULL, ids[k], text, sizeof(text));
            REQUIRE_EQ_STR(text, cases[i].ids[k]);
        }
        gram_release(g);
    }
    bench_close(&b);
}

/* ---- marks --------------------------------------------------------------------------------- */

/* Goes on, comes back, and is where another state is that never went on. */
static void test_rollback_is_replay(void **state)
{
    (void)state;
    struct bench b = bench_open();
    for (size_t i = 0; i < N_OF(sources); i++) {
        struct gram *g = toy_compile(b.v, sources[i].kind, sources[i].text, NULL);
        for (uint64_t seed = 1; seed <= 20; seed++) {
            struct gram_state *s = gram_state_init(b.memory, g, NULL, NULL),
                              *plain = gram_state_init(b.other, g, NULL, NULL);
            uint64_t bits[TOY_MASK_WORDS], same[TOY_MASK_WORDS], draw = seed * 1299709;
            for (int step = 0; step < 60 && gram_mask(s, bits) == GRAM_NEXT_MASK; step++) {
                uint64_t mark = gram_mark(s);
                for (uint32_t ahead = toy_draw(&draw, 6); ahead > 0; ahead--) {
                    int32_t id = pick(bits, &draw, false);
                    if (id < 0) break;
                    REQUIRE(gram_take(s, id));
                    if (gram_mask(s, bits) != GRAM_NEXT_MASK) break;
                }
                REQUIRE(gram_rollback(s, mark));
                REQUIRE(gram_mask(s, bits) == gram_mask(plain, same));
                REQUIRE_MSG(memcmp(bits, same, sizeof(bits)) == 0, "%s", sources[i].text);
                REQUIRE(gram_accepting(s) == gram_accepting(plain));
                int32_t id = pick(bits, &draw, false);
                if (id < 0) break;
                REQUIRE(gram_take(s, id) && gram_take(plain, id));
            }
        }
        gram_release(g);
    }
    bench_close(&b);
}

static void test_marks_are_kept_for_a_while(void **state)
{
    (void)state;
    struct bench b = bench_open();
    struct gram *g = toy_compile(b.v, GRAM_SCHEMA, "true", NULL);
    struct gram_state *s = gram_state_init(b.memory, g, NULL, NULL);
    uint64_t marks[GRAM_MAX_MARKS + 1];

    REQUIRE(gram_take_bytes(s, "[\"", 2));
    for (int i = 0; i <= GRAM_MAX_MARKS; i++) {
        marks[i] = gram_mark(s);
        REQUIRE(gram_take_bytes(s, "a", 1));
    }
    REQUIRE(!gram_rollback(s, marks[0])); /* one too many */
    REQUIRE(gram_rollback(s, marks[3]));
    REQUIRE(!gram_rollback(s, marks[4])); /* it lay behind */
    REQUIRE(gram_rollback(s, marks[2]));
    for (int i = 0; i < GRAM_MARK_BYTES; i++)
        REQUIRE(gram_take_bytes(s, "b", 1));
    REQUIRE(!gram_rollback(s, marks[1])); /* too far back */
    REQUIRE(gram_rollback(s, marks[2]));
    for (int i = 0; i < 5 * GRAM_MARK_BYTES; i++)
        REQUIRE(gram_take_bytes(s, "c", 1));
    REQUIRE(!gram_rollback(s, marks[2]));
    REQUIRE(gram_take_bytes(s, "\"]", 2) && gram_accepting(s));
    gram_release(g);
    bench_close(&b);
}

/* ---- threads ------------------------------------------------------------------------------- */

enum { N_THREADS = 16 };

struct choice {
    pthread_t thread;
    const struct gram *g;
    uint64_t digest;
};

/* One answer under a grammar whose caches are cold; the digest is of all its masks. */
static void *answer(void *ctx)
{
    struct choice *c = ctx;
    void *memory = aligned_alloc(64, gram_state_bytes());
    struct gram_state *s = gram_state_init(memory, c->g, NULL, NULL);
    uint64_t bits[TOY_MASK_WORDS], seed = 12345;

    c->digest = 1;
    for (int i = 0; i < 400 && gram_mask(s, bits) == GRAM_NEXT_MASK; i++) {
        for (size_t w = 0; w < TOY_MASK_WORDS; w++)
            c->digest = (c->digest ^ bits[w]) * 0x9E3779B97F4A7C15u;
        int32_t id = pick(bits, &seed, false);
        if (id < 0 || !gram_take(s, id)) break;
    }
    free(memory);
    return NULL;
}

static void test_threads_share_a_cold_grammar(void **state)
{
    (void)state;
    static struct choice choices[N_THREADS];
    struct gram_vocab *v = toy_vocab();
    for (size_t i = 0; i < N_OF(sources); i++) {
        struct gram *g = toy_compile(v, sources[i].kind, sources[i].text, NULL);
        for (int t = 0; t < N_THREADS; t++) {
            choices[t].g = g;
            REQUIRE_EQ_INT(pthread_create(&choices[t].thread, NULL, answer, &choices[t]), 0);
        }
        for (int t = 0; t < N_THREADS; t++) {
            pthread_join(choices[t].thread, NULL);
            REQUIRE_MSG(choices[t].digest == choices[0].digest, "%s: thread %d", sources[i].text,
                        t);
        }
        gram_release(g);
    }
    gram_vocab_destroy(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_are_what_taking_says),
        cmocka_unit_test(test_there_are_no_dead_ends),
        cmocka_unit_test(test_cutting_does_not_show),
        cmocka_unit_test(test_forced_ids),
        cmocka_unit_test(test_forced_ids_are_usual),
        cmocka_unit_test(test_rollback_is_replay),
        cmocka_unit_test(test_marks_are_kept_for_a_while),
        cmocka_unit_test(test_threads_share_a_cold_grammar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
