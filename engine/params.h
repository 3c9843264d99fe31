/* SPDX-License-Identifier: MIT */
/*
 * Parameters of opening an engine, and the plan of its memory. The public header is engine.h, which
 * includes this.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eng_cores;

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

/* The draft model of eng_params, or the twin. */
enum eng_draft_state {
    ENG_DRAFTS_NONE,    /* none was asked for, or drafts are off */
    ENG_DRAFTS_LOADING, /* or to be loaded */
    ENG_DRAFTS_ON,
    ENG_DRAFTS_FAILED,
};

/* Pages of KV in files, which another process may find: see kv/disk.h. */
struct eng_kv_disk_params {
    const char *dir;   /* NULL: none */
    const char *model; /* a name for people, or NULL */
    int64_t bytes;     /* the directory holds at most so many, */
    int64_t seconds;   /* and nothing that was not used for this time */
    /* Whether pages of an owner (ENG_KV_OWNER bytes) may be neither written nor read; any thread.
     * NULL: all may. */
    bool (*is_banned)(void *bans, const uint8_t *owner);
    void *bans;
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

/* Zero or NULL is the default of every field. Strings are borrowed during eng_open. */
struct eng_params {
    const char *model_dir;
    const char *numerics;      /* "auto" (default), "exact", "bf16", "int8", "int4" */
    const char *gemm;          /* "auto" (default), "native", "blas" */
    const char *kernels;       /* highest allowed: "auto" (default) or one of kern_names */
    const char *weight_coding; /* bf16 weights in 12 bits, without loss: "auto" (default: if that is
                                * measured to be faster here), "on", "off" */
    const char *kv_dtype;      /* "auto" (default: f32 on exact; int8 on int8 and int4, but not of
                                * encoders and on levels with fast bf16; else bf16), "f32", "bf16",
                                * "int8"; ENG_EUNSUPPORTED if the path does not have it */
    int n_threads;             /* 0: usable cores (affinity and cgroup quota) */
    int n_parallel;            /* sequences running at once; 0: 4. An encoder reads up to 64 texts
                                * in a step, whatever this says */
    int64_t ctx_tokens;        /* tokens per sequence; 0: the model's, or fewer if memory is too
                                * small; of an encoder at most 2048 */
    int chunk_tokens;          /* prompt rows per step; 0: 128, with experts 256. Of an encoder the
                                * longest text, but at least 512 */
    int64_t memory_bytes;      /* budget for everything; 0: the cgroup limit or physical memory */
    int64_t kv_bytes;          /* KV cache budget; 0: n_parallel x context, as memory allows */
    int64_t caller_bytes;      /* memory that the caller needs itself, counted in the plan, */
    int caller_bytes_per_id;   /* and this much per id of the model's vocabulary */
    int64_t answer_bytes;      /* the caller's memory for answers, counted in the plan; 0: none,
                                * -1: a sixteenth of memory_bytes, from 16 MiB to 1 GiB */
    int64_t request_bytes;     /* the caller's memory for requests, counted in the plan */
    int64_t reserved_bytes;    /* left free of the budget: for another engine */
    struct eng_kv_disk_params kv_disk; /* pages that outlive the process */
    int64_t lora_bytes;        /* memory for adapters, counted in the plan; 0: jobs have none */
    int lora_rank;             /* of one adapter's matrix at most; 0: 64 */
    bool no_prefix_cache;      /* requests share no prefixes */
    int max_queued_jobs;       /* waiting besides the running ones; 0: 4 x n_parallel */
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

    /*
     * Writes the ids of a text in the model's vocabulary, at most `max`, and returns their number:
     * its inputs decide which weights int4 keeps best. The same text must always give the same ids.
     * Called by eng_open once at most, on a thread that loads weights. NULL: all count alike.
     */
    int (*calibration)(void *ctx, int32_t *ret_ids, int max);
    void *calibration_ctx;
};

/*
 * For eng_params.cores: n_threads compute threads (0: usable cores). Engines that share them
 * compute one step at a time, by their shares. Returns owned (eng_cores_destroy, after the engines;
 * NULL is fine), or ENG_EINVAL, ENG_ENOMEM.
 */
int eng_cores_create(struct eng_cores **ret, int n_threads, char *err, size_t errlen);
void eng_cores_destroy(struct eng_cores *c);

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
    int64_t ctx_tokens;     /* tokens per sequence */
};
