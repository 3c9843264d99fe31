/* SPDX-License-Identifier: MIT */
/* Compiled grammars by the digest of what they were made from; see grammar_cache.h. */
#include "server/grammar_cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/sha256.h"
#include "server/bounds.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tools/tools.h"

enum {
    MAX_ENTRIES = 64,
    COMPILE_NICE = 10, /* about a tenth of a core that computing threads want too */
};

struct entry {
    uint8_t key[SHA256_BYTES];
    struct gram *gram; /* owned; NULL: the entry is free */
    int64_t bytes;
    int n_users;   /* requests that hold it */
    uint64_t used; /* time of the last use, by the clock of the cache */
};

/* The texts of ids. */
struct speller {
    const struct tok *tok;
    const struct tools_style *style;
    const struct tools_markers *markers; /* NULL: none */
};

struct grammar_cache {
    struct speller speller;
    struct gram_vocab *vocab;
    int64_t max_bytes;
    pthread_mutex_t lock; /* guards all below */
    struct entry entries[MAX_ENTRIES];
    struct grammar_cache_stats stats;
    uint64_t clock;
};

size_t grammar_token_bytes(void *tok, int32_t id, char *buf, size_t size)
{
    return tok_is_special(tok, id) ? 0 : tok_token_bytes(tok, id, buf, size);
}

/* A marker of calls is spelled as 0xFF and its text. A token of that byte alone has no text, so no
 * other text contains a marker. */
static size_t spell_marker(const char *text, char *buf, size_t size)
{
    size_t len = strlen(text) + 1;
    if (size > 0) buf[0] = (char)0xFF;
    if (size > 1) memcpy(buf + 1, text, len < size ? len - 1 : size - 1);
    return len;
}

/* Other special tokens never match bytes, whatever their text looks like. */
static size_t spell(void *ctx, int32_t id, char *buf, size_t size)
{
    const struct speller *s = ctx;
    for (int m = 0; s->markers && m < TOOLS_N_MARKERS; m++)
        if (s->markers->id[m] == id)
            return spell_marker(tools_marker_text(s->style, (enum tools_marker)m), buf, size);
    size_t len = grammar_token_bytes((void *)s->tok, id, buf, size); /* only read */
    return s->markers && len == 1 && size > 0 && (unsigned char)buf[0] == 0xFF ? 0 : len;
}

int grammar_cache_create(struct grammar_cache **ret, const struct grammar_cache_params *params)
{
    struct grammar_cache *c = calloc(1, sizeof(*c));
    if (!c) return GRAM_ENOMEM;
    c->speller = (struct speller){params->tok, params->style, params->markers};
    struct gram_vocab_params v = {
        .n_ids = params->n_ids,
        .bytes = spell,
        .ctx = &c->speller,
        .end_ids = params->end_ids,
        .n_end_ids = params->n_end_ids,
    };
    int rc = gram_vocab_create(&c->vocab, &v);
    if (rc) {
        free(c);
        return rc;
    }
    c->max_bytes = params->max_bytes;
    c->stats.vocab_bytes = (int64_t)gram_vocab_bytes(c->vocab);
    pthread_mutex_init(&c->lock, NULL);
    *ret = c;
    return 0;
}

static void drop(struct grammar_cache *c, struct entry *e)
{
    assert(e->n_users == 0 && e->bytes <= c->stats.bytes && c->stats.n_entries > 0);
    c->stats.bytes -= e->bytes;
    c->stats.n_entries--;
    gram_release(e->gram);
    *e = (struct entry){.gram = NULL};
}

void grammar_cache_destroy(struct grammar_cache *c)
{
    if (!c) return;
    for (int i = 0; i < MAX_ENTRIES; i++)
        if (c->entries[i].gram) drop(c, &c->entries[i]);
    gram_vocab_destroy(c->vocab);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- keys ---------------------------------------------------------------------------------- */

static void add_options(struct sha256 *s, const struct gram_options *o)
{
    const uint64_t head[] = {
        (uint64_t)o->strict << 2 | (uint64_t)o->no_additional_properties << 1 | o->no_whitespace,
        o->whitespace_pattern ? o->whitespace_pattern_len + 1 : 0,
        o->max_steps,
    };
    sha256_update(s, head, sizeof(head));
    if (o->whitespace_pattern) sha256_update(s, o->whitespace_pattern, o->whitespace_pattern_len);
}

/* A text and numbers beside it, so that no two lists of them are the same bytes. */
static void add_text(struct sha256 *s, uint64_t number, const char *text, size_t len)
{
    const uint64_t head[] = {number, text != NULL, text ? len : 0};
    sha256_update(s, head, sizeof(head));
    if (text) sha256_update(s, text, len);
}

/* ---- entries, with the lock held ----------------------------------------------------------- */

static struct gram *find(struct grammar_cache *c, const uint8_t key[SHA256_BYTES])
{
    for (int i = 0; i < MAX_ENTRIES; i++) {
        struct entry *e = &c->entries[i];
        if (!e->gram || memcmp(e->key, key, SHA256_BYTES) != 0) continue;
        e->used = ++c->clock;
        e->n_users++;
        return e->gram;
    }
    return NULL;
}

static struct entry *free_entry(struct grammar_cache *c)
{
    for (int i = 0; i < MAX_ENTRIES; i++)
        if (!c->entries[i].gram) return &c->entries[i];
    return NULL;
}

/* Returns false if every entry is held by a request. */
static bool drop_oldest(struct grammar_cache *c)
{
    struct entry *oldest = NULL;
    for (int i = 0; i < MAX_ENTRIES; i++) {
        struct entry *e = &c->entries[i];
        if (e->gram && e->n_users == 0 && (!oldest || e->used < oldest->used)) oldest = e;
    }
    if (oldest) drop(c, oldest);
    return oldest != NULL;
}

/* Adds the grammar, with the caller as its user. Returns false if there is no room. */
static bool keep(struct grammar_cache *c, const uint8_t key[SHA256_BYTES], struct gram *g)
{
    int64_t bytes = (int64_t)(gram_bytes(g) + gram_cache_bytes(g));
    if (bytes > c->max_bytes) return false;
    while (c->stats.bytes + bytes > c->max_bytes || !free_entry(c))
        if (!drop_oldest(c)) return false;
    struct entry *e = free_entry(c);
    assert(e && c->stats.bytes + bytes <= c->max_bytes);
    *e = (struct entry){.gram = g, .bytes = bytes, .n_users = 1, .used = ++c->clock};
    memcpy(e->key, key, SHA256_BYTES);
    c->stats.bytes += bytes;
    c->stats.n_entries++;
    return true;
}

/* ---- compiling ----------------------------------------------------------------------------- */

/* The parts to compile, and their key. */
struct source {
    uint8_t key[SHA256_BYTES];
    enum gram_kind kind;
    const char *text;
    size_t len;
    const struct grammar_tools *tools; /* NULL: kind and text */
    const struct gram_options *options;
};

/* One compilation, and its result. */
struct compile {
    const struct grammar_cache *cache;
    const struct source *source;
    struct gram *made;
    struct gram_error *err;
    int rc;
};

static void run_compile(struct compile *c)
{
    const struct source *s = c->source;
    const struct gram_vocab *vocab = c->cache->vocab;
    c->rc = s->tools ? tools_compile(&c->made, vocab, s->tools->request, c->cache->speller.markers,
                                     s->tools->think_open, s->tools->content, s->options, c->err)
                     : gram_compile(&c->made, vocab, s->kind, s->text, s->len, s->options, c->err);
}

static void *compile_thread(void *arg)
{
    /* on Linux of this thread alone */
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + COMPILE_NICE);
    run_compile(arg);
    return NULL;
}

/*
 * Compiles on a thread of its own with a lower priority, so that streams keep their pace. A text
 * worker could not get its priority back.
 */
static int compile(struct compile *c)
{
    pthread_attr_t attr;
    pthread_t thread;
    bool started = false;
    if (pthread_attr_init(&attr) == 0) {
        started = pthread_attr_setstacksize(&attr, SRV_WORKER_STACK_BYTES) == 0 &&
                  pthread_create(&thread, &attr, compile_thread, c) == 0;
        pthread_attr_destroy(&attr);
    }
    if (started)
        pthread_join(thread, NULL);
    else
        run_compile(c);
    return c->rc;
}

/* ---- asking -------------------------------------------------------------------------------- */

static int get(struct grammar_cache *c, const struct source *source, struct gram **ret,
               bool *ret_kept, struct gram_error *err)
{
    pthread_mutex_lock(&c->lock);
    struct gram *found = find(c, source->key);
    c->stats.n_hits += found != NULL;
    c->stats.n_misses += found == NULL;
    pthread_mutex_unlock(&c->lock);
    if (found) {
        *ret = found;
        *ret_kept = true;
        return 0;
    }
    struct compile work = {c, source, .err = err};
    if (compile(&work)) return work.rc;
    pthread_mutex_lock(&c->lock);
    found = find(c, source->key);
    *ret_kept = found || keep(c, source->key, work.made);
    pthread_mutex_unlock(&c->lock);
    if (found) gram_release(work.made);
    *ret = found ? found : work.made;
    return 0;
}

int grammar_cache_get(struct grammar_cache *c, enum gram_kind kind, const char *text, size_t len,
                      const struct gram_options *options, struct gram **ret, bool *ret_kept,
                      struct gram_error *err)
{
    struct source source = {.kind = kind, .text = text, .len = len, .options = options};
    struct sha256 s;
    sha256_init(&s);
    add_options(&s, options);
    add_text(&s, (uint64_t)kind, text, len);
    sha256_final(&s, source.key);
    return get(c, &source, ret, ret_kept, err);
}

static void add_tools(struct sha256 *s, const struct grammar_tools *tools)
{
    const struct tools_request *r = tools->request;
    const struct gram_part *content = tools->content;
    const uint64_t head[] = {(uint64_t)r->choice, r->one_call,       r->once,
                             r->no_reasoning,     tools->think_open, r->n_tools};
    sha256_update(s, head, sizeof(head));
    for (size_t i = 0; i < r->n_tools; i++) {
        const struct tools_tool *tool = &r->tools[i];
        add_text(s, (uint64_t)tool->strict << 1 | tool->excluded, tool->name, tool->name_len);
        add_text(s, 0, tool->schema, tool->schema_len);
        add_text(s, 0, tool->pointer, tool->pointer ? strlen(tool->pointer) : 0);
    }
    if (content)
        add_text(s, (uint64_t)content->kind << 1 | content->strict, content->text, content->len);
}

int grammar_cache_get_tools(struct grammar_cache *c, const struct grammar_tools *tools,
                            const struct gram_options *options, struct gram **ret, bool *ret_kept,
                            struct gram_error *err)
{
    static const char kind[] = "tools";
    struct source source = {.tools = tools, .options = options};
    struct sha256 s;
    assert(c->speller.markers);
    sha256_init(&s);
    sha256_update(&s, kind, sizeof(kind));
    add_options(&s, options);
    add_tools(&s, tools);
    sha256_final(&s, source.key);
    return get(c, &source, ret, ret_kept, err);
}

void grammar_cache_put(struct grammar_cache *c, struct gram *g)
{
    if (!g) return;
    pthread_mutex_lock(&c->lock);
    struct entry *e = c->entries, *end = e + MAX_ENTRIES;
    while (e < end && e->gram != g)
        e++;
    assert(e == end || e->n_users > 0);
    if (e < end) e->n_users--;
    pthread_mutex_unlock(&c->lock);
    if (e == end) gram_release(g);
}

struct grammar_cache_stats grammar_cache_stats(struct grammar_cache *c)
{
    pthread_mutex_lock(&c->lock);
    struct grammar_cache_stats stats = c->stats;
    pthread_mutex_unlock(&c->lock);
    return stats;
}
