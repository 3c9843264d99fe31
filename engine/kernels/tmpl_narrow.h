/* SPDX-License-Identifier: MIT */
/* Products of plain rows with narrow panels, see kern_narrow_fn; after tmpl_product.h. */
#pragma once

#include "engine/kernels/tmpl_product.h"

/* Rows whose sums, two for each output, stay in registers. */
#if MAX_ROWS == 12
enum { NARROW_ROWS = 12 };
#define NARROW_HEIGHTS HEIGHTS_12
#else
enum { NARROW_ROWS = 3 };
#define NARROW_HEIGHTS HEIGHTS_4
#endif
enum { NARROW_VECS = KERN_NARROW / VN };

INLINE void narrow_run(const int rows, const bool wide, const float *x, size_t ld, int k_end,
                       const char *w, int n_panels, struct kern_out out)
{
    vf sum[MAX_ROWS][NARROW_VECS][2];
    for (int p = 0; p < n_panels; p++, out.c += KERN_NARROW) {
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < NARROW_VECS; v++)
            sum[i][v][0] = sum[i][v][1] = vf_set1(0.0f);
        for (int k = 0; k < k_end; k += 2, w += (wide ? 8 : 4) * KERN_NARROW) {
            __builtin_prefetch(w + 1536, 0, 2); /* the hardware sees short streams late */
            UNROLL for (int v = 0; v < NARROW_VECS; v++)
            {
                const void *low = w + v * VN * 4, *high = w + (v * VN + KERN_NARROW) * 4;
                vf even = wide ? vf_load(low) : word_half(vi_load(low), 0);
                vf odd = wide ? vf_load(high) : word_half(vi_load(low), 1);
                UNROLL for (int i = 0; i < rows; i++)
                {
                    const float *at = x + (size_t)i * ld + k;
                    sum[i][v][0] = vf_fma(vf_set1(at[0]), even, sum[i][v][0]);
                    sum[i][v][1] = vf_fma(vf_set1(at[1]), odd, sum[i][v][1]);
                }
            }
            loads_in_order();
        }
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < NARROW_VECS; v++)
            store_vec(&out, i, v * VN, vf_add(sum[i][v][0], sum[i][v][1]));
    }
}

static void narrow(const float *x, size_t ld, int n_rows, int k, enum kern_wfmt fmt,
                   const void *panels, int n_panels, const struct kern_out *out)
{
    struct kern_out at = *out;
    for (int n; n_rows > 0; n_rows -= n, x += (size_t)n * ld, at.c += (size_t)n * at.ld) {
        n = n_rows < NARROW_ROWS ? n_rows : NARROW_ROWS;
        if (fmt == KERN_W_F32) switch (n) {
                NARROW_HEIGHTS(HEIGHT_CASE, narrow_run, true, x, ld, k, panels, n_panels, at)
            }
        else
            switch (n) {
                NARROW_HEIGHTS(HEIGHT_CASE, narrow_run, false, x, ld, k, panels, n_panels, at)
            }
    }
}
