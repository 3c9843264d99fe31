/* SPDX-License-Identifier: MIT */
/*
 * Headers of GGUF files: the keys and the places of the tensors of one file. Everything is checked
 * before it is used or allocated for, and no tensor's data is read.
 *
 * A file is "GGUF", u32 version, u64 tensors, u64 keys; the keys (name, type, value); the tensors
 * (name, dimensions, type, offset); then, from a multiple of general.alignment on, their data, all
 * little-endian. Taken are versions 2 and 3, headers up to 128 MiB, 65,536 keys and as many
 * tensors; names must be unique, keys of 1 to 256 printable ASCII characters, tensors' of 1 to 63
 * bytes of UTF-8; spans follow each other in the order of the header and end with the file.
 *
 * Opened by one thread; afterwards const, for any. Errors are a negative enum file_error with one
 * sentence that begins with the file's name and says which key or tensor is meant.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Types of values; the numbers are the format's. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

struct gguf_key {
    const char *name;
    enum gguf_type type; /* of the elements, if it is an array */
    bool is_array;
    size_t n; /* elements; 1 unless it is an array */
    const unsigned char *data;
};

enum { GGUF_DIMS = 4 };

struct gguf_tensor {
    const char *name;
    int type; /* as in the file; gguf_block_type describes it */
    int n_dims;
    int64_t dims[GGUF_DIMS]; /* the fastest first, each >= 1; 1 from n_dims on */
    int64_t offset, n_bytes; /* from the beginning of the file */
};

struct gguf {
    char *name; /* for messages */
    int fd;
    int64_t file_bytes;
    size_t header_bytes;
    uint32_t version;
    struct gguf_key *keys; /* sorted by name */
    size_t n_keys;
    struct gguf_tensor *tensors; /* in file order */
    size_t n_tensors;
    unsigned char *header; /* holds the names and values */
};

/*
 * Opens DIR/NAME (dir NULL: NAME is the path) and checks its header. Of a file that is still being
 * fetched, whole_bytes is the size it will have; else 0. *ret is owned (gguf_close), and NULL after
 * an error, which is FILE_EIO if the file ends inside the header.
 */
int gguf_open(struct gguf **ret, const char *dir, const char *name, int64_t whole_bytes, char *err,
              size_t errlen);
void gguf_close(struct gguf *g);

/* The key of that name, or NULL. */
const struct gguf_key *gguf_find(const struct gguf *g, const char *name);

/*
 * The value of a key: 1 and it is in *ret; 0: the file has no such key, and *ret stays as it was; a
 * negative error: the value is of another kind or outside the limits. Integers may be of any
 * integer type, numbers also of that, and are finite; strings are UTF-8 without NUL, NUL-terminated
 * and live as long as g.
 */
int gguf_int(const struct gguf *g, const char *name, int64_t min, int64_t max, int64_t *ret,
             char *err, size_t errlen);
int gguf_number(const struct gguf *g, const char *name, double *ret, char *err, size_t errlen);
int gguf_bool(const struct gguf *g, const char *name, bool *ret, char *err, size_t errlen);
int gguf_string(const struct gguf *g, const char *name, const char **ret, char *err, size_t errlen);

/*
 * The same for an array whose elements are integers (GGUF_I64), numbers (GGUF_F64), GGUF_BOOL or
 * GGUF_STRING: each is checked as above. Integers that do not fit int64_t are an error.
 */
int gguf_array(const struct gguf *g, const char *name, enum gguf_type kind,
               const struct gguf_key **ret, char *err, size_t errlen);

/* Elements of an array that gguf_array gave, i < n. */
int64_t gguf_int_at(const struct gguf_key *key, size_t i); /* bool: 0 or 1 */
double gguf_number_at(const struct gguf_key *key, size_t i);

/*
 * Strings are read one after the other: *at is key->data at first. Returns the next, NUL-terminated
 * and alive as long as g; its length is in *ret_len, which may be NULL.
 */
const char *gguf_next_string(const unsigned char **at, size_t *ret_len);

/* How a type of tensors is stored: blocks of n_elements in n_bytes. NULL: no type we know of. */
struct gguf_block {
    const char *name;
    int n_elements, n_bytes;
};
const struct gguf_block *gguf_block_type(int type);
