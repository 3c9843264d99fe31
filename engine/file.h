/* SPDX-License-Identifier: MIT */
/*
 * Files of a model directory: opened, read whole or in parts, parsed as JSON. Nothing is trusted:
 * sizes are checked before anything is allocated, signals and short reads are handled, and files
 * that are not what they should be (git-lfs pointers, directories) are named as what they are.
 *
 * Pure apart from the file system; any thread. Errors are enum eng_error with a sentence that
 * begins with the file's name.
 */
#ifndef HEARTH_ENGINE_FILE_H
#define HEARTH_ENGINE_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Opens DIR/NAME for reading; a regular file. *ret_fd is owned: close. */
int eng_file_open(const char *dir, const char *name, int *ret_fd, int64_t *ret_bytes, char *err,
                  size_t errlen);

bool eng_file_exists(const char *dir, const char *name);

/* All n bytes at offset, or ENG_EIO; errno is 0 when the file ended before them. */
int eng_file_pread(int fd, void *buf, size_t n, int64_t offset);

/* The whole file, at most max_bytes long. *ret_text is owned (free) and NUL-terminated. */
int eng_file_load(const char *dir, const char *name, size_t max_bytes, char **ret_text,
                  size_t *ret_len, char *err, size_t errlen);

/* Whether these first bytes of a file are those of a git-lfs pointer. */
bool eng_file_is_lfs_pointer(const void *data, size_t n);

/*
 * Parses an object of bounded size, without duplicate keys. `name` is for the error sentence.
 * *ret is owned: json_decref.
 */
int eng_json_parse(json_t **ret, const char *text, size_t len, const char *name, char *err,
                   size_t errlen);

#endif
