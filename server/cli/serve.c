/* SPDX-License-Identifier: MIT */
/*
 * hearth serve: the server's life, top to bottom.
 *
 *   listen          sockets are open before the model loads; until it has, requests get 503. The
 *                   socket of a service manager holds connections by itself, so there nobody is
 *                   accepted until the model is loaded, or SOCKET_HOLD_US is over
 *   load            on the loader's threads; the main thread waits for signals meanwhile
 *   run             the main thread watches the engine and the signals
 *   drain           SIGTERM or SIGINT: not ready at once; after the delay no new connections and no
 *                   new requests; those that run may end within the drain time; the rest is ended
 *                   with an error
 *   close           HTTP daemons, workers, engine, in this order
 *
 * The exit status after a drain is 0, also when requests had to be ended. A second signal ends the
 * process at once with 128 + its number. SIGHUP reads the key file again. Signals are blocked
 * before the first thread is made and taken from a descriptor here.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/heap.h"
#include "base/os_error.h"
#include "engine/engine.h"
#include "server/bounds.h"
#include "server/batch/runner.h"
#include "server/models/catalogue.h"
#include "server/cli/cli.h"
#include "server/cli/core.h"
#include "server/grammars/compile_queue.h"
#include "server/config/config.h"
#include "server/http/daemon.h"
#include "server/http/keys.h"
#include "server/http/listen.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/http/watch.h"
#include "server/models/kv_bans.h"
#include "server/models/loader.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/models/serve_pull.h"
#include "server/systemd.h"

enum {
    TICK_MS = 100, /* how often the engine is looked at */
    DRAIN_TICK_MS = 5,
    FIRST_REQUEST_MS = 500, /* for what a client sends on a connection that it has just opened */
    SECOND_SIGNAL_GRACE_MS = 100,
    STOPPED_GRACE_MS = 2000, /* for error answers of requests that were ended */
    GONE_GRACE_MS = 5000,    /* for the engine to let go of them */
    SPARE_FDS = 64,
    LOADING_NOTICE_US = 5000000,
    SOCKET_HOLD_US = 1000000, /* how long connections to an inherited socket wait for the model */
    MALLOC_ARENAS = 2,
    LOG_FLUSH_MS = 2000, /* for the last lines of the log, where nobody reads them */
    MMAP_BYTES = 256 << 10,
    TRIM_AFTER_US = 1000000, /* without a request: then all that was freed goes back */
};

/* Everything this command owns. */
struct serve {
    struct srv_core core;
    const struct srv_config *config;
    struct srv_http *http, *admin;
    uint64_t idle_since_us; /* 0: there are requests, or nothing to give back */
    uint64_t n_trimmed_at;  /* requests counted when memory was last given back */
    int signal_fd;
    int inherited_fd; /* the listening socket of a service manager, or -1 */
    int listen_fd;    /* the main socket; from start_serving on it is the daemon's */
    uint64_t hold_until_us;
    bool loaded; /* the loader has ended well */
    int status;  /* exit status, if what comes next fails */
    bool paused; /* debug hook */
    char url[256], admin_url[256];
    char *tls_cert, *tls_key;
    uint64_t notify_us, notified_us, loading_notified_us;
};

__attribute__((noreturn)) static void end_process(int status)
{
    srv_log_flush(LOG_FLUSH_MS);
    _exit(status);
}

/* ---- preparation --------------------------------------------------------------------------- */

static int open_signals(struct serve *s, char *err, size_t errlen)
{
    static const int taken[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        sigaddset(&set, taken[i]);
    /* A closed pipe or a full quota is an error of that one write. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signal_fd >= 0) return 0;
    snprintf(err, errlen, "cannot receive signals: %s%s", strerror(errno), os_error_remedy(errno));
    return -1;
}

static int start_log(struct serve *s, char *err, size_t errlen)
{
    const struct srv_list *warnings = &s->config->warnings;
    if (srv_log_start(err, errlen)) return -1;
    for (int i = 0; i < warnings->n; i++)
        srv_log(SRV_LOG_WARNING, "%s", warnings->items[i]);
    return 0;
}

/*
 * Connections need descriptors; the soft limit is raised as far as the hard one lets us. Returns
 * how many there are descriptors for: one more would wait in the kernel's queue without an answer.
 */
static int fit_connections(const struct srv_config *c)
{
    const rlim_t others = SRV_CONNECTION_MARGIN + SRV_ADMIN_CONNECTIONS + SPARE_FDS;
    const rlim_t wanted = (rlim_t)c->max_connections + others;
    struct rlimit limit, raised;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted) return c->max_connections;
    raised = limit;
    raised.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
    if (limit.rlim_cur >= wanted) return c->max_connections;
    int n = limit.rlim_cur > others ? (int)(limit.rlim_cur - others) : 1;
    srv_log(SRV_LOG_WARNING,
            "max-connections %d needs %llu file descriptors, the limit is %llu: %d connections",
            c->max_connections, (unsigned long long)wanted, (unsigned long long)limit.rlim_cur, n);
    return n;
}

static bool has_path(const struct serve *s)
{
    char url[256];
    if (s->inherited_fd < 0) return s->config->unix_socket != NULL;
    return strncmp(srv_listen_url(s->inherited_fd, false, url, sizeof(url)), "unix:", 5) == 0;
}

/* Returns true if only this machine can reach the main socket. */
static bool is_local(const struct serve *s)
{
    if (s->inherited_fd >= 0) return srv_listen_socket_is_local(s->inherited_fd);
    return has_path(s) || srv_listen_is_local(s->config->host);
}

static int check_exposure(struct serve *s, char *err, size_t errlen)
{
    const struct srv_config *c = s->config;
    char url[256];
    if (is_local(s) || s->core.server.keys || c->allow_public_without_key) return 0;
    s->status = EXIT_FAILURE;
    if (s->inherited_fd < 0 && srv_listen_check_host(c->host, err, errlen)) return -1;
    s->status = SRV_EXIT_USAGE;
    snprintf(
        err, errlen,
        "listening on %.100s without an API key would serve everybody who can reach it; set a key "
        "(--api-key-file, HEARTH_API_KEY) or --allow-public-without-key",
        s->inherited_fd < 0 ? c->host : srv_listen_url(s->inherited_fd, false, url, sizeof(url)));
    return -1;
}

static void warn_if_exposed(const char *option, const char *path)
{
    unsigned mode;
    if (!path || !file_is_exposed(path, &mode)) return;
    srv_log(SRV_LOG_WARNING,
            "%s %s is readable by every user of this machine (mode %04o); chmod o= prevents that",
            option, path, mode);
}

static void set_rules(struct serve *s)
{
    const struct srv_config *c = s->config;
    s->core.server.rules = (struct srv_guard_rules){
        .allowed_hosts = &c->allowed_hosts,
        .cors_origins = &c->cors_origins,
        .only_loopback_hosts = is_local(s) && !has_path(s) && !s->core.server.keys,
        .max_body_bytes = c->max_body_bytes,
    };
    s->core.server.admin_rules = (struct srv_guard_rules){
        .only_loopback_hosts = srv_listen_is_local(c->metrics_host),
        .max_body_bytes = c->max_body_bytes,
    };
}

static char *read_text_file(const char *option, const char *path, char *err, size_t errlen)
{
    char why[500], *text = NULL;
    if (file_load(NULL, path, SRV_CONFIG_FILE_MAX_BYTES, &text, NULL, why, sizeof(why)))
        snprintf(err, errlen, "%s %s", option, why);
    return text;
}

static int read_tls(struct serve *s, char *err, size_t errlen)
{
    const struct srv_config *c = s->config;
    if (!c->tls_cert_file) return 0;
    s->tls_cert = read_text_file("tls-cert-file", c->tls_cert_file, err, errlen);
    if (s->tls_cert) s->tls_key = read_text_file("tls-key-file", c->tls_key_file, err, errlen);
    return s->tls_key ? 0 : -1;
}

/* Secrets, and who may ask without one: what --check-config looks at too. */
static int read_secrets(struct serve *s, char *err, size_t errlen)
{
    const struct srv_config *c = s->config;
    if (srv_keys_create(&s->core.server.keys, "api-key-file", c->api_key_file, c->api_key, true,
                        err, errlen) ||
        srv_keys_create(&s->core.server.operator_keys, "operator-key-file", c->operator_key_file,
                        c->operator_key, false, err, errlen) ||
        read_tls(s, err, errlen))
        return -1;
    s->core.server.operator_open = strcmp(c->swap, "on") == 0 ||
                                   (strcmp(c->swap, "auto") == 0 && s->core.server.operator_keys);
    warn_if_exposed("api-key-file", c->api_key_file);
    warn_if_exposed("operator-key-file", c->operator_key_file);
    warn_if_exposed("tls-key-file", c->tls_key_file);
    return check_exposure(s, err, errlen);
}

/* The parts that exist once, before any socket. */
static int create_parts(struct serve *s, char *err, size_t errlen)
{
    struct srv_server *server = &s->core.server;
    set_rules(s);
    if (srv_core_create(&s->core, err, errlen)) return -1;
    srv_keys_count_in(server->keys, server->metrics);
    if (s->config->batch_dir && batches_create(&s->core.app.batches, server, s->config->batch_dir,
                                               s->config->batch_bytes, err, errlen))
        return -1;
    return srv_watch_create(&server->watch, s->config, server->metrics, server->max_connections,
                            err, errlen);
}

/* ---- listening ----------------------------------------------------------------------------- */

/* Connections to the main socket are accepted from now on. */
static int start_serving(struct serve *s, char *err, size_t errlen)
{
    const struct srv_http_params params = {.listen_fd = s->listen_fd,
                                           .shared = s->inherited_fd >= 0,
                                           .tls_cert = s->tls_cert,
                                           .tls_key = s->tls_key};
    if (srv_http_start(&s->http, &s->core.server, &params, err, errlen)) return -1;
    srv_log(SRV_LOG_INFO, "listening on %s", s->url);
    return 0;
}

static int start_listening(struct serve *s, char *err, size_t errlen)
{
    const struct srv_config *c = s->config;
    s->listen_fd = s->inherited_fd;
    if (s->inherited_fd < 0 &&
        (c->unix_socket ? srv_listen_unix(&s->listen_fd, c->unix_socket, err, errlen)
                        : srv_listen_tcp(&s->listen_fd, c->host, c->port, err, errlen)))
        return -1;
    srv_listen_url(s->listen_fd, s->tls_cert != NULL, s->url, sizeof(s->url));
    s->hold_until_us = clock_now_us() + SOCKET_HOLD_US;
    if (s->inherited_fd < 0 && start_serving(s, err, errlen)) return -1;
    if (c->metrics_port < 0) return 0;
    struct srv_http_params params = {.admin = true};
    if (srv_listen_tcp(&params.listen_fd, c->metrics_host, c->metrics_port, err, errlen)) return -1;
    srv_listen_url(params.listen_fd, false, s->admin_url, sizeof(s->admin_url));
    if (srv_http_start(&s->admin, &s->core.server, &params, err, errlen)) return -1;
    srv_log(SRV_LOG_INFO, "health and metrics on %s", s->admin_url);
    return 0;
}

/* ---- running ------------------------------------------------------------------------------- */

/* To a person at a terminal: a first request that can be copied, and the page. */
static void show_first_call(const struct serve *s)
{
    char where[512];
    bool tls = s->tls_cert != NULL;
    if (!isatty(STDERR_FILENO)) return;
    if (strncmp(s->url, "unix:", 5) == 0)
        snprintf(where, sizeof(where), "--unix-socket %s http://localhost", s->url + 5);
    else if (strstr(s->url, "//0.0.0.0:") || strstr(s->url, "//[::]:"))
        snprintf(where, sizeof(where), "http%s://127.0.0.1%s", tls ? "s" : "",
                 strrchr(s->url, ':'));
    else
        snprintf(where, sizeof(where), "%s", s->url);
    srv_log(SRV_LOG_INFO,
            "try: curl %s%s%s/v1/chat/completions -H 'Content-Type: application/json' -d "
            "'{\"messages\": [{\"role\": \"user\", \"content\": \"What is 2+2?\"}]}'",
            tls ? "-k " : "",
            s->core.server.keys ? "-H \"Authorization: Bearer $HEARTH_API_KEY\" " : "", where);
    if (s->config->page && strncmp(where, "http", 4) == 0)
        srv_log(SRV_LOG_INFO, "chat in a browser: %s/", where);
}

static void announce_drafts(const struct eng_memory *m)
{
    const double mib = 1048576.0;
    if (m->draft_bytes)
        srv_log(SRV_LOG_INFO, "drafts: the draft model is being loaded in the background, %.0f MiB",
                (double)m->draft_bytes / mib);
    if (m->twin_bytes)
        srv_log(SRV_LOG_INFO,
                "drafts: a 4-bit twin of the weights is being loaded in the background, %.0f MiB",
                (double)m->twin_bytes / mib);
    if (m->no_twin_bytes)
        srv_log(SRV_LOG_INFO,
                "drafts: no 4-bit twin of the weights: no room for its %.0f MiB; decoding is as "
                "fast as with --speculate lookup; --memory gives more",
                (double)m->no_twin_bytes / mib);
}

/* A model and the memory that it takes, on one line. */
static void describe(const struct srv_model *model, char *buf, size_t size)
{
    const struct eng_info *i = eng_info(model->engine);
    const double mib = 1048576.0;
    snprintf(
        buf, size,
        "model=%s numerics=%s kernels=%s gemm=%s threads=%d parallel=%d ctx=%lld "
        "weights=%.0fMiB kv=%.0fMiB states=%.0fMiB scratch=%.0fMiB logits=%.0fMiB answers=%.0fMiB "
        "requests=%.0fMiB other=%.0fMiB limit=%.0fMiB load=%.2fs",
        model->names[0], i->numerics, i->kernels, i->gemm, i->n_threads, i->n_parallel,
        (long long)srv_model_longest(model), (double)i->memory.weights_bytes / mib,
        (double)i->memory.kv_bytes / mib, (double)i->memory.state_bytes / mib,
        (double)i->memory.scratch_bytes / mib, (double)i->memory.logits_bytes / mib,
        (double)i->memory.answer_bytes / mib, (double)i->memory.request_bytes / mib,
        (double)i->memory.other_bytes / mib, (double)i->memory.limit_bytes / mib, i->load_seconds);
}

static void announce_model(const struct serve *s, struct srv_model *model)
{
    const struct eng_info *i = eng_info(model->engine);
    char text[640];
    describe(model, text, sizeof(text));
    if (model->entry == 0)
        srv_log(SRV_LOG_INFO, "ready on %s %s", s->url, text);
    else
        srv_log(SRV_LOG_INFO, "loaded %s", text);
    if (model->entry == 0 && i->bf16_rate > 0)
        srv_log(SRV_LOG_INFO, "kernels: the bf16 dot product measured at %.2f of f32 products: %s",
                i->bf16_rate,
                i->bf16_rate < 1 ? "avx512bf16 is slower here and not taken" : "avx512bf16");
    if (i->coded_rate > 0 || i->plain_rate > 0)
        srv_log(
            SRV_LOG_INFO,
            "weights: %s, read %lld bytes ahead; measured 10^9 per second: %.1f coded, %.1f plain",
            i->weights_coded ? "bf16 in 12 bits" : "not coded", (long long)i->read_ahead_bytes,
            i->coded_rate * 1e-9, i->plain_rate * 1e-9);
    if (!i->repeatable)
        srv_log(SRV_LOG_WARNING,
                "no call of OpenBLAS was found that gives a row of %s the same bits at every place "
                "of a batch: answers may depend on the requests that run at the same time; use "
                "--gemm native",
                i->gemm);
    if (model->is_demo)
        srv_log(SRV_LOG_WARNING, "this is the demo model, a toy that tells short stories; "
                                 "serve a real one with --model DIR or --model org/name");
    announce_drafts(&i->memory);
}

/* The first model comes last, with the line that says that all is ready. */
static void announce_ready(struct serve *s)
{
    struct srv_models *models = &s->core.app.models;
    for (int i = s->config->n_more; i >= 0; i--) {
        struct srv_model *model = srv_models_of(models, i);
        if (!model) continue;
        announce_model(s, model);
        srv_model_release(model, false);
    }
    struct srv_model *first = srv_models_of(models, 0);
    if (!first) srv_log(SRV_LOG_INFO, "ready on %s", s->url);
    show_first_call(s);
    srv_notify("READY=1\nSTATUS=Serving %s on %s", first ? first->names[0] : "on demand", s->url);
    srv_model_release(first, false);
}

/* Names of models after a key that are of none now: a folder's models come and go. */
static void warn_if_missing(void *ctx, const char *models, int line)
{
    struct serve *s = ctx;
    for (; *models; models += strlen(models) + 1)
        if (srv_models_find(&s->core.app.models, models) < 0)
            srv_log(SRV_LOG_WARNING, "api-key-file line %d: there is no model '%.100s' now", line,
                    models);
}

/* The loader has ended. Returns 0 to go on, -1 with err if it failed. */
static int finish_loading(struct serve *s, char *err, size_t errlen)
{
    uint64_t count;
    if (read(s->core.loaded_fd, &count, sizeof(count)) != sizeof(count))
        return 0; /* not yet, after all */
    int status = srv_loader_result(s->core.loader, err, errlen);
    if (status) s->status = status;
    if (status) return -1;
    s->loaded = true;
    srv_keys_each_list(s->core.server.keys, warn_if_missing, s);
    if (s->config->memory_lock && mlockall(MCL_CURRENT | MCL_FUTURE))
        srv_log(SRV_LOG_WARNING, "memory-lock: %s", strerror(errno));
    if (!s->http && start_serving(s, err, errlen)) return -1;
    if (atomic_load(&s->core.app.state) == SRV_READY) announce_ready(s);
    return 0;
}

/* All engines, as the main thread sees them. */
struct engines {
    uint64_t now_us, limit_us;
    int n_sequences; /* running and waiting */
    bool stalled;
};

/* Once the draft model has been loaded, or not, or was given up. */
static void note_draft_model(struct srv_model *model)
{
    const char *why = "";
    enum eng_draft_state state = eng_draft_state(model->engine, &why);
    if (state == ENG_DRAFTS_FAILED && model->draft_noted != ENG_DRAFTS_FAILED)
        srv_log(SRV_LOG_ERROR, "drafts: %s; the server works on without it", why);
    if (state == ENG_DRAFTS_ON && model->draft_noted != ENG_DRAFTS_ON)
        srv_log(SRV_LOG_INFO, "drafts: %s drafts for %s", model->draft_name, model->names[0]);
    model->draft_noted = state;
}

static void look_at_engine(void *ctx, struct srv_model *model)
{
    struct engines *seen = ctx;
    struct eng_stats stats;
    eng_stats(model->engine, &stats);
    note_draft_model(model);
    int n = stats.n_running + stats.n_waiting;
    seen->n_sequences += n;
    if (srv_watchdog_look(&model->watchdog, seen->now_us, n > 0, stats.n_steps, seen->limit_us))
        seen->stalled = true;
}

/* Looks at the engines: do they step? Tells systemd so, at half the interval it asks for. */
static void monitor(struct serve *s)
{
    struct engines seen = {.now_us = clock_now_us(),
                           .limit_us = (uint64_t)s->config->watchdog_ms * 1000};
    srv_models_each(&s->core.app.models, look_at_engine, &seen);
    srv_models_tick(&s->core.app.models);
    bool was = atomic_load(&s->core.server.stalled);
    atomic_store(&s->core.server.stalled, seen.stalled);
    atomic_store(&s->core.server.monitor_us, seen.now_us);
    if (seen.stalled && !was)
        srv_log(SRV_LOG_ERROR, "%d sequences are waiting and no engine step has finished for %d ms",
                seen.n_sequences, s->config->watchdog_ms);
    if (was && !seen.stalled) srv_log(SRV_LOG_INFO, "the engine is running again");
    if (!s->notify_us || seen.stalled || seen.now_us - s->notified_us < s->notify_us / 2) return;
    srv_notify("WATCHDOG=1");
    s->notified_us = seen.now_us;
}

static void pause_engine(void *ctx, struct srv_model *model)
{
    eng_debug_pause(model->engine, *(const bool *)ctx);
}

static void drain_engine(void *ctx, struct srv_model *model)
{
    eng_drain(model->engine);
}

/* Once the last request has gone, what malloc keeps for the next ones goes back to the system. */
static void give_memory_back(struct serve *s)
{
    uint64_t now_us = clock_now_us(), n = atomic_load(&s->core.server.n_requests_ever);
    if (atomic_load(&s->core.server.n_requests) > 0 || n == s->n_trimmed_at) {
        s->idle_since_us = 0;
        return;
    }
    if (!s->idle_since_us) s->idle_since_us = now_us;
    if (now_us - s->idle_since_us < TRIM_AFTER_US) return;
    heap_trim();
    s->n_trimmed_at = n;
}

/* Pages that a removed key computed are not left on disk. */
static void on_key_changed(void *ctx, const uint8_t *digest, bool is_valid)
{
    struct serve *s = ctx;
    srv_kv_ban(s->core.app.kv_bans, digest, !is_valid);
}

static void reload_keys(struct serve *s)
{
    const struct {
        struct srv_keys *keys;
        const char *what, *option, *file;
    } sets[] = {
        {s->core.server.keys, "API", "api-key-file", s->config->api_key_file},
        {s->core.server.operator_keys, "operator", "operator-key-file",
         s->config->operator_key_file},
    };
    char err[512];
    srv_notify("RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)clock_now_us());
    for (int i = 0; i < 2; i++) {
        if (i == 1 && !sets[i].keys) continue;
        if (srv_keys_reload(sets[i].keys, i == 0 ? on_key_changed : NULL, s, err, sizeof(err))) {
            srv_log(SRV_LOG_ERROR, "the %s keys are unchanged: %s", sets[i].what, err);
        } else {
            srv_log(SRV_LOG_INFO, "read the %s keys again", sets[i].what);
            warn_if_exposed(sets[i].option, sets[i].file);
            if (i == 0) srv_keys_each_list(sets[i].keys, warn_if_missing, s);
        }
    }
    srv_notify("READY=1");
}

/* Handles what is not about ending. Returns the signal when it asks for the end, else 0. */
static int handle_signal(struct serve *s)
{
    struct signalfd_siginfo info;
    bool there = read(s->signal_fd, &info, sizeof(info)) == sizeof(info);
    int sig = there ? (int)info.ssi_signo : 0;
    if (sig == SIGHUP) reload_keys(s);
    if (sig == SIGHUP && s->config->models_dir) srv_models_post(&s->core.app.models, SRV_TASK_SCAN);
    if (sig == SIGUSR1 && s->config->debug_hooks && s->loaded) {
        s->paused = !s->paused;
        srv_models_each(&s->core.app.models, pause_engine, &s->paused);
        srv_log(SRV_LOG_WARNING, "debug hook: the engine is %s", s->paused ? "paused" : "running");
    }
    return sig == SIGTERM || sig == SIGINT ? sig : 0;
}

/* systemd gives more time as long as it hears that loading continues. */
static void notify_loading(struct serve *s)
{
    uint64_t now_us = clock_now_us();
    if (now_us - s->loading_notified_us < LOADING_NOTICE_US) return;
    s->loading_notified_us = now_us;
    if (srv_pull_note(s->core.app.pull)) return;
    srv_notify("EXTEND_TIMEOUT_USEC=%d\nSTATUS=Loading the model", 6 * LOADING_NOTICE_US);
}

/* Until a signal asks for the end (returns 0) or loading fails (returns -1 with err). */
static int run(struct serve *s, char *err, size_t errlen)
{
    struct pollfd fds[] = {{.fd = s->signal_fd, .events = POLLIN},
                           {.fd = s->core.loaded_fd, .events = POLLIN}};
    for (;;) {
        poll(fds, s->loaded ? 1 : 2, TICK_MS);
        if (!s->loaded && (fds[1].revents & POLLIN) && finish_loading(s, err, errlen)) return -1;
        if ((fds[0].revents & POLLIN) && handle_signal(s)) return 0;
        if (!s->http && clock_now_us() >= s->hold_until_us && start_serving(s, err, errlen))
            return -1;
        monitor(s);
        give_memory_back(s);
        if (!s->loaded) notify_loading(s);
    }
}

/* ---- the end ------------------------------------------------------------------------------- */

/* One look around while waiting: the engine, and a signal, which is returned when it asks for the
 * end. */
static int tick(struct serve *s, int ms)
{
    struct pollfd fd = {.fd = s->signal_fd, .events = POLLIN};
    poll(&fd, 1, ms);
    monitor(s);
    return fd.revents & POLLIN ? handle_signal(s) : 0;
}

/*
 * Waits until no request lives, at most so long. A second signal ends the process, unless the last
 * answers are on their way out just then.
 */
static bool wait_for_requests(struct serve *s, int limit_ms)
{
    uint64_t end_us = clock_now_us() + (uint64_t)limit_ms * 1000;
    int sig = 0;
    while (atomic_load(&s->core.server.n_requests) > 0 && clock_now_us() < end_us) {
        int again = tick(s, DRAIN_TICK_MS);
        if (!again || sig) continue;
        sig = again;
        end_us = clock_now_us() + SECOND_SIGNAL_GRACE_MS * 1000;
    }
    bool ended = atomic_load(&s->core.server.n_requests) == 0;
    if (sig && !ended) end_process(128 + sig);
    return ended;
}

/* Our own socket file; that of a service manager stays. */
static void remove_socket_file(struct serve *s)
{
    if (s->config->unix_socket && s->inherited_fd < 0 && s->listen_fd >= 0)
        unlink(s->config->unix_socket);
    s->listen_fd = -1;
}

/* The delay before the sockets close: load balancers need time to see that we are not ready. */
static void wait_delay(struct serve *s)
{
    uint64_t end_us = clock_now_us() + (uint64_t)s->config->drain_delay_ms * 1000;
    for (uint64_t now_us; (now_us = clock_now_us()) < end_us;) {
        uint64_t left_ms = (end_us - now_us) / 1000 + 1;
        int sig = tick(s, left_ms < TICK_MS ? (int)left_ms : TICK_MS);
        if (sig) end_process(128 + sig);
    }
}

/*
 * systemd's socket goes on with the next server, so a client whose connection was taken in the last
 * moment cannot know that it was: its request is still served. Signals wait for the next step.
 */
static void wait_for_heads(struct serve *s)
{
    uint64_t end_us = clock_now_us() + FIRST_REQUEST_MS * 1000;
    do {
        poll(NULL, 0, DRAIN_TICK_MS);
        monitor(s);
    } while (srv_watch_n_connections(s->core.server.watch) >
                 atomic_load(&s->core.server.n_requests) &&
             clock_now_us() < end_us);
}

static void drain(struct serve *s)
{
    struct srv_server *server = &s->core.server;
    int n = atomic_load(&server->n_requests);
    atomic_store(&s->core.app.state, SRV_DRAINING);
    batches_stop(s->core.app.batches);
    srv_models_stop(&s->core.app.models);
    srv_log(SRV_LOG_INFO, "draining: %d requests have %d ms to finish", n,
            s->config->drain_timeout_ms);
    srv_notify("STOPPING=1\nSTATUS=Draining\nEXTEND_TIMEOUT_USEC=%llu",
               1000ull * (unsigned)(s->config->drain_delay_ms + s->config->drain_timeout_ms +
                                    STOPPED_GRACE_MS + GONE_GRACE_MS));
    wait_delay(s);
    srv_http_quiesce(s->http);
    if (s->inherited_fd >= 0) wait_for_heads(s);
    atomic_store(&server->refusing, true);
    remove_socket_file(s);
    srv_watch_close_idle(server->watch, true);
    if (wait_for_requests(s, s->config->drain_timeout_ms)) return;

    srv_log(SRV_LOG_WARNING, "the drain time is over: stopping %d requests",
            atomic_load(&server->n_requests));
    srv_models_each(&server->app->models, drain_engine, NULL);
    compile_queue_close(server->app->compiles);
    srv_watch_visit(server->watch, srv_request_stop);
    bool paused = false; /* a paused engine would end no job */
    srv_models_each(&server->app->models, pause_engine, &paused);
    if (wait_for_requests(s, STOPPED_GRACE_MS)) return;
    srv_watch_visit(server->watch, srv_request_gone);
    srv_watch_close_all(server->watch);
    if (!wait_for_requests(s, GONE_GRACE_MS)) {
        srv_log(SRV_LOG_ERROR, "%d requests did not end", atomic_load(&server->n_requests));
        end_process(EXIT_FAILURE);
    }
}

/* Order matters: no connection may be suspended when the daemons stop, no job may live without its
 * request. */
static void close_parts(struct serve *s)
{
    struct srv_server *server = &s->core.server;
    if (s->http) srv_http_stop(s->http);
    if (s->admin) srv_http_stop(s->admin);
    srv_watch_destroy(server->watch);
    batches_destroy(s->core.app.batches); /* its lines are no requests any longer */
    if (!srv_core_close(&s->core)) end_process(s->status);
    srv_keys_destroy(server->keys);
    srv_keys_destroy(server->operator_keys);
    srv_pull_destroy(server->app->pull);
    free(s->tls_cert);
    free(s->tls_key);
    if (s->signal_fd >= 0) close(s->signal_fd);
}

static void init(struct serve *s, const struct srv_config *config)
{
    *s = (struct serve){.config = config,
                        .signal_fd = -1,
                        .inherited_fd = -1,
                        .listen_fd = -1,
                        .status = EXIT_FAILURE};
    srv_core_init(&s->core, config);
}

static int fail(struct serve *s, const char *err)
{
    srv_log(SRV_LOG_ERROR, "%s", err);
    remove_socket_file(s);
    close_parts(s);
    srv_log_flush(LOG_FLUSH_MS);
    return s->status;
}

/* Not by opening the sockets: the server that is to be restarted may hold them. */
static int check_addresses(const struct srv_config *c, char *err, size_t errlen)
{
    if (c->metrics_port >= 0 && srv_listen_check_host(c->metrics_host, err, errlen)) return -1;
    if (c->unix_socket) return srv_listen_check_path(c->unix_socket, err, errlen);
    return srv_listen_check_host(c->host, err, errlen);
}

int srv_serve_check_plan(const struct srv_config *config, char *err, size_t errlen)
{
    static struct srv_plan plans[SRV_MAX_MODELS + 1];
    int rc = srv_catalogue_plan(config, config->model, plans, err, errlen);
    for (int i = 0; i <= config->n_more; i++)
        free(plans[i].names.items);
    return rc ? -1 : 0;
}

int srv_serve_check(const struct srv_config *config)
{
    char err[1024] = "";
    struct serve s;
    init(&s, config);
    srv_log_init("text", "warning");
    if (check_addresses(config, err, sizeof(err)) || read_secrets(&s, err, sizeof(err)))
        return fail(&s, err);
    if (s.tls_key && srv_http_check_tls(s.tls_cert, s.tls_key, err, sizeof(err)))
        return fail(&s, err);
    close_parts(&s);
    return EXIT_SUCCESS;
}

int srv_cmd_serve(const struct srv_config *config)
{
    char err[1024] = "";
    struct serve s;
    init(&s, config);
    s.notify_us = srv_notify_watchdog_us();
    heap_limit(MALLOC_ARENAS, MMAP_BYTES);
    srv_log_init(config->log_format, config->log_level);
    s.core.server.max_connections = fit_connections(config);

    if (config->pull) {
        s.status = srv_pull_create(&s.core.app.pull, config, err);
        if (s.status) return fail(&s, err);
        s.status = EXIT_FAILURE;
    }
    if (srv_notify_listen_fd(&s.inherited_fd, err, sizeof(err)) ||
        open_signals(&s, err, sizeof(err)) || start_log(&s, err, sizeof(err)) ||
        read_secrets(&s, err, sizeof(err)) || create_parts(&s, err, sizeof(err)))
        return fail(&s, err);
    if (start_listening(&s, err, sizeof(err))) return fail(&s, err);
    if (srv_loader_start(&s.core.loader, &s.core.app, s.core.cores, s.core.loaded_fd, err,
                         sizeof(err)))
        return fail(&s, err);
    if (run(&s, err, sizeof(err))) return fail(&s, err);
    if (!s.loaded) {
        /* Asked to end while loading: nothing runs that could be lost, and loading cannot be
         * stopped. */
        remove_socket_file(&s);
        srv_loader_abandon(s.core.loader);
        end_process(EXIT_SUCCESS);
    }
    drain(&s);
    srv_log(SRV_LOG_INFO, "stopped");
    s.status = EXIT_SUCCESS;
    close_parts(&s);
    srv_log_flush(LOG_FLUSH_MS);
    return EXIT_SUCCESS;
}
