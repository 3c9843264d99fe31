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
    MAX_FILES = 1000,                /* of an owner */
    OWNER_SHARE = 5,                 /* it has one part in so many */
    FREE_SHARE = 20,                 /* so stays of the file system */
    NAME_CHARS = STORE_ID_CHARS + 9, /* with a suffix of ".results" */
};
static const int64_t max_file_bytes = SRV_UPLOAD_FILE_BYTES;

static const char *const folder_names[STORE_FOLDERS] = {"files", "batches"};

struct item {
    enum store_folder folder;
    char id[STORE_ID_CHARS + 1];
    uint8_t owner[STORE_OWNER];
    int64_t number, bytes, expires_s; /* 0: never */
    json_t *doc;                      /* NULL: an upload */
};

struct store {
    char *dir;
    int fd, lock_fd, folders[STORE_FOLDERS];
    int64_t most_bytes;
    pthread_mutex_t disk; /* held by who changes items or documents */
    pthread_mutex_t lock; /* in that: of the list */
    struct item **items;  /* by number */
    size_t n_items, room;
    int64_t n_ever;
};

struct store_upload {
    struct store *store;
    struct item *item; /* of the store */
    int fd;
};

static void name_of(char name[NAME_CHARS], const char *id, const char *suffix)
{
    snprintf(name, NAME_CHARS, "%s%s", id, suffix);
}

int store_dir(const struct store *s, enum store_folder folder)
{
    return s->folders[folder];
}

/* ---- items --------------------------------------------------------------------------------- */

static void free_item(struct item *i)
{
    json_decref(i->doc);
    free(i);
}

static int add_item(struct store *s, struct item *i)
{
    HOLD(&s->lock);
    if (ARRAY_ROOM(s->items, s->room, s->n_items + 1, 16u)) return STORE_ENOMEM;
    s->items[s->n_items++] = i;
    return 0;
}

static void take_out(struct store *s, const struct item *i)
{
    size_t at = 0;
    HOLD(&s->lock);
    while (s->items[at] != i)
        at++;
    s->n_items--;
    memmove(s->items + at, s->items + at + 1, (s->n_items - at) * sizeof(*s->items));
}

static bool is_of(const struct item *i, enum store_folder folder, const uint8_t *owner)
{
    uint8_t differs = 0;
    for (int k = 0; owner && k < STORE_OWNER; k++)
        differs |= i->owner[k] ^ owner[k];
    return i->doc && i->folder == folder && !differs;
}

static struct item *find(const struct store *s, enum store_folder folder, const uint8_t *owner,
                         const char *id)
{
    for (size_t i = 0; i < s->n_items; i++)
        if (is_of(s->items[i], folder, owner) && !strcmp(s->items[i]->id, id)) return s->items[i];
    return NULL;
}

void store_owner_of(const json_t *doc, uint8_t ret[STORE_OWNER])
{
    const char *owner = json_string_value(json_object_get(doc, "owner"));
    for (int k = 0; k < STORE_OWNER; k++)
        ret[k] = (uint8_t)(hex_value(owner[2 * k]) << 4 | hex_value(owner[2 * k + 1]));
}

/* Fills the item from its document. False: that is not one. */
static bool read_document(struct item *i, json_t *doc)
{
    const char *id, *owner;
    json_t *expires = json_object_get(doc, "expires_at");
    if (json_unpack(doc, "{s:s,s:s,s:I}", "id", &id, "owner", &owner, "number", &i->number) ||
        strlen(id) > STORE_ID_CHARS || strlen(owner) != 2 * STORE_OWNER)
        return false;
    store_owner_of(doc, i->owner);
    memmove(i->id, id, strlen(id) + 1);
    i->bytes = json_integer_value(json_object_get(doc, "bytes"));
    i->expires_s = json_integer_value(expires);
    i->doc = doc;
    return true;
}

/* ---- documents ----------------------------------------------------------------------------- */

/* Durable, and whole or as it was before. */
static int write_document(const struct store *s, enum store_folder folder, const struct item *i)
{
    char name[NAME_CHARS], temporary[NAME_CHARS];
    AUTO_FREE char *text = json_dumps(i->doc, JSON_COMPACT);
    name_of(name, i->id, ".json");
    name_of(temporary, i->id, ".new");
    return text ? file_replace(s->folders[folder], name, temporary, text, strlen(text))
                : STORE_ENOMEM;
}

static int fail(const struct store *s, int rc, char *err, size_t errlen)
{
    return fail_with(rc, err, errlen, "%.400s cannot be written: %s", s->dir,
                     rc == STORE_ENOMEM ? "no memory" : strerror(errno));
}

/* Takes doc, as a new item or in place of that of an old one. */
static int put(struct store *s, enum store_folder folder, struct item *old, json_t *doc,
               bool durable, char *err, size_t errlen)
{
    struct item *i = calloc(1, sizeof(*i)), was;
    int64_t number = old ? old->number : ++s->n_ever;
    if (!i || json_object_set_new(doc, "number", json_integer(number)) || !read_document(i, doc)) {
        json_decref(doc);
        free(i);
        return fail(s, STORE_ENOMEM, err, errlen);
    }
    i->folder = folder;
    int rc = durable ? write_document(s, folder, i) : 0;
    if (!rc && !old) rc = add_item(s, i);
    if (rc) {
        free_item(i);
        return fail(s, rc, err, errlen);
    }
    if (!old) return 0;
    HOLD(&s->lock);
    was = *old;
    *old = *i;
    *i = was;
    free_item(i);
    return 0;
}

int store_put(struct store *s, enum store_folder folder, json_t *doc, char *err, size_t errlen)
{
    HOLD(&s->disk);
    struct item *old = find(s, folder, NULL, json_string_value(json_object_get(doc, "id")));
    return put(s, folder, old, doc, true, err, errlen);
}

int store_change(struct store *s, enum store_folder folder, const uint8_t *owner, const char *id,
                 bool durable, store_change_fn *change, void *ctx, char *err, size_t errlen)
{
    HOLD(&s->disk);
    struct item *i = find(s, folder, owner, id);
    if (!i) return STORE_ENOENT;
    json_t *doc = json_deep_copy(i->doc);
    if (doc && change(ctx, doc)) return put(s, folder, i, doc, durable, err, errlen);
    json_decref(doc);
    return doc ? 0 : fail(s, STORE_ENOMEM, err, errlen);
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

bool store_see(struct store *s, enum store_folder folder, const uint8_t *owner, const char *id,
               store_visit *visit, void *ctx)
{
    HOLD(&s->lock);
    const struct item *i = find(s, folder, owner, id);
    if (i && visit) visit(ctx, i->doc);
    return i != NULL;
}

int store_list(struct store *s, enum store_folder folder, const uint8_t *owner,
               const struct store_page *page, store_visit *visit, void *ctx)
{
    HOLD(&s->lock);
    bool begun = !page->after;
    int n = 0;
    for (size_t k = 0; k < s->n_items; k++) {
        const struct item *i = s->items[page->oldest_first ? k : s->n_items - 1 - k];
        if (!is_of(i, folder, owner)) continue;
        const json_t *purpose = json_object_get(i->doc, "purpose");
        if (page->purpose && strcmp(page->purpose, json_string_value(purpose))) continue;
        if (begun && n++ == page->most) return 1;
        if (begun)
            visit(ctx, i->doc);
        else
            begun = !strcmp(i->id, page->after);
    }
    return begun ? 0 : STORE_ENOENT;
}

/* Bytes lose their name first. */
static int remove_item(struct store *s, struct item *i)
{
    char name[NAME_CHARS];
    int dir = s->folders[i->folder];
    name_of(name, i->id, i->folder == STORE_FILES ? "" : ".results");
    if (unlinkat(dir, name, 0) && errno != ENOENT) return STORE_EIO;
    name_of(name, i->id, ".json");
    if (fsync(dir) || (unlinkat(dir, name, 0) && errno != ENOENT) || fsync(dir)) return STORE_EIO;
    take_out(s, i);
    free_item(i);
    return 0;
}

int store_remove(struct store *s, enum store_folder folder, const uint8_t *owner, const char *id)
{
    HOLD(&s->disk);
    struct item *i = find(s, folder, owner, id);
    return i ? remove_item(s, i) : STORE_ENOENT;
}

/* ---- files --------------------------------------------------------------------------------- */

/* With the lock held: an owner's files, or with NULL all. */
static int64_t sum_bytes(const struct store *s, const uint8_t *owner, int *ret_n)
{
    int64_t sum = 0;
    for (size_t k = 0; k < s->n_items; k++) {
        const struct item *i = s->items[k];
        if (i->folder != STORE_FILES || (owner && memcmp(i->owner, owner, STORE_OWNER))) continue;
        sum += i->bytes;
        ++*ret_n;
    }
    return sum;
}

/* With the lock held: room for n bytes more of the item. */
static int check_quota(const struct store *s, const struct item *i, size_t n, char *err,
                       size_t errlen)
{
    int n_files = 0, n_all = 0;
    struct statvfs fs;
    int64_t more = (int64_t)n, most = s->most_bytes / OWNER_SHARE;
    int64_t own = sum_bytes(s, i->owner, &n_files), all = sum_bytes(s, NULL, &n_all);
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

int store_upload_begin(struct store *s, const uint8_t *owner, const uint8_t id[16],
                       struct store_upload **ret, char *err, size_t errlen)
{
    char name[NAME_CHARS];
    struct store_upload *u = calloc(1, sizeof(*u));
    struct item *i = calloc(1, sizeof(*i));
    int rc = u && i ? 0 : fail_with(STORE_ENOMEM, err, errlen, "no memory for a file");
    if (!rc) {
        *u = (struct store_upload){.store = s, .item = i, .fd = -1};
        memcpy(i->owner, owner, STORE_OWNER);
        hex_write(stpcpy(i->id, "file-"), id, 16);
        HOLD(&s->disk);
        if (add_item(s, i)) rc = fail(s, STORE_ENOMEM, err, errlen);
    }
    if (rc) {
        free(i);
        free(u);
        return rc;
    }
    name_of(name, i->id, ".tmp");
    u->fd = openat(s->folders[STORE_FILES], name,
                   O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (u->fd < 0) {
        rc = fail(s, STORE_EIO, err, errlen);
        store_upload_drop(u);
        return rc;
    }
    *ret = u;
    return 0;
}

int store_upload_add(struct store_upload *u, const void *data, size_t n, char *err, size_t errlen)
{
    struct store *s = u->store;
    {
        HOLD(&s->lock);
        int rc = check_quota(s, u->item, n, err, errlen);
        if (rc) return rc;
        u->item->bytes += (int64_t)n;
    }
    return file_write_all(u->fd, data, n) ? fail(s, STORE_EIO, err, errlen) : 0;
}

const char *store_upload_id(const struct store_upload *u)
{
    return u->item->id;
}

int store_upload_fd(const struct store_upload *u)
{
    return u->fd;
}

/* The document first, then the name of the bytes. */
static int publish(struct store *s, const struct store_upload *u, json_t *doc)
{
    char name[NAME_CHARS], owner[2 * STORE_OWNER + 1];
    struct item *i = u->item;
    struct stat st;
    int dir = s->folders[STORE_FILES];
    hex_write(owner, i->owner, STORE_OWNER);
    if (fsync(u->fd) || fstat(u->fd, &st)) return STORE_EIO;
    if (json_object_set_new(doc, "id", json_string(i->id)) ||
        json_object_set_new(doc, "owner", json_string(owner)) ||
        json_object_set_new(doc, "bytes", json_integer(st.st_size)))
        return STORE_ENOMEM;
    HOLD(&s->disk);
    struct item done = *i;
    if (json_object_set_new(doc, "number", json_integer(++s->n_ever)) || !read_document(&done, doc))
        return STORE_ENOMEM;
    name_of(name, i->id, ".tmp");
    int rc = write_document(s, STORE_FILES, &done);
    if (!rc && (renameat(dir, name, dir, i->id) || fsync(dir))) rc = STORE_EIO;
    if (rc) return rc;
    take_out(s, i); /* its place is that of its end; there is room for it */
    *i = done;
    return add_item(s, i);
}

int store_upload_end(struct store_upload *u, json_t *doc, char *err, size_t errlen)
{
    struct store *s = u->store;
    int rc = publish(s, u, doc);
    if (rc) {
        fail(s, rc, err, errlen);
        json_decref(doc);
    }
    if (rc) return rc;
    close(u->fd);
    free(u);
    return 0;
}

void store_upload_drop(struct store_upload *u)
{
    char name[NAME_CHARS];
    if (!u) return;
    struct store *s = u->store;
    int dir = s->folders[STORE_FILES];
    file_close(&u->fd);
    name_of(name, u->item->id, ".tmp");
    unlinkat(dir, name, 0);
    name_of(name, u->item->id, ".json");
    unlinkat(dir, name, 0);
    {
        HOLD(&s->disk);
        take_out(s, u->item);
    }
    free_item(u->item);
    free(u);
}

int store_file_open(struct store *s, const char *id)
{
    return openat(s->folders[STORE_FILES], id, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

/* ---- opening ------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

static int load_item(struct store *s, enum store_folder folder, const char *name, char *err,
                     size_t errlen)
{
    AUTO_FREE char *text = NULL;
    char path[300];
    struct item *i = calloc(1, sizeof(*i));
    size_t n;
    snprintf(path, sizeof(path), "%s/%s", folder_names[folder], name);
    int rc = i ? file_load(s->dir, path, MAX_DOCUMENT_BYTES, &text, &n, err, errlen) : STORE_ENOMEM;
    json_t *doc = rc ? NULL : json_loadb(text, n, 0, NULL);
    if (!rc && (!doc || !read_document(i, doc)))
        rc = fail_with(STORE_EIO, err, errlen,
                       "%.400s/%s: is not a document of this directory; remove it", s->dir, path);
    if (!rc && folder == STORE_FILES && faccessat(s->folders[folder], i->id, F_OK, 0)) {
        unlinkat(s->folders[folder], name, 0); /* its bytes never got their name */
        free_item(i);
        return 0;
    }
    if (!rc) {
        i->folder = folder;
        if (i->number > s->n_ever) s->n_ever = i->number;
        rc = add_item(s, i);
    }
    if (rc) {
        json_decref(doc);
        free(i);
    }
    return rc;
}

/* What a killed process has left goes; documents are read. */
static int load_folder(struct store *s, enum store_folder folder, char *err, size_t errlen)
{
    int rc = 0, fd = openat(s->folders[folder], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) return fail(s, STORE_EIO, err, errlen);
    for (struct dirent *e; !rc && (e = readdir(d));) {
        if (strlen(e->d_name) >= NAME_CHARS) continue;
        if (ends_with(e->d_name, ".tmp") || ends_with(e->d_name, ".new"))
            unlinkat(s->folders[folder], e->d_name, 0);
        else if (ends_with(e->d_name, ".json"))
            rc = load_item(s, folder, e->d_name, err, errlen);
    }
    closedir(d);
    return rc;
}

static int by_number(const void *a, const void *b)
{
    const struct item *const *x = a, *const *y = b;
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
    int rc = lock_dir(s, err, errlen);
    for (int f = 0; f < STORE_FOLDERS && !rc; f++) {
        bool made = !mkdirat(s->fd, folder_names[f], 0700) || errno == EEXIST;
        if (made)
            s->folders[f] = openat(s->fd, folder_names[f], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = s->folders[f] < 0 ? fail(s, STORE_EIO, err, errlen)
                               : load_folder(s, (enum store_folder)f, err, errlen);
    }
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
