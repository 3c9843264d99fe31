/* SPDX-License-Identifier: MIT */
/* The memory of a state; see cells.h. */
#include "tokenizer/grammar/cells.h"

#include <assert.h>
#include <string.h>

enum { MARK = 0x80 };

void gram_cells_init(struct gram_cells *c)
{
    c->top = 1;
    c->full = false;
    memset(c->kind, 0, sizeof(c->kind));
    memset(c->slots, 0, sizeof(c->slots));
}

/* ---- finding equal cells ------------------------------------------------------------------- */

static uint16_t *slot_field(struct gram_cells *c, uint32_t i)
{
    if (c->kind[i] == GRAM_CELL_FRAME) return &((struct gram_frame *)(void *)&c->cell[i])->slot;
    return &c->cell[i].k.slot; /* the same place in all kinds of one cell */
}

_Static_assert(offsetof(struct gram_key_cell, slot) == offsetof(struct gram_union, slot), "");
_Static_assert(offsetof(struct gram_key_cell, slot) == offsetof(struct gram_event, slot), "");

/* The contents of a cell without its slot. */
static void contents(const struct gram_cells *c, uint32_t i, uint64_t out[4])
{
    out[2] = out[3] = 0;
    if ((c->kind[i] & ~MARK) == GRAM_CELL_FRAME) {
        struct gram_frame f = *gram_frame_at(c, i);
        f.slot = 0;
        memcpy(out, &f, sizeof(f));
        return;
    }
    union gram_cell one = c->cell[i];
    one.k.slot = 0;
    memcpy(out, &one, sizeof(one));
}

static uint32_t hash_of(const uint64_t v[4], uint32_t kind)
{
    uint64_t h = kind * 0x9E3779B97F4A7C15u;
    for (int i = 0; i < 4; i++) {
        h = (h ^ v[i]) * 0xBF58476D1CE4E5B9u;
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 20) % GRAM_CELL_SLOTS;
}

static bool equal(const struct gram_cells *c, uint32_t i, const uint64_t v[4], uint32_t kind)
{
    uint64_t other[4];
    if (c->kind[i] != kind) return false;
    contents(c, i, other);
    return memcmp(other, v, sizeof(other)) == 0;
}

/* Finds the cell that has been written at top, or makes it one. */
static uint32_t intern(struct gram_cells *c, enum gram_cell_kind kind, const uint64_t v[4],
                       uint32_t n_cells)
{
    uint32_t s = hash_of(v, kind);
    for (; c->slots[s]; s = (s + 1) % GRAM_CELL_SLOTS)
        if (equal(c, c->slots[s], v, kind)) return c->slots[s];
    if (c->top + n_cells > GRAM_CELLS) {
        c->full = true;
        return 0;
    }
    uint32_t i = c->top;
    memcpy(&c->cell[i], v, n_cells * sizeof(c->cell[0]));
    c->kind[i] = (uint8_t)kind;
    if (n_cells == 2) c->kind[i + 1] = GRAM_CELL_NONE;
    *slot_field(c, i) = (uint16_t)s;
    c->slots[s] = (uint16_t)i;
    c->top += n_cells;
    return i;
}

uint32_t gram_frame_add(struct gram_cells *c, const struct gram_frame *f)
{
    uint64_t v[4];
    struct gram_frame copy = *f;
    copy.slot = 0;
    memcpy(v, &copy, sizeof(v));
    return intern(c, GRAM_CELL_FRAME, v, 2);
}

static uint32_t add_one(struct gram_cells *c, enum gram_cell_kind kind, const union gram_cell *one)
{
    uint64_t v[4] = {one->words[0], one->words[1], 0, 0};
    return intern(c, kind, v, 1);
}

uint32_t gram_key_add(struct gram_cells *c, uint64_t hash, uint32_t next)
{
    union gram_cell one = {.k = {.hash = hash, .next = next}};
    one.k.n = (uint16_t)(gram_key_count(c, next) + 1);
    return add_one(c, GRAM_CELL_KEY, &one);
}

uint32_t gram_event_add(struct gram_cells *c, uint32_t what, uint32_t offset, uint32_t next)
{
    assert(next < c->top);
    union gram_cell one = {.e = {.next = next, .what = what, .offset = offset}};
    return add_one(c, GRAM_CELL_EVENT, &one);
}

uint32_t gram_stack_size(const struct gram_cells *c, uint32_t stack)
{
    return gram_is_union(c, stack) ? c->cell[stack].u.n : 1;
}

uint32_t gram_union_add(struct gram_cells *c, uint32_t x, uint32_t rest)
{
    assert(x && !gram_is_union(c, x));
    for (uint32_t s = rest;; s = c->cell[s].u.rest) {
        if (!gram_is_union(c, s)) {
            if (s == x) return rest;
            break;
        }
        if (c->cell[s].u.first == x) return rest;
    }
    union gram_cell one = {.u = {.first = x, .rest = rest}};
    one.u.n = gram_stack_size(c, rest) + 1;
    return add_one(c, GRAM_CELL_UNION, &one);
}

bool gram_key_known(const struct gram_cells *c, uint32_t list, uint64_t hash)
{
    for (; list; list = c->cell[list].k.next)
        if (c->cell[list].k.hash == hash) return true;
    return false;
}

uint32_t gram_key_count(const struct gram_cells *c, uint32_t list)
{
    return list ? c->cell[list].k.n : 0;
}

/* ---- dropping ------------------------------------------------------------------------------ */

/*
 * Newest first, so that a slot that becomes empty never lies between another cell's slot and the
 * place its search begins at.
 */
void gram_cells_pop(struct gram_cells *c, uint32_t top)
{
    while (c->top > top) {
        uint32_t i = --c->top;
        if (c->kind[i] == GRAM_CELL_NONE) i = --c->top; /* the second half of a frame */
        assert(i >= top);
        c->slots[*slot_field(c, i)] = 0;
        c->kind[i] = GRAM_CELL_NONE;
    }
    c->full = false;
}

/* ---- collecting ---------------------------------------------------------------------------- */

uint32_t gram_cells_mark(struct gram_cells *c, uint32_t i)
{
    assert(i < c->top);
    if (!i || c->kind[i] & MARK) return 0;
    bool frame = c->kind[i] == GRAM_CELL_FRAME;
    c->kind[i] |= MARK;
    return frame ? 2 : 1;
}

/* Cells that a cell refers to directly. */
static uint32_t mark_children(struct gram_cells *c, uint32_t i)
{
    switch (c->kind[i] & ~MARK) {
    case GRAM_CELL_FRAME: {
        const struct gram_frame *f = gram_frame_at(c, i);
        return gram_cells_mark(c, f->parent) + gram_cells_mark(c, f->list);
    }
    case GRAM_CELL_UNION:
        return gram_cells_mark(c, c->cell[i].u.first) + gram_cells_mark(c, c->cell[i].u.rest);
    case GRAM_CELL_KEY: return gram_cells_mark(c, c->cell[i].k.next);
    default: return gram_cells_mark(c, c->cell[i].e.next);
    }
}

uint32_t gram_cells_mark_all(struct gram_cells *c)
{
    uint32_t n = 0;
    for (uint32_t i = c->top; i-- > 1;) /* references go to older cells alone */
        if (c->kind[i] & MARK) n += mark_children(c, i);
    return n;
}

void gram_cells_unmark(struct gram_cells *c)
{
    for (uint32_t i = 1; i < c->top; i++)
        c->kind[i] &= (uint8_t)~MARK;
}

/* Puts the new numbers into a cell that was moved. */
static void relocate(const struct gram_cells *c, union gram_cell *cell, uint32_t kind)
{
    const uint16_t *moved = c->moved;
    if (kind == GRAM_CELL_FRAME) {
        struct gram_frame *f = (struct gram_frame *)(void *)cell;
        f->parent = moved[f->parent];
        f->list = moved[f->list];
    } else if (kind == GRAM_CELL_UNION) {
        cell->u.first = moved[cell->u.first];
        cell->u.rest = moved[cell->u.rest];
    } else if (kind == GRAM_CELL_KEY) {
        cell->k.next = moved[cell->k.next];
    } else {
        cell->e.next = moved[cell->e.next];
    }
}

static void find_slots(struct gram_cells *c)
{
    uint64_t v[4];
    memset(c->slots, 0, sizeof(c->slots));
    for (uint32_t i = 1; i < c->top; i++) {
        if (c->kind[i] == GRAM_CELL_NONE) continue;
        contents(c, i, v);
        uint32_t s = hash_of(v, c->kind[i]);
        while (c->slots[s])
            s = (s + 1) % GRAM_CELL_SLOTS;
        c->slots[s] = (uint16_t)i;
        *slot_field(c, i) = (uint16_t)s;
    }
    c->full = false;
}
void gram_cells_collect(struct gram_cells *c)
{
    uint32_t n = 1;
    c->moved[0] = 0;
    for (uint32_t i = 1; i < c->top; i++) {
        uint32_t kind = c->kind[i] & ~(uint32_t)MARK, size = kind == GRAM_CELL_FRAME ? 2 : 1;
        if (!(c->kind[i] & MARK)) continue;
        c->moved[i] = (uint16_t)n;
        memmove(&c->cell[n], &c->cell[i], size * sizeof(c->cell[0]));
        relocate(c, &c->cell[n], kind);
        c->kind[n] = (uint8_t)kind;
        if (size == 2) c->kind[n + 1] = GRAM_CELL_NONE;
        n += size;
    }
    assert(n <= c->top);
    memset(c->kind + n, GRAM_CELL_NONE, c->top - n);
    c->top = n;
    find_slots(c);
}
void gram_cells_restore(struct gram_cells *c, const union gram_cell *in, const uint8_t *kinds,
                        uint32_t n)
{
    assert(n >= 1 && n <= GRAM_CELLS);
    memcpy(c->cell + 1, in + 1, (n - 1) * sizeof(in[0]));
    memcpy(c->kind + 1, kinds + 1, n - 1);
    memset(c->kind + n, GRAM_CELL_NONE, GRAM_CELLS - n);
    c->top = n;
    find_slots(c);
}
