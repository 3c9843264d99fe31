/* SPDX-License-Identifier: MIT */
/* Bodies of forms, cut at every byte, and those that are not well-formed. */
#include "server/http/multipart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

enum { MAX_SEEN = 4096 };

static char seen[MAX_SEEN];
static int stop_at; /* the sink refuses the so-manieth part; 0: none */

static int begin(void *ctx, const char *name, const char *filename)
{
    int *n = ctx;
    snprintf(seen + strlen(seen), MAX_SEEN - strlen(seen), "[%s|%s]", name,
             filename ? filename : "-");
    return ++*n == stop_at ? 7 : 0;
}

static int add(void *ctx, const char *data, size_t n)
{
    (void)ctx;
    REQUIRE(n > 0 && strlen(seen) + n < MAX_SEEN);
    strncat(seen, data, n);
    return 0;
}

/* Reads a body in pieces, the first of `first` bytes, the others of `piece`. */
static int read_body(const char *type, const char *body, size_t n, size_t first, size_t piece,
                     const char **ret_problem)
{
    static struct multipart m;
    int n_parts = 0, rc = 0;
    const struct multipart_sink sink = {begin, add, &n_parts};
    seen[0] = '\0';
    REQUIRE(multipart_init(&m, type, &sink));
    for (size_t at = 0, len = first; at < n && !rc; at += len, len = piece) {
        if (len > n - at) len = n - at;
        char *copy = malloc(len + 1); /* of just its size, for the address sanitizer */
        memcpy(copy, body + at, len);
        rc = multipart_add(&m, copy, len);
        free(copy);
    }
    if (!rc) rc = multipart_end(&m);
    if (ret_problem) *ret_problem = m.problem;
    return rc;
}

static const char type[] = "multipart/form-data; charset=utf-8; boundary=\"a-b'c\"";

static void test_cut_at_every_byte(void **state)
{
    (void)state;
    static const struct {
        const char *body, *want;
    } cases[] = {
        {"--a-b'c\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
         "--a-b'c\r\ncontent-type: x/y\r\nContent-Disposition: form-data; name=file; "
         "filename=\"in put.jsonl\"\r\n\r\n{\"a\":1}\r\n{\"b\":2}\n\r\n--a-b'c--\r\nafter",
         "[purpose|-]batch[file|in put.jsonl]{\"a\":1}\r\n{\"b\":2}\n"},
        /* what looks like a boundary, at each place; an empty part; before the first one */
        {"before\r\n--a-b'\r\n\r\n--a-b'c \t\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"
         "--a-b'x\r\n--a-b'\r\r\n-\r\n--a-b'C\r\r\n--a-b'c\r\n"
         "Content-Disposition: form-data; name=\"b\"\r\n\r\n\r\n--a-b'c\r\n"
         "Content-Disposition: form-data; name=\"c\"\r\n\r\n--a-b'c--",
         "[a|-]--a-b'x\r\n--a-b'\r\r\n-\r\n--a-b'C\r[b|-][c|-]"},
        {"--a-b'c\r\nContent-Disposition: form-data; name=\"f\\\"\\\\\"; filename=\"../x%22\"; "
         "filename*=UTF-8''caf%C3%A9%2\r\n\r\nx\r\n--a-b'c--",
         "[f\"\\|../x%22]x"},
        {"--a-b'c--", ""},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        size_t n = strlen(cases[i].body);
        for (size_t first = 1; first <= n; first++)
            for (size_t piece = 1; piece <= (first % 7 ? 1 : n); piece += 1 + piece / 2) {
                const char *problem = "";
                int rc = read_body(type, cases[i].body, n, first, first % 7 ? n : piece, &problem);
                REQUIRE_MSG(rc == 0, "case %zu, first %zu: %s", i, first, problem);
                REQUIRE_MSG(strcmp(seen, cases[i].want) == 0, "case %zu, first %zu: %s", i, first,
                            seen);
            }
        for (size_t end = 0; end < n; end++) /* a body that is cut short is never whole */
            if (!memmem(cases[i].body, end, "c--", 3))
                REQUIRE_EQ_INT(read_body(type, cases[i].body, end, n, n, NULL), MULTIPART_EINVAL);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static char long_line[MULTIPART_LINE + 200], many[20000] = "";
    snprintf(long_line, sizeof(long_line), "--a-b'c\r\nx: %0*d\r\n\r\n", MULTIPART_LINE, 0);
    for (int i = 0; i <= MULTIPART_PARTS; i++)
        strcat(many, "--a-b'c\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n");
    static char headers[1000] = "--a-b'c\r\n";
    for (int i = 0; i <= MULTIPART_HEADERS; i++)
        strcat(headers, "x: y\r\n");
    const struct {
        const char *body, *problem;
    } cases[] = {
        {"", "the last boundary is missing"},
        {"--a-b'c\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n--a-b'c\r\n",
         "the last boundary is missing"},
        {"--a-b'cd\r\n", "followed by other bytes"},
        {"--a-b'c\r\nContent-Disposition: form-data; filename=a\r\n\r\n", "has no name"},
        {"--a-b'c\r\nContent-Type: a/b\r\n\r\n", "has no name"},
        {"--a-b'c\r\nContent-Disposition: form-data; name=\"a\1\"\r\n\r\n", "control characters"},
        {long_line, "too long"},
        {many, "too many parts"},
        {headers, "too many headers"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        const char *problem = NULL;
        size_t n = strlen(cases[i].body);
        REQUIRE_EQ_INT(read_body(type, cases[i].body, n, n, n, &problem), MULTIPART_EINVAL);
        REQUIRE_MSG(problem && strstr(problem, cases[i].problem), "case %zu: %s", i, problem);
    }
    stop_at = 2;
    REQUIRE_EQ_INT(read_body(type, many, strlen(many), 100, 1, NULL), 7);
    stop_at = 0;
    REQUIRE(strcmp(seen, "[a|-]x[a|-]") == 0);
}

static void test_boundaries(void **state)
{
    (void)state;
    static struct multipart m;
    const struct multipart_sink sink = {begin, add, NULL};
    char text[200];
    static const struct {
        int n;
        bool good;
    } lengths[] = {{1, true}, {70, true}, {71, false}, {0, false}};
    for (size_t i = 0; i < N_OF(lengths); i++) {
        snprintf(text, sizeof(text), "Multipart/Form-Data;boundary=%.*s", lengths[i].n,
                 "0123456789012345678901234567890123456789012345678901234567890123456789X");
        REQUIRE(multipart_init(&m, text, &sink) == lengths[i].good);
    }
    static const char *const bad[] = {"multipart/form-data",
                                      "multipart/mixed; boundary=a",
                                      "multipart/form-data; boundary=\"a",
                                      "multipart/form-data; boundary=a{b",
                                      "multipart/form-data; boundary",
                                      NULL};
    for (size_t i = 0; i < N_OF(bad); i++)
        REQUIRE_MSG(!multipart_init(&m, bad[i], &sink), "%s", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_boundaries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
