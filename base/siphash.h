/* SPDX-License-Identifier: MIT */
/*
 * SipHash-2-4 (Aumasson and Bernstein 2012): short names for what strangers send, which they cannot
 * make collide without the key. Pure; any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t siphash(const uint64_t key[2], const void *data, size_t len);
