/* SPDX-License-Identifier: MIT */
/* hearth serve --check-config: addresses, secrets and exposure, and whether the memory suffices. */
#include "run_command.h"

#include <signal.h>
#include <sys/resource.h>

#include "server/bounds.h"
#include "server/models/budget.h"
#include "server/cli/cli.h"

static struct ran ran;

static const struct {
    const char *options, *err; /* NULL: valid */
} cases[] = {
    {"--host 127.0.0.1", NULL},
    {"--host 0.0.0.0 --allow-public-without-key", NULL},
    {"--host 0.0.0.0", "without an API key"},
    {"--host ::", "without an API key"},
    {"--metrics-port 9 --metrics-host 127.0.0.1", NULL},
    {"--metrics-port 9 --metrics-host 999.1", "host '999.1'"},
    {"--api-key-file /nonexistent", "api-key-file /nonexistent: cannot be opened"},
    {"--operator-key-file /nonexistent", "operator-key-file /nonexistent: cannot be opened"},
    {"--tls-cert-file /nonexistent --tls-key-file /nonexistent", "tls-cert-file /nonexistent"},
};

static void settings_are_judged_before_anything_opens(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[300];
        snprintf(line, sizeof(line), "serve --check-config %s", cases[i].options);
        run_command(&ran, srv_serve_check, line, "");
        REQUIRE_MSG((ran.status > 0) == !!cases[i].err, "%s: %s", line, ran.err);
        REQUIRE_MSG(!cases[i].err || strstr(ran.err, cases[i].err), "%s: %s", line, ran.err);
        REQUIRE_MSG(cases[i].err || !ran.err[0], "%s: %s", line, ran.err);
    }
}

static int check_plan(const struct srv_config *config)
{
    char err[1024] = "";
    int rc = srv_serve_check_plan(config, err, sizeof(err));
    REQUIRE((rc == 0) == (err[0] == '\0'));
    printf("%s\n", err);
    return rc ? 1 : 0;
}

static void the_plan_is_held_against_the_limit(void **state)
{
    char line[1200];
    (void)state;
    snprintf(line, sizeof(line), "serve --threads 1 --memory 10M --model %s", demo_dir());
    run_command(&ran, check_plan, line, "");
    REQUIRE_EQ_INT(ran.status, 1);
    REQUIRE_MSG(strstr(ran.out, "but the limit is 10 MiB"), "%s", ran.out);
    snprintf(line, sizeof(line), "serve --threads 1 --memory 1G --model %s", demo_dir());
    run_command(&ran, check_plan, line, "");
    REQUIRE_MSG(ran.status == 0, "%s", ran.out);
}

/* Starts a server that may have 100 descriptors; *ret_log is its stderr. */
static pid_t start(FILE **ret_log)
{
    static const struct rlimit few = {100, 100};
    char line[1200], err[512] = "";
    struct srv_config config;
    int ends[2], rc;
    snprintf(line, sizeof(line), "serve --threads 1 --port 0 --max-connections 200 --model %s",
             demo_dir());
    REQUIRE_MSG(load(&config, line, err, sizeof(err)) == 0, "%s", err);
    config.model_is_demo = true;
    REQUIRE(srv_budget_settle(&config) == 0 && pipe(ends) == 0);
    fflush(NULL);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        rc = setrlimit(RLIMIT_NOFILE, &few) ? 99 : srv_cmd_serve(&config);
        _exit(rc);
    }
    close(ends[1]);
    srv_config_finish(&config);
    *ret_log = fdopen(ends[0], "r");
    REQUIRE(*ret_log != NULL);
    return pid;
}

static void it_says_what_it_has_serves_and_drains(void **state)
{
    char line[2048] = "";
    int needed = 0, n = 0, status;
    FILE *log;
    (void)state;
    pid_t pid = start(&log);
    REQUIRE(fgets(line, sizeof(line), log));
    const char *message = strstr(line, "max-connections 200 needs ");
    REQUIRE_MSG(message && sscanf(message,
                                  "max-connections 200 needs %d file descriptors, the limit is "
                                  "100: %d connections",
                                  &needed, &n) == 2,
                "%s", line);
    /* those of both listeners, and some for files */
    REQUIRE(needed > 200 + SRV_CONNECTION_MARGIN + SRV_ADMIN_CONNECTIONS + 16 && n >= 1);
    while (!strstr(line, "ready on http://127.0.0.1:"))
        REQUIRE_MSG(fgets(line, sizeof(line), log), "after: %s", line);
    kill(pid, SIGTERM);
    while (!strstr(line, "\"stopped\""))
        REQUIRE_MSG(fgets(line, sizeof(line), log), "after: %s", line);
    REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    REQUIRE_EQ_INT(WEXITSTATUS(status), 0);
    fclose(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_judged_before_anything_opens),
        cmocka_unit_test(the_plan_is_held_against_the_limit),
        cmocka_unit_test(it_says_what_it_has_serves_and_drains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
