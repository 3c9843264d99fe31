/* SPDX-License-Identifier: MIT */
/* The list of adapters, and those that are open; see loras.h. */
#include "server/models/loras.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "server/config/config.h"
#include "server/log.h"
#include "server/models/lookup.h"

enum { MAX_LORAS = 100000 };

/* ---- the list; with the lock held ---------------------------------------------------------- */

static struct srv_lora *find_name(const struct srv_models *set, const char *name)
{
    for (int i = 0; i < set->n_loras; i++)
        if (!strcmp(set->loras[i].name, name)) return &set->loras[i];
    return NULL;
}

static struct srv_lora *find_number(const struct srv_models *set, uint64_t number)
{
    for (int i = 0; i < set->n_loras; i++)
        if (set->loras[i].number == number) return &set->loras[i];
    return NULL;
}

bool srv_lora_is_of(const struct srv_lora *l, const char *only)
{
    for (const char *name = only; name && *name; name += strlen(name) + 1)
        if (!strcmp(name, l->name)) return true;
    return !only;
}

/* Requests that use it go on. */
static void close_lora(struct srv_lora *l)
{
    eng_lora_close(l->lora);
    l->lora = NULL;
}

static void drop(struct srv_models *set, struct srv_lora *l)
{
    close_lora(l);
    free((void *)l->name);
    memmove(l, l + 1, (size_t)(set->loras + --set->n_loras - l) * sizeof(*l));
}

/* As srv_loras_put; with what is known of it. */
static int add(struct srv_models *set, const struct srv_lora *like, char *err, size_t errlen)
{
    size_t name_size = strlen(like->name) + 1, dir_size = strlen(like->dir) + 1;
    char *text = malloc(name_size + dir_size);
    struct srv_lora *l = find_name(set, like->name), *all = set->loras;
    if (text && !l && set->n_loras < MAX_LORAS &&
        (all = realloc(set->loras, ((size_t)set->n_loras + 1) * sizeof(*all)))) {
        set->loras = all;
        l = &all[set->n_loras++];
        *l = (struct srv_lora){0};
    }
    if (!text || !l) {
        free(text);
        return fail_with(ENG_ENOMEM, err, errlen, "out of memory, or %d adapters", MAX_LORAS);
    }
    const struct srv_lora before = *l;
    *l = *like;
    l->number = ++set->last_lora;
    l->created = (int64_t)time(NULL);
    l->scale = before.scale;
    l->name = memcpy(text, like->name, name_size);
    l->dir = memcpy(text + name_size, like->dir, dir_size);
    eng_lora_close(before.lora);
    free((void *)before.name);
    return 0;
}

/* ---- looking ------------------------------------------------------------------------------- */

bool srv_loras_any(struct srv_models *set)
{
    HOLD(&set->lock);
    bool any = set->n_loras > 0;
    for (int i = 0; i < set->n_entries; i++)
        any |= set->entries[i]->config->lora_dir != NULL;
    return any;
}

void srv_loras_look(struct srv_models *set, const char *name)
{
    char dir[PATH_MAX], err[300];
    HOLD(&set->lock);
    if (*name == '.' || strchr(name, '/') || strlen(name) > SRV_LORA_NAME_MAX) return;
    for (int i = 0; i < set->n_entries && !find_name(set, name); i++) {
        const struct srv_lora like = {.name = name, .dir = dir, .entry = i};
        const char *folder = set->entries[i]->config->lora_dir;
        int len = folder ? snprintf(dir, sizeof(dir), "%s/%s", folder, name) : PATH_MAX;
        if (len < PATH_MAX && file_exists(dir, "adapter_config.json"))
            add(set, &like, err, sizeof(err));
    }
}

uint64_t srv_loras_find(struct srv_models *set, const char *only, const char *name, int *ret_entry)
{
    HOLD(&set->lock);
    const struct srv_lora *l = find_name(set, name);
    if (!l || set->entries[l->entry]->gone || !srv_lora_is_of(l, only)) return 0;
    *ret_entry = l->entry;
    return l->number;
}

int srv_loras_at(struct srv_models *set, const char *only, int entry,
                 const struct srv_lora_ask *places, int n, struct srv_lora_ask *ret)
{
    int found = 0;
    HOLD(&set->lock);
    for (int i = 0; i < set->n_loras; i++) {
        const struct srv_lora *l = &set->loras[i];
        int k = 0;
        while (k < n && places[k].which != (uint64_t)i)
            k++;
        if (k < n && (entry < 0 || l->entry == entry) && srv_lora_is_of(l, only))
            ret[found++] = (struct srv_lora_ask){l->number, places[k].scale};
    }
    return found;
}

int srv_loras_usual(struct srv_models *set, int entry, struct srv_lora_ask ret[ENG_MAX_LORAS])
{
    int n = 0;
    HOLD(&set->lock);
    for (int i = 0; i < set->n_loras && n < ENG_MAX_LORAS; i++)
        if (set->loras[i].entry == entry && set->loras[i].scale != 0)
            ret[n++] = (struct srv_lora_ask){set->loras[i].number, set->loras[i].scale};
    return n;
}

void srv_loras_set_usual(struct srv_models *set, const struct srv_lora_ask *asks, int n)
{
    HOLD(&set->lock);
    for (int i = 0; i < set->n_loras; i++) {
        set->loras[i].scale = 0;
        for (int k = 0; k < n; k++)
            if (set->loras[i].number == asks[k].which) set->loras[i].scale = asks[k].scale;
    }
}

const char *srv_loras_used(struct srv_models *set, char *buf, size_t size)
{
    size_t len = 0;
    *buf = '\0';
    HOLD(&set->lock);
    for (int i = 0; i < set->n_loras && len < size; i++)
        if (set->loras[i].lora && eng_lora_is_shared(set->loras[i].lora))
            len +=
                (size_t)snprintf(buf + len, size - len, "%s%s", len ? "," : "", set->loras[i].name);
    return buf;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Closes the least recently used adapter of a model that no request uses. Returns false if there is
 * none. */
static bool close_oldest(struct srv_models *set, const struct srv_model *m)
{
    struct srv_lora *oldest = NULL;
    HOLD(&set->lock);
    for (int i = 0; i < set->n_loras; i++) {
        struct srv_lora *l = &set->loras[i];
        if (l->lora && l->of == m && !eng_lora_is_shared(l->lora) &&
            (!oldest || l->used_us < oldest->used_us))
            oldest = l;
    }
    if (oldest) close_lora(oldest);
    return oldest;
}

static int open_lora(struct srv_models *set, struct srv_model *m, const char *dir,
                     struct eng_lora **ret, char *err, size_t errlen)
{
    uint64_t start_us = clock_now_us();
    int rc;
    do
        rc = eng_lora_open(m->engine, dir, ret, err, errlen);
    while (rc == ENG_EQUEUEFULL && close_oldest(set, m));
    if (rc)
        srv_log(SRV_LOG_ERROR, "adapters: %s cannot be opened: %s", dir, err);
    else
        srv_log(SRV_LOG_INFO, "adapters: %s is open, %.1f ms", dir,
                (double)(clock_now_us() - start_us) * 1e-3);
    if (rc != ENG_EQUEUEFULL) return rc;
    return fail_with(ENG_EQUEUEFULL, err, errlen, "other requests use the memory for adapters");
}

/* A reference to one that is open for the model. Writes the directory of one that is not. */
static int take_open(struct srv_models *set, const struct srv_model *m, uint64_t number,
                     struct eng_lora **ret, char dir[PATH_MAX], char *err, size_t errlen)
{
    HOLD(&set->lock);
    struct srv_lora *l = find_number(set, number);
    *ret = l && l->lora && l->of == m ? eng_lora_share(l->lora) : NULL;
    if (!l) return fail_with(ENG_ENOENT, err, errlen, "it has been removed");
    l->used_us = clock_now_us();
    snprintf(dir, PATH_MAX, "%s", l->dir);
    return 0;
}

/* The list keeps one that has been opened, unless it has been removed meanwhile. */
static void keep(struct srv_models *set, struct srv_model *m, uint64_t number,
                 struct eng_lora *lora)
{
    HOLD(&set->lock);
    struct srv_lora *l = find_number(set, number);
    if (!l) return;
    close_lora(l);
    l->lora = eng_lora_share(lora);
    l->of = m;
}

int srv_loras_take(struct srv_models *set, struct srv_model *m, uint64_t number,
                   struct eng_lora **ret, char *err, size_t errlen)
{
    char dir[PATH_MAX];
    int rc = take_open(set, m, number, ret, dir, err, errlen);
    if (rc || *ret) return rc;
    HOLD(&set->loading);
    rc = take_open(set, m, number, ret, dir, err, errlen);
    if (rc || *ret) return rc;
    rc = open_lora(set, m, dir, ret, err, errlen);
    if (!rc) keep(set, m, number, *ret);
    return rc;
}

void srv_loras_close(struct srv_models *set, const struct srv_model *m)
{
    HOLD(&set->lock);
    for (int i = 0; i < set->n_loras; i++)
        if (!m || set->loras[i].of == m) close_lora(&set->loras[i]);
    while (!m && set->n_loras)
        drop(set, &set->loras[set->n_loras - 1]);
    if (!m) free(set->loras);
}

/* ---- changing ------------------------------------------------------------------------------ */

int srv_loras_put(struct srv_models *set, const char *name, const char *dir, int entry, char *err,
                  size_t errlen)
{
    struct srv_lora like = {.name = name, .dir = dir, .entry = entry};
    int rc = 0;
    if (!file_exists(dir, "adapter_config.json"))
        return fail_with(ENG_ENOENT, err, errlen, "%.300s has no adapter_config.json", dir);
    like.of = srv_models_of(set, entry);
    HOLD(&set->loading);
    if (like.of) rc = open_lora(set, like.of, dir, &like.lora, err, errlen);
    pthread_mutex_lock(&set->lock);
    if (!rc && (rc = add(set, &like, err, errlen))) eng_lora_close(like.lora);
    pthread_mutex_unlock(&set->lock);
    srv_model_release(like.of, false);
    return rc;
}

bool srv_loras_remove(struct srv_models *set, const char *name)
{
    HOLD(&set->lock);
    struct srv_lora *l = find_name(set, name);
    if (l) drop(set, l);
    return l;
}

/* ---- the configuration --------------------------------------------------------------------- */

/* NAME=DIR. */
static int add_configured(struct srv_models *set, int entry, const char *item, char *err,
                          size_t errlen)
{
    char name[SRV_LORA_NAME_MAX + 1], dir[PATH_MAX], why[400];
    size_t len = strcspn(item, "=");
    if (!item[len] || !len || len > SRV_LORA_NAME_MAX)
        return fail_with(ENG_EINVAL, err, errlen,
                         "lora: '%.200s' is not NAME=DIR with a name of 1 to %d bytes", item,
                         SRV_LORA_NAME_MAX);
    snprintf(name, sizeof(name), "%.*s", (int)len, item);
    srv_name_mend(name);
    if (srv_models_find(set, name) >= 0 || srv_loras_find(set, NULL, name, &entry))
        return fail_with(ENG_EINVAL, err, errlen, "lora: the name '%s' is taken", name);
    int rc = srv_hub_resolve(item + len + 1, NULL, dir, sizeof(dir), why, sizeof(why))
                 ? ENG_ENOENT
                 : srv_loras_put(set, name, dir, entry, why, sizeof(why));
    return rc ? fail_with(rc, err, errlen, "lora %s: %s", name, why) : 0;
}

int srv_loras_start(struct srv_models *set, const struct srv_entry *e, char *err, size_t errlen)
{
    int rc = 0;
    for (int i = 0; !rc && i < e->config->lora.n; i++)
        rc = add_configured(set, e->number, e->config->lora.items[i], err, errlen);
    return rc;
}
