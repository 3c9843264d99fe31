/* SPDX-License-Identifier: MIT */
/* Drafts: where they are found, how soon they are in step again, and how long they may be. */
#include "test.h"

#include <math.h>

#include "engine/draft.h"

enum { MAX_TEXT = 4096 };

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* n ids below `vocab`. */
static void fill(int32_t *ids, int n, uint32_t seed, int vocab)
{
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(next_random(&seed) % (uint32_t)vocab);
}

/* The course of a sequence that tries all drafts. */
struct outcome {
    int n_steps, n_tried, n_right; /* steps, ids tried, and those that were right */
    int n_predicted_right, n_predicted_wrong;
};

/* The answer is ids[n_prompt .. n). */
static struct outcome simulate(const int32_t *answer_text, int n_prompt, int n,
                               const int32_t *prediction, int n_prediction)
{
    static int32_t ids[MAX_TEXT + DRAFT_MAX];
    struct draft d;
    struct outcome o = {0};
    struct draft_text t = {ids, n_prompt, prediction, n_prediction};
    memcpy(ids, answer_text, (size_t)n_prompt * sizeof(*ids));
    draft_begin(&d, &t);
    while (t.n < n) {
        int tried = draft_copy(&d, &t, DRAFT_MAX, ids + t.n), right = 0;
        while (right < tried && t.n + right + 1 < n && ids[t.n + right] == answer_text[t.n + right])
            right++;
        o.n_steps++;
        o.n_tried += tried;
        o.n_right += right;
        for (int i = 0; i <= right; i++) {
            ids[t.n] = answer_text[t.n];
            t.n++;
            int noted = draft_note(&d, &t);
            o.n_predicted_right += noted > 0;
            o.n_predicted_wrong += noted < 0;
        }
    }
    return o;
}

/* ---- a guide as a source --------------------------------------------------------------------- */

/* Ids that a guide proposes are tried while they prove right, and no longer once they do not. */
static void test_forced_ids(void **state)
{
    (void)state;
    int32_t ids[300], draft[DRAFT_MAX];
    const int32_t certain[] = {70001, 70002, 70003};
    struct draft d;
    struct draft_text t = {ids, 200, NULL, 0};
    fill(ids, 300, 1, 50000);
    draft_begin(&d, &t);
    REQUIRE_EQ_INT(draft_copy(&d, &t, DRAFT_MAX, draft), 0);
    draft_force(&d, certain, 3);
    REQUIRE_EQ_INT(draft_copy(&d, &t, DRAFT_MAX, draft), 3);
    REQUIRE(draft[0] == 70001 && draft[2] == 70003);
    REQUIRE_EQ_INT(draft_copy(&d, &t, 2, draft), 2);
    double first = draft_rate(&d, 0);
    ids[t.n++] = 70001;
    REQUIRE_EQ_INT(draft_note(&d, &t), 0); /* no prediction */
    REQUIRE(draft_rate(&d, 0) > first);
    REQUIRE_EQ_INT(draft_copy(&d, &t, DRAFT_MAX, draft), 2);
    REQUIRE_EQ_INT(draft[0], 70002);
    ids[t.n++] = 5;
    draft_note(&d, &t);
    REQUIRE_EQ_INT(draft_copy(&d, &t, DRAFT_MAX, draft), 0);
    for (int i = 0; i < 40; i++) { /* always wrong */
        draft_force(&d, certain, 3);
        t.n++;
        draft_note(&d, &t);
    }
    draft_force(&d, certain, 3);
    REQUIRE(draft_rate(&d, 0) < 0.01);
}

/* The text is the source where it has been right more often. */
static void test_forced_ids_beside_the_text(void **state)
{
    (void)state;
    int32_t ids[400], draft[DRAFT_MAX];
    const int32_t certain[] = {70001};
    struct draft d;
    struct draft_text t = {ids, 200, NULL, 0};
    fill(ids, 200, 1, 50000);
    memcpy(ids + 200, ids + 50, 100 * sizeof(*ids));
    draft_begin(&d, &t);
    for (; t.n < 280; t.n++, draft_note(&d, &t))
        draft_force(&d, certain, 1);
    REQUIRE_EQ_INT(draft_copy(&d, &t, DRAFT_MAX, draft), DRAFT_MAX);
    REQUIRE_EQ_INT(draft[0], ids[280]);
}

/* ---- the text as a source -------------------------------------------------------------------- */

/* Copies a passage of its prompt: after three ids every step gives eight. */
static void test_copies_the_prompt(void **state)
{
    (void)state;
    int32_t ids[400];
    fill(ids, 200, 1, 50000);
    memcpy(ids + 200, ids + 50, 100 * sizeof(*ids));
    struct outcome o = simulate(ids, 200, 300, NULL, 0);
    REQUIRE_EQ_INT(o.n_predicted_right + o.n_predicted_wrong, 0);
    REQUIRE_MSG(o.n_steps <= 2 + (98 + 7) / 8, "%d steps", o.n_steps);
    REQUIRE_EQ_INT(o.n_right, 100 - o.n_steps);
}

/* Text of random ids proposes nothing; text that repeats itself proposes all of it. */
static void test_random_and_repeated_text(void **state)
{
    (void)state;
    int32_t ids[600];
    fill(ids, 600, 2, 50000);
    struct outcome o = simulate(ids, 100, 600, NULL, 0);
    REQUIRE_EQ_INT(o.n_steps, 500);
    REQUIRE_EQ_INT(o.n_tried, 0);
    for (int period = 1; period < 12; period++) {
        for (int i = 100; i < 600; i++)
            ids[i] = 7 + i % period;
        o = simulate(ids, 100, 600, NULL, 0);
        REQUIRE_MSG(o.n_steps <= period + 3 + 500 / 8, "period %d: %d steps", period, o.n_steps);
    }
}

/* The last place behind three equal ids, else two: found id by id. */
static int64_t search_slowly(const int32_t *ids, int n)
{
    for (int same = 3; same >= 2; same--)
        for (int at = n - 1; at >= same; at--)
            if (memcmp(ids + at - same, ids + n - same, (size_t)same * sizeof(*ids)) == 0)
                return at;
    return -1;
}

static void test_finds_the_last_place(void **state)
{
    (void)state;
    int32_t ids[300];
    for (uint32_t seed = 0; seed < 60; seed++) {
        fill(ids, 300, seed, seed % 2 ? 4 : 12);
        for (int n = 0; n <= 300; n++) {
            struct draft d;
            struct draft_text t = {ids, n, NULL, 0};
            draft_begin(&d, &t);
            int64_t want = n < 3 ? -1 : search_slowly(ids, n);
            REQUIRE_MSG(d.next == want, "seed %u, %d ids: %d, not %d", seed, n, (int)d.next,
                        (int)want);
        }
    }
}

/* ---- predictions ----------------------------------------------------------------------------- */

static void test_right_prediction(void **state)
{
    (void)state;
    int32_t ids[500];
    fill(ids, 500, 3, 50000);
    struct outcome o = simulate(ids, 20, 500, ids + 20, 480);
    REQUIRE_EQ_INT(o.n_steps, 480 / 8);
    REQUIRE_EQ_INT(o.n_predicted_right, 480);
    REQUIRE_EQ_INT(o.n_predicted_wrong, 0);
}

static void test_replaced_ids(void **state)
{
    (void)state;
    int32_t ids[1020], prediction[1000];
    uint32_t seed = 4;
    int n_wrong = 0;
    fill(ids, 1020, 5, 50000);
    for (int i = 0; i < 1000; i++) {
        bool wrong = next_random(&seed) % 10 == 0;
        prediction[i] = wrong ? 60000 : ids[20 + i];
        n_wrong += wrong;
    }
    struct outcome o = simulate(ids, 20, 1020, prediction, 1000);
    REQUIRE_MSG(o.n_steps < 1000 / 4, "%d steps", o.n_steps);
    REQUIRE_MSG(o.n_predicted_wrong <= n_wrong + 2, "%d wrong of %d", o.n_predicted_wrong, n_wrong);
    REQUIRE_MSG(o.n_predicted_right >= 1000 - n_wrong - 40, "%d right", o.n_predicted_right);
}

/* The answer leaves out 30 ids of the prediction, and has 30 more elsewhere. */
static void test_inserted_and_removed_ids(void **state)
{
    (void)state;
    int32_t ids[700], prediction[600];
    fill(prediction, 600, 6, 50000);
    fill(ids, 700, 7, 50000);
    memcpy(ids + 50, prediction, 200 * sizeof(*ids));
    memcpy(ids + 250, prediction + 230, 100 * sizeof(*ids)); /* 30 removed */
    memcpy(ids + 380, prediction + 330, 270 * sizeof(*ids)); /* 30 inserted */
    struct outcome o = simulate(ids, 50, 650, prediction, 600);
    REQUIRE_MSG(o.n_steps < 30 + 570 / 8 + 12, "%d steps", o.n_steps);
    REQUIRE_MSG(o.n_predicted_right > 560, "%d right", o.n_predicted_right);
    REQUIRE_MSG(o.n_predicted_wrong < 8, "%d wrong", o.n_predicted_wrong);
}

/* A prediction that has nothing to do with the answer does not keep the text from being one. */
static void test_useless_prediction(void **state)
{
    (void)state;
    int32_t ids[400], prediction[300];
    fill(ids, 200, 8, 50000);
    fill(prediction, 300, 9, 50000);
    memcpy(ids + 200, ids + 20, 150 * sizeof(*ids));
    struct outcome o = simulate(ids, 200, 350, prediction, 300);
    REQUIRE_EQ_INT(o.n_predicted_right, 0);
    REQUIRE_MSG(o.n_predicted_wrong <= 2, "%d wrong", o.n_predicted_wrong);
    REQUIRE_MSG(o.n_steps < 150 / 8 + 8, "%d steps", o.n_steps);
    for (int n = 1; n < 5; n++) { /* and may be short */
        o = simulate(ids, 200, 350, prediction, n);
        REQUIRE_MSG(o.n_steps < 150 / 8 + 8, "%d ids: %d steps", n, o.n_steps);
        o = simulate(ids, 200, 350, ids + 200, n);
        REQUIRE_EQ_INT(o.n_predicted_right, n);
    }
}

/* ---- lengths ----------------------------------------------------------------------------------- */

static struct draft with_rate(float rate)
{
    struct draft d = {.next = 1, .n_agreed = 9};
    for (int i = 0; i < DRAFT_TRUSTS; i++)
        d.rate[i] = rate;
    return d;
}

static int length(float rate, double row_cost, int n_seqs)
{
    struct draft d = with_rate(rate);
    double n_tokens = n_seqs;
    int n_rows = n_seqs, n = draft_length(&d, DRAFT_MAX, row_cost, &n_tokens, &n_rows);
    REQUIRE_EQ_INT(n_rows, n_seqs + n);
    REQUIRE(n_tokens >= n_seqs && n_tokens <= n_seqs + n);
    return n;
}

static void test_lengths(void **state)
{
    (void)state;
    REQUIRE_EQ_INT(length(0.95f, 0.03, 1), DRAFT_MAX);
    REQUIRE_EQ_INT(length(0.02f, 0.03, 1), 0);
    REQUIRE_EQ_INT(length(0.2f, 0.03, 1), 1);
    REQUIRE_EQ_INT(length(1.0f, 1, 1), 0); /* a row that costs a step never pays */
    REQUIRE(length(0.6f, 0.1, 1) > length(0.6f, 0.3, 1));
    REQUIRE(length(0.6f, 0.05, 1) > length(0.6f, 0.05, 16));
    REQUIRE_EQ_INT(length(0.3f, 0.06, 16), 0); /* a busy step takes likely ids only */
}

static void test_cost(void **state)
{
    (void)state;
    struct draft_cost c = {0};
    double first = draft_cost_row(&c);
    REQUIRE(first > 0 && first < 0.2);
    for (int i = 0; i < 100; i++)
        draft_cost_note(&c, 1, 1000 + i % 7); /* steps of one length say nothing about a row */
    REQUIRE(draft_cost_row(&c) == first);
    for (int i = 0; i < 100; i++) {
        int rows = 1 + i % 8;
        draft_cost_note(&c, rows, 1000 + 250 * (rows - 1));
    }
    REQUIRE(fabs(draft_cost_row(&c) - 0.25) < 0.05);
    for (int i = 0; i < 300; i++)
        draft_cost_note(&c, 1 + i % 8, 1000); /* costs change */
    REQUIRE(draft_cost_row(&c) < 0.04 && draft_cost_row(&c) > 0);
    for (int i = 0; i < 300; i++)
        draft_cost_note(&c, 1 + i % 8, 100 + 1000 * (i % 8)); /* rows cost more than steps */
    REQUIRE(draft_cost_row(&c) == 1);
}

/* Steps of almost as many rows each, one of which waited for a neighbour: no row costs that. */
static void test_cost_of_a_stall(void **state)
{
    (void)state;
    struct draft_cost c = {0};
    for (int i = 0; i < 200; i++)
        draft_cost_note(&c, i % 8 ? 8 : 7, i % 8 ? 1350 : 1300);
    draft_cost_note(&c, 8, 5200);
    REQUIRE_MSG(draft_cost_row(&c) < 0.12, "%g", draft_cost_row(&c));
    REQUIRE(draft_cost_us(&c, 1) > 800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forced_ids),
        cmocka_unit_test(test_forced_ids_beside_the_text),
        cmocka_unit_test(test_copies_the_prompt),
        cmocka_unit_test(test_random_and_repeated_text),
        cmocka_unit_test(test_finds_the_last_place),
        cmocka_unit_test(test_right_prediction),
        cmocka_unit_test(test_replaced_ids),
        cmocka_unit_test(test_inserted_and_removed_ids),
        cmocka_unit_test(test_useless_prediction),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_cost_of_a_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
