/* SPDX-License-Identifier: MIT */
/* Bodies of forms, cut at every byte, and those that are not well-formed. */
#include "server/http/multipart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

enum { MAX_SEEN = 4096 };

static char seen[MAX_SEEN];

static void note(const struct multipart *m, enum multipart_event event)
{
    size_t n = strlen(seen);
    if (event == MULTIPART_PART) {
        snprintf(seen + n, MAX_SEEN - n, "[%s|%s]", m->name, m->filename ? m->filename : "-");
    } else if (m->name) {
        REQUIRE(m->n_data > 0 && n + m->n_data < MAX_SEEN);
        strncat(seen, m->data, m->n_data);
    }
}

/* Reads a body in pieces, the first of `first` bytes, the others of `piece`. Returns the last event,
 * and the problem. */
static enum multipart_event read_body(const char *type, const char *body, size_t n, size_t first,
                                      size_t piece, const char **ret_problem)
{
    static struct multipart m;
    enum multipart_event event = MULTIPART_MORE;
    seen[0] = '\0';
    REQUIRE(multipart_init(&m, type));
    for (size_t at = 0, end = first; event != MULTIPART_EINVAL && at < n; end += piece) {
        size_t len = end < n ? end - at : n - at, used = 0;
        char *copy = malloc(len + 1); /* with no byte after it, for the address sanitizer */
        memcpy(copy + 1, body + at, len);
        while ((event = multipart_next(&m, copy + 1, len, &used)) > MULTIPART_END &&
               event != MULTIPART_EINVAL)
            note(&m, event);
        REQUIRE(used <= len && (event != MULTIPART_MORE || len - used <= MULTIPART_HEAD));
        free(copy);
        at += used;
        if (end >= n) break;
    }
    REQUIRE((event == MULTIPART_END) == (m.state == MULTIPART_ENDED));
    if (ret_problem) *ret_problem = m.problem;
    return event;
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
        /* as .NET writes them */
        {"--a-b'c\r\nContent-Disposition: form-data; name=file; filename=in.jsonl; "
         "filename*=utf-8''in.jsonl\r\n\r\nx\r\n--a-b'c--\r\n",
         "[file|in.jsonl]x"},
        {"--a-b'c--", ""},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        size_t n = strlen(cases[i].body);
        for (size_t first = 1; first <= n; first++)
            for (size_t piece = 1; piece <= (first % 7 ? 1 : n); piece += 1 + piece / 2) {
                const char *problem = "";
                enum multipart_event end =
                    read_body(type, cases[i].body, n, first, first % 7 ? n : piece, &problem);
                REQUIRE_MSG(end == MULTIPART_END, "case %zu, first %zu: %s", i, first, problem);
                REQUIRE_MSG(strcmp(seen, cases[i].want) == 0, "case %zu, first %zu: %s", i, first,
                            seen);
            }
        for (size_t end = 0; end < n; end++) /* a body that is cut short is never whole */
            if (!memmem(cases[i].body, end, "c--", 3))
                REQUIRE_EQ_INT(read_body(type, cases[i].body, end, n, n, NULL), MULTIPART_MORE);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static char long_head[MULTIPART_HEAD + 200], many[20000] = "";
    snprintf(long_head, sizeof(long_head), "--a-b'c\r\nx: %0*d", MULTIPART_HEAD, 0);
    for (int i = 0; i <= MULTIPART_PARTS; i++)
        strcat(many, "--a-b'c\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n");
    const struct {
        const char *body, *problem;
    } cases[] = {
        {"--a-b'cd\r\n\r\n", "followed by other bytes"},
        {"--a-b'c\r\nContent-Disposition: form-data; filename=a\r\n\r\n", "has no name"},
        {"--a-b'c\r\nContent-Disposition: form-data; name=\"a\r\n\r\n", "has no name"},
        {"--a-b'c\r\nContent-Type: a/b\r\n\r\n", "has no name"},
        {"--a-b'c\r\n\r\n", "has no name"},
        {"--a-b'c\r\nContent-Disposition: form-data; name=\"a\1\"\r\n\r\n", "control characters"},
        {"--a-b'c\r\nContent-Disposition: form-data; name=\"a\rb\"\r\n\r\n", "control characters"},
        {long_head, "too long"},
        {many, "too many parts"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        const char *problem = NULL;
        size_t n = strlen(cases[i].body);
        for (size_t piece = 1; piece <= n; piece += n - 1) {
            REQUIRE_EQ_INT(read_body(type, cases[i].body, n, piece, piece, &problem),
                           MULTIPART_EINVAL);
            REQUIRE_MSG(problem && strstr(problem, cases[i].problem), "case %zu: %s", i, problem);
        }
    }
    static const char with_nul[] =
        "--a-b'c\r\nContent-Disposition: form-data; name=\"a\0\"\r\n\r\n";
    REQUIRE_EQ_INT(read_body(type, with_nul, sizeof(with_nul) - 1, 99, 99, NULL), MULTIPART_EINVAL);
}

static void test_boundaries(void **state)
{
    (void)state;
    static struct multipart m;
    char text[200];
    static const struct {
        int n;
        bool good;
    } lengths[] = {{1, true}, {70, true}, {71, false}, {0, false}};
    for (size_t i = 0; i < N_OF(lengths); i++) {
        snprintf(text, sizeof(text), "Multipart/Form-Data;boundary=%.*s", lengths[i].n,
                 "0123456789012345678901234567890123456789012345678901234567890123456789X");
        REQUIRE(multipart_init(&m, text) == lengths[i].good);
    }
    static const char *const bad[] = {"multipart/form-data", "multipart/mixed; boundary=a",
                                      "multipart/form-data; boundary=\"a",
                                      "multipart/form-data; boundary", NULL};
    for (size_t i = 0; i < N_OF(bad); i++)
        REQUIRE_MSG(!multipart_init(&m, bad[i]), "%s", bad[i]);
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
