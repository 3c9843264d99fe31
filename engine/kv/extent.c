/* SPDX-License-Identifier: MIT */
/* Pages of KV in files; see extent.h for their layout and the rules. */
#include "engine/kv/extent.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/sha256.h"
#include "engine/eng_error.h"
#include "engine/model/weight_hash.h"

enum {
    VERSION = 1,
    HEADER_BYTES = 4096,
    NAME_CHARS = 2 * EXTENT_DIGEST,
    PATH_BYTES = 80, /* "v1/ab/" and a name, or that of a temporary file */
    HOUR_SECONDS = 3600,
    N_FOLDERS = 256,
};
static const int64_t second_us = 1000000;
_Static_assert((int)EXTENT_DIGEST == SHA256_BYTES, "names are SHA-256");

#define STATE_SUFFIX ".s"

/* The parts after a header: the pages of an extent, or a state. */
struct parts {
    int n;
    size_t bytes; /* of each */
};

/* A number, so that a machine with another byte order does not take the file for one of its own. */
static const uint64_t magic = 0x31764b4854524148u;

struct header {
    uint64_t magic;
    uint32_t version, n_pages;
    uint64_t part_bytes;
    uint8_t fingerprint[EXTENT_DIGEST], scope[EXTENT_DIGEST], parent[EXTENT_DIGEST];
    int32_t ids[EXTENT_IDS];            /* zeros after the last */
    struct eng_hash sums[EXTENT_PAGES]; /* of the parts; likewise */
    char model[ENG_KV_MODEL];
    struct eng_hash sum; /* of all before it */
};
_Static_assert(sizeof(struct header) <= HEADER_BYTES, "the header has room");

struct extent_store {
    int fd; /* DIR */
    size_t page_bytes;
    uint8_t fingerprint[EXTENT_DIGEST], secret[EXTENT_DIGEST];
    char model[ENG_KV_MODEL];
};

/* ---- the directory ------------------------------------------------------------------------- */

/* A new file to be renamed: of this user alone, with a name that no other writer has. */
static int open_temporary(const struct extent_store *s, const char *folder, mode_t mode,
                          char path[PATH_BYTES])
{
    for (int i = 0; i < 4; i++) {
        uint64_t number;
        if (getrandom(&number, sizeof(number), 0) != sizeof(number)) return -1;
        snprintf(path, PATH_BYTES, "%s.tmp-%016llx", folder, (unsigned long long)number);
        int fd = openat(s->fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

/* Links a whole file to its name, so that no other process reads half a secret. */
static int make_secret(const struct extent_store *s)
{
    char path[PATH_BYTES];
    uint8_t secret[EXTENT_DIGEST];
    int fd = open_temporary(s, "", 0600, path), rc = ENG_EIO;
    if (fd < 0) return rc;
    if (getrandom(secret, sizeof(secret), 0) == sizeof(secret) &&
        file_write_all(fd, secret, sizeof(secret)) == 0 && fsync(fd) == 0 &&
        (linkat(s->fd, path, s->fd, "secret", 0) == 0 || errno == EEXIST))
        rc = 0;
    int error = errno;
    close(fd);
    unlinkat(s->fd, path, 0);
    errno = error;
    return rc;
}

/* Whether a descriptor's file is a regular one of this user that no other may read or write. */
static bool is_private(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid() && !(st->st_mode & 077);
}

static int read_secret(struct extent_store *s, const char *dir, char *err, size_t errlen)
{
    enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK };
    AUTO(file_close) int fd = openat(s->fd, "secret", FLAGS);
    if (fd < 0 && errno == ENOENT && make_secret(s) == 0) fd = openat(s->fd, "secret", FLAGS);
    if (fd < 0)
        return fail_with(ENG_EIO, err, errlen, "%.400s/secret: cannot be read or made: %s", dir,
                         strerror(errno));
    struct stat st;
    if (fstat(fd, &st) || !is_private(&st) || st.st_size != (off_t)sizeof(s->secret))
        return fail_with(ENG_EINVAL, err, errlen,
                         "%.400s/secret: is not a file of %zu bytes that this user alone can read "
                         "(mode 0600); remove it, and the pages with it, to start anew",
                         dir, sizeof(s->secret));
    if (!file_pread(fd, s->secret, sizeof(s->secret), 0)) return 0;
    return fail_with(ENG_EIO, err, errlen, "%.400s/secret: cannot be read", dir);
}

static int open_directory(struct extent_store *s, const char *dir, char *err, size_t errlen)
{
    struct stat st;
    if (mkdir(dir, 0700) && errno != EEXIST)
        return fail_with(ENG_EIO, err, errlen, "%.400s: cannot be made: %s", dir, strerror(errno));
    s->fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (s->fd < 0 || fstat(s->fd, &st)) {
        bool kind = errno == ENOTDIR || errno == ELOOP;
        snprintf(err, errlen, "%.400s: cannot be opened: %s", dir,
                 kind ? "it is not a directory; name one, not a link to it" : strerror(errno));
        return kind ? ENG_EINVAL : ENG_EIO;
    }
    if (st.st_uid != geteuid() || st.st_mode & 077)
        return fail_with(ENG_EINVAL, err, errlen,
                         "%.400s: pages of KV are prompts, so the directory must be this user's "
                         "alone; it has mode %04o and owner %u (chmod 700, chown)",
                         dir, (unsigned)(st.st_mode & 07777), (unsigned)st.st_uid);
    return 0;
}

int extent_store_open(struct extent_store **ret, const char *dir,
                      const uint8_t fingerprint[EXTENT_DIGEST], size_t page_bytes,
                      const char *model, char *err, size_t errlen)
{
    assert(page_bytes > 0 && page_bytes <= SIZE_MAX / EXTENT_PAGES - HEADER_BYTES);
    struct extent_store *s = calloc(1, sizeof(*s));
    if (!s) return fail_with(ENG_ENOMEM, err, errlen, "%.400s: out of memory", dir);
    s->fd = -1;
    s->page_bytes = page_bytes;
    memcpy(s->fingerprint, fingerprint, sizeof(s->fingerprint));
    snprintf(s->model, sizeof(s->model), "%s", model ? model : "");
    int rc = open_directory(s, dir, err, errlen);
    if (rc == 0) rc = read_secret(s, dir, err, errlen);
    if (rc) {
        extent_store_close(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void extent_store_close(struct extent_store *s)
{
    if (!s) return;
    if (s->fd >= 0) close(s->fd);
    free(s);
}

/* ---- one extent ---------------------------------------------------------------------------- */

static size_t ids_bytes(const struct extent *x)
{
    return (size_t)x->n_pages * KV_PAGE_TOKENS * sizeof(*x->ids);
}

void extent_name(const struct extent_store *s, const struct extent *x, uint8_t ret[EXTENT_DIGEST])
{
    static const char purpose[] = "hearth-kv-1";
    struct sha256 h;
    assert(x->n_pages > 0 && x->n_pages <= EXTENT_PAGES);
    sha256_init(&h);
    sha256_update(&h, s->secret, sizeof(s->secret));
    sha256_update(&h, purpose, sizeof(purpose));
    sha256_update(&h, s->fingerprint, sizeof(s->fingerprint));
    sha256_update(&h, x->scope, EXTENT_DIGEST);
    sha256_update(&h, x->parent, EXTENT_DIGEST);
    sha256_update(&h, x->ids, ids_bytes(x));
    sha256_final(&h, ret);
}

/* Keyed by the secret. */
static struct eng_hash sum_of(const struct extent_store *s, const void *data, size_t n)
{
    struct eng_hash seed;
    memcpy(seed.lane, s->secret, sizeof(seed.lane));
    return eng_hash_bytes(data, n, seed);
}

/* Of the owner, so that files of a key are in one folder. */
static unsigned folder_of(const struct extent_store *s, const uint8_t *scope)
{
    return (unsigned)sum_of(s, scope, ENG_KV_OWNER).lane[0] % N_FOLDERS;
}

static void path_of(const struct extent_store *s, const struct extent *x, bool state,
                    char path[PATH_BYTES])
{
    uint8_t name[EXTENT_DIGEST];
    extent_name(s, x, name);
    int at = snprintf(path, PATH_BYTES, "v1/%02x/", folder_of(s, x->scope));
    for (int i = 0; i < EXTENT_DIGEST; i++)
        at += snprintf(path + at, (size_t)(PATH_BYTES - at), "%02x", name[i]);
    snprintf(path + at, (size_t)(PATH_BYTES - at), "%s", state ? STATE_SUFFIX : "");
}

bool extent_exists(const struct extent_store *s, const struct extent *x, bool state)
{
    char path[PATH_BYTES];
    path_of(s, x, state, path);
    return faccessat(s->fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void extent_remove(const struct extent_store *s, const struct extent *x)
{
    char path[PATH_BYTES];
    path_of(s, x, false, path);
    unlinkat(s->fd, path, 0);
    path_of(s, x, true, path);
    unlinkat(s->fd, path, 0);
}

static struct parts parts_of(const struct extent_store *s, const struct extent *x, size_t state)
{
    return state ? (struct parts){1, state} : (struct parts){x->n_pages, s->page_bytes};
}

static void fill_header(const struct extent_store *s, const struct extent *x,
                        const struct parts *parts, struct header *h)
{
    *h = (struct header){.magic = magic, .version = VERSION, .n_pages = (uint32_t)x->n_pages};
    h->part_bytes = parts->bytes;
    memcpy(h->fingerprint, s->fingerprint, EXTENT_DIGEST);
    memcpy(h->scope, x->scope, EXTENT_DIGEST);
    memcpy(h->parent, x->parent, EXTENT_DIGEST);
    memcpy(h->ids, x->ids, ids_bytes(x));
}

static struct eng_hash header_sum(const struct extent_store *s, const struct header *h)
{
    return sum_of(s, h, offsetof(struct header, sum));
}

int extent_write(const struct extent_store *s, const struct extent *x, size_t state,
                 const uint8_t *const *data)
{
    const struct parts parts = parts_of(s, x, state);
    char path[PATH_BYTES], folder[] = "v1/00/", temporary[PATH_BYTES];
    union {
        struct header h;
        uint8_t bytes[HEADER_BYTES];
    } u = {.bytes = {0}};
    if (extent_exists(s, x, state)) return 0;
    path_of(s, x, state, path);
    memcpy(folder, path, sizeof(folder) - 1);
    if ((mkdirat(s->fd, "v1", 0700) && errno != EEXIST) ||
        (mkdirat(s->fd, folder, 0700) && errno != EEXIST))
        return ENG_EIO;
    fill_header(s, x, &parts, &u.h);
    for (int i = 0; i < parts.n; i++)
        u.h.sums[i] = sum_of(s, data[i], parts.bytes);
    memcpy(u.h.model, s->model, sizeof(u.h.model));
    u.h.sum = header_sum(s, &u.h);
    int fd = open_temporary(s, folder, x->for_a_day ? 0400 : 0600, temporary);
    if (fd < 0) return ENG_EIO;
    int rc = file_write_all(fd, u.bytes, sizeof(u.bytes));
    for (int i = 0; rc == 0 && i < parts.n; i++)
        rc = file_write_all(fd, data[i], parts.bytes);
    if (close(fd) || rc || renameat(s->fd, temporary, s->fd, path)) {
        unlinkat(s->fd, temporary, 0);
        return ENG_EIO;
    }
    return 0;
}

static bool is_sound(const struct extent_store *s, const struct header *h)
{
    struct eng_hash sum = header_sum(s, h);
    return h->magic == magic && h->version == VERSION && memcmp(&sum, &h->sum, sizeof(sum)) == 0;
}

static enum extent_result check_header(const struct extent_store *s, const struct extent *x,
                                       const struct parts *parts, const struct header *h)
{
    struct header want;
    if (!is_sound(s, h)) return EXTENT_HEADER;
    fill_header(s, x, parts, &want);
    return memcmp(h, &want, offsetof(struct header, sums)) == 0 ? EXTENT_READ : EXTENT_FOREIGN;
}

static enum extent_result read_file(const struct extent_store *s, const struct extent *x, int fd,
                                    const struct parts *parts, uint8_t *const *data)
{
    struct stat st;
    struct header h;
    int64_t at = HEADER_BYTES;
    if (fstat(fd, &st) || !is_private(&st)) return EXTENT_UNREADABLE;
    if (st.st_size != (off_t)(HEADER_BYTES + (size_t)parts->n * parts->bytes)) return EXTENT_LENGTH;
    if (file_pread(fd, &h, sizeof(h), 0)) return errno ? EXTENT_UNREADABLE : EXTENT_LENGTH;
    enum extent_result r = check_header(s, x, parts, &h);
    for (int i = 0; r == EXTENT_READ && i < parts->n; i++, at += (int64_t)parts->bytes) {
        if (!data[i]) continue;
        if (file_pread(fd, data[i], parts->bytes, at))
            return errno ? EXTENT_UNREADABLE : EXTENT_LENGTH;
        struct eng_hash sum = sum_of(s, data[i], parts->bytes);
        if (memcmp(&sum, &h.sums[i], sizeof(sum)) != 0) r = EXTENT_PAYLOAD;
    }
    return r;
}

enum extent_result extent_read(const struct extent_store *s, const struct extent *x, size_t state,
                               uint8_t *const *data)
{
    const struct parts parts = parts_of(s, x, state);
    char path[PATH_BYTES];
    path_of(s, x, state, path);
    AUTO(file_close) int fd = openat(s->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? EXTENT_ABSENT : EXTENT_UNREADABLE;
    enum extent_result r = read_file(s, x, fd, &parts, data);
    if (r > EXTENT_UNREADABLE) unlinkat(s->fd, path, 0);
    return r;
}

/* ---- use ----------------------------------------------------------------------------------- */

static int64_t us_of(const struct timespec *t)
{
    return t->tv_sec * second_us + t->tv_nsec / 1000;
}

int64_t extent_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return us_of(&now);
}

/* Of a file that is written to leave after a day. */
static bool is_for_a_day(const struct stat *st)
{
    return !(st->st_mode & 0200);
}

void extent_touch(const struct extent_store *s, const struct extent *x, int64_t *at_us)
{
    const int64_t before = *at_us - 1, oldest = extent_now() - HOUR_SECONDS * second_us;
    const struct timespec times[] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = before / second_us, .tv_nsec = before % second_us * 1000}};
    char path[PATH_BYTES];
    struct stat st;
    path_of(s, x, true, path);
    for (int i = 0; i < 2; i++) {
        if (i == 1) path[strlen(path) - strlen(STATE_SUFFIX)] = '\0';
        if (fstatat(s->fd, path, &st, AT_SYMLINK_NOFOLLOW)) continue;
        int64_t at = us_of(&st.st_mtim);
        bool renews = !is_for_a_day(&st) && (at > before || at < oldest);
        if (renews) utimensat(s->fd, path, times, AT_SYMLINK_NOFOLLOW); /* or it is read-only */
        if (i == 1) *at_us = renews || at > before ? before : at;
    }
}

/* ---- all files ----------------------------------------------------------------------------- */

struct entry {
    int64_t mtime_us, bytes; /* bytes 0: it is gone */
    bool for_a_day;
    uint8_t folder;
    char path[PATH_BYTES];
};

struct entries {
    struct entry *list; /* [n_room] */
    size_t n, n_room;
    int64_t bytes, bytes_of[N_FOLDERS];
};

static bool is_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == NAME_CHARS &&
           (!name[NAME_CHARS] || !strcmp(name + NAME_CHARS, STATE_SUFFIX));
}

static int add_entry(struct entries *all, const struct entry *e)
{
    if (ARRAY_ROOM(all->list, all->n_room, all->n + 1, 64)) return ENG_ENOMEM;
    all->list[all->n++] = *e;
    all->bytes += e->bytes;
    all->bytes_of[e->folder] += e->bytes;
    return 0;
}

/* Adds a folder's extents, and removes temporary files that no writer can be busy with. */
static int list_folder(const struct extent_store *s, unsigned number, int64_t now_us,
                       struct entries *all)
{
    char folder[8];
    snprintf(folder, sizeof(folder), "v1/%02x/", number);
    int fd = openat(s->fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = 0;
    if (fd < 0) return errno == ENOENT ? 0 : ENG_EIO;
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return ENG_ENOMEM;
    }
    for (const struct dirent *de; rc == 0 && (de = readdir(d));) {
        struct stat st;
        struct entry e;
        bool temporary = strncmp(de->d_name, ".tmp-", 5) == 0;
        if (!temporary && !is_name(de->d_name)) continue;
        if (fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) || !is_private(&st)) continue;
        if (temporary) {
            if (now_us - us_of(&st.st_mtim) > HOUR_SECONDS * second_us) unlinkat(fd, de->d_name, 0);
            continue;
        }
        e = (struct entry){us_of(&st.st_mtim), st.st_size, is_for_a_day(&st), (uint8_t)number, ""};
        snprintf(e.path, sizeof(e.path), "%.6s%.66s", folder, de->d_name);
        rc = add_entry(all, &e);
    }
    closedir(d);
    return rc;
}

static int by_mtime(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return (x->mtime_us > y->mtime_us) - (x->mtime_us < y->mtime_us);
}

int64_t extent_lacking(const struct extent_store *s, int64_t free_bytes)
{
    struct statvfs v;
    if (fstatvfs(s->fd, &v)) return 0;
    unsigned __int128 have = (unsigned __int128)v.f_bavail * v.f_frsize;
    return have >= (unsigned __int128)free_bytes ? 0 : free_bytes - (int64_t)have;
}

int64_t extent_floor(const struct extent_store *s)
{
    const int64_t most = (int64_t)5 << 30;
    struct statvfs v;
    if (fstatvfs(s->fd, &v)) return most;
    unsigned __int128 tenth = (unsigned __int128)v.f_blocks * v.f_frsize / 10;
    return tenth < (unsigned __int128)most ? (int64_t)tenth : most;
}

static int list_all(const struct extent_store *s, int64_t now_us, struct entries *all)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < N_FOLDERS; i++)
        rc = list_folder(s, i, now_us, all);
    return rc;
}

/* Returns true if the file is gone. */
static bool remove_entry(const struct extent_store *s, struct entries *all, struct entry *e)
{
    bool gone = unlinkat(s->fd, e->path, 0) == 0 || errno == ENOENT;
    all->bytes_of[e->folder] -= e->bytes;
    if (gone) all->bytes -= e->bytes;
    e->bytes = 0;
    return gone;
}

/* Removes files, which are in order of age, of the folder that takes most until all are small. */
static void shrink(const struct extent_store *s, struct entries *all, int64_t most)
{
    size_t oldest[N_FOLDERS] = {0};
    while (all->bytes > most) {
        unsigned f = 0;
        for (unsigned i = 1; i < N_FOLDERS; i++)
            if (all->bytes_of[i] > all->bytes_of[f]) f = i;
        if (all->bytes_of[f] == 0) return;
        while (all->list[oldest[f]].folder != f || all->list[oldest[f]].bytes == 0)
            oldest[f]++;
        remove_entry(s, all, &all->list[oldest[f]]);
    }
}

/* Pages of this store's size in a file of so many bytes; 0 also for other files. */
static int64_t pages_in(const struct extent_store *s, int64_t bytes)
{
    int64_t n = (bytes - HEADER_BYTES) / (int64_t)s->page_bytes;
    bool fits = n > 0 && n <= EXTENT_PAGES && HEADER_BYTES + n * (int64_t)s->page_bytes == bytes;
    return fits ? n : 0;
}

int extent_prune(const struct extent_store *s, const struct extent_limits *limits, int64_t now_us,
                 int64_t *ret_bytes, int64_t *ret_pages)
{
    const int64_t day = 24 * HOUR_SECONDS, days = limits->seconds;
    struct entries all = {0};
    int rc = list_all(s, now_us, &all);
    if (all.n > 0) qsort(all.list, all.n, sizeof(*all.list), by_mtime);
    for (size_t i = 0; rc == 0 && i < all.n; i++) {
        struct entry *e = &all.list[i];
        int64_t most = e->for_a_day && day < days ? day : days;
        if ((now_us - e->mtime_us) / second_us > most) remove_entry(s, &all, e);
    }
    int64_t lacking = extent_lacking(s, limits->free_bytes), most = limits->bytes;
    if (lacking > all.bytes - most) most = all.bytes - lacking;
    if (rc == 0) shrink(s, &all, most > 0 ? most : 0);
    *ret_bytes = all.bytes;
    *ret_pages = 0;
    for (size_t i = 0; i < all.n; i++)
        *ret_pages += pages_in(s, all.list[i].bytes);
    free(all.list);
    return rc;
}

/* Sets what the header of a listed file says. */
static void describe(const struct extent_store *s, const struct entry *e, struct eng_kv_file *ret)
{
    struct header h;
    *ret = (struct eng_kv_file){.bytes = e->bytes, .used_s = e->mtime_us / second_us};
    AUTO(file_close)
    int fd = openat(s->fd, e->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    ret->sound = file_pread(fd, &h, sizeof(h), 0) == 0 && is_sound(s, &h);
    if (!ret->sound) return;
    if (!strstr(e->path, STATE_SUFFIX)) ret->n_tokens = (int)h.n_pages * KV_PAGE_TOKENS;
    memcpy(ret->owner, h.scope, sizeof(ret->owner));
    memcpy(ret->fingerprint, h.fingerprint, sizeof(ret->fingerprint));
    snprintf(ret->model, sizeof(ret->model), "%.*s", (int)sizeof(h.model), h.model);
}

int extent_visit(const struct extent_store *s, const uint8_t *owner,
                 bool (*visit)(void *ctx, const struct eng_kv_file *file), void *ctx)
{
    struct entries all = {0};
    int64_t now_us = extent_now();
    bool stay = false; /* some that should not */
    int rc = owner ? list_folder(s, folder_of(s, owner), now_us, &all) : list_all(s, now_us, &all);
    for (size_t i = 0; rc == 0 && i < all.n; i++) {
        struct eng_kv_file file;
        describe(s, &all.list[i], &file);
        if (visit(ctx, &file) && !remove_entry(s, &all, &all.list[i])) stay = true;
    }
    free(all.list);
    return rc == 0 && stay ? ENG_EIO : rc;
}
