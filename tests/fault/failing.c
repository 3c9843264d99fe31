/* SPDX-License-Identifier: MIT */
/*
 * A library for LD_PRELOAD that makes the system fail on purpose; for tests only.
 *
 *   FAIL_ALLOC_AT=k      the k-th allocation of the process (1 is the first) returns NULL
 *   FAIL_ALLOC_FROM=k    that one and all after it
 *   FAIL_READ=eio|short  every read of a regular file: EIO, or at most 1,000 of the bytes asked
 *   FAIL_ACCEPT=k        the first k calls of accept fail with EMFILE
 *   FAIL_COUNT_FILE=path the number of allocations is written there at exit
 *   FAIL_ARM_SIGNAL=1    counting begins with SIGURG, sent by the test when the server is ready
 *
 * Threads: every function may be called on any; the counters are atomics.
 */
#undef _FILE_OFFSET_BITS /* it would rename pread to pread64; both are defined here */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* The C library's own allocator: calling it needs no dlsym, which would allocate itself. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);

enum { SHORT_BYTES = 1000 };

static atomic_long n_allocations, n_accepts;
static long fail_at, fail_from, fail_accepts;
static atomic_bool armed;
static int read_mode; /* 'e', 's' or 0 */

static void arm(int sig)
{
    (void)sig;
    atomic_store(&n_allocations, 0);
    atomic_store(&armed, true);
}

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *mode = getenv("FAIL_READ");
    fail_at = number("FAIL_ALLOC_AT");
    fail_from = number("FAIL_ALLOC_FROM");
    fail_accepts = number("FAIL_ACCEPT");
    read_mode = mode ? mode[0] : 0;
    if (number("FAIL_ARM_SIGNAL"))
        signal(SIGURG, arm);
    else
        atomic_store(&armed, true);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("FAIL_COUNT_FILE");
    char text[32];
    if (!path) return;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int len = snprintf(text, sizeof(text), "%ld\n", atomic_load(&n_allocations));
    if (fd < 0) return;
    if (write(fd, text, (size_t)len) != len) unlink(path);
    close(fd);
}

static bool fails(void)
{
    if (!atomic_load(&armed)) return false;
    long k = atomic_fetch_add(&n_allocations, 1) + 1;
    if (k != fail_at && !(fail_from && k >= fail_from)) return false;
    errno = ENOMEM;
    return true;
}

/* ---- memory -------------------------------------------------------------------------------- */

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return fails() ? NULL : __libc_realloc(p, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return fails() ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **ret, size_t align, size_t size)
{
    void *p = fails() ? NULL : __libc_memalign(align, size);
    if (!p) return ENOMEM;
    *ret = p;
    return 0;
}

char *strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

/* ---- files and sockets --------------------------------------------------------------------- */

static bool is_regular(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

ssize_t read(int fd, void *buf, size_t size)
{
    static ssize_t (*next)(int, void *, size_t);
    if (!next) next = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    if (read_mode && is_regular(fd)) {
        if (read_mode == 'e') {
            errno = EIO;
            return -1;
        }
        if (size > SHORT_BYTES) size = SHORT_BYTES;
    }
    return next(fd, buf, size);
}

ssize_t pread(int fd, void *buf, size_t size, off_t at)
{
    static ssize_t (*next)(int, void *, size_t, off_t);
    if (!next) next = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    if (read_mode && is_regular(fd)) {
        if (read_mode == 'e') {
            errno = EIO;
            return -1;
        }
        if (size > SHORT_BYTES) size = SHORT_BYTES;
    }
    return next(fd, buf, size, at);
}

ssize_t pread64(int fd, void *buf, size_t size, off64_t at)
{
    return pread(fd, buf, size, at);
}

int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    static int (*next)(int, struct sockaddr *, socklen_t *, int);
    if (!next)
        next = (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4");
    if (atomic_fetch_add(&n_accepts, 1) < fail_accepts) {
        errno = EMFILE;
        return -1;
    }
    return next(fd, addr, len, flags);
}
