/* SPDX-License-Identifier: MIT */
/*
 * Files that are read: opened, checked, loaded whole or in parts; and files that are written. Only
 * regular files are read; a pipe, a device or a directory in place of one is an error at once and
 * never blocks. Sizes are checked before anything is allocated.
 *
 * A file is DIR/NAME; dir NULL: NAME is the whole path. Any thread. Errors are a negative enum
 * file_error with a sentence that begins with the path; err is written only with an error.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers are those of enum eng_error and enum tok_error, so that a caller may pass them on. */
enum file_error {
    FILE_EINVAL = -1, /* not a regular file, larger than allowed, a git-lfs pointer */
    FILE_ENOMEM = -2,
    FILE_EIO = -3,    /* cannot be opened or read */
    FILE_ENOENT = -4, /* does not exist */
};

/*
 * Why an operation on a path failed, by errno, which it keeps. For EACCES it names the part of the
 * path that the process's user may not pass or read, with its mode and owner. Returns buf.
 */
const char *file_reason(const char *path, char *buf, size_t size);

/* Opens a file for reading. *ret_fd is owned (close). */
int file_open(const char *dir, const char *name, int *ret_fd, int64_t *ret_bytes, char *err,
              size_t errlen);

/* Writes all n bytes where the file is, or FILE_EIO with errno. */
int file_write_all(int fd, const void *data, size_t n);

/*
 * The file `name` of a directory has these bytes from now on, or is as it was, whenever the machine
 * stops. They are written under the name `beside` first. 0, or FILE_EIO with errno.
 */
int file_replace(int dir_fd, const char *name, const char *beside, const void *data, size_t n);

/* Closes *fd unless it is -1, and makes it -1; errno stays. */
void file_close(int *fd);

/*
 * The whole file, at most max_bytes long; one that holds a git-lfs pointer is an error. *ret is
 * owned (free) and NUL-terminated; ret_len may be NULL.
 */
int file_load(const char *dir, const char *name, size_t max_bytes, char **ret, size_t *ret_len,
              char *err, size_t errlen);

/* The same for a file that need not be there: 0 with *ret NULL where it is not, and no sentence. */
int file_load_optional(const char *dir, const char *name, size_t max_bytes, char **ret,
                       size_t *ret_len, char *err, size_t errlen);

/* All n bytes at offset, or FILE_EIO; errno is 0 if the file ended before them. */
int file_pread(int fd, void *buf, size_t n, int64_t offset);

/* The reason for that, from errno. */
const char *file_read_reason(void);

bool file_exists(const char *dir, const char *name);

/* Returns true if these first bytes of a file are those of a git-lfs pointer. */
bool file_is_lfs_pointer(const void *data, size_t n);

/*
 * Returns true if users besides owner and group can read or write the file; its permission bits
 * are then in *ret_mode. False also for a file that does not exist.
 */
bool file_is_exposed(const char *path, unsigned *ret_mode);
