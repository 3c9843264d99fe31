/* SPDX-License-Identifier: MIT */
/*
 * Blocks of quantised weights: their values against those of the Python package `gguf` 0.19, whose
 * bits were hashed once, and panels against the values.
 */
#include "engine/kernels/blocks.h"

#include <math.h>

#include "engine/kernels/convert.h"
#include "test.h"

enum { K = 512, N_WEIGHTS = 4096, MAX_BYTES = N_WEIGHTS / 32 * 34 };

static const struct {
    enum kern_src src;
    int d_at, m_at; /* of the F16 numbers in a block; m_at 0: none */
    uint64_t hash;  /* FNV-1a over the values' words */
} types[] = {
    {KERN_SRC_Q4_0, 0, 0, 0xce7c8b6add5f1f25},   {KERN_SRC_Q4_1, 0, 2, 0x2399f93d0674cb9e},
    {KERN_SRC_Q5_0, 0, 0, 0x4367bf08192e1b25},   {KERN_SRC_Q5_1, 0, 2, 0x53fc03eb991d2a69},
    {KERN_SRC_Q8_0, 0, 0, 0xd0ef8db8f26e9325},   {KERN_SRC_Q3_K, 108, 0, 0x2773e07701f47f65},
    {KERN_SRC_Q4_K, 0, 2, 0x4472360b747c22f5},   {KERN_SRC_Q5_K, 0, 2, 0xbd72ec4a2301d3e6},
    {KERN_SRC_Q6_K, 208, 0, 0x88ef5236293d26e5}, {KERN_SRC_IQ4_NL, 0, 0, 0x2dcecde6705527a5},
    {KERN_SRC_IQ4_XS, 0, 0, 0x806c35f27691cd83},
};

enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

/* Blocks of any bits, but with finite scales. */
static void make_blocks(int type, uint8_t *to)
{
    uint32_t state = (uint32_t)type + 1;
    int size = kern_block_bytes(types[type].src),
        n = N_WEIGHTS / kern_block_weights(types[type].src);
    for (int i = 0; i < n * size; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (uint8_t)(state >> 24);
    }
    for (int i = 0; i < n; i++) {
        to[i * size + types[type].d_at + 1] &= 0xbf;
        if (types[type].m_at) to[i * size + types[type].m_at + 1] &= 0xbf;
    }
}

static void test_values(void **state)
{
    (void)state;
    static uint8_t blocks[MAX_BYTES];
    static float values[N_WEIGHTS], again[N_WEIGHTS];
    for (int i = 0; i < N_TYPES; i++) {
        make_blocks(i, blocks);
        kern_blocks_f32(types[i].src, blocks, N_WEIGHTS, values);
        uint64_t hash = 0xcbf29ce484222325;
        for (int k = 0; k < N_WEIGHTS; k++)
            hash = (hash ^ kern_bits(values[k])) * 0x100000001b3;
        REQUIRE_MSG(hash == types[i].hash, "type %d: %llx", i, (unsigned long long)hash);
        memcpy(again, blocks, sizeof(blocks)); /* in place */
        kern_blocks_f32(types[i].src, again, N_WEIGHTS, again);
        REQUIRE_MSG(memcmp(again, values, sizeof(values)) == 0, "type %d", i);
    }
}

static void test_finite(void **state)
{
    (void)state;
    static uint8_t blocks[MAX_BYTES];
    for (int i = 0; i < N_TYPES; i++) {
        int last = N_WEIGHTS - kern_block_weights(types[i].src);
        int size = kern_block_bytes(types[i].src);
        for (int second = 0; second <= (types[i].m_at > 0); second++) {
            make_blocks(i, blocks);
            REQUIRE(kern_blocks_finite(types[i].src, blocks, N_WEIGHTS));
            uint8_t *block = blocks + last / kern_block_weights(types[i].src) * size;
            block[(second ? types[i].m_at : types[i].d_at) + 1] |= 0x7c;
            REQUIRE_MSG(!kern_blocks_finite(types[i].src, blocks, N_WEIGHTS), "type %d", i);
            REQUIRE(kern_blocks_finite(types[i].src, blocks, last));
        }
    }
}

/* What is packed is unpacked to the values, bit for bit; rows that are not there are zeros. */
static void check_panel(int type, const struct kern *kern)
{
    static uint8_t blocks[MAX_BYTES], panel[2 * KERN_PANEL * K] __attribute__((aligned(64)));
    enum kern_src src = types[type].src;
    enum kern_wfmt form = kern_blocks_form(src);
    int row_bytes = K / kern_block_weights(src) * kern_block_bytes(src);
    const void *rows[KERN_PANEL];
    float want[K], got[K];
    make_blocks(type, blocks);
    for (int n = 0; n < KERN_PANEL; n++)
        rows[n] = n == 5 ? NULL : blocks + n % (N_WEIGHTS / K) * row_bytes;
    REQUIRE(kern_panel_bytes(form, K) <= sizeof(panel));
    kern_pack_panel(kern, form, src, rows, NULL, K, K, NULL, panel);
    for (int n = 0; n < KERN_PANEL; n++) {
        memset(want, 0, sizeof(want));
        if (rows[n]) kern_blocks_f32(src, rows[n], K, want);
        kern->unpack_row(form, panel, n, K, got);
        for (int k = 0; k < K; k++) {
            float tolerance = src == KERN_SRC_IQ4_XS ? fabsf(want[k]) * 0x1p-10f + 1e-6f : 0;
            REQUIRE_MSG(fabsf(got[k] - want[k]) <= tolerance, "type %d, row %d, k %d: %g, not %g",
                        type, n, k, (double)got[k], (double)want[k]);
        }
    }
}

static void test_panels(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++)
        check_panel(i, kern_select("c"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_finite),
        cmocka_unit_test(test_panels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
