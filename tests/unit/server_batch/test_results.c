/* SPDX-License-Identifier: MIT */
/*
 * The journal of a batch: killed after every byte, damaged at every byte, on a full disk; each line
 * is done once, and the files are those of a run that nothing has disturbed.
 */
#include "server/batch/results.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

enum { N = 9, MAX_FILE = 4096 };

static char path[] = "/tmp/hearth-results-XXXXXX";
static int dir = -1;

ssize_t __real_pwrite(int fd, const void *data, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t at);

static size_t most_written = SIZE_MAX; /* by one call: the disk is full after that */

ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t at)
{
    if (n <= most_written) return __real_pwrite(fd, data, n, at);
    if (most_written > 0) return __real_pwrite(fd, data, most_written, at);
    errno = ENOSPC;
    return -1;
}

/* With large offsets the C library's name of it is another one. */
ssize_t __wrap_pwrite64(int fd, const void *data, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t n, off_t at)
{
    return __wrap_pwrite(fd, data, n, at);
}

int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    return fcntl(fd, F_GETFD) < 0 ? -1 : 0; /* the machine goes on */
}

static int open_dir(void **state)
{
    (void)state;
    REQUIRE(mkdtemp(path));
    dir = open(path, O_RDONLY | O_DIRECTORY);
    return dir < 0;
}

static int close_dir(void **state)
{
    (void)state;
    unlinkat(dir, "r", 0);
    unlinkat(dir, "out", 0);
    close(dir);
    return rmdir(path);
}

/* The order in which lines end, and what each gives. */
static const int order[N] = {3, 0, 1, 8, 2, 4, 7, 5, 6};

static enum results_kind kind_of(int line)
{
    return line % 4 == 1 ? RESULTS_FAILED : line % 4 == 3 ? RESULTS_UNRUN : RESULTS_GOOD;
}

static size_t text_of(int line, char text[100])
{
    return (size_t)snprintf(text, 100, "{\"line\":%d,\"text\":\"%.*s\"}\n", line, line * 5,
                            "0123456789012345678901234567890123456789012345678901234567890");
}

static void open_results(struct results *r)
{
    char err[200] = "";
    REQUIRE_MSG(results_open(r, dir, "r", N, err, sizeof(err)) == 0, "%s", err);
}

/* Runs the lines that are not done. */
static void run(struct results *r)
{
    char text[100];
    for (int i = 0; i < N; i++)
        if (!r->lines[order[i]].kind)
            REQUIRE_EQ_INT(
                results_add(r, order[i], kind_of(order[i]), text, text_of(order[i], text), NULL),
                0);
    REQUIRE_EQ_INT(results_sync(r), 0);
}

static size_t read_file(const char *name, char *to)
{
    int fd = openat(dir, name, O_RDONLY);
    ssize_t n = pread(fd, to, MAX_FILE, 0);
    REQUIRE(n >= 0 && n < MAX_FILE);
    close(fd);
    return (size_t)n;
}

/* In the place of another one, which is not truncated: file systems make that wait for the disk. */
static int make_file(const char *name)
{
    unlinkat(dir, name, 0);
    return openat(dir, name, O_RDWR | O_CREAT, 0600);
}

static void write_file(const char *data, size_t n)
{
    int fd = make_file("r");
    REQUIRE(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    close(fd);
}

static void check_files(const struct results *r)
{
    int64_t n_done = 0;
    for (int good = 0; good < 2; good++) {
        char want[MAX_FILE], got[MAX_FILE];
        size_t n = 0;
        int fd = make_file("out");
        REQUIRE_EQ_INT(results_write(r, good, fd), 0);
        close(fd);
        for (int i = 0; i < N; i++)
            if ((kind_of(i) == RESULTS_GOOD) == good) n += text_of(i, want + n);
        REQUIRE_EQ_INT(read_file("out", got), n);
        REQUIRE(memcmp(want, got, n) == 0);
    }
    for (int k = RESULTS_NONE + 1; k < RESULTS_KINDS; k++)
        n_done += r->n_of[k];
    REQUIRE_EQ_INT(n_done, N);
}

static void test_killed_at_every_byte(void **state)
{
    (void)state;
    struct results r;
    char whole[MAX_FILE];
    write_file("", 0);
    open_results(&r);
    run(&r);
    check_files(&r);
    results_close(&r);
    size_t n = read_file("r", whole);
    int last = -1;
    for (size_t at = 0; at <= n; at++) {
        write_file(whole, at);
        open_results(&r);
        int n_done = 0;
        for (int i = 0; i < N; i++)
            n_done += r.lines[i].kind != RESULTS_NONE;
        REQUIRE_MSG(n_done == last || n_done == last + 1, "%d lines after %zu bytes", n_done, at);
        last = n_done;
        run(&r);
        check_files(&r);
        results_close(&r);
        open_results(&r); /* nothing is left to be done */
        check_files(&r);
        results_close(&r);
    }
    REQUIRE_EQ_INT(last, N);
}

static void test_damaged_at_every_byte(void **state)
{
    (void)state;
    struct results r;
    char whole[MAX_FILE];
    write_file("", 0);
    open_results(&r);
    run(&r);
    results_close(&r);
    size_t n = read_file("r", whole);
    for (size_t at = 0; at < n; at++) {
        whole[at] ^= 0x55;
        write_file(whole, n);
        whole[at] ^= 0x55;
        open_results(&r);
        REQUIRE(r.bytes <= (int64_t)at); /* this record and those after it are gone */
        run(&r);
        check_files(&r);
        results_close(&r);
    }
}

/* A line that the disk has no room for stays undone, at every length of what was written of it. */
static void test_full_disk(void **state)
{
    (void)state;
    struct results r;
    char text[100];
    for (size_t most = 0; most < 24 + text_of(6, text); most++) {
        write_file("", 0);
        open_results(&r);
        REQUIRE_EQ_INT(results_add(&r, 0, kind_of(0), text, text_of(0, text), NULL), 0);
        most_written = most;
        REQUIRE_EQ_INT(results_add(&r, 6, kind_of(6), text, text_of(6, text), NULL), -1);
        REQUIRE_EQ_INT(errno, ENOSPC);
        most_written = SIZE_MAX;
        REQUIRE(!r.lines[6].kind);
        if (most % 2) { /* else the same process goes on */
            results_close(&r);
            open_results(&r);
        }
        run(&r);
        check_files(&r);
        results_close(&r);
        open_results(&r);
        check_files(&r);
        results_close(&r);
    }
}

/* Of two records of a line the first counts, and a file of a longer batch is cut. */
static void test_records_that_do_not_count(void **state)
{
    (void)state;
    struct results r;
    char twice[MAX_FILE], text[100], err[200];
    write_file("", 0);
    open_results(&r);
    REQUIRE_EQ_INT(results_add(&r, 2, RESULTS_GOOD, text, text_of(2, text), NULL), 0);
    results_close(&r);
    size_t n = read_file("r", twice);
    memcpy(twice + n, twice, n);
    write_file(twice, 2 * n);
    open_results(&r);
    REQUIRE_EQ_INT(r.n_of[RESULTS_GOOD], 1);
    REQUIRE_EQ_INT(r.bytes, 2 * n);
    run(&r);
    check_files(&r);
    results_close(&r);
    REQUIRE_EQ_INT(results_open(&r, dir, "r", 2, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(r.bytes, 0);
    results_close(&r);
    REQUIRE_EQ_INT(results_open(&r, dir, "no/r", 2, err, sizeof(err)), -1);
    REQUIRE(strstr(err, "no/r cannot be opened"));
    results_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_at_every_byte),
        cmocka_unit_test(test_damaged_at_every_byte),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_records_that_do_not_count),
    };
    return cmocka_run_group_tests(tests, open_dir, close_dir);
}
