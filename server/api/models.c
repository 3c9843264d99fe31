/* SPDX-License-Identifier: MIT */
/*
 * GET /v1/models and GET /v1/models/{id}; ids may contain slashes. With the header
 * anthropic-version both answer in that dialect's shape, the list in pages.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "engine/engine.h"
#include "server/api/routes.h"
#include "server/http/api_error.h"
#include "server/models/app.h"
#include "server/models/loras.h"

enum { ROUTE = SRV_ROUTE_INLINE | SRV_ROUTE_NO_MODEL, PAGE_MODELS = 20, MAX_PAGE_MODELS = 1000 };

/* lora: an adapter of the entry, or NULL; here and in the next functions. */
static void write_status(const struct srv_entry *e, const struct srv_lora *lora, struct jw *w)
{
    const char *state = srv_entry_state_name(e);
    bool failed = e->state == SRV_LOAD_FAILED || e->is_unavailable;
    if (lora && e->model) state = lora->lora ? "loaded" : "unloaded";
    jw_open(w, "status", '{');
    jw_text(w, "value", failed ? "unloaded" : e->first && !e->model ? "loading" : state);
    if (failed) jw_bool(w, "failed", true);
    jw_close(w);
}

/* Whole seconds of the date at which a model was last used, or null. */
static void write_last_used(const struct srv_entry *e, struct jw *w)
{
    int64_t ago_s = (int64_t)((clock_now_us() - e->used_us) / 1000000);
    jw_count(w, "last_used", e->used_us ? (int64_t)time(NULL) - ago_s : -1);
}

static void write_meta(const struct srv_entry *e, struct jw *w)
{
    const struct srv_model_facts *f = &e->source.facts;
    jw_fields(w,
              "meta { architecture %s n_params %jd n_vocab %d n_ctx %jd n_ctx_train %jd n_embd "
              "%d dtype %s",
              f->architecture, f->n_params, f->n_vocab, srv_entry_ctx(e), f->ctx_train_tokens,
              f->d_model, f->dtype);
    if (e->model) {
        const struct eng_info *info = eng_info(e->model->engine);
        jw_fields(w, "numerics %s size %jd fingerprint %s", info->numerics,
                  info->memory.weights_bytes, e->model->fingerprint);
    }
    jw_close(w);
}

static int64_t created(const struct srv_entry *e, const struct srv_lora *lora)
{
    return lora ? lora->created : e->model ? e->model->created : e->created;
}

static void write_model(const struct srv_entry *e, const struct srv_lora *lora, struct jw *w,
                        const char *name)
{
    const char *const *names = e->source.names;
    jw_fields(w, "{ id %s object %s created %jd owned_by %s", name, "model", created(e, lora),
              "hearth");
    write_status(e, lora, w);
    jw_fields(w, "max_model_len %jd root %s parent %s aliases [", srv_entry_ctx(e),
              lora ? lora->dir : names[0], lora ? names[0] : NULL);
    while (!strcmp(name, e->source.names[0]) && *++names)
        jw_text(w, NULL, *names);
    jw_fields(w, "} pinned %i in_flight %d", e->config->pin,
              (e->model ? e->model->n_refs : 0) + e->n_waiters);
    write_last_used(e, w);
    write_meta(e, w);
    jw_close(w);
}

/* ---- the Anthropic dialect ----------------------------------------------------------------- */

void srv_write_date(struct jw *w, const char *name, int64_t seconds)
{
    char text[32] = "";
    struct tm t;
    time_t at = (time_t)seconds;
    if (gmtime_r(&at, &t)) strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &t);
    jw_text(w, name, text);
}

static void write_anthropic_model(const struct srv_entry *e, const struct srv_lora *lora,
                                  struct jw *w, const char *name)
{
    int64_t ctx = srv_entry_ctx(e);
    jw_fields(w, "{ type %s id %s display_name %s", "model", name, name);
    srv_write_date(w, "created_at", created(e, lora));
    jw_fields(w, "lifecycle %s max_input_tokens %jd max_tokens %jd }", "active", ctx, ctx);
}

/* The names of all models, in their order. */
struct listing {
    struct srv_request *req;
    struct jw *w;             /* NULL: they are counted */
    const char *id;           /* only this name; NULL: all */
    int from, to;             /* the numbers of those that are written */
    int n;                    /* names so far */
    int found;                /* the number of `id`, or -1 */
    const char *first, *last; /* that were written; the request's */
};

static void list_name(struct listing *l, const struct srv_entry *e, const struct srv_lora *lora,
                      const char *name)
{
    int at = l->n++;
    if (l->id && strcmp(l->id, name) != 0) return;
    if (l->id) l->found = at;
    if (!l->w || at < l->from || at >= l->to) return;
    l->last = srv_request_copy(l->req, name, strlen(name) + 1);
    if (!l->first) l->first = l->last;
    if (srv_facts(l->req)->dialect == SRV_DIALECT_ANTHROPIC)
        write_anthropic_model(e, lora, l->w, name);
    else
        write_model(e, lora, l->w, name);
}

/* With the lock of the set held. */
static void list_names(void *ctx, const struct srv_entry *e)
{
    struct listing *l = ctx;
    const char *only = srv_facts(l->req)->only;
    const struct srv_models *set = &srv_facts(l->req)->app->models;
    if (srv_entry_is_of(e, only))
        for (int i = 0; e->source.names[i]; i++)
            list_name(l, e, NULL, e->source.names[i]);
    for (int i = 0; i < set->n_loras; i++)
        if (set->loras[i].entry == e->number && srv_lora_is_of(&set->loras[i], only))
            list_name(l, e, &set->loras[i], set->loras[i].name);
}

static void visit_names(struct listing *l)
{
    l->found = -1;
    srv_models_each_entry(&srv_facts(l->req)->app->models, list_names, l);
}

/* The numbers of the names on the page that the query asks for: [from, to) of n. */
struct page {
    int from, to, n;
    bool has_more;
};

/* Returns the number of the name a cursor holds, `preset` without a cursor, -1 for an unknown
 * name. */
static int cursor(struct srv_request *req, const char *key, int preset)
{
    struct listing l = {.req = req, .id = srv_request_query(req, key)};
    if (!l.id) return preset;
    visit_names(&l);
    return l.found;
}

/* Returns false if the query has been refused. */
static bool read_page(struct srv_request *req, struct page *p)
{
    const char *text = srv_request_query(req, "limit");
    char *end = NULL;
    long limit = text ? strtol(text, &end, 10) : PAGE_MODELS;
    bool good = limit >= 1 && limit <= MAX_PAGE_MODELS && (!text || !*end);
    int after = cursor(req, "after_id", -2), before = cursor(req, "before_id", p->n);
    if (!good || after == -1 || before == -1) {
        const char *param = !good ? "limit" : after == -1 ? "after_id" : "before_id";
        srv_reply_error(req, SRV_ERR_INVALID_VALUE, param,
                        good ? "'%s' must be the id of a model." : "'%s' must be from 1 to 1000.",
                        param);
        return false;
    }
    p->from = after < 0 ? 0 : after + 1;
    p->to = before;
    bool backwards = before < p->n;
    p->has_more = p->to - p->from > limit;
    if (p->has_more && backwards) p->from = p->to - (int)limit;
    if (p->has_more && !backwards) p->to = p->from + (int)limit;
    return true;
}

static void list_anthropic(struct srv_request *req)
{
    struct listing l = {.req = req};
    struct page p = {0};
    struct srv_object a;
    visit_names(&l);
    p.n = l.n;
    if (!read_page(req, &p)) return;
    struct jw *w = srv_object_open(&a, 4 << 20);
    jw_open(w, "data", '[');
    l = (struct listing){.req = req, .w = w, .from = p.from, .to = p.to};
    visit_names(&l);
    jw_fields(w, "} has_more %i first_id %s last_id %s", p.has_more, l.first, l.last);
    srv_object_reply(req, 200, &a);
}

/* ---- routes -------------------------------------------------------------------------------- */

static void list(struct srv_request *req)
{
    struct srv_object a;
    struct listing l = {.req = req, .w = &a.w, .to = INT_MAX};
    const char *reload = srv_request_query(req, "reload");
    srv_facts(req)->account.endpoint = "models";
    if (reload && !strcmp(reload, "1") && srv_facts(req)->app->config->models_dir)
        srv_models_post(&srv_facts(req)->app->models, SRV_TASK_SCAN);
    if (srv_facts(req)->dialect == SRV_DIALECT_ANTHROPIC) {
        list_anthropic(req);
        return;
    }
    struct jw *w = srv_object_open(&a, 4 << 20);
    jw_fields(w, "object %s data [", "list");
    visit_names(&l);
    jw_close(w);
    srv_object_reply(req, 200, &a);
}

static void item(struct srv_request *req)
{
    const char *id = srv_facts(req)->tail;
    struct buf b = {.max = 65536};
    struct jw w = {.out = &b};
    struct listing l = {.req = req, .w = &w, .id = id, .to = INT_MAX};
    srv_facts(req)->account.endpoint = "models";
    visit_names(&l);
    if (l.found >= 0)
        srv_reply(req, 200, NULL, jw_end(&w));
    else
        srv_reply_no_model(req, id);
    if (l.found < 0) buf_finish(&b);
}

const struct srv_route srv_routes_models[] = {
    {"GET", "/v1/models", ROUTE | SRV_ROUTE_RELOADS | SRV_ROUTE_BARE, SRV_DIALECT_EITHER, list,
     NULL},
    {"GET", "/v1/models/", ROUTE | SRV_ROUTE_PREFIX | SRV_ROUTE_BARE, SRV_DIALECT_EITHER, item,
     NULL},
    {0},
};
