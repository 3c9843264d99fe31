/* SPDX-License-Identifier: MIT */
/* Listings of a commit's files; see listing.h. */
#include "server/hub/listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_reader.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "base/buf.h"
#include "server/hub/hub_error.h"
#include "server/hub/settings.h"

#define SIZE_MAX_LISTED (INT64_C(1) << 62)

enum { TREE_FORMAT = 1 };

/* One entry while it is read; strings are cut at what a valid one can hold. */
struct entry {
    char path[HUB_PATH_MAX + 1];
    char type[16], oid[HUB_ETAG_SIZE], lfs_oid[HUB_ETAG_SIZE], xet[HUB_ETAG_SIZE];
    int64_t size, lfs_size;
    bool is_lfs, path_too_long;
};

/*
 * The JSON reader, and errors other than those of the JSON itself: then `rc` is one of ours with a
 * sentence in err, and the functions below return JR_EINVAL to end the reading.
 */
struct reader {
    struct jr json;
    char json_err[160];
    int rc;
    char *err;
};

void hub_listing_finish(struct hub_listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->files[i].path);
    free(l->files);
    *l = (struct hub_listing){0};
}

/* ---- paths ---------------------------------------------------------------------------------- */

static bool is_segment(const char *text, size_t len)
{
    bool dots = (len == 1 && text[0] == '.') || (len == 2 && text[0] == '.' && text[1] == '.');
    return len > 0 && len <= HUB_SEGMENT_MAX && !dots;
}

bool hub_path_is_safe(const char *path, size_t len)
{
    const char *end = path + len, *segment = path;
    if (len == 0 || len > HUB_PATH_MAX || !utf8_valid(path, len)) return false;
    for (const char *p = path; p < end;) {
        const unsigned char *next = (const unsigned char *)p;
        uint32_t c = utf8_next(&next);
        if (shown_is_unsafe(c) || c == '\\') return false;
        if (c == '/' && !is_segment(segment, (size_t)(p - segment))) return false;
        p = (const char *)next;
        if (c == '/') segment = p;
    }
    return is_segment(segment, (size_t)(end - segment));
}

/* ---- adding --------------------------------------------------------------------------------- */

static int refuse(struct reader *r, const char *problem, const char *path)
{
    char shown[100];
    snprintf(r->err, HUB_ERR_SIZE, "the hub lists %s \"%s\"", problem,
             shown_text(shown, sizeof(shown), path, strlen(path)));
    r->rc = HUB_EWRONG;
    return JR_EINVAL;
}

static int check_entry(struct reader *r, const struct entry *e)
{
    if (e->path_too_long || !hub_path_is_safe(e->path, strlen(e->path)))
        return refuse(r, "an unsafe path", e->path);
    if (strcmp(e->type, "file") != 0) return 0;
    bool hashes = hub_is_etag(e->oid) && (!e->is_lfs || strlen(e->lfs_oid) == 64);
    if (!hashes || (e->is_lfs && !hub_is_etag(e->lfs_oid)))
        return refuse(r, "no valid hash for", e->path);
    if (e->size < 0 || (e->is_lfs && e->lfs_size < 0))
        return refuse(r, "no valid size for", e->path);
    return 0;
}

static int grow(struct hub_listing *l)
{
    if (l->n < l->cap) return 0;
    size_t cap = l->cap ? 2 * l->cap : 64;
    struct hub_file *files = realloc(l->files, cap * sizeof(*files));
    if (!files) return -1;
    l->files = files;
    l->cap = cap;
    return 0;
}

static bool is_xet_hash(const char *text)
{
    return strlen(text) == 64 && strspn(text, "0123456789abcdefABCDEF") == 64;
}

static int add(struct hub_listing *l, struct reader *r, const struct entry *e)
{
    if (l->n == HUB_ENTRIES_MAX) {
        snprintf(r->err, HUB_ERR_SIZE, "the hub lists more than %d files", HUB_ENTRIES_MAX);
        r->rc = HUB_EWRONG;
        return JR_EINVAL;
    }
    char *path = strdup(e->path);
    if (!path || grow(l)) {
        free(path);
        return JR_ENOMEM;
    }
    struct hub_file *f = &l->files[l->n++];
    *f = (struct hub_file){
        .path = path, .is_lfs = e->is_lfs, .listed_size = e->size, .n_cached = -1};
    f->size = e->is_lfs ? e->lfs_size : e->size;
    memcpy(f->oid, e->oid, sizeof(f->oid));
    memcpy(f->etag, e->is_lfs ? e->lfs_oid : e->oid, sizeof(f->etag));
    memcpy(f->xet, e->xet, sizeof(f->xet));
    l->odd_xet |= e->xet[0] && !is_xet_hash(e->xet);
    return 0;
}

/* ---- reading JSON --------------------------------------------------------------------------- */

/* A string, cut where the buffer ends; a cut one is longer than any valid one. */
static int read_text(struct reader *r, char *buf, size_t size, bool *ret_cut)
{
    const char *text;
    size_t len;
    int rc = jr_string(&r->json, &text, &len);
    if (rc) return rc;
    if (ret_cut) *ret_cut = len >= size;
    if (len >= size) len = size - 1;
    memcpy(buf, text, len);
    buf[len] = '\0';
    return 0;
}

/* A hash; one that is too long becomes none at all. */
static int read_hash(struct reader *r, char buf[HUB_ETAG_SIZE])
{
    bool cut;
    if (jr_peek(&r->json) == 'n') return jr_null(&r->json);
    int rc = read_text(r, buf, HUB_ETAG_SIZE, &cut);
    if (!rc && cut) buf[0] = '?';
    return rc;
}

/* An integer from 0 to 2^62, else -1. */
static int read_size(struct reader *r, int64_t *ret)
{
    const char *text;
    size_t len;
    int64_t n = 0;
    int rc = jr_number(&r->json, &text, &len);
    if (rc) return rc;
    for (size_t i = 0; i < len && n >= 0; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9';
        n = digit && n <= (SIZE_MAX_LISTED - (text[i] - '0')) / 10 ? 10 * n + (text[i] - '0') : -1;
    }
    *ret = n;
    return 0;
}

static int skip(struct reader *r)
{
    const char *text;
    size_t len;
    return jr_skip(&r->json, &text, &len);
}

static bool key_is(const char *key, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(key, name, len) == 0;
}

static int read_lfs(struct reader *r, struct entry *e)
{
    const char *key;
    size_t len;
    bool first = true;
    if (jr_peek(&r->json) == 'n') return jr_null(&r->json);
    e->is_lfs = true;
    int rc = jr_open(&r->json, '{');
    while (!rc && (rc = jr_more(&r->json, '}', &first)) == 1) {
        rc = jr_key(&r->json, &key, &len);
        if (rc) return rc;
        if (key_is(key, len, "oid"))
            rc = read_hash(r, e->lfs_oid);
        else if (key_is(key, len, "size"))
            rc = read_size(r, &e->lfs_size);
        else
            rc = skip(r);
    }
    return rc;
}

static int read_page_entry(struct reader *r, struct entry *e)
{
    const char *key;
    size_t len;
    bool first = true;
    int rc = jr_open(&r->json, '{');
    while (!rc && (rc = jr_more(&r->json, '}', &first)) == 1) {
        rc = jr_key(&r->json, &key, &len);
        if (rc) return rc;
        if (key_is(key, len, "path"))
            rc = read_text(r, e->path, sizeof(e->path), &e->path_too_long);
        else if (key_is(key, len, "type"))
            rc = read_text(r, e->type, sizeof(e->type), NULL);
        else if (key_is(key, len, "oid"))
            rc = read_hash(r, e->oid);
        else if (key_is(key, len, "size"))
            rc = read_size(r, &e->size);
        else if (key_is(key, len, "xetHash"))
            rc = read_hash(r, e->xet);
        else if (key_is(key, len, "lfs"))
            rc = read_lfs(r, e);
        else
            rc = skip(r);
    }
    return rc;
}

static int read_page(struct hub_listing *l, struct reader *r)
{
    bool first = true;
    int rc = jr_open(&r->json, '[');
    while (!rc && (rc = jr_more(&r->json, ']', &first)) == 1) {
        struct entry e = {.size = -1, .lfs_size = -1};
        rc = read_page_entry(r, &e);
        if (rc) return rc;
        rc = check_entry(r, &e);
        if (!rc && strcmp(e.type, "file") == 0) rc = add(l, r, &e);
        if (rc) return rc;
    }
    return rc ? rc : jr_end(&r->json);
}

static int read_tree_entry(struct reader *r, struct entry *e)
{
    const char *key;
    size_t len;
    bool first = true;
    int rc = jr_open(&r->json, '{');
    while (!rc && (rc = jr_more(&r->json, '}', &first)) == 1) {
        rc = jr_key(&r->json, &key, &len);
        if (rc) return rc;
        if (key_is(key, len, "size"))
            rc = read_size(r, &e->size);
        else if (key_is(key, len, "blob_id"))
            rc = read_hash(r, e->oid);
        else if (key_is(key, len, "lfs_sha256"))
            rc = read_hash(r, e->lfs_oid);
        else if (key_is(key, len, "lfs_size"))
            rc = read_size(r, &e->lfs_size);
        else if (key_is(key, len, "xet_hash"))
            rc = read_hash(r, e->xet);
        else
            rc = skip(r);
    }
    e->is_lfs = e->lfs_oid[0];
    return rc;
}

static int read_tree_files(struct hub_listing *l, struct reader *r)
{
    const char *path;
    size_t len;
    bool first = true;
    int rc = jr_open(&r->json, '{');
    while (!rc && (rc = jr_more(&r->json, '}', &first)) == 1) {
        struct entry e = {.type = "file", .size = -1, .lfs_size = -1};
        rc = jr_key(&r->json, &path, &len);
        if (rc) return rc;
        e.path_too_long = len >= sizeof(e.path);
        if (!e.path_too_long) memcpy(e.path, path, len);
        rc = read_tree_entry(r, &e);
        if (!rc) rc = check_entry(r, &e);
        if (!rc) rc = add(l, r, &e);
    }
    return rc;
}

static int read_tree(struct hub_listing *l, struct reader *r)
{
    const char *key;
    size_t len;
    uint32_t version = 0;
    bool first = true;
    int rc = jr_open(&r->json, '{');
    while (!rc && (rc = jr_more(&r->json, '}', &first)) == 1) {
        rc = jr_key(&r->json, &key, &len);
        if (rc) return rc;
        if (key_is(key, len, "format_version"))
            rc = jr_uint(&r->json, UINT32_MAX, &version);
        else if (key_is(key, len, "files"))
            rc = read_tree_files(l, r);
        else
            rc = skip(r);
    }
    if (!rc) rc = jr_end(&r->json);
    return !rc && version != TREE_FORMAT ? JR_EINVAL : rc;
}

static int read_with(int (*read)(struct hub_listing *l, struct reader *r), struct hub_listing *l,
                     const char *text, size_t len, char *err)
{
    struct reader r = {.err = err};
    jr_init(&r.json, text, len, 0, r.json_err, sizeof(r.json_err));
    int rc = read(l, &r);
    jr_finish(&r.json);
    if (rc == 0 || r.rc) return r.rc;
    bool no_memory = rc == JR_ENOMEM;
    snprintf(err, HUB_ERR_SIZE, "%s",
             no_memory ? "out of memory" : "the answer is not a file list; is HF_ENDPOINT a hub?");
    return no_memory ? HUB_EINTERNAL : HUB_EWRONG;
}

int hub_listing_add_page(struct hub_listing *l, const char *text, size_t len, char *err)
{
    return read_with(read_page, l, text, len, err);
}

int hub_listing_add_tree(struct hub_listing *l, const char *text, size_t len, char *err)
{
    return read_with(read_tree, l, text, len, err);
}

/* ---- order ---------------------------------------------------------------------------------- */

static int compare_paths(const void *a, const void *b)
{
    const struct hub_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

int hub_listing_sort(struct hub_listing *l, char *err)
{
    struct reader r = {.err = err};
    if (l->n) qsort(l->files, l->n, sizeof(*l->files), compare_paths);
    for (size_t i = 1; i < l->n; i++) {
        if (strcmp(l->files[i - 1].path, l->files[i].path) != 0) continue;
        refuse(&r, "twice", l->files[i].path);
        return r.rc;
    }
    return 0;
}

struct hub_file *hub_listing_find(const struct hub_listing *l, const char *path)
{
    struct hub_file key = {.path = (char *)path};
    return l->n ? bsearch(&key, l->files, l->n, sizeof(*l->files), compare_paths) : NULL;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* A string as Python's json writes it: ASCII, the rest as UTF-16 in \uXXXX. */
static void write_string(struct buf *b, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    buf_puts(b, "\"");
    while (*p) {
        uint32_t c = utf8_next(&p);
        if (c == '"')
            buf_puts(b, "\\\"");
        else if (c < 0x80)
            buf_add(b, (const char *)p - 1, 1);
        else if (c < 0x10000)
            buf_printf(b, "\\u%04x", c);
        else
            buf_printf(b, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                       0xdc00 + ((c - 0x10000) & 0x3ff));
    }
    buf_puts(b, "\"");
}

static void write_file(struct buf *b, const struct hub_file *f)
{
    buf_puts(b, "\n  ");
    write_string(b, f->path);
    buf_printf(b, ": {\n   \"size\": %lld,\n   \"blob_id\": \"%s\"", (long long)f->listed_size,
               f->oid);
    if (f->is_lfs)
        buf_printf(b, ",\n   \"lfs_sha256\": \"%s\",\n   \"lfs_size\": %lld", f->etag,
                   (long long)f->size);
    if (f->xet[0]) buf_printf(b, ",\n   \"xet_hash\": \"%s\"", f->xet);
    buf_puts(b, "\n  }");
}

char *hub_listing_write(const struct hub_listing *l, size_t *ret_len)
{
    struct buf b;
    buf_init(&b, HUB_LISTING_MAX_BYTES);
    buf_printf(&b, "{\n \"format_version\": %d,\n \"files\": {", TREE_FORMAT);
    for (size_t i = 0; i < l->n; i++) {
        if (i) buf_puts(&b, ",");
        write_file(&b, &l->files[i]);
    }
    buf_puts(&b, l->n ? "\n }\n}" : "}\n}");
    *ret_len = b.len;
    if (!b.failed) return b.data;
    buf_finish(&b);
    return NULL;
}
