/* SPDX-License-Identifier: MIT */
/* Names and memory of the models of the configuration, and of a folder; see catalogue.h. */
#include "server/models/catalogue.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/gguf.h"
#include "base/gguf_names.h"
#include "engine/engine.h"
#include "server/log.h"
#include "server/models/lookup.h"
#include "tokenizer/chat/chat.h"

enum { MIB = 1 << 20 };

/* The configuration of an entry in [0, 1 + n_more). */
static const struct srv_config *config_of(const struct srv_config *c, int entry)
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
        if (srv_catalogue_names(config_of(c, n), own, &plans[n].names))
            return fail_with(ENG_ENOMEM, err, errlen, "out of memory");
        for (int i = 0; i < n; i++) {
            const char *name = common_name(&plans[i].names, names);
            if (!name) continue;
            return fail_with(
                ENG_EINVAL, err, errlen,
                "the models '%.100s' and '%.100s' both answer to the name '%.100s'; name or "
                "alias one of them differently",
                plans[i].names.items[0], names->items[0], name);
        }
    }
    return 0;
}

/* ---- memory -------------------------------------------------------------------------------- */

struct srv_model_params srv_catalogue_params(const struct srv_config *c, int entry, const char *dir,
                                             const struct srv_share *share)
{
    const struct srv_config *own = config_of(c, entry);
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
        const struct srv_config *own = config_of(c, i);
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
    const char *name = n->other < 0 ? NULL : config_of(c, n->other)->entry;
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
        const struct srv_config *own = config_of(c, i);
        bool must = must_start(own, i);
        if (must || !is_demand(own)) fit_add(&sum[0], plans[i].bytes);
        if (must) fit_add(&sum[1], plans[i].bytes);
    }
    for (int must = 0; must < 2; must++) {
        if (!fit_holds(room, sum[must])) continue;
        for (int i = 0; i <= c->n_more; i++) {
            const struct srv_config *own = config_of(c, i);
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
            at_once = at_once && !is_demand(config_of(c, i));
        if (at_once)
            share_among_all(&needs, c, plans);
        else if ((rc = share_by_turns(&needs, c, plans, err, errlen)))
            return rc;
    }
    for (int i = 0; i < n; i++) {
        struct eng_memory *m = &plans[i].memory;
        rc = plan_one(c, i, dir, &plans[i].share, m, err, errlen);
        if (rc == ENG_ENOMEM && n > 1 && !config_of(c, i)->pin) {
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
    snprintf(f->family, sizeof(f->family), "%s", c->model_type ? c->model_type : "");
    f->ctx_tokens = f->ctx_train_tokens = c->ctx_tokens;
    f->generates = c->generates;
    f->n_vocab = c->vocab_size;
    f->d_model = c->hidden_size;
}

static void note_tensor(void *ctx, const struct eng_inspect_tensor *t)
{
    ((struct srv_model_facts *)ctx)->file_bytes += t->n_bytes;
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
        .config = note_config, .tensor = note_tensor, .weights = note_weights, .ctx = ret};
    struct stat st;
    *ret = (struct srv_model_facts){.is_gguf = gguf_is_path(dir)};
    if (!stat(dir, &st)) ret->modified_s = st.st_mtime;
    eng_inspect(dir, &inspector);
    if (ctx_tokens) ret->ctx_tokens = ctx_tokens;
    if (ret->generates) return;
    if (!srv_retrieval_read(&files, dir, 0, err, sizeof(err)) && files.max_tokens &&
        files.max_tokens < ret->ctx_tokens)
        ret->ctx_tokens = files.max_tokens;
    srv_retrieval_finish(&files);
}

/* An entry that is not known. */
struct unknown {
    int number;
    char dir[PATH_MAX], draft_dir[PATH_MAX];
    struct srv_config config; /* a copy: that of an entry that was found may be replaced */
};

/* With the lock of the set held. */
static void find_unknown(void *ctx, const struct srv_entry *e)
{
    struct unknown *u = ctx;
    if (u->number >= 0 || e->model || e->source.facts.is_known) return;
    u->number = e->number;
    u->config = *e->config;
    snprintf(u->dir, sizeof(u->dir), "%s", e->source.dir);
    snprintf(u->draft_dir, sizeof(u->draft_dir), "%s",
             e->source.draft_dir ? e->source.draft_dir : "");
}

static unsigned read_abilities(const struct unknown *u)
{
    const struct tok_chat_params params = {.template_file = u->config.chat_template_file,
                                           .tokenizer_dir = u->config.tokenizer};
    struct tok_chat *chat = NULL;
    struct tok *tok = NULL;
    struct tools_style style;
    struct tok_fim fim;
    char err[300];
    unsigned ret = 0;
    if (tok_chat_open(&chat, u->dir, &params, err, sizeof(err))) chat = NULL;
    if (tok_open_from(&tok, u->dir, u->config.tokenizer, err, sizeof(err))) tok = NULL;
    if (tok && !tools_detect(&style, chat, u->config.tool_format) &&
        !tok_fim_find(&fim, tok, tok_vocab_size(tok), u->config.fim_marks, err, sizeof(err)))
        ret = srv_abilities(&style, chat, &fim);
    tok_chat_close(chat);
    tok_close(tok);
    return ret;
}

void srv_catalogue_know(struct srv_models *set)
{
    for (struct unknown u = {.number = -1};; u.number = -1) {
        srv_models_each_entry(set, find_unknown, &u);
        if (u.number < 0) return;
        uint8_t digest[32] = {0};
        srv_model_source(u.dir, *u.draft_dir ? u.draft_dir : NULL, digest);
        srv_models_note(set, u.number, u.dir, read_abilities(&u), digest);
    }
}

/* ---- models that were found ---------------------------------------------------------------- */

/* Plans an entry next to the pinned ones; it drains if it is loaded. own: its configuration, if it
 * is new. digest: srv_model_source. */
static void plan_found(struct srv_models *set, struct srv_entry *e, struct srv_config *own,
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

/* A walk through the folder. */
struct scan {
    struct srv_models *set;
    const struct srv_config *c;
    bool found[POLICY_ENTRIES];
};

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
static struct srv_config *found_config(const struct srv_config *found, const char *dir,
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
    struct srv_config *own = e ? NULL : found_config(s->c->found, dir, name);
    if (own) {
        const char *names[] = {name};
        const struct srv_model_params p = {.dir = dir, .names = {names, 1}};
        e = srv_models_add(s->set, own, &p);
        if (!e)
            free(own);
        else if (atomic_load(&s->set->default_entry) < 0 && !strcmp(name, s->c->default_model))
            atomic_store(&s->set->default_entry, e->number); /* from now on it is listed */
    }
    if (!e) {
        srv_log(SRV_LOG_ERROR, "models: %s is left out: there are too many models", dir);
        return;
    }
    s->found[e->number] = true;
    plan_found(s->set, e, own, digest);
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
        struct stat st;
        const char *file = found[i]->d_name;
        int len = snprintf(path, sizeof(path), "%s/%s", dir, file);
        int name_len = snprintf(name, sizeof(name), "%s%s", prefix, file);
        srv_name_mend(name);
        bool good = *file != '.' && len < PATH_MAX && name_len < (int)sizeof(name) - 1;
        if (good && !lstat(path, &st) && S_ISDIR(st.st_mode)) {
            if (file_exists(path, "config.json")) {
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

void srv_catalogue_scan(struct srv_models *set, const struct srv_config *c)
{
    struct scan s = {.set = set, .c = c};
    walk(&s, c->models_dir, "", 0);
    for (int i = 0; i < set->n_entries; i++)
        if (set->entries[i]->own && !set->entries[i]->gone && !s.found[i])
            srv_models_remove(set, i);
}
