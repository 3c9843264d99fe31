/* SPDX-License-Identifier: MIT */
/* Names and memory of the configured models; see catalogue.h. */
#include "server/models/catalogue.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "server/models/lookup.h"

enum { MIB = 1 << 20 };

const struct srv_config *srv_catalogue_config(const struct srv_config *c, int entry)
{
    return entry ? &c->more[entry - 1] : c;
}

/* ---- names --------------------------------------------------------------------------------- */

int srv_catalogue_names(const struct srv_config *c, const char *own, struct srv_list *ret)
{
    struct srv_list all = {malloc(((size_t)c->alias.n + 1) * sizeof(*all.items)), 0};
    *ret = (struct srv_list){0};
    if (!all.items) return -1;
    if (c->entry) all.items[all.n++] = c->entry;
    for (int i = 0; i < c->alias.n; i++)
        all.items[all.n++] = c->alias.items[i];
    if (!all.n) all.items[all.n++] = own;
    *ret = srv_names_copy(&all);
    free(all.items);
    return ret->items ? 0 : -1;
}

/* The first name of `a` that is also one of `b`, or NULL. */
static const char *common_name(const struct srv_list *a, const struct srv_list *b)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            if (!strcmp(a->items[i], b->items[k])) return a->items[i];
    return NULL;
}

/* Finds the names. Returns an enum eng_error with err if two models have one in common. */
static int find_names(const struct srv_config *c, struct srv_plan *plans, char *err, size_t errlen)
{
    char own[256] = "hearth-demo";
    if (c->model_shown && !c->model_is_demo) srv_hub_model_name(c->model_shown, own, sizeof(own));
    for (int n = 0; n <= c->n_more; n++) {
        const struct srv_list *names = &plans[n].names;
        if (srv_catalogue_names(srv_catalogue_config(c, n), own, &plans[n].names)) {
            snprintf(err, errlen, "out of memory");
            return ENG_ENOMEM;
        }
        for (int i = 0; i < n; i++) {
            const char *name = common_name(&plans[i].names, names);
            if (!name) continue;
            snprintf(err, errlen,
                     "the models '%.100s' and '%.100s' both answer to the name '%.100s'; name or "
                     "alias one of them differently",
                     plans[i].names.items[0], names->items[0], name);
            return ENG_EINVAL;
        }
    }
    return 0;
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

int64_t srv_catalogue_limit(const struct srv_config *c)
{
    return eng_memory_limit(c->memory_bytes) - c->swap_memory_bytes - srv_process_bytes(c, 0);
}

static bool is_demand(const struct srv_config *c)
{
    return !strcmp(c->load, "demand");
}

/* The memory of models without KV caches that have no size of their own. */
struct needs {
    struct fit_room room;
    struct fit_sum all, pinned; /* of `fixed` */
    int64_t fixed[SRV_MAX_MODELS + 1], kv[SRV_MAX_MODELS + 1];
    int64_t largest_other; /* of `fixed`, */
    int other;             /* and whose: it is not pinned; or -1 */
};

static int find_needs(struct needs *ret, const struct srv_config *c, const char *dir,
                      struct srv_plan *plans, char *err, size_t errlen)
{
    int64_t limit = eng_memory_limit(c->memory_bytes) - c->swap_memory_bytes;
    *ret = (struct needs){.room = {srv_catalogue_limit(c), c->models_max}, .other = -1};
    for (int i = 0; i <= c->n_more; i++) {
        const struct srv_config *own = srv_catalogue_config(c, i);
        struct eng_memory *m = &plans[i].memory;
        plans[i].share = (struct srv_share){limit, answer_share(limit, 1 + c->n_more)};
        int rc = plan_one(c, i, dir, &plans[i].share, m, err, errlen);
        if (rc) return rc;
        ret->kv[i] = own->kv_memory_bytes ? 0 : m->kv_bytes + m->state_bytes;
        ret->fixed[i] = srv_plan_bytes(m) - ret->kv[i] - srv_process_bytes(c, i);
        fit_add(&ret->all, ret->fixed[i]);
        if (own->pin) {
            fit_add(&ret->pinned, ret->fixed[i]);
        } else if (ret->other < 0 || ret->fixed[i] > ret->largest_other) {
            ret->largest_other = ret->fixed[i];
            ret->other = i;
        }
    }
    return 0;
}

static void share(struct needs *n, const struct srv_config *c, struct srv_plan *plans, double part,
                  int64_t most_kv, int64_t spare)
{
    for (int i = 0; i < n->all.n; i++) {
        int64_t kv = (int64_t)(part * (double)n->kv[i]);
        if (kv > most_kv) kv = most_kv;
        plans[i].share.memory_bytes = n->fixed[i] + srv_process_bytes(c, i) + kv + spare;
    }
}

/* All at once. */
static void share_among_all(struct needs *n, const struct srv_config *c, struct srv_plan *plans)
{
    int64_t left = n->room.limit_bytes - n->all.bytes, sum_kv = 0;
    for (int i = 0; i < n->all.n; i++)
        sum_kv += n->kv[i];
    int64_t spare = left > sum_kv ? (left - sum_kv) / n->all.n : 0;
    share(n, c, plans, spare || !sum_kv ? 1 : (double)left / (double)sum_kv, INT64_MAX, spare);
}

/* Any of them next to the pinned ones. */
static int share_by_turns(struct needs *n, const struct srv_config *c, struct srv_plan *plans,
                          char *err, size_t errlen)
{
    int64_t spare = n->room.limit_bytes - n->pinned.bytes - n->largest_other;
    if (spare >= 0) {
        share(n, c, plans, 1, spare / (n->pinned.n > 3 ? n->pinned.n + 1 : 4), 0);
        return 0;
    }
    const char *name = n->other < 0 ? NULL : srv_catalogue_config(c, n->other)->entry;
    if (n->pinned.n)
        snprintf(err, errlen,
                 "pinned models take %lld MiB without their KV caches, and model %s next to them "
                 "%lld MiB, but the limit is %lld MiB (--memory); pin fewer, or choose --numerics "
                 "int8 or int4",
                 fit_mib(n->pinned.bytes), name ? name : "-", fit_mib(n->largest_other),
                 fit_mib(n->room.limit_bytes));
    else
        snprintf(
            err, errlen,
            "model %s takes %lld MiB without its KV cache, but the limit is %lld MiB (--memory)",
            name ? name : "-", fit_mib(n->largest_other), fit_mib(n->room.limit_bytes));
    return ENG_ENOMEM;
}

/* Loaded at the start whatever the others take. */
static bool must_start(const struct srv_config *own, int entry)
{
    return own->pin || !strcmp(own->load, "start") || (!entry && !is_demand(own));
}

/* Which ones are loaded at the start: all but those on demand, if they fit together. */
static int choose_starts(const struct fit_room *room, const struct srv_config *c,
                         struct srv_plan *plans, char *err, size_t errlen)
{
    struct fit_sum sum[2] = {{0}, {0}}; /* of those that may start, of those that must */
    for (int i = 0; i <= c->n_more; i++) {
        const struct srv_config *own = srv_catalogue_config(c, i);
        bool must = must_start(own, i);
        if (must || !is_demand(own)) fit_add(&sum[0], plans[i].bytes);
        if (must) fit_add(&sum[1], plans[i].bytes);
    }
    for (int must = 0; must < 2; must++) {
        if (!fit_holds(room, sum[must])) continue;
        for (int i = 0; i <= c->n_more; i++) {
            const struct srv_config *own = srv_catalogue_config(c, i);
            plans[i].starts = must_start(own, i) || (!must && !is_demand(own));
        }
        return 0;
    }
    snprintf(
        err, errlen,
        "%d models that are pinned or loaded at the start take %lld MiB together, but the "
        "limit is %lld MiB (--memory) and %d models (--models-max, 0: none); set load = demand "
        "for some",
        sum[1].n, fit_mib(sum[1].bytes), fit_mib(room->limit_bytes), c->models_max);
    return ENG_ENOMEM;
}

int srv_catalogue_plan(const struct srv_config *c, const char *dir, struct srv_plan *plans,
                       char *err, size_t errlen)
{
    int n = 1 + c->n_more;
    struct needs needs = {0};
    memset(plans, 0, sizeof(*plans) * (size_t)n);
    int rc = find_names(c, plans, err, errlen);
    if (rc) return rc;
    if (n > 1) {
        rc = find_needs(&needs, c, dir, plans, err, errlen);
        if (rc) return rc;
        bool at_once = fit_holds(&needs.room, needs.all);
        for (int i = 0; i < n; i++)
            at_once = at_once && !is_demand(srv_catalogue_config(c, i));
        if (at_once)
            share_among_all(&needs, c, plans);
        else if ((rc = share_by_turns(&needs, c, plans, err, errlen)))
            return rc;
    }
    for (int i = 0; i < n; i++) {
        struct eng_memory *m = &plans[i].memory;
        rc = plan_one(c, i, dir, &plans[i].share, m, err, errlen);
        if (rc == ENG_ENOMEM && n > 1 && !srv_catalogue_config(c, i)->pin) {
            /* A quarter is less than it needs; pinned ones have at most three. */
            plans[i].share.memory_bytes =
                needs.room.limit_bytes - needs.pinned.bytes + srv_process_bytes(c, i);
            rc = plan_one(c, i, dir, &plans[i].share, m, err, errlen);
        }
        if (rc) return rc;
        plans[i].bytes = srv_plan_bytes(m) + m->twin_bytes - srv_process_bytes(c, i);
        plans[i].starts = n == 1 && !is_demand(c);
    }
    return n == 1 ? 0 : choose_starts(&needs.room, c, plans, err, errlen);
}

/* ---- facts --------------------------------------------------------------------------------- */

static void note_config(void *ctx, const struct eng_inspect_config *c)
{
    struct srv_model_facts *f = ctx;
    snprintf(f->architecture, sizeof(f->architecture), "%s", c->architecture);
    f->ctx_tokens = f->ctx_train_tokens = c->ctx_tokens;
    f->generates = c->generates;
    f->n_vocab = c->vocab_size;
    f->d_model = c->hidden_size;
}

static void note_weights(void *ctx, int64_t n_params, const char *dtype)
{
    struct srv_model_facts *f = ctx;
    f->n_params = n_params;
    snprintf(f->dtype, sizeof(f->dtype), "%s", dtype);
}

void srv_catalogue_facts(struct srv_model_facts *ret, const char *dir, int64_t ctx_tokens)
{
    struct srv_retrieval files;
    char err[300];
    const struct eng_inspector inspector = {
        .config = note_config, .weights = note_weights, .ctx = ret};
    *ret = (struct srv_model_facts){.ctx_tokens = 0};
    eng_inspect(dir, &inspector);
    if (ctx_tokens) ret->ctx_tokens = ctx_tokens;
    if (ret->generates) return;
    if (!srv_retrieval_read(&files, dir, 0, err, sizeof(err)) && files.max_tokens &&
        files.max_tokens < ret->ctx_tokens)
        ret->ctx_tokens = files.max_tokens;
    srv_retrieval_finish(&files);
}

/* ---- models that were found ---------------------------------------------------------------- */

void srv_catalogue_plan_found(struct srv_models *set, struct srv_entry *e, struct srv_config *own,
                              const uint8_t digest[32])
{
    struct srv_model_params p = srv_source_params(e, &e->source);
    struct srv_model_facts facts;
    struct eng_memory m;
    char why[300];
    int64_t room = srv_models_room(set, e->number).available;
    p.share = (struct srv_share){room > 0 ? room : 1, answer_share(room > 0 ? room : 1, 4)};
    int rc = srv_model_plan(&m, &p, 0, why, sizeof(why));
    if (!rc && !e->config->kv_memory_bytes) {
        int64_t kv = m.kv_bytes + m.state_bytes, fixed = srv_plan_bytes(&m) - kv;
        struct srv_share all = p.share;
        if (kv > (room - fixed) / 4) kv = (room - fixed) / 4;
        p.share.memory_bytes = fixed + kv;
        if (srv_model_plan(&m, &p, 0, why, sizeof(why))) {
            p.share = all; /* a quarter is less than it needs */
            rc = srv_model_plan(&m, &p, 0, why, sizeof(why));
        }
    }
    srv_catalogue_facts(&facts, p.dir, rc ? 0 : m.ctx_tokens);
    srv_models_settle(set, e, own, &p.share, &facts, rc ? 0 : srv_plan_bytes(&m) + m.twin_bytes,
                      rc ? why : NULL, digest);
}
