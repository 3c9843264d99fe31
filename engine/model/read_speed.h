/* SPDX-License-Identifier: MIT */
/*
 * How fast memory is read: what the speed of decoding one stream is compared with.
 */
#ifndef HEARTH_ENGINE_MODEL_READ_SPEED_H
#define HEARTH_ENGINE_MODEL_READ_SPEED_H

#include <stddef.h>
#include <stdint.h>

struct kern;
struct pool;

/*
 * Bytes per second at which the pool's threads read `bytes` (>= 256) at data, 64-byte aligned, and
 * do nothing else: the best of several passes by loads as wide as the kernels', from one to four
 * places at once, with and without prefetching by software. Reads at most the first GiB, 12 times.
 */
double read_speed(const struct kern *kern, const uint8_t *data, size_t bytes, struct pool *pool);

#endif
