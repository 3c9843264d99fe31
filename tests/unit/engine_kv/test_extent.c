/* SPDX-License-Identifier: MIT */
/* Extents: what is written comes back, and a file with any other bytes never does. */
#include "engine/kv/extent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/eng_error.h"
#include "test.h"

enum { PAGE = 192, HEADER = 4096 };

static const uint8_t prints[EXTENT_DIGEST] = "a model", other_prints[EXTENT_DIGEST] = "another";
static const uint8_t root[EXTENT_DIGEST], scope[EXTENT_DIGEST] = "us", other[EXTENT_DIGEST] = "you";

struct fixture {
    char dir[64], path[160]; /* path: of the extent that was named last */
    struct extent_store *store;
    int32_t ids[EXTENT_IDS];
    uint8_t in[EXTENT_PAGES][PAGE], out[EXTENT_PAGES][PAGE];
    const uint8_t *from[EXTENT_PAGES];
    uint8_t *to[EXTENT_PAGES];
};

static struct extent_store *open_store(const char *dir, const uint8_t *fingerprint)
{
    struct extent_store *s = NULL;
    char err[800] = "";
    int rc = extent_store_open(&s, dir, fingerprint, PAGE, "a model", err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    return s;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    REQUIRE(f);
    snprintf(f->dir, sizeof(f->dir), "/tmp/hearth-extent-XXXXXX");
    REQUIRE(mkdtemp(f->dir));
    f->store = open_store(f->dir, prints);
    for (int i = 0; i < EXTENT_IDS; i++)
        f->ids[i] = 7 * i + 1;
    for (int i = 0; i < EXTENT_PAGES; i++) {
        for (int k = 0; k < PAGE; k++)
            f->in[i][k] = (uint8_t)(31 * i + k);
        f->from[i] = f->in[i];
        f->to[i] = f->out[i];
    }
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char command[100];
    extent_store_close(f->store);
    snprintf(command, sizeof(command), "rm -rf %s", f->dir);
    int rc = system(command);
    free(f);
    return rc;
}

static struct extent extent_of(const struct fixture *f, int n_pages)
{
    return (struct extent){scope, root, f->ids, n_pages, false};
}

static void find_path(struct fixture *f, const struct extent *x)
{
    uint8_t name[EXTENT_DIGEST];
    glob_t found;
    extent_name(f->store, x, name);
    int at = snprintf(f->path, sizeof(f->path), "%s/v1/*/", f->dir);
    for (int i = 0; i < EXTENT_DIGEST; i++)
        at += snprintf(f->path + at, sizeof(f->path) - (size_t)at, "%02x", name[i]);
    if (glob(f->path, 0, NULL, &found)) return;
    snprintf(f->path, sizeof(f->path), "%s", found.gl_pathv[0]);
    globfree(&found);
}

static void write_extent(struct fixture *f, const struct extent *x)
{
    REQUIRE_EQ_INT(extent_write(f->store, x, 0, f->from), 0);
    find_path(f, x);
}

static enum extent_result read_extent(struct fixture *f, const struct extent *x)
{
    memset(f->out, 0xee, sizeof(f->out));
    return extent_read(f->store, x, 0, f->to);
}

/* Every length comes back as it was, in another process too; longer and shorter ones are absent. */
static void test_written_and_read(void **state)
{
    struct fixture *f = *state;
    for (int n = 1; n <= EXTENT_PAGES; n += 5) {
        struct extent x = extent_of(f, n);
        REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_ABSENT);
        write_extent(f, &x);
        write_extent(f, &x);
        extent_store_close(f->store);
        f->store = open_store(f->dir, prints);
        REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_READ);
        REQUIRE(memcmp(f->in, f->out, (size_t)n * PAGE) == 0);
        REQUIRE(n == EXTENT_PAGES || f->out[n][0] == 0xee);
    }
    struct stat st;
    REQUIRE(stat(f->path, &st) == 0 && (st.st_mode & 07777) == 0600);
    REQUIRE_EQ_INT(st.st_size, HEADER + EXTENT_PAGES * PAGE);
}

/* Each part of the name separates. */
static void test_names(void **state)
{
    struct fixture *f = *state;
    struct extent x = extent_of(f, 2), y = x;
    struct extent_store *s = open_store(f->dir, other_prints);
    write_extent(f, &x);
    REQUIRE_EQ_INT(extent_read(s, &x, 0, f->to), EXTENT_ABSENT);
    extent_store_close(s);
    y.scope = other;
    REQUIRE_EQ_INT(read_extent(f, &y), EXTENT_ABSENT);
    y = x, y.parent = other;
    REQUIRE_EQ_INT(read_extent(f, &y), EXTENT_ABSENT);
    y = x, y.n_pages = 1;
    REQUIRE_EQ_INT(read_extent(f, &y), EXTENT_ABSENT);
    f->ids[2 * KV_PAGE_TOKENS - 1]++;
    REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_ABSENT);
    f->ids[2 * KV_PAGE_TOKENS - 1]--;
    REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_READ);
}

/* A sound file under the name of another is not taken, and goes. */
static void test_foreign(void **state)
{
    struct fixture *f = *state;
    struct extent x = extent_of(f, 2), y[3] = {x, x, x};
    int32_t ids[EXTENT_IDS];
    memcpy(ids, f->ids, sizeof(ids));
    ids[0]++;
    y[0].scope = other;
    y[1].parent = other;
    y[2].ids = ids;
    for (int i = 0; i < 3; i++) {
        char to[sizeof(f->path)];
        write_extent(f, &y[i]);
        memcpy(to, f->path, sizeof(to));
        write_extent(f, &x);
        REQUIRE(rename(f->path, to) == 0);
        REQUIRE_EQ_INT(read_extent(f, &y[i]), EXTENT_FOREIGN);
        REQUIRE_EQ_INT(read_extent(f, &y[i]), EXTENT_ABSENT);
    }
}

/* Each byte of the header that is used, and of the pages, flipped; and every length. */
static void test_damaged(void **state)
{
    struct fixture *f = *state;
    struct extent x = extent_of(f, 3);
    enum {
        BYTES = HEADER + 3 * PAGE,
        USED = 8 + 4 + 4 + 8 + 3 * 32 + 4 * EXTENT_IDS + 16 * 17 + 64
    };
    for (int at = 0; at < BYTES; at++) {
        uint8_t b;
        if (at == USED) at = HEADER; /* zeros that nothing reads */
        write_extent(f, &x);
        int fd = open(f->path, O_RDWR);
        REQUIRE(fd >= 0 && pread(fd, &b, 1, at) == 1);
        b ^= (uint8_t)(1 << at % 8);
        REQUIRE(pwrite(fd, &b, 1, at) == 1 && close(fd) == 0);
        enum extent_result want = at < HEADER ? EXTENT_HEADER : EXTENT_PAYLOAD;
        REQUIRE_MSG(read_extent(f, &x) == want, "byte %d", at);
        REQUIRE_MSG(access(f->path, F_OK) != 0, "byte %d", at);
    }
    for (int n = 0; n <= BYTES + 64; n += 64) {
        write_extent(f, &x);
        REQUIRE(truncate(f->path, n) == 0);
        REQUIRE_MSG(read_extent(f, &x) == (n == BYTES ? EXTENT_READ : EXTENT_LENGTH), "%d", n);
    }
}

/* Two pages of a file are exchanged: each belongs to its place. */
static void test_swapped_pages(void **state)
{
    struct fixture *f = *state;
    struct extent x = extent_of(f, 2);
    uint8_t pages[2][PAGE];
    write_extent(f, &x);
    int fd = open(f->path, O_RDWR);
    REQUIRE(fd >= 0 && pread(fd, pages, sizeof(pages), HEADER) == (ssize_t)sizeof(pages));
    REQUIRE(pwrite(fd, pages[1], PAGE, HEADER) == PAGE);
    REQUIRE(pwrite(fd, pages[0], PAGE, HEADER + PAGE) == PAGE && close(fd) == 0);
    REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_PAYLOAD);
}

/* What is not a private file of ours is neither read nor removed, and nothing blocks. */
static void test_not_ours(void **state)
{
    struct fixture *f = *state;
    struct extent x = extent_of(f, 1);
    char aside[80];
    snprintf(aside, sizeof(aside), "%s/aside", f->dir);
    write_extent(f, &x);
    REQUIRE(chmod(f->path, 0644) == 0);
    REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_UNREADABLE);
    REQUIRE(chmod(f->path, 0600) == 0 && rename(f->path, aside) == 0);
    REQUIRE(symlink(aside, f->path) == 0);
    REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_UNREADABLE);
    REQUIRE(unlink(f->path) == 0 && mkfifo(f->path, 0600) == 0);
    REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_UNREADABLE);
    REQUIRE(unlink(f->path) == 0 && mkdir(f->path, 0700) == 0);
    REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_UNREADABLE);
    REQUIRE(rmdir(f->path) == 0 && rename(aside, f->path) == 0);
    REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_READ);
}

static void refuses(const char *dir, const char *part)
{
    struct extent_store *s = NULL;
    char err[800] = "";
    REQUIRE_EQ_INT(extent_store_open(&s, dir, prints, PAGE, NULL, err, sizeof(err)), ENG_EINVAL);
    REQUIRE_MSG(!s && strstr(err, part), "%s", err);
}

static void test_directory(void **state)
{
    struct fixture *f = *state;
    char path[100];
    snprintf(path, sizeof(path), "%s/secret", f->dir);
    refuses(path, "not a directory");
    REQUIRE(truncate(path, 31) == 0);
    refuses(f->dir, "32 bytes");
    REQUIRE(truncate(path, 32) == 0 && chmod(path, 0604) == 0);
    refuses(f->dir, "0600");
    REQUIRE(chmod(path, 0600) == 0 && chmod(f->dir, 0750) == 0);
    refuses(f->dir, "0750");
    REQUIRE(chmod(f->dir, 0700) == 0);
    snprintf(path, sizeof(path), "%s/link", f->dir);
    REQUIRE(symlink(f->dir, path) == 0);
    refuses(path, "link");
    snprintf(path, sizeof(path), "%s/new", f->dir);
    extent_store_close(open_store(path, prints));
    /* Another secret: other names. */
    struct extent x = extent_of(f, 1);
    uint8_t a[EXTENT_DIGEST], b[EXTENT_DIGEST];
    struct extent_store *s = open_store(path, prints);
    extent_name(f->store, &x, a);
    extent_name(s, &x, b);
    REQUIRE(memcmp(a, b, sizeof(a)) != 0);
    extent_store_close(s);
}

/* ---- limits -------------------------------------------------------------------------------- */

static void set_mtime(const char *path, int64_t seconds)
{
    struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    REQUIRE(utimensat(AT_FDCWD, path, times, 0) == 0);
}

static int64_t prune(struct fixture *f, int64_t bytes, int64_t free_bytes, int64_t seconds)
{
    struct extent_limits limits = {bytes, free_bytes, seconds};
    int64_t ret = -1, n_pages;
    REQUIRE_EQ_INT(extent_prune(f->store, &limits, 100000 * (int64_t)1000000, &ret, &n_pages), 0);
    REQUIRE(ret == 0 || n_pages > 0);
    return ret;
}

/* Four extents, last used at 1000, 2000, 3000, 4000 and found by their first id. */
static bool is_there(struct fixture *f, int i)
{
    f->ids[0] = i;
    struct extent x = extent_of(f, 1);
    find_path(f, &x);
    return access(f->path, F_OK) == 0;
}

static void test_limits(void **state)
{
    struct fixture *f = *state;
    enum { SIZE = HEADER + PAGE };
    char foreign[100];
    for (int i = 1; i <= 4; i++) {
        f->ids[0] = i;
        struct extent x = extent_of(f, 1);
        write_extent(f, &x);
        set_mtime(f->path, 1000 * i);
    }
    snprintf(foreign, sizeof(foreign), "%.*s/notes.txt", (int)strlen(f->dir) + 6, f->path);
    int fd = open(foreign, O_CREAT | O_WRONLY, 0600);
    REQUIRE(fd >= 0 && close(fd) == 0);
    set_mtime(foreign, 1);
    REQUIRE_EQ_INT(prune(f, INT64_MAX, 0, 99000), 4 * SIZE);
    REQUIRE_EQ_INT(prune(f, INT64_MAX, 0, 98999), 3 * SIZE);
    REQUIRE(!is_there(f, 1) && is_there(f, 2));
    REQUIRE_EQ_INT(prune(f, 3 * SIZE - 1, 0, 100000), 2 * SIZE);
    REQUIRE(!is_there(f, 2) && is_there(f, 3) && is_there(f, 4));
    REQUIRE_EQ_INT(prune(f, INT64_MAX, INT64_MAX, 100000), 0);
    REQUIRE(!is_there(f, 4) && access(foreign, F_OK) == 0);
}

/* A use makes an extent young again; what a killed writer left goes when it is old. */
static void test_ages(void **state)
{
    struct fixture *f = *state;
    struct extent x = extent_of(f, 1);
    struct stat st;
    char left[100];
    write_extent(f, &x);
    set_mtime(f->path, 1000);
    int64_t at = extent_now();
    extent_touch(f->store, &x, &at);
    REQUIRE(stat(f->path, &st) == 0 && st.st_mtime > 1000000);
    snprintf(left, sizeof(left), "%.*s/.tmp-0123456789abcdef", (int)strlen(f->dir) + 6, f->path);
    int fd = open(left, O_CREAT | O_WRONLY, 0600);
    REQUIRE(fd >= 0 && close(fd) == 0);
    set_mtime(left, 99000);
    prune(f, INT64_MAX, 0, 100000);
    REQUIRE(access(left, F_OK) == 0);
    set_mtime(left, 90000);
    prune(f, INT64_MAX, 0, 100000);
    REQUIRE(access(left, F_OK) != 0 && access(f->path, F_OK) == 0);
}

static int64_t mtime_us(const char *path)
{
    struct stat st;
    REQUIRE(stat(path, &st) == 0);
    return st.st_mtim.tv_sec * (int64_t)1000000 + st.st_mtim.tv_nsec / 1000;
}

/* A chain stays in order: each extent is used before its parent, and at most an hour ago. */
static void test_touch_keeps_order(void **state)
{
    struct fixture *f = *state;
    const int64_t hour = 3600 * (int64_t)1000000, now = extent_now();
    const int64_t before[4] = {hour / 2, 0, 2 * hour, hour / 4}, want[4] = {hour / 2, 1, 1, 1};
    struct extent x[4];
    int64_t last = now, at = now;
    for (int i = 0; i < 4; i++) {
        x[i] = extent_of(f, i + 1);
        write_extent(f, &x[i]);
        const struct timespec times[2] = {
            {.tv_nsec = UTIME_OMIT},
            {.tv_sec = (now - before[i]) / 1000000, .tv_nsec = (now - before[i]) % 1000000 * 1000}};
        REQUIRE(utimensat(AT_FDCWD, f->path, times, 0) == 0);
    }
    for (int i = 0; i < 4; i++) {
        extent_touch(f->store, &x[i], &at);
        find_path(f, &x[i]);
        int64_t is = mtime_us(f->path);
        REQUIRE_EQ_INT(is, at);
        REQUIRE_EQ_INT(last - is, want[i]);
        last = is;
    }
    struct extent absent = extent_of(f, 9);
    extent_touch(f->store, &absent, &at);
    REQUIRE_EQ_INT(at, last);
}

/* Pages written for a day leave then, whatever the directory's age, and no use makes them young. */
static void test_for_a_day(void **state)
{
    struct fixture *f = *state;
    struct extent x = extent_of(f, 1);
    int64_t at = extent_now();
    x.for_a_day = true;
    write_extent(f, &x);
    REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_READ);
    set_mtime(f->path, 100000 - 24 * 3600);
    extent_touch(f->store, &x, &at);
    prune(f, INT64_MAX, 0, 1000000);
    REQUIRE(extent_exists(f->store, &x, false));
    set_mtime(f->path, 100000 - 24 * 3600 - 1);
    prune(f, INT64_MAX, 0, 1000000);
    REQUIRE(!extent_exists(f->store, &x, false));
}

/* The owner that takes most loses its oldest, not the one with the oldest files. */
static void test_owners_share(void **state)
{
    struct fixture *f = *state;
    enum { SIZE = HEADER + PAGE };
    struct extent x;
    uint8_t neighbour[EXTENT_DIGEST] = {0};
    char folder[sizeof(f->path)];
    for (int i = 1; i <= 4; i++) {
        f->ids[0] = i;
        x = extent_of(f, 1);
        write_extent(f, &x);
        set_mtime(f->path, 2000 * i);
    }
    /* Owners whose hashes share one of the 256 folders, which the secret decides, count as one. */
    snprintf(folder, sizeof(folder), "%s", f->path);
    x.scope = neighbour;
    do {
        neighbour[0]++;
        write_extent(f, &x);
        set_mtime(f->path, 1000);
        if (!strncmp(folder, f->path, strlen(f->dir) + 6)) REQUIRE(unlink(f->path) == 0);
    } while (access(f->path, F_OK));
    REQUIRE_EQ_INT(prune(f, 3 * SIZE, 0, 100000), 3 * SIZE);
    REQUIRE(!is_there(f, 1) && !is_there(f, 2) && is_there(f, 3) && is_there(f, 4));
}

static bool is_stuck;
int __real_unlinkat(int dir, const char *path, int flags);
int __wrap_unlinkat(int dir, const char *path, int flags);

int __wrap_unlinkat(int dir, const char *path, int flags)
{
    if (!is_stuck) return __real_unlinkat(dir, path, flags);
    errno = EROFS;
    return -1;
}

static bool take_owners(void *ctx, const struct eng_kv_file *file)
{
    int64_t *bytes = ctx;
    REQUIRE(file->sound && !strcmp(file->model, "a model"));
    REQUIRE_EQ_INT(file->n_tokens, KV_PAGE_TOKENS);
    *bytes += file->bytes;
    return memcmp(file->owner, other, ENG_KV_OWNER) == 0;
}

/* Files are listed with what their headers say, and removed where they are wanted gone. */
static void test_visit(void **state)
{
    struct fixture *f = *state;
    struct extent x = extent_of(f, 1), y = x;
    uint8_t salted[EXTENT_DIGEST];
    int64_t bytes = 0;
    memcpy(salted, other, sizeof(salted));
    salted[ENG_KV_OWNER] = 'x'; /* of the same owner */
    write_extent(f, &x);
    y.scope = salted;
    write_extent(f, &y);
    REQUIRE_EQ_INT(extent_visit(f->store, other, take_owners, &bytes), 0);
    REQUIRE(!extent_exists(f->store, &y, false) && extent_exists(f->store, &x, false));
    write_extent(f, &y);
    is_stuck = true;
    REQUIRE_EQ_INT(extent_visit(f->store, other, take_owners, &bytes), ENG_EIO);
    is_stuck = false;
    REQUIRE(extent_exists(f->store, &y, false));
    bytes = 0;
    REQUIRE_EQ_INT(extent_visit(f->store, NULL, take_owners, &bytes), 0);
    REQUIRE_EQ_INT(bytes, 2 * (HEADER + PAGE));
    REQUIRE(!extent_exists(f->store, &y, false) && extent_exists(f->store, &x, false));
}

/* States are a file beside, with sums of its own, which leaves with the others. */
static void test_states(void **state)
{
    struct fixture *f = *state;
    struct extent x = extent_of(f, 3);
    uint8_t in[777], out[777] = {0};
    memset(in, 5, sizeof(in));
    REQUIRE(!extent_exists(f->store, &x, true));
    REQUIRE_EQ_INT(extent_read(f->store, &x, sizeof(out), (uint8_t *const[]){out}), EXTENT_ABSENT);
    REQUIRE_EQ_INT(extent_write(f->store, &x, sizeof(in), (const uint8_t *const[]){in}), 0);
    REQUIRE(extent_exists(f->store, &x, true) && !extent_exists(f->store, &x, false));
    REQUIRE_EQ_INT(extent_read(f->store, &x, sizeof(out), (uint8_t *const[]){out}), EXTENT_READ);
    REQUIRE(memcmp(in, out, sizeof(in)) == 0);
    REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_ABSENT);
    write_extent(f, &x);
    REQUIRE_EQ_INT(read_extent(f, &x), EXTENT_READ);
    REQUIRE_EQ_INT(extent_read(f->store, &x, 776, (uint8_t *const[]){out}), EXTENT_LENGTH);
    REQUIRE(!extent_exists(f->store, &x, true) && extent_exists(f->store, &x, false));
    REQUIRE_EQ_INT(extent_write(f->store, &x, sizeof(in), (const uint8_t *const[]){in}), 0);
    prune(f, 0, 0, INT64_MAX);
    REQUIRE(!extent_exists(f->store, &x, true) && !extent_exists(f->store, &x, false));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_written_and_read),
        TEST(test_states),
        TEST(test_touch_keeps_order),
        TEST(test_for_a_day),
        TEST(test_owners_share),
        TEST(test_visit),
        TEST(test_names),
        TEST(test_foreign),
        TEST(test_damaged),
        TEST(test_swapped_pages),
        TEST(test_not_ours),
        TEST(test_directory),
        TEST(test_limits),
        TEST(test_ages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
