/* SPDX-License-Identifier: MIT */
/*
 * Finds model directories: a path, a repository name in the Hugging Face cache on disk, the demo
 * models. Reads only; nothing is fetched.
 *
 * Threads: safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct json_t; /* jansson's */

bool srv_hub_is_directory(const char *path);

/* A directory, or a GGUF file. */
bool srv_hub_is_here(const char *spec);

/*
 * spec: a directory, a GGUF file, the name of a model that comes with the program, or
 * org/name[:tag][@revision]. Writes the directory into ret_dir; for a model in GGUF it is the path
 * of the file, of a set the first, which a directory without config.json leads to as well. env as
 * getenv; NULL: getenv. Returns 0, or -1 with a sentence in err.
 */
int srv_hub_resolve(const char *spec, const char *(*env)(const char *name), char *ret_dir,
                    size_t size, char *err, size_t errlen);

/* The same, but spec is org/name[:tag][@revision] even if there is such a directory. */
int srv_hub_resolve_cached(const char *spec, const char *(*env)(const char *name), char *ret_dir,
                           size_t size, char *err, size_t errlen);

/* The directory with the tokenizer.json of --tokenizer: a directory, or org/name[@revision]. */
int srv_hub_find_tokenizer(const char *spec, const char *(*env)(const char *name), char *ret_dir,
                           size_t size, char *err, size_t errlen);

/*
 * Checks that the files of a model exist: config.json, weights. Their contents are checked when
 * they are read. Returns 0, or -1 with a sentence in err.
 */
int srv_hub_check(const char *dir, char *err, size_t errlen);

/* Returns true if a directory holds an adapter and no model; err then says so. */
bool srv_hub_is_adapter(const char *dir, char *err, size_t errlen);

/* If the directory holds an adapter's settings: true, and the model that they are for. */
bool srv_hub_has_adapter(const char *dir, char *ret_base, size_t size);

/*
 * Whether spec is a model that comes with the program (demo, demo-embed, demo-rerank), and not a
 * directory here.
 */
bool srv_hub_is_carried(const char *spec);

/*
 * The directory of such a model, installed or in the source tree. Returns 0, or -1 with a sentence
 * in err.
 */
int srv_hub_find_carried(const char *name, char *ret_dir, size_t size, char *err, size_t errlen);

/*
 * The name a model is shown under: org/name[:tag] as given, or the last part of a path, without the
 * ending of a GGUF file (in a cache snapshot: the repository's name). Writes into buf and returns
 * it.
 */
const char *srv_hub_model_name(const char *spec, char *buf, size_t size);

/*
 * Reads a JSON file of a model, which strangers wrote: an object or array of at most
 * SRV_CONFIG_FILE_MAX_BYTES; of members with the same name the last one counts. *ret: owned
 * (json_decref); NULL if the file is not there. Returns 0, or -1 with a sentence in err that begins
 * with `name`.
 */
int srv_json_file(struct json_t **ret, const char *dir, const char *name, char *err, size_t errlen);
