/* SPDX-License-Identifier: MIT */
/* JSON checked byte by byte is what the reader of base/ takes, and ends where it ends. */
#include "test.h"

#include "base/json_reader.h"
#include "toy_vocab.h"

#include "tokenizer/tools/json_scan.h"

static const char *const pieces[] = {
    "{",   "}",  "[",    "]", ",",     ":",  "\"",   "a",  "\\", "\\u00e9", "1",   "0",     "-",
    "1.5", "e+", "null", " ", "\"a\"", "\n", "true", "0.", ".1", "E3",      "\\n", "\"k\":"};

static bool reader_takes(const char *text, size_t len)
{
    struct jr r;
    char err[200];
    const char *s;
    size_t n;
    jr_init(&r, text, len, JR_NUL, err, sizeof(err));
    bool ok = !jr_skip(&r, &s, &n) && !jr_end(&r);
    jr_finish(&r);
    return ok;
}

/* Takes a text in pieces of `step` bytes; white space may follow a value. */
static bool scan_takes(const char *text, size_t len, size_t step)
{
    struct json_scan s;
    const char *p = text, *end = text + len;
    json_scan_begin(&s);
    while (p < end) {
        const char *stop = end - p < (ptrdiff_t)step ? end : p + step;
        enum json_scan_result rc = json_scan(&s, p, stop, &p);
        if (rc == JSON_SCAN_FAIL) return false;
        if (rc == JSON_SCAN_DONE) break;
    }
    while (p < end && strchr(" \t\r\n", *p))
        p++;
    return p == end && json_scan_complete(&s);
}

static void test_the_same_verdict_as_the_reader(void **state)
{
    (void)state;
    uint64_t seed = 5;
    int n_valid = 0;
    for (int i = 0; i < 200000; i++) {
        char text[200] = "";
        for (uint32_t n = toy_draw(&seed, 8); n < 9; n++)
            strcat(text, pieces[toy_draw(&seed, sizeof(pieces) / sizeof(pieces[0]))]);
        size_t len = strlen(text);
        bool wanted = reader_takes(text, len);
        REQUIRE_MSG(scan_takes(text, len, len + 1) == wanted, "%s", text);
        REQUIRE_MSG(scan_takes(text, len, 1) == wanted, "%s", text);
        n_valid += wanted;
    }
    REQUIRE_MSG(n_valid > 1000, "%d", n_valid);
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * JSON_SCAN_DEPTH + 3];
    memset(text, '[', JSON_SCAN_DEPTH + 1);
    memset(text + JSON_SCAN_DEPTH + 1, ']', JSON_SCAN_DEPTH + 1);
    REQUIRE(!scan_takes(text, 2 * JSON_SCAN_DEPTH + 2, 5));
    REQUIRE(scan_takes(text + 1, 2 * JSON_SCAN_DEPTH, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_verdict_as_the_reader),
        cmocka_unit_test(test_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
