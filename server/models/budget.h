/* SPDX-License-Identifier: MIT */
/*
 * Memory that the server may hold for requests, besides answers and grammars: connections,
 * bodies, and the work that turns a body into token ids. The options that bound it are chosen to
 * suit the memory where they were left to the server.
 */
#pragma once

#include <stdint.h>

struct srv_config;

/*
 * Lowers memory_bytes to the cgroup's limit, with a warning; for serve it fills max_connections,
 * max_body_bytes and text_workers where they are 0. Returns 0, or -1 when out of memory.
 */
int srv_budget_settle(struct srv_config *c);

/* Bytes of a configuration that is settled. They are shared by all models that are loaded. */
int64_t srv_budget_bytes(const struct srv_config *c);
