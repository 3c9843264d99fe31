/* SPDX-License-Identifier: MIT */
/* The ids that two tokenizers share; see draft_ids.h. */
#include "server/models/draft_ids.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

/* The longer one of the tokenizer's ids and the model's. */
static uint64_t *new_bits(const struct eng *engine, const struct tok *tok)
{
    int32_t n_rows = engine ? eng_info(engine)->vocab_size : 0, n_ids = tok_vocab_size(tok);
    return calloc(((size_t)(n_ids > n_rows ? n_ids : n_rows) + 63) / 64, sizeof(uint64_t));
}

int srv_draft_ids(uint64_t **ret, const struct eng *engine, const struct tok *tok, const char *dir,
                  char *err, size_t errlen)
{
    struct tok *other = NULL;
    char why[300] = "out of memory";
    *ret = NULL;
    if (!dir || (engine && eng_draft_state(engine, NULL) != ENG_DRAFTS_LOADING)) return 0;
    uint64_t *bits = new_bits(engine, tok);
    bool read = bits && !tok_open(&other, dir, why, sizeof(why));
    bool fits = read && tok_fits(tok, other, bits, why, sizeof(why));
    tok_close(other);
    if (fits) {
        *ret = bits;
        return 0;
    }
    free(bits);
    if (read)
        snprintf(
            err, errlen,
            "draft model %.100s does not fit the model: %s; choose one with the same tokenizer",
            dir, why);
    else
        snprintf(err, errlen,
                 "draft model %.100s: %s; fetch it again, or start without a draft model", dir,
                 why);
    return -1;
}
