/* SPDX-License-Identifier: MIT */
/*
 * A model that requests use: the engine with its texts.
 *
 * Threads: a model is const once it has been put into a set (server/models/set.h); the atomics and
 * the engine have rules of their own.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/config/config.h"
#include "server/models/generation_config.h"
#include "server/models/pairs.h"
#include "server/models/retrieval.h"
#include "server/watchdog.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tools/tools.h"

struct grammar_cache;
struct srv_models;
struct srv_wait;
struct tok;
struct tok_chat;

struct srv_model {
    const struct srv_config *config;
    struct eng *engine;
    struct tok *tok;
    struct tok_chat *chat;          /* NULL: the model has no template */
    char *tokenizer_info;           /* of tok_chat_info_read, owned */
    struct tools_style style;       /* how the model writes calls of tools and reasoning */
    struct tools_markers markers;   /* its markers as tokens */
    struct grammar_cache *grammars; /* NULL: no token of the model stands for a single byte */
    const char *const *names;       /* accepted names, NULL-terminated; the first is shown */
    char fingerprint[160];          /* build, weights, numeric path, kernels, gemm */
    struct srv_defaults defaults;
    struct srv_retrieval retrieval;
    struct srv_pairs pairs;
    struct tok_fim fim;
    int64_t created; /* unix seconds: since when requests get it */
    bool is_demo, is_gguf;
    uint8_t source[32];     /* srv_model_source of its directory, and of the draft model's */
    const char *draft_name; /* the draft model as it was named, owned; NULL: none */
    uint64_t *draft_ids;    /* of eng_load_drafts; NULL: there is no draft model */
    enum eng_draft_state draft_noted; /* the main thread's: the state that is in the log */
    atomic_llong answer_bytes;        /* charged for answers; at most the engine's plan says */
    atomic_bool unloaded;             /* its time to drain is over: jobs end as cancelled */

    struct srv_watchdog watchdog; /* the main thread's */

    int entry;              /* its number in the catalogue, from 0 */
    struct srv_models *set; /* guards the fields below; NULL: not in a set yet */
    struct srv_model *next; /* in the set */
    bool drains;            /* requests no longer get it: it ends what it began */
    int n_refs;             /* requests */
    int n_unsent;           /* requests that gave it back, whose answers are still charged to it */
    uint64_t cut_us;        /* when it drains: the end of its time for that; 0: none */
    int64_t plan_bytes;     /* as srv_source.plan_bytes */
    struct srv_wait *awaits_end; /* an operator, or NULL */
};

/* The abilities of a model beside text, as bits. chat: its template, or NULL. */
enum { SRV_CAN_CALL = 1, SRV_CAN_INSERT = 2, SRV_CAN_THINK = 4 };
unsigned srv_abilities(const struct tools_style *style, const struct tok_chat *chat,
                       const struct tok_fim *fim);

/* The memory and time of a model next to others; zeros: as configured. */
struct srv_share {
    int64_t memory_bytes, answer_bytes;
};

struct srv_model_params {
    const struct srv_config *config; /* borrowed while the model lives */
    const char *dir;
    const char *draft_dir, *draft_name; /* of the draft model and as it was named; NULL: none */
    struct srv_list names;              /* at least one; copied */
    int entry;                          /* the memory of requests is in the plan of entry 0 */
    struct srv_share share;
    bool is_demo;
    struct eng_cores *cores;     /* borrowed while the model lives, */
    struct srv_kv_bans *kv_bans; /* as this; or NULL */

    /* Next to a model that works; see eng_params. */
    bool in_background, beside_others;
    const atomic_bool *stop;
    void (*on_self_test)(void *ctx);
    void *on_self_test_ctx;
};

/*
 * Loads a model: the engine on its threads, tokenizer and chat template on one more. Returns 0 and
 * *ret, owned (srv_model_close), or an enum eng_error with a sentence in err.
 */
int srv_model_open(struct srv_model **ret, const struct srv_model_params *params, char *err,
                   size_t errlen);

/* Makes a name of what a flag, a file or a directory spells: bytes that are not UTF-8 become '?',
 * since answers and metrics are text. */
void srv_name_mend(char *text);

/*
 * The names of one model, mended; a repeated one is dropped with a warning. items: with its texts
 * one block, which ends with NULL and is the caller's (free); NULL when out of memory.
 */
struct srv_list srv_names_copy(const struct srv_list *from);

/* The most tokens of a text that is answered: of a prompt, or where the model makes no tokens of a
 * text to be read. */
int64_t srv_model_longest(const struct srv_model *model);

/* Closes everything but the struct itself, which is the caller's then (free). */
void srv_model_empty(struct srv_model *model);
/* Closes everything; all references must be released. NULL is fine. */
void srv_model_close(struct srv_model *model);

/* For code, libraries, and stacks of threads that do not belong to an engine. */
#define SRV_PROGRAM_BYTES ((int64_t)10 << 20)

/*
 * Model, compute options and memory budgets for one sequence at a time. The queue, answers and the
 * prefix cache have the engine's defaults; the caller changes them if needed.
 */
struct eng_params srv_engine_params(const struct srv_config *config);

/* Makes the memory plan of srv_model_open from headers; memory_bytes: another limit than the
 * configured one, or 0. Returns 0 or an enum eng_error. */
int srv_model_plan(struct eng_memory *ret, const struct srv_model_params *params,
                   int64_t memory_bytes, char *err, size_t errlen);

/* Bytes of the plan of an entry that the process needs once, whatever is loaded: for the program
 * and for requests. They are in the plan of entry 0. */
int64_t srv_process_bytes(const struct srv_config *c, int entry);

/* Bytes that a plan takes, without those that it leaves free. */
int64_t srv_plan_bytes(const struct eng_memory *m);

/*
 * Tries the texts of a model: the template renders a turn, the tokenizer makes ids of it that the
 * model knows. Returns 0, or -1 with a sentence in err.
 */
int srv_model_try_text(const struct srv_model *model, char *err, size_t errlen);

/*
 * A digest of the names, sizes, inodes and times of the files of a model's directory, or of the
 * GGUF files of its set, and of its draft model's (or NULL): if it is the same, they are the same.
 * Returns 0 or -1.
 */
int srv_model_source(const char *dir, const char *draft_dir, uint8_t ret[32]);

/* The contents of a GGUF file or set: "llama, Q4_1 (210 matrices), Q8_0 (1)". Returns buf. */
const char *srv_gguf_types(const char *path, char *buf, size_t size);

/*
 * The first ids, at most `max`, of the text on which weights of four bits are calibrated (see
 * eng_params.calibration); returns their number. chat may be NULL. Any thread.
 */
int srv_calibration_ids(const struct tok *tok, const struct tok_chat *chat, int32_t *ret_ids,
                        int max);
