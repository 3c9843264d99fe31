/* SPDX-License-Identifier: MIT */
/*
 * The subcommands of the one executable. Each runs on the main thread before any other thread of
 * ours exists, reads its options from the finished configuration, and returns the exit status.
 * stdout carries the subcommand's product, stderr everything else.
 */
#pragma once

#include <stddef.h>

struct srv_config;

/* Exit statuses besides EXIT_SUCCESS and EXIT_FAILURE: the options exclude what is asked. */
enum { SRV_EXIT_USAGE = 2 };

/* Says why on stderr (base/shown.h). Returns the status. */
#define srv_cmd_fail(status, ...) (shown_line(stderr, "hearth: " __VA_ARGS__), (status))

/* The commit of the sources, for --version: defined in the executable, not in the library. */
extern const char srv_commit[];

int srv_cmd_serve(const struct srv_config *config);
int srv_cmd_generate(
    const struct srv_config *config); /* --prompt, -n: text as it comes, statistics to stderr */
int srv_cmd_bench(const struct srv_config *config);
int srv_cmd_batch(const struct srv_config *config); /* lines of requests to lines of answers */
int srv_cmd_inspect(const struct srv_config *config);
int srv_cmd_embed(const struct srv_config *config);
int srv_cmd_rerank(const struct srv_config *config);
int srv_cmd_healthcheck(const struct srv_config *config);
int srv_cmd_pull(const struct srv_config *config); /* a model from the hub into the cache */
int srv_cmd_chat(const struct srv_config *config); /* a conversation on the terminal */
int srv_cmd_list(const struct srv_config *config); /* the models in the cache */
int srv_cmd_rm(const struct srv_config *config);   /* a model out of it */
int srv_cmd_kv(const struct srv_config *config);   /* the pages in a directory of --kv-disk */

/*
 * For --check-config. The first looks at keys, exposure and certificates of serve, logs what is
 * wrong and returns an exit status; the second looks at the model directory as inspect does, the
 * third at what serve would compute and at the memory for it; both return 0, or -1 with the first
 * problem in err.
 */
int srv_serve_check(const struct srv_config *config);
int srv_inspect_check(const struct srv_config *config, char *err, size_t errlen);
int srv_serve_check_plan(const struct srv_config *config, char *err, size_t errlen);
