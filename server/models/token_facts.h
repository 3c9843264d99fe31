/* SPDX-License-Identifier: MIT */
/* Tokens that several files of a model name: end of sequence, begin of text, padding; and whether
 * the tokenizer of a draft model fits. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct eng;
struct tok;

/*
 * The id of the token that ends a sequence by the tokenizer's files; info is from
 * tok_chat_info_read. -1: they name none, or one that tokenizer.json has not.
 */
int32_t srv_tokenizer_eos(const struct tok *tok, const char *info);

/* Adds it to the engine's. Logs where the files of dir name different tokens and one is used. */
void srv_token_facts(struct eng *engine, const struct tok *tok, const char *info, const char *dir);

/*
 * If the engine has a draft model, of this directory: *ret are the ids of eng_load_drafts, owned
 * (free). If it has none, *ret is NULL. Without an engine (NULL) they are those of tok. Returns 0,
 * or -1 with a sentence in err if the tokenizer cannot be read or is another one.
 */
int srv_draft_ids(uint64_t **ret, const struct eng *engine, const struct tok *tok, const char *dir,
                  char *err, size_t errlen);
