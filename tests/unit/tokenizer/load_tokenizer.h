/* SPDX-License-Identifier: MIT */
/* Tokenizers from small texts, and ids as text, for the tests of the tokenizer. */
#pragma once

#include "test.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_internal.h"

static char err[512];

#define MODEL "'model':{'type':'BPE','vocab':{'a':0,'b':1,'ab':2},'merges':['a b']}"
#define SPECIALS                                                                                   \
    "'added_tokens':[" ADDED(3, "<a>") "," ADDED(4, "<a><b>") "," ADDED(                           \
        5, "[x]") "],"                                                                             \
                  "'model':{'vocab':{'<':0,'>':1,'a':2,'<a>':3,'<a><b>':4,'[x]':5,'b':6,'[':7,'x'" \
                  ":8,']':9},'merges':[]}"
#define ADDED(id, content)                                                                         \
    "{'id':" #id ",'content':'" content "','special':true,'normalized':false,"                     \
    "'single_word':false,'lstrip':false,'rstrip':false}"

/* Loads JSON in which ' stands for ". NULL and err when it is refused. */
static inline struct tok *load(const char *json)
{
    size_t len = strlen(json);
    char *text = malloc(len + 1);
    struct tok *t = calloc(1, sizeof(*t));

    REQUIRE(text && t);
    for (size_t i = 0; i <= len; i++)
        text[i] = json[i] == '\'' ? '"' : json[i];
    err[0] = 0;
    int rc = tok_load(t, text, len, err, sizeof(err));
    free(text);
    if (rc == 0) return t;
    REQUIRE_MSG(err[0], "no sentence for %s", json);
    tok_close(t);
    return NULL;
}

static inline struct tok *load_good(const char *json)
{
    struct tok *t = load(json);
    REQUIRE_MSG(t, "%s", err);
    return t;
}

static inline struct tok *open_demo(void)
{
    char dir[4096];
    struct tok *t = NULL;

    snprintf(dir, sizeof(dir), "%s/deploy/demo", test_source_root());
    REQUIRE_MSG(tok_open(&t, dir, err, sizeof(err)) == 0, "%s", err);
    return t;
}

static inline char *print_ids(const struct tok_ids *ids)
{
    static char out[1024];
    size_t n = 0;

    out[0] = 0;
    for (size_t i = 0; i < ids->n && n < sizeof(out) - 16; i++) {
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%d", i ? " " : "", ids->ids[i]);
    }
    return out;
}

/* Ids of a text as "1 2 3". */
static inline char *encode(const struct tok *t, const char *text, unsigned flags)
{
    struct tok_ids ids = {0};
    int rc = tok_encode(t, text, strlen(text), flags, &ids, err, sizeof(err));

    REQUIRE_MSG(rc == 0, "\"%s\": %s", text, err);
    char *out = print_ids(&ids);
    tok_ids_finish(&ids);
    return out;
}

static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}
