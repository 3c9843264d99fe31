/* SPDX-License-Identifier: MIT */
/* Sets of configurations, punctuation, arrays, and expression nodes; see machine.h. */
#include "tokenizer/grammar/machine.h"

#include <assert.h>
#include <string.h>

#include "tokenizer/grammar/compiled.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/grammar/lexer.h"
#include "tokenizer/grammar/style.h"

void gram_set_init(struct gram_set *s, struct gram_config *storage, uint32_t cap)
{
    *s = (struct gram_set){.c = storage, .cap = cap};
}

void gram_machine_init(struct gram_machine *m, const struct gram *g, struct gram_cells *cells)
{
    m->g = g;
    m->cells = cells;
    m->offset = 0;
    m->n_sets = m->indexed = 0;
    m->work = 0;
    gram_machine_pace(m, NULL);
}

void gram_machine_pace(struct gram_machine *m, struct gram_pace *pace)
{
    m->pace = pace;
    m->gave_up = false;
    m->rest_at = pace ? m->work + (uint64_t)pace->left : UINT64_MAX;
}

void gram_machine_rest(struct gram_machine *m)
{
    m->gave_up |= !m->pace->more(m->pace);
    m->rest_at = m->gave_up ? UINT64_MAX : m->work + (uint64_t)m->pace->left;
}

void gram_machine_lend(struct gram_machine *m, struct gram_visits *visits)
{
    memset(visits->set, 0, sizeof(visits->set));
    visits->current = 0;
    m->visits = visits;
}

void gram_machine_open(struct gram_machine *m, struct gram_set *out)
{
    out->n = out->stacks = 0;
    out->overflow = out->full = false;
    m->out = out;
    m->n_sets++;
    m->closure_top = m->cells->top;
    m->visits->current++;
    m->visits->n = 0;
    m->limit = m->work + GRAM_STEP_WORK;
    gram_look_at_pace(m);
}

/* ---- emitting ------------------------------------------------------------------------------ */

enum { FEW_PLACES = 12 }; /* that are as quickly looked through */

/* Adds the stacks of c to those of an equal configuration, one by one. */
static void join(struct gram_machine *m, struct gram_config *into, uint32_t stack)
{
    uint32_t frame;
    while (gram_next_frame(m->cells, &stack, &frame)) {
        uint32_t before = gram_stack_size(m->cells, into->stack);
        m->work += 1 + before / 16; /* all of them are looked through */
        uint32_t joined = gram_union_add(m->cells, frame, into->stack);
        if (!joined) continue; /* no room: cells.full says so */
        uint32_t more = gram_stack_size(m->cells, joined) - before;
        if (m->out->stacks + more > GRAM_MAX_CONFIGS) {
            m->out->overflow = true;
            return;
        }
        m->out->stacks += more;
        into->stack = joined;
    }
}

/* Merges c into a configuration that differs in stack and events alone; false: it is another. */
static bool absorb(struct gram_machine *m, struct gram_config *into, const struct gram_config *c)
{
    if (into->kind != c->kind || into->node != c->node || into->s1 != c->s1 || into->s2 != c->s2 ||
        into->d != c->d || into->hashed != c->hashed)
        return false;
    if (into->stack == c->stack) return true;
    if (!into->stack || !c->stack || into->events != c->events) return false;
    join(m, into, c->stack);
    return true;
}

/* A hash table of the set's places: number + 1, or 0. Nothing is collected while a set grows. */
static uint16_t *table_of(struct gram_machine *m)
{
    return m->cells->moved;
}

static uint32_t place_hash(const struct gram_config *c)
{
    uint64_t h = (c->s1 ^ (uint64_t)c->node << 20 ^ (uint64_t)c->kind << 56) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 29 ^ c->s2 ^ c->d) * 0xBF58476D1CE4E5B9u;
    return (uint32_t)(h >> 40) % GRAM_PLACES;
}

/* Enters all configurations of the set, older ones first on every way. */
static void index_set(struct gram_machine *m)
{
    uint16_t *places = table_of(m);
    memset(places, 0, GRAM_PLACES * sizeof(*places));
    for (uint32_t i = 0; i < m->out->n; i++) {
        uint32_t slot = place_hash(&m->out->c[i]);
        while (places[slot])
            slot = (slot + 1) % GRAM_PLACES;
        places[slot] = (uint16_t)(i + 1);
    }
    m->indexed = m->n_sets;
}

/* An older configuration does for c; else *slot is where c goes in the table, if it is in use. */
static bool is_absorbed(struct gram_machine *m, const struct gram_config *c, uint32_t *slot)
{
    struct gram_set *out = m->out;
    if (out->n < FEW_PLACES) {
        for (uint32_t i = 0; i < out->n; i++)
            if (absorb(m, &out->c[i], c)) return true;
        return false;
    }
    if (m->indexed != m->n_sets) index_set(m);
    for (*slot = place_hash(c); table_of(m)[*slot]; *slot = (*slot + 1) % GRAM_PLACES)
        if (absorb(m, &out->c[table_of(m)[*slot] - 1], c)) return true;
    return false;
}

void gram_emit(struct gram_machine *m, const struct gram_config *c)
{
    struct gram_set *out = m->out;
    uint32_t slot = 0;
    if (is_absorbed(m, c, &slot)) return;
    uint32_t size = gram_stack_size(m->cells, c->stack);
    if (out->stacks + size > GRAM_MAX_CONFIGS) {
        out->overflow = true;
        return;
    }
    if (out->n == out->cap) {
        out->full = true;
        return;
    }
    if (m->indexed == m->n_sets) table_of(m)[slot] = (uint16_t)(out->n + 1);
    out->stacks += size;
    out->c[out->n++] = *c;
}

/* ---- frames -------------------------------------------------------------------------------- */

/* Of a union the largest values count, so that every member has room. */
static struct gram_frame measure(const struct gram_machine *m, uint32_t stack)
{
    struct gram_frame most = {0};
    uint32_t frame, rest = stack;
    while (stack && gram_next_frame(m->cells, &rest, &frame)) {
        const struct gram_frame *f = gram_frame_at(m->cells, frame);
        if (f->depth > most.depth) most.depth = f->depth;
        if (f->containers > most.containers) most.containers = f->containers;
        if (f->weight > most.weight) most.weight = f->weight;
    }
    if (gram_is_union(m->cells, stack))
        most.weight = (uint16_t)(most.weight + gram_stack_size(m->cells, stack));
    return most;
}

/* The stack has room for so many frames more. */
static bool has_room(const struct gram_machine *m, uint32_t stack, uint32_t frames)
{
    struct gram_frame top = measure(m, stack);
    return top.depth + frames <= GRAM_MAX_FRAMES && top.weight + 2 * frames <= GRAM_LIVE_CELLS;
}

bool gram_fits(const struct gram_machine *m, uint32_t stack, uint32_t height, uint32_t cells)
{
    struct gram_frame top = measure(m, stack);
    return top.containers + height <= GRAM_MAX_CONTAINERS &&
           top.depth + height <= GRAM_MAX_FRAMES && top.weight + cells <= GRAM_LIVE_CELLS;
}

uint32_t gram_push(struct gram_machine *m, uint32_t stack, const struct gram_frame *frame)
{
    struct gram_frame f = *frame, below = measure(m, stack);
    f.parent = stack;
    f.depth = (uint16_t)(below.depth + 1);
    f.containers = (uint8_t)(below.containers + (f.kind <= GRAM_FRAME_ARRAY));
    f.weight = (uint16_t)(below.weight + 2);
    return gram_frame_add(m->cells, &f);
}

uint32_t gram_replace(struct gram_machine *m, const struct gram_frame *like, uint32_t pos,
                      uint32_t count, uint32_t list)
{
    assert(like->weight >= gram_key_count(m->cells, like->list));
    struct gram_frame f = *like;
    f.weight =
        (uint16_t)(f.weight - gram_key_count(m->cells, f.list) + gram_key_count(m->cells, list));
    f.pos = pos;
    f.count = count;
    f.list = list;
    return gram_frame_add(m->cells, &f);
}

/* ---- expression nodes ---------------------------------------------------------------------- */

enum { LEFT = UINT32_MAX }; /* in place of a node: a frame was left */

/* Done before while this set grows. If too much was, the rest is dropped. */
static bool seen(struct gram_machine *m, uint32_t node, uint32_t stack, uint32_t events)
{
    struct gram_visits *v = m->visits;
    uint64_t key = (uint64_t)node << 32 | stack << 16 | events;
    uint32_t i = (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 40) % GRAM_VISITED;
    gram_look_at_pace(m);
    for (; v->set[i] == v->current; i = (i + 1) % GRAM_VISITED)
        if (v->key[i] == key) return true;
    if (v->n == GRAM_VISITED / 4 * 3 || m->work > m->limit) {
        m->out->overflow = true;
        return true;
    }
    v->key[i] = key;
    v->set[i] = v->current;
    v->n++;
    return false;
}

uint32_t gram_event(struct gram_machine *m, uint32_t number, bool begin, uint32_t events)
{
    return gram_event_add(m->cells, number * 2 + begin, m->offset, events);
}

static void emit_leaf(struct gram_machine *m, uint32_t node, uint32_t stack, uint32_t events)
{
    const struct gram_node *n = &m->g->rules.nodes[node];
    struct gram_config c = {.node = node, .stack = stack, .events = events};
    if (n->kind == GRAM_NODE_VALUE) {
        c.kind = GRAM_AT_VALUE;
        c.node = n->ref;
        c.d = m->g->spaces.n; /* no white space before the answer; see gram_space_step */
        const struct gram_value *v = &m->g->rules.values[n->ref];
        if (!gram_fits(m, stack, v->need.height, v->need.cells)) return;
    } else if (n->kind == GRAM_NODE_LITERALS) {
        c.kind = GRAM_IN_WORDS;
        if (n->ref) c.events = gram_event(m, n->ref, true, events);
        if (n->nullable) gram_leave(m, stack, events);
        if (n->trie->nodes[0].n_edges == 0) return;
    } else {
        c.kind = GRAM_IN_LEAF;
        c.s1 = n->dfa->start;
        if (n->nullable) gram_leave(m, stack, events);
        if (!gram_dfa_extends(n->dfa, n->dfa->start, 0, 0)) return;
    }
    gram_emit(m, &c);
}

/* Another round of a repetition whose frame counts those that were begun. */
static void enter_round(struct gram_machine *m, uint32_t node, uint32_t parent, uint32_t count,
                        uint32_t events)
{
    const struct gram_node *n = &m->g->rules.nodes[node];
    bool forever = n->max == GRAM_INFINITE && count >= n->min;
    struct gram_frame f = {.kind = GRAM_FRAME_REP, .node = node, .count = count + !forever};
    if (count >= n->max) return;
    if (count + 1 == n->max) { /* no other follows, so nothing has to be counted */
        gram_enter(m, n->kids[0], parent, events);
        return;
    }
    if (!has_room(m, parent, m->g->rules.nodes[n->kids[0]].need.height + 1u)) return;
    uint32_t frame = gram_push(m, parent, &f);
    if (frame) gram_enter(m, n->kids[0], frame, events);
}

/* The kid at `pos` of a sequence; the last one needs no frame. */
static void enter_kid(struct gram_machine *m, uint32_t node, uint32_t pos, uint32_t stack,
                      uint32_t events)
{
    const struct gram_node *n = &m->g->rules.nodes[node];
    struct gram_frame f = {.kind = GRAM_FRAME_SEQ, .node = node, .pos = pos + 1};
    assert(pos < n->n);
    if (pos + 1 < n->n) stack = gram_push(m, stack, &f);
    if (stack || pos + 1 == n->n) gram_enter(m, n->kids[pos], stack, events);
}

void gram_enter(struct gram_machine *m, uint32_t node, uint32_t stack, uint32_t events)
{
    const struct gram_node *n = &m->g->rules.nodes[node];
    if (n->need.height == GRAM_NEVER || !has_room(m, stack, n->need.height)) return;
    m->work++;
    bool branches = n->kind == GRAM_NODE_ALT || n->kind == GRAM_NODE_REP;
    if ((branches || n->nullable) && seen(m, node, stack, events)) return;
    switch (n->kind) {
    case GRAM_NODE_EMPTY: gram_leave(m, stack, events); break;
    case GRAM_NODE_SEQ: enter_kid(m, node, 0, stack, events); break;
    case GRAM_NODE_ALT:
        for (uint32_t i = 0; i < n->n; i++)
            gram_enter(m, n->kids[i], stack, events);
        break;
    case GRAM_NODE_REP:
        if (n->min == 0 || n->nullable) gram_leave(m, stack, events);
        enter_round(m, node, stack, 0, events);
        break;
    case GRAM_NODE_CAPTURE: {
        struct gram_frame f = {.kind = GRAM_FRAME_CAPTURE, .node = node};
        stack = gram_push(m, stack, &f);
        if (stack) gram_enter(m, n->kids[0], stack, gram_event(m, n->ref, true, events));
        break;
    }
    default: emit_leaf(m, node, stack, events); break;
    }
}

/* A round of a repetition is over. One that was empty is not followed by another. */
static void leave_round(struct gram_machine *m, uint32_t frame, uint32_t events)
{
    const struct gram_frame f = *gram_frame_at(m->cells, frame);
    const struct gram_node *n = &m->g->rules.nodes[f.node];
    bool nullable = m->g->rules.nodes[n->kids[0]].nullable;
    assert(f.kind == GRAM_FRAME_REP && n->kind == GRAM_NODE_REP);
    if (nullable && frame >= m->closure_top) return;
    if (f.count >= n->min || nullable) gram_leave(m, f.parent, events);
    enter_round(m, f.node, f.parent, f.count, events);
}

static void leave_frame(struct gram_machine *m, uint32_t frame, uint32_t events)
{
    const struct gram_frame f = *gram_frame_at(m->cells, frame);
    struct gram_config c = {.stack = frame, .events = events};
    m->work++;
    if (seen(m, LEFT, frame, events)) return;
    switch (f.kind) {
    case GRAM_FRAME_OBJECT:
    case GRAM_FRAME_ARRAY:
        c.kind = GRAM_AT_NEXT;
        gram_emit(m, &c);
        break;
    case GRAM_FRAME_SEQ: enter_kid(m, f.node, f.pos, f.parent, events); break;
    case GRAM_FRAME_REP: leave_round(m, frame, events); break;
    default:
        events = gram_event(m, m->g->rules.nodes[f.node].ref, false, events);
        gram_leave(m, f.parent, events);
        break;
    }
}

void gram_leave(struct gram_machine *m, uint32_t stack, uint32_t events)
{
    uint32_t frame;
    if (!stack) {
        gram_emit(m, &(struct gram_config){.kind = GRAM_AT_END, .events = events});
        return;
    }
    while (gram_next_frame(m->cells, &stack, &frame))
        leave_frame(m, frame, events);
}

void gram_leave_item(struct gram_machine *m, const struct gram_config *c, uint64_t hash,
                     bool last_chance)
{
    uint32_t stack = c->stack, frame;
    if (!c->hashed) {
        gram_leave(m, stack, c->events);
        return;
    }
    hash = gram_hash_end(hash);
    while (gram_next_frame(m->cells, &stack, &frame)) {
        const struct gram_frame f = *gram_frame_at(m->cells, frame);
        bool unique = f.kind == GRAM_FRAME_ARRAY && m->g->rules.arrays[f.node].unique;
        bool known = unique && gram_key_known(m->cells, f.list, hash);
        if (known && !last_chance) continue;
        if (unique && !known) {
            uint32_t list = gram_key_add(m->cells, hash, f.list);
            frame = list ? gram_replace(m, &f, f.pos, f.count, list) : 0;
        }
        if (frame) leave_frame(m, frame, c->events);
    }
}

/* ---- white space --------------------------------------------------------------------------- */
uint16_t gram_space_step(const struct gram *g, uint16_t state, uint8_t byte)
{
    const struct gram_dfa *d = g->spaces.dfa;
    if (state >= g->spaces.n || d->decoder.root[byte] == GRAM_DEC_DEAD) return GRAM_NO_SPACE;
    return (uint16_t)gram_dfa_next(d, state, d->decoder.root[byte] & 0xFF);
}

/* ---- values -------------------------------------------------------------------------------- */

/* Some array on top of the stack wants its items to be unique. */
static bool wants_hash(const struct gram_machine *m, uint32_t stack)
{
    uint32_t frame;
    while (stack && gram_next_frame(m->cells, &stack, &frame)) {
        const struct gram_frame *f = gram_frame_at(m->cells, frame);
        if (f->kind == GRAM_FRAME_ARRAY && m->g->rules.arrays[f->node].unique) return true;
    }
    return false;
}

static void begin_value(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    const struct gram_value *v = &m->g->rules.values[c->node];
    if (byte >= 128 || !(v->first[byte / 64] >> byte % 64 & 1)) return;
    bool hashed = wants_hash(m, c->stack);
    for (uint32_t i = 0; i < v->n_branches; i++)
        gram_begin_branch(m, &v->branches[i], c, hashed, byte);
}

/* ---- arrays -------------------------------------------------------------------------------- */

static uint32_t item_value(const struct gram_array *a, uint32_t i)
{
    return i < a->n_prefix ? a->prefix[i] : a->rest;
}

/* One more item may begin in an array of which `count` items were begun. */
static bool has_item(const struct gram_machine *m, uint32_t frame)
{
    const struct gram_frame *f = gram_frame_at(m->cells, frame);
    const struct gram_array *a = &m->g->rules.arrays[f->node];
    uint32_t value = f->count < a->max ? item_value(a, f->count) : GRAM_NONE;
    if (value == GRAM_NONE) return false;
    const struct gram_value *v = &m->g->rules.values[value];
    if (a->unique && gram_key_count(m->cells, f->list) >= GRAM_MAX_REMEMBERED) return false;
    return gram_fits(m, frame, v->need.height, v->need.cells + a->unique);
}

/* The array's frame with one more item begun, and that item's place. */
static void begin_item(struct gram_machine *m, const struct gram_config *c, uint32_t frame,
                       struct gram_config *ret)
{
    const struct gram_frame f = *gram_frame_at(m->cells, frame);
    const struct gram_array *a = &m->g->rules.arrays[f.node];
    uint32_t count = f.count + 1;
    assert(f.kind == GRAM_FRAME_ARRAY && f.count < a->max);
    /* Once the items are alike, more of them need not be counted. */
    if (count > a->n_prefix && count > a->min && a->max == GRAM_INFINITE)
        count = (a->min > a->n_prefix ? a->min : a->n_prefix) + 1;
    *ret = (struct gram_config){.kind = GRAM_AT_VALUE, .events = c->events};
    ret->node = item_value(a, f.count);
    ret->stack = gram_replace(m, &f, 0, count, f.list);
}

static bool can_close(const struct gram_machine *m, uint32_t frame)
{
    const struct gram_frame *f = gram_frame_at(m->cells, frame);
    if (f->kind == GRAM_FRAME_OBJECT) return gram_object_can_close(m, frame);
    return f->count >= m->g->rules.arrays[f->node].min;
}

/* Goes on after a container; what it has shown of the style goes to the ones around it. */
static void leave_container(struct gram_machine *m, const struct gram_frame *closed,
                            uint32_t events)
{
    uint32_t stack = closed->parent, style = closed->style, frame;
    if (!m->g->spaces.styled || !stack) {
        gram_leave(m, stack, events);
        return;
    }
    while (gram_next_frame(m->cells, &stack, &frame)) {
        frame = gram_style_return(m, frame, style);
        if (frame) leave_frame(m, frame, events);
    }
}

static void close(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    uint32_t stack = c->stack, frame;
    uint8_t kind = byte == '}' ? GRAM_FRAME_OBJECT : GRAM_FRAME_ARRAY;
    while (gram_next_frame(m->cells, &stack, &frame)) {
        const struct gram_frame *f = gram_frame_at(m->cells, frame);
        if (f->kind == kind && can_close(m, frame)) leave_container(m, f, c->events);
    }
}

/* After '[': an item or the end. */
static void step_array(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    uint32_t stack = c->stack, frame;
    struct gram_config item;
    if (byte == ']') {
        close(m, c, byte);
        return;
    }
    while (gram_next_frame(m->cells, &stack, &frame)) {
        if (!has_item(m, frame)) continue;
        begin_item(m, c, frame, &item);
        if (item.stack) begin_value(m, &item, byte);
    }
}

/* After a value in a container: a comma or the end. */
static void step_next(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    uint32_t stack = c->stack, frame;
    if (byte == '}' || byte == ']') close(m, c, byte);
    if (byte != ',') return;
    while (gram_next_frame(m->cells, &stack, &frame)) {
        struct gram_config next = {.kind = GRAM_AT_KEY, .stack = frame, .events = c->events};
        if (gram_frame_at(m->cells, frame)->kind == GRAM_FRAME_OBJECT) {
            if (gram_object_has_key(m, frame)) gram_emit(m, &next);
        } else if (has_item(m, frame)) {
            begin_item(m, c, frame, &next);
            if (next.stack) gram_emit(m, &next);
        }
    }
}

/* ---- one byte ------------------------------------------------------------------------------ */

/* White space at a place where it may be; true if the byte was some. */
static bool step_space(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    uint16_t next = gram_space_step(m->g, c->d, byte);
    if (next == GRAM_NO_SPACE) return false;
    struct gram_config moved = *c;
    moved.d = next;
    gram_emit(m, &moved);
    return true;
}

/* The rules that begin or end after white space. */
static void step_token(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    switch (c->kind) {
    case GRAM_AT_VALUE: begin_value(m, c, byte); break;
    case GRAM_AT_OBJECT:
        if (byte == '}')
            close(m, c, byte);
        else
            gram_step_object(m, c, byte);
        break;
    case GRAM_AT_KEY: gram_step_object(m, c, byte); break;
    case GRAM_AT_COLON: {
        struct gram_config value = *c;
        value.kind = GRAM_AT_VALUE;
        value.d = 0;
        if (byte == ':') gram_emit(m, &value);
        break;
    }
    case GRAM_AT_ARRAY: step_array(m, c, byte); break;
    default: step_next(m, c, byte); break;
    }
}

/* Where white space begins in a container, what must come after it can. */
static bool goes_on(const struct gram_machine *m, enum gram_config_kind kind, uint32_t frame)
{
    return kind == GRAM_AT_NEXT     ? can_close(m, frame)
           : kind == GRAM_AT_OBJECT ? gram_object_has_key(m, frame)
           : kind == GRAM_AT_ARRAY  ? has_item(m, frame)
                                    : true;
}

/* A byte at a place in containers, by the style that each has. */
static void step_styled(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    uint32_t stack = c->stack, frame;
    if (!stack || gram_style_is_shown(m, c, byte)) {
        step_token(m, c, byte);
        return;
    }
    while (gram_next_frame(m->cells, &stack, &frame)) {
        struct gram_frame f = *gram_frame_at(m->cells, frame);
        struct gram_config one = *c;
        enum gram_style_step step = gram_style_step(m, c->kind, &f, &one.d, byte);
        if (step == GRAM_STYLE_REFUSED) continue;
        if (step == GRAM_STYLE_SPACE && !goes_on(m, c->kind, frame)) continue;
        one.stack = gram_frame_add(m->cells, &f);
        if (!one.stack) continue;
        if (step == GRAM_STYLE_SPACE)
            gram_emit(m, &one);
        else
            step_token(m, &one, byte);
    }
}

void gram_step(struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    m->work++;
    switch (c->kind) {
    case GRAM_AT_END: break;
    case GRAM_IN_KEY: gram_step_key(m, c, byte); break;
    case GRAM_IN_FREE_KEY: gram_step_free_key(m, c, byte); break;
    default:
        if (c->kind > GRAM_AT_NEXT)
            gram_step_leaf(m, c, byte);
        else if (m->g->spaces.styled)
            step_styled(m, c, byte);
        else if (!step_space(m, c, byte) &&
                 (c->d >= m->g->spaces.n || m->g->spaces.dfa->outcome[c->d]))
            step_token(m, c, byte);
        break;
    }
}
