/* SPDX-License-Identifier: MIT */
/*
 * The routes by which clients of Ollama's dialect learn what there is: GET /api/version, /api/tags,
 * /api/ps, POST /api/show, /api/pull. None loads a model.
 */
#include "base/gguf_names.h"
#include "base/auto.h"
#include "base/hex.h"
#include "base/json_writer.h"
#include "engine/engine.h"
#include "server/api/read/json_fields.h"
#include "server/api/routes.h"
#include "server/models/app.h"
#include "server/models/catalogue.h"

/* The level of the dialect: clients ask for 0.6.4 or later. */
static const char level[] = "0.20.0";

static void version(struct srv_request *req)
{
    struct srv_object a;
    srv_facts(req)->account.endpoint = "models";
    jw_text(srv_object_open(&a, 64), "version", level);
    srv_object_reply(req, 200, &a);
}

/* ---- a model ------------------------------------------------------------------------------- */

static unsigned abilities_of(const struct srv_entry *e)
{
    if (e->model) return srv_abilities(&e->model->style, e->model->chat, &e->model->fim);
    return e->source.facts.abilities;
}

static void write_abilities(const struct srv_entry *e, struct jw *w)
{
    static const char *const names[] = {"tools", "insert", "thinking"};
    unsigned abilities = abilities_of(e);
    jw_open(w, "capabilities", '[');
    jw_text(w, NULL, e->source.facts.generates ? "completion" : "embedding");
    for (int i = 0; e->source.facts.generates && i < 3; i++)
        if (abilities & (1u << i)) jw_text(w, NULL, names[i]);
    jw_close(w);
}

static void write_details(const struct srv_entry *e, struct jw *w)
{
    const struct srv_model_facts *f = &e->source.facts;
    char size[32], tag[GGUF_TAG_SIZE];
    bool millions = f->n_params < 1000000000;
    snprintf(size, sizeof(size), "%.*f%c", millions ? 2 : 1,
             (double)f->n_params / (millions ? 1e6 : 1e9), millions ? 'M' : 'B');
    jw_fields(w, "details { parent_model %s format %s family %s families [", "",
              f->is_gguf ? "gguf" : "safetensors", f->family);
    jw_text(w, NULL, f->family);
    jw_fields(w, "} parameter_size %s", size);
    if (f->is_gguf) gguf_tag_of(e->source.dir, tag);
    jw_fields(w, "quantization_level %s }", f->is_gguf ? tag : f->dtype);
}

/* ---- lists --------------------------------------------------------------------------------- */

struct listing {
    struct jw *w;
    bool loaded;      /* only these */
    const char *only; /* and those of the key */
};

/* With the lock of the set held. */
static void list_entry(void *ctx, const struct srv_entry *e)
{
    static const char never[] = "2318-01-01T00:00:00Z";
    const struct listing *l = ctx;
    const struct srv_model_facts *f = &e->source.facts;
    struct jw *w = l->w;
    if (!srv_entry_is_of(e, l->only)) return;
    char digest[2 * sizeof(f->digest) + 1];
    hex_write(digest, e->model ? e->model->source : f->digest, sizeof(f->digest));
    for (int i = 0; e->source.names[i] && (e->model || !l->loaded); i++) {
        jw_fields(w, "{ name %s model %s", e->source.names[i], e->source.names[i]);
        srv_write_date(w, "modified_at", f->modified_s);
        jw_fields(w, "size %jd digest %s", f->file_bytes, digest);
        write_details(e, w);
        write_abilities(e, w);
        if (l->loaded) {
            jw_fields(w, "expires_at %s size_vram %d context_length %jd", never, 0,
                      srv_entry_ctx(e));
        }
        jw_close(w);
    }
}

static void list(struct srv_request *req)
{
    struct srv_models *models = &srv_facts(req)->app->models;
    struct srv_object a;
    struct listing l = {srv_object_open(&a, 4 << 20), srv_facts(req)->arg != NULL,
                        srv_facts(req)->only};
    srv_facts(req)->account.endpoint = "models";
    if (!l.loaded) srv_catalogue_know(models);
    jw_open(l.w, "models", '[');
    srv_models_each_entry(models, list_entry, &l);
    jw_close(l.w);
    srv_object_reply(req, 200, &a);
}

/* ---- one ----------------------------------------------------------------------------------- */

struct asked {
    const char *model, *name;
};

const struct param_field srv_fields_ollama_model[] = {
    {PARAM_FIELD(struct asked, "model", PARAM_STRING, model, NULL, "a name of the model")},
    {PARAM_FIELD(struct asked, "name", PARAM_STRING, name, NULL, "the same")},
    {.name = "verbose", .type = PARAM_IGNORED},
    {.name = "stream", .type = PARAM_IGNORED},
    {.name = "insecure", .type = PARAM_IGNORED},
    {0},
};

struct showing {
    struct jw *w;
    int entry;
    const char *name;
};

/* With the lock of the set held. */
static void show_entry(void *ctx, const struct srv_entry *e)
{
    const struct showing *s = ctx;
    const struct srv_model_facts *f = &e->source.facts;
    struct jw *w = s->w;
    char key[64];
    if (e->number != s->entry) return;
    jw_fields(w, "license %s modelfile %s", "", "");
    snprintf(key, sizeof(key), "num_ctx %lld", (long long)srv_entry_ctx(e));
    jw_fields(w, "parameters %s template %s", key,
              abilities_of(e) & SRV_CAN_INSERT ? "{{ .Prompt }}{{ .Suffix }}" : "{{ .Prompt }}");
    write_details(e, w);
    jw_open(w, "model_info", '{');
    jw_text(w, "general.architecture", f->family);
    jw_text(w, "general.basename", s->name);
    jw_int(w, "general.parameter_count", f->n_params);
    snprintf(key, sizeof(key), "%s.context_length", f->family);
    jw_int(w, key, srv_entry_ctx(e));
    snprintf(key, sizeof(key), "%s.embedding_length", f->family);
    jw_int(w, key, f->d_model);
    jw_close(w);
    write_abilities(e, w);
    srv_write_date(w, "modified_at", f->modified_s);
}

static void answer_show(struct srv_request *req, int entry, const char *name)
{
    struct srv_models *models = &srv_facts(req)->app->models;
    struct srv_object a;
    struct showing s = {srv_object_open(&a, 65536), entry, name};
    srv_catalogue_know(models);
    srv_models_each_entry(models, show_entry, &s);
    srv_object_reply(req, 200, &a);
}

static void answer_pull(struct srv_request *req)
{
    struct srv_object a;
    jw_text(srv_object_open(&a, 64), "status", "success");
    srv_object_reply(req, 200, &a);
}

static void one(struct srv_request *req)
{
    struct asked asked = {0};
    struct param_unknown unknown = {0};
    AUTO(srv_body_finish) struct srv_body body;
    bool pulls = srv_facts(req)->arg != NULL;
    srv_facts(req)->account.endpoint = "models";
    int rc = srv_body_take(&body, srv_facts(req), PARAM_MAX_VALUES) ||
             params_read(body.root, srv_fields_ollama_model, &asked, &unknown) ||
             param_name_ignored(req, &unknown);
    const char *name = asked.model ? asked.model : asked.name ? asked.name : "";
    int entry =
        rc ? -1
           : srv_models_find_of(&srv_facts(req)->app->models, srv_facts(req)->only, name, true);
    if (rc)
        param_reply(req);
    else if (entry < 0)
        srv_reply_error(req, SRV_ERR_MODEL_NOT_FOUND, "model",
                        "model '%.120s' not found: fetch it with hearth pull", name);
    else if (pulls)
        answer_pull(req);
    else
        answer_show(req, entry, name);
}

const struct srv_route srv_routes_ollama_models[] = {
    {"GET", "/api/version", SRV_ROUTE_OPEN | SRV_ROUTE_INLINE | SRV_ROUTE_EARLY, SRV_DIALECT_OLLAMA,
     version, NULL},
    {"GET", "/api/tags", SRV_ROUTE_NO_MODEL, SRV_DIALECT_OLLAMA, list, NULL},
    {"GET", "/api/ps", SRV_ROUTE_NO_MODEL, SRV_DIALECT_OLLAMA, list, "loaded"},
    {"POST", "/api/show", SRV_ROUTE_NO_MODEL, SRV_DIALECT_OLLAMA, one, NULL},
    {"POST", "/api/pull", SRV_ROUTE_NO_MODEL, SRV_DIALECT_OLLAMA, one, "pull"},
    {0},
};
