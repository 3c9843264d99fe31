/* SPDX-License-Identifier: MIT */
/*
 * Texts of requests that are answered with numbers: which prompt goes in front of them, how many
 * tokens they may have, and their ids as the prompts of pooled jobs.
 *
 * Threads: the text worker that holds the request.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "server/http/param_error.h"
#include "server/models/pairs.h"

struct srv_pooled;

enum {
    TEXTS_MAX_INPUTS = 2048,
    TEXTS_MAX_PAIRS = 1000, /* documents of a query */
    TEXTS_MAX_TOKENS = 300000,
    TEXTS_MAX_VALUES = 320000
};

enum texts_cut { TEXTS_REFUSE, TEXTS_KEEP_FIRST, TEXTS_KEEP_LAST };

/* The fields that choose the prompt and the length, in any dialect's spelling; JSON order is free,
 * all but one of the first six are NULL. */
struct texts_fields {
    const char *prompt_name, *input_type, *task, *instruction, *prompt, *prefix;
    const char *truncation_side;    /* left, right */
    json_t *truncate;               /* bool, or Cohere's NONE, START, END */
    int64_t truncate_prompt_tokens; /* 0: absent; -1: the model's own */
};

/* How each text of the request is made into ids. */
struct texts_rules {
    const char *prompt; /* in front of each text, never NULL */
    size_t prompt_len;
    int64_t n_unpooled; /* ids at the start that the model wants left out of means */
    int64_t max_tokens;
    enum texts_cut cut;
    char cut_inputs[1000]; /* indices, "3,17" */
    int n_cut;
    struct srv_pair_front front; /* of pairs; its ids are owned */
};

/* Functions on a request that has its dialect and fields; those that can fail return 0, or -1 after
 * param_fail. */

/* Sets the rules from the fields, the dialect and the model's files. A side of the search that the
 * model has no prompts for is noted as without effect. */
int texts_rules_set(struct srv_pooled *p);

/* Bounds what is tokenized together with the texts, n_bytes for all of them. */
int texts_check_joined(const struct srv_pooled *p, size_t n_bytes);

/* Opens the request for its `input`: a text, token ids, or an array of such inputs. */
int texts_open(struct srv_pooled *p, int width);

/* Adds input i. The last one's names the inputs that were cut in the header x-truncated-inputs. */
int texts_add(struct srv_pooled *p, int i);

/* Adds a query and its document in the same way; a query's text has the same address for each.
 * path: where the document is in the request. */
int texts_add_pair(struct srv_pooled *p, const struct srv_pair_text *pair, const char *path);
