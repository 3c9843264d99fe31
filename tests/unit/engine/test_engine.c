/* SPDX-License-Identifier: MIT */
/* The engine as a whole on a small model of the source tree: opening, facts, memory, answers, ends.
 */
#include "test.h"

#include <dirent.h>
#include <jansson.h>

#include "engine/engine.h"
#include "engine_job.h"

static const char *model_dir(void)
{
    static char dir[1000];
    snprintf(dir, sizeof(dir), "%s/tests/golden/models/llama-bias-tied-f32", test_source_root());
    return dir;
}

static struct eng *open_engine(const struct eng_params *params)
{
    struct eng_params p = *params;
    struct eng *e = NULL;
    char err[500] = "";
    if (!p.model_dir) p.model_dir = model_dir();
    if (!p.n_threads) p.n_threads = 2;
    int rc = eng_open(&e, &p, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    return e;
}

static void test_facts(void **state)
{
    (void)state;
    struct eng *e = open_engine(&(struct eng_params){.numerics = "exact", .n_parallel = 3});
    const struct eng_info *i = eng_info(e);
    REQUIRE_EQ_STR(i->architecture, "LlamaForCausalLM");
    REQUIRE_EQ_STR(i->numerics, "exact");
    REQUIRE_EQ_STR(i->kv_dtype, "f32");
    REQUIRE_EQ_INT(i->n_threads, 2);
    REQUIRE_EQ_INT(i->n_parallel, 3);
    REQUIRE_EQ_INT(i->chunk_tokens, 128);
    REQUIRE_EQ_INT(i->ctx_tokens, i->ctx_train_tokens);
    REQUIRE_EQ_INT(i->n_pages, 3 * ((i->ctx_tokens + 31) / 32));
    REQUIRE(i->repeatable && i->n_params > 0 && i->vocab_size > 0 && i->load_seconds > 0);
    const struct eng_memory *m = &i->memory;
    REQUIRE(m->weights_bytes > 0 && m->kv_bytes > 0 && m->scratch_bytes > 0 && m->logits_bytes > 0);
    REQUIRE(m->weights_bytes + m->kv_bytes + m->scratch_bytes + m->logits_bytes + m->other_bytes <=
            m->limit_bytes);
    struct eng_stats st;
    eng_stats(e, &st);
    REQUIRE_EQ_INT(st.n_pages_total, i->n_pages);
    struct eng *own = open_engine(&(struct eng_params){
        .numerics = "exact", .n_parallel = 3, .caller_bytes = 5, .caller_bytes_per_id = 80});
    REQUIRE_EQ_INT(eng_info(own)->memory.other_bytes, m->other_bytes + 5 + 80 * i->vocab_size);
    eng_close(own);
    REQUIRE_EQ_INT(st.n_pages_used, 0);
    eng_close(e);
}

static void test_refusals_name_what_is_wrong(void **state)
{
    (void)state;
    const struct {
        struct eng_params p;
        int rc;
        const char *says;
    } cases[] = {
        {{.model_dir = "/nonexistent"}, ENG_ENOENT, "/nonexistent"},
        {{.model_dir = model_dir(), .numerics = "fp8"}, ENG_EINVAL, "fp8"},
        {{.model_dir = model_dir(), .gemm = "cuda"}, ENG_EINVAL, "cuda"},
        {{.model_dir = model_dir(), .kernels = "mmx"}, ENG_EUNSUPPORTED, "mmx"},
        {{.model_dir = model_dir(), .kv_dtype = "int8"}, ENG_EUNSUPPORTED, "int8"},
        {{.model_dir = model_dir(), .n_parallel = -1}, ENG_EINVAL, "n_parallel"},
        {{.model_dir = model_dir(), .chunk_tokens = 1 << 30}, ENG_EINVAL, "chunk_tokens"},
        {{.model_dir = model_dir(), .ctx_tokens = 1 << 30}, ENG_EINVAL, "context"},
        {{.model_dir = model_dir(), .ctx_tokens = -1}, ENG_EINVAL, "negative"},
        {{.model_dir = model_dir(), .memory_bytes = 1 << 20}, ENG_ENOMEM, "limit"},
        {{.model_dir = model_dir(), .kv_bytes = 1}, ENG_ENOMEM, "KV cache"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct eng *e = NULL;
        char err[500] = "";
        struct eng_params p = cases[i].p;
        p.n_threads = 1;
        int rc = eng_open(&e, &p, err, sizeof(err));
        REQUIRE_MSG(rc == cases[i].rc, "case %zu: %d, %s", i, rc, err);
        REQUIRE_MSG(strstr(err, cases[i].says), "case %zu: %s", i, err);
        REQUIRE(!e);
    }
}

static struct eng *open_demo(int64_t ctx, int64_t memory, int64_t kv)
{
    char dir[1000];
    snprintf(dir, sizeof(dir), "%s/deploy/demo", test_source_root());
    return open_engine(&(struct eng_params){.model_dir = dir,
                                            .n_parallel = 4,
                                            .ctx_tokens = ctx,
                                            .memory_bytes = memory,
                                            .kv_bytes = kv});
}

/* Less memory: a shorter context; a budget for the cache: that many pages. */
static void test_memory_is_planned(void **state)
{
    (void)state;
    struct eng *e = open_demo(0, 0, 0);
    struct eng_memory all = eng_info(e)->memory;
    int64_t ctx = eng_info(e)->ctx_tokens;
    eng_close(e);
    int64_t sum =
        all.weights_bytes + all.kv_bytes + all.scratch_bytes + all.logits_bytes + all.other_bytes;
    sum += all.spare_bytes;

    e = open_demo(0, sum, 0);
    REQUIRE_EQ_INT(eng_info(e)->ctx_tokens, ctx);
    eng_close(e);

    e = open_demo(0, sum - all.kv_bytes / 2, 0);
    REQUIRE(eng_info(e)->ctx_tokens < ctx);
    REQUIRE_EQ_INT(eng_info(e)->ctx_tokens % 32, 0);
    REQUIRE_EQ_INT(eng_info(e)->n_pages, 4 * eng_info(e)->ctx_tokens / 32);
    eng_close(e);

    /* a context that was asked for stays, with fewer pages than all slots could fill */
    e = open_demo(ctx, sum - all.kv_bytes / 2, 0);
    REQUIRE_EQ_INT(eng_info(e)->ctx_tokens, ctx);
    REQUIRE(eng_info(e)->n_pages < 4 * ((ctx + 31) / 32));
    eng_close(e);

    e = open_demo(0, 0, all.kv_bytes / 4 * 2);
    REQUIRE_EQ_INT(eng_info(e)->ctx_tokens, ctx);
    REQUIRE_EQ_INT(eng_info(e)->n_pages, 2 * ((ctx + 31) / 32));
    eng_close(e);
}

/* ---- answers ------------------------------------------------------------------------------- */

static int read_ids(const json_t *list, int32_t *ids, int max)
{
    int n = 0;
    for (; n < max && n < (int)json_array_size(list); n++)
        ids[n] = (int32_t)json_integer_value(json_array_get(list, (size_t)n));
    return n;
}

static void check_greedy(struct eng *e, const int32_t *prompt, int n_prompt, const int32_t *want,
                         int n, const char *name)
{
    struct test_job j;
    struct eng_job_params p = test_job_params(&j, prompt, n_prompt, n);
    test_job_submit(e, &j, &p);
    test_job_finish(&j);
    REQUIRE_EQ_INT(j.n_ids[0], n);
    for (int i = 0; i < n; i++)
        REQUIRE_MSG(j.ids[0][i] == want[i], "%s: token %d is %d, not %d", name, i, (int)j.ids[0][i],
                    (int)want[i]);
}

/* The greedy continuations of the reference implementation, from the model's golden.json. */
static void test_greedy_golden(void **state)
{
    (void)state;
    char path[1100];
    snprintf(path, sizeof(path), "%s/golden.json", model_dir());
    json_t *golden = json_load_file(path, 0, NULL), *c;
    REQUIRE(golden);
    struct eng *e = open_engine(&(struct eng_params){.numerics = "exact"});
    size_t i;
    int n_cases = 0;
    json_array_foreach(json_object_get(golden, "cases"), i, c)
    {
        int32_t prompt[512], want[128];
        int n_prompt = read_ids(json_object_get(c, "ids"), prompt, (int)N_OF(prompt));
        int n = read_ids(json_object_get(c, "greedy_ids"), want, (int)N_OF(want));
        if (n == 0) continue;
        check_greedy(e, prompt, n_prompt, want, n, json_string_value(json_object_get(c, "name")));
        n_cases++;
    }
    REQUIRE(n_cases > 0);
    eng_close(e);
    json_decref(golden);
}

/* golden_greedy.json of a stories model: 5 prompts x 120 tokens. */
static void check_stories(const char *name)
{
    char dir[1000], path[1100], err[500] = "";
    snprintf(dir, sizeof(dir), "%s/models/%s", test_reference(), name);
    snprintf(path, sizeof(path), "%s/golden_greedy.json", dir);
    json_t *golden = json_load_file(path, 0, NULL), *c;
    REQUIRE(golden);
    struct eng *e = NULL;
    struct eng_params p = {.model_dir = dir, .numerics = "exact", .n_threads = 2};
    REQUIRE_MSG(eng_open(&e, &p, err, sizeof(err)) == 0, "%s", err);
    size_t i;
    json_array_foreach(golden, i, c)
    {
        int32_t prompt[512], want[512];
        int n_prompt = read_ids(json_object_get(c, "prompt_ids"), prompt, (int)N_OF(prompt));
        int n = read_ids(json_object_get(c, "output_ids"), want, (int)N_OF(want));
        check_greedy(e, prompt, n_prompt, want, n, name);
    }
    eng_close(e);
    json_decref(golden);
}

static void test_stories_golden(void **state)
{
    (void)state;
    if (!test_reference()) skip();
    check_stories("stories260k");
    check_stories("stories260k-bf16");
    check_stories("stories260k-f16");
}

/* ---- ends ---------------------------------------------------------------------------------- */

static void test_close_with_running_jobs(void **state)
{
    (void)state;
    static const int32_t prompt[] = {1, 2, 3, 4, 5};
    struct eng *e = open_engine(&(struct eng_params){.n_parallel = 2});
    struct test_job j[5];
    for (int i = 0; i < 5; i++) {
        struct eng_job_params p = test_job_params(&j[i], prompt, 5, 100000);
        test_job_submit(e, &j[i], &p);
    }
    eng_close(e);
    for (int i = 0; i < 5; i++) {
        REQUIRE(j[i].done);
        REQUIRE(j[i].finish[0] == ENG_FINISH_CANCELLED || j[i].finish[0] == ENG_FINISH_LENGTH);
        test_job_finish(&j[i]); /* the handle outlives the engine */
    }
}

static void test_pause_is_seen_in_stats(void **state)
{
    (void)state;
    static const int32_t prompt[] = {1, 2, 3};
    struct eng *e = open_engine(&(struct eng_params){.n_parallel = 1});
    struct eng_stats st;
    struct test_job j;
    eng_debug_pause(e, true);
    struct eng_job_params p = test_job_params(&j, prompt, 3, 4);
    test_job_submit(e, &j, &p);
    eng_stats(e, &st);
    REQUIRE_EQ_INT(st.n_steps, 0);
    REQUIRE_EQ_INT(st.n_waiting, 1);
    eng_debug_pause(e, false);
    test_job_finish(&j);
    eng_drain(e);
    char err[200] = "";
    REQUIRE_EQ_INT(eng_job_submit(e, &p, &j.handle, err, sizeof(err)), ENG_ECLOSED);
    do /* the snapshot follows the last event */
        eng_stats(e, &st);
    while (st.n_running > 0);
    REQUIRE(st.n_steps >= 4);
    REQUIRE_EQ_INT(st.n_generated_tokens, 4);
    eng_close(e);
}

static void test_names(void **state)
{
    (void)state;
    const char *const *n = eng_path_names();
    REQUIRE_EQ_STR(n[0], "exact");
    REQUIRE_EQ_STR(kern_names()[0], "c");
}

static void note_test(void *ctx)
{
    ++*(int *)ctx;
}

static int64_t sum_of(const struct eng_memory *m)
{
    return m->weights_bytes + m->kv_bytes + m->scratch_bytes + m->logits_bytes + m->answer_bytes +
           m->other_bytes;
}

/* States of running sequences and snapshots are in the plan, at least two of these per sequence. */
static void test_states_are_planned(void **state)
{
    (void)state;
    enum { LAYERS = 3, TAPS = 4, D = 32, ROWS = 16, SLOT_BYTES = 16 };
    const int64_t live = LAYERS * ROWS * D * 4, one = LAYERS * (TAPS - 1) * D * 4 + SLOT_BYTES;
    char dir[500], err[300] = "";
    snprintf(dir, sizeof(dir), "%s/tests/golden/models/lfm2-conv-bf16", test_source_root());
    struct eng_params p = {.model_dir = dir, .numerics = "exact", .n_parallel = 3};
    struct eng_memory m, more;
    REQUIRE_MSG(eng_plan(&m, &p, err, sizeof(err)) == 0, "%s", err);
    REQUIRE_EQ_INT(m.kv_bytes % (3 * 8), 0); /* 256 tokens each */
    REQUIRE_EQ_INT(m.state_bytes, 3 * live + 6 * one);
    p.kv_bytes = 10 * m.kv_bytes; /* 240 pages: a snapshot for every fourth */
    REQUIRE_MSG(eng_plan(&more, &p, err, sizeof(err)) == 0, "%s", err);
    REQUIRE_EQ_INT(more.state_bytes, 3 * live + 60 * one);
    p.kv_bytes = 0;
    p.memory_bytes = m.weights_bytes + m.kv_bytes + m.scratch_bytes + m.logits_bytes +
                     m.other_bytes + m.state_bytes - 1;
    REQUIRE_MSG(eng_plan(&more, &p, err, sizeof(err)) == 0, "%s", err);
    REQUIRE(more.kv_bytes < m.kv_bytes);
}

static int count_threads(const char *name)
{
    DIR *dir = opendir("/proc/self/task");
    int n = 0;
    REQUIRE(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        char path[sizeof(d->d_name) + 32], found[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
        FILE *f = fopen(path, "r");
        if (!f) continue; /* it has ended, or is no thread */
        if (fgets(found, sizeof(found), f)) found[strcspn(found, "\n")] = '\0';
        fclose(f);
        n += strcmp(found, name) == 0;
    }
    closedir(dir);
    return n;
}

/* A second engine next to one that works: planned from headers, loaded by other threads, and
 * computing on the same ones. */
static void test_opening_next_to_another(void **state)
{
    (void)state;
    struct eng_cores *cores;
    struct eng_memory plan;
    char err[500] = "";
    int n_tests = 0;
    REQUIRE_EQ_INT(eng_cores_create(&cores, 3, err, sizeof(err)), 0);
    struct eng_params p = {.model_dir = model_dir(), .cores = cores};
    struct eng *first = open_engine(&p);
    REQUIRE_EQ_INT(eng_info(first)->n_threads, 3);
    int n_computing = count_threads("hearth-compute"); /* one more with TSan's own thread */
    REQUIRE(n_computing >= 2);
    REQUIRE_EQ_INT(eng_plan(&plan, &p, err, sizeof(err)), 0);
    REQUIRE(sum_of(&plan) >= sum_of(&eng_info(first)->memory));
    p.in_background = true;
    p.on_self_test = note_test;
    p.on_self_test_ctx = &n_tests;
    struct eng *second = open_engine(&p);
    REQUIRE_EQ_INT(n_tests, 1);
    REQUIRE_EQ_INT(count_threads("hearth-compute"), n_computing);
    REQUIRE(eng_info(second)->self_test_seconds > 0);
    REQUIRE(memcmp(eng_info(first)->fingerprint, eng_info(second)->fingerprint, 16) == 0);
    eng_stop(first);
    struct eng_stats stats;
    eng_stats(first, &stats);
    REQUIRE_EQ_INT(stats.n_running, 0);
    eng_close(first);
    eng_close(second);
    eng_cores_destroy(cores);
}

/* A copy of the model's weights with a byte changed, or as they are. */
static void write_weights(const char *dir, bool changed)
{
    enum { MIDDLE = 20001 };
    char from[1100], to[1100], command[2300];
    snprintf(from, sizeof(from), "%s/model.safetensors", model_dir());
    snprintf(to, sizeof(to), "%s/model.safetensors", dir);
    snprintf(command, sizeof(command), "cp %s/config.json %s %s", model_dir(), from, dir);
    REQUIRE_EQ_INT(system(command), 0);
    FILE *f = fopen(to, "r+b");
    REQUIRE(f && fseek(f, -MIDDLE, SEEK_END) == 0);
    int byte = fgetc(f);
    REQUIRE(fseek(f, -MIDDLE, SEEK_END) == 0 && fputc(changed ? byte ^ 1 : byte, f) != EOF);
    REQUIRE_EQ_INT(fclose(f), 0);
}

/* A twin whose files have changed is not kept, and may be loaded again. */
static void test_a_twin_that_fails(void **state)
{
    (void)state;
    char dir[] = "/tmp/hearth-twin-XXXXXX", command[100];
    struct eng_stats st;
    REQUIRE(mkdtemp(dir));
    write_weights(dir, false);
    struct eng *e = open_engine(&(struct eng_params){
        .model_dir = dir, .numerics = "exact", .speculate = ENG_SPECULATE_ALWAYS});
    REQUIRE(eng_info(e)->memory.twin_bytes > 0);
    write_weights(dir, true);
    for (int i = 0; i < 2; i++) {
        eng_load_drafts(e, NULL);
        eng_await_drafts(e);
        REQUIRE_EQ_STR(eng_drafts(e), i == 0 ? "lookup" : "self");
        eng_stats(e, &st);
        REQUIRE(st.drafts_since_ms == 0);
        write_weights(dir, false);
    }
    eng_load_drafts(e, NULL);
    REQUIRE_EQ_STR(eng_drafts(e), "self");
    eng_close(e);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    REQUIRE_EQ_INT(system(command), 0);
}

static void test_opening_is_given_up(void **state)
{
    (void)state;
    atomic_bool stop;
    atomic_init(&stop, true);
    for (int in_background = 0; in_background < 2; in_background++) {
        struct eng *e = NULL;
        char err[500] = "";
        struct eng_params p = {.model_dir = model_dir(),
                               .n_threads = 2,
                               .in_background = in_background,
                               .stop = &stop};
        REQUIRE_EQ_INT(eng_open(&e, &p, err, sizeof(err)), ENG_ECLOSED);
        REQUIRE_MSG(strstr(err, "given up"), "%s", err);
    }
}

static void test_reserved_memory_stays_free(void **state)
{
    (void)state;
    struct eng_memory all, less;
    char err[500] = "";
    struct eng_params p = {.model_dir = model_dir(), .n_threads = 1};
    REQUIRE_EQ_INT(eng_plan(&all, &p, err, sizeof(err)), 0);
    p.memory_bytes = 2 * sum_of(&all);
    p.reserved_bytes = sum_of(&all) + 1;
    REQUIRE_EQ_INT(eng_plan(&less, &p, err, sizeof(err)), 0);
    REQUIRE(sum_of(&less) < sum_of(&all));
    REQUIRE_EQ_INT(less.limit_bytes, p.memory_bytes);
    REQUIRE_EQ_INT(less.reserved_bytes, p.reserved_bytes);
    p.reserved_bytes = p.memory_bytes;
    REQUIRE_EQ_INT(eng_plan(&less, &p, err, sizeof(err)), ENG_ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_refusals_name_what_is_wrong),
        cmocka_unit_test(test_memory_is_planned),
        cmocka_unit_test(test_greedy_golden),
        cmocka_unit_test(test_stories_golden),
        cmocka_unit_test(test_close_with_running_jobs),
        cmocka_unit_test(test_pause_is_seen_in_stats),
        cmocka_unit_test(test_states_are_planned),
        cmocka_unit_test(test_opening_next_to_another),
        cmocka_unit_test(test_a_twin_that_fails),
        cmocka_unit_test(test_opening_is_given_up),
        cmocka_unit_test(test_reserved_memory_stays_free),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
