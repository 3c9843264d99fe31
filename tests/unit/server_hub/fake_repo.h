/* SPDX-License-Identifier: MIT */
/* A repository org/x on a fake hub: its files, and a client's environment below fake_root. */
#pragma once

#include "base/sha256.h"
#include "fake_root.h"
#include "fake_transfer.h"
#include "server/hub/pull.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define REPO_CONFIG                                                                                \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"num_attention_heads\":4,"      \
    "\"num_hidden_layers\":4,\"vocab_size\":100}"

struct fake_file {
    const char *path, *content;
};

static struct fake_file fake_files[10]; /* up to a NULL path */
static int fake_status;                 /* of every answer; 0: as it should be */

static void fake_etag(const char *content, char ret[41])
{
    uint8_t digest[SHA256_BYTES];
    char head[40];
    struct sha256 s;
    int len = snprintf(head, sizeof(head), "blob %zu", strlen(content));
    sha1_init(&s);
    sha256_update(&s, head, (size_t)len + 1);
    sha256_update(&s, content, strlen(content));
    sha256_final(&s, digest);
    for (int i = 0; i < SHA1_BYTES; i++)
        snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

static struct fake_answer fake_repo(const char *url, const char *range)
{
    static char text[4000];
    char etag[41];
    (void)range;
    struct fake_answer a = {.status = fake_status ? fake_status : 200, .body = text};
    snprintf(text, sizeof(text), "{\"sha\":\"" COMMIT "\"}");
    if (fake_status < 0) return (struct fake_answer){.end = TRANSFER_UNREACHED};
    if (strstr(url, "/tree/")) {
        snprintf(text, sizeof(text), "[");
        for (const struct fake_file *f = fake_files; f->path; f++) {
            size_t len = strlen(text);
            fake_etag(f->content, etag);
            snprintf(text + len, sizeof(text) - len,
                     "%s{\"type\":\"file\",\"oid\":\"%s\",\"size\":%zu,\"path\":\"%s\"}",
                     len > 1 ? "," : "", etag, strlen(f->content), f->path);
        }
        strcat(text, "]");
    } else if (!strstr(url, "/revision/")) {
        const char *path = strstr(url, COMMIT "/");
        a.status = 404;
        for (const struct fake_file *f = fake_files; f->path; f++) {
            if (!path || strcmp(f->path, path + 41) != 0) continue;
            a.status = 200;
            a.body = f->content;
        }
    }
    a.len = strlen(a.body);
    return a;
}

#define FILES(...)                                                                                 \
    do {                                                                                           \
        const struct fake_file files_[] = {__VA_ARGS__};                                           \
        memset(fake_files, 0, sizeof(fake_files));                                                 \
        memcpy(fake_files, files_, sizeof(files_));                                                \
        n_fake_log = 0;                                                                            \
        fake_hub = fake_repo;                                                                      \
    } while (0)

/* A model that can be served; two of its files are equal. */
#define MODEL                                                                                      \
    {"config.json", REPO_CONFIG}, {"tokenizer.json", "{\"t\":1}"}, {"vocab.json", "{\"t\":1}"},    \
        {"model.safetensors", "weights of the model"},                                             \
    {                                                                                              \
        "README.md", "not taken"                                                                   \
    }

static const char *fake_offline; /* the value of HF_HUB_OFFLINE */

static inline const char *fake_env(const char *name)
{
    static char cache[300];
    snprintf(cache, sizeof(cache), "%s/hub", fake_root);
    if (strcmp(name, "HF_HUB_CACHE") == 0) return cache;
    if (strcmp(name, "HF_ENDPOINT") == 0) return "https://hub.test";
    if (strcmp(name, "HF_HUB_OFFLINE") == 0) return fake_offline;
    return NULL;
}
