/* SPDX-License-Identifier: MIT */
/* Files of a model directory; see file.h. */
#include "engine/file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/eng_error.h"

/* A value takes jansson about 100 bytes, so this bounds a file's tree to some 100 MB. */
enum { MAX_JSON_VALUES = 1000000 };

static const char lfs_magic[] = "version https://git-lfs.github.com/spec/";

bool eng_file_is_lfs_pointer(const void *data, size_t n)
{
    return n >= sizeof(lfs_magic) - 1 && memcmp(data, lfs_magic, sizeof(lfs_magic) - 1) == 0;
}

static int join_path(char path[PATH_MAX], const char *dir, const char *name, char *err,
                     size_t errlen)
{
    int len = snprintf(path, PATH_MAX, "%s/%s", dir, name);
    if (len >= 0 && len < PATH_MAX) return 0;
    snprintf(err, errlen, "%.200s: the path is longer than %d bytes", name, PATH_MAX - 1);
    return ENG_EINVAL;
}

bool eng_file_exists(const char *dir, const char *name)
{
    char path[PATH_MAX], err[256];
    struct stat st;
    return join_path(path, dir, name, err, sizeof(err)) == 0 && stat(path, &st) == 0;
}

int eng_file_open(const char *dir, const char *name, int *ret_fd, int64_t *ret_bytes, char *err,
                  size_t errlen)
{
    char path[PATH_MAX];
    int rc = join_path(path, dir, name, err, errlen);
    if (rc) return rc;
    /* O_NONBLOCK: a named pipe in place of a file must not hang the start. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = errno == ENOENT ? ENG_ENOENT : ENG_EIO;
        snprintf(err, errlen, "%s: cannot be opened: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        rc = ENG_EINVAL;
        snprintf(err, errlen, "%s: is not a regular file", path);
    }
    if (rc) {
        if (fd >= 0) close(fd);
        return rc;
    }
    *ret_fd = fd;
    *ret_bytes = st.st_size;
    return 0;
}

int eng_file_pread(int fd, void *buf, size_t n, int64_t offset)
{
    uint8_t *to = buf;
    while (n > 0) {
        ssize_t got = pread(fd, to, n, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            if (got == 0) errno = 0;
            return ENG_EIO;
        }
        to += got;
        offset += got;
        n -= (size_t)got;
    }
    return 0;
}

int eng_file_load(const char *dir, const char *name, size_t max_bytes, char **ret_text,
                  size_t *ret_len, char *err, size_t errlen)
{
    int fd = -1;
    int64_t bytes = 0;
    char *text = NULL;
    int rc = eng_file_open(dir, name, &fd, &bytes, err, errlen);
    if (rc) return rc;
    if (bytes < 0 || (uint64_t)bytes > max_bytes) {
        snprintf(err, errlen, "%s: %lld bytes, the limit is %zu", name, (long long)bytes,
                 max_bytes);
        rc = ENG_EINVAL;
        goto out;
    }
    text = malloc((size_t)bytes + 1);
    if (!text) {
        snprintf(err, errlen, "%s: no memory for %lld bytes", name, (long long)bytes);
        rc = ENG_ENOMEM;
        goto out;
    }
    rc = eng_file_pread(fd, text, (size_t)bytes, 0);
    if (rc) {
        snprintf(err, errlen, "%s: cannot be read: %s", name,
                 errno ? strerror(errno) : "it was cut short meanwhile");
        goto out;
    }
    text[bytes] = '\0';
    *ret_text = text;
    *ret_len = (size_t)bytes;
    text = NULL;
out:
    free(text);
    close(fd);
    return rc;
}

/* At least as many as there are values: each but the first follows one of these. */
static size_t count_values(const char *text, size_t len)
{
    size_t n = 1;
    for (size_t i = 0; i < len; i++)
        n += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return n;
}

int eng_json_parse(json_t **ret, const char *text, size_t len, const char *name, char *err,
                   size_t errlen)
{
    if (eng_file_is_lfs_pointer(text, len)) {
        snprintf(err, errlen, "%s: is a git-lfs pointer, not the file itself (git lfs pull)", name);
        return ENG_EINVAL;
    }
    if (count_values(text, len) > MAX_JSON_VALUES) {
        snprintf(err, errlen, "%s: more than %d JSON values", name, MAX_JSON_VALUES);
        return ENG_EINVAL;
    }
    json_error_t error;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        snprintf(err, errlen, "%s: line %d: %s", name, error.line, error.text);
        return json_error_code(&error) == json_error_out_of_memory ? ENG_ENOMEM : ENG_EINVAL;
    }
    if (!json_is_object(root)) {
        snprintf(err, errlen, "%s: is not a JSON object", name);
        json_decref(root);
        return ENG_EINVAL;
    }
    *ret = root;
    return 0;
}
