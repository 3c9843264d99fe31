/* SPDX-License-Identifier: MIT */
/* Ids to tokens and back, added tokens first; see tokenizer.h. */
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "tokenizer/tokenizer.h"
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

size_t tok_token_bytes(const struct tok *t, int32_t id, char *buf, size_t size)
{
    AUTO(tok_decode_run_finish) struct tok_decode_run run = {0};
    size_t len;
    const char *s = tok_token_string(t, id, &len);
    if (!s || tok_decode_bytes(&t->decode, &run, s, len)) return 0;
    len = run.out.len;
    if (len && size) memcpy(buf, run.out.s, len < size ? len : size);
    return len;
}

enum { TOKEN_BYTES = 512 };

/* The bytes and the kind of a token. */
struct token {
    const char *spelling;
    size_t len, n_bytes;
    char bytes[TOKEN_BYTES];
    bool added, special;
};

static struct token token_of(const struct tok *t, int32_t id)
{
    struct token k = {.spelling = NULL};
    const struct tok_added_token *added = tok_added_by_id(&t->added, id);
    k.spelling = tok_token_string(t, id, &k.len);
    if (k.spelling) k.n_bytes = tok_token_bytes(t, id, k.bytes, sizeof(k.bytes));
    k.added = added != NULL;
    k.special = added && added->special;
    return k;
}

/* Of bytes outside the buffer the spelling tells enough. */
static bool same_token(const struct token *a, const struct token *b)
{
    size_t n = a->n_bytes < TOKEN_BYTES ? a->n_bytes : TOKEN_BYTES;
    return a->len == b->len && memcmp(a->spelling, b->spelling, a->len) == 0 &&
           a->n_bytes == b->n_bytes && memcmp(a->bytes, b->bytes, n) == 0 && a->added == b->added &&
           a->special == b->special;
}

static const char *kind_of(const struct token *t)
{
    return t->special ? "a special token" : t->added ? "an added token" : "a token";
}

bool tok_fits(const struct tok *a, const struct tok *b, uint64_t *bits, char *err, size_t errlen)
{
    int32_t n_a = tok_vocab_size(a), n_b = tok_vocab_size(b);
    memset(bits, 0, ((size_t)n_a + 63) / 64 * sizeof(*bits));
    for (int32_t id = 0; id < n_a && id < n_b; id++) {
        struct token x = token_of(a, id), y = token_of(b, id);
        if (!x.spelling || !y.spelling) continue;
        if (!same_token(&x, &y)) {
            snprintf(err, errlen,
                     "id %d is %s, '%.*s', in one tokenizer, and %s, '%.*s', in the other", (int)id,
                     kind_of(&x), (int)(x.len < 60 ? x.len : 60), x.spelling, kind_of(&y),
                     (int)(y.len < 60 ? y.len : 60), y.spelling);
            return false;
        }
        bits[id / 64] |= UINT64_C(1) << id % 64;
    }
    return true;
}
