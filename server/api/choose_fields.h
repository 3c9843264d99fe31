/* SPDX-License-Identifier: MIT */
/*
 * The body of /v1/choose: a prompt and the closed list of what may follow it, as ids.
 *
 * A text prompt is tokenized together with each choice. Scoring starts at the first id in which any
 * of them differs from the prompt's own ids, so that all choices are measured from the same place.
 * Behind a chat's generation prompt a choice is a text of its own.
 *
 * Threads: the text worker that holds the request. Everything lives as long as the request.
 */
#ifndef HEARTH_SERVER_API_CHOOSE_FIELDS_H
#define HEARTH_SERVER_API_CHOOSE_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/api/read/body.h"
#include "server/api/read/json_fields.h"
#include "server/api/run/generation.h"

enum { CHOOSE_MAX_CHOICES = 1000, CHOOSE_MAX_CHOICE_TOKENS = 256 };

struct choose_option {
    const char *text; /* as asked; NULL: ids were */
    size_t len;
    const int32_t *ids; /* [n_ids] what is scored, n_ids >= 1 */
    int n_ids;
};

struct choose_reading;

struct choose_body {
    const char *model;      /* to show */
    const int32_t *context; /* [n_context] in front of every choice, n_context >= 1 */
    int64_t n_context;
    struct choose_option *options; /* [n_options] */
    int n_options, n_all;          /* read so far, of so many */
    struct choose_reading *reading;
    bool ends;    /* the end of the answer is scored too */
    bool by_mean; /* probabilities are of the mean log-probability of the tokens */
    int64_t top;  /* how many are shown, best first; 0: all, in their order */
};

extern const struct param_field srv_fields_choose[];

/*
 * Reads the request's body up to its choices. The tree is to be finished by the caller, on failure
 * too, and borrowed from. Returns 0, or -1 with err, as all of these.
 */
int choose_body_open(struct choose_body *ret, struct srv_request *req, struct srv_body *tree,
                     struct param_error *err);

/* The same for a chat that has its prompt and asks for one of a list of texts. */
int choose_chat_open(struct choose_body *ret, const struct srv_gen *g, struct param_error *err);

/* Reads the next option; with the last one all are there and what is in front of them is set. */
int choose_option_read(struct choose_body *body, struct param_error *err);

#endif
