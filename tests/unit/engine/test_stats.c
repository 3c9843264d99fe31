/* SPDX-License-Identifier: MIT */
/* Sums of the statistics of engines. */
#include "test.h"

#include "engine/job_types.h"

/* An engine in which each number is another one: n and what follows. */
static struct eng_stats numbers(uint64_t n)
{
    struct eng_stats s = {.n_running = (int)n,
                          .n_waiting = (int)n + 1,
                          .n_waiting_tokens = (int64_t)n + 2,
                          .n_pages_used = (int)n + 3,
                          .n_pages_cached = (int)n + 4,
                          .n_pages_kept = (int)n + 5,
                          .n_pages_total = (int)n + 6,
                          .n_snapshots_total = (int)n + 7,
                          .n_snapshots = (int)n + 8,
                          .drafts_since_ms = (int64_t)n + 9,
                          .last_step_us = n + 10,
                          .prompt_tokens_per_s = (double)n + 11,
                          .n_steps = n + 12,
                          .n_late_masks = n + 13,
                          .n_step_tokens = n + 14};
    s.n_steps_of_size[ENG_STEP_SIZES - 1] = n + 15;
    s.kv_disk = (struct eng_kv_disk_stats){
        .bytes = (int64_t)n + 16, .n_pages = (int64_t)n + 17, .n_restores = n + 18};
    s.kv_disk.n_faults[ENG_KV_FAULTS - 1] = n + 19;
    return s;
}

static void counts_and_queues(void **state)
{
    (void)state;
    struct eng_stats sum = numbers(100), s = numbers(1000);
    s.kv_disk.on = true;
    eng_stats_add(&sum, &s, false);
    REQUIRE_EQ_INT(sum.n_running, 1100);
    REQUIRE_EQ_INT(sum.n_waiting, 1102);
    REQUIRE_EQ_INT(sum.n_waiting_tokens, 1104);
    REQUIRE_EQ_INT(sum.n_steps, 1124);
    REQUIRE_EQ_INT(sum.n_late_masks, 1126);
    REQUIRE_EQ_INT(sum.n_step_tokens, 1128);
    REQUIRE_EQ_INT(sum.n_steps_of_size[ENG_STEP_SIZES - 1], 1130);
    REQUIRE(sum.kv_disk.on && !sum.kv_disk.paused && sum.kv_disk.bytes == 1016);
    REQUIRE_EQ_INT(sum.kv_disk.n_pages, 1134);
    REQUIRE_EQ_INT(sum.kv_disk.n_restores, 1136);
    REQUIRE_EQ_INT(sum.kv_disk.n_faults[ENG_KV_FAULTS - 1], 1138);
    /* What is not added. */
    REQUIRE(sum.n_pages_used == 103 && sum.n_pages_total == 106 && sum.n_snapshots == 108);
    REQUIRE(sum.last_step_us == 110 && sum.drafts_since_ms == 109);
    REQUIRE(sum.prompt_tokens_per_s > 110 && sum.prompt_tokens_per_s < 112);
}

static void pages_too(void **state)
{
    (void)state;
    struct eng_stats sum = {0}, s = numbers(100), later = numbers(200);
    eng_stats_add(&sum, &s, true);
    eng_stats_add(&sum, &later, true);
    REQUIRE(sum.n_pages_used == 306 && sum.n_pages_cached == 308 && sum.n_pages_kept == 310);
    REQUIRE(sum.n_pages_total == 312 && sum.n_snapshots_total == 314 && sum.n_snapshots == 316);
    REQUIRE(sum.drafts_since_ms == 109); /* of the load that began first */
    REQUIRE(sum.kv_disk.bytes == 216);
    later.drafts_since_ms = 0;
    eng_stats_add(&sum, &later, true);
    REQUIRE(sum.drafts_since_ms == 109);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_queues),
        cmocka_unit_test(pages_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
