/* SPDX-License-Identifier: MIT */
/*
 * The safetensors files of a model: one file, or the shards that an index names. Every tensor must
 * be in the shard that the index says, and names must not lead out of the directory.
 */
#include "engine/model/weights.h"

#include <assert.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/gguf_names.h"
#include "engine/eng_error.h"
#include "engine/model/config_json.h"

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

enum { MAX_INDEX_BYTES = 64 << 20, MAX_SHARDS = 4096, ERR_BYTES = 512 };

/*
 * Returns true for a relative path without "." and "..". Links are allowed: the hub's cache
 * consists of them.
 */
static bool stays_inside(const char *name)
{
    if (*name == '\0' || *name == '/' || strlen(name) > 255) return false;
    for (const char *part = name; part;) {
        const char *slash = strchr(part, '/');
        size_t len = slash ? (size_t)(slash - part) : strlen(part);
        if (len == 0 || (part[0] == '.' && (len == 1 || (len == 2 && part[1] == '.'))))
            return false;
        part = slash ? slash + 1 : NULL;
    }
    return true;
}

/* `seen` is the set of the files met so far. */
static int add_file(struct eng_index *index, json_t *seen, const char *tensor, const json_t *value,
                    char *err, size_t errlen)
{
    const char *file = json_string_value(value);
    if (!file || !stays_inside(file))
        return fail_with(
            ENG_EINVAL, err, errlen,
            "%s: tensor %.200s is in \"%.200s\", which is not a file name within the directory",
            index_name, tensor, file ? file : "(not a string)");
    if (json_object_get(seen, file)) return 0;
    if (index->n_files == MAX_SHARDS)
        return fail_with(ENG_EINVAL, err, errlen, "%s: names more than %d files", index_name,
                         MAX_SHARDS);
    index->files[index->n_files++] = file;
    if (json_object_set_new(seen, file, json_true()) == 0) return 0;
    return fail_with(ENG_ENOMEM, err, errlen, "%s: no memory", index_name);
}

int eng_index_parse(struct eng_index *index, const char *text, size_t len, char *err, size_t errlen)
{
    json_t *root = NULL;
    int rc = eng_json_parse(&root, text, len, index_name, err, errlen);
    if (rc) return rc;
    index->root = root;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return fail_with(ENG_EINVAL, err, errlen, "%s: has no weight_map", index_name);
    index->files = calloc(MAX_SHARDS, sizeof(*index->files));
    json_t *seen = json_object();
    if (!index->files || !seen) {
        json_decref(seen);
        return fail_with(ENG_ENOMEM, err, errlen, "%s: no memory", index_name);
    }
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        rc = add_file(index, seen, tensor, value, err, errlen);
        if (rc) break;
    }
    json_decref(seen);
    return rc;
}

void eng_index_finish(struct eng_index *index)
{
    json_decref(index->root);
    free(index->files);
    *index = (struct eng_index){0};
}

static int compare_name(const void *a, const void *b)
{
    const struct eng_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* The name without the prefix of a model that was saved while torch.compile had it. */
static const char *plain_name(const char *name)
{
    static const char compiled[] = "_orig_mod.";
    size_t n = sizeof(compiled) - 1;
    return strncmp(name, compiled, n) == 0 ? name + n : name;
}

/* peft's names: each matrix beside those of an adapter, which no product here has. */
static int refuse_adapted(const struct eng_weights *w, struct eng_report *r)
{
    static const char adapted[] = "base_model.model.";
    for (size_t i = 0; i < w->n_tensors; i++)
        if (strncmp(w->by_name[i]->name, adapted, sizeof(adapted) - 1) == 0)
            return eng_report_problem(
                r, ENG_EUNSUPPORTED,
                "%s: tensor %.200s: names that begin with %s are of a model saved with its "
                "adapter; merge it (peft: merge_and_unload) and save the model again",
                w->by_name[i]->shard->name, w->by_name[i]->name, adapted);
    return r->rc;
}

/* Sorts all tensors by name and reports those that are in two files. */
static int list_tensors(struct eng_weights *w, struct eng_report *r)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n_shards; i++)
        n += w->shards[i].n_tensors;
    w->by_name = calloc(n + 1, sizeof(*w->by_name));
    if (!w->by_name) return eng_report_problem(r, ENG_ENOMEM, "no memory to list %zu tensors", n);
    for (size_t i = 0; i < w->n_shards; i++)
        for (size_t j = 0; j < w->shards[i].n_tensors; j++) {
            struct eng_tensor *t = w->by_name[w->n_tensors++] = &w->shards[i].tensors[j];
            t->name = plain_name(t->name);
        }
    assert(w->n_tensors == n);
    qsort(w->by_name, n, sizeof(*w->by_name), compare_name);
    for (size_t i = 1; i < n; i++) {
        const struct eng_tensor *a = w->by_name[i - 1], *b = w->by_name[i];
        if (strcmp(a->name, b->name) == 0)
            eng_report_problem(r, ENG_EINVAL, "tensor %.200s is in two files, %s and %s", a->name,
                               a->shard->name, b->shard->name);
    }
    return r->rc;
}

static struct eng_tensor *find_exact(const struct eng_weights *w, const char *name)
{
    const struct eng_tensor key = {.name = name}, *want = &key;
    struct eng_tensor *const *found =
        w->n_tensors ? bsearch(&want, w->by_name, w->n_tensors, sizeof(*w->by_name), compare_name)
                     : NULL;
    return found ? *found : NULL;
}

struct eng_tensor *eng_weights_find(const struct eng_weights *w, const char *name)
{
    static const struct {
        const char *end, *old;
    } renamed[] = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}};
    struct eng_tensor *t = find_exact(w, name);
    size_t len = strlen(name);
    for (size_t i = 0; !t && i < sizeof(renamed) / sizeof(renamed[0]); i++) {
        char old[300];
        size_t end = strlen(renamed[i].end), n = len - end;
        if (len < end || n > sizeof(old) - 20 || strcmp(name + n, renamed[i].end) != 0) continue;
        snprintf(old, sizeof(old), "%.*s%s", (int)n, name, renamed[i].old);
        t = find_exact(w, old);
    }
    return t;
}

/* Every tensor of the index must be in the shard it names. */
static void check_index(const struct eng_weights *w, const struct eng_index *index,
                        struct eng_report *r)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(index->root, "weight_map"), name, value)
    {
        const struct eng_tensor *t = eng_weights_find(w, plain_name(name));
        const char *file = json_string_value(value);
        if (!t || strcmp(t->shard->name, file) != 0)
            eng_report_problem(r, ENG_EINVAL,
                               "%s: tensor %.200s is not in %s, where %s lists it: is the file "
                               "from another model?",
                               file, name, file, index_name);
    }
}

static int open_shards(struct eng_weights *w, const char *dir, const char *const *names, size_t n,
                       struct eng_report *r)
{
    w->shards = calloc(n, sizeof(*w->shards));
    if (!w->shards) return eng_report_problem(r, ENG_ENOMEM, "no memory for %zu files", n);
    for (size_t i = 0; i < n; i++) {
        char err[ERR_BYTES] = "";
        int rc = eng_shard_init(&w->shards[w->n_shards++], dir, names[i], err, sizeof(err));
        if (rc) {
            eng_report_problem(r, rc, "%s", err);
            w->shards[i].n_tensors = 0; /* half checked; nothing of it is used */
        }
    }
    return r->rc;
}

static int open_sharded(struct eng_weights *w, const char *dir, struct eng_report *r)
{
    struct eng_index index = {0};
    char *text = NULL, err[ERR_BYTES] = "";
    size_t len = 0;
    const int n_before = r->n_problems;
    int rc = file_load(dir, index_name, MAX_INDEX_BYTES, &text, &len, err, sizeof(err));
    if (!rc) rc = eng_index_parse(&index, text, len, err, sizeof(err));
    if (rc) {
        eng_report_problem(r, rc, "%s", err);
    } else {
        open_shards(w, dir, index.files, index.n_files, r);
        list_tensors(w, r);
        if (r->n_problems == n_before) check_index(w, &index, r);
    }
    eng_index_finish(&index);
    free(text);
    return r->rc;
}

int eng_weights_open_file(struct eng_weights **ret_weights, const char *dir, const char *name,
                          struct eng_report *r)
{
    struct eng_weights *w = *ret_weights = calloc(1, sizeof(*w));
    if (!w) return eng_report_problem(r, ENG_ENOMEM, "no memory to open the weights");
    open_shards(w, dir, &name, 1, r);
    return list_tensors(w, r);
}

static int open_all(struct eng_weights **ret_weights, const char *dir, struct eng_report *r)
{
    struct eng_weights *w = calloc(1, sizeof(*w));
    *ret_weights = w;
    if (!w) return eng_report_problem(r, ENG_ENOMEM, "no memory to open the weights");
    if (gguf_is_name(dir)) {
        eng_gguf_open(w, dir, r);
        return list_tensors(w, r);
    }
    if (file_exists(dir, single_name)) {
        free(w);
        return eng_weights_open_file(ret_weights, dir, single_name, r);
    }
    if (file_exists(dir, index_name)) return open_sharded(w, dir, r);
    if (file_exists(dir, "pytorch_model.bin") || file_exists(dir, "pytorch_model.bin.index.json"))
        return eng_report_problem(
            r, ENG_EUNSUPPORTED,
            "%s: has only pytorch_model.bin; convert the weights to safetensors", dir);
    return eng_report_problem(r, ENG_ENOENT, "%s: has neither %s nor %s", dir, single_name,
                              index_name);
}

int eng_weights_open(struct eng_weights **ret_weights, const char *dir, struct eng_report *r)
{
    open_all(ret_weights, dir, r);
    return *ret_weights ? refuse_adapted(*ret_weights, r) : r->rc;
}

void eng_weights_close(struct eng_weights *w)
{
    if (!w) return;
    for (size_t i = 0; i < w->n_shards; i++)
        eng_shard_finish(&w->shards[i]);
    free(w->shards);
    free(w->by_name);
    free(w);
}
