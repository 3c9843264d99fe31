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

struct grammar_cache {
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

int grammar_cache_create(struct grammar_cache **ret, const struct grammar_cache_params *params)
{
    struct grammar_cache *c = calloc(1, sizeof(*c));
    if (!c) return GRAM_ENOMEM;
    struct gram_vocab_params v = {
        .n_ids = params->n_ids,
        .bytes = grammar_token_bytes,
        .ctx = (void *)params->tok, /* only read */
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

static void make_key(uint8_t key[SHA256_BYTES], enum gram_kind kind, const char *text, size_t len,
                     const struct gram_options *o)
{
    const uint64_t head[] = {
        (uint64_t)kind,
        (uint64_t)o->strict << 2 | (uint64_t)o->no_additional_properties << 1 | o->no_whitespace,
        o->whitespace_pattern ? o->whitespace_pattern_len + 1 : 0,
        o->max_steps,
        len,
    };
    struct sha256 s;
    sha256_init(&s);
    sha256_update(&s, head, sizeof(head));
    if (o->whitespace_pattern) sha256_update(&s, o->whitespace_pattern, o->whitespace_pattern_len);
    sha256_update(&s, text, len);
    sha256_final(&s, key);
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

/* The arguments of gram_compile, and its result. */
struct compile {
    const struct gram_vocab *vocab;
    enum gram_kind kind;
    const char *text;
    size_t len;
    const struct gram_options *options;
    struct gram *made;
    struct gram_error *err;
    int rc;
};

static void run_compile(struct compile *c)
{
    c->rc = gram_compile(&c->made, c->vocab, c->kind, c->text, c->len, c->options, c->err);
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

int grammar_cache_get(struct grammar_cache *c, enum gram_kind kind, const char *text, size_t len,
                      const struct gram_options *options, struct gram **ret, bool *ret_kept,
                      struct gram_error *err)
{
    uint8_t key[SHA256_BYTES];
    make_key(key, kind, text, len, options);
    pthread_mutex_lock(&c->lock);
    struct gram *found = find(c, key);
    c->stats.n_hits += found != NULL;
    c->stats.n_misses += found == NULL;
    pthread_mutex_unlock(&c->lock);
    if (found) {
        *ret = found;
        *ret_kept = true;
        return 0;
    }
    struct compile work = {c->vocab, kind, text, len, options, .err = err};
    if (compile(&work)) return work.rc;
    pthread_mutex_lock(&c->lock);
    found = find(c, key);
    *ret_kept = found || keep(c, key, work.made);
    pthread_mutex_unlock(&c->lock);
    if (found) gram_release(work.made);
    *ret = found ? found : work.made;
    return 0;
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
