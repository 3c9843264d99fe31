/* SPDX-License-Identifier: MIT */
/*
 * Sampling defaults: neutral ones, those of a model's generation_config.json, and the options. The
 * loader reads them once; requests copy them.
 *
 * Threads: safe; no state.
 */
#ifndef HEARTH_SERVER_GENERATION_CONFIG_H
#define HEARTH_SERVER_GENERATION_CONFIG_H

#include <stddef.h>
#include <stdint.h>

struct srv_config;

/* Sampling defaults of requests: an option's, else the model's (option generation-config),
 * else neutral. */
struct srv_defaults {
    double temperature, top_p, min_p, typical_p, repetition_penalty;
    int64_t top_k;
    int64_t seed;       /* -1: a random seed per request */
    int64_t max_tokens; /* -1: the endpoint's default */
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

#endif
