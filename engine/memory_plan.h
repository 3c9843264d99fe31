/* SPDX-License-Identifier: MIT */
/*
 * The memory limit of this process, and the plan that is checked against it before anything large
 * is allocated.
 *
 * With overcommit allocations rarely fail, so sums are compared instead: weights (with RoPE
 * tables), KV cache, states, scratch, logits, the caller's answers and requests, and an allowance
 * for the program itself.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/forward.h"
#include "engine/params.h"
#include "engine/state.h"

/* For stacks and small data of an engine. */
#define MEM_ALLOWANCE_BYTES ((int64_t)2 << 20)

/*
 * Bytes this process may use: the tightest memory limit of its cgroups (versions 1 and 2, each
 * level up to the root), else three quarters of the physical memory: other processes need some.
 * root is for cgroup_visit: "" except in tests.
 */
int64_t mem_limit_bytes(const char *root);

struct drafters;

struct mem_params {
    struct eng_params own;    /* with defaults filled in, but for context and KV cache */
    struct fwd_params fwd;    /* ctx and pool are not used */
    struct fwd_params urgent; /* an encoder's second one; max_rows 0: none */
    struct state_layout states;
    const struct drafters *drafters; /* with an open draft model; NULL: none */
};

struct mem_plan {
    int n_pages, n_snapshots;
    struct eng_memory memory;
};

/* The sum of a plan's parts; INT64_MAX if it is larger. */
int64_t mem_plan_bytes(const struct eng_memory *m);

/* 0, ENG_EINVAL for a context over the model's, or ENG_ENOMEM with the sums in one sentence. */
int mem_plan_make(struct mem_plan *ret, const struct mem_params *params, char *err, size_t errlen);
