/* SPDX-License-Identifier: MIT */
/* Health routes in each state of the server, the version, the metrics. */
#include "base/clock.h"
#include "local_server.h"
#include "server/http/watch.h"

/* The metrics count connections. */
static int open_watched(void **state)
{
    struct srv_server *s = &local.core.server;
    char err[200];
    open_demo(state);
    return srv_watch_create(&s->watch, &local.config, s->metrics, 8, err, sizeof(err));
}

static int close_watched(void **state)
{
    srv_watch_destroy(local.core.server.watch);
    return close_server(state);
}

static void require_status(const char *target, int status, const char *path, const char *value)
{
    send_request("GET", target, NULL, NULL);
    REQUIRE_MSG(answered.status == status, "%s: %d: %s", target, answered.status,
                answered.text.data);
    REQUIRE_EQ_STR(at(path), value);
}

static void readiness_follows_the_state(void **state)
{
    static const struct {
        enum srv_state state;
        int status;
        const char *path, *value;
    } rows[] = {{SRV_LOADING, 503, "error.code", "model_loading"},
                {SRV_DRAINING, 503, "error.code", "shutting_down"},
                {SRV_FAILED, 503, "error.code", "server_overloaded"},
                {SRV_READY, 200, "status", "ok"}};
    static const char *const ready[] = {"/health", "/v1/health", "/readyz"};
    static const char *const live[] = {"/healthz", "/livez", "/ping"};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        atomic_store(&local.core.app.state, rows[i].state);
        for (int k = 0; k < 3; k++) {
            require_status(ready[k], rows[i].status, rows[i].path, rows[i].value);
            require_status(live[k], 200, "status", "ok");
        }
    }
    REQUIRE_EQ_STR(header_of("Cache-Control"), "no-store");
}

static void a_hang_is_noticed(void **state)
{
    struct srv_server *s = &local.core.server;
    (void)state;
    atomic_store(&s->stalled, true);
    require_status("/healthz", 503, "error.code", "server_overloaded");
    require_status("/readyz", 200, "status", "ok");
    atomic_store(&s->stalled, false);
    atomic_store(&s->monitor_us, clock_now_us() - 31000000);
    require_status("/livez", 503, "error.code", "server_overloaded");
    atomic_store(&s->monitor_us, clock_now_us() - 20000000);
    require_status("/livez", 200, "status", "ok");
    atomic_store(&s->monitor_us, 0);
    require_status("/livez", 200, "status", "ok");
}

static void the_version(void **state)
{
    (void)state;
    require_status("/version", 200, "version", HEARTH_VERSION);
    REQUIRE_EQ_STR(at("server"), "hearth");
}

static void metrics_count(void **state)
{
    (void)state;
    send_request("POST", "/v1/completions",
                 "{\"prompt\": \"Once upon\", \"max_tokens\": 3, \"ignore_eos\": true}", NULL);
    REQUIRE_EQ_INT(answered.status, 200);
    const char *text = "";
    for (int i = 0; i < 6000 && !strstr(text, "\nhearth_generated_tokens_total 3\n"); i++) {
        if (i) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); /* counted a bit later */
        send_request("GET", "/metrics", NULL, NULL);
        REQUIRE_EQ_INT(answered.status, 200);
        text = answered.text.data;
    }
    REQUIRE(strncmp(answered.req->content_type, "text/plain", 10) == 0);
    REQUIRE_MSG(strstr(text, "\nhearth_generated_tokens_total 3\n"), "%s", text);
    REQUIRE(strstr(text, "\nhearth_ready 1\n") &&
            strstr(text, "# TYPE hearth_generated_tokens_total counter"));
    atomic_store(&local.core.app.state, SRV_DRAINING);
    send_request("GET", "/metrics", NULL, NULL);
    atomic_store(&local.core.app.state, SRV_READY);
    REQUIRE(strstr(answered.text.data, "\nhearth_ready 0\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readiness_follows_the_state),
        cmocka_unit_test(a_hang_is_noticed),
        cmocka_unit_test(the_version),
        cmocka_unit_test(metrics_count),
    };
    return cmocka_run_group_tests(tests, open_watched, close_watched);
}
