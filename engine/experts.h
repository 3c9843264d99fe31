/* SPDX-License-Identifier: MIT */
/*
 * Layers with experts: a router chooses a few of them for each row, and the row gets the weighted
 * sum of what these make of it.
 *
 * The rows that chose an expert are packed together, in tiles of their own, so an expert's weights
 * are read once a step. Which experts work is known only in the middle of a step: phases have an
 * item for each that may, and those of the others end at once.
 *
 * A row's bits are its own: it is chosen for by itself, and its experts are added to it in the
 * order of their numbers, whoever else chose them. Threads share outputs, never a sum.
 *
 * Threads: a phase's items may run at once.
 */
#pragma once

#include <stddef.h>

#include "engine/gemm.h"
#include "engine/model/model.h"

struct experts;

/* The phases of a layer, in their order; the router's product comes before the first. */
enum experts_phase {
    EXPERTS_CHOOSE, /* for some rows; few are then grouped too, and one is packed */
    EXPERTS_GROUP,  /* lists the rows of each expert */
    EXPERTS_PACK,   /* norms and packs those of one */
    EXPERTS_UP,     /* some of an expert's act(gate) * up */
    EXPERTS_DOWN,   /* some outputs of all experts, added to the rows */
};

/* A phase of a layer for the n_rows >= 0 rows of a step. */
struct experts_work {
    struct experts *experts;
    const struct eng_experts *of;
    enum experts_phase phase;
    int n_rows;
    struct gemm_source src;     /* the rows, with the norm before the experts */
    struct kern_out out;        /* where results are added: rows of d_model */
    int units;                  /* of an item: pairs of panels of UP, panels of DOWN */
    const struct eng_mat *next; /* read after this phase */
};

/* Memory for steps of max_rows rows; NULL while counting, or if the model has no experts. */
struct experts *experts_init(struct scratch *s, const struct eng_model *model, int n_threads,
                             int max_rows);

/* Where the router's product goes. */
struct kern_out experts_logits(const struct experts *x);

/* After they are chosen: what a row's output of the shared expert is multiplied by. */
float experts_shared_factor(const struct experts *x, int row);

/* The units of a phase's items. */
int experts_units(const struct experts *x, const struct eng_experts *of, enum experts_phase phase);

int experts_n_items(const struct experts_work *w);

/* tmp: [d_model] of the calling thread. */
void experts_item(const struct experts_work *w, int item, int thread, float *tmp,
                  const struct gemm_thread *t);
