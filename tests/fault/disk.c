/* SPDX-License-Identifier: MIT */
/*
 * A library for LD_PRELOAD: a disk that stops its process, fails or is written down, and a clock
 * that is wrong; for tests only.
 *
 *   DISK_DIR=dir      what lies in this directory is meant, and the calls that change it are counted
 *   DISK_STOP=k       SIGKILL in place of the k-th of them
 *   DISK_HALF=1       if that one writes, when half of its bytes are written
 *   DISK_LOG=path     each call is written there, as Disk in tests/e2e/batch_disk.py reads it
 *   DISK_FAULT=path   while this file exists they fail with the errno that it holds as a number
 *   CLOCK_SHIFT=path  the date is later by the seconds that this file holds as a number
 *
 * Threads: any; the calls that are meant come one after the other.
 */
#undef _FILE_OFFSET_BITS /* it would rename pwrite to pwrite64; both are defined here */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long n_calls;

#define NEXT(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

/* The number in the file that a variable names; 0: there is none. */
static long number_in(const char *variable)
{
    const char *path = getenv(variable);
    char text[32] = "";
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    if (read(fd, text, sizeof(text) - 1) < 0) *text = '\0';
    close(fd);
    return strtol(text, NULL, 10);
}

static long number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? strtol(text, NULL, 10) : 0;
}

/* ---- what is meant ------------------------------------------------------------------------- */

/* The path of what lies at a descriptor, or "". */
static void path_of(int fd, char path[PATH_BYTES])
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_BYTES - 1);
    path[n > 0 ? n : 0] = '\0';
}

static bool is_inside(const char *path)
{
    const char *dir = getenv("DISK_DIR");
    return dir && !strncmp(path, dir, strlen(dir));
}

static bool is_meant(int fd)
{
    char path[PATH_BYTES];
    path_of(fd, path);
    return is_inside(path);
}

/* Where a name is: its directory, and the last part. */
struct place {
    bool meant;
    unsigned long dir;
    const char *name;
};

static struct place place_of(int at, const char *name)
{
    char path[PATH_BYTES];
    struct stat st = {0};
    struct place p = {.name = strrchr(name, '/') ? strrchr(name, '/') + 1 : name};
    if (*name == '/') {
        snprintf(path, sizeof(path), "%.*s", (int)(p.name - name), name);
        p.meant = is_inside(name);
    } else {
        path_of(at, path);
        p.meant = is_inside(path);
    }
    if (p.meant && stat(path, &st) == 0) p.dir = st.st_ino;
    return p;
}

static unsigned long file_of(int fd)
{
    struct stat st = {0};
    return fstat(fd, &st) ? 0 : st.st_ino;
}

/* ---- before and after a call --------------------------------------------------------------- */

static void stop(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Returns true if the call fails. Takes the lock. */
static bool begin(bool writes)
{
    pthread_mutex_lock(&lock);
    if (++n_calls == number_of("DISK_STOP") && !(writes && number_of("DISK_HALF"))) stop();
    errno = (int)number_in("DISK_FAULT");
    return errno != 0;
}

/* Writes a call down, or "none", which has failed, and gives the lock back. */
__attribute__((format(printf, 4, 5))) static void end(bool good, const void *data, size_t n,
                                                      const char *format, ...)
{
    int error = errno;
    const char *path = getenv("DISK_LOG");
    char text[PATH_BYTES];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof(text), good ? format : "none\n", args);
    va_end(args);
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path,
                                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
                  : -1;
    if (fd >= 0) {
        bool whole = syscall(SYS_write, fd, text, (size_t)len) == len &&
                     (!good || syscall(SYS_write, fd, data, n) == (long)n);
        close(fd);
        if (!whole) abort();
    }
    errno = error;
    pthread_mutex_unlock(&lock);
}

/* ---- bytes --------------------------------------------------------------------------------- */

/* at: -1 for where the file is written next. */
static ssize_t put(int fd, const void *data, size_t n, off64_t at, bool moves)
{
    bool fails = begin(true);
    bool stops = n_calls == number_of("DISK_STOP");
    if (stops) n /= 2;
    ssize_t put = fails ? -1 : moves ? NEXT(write)(fd, data, n) : NEXT(pwrite64)(fd, data, n, at);
    if (stops) stop();
    end(put >= 0, data, put >= 0 ? (size_t)put : 0, "write %lu %lld %zd\n", file_of(fd),
        (long long)at, put);
    return put;
}

ssize_t write(int fd, const void *data, size_t n)
{
    return is_meant(fd) ? put(fd, data, n, lseek64(fd, 0, SEEK_CUR), true)
                        : NEXT(write)(fd, data, n);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at)
{
    return is_meant(fd) ? put(fd, data, n, at, false) : NEXT(pwrite64)(fd, data, n, at);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    return pwrite64(fd, data, n, at);
}

int ftruncate64(int fd, off64_t n)
{
    if (!is_meant(fd)) return NEXT(ftruncate64)(fd, n);
    int rc = begin(false) ? -1 : NEXT(ftruncate64)(fd, n);
    end(rc == 0, "", 0, "cut %lu %lld\n", file_of(fd), (long long)n);
    return rc;
}

int ftruncate(int fd, off_t n)
{
    return ftruncate64(fd, n);
}

int fsync(int fd)
{
    if (!is_meant(fd)) return NEXT(fsync)(fd);
    int rc = begin(false) ? -1 : 0;
    end(rc == 0, "", 0, "sync %lu\n", file_of(fd));
    return rc;
}

int fdatasync(int fd)
{
    return fsync(fd);
}

/* ---- names --------------------------------------------------------------------------------- */

static int open_at(int at, const char *path, int flags, mode_t mode)
{
    struct place p = {0};
    struct stat st;
    if (flags & O_CREAT) p = place_of(at, path);
    if (!p.meant) return NEXT(openat64)(at, path, flags, mode);
    bool is_new = fstatat(at, path, &st, 0) != 0, fails = begin(false);
    int fd = fails ? -1 : NEXT(openat64)(at, path, flags, mode);
    end(fd >= 0, "", 0, "open %lu %s %lu %d\n", p.dir, p.name, fd >= 0 ? file_of(fd) : 0,
        is_new || (flags & O_TRUNC) ? is_new + 1 : 0);
    return fd;
}

#define OPEN(at)                                                                                   \
    va_list args;                                                                                  \
    va_start(args, flags);                                                                         \
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;                                      \
    va_end(args);                                                                                  \
    return open_at(at, path, flags, mode)

int open64(const char *path, int flags, ...)
{
    OPEN(AT_FDCWD);
}

int openat64(int at, const char *path, int flags, ...)
{
    OPEN(at);
}

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    struct place p = place_of(from_at, from), q = place_of(to_at, to);
    if (!p.meant) return NEXT(renameat)(from_at, from, to_at, to);
    int rc = begin(false) ? -1 : NEXT(renameat)(from_at, from, to_at, to);
    end(rc == 0, "", 0, "rename %lu %s %lu %s\n", p.dir, p.name, q.dir, q.name);
    return rc;
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlinkat(int at, const char *name, int flags)
{
    struct place p = place_of(at, name);
    if (!p.meant) return NEXT(unlinkat)(at, name, flags);
    int rc = begin(false) ? -1 : NEXT(unlinkat)(at, name, flags);
    end(rc == 0, "", 0, "unlink %lu %s\n", p.dir, p.name);
    return rc;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int mkdirat(int at, const char *name, mode_t mode)
{
    struct place p = place_of(at, name);
    struct stat st = {0};
    if (!p.meant) return NEXT(mkdirat)(at, name, mode);
    int rc = begin(false) ? -1 : NEXT(mkdirat)(at, name, mode);
    if (rc == 0) fstatat(at, name, &st, 0);
    end(rc == 0, "", 0, "mkdir %lu %s %lu\n", p.dir, p.name, (unsigned long)st.st_ino);
    return rc;
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

/* A call that batches do not make, and that this library does not know, ends the process. */
int linkat(int from_at, const char *from, int to_at, const char *to, int flags)
{
    if (place_of(to_at, to).meant) abort();
    return NEXT(linkat)(from_at, from, to_at, to, flags);
}

/* ---- the clock ----------------------------------------------------------------------------- */

int clock_gettime(clockid_t id, struct timespec *ret)
{
    int rc = (int)syscall(SYS_clock_gettime, id, ret);
    if (rc == 0 && id == CLOCK_REALTIME) ret->tv_sec += number_in("CLOCK_SHIFT");
    return rc;
}

time_t time(time_t *ret)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (ret) *ret = now.tv_sec;
    return now.tv_sec;
}
