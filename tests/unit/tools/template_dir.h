/* SPDX-License-Identifier: MIT */
/* Chat templates for tests of tools: the project's own, published ones, and texts made in a test. */
#pragma once

#include "test.h"

#include <unistd.h>

#include "tokenizer/tools/tools.h"

/* Special tokens of a test's template. */
#define TEMPLATE_CONFIG "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}"

/* A template of the project, by its path in tests/golden, or with `reference` a published one, by
 * its name in goldens/tools/templates. Returns owned. */
static inline char *template_read(const char *name, bool reference)
{
    char path[4096];
    if (reference)
        snprintf(path, sizeof(path), "%s/goldens/tools/templates/%s", test_reference(), name);
    else
        snprintf(path, sizeof(path), "%s/tests/golden/%s", test_source_root(), name);
    FILE *f = fopen(path, "r");
    REQUIRE_MSG(f, "%s", path);
    char *text = calloc(1, 1 << 16);
    REQUIRE(text && fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

static inline void template_put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    REQUIRE(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* source may be NULL: the template is in the config. NULL: it does not parse. */
static inline struct tok_chat *template_open(const char *source, const char *config)
{
    char dir[] = "/tmp/hearth-template-XXXXXX", template[64], config_path[64], err[1200];
    struct tok_chat *c = NULL;
    REQUIRE(mkdtemp(dir));
    snprintf(template, sizeof(template), "%s/chat_template.jinja", dir);
    snprintf(config_path, sizeof(config_path), "%s/tokenizer_config.json", dir);
    if (source) template_put(template, source);
    template_put(config_path, config);
    if (tok_chat_open(&c, dir, NULL, err, sizeof(err))) c = NULL;
    unlink(template);
    unlink(config_path);
    rmdir(dir);
    return c;
}
