/* SPDX-License-Identifier: MIT */
/*
 * Token ids in, token ids out: the interface of the engine.
 *
 * An engine is one model, loaded once and read-only, a fixed pool of compute threads, and one
 * scheduler with continuous batching. Every step runs all decoding rows and a bounded chunk of
 * prompt rows in one forward pass; sequences join and leave between steps.
 *
 * This header never shows tensors, kernels, pages, locks, text, HTTP or JSON.
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
#ifndef HEARTH_ENGINE_H
#define HEARTH_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/eng_error.h"
#include "engine/sampling_params.h"

struct eng;
struct eng_job;
struct eng_memory;
struct eng_cores;

/* ---- opening ------------------------------------------------------------------------------- */

/*
 * Drafts: ids that are computed and checked in the step that computes the last token. They never
 * change an answer. They are copied from the text or a prediction, spelled by a guide, or written
 * by a second model: a twin, the same weights in four bits, or a smaller model that the caller
 * names. Those are loaded later (eng_load_drafts). AUTO tries drafts while
 * they are worth their time, and has a twin if the weights are bf16 or exact, of 64 MiB or more,
 * and everything with it takes at most half of the memory. ALWAYS tries all there are, with a twin
 * wherever it fits. LOOKUP is AUTO without a second model.
 */
enum eng_speculate {
    ENG_SPECULATE_AUTO,
    ENG_SPECULATE_OFF,
    ENG_SPECULATE_ALWAYS,
    ENG_SPECULATE_LOOKUP,
};

/* Pages of KV in files, which another process may find: see kv_disk.h. */
struct eng_kv_disk_params {
    const char *dir;   /* NULL: none */
    const char *model; /* a name for people, or NULL */
    int64_t bytes;     /* the directory holds at most so many, */
    int64_t seconds;   /* and nothing that was not used for this time */
};

/* One file of such a directory. */
enum { ENG_KV_OWNER = 16, ENG_KV_MODEL = 64 };
struct eng_kv_file {
    bool sound; /* false: what follows up to n_tokens is not known */
    char model[ENG_KV_MODEL];
    uint8_t fingerprint[32];     /* equal for pages that one server can read */
    uint8_t owner[ENG_KV_OWNER]; /* the first bytes of eng_job_params.tenant */
    int n_tokens;                /* 0 for states of recurrent layers */
    int64_t bytes, used_s;       /* when it was used last, seconds since the epoch */
};

/*
 * Calls visit for each file in a directory that is there, and removes those for which it returns
 * true. Servers that use the directory are not disturbed. Returns 0 or ENG_EINVAL, ENG_EIO,
 * ENG_ENOMEM.
 */
int eng_kv_visit(const char *dir, bool (*visit)(void *ctx, const struct eng_kv_file *file),
                 void *ctx, char *err, size_t errlen);

/* Zero or NULL is the default of every field. Strings are borrowed during eng_open. */
struct eng_params {
    const char *model_dir;
    const char *numerics;      /* "auto" (default), "exact", "bf16", "int8", "int4" */
    const char *gemm;          /* "auto" (default), "native", "blas" */
    const char *kernels;       /* highest allowed: "auto" (default) or one of eng_kernel_names */
    const char *weight_coding; /* bf16 weights in 12 bits, without loss: "auto" (default: if that is
                                * measured to be faster here), "on", "off" */
    const char *kv_dtype;      /* "auto" (default: f32 on exact, else bf16), "f32", "bf16", "int8";
                                * ENG_EUNSUPPORTED if the path does not have it */
    int n_threads;             /* 0: usable cores (affinity and cgroup quota) */
    int n_parallel;            /* sequences running at once; 0: 4. An encoder reads up to 64 texts
                                * in a step, whatever this says */
    int64_t ctx_tokens;        /* tokens per sequence; 0: the model's, or fewer if memory is too
                                * small; of an encoder at most 2048 */
    int chunk_tokens;          /* prompt rows per step; 0: 128. Of an encoder the longest text,
                                * but at least 512 */
    int64_t memory_bytes;      /* budget for everything; 0: the cgroup limit or physical memory */
    int64_t kv_bytes;          /* KV cache budget; 0: n_parallel x context, as memory allows */
    int64_t caller_bytes;      /* memory that the caller needs itself, counted in the plan, */
    int caller_bytes_per_id;   /* and this much per id of the model's vocabulary */
    int64_t answer_bytes;      /* the caller's memory for answers, counted in the plan; 0: none,
                                * -1: a sixteenth of memory_bytes, from 16 MiB to 1 GiB */
    int64_t request_bytes;     /* the caller's memory for requests, counted in the plan */
    int64_t reserved_bytes;    /* left free of the budget: for another engine */
    struct eng_kv_disk_params kv_disk; /* pages that outlive the process */
    bool no_prefix_cache;              /* requests share no prefixes */
    int max_queued_jobs;               /* waiting beyond the running ones; 0: 4 x n_parallel */
    int64_t max_queued_tokens; /* prompt tokens waiting; 0: 8 x context, an encoder: 16 x chunk */
    int n_batch_choices;       /* most choices per job; 0: 16 */
    enum eng_speculate speculate; /* drafts: see eng_job_params */
    const char *draft_dir; /* a smaller model with the same tokenizer, which is planned with the
                            * rest and served on int4; NULL: none */
    bool reads_only; /* models that make no tokens are opened too; else they are refused by name */
    bool global_priority; /* priority counts between keys too; a key that was not served for
                                * 15 s still comes next */

    /* Opening an engine in a process where another one works. */
    bool in_background;              /* weights are loaded by threads of the lowest priority, one
                                   * fewer than n_threads */
    bool beside_others;              /* weights are loaded by half of the threads */
    struct eng_cores *cores;         /* shared by the engines; NULL: own ones, of n_threads */
    int share;                       /* of the cores, against the other engines; 0: 1 */
    const atomic_bool *stop;         /* once set, opening ends with ENG_ECLOSED; or NULL */
    void (*on_self_test)(void *ctx); /* called on the caller's thread when the weights are loaded;
                                      * or NULL */
    void *on_self_test_ctx;
};

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
 * For eng_params.cores: n_threads compute threads (0: usable cores). Engines that share them
 * compute one step at a time, by their shares. Returns owned (eng_cores_destroy, after the engines;
 * NULL is fine), or ENG_EINVAL, ENG_ENOMEM.
 */
int eng_cores_create(struct eng_cores **ret, int n_threads, char *err, size_t errlen);
void eng_cores_destroy(struct eng_cores *c);

/*
 * Cancels running jobs, delivers the last events, frees everything. No job may be submitted
 * meanwhile, and no callback may call it; handles of jobs stay valid until they are released. NULL
 * is fine.
 */
void eng_close(struct eng *e);

/*
 * Loads the draft model and the twin, those that are planned, in the background, by threads of the
 * lowest priority; they write drafts from then on. draft_ids: a bit for each id of the model that
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
enum eng_draft_state {
    ENG_DRAFTS_NONE, /* none was asked for, or drafts are off */
    ENG_DRAFTS_LOADING,
    ENG_DRAFTS_ON,
    ENG_DRAFTS_FAILED,
};
enum eng_draft_state eng_draft_state(const struct eng *e, const char **ret_error);

/*
 * How fast the memory of the weights is read by as many threads as compute: the best of some
 * plain loops. While no job runs. Returns 0 or ENG_ENOMEM and so on.
 */
int eng_read_speed(struct eng *e, double *ret_bytes_per_s, char *err, size_t errlen);

/* The memory plan, checked against the limit before the first request. */
struct eng_memory {
    int64_t weights_bytes;
    int64_t kv_bytes;
    int64_t state_bytes;   /* of recurrent layers: states of running sequences, and snapshots */
    int64_t scratch_bytes; /* activations, attention, packing */
    int64_t logits_bytes;
    int64_t limit_bytes;    /* the limit */
    int64_t answer_bytes;   /* of the caller, see eng_params */
    int64_t request_bytes;  /* of the caller, see eng_params */
    int64_t other_bytes;    /* small data, and caller_bytes of eng_params */
    int64_t reserved_bytes; /* of eng_params */
    int64_t spare_bytes;    /* reserved for weights that might not compress, and not used */
    int64_t draft_bytes;    /* of the draft model, its KV cache and scratch */
    int64_t twin_bytes;     /* of the twin, which gives way and is not in the sum; 0: none */
    int64_t no_twin_bytes;  /* that a twin lacks room for, or 0 */
};

/* Facts that do not change while the engine is open; borrowed until eng_close. */
struct eng_info {
    const char *architecture; /* "LlamaForCausalLM" */
    const char *rope;         /* "llama3"; longrope also says which of its lists is in use */
    const char *numerics;     /* the path chosen: "exact", "bf16", ... */
    const char *kernels;      /* the kernel level chosen */
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
    int max_choices;
    int64_t ctx_tokens;       /* tokens per sequence */
    int64_t ctx_train_tokens; /* max_position_embeddings */
    int64_t n_params;
    int32_t vocab_size; /* of config.json: the width of a row of logits */
    int d_model, n_layers, n_heads, n_kv_heads, d_head, d_ff;
    const int32_t *eos_ids; /* generation_config.json, else config.json */
    int n_eos_ids;
    int32_t bos_id;            /* or -1 */
    bool generates;            /* false: jobs with want_pooled only, see eng_params.reads_only */
    const char *pooled;        /* how want_pooled pools the hidden states, as the model's files
                                * say: "mean", "cls", "lasttoken", ...; NULL: they say nothing, and
                                * it is the mean */
    int pooled_width;          /* numbers of ENG_EVENT_POOLED */
    int n_labels;              /* they are logits of labels, so many; 0: a vector */
    bool unpooled_prompt;      /* the model wants n_unpooled to be set for its prompts */
    const char *weights_dtype; /* of the files: "BF16", "F16", "F32", "mixed" */
    uint8_t fingerprint[16];   /* of weights and configuration, for any threads and packing */
    struct eng_memory memory;
    double load_seconds; /* the self-test not included */
    double self_test_seconds;
};
const struct eng_info *eng_info(const struct eng *e);

/*
 * The contents of a model directory: problems first, then what is known despite them. Strings are
 * borrowed for the call; those of tensors come from files and may hold any bytes. Functions may be
 * NULL.
 */
struct eng_inspect_config {
    const char *architecture, *model_type, *rope;
    const char *family; /* for people: "Gemma 3" */
    int hidden_size, n_layers, n_heads, n_kv_heads, d_head, d_ff;
    int32_t vocab_size;
    bool tied_head;
    int64_t ctx_tokens; /* the longest context that can be served */
    double rope_theta, rope_factor;
    double local_rope_theta; /* of layers with a window, if they have a RoPE of their own; else 0 */
    int n_layers_without_rope;
    int n_convolutions, n_delta_nets;     /* layers that are short convolutions, delta nets */
    int n_windowed_layers, window_tokens; /* layers with a sliding window; the last one's size */
    const int32_t *eos_ids;               /* [n_eos_ids] */
    int n_eos_ids;
};
struct eng_inspect_tensor {
    const char *name, *dtype, *file;
    const int64_t *shape; /* [rank] */
    int rank;
    int64_t n_bytes;
    bool used; /* by the architecture */
};
struct eng_inspect_path {
    const char *numerics;
    int64_t weights_bytes; /* at most, in memory */
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

/* ---- jobs ---------------------------------------------------------------------------------- */

/*
 * A guide defines which ids may come next in one choice, so that the answer follows a grammar. The
 * engine knows no grammar: ids go in, a set of ids comes out. The set must be a function of the
 * grammar and the ids taken alone, or answers would depend on other requests.
 *
 * Order of the calls for one choice: mask, then take of the id drawn, then mask again, until the
 * choice ends; end-of-sequence and stop ids are not taken. `complete` may come after any mask.
 * Calls come from the engine's threads, never two at once for one guide, never after JOB_DONE.
 * They must not block and not allocate. A mask may be made in pieces, by different threads one
 * after the other and on a stack of its own, or be dropped where it asks for more time.
 */
enum eng_guide_next {
    ENG_GUIDE_FREE,  /* any id; bits were not written */
    ENG_GUIDE_MASK,  /* the ids whose bits are set */
    ENG_GUIDE_END,   /* the answer is complete and nothing can follow: the choice ends, "stop" */
    ENG_GUIDE_FAIL,  /* a fault of the guide: the choice ends with an error */
    ENG_GUIDE_LATER, /* given up for lack of time, nothing changed: it will be asked again */
};

/*
 * The time that a mask may take, in steps of about 50 ns. The guide counts down what it does; when
 * nothing is left it calls `more`, which may do other things before it returns. True: some are left
 * again; false: the mask is given up. A guide that is never slow ignores all of it.
 */
struct eng_pace {
    int64_t left;
    bool (*more)(struct eng_pace *pace);
};

struct eng_guide {
    void *ctx;
    /* Writes (vocab_size + 63) / 64 words: id i is bit i % 64 of word i / 64. End ids are set if
     * the answer may end. */
    enum eng_guide_next (*mask)(void *ctx, uint64_t *bits, struct eng_pace *pace);
    bool (*take)(void *ctx, int32_t id); /* false: not allowed, nothing changed */
    bool (*complete)(void *ctx);         /* returns true if the answer may end here */
    /* How many of n ids could be taken from here on, one after the other; changes nothing. May be
     * asked before any mask. NULL: none is tried. */
    int (*foresee)(void *ctx, const int32_t *ids, int n);
    /* Where the next text is certain: at most n ids that spell it in the usual way, a draft to try.
     * Returns their number; changes nothing. Asked where foresee is. NULL: none. */
    int (*propose)(void *ctx, int32_t *ids, int n);
    /* The result of mask after n >= 1 more ids, each of which may come; changes nothing.
     * ENG_GUIDE_LATER if that takes long, or there are too many ids. NULL: not to be called. */
    enum eng_guide_next (*peek)(void *ctx, const int32_t *ids, int n, uint64_t *bits);
};

struct eng_bias {
    int32_t id;
    float value; /* added to the logit; -INFINITY bans */
};

/*
 * The sampling chain; sampling_params.h has its order. Penalties are those of vLLM: repetition over
 * prompt and output, frequency and presence over output. Temperature 0 is the argmax after bias and
 * penalties, lowest id on a tie. If every id is banned, the choice ends with ENG_FINISH_STOP and
 * stop_id -1; if its guide's answer is not complete, with ENG_FINISH_NO_TOKEN.
 */
struct eng_sampling {
#define ENG_MEMBER(name, type, ...) type name;
    ENG_SAMPLING_PARAMS(ENG_MEMBER)
#undef ENG_MEMBER
    uint64_t seed; /* the draw is a function of (seed, choice, token index) alone */
    const struct eng_bias *bias;
    int n_bias;
    const int32_t *allowed_ids; /* NULL: all */
    int n_allowed_ids;
};

/* The rule by which a seed gives tokens; another rule would give others. */
enum { ENG_DRAW_RULE = 2 };

/* The neutral chain: temperature 1, everything else off, seed 0. */
struct eng_sampling eng_sampling_default(void);

enum eng_finish {
    ENG_FINISH_STOP = 1,      /* an end-of-sequence or stop id (delivered as the last token), or
                            * eng_job_stop_choice */
    ENG_FINISH_LENGTH,        /* max_tokens or the end of the context */
    ENG_FINISH_CANCELLED,     /* eng_job_cancel or eng_close */
    ENG_FINISH_DEADLINE,      /* deadline_us passed */
    ENG_FINISH_QUEUE_TIMEOUT, /* queue_deadline_us passed before anything started */
    ENG_FINISH_NO_TOKEN,      /* bias, bans and allowed ids leave no id that the guide allows */
    ENG_FINISH_ERROR,         /* non-finite logits or an internal error: this job only */
};

/* One candidate with its log-probability: log-softmax of the raw logits, before the whole chain. */
struct eng_logprob {
    int32_t id;
    float logprob;
};

enum eng_event_type {
    ENG_EVENT_STARTED,      /* the first sequence of the job left the queue; see usage */
    ENG_EVENT_PROMPT_TOKEN, /* n_prompt_logprobs >= 0: one for each prompt token but the first, in
                             * order, once for all choices; index = its position */
    ENG_EVENT_TOKEN,        /* a generated token; index counts from 0 within the choice */
    ENG_EVENT_LOGITS,       /* want_logits: the raw row after position `index` (prompt, once for all
                             * choices, and generated), n_logits wide */
    ENG_EVENT_POOLED,       /* want_pooled: the prompt's vector, or the logits of its labels, as the
                             * model's files make them of its final hidden states; finite,
                             * n_logits = eng_info.pooled_width wide */
    ENG_EVENT_PROGRESS,     /* want_progress: after each step of the prefill, index = prompt tokens
                             * done, cached ones included; see usage */
    ENG_EVENT_CHOICE_DONE,  /* finish is set; nothing more comes for this choice */
    ENG_EVENT_JOB_DONE,     /* the last event of a job; usage is set */
};

/* Why a prompt was not taken from the prefix cache up to its last whole page. */
enum eng_miss {
    ENG_MISS_NONE,      /* it was, or nothing of its scope had come at that place before */
    ENG_MISS_CONTENT,   /* an earlier prompt goes on with other tokens */
    ENG_MISS_EVICTED,   /* the page was there once */
    ENG_MISS_SCOPE,     /* the job does not read the cache */
    ENG_MISS_TOO_SHORT, /* the prompt has no whole page before its last token */
    ENG_N_MISSES
};
/* "content", "evicted", "scope", "too_short"; NULL for ENG_MISS_NONE. */
const char *eng_miss_name(enum eng_miss miss);

/* Counts and times of one job. Times: microseconds of CLOCK_MONOTONIC; 0: has not happened. */
struct eng_usage {
    int64_t n_prompt_tokens;    /* once for all choices */
    int64_t n_cached_tokens;    /* of these, taken from the prefix cache by the first choice */
    int64_t n_disk_tokens;      /* of n_cached_tokens, read from disk, */
    uint64_t restore_us;        /* and how long that took */
    int64_t n_written_tokens;   /* of these, on pages that the job added to the prefix cache */
    enum eng_miss miss;         /* found when the job starts */
    int64_t n_known_tokens;     /* CONTENT, EVICTED: those before the first that missed */
    int64_t n_generated_tokens; /* over all choices */
    int64_t n_computed_prompt_tokens;                /* prompt rows computed, over all choices */
    int64_t n_draft_tokens, n_accepted_draft_tokens; /* tried, and right, over all choices */
    uint64_t submitted_us, started_us, first_token_us, done_us;
};

/* The argument of a callback; pointers are borrowed for the call. */
struct eng_event {
    enum eng_event_type type;
    int choice;
    int64_t index;
    int32_t id;    /* TOKEN, PROMPT_TOKEN */
    float logprob; /* TOKEN with n_logprobs >= 0, PROMPT_TOKEN */
    int predicted; /* TOKEN: 1 if the prediction proposed it, -1 if it proposed another, else 0;
                    * a function of prediction and answer, whether drafts are tried or not */
    int rank;      /* PROMPT_TOKEN: 1 for the most likely; else 0 */
    const struct eng_logprob *top; /* best first, ties by lower id, or listed_ids; NULL: not
                                    * requested */
    int n_top;
    const float *logits; /* LOGITS, POOLED */
    int64_t n_logits;
    enum eng_finish finish;        /* CHOICE_DONE */
    const char *error;             /* CHOICE_DONE with ENG_FINISH_ERROR */
    int32_t stop_id;               /* CHOICE_DONE by an id: that id; else -1 */
    const struct eng_usage *usage; /* STARTED, PROGRESS, JOB_DONE */
    uint64_t now_us;               /* end of the step that produced it */
};

enum { ENG_MAX_MARKS = 64 };

/* The first n_tokens of a prompt are wanted again within so many seconds. */
enum { ENG_MAX_KEEPS = 2 };
struct eng_keep {
    int64_t n_tokens, seconds;
};

enum eng_kv_disk_use { ENG_DISK_LONG, ENG_DISK_DAY, ENG_DISK_NEVER };

struct eng_job_params {
    const int32_t *prompt; /* [n_prompt], every id in [0, vocab_size); copied by submit */
    int64_t n_prompt;      /* >= 1 and <= context */
    int n_choices;         /* 1..max_choices; one prefill serves all */
    int first_choice;      /* number of the first choice within its prompt (see seed) */
    int64_t max_tokens;    /* per choice; 0: prefill only; clamped so that prompt and answer
                                 * fit the context (a prompt that fills it still gives one token) */
    int64_t min_tokens;    /* end and stop ids are banned before that many */
    struct eng_sampling sampling;
    const struct eng_guide *guides; /* [n_choices], copied, their ctx borrowed until JOB_DONE;
                                     * NULL: none */
    const int32_t *prediction; /* [n_prediction] copied: an answer that is expected; only as many
                                * ids as the context holds are used */
    int64_t n_prediction;
    bool no_drafts;          /* tries none */
    int max_draft;           /* ids of a draft at most; 0: as many as are worth it */
    const int32_t *stop_ids; /* copied */
    int n_stop_ids;
    bool ignore_eos;           /* the model's own eos ids do not stop */
    int n_logprobs;            /* -1: none; 0: of the sampled token; k: and of the k best (at most
                                 * ENG_MAX_LOGPROBS) */
    const int32_t *listed_ids; /* [n_listed_ids] copied: with n_logprobs >= 0, `top` of each token
                                * has these instead of the best, in this order */
    int n_listed_ids;          /* at most ENG_MAX_LISTED */
    int n_prompt_logprobs;     /* -1: none; such a job reads no cached pages */
    bool want_logits;
    bool want_pooled;   /* prompt only; max_tokens must be 0 and n_choices 1 */
    int64_t n_first;    /* of a pair of texts: tokens of the first; 0: one text. Encoders with
                         * token types read it */
    int64_t n_unpooled; /* tokens at the start that means and maxima leave out; not all */
    bool want_progress;
    /* Prompt tokens up to the ends of messages, in any order: what other prompts may share. Models
     * with recurrent layers keep a snapshot at the last page boundary before each. */
    int64_t marks[ENG_MAX_MARKS]; /* [n_marks], each 0 to n_prompt */
    int n_marks;
    enum eng_kv_disk_use disk; /* whether its pages go to files */
    /* Pages up to these are evicted after others. */
    struct eng_keep keeps[ENG_MAX_KEEPS];
    /* Prefix pages are shared by equal tenants; 0: the common one. Those with equal first
     * ENG_KV_OWNER bytes have one owner. */
    uint8_t tenant[32];
    bool no_cache;              /* does not read or fill the prefix cache */
    uint64_t fair_key;          /* waiting keys take turns; 0 is also a key */
    int priority;               /* within a key smaller runs earlier, equal ones in order of
                                 * submission; see eng_params.global_priority */
    int n_reserved_slots;       /* queue slots reserved for others: the job is refused if no other
                                 * is free; at most three quarters of all count */
    bool part;                  /* of a request whose first job was admitted: waits only in half of
                                 * the queue, so that large requests leave room for others */
    bool continuation;          /* of an admitted request: no bound of the queue refuses it */
    uint64_t deadline_us;       /* CLOCK_MONOTONIC; 0: none */
    uint64_t queue_deadline_us; /* 0: none */
    void (*on_event)(void *ctx, const struct eng_event *event);
    void *ctx;
};

enum { ENG_MAX_LOGPROBS = 20, ENG_MAX_LISTED = 1024 };

/*
 * Validates and queues. On success *ret, set before the first callback, is owned by the caller
 * (eng_job_release), and on_event is called up to and including ENG_EVENT_JOB_DONE; on failure it
 * is never called. A job that can start at once is never refused for a full queue.
 */
int eng_job_submit(struct eng *e, const struct eng_job_params *params, struct eng_job **ret,
                   char *err, size_t errlen);

/*
 * Requests the end of a job: it ends before the next step, or between layers if the step has no
 * other job. JOB_DONE still comes. Never blocks.
 */
void eng_job_cancel(struct eng_job *job);

/*
 * Ends one choice from outside (a stop string was found). Tokens of the running step may still be
 * delivered. Never blocks.
 */
void eng_job_stop_choice(struct eng_job *job, int choice);

/*
 * Releases the handle; allowed at any time, after which on_event may still be called until
 * JOB_DONE. NULL is fine.
 */
void eng_job_release(struct eng_job *job);

/* ---- watching ------------------------------------------------------------------------------ */

/* Steps are counted by their prompt rows and generated tokens: at most 1, 8, 16, 32 and so on up to
 * 16384, and more. */
enum { ENG_STEP_SIZES = 14 };
static inline int64_t eng_step_size(int i)
{
    return i == 0 ? 1 : (int64_t)8 << (i - 1);
}

/* Where a draft comes from. */
enum eng_draft_source {
    ENG_DRAFT_TEXT,
    ENG_DRAFT_PREDICTION,
    ENG_DRAFT_FORCED, /* by a guide */
    ENG_DRAFT_SELF,   /* by the twin */
    ENG_DRAFT_MODEL,  /* by the draft model */
    ENG_DRAFT_SOURCES
};
enum { ENG_DRAFT_IDS = 7 }; /* at most in one draft */
static inline uint64_t eng_draft_sum(const uint64_t by_source[ENG_DRAFT_SOURCES])
{
    return by_source[ENG_DRAFT_TEXT] + by_source[ENG_DRAFT_PREDICTION] +
           by_source[ENG_DRAFT_FORCED] + by_source[ENG_DRAFT_SELF] + by_source[ENG_DRAFT_MODEL];
}

/* Of pages on disk; all zero without them. Totals count from the start. */
enum { ENG_KV_FAULTS = 5 }; /* unreadable, length, header, foreign, payload */
struct eng_kv_disk_stats {
    bool on, paused; /* paused: a minute after a failed write */
    int64_t bytes;   /* of all extents in the directory, as of the last minute, */
    int64_t n_pages; /* and the pages in those that have this model's size */
    uint64_t n_restores, restore_us, n_read_bytes, n_read_tokens;
    uint64_t n_written_bytes, n_write_errors;
    uint64_t n_dropped; /* sequences that were not written: the disk did not keep up, or failed */
    uint64_t n_faults[ENG_KV_FAULTS]; /* files that were not served */
};

struct eng_stats {
    struct eng_kv_disk_stats kv_disk;
    int n_running;            /* sequences in slots */
    int n_waiting;            /* sequences queued */
    int64_t n_waiting_tokens; /* prompt tokens queued */
    int n_pages_used;         /* held by running sequences */
    int n_pages_cached;       /* held only by the prefix cache: free if needed */
    int n_pages_kept;         /* of those held or cached, by eng_keep */
    int n_pages_total;
    uint64_t n_steps;
    uint64_t last_step_us; /* when the last step ended, CLOCK_MONOTONIC */
    uint64_t n_prompt_tokens, n_cached_tokens, n_computed_prompt_tokens, n_generated_tokens;
    uint64_t n_disk_tokens; /* of n_cached_tokens, those that memory had not */
    /* Snapshots of recurrent states in the prefix cache: the most it has room for, those it holds,
     * sequences that began from one, and those that gave way to others or went with their page. */
    int n_snapshots_total, n_snapshots;
    uint64_t n_snapshot_hits, n_snapshots_evicted;
    uint64_t n_misses[ENG_N_MISSES]; /* jobs; those with want_pooled are ENG_MISS_NONE */
    uint64_t n_jobs_done, n_jobs_cancelled, n_jobs_failed;
    double prompt_tokens_per_s; /* measured over the last seconds of work; 0: none yet */
    double generated_tokens_per_s;
    uint64_t compute_us;   /* wall time inside steps */
    uint64_t n_late_masks; /* steps that sequences sat out because their mask was not ready */
    uint64_t n_drafts[ENG_DRAFT_SOURCES], n_draft_tokens[ENG_DRAFT_SOURCES],
        n_accepted_draft_tokens[ENG_DRAFT_SOURCES]; /* of completed steps */
    uint64_t n_drafts_of_length[ENG_DRAFT_IDS];     /* of 1, 2 ... ids; not cumulative */
    uint64_t n_steps_of_size[ENG_STEP_SIZES];       /* completed ones; not cumulative */
    uint64_t n_step_tokens;                         /* their prompt rows and generated tokens */
};
/* A snapshot; it is updated right after the events of a step. */
void eng_stats(struct eng *e, struct eng_stats *ret_stats);

/* Pages of an owner (ENG_KV_OWNER bytes) that is not allowed are not written, and removed. Any
 * thread. */
void eng_kv_allow(struct eng *e, const uint8_t *owner, bool allowed);

/* Refuses new jobs from now on (ENG_ECLOSED); accepted ones continue. */
void eng_drain(struct eng *e);

/* For tests of the watchdog: the scheduler stops stepping until resumed. */
void eng_debug_pause(struct eng *e, bool paused);

/* Names of the numeric paths and kernel levels of this build, NULL-terminated. */
const char *const *eng_numerics_names(void);
const char *const *eng_kernel_names(void);

#endif
