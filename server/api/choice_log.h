/* SPDX-License-Identifier: MIT */
/*
 * The tokens of one choice, or of one prompt, on their way from the engine to the text worker.
 *
 * A log is sized at admission for all that can come, so the engine never waits for a client. A
 * record is written once and then published by an atomic count.
 *
 * Threads: one writer (the engine's), one reader (the text worker that holds the request), no lock.
 */
#ifndef HEARTH_SERVER_API_CHOICE_LOG_H
#define HEARTH_SERVER_API_CHOICE_LOG_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

/* A token as the engine reported it. */
struct gen_record {
    int32_t id;
    float logprob;
    int32_t n_top;
};

struct gen_log {
    struct gen_record *records; /* [capacity] */
    struct eng_logprob *tops;   /* [capacity][top_width], or NULL */
    int64_t capacity;
    int top_width;          /* of a row of tops; 0: none */
    atomic_llong n_written; /* published by the engine thread */
    int64_t n_read;         /* the text worker's */
};

/* Bytes of a log of `capacity` tokens, a multiple of 16. No overflow below 2^40 tokens. */
int64_t choice_log_bytes(int64_t capacity, int64_t n_top);

/*
 * Lays a log out in the zeroed, 16-byte aligned memory at *at, which it borrows, and moves *at
 * behind it. n_top <= 0: no likeliest tokens. No capacity: no log, and no bytes of *at.
 */
void choice_log_init(struct gen_log *log, int64_t capacity, int64_t n_top, char **at);

/* Engine thread: adds the event's token; there must be room. */
void choice_log_append(struct gen_log *log, const struct eng_event *ev);

/* The likeliest tokens of record i; NULL if none were asked for. */
static inline const struct eng_logprob *gen_log_top(const struct gen_log *log, int64_t i)
{
    return log->tops ? log->tops + i * log->top_width : NULL;
}

#endif
