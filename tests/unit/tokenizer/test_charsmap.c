/* SPDX-License-Identifier: MIT */
/* The precompiled map of characters: what clusters become, and maps that are none. */
#include "test.h"

#include "load_tokenizer.h"
#include "tokenizer/charsmap.h"

/*
 * The double array that tests/golden/tokenizer/charsmap.py makes of: "a" to "X", "b" with an acute
 * to "Z", (c) to "(c)", a zero-width joiner to "J", CR to "R", LF to nothing.
 */
static const uint32_t units[][2] = {
    {0, 0x400},     {2, 0x80000000}, {5, 0x80000002},  {7, 0x80000004},  {10, 0x80000008},
    {11, 0x150a},   {12, 0x50d},     {13, 0x8000000a}, {14, 0x8000000c}, {96, 0x18961},
    {99, 0x18062},  {132, 0x2398d},  {133, 0x20181},   {136, 0x20480},   {175, 0x2a1a9},
    {195, 0x314c2}, {207, 0x32ccc},  {227, 0x3ace2},
};
static const char values[] = "X\0Z\0(c)\0J\0R\0";
enum { N_UNITS = 256, SIZE = 4 + 4 * N_UNITS + sizeof(values) };

static void put_u32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> 8 * i);
}

static void fill_map(unsigned char map[SIZE])
{
    memset(map, 0, SIZE);
    put_u32(map, 4 * N_UNITS);
    for (size_t i = 0; i < N_OF(units); i++)
        put_u32(map + 4 + 4 * units[i][0], units[i][1]);
    memcpy(map + 4 + 4 * N_UNITS, values, sizeof(values));
}

static json_t *component(const unsigned char *map, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = calloc(1, size * 2 + 8), *out = text;

    REQUIRE(text);
    for (size_t i = 0; i < size; i += 3) {
        uint32_t bits = (uint32_t)map[i] << 16 | (uint32_t)(i + 1 < size ? map[i + 1] : 0) << 8 |
                        (i + 2 < size ? map[i + 2] : 0);
        for (size_t k = 0; k < 4; k++)
            *out++ = k > size - i ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
    json_t *json = json_pack("{ss}", "precompiled_charsmap", text);
    free(text);
    return json;
}

static struct tok_charsmap *load_map(const unsigned char *map, size_t size)
{
    struct tok_charsmap *m = NULL;
    json_t *json = component(map, size);

    err[0] = 0;
    int rc = tok_charsmap_load(&m, json, err, sizeof(err));
    json_decref(json);
    REQUIRE(rc == 0 || err[0]);
    return rc ? NULL : m;
}

/* The text with all replacements. */
static const char *apply(const struct tok_charsmap *m, const char *text)
{
    static char out[256];
    struct tok_uni uni;
    size_t n = 0, done = 0, begin, end, len;
    const char *s;

    REQUIRE_EQ_INT(tok_uni_init(&uni), 0);
    struct tok_charsmap_iter it = tok_charsmap_iter(m, &uni, text, strlen(text));
    while (tok_charsmap_next(&it, &begin, &end, &s, &len)) {
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%.*s%.*s", (int)(begin - done),
                              text + done, (int)len, s);
        done = end;
    }
    snprintf(out + n, sizeof(out) - n, "%s", text + done);
    tok_uni_finish(&uni);
    return out;
}

#define ACUTE "\xcc\x81"
#define ZWJ "\xe2\x80\x8d"
#define COPY "\xc2\xa9"
#define REG "\xc2\xae"
#define NEW_MARK "\xe0\xa2\x97" /* U+0897, of Unicode 16 */

/* As the reference answers for this map. */
static void clusters_are_replaced_as_a_whole(void **state)
{
    static const char *const cases[][2] = {
        {"a", "X"},
        {"plain", "plXin"},
        {"a" ACUTE, "X"},
        {"a" ACUTE ACUTE, "X"},
        {"a" ACUTE ACUTE ACUTE, "X" ACUTE ACUTE ACUTE},
        {"a" ACUTE ZWJ, "X" ACUTE "J"}, /* 6 bytes: each character alone */
        {"b" ACUTE "c", "Zc"},
        {"b", "b"},
        {"b" ZWJ, "bJ"},
        {COPY ZWJ, "(c)"},
        {COPY ZWJ REG, "(c)J" REG},
        {"\r\n", "R"},
        {"\n\r", "R"},
        {"a" NEW_MARK, "X"},
        {"", ""},
    };
    unsigned char map[SIZE];

    (void)state;
    fill_map(map);
    struct tok_charsmap *m = load_map(map, SIZE);
    REQUIRE_MSG(m, "%s", err);
    for (size_t i = 0; i < N_OF(cases); i++)
        REQUIRE_EQ_STR(apply(m, cases[i][0]), cases[i][1]);
    tok_charsmap_destroy(m);
}

static void what_is_no_map_is_refused(void **state)
{
    unsigned char map[SIZE];
    json_t *bad = json_pack("{ss}", "precompiled_charsmap", "AAA?");
    struct tok_charsmap *m = NULL;

    (void)state;
    REQUIRE_EQ_INT(tok_charsmap_load(&m, bad, err, sizeof(err)), TOK_EINVAL);
    json_decref(bad);
    fill_map(map);
    REQUIRE(!load_map(map, 0));
    REQUIRE(!load_map(map, 3));
    REQUIRE(!load_map(map, 4 + 4 * N_UNITS - 1));
    map[SIZE - 2] = 0xFF; /* a value that is not UTF-8 */
    REQUIRE(!load_map(map, SIZE));
    fill_map(map);
    put_u32(map, 0);
    REQUIRE(!load_map(map, SIZE));
}

/* Each unit spoiled in turn: whatever is answered lies in the map. */
static void units_that_point_anywhere_are_harmless(void **state)
{
    static const uint32_t spoilt[] = {0xFFFFFFFF, 0x7FFFFFFF, 0x800001FF, 0x300, 0xFFFFFF61};
    unsigned char map[SIZE];

    (void)state;
    for (size_t i = 0; i < N_OF(units) * N_OF(spoilt); i++) {
        fill_map(map);
        put_u32(map + 4 + 4 * units[i % N_OF(units)][0], spoilt[i / N_OF(units)]);
        struct tok_charsmap *m = load_map(map, SIZE);
        REQUIRE(m);
        apply(m, "ab" ACUTE COPY ZWJ "\r\n\n");
        tok_charsmap_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clusters_are_replaced_as_a_whole),
        cmocka_unit_test(what_is_no_map_is_refused),
        cmocka_unit_test(units_that_point_anywhere_are_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
