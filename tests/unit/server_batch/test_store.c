/* SPDX-License-Identifier: MIT */
/*
 * Files and documents: quotas, owners, pages of lists; and a process that is killed before each of
 * its calls that change the disk: what a call has returned 0 for is there afterwards, all else is
 * there whole or not at all.
 */
#include "server/batch/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "test.h"

static char dir[] = "/tmp/hearth-store-XXXXXX";
static const uint8_t alice[STORE_OWNER] = {1}, bob[STORE_OWNER] = {2};
static char err[500];

/* ---- calls that change the disk: the process ends before the dies_at-th -------------------- */

static int n_calls, dies_at;
static int fails_in; /* so many calls of fsync: that one and all after it; 0: none */

static void count(void)
{
    if (++n_calls == dies_at) _exit(99);
}

ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __real_unlinkat(int at, const char *name, int flags);
int __wrap_unlinkat(int at, const char *name, int flags);
int __wrap_fsync(int fd);

/* The files that have been written and are not durable. */
enum { N_DIRTY = 64 };
static ino_t dirty[N_DIRTY];

static ino_t file_of(int at, const char *name)
{
    struct stat st;
    REQUIRE_EQ_INT(fstatat(at, name, &st, AT_EMPTY_PATH), 0);
    return st.st_ino;
}

/* Its place in the list, or a free one. */
static ino_t *place_of(ino_t file)
{
    ino_t *free_one = NULL;
    for (int i = N_DIRTY - 1; i >= 0; i--) {
        if (dirty[i] == file) return &dirty[i];
        if (!dirty[i]) free_one = &dirty[i];
    }
    REQUIRE(free_one);
    return free_one;
}

ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    ino_t file = file_of(fd, "");
    count();
    *place_of(file) = file;
    return __real_write(fd, data, n);
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    count();
    REQUIRE(*place_of(file_of(from_dir, from)) == 0); /* bytes are durable before their name */
    return __real_renameat(from_dir, from, to_dir, to);
}

int __wrap_unlinkat(int at, const char *name, int flags)
{
    struct stat st;
    count();
    if (!fstatat(at, name, &st, 0)) *place_of(st.st_ino) = 0;
    return __real_unlinkat(at, name, flags);
}

int __wrap_fsync(int fd)
{
    count();
    if (fails_in == 1) return errno = EIO, -1;
    if (fails_in) fails_in--;
    *place_of(file_of(fd, "")) = 0;
    return 0;
}

static fsblkcnt_t n_free = 50; /* blocks of a file system of a thousand */

int __wrap_fstatvfs(int fd, struct statvfs *ret);
int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
    REQUIRE(fd >= 0);
    *ret = (struct statvfs){.f_blocks = 1000, .f_bavail = n_free};
    return 0;
}

/* With large offsets the C library's name of it is another one. */
int __wrap_fstatvfs64(int fd, struct statvfs *ret);
int __wrap_fstatvfs64(int fd, struct statvfs *ret)
{
    return __wrap_fstatvfs(fd, ret);
}

/* ---- helpers ------------------------------------------------------------------------------- */

static int empty(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[600];
        if (e->d_name[0] == '.') continue;
        snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
        if (unlink(name)) {
            empty(name);
            rmdir(name);
        }
    }
    return d ? closedir(d) : 0;
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    empty(dir);
    return rmdir(dir);
}

static struct store *open_store(int64_t most_bytes)
{
    struct store *s = NULL;
    REQUIRE_MSG(store_open(&s, dir, most_bytes, err, sizeof(err)) == 0, "%s", err);
    return s;
}

static const char *id_of(int number)
{
    static char id[STORE_ID_CHARS + 1];
    snprintf(id, sizeof(id), "file-%02x%030d", number, 0);
    return id;
}

static int add_file(struct store *s, const uint8_t *owner, uint8_t number, const char *text)
{
    struct store_item *u;
    int rc = store_upload_begin(s, owner, id_of(number), &u, err, sizeof(err));
    size_t half = strlen(text) / 2;
    if (rc) return rc;
    rc = store_upload_add(u, text, half, err, sizeof(err));
    if (!rc) rc = store_upload_add(u, text + half, strlen(text) - half, err, sizeof(err));
    if (!rc) rc = store_upload_end(u, "name", "batch", 50, err, sizeof(err));
    if (rc) store_upload_drop(u);
    return rc;
}

static int put_batch(struct store *s, const char *id, const char *status)
{
    char owner[2 * STORE_OWNER + 1];
    int rc = store_update(s, STORE_BATCHES, alice, id, NULL, json_pack("{s:s}", "status", status),
                          true, err, sizeof(err));
    if (rc != STORE_ENOENT) return rc;
    for (int i = 0; i < STORE_OWNER; i++)
        snprintf(owner + 2 * i, 3, "%02x", alice[i]);
    return store_add(
        s, STORE_BATCHES,
        json_pack("{s:s,s:s,s:s,s:n}", "id", id, "owner", owner, "status", status, "expires_at"),
        err, sizeof(err));
}

/* The text of a file that is there, else "". */
static const char *text_of(struct store *s, int number)
{
    static char text[100];
    int fd = store_file_open(s, id_of(number));
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    text[n] = '\0';
    if (fd >= 0) close(fd);
    return text;
}

static const char *status_of(struct store *s)
{
    static char status[20];
    HOLD(store_lock(s));
    const struct store_item *i = store_find(s, STORE_BATCHES, alice, "batch_1");
    snprintf(status, sizeof(status), "%s", i ? store_text(i->doc, "status") : "");
    return status;
}

static bool is_known(struct store *s, const uint8_t *owner, int number)
{
    HOLD(store_lock(s));
    return store_find(s, STORE_FILES, owner, id_of(number)) != NULL;
}

/* The numbers of an owner's files, in their order. */
static const char *list(struct store *s, const uint8_t *owner, bool newest_first)
{
    static char ids[100];
    const struct store_item *i;
    HOLD(store_lock(s));
    ids[0] = '\0';
    for (size_t at = 0; (i = store_next(s, STORE_FILES, owner, newest_first, &at));)
        strncat(ids, i->id + 5, 2);
    return ids;
}

static int n_names(const char *folder)
{
    char path[600];
    int n = 0;
    snprintf(path, sizeof(path), "%s/%s", dir, folder);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* ---- tests --------------------------------------------------------------------------------- */

static const char *const states[] = {"validating", "in_progress", "completed"};

/* Says on fd what it has done. */
static void work(int fd)
{
    char done = 0;
    struct store *s = open_store(1 << 20);
    dies_at += n_calls;
    for (int i = 0; i < 4; i++, done++) {
        bool good = i < 3 ? put_batch(s, "batch_1", states[i]) == 0 : true;
        good = good && add_file(s, alice, (uint8_t)(i + 1), "some bytes of a file") == 0;
        if (i == 2) good = good && store_remove(s, STORE_FILES, alice, id_of(1)) == 0;
        if (!good) _exit(98);
        __real_write(fd, &done, 1);
    }
    store_close(s);
    _exit(0);
}

static void test_killed_before_every_call(void **state)
{
    (void)state;
    int status = -1, n_kills = 0;
    for (int at = 1; status != 0; at++, n_kills++) {
        int pipes[2];
        char done = -1;
        empty(dir);
        REQUIRE_EQ_INT(pipe(pipes), 0);
        pid_t child = fork();
        if (child == 0) {
            n_calls = 0;
            dies_at = at;
            work(pipes[1]);
        }
        close(pipes[1]);
        while (read(pipes[0], &done, 1) == 1)
            ;
        close(pipes[0]);
        REQUIRE_EQ_INT(waitpid(child, &status, 0), child);
        REQUIRE(WIFEXITED(status) && (!WEXITSTATUS(status) || WEXITSTATUS(status) == 99));
        struct store *s = open_store(1 << 20);
        for (int i = 0; i < 4; i++) {
            bool known = is_known(s, alice, i + 1);
            const char *text = text_of(s, i + 1);
            REQUIRE(strcmp(text, known ? "some bytes of a file" : "") == 0);
            if (i <= done && i > 0) REQUIRE_MSG(known, "call %d: file %d is lost", at, i);
            if (i > done + 1) REQUIRE(!known);
            if (i == 0 && done >= 2) REQUIRE(!known);
        }
        const char *now = status_of(s);
        int least = done < 2 ? done : 2, most = done + 1 < 2 ? done + 1 : 2;
        REQUIRE_MSG((least < 0 && !*now) || (least >= 0 && !strcmp(now, states[least])) ||
                        !strcmp(now, states[most]),
                    "call %d: %s after %d", at, now, done);
        REQUIRE_EQ_INT(add_file(s, alice, 9, "goes on"), 0);
        store_close(s);
        char left[600];
        snprintf(left, sizeof(left), "%s/files/%s.tmp", dir, id_of(4));
        REQUIRE(access(left, F_OK) != 0);
    }
    REQUIRE_MSG(n_kills > 30, "%d kills", n_kills);
    empty(dir);
}

static void test_owners_and_pages(void **state)
{
    (void)state;
    struct store *s = open_store(1 << 20);
    for (int i = 1; i <= 6; i++)
        REQUIRE_EQ_INT(add_file(s, i == 3 ? bob : alice, (uint8_t)i, "text"), 0);
    for (int again = 0; again < 2; again++) {
        REQUIRE(!strcmp(list(s, alice, true), "0605040201"));
        REQUIRE(!strcmp(list(s, alice, false), "0102040506"));
        REQUIRE(!strcmp(list(s, NULL, false), "010203040506"));
        REQUIRE(!is_known(s, alice, 3) && is_known(s, NULL, 3));
        REQUIRE_EQ_INT(store_remove(s, STORE_FILES, alice, id_of(3)), STORE_ENOENT);
        store_close(s);
        s = open_store(1 << 20);
    }
    REQUIRE_EQ_INT(store_remove(s, STORE_FILES, bob, id_of(3)), 0);
    REQUIRE(strcmp(text_of(s, 3), "") == 0 && strcmp(text_of(s, 4), "text") == 0);
    store_close(s);
    empty(dir);
}

static void test_changes(void **state)
{
    (void)state;
    struct store *s = open_store(1 << 20);
    REQUIRE_EQ_INT(put_batch(s, "batch_1", "validating"), 0);
    for (int durable = 0; durable < 2; durable++) {
        const char *status = durable ? "cancelled" : "cancelling";
        static const struct {
            const uint8_t *owner;
            const char *from;
            int rc;
        } cases[] = {{bob, NULL, STORE_ENOENT}, {alice, "failed", 1}, {alice, "validating", 0}};
        for (size_t i = 0; i < N_OF(cases); i++) {
            REQUIRE(!strcmp(status_of(s), "validating"));
            REQUIRE_EQ_INT(store_update(s, STORE_BATCHES, cases[i].owner, "batch_1", cases[i].from,
                                        json_pack("{s:s}", "status", status), durable, err,
                                        sizeof(err)),
                           cases[i].rc);
        }
        REQUIRE(!strcmp(status_of(s), status));
        store_close(s);
        s = open_store(1 << 20);
        REQUIRE(!strcmp(status_of(s), durable ? status : "validating"));
    }
    store_close(s);
    empty(dir);
}

static void test_quotas(void **state)
{
    (void)state;
    struct store *s = open_store(100);
    struct store_item *u;
    const char *id = "file-07";
    REQUIRE_EQ_INT(add_file(s, alice, 1, "0123456789"), 0);
    REQUIRE_EQ_INT(add_file(s, alice, 2, "0123456789x"), STORE_EQUOTA);
    REQUIRE(strstr(err, "15 bytes of files are kept for this key, and the limit is 20"));
    REQUIRE_EQ_INT(add_file(s, alice, 2, "0123456789"), 0);
    REQUIRE_EQ_INT(add_file(s, alice, 3, "0"), STORE_EQUOTA);
    REQUIRE_EQ_INT(add_file(s, bob, 4, "0123456789"), 0);
    REQUIRE_EQ_INT(store_remove(s, STORE_FILES, alice, id_of(1)), 0);
    REQUIRE_EQ_INT(store_upload_begin(s, alice, id, &u, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(store_upload_add(u, "0123456789", 10, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(add_file(s, alice, 5, "0"), STORE_EQUOTA); /* an upload counts */
    store_upload_drop(u);
    n_free = 49;
    REQUIRE_EQ_INT(add_file(s, alice, 5, "0"), STORE_EQUOTA);
    REQUIRE(strstr(err, "The disk is full"));
    n_free = 50;
    REQUIRE_EQ_INT(add_file(s, alice, 5, "0"), 0);
    store_close(s);
    s = open_store((int64_t)4 << 30);
    for (int i = 0; i < 250; i++)
        REQUIRE(store_upload_begin(s, bob, id, &u, err, sizeof(err)) == 0 &&
                (store_upload_drop(u), 1));
    REQUIRE_EQ_INT(store_upload_begin(s, bob, id, &u, err, sizeof(err)), 0);
    static const char zeros[1 << 20];
    int rc = 0;
    for (int i = 0; i <= 200 && !rc; i++) {
        rc = store_upload_add(u, zeros, sizeof(zeros), err, sizeof(err));
        if (!rc) REQUIRE_EQ_INT(lseek(u->fd, 0, SEEK_SET), 0); /* sparing the disk */
    }
    REQUIRE_EQ_INT(rc, STORE_ELARGE);
    REQUIRE(strstr(err, "209715200 bytes"));
    store_upload_drop(u);
    store_close(s);
    empty(dir);
}

/* Each change says so, as a fault of the server, and what was there stays. */
static void test_a_disk_that_fails(void **state)
{
    (void)state;
    struct store *s = open_store(1 << 20), *other;
    REQUIRE_EQ_INT(put_batch(s, "batch_1", "validating"), 0);
    REQUIRE_EQ_INT(add_file(s, alice, 1, "text"), 0);
    fails_in = 1;
    REQUIRE_EQ_INT(put_batch(s, "batch_1", "cancelling"), STORE_EIO);
    REQUIRE_EQ_INT(put_batch(s, "batch_2", "validating"), STORE_EIO);
    REQUIRE(!strcmp(status_of(s), "validating"));
    for (int at = 1; at <= 4; at++) {
        fails_in = at;
        REQUIRE_EQ_INT(add_file(s, alice, 2, "text"), STORE_EIO);
        REQUIRE(!is_known(s, alice, 2) && is_known(s, alice, 1));
        REQUIRE_EQ_INT(n_names("files"), 2);
    }
    store_close(s);
    REQUIRE_EQ_INT(store_open(&other, dir, 100, err, sizeof(err)), STORE_EIO);
    fails_in = 0;
    s = open_store(1 << 20);
    REQUIRE_EQ_INT(add_file(s, alice, 2, "text"), 0);
    store_close(s);
    empty(dir);
}

static void test_opening(void **state)
{
    (void)state;
    struct store *s = open_store(100), *other;
    char text[100], name[600];
    snprintf(text, sizeof(text), "process %d has this directory", (int)getpid());
    REQUIRE_EQ_INT(store_open(&other, dir, 100, err, sizeof(err)), STORE_EIO);
    REQUIRE_MSG(strstr(err, text), "%s", err);
    store_close(s);
    snprintf(name, sizeof(name), "%s/batches/batch_2.json", dir);
    FILE *f = fopen(name, "w");
    REQUIRE(f && fputs("{\"id\":\"batch_2\"}", f) >= 0 && fclose(f) == 0);
    REQUIRE_EQ_INT(store_open(&other, dir, 100, err, sizeof(err)), STORE_EIO);
    REQUIRE_MSG(strstr(err, "batches/batch_2.json: is not a document"), "%s", err);
    REQUIRE_EQ_INT(chmod(dir, 0755), 0);
    REQUIRE_EQ_INT(store_open(&other, dir, 100, err, sizeof(err)), STORE_EIO);
    REQUIRE(strstr(err, "this user's alone"));
    REQUIRE_EQ_INT(chmod(dir, 0700), 0);
    REQUIRE_EQ_INT(store_open(&other, "/no/where", 100, err, sizeof(err)), STORE_EIO);
    empty(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_before_every_call),
        cmocka_unit_test(test_owners_and_pages),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_quotas),
        cmocka_unit_test(test_a_disk_that_fails),
        cmocka_unit_test(test_opening),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
