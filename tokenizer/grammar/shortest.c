/* SPDX-License-Identifier: MIT */
/*
 * The shortest way to complete an answer.
 *
 * The need of a set of configurations is measured: the rest of a leaf, and for each frame
 * below it what its container must still hold, by the least members that are known since the
 * grammar was compiled (heights.c). The text is then written byte by byte: one after which less is
 * needed. So the machine itself says what may come, and a measure that is too large does no harm;
 * it is too large rather than too small where a key or a unique item must differ from others.
 */
#include <string.h>

#include "tokenizer/grammar/lexer.h"
#include "tokenizer/grammar/state.h"
#include "tokenizer/grammar/style.h"
#include "tokenizer/grammar/vocab.h"

enum { MOST = 1 << 30 };

/* A measure of one set. */
struct measure {
    const struct gram_machine *m;
    uint32_t shown;            /* the style of the stack in hand, */
    uint32_t rest[GRAM_CELLS]; /* and what is known of its frames: measure + 1, or 0 */
};

static uint64_t least(uint64_t x, uint64_t y)
{
    return x < y ? x : y;
}

static uint64_t blanks(uint32_t style, enum gram_style_part part)
{
    return gram_style_of(style, part) == GRAM_STYLE_BLANK;
}

/* A least member in a style. */
static uint64_t styled(const struct gram_least *l, uint32_t style)
{
    uint64_t n = l->bytes + l->commas * blanks(style, GRAM_STYLE_COMMA) +
                 l->colons * blanks(style, GRAM_STYLE_COLON) +
                 2 * l->objects * blanks(style, GRAM_STYLE_OBJECT) +
                 2 * l->arrays * blanks(style, GRAM_STYLE_ARRAY);
    return least(n, MOST);
}

static uint64_t value_rest(const struct measure *x, uint32_t value, uint32_t style)
{
    return value == GRAM_NONE ? MOST : styled(&x->m->g->rules.values[value].need.least, style);
}

/* A frame in the style of the answer. */
static struct gram_frame frame_of(const struct measure *x, uint32_t frame)
{
    struct gram_frame f = *gram_frame_at(x->m->cells, frame);
    if (f.kind <= GRAM_FRAME_ARRAY) f.style = (f.style & ~(uint32_t)GRAM_STYLE_SHOWN) | x->shown;
    return f;
}

/* ---- containers ---------------------------------------------------------------------------- */

/* Things that must come in a container, without the commas between them. */
struct todo {
    uint64_t bytes;
    uint32_t n;
};

/* After the closing quote of a key: the colon and its value. */
static uint64_t after_key(const struct gram_frame *f, uint64_t value)
{
    return 1 + blanks(f->style, GRAM_STYLE_COLON) + value;
}

static uint64_t key_bytes(const struct measure *x, const struct gram_frame *f, uint32_t key)
{
    const struct gram_key *k = &gram_object_of(x->m, f)->keys[key];
    return k->length + 2 + after_key(f, value_rest(x, k->value, f->style));
}

/* The least of a free key that is not known yet, with its value. */
static uint64_t free_key_bytes(const struct measure *x, const struct gram_frame *f)
{
    const struct gram_object *o = gram_object_of(x->m, f);
    uint64_t bytes = GRAM_FREE_KEY_BYTES + 2;
    if (o->free_kind == GRAM_FREE_NONE) return MOST;
    if (o->free_kind == GRAM_FREE_DFA) bytes += o->free_keys->rest[o->free_keys->start];
    return bytes + after_key(f, styled(&o->free_need.least, f->style));
}

/* The keys that must come after `taken` (GRAM_NONE: as it is), and at least so many. */
static struct todo keys_left(const struct measure *x, const struct gram_frame *f, uint32_t taken,
                             uint32_t at_least)
{
    const struct gram_object *o = gram_object_of(x->m, f);
    struct gram_keys needed = {{0}};
    struct todo t = {0, 0};
    bool known = gram_object_needed(x->m, f, taken, &needed);
    uint32_t begin = taken == GRAM_NONE      ? f->pos
                     : taken < o->n_declared ? taken + 1
                                             : o->n_declared;
    uint32_t count = f->count + (taken != GRAM_NONE);
    uint64_t free = free_key_bytes(x, f), one;
    if (o->min > count + at_least) at_least = o->min - count;
    for (uint32_t i = 0; i < 2 * o->n_keys; i++) {
        bool optional = i >= o->n_keys;
        uint32_t k = optional ? o->by_bytes[i - o->n_keys] : i;
        bool wanted = known ? needed.words[k / 64] >> k % 64 & 1 : gram_object_needs(x->m, f, k);
        if (optional && t.n >= at_least) break;
        if (k < begin || k == taken || wanted == optional || o->keys[k].value == GRAM_NONE)
            continue;
        if (k >= o->n_declared && gram_key_known(x->m->cells, f->list, k)) continue;
        one = key_bytes(x, f, k);
        if (optional && one > free) break;
        t.bytes += one;
        t.n++;
    }
    for (; t.n < at_least; t.n++)
        t.bytes = least(t.bytes + free, MOST);
    return t;
}

static struct todo items_left(const struct measure *x, const struct gram_frame *f,
                              uint32_t at_least)
{
    const struct gram_array *a = &x->m->g->rules.arrays[f->node];
    uint32_t min = a->min > f->count ? a->min : f->count, i = f->count;
    struct todo t = {0, 0};
    if (min < f->count + at_least) min = f->count + at_least;
    t.n = min - f->count;
    for (; i < min; i++) {
        uint32_t value = i < a->n_prefix ? a->prefix[i] : a->rest;
        uint64_t bytes = value_rest(x, value, f->style), times = i < a->n_prefix ? 1 : min - i;
        if (a->unique && i >= a->n_prefix) bytes = a->unique_bytes;
        t.bytes = least(t.bytes + bytes * times, MOST);
        if (i >= a->n_prefix) break;
    }
    return t;
}

static struct todo things_left(const struct measure *x, const struct gram_frame *f,
                               uint32_t at_least)
{
    return f->kind == GRAM_FRAME_OBJECT ? keys_left(x, f, GRAM_NONE, at_least)
                                        : items_left(x, f, at_least);
}

/* ---- stacks -------------------------------------------------------------------------------- */

static uint64_t stack_rest(struct measure *x, uint32_t stack);

/* So many commas with what follows each, and the end of a container. */
static uint64_t end_of(struct measure *x, const struct gram_frame *f, uint32_t commas)
{
    return commas * (1ull + gram_style_space(f, GRAM_AT_KEY, 0)) +
           gram_style_space(f, GRAM_AT_NEXT, 0) + 1 + stack_rest(x, f->parent);
}

/* After a kid of a frame. */
static uint64_t frame_rest(struct measure *x, uint32_t frame)
{
    const struct gram_frame f = frame_of(x, frame);
    const struct gram_rules *r = &x->m->g->rules;
    const struct gram_node *n = f.kind > GRAM_FRAME_ARRAY ? &r->nodes[f.node] : NULL;
    struct todo t;
    uint64_t bytes = 0;
    if (x->rest[frame]) return x->rest[frame] - 1;
    if (!n) {
        t = things_left(x, &f, 0);
        bytes = t.bytes + end_of(x, &f, t.n);
    } else {
        for (uint32_t i = f.pos; f.kind == GRAM_FRAME_SEQ && i < n->n; i++)
            bytes += r->nodes[n->kids[i]].need.least.bytes;
        if (f.kind == GRAM_FRAME_REP && f.count < n->min)
            bytes += (uint64_t)r->nodes[n->kids[0]].need.least.bytes * (n->min - f.count);
        bytes += stack_rest(x, f.parent);
    }
    bytes = least(bytes, MOST);
    x->rest[frame] = (uint32_t)bytes + 1;
    return bytes;
}

static uint64_t stack_rest(struct measure *x, uint32_t stack)
{
    uint64_t best = stack ? MOST : 0;
    uint32_t frame;
    while (stack && gram_next_frame(x->m->cells, &stack, &frame))
        best = least(best, frame_rest(x, frame));
    return best;
}

/* ---- places -------------------------------------------------------------------------------- */

/* A place between the tokens of JSON, on one frame (0: none). White space is needed, and makes that
 * nothing else may come, only in a style. */
static uint64_t between(struct measure *x, const struct gram_config *c, uint32_t frame)
{
    const struct gram_frame f = frame ? frame_of(x, frame) : (struct gram_frame){.kind = UINT8_MAX};
    bool styled = f.kind <= GRAM_FRAME_ARRAY && x->m->g->spaces.styled, begun = styled && c->d;
    uint64_t space = styled ? gram_style_space(&f, c->kind, c->d) : 0;
    uint64_t value = value_rest(x, c->node, f.style) + (frame ? frame_rest(x, frame) : 0);
    struct todo t;
    switch (c->kind) {
    case GRAM_AT_VALUE: return space + value;
    case GRAM_AT_COLON: return after_key(&f, value);
    case GRAM_AT_NEXT: return begun ? space + 1 + stack_rest(x, f.parent) : frame_rest(x, frame);
    default:
        t = things_left(x, &f, c->kind == GRAM_AT_KEY || begun);
        if (!t.n) return 1 + stack_rest(x, f.parent);
        return space + t.bytes + end_of(x, &f, t.n - 1);
    }
}

/* A key that can be one of the trie. */
static uint64_t declared(struct measure *x, const struct gram_config *c, uint32_t frame)
{
    const struct gram_frame f = frame_of(x, frame);
    const struct gram_object *o = gram_object_of(x->m, &f);
    const struct gram_trie_node *at = &o->trie.nodes[c->s1 >> 32];
    uint64_t best = MOST;
    for (uint32_t i = at->leaf_lo; i < at->leaf_hi; i++) {
        uint32_t key = o->trie.leaves[i];
        if (!gram_object_may_come(x->m, frame, key)) continue;
        struct todo t = keys_left(x, &f, key, 0);
        best = least(best, key_bytes(x, &f, key) - 1 - at->depth + t.bytes + end_of(x, &f, t.n));
    }
    return best;
}

/* A key that can be a free one. */
static uint64_t free_key(struct measure *x, const struct gram_config *c, uint32_t frame)
{
    struct gram_frame f = frame_of(x, frame);
    const struct gram_object *o = gram_object_of(x->m, &f);
    uint32_t node = c->kind == GRAM_IN_KEY ? (uint32_t)(c->s1 >> 32) : GRAM_KEY_OFF;
    uint64_t rest = o->free_kind == GRAM_FREE_DFA
                        ? gram_dfa_rest(o->free_keys, (uint32_t)c->s1, c->d, 0)
                        : x->m->g->vocab->lexer.rest[GRAM_LEX_PLAIN][c->d];
    bool taken = gram_key_known(x->m->cells, f.list, gram_hash_end(c->s2)) ||
                 (node != GRAM_KEY_OFF && o->trie.nodes[node].is_leaf);
    f.pos = o->n_declared;
    f.count++;
    struct todo t = keys_left(x, &f, GRAM_NONE, 0);
    return rest + taken + 1 + after_key(&f, styled(&o->free_need.least, f.style)) + t.bytes +
           end_of(x, &f, t.n);
}

static uint64_t key_rest(struct measure *x, const struct gram_config *c, uint32_t frame)
{
    bool both = c->kind == GRAM_IN_KEY;
    uint64_t best = MOST;
    if (both && (uint32_t)(c->s1 >> 32) != GRAM_KEY_OFF) best = declared(x, c, frame);
    if (!both || (uint32_t)c->s1 != GRAM_KEY_OFF) best = least(best, free_key(x, c, frame));
    return best;
}

static bool is_taken(const struct measure *x, uint32_t frame, uint64_t hash)
{
    const struct gram_frame *f = gram_frame_at(x->m->cells, frame);
    return f->kind == GRAM_FRAME_ARRAY && x->m->g->rules.arrays[f->node].unique &&
           gram_key_known(x->m->cells, f->list, gram_hash_end(hash));
}

/* To the nearest string of a trie that is not taken; kids: of each string, what follows it. */
static uint64_t trie_rest(const struct measure *x, const struct gram_config *c,
                          const struct gram_trie *t, const uint32_t *kids, uint32_t frame)
{
    const struct gram_trie_node *at = &t->nodes[c->s1];
    uint64_t best = MOST;
    for (uint32_t i = at->leaf_lo; i < at->leaf_hi; i++) {
        const struct gram_node *kid = kids ? &x->m->g->rules.nodes[kids[t->leaves[i]]] : NULL;
        if (c->hashed && is_taken(x, frame, t->hashes[i])) continue;
        best = least(best, t->lengths[i] - at->depth + (kid ? kid->need.least.bytes : 0ull));
    }
    return best;
}

/* The rest of a leaf. */
static uint64_t leaf_rest(const struct measure *x, const struct gram_config *c, uint32_t frame)
{
    const struct gram_rules *r = &x->m->g->rules;
    const struct gram_string *s = &r->strings[c->node];
    const struct gram_node *node = &r->nodes[c->node];
    uint32_t q = (uint32_t)c->s1, n = (uint32_t)(c->s1 >> 32);
    struct gram_num_state digits;
    uint64_t hash = c->s2, bytes;
    switch (c->kind) {
    case GRAM_IN_LITERAL: return trie_rest(x, c, &r->tries[c->node], NULL, frame);
    case GRAM_IN_WORDS: return trie_rest(x, c, node->trie, node->n ? node->kids : NULL, frame);
    case GRAM_IN_LEAF: return gram_dfa_rest(node->dfa, q, c->d, n);
    case GRAM_IN_NUMBER:
        gram_number_unpack(&r->numbers[c->node], &digits, c->d, (uint64_t[]){c->s1, hash});
        bytes = gram_number_rest(&r->numbers[c->node], &digits);
        if (c->hashed && r->numbers[c->node].exact) hash = gram_number_hash(&digits);
        break;
    case GRAM_IN_DFA: bytes = 1ull + gram_dfa_rest(s->dfa, q, c->d, n); break;
    default:
        bytes = 1ull + x->m->g->vocab->lexer.rest[GRAM_LEX_FREE][c->d];
        bytes += q < s->min ? s->min - q : 0;
        break;
    }
    return bytes + (c->hashed && frame && is_taken(x, frame, hash));
}

static uint64_t place_rest(struct measure *x, const struct gram_config *c, uint32_t frame)
{
    if (c->kind == GRAM_AT_END) return 0;
    if (c->kind <= GRAM_AT_NEXT) return between(x, c, frame);
    if (c->kind == GRAM_IN_KEY || c->kind == GRAM_IN_FREE_KEY) return key_rest(x, c, frame);
    return leaf_rest(x, c, frame) + (frame ? frame_rest(x, frame) : 0);
}

/* The least need of the set. */
static uint64_t set_rest(const struct gram_state *s, const struct gram_set *set)
{
    struct measure x = {.m = &s->m, .shown = 0};
    uint64_t best = MOST;
    for (uint32_t i = 0; i < set->n; i++) {
        uint32_t stack = set->c[i].stack, frame;
        if (!stack) best = least(best, place_rest(&x, &set->c[i], 0));
        while (stack && gram_next_frame(&s->cells, &stack, &frame)) {
            const struct gram_frame *f = gram_frame_at(&s->cells, frame);
            uint32_t shown = f->kind <= GRAM_FRAME_ARRAY ? f->style & GRAM_STYLE_SHOWN : 0u;
            if (shown != x.shown) memset(x.rest, 0, sizeof(x.rest));
            x.shown = shown;
            best = least(best, place_rest(&x, &set->c[i], frame));
        }
    }
    return best;
}

uint64_t gram_rest(struct gram_state *s)
{
    return set_rest(s, &s->set);
}

/* ---- the text ------------------------------------------------------------------------------ */

enum { MOST_DETOURS = 64 };

/* The text on its way. */
struct way {
    struct gram_state *s;
    struct gram_advance a;
    struct gram_visits visits;
    struct gram_set *at;
    uint64_t rest; /* of the set */
    uint32_t n, n_values, n_detours;
};

/* The bytes that are tried, in order: of a literal as the schema has them, else the likely ones. */
static uint32_t order_bytes(const struct way *w, uint8_t order[256])
{
    static const char likely[] = "\"0123456789}],: abcdefghijklmnopqrstuvwxyz";
    uint64_t may[4] = {0};
    uint32_t n = 0;
    const struct gram_config *c = w->at->c;
    for (uint32_t i = 0; i < w->at->n; i++)
        gram_config_bytes(&w->s->m, &c[i], may);
    for (uint32_t i = 0; i < 256 + sizeof(likely) - 1; i++) {
        uint8_t byte =
            i < sizeof(likely) - 1 ? (uint8_t)likely[i] : (uint8_t)(i + 1 - sizeof(likely));
        if (!(may[byte / 64] >> byte % 64 & 1)) continue;
        may[byte / 64] &= ~((uint64_t)1 << byte % 64);
        order[n++] = byte;
    }
    if (c->kind != GRAM_IN_LITERAL) return n;
    const struct gram_trie *t = &w->s->g->rules.tries[c->node];
    uint32_t first = t->nodes[c->s1].edges;
    for (uint32_t i = 0; w->at->n == 1 && i < n; i++)
        order[i] = t->bytes[first + i];
    return n;
}

static uint64_t try_byte(struct way *w, struct gram_set *to, uint32_t top, uint8_t byte)
{
    gram_cells_pop(&w->s->cells, top);
    w->s->m.offset = (uint32_t)(w->s->offset + w->n + 1);
    gram_step_set(&w->s->m, w->at, to, byte);
    return to->n ? set_rest(w->s, to) : MOST;
}

/* The next byte of the text, -1 after the last one, -2 if none is found. */
static int next_byte(struct way *w)
{
    struct gram_set *to = w->at == &w->a.two[0] ? &w->a.two[1] : &w->a.two[0];
    uint8_t order[256];
    uint64_t best = MOST, last = MOST;
    uint32_t chosen = 0, tried = 0;
    for (uint32_t i = 0; i < w->at->n; i++)
        if (w->at->c[i].kind == GRAM_AT_END) return -1;
    if (!gram_make_room(w->s, w->at, &w->a)) return -2;
    uint32_t top = w->s->cells.top, n = order_bytes(w, order);
    for (; tried < n && (!tried || best >= w->rest); tried++) {
        last = try_byte(w, to, top, order[tried]);
        if (last < best) best = last, chosen = tried;
    }
    w->n_detours += best >= w->rest;
    if (best == MOST || w->n_detours > MOST_DETOURS) return -2;
    if (chosen + 1 != tried) try_byte(w, to, top, order[chosen]);
    bool may_begin = w->at->c->kind == GRAM_AT_VALUE || w->at->c->kind == GRAM_AT_ARRAY;
    w->n_values += may_begin && !memchr("] \n\t\r", order[chosen], 5);
    w->rest = best;
    w->at = to;
    w->n++;
    return order[chosen];
}

size_t gram_close(struct gram_state *s, size_t limit, const struct gram_bans *bans, int32_t *ids,
                  size_t n, uint32_t *ret_values)
{
    char text[2 * GRAM_MAX_TOKEN_BYTES];
    size_t len = 0, at = 0, n_ids = 0, token;
    uint32_t top = s->cells.top;
    struct way w = {.s = s, .at = &s->set, .rest = set_rest(s, &s->set)};
    int byte = 0;
    gram_begin_bytes(s, &w.visits, w.a.two);
    while (n_ids <= limit && (byte >= 0 || at < len)) {
        if (byte >= 0 && len - at < GRAM_MAX_TOKEN_BYTES) {
            byte = next_byte(&w);
            if (byte >= 0) text[len++] = (char)byte;
            continue;
        }
        int32_t id = gram_vocab_longest(s->g->vocab, text + at, len - at, &token);
        if (id < 0 || (bans && bans->has(bans->ctx, id))) byte = -2;
        if (byte == -2) break;
        if (n_ids < n) ids[n_ids] = id;
        n_ids++;
        at += token;
        if (at < GRAM_MAX_TOKEN_BYTES) continue;
        memmove(text, text + at, len - at);
        len -= at;
        at = 0;
    }
    if (!w.a.collected) gram_cells_pop(&s->cells, top);
    *ret_values = w.n_values;
    return byte == -2 || n_ids > limit ? SIZE_MAX : n_ids;
}
