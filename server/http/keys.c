/* SPDX-License-Identifier: MIT */
/*
 * Key digests in one array under a mutex: the HTTP thread compares, the main thread replaces the
 * array on SIGHUP. The key texts live only while they are read.
 */
#include "server/http/keys.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/sha256.h"

struct key {
    uint8_t digest[SHA256_BYTES];
    struct srv_key_words words;
    int line; /* of the file; 0: of another source, which has no words */
};

struct key_set {
    struct key *keys;
    int n;
};

struct srv_keys {
    pthread_mutex_t lock; /* guards `set`, which the main thread alone changes */
    struct key_set set;
    const char *option;
    bool takes_words;
    struct srv_metrics *metrics; /* where names are counted, or NULL */
    char *file;
    char *more;
};

static const char blanks[] = " \t\r\n";

/* A client cannot send such a key: srv_guard_key takes one word. */
static bool is_one_word(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] <= ' ' || text[i] == 0x7f) return false;
    return true;
}

/* Returns what is wrong with a word, or NULL. It may be a second key, so no message repeats it. */
static const char *read_word(struct srv_key_words *w, const char *word)
{
    static const char digits[] = "0123456789",
                      of_names[] =
                          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *value = word + strcspn(word, "=") + 1;
    if (!strncmp(word, "name=", 5)) {
        size_t len = strspn(value, of_names);
        if (*w->name || !len || len > SRV_KEY_NAME_MAX || value[len])
            return "name= takes 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', once";
        memcpy(w->name, value, len);
    } else if (!strncmp(word, "models=", 7)) {
        size_t len = strlen(value);
        if (*w->models || !len || len > SRV_KEY_MODELS_MAX_BYTES || *value == ',' ||
            value[len - 1] == ',' || strstr(value, ",,"))
            return "models= takes names with commas between them, at most 1024 bytes, once";
        memcpy(w->models, value, len);
        for (char *p = w->models; (p = strchr(p, ',')); p++)
            *p = '\0';
    } else if (!strncmp(word, "slots=", 6)) {
        size_t len = strspn(value, digits);
        if (w->slots || !len || len > 4 || value[len] || !(w->slots = (int)strtol(value, NULL, 10)))
            return "slots= takes a number from 1 to 9999, once";
    } else {
        return "only name=, models= and slots= may follow a key on its line, and a comment takes a "
               "line of its own";
    }
    return NULL;
}

/* Reads the words after the last key of the set. Returns what is wrong with them, or NULL. */
static const char *read_words(const struct key_set *set, const char *text, size_t len)
{
    struct key *key = &set->keys[set->n - 1];
    char word[SRV_KEY_MODELS_MAX_BYTES + 16];
    const char *wrong = NULL;
    for (size_t n; len && !wrong; text += n, len -= n) { /* the text goes on after a blank or NUL */
        n = strcspn(text, blanks);
        snprintf(word, sizeof(word), "%.*s", (int)n, text);
        if (n && (n >= sizeof(word) || !is_one_word(text, n)))
            wrong = "a word is too long or holds a control character";
        else if (n)
            wrong = read_word(&key->words, word);
        n += !n;
    }
    explicit_bzero(word, sizeof(word));
    for (const struct key *k = set->keys; k < key && !wrong; k++)
        if (!memcmp(k->digest, key->digest, sizeof(k->digest)) &&
            memcmp(&k->words, &key->words, sizeof(k->words)))
            wrong = "this key is there before, with other words";
    return wrong;
}

/* line: where words may follow the key; 0: none may. */
static int add_key(struct key_set *set, const char *text, size_t len, int line, char *err,
                   size_t errlen)
{
    size_t all = len;
    if (line) len = strcspn(text, blanks);
    if (!is_one_word(text, len))
        return fail_with(-1, err, errlen,
                         "a key holds a blank or a control character, so no client can send it; "
                         "a comment takes a line of its own");
    if (len > SRV_KEY_MAX_BYTES || set->n >= SRV_KEYS_MAX)
        return fail_with(-1, err, errlen, "at most %d keys of at most %d bytes each are read",
                         (int)SRV_KEYS_MAX, (int)SRV_KEY_MAX_BYTES);
    if (!(set->n & (set->n - 1))) { /* full: it has room for a power of two */
        struct key *keys = realloc(set->keys, sizeof(*keys) * (size_t)(set->n ? 2 * set->n : 1));
        if (!keys) return fail_with(-1, err, errlen, "no memory for the API keys");
        set->keys = keys;
    }
    struct key *key = &set->keys[set->n++];
    *key = (struct key){.line = line};
    sha256(key->digest, text, len);
    const char *wrong = read_words(set, text + len, all - len);
    return wrong ? fail_with(-1, err, errlen, "%s", wrong) : 0;
}

/* Adds the text between blanks and separators. */
static int add_trimmed(struct key_set *set, const char *text, size_t len, int line, char *err,
                       size_t errlen)
{
    while (len && strchr(blanks, *text))
        text++, len--;
    while (len && strchr(blanks, text[len - 1]))
        len--;
    return len ? add_key(set, text, len, line, err, errlen) : 0;
}

static int read_file(struct key_set *set, const struct srv_keys *k, char *err, size_t errlen)
{
    char why[500];
    size_t len;
    AUTO_FREE char *text = NULL;
    if (file_load(NULL, k->file, SRV_KEY_FILE_MAX_BYTES, &text, &len, why, sizeof(why)))
        return fail_with(-1, err, errlen, "%s %s", k->option, why);
    int rc = 0, before = set->n, n_lines = 0;
    char *line = text + (strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
    while (rc == 0 && line < text + len) {
        n_lines++;
        char *end = memchr(line, '\n', (size_t)(text + len - line));
        if (!end) end = text + len;
        if (line[strspn(line, " \t")] != '#')
            rc = add_trimmed(set, line, (size_t)(end - line), k->takes_words ? n_lines : 0, why,
                             sizeof(why));
        line = end + 1;
    }
    if (rc) snprintf(err, errlen, "%s %.200s:%d: %s", k->option, k->file, n_lines, why);
    explicit_bzero(text, len);
    if (rc || set->n > before) return rc;
    return fail_with(-1, err, errlen, "%s %.200s: holds no key", k->option, k->file);
}

static void count_names(struct key_set *set, struct srv_metrics *metrics)
{
    for (struct key *key = set->keys; metrics && key < set->keys + set->n; key++)
        if (*key->words.name) key->words.counts = srv_metrics_key(metrics, key->words.name);
}

static int read_set(struct key_set *ret, const struct srv_keys *k, char *err, size_t errlen)
{
    struct key_set set = {0};
    char why[200];
    int rc = 0;
    for (const char *p = k->more; p && *p && rc == 0;) {
        size_t len = strcspn(p, ",");
        rc = add_trimmed(&set, p, len, 0, why, sizeof(why));
        p += len + (p[len] == ',');
    }
    if (rc == 0 && k->more && set.n == 0) rc = fail_with(-1, why, sizeof(why), "it holds no key");
    if (rc) snprintf(err, errlen, "the key in the environment (see %s): %s", k->option, why);
    if (rc == 0 && k->file) rc = read_file(&set, k, err, errlen);
    if (rc) {
        free(set.keys);
        return rc;
    }
    count_names(&set, k->metrics);
    *ret = set;
    return 0;
}

int srv_keys_create(struct srv_keys **ret, const char *option, const char *file, const char *more,
                    bool takes_words, char *err, size_t errlen)
{
    *ret = NULL;
    if (!file && !more) return 0;
    struct srv_keys *k = calloc(1, sizeof(*k));
    int rc = -1;
    snprintf(err, errlen, "no memory for the API keys");
    if (!k) return rc;
    pthread_mutex_init(&k->lock, NULL);
    k->option = option;
    k->takes_words = takes_words;
    if ((!file || (k->file = strdup(file))) && (!more || (k->more = strdup(more))))
        rc = read_set(&k->set, k, err, errlen);
    if (rc)
        srv_keys_destroy(k);
    else
        *ret = k;
    return rc;
}

void srv_keys_destroy(struct srv_keys *k)
{
    if (!k) return;
    pthread_mutex_destroy(&k->lock);
    if (k->more) explicit_bzero(k->more, strlen(k->more));
    free(k->more);
    free(k->file);
    free(k->set.keys);
    free(k);
}

void srv_keys_count_in(struct srv_keys *k, struct srv_metrics *metrics)
{
    if (!k) return;
    k->metrics = metrics;
    count_names(&k->set, metrics);
}

/* Calls changed for those of a that b has not. */
static void tell_missing(const struct key_set *a, const struct key_set *b,
                         void (*changed)(void *ctx, const uint8_t *digest, bool is_valid),
                         void *ctx, bool is_valid)
{
    for (int i = 0; i < a->n; i++) {
        int j = 0;
        while (j < b->n && memcmp(a->keys[i].digest, b->keys[j].digest, SHA256_BYTES) != 0)
            j++;
        if (j == b->n) changed(ctx, a->keys[i].digest, is_valid);
    }
}

int srv_keys_reload(struct srv_keys *k,
                    void (*changed)(void *ctx, const uint8_t *digest, bool is_valid), void *ctx,
                    char *err, size_t errlen)
{
    struct key_set set, old;
    if (!k) return 0;
    int rc = read_set(&set, k, err, errlen);
    if (rc) return rc;
    pthread_mutex_lock(&k->lock);
    old = k->set;
    k->set = set;
    pthread_mutex_unlock(&k->lock);
    if (changed) tell_missing(&old, &set, changed, ctx, false);
    if (changed) tell_missing(&set, &old, changed, ctx, true);
    free(old.keys);
    return 0;
}

/* Returns 0 if they are equal. Always compares every byte. */
static unsigned difference(const uint8_t *a, const uint8_t *b)
{
    unsigned diff = 0;
    for (int i = 0; i < SHA256_BYTES; i++)
        diff |= (unsigned)(a[i] ^ b[i]);
    return diff;
}

bool srv_keys_several(struct srv_keys *k)
{
    bool several = false;
    if (!k) return false;
    HOLD(&k->lock);
    for (int i = 1; i < k->set.n && !several; i++)
        several = memcmp(k->set.keys[i].digest, k->set.keys[0].digest, SHA256_BYTES) != 0;
    return several;
}

bool srv_keys_own(struct srv_keys *k, const uint8_t *owner, size_t n)
{
    bool own = false;
    HOLD(&k->lock);
    for (int i = 0; i < k->set.n; i++)
        own |= memcmp(k->set.keys[i].digest, owner, n) == 0;
    return own;
}

bool srv_keys_find(struct srv_keys *k, const uint8_t *digest, struct srv_key_words *ret_words)
{
    static const uint8_t none[SHA256_BYTES];
    unsigned n_equal = 0;
    if (!k) return difference(digest, none) == 0;
    HOLD(&k->lock);
    for (int i = 0; i < k->set.n; i++)
        n_equal += difference(digest, k->set.keys[i].digest) == 0;
    for (int i = 0; i < k->set.n && n_equal && ret_words; i++)
        if (!memcmp(k->set.keys[i].digest, digest, SHA256_BYTES)) *ret_words = k->set.keys[i].words;
    return n_equal > 0;
}

bool srv_keys_check(struct srv_keys *k, const char *text, size_t len, uint8_t *ret_digest,
                    struct srv_key_words *ret_words)
{
    uint8_t digest[SHA256_BYTES];
    if (len > SRV_KEY_MAX_BYTES) return false;
    sha256(digest, text, len);
    if (!srv_keys_find(k, digest, ret_words)) return false;
    memcpy(ret_digest, digest, sizeof(digest));
    return true;
}

void srv_keys_each_list(const struct srv_keys *k,
                        void (*fn)(void *ctx, const char *models, int line), void *ctx)
{
    for (int i = 0; k && i < k->set.n; i++)
        if (*k->set.keys[i].words.models) fn(ctx, k->set.keys[i].words.models, k->set.keys[i].line);
}
