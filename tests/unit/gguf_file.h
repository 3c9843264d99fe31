/* SPDX-License-Identifier: MIT */
/* Writes GGUF files for tests, right or wrong, byte by byte. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/gguf.h"

/* The numbers of tensor types that tests use. */
enum { T_F32 = 0, T_Q4_0 = 2, T_Q8_0 = 8, T_IQ2_XXS = 16 };

static inline void put_int(struct buf *b, uint64_t v, int n_bytes)
{
    buf_add(b, (const char *)&v, (size_t)n_bytes); /* the processors we have are little-endian */
}

static inline void put_bytes(struct buf *b, const char *text, size_t len)
{
    put_int(b, len, 8);
    buf_add(b, text, len);
}

static inline void put_text(struct buf *b, const char *text)
{
    put_bytes(b, text, strlen(text));
}

static inline void put_start(struct buf *b, uint64_t n_tensors, uint64_t n_keys)
{
    buf_add(b, "GGUF", 4);
    put_int(b, 3, 4);
    put_int(b, n_tensors, 8);
    put_int(b, n_keys, 8);
}

static inline void put_key_type(struct buf *b, const char *name, enum gguf_type type)
{
    put_text(b, name);
    put_int(b, type, 4);
}

static inline void put_key_u32(struct buf *b, const char *name, uint32_t v)
{
    put_key_type(b, name, GGUF_U32);
    put_int(b, v, 4);
}

static inline void put_key_text(struct buf *b, const char *name, const char *v)
{
    put_key_type(b, name, GGUF_STRING);
    put_text(b, v);
}

/* Elements follow. */
static inline void put_key_array(struct buf *b, const char *name, enum gguf_type type, uint64_t n)
{
    put_key_type(b, name, GGUF_ARRAY);
    put_int(b, type, 4);
    put_int(b, n, 8);
}

/* A matrix, or with n_rows 0 a vector. */
static inline void put_tensor(struct buf *b, const char *name, uint64_t n_cols, uint64_t n_rows,
                              int type, uint64_t offset)
{
    put_text(b, name);
    put_int(b, n_rows > 0 ? 2 : 1, 4);
    put_int(b, n_cols, 8);
    if (n_rows > 0) put_int(b, n_rows, 8);
    put_int(b, (uint64_t)type, 4);
    put_int(b, offset, 8);
}

static inline void put_zeros(struct buf *b, size_t n)
{
    for (; n > 0; n--)
        buf_add(b, "", 1);
}

static inline void put_padding(struct buf *b, size_t alignment)
{
    put_zeros(b, (alignment - b->len % alignment) % alignment);
}

/* Writes the bytes to a new file, whose name is put into path; unlink it. */
static inline int write_gguf(const struct buf *b, char path[32])
{
    strcpy(path, "/tmp/hearth-gguf-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    ssize_t n = b->len ? write(fd, b->data, b->len) : 0;
    close(fd);
    return n == (ssize_t)b->len ? 0 : -1;
}
