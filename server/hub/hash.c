/* SPDX-License-Identifier: MIT */
/* Hashing behind a writer; see hash.h. */
#include "server/hub/hash.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 128 << 10, /* per read; fits the second-level cache */
    WAKE_BYTES = 256 << 10,  /* the writer wakes the thread for no less, but at the end */
    DIGEST_MAX_BYTES = 32,
    LOOK_MS = 50, /* how often a waiting owner looks at its stop flag */
};

struct hub_hasher {
    int fd;
    bool sha256;
    int64_t size;
    gnutls_hash_hd_t hash;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    int64_t n_written, n_woken; /* bytes in the file; those at the last wake */
    bool done, stop;
    int error;               /* errno of the thread */
    char piece[PIECE_BYTES]; /* used by the thread alone */
};

static void to_hex(const unsigned char *digest, size_t n, char *ret)
{
    for (size_t i = 0; i < n; i++)
        snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

static int begin_hash(gnutls_hash_hd_t *ret, int64_t size, bool sha256)
{
    char head[40];
    if (gnutls_hash_init(ret, sha256 ? GNUTLS_DIG_SHA256 : GNUTLS_DIG_SHA1)) return -1;
    int len = snprintf(head, sizeof(head), "blob %lld", (long long)size);
    return sha256 ? 0 : gnutls_hash(*ret, head, (size_t)len + 1);
}

static void end_hash(gnutls_hash_hd_t hash, bool sha256, char ret[HUB_ETAG_SIZE])
{
    unsigned char digest[DIGEST_MAX_BYTES];
    gnutls_hash_deinit(hash, digest);
    to_hex(digest, sha256 ? 32 : 20, ret);
}

int hub_hash_text(const char *text, size_t len, bool sha256, char ret[HUB_ETAG_SIZE])
{
    gnutls_hash_hd_t hash;
    if (begin_hash(&hash, (int64_t)len, sha256)) return -1;
    int rc = gnutls_hash(hash, text, len);
    end_hash(hash, sha256, ret);
    return rc ? -1 : 0;
}

/* Hashes [from, to) of the file; the errno of what failed, or 0. */
static int hash_range(struct hub_hasher *h, int64_t from, int64_t to)
{
    while (from < to) {
        size_t wanted = to - from < PIECE_BYTES ? (size_t)(to - from) : PIECE_BYTES;
        ssize_t n = pread(h->fd, h->piece, wanted, (off_t)from);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : EIO; /* another process truncated the file */
        if (gnutls_hash(h->hash, h->piece, (size_t)n)) return EIO;
        from += n;
    }
    return 0;
}

static void *hash_all(void *arg)
{
    struct hub_hasher *h = arg;
    int64_t at = 0;
    int error = 0;
    pthread_mutex_lock(&h->lock);
    while (!h->stop && !error && at < h->size) {
        int64_t to = h->n_written - at > 8 * WAKE_BYTES ? at + 8 * WAKE_BYTES : h->n_written;
        if (to <= at) {
            pthread_cond_wait(&h->changed, &h->lock);
            continue;
        }
        pthread_mutex_unlock(&h->lock);
        error = hash_range(h, at, to);
        at = to;
        pthread_mutex_lock(&h->lock);
    }
    h->error = error;
    h->done = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

struct hub_hasher *hub_hasher_create(int fd, int64_t size, bool sha256)
{
    struct hub_hasher *h = calloc(1, sizeof(*h));
    if (!h) return NULL;
    h->fd = fd;
    h->size = size;
    h->sha256 = sha256;
    if (begin_hash(&h->hash, size, sha256)) {
        free(h);
        return NULL;
    }
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    if (pthread_create(&h->thread, NULL, hash_all, h) == 0) return h;
    gnutls_hash_deinit(h->hash, NULL);
    free(h);
    return NULL;
}

void hub_hasher_follow(struct hub_hasher *h, int64_t n_bytes)
{
    pthread_mutex_lock(&h->lock);
    h->n_written = n_bytes < h->size ? n_bytes : h->size;
    if (h->n_written - h->n_woken >= WAKE_BYTES || h->n_written == h->size) {
        h->n_woken = h->n_written;
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
}

static struct timespec next_look(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += LOOK_MS * 1000000L;
    t.tv_sec += t.tv_nsec / 1000000000L;
    t.tv_nsec %= 1000000000L;
    return t;
}

int hub_hasher_result(struct hub_hasher *h, const atomic_bool *stop, char ret[HUB_ETAG_SIZE])
{
    pthread_mutex_lock(&h->lock);
    while (!h->done && !atomic_load(stop)) {
        struct timespec until = next_look();
        pthread_cond_timedwait(&h->changed, &h->lock, &until);
    }
    int error = h->done ? h->error : ECANCELED;
    pthread_mutex_unlock(&h->lock);
    errno = error;
    if (error) return -1;
    end_hash(h->hash, h->sha256, ret);
    h->hash = NULL;
    return 0;
}

void hub_hasher_destroy(struct hub_hasher *h)
{
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    if (h->hash) gnutls_hash_deinit(h->hash, NULL);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
