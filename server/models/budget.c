/* SPDX-License-Identifier: MIT */
/* Memory that requests may hold; see budget.h. tests/e2e/cgroup_run.py measures the factors. */
#include "server/models/budget.h"

#include <unistd.h>

#include "engine/engine.h"
#include "server/bounds.h"
#include "server/config/config.h"

enum {
    SHARE = 16,                  /* of the memory: what connections get, and what bodies get */
    CONNECTION_BYTES = 76 << 10, /* the library's pool, which a first request touches, and ours */
    MAX_CONNECTIONS = 1024,
    MIN_CONNECTIONS = 64,
    TEXT_FACTOR =
        28, /* bytes per byte of a body, from JSON to ids: one long piece of a tokenizer */
    BODY_STEP_BYTES = 64 << 10,
    MAX_BODY_BYTES = 4 << 20,
};

static int clamp(int64_t value, int low, int high)
{
    return (int)(value < low ? low : value > high ? high : value);
}

/* Bodies held, and the large ones that are worked on at once. */
static int64_t bodies_held(const struct srv_config *c)
{
    return SRV_BODIES_FACTOR + (int64_t)TEXT_FACTOR * srv_large_texts(c->text_workers);
}

int srv_budget_settle(struct srv_config *c)
{
    int64_t asked = c->memory_bytes, most = eng_memory_limit(asked), share = most / SHARE;
    if (asked > most) {
        c->memory_bytes = most;
        if (srv_config_warn(c,
                            "memory is %lld MiB, but the cgroup of this process allows %lld MiB: "
                            "the smaller holds",
                            (long long)(asked >> 20), (long long)(most >> 20)))
            return -1;
    }
    if (!c->text_workers) /* wakes, small requests, large ones */
        c->text_workers = clamp(sysconf(_SC_NPROCESSORS_ONLN) / 2, 3, 4);
    if (!c->max_connections)
        c->max_connections = clamp(share / CONNECTION_BYTES, MIN_CONNECTIONS, MAX_CONNECTIONS);
    if (!c->max_body_bytes) {
        int64_t steps = share / bodies_held(c) / BODY_STEP_BYTES;
        c->max_body_bytes = clamp(steps * BODY_STEP_BYTES, BODY_STEP_BYTES, MAX_BODY_BYTES);
    }
    return 0;
}

int64_t srv_budget_bytes(const struct srv_config *c)
{
    return ((int64_t)c->max_connections + SRV_CONNECTION_MARGIN) * CONNECTION_BYTES +
           (bodies_held(c) + SRV_SMALL_BODIES_FACTOR) * c->max_body_bytes +
           (int64_t)(c->text_workers - 1) * TEXT_FACTOR * SRV_SMALL_BODY_BYTES;
}
