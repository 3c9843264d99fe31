/* SPDX-License-Identifier: MIT */
/*
 * Text -> ids. The text is cut at added tokens, each stretch normalized, cut at added tokens again,
 * split into pieces, and each piece encoded; one walk from left to right, nothing collected.
 */
#include <stdio.h>

#include "base/fail.h"
#include "base/utf8.h"
#include "tokenizer/token_ids.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_internal.h"

#define MAX_TEXT_BYTES (1u << 30) /* positions fit 32 bits with room for the growth */

/* One tok_encode call. */
struct encode_run {
    const struct tok *t;
    struct tok_ids *ids;
    const struct tok_range *input;
    size_t n_input;
    bool parse_special;
    struct tok_bpe_scratch bpe;
    struct tok_unigram_scratch unigram;
    struct tok_work w;
};

/* tok_pretok_split's callback. */
static int encode_piece(void *data, const char *piece, size_t len)
{
    struct encode_run *run = data;
    const struct tok *t = run->t;
    if (t->model == TOK_MODEL_WORDPIECE)
        return tok_wordpiece_encode(&t->wordpiece, piece, len, run->ids, run->w.err, run->w.errlen);
    if (t->model == TOK_MODEL_UNIGRAM)
        return tok_unigram_encode(&t->unigram, &run->unigram, piece, len, run->ids, run->w.err,
                                  run->w.errlen);
    return tok_bpe_encode(&t->bpe, &run->bpe, piece, len, run->ids, run->w.err, run->w.errlen);
}

/* How many bytes at the front of s come from the very first character of the text. */
static size_t bytes_from_start(const char *s, size_t len, const uint32_t *origin, uint32_t base)
{
    size_t n = 0;
    if (len == 0) return 0;
    if (!origin) return base == 0 ? utf8_len((unsigned char)s[0]) : 0;
    while (n < len && origin[n] == 0)
        n++;
    return n;
}

static struct tok_added_scope scope_of(const struct encode_run *run, const uint32_t *origin,
                                       uint32_t base)
{
    return (struct tok_added_scope){origin, base, run->input, run->n_input, run->parse_special};
}

/* A stretch of raw text without added tokens of the first set. */
static int encode_stretch(struct encode_run *run, const char *text, size_t len, uint32_t base)
{
    const struct tok_added_token *token;
    const uint32_t *origin;
    const char *s;
    size_t n, begin, end;
    int rc = tok_normalize(&run->t->normalizer, &run->w, text, len, base, &s, &n, &origin);
    if (rc) return rc;
    if (!origin) base += (uint32_t)(s - text);
    struct tok_added_scope scope = scope_of(run, origin, base);
    struct tok_added_iter it = tok_added_iter(&run->t->added, 1, &scope, s, n);
    while (!rc && tok_added_next(&it, &begin, &end, &token)) {
        size_t start = bytes_from_start(s + begin, end - begin, origin ? origin + begin : NULL,
                                        base + (uint32_t)begin);
        rc = tok_pretok_split(&run->t->pretok, &run->w, s + begin, end - begin, start, encode_piece,
                              run);
        if (!rc && token) rc = tok_ids_add(run->ids, &token->id, 1);
    }
    return rc;
}

static int encode_text(struct encode_run *run, const char *text, size_t len)
{
    const struct tok_added_token *token;
    size_t begin, end;
    int rc = 0;
    struct tok_added_scope scope = scope_of(run, NULL, 0);
    struct tok_added_iter it = tok_added_iter(&run->t->added, 0, &scope, text, len);
    while (!rc && tok_added_next(&it, &begin, &end, &token)) {
        if (begin < end) rc = encode_stretch(run, text + begin, end - begin, (uint32_t)begin);
        if (!rc && token) rc = tok_ids_add(run->ids, &token->id, 1);
    }
    return rc;
}

int tok_encode_marked(const struct tok *t, const char *text, size_t len,
                      const struct tok_range *input, size_t n_input, unsigned flags,
                      struct tok_ids *ids, char *err, size_t errlen)
{
    struct encode_run run = {.t = t,
                             .ids = ids,
                             .input = input,
                             .n_input = n_input,
                             .parse_special = flags & TOK_PARSE_SPECIAL};
    size_t before = ids->n;
    int rc = 0;
    if (len > MAX_TEXT_BYTES)
        return fail_with(TOK_ELIMIT, err, errlen, "the text has %zu bytes, the limit is %u", len,
                         MAX_TEXT_BYTES);
    if (!utf8_valid(text, len))
        return fail_with(TOK_EUTF8, err, errlen, "the text is not valid UTF-8");
    if (t->model == TOK_MODEL_BPE) tok_bpe_scratch_init(&run.bpe, len);
    tok_work_init(&run.w, len, err, errlen);
    if (flags & TOK_ADD_SPECIAL)
        rc = tok_ids_add(ids, t->post.single.before.ids, t->post.single.before.n);
    if (!rc) rc = encode_text(&run, text, len);
    if (!rc && flags & TOK_ADD_SPECIAL)
        rc = tok_ids_add(ids, t->post.single.behind.ids, t->post.single.behind.n);
    if (rc == TOK_ENOMEM) snprintf(err, errlen, "out of memory");
    if (rc) ids->n = before;
    tok_bpe_scratch_finish(&run.bpe);
    tok_unigram_scratch_finish(&run.unigram);
    tok_work_finish(&run.w);
    return rc;
}

int tok_encode(const struct tok *t, const char *text, size_t len, unsigned flags,
               struct tok_ids *ids, char *err, size_t errlen)
{
    return tok_encode_marked(t, text, len, NULL, 0, flags, ids, err, errlen);
}

size_t tok_n_special(const struct tok *t, bool pair)
{
    const struct tok_post_form *f = pair ? &t->post.pair : &t->post.single;
    return f->before.n + f->between.n + f->behind.n;
}

void tok_special_around(const struct tok *t, size_t *ret_before, size_t *ret_after)
{
    const struct tok_post_form *f = &t->post.single;
    *ret_before = f->before.n;
    *ret_after = f->between.n + f->behind.n;
}

int tok_join(const struct tok *t, const struct tok_ids *a, const struct tok_ids *b,
             struct tok_ids *ids, size_t *ret_n_first, char *err, size_t errlen)
{
    const struct tok_post_form *f = b ? &t->post.pair : &t->post.single;
    const struct tok_ids *parts[] = {&f->before, a, &f->between, b, &f->behind};
    size_t before = ids->n;
    int rc = 0;
    if (b && t->post.pair_problem[0])
        return fail_with(TOK_EINVAL, err, errlen, "the tokenizer cannot join two texts: %s",
                         t->post.pair_problem);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !rc; i++)
        if (parts[i]) rc = tok_ids_add(ids, parts[i]->ids, parts[i]->n);
    if (rc) {
        ids->n = before;
        snprintf(err, errlen, "out of memory");
        return rc;
    }
    *ret_n_first = b ? f->n_first + a->n + (f->b_first ? b->n : 0) : ids->n - before;
    return 0;
}

void tok_cut_pair(size_t room, size_t *n_a, size_t *n_b)
{
    size_t *shorter = *n_a > *n_b ? n_b : n_a, *longer = *n_a > *n_b ? n_a : n_b;
    if (*longer <= room && *shorter <= room - *longer) return;
    if (*shorter > room / 2) *shorter = room / 2;
    *longer = room - *shorter;
}
