/* SPDX-License-Identifier: MIT */
/*
 * Token ids in, token ids out: the interface of the engine.
 *
 * An engine is one model, loaded once and read-only, a fixed pool of compute threads, and one
 * scheduler with continuous batching. Every step runs all decoding rows and a bounded chunk of
 * prompt rows in one forward pass; sequences join and leave between steps.
 *
 * This header never shows tensors, kernels, pages, locks, text, HTTP or JSON. Its types are in
 * params.h and job_types.h, which the engine's own files include without this.
 *
 * Threads: one scheduler thread owns all mutable state and computes along with the pool. Every
 * function here may be called from any thread unless it says otherwise. Event callbacks run on the
 * scheduler thread; they must not block, allocate much, or call back into the engine except
 * eng_job_stop_choice and eng_job_cancel.
 *
 * Repeatability: for one triple (numeric path, kernel level, gemm) a request's logits are the same
 * bits for any batch, slot, chunk size, number of threads, cache state and neighbours.
 *
 * Errors: 0 or a negative enum eng_error, and one sentence in `err`. Outputs (ret_...) are written
 * only on success. The engine does not log and does not exit.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/eng_error.h"
#include "engine/job_types.h"
#include "engine/params.h"

struct eng;

/* ---- opening ------------------------------------------------------------------------------- */

/*
 * Calls visit for each file in a directory that is there, or of an owner (ENG_KV_OWNER bytes) and
 * some others, unless that is NULL, and removes those for which it returns true. Servers that use
 * the directory are not disturbed. Returns 0 or ENG_EINVAL, ENG_EIO, ENG_ENOMEM.
 */
int eng_kv_visit(const char *dir, const uint8_t *owner,
                 bool (*visit)(void *ctx, const struct eng_kv_file *file), void *ctx, char *err,
                 size_t errlen);

/*
 * Loads the model on all threads and starts the scheduler. Blocks until ready. Returns owned:
 * eng_close.
 */
int eng_open(struct eng **ret, const struct eng_params *params, char *err, size_t errlen);

/*
 * Bytes this process may use: those asked for, or with 0 three quarters of the physical memory, but
 * never more than its cgroups allow.
 */
int64_t eng_memory_limit(int64_t asked_bytes);

/*
 * Makes the memory plan that eng_open would make, from the headers of the model's files. The same
 * errors.
 */
int eng_plan(struct eng_memory *ret, const struct eng_params *params, char *err, size_t errlen);

/*
 * Ends the scheduler: cancels running jobs and delivers their last events. eng_stats gives the
 * final counts from now on; eng_job_submit refuses. eng_close does this too.
 */
void eng_stop(struct eng *e);
/*
 * Begins that and returns at once: true if eng_stop would not wait for pages to be written to
 * kv-disk. Any thread, while the engine is open.
 */
bool eng_stop_begin(struct eng *e);

/*
 * Cancels running jobs, delivers the last events, frees everything. No job may be submitted
 * meanwhile, and no callback may call it; handles of jobs stay valid until they are released. NULL
 * is fine.
 */
void eng_close(struct eng *e);

/*
 * Loads the draft model and the twin, those that are planned, in the background, by threads of
 * nice 10; they write drafts from then on. draft_ids: a bit for each id of the model that
 * the draft model's tokenizer has too, borrowed until eng_close; NULL: all that both number.
 * eng_await_drafts waits for the end of that. eng_drop_twin ends it and frees the memory of the
 * twin. All may be called again, by one thread at a time, and any number of jobs may run.
 * eng_drafts: "model", "self" or "model+self" while there is a draft model or a twin, else
 * "lookup", or "off".
 */
void eng_load_drafts(struct eng *e, const uint64_t *draft_ids);
void eng_await_drafts(struct eng *e);
void eng_drop_twin(struct eng *e);
const char *eng_drafts(const struct eng *e);

/* The draft model of eng_params. FAILED: why, in *ret_error (or NULL); answers are the same. */
enum eng_draft_state eng_draft_state(const struct eng *e, const char **ret_error);

/*
 * How fast the memory of the weights is read by as many threads as compute: the best of some
 * plain loops. While no job runs. Returns 0 or ENG_ENOMEM and so on.
 */
int eng_read_speed(struct eng *e, double *ret_bytes_per_s, char *err, size_t errlen);

/* Facts that do not change while the engine is open; borrowed until eng_close. */
struct eng_info {
    const char *architecture; /* "LlamaForCausalLM" */
    const char *rope;         /* "llama3"; longrope also says which of its lists is in use */
    const char *numerics;     /* the path chosen: "exact", "bf16", ... */
    const char *kernels;      /* the kernel level chosen */
    double bf16_rate;         /* measured for it: products of the bf16 dot product per f32 product;
                               * below 1 a level without it was taken; 0: not measured */
    const char *gemm;         /* "native" or "blas:<core name>" */
    const char *kv_dtype;
    bool weights_coded;       /* bf16 weights are kept in 12 bits, as far as they fit */
    int64_t read_ahead_bytes; /* weights are prefetched so far ahead; 0: by the processor alone */
    double coded_rate, plain_rate; /* weights read per second in 12 bits and otherwise, when the
                                    * model was loaded; 0: not measured */
    int64_t step_bytes;            /* of weights, read by each step of one row */
    int64_t draft_step_bytes;      /* the same of the draft model; 0: there is none */
    bool repeatable;               /* false: this machine's BLAS failed the repeatability test */
    int n_threads, n_parallel, chunk_tokens, page_tokens, n_pages;
    int max_choices, max_queued_jobs;
    int64_t ctx_tokens;       /* tokens per sequence */
    int64_t ctx_train_tokens; /* max_position_embeddings */
    int64_t ctx_max_tokens;   /* the longest context that the model can be served with */
    int64_t n_params;
    int32_t vocab_size;     /* of config.json: the width of a row of logits */
    const int32_t *eos_ids; /* of generation_config.json, config.json and eng_add_end_id */
    int n_eos_ids;
    bool generates;            /* false: jobs with want_pooled only, see eng_params.reads_only */
    int pooled_width;          /* numbers of ENG_EVENT_POOLED */
    int n_labels;              /* they are logits of labels, so many; 0: a vector */
    bool unpooled_prompt;      /* the model wants n_unpooled to be set for its prompts */
    const char *weights_dtype; /* of the files: "BF16", "F16", "F32", "mixed" */
    int n_rounded_mats;        /* on path file: with rows of several types, rounded to int8 */
    uint8_t fingerprint[16];   /* of weights and configuration, for any threads and packing */
    struct eng_memory memory;
    double load_seconds; /* the self-test not included */
    double self_test_seconds;
};
const struct eng_info *eng_info(const struct eng *e);

/* One more id that ends a sequence, before the first job. False: the model has no such id, or it is
 * one already, or there are too many. */
bool eng_add_end_id(struct eng *e, int32_t id);

/*
 * The contents of a model directory: problems first, then all that is known despite them. Strings
 * are borrowed for the call; those of tensors come from files and may hold any bytes. Functions may
 * be NULL.
 */
struct eng_inspect_config {
    const char *architecture, *model_type, *rope;
    const char *family; /* for people: "Gemma 3" */
    int hidden_size, n_layers, n_heads, n_kv_heads, d_head, d_ff;
    int32_t vocab_size;
    bool tied_head;
    bool generates;     /* as in eng_info; known if the model can be served */
    int64_t ctx_tokens; /* the longest context that can be served */
    double rope_theta, rope_factor;
    double local_rope_theta; /* of layers with a window, if they have a RoPE of their own; else 0 */
    int n_layers_without_rope;
    int n_convolutions, n_delta_nets;     /* layers that are short convolutions, delta nets */
    int n_experts, n_chosen;              /* of a layer, and how many work for a token; or 0 */
    int64_t n_active_params;              /* that work for a token; 0: it cannot be served */
    int n_windowed_layers, window_tokens; /* layers with a sliding window; the last one's size */
    int full_d_head, full_kv_heads;       /* of layers without a window, where heads differ; or 0 */
    int n_shared;                         /* layers that read keys and values of others */
    int d_ple;                            /* numbers of per-layer embeddings for a layer; or 0 */
    const int32_t *eos_ids;               /* [n_eos_ids] */
    int n_eos_ids;
};
struct eng_inspect_tensor {
    const char *name, *dtype, *file;
    const char *file_name; /* the name within a GGUF file; else equal to name */
    const int64_t *shape;  /* [rank] */
    int rank;
    int64_t n_bytes;
    bool used; /* by the architecture */
};
struct eng_inspect_path {
    const char *numerics;
    int64_t weights_bytes; /* at most, in memory, with RoPE's tables for the longest context */
    int64_t step_bytes;    /* of them, read for a token that is computed alone */
    bool is_default;       /* numerics "auto" selects it on this machine */
};
struct eng_inspector {
    void (*problem)(void *ctx, const char *sentence);
    void (*config)(void *ctx, const struct eng_inspect_config *c);
    void (*tensor)(void *ctx, const struct eng_inspect_tensor *t);
    void (*weights)(void *ctx, int64_t n_params, const char *dtype); /* if it can be served */
    void (*path)(void *ctx, const struct eng_inspect_path *p);       /* likewise, one each */
    void *ctx;
};
/* Reads headers only. Returns 0 if the model can be served, else an enum eng_error. */
int eng_inspect(const char *model_dir, const struct eng_inspector *in);

/*
 * Checks whether a model with this config.json is supported, as far as that file tells. Reads no
 * other file, so it can be asked before the weights are there. Returns 0, or a negative enum
 * eng_error with the first problem in err. Any thread.
 */
int eng_check_config(const char *text, size_t len, char *err, size_t errlen);

/* The same of the header of a GGUF file, or of a part of a set: its architecture and types. */
struct gguf;
int eng_check_gguf(const struct gguf *g, char *err, size_t errlen);

/* ---- adapters ------------------------------------------------------------------------------ */

/*
 * Reads a LoRA adapter of a directory (PEFT's files) for jobs of this engine, which has lora_bytes
 * of memory for all that are open. Blocks for the time of reading; any thread, while jobs run.
 * Returns owned: eng_lora_close, at any time before eng_close; jobs that use it keep it until they
 * end. ENG_EQUEUEFULL: others have the memory; else as of a model, in one sentence.
 */
int eng_lora_open(struct eng *e, const char *dir, struct eng_lora **ret, char *err, size_t errlen);
void eng_lora_close(struct eng_lora *lora); /* NULL is fine */
/* Another reference, to be closed as well; and whether there are others, of callers or jobs. */
struct eng_lora *eng_lora_share(struct eng_lora *lora);
bool eng_lora_is_shared(const struct eng_lora *lora);

/* ---- jobs ---------------------------------------------------------------------------------- */

/*
 * Validates and queues. On success *ret, set before the first callback, is owned by the caller
 * (eng_job_release), and on_event is called up to and including ENG_EVENT_JOB_DONE; on failure it
 * is never called. A job that can start at once is never refused for a full queue.
 */
int eng_job_submit(struct eng *e, const struct eng_job_params *params, struct eng_job **ret,
                   char *err, size_t errlen);

/* ---- watching ------------------------------------------------------------------------------ */

/* A snapshot; it is updated right after the events of a step. */
void eng_stats(struct eng *e, struct eng_stats *ret_stats);

/* Refuses new jobs from now on (ENG_ECLOSED); accepted ones continue. */
void eng_drain(struct eng *e);

/* For tests of the watchdog: the scheduler stops stepping until resumed. */
void eng_debug_pause(struct eng *e, bool paused);

/* Names of the numeric paths and kernel levels of this build, NULL-terminated. */
const char *const *eng_path_names(void);
const char *const *kern_names(void);
