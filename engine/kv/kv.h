/* SPDX-License-Identifier: MIT */
/*
 * Pages of KV cache. One page holds KV_PAGE_TOKENS = 32 positions of one sequence for all layers
 * and kv heads, in the layout of the kernels: per (layer, kv head) one K panel (K = d_pad dims, 32
 * positions), then d_pad / 32 V panels (K = 32 positions, 32 dims each).
 *
 * The address space for all pages is reserved at start; a page is touched when it is first handed
 * out, and its memory stays with the process: freed pages are handed out again before new ones.
 * The values of a page that was used before are zeroed when it is handed out, because a masked
 * probability of 0 times a stale NaN would leak between requests.
 *
 * Threads: the pool of pages belongs to the scheduler thread; compute threads only read and write
 * inside the pages of their items.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/kernels.h"

enum { KV_PAGE_TOKENS = 32 };

/* Pages that hold n_tokens positions. */
static inline int64_t kv_pages_of(int64_t n_tokens)
{
    return (n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

enum { KV_MAX_LAYERS = 512 };

/* The part of a page that is a layer's. */
struct kv_layer {
    int n_heads, d_head;
    int d_pad;          /* d_head up to a multiple of 32 */
    size_t panel_bytes; /* of one K panel = of all V panels of one head */
    size_t at;          /* offset in the page */
};

struct kv_layout {
    int n_layers;
    enum kern_kvfmt fmt;
    size_t dim_bytes; /* of 32 positions */
    size_t page_bytes;
    const float *key_centre; /* subtracted from each key: that of a head from kv_first_dim on, see
                              * engine/key_centre.h; NULL: nothing. Borrowed */
    struct kv_layer layers[KV_MAX_LAYERS];
};

/* n_layers of the same shape, 0 for none yet. Sizes are the model's, checked when it was opened. */
void kv_layout_init(struct kv_layout *l, int n_layers, int n_heads, int d_head,
                    enum kern_kvfmt fmt);
/* One more layer. */
void kv_layout_add(struct kv_layout *l, int n_heads, int d_head);

/* Offsets of the K panel, and of the first V panel, of a layer and kv head in a page. */
static inline size_t kv_key_offset(const struct kv_layout *l, int layer, int head)
{
    return l->layers[layer].at + (size_t)head * 2 * l->layers[layer].panel_bytes;
}
static inline size_t kv_value_offset(const struct kv_layout *l, int layer, int head)
{
    return kv_key_offset(l, layer, head) + l->layers[layer].panel_bytes;
}
/* Padded dims of all heads before one; of {n_layers, 0} those of all. */
static inline size_t kv_first_dim(const struct kv_layout *l, int layer, int head)
{
    return (layer < l->n_layers ? kv_key_offset(l, layer, head) : l->page_bytes) /
           (2 * l->dim_bytes);
}

struct kv_pages;

/* Reserves address space for n_pages pages (>= 1). Returns owned, or ENG_EINVAL, ENG_ENOMEM. */
int kv_pages_create(struct kv_pages **ret, const struct kv_layout *layout, int n_pages, char *err,
                    size_t errlen);
/* NULL is fine. */
void kv_pages_destroy(struct kv_pages *p);

/* A free page with one reference, its values zero, or -1 if none is free. */
int32_t kv_page_get(struct kv_pages *p);
void kv_page_ref(struct kv_pages *p, int32_t page);
/* Drops one reference; with the last one the page is free again. */
void kv_page_unref(struct kv_pages *p, int32_t page);
int kv_page_refs(const struct kv_pages *p, int32_t page);
/* 64-byte aligned, layout->page_bytes long. */
uint8_t *kv_page_data(const struct kv_pages *p, int32_t page);
/* Zeroes the values of one position, in every layer and head. */
void kv_page_clear(const struct kv_pages *p, const struct kern *kern, int32_t page, int slot);
/* Positions at the start of a page that a draft model (drafter.h) has computed for its tokens
 * too: 0 for a page that kv_page_get returns. */
int kv_page_drafted(const struct kv_pages *p, int32_t page);
void kv_page_set_drafted(struct kv_pages *p, int32_t page, int n);
int kv_pages_free(const struct kv_pages *p);
int kv_pages_total(const struct kv_pages *p);
