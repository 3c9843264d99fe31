/* SPDX-License-Identifier: MIT */
/*
 * Listings of a commit's files; see listing.h. Trees of at most a million values, so that no answer
 * becomes one of many times its size.
 */
#include "server/hub/listing.h"

#include <ctype.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/gguf_names.h"
#include "base/json_reader.h"
#include "base/json_tree.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "server/hub/settings.h"

enum { TREE_FORMAT = 1 };

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

/* The text of a member, or "". */
static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

int hub_commit_read(const char *text, size_t len, char ret[HUB_COMMIT_LEN + 1])
{
    json_auto_t *root = NULL;
    char err[HUB_ERR_SIZE];
    if (jt_read_file(&root, "", text, len, JT_REPEATS, err, sizeof(err)) ||
        !hub_is_commit(text_of(root, "sha")))
        return -1;
    memcpy(ret, text_of(root, "sha"), HUB_COMMIT_LEN + 1);
    return 0;
}

static int refuse(const char *problem, const char *path, char *err)
{
    char shown[100];
    shown_text(shown, sizeof(shown), path, strlen(path));
    return hub_fail(err, HUB_EWRONG, "the hub lists %s \"%s\"", problem, shown);
}

static int refuse_text(char *err)
{
    return hub_fail(err, HUB_EWRONG, "the answer is not a file list; is HF_ENDPOINT a hub?");
}

/* To be released, whatever it returns: 0 or an enum hub_error. */
static int read_list(json_t **ret, const char *text, size_t len, unsigned flags, char *err)
{
    int rc = jt_read_file(ret, "", text, len, flags, err, HUB_ERR_SIZE);
    if (rc == JR_ENOMEM) return hub_fail(err, HUB_EINTERNAL, "out of memory");
    return rc ? refuse_text(err) : 0;
}

/* An integer from 0 to the largest size, else -1. */
static int64_t size_of(const json_t *o, const char *key)
{
    const json_t *n = json_object_get(o, key);
    json_int_t size = json_is_integer(n) ? json_integer_value(n) : -1;
    return size <= HUB_SIZE_MAX ? size : -1;
}

/* Adds f, whose texts have been checked but not copied. */
static int append(struct hub_listing *l, const struct hub_file *f, const char *path, char *err)
{
    if (l->n == HUB_ENTRIES_MAX)
        return hub_fail(err, HUB_EWRONG, "the hub lists more than %d files", HUB_ENTRIES_MAX);
    char *copy = strdup(path);
    if (!copy || ARRAY_ROOM(l->files, l->cap, l->n + 1, 64)) {
        free(copy);
        return hub_fail(err, HUB_EINTERNAL, "out of memory");
    }
    l->files[l->n] = *f;
    l->files[l->n++].path = copy;
    return 0;
}

int hub_listing_add(struct hub_listing *l, const char *path, int64_t size)
{
    char err[HUB_ERR_SIZE];
    const struct hub_file f = {.size = size, .listed_size = size};
    return append(l, &f, path, err) ? HUB_EINTERNAL : 0;
}

/* The names of an entry's members. */
struct names {
    const char *oid, *xet, *sha256, *lfs_size;
};

/* lfs: the object that has the file's git-lfs hash and size, or NULL. */
static int add_file(struct hub_listing *l, const char *path, const json_t *o, const json_t *lfs,
                    const struct names *names, char *err)
{
    const char *oid = text_of(o, names->oid), *etag = lfs ? text_of(lfs, names->sha256) : oid;
    const char *xet = text_of(o, names->xet);
    struct hub_file f = {.is_lfs = lfs, .listed_size = size_of(o, "size")};
    f.size = lfs ? size_of(lfs, names->lfs_size) : f.listed_size;
    if (!hub_is_etag(oid) || !hub_is_etag(etag) || (lfs && strlen(etag) != 64))
        return refuse("no valid hash for", path, err);
    if (f.size < 0 || f.listed_size < 0) return refuse("no valid size for", path, err);
    memcpy(f.oid, oid, strlen(oid) + 1);
    memcpy(f.etag, etag, strlen(etag) + 1);
    if (strlen(xet) == 64 && strspn(xet, "0123456789abcdefABCDEF") == 64)
        memcpy(f.xet, xet, sizeof(f.xet));
    else
        l->odd_xet |= *xet != '\0';
    return append(l, &f, path, err);
}

/* [{"type", "path", "oid", "size"[, "lfs": {"oid", "size"}][, "xetHash"]}, ...] */
int hub_listing_add_page(struct hub_listing *l, const char *text, size_t len, char *err)
{
    static const struct names names = {"oid", "xetHash", "oid", "size"};
    json_auto_t *root = NULL;
    int rc = read_list(&root, text, len, JT_REPEATS, err);
    if (!rc && !json_is_array(root)) rc = refuse_text(err);
    for (size_t i = 0; !rc && i < json_array_size(root); i++) {
        const json_t *o = json_array_get(root, i), *lfs = json_object_get(o, "lfs");
        const char *path = text_of(o, "path");
        if (!json_is_object(o))
            rc = refuse_text(err);
        else if (!hub_path_is_safe(path, strlen(path)))
            rc = refuse("an unsafe path", path, err);
        else if (strcmp(text_of(o, "type"), "file") == 0)
            rc = add_file(l, path, o, json_is_object(lfs) ? lfs : NULL, &names, err);
    }
    return rc;
}

/* "files": {"PATH": {"size", "blob_id"[, "lfs_sha256", "lfs_size"][, "xet_hash"]}, ...} */
int hub_listing_add_tree(struct hub_listing *l, const char *text, size_t len, char *err)
{
    static const struct names names = {"blob_id", "xet_hash", "lfs_sha256", "lfs_size"};
    json_auto_t *root = NULL;
    const char *path;
    json_t *o;
    int rc = read_list(&root, text, len, 0, err);
    json_t *files = json_object_get(root, "files");
    if (!rc && (json_integer_value(json_object_get(root, "format_version")) != TREE_FORMAT ||
                !json_is_object(files)))
        rc = refuse_text(err);
    json_object_foreach(files, path, o)
    {
        if (!rc && !hub_path_is_safe(path, strlen(path))) rc = refuse("an unsafe path", path, err);
        if (!rc) rc = add_file(l, path, o, *text_of(o, "lfs_sha256") ? o : NULL, &names, err);
    }
    return rc;
}

/* ---- order ---------------------------------------------------------------------------------- */

static int compare_paths(const void *a, const void *b)
{
    const struct hub_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

int hub_listing_sort(struct hub_listing *l, char *err)
{
    if (l->n) qsort(l->files, l->n, sizeof(*l->files), compare_paths);
    for (size_t i = 1; i < l->n; i++)
        if (strcmp(l->files[i - 1].path, l->files[i].path) == 0)
            return refuse("twice", l->files[i].path, err);
    return 0;
}

struct hub_file *hub_listing_find(const struct hub_listing *l, const char *path)
{
    struct hub_file key = {.path = (char *)path};
    return l->n ? bsearch(&key, l->files, l->n, sizeof(*l->files), compare_paths) : NULL;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Jansson's JSON as Python's json writes it, which has \uXXXX in lower case. */
static void lower_escapes(char *text)
{
    for (char *p = text; (p = strchr(p, '\\')); p += 2)
        for (int i = 2; p[1] == 'u' && i < 6; i++)
            p[i] = (char)tolower((unsigned char)p[i]);
}

static json_t *tree_of(const struct hub_file *f)
{
    return json_pack("{s:I, s:s, s:s*, s:o*, s:s*}", "size", (json_int_t)f->listed_size, "blob_id",
                     f->oid, "lfs_sha256", f->is_lfs ? f->etag : NULL, "lfs_size",
                     f->is_lfs ? json_integer(f->size) : NULL, "xet_hash",
                     f->xet[0] ? f->xet : NULL);
}

char *hub_listing_write(const struct hub_listing *l, size_t *ret_len)
{
    json_t *files = json_object();
    json_auto_t *root = json_pack("{s:i, s:o}", "format_version", TREE_FORMAT, "files", files);
    bool whole = root;
    for (size_t i = 0; i < l->n && whole; i++)
        whole = !json_object_set_new(files, l->files[i].path, tree_of(&l->files[i]));
    char *text = whole ? json_dumps(root, JSON_INDENT(1) | JSON_ENSURE_ASCII) : NULL;
    if (text) lower_escapes(text);
    *ret_len = text ? strlen(text) : 0;
    if (*ret_len <= HUB_LISTING_MAX_BYTES) return text;
    free(text);
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

/* pattern: of fnmatch, in which * does not match a slash. */
static void mark_matching(struct hub_listing *l, const char *pattern)
{
    for (size_t i = 0; i < l->n; i++)
        if (!fnmatch(pattern, l->files[i].path, FNM_PATHNAME | FNM_EXTMATCH))
            l->files[i].wanted = true;
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
    gguf_split(f->path, &count);
    l->gguf = f;
    for (int i = 1; i <= count; i++) {
        if (gguf_split_name(f->path, i, name, sizeof(name)))
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
    if (!name->text_only && !has_weights && mark(l, "adapter_config.json") &&
        mark(l, "adapter_model.safetensors"))
        return 0; /* a LoRA adapter */
    if (!name->text_only && !has_weights) return refuse_weights(l, name->repo, err);
    for (size_t i = name->text_only; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (mark(l, needed[i])) continue;
        return hub_fail(err, HUB_ENOTSERVED, "%s has no %s", name->repo, needed[i]);
    }
    for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
        mark(l, optional[i]);
    mark_matching(l, "additional_chat_templates/*.jinja");
    if (name->text_only) return 0;
    if (mark(l, "modules.json")) { /* of sentence-transformers: 1_Pooling and so on */
        mark_matching(l, "+([0-9])_*/" HUB_CONFIG_NAME);
        mark_matching(l, "+([0-9])_*/" HUB_WEIGHTS_NAME);
    }
    if (!mark(l, HUB_WEIGHTS_NAME)) mark(l, HUB_INDEX_NAME);
    return 0;
}

struct hub_file *hub_wanted_index(const struct hub_listing *l)
{
    struct hub_file *f = hub_listing_find(l, HUB_INDEX_NAME);
    return f && f->wanted ? f : NULL;
}

/* ---- the index ------------------------------------------------------------------------------ */

int hub_shards_visit(const char *index, size_t len, bool (*take)(void *ctx, const char *name),
                     void *ctx, char *err)
{
    json_auto_t *root = NULL;
    const char *tensor;
    json_t *shard;
    if (jt_read_file(&root, HUB_INDEX_NAME, index, len, JT_REPEATS, err, HUB_ERR_SIZE)) return -1;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_object_size(map)) return hub_fail(err, -1, HUB_INDEX_NAME " names no shard");
    json_object_foreach(map, tensor, shard)
    {
        size_t n = json_string_length(shard);
        const char *name = json_string_value(shard);
        if (!name || n > HUB_SEGMENT_MAX || !hub_path_is_safe(name, n) || strchr(name, '/'))
            return hub_fail(err, -1, HUB_INDEX_NAME " names a shard by an unsafe path");
        if (!take(ctx, name)) return -1;
    }
    return 0;
}

struct marking {
    struct hub_listing *listing;
    char *err;
};

static bool mark_shard(void *ctx, const char *name)
{
    struct marking *m = ctx;
    bool is_safetensors = utf8_ends_with(name, ".safetensors");
    if (is_safetensors && mark(m->listing, name)) return true;
    hub_fail(m->err, -1, HUB_INDEX_NAME " names %s, %s", name,
             is_safetensors ? "which the hub does not list" : "which is not a safetensors file");
    return false;
}

int hub_choose_shards(struct hub_listing *l, const char *index, size_t len, char *err)
{
    struct marking m = {l, err};
    return hub_shards_visit(index, len, mark_shard, &m, err) ? HUB_EWRONG : 0;
}
