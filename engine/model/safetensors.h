/* SPDX-License-Identifier: MIT */
/*
 * Headers of safetensors files. Checks everything and reads no tensor data.
 *
 * A file is 8 bytes of header length (little-endian), the header (JSON: name -> dtype, shape,
 * data_offsets, and "__metadata__"), then the data. The rules are those of the reference reader:
 * header at most 100 MB and inside the file, beginning with '{', UTF-8, no duplicate name; spans
 * that start at 0, follow each other without hole or overlap and end with the file; every span as
 * long as shape and dtype require, by checked arithmetic. Empty tensors and rank 0 are fine.
 *
 * Opened and checked by one thread; afterwards tensors may be read from any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/kernels.h"

/*
 * Element types: name, and so many elements take so many bytes. Weights use the first three and the
 * blocks of GGUF files, the types from Q4_0 on, in the order of enum kern_src.
 */
/* clang-format off */
#define ENG_DTYPES(X)                                                                              \
    X(F32, 1, 4) X(F16, 1, 2) X(BF16, 1, 2)                                                        \
    X(BOOL, 1, 1) X(U8, 1, 1) X(I8, 1, 1) X(U16, 1, 2) X(I16, 1, 2) X(U32, 1, 4) X(I32, 1, 4)      \
    X(U64, 1, 8) X(I64, 1, 8) X(F64, 1, 8) X(C64, 1, 8)                                            \
    X(F8_E4M3, 1, 1) X(F8_E5M2, 1, 1) X(F8_E8M0, 1, 1) X(F6_E2M3, 4, 3) X(F6_E3M2, 4, 3)           \
    X(F4, 2, 1)                                                                                    \
    X(Q4_0, 32, 18) X(Q4_1, 32, 20) X(Q5_0, 32, 22) X(Q5_1, 32, 24) X(Q8_0, 32, 34)                \
    X(Q3_K, 256, 110) X(Q4_K, 256, 144) X(Q5_K, 256, 176) X(Q6_K, 256, 210)                        \
    X(IQ4_NL, 32, 18) X(IQ4_XS, 256, 136)
/* clang-format on */
#define ENG_DTYPE_NUMBER(name, ...) ENG_DTYPE_##name,
enum eng_dtype { ENG_DTYPES(ENG_DTYPE_NUMBER) ENG_DTYPE_COUNT };
const char *eng_dtype_name(enum eng_dtype dtype);

/* Returns false if no type has this name. */
bool eng_dtype_find(const char *name, enum eng_dtype *ret);

/* Bytes of n elements in a row; -1: they do not fill whole blocks, or are more than 2^63. */
int64_t eng_dtype_bytes(enum eng_dtype dtype, int64_t n);

/* The kernels' name of a type of weights: one of the first three, or of blocks. */
static inline enum kern_src eng_dtype_source(enum eng_dtype dtype)
{
    return dtype >= ENG_DTYPE_Q4_0 ? (enum kern_src)(KERN_SRC_Q4_0 + (int)(dtype - ENG_DTYPE_Q4_0))
                                   : (enum kern_src)dtype;
}

static inline bool eng_dtype_is_blocks(enum eng_dtype dtype)
{
    return dtype >= ENG_DTYPE_Q4_0;
}

/* Further extents are checked and multiplied, but not stored. */
enum { ENG_TENSOR_DIMS = 4 };

struct eng_tensor {
    const char *name;
    const char *file_name; /* in a GGUF file, else equal to name */
    enum eng_dtype dtype;
    int rank;
    int64_t shape[ENG_TENSOR_DIMS];
    int64_t n_elements;
    int64_t offset; /* from the start of the file's data; of a GGUF file, of the file */
    int64_t n_bytes;
    const struct eng_shard *shard;
    bool used; /* the model uses it */
};

/* "[320, 64]", for messages. */
enum { ENG_SHAPE_TEXT = 112 };
void eng_tensor_shape(const struct eng_tensor *t, char ret_text[ENG_SHAPE_TEXT]);

/* One file. */
struct eng_shard {
    char *name;                 /* within the directory */
    int fd;                     /* -1: not open */
    int64_t data_start;         /* offset of the data in the file */
    struct eng_tensor *tensors; /* in file order */
    size_t n_tensors;
    void *header;      /* the JSON tree; owns the names */
    struct gguf *gguf; /* of a GGUF file: it has the descriptor and the names in it; or NULL */
    char *names;       /* the others */
};

/*
 * Checks a header of len bytes, and a NUL, that data_bytes of data follow, and fills the shard's
 * tensors (shard->name is for messages). ENG_EINVAL names the file and the tensor in err.
 */
int eng_shard_parse(struct eng_shard *shard, const char *header, size_t len, int64_t data_bytes,
                    char *err, size_t errlen);

/* Opens DIR/NAME and checks its header. Undo with eng_shard_finish, also after a failure. */
int eng_shard_init(struct eng_shard *shard, const char *dir, const char *name, char *err,
                   size_t errlen);
void eng_shard_finish(struct eng_shard *shard);
