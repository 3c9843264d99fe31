/* SPDX-License-Identifier: MIT */
/* Names and memory of the configured models; see catalogue.h. */
#include "server/catalogue.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "server/model_lookup.h"

enum { MIB = 1 << 20 };

const struct srv_config *srv_catalogue_config(const struct srv_config *c, int entry)
{
    return entry ? &c->more[entry - 1] : c;
}

/* ---- names --------------------------------------------------------------------------------- */

int srv_catalogue_names(const struct srv_config *c, const char *own, struct srv_list *ret)
{
    *ret = (struct srv_list){malloc(((size_t)c->alias.n + 1) * sizeof(*ret->items)), 0};
    if (!ret->items) return -1;
    if (c->entry) ret->items[ret->n++] = c->entry;
    for (int i = 0; i < c->alias.n; i++)
        ret->items[ret->n++] = c->alias.items[i];
    if (!ret->n) ret->items[ret->n++] = own;
    return 0;
}

/* The first name of `a` that is also one of `b`, or NULL. */
static const char *common_name(const struct srv_list *a, const struct srv_list *b)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            if (!strcmp(a->items[i], b->items[k])) return a->items[i];
    return NULL;
}

/* Returns -1 with err if two models have a name in common. */
static int check_names(const struct srv_config *c, char *err, size_t errlen)
{
    struct srv_list names[SRV_MAX_MODELS + 1];
    char own[256] = "hearth-demo";
    int rc = 0, n = 0;
    if (c->model_shown && !c->model_is_demo) srv_hub_model_name(c->model_shown, own, sizeof(own));
    for (; !rc && n <= c->n_more; n++) {
        rc = srv_catalogue_names(srv_catalogue_config(c, n), own, &names[n]);
        if (rc) snprintf(err, errlen, "out of memory");
        for (int i = 0; !rc && i < n; i++) {
            const char *name = common_name(&names[i], &names[n]);
            if (!name) continue;
            rc = -1;
            snprintf(err, errlen,
                     "the models '%.100s' and '%.100s' both answer to the name '%.100s'; name or "
                     "alias one of them differently",
                     names[i].items[0], names[n].items[0], name);
        }
    }
    while (n-- > 0)
        free(names[n].items);
    return rc;
}

/* ---- memory -------------------------------------------------------------------------------- */

struct srv_model_params srv_catalogue_params(const struct srv_config *c, int entry, const char *dir,
                                             const struct srv_share *share)
{
    const struct srv_config *own = srv_catalogue_config(c, entry);
    return (struct srv_model_params){
        .config = own,
        .dir = entry ? own->model : dir,
        .draft_dir = own->draft_model,
        .draft_name = own->draft_shown,
        .is_demo = own->model_is_demo,
        .entry = entry,
        .share = *share,
    };
}

static int plan_one(const struct srv_config *c, int entry, const char *dir,
                    const struct srv_share *share, struct eng_memory *ret, char *err, size_t errlen)
{
    const struct srv_model_params p = srv_catalogue_params(c, entry, dir, share);
    char why[400];
    int rc = srv_model_plan(ret, &p, 0, why, sizeof(why));
    if (rc && c->n_more)
        snprintf(err, errlen, "model %s: %s", p.config->entry ? p.config->entry : p.dir, why);
    else if (rc)
        snprintf(err, errlen, "%s", why);
    return rc;
}

/* Answers to the clients of all models together get a sixteenth of the memory. */
static int64_t answer_share(int64_t limit, int n)
{
    int64_t bytes = limit / 16 / n, most = ((int64_t)1 << 30) / n;
    return bytes > most ? most : bytes < 16 * MIB ? 16 * MIB : bytes;
}

static long long mib_up(int64_t bytes)
{
    return (long long)((bytes + MIB - 1) / MIB);
}

int srv_catalogue_plan(const struct srv_config *c, const char *dir, struct srv_share *shares,
                       char *err, size_t errlen)
{
    int n = 1 + c->n_more, rc = 0;
    int64_t limit = eng_memory_limit(c->memory_bytes) - c->swap_memory_bytes;
    int64_t kv[SRV_MAX_MODELS + 1], sum_kv = 0, left = limit, spare = 0;
    struct eng_memory m;
    memset(shares, 0, sizeof(*shares) * (size_t)n);
    if (n == 1) return plan_one(c, 0, dir, shares, &m, err, errlen);
    if (check_names(c, err, errlen)) return ENG_EINVAL;
    for (int i = 0; !rc && i < n; i++) {
        shares[i] = (struct srv_share){limit, answer_share(limit, n)};
        rc = plan_one(c, i, dir, &shares[i], &m, err, errlen);
        kv[i] = srv_catalogue_config(c, i)->kv_memory_bytes ? 0 : m.kv_bytes + m.state_bytes;
        shares[i].memory_bytes = srv_plan_bytes(&m) - kv[i];
        left -= shares[i].memory_bytes;
        sum_kv += kv[i];
    }
    if (rc) return rc;
    if (left < 0) {
        snprintf(err, errlen,
                 "%d models take %lld MiB without their KV caches, but the limit is %lld MiB "
                 "(--memory); serve fewer, or choose --numerics int8 or int4",
                 n, mib_up(limit - left), mib_up(limit));
        return ENG_ENOMEM;
    }
    if (left > sum_kv) spare = (left - sum_kv) / n;
    for (int i = 0; !rc && i < n; i++) {
        double part = spare || !sum_kv ? 1 : (double)left / (double)sum_kv;
        shares[i].memory_bytes += (int64_t)(part * (double)kv[i]) + spare;
        rc = plan_one(c, i, dir, &shares[i], &m, err, errlen);
    }
    return rc;
}
