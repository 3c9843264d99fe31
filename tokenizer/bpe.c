/* SPDX-License-Identifier: MIT */
/*
 * Byte-pair encoding. Short pieces are merged by scanning for the lowest rank (cheap up to some
 * tens of symbols), long ones with a heap of (rank, position) over a linked list, so that a
 * megabyte without a break costs n log n. Both pick the same merge each time: ranks are unique per
 * pair, and a heap entry counts only while the pair at its position still has that rank.
 */
#include "tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/fail.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/token_ids.h"

#define RANK_BITS 22
#define NO_RANK UINT32_MAX
#define NO_SYMBOL UINT32_MAX
#define MARK 0x2581u /* the space mark of SentencePiece vocabularies */
#define SHORT_PIECE 48

_Static_assert(TOK_MAX_IDS <= 1u << 21, "two ids and a rank share 64 bits");

/* ---- merges -------------------------------------------------------------------------------- */

static uint64_t pair_key(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 21 | right;
}

static uint32_t pair_slot(const struct tok_bpe *b, uint64_t key)
{
    return (uint32_t)(key * 0x9E3779B97F4A7C15u >> b->hash_shift);
}

/* Rank of the merge of two ids, or NO_RANK. */
static uint32_t merge_rank(const struct tok_bpe *b, uint32_t left, uint32_t right)
{
    uint64_t key = pair_key(left, right);
    for (uint32_t i = pair_slot(b, key);; i = (i + 1) & (b->n_slots - 1)) {
        uint64_t slot = b->merges[i];
        if (slot >> RANK_BITS == key && slot) return (uint32_t)(slot & ((1u << RANK_BITS) - 1)) - 1;
        if (!slot) return NO_RANK;
    }
}

/* A pair that occurs again takes the later rank, as in the reference. */
static void insert_merge(struct tok_bpe *b, uint64_t slot)
{
    uint64_t key = slot >> RANK_BITS;
    uint32_t i = pair_slot(b, key);
    while (b->merges[i] && b->merges[i] >> RANK_BITS != key)
        i = (i + 1) & (b->n_slots - 1);
    b->merges[i] = slot;
}

/* Room for one more. At most half of the slots are taken. */
static int grow_merges(struct tok_bpe *b)
{
    if (ARRAY_ROOM(b->merge_id, b->cap_merges, b->n_merges + 1, 1024)) return TOK_ENOMEM;
    if (b->n_slots && (b->n_merges + 1) * 2 <= b->n_slots) return 0;
    uint64_t *old = b->merges;
    uint32_t n_old = b->n_slots, n = n_old ? n_old * 2 : 1024;
    uint64_t *slots = calloc(n, sizeof(*slots));
    if (!slots) return TOK_ENOMEM;
    b->merges = slots;
    b->n_slots = n;
    b->hash_shift = 64 - (unsigned)__builtin_ctz(n);
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i]) insert_merge(b, old[i]);
    free(old);
    return 0;
}

/* Returns true if the token with this id is left + right. */
static bool is_joined(const struct tok_vocab *v, uint32_t id, const char *left, size_t left_len,
                      const char *right, size_t right_len)
{
    size_t len;
    const char *s = tok_vocab_string(v, (int32_t)id, &len);
    return s && len == left_len + right_len && memcmp(s, left, left_len) == 0 &&
           memcmp(s + left_len, right, right_len) == 0;
}

/*
 * The id of left + right, or -1. Vocabularies mostly number the results of merges in order, so the
 * id after the last one is tried before the two are joined and looked up.
 */
static int32_t find_joined(const struct tok_bpe *b, const char *left, size_t left_len,
                           const char *right, size_t right_len)
{
    uint32_t likely = b->n_merges ? b->merge_id[b->n_merges - 1] + 1 : 0;
    char small[256], *joined = small;
    if (is_joined(b->vocab, likely, left, left_len, right, right_len)) return (int32_t)likely;
    if (left_len + right_len > sizeof(small)) joined = malloc(left_len + right_len);
    if (!joined) return -1;
    memcpy(joined, left, left_len);
    memcpy(joined + left_len, right, right_len);
    int32_t id = tok_vocab_find(b->vocab, joined, left_len + right_len);
    if (joined != small) free(joined);
    return id;
}

int tok_bpe_add_merge(struct tok_bpe *b, const char *left, size_t left_len, const char *right,
                      size_t right_len, char *err, size_t errlen)
{
    int32_t l = tok_vocab_find(b->vocab, left, left_len);
    int32_t r = tok_vocab_find(b->vocab, right, right_len);
    int32_t id = l < 0 || r < 0 ? -1 : find_joined(b, left, left_len, right, right_len);
    if (id < 0) {
        char a[48], c[48];
        return fail_with(TOK_EINVAL, err, errlen,
                         "merge %u (\"%s\" \"%s\"): %s is not in the vocabulary", b->n_merges,
                         shown_text(a, sizeof(a), left, left_len),
                         shown_text(c, sizeof(c), right, right_len),
                         l < 0   ? "the left part"
                         : r < 0 ? "the right part"
                                 : "the result");
    }
    if (b->n_merges >= TOK_MAX_IDS)
        return fail_with(TOK_EINVAL, err, errlen, "more than %u merges", TOK_MAX_IDS);
    if (grow_merges(b)) return TOK_ENOMEM;
    insert_merge(b, pair_key((uint32_t)l, (uint32_t)r) << RANK_BITS | (b->n_merges + 1));
    b->merge_id[b->n_merges++] = (uint32_t)id;
    return 0;
}

/* ---- symbols ------------------------------------------------------------------------------- */

static int32_t char_id(const struct tok_bpe *b, uint32_t cp)
{
    if (cp < 0x80) return b->ascii_id[cp];
    for (uint32_t i = cp * 0x9E3779B1u & (b->n_chars - 1); b->chars[i].cp;
         i = (i + 1) & (b->n_chars - 1)) {
        if (b->chars[i].cp == cp + 1) return b->chars[i].id;
    }
    return -1;
}

/* Tokens of one character; those of the byte alphabet count as their bytes in byte mode. */
static void add_char_token(struct tok_bpe *b, uint32_t cp, int32_t id)
{
    if (b->byte_mode) {
        int byte = tok_bytelevel_byte(cp);
        if (byte >= 0) b->byte_id[byte] = id;
    } else if (cp < 0x80) {
        b->ascii_id[cp] = id;
    } else {
        uint32_t i = cp * 0x9E3779B1u & (b->n_chars - 1);
        while (b->chars[i].cp)
            i = (i + 1) & (b->n_chars - 1);
        b->chars[i] = (struct tok_bpe_char){cp + 1, id};
    }
}

static bool is_one_char(const char *s, size_t len)
{
    return len > 0 && len == utf8_len((unsigned char)s[0]);
}

static int build_chars(struct tok_bpe *b)
{
    uint32_t n_tokens = 0;
    size_t len;
    const char *s;
    for (uint32_t id = 0; id < b->vocab->n_ids; id++) {
        s = tok_vocab_string(b->vocab, (int32_t)id, &len);
        n_tokens += s && is_one_char(s, len);
    }
    b->n_chars = 16;
    while (b->n_chars < n_tokens * 2)
        b->n_chars *= 2;
    b->chars = calloc(b->n_chars, sizeof(*b->chars));
    if (!b->chars) return TOK_ENOMEM;
    for (uint32_t id = 0; id < b->vocab->n_ids; id++) {
        s = tok_vocab_string(b->vocab, (int32_t)id, &len);
        if (!s || !is_one_char(s, len)) continue;
        const unsigned char *p = (const unsigned char *)s;
        add_char_token(b, utf8_next(&p), (int32_t)id);
    }
    return 0;
}

/* Tokens by the bytes they write, for pieces that are looked up whole. */
static int build_raw(struct tok_bpe *b, char *err, size_t errlen)
{
    int rc = 0;
    size_t len;
    AUTO_FREE char *bytes = malloc(b->max_token_bytes + 1);
    if (!bytes) return TOK_ENOMEM;
    for (uint32_t id = 0; !rc && id < b->vocab->n_ids; id++) {
        const char *s = tok_vocab_string(b->vocab, (int32_t)id, &len);
        ptrdiff_t n = s ? tok_bytelevel_decode(s, len, bytes) : -1;
        if (n >= 0) rc = tok_vocab_add(&b->raw, bytes, (size_t)n, id, err, errlen);
    }
    return rc;
}

/* Length of the word at the front of a piece, up to a mark that follows another character. */
static size_t marked_word(const char *s, size_t len)
{
    bool in_marks = true;
    for (size_t i = 0; i < len;) {
        bool mark = (unsigned char)s[i] == 0xE2 && (unsigned char)s[i + 1] == 0x96 &&
                    (unsigned char)s[i + 2] == 0x81;
        if (mark && !in_marks) return i;
        in_marks = mark;
        i += utf8_len((unsigned char)s[i]);
    }
    return len;
}

/*
 * Where no token continues from another character to a mark, no merge crosses that place, so pieces
 * may be cut there: whole lines become words. The mark must be a token itself, or an unknown
 * character before it would wait to be fused with it.
 */
static void find_split_marks(struct tok_bpe *b)
{
    size_t len;
    if (b->byte_mode || char_id(b, MARK) < 0) return;
    for (uint32_t id = 0; id < b->vocab->n_ids; id++) {
        const char *s = tok_vocab_string(b->vocab, (int32_t)id, &len);
        if (s && marked_word(s, len) < len) return;
    }
    b->split_marks = true;
}

int tok_bpe_prepare(struct tok_bpe *b, char *err, size_t errlen)
{
    for (uint32_t id = 0; id < b->vocab->n_ids; id++) {
        size_t len = 0;
        if (tok_vocab_string(b->vocab, (int32_t)id, &len) && len > b->max_token_bytes)
            b->max_token_bytes = (uint32_t)len;
    }
    memset(b->byte_id, 0xFF, sizeof(b->byte_id));
    memset(b->ascii_id, 0xFF, sizeof(b->ascii_id));
    int rc = b->n_slots ? 0 : grow_merges(b);
    if (!rc) rc = build_chars(b);
    if (!rc && b->byte_mode && b->ignore_merges) rc = build_raw(b, err, errlen);
    if (rc) return rc;
    if (!b->byte_mode && b->byte_fallback) tok_vocab_find_bytes(b->vocab, b->byte_id);
    find_split_marks(b);
    return 0;
}

void tok_bpe_finish(struct tok_bpe *b)
{
    free(b->merges);
    free(b->merge_id);
    free(b->chars);
    tok_vocab_finish(&b->raw);
    memset(b, 0, sizeof(*b));
}

/* ---- scratch ------------------------------------------------------------------------------- */

#define CACHED_BYTES 30
#define CACHED_IDS 8

/* One cache line: a piece and its ids. */
struct tok_bpe_cached {
    uint8_t len; /* 0: free */
    uint8_t n_ids;
    char piece[CACHED_BYTES];
    int32_t ids[CACHED_IDS];
};

_Static_assert(sizeof(struct tok_bpe_cached) == 64, "one cache line");

void tok_bpe_scratch_init(struct tok_bpe_scratch *s, size_t text_len)
{
    uint32_t n = 64;
    *s = (struct tok_bpe_scratch){0};
    if (text_len < 512) return;
    while (n < text_len / 16 && n < 8192)
        n *= 2;
    s->cache = calloc(n, sizeof(*s->cache)); /* without it everything still works */
    s->cache_mask = n - 1;
}

void tok_bpe_scratch_finish(struct tok_bpe_scratch *s)
{
    free(s->words);
    free(s->heap);
    free(s->cache);
    *s = (struct tok_bpe_scratch){0};
}

/* Arrays over n symbols; what they held is lost. */
struct symbols {
    uint32_t *id;   /* [n] */
    uint32_t *rank; /* [n] of the pair (this, next) */
    uint32_t *next; /* [n] the list, long pieces only */
    uint32_t *prev; /* [n] */
};

static int reserve_symbols(struct tok_bpe_scratch *s, size_t n, struct symbols *ret)
{
    if (n > s->cap) {
        size_t cap = s->cap ? s->cap : 256;
        while (cap < n)
            cap *= 2;
        uint32_t *p = malloc(cap * 4 * sizeof(*p));
        if (!p) return TOK_ENOMEM;
        free(s->words);
        s->words = p;
        s->cap = cap;
    }
    *ret =
        (struct symbols){s->words, s->words + s->cap, s->words + 2 * s->cap, s->words + 3 * s->cap};
    return 0;
}

/* ---- merging ------------------------------------------------------------------------------- */

/* Merges n symbols in place by scanning; returns how many are left. */
static size_t merge_short(const struct tok_bpe *b, uint32_t *id, uint32_t *rank, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = merge_rank(b, id[i], id[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        id[best] = b->merge_id[rank[best]];
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof(*id));
        memmove(rank + best, rank + best + 1, (n - best) * sizeof(*rank));
        if (best > 0) rank[best - 1] = merge_rank(b, id[best - 1], id[best]);
        if (best + 1 < n) rank[best] = merge_rank(b, id[best], id[best + 1]);
    }
    return n;
}

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t entry = heap[i];
    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= entry) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = entry;
}

static void sift_up(uint64_t *heap, size_t i)
{
    uint64_t entry = heap[i];
    while (i > 0 && heap[(i - 1) / 2] > entry) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = entry;
}

/* Ranks the pair that starts at position i and pushes it when it is a merge. */
static void rank_pair(const struct tok_bpe *b, const struct symbols *y, size_t i, uint64_t *heap,
                      size_t *n_heap)
{
    y->rank[i] = y->next[i] == NO_SYMBOL ? NO_RANK : merge_rank(b, y->id[i], y->id[y->next[i]]);
    if (y->rank[i] == NO_RANK) return;
    heap[*n_heap] = (uint64_t)y->rank[i] << 32 | i;
    sift_up(heap, (*n_heap)++);
}

/* Merges n symbols with the heap; packs the rest and sets *n. */
static int merge_long(const struct tok_bpe *b, struct tok_bpe_scratch *s, const struct symbols *y,
                      size_t *n)
{
    /* a merge takes one pair out of the heap and brings in at most two: 2 n entries are enough */
    if (2 * *n > s->heap_cap) {
        uint64_t *p = malloc(2 * *n * sizeof(*p));
        if (!p) return TOK_ENOMEM;
        free(s->heap);
        s->heap = p;
        s->heap_cap = 2 * *n;
    }
    size_t n_heap = 0;
    for (uint32_t i = 0; i < *n; i++) {
        y->prev[i] = i ? i - 1 : NO_SYMBOL;
        y->next[i] = i + 1 < *n ? i + 1 : NO_SYMBOL;
        rank_pair(b, y, i, s->heap, &n_heap);
    }
    while (n_heap > 0) {
        uint64_t top = s->heap[0];
        s->heap[0] = s->heap[--n_heap];
        sift_down(s->heap, n_heap, 0);
        uint32_t i = (uint32_t)top, right;
        if (y->rank[i] != top >> 32) continue;
        right = y->next[i];
        y->id[i] = b->merge_id[top >> 32];
        y->next[i] = y->next[right];
        y->rank[right] = NO_RANK;
        if (y->next[i] != NO_SYMBOL) y->prev[y->next[i]] = i;
        if (y->prev[i] != NO_SYMBOL) rank_pair(b, y, y->prev[i], s->heap, &n_heap);
        rank_pair(b, y, i, s->heap, &n_heap);
    }
    size_t left = 0;
    for (uint32_t i = 0; i != NO_SYMBOL; i = y->next[i])
        y->id[left++] = y->id[i];
    *n = left;
    return 0;
}

/* ---- pieces -------------------------------------------------------------------------------- */

/* *pending: unknown characters are met but not yet written. They fuse, and byte tokens overtake
 * them. */
static int add_unknown(const struct tok_bpe *b, bool *pending, uint32_t *id, size_t *n, char *err,
                       size_t errlen)
{
    if (!b->has_unk) return 0; /* dropped */
    if (b->unk_id < 0)
        return fail_with(TOK_EINVAL, err, errlen,
                         "the text has a character without a token, and the unknown token is not "
                         "in the vocabulary");
    if (*pending && !b->fuse_unk) id[(*n)++] = (uint32_t)b->unk_id;
    *pending = true;
    return 0;
}

static void flush_unknown(const struct tok_bpe *b, bool *pending, uint32_t *id, size_t *n)
{
    if (*pending) id[(*n)++] = (uint32_t)b->unk_id;
    *pending = false;
}

/* Writes the byte tokens of a character; false when one of them is missing. */
static bool add_bytes(const struct tok_bpe *b, const unsigned char *s, size_t len, uint32_t *id,
                      size_t *n)
{
    for (size_t i = 0; i < len; i++)
        if (b->byte_id[s[i]] < 0) return false;
    for (size_t i = 0; i < len; i++)
        id[(*n)++] = (uint32_t)b->byte_id[s[i]];
    return true;
}

/* Symbols of a piece; there are at most as many as bytes. */
static int start_symbols(const struct tok_bpe *b, const char *piece, size_t len, uint32_t *id,
                         size_t *ret_n, char *err, size_t errlen)
{
    const unsigned char *p = (const unsigned char *)piece, *end = p + len;
    bool pending = false;
    size_t n = 0;
    while (p < end) {
        const unsigned char *begin = p;
        int32_t token = b->byte_mode ? b->byte_id[*p++] : char_id(b, utf8_next(&p));
        if (token >= 0) {
            flush_unknown(b, &pending, id, &n);
            id[n++] = (uint32_t)token;
            continue;
        }
        if (b->byte_fallback && add_bytes(b, begin, (size_t)(p - begin), id, &n)) continue;
        int rc = add_unknown(b, &pending, id, &n, err, errlen);
        if (rc) return rc;
    }
    flush_unknown(b, &pending, id, &n);
    *ret_n = n;
    return 0;
}

/* Cuts a piece into symbols, merges, appends. */
static int merge_piece(const struct tok_bpe *b, struct tok_bpe_scratch *s, const char *piece,
                       size_t len, struct tok_ids *ids, char *err, size_t errlen)
{
    struct symbols y;
    size_t n;
    int rc = reserve_symbols(s, len, &y);
    if (!rc) rc = start_symbols(b, piece, len, y.id, &n, err, errlen);
    if (rc) return rc;
    if (n <= SHORT_PIECE)
        n = merge_short(b, y.id, y.rank, n);
    else
        rc = merge_long(b, s, &y, &n);
    if (rc) return rc;
    _Static_assert(sizeof(*y.id) == sizeof(*ids->ids), "ids are copied as they are");
    return tok_ids_add(ids, (const int32_t *)y.id, n);
}

/* The id of a piece that is a token as a whole, or -1. */
static int32_t whole_id(const struct tok_bpe *b, const char *piece, size_t len)
{
    if (len > b->max_token_bytes) return -1;
    return tok_vocab_find(b->byte_mode ? &b->raw : b->vocab, piece, len);
}

/* One word, through the cache. whole: the word may be taken as a token before merges are tried. */
static int encode_word(const struct tok_bpe *b, struct tok_bpe_scratch *s, const char *word,
                       size_t len, bool whole, struct tok_ids *ids, char *err, size_t errlen)
{
    struct tok_bpe_cached *c = NULL;
    size_t before = ids->n;
    int32_t id = -1;
    if (s->cache && len <= CACHED_BYTES) {
        c = &s->cache[tok_hash_bytes(word, len) & s->cache_mask];
        if (c->len == len && memcmp(c->piece, word, len) == 0)
            return tok_ids_add(ids, c->ids, c->n_ids);
    }
    if (whole) id = whole_id(b, word, len);
    int rc = id >= 0 ? tok_ids_add(ids, &id, 1) : merge_piece(b, s, word, len, ids, err, errlen);
    if (rc || !c || ids->n - before > CACHED_IDS) return rc;
    c->len = (uint8_t)len;
    c->n_ids = (uint8_t)(ids->n - before);
    memcpy(c->piece, word, len);
    if (c->n_ids) memcpy(c->ids, ids->ids + before, c->n_ids * sizeof(c->ids[0]));
    return 0;
}

int tok_bpe_encode(const struct tok_bpe *b, struct tok_bpe_scratch *s, const char *piece,
                   size_t len, struct tok_ids *ids, char *err, size_t errlen)
{
    int rc = 0;
    if (!b->split_marks) return encode_word(b, s, piece, len, b->ignore_merges, ids, err, errlen);
    if (b->ignore_merges) {
        int32_t id = whole_id(b, piece, len);
        if (id >= 0) return tok_ids_add(ids, &id, 1);
    }
    while (!rc && len > 0) {
        size_t n = marked_word(piece, len);
        rc = encode_word(b, s, piece, n, false, ids, err, errlen);
        piece += n;
        len -= n;
    }
    return rc;
}
