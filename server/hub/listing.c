/* SPDX-License-Identifier: MIT */
/*
 * Listings of a commit's files; see listing.h. The JSON reader walks the text, which may have 64
 * MiB; one entry at a time becomes a tree, so that no answer becomes one of many times its size.
 */
#include "server/hub/listing.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/gguf_names.h"
#include "base/json_reader.h"
#include "base/json_tree.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "server/hub/settings.h"

enum {
    TREE_FORMAT = 1,
    ENTRY_MAX_BYTES = 64 << 10,
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

/* ---- walking JSON --------------------------------------------------------------------------- */

/*
 * Takes the members of an object (open '{') or the elements of an array ('[', then without key):
 * calls take, which reads the value, until it fails. The key is borrowed until take reads.
 */
static int walk(struct jr *r, char open, int (*take)(void *ctx, struct jr *r, const char *key),
                void *ctx)
{
    char name[HUB_PATH_MAX + 2] = ""; /* a longer key is cut, and then no valid path */
    const char *key;
    size_t len;
    bool first = true;
    int rc = jr_open(r, open);
    while (!rc && (rc = jr_more(r, open == '{' ? '}' : ']', &first)) == 1) {
        rc = open == '{' ? jr_key(r, &key, &len) : 0;
        if (rc) break;
        if (open == '{') snprintf(name, sizeof(name), "%.*s", (int)len, key);
        rc = take(ctx, r, name);
    }
    return rc;
}

static int skip(struct jr *r)
{
    const char *text;
    size_t len;
    return jr_skip(r, &text, &len);
}

/* Walks a whole text. 0, or a negative enum jr_error with a sentence in err, if take set none. */
static int walk_text(const char *text, size_t len, char open,
                     int (*take)(void *ctx, struct jr *r, const char *key), void *ctx, char *err)
{
    AUTO(jr_finish) struct jr r;
    jr_init(&r, text, len, 0, err, HUB_ERR_SIZE);
    int rc = walk(&r, open, take, ctx);
    if (!rc) rc = jr_end(&r);
    return rc;
}

static int take_sha(void *ctx, struct jr *r, const char *key)
{
    const char *text;
    size_t len;
    if (strcmp(key, "sha") != 0 || jr_peek(r) != '"') return skip(r);
    int rc = jr_string(r, &text, &len);
    if (!rc) snprintf(ctx, HUB_COMMIT_LEN + 2, "%.*s", (int)len, text);
    return rc;
}

int hub_commit_read(const char *text, size_t len, char ret[HUB_COMMIT_LEN + 1])
{
    char sha[HUB_COMMIT_LEN + 2] = "", err[HUB_ERR_SIZE];
    if (walk_text(text, len, '{', take_sha, sha, err) || !hub_is_commit(sha)) return -1;
    memcpy(ret, sha, HUB_COMMIT_LEN + 1);
    return 0;
}

/* ---- adding --------------------------------------------------------------------------------- */

/* A listing being read. */
struct adding {
    struct hub_listing *listing;
    int rc; /* enum hub_error with a sentence in err; the walk then ended with JR_EINVAL */
    char *err;
    bool has_format; /* of a tree */
};

static int refuse(struct adding *a, const char *problem, const char *path)
{
    char shown[100];
    shown_text(shown, sizeof(shown), path, strlen(path));
    a->rc = hub_fail(a->err, HUB_EWRONG, "the hub lists %s \"%s\"", problem, shown);
    return JR_EINVAL;
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

/* The text of a member, or "". */
static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

/* An integer from 0 to the largest size, else -1. */
static int64_t size_of(const json_t *o, const char *key)
{
    const json_t *n = json_object_get(o, key);
    json_int_t size = json_is_integer(n) ? json_integer_value(n) : -1;
    return size <= HUB_SIZE_MAX ? size : -1;
}

/* Adds f, whose texts have been checked but not copied. */
static int append(struct adding *a, const struct hub_file *f, const char *path)
{
    struct hub_listing *l = a->listing;
    if (l->n == HUB_ENTRIES_MAX) {
        a->rc = hub_fail(a->err, HUB_EWRONG, "the hub lists more than %d files", HUB_ENTRIES_MAX);
        return JR_EINVAL;
    }
    char *copy = strdup(path);
    if (!copy || grow(l)) {
        free(copy);
        return JR_ENOMEM;
    }
    l->files[l->n] = *f;
    l->files[l->n++].path = copy;
    return 0;
}

int hub_listing_add(struct hub_listing *l, const char *path, int64_t size)
{
    char err[HUB_ERR_SIZE];
    struct adding a = {.listing = l, .err = err};
    const struct hub_file f = {.size = size, .listed_size = size, .n_cached = -1};
    return append(&a, &f, path) ? HUB_EINTERNAL : 0;
}

/* lfs: the object that has the file's git-lfs hash and size under these names, or NULL. */
static int add_file(struct adding *a, const char *path, const json_t *o, const char *oid_name,
                    const char *xet_name, const json_t *lfs, const char *sha256_name,
                    const char *lfs_size_name)
{
    const char *oid = text_of(o, oid_name), *etag = lfs ? text_of(lfs, sha256_name) : oid;
    const char *xet = text_of(o, xet_name);
    struct hub_file f = {.is_lfs = lfs, .listed_size = size_of(o, "size"), .n_cached = -1};
    f.size = lfs ? size_of(lfs, lfs_size_name) : f.listed_size;
    if (!hub_is_etag(oid) || !hub_is_etag(etag) || (lfs && strlen(etag) != 64))
        return refuse(a, "no valid hash for", path);
    if (f.size < 0 || f.listed_size < 0) return refuse(a, "no valid size for", path);
    memcpy(f.oid, oid, strlen(oid) + 1);
    memcpy(f.etag, etag, strlen(etag) + 1);
    if (strlen(xet) == 64 && strspn(xet, "0123456789abcdefABCDEF") == 64)
        memcpy(f.xet, xet, sizeof(f.xet));
    else
        a->listing->odd_xet |= *xet != '\0';
    return append(a, &f, path);
}

/* The next value as an object of jansson's, to be released. */
static int read_object(struct jr *r, json_t **ret)
{
    static const struct jt_library library = JT_JANSSON;
    const struct jt_params params = {
        .library = &library, .flags = JT_REPEATS, .max_values = ENTRY_MAX_BYTES};
    struct jt_fault fault;
    const char *text;
    size_t len;
    int rc = jr_skip(r, &text, &len);
    if (rc) return rc;
    if (len > ENTRY_MAX_BYTES || *text != '{') return JR_EINVAL;
    if (!jt_read(ret, text, len, &params, &fault)) return 0;
    return *fault.problem ? JR_EINVAL : JR_ENOMEM;
}

/* An element of a page: {"type", "path", "oid", "size"[, "lfs": {"oid", "size"}][, "xetHash"]}. */
static int take_page_entry(void *ctx, struct jr *r, const char *key)
{
    json_t *o, *lfs;
    int rc = read_object(r, &o);
    if (rc) return rc;
    const char *path = text_of(o, "path");
    lfs = json_object_get(o, "lfs");
    if (!hub_path_is_safe(path, strlen(path)))
        rc = refuse(ctx, "an unsafe path", path);
    else if (strcmp(text_of(o, "type"), "file") == 0)
        rc = add_file(ctx, path, o, "oid", "xetHash", json_is_object(lfs) ? lfs : NULL, "oid",
                      "size");
    json_decref(o);
    return rc;
}

/* A member of a tree: "PATH": {"size", "blob_id"[, "lfs_sha256", "lfs_size"][, "xet_hash"]}. */
static int take_tree_entry(void *ctx, struct jr *r, const char *path)
{
    json_t *o;
    int rc = read_object(r, &o);
    if (rc) return rc;
    if (!hub_path_is_safe(path, strlen(path)))
        rc = refuse(ctx, "an unsafe path", path);
    else
        rc = add_file(ctx, path, o, "blob_id", "xet_hash", *text_of(o, "lfs_sha256") ? o : NULL,
                      "lfs_sha256", "lfs_size");
    json_decref(o);
    return rc;
}

static int take_tree(void *ctx, struct jr *r, const char *key)
{
    struct adding *a = ctx;
    uint32_t version = 0;
    if (strcmp(key, "files") == 0) return walk(r, '{', take_tree_entry, a);
    if (strcmp(key, "format_version") != 0) return skip(r);
    int rc = jr_uint(r, UINT32_MAX, &version);
    a->has_format = version == TREE_FORMAT;
    return rc;
}

static int end_adding(const struct adding *a, int rc)
{
    if (rc == 0 || a->rc) return a->rc;
    if (rc == JR_ENOMEM) return hub_fail(a->err, HUB_EINTERNAL, "out of memory");
    return hub_fail(a->err, HUB_EWRONG, "the answer is not a file list; is HF_ENDPOINT a hub?");
}

int hub_listing_add_page(struct hub_listing *l, const char *text, size_t len, char *err)
{
    struct adding a = {.listing = l, .err = err};
    return end_adding(&a, walk_text(text, len, '[', take_page_entry, &a, err));
}

int hub_listing_add_tree(struct hub_listing *l, const char *text, size_t len, char *err)
{
    struct adding a = {.listing = l, .err = err};
    int rc = walk_text(text, len, '{', take_tree, &a, err);
    return end_adding(&a, !rc && !a.has_format ? JR_EINVAL : rc);
}

/* ---- order ---------------------------------------------------------------------------------- */

static int compare_paths(const void *a, const void *b)
{
    const struct hub_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

int hub_listing_sort(struct hub_listing *l, char *err)
{
    struct adding a = {.err = err};
    if (l->n) qsort(l->files, l->n, sizeof(*l->files), compare_paths);
    for (size_t i = 1; i < l->n; i++) {
        if (strcmp(l->files[i - 1].path, l->files[i].path) != 0) continue;
        refuse(&a, "twice", l->files[i].path);
        return a.rc;
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
/* ---- the choice of files -------------------------------------------------------------------- */

static const char *const needed[] = {HUB_CONFIG_NAME, "tokenizer.json"};

static const char *const optional[] = {
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
};

static bool mark(struct hub_listing *l, const char *path)
{
    struct hub_file *f = hub_listing_find(l, path);
    if (f) f->wanted = true;
    return f != NULL;
}

/* additional_chat_templates/NAME.jinja, one level deep. */
static void mark_templates(struct hub_listing *l)
{
    static const char folder[] = "additional_chat_templates/";
    for (size_t i = 0; i < l->n; i++) {
        const char *path = l->files[i].path;
        if (strncmp(path, folder, sizeof(folder) - 1) != 0) continue;
        if (!strchr(path + sizeof(folder) - 1, '/') && utf8_ends_with(path, ".jinja"))
            l->files[i].wanted = true;
    }
}

/* Of sentence-transformers: 1_Pooling/config.json, 2_Dense/model.safetensors and so on. */
static bool is_of_module(const char *path)
{
    size_t n = strspn(path, "0123456789");
    const char *slash = strchr(path, '/');
    if (n == 0 || path[n] != '_' || !slash) return false;
    return !strcmp(slash + 1, HUB_CONFIG_NAME) || !strcmp(slash + 1, HUB_WEIGHTS_NAME);
}

static void mark_modules(struct hub_listing *l)
{
    if (!mark(l, "modules.json")) return;
    for (size_t i = 0; i < l->n; i++)
        if (is_of_module(l->files[i].path)) l->files[i].wanted = true;
}

/* The first file whose name ends in one of these, or NULL. */
static const char *find_suffix(const struct hub_listing *l, const char *const *suffixes, int n)
{
    for (size_t i = 0; i < l->n; i++)
        for (int j = 0; j < n; j++)
            if (utf8_ends_with(l->files[i].path, suffixes[j])) return l->files[i].path;
    return NULL;
}

/* ---- models in GGUF ------------------------------------------------------------------------- */

void hub_ggufs_visit(const struct hub_listing *l, void (*fn)(void *ctx, const struct hub_file *f),
                     void *ctx)
{
    int count;
    for (size_t i = 0; i < l->n; i++)
        if (gguf_is_model(l->files[i].path) && gguf_split(l->files[i].path, &count) <= 1)
            fn(ctx, &l->files[i]);
}

struct search {
    const char *tag;
    const struct hub_file *found;
    char tags[HUB_ERR_SIZE / 2]; /* of all models, ":Q4_0, :Q8_0" */
};

/* Of several files that fit the shorter name wins, then the first. */
static void look_at_gguf(void *ctx, const struct hub_file *f)
{
    struct search *s = ctx;
    char tag[GGUF_TAG_SIZE];
    bool fits = gguf_tag_fits(f->path, s->tag);
    if (fits && (!s->found || strlen(f->path) < strlen(s->found->path))) s->found = f;
    gguf_tag_of(f->path, tag);
    size_t at = strlen(s->tags);
    snprintf(s->tags + at, sizeof(s->tags) - at, "%s:%s", at ? ", " : "", tag);
}

/* Without a tag it is one of those that most repositories have. */
static void find_gguf(const struct hub_listing *l, const char *tag, struct search *s)
{
    static const char *const usual[] = {"Q4_K_M", "Q8_0", "Q4_0"};
    for (int i = 0; i < (*tag ? 1 : 3) && !s->found; i++) {
        *s = (struct search){.tag = *tag ? tag : usual[i]};
        hub_ggufs_visit(l, look_at_gguf, s);
    }
}

static int mark_gguf(struct hub_listing *l, const struct hub_file *f, const char *repo, char *err)
{
    static const char *const beside[] = {"tokenizer.json", "tokenizer_config.json",
                                         "chat_template.jinja", "generation_config.json"};
    char name[HUB_PATH_MAX + 1];
    int count;
    bool is_set = gguf_split(f->path, &count) > 0;
    l->gguf = f;
    for (int i = 1; i <= count; i++) {
        if (is_set ? gguf_split_name(f->path, i, name, sizeof(name))
                   : snprintf(name, sizeof(name), "%s", f->path) < 0)
            return hub_fail(err, HUB_EINTERNAL, "a name is too long");
        if (!mark(l, name))
            return hub_fail(err, HUB_ENOTSERVED, "%s has no %.200s, a part of the model", repo,
                            name);
    }
    for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++)
        mark(l, beside[i]);
    return 0;
}

static int choose_gguf(struct hub_listing *l, const struct hub_name *name, char *err)
{
    struct search s = {.tag = ""};
    find_gguf(l, name->tag, &s);
    if (s.found) return mark_gguf(l, s.found, name->repo, err);
    if (!*s.tags)
        return hub_fail(err, HUB_ENOTSERVED, "%s has no GGUF files; leave out :%s", name->repo,
                        name->tag);
    if (*name->tag)
        return hub_fail(err, HUB_ENOTSERVED, "%s has no GGUF file for the tag %s; it has %s",
                        name->repo, name->tag, s.tags);
    return hub_fail(err, HUB_ENOTSERVED, "%s has GGUF files only; add one of %s", name->repo,
                    s.tags);
}

/* ---- the choice ----------------------------------------------------------------------------- */

static int refuse_weights(const struct hub_listing *l, const char *repo, char *err)
{
    static const char *const pickles[] = {".bin", ".pt", ".pth", ".ckpt"};
    static const char *const others[] = {".safetensors", ".onnx", ".h5", ".msgpack"};
    const char *pickle = find_suffix(l, pickles, 4), *other = find_suffix(l, others, 4);
    if (pickle)
        return hub_fail(err, HUB_ENOTSERVED,
                        "%s has no safetensors weights (it has %.200s; pickle files can run code "
                        "and are never read)",
                        repo, pickle);
    if (other)
        return hub_fail(err, HUB_ENOTSERVED,
                        "%s has no " HUB_WEIGHTS_NAME " in its root (it has %.200s, which is not "
                        "read)",
                        repo, other);
    return hub_fail(err, HUB_ENOTSERVED, "%s has neither safetensors nor GGUF weights", repo);
}

int hub_choose(struct hub_listing *l, const struct hub_name *name, char *err)
{
    struct search any = {.tag = ""};
    bool has_weights = hub_listing_find(l, HUB_WEIGHTS_NAME) || hub_listing_find(l, HUB_INDEX_NAME);
    l->gguf = NULL;
    for (size_t i = 0; i < l->n; i++)
        l->files[i].wanted = false;
    hub_ggufs_visit(l, look_at_gguf, &any);
    l->in_gguf = !name->text_only && (*name->tag || (!has_weights && *any.tags));
    if (l->in_gguf) return choose_gguf(l, name, err);
    if (!name->text_only && !has_weights) return refuse_weights(l, name->repo, err);
    for (size_t i = name->text_only; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (mark(l, needed[i])) continue;
        return hub_fail(err, HUB_ENOTSERVED, "%s has no %s", name->repo, needed[i]);
    }
    for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
        mark(l, optional[i]);
    mark_templates(l);
    if (name->text_only) return 0;
    mark_modules(l);
    if (!mark(l, HUB_WEIGHTS_NAME)) mark(l, HUB_INDEX_NAME);
    return 0;
}

struct hub_file *hub_wanted_index(const struct hub_listing *l)
{
    struct hub_file *f = hub_listing_find(l, HUB_INDEX_NAME);
    return f && f->wanted ? f : NULL;
}

/* ---- the index ------------------------------------------------------------------------------ */

struct visit {
    bool (*take)(void *ctx, const char *name);
    void *ctx;
    char *err;
    bool any; /* a shard was taken */
};

static int take_shard(void *ctx, struct jr *r, const char *key)
{
    struct visit *v = ctx;
    const char *text;
    size_t len;
    char name[HUB_SEGMENT_MAX + 1];
    int rc = jr_string(r, &text, &len);
    if (rc) return rc;
    if (!hub_path_is_safe(text, len) || len >= sizeof(name) || memchr(text, '/', len))
        return hub_fail(v->err, JR_EINVAL, "the index names a shard by an unsafe path");
    memcpy(name, text, len);
    name[len] = '\0';
    v->any = true;
    return v->take(v->ctx, name) ? 0 : JR_EINVAL;
}

static int take_index(void *ctx, struct jr *r, const char *key)
{
    if (strcmp(key, "weight_map") != 0) return skip(r);
    return walk(r, '{', take_shard, ctx);
}

int hub_shards_visit(const char *index, size_t len, bool (*take)(void *ctx, const char *name),
                     void *ctx, char *err)
{
    struct visit v = {.take = take, .ctx = ctx, .err = err};
    int rc = walk_text(index, len, '{', take_index, &v, err);
    if (rc == 0 && v.any) return 0;
    return rc ? -1 : hub_fail(err, -1, "the index names no shard");
}

struct marking {
    struct hub_listing *listing;
    char wrong[HUB_SEGMENT_MAX + 1];
    const char *problem;
};

static bool mark_shard(void *ctx, const char *name)
{
    struct marking *m = ctx;
    bool is_safetensors = utf8_ends_with(name, ".safetensors");
    if (is_safetensors && mark(m->listing, name)) return true;
    snprintf(m->wrong, sizeof(m->wrong), "%s", name);
    m->problem = is_safetensors ? "which the hub does not list" : "which is not a safetensors file";
    return false;
}

int hub_choose_shards(struct hub_listing *l, const char *index, size_t len, char *err)
{
    struct marking m = {.listing = l};
    char reason[HUB_ERR_SIZE] = "";
    if (hub_shards_visit(index, len, mark_shard, &m, reason) == 0) return 0;
    if (m.problem)
        return hub_fail(err, HUB_EWRONG, HUB_INDEX_NAME " names %s, %s", m.wrong, m.problem);
    return hub_fail(err, HUB_EWRONG, HUB_INDEX_NAME ": %.200s", reason);
}
