/* SPDX-License-Identifier: MIT */
/*
 * The memory of a state: immutable cells of 16 bytes in a fixed array. A cell refers only to older
 * cells, so the newest ones can be dropped like a stack while tokens are tried, and the dead ones
 * are squeezed out in one pass when the array is full. Equal cells are one cell: configurations
 * whose stacks are equal have the same number there.
 *
 * Kinds of cells: frames (two cells each) make stacks, with the bottom at 0; a union is a stack
 * that continues as several; a key is one of the remembered keys or items of a container; an event
 * is a capture not reported yet.
 *
 * Threads: unsafe; they belong to one state.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GRAM_CELLS = 2432,      /* capacity: the live ones and those one byte can add */
    GRAM_LIVE_CELLS = 1408, /* that a set of configurations may refer to */
    GRAM_CELL_SLOTS = 4096,
    GRAM_MAX_CONFIGS = 256, /* stacks of a set, unions counted by their members */
    GRAM_MAX_FRAMES = 500,  /* depth of a stack */
};

enum gram_cell_kind {
    GRAM_CELL_NONE,
    GRAM_CELL_FRAME,
    GRAM_CELL_UNION,
    GRAM_CELL_KEY,
    GRAM_CELL_EVENT,
};

enum gram_frame_kind {
    GRAM_FRAME_OBJECT, /* node: object; pos: first declared key that may come; count: keys so far */
    GRAM_FRAME_ARRAY,  /* node: array; count: items begun */
    GRAM_FRAME_SEQ,    /* node; pos: kid that comes next */
    GRAM_FRAME_REP,    /* node; count: repetitions begun */
    GRAM_FRAME_CAPTURE,
};

/* Two cells, seen as one thing: hence may_alias. */
struct __attribute__((may_alias)) gram_frame {
    uint8_t kind;
    uint8_t containers; /* objects and arrays from here to the bottom */
    uint16_t depth;     /* frames from here to the bottom */
    uint32_t parent;
    uint32_t node, pos, count;
    uint32_t list;   /* remembered keys, newest first */
    uint16_t weight; /* at least as many cells as this stack refers to */
    uint16_t slot;
    uint32_t style; /* of a container: the white space that the answer has shown, see style.h */
};

struct gram_union {
    uint32_t first; /* a frame */
    uint32_t rest;  /* a frame or union */
    uint32_t n;     /* frames in all */
    uint16_t unused, slot;
};

struct gram_key_cell {
    uint64_t hash;
    uint32_t next;
    uint16_t n; /* keys from here on */
    uint16_t slot;
};

struct gram_event {
    uint32_t next;
    uint32_t what; /* number * 2 + (1: begin) */
    uint32_t offset;
    uint16_t unused, slot;
};

union gram_cell {
    struct gram_union u;
    struct gram_key_cell k;
    struct gram_event e;
    uint64_t words[2];
};

_Static_assert(sizeof(union gram_cell) == 16, "a cell is 16 bytes");
_Static_assert(sizeof(struct gram_frame) == 32, "a frame is two cells");

struct gram_cells {
    uint32_t top; /* first cell not in use; 0 is never used */
    bool full;    /* an addition has failed */
    _Alignas(16) union gram_cell cell[GRAM_CELLS];
    uint8_t kind[GRAM_CELLS];
    uint16_t slots[GRAM_CELL_SLOTS]; /* 0: empty */
    uint16_t moved[GRAM_CELLS];      /* scratch of gram_cells_collect, and of gram_emit */
};

void gram_cells_init(struct gram_cells *c);

static inline const struct gram_frame *gram_frame_at(const struct gram_cells *c, uint32_t i)
{
    return (const struct gram_frame *)(const void *)&c->cell[i];
}

static inline bool gram_is_union(const struct gram_cells *c, uint32_t stack)
{
    return c->kind[stack] == GRAM_CELL_UNION;
}

/* The number of a cell like this, found or made; 0 and `full` if there is no room. */
uint32_t gram_frame_add(struct gram_cells *c, const struct gram_frame *f);
uint32_t gram_key_add(struct gram_cells *c, uint64_t hash, uint32_t next);
uint32_t gram_event_add(struct gram_cells *c, uint32_t what, uint32_t offset, uint32_t next);

/* A stack that continues as x (a frame) or as rest; rest if x is part of it. */
uint32_t gram_union_add(struct gram_cells *c, uint32_t x, uint32_t rest);

/* Frames that a stack continues as. */
uint32_t gram_stack_size(const struct gram_cells *c, uint32_t stack);

bool gram_key_known(const struct gram_cells *c, uint32_t list, uint64_t hash);
uint32_t gram_key_count(const struct gram_cells *c, uint32_t list);

/* Drops the newest cells. */
void gram_cells_pop(struct gram_cells *c, uint32_t top);

/*
 * To see which are in use: mark every stack and event list that is, then all they refer to. Both
 * return how many cells were marked that were not before. One of the two calls below ends it.
 */
uint32_t gram_cells_mark(struct gram_cells *c, uint32_t root);
uint32_t gram_cells_mark_all(struct gram_cells *c);
void gram_cells_unmark(struct gram_cells *c);

/* After marking: keeps the marked cells alone. c->moved then maps old numbers to new ones. */
void gram_cells_collect(struct gram_cells *c);

/* Replaces everything by the first n cells as they were when collected. */
void gram_cells_restore(struct gram_cells *c, const union gram_cell *in, const uint8_t *kinds,
                        uint32_t n);
