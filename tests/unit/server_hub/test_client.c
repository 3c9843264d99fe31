/* SPDX-License-Identifier: MIT */
/*
 * Requests to the hub: header fields, taken only if they are exactly as expected; redirects, the
 * token, tries, and the sentence for each status.
 */
#include "fake_transfer.h"

#include "server/hub/client.h"

enum { NOW = 1000000000 }; /* Sun, 09 Sep 2001 01:46:40 GMT */

static void content_range(void **state)
{
    static const char *const refused[] = {
        "bytes 10-98/100",  "bytes 9-99/100",   "bytes 10-99/101", "bytes 10-99/*",
        "bytes 10-99/100 ", "bytes=10-99/100",  "bytes */100",     "",
        "bytes 10-99",      "bytes 010-99/100", "items 10-99/100", "bytes 10-99/100, x",
    };
    (void)state;
    REQUIRE(hub_range_is("bytes 10-99/100", 10, 100));
    REQUIRE(
        hub_range_is("bytes 0-4611686018427387902/4611686018427387903", 0, 4611686018427387903));
    for (size_t i = 0; i < N_OF(refused); i++)
        REQUIRE_MSG(!hub_range_is(refused[i], 10, 100), "%s", refused[i]);
}

static void link_next(void **state)
{
    static const struct {
        const char *text, *wanted; /* NULL: none */
    } cases[] = {
        {"<https://h/x?cursor=2>; rel=\"next\"", "https://h/x?cursor=2"},
        {"<https://h/a>; rel=\"prev\", <https://h/b>; rel=\"next\"", "https://h/b"},
        {"<https://h/a,b>; title=\"x, y\"; rel=\"next\"", "https://h/a,b"},
        {"<https://h/a>; rel=next", "https://h/a"},
        {"<https://h/a>; rel=\"prev\"", NULL},
        {"<>; rel=\"next\"", NULL},
        {"https://h/a; rel=\"next\"", NULL},
        {"<https://h/a", NULL},
        {"", NULL},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char url[64] = "";
        int rc = hub_link_next(cases[i].text, url, sizeof(url));
        REQUIRE_MSG((rc == 0) == (cases[i].wanted != NULL), "%s", cases[i].text);
        if (cases[i].wanted) REQUIRE_EQ_STR(url, cases[i].wanted);
    }
    char small[8];
    REQUIRE(hub_link_next("<https://h/long>; rel=\"next\"", small, sizeof(small)) < 0);
}

static void waits(void **state)
{
    (void)state;
    REQUIRE_EQ_INT(hub_retry_after("120", NOW), 120);
    REQUIRE_EQ_INT(hub_retry_after("0", NOW), 0);
    REQUIRE_EQ_INT(hub_retry_after("Sun, 09 Sep 2001 01:47:40 GMT", NOW), 60);
    REQUIRE(hub_retry_after("Sun, 09 Sep 2001 01:45:40 GMT", NOW) <= 0);
    REQUIRE_EQ_INT(hub_retry_after("", NOW), -1);
    REQUIRE_EQ_INT(hub_retry_after("soon", NOW), -1);
    REQUIRE_EQ_INT(hub_retry_after("-5", NOW), -1);
    REQUIRE_EQ_INT(hub_rate_limit("\"api\";r=0;t=55"), 55);
    REQUIRE_EQ_INT(hub_rate_limit("\"api\";r=3;t=55"), -1);
    REQUIRE_EQ_INT(hub_rate_limit("nonsense"), -1);
    REQUIRE_EQ_INT(hub_rate_limit(""), -1);
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct hub_settings settings;
static struct hub_name name = {.repo = "org/x", .revision = "main"};
static atomic_bool stop;
static struct fake_answer script[8];
static char retries[600];

static struct fake_answer next_answer(const char *url, const char *range)
{
    (void)url, (void)range;
    REQUIRE(n_fake_log <= (int)N_OF(script));
    return script[n_fake_log - 1];
}

static void note_retry(void *ctx, const char *reason, int n_try, int wait_ms)
{
    (void)ctx;
    snprintf(retries + strlen(retries), sizeof(retries) - strlen(retries), "%s (%d, %s); ", reason,
             n_try, wait_ms > 0 ? "waits" : "at once");
}

#define SCRIPT(...)                                                                                \
    do {                                                                                           \
        const struct fake_answer answers_[] = {__VA_ARGS__};                                       \
        memset(script, 0, sizeof(script));                                                         \
        memcpy(script, answers_, sizeof(answers_));                                                \
        n_fake_log = 0;                                                                            \
        retries[0] = '\0';                                                                         \
        fake_hub = next_answer;                                                                    \
    } while (0)

static struct hub_client make_client(void)
{
    settings = (struct hub_settings){.endpoint = "https://hub.test",
                                     .first_wait_ms = 2,
                                     .token = "hf_x",
                                     .token_from = "HF_TOKEN"};
    transfer_url_origin(settings.endpoint, &settings.origin);
    struct hub_client c = {
        .settings = &settings, .name = &name, .stop = &stop, .on_retry = note_retry};
    c.transfer = transfer_create(&c.settings->transfer);
    REQUIRE(c.transfer);
    return c;
}

/* GET of an API address; its sentence is in err. */
static char err[HUB_ERR_SIZE];
static struct buf body;
static char next[200];

static int get(struct hub_client *c)
{
    buf_finish(&body);
    buf_init(&body, 100);
    err[0] = '\0';
    return hub_client_get(c, "https://hub.test/api/models/org/x", NULL, &body, next, sizeof(next),
                          err);
}

static void api_answers(void **state)
{
    struct hub_client c = make_client();
    (void)state;
    SCRIPT({200, "Link: <https://hub.test/2>; rel=\"next\"\n", "[1,2,3,4,5,6]", 13, TRANSFER_OK});
    REQUIRE_EQ_INT(get(&c), 0);
    REQUIRE_EQ_INT(body.len, 13);
    REQUIRE_EQ_STR(next, "https://hub.test/2");
    REQUIRE(fake_log[0].with_token && !fake_log[0].range[0]);
    SCRIPT({.status = 307, .headers = "Location: /moved\n", .body = "gone", .len = 4},
           {.status = 200});
    REQUIRE_EQ_INT(get(&c), 0);
    REQUIRE_EQ_STR(fake_log[1].url, "https://hub.test/moved");
    REQUIRE_EQ_INT(body.len, 0);
    REQUIRE_EQ_STR(next, "");
    SCRIPT({.status = 200,
            .body = "012345678901234567890123456789012345678901234567890123456789012345678901234567"
                    "8901234567890123456789x",
            .len = 101});
    REQUIRE_EQ_INT(get(&c), HUB_EWRONG);
    REQUIRE_EQ_STR(err, "an answer of the hub has more than 100 bytes");
    transfer_destroy(c.transfer);
    buf_finish(&body);
}

static void redirects(void **state)
{
    static const struct {
        const char *location, *sentence;
    } cases[] = {
        {"Location: file:///etc/passwd\n", "redirected to file:, which is not followed"},
        {"Location: http://hub.test/x\n", "redirected to http:, which is not followed"},
        {"Location: bad\n", "redirected to an invalid URL"},
        {"Location: https://me@hub.test/\n", "redirected to an invalid URL"},
        {"Location: https://other.test/x\n",
         "the hub sends its API requests to another host (https://other.test)"},
    };
    struct hub_client c = make_client();
    struct fake_answer hop = {.status = 302, .headers = "Location: /x\n"};
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        SCRIPT({.status = 302, .headers = cases[i].location});
        REQUIRE_EQ_INT(get(&c), HUB_EWRONG);
        REQUIRE_MSG(strncmp(err, cases[i].sentence, strlen(cases[i].sentence)) == 0, "%s", err);
        REQUIRE_EQ_INT(n_fake_log, 1);
    }
    SCRIPT(hop, hop, hop, hop, hop, {.status = 200});
    REQUIRE_EQ_INT(get(&c), 0);
    SCRIPT(hop, hop, hop, hop, hop, hop);
    REQUIRE_EQ_INT(get(&c), HUB_ENETWORK);
    REQUIRE_EQ_STR(err, "more than 5 redirects");
    transfer_destroy(c.transfer);
    buf_finish(&body);
}

static bool want(void *ctx, struct transfer *t)
{
    (void)ctx, (void)t;
    return true;
}

static bool take(void *ctx, const char *data, size_t len)
{
    (void)data;
    *(size_t *)ctx += len;
    return true;
}

/* A file may come from another host, which never sees the token. */
static void file_stores(void **state)
{
    struct hub_client c = make_client();
    struct hub_failure f;
    size_t n = 0;
    struct hub_request r = {.url = "https://hub.test/f",
                            .what = "f",
                            .from = 7,
                            .on_head = want,
                            .on_body = take,
                            .ctx = &n};
    (void)state;
    SCRIPT(
        {.status = 302, .headers = "Location: https://store.test/f\n", .body = "moved", .len = 5},
        {.status = 206, .body = "content", .len = 7});
    hub_client_try(&c, &r, &f);
    REQUIRE_EQ_INT(f.rc, 0);
    REQUIRE_EQ_INT(n, 7);
    REQUIRE(fake_log[0].with_token && !fake_log[1].with_token);
    REQUIRE_EQ_STR(fake_log[1].range, "bytes=7-");
    SCRIPT({.status = 302, .headers = "Location: https://store.test/f\n"}, {.status = 403});
    hub_client_try(&c, &r, &f);
    REQUIRE(f.rc == HUB_ENETWORK && f.again);
    REQUIRE_EQ_STR(f.err, "the file store refuses the link (status 403)");
    SCRIPT({.status = 416});
    hub_client_try(&c, &r, &f);
    REQUIRE(f.rc == HUB_ENETWORK && f.again && f.status == 416);
    SCRIPT({.status = 404});
    hub_client_try(&c, &r, &f);
    REQUIRE_EQ_STR(f.err, "the hub lists f, but does not have it");
    transfer_destroy(c.transfer);
}

static void statuses(void **state)
{
    static const struct {
        int status, rc;
        bool no_token;
        const char *headers, *sentence;
    } cases[] = {
        {404, HUB_ENOTFOUND, true, NULL,
         "org/x: no such model on https://hub.test, or a private one (no token was sent)"},
        {401, HUB_ENOTFOUND, true, NULL, "org/x: no such model on"},
        {404, HUB_ENOTFOUND, false, NULL, "or a private one (the token does not open it)"},
        {404, HUB_ENOTFOUND, false, "X-Error-Code: RevisionNotFound\n",
         "org/x has no revision 'main'"},
        {403, HUB_EDENIED, true, "X-Error-Code: GatedRepo\n",
         "org/x is gated: accept its licence at https://hub.test/org/x, then set HF_TOKEN"},
        {403, HUB_EDENIED, false, "X-Error-Code: GatedRepo\n",
         "the account of the token in HF_TOKEN has no access"},
        {401, HUB_EDENIED, false, "X-Error-Message: Invalid credentials in Authorization header\n",
         "the hub does not accept the token in HF_TOKEN"},
        {403, HUB_EDENIED, false, "X-Error-Message: no\x1bway\n",
         "the hub refuses org/x (status 403: no"},
        {418, HUB_EWRONG, false, NULL, "the hub answers with status 418"},
        {501, HUB_EWRONG, false, NULL, "the hub answers with status 501"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct hub_client c = make_client();
        if (cases[i].no_token) settings.token[0] = '\0';
        SCRIPT({.status = cases[i].status, .headers = cases[i].headers});
        REQUIRE_EQ_INT(get(&c), cases[i].rc);
        REQUIRE_MSG(strstr(err, cases[i].sentence) && !strchr(err, '\x1b'), "%d: %s",
                    cases[i].status, err);
        REQUIRE_EQ_INT(n_fake_log, 1);
        transfer_destroy(c.transfer);
    }
    buf_finish(&body);
}

static void tries(void **state)
{
    struct hub_client c = make_client();
    struct fake_answer busy = {.status = 503}, reset = {.end = TRANSFER_BROKEN};
    (void)state;
    SCRIPT(busy, reset, {.status = 200});
    REQUIRE_EQ_INT(get(&c), 0);
    REQUIRE_EQ_STR(retries, "the hub answers with status 503 (2, waits); "
                            "the hub: as scripted (3, waits); ");
    SCRIPT(busy, busy, busy, busy, busy);
    REQUIRE_EQ_INT(get(&c), HUB_ENETWORK);
    REQUIRE_EQ_STR(err, "the hub answers with status 503, 5 tries");
    REQUIRE_EQ_INT(n_fake_log, 5);
    SCRIPT({.status = 429, .headers = "Retry-After: 0\n"}, {.status = 200});
    REQUIRE_EQ_INT(get(&c), 0);
    REQUIRE_EQ_STR(retries, "the hub limits the rate of requests (status 429) (2, at once); ");
    SCRIPT({.status = 429, .headers = "RateLimit: \"api\";r=0;t=3600\n"});
    REQUIRE_EQ_INT(get(&c), HUB_ENETWORK);
    REQUIRE_EQ_STR(err, "the hub asks to come back in 60 min");
    SCRIPT({.status = 503, .headers = "Retry-After: 61\n"});
    REQUIRE_EQ_INT(get(&c), HUB_ENETWORK);
    REQUIRE_EQ_STR(err, "the hub asks to come back in 61 s");
    SCRIPT({.end = TRANSFER_UNTRUSTED});
    REQUIRE_EQ_INT(get(&c), HUB_ENETWORK);
    REQUIRE_EQ_STR(err, "the hub's certificate is not trusted: as scripted");
    SCRIPT({.end = TRANSFER_STOPPED});
    REQUIRE_EQ_INT(get(&c), HUB_ESTOPPED);
    c.brief = true;
    SCRIPT({.end = TRANSFER_UNREACHED});
    REQUIRE_EQ_INT(get(&c), HUB_ENETWORK);
    REQUIRE_EQ_STR(err, "the hub cannot be reached: as scripted");
    transfer_destroy(c.transfer);
    buf_finish(&body);
}

/* 64 KiB further than any try before begin the count anew; bytes that came before do not. */
static void progress_counts(void **state)
{
    struct hub_client c = make_client();
    struct hub_tries t = {.best = 100};
    struct hub_failure f = {.rc = HUB_ENETWORK, .again = true, .retry_after_s = 0};
    (void)state;
    for (int i = 0; i < 4; i++)
        REQUIRE_EQ_INT(hub_client_wait(&c, &t, 100, &f), 0);
    REQUIRE_EQ_INT(t.n, 4);
    REQUIRE_EQ_INT(hub_client_wait(&c, &t, 100 + (64 << 10), &f), 0);
    REQUIRE_EQ_INT(t.n, 1);
    REQUIRE_EQ_INT(hub_client_wait(&c, &t, 100, &f), 0);
    REQUIRE_EQ_INT(t.n, 2);
    atomic_store(&stop, true);
    REQUIRE_EQ_INT(hub_client_wait(&c, &t, 100, &f), HUB_ESTOPPED);
    atomic_store(&stop, false);
    transfer_destroy(c.transfer);
}

static void urls(void **state)
{
    struct hub_client c = make_client();
    char url[100];
    (void)state;
    REQUIRE_EQ_INT(hub_client_url(&c, url, sizeof(url), "/api/", "/r/", "refs/pr 1", true), 0);
    REQUIRE_EQ_STR(url, "https://hub.test/api/org/x/r/refs%2Fpr%201");
    REQUIRE_EQ_INT(hub_client_url(&c, url, sizeof(url), "/", "/f/", "a/\xc3\xa4?", false), 0);
    REQUIRE_EQ_STR(url, "https://hub.test/org/x/f/a/%C3%A4%3F");
    REQUIRE_EQ_INT(hub_client_url(&c, url, 30, "/", "/f/", "abcdefghijk", false), -1);
    transfer_destroy(c.transfer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_range),   cmocka_unit_test(link_next),
        cmocka_unit_test(waits),           cmocka_unit_test(api_answers),
        cmocka_unit_test(redirects),       cmocka_unit_test(file_stores),
        cmocka_unit_test(statuses),        cmocka_unit_test(tries),
        cmocka_unit_test(progress_counts), cmocka_unit_test(urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
