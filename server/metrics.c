/* SPDX-License-Identifier: MIT */
/*
 * Metric families as tables: a histogram is a row with its name, its alias and its bounds; the text
 * is written by walking them. Values are seconds and tokens.
 */
#include "server/metrics.h"

#include <assert.h>
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "server/log.h"

enum { MAX_BOUNDS = 24 };

static const double ttft_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08,
                                     0.1,   0.25,  0.5,  0.75, 1,    2.5,  5,
                                     7.5,   10,    20,   40,   80,   160,  640};
static const double token_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                      0.2,   0.3,    0.4,   0.5,  0.75,  1,    2.5,   5,   10};
static const double request_bounds[] = {0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,   1.5, 2,   2.5, 5,   10,
                                        15,   20,   30,  40,  50,  60,  120, 240, 480, 960, 1920};
static const double count_bounds[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                      500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

enum histogram_id {
    H_TTFT,
    H_INTER_TOKEN,
    H_PER_TOKEN,
    H_E2E,
    H_QUEUE,
    H_PREFILL,
    H_DECODE,
    H_INFERENCE,
    H_PROMPT_TOKENS,
    H_GENERATED_TOKENS,
    H_CHOICES,
    H_MAX_TOKENS,
    H_GRAMMAR_COMPILE,
    H_GRAMMAR_MASK,
    H_SWAP_LOAD,
    H_MODEL_LOAD,
    H_MODEL_WAIT,
    H_COUNT
};

static const double compile_bounds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                        0.01,   0.025,   0.05,   0.1,   0.25,   0.5};
static const double mask_bounds[] = {0.000001, 0.000002, 0.000005, 0.00001, 0.00002, 0.00005,
                                     0.0001,   0.0002,   0.0005,   0.001,   0.002,   0.005};
static const double choice_bounds[] = {1, 2, 5, 10, 20};

#define BOUNDS(array) array, sizeof(array) / sizeof((array)[0])

static const struct {
    const char *name, *alias, *help;
    const double *bounds;
    size_t n_bounds;
} histograms[H_COUNT] = {
    [H_TTFT] = {"hearth_time_to_first_token_seconds", "vllm:time_to_first_token_seconds",
                "Time from the arrival of a request to its first token.", BOUNDS(ttft_bounds)},
    [H_INTER_TOKEN] = {"hearth_inter_token_latency_seconds", "vllm:inter_token_latency_seconds",
                       "Time between tokens; each token counts with the mean of its request.",
                       BOUNDS(token_bounds)},
    [H_PER_TOKEN] = {"hearth_time_per_output_token_seconds", "vllm:time_per_output_token_seconds",
                     "Mean time between the tokens of a request, one value per request.",
                     BOUNDS(token_bounds)},
    [H_E2E] = {"hearth_request_duration_seconds", "vllm:e2e_request_latency_seconds",
               "Total time of a request that generated or scored.", BOUNDS(request_bounds)},
    [H_QUEUE] = {"hearth_request_queue_seconds", "vllm:request_queue_time_seconds",
                 "Time of a request in the queue.", BOUNDS(request_bounds)},
    [H_PREFILL] = {"hearth_request_prefill_seconds", "vllm:request_prefill_time_seconds",
                   "Time from leaving the queue to the first token.", BOUNDS(request_bounds)},
    [H_DECODE] = {"hearth_request_decode_seconds", "vllm:request_decode_time_seconds",
                  "Time from the first token to the end of the request.", BOUNDS(request_bounds)},
    [H_INFERENCE] = {"hearth_request_inference_seconds", "vllm:request_inference_time_seconds",
                     "Time from leaving the queue to the end of the request.",
                     BOUNDS(request_bounds)},
    [H_PROMPT_TOKENS] = {"hearth_request_prompt_tokens", "vllm:request_prompt_tokens",
                         "Prompt tokens per request.", BOUNDS(count_bounds)},
    [H_GENERATED_TOKENS] = {"hearth_request_generated_tokens", "vllm:request_generation_tokens",
                            "Generated tokens per request.", BOUNDS(count_bounds)},
    [H_CHOICES] = {"hearth_request_choices", "vllm:request_params_n", "Choices per request (n).",
                   BOUNDS(choice_bounds)},
    [H_MAX_TOKENS] = {"hearth_request_max_tokens", "vllm:request_params_max_tokens",
                      "Most tokens per choice: max_tokens, or the rest of the context.",
                      BOUNDS(count_bounds)},
    [H_GRAMMAR_COMPILE] =
        {"hearth_grammar_compile_seconds", NULL,
         "Time until a grammar was compiled, with the wait for others, or found in the cache.",
         BOUNDS(compile_bounds)},
    [H_GRAMMAR_MASK] = {"hearth_grammar_mask_seconds", NULL,
                        "Time to find the tokens that a grammar allows next.", BOUNDS(mask_bounds)},
    [H_SWAP_LOAD] = {"hearth_swap_load_seconds", NULL,
                     "Time to load a model that replaced another.", BOUNDS(request_bounds)},
    [H_MODEL_LOAD] = {"hearth_model_load_seconds", NULL, "Time to load a model on demand.",
                      BOUNDS(request_bounds)},
    [H_MODEL_WAIT] = {"hearth_model_wait_seconds", NULL,
                      "Time that a request waited for its model to be loaded.",
                      BOUNDS(request_bounds)},
};

static const int statuses[] = {200, 202, 204, 400, 401, 403, 404, 405, 408,
                               409, 413, 415, 429, 431, 500, 503, 504};
static const char *const swap_results[] = {"ok",      "unchanged", "insufficient_memory",
                                           "invalid", "self_test", "busy"};
static const char *const endpoints[] = {
    "completions", "infill",         "chat",         "responses",  "messages", "choose",
    "rerank",      "score",          "classify",     "embeddings", "models",   "tokenize",
    "detokenize",  "apply-template", "count_tokens", "props",      "slots",    "health",
    "metrics",     "version",        "openapi",      "swap",
};
static const char *const reasons[] = {"stop", "length", "error", "cancelled", "rejected"};
enum reason { R_STOP, R_LENGTH, R_ERROR, R_CANCELLED, R_REJECTED };

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

struct histogram {
    atomic_ullong
        buckets[MAX_BOUNDS + 1]; /* not cumulative; the last counts values above all bounds */
    atomic_ullong sum_micro;     /* of values, in millionths */
};

/* The last of each row of counters is "other". */
struct srv_metrics {
    atomic_ullong counts[SRV_COUNT_N];
    atomic_ullong by_status[N_OF(statuses) + 1];
    atomic_ullong by_endpoint[N_OF(endpoints) + 1];
    atomic_ullong by_reason[N_OF(reasons)];
    atomic_ullong swaps[N_OF(swap_results)]; /* by enum srv_swap_result */
    struct histogram histograms[H_COUNT];
};

struct srv_metrics *srv_metrics_create(void)
{
    return calloc(1, sizeof(struct srv_metrics));
}

void srv_metrics_destroy(struct srv_metrics *m)
{
    free(m);
}

/* ---- counting ------------------------------------------------------------------------------ */

void srv_metrics_add(struct srv_metrics *m, enum srv_count what, int n)
{
    assert(what < SRV_COUNT_N && n >= 0);
    atomic_fetch_add_explicit(&m->counts[what], (unsigned)n, memory_order_relaxed);
}

void srv_metrics_count(struct srv_metrics *m, enum srv_count what)
{
    srv_metrics_add(m, what, 1);
}

/* Counts `value` n times. */
static void observe(struct srv_metrics *m, enum histogram_id id, double value, uint64_t n)
{
    struct histogram *h = &m->histograms[id];
    size_t i = 0;
    assert(histograms[id].n_bounds <= MAX_BOUNDS);
    if (value < 0) value = 0;
    while (i < histograms[id].n_bounds && value > histograms[id].bounds[i])
        i++;
    atomic_fetch_add_explicit(&h->buckets[i], n, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_micro, (unsigned long long)(value * 1e6 * (double)n + 0.5),
                              memory_order_relaxed);
}

void srv_metrics_observe(struct srv_metrics *m, enum srv_time what, uint64_t us)
{
    observe(m, what == SRV_TIME_MASK ? H_GRAMMAR_MASK : H_GRAMMAR_COMPILE, (double)us * 1e-6, 1);
}

void srv_metrics_observe_load(struct srv_metrics *m, uint64_t load_us)
{
    observe(m, H_MODEL_LOAD, (double)load_us * 1e-6, 1);
}

void srv_metrics_observe_wait(struct srv_metrics *m, uint64_t wait_us)
{
    observe(m, H_MODEL_WAIT, (double)wait_us * 1e-6, 1);
}

void srv_metrics_count_swap(struct srv_metrics *m, enum srv_swap_result result, uint64_t load_us)
{
    _Static_assert(SWAP_OK == 0 && SWAP_BUSY == N_OF(swap_results) - 1, "one label per result");
    if (result == SWAP_OK) observe(m, H_SWAP_LOAD, (double)load_us * 1e-6, 1);
    if (result == SWAP_NOT_FOUND) result = SWAP_INVALID;
    if (result > SWAP_BUSY) return; /* the server is ending */
    atomic_fetch_add_explicit(&m->swaps[result], 1, memory_order_relaxed);
}

static size_t status_index(int status)
{
    size_t i = 0;
    while (i < N_OF(statuses) && statuses[i] != status)
        i++;
    return i;
}

static size_t endpoint_index(const char *endpoint)
{
    size_t i = 0;
    while (i < N_OF(endpoints) && (!endpoint || strcmp(endpoints[i], endpoint) != 0))
        i++;
    return i;
}

static enum reason reason_of(int status, bool disconnected, const struct srv_account *a)
{
    if (disconnected) return R_CANCELLED;
    if (status == 429 || status == 503) return R_REJECTED;
    if (status != 200) return R_ERROR;
    for (int i = 0; a->finish_reason && i <= R_ERROR; i++) {
        if (strcmp(a->finish_reason, reasons[i]) == 0) return (enum reason)i;
    }
    return R_STOP;
}

/* The endpoints that use the engine stand first in the table. */
static bool is_inference(size_t endpoint)
{
    return endpoint <= endpoint_index("embeddings");
}

static void observe_times(struct srv_metrics *m, const struct srv_account *a, int64_t total_us)
{
    double total = (double)total_us * 1e-6;
    observe(m, H_E2E, total, 1);
    if (a->queue_us < 0) return;
    double queue = (double)a->queue_us * 1e-6;
    observe(m, H_QUEUE, queue, 1);
    observe(m, H_INFERENCE, total - queue, 1);
    if (a->ttft_us < 0) return;
    double ttft = (double)a->ttft_us * 1e-6;
    observe(m, H_TTFT, ttft, 1);
    observe(m, H_PREFILL, ttft - queue, 1);
    observe(m, H_DECODE, total - ttft, 1);
    if (a->n_generated_tokens < 2) return;
    uint64_t gaps = (uint64_t)a->n_generated_tokens - 1;
    observe(m, H_PER_TOKEN, (total - ttft) / (double)gaps, 1);
    observe(m, H_INTER_TOKEN, (total - ttft) / (double)gaps, gaps);
}

void srv_metrics_count_request(struct srv_metrics *m, int status, bool disconnected,
                               const struct srv_account *a, int64_t total_us)
{
    size_t endpoint = endpoint_index(a->endpoint);
    if (disconnected) srv_metrics_count(m, SRV_COUNT_GONE);
    atomic_fetch_add_explicit(&m->by_status[status_index(status)], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->by_endpoint[endpoint], 1, memory_order_relaxed);
    if (!is_inference(endpoint)) return;
    enum reason reason = reason_of(status, disconnected, a);
    atomic_fetch_add_explicit(&m->by_reason[reason], 1, memory_order_relaxed);
    if (reason == R_REJECTED || status != 200) return;
    observe(m, H_PROMPT_TOKENS, (double)a->n_prompt_tokens, 1);
    observe(m, H_GENERATED_TOKENS, (double)a->n_generated_tokens, 1);
    if (a->n_choices > 0) {
        observe(m, H_CHOICES, (double)a->n_choices, 1);
        observe(m, H_MAX_TOKENS, (double)a->max_tokens, 1);
    }
    observe_times(m, a, total_us);
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Destination of the text, and the labels of every alias. */
struct out {
    struct buf *b;
    struct buf model_label; /* model_name="...",engine="0": vLLM numbers its engines */
    bool vllm;
};

static void head(struct out *o, const char *name, const char *type, const char *help)
{
    buf_printf(o->b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(struct out *o, const char *name, const char *type, const char *help, double value)
{
    head(o, name, type, help);
    buf_printf(o->b, "%s %.15g\n", name, value);
}

static void alias(struct out *o, const char *name, const char *type, const char *help, double value)
{
    if (!o->vllm) return;
    head(o, name, type, help);
    buf_printf(o->b, "%s{%s} %.15g\n", name, o->model_label.data, value);
}

static double load(const atomic_ullong *counter)
{
    return (double)atomic_load_explicit(counter, memory_order_relaxed);
}

/* A label value: quotes, backslashes and line ends escaped. */
static void add_label(struct buf *b, const char *name, const char *value)
{
    buf_printf(b, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\') buf_add(b, "\\", 1);
        if (*value == '\n')
            buf_puts(b, "\\n");
        else
            buf_add(b, value, 1);
    }
    buf_puts(b, "\"");
}

static void histogram(struct out *o, const struct srv_metrics *m, int id, const char *name,
                      const char *label)
{
    const struct histogram *h = &m->histograms[id];
    double n = 0;
    head(o, name, "histogram", histograms[id].help);
    for (size_t i = 0; i <= histograms[id].n_bounds; i++) {
        n += load(&h->buckets[i]);
        buf_printf(o->b, "%s_bucket{%s%sle=\"", name, label, *label ? "," : "");
        if (i < histograms[id].n_bounds)
            buf_printf(o->b, "%.15g\"} %.15g\n", histograms[id].bounds[i], n);
        else
            buf_printf(o->b, "+Inf\"} %.15g\n", n);
    }
    const char *open = *label ? "{" : "", *close = *label ? "}" : "";
    buf_printf(o->b, "%s_sum%s%s%s %.15g\n", name, open, label, close, load(&h->sum_micro) * 1e-6);
    buf_printf(o->b, "%s_count%s%s%s %.15g\n", name, open, label, close, n);
}

/* Steps by size; the engine counts them. */
static void step_histogram(struct out *o, const struct eng_stats *s, const char *name,
                           const char *label)
{
    double n = 0;
    head(o, name, "histogram", "Prompt tokens computed and tokens generated per engine step.");
    for (int i = 0; i < ENG_STEP_SIZES; i++) {
        n += (double)s->n_steps_of_size[i];
        buf_printf(o->b, "%s_bucket{%s%sle=\"", name, label, *label ? "," : "");
        if (i < ENG_STEP_SIZES - 1)
            buf_printf(o->b, "%lld\"} %.15g\n", (long long)eng_step_size(i), n);
        else
            buf_printf(o->b, "+Inf\"} %.15g\n", n);
    }
    const char *open = *label ? "{" : "", *close = *label ? "}" : "";
    buf_printf(o->b, "%s_sum%s%s%s %.15g\n", name, open, label, close, (double)s->n_step_tokens);
    buf_printf(o->b, "%s_count%s%s%s %.15g\n", name, open, label, close, n);
}

static void write_histograms(struct out *o, const struct srv_metrics *m)
{
    for (int id = 0; id < H_COUNT; id++)
        histogram(o, m, id, histograms[id].name, "");
    for (int id = 0; id < H_COUNT && o->vllm; id++)
        if (histograms[id].alias) histogram(o, m, id, histograms[id].alias, o->model_label.data);
}

static void write_requests(struct out *o, const struct srv_metrics *m)
{
    head(o, "hearth_http_requests_total", "counter",
         "Requests by HTTP status; other: a status without a series, or no answer sent.");
    for (size_t i = 0; i < N_OF(statuses); i++) {
        buf_printf(o->b, "hearth_http_requests_total{code=\"%d\"} %.15g\n", statuses[i],
                   load(&m->by_status[i]));
    }
    buf_printf(o->b, "hearth_http_requests_total{code=\"other\"} %.15g\n",
               load(&m->by_status[N_OF(statuses)]));

    head(o, "hearth_endpoint_requests_total", "counter",
         "Requests by endpoint; other: everything else.");
    for (size_t i = 0; i <= N_OF(endpoints); i++) {
        buf_printf(o->b, "hearth_endpoint_requests_total{endpoint=\"%s\"} %.15g\n",
                   i < N_OF(endpoints) ? endpoints[i] : "other", load(&m->by_endpoint[i]));
    }

    head(o, "hearth_requests_finished_total", "counter", "Inference requests by how they ended.");
    for (size_t i = 0; i < N_OF(reasons); i++) {
        buf_printf(o->b, "hearth_requests_finished_total{reason=\"%s\"} %.15g\n", reasons[i],
                   load(&m->by_reason[i]));
    }
    if (!o->vllm) return;
    static const char *const names[] = {"stop", "length", "error", "abort"};
    static const enum reason kinds[] = {R_STOP, R_LENGTH, R_ERROR, R_CANCELLED};
    head(o, "vllm:request_success_total", "counter", "Inference requests by how they ended.");
    for (size_t i = 0; i < N_OF(names); i++) {
        buf_printf(o->b, "vllm:request_success_total{%s,finished_reason=\"%s\"} %.15g\n",
                   o->model_label.data, names[i], load(&m->by_reason[kinds[i]]));
    }
}

static void write_wire(struct out *o, const struct srv_metrics *m, const struct srv_metrics_view *v)
{
    one(o, "hearth_http_connections", "gauge", "Open connections now.", v->n_connections);
    one(o, "hearth_http_requests_open", "gauge", "Open requests now.", v->n_requests);
    one(o, "hearth_http_connections_refused_total", "counter",
        "Connections refused with 503 because of max-connections.",
        load(&m->counts[SRV_COUNT_REFUSED_CONNECTIONS]));
    one(o, "hearth_http_clients_gone_total", "counter",
        "Requests whose client disconnected or was cut before the end.",
        load(&m->counts[SRV_COUNT_GONE]));
    one(o, "hearth_http_slow_readers_cut_total", "counter",
        "Connections cut because the client read too slowly.",
        load(&m->counts[SRV_COUNT_SLOW_READERS]));
    one(o, "hearth_requests_returned_total", "counter",
        "Refused requests that came back at their retry time.",
        load(&m->counts[SRV_COUNT_RETURNED]));
    one(o, "hearth_requests_returned_refused_total", "counter",
        "Requests refused again although they came back at their retry time.",
        load(&m->counts[SRV_COUNT_RETURNED_REFUSED]));
    one(o, "hearth_metadata_lines_total", "counter",
        "Lines of clients' own that were taken off the beginning of system prompts.",
        load(&m->counts[SRV_COUNT_METADATA_LINES]));
    one(o, "hearth_truncated_requests_total", "counter",
        "Chats that lost their oldest messages because they asked for it where the context is "
        "full.",
        load(&m->counts[SRV_COUNT_TRUNCATED]));
    one(o, "hearth_log_lines_dropped_total", "counter",
        "Log lines dropped because stderr did not accept them in time.",
        (double)srv_log_n_dropped());
    head(o, "hearth_http_timeouts_total", "counter",
         "Connections cut because the head or body of a request did not arrive in time.");
    buf_printf(o->b, "hearth_http_timeouts_total{part=\"head\"} %.15g\n",
               load(&m->counts[SRV_COUNT_HEADER_TIMEOUTS]));
    buf_printf(o->b, "hearth_http_timeouts_total{part=\"body\"} %.15g\n",
               load(&m->counts[SRV_COUNT_BODY_TIMEOUTS]));
}

static void write_grammars(struct out *o, const struct srv_metrics *m,
                           const struct srv_metrics_view *v)
{
    one(o, "hearth_grammar_cache_hits_total", "counter",
        "Constrained requests whose grammar was in the cache.", (double)v->n_grammar_hits);
    one(o, "hearth_grammar_cache_misses_total", "counter",
        "Constrained requests whose grammar had to be compiled.", (double)v->n_grammar_misses);
    one(o, "hearth_grammar_waiting", "gauge",
        "Requests that wait for a grammar to be compiled, now.", v->n_compile_waits);
    head(o, "hearth_grammar_refused_total", "counter",
         "Requests refused because of their schema or grammar, by error code.");
    buf_printf(o->b,
               "hearth_grammar_refused_total{code=\"invalid_json_schema\"} %.15g\n"
               "hearth_grammar_refused_total{code=\"invalid_grammar\"} %.15g\n"
               "hearth_grammar_refused_total{code=\"unsupported_parameter\"} %.15g\n",
               load(&m->counts[SRV_COUNT_SCHEMAS_REFUSED]),
               load(&m->counts[SRV_COUNT_GRAMMARS_REFUSED]),
               load(&m->counts[SRV_COUNT_GRAMMARS_UNSUPPORTED]));
    one(o, "hearth_grammar_relaxed_total", "counter",
        "Requests with a schema keyword that is only approximated.",
        load(&m->counts[SRV_COUNT_GRAMMAR_RELAXED]));
    one(o, "hearth_grammar_overflow_total", "counter",
        "Tokens at which alternatives of a grammar were dropped because there were too many.",
        load(&m->counts[SRV_COUNT_GRAMMAR_OVERFLOWS]));
}

static void write_late_masks(struct out *o, const struct eng_stats *s)
{
    one(o, "hearth_grammar_late_masks_total", "counter",
        "Steps that a sequence sat out because its grammar's next tokens were not known yet.",
        (double)s->n_late_masks);
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static void write_snapshots(struct out *o, const struct eng_stats *s)
{
    one(o, "hearth_state_snapshots_limit", "gauge",
        "Snapshots of recurrent states that the prefix cache has room for.", s->n_snapshots_total);
    one(o, "hearth_state_snapshots", "gauge",
        "Snapshots of recurrent states in the prefix cache now.", s->n_snapshots);
    one(o, "hearth_state_snapshot_hits_total", "counter",
        "Sequences that began from a snapshot of a recurrent state.", (double)s->n_snapshot_hits);
    one(o, "hearth_state_snapshots_evicted_total", "counter",
        "Snapshots of recurrent states that gave way to others or went with their KV page.",
        (double)s->n_snapshots_evicted);
}

static void write_kv_disk(struct out *o, const struct eng_kv_disk_stats *s)
{
    static const char *const faults[ENG_KV_FAULTS] = {"unreadable", "length", "header", "foreign",
                                                      "payload"};
    one(o, "hearth_kv_disk_bytes", "gauge", "Bytes of all pages in the directory of kv-disk.",
        (double)s->bytes);
    one(o, "hearth_kv_disk_pages", "gauge", "Pages in it, of this model's size.",
        (double)s->n_pages);
    one(o, "hearth_kv_disk_paused", "gauge",
        "1 for a minute after pages could not be written to kv-disk.", s->paused);
    one(o, "hearth_kv_disk_restores_total", "counter",
        "Prompts of which pages were read from kv-disk.", (double)s->n_restores);
    one(o, "hearth_kv_disk_restore_seconds_total", "counter", "Time in which they were read.",
        (double)s->restore_us * 1e-6);
    one(o, "hearth_kv_disk_prompt_tokens_total", "counter",
        "Prompt tokens that were read from kv-disk.", (double)s->n_read_tokens);
    one(o, "hearth_kv_disk_read_bytes_total", "counter", "Bytes of pages read from kv-disk.",
        (double)s->n_read_bytes);
    one(o, "hearth_kv_disk_written_bytes_total", "counter", "Bytes of pages written to kv-disk.",
        (double)s->n_written_bytes);
    one(o, "hearth_kv_disk_write_errors_total", "counter", "Writes to kv-disk that failed.",
        (double)s->n_write_errors);
    one(o, "hearth_kv_disk_dropped_total", "counter",
        "Sequences whose pages were not written, because kv-disk did not keep up or had failed.",
        (double)s->n_dropped);
    head(o, "hearth_kv_disk_bad_files_total", "counter",
         "Files in kv-disk that were not served; damaged ones are removed.");
    for (int i = 0; i < ENG_KV_FAULTS; i++)
        buf_printf(o->b, "hearth_kv_disk_bad_files_total{reason=\"%s\"} %llu\n", faults[i],
                   (unsigned long long)s->n_faults[i]);
}

static void write_queue(struct out *o, const struct eng_stats *s)
{
    one(o, "hearth_sequences_running", "gauge", "Sequences being computed now.", s->n_running);
    one(o, "hearth_sequences_waiting", "gauge", "Sequences in the queue now.", s->n_waiting);
    one(o, "hearth_waiting_prompt_tokens", "gauge", "Prompt tokens in the queue now.",
        (double)s->n_waiting_tokens);
    one(o, "hearth_kv_pages", "gauge", "Pages of the KV cache.", s->n_pages_total);
    one(o, "hearth_kv_pages_used", "gauge", "KV pages held by running sequences now.",
        s->n_pages_used);
    one(o, "hearth_kv_pages_cached", "gauge", "KV pages held by the prefix cache alone now.",
        s->n_pages_cached);
    one(o, "hearth_prefix_kept_pages", "gauge",
        "Pages that breakpoints of requests keep in the prefix cache.", s->n_pages_kept);
    write_snapshots(o, s);
    write_kv_disk(o, &s->kv_disk);
    one(o, "hearth_prompt_tokens_per_second", "gauge",
        "Prompt tokens per second over the most recent work.", s->prompt_tokens_per_s);
    one(o, "hearth_generated_tokens_per_second", "gauge",
        "Generated tokens per second over the most recent work.", s->generated_tokens_per_s);
    alias(o, "vllm:num_requests_running", "gauge", "Sequences being computed now.", s->n_running);
    alias(o, "vllm:num_requests_waiting", "gauge", "Sequences in the queue now.", s->n_waiting);
    double used = ratio(s->n_pages_used, s->n_pages_total);
    alias(o, "vllm:kv_cache_usage_perc", "gauge", "Share of KV pages in use now, 0 to 1.", used);
    alias(o, "vllm:gpu_cache_usage_perc", "gauge", "Share of KV pages in use now, 0 to 1.", used);
    alias(o, "vllm:num_preemptions_total", "counter",
          "Preempted sequences: always 0, nothing is preempted.", 0);
}

/* Drafts by length; the engine counts them. */
static void draft_histogram(struct out *o, const struct eng_stats *s)
{
    static const char name[] = "hearth_draft_length_tokens";
    double n = 0, sum = 0;
    head(o, name, "histogram", "Tokens per draft.");
    for (int i = 0; i < ENG_DRAFT_IDS; i++) {
        n += (double)s->n_drafts_of_length[i];
        sum += (i + 1) * (double)s->n_drafts_of_length[i];
        buf_printf(o->b, "%s_bucket{le=\"%d\"} %.15g\n", name, i + 1, n);
    }
    buf_printf(o->b, "%s_bucket{le=\"+Inf\"} %.15g\n%s_sum %.15g\n%s_count %.15g\n", name, n, name,
               sum, name, n);
}

static void write_drafts(struct out *o, const struct eng_stats *s)
{
    static const char *const sources[ENG_DRAFT_SOURCES] = {"text", "prediction", "forced", "self",
                                                           "model"};
    const struct {
        const char *name, *alias, *help;
        const uint64_t *values;
    } rows[] = {
        {"hearth_drafts_total", "vllm:spec_decode_num_drafts_total",
         "Drafts tried, by source: at most one per sequence and step.", s->n_drafts},
        {"hearth_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total",
         "Tokens of drafts that were computed, by source.", s->n_draft_tokens},
        {"hearth_accepted_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total",
         "Tokens of drafts that were right, by source.", s->n_accepted_draft_tokens},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        head(o, rows[i].name, "counter", rows[i].help);
        for (int k = 0; k < ENG_DRAFT_SOURCES; k++)
            buf_printf(o->b, "%s{source=\"%s\"} %.15g\n", rows[i].name, sources[k],
                       (double)rows[i].values[k]);
        alias(o, rows[i].alias, "counter", rows[i].help, (double)eng_draft_sum(rows[i].values));
    }
    draft_histogram(o, s);
    one(o, "hearth_drafts_loading_since_seconds", "gauge",
        "Since when the oldest twin or draft model that is being loaded in the background waits, "
        "unix seconds; 0: none is.",
        (double)s->drafts_since_ms / 1000);
}

static void write_tokens(struct out *o, const struct eng_stats *s)
{
    double prompt = (double)s->n_prompt_tokens, cached = (double)s->n_cached_tokens;
    double generated = (double)s->n_generated_tokens;
    one(o, "hearth_prompt_tokens_total", "counter",
        "Prompt tokens of admitted requests, cached ones included.", prompt);
    one(o, "hearth_cached_prompt_tokens_total", "counter",
        "Prompt tokens taken from the prefix cache.", cached);
    one(o, "hearth_computed_prompt_tokens_total", "counter", "Prompt tokens computed.",
        (double)s->n_computed_prompt_tokens);
    head(o, "hearth_prefix_tokens_total", "counter", "Prompt tokens by where they came from.");
    buf_printf(o->b,
               "hearth_prefix_tokens_total{source=\"memory\"} %llu\n"
               "hearth_prefix_tokens_total{source=\"disk\"} %llu\n"
               "hearth_prefix_tokens_total{source=\"computed\"} %llu\n",
               (unsigned long long)(s->n_cached_tokens - s->n_disk_tokens),
               (unsigned long long)s->n_disk_tokens,
               (unsigned long long)s->n_computed_prompt_tokens);
    head(o, "hearth_prefix_miss_total", "counter",
         "Prompts that the prefix cache did not hold up to their last whole page, by reason.");
    for (int i = ENG_MISS_NONE + 1; i < ENG_N_MISSES; i++)
        buf_printf(o->b, "hearth_prefix_miss_total{reason=\"%s\"} %llu\n", eng_miss_name(i),
                   (unsigned long long)s->n_misses[i]);
    one(o, "hearth_generated_tokens_total", "counter", "Tokens generated.", generated);
    write_late_masks(o, s);
    write_drafts(o, s);
    one(o, "hearth_engine_steps_total", "counter", "Engine steps.", (double)s->n_steps);
    one(o, "hearth_engine_busy_seconds_total", "counter", "Time spent in engine steps.",
        (double)s->compute_us * 1e-6);
    head(o, "hearth_jobs_total", "counter", "Engine jobs by how they ended.");
    buf_printf(o->b,
               "hearth_jobs_total{end=\"done\"} %llu\nhearth_jobs_total{end=\"cancelled\"} %llu\n"
               "hearth_jobs_total{end=\"failed\"} %llu\n",
               (unsigned long long)s->n_jobs_done, (unsigned long long)s->n_jobs_cancelled,
               (unsigned long long)s->n_jobs_failed);
    alias(o, "vllm:prompt_tokens_total", "counter",
          "Prompt tokens of admitted requests, cached ones included.", prompt);
    alias(o, "vllm:generation_tokens_total", "counter", "Tokens generated.", generated);
    alias(o, "vllm:prefix_cache_queries_total", "counter",
          "Prompt tokens looked up in the prefix cache.", prompt);
    alias(o, "vllm:prefix_cache_hits_total", "counter",
          "Prompt tokens taken from the prefix cache.", cached);
    alias(o, "vllm:gpu_prefix_cache_queries_total", "counter",
          "Prompt tokens looked up in the prefix cache.", prompt);
    alias(o, "vllm:gpu_prefix_cache_hits_total", "counter",
          "Prompt tokens taken from the prefix cache.", cached);
}

/* The second field of /proc/self/statm, in bytes. */
static double resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%*u %llu", &pages) != 1) pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) return 0;
    int n = -3; /* itself, "." and ".." */
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void write_models(struct out *o, const struct srv_metrics *m,
                         const struct srv_metrics_view *v)
{
    one(o, "hearth_models_loaded", "gauge", "Models in memory now, those that drain included.",
        v->n_loaded);
    one(o, "hearth_draft_model_loaded", "gauge",
        "1 while a draft model drafts for the current model; 0: none is configured, it is being "
        "loaded, or it could not be used.",
        v->draft_model_on);
    head(o, "hearth_model_info", "gauge", "Always 1; each model in memory, with its fingerprint.");
    for (int i = 0; i < v->n_models; i++) {
        buf_puts(o->b, "hearth_model_info{");
        add_label(o->b, "model", v->models[i].name);
        buf_puts(o->b, ",");
        add_label(o->b, "fingerprint", v->models[i].fingerprint);
        buf_puts(o->b, "} 1\n");
    }
    head(o, "hearth_swaps_total", "counter", "Swaps of the model by result.");
    for (size_t i = 0; i < N_OF(swap_results); i++)
        buf_printf(o->b, "hearth_swaps_total{result=\"%s\"} %.15g\n", swap_results[i],
                   load(&m->swaps[i]));
    one(o, "hearth_swap_draining_requests", "gauge",
        "Requests that models which were replaced still have.", v->n_draining);
}

static void entry_line(struct out *o, const char *name, const struct srv_metrics_entry *e,
                       const char *label, const char *value, double number)
{
    buf_printf(o->b, "%s{", name);
    add_label(o->b, "model", e->name);
    if (label) buf_printf(o->b, ",%s=\"%s\"", label, value);
    buf_printf(o->b, "} %.15g\n", number);
}

/* The catalogue. */
static void write_entries(struct out *o, const struct srv_metrics_view *v)
{
    static const char *const states[] = {"unloaded", "queued", "loading", "loaded", "failed"};
    static const char *const reasons_to_leave[] = {"idle", "memory", "request", "replaced"};
    const struct srv_metrics_entry *end = v->entries + v->n_entries, *e;
    head(o, "hearth_model_state", "gauge", "1 for the state that each model is in, else 0.");
    for (e = v->entries; e < end; e++)
        for (size_t i = 0; i < N_OF(states); i++)
            entry_line(o, "hearth_model_state", e, "state", states[i],
                       !strcmp(states[i], e->state));
    head(o, "hearth_model_bytes", "gauge", "Bytes of the plans of models in memory, by kind.");
    for (e = v->entries; e < end; e++) {
        entry_line(o, "hearth_model_bytes", e, "kind", "weights", (double)e->weights_bytes);
        entry_line(o, "hearth_model_bytes", e, "kind", "kv", (double)e->kv_bytes);
        entry_line(o, "hearth_model_bytes", e, "kind", "other", (double)e->other_bytes);
    }
    head(o, "hearth_model_loads_total", "counter", "Loads of each model, by result.");
    for (e = v->entries; e < end; e++) {
        entry_line(o, "hearth_model_loads_total", e, "result", "ok", (double)e->n_loads);
        entry_line(o, "hearth_model_loads_total", e, "result", "failed", (double)e->n_failed_loads);
    }
    head(o, "hearth_model_evictions_total", "counter", "Models that left memory, by reason.");
    for (e = v->entries; e < end; e++)
        for (size_t i = 0; i < N_OF(reasons_to_leave); i++)
            entry_line(o, "hearth_model_evictions_total", e, "reason", reasons_to_leave[i],
                       (double)e->n_evictions[i]);
    head(o, "hearth_model_waiters", "gauge", "Requests that wait for a model to be loaded, now.");
    for (e = v->entries; e < end; e++)
        entry_line(o, "hearth_model_waiters", e, NULL, NULL, e->n_waiters);
    head(o, "hearth_cores_seconds_total", "counter", "Time that the steps of each model took.");
    for (e = v->entries; e < end; e++)
        entry_line(o, "hearth_cores_seconds_total", e, NULL, NULL,
                   (double)e->stats.compute_us * 1e-6);
}

static void write_process(struct out *o, const struct srv_metrics *m,
                          const struct srv_metrics_view *v)
{
    const struct eng_info *i = v->info;
    head(o, "hearth_build_info", "gauge",
         "Always 1; version, model, numeric path, kernel level and gemm as labels.");
    buf_puts(o->b, "hearth_build_info{version=\"" HEARTH_VERSION "\",");
    add_label(o->b, "model", v->model ? v->model : "");
    buf_puts(o->b, ",");
    add_label(o->b, "numerics", i ? i->numerics : "");
    buf_puts(o->b, ",");
    add_label(o->b, "kernels", i ? i->kernels : "");
    buf_puts(o->b, ",");
    add_label(o->b, "gemm", i ? i->gemm : "");
    buf_puts(o->b, "} 1\n");
    write_models(o, m, v);
    one(o, "hearth_ready", "gauge", "1 if requests are served, else 0.", v->ready);
    one(o, "hearth_memory_plan_bytes", "gauge",
        "Bytes planned for all models: weights, KV cache, activations, logits, answers, requests, "
        "the program.",
        (double)v->plan_bytes);
    one(o, "process_resident_memory_bytes", "gauge", "Resident memory in bytes.", resident_bytes());
    one(o, "process_open_fds", "gauge", "Open file descriptors now.", open_files());
    one(o, "process_start_time_seconds", "gauge", "Start of the process in Unix seconds.",
        v->start_time_s);
    if (!o->vllm) return;
    head(o, "vllm:cache_config_info", "gauge", "Always 1; size of the KV cache as labels.");
    buf_printf(o->b, "vllm:cache_config_info{%s,block_size=\"%d\",num_gpu_blocks=\"%d\"} 1\n",
               o->model_label.data, i ? i->page_tokens : 0, i ? i->n_pages : 0);
}

/* ---- a label for each model ---------------------------------------------------------------- */

static void label_vllm(struct out *o, const char *model)
{
    buf_init(&o->model_label, 2048);
    add_label(&o->model_label, "model_name", model);
    buf_puts(&o->model_label, ",engine=\"0\"");
    if (o->model_label.failed) o->vllm = false;
}

/* The families of an engine. */
static void write_engine(struct out *o, const struct eng_stats *s)
{
    write_queue(o, s);
    write_tokens(o, s);
    step_histogram(o, s, "hearth_engine_step_tokens", "");
    if (o->vllm) step_histogram(o, s, "vllm:iteration_tokens_total", o->model_label.data);
}

/* Copies the lines of a family, up to the next one, with the label `model`; vLLM's have their own.
 * Returns where it ends. */
static const char *copy_family(struct buf *b, const char *at, const char *model)
{
    while (*at && *at != '#') {
        size_t len = strcspn(at, "\n") + 1, name = strcspn(at, "{ ");
        bool has_labels = at[name] == '{';
        if (strncmp(at, "vllm:", 5) == 0) {
            buf_add(b, at, len);
        } else {
            buf_add(b, at, name);
            buf_puts(b, "{");
            add_label(b, "model", model);
            buf_puts(b, has_labels ? "," : "}");
            buf_add(b, at + name + has_labels, len - name - has_labels);
        }
        at += len;
    }
    return at;
}

/* The families of all engines: each is written for each model, then they are merged. */
static void write_engines(struct out *o, const struct srv_metrics_view *v)
{
    struct buf *texts = calloc((size_t)v->n_entries, sizeof(*texts));
    const char **at = calloc((size_t)v->n_entries, sizeof(*at));
    bool failed = !texts || !at;
    for (int i = 0; !failed && i < v->n_entries; i++) {
        struct out own = {.b = &texts[i], .vllm = o->vllm};
        buf_init(&texts[i], 1 << 18);
        label_vllm(&own, v->entries[i].name);
        write_engine(&own, &v->entries[i].stats);
        buf_finish(&own.model_label);
        failed = texts[i].failed || own.vllm != o->vllm;
        at[i] = texts[i].data;
    }
    while (!failed && *at[0]) {
        for (int i = 0; i < v->n_entries; i++) {
            const char *lines = strchr(strchr(at[i], '\n') + 1, '\n') + 1;
            if (i == 0) buf_add(o->b, at[0], (size_t)(lines - at[0]));
            at[i] = copy_family(o->b, lines, v->entries[i].name);
        }
    }
    for (int i = 0; texts && i < v->n_entries; i++)
        buf_finish(&texts[i]);
    free(texts);
    free(at);
}

void srv_metrics_render(const struct srv_metrics *m, const struct srv_metrics_view *view, bool vllm,
                        struct buf *b)
{
    static const struct eng_stats idle;
    const struct eng_stats *stats = view->stats ? view->stats : &idle;
    struct out o = {.b = b, .vllm = vllm};
    label_vllm(&o, view->model ? view->model : "");
    write_process(&o, m, view);
    write_entries(&o, view);
    write_requests(&o, m);
    write_wire(&o, m, view);
    write_grammars(&o, m, view);
    if (view->n_entries > 1)
        write_engines(&o, view);
    else
        write_engine(&o, stats);
    write_histograms(&o, m);
    buf_finish(&o.model_label);
}
