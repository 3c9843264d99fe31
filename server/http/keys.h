/* SPDX-License-Identifier: MIT */
/*
 * The API keys. Only digests are kept. A client's key is hashed and compared with all of them in
 * constant time. The key file has one key per line and # comments, and may be read again while
 * running. Words may follow a key: its name, the models it may use, its slots.
 *
 * Threads: safe after creation.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/bounds.h"
#include "server/metrics.h"

struct srv_keys;

/* The words of a key; those it has not are "" and 0. */
struct srv_key_words {
    char name[SRV_KEY_NAME_MAX + 1];
    char models[SRV_KEY_MODELS_MAX_BYTES + 2]; /* names, each with its NUL, then ""; "": all */
    int slots;                                 /* of each model, for its sequences; 0: all */
    struct srv_key_counts *counts;             /* of the name; NULL without one */
};

/*
 * option: the name of the file's option, for messages. file: path of a key file, or NULL. more:
 * further keys separated by commas, which have no words, or NULL. takes_words: those of the file
 * may have them. With neither no key is required, and *ret is NULL, which the functions below
 * accept. A source without a key in it is refused, and one with a key that no client can send.
 * Returns owned: srv_keys_destroy.
 */
int srv_keys_create(struct srv_keys **ret, const char *option, const char *file, const char *more,
                    bool takes_words, char *err, size_t errlen);
/* From now on names are counted there. Borrows. */
void srv_keys_count_in(struct srv_keys *k, struct srv_metrics *metrics);
void srv_keys_destroy(struct srv_keys *k);

/* Reads the file again; on failure the old keys stay. changed is called for each key that came or
 * went (digest: as of srv_keys_check), if it is not NULL. */
int srv_keys_reload(struct srv_keys *k,
                    void (*changed)(void *ctx, const uint8_t *digest, bool is_valid), void *ctx,
                    char *err, size_t errlen);

/* Returns true if there are several different keys. */
bool srv_keys_several(struct srv_keys *k);

/* Returns true if the digest of a key begins with these n bytes. */
bool srv_keys_own(struct srv_keys *k, const uint8_t *owner, size_t n);

/* Returns true if the text is a key. Then ret_digest (32 bytes) is its digest, which identifies the
 * key, and ret_words its words, unless it is NULL. */
bool srv_keys_check(struct srv_keys *k, const char *text, size_t len, uint8_t *ret_digest,
                    struct srv_key_words *ret_words);

/* Returns true if the digest is that of a key, or zeros without keys; ret_words as above. */
bool srv_keys_find(struct srv_keys *k, const uint8_t *digest, struct srv_key_words *ret_words);

/* Calls fn for each list of models after a key, and the line of the file. The main thread's. */
void srv_keys_each_list(const struct srv_keys *k,
                        void (*fn)(void *ctx, const char *models, int line), void *ctx);
