/* SPDX-License-Identifier: MIT */
#include "tokenizer/wordpiece.h"

#include <stdio.h>

#include "base/utf8.h"
#include "tokenizer/token_ids.h"

int tok_wordpiece_prepare(struct tok_wordpiece *w, const struct tok_vocab *vocab,
                          const struct tok_added *added, char *err, size_t errlen)
{
    int rc = tok_trie_build(&w->begin, vocab, added, "", 0, err, errlen);
    return rc ? rc
              : tok_trie_build(&w->more, vocab, added, w->prefix.s, w->prefix.len, err, errlen);
}

void tok_wordpiece_finish(struct tok_wordpiece *w)
{
    tok_component_text_finish(&w->prefix);
    tok_trie_finish(&w->begin);
    tok_trie_finish(&w->more);
}

/* The longest token at the front of s, or -1. */
static int32_t longest(const struct tok_trie *trie, const char *s, size_t len, size_t *ret_len)
{
    int32_t best = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < len && tok_trie_step(trie, &node, (unsigned char)s[i]); i++) {
        int32_t id = tok_trie_id(trie, node);
        if (id < 0) continue;
        best = id;
        *ret_len = i + 1;
    }
    return best;
}

static int add_unknown(const struct tok_wordpiece *w, struct tok_ids *ids, char *err, size_t errlen)
{
    if (w->unk_id >= 0) return tok_ids_add(ids, &w->unk_id, 1);
    snprintf(err, errlen, "a word has no tokens, and the unknown token is not in the vocabulary");
    return TOK_EINVAL;
}

static bool is_too_long(const struct tok_wordpiece *w, const char *word, size_t len)
{
    return len > w->max_chars && utf8_count(word, len) > w->max_chars;
}

int tok_wordpiece_encode(const struct tok_wordpiece *w, const char *word, size_t len,
                         struct tok_ids *ids, char *err, size_t errlen)
{
    const struct tok_trie *trie = &w->begin;
    size_t before = ids->n, n = 0;
    if (is_too_long(w, word, len)) return add_unknown(w, ids, err, errlen);
    for (size_t at = 0; at < len; at += n, trie = &w->more) {
        int32_t id = longest(trie, word + at, len - at, &n);
        if (id < 0) {
            ids->n = before;
            return add_unknown(w, ids, err, errlen);
        }
        int rc = tok_ids_add(ids, &id, 1);
        if (rc) return rc;
    }
    return 0;
}
