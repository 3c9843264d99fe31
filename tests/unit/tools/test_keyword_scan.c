/* SPDX-License-Identifier: MIT */
/* Keyword arguments as JSON: whole and in pieces, with what comes of texts that are cut or
 * wrong, and JSON whatever the bytes are. */
#include "test.h"

#include "base/buf.h"
#include "toy_vocab.h"

#include "tokenizer/tools/keyword_scan.h"

static void add(void *ctx, const char *text, size_t len)
{
    REQUIRE(len > 0);
    buf_add(ctx, text, len);
}

/* Takes a text in pieces; JSON goes to `out`. Returns the bytes taken, negative if it failed. */
static int scan(const char *form, const char *text, size_t len, size_t step, struct buf *out,
                bool *done)
{
    struct keyword_scan s;
    const char *p = text, *end = text + len;
    enum json_scan_result rc = JSON_SCAN_MORE;
    buf_init(out, 1 << 16);
    keyword_scan_begin(&s, form, add, out);
    while (p < end && rc == JSON_SCAN_MORE) {
        const char *stop = end - p < (ptrdiff_t)step ? end : p + step;
        rc = keyword_scan(&s, p, stop, &p);
    }
    buf_add(out, "", 1);
    *done = rc == JSON_SCAN_DONE;
    return rc == JSON_SCAN_FAIL ? -1 : (int)(p - text);
}

struct row {
    const char *text, *json;
    int taken; /* -1: it fails */
    bool done;
};

static void check_rows(const char *form, const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t step = 1; step < 50; step += 3) {
            struct buf out;
            bool done;
            int taken = scan(form, rows[i].text, strlen(rows[i].text), step, &out, &done);
            REQUIRE_MSG(taken == rows[i].taken, "%s: %d", rows[i].text, taken);
            REQUIRE_EQ_INT(done, rows[i].done);
            if (rows[i].json) REQUIRE_EQ_STR(out.data, rows[i].json);
            buf_finish(&out);
        }
}

static void test_python(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {")x", "{}", 1, true},
        {"a=1)", "{\"a\": 1}", 4, true},
        {"a=-0.5e+3,b-c='\"',)", "{\"a\": -0.5e+3, \"b-c\": \"\\\"\"}", 19, true},
        {"a=[True,{},{'k':None,},],b={\"k\":[]})",
         "{\"a\": [true, {}, {\"k\": null}], \"b\": {\"k\": []}}", 36, true},
        {"a='\\'\\\"\\x0a\\u20AC\\q\\\n\x01')", "{\"a\": \"'\\\"\\u000a\\u20AC\\\\q\\u0001\"}", 24,
         true},
        {"a='\xc3\xa9', b=\"\xf0\x9f\x98\x80", "{\"a\": \"\xc3\xa9\", \"b\": \"\xf0\x9f\x98\x80",
         15, false},
        {"a='\xf0\x9f", "{\"a\": \"", 5, false},
        {"a=1, b=fal", "{\"a\": 1, \"b\": ", 10, false},
        {"a 1)", NULL, -1, false},
        {"a=)", NULL, -1, false},
        {"a=1 b=2)", NULL, -1, false},
        {"a=[1,,2])", NULL, -1, false},
        {"a={1: 2})", NULL, -1, false},
        {"a={'k' 2})", NULL, -1, false},
        {"a=[1)", NULL, -1, false},
        {"a=(1,))", NULL, -1, false},
        {"a=Non)", NULL, -1, false},
        {"a=1.)", NULL, -1, false},
        {"a='\\u12g4')", NULL, -1, false},
        {"a(", NULL, -1, false},
        {",a=1)", NULL, -1, false},
        {"a=<|\"|>)", NULL, -1, false},
        {"a={b:1})", NULL, -1, false},
        {"'a'=1)", NULL, -1, false},
    };
    check_rows(NULL, rows, sizeof(rows) / sizeof(rows[0]));
}

static void test_gemma(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"}x", "{}", 1, true},
        {"a:1}", "{\"a\": 1}", 4, true},
        {"a:<|\"|>x \"y\" \\n\n<|<|\"<|\"|>,b-c:[<|\"|><|\"|>,-1.5e3],}",
         "{\"a\": \"x \\\"y\\\" \\\\n\\n<|<|\\\"\", \"b-c\": [\"\", -1.5e3]}", 52, true},
        {"a:{b:true,<|\"|>c d<|\"|>:{},\"e\": null , f :False},g:None,h:\"i\\u0041\"}",
         "{\"a\": {\"b\": true, \"c d\": {}, \"e\": null, \"f\": false}, \"g\": null, \"h\": "
         "\"i\\u0041\"}",
         68, true},
        {"a:<|\"|>\xf0\x9f", "{\"a\": \"", 9, false},
        {"a:<|\"|>x<|\"", "{\"a\": \"x", 11, false},
        {"a:<|\"", "{\"a\": \"", 5, false},
        {"a=1}", NULL, -1, false},
        {"a:1)", NULL, -1, false},
        {"a:x}", NULL, -1, false},
        {"a:<escape>}", NULL, -1, false},
        {"a:{b}}", NULL, -1, false},
        {"a:[b:1]}", NULL, -1, false},
        {"a:[1}", NULL, -1, false},
        {"a:1,,b:2}", NULL, -1, false},
        {":1}", NULL, -1, false},
    };
    static const struct row other[] = {
        {"a:<escape>x<esc<escape>}", "{\"a\": \"x<esc\"}", 24, true},
        {"a:<|\"|>x<|\"|>}", NULL, -1, false},
    };
    check_rows("<|\"|>", rows, sizeof(rows) / sizeof(rows[0]));
    check_rows("<escape>", other, sizeof(other) / sizeof(other[0]));
}

static const char *const pieces[] = {
    "a",    "=",  "1",    "-",    ",",  "'x'",  "\"",   "[",      "]",      "{",    "}",
    "'k':", ")",  " ",    "\n",   "\\", "'",    "True", "None",   ".5",     "null", "e3",
    "\\u",  "ab", "\xc3", "\xa9", ":",  "\x02", "<|",   "<|\"|>", "<|\"|>", "b:",   "}"};

/* What was complete is JSON, and the same however it was cut. */
static void test_random_texts(void **state)
{
    (void)state;
    uint64_t seed = 11;
    int n_done = 0;
    for (int i = 0; i < 200000; i++) {
        bool gemma = i % 2;
        const char *form = gemma ? "<|\"|>" : NULL;
        char text[200] = "";
        strcat(text, gemma ? "a:" : "a=");
        for (uint32_t n = toy_draw(&seed, 8); n < 10; n++)
            strcat(text, pieces[toy_draw(&seed, sizeof(pieces) / sizeof(pieces[0]))]);
        strcat(text, gemma ? "}" : ")");
        struct buf whole, bytes;
        bool done, bytes_done;
        int taken = scan(form, text, strlen(text), strlen(text), &whole, &done);
        REQUIRE_EQ_INT(scan(form, text, strlen(text), 1, &bytes, &bytes_done), taken);
        REQUIRE_EQ_STR(bytes.data, whole.data);
        struct json_scan json;
        const char *p;
        json_scan_begin(&json);
        if (done)
            REQUIRE_MSG(json_scan(&json, whole.data, whole.data + whole.len - 1, &p) ==
                            JSON_SCAN_DONE,
                        "%s", whole.data);
        else
            REQUIRE(json_scan(&json, whole.data, whole.data + whole.len - 1, &p) == JSON_SCAN_MORE);
        n_done += done;
        buf_finish(&whole);
        buf_finish(&bytes);
    }
    REQUIRE_MSG(n_done > 1000, "%d", n_done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_python),
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_random_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
