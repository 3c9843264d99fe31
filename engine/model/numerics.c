/* SPDX-License-Identifier: MIT */
/* The numeric paths, one row each. */
#include "engine/model/numerics.h"

#include <stddef.h>
#include <string.h>

static const struct eng_numerics paths[] = {
    {.name = "exact",
     .act = KERN_A_F32,
     .keep_source = true,
     .matrix = KERN_W_F32,
     .head = KERN_W_F32,
     .kv = KERN_KV_F32},
    {.name = "bf16",
     .act = KERN_A_BF16,
     .matrix = KERN_W_BF16,
     .head = KERN_W_BF16,
     .kv = KERN_KV_BF16},
    {.name = "int8", .act = KERN_A_I8, .matrix = KERN_W_I8, .head = KERN_W_I8, .kv = KERN_KV_I8},
    {.name = "file",
     .act = KERN_A_I8,
     .keep_blocks = true,
     .matrix = KERN_W_I8,
     .head = KERN_W_I8,
     .kv = KERN_KV_BF16},
    {.name = "int4", .act = KERN_A_I8, .matrix = KERN_W_I4, .head = KERN_W_I6, .kv = KERN_KV_I8},
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
