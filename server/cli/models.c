/* SPDX-License-Identifier: MIT */
/*
 * The models of the Hugging Face cache, on the main thread:
 *
 *   hearth pull NAME[@REVISION]  fetches one from the hub; stdout gets the snapshot's path, as
 *                                `hf download` prints it; --dry-run: a list of files
 *   hearth list                  a line for each, with how much of it is there and whether it could
 *                                be served; --json: an object per line
 *   hearth rm NAME               removes one, all its revisions, after asking on the terminal; of
 *                                NAME:TAG the files in GGUF alone. References go first and contents
 *                                last, so that a removal that is stopped leaves no name that leads
 *                                to half a model
 */
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/gguf_names.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "server/hub/cache.h"
#include "server/hub/inventory.h"
#include "server/hub/pull_run.h"
#include "tokenizer/tokenizer.h"

enum { ROW_MAX_BYTES = 64 << 10, OPEN_FOLDERS = 16 };

static int end_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return EXIT_SUCCESS;
    return srv_cmd_fail(EXIT_FAILURE, "stdout cannot be written");
}

int srv_cmd_pull(const struct srv_config *config)
{
    char path[PATH_MAX] = "";
    if (!config->model)
        return srv_cmd_fail(SRV_EXIT_USAGE, "pull needs the name of a model, such as "
                                            "HuggingFaceTB/SmolLM2-135M-Instruct");
    int status = pull_run(config, false, path, sizeof(path));
    if (status) return status;
    if (!config->dry_run) printf("%s\n", path);
    return end_output();
}

/* ---- list ---------------------------------------------------------------------------------- */

#define ROW "%-40s  %-12.40s  %-12.12s  %8s  %-12s  %s%s"

struct list {
    int n; /* models so far */
    bool json;
};

static void print_row(const struct list *list, const struct hub_model *m)
{
    char size[32], state[32] = "complete";
    if (list->n == 0)
        printf(ROW "\n", "MODEL", "REVISION", "COMMIT", "SIZE", "STATE", "SERVED", "");
    pull_format_bytes(m->n_bytes, size, sizeof(size));
    if (!m->complete) snprintf(state, sizeof(state), "partial");
    if (!m->complete && m->percent >= 0)
        snprintf(state, sizeof(state), "partial %d %%", m->percent);
    /* A revision that is a commit is in the next column already, shortened. */
    shown_line(stdout, ROW, m->name, hub_is_commit(m->revision) ? "-" : m->revision, m->commit,
               size, state, m->servable ? "served" : "not served: ", m->servable ? "" : m->reason);
}

static void print_json(const struct hub_model *m)
{
    AUTO(buf_finish) struct buf b = {.max = ROW_MAX_BYTES};
    struct jw w = {.out = &b};
    jw_fields(
        &w, "{ name %s revision %s commit %s path %s bytes %jd complete %i servable %i reason %s }",
        m->name, m->revision, m->commit, m->path, m->n_bytes, m->complete, m->servable,
        m->servable ? NULL : m->reason);
    jw_end(&w);
    buf_puts(&b, "\n");
    if (!b.failed) fwrite(b.data, 1, b.len, stdout);
}

/* A GGUF file must say how text is split, too. */
static void print_model(void *ctx, const struct hub_model *found)
{
    struct list *list = ctx;
    struct hub_model m = *found;
    struct tok *tok = NULL;
    if (m.servable && gguf_is_name(m.path))
        m.servable = tok_open(&tok, m.path, m.reason, sizeof(m.reason)) == 0;
    tok_close(tok);
    if (list->json)
        print_json(&m);
    else
        print_row(list, &m);
    list->n++;
}

int srv_cmd_list(const struct srv_config *config)
{
    struct list list = {.json = config->json};
    char root[PATH_MAX], err[HUB_ERR_SIZE];
    int rc = hub_cache_root(NULL, root, sizeof(root), err);
    if (!rc) rc = hub_inventory_visit(root, print_model, &list, err);
    if (rc) return srv_cmd_fail(EXIT_FAILURE, "%s", err);
    if (list.n)
        shown_line(stderr, "hearth: %d of %s", list.n, root);
    else
        shown_line(stderr, "hearth: no models in %s; `hearth pull org/name` fetches one", root);
    return end_output();
}

/* ---- rm ------------------------------------------------------------------------------------ */

static int64_t n_bytes; /* nftw hands no context to its callback */

static int count_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    if (type == FTW_F) n_bytes += st->st_size;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
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
        return srv_cmd_fail(-1, "%s cannot be removed: %s", path,
                            file_reason(path, reason, sizeof(reason)));
    }
    return 0;
}

/* One file of a snapshot, and the blob that it leads to. */
static int remove_file(const char *path, const char *repo)
{
    char blob[PATH_MAX];
    bool linked = realpath(path, blob) && strncmp(blob, repo, strlen(repo)) == 0;
    return unlink(path) || (linked && unlink(blob) && errno != ENOENT) ? -1 : 0;
}

/* Counts, or removes, what a tag means in each snapshot. Returns bytes, or -1. */
static int64_t remove_tag(const struct hub_cache *c, const struct hub_name *name, bool removes)
{
    char repo[PATH_MAX + HUB_FOLDER_SIZE + 2], path[2 * PATH_MAX + HUB_PATH_MAX], err[HUB_ERR_SIZE];
    int64_t n = 0;
    DIR *dir = hub_folder_read(c->repo_fd, "snapshots");
    snprintf(repo, sizeof(repo), "%s/%s/", c->root, c->folder);
    for (struct dirent *entry; dir && n >= 0 && (entry = readdir(dir));) {
        struct hub_listing l = {0};
        if (hub_is_commit(entry->d_name) && !hub_cache_read_tree(c, entry->d_name, true, &l))
            hub_choose(&l, name, err);
        for (size_t i = 0; i < l.n && n >= 0; i++) {
            const struct hub_file *f = &l.files[i];
            if (!f->wanted || !gguf_is_name(f->path) || !hub_cache_has(c, entry->d_name, f))
                continue;
            snprintf(path, sizeof(path), "%ssnapshots/%s/%s", repo, entry->d_name, f->path);
            n = removes && remove_file(path, repo) ? -1 : n + f->size;
        }
        hub_listing_finish(&l);
    }
    if (dir) closedir(dir);
    if (n < 0) shown_line(stderr, "hearth: %s cannot be removed: %s", path, strerror(errno));
    return n;
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
    char shown[HUB_REPO_SIZE + GGUF_TAG_SIZE];
    struct hub_name name = {.has_revision = false};
    struct hub_cache cache = {.root_fd = -1, .repo_fd = -1, .blobs_fd = -1};
    struct stat st;
    if (!config->model || hub_name_parse(&name, config->model, err) || name.has_revision)
        return srv_cmd_fail(SRV_EXIT_USAGE, "%s",
                            config->model && name.has_revision
                                ? "rm removes all revisions of a model: leave out what follows @"
                                : err);
    if (hub_cache_root(NULL, root, sizeof(root), err))
        return srv_cmd_fail(SRV_EXIT_USAGE, "%s", err);
    hub_folder_name(name.repo, folder);
    snprintf(path, sizeof(path), "%s/%s", root, folder);
    snprintf(shown, sizeof(shown), "%s%s%s", name.repo, *name.tag ? ":" : "", name.tag);
    bool there = lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (there && *name.tag && hub_cache_open(&cache, root, name.repo, err))
        return srv_cmd_fail(EXIT_FAILURE, "%s", err);
    if (there && *name.tag)
        n_bytes = remove_tag(&cache, &name, false);
    else if (there)
        nftw(path, count_one, OPEN_FOLDERS, FTW_PHYS);
    if (!there || (*name.tag && !n_bytes)) {
        shown_line(stderr, "hearth: %s is not in the cache (%s); `hearth list` shows what is",
                   shown, root);
        hub_cache_close(&cache);
        return -HUB_ENOTFOUND;
    }
    pull_format_bytes(n_bytes, size, sizeof(size));
    int status = EXIT_FAILURE;
    if (!config->yes && !isatty(STDIN_FILENO)) {
        fprintf(stderr, "hearth: rm asks, and there is no terminal to ask on: -y says yes\n");
        status = SRV_EXIT_USAGE;
    } else if (!config->yes && !ask(shown, size, root)) {
        fprintf(stderr, "hearth: %s is kept\n", shown);
    } else if (*name.tag ? remove_tag(&cache, &name, true) >= 0 : !remove_model(root, folder)) {
        printf("removed %s: %s\n", shown, size);
        status = EXIT_SUCCESS;
    }
    hub_cache_close(&cache);
    return status;
}
