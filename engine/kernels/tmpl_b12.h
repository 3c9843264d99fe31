/* SPDX-License-Identifier: MIT */
/*
 * Decoding of b12.h's panels, written once over the operations of a simd_*.h: a table lookup for
 * the upper bytes, and two vectors of bytes interleaved within each 16.
 */
#pragma once

#include "engine/kernels/b12.h"

enum { CODE_VECS = 64 / (VN * 4) };

/*
 * The words of `vecs` vectors of outputs, of pair 0 or 1 of a block: half a panel's or all of them.
 */
INLINE void b12_pair(const int vecs, const int pair, const bool upper, vi table, const char *block,
                     vi w[2 * CODE_VECS])
{
    UNROLL for (int v = 0; v < CODE_VECS; v++)
    {
        vi codes = vi_load(block + v * VN * 4), low = vi_load(block + 64 + pair * 64 + v * VN * 4);
        vi high = vi_lookup(table, vi_and(pair ? vi_shr(codes, 4) : codes, vi_set1(0x0f0f0f0f)));
        w[v] = upper ? vi_zip_high(low, high) : vi_zip_low(low, high);
        if (vecs > CODE_VECS) w[CODE_VECS + v] = vi_zip_high(low, high);
    }
}

/* One group to [16][32][2] words. */
INLINE void b12_decode(vi table, const char *block, char *to)
{
    for (int k = 0; k < KERN_GROUP / 2; k += 2, block += B12_BLOCK_BYTES)
        UNROLL for (int pair = 0; pair < 2; pair++, to += 128)
        {
            vi w[2 * CODE_VECS];
            b12_pair(2 * CODE_VECS, pair, false, table, block, w);
            UNROLL for (int v = 0; v < 2 * CODE_VECS; v++) vi_store(to + v * VN * 4, w[v]);
        }
}
