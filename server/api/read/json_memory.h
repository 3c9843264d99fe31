/* SPDX-License-Identifier: MIT */
/*
 * Memory for jansson when there is none left. jansson reports failed allocations as bad syntax,
 * drops what it cannot append, and reads past a token that its lexer could not extend, so a parse
 * must never see NULL. It gets a reserve instead: address space whose pages are touched only when
 * malloc fails. A tree that took from the reserve must be released, and its sender gets an error.
 *
 * The size of the reserve is measured for jansson 2.14; a unit test fails with another version.
 *
 * Threads: any; each has its own reserve.
 */
#ifndef HEARTH_SERVER_API_READ_JSON_MEMORY_H
#define HEARTH_SERVER_API_READ_JSON_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

/* Sets jansson's allocator. To be called once, before the first use of jansson. */
void srv_json_watch_memory(void);

/* Returns true if an allocation of jansson's has failed on this thread since the last call. */
bool srv_json_ran_out(void);

/*
 * Parses a text of at most n_values values: no duplicate keys, any Unicode in strings. Returns a
 * new reference, or NULL: with *ret_no_memory if memory ran out, else with the fault in *where.
 */
json_t *srv_json_load(const char *text, size_t len, size_t n_values, json_error_t *where,
                      bool *ret_no_memory);

#endif
