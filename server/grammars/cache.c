/* SPDX-License-Identifier: MIT */
/* Compiled grammars by the digest of what they were made from; see cache.h. */
#include "server/grammars/cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/sha256.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tools/tools.h"

enum {
    MAX_ENTRIES = 64,
    MAX_FAILURES = 64,
};

struct entry {
    uint8_t key[SHA256_BYTES];
    struct gram *gram; /* owned; NULL: the entry is free */
    int64_t bytes;
    int n_users;   /* requests that hold it */
    uint64_t used; /* time of the last use, by the clock of the cache */
};

/* A grammar that cannot be compiled. */
struct failure {
    uint8_t key[SHA256_BYTES];
    uint64_t tenant;
    struct gram_error error; /* no code: the failure is free */
};

struct grammar_cache {
    struct grammar_cache_params p;
    pthread_mutex_t vocab_lock;
    struct gram_vocab *vocab; /* guarded by that; NULL: nothing was compiled yet */
    pthread_mutex_t lock;     /* guards all below */
    struct entry entries[MAX_ENTRIES];
    struct failure failures[MAX_FAILURES]; /* a ring */
    uint64_t n_failures;                   /* ever */
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
    const struct grammar_cache_params *s = ctx;
    for (int m = 0; s->markers && m < TOOLS_N_MARKERS; m++)
        if (s->markers->id[m] == id)
            return spell_marker(tools_marker_text(s->style, (enum tools_marker)m), buf, size);
    size_t len = grammar_token_bytes((void *)s->tok, id, buf, size); /* only read */
    return s->markers && len == 1 && size > 0 && (unsigned char)buf[0] == 0xFF ? 0 : len;
}

/* Whether some id is a byte alone: no vocabulary can be made without (gram_vocab_create). */
static bool has_byte(const struct grammar_cache_params *p)
{
    char byte;
    for (int32_t id = 0; id < p->n_ids; id++)
        if (spell((void *)p, id, &byte, 1) == 1 && byte != '\xff') return true;
    return false;
}

int grammar_cache_create(struct grammar_cache **ret, const struct grammar_cache_params *params)
{
    if (!has_byte(params)) return GRAM_EINVAL;
    struct grammar_cache *c = calloc(1, sizeof(*c));
    if (!c) return GRAM_ENOMEM;
    c->p = *params;
    pthread_mutex_init(&c->vocab_lock, NULL);
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
    pthread_mutex_destroy(&c->vocab_lock);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- keys ---------------------------------------------------------------------------------- */

static void add_options(struct sha256 *s, const struct gram_options *o)
{
    const uint64_t head[] = {
        (uint64_t)o->styled << 3 | (uint64_t)o->strict << 2 | (uint64_t)o->closed_objects << 1 |
            o->no_whitespace,
        o->whitespace_pattern ? o->whitespace_pattern_len + 1 : 0,
        o->max_steps,
    };
    sha256_update(s, head, sizeof(head));
    if (o->whitespace_pattern) sha256_update(s, o->whitespace_pattern, o->whitespace_pattern_len);
}

/* A number and a text with its length, so that two different lists never give the same bytes. */
static void add_text(struct sha256 *s, uint64_t number, const char *text, size_t len)
{
    const uint64_t head[] = {number, text != NULL, text ? len : 0};
    sha256_update(s, head, sizeof(head));
    if (text) sha256_update(s, text, len);
}

static void add_tools(struct sha256 *s, const struct grammar_tools *tools)
{
    const struct tools_request *r = tools->request;
    const struct gram_part *content = tools->content;
    const uint64_t head[] = {(uint64_t)r->choice, r->one_call,       r->once,   r->no_reasoning,
                             r->answer_begun,     tools->think_open, r->n_tools};
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

void grammar_source_text(struct grammar_source *ret, enum gram_kind kind, const char *text,
                         size_t len, const struct gram_options *options)
{
    struct sha256 s;
    *ret = (struct grammar_source){.kind = kind, .text = text, .len = len, .options = *options};
    sha256_init(&s);
    add_options(&s, options);
    add_text(&s, (uint64_t)kind, text, len);
    sha256_final(&s, ret->key);
}

void grammar_source_tools(struct grammar_source *ret, const struct grammar_tools *tools,
                          const struct gram_options *options)
{
    static const char kind[] = "tools";
    struct sha256 s;
    *ret = (struct grammar_source){.tools = tools, .options = *options};
    sha256_init(&s);
    sha256_update(&s, kind, sizeof(kind));
    add_options(&s, options);
    add_tools(&s, tools);
    sha256_final(&s, ret->key);
}

/* ---- entries, with the lock held ----------------------------------------------------------- */

static bool find_grammar(struct grammar_cache *c, const struct grammar_source *source,
                         struct grammar_result *ret)
{
    for (int i = 0; i < MAX_ENTRIES; i++) {
        struct entry *e = &c->entries[i];
        if (!e->gram || memcmp(e->key, source->key, SHA256_BYTES) != 0) continue;
        e->used = ++c->clock;
        e->n_users++;
        *ret = (struct grammar_result){.gram = e->gram, .kept = true};
        return true;
    }
    return false;
}

static bool find_failure(struct grammar_cache *c, const struct grammar_source *source,
                         uint64_t tenant, struct grammar_result *ret)
{
    for (const struct failure *f = c->failures; f < c->failures + MAX_FAILURES; f++) {
        if (!f->error.code || f->tenant != tenant || memcmp(f->key, source->key, SHA256_BYTES) != 0)
            continue;
        *ret = (struct grammar_result){.error = f->error};
        return true;
    }
    return false;
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
static bool keep(struct grammar_cache *c, const struct grammar_source *source, struct gram *g)
{
    int64_t bytes = (int64_t)(gram_bytes(g) + gram_cache_bytes(g));
    if (bytes > c->p.max_bytes) return false;
    while (c->stats.bytes + bytes > c->p.max_bytes || !free_entry(c))
        if (!drop_oldest(c)) return false;
    struct entry *e = free_entry(c);
    assert(e && c->stats.bytes + bytes <= c->p.max_bytes);
    *e = (struct entry){.gram = g, .bytes = bytes, .n_users = 1, .used = ++c->clock};
    memcpy(e->key, source->key, SHA256_BYTES);
    c->stats.bytes += bytes;
    c->stats.n_entries++;
    return true;
}

/* ---- asking -------------------------------------------------------------------------------- */

/* Returns true if the source is known. counts: a hit or a miss of a request. */
static bool find(struct grammar_cache *c, const struct grammar_source *source, uint64_t tenant,
                 bool counts, struct grammar_result *ret)
{
    HOLD(&c->lock);
    bool found = find_grammar(c, source, ret) || find_failure(c, source, tenant, ret);
    c->stats.n_hits += counts && found;
    c->stats.n_misses += counts && !found;
    return found;
}

bool grammar_cache_find(struct grammar_cache *c, const struct grammar_source *source,
                        uint64_t tenant, struct grammar_result *ret)
{
    return find(c, source, tenant, true, ret);
}

/* For the first grammar: most processes compile none. Returns 0 or GRAM_ENOMEM with err. */
static int make_vocab(struct grammar_cache *c, struct gram_error *err)
{
    const struct gram_vocab_params params = {
        .n_ids = c->p.n_ids,
        .bytes = spell,
        .ctx = &c->p,
        .end_ids = c->p.end_ids,
        .n_end_ids = c->p.n_end_ids,
    };
    pthread_mutex_lock(&c->vocab_lock);
    int rc = c->vocab ? 0 : gram_vocab_create(&c->vocab, &params);
    pthread_mutex_lock(&c->lock);
    if (!rc) c->stats.vocab_bytes = (int64_t)gram_vocab_bytes(c->vocab);
    pthread_mutex_unlock(&c->lock);
    pthread_mutex_unlock(&c->vocab_lock);
    if (rc)
        *err = (struct gram_error){.code = GRAM_ENOMEM, .message = "No memory for the vocabulary."};
    return rc;
}

void grammar_cache_compile(struct grammar_cache *c, const struct grammar_source *source,
                           uint64_t tenant, bool (*stop)(void *ctx), void *ctx,
                           struct grammar_result *ret)
{
    const struct grammar_tools *tools = source->tools;
    struct gram_options options = source->options;
    struct grammar_result made = {.gram = NULL};
    options.closed_objects |= !c->p.open_objects;
    options.styled &= !c->p.any_whitespace;
    options.stop = stop;
    options.stop_ctx = ctx;
    assert(!tools || c->p.markers);
    if (find(c, source, tenant, false, ret)) return; /* made since the caller looked */
    int rc = make_vocab(c, &made.error);
    if (!rc && tools)
        rc = tools_compile(&made.gram, c->vocab, tools->request, c->p.markers, tools->think_open,
                           tools->content, &options, &made.error);
    else if (!rc)
        rc = gram_compile(&made.gram, c->vocab, source->kind, source->text, source->len, &options,
                          &made.error);
    pthread_mutex_lock(&c->lock);
    if (!rc) {
        made.kept = keep(c, source, made.gram);
    } else if (rc != GRAM_ENOMEM && rc != GRAM_ESTOPPED) { /* in the place of the oldest failure */
        struct failure *f = &c->failures[c->n_failures++ % MAX_FAILURES];
        *f = (struct failure){.tenant = tenant, .error = made.error};
        memcpy(f->key, source->key, SHA256_BYTES);
    }
    pthread_mutex_unlock(&c->lock);
    *ret = made;
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
    HOLD(&c->lock);
    return c->stats;
}
