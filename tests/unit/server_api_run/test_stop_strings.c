/* SPDX-License-Identifier: MIT */
/*
 * Stop strings and hold-back: table of cases, and a seeded property: however the text is cut into
 * pieces, what comes out and where it stops are the same, and equal to a plain search.
 */
#include "test.h"

#include "server/api/run/choice_text.h"

struct stop_case {
    const char *name;
    const char *pieces[8];
    const char *stops[4];
    bool include;
    const char *text; /* the whole text at the end */
    int stop;         /* index of the stop string found, or -1 */
};

static const struct stop_case cases[] = {
    {"no stops", {"ab", "cd"}, {0}, false, "abcd", -1},
    {"in one piece", {"hello END more"}, {"END"}, false, "hello ", 0},
    {"over pieces", {"hello E", "N", "D more"}, {"END"}, false, "hello ", 0},
    {"included", {"hello E", "ND more"}, {"END"}, true, "hello END", 0},
    {"whole answer", {"ST", "OP"}, {"STOP"}, false, "", 0},
    {"near miss", {"EN", "EN", "D"}, {"END"}, false, "EN", 0},
    {"never", {"EN", "EN"}, {"END"}, false, "ENEN", -1},
    {"first to complete wins", {"abcd"}, {"abcd", "bc"}, false, "a", 1},
    {"longest of two ending together", {"xabc"}, {"bc", "abc"}, false, "x", 1},
    {"overlap with itself", {"aaab"}, {"aab"}, false, "a", 0},
    {"newlines", {"line\n", "\nnext"}, {"\n\n"}, false, "line", 0},
    {"characters", {"caf\xc3\xa9 ", "\xe2\x82\xac"}, {"\xe2\x82\xac"}, false, "caf\xc3\xa9 ", 0},
};

static int init_stops(struct textout_stops *s, const char *const *texts)
{
    size_t lens[4];
    int n = 0;
    while (n < 4 && texts[n]) {
        lens[n] = strlen(texts[n]);
        n++;
    }
    return textout_stops_init(s, texts, lens, n);
}

static void test_cases(void **state)
{
    for (size_t i = 0; i < N_OF(cases); i++) {
        const struct stop_case *c = &cases[i];
        struct textout_stops stops;
        struct textout t;
        bool stopped = false;
        REQUIRE(init_stops(&stops, c->stops) == 0);
        textout_init(&t, &stops, c->include, 1 << 16);
        for (int k = 0; k < 8 && c->pieces[k] && !stopped; k++)
            stopped = textout_push(&t, c->pieces[k], strlen(c->pieces[k]), true);
        if (!stopped) textout_flush(&t);
        REQUIRE_MSG(t.stop_index == c->stop, "%s: stop %d", c->name, t.stop_index);
        REQUIRE_EQ_STR(t.text.data ? t.text.data : "", c->text);
        REQUIRE_EQ_INT(t.n_released, strlen(c->text));
        buf_finish(&t.text);
        textout_stops_finish(&stops);
    }
}

static void test_hold_back(void **state)
{
    const char *stops_text[4] = {"\n\nUser"};
    struct textout_stops stops;
    struct textout t;
    REQUIRE(init_stops(&stops, stops_text) == 0);
    textout_init(&t, &stops, false, 1 << 16);
    REQUIRE(!textout_push(&t, "Yes.\n", 5, true));
    REQUIRE_EQ_INT(t.n_released, 4);
    REQUIRE(!textout_push(&t, "\nUs", 3, true));
    REQUIRE_EQ_INT(t.n_released, 4);
    REQUIRE(!textout_push(&t, "ual", 3, true));
    REQUIRE_EQ_INT(t.n_released, 11);
    buf_finish(&t.text);
    textout_stops_finish(&stops);
}

static void test_unarmed(void **state)
{
    const char *stops_text[4] = {"END"};
    struct textout_stops stops;
    struct textout t;
    REQUIRE(init_stops(&stops, stops_text) == 0);
    textout_init(&t, &stops, false, 1 << 16);
    REQUIRE(!textout_push(&t, "END", 3, false));
    REQUIRE(textout_push(&t, "xEND", 4, true));
    REQUIRE_EQ_STR(t.text.data, "ENDx");
    buf_finish(&t.text);
    textout_stops_finish(&stops);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Text and stops over two letters, so that partial matches abound. */
static void random_word(uint32_t *rng, char *word, size_t len)
{
    for (size_t i = 0; i < len; i++)
        word[i] = "ab"[next_random(rng) % 2];
    word[len] = '\0';
}

/* Where the first stop to complete ends, by plain search; the longest among those. -1: none. */
static long plain_search(const char *text, char stops[3][8], int *ret_stop)
{
    for (size_t end = 1; end <= strlen(text); end++) {
        int found = -1;
        for (int s = 0; s < 3; s++) {
            size_t len = strlen(stops[s]);
            if (len > end || memcmp(text + end - len, stops[s], len) != 0) continue;
            if (found < 0 || len > strlen(stops[found])) found = s;
        }
        if (found >= 0) {
            *ret_stop = found;
            return (long)end;
        }
    }
    return -1;
}

static void check_random(uint32_t seed)
{
    uint32_t rng = seed;
    char text[64], words[3][8];
    random_word(&rng, text, 1 + next_random(&rng) % 60);
    for (int s = 0; s < 3; s++)
        random_word(&rng, words[s], 3 + next_random(&rng) % 4);
    const char *stops_text[4] = {words[0], words[1], words[2], NULL};
    int expected_stop = -1;
    long end = plain_search(text, words, &expected_stop);
    size_t expected_len = end < 0 ? strlen(text) : (size_t)end - strlen(words[expected_stop]);
    struct textout_stops stops;
    struct textout t;
    REQUIRE(init_stops(&stops, stops_text) == 0);
    textout_init(&t, &stops, false, 1 << 16);
    bool stopped = false;
    for (size_t at = 0; at < strlen(text) && !stopped;) {
        size_t len = 1 + next_random(&rng) % 5;
        if (len > strlen(text) - at) len = strlen(text) - at;
        stopped = textout_push(&t, text + at, len, true);
        at += len;
        REQUIRE_MSG(t.n_released <= expected_len, "seed %u released too much", seed);
    }
    if (!stopped) textout_flush(&t);
    REQUIRE_MSG(stopped == (end >= 0), "seed %u", seed);
    REQUIRE_MSG(t.n_released == expected_len, "seed %u: %zu, not %zu", seed, t.n_released,
                expected_len);
    REQUIRE_MSG(memcmp(t.text.data ? t.text.data : "", text, expected_len) == 0, "seed %u", seed);
    buf_finish(&t.text);
    textout_stops_finish(&stops);
}

static void test_random(void **state)
{
    for (uint32_t seed = 1; seed <= 20000; seed++)
        check_random(seed);
}

/* A line that is not indented enough ends the text where its first other byte stands, however the
 * text was cut; a stop string that ends there comes first. */
static void test_short_lines(void **state)
{
    static const struct {
        const char *text, *expected;
        int64_t min;
    } lines[] = {
        {"a\n  b\n c", "a\n  b\n ", 2}, {"  a\n\t\tb\nc", "  a\n\t\tb\n", 2},
        {"a\n\n  b", "a\n", 2},         {"a\n    b\n  c", "a\n    b\n  c", 2},
        {"a\nb\nc", "a\nb\nc", 0},      {"a\n  ", "a\n  ", 3},
        {"a\n  b EN", "a\n  b EN", 1},  {"a\nEND", "a\n", 1},
        {"a b\n   END", "a b\n   ", 1},
    };
    for (size_t i = 0; i < N_OF(lines) * 8; i++) {
        size_t width = i % 8 + 1, len = strlen(lines[i / 8].text), at = 0;
        struct textout_stops stops;
        struct textout t;
        bool stopped = false;
        REQUIRE(init_stops(&stops, (const char *const[]){"END", NULL}) == 0);
        textout_init(&t, &stops, false, 1 << 16);
        t.min_indent = lines[i / 8].min;
        for (; at < len && !stopped; at += width)
            stopped =
                textout_push(&t, lines[i / 8].text + at, at + width > len ? len - at : width, true);
        if (!stopped) textout_flush(&t);
        REQUIRE_EQ_STR(t.text.data, lines[i / 8].expected);
        REQUIRE_EQ_INT(t.n_released, strlen(lines[i / 8].expected));
        REQUIRE_EQ_INT(stopped, strcmp(lines[i / 8].text, lines[i / 8].expected) != 0);
        REQUIRE(stopped == (t.dedented || t.stop_index == 0) && t.has_lines);
        buf_finish(&t.text);
        textout_stops_finish(&stops);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),   cmocka_unit_test(test_hold_back),
        cmocka_unit_test(test_unarmed), cmocka_unit_test(test_short_lines),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
