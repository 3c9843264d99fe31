/* SPDX-License-Identifier: MIT */
/*
 * Files of a model directory as the tokenizer and the chat templates read them: whole, regular files
 * only. A pipe or a device in place of one is an error at once; git-lfs pointers are told as such.
 * Any thread.
 */
#ifndef HEARTH_TOKENIZER_FILE_H
#define HEARTH_TOKENIZER_FILE_H

#include <stddef.h>

/*
 * The file at path, at most max_bytes long. *ret is owned (free) and NUL-terminated. Returns 0, or
 * TOK_ENOENT (there is none), TOK_EIO, TOK_EINVAL or TOK_ENOMEM with a sentence that begins with the
 * path.
 */
int tok_file_load(const char *path, size_t max_bytes, char **ret, size_t *ret_len, char *err,
                  size_t errlen);

#endif
