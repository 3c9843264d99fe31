/* SPDX-License-Identifier: MIT */
/* Memory, budget and errors of a compilation; see build.h. */
#include "tokenizer/grammar/build.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "tokenizer/grammar/json_doc.h"

/* A chunk is about a third of the memory there already, so that little stays unused. */
enum { CHUNK_BYTES = 4096, MAX_CHUNK_BYTES = 1 << 18, STEP_BYTES = 64 };

enum { STEPS_PER_LOOK = 4096 }; /* some tenths of a millisecond */

/* ---- memory -------------------------------------------------------------------------------- */

static void *arena_alloc(struct gram_build *b, struct gram_arena *a, size_t n)
{
    struct gram_chunk *c = a->chunks;
    if (n > SIZE_MAX / 4) gram_fail_memory(b);
    n = (n + 15) & ~(size_t)15;
    gram_steps(b, n ? (n + STEP_BYTES - 1) / STEP_BYTES : 1);
    if (!c || c->cap - c->used < n) {
        size_t cap = a->bytes / 3 > CHUNK_BYTES ? a->bytes / 3 : CHUNK_BYTES;
        if (cap > MAX_CHUNK_BYTES) cap = MAX_CHUNK_BYTES;
        if (cap < n) cap = n;
        c = calloc(1, sizeof(*c) + cap);
        if (!c) gram_fail_memory(b);
        c->cap = cap;
        c->next = a->chunks;
        a->chunks = c;
        a->bytes += sizeof(*c) + cap;
    }
    void *p = c->data + c->used;
    c->used += n;
    assert(c->used <= c->cap);
    return p;
}

void gram_arena_finish(struct gram_arena *a)
{
    while (a->chunks) {
        struct gram_chunk *c = a->chunks;
        a->chunks = c->next;
        free(c);
    }
    a->bytes = 0;
}

void *gram_temp(struct gram_build *b, size_t n)
{
    return arena_alloc(b, &b->temp, n);
}

void *gram_keep(struct gram_build *b, size_t n)
{
    return arena_alloc(b, b->keep_nothing ? &b->temp : &b->keep, n);
}

static size_t product(struct gram_build *b, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) gram_fail_memory(b);
    return bytes;
}

void *gram_temp_array(struct gram_build *b, size_t n, size_t size)
{
    return gram_temp(b, product(b, n, size));
}

void *gram_keep_array(struct gram_build *b, size_t n, size_t size)
{
    return gram_keep(b, product(b, n, size));
}

void *gram_keep_copy(struct gram_build *b, const void *data, size_t n, size_t size)
{
    void *p = gram_keep_array(b, n, size);
    if (n) memcpy(p, data, n * size);
    return p;
}

void *gram_grow(struct gram_build *b, void *items, uint32_t n, uint32_t *cap, size_t size)
{
    assert(n <= *cap);
    if (n < *cap) return items;
    uint32_t bigger = *cap ? *cap * 2 : 8;
    if (bigger <= n) gram_fail_memory(b);
    void *p = gram_temp_array(b, bigger, size);
    if (n) memcpy(p, items, n * size);
    *cap = bigger;
    return p;
}

/* ---- tables -------------------------------------------------------------------------------- */

static void add_buckets(struct gram_build *b, struct gram_table *t)
{
    t->n_buckets = t->n_buckets ? t->n_buckets * 4 : 16;
    t->buckets = gram_temp_array(b, t->n_buckets, sizeof(*t->buckets));
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t *bucket = &t->buckets[t->entries[i].hash % t->n_buckets];
        t->entries[i].next = *bucket;
        *bucket = i + 1;
    }
}

/* Not a keyed one, which takes longer: keys that collide cost steps. */
static uint64_t hash_of(const char *key, size_t len)
{
    uint64_t h = len, word = 0;
    for (; len >= sizeof(word); len -= sizeof(word), key += sizeof(word)) {
        memcpy(&word, key, sizeof(word));
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
    }
    word = 0;
    if (len) memcpy(&word, key, len);
    h = (h ^ word) * 0xBF58476D1CE4E5B9u;
    return h ^ h >> 29;
}

uint32_t gram_table_add(struct gram_build *b, struct gram_table *t, const void *key, size_t len)
{
    uint64_t hash = hash_of(key, len);
    gram_steps(b, 1 + len / 128);
    if (t->n >= t->n_buckets) add_buckets(b, t);
    uint32_t *bucket = &t->buckets[hash % t->n_buckets], n = 0;
    for (uint32_t i = *bucket; i; i = t->entries[i - 1].next) {
        const struct gram_table_entry *e = &t->entries[i - 1];
        if (++n % 16 == 0) gram_steps(b, 1);
        if (e->hash == hash && e->len == len && (!len || !memcmp(e->key, key, len))) return i - 1;
    }
    t->entries = gram_grow(b, t->entries, t->n, &t->cap, sizeof(*t->entries));
    void *copy = gram_temp(b, len);
    if (len) memcpy(copy, key, len);
    t->entries[t->n] = (struct gram_table_entry){copy, len, hash, *bucket};
    *bucket = ++t->n;
    return t->n - 1;
}

/* ---- texts --------------------------------------------------------------------------------- */

const char *gram_text(struct gram_build *b, const char *format, ...)
{
    char text[400];
    FORMAT_REST(text, sizeof(text), format);
    char *p = gram_temp(b, strlen(text) + 1);
    memcpy(p, text, strlen(text) + 1);
    return p;
}

/* As many whole characters as fit in `limit` bytes, "..." if not all do. Returns the length. */
static size_t show(char *out, size_t limit, const char *text, size_t len)
{
    size_t n = 0;
    char one[SHOWN_CHAR_BYTES];
    for (size_t taken; len; text += taken, len -= taken) {
        size_t k = shown_char(one, text, len, &taken);
        bool cut = n + k > limit - (taken < len ? 3 : 0);
        if (cut) k = 3;
        memcpy(out + n, cut ? "..." : one, k);
        n += k;
        if (cut) break;
    }
    return n;
}

const char *gram_quote(struct gram_build *b, const char *text, size_t len)
{
    enum { LIMIT = 60 };
    char *out = gram_temp(b, LIMIT + 8);
    size_t n = 1 + show(out + 1, LIMIT - 1, text, len);
    out[0] = out[n] = '\'';
    return out;
}

/* ---- errors and budget --------------------------------------------------------------------- */

/* Cuts a text that was too long for its buffer after its last whole character. */
static void cut_to_characters(char *s)
{
    size_t n = strlen(s);
    while (n > 0 && !utf8_valid(s, n))
        s[--n] = '\0';
}

__attribute__((format(printf, 3, 0))) static void
write_message(struct gram_error *err, const char *prefix, const char *format, va_list ap)
{
    int n = snprintf(err->message, 301, "%s", prefix);
    vsnprintf(err->message + n, 301 - (size_t)n, format, ap);
    cut_to_characters(err->message);
}

void gram_fail(struct gram_build *b, enum gram_error_code code, const char *format, ...)
{
    va_list ap;
    *b->err = (struct gram_error){.code = code};
    va_start(ap, format);
    write_message(b->err, "", format, ap);
    va_end(ap);
    longjmp(b->out, 1);
}

enum { PREFIX_BYTES = 200 };

void gram_fail_at(struct gram_build *b, const struct gram_js *at, const char *keyword,
                  const char *format, ...)
{
    char pointer[GRAM_POINTER_BYTES], prefix[PREFIX_BYTES];
    struct gram_error *err = b->err;
    va_list ap;
    gram_js_pointer(at, pointer, sizeof(pointer));
    *err = (struct gram_error){.code = GRAM_EINVAL, .has_pointer = true};
    snprintf(err->pointer, sizeof(err->pointer), "%s%s", b->pointer, pointer);
    cut_to_characters(err->pointer);
    if (keyword) snprintf(err->keyword, sizeof(err->keyword), "%s", keyword);
    cut_to_characters(err->keyword);
    size_t n = show(prefix, PREFIX_BYTES - 5, err->pointer, strlen(err->pointer));
    snprintf(prefix + n, PREFIX_BYTES - n, "%s: ", n ? "" : "/");
    va_start(ap, format);
    write_message(err, prefix, format, ap);
    va_end(ap);
    longjmp(b->out, 1);
}

void gram_fail_limit(struct gram_build *b, uint64_t limit, const char *what)
{
    unsigned long long n = limit;
    if (b->schema) gram_fail_at(b, NULL, NULL, "the schema needs more than %llu %s.", n, what);
    gram_fail(b, GRAM_EGRAMMAR, "The grammar needs more than %llu %s.", n, what);
}

void gram_fail_memory(struct gram_build *b)
{
    gram_fail(b, GRAM_ENOMEM, "Out of memory while compiling the grammar.");
}

static void look(struct gram_build *b)
{
    const struct gram_options *o = b->options;
    b->look_at = b->steps + STEPS_PER_LOOK;
    if (o->stop && o->stop(o->stop_ctx))
        gram_fail(b, GRAM_ESTOPPED, "The compilation of the grammar was stopped.");
}

void gram_steps(struct gram_build *b, uint64_t n)
{
    uint64_t limit = b->max_steps;
    b->steps += n;
    if (b->steps >= b->look_at) look(b);
    if (b->steps <= limit) return;
    b->max_steps = UINT64_MAX; /* the error itself needs some */
    gram_fail_limit(b, limit, "compile steps");
}
