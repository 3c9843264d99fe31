/* SPDX-License-Identifier: MIT */
/*
 * A request's body: its text, read once into a jansson tree, and where in the text each object and
 * array of the tree stands. Who needs the spelling of numbers or the order of keys takes that part
 * of the text and reads it once more: a template its messages, a grammar its schema.
 *
 * An integer beyond 64 bits is a real in the tree.
 *
 * Threads: const after srv_body_read.
 */
#pragma once

#include <stddef.h>

#include <jansson.h>

#include "server/http/param_error.h"

/* Values of one body, unless its route takes more. */
enum { PARAM_MAX_VALUES = 200000 };

/* A part of a body's text; borrowed from it, not NUL-terminated. */
struct srv_span {
    const char *text;
    size_t len;
};

struct srv_body {
    const char *text; /* borrowed */
    size_t len;
    json_t *root;              /* an object, owned; NULL: not read, or refused */
    struct body_place *places; /* [n_places], by value; owned */
    size_t n_places, cap;
};

/*
 * Reads a text, which must be NUL-terminated. It may hold at most max_values values and nest at
 * most 160 deep, so that the tree is cheap whatever the sender wrote. Duplicate keys, invalid UTF-8
 * and trailing bytes are errors. Returns 0, or -1 after param_fail; srv_body_finish is due in both
 * cases.
 */
int srv_body_read(struct srv_body *body, const char *text, size_t len, size_t max_values);

/* The body of a request: the one that has been read already, which is the caller's then; or as
 * srv_body_read. */
int srv_body_take(struct srv_body *body, struct srv_facts *facts, size_t max_values);

/* A zeroed one is fine. */
void srv_body_finish(struct srv_body *body);

/* The text of an object or array of the tree, of true, false or null; of other values, and of those
 * that are not in the tree, text is NULL. */
struct srv_span srv_body_span(const struct srv_body *body, const json_t *value);

/*
 * The JSON text of a list. Of a list of the body, or of its elements that are, the body's own text;
 * the rest is written anew. body: NULL: all of it.
 * Returns owned text, or NULL when out of memory.
 */
char *srv_body_list_text(const struct srv_body *body, const json_t *list);

/*
 * Memory of jansson, which leaves out what it cannot append: whoever builds a tree asks once, when
 * it is complete. Any thread; each asks for itself.
 */

/* Sets jansson's allocator. To be called once, before the first use of jansson. */
void srv_json_watch_memory(void);

/* Returns true if an allocation of jansson's has failed on this thread since the last call. */
bool srv_json_ran_out(void);
