/* SPDX-License-Identifier: MIT */
/*
 * Entry: read the configuration, find the model, run the subcommand. Everything here happens on the
 * main thread, before any other thread exists.
 */
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/file.h"
#include "base/shown.h"
#include "engine/engine.h"
#include "server/api/read/body.h"
#include "server/models/budget.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "server/models/lookup.h"
#include "server/hub/settings.h"
#include "server/hub/pull_run.h"

/* CacheDirectory= of the service's unit. */
#define SERVICE_CACHE "/var/cache/hearth"
#define SERVICE_USER "hearth"

static int (*const commands[SRV_CMD_COUNT])(const struct srv_config *config) = {
    [SRV_CMD_SERVE] = srv_cmd_serve,     [SRV_CMD_GENERATE] = srv_cmd_generate,
    [SRV_CMD_BENCH] = srv_cmd_bench,     [SRV_CMD_BATCH] = srv_cmd_batch,
    [SRV_CMD_INSPECT] = srv_cmd_inspect, [SRV_CMD_HEALTHCHECK] = srv_cmd_healthcheck,
    [SRV_CMD_PULL] = srv_cmd_pull,       [SRV_CMD_LIST] = srv_cmd_list,
    [SRV_CMD_CHAT] = srv_cmd_chat,       [SRV_CMD_RM] = srv_cmd_rm,
    [SRV_CMD_EMBED] = srv_cmd_embed,     [SRV_CMD_RERANK] = srv_cmd_rerank,
    [SRV_CMD_KV] = srv_cmd_kv,
};

static void print_version(void)
{
    printf("hearth %s (commit %s)\nnumeric paths:", HEARTH_VERSION, srv_commit);
    for (const char *const *name = eng_path_names(); *name; name++)
        printf(" %s", *name);
    printf("\nkernel levels:");
    for (const char *const *name = kern_names(); *name; name++)
        printf(" %s", *name);
    printf("\n");
}

static bool needs_weights(enum srv_command command)
{
    return command == SRV_CMD_SERVE || command == SRV_CMD_GENERATE || command == SRV_CMD_BENCH ||
           command == SRV_CMD_BATCH || command == SRV_CMD_CHAT || command == SRV_CMD_EMBED ||
           command == SRV_CMD_RERANK;
}

static bool needs_model(const struct srv_config *c)
{
    return !c->chat_url && c->command != SRV_CMD_HEALTHCHECK && c->command != SRV_CMD_PULL &&
           c->command != SRV_CMD_LIST && c->command != SRV_CMD_RM && c->command != SRV_CMD_KV;
}

/* Puts a text in place of an option's. Returns the exit status. */
static int replace(const char **option, const char *text)
{
    if (srv_config_replace(option, text) == 0) return EXIT_SUCCESS;
    fprintf(stderr, "hearth: out of memory\n");
    return EXIT_FAILURE;
}

/* A model's web address becomes its name. Returns the exit status. */
static int take_address(struct srv_config *c)
{
    char name[1024];
    int found =
        c->model ? hub_name_from_address(c->model, getenv("HF_ENDPOINT"), name, sizeof(name)) : 0;
    if (found < 0)
        shown_line(stderr, "hearth: %s is not on the hub that is used; HF_ENDPOINT names another",
                   c->model);
    if (found < 0) return SRV_EXIT_USAGE;
    return found ? replace(&c->model, name) : EXIT_SUCCESS;
}

/* Stores the directory next to the name that was given. Returns the exit status. */
static int set_model(struct srv_config *c, const char *dir)
{
    c->model_shown = c->model;
    c->model = NULL;
    return replace(&c->model, dir);
}

/* Fetches the model; the loader of serve does that by itself. Returns the exit status. */
static int pull_model(struct srv_config *c)
{
    char dir[PATH_MAX];
    if (c->command == SRV_CMD_SERVE && !c->is_further) return set_model(c, c->model);
    int status = pull_run(c, true, dir, sizeof(dir));
    return status ? status : set_model(c, dir);
}

/* Whether --pull fetches it: it is neither a directory nor carried with the program. */
static bool is_on_hub(const char *spec)
{
    return !srv_hub_is_carried(spec) && !strchr("/.", spec[0]) && !srv_hub_is_here(spec);
}

/* --check-config cannot look at what --pull has yet to fetch. */
static int say_fetched_later(const char *name)
{
    fprintf(stderr, "hearth: %s is fetched at the start; it is not here to be checked\n", name);
    return EXIT_SUCCESS;
}

/* --draft-model as given -> a directory, fetched first with --pull. Returns the exit status. */
static int find_draft_model(struct srv_config *c, bool pull)
{
    char dir[PATH_MAX], err[1024];
    c->draft_shown = c->draft_model;
    c->draft_model = NULL;
    pull = pull && is_on_hub(c->draft_shown);
    if (pull && !c->check_config) {
        struct srv_config own = *c;
        own.model = c->draft_shown;
        int status = pull_run(&own, true, dir, sizeof(dir));
        if (status) return status;
    }
    int rc = srv_hub_resolve(c->draft_shown, NULL, dir, sizeof(dir), err, sizeof(err));
    if (rc && pull && hub_name_parse(&(struct hub_name){0}, c->draft_shown, dir) == 0)
        return say_fetched_later(c->draft_shown);
    if (!rc && !srv_hub_check(dir, err, sizeof(err))) return replace(&c->draft_model, dir);
    shown_line(stderr, "hearth: draft-model: %s", err);
    return EXIT_FAILURE;
}

/* --tokenizer as given -> a directory, fetched first with --pull. Returns the exit status. */
static int find_tokenizer(struct srv_config *c, bool pull)
{
    char dir[PATH_MAX], err[1024];
    struct srv_config own = *c;
    own.model = c->tokenizer;
    own.text_only = true;
    if (pull && is_on_hub(c->tokenizer) && !c->check_config) {
        int status = pull_run(&own, true, dir, sizeof(dir));
        if (status) return status;
    } else if (srv_hub_find_tokenizer(c->tokenizer, NULL, dir, sizeof(dir), err, sizeof(err))) {
        shown_line(stderr, "hearth: tokenizer: %s", err);
        return EXIT_FAILURE;
    }
    return replace(&c->tokenizer, dir);
}

/* --model as given -> a directory; without one the demo model. Returns the exit status. */
static int find_model(struct srv_config *c)
{
    char dir[PATH_MAX], err[1024];
    const char *spec = c->model ? c->model : "demo";
    bool is_carried = srv_hub_is_carried(spec);
    c->model_is_demo = !c->model || (is_carried && !strcmp(spec, "demo"));
    c->pull = c->pull && is_on_hub(spec);
    if (c->pull && !c->check_config) return pull_model(c);
    int rc = c->model_is_demo ? srv_hub_find_carried(spec, dir, sizeof(dir), err, sizeof(err))
                              : srv_hub_resolve(spec, NULL, dir, sizeof(dir), err, sizeof(err));
    if (!rc && needs_weights(c->command)) rc = srv_hub_check(dir, err, sizeof(err));
    if (!rc) c->pull = false;
    if (!rc) return set_model(c, dir);
    if (c->pull && hub_name_parse(&(struct hub_name){0}, c->model, dir) == 0)
        return say_fetched_later(c->model);
    shown_line(stderr, "hearth: %s", err);
    return EXIT_FAILURE;
}

/* The model and its draft model. Returns the exit status. */
static int find_models(struct srv_config *c)
{
    bool pull = c->pull;
    int status = take_address(c);
    if (!status && needs_model(c)) status = find_model(c);
    if (!status && c->draft_model) status = find_draft_model(c, pull);
    if (!status && c->tokenizer) status = find_tokenizer(c, pull);
    return status;
}

/*
 * --cache-dir goes where every reader of the cache looks. Without it, and if the environment names
 * none, root has the cache of the installed service: what `sudo hearth pull` fetches is for that.
 */
static int set_cache(const struct srv_config *c)
{
    static const char *const named[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                        "XDG_CACHE_HOME"};
    const char *dir = c->cache_dir;
    if (!dir && geteuid() == 0 && srv_hub_is_directory(SERVICE_CACHE)) {
        dir = SERVICE_CACHE "/hub";
        for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
            if (getenv(named[i])) dir = NULL;
        if (dir && c->command == SRV_CMD_PULL)
            fprintf(stderr, "hearth: pulling into the service's cache, %s\n", dir);
    }
    if (!dir || setenv("HF_HUB_CACHE", dir, 1) == 0) return EXIT_SUCCESS;
    fprintf(stderr, "hearth: out of memory\n");
    return EXIT_FAILURE;
}

/*
 * --check-config of serve looks with the eyes of the user that will serve, since root may read what
 * the service may not. *ret_user: that user, or NULL for the one who asks. Returns the exit status.
 */
static int become_checked_user(const struct srv_config *c, const char **ret_user)
{
    char reason[500];
    bool by_default = !c->user && c->command == SRV_CMD_SERVE && c->check_config && !geteuid();
    const char *name = by_default ? SERVICE_USER : c->user;
    const struct passwd *user = name ? getpwnam(name) : NULL;
    *ret_user = NULL;
    if (!name || (by_default && !user)) return EXIT_SUCCESS;
    if (!c->check_config) {
        fprintf(stderr, "hearth: --user is for --check-config alone\n");
    } else if (!user) {
        shown_line(stderr, "hearth: --user: there is no user '%s'", name);
    } else if (user->pw_uid != geteuid() &&
               (initgroups(name, user->pw_gid) || setgid(user->pw_gid) || setuid(user->pw_uid))) {
        fprintf(stderr, "hearth: --user: only root can check as %s\n", name);
    } else if (c->config_file && eaccess(c->config_file, R_OK)) {
        shown_line(stderr, "hearth: %s: %s", c->config_file,
                   file_reason(c->config_file, reason, sizeof(reason)));
        return EXIT_FAILURE;
    } else {
        *ret_user = name;
        return EXIT_SUCCESS;
    }
    return SRV_EXIT_USAGE;
}

static int answer_and_exit(const struct srv_config *c)
{
    char err[512];
    if (c->help) {
        srv_config_print_help(stdout, c->command);
    } else if (c->version) {
        print_version();
    } else if (srv_config_print(stdout, c, err, sizeof(err))) {
        shown_line(stderr, "hearth: %s", err);
        return SRV_EXIT_USAGE;
    }
    return ferror(stdout) || fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* serve logs the warnings itself, once its log is set up; a health check does not print them. */
static void print_warnings(const struct srv_config *c)
{
    bool runs = !c->check_config && !c->print_config;
    if (c->help || c->version || c->command == SRV_CMD_HEALTHCHECK) return;
    if (c->command == SRV_CMD_SERVE && runs) return;
    for (int i = 0; i < c->warnings.n; i++)
        shown_line(stderr, "hearth: warning: %s", c->warnings.items[i]);
}

/* --check-config: the checks that the subcommand makes before its work begins. */
static int check(const struct srv_config *c, const char *user)
{
    char err[1024];
    bool serves = c->command == SRV_CMD_SERVE;
    int status = serves ? srv_serve_check(c) : EXIT_SUCCESS;
    if (status == EXIT_SUCCESS && needs_weights(c->command) && needs_model(c) && !c->pull &&
        (srv_inspect_check(c, err, sizeof(err)) ||
         (serves && srv_serve_check_plan(c, err, sizeof(err))))) {
        shown_line(stderr, "hearth: %s", err);
        status = EXIT_FAILURE;
    }
    if (status != EXIT_SUCCESS) return status;
    printf("the configuration is valid%s%s\n", user ? " for user " : "", user ? user : "");
    if (serves && !user && geteuid() == 0 && (c->config_file || !c->model_is_demo))
        fprintf(stderr, "hearth: root can read everything: whether the server's own user can read "
                        "these files was not checked; --user NAME does\n");
    return EXIT_SUCCESS;
}

/*
 * Descriptors 0 to 2 that the caller left closed would go to the next files and sockets opened, and
 * log lines into those.
 */
static int open_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return -1;
    return 0;
}

int main(int argc, char **argv)
{
    if (open_standard_descriptors()) return EXIT_FAILURE;
    /*
     * The BLAS library reads this variable when it is loaded, which happens later. Our own threads
     * divide the work; a pool of its own would only take cores from them.
     */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    srv_json_watch_memory();
    /* A container's first process gets all orphans; the kernel reaps what nobody waits for, but
     * not those that have ended before. */
    if (getpid() == 1 && signal(SIGCHLD, SIG_IGN) != SIG_ERR)
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }

    char err[1024] = "";
    AUTO(srv_config_finish) struct srv_config config;
    const char *checked_user;
    if (srv_config_load(&config, argc, argv, NULL, err, sizeof(err))) {
        shown_line(stderr, "hearth: %s", err);
        return SRV_EXIT_USAGE;
    }
    if (srv_config_note_variables(&config, environ)) return SRV_EXIT_USAGE;
    for (int i = 0; !config.print_config && i <= config.n_more; i++)
        if (srv_budget_settle(i ? &config.more[i - 1] : &config)) return SRV_EXIT_USAGE;
    if (!config.print_config && config.found && srv_budget_settle(config.found))
        return SRV_EXIT_USAGE;
    print_warnings(&config);
    if (config.help || config.version || config.print_config) return answer_and_exit(&config);
    int status = set_cache(&config);
    if (!status) status = become_checked_user(&config, &checked_user);
    for (int i = 0; !status && i <= config.n_more; i++)
        status = find_models(i ? &config.more[i - 1] : &config);
    if (status) return status;
    return config.check_config ? check(&config, checked_user) : commands[config.command](&config);
}
