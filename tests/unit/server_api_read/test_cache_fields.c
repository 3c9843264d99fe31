/* SPDX-License-Identifier: MIT */
/* Fields of the prefix cache, and texts and breakpoints of a body found again in its prompt. Linked with
 * --wrap=tok_token_bytes: every token is one byte. */
#include "server/api/read/cache_fields.h"

#include "open_request.h"
#include "tokenizer/tokenizer.h"

#define MARK "\"cache_control\":{\"type\":\"ephemeral\"}"
#define HOUR "\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}"

size_t __wrap_tok_token_bytes(const struct tok *t, int32_t id, char *buf, size_t size);

size_t __wrap_tok_token_bytes(const struct tok *t, int32_t id, char *buf, size_t size)
{
    (void)t, (void)id, (void)buf, (void)size;
    return 1;
}

struct reading {
    struct srv_request *req;
    struct srv_body body;
    struct srv_gen_params params;
    struct srv_cache_fields cache;
    int rc;
};

/* In place, since the fields point to the body. */
static void read_cache(struct reading *r, const char *text, bool reports)
{
    *r = (struct reading){.req = open_request(),
                          .params = {.cache_prompt = true, .return_cache_report = reports}};
    REQUIRE(!srv_body_read(&r->body, text, strlen(text), PARAM_MAX_VALUES));
    r->rc = srv_cache_fields_read(&r->cache, r->req, &r->body, &r->params);
}

static void finish(struct reading *r)
{
    srv_body_finish(&r->body);
    close_request(r->req);
}

static void test_fields(void **state)
{
    static const struct {
        const char *body;
        const char *path; /* of an error */
        bool marked, caches;
    } cases[] = {
        {"{}", NULL, false, true},
        {"{\"prompt_cache_retention\":\"24h\",\"prompt_cache_options\":null}", NULL, false, true},
        {"{\"prompt_cache_retention\":\"in-memory\"}", NULL, false, true},
        {"{\"prompt_cache_retention\":\"1h\"}", "prompt_cache_retention", false, true},
        {"{\"prompt_cache_retention\":5}", "prompt_cache_retention", false, true},
        {"{\"prompt_cache_options\":5}", "prompt_cache_options", false, true},
        {"{\"prompt_cache_options\":{\"mode\":\"never\"}}", "prompt_cache_options.mode", false,
         true},
        {"{\"prompt_cache_options\":{\"ttl\":\"1h\"}}", "prompt_cache_options.ttl", false, true},
        {"{\"prompt_cache_options\":{\"mode\":\"implicit\",\"ttl\":\"30m\"}}", NULL, false, true},
        {"{\"prompt_cache_options\":{\"mode\":\"explicit\"}}", NULL, false, false},
        {"{\"prompt_cache_options\":{\"mode\":\"explicit\"},\"messages\":[{" MARK "}]}", NULL, true,
         true},
        {"{\"messages\":[{\"content\":[{\"prompt_cache_breakpoint\":{}}]}]}", NULL, true, true},
        {"{\"messages\":[{\"cache_control\":null}]}", NULL, false, true},
        {"{\"tools\":[{},{" MARK "}]}", NULL, true, true},
        {"{" MARK "}", NULL, true, true},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct reading r;
        read_cache(&r, cases[i].body, false);
        REQUIRE_MSG((r.rc < 0) == (cases[i].path != NULL), "%s: %s", cases[i].body,
                    param_error.message);
        if (r.rc) REQUIRE_EQ_STR(param_error.path, cases[i].path);
        REQUIRE_MSG(r.cache.has_breakpoints == cases[i].marked &&
                        r.params.cache_prompt == cases[i].caches,
                    "%s", cases[i].body);
        finish(&r);
    }
}

/* How long pages are wanted, and whether they go to disk. */
static void test_wishes(void **state)
{
    static const struct {
        const char *body;
        enum eng_kv_disk_use disk;
        bool keeps_all;
        int seconds;
    } cases[] = {
        {"{}", ENG_DISK_LONG, false, 300},
        {"{" MARK "}", ENG_DISK_LONG, false, 300},
        {"{\"prompt_cache_retention\":\"24h\"}", ENG_DISK_DAY, false, 300},
        {"{\"prompt_cache_retention\":\"in_memory\"}", ENG_DISK_NEVER, false, 300},
        {"{\"prompt_cache_retention\":\"in-memory\"}", ENG_DISK_NEVER, false, 300},
        {"{\"prompt_cache_retention\":null}", ENG_DISK_LONG, false, 300},
        {"{\"prompt_cache_options\":{\"ttl\":\"30m\"}}", ENG_DISK_LONG, true, 1800},
        {"{\"prompt_cache_options\":{\"ttl\":\"30m\",\"mode\":\"implicit\"}}", ENG_DISK_LONG, true,
         1800},
        {"{\"prompt_cache_options\":{\"ttl\":\"30m\",\"mode\":\"explicit\"}}", ENG_DISK_LONG, false,
         300},
        {"{\"messages\":[{\"content\":[{\"prompt_cache_breakpoint\":{}}]}]}", ENG_DISK_LONG, false,
         1800},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct reading r;
        read_cache(&r, cases[i].body, false);
        REQUIRE_MSG(r.rc == 0 && r.cache.disk == cases[i].disk &&
                        r.cache.keeps_all == cases[i].keeps_all &&
                        r.cache.marked_seconds == cases[i].seconds,
                    "%s", cases[i].body);
        finish(&r);
    }
}

static void test_reports_are_asked_for(void **state)
{
    static const struct {
        bool field;
        const char *beta;
        bool reports;
    } cases[] = {
        {false, NULL, false},
        {true, NULL, true},
        {false, "x,cache-diagnosis-2026-04-07", true},
        {false, "x", false},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct reading r;
        read_cache(&r, "{}", cases[i].field);
        if (cases[i].beta) {
            const char *beta = cases[i].beta;
            REQUIRE(srv_request_add_header(r.req, "anthropic-beta", 14, beta, strlen(beta)));
            REQUIRE(!srv_cache_fields_read(&r.cache, r.req, &r.body, &r.params));
        }
        REQUIRE(r.cache.reports == cases[i].reports);
        finish(&r);
    }
}

/* The prompt is <system text><user text>, each with its input range; a token is a byte. */
static void test_places(void **state)
{
    static const struct {
        const char *body;
        int64_t marked, hour;
        int n_parts, n_front;
        const char *path; /* of the last part */
        size_t begin, end, skipped;
    } cases[] = {
        {"{\"system\":\"first words\",\"messages\":[{\"role\":\"user\",\"content\":\"second "
         "words\"}]}",
         0, 0, 2, 1, "messages[0].content", 13, 25, 0},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"first "
         "words\"},{\"content\":[{\"text\":\"  second words "
         "\"}]}]}",
         0, 0, 2, 1, "messages[1].content[0]", 13, 25, 2},
        {"{\"system\":[{\"text\":\"first words\"," MARK
         "}],\"messages\":[{\"content\":\"second words\"}]}",
         12, 0, 2, 1, "messages[0].content", 13, 25, 0},
        {"{\"system\":[{\"text\":\"first words\"," HOUR
         "}],\"messages\":[{\"content\":[{\"text\":\"second words\"," MARK "}]}]}",
         25, 12, 2, 1, "messages[0].content[0]", 13, 25, 0},
        {"{\"system\":\"not there\",\"messages\":[{\"content\":\"second words\"}]}", 0, 0, 1, 0,
         "messages[0].content", 13, 25, 0},
        {"{\"tools\":[{" MARK "}],\"messages\":[{\"content\":\"second words\"}]}", 13, 0, 1, 0,
         "messages[0].content", 13, 25, 0},
        {"{\"input\":[{\"role\":\"developer\",\"content\":\"first words\"}]}", 0, 0, 1, 1,
         "input[0].content", 1, 12, 0},
        {"{\"input\":[{\"role\":\"developer\",\"content\":\"first words\"},"
         "{\"role\":\"system\",\"content\":\"second words\"}]}",
         0, 0, 2, 2, "input[1].content", 13, 25, 0},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"first words\"},"
         "{\"role\":\"system\",\"content\":\"second words\"}]}",
         0, 0, 2, 0, "messages[1].content", 13, 25, 0},
        {"{\"prompt\":\"second words\"}", 0, 0, 1, 0, "prompt", 13, 25, 0},
        /* a text of metadata lines alone, and blanks that are taken off with them */
        {"{\"system\":\"x-anthropic-a: b\\n\",\"messages\":[{\"content\":\"second words\"}]}", 0, 0,
         1, 0, "messages[0].content", 13, 25, 0},
        {"{\"system\":\"x-anthropic-a: b\\n\\n  \\n\",\"messages\":[{\"content\":\"second "
         "words\"}]}",
         0, 0, 1, 0, "messages[0].content", 13, 25, 0},
    };
    static char text[] = "<first words>second words|";
    static struct tok_range input[] = {{1, 12}, {13, 25}};
    static const int32_t ids[26];
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct reading r;
        read_cache(&r, cases[i].body, true);
        const struct tok_prompt prompt = {text, strlen(text), input, N_OF(input)};
        REQUIRE_MSG(r.rc == 0, "%s", param_error.message);
        REQUIRE_EQ_INT(srv_cache_fields_place(&r.cache, r.req, &prompt, ids, N_OF(ids)), 0);
        REQUIRE_MSG(r.cache.n_marked == cases[i].marked && r.cache.n_marked_hour == cases[i].hour,
                    "%zu: %d, %d", i, (int)r.cache.n_marked, (int)r.cache.n_marked_hour);
        REQUIRE_MSG(r.cache.n_parts == cases[i].n_parts && r.cache.n_front == cases[i].n_front,
                    "%zu: %d, %d", i, r.cache.n_parts, r.cache.n_front);
        const struct cache_part *part = &r.cache.parts[r.cache.n_parts - 1];
        REQUIRE_EQ_STR(part->path, cases[i].path);
        REQUIRE_EQ_INT(part->begin, cases[i].begin);
        REQUIRE_EQ_INT(part->end, cases[i].end);
        REQUIRE_EQ_INT(part->skipped, cases[i].skipped);
        finish(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_wishes),
        cmocka_unit_test(test_reports_are_asked_for),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
