/* SPDX-License-Identifier: MIT */
/* The state of one answer: see grammar.h for what may be done with it. */
#pragma once

#include "tokenizer/grammar/compiled.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/grammar/machine.h"

enum {
    GRAM_POOL = 1024,       /* configurations of the sets under way */
    GRAM_STEP_CELLS = 1024, /* cells that one byte can add at most */
    GRAM_LOG_BYTES = 2 * GRAM_MARK_BYTES,
};

struct gram_mark {
    uint64_t id;
    uint32_t at; /* bytes of the log before it */
};

/* A state as it was, its cells squeezed together. */
struct gram_snapshot {
    uint32_t n_cells;
    uint32_t n, stacks;
    uint64_t offset;
    struct gram_config c[GRAM_MAX_CONFIGS];
    union gram_cell cells[GRAM_LIVE_CELLS + 1];
    uint8_t kinds[GRAM_LIVE_CELLS + 1];
};

struct gram_state {
    const struct gram *g;
    gram_capture_fn capture;
    void *ctx;
    uint64_t offset; /* bytes taken */
    uint64_t overflows;
    struct gram_set set; /* where the answer stands */
    struct gram_machine m;
    struct gram_cells cells;
    struct gram_config current[GRAM_MAX_CONFIGS];
    struct gram_config pool[GRAM_POOL];

    /* marks: the state at the oldest, and the bytes taken since */
    struct gram_mark marks[GRAM_MAX_MARKS];
    uint32_t n_marks;
    uint64_t next_mark;
    uint32_t log_len;
    char log[GRAM_LOG_BYTES];
    struct gram_snapshot base;
};

/* Drops the last alternatives of a set that refers to more cells than it may. */
void gram_settle(struct gram_cells *cells, struct gram_set *set);

/* A token, or more, on its way. */
struct gram_advance {
    struct gram_set two[2];
    bool overflow;
    bool collected; /* cells have been renumbered */
    bool lost;      /* the current set had to be given up */
};

/* Two sets for the bytes of s in turn. Lends visits. */
void gram_begin_bytes(struct gram_state *s, struct gram_visits *visits, struct gram_set two[2]);

/* Makes room for what a byte can add to the set `from`, as long as the current one can be kept. */
bool gram_make_room(struct gram_state *s, struct gram_set *from, struct gram_advance *a);

/* Steps all configurations of `from` into `to`. */
void gram_step_set(struct gram_machine *m, const struct gram_set *from, struct gram_set *to,
                   uint8_t byte);

/* Makes room in the cells; the configurations of the sets are renumbered. more may be NULL. */
void gram_collect(struct gram_cells *cells, struct gram_set *set, struct gram_set *more);
