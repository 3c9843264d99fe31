/* SPDX-License-Identifier: MIT */
/* Files from the hub; see fetch.h. */
#include "server/hub/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/file.h"
#include "base/gguf_names.h"
#include "base/hex.h"
#include "base/sha256.h"

enum {
    REVISION_MAX_BYTES = 16 << 20, /* the answer has many members besides the commit */
    PAGES_MAX = 200,
    LOCK_LOOK_MS = 50,
    WRITEBACK_BYTES = 8 << 20, /* written to disk at once, so that the sync at the end is short */
    PIECE_BYTES = 16 << 10,    /* of a part that is hashed before it is continued */
    PART_NAME_SIZE = HUB_ETAG_SIZE + 24,
    LOOK_FIRST_BYTES = 1 << 10,
    PART_FLAGS = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
};

/* SHA-256 for files of git-lfs, else git's SHA-1 of a blob: of "blob SIZE", a NUL, the content. */
struct hash {
    bool is_lfs;
    struct sha256 sha;
};

/* A file being fetched: its lock, its part file, the hash of what the part holds. */
struct job {
    const struct hub_fetch *fetch;
    const struct hub_file *file;
    int lock_fd, fd; /* -1: none */
    char part[PART_NAME_SIZE];
    int64_t n_bytes; /* of the part, from its first byte on */
    int64_t look_at; /* so many bytes of the part are looked at next */
    struct hash hash;
    int rc;         /* of writing, while a try runs */
    bool bad_range; /* the answer is a different part than requested */
    char err[HUB_ERR_SIZE];
};

/* ---- commit and listing --------------------------------------------------------------------- */

int hub_fetch_commit(struct hub_client *c, char ret[HUB_COMMIT_LEN + 1], char *err)
{
    char url[TRANSFER_URL_MAX_BYTES];
    AUTO(buf_finish) struct buf b = {.max = REVISION_MAX_BYTES};
    if (hub_client_url(c, url, sizeof(url), "/api/models/", "/revision/", c->name->revision, true))
        return hub_fail(err, HUB_EUSAGE, "the address of the model is too long");
    int rc = hub_client_get(c, url, NULL, &b, NULL, 0, err);
    if (!rc && hub_commit_read(b.data ? b.data : "", b.len, ret))
        rc = hub_fail(err, HUB_EWRONG, "the answer does not name a commit; is HF_ENDPOINT a hub?");
    return rc;
}

/* Reads the page at url, which becomes the next one's, or "". */
static int get_page(struct hub_client *c, struct hub_listing *l, size_t *n_bytes, char *url,
                    size_t size, struct buf *b, char *err)
{
    char next[TRANSFER_URL_MAX_BYTES];
    int rc = hub_client_get(c, url, NULL, b, next, sizeof(next), err);
    if (rc) return rc;
    *n_bytes += b->len;
    if (*n_bytes > HUB_LISTING_MAX_BYTES)
        return hub_fail(err, HUB_EWRONG, "the hub's file list has more than %d MiB",
                        HUB_LISTING_MAX_BYTES >> 20);
    rc = hub_listing_add_page(l, b->data ? b->data : "", b->len, err);
    if (!rc && next[0] && transfer_url_join(url, next, url, size))
        rc = hub_fail(err, HUB_EWRONG, "the hub's file list has an invalid next-page URL");
    if (!next[0]) url[0] = '\0';
    return rc;
}

int hub_fetch_listing(struct hub_client *c, const char *commit, struct hub_listing *ret, char *err)
{
    char url[TRANSFER_URL_MAX_BYTES];
    AUTO(buf_finish) struct buf b = {.max = HUB_PAGE_MAX_BYTES};
    size_t n_bytes = 0;
    if (hub_client_url(c, url, sizeof(url) - 64, "/api/models/", "/tree/", commit, true))
        return hub_fail(err, HUB_EUSAGE, "the address of the model is too long");
    size_t len = strlen(url);
    snprintf(url + len, sizeof(url) - len, "?recursive=true&expand=false");
    for (int n = 0; url[0]; n++) {
        if (n == PAGES_MAX) /* of a list that leads back to a page of itself, too */
            return hub_fail(err, HUB_EWRONG, "the hub's file list has more than %d pages", n);
        int rc = get_page(c, ret, &n_bytes, url, sizeof(url), &b, err);
        if (rc) return rc;
    }
    return hub_listing_sort(ret, err);
}

/* ---- hashing -------------------------------------------------------------------------------- */

static void hash_begin(struct hash *h, const struct hub_file *f)
{
    char head[40];
    h->is_lfs = f->is_lfs;
    if (h->is_lfs) {
        sha256_init(&h->sha);
        return;
    }
    int len = snprintf(head, sizeof(head), "blob %lld", (long long)f->size);
    sha1_init(&h->sha);
    sha256_update(&h->sha, head, (size_t)len + 1);
}

static void hash_end(struct hash *h, char ret[HUB_ETAG_SIZE])
{
    uint8_t digest[SHA256_BYTES];
    sha256_final(&h->sha, digest);
    hex_write(ret, digest, h->is_lfs ? SHA256_BYTES : SHA1_BYTES);
}

/* ---- the lock ------------------------------------------------------------------------------- */

/* .locks/FOLDER/ETAG.lock, open; -1 if it cannot be. */
static int open_lock(const struct job *j)
{
    const struct hub_cache *c = j->fetch->cache;
    char name[HUB_ETAG_SIZE + 8];
    AUTO(file_close) int locks = hub_folder_open(c->root_fd, ".locks", true);
    AUTO(file_close) int folder = locks < 0 ? -1 : hub_folder_open(locks, c->folder, true);
    snprintf(name, sizeof(name), "%s.lock", j->file->etag);
    /* The mode huggingface_hub uses: other users of the group may lock too. */
    if (folder < 0) return -1;
    return openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0664);
}

/* Returns 0 if locked, or if locking does not work here; 1 if another process holds the lock. */
static int try_lock(struct job *j)
{
    struct stat st;
    for (int i = 0; i < 100; i++) {
        j->lock_fd = open_lock(j);
        if (j->lock_fd < 0) return 0;
        bool busy = flock(j->lock_fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
        bool removed = !busy && fstat(j->lock_fd, &st) == 0 && st.st_nlink == 0;
        if (!busy && !removed) return 0;
        file_close(&j->lock_fd);
        if (busy) return 1;
    }
    return 0;
}

static int lock(struct job *j)
{
    bool said = false;
    while (try_lock(j)) {
        if (!said) j->fetch->on_wait(j->fetch->ctx, j->file->path);
        said = true;
        if (atomic_load(j->fetch->client->stop)) return hub_fail(j->err, HUB_ESTOPPED, "stopped");
        nanosleep(&(struct timespec){.tv_nsec = LOCK_LOOK_MS * 1000000L}, NULL);
    }
    return 0;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static int cannot(struct job *j, const char *action)
{
    return hub_cache_cannot(j->fetch->cache, action, j->err);
}

/* Returns true if no other process writes to it; locks it if locking works. */
static bool is_free(int fd)
{
    struct stat st;
    bool busy = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    return !busy && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1;
}

static void new_part_name(struct job *j)
{
    char digits[9];
    hub_random_digits(digits);
    snprintf(j->part, sizeof(j->part), "%s.%s.incomplete", j->file->etag, digits);
}

/* Keeps the longest part found. One that is longer than the file is useless. */
static void look_at_part(void *ctx, const char *name, int64_t n_bytes)
{
    struct job *j = ctx;
    if (strlen(name) >= sizeof(j->part)) return;
    if (n_bytes > j->file->size) n_bytes = 0;
    if (j->part[0] && n_bytes <= j->n_bytes) return;
    snprintf(j->part, sizeof(j->part), "%s", name);
    j->n_bytes = n_bytes;
}

/*
 * Takes a part over: locks it, then renames it. If locks do not work only one of two programs can
 * rename it.
 */
static bool adopt(struct job *j)
{
    char old[PART_NAME_SIZE];
    struct stat st;
    int dir = j->fetch->cache->blobs_fd;
    memcpy(old, j->part, sizeof(old));
    j->fd = openat(dir, old, PART_FLAGS);
    if (j->fd < 0) return false;
    new_part_name(j);
    if (is_free(j->fd) && renameat(dir, old, dir, j->part) == 0 && fstat(j->fd, &st) == 0) {
        j->n_bytes = st.st_size;
        if (j->n_bytes <= j->file->size) return true;
        j->n_bytes = 0;
        if (ftruncate(j->fd, 0) == 0) return true;
    }
    file_close(&j->fd);
    return false;
}

static int open_part(struct job *j)
{
    int dir = j->fetch->cache->blobs_fd;
    hub_cache_visit_parts(j->fetch->cache, j->file, look_at_part, j);
    if (j->part[0] && adopt(j)) return 0;
    j->n_bytes = 0;
    new_part_name(j);
    j->fd = openat(dir, j->part, PART_FLAGS | O_CREAT | O_EXCL, 0666);
    if (j->fd < 0) return cannot(j, "write");
    flock(j->fd, LOCK_EX | LOCK_NB);
    return 0;
}

/* Hashes what an earlier run has left. */
static int hash_part(struct job *j)
{
    char piece[PIECE_BYTES];
    hash_begin(&j->hash, j->file);
    for (int64_t at = 0; at < j->n_bytes;) {
        int64_t left = j->n_bytes - at;
        ssize_t n = pread(j->fd, piece, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO; /* another process truncated the file */
        if (n <= 0) return cannot(j, "read");
        if (atomic_load(j->fetch->client->stop)) return hub_fail(j->err, HUB_ESTOPPED, "stopped");
        sha256_update(&j->hash.sha, piece, (size_t)n);
        at += n;
    }
    return 0;
}

static int restart(struct job *j)
{
    j->n_bytes = 0;
    hash_begin(&j->hash, j->file);
    j->rc = ftruncate(j->fd, 0) ? cannot(j, "write") : 0;
    j->fetch->on_bytes(j->fetch->ctx, j->file, 0, 0);
    return j->rc;
}

/* Writes the next bytes, never beyond the file's size. */
static int write_part(struct job *j, const char *data, size_t len)
{
    int64_t room = j->file->size - j->n_bytes;
    if ((int64_t)len > room) len = (size_t)room;
    while (len) {
        ssize_t n = pwrite(j->fd, data, len, (off_t)j->n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cannot(j, "write");
        int64_t before = j->n_bytes / WRITEBACK_BYTES;
        sha256_update(&j->hash.sha, data, (size_t)n);
        j->n_bytes += n;
        data += n;
        len -= (size_t)n;
        if (j->n_bytes / WRITEBACK_BYTES != before)
            sync_file_range(j->fd, before * WRITEBACK_BYTES, WRITEBACK_BYTES,
                            SYNC_FILE_RANGE_WRITE);
    }
    return 0;
}

static void remove_part(void *ctx, const char *name, int64_t n_bytes)
{
    const struct job *j = ctx;
    int dir = j->fetch->cache->blobs_fd, fd = openat(dir, name, PART_FLAGS);
    if (fd >= 0 && is_free(fd)) unlinkat(dir, name, 0);
    file_close(&fd);
}

/* Gives the blob its name. */
static int finish_part(struct job *j)
{
    int dir = j->fetch->cache->blobs_fd;
    if (fsync(j->fd) || fchmod(j->fd, 0666 & ~j->fetch->client->settings->umask) ||
        renameat(dir, j->part, dir, j->file->etag))
        return cannot(j, "write");
    file_close(&j->fd);
    hub_cache_visit_parts(j->fetch->cache, j->file, remove_part, j);
    return 0;
}

/* ---- tries ---------------------------------------------------------------------------------- */

/* 206 with exactly the rest, or 200 with all of it. */
static bool take_head(void *ctx, struct transfer *t)
{
    struct job *j = ctx;
    int status = transfer_status(t);
    const char *range = transfer_header(t, "Content-Range");
    if (status == 200) return j->n_bytes == 0 || restart(j) == 0;
    j->bad_range = status != 206 || j->n_bytes == 0 || !range ||
                   !hub_range_is(range, j->n_bytes, j->file->size);
    return !j->bad_range;
}

/* The beginning is looked at when it has twice as many bytes as the last time. */
static int look(struct job *j)
{
    const struct hub_fetch *fetch = j->fetch;
    if (!fetch->look || j->n_bytes < j->look_at || !gguf_is_name(j->file->path)) return 0;
    int rc = fetch->look(fetch->ctx, j->file, j->part, j->n_bytes, j->err);
    j->look_at = rc ? INT64_MAX : 2 * j->n_bytes;
    return rc < 0 ? rc : 0;
}

/* Bytes beyond the listed size are refused. */
static bool take_body(void *ctx, const char *data, size_t len)
{
    struct job *j = ctx;
    int64_t before = j->n_bytes;
    j->rc = write_part(j, data, len);
    if (!j->rc) j->rc = look(j);
    if (j->rc) return false;
    j->fetch->on_bytes(j->fetch->ctx, j->file, j->n_bytes, j->n_bytes - before);
    return j->n_bytes - before == (int64_t)len;
}

/* Sets what a failure is, with the file's path before the reason, which may be the one it had. */
static void explain(const struct job *j, struct hub_failure *f, int rc, const char *reason)
{
    char text[HUB_ERR_SIZE];
    snprintf(text, sizeof(text), "%s", reason);
    f->rc = hub_fail(f->err, rc, "%.200s: %.360s", j->file->path, text);
    f->again = rc == HUB_ENETWORK && f->again;
}

/* Makes one try. Afterwards all bytes have been received, or *f is the reason. */
static void try_once(struct job *j, const char *url, struct hub_failure *f)
{
    struct hub_request r = {
        .url = url,
        .what = j->file->path,
        .from = j->n_bytes,
        .on_head = take_head,
        .on_body = take_body,
        .ctx = j,
    };
    char reason[80] = "the server sent a different byte range than requested";
    j->rc = 0;
    j->bad_range = false;
    hub_client_try(j->fetch->client, &r, f);
    bool whole = j->n_bytes == j->file->size;
    if ((f->refused && !j->rc && whole && !j->bad_range) || (f->rc == 0 && whole)) {
        *f = (struct hub_failure){0};
    } else if (f->refused && j->rc) {
        explain(j, f, j->rc, j->err);
    } else if (f->refused || f->rc == 0) {
        if (!f->refused)
            snprintf(reason, sizeof(reason), "ended early, with %lld of %lld bytes",
                     (long long)j->n_bytes, (long long)j->file->size);
        *f = (struct hub_failure){.again = true, .retry_after_s = -1};
        explain(j, f, HUB_ENETWORK, reason);
    } else if (f->rc == HUB_ENETWORK) {
        explain(j, f, HUB_ENETWORK, f->err);
    }
    if (f->again && (j->bad_range || f->status == 416) && restart(j)) explain(j, f, j->rc, j->err);
}

/* Tries until all bytes have been received. */
static int fetch_bytes(struct job *j, const char *url)
{
    struct hub_tries tries = {.best = j->n_bytes};
    struct hub_failure f;
    if (j->n_bytes == j->file->size && j->file->size > 0) return 0;
    do {
        try_once(j, url, &f);
        if (f.rc == 0) return 0;
    } while (hub_client_wait(j->fetch->client, &tries, j->n_bytes, &f) == 0);
    return hub_fail(j->err, f.rc, "%s", f.err);
}

/* Wrong content is fetched once more, from the beginning. */
static int fetch_right(struct job *j, const char *url)
{
    const struct hub_client *c = j->fetch->client;
    const struct hub_file *f = j->file;
    char digest[HUB_ETAG_SIZE], reason[HUB_PATH_MAX + 40];
    for (int n_try = 1;; n_try++) {
        int rc = fetch_bytes(j, url);
        if (rc) return rc;
        hash_end(&j->hash, digest);
        if (strcmp(digest, f->etag) == 0) return finish_part(j);
        if (n_try == 2) break;
        snprintf(reason, sizeof(reason), "%s: wrong content came", f->path);
        if (c->on_retry) c->on_retry(c->ctx, reason, 2, 0);
        if ((rc = restart(j))) return rc;
    }
    unlinkat(j->fetch->cache->blobs_fd, j->part, 0); /* its bytes are useless */
    return hub_fail(j->err, HUB_EWRONG,
                    "%.200s: %s mismatch on two attempts: expected %.8s\u2026, got %.8s\u2026",
                    f->path, f->is_lfs ? "SHA-256" : "SHA-1", f->etag, digest);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int make_url(const struct hub_fetch *fetch, const struct hub_file *f, char *url, size_t size,
                    char *err)
{
    char middle[HUB_COMMIT_LEN + 16];
    snprintf(middle, sizeof(middle), "/resolve/%s/", fetch->commit);
    if (hub_client_url(fetch->client, url, size, "/", middle, f->path, false) == 0) return 0;
    return hub_fail(err, HUB_EWRONG, "the address of %.200s is too long", f->path);
}

static int fetch_part(struct job *j, const char *url)
{
    const struct hub_fetch *fetch = j->fetch;
    int rc = lock(j);
    if (rc) return rc;
    if (!fetch->force && hub_cache_has_blob(fetch->cache, j->file)) {
        fetch->on_bytes(fetch->ctx, j->file, j->file->size, 0);
        return 0;
    }
    rc = open_part(j);
    if (!rc) rc = hash_part(j);
    if (rc) return rc;
    fetch->on_bytes(fetch->ctx, j->file, j->n_bytes, 0);
    return fetch_right(j, url);
}

int hub_fetch_blob(const struct hub_fetch *fetch, const struct hub_file *f, char *err)
{
    struct job j = {
        .fetch = fetch, .file = f, .lock_fd = -1, .fd = -1, .look_at = LOOK_FIRST_BYTES};
    char url[TRANSFER_URL_MAX_BYTES];
    int rc = make_url(fetch, f, url, sizeof(url), err);
    if (rc) return rc;
    rc = fetch_part(&j, url);
    file_close(&j.fd); /* the part stays for the next run */
    file_close(&j.lock_fd);
    return rc ? hub_fail(err, rc, "%s", j.err) : 0;
}

/* ---- into memory ---------------------------------------------------------------------------- */

static bool is_content_of(const struct hub_file *f, const struct buf *b)
{
    struct hash hash;
    char digest[HUB_ETAG_SIZE];
    hash_begin(&hash, f);
    sha256_update(&hash.sha, b->data, b->len);
    hash_end(&hash, digest);
    return (int64_t)b->len == f->size && strcmp(digest, f->etag) == 0;
}

int hub_fetch_text(const struct hub_fetch *fetch, const struct hub_file *f, struct buf *ret,
                   char *err)
{
    char url[TRANSFER_URL_MAX_BYTES];
    int rc = make_url(fetch, f, url, sizeof(url), err);
    for (int n_try = 0; !rc && n_try < 2; n_try++) {
        rc = hub_client_get(fetch->client, url, f->path, ret, NULL, 0, err);
        if (!rc && is_content_of(f, ret)) return 0;
    }
    return rc ? rc
              : hub_fail(err, HUB_EWRONG, "%.200s: the content is not the one listed", f->path);
}
