/* SPDX-License-Identifier: MIT */
/* Sizes of packed panels and rows, which all levels share; kernels.h has the layouts. */
#include <assert.h>

#include "engine/kernels/b12.h"
#include "engine/kernels/kernels.h"

enum { F16_BYTES = 2, GROUP_WEIGHTS = KERN_GROUP * KERN_PANEL };
enum { SCALES_BYTES = KERN_PANEL * F16_BYTES, FIFTH_BYTES = GROUP_WEIGHTS / 8 };
enum {
    I8_GROUP_BYTES = GROUP_WEIGHTS + KERN_PANEL * F16_BYTES,
    I6_GROUP_BYTES = GROUP_WEIGHTS * 6 / 8 + 2 * KERN_PANEL,
    I4_GROUP_BYTES = GROUP_WEIGHTS / 2 + KERN_PANEL * F16_BYTES,
};
_Static_assert(KERN_K_ALIGN % KERN_GROUP == 0, "rows are whole groups");
_Static_assert(B12_GROUP_BYTES == GROUP_WEIGHTS * 12 / 8, "12 bits per weight");
_Static_assert(I8_GROUP_BYTES % 64 == 0 && I6_GROUP_BYTES % 64 == 0 && I4_GROUP_BYTES % 64 == 0,
               "panels are 64-byte aligned");

size_t kern_panel_bytes(enum kern_wfmt fmt, int k_pad)
{
    static const size_t group_bytes[KERN_W_COUNT] = {
        [KERN_W_F32] = 4 * GROUP_WEIGHTS,
        [KERN_W_BF16] = 2 * GROUP_WEIGHTS,
        [KERN_W_B12] = B12_GROUP_BYTES,
        [KERN_W_F16] = 2 * GROUP_WEIGHTS,
        [KERN_W_I8] = I8_GROUP_BYTES,
        [KERN_W_I4] = I4_GROUP_BYTES,
        [KERN_W_I4A] = I4_GROUP_BYTES + SCALES_BYTES,
        [KERN_W_I5] = I4_GROUP_BYTES + FIFTH_BYTES,
        [KERN_W_I5A] = I4_GROUP_BYTES + FIFTH_BYTES + SCALES_BYTES,
        [KERN_W_I4K] = I4_GROUP_BYTES,
        [KERN_W_I5K] = I4_GROUP_BYTES + FIFTH_BYTES,
        [KERN_W_I6S] = I6_GROUP_BYTES,
    };
    assert(fmt < KERN_W_COUNT);
    assert(k_pad > 0 && k_pad % KERN_GROUP == 0);
    size_t n_groups = (size_t)k_pad / KERN_GROUP;
    size_t heads = (n_groups + KERN_HEAD_GROUPS - 1) / KERN_HEAD_GROUPS;
    size_t head = fmt == KERN_W_B12 ? b12_head_bytes(k_pad) : heads * (size_t)kern_head_bytes(fmt);
    return head + n_groups * group_bytes[fmt];
}
