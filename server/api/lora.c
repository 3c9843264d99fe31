/* SPDX-License-Identifier: MIT */
/*
 * Adapters over HTTP: vLLM's POST /v1/load_lora_adapter and /v1/unload_lora_adapter for the
 * operator, llama-server's /lora-adapters, and the field `lora` of requests.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/json_tree.h"
#include "server/api/read/json_fields.h"
#include "server/api/routes.h"
#include "server/config/config.h"
#include "server/models/app.h"
#include "server/models/lookup.h"
#include "server/models/loras.h"

/* ---- lists of adapters --------------------------------------------------------------------- */

int srv_lora_read(struct srv_request *req, const json_t *list, int entry, struct srv_lora_ask *ret)
{
    const struct srv_facts *f = srv_facts(req);
    struct srv_lora_ask places[ENG_MAX_LORAS];
    int n = (int)json_array_size(list);
    if (!json_is_array(list)) return param_wrong_type("lora", "an array");
    if (json_array_size(list) > ENG_MAX_LORAS)
        return param_fail(SRV_ERR_INVALID_VALUE, "lora", "At most %d adapters may be given.",
                          ENG_MAX_LORAS);
    for (int i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, (size_t)i), *id = json_object_get(item, "id"),
                     *scale = json_object_get(item, "scale");
        if (!json_is_integer(id) || !json_is_number(scale) ||
            !(fabs(json_number_value(scale)) <= ENG_MAX_LORA_SCALE))
            return param_fail(SRV_ERR_INVALID_VALUE, "lora",
                              "An adapter must be {\"id\": an integer, \"scale\": -%d to %d}.",
                              ENG_MAX_LORA_SCALE, ENG_MAX_LORA_SCALE);
        places[i].which = (uint64_t)json_integer_value(id);
        places[i].scale = (float)json_number_value(scale);
    }
    if (srv_loras_at(&f->app->models, f->only, entry, places, n, ret) == n) return n;
    return param_fail(SRV_ERR_INVALID_VALUE, "lora",
                      "An id is not one of this model's in GET /lora-adapters, or given twice.");
}

static void list(struct srv_request *req)
{
    struct srv_models *set = &srv_facts(req)->app->models;
    struct buf b = {.max = 64 << 20};
    struct jw w = {.out = &b};
    srv_facts(req)->account.endpoint = "models";
    jw_open(&w, NULL, '[');
    pthread_mutex_lock(&set->lock);
    for (int i = 0; i < set->n_loras; i++) {
        const struct srv_lora *l = &set->loras[i];
        if (!srv_lora_is_of(l, srv_facts(req)->only)) continue;
        jw_fields(&w, "{ id %d name %s path %s scale %g }", i, l->name, l->dir, (double)l->scale);
    }
    pthread_mutex_unlock(&set->lock);
    jw_close(&w);
    srv_reply(req, 200, NULL, jw_end(&w));
}

/* The adapters of requests that name none. */
static void set_usual(struct srv_request *req)
{
    const struct srv_facts *f = srv_facts(req);
    struct srv_lora_ask asks[ENG_MAX_LORAS];
    char why[200];
    json_auto_t *root = NULL;
    srv_facts(req)->account.endpoint = "models";
    int n = jt_read_file(&root, "body", f->body, f->body_len, JT_REPEATS, why, sizeof(why))
                ? param_fail(SRV_ERR_INVALID_JSON, NULL, "%s", why)
                : srv_lora_read(req, root, -1, asks);
    if (n < 0) {
        param_reply(req);
        return;
    }
    struct srv_object a;
    srv_loras_set_usual(&srv_facts(req)->app->models, asks, n);
    jw_bool(srv_object_open(&a, 64), "success", true);
    srv_object_reply(req, 200, &a);
}

/* ---- vLLM's calls -------------------------------------------------------------------------- */

struct lora_params {
    const char *name, *path, *base;
    bool in_place;
};

#define FIELD(name, type, member, otherwise, meaning)                                              \
    {                                                                                              \
        PARAM_FIELD(struct lora_params, name, type, member, otherwise, meaning)                    \
    }

const struct param_field srv_fields_load_lora[] = {
    FIELD("lora_name", PARAM_STRING, name, NULL, "the name that requests use as `model`"),
    FIELD("lora_path", PARAM_STRING, path, NULL,
          "a directory in that of `--lora-dir`, or `org/name` in the cache"),
    FIELD("base_model_name", PARAM_STRING, base, "the default model", "the model that it is for"),
    FIELD("load_inplace", PARAM_BOOL, in_place, "`false`",
          "replace the adapter that has the name; requests that use it end with it"),
    {0},
};

const struct param_field srv_fields_unload_lora[] = {
    FIELD("lora_name", PARAM_STRING, name, NULL, "the name of the adapter"),
    {.name = "lora_int_id", .type = PARAM_IGNORED, .meaning = "accepted, no effect"},
    {0},
};

/* The directory of an adapter that an operator names. Returns 0, or -1 with a reason. */
static int find_files(const struct srv_config *c, const char *path, char dir[PATH_MAX], char *err,
                      size_t errlen)
{
    char folder[PATH_MAX];
    if (*path != '/' && !srv_hub_is_directory(path))
        return srv_hub_resolve_cached(path, NULL, dir, PATH_MAX, err, errlen);
    size_t len = c->lora_dir && realpath(c->lora_dir, folder) ? strlen(folder) : 0;
    if (len && realpath(path, dir) && !strncmp(dir, folder, len) && dir[len] == '/') return 0;
    snprintf(err, errlen, "there is no such directory in that of --lora-dir");
    return -1;
}

static int load(struct srv_request *req, const struct lora_params *p)
{
    struct srv_models *set = &srv_facts(req)->app->models;
    char dir[PATH_MAX], why[700];
    int entry = p->base ? srv_models_find(set, p->base) : atomic_load(&set->default_entry), other;
    if (!p->name || !p->path || !*p->name || !*p->path)
        return param_fail(SRV_ERR_MISSING, p->name && *p->name ? "lora_path" : "lora_name",
                          "Both 'lora_name' and 'lora_path' must be provided.");
    if (strlen(p->name) > SRV_LORA_NAME_MAX)
        return param_fail(SRV_ERR_INVALID_VALUE, "lora_name",
                          "'lora_name' must have at most %d bytes.", SRV_LORA_NAME_MAX);
    if (entry < 0)
        return param_fail(SRV_ERR_MODEL_NOT_FOUND, "base_model_name",
                          "No model has the name '%.64s'.", p->base ? p->base : "");
    if (srv_models_find(set, p->name) >= 0)
        return param_fail(SRV_ERR_INVALID_VALUE, "lora_name",
                          "The lora adapter '%.64s' conflicts with a served base model.", p->name);
    if (!p->in_place && srv_loras_find(set, NULL, p->name, &other))
        return param_fail(SRV_ERR_INVALID_VALUE, "lora_name",
                          "The lora adapter '%.64s' has already been loaded. If you want to load "
                          "the adapter in place, set 'load_inplace' to True.",
                          p->name);
    if (find_files(set->entries[entry]->config, p->path, dir, why, sizeof(why)))
        return param_fail(SRV_ERR_MODEL_NOT_FOUND, "lora_path", "%s", why);
    int rc = srv_loras_put(set, p->name, dir, entry, why, sizeof(why));
    return rc == 0 ? 0
                   : param_fail(rc == ENG_EQUEUEFULL ? SRV_ERR_OVERLOADED
                                : rc == ENG_ENOENT   ? SRV_ERR_MODEL_NOT_FOUND
                                                     : SRV_ERR_MODEL_INVALID,
                                "lora_path", "%s", why);
}

static int unload(struct srv_request *req, const struct lora_params *p)
{
    if (!p->name)
        return param_fail(SRV_ERR_MISSING, "lora_name",
                          "'lora_name' needs to be provided to unload a LoRA adapter.");
    if (srv_loras_remove(&srv_facts(req)->app->models, p->name)) return 0;
    return param_fail(SRV_ERR_MODEL_NOT_FOUND, "lora_name",
                      "The lora adapter '%.64s' cannot be found.", p->name);
}

/* arg: the fields. */
static void handle(struct srv_request *req)
{
    const struct srv_facts *f = srv_facts(req);
    bool loads = f->arg == srv_fields_load_lora;
    struct lora_params p = {0};
    struct param_unknown unknown = {0};
    AUTO(srv_body_finish) struct srv_body body;
    srv_facts(req)->account.endpoint = "swap";
    int rc = srv_body_read(&body, f->body, f->body_len, PARAM_MAX_VALUES) ||
             params_read(body.root, f->arg, &p, &unknown) || (loads ? load : unload)(req, &p) ||
             param_name_ignored(req, &unknown);
    if (rc) {
        param_reply(req);
    } else {
        struct buf b = {.max = 1024};
        buf_printf(&b, "Success: LoRA adapter '%s' %s successfully.", p.name,
                   loads ? "added" : "removed");
        srv_reply(req, 200, "text/plain; charset=utf-8", &b);
    }
}

const struct srv_route srv_routes_lora[] = {
    {"POST", "/v1/load_lora_adapter", SRV_ROUTE_OPERATOR, SRV_DIALECT_OPENAI, handle,
     srv_fields_load_lora},
    {"POST", "/v1/unload_lora_adapter", SRV_ROUTE_OPERATOR, SRV_DIALECT_OPENAI, handle,
     srv_fields_unload_lora},
    {"GET", "/lora-adapters", SRV_ROUTE_INLINE | SRV_ROUTE_NO_MODEL, SRV_DIALECT_OPENAI, list,
     NULL},
    {"POST", "/lora-adapters", SRV_ROUTE_OPERATOR, SRV_DIALECT_OPENAI, set_usual, NULL},
    {0},
};
