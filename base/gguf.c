/* SPDX-License-Identifier: MIT */
/*
 * GGUF headers; see gguf.h. The header is read into one buffer as far as it has been parsed; names
 * and strings stay there. Each has eight bytes of length in front, of which the last is always 0:
 * the text is moved onto it, so that a NUL fits behind it.
 */
#include "base/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/utf8.h"

enum {
    MAX_HEADER_BYTES = 128 << 20,
    MAX_ENTRIES = 65536,
    MAX_KEY_BYTES = 256,
    MAX_NAME_BYTES = 63,
    PIECE_BYTES = 1 << 20,
    MIN_KEY_BYTES = 8 + 1 + 4 + 1,
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
    LENGTH_BYTES = 8
};

static const int value_bytes[] = {
    [GGUF_U8] = 1,    [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
    [GGUF_U32] = 4,   [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
    [GGUF_U64] = 8,   [GGUF_I64] = 8, [GGUF_F64] = 8, [GGUF_STRING] = LENGTH_BYTES,
    [GGUF_ARRAY] = 0,
};

/* By the format's numbers; those without a name are not in use. */
static const struct gguf_block blocks[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},      [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},   [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},    [40] = {"NVFP4", 64, 36},
};

const struct gguf_block *gguf_block_type(int type)
{
    bool known = type >= 0 && type < (int)(sizeof(blocks) / sizeof(blocks[0]));
    return known && blocks[type].name ? &blocks[type] : NULL;
}

/*
 * A header being read: `at` is the next byte, `have` are in g->header. It may be `limit` long, of
 * which `there` have been fetched.
 */
struct parse {
    struct gguf *g;
    size_t at, have, there, limit;
    char *err;
    size_t errlen;
};

#define REFUSE_OF(g, err, errlen, format, ...)                                                     \
    fail_with(FILE_EINVAL, err, errlen, "%s: " format, (g)->name, ##__VA_ARGS__)
#define REFUSE(p, ...) REFUSE_OF((p)->g, (p)->err, (p)->errlen, __VA_ARGS__)

static uint64_t read_le(const unsigned char *b, int n)
{
    uint64_t v = 0;
    for (int i = n - 1; i >= 0; i--)
        v = v << 8 | b[i];
    return v;
}

static size_t left(const struct parse *p)
{
    return p->limit - p->at;
}

/* The next n bytes, which must be there; *ret may be NULL. */
static int take(struct parse *p, size_t n, const unsigned char **ret)
{
    if (n > left(p) && p->limit == MAX_HEADER_BYTES)
        return REFUSE(p, "the header is longer than %d MiB", MAX_HEADER_BYTES >> 20);
    if (n > p->there - p->at) {
        REFUSE(p, "the file ends inside the header (truncated download?)");
        return FILE_EIO;
    }
    if (p->at + n > p->have) {
        size_t more = p->at + n - p->have;
        if (more < PIECE_BYTES) more = PIECE_BYTES;
        if (more > p->there - p->have) more = p->there - p->have;
        int rc = file_pread(p->g->fd, p->g->header + p->have, more, (int64_t)p->have);
        if (rc) {
            REFUSE(p, "the header cannot be read: %s", file_read_reason());
            return rc;
        }
        p->have += more;
    }
    if (ret) *ret = p->g->header + p->at;
    p->at += n;
    return 0;
}

static int take_int(struct parse *p, int n_bytes, uint64_t *ret)
{
    const unsigned char *b;
    int rc = take(p, (size_t)n_bytes, &b);
    if (!rc) *ret = read_le(b, n_bytes);
    return rc;
}

/* A string, moved as said at the top of the file. `of` is the key it belongs to, or NULL. */
static int take_string(struct parse *p, const char *of, const char **ret, size_t *ret_len)
{
    uint64_t len;
    int rc = take_int(p, LENGTH_BYTES, &len);
    if (rc) return rc;
    if (len > MAX_HEADER_BYTES)
        return REFUSE(p, "%s%s%sa string of %llu bytes, where %zu are left", of ? "key " : "",
                      of ? of : "", of ? " has " : "the header has ", (unsigned long long)len,
                      left(p));
    rc = take(p, (size_t)len, NULL);
    if (rc) return rc;
    unsigned char *text = p->g->header + p->at - len - 1;
    memmove(text, text + 1, (size_t)len);
    text[len] = '\0';
    if (ret) *ret = (const char *)text;
    if (ret_len) *ret_len = (size_t)len;
    return 0;
}

const char *gguf_next_string(const unsigned char **at, size_t *ret_len)
{
    size_t len = (size_t)read_le(*at, LENGTH_BYTES - 1);
    const char *text = (const char *)*at + LENGTH_BYTES - 1;
    *at += LENGTH_BYTES + len;
    if (ret_len) *ret_len = len;
    return text;
}

static int take_key_name(struct parse *p, const char **ret)
{
    size_t len;
    int rc = take_string(p, NULL, ret, &len);
    if (rc) return rc;
    bool plain = len > 0 && len <= MAX_KEY_BYTES;
    for (size_t i = 0; plain && i < len; i++)
        plain = (*ret)[i] >= ' ' && (*ret)[i] <= '~';
    if (plain) return 0;
    return REFUSE(p, "key %zu has a name that is not 1 to %d printable ASCII characters",
                  p->g->n_keys, MAX_KEY_BYTES);
}

static int take_values(struct parse *p, struct gguf_key *key)
{
    int size = value_bytes[key->type];
    if (key->n > MAX_HEADER_BYTES / (size_t)size)
        return REFUSE(p, "key %s has %zu elements, for which %zu bytes are left", key->name, key->n,
                      left(p));
    key->data = p->g->header + p->at;
    if (key->type == GGUF_STRING) {
        int rc = 0;
        for (size_t i = 0; i < key->n && !rc; i++)
            rc = take_string(p, key->name, NULL, NULL);
        return rc;
    }
    int rc = take(p, key->n * (size_t)size, NULL);
    for (size_t i = 0; i < key->n && !rc && key->type == GGUF_BOOL; i++)
        if (key->data[i] > 1)
            return REFUSE(p, "key %s: a bool is %d, not 0 or 1", key->name, key->data[i]);
    return rc;
}

static int take_key(struct parse *p, struct gguf_key *key)
{
    uint64_t type = 0, n = 1;
    int rc = take_key_name(p, &key->name);
    if (!rc) rc = take_int(p, 4, &type);
    if (rc) return rc;
    key->is_array = type == GGUF_ARRAY;
    if (key->is_array) {
        rc = take_int(p, 4, &type);
        if (!rc) rc = take_int(p, 8, &n);
        if (rc) return rc;
        if (type == GGUF_ARRAY) return REFUSE(p, "key %s is an array of arrays", key->name);
    }
    if (type > GGUF_F64)
        return REFUSE(p, "key %s has a value of type %llu; types are 0 to %d", key->name,
                      (unsigned long long)type, GGUF_F64);
    key->type = (enum gguf_type)type;
    key->n = (size_t)n;
    return take_values(p, key);
}

static int take_tensor_name(struct parse *p, const char **ret)
{
    size_t len;
    int rc = take_string(p, NULL, ret, &len);
    if (rc) return rc;
    if (len > 0 && len <= MAX_NAME_BYTES && utf8_valid(*ret, len) && strlen(*ret) == len) return 0;
    return REFUSE(p, "tensor %zu has a name that is not 1 to %d bytes of UTF-8", p->g->n_tensors,
                  MAX_NAME_BYTES);
}

static int take_dims(struct parse *p, struct gguf_tensor *t, int64_t *ret_elements)
{
    uint64_t n = 0;
    int rc = take_int(p, 4, &n);
    if (rc) return rc;
    if (n < 1 || n > GGUF_DIMS)
        return REFUSE(p, "tensor %s has %llu dimensions; 1 to %d are read", t->name,
                      (unsigned long long)n, GGUF_DIMS);
    t->n_dims = (int)n;
    *ret_elements = 1;
    for (int i = 0; i < GGUF_DIMS; i++) {
        uint64_t dim = 1;
        rc = i < t->n_dims ? take_int(p, 8, &dim) : 0;
        if (rc) return rc;
        if (dim < 1 || dim > INT64_MAX || __builtin_mul_overflow(*ret_elements, dim, ret_elements))
            return REFUSE(p, "tensor %s: dimension %d is %llu: not 1 or more, or too many elements",
                          t->name, i, (unsigned long long)dim);
        t->dims[i] = (int64_t)dim;
    }
    return 0;
}

/* The offset stays that in the data until the header has been read. */
static int take_tensor(struct parse *p, struct gguf_tensor *t)
{
    uint64_t type = 0, offset = 0;
    int64_t n = 0;
    int rc = take_tensor_name(p, &t->name);
    if (!rc) rc = take_dims(p, t, &n);
    if (!rc) rc = take_int(p, 4, &type);
    if (!rc) rc = take_int(p, 8, &offset);
    if (rc) return rc;
    const struct gguf_block *block = type > INT32_MAX ? NULL : gguf_block_type((int)type);
    if (!block)
        return REFUSE(p, "tensor %s is of type %llu, which is unknown", t->name,
                      (unsigned long long)type);
    t->type = (int)type;
    if (t->dims[0] % block->n_elements)
        return REFUSE(p, "tensor %s is %s, which has blocks of %d, in rows of %lld", t->name,
                      block->name, block->n_elements, (long long)t->dims[0]);
    if (offset > INT64_MAX ||
        __builtin_mul_overflow(n / block->n_elements, (int64_t)block->n_bytes, &t->n_bytes))
        return REFUSE(p, "tensor %s is larger than any file", t->name);
    t->offset = (int64_t)offset;
    return 0;
}

static int take_start(struct parse *p, uint64_t *ret_tensors, uint64_t *ret_keys)
{
    struct gguf *g = p->g;
    const unsigned char *b = g->header;
    uint64_t version = 0;
    int rc = take(p, p->there < 64 ? p->there : 64, &b);
    if (rc) return rc;
    if (file_is_lfs_pointer(b, p->at))
        return REFUSE(p, "is a git-lfs pointer, not the model (git lfs pull)");
    if (p->at < 8 || memcmp(b, "GGUF", 4) != 0) return REFUSE(p, "is not a GGUF file");
    p->at = 4;
    rc = take_int(p, 4, &version);
    if (rc) return rc;
    if (version != 0 && (version & 0xFFFF) == 0)
        return REFUSE(p, "is a big-endian GGUF file; little-endian ones are read");
    if (version < 2 || version > 3)
        return REFUSE(p, "is GGUF version %llu; versions 2 and 3 are read",
                      (unsigned long long)version);
    g->version = (uint32_t)version;
    rc = take_int(p, 8, ret_tensors);
    if (!rc) rc = take_int(p, 8, ret_keys);
    if (rc) return rc;
    if (*ret_tensors > MAX_ENTRIES || *ret_tensors > left(p) / MIN_TENSOR_BYTES)
        return REFUSE(p, "has %llu tensors, more than its bytes or the limit of %d allow",
                      (unsigned long long)*ret_tensors, MAX_ENTRIES);
    if (*ret_keys > MAX_ENTRIES || *ret_keys > left(p) / MIN_KEY_BYTES)
        return REFUSE(p, "has %llu keys, more than its bytes or the limit of %d allow",
                      (unsigned long long)*ret_keys, MAX_ENTRIES);
    return 0;
}

static int compare_keys(const void *a, const void *b)
{
    const struct gguf_key *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int compare_tensors(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int check_twins(struct parse *p)
{
    struct gguf *g = p->g;
    qsort(g->keys, g->n_keys, sizeof(*g->keys), compare_keys);
    for (size_t i = 1; i < g->n_keys; i++)
        if (strcmp(g->keys[i - 1].name, g->keys[i].name) == 0)
            return REFUSE(p, "key %s is there twice", g->keys[i].name);
    AUTO_FREE const struct gguf_tensor **sorted = calloc(g->n_tensors + 1, sizeof(*sorted));
    if (!sorted) {
        REFUSE(p, "no memory for %zu tensors", g->n_tensors);
        return FILE_ENOMEM;
    }
    for (size_t i = 0; i < g->n_tensors; i++)
        sorted[i] = &g->tensors[i];
    qsort(sorted, g->n_tensors, sizeof(*sorted), compare_tensors);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            return REFUSE(p, "tensor %s is there twice", sorted[i]->name);
    return 0;
}

static int64_t round_up(int64_t at, int64_t alignment)
{
    return (at + alignment - 1) / alignment * alignment;
}

/* Spans follow each other, each at a multiple of the alignment, and end with the file. */
static int place_tensors(struct parse *p)
{
    struct gguf *g = p->g;
    int64_t alignment = 32;
    int rc = gguf_int(g, "general.alignment", 8, MAX_ENTRIES, &alignment, p->err, p->errlen);
    if (rc < 0) return rc;
    if (alignment & (alignment - 1))
        return REFUSE(p, "key general.alignment is %lld, not a power of two", (long long)alignment);
    const int64_t start = round_up((int64_t)g->header_bytes, alignment);
    int64_t end = start;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        int64_t at = round_up(end, alignment);
        if (t->offset != at - start)
            return REFUSE(p, "tensor %s begins at data byte %lld, where %lld was due", t->name,
                          (long long)t->offset, (long long)(at - start));
        t->offset = at;
        if (at > g->file_bytes || t->n_bytes > g->file_bytes - at)
            return REFUSE(p, "tensor %s ends beyond the file's %lld bytes (truncated download?)",
                          t->name, (long long)g->file_bytes);
        end = at + t->n_bytes;
    }
    if (g->file_bytes - end < alignment) return 0;
    return REFUSE(p, "has %lld bytes after the last tensor", (long long)(g->file_bytes - end));
}

static int take_header(struct parse *p)
{
    struct gguf *g = p->g;
    uint64_t n_tensors, n_keys;
    int rc = take_start(p, &n_tensors, &n_keys);
    if (rc) return rc;
    g->keys = calloc((size_t)n_keys + 1, sizeof(*g->keys));
    g->tensors = calloc((size_t)n_tensors + 1, sizeof(*g->tensors));
    if (!g->keys || !g->tensors) {
        REFUSE(p, "no memory for its header");
        return FILE_ENOMEM;
    }
    for (; g->n_keys < n_keys && !rc; g->n_keys++)
        rc = take_key(p, &g->keys[g->n_keys]);
    for (; g->n_tensors < n_tensors && !rc; g->n_tensors++)
        rc = take_tensor(p, &g->tensors[g->n_tensors]);
    if (rc) return rc;
    g->header_bytes = p->at;
    rc = check_twins(p);
    return rc ? rc : place_tensors(p);
}

int gguf_open(struct gguf **ret, const char *dir, const char *name, int64_t whole_bytes, char *err,
              size_t errlen)
{
    struct gguf *g = calloc(1, sizeof(*g));
    struct parse p = {.g = g, .err = err, .errlen = errlen};
    int rc = 0;
    *ret = NULL;
    if (g) {
        g->fd = -1;
        g->name = strdup(name);
        rc = file_open(dir, name, &g->fd, &g->file_bytes, err, errlen);
    }
    if (g && !rc) {
        p.there = g->file_bytes < MAX_HEADER_BYTES ? (size_t)g->file_bytes : MAX_HEADER_BYTES;
        if (whole_bytes > g->file_bytes) g->file_bytes = whole_bytes;
        p.limit = g->file_bytes < MAX_HEADER_BYTES ? (size_t)g->file_bytes : MAX_HEADER_BYTES;
        g->header = malloc(p.there + 1); /* memory is taken as it is filled */
    }
    if (!rc && (!g || !g->name || !g->header))
        rc = fail_with(FILE_ENOMEM, err, errlen, "%s: no memory for its header", name);
    if (!rc) rc = take_header(&p);
    if (rc)
        gguf_close(g);
    else
        *ret = g;
    return rc;
}

void gguf_close(struct gguf *g)
{
    if (!g) return;
    if (g->fd >= 0) close(g->fd);
    free(g->name);
    free(g->keys);
    free(g->tensors);
    free(g->header);
    free(g);
}

/* ---- values -------------------------------------------------------------------------------- */

const struct gguf_key *gguf_find(const struct gguf *g, const char *name)
{
    const struct gguf_key want = {.name = name};
    return g->n_keys ? bsearch(&want, g->keys, g->n_keys, sizeof(*g->keys), compare_keys) : NULL;
}

static bool is_integer(enum gguf_type type)
{
    return type <= GGUF_I32 || type == GGUF_U64 || type == GGUF_I64;
}

int64_t gguf_int_at(const struct gguf_key *key, size_t i)
{
    int n = value_bytes[key->type];
    uint64_t v = read_le(key->data + i * (size_t)n, n);
    switch (key->type) {
    case GGUF_I8: return (int8_t)v;
    case GGUF_I16: return (int16_t)v;
    case GGUF_I32: return (int32_t)v;
    default: return (int64_t)v;
    }
}

double gguf_number_at(const struct gguf_key *key, size_t i)
{
    if (key->type == GGUF_F64) {
        double v;
        memcpy(&v, key->data + i * sizeof(v), sizeof(v));
        return v;
    }
    if (key->type == GGUF_F32) {
        float v;
        memcpy(&v, key->data + i * sizeof(v), sizeof(v));
        return v;
    }
    return (double)gguf_int_at(key, i);
}

static const char *kind_name(enum gguf_type kind)
{
    return kind == GGUF_I64    ? "integer"
           : kind == GGUF_F64  ? "finite number"
           : kind == GGUF_BOOL ? "bool"
                               : "string";
}

/* Whether all elements of a key are of that kind. */
static bool fits(const struct gguf_key *key, enum gguf_type kind)
{
    bool is_float = key->type == GGUF_F32 || key->type == GGUF_F64;
    const unsigned char *at = key->data;
    if (kind == GGUF_I64 && !is_integer(key->type)) return false;
    if (kind == GGUF_F64 && !is_float && !is_integer(key->type)) return false;
    if ((kind == GGUF_BOOL || kind == GGUF_STRING) && key->type != kind) return false;
    for (size_t i = 0; i < key->n; i++) {
        if (kind == GGUF_I64 && key->type == GGUF_U64 && gguf_int_at(key, i) < 0) return false;
        if (kind == GGUF_F64 && !isfinite(gguf_number_at(key, i))) return false;
        if (kind == GGUF_STRING) {
            size_t len;
            const char *text = gguf_next_string(&at, &len);
            if (strlen(text) != len || !utf8_valid(text, len)) return false;
        }
    }
    return true;
}

static int find_kind(const struct gguf *g, const char *name, enum gguf_type kind, bool is_array,
                     const struct gguf_key **ret, char *err, size_t errlen)
{
    const struct gguf_key *key = gguf_find(g, name);
    if (!key) return 0;
    *ret = key;
    if (key->is_array == is_array && fits(key, kind)) return 1;
    return REFUSE_OF(g, err, errlen, "key %s is not %s %s%s%s", name,
                     is_array           ? "an array of"
                     : kind == GGUF_I64 ? "an"
                                        : "a",
                     kind_name(kind), is_array ? "s" : "",
                     kind == GGUF_STRING ? " of UTF-8 without NUL" : "");
}

int gguf_array(const struct gguf *g, const char *name, enum gguf_type kind,
               const struct gguf_key **ret, char *err, size_t errlen)
{
    return find_kind(g, name, kind, true, ret, err, errlen);
}

int gguf_int(const struct gguf *g, const char *name, int64_t min, int64_t max, int64_t *ret,
             char *err, size_t errlen)
{
    const struct gguf_key *key;
    int rc = find_kind(g, name, GGUF_I64, false, &key, err, errlen);
    if (rc <= 0) return rc;
    int64_t v = gguf_int_at(key, 0);
    if (v < min || v > max)
        return REFUSE_OF(g, err, errlen, "key %s is %lld; %lld to %lld are read", name,
                         (long long)v, (long long)min, (long long)max);
    *ret = v;
    return 1;
}

int gguf_number(const struct gguf *g, const char *name, double *ret, char *err, size_t errlen)
{
    const struct gguf_key *key;
    int rc = find_kind(g, name, GGUF_F64, false, &key, err, errlen);
    if (rc > 0) *ret = gguf_number_at(key, 0);
    return rc;
}

int gguf_bool(const struct gguf *g, const char *name, bool *ret, char *err, size_t errlen)
{
    const struct gguf_key *key;
    int rc = find_kind(g, name, GGUF_BOOL, false, &key, err, errlen);
    if (rc > 0) *ret = gguf_int_at(key, 0) != 0;
    return rc;
}

int gguf_string(const struct gguf *g, const char *name, const char **ret, char *err, size_t errlen)
{
    const struct gguf_key *key;
    int rc = find_kind(g, name, GGUF_STRING, false, &key, err, errlen);
    if (rc <= 0) return rc;
    const unsigned char *at = key->data;
    *ret = gguf_next_string(&at, NULL);
    return 1;
}
