/* SPDX-License-Identifier: MIT */
/*
 * A model in this process, for the subcommands that talk to it themselves: tokenizer, chat
 * template, engine, and the constraint that --json-schema, --regex or --grammar sets on its
 * answers.
 *
 * Threads: one owner at a time. local_run calls back on its caller's thread.
 *
 * Errors: 0 or -1 with one sentence in err.
 */
#ifndef HEARTH_SERVER_CLI_LOCAL_MODEL_H
#define HEARTH_SERVER_CLI_LOCAL_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/grammars/guide.h"

struct grammar_cache;
struct srv_config;
struct tok_ids;

/* Zero-initialise, open, then local_finish, also after a failure. Read-only for others. */
struct local_model {
    struct tok *tok;
    struct tok_chat *chat; /* NULL: not opened */
    struct eng *engine;
    struct tok_decoder *decoder;
    uint64_t *draft_ids;            /* of eng_load_drafts */
    struct grammar_cache *grammars; /* with a constraint: its vocabulary */
    struct gram *gram;
    struct grammar_rules rules;
    struct grammar_choice choice;
    void *state; /* of the guide, of the answer in progress */
};

/* The tokenizer of config->model, and its chat template if asked for. */
int local_open_text(struct local_model *m, const struct srv_config *config, bool with_chat,
                    char *err, size_t errlen);

/* The weights, and the constraint of the options. After local_open_text. */
int local_open_engine(struct local_model *m, const struct srv_config *config, char *err,
                      size_t errlen);

/* A zeroed structure is valid. */
void local_finish(struct local_model *m);

/* Appends the prompt of chat messages (a JSON array) to *ids. No text in them becomes a control
 * token. */
int local_encode_chat(const struct local_model *m, const char *messages, struct tok_ids *ids,
                      char *err, size_t errlen);

/*
 * The sampling chain of the options; without one the model's value if --generation-config asks for
 * it, else this temperature and neutral values. Seed 0 if none was given.
 */
int local_sampling(const struct srv_config *config, double temperature, struct eng_sampling *ret,
                   char *err, size_t errlen);

/* One answer. All borrowed during local_run. */
struct local_job {
    const struct tok_ids *prompt;
    int64_t max_tokens; /* cut to the context */
    const struct eng_sampling *sampling;
    const atomic_bool *stop; /* looked at several times a second; NULL: never stops */
    /* Whole characters; false ends the answer with an error. */
    bool (*on_text)(void *ctx, const char *text, size_t len);
    void (*on_progress)(void *ctx, int64_t n_done, int64_t n_prompt); /* of the prefill; or NULL */
    void *ctx;
};

struct local_result {
    enum eng_finish finish; /* never ENG_FINISH_ERROR: that is a failure */
    struct eng_usage usage;
};

int local_run(struct local_model *m, const struct local_job *job, struct local_result *ret,
              char *err, size_t errlen);

#endif
