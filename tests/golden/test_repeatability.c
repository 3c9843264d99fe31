/* SPDX-License-Identifier: MIT */
/*
 * Within one triple (numeric path, kernel level, gemm) an answer's logits are the same bits
 * whatever else runs: batch, slots, chunk size, threads, prefix cache, drafts, neighbours; and
 * whether bf16 weights are kept in 12 or 16 bits.
 *
 * For each triple that this machine runs, a set of requests is answered one at a time by an engine
 * with one slot, one thread, no cache and no drafts; then by engines of every other make, all
 * requests at once, with drafts from a prediction that is right in most places, some beside a guide
 * that proposes drafts too. Compared are the bits of every row of raw logits, of prompts and of
 * answers, and in a second mode, where pages of the cache may be read, the tokens and the bits of
 * their log-probabilities; and prompts that leave what is cached at each of its pages, with pages and
 * snapshots that are evicted; and spare requests that are parked for others.
 *
 *   test_repeatability [--all | --few | --blas CORE | --draft-model DIR | --lora]
 *                      [MODEL_DIR ...]
 *
 * Without directories: a small model of the source tree and, where HEARTH_REFERENCE is set, a
 * stories model and two GGUF files. --all takes every make and more models (some minutes); --few is
 * for large models: it leaves out the plain C level, and BLAS but once, too. --blas takes every
 * make with the named kernels of OpenBLAS ("Haswell") alone, and fails where they are not
 * repeatable. With --draft-model engines with drafts have that draft model, too; the best level
 * only. With --lora, over the base of the reference's adapters, jobs take turns: without adapter, with the first, the second and both, of which
 * those without must have the bits of an engine without any.
 */
#include "test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/kernels/kernels.h"

enum { N_JOBS = 10, MAX_ROWS = 600, MAX_CHOICES = 4, N_NEW = 14, N_TOP = 20 };

/* Further prompts of max_prompt tokens: the i-th has the first i pages of the first. */
enum { N_PARTINGS = 7 };

struct make {
    int threads, chunk, slots;
    bool cache, drafts;
    bool plain; /* bf16 weights are not coded in 12 bits */
    bool self;  /* drafts by the twin too */
};

/* A guide: two of six ids are certain, of the others a third is banned. */
struct rule {
    int at;
    int32_t vocab;
};

/* What one job gave: a hash of the bits of each row, or of each token with its log-probabilities.
 */
struct answer {
    struct rule rules[MAX_CHOICES];
    uint64_t rows[MAX_CHOICES][MAX_ROWS];
    int n_rows[MAX_CHOICES];
    uint64_t tokens[N_NEW]; /* of the first choice: those of its tokens, whatever rows it has */
    int32_t ids[N_NEW];     /* of the first choice */
    enum eng_finish finish[MAX_CHOICES];
    int64_t n_cached;
    bool held; /* its first event says so to `arrived` and waits for `go`, and the engine with it */
    bool done;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static const char *model_dir;
static int64_t max_prompt;
static const char *draft_dir;   /* of --draft-model, or NULL */
static char lora_dirs[2][1000]; /* of --lora */
static bool has_loras;
static struct eng_lora *loras[2]; /* of the open engine */
static int n_compared;
static uint64_t n_drafted; /* by the draft model */
static uint64_t n_by_twin;
static int n_twins; /* engines that had one */
static sem_t arrived, go;

static uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3ull;
    return h;
}

static void add_row(struct answer *a, int choice, uint64_t hash)
{
    if (a->n_rows[choice] < MAX_ROWS) a->rows[choice][a->n_rows[choice]++] = hash;
}

static void on_event(void *ctx, const struct eng_event *e)
{
    struct answer *a = ctx;
    if (a->held) {
        a->held = false;
        sem_post(&arrived);
        sem_wait(&go);
    }
    pthread_mutex_lock(&a->lock);
    if (e->type == ENG_EVENT_LOGITS)
        add_row(a, e->choice, hash_bytes(1, e->logits, (size_t)e->n_logits * sizeof(float)));
    if (e->type == ENG_EVENT_TOKEN) {
        uint64_t h = hash_bytes((uint64_t)e->id, &e->logprob, sizeof(e->logprob));
        for (int i = 0; i < e->n_top; i++) {
            h = hash_bytes(h, &e->top[i].id, sizeof(e->top[i].id));
            h = hash_bytes(h, &e->top[i].logprob, sizeof(e->top[i].logprob));
        }
        add_row(a, e->choice, h);
        if (e->choice == 0) a->ids[e->index] = e->id;
        if (e->choice == 0) a->tokens[e->index] = h;
    }
    if (e->type == ENG_EVENT_CHOICE_DONE) a->finish[e->choice] = e->finish;
    if (e->type == ENG_EVENT_JOB_DONE) {
        a->n_cached = e->usage->n_cached_tokens;
        a->done = true;
        pthread_cond_signal(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
}

/* ---- guides -------------------------------------------------------------------------------- */

static bool is_certain(int at)
{
    return at % 6 >= 4;
}

static int32_t certain_id(const struct rule *r, int at)
{
    return (31 * at + 7) % r->vocab;
}

static bool allows(const struct rule *r, int at, int32_t id)
{
    return is_certain(at) ? id == certain_id(r, at) : (id + at) % 3 != 0;
}

static enum eng_guide_next rule_mask(void *ctx, uint64_t *bits, struct eng_pace *pace)
{
    const struct rule *r = ctx;
    if (r->at % 5 == 3) /* slow: made in a lane */
        for (int i = 0; i < 50; i++)
            if ((pace->left -= 100) <= 0 && !pace->more(pace)) return ENG_GUIDE_LATER;
    memset(bits, 0, ((size_t)r->vocab + 63) / 64 * 8);
    for (int32_t id = 0; id < r->vocab; id++)
        if (allows(r, r->at, id)) bits[id / 64] |= 1ull << id % 64;
    return ENG_GUIDE_MASK;
}

static bool rule_take(void *ctx, int32_t id)
{
    struct rule *r = ctx;
    bool taken = allows(r, r->at, id);
    r->at += taken;
    return taken;
}

static bool rule_complete(void *ctx)
{
    (void)ctx;
    return true;
}

static int rule_foresee(void *ctx, const int32_t *ids, int n)
{
    const struct rule *r = ctx;
    int i = 0;
    while (i < n && allows(r, r->at + i, ids[i]))
        i++;
    return i;
}

static int rule_propose(void *ctx, int32_t *ids, int n)
{
    const struct rule *r = ctx;
    int i = 0;
    for (; i < n && is_certain(r->at + i); i++)
        ids[i] = certain_id(r, r->at + i);
    return i;
}

/* ---- requests ------------------------------------------------------------------------------ */

/* Length of a job's prompt; odd jobs share the beginning of the one before. */
static int64_t prompt_length(int job)
{
    static const int64_t lengths[N_JOBS] = {1, 31, 33, 64, 65, 70, 97, 130, 131, 200};
    return job < N_JOBS && lengths[job] < max_prompt ? lengths[job] : max_prompt;
}

static void fill_prompt(int job, int32_t vocab, int32_t *ids)
{
    int parting = job < N_JOBS ? 0 : job - N_JOBS;
    uint32_t x = (uint32_t)(job < N_JOBS ? job / 2 : N_JOBS) * 2654435761u + 17;
    for (int64_t i = 0; i < prompt_length(job); i++) {
        x = x * 1664525u + 1013904223u + (parting > 0 && i == 32 * parting + 3);
        ids[i] = (int32_t)((x >> 8) % (uint32_t)vocab);
    }
    if (job < N_JOBS && job % 2 && prompt_length(job) > 1) ids[prompt_length(job) - 1] = job;
}

/* The answer that is expected, a little altered; none is from an engine without drafts. */
static int64_t predict(const struct answer *known, int job, int32_t vocab, int32_t *ids)
{
    if (!known) return 0;
    for (int i = 0; i < N_NEW; i++)
        ids[i] = i % 5 == job % 7 ? (known[job].ids[i] + 1) % vocab : known[job].ids[i];
    return N_NEW;
}

static struct eng_job *submit_as(struct eng *e, int job, bool rows, const struct answer *known,
                                 struct answer *a, bool spare)
{
    int32_t ids[256], prediction[N_NEW];
    char err[300] = "";
    struct eng_job *handle = NULL;
    struct eng_guide guides[MAX_CHOICES];
    for (int i = 0; i < MAX_CHOICES; i++) {
        a->rules[i] = (struct rule){0, eng_info(e)->vocab_size};
        guides[i] = (struct eng_guide){&a->rules[i], rule_mask,    rule_take, rule_complete,
                                       rule_foresee, rule_propose, NULL,      NULL};
    }
    fill_prompt(job, eng_info(e)->vocab_size, ids);
    struct eng_job_params p = {
        .prompt = ids,
        .n_prompt = prompt_length(job),
        .n_choices = job == 4 ? MAX_CHOICES : 1,
        .max_tokens = N_NEW,
        .sampling = eng_sampling_default(),
        .guides = job >= 4 && job <= 6 ? guides : NULL,
        .ignore_eos = true,
        .n_logprobs = N_TOP,
        .n_prompt_logprobs = -1,
        .want_logits = rows,
        .prediction = prediction,
        .n_prediction = predict(known, job, eng_info(e)->vocab_size, prediction),
        .spare = spare,
        .on_event = on_event,
        .ctx = a,
    };
    for (int i = 0; i < 2 && loras[0]; i++)
        if ((job < N_JOBS ? job : 3) >> i & 1)
            p.loras[p.n_loras++] = (struct eng_lora_use){loras[i], i ? -0.7f : 1.0f};
    for (; job == N_JOBS && p.n_marks < N_PARTINGS - 1; p.n_marks++)
        p.marks[p.n_marks] = 32 * (p.n_marks + 1) < max_prompt ? 32 * (p.n_marks + 1) : 0;
    p.sampling.temperature = job % 3 == 0 ? 0.0f : 0.9f;
    p.sampling.top_p = job % 3 == 1 ? 0.95f : 1.0f;
    p.sampling.seed = (uint64_t)job;
    if (job & 2) {
        p.sampling.repetition_penalty = 1.3f;
        p.sampling.frequency_penalty = 0.5f;
        p.sampling.presence_penalty = 0.4f;
    }
    int rc = eng_job_submit(e, &p, &handle, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    return handle;
}

static struct eng_job *submit(struct eng *e, int job, bool rows, const struct answer *known,
                              struct answer *a)
{
    return submit_as(e, job, rows, known, a, false);
}

static void await(struct answer *a, struct eng_job *job)
{
    pthread_mutex_lock(&a->lock);
    while (!a->done)
        pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
    eng_job_release(job);
}

static struct answer *new_answers(int n)
{
    struct answer *a = calloc((size_t)n, sizeof(*a));
    for (int i = 0; i < n; i++) {
        pthread_mutex_init(&a[i].lock, NULL);
        pthread_cond_init(&a[i].changed, NULL);
    }
    return a;
}

static void open_loras(struct eng *e)
{
    char err[300];
    for (int i = 0; i < 2; i++) {
        int rc = eng_lora_open(e, lora_dirs[i], &loras[i], err, sizeof(err));
        REQUIRE_MSG(rc == 0, "%s", err);
    }
}

static void close_loras(void)
{
    for (int i = 0; i < 2; i++) {
        eng_lora_close(loras[i]);
        loras[i] = NULL;
    }
}

/* known NULL: one at a time, else all at once, and adapters are closed meanwhile and read again. */
static struct answer *answer_all(struct eng *e, bool rows, const struct answer *known)
{
    struct answer *a = new_answers(N_JOBS);
    struct eng_job *jobs[N_JOBS];
    for (int i = 0; i < N_JOBS; i++) {
        jobs[i] = submit(e, i, rows, known, &a[i]);
        if (!known) await(&a[i], jobs[i]);
    }
    if (known && has_loras) {
        close_loras();
        open_loras(e);
    }
    for (int i = 0; i < N_JOBS && known; i++)
        await(&a[i], jobs[i]);
    return a;
}

struct triple {
    const char *numerics, *kernels, *gemm, *kv_dtype;
};

/* NULL where this machine or build does not offer the triple. */
static struct eng *open_engine(const struct triple *t, const struct make *m)
{
    char err[500] = "";
    struct eng *e = NULL;
    struct eng_params p = {
        .model_dir = model_dir,
        .numerics = t->numerics,
        .kernels = t->kernels,
        .gemm = t->gemm,
        .kv_dtype = t->kv_dtype,
        .weight_coding = m->plain ? "off" : "on",
        .n_threads = m->threads,
        .n_parallel = m->slots,
        .chunk_tokens = m->chunk,
        .max_queued_jobs = N_JOBS,
        .ctx_tokens = max_prompt + N_NEW,
        .no_prefix_cache = !m->cache,
        .speculate = m->drafts ? ENG_SPECULATE_ALWAYS : ENG_SPECULATE_OFF,
        .draft_dir = draft_dir,
        .lora_bytes = has_loras ? 16 << 20 : 0,
    };
    int rc = eng_open(&e, &p, err, sizeof(err));
    if (rc == ENG_EUNSUPPORTED) return NULL;
    REQUIRE_MSG(rc == 0, "%s: %s", model_dir, err);
    if (has_loras) open_loras(e);
    if (m->drafts && (draft_dir || m->self)) {
        eng_load_drafts(e, NULL);
        eng_await_drafts(e);
        if (draft_dir) REQUIRE_EQ_INT(eng_draft_state(e, NULL), ENG_DRAFTS_ON);
        n_twins += strstr(eng_drafts(e), "self") != NULL;
    }
    return e;
}

static void close_engine(struct eng *e)
{
    close_loras();
    eng_close(e);
}

static void compare(const struct triple *t, const struct make *m, const struct answer *want,
                    const struct answer *got, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < MAX_CHOICES; c++) {
            REQUIRE_EQ_INT(got[i].n_rows[c], want[i].n_rows[c]);
            REQUIRE_EQ_INT(got[i].finish[c], want[i].finish[c]);
            for (int r = 0; r < want[i].n_rows[c]; r++, n_compared++)
                REQUIRE_MSG(got[i].rows[c][r] == want[i].rows[c][r],
                            "%s %s/%s/%s threads %d chunk %d slots %d cache %d: job %d choice %d "
                            "row %d differs (%s)",
                            model_dir, t->numerics, t->kernels, t->gemm, m->threads, m->chunk,
                            m->slots, m->cache, i, c, r, what);
        }
}

static void free_answers(struct answer *a, int n)
{
    for (int i = 0; i < n; i++) {
        pthread_mutex_destroy(&a[i].lock);
        pthread_cond_destroy(&a[i].changed);
    }
    free(a);
}

/* All as spare jobs, whose slots and pages others take that come while the first of them runs. */
static void check_parked(struct eng *e, const struct triple *t, const struct make *m,
                         const struct answer *rows)
{
    struct eng_stats st;
    struct eng_job *jobs[2][N_JOBS];
    struct answer *a = new_answers(N_JOBS), *spare = new_answers(N_JOBS);
    spare[0].held = true;
    for (int i = 0; i < N_JOBS; i++)
        jobs[0][i] = submit_as(e, i, true, rows, &spare[i], true);
    sem_wait(&arrived);
    for (int i = 0; i < N_JOBS; i++)
        jobs[1][i] = submit(e, i, true, rows, &a[i]);
    sem_post(&go);
    for (int i = 0; i < N_JOBS; i++) {
        await(&a[i], jobs[1][i]);
        await(&spare[i], jobs[0][i]);
    }
    compare(t, m, rows, a, N_JOBS, "logits beside spare jobs");
    compare(t, m, rows, spare, N_JOBS, "logits of spare jobs");
    free_answers(a, N_JOBS);
    free_answers(spare, N_JOBS);
    eng_stats(e, &st);
    REQUIRE(st.n_parked > 0);
}

/* One engine of some make gives the answers `rows` and `tokens`, the second time from its cache. */
static void check_make(const struct triple *t, const struct make *m, const struct answer *rows,
                       const struct answer *tokens)
{
    struct eng *e = open_engine(t, m);
    REQUIRE(e);
    struct answer *a = answer_all(e, true, rows);
    compare(t, m, rows, a, N_JOBS, "logits");
    free_answers(a, N_JOBS);
    if (m->slots == 4 && m->cache) check_parked(e, t, m, rows);
    for (int round = 0; round < 2; round++) {
        a = answer_all(e, false, tokens);
        compare(t, m, tokens, a, N_JOBS, round ? "cached tokens" : "tokens");
        free_answers(a, N_JOBS);
    }
    struct eng_stats st;
    eng_stats(e, &st);
    if (m->cache && max_prompt > 64) REQUIRE(st.n_cached_tokens > 0);
    uint64_t n_tried = eng_draft_sum(st.n_draft_tokens);
    uint64_t n_right = eng_draft_sum(st.n_accepted_draft_tokens);
    n_drafted += st.n_draft_tokens[ENG_DRAFT_MODEL];
    n_by_twin += st.n_draft_tokens[ENG_DRAFT_SELF];
    REQUIRE((n_right > 0) == m->drafts);
    REQUIRE((n_tried > n_right) == m->drafts);
    close_engine(e);
}

/* The first prompt, those that part from it, the last one first, and the first again. */
static struct answer *answer_partings(struct eng *e)
{
    struct answer *a = new_answers(N_PARTINGS + 1);
    for (int i = 0; i <= N_PARTINGS; i++)
        await(&a[i], submit(e, N_JOBS + (N_PARTINGS - i) % N_PARTINGS, false, NULL, &a[i]));
    return a;
}

/*
 * Each goes on behind the pages that it shares. Where there is room for one sequence, whose pages
 * give way to those of the next, the first finds less when it comes again.
 */
static void check_partings(const struct triple *t)
{
    static const struct make alone = {1, 128, 1, false, false, false, false};
    static const struct make makes[] = {{2, 128, 8, true, false, false, false},
                                        {1, 32, 8, true, true, false, true},
                                        {1, 7, 1, true, false, false, false}};
    struct eng_stats st;
    struct eng *e = open_engine(t, &alone);
    struct answer *want = answer_partings(e);
    close_engine(e);
    for (size_t i = 0; i < N_OF(makes); i++) {
        e = open_engine(t, &makes[i]);
        struct answer *a = answer_partings(e);
        compare(t, &makes[i], want, a, N_PARTINGS + 1, "partings");
        for (int k = 1; k < N_PARTINGS && makes[i].slots > 1; k++)
            if (32 * k + 3 < max_prompt) REQUIRE_EQ_INT(a[N_PARTINGS - k].n_cached, 32 * k);
        int64_t all = (max_prompt - 1) / 32 * 32, again = a[N_PARTINGS].n_cached;
        REQUIRE_MSG(makes[i].slots > 1 ? again == all : max_prompt < 200 || again < all,
                    "%zu: %d of %d", i, (int)again, (int)all);
        free_answers(a, N_PARTINGS + 1);
        eng_stats(e, &st);
        n_by_twin += st.n_draft_tokens[ENG_DRAFT_SELF];
        close_engine(e);
    }
    free_answers(want, N_PARTINGS + 1);
}

enum depth { DEPTH_USUAL, DEPTH_ALL, DEPTH_FEW };

/* Jobs without adapter have the bits of an engine that has none, and adapters change the others. */
static void check_base(const struct triple *t, const struct make *m, const struct answer *rows)
{
    has_loras = false;
    struct eng *e = open_engine(t, m);
    struct answer *a = answer_all(e, true, NULL);
    for (int i = 0; i < N_JOBS; i++)
        if (i % 4 == 0)
            compare(t, m, &a[i], &rows[i], 1, "without adapter");
        else
            REQUIRE(a[i].rows[0][0] != rows[i].rows[0][0]);
    free_answers(a, N_JOBS);
    close_engine(e);
    has_loras = true;
}

static bool check_triple(const struct triple *t, enum depth depth)
{
    static const struct make alone = {1, 128, 1, false, false, false, false};
    static const struct make makes[] = {
        {2, 16, 16, true, true, false, false},   {1, 128, 4, false, true, false, false},
        {2, 128, 4, true, true, true, false},    {1, 16, 16, false, true, false, false},
        {2, 16, 1, false, true, false, false},   {2, 128, 16, true, false, false, false},
        {1, 16, 4, true, true, false, false},    {2, 1, 3, true, true, false, false},
        {1, 128, 16, true, true, false, false},  {2, 16, 4, false, true, false, false},
        {2, 200, 10, false, true, false, false}, {1, 16, 1, true, true, false, false},
        {2, 128, 1, true, true, false, false},   {1, 33, 5, true, true, false, false},
        {3, 7, 7, true, true, false, false},     {2, 512, 4, true, true, false, true},
        {1, 32, 2, true, true, false, true},     {2, 7, 4, false, true, false, true},
    };
    struct eng *e = open_engine(t, &alone);
    if (!e) return false;
    if (!eng_info(e)->repeatable) {
        close_engine(e); /* which the engine says of itself */
        return false;
    }
    struct answer *rows = answer_all(e, true, NULL);
    struct answer *tokens = answer_all(e, false, NULL);
    close_engine(e);
    for (int i = 0; i < N_JOBS; i++) /* logits of the whole prompt were wanted, or not */
        REQUIRE(memcmp(rows[i].tokens, tokens[i].tokens, sizeof(rows[i].tokens)) == 0);
    if (has_loras) check_base(t, &alone, rows);
    for (size_t i = 0; i < (depth == DEPTH_ALL ? N_OF(makes) : 3); i++)
        check_make(t, &makes[i], rows, tokens);
    if (depth == DEPTH_ALL || strcmp(t->kernels, kern_select("auto")->name) == 0) check_partings(t);
    free_answers(rows, N_JOBS);
    free_answers(tokens, N_JOBS);
    return true;
}

/* Sets max_prompt to what the model's context has room for. */
static void look_at_model(const char *dir)
{
    char err[300];
    struct eng *e = NULL;
    model_dir = dir;
    struct eng_params p = {.model_dir = dir, .n_parallel = 1};
    int rc = eng_open(&e, &p, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s: %s", dir, err);
    int64_t ctx = eng_info(e)->ctx_tokens;
    max_prompt = ctx - N_NEW < 200 ? ctx - N_NEW : 200;
    close_engine(e);
}

/* With OpenBLAS, whose kernels the environment names. */
static void check_core(const char *dir, const char *core)
{
    const struct triple t = {"exact", kern_select("auto")->name, "blas", "auto"};
    const struct make any = {1, 128, 1, false, false, false, false};
    int before = n_compared;
    look_at_model(dir);
    struct eng *e = open_engine(&t, &any);
    if (!e) skip(); /* a build without BLAS */
    REQUIRE_MSG(strcmp(eng_info(e)->gemm + strlen("blas:"), core) == 0,
                "OpenBLAS runs its %s kernels", eng_info(e)->gemm);
    REQUIRE_MSG(eng_info(e)->repeatable, "OpenBLAS's %s kernels are not repeatable", core);
    close_engine(e);
    REQUIRE(check_triple(&t, DEPTH_ALL));
    printf("%s, OpenBLAS %s: %d rows of the same bits\n", dir, core, n_compared - before);
}

static void check_model(const char *dir, enum depth depth)
{
    struct triple t;
    look_at_model(dir);
    for (const char *const *path = eng_path_names(); *path; path++)
        for (const char *const *level = kern_names(); *level; level++) {
            if (!kern_runs_here(*level)) continue;
            bool best = strcmp(*level, kern_select("auto")->name) == 0;
            if (depth == DEPTH_FEW && strcmp(*level, "c") == 0) continue; /* hours */
            if ((draft_dir || has_loras) && !best) continue;
            static const char *const kinds[][2] = {
                {"native", "auto"}, {"native", "int8"}, {"blas", "auto"}};
            for (size_t i = 0; i < (depth == DEPTH_FEW && !best ? 1 : N_OF(kinds)); i++) {
                t = (struct triple){*path, *level, kinds[i][0], kinds[i][1]};
                int before = n_compared;
                if (check_triple(&t, depth))
                    printf("%s %s/%s/%s, KV %s: %d rows of the same bits\n", dir, t.numerics,
                           t.kernels, t.gemm, t.kv_dtype, n_compared - before);
                fflush(stdout);
            }
        }
}

static const char **named_models;
static int n_named_models;
static enum depth asked_depth;
static const char *asked_core; /* of --blas, or NULL */

static void check(const char *dir)
{
    if (asked_core)
        check_core(dir, asked_core);
    else
        check_model(dir, asked_depth);
}

static void check_models(const char *root, const char *folder, const char *const *names, size_t n)
{
    char dir[1000];
    for (size_t i = 0; i < n && root; i++) {
        snprintf(dir, sizeof(dir), "%s/%s/%s", root, folder, names[i]);
        check(dir);
    }
}

static void check_loras(void)
{
    static const char *const base[] = {"base-llama-bf16"};
    const char *root = test_reference();
    snprintf(lora_dirs[0], sizeof(lora_dirs[0]), "%s/goldens/families/lora/lora-r8-all", root);
    snprintf(lora_dirs[1], sizeof(lora_dirs[1]), "%s/goldens/families/lora/lora-r8-lmhead", root);
    check_models(root, "goldens/families/lora", base, 1);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const own[] = {
        "llama-bias-tied-f32", "lfm2-experts-bf16",  "qwen3_5-delta-bf16", "qwen3-types-bf16",
        "mistral-window-bf16", "llama-dynamic-f16",  "lfm2-conv-bf16",     "ernie-experts-bf16",
        "gemma4-shared-bf16",  "gemma4-values-bf16", "gemma4-experts-bf16"};
    static const char *const stories[] = {"stories260k-bf16", "stories260k", "stories260k-f16"};
    static const char *const others[] = {"families/models/qwen3_5-text-bf16",
                                         "families/models/qwen3_5-wrapper-bf16",
                                         "mixtures/models/gemma4-26b-a4b-like-bf16"};
    static const char *const files[] = {"mix-q4_k_m/mix-q4_k_m.gguf",
                                        "stories-q4_1/stories-q4_1.gguf", "t-q5_1/t-q5_1.gguf",
                                        "t-q5_k/t-q5_k.gguf"};
    bool all = asked_depth == DEPTH_ALL || asked_core;
    for (int i = 0; i < n_named_models; i++)
        check(named_models[i]);
    if (has_loras) {
        check_loras();
    } else if (n_named_models == 0) {
        check_models(test_source_root(), "tests/golden/models", own, all ? N_OF(own) : 3);
        check_models(test_reference(), "models", stories, all ? N_OF(stories) : 1);
        check_models(test_reference(), "goldens", others, all ? N_OF(others) : 0);
        if (!all) asked_depth = DEPTH_FEW;
        check_models(test_reference(), "goldens/gguf/models", files, all ? N_OF(files) : 2);
    }
    REQUIRE(n_compared > 0);
    printf("%d engines with a twin, which wrote %llu ids\n", n_twins,
           (unsigned long long)n_by_twin);
    REQUIRE((n_by_twin > 0) == (n_twins > 0));
    if (draft_dir) {
        printf("%llu ids by the draft model\n", (unsigned long long)n_drafted);
        REQUIRE(n_drafted > 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--all") == 0) asked_depth = DEPTH_ALL;
    if (argc > 1 && strcmp(argv[1], "--few") == 0) asked_depth = DEPTH_FEW;
    if (argc > 2 && strcmp(argv[1], "--blas") == 0) {
        asked_core = argv[2];
        /* what the other kernels of the list need is for the caller to know */
        if (strcmp(asked_core, "Haswell") == 0 && !kern_runs_here("avx2")) return TEST_SKIPPED;
        if (setenv("OPENBLAS_CORETYPE", asked_core, 1) != 0) return 1;
    }
    if (argc > 2 && strcmp(argv[1], "--draft-model") == 0) draft_dir = argv[2];
    if (argc > 1 && strcmp(argv[1], "--lora") == 0) has_loras = true;
    if (has_loras && !test_reference()) return TEST_SKIPPED;
    int first = has_loras ? 2 : asked_core || draft_dir ? 3 : asked_depth == DEPTH_USUAL ? 1 : 2;
    named_models = (const char **)argv + first;
    n_named_models = argc > first ? argc - first : 0;
    sem_init(&arrived, 0, 0);
    sem_init(&go, 0, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
