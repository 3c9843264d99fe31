/* SPDX-License-Identifier: MIT */
/* Selects a kernel level, and the format of weights on it. Any thread. */
#include "engine/kernels/blocks.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/levels.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

/* Lowest first; each needs its own flags and is faster than the ones before; but see kern_best. */
static const struct {
    const struct kern *table;
    unsigned needs;
} levels[] = {
    {&kern_ref, 0},
#if defined(__x86_64__)
    {&kern_avx2, KERN_CPU_AVX2},
    {&kern_avx2vnni, KERN_CPU_AVX2 | KERN_CPU_AVX_VNNI},
    {&kern_avx512, KERN_CPU_AVX512},
    {&kern_avx512vnni, KERN_CPU_AVX512 | KERN_CPU_AVX512_VNNI},
    {&kern_avx512bf16, KERN_CPU_AVX512 | KERN_CPU_AVX512_VNNI | KERN_CPU_AVX512_BF16},
    {&kern_avx512amx, KERN_CPU_AVX512 | KERN_CPU_AVX512_VNNI | KERN_CPU_AVX512_BF16 | KERN_CPU_AMX},
#elif defined(__aarch64__)
    {&kern_neon, KERN_CPU_NEON},
    {&kern_neondot, KERN_CPU_NEON | KERN_CPU_NEON_DOT},
    {&kern_neonbf16, KERN_CPU_NEON | KERN_CPU_NEON_DOT | KERN_CPU_NEON_BF16},
#endif
};

/* The same names, for messages. */
static const char *const names[] = {
    "c",
#if defined(__x86_64__)
    "avx2", "avx2vnni", "avx512", "avx512vnni", "avx512bf16", "avx512amx",
#elif defined(__aarch64__)
    "neon", "neondot", "neonbf16",
#endif
    NULL,
};

enum { N_LEVELS = sizeof(levels) / sizeof(levels[0]) };
_Static_assert(sizeof(names) / sizeof(names[0]) == N_LEVELS + 1, "one name per level");

static bool runs_on(int level, unsigned cpu)
{
    return (cpu & levels[level].needs) == levels[level].needs;
}

static bool runs_here(int level)
{
    return runs_on(level, kern_cpu_flags());
}

static int level_find(const char *name)
{
    for (int i = 0; i < N_LEVELS; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

const char *kern_best(unsigned cpu, double bf16_rate)
{
    int best = 0;
    for (int i = 1; i < N_LEVELS; i++)
        if (runs_on(i, cpu) && (bf16_rate >= 1 || strcmp(names[i], "avx512bf16") != 0)) best = i;
    return names[best];
}

static double measured_rate; /* 0: not measured, as no level has that product */

static void measure_rate(void)
{
#if defined(__x86_64__)
    measured_rate = kern_bf16_rate();
#endif
}

/* The rate is measured where it decides: not where there are tiles, or no bf16 dot product. */
const char *kern_automatic(double *ret_bf16_rate)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    unsigned cpu = kern_cpu_flags();
    const char *best = kern_best(cpu, 1);
    *ret_bf16_rate = 0;
    if (strcmp(best, "avx512bf16") != 0) return best;
    pthread_once(&once, measure_rate);
    *ret_bf16_rate = measured_rate;
    return kern_best(cpu, measured_rate);
}

const struct kern *kern_select(const char *limit)
{
    double rate;
    if (!limit || strcmp(limit, "auto") == 0)
        return levels[level_find(kern_automatic(&rate))].table;
    return kern_runs_here(limit) ? levels[level_find(limit)].table : NULL;
}

const char *const *kern_names(void)
{
    return names;
}

bool kern_runs_here(const char *name)
{
    int i = level_find(name);
    return i >= 0 && runs_here(i);
}

enum kern_wfmt kern_kept_as(const struct kern *kern, enum kern_wfmt fmt, int k_pad)
{
    bool b12 = fmt == KERN_W_BF16 && kern->prefers_b12 && k_pad <= KERN_B12_MAX_K;
    return b12 ? KERN_W_B12 : fmt;
}

bool kern_pack_panel(const struct kern *kern, enum kern_wfmt fmt, enum kern_src src,
                     const void *const rows[KERN_PANEL], const float *importance, int k, int k_pad,
                     void *words, void *panel)
{
    bool b12 = fmt == KERN_W_B12;
    assert(k > 0 && k <= k_pad);
    assert(!b12 || k_pad <= KERN_B12_MAX_K);
    if (kern_is_blocks(src)) {
        assert(fmt == kern_blocks_form(src));
        kern_pack_blocks(src, rows, k, k_pad, panel);
        return true;
    }
    kern->pack_panel(b12 ? KERN_W_BF16 : fmt, src, rows, importance, k, k_pad, b12 ? words : panel);
    return !b12 || kern->encode_panel(words, k_pad, panel);
}
