/* SPDX-License-Identifier: MIT */
/*
 * Jobs as the engine's own files and its callers see them: parameters, guides, sampling, events,
 * usage and statistics. The public header is engine.h, which includes this.
 *
 * Threads, errors and ownership: as in engine.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/eng_error.h"
#include "engine/sampling_params.h"

struct eng_job;

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
    ENG_GUIDE_CUT,   /* the guide has brought the answer to its end: the choice ends, "length" */
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
    /* The id to be taken and delivered instead of the one drawn, or that one; -1: none, and the
     * next mask says why. Before any take, but not of an id that ends the answer. A function of
     * the same as the mask, and of the tokens that may still come. NULL: always the one drawn. */
    int32_t (*settle)(void *ctx, int32_t id);
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
extern const char *const eng_miss_names[ENG_N_MISSES];

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

/*
 * An adapter of the model, see eng_lora_open, and how much of it is added: finite, 0 is nothing. A
 * prompt's pages in the prefix cache belong to its adapters and scales.
 */
struct eng_lora;
struct eng_lora_use {
    struct eng_lora *lora;
    float scale;
};
enum { ENG_MAX_LORAS = 8, ENG_MAX_LORA_SCALE = 100 };

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
    struct eng_lora_use loras[ENG_MAX_LORAS]; /* [n_loras], referenced until the job ends; added
                                               * in this order */
    int n_loras;
    enum eng_kv_disk_use disk; /* whether its pages go to files */
    /* Pages up to these are evicted after others. */
    struct eng_keep keeps[ENG_MAX_KEEPS];
    /* Prefix pages are shared by equal tenants; 0: the common one. Those with equal first
     * ENG_KV_OWNER bytes have one owner. */
    uint8_t tenant[32];
    bool no_cache;              /* does not read or fill the prefix cache */
    uint64_t fair_key;          /* waiting keys take turns; 0 is also a key */
    int key_slots;              /* sequences of the key that run at once; more wait, and jobs of
                                 * others pass them: at most 4 jobs for each. 0: no such bound */
    int priority;               /* within a key smaller runs earlier, equal ones in order of
                                 * submission; see eng_params.global_priority */
    int n_for_others;           /* places of the queue that it leaves free if it must wait, and the
                                 * same share of the prompt tokens; at most three quarters of all
                                 * count. ENG_BEFORE_OTHERS: no bound of the queue refuses it */
    bool spare;                 /* runs where others leave room, and gives way to them: it waits
                                 * outside the queue's bounds, and priority and key_slots do not
                                 * count. What it gives is the same */
    uint64_t deadline_us;       /* CLOCK_MONOTONIC; 0: none */
    uint64_t queue_deadline_us; /* 0: none */
    void (*on_event)(void *ctx, const struct eng_event *event);
    void *ctx;
};

enum { ENG_MAX_LOGPROBS = 20, ENG_MAX_LISTED = 1024, ENG_BEFORE_OTHERS = -1 };

/* ---- handles -------------------------------------------------------------------------------- */

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

/* ---- statistics ----------------------------------------------------------------------------- */

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

/* Of pages on disk; all zero without them. The counts are uint64_t, without others between them. */
enum { ENG_KV_FAULTS = 5 }; /* unreadable, length, header, foreign, payload */
struct eng_kv_disk_stats {
    bool on, paused; /* paused: a minute after a failed write */
    int64_t bytes;   /* of all extents in the directory, as of the last minute, */
    int64_t n_pages; /* and the pages in those that have this model's size */
    /* Counts from the start. */
    uint64_t n_restores, restore_us, n_read_bytes, n_read_tokens;
    uint64_t n_written_bytes, n_write_errors;
    uint64_t n_dropped; /* sequences that were not written: the disk did not keep up, or failed */
    uint64_t n_faults[ENG_KV_FAULTS]; /* files that were not served */
};

/* Here too the counts are uint64_t, without others between them. */
struct eng_stats {
    struct eng_kv_disk_stats kv_disk;
    int n_running, n_spare;   /* sequences in slots; those of spare jobs */
    int n_waiting;            /* sequences queued */
    int64_t n_waiting_tokens; /* prompt tokens queued */
    int n_pages_used;         /* held by running sequences */
    int n_pages_cached;       /* held only by the prefix cache: free if needed */
    int n_pages_kept;         /* of those held or cached, by eng_keep */
    int n_pages_total;
    /* Snapshots of recurrent states in the prefix cache: the most it has room for, those it holds;
     * below, sequences that began from one, and those that gave way or went with their page. */
    int n_snapshots_total, n_snapshots;
    int64_t drafts_since_ms;    /* when the loading of a twin or draft model began that still runs,
                               * unix time; 0: none does */
    uint64_t last_step_us;      /* when the last step ended, CLOCK_MONOTONIC */
    double prompt_tokens_per_s; /* measured over the last seconds of work; 0: none yet */
    double generated_tokens_per_s;
    /* Counts from the start. */
    uint64_t n_steps;
    uint64_t n_prompt_tokens, n_cached_tokens, n_computed_prompt_tokens, n_generated_tokens;
    uint64_t n_disk_tokens; /* of n_cached_tokens, those that memory had not */
    uint64_t n_snapshot_hits, n_snapshots_evicted;
    uint64_t n_misses[ENG_N_MISSES]; /* jobs; those with want_pooled are ENG_MISS_NONE */
    uint64_t n_jobs_done, n_jobs_cancelled, n_jobs_failed;
    uint64_t compute_us;   /* wall time inside steps */
    uint64_t n_late_masks; /* steps that sequences sat out because their mask was not ready */
    uint64_t n_parked, n_recomputed_tokens; /* spare sequences that gave way; what that cost */
    uint64_t n_drafts[ENG_DRAFT_SOURCES], n_draft_tokens[ENG_DRAFT_SOURCES],
        n_accepted_draft_tokens[ENG_DRAFT_SOURCES]; /* of completed steps */
    uint64_t n_drafts_of_length[ENG_DRAFT_IDS];     /* of 1, 2 ... ids; not cumulative */
    uint64_t n_steps_of_size[ENG_STEP_SIZES];       /* completed ones; not cumulative */
    uint64_t n_step_tokens;                         /* their prompt rows and generated tokens */
};

/*
 * Adds the counts of an engine to a sum, and what it computes and has queued; with_pages also its
 * pages and snapshots. Engines share a directory of pages: its bytes are those of one. Speeds and
 * last_step_us of the sum stay.
 */
void eng_stats_add(struct eng_stats *sum, const struct eng_stats *s, bool with_pages);
/* Counts a step by its prompt rows and generated tokens. */
void eng_stats_count_step(struct eng_stats *s, uint64_t n_tokens);
