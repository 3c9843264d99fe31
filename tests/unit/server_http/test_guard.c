/* SPDX-License-Identifier: MIT */
/*
 * First touch: every rule with what it refuses and what it lets through. Keys, digests, routes,
 * watchdog.
 */
#include "test.h"

#include <unistd.h>

#include "base/sha256.h"
#include "server/http/endpoint.h"
#include "server/http/guard.h"
#include "server/http/keys.h"
#include "server/http/request.h"
#include "server/watchdog.h"

/* Builds a head from "Name: value\n..." lines; the copies live until the next call. */
static struct srv_guard_head head_of(const char *method, const char *target, const char *lines)
{
    static char text[2048];
    struct srv_guard_head h = {.method = method, .version = "HTTP/1.1", .target = target};
    snprintf(text, sizeof(text), "%s", lines);
    for (char *line = text; *line;) {
        char *end = line + strcspn(line, "\n");
        bool last = !*end;
        *end = '\0';
        char *colon = strchr(line, ':');
        size_t name_len = (size_t)(colon - line);
        char *value = colon + 1;
        value += *value == ' ';
        *colon = '\0';
        srv_guard_add_header(&h, line, name_len, value, strlen(value));
        line = last ? end : end + 1;
    }
    return h;
}

static void framing(void **state)
{
    static const struct {
        const char *lines;
        int status; /* 0: let through */
        int64_t body_bytes;
    } cases[] = {
        {"Host: a", 0, 0},
        {"Host: a\nContent-Length: 5", 0, 5},
        {"Host: a\nTransfer-Encoding: chunked", 0, -1},
        {"Host: a\ntransfer-encoding: Chunked", 0, -1},
        {"Host: a\nContent-Length: 5\nTransfer-Encoding: chunked", 400, 0},
        {"Host: a\nContent-Length: 5\nContent-Length: 5", 400, 0},
        {"Host: a\nContent-Length: 5, 5", 400, 0},
        {"Host: a\nContent-Length: +5", 400, 0},
        {"Host: a\nContent-Length: -5", 400, 0},
        {"Host: a\nContent-Length: 0x5", 400, 0},
        {"Host: a\nContent-Length:", 400, 0},
        {"Host: a\nContent-Length: 999999999999999999", 0, 999999999999999999},
        {"Host: a\nContent-Length: 1000000000000000000", 413, 0},
        {"Host: a\nTransfer-Encoding: gzip", 400, 0},
        {"Host: a\nTransfer-Encoding: gzip, chunked", 400, 0},
        {"Host: a\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked", 400, 0},
        {"Host: a\nTransfer-Encoding : chunked", 400, 0},
        {"Host: a\nX\tY: z", 400, 0},
        {"Host: a\nX: a\x01"
         "b",
         400, 0},
        {"X: y", 400, 0},
        {"Host: a\nHost: a", 400, 0},
        {"Host: a b", 400, 0},
        {"Host: a/b", 400, 0},
        {"Host: u@a", 400, 0},
        {"Host: [::1]:80", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_guard_head h = head_of("POST", "/", cases[i].lines);
        struct srv_guard_verdict v = {0};
        srv_guard_framing(&h, &v);
        int status = v.refused ? srv_errors[v.kind].status : 0;
        REQUIRE_MSG(status == cases[i].status, "%s: %d %s", cases[i].lines, status, v.message);
        if (!status) REQUIRE_EQ_INT(h.body_bytes, cases[i].body_bytes);
    }
    struct srv_guard_head old = head_of("GET", "/", "X: y");
    struct srv_guard_verdict v = {0};
    old.version = "HTTP/1.0";
    srv_guard_framing(&old, &v);
    REQUIRE(!v.refused);
    old = head_of("POST", "/", "Transfer-Encoding: chunked");
    old.version = "HTTP/1.0";
    srv_guard_framing(&old, &v);
    REQUIRE(v.refused);
}

static void targets(void **state)
{
    static const struct {
        const char *target;
        bool good;
    } cases[] = {
        {"/", true},         {"/a%20b", true}, {"*", true},        {"http://h/a", true},
        {"HTTPS://h", true}, {"/%00", false},  {"/%0", false},     {"/%zz", false},
        {"/%", false},       {"a", false},     {"", false},        {"/a b", false},
        {"/a\x7f", false},   {"/a#b", false},  {"ftp://x", false},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        REQUIRE_MSG(srv_guard_target_is_good(cases[i].target) == cases[i].good, "%s",
                    cases[i].target);
    }
}

static void hosts(void **state)
{
    const char *names[] = {"example.org"}, *any[] = {"*"};
    const struct srv_list one = {names, 1}, all = {any, 1}, none = {0};
    const struct {
        const char *host;
        bool only_loopback;
        const struct srv_list *allowed;
        bool good;
    } cases[] = {
        {"localhost:8080", true, &none, true},
        {"LOCALHOST", true, &none, true},
        {"127.0.0.1:1", true, &none, true},
        {"127.1.2.3", true, &none, true},
        {"[::1]:8080", true, &none, true},
        {"app.localhost", true, &none, true},
        {"localhost.", true, &none, true},
        {"evil.example", true, &none, false},
        {"localhost.evil.example", true, &none, false},
        {"127.0.0.1.evil.example", true, &none, false},
        {"", true, &none, false},
        {".localhost", true, &none, false},
        {"evil.example", false, &none, true},
        {"evil.example", true, &all, true},
        {"example.org:99", true, &one, true},
        {"Example.ORG", false, &one, true},
        {"localhost", false, &one, false},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char line[100];
        snprintf(line, sizeof(line), "Host: %s", cases[i].host);
        struct srv_guard_head h = head_of("GET", "/", line);
        struct srv_guard_rules rules = {.allowed_hosts = cases[i].allowed,
                                        .only_loopback_hosts = cases[i].only_loopback};
        struct srv_guard_verdict v = {0};
        srv_guard_host(&h, &rules, &v);
        REQUIRE_MSG(v.refused != cases[i].good, "%s (%zu)", cases[i].host, i);
    }
}

static void bodies(void **state)
{
    const struct srv_guard_rules rules = {.max_body_bytes = 100};
    static const struct {
        const char *lines;
        int status;
    } cases[] = {
        {"Content-Length: 100", 0},
        {"Content-Length: 101", 413},
        {"Content-Length: 5\nContent-Type: application/json", 0},
        {"Content-Length: 5\nContent-Type: Application/JSON ; charset=utf-8", 0},
        {"Content-Length: 5\nContent-Type: application/problem+json", 0},
        {"Content-Length: 5\nContent-Type: text/plain", 415},
        {"Content-Length: 5\nContent-Type: application/jsonx", 415},
        {"Content-Length: 5\nContent-Type: application/x-www-form-urlencoded", 415},
        {"Content-Length: 0\nContent-Type: text/plain", 0},
        {"Transfer-Encoding: chunked\nContent-Type: text/plain", 415},
        {"Content-Length: 5\nContent-Encoding: gzip", 415},
        {"Content-Length: 5\nContent-Encoding: identity", 0},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_guard_head h = head_of("POST", "/", cases[i].lines);
        struct srv_guard_verdict v = {0};
        h.host = "a";
        h.n_hosts = 1;
        srv_guard_framing(&h, &v);
        REQUIRE(!v.refused);
        srv_guard_body(&h, &rules, &v);
        int status = v.refused ? srv_errors[v.kind].status : 0;
        REQUIRE_MSG(status == cases[i].status, "%s: %d %s", cases[i].lines, status, v.message);
    }
}

static void origins(void **state)
{
    const char *named[] = {"https://good.example"};
    const struct srv_list cors = {named, 1};
    const struct srv_guard_rules rules = {.cors_origins = &cors};
    static const struct {
        const char *lines;
        bool refused;
    } cases[] = {
        {"Host: a:8080", false},
        {"Host: a:8080\nOrigin: http://a:8080", false},
        {"Host: a:8080\nOrigin: HTTP://A:8080", false},
        {"Host: a\nOrigin: https://a", false}, /* behind a proxy that serves HTTPS */
        {"Host: [::1]:8080\nOrigin: http://[::1]:8080", false},
        {"Host: a:8080\nOrigin: https://good.example", false},
        {"Host: a:8080\nOrigin: http://good.example", true},
        {"Host: a:8080\nOrigin: https://evil.example", true},
        {"Host: a:8080\nOrigin: http://a", true},
        {"Host: a:8080\nOrigin: http://a:80801", true},
        {"Host: a:8080\nOrigin: http://x.a:8080", true},
        {"Host: a:8080\nOrigin: null", true},
        {"Host: a:8080\nOrigin: ", true},
        {"Origin: http://a", true}, /* HTTP/1.0 without a host */
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_guard_head post = head_of("POST", "/", cases[i].lines), get = post;
        struct srv_guard_verdict v = {0}, read = {0};
        srv_guard_origin(&post, &rules, &v);
        REQUIRE_MSG(v.refused == cases[i].refused, "%s: %s", cases[i].lines, v.message);
        REQUIRE(!v.refused || srv_errors[v.kind].status == 403);
        get.method = "GET";
        srv_guard_origin(&get, &rules, &read);
        REQUIRE_MSG(!read.refused, "%s: %s", cases[i].lines, read.message);
    }
    REQUIRE(srv_guard_cors("https://evil.example", &rules) == NULL);
    REQUIRE(srv_guard_cors(NULL, &rules) == NULL);
    REQUIRE_EQ_STR(srv_guard_cors("https://GOOD.example", &rules), "https://GOOD.example");
}

static void origins_with_a_star(void **state)
{
    static const char *named[] = {"app://*", "http://localhost:*", "http://[::1]:*"};
    static const char *const good[] = {"app://obsidian.md", "APP://x", "http://localhost:3000",
                                       "http://LOCALHOST", "http://[::1]:80"};
    static const char *const bad[] = {"app://",
                                      "app:x",
                                      "http://localhost.evil.example",
                                      "http://localhost:80.evil.example",
                                      "http://localhost:",
                                      "http://localhost:80:80",
                                      "https://localhost:3000",
                                      "http://localhos",
                                      "null"};
    const struct srv_list cors = {named, 3};
    const struct srv_guard_rules rules = {.cors_origins = &cors};
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        REQUIRE_MSG(srv_guard_cors(good[i], &rules) == good[i], "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        REQUIRE_MSG(!srv_guard_cors(bad[i], &rules), "%s", bad[i]);
}

static void presented_keys(void **state)
{
    static const struct {
        const char *lines, *key; /* NULL: none */
    } cases[] = {
        {"Authorization: Bearer abc", "abc"},
        {"authorization: bearer abc ", "abc"},
        {"x-api-key: abc", "abc"},
        {"Api-Key: abc", "abc"},
        {"api-key: abc\nAuthorization: Basic z", NULL},
        {"Authorization: Basic abc", NULL},
        {"Authorization: Bearer", NULL},
        {"Authorization: Bearer a b", NULL},
        {"Authorization: abc", NULL},
        {"Host: a", NULL},
        {"Authorization: Bearer a\nAuthorization: Bearer a", NULL},
        {"x-api-key: abc\nAuthorization: Basic z", NULL},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_guard_head h = head_of("GET", "/", cases[i].lines);
        size_t len = 0;
        const char *key = srv_guard_key(&h, &len);
        REQUIRE_MSG(!key == !cases[i].key, "%s", cases[i].lines);
        if (key) REQUIRE(len == strlen(cases[i].key) && strncmp(key, cases[i].key, len) == 0);
    }
}

static void handle(struct srv_request *req)
{
    (void)req;
}

static void routes(void **state)
{
    static const struct srv_route a[] = {
        {"GET", "/v1/models", 0, SRV_DIALECT_OPENAI, handle, NULL},
        {"GET", "/v1/models/", SRV_ROUTE_PREFIX | SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, handle, NULL},
        {0}};
    static const struct srv_route b[] = {
        {"POST", "/v1/completions", SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, handle, NULL},
        {"GET", "/both", 0, SRV_DIALECT_OPENAI, handle, NULL},
        {"POST", "/both", 0, SRV_DIALECT_OPENAI, handle, NULL},
        {0}};
    static const struct srv_route *const tables[] = {a, b, NULL};
    struct srv_guard_route found;
    (void)state;
    srv_guard_find_route(tables, "GET", "/v1/models", &found);
    REQUIRE(found.route == &a[0] && !*found.tail);
    srv_guard_find_route(tables, "HEAD", "/v1/models/org/name", &found);
    REQUIRE(found.route == &a[1]);
    REQUIRE_EQ_STR(found.tail, "org/name");
    srv_guard_find_route(tables, "GET", "/models/name", &found);
    REQUIRE(found.route == &a[1]);
    REQUIRE_EQ_STR(found.tail, "name");
    srv_guard_find_route(tables, "GET", "/models", &found); /* its row has no SRV_ROUTE_BARE */
    REQUIRE(!found.route && !found.path_known);
    srv_guard_find_route(tables, "POST", "/completions", &found);
    REQUIRE(found.route == &b[0] && !*found.tail);
    srv_guard_find_route(tables, "POST", "/completion", &found);
    REQUIRE(!found.path_known);
    REQUIRE_EQ_STR(found.nearest, "/completions");
    srv_guard_find_route(tables, "GET", "/v1/completions", &found);
    REQUIRE(!found.route && found.path_known);
    REQUIRE_EQ_STR(found.allow, "POST, OPTIONS");
    srv_guard_find_route(tables, "PUT", "/both", &found);
    REQUIRE_EQ_STR(found.allow, "GET, HEAD, POST, OPTIONS");
    srv_guard_find_route(tables, "POST", "/v1/completion", &found);
    REQUIRE(!found.path_known);
    REQUIRE_EQ_STR(found.nearest, "/v1/completions");
    srv_guard_find_route(tables, "POST", "/bot", &found);
    REQUIRE_EQ_STR(found.nearest, "/both");
    static const char *const far[] = {"/", "/x", "/boxes", "/v1/rerank",
                                      "/v1/completions/and/more"};
    for (size_t i = 0; i < N_OF(far); i++) {
        srv_guard_find_route(tables, "POST", far[i], &found);
        REQUIRE_MSG(!found.path_known && !found.nearest, "%s: %s", far[i], found.nearest);
    }
}

static void decoding(void **state)
{
    static const struct {
        const char *in, *path, *query;
    } cases[] = {{"a%20b+c", "a b+c", "a b c"},
                 {"%2f%2F", "//", "//"},
                 {"%", "%", "%"},
                 {"%4", "%4", "%4"},
                 {"%zz%41", "%zzA", "%zzA"}};
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char text[32];
        snprintf(text, sizeof(text), "%s", cases[i].in);
        srv_guard_decode(text, false);
        REQUIRE_EQ_STR(text, cases[i].path);
        snprintf(text, sizeof(text), "%s", cases[i].in);
        srv_guard_decode(text, true);
        REQUIRE_EQ_STR(text, cases[i].query);
    }
}

static void parameters_of_a_query(void **state)
{
    static const struct {
        const char *query, *value; /* of "reload" */
    } cases[] = {{"reload=1", "1"},    {"a=b&reload=2&reload=3", "2"},        {"&&reload", ""},
                 {"reload=", ""},      {"reload=a=b%31", "a=b%31"},           {"x=preload=1", NULL},
                 {"x=reload=1", NULL}, {"preload=1&reloads=1&relo=ad", NULL}, {"", NULL}};
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        size_t len = 99;
        const char *value = srv_guard_query(cases[i].query, "reload", &len);
        REQUIRE_MSG(!value == !cases[i].value, "%s", cases[i].query);
        if (value) REQUIRE(len == strlen(cases[i].value) && !memcmp(value, cases[i].value, len));
    }
}

/* ---- keys ---------------------------------------------------------------------------------- */

static void key_files(void **state)
{
    char path[] = "/tmp/test_keys_XXXXXX", err[300];
    uint8_t digest[32], other[32];
    struct srv_keys *k = NULL;
    (void)state;
    int fd = mkstemp(path);
    static const char text[] = "# keys\r\nfirst\r\n\n  second  \n#third\n";
    REQUIRE(write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
    REQUIRE_EQ_INT(
        srv_keys_create(&k, "api-key-file", path, "fourth,fifth", true, err, sizeof(err)), 0);
    static const char *const good[] = {"first", "second", "fourth", "fifth"};
    for (size_t i = 0; i < N_OF(good); i++)
        REQUIRE(srv_keys_check(k, good[i], strlen(good[i]), digest, NULL));
    static const char *const bad[] = {"",      "firs",   "first1",       "First",
                                      "third", "#third", "fourth,fifth", " first"};
    for (size_t i = 0; i < N_OF(bad); i++)
        REQUIRE_MSG(!srv_keys_check(k, bad[i], strlen(bad[i]), digest, NULL), "%s", bad[i]);
    REQUIRE(srv_keys_check(k, "first", 5, digest, NULL) &&
            srv_keys_check(k, "second", 6, other, NULL));
    REQUIRE(memcmp(digest, other, 32) != 0);

    REQUIRE(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    REQUIRE(srv_keys_reload(k, NULL, NULL, err, sizeof(err)) <
            0); /* no key left: the old ones stay */
    REQUIRE(srv_keys_check(k, "first", 5, digest, NULL));
    REQUIRE(write(fd, "new\n", 4) == 4);
    REQUIRE_EQ_INT(srv_keys_reload(k, NULL, NULL, err, sizeof(err)), 0);
    REQUIRE(srv_keys_check(k, "new", 3, digest, NULL) &&
            !srv_keys_check(k, "first", 5, digest, NULL));
    REQUIRE(srv_keys_check(k, "fourth", 6, digest, NULL));
    srv_keys_destroy(k);
    close(fd);
    unlink(path);

    REQUIRE(srv_keys_create(&k, "api-key-file", NULL, " , ", true, err, sizeof(err)) < 0);
    REQUIRE(srv_keys_create(&k, "api-key-file", "/nonexistent", NULL, true, err, sizeof(err)) < 0);
    REQUIRE_EQ_INT(srv_keys_create(&k, "api-key-file", NULL, NULL, true, err, sizeof(err)), 0);
    REQUIRE(!k);
    srv_keys_destroy(k);
    srv_keys_destroy(NULL);
}

/* A line that is more than a key is refused, not taken for a key that no client can send. */
#define TEN "0123456789"

static void key_files_with_more_than_keys(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"first\nsecond # for Bob\n", ":2: only name="},
        {"first\tsecond", ":1: only name="},
        {"first slot=1", ":1: only name="},
        {"first name=", ":1: name= takes"},
        {"first name=\"a\"", ":1: name= takes"},
        {"first name=a\\", ":1: name= takes"},
        {"first name=a name=b", ":1: name= takes"},
        {"first name=" TEN TEN TEN TEN TEN TEN "12345", ":1: name= takes"},
        {"first models=", ":1: models= takes"},
        {"first models=a,", ":1: models= takes"},
        {"first models=,a", ":1: models= takes"},
        {"first models=a,,b", ":1: models= takes"},
        {"first models=a models=b", ":1: models= takes"},
        {"first models=a\x01", ":1: a word is too long or"},
        {"first slots=0", ":1: slots= takes"},
        {"first slots=", ":1: slots= takes"},
        {"first slots=2147483648", ":1: slots= takes"},
        {"first slots=-1", ":1: slots= takes"},
        {"first slots=1x", ":1: slots= takes"},
        {"first slots=1 slots=1", ":1: slots= takes"},
        {"a name=x\nfirst slots=1\nfirst slots=2", ":3: this key is there before"},
        {"first slots=1\nfirst slots=1\nfirst slots=1", NULL},
        {"\tfirst \t name=kitchen-2  models=chat,a/b:Q4  slots=9999 \r\n", NULL},
        {"fi\x01rst", ":1: a key holds a blank"},
        {"\xef\xbb\xbf# saved by an editor of Windows\r\n", "holds no key"},
        {"\xef\xbb\xbf"
         "first\r\n",
         NULL},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char path[] = "/tmp/test_keys_XXXXXX", err[300] = "";
        uint8_t digest[32];
        struct srv_keys *k = NULL;
        int fd = mkstemp(path);
        size_t len = strlen(cases[i].text);
        REQUIRE(write(fd, cases[i].text, len) == (ssize_t)len);
        int rc = srv_keys_create(&k, "api-key-file", path, NULL, true, err, sizeof(err));
        REQUIRE_MSG(cases[i].says ? rc < 0 && strstr(err, cases[i].says) : rc == 0, "%s", err);
        REQUIRE(cases[i].says || srv_keys_check(k, "first", 5, digest, NULL));
        srv_keys_destroy(k);
        close(fd);
        unlink(path);
    }
    struct srv_keys *k = NULL;
    char err[300];
    REQUIRE(srv_keys_create(&k, "api-key-file", NULL, "two words", true, err, sizeof(err)) < 0);
    REQUIRE(srv_keys_create(&k, "api-key-file", NULL, "key slots=1", true, err, sizeof(err)) < 0);
}

static struct srv_key_words words_of(struct srv_keys *k, const char *key)
{
    struct srv_key_words words = {0};
    uint8_t digest[32];
    REQUIRE(srv_keys_check(k, key, strlen(key), digest, &words));
    return words;
}

/* Rewrites the file and reads it again. Returns whether that was accepted. */
static bool reload_keys(struct srv_keys *k, const char *path, const char *text, size_t len)
{
    char err[300];
    FILE *f = fopen(path, "w");
    REQUIRE(f && fwrite(text, 1, len, f) == len && fclose(f) == 0);
    return srv_keys_reload(k, NULL, NULL, err, sizeof(err)) == 0;
}

static void words_of_keys(void **state)
{
    static const char first[] = "a name=kitchen models=chat,embed slots=2\nb name=kitchen\nc\n",
                      next[] = "a name=hall slots=1\nb\n", bad[] = "a name=hall slots=0\n",
                      cut[] = "a models=chat\0,embed\n";
    char path[] = "/tmp/test_keys_XXXXXX", err[300], *most = malloc(1 << 20);
    struct srv_metrics *m = srv_metrics_create();
    struct srv_keys *k = NULL;
    (void)state;
    close(mkstemp(path));
    REQUIRE(srv_keys_create(&k, "operator-key-file", path, NULL, false, err, sizeof(err)) < 0);
    REQUIRE_EQ_INT(srv_keys_create(&k, "api-key-file", path, "zero", true, err, sizeof(err)), -1);
    FILE *f = fopen(path, "w");
    REQUIRE(f && fputs(first, f) >= 0 && fclose(f) == 0);
    REQUIRE(srv_keys_create(&k, "operator-key-file", path, NULL, false, err, sizeof(err)) < 0);
    REQUIRE_EQ_INT(srv_keys_create(&k, "api-key-file", path, "zero", true, err, sizeof(err)), 0);
    srv_keys_count_in(k, m);
    struct srv_key_words a = words_of(k, "a"), b = words_of(k, "b"), c = words_of(k, "c");
    REQUIRE_EQ_STR(a.name, "kitchen");
    REQUIRE(!memcmp(a.models, "chat\0embed\0", 12));
    REQUIRE(a.slots == 2 && a.counts && a.counts == b.counts); /* one name, one count */
    REQUIRE(!*b.models && !b.slots && !*c.name && !c.counts && !words_of(k, "zero").slots);

    REQUIRE(!reload_keys(k, path, bad, sizeof(bad) - 1)); /* the old ones stay */
    REQUIRE(!reload_keys(k, path, cut, sizeof(cut) - 1)); /* so does the whole list */
    REQUIRE_EQ_STR(words_of(k, "a").models, "chat");
    REQUIRE(reload_keys(k, path, next, sizeof(next) - 1));
    REQUIRE(words_of(k, "a").slots == 1 && words_of(k, "a").counts != a.counts);

    size_t len = 0; /* as many keys as there may be, with other names: 64 have their own counts */
    for (int i = 0; i < SRV_KEYS_MAX - 1; i++)
        len += (size_t)snprintf(most + len, (1 << 20) - len, "key%d name=n%d models=m%d slots=%d\n",
                                i, i, i, i + 1);
    REQUIRE(reload_keys(k, path, most, len));
    REQUIRE(words_of(k, "key4000").slots == 4001);
    REQUIRE_EQ_STR(words_of(k, "key4000").counts->name, "other");
    REQUIRE_EQ_STR(words_of(k, "key3").counts->name, "n3");
    memset(most, 'm', 1 << 20);
    memcpy(most, "a models=", 9);
    REQUIRE(!reload_keys(k, path, most, 1 << 20));
    srv_keys_destroy(k);
    srv_metrics_destroy(m);
    free(most);
    unlink(path);
}

static void dialects(void **state)
{
    static const struct srv_route rows[] = {{"POST", "/m", 0, SRV_DIALECT_ANTHROPIC, NULL, NULL},
                                            {"GET", "/either", 0, SRV_DIALECT_EITHER, NULL, NULL},
                                            {"POST", "/tei", 0, SRV_DIALECT_TEI, NULL, NULL},
                                            {"POST", "/cohere", 0, SRV_DIALECT_COHERE, NULL, NULL},
                                            {"POST", "/api", 0, SRV_DIALECT_OLLAMA, NULL, NULL},
                                            {"POST", "/detail", 0, SRV_DIALECT_DETAIL, NULL, NULL},
                                            {"POST", "/plain", 0, SRV_DIALECT_OPENAI, NULL, NULL},
                                            {0}};
    static const struct srv_route *const tables[] = {rows, NULL};
    static const char json[] = "Host: a\nContent-Type: application/json\nContent-Length: 2",
                      version[] = "Host: a\nanthropic-version: 2023-06-01\nContent-Length: 0";
    static const struct {
        const char *method, *target, *lines;
        enum srv_dialect dialect;
    } cases[] = {
        {"POST", "/m", json, SRV_DIALECT_ANTHROPIC},
        {"GET", "/m", json, SRV_DIALECT_ANTHROPIC}, /* refused, as its path's routes answer */
        {"POST", "/m", "Content-Length: 2", SRV_DIALECT_ANTHROPIC},
        {"GET", "/either", json, SRV_DIALECT_OPENAI},
        {"GET", "/either", version, SRV_DIALECT_ANTHROPIC},
        {"POST", "/tei", json, SRV_DIALECT_TEI},
        {"POST", "/cohere", json, SRV_DIALECT_COHERE},
        {"POST", "/api", json, SRV_DIALECT_OLLAMA},
        {"GET", "/api", json, SRV_DIALECT_OLLAMA},
        {"POST", "/detail", json, SRV_DIALECT_DETAIL},
        {"POST", "/plain", version, SRV_DIALECT_OPENAI},
        {"POST", "/nowhere", json, SRV_DIALECT_OPENAI},
        {"POST", "/nowhere", version, SRV_DIALECT_ANTHROPIC},
    };
    const struct srv_guard_rules rules = {.max_body_bytes = 100};
    const struct srv_guard_input in = {.routes = tables, .rules = &rules, .state = SRV_READY};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct srv_guard_head h = head_of(cases[i].method, cases[i].target, cases[i].lines);
        struct srv_guard_verdict v;
        char path[64];
        srv_guard_check(&h, &in, path, &v);
        REQUIRE_MSG(v.dialect == cases[i].dialect, "case %zu", i);
        srv_guard_check(&h, &in, NULL, &v); /* refused before its path is looked at */
        REQUIRE(v.refused && v.dialect == (cases[i].lines == version ? SRV_DIALECT_ANTHROPIC
                                                                     : SRV_DIALECT_OPENAI));
    }
}

/* ---- watchdog ------------------------------------------------------------------------------ */

static void watchdog_sees_only_work_that_stands_still(void **state)
{
    struct srv_watchdog d = {0};
    (void)state;
    REQUIRE(!srv_watchdog_look(&d, 1000, false, 0, 100));
    REQUIRE(!srv_watchdog_look(&d, 9000, true, 0, 100)); /* work has come only now */
    REQUIRE(!srv_watchdog_look(&d, 9099, true, 0, 100));
    REQUIRE(srv_watchdog_look(&d, 9100, true, 0, 100));
    REQUIRE(!srv_watchdog_look(&d, 9101, true, 1, 100)); /* a step ended */
    REQUIRE(srv_watchdog_look(&d, 9300, true, 1, 100));
    REQUIRE(!srv_watchdog_look(&d, 9301, false, 1, 100));
    REQUIRE(!srv_watchdog_look(&d, 9500, true, 1, 100));
    REQUIRE(!srv_watchdog_look(&d, 99999, true, 1, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(framing),
        cmocka_unit_test(targets),
        cmocka_unit_test(hosts),
        cmocka_unit_test(bodies),
        cmocka_unit_test(origins),
        cmocka_unit_test(origins_with_a_star),
        cmocka_unit_test(presented_keys),
        cmocka_unit_test(routes),
        cmocka_unit_test(decoding),
        cmocka_unit_test(parameters_of_a_query),
        cmocka_unit_test(dialects),
        cmocka_unit_test(key_files),
        cmocka_unit_test(key_files_with_more_than_keys),
        cmocka_unit_test(words_of_keys),
        cmocka_unit_test(watchdog_sees_only_work_that_stands_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
