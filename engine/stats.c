/* SPDX-License-Identifier: MIT */
/* Statistics of engines; see job_types.h. */
#include <stddef.h>

#include "engine/job_types.h"

/* Adds the counts that two structs of one type have from this offset to their end. */
static void add_counts(void *sum, const void *s, size_t from, size_t end)
{
    for (; from < end; from += sizeof(uint64_t))
        *(uint64_t *)(void *)((char *)sum + from) +=
            *(const uint64_t *)(const void *)((const char *)s + from);
}

/* Models share a directory, and one that drains has the same as its successor. */
static void add_kv_disk(struct eng_kv_disk_stats *sum, const struct eng_kv_disk_stats *s)
{
    sum->on |= s->on;
    sum->paused |= s->paused;
    if (s->bytes > sum->bytes) sum->bytes = s->bytes;
    sum->n_pages += s->n_pages;
    add_counts(sum, s, offsetof(struct eng_kv_disk_stats, n_restores), sizeof(*s));
}

void eng_stats_add(struct eng_stats *sum, const struct eng_stats *s, bool with_pages)
{
    add_kv_disk(&sum->kv_disk, &s->kv_disk);
    sum->n_running += s->n_running;
    sum->n_spare += s->n_spare;
    sum->n_waiting += s->n_waiting;
    sum->n_waiting_tokens += s->n_waiting_tokens;
    add_counts(sum, s, offsetof(struct eng_stats, n_steps), sizeof(*s));
    if (!with_pages) return;
    sum->n_pages_total += s->n_pages_total;
    sum->n_pages_used += s->n_pages_used;
    sum->n_pages_cached += s->n_pages_cached;
    sum->n_pages_kept += s->n_pages_kept;
    sum->n_snapshots_total += s->n_snapshots_total;
    sum->n_snapshots += s->n_snapshots;
    if (!sum->drafts_since_ms || (s->drafts_since_ms && s->drafts_since_ms < sum->drafts_since_ms))
        sum->drafts_since_ms = s->drafts_since_ms;
}

void eng_stats_count_step(struct eng_stats *s, uint64_t n_tokens)
{
    int i = 0;
    while (i < ENG_STEP_SIZES - 1 && n_tokens > (uint64_t)eng_step_size(i))
        i++;
    s->n_steps_of_size[i]++;
    s->n_step_tokens += n_tokens;
}
