/* SPDX-License-Identifier: MIT */
/*
 * The machine: configurations, and what a byte does to one.
 *
 * A configuration is a leaf (a string, a number, punctuation, white space...), its place in
 * it, and a stack of open containers. Its kind says what the two numbers s1, s2 and d mean.
 * Configurations that differ only in their stacks are one configuration with a union of stacks, so
 * a hundred alternatives inside equal strings cost as much as one.
 *
 * A step takes one configuration and a byte and emits what follows into the set `out`. Everything
 * emitted can be completed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tokenizer/grammar/cells.h"
#include "tokenizer/grammar/rules.h"

struct gram;
struct gram_pace;

enum gram_config_kind {
    GRAM_AT_END,      /* the answer is complete */
    GRAM_AT_VALUE,    /* before a JSON value; node: value rule; d: white space */
    GRAM_AT_OBJECT,   /* after '{'; d: white space */
    GRAM_AT_KEY,      /* after ',' in an object; d: white space */
    GRAM_AT_COLON,    /* after a key; node: value rule; d: white space */
    GRAM_AT_ARRAY,    /* after '['; d: white space */
    GRAM_AT_NEXT,     /* after a value in a container; d: white space */
    GRAM_IN_LITERAL,  /* node: trie; s1: its node */
    GRAM_IN_STRING,   /* free; node: string; d: lexer; s1: length | escape << 32; s2: hash */
    GRAM_IN_DFA,      /* node: string; d: decoder; s1: state | length << 32; s2: hash */
    GRAM_IN_NUMBER,   /* node: number; d, s1, s2: gram_number_pack; s2 is the hash if not exact */
    GRAM_IN_KEY,      /* node: object; d: lexer or decoder; s1: automaton | trie << 32; s2: hash */
    GRAM_IN_FREE_KEY, /* a key that is not declared, any characters; d: lexer; s2: hash */
    GRAM_IN_LEAF,     /* node: expression leaf; d: decoder; s1: state | length << 32 */
    GRAM_IN_WORDS,    /* node: expression literals; s1: trie node */
};

struct gram_config {
    uint8_t kind;
    uint8_t hashed; /* an item of an array of unique items: s2 is the hash of it so far */
    uint16_t d;
    uint32_t node;
    uint32_t stack; /* frame or union; 0: the bottom */
    uint32_t events;
    uint64_t s1, s2;
};

_Static_assert(sizeof(struct gram_config) == 32, "sets are sized by it");

/* Configurations in storage of the owner. */
struct gram_set {
    struct gram_config *c;
    uint32_t n, cap;
    uint32_t stacks; /* unions counted by their members */
    bool overflow;   /* alternatives were dropped: more than GRAM_MAX_CONFIGS stacks */
    bool full;       /* the storage was too small; the set is not usable */
};

enum { GRAM_VISITED = 1024, GRAM_PLACES = 512, GRAM_STEP_WORK = 1 << 13 };

/*
 * The nodes entered and frames left while one set grows, so that nothing is done twice however
 * many ways lead to it: an ambiguous grammar has more ways than can be counted. Scratch of the
 * caller.
 */
struct gram_visits {
    uint64_t key[GRAM_VISITED];
    uint32_t set[GRAM_VISITED]; /* the set that the key belongs to; 0: none */
    uint32_t current, n;
};

struct gram_machine {
    const struct gram *g;
    struct gram_cells *cells;
    struct gram_set *out;
    uint32_t offset;      /* bytes of the answer before the byte that is taken */
    uint32_t closure_top; /* cells that were there when the set was opened */
    struct gram_visits *visits;
    uint64_t work;  /* steps: configurations, nodes and frames that were looked at */
    uint64_t limit; /* of work, for this set; after it alternatives are dropped */

    struct gram_pace *pace; /* of the mask that is made, or NULL */
    uint64_t rest_at;       /* of work: the pace is asked for more steps */
    bool gave_up;           /* there are no more */

    uint64_t n_sets, indexed; /* sets that were opened; the one that has a table of its places */
};

void gram_set_init(struct gram_set *s, struct gram_config *storage, uint32_t cap);

/* A machine whose cells are empty. */
void gram_machine_init(struct gram_machine *m, const struct gram *g, struct gram_cells *cells);

/* Lends scratch until the calls that follow are over. */
void gram_machine_lend(struct gram_machine *m, struct gram_visits *visits);

/* Paces the steps that follow; NULL: they are not. */
void gram_machine_pace(struct gram_machine *m, struct gram_pace *pace);

/* Asks for more steps. */
void gram_machine_rest(struct gram_machine *m);

/* To be called every few steps. */
static inline void gram_look_at_pace(struct gram_machine *m)
{
    if (m->work >= m->rest_at) gram_machine_rest(m);
}

/* Counts work other than steps, which takes about as long as n of them, for the pace alone. */
static inline void gram_other_work(struct gram_machine *m, uint64_t n)
{
    if (!m->pace) return;
    m->rest_at -= m->rest_at < n ? m->rest_at : n;
    gram_look_at_pace(m);
}

/* Emits go to this set, which is emptied, from now on. */
void gram_machine_open(struct gram_machine *m, struct gram_set *out);

/* Emits what follows configuration c at a byte. */
void gram_step(struct gram_machine *m, const struct gram_config *c, uint8_t byte);

/* Adds the bytes that gram_step may do something with: a superset, a bit each. */
void gram_config_bytes(const struct gram_machine *m, const struct gram_config *c,
                       uint64_t bytes[4]);

/* gram_step does the same with both bytes, as far as can be told quickly. */
bool gram_bytes_alike(const struct gram *g, const struct gram_config *c, uint8_t x, uint8_t y);

/* ---- between the files of the machine ------------------------------------------------------ */

/* Adds a configuration to the set, or its stack to an equal one. */
void gram_emit(struct gram_machine *m, const struct gram_config *c);

/* Goes on after a leaf: everything that can come next on this stack. */
void gram_leave(struct gram_machine *m, uint32_t stack, uint32_t events);

/* The same after an item whose hash is known; drops stacks whose array has such an item. */
void gram_leave_item(struct gram_machine *m, const struct gram_config *c, uint64_t hash,
                     bool last_chance);

/* Enters an expression node. */
void gram_enter(struct gram_machine *m, uint32_t node, uint32_t stack, uint32_t events);

/* The events with one more, at the byte that is taken. */
uint32_t gram_event(struct gram_machine *m, uint32_t number, bool begin, uint32_t events);

/* A frame on top of a stack; 0 if there is no room. */
uint32_t gram_push(struct gram_machine *m, uint32_t stack, const struct gram_frame *frame);

/* A frame like this one with other fields; its weight follows from its list. */
uint32_t gram_replace(struct gram_machine *m, const struct gram_frame *like, uint32_t pos,
                      uint32_t count, uint32_t list);

/* The stack has room for what a rule needs at least. */
bool gram_fits(const struct gram_machine *m, uint32_t stack, uint32_t height, uint32_t cells);

/* The next state of white space, or GRAM_NO_SPACE. */
#define GRAM_NO_SPACE GRAM_DFA_DEAD
uint16_t gram_space_step(const struct gram *g, uint16_t state, uint8_t byte);

/* The members of a stack: for (uint32_t f, s = stack; gram_next_frame(cells, &s, &f);) */
static inline bool gram_next_frame(const struct gram_cells *c, uint32_t *stack, uint32_t *frame)
{
    if (*stack == GRAM_NONE) return false;
    if (gram_is_union(c, *stack)) {
        *frame = c->cell[*stack].u.first;
        *stack = c->cell[*stack].u.rest;
    } else {
        *frame = *stack;
        *stack = GRAM_NONE;
    }
    return true;
}

/* Objects and their keys, object.c. */
void gram_step_object(struct gram_machine *m, const struct gram_config *c, uint8_t byte);
void gram_step_key(struct gram_machine *m, const struct gram_config *c, uint8_t byte);
void gram_step_free_key(struct gram_machine *m, const struct gram_config *c, uint8_t byte);
bool gram_object_can_close(const struct gram_machine *m, uint32_t frame);
bool gram_object_has_key(const struct gram_machine *m, uint32_t frame);

/* In the place of a key's automaton, or of its node in the trie: it is not such a key any more. */
#define GRAM_KEY_OFF UINT32_MAX

/* Keys of an object with dependencies. */
struct gram_keys {
    uint64_t words[GRAM_MAX_DEPENDENT_KEYS / 64];
};

/*
 * The keys still needed, with all that they need in turn, if `key` (GRAM_NONE: none) comes
 * next. False if there are no dependencies: then gram_object_needs says it of each key.
 */
bool gram_object_needed(const struct gram_machine *m, const struct gram_frame *f, uint32_t key,
                        struct gram_keys *ret);

/* A key that must still come: required, or wanted by a key that has come. */
bool gram_object_needs(const struct gram_machine *m, const struct gram_frame *f, uint32_t key);

/* The key, which is in the trie, may come next. */
bool gram_object_may_come(const struct gram_machine *m, uint32_t frame, uint32_t key);

/* Leaves, leaf.c. */
void gram_step_leaf(struct gram_machine *m, const struct gram_config *c, uint8_t byte);
void gram_begin_branch(struct gram_machine *m, const struct gram_branch *branch,
                       const struct gram_config *at, bool hashed, uint8_t byte);
