/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes GGUF files: the input is 4 bytes of how much longer the file is, filled with zeros, and
 * its begin. Whatever header is accepted must keep the promises of gguf.h; then the file is loaded
 * as a model is: tokenizer, templates, config and tensors, and if the weights are small, they are
 * packed.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/gguf.h"
#include "engine/kernels/kernels.h"
#include "engine/model/load.h"
#include "engine/pool.h"
#include "tokenizer/gguf.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_key(const struct gguf *g, const struct gguf_key *key)
{
    char err[512] = "";
    const struct gguf_key *found = NULL;
    int64_t n;
    double x;
    bool yes;
    const char *text;
    if (gguf_find(g, key->name) != key) abort();
    int rc = gguf_int(g, key->name, INT64_MIN, INT64_MAX, &n, err, sizeof(err));
    if (rc == 0 || (rc < 0) != (*err != '\0')) abort();
    gguf_number(g, key->name, &x, err, sizeof(err));
    gguf_bool(g, key->name, &yes, err, sizeof(err));
    gguf_string(g, key->name, &text, err, sizeof(err));
    if (gguf_array(g, key->name, GGUF_F64, &found, err, sizeof(err)) == 1)
        for (size_t i = 0; i < key->n; i++)
            if (gguf_number_at(key, i) != gguf_number_at(key, i)) abort();
    const unsigned char *at = key->data;
    if (gguf_array(g, key->name, GGUF_STRING, &found, err, sizeof(err)) == 1)
        for (size_t i = 0; i < key->n; i++) {
            size_t len;
            text = gguf_next_string(&at, &len);
            if (strlen(text) != len) abort();
        }
    if (at > g->header + g->header_bytes) abort();
}

/* Spans follow each other to the end of the file, and are as long as shape and type say. */
static void check(const struct gguf *g)
{
    int64_t end = (int64_t)g->header_bytes;
    for (size_t i = 0; i < g->n_keys; i++)
        check_key(g, &g->keys[i]);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        const struct gguf_block *block = gguf_block_type(t->type);
        int64_t n = t->dims[0] / block->n_elements * block->n_bytes;
        for (int j = 1; j < GGUF_DIMS; j++)
            n *= t->dims[j];
        if (n != t->n_bytes || t->offset < end || strlen(t->name) == 0) abort();
        end = t->offset + t->n_bytes;
    }
    if (g->n_tensors && end > g->file_bytes) abort();
}

static void refused(int rc, const char *err)
{
    if ((rc != 0) != (*err != '\0')) abort();
}

static void load_text(const char *path)
{
    char err[512] = "", *config = NULL;
    size_t len;
    struct tok *t = NULL;
    refused(tok_open(&t, path, err, sizeof(err)), err);
    tok_close(t);
    err[0] = '\0';
    refused(tok_gguf_config(&config, &len, path, err, sizeof(err)), err);
    free(config);
}

static void load_weights(const char *path)
{
    enum { MAX_BYTES = 4 << 20 };
    static struct pool *pool;
    char err[512] = "";
    const struct eng_model_params params = {
        .dir = path, .kern = kern_select("c"), .gemm = "native"};
    struct eng_model *m = NULL;
    if (!pool && pool_create(&pool, 1, err, sizeof(err)) != 0) abort();
    int rc = eng_model_open(&m, &params, err, sizeof(err));
    if (rc == 0 && m->weights_bytes <= MAX_BYTES) rc = eng_model_fill(m, pool, 1, err, sizeof(err));
    refused(rc, err);
    eng_model_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t more;
    char path[64], err[512] = "";
    struct gguf *g;
    if (size < sizeof(more)) return 0;
    memcpy(&more, data, sizeof(more));
    size -= sizeof(more);
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data + sizeof(more), size) != (ssize_t)size) abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (gguf_open(&g, NULL, path, (int64_t)size + more, err, sizeof(err)) == 0)
        check(g);
    else if (!err[0])
        abort();
    gguf_close(g);
    if (ftruncate(fd, (off_t)size + more) != 0) abort();
    load_text(path);
    load_weights(path);
    close(fd);
    return 0;
}
