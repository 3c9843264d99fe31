/* SPDX-License-Identifier: MIT */
/*
 * hearth rm NAME: removes a model, all its revisions, from the Hugging Face cache, after asking on
 * the terminal. Its references go first and its contents last, so that a removal that is stopped
 * leaves no name that leads to half a model.
 */
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/shown.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "server/hub/hub_error.h"
#include "server/hub/settings.h"
#include "server/hub/pull_run.h"

enum { OPEN_FOLDERS = 16 };

static int64_t n_bytes; /* nftw hands no context to its callback */

static int count_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)path;
    (void)at;
    if (type == FTW_F) n_bytes += st->st_size;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

/* Removes what is below a path, and itself; one that is not there is removed already. */
static int remove_tree(const char *path)
{
    return nftw(path, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS) && errno != ENOENT ? -1 : 0;
}

static int remove_model(const char *root, const char *folder)
{
    static const char *const parts[] = {"/refs", "/snapshots", ""};
    char path[2 * PATH_MAX], reason[500];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s%s/%s%s", root, i < 3 ? "" : "/.locks", folder,
                 i < 3 ? parts[i] : "");
        if (remove_tree(path) == 0) continue;
        shown_line(stderr, "hearth: %s cannot be removed: %s", path,
                   file_reason(path, reason, sizeof(reason)));
        return -1;
    }
    return 0;
}

/* Returns true for yes. */
static bool ask(const char *name, const char *size, const char *root)
{
    char answer[8] = "";
    fprintf(stderr, "remove %s (%s) from %s? [y/N] ", name, size, root);
    return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

int srv_cmd_rm(const struct srv_config *config)
{
    char root[PATH_MAX], path[PATH_MAX + HUB_FOLDER_SIZE], folder[HUB_FOLDER_SIZE], size[32],
        err[HUB_ERR_SIZE] = "rm needs the name of a model, as `hearth list` shows it";
    struct hub_name name = {.has_revision = false};
    struct stat st;
    if (!config->model || hub_name_parse(&name, config->model, err) || name.has_revision) {
        shown_line(stderr, "hearth: %s",
                   config->model && name.has_revision
                       ? "rm removes all revisions of a model: leave out what follows @"
                       : err);
        return SRV_EXIT_USAGE;
    }
    if (hub_cache_root(NULL, root, sizeof(root))) {
        fprintf(stderr, "hearth: no place for models: set --cache-dir, HF_HUB_CACHE or HOME\n");
        return SRV_EXIT_USAGE;
    }
    hub_folder_name(name.repo, folder);
    snprintf(path, sizeof(path), "%s/%s", root, folder);
    if (lstat(path, &st) || !S_ISDIR(st.st_mode)) {
        shown_line(stderr, "hearth: %s is not in the cache (%s); `hearth list` shows what is",
                   name.repo, root);
        return -HUB_ENOTFOUND;
    }
    nftw(path, count_one, OPEN_FOLDERS, FTW_PHYS);
    pull_format_bytes(n_bytes, size, sizeof(size));
    if (!config->yes && !isatty(STDIN_FILENO)) {
        fprintf(stderr, "hearth: rm asks, and there is no terminal to ask on: -y says yes\n");
        return SRV_EXIT_USAGE;
    }
    if (!config->yes && !ask(name.repo, size, root)) {
        fprintf(stderr, "hearth: %s is kept\n", name.repo);
        return EXIT_FAILURE;
    }
    if (remove_model(root, folder)) return EXIT_FAILURE;
    printf("removed %s: %s\n", name.repo, size);
    return EXIT_SUCCESS;
}
