/* SPDX-License-Identifier: MIT */
/*
 * Text of one choice on its way out: stop strings are found, and whatever may still become one is
 * held back. Pure: no I/O, no tokens; pieces of valid UTF-8 in, pieces of valid UTF-8 out.
 *
 * Bytes are looked at one by one, so the outcome does not depend on how the text was cut into
 * pieces: the match that completes first wins, among several completing on one byte the longest.
 * Matching advances one failure-function automaton (Knuth, Morris, Pratt 1977) per stop
 * string: linear.
 *
 * Threads: unsafe; one owner at a time.
 */
#ifndef HEARTH_SERVER_API_STOP_STRINGS_H
#define HEARTH_SERVER_API_STOP_STRINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { TEXTOUT_MAX_STOPS = 64, TEXTOUT_MAX_STOP_BYTES = 1024 };

/* The stop strings of a request with their failure functions: made once, shared by its choices. */
struct textout_stops {
    int n;
    struct {
        const char *text; /* borrowed */
        size_t len;
        unsigned short *failure; /* [len] */
    } stop[TEXTOUT_MAX_STOPS];
};

/* texts are borrowed until finish. Empty strings are not allowed. Returns -1 when out of memory. */
int textout_stops_init(struct textout_stops *s, const char *const *texts, const size_t *lens,
                       int n);
void textout_stops_finish(struct textout_stops *s);

struct textout {
    const struct textout_stops *stops;
    bool include_stop;                         /* the stop string belongs to the text */
    unsigned short matched[TEXTOUT_MAX_STOPS]; /* length of the prefix each automaton has matched */
    struct buf text;                           /* everything so far, held-back tail included */
    size_t n_released;                         /* bytes of text that may be sent */
    int stop_index;                            /* the stop string that was found, or -1 */
};

/* Borrows stops. max_bytes bounds the text. */
void textout_init(struct textout *t, const struct textout_stops *stops, bool include_stop,
                  size_t max_bytes);
void textout_finish(struct textout *t);

/*
 * Takes a piece. `armed` false: it is not searched for stop strings. Returns true if a stop
 * string is complete: text ends before it (or with it), all of text is released, and no more may be
 * pushed.
 */
bool textout_push(struct textout *t, const char *piece, size_t len, bool armed);

/* No more is to come: what was held back is released. */
void textout_flush(struct textout *t);

#endif
