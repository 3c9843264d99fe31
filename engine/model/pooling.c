/* SPDX-License-Identifier: MIT */
/* See pooling.h. */
#include "engine/model/pooling.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/eng_error.h"

enum { MAX_BYTES = 64 << 10, MAX_PATH = 200 };

static const char MODE[] = "pooling_mode", FOLDER[] = "1_Pooling";

/* NULL: the file is not there, or a problem was reported. Owned: json_decref. */
static json_t *load(const char *dir, const char *name, struct eng_report *r)
{
    char *text = NULL, err[512] = "";
    size_t len = 0;
    json_error_t where;
    int rc = file_load_optional(dir, name, MAX_BYTES, &text, &len, err, sizeof(err));
    if (rc) eng_report_problem(r, rc, "%s", err);
    json_t *root = text ? json_loadb(text, len, 0, &where) : NULL;
    if (text && !root)
        eng_report_problem(r, ENG_EINVAL, "%s: line %d: %s", name, where.line, where.text);
    free(text);
    return root;
}

static void check_modes(const json_t *config, const char *name, struct eng_report *r)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)config, key, value)
    {
        bool is_word = !strcmp(key, MODE);
        const char *mode = is_word ? json_string_value(value) : key + sizeof(MODE);
        if (strncmp(key, MODE, sizeof(MODE) - 1) != 0 || (!is_word && !json_is_true(value)))
            continue;
        if (mode && (!strcmp(mode, "mean") || !strcmp(mode, "mean_tokens"))) continue;
        eng_report_problem(r, ENG_EINVAL,
                           "%s: the pooling of this model is '%.40s', but only mean is supported",
                           name, mode ? mode : "not a word");
    }
}

static void check_pooling(const char *dir, const char *folder, bool named, struct eng_report *r)
{
    char name[MAX_PATH + 20];
    snprintf(name, sizeof(name), "%s%sconfig.json", folder, *folder ? "/" : "");
    json_t *config = load(dir, name, r);
    if (config)
        check_modes(config, name, r);
    else if (named && r->rc == 0)
        eng_report_problem(r, ENG_EINVAL, "modules.json names %s, which is not there", name);
    json_decref(config);
}

static void check_module(const char *dir, const json_t *module, struct eng_report *r)
{
    const char *type = json_string_value(json_object_get(module, "type"));
    const char *path = json_string_value(json_object_get(module, "path"));
    const char *dot = type ? strrchr(type, '.') : NULL;
    const char *word = dot ? dot + 1 : type ? type : "";
    if (!strcmp(word, "Transformer") || !strcmp(word, "Normalize")) return;
    if (strcmp(word, "Pooling") != 0)
        eng_report_problem(r, ENG_EINVAL, "modules.json: modules of type '%.40s' are not supported",
                           word);
    else if (!path || *path == '/' || strstr(path, "..") || strlen(path) > MAX_PATH)
        eng_report_problem(r, ENG_EINVAL, "modules.json: the path of the pooling must be a folder");
    else
        check_pooling(dir, path, true, r);
}

int eng_pooling_check(const char *dir, struct eng_report *r)
{
    json_t *modules = load(dir, "modules.json", r);
    for (size_t i = 0; i < json_array_size(modules); i++)
        check_module(dir, json_array_get(modules, i), r);
    if (!modules) check_pooling(dir, FOLDER, false, r);
    json_decref(modules);
    return r->rc;
}
