/* SPDX-License-Identifier: MIT */
/*
 * Ids to tokens and back, added tokens first; see tokenizer.h.
 */
#include <string.h>

#include "tokenizer/tokenizer_internal.h"

const char *tok_token_string(const struct tok *t, int32_t id, size_t *ret_len)
{
    const struct tok_added_token *added = tok_added_by_id(&t->added, id);

    if (!added) return tok_vocab_string(&t->vocab, id, ret_len);
    *ret_len = added->len;
    return added->content;
}

int32_t tok_vocab_size(const struct tok *t)
{
    int32_t size = (int32_t)t->vocab.n_ids;

    if (t->added.n_tokens) {
        int32_t last = t->added.tokens[t->added.by_id[t->added.n_tokens - 1]].id;
        if (last >= size) size = last + 1;
    }
    return size;
}

int32_t tok_token_id(const struct tok *t, const char *content, size_t len)
{
    const struct tok_added_token *added = tok_added_by_content(&t->added, content, len);
    return added ? added->id : tok_vocab_find(&t->vocab, content, len);
}

bool tok_is_special(const struct tok *t, int32_t id)
{
    const struct tok_added_token *added = tok_added_by_id(&t->added, id);
    return added && added->special;
}

bool tok_has_id(const struct tok *t, int32_t id)
{
    size_t len;
    return tok_token_string(t, id, &len) != NULL;
}

size_t tok_token_bytes(const struct tok *t, int32_t id, char *buf, size_t size)
{
    struct tok_decode_run run = {0};
    size_t len;
    const char *s = tok_token_string(t, id, &len);

    if (!s) return 0;
    if (tok_decode_bytes(&t->decode, &run, s, len) == 0) {
        len = run.out.len;
        if (len && size) memcpy(buf, run.out.s, len < size ? len : size);
    } else {
        len = 0;
    }
    tok_decode_run_finish(&run);
    return len;
}
