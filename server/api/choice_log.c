/* SPDX-License-Identifier: MIT */
/* The log of a choice's tokens; see choice_log.h. */
#include "server/api/choice_log.h"

#include <assert.h>
#include <string.h>

/* A log begins at a multiple of 16 bytes and its rows of tops follow the records directly. */
_Static_assert(sizeof(struct gen_record) % _Alignof(struct eng_logprob) == 0, "rows of tops");
_Static_assert(_Alignof(struct gen_record) <= 16 && _Alignof(struct eng_logprob) <= 16, "logs");

int64_t choice_log_bytes(int64_t capacity, int64_t n_top)
{
    int64_t records = capacity * (int64_t)sizeof(struct gen_record);
    int64_t tops = n_top > 0 ? capacity * n_top * (int64_t)sizeof(struct eng_logprob) : 0;
    return (records + tops + 15) / 16 * 16;
}

void choice_log_init(struct gen_log *log, int64_t capacity, int64_t n_top, char **at)
{
    if (!capacity) return;
    log->capacity = capacity;
    log->top_width = n_top > 0 ? (int)n_top : 0;
    log->records = (struct gen_record *)(void *)*at;
    if (log->top_width) log->tops = (struct eng_logprob *)(void *)(log->records + capacity);
    *at += choice_log_bytes(capacity, n_top);
}

void choice_log_append(struct gen_log *log, const struct eng_event *ev)
{
    long long at = atomic_load_explicit(&log->n_written, memory_order_relaxed);
    assert(at < log->capacity);
    int n_top = ev->n_top < log->top_width ? ev->n_top : log->top_width;
    if (!ev->top) n_top = 0;
    log->records[at] = (struct gen_record){ev->id, ev->logprob, n_top};
    if (n_top > 0)
        memcpy(log->tops + at * log->top_width, ev->top, (size_t)n_top * sizeof(*ev->top));
    atomic_store_explicit(&log->n_written, at + 1, memory_order_release);
}
