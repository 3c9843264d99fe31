/* SPDX-License-Identifier: MIT */
/* Looking up model directories on disk. No state; main thread, before anything else runs. */
#include "server/models/lookup.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "server/hub/cache.h"
#include "server/hub/hub_error.h"
#include "server/hub/settings.h"
#include "server/models/json_file.h"

#ifndef HEARTH_DATADIR
#define HEARTH_DATADIR "/usr/share"
#endif

#define MODEL_IS "a model is a directory with config.json, tokenizer.json and *.safetensors"

__attribute__((format(printf, 3, 4))) static int join(char *buf, size_t size, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(buf, size, format, args);
    va_end(args);
    return len >= 0 && (size_t)len < size ? 0 : -1;
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The commit of a revision that the cache has; without references the only snapshot there is. */
static int find_commit(const struct hub_cache *cache, const struct hub_name *name,
                       char commit[HUB_COMMIT_LEN + 1])
{
    if (name->is_commit) {
        memcpy(commit, name->revision, HUB_COMMIT_LEN + 1);
        return 0;
    }
    if (hub_cache_read_ref(cache, name->revision, commit) == 0) return 0;
    return name->has_revision ? -1 : hub_snapshot_only(cache, commit);
}

/*
 * Returns true if the repository has modules.json and the snapshot does not: a version that did not
 * fetch it made the snapshot, which would be served as another model than it is.
 */
static bool lacks_modules(const struct hub_cache *cache, const char *commit)
{
    struct hub_listing listing = {0};
    char reason[HUB_ERR_SIZE];
    size_t len;
    char *text = hub_cache_read_tree(cache, commit, &len);
    bool known = text && !hub_listing_add_tree(&listing, text, len, reason) &&
                 !hub_listing_sort(&listing, reason);
    const struct hub_file *f = known ? hub_listing_find(&listing, "modules.json") : NULL;
    bool lacks = f && !hub_cache_has(cache, commit, f);
    hub_listing_finish(&listing);
    free(text);
    return lacks;
}

static int find_snapshot(const char *spec, const struct hub_name *name, const char *root,
                         char *ret_dir, size_t size, char *err, size_t errlen)
{
    char commit[HUB_COMMIT_LEN + 1] = "";
    struct hub_cache cache;
    char reason[HUB_ERR_SIZE];
    if (hub_cache_open(&cache, root, name->repo, reason)) {
        snprintf(err, errlen, "%s", reason);
        return -1;
    }
    bool known = cache.repo_fd >= 0;
    int rc = known ? find_commit(&cache, name, commit) : -1;
    bool lacks = !rc && lacks_modules(&cache, commit);
    hub_cache_close(&cache);
    if (lacks) {
        snprintf(err, errlen,
                 "model '%.200s': its snapshot lacks modules.json and the files that it names; "
                 "`hearth pull %.200s` completes it, or add --pull",
                 spec, spec);
        return -1;
    }
    if (!rc && !join(ret_dir, size, "%s/%s/snapshots/%s", root, cache.folder, commit) &&
        is_directory(ret_dir))
        return 0;
    if (known)
        snprintf(err, errlen,
                 "model '%.200s': the cache has no complete snapshot of revision '%.100s'; "
                 "`hearth pull %.200s` fetches it, or add --pull",
                 spec, name->revision, spec);
    else
        snprintf(err, errlen,
                 "model '%.200s' is neither a directory nor in the Hugging Face cache "
                 "(%.300s/%.200s); `hearth pull %.200s` fetches it, or add --pull",
                 spec, root, cache.folder, spec);
    return -1;
}

int srv_hub_resolve_cached(const char *spec, const char *(*env)(const char *name), char *ret_dir,
                           size_t size, char *err, size_t errlen)
{
    char reason[HUB_ERR_SIZE], root[PATH_MAX];
    struct hub_name name;
    if (hub_name_parse(&name, spec, reason)) {
        if (strchr(spec, ':'))
            snprintf(err, errlen, "model %s", reason);
        else
            snprintf(err, errlen, "model '%.200s': neither a directory nor an org/name repository",
                     spec);
        return -1;
    }
    if (hub_cache_root(env, root, sizeof(root)) == 0)
        return find_snapshot(spec, &name, root, ret_dir, size, err, errlen);
    snprintf(
        err, errlen,
        "model '%.200s' is not a directory, and no cache is known to look in: set --cache-dir, "
        "HF_HUB_CACHE or HOME",
        spec);
    return -1;
}

bool srv_hub_is_directory(const char *spec)
{
    return is_directory(spec);
}

static bool is_gguf(const char *name)
{
    static const char suffix[] = ".gguf";
    size_t len = strlen(name);
    return len > sizeof(suffix) && strcasecmp(name + len - (sizeof(suffix) - 1), suffix) == 0;
}

bool srv_hub_has_adapter(const char *dir, char *ret_base, size_t size)
{
    static const char name[] = "adapter_config.json";
    json_t *root = NULL;
    char err[300];
    if (!file_exists(dir, name)) return false;
    if (srv_json_file(&root, dir, name, err, sizeof(err))) root = NULL;
    const char *base = json_string_value(json_object_get(root, "base_model_name_or_path"));
    snprintf(ret_base, size, "%s", base ? base : "another model");
    json_decref(root);
    return true;
}

/* Writes what to do with a directory that holds an adapter and no model. */
static bool has_only_adapter(const char *dir, char *err, size_t errlen)
{
    char base[200];
    if (!srv_hub_has_adapter(dir, base, sizeof(base))) return false;
    snprintf(err, errlen,
             "%.300s is an adapter of %.150s, which is not supported; merge it into that model "
             "(peft: merge_and_unload) and serve the result",
             dir, base);
    return true;
}

bool srv_hub_is_other(const char *path, char *err, size_t errlen)
{
    bool has_config = file_exists(path, "config.json"), found = false;
    if (!has_config && has_only_adapter(path, err, errlen)) return true;
    DIR *dir = has_config ? NULL : opendir(path);
    if (!dir) return false;
    for (struct dirent *entry; !found && (entry = readdir(dir));)
        found = is_gguf(entry->d_name);
    closedir(dir);
    if (found)
        snprintf(err, errlen, "%.300s has only GGUF files, which are not supported; " MODEL_IS,
                 path);
    return found;
}

/* errno is EACCES: which part of the path to a model this user may not pass. Returns -1. */
static int refuse_denied(const char *dir, char *err, size_t errlen)
{
    char path[PATH_MAX], reason[500];
    join(path, sizeof(path), "%s/config.json", dir);
    snprintf(err, errlen, "model '%.300s': %s; chmod or chgrp changes that", dir,
             file_reason(path, reason, sizeof(reason)));
    return -1;
}

int srv_hub_check(const char *dir, char *err, size_t errlen)
{
    static const char *const weights[] = {
        "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
        "pytorch_model.bin.index.json", /* the last two are refused with a reason when read */
    };
    if (srv_hub_is_other(dir, err, errlen)) return -1;
    if (!file_exists(dir, "config.json")) {
        if (errno == EACCES) return refuse_denied(dir, err, errlen);
        snprintf(err, errlen, "%.300s has no config.json; " MODEL_IS, dir);
        return -1;
    }
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++)
        if (file_exists(dir, weights[i])) return 0;
    if (has_only_adapter(dir, err, errlen)) return -1;
    snprintf(err, errlen, "%.300s has neither %s nor %s; " MODEL_IS, dir, weights[0], weights[1]);
    return -1;
}

/*
 * The source tree's root, which the build writes into a file next to the executable; "" if there is
 * none.
 */
static void source_root(const char *exe_dir, char *buf, size_t size)
{
    char err[64], *text = NULL;
    buf[0] = '\0';
    if (file_load(exe_dir, "server/source-root", size - 1, &text, NULL, err, sizeof(err))) return;
    snprintf(buf, size, "%.*s", (int)strcspn(text, "\n"), text);
    free(text);
}

bool srv_hub_is_carried(const char *spec)
{
    static const char *const names[] = {"demo", "demo-embed", "demo-rerank"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(spec, names[i])) return !is_directory(spec);
    return false;
}

int srv_hub_find_carried(const char *name, char *ret_dir, size_t size, char *err, size_t errlen)
{
    char exe[PATH_MAX], root[PATH_MAX], config[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash) *slash = '\0';
    source_root(exe, root, sizeof(root));
    const struct {
        const char *base, *below;
    } places[] = {
        {root, "/deploy"},
        {exe, "/../share/hearth"},
        {exe, "/../deploy"},
        {HEARTH_DATADIR, "/hearth"},
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (!*places[i].base ||
            join(ret_dir, size, "%s%s/%s", places[i].base, places[i].below, name))
            continue;
        if (!join(config, sizeof(config), "%s/config.json", ret_dir) && access(config, R_OK) == 0)
            return 0;
    }
    snprintf(err, errlen, "the model '%s' is not installed; --model names another", name);
    return -1;
}

int srv_hub_resolve(const char *spec, const char *(*env)(const char *name), char *ret_dir,
                    size_t size, char *err, size_t errlen)
{
    struct stat st;
    if (stat(spec, &st) && errno == EACCES && strchr("/.", spec[0]))
        return refuse_denied(spec, err, errlen);
    if (stat(spec, &st))
        return srv_hub_is_carried(spec)
                   ? srv_hub_find_carried(spec, ret_dir, size, err, errlen)
                   : srv_hub_resolve_cached(spec, env, ret_dir, size, err, errlen);
    if (!S_ISDIR(st.st_mode) && !is_gguf(spec)) {
        snprintf(err, errlen, "model '%.200s' is a file; " MODEL_IS, spec);
        return -1;
    }
    if (join(ret_dir, size, "%s", spec)) {
        snprintf(err, errlen, "model '%.200s...': the path is too long", spec);
        return -1;
    }
    return 0;
}

const char *srv_hub_model_name(const char *spec, char *buf, size_t size)
{
    size_t len = strlen(spec);
    while (len > 1 && spec[len - 1] == '/')
        len--;
    const char *snapshots = strstr(spec, "/snapshots/");
    const char *models = strstr(spec, "/models--");
    bool is_path = is_directory(spec);
    if (is_path && models && snapshots && models < snapshots) {
        const char *name = models + strlen("/models--");
        const char *dashes = strstr(name, "--");
        if (dashes && dashes < snapshots) {
            snprintf(buf, size, "%.*s/%.*s", (int)(dashes - name), name,
                     (int)(snapshots - dashes - 2), dashes + 2);
            return buf;
        }
    }
    const char *start = spec;
    if (is_path) {
        for (size_t i = 0; i + 1 < len; i++) {
            if (spec[i] == '/') start = spec + i + 1;
        }
    } else {
        len = strcspn(spec, "@");
    }
    snprintf(buf, size, "%.*s", (int)(spec + len - start), start);
    return buf;
}
