/* SPDX-License-Identifier: MIT */
/*
 * A library for LD_PRELOAD: a disk that does not answer for a while, as one over NFS; for tests only.
 *
 *   HANG_DIR=dir     the files that are meant
 *   HANG_WHILE=path  reading and writing them waits while this file exists
 *   BUSY_WHILE=path  unlinkat fails with EBUSY while this file exists
 *
 * The calls go on to those of a sanitizer, if there is one. Threads: any.
 */
#undef _FILE_OFFSET_BITS /* it would rename pread to pread64; both are defined here */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool exists(const char *variable)
{
    const char *path = getenv(variable);
    return path && syscall(SYS_faccessat, -100, path, F_OK) == 0;
}

static bool is_meant(int fd)
{
    const char *dir = getenv("HANG_DIR");
    char link[64], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path));
    return dir && n > 0 && strncmp(path, dir, strlen(dir)) == 0;
}

static void hang(int fd)
{
    const struct timespec while_ms = {.tv_nsec = 2000000};
    while (exists("HANG_WHILE") && is_meant(fd))
        nanosleep(&while_ms, NULL);
}

ssize_t pread(int fd, void *buf, size_t size, off_t at)
{
    hang(fd);
    return ((ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread"))(fd, buf, size, at);
}

ssize_t pread64(int fd, void *buf, size_t size, off64_t at)
{
    hang(fd);
    return ((ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64"))(fd, buf, size,
                                                                                   at);
}

ssize_t write(int fd, const void *buf, size_t size)
{
    hang(fd);
    return ((ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write"))(fd, buf, size);
}

int unlinkat(int fd, const char *path, int flags)
{
    if (exists("BUSY_WHILE")) {
        errno = EBUSY;
        return -1;
    }
    return ((int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat"))(fd, path, flags);
}
