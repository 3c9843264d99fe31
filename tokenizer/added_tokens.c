/* SPDX-License-Identifier: MIT */
#include "tokenizer/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "tokenizer/json_component.h"

/* ---- loading ------------------------------------------------------------------------------- */

static int refuse(const struct tok_added_token *t, const char *what, char *err, size_t errlen)
{
    char shown[64];
    return fail_with(TOK_EINVAL, err, errlen, "added token \"%s\" with id %d: %s",
                     shown_text(shown, sizeof(shown), t->content, t->len), t->id, what);
}

static int load_token(struct tok_added_token *t, const json_t *json, char *err, size_t errlen)
{
    struct tok_component c = {.json = json, .err = err, .errlen = errlen};
    struct tok_component_text content = tok_member_text(&c, "content");
    t->content = content.s;
    t->len = content.len;
    t->id = (int32_t)tok_member_uint(&c, "id", TOK_MAX_IDS - 1);
    t->special = tok_member_bool(&c, "special");
    t->normalized = tok_member_bool(&c, "normalized");
    t->single_word = tok_member_bool(&c, "single_word");
    t->lstrip = tok_member_bool(&c, "lstrip");
    t->rstrip = tok_member_bool(&c, "rstrip");
    if (c.rc || t->len <= TOK_MAX_ADDED_BYTES) return c.rc;
    return refuse(t, "it is longer than 1024 bytes", err, errlen);
}

/* No two added tokens share their content or their id. */
static int check_twice(const struct tok_added *a, char *err, size_t errlen)
{
    AUTO(tok_vocab_finish) struct tok_vocab seen = {0};
    int rc = 0;
    for (size_t i = 0; i < a->n_tokens && !rc; i++) {
        const struct tok_added_token *t = &a->tokens[i];
        rc = tok_vocab_add(&seen, t->content, t->len, (uint32_t)t->id, err, errlen);
        if (rc == TOK_EINVAL) refuse(t, "its content or its id occurs twice", err, errlen);
    }
    return rc;
}

/*
 * The reference does not take the ids of the file: a token of the vocabulary keeps its id there,
 * any other gets the next free one. Only where both agree is it plain what the file means.
 */
static int check_ids(const struct tok_added *a, const struct tok_vocab *vocab, char *err,
                     size_t errlen)
{
    int64_t largest = -1;
    size_t len;
    for (size_t i = 0; i < a->n_tokens; i++) {
        const struct tok_added_token *t = &a->tokens[i];
        int64_t expected = tok_vocab_find(vocab, t->content, t->len);
        bool known = expected >= 0;
        if (!known) expected = largest >= (int64_t)vocab->n_tokens ? largest + 1 : vocab->n_tokens;
        if (expected != t->id)
            return refuse(t, "by its place in the file it should have another id", err, errlen);
        if (!known && tok_vocab_string(vocab, t->id, &len))
            return refuse(t, "another token of the vocabulary has this id", err, errlen);
        if (t->id > largest) largest = t->id;
    }
    return 0;
}

/* The form of a token in the set it belongs to, owned: its content, or what is made of it. */
static int make_key(const struct tok_added *a, uint32_t index,
                    const struct tok_normalizer *normalizer, struct tok_work *w,
                    struct tok_trie_key *ret)
{
    const struct tok_added_token *t = &a->tokens[index];
    const char *s = t->content;
    const uint32_t *origin;
    size_t len = t->len;
    int rc = 0;
    if (t->normalized) rc = tok_normalize(normalizer, w, t->content, t->len, 0, &s, &len, &origin);
    if (!rc && len == 0) rc = refuse(t, "the normalizer leaves nothing of it", w->err, w->errlen);
    if (!rc && len > TOK_MAX_ADDED_BYTES)
        rc = refuse(t, "it is longer than 1024 bytes", w->err, w->errlen);
    if (rc) return rc;
    char *copy = malloc(len);
    *ret = (struct tok_trie_key){copy, len, (int32_t)index};
    if (!copy) return TOK_ENOMEM;
    memcpy(copy, s, len);
    return 0;
}

/* All contents count as one text. */
static int build_set(struct tok_added *a, int which, const struct tok_normalizer *normalizer,
                     char *err, size_t errlen)
{
    AUTO_FREE struct tok_trie_key *keys = calloc(a->n_tokens + 1, sizeof(*keys));
    AUTO(tok_work_finish) struct tok_work w;
    size_t bytes = 0, n = 0;
    int rc = keys ? 0 : TOK_ENOMEM;
    for (uint32_t i = 0; i < a->n_tokens; i++)
        bytes += a->tokens[i].len;
    tok_work_init(&w, bytes, err, errlen);
    for (uint32_t i = 0; i < a->n_tokens && !rc; i++)
        if (a->tokens[i].normalized == (which == 1))
            rc = make_key(a, i, normalizer, &w, &keys[n++]);
    if (!rc) rc = tok_trie_of(&a->sets[which], keys, n, err, errlen);
    while (n-- > 0)
        free((char *)keys[n].s);
    return rc;
}

static int compare_ids(const void *a, const void *b, void *tokens)
{
    const struct tok_added_token *t = tokens;
    int32_t x = t[*(const uint32_t *)a].id, y = t[*(const uint32_t *)b].id;
    return x < y ? -1 : x > y;
}

static int index_ids(struct tok_added *a)
{
    a->by_id = malloc((a->n_tokens + 1) * sizeof(*a->by_id));
    if (!a->by_id) return TOK_ENOMEM;
    for (uint32_t i = 0; i < a->n_tokens; i++)
        a->by_id[i] = i;
    qsort_r(a->by_id, a->n_tokens, sizeof(*a->by_id), compare_ids, a->tokens);
    return 0;
}

/* Tokens in the order in which the reference builds its sets: special ones first. */
static int order_tokens(struct tok_added *a)
{
    struct tok_added_token *sorted = malloc((a->n_tokens + 1) * sizeof(*sorted));
    size_t n = 0;
    if (!sorted) return TOK_ENOMEM;
    for (int special = 1; special >= 0; special--)
        for (size_t i = 0; i < a->n_tokens; i++)
            if (a->tokens[i].special == (bool)special) sorted[n++] = a->tokens[i];
    free(a->tokens);
    a->tokens = sorted;
    return 0;
}

int tok_added_load(struct tok_added *a, const struct tok_uni *uni, const json_t *json,
                   const struct tok_vocab *vocab, const struct tok_normalizer *normalizer,
                   char *err, size_t errlen)
{
    const json_t *item;
    size_t i;
    a->uni = uni;
    if (json && !json_is_array(json) && !json_is_null(json))
        return fail_with(TOK_EINVAL, err, errlen, "\"added_tokens\" should be an array");
    a->tokens = calloc(json_array_size(json) + 1, sizeof(*a->tokens));
    if (!a->tokens) return TOK_ENOMEM;
    json_array_foreach(json, i, item)
    {
        struct tok_added_token *t = &a->tokens[a->n_tokens++];
        int rc = load_token(t, item, err, errlen);
        if (rc) return rc;
        if (t->len == 0) { /* the reference passes over it */
            free(t->content);
            memset(t, 0, sizeof(*t));
            a->n_tokens--;
        }
    }
    int rc = check_twice(a, err, errlen);
    if (!rc) rc = check_ids(a, vocab, err, errlen);
    if (!rc) rc = order_tokens(a);
    if (!rc) rc = index_ids(a);
    for (int which = 0; which < 2 && !rc; which++)
        rc = build_set(a, which, normalizer, err, errlen);
    return rc;
}

void tok_added_finish(struct tok_added *a)
{
    for (int which = 0; which < 2; which++)
        tok_trie_finish(&a->sets[which]);
    for (size_t i = 0; i < a->n_tokens; i++)
        free(a->tokens[i].content);
    free(a->tokens);
    free(a->by_id);
    memset(a, 0, sizeof(*a));
}

/* ---- looking up ---------------------------------------------------------------------------- */

const struct tok_added_token *tok_added_by_id(const struct tok_added *a, int32_t id)
{
    size_t low = 0, high = a->n_tokens;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (a->tokens[a->by_id[mid]].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == a->n_tokens || a->tokens[a->by_id[low]].id != id) return NULL;
    return &a->tokens[a->by_id[low]];
}

const struct tok_added_token *tok_added_by_content(const struct tok_added *a, const char *s,
                                                   size_t len)
{
    for (size_t i = 0; i < a->n_tokens; i++)
        if (a->tokens[i].len == len && memcmp(a->tokens[i].content, s, len) == 0)
            return &a->tokens[i];
    return NULL;
}

/* ---- searching ----------------------------------------------------------------------------- */

/* Returns true if a position of the caller's text is in the input. */
static bool is_input(const struct tok_added_scope *scope, size_t at)
{
    size_t low = 0, high = scope->n_input;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (scope->input[mid].end <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low < scope->n_input && at >= scope->input[low].begin;
}

static bool touches_input(const struct tok_added_scope *scope, size_t begin, size_t end)
{
    for (size_t i = begin; i < end && scope->n_input; i++)
        if (is_input(scope, scope->origin ? scope->origin[i] : scope->base + i)) return true;
    return false;
}

/* The longest token at position pos that is allowed there, and its end; NULL: there is none. */
static const struct tok_added_token *longest_at(const struct tok_added_iter *it, size_t pos,
                                                size_t *ret_end)
{
    const struct tok_added_token *best = NULL;
    uint32_t node = 0;
    for (size_t i = pos; i < it->len && tok_trie_step(it->set, &node, (uint8_t)it->text[i]);) {
        int32_t index = tok_trie_id(it->set, node);
        i++;
        if (index < 0) continue;
        const struct tok_added_token *t = &it->a->tokens[index];
        if (t->special && touches_input(it->scope, pos, i)) continue;
        best = t;
        *ret_end = i;
    }
    return best;
}

static unsigned props_before(const struct tok_added_iter *it, size_t pos, size_t *ret_begin)
{
    const unsigned char *text = (const unsigned char *)it->text, *begin;
    unsigned props = tok_uni_props(it->a->uni, utf8_before(text + pos, &begin));
    *ret_begin = (size_t)(begin - text);
    return props;
}

static unsigned props_at(const struct tok_added_iter *it, size_t pos, size_t *ret_end)
{
    const unsigned char *text = (const unsigned char *)it->text, *p = text + pos;
    unsigned props = tok_uni_props(it->a->uni, utf8_next(&p));
    *ret_end = (size_t)(p - text);
    return props;
}

/* Returns true if a match counts. One that does not is skipped all the same. */
static bool counts(const struct tok_added_iter *it, const struct tok_added_token *t, size_t begin,
                   size_t end)
{
    size_t unused;
    if (t->special && !it->scope->parse_special) return false;
    if (!t->single_word) return true;
    if (begin > 0 && props_before(it, begin, &unused) & TOK_UNI_WORD) return false;
    return end == it->len || !(props_at(it, end, &unused) & TOK_UNI_WORD);
}

static size_t strip_left(const struct tok_added_iter *it, size_t begin)
{
    size_t before;
    while (begin > it->done && props_before(it, begin, &before) & TOK_UNI_WHITE)
        begin = before;
    return begin > it->done ? begin : it->done;
}

static size_t strip_right(const struct tok_added_iter *it, size_t end)
{
    size_t behind;
    while (end < it->len && props_at(it, end, &behind) & TOK_UNI_WHITE)
        end = behind;
    return end;
}

struct tok_added_iter tok_added_iter(const struct tok_added *a, int which,
                                     const struct tok_added_scope *scope, const char *text,
                                     size_t len)
{
    return (struct tok_added_iter){a, &a->sets[which], scope, text, len, 0, 0};
}

bool tok_added_next(struct tok_added_iter *it, size_t *ret_begin, size_t *ret_end,
                    const struct tok_added_token **ret_token)
{
    while (!tok_trie_is_empty(it->set) && it->pos < it->len) {
        size_t begin = it->pos, end;
        uint32_t first = 0;
        while (begin < it->len && !tok_trie_step(it->set, &first, (uint8_t)it->text[begin]))
            begin++;
        const struct tok_added_token *t = longest_at(it, begin, &end);
        it->pos = t ? end : begin + 1;
        if (!t) continue;
        if (!counts(it, t, begin, end)) continue;
        if (t->lstrip) begin = strip_left(it, begin);
        if (t->rstrip) end = strip_right(it, end);
        *ret_begin = it->done;
        *ret_end = begin > it->done ? begin : it->done;
        *ret_token = t;
        it->done = end;
        return true;
    }
    if (it->done >= it->len) return false;
    *ret_begin = it->done;
    *ret_end = it->done = it->len;
    *ret_token = NULL;
    return true;
}
