/* SPDX-License-Identifier: MIT */
/* The list of banned owners, and the thread that removes their pages; see kv_bans.h. */
#include "server/models/kv_bans.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/os_error.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "server/config/config.h"
#include "server/log.h"

enum { RETRY_MS = 1000 };

struct ban {
    uint8_t owner[ENG_KV_OWNER];
    bool erased; /* its files */
    bool ends;   /* once they are */
    bool told;   /* of a failure */
};

struct srv_kv_bans {
    const struct srv_config *config;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct ban *list; /* [n] */
    size_t n;
    bool closing;
};

/* The ban of an owner, or NULL. With the lock held. */
static struct ban *find(const struct srv_kv_bans *b, const uint8_t *owner)
{
    for (size_t i = 0; i < b->n; i++)
        if (memcmp(b->list[i].owner, owner, ENG_KV_OWNER) == 0) return &b->list[i];
    return NULL;
}

bool srv_kv_is_banned(void *ctx, const uint8_t *owner)
{
    struct srv_kv_bans *b = ctx;
    HOLD(&b->lock);
    return find(b, owner) != NULL;
}

/* With the lock held. */
static struct ban *add(struct srv_kv_bans *b, const uint8_t *owner)
{
    struct ban *list = reallocarray(b->list, b->n + 1, sizeof(*list));
    if (!list) return NULL;
    b->list = list;
    list[b->n] = (struct ban){.erased = false};
    memcpy(list[b->n].owner, owner, ENG_KV_OWNER);
    return &list[b->n++];
}

void srv_kv_ban(struct srv_kv_bans *b, const uint8_t *owner, bool banned)
{
    if (!b) return;
    HOLD(&b->lock);
    struct ban *ban = find(b, owner);
    if (!ban && banned) ban = add(b, owner);
    if (ban) {
        ban->ends = !banned;
        if (banned) ban->erased = false;
        if (ban->ends && ban->erased) *ban = b->list[--b->n];
        pthread_cond_signal(&b->changed);
    }
}

static bool is_of(void *owner, const struct eng_kv_file *file)
{
    return file->sound && memcmp(file->owner, owner, ENG_KV_OWNER) == 0;
}

/* The directory of the i-th model, 0 for the first; NULL: none, or one before it has the same. */
static const char *directory(const struct srv_config *c, int i)
{
    const char *dir = i ? c->more[i - 1].kv_disk : c->kv_disk;
    for (int j = 0; dir && j < i; j++) {
        const char *before = j ? c->more[j - 1].kv_disk : c->kv_disk;
        if (before && strcmp(before, dir) == 0) return NULL;
    }
    return dir;
}

/* Returns 0, or -1 if some may be left. */
static int erase(const struct srv_kv_bans *b, uint8_t *owner, char *err, size_t errlen)
{
    int rc = 0;
    for (int i = 0; i <= b->config->n_more; i++) {
        const char *dir = directory(b->config, i);
        if (dir && eng_kv_visit(dir, owner, is_of, owner, err, errlen)) rc = -1;
    }
    return rc;
}

/* Erases for the first ban that is to be. Returns false if it is to be tried again later. */
static bool erase_next(struct srv_kv_bans *b, const struct ban *next)
{
    struct ban tried = *next;
    char err[600];
    pthread_mutex_unlock(&b->lock);
    bool erased = erase(b, tried.owner, err, sizeof(err)) == 0;
    if (!erased && !tried.told)
        srv_log(SRV_LOG_WARNING, "kv-disk: pages of a removed key are still there: %s", err);
    pthread_mutex_lock(&b->lock);
    struct ban *ban = find(b, tried.owner), *last = &b->list[b->n - 1];
    ban->erased = erased;
    ban->told = !erased;
    tried = *ban; /* others have their turn before it is tried again */
    *ban = *last;
    *last = tried;
    if (erased && last->ends) b->n--;
    return erased;
}

static void *erase_all(void *arg)
{
    struct srv_kv_bans *b = arg;
    HOLD(&b->lock);
    for (;;) {
        const struct ban *next = b->list;
        while (next < b->list + b->n && next->erased)
            next++;
        bool any = next < b->list + b->n;
        if (!any && b->closing) break;
        if (!any) {
            pthread_cond_wait(&b->changed, &b->lock);
        } else if (!erase_next(b, next)) {
            struct timespec until = clock_after_ms(RETRY_MS);
            if (b->closing) break;
            pthread_cond_timedwait(&b->changed, &b->lock, &until);
        }
    }
    return NULL;
}

int srv_kv_bans_create(struct srv_kv_bans **ret, const struct srv_config *config, char *err,
                       size_t errlen)
{
    bool any = false;
    for (int i = 0; i <= config->n_more; i++)
        any |= directory(config, i) != NULL;
    *ret = NULL;
    if (!any || !config->api_key_file) return 0;
    struct srv_kv_bans *b = calloc(1, sizeof(*b));
    if (!b) return fail_with(-1, err, errlen, "no memory for the thread of kv-disk that erases");
    b->config = config;
    pthread_mutex_init(&b->lock, NULL);
    thread_cond_init(&b->changed);
    int rc = thread_start(&b->thread, "hearth-kv-erase", 0, erase_all, b);
    if (rc) {
        snprintf(err, errlen, "the thread of kv-disk that erases: %s%s", strerror(rc),
                 os_error_remedy(rc));
        srv_kv_bans_destroy(b);
        return -1;
    }
    b->has_thread = true;
    *ret = b;
    return 0;
}

void srv_kv_bans_destroy(struct srv_kv_bans *b)
{
    if (!b) return;
    if (b->has_thread) {
        pthread_mutex_lock(&b->lock);
        b->closing = true;
        pthread_cond_signal(&b->changed);
        pthread_mutex_unlock(&b->lock);
        pthread_join(b->thread, NULL);
    }
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b->list);
    free(b);
}
