/* SPDX-License-Identifier: MIT */
/*
 * The keys of a GGUF file that are about text, as the files that a model directory has: a
 * tokenizer.json and a tokenizer_config.json.
 *
 * A tokenizer is built only where the file says all of it: BPE over bytes with a known rule for
 * splitting text, and SentencePiece's BPE without a blank in front, by scores or, of Gemma 4, by
 * merges. Others are refused by name.
 *
 * Threads: safe; nothing is kept. Errors: as in tokenizer.h, each sentence begins with the file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "tokenizer/tok_types.h"

struct tok;

/* Whether the path is of a file, not of a directory. */
bool tok_is_file(const char *path);

/*
 * Opens the tokenizer of the file into a zeroed t: that of dir's tokenizer.json, unless dir is
 * NULL, else of the key tokenizer.huggingface.json, else one that is built. The first two must have
 * the file's tokens.
 */
int tok_gguf_load(struct tok *t, const char *file, const char *dir, char *err, size_t errlen);

/*
 * The text of a tokenizer_config.json with the file's chat templates and the tokens of its ids.
 * *ret is owned (free).
 */
int tok_gguf_config(char **ret, size_t *ret_len, const char *file, char *err, size_t errlen);
