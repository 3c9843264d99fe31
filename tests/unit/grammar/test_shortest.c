/* SPDX-License-Identifier: MIT */
/*
 * The shortest way to complete an answer, beside the shortest there is: a search through all that
 * can follow, length by length, which knows nothing of measures. Grammars and the beginnings of
 * their answers are drawn with a fixed seed.
 */
#include "test.h"

#include <stdarg.h>

#include "tokenizer/grammar/state.h"
#include "toy_vocab.h"

/* ---- grammars ------------------------------------------------------------------------------ */

struct text {
    char s[4096];
    size_t n;
    uint64_t seed;
};

static uint32_t draw(struct text *t, uint32_t n)
{
    return toy_draw(&t->seed, n);
}

static void __attribute__((format(printf, 2, 3))) put(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    t->n += (size_t)vsnprintf(t->s + t->n, sizeof(t->s) - t->n, format, args);
    va_end(args);
    REQUIRE(t->n < sizeof(t->s));
}

#define ONE_OF(t, list) ((list)[draw(t, N_OF(list))])

static void put_schema(struct text *t, int depth);

static void put_number(struct text *t)
{
    static const char *const bounds[] = {"", ",\"minimum\":7", ",\"maximum\":-3",
                                         ",\"minimum\":95,\"maximum\":130",
                                         ",\"exclusiveMinimum\":9"};
    static const char *const fractions[] = {"", ",\"exclusiveMinimum\":0.25,\"maximum\":0.3",
                                            ",\"minimum\":-0.5,\"maximum\":-0.01"};
    static const char *const steps[] = {"", "", ",\"multipleOf\":6"};
    if (draw(t, 3))
        put(t, "\"type\":\"integer\"%s%s", ONE_OF(t, bounds), ONE_OF(t, steps));
    else
        put(t, "\"type\":\"number\"%s", ONE_OF(t, fractions));
}

static void put_string(struct text *t)
{
    static const char *const patterns[] = {"^a+b?$",     "^(ab|c){2,3}$", "b",
                                           "^[0-9]{2}$", "^(?:a|bc)*a$",  "^[a-c]{1,4}\xc3\xa4$"};
    put(t, "\"type\":\"string\"");
    switch (draw(t, 4)) {
    case 0: put(t, ",\"pattern\":\"%s\"", ONE_OF(t, patterns)); break;
    case 1: put(t, ",\"minLength\":%u", draw(t, 5)); break;
    case 2: put(t, ",\"minLength\":%u,\"maxLength\":%u", draw(t, 3), 3 + draw(t, 2)); break;
    default: break;
    }
}

static void put_array(struct text *t, int depth)
{
    put(t, "\"type\":\"array\"");
    if (draw(t, 3) == 0) {
        put(t, ",\"prefixItems\":[");
        put_schema(t, depth);
        if (draw(t, 2)) put(t, ","), put_schema(t, depth);
        put(t, "]");
    }
    put(t, ",\"items\":");
    put_schema(t, depth);
    if (draw(t, 2)) put(t, ",\"minItems\":%u", 1 + draw(t, 3));
    if (draw(t, 3) == 0) put(t, ",\"maxItems\":4");
    if (draw(t, 4) == 0) put(t, ",\"uniqueItems\":true");
}

static void put_object(struct text *t, int depth)
{
    static const char *const names[] = {"a", "ab", "b", "cab", "c"};
    static const char *const free_keys[] = {
        "",
        "",
        ",\"additionalProperties\":false",
        ",\"additionalProperties\":true",
        ",\"patternProperties\":{\"^a+$\":{\"const\":[1,[2,3]]}},\"additionalProperties\":{"
        "\"type\":\"null\"}",
        ",\"patternProperties\":{\"^a*$\":{\"const\":[1,[2,3]]}},\"additionalProperties\":{"
        "\"type\":\"null\"}",
        ",\"patternProperties\":{\"^a+$\":{\"type\":\"null\"}},\"additionalProperties\":false"};
    static const char *const more[] = {"",
                                       "",
                                       "",
                                       ",\"minProperties\":2",
                                       ",\"minProperties\":3",
                                       ",\"maxProperties\":3",
                                       ",\"dependentRequired\":{\"a\":[\"b\",\"c\"]}",
                                       ",\"propertyNames\":{\"pattern\":\"^[abc]{1,3}$\"}"};
    uint32_t chosen = draw(t, 32), required = draw(t, 32) & draw(t, 32);
    const char *comma = "";

    put(t, "\"type\":\"object\",\"properties\":{");
    for (uint32_t i = 0; i < N_OF(names); i++) {
        if (!(chosen >> i & 1)) continue;
        put(t, "%s\"%s\":", comma, names[i]);
        put_schema(t, depth);
        comma = ",";
    }
    put(t, "},\"required\":[");
    comma = "";
    for (uint32_t i = 0; i < N_OF(names); i++) {
        if (!(required >> i & 1)) continue;
        put(t, "%s\"%s\"", comma, names[i]);
        comma = ",";
    }
    put(t, "]%s%s", ONE_OF(t, free_keys), ONE_OF(t, more));
}

static void put_schema(struct text *t, int depth)
{
    static const char *const words[] = {"\"enum\":[\"tan\",\"red\",\"ta\"]",
                                        "\"const\":null",
                                        "\"type\":\"boolean\"",
                                        "\"enum\":[1,12,\"b\",[1],true]",
                                        "\"const\":{\"a\":[1,2],\"b\":\"c\"}",
                                        "\"type\":[\"string\",\"null\"]"};
    uint32_t kind = draw(t, depth > 0 ? 11 : 5);

    put(t, "{");
    if (kind < 2)
        put(t, "%s", ONE_OF(t, words));
    else if (kind < 3)
        put_number(t);
    else if (kind < 5)
        put_string(t);
    else if (kind < 6)
        put(t, "\"$ref\":\"#\"");
    else if (kind < 7) {
        put(t, "\"anyOf\":[");
        put_schema(t, depth - 1);
        put(t, ",");
        put_schema(t, depth - 1);
        put(t, "]");
    } else if (kind < 9)
        put_array(t, depth - 1);
    else
        put_object(t, depth - 1);
    put(t, "}");
}

static void put_root(struct text *t)
{
    put(t, "{");
    if (draw(t, 3))
        put_object(t, 2);
    else
        put_array(t, 2);
    put(t, "}");
}

/* ---- beginnings ---------------------------------------------------------------------------- */

/* Goes on by some ids, rather by single bytes. */
static void begin(struct gram_state *s, struct text *t, uint32_t n)
{
    uint64_t bits[TOY_MASK_WORDS];
    int32_t ids[TOY_IDS];

    for (; n > 0 && gram_mask(s, bits) == GRAM_NEXT_MASK; n--) {
        uint32_t n_ids = 0;
        for (int32_t id = 1; id < TOY_IDS; id++)
            if (toy_allows(bits, id) && (id >= TOY_WORDS || id < TOY_BYTES + 0x80))
                ids[n_ids++] = id;
        if (!n_ids) return;
        REQUIRE(gram_take(s, ids[draw(t, n_ids)]));
    }
}

/* ---- the search ---------------------------------------------------------------------------- */

enum { MAX_SETS = 6000, MAX_CONFIGS = 30000, SLOTS = 1 << 15 };

/* All sets that the bytes so far lead to, each once. */
struct search {
    struct gram_config c[MAX_CONFIGS];
    uint32_t n_configs;
    struct {
        uint32_t first, n;
    } sets[MAX_SETS];
    uint32_t n_sets;
    uint32_t slots[SLOTS]; /* set + 1 */
    bool given_up;
};

/* Returns true if the set is new and there is room for it. */
static bool add_set(struct search *x, const struct gram_config *c, uint32_t n)
{
    uint64_t hash = n;
    for (size_t i = 0; i < n * sizeof(*c) / 8; i++)
        hash = (hash ^ ((const uint64_t *)(const void *)c)[i]) * 0x9E3779B97F4A7C15u;
    uint32_t slot = (uint32_t)(hash >> 32) % SLOTS;

    for (; x->slots[slot]; slot = (slot + 1) % SLOTS) {
        uint32_t k = x->slots[slot] - 1;
        if (x->sets[k].n == n && !memcmp(x->c + x->sets[k].first, c, n * sizeof(*c))) return false;
    }
    if (x->n_sets == MAX_SETS || x->n_configs + n > MAX_CONFIGS) {
        x->given_up = true;
        return false;
    }
    memcpy(x->c + x->n_configs, c, n * sizeof(*c));
    x->sets[x->n_sets].first = x->n_configs;
    x->sets[x->n_sets].n = n;
    x->n_configs += n;
    x->slots[slot] = ++x->n_sets;
    return true;
}

static bool is_end(const struct search *x, uint32_t set)
{
    for (uint32_t i = 0; i < x->sets[set].n; i++)
        if (x->c[x->sets[set].first + i].kind == GRAM_AT_END) return true;
    return false;
}

/* Of keys that are not declared a few characters will do. */
static void add_next(struct search *x, struct gram_state *s, uint32_t set, struct gram_set *to)
{
    static const char alphabet[] = "\"{}[],:-.0123456789abcdeflnrstu \n\xc3\xa4";
    const struct gram_set from = {.c = x->c + x->sets[set].first, .n = x->sets[set].n};
    uint64_t may[4] = {0};

    for (uint32_t i = 0; i < from.n; i++)
        gram_config_bytes(&s->m, &from.c[i], may);
    bool key = from.c[0].kind == GRAM_IN_KEY || from.c[0].kind == GRAM_IN_FREE_KEY;
    for (const char *p = key ? "\"abc0" : alphabet; *p && !x->given_up; p++) {
        uint8_t byte = (uint8_t)*p;
        if (!(may[byte / 64] >> byte % 64 & 1)) continue;
        uint32_t top = s->cells.top;
        gram_step_set(&s->m, &from, to, byte);
        x->given_up |= s->cells.full;
        if (!to->n || !add_set(x, to->c, to->n)) gram_cells_pop(&s->cells, top);
    }
}

/* Bytes to the nearest end, `most` if there is none nearer; at least so many if it is given up. */
static size_t search(struct search *x, struct gram_state *s, size_t most)
{
    struct gram_set two[2];
    struct gram_visits visits;
    uint32_t done = 0;

    x->n_configs = x->n_sets = 0;
    x->given_up = false;
    memset(x->slots, 0, sizeof(x->slots));
    add_set(x, s->set.c, s->set.n);
    gram_begin_bytes(s, &visits, two);
    for (size_t len = 0; len < most; len++) {
        uint32_t n = x->n_sets;
        for (uint32_t i = done; i < n; i++)
            if (is_end(x, i)) return len;
        for (; done < n && !x->given_up; done++)
            add_next(x, s, done, &two[0]);
        if (x->given_up) return len + 1;
    }
    return most;
}

/* ---- both ---------------------------------------------------------------------------------- */

/* Writes the end that gram_close has for the answer, and takes it; returns its length. */
static size_t close_answer(struct gram_state *s, char *out, const char *schema)
{
    int32_t ids[512];
    uint32_t n_values;
    size_t n = gram_close(s, N_OF(ids), NULL, ids, N_OF(ids), &n_values), len = 0;

    REQUIRE_MSG(n != SIZE_MAX, "%s: no end is found", schema);
    for (size_t i = 0; i < n; i++)
        len += toy_bytes(NULL, ids[i], out + len, 16);
    out[len] = '\0';
    return len;
}

static struct gram *compile(const struct gram_vocab *v, const char *schema, bool styled)
{
    struct gram *g = NULL;
    struct gram_error err;
    struct gram_part part = toy_part(GRAM_SCHEMA, schema);
    struct gram_options options = {.styled = styled};
    return gram_compile_parts(&g, v, &part, &options, &err) ? NULL : g;
}

/* The answer as it stands: its end is one, and at most twice as long as it must be. */
static bool check_end(struct search *x, struct gram_state *s, const char *schema)
{
    char end[8192];
    size_t len = close_answer(s, end, schema), least = search(x, s, len);

    REQUIRE_MSG(len <= 4 * gram_rest(s) + 16, "%s: %s", schema, end);
    if (x->given_up && len > 2 * least) return false;
    REQUIRE_MSG(len <= 2 * least, "%s: %zu bytes will do: %s", schema, least, end);
    REQUIRE_MSG(gram_take_bytes(s, end, len) && gram_accepting(s), "%s: %s", schema, end);
    return true;
}

static int n_grammars = 400; /* argv[1]: so many */

static void test_ends_beside_a_search(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    struct search *x = malloc(sizeof(*x));
    struct text t = {.seed = 20261127};
    int n_searched = 0;
    REQUIRE(x);

    for (int i = 0; i < n_grammars;) {
        t.n = 0;
        put_root(&t);
        struct gram *g = compile(v, t.s, draw(&t, 2));
        if (!g) continue; /* nothing fits it */
        for (uint32_t k = 0; k < 2; k++) {
            struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
            begin(s, &t, k * (1 + draw(&t, 12)));
            n_searched += check_end(x, s, t.s);
        }
        gram_release(g);
        i++;
    }
    REQUIRE(n_searched > 2 * n_grammars * 9 / 10);
    free(x);
    free(memory);
    gram_vocab_destroy(v);
}

int main(int argc, char **argv)
{
    if (argc > 1) n_grammars = atoi(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends_beside_a_search)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
