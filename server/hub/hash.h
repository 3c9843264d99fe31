/* SPDX-License-Identifier: MIT */
/*
 * The hash of a file that is being written: a thread reads the file behind the writer, so hashing
 * takes no time of the transfer, and what is judged is what the file holds. SHA-256 for files of
 * git-lfs, else git's SHA-1 of a blob (of "blob SIZE", a NUL and the content). By GnuTLS, which
 * uses the processor's SHA instructions and is in the program for TLS already.
 *
 * Threads: one owner; the hasher's own thread is joined by hub_hasher_finish.
 */
#ifndef HEARTH_SERVER_HUB_HASH_H
#define HEARTH_SERVER_HUB_HASH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hub_hasher;

#include "server/hub/listing.h"

/*
 * Begins to hash fd (borrowed until the end) from its first byte. size: of the whole file. Returns
 * owned, or NULL when out of memory or threads.
 */
struct hub_hasher *hub_hasher_create(int fd, int64_t size, bool sha256);

/* The file holds this many bytes now; never fewer than before. */
void hub_hasher_follow(struct hub_hasher *h, int64_t n_bytes);

/*
 * Waits until all bytes are hashed and writes the digest as hexadecimal text. 0, or -1 with errno:
 * the file could not be read, or ECANCELED because *stop was set.
 */
int hub_hasher_result(struct hub_hasher *h, const atomic_bool *stop, char ret[HUB_ETAG_SIZE]);

/* Stops hashing. NULL is fine. */
void hub_hasher_destroy(struct hub_hasher *h);

/* The same of a text in memory. 0, or -1 when out of memory. */
int hub_hash_text(const char *text, size_t len, bool sha256, char ret[HUB_ETAG_SIZE]);

#endif
