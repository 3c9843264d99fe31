/* SPDX-License-Identifier: MIT */
/*
 * What the dialects share in writing an answer. Everything appends to a caller's buffer or stream.
 *
 * Threads: the text worker that holds the request.
 */
#ifndef HEARTH_SERVER_API_OPENAI_JSON_H
#define HEARTH_SERVER_API_OPENAI_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "server/api/generation.h"

/* "usage" object of the OpenAI dialects. */
void srv_gen_write_usage(const struct srv_gen *g, struct buf *b);

/* The member "timings" in the spirit of llama-server, where the request asks for it. */
void srv_gen_add_timings(const struct srv_gen *g, struct buf *b);

/* Shown choices of a prompt in order of rank: candidate numbers (best_of picks the likeliest). */
void srv_gen_pick(const struct srv_gen *g, const struct gen_prompt *p, int *ret_candidates);

/* Writes one SSE event: data: <json>, with an event name where not NULL. Takes the buffer's
 * contents and clears it. */
void srv_gen_event(struct srv_gen *g, const char *name, struct buf *json);

/* data: [DONE] */
void srv_gen_done_event(struct srv_gen *g);

/* The OpenAI dialects' error event followed by [DONE]: a format's stream_error. */
void srv_gen_error_event(struct srv_gen *g, enum srv_error kind, const char *message);

/*
 * Ends an OpenAI dialect's chunk after the choices in b, sends it and finishes b. If usage was asked
 * for it is null, or with continuous_usage_stats that of one choice after n_tokens of its tokens.
 */
void srv_gen_end_chunk(struct srv_gen *g, struct buf *b, const struct gen_prompt *p,
                       int64_t n_tokens);

/* The same for a chunk without choices that reports the progress in llama-server's shape. */
void srv_gen_end_progress_chunk(struct srv_gen *g, struct buf *b,
                                const struct gen_progress *progress);

/* Appends a comma and the member "prompt_progress". */
void srv_gen_add_progress(struct buf *b, const struct gen_progress *progress);

/* The same for the last chunk, with the usage and timings that were asked for. */
void srv_gen_end_last_chunk(struct srv_gen *g, struct buf *b);

/* Answers {"input_tokens": n} with `members` in front, each with its comma, and ends the request. */
void srv_gen_reply_count(struct srv_gen *g, const char *members);

/* JSON arrays of ids: tokens [from, to) of a choice; a prompt. */
void srv_gen_write_ids(struct buf *b, const struct gen_choice *c, int64_t from, int64_t to);
void srv_gen_write_prompt_ids(struct buf *b, const struct gen_prompt *p);

/* A token as the legacy arrays show it: its text, or bytes:\xNN where that is no UTF-8 alone. */
void srv_gen_write_token(const struct srv_gen *g, struct buf *b, int32_t id);

/* "token": text, "bytes": [..] as chat shows it. */
void srv_gen_write_token_bytes(const struct srv_gen *g, struct buf *b, int32_t id);

/* Code points of valid UTF-8. */
size_t srv_gen_characters(const char *text, size_t len);
/* Code points in the first `bytes` bytes of a choice's text; quick where they only grow. */
int64_t srv_gen_characters_before(struct gen_choice *c, size_t bytes);

/* Tokens of a choice whose log-probabilities are shown: those that a stop string has swallowed whole
 * are not. */
int64_t srv_gen_shown_tokens(const struct gen_choice *c);

/* ---- whole answers, in pieces -------------------------------------------------------------- */

/* How a dialect writes what lies around and in its choices. */
struct gen_writer {
    void (*head)(struct srv_gen *g, struct buf *b);
    /* The next part of the choice or of the end, of some ten kilobytes at most where it may be long;
     * returns true if that was the last. at->part and at->at begin at 0 and are the function's. */
    bool (*choice)(struct srv_gen *g, struct buf *b, struct gen_prompt *p, struct gen_choice *c,
                   struct gen_cursor *at);
    bool (*tail)(struct srv_gen *g, struct buf *b, struct gen_cursor *at);
};

/* A format's `whole`: head, all shown choices with commas between, tail. */
bool srv_gen_write_piece(struct srv_gen *g, const struct gen_writer *w, struct gen_cursor *at,
                         struct buf *b);

/* The next part of a text inside JSON quotes; returns true, and sets *at to 0, after the last. */
bool srv_gen_write_text_part(struct buf *b, const char *text, size_t len, int64_t *at);

/*
 * The next part of vLLM's prompt_logprobs: null for the first token, then for each a map
 * id -> {logprob, rank, decoded_token}. Returns true, and sets *at to 0, after the last.
 */
bool srv_gen_write_prompt_logprobs_part(const struct srv_gen *g, struct buf *b,
                                        const struct gen_prompt *p, int64_t *at);

#endif
