/* SPDX-License-Identifier: MIT */
/*
 * The best way through a piece, place by place: all tokens that begin at a place are found in one
 * walk down the trie and offered to the places where they end. Then back along the last tokens;
 * their ids are written from the end of the array that held them.
 */
#include "tokenizer/unigram.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/fail.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "tokenizer/token_ids.h"

#define UNKNOWN_PENALTY 10.0
#define MAX_EXPONENT 100000L /* above it every number is zero or infinite */

enum {
    NO_WAY = -2, /* no token ends here */
    UNKNOWN = -1 /* one character, unknown */
};

/* ---- loading ------------------------------------------------------------------------------- */

/*
 * Up to 19 digits become an integer, rounded to a double, which is multiplied by or divided by a
 * power of ten: two roundings. Sums that are compared must begin with the same bits.
 */
static double read_score(const char *s, size_t len)
{
    const char *end = s + len;
    bool negative = *s == '-', fraction = false, full = false;
    uint64_t digits = 0;
    long exponent = 0;
    for (s += negative; s < end && *s != 'e' && *s != 'E'; s++) {
        uint64_t next;
        if (*s == '.') {
            fraction = true;
            continue;
        }
        full |= __builtin_mul_overflow(digits, 10u, &next) ||
                __builtin_add_overflow(next, (uint64_t)(*s - '0'), &next);
        if (!full) digits = next;
        exponent += full ? !fraction : -(long)fraction;
    }
    long more = s < end ? strtol(s + 1, NULL, 10) : 0;
    exponent += more > MAX_EXPONENT ? MAX_EXPONENT : more < -MAX_EXPONENT ? -MAX_EXPONENT : more;
    double value = (double)digits;
    for (; exponent < -308 && value != 0; exponent += 308)
        value /= 1e308;
    if (exponent > 308) return value == 0 ? 0 : INFINITY;
    char power[32];
    snprintf(power, sizeof(power), "1e%ld", labs(exponent));
    if (value != 0)
        value = exponent < 0 ? value / strtod(power, NULL) : value * strtod(power, NULL);
    return negative ? -value : value;
}

int tok_unigram_add_score(struct tok_unigram *u, const char *number, size_t len, char *err,
                          size_t errlen)
{
    double score = read_score(number, len);
    char shown[48];
    if (!isfinite(score))
        return fail_with(TOK_EINVAL, err, errlen, "the score %s of token %u is not a finite number",
                         shown_text(shown, sizeof(shown), number, len), u->n_scores);
    if (ARRAY_ROOM(u->score, u->cap_scores, u->n_scores + 1, 1024)) return TOK_ENOMEM;
    u->score[u->n_scores++] = score;
    return 0;
}

int tok_unigram_prepare(struct tok_unigram *u, const struct tok_added *added, char *err,
                        size_t errlen)
{
    double lowest = INFINITY;
    size_t longest = 4, len; /* an unknown character */
    if (u->unk_id >= 0 && (uint32_t)u->unk_id >= u->n_scores)
        return fail_with(TOK_EINVAL, err, errlen,
                         "the model's \"unk_id\" is %d, the vocabulary has %u tokens", u->unk_id,
                         u->n_scores);
    for (uint32_t id = 0; id < u->n_scores; id++) {
        if (u->score[id] < lowest) lowest = u->score[id];
        if (tok_vocab_string(u->vocab, (int32_t)id, &len) && len > longest) longest = len;
    }
    u->unk_score = lowest - UNKNOWN_PENALTY;
    memset(u->byte_id, 0xFF, sizeof(u->byte_id));
    if (u->byte_fallback) tok_vocab_find_bytes(u->vocab, u->byte_id);
    for (u->window = 8; u->window <= longest && u->window <= TOK_MAX_PIECE_BYTES;)
        u->window *= 2;
    return tok_trie_build(&u->trie, u->vocab, added, "", 0, err, errlen);
}

void tok_unigram_finish(struct tok_unigram *u)
{
    free(u->score);
    tok_trie_finish(&u->trie);
    *u = (struct tok_unigram){0};
}

/* ---- encoding ------------------------------------------------------------------------------ */

void tok_unigram_scratch_finish(struct tok_unigram_scratch *s)
{
    free(s->last);
    free(s->sum);
    *s = (struct tok_unigram_scratch){0};
}

static int reserve(const struct tok_unigram *u, struct tok_unigram_scratch *s, size_t n)
{
    if (!s->sum) s->sum = malloc(u->window * sizeof(*s->sum));
    if (n > s->cap) {
        size_t cap = n < 256 ? 256 : n + n / 2;
        free(s->last);
        s->cap = 0;
        s->last = malloc(cap * sizeof(*s->last));
        if (s->last) s->cap = cap;
    }
    return s->sum && s->last ? 0 : TOK_ENOMEM;
}

/* A way to the place `end` with this sum, whose last token is id. */
static inline void offer(const struct tok_unigram *u, struct tok_unigram_scratch *s, size_t end,
                         double sum, int32_t id)
{
    double *best = &s->sum[end & (u->window - 1)];
    if (s->last[end] != NO_WAY && !(sum > *best)) return;
    *best = sum;
    s->last[end] = id;
}

/* Finds the best last token of every place where a token ends. */
static void find_ways(const struct tok_unigram *u, struct tok_unigram_scratch *s, const char *piece,
                      size_t len)
{
    for (size_t i = 0; i <= len; i++)
        s->last[i] = NO_WAY;
    s->sum[0] = 0;
    for (size_t at = 0, width; at < len; at += width) {
        double sum = s->sum[at & (u->window - 1)];
        bool whole = false; /* the character is a token */
        uint32_t node = 0;
        width = utf8_len((unsigned char)piece[at]);
        for (size_t i = at; i < len && tok_trie_step(&u->trie, &node, (unsigned char)piece[i]);
             i++) {
            int32_t id = tok_trie_id(&u->trie, node);
            if (id < 0) continue;
            whole |= i + 1 == at + width;
            offer(u, s, i + 1, sum + u->score[id], id);
        }
        if (!whole) offer(u, s, at + width, sum + u->unk_score, UNKNOWN);
    }
}

static bool all_bytes(const struct tok_unigram *u, const char *s, size_t len)
{
    bool all = u->byte_fallback;
    for (size_t i = 0; i < len && all; i++)
        all = u->byte_id[(unsigned char)s[i]] >= 0;
    return all;
}

/*
 * A run of unknown characters: together they may be a token after all. Writes ids backwards from
 * *top, at most one per byte.
 */
static int put_unknown(const struct tok_unigram *u, const char *s, size_t len, int32_t **top,
                       char *err, size_t errlen)
{
    int32_t id = tok_vocab_find(u->vocab, s, len);
    if (id < 0 && all_bytes(u, s, len)) {
        for (size_t i = len; i > 0; i--)
            *--*top = u->byte_id[(unsigned char)s[i - 1]];
        return 0;
    }
    if (id < 0) id = u->unk_id;
    if (id < 0)
        return fail_with(TOK_EINVAL, err, errlen,
                         "a character has no token, and the model has no \"unk_id\"");
    *--*top = id;
    return 0;
}

/* Where the last token of the way to `end` begins. */
static size_t begin_of(const struct tok_unigram *u, const char *piece, size_t end, int32_t last)
{
    const unsigned char *begin;
    size_t len = 0;
    if (last == UNKNOWN) {
        utf8_before((const unsigned char *)piece + end, &begin);
        return (size_t)(begin - (const unsigned char *)piece);
    }
    tok_vocab_string(u->vocab, last, &len);
    return end - len;
}

int tok_unigram_encode(const struct tok_unigram *u, struct tok_unigram_scratch *s,
                       const char *piece, size_t len, struct tok_ids *ids, char *err, size_t errlen)
{
    int rc = reserve(u, s, len + 1);
    if (rc) return rc;
    find_ways(u, s, piece, len);
    int32_t *top = s->last + len + 1;
    size_t unknown_end = 0; /* of a run of unknown characters, or 0 */
    for (size_t end = len; end > 0 && !rc;) {
        int32_t last = s->last[end];
        bool unknown = last == UNKNOWN || last == u->unk_id;
        if (unknown && !unknown_end) unknown_end = end;
        if (unknown_end && !unknown) {
            rc = put_unknown(u, piece + end, unknown_end - end, &top, err, errlen);
            unknown_end = 0;
        }
        if (!unknown) *--top = last;
        end = begin_of(u, piece, end, last);
    }
    if (!rc && unknown_end) rc = put_unknown(u, piece, unknown_end, &top, err, errlen);
    return rc ? rc : tok_ids_add(ids, top, (size_t)(s->last + len + 1 - top));
}
