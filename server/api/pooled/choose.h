/* SPDX-License-Identifier: MIT */
/*
 * A chat whose answer is the likeliest of a list of choices, with the probabilities of all.
 *
 * Threads: the text worker that holds the request.
 */
#ifndef HEARTH_SERVER_API_POOLED_CHOOSE_H
#define HEARTH_SERVER_API_POOLED_CHOOSE_H

#include "server/api/run/generation.h"

/*
 * Takes the request over in place of srv_gen_start; the prompt is ready. Returns 0, or -1 with err:
 * srv_gen_release is due.
 */
int srv_choose_chat(struct srv_gen *g, struct param_error *err);

#endif
