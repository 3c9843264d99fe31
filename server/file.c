/* SPDX-License-Identifier: MIT */
/* Reading small files whole; see file.h. */
#include "server/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Up to size bytes, fewer where the file ends; -1 with errno. */
static ssize_t read_whole(int fd, char *buf, size_t size)
{
    size_t len = 0;
    while (len < size) {
        ssize_t got = read(fd, buf + len, size - len);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        len += (size_t)got;
    }
    return (ssize_t)len;
}

/* why: empty where errno says it. */
static char *load(int fd, size_t max_bytes, size_t *ret_len, char *why, size_t size)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) return NULL;
    if (!S_ISREG(st.st_mode))
        snprintf(why, size, "is not a regular file");
    else if (st.st_size < 0 || (size_t)st.st_size > max_bytes)
        snprintf(why, size, "is too large: at most %zu bytes are read", max_bytes);
    if (*why) return NULL;
    char *text = malloc((size_t)st.st_size + 1);
    ssize_t len = text ? read_whole(fd, text, (size_t)st.st_size) : -1;
    if (len < 0) {
        free(text);
        return NULL;
    }
    text[len] = '\0';
    *ret_len = (size_t)len;
    return text;
}

char *srv_file_load(const char *path, size_t max_bytes, size_t *ret_len, char *err, size_t errlen)
{
    char why[80] = "";
    size_t len = 0;
    /* O_NONBLOCK: the writer that a named pipe waits for may never come. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    char *text = load(fd, max_bytes, &len, why, sizeof(why));
    if (!text) snprintf(err, errlen, "%.300s: %s", path, *why ? why : strerror(errno));
    if (fd >= 0) close(fd);
    if (text && ret_len) *ret_len = len;
    return text;
}

bool srv_file_is_exposed(const char *path, unsigned *ret_mode)
{
    struct stat st;
    if (stat(path, &st) || !(st.st_mode & (S_IROTH | S_IWOTH))) return false;
    *ret_mode = st.st_mode & 07777;
    return true;
}
