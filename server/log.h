/* SPDX-License-Identifier: MIT */
/*
 * The only writer to stderr. A line is made in a bounded buffer and written by one write(2);
 * control characters are escaped, so nothing from outside can forge a line or drive a terminal.
 *
 * Threads: safe after srv_log_init, which runs before any other thread exists.
 */
#ifndef HEARTH_SERVER_LOG_H
#define HEARTH_SERVER_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum srv_log_level { SRV_LOG_ERROR, SRV_LOG_WARNING, SRV_LOG_INFO, SRV_LOG_DEBUG };

/* Names as the options have them; NULL: format auto, level info. */
void srv_log_init(const char *format, const char *level);

void srv_log(enum srv_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* One line for each request: facts and texts that may come from outside. Strings may be NULL. */
struct srv_log_access {
    const char *request_id, *method, *path, *model, *endpoint, *finish_reason, *trace_parent,
        *session_id;
    const char *peer;
    int status;                 /* 0: no answer was sent */
    bool gone;                  /* the client left, or was cut, before the end */
    int64_t n_prompt_tokens, n_cached_tokens, n_generated_tokens;
    int64_t queue_us, ttft_us;  /* -1: never */
    int64_t total_us;
    size_t sent_bytes;
};
void srv_log_access(const struct srv_log_access *a);

#endif
