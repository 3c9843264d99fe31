/* SPDX-License-Identifier: MIT */
/*
 * Sampling defaults: neutral ones, those of a model's generation_config.json, and the options. The
 * loader reads them once; requests copy them.
 *
 * Threads: safe; no state.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

struct srv_config;

/* The sampling parameters as requests and files give them, in their ranges. */
struct srv_sampling {
#define SRV_AS_float double
#define SRV_AS_int int64_t
#define SRV_MEMBER(name, type, ...) SRV_AS_##type name;
    ENG_SAMPLING_PARAMS(SRV_MEMBER)
#undef SRV_MEMBER
#undef SRV_AS_int
#undef SRV_AS_float
};

/* Sampling defaults of requests: an option's, else the model's (option generation-config),
 * else neutral. */
struct srv_defaults {
    struct srv_sampling sampling;
    struct srv_sampling ollama; /* in whose dialect neutral ones are others */
    int64_t seed;               /* -1: a random seed per request */
    int64_t max_tokens;         /* -1: the endpoint's default */
};

/* Temperature 1, everything else off. */
struct srv_defaults srv_defaults_neutral(void);

/*
 * Replaces what DIR/generation_config.json says; a directory without the file changes nothing.
 * Returns 0, or -1 with a sentence in err for a file that cannot be read or a value out of range.
 */
int srv_defaults_read(struct srv_defaults *d, const char *dir, char *err, size_t errlen);

/* Replaces the values that options set; options that were not given change nothing. */
void srv_defaults_override(struct srv_defaults *d, const struct srv_config *c);

/* Sets what these values say of a chain, that is all but its seed, bias and allowed ids. */
void srv_sampling_set(struct eng_sampling *chain, const struct srv_sampling *values);
