/* SPDX-License-Identifier: MIT */
/*
 * One choice of an answer: the engine's tokens are logged and become text, the text parts (content,
 * reasoning, calls of tools), stop strings end it, and how much of it may be sent is known.
 *
 * The text of all parts is one, in the order in which they came; markers around them are not in it.
 * Stop strings are looked for in content alone.
 *
 * A choice's text depends on its records alone, never on how wakes cut them: tokens are decoded one
 * by one, stop strings matched byte by byte, and everything after the token that ended the choice
 * is thrown away, however late the engine hears of it. No HTTP, no JSON and no call into the
 * engine: what the caller must stop is returned.
 *
 * Threads: the text worker that holds the request, except that the engine thread appends to `log`
 * and sets `finish`.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "server/bounds.h"
#include "tokenizer/tools/tools.h"

/* ---- the log --------------------------------------------------------------------------------- */

/*
 * The tokens of one choice, or of one prompt, on their way from the engine to the text worker. A
 * log is sized at admission for all tokens that may come, so the engine never waits for a client. A
 * record is written once and then published by an atomic count: one writer (the engine's thread),
 * one reader, no lock.
 */

/* A token as the engine reported it. */
struct gen_record {
    int32_t id;
    float logprob;
    int16_t n_top;
    int16_t predicted; /* as in eng_event */
};

struct gen_log {
    struct gen_record *records; /* [capacity] */
    struct eng_logprob *tops;   /* [capacity][top_width], or NULL */
    int64_t capacity;
    int top_width;          /* entries per row of tops; 0: no tops */
    atomic_llong n_written; /* published by the engine thread */
    int64_t n_read;         /* used by the text worker alone */
};

/* Bytes of a log of `capacity` tokens, a multiple of 16. No overflow below 2^40 tokens. */
int64_t choice_log_bytes(int64_t capacity, int64_t n_top);

/* Lays a log out in the zeroed, 16-byte aligned memory at *at, which it borrows, and moves *at
 * behind it. n_top <= 0: no likeliest tokens. No capacity: no log, and no bytes of *at. */
void choice_log_init(struct gen_log *log, int64_t capacity, int64_t n_top, char **at);

/* Engine thread: adds the event's token; there must be room. */
void choice_log_append(struct gen_log *log, const struct eng_event *ev);

/* The likeliest tokens of record i; NULL if none were asked for. */
static inline const struct eng_logprob *gen_log_top(const struct gen_log *log, int64_t i)
{
    return log->tops ? log->tops + i * log->top_width : NULL;
}

/* ---- stop strings ---------------------------------------------------------------------------- */

/*
 * Text of one choice: stop strings are found, and text that may still become one is held back.
 * Pieces of valid UTF-8 in, pieces of valid UTF-8 out.
 *
 * Bytes are looked at one by one, so the outcome does not depend on how the text was cut into
 * pieces: the match that completes first wins, among several completing on one byte the longest.
 * Matching advances one failure-function automaton (Knuth, Morris, Pratt 1977) per stop string:
 * linear.
 */

/* The stop strings of a request with their failure functions: made once, shared by its choices. */
struct textout_stops {
    int n;
    struct {
        const char *text; /* borrowed */
        size_t len;
        unsigned short *failure; /* [len] */
    } stop[SRV_MAX_STOPS];
};

/* texts are borrowed until finish. Empty strings are not allowed. Returns -1 when out of memory. */
int textout_stops_init(struct textout_stops *s, const char *const *texts, const size_t *lens,
                       int n);
void textout_stops_finish(struct textout_stops *s);

struct textout {
    const struct textout_stops *stops;
    bool include_stop;                     /* the stop string belongs to the text */
    unsigned short matched[SRV_MAX_STOPS]; /* length of the prefix each automaton has matched */
    struct buf text;                       /* everything so far, with the part held back */
    size_t n_released;                     /* bytes of text that may be sent */
    int stop_index;                        /* the stop string that was found, or -1 */
    /* Lines after the first end the text if they begin with fewer blanks and tabs than these. */
    int64_t min_indent, n_indent; /* of the line that begins; -1: it has begun, or is the first */
    bool has_lines, dedented;
};

/* Borrows stops. max_bytes bounds the text: buf_finish is due. */
void textout_init(struct textout *t, const struct textout_stops *stops, bool include_stop,
                  size_t max_bytes);

/*
 * Takes a piece of text. If `armed` is false it is not searched for stop strings. Returns true if
 * it completes a stop string, or begins a line that is not indented enough: then the text ends
 * before it (or with the stop string), all of the text is released, and no more may be pushed.
 */
bool textout_push(struct textout *t, const char *piece, size_t len, bool armed);

/* Ends the text of a part: releases what was held back, forgets beginnings of stop strings. */
void textout_flush(struct textout *t);

/* ---- a choice -------------------------------------------------------------------------------- */

struct gen_prompt;
struct tok;
struct tok_decoder;

enum {
    CHOICE_TEXT_MAX_BYTES = 64 << 20,
    CHOICE_MAX_PARTS = 2 * TOOLS_MAX_CALLS + 2, /* reasoning, calls, content around them */
};

enum choice_kind { CHOICE_CONTENT, CHOICE_REASONING, CHOICE_CALL };

/* A part of the text: it ends where the next one begins, the last one with the text. */
struct choice_part {
    enum choice_kind kind;
    uint32_t from;
    /* of a call: */
    bool ended, complete; /* nothing more comes; its arguments are whole */
    int call;             /* counts from 0 */
    char name[TOOLS_MAX_NAME + 1], id[TOOLS_MAX_NAME + 1]; /* "": the model wrote no id */
};

/* The rules that all choices of a request follow. Borrows everything. */
struct choice_rules {
    const struct tok *tok;
    struct textout_stops stops;
    const int32_t *ids[2]; /* ids that end a choice: the request's, the model's */
    int n_ids[2];
    int64_t min_tokens; /* stop strings are not looked for in the tokens before this count */
    int64_t min_indent; /* see struct textout */
    bool include_stop, skip_special;
    struct tools_reader_params reader; /* tells parts apart; set NULL: all is content */
    const char *marker_text[TOOLS_N_MARKERS];
};

struct gen_choice {
    int index;                       /* the index in the answer: prompt x n + choice */
    const struct gen_prompt *prompt; /* that it answers; the caller's */
    struct gen_log log;
    atomic_int finish; /* enum eng_finish, 0 while running; written after the last record */
    int32_t stop_id;   /* the id that ended it, or -1 */
    struct textout text;
    int64_t text_charged;        /* bytes of text.text that are charged to the budget for answers */
    struct tok_decoder *decoder; /* NULL once the choice has ended */
    struct choice_part *parts;   /* [n_parts] */
    int n_parts, n_calls;
    struct choice_part only;     /* the part of a text that is not told apart */
    struct tools_reader *reader; /* in the choice's memory, or NULL */
    const struct choice_rules *rules;
    bool armed;              /* the current token comes after min_tokens */
    uint32_t *raw;           /* [capacity] with a reader: bytes fed to it before each token */
    uint32_t n_fed, n_given; /* bytes fed to it; the end of the last of them that came out */
    int64_t n_placed;        /* tokens whose offset is known: all without a reader */
    int64_t n_reasoning;     /* tokens up to the end of the reasoning block */
    int64_t n_accepted, n_rejected; /* tokens that the prediction had right, and wrong */
    uint32_t *offsets;              /* [capacity]: bytes of text before each token's piece */
    int64_t n_tokens;   /* tokens that count: up to the one that completed a stop string */
    int64_t n_showable; /* tokens whose whole text may be sent, or is complete */
    /* Tokens that may have events of their own. A last token without text may hold the first bytes
     * of a character, so it waits for the next token or the end. */
    int64_t n_eventable;
    int64_t n_shown;                  /* tokens whose log-probabilities were sent; the caller's */
    size_t n_sent;                    /* bytes of text sent */
    int n_parts_begun, n_parts_ended; /* parts introduced and closed in a stream */
    size_t counted_bytes; /* bytes of the text whose characters are counted, see openai_json.h */
    int64_t counted_characters;
    bool introduced;           /* its first event has been sent; the format's */
    bool ended;                /* finish_reason is decided */
    bool closed;               /* the finish reason has been sent */
    const char *finish_reason; /* "stop", "tool_calls" or "length" */
    const char *stop_string;   /* the one found, or NULL; borrowed from the rules */
    double sum_logprob;
};

/* Bytes of a choice's memory for `capacity` tokens, a multiple of 16. */
int64_t choice_text_bytes(const struct choice_rules *rules, int64_t capacity, int64_t n_top);

/*
 * Readies a zeroed choice of at most `capacity` tokens after a prompt. Lays its arrays out at *at
 * as choice_log_init does; borrows the rules. Returns 0 or -1 when out of memory;
 * choice_text_finish is due in both cases.
 */
int choice_text_init(struct gen_choice *c, const struct choice_rules *rules, const int32_t *prompt,
                     int64_t n_prompt, int64_t capacity, int64_t n_top, char **at);

/* Frees what the choice owns; a zeroed choice owns nothing. */
void choice_text_finish(struct gen_choice *c);

/*
 * Reads the new records, and sets the finish reason if the engine has ended the choice. Returns
 * true if a stop string was found: the engine can then stop the choice. A cancelled choice gets no
 * finish reason. To be called before the caller reads how much may be sent.
 */
bool choice_text_advance(struct gen_choice *c, const struct choice_rules *rules);

/* Ends a choice that has not ended, as one that has reached its length. */
void choice_text_cut(struct gen_choice *c);

/* Where part i ends in the text so far. */
static inline size_t choice_part_end(const struct gen_choice *c, int i)
{
    return i + 1 < c->n_parts ? c->parts[i + 1].from : c->text.text.len;
}

/* The part of the content that the token gave bytes to, also as part of a character; -1: none. */
int choice_token_part(const struct gen_choice *c, int64_t i);

/* The next part of a kind, from number `from` on; -1: there is none. */
int choice_next_part(const struct gen_choice *c, enum choice_kind kind, int from);
