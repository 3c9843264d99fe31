/* SPDX-License-Identifier: MIT */
/* See scan.h. */
#include "server/models/scan.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/gguf.h"
#include "base/gguf_names.h"
#include "server/models/catalogue.h"
#include "server/log.h"
#include "server/models/lookup.h"
#include "server/models/set.h"

/* A walk through the folder. */
struct scan {
    struct srv_models *set;
    const struct srv_config *c;
    bool found[POLICY_ENTRIES];
};

static bool is_folder(const char *path)
{
    struct stat st;
    return !lstat(path, &st) && S_ISDIR(st.st_mode);
}

static bool has_config(const char *dir)
{
    char path[PATH_MAX];
    struct stat st;
    int len = snprintf(path, sizeof(path), "%s/config.json", dir);
    return len > 0 && len < PATH_MAX && !stat(path, &st) && S_ISREG(st.st_mode);
}

/* The entry that an earlier walk made of the folder, or NULL. */
static struct srv_entry *entry_of(struct scan *s, const char *dir)
{
    for (int i = 0; i < s->set->n_entries; i++) {
        struct srv_entry *e = s->set->entries[i];
        if (e->own && !e->gone && !strcmp(e->own->model, dir)) return e;
    }
    return NULL;
}

/* As of `[model NAME] model = DIR`, in one block with both. Owned, or NULL when out of memory. */
static struct srv_config *config_of(const struct srv_config *found, const char *dir,
                                    const char *name)
{
    size_t dir_size = strlen(dir) + 1, name_size = strlen(name) + 1;
    struct srv_config *own = malloc(sizeof(*own) + dir_size + name_size);
    if (!own) return NULL;
    *own = *found;
    own->model = own->model_shown = memcpy(own + 1, dir, dir_size);
    own->entry = memcpy((char *)(own + 1) + dir_size, name, name_size);
    return own;
}

/* A folder with its config.json, or a file in GGUF. */
static void take(struct scan *s, const char *dir, const char *name)
{
    struct srv_entry *e = entry_of(s, dir);
    uint8_t digest[32];
    if (srv_model_source(dir, NULL, digest)) return;
    /* The entry of one that an operator has replaced serves another directory. */
    if (e && (strcmp(e->source.dir, dir) || !memcmp(digest, e->digest, sizeof(digest)))) {
        s->found[e->number] = true;
        return;
    }
    if (!e && srv_models_find(s->set, name) >= 0) {
        srv_log(SRV_LOG_ERROR, "models: %s is left out: another model answers to the name '%s'",
                dir, name);
        return;
    }
    struct srv_config *own = e ? NULL : config_of(s->c->found, dir, name);
    if (own) {
        const char *names[] = {name};
        const struct srv_model_params p = {.dir = dir, .names = {names, 1}};
        e = srv_models_add(s->set, own, &p);
        if (!e) free(own);
    }
    if (!e) {
        srv_log(SRV_LOG_ERROR, "models: %s is left out: there are too many models", dir);
        return;
    }
    s->found[e->number] = true;
    srv_catalogue_plan_found(s->set, e, own, digest);
    if (own && srv_models_default(s->set) < 0 && !strcmp(name, s->c->default_model))
        srv_models_set_default(s->set, e->number);
    srv_log(SRV_LOG_INFO, "models: %s %s: %s", own ? "found" : "changed", name,
            e->is_unavailable ? e->reason : "loaded on demand");
}

/* A folder whose files in GGUF are taken. */
struct folder {
    struct scan *scan;
    const char *dir, *prefix;
};

static bool take_file(void *ctx, const char *file)
{
    struct folder *f = ctx;
    char path[PATH_MAX], stem[NAME_MAX + 1], name[200], err[1];
    const char *type = "model";
    struct gguf *g;
    if (snprintf(path, sizeof(path), "%s/%s", f->dir, file) >= (int)sizeof(path) ||
        snprintf(name, sizeof(name), "%s%s", f->prefix,
                 srv_hub_model_name(path, stem, sizeof(stem))) >= (int)sizeof(name))
        return true;
    srv_name_mend(name);
    if (!gguf_open(&g, NULL, path, 0, err, sizeof(err)))
        gguf_string(g, "general.type", &type, err, sizeof(err));
    if (strcmp(type, "model") != 0)
        srv_log(SRV_LOG_INFO, "models: %s is passed over: it is of type %.40s, not a model", path,
                type);
    else
        take(f->scan, path, name);
    gguf_close(g);
    return true;
}

/* depth 0: the folder itself, whose folders may be models or hold some. */
static void walk(struct scan *s, const char *dir, const char *prefix, int depth)
{
    struct dirent **found;
    int n = scandir(dir, &found, NULL, alphasort);
    if (n < 0) srv_log(SRV_LOG_ERROR, "models: %s cannot be read", dir);
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX], name[200], base[200];
        const char *file = found[i]->d_name;
        int len = snprintf(path, sizeof(path), "%s/%s", dir, file);
        int name_len = snprintf(name, sizeof(name), "%s%s", prefix, file);
        srv_name_mend(name);
        bool good = *file != '.' && len < PATH_MAX && name_len < (int)sizeof(name) - 1;
        if (good && is_folder(path)) {
            if (has_config(path)) {
                take(s, path, name);
            } else if (srv_hub_has_adapter(path, base, sizeof(base))) {
                srv_log(SRV_LOG_WARNING, "models: %s is left out: it is an adapter of %s", name,
                        base);
            } else if (depth == 0) {
                snprintf(name + name_len, sizeof(name) - (size_t)name_len, "/");
                walk(s, path, name, 1);
            }
        }
        free(found[i]);
    }
    if (n >= 0) free(found);
    gguf_folder_visit(dir, take_file, &(struct folder){s, dir, prefix});
}

void srv_scan_models(struct srv_models *set, const struct srv_config *c)
{
    struct scan s = {.set = set, .c = c};
    walk(&s, c->models_dir, "", 0);
    for (int i = 0; i < set->n_entries; i++)
        if (set->entries[i]->own && !set->entries[i]->gone && !s.found[i])
            srv_models_remove(set, i);
}
