/* SPDX-License-Identifier: MIT */
/* Looking up model directories on disk. No state; main thread, before anything else runs. */
#include "server/model_lookup.h"

#include <ctype.h>
#include <dirent.h>
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

#ifndef HEARTH_DATADIR
#define HEARTH_DATADIR "/usr/share"
#endif

enum { COMMIT_LEN = 40 };

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

/* Names become parts of a path: letters, digits and . _ - only, no part that begins with a dot. */
static bool is_safe(const char *text, size_t len, const char *extra)
{
    if (len == 0 || text[0] == '.' || text[0] == '/' || text[len - 1] == '/') return false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (!isalnum((unsigned char)c) && !strchr("._-", c) && !strchr(extra, c)) return false;
        if (c == '/' && (text[i + 1] == '.' || text[i + 1] == '/')) return false;
    }
    return true;
}

/* "org/name" -> "ROOT/models--org--name". */
static int repository_dir(const char *root, const char *repo, size_t len, char *buf, size_t size)
{
    const char *slash = memchr(repo, '/', len);
    if (!slash) return join(buf, size, "%s/models--%.*s", root, (int)len, repo);
    return join(buf, size, "%s/models--%.*s--%.*s", root, (int)(slash - repo), repo,
                (int)(repo + len - slash - 1), slash + 1);
}

static int cache_root(const char *(*env)(const char *name), char *buf, size_t size)
{
    static const struct {
        const char *variable, *below;
    } places[] = {
        {"HF_HUB_CACHE", ""},
        {"HUGGINGFACE_HUB_CACHE", ""},
        {"HF_HOME", "/hub"},
        {"XDG_CACHE_HOME", "/huggingface/hub"},
        {"HOME", "/.cache/huggingface/hub"},
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const char *value = env(places[i].variable);
        if (value && *value) return join(buf, size, "%s%s", value, places[i].below);
    }
    return -1;
}

static bool is_commit(const char *text)
{
    return strspn(text, "0123456789abcdef") == COMMIT_LEN && strlen(text) == COMMIT_LEN;
}

/* The commit a reference names. */
static int read_reference(const char *repo_dir, const char *revision, char commit[COMMIT_LEN + 1])
{
    char path[PATH_MAX], err[64], *text;
    if (join(path, sizeof(path), "refs/%s", revision)) return -1;
    if (file_load(repo_dir, path, COMMIT_LEN + 8, &text, NULL, err, sizeof(err))) return -1;
    text[strcspn(text, "\r\n ")] = '\0';
    bool found = is_commit(text);
    if (found) memcpy(commit, text, COMMIT_LEN + 1);
    free(text);
    return found ? 0 : -1;
}

/* The only snapshot: caches copied by hand have no refs. */
static int only_snapshot(const char *repo_dir, char commit[COMMIT_LEN + 1])
{
    char path[PATH_MAX];
    if (join(path, sizeof(path), "%s/snapshots", repo_dir)) return -1;
    DIR *dir = opendir(path);
    if (!dir) return -1;
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!is_commit(entry->d_name)) continue;
        memcpy(commit, entry->d_name, COMMIT_LEN + 1);
        n++;
    }
    closedir(dir);
    return n == 1 ? 0 : -1;
}

static int resolve_in_cache(const char *spec, const char *(*env)(const char *name), char *ret_dir,
                            size_t size, char *err, size_t errlen)
{
    size_t len = strcspn(spec, "@");
    const char *revision = spec[len] ? spec + len + 1 : "main";
    char root[PATH_MAX], repo_dir[PATH_MAX], commit[COMMIT_LEN + 1], dir[PATH_MAX];
    const char *slash = memchr(spec, '/', len);
    bool one_slash = !slash || !memchr(slash + 1, '/', (size_t)(spec + len - slash - 1));
    if (!one_slash || !is_safe(spec, len, "/") || !is_safe(revision, strlen(revision), "/")) {
        snprintf(err, errlen, "model '%.200s': neither a directory nor an org/name repository",
                 spec);
        return -1;
    }
    if (cache_root(env, root, sizeof(root)) ||
        repository_dir(root, spec, len, repo_dir, sizeof(repo_dir))) {
        snprintf(err, errlen,
                 "model '%.200s' is not a directory, and HOME is not set to find the cache", spec);
        return -1;
    }
    if (!is_directory(repo_dir)) {
        snprintf(err, errlen,
                 "model '%.200s' is neither a directory nor in the Hugging Face cache (%.300s); to "
                 "fetch it: hf download %.*s",
                 spec, repo_dir, (int)len, spec);
        return -1;
    }
    if (is_commit(revision))
        memcpy(commit, revision, COMMIT_LEN + 1);
    else if (read_reference(repo_dir, revision, commit) &&
             (spec[len] || only_snapshot(repo_dir, commit))) {
        snprintf(err, errlen, "model '%.200s': the cache has no revision '%.100s'", spec, revision);
        return -1;
    }
    if (join(dir, sizeof(dir), "%s/snapshots/%s", repo_dir, commit) || !is_directory(dir) ||
        join(ret_dir, size, "%s", dir)) {
        snprintf(err, errlen, "model '%.200s': the cache lacks snapshot %.40s", spec, commit);
        return -1;
    }
    return 0;
}

static bool has_file(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    return join(path, sizeof(path), "%s/%s", dir, name) == 0 && stat(path, &st) == 0;
}

static bool is_gguf(const char *name)
{
    static const char suffix[] = ".gguf";
    size_t len = strlen(name);
    return len > sizeof(suffix) && strcasecmp(name + len - (sizeof(suffix) - 1), suffix) == 0;
}

bool srv_hub_has_only_gguf(const char *path, char *err, size_t errlen)
{
    DIR *dir = has_file(path, "config.json") ? NULL : opendir(path);
    bool found = false;
    if (!dir) return false;
    for (struct dirent *entry; !found && (entry = readdir(dir));)
        found = is_gguf(entry->d_name);
    closedir(dir);
    if (found)
        snprintf(err, errlen, "%.300s has only GGUF files, which are not supported; " MODEL_IS,
                 path);
    return found;
}

int srv_hub_check(const char *dir, char *err, size_t errlen)
{
    static const char *const weights[] = {
        "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
        "pytorch_model.bin.index.json", /* the last two are refused with a reason when read */
    };
    if (srv_hub_has_only_gguf(dir, err, errlen)) return -1;
    if (!has_file(dir, "config.json")) {
        snprintf(err, errlen, "%.300s has no config.json; " MODEL_IS, dir);
        return -1;
    }
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++)
        if (has_file(dir, weights[i])) return 0;
    snprintf(err, errlen, "%.300s has neither %s nor %s; " MODEL_IS, dir, weights[0], weights[1]);
    return -1;
}

int srv_hub_resolve(const char *spec, const char *(*env)(const char *name), char *ret_dir,
                    size_t size, char *err, size_t errlen)
{
    struct stat st;
    if (stat(spec, &st)) return resolve_in_cache(spec, env, ret_dir, size, err, errlen);
    if (!S_ISDIR(st.st_mode)) {
        snprintf(err, errlen, "model '%.200s' is a file%s; " MODEL_IS, spec,
                 is_gguf(spec) ? " of GGUF, which is not read" : "");
        return -1;
    }
    if (join(ret_dir, size, "%s", spec)) {
        snprintf(err, errlen, "model '%.200s...': the path is too long", spec);
        return -1;
    }
    return 0;
}

/* The source tree's root, which the build writes into a file next to the executable; "" if there is none. */
static void source_root(const char *exe_dir, char *buf, size_t size)
{
    char err[64], *text = NULL;
    buf[0] = '\0';
    if (file_load(exe_dir, "server/source-root", size - 1, &text, NULL, err, sizeof(err))) return;
    snprintf(buf, size, "%.*s", (int)strcspn(text, "\n"), text);
    free(text);
}

int srv_hub_find_demo(char *ret_dir, size_t size, char *err, size_t errlen)
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
        {root, "/deploy/demo"},
        {exe, "/../share/hearth/demo"},
        {exe, "/../deploy/demo"},
        {HEARTH_DATADIR, "/hearth/demo"},
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (!*places[i].base || join(ret_dir, size, "%s%s", places[i].base, places[i].below))
            continue;
        if (!join(config, sizeof(config), "%s/config.json", ret_dir) && access(config, R_OK) == 0)
            return 0;
    }
    snprintf(err, errlen, "no --model was given, and the demo model is not installed");
    return -1;
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
