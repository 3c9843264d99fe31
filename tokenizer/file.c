/* SPDX-License-Identifier: MIT */
/* Reading files whole; see file.h. */
#include "tokenizer/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tokenizer/tokenizer.h"

static int complain(int rc, const char *path, const char *what, char *err, size_t errlen)
{
    snprintf(err, errlen, "%s: %s", path, what);
    return rc;
}

/* All size bytes and then the end; errno is 0 where the file has another size by now. */
static int read_exactly(int fd, char *buf, size_t size)
{
    size_t len = 0;
    while (len <= size) {
        char beyond;
        ssize_t got = len < size ? read(fd, buf + len, size - len) : read(fd, &beyond, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return TOK_EIO;
        if (got == 0) break;
        len += (size_t)got;
    }
    errno = 0;
    return len == size ? 0 : TOK_EIO;
}

static int load(int fd, const char *path, size_t max_bytes, char **ret, size_t *ret_len, char *err,
                size_t errlen)
{
    static const char pointer[] = "version https://git-lfs";
    struct stat st;
    if (fstat(fd, &st)) return complain(TOK_EIO, path, strerror(errno), err, errlen);
    if (!S_ISREG(st.st_mode)) return complain(TOK_EIO, path, "is no regular file", err, errlen);
    if (st.st_size < 0 || (uint64_t)st.st_size > max_bytes) {
        snprintf(err, errlen, "%s: has more than %zu bytes", path, max_bytes);
        return TOK_EINVAL;
    }
    size_t len = (size_t)st.st_size;
    char *text = malloc(len + 1);
    if (!text) return complain(TOK_ENOMEM, path, "out of memory", err, errlen);
    int rc = read_exactly(fd, text, len);
    if (rc)
        complain(rc, path, errno ? strerror(errno) : "changed while it was read", err, errlen);
    else if (len >= sizeof(pointer) - 1 && memcmp(text, pointer, sizeof(pointer) - 1) == 0)
        rc = complain(TOK_EINVAL, path, "is a git-lfs pointer, not the file itself", err, errlen);
    if (rc) {
        free(text);
        return rc;
    }
    text[len] = '\0';
    *ret = text;
    *ret_len = len;
    return 0;
}

int tok_file_load(const char *path, size_t max_bytes, char **ret, size_t *ret_len, char *err,
                  size_t errlen)
{
    /* O_NONBLOCK: the writer that a named pipe waits for may never come. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        bool absent = errno == ENOENT || errno == ENOTDIR;
        return complain(absent ? TOK_ENOENT : TOK_EIO, path, strerror(errno), err, errlen);
    }
    int rc = load(fd, path, max_bytes, ret, ret_len, err, errlen);
    close(fd);
    return rc;
}
