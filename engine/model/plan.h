/* SPDX-License-Identifier: MIT */
/*
 * The plan between opening a model and filling it: which tensors form which packed matrix, and its
 * place in the arena. Shared by plan.c (makes the plan), fill.c (executes it) and inspect.c (shows
 * it).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/model/heads.h"
#include "engine/model/model.h"
#include "engine/model/problems.h"
#include "engine/model/weights.h"

/*
 * Rows of a packed matrix that come from one tensor, and the piece of bias that goes with them. If
 * RoPE turns dimensions 2i and 2i + 1, the first `pairs` rows of each head are packed in the order
 * 0, 2, 4 .. 1, 3, 5 .., so that dimensions i and i + pairs / 2 turn; q.k is the same. With a
 * stride, d_head rows are taken of every `stride` of the tensor, which has others between them.
 */
struct plan_part {
    const struct eng_tensor *weight; /* [first_row + n_rows or more, n_in] */
    const struct eng_tensor *bias;   /* as many, or NULL */
    int first_row, n_rows;
    int pairs, d_head; /* pairs 0: in the tensor's order */
    int stride;        /* 0: none are left out */
};

/*
 * The role of a matrix decides its format. FINE: those whose errors count most, all of the first
 * and the last layer, and of the others those that add to the stream and those of per-layer
 * embeddings. POOLED: of rows that are
 * pooled hidden states. ROUTER: as in the file, since a small error changes which experts work.
 */
enum plan_role { PLAN_MATRIX, PLAN_FINE, PLAN_HEAD, PLAN_LOOKUP, PLAN_POOLED, PLAN_ROUTER };

/*
 * One packed matrix. Its rows are those of its parts one after the other; or, interleaved, 32 rows
 * of part 0, the same 32 of part 1, and so on, short blocks filled with zero rows. With groups,
 * which are experts, each has as many of the parts, and whole panels.
 */
struct plan_mat {
    struct eng_mat *mat;
    enum plan_role role;
    struct plan_part *parts; /* of eng_load.parts */
    int n_parts, n_groups;   /* n_groups 1: none */
    bool interleaved;
    int fine_row; /* rows from here on need a finer format than the rest on int4; 0: none */
    size_t panels_at, bias_at; /* offsets in the arena */
};

/*
 * One vector, widened to f32: (tensor + add) * factor; or a matrix [n / n_cols][n_cols], turned; or
 * log(-tensor).
 */
struct plan_vec {
    const float **vec;
    const struct eng_tensor *tensor;
    int n, n_cols; /* n_cols 0: a vector */
    float add, factor;
    bool is_log;
    size_t at;
};

struct eng_load {
    struct eng_weights *weights;
    struct eng_weights *dense_weights[ENG_MAX_HEAD_OPS]; /* of Dense modules, NULL: none */
    struct plan_mat *mats;
    int n_mats;
    struct plan_part *parts; /* of all matrices */
    int n_parts;
    struct plan_vec *vecs;
    int n_vecs;
    size_t arena_bytes; /* without the RoPE tables */
};

enum { PLAN_ALIGN = 64 };

/*
 * Reads the configuration and all headers of a directory, or those of a GGUF file, and checks them
 * against each other.
 * Every problem goes to the report. On 0, m->hp, m->layers and m->load->mats and vecs (without
 * places) are filled; m->load->weights always holds what could be read.
 */
int eng_plan_make(struct eng_model *m, const char *dir, struct eng_report *r);

/*
 * Chooses formats and places for m->numerics; sets m->weights_bytes to the most that may be needed.
 * Pure arithmetic.
 */
void eng_plan_place(struct eng_model *m, const char *gemm);

/* Sets the factors of the stream from m->hp, m->numerics and the embedding's dtype. */
void eng_plan_stream(struct eng_model *m);

/* Returns true if a matrix of a product is stored in blocks. */
bool eng_plan_is_quantised(const struct eng_load *load);

/* The path that is taken if none is asked for. */
const struct eng_numerics *eng_plan_default_path(const struct eng_load *load);

/*
 * The part that row `row` of a packed matrix comes from, *ret_row its row in the tensor; NULL: a
 * row of zeros.
 */
const struct plan_part *eng_plan_row(const struct plan_mat *pm, int row, int *ret_row);

/* The type of a panel's rows; false: they differ. */
bool eng_plan_panel_dtype(const struct plan_mat *pm, int panel, enum eng_dtype *ret);

/* The row of its tensor that is row `row` of a part. */
int eng_plan_source(const struct plan_part *part, int row);

/* n elements widened to f32, from the last to the first: src and dst may start at one address. */
void eng_widen(enum eng_dtype dtype, const uint8_t *src, float *dst, size_t n);

/* NULL is fine. */
void eng_load_destroy(struct eng_load *load);

/*
 * An anonymous mapping aligned to a huge page, so that the system can use huge pages for all of it.
 * NULL if out of memory. eng_model_close unmaps those of a model.
 */
void *eng_arena_map(size_t bytes);
void eng_arena_unmap(void *arena, size_t bytes); /* NULL is fine */

/* Releases the memory of the whole pages in a range of a mapping. */
void eng_arena_give_back(uint8_t *from, size_t bytes);
