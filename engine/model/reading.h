/* SPDX-License-Identifier: MIT */
/*
 * How few rows read weights fastest on the machine at hand, found by reading some.
 *
 * One decoding stream waits for weights from memory. Whether 12 bits per bf16 weight are read in
 * three quarters of the time of 16, and whether prefetching by software helps or hinders the
 * processor's own prefetchers, differs between processors by more than a factor of two
 * (tests/bench/AB_LOG.md). Neither changes a bit of any result.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct eng_model;
struct kern;
struct pool;

/*
 * Between eng_model_open and eng_model_fill: sets m->reading, and plans the weights again if they
 * are better not coded. Takes some milliseconds on all threads of the pool and up to 64 MiB of
 * memory, which are released. A model of less than 64 MiB, a model whose products go through BLAS,
 * and a measurement that cannot allocate its memory keep the defaults.
 */
void eng_reading_choose(struct eng_model *m, struct pool *pool);

/*
 * Bytes per second at which the pool's threads read `bytes` (>= 256) at data, 64-byte aligned, and
 * do nothing else: the best of several passes by loads as wide as the kernels', from one to four
 * places at once, with and without prefetching by software. Reads at most the first GiB, 12 times.
 */
double read_speed(const struct kern *kern, const uint8_t *data, size_t bytes, struct pool *pool);
