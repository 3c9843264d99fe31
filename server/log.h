/* SPDX-License-Identifier: MIT */
/*
 * The only writer to stderr. Control characters are escaped, and spaces and '=' inside the fields
 * of a text line, so input can neither forge a line or field nor control a terminal.
 *
 * A server's lines go through a bounded queue to a thread that writes them, so a thread that logs
 * never waits for the reader of stderr. Lines for which the queue has no room, or which stderr
 * refuses, are dropped and counted; a later line says how many. Without the thread (before
 * srv_log_start, and in the other subcommands) lines are written by the caller.
 *
 * Threads: safe after srv_log_init, which runs before any other thread exists.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum srv_log_level { SRV_LOG_ERROR, SRV_LOG_WARNING, SRV_LOG_INFO, SRV_LOG_DEBUG };

/* format and level: as the options name them; NULL: auto, info. */
void srv_log_init(const char *format, const char *level);

/* Starts the writing thread; it inherits the signal mask, so block signals first. Returns
 * 0, or -1 with err. */
int srv_log_start(char *err, size_t errlen);

/* Waits until all lines are written, at most limit_ms. For the end of the process: a thread stuck
 * in write(2) is left behind. */
void srv_log_flush(int limit_ms);

/* Lines dropped since the start. */
uint64_t srv_log_n_dropped(void);

/* Returns false if the line was dropped. */
bool srv_log(enum srv_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct srv_key_counts;

/* The facts of one request, for its counters and its line in the access log. */
struct srv_account {
    const char *endpoint; /* a fixed string */
    const char *model;    /* borrowed from the request's arena or app */
    int64_t n_prompt_tokens, n_cached_tokens, n_generated_tokens;
    int64_t n_dropped_items;       /* of a chat that was cut */
    int64_t n_choices, max_tokens; /* n, and the most tokens a choice may have; 0: no generation */
    int64_t queue_us, ttft_us;     /* -1: has not happened */
    const char *finish_reason;     /* a fixed string, or NULL */
    const char *key;               /* the name of its key, the arena's; NULL without one, */
    struct srv_key_counts *key_counts; /* and what is counted under it */
    bool spare;                        /* a line of a batch: it counts there and for its key */
};

/* One line per request. Its texts may come from outside. Strings may be NULL. */
struct srv_log_access {
    const char *request_id, *method, *path, *trace_parent, *session_id, *peer;
    const struct srv_account *account;
    int status; /* 0: no answer was sent */
    bool gone;  /* the client left, or was cut, before the end */
    int64_t total_us;
    size_t sent_bytes;
};
void srv_log_access(const struct srv_log_access *a);
