/* SPDX-License-Identifier: MIT */
/* Sizes of packed panels and rows, which all levels share; kernels.h has the layouts. */
#include "engine/kernels/b12.h"
#include "engine/kernels/kernels.h"

size_t kern_panel_bytes(enum kern_wfmt fmt, int k_pad)
{
    static const size_t group_bytes[KERN_W_COUNT] = {
        [KERN_W_F32] = 4096, [KERN_W_BF16] = 2048, [KERN_W_B12] = B12_GROUP_BYTES,
        [KERN_W_I8] = 1088,  [KERN_W_I4] = 576,
    };
    size_t head = fmt == KERN_W_B12 ? b12_head_bytes(k_pad) : 0;
    return head + (size_t)k_pad / KERN_GROUP * group_bytes[fmt];
}

size_t kern_act_bytes(enum kern_afmt fmt, int k_pad)
{
    static const size_t group_bytes[KERN_A_COUNT] = {
        [KERN_A_F32] = 128,
        [KERN_A_BF16] = 64,
        [KERN_A_I8] = 32 + sizeof(float) + sizeof(int32_t),
    };
    return (size_t)k_pad / KERN_GROUP * group_bytes[fmt];
}
