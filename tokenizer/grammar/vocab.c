/* SPDX-License-Identifier: MIT */
/* Reads a vocabulary into a trie; see vocab.h. */
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/grammar/vocab.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* ---- reading ------------------------------------------------------------------------------- */

static int read_texts(struct gram_vocab *v, const struct gram_vocab_params *p)
{
    size_t cap = (size_t)v->n_ids * 8 + 64;
    uint32_t len = 0;
    char buf[GRAM_MAX_TOKEN_BYTES];
    v->text = malloc(cap);
    v->offsets = calloc((size_t)v->n_ids + 1, sizeof(*v->offsets));
    if (!v->text || !v->offsets) return GRAM_ENOMEM;
    for (int32_t id = 0; id < v->n_ids; id++) {
        size_t n = p->bytes(p->ctx, id, buf, sizeof(buf));
        if (n > sizeof(buf)) n = 0; /* too long to be generated under a grammar */
        if (n > 0 && (n == 1 ? buf[0] == '\xff' : memchr(buf + 1, 0xFF, n - 1) != NULL)) n = 0;
        if (len + n > UINT32_MAX / 2 || ARRAY_ROOM(v->text, cap, len + n, 64)) return GRAM_ENOMEM;
        memcpy(v->text + len, buf, n);
        v->offsets[id] = len;
        len += (uint32_t)n;
    }
    v->offsets[v->n_ids] = len;
    return 0;
}

const char *gram_vocab_text(const struct gram_vocab *v, int32_t id, size_t *ret_len)
{
    if (id < 0 || id >= v->n_ids) return NULL;
    *ret_len = v->offsets[id + 1] - v->offsets[id];
    return *ret_len ? v->text + v->offsets[id] : NULL;
}

static int read_end_ids(struct gram_vocab *v, const struct gram_vocab_params *p)
{
    v->end_ids = calloc(p->n_end_ids + 1, sizeof(*v->end_ids));
    if (!v->end_ids) return GRAM_ENOMEM;
    for (size_t i = 0; i < p->n_end_ids; i++)
        if (p->end_ids[i] >= 0 && p->end_ids[i] < v->n_ids)
            v->end_ids[v->n_end_ids++] = p->end_ids[i];
    return 0;
}

bool gram_vocab_is_end(const struct gram_vocab *v, int32_t id)
{
    for (size_t i = 0; i < v->n_end_ids; i++)
        if (v->end_ids[i] == id) return true;
    return false;
}

/* ---- sorting ------------------------------------------------------------------------------- */

/* A token by its first eight bytes, for sorting; shorter ones are padded with zeros. */
struct entry {
    uint64_t head;
    int32_t id;
};

static uint64_t head_of(const char *text, size_t n)
{
    uint64_t h = 0;
    for (size_t i = 0; i < 8; i++)
        h = h << 8 | (i < n ? (uint8_t)text[i] : 0);
    return h;
}

/* By their texts, for qsort_r. */
static int compare(const void *a, const void *b, void *vocab)
{
    const struct entry *e = a, *f = b;
    size_t n, k;
    if (e->head != f->head) return e->head < f->head ? -1 : 1;
    const char *x = gram_vocab_text(vocab, e->id, &n), *y = gram_vocab_text(vocab, f->id, &k);
    int order = memcmp(x, y, n < k ? n : k);
    if (order) return order;
    if (n != k) return n < k ? -1 : 1;
    return e->id < f->id ? -1 : 1;
}

/* Entries of all tokens that may be generated, in the order of their texts. NULL: no memory. */
static struct entry *sorted_entries(const struct gram_vocab *v, size_t *ret_n)
{
    struct entry *entries = calloc((size_t)v->n_ids + 1, sizeof(*entries));
    size_t n = 0, len;
    for (int32_t id = 0; entries && id < v->n_ids; id++) {
        const char *text = gram_vocab_text(v, id, &len);
        if (text && !gram_vocab_is_end(v, id))
            entries[n++] = (struct entry){head_of(text, len), id};
    }
    if (entries) qsort_r(entries, n, sizeof(*entries), compare, (void *)v);
    *ret_n = n;
    return entries;
}

/* ---- the trie ------------------------------------------------------------------------------ */

static size_t common_prefix(const struct gram_vocab *v, int32_t a, int32_t b)
{
    size_t n, k, i = 0;
    const char *x = gram_vocab_text(v, a, &n), *y = gram_vocab_text(v, b, &k);
    while (i < n && i < k && x[i] == y[i])
        i++;
    return i;
}

static void fill_nodes(struct gram_vocab *v, const struct entry *e, size_t n)
{
    uint32_t open[GRAM_MAX_TOKEN_BYTES + 1] = {0}; /* by depth */
    size_t depth = 0, len;
    v->nodes[0] = (struct gram_tok_node){.id = -1};
    v->n_nodes = 1;
    for (size_t i = 0; i < n; i++) {
        const char *text = gram_vocab_text(v, e[i].id, &len);
        size_t shared = i ? common_prefix(v, e[i - 1].id, e[i].id) : 0;
        for (; depth > shared; depth--)
            v->nodes[open[depth]].skip = v->n_nodes;
        while (depth < len) {
            assert(depth < GRAM_MAX_TOKEN_BYTES);
            uint8_t byte = (uint8_t)text[depth++];
            open[depth] = v->n_nodes;
            if (depth == 1) v->root_child[byte] = v->n_nodes;
            v->nodes[v->n_nodes++] =
                (struct gram_tok_node){.id = -1, .depth = (uint16_t)depth, .byte = byte};
        }
        struct gram_tok_node *node = &v->nodes[open[depth]];
        if (node->id >= 0) { /* the text of the token before, which has a lower id */
            v->next_same[e[i - 1].id] = e[i].id;
            node->has_same = true;
        } else {
            node->id = e[i].id;
        }
    }
    for (; depth > 0; depth--)
        v->nodes[open[depth]].skip = v->n_nodes;
    v->nodes[0].skip = v->n_nodes;
}

static int build_trie(struct gram_vocab *v)
{
    size_t n;
    struct entry *e = sorted_entries(v, &n);
    if (!e) return GRAM_ENOMEM;
    v->nodes = calloc((size_t)v->offsets[v->n_ids] + 1, sizeof(*v->nodes));
    v->next_same = calloc((size_t)v->n_ids, sizeof(*v->next_same));
    if (!v->nodes || !v->next_same) {
        free(e);
        return GRAM_ENOMEM;
    }
    fill_nodes(v, e, n);
    free(e);
    void *nodes = realloc(v->nodes, v->n_nodes * sizeof(*v->nodes));
    if (nodes) v->nodes = nodes;
    for (int byte = 0; byte < 256; byte++) {
        uint32_t node = v->root_child[byte];
        v->byte_ids[byte] = node ? v->nodes[node].id : -1;
        if (v->byte_ids[byte] >= 0) v->spellable[byte / 64] |= (uint64_t)1 << byte % 64;
    }
    return 0;
}

/* Sorts nodes by their byte, by counting. */
static int index_bytes(struct gram_vocab *v)
{
    uint32_t *first = v->first_by_byte, next[256];
    v->by_byte = calloc(v->n_nodes, sizeof(*v->by_byte));
    if (!v->by_byte) return GRAM_ENOMEM;
    for (uint32_t i = 1; i < v->n_nodes; i++) {
        if (v->nodes[i].depth > v->max_bytes) v->max_bytes = v->nodes[i].depth;
        if (v->nodes[i].depth > 1) first[v->nodes[i].byte + 1]++;
    }
    for (int byte = 0; byte < 256; byte++)
        first[byte + 1] += first[byte];
    for (int byte = 0; byte < 256; byte++)
        next[byte] = first[byte];
    for (uint32_t i = 1; i < v->n_nodes; i++)
        if (v->nodes[i].depth > 1) v->by_byte[next[v->nodes[i].byte]++] = i;
    assert(next[255] == first[256]);
    return 0;
}

/* ---- all of it ----------------------------------------------------------------------------- */
int gram_vocab_create(struct gram_vocab **ret, const struct gram_vocab_params *params)
{
    struct gram_vocab *v = calloc(1, sizeof(*v));
    int rc = GRAM_ENOMEM;
    if (!v) return rc;
    rc = GRAM_EINVAL;
    if (params->n_ids <= 0) goto out;
    v->n_ids = params->n_ids;
    v->n_words = ((size_t)v->n_ids + 63) / 64;
    rc = read_texts(v, params);
    if (!rc) rc = read_end_ids(v, params);
    if (!rc) rc = build_trie(v);
    if (!rc) rc = index_bytes(v);
    if (rc) goto out;
    rc = GRAM_EINVAL;
    if (!v->spellable[0] && !v->spellable[1] && !v->spellable[2] && !v->spellable[3]) goto out;
    gram_lexer_build(&v->lexer, v->spellable);
    rc = gram_vocab_read_strings(v);
    if (rc) goto out;
    *ret = v;
    v = NULL;
out:
    gram_vocab_destroy(v);
    return rc;
}

void gram_vocab_destroy(struct gram_vocab *v)
{
    if (!v) return;
    for (int i = 0; i < 2; i++) {
        free(v->inside[i]);
        free(v->exits[i]);
    }
    free(v->at_most[1]);
    free(v->n_chars);
    free(v->by_chars);
    free(v->first_with);
    free(v->by_byte);
    free(v->nodes);
    free(v->next_same);
    free(v->text);
    free(v->offsets);
    free(v->end_ids);
    free(v);
}
size_t gram_vocab_bytes(const struct gram_vocab *v)
{
    size_t words = v->n_words * 8 * (2 + GRAM_CHAR_SETS + GRAM_CHAR_GROUPS);
    size_t ids = (size_t)v->n_ids * (sizeof(*v->offsets) + sizeof(*v->n_chars) +
                                     sizeof(*v->by_chars) + sizeof(*v->next_same));
    size_t exits = (v->n_exits[0] + (size_t)v->n_exits[1]) * sizeof(struct gram_exit);
    return sizeof(*v) + v->n_nodes * (sizeof(*v->nodes) + sizeof(*v->by_byte)) +
           v->offsets[v->n_ids] + words + ids + exits;
}

size_t gram_vocab_mask_words(const struct gram_vocab *v)
{
    return v->n_words;
}

int32_t gram_vocab_byte_id(const struct gram_vocab *v, uint8_t byte)
{
    return v->byte_ids[byte];
}

/* The child of a node at a byte; 0 if it has none. */
static uint32_t child_at(const struct gram_vocab *v, uint32_t node, uint8_t byte)
{
    uint32_t end = v->nodes[node].skip;
    for (uint32_t child = node + 1; child < end; child = v->nodes[child].skip)
        if (v->nodes[child].byte == byte) return child;
    return 0;
}

int32_t gram_vocab_longest(const struct gram_vocab *v, const char *text, size_t len,
                           size_t *ret_len)
{
    int32_t id = -1;
    uint32_t node = len ? v->root_child[(uint8_t)text[0]] : 0;
    for (size_t depth = 1; node; depth++) {
        if (v->nodes[node].id >= 0) {
            id = v->nodes[node].id;
            *ret_len = depth;
        }
        node = depth < len ? child_at(v, node, (uint8_t)text[depth]) : 0;
    }
    return id;
}

/* The length of the special token that a text begins with, or 0. */
static size_t special_token(const struct gram_vocab *v, const char *text, size_t len)
{
    uint32_t node = v->root_child[0xFF];
    size_t depth = 1;
    for (; node && v->nodes[node].id < 0 && depth < len; depth++)
        node = child_at(v, node, (uint8_t)text[depth]);
    return node && v->nodes[node].id >= 0 ? depth : 0;
}

bool gram_vocab_spells(const struct gram_vocab *v, const char *text, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = (uint8_t)text[i] == 0xFF ? special_token(v, text + i, len - i)
                                     : v->byte_ids[(uint8_t)text[i]] >= 0;
        if (n == 0) return false;
    }
    return true;
}

bool gram_vocab_spells_json(const struct gram_vocab *v, uint8_t *ret_missing)
{
    for (const char *p = "{}[]:,\"\\0123456789-+.abcdeflnrstuABCDEF"; *p; p++) {
        *ret_missing = (uint8_t)*p;
        if (v->byte_ids[(uint8_t)*p] < 0) return false;
    }
    return true;
}
