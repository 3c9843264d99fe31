/* SPDX-License-Identifier: MIT */
/*
 * The guides of one request: its constraint and its tools compiled, and one state per choice that
 * the engine asks which ids may come next.
 *
 *   text worker     ask, open, release
 *   compile thread  makes the grammar, lets the request's jobs go on
 *   engine threads  mask, take: on the states, one thread at a time per choice
 *
 * Lives in the request's memory, zeroed at first.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/api/read/guide_fields.h"
#include "server/grammars/compile_queue.h"
#include "server/grammars/guide.h"
#include "tokenizer/tools/tools.h"

struct srv_config;
struct srv_gen_params;
struct srv_jobs;
struct srv_metrics;
struct srv_model;
struct srv_request;
struct srv_tools;

struct srv_guide {
    struct guide_ask ask;
    const struct srv_model *served;
    struct srv_metrics *metrics;
    struct srv_jobs *jobs;    /* of the request; go on once the grammar is there */
    struct compile_wait wait; /* for the grammar, and what it borrows: */
    struct tools_request request;
    struct grammar_tools asked; /* request and content */
    struct gram_part content;
    uint64_t asked_us;
    size_t state_bytes;   /* of one choice */
    enum eng_finish late; /* the reason if it comes too late */
    struct gram *gram;    /* owned; NULL: the answers are free, or it is being compiled */
    struct grammar_rules rules;
    struct grammar_closed closed;  /* of all choices */
    bool closes;                   /* answers are closed before their tokens run out */
    const struct srv_tools *tools; /* borrowed; NULL: the endpoint knows none */
    bool has_parts; /* the grammar is one of reasoning, content and calls: see tools_compile */
    struct grammar_guide_tools parts;
    /* States for as many prompts as can run at once. */
    int n_slots, n_choices;
    int *prompt_of;                 /* [n_slots]: the prompt that has the slot, -1: none yet */
    char *memory;                   /* [n_slots][n_choices] states */
    struct grammar_choice *choices; /* [n_slots][n_choices] */
    struct eng_guide *guides;       /* [n_slots][n_choices] */
};

/* Answers are closed before their tokens run out: those of JSON, and of calls only the one of a
 * function that the request names, since another would be carried out with what closes it. */
bool srv_guide_closes(const struct srv_guide *guide, const struct srv_config *config);

/* Asks for the grammar of what is wanted (ask.param must be set) and of the tools. Returns 0 if it
 * is there, 1 if srv_jobs_go_on will be called for `jobs` when it is or cannot be, -1 after
 * param_fail. */
int srv_guide_ask(struct srv_guide *guide, struct srv_request *req, struct srv_jobs *jobs,
                  const struct srv_gen_params *params);

/*
 * With the grammar that was asked for: allocates the states, and names relaxed keywords in
 * x-schema-relaxed. n_prompts prompts with n_choices each, whose answers have max_tokens at most.
 * Returns 0, or -1 after param_fail.
 */
int srv_guide_open(struct srv_guide *guide, struct srv_request *req,
                   const struct srv_gen_params *params, int64_t max_tokens, int n_prompts,
                   int n_choices);

/*
 * Puts the states of a prompt, each of whose choices may have so many tokens, at the beginning and
 * returns its guides [n_choices]. Only after srv_guide_open. is_done tells if the job of a prompt
 * has ended: its states are then taken over.
 */
const struct eng_guide *srv_guide_begin(struct srv_guide *guide, int prompt, int64_t tokens,
                                        bool (*is_done)(const void *ctx, int prompt),
                                        const void *ctx);

/* After the last job has ended. */
void srv_guide_release(struct srv_guide *guide);
