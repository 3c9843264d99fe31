/* SPDX-License-Identifier: MIT */
/*
 * Whether models fit into memory together, by their plans: those of the start (catalogue.h), one
 * that is wanted next to those that stay (policy.h, set.h), and the next source of an entry beside
 * all that live (swap.h).
 *
 * Threads: safe; nothing is kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct srv_model_params;

/* The bytes of plans together, and their number. */
struct fit_sum {
    int64_t bytes;
    int n;
};

static inline void fit_add(struct fit_sum *sum, int64_t bytes)
{
    sum->bytes += bytes;
    sum->n++;
}

/* For plans. */
struct fit_room {
    int64_t limit_bytes;
    int max_models; /* 0: as many as fit */
};

/* The part of a sum that is too much: */
static inline struct fit_sum fit_excess(const struct fit_room *room, struct fit_sum sum)
{
    return (struct fit_sum){sum.bytes - room->limit_bytes,
                            room->max_models ? sum.n - room->max_models : 0};
}

/* nothing, if neither number is positive. */
static inline bool fit_is_met(struct fit_sum excess)
{
    return excess.bytes <= 0 && excess.n <= 0;
}

static inline bool fit_holds(const struct fit_room *room, struct fit_sum sum)
{
    return fit_is_met(fit_excess(room, sum));
}

/* The numbers of a refusal. */
struct fit_bytes {
    int64_t needed, available, limit;
};

/* MiB as errors name them, rounded up. */
static inline long long fit_mib(int64_t bytes)
{
    return (long long)((bytes + (1 << 20) - 1) >> 20);
}

/*
 * Plans a model that is loaded beside those that live, whose plans take in_use bytes; kv_bytes of
 * these are the KV cache of the one that it replaces. alone: no other entry is served. Sets the
 * share of params. Returns 0, or an enum eng_error with a sentence in err; *ret are the numbers if
 * there is a plan, else zeros.
 */
int fit_beside(struct fit_bytes *ret, struct srv_model_params *params, int64_t in_use,
               int64_t kv_bytes, bool alone, char *err, size_t errlen);
