/* SPDX-License-Identifier: MIT */
/*
 * Leaves of the machine, byte by byte: literals, strings, numbers, automata. See machine.h for what
 * the fields of a configuration mean in each. And which bytes a configuration may take, so that a
 * walk need not try all of them.
 */
#include <stddef.h>
#include <string.h>

#include "tokenizer/grammar/compiled.h"
#include "tokenizer/grammar/lexer.h"
#include "tokenizer/grammar/machine.h"
#include "tokenizer/grammar/style.h"
#include "tokenizer/grammar/vocab.h"

/* ---- literals ------------------------------------------------------------------------------ */

/* Among unique items: some literal below the node is not there yet. */
static bool literal_is_new(const struct gram_machine *m, const struct gram_trie *t, uint32_t node,
                           uint32_t stack)
{
    const struct gram_trie_node *n = &t->nodes[node];
    uint32_t frame;
    while (gram_next_frame(m->cells, &stack, &frame)) {
        const struct gram_frame *f = gram_frame_at(m->cells, frame);
        if (f->kind != GRAM_FRAME_ARRAY || !m->g->rules.arrays[f->node].unique) return true;
        for (uint32_t i = n->leaf_lo; i < n->leaf_hi; i++)
            if (!gram_key_known(m->cells, f->list, gram_hash_end(t->hashes[i]))) return true;
    }
    return false;
}

static void step_literal(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    const struct gram_trie *t = &m->g->rules.tries[c->node];
    uint32_t node = gram_trie_step(t, (uint32_t)c->s1, byte);
    if (node == GRAM_TRIE_NONE) return;
    if (c->hashed && !literal_is_new(m, t, node, c->stack)) return;
    struct gram_config next = *c;
    next.s1 = node;
    if (t->nodes[node].n_edges) gram_emit(m, &next);
    if (t->nodes[node].is_leaf)
        gram_leave_item(m, &next, c->hashed ? t->hashes[t->nodes[node].leaf_lo] : 0, false);
}

static void step_words(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    const struct gram_node *n = &m->g->rules.nodes[c->node];
    const struct gram_trie *t = n->trie;
    uint32_t node = gram_trie_step(t, (uint32_t)c->s1, byte);
    if (node == GRAM_TRIE_NONE) return;
    struct gram_config next = *c;
    next.s1 = node;
    if (t->nodes[node].n_edges) gram_emit(m, &next);
    if (!t->nodes[node].is_leaf) return;
    uint32_t events = n->ref ? gram_event(m, n->ref, false, c->events) : c->events;
    if (n->n)
        gram_enter(m, n->kids[t->leaves[t->nodes[node].leaf_lo]], c->stack, events);
    else
        gram_leave(m, c->stack, events);
}

/* ---- free strings -------------------------------------------------------------------------- */

static void step_string(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    const struct gram_string *s = &m->g->rules.strings[c->node];
    uint8_t to = m->g->vocab->lexer.next[GRAM_LEX_FREE][c->d][byte];
    uint32_t length = (uint32_t)c->s1, escape = (uint32_t)(c->s1 >> 32);
    struct gram_config next = *c;
    if (to == GRAM_LEX_DEAD) return;
    if (to == GRAM_LEX_QUOTE) {
        if (length >= s->min) gram_leave_item(m, c, c->s2, length == s->max);
        return;
    }
    if (c->d == GRAM_LEX_BODY) {
        if (length == s->max) return;
        /* Outside the bounds the length need not be known. */
        if (s->max != GRAM_INFINITE || length < s->min) length++;
    }
    if (c->hashed) next.s2 = gram_hash_free(c->s2, (uint8_t)c->d, to, byte, &escape);
    next.d = to;
    next.s1 = length | (uint64_t)escape << 32;
    gram_emit(m, &next);
}

/* ---- automata ------------------------------------------------------------------------------ */

static void step_dfa(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    const struct gram_dfa *d = m->g->rules.strings[c->node].dfa;
    struct gram_dfa_place p = {(uint32_t)c->s1, c->d, (uint32_t)(c->s1 >> 32)};
    struct gram_config next = *c;
    switch (gram_dfa_take(d, &p, byte)) {
    case GRAM_DFA_STEP_DEAD: return;
    case GRAM_DFA_STEP_QUOTE:
        gram_leave_item(m, c, c->s2, c->hashed && !gram_dfa_extends(d, p.q, 0, p.n));
        return;
    default: break;
    }
    bool last_digit = c->d == GRAM_DEC_U000 || c->d == GRAM_DEC_U001;
    if (c->hashed) next.s2 = gram_hash_plain(c->s2, byte, last_digit);
    next.d = (uint16_t)p.decoder;
    next.s1 = p.q | (uint64_t)p.n << 32;
    gram_emit(m, &next);
}

/* Expression leaves have no quote: they may end wherever the automaton accepts. */
static void step_expression(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    const struct gram_dfa *d = m->g->rules.nodes[c->node].dfa;
    struct gram_dfa_place p = {(uint32_t)c->s1, c->d, (uint32_t)(c->s1 >> 32)};
    struct gram_config next = *c;
    if (gram_dfa_take(d, &p, byte) != GRAM_DFA_STEP_ON) return;
    next.d = (uint16_t)p.decoder;
    next.s1 = p.q | (uint64_t)p.n << 32;
    if (p.decoder || gram_dfa_extends(d, p.q, 0, p.n)) gram_emit(m, &next);
    if (!p.decoder && d->outcome[p.q] && p.n >= d->min) gram_leave(m, c->stack, c->events);
}

/* ---- numbers ------------------------------------------------------------------------------- */

static bool number_after(const struct gram_number *n, const struct gram_config *c, uint8_t byte,
                         struct gram_num_state *ret)
{
    gram_number_unpack(n, ret, c->d, (const uint64_t[]){c->s1, c->s2});
    return gram_number_step(n, ret, byte);
}

/* Of an item of an array, after a byte. */
static uint64_t item_hash(const struct gram_number *n, const struct gram_config *c,
                          const struct gram_num_state *s, uint8_t byte)
{
    return n->exact ? gram_number_hash(s) : gram_hash_byte(c->s2, byte);
}

/* Another byte in place of this one leads to a number that no array of the stack may have yet. */
static bool number_has_others(const struct gram_machine *m, const struct gram_number *n,
                              const struct gram_config *c, uint8_t byte)
{
    struct gram_num_state s;
    for (const char *p = "0123456789-"; *p; p++) {
        uint32_t stack = c->stack, frame;
        if (*p == byte || !number_after(n, c, (uint8_t)*p, &s)) continue;
        if (gram_number_extends(n, &s)) return true;
        bool known = false;
        uint64_t hash = gram_hash_end(item_hash(n, c, &s, (uint8_t)*p));
        while (gram_next_frame(m->cells, &stack, &frame))
            known |= gram_key_known(m->cells, gram_frame_at(m->cells, frame)->list, hash);
        if (!known) return true;
    }
    return false;
}

static void step_number(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    const struct gram_number *n = &m->g->rules.numbers[c->node];
    struct gram_config next = *c;
    struct gram_num_state s;
    uint64_t bits[2] = {0, 0};
    if (!number_after(n, c, byte, &s)) return;
    gram_number_pack(n, &s, &next.d, bits);
    next.s1 = bits[0];
    next.s2 = n->exact ? bits[1] : c->hashed ? item_hash(n, c, &s, byte) : 0;
    bool extends = gram_number_extends(n, &s);
    if (extends) gram_emit(m, &next);
    if (gram_number_complete(n, &s)) {
        bool last_chance = c->hashed && !extends && !number_has_others(m, n, c, byte);
        gram_leave_item(m, &next, c->hashed ? item_hash(n, c, &s, byte) : 0, last_chance);
    }
}

/* ---- beginning and going on ---------------------------------------------------------------- */

static void begin_container(struct gram_machine *m, bool object, struct gram_config *c)
{
    const struct gram_rules *r = &m->g->rules;
    const struct gram_need *need = object ? &r->objects[c->node].need : &r->arrays[c->node].need;
    struct gram_frame f = {.kind = object ? GRAM_FRAME_OBJECT : GRAM_FRAME_ARRAY, .node = c->node};
    uint32_t stack = c->stack, frame;
    if (!gram_style_inherit(m, c->stack, &f.style)) { /* not the same for all: one by one */
        while (gram_next_frame(m->cells, &stack, &frame)) {
            struct gram_config one = *c;
            one.stack = frame;
            begin_container(m, object, &one);
        }
        return;
    }
    if (!gram_fits(m, c->stack, need->height, need->cells)) return;
    c->stack = gram_push(m, c->stack, &f);
    c->kind = object ? GRAM_AT_OBJECT : GRAM_AT_ARRAY;
    c->node = 0;
    c->hashed = 0;
    if (c->stack) gram_emit(m, c);
}

void gram_begin_branch(struct gram_machine *m, const struct gram_branch *branch,
                       const struct gram_config *at, bool hashed, uint8_t byte)
{
    struct gram_config c = {
        .node = branch->node, .stack = at->stack, .events = at->events, .hashed = hashed};
    const struct gram_string *string = &m->g->rules.strings[c.node];
    bool digit = (byte >= '0' && byte <= '9') || byte == '-';
    switch (branch->kind) {
    case GRAM_BRANCH_STRING:
        c.s2 = hashed ? GRAM_HASH_SEED : 0;
        c.kind = string->dfa ? GRAM_IN_DFA : GRAM_IN_STRING;
        if (string->dfa) c.s1 = string->dfa->start;
        if (byte == '"') gram_emit(m, &c);
        break;
    case GRAM_BRANCH_NUMBER:
        c.kind = GRAM_IN_NUMBER;
        c.s2 = hashed && !m->g->rules.numbers[c.node].exact ? GRAM_HASH_SEED : 0;
        struct gram_num_state start = {.phase = 0};
        uint64_t bits[2] = {0, 0};
        gram_number_pack(&m->g->rules.numbers[c.node], &start, &c.d, bits);
        c.s1 = bits[0];
        if (digit) step_number(m, &c, byte);
        break;
    case GRAM_BRANCH_OBJECT:
        if (byte == '{') begin_container(m, true, &c);
        break;
    case GRAM_BRANCH_ARRAY:
        if (byte == '[') begin_container(m, false, &c);
        break;
    default:
        c.kind = GRAM_IN_LITERAL;
        step_literal(m, &c, byte);
        break;
    }
}

void gram_step_leaf(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    switch (c->kind) {
    case GRAM_IN_LITERAL: step_literal(m, c, byte); break;
    case GRAM_IN_STRING: step_string(m, c, byte); break;
    case GRAM_IN_DFA: step_dfa(m, c, byte); break;
    case GRAM_IN_NUMBER: step_number(m, c, byte); break;
    case GRAM_IN_LEAF: step_expression(m, c, byte); break;
    default: step_words(m, c, byte); break;
    }
}

/* ---- bytes --------------------------------------------------------------------------------- */

static void add_byte(uint64_t bytes[4], uint8_t byte)
{
    bytes[byte / 64] |= (uint64_t)1 << byte % 64;
}

static void add_text(uint64_t bytes[4], const char *text)
{
    for (; *text; text++)
        add_byte(bytes, (uint8_t)*text);
}

static void add_edges(const struct gram_trie *t, uint32_t node, uint64_t bytes[4])
{
    const struct gram_trie_node *n = &t->nodes[node];
    for (uint32_t e = n->edges; e < n->edges + n->n_edges; e++)
        add_byte(bytes, t->bytes[e]);
}

/* Bytes that any value can begin with. */
#define VALUE_BEGINNINGS "\"{[-0123456789tfn"

/* Bytes that may begin or end something at a place between the tokens of JSON. */
static void add_tokens(const struct gram *g, const struct gram_config *c, uint64_t bytes[4])
{
    switch (c->kind) {
    case GRAM_AT_VALUE:
        bytes[0] |= g->rules.values[c->node].first[0];
        bytes[1] |= g->rules.values[c->node].first[1];
        break;
    case GRAM_AT_OBJECT: add_text(bytes, "\"}"); break;
    case GRAM_AT_KEY: add_byte(bytes, '"'); break;
    case GRAM_AT_COLON: add_byte(bytes, ':'); break;
    case GRAM_AT_ARRAY: add_text(bytes, VALUE_BEGINNINGS "]"); break;
    default: add_text(bytes, ",}]"); break;
    }
}

static void add_between(const struct gram_machine *m, const struct gram_config *c,
                        uint64_t bytes[4])
{
    uint64_t tokens[4] = {0};
    add_tokens(m->g, c, tokens);
    if (!m->g->spaces.styled) {
        for (const char *p = " \n\t\r"; *p; p++)
            if (gram_space_step(m->g, c->d, (uint8_t)*p) != GRAM_NO_SPACE)
                add_byte(tokens, (uint8_t)*p);
    } else if (c->stack) {
        add_text(tokens, " \n\t");
        for (uint32_t byte = 0; byte < 128 && !gram_is_union(m->cells, c->stack); byte++) {
            struct gram_frame f = *gram_frame_at(m->cells, c->stack);
            uint16_t d = c->d;
            if (tokens[byte / 64] >> byte % 64 & 1 &&
                gram_style_step(m, c->kind, &f, &d, (uint8_t)byte) == GRAM_STYLE_REFUSED)
                tokens[byte / 64] &= ~((uint64_t)1 << byte % 64);
        }
    }
    bytes[0] |= tokens[0];
    bytes[1] |= tokens[1];
}

/* Bytes that an automaton may take, all outside ASCII among them. */
static void add_automaton(const struct gram_dfa *d, const struct gram_config *c, uint64_t bytes[4])
{
    const uint64_t *live = d->live + (size_t)(uint32_t)c->s1 * d->decoder.n_words;
    bytes[2] = bytes[3] = UINT64_MAX;
    if (c->d && c->d < GRAM_DEC_UTF8) bytes[0] = bytes[1] = UINT64_MAX;
    for (uint32_t byte = 0; byte < 128 && !c->d; byte++) {
        uint32_t to = d->decoder.root[byte];
        bool class = (to & GRAM_DEC_CLASS) && to < GRAM_DEC_QUOTE;
        if (to == GRAM_DEC_DEAD || (class && !(live[(to & 0xFF) / 64] >> (to & 63) & 1))) continue;
        add_byte(bytes, (uint8_t)byte);
    }
}

void gram_config_bytes(const struct gram_machine *m, const struct gram_config *c, uint64_t bytes[4])
{
    const struct gram *g = m->g;
    switch (c->kind) {
    case GRAM_AT_END: break;
    case GRAM_IN_LITERAL: add_edges(&g->rules.tries[c->node], (uint32_t)c->s1, bytes); break;
    case GRAM_IN_WORDS: add_edges(g->rules.nodes[c->node].trie, (uint32_t)c->s1, bytes); break;
    case GRAM_IN_LEAF: add_automaton(g->rules.nodes[c->node].dfa, c, bytes); break;
    case GRAM_IN_DFA: add_automaton(g->rules.strings[c->node].dfa, c, bytes); break;
    case GRAM_IN_NUMBER: add_text(bytes, "0123456789.eE+-"); break;
    case GRAM_IN_KEY:
        add_byte(bytes, '"');
        if ((uint32_t)c->s1 == UINT32_MAX)
            add_edges(&g->rules.objects[c->node].trie, (uint32_t)(c->s1 >> 32), bytes);
        else
            memset(bytes, 0xFF, 4 * sizeof(*bytes));
        break;
    default:
        if (c->kind <= GRAM_AT_NEXT)
            add_between(m, c, bytes);
        else
            memset(bytes, 0xFF, 4 * sizeof(*bytes));
        break;
    }
}

bool gram_bytes_alike(const struct gram *g, const struct gram_config *c, uint8_t x, uint8_t y)
{
    const struct gram_node *n = g->rules.nodes;
    if (c->kind == GRAM_AT_END) return true;
    if (c->kind == GRAM_IN_LEAF) {
        const struct gram_decoder *d = &n[c->node].dfa->decoder;
        return gram_decoder_step(d, c->d, x) == gram_decoder_step(d, c->d, y);
    }
    if (c->kind != GRAM_IN_WORDS) return false;
    const struct gram_trie *t = n[c->node].trie;
    return gram_trie_step(t, (uint32_t)c->s1, x) == gram_trie_step(t, (uint32_t)c->s1, y);
}
