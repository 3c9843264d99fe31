/* SPDX-License-Identifier: MIT */
/* Models of the cache; see inventory.h. */
#include "server/hub/inventory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "engine/engine.h"
#include "server/hub/cache.h"
#include "server/hub/settings.h"

enum { TAGS_MAX = 64, FOLDERS_MAX = 8, TREE_DEPTH = 4 };

struct visit {
    void (*fn)(void *ctx, const struct hub_model *m);
    void *ctx;
    struct hub_cache cache;
    struct hub_name name; /* repository and tag of the current one */
    struct hub_model model;
    struct hub_listing revisions; /* of the current repository, as paths */
};

/* ---- the first problem of a model ----------------------------------------------------------- */

static void note_problem(void *ctx, const char *sentence)
{
    struct hub_model *m = ctx;
    if (!m->reason[0]) snprintf(m->reason, sizeof(m->reason), "%s", sentence);
}

static void judge(struct hub_model *m)
{
    char tokenizer[PATH_MAX + 20];
    struct eng_inspector inspector = {.problem = note_problem, .ctx = m};
    snprintf(tokenizer, sizeof(tokenizer), "%s/tokenizer.json", m->path);
    if (m->reason[0]) return;
    if (!m->complete)
        snprintf(m->reason, sizeof(m->reason), "not complete");
    else if (eng_inspect(m->path, &inspector) && !m->reason[0])
        snprintf(m->reason, sizeof(m->reason), "the model cannot be read");
    else if (!m->reason[0] && !gguf_is_name(m->path) && access(tokenizer, R_OK))
        snprintf(m->reason, sizeof(m->reason), "it has no tokenizer.json");
    m->servable = !m->reason[0];
}

/* ---- how much is there ---------------------------------------------------------------------- */

static void add_bytes(void *sum, const char *path, int64_t n_bytes)
{
    *(int64_t *)sum += n_bytes;
}

/* By the listing: bytes of the files that belong to the model, parts included. */
static void measure(struct visit *v, struct hub_listing *l)
{
    struct hub_model *m = &v->model;
    int64_t n_total = 0;
    m->complete = true;
    for (size_t i = 0; i < l->n; i++) {
        const struct hub_file *f = &l->files[i];
        if (!f->wanted) continue;
        bool there = hub_cache_has(&v->cache, m->commit, f);
        n_total += f->size;
        m->n_bytes += hub_cache_bytes(&v->cache, m->commit, f);
        m->complete = m->complete && there;
    }
    const struct hub_file *index = hub_wanted_index(l);
    bool all_shards = !index || hub_cache_has(&v->cache, m->commit, index);
    m->complete = m->complete && all_shards;
    m->percent = n_total && all_shards ? (int)((double)m->n_bytes * 100 / (double)n_total) : -1;
}

/* One model of the snapshot; known: the listing is the hub's. */
static void look_at(struct visit *v, struct hub_listing *l, bool known, const char *tag)
{
    struct hub_model *m = &v->model;
    char folder[HUB_COMMIT_LEN + 16], err[HUB_ERR_SIZE] = "";
    m->n_bytes = 0;
    m->percent = -1;
    m->complete = m->servable = false;
    m->reason[0] = '\0';
    snprintf(v->name.tag, sizeof(v->name.tag), "%s", tag);
    snprintf(m->name, sizeof(m->name), "%s%s%s", v->name.repo, *tag ? ":" : "", tag);
    bool chosen = (known || *tag) && hub_choose(l, &v->name, err) == 0;
    if (hub_cache_snapshot_path(&v->cache, m->commit, chosen ? l->gguf : NULL, m->path,
                                sizeof(m->path)))
        return;
    if (chosen) {
        /* Without the index all shards are missing. */
        if (hub_cache_choose_shards(&v->cache, m->commit, l, err) < 0)
            snprintf(m->reason, sizeof(m->reason), "%.250s", err);
        measure(v, l);
    } else {
        snprintf(folder, sizeof(folder), "snapshots/%s", m->commit);
        hub_folder_walk(v->cache.repo_fd, folder, "", TREE_DEPTH, add_bytes, &m->n_bytes);
        m->complete = known || hub_snapshot_is_whole(AT_FDCWD, m->path);
        if (known) snprintf(m->reason, sizeof(m->reason), "%.290s", err);
    }
    judge(m);
    v->fn(v->ctx, m);
}

/* The tags of models in GGUF that the cache has bytes of. */
struct tags {
    struct visit *v;
    char (*items)[GGUF_TAG_SIZE]; /* [n] */
    int n;
};

static void note_tag(void *ctx, const struct hub_file *f)
{
    struct tags *t = ctx;
    const struct hub_cache *c = &t->v->cache;
    if (t->n == TAGS_MAX || (f->etag[0] && !hub_cache_bytes(c, t->v->model.commit, f))) return;
    gguf_tag_of(f->path, t->items[t->n++]);
}

static void look(struct visit *v)
{
    char items[TAGS_MAX][GGUF_TAG_SIZE];
    AUTO(hub_listing_finish) struct hub_listing l = {0};
    struct tags tags = {.v = v, .items = items};
    const char *commit = v->model.commit;
    bool known = hub_cache_read_tree(&v->cache, commit, false, &l) == 0;
    if (!known) hub_cache_read_tree(&v->cache, commit, true, &l);
    hub_ggufs_visit(&l, note_tag, &tags);
    const struct hub_file *config = hub_listing_find(&l, HUB_CONFIG_NAME);
    if (!tags.n || (config && hub_cache_has(&v->cache, commit, config))) look_at(v, &l, known, "");
    for (int i = 0; i < tags.n; i++)
        look_at(v, &l, known, items[i]);
}

/* ---- revisions ------------------------------------------------------------------------------ */

static void add_reference(void *revisions, const char *path, int64_t n_bytes)
{
    if (strlen(path) < HUB_REVISION_SIZE) hub_listing_add(revisions, path, n_bytes);
}

/* Snapshots that no reference names, under their commit. */
static void add_commits(struct visit *v)
{
    size_t n_references = v->revisions.n;
    DIR *dir = hub_folder_read(v->cache.repo_fd, "snapshots");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char commit[HUB_COMMIT_LEN + 1];
        bool named = !hub_is_commit(entry->d_name);
        for (size_t i = 0; i < n_references && !named; i++)
            named = hub_cache_read_ref(&v->cache, v->revisions.files[i].path, commit) == 0 &&
                    strcmp(commit, entry->d_name) == 0;
        if (!named) hub_listing_add(&v->revisions, entry->d_name, 0);
    }
    if (dir) closedir(dir);
}

static int visit_repository(struct visit *v, const char *root, char *err)
{
    struct hub_model *m = &v->model;
    if (hub_cache_open(&v->cache, root, v->name.repo, err)) return -1;
    hub_folder_walk(v->cache.repo_fd, "refs", "", FOLDERS_MAX, add_reference, &v->revisions);
    add_commits(v);
    hub_listing_sort(&v->revisions, err);
    for (size_t i = 0; i < v->revisions.n; i++) {
        stpcpy(m->revision, v->revisions.files[i].path);
        if (hub_is_commit(m->revision))
            memcpy(m->commit, m->revision, sizeof(m->commit));
        else if (hub_cache_read_ref(&v->cache, m->revision, m->commit))
            continue;
        look(v);
    }
    hub_listing_finish(&v->revisions);
    hub_cache_close(&v->cache);
    return 0;
}

static int is_repository(const struct dirent *entry)
{
    char repo[HUB_REPO_SIZE];
    return hub_folder_parse(entry->d_name, repo) == 0;
}

/* By the name that people know, in which the dashes between the parts are a slash. */
static int compare_repositories(const struct dirent **a, const struct dirent **b)
{
    char x[HUB_REPO_SIZE] = "", y[HUB_REPO_SIZE] = "";
    hub_folder_parse((*a)->d_name, x);
    hub_folder_parse((*b)->d_name, y);
    return strcmp(x, y);
}

int hub_inventory_visit(const char *root, void (*fn)(void *ctx, const struct hub_model *m),
                        void *ctx, char *err)
{
    AUTO_FREE struct dirent **names = NULL;
    struct visit v = {.fn = fn, .ctx = ctx};
    int n = scandir(root, &names, is_repository, compare_repositories), rc = 0;
    if (n < 0 && errno == ENOENT) return 0;
    if (n < 0) return hub_fail(err, -1, "cannot read %.300s: %s", root, strerror(errno));
    for (int i = 0; i < n; i++) {
        if (!rc && hub_folder_parse(names[i]->d_name, v.name.repo) == 0)
            rc = visit_repository(&v, root, err);
        free(names[i]);
    }
    return rc;
}
