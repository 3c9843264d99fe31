/* SPDX-License-Identifier: MIT */
/* Looking up model directories on disk. No state; main thread, before anything else runs. */
#include "server/models/lookup.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/gguf_names.h"
#include "base/json_tree.h"
#include "server/config/config.h"
#include "server/hub/cache.h"
#include "server/hub/settings.h"

#ifndef HEARTH_DATADIR
#define HEARTH_DATADIR "/usr/share"
#endif

#define MODEL_IS                                                                                   \
    "a model is a directory with config.json, tokenizer.json and *.safetensors, or a GGUF file"

__attribute__((format(printf, 3, 4))) static int join(char *buf, size_t size, const char *format,
                                                      ...)
{
    int len = FORMAT_REST(buf, size, format);
    return len >= 0 && (size_t)len < size ? 0 : -1;
}

bool srv_hub_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The path in a snapshot that the name means. */
enum found { FOUND_DIRECTORY, FOUND_FILE, LACKS_MODULES, LACKS_FILES, NO_SUCH_FILE };

/*
 * The model in GGUF that the name means, or the snapshot itself. It may have files of another model
 * of its repository only, or be of a version that did not fetch modules.json, which would be served
 * as another model than it is.
 */
static enum found find_file(const struct hub_cache *cache, const struct hub_name *name,
                            const char *commit, char *ret_dir, size_t size, char *err)
{
    AUTO(hub_listing_finish) struct hub_listing l = {0};
    enum found found = FOUND_DIRECTORY;
    size_t len = strlen(ret_dir);
    bool known = hub_cache_read_tree(cache, commit, false, &l) == 0;
    if (!known) hub_cache_read_tree(cache, commit, true, &l);
    const struct hub_file *modules = hub_listing_find(&l, "modules.json");
    const struct hub_file *config = hub_listing_find(&l, HUB_CONFIG_NAME);
    int rc = hub_choose(&l, name, err);
    if (l.gguf)
        found = join(ret_dir + len, size - len, "/%s", l.gguf->path) ? LACKS_FILES : FOUND_FILE;
    else if (rc && l.in_gguf)
        found = NO_SUCH_FILE;
    else if (known && !name->text_only && config && !hub_cache_has(cache, commit, config))
        found = LACKS_FILES;
    else if (known && modules && !hub_cache_has(cache, commit, modules))
        found = LACKS_MODULES;
    for (size_t i = 0; found == FOUND_FILE && i < l.n; i++)
        if (l.files[i].wanted && gguf_is_name(l.files[i].path) &&
            !hub_cache_has(cache, commit, &l.files[i]))
            found = LACKS_FILES;
    return found;
}

static int find_snapshot(const char *spec, const struct hub_name *name, const char *root,
                         char *ret_dir, size_t size, char *err, size_t errlen)
{
    char commit[HUB_COMMIT_LEN + 1] = "";
    struct hub_cache cache;
    char reason[HUB_ERR_SIZE];
    if (hub_cache_open(&cache, root, name->repo, reason))
        return fail_with(-1, err, errlen, "%s", reason);
    bool known = cache.repo_fd >= 0;
    int rc = known ? hub_cache_find_commit(&cache, name, commit) : -1;
    rc = rc || join(ret_dir, size, "%s/%s/snapshots/%s", root, cache.folder, commit) ||
         !srv_hub_is_directory(ret_dir);
    enum found found = rc ? LACKS_FILES : find_file(&cache, name, commit, ret_dir, size, reason);
    hub_cache_close(&cache);
    if (found <= FOUND_FILE) return 0;
    if (found == NO_SUCH_FILE)
        snprintf(err, errlen, "model '%.200s': %s", spec, reason);
    else if (found == LACKS_MODULES)
        snprintf(err, errlen,
                 "model '%.200s': its snapshot lacks modules.json and the files that it names; "
                 "`hearth pull %.200s` completes it, or add --pull",
                 spec, spec);
    else if (known)
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

static int resolve_cached(const char *spec, bool text_only, const char *(*env)(const char *name),
                          char *ret_dir, size_t size, char *err, size_t errlen)
{
    char reason[HUB_ERR_SIZE], root[PATH_MAX];
    struct hub_name name;
    if (hub_name_parse(&name, spec, reason)) {
        if (gguf_is_name(spec))
            snprintf(err, errlen, "model '%.200s': there is no such file", spec);
        else
            snprintf(err, errlen, "model '%.200s': neither a directory nor an org/name repository",
                     spec);
        return -1;
    }
    name.text_only = text_only;
    if (hub_cache_root(env, root, sizeof(root), reason) == 0)
        return find_snapshot(spec, &name, root, ret_dir, size, err, errlen);
    snprintf(
        err, errlen,
        "model '%.200s' is not a directory, and no cache is known to look in: set --cache-dir, "
        "HF_HUB_CACHE or HOME",
        spec);
    return -1;
}

int srv_hub_resolve_cached(const char *spec, const char *(*env)(const char *name), char *ret_dir,
                           size_t size, char *err, size_t errlen)
{
    return resolve_cached(spec, false, env, ret_dir, size, err, errlen);
}

int srv_hub_find_tokenizer(const char *spec, const char *(*env)(const char *name), char *ret_dir,
                           size_t size, char *err, size_t errlen)
{
    if (!srv_hub_is_directory(spec) && resolve_cached(spec, true, env, ret_dir, size, err, errlen))
        return -1;
    if (srv_hub_is_directory(spec) && join(ret_dir, size, "%s", spec)) *ret_dir = '\0';
    if (file_exists(ret_dir, "tokenizer.json")) return 0;
    return fail_with(-1, err, errlen, "%.300s has no tokenizer.json", spec);
}

bool srv_hub_is_here(const char *spec)
{
    return srv_hub_is_directory(spec) || gguf_is_path(spec);
}

bool srv_hub_has_adapter(const char *dir, char *ret_base, size_t size)
{
    static const char name[] = "adapter_config.json";
    json_auto_t *root = NULL;
    char err[300];
    if (!file_exists(dir, name)) return false;
    srv_json_file(&root, dir, name, err, sizeof(err));
    const char *base = json_string_value(json_object_get(root, "base_model_name_or_path"));
    snprintf(ret_base, size, "%s", base ? base : "BASE");
    return true;
}

/* Writes what to do with a directory that holds an adapter and no model. */
static bool has_only_adapter(const char *dir, char *err, size_t errlen)
{
    char base[200];
    if (!srv_hub_has_adapter(dir, base, sizeof(base))) return false;
    snprintf(err, errlen,
             "%.300s is an adapter; serve it with its model: --model %.150s --lora NAME=%.300s",
             dir, base, dir);
    return true;
}

bool srv_hub_is_adapter(const char *path, char *err, size_t errlen)
{
    return !file_exists(path, "config.json") && has_only_adapter(path, err, errlen);
}

/* errno is EACCES: which part of the path to a model this user may not pass. Returns -1. */
static int refuse_denied(const char *dir, char *err, size_t errlen)
{
    char path[PATH_MAX], reason[500];
    join(path, sizeof(path), "%s/config.json", dir);
    return fail_with(-1, err, errlen, "model '%.300s': %s; chmod or chgrp changes that", dir,
                     file_reason(path, reason, sizeof(reason)));
}

int srv_hub_check(const char *dir, char *err, size_t errlen)
{
    static const char *const weights[] = {
        "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
        "pytorch_model.bin.index.json", /* the last two are refused with a reason when read */
    };
    if (gguf_is_path(dir)) return 0;
    if (srv_hub_is_adapter(dir, err, errlen)) return -1;
    if (!file_exists(dir, "config.json")) {
        if (errno == EACCES) return refuse_denied(dir, err, errlen);
        return fail_with(-1, err, errlen, "%.300s has no config.json; " MODEL_IS, dir);
    }
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++)
        if (file_exists(dir, weights[i])) return 0;
    if (has_only_adapter(dir, err, errlen)) return -1;
    return fail_with(-1, err, errlen, "%.300s has neither %s nor %s; " MODEL_IS, dir, weights[0],
                     weights[1]);
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
        if (!strcmp(spec, names[i])) return !srv_hub_is_directory(spec);
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
    return fail_with(-1, err, errlen, "the model '%s' is not installed; --model names another",
                     name);
}

/* The models in GGUF of a folder. */
struct ggufs {
    char names[400], first[NAME_MAX + 1];
    int n;
};

static bool note_gguf(void *ctx, const char *name)
{
    struct ggufs *g = ctx;
    size_t len = strlen(g->names);
    if (g->n++ == 0) snprintf(g->first, sizeof(g->first), "%s", name);
    snprintf(g->names + len, sizeof(g->names) - len, "%s%s", len ? ", " : "", name);
    return true;
}

/* A directory without config.json that holds one model in GGUF is that file. */
static int enter_directory(char *dir, size_t size, char *err, size_t errlen)
{
    struct ggufs g = {.n = 0};
    size_t len = strlen(dir);
    if (file_exists(dir, "config.json") || gguf_folder_visit(dir, note_gguf, &g) || !g.n) return 0;
    if (g.n == 1 && !join(dir + len, size - len, "%s%s", dir[len - 1] == '/' ? "" : "/", g.first))
        return 0;
    return fail_with(-1, err, errlen,
                     "model '%.200s' holds several models in GGUF: %s; name one of the files", dir,
                     g.names);
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
    bool is_file = gguf_is_path(spec);
    if (!is_file && !S_ISDIR(st.st_mode))
        return fail_with(-1, err, errlen, "model '%.200s' is a file; " MODEL_IS, spec);
    if (is_file ? gguf_split_name(spec, 1, ret_dir, size) : join(ret_dir, size, "%s", spec))
        return fail_with(-1, err, errlen, "model '%.200s...': the path is too long", spec);
    return is_file ? 0 : enter_directory(ret_dir, size, err, errlen);
}

/* ROOT/models--ORG--NAME/snapshots/...: the repository's name, with the tag of a file. */
static bool name_of_snapshot(const char *path, bool is_file, char *buf, size_t size)
{
    const char *models = strstr(path, "/models--"), *snapshots = strstr(path, "/snapshots/");
    char folder[HUB_FOLDER_SIZE], repo[HUB_REPO_SIZE], tag[GGUF_TAG_SIZE] = "";
    if (!models || !snapshots || models > snapshots) return false;
    snprintf(folder, sizeof(folder), "%.*s", (int)(snapshots - models - 1), models + 1);
    if (hub_folder_parse(folder, repo)) return false;
    if (is_file) gguf_tag_of(path, tag);
    snprintf(buf, size, "%s%s%s", repo, is_file ? ":" : "", tag);
    return true;
}

const char *srv_hub_model_name(const char *spec, char *buf, size_t size)
{
    static const char ending[] = ".gguf", split[] = "-00001-of-00003";
    size_t len = strlen(spec);
    int count;
    while (len > 1 && spec[len - 1] == '/')
        len--;
    bool is_file = gguf_is_path(spec);
    const char *start = spec;
    if (!is_file && !srv_hub_is_directory(spec)) {
        len = strcspn(spec, "@");
    } else if (name_of_snapshot(spec, is_file, buf, size)) {
        return buf;
    } else {
        for (size_t i = 0; i + 1 < len; i++)
            if (spec[i] == '/') start = spec + i + 1;
        if (is_file) len -= sizeof(ending) - 1 + (gguf_split(spec, &count) ? sizeof(split) - 1 : 0);
    }
    snprintf(buf, size, "%.*s", (int)(spec + len - start), start);
    return buf;
}

int srv_json_file(json_t **ret, const char *dir, const char *name, char *err, size_t errlen)
{
    AUTO_FREE char *text = NULL;
    size_t len;
    *ret = NULL;
    if (file_load_optional(dir, name, SRV_CONFIG_FILE_MAX_BYTES, &text, &len, err, errlen))
        return -1;
    return text && jt_read_file(ret, name, text, len, JT_REPEATS, err, errlen) ? -1 : 0;
}
