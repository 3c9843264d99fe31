/* SPDX-License-Identifier: MIT */
/* The steps of a pull; see pull.h. */
#include "server/hub/pull.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/gguf.h"
#include "engine/engine.h"
#include "server/hub/fetch.h"

enum {
    CONFIG_MAX_BYTES = 4 << 20, /* as the engine reads it */
    SPARE_BYTES = 1 << 20,      /* besides the files: listing, links */
};

struct hub_pull {
    struct hub_pull_params how;
    atomic_bool stop;
    struct hub_cache cache;
    struct hub_listing listing;
    char commit[HUB_COMMIT_LEN + 1];
    char snapshot[PATH_MAX];
    pthread_mutex_t lock; /* guards the fields below, and serializes events */
    struct hub_progress progress;
};

/* ---- events and counts ---------------------------------------------------------------------- */

static void tell(struct hub_pull *p, const struct hub_event *e)
{
    HOLD(&p->lock);
    p->how.event(p->how.ctx, e);
}

static void on_retry(void *ctx, const char *reason, int n_try, int wait_ms)
{
    char text[HUB_ERR_SIZE + 60];
    snprintf(text, sizeof(text), "%s; try %d follows in %.1f s", reason, n_try, wait_ms / 1000.0);
    tell(ctx, &(struct hub_event){.kind = HUB_RETRY, .text = text});
}

static void on_wait(void *ctx, const char *path)
{
    char text[HUB_PATH_MAX + 80];
    snprintf(text, sizeof(text), "%s: another program is fetching it; waiting for that", path);
    tell(ctx, &(struct hub_event){.kind = HUB_WAIT, .text = text});
}

/* More of the file in hand is there than was counted; less is not a step back. */
static void count(struct hub_progress *c, int64_t n_there)
{
    if (n_there <= c->n_file) return;
    c->n_bytes += n_there - c->n_file;
    c->n_file = n_there;
    if (c->n_bytes > c->n_total) c->n_bytes = c->n_total;
}

static void on_bytes(void *ctx, const struct hub_file *f, int64_t n_there, int64_t n_new)
{
    struct hub_pull *p = ctx;
    HOLD(&p->lock);
    p->progress.n_fetched += n_new;
    count(&p->progress, n_there);
    p->how.event(p->how.ctx, &(struct hub_event){.kind = HUB_BYTES, .progress = &p->progress});
}

/* A file begins with bytes that the plan has counted. */
static void begin_counting(struct hub_pull *p, const struct hub_file *f, int64_t n_planned)
{
    HOLD(&p->lock);
    p->progress.path = f->path;
    p->progress.n_file = n_planned;
}

void hub_pull_progress(struct hub_pull *p, struct hub_progress *ret)
{
    HOLD(&p->lock);
    *ret = p->progress;
}

int hub_progress_percent(const struct hub_progress *p)
{
    return p->n_total <= 0 ? 0 : (int)((double)p->n_bytes * 100 / (double)p->n_total);
}

/* ---- life ----------------------------------------------------------------------------------- */

int hub_pull_prepare(struct hub_settings *ret, const char *(*env)(const char *name), char *err)
{
    if (!hub_settings_offline(env) && transfer_load(err, HUB_ERR_SIZE)) return HUB_EUSAGE;
    return hub_settings_read(ret, env, err);
}

struct hub_pull *hub_pull_create(const struct hub_pull_params *params)
{
    struct hub_pull *p = calloc(1, sizeof(*p));
    if (!p) return NULL;
    p->how = *params;
    p->cache = (struct hub_cache){.root_fd = -1, .repo_fd = -1, .blobs_fd = -1};
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

void hub_pull_destroy(struct hub_pull *p)
{
    if (!p) return;
    hub_cache_close(&p->cache);
    hub_listing_finish(&p->listing);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void hub_pull_stop(struct hub_pull *p)
{
    atomic_store(&p->stop, true);
}

const char *hub_pull_snapshot(const struct hub_pull *p)
{
    return p->snapshot;
}

/* ---- what there is -------------------------------------------------------------------------- */

/* The first of the wanted files that have this one's content. */
static const struct hub_file *first_of_content(const struct hub_pull *p, const struct hub_file *f)
{
    for (const struct hub_file *g = p->listing.files; g < f; g++)
        if (g->wanted && strcmp(g->etag, f->etag) == 0) return g;
    return f;
}

/* The files wanted now, and the bytes of them that the disk holds. */
static struct hub_event make_plan(const struct hub_pull *p)
{
    struct hub_event plan = {.kind = HUB_PLAN, .commit = p->commit};
    for (size_t i = 0; i < p->listing.n; i++) {
        const struct hub_file *f = &p->listing.files[i];
        if (!f->wanted) continue;
        plan.n_files++;
        if (first_of_content(p, f) != f) continue;
        plan.n_bytes += hub_cache_bytes(&p->cache, p->commit, f);
        plan.n_total += f->size;
    }
    return plan;
}

int hub_pull_kept_percent(struct hub_pull *p)
{
    struct hub_progress progress;
    hub_pull_progress(p, &progress);
    progress.n_bytes = make_plan(p).n_bytes;
    return hub_progress_percent(&progress);
}

void hub_pull_visit(const struct hub_pull *p,
                    void (*fn)(void *ctx, const struct hub_file *f, bool cached), void *ctx)
{
    for (size_t i = 0; i < p->listing.n; i++) {
        const struct hub_file *f = &p->listing.files[i];
        if (f->wanted) fn(ctx, f, hub_cache_has(&p->cache, p->commit, f) && !p->how.force);
    }
}

/* Marks all that is wanted. Returns true if every such file is in the snapshot. */
static bool is_complete(struct hub_pull *p)
{
    char err[HUB_ERR_SIZE];
    if (hub_choose(&p->listing, p->how.name, err) ||
        hub_cache_choose_shards(&p->cache, p->commit, &p->listing, err))
        return false;
    for (size_t i = 0; i < p->listing.n; i++) {
        const struct hub_file *f = &p->listing.files[i];
        if (f->wanted && !hub_cache_has(&p->cache, p->commit, f)) return false;
    }
    return p->listing.n > 0;
}

/* The folder of the snapshot, or the file of a model in GGUF there. */
static int set_snapshot(struct hub_pull *p, char *err)
{
    if (hub_cache_snapshot_path(&p->cache, p->commit, p->listing.gguf, p->snapshot,
                                sizeof(p->snapshot)) == 0)
        return 0;
    return hub_fail(err, HUB_EDISK, "the path of the cache is too long");
}

/* ---- without the network -------------------------------------------------------------------- */

static bool find_complete(struct hub_pull *p)
{
    char err[HUB_ERR_SIZE];
    bool tagged = *p->how.name->tag;
    hub_listing_finish(&p->listing);
    if (hub_cache_find_commit(&p->cache, p->how.name, p->commit)) return false;
    bool known = hub_cache_read_tree(&p->cache, p->commit, tagged, &p->listing) == 0;
    bool there = known ? is_complete(p) : !tagged;
    if (!there || set_snapshot(p, err)) return false;
    return known || hub_snapshot_is_whole(AT_FDCWD, p->snapshot);
}

static int run_offline(struct hub_pull *p, char *err)
{
    if (find_complete(p)) return 0;
    bool there = p->cache.repo_fd >= 0;
    return hub_fail(err, HUB_ENETWORK, "offline (%s), and %s is not %sin the cache",
                    p->how.settings->offline, p->how.name->repo, there ? "complete " : "");
}

/* ---- files ---------------------------------------------------------------------------------- */

static int write_tree(struct hub_pull *p, char *err)
{
    size_t len;
    if (p->listing.odd_xet) return 0; /* huggingface_hub does not accept such a commit either */
    AUTO_FREE char *text = hub_listing_write(&p->listing, &len);
    if (!text) return hub_fail(err, HUB_EINTERNAL, "out of memory");
    return hub_cache_write_tree(&p->cache, p->commit, text, len, err);
}

/* The header of a model in GGUF, as soon as it is there: can this be served? */
static int check_header(void *ctx, const struct hub_file *f, const char *part, int64_t n_there,
                        char *err)
{
    const struct hub_pull *p = ctx;
    char dir[2 * PATH_MAX], reason[HUB_ERR_SIZE] = "";
    struct gguf *g;
    snprintf(dir, sizeof(dir), "%s/%s/blobs", p->cache.root, p->cache.folder);
    int rc = gguf_open(&g, dir, part, f->size, reason, sizeof(reason));
    if (rc == FILE_EIO) return 0;
    if (!rc) rc = eng_check_gguf(g, reason, sizeof(reason));
    gguf_close(g);
    const char *sentence = strncmp(reason, part, strlen(part)) ? reason : reason + strlen(part) + 2;
    return rc ? hub_fail(err, HUB_ENOTSERVED, "%.300s", sentence) : 1;
}

/* Fetches a content and links every file that has it. */
static int fetch_file(struct hub_pull *p, struct hub_client *c, struct hub_file *f, char *err)
{
    struct hub_fetch fetch = {
        .client = c,
        .cache = &p->cache,
        .commit = p->commit,
        .force = p->how.force,
        .on_wait = on_wait,
        .on_bytes = on_bytes,
        .look = check_header,
        .ctx = p,
    };
    begin_counting(p, f, p->how.force ? 0 : hub_cache_bytes(&p->cache, p->commit, f));
    int rc = hub_fetch_blob(&fetch, f, err);
    if (!rc) on_bytes(p, f, f->size, 0); /* another program may have fetched it */
    const struct hub_file *last = f;
    for (size_t i = 0; i < p->listing.n; i++) {
        const struct hub_file *g = &p->listing.files[i];
        if (g->wanted && strcmp(g->etag, f->etag) == 0) last = g;
    }
    for (struct hub_file *g = p->listing.files; !rc && g <= last; g++) {
        if (!g->wanted || strcmp(g->etag, f->etag) != 0) continue;
        rc = hub_cache_link(&p->cache, p->commit, g, g != last, err);
        g->fetched = rc == 0;
        if (!rc)
            tell(p, &(struct hub_event){.kind = HUB_FILE, .what = g->path, .n_total = g->size});
    }
    return rc;
}

/* The same unless this pull has fetched it or, without force, the snapshot has it. */
static int need_file(struct hub_pull *p, struct hub_client *c, struct hub_file *f, char *err)
{
    if (f->fetched || (!p->how.force && hub_cache_has(&p->cache, p->commit, f))) return 0;
    return fetch_file(p, c, f, err);
}

/* The text of a small file, from the snapshot or, in a dry run, from memory. */
static int get_text(struct hub_pull *p, struct hub_client *c, struct hub_file *f, int64_t max_bytes,
                    struct buf *ret, char *err)
{
    struct hub_fetch fetch = {.client = c, .cache = &p->cache, .commit = p->commit};
    buf_init(ret, (size_t)max_bytes);
    if (f->size > max_bytes)
        return hub_fail(err, HUB_EWRONG, "%s has %lld bytes; at most %lld are read", f->path,
                        (long long)f->size, (long long)max_bytes);
    bool there = hub_cache_has(&p->cache, p->commit, f);
    if (p->how.dry_run && !there) return hub_fetch_text(&fetch, f, ret, err);
    int rc = need_file(p, c, f, err);
    if (rc) return rc;
    size_t len;
    AUTO_FREE char *text = hub_cache_read(&p->cache, p->commit, f->path, (size_t)max_bytes, &len);
    if (!text) return hub_cache_cannot(&p->cache, "read", err);
    buf_add(ret, text, len);
    return ret->failed ? hub_fail(err, HUB_EINTERNAL, "out of memory") : 0;
}

/* Checks that the disk has room for what is still missing. */
static int check_space(struct hub_pull *p, char *err)
{
    struct hub_event plan = make_plan(p);
    int64_t missing = plan.n_total - (p->how.force ? 0 : plan.n_bytes);
    int64_t spare = hub_cache_free_bytes(&p->cache);
    if (missing == 0 || spare < 0 || missing + SPARE_BYTES <= spare) return 0;
    return hub_fail(err, HUB_EDISK, "no space: %s needs %lld MB more, %lld MB free in %.300s",
                    p->how.name->repo, (long long)(missing + 999999) / 1000000,
                    (long long)spare / 1000000, p->cache.root);
}

/* config.json alone, before anything large: can this be served? */
static int check_config(struct hub_pull *p, struct hub_client *c, char *err)
{
    AUTO(buf_finish) struct buf b = {0};
    char reason[HUB_ERR_SIZE - 200];
    struct hub_file *f = hub_listing_find(&p->listing, HUB_CONFIG_NAME);
    if (!f || !f->wanted) return 0;
    int rc = get_text(p, c, f, CONFIG_MAX_BYTES, &b, err);
    if (!rc && eng_check_config(b.data ? b.data : "", b.len, reason, sizeof(reason)))
        rc = hub_fail(err, HUB_ENOTSERVED, "%s: %s", p->how.name->repo, reason);
    return rc;
}

static int choose_shards(struct hub_pull *p, struct hub_client *c, char *err)
{
    AUTO(buf_finish) struct buf b = {0};
    struct hub_file *f = hub_wanted_index(&p->listing);
    if (!f) return 0;
    int rc = get_text(p, c, f, HUB_INDEX_MAX_BYTES, &b, err);
    if (!rc) rc = hub_choose_shards(&p->listing, b.data ? b.data : "", b.len, err);
    return rc;
}

/* ---- the rest ------------------------------------------------------------------------------- */

static int compare_sizes(const void *a, const void *b)
{
    const struct hub_file *const *x = a, *const *y = b;
    return ((*x)->size > (*y)->size) - ((*x)->size < (*y)->size);
}

static int fetch_rest(struct hub_pull *p, struct hub_client *c, char *err)
{
    AUTO_FREE struct hub_file **files = calloc(p->listing.n + 1, sizeof(*files));
    size_t n = 0;
    int rc = 0;
    if (!files) return hub_fail(err, HUB_EINTERNAL, "out of memory");
    for (size_t i = 0; i < p->listing.n; i++)
        if (p->listing.files[i].wanted) files[n++] = &p->listing.files[i];
    qsort(files, n, sizeof(*files), compare_sizes);
    for (size_t i = 0; !rc && i < n; i++)
        rc = need_file(p, c, files[i], err);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void announce_plan(struct hub_pull *p)
{
    struct hub_event plan = make_plan(p);
    if (p->how.force) plan.n_bytes = 0;
    pthread_mutex_lock(&p->lock);
    p->progress.n_bytes = plan.n_bytes;
    p->progress.n_total = plan.n_total;
    pthread_mutex_unlock(&p->lock);
    tell(p, &plan);
}

/*
 * The snapshot is complete: its name comes last. A cache that cannot be written is not an obstacle
 * to using what it holds.
 */
static int finish(struct hub_pull *p, bool wrote, char *err)
{
    char now[HUB_COMMIT_LEN + 1];
    int rc = wrote ? hub_cache_sync(&p->cache, p->commit, err) : 0;
    bool named =
        p->how.name->is_commit ||
        (!hub_cache_read_ref(&p->cache, p->how.name->revision, now) && strcmp(now, p->commit) == 0);
    if (rc || named) return rc;
    rc = hub_cache_write_ref(&p->cache, p->how.name->revision, p->commit, err);
    if (!rc || wrote) return rc;
    tell(p, &(struct hub_event){.kind = HUB_WARNING, .text = err});
    return 0;
}

/* Opens the cache and asks for commit and listing. *ret_new: the listing came from the hub. */
static int find_out(struct hub_pull *p, struct hub_client *c, bool *ret_new, char *err)
{
    int rc = 0;
    *ret_new = false;
    if (p->how.name->is_commit)
        memcpy(p->commit, p->how.name->revision, sizeof(p->commit));
    else
        rc = hub_fetch_commit(c, p->commit, err);
    if (rc || (!p->how.force && !hub_cache_read_tree(&p->cache, p->commit, false, &p->listing)))
        return rc;
    *ret_new = true;
    return hub_fetch_listing(c, p->commit, &p->listing, err);
}

static int fetch_all(struct hub_pull *p, struct hub_client *c, bool new_listing, char *err)
{
    int rc = hub_cache_make(&p->cache, err);
    if (!rc && new_listing) rc = write_tree(p, err);
    if (!rc) rc = check_space(p, err);
    if (!rc) rc = check_config(p, c, err);
    if (!rc) rc = choose_shards(p, c, err);
    if (!rc) rc = check_space(p, err);
    if (!rc) announce_plan(p);
    if (!rc) rc = fetch_rest(p, c, err);
    if (!rc) rc = set_snapshot(p, err);
    return rc ? rc : finish(p, true, err);
}

static int run_online(struct hub_pull *p, struct hub_client *c, char *err)
{
    bool new_listing;
    c->brief = p->how.to_serve && find_complete(p);
    hub_listing_finish(&p->listing);
    int rc = find_out(p, c, &new_listing, err);
    c->brief = false;
    if (!rc) rc = hub_choose(&p->listing, p->how.name, err);
    if (rc) return rc;
    if (p->how.dry_run) {
        rc = check_config(p, c, err);
        return rc ? rc : choose_shards(p, c, err);
    }
    if (p->how.force || !is_complete(p)) return fetch_all(p, c, new_listing, err);
    announce_plan(p);
    rc = set_snapshot(p, err);
    return rc ? rc : finish(p, false, err);
}

/* The token is not given to whoever listens on the way. */
static void warn_of_plain_http(struct hub_pull *p)
{
    const struct hub_settings *s = p->how.settings;
    char text[HUB_ERR_SIZE];
    if (!s->token[0] || hub_settings_may_send_token(s, &s->origin)) return;
    snprintf(text, sizeof(text), "%s is plain http: the token is not sent to it", s->endpoint);
    tell(p, &(struct hub_event){.kind = HUB_WARNING, .text = text});
}

static int run(struct hub_pull *p, char *err)
{
    struct hub_client c = {
        .settings = p->how.settings,
        .name = p->how.name,
        .stop = &p->stop,
        .on_retry = on_retry,
        .ctx = p,
    };
    int rc = hub_cache_open(&p->cache, p->how.settings->cache_root, p->how.name->repo, err);
    if (rc) return rc;
    if (p->how.settings->offline) return run_offline(p, err);
    warn_of_plain_http(p);
    c.transfer = transfer_create(&c.settings->transfer);
    if (!c.transfer) return hub_fail(err, HUB_EINTERNAL, "out of memory");
    rc = run_online(p, &c, err);
    transfer_destroy(c.transfer);
    return rc;
}

/* A complete copy serves as well when the hub cannot be reached. rc: of the run. */
static int use_cached(struct hub_pull *p, int rc, char *err)
{
    struct stat st;
    struct tm tm;
    char date[11], text[80];
    if (rc != HUB_ENETWORK || !p->how.to_serve || p->how.settings->offline || !find_complete(p) ||
        stat(p->snapshot, &st))
        return rc;
    localtime_r(&st.st_mtime, &tm);
    strftime(date, sizeof(date), "%Y-%m-%d", &tm);
    snprintf(text, sizeof(text), "the hub cannot be reached; serving the copy of %s", date);
    tell(p, &(struct hub_event){.kind = HUB_WARNING, .text = err});
    tell(p, &(struct hub_event){.kind = HUB_WARNING, .text = text});
    HOLD(&p->lock);
    p->progress = (struct hub_progress){0};
    return 0;
}

/* Files that the calling thread makes belong to this user from now on; root alone may say so. */
static void make_files_of(uid_t uid, gid_t gid)
{
    setfsgid(gid);
    setfsuid(uid);
}

/* The owner of the cache, or of the folder that it will be made in. */
static struct stat find_owner(const char *cache_root)
{
    struct stat st = {0};
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s", cache_root);
    for (char *slash; stat(path, &st) && (slash = strrchr(path, '/')) && slash != path;)
        *slash = '\0';
    return st;
}

int hub_pull_run(struct hub_pull *p, char *err)
{
    /* Files that root fetches into another user's cache belong to that user. */
    struct stat owner = find_owner(p->how.settings->cache_root);
    bool is_other = geteuid() == 0 && owner.st_uid != 0;
    if (is_other) make_files_of(owner.st_uid, owner.st_gid);
    int rc = use_cached(p, run(p, err), err);
    if (is_other) make_files_of(0, getegid());
    return rc;
}
