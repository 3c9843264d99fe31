/* SPDX-License-Identifier: MIT */
/*
 * hearth bench: how fast a model is read and continued, measured through the engine's own interface
 * with the times its events carry. No tokenizer is needed: prompts are random ids of a fixed seed.
 *
 *   prefill  one prompt alone: its tokens over the time from its start to its first token
 *   decode   `batch` sequences of `context` tokens each, whose pages are in the prefix cache
 *            already; only steps in which all of them decode are counted. With a draft model the
 *            share of its tokens that were right is shown at the end
 *
 * Decode also shows how fast it reads the weights, and how fast the same threads read the same
 * memory if they do nothing else, before or after it.
 *
 * Each measurement is made once for warmth and then --reps times; shown are median, least and most.
 *
 * Threads: the main thread submits and waits; the engine's callbacks only note times.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "engine/engine.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "server/models/served_model.h"

enum { MAX_CASES = 64, MAX_BATCH = 1024 };
static const int64_t MAX_TOKENS = 10000000;

/* One option's numbers. */
struct numbers {
    int64_t v[MAX_CASES];
    int n;
};

/* One sequence under measurement. */
struct stream {
    struct bench *bench;
    struct eng_job *job;
    uint64_t *times; /* [max_times] when each token came */
    int64_t n_times, max_times;
    uint64_t submitted_us;
    struct eng_usage usage;
    enum eng_finish finish;
    bool done; /* guarded by the lock of the bench */
};

struct bench {
    const struct srv_config *config;
    struct eng *engine;
    struct numbers prefill, batch, context;
    int64_t max_prompt;     /* longest prompt of all cases */
    int32_t *ids;           /* [max_prompt + some] random ids */
    struct stream *streams; /* [n_streams] */
    int n_streams;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char err[1024];
};

/* ---- numbers ------------------------------------------------------------------------------- */

#define fail(b, ...) fail_with(-1, (b)->err, sizeof((b)->err), __VA_ARGS__)

/* The list's numbers, or the preset if none was given. */
static int parse_list(struct bench *b, const char *name, const struct srv_list *list, int64_t max,
                      int64_t preset, struct numbers *ret)
{
    if (list->n == 0) ret->v[ret->n++] = preset;
    for (int i = 0; i < list->n; i++) {
        char *end;
        long long v = strtoll(list->items[i], &end, 10);
        if (ret->n == MAX_CASES) return fail(b, "--%s: more than %d values", name, MAX_CASES);
        if (end == list->items[i] || *end || v < 0 || v > max)
            return fail(b, "--%s: '%.60s' is not a number of 0 to %lld", name, list->items[i],
                        (long long)max);
        ret->v[ret->n++] = v;
    }
    return 0;
}

static int64_t largest(const struct numbers *n)
{
    int64_t max = 0;
    for (int i = 0; i < n->n; i++)
        if (n->v[i] > max) max = n->v[i];
    return max;
}

static int read_cases(struct bench *b)
{
    const struct srv_config *c = b->config;
    return parse_list(b, "prefill", &c->prefill, MAX_TOKENS, 512, &b->prefill) ||
                   parse_list(b, "batch", &c->batch, MAX_BATCH, 1, &b->batch) ||
                   parse_list(b, "context", &c->context, MAX_TOKENS, 0, &b->context)
               ? -1
               : 0;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- running jobs -------------------------------------------------------------------------- */

static void on_event(void *ctx, const struct eng_event *e)
{
    struct stream *s = ctx;
    switch (e->type) {
    case ENG_EVENT_TOKEN:
        if (s->n_times < s->max_times) s->times[s->n_times++] = e->now_us;
        break;
    case ENG_EVENT_CHOICE_DONE: s->finish = e->finish; break;
    case ENG_EVENT_JOB_DONE:
        s->usage = *e->usage;
        pthread_mutex_lock(&s->bench->lock);
        s->done = true;
        pthread_cond_signal(&s->bench->changed);
        pthread_mutex_unlock(&s->bench->lock);
        break;
    default: break;
    }
}

/* Ids of prompt `which`: the same for equal numbers, different from the first token on otherwise.
 */
static void fill_prompt(struct bench *b, int which, int64_t n)
{
    uint64_t x = (uint64_t)which * 0x9E3779B97F4A7C15ull + 12345;
    int32_t vocab = eng_info(b->engine)->vocab_size;
    for (int64_t i = 0; i < n; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        b->ids[i] = (int32_t)((x >> 33) % (uint64_t)vocab);
    }
}

static int start(struct bench *b, struct stream *s, int which, int64_t n_prompt, int64_t max_tokens,
                 bool cached)
{
    fill_prompt(b, which, n_prompt);
    s->bench = b;
    s->n_times = 0;
    s->done = false;
    struct eng_job_params p = {
        .prompt = b->ids,
        .n_prompt = n_prompt,
        .n_choices = 1,
        .max_tokens = max_tokens,
        .sampling = eng_sampling_default(),
        .ignore_eos = true,
        .n_logprobs = -1,
        .n_prompt_logprobs = -1,
        .no_cache = !cached,
        .on_event = on_event,
        .ctx = s,
    };
    p.sampling.temperature = 0;
    return eng_job_submit(b->engine, &p, &s->job, b->err, sizeof(b->err));
}

/* Waits for the end of one stream. Returns 0, or -1 if it ended in an unexpected way. */
static int finish(struct bench *b, struct stream *s)
{
    pthread_mutex_lock(&b->lock);
    while (!s->done)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
    eng_job_release(s->job);
    s->job = NULL;
    if (s->finish == ENG_FINISH_LENGTH) return 0;
    return fail(b, "a request ended with %d instead of its length", s->finish);
}

/* ---- what is measured ---------------------------------------------------------------------- */

static int measure_prefill(struct bench *b, int64_t n_tokens, double *ret_tok_s)
{
    struct stream *s = &b->streams[0];
    if (start(b, s, 0, n_tokens, 1, false) || finish(b, s)) return -1;
    *ret_tok_s = 1e6 * (double)n_tokens / (double)(s->usage.first_token_us - s->usage.started_us);
    return 0;
}

/* Tokens per second over the steps in which all n streams decode. */
static int rate_of_common_steps(struct bench *b, int n, double *ret_tok_s)
{
    uint64_t from = 0, to = UINT64_MAX;
    for (int i = 0; i < n; i++) {
        const struct stream *s = &b->streams[i];
        if (s->times[0] > from) from = s->times[0];
        if (s->times[s->n_times - 1] < to) to = s->times[s->n_times - 1];
    }
    int64_t n_tokens = 0; /* drafts give streams different numbers of them */
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < b->streams[k].n_times; i++)
            n_tokens += b->streams[k].times[i] > from && b->streams[k].times[i] <= to;
    if (n_tokens == 0)
        return fail(b,
                    "%d sequences of this length do not decode at once: their KV cache does not "
                    "fit the memory",
                    n);
    *ret_tok_s = 1e6 * (double)n_tokens / (double)(to - from);
    return 0;
}

static int measure_decode(struct bench *b, int n, int64_t context, double *ret_tok_s)
{
    int rc = 0, n_started = 0;
    for (int i = 0; i < n && !rc; i++) { /* the contexts, one after the other, into the cache */
        if (context == 0) break;
        rc = start(b, &b->streams[0], i, context + 1, 0, true);
        if (!rc) rc = finish(b, &b->streams[0]);
    }
    eng_debug_pause(b->engine, true); /* so that all of them start in one step */
    while (n_started < n && !rc) {
        rc = start(b, &b->streams[n_started], n_started, context + 1, b->config->decode + 1 + n / 4,
                   true);
        n_started += !rc;
    }
    eng_debug_pause(b->engine, false);
    for (int i = 0; i < n_started; i++)
        if (finish(b, &b->streams[i])) rc = -1;
    return rc ? rc : rate_of_common_steps(b, n, ret_tok_s);
}

/* ---- output -------------------------------------------------------------------------------- */

/*
 * batch < 0: a prefill. v sorted. memory: bytes read per second, shown next to the speed at which
 * decoding reads the weights.
 */
static void print_speed(const struct bench *b, int64_t tokens, int64_t batch, int64_t context,
                        const double *v, int n, double memory)
{
    const struct eng_info *info = eng_info(b->engine);
    double median = v[n / 2];
    bool reads = batch > 0 && !b->config->draft_model; /* once per token */
    double weights = reads ? median / (double)batch * (double)info->step_bytes : 0;
    if (!b->config->json) {
        if (batch < 0)
            printf("prefill %6lld tokens                          ", (long long)tokens);
        else
            printf("decode  %6lld tokens, batch %4lld, context %5lld ", (long long)tokens,
                   (long long)batch, (long long)context);
        printf("%9.1f tok/s (%.1f to %.1f)", median, v[0], v[n - 1]);
        if (reads) printf(", weights at %.1f of %.1f GB/s", weights * 1e-9, memory * 1e-9);
        printf("\n");
    } else {
        AUTO(buf_finish) struct buf out = {.max = 4096};
        struct jw w = {.out = &out};
        jw_fields(&w, "{ test %s tokens %jd batch %jd context %jd",
                  batch < 0 ? "prefill" : "decode", tokens, batch < 0 ? 1 : batch, context);
        jw_fields(&w, "threads %d numerics %s kernels %s gemm %s chunk %d", info->n_threads,
                  info->numerics, info->kernels, info->gemm, info->chunk_tokens);
        jw_fixed(&w, "tok_s", median, 2);
        jw_fixed(&w, "min", v[0], 2);
        jw_fixed(&w, "max", v[n - 1], 2);
        if (reads) {
            jw_fixed(&w, "weights_gb_s", weights * 1e-9, 2);
            jw_fixed(&w, "memory_gb_s", memory * 1e-9, 2);
        }
        jw_close(&w);
        jw_end(&w);
        printf("%s\n", out.failed ? "" : out.data);
    }
    fflush(stdout);
}

/* ---- all cases ----------------------------------------------------------------------------- */

/* One case: batch < 0 is a prefill of `tokens`, else a decode. */
static int run_case(struct bench *b, int64_t tokens, int64_t batch, int64_t context)
{
    double v[1000], warm, before = 0, after = 0;
    int n = b->config->reps;
    if (batch > 0 && eng_read_speed(b->engine, &before, b->err, sizeof(b->err))) return -1;
    for (int i = -1; i < n; i++) {
        double *to = i < 0 ? &warm : &v[i];
        int rc =
            batch < 0 ? measure_prefill(b, tokens, to) : measure_decode(b, (int)batch, context, to);
        if (rc) return rc;
    }
    if (batch > 0 && eng_read_speed(b->engine, &after, b->err, sizeof(b->err))) return -1;
    qsort(v, (size_t)n, sizeof(*v), compare_doubles);
    print_speed(b, tokens, batch, context, v, n, after > before ? after : before);
    return 0;
}

static int run_cases(struct bench *b)
{
    int rc = 0;
    for (int i = 0; i < b->prefill.n && !rc; i++)
        if (b->prefill.v[i] > 0) rc = run_case(b, b->prefill.v[i], -1, 0);
    for (int i = 0; i < b->context.n && b->config->decode > 0; i++)
        for (int j = 0; j < b->batch.n && !rc; j++)
            if (b->batch.v[j] > 0)
                rc = run_case(b, b->config->decode, b->batch.v[j], b->context.v[i]);
    return rc;
}

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Tokenizers are not compared: ids are numbers here. */
static int load_draft_model(struct bench *b)
{
    const char *why = NULL;
    if (!b->config->draft_model) return 0;
    eng_load_drafts(b->engine, NULL);
    eng_await_drafts(b->engine);
    if (eng_draft_state(b->engine, &why) == ENG_DRAFTS_ON) return 0;
    return fail(b, "%s", why ? why : "the draft model is not used");
}

static int open_engine(struct bench *b)
{
    const struct srv_config *c = b->config;
    int64_t context = largest(&b->context), n_parallel = largest(&b->batch);
    n_parallel = max_i64(n_parallel, 1);
    b->max_prompt = max_i64(largest(&b->prefill), context + 1);
    int64_t new_tokens = c->decode + 1 + n_parallel / 4;
    struct eng_params params = srv_engine_params(c);
    params.n_parallel = (int)n_parallel;
    if (!c->draft_model) params.speculate = ENG_SPECULATE_OFF; /* a token is a row */
    params.ctx_tokens = max_i64(b->max_prompt + 1, context + 1 + new_tokens);
    params.max_queued_jobs = (int)n_parallel;
    params.max_queued_tokens = INT64_MAX;
    if (eng_open(&b->engine, &params, b->err, sizeof(b->err)) || load_draft_model(b)) return -1;
    b->n_streams = (int)n_parallel;
    b->ids = calloc((size_t)b->max_prompt, sizeof(*b->ids));
    b->streams = calloc((size_t)n_parallel, sizeof(*b->streams));
    for (int i = 0; i < b->n_streams && b->streams; i++) {
        b->streams[i].max_times = new_tokens + 1;
        b->streams[i].times = calloc((size_t)new_tokens + 1, sizeof(uint64_t));
        if (!b->streams[i].times) b->n_streams = 0;
    }
    if (b->ids && b->streams && b->n_streams) return 0;
    return fail(b, "no memory for %lld streams", (long long)n_parallel);
}

static void announce(const struct bench *b)
{
    const struct eng_info *i = eng_info(b->engine);
    shown_line(stderr,
               "hearth: %s, %.1f M parameters, numerics %s, kernels %s, gemm %s, %d threads, "
               "loaded in %.2f s",
               i->architecture, (double)i->n_params * 1e-6, i->numerics, i->kernels, i->gemm,
               i->n_threads, i->load_seconds);
}

static void announce_drafts(const struct bench *b)
{
    struct eng_stats s;
    eng_stats(b->engine, &s);
    double tried = (double)eng_draft_sum(s.n_draft_tokens);
    shown_line(stderr, "hearth: drafts (%s): %.0f tokens, %.1f %% right", eng_drafts(b->engine),
               tried,
               tried > 0 ? 100 * (double)eng_draft_sum(s.n_accepted_draft_tokens) / tried : 0.0);
}

int srv_cmd_bench(const struct srv_config *config)
{
    struct bench b = {.config = config};
    pthread_mutex_init(&b.lock, NULL);
    pthread_cond_init(&b.changed, NULL);
    int rc = read_cases(&b);
    if (!rc) rc = open_engine(&b);
    if (!rc) {
        announce(&b);
        rc = run_cases(&b);
        if (config->draft_model) announce_drafts(&b);
    }
    if (rc) shown_line(stderr, "hearth: %s", b.err);
    eng_close(b.engine);
    for (int i = 0; i < b.n_streams; i++)
        free(b.streams[i].times);
    free(b.streams);
    free(b.ids);
    pthread_cond_destroy(&b.changed);
    pthread_mutex_destroy(&b.lock);
    return rc || ferror(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
