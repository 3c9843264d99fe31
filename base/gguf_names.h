/* SPDX-License-Identifier: MIT */
/*
 * Names of GGUF files: which are models, sets of splits, tags, the models of a folder. Only names
 * are looked at. Threads: safe.
 *
 * A model is one file, or a set of splits NAME-00001-of-0000N.gguf, which is named by its first.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { GGUF_TAG_SIZE = 64 }; /* with the NUL */

/* Ends in .gguf, case ignored. */
bool gguf_is_name(const char *path);

/* Such a name, and the path leads to a file. */
bool gguf_is_path(const char *path);

/* Such a name, and not of a projector, an importance matrix or a drafter's part. */
bool gguf_is_model(const char *path);

/* For NAME-00002-of-00003.gguf: 2, and *ret_count 3; for others 0, and 1. */
int gguf_split(const char *path, int *ret_count);

/* Writes the name of split `number` of the same set; of a path that is of none, the path itself.
 * Returns 0, or -1 if it does not fit. */
int gguf_split_name(const char *path, int number, char *buf, size_t size);

/* True if the path has the tag as a word between '.', '-' and '/', case ignored. */
bool gguf_tag_fits(const char *path, const char *tag);

/* The tag that names the file's types, "Q4_K_M": its last word that looks like one, else its name
 * without ending and number. */
void gguf_tag_of(const char *path, char ret[GGUF_TAG_SIZE]);

/*
 * Calls fn for each model in the folder, in order of names: of a set, its first file that is
 * there. Stops if fn returns false. 0, or -1 if the folder cannot be read.
 */
int gguf_folder_visit(const char *dir, bool (*fn)(void *ctx, const char *name), void *ctx);

/*
 * The folder whose tokenizer.json and other files belong to a GGUF file: the root of the snapshot
 * it is in, or the folder that it is the only model of. Returns buf, or NULL.
 */
const char *gguf_folder_of(const char *path, char *buf, size_t size);
