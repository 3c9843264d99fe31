/* SPDX-License-Identifier: MIT */
/* A batch's input: what is refused, and the order in which its lines run. */
#include "server/batch/plan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "server/http/endpoint.h"
#include "test.h"

static const struct srv_route routes[] = {{.method = "POST", .path = "/v1/completions"},
                                          {.method = "POST", .path = "/v1/embeddings"},
                                          {0}};
static const struct srv_route *const tables[] = {routes, NULL};

static bool has_model(const struct plan_rules *rules, const char *name)
{
    (void)rules;
    return strcmp(name, "none") != 0;
}

static int open_text(const char *text)
{
    char path[] = "/tmp/hearth-plan-XXXXXX";
    int fd = mkstemp(path);
    REQUIRE(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    unlink(path);
    return fd;
}

static int read_text(struct plan *p, int fd)
{
    const struct plan_rules rules = {.routes = tables,
                                     .url = "/v1/completions",
                                     .max_line_bytes = 20000,
                                     .max_lines = 6,
                                     .max_inputs = 5,
                                     .has_model = has_model};
    return plan_read(p, fd, &rules);
}

#define LINE(id, more, prompt)                                                                     \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{" more    \
    "\"prompt\":\"" prompt "\"}}\n"
#define LONG                                                                                       \
    "This is how a prompt begins that several lines share, and it is longer than 64 bytes: "

static void test_order(void **state)
{
    (void)state;
    static const char text[] =
        "\xef\xbb\xbf" LINE("0", "", LONG "one") "\r\n\n" LINE("1", "\"model\":\"m\",", LONG "one")
            LINE("2", "",
                 "Another prompt, which nothing "
                 "else begins with, is between those two: it comes before or after both of them")
                LINE("3", "", LONG "two") LINE("4", "\"model\":\"m\",", "x");
    struct plan p, again;
    int fd = open_text(text), at[5] = {0};
    AUTO(buf_finish) struct buf line;
    REQUIRE_EQ_INT(read_text(&p, fd), 0);
    REQUIRE_EQ_INT(read_text(&again, fd), 0);
    REQUIRE(p.n_lines == 5 && json_array_size(p.errors) == 0 && !strcmp(p.hash, again.hash));
    buf_init(&line, 20000);
    for (int i = 0; i < 5; i++) {
        char id[40];
        at[p.lines[i].number] = i;
        REQUIRE_EQ_INT(p.lines[i].number, again.lines[i].number);
        REQUIRE_EQ_INT(plan_line_text(&p.lines[i], fd, &line), 0);
        snprintf(id, sizeof(id), "{\"custom_id\":\"%u\"", p.lines[i].number);
        REQUIRE_MSG(!strncmp(line.data, id, strlen(id)) && line.data[line.len - 1] == '}', "%s",
                    line.data);
    }
    REQUIRE_EQ_INT(abs(at[0] - at[3]), 1); /* the same beginning */
    REQUIRE_EQ_INT(abs(at[1] - at[4]), 1); /* the same model */
    plan_finish(&p);
    plan_finish(&again);
    close(fd);
}

static void test_errors(void **state)
{
    (void)state;
    static const char good[] = LINE("a", "", "x");
    static const struct {
        const char *text, *code;
        int line;
    } cases[] = {
        {"", "empty_file", 0},
        {"\n\r\n", "empty_file", 0},
        {LINE("a", "", "x") "{\n", "invalid_json_line", 2},
        {LINE("a", "", "x") "\n" LINE("a", "", "x"), "duplicate_custom_id", 3},
        {LINE("a", "\"model\":\"none\",", "x"), "model_not_found", 1},
        {LINE("a", "\"stream\":true,", "x"), "stream_not_supported", 1},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":{}}",
         "url_mismatch", 1},
        {LINE("a", "\"input\":[\"x\",\"[1,2\"],", "x") LINE("b", "\"input\":[1,2,3],", "x")
             LINE("c", "\"input\":[[1],[2,3],\"x\"],", "x") LINE("d", "\"input\":\"x\",", "x"),
         "too_many_inputs", 3},
        {LINE("a", "", "x") LINE("b", "", "x") LINE("c", "", "x") LINE("d", "", "x")
             LINE("e", "", "x") LINE("f", "", "x") LINE("g", "", "x"),
         "too_many_lines", 0},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct plan p;
        int fd = open_text(cases[i].text);
        REQUIRE_EQ_INT(read_text(&p, fd), 0);
        json_t *error = json_array_get(p.errors, 0);
        const char *code = json_string_value(json_object_get(error, "code"));
        REQUIRE_MSG(code && !strcmp(code, cases[i].code), "%zu: %s", i, code ? code : "no error");
        REQUIRE_EQ_INT(json_integer_value(json_object_get(error, "line")), cases[i].line);
        REQUIRE_EQ_INT(json_array_size(p.errors), 1);
        plan_finish(&p);
        close(fd);
    }
    char *large = malloc(30000); /* a line above the limit, and one after it */
    memset(large, 'x', 25000);
    memcpy(large + 25000, "\n", 1);
    memcpy(large + 25001, good, sizeof(good));
    struct plan p;
    int fd = open_text(large);
    REQUIRE_EQ_INT(read_text(&p, fd), 0);
    REQUIRE_EQ_INT(json_array_size(p.errors), 1);
    REQUIRE(strstr(json_string_value(json_object_get(json_array_get(p.errors, 0), "message")),
                   "20000 bytes"));
    plan_finish(&p);
    close(fd);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
