/* SPDX-License-Identifier: MIT */
/*
 * One choice of an answer: the records of its log become text, stop strings end it, and how much of
 * it may be sent is known.
 *
 * A choice's text depends on its records alone, never on how wakes cut them: tokens are decoded one
 * by one, stop strings matched byte by byte, and everything after the token that ended the choice is
 * thrown away, however late the engine hears of it. No HTTP, no JSON and no call into the engine:
 * what the caller must stop is returned.
 *
 * Threads: the text worker that holds the request, except that the engine thread appends to `log`
 * and sets `finish`.
 */
#ifndef HEARTH_SERVER_API_CHOICE_TEXT_H
#define HEARTH_SERVER_API_CHOICE_TEXT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/api/choice_log.h"
#include "server/api/stop_strings.h"

struct tok;
struct tok_decoder;

enum { CHOICE_TEXT_MAX_BYTES = 64 << 20 };

/* The rules that all choices of a request follow. Borrows everything. */
struct choice_rules {
    const struct tok *tok;
    struct textout_stops stops;
    const int32_t *ids[2]; /* that end a choice: those of the request, those of the model */
    int n_ids[2];
    int64_t min_tokens; /* before as many, stop strings are not looked for */
    bool include_stop, skip_special;
};

struct gen_choice {
    int index; /* as shown: prompt x n + choice */
    struct gen_log log;
    atomic_int finish; /* enum eng_finish, 0 while running; written after the last record */
    int32_t stop_id;   /* the id that ended it, or -1 */
    struct textout text;
    int64_t text_charged;        /* bytes of text.text that the budget of answers knows of */
    struct tok_decoder *decoder; /* NULL once the choice has ended */
    uint32_t *offsets;           /* [capacity]: bytes of text before each token's piece */
    int64_t n_tokens;            /* that count: up to the one that completed a stop */
    int64_t n_showable; /* that lie wholly in text that may be sent, or will never be longer */
    /* Those that may have events of their own: a last token without text may hold the first bytes of
     * a character, so it waits for the next token or the end. */
    int64_t n_eventable;
    int64_t n_shown;      /* whose log-probabilities have been sent: the caller's */
    size_t n_sent;        /* bytes of text sent */
    size_t counted_bytes; /* of the text, and the characters in them: see openai_json.h */
    int64_t counted_characters;
    bool introduced;           /* its first event has been sent (the format's) */
    bool ended;                /* finish_reason is decided */
    bool closed;               /* and sent */
    const char *finish_reason; /* "stop" or "length" */
    const char *stop_string;   /* the one found, or NULL; borrowed from the rules */
    double sum_logprob;
};

/* Bytes of a choice's memory for `capacity` tokens, a multiple of 16. */
int64_t choice_text_bytes(int64_t capacity, int64_t n_top);

/*
 * Readies a zeroed choice of at most `capacity` tokens after a prompt. Lays its arrays out at *at as
 * choice_log_init does; borrows the rules. Returns 0 or -1 when out of memory; choice_text_finish
 * is due in both cases.
 */
int choice_text_init(struct gen_choice *c, const struct choice_rules *rules, const int32_t *prompt,
                     int64_t n_prompt, int64_t capacity, int64_t n_top, char **at);

/* A zeroed choice is fine. */
void choice_text_finish(struct gen_choice *c);

/*
 * Reads the new records, and decides the choice's end if the engine has ended it. Returns true if a
 * stop string was found, so that the engine need not go on with this choice. A choice that was
 * cancelled has no end of its own. Call it before each look at what may be sent.
 */
bool choice_text_advance(struct gen_choice *c, const struct choice_rules *rules);

#endif
