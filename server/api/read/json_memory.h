/* SPDX-License-Identifier: MIT */
/*
 * Whether memory ran out for jansson, which leaves out what it cannot append: whoever builds a tree
 * asks once, when it is complete.
 *
 * Threads: any; each asks for itself.
 */
#ifndef HEARTH_SERVER_API_READ_JSON_MEMORY_H
#define HEARTH_SERVER_API_READ_JSON_MEMORY_H

#include <stdbool.h>

/* Sets jansson's allocator. To be called once, before the first use of jansson. */
void srv_json_watch_memory(void);

/* Returns true if an allocation of jansson's has failed on this thread since the last call. */
bool srv_json_ran_out(void);

#endif
