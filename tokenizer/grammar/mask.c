/* SPDX-License-Identifier: MIT */
/*
 * Masks: which tokens a set of configurations allows.
 *
 * In general the trie of the vocabulary is walked: a node's set is what its byte makes of the set
 * above it, and a subtree whose set is empty is skipped. Sets and cells are kept like a stack, by
 * depth. Inside strings nearly all tokens are allowed, and a walk would see all of them; there the
 * tokens that stay inside come from a bitset of the vocabulary or of the automaton's state, and
 * only the few that close the string ("exits") are looked at one by one, with a walk over what they
 * have after the quote.
 */
#include <assert.h>
#include <string.h>

#include "tokenizer/grammar/compiled.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/grammar/state.h"
#include "tokenizer/grammar/vocab.h"

enum { FEW_NODES = 6, MANY_NODES = 32, FEW_STACKS = 16 };

/*
 * Arrays on the stack that are written before they are read, and too large to be zeroed for that.
 */
#if __has_attribute(uninitialized)
#define SCRATCH __attribute__((uninitialized))
#else
#define SCRATCH
#endif

/* A set, and the cells that go with it. */
struct level {
    const struct gram_config *c;
    uint16_t n, stacks, top;
    uint16_t end;      /* of the pool that this level and those above it use */
    uint16_t number;   /* of an equal set that is kept; 0: none */
    bool known;        /* bytes: */
    uint64_t bytes[4]; /* those that the set may take */
};

enum {
    KEPT_SETS = 250,
    KEPT_CONFIGS = 8192,
    FEW_BYTES = 8,
    LEADS_NOWHERE = 255, /* in place of a number */
    KEEP_FROM_WORK = 1000,
};

/*
 * Sets of a walk that are kept until its end, and what bytes make of them. Nearly all tokens lead
 * from one of a few sets to another, so that most nodes are looked up in a table. Most masks are
 * done before that pays, so it begins after some steps of the machine. Without room for more, sets
 * are kept like a stack.
 */
struct kept {
    uint32_t n;   /* sets; the first is not used */
    uint32_t end; /* of the configurations */
    uint32_t top; /* cells that they refer to lie below it */
    struct kept_set {
        uint16_t begin, n, stacks;
        bool known;
        uint8_t n_tried, tried[FEW_BYTES]; /* the first bytes whose `next` the machine found */
        uint64_t bytes[4];
        uint64_t hash;
        uint8_t next[256]; /* number; 0: not known yet */
    } set[KEPT_SETS];
    struct gram_config c[KEPT_CONFIGS];
};

struct walk {
    struct gram_state *s;
    const struct gram_vocab *v;
    uint64_t *bits;
    uint64_t keep_from, limit; /* of the machine's work: sets are kept; the walk is given up */
    uint32_t longest;          /* bytes of the tokens that are looked at */
    bool overflow;    /* alternatives were dropped somewhere, or would be in one walk for all */
    uint32_t peak;    /* the most stacks that a set of this walk had */
    struct level *at; /* [GRAM_MAX_TOKEN_BYTES + 2], by depth below the root of the walk */
    struct kept *kept;
};

/* The pool's last sets are for tokens that are tried one by one. */
enum { WALK_POOL = GRAM_POOL - 2 * GRAM_MAX_CONFIGS };

/* The cache is the one part of a grammar that answers change. */
static struct gram_cache *cache_of(const struct walk *w)
{
    return (struct gram_cache *)&w->s->g->cache;
}

/* The walk has taken more steps than a mask may take, or is given up for now. */
static bool is_spent(const struct walk *w)
{
    return w->s->m.gave_up || w->s->m.work > w->limit;
}

/* Nodes of the vocabulary that take as long as one step of the machine. */
enum { NODES_PER_STEP = 8 };

static void count_nodes(struct walk *w, size_t n)
{
    gram_other_work(&w->s->m, n / NODES_PER_STEP);
}

static struct gram_set set_at(const struct walk *w, uint32_t depth)
{
    assert(depth <= GRAM_MAX_TOKEN_BYTES + 1);
    return (struct gram_set){.c = (struct gram_config *)w->at[depth].c, /* it is only read */
                             .n = w->at[depth].n,
                             .cap = w->at[depth].n,
                             .stacks = w->at[depth].stacks};
}

static bool has_byte(const uint64_t bytes[4], uint8_t byte)
{
    return bytes[byte / 64] >> byte % 64 & 1;
}

/* Finds the bytes that the set at a depth may take. */
static void find_bytes(struct walk *w, uint32_t depth)
{
    const struct gram_config *c = w->at[depth].c;
    memset(w->at[depth].bytes, 0, sizeof(w->at[depth].bytes));
    for (uint32_t i = 0; i < w->at[depth].n; i++)
        gram_config_bytes(&w->s->m, &c[i], w->at[depth].bytes);
    w->at[depth].known = true;
    if (!w->at[depth].number) return;
    struct kept_set *kept = &w->kept->set[w->at[depth].number];
    memcpy(kept->bytes, w->at[depth].bytes, sizeof(kept->bytes));
    kept->known = true;
}

/* The set at the beginning of the pool is at depth 0. */
static void plant_pool(struct walk *w, uint32_t n, uint32_t stacks)
{
    assert(n <= GRAM_POOL);
    w->at[0] = (struct level){.c = w->s->pool, .n = (uint16_t)n, .stacks = (uint16_t)stacks};
    w->at[0].top = (uint16_t)w->s->cells.top;
    w->at[0].end = (uint16_t)n;
    w->kept->n = 0;
}

/* Puts a set at depth 0, as copies. */
static void plant(struct walk *w, const struct gram_config *c, uint32_t n)
{
    memmove(w->s->pool, c, n * sizeof(*c));
    plant_pool(w, n, 0);
}

/* ---- sets that are kept -------------------------------------------------------------------- */

/* Drops the newest cells that no kept set refers to. */
static void pop_cells(struct walk *w, uint32_t top)
{
    if (w->kept->n && top < w->kept->top) top = w->kept->top;
    gram_cells_pop(&w->s->cells, top);
}

static uint64_t set_hash(const struct gram_config *c, uint32_t n)
{
    uint64_t h = n, words[sizeof(*c) / 8];
    for (uint32_t i = 0; i < n; i++) {
        memcpy(words, &c[i], sizeof(words));
        for (size_t k = 0; k < sizeof(words) / 8; k++)
            h = (h ^ words[k]) * 0x9E3779B97F4A7C15u, h ^= h >> 32;
    }
    return h;
}

/* The number of a kept set like the one at a depth, or 0. */
static uint32_t find_kept(const struct walk *w, const struct level *l, uint64_t hash)
{
    for (uint32_t i = 1; i < w->kept->n; i++) {
        const struct kept_set *k = &w->kept->set[i];
        if (k->hash == hash && k->n == l->n &&
            memcmp(w->kept->c + k->begin, l->c, l->n * sizeof(*l->c)) == 0)
            return i;
    }
    return 0;
}

/* Half of the cells are left to sets that are kept like a stack. */
static bool has_room(const struct walk *w, const struct level *l)
{
    const struct gram_cells *cells = &w->s->cells;
    return w->kept->n < KEPT_SETS && w->kept->end + l->n <= KEPT_CONFIGS &&
           cells->top <= GRAM_CELLS - GRAM_STEP_CELLS / 2;
}

/* Makes a level one of the sets that are kept. */
static void use_kept(struct walk *w, struct level *l, uint32_t number)
{
    assert(number > 0 && number < w->kept->n);
    const struct kept_set *k = &w->kept->set[number];
    l->c = w->kept->c + k->begin;
    l->n = k->n;
    l->stacks = k->stacks;
    l->number = (uint16_t)number;
    l->top = (uint16_t)w->s->cells.top;
    l->known = k->known;
    if (k->known) memcpy(l->bytes, k->bytes, sizeof(l->bytes));
}

/* Keeps the set of a level, if there is room and no equal one. */
static void keep(struct walk *w, struct level *l)
{
    uint64_t hash = set_hash(l->c, l->n);
    uint32_t number = find_kept(w, l, hash);
    if (!number) {
        if (!has_room(w, l)) return;
        number = w->kept->n++;
        struct kept_set *k = &w->kept->set[number];
        *k = (struct kept_set){.begin = (uint16_t)w->kept->end, .n = l->n, .stacks = l->stacks};
        k->hash = hash;
        memcpy(w->kept->c + k->begin, l->c, l->n * sizeof(*l->c));
        w->kept->end += l->n;
        assert(w->kept->end <= KEPT_CONFIGS);
        w->kept->top = w->s->cells.top;
    }
    use_kept(w, l, number);
}

/* Sets are kept from now on if the mask has taken many steps. */
static void begin_keeping(struct walk *w)
{
    if (w->kept->n || w->longest == 1 || w->s->m.work < w->keep_from) return;
    w->kept->n = 1;
    w->kept->end = 0;
    w->kept->top = w->s->cells.top;
}

/* The set at depth 0 too. */
static void keep_first(struct walk *w)
{
    bool was_kept = w->kept->n > 0;
    begin_keeping(w);
    if (!was_kept && w->kept->n) keep(w, &w->at[0]);
}

/* ---- tokens one by one, where the stack of sets is too small ------------------------------- */

static bool try_token(struct walk *w, uint32_t depth, uint32_t n_before, int32_t id)
{
    struct gram_set two[2], above = set_at(w, depth), *from = &above;
    size_t n;
    const char *text = gram_vocab_text(w->v, id, &n);
    gram_set_init(&two[0], w->s->pool + WALK_POOL, GRAM_MAX_CONFIGS);
    gram_set_init(&two[1], w->s->pool + WALK_POOL + GRAM_MAX_CONFIGS, GRAM_MAX_CONFIGS);
    pop_cells(w, w->at[depth].top);
    for (size_t i = n_before; i < n && from->n > 0; i++) {
        struct gram_set *to = from == &two[0] ? &two[1] : &two[0];
        gram_step_set(&w->s->m, from, to, (uint8_t)text[i]);
        w->overflow |= to->overflow;
        /* A byte by itself is taken if any configuration does, whatever was dropped after it. */
        if (w->s->cells.full && n > 1) return false;
        from = to;
    }
    return from->n > 0;
}

/* Those below a node; n_before of its bytes lead to the set at `depth`. */
static void try_tokens(struct walk *w, uint32_t depth, uint32_t n_before, uint32_t node)
{
    for (uint32_t i = node; i < w->v->nodes[node].skip && !is_spent(w); i++) {
        const struct gram_tok_node *n = &w->v->nodes[i];
        if (n->depth > w->longest || n->id < 0 || !try_token(w, depth, n_before, n->id)) continue;
        gram_set_token(w->v, n, w->bits);
    }
}

/* ---- the walk ------------------------------------------------------------------------------ */

/* The set of a node, at `depth`, from the one above, by the machine. */
static bool step_level(struct walk *w, uint32_t depth, uint8_t byte)
{
    struct gram_set above = set_at(w, depth - 1), to;
    uint32_t begin = w->at[depth - 1].end;
    struct level *l = &w->at[depth];
    gram_set_init(&to, w->s->pool + begin, WALK_POOL - begin);
    gram_step_set(&w->s->m, &above, &to, byte);
    *l = (struct level){.c = to.c, .n = (uint16_t)to.n, .stacks = (uint16_t)to.stacks};
    l->top = (uint16_t)w->s->cells.top;
    l->end = (uint16_t)(begin + to.n);
    w->overflow |= to.overflow;
    if (to.stacks > w->peak) w->peak = to.stacks;
    return !to.full && !w->s->cells.full;
}

static bool are_alike(const struct walk *w, const struct level *l, uint8_t x, uint8_t y)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (!gram_bytes_alike(w->s->g, &l->c[i], x, y)) return false;
    return true;
}

/* Where a byte leads from a kept set, perhaps because another does the same; 0: not known. */
static uint32_t find_next(const struct walk *w, const struct level *above, uint8_t byte)
{
    if (!above->number) return 0;
    struct kept_set *k = &w->kept->set[above->number];
    for (uint32_t i = 0; i < k->n_tried && !k->next[byte]; i++)
        if (are_alike(w, above, byte, k->tried[i])) k->next[byte] = k->next[k->tried[i]];
    return k->next[byte];
}

/* The same, by the table if it is there. False: it could not be held. */
static bool descend(struct walk *w, uint32_t depth, uint8_t byte)
{
    const struct level *above = &w->at[depth - 1];
    struct level *l = &w->at[depth];
    uint32_t next = find_next(w, above, byte);
    if (next) {
        l->end = above->end;
        l->n = 0;
        if (next != LEADS_NOWHERE) use_kept(w, l, next);
        return true;
    }
    if (!step_level(w, depth, byte)) return false;
    begin_keeping(w);
    if (w->kept->n && l->n) keep(w, l);
    if (l->number) l->end = above->end;
    if (!above->number || (l->n && !l->number)) return true;
    struct kept_set *k = &w->kept->set[above->number];
    k->next[byte] = (uint8_t)(l->n ? l->number : LEADS_NOWHERE);
    if (k->n_tried < FEW_BYTES) k->tried[k->n_tried++] = byte;
    return true;
}

static void walk_nodes(struct walk *w, uint32_t first, uint32_t end, uint32_t base);

/* ---- inside strings ------------------------------------------------------------------------ */

/* A set that is one place inside a string of any characters; dialect and those left go to ret. */
struct inside {
    const uint8_t (*next)[256];
    uint8_t state;
    uint64_t left; /* characters that may still begin */
};

static bool is_inside(const struct walk *w, uint32_t depth, struct inside *ret)
{
    const struct gram_config *c = w->at[depth].c;
    const struct gram_rules *r = &w->s->g->rules;
    if (w->at[depth].n != 1) return false;
    *ret = (struct inside){w->v->lexer.next[GRAM_LEX_PLAIN], (uint8_t)c->d, UINT64_MAX};
    if (c->kind == GRAM_IN_FREE_KEY) return true;
    if (c->kind == GRAM_IN_KEY)
        return r->objects[c->node].free_kind == GRAM_FREE_ANY && (uint32_t)c->s1 != UINT32_MAX;
    if (c->kind != GRAM_IN_STRING) return false;
    ret->next = w->v->lexer.next[GRAM_LEX_FREE];
    if (r->strings[c->node].max != GRAM_INFINITE)
        ret->left = r->strings[c->node].max - (uint32_t)c->s1;
    return true;
}

/* The sets of a node and those above it, from depth `from` on; false if one could not be held. */
static bool descend_to(struct walk *w, uint32_t from, uint32_t depth, uint32_t node)
{
    const struct gram_tok_node *n = &w->v->nodes[node];
    const char *text = w->v->text + gram_text_of_node(w->v, node) + n->depth - depth;
    for (uint32_t d = from; d < depth; d++) {
        pop_cells(w, w->at[d].top);
        if (descend(w, d + 1, (uint8_t)text[d])) continue;
        try_tokens(w, d, n->depth - depth + d, node);
        return false;
    }
    return true;
}

/*
 * As walk_nodes, by the table of strings instead of the machine: the sets at depths after `from`
 * are only made where a quote closes the string.
 */
static void walk_string(struct walk *w, uint32_t first, uint32_t end, uint32_t base, uint32_t from,
                        const struct inside *in)
{
    struct {
        uint8_t state;
        uint64_t left;
    } at[GRAM_MAX_TOKEN_BYTES + 2] SCRATCH;
    uint32_t made = from;
    at[from].state = in->state;
    at[from].left = in->left;
    for (uint32_t i = first; i < end && !is_spent(w);) {
        const struct gram_tok_node *node = &w->v->nodes[i];
        uint32_t depth = node->depth - base;
        uint8_t state = at[depth - 1].state, to = in->next[state][node->byte];
        bool begins = state == GRAM_LEX_BODY && to != GRAM_LEX_QUOTE;
        if (made >= depth) made = depth - 1;
        if (to == GRAM_LEX_DEAD || (begins && !at[depth - 1].left)) {
            i = node->skip;
        } else if (to == GRAM_LEX_QUOTE) {
            if (descend_to(w, made, depth, i) && w->at[depth].n) {
                if (node->id >= 0) gram_set_token(w->v, node, w->bits);
                walk_nodes(w, i + 1, node->skip, base);
            }
            made = depth - 1;
            i = node->skip;
        } else {
            at[depth].state = to;
            at[depth].left = at[depth - 1].left - begins;
            if (node->id >= 0) gram_set_token(w->v, node, w->bits);
            i++;
        }
    }
}

/* ---- all nodes ----------------------------------------------------------------------------- */

/* The automaton of a place between characters that no length bounds, or NULL. */
static const struct gram_dfa *free_dfa(const struct walk *w, const struct gram_config *c)
{
    const struct gram_rules *r = &w->s->g->rules;
    const struct gram_dfa *d = NULL;
    if (c->kind == GRAM_IN_LEAF) d = r->nodes[c->node].dfa;
    if (c->kind == GRAM_IN_DFA) d = r->strings[c->node].dfa;
    return d && !d->bounded && !c->d ? d : NULL;
}

/* Some automaton goes on by whatever is below a node. */
static bool is_covered(const struct walk *w, uint32_t depth, const struct gram_tok_node *node)
{
    const struct gram_config *c = w->at[depth].c;
    if (w->at[depth].stacks > FEW_STACKS) return false; /* more might have to be dropped */
    for (uint32_t i = 0; i < w->at[depth].n; i++) {
        const struct gram_dfa *d = free_dfa(w, &c[i]);
        if (d && !(node->below & ~d->safe[(uint32_t)c[i].s1])) return true;
    }
    return false;
}

/* After a node that is allowed: what may come below it, or the next one. */
static uint32_t walk_on(struct walk *w, uint32_t i, uint32_t base)
{
    const struct gram_tok_node *node = &w->v->nodes[i];
    uint32_t depth = node->depth - base;
    struct inside in;
    if (node->id >= 0) gram_set_token(w->v, node, w->bits);
    if (node->depth >= w->longest) return node->skip;
    if (node->skip - i <= FEW_NODES) return i + 1;
    if (is_covered(w, depth, node)) {
        gram_set_tokens(w->v, i + 1, node->skip, w->bits);
        return node->skip;
    }
    if (is_inside(w, depth, &in)) {
        walk_string(w, i + 1, node->skip, base, depth, &in);
        return node->skip;
    }
    if (node->skip - i > MANY_NODES && !w->at[depth].known) find_bytes(w, depth);
    return i + 1;
}

/* All nodes first..end-1, which lie below a node of depth `base` whose set is at depth 0. */
static void walk_nodes(struct walk *w, uint32_t first, uint32_t end, uint32_t base)
{
    if (first == end) return;
    uint32_t top = w->at[w->v->nodes[first].depth - base - 1].top;
    for (uint32_t i = first; i < end && !is_spent(w);) {
        const struct gram_tok_node *node = &w->v->nodes[i];
        uint32_t depth = node->depth - base;
        if (w->at[depth - 1].known && !has_byte(w->at[depth - 1].bytes, node->byte)) {
            i = node->skip;
            continue;
        }
        pop_cells(w, w->at[depth - 1].top);
        bool held = descend(w, depth, node->byte);
        if (!held) try_tokens(w, depth - 1, node->depth - 1u, i);
        i = held && w->at[depth].n ? walk_on(w, i, base) : node->skip;
    }
    pop_cells(w, top);
}

/* Tokens that the set at depth 0 allows below a node. */
static void walk_below(struct walk *w, uint32_t node)
{
    const struct gram_tok_node *n = &w->v->nodes[node];
    if (n->skip - node > MANY_NODES) keep_first(w);
    if (!w->at[0].known && n->skip - node > FEW_NODES) find_bytes(w, 0);
    walk_nodes(w, node + 1, n->skip, n->depth);
}

/* The same for the whole vocabulary. */
static void walk_all(struct walk *w)
{
    keep_first(w);
    find_bytes(w, 0);
    for (uint32_t word = 0; word < 4; word++)
        for (uint64_t left = w->at[0].bytes[word]; left; left &= left - 1) {
            uint32_t byte = word * 64 + (uint32_t)__builtin_ctzll(left), longest = w->longest;
            uint32_t node = w->v->root_child[byte];
            if (byte == 0xFF) w->longest = GRAM_MAX_TOKEN_BYTES;
            if (node) walk_nodes(w, node, w->v->nodes[node].skip, 0);
            w->longest = longest;
        }
}

/* ---- exits --------------------------------------------------------------------------------- */

/* One exit: the set after it is at depth 0; n is 0 if there is none. */
static void take_exit(struct walk *w, const struct gram_exit *e)
{
    const struct gram_tok_node *node = &w->v->nodes[e->node];
    if (!w->at[0].n) return;
    if (node->id >= 0) gram_set_token(w->v, node, w->bits);
    if (node->skip > e->node + 1) walk_below(w, e->node);
}

static void note_planted(struct walk *w, const struct gram_set *to)
{
    w->overflow |= to->overflow || to->full || w->s->cells.full;
    if (to->stacks > w->peak) w->peak = to->stacks;
    plant_pool(w, to->n, to->stacks);
}

/* Makes depth 0 what a quote makes of c. */
static void plant_behind_quote(struct walk *w, const struct gram_config *c)
{
    struct gram_set to, from = {.c = w->s->pool + WALK_POOL, .n = 1, .cap = 1};
    from.c[0] = *c;
    gram_set_init(&to, w->s->pool, GRAM_MAX_CONFIGS);
    gram_step_set(&w->s->m, &from, &to, '"');
    note_planted(w, &to);
}

/* Makes depth 0 what follows the end of a leaf. */
static void plant_behind_leaf(struct walk *w, const struct gram_config *c)
{
    struct gram_machine *m = &w->s->m;
    struct gram_set to;
    gram_set_init(&to, w->s->pool, GRAM_MAX_CONFIGS);
    gram_machine_open(m, &to);
    gram_leave(m, c->stack, c->events);
    gram_settle(&w->s->cells, &to);
    note_planted(w, &to);
}

/* A configuration inside a string, by the bytes of an exit before its quote. */
struct prefix {
    struct gram_config at;
    uint32_t top; /* of the cells */
};

/* The next byte of a prefix; false if it cannot come. */
static bool step_prefix(struct walk *w, const struct prefix *p, uint8_t byte, struct prefix *ret)
{
    struct gram_config one = p->at;
    struct gram_set to, from = {.c = &one, .n = 1, .cap = 1};
    gram_cells_pop(&w->s->cells, p->top);
    gram_set_init(&to, w->s->pool, GRAM_MAX_CONFIGS);
    gram_step_set(&w->s->m, &from, &to, byte);
    if (to.n != 1) return false;
    *ret = (struct prefix){to.c[0], w->s->cells.top};
    return true;
}

/* Every exit by itself; those before it have made a part of its prefix already. */
static void walk_exits(struct walk *w, const struct gram_config *c, enum gram_dialect dialect)
{
    struct prefix prefixes[GRAM_MAX_TOKEN_BYTES] SCRATCH;
    uint32_t n = 0; /* bytes of the prefix in hand */
    prefixes[0] = (struct prefix){*c, w->s->cells.top};
    for (uint32_t i = 0; i < w->v->n_exits[dialect] && !is_spent(w); i++) {
        const struct gram_exit *e = &w->v->exits[dialect][i];
        const char *text = w->v->text + e->text;
        if (n > e->n_shared) n = e->n_shared;
        while (n + 1 < e->n_bytes &&
               step_prefix(w, &prefixes[n], (uint8_t)text[n], &prefixes[n + 1]))
            n++;
        if (n + 1 < e->n_bytes) continue;
        gram_cells_pop(&w->s->cells, prefixes[n].top);
        plant_behind_quote(w, &prefixes[n].at);
        take_exit(w, e);
    }
    gram_cells_pop(&w->s->cells, prefixes[0].top);
}

/* ---- free strings -------------------------------------------------------------------------- */

static void add_bits(struct walk *w, const uint64_t *set)
{
    for (size_t i = 0; i < w->v->n_words; i++)
        w->bits[i] |= set[i];
}

/* Tokens inside a free string with at most n characters. */
static void add_at_most(struct walk *w, uint32_t n)
{
    const struct gram_vocab *v = w->v;
    if (n >= v->max_chars) {
        add_bits(w, v->inside[GRAM_LEX_FREE]);
        return;
    }
    uint32_t known = n < GRAM_CHAR_SETS ? n : GRAM_CHAR_SETS;
    if (known) add_bits(w, v->at_most[known]);
    for (uint32_t i = v->first_with[known + 1]; i < v->first_with[n + 1]; i++)
        gram_set_bit(w->bits, v->by_chars[i]);
}

static void mask_string(struct walk *w, const struct gram_config *c)
{
    const struct gram_string *s = &w->s->g->rules.strings[c->node];
    uint32_t length = (uint32_t)c->s1, top = w->s->cells.top;
    add_at_most(w, s->max == GRAM_INFINITE ? UINT32_MAX - 1 : s->max - length);
    if (c->hashed) {
        walk_exits(w, c, GRAM_LEX_FREE);
        return;
    }
    /* The same follows every quote, whatever came before it; only the length decides. */
    struct gram_config closing = *c;
    closing.s1 = s->min;
    plant_behind_quote(w, &closing);
    for (uint32_t i = 0; i < w->v->n_exits[GRAM_LEX_FREE]; i++) {
        const struct gram_exit *e = &w->v->exits[GRAM_LEX_FREE][i];
        uint64_t n = (uint64_t)length + e->n_chars;
        if (n >= s->min && n <= s->max) take_exit(w, e);
    }
    gram_cells_pop(&w->s->cells, top);
}

/* ---- automata ------------------------------------------------------------------------------ */

/* The characters of a token fit: tried one by one. */
static bool token_fits(const struct gram_vocab *v, const struct gram_dfa *d, uint32_t q, uint32_t n,
                       int32_t id)
{
    struct gram_dfa_place p = {q, 0, n};
    size_t len;
    const char *text = gram_vocab_text(v, id, &len);
    for (size_t i = 0; i < len; i++)
        if (gram_dfa_take(d, &p, (uint8_t)text[i]) != GRAM_DFA_STEP_ON) return false;
    return true;
}

/* All tokens that fit, where the length matters for most of them. */
static void walk_bounded(struct walk *w, const struct gram_dfa *d, uint32_t q, uint32_t n)
{
    enum { BLOCK = 512 }; /* nodes between two counts */
    const struct gram_vocab *v = w->v;
    struct gram_dfa_place places[GRAM_MAX_TOKEN_BYTES + 1] SCRATCH;
    uint32_t n_seen = 0;
    places[0] = (struct gram_dfa_place){q, 0, n};
    for (uint32_t i = 1; i < v->n_nodes && !w->s->m.gave_up;) {
        const struct gram_tok_node *node = &v->nodes[i];
        struct gram_dfa_place p = places[node->depth - 1];
        if (++n_seen % BLOCK == 0) count_nodes(w, BLOCK);
        if (gram_dfa_take(d, &p, node->byte) != GRAM_DFA_STEP_ON) {
            i = node->skip;
            continue;
        }
        places[node->depth] = p;
        if (node->id >= 0) gram_set_token(v, node, w->bits);
        i++;
    }
}

/* Adds the tokens that stay inside an automaton, lengths not looked at. */
static void add_inside(struct walk *w, const struct gram_dfa *d, uint32_t q)
{
    if (gram_cache_add(cache_of(w), w->v, d, q, w->bits)) count_nodes(w, w->v->n_nodes);
}

/*
 * How many characters a token may have so that, if it stays inside, the length cannot matter; false
 * if the length may matter for all.
 */
static bool safe_chars(const struct gram_dfa *d, uint32_t q, uint32_t n, uint32_t *ret)
{
    uint32_t slack = n < d->min ? d->ready[q] : d->tail[q];
    if (slack == GRAM_INFINITE) return false;
    if (d->max == GRAM_INFINITE)
        *ret = UINT32_MAX - 1;
    else if (d->max - n < slack)
        return false;
    else
        *ret = d->max - n - slack;
    return true;
}

enum { FEW_TOKENS = 3000 };

/* Tokens that stay inside an automaton of bounded length, if there are few to try; else false. */
static bool add_few(struct walk *w, const struct gram_dfa *d, uint32_t q, uint32_t n)
{
    const struct gram_vocab *v = w->v;
    bool made = false;
    uint32_t safe, most = d->max == GRAM_INFINITE ? UINT32_MAX - 1 : d->max - n;
    if (!safe_chars(d, q, n, &safe)) return false;
    if (safe >= v->max_chars) {
        add_inside(w, d, q);
        return true;
    }
    uint32_t known = safe < GRAM_CHAR_SETS ? safe : GRAM_CHAR_SETS;
    if (most > v->max_chars) most = v->max_chars;
    if (v->first_with[most + 1] - v->first_with[known + 1] > FEW_TOKENS) return false;
    const uint64_t *inside = gram_cache_get(cache_of(w), v, d, q, &made);
    if (!inside) return false;
    count_nodes(w, made ? v->n_nodes : v->first_with[most + 1] - v->first_with[known + 1]);
    for (size_t i = 0; known && i < v->n_words; i++)
        w->bits[i] |= inside[i] & v->at_most[known][i];
    for (uint32_t i = v->first_with[known + 1]; i < v->first_with[most + 1]; i++) {
        int32_t id = v->by_chars[i];
        if ((inside[id / 64] >> id % 64 & 1) && token_fits(v, d, q, n, id))
            gram_set_bit(w->bits, id);
    }
    return true;
}

static void mask_dfa(struct walk *w, const struct gram_config *c)
{
    const struct gram_dfa *d = w->s->g->rules.strings[c->node].dfa;
    uint32_t q = (uint32_t)c->s1, n = (uint32_t)(c->s1 >> 32);
    if (!d->bounded)
        add_inside(w, d, q);
    else if (!add_few(w, d, q, n))
        walk_bounded(w, d, q, n);
    walk_exits(w, c, GRAM_LEX_PLAIN);
}

/* ---- keys ---------------------------------------------------------------------------------- */

/* The declared keys that the configuration can still become, without the free ones. */
static void walk_declared(struct walk *w, const struct gram_config *c)
{
    struct gram_config declared = *c;
    if ((uint32_t)(c->s1 >> 32) == UINT32_MAX) return;
    declared.s1 |= UINT32_MAX;
    declared.s2 = 0;
    plant(w, &declared, 1);
    walk_all(w);
}

static bool mask_key(struct walk *w, const struct gram_config *c)
{
    if (c->kind == GRAM_IN_KEY) {
        const struct gram_object *o = &w->s->g->rules.objects[c->node];
        if ((uint32_t)c->s1 == UINT32_MAX) return false;
        if (o->free_kind == GRAM_FREE_DFA) {
            if (!o->all_alive) return false;
            add_inside(w, o->free_keys, (uint32_t)c->s1);
            walk_declared(w, c);
            walk_exits(w, c, GRAM_LEX_PLAIN);
            return true;
        }
    }
    add_bits(w, w->v->inside[GRAM_LEX_PLAIN]);
    walk_exits(w, c, GRAM_LEX_PLAIN);
    return true;
}

/* Adds what one configuration allows if there is a quick way to know. */
static bool mask_quickly(struct walk *w, const struct gram_config *c)
{
    if (c->d) return false; /* inside a character */
    switch (c->kind) {
    case GRAM_IN_STRING: mask_string(w, c); return true;
    case GRAM_IN_DFA: mask_dfa(w, c); return true;
    case GRAM_IN_KEY:
    case GRAM_IN_FREE_KEY: return mask_key(w, c);
    default: return false;
    }
}

/* ---- leaves of grammars -------------------------------------------------------------------- */

enum { MANY_ENDS = 20000 };

/* The automaton takes the first bytes of a node and is then at an end. */
static bool ends_before(const struct walk *w, const struct gram_dfa *d, struct gram_dfa_place p,
                        uint32_t node)
{
    const char *text = w->v->text + gram_text_of_node(w->v, node);
    for (uint32_t i = 0; i + 1 < w->v->nodes[node].depth; i++)
        if (gram_dfa_take(d, &p, (uint8_t)text[i]) != GRAM_DFA_STEP_ON) return false;
    return !p.decoder && d->outcome[p.q] && p.n >= d->min;
}

/* Tokens that may follow a leaf that ends inside a token, wherever that is. */
static bool walk_leaf_ends(struct walk *w, const struct gram_config *c, const struct gram_dfa *d)
{
    const struct gram_vocab *v = w->v;
    struct gram_dfa_place p = {(uint32_t)c->s1, 0, (uint32_t)(c->s1 >> 32)};
    const uint64_t *bytes = w->at[0].bytes;
    uint32_t n = 0, top = w->s->cells.top;
    plant_behind_leaf(w, c);
    keep_first(w);
    find_bytes(w, 0);
    for (int byte = 0; byte < 256; byte++)
        if (has_byte(bytes, (uint8_t)byte))
            n += v->first_by_byte[byte + 1] - v->first_by_byte[byte];
    if (n > MANY_ENDS || w->overflow) return false;
    for (int byte = 0; byte < 256; byte++) {
        if (!has_byte(bytes, (uint8_t)byte)) continue;
        for (uint32_t i = v->first_by_byte[byte]; i < v->first_by_byte[byte + 1] && !is_spent(w);
             i++) {
            uint32_t node = v->by_byte[i];
            gram_other_work(&w->s->m, 1);
            if (ends_before(w, d, p, node))
                walk_nodes(w, node, v->nodes[node].skip, v->nodes[node].depth - 1u);
        }
    }
    gram_cells_pop(&w->s->cells, top);
    return true;
}

static bool mask_leaf(struct walk *w, const struct gram_config *c)
{
    if (c->kind != GRAM_IN_LEAF || c->d) return false;
    const struct gram_dfa *d = w->s->g->rules.nodes[c->node].dfa;
    uint32_t q = (uint32_t)c->s1, n = (uint32_t)(c->s1 >> 32), safe;
    /* Some token may be long enough for the bounds to matter. */
    if (d->bounded && (!safe_chars(d, q, n, &safe) || safe < w->v->max_bytes)) return false;
    if (c->stack && !walk_leaf_ends(w, c, d)) return false;
    add_inside(w, d, q);
    return true;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static void mask_set(struct walk *w, bool quick)
{
    struct gram_state *s = w->s;
    struct gram_config rest[GRAM_MAX_CONFIGS] SCRATCH;
    uint32_t n = 0, peaks = 0;
    for (uint32_t i = 0; i < s->set.n && !s->m.gave_up; i++) {
        const struct gram_config *c = &s->set.c[i];
        if (c->kind == GRAM_AT_END) continue;
        w->peak = gram_stack_size(&s->cells, c->stack);
        if (quick && (mask_quickly(w, c) || mask_leaf(w, c)))
            peaks += w->peak;
        else
            rest[n++] = *c;
    }
    w->peak = 0;
    if (n) {
        plant(w, rest, n);
        walk_all(w);
    }
    if (peaks && peaks + w->peak > GRAM_MAX_CONFIGS) w->overflow = true;
}

enum {
    MASK_WORK = 100000, /* steps of the machine for one mask, about 5 ms */
};

/*
 * The whole mask. Where that takes too many steps, the tokens of one byte and the special ones
 * alone: they spell every text that the grammar allows, and there are few.
 */
static void mask_tokens(struct walk *w)
{
    size_t bytes = w->v->n_words * sizeof(*w->bits);
    w->longest = GRAM_MAX_TOKEN_BYTES;
    w->keep_from = w->s->m.work + KEEP_FROM_WORK;
    w->limit = w->s->m.work + MASK_WORK;
    mask_set(w, true);
    if (w->overflow && !is_spent(w)) { /* configurations apart and together differ then */
        memset(w->bits, 0, bytes);
        mask_set(w, false);
    }
    if (!is_spent(w) || w->s->m.gave_up) return;
    memset(w->bits, 0, bytes);
    w->longest = 1;
    w->limit = UINT64_MAX;
    mask_set(w, false);
    w->s->overflows += !w->s->m.gave_up;
}

/* Every mask begins with the cells in use alone: what was taken back before must not show in it. */
enum gram_next gram_mask_paced(struct gram_state *s, uint64_t *bits, struct gram_pace *pace)
{
    struct level levels[GRAM_MAX_TOKEN_BYTES + 2] SCRATCH;
    struct gram_visits visits SCRATCH;
    struct kept kept SCRATCH;
    struct walk w = {.s = s, .v = s->g->vocab, .bits = bits, .at = levels, .kept = &kept};
    bool only_end = s->set.n > 0, accepting = gram_accepting(s);
    memset(bits, 0, w.v->n_words * sizeof(*bits));
    if (s->set.n == 0) return GRAM_NEXT_FAIL;
    gram_machine_lend(&s->m, &visits);
    kept.n = 0;
    gram_collect(&s->cells, &s->set, NULL);
    for (uint32_t i = 0; i < s->set.n; i++)
        only_end &= s->set.c[i].kind == GRAM_AT_END;
    gram_machine_pace(&s->m, pace);
    if (!only_end) mask_tokens(&w);
    bool gave_up = s->m.gave_up;
    gram_machine_pace(&s->m, NULL);
    if (gave_up) return GRAM_NEXT_LATER;
    for (size_t i = 0; accepting && i < w.v->n_end_ids; i++)
        gram_set_bit(bits, w.v->end_ids[i]);
    return only_end ? GRAM_NEXT_END : GRAM_NEXT_MASK;
}
