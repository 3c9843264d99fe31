/* SPDX-License-Identifier: MIT */
/* Reading files; see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/os_error.h"

static const char lfs_magic[] = "version https://git-lfs.github.com/spec/";

bool file_is_lfs_pointer(const void *data, size_t n)
{
    return n >= sizeof(lfs_magic) - 1 && memcmp(data, lfs_magic, sizeof(lfs_magic) - 1) == 0;
}

static int join_path(char path[PATH_MAX], const char *dir, const char *name)
{
    int len = snprintf(path, PATH_MAX, "%s%s%s", dir ? dir : "", dir ? "/" : "", name);
    return len >= 0 && len < PATH_MAX ? 0 : -1;
}

/* A user's name, or the number of one that has none. */
static void name_user(uid_t uid, char *buf, size_t size)
{
    char text[1024];
    struct passwd entry, *found = NULL;
    bool known = getpwuid_r(uid, &entry, text, sizeof(text), &found) == 0 && found;
    if (known)
        snprintf(buf, size, "%s", entry.pw_name);
    else
        snprintf(buf, size, "%u", (unsigned)uid);
}

const char *file_reason(const char *path, char *buf, size_t size)
{
    int error = errno;
    char part[PATH_MAX], user[64], owner[64];
    struct stat st;
    size_t len = 1;
    snprintf(buf, size, "%s%s", strerror(error), os_error_remedy(error));
    for (bool last = error != EACCES || !*path; !last; len++) {
        if (path[len] && path[len] != '/') continue;
        last = !path[len];
        snprintf(part, sizeof(part), "%.*s", (int)len, path);
        if (eaccess(part, last ? R_OK : X_OK) == 0) continue;
        if (errno != EACCES || stat(part, &st)) break;
        name_user(geteuid(), user, sizeof(user));
        name_user(st.st_uid, owner, sizeof(owner));
        snprintf(buf, size, "permission denied: user %s may not %s %.300s (mode %04o, owner %s)",
                 user, S_ISDIR(st.st_mode) ? "enter" : "read", part, st.st_mode & 07777, owner);
        break;
    }
    errno = error;
    return buf;
}

bool file_exists(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    return join_path(path, dir, name) == 0 && stat(path, &st) == 0;
}

bool file_is_exposed(const char *path, unsigned *ret_mode)
{
    struct stat st;
    if (stat(path, &st) || !(st.st_mode & (S_IROTH | S_IWOTH))) return false;
    *ret_mode = st.st_mode & 07777;
    return true;
}

int file_write_all(int fd, const void *data, size_t n)
{
    for (const uint8_t *from = data; n > 0;) {
        ssize_t got = write(fd, from, n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return FILE_EIO;
        from += got;
        n -= (size_t)got;
    }
    return 0;
}

int file_replace(int dir_fd, const char *name, const char *beside, const void *data, size_t n)
{
    AUTO(file_close)
    int fd = openat(dir_fd, beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool good = fd >= 0 && !file_write_all(fd, data, n) && !fsync(fd) &&
                !renameat(dir_fd, beside, dir_fd, name) && !fsync(dir_fd);
    return good ? 0 : FILE_EIO;
}

void file_close(int *fd)
{
    int error = errno;
    if (*fd >= 0) close(*fd);
    errno = error;
    *fd = -1;
}

/* A regular file's descriptor, or -1 with *ret_rc and errno; errno 0: it is of another kind. */
static int open_regular(const char *path, int64_t *ret_bytes, int *ret_rc)
{
    struct stat st;
    /* O_NONBLOCK: the writer that a named pipe waits for may never come. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *ret_bytes = st.st_size;
        return fd;
    }
    bool failed = fd < 0;
    bool absent = failed && (errno == ENOENT || errno == ENOTDIR);
    *ret_rc = absent ? FILE_ENOENT : failed ? FILE_EIO : FILE_EINVAL;
    if (!failed) errno = 0;
    file_close(&fd);
    return -1;
}

int file_open(const char *dir, const char *name, int *ret_fd, int64_t *ret_bytes, char *err,
              size_t errlen)
{
    char path[PATH_MAX];
    int rc = FILE_EINVAL;
    if (join_path(path, dir, name))
        return fail_with(rc, err, errlen, "%.200s: the path is longer than %d bytes", name,
                         PATH_MAX - 1);
    char reason[500];
    int fd = open_regular(path, ret_bytes, &rc);
    if (fd < 0 && errno)
        return fail_with(rc, err, errlen, "%.400s: cannot be opened: %s", path,
                         file_reason(path, reason, sizeof(reason)));
    if (fd < 0) return fail_with(rc, err, errlen, "%.400s: is not a regular file", path);
    *ret_fd = fd;
    return 0;
}

int file_pread(int fd, void *buf, size_t n, int64_t offset)
{
    uint8_t *to = buf;
    while (n > 0) {
        ssize_t got = pread(fd, to, n, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            if (got == 0) errno = 0;
            return FILE_EIO;
        }
        to += got;
        offset += got;
        n -= (size_t)got;
    }
    return 0;
}

const char *file_read_reason(void)
{
    return errno ? strerror(errno) : "it was cut short meanwhile";
}

/* Reads all of an open file into `text`, which has one byte more. */
static int read_text(int fd, char *text, int64_t bytes, const char *path, char *err, size_t errlen)
{
    if (file_pread(fd, text, (size_t)bytes, 0))
        return fail_with(FILE_EIO, err, errlen, "%.400s: cannot be read: %s", path,
                         file_read_reason());
    if (file_is_lfs_pointer(text, (size_t)bytes))
        return fail_with(FILE_EINVAL, err, errlen,
                         "%.400s: is a git-lfs pointer, not the file itself (git lfs pull)", path);
    text[bytes] = '\0';
    return 0;
}

int file_load(const char *dir, const char *name, size_t max_bytes, char **ret, size_t *ret_len,
              char *err, size_t errlen)
{
    char path[PATH_MAX];
    AUTO(file_close) int fd = -1;
    int64_t bytes = 0;
    int rc = file_open(dir, name, &fd, &bytes, err, errlen);
    if (rc) return rc;
    join_path(path, dir, name); /* fits: file_open did the same */
    if (bytes < 0 || (uint64_t)bytes > max_bytes)
        return fail_with(FILE_EINVAL, err, errlen, "%.400s: %lld bytes, the limit is %zu", path,
                         (long long)bytes, max_bytes);
    char *text = malloc((size_t)bytes + 1);
    if (!text)
        return fail_with(FILE_ENOMEM, err, errlen, "%.400s: no memory for %lld bytes", path,
                         (long long)bytes);
    rc = read_text(fd, text, bytes, path, err, errlen);
    if (rc) {
        free(text);
        return rc;
    }
    *ret = text;
    if (ret_len) *ret_len = (size_t)bytes;
    return 0;
}

int file_load_optional(const char *dir, const char *name, size_t max_bytes, char **ret,
                       size_t *ret_len, char *err, size_t errlen)
{
    char why[512];
    *ret = NULL;
    int rc = file_load(dir, name, max_bytes, ret, ret_len, why, sizeof(why));
    if (rc == FILE_ENOENT) return 0;
    if (rc) snprintf(err, errlen, "%s", why);
    return rc;
}
