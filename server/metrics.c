/* SPDX-License-Identifier: MIT */
/*
 * Metric families as tables: a row has the type, name, help text, the field with the value, and
 * vLLM's name. The text is written by walking them. Values are seconds and tokens.
 */
#include "server/metrics.h"

#include <assert.h>
#include <dirent.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "engine/engine.h"

#define N_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

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
static const double compile_bounds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                        0.01,   0.025,   0.05,   0.1,   0.25,   0.5};
static const double mask_bounds[] = {0.000001, 0.000002, 0.000005, 0.00001, 0.00002, 0.00005,
                                     0.0001,   0.0002,   0.0005,   0.001,   0.002,   0.005};
static const double choice_bounds[] = {1, 2, 5, 10, 20};
static const double step_bounds[] = {1,   8,    16,   32,   64,   128,  256,
                                     512, 1024, 2048, 4096, 8192, 16384};
static const double draft_bounds[] = {1, 2, 3, 4, 5, 6, 7};
_Static_assert(N_OF(step_bounds) == ENG_STEP_SIZES - 1, "eng_step_size, the last is unbounded");
_Static_assert(N_OF(draft_bounds) == ENG_DRAFT_IDS, "a bound per length");

/* "other" counts all that have no label of their own. */
static const char *const statuses[] = {"200", "202", "204", "400", "401", "403",
                                       "404", "405", "408", "409", "413", "415",
                                       "429", "431", "500", "503", "504", "other"};
static const char *const endpoints[] = {
    "completions", "infill",         "chat",         "responses",  "messages", "choose",
    "rerank",      "score",          "classify",     "embeddings", "models",   "tokenize",
    "detokenize",  "apply-template", "count_tokens", "props",      "slots",    "health",
    "metrics",     "version",        "openapi",      "swap",       "other",
};
static const char *const reasons[] = {"stop", "length", "error", "cancelled", "rejected"};
enum reason { R_STOP, R_LENGTH, R_ERROR, R_CANCELLED, R_REJECTED };
static const char *const swap_results[] = {"ok",      "unchanged", "insufficient_memory",
                                           "invalid", "self_test", "busy"};
static const char *const states[] = {"unloaded", "queued", "loading", "loaded", "failed"};
static const char *const draft_sources[] = {"text", "prediction", "forced", "self", "model"};

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
    H_TIMES, /* of enum srv_time */
    H_COUNT = H_TIMES + SRV_TIME_N
};

struct histogram {
    /* Not cumulative; the one after the last bound counts values above it. */
    atomic_ullong buckets[MAX_BOUNDS + 1];
    atomic_ullong sum_micro; /* of values, in millionths */
};

struct srv_metrics {
    atomic_ullong counts[SRV_COUNT_N];
    atomic_ullong by_status[N_OF(statuses)];
    atomic_ullong by_endpoint[N_OF(endpoints)];
    atomic_ullong by_reason[N_OF(reasons)];
    atomic_ullong swaps[N_OF(swap_results)]; /* by enum srv_swap_result */
    struct histogram histograms[H_COUNT];
    struct srv_key_counts keys[SRV_KEY_NAMES + 1];
    atomic_int n_keys;
};

/* ---- values -------------------------------------------------------------------------------- */

/* The struct that has a field. */
enum scope {
    COUNTERS, /* struct srv_metrics */
    VIEW,     /* struct srv_metrics_view */
    KEY,      /* struct srv_key_counts, of each name, with the label `key` */
    ENTRY,    /* struct srv_metrics_entry, of each entry */
    ENGINE,   /* its stats; without the label `model` if there are not several */
};

/* n numbers, in one field, and what they are multiplied by. */
struct value {
    enum scope scope;
    double (*read)(const void *field, int i); /* NULL: 0 */
    size_t offset;
    int n;
    double unit;
};

#define READER(name, type)                                                                         \
    static double name(const void *field, int i)                                                   \
    {                                                                                              \
        return (double)((const type *)field)[i];                                                   \
    }
READER(read_bool, bool)
READER(read_int, int)
READER(read_int64, int64_t)
READER(read_uint64, uint64_t)
READER(read_double, double)
READER(read_counter, atomic_ullong)

static double read_prefix_tokens(const void *stats, int i)
{
    const struct eng_stats *s = stats;
    const uint64_t by_source[] = {s->n_cached_tokens - s->n_disk_tokens, s->n_disk_tokens,
                                  s->n_computed_prompt_tokens};
    return (double)by_source[i];
}

static double read_jobs(const void *stats, int i)
{
    const struct eng_stats *s = stats;
    const uint64_t by_end[] = {s->n_jobs_done, s->n_jobs_cancelled, s->n_jobs_failed};
    return (double)by_end[i];
}

static double read_kv_usage(const void *stats, int i)
{
    const struct eng_stats *s = stats;
    return s->n_pages_total ? (double)s->n_pages_used / s->n_pages_total : 0;
}

static double read_state(const void *entry, int i)
{
    return !strcmp(states[i], ((const struct srv_metrics_entry *)entry)->state);
}

static double read_dropped_lines(const void *view, int i)
{
    return (double)srv_log_n_dropped();
}

/* The second field of /proc/self/statm, in bytes. */
static double read_resident_bytes(const void *view, int i)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%*u %llu", &pages) != 1) pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double read_open_files(const void *view, int i)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = -3; /* itself, "." and ".." */
    if (!dir) return 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static double number(const struct value *v, const void *base, int i)
{
    return v->read ? v->read((const char *)base + v->offset, i) * v->unit : 0;
}

static double sum(const struct value *v, const void *base)
{
    double all = 0;
    for (int i = 0; i < v->n; i++)
        all += number(v, base, i);
    return all;
}

/* ---- samples ------------------------------------------------------------------------------- */

/* Destination of the text, and what is being written. */
struct out {
    struct buf *b;
    const struct srv_metrics *counters;
    const struct srv_metrics_view *view;
    const char *family; /* its name; vLLM's have labels of the model */
    const char *label;  /* of the samples: "model" or "key", */
    const char *model;  /* and its value; NULL: of none, or of all */
};

static bool is_vllm(const char *name)
{
    return strncmp(name, "vllm:", 5) == 0;
}

/* Quotes, backslashes and line ends in a value are escaped. */
static void add_label(struct buf *b, const char *before, const char *name, const char *value)
{
    buf_printf(b, "%s%s=\"", before, name);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\') buf_add(b, "\\", 1);
        if (*value == '\n')
            buf_puts(b, "\\n");
        else
            buf_add(b, value, 1);
    }
    buf_puts(b, "\"");
}

#define LABELS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* labels: names and values. */
static void add_sample(struct out *o, const char *suffix, const char *const labels[], double number)
{
    const char *first = o->view->model ? o->view->model : "", *before = "{";
    buf_printf(o->b, "%s%s", o->family, suffix);
    if (is_vllm(o->family)) {
        add_label(o->b, before, "model_name", o->model ? o->model : first);
        add_label(o->b, ",", "engine", "0"); /* vLLM numbers its engines */
        before = ",";
    } else if (o->model) {
        add_label(o->b, before, o->label, o->model);
        before = ",";
    }
    for (; *labels; labels += 2, before = ",")
        add_label(o->b, before, labels[0], labels[1]);
    buf_printf(o->b, "%s %.15g\n", *before == ',' ? "}" : "", number);
}

static void add_build(struct out *o)
{
    static const struct eng_info none = {.numerics = "", .kernels = "", .gemm = ""};
    const struct srv_metrics_view *v = o->view;
    const struct eng_info *i = v->info ? v->info : &none;
    add_sample(o, "",
               LABELS("version", HEARTH_VERSION, "model", v->model ? v->model : "", "numerics",
                      i->numerics, "kernels", i->kernels, "gemm", i->gemm),
               1);
}

static void add_models(struct out *o)
{
    const struct srv_metrics_model *m = o->view->models;
    for (int i = 0; i < o->view->n_models; i++)
        add_sample(o, "", LABELS("model", m[i].name, "fingerprint", m[i].fingerprint), 1);
}

static void add_cache(struct out *o)
{
    const struct eng_info *i = o->view->info;
    char size[16], n[16];
    snprintf(size, sizeof(size), "%d", i ? i->page_tokens : 0);
    snprintf(n, sizeof(n), "%d", i ? i->n_pages : 0);
    add_sample(o, "", LABELS("block_size", size, "num_gpu_blocks", n), 1);
}

/* A gateway takes the latest of these; nothing waits for an adapter here. */
static void add_loras(struct out *o)
{
    char most[16];
    snprintf(most, sizeof(most), "%d", o->view->info ? o->view->info->n_parallel : 0);
    add_sample(o, "",
               LABELS("max_lora", most, "running_lora_adapters", o->view->loras,
                      "waiting_lora_adapters", ""),
               (double)time(NULL));
}

/* ---- families ------------------------------------------------------------------------------ */

#define GAUGE "gauge"
#define COUNTER "counter"
#define HISTOGRAM "histogram"

struct family {
    const char *type, *name, *help;
    struct value value;
    const char *alias; /* vLLM's name for the same, or NULL */
    /* With a label: a sample for each value of it; the alias has none, and their sum. */
    const char *label;
    const char *const *label_values; /* NULL: no sample */
    int n_labels;
    /* A histogram: the value is that of its buckets, not cumulative. */
    const double *bounds;
    int n_bounds;
    struct value sum;
    void (*add)(struct out *o); /* samples with several labels; or NULL */
};

#define COUNTERS_STRUCT struct srv_metrics
#define VIEW_STRUCT struct srv_metrics_view
#define KEY_STRUCT struct srv_key_counts
#define ENTRY_STRUCT struct srv_metrics_entry
#define ENGINE_STRUCT struct eng_stats
#define FIELD_OF(scope, field) (((scope##_STRUCT *)0)->field)
#define READER_OF(x)                                                                               \
    _Generic(&(x), bool *: read_bool, int *: read_int, int64_t *: read_int64,                      \
             uint64_t *: read_uint64, double *: read_double, atomic_ullong *: read_counter)
#define NUMBERS(scope, field, n, unit)                                                             \
    {                                                                                              \
        scope, READER_OF(FIELD_OF(scope, field)), offsetof(scope##_STRUCT, field), n, unit         \
    }
#define ONE(scope, field) .value = NUMBERS(scope, field, 1, 1)
#define EACH(scope, field) .value = NUMBERS(scope, field[0], N_OF(FIELD_OF(scope, field)), 1)
#define MICROS(scope, field) .value = NUMBERS(scope, field, 1, 1e-6)
#define READ_BY(scope, read) .value = {scope, read, 0, 1, 1}
#define COUNT(field) ONE(COUNTERS, field)
#define STAT(field) ONE(ENGINE, field)
#define STATS(field) EACH(ENGINE, field)
#define BY_LIST(name, list) .label = name, .label_values = list, .n_labels = N_OF(list)
#define BY(name, ...) BY_LIST(name, ((const char *const[]){__VA_ARGS__}))
#define BOUNDS(array) .bounds = array, .n_bounds = N_OF(array)
#define OBSERVED(id, array, name, help, alias)                                                     \
    [id] = {HISTOGRAM,                                                                             \
            name,                                                                                  \
            help,                                                                                  \
            EACH(COUNTERS, histograms[id].buckets),                                                \
            alias,                                                                                 \
            BOUNDS(array),                                                                         \
            .sum = NUMBERS(COUNTERS, histograms[id].sum_micro, 1, 1e-6)}

static const struct family histograms[H_COUNT] = {
    OBSERVED(H_TTFT, ttft_bounds, "hearth_time_to_first_token_seconds",
             "Time from the arrival of a request to its first token.",
             "vllm:time_to_first_token_seconds"),
    OBSERVED(H_INTER_TOKEN, token_bounds, "hearth_inter_token_latency_seconds",
             "Time between tokens; each token counts with the mean of its request.",
             "vllm:inter_token_latency_seconds"),
    OBSERVED(H_PER_TOKEN, token_bounds, "hearth_time_per_output_token_seconds",
             "Mean time between the tokens of a request, one value per request.",
             "vllm:time_per_output_token_seconds"),
    OBSERVED(H_E2E, request_bounds, "hearth_request_duration_seconds",
             "Total time of a request that generated or scored.",
             "vllm:e2e_request_latency_seconds"),
    OBSERVED(H_QUEUE, request_bounds, "hearth_request_queue_seconds",
             "Time of a request in the queue.", "vllm:request_queue_time_seconds"),
    OBSERVED(H_PREFILL, request_bounds, "hearth_request_prefill_seconds",
             "Time from leaving the queue to the first token.",
             "vllm:request_prefill_time_seconds"),
    OBSERVED(H_DECODE, request_bounds, "hearth_request_decode_seconds",
             "Time from the first token to the end of the request.",
             "vllm:request_decode_time_seconds"),
    OBSERVED(H_INFERENCE, request_bounds, "hearth_request_inference_seconds",
             "Time from leaving the queue to the end of the request.",
             "vllm:request_inference_time_seconds"),
    OBSERVED(H_PROMPT_TOKENS, count_bounds, "hearth_request_prompt_tokens",
             "Prompt tokens per request.", "vllm:request_prompt_tokens"),
    OBSERVED(H_GENERATED_TOKENS, count_bounds, "hearth_request_generated_tokens",
             "Generated tokens per request.", "vllm:request_generation_tokens"),
    OBSERVED(H_CHOICES, choice_bounds, "hearth_request_choices", "Choices per request (n).",
             "vllm:request_params_n"),
    OBSERVED(H_MAX_TOKENS, count_bounds, "hearth_request_max_tokens",
             "Most tokens per choice: max_tokens, or the rest of the context.",
             "vllm:request_params_max_tokens"),
    OBSERVED(H_TIMES + SRV_TIME_COMPILE, compile_bounds, "hearth_grammar_compile_seconds",
             "Time until a grammar was compiled, with the wait for others, or found in the cache.",
             NULL),
    OBSERVED(H_TIMES + SRV_TIME_MASK, mask_bounds, "hearth_grammar_mask_seconds",
             "Time to find the tokens that a grammar allows next.", NULL),
    OBSERVED(H_TIMES + SRV_TIME_SWAP_LOAD, request_bounds, "hearth_swap_load_seconds",
             "Time to load a model that replaced another.", NULL),
    OBSERVED(H_TIMES + SRV_TIME_MODEL_LOAD, request_bounds, "hearth_model_load_seconds",
             "Time to load a model on demand.", NULL),
    OBSERVED(H_TIMES + SRV_TIME_MODEL_WAIT, request_bounds, "hearth_model_wait_seconds",
             "Time that a request waited for its model to be loaded.", NULL),
};

static const struct family families[] = {
    {GAUGE, "hearth_build_info",
     "Always 1; version, model, numeric path, kernel level and gemm as labels.", .add = add_build},
    {GAUGE, "hearth_models_loaded", "Models in memory now, those that drain included.",
     ONE(VIEW, n_loaded)},
    {GAUGE, "hearth_draft_model_loaded",
     "1 while a draft model drafts for the current model; 0: none is configured, it is being "
     "loaded, or it could not be used.",
     ONE(VIEW, draft_model_on)},
    {GAUGE, "hearth_model_info", "Always 1; each model in memory, with its fingerprint.",
     .add = add_models},
    {COUNTER, "hearth_swaps_total", "Swaps of the model by result.", EACH(COUNTERS, swaps),
     BY_LIST("result", swap_results)},
    {GAUGE, "hearth_swap_draining_requests", "Requests that models which were replaced still have.",
     ONE(VIEW, n_draining)},
    {GAUGE, "hearth_ready", "1 if requests are served, else 0.", ONE(VIEW, ready)},
    {GAUGE, "hearth_memory_plan_bytes",
     "Bytes planned for all models: weights, KV cache, activations, logits, answers, requests, the "
     "program.",
     ONE(VIEW, plan_bytes)},
    {GAUGE, "process_resident_memory_bytes", "Resident memory in bytes.",
     READ_BY(VIEW, read_resident_bytes)},
    {GAUGE, "process_open_fds", "Open file descriptors now.", READ_BY(VIEW, read_open_files)},
    {GAUGE, "process_start_time_seconds", "Start of the process in Unix seconds.",
     ONE(VIEW, start_time_s)},
    {GAUGE, "vllm:cache_config_info", "Always 1; size of the KV cache as labels.",
     .add = add_cache},
    {GAUGE, "vllm:lora_requests_info", "Now, in Unix seconds; the adapters in use as labels.",
     .add = add_loras},
    {GAUGE, "hearth_model_state", "1 for the state that each model is in, else 0.",
     READ_BY(ENTRY, read_state), BY_LIST("state", states)},
    {GAUGE, "hearth_model_bytes", "Bytes of the plans of models in memory, by kind.",
     EACH(ENTRY, bytes), BY("kind", "weights", "kv", "other")},
    {COUNTER, "hearth_model_loads_total", "Loads of each model, by result.", EACH(ENTRY, n_loads),
     BY("result", "ok", "failed")},
    {COUNTER, "hearth_model_evictions_total", "Models that left memory, by reason.",
     EACH(ENTRY, n_evictions), BY("reason", "idle", "memory", "request", "replaced")},
    {GAUGE, "hearth_model_waiters", "Requests that wait for a model to be loaded, now.",
     ONE(ENTRY, n_waiters)},
    {COUNTER, "hearth_cores_seconds_total", "Time that the steps of each model took.",
     MICROS(ENTRY, stats.compute_us)},
    {COUNTER, "hearth_http_requests_total",
     "Requests by HTTP status; other: a status without a series, or no answer sent.",
     EACH(COUNTERS, by_status), BY_LIST("code", statuses)},
    {COUNTER, "hearth_endpoint_requests_total", "Requests by endpoint; other: everything else.",
     EACH(COUNTERS, by_endpoint), BY_LIST("endpoint", endpoints)},
    {COUNTER, "hearth_requests_finished_total", "Inference requests by how they ended.",
     EACH(COUNTERS, by_reason), BY_LIST("reason", reasons)},
    {COUNTER, "vllm:request_success_total", "Inference requests by how they ended.",
     EACH(COUNTERS, by_reason), BY("finished_reason", "stop", "length", "error", "abort")},
    {GAUGE, "hearth_http_connections", "Open connections now.", ONE(VIEW, n_connections)},
    {GAUGE, "hearth_http_requests_open", "Open requests now.", ONE(VIEW, n_requests)},
    {COUNTER, "hearth_http_connections_refused_total",
     "Connections refused with 503 because of max-connections.",
     COUNT(counts[SRV_COUNT_REFUSED_CONNECTIONS])},
    {COUNTER, "hearth_http_clients_gone_total",
     "Requests whose client disconnected or was cut before the end.",
     COUNT(counts[SRV_COUNT_GONE])},
    {COUNTER, "hearth_http_slow_readers_cut_total",
     "Connections cut because the client read too slowly.", COUNT(counts[SRV_COUNT_SLOW_READERS])},
    {COUNTER, "hearth_requests_returned_total",
     "Refused requests that came back at their retry time.", COUNT(counts[SRV_COUNT_RETURNED])},
    {COUNTER, "hearth_requests_returned_refused_total",
     "Requests refused again although they came back at their retry time.",
     COUNT(counts[SRV_COUNT_RETURNED_REFUSED])},
    {COUNTER, "hearth_metadata_lines_total",
     "Lines of clients' own that were taken off the beginning of system prompts.",
     COUNT(counts[SRV_COUNT_METADATA_LINES])},
    {COUNTER, "hearth_truncated_requests_total",
     "Chats that lost their oldest messages because they asked for it where the context is full.",
     COUNT(counts[SRV_COUNT_TRUNCATED])},
    {GAUGE, "hearth_batches", "Batches that are known, by status.", EACH(VIEW, batches.by_status),
     BY("status", SRV_BATCH_STATUS_NAMES)},
    {COUNTER, "hearth_batch_lines_total", "Lines of batches that have ended, by result.",
     COUNT(counts[SRV_COUNT_BATCH_COMPLETED]),
     BY("result", "completed", "failed", "expired", "cancelled")},
    {GAUGE, "hearth_batch_lines_waiting", "Lines of batches without an answer, now.",
     ONE(VIEW, batches.n_waiting)},
    {GAUGE, "hearth_batch_rows_running", "Lines of batches that are requests, now.",
     ONE(VIEW, batches.n_running)},
    {COUNTER, "hearth_batch_parked_total", "Sequences of batches that gave way to others.",
     STAT(n_parked)},
    {COUNTER, "hearth_batch_recomputed_tokens_total",
     "Tokens of such sequences that were computed again.", STAT(n_recomputed_tokens)},
    {COUNTER, "hearth_batch_tokens_total",
     "Tokens of the lines of batches; cached ones are of the prompt too.",
     COUNT(counts[SRV_COUNT_BATCH_PROMPT]), BY("kind", "prompt", "cached", "generated")},
    {GAUGE, "hearth_batch_storage_bytes", "Bytes of files of batches.", EACH(VIEW, batches.bytes),
     BY("kind", "input", "output")},
    {GAUGE, "hearth_batch_paused", "1 for a while after a fault of the disk of batches.",
     ONE(VIEW, batches.is_paused)},
    {GAUGE, "hearth_batch_age_seconds", "Age of the oldest batch that has not ended.",
     ONE(VIEW, batches.age_s)},
    {COUNTER, "hearth_log_lines_dropped_total",
     "Log lines dropped because stderr did not accept them in time.",
     READ_BY(VIEW, read_dropped_lines)},
    {COUNTER, "hearth_http_timeouts_total",
     "Connections cut because the head or body of a request did not arrive in time.",
     COUNT(counts[SRV_COUNT_HEADER_TIMEOUTS]), BY("part", "head", "body")},
    {COUNTER, "hearth_grammar_cache_hits_total",
     "Constrained requests whose grammar was in the cache.", ONE(VIEW, n_grammar_hits)},
    {COUNTER, "hearth_grammar_cache_misses_total",
     "Constrained requests whose grammar had to be compiled.", ONE(VIEW, n_grammar_misses)},
    {GAUGE, "hearth_grammar_waiting", "Requests that wait for a grammar to be compiled, now.",
     ONE(VIEW, n_compile_waits)},
    {COUNTER, "hearth_grammar_refused_total",
     "Requests refused because of their schema or grammar, by error code.",
     COUNT(counts[SRV_COUNT_SCHEMAS_REFUSED]),
     BY("code", "invalid_json_schema", "invalid_grammar", "unsupported_parameter")},
    {COUNTER, "hearth_grammar_relaxed_total",
     "Requests with a schema keyword that is only approximated.",
     COUNT(counts[SRV_COUNT_GRAMMAR_RELAXED])},
    {COUNTER, "hearth_closed_answers_total",
     "Answers whose tokens ran out and that were closed by the shortest text that their schema "
     "has.",
     COUNT(counts[SRV_COUNT_CLOSED_ANSWERS])},
    {COUNTER, "hearth_grammar_overflow_total",
     "Tokens at which alternatives of a grammar were dropped because there were too many.",
     COUNT(counts[SRV_COUNT_GRAMMAR_OVERFLOWS])},
    {COUNTER, "hearth_key_requests_total", "Requests with a key that has a name, by name.",
     ONE(KEY, requests)},
    {COUNTER, "hearth_key_refused_total", "Of these, those refused with 429 or 503.",
     ONE(KEY, refused)},
    {COUNTER, "hearth_key_tokens_total", "Tokens of these; cached ones are of the prompt too.",
     EACH(KEY, tokens), BY("kind", "prompt", "cached", "generated")},
    {GAUGE, "hearth_key_running", "Prompts of these that are being computed now.",
     ONE(KEY, running)},
    {GAUGE, "hearth_key_waiting", "Prompts of these in the queue now.", ONE(KEY, waiting)},
    {GAUGE, "hearth_sequences_running", "Sequences being computed now.", STAT(n_running),
     "vllm:num_requests_running"},
    {GAUGE, "hearth_sequences_waiting", "Sequences in the queue now.", STAT(n_waiting),
     "vllm:num_requests_waiting"},
    {GAUGE, "hearth_waiting_prompt_tokens", "Prompt tokens in the queue now.",
     STAT(n_waiting_tokens)},
    {GAUGE, "hearth_kv_pages", "Pages of the KV cache.", STAT(n_pages_total)},
    {GAUGE, "hearth_kv_pages_used", "KV pages held by running sequences now.", STAT(n_pages_used)},
    {GAUGE, "hearth_kv_pages_cached", "KV pages held by the prefix cache alone now.",
     STAT(n_pages_cached)},
    {GAUGE, "hearth_prefix_kept_pages",
     "Pages that breakpoints of requests keep in the prefix cache.", STAT(n_pages_kept)},
    {GAUGE, "vllm:kv_cache_usage_perc", "Share of KV pages in use now, 0 to 1.",
     READ_BY(ENGINE, read_kv_usage)},
    {GAUGE, "vllm:gpu_cache_usage_perc", "Share of KV pages in use now, 0 to 1.",
     READ_BY(ENGINE, read_kv_usage)},
    {COUNTER, "vllm:num_preemptions_total", "Sequences of spare jobs that gave way to others.",
     STAT(n_parked)},
    {GAUGE, "hearth_state_snapshots_limit",
     "Snapshots of recurrent states that the prefix cache has room for.", STAT(n_snapshots_total)},
    {GAUGE, "hearth_state_snapshots", "Snapshots of recurrent states in the prefix cache now.",
     STAT(n_snapshots)},
    {COUNTER, "hearth_state_snapshot_hits_total",
     "Sequences that began from a snapshot of a recurrent state.", STAT(n_snapshot_hits)},
    {COUNTER, "hearth_state_snapshots_evicted_total",
     "Snapshots of recurrent states that gave way to others or went with their KV page.",
     STAT(n_snapshots_evicted)},
    {GAUGE, "hearth_kv_disk_bytes", "Bytes of all pages in the directory of kv-disk.",
     STAT(kv_disk.bytes)},
    {GAUGE, "hearth_kv_disk_pages", "Pages in it, of this model's size.", STAT(kv_disk.n_pages)},
    {GAUGE, "hearth_kv_disk_paused", "1 for a minute after pages could not be written to kv-disk.",
     STAT(kv_disk.paused)},
    {COUNTER, "hearth_kv_disk_restores_total", "Prompts of which pages were read from kv-disk.",
     STAT(kv_disk.n_restores)},
    {COUNTER, "hearth_kv_disk_restore_seconds_total", "Time in which they were read.",
     MICROS(ENGINE, kv_disk.restore_us)},
    {COUNTER, "hearth_kv_disk_prompt_tokens_total", "Prompt tokens that were read from kv-disk.",
     STAT(kv_disk.n_read_tokens)},
    {COUNTER, "hearth_kv_disk_read_bytes_total", "Bytes of pages read from kv-disk.",
     STAT(kv_disk.n_read_bytes)},
    {COUNTER, "hearth_kv_disk_written_bytes_total", "Bytes of pages written to kv-disk.",
     STAT(kv_disk.n_written_bytes)},
    {COUNTER, "hearth_kv_disk_write_errors_total", "Writes to kv-disk that failed.",
     STAT(kv_disk.n_write_errors)},
    {COUNTER, "hearth_kv_disk_dropped_total",
     "Sequences whose pages were not written, because kv-disk did not keep up or had failed.",
     STAT(kv_disk.n_dropped)},
    {COUNTER, "hearth_kv_disk_bad_files_total",
     "Files in kv-disk that were not served; damaged ones are removed.", STATS(kv_disk.n_faults),
     BY("reason", "unreadable", "length", "header", "foreign", "payload")},
    {GAUGE, "hearth_prompt_tokens_per_second",
     "Prompt tokens per second over the most recent work.", STAT(prompt_tokens_per_s)},
    {GAUGE, "hearth_generated_tokens_per_second",
     "Generated tokens per second over the most recent work.", STAT(generated_tokens_per_s)},
    {COUNTER, "hearth_prompt_tokens_total",
     "Prompt tokens of admitted requests, cached ones included.", STAT(n_prompt_tokens),
     "vllm:prompt_tokens_total"},
    {COUNTER, "hearth_cached_prompt_tokens_total", "Prompt tokens taken from the prefix cache.",
     STAT(n_cached_tokens), "vllm:prefix_cache_hits_total"},
    {COUNTER, "vllm:gpu_prefix_cache_hits_total", "Prompt tokens taken from the prefix cache.",
     STAT(n_cached_tokens)},
    {COUNTER, "vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
     STAT(n_prompt_tokens)},
    {COUNTER, "vllm:gpu_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
     STAT(n_prompt_tokens)},
    {COUNTER, "hearth_computed_prompt_tokens_total", "Prompt tokens computed.",
     STAT(n_computed_prompt_tokens)},
    {COUNTER, "hearth_prefix_tokens_total", "Prompt tokens by where they came from.",
     READ_BY(ENGINE, read_prefix_tokens), BY("source", "memory", "disk", "computed")},
    {COUNTER, "hearth_prefix_miss_total",
     "Prompts that the prefix cache did not hold up to their last whole page, by reason.",
     STATS(n_misses), BY_LIST("reason", eng_miss_names)},
    {COUNTER, "hearth_generated_tokens_total", "Tokens generated.", STAT(n_generated_tokens),
     "vllm:generation_tokens_total"},
    {COUNTER, "hearth_grammar_late_masks_total",
     "Steps that a sequence sat out because its grammar's next tokens were not known yet.",
     STAT(n_late_masks)},
    {COUNTER, "hearth_drafts_total", "Drafts tried, by source: at most one per sequence and step.",
     STATS(n_drafts), "vllm:spec_decode_num_drafts_total", BY_LIST("source", draft_sources)},
    {COUNTER, "hearth_draft_tokens_total", "Tokens of drafts that were computed, by source.",
     STATS(n_draft_tokens), "vllm:spec_decode_num_draft_tokens_total",
     BY_LIST("source", draft_sources)},
    {COUNTER, "hearth_accepted_draft_tokens_total", "Tokens of drafts that were right, by source.",
     STATS(n_accepted_draft_tokens), "vllm:spec_decode_num_accepted_tokens_total",
     BY_LIST("source", draft_sources)},
    {HISTOGRAM, "hearth_draft_length_tokens", "Tokens per draft.", STATS(n_drafts_of_length),
     BOUNDS(draft_bounds), .sum = NUMBERS(ENGINE, n_draft_tokens[0], ENG_DRAFT_SOURCES, 1)},
    {GAUGE, "hearth_drafts_loading_since_seconds",
     "Since when the oldest twin or draft model that is being loaded in the background waits, unix "
     "seconds; 0: none is.",
     .value = NUMBERS(ENGINE, drafts_since_ms, 1, 1e-3)},
    {COUNTER, "hearth_engine_steps_total", "Engine steps.", STAT(n_steps)},
    {COUNTER, "hearth_engine_busy_seconds_total", "Time spent in engine steps.",
     MICROS(ENGINE, compute_us)},
    {COUNTER, "hearth_jobs_total", "Engine jobs by how they ended.", READ_BY(ENGINE, read_jobs),
     BY("end", "done", "cancelled", "failed")},
    {HISTOGRAM, "hearth_engine_step_tokens",
     "Prompt tokens computed and tokens generated per engine step.", STATS(n_steps_of_size),
     "vllm:iteration_tokens_total", BOUNDS(step_bounds),
     .sum = NUMBERS(ENGINE, n_step_tokens, 1, 1)},
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

static void add(atomic_ullong *counter, unsigned long long n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

struct srv_key_counts *srv_metrics_key(struct srv_metrics *m, const char *name)
{
    int n = atomic_load(&m->n_keys), i = 0;
    while (i < n && strcmp(m->keys[i].name, name) != 0)
        i++;
    if (i < n) return &m->keys[i];
    if (n >= SRV_KEY_NAMES && strcmp(name, "other") != 0) return srv_metrics_key(m, "other");
    snprintf(m->keys[n].name, sizeof(m->keys[n].name), "%s", name);
    atomic_store(&m->n_keys, n + 1);
    return &m->keys[n];
}

void srv_metrics_add(struct srv_metrics *m, enum srv_count what, int n)
{
    assert(what < SRV_COUNT_N && n >= 0);
    add(&m->counts[what], (unsigned)n);
}

void srv_metrics_count(struct srv_metrics *m, enum srv_count what)
{
    srv_metrics_add(m, what, 1);
}

/* Counts `value` n times. */
static void observe(struct srv_metrics *m, enum histogram_id id, double value, uint64_t n)
{
    struct histogram *h = &m->histograms[id];
    int i = 0;
    assert(histograms[id].n_bounds <= MAX_BOUNDS);
    if (value < 0) value = 0;
    while (i < histograms[id].n_bounds && value > histograms[id].bounds[i])
        i++;
    add(&h->buckets[i], n);
    add(&h->sum_micro, (unsigned long long)(value * 1e6 * (double)n + 0.5));
}

void srv_metrics_observe(struct srv_metrics *m, enum srv_time what, uint64_t us)
{
    observe(m, (enum histogram_id)(H_TIMES + what), (double)us * 1e-6, 1);
}

void srv_metrics_count_swap(struct srv_metrics *m, enum srv_swap_result result, uint64_t load_us)
{
    _Static_assert(SWAP_OK == 0 && SWAP_BUSY == N_OF(swap_results) - 1, "one label per result");
    if (result == SWAP_OK) srv_metrics_observe(m, SRV_TIME_SWAP_LOAD, load_us);
    if (result == SWAP_NOT_FOUND) result = SWAP_INVALID;
    if (result > SWAP_BUSY) return; /* the server is ending */
    add(&m->swaps[result], 1);
}

/* The place of a label in its list; the last one if it is not in it. */
static int index_of(const char *const *labels, int n, const char *label)
{
    int i = 0;
    while (i < n - 1 && (!label || strcmp(labels[i], label) != 0))
        i++;
    return i;
}

static enum reason reason_of(int status, bool disconnected, const struct srv_account *a)
{
    if (disconnected) return R_CANCELLED;
    if (status == 429 || status == 503) return R_REJECTED;
    if (status != 200) return R_ERROR;
    int i = index_of(reasons, N_OF(reasons), a->finish_reason);
    return i <= R_ERROR ? (enum reason)i : R_STOP;
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
    int endpoint = index_of(endpoints, N_OF(endpoints), a->endpoint);
    struct srv_key_counts *key = a->key_counts;
    char code[16];
    snprintf(code, sizeof(code), "%d", status);
    if (disconnected) srv_metrics_count(m, SRV_COUNT_GONE);
    if (key) {
        add(&key->requests, 1);
        add(&key->refused, status == 429 || status == 503);
        add(&key->tokens[0], (unsigned long long)a->n_prompt_tokens);
        add(&key->tokens[1], (unsigned long long)a->n_cached_tokens);
        add(&key->tokens[2], (unsigned long long)a->n_generated_tokens);
    }
    if (a->spare) return;
    add(&m->by_status[index_of(statuses, N_OF(statuses), code)], 1);
    add(&m->by_endpoint[endpoint], 1);
    if (endpoint > index_of(endpoints, N_OF(endpoints), "embeddings"))
        return; /* those of the engine come first */
    enum reason reason = reason_of(status, disconnected, a);
    add(&m->by_reason[reason], 1);
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

/* Goes to the i-th struct of a scope, or returns NULL after the last. */
static const void *enter(struct out *o, enum scope scope, int i)
{
    static const struct eng_stats idle;
    const struct srv_metrics_view *v = o->view;
    const struct srv_metrics_entry *e = i < v->n_entries ? &v->entries[i] : NULL;
    o->label = scope == KEY ? "key" : "model";
    if (scope == KEY) {
        if (i == atomic_load(&o->counters->n_keys)) return NULL;
        o->model = o->counters->keys[i].name;
        return &o->counters->keys[i];
    }
    bool is_shared = scope == COUNTERS || scope == VIEW || (scope == ENGINE && v->n_entries < 2);
    if (is_shared ? i > 0 : !e) return NULL;
    o->model = is_shared ? NULL : e->name;
    switch (scope) {
    case COUNTERS: return o->counters;
    case VIEW: return v;
    case ENTRY: return e;
    default: return e ? &e->stats : &idle;
    }
}

static void add_histogram(struct out *o, const struct family *f, const void *base)
{
    double n = 0, all = sum(&f->value, base);
    for (int i = 0; i < f->n_bounds; i++) {
        char bound[32];
        snprintf(bound, sizeof(bound), "%.15g", f->bounds[i]);
        n += number(&f->value, base, i);
        add_sample(o, "_bucket", LABELS("le", bound), n);
    }
    add_sample(o, "_bucket", LABELS("le", "+Inf"), all);
    add_sample(o, "_sum", LABELS(NULL), sum(&f->sum, base));
    add_sample(o, "_count", LABELS(NULL), all);
}

static void add_samples(struct out *o, const struct family *f, const void *base)
{
    if (f->add) return f->add(o);
    if (f->bounds) return add_histogram(o, f, base);
    if (!f->label || o->family == f->alias)
        return add_sample(o, "", LABELS(NULL), sum(&f->value, base));
    for (int i = 0; i < f->n_labels; i++)
        if (f->label_values[i])
            add_sample(o, "", LABELS(f->label, f->label_values[i]), number(&f->value, base, i));
}

static void add_family(struct out *o, const struct family *f, const char *name, bool vllm)
{
    const void *base;
    if (!name || (is_vllm(name) && !vllm)) return;
    o->family = name;
    buf_printf(o->b, "# HELP %s %s\n# TYPE %s %s\n", name, f->help, name, f->type);
    for (int i = 0; (base = enter(o, f->value.scope, i)); i++)
        add_samples(o, f, base);
}

static void add_families(struct out *o, const struct family *f, int n, bool vllm)
{
    for (const struct family *end = f + n; f < end; f++) {
        add_family(o, f, f->name, vllm);
        add_family(o, f, f->alias, vllm);
    }
}

void srv_metrics_render(const struct srv_metrics *m, const struct srv_metrics_view *view, bool vllm,
                        struct buf *b)
{
    struct out o = {.b = b, .counters = m, .view = view};
    add_families(&o, families, N_OF(families), vllm);
    add_families(&o, histograms, H_COUNT, vllm);
}
