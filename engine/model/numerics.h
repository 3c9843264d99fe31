/* SPDX-License-Identifier: MIT */
/* Numeric paths: the arithmetic and the formats that a model is served with. Const; any thread. */
#pragma once

#include <stdbool.h>

#include "engine/kernels/kernels.h"

/* One row per path. */
struct eng_numerics {
    const char *name;
    enum kern_afmt act; /* activations into every matrix product */
    bool keep_source;   /* matrices as stored, of parts that differ or are blocks as F32 */
    bool keep_blocks;   /* matrices of blocks in panels of their form */
    /* formats otherwise; BF16 becomes B12 if kernels and weights allow */
    enum kern_wfmt matrix, fine, head;
    enum kern_kvfmt kv; /* KV cache, unless another type is asked for */
};

/* NULL if no path has this name; "auto" has no row. */
const struct eng_numerics *eng_numerics_find(const char *name);

/* Names of all paths, NULL-terminated. */
const char *const *eng_path_names(void);
