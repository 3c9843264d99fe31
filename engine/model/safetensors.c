/* SPDX-License-Identifier: MIT */
/* Safetensors headers; see safetensors.h. weights.c reads the set of files of a model. */
#include "base/fail.h"
#include "base/file.h"
#include "base/gguf.h"
#include "engine/model/safetensors.h"

#include <assert.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "engine/eng_error.h"
#include "engine/model/config_json.h"

enum { MAX_HEADER_BYTES = 100000000, LENGTH_BYTES = 8 };

_Static_assert((int)ENG_DTYPE_BF16 == KERN_SRC_BF16 && (int)ENG_DTYPE_F16 == KERN_SRC_F16 &&
                   ENG_DTYPE_COUNT - ENG_DTYPE_Q4_0 == KERN_SRC_COUNT - KERN_SRC_Q4_0,
               "the same types");

/* Errors of base/file.h are passed on here and by the other loaders. */
_Static_assert((int)FILE_EINVAL == ENG_EINVAL && (int)FILE_ENOMEM == ENG_ENOMEM &&
                   (int)FILE_EIO == ENG_EIO && (int)FILE_ENOENT == ENG_ENOENT,
               "file errors are engine errors");

static const struct {
    const char *name;
    int n, bytes;
} dtypes[] = {
#define ROW(name, n, bytes) {#name, n, bytes},
    ENG_DTYPES(ROW)};

const char *eng_dtype_name(enum eng_dtype dtype)
{
    return dtypes[dtype].name;
}

bool eng_dtype_find(const char *name, enum eng_dtype *ret)
{
    for (int i = 0; i < ENG_DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].name) != 0) continue;
        *ret = (enum eng_dtype)i;
        return true;
    }
    return false;
}

int64_t eng_dtype_bytes(enum eng_dtype dtype, int64_t n)
{
    int64_t bytes;
    if (n % dtypes[dtype].n != 0) return -1;
    bool fits = !__builtin_mul_overflow(n / dtypes[dtype].n, (int64_t)dtypes[dtype].bytes, &bytes);
    return fits ? bytes : -1;
}

void eng_tensor_shape(const struct eng_tensor *t, char ret_text[ENG_SHAPE_TEXT])
{
    int at = snprintf(ret_text, ENG_SHAPE_TEXT, "[");
    for (int i = 0; i < t->rank && i < ENG_TENSOR_DIMS; i++)
        at += snprintf(ret_text + at, (size_t)(ENG_SHAPE_TEXT - at), "%s%lld", i ? ", " : "",
                       (long long)t->shape[i]);
    snprintf(ret_text + at, (size_t)(ENG_SHAPE_TEXT - at), "%s]",
             t->rank > ENG_TENSOR_DIMS ? ", ..." : "");
}

/* These return the fault of a tensor, or NULL. */
static const char *read_dtype(struct eng_tensor *t, const json_t *info)
{
    const char *name = json_string_value(json_object_get(info, "dtype"));
    if (!name) return "has no dtype";
    bool known = eng_dtype_find(name, &t->dtype) && !eng_dtype_is_blocks(t->dtype);
    return known ? NULL : "has an unknown dtype";
}

static const char *read_shape(struct eng_tensor *t, const json_t *info)
{
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape)) return "has no shape";
    if (json_array_size(shape) > INT32_MAX) return "has too many dimensions";
    t->rank = (int)json_array_size(shape);
    t->n_elements = 1;
    for (int i = 0; i < t->rank; i++) {
        const json_t *extent = json_array_get(shape, (size_t)i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return "has an extent that is not an integer >= 0";
        int64_t n = json_integer_value(extent);
        if (i < ENG_TENSOR_DIMS) t->shape[i] = n;
        if (__builtin_mul_overflow(t->n_elements, n, &t->n_elements))
            return "has more than 2^63 elements";
    }
    return NULL;
}

static const char *read_span(struct eng_tensor *t, const json_t *info)
{
    const json_t *offsets = json_object_get(info, "data_offsets");
    if (!json_is_array(offsets) || json_array_size(offsets) != 2) return "has no data_offsets";
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (!json_is_integer(begin) || !json_is_integer(end) || json_integer_value(begin) < 0)
        return "has data_offsets that are not integers >= 0";
    if (json_integer_value(end) < json_integer_value(begin)) return "ends before it begins";
    t->offset = json_integer_value(begin);
    t->n_bytes = json_integer_value(end) - t->offset;
    if (t->n_elements > INT64_MAX / 8) return "has more than 2^63 bits";
    if (eng_dtype_bytes(t->dtype, t->n_elements) != t->n_bytes)
        return "spans a different number of bytes than shape x dtype";
    return NULL;
}

static int read_tensor(struct eng_tensor *t, const json_t *info, const char *file, char *err,
                       size_t errlen)
{
    const char *wrong = json_is_object(info) ? NULL : "is not described by an object";
    if (!wrong) wrong = read_dtype(t, info);
    if (!wrong) wrong = read_shape(t, info);
    if (!wrong) wrong = read_span(t, info);
    if (!wrong) return 0;
    return fail_with(ENG_EINVAL, err, errlen, "%s: tensor %.200s %s", file, t->name, wrong);
}

static int check_metadata(const json_t *metadata, const char *file, char *err, size_t errlen)
{
    bool ok = json_is_object(metadata);
    const char *key;
    json_t *value;
    if (ok) json_object_foreach((json_t *)metadata, key, value) ok = ok && json_is_string(value);
    if (ok) return 0;
    return fail_with(ENG_EINVAL, err, errlen, "%s: __metadata__ is not an object of strings", file);
}

/* By offset in the file; empty tensors come before the one that starts at the same offset. */
static int compare_place(const void *a, const void *b)
{
    const struct eng_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->n_bytes != y->n_bytes) return x->n_bytes < y->n_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Spans must follow each other from 0 to the end of the file. */
static int check_spans(const struct eng_shard *s, int64_t data_bytes, char *err, size_t errlen)
{
    int64_t at = 0;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct eng_tensor *t = &s->tensors[i];
        if (t->offset != at)
            return fail_with(
                ENG_EINVAL, err, errlen, "%s: tensor %.200s begins at data byte %lld, %s %lld",
                s->name, t->name, (long long)t->offset,
                t->offset < at ? "overlapping data up to" : "leaving a hole from", (long long)at);
        at += t->n_bytes; /* no overflow: offset + n_bytes came as one 64-bit number */
    }
    if (at == data_bytes) return 0;
    return fail_with(ENG_EINVAL, err, errlen,
                     "%s: the header describes %lld bytes of data, the file has %lld%s", s->name,
                     (long long)at, (long long)data_bytes,
                     at > data_bytes ? " (truncated download?)" : "");
}

static int read_tensors(struct eng_shard *s, json_t *root, char *err, size_t errlen)
{
    const char *key;
    json_t *info;
    json_object_foreach(root, key, info)
    {
        int rc;
        if (strcmp(key, "__metadata__") == 0) {
            rc = check_metadata(info, s->name, err, errlen);
        } else {
            assert(s->n_tensors < json_object_size(root));
            struct eng_tensor *t = &s->tensors[s->n_tensors++];
            t->name = t->file_name = key;
            t->shard = s;
            rc = read_tensor(t, info, s->name, err, errlen);
        }
        if (rc) return rc;
    }
    qsort(s->tensors, s->n_tensors, sizeof(*s->tensors), compare_place);
    return 0;
}

int eng_shard_parse(struct eng_shard *shard, const char *header, size_t len, int64_t data_bytes,
                    char *err, size_t errlen)
{
    if (len == 0 || header[0] != '{')
        return fail_with(ENG_EINVAL, err, errlen, "%s: the header does not begin with '{'",
                         shard->name);
    json_t *root = NULL;
    int rc = eng_json_parse(&root, header, len, shard->name, err, errlen);
    if (rc) return rc;
    shard->header = root;
    shard->tensors = calloc(json_object_size(root) + 1, sizeof(*shard->tensors));
    if (!shard->tensors)
        return fail_with(ENG_ENOMEM, err, errlen, "%s: no memory for its tensors", shard->name);
    rc = read_tensors(shard, root, err, errlen);
    return rc ? rc : check_spans(shard, data_bytes, err, errlen);
}

/* Checks the length in front of the header; *ret_bytes is the header's. */
static int read_length(const struct eng_shard *s, int64_t file_bytes, size_t *ret_bytes, char *err,
                       size_t errlen)
{
    uint8_t b[64] = {0};
    size_t n = file_bytes < (int64_t)sizeof(b) ? (size_t)file_bytes : sizeof(b);
    int rc = file_pread(s->fd, b, n, 0);
    if (rc)
        return fail_with(rc, err, errlen, "%s: cannot be read: %s", s->name, file_read_reason());
    if (file_is_lfs_pointer(b, n))
        return fail_with(ENG_EINVAL, err, errlen,
                         "%s: is a git-lfs pointer, not the weights (git lfs pull)", s->name);
    if (n < LENGTH_BYTES)
        return fail_with(ENG_EINVAL, err, errlen,
                         "%s: %lld bytes are too few for a safetensors file", s->name,
                         (long long)file_bytes);
    uint64_t len = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        len = len << 8 | b[i];
    if (len > MAX_HEADER_BYTES)
        return fail_with(ENG_EINVAL, err, errlen,
                         "%s: header of %llu bytes, the format's limit is %d", s->name,
                         (unsigned long long)len, MAX_HEADER_BYTES);
    if (len > (uint64_t)file_bytes - LENGTH_BYTES)
        return fail_with(ENG_EINVAL, err, errlen,
                         "%s: header of %llu bytes in a file of %lld (truncated download?)",
                         s->name, (unsigned long long)len, (long long)file_bytes);
    *ret_bytes = (size_t)len;
    return 0;
}

int eng_shard_init(struct eng_shard *shard, const char *dir, const char *name, char *err,
                   size_t errlen)
{
    *shard = (struct eng_shard){.fd = -1, .name = strdup(name)};
    int64_t file_bytes = 0;
    size_t len = 0;
    int rc = shard->name ? file_open(dir, name, &shard->fd, &file_bytes, err, errlen) : 0;
    if (!rc && shard->name) rc = read_length(shard, file_bytes, &len, err, errlen);
    if (rc) return rc;
    AUTO_FREE char *header = malloc(len + 1);
    if (!header || !shard->name) {
        rc = fail_with(ENG_ENOMEM, err, errlen, "%s: no memory for its header", name);
    } else if ((rc = file_pread(shard->fd, header, len, LENGTH_BYTES))) {
        fail_with(rc, err, errlen, "%s: the header cannot be read: %s", name, file_read_reason());
    } else {
        header[len] = '\0';
        shard->data_start = LENGTH_BYTES + (int64_t)len;
        rc = eng_shard_parse(shard, header, len, file_bytes - shard->data_start, err, errlen);
    }
    return rc;
}

void eng_shard_finish(struct eng_shard *shard)
{
    if (shard->gguf)
        gguf_close(shard->gguf);
    else if (shard->fd >= 0)
        close(shard->fd);
    json_decref(shard->header);
    free(shard->names);
    free(shard->tensors);
    free(shard->name);
    *shard = (struct eng_shard){.fd = -1};
}
