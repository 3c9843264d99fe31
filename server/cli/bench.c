/* SPDX-License-Identifier: MIT */
/*
 * hearth bench: how fast a model is read and continued, measured through the engine's own interface
 * with the times its events carry. No tokenizer is needed: prompts are random ids of a fixed seed.
 *
 *   prefill  one prompt alone: its tokens over the time from its start to its first token
 *   decode   `batch` sequences of `context` tokens each, whose pages are in the prefix cache
 *            already; only steps in which all of them decode are counted. With a draft model the
 *            share of its tokens that were right is shown at the end
 *   clients  a closed loop: each client sends its next request when its last one is done
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
#include <string.h>

#include "base/buf.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "engine/engine.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "server/engine_params.h"

enum { MAX_CASES = 64, MAX_BATCH = 1024, REQUESTS_PER_CLIENT = 4 };
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
    struct numbers prefill, batch, context, clients;
    int64_t prompt_tokens;  /* of each client's request */
    int64_t max_prompt;     /* longest prompt of all cases */
    int32_t *ids;           /* [max_prompt + some] random ids */
    struct stream *streams; /* [n_streams] */
    int n_streams;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char err[1024];
};

/* ---- numbers ------------------------------------------------------------------------------- */

static int parse_number(struct bench *b, const char *name, const char *text, int64_t min,
                        int64_t max, int64_t *ret)
{
    char *end;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || v < min || v > max) {
        snprintf(b->err, sizeof(b->err), "--%s: '%.60s' is not a number of %lld to %lld", name,
                 text, (long long)min, (long long)max);
        return -1;
    }
    *ret = v;
    return 0;
}

/* The list's numbers, or the preset if none was given (negative: none). */
static int parse_list(struct bench *b, const char *name, const struct srv_list *list, int64_t max,
                      int64_t preset, struct numbers *ret)
{
    if (list->n == 0 && preset >= 0) ret->v[ret->n++] = preset;
    for (int i = 0; i < list->n; i++) {
        if (ret->n == MAX_CASES) {
            snprintf(b->err, sizeof(b->err), "--%s: more than %d values", name, MAX_CASES);
            return -1;
        }
        if (parse_number(b, name, list->items[i], 0, max, &ret->v[ret->n++])) return -1;
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
    b->prompt_tokens = c->prompt_tokens;
    if (c->prompt && parse_number(b, "prompt", c->prompt, 1, MAX_TOKENS, &b->prompt_tokens))
        return -1;
    /* With clients alone requested, nothing else is measured. */
    bool only_clients = c->clients.n && !c->prefill.n && !c->batch.n && !c->context.n;
    if (parse_list(b, "prefill", &c->prefill, MAX_TOKENS, only_clients ? -1 : 512, &b->prefill) ||
        parse_list(b, "batch", &c->batch, MAX_BATCH, only_clients ? -1 : 1, &b->batch) ||
        parse_list(b, "context", &c->context, MAX_TOKENS, only_clients ? -1 : 0, &b->context) ||
        parse_list(b, "clients", &c->clients, MAX_BATCH, -1, &b->clients))
        return -1;
    return 0;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median; v is sorted. */
static double percentile(const double *v, int64_t n, double p)
{
    if (n == 0) return 0;
    return v[(int64_t)((double)(n - 1) * p + 0.5)];
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
    snprintf(b->err, sizeof(b->err), "a request ended with %d instead of its length", s->finish);
    return -1;
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
    if (n_tokens == 0) {
        snprintf(b->err, sizeof(b->err),
                 "%d sequences of this length do not decode at once: "
                 "their KV cache does not fit the memory",
                 n);
        return -1;
    }
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

/* ---- the closed loop ----------------------------------------------------------------------- */

struct loop {
    int n_clients;
    int64_t n_requests, n_started, n_done;
    double *ttft, *gaps; /* [n_requests], [n_requests * gen]: milliseconds */
    int64_t n_gaps;
};

static void note_request(struct loop *l, const struct stream *s)
{
    l->ttft[l->n_done++] = (double)(s->usage.first_token_us - s->usage.submitted_us) * 1e-3;
    for (int64_t i = 1; i < s->n_times; i++)
        l->gaps[l->n_gaps++] = (double)(s->times[i] - s->times[i - 1]) * 1e-3;
}

static int find_done(const struct bench *b, int n)
{
    for (int i = 0; i < n; i++)
        if (b->streams[i].job && b->streams[i].done) return i;
    return -1;
}

/* Waits until some client's request is done and returns the client. */
static int await_any(struct bench *b, int n)
{
    int i;
    pthread_mutex_lock(&b->lock);
    while ((i = find_done(b, n)) < 0)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
    return i;
}

static int run_loop(struct bench *b, struct loop *l, double *ret_seconds)
{
    int rc = 0;
    uint64_t begin = UINT64_MAX, end = 0;
    int64_t gen = b->config->gen;
    for (int i = 0; i < l->n_clients && !rc; i++)
        rc = start(b, &b->streams[i], (int)l->n_started++, b->prompt_tokens, gen, false);
    while (l->n_done < l->n_requests && !rc) {
        struct stream *s = &b->streams[await_any(b, l->n_clients)];
        rc = finish(b, s);
        if (rc) break;
        note_request(l, s);
        if (s->usage.submitted_us < begin) begin = s->usage.submitted_us;
        if (s->usage.done_us > end) end = s->usage.done_us;
        if (l->n_started < l->n_requests)
            rc = start(b, s, (int)l->n_started++, b->prompt_tokens, gen, false);
    }
    for (int i = 0; i < l->n_clients; i++) /* some may run on after a failure */
        if (b->streams[i].job) finish(b, &b->streams[i]);
    *ret_seconds = (double)(end - begin) * 1e-6;
    return rc;
}

/* ---- output -------------------------------------------------------------------------------- */

/* Opens a line of JSON. */
static void begin_json(struct jw *w, struct buf *out, const char *test)
{
    buf_init(out, 4096);
    jw_init(w, out);
    jw_open(w, NULL, '{');
    jw_text(w, "test", test);
}

static void write_common(const struct bench *b, struct jw *w)
{
    const struct eng_info *info = eng_info(b->engine);
    jw_int(w, "threads", info->n_threads);
    jw_text(w, "numerics", info->numerics);
    jw_text(w, "kernels", info->kernels);
    jw_text(w, "gemm", info->gemm);
    jw_int(w, "chunk", info->chunk_tokens);
}

static void print_json(struct jw *w)
{
    jw_close(w);
    struct buf *out = jw_end(w);
    printf("%s\n", out->failed ? "" : out->data);
    buf_finish(out);
}

/*
 * batch < 0: a prefill. v sorted. memory: bytes read per second, shown next to the speed at which
 * decoding reads the weights.
 */
static void print_speed(const struct bench *b, int64_t tokens, int64_t batch, int64_t context,
                        const double *v, int n, double memory)
{
    double median = percentile(v, n, 0.5);
    bool reads = batch > 0 && !b->config->draft_model; /* once per token */
    double weights = reads ? median / (double)batch * (double)eng_info(b->engine)->step_bytes : 0;
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
        struct buf out;
        struct jw w;
        begin_json(&w, &out, batch < 0 ? "prefill" : "decode");
        jw_int(&w, "tokens", tokens);
        jw_int(&w, "batch", batch < 0 ? 1 : batch);
        jw_int(&w, "context", context);
        write_common(b, &w);
        jw_fixed(&w, "tok_s", median, 2);
        jw_fixed(&w, "min", v[0], 2);
        jw_fixed(&w, "max", v[n - 1], 2);
        if (reads) {
            jw_fixed(&w, "weights_gb_s", weights * 1e-9, 2);
            jw_fixed(&w, "memory_gb_s", memory * 1e-9, 2);
        }
        print_json(&w);
    }
    fflush(stdout);
}

static void print_loop_json(const struct bench *b, const struct loop *l, double out_rate,
                            double all_rate)
{
    static const double parts[] = {0.5, 0.95, 0.99, 1};
    static const char *const names[] = {"p50", "p95", "p99", "max"};
    struct buf out;
    struct jw w;
    begin_json(&w, &out, "clients");
    jw_int(&w, "clients", l->n_clients);
    jw_int(&w, "requests", l->n_done);
    jw_int(&w, "prompt", b->prompt_tokens);
    jw_int(&w, "gen", b->config->gen);
    write_common(b, &w);
    jw_fixed(&w, "tok_s", out_rate, 2);
    jw_fixed(&w, "total_tok_s", all_rate, 2);
    jw_open(&w, "ttft_ms", '{');
    for (int i = 0; i < 3; i++)
        jw_fixed(&w, names[i], percentile(l->ttft, l->n_done, parts[i]), 3);
    jw_close(&w);
    jw_open(&w, "gap_ms", '{');
    for (int i = 0; i < 4; i++)
        jw_fixed(&w, names[i], percentile(l->gaps, l->n_gaps, parts[i]), 3);
    jw_close(&w);
    print_json(&w);
}

static void print_loop(const struct bench *b, struct loop *l, double seconds)
{
    qsort(l->ttft, (size_t)l->n_done, sizeof(*l->ttft), compare_doubles);
    qsort(l->gaps, (size_t)l->n_gaps, sizeof(*l->gaps), compare_doubles);
    double out = (double)(l->n_done * b->config->gen) / seconds;
    double all = (double)(l->n_done * (b->config->gen + b->prompt_tokens)) / seconds;
    double worst = l->n_gaps ? l->gaps[l->n_gaps - 1] : 0;
    if (!b->config->json) {
        printf("clients %4d: %lld requests of %lld + %d tokens: %.1f generated tok/s, %.1f in all; "
               "first token p50 %.1f p99 %.1f ms; gap p50 %.2f p99 %.2f max %.2f ms\n",
               l->n_clients, (long long)l->n_done, (long long)b->prompt_tokens, b->config->gen, out,
               all, percentile(l->ttft, l->n_done, 0.5), percentile(l->ttft, l->n_done, 0.99),
               percentile(l->gaps, l->n_gaps, 0.5), percentile(l->gaps, l->n_gaps, 0.99), worst);
    } else {
        print_loop_json(b, l, out, all);
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

static int run_clients(struct bench *b, int n_clients)
{
    struct loop l = {.n_clients = n_clients,
                     .n_requests = (int64_t)n_clients * REQUESTS_PER_CLIENT};
    size_t n_gaps = (size_t)l.n_requests * (size_t)b->config->gen;
    double seconds;
    int rc = -1;
    l.ttft = calloc((size_t)l.n_requests, sizeof(*l.ttft));
    l.gaps = calloc(n_gaps, sizeof(*l.gaps));
    if (!l.ttft || !l.gaps)
        snprintf(b->err, sizeof(b->err), "no memory for %lld requests", (long long)l.n_requests);
    else
        rc = run_loop(b, &l, &seconds);
    if (!rc) print_loop(b, &l, seconds);
    free(l.ttft);
    free(l.gaps);
    return rc;
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
    for (int i = 0; i < b->clients.n && !rc; i++)
        if (b->clients.v[i] > 0) rc = run_clients(b, (int)b->clients.v[i]);
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
    snprintf(b->err, sizeof(b->err), "%s", why ? why : "the draft model is not used");
    return -1;
}

static int open_engine(struct bench *b)
{
    const struct srv_config *c = b->config;
    int64_t context = largest(&b->context), n_parallel = largest(&b->batch);
    n_parallel = max_i64(max_i64(n_parallel, largest(&b->clients)), 1);
    b->max_prompt = max_i64(max_i64(largest(&b->prefill), context + 1), b->prompt_tokens);
    int64_t new_tokens = max_i64(c->decode + 1 + n_parallel / 4, c->gen);
    struct eng_params params = srv_engine_params(c);
    params.n_parallel = (int)n_parallel;
    if (!c->draft_model) params.speculate = ENG_SPECULATE_OFF; /* a token is a row */
    params.ctx_tokens =
        max_i64(b->max_prompt + 1, max_i64(context + 1, b->prompt_tokens) + new_tokens);
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
    snprintf(b->err, sizeof(b->err), "no memory for %lld streams", (long long)n_parallel);
    return -1;
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
