/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes blocks of quantised weights: the first byte is the type, the rest the blocks of one row.
 * Values are the same in place; finite scales give finite numbers; and what is packed into a panel
 * is unpacked to the values.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kernels/blocks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_WEIGHTS = 2048 };

static void check_panel(enum kern_src src, const uint8_t *row, int k, const float *values)
{
    static const int checked[] = {6, 7, 31};
    enum kern_wfmt form = kern_blocks_form(src);
    void *panel = aligned_alloc(64, kern_panel_bytes(form, k));
    const void *rows[KERN_PANEL] = {NULL};
    float *got = malloc((size_t)k * sizeof(*got));
    if (!panel || !got) abort();
    rows[7] = rows[31] = row;
    kern_pack_panel(kern_select("c"), form, src, rows, NULL, k, k, NULL, panel);
    for (int at = 0; at < 3; at++) {
        int n = checked[at];
        kern_select("c")->unpack_row(form, panel, n, k, got);
        for (int i = 0; i < k; i++) {
            float want = rows[n] ? values[i] : 0;
            /* its two scales are one F16 in the panel */
            if (src == KERN_SRC_IQ4_XS && rows[n]) continue;
            if (got[i] != want) abort();
        }
    }
    free(got);
    free(panel);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float values[MAX_WEIGHTS], again[MAX_WEIGHTS];
    if (size < 1) return 0;
    enum kern_src src = (enum kern_src)(KERN_SRC_Q4_0 + data[0] % (KERN_SRC_COUNT - KERN_SRC_Q4_0));
    size_t n = (size - 1) / (size_t)kern_block_bytes(src);
    int k = (int)n * kern_block_weights(src);
    if (n == 0 || n > MAX_WEIGHTS / (size_t)kern_block_weights(src)) return 0;
    kern_blocks_f32(src, data + 1, k, values);
    memcpy(again, data + 1, n * (size_t)kern_block_bytes(src));
    kern_blocks_f32(src, again, k, again);
    if (memcmp(values, again, (size_t)k * sizeof(*values)) != 0) abort();
    if (!kern_blocks_finite(src, data + 1, k)) return 0;
    for (int i = 0; i < k; i++)
        if (!isfinite(values[i])) abort();
    check_panel(src, data + 1, k, values);
    return 0;
}
