/* SPDX-License-Identifier: MIT */
/* See heads.h. */
#include "engine/model/heads.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/eng_error.h"
#include "engine/model/config_json.h"
#include "engine/model/weight_hash.h"

enum { MAX_BYTES = 64 << 10, MAX_WIDTH = 1 << 20 };

static const char MODE[] = "pooling_mode", FOLDER[] = "1_Pooling";

static const char *const pooling_names[ENG_N_POOLINGS] = {
    [ENG_POOL_MEAN] = "mean",
    [ENG_POOL_CLS] = "cls",
    [ENG_POOL_LAST] = "lasttoken",
    [ENG_POOL_MAX] = "max",
    [ENG_POOL_WEIGHTED] = "weightedmean",
    [ENG_POOL_SQRT_LEN] = "mean_sqrt_len",
};

/* The reading of one directory. */
struct reading {
    const char *dir;
    struct eng_heads *heads;
    struct eng_dense *dense;
    uint64_t *hash;
    struct eng_report *report;
    bool pooled; /* a Pooling module was read */
};

static void refuse(const struct reading *rd, const char *file, const char *what, const char *value)
{
    eng_report_problem(rd->report, ENG_EUNSUPPORTED, "%s: %s '%.100s' is not supported", file, what,
                       value ? value : "");
}

/* NULL: the file is not there, or a problem was reported. Owned: json_decref. */
static json_t *load(const struct reading *rd, const char *name)
{
    char *text = NULL, err[512] = "";
    size_t len = 0;
    json_t *root = NULL;
    int rc = file_load_optional(rd->dir, name, MAX_BYTES, &text, &len, err, sizeof(err));
    if (text) rc = eng_json_read(&root, text, len, name, err, sizeof(err));
    if (rc) eng_report_problem(rd->report, rc, "%s", err);
    if (text) {
        struct eng_hash piece = eng_hash_bytes(text, len, (struct eng_hash){{8, 9}});
        rd->hash[0] += piece.lane[0];
        rd->hash[1] += piece.lane[1];
    }
    free(text);
    return root;
}

/* The configuration of a module; name [ENG_FOLDER_BYTES + 16] receives its file. */
static json_t *load_config(const struct reading *rd, const char *folder, bool named, char *name)
{
    snprintf(name, ENG_FOLDER_BYTES + 16, "%s%sconfig.json", folder, *folder ? "/" : "");
    json_t *config = load(rd, name);
    if (!config && named && rd->report->rc == 0)
        eng_report_problem(rd->report, ENG_EINVAL, "modules.json names %s, which is not there",
                           name);
    return config;
}

/* ---- pooling ------------------------------------------------------------------------------- */

/* The word of a setting, as in "cls_token", or of the newer spelling, "cls". */
static bool find_pooling(const char *word, enum eng_pooling *ret)
{
    static const char *const endings[] = {"", "_token", "_tokens"};
    for (int i = 0; i < ENG_N_POOLINGS; i++) {
        size_t n = strlen(pooling_names[i]);
        if (strncmp(word, pooling_names[i], n) != 0) continue;
        for (size_t k = 0; k < sizeof(endings) / sizeof(endings[0]); k++) {
            if (strcmp(word + n, endings[k]) != 0) continue;
            *ret = (enum eng_pooling)i;
            return true;
        }
    }
    return false;
}

static void read_modes(struct reading *rd, const json_t *config, const char *name)
{
    const char *key;
    json_t *value;
    int n_modes = 0, n_off = 0;
    json_object_foreach((json_t *)config, key, value)
    {
        if (strncmp(key, MODE, sizeof(MODE) - 1) != 0) continue;
        bool is_word = key[sizeof(MODE) - 1] == '\0';
        const char *word = is_word ? json_string_value(value) : key + sizeof(MODE);
        n_off += !is_word && !json_is_true(value);
        if (!is_word && !json_is_true(value)) continue;
        enum eng_pooling pooling = rd->heads->pooling;
        if (!word || !find_pooling(word, &pooling))
            refuse(rd, name, "the pooling", word ? word : "not a word");
        if (n_modes++ > 0 && pooling != rd->heads->pooling)
            eng_report_problem(rd->report, ENG_EUNSUPPORTED,
                               "%s: two poolings joined, %s and %s, are not supported", name,
                               pooling_names[rd->heads->pooling], pooling_names[pooling]);
        rd->heads->pooling = pooling;
    }
    if (n_modes == 0 && n_off > 0)
        eng_report_problem(rd->report, ENG_EINVAL, "%s: no pooling is set", name);
}

static void read_pooling(struct reading *rd, const char *folder, bool named)
{
    char name[ENG_FOLDER_BYTES + 16];
    json_auto_t *config = load_config(rd, folder, named, name);
    rd->heads->given = rd->heads->given || config;
    rd->heads->leaves_prompt = json_is_false(json_object_get(config, "include_prompt"));
    if (config) read_modes(rd, config, name);
}

/* ---- Dense --------------------------------------------------------------------------------- */

/* After the last dot of a Python path. */
static const char *last_word(const char *path)
{
    const char *dot = path ? strrchr(path, '.') : NULL;
    return dot ? dot + 1 : path ? path : "";
}

static int read_width(const struct reading *rd, const json_t *config, const char *key,
                      const char *name)
{
    const json_t *value = json_object_get(config, key);
    json_int_t n = json_integer_value(value);
    if (json_is_integer(value) && n >= 1 && n <= MAX_WIDTH) return (int)n;
    eng_report_problem(rd->report, ENG_EINVAL, "%s: %s must be within 1..%d", name, key, MAX_WIDTH);
    return 1;
}

static enum eng_head_act read_act(const struct reading *rd, const json_t *config, const char *name)
{
    static const char *const acts[] = {[ENG_HEAD_IDENTITY] = "Identity",
                                       [ENG_HEAD_TANH] = "Tanh",
                                       [ENG_HEAD_RELU] = "ReLU",
                                       [ENG_HEAD_GELU] = "GELU"};
    const json_t *value = json_object_get(config, "activation_function");
    const char *word = value ? last_word(json_string_value(value)) : acts[ENG_HEAD_TANH];
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
        if (strcmp(word, acts[i]) == 0) return (enum eng_head_act)i;
    refuse(rd, name, "activation_function", word);
    return ENG_HEAD_IDENTITY;
}

static void read_dense(const struct reading *rd, const char *folder, struct eng_dense *dense,
                       struct eng_head_op *op)
{
    char name[ENG_FOLDER_BYTES + 16];
    json_auto_t *config = load_config(rd, folder, true, name);
    const char *input = json_string_value(json_object_get(config, "module_input_name"));
    snprintf(dense->folder, sizeof(dense->folder), "%s", folder);
    if (config) {
        dense->n_in = read_width(rd, config, "in_features", name);
        dense->n_out = read_width(rd, config, "out_features", name);
        dense->bias = !json_is_false(json_object_get(config, "bias"));
        op->act = read_act(rd, config, name);
        if (dense->n_in != rd->heads->width)
            eng_report_problem(rd->report, ENG_EINVAL, "%s: in_features is %d, its input has %d",
                               name, dense->n_in, rd->heads->width);
        if (input && strcmp(input, "sentence_embedding") != 0)
            refuse(rd, name, "module_input_name", input);
        rd->heads->width = dense->n_out;
    }
}

/* ---- the modules --------------------------------------------------------------------------- */

static void add_op(struct reading *rd, enum eng_head_kind kind, const char *folder)
{
    struct eng_heads *h = rd->heads;
    if (h->n_ops == ENG_MAX_HEAD_OPS) {
        eng_report_problem(rd->report, ENG_EUNSUPPORTED,
                           "modules.json: more than %d modules after the pooling are not supported",
                           ENG_MAX_HEAD_OPS);
        return;
    }
    struct eng_head_op *op = &h->ops[h->n_ops];
    op->kind = kind;
    if (kind == ENG_HEAD_DENSE) read_dense(rd, folder, &rd->dense[h->n_ops], op);
    h->n_ops++;
}

/* The folder of a module, within the model's; NULL after a problem. */
static const char *read_folder(const struct reading *rd, const json_t *module)
{
    const char *path = json_string_value(json_object_get(module, "path"));
    if (path && *path != '/' && !strstr(path, "..") && strlen(path) < ENG_FOLDER_BYTES) return path;
    eng_report_problem(rd->report, ENG_EINVAL,
                       "modules.json: the path of a module must be a folder of the model");
    return NULL;
}

static void read_module(struct reading *rd, size_t i, const json_t *module)
{
    const char *type = last_word(json_string_value(json_object_get(module, "type")));
    const char *folder = read_folder(rd, module);
    if (!folder) return;
    bool is_pooling = strcmp(type, "Pooling") == 0, is_dense = strcmp(type, "Dense") == 0;
    bool is_l2 = strcmp(type, "Normalize") == 0;
    if (strcmp(type, "Transformer") == 0 && i == 0) {
        if (*folder) refuse(rd, "modules.json", "a Transformer in the folder", folder);
    } else if (is_pooling && !rd->pooled) {
        rd->pooled = true;
        read_pooling(rd, folder, true);
    } else if ((is_dense || is_l2) && rd->pooled) {
        add_op(rd, is_dense ? ENG_HEAD_DENSE : ENG_HEAD_L2, folder);
    } else if (strcmp(type, "LogitScore") != 0) { /* two logits, which the caller asks for */
        eng_report_problem(rd->report, ENG_EUNSUPPORTED,
                           "modules.json: module %zu is %.100s; supported, in this order: "
                           "Transformer, Pooling, then Dense, Normalize",
                           i, type);
    }
}

int eng_heads_read(struct eng_heads *ret, struct eng_dense dense[ENG_MAX_HEAD_OPS], int d_model,
                   const char *dir, uint64_t hash[2], struct eng_report *r)
{
    struct reading rd = {dir, ret, dense, hash, r, false};
    *ret = (struct eng_heads){.width = d_model};
    json_auto_t *modules = load(&rd, "modules.json");
    if (modules && !json_is_array(modules))
        eng_report_problem(r, ENG_EINVAL, "modules.json: is not a JSON array");
    for (size_t i = 0; i < json_array_size(modules); i++)
        read_module(&rd, i, json_array_get(modules, i));
    if (!modules) read_pooling(&rd, FOLDER, false);
    return r->rc;
}
