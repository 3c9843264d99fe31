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

#include "base/fail.h"
#include "base/file.h"
#include "base/sha256.h"
#include "server/bounds.h"

struct digest {
    uint8_t bytes[SHA256_BYTES];
};

struct key_set {
    struct digest *digests;
    int n;
};

struct srv_keys {
    pthread_mutex_t lock; /* guards `set` */
    struct key_set set;
    const char *option;
    char *file;
    char *more;
};

/* A client cannot send such a key: srv_guard_key takes one word. */
static bool is_one_word(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] <= ' ' || text[i] == 0x7f) return false;
    return true;
}

static int add_key(struct key_set *set, const char *text, size_t len, char *err, size_t errlen)
{
    if (!is_one_word(text, len))
        return fail_with(-1, err, errlen,
                         "a key holds a blank or a control character, so no client can send it; "
                         "a comment takes a line of its own");
    if (len > SRV_KEY_MAX_BYTES || set->n >= SRV_KEYS_MAX)
        return fail_with(-1, err, errlen, "at most %d keys of at most %d bytes each are read",
                         (int)SRV_KEYS_MAX, (int)SRV_KEY_MAX_BYTES);
    struct digest *digests = realloc(set->digests, sizeof(*digests) * (size_t)(set->n + 1));
    if (!digests) return fail_with(-1, err, errlen, "no memory for the API keys");
    set->digests = digests;
    sha256(digests[set->n++].bytes, text, len);
    return 0;
}

/* Adds the text between blanks and separators. */
static int add_trimmed(struct key_set *set, const char *text, size_t len, char *err, size_t errlen)
{
    static const char blanks[] = " \t\r\n";
    while (len && strchr(blanks, *text))
        text++, len--;
    while (len && strchr(blanks, text[len - 1]))
        len--;
    return len ? add_key(set, text, len, err, errlen) : 0;
}

static int read_file(struct key_set *set, const struct srv_keys *k, char *err, size_t errlen)
{
    char why[500];
    size_t len;
    char *text;
    if (file_load(NULL, k->file, SRV_KEY_FILE_MAX_BYTES, &text, &len, why, sizeof(why)))
        return fail_with(-1, err, errlen, "%s %s", k->option, why);
    int rc = 0, before = set->n, n_lines = 0;
    char *line = text + (strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
    while (rc == 0 && line < text + len) {
        n_lines++;
        char *end = memchr(line, '\n', (size_t)(text + len - line));
        if (!end) end = text + len;
        if (line[strspn(line, " \t")] != '#')
            rc = add_trimmed(set, line, (size_t)(end - line), why, sizeof(why));
        line = end + 1;
    }
    if (rc) snprintf(err, errlen, "%s %.200s:%d: %s", k->option, k->file, n_lines, why);
    explicit_bzero(text, len);
    free(text);
    if (rc || set->n > before) return rc;
    return fail_with(-1, err, errlen, "%s %.200s: holds no key", k->option, k->file);
}

static int read_set(struct key_set *ret, const struct srv_keys *k, char *err, size_t errlen)
{
    struct key_set set = {0};
    char why[200];
    int rc = 0;
    for (const char *p = k->more; p && *p && rc == 0;) {
        size_t len = strcspn(p, ",");
        rc = add_trimmed(&set, p, len, why, sizeof(why));
        p += len + (p[len] == ',');
    }
    if (rc == 0 && k->more && set.n == 0) rc = fail_with(-1, why, sizeof(why), "it holds no key");
    if (rc) snprintf(err, errlen, "the key in the environment (see %s): %s", k->option, why);
    if (rc == 0 && k->file) rc = read_file(&set, k, err, errlen);
    if (rc)
        free(set.digests);
    else
        *ret = set;
    return rc;
}

int srv_keys_create(struct srv_keys **ret, const char *option, const char *file, const char *more,
                    char *err, size_t errlen)
{
    *ret = NULL;
    if (!file && !more) return 0;
    struct srv_keys *k = calloc(1, sizeof(*k));
    int rc = -1;
    snprintf(err, errlen, "no memory for the API keys");
    if (!k || pthread_mutex_init(&k->lock, NULL)) {
        free(k);
        return -1;
    }
    k->option = option;
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
    free(k->set.digests);
    free(k);
}

/* Calls changed for those of a that b has not. */
static void tell_missing(const struct key_set *a, const struct key_set *b,
                         void (*changed)(void *ctx, const uint8_t *digest, bool is_valid),
                         void *ctx, bool is_valid)
{
    for (int i = 0; i < a->n; i++) {
        int j = 0;
        while (j < b->n && memcmp(&a->digests[i], &b->digests[j], sizeof(*a->digests)) != 0)
            j++;
        if (j == b->n) changed(ctx, a->digests[i].bytes, is_valid);
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
    free(old.digests);
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
    pthread_mutex_lock(&k->lock);
    for (int i = 1; i < k->set.n && !several; i++)
        several = memcmp(&k->set.digests[i], &k->set.digests[0], sizeof(k->set.digests[0])) != 0;
    pthread_mutex_unlock(&k->lock);
    return several;
}

bool srv_keys_own(struct srv_keys *k, const uint8_t *owner, size_t n)
{
    bool own = false;
    pthread_mutex_lock(&k->lock);
    for (int i = 0; i < k->set.n; i++)
        own |= memcmp(k->set.digests[i].bytes, owner, n) == 0;
    pthread_mutex_unlock(&k->lock);
    return own;
}

bool srv_keys_check(struct srv_keys *k, const char *text, size_t len, uint8_t *ret_digest)
{
    uint8_t digest[SHA256_BYTES];
    unsigned n_equal = 0;
    if (len > SRV_KEY_MAX_BYTES) return false;
    sha256(digest, text, len);
    pthread_mutex_lock(&k->lock);
    for (int i = 0; i < k->set.n; i++)
        n_equal += difference(digest, k->set.digests[i].bytes) == 0;
    pthread_mutex_unlock(&k->lock);
    if (!n_equal) return false;
    memcpy(ret_digest, digest, sizeof(digest));
    return true;
}
