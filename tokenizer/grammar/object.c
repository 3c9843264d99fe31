/* SPDX-License-Identifier: MIT */
/*
 * Objects: which keys may come next, and keys byte by byte.
 *
 * Declared keys come in their order; `pos` of the frame is the first that may still come. After
 * the last required one follow free words (keys of a finite language, and undeclared ones that
 * dependencies name, in any order) and free keys. A frame is feasible if its object can still be
 * completed; a key may come if the frame after it is feasible, so no object ever gets stuck.
 */
#include <assert.h>

#include "tokenizer/grammar/compiled.h"
#include "tokenizer/grammar/lexer.h"
#include "tokenizer/grammar/machine.h"
#include "tokenizer/grammar/vocab.h"

static bool is_word(const struct gram_object *o, uint32_t key)
{
    return key >= o->n_declared;
}

/* ---- keys that depend on each other -------------------------------------------------------- */

/*
 * dependentRequired: every key of a dependency is remembered when it comes. After a key the object
 * can be completed if all that is needed, and all that those keys need in turn, can still come, is
 * not too much, and is enough.
 */
enum { WORDS = GRAM_MAX_DEPENDENT_KEYS / 64 };

static bool has(const struct gram_keys *k, uint32_t key)
{
    return k->words[key / 64] >> key % 64 & 1;
}

static void add(struct gram_keys *k, uint32_t key)
{
    k->words[key / 64] |= (uint64_t)1 << key % 64;
}

static uint32_t count(const struct gram_keys *k)
{
    uint32_t n = 0;
    for (int i = 0; i < WORDS; i++)
        n += (uint32_t)__builtin_popcountll(k->words[i]);
    return n;
}

/* Keys that are there, and keys that can still come, after `key`. */
static void split(const struct gram_object *o, const struct gram_cells *cells,
                  const struct gram_frame *f, uint32_t key, struct gram_keys *there,
                  struct gram_keys *open)
{
    uint32_t pos = key == GRAM_NONE ? f->pos : key >= o->n_declared ? o->n_declared : key + 1;
    for (uint32_t k = 0; k < o->n_keys; k++) {
        bool word = k >= o->n_declared, known = gram_key_known(cells, f->list, k);
        if (k == key || known)
            add(there, k);
        else if (!word && k < pos && o->keys[k].required)
            add(there, k);
        else if ((word || k >= pos) && o->keys[k].value != GRAM_NONE)
            add(open, k);
    }
}

/* Takes keys out of `open` that need one that can no longer come, until nothing changes. */
static void close_hopeless(const struct gram_object *o, const struct gram_keys *there,
                           struct gram_keys *open)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < o->n_dependencies; i++) {
            uint32_t k = o->dependencies[i].if_key, wanted = o->dependencies[i].then_key;
            if (!has(open, k) || has(there, wanted) || has(open, wanted)) continue;
            open->words[k / 64] &= ~((uint64_t)1 << k % 64);
            changed = true;
        }
    }
}

/* After `key`: all that must still come, and what can; false if something of it cannot. */
static bool find_needed(const struct gram_object *o, const struct gram_cells *cells,
                        const struct gram_frame *f, uint32_t key, struct gram_keys *open,
                        struct gram_keys *needed)
{
    struct gram_keys there = {{0}};
    bool changed = true;
    split(o, cells, f, key, &there, open);
    close_hopeless(o, &there, open);
    for (uint32_t k = 0; k < o->n_keys; k++)
        if (o->keys[k].required && !has(&there, k)) add(needed, k);
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < o->n_dependencies; i++) {
            uint32_t k = o->dependencies[i].if_key, wanted = o->dependencies[i].then_key;
            if (!has(&there, k) && !has(needed, k)) continue;
            if (has(&there, wanted) || has(needed, wanted)) continue;
            add(needed, wanted);
            changed = true;
        }
    }
    for (int i = 0; i < WORDS; i++)
        if (needed->words[i] & ~open->words[i]) return false;
    return true;
}

static bool deps_feasible(const struct gram_object *o, const struct gram_cells *cells,
                          const struct gram_frame *f, uint32_t key)
{
    struct gram_keys open = {{0}}, needed = {{0}};
    if (!find_needed(o, cells, f, key, &open, &needed)) return false;
    if (o->max != GRAM_INFINITE && f->count + 1 + count(&needed) > o->max) return false;
    return o->free_kind != GRAM_FREE_NONE || f->count + 1 + count(&open) >= o->min;
}

bool gram_object_needed(const struct gram_machine *m, const struct gram_frame *f, uint32_t key,
                        struct gram_keys *ret)
{
    struct gram_keys open = {{0}};
    const struct gram_object *o = gram_object_of(m, f);
    return o->n_dependencies && find_needed(o, m->cells, f, key, &open, ret);
}

/* ---- feasibility --------------------------------------------------------------------------- */

bool gram_object_needs(const struct gram_machine *m, const struct gram_frame *f, uint32_t key)
{
    const struct gram_object *o = gram_object_of(m, f);
    bool needed = o->keys[key].required;
    for (uint32_t i = 0; !needed && i < o->n_dependencies; i++)
        needed = o->dependencies[i].then_key == key &&
                 gram_key_known(m->cells, f->list, o->dependencies[i].if_key);
    if (!needed) return false;
    if (is_word(o, key) || o->keys[key].watched) return !gram_key_known(m->cells, f->list, key);
    return key >= f->pos;
}

/* The next declared key that must come, or n_declared. */
static uint32_t next_needed(const struct gram_machine *m, const struct gram_frame *f)
{
    const struct gram_object *o = gram_object_of(m, f);
    uint32_t key = f->pos;
    if (!o->n_dependencies) return o->next_required[f->pos];
    while (key < o->n_declared && !gram_object_needs(m, f, key))
        key++;
    return key;
}

/*
 * How many keys must still come; with dependencies, those that they need in turn are not counted.
 */
static uint32_t count_needed(const struct gram_machine *m, const struct gram_frame *f)
{
    const struct gram_object *o = gram_object_of(m, f);
    uint32_t n = 0;
    if (!o->n_dependencies && !o->n_words_required) return o->required_left[f->pos];
    for (uint32_t key = 0; key < o->n_keys; key++)
        n += gram_object_needs(m, f, key);
    return n;
}

/* Keys that may still come besides free ones. */
static uint32_t count_possible(const struct gram_machine *m, const struct gram_frame *f)
{
    const struct gram_object *o = gram_object_of(m, f);
    uint32_t n = o->possible_left[f->pos];
    for (uint32_t key = o->n_declared; key < o->n_keys; key++)
        n += o->keys[key].value != GRAM_NONE && !gram_key_known(m->cells, f->list, key);
    return n;
}

static bool value_fits(const struct gram_machine *m, uint32_t frame, uint32_t value, bool remember)
{
    assert(value < m->g->rules.n_values);
    const struct gram_frame *f = gram_frame_at(m->cells, frame);
    const struct gram_value *v = &m->g->rules.values[value];
    if (remember && gram_key_count(m->cells, f->list) >= GRAM_MAX_REMEMBERED) return false;
    return gram_fits(m, frame, v->need.height, v->need.cells + remember);
}

/* Key `key` may come now, in a frame where some key needed before it does not come first. */
static bool may_come(const struct gram_machine *m, uint32_t frame, uint32_t key, uint32_t needed)
{
    const struct gram_frame *f = gram_frame_at(m->cells, frame);
    const struct gram_object *o = gram_object_of(m, f);
    const struct gram_key *k = &o->keys[key];
    assert(key < o->n_keys);
    if (k->value == GRAM_NONE) return false;
    if (is_word(o, key) ? needed < o->n_declared || gram_key_known(m->cells, f->list, key)
                        : key < f->pos || key > needed)
        return false;
    if (!value_fits(m, frame, k->value, k->watched)) return false;
    if (o->n_dependencies) return deps_feasible(o, m->cells, f, key);
    if (o->max != GRAM_INFINITE && f->count + count_needed(m, f) + !k->required > o->max)
        return false;
    if (f->count + 1 >= o->min || o->free_kind != GRAM_FREE_NONE) return true;
    uint32_t behind = is_word(o, key) ? count_possible(m, f) - o->possible_left[f->pos] - 1
                                      : count_possible(m, f) - o->possible_left[f->pos] +
                                            o->possible_left[key + 1];
    return f->count + 1 + behind >= o->min;
}

/* A key that is not in the trie may come. */
static bool free_may_come(const struct gram_machine *m, uint32_t frame, uint32_t needed)
{
    const struct gram_frame *f = gram_frame_at(m->cells, frame);
    const struct gram_object *o = gram_object_of(m, f);
    if (o->free_kind == GRAM_FREE_NONE || needed < o->n_declared) return false;
    if (o->max != GRAM_INFINITE && f->count + count_needed(m, f) + 1 > o->max) return false;
    return gram_fits(m, frame, o->free_need.height, o->free_need.cells + 1) &&
           gram_key_count(m->cells, f->list) < GRAM_MAX_REMEMBERED;
}

bool gram_object_may_come(const struct gram_machine *m, uint32_t frame, uint32_t key)
{
    return may_come(m, frame, key, next_needed(m, gram_frame_at(m->cells, frame)));
}

bool gram_object_can_close(const struct gram_machine *m, uint32_t frame)
{
    const struct gram_frame *f = gram_frame_at(m->cells, frame);
    return f->count >= gram_object_of(m, f)->min && count_needed(m, f) == 0;
}

/* Some leaf of the trie below the node may come. */
static bool below_may_come(const struct gram_machine *m, uint32_t frame, uint32_t node)
{
    const struct gram_frame *f = gram_frame_at(m->cells, frame);
    const struct gram_object *o = gram_object_of(m, f);
    uint32_t needed = next_needed(m, f);
    for (uint32_t i = o->trie.nodes[node].leaf_lo; i < o->trie.nodes[node].leaf_hi; i++)
        if (may_come(m, frame, o->trie.leaves[i], needed)) return true;
    return false;
}

bool gram_object_has_key(const struct gram_machine *m, uint32_t frame)
{
    const struct gram_frame *f = gram_frame_at(m->cells, frame);
    const struct gram_object *o = gram_object_of(m, f);
    uint32_t needed = next_needed(m, f);
    if (needed < o->n_declared || free_may_come(m, frame, needed)) return true;
    for (uint32_t key = f->pos; key < o->n_keys; key++)
        if (may_come(m, frame, key, needed)) return true;
    return false;
}

/* ---- keys ---------------------------------------------------------------------------------- */

#define OFF_TRIE GRAM_KEY_OFF
#define NO_FREE GRAM_KEY_OFF

static uint64_t pack(uint32_t free_state, uint32_t node)
{
    return free_state | (uint64_t)node << 32;
}

/* The frame after a key. */
static uint32_t take_key(struct gram_machine *m, uint32_t frame, uint32_t pos, uint64_t remember,
                         bool watched)
{
    const struct gram_frame f = *gram_frame_at(m->cells, frame);
    const struct gram_object *o = gram_object_of(m, &f);
    uint32_t list = watched ? gram_key_add(m->cells, remember, f.list) : f.list;
    uint32_t count = f.count + 1;
    assert(pos <= o->n_declared);
    if (o->max == GRAM_INFINITE && count > o->min) count = o->min;
    if (watched && !list) return 0;
    return gram_replace(m, &f, pos, count, list);
}

static void emit_colon(struct gram_machine *m, const struct gram_config *c, uint32_t stack,
                       uint32_t value)
{
    struct gram_config next = {
        .kind = GRAM_AT_COLON, .node = value, .stack = stack, .events = c->events};
    if (stack) gram_emit(m, &next);
}

static void close_known(struct gram_machine *m, const struct gram_config *c, uint32_t key)
{
    uint32_t stack = c->stack, frame;
    while (gram_next_frame(m->cells, &stack, &frame)) {
        const struct gram_frame *f = gram_frame_at(m->cells, frame);
        const struct gram_object *o = gram_object_of(m, f);
        if (!may_come(m, frame, key, next_needed(m, f))) continue;
        uint32_t pos = is_word(o, key) ? o->n_declared : key + 1;
        uint32_t taken = take_key(m, frame, pos, key, o->keys[key].watched);
        emit_colon(m, c, taken, o->keys[key].value);
    }
}

/* last_chance: no other free key can come of what was written so far. node: in the trie. */
static void close_free(struct gram_machine *m, const struct gram_config *c, uint32_t index,
                       bool last_chance, uint32_t node)
{
    uint32_t stack = c->stack, frame;
    uint64_t hash = gram_hash_end(c->s2);
    while (gram_next_frame(m->cells, &stack, &frame)) {
        const struct gram_frame *f = gram_frame_at(m->cells, frame);
        const struct gram_object *o = gram_object_of(m, f);
        bool known = gram_key_known(m->cells, f->list, hash);
        bool may_go_on = node != OFF_TRIE && below_may_come(m, frame, node);
        if (known && (!last_chance || may_go_on)) continue;
        uint32_t taken = take_key(m, frame, o->n_declared, hash, !known);
        uint32_t value = o->free_kind == GRAM_FREE_ANY ? o->free_value : o->free_values[index];
        emit_colon(m, c, taken, value);
    }
}

/* any: whatever comes, it is a free key of any characters. */
static void emit_key(struct gram_machine *m, struct gram_config *c, bool any)
{
    if (any) {
        c->kind = GRAM_IN_FREE_KEY;
        c->node = 0;
        c->s1 = 0;
    }
    gram_emit(m, c);
}

/* The opening quote of a key. */
void gram_step_object(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    uint32_t stack = c->stack, frame;
    while (byte == '"' && gram_next_frame(m->cells, &stack, &frame)) {
        const struct gram_frame *f = gram_frame_at(m->cells, frame);
        const struct gram_object *o = gram_object_of(m, f);
        struct gram_config next = {.kind = GRAM_IN_KEY,
                                   .node = f->node,
                                   .stack = frame,
                                   .events = c->events,
                                   .s2 = GRAM_HASH_SEED};
        bool free = free_may_come(m, frame, next_needed(m, f));
        if (!free && !gram_object_has_key(m, frame)) continue;
        uint32_t start = o->free_kind == GRAM_FREE_DFA ? o->free_keys->start : 0;
        next.s1 = pack(free ? start : NO_FREE, 0);
        if (!free) next.s2 = 0;
        emit_key(m, &next, free && o->free_kind == GRAM_FREE_ANY && !o->n_keys);
    }
}

/* The closing quote of a key that may be declared or free. */
static void close_key(struct gram_machine *m, const struct gram_config *c)
{
    const struct gram_object *o = &m->g->rules.objects[c->node];
    uint32_t node = (uint32_t)(c->s1 >> 32), state = (uint32_t)c->s1;
    if (node != OFF_TRIE && o->trie.nodes[node].is_leaf) {
        close_known(m, c, o->trie.leaves[o->trie.nodes[node].leaf_lo]);
        return;
    }
    if (state == NO_FREE || c->d) return;
    if (o->free_kind == GRAM_FREE_ANY) {
        close_free(m, c, 0, false, OFF_TRIE);
        return;
    }
    const struct gram_dfa *d = o->free_keys;
    if (!d->outcome[state]) return;
    bool last = node == OFF_TRIE ? !gram_dfa_extends(d, state, 0, 0) : !o->prefix_more[node];
    close_free(m, c, d->outcome[state] - 1, last, node);
}

/* A key of any characters goes on; returns the lexer's state. */
static uint16_t step_plain(const struct gram_machine *m, struct gram_config *c, uint8_t byte)
{
    bool digit = c->d == GRAM_LEX_U0000 || c->d == GRAM_LEX_U0010;
    c->d = m->g->vocab->lexer.next[GRAM_LEX_PLAIN][c->d][byte];
    c->s2 = gram_hash_plain(c->s2, byte, digit);
    return c->d;
}

/* The free part of a key goes on by one byte; false: no free key begins so. */
static bool step_free_part(const struct gram_machine *m, const struct gram_object *o,
                           struct gram_config *c, uint8_t byte)
{
    uint32_t state = (uint32_t)c->s1;
    if (o->free_kind == GRAM_FREE_ANY) return step_plain(m, c, byte) != GRAM_LEX_DEAD;
    struct gram_dfa_place p = {state, c->d, 0};
    bool digit = c->d == GRAM_DEC_U000 || c->d == GRAM_DEC_U001;
    if (gram_dfa_take(o->free_keys, &p, byte) != GRAM_DFA_STEP_ON) return false;
    c->d = (uint16_t)p.decoder;
    c->s1 = pack(p.q, (uint32_t)(c->s1 >> 32));
    c->s2 = gram_hash_plain(c->s2, byte, digit);
    return true;
}

/* Some stack of c allows a declared key or word below the trie's node. */
static uint32_t keep_stacks(struct gram_machine *m, const struct gram_config *c, uint32_t node)
{
    uint32_t stack = c->stack, frame, kept = 0;
    if (!gram_is_union(m->cells, stack)) return below_may_come(m, stack, node) ? stack : 0;
    while (gram_next_frame(m->cells, &stack, &frame)) {
        if (!below_may_come(m, frame, node)) continue;
        kept = kept ? gram_union_add(m->cells, frame, kept) : frame;
    }
    return kept;
}

void gram_step_key(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    const struct gram_object *o = &m->g->rules.objects[c->node];
    uint32_t node = (uint32_t)(c->s1 >> 32);
    struct gram_config next = *c;
    bool free = (uint32_t)c->s1 != NO_FREE;
    bool escaped = free ? c->d != 0 : gram_trie_step(&o->trie, node, '"') != GRAM_TRIE_NONE;
    if (byte == '"' && !escaped) {
        close_key(m, c);
        return;
    }
    free = free && step_free_part(m, o, &next, byte);
    if (node != OFF_TRIE) node = gram_trie_step(&o->trie, node, byte);
    if (free && o->free_kind == GRAM_FREE_DFA && node != OFF_TRIE) free = o->prefix_alive[node];
    if (!free) {
        next.d = 0;
        next.s2 = 0;
        if (node == OFF_TRIE || !(next.stack = keep_stacks(m, c, node))) return;
    }
    next.s1 = pack(free ? (uint32_t)next.s1 : NO_FREE, node);
    emit_key(m, &next, free && node == OFF_TRIE && o->free_kind == GRAM_FREE_ANY);
}

void gram_step_free_key(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    struct gram_config next = *c;
    uint16_t to = step_plain(m, &next, byte);
    if (to == GRAM_LEX_QUOTE)
        close_free(m, c, 0, false, OFF_TRIE);
    else if (to != GRAM_LEX_DEAD)
        gram_emit(m, &next);
}
