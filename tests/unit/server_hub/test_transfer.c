/* SPDX-License-Identifier: MIT */
/*
 * HTTP exchanges against a socket of this test on loopback, and URLs. Skipped on a machine or in a
 * build without libcurl.
 */
#include "server/hub/transfer.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

/* Answers one connection after another with the texts of a script, until a NULL. */
static struct {
    int fd;
    char url[64];
    const char *answers[8];
    char requests[8][600]; /* the heads, and what came with them */
    pthread_t thread;
} hub;

static void *serve(void *arg)
{
    (void)arg;
    for (int i = 0; hub.answers[i]; i++) {
        int fd = accept(hub.fd, NULL, NULL);
        size_t len = 0;
        char *request = hub.requests[i];
        do {
            ssize_t n = recv(fd, request + len, sizeof(hub.requests[0]) - 1 - len, 0);
            if (n <= 0) break;
            request[len += (size_t)n] = '\0';
        } while (!strstr(request, "\r\n\r\n") ||
                 (strncmp(request, "POST", 4) == 0 && !strstr(request, "\"whole\"")));
        if (send(fd, hub.answers[i], strlen(hub.answers[i]), MSG_NOSIGNAL) < 0) abort();
        if (strcmp(hub.answers[i], "") == 0 || strstr(hub.answers[i], "X-Stall")) {
            char end;
            if (recv(fd, &end, 1, 0) > 0) abort(); /* the client gives up */
        }
        close(fd);
    }
    return NULL;
}

static void begin_serving(const char *const *answers, int n)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(a);
    memset(&hub, 0, sizeof(hub));
    memcpy(hub.answers, answers, (size_t)n * sizeof(*answers));
    hub.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(hub.fd >= 0 && bind(hub.fd, (struct sockaddr *)&a, size) == 0);
    REQUIRE(listen(hub.fd, 8) == 0 && getsockname(hub.fd, (struct sockaddr *)&a, &size) == 0);
    snprintf(hub.url, sizeof(hub.url), "http://127.0.0.1:%d/x", ntohs(a.sin_port));
    REQUIRE(pthread_create(&hub.thread, NULL, serve, NULL) == 0);
}

static void end_serving(void)
{
    pthread_join(hub.thread, NULL);
    close(hub.fd);
}

static int n_heads, status;
static char got[300], header[100];
static bool wants_head, wants_body;

static bool on_head(void *ctx, struct transfer *t)
{
    const char *value = transfer_header(t, "x-name");
    (void)ctx;
    n_heads++;
    status = transfer_status(t);
    snprintf(header, sizeof(header), "%s", value ? value : "");
    return wants_head;
}

static bool on_body(void *ctx, const char *data, size_t len)
{
    (void)ctx;
    snprintf(got + strlen(got), sizeof(got) - strlen(got), "%.*s", (int)len, data);
    return wants_body;
}

static enum transfer_end run(struct transfer *t, const char *body, int head_ms, int body_ms,
                             const atomic_bool *stop)
{
    static const char *const headers[] = {"X-Mine: 1", NULL};
    struct transfer_exchange x = {
        .url = hub.url,
        .headers = headers,
        .body = body,
        .body_len = body ? strlen(body) : 0,
        .head_timeout_ms = head_ms,
        .body_timeout_ms = body_ms,
        .on_head = on_head,
        .on_body = on_body,
        .stop = stop,
    };
    got[0] = header[0] = '\0';
    n_heads = status = 0;
    return transfer_run(t, &x);
}

static struct transfer *make(void)
{
    struct transfer *t = transfer_create(&(struct transfer_settings){0});
    REQUIRE(t);
    wants_head = wants_body = true;
    return t;
}

#define OK "HTTP/1.1 200 OK\r\n"
#define CLOSE "Connection: close\r\n"

static void answers(void **state)
{
    static const char *const texts[] = {
        OK CLOSE "X-Name: first\r\nX-Name: second\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 100 Continue\r\n\r\n" OK CLOSE
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 302 Found\r\n" CLOSE "Location: /y\r\nContent-Length: 0\r\n\r\n",
        OK CLOSE "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nraw",
    };
    struct transfer *t = make();
    (void)state;
    begin_serving(texts, N_OF(texts));
    REQUIRE_EQ_INT(run(t, NULL, 0, 0, NULL), TRANSFER_OK);
    REQUIRE_EQ_STR(got, "hello");
    REQUIRE_EQ_STR(header, "first");
    REQUIRE_EQ_INT(status, 200);
    REQUIRE_EQ_INT(run(t, "{\"all\":\"whole\"}", 1000, 1000, NULL), TRANSFER_OK);
    REQUIRE_EQ_STR(got, "abc");
    REQUIRE_EQ_INT(n_heads, 1);
    REQUIRE_EQ_INT(run(t, NULL, 0, 0, NULL), TRANSFER_OK);
    REQUIRE_EQ_INT(status, 302);
    REQUIRE_EQ_STR(transfer_header(t, "Location"), "/y");
    REQUIRE_EQ_INT(run(t, NULL, 0, 0, NULL), TRANSFER_OK);
    REQUIRE_EQ_STR(got, "raw");
    end_serving();
    REQUIRE_MSG(strncmp(hub.requests[0], "GET /x HTTP/1.1\r\n", 17) == 0, "%s", hub.requests[0]);
    REQUIRE_MSG(strstr(hub.requests[0], "X-Mine: 1\r\n") &&
                    strstr(hub.requests[0], "User-Agent: hearth/"),
                "%s", hub.requests[0]);
    REQUIRE_MSG(strncmp(hub.requests[1], "POST /x", 7) == 0 &&
                    strstr(hub.requests[1], "Content-Length: 15\r\n"),
                "%s", hub.requests[1]);
    transfer_destroy(t);
}

static void ends(void **state)
{
    static const char *const texts[] = {
        OK CLOSE "Content-Length: 50\r\n\r\nshort",
        OK CLOSE "Content-Length: 5\r\n\r\nhello",
        OK CLOSE "Content-Length: 5\r\n\r\nhello",
        "",
        OK "X-Stall: 1\r\nContent-Length: 5000\r\n\r\nlittle",
        "nonsense\r\n\r\n",
    };
    struct transfer *t = make();
    atomic_bool stop = true;
    (void)state;
    begin_serving(texts, N_OF(texts));
    REQUIRE_EQ_INT(run(t, NULL, 0, 0, NULL), TRANSFER_BROKEN);
    REQUIRE_EQ_STR(got, "short");
    wants_head = false;
    REQUIRE_EQ_INT(run(t, NULL, 0, 0, NULL), TRANSFER_REFUSED);
    REQUIRE_EQ_STR(got, "");
    wants_head = true;
    wants_body = false;
    REQUIRE_EQ_INT(run(t, NULL, 0, 0, NULL), TRANSFER_REFUSED);
    wants_body = true;
    REQUIRE_EQ_INT(run(t, NULL, 100, 0, NULL), TRANSFER_NO_HEAD);
    REQUIRE_EQ_INT(transfer_status(t), 0);
    REQUIRE_EQ_STR(transfer_reason(t), "no answer for 0 s");
    REQUIRE_EQ_INT(run(t, NULL, 0, 100, NULL), TRANSFER_SLOW);
    REQUIRE_EQ_STR(transfer_reason(t), "hardly a byte for 0 s");
    REQUIRE_EQ_INT(run(t, NULL, 0, 0, &stop), TRANSFER_STOPPED);
    REQUIRE_EQ_INT(run(t, NULL, 0, 0, NULL), TRANSFER_BROKEN);
    end_serving();
    REQUIRE_EQ_INT(run(t, NULL, 0, 0, NULL), TRANSFER_UNREACHED);
    transfer_destroy(t);
}

static void urls(void **state)
{
    static const struct {
        const char *base, *relative, *wanted; /* NULL: not a URL */
    } joins[] = {
        {"https://h/a/b?q", "/c?d", "https://h/c?d"},
        {"https://h/a/b", "c", "https://h/a/c"},
        {"https://h/a", "http://other:81/x", "http://other:81/x"},
        {"https://h/a", "file:///etc/passwd", "file:///etc/passwd"},
        {"nonsense:", "x", NULL},
    };
    static const struct {
        const char *url, *text;
        bool loopback;
    } origins[] = {
        {"https://Hub.Test/x", "https://hub.test:443", false},
        {"http://127.0.0.1:8080", "http://127.0.0.1:8080", true},
        {"http://localhost/", "http://localhost:80", true},
        {"http://[::1]:1/", "http://[::1]:1", true},
        {"http://128.0.0.1/", "http://128.0.0.1:80", false},
        {"https://me@hub.test/", NULL, false},
        {"no url at all", NULL, false},
    };
    char url[100];
    (void)state;
    for (size_t i = 0; i < N_OF(joins); i++) {
        int rc = transfer_url_join(joins[i].base, joins[i].relative, url, sizeof(url));
        REQUIRE_MSG((rc == 0) == (joins[i].wanted != NULL), "%s", joins[i].relative);
        if (rc == 0) REQUIRE_EQ_STR(url, joins[i].wanted);
    }
    REQUIRE_EQ_INT(transfer_url_join("https://h/a", "/bcd", url, 12), -1);
    for (size_t i = 0; i < N_OF(origins); i++) {
        struct transfer_origin o;
        int rc = transfer_url_origin(origins[i].url, &o);
        REQUIRE_MSG((rc == 0) == (origins[i].text != NULL), "%s", origins[i].url);
        if (rc) continue;
        REQUIRE_EQ_STR(o.text, origins[i].text);
        REQUIRE_EQ_INT(o.loopback, origins[i].loopback);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(ends),
        cmocka_unit_test(urls),
    };
    char err[400];
    if (transfer_load(err, sizeof(err))) {
        fprintf(stderr, "%s\n", err);
        return TEST_SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
