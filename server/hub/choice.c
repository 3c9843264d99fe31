/* SPDX-License-Identifier: MIT */
/* The choice of files; see choice.h. */
#include "server/hub/choice.h"

#include <stdio.h>
#include <string.h>

#include "base/json_reader.h"
#include "server/hub/hub_error.h"

static const char *const needed[] = {HUB_CONFIG_NAME, "tokenizer.json"};

static const char *const optional[] = {
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "modules.json",
    "1_Pooling/config.json",
};

static bool ends_with(const char *text, const char *suffix)
{
    size_t len = strlen(text), n = strlen(suffix);
    return len >= n && strcmp(text + len - n, suffix) == 0;
}

static bool mark(struct hub_listing *l, const char *path)
{
    struct hub_file *f = hub_listing_find(l, path);
    if (f) f->wanted = true;
    return f != NULL;
}

/* additional_chat_templates/NAME.jinja, one level deep. */
static void mark_templates(struct hub_listing *l)
{
    static const char folder[] = "additional_chat_templates/";
    for (size_t i = 0; i < l->n; i++) {
        const char *path = l->files[i].path;
        if (strncmp(path, folder, sizeof(folder) - 1) != 0) continue;
        if (!strchr(path + sizeof(folder) - 1, '/') && ends_with(path, ".jinja"))
            l->files[i].wanted = true;
    }
}

/* The first file whose name ends in one of these, or NULL. */
static const char *find_suffix(const struct hub_listing *l, const char *const *suffixes, int n)
{
    for (size_t i = 0; i < l->n; i++)
        for (int j = 0; j < n; j++)
            if (ends_with(l->files[i].path, suffixes[j])) return l->files[i].path;
    return NULL;
}

static int refuse_weights(const struct hub_listing *l, const char *repo, char *err)
{
    static const char *const pickles[] = {".bin", ".pt", ".pth", ".ckpt"};
    static const char *const others[] = {".safetensors", ".gguf", ".onnx", ".h5", ".msgpack"};
    const char *pickle = find_suffix(l, pickles, 4), *other = find_suffix(l, others, 5);
    if (pickle)
        return hub_fail(err, HUB_ENOTSERVED,
                        "%s has no safetensors weights (it has %.200s; pickle files can run code "
                        "and are never read)",
                        repo, pickle);
    if (other)
        return hub_fail(err, HUB_ENOTSERVED,
                        "%s has no " HUB_WEIGHTS_NAME " in its root (it has %.200s, which is not "
                        "read)",
                        repo, other);
    return hub_fail(err, HUB_ENOTSERVED, "%s has no safetensors weights", repo);
}

int hub_choose(struct hub_listing *l, const char *repo, char *err)
{
    if (!hub_listing_find(l, HUB_WEIGHTS_NAME) && !hub_listing_find(l, HUB_INDEX_NAME))
        return refuse_weights(l, repo, err);
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (mark(l, needed[i])) continue;
        return hub_fail(err, HUB_ENOTSERVED, "%s has no %s", repo, needed[i]);
    }
    for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
        mark(l, optional[i]);
    mark_templates(l);
    if (!mark(l, HUB_WEIGHTS_NAME)) mark(l, HUB_INDEX_NAME);
    return 0;
}

/* ---- the index ------------------------------------------------------------------------------ */

struct visit {
    struct jr json;
    bool (*take)(void *ctx, const char *name);
    void *ctx;
    bool refused; /* by take */
    bool any;
};

static int visit_shard(struct visit *v)
{
    const char *text;
    size_t len;
    char name[HUB_SEGMENT_MAX + 1];
    int rc = jr_string(&v->json, &text, &len);
    if (rc) return rc;
    if (!hub_path_is_safe(text, len) || len >= sizeof(name) || memchr(text, '/', len)) {
        snprintf(v->json.err, v->json.errlen, "the index names a shard by an unsafe path");
        return JR_EINVAL;
    }
    memcpy(name, text, len);
    name[len] = '\0';
    v->any = true;
    v->refused = !v->take(v->ctx, name);
    return v->refused ? JR_EINVAL : 0;
}

static int visit_map(struct visit *v)
{
    const char *key;
    size_t len;
    bool first = true;
    int rc = jr_open(&v->json, '{');
    while (!rc && (rc = jr_more(&v->json, '}', &first)) == 1) {
        rc = jr_key(&v->json, &key, &len);
        if (!rc) rc = visit_shard(v);
    }
    return rc;
}

static int visit_index(struct visit *v)
{
    static const char map[] = "weight_map";
    const char *key;
    size_t len;
    bool first = true;
    int rc = jr_open(&v->json, '{');
    while (!rc && (rc = jr_more(&v->json, '}', &first)) == 1) {
        rc = jr_key(&v->json, &key, &len);
        if (rc) return rc;
        if (len == sizeof(map) - 1 && memcmp(key, map, len) == 0)
            rc = visit_map(v);
        else
            rc = jr_skip(&v->json, &key, &len);
    }
    return rc ? rc : jr_end(&v->json);
}

int hub_shards_visit(const char *index, size_t len, bool (*take)(void *ctx, const char *name),
                     void *ctx, char *err)
{
    struct visit v = {.take = take, .ctx = ctx};
    jr_init(&v.json, index, len, 0, err, HUB_ERR_SIZE);
    int rc = visit_index(&v);
    jr_finish(&v.json);
    if (rc == 0 && v.any) return 0;
    if (rc == 0) snprintf(err, HUB_ERR_SIZE, "the index names no shard");
    if (v.refused) err[0] = '\0';
    return -1;
}

struct marking {
    struct hub_listing *listing;
    char wrong[HUB_SEGMENT_MAX + 1];
    const char *problem;
};

static bool mark_shard(void *ctx, const char *name)
{
    struct marking *m = ctx;
    bool is_safetensors = ends_with(name, ".safetensors");
    if (is_safetensors && mark(m->listing, name)) return true;
    snprintf(m->wrong, sizeof(m->wrong), "%s", name);
    m->problem = is_safetensors ? "which the hub does not list" : "which is not a safetensors file";
    return false;
}

int hub_choose_shards(struct hub_listing *l, const char *index, size_t len, char *err)
{
    struct marking m = {.listing = l};
    char reason[HUB_ERR_SIZE] = "";
    if (hub_shards_visit(index, len, mark_shard, &m, reason) == 0) return 0;
    if (m.problem)
        return hub_fail(err, HUB_EWRONG, HUB_INDEX_NAME " names %s, %s", m.wrong, m.problem);
    return hub_fail(err, HUB_EWRONG, HUB_INDEX_NAME ": %.200s", reason);
}
