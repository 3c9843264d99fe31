/* SPDX-License-Identifier: MIT */
/* The numeric paths, one row each. */
#include "engine/model/numerics.h"

#include <stddef.h>
#include <string.h>

/* Name, activations, keeps the source, keeps blocks; formats: matrix, fine, head, KV. */
static const struct eng_numerics paths[] = {
    {"exact", KERN_A_F32, true, false, KERN_W_F32, KERN_W_F32, KERN_W_F32, KERN_KV_F32},
    {"bf16", KERN_A_BF16, false, false, KERN_W_BF16, KERN_W_BF16, KERN_W_BF16, KERN_KV_BF16},
    {"int8", KERN_A_I8, false, false, KERN_W_I8, KERN_W_I8, KERN_W_I8, KERN_KV_I8},
    {"file", KERN_A_I8, false, true, KERN_W_I8, KERN_W_I8, KERN_W_I8, KERN_KV_BF16},
    {"int4", KERN_A_I8, false, false, KERN_W_I4K, KERN_W_I5K, KERN_W_I6S, KERN_KV_I8},
};

enum { N_PATHS = sizeof(paths) / sizeof(paths[0]) };

const struct eng_numerics *eng_numerics_find(const char *name)
{
    for (int i = 0; i < N_PATHS; i++)
        if (strcmp(paths[i].name, name) == 0) return &paths[i];
    return NULL;
}

const char *const *eng_path_names(void)
{
    static const char *const names[N_PATHS + 1] = {"exact", "bf16", "int8", "file", "int4", NULL};
    return names;
}
