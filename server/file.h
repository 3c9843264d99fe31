/* SPDX-License-Identifier: MIT */
/*
 * Small files of the operator: options, keys, certificates. Only regular files are read: a pipe, a
 * device or a directory in place of one is an error at once and never blocks. Any thread.
 */
#ifndef HEARTH_SERVER_FILE_H
#define HEARTH_SERVER_FILE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The whole file, NUL-terminated, at most max_bytes long; ret_len may be NULL. Returns owned (free),
 * or NULL with a sentence in err that begins with the path.
 */
char *srv_file_load(const char *path, size_t max_bytes, size_t *ret_len, char *err, size_t errlen);

/*
 * Returns true if users besides owner and group can read or write the file; its permission bits
 * are then in *ret_mode. False also for a file that is not there.
 */
bool srv_file_is_exposed(const char *path, unsigned *ret_mode);

#endif
