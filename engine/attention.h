/* SPDX-License-Identifier: MIT */
/*
 * Attention of a step's rows over their sequences' pages.
 *
 * For one kv head, the rows of a segment are its (token, query head) pairs, the query heads of the
 * group innermost; tiles of these rows walk the keys in splits of ATTN_SPLIT positions, at absolute
 * multiples. Each split yields scores, a softmax of its own, and a weighted sum of values; splits
 * are merged in ascending order. Any thread may compute a split, so a row's result is the same bits
 * whether one thread walks a long context, many do, or the rows come one by one or in chunks.
 * Sliding windows mask; splits that a row does not see at all do not affect it. In an encoder a
 * row sees the whole text, or a window on both sides; then a segment is a text from its start to
 * its end, and its pages hold one layer at a time.
 *
 * Keys and values of the step's own tokens are stored first: within attn_item if no other item
 * reads them, else by attn_store_item.
 *
 * Threads: attn_begin on the scheduler thread; the item functions on any, inside one pool run.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/gemm.h"

struct eng_model;
struct fwd_segment;
struct eng_hparams;
struct kv_layout;
struct scratch;

/* Plans of a step: of layers with the window's heads, of those with full ones; and of these two the
 * layers that share keys and values, which attend for kept rows alone. */
enum { ATTN_SPLIT = 512, ATTN_PHASES = 3, ATTN_PLANS = 4 };

struct attn;

struct attn_params {
    const struct eng_model *model;
    const struct kv_layout *layout;
    int n_threads;
    int max_rows, max_segs;
    int64_t ctx;
    const float *qkv; /* [max_rows][ld_qkv]: q, k, v of each row; before q its gates, if any */
    size_t ld_qkv;
    float *out; /* [max_rows][ld_out]: heads side by side */
    size_t ld_out;
};

/* The pages of a model. */
void attn_layout(struct kv_layout *ret, const struct eng_hparams *hp, enum kern_kvfmt fmt);

/* The plan of a layer; whether a plan is of layers that share keys and values. */
int attn_plan(const struct eng_hparams *hp, int layer);
static inline bool attn_plan_shares(int plan)
{
    return plan >= 2;
}

/*
 * All plans, cut from s; NULL: while s only counts, and those that no layer has. One of them works
 * at a time. Nothing to destroy.
 */
void attn_init(struct scratch *s, const struct attn_params *params, struct attn *ret[ATTN_PLANS]);

/*
 * Cuts the step's segments into items. segs are borrowed until the step ends; row0[i] is segment
 * i's first row among those of qkv. ret_n_items: of the three phases of every layer, in the order
 * of the functions below; each may be 0.
 */
void attn_begin(struct attn *a, const struct fwd_segment *segs, const int *row0, int n_segs,
                int ret_n_items[ATTN_PHASES]);

/*
 * The keys and values that this step's single tokens will read in one layer, in the order of
 * reading, limited to the amount worth prefetching. They are prefetched while matrices are
 * multiplied.
 */
struct gemm_blocks attn_reads(const struct attn *a, int layer);

void attn_store_item(struct attn *a, int layer, int item, int thread);
void attn_item(struct attn *a, int layer, int item, int thread);
void attn_merge_item(struct attn *a, int layer, int item, int thread);
