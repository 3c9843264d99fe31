/* SPDX-License-Identifier: MIT */
/* See store.h. */
#include "server/batch/store.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/hex.h"
#include "server/bounds.h"

enum {
    MAX_DOCUMENT_BYTES = 256 << 10,
    MAX_FILES = 1000, /* of an owner */
    OWNER_SHARE = 5,  /* it has one part in so many */
    FREE_SHARE = 20,  /* so stays of the file system */
};
static const int64_t max_file_bytes = SRV_UPLOAD_FILE_BYTES;

static const char *const folder_names[STORE_FOLDERS] = {"files", "batches"};

struct store {
    char *dir;
    int fd, lock_fd, folders[STORE_FOLDERS];
    int64_t most_bytes;
    pthread_mutex_t disk;      /* held by who changes items or documents */
    pthread_mutex_t lock;      /* in that: of the list */
    struct store_item **items; /* by number */
    size_t n_items, room;
    int64_t n_ever;
};

void store_name(char name[STORE_NAME_CHARS], const char *id, const char *suffix)
{
    snprintf(name, STORE_NAME_CHARS, "%s%s", id, suffix);
}

int store_dir(const struct store *s, enum store_folder folder)
{
    return s->folders[folder];
}

pthread_mutex_t *store_lock(struct store *s)
{
    return &s->lock;
}

/* ---- items --------------------------------------------------------------------------------- */

static void free_item(struct store_item *i)
{
    json_decref(i->doc);
    free(i);
}

static int add_item(struct store *s, struct store_item *i)
{
    HOLD(&s->lock);
    if (ARRAY_ROOM(s->items, s->room, s->n_items + 1, 16u)) return STORE_ENOMEM;
    i->store = s;
    s->items[s->n_items++] = i;
    return 0;
}

static void take_out(struct store *s, const struct store_item *i)
{
    size_t at = 0;
    HOLD(&s->lock);
    while (s->items[at] != i)
        at++;
    s->n_items--;
    memmove(s->items + at, s->items + at + 1, (s->n_items - at) * sizeof(*s->items));
}

struct store_item *store_next(const struct store *s, enum store_folder folder, const uint8_t *owner,
                              bool newest_first, size_t *at)
{
    while (*at < s->n_items) {
        size_t k = newest_first ? s->n_items - 1 - *at : *at;
        struct store_item *i = s->items[k];
        uint8_t differs = 0;
        ++*at;
        for (k = 0; owner && k < STORE_OWNER; k++)
            differs |= i->owner[k] ^ owner[k];
        if (i->doc && i->folder == folder && !differs) return i;
    }
    return NULL;
}

struct store_item *store_find(const struct store *s, enum store_folder folder, const uint8_t *owner,
                              const char *id)
{
    struct store_item *i;
    size_t at = 0;
    while ((i = store_next(s, folder, owner, false, &at)) && strcmp(i->id, id) != 0)
        ;
    return i;
}

/* Fills the item from its document. False: that is not one. */
static bool read_document(struct store_item *i, enum store_folder folder, json_t *doc)
{
    const char *id, *owner;
    if (json_unpack(doc, "{s:s,s:s,s:I}", "id", &id, "owner", &owner, "number", &i->number) ||
        strlen(id) > STORE_ID_CHARS || strlen(owner) != 2 * STORE_OWNER)
        return false;
    for (int k = 0; k < STORE_OWNER; k++)
        i->owner[k] = (uint8_t)(hex_value(owner[2 * k]) << 4 | hex_value(owner[2 * k + 1]));
    memmove(i->id, id, strlen(id) + 1);
    i->bytes = json_integer_value(json_object_get(doc, "bytes"));
    i->folder = folder;
    i->doc = doc;
    return true;
}

/* ---- documents ----------------------------------------------------------------------------- */

/* Durable, and whole or as it was before. */
static int write_document(const struct store *s, enum store_folder folder, const char *id,
                          const json_t *doc)
{
    char name[STORE_NAME_CHARS], temporary[STORE_NAME_CHARS];
    AUTO_FREE char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    store_name(name, id, ".json");
    store_name(temporary, id, ".new");
    if (!text) return STORE_ENOMEM;
    return file_replace(s->folders[folder], name, temporary, text, strlen(text)) ? STORE_EIO : 0;
}

static int fail(const struct store *s, int rc, char *err, size_t errlen)
{
    return fail_with(rc, err, errlen, "%.400s cannot be written: %s", s->dir,
                     rc == STORE_ENOMEM ? "no memory" : strerror(errno));
}

int store_add(struct store *s, enum store_folder folder, json_t *doc, char *err, size_t errlen)
{
    HOLD(&s->disk);
    struct store_item *i = calloc(1, sizeof(*i));
    bool good = i && !json_object_set_new(doc, "number", json_integer(++s->n_ever)) &&
                read_document(i, folder, doc);
    int rc = good ? write_document(s, folder, i->id, doc) : STORE_ENOMEM;
    if (!rc) rc = add_item(s, i);
    if (!rc) return 0;
    json_decref(doc);
    free(i);
    return fail(s, rc, err, errlen);
}

static void replace(struct store_item *i, json_t *doc)
{
    HOLD(&i->store->lock);
    json_decref(i->doc);
    i->doc = doc;
}

int store_update(struct store *s, enum store_folder folder, const uint8_t *owner, const char *id,
                 const char *from, json_t *members, bool durable, char *err, size_t errlen)
{
    HOLD(&s->disk);
    struct store_item *i = store_find(s, folder, owner, id);
    bool other = i && from && strcmp(from, store_text(i->doc, "status")) != 0;
    json_t *doc = i ? json_deep_copy(i->doc) : NULL;
    bool good = !json_object_update_new(doc, members);
    int rc = !i ? STORE_ENOENT : other ? 1 : good ? 0 : fail(s, STORE_ENOMEM, err, errlen);
    if (!rc && durable && (rc = write_document(s, folder, id, doc))) fail(s, rc, err, errlen);
    if (rc)
        json_decref(doc);
    else
        replace(i, doc);
    return rc;
}

char *store_public(const json_t *doc)
{
    json_t *copy = json_copy((json_t *)doc);
    const char *key;
    json_t *value;
    void *next;
    json_object_del(copy, "owner");
    json_object_del(copy, "number");
    json_object_foreach_safe(copy, next, key, value) if (*key == '_') json_object_del(copy, key);
    char *text = copy ? json_dumps(copy, JSON_COMPACT) : NULL;
    json_decref(copy);
    return text;
}

/* Bytes lose their name first. */
static int remove_item(struct store *s, struct store_item *i)
{
    char name[STORE_NAME_CHARS];
    int dir = s->folders[i->folder];
    store_name(name, i->id, i->folder == STORE_FILES ? "" : ".results");
    if (unlinkat(dir, name, 0) && errno != ENOENT) return STORE_EIO;
    store_name(name, i->id, ".json");
    if (fsync(dir) || (unlinkat(dir, name, 0) && errno != ENOENT) || fsync(dir)) return STORE_EIO;
    take_out(s, i);
    free_item(i);
    return 0;
}

int store_remove(struct store *s, enum store_folder folder, const uint8_t *owner, const char *id)
{
    HOLD(&s->disk);
    struct store_item *i = store_find(s, folder, owner, id);
    return i ? remove_item(s, i) : STORE_ENOENT;
}

/* ---- files --------------------------------------------------------------------------------- */

/* With the lock held: room for n bytes more of the item. */
static int check_quota(const struct store *s, const struct store_item *i, size_t n, char *err,
                       size_t errlen)
{
    int n_files = 0;
    struct statvfs fs;
    int64_t more = (int64_t)n, most = s->most_bytes / OWNER_SHARE;
    int64_t own = 0, all = 0;
    for (size_t k = 0; k < s->n_items; k++) {
        const struct store_item *other = s->items[k];
        if (other->folder != STORE_FILES) continue;
        all += other->bytes;
        if (memcmp(other->owner, i->owner, STORE_OWNER) != 0) continue;
        own += other->bytes;
        n_files++;
    }
    if (more > max_file_bytes - i->bytes)
        return fail_with(STORE_ELARGE, err, errlen,
                         "The file has more than %lld bytes, the most that a file may have.",
                         (long long)max_file_bytes);
    if (n_files > MAX_FILES)
        return fail_with(STORE_EQUOTA, err, errlen,
                         "%d files are kept for this key, the most there may be: delete some.",
                         MAX_FILES);
    if (more > most - own)
        return fail_with(STORE_EQUOTA, err, errlen,
                         "%lld bytes of files are kept for this key, and the limit is %lld: "
                         "delete some.",
                         (long long)own, (long long)most);
    if (more > s->most_bytes - all)
        return fail_with(STORE_EQUOTA, err, errlen,
                         "%lld bytes of files are kept, and the limit is %lld.", (long long)all,
                         (long long)s->most_bytes);
    if (fstatvfs(s->fd, &fs) == 0 && fs.f_bavail < fs.f_blocks / FREE_SHARE)
        return fail_with(STORE_EQUOTA, err, errlen,
                         "The disk is full: a twentieth of it stays free.");
    return 0;
}

int store_upload_begin(struct store *s, const uint8_t *owner, const char *id,
                       struct store_item **ret, char *err, size_t errlen)
{
    char name[STORE_NAME_CHARS];
    struct store_item *i = calloc(1, sizeof(*i));
    if (!i) return fail(s, STORE_ENOMEM, err, errlen);
    memcpy(i->owner, owner, STORE_OWNER);
    snprintf(i->id, sizeof(i->id), "%s", id);
    HOLD(&s->disk);
    if (add_item(s, i)) {
        free(i);
        return fail(s, STORE_ENOMEM, err, errlen);
    }
    store_name(name, i->id, ".tmp");
    i->fd = openat(s->folders[STORE_FILES], name,
                   O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    *ret = i->fd < 0 ? NULL : i;
    if (*ret) return 0;
    fail(s, STORE_EIO, err, errlen);
    take_out(s, i);
    free(i);
    return STORE_EIO;
}

int store_upload_add(struct store_item *i, const void *data, size_t n, char *err, size_t errlen)
{
    struct store *s = i->store;
    {
        HOLD(&s->lock);
        int rc = check_quota(s, i, n, err, errlen);
        if (rc) return rc;
        i->bytes += (int64_t)n;
    }
    return file_write_all(i->fd, data, n) ? fail(s, STORE_EIO, err, errlen) : 0;
}

/* The document first, then the name of the bytes. */
static int publish(struct store *s, struct store_item *i, const char *filename, const char *purpose,
                   int64_t keep_s)
{
    char name[STORE_NAME_CHARS], owner[2 * STORE_OWNER + 1];
    struct stat st;
    int dir = s->folders[STORE_FILES];
    json_int_t now = store_now_s();
    hex_write(owner, i->owner, STORE_OWNER);
    if (fsync(i->fd) || fstat(i->fd, &st)) return STORE_EIO;
    HOLD(&s->disk);
    json_auto_t *doc =
        json_pack("{s:s,s:s,s:I,s:I,s:I,s:s,s:s,s:s,s:n,s:s,s:I}", "id", i->id, "object", "file",
                  "bytes", (json_int_t)st.st_size, "created_at", now, "expires_at",
                  now + (json_int_t)keep_s, "filename", filename, "purpose", purpose, "status",
                  "processed", "status_details", "owner", owner, "number", (json_int_t)++s->n_ever);
    store_name(name, i->id, ".tmp");
    int rc = write_document(s, STORE_FILES, i->id, doc);
    if (!rc && (renameat(dir, name, dir, i->id) || fsync(dir))) rc = STORE_EIO;
    if (rc) return rc;
    take_out(s, i); /* its place is that of its end; there is room for it */
    file_close(&i->fd);
    read_document(i, STORE_FILES, json_incref(doc));
    return add_item(s, i);
}

int store_upload_end(struct store_item *i, const char *filename, const char *purpose,
                     int64_t keep_s, char *err, size_t errlen)
{
    int rc = publish(i->store, i, filename, purpose, keep_s);
    return rc ? fail(i->store, rc, err, errlen) : 0;
}

void store_upload_drop(struct store_item *i)
{
    static const char *const suffixes[] = {"", ".tmp", ".new", ".json"};
    char name[STORE_NAME_CHARS];
    if (!i) return;
    struct store *s = i->store;
    file_close(&i->fd);
    for (size_t k = 0; k < sizeof(suffixes) / sizeof(suffixes[0]); k++) {
        store_name(name, i->id, suffixes[k]);
        unlinkat(s->folders[STORE_FILES], name, 0);
    }
    HOLD(&s->disk);
    take_out(s, i);
    free_item(i);
}

int store_file_open(struct store *s, const char *id)
{
    return openat(s->folders[STORE_FILES], id, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

/* ---- opening ------------------------------------------------------------------------------- */

static int load_item(struct store *s, enum store_folder folder, const char *name, char *err,
                     size_t errlen)
{
    AUTO_FREE char *text = NULL;
    char path[300];
    size_t n;
    snprintf(path, sizeof(path), "%s/%s", folder_names[folder], name);
    int rc = file_load(s->dir, path, MAX_DOCUMENT_BYTES, &text, &n, err, errlen);
    if (rc) return rc;
    struct store_item *i = calloc(1, sizeof(*i));
    json_t *doc = json_loadb(text, n, 0, NULL);
    if (!i || !read_document(i, folder, doc)) {
        rc =
            i ? fail_with(STORE_EIO, err, errlen,
                          "%.400s/%s: is not a document of this directory; remove it", s->dir, path)
              : fail(s, STORE_ENOMEM, err, errlen);
        json_decref(doc);
        free(i);
        return rc;
    }
    bool has_bytes = folder != STORE_FILES || !faccessat(s->folders[folder], i->id, F_OK, 0);
    if (!has_bytes) unlinkat(s->folders[folder], name, 0); /* they never got their name */
    if (i->number > s->n_ever) s->n_ever = i->number;
    rc = has_bytes ? add_item(s, i) : 0;
    if (rc || !has_bytes) free_item(i);
    return rc;
}

/* What a killed process has left goes; documents are read. */
static int load_folder(struct store *s, enum store_folder folder, char *err, size_t errlen)
{
    int rc = 0, fd = openat(s->folders[folder], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) return fail(s, STORE_EIO, err, errlen);
    for (struct dirent *e; !rc && (e = readdir(d));) {
        const char *end = strrchr(e->d_name, '.');
        if (!end || strlen(e->d_name) >= STORE_NAME_CHARS) continue;
        if (!strcmp(end, ".tmp") || !strcmp(end, ".new"))
            unlinkat(s->folders[folder], e->d_name, 0);
        else if (!strcmp(end, ".json"))
            rc = load_item(s, folder, e->d_name, err, errlen);
    }
    closedir(d);
    return rc;
}

static int by_number(const void *a, const void *b)
{
    const struct store_item *const *x = a, *const *y = b;
    return (*x)->number < (*y)->number ? -1 : (*x)->number > (*y)->number;
}

/* One process has the directory at a time. */
static int lock_dir(struct store *s, char *err, size_t errlen)
{
    char pid[24] = "";
    s->lock_fd = openat(s->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->lock_fd < 0) return fail(s, STORE_EIO, err, errlen);
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB)) {
        ssize_t n = pread(s->lock_fd, pid, sizeof(pid) - 1, 0);
        return fail_with(STORE_EIO, err, errlen,
                         "%.400s: process %s has this directory; each server needs one of its own",
                         s->dir, n > 0 ? pid : "?");
    }
    int n = snprintf(pid, sizeof(pid), "%d", (int)getpid());
    bool good = !ftruncate(s->lock_fd, 0) && pwrite(s->lock_fd, pid, (size_t)n, 0) == n;
    return good ? 0 : fail(s, STORE_EIO, err, errlen);
}

static int open_dirs(struct store *s, char *err, size_t errlen)
{
    struct stat st;
    if ((mkdir(s->dir, 0700) && errno != EEXIST) ||
        (s->fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)) < 0 ||
        fstat(s->fd, &st))
        return fail_with(STORE_EIO, err, errlen, "%.400s: cannot be opened or made: %s", s->dir,
                         strerror(errno));
    if (st.st_uid != geteuid() || st.st_mode & 077)
        return fail_with(STORE_EIO, err, errlen,
                         "%.400s: requests and answers are kept here, so the directory must be "
                         "this user's alone (chmod 700, chown)",
                         s->dir);
    AUTO(file_close) int parent = openat(s->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = lock_dir(s, err, errlen);
    for (int f = 0; f < STORE_FOLDERS && !rc; f++) {
        bool made = !mkdirat(s->fd, folder_names[f], 0700) || errno == EEXIST;
        if (made)
            s->folders[f] = openat(s->fd, folder_names[f], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = s->folders[f] < 0 ? fail(s, STORE_EIO, err, errlen)
                               : load_folder(s, (enum store_folder)f, err, errlen);
    }
    /* The names of the directories; a parent that cannot be read was there before. */
    if (!rc && (fsync(s->fd) || (parent >= 0 && fsync(parent))))
        rc = fail(s, STORE_EIO, err, errlen);
    return rc;
}

int store_open(struct store **ret, const char *dir, int64_t most_bytes, char *err, size_t errlen)
{
    struct store *s = calloc(1, sizeof(*s));
    if (!s) return fail_with(STORE_ENOMEM, err, errlen, "no memory for files and batches");
    *s = (struct store){
        .dir = strdup(dir), .fd = -1, .lock_fd = -1, .folders = {-1, -1}, .most_bytes = most_bytes};
    pthread_mutex_init(&s->disk, NULL);
    pthread_mutex_init(&s->lock, NULL);
    int rc = s->dir ? open_dirs(s, err, errlen) : STORE_ENOMEM;
    if (rc) {
        store_close(s);
        return rc;
    }
    if (s->n_items) qsort(s->items, s->n_items, sizeof(*s->items), by_number);
    *ret = s;
    return 0;
}

void store_close(struct store *s)
{
    if (!s) return;
    int *const fds[] = {&s->folders[0], &s->folders[1], &s->lock_fd, &s->fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        file_close(fds[i]);
    for (size_t i = 0; i < s->n_items; i++)
        free_item(s->items[i]);
    free(s->items);
    free(s->dir);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->disk);
    free(s);
}
