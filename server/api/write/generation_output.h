/* SPDX-License-Identifier: MIT */
/*
 * The answer of a generation while it comes: text to the events or the answer of its format.
 *
 * Threads: text workers, never two at once for a request.
 */
#ifndef HEARTH_SERVER_API_WRITE_GENERATION_OUTPUT_H
#define HEARTH_SERVER_API_WRITE_GENERATION_OUTPUT_H

#include "server/api/run/generation.h"

extern const struct srv_gen_writer srv_gen_output;

#endif
