/* SPDX-License-Identifier: MIT */
/*
 * Private to tests/check: what the checks and the bench of the kernels share.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/kernels.h"

/* One stream of pseudo-random numbers; the seed is printed on failure. */
uint64_t rnd(void);
int rnd_int(int lo, int hi); /* both included */
float rnd_float(void);       /* in -1 .. 1 */

/* n bytes that end where an unreadable page begins; 64-byte aligned when n is a multiple of 64. */
void *edge_alloc(size_t n);
void edge_free(void *p, size_t n);

/* Times the calls of one level; see check_bench.c. */
int bench_run(const struct kern *kern, const char *filter);
