/* SPDX-License-Identifier: MIT */
/*
 * Owners of pages in kv-disk, API keys, that are not allowed any more: their pages are neither
 * written nor read, and a thread removes those that there are, of all models and whatever is
 * loaded. What cannot be removed for a moment is tried again; a key that comes back before that
 * stays banned until it is done.
 *
 * Threads: any; one lock, not held while files are removed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct srv_config;
struct srv_kv_bans;

/*
 * config: names the directories, those of further models too; borrowed. *ret: owned, or NULL if it
 * names none. Returns 0, or -1 with a sentence in err.
 */
int srv_kv_bans_create(struct srv_kv_bans **ret, const struct srv_config *config, char *err,
                       size_t errlen);
/* Tries once more to remove what is still there. NULL is fine. */
void srv_kv_bans_destroy(struct srv_kv_bans *b);

/* Bans an owner (ENG_KV_OWNER bytes), or allows it again. When out of memory nothing changes. */
void srv_kv_ban(struct srv_kv_bans *b, const uint8_t *owner, bool banned);
/* As eng_kv_disk_params has it; ctx: struct srv_kv_bans. */
bool srv_kv_is_banned(void *ctx, const uint8_t *owner);
