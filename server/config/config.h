/* SPDX-License-Identifier: MIT */
/*
 * The configuration: one const table of options (options.c) drives the command line, the
 * HEARTH_* environment, the ini file, --help, --print-config and range errors.
 *
 * Precedence: flag > environment > file (--config FILE) > default. An ini key is the long flag's
 * name without dashes; the environment's name is HEARTH_ and the name in capitals with underscores.
 *
 * Threads: filled before any other thread exists, const afterwards.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "engine/sampling_params.h"

enum srv_command {
    SRV_CMD_SERVE,
    SRV_CMD_GENERATE,
    SRV_CMD_BENCH,
    SRV_CMD_BATCH,
    SRV_CMD_INSPECT,
    SRV_CMD_HEALTHCHECK,
    SRV_CMD_PULL,
    SRV_CMD_LIST,
    SRV_CMD_CHAT,
    SRV_CMD_RM,
    SRV_CMD_KV,
    SRV_CMD_EMBED,
    SRV_CMD_RERANK,
    SRV_CMD_COUNT
};

/* The value of a numeric option that was not given, for options where that matters. */
enum {
    SRV_UNSET = -1,
    SRV_MAX_MODELS = 32,
    /* A file of options is small; anything larger is the wrong file. */
    SRV_CONFIG_FILE_MAX_BYTES = 1 << 20,
};

/* Several values of one option. */
struct srv_list {
    const char **items;
    int n;
};

/* Strings are owned by the structure; NULL if an option without a default was not given. */
struct srv_config {
    enum srv_command command;

    /* this program */
    bool help, version, check_config, print_config;
    const char *config_file;
    const char *user;         /* check_config: whose view */
    struct srv_list warnings; /* sentences about settings that have no effect */

    /* model */
    const char *entry;       /* NAME of --model NAME=DIR or [model NAME]; NULL: none */
    const char *model;       /* as given; the subcommands see the resolved directory */
    const char *model_shown; /* as given, or NULL for the demo; set by main */
    bool model_is_demo;      /* set by main */
    const char *draft_model, *draft_shown; /* the same of a draft model; NULL: none */
    struct srv_list alias;
    const char *tokenizer; /* as given; the subcommands see the resolved directory */
    bool text_only;        /* pull_run: what --tokenizer needs of the model; set by main */
    const char *chat_template_file;
    const char *rerank_tokens, *rerank_template, *fim_marks;
    const char *chat_template_kwargs; /* a JSON object */
    const char *tool_format;
    bool generation_config;
    bool pin;
    const char *load; /* "auto", "start", "demand" */
    int share;
    struct srv_list lora; /* NAME=DIR */
    const char *lora_dir; /* NULL: none */
    int64_t lora_memory_bytes;
    int lora_max_rank;

    /* several models */
    const char *models_dir, *default_model; /* NULL: none */
    int models_max, load_wait_ms, idle_unload_s;
    bool models_autoload;

    /* the Hugging Face hub */
    bool pull;           /* fetch the model first */
    const char *hf_repo; /* sets model and pull */
    const char *cache_dir;
    bool dry_run, force;                      /* pull */
    bool yes;                                 /* rm */
    const char *kv_action, *older, *key_file; /* kv */
    bool all;
    int debug_retry_ms;

    /* compute */
    int threads;
    const char *numerics, *gemm, *kernels, *weight_coding, *kv_dtype, *speculate;
    const char *schema_objects, *json_whitespace;
    int parallel, chunk, max_choices;
    int64_t ctx_size, memory_bytes, kv_memory_bytes, answer_memory_bytes, grammar_cache_mb;
    const char *kv_disk; /* NULL: none */
    int64_t kv_disk_bytes;
    int kv_disk_age; /* days */
    bool prefix_cache, memory_lock;

    /* listening */
    const char *host, *unix_socket, *metrics_host;
    int port, metrics_port;
    const char *tls_cert_file, *tls_key_file;
    int max_connections;

    /* keys and exposure */
    const char *api_key, *api_key_file, *operator_key, *operator_key_file;
    bool allow_public_without_key;
    struct srv_list allowed_hosts, cors_origins;

    /* requests */
    int max_queue;
    int64_t max_queue_tokens, max_body_bytes;
    int queue_timeout_ms, request_timeout_ms;
    bool strict_params, strict_model, accept_any_model, keep_metadata_lines;
    bool close_answers;
    int schema_max_tokens;
    const char *priority_policy, *reasoning_format, *reasoning_field;
    int text_workers;

    /* the wire */
    int header_timeout_ms, body_timeout_ms, idle_timeout_ms, send_timeout_ms, heartbeat_ms;

    /* operation */
    int drain_timeout_ms, drain_delay_ms, watchdog_ms;
    const char *batch_dir; /* NULL: none */
    int64_t batch_bytes;
    const char *log_format, *log_level;
    bool page, log_prompts, vllm_metrics, debug_hooks, debug_hold_load;

    /* swapping the model */
    const char *swap;
    int64_t swap_memory_bytes;
    int swap_drain_ms;

    /* sampling defaults of requests and of generate; SRV_UNSET if not given */
#define SRV_AS_float double
#define SRV_AS_int int
#define SRV_MEMBER(name, type, ...) SRV_AS_##type name;
    ENG_SAMPLING_OPTIONS(SRV_MEMBER)
#undef SRV_MEMBER
#undef SRV_AS_int
#undef SRV_AS_float
    int max_tokens;
    int64_t seed;

    /* generate, bench and the filters */
    const char *prompt, *json_schema, *regex, *grammar;
    bool chat, json;
    struct srv_list prefill, batch, context; /* numbers, read by bench.c */
    int decode, reps;
    const char *url;                                            /* healthcheck */
    const char *batch_in, *output, *errors, *order, *erase_key; /* batch: files, or "-" */
    bool resume;
    const char *npy, *prompt_name, *query; /* embed, rerank */
    bool text, truncate;
    int dimensions;

    /* chat, and the first of batch */
    const char *chat_url, *system;
    bool history, timings;

    /* serve: the configurations of further models, which differ in [model] and [compute] alone */
    struct srv_config *more;
    int n_more;
    bool is_further;          /* this is one of them */
    struct srv_config *found; /* with models_dir: of each model in it, but for model and entry */
};

/*
 * Reads the whole configuration. env NULL: the process's own environment (getenv). On failure err
 * holds one sentence that names the option, its source, the value and the valid ones.
 * Returns 0 or a negative number; finish *ret in both cases.
 */
int srv_config_load(struct srv_config *ret, int argc, char **argv,
                    const char *(*env)(const char *name), char *err, size_t errlen);

/* Adds a warning for each HEARTH_* variable of an environment ("NAME=value", ended by NULL) that is
 * not an option, except those of container links. Returns 0, or -1 when out of memory. */
int srv_config_note_variables(struct srv_config *c, char *const *variables);

/* Adds a warning. Returns 0, or -1 when out of memory. */
int srv_config_warn(struct srv_config *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns true if a container manager sets such a variable for a service: *_PORT=tcp://... */
bool srv_config_is_service_link(const char *name, const char *value);

/* Sets a numeric option of a group, by its key or alias, as a text from the user. Returns 0, or -1
 * with a sentence in err, *c as it was. Unlike the rest of this header also later, on a copy. */
int srv_config_set(struct srv_config *c, const char *group, const char *name, const char *value,
                   char *err, size_t errlen);

/* Frees everything that load allocated. A zeroed structure is valid. */
void srv_config_finish(struct srv_config *c);

/* Replaces a string option's value, by field; the structure owns the copy. Returns 0, or -1 if
 * out of memory. */
int srv_config_replace(const char **field, const char *value);

/* --help of a subcommand, from the table. */
void srv_config_print_help(FILE *out, enum srv_command command);

/* --print-config: the effective values as an ini file; secrets are not shown. Returns 0, or -1 with
 * a sentence in err for a text that an ini file cannot hold. */
int srv_config_print(FILE *out, const struct srv_config *c, char *err, size_t errlen);

/* A subcommand, in a few words; examples, and the shape of the lines that it reads. */
struct srv_command_text {
    const char *name, *summary, *examples;
};
extern const struct srv_command_text srv_commands[SRV_CMD_COUNT];
