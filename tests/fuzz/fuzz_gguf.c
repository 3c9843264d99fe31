/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the header of a GGUF file: the input is the file, without most of its data, and 4 bytes of
 * how much longer it would be. Whatever is accepted must keep the promises of gguf.h.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/gguf.h"

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
    close(fd);
    return 0;
}
