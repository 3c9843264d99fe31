/* SPDX-License-Identifier: MIT */
/*
 * Guides: masks bind the draw, answers end where the guide ends them, and every combination with
 * bans, minimum lengths and end ids ends as engine.h says. The guides here are scripts: a list of
 * sets of ids, one per position, and where the answer is complete.
 */
#include <math.h>

#include "engine/engine.h"
#include "engine_job.h"
#include "test.h"

enum { MAX_SCRIPT = 24, MAX_IDS = 4 };

/* Position i allows ids[i][0 .. n[i]); one with no ids is the end. */
struct script {
    int n_positions;
    int32_t ids[MAX_SCRIPT][MAX_IDS];
    int n[MAX_SCRIPT];
    bool complete[MAX_SCRIPT + 1];
    int32_t end_id; /* allowed where complete; -1: none */
    int fail_at;    /* the mask of this position fails; 0: never */
    int refuse_at;  /* the id of this position is not taken; 0: never */
    int settle_at;  /* the id drawn at this position becomes `other`, or none if that is -1 */
    int32_t other;
    int cut_at;     /* the guide ends the answer at this position; 0: never */
    int free_until; /* before this position every id may come */
    int32_t vocab;
    int at;
};

static enum eng_guide_next script_mask(void *ctx, uint64_t *bits, struct eng_pace *pace)
{
    (void)pace;
    struct script *s = ctx;
    if (s->fail_at && s->at == s->fail_at) return ENG_GUIDE_FAIL;
    if (s->cut_at && s->at == s->cut_at) return ENG_GUIDE_CUT;
    if (s->at < s->free_until) return ENG_GUIDE_FREE;
    if (s->at == s->n_positions) return ENG_GUIDE_END;
    memset(bits, 0, ((size_t)s->vocab + 63) / 64 * 8);
    for (int i = 0; i < s->n[s->at]; i++)
        bits[s->ids[s->at][i] / 64] |= 1ull << s->ids[s->at][i] % 64;
    if (s->complete[s->at] && s->end_id >= 0) bits[s->end_id / 64] |= 1ull << s->end_id % 64;
    return ENG_GUIDE_MASK;
}

static bool script_take(void *ctx, int32_t id)
{
    struct script *s = ctx;
    bool found = s->at < s->free_until;
    if (s->refuse_at && s->at == s->refuse_at) return false;
    for (int i = 0; i < s->n[s->at]; i++)
        found |= s->ids[s->at][i] == id;
    s->at += found;
    return found;
}

static bool script_complete(void *ctx)
{
    const struct script *s = ctx;
    return s->complete[s->at];
}

/* -1: the next mask says how the answer ends. */
static int32_t script_settle(void *ctx, int32_t id)
{
    struct script *s = ctx;
    if (!s->settle_at || s->at != s->settle_at) return id;
    if (s->other < 0) s->cut_at = s->at;
    return s->other;
}

static struct eng_guide guide_of(struct script *s)
{
    return (struct eng_guide){.ctx = s,
                              .mask = script_mask,
                              .take = script_take,
                              .settle = script_settle,
                              .complete = script_complete};
}

static struct eng *open_engine(void)
{
    char dir[1000], err[500] = "";
    struct eng *e = NULL;
    snprintf(dir, sizeof(dir), "%s/deploy/demo", test_source_root());
    int rc = eng_open(&e, &(struct eng_params){.model_dir = dir, .n_threads = 2, .n_parallel = 4},
                      err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    return e;
}

static const int32_t prompt[] = {5, 6, 7, 8};

/* n positions that allow one id each: 20, 21, 22 ... */
static struct script chain(const struct eng *e, int n)
{
    struct script s = {.n_positions = n, .end_id = -1, .vocab = eng_info(e)->vocab_size};
    for (int i = 0; i < n; i++) {
        s.n[i] = 1;
        s.ids[i][0] = 20 + i;
    }
    s.complete[n] = true;
    return s;
}

static void run(struct eng *e, struct script *s, struct test_job *j,
                void (*change)(struct eng_job_params *p))
{
    struct eng_guide guide = guide_of(s);
    struct eng_job_params p = test_job_params(j, prompt, N_OF(prompt), 16);
    p.guides = &guide;
    if (change) change(&p);
    test_job_submit(e, j, &p);
    test_job_finish(j);
}

static void check_chain(const struct test_job *j, int n)
{
    REQUIRE_EQ_INT(j->n_ids[0], n);
    for (int i = 0; i < n; i++)
        REQUIRE_EQ_INT(j->ids[0][i], 20 + i);
}

/* The masks leave one id per position; after the last the answer ends without an end id. */
static void test_forced_end(void **state)
{
    (void)state;
    struct eng *e = open_engine();
    struct test_job j;
    struct eng_stats before, after;
    eng_stats(e, &before);
    struct script s = chain(e, 5);
    run(e, &s, &j, NULL);
    do /* counts follow the events of a step */
        eng_stats(e, &after);
    while (after.n_jobs_done == before.n_jobs_done || after.n_running > 0);
    check_chain(&j, 5);
    REQUIRE_EQ_INT(j.finish[0], ENG_FINISH_STOP);
    REQUIRE_EQ_INT(j.usage.n_generated_tokens, 5);
    REQUIRE_EQ_INT(after.n_steps - before.n_steps, 5); /* the end takes no forward pass */

    s = chain(e, 0);
    run(e, &s, &j, NULL);
    check_chain(&j, 0);
    REQUIRE_EQ_INT(j.finish[0], ENG_FINISH_STOP);
    eng_close(e);
}

static void at_most_3(struct eng_job_params *p)
{
    p->max_tokens = 3;
}

static void test_length(void **state)
{
    (void)state;
    struct eng *e = open_engine();
    struct test_job j;
    struct script s = chain(e, 5);
    run(e, &s, &j, at_most_3);
    check_chain(&j, 3);
    REQUIRE_EQ_INT(j.finish[0], ENG_FINISH_LENGTH);
    s = chain(e, 3); /* complete with its last token: that is an end, not a cut */
    run(e, &s, &j, at_most_3);
    check_chain(&j, 3);
    REQUIRE_EQ_INT(j.finish[0], ENG_FINISH_STOP);
    eng_close(e);
}

/* An id that the guide puts in place of the one drawn is the one that is delivered and taken. */
static void test_settle(void **state)
{
    (void)state;
    struct eng *e = open_engine();
    struct test_job j;
    struct script s = chain(e, 5);
    s.settle_at = 2;
    s.other = 90;
    s.ids[2][s.n[2]++] = 90;
    s.cut_at = 4;
    run(e, &s, &j, NULL);
    REQUIRE_EQ_INT(j.n_ids[0], 4);
    REQUIRE(j.ids[0][1] == 21 && j.ids[0][2] == 90 && j.ids[0][3] == 23);
    REQUIRE_EQ_INT(j.finish[0], ENG_FINISH_LENGTH);
    s = chain(e, 5);
    s.settle_at = 3;
    s.other = -1;
    run(e, &s, &j, NULL);
    check_chain(&j, 3);
    REQUIRE_EQ_INT(j.finish[0], ENG_FINISH_LENGTH);
    eng_close(e);
}

/* The chain is free for three tokens, which are those of a job without a guide, then bound. */
static void test_free_then_bound(void **state)
{
    (void)state;
    struct eng *e = open_engine();
    struct test_job j, plain;
    struct eng_job_params p = test_job_params(&plain, prompt, N_OF(prompt), 3);
    test_job_submit(e, &plain, &p);
    test_job_finish(&plain);
    struct script s = chain(e, 6);
    s.free_until = 3;
    run(e, &s, &j, NULL);
    REQUIRE_EQ_INT(j.n_ids[0], 6);
    REQUIRE_EQ_INT(memcmp(j.ids[0], plain.ids[0], 3 * sizeof(j.ids[0][0])), 0);
    for (int i = 3; i < 6; i++)
        REQUIRE_EQ_INT(j.ids[0][i], 20 + i);
    eng_close(e);
}

static const struct eng_bias no_22 = {22, -INFINITY};

static void ban_22(struct eng_job_params *p)
{
    p->sampling.bias = &no_22;
    p->sampling.n_bias = 1;
}

static void only_20_and_21(struct eng_job_params *p)
{
    static const int32_t ids[] = {20, 21};
    p->sampling.allowed_ids = ids;
    p->sampling.n_allowed_ids = 2;
}

static void sampled_only_20_and_21(struct eng_job_params *p)
{
    only_20_and_21(p);
    p->sampling.temperature = 1.0f;
    p->sampling.top_p = 0.9f;
}

static void test_nothing_left(void **state)
{
    (void)state;
    struct eng *e = open_engine();
    void (*const changes[])(struct eng_job_params *) = {ban_22, only_20_and_21,
                                                        sampled_only_20_and_21};
    for (size_t i = 0; i < N_OF(changes); i++) {
        struct test_job j;
        struct script s = chain(e, 5);
        run(e, &s, &j, changes[i]);
        check_chain(&j, 2);
        REQUIRE_EQ_INT(j.finish[0], ENG_FINISH_NO_TOKEN);
        s = chain(e, 5);
        s.complete[2] = true;
        run(e, &s, &j, changes[i]);
        check_chain(&j, 2);
        REQUIRE_EQ_INT(j.finish[0], ENG_FINISH_STOP);
    }
    eng_close(e);
}

/* Faults of a guide end its choice alone. */
static void test_faults(void **state)
{
    (void)state;
    struct eng *e = open_engine();
    struct test_job j, other;
    struct eng_job_params p = test_job_params(&other, prompt, N_OF(prompt), 200);
    test_job_submit(e, &other, &p);
    for (int place = 0; place < 3; place++) {
        struct script s = chain(e, 5);
        s.refuse_at = place == 0 ? 2 : 0;
        s.fail_at = place == 1 ? 2 : 0;
        if (place == 2) s.n[2] = 0; /* an empty mask where nothing is complete */
        run(e, &s, &j, NULL);
        check_chain(&j, 2);
        REQUIRE_EQ_INT(j.finish[0], ENG_FINISH_ERROR);
    }
    test_job_finish(&other);
    REQUIRE_EQ_INT(other.finish[0], ENG_FINISH_LENGTH);
    REQUIRE_EQ_INT(other.n_ids[0], 200);
    eng_close(e);
}

static void with_eos(struct eng_job_params *p)
{
    p->ignore_eos = false;
}

static void with_eos_not_before_3(struct eng_job_params *p)
{
    p->ignore_eos = false;
    p->min_tokens = 3;
}

/* An end id that is the only one allowed is delivered; before min_tokens it is not allowed. */
static void test_end_ids(void **state)
{
    (void)state;
    struct eng *e = open_engine();
    struct test_job j;
    int32_t eos = eng_info(e)->eos_ids[0];
    struct script s = chain(e, 5);
    s.end_id = eos;
    s.complete[2] = true;
    s.n[2] = 0;
    run(e, &s, &j, with_eos);
    REQUIRE_EQ_INT(j.finish[0], ENG_FINISH_STOP);
    REQUIRE_EQ_INT(j.n_ids[0], 3);
    REQUIRE_EQ_INT(j.ids[0][2], eos);

    s = chain(e, 5);
    s.end_id = eos;
    s.complete[1] = s.complete[2] = true;
    run(e, &s, &j, with_eos_not_before_3);
    REQUIRE(j.n_ids[0] >= 3);
    check_chain(&j, 5);
    eng_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forced_end),   cmocka_unit_test(test_length),
        cmocka_unit_test(test_settle),       cmocka_unit_test(test_free_then_bound),
        cmocka_unit_test(test_nothing_left), cmocka_unit_test(test_faults),
        cmocka_unit_test(test_end_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
