/* SPDX-License-Identifier: MIT */
/* Whether the tokenizer of a draft model fits that of the model it drafts for. */
#ifndef HEARTH_SERVER_MODELS_DRAFT_IDS_H
#define HEARTH_SERVER_MODELS_DRAFT_IDS_H

#include <stddef.h>
#include <stdint.h>

struct eng;
struct tok;

/*
 * If the engine has a draft model, of this directory: *ret are the ids of eng_load_drafts, owned
 * (free). If it has none, *ret is NULL. Without an engine (NULL) they are those of tok. Returns 0,
 * or -1 with a sentence in err if the tokenizer cannot be read or is another one.
 */
int srv_draft_ids(uint64_t **ret, const struct eng *engine, const struct tok *tok, const char *dir,
                  char *err, size_t errlen);

#endif
