/* SPDX-License-Identifier: MIT */
/* The cache on disk; see cache.h. */
#include "server/hub/cache.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/file.h"
#include "server/hub/settings.h"

enum {
    COPY_BYTES = 1 << 30,
    TEMPORARY_SIZE = 16,
    FOLDER_FLAGS = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
};

/* The same text as huggingface_hub's, so that it does not matter which program writes it first. */
static const char tag_text[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                               "# This file is a cache directory tag created by huggingface_hub.\n"
                               "# For information about cache directory tags, see:\n"
                               "#\thttps://bford.info/cachedir/\n";

int hub_cache_cannot(const struct hub_cache *c, const char *action, char *err)
{
    int error = errno;
    if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        return hub_fail(err, HUB_EDISK, "no space left in %.300s (%s)", c->root, strerror(error));
    char text[500];
    const char *reason = file_reason(c->root, text, sizeof(text));
    return hub_fail(err, HUB_EDISK, "cannot %s %.300s: %c%s", action, c->root,
                    tolower((unsigned char)reason[0]), reason + 1);
}

void hub_random_digits(char buf[9])
{
    uint32_t n;
    if (getrandom(&n, sizeof(n), 0) != sizeof(n))
        n = (uint32_t)clock_now_ns() ^ (uint32_t)getpid() << 16;
    snprintf(buf, 9, "%08x", n);
}

/* ---- folders -------------------------------------------------------------------------------- */

int hub_folder_open(int dir_fd, const char *name, bool make)
{
    int fd = openat(dir_fd, name, FOLDER_FLAGS | O_NOFOLLOW);
    if (fd >= 0 || errno != ENOENT || !make) return fd;
    if (mkdirat(dir_fd, name, 0777) && errno != EEXIST) return -1;
    return openat(dir_fd, name, FOLDER_FLAGS | O_NOFOLLOW);
}

DIR *hub_folder_read(int dir_fd, const char *name)
{
    int fd = dir_fd < 0 ? -1 : openat(dir_fd, name, FOLDER_FLAGS | O_NOFOLLOW);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) file_close(&fd);
    return dir;
}

/*
 * Opens the folder that holds the last part of a path below dir_fd, and points *ret_name at that
 * part. Returns a descriptor to close, or -1 with errno.
 */
static int open_parent(int dir_fd, const char *path, bool make, const char **ret_name)
{
    char part[HUB_SEGMENT_MAX + 1];
    int fd = openat(dir_fd, ".", FOLDER_FLAGS);
    for (const char *slash; fd >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        int len = snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        int next = -1;
        if (len >= 0 && (size_t)len < sizeof(part))
            next = hub_folder_open(fd, part, make);
        else
            errno = ENAMETOOLONG;
        file_close(&fd);
        fd = next;
    }
    *ret_name = path;
    return fd;
}

/* The same below FOLDER/COMMIT of the repository. */
static int open_in_snapshot(const struct hub_cache *c, const char *commit, const char *path,
                            bool make, const char **ret_name)
{
    char whole[HUB_COMMIT_LEN + HUB_PATH_MAX + 16];
    if (c->repo_fd < 0) {
        errno = ENOENT;
        return -1;
    }
    snprintf(whole, sizeof(whole), "snapshots/%s/%s", commit, path);
    int fd = open_parent(c->repo_fd, whole, make, ret_name);
    *ret_name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    return fd;
}

/* A folder of the cache is a link or a file: nothing is written through it. */
static int refuse_folder(const struct hub_cache *c, const char *name, char *err)
{
    if (errno != ELOOP && errno != ENOTDIR) return hub_cache_cannot(c, "open", err);
    return hub_fail(err, HUB_EDISK, "%.300s/%s/%s is not a folder (links are not followed here)",
                    c->root, c->folder, name);
}

int hub_cache_open(struct hub_cache *ret, const char *root, const char *repo, char *err)
{
    *ret = (struct hub_cache){.root_fd = -1, .repo_fd = -1, .blobs_fd = -1};
    char absolute[PATH_MAX];
    const char *shown = realpath(root, absolute) ? absolute : root;
    snprintf(ret->root, sizeof(ret->root), "%s", shown);
    hub_folder_name(repo, ret->folder);
    ret->root_fd = open(root, FOLDER_FLAGS);
    if (ret->root_fd >= 0) ret->repo_fd = openat(ret->root_fd, ret->folder, FOLDER_FLAGS);
    if (ret->repo_fd >= 0) ret->blobs_fd = hub_folder_open(ret->repo_fd, "blobs", false);
    bool all = ret->root_fd >= 0 && ret->repo_fd >= 0 && ret->blobs_fd >= 0;
    if (all || errno == ENOENT) return 0;
    int rc =
        ret->repo_fd >= 0 ? refuse_folder(ret, "blobs", err) : hub_cache_cannot(ret, "open", err);
    hub_cache_close(ret);
    return rc;
}

void hub_cache_close(struct hub_cache *c)
{
    file_close(&c->blobs_fd);
    file_close(&c->repo_fd);
    file_close(&c->root_fd);
}

int hub_make_folders(char *path, mode_t mode)
{
    for (char *p = path; (p = strchr(p + 1, '/'));) {
        *p = '\0';
        int rc = mkdir(path, mode);
        *p = '/';
        if (rc && errno != EEXIST) return -1;
    }
    return 0;
}

static int make_root(struct hub_cache *c)
{
    char path[PATH_MAX + 1], absolute[PATH_MAX];
    snprintf(path, sizeof(path), "%s/", c->root);
    if (hub_make_folders(path, 0777)) return -1;
    c->root_fd = open(c->root, FOLDER_FLAGS);
    if (c->root_fd >= 0 && realpath(c->root, absolute))
        snprintf(c->root, sizeof(c->root), "%s", absolute);
    return c->root_fd < 0 ? -1 : 0;
}

/* A cache without a tag is still a cache. */
static void make_tag(const struct hub_cache *c)
{
    AUTO(file_close)
    int fd = openat(c->root_fd, "CACHEDIR.TAG", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return;
    if (write(fd, tag_text, sizeof(tag_text) - 1) != (ssize_t)sizeof(tag_text) - 1)
        unlinkat(c->root_fd, "CACHEDIR.TAG", 0);
}

int hub_cache_make(struct hub_cache *c, char *err)
{
    static const char *const folders[] = {"blobs", "refs", "snapshots", "trees"};
    if (c->root_fd < 0 && make_root(c)) return hub_cache_cannot(c, "write", err);
    if (c->repo_fd < 0) {
        if (mkdirat(c->root_fd, c->folder, 0777) && errno != EEXIST)
            return hub_cache_cannot(c, "write", err);
        c->repo_fd = openat(c->root_fd, c->folder, FOLDER_FLAGS);
        if (c->repo_fd < 0) return hub_cache_cannot(c, "open", err);
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        int fd = hub_folder_open(c->repo_fd, folders[i], true);
        if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
            return refuse_folder(c, folders[i], err);
        if (fd < 0) return hub_cache_cannot(c, "write", err);
        if (i == 0 && c->blobs_fd < 0)
            c->blobs_fd = fd;
        else
            close(fd);
    }
    make_tag(c);
    return 0;
}

int64_t hub_cache_free_bytes(const struct hub_cache *c)
{
    struct statvfs v;
    return fstatvfs(c->root_fd, &v) ? -1 : (int64_t)v.f_bavail * (int64_t)v.f_frsize;
}

int hub_cache_snapshot_path(const struct hub_cache *c, const char *commit,
                            const struct hub_file *gguf, char *buf, size_t size)
{
    int len = snprintf(buf, size, "%s/%s/snapshots/%s%s%s", c->root, c->folder, commit,
                       gguf ? "/" : "", gguf ? gguf->path : "");
    return len >= 0 && (size_t)len < size ? 0 : -1;
}

/* ---- small files ---------------------------------------------------------------------------- */

/* A regular file of at most max_bytes, NUL-terminated, or NULL. Closes fd. */
static char *read_and_close(int fd, size_t max_bytes, size_t *ret_len)
{
    struct stat st;
    char *text = NULL;
    if (fd < 0) return NULL;
    bool fits = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size <= max_bytes;
    if (fits) text = calloc((size_t)st.st_size + 1, 1);
    bool whole = text && file_pread(fd, text, (size_t)st.st_size, 0) == 0;
    close(fd);
    if (ret_len) *ret_len = whole ? (size_t)st.st_size : 0;
    if (whole) return text;
    free(text);
    return NULL;
}

static void temporary_name(char buf[TEMPORARY_SIZE])
{
    char digits[9];
    hub_random_digits(digits);
    snprintf(buf, TEMPORARY_SIZE, ".%s.tmp", digits);
}

/* Gives a file its name or, where rc says that it is not whole, removes it. -1 with errno. */
static int end_temporary(const struct hub_cache *c, const char *temporary, int rc, int folder,
                         const char *name)
{
    if (!rc && renameat(c->repo_fd, temporary, folder, name) == 0) return 0;
    int error = errno;
    unlinkat(c->repo_fd, temporary, 0);
    errno = error;
    return -1;
}

/* Writes a file of the repository: under a temporary name, then renames it. */
static int write_file(const struct hub_cache *c, const char *path, const char *text, size_t len)
{
    char temporary[TEMPORARY_SIZE];
    const char *name;
    temporary_name(temporary);
    AUTO(file_close) int folder = open_parent(c->repo_fd, path, true, &name);
    if (folder < 0) return -1;
    AUTO(file_close)
    int fd = openat(c->repo_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int rc = fd < 0 || file_write_all(fd, text, len) ? -1 : fsync(fd);
    return fd < 0 ? rc : end_temporary(c, temporary, rc, folder, name);
}

/* A file of the repository: the text of a reference or a listing. */
static char *read_file(const struct hub_cache *c, const char *path, size_t max_bytes,
                       size_t *ret_len)
{
    const char *name;
    AUTO(file_close) int folder = c->repo_fd < 0 ? -1 : open_parent(c->repo_fd, path, false, &name);
    if (folder < 0) return NULL;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    return read_and_close(fd, max_bytes, ret_len);
}

int hub_cache_read_ref(const struct hub_cache *c, const char *revision,
                       char ret[HUB_COMMIT_LEN + 1])
{
    char path[HUB_REVISION_SIZE + 8];
    snprintf(path, sizeof(path), "refs/%s", revision);
    AUTO_FREE char *text = read_file(c, path, HUB_COMMIT_LEN + 8, NULL);
    if (!text) return -1;
    text[strcspn(text, "\r\n ")] = '\0';
    bool found = hub_is_commit(text);
    if (found) memcpy(ret, text, HUB_COMMIT_LEN + 1);
    return found ? 0 : -1;
}

int hub_cache_write_ref(const struct hub_cache *c, const char *revision, const char *commit,
                        char *err)
{
    char path[HUB_REVISION_SIZE + 8];
    snprintf(path, sizeof(path), "refs/%s", revision);
    if (write_file(c, path, commit, HUB_COMMIT_LEN) == 0) return 0;
    return hub_cache_cannot(c, "write a reference in", err);
}

void hub_folder_walk(int dir_fd, const char *name, const char *prefix, int depth,
                     void (*fn)(void *ctx, const char *path, int64_t n_bytes), void *ctx)
{
    DIR *dir = hub_folder_read(dir_fd, name);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[HUB_PATH_MAX];
        struct stat st;
        int len = snprintf(path, sizeof(path), "%s%s", prefix, entry->d_name);
        if (entry->d_name[0] == '.' || len >= (int)sizeof(path) - 1 ||
            fstatat(dirfd(dir), entry->d_name, &st, 0))
            continue;
        if (S_ISREG(st.st_mode)) fn(ctx, path, st.st_size);
        stpcpy(path + len, "/");
        if (S_ISDIR(st.st_mode) && depth > 1)
            hub_folder_walk(dirfd(dir), entry->d_name, path, depth - 1, fn, ctx);
    }
    if (dir) closedir(dir);
}

static void list_file(void *listing, const char *path, int64_t n_bytes)
{
    if (n_bytes < HUB_SIZE_MAX && hub_path_is_safe(path, strlen(path)))
        hub_listing_add(listing, path, n_bytes);
}

int hub_cache_read_tree(const struct hub_cache *c, const char *commit, bool walk,
                        struct hub_listing *ret)
{
    char path[HUB_COMMIT_LEN + 16], err[HUB_ERR_SIZE];
    size_t len;
    snprintf(path, sizeof(path), "trees/%s.json", commit);
    char *text = read_file(c, path, HUB_LISTING_MAX_BYTES, &len);
    int rc = text ? hub_listing_add_tree(ret, text, len, err) : -1;
    free(text);
    if (rc) {
        hub_listing_finish(ret);
        snprintf(path, sizeof(path), "snapshots/%s", commit);
        if (walk) hub_folder_walk(c->repo_fd, path, "", 2, list_file, ret);
    }
    if (hub_listing_sort(ret, err)) hub_listing_finish(ret);
    return ret->n ? 0 : -1;
}

int hub_cache_write_tree(const struct hub_cache *c, const char *commit, const char *text,
                         size_t len, char *err)
{
    char path[HUB_COMMIT_LEN + 16];
    snprintf(path, sizeof(path), "trees/%s.json", commit);
    return write_file(c, path, text, len) ? hub_cache_cannot(c, "write", err) : 0;
}

/* ---- blobs and snapshots -------------------------------------------------------------------- */

/* size -1: any. */
static bool is_file_of(int dir_fd, const char *name, int64_t size)
{
    struct stat st;
    return dir_fd >= 0 && fstatat(dir_fd, name, &st, 0) == 0 && S_ISREG(st.st_mode) &&
           (size < 0 || st.st_size == size);
}

bool hub_cache_has(const struct hub_cache *c, const char *commit, const struct hub_file *f)
{
    const char *name;
    AUTO(file_close) int folder = open_in_snapshot(c, commit, f->path, false, &name);
    return is_file_of(folder, name, f->size);
}

bool hub_cache_has_blob(const struct hub_cache *c, const struct hub_file *f)
{
    return is_file_of(c->blobs_fd, f->etag, f->size);
}

void hub_cache_visit_parts(const struct hub_cache *c, const struct hub_file *f,
                           void (*fn)(void *ctx, const char *name, int64_t n_bytes), void *ctx)
{
    char pattern[HUB_ETAG_SIZE + 20];
    snprintf(pattern, sizeof(pattern), "%s?(.*).incomplete", f->etag);
    DIR *dir = hub_folder_read(c->blobs_fd, ".");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *name = entry->d_name;
        struct stat st;
        if (!fnmatch(pattern, name, FNM_EXTMATCH) &&
            fstatat(c->blobs_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            fn(ctx, name, st.st_size);
    }
    if (dir) closedir(dir);
}

struct longest {
    int64_t size, n_bytes;
};

static void take_longest(void *ctx, const char *name, int64_t n_bytes)
{
    struct longest *l = ctx;
    if (n_bytes > l->n_bytes && n_bytes <= l->size) l->n_bytes = n_bytes;
}

int64_t hub_cache_bytes(const struct hub_cache *c, const char *commit, const struct hub_file *f)
{
    struct longest l = {.size = f->size};
    if (hub_cache_has(c, commit, f) || hub_cache_has_blob(c, f)) return f->size;
    hub_cache_visit_parts(c, f, take_longest, &l);
    return l.n_bytes;
}

char *hub_cache_read(const struct hub_cache *c, const char *commit, const char *path,
                     size_t max_bytes, size_t *ret_len)
{
    const char *name;
    AUTO(file_close) int folder = open_in_snapshot(c, commit, path, false, &name);
    if (folder < 0) return NULL;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return read_and_close(fd, max_bytes, ret_len);
}

int hub_cache_choose_shards(const struct hub_cache *c, const char *commit, struct hub_listing *l,
                            char *err)
{
    size_t len;
    if (!hub_wanted_index(l)) return 0;
    AUTO_FREE char *text = hub_cache_read(c, commit, HUB_INDEX_NAME, HUB_INDEX_MAX_BYTES, &len);
    return text ? hub_choose_shards(l, text, len, err) : 1;
}

/* "../../blobs/ETAG", with one more "../" for each folder of the path. */
static void link_target(const struct hub_file *f, char *buf, size_t size)
{
    size_t at = 0;
    for (const char *p = f->path; (p = strchr(p, '/')) && at + 4 < size; p++)
        at += (size_t)snprintf(buf + at, size - at, "../");
    snprintf(buf + at, size - at, "../../blobs/%s", f->etag);
}

static bool is_link_to(int folder, const char *name, const char *target)
{
    char text[4 * HUB_PATH_MAX];
    ssize_t len = readlinkat(folder, name, text, sizeof(text) - 1);
    if (len < 0) return false;
    text[len] = '\0';
    return strcmp(text, target) == 0;
}

/* A whole copy of the blob at repo_fd/temporary. */
static int copy_blob(const struct hub_cache *c, const struct hub_file *f, const char *temporary)
{
    AUTO(file_close) int from = openat(c->blobs_fd, f->etag, O_RDONLY | O_CLOEXEC);
    AUTO(file_close)
    int to = openat(c->repo_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    ssize_t n = from < 0 || to < 0 ? -1 : 1;
    while (n > 0)
        n = sendfile(to, from, NULL, COPY_BYTES);
    return (int)n;
}

static int place(const struct hub_cache *c, const struct hub_file *f, int folder, const char *name,
                 bool keep_blob)
{
    char target[4 * HUB_PATH_MAX], temporary[TEMPORARY_SIZE];
    link_target(f, target, sizeof(target));
    if (is_link_to(folder, name, target)) return 0;
    temporary_name(temporary);
    int rc = symlinkat(target, c->repo_fd, temporary);
    bool no_links = rc && (errno == EPERM || errno == ENOTSUP || errno == ENOSYS);
    if (no_links && !keep_blob) return renameat(c->blobs_fd, f->etag, folder, name);
    if (no_links) rc = copy_blob(c, f, temporary);
    return end_temporary(c, temporary, rc, folder, name);
}

int hub_cache_link(const struct hub_cache *c, const char *commit, const struct hub_file *f,
                   bool keep_blob, char *err)
{
    const char *name;
    AUTO(file_close) int folder = open_in_snapshot(c, commit, f->path, true, &name);
    int rc = folder < 0 ? -1 : place(c, f, folder, name, keep_blob);
    if (rc) rc = hub_cache_cannot(c, "write a snapshot in", err);
    return rc;
}

int hub_cache_sync(const struct hub_cache *c, const char *commit, char *err)
{
    const char *name;
    AUTO(file_close) int folder = open_in_snapshot(c, commit, "", false, &name);
    int rc = folder < 0 ? -1 : fsync(folder);
    if (!rc) rc = fsync(c->blobs_fd);
    if (rc && errno == EINVAL) rc = 0; /* a file system that does not sync folders */
    if (rc) rc = hub_cache_cannot(c, "write", err);
    return rc;
}

/* ---- snapshots of which no listing tells the files ------------------------------------------- */

static bool has_shard(void *ctx, const char *name)
{
    return is_file_of(*(int *)ctx, name, -1);
}

static bool has_all_shards(int dir_fd)
{
    char err[HUB_ERR_SIZE];
    size_t len;
    int fd = openat(dir_fd, HUB_INDEX_NAME, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    AUTO_FREE char *text = read_and_close(fd, HUB_INDEX_MAX_BYTES, &len);
    return text && hub_shards_visit(text, len, has_shard, &dir_fd, err) == 0;
}

bool hub_snapshot_is_whole(int dir_fd, const char *dir)
{
    AUTO(file_close) int fd = openat(dir_fd, dir, FOLDER_FLAGS);
    return is_file_of(fd, HUB_CONFIG_NAME, -1) &&
           (is_file_of(fd, HUB_WEIGHTS_NAME, -1) || has_all_shards(fd));
}

/* The commit of the only snapshot of the repository, if it is whole; else -1. */
static int find_only(const struct hub_cache *c, char ret[HUB_COMMIT_LEN + 1])
{
    char path[HUB_COMMIT_LEN + 16];
    DIR *dir = hub_folder_read(c->repo_fd, "snapshots");
    int n = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (!hub_is_commit(entry->d_name)) continue;
        memcpy(ret, entry->d_name, HUB_COMMIT_LEN + 1);
        n++;
    }
    if (dir) closedir(dir);
    snprintf(path, sizeof(path), "snapshots/%s", n == 1 ? ret : "");
    return n == 1 && hub_snapshot_is_whole(c->repo_fd, path) ? 0 : -1;
}

int hub_cache_find_commit(const struct hub_cache *c, const struct hub_name *name,
                          char ret[HUB_COMMIT_LEN + 1])
{
    if (name->is_commit) memcpy(ret, name->revision, HUB_COMMIT_LEN + 1);
    if (name->is_commit || hub_cache_read_ref(c, name->revision, ret) == 0) return 0;
    return name->has_revision ? -1 : find_only(c, ret);
}
