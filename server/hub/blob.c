/* SPDX-License-Identifier: MIT */
/* Blobs being fetched; see blob.h. */
#include "server/hub/blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/hub/hub_error.h"

enum {
    LOCK_LOOK_MS = 50,
    WRITEBACK_BYTES = 8 << 20, /* written to disk at once, so that the sync at the end is short */
    PART_FLAGS = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
};

/* ---- the lock ------------------------------------------------------------------------------- */

/* .locks/FOLDER/ETAG.lock, open; -1 if it cannot be. */
static int open_lock(const struct hub_blob *b)
{
    char name[HUB_ETAG_SIZE + 8];
    int locks = hub_folder_open(b->cache->root_fd, ".locks", true);
    int folder = locks < 0 ? -1 : hub_folder_open(locks, b->cache->folder, true);
    snprintf(name, sizeof(name), "%s.lock", b->file->etag);
    int fd = -1;
    /* The mode huggingface_hub uses: other users of the group may lock too. */
    if (folder >= 0)
        fd = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0664);
    if (locks >= 0) close(locks);
    if (folder >= 0) close(folder);
    return fd;
}

/* Returns true if the previous owner of the lock has removed the file. */
static bool is_gone(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

/* Returns 0 if locked, or if locking does not work here; 1 if another process holds the lock. */
static int try_lock(struct hub_blob *b)
{
    for (int i = 0; i < 100; i++) {
        b->lock_fd = open_lock(b);
        if (b->lock_fd < 0) return 0;
        if (flock(b->lock_fd, LOCK_EX | LOCK_NB)) {
            bool busy = errno == EWOULDBLOCK;
            close(b->lock_fd);
            b->lock_fd = -1;
            return busy;
        }
        if (!is_gone(b->lock_fd)) return 0;
        close(b->lock_fd);
    }
    b->lock_fd = -1;
    return 0;
}

static int lock(struct hub_blob *b, void (*on_wait)(void *ctx, const char *path), void *ctx)
{
    bool said = false;
    while (try_lock(b)) {
        if (!said) on_wait(ctx, b->file->path);
        said = true;
        if (atomic_load(b->stop)) return HUB_ESTOPPED;
        nanosleep(&(struct timespec){.tv_nsec = LOCK_LOOK_MS * 1000000L}, NULL);
    }
    return 0;
}

/* ---- parts ---------------------------------------------------------------------------------- */

/* ETAG.incomplete or ETAG.anything.incomplete. */
static bool is_part(const struct hub_blob *b, const char *name)
{
    static const char suffix[] = ".incomplete";
    size_t etag = strlen(b->file->etag), len = strlen(name), n = sizeof(suffix) - 1;
    return len >= etag + n && len < HUB_PART_NAME_SIZE && name[etag] == '.' &&
           memcmp(name, b->file->etag, etag) == 0 && strcmp(name + len - n, suffix) == 0;
}

/* Calls fn for each part in the folder. */
static void visit_parts(struct hub_blob *b, void (*fn)(struct hub_blob *b, const char *name))
{
    int fd = openat(b->cache->blobs_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0) close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));)
        if (is_part(b, entry->d_name)) fn(b, entry->d_name);
    closedir(dir);
}

/* Returns true if no other process writes to it; locks it if locking works. */
static bool is_free(int fd)
{
    struct stat st;
    bool busy = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    return !busy && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1;
}

static void new_part_name(struct hub_blob *b)
{
    char digits[9];
    hub_random_digits(digits);
    snprintf(b->part, sizeof(b->part), "%s.%s.incomplete", b->file->etag, digits);
}

/* Keeps the longest part found. One that is longer than the file is useless. */
static void look_at_part(struct hub_blob *b, const char *name)
{
    struct stat st;
    if (fstatat(b->cache->blobs_fd, name, &st, AT_SYMLINK_NOFOLLOW)) return;
    int64_t n_bytes = st.st_size > b->file->size ? 0 : (int64_t)st.st_size;
    if (b->part[0] && n_bytes <= b->n_bytes) return;
    snprintf(b->part, sizeof(b->part), "%s", name);
    b->n_bytes = n_bytes;
}

/*
 * Takes a part over: locks it, then renames it. If locks do not work only one of two programs can
 * rename it.
 */
static bool adopt(struct hub_blob *b)
{
    char old[HUB_PART_NAME_SIZE];
    struct stat st;
    int dir = b->cache->blobs_fd;
    memcpy(old, b->part, sizeof(old));
    b->fd = openat(dir, old, PART_FLAGS);
    if (b->fd < 0) return false;
    new_part_name(b);
    if (is_free(b->fd) && renameat(dir, old, dir, b->part) == 0 && fstat(b->fd, &st) == 0) {
        b->n_bytes = st.st_size;
        if (b->n_bytes <= b->file->size) return true;
        b->n_bytes = 0;
        if (ftruncate(b->fd, 0) == 0) return true;
    }
    close(b->fd);
    b->fd = -1;
    return false;
}

static int open_part(struct hub_blob *b)
{
    visit_parts(b, look_at_part);
    if (b->part[0] && adopt(b)) return 0;
    b->n_bytes = 0;
    new_part_name(b);
    b->fd = openat(b->cache->blobs_fd, b->part, PART_FLAGS | O_CREAT | O_EXCL, 0666);
    if (b->fd < 0) return -1;
    flock(b->fd, LOCK_EX | LOCK_NB);
    return 0;
}

static void remove_part(struct hub_blob *b, const char *name)
{
    int fd = openat(b->cache->blobs_fd, name, PART_FLAGS);
    if (fd < 0) return;
    if (is_free(fd)) unlinkat(b->cache->blobs_fd, name, 0);
    close(fd);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int start_hasher(struct hub_blob *b, char *err)
{
    hub_hasher_destroy(b->hasher);
    b->hasher = hub_hasher_create(b->fd, b->file->size, b->file->is_lfs);
    if (!b->hasher) {
        return hub_fail(err, HUB_EINTERNAL, "out of memory");
    }
    hub_hasher_follow(b->hasher, b->n_bytes);
    return 0;
}

int hub_blob_begin(struct hub_blob *ret, const struct hub_cache *c, const struct hub_file *f,
                   mode_t mode, bool force, const atomic_bool *stop,
                   void (*on_wait)(void *ctx, const char *path), void *ctx, char *err)
{
    *ret = (struct hub_blob){
        .cache = c,
        .file = f,
        .mode = mode,
        .stop = stop,
        .lock_fd = -1,
        .fd = -1,
    };
    if (lock(ret, on_wait, ctx)) {
        return hub_fail(err, HUB_ESTOPPED, "stopped");
    }
    if (!force && hub_cache_has_blob(c, f)) return 1;
    if (open_part(ret)) return hub_cache_cannot(c, "write", err);
    return start_hasher(ret, err);
}

int hub_blob_write(struct hub_blob *b, const char *data, size_t len, char *err)
{
    int64_t room = b->file->size - b->n_bytes;
    if ((int64_t)len > room) len = (size_t)room;
    while (len) {
        ssize_t n = pwrite(b->fd, data, len, (off_t)b->n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return hub_cache_cannot(b->cache, "write", err);
        int64_t before = b->n_bytes / WRITEBACK_BYTES;
        b->n_bytes += n;
        data += n;
        len -= (size_t)n;
        if (b->n_bytes / WRITEBACK_BYTES != before)
            sync_file_range(b->fd, before * WRITEBACK_BYTES, WRITEBACK_BYTES,
                            SYNC_FILE_RANGE_WRITE);
    }
    hub_hasher_follow(b->hasher, b->n_bytes);
    return 0;
}

int hub_blob_restart(struct hub_blob *b, char *err)
{
    hub_hasher_destroy(b->hasher);
    b->hasher = NULL;
    b->n_bytes = 0;
    if (ftruncate(b->fd, 0)) return hub_cache_cannot(b->cache, "write", err);
    return start_hasher(b, err);
}

int hub_blob_finish(struct hub_blob *b, char *err)
{
    const struct hub_cache *c = b->cache;
    if (hub_hasher_result(b->hasher, b->stop, b->digest)) {
        bool stopped = errno == ECANCELED;
        if (!stopped) return hub_cache_cannot(c, "read", err);
        return hub_fail(err, HUB_ESTOPPED, "stopped");
    }
    if (strcmp(b->digest, b->file->etag) != 0) return HUB_EWRONG;
    if (fsync(b->fd) || fchmod(b->fd, b->mode) ||
        renameat(c->blobs_fd, b->part, c->blobs_fd, b->file->etag))
        return hub_cache_cannot(c, "write", err);
    close(b->fd);
    b->fd = -1;
    visit_parts(b, remove_part);
    return 0;
}

void hub_blob_drop(struct hub_blob *b)
{
    if (b->fd >= 0) unlinkat(b->cache->blobs_fd, b->part, 0);
}

void hub_blob_end(struct hub_blob *b)
{
    hub_hasher_destroy(b->hasher);
    b->hasher = NULL;
    if (b->fd >= 0) close(b->fd);
    if (b->lock_fd >= 0) close(b->lock_fd); /* closing unlocks */
    b->fd = b->lock_fd = -1;
}
