/* SPDX-License-Identifier: MIT */
/*
 * Writing that the dialects share. Everything appends to a caller's writer or stream.
 *
 * Threads: the text worker that holds the request.
 */
#ifndef HEARTH_SERVER_API_OPENAI_JSON_H
#define HEARTH_SERVER_API_OPENAI_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json_writer.h"
#include "server/api/generation.h"

/* The member "timings" in the spirit of llama-server, if the request asks for it. */
void srv_gen_write_timings(const struct srv_gen *g, struct jw *w);

/* The member "usage" of the OpenAI dialects, and the timings. */
void srv_gen_write_usage(const struct srv_gen *g, struct jw *w);

/* The member "prompt_progress" in llama-server's shape. */
void srv_gen_write_progress(struct jw *w, const struct gen_progress *progress);

/* Shown choices of a prompt in order of rank: candidate numbers (best_of picks the likeliest). */
void srv_gen_pick(const struct srv_gen *g, const struct gen_prompt *p, int *ret_candidates);

/* ---- events -------------------------------------------------------------------------------- */

/* A server-sent event while its JSON is written. */
struct gen_event {
    struct buf text;
    struct jw w;
};

/* name NULL: without an event name. srv_gen_send_event ends it. */
void srv_gen_begin_event(struct gen_event *e, const char *name);

/* Writes the event to the stream, and frees it. */
void srv_gen_send_event(struct srv_gen *g, struct gen_event *e);

/* data: [DONE] */
void srv_gen_done_event(struct srv_gen *g);

/* The OpenAI dialects' error event followed by [DONE]: a format's stream_error. */
void srv_gen_error_event(struct srv_gen *g, enum srv_error kind, const char *message);

/*
 * Ends an OpenAI dialect's chunk after its choices, and sends it. If usage was asked for it is
 * null, or with continuous_usage_stats that of one choice after n_tokens of its tokens.
 */
void srv_gen_end_chunk(struct srv_gen *g, struct gen_event *e, const struct gen_prompt *p,
                       int64_t n_tokens);

/* The same for a chunk without choices that reports the progress. */
void srv_gen_end_progress_chunk(struct srv_gen *g, struct gen_event *e,
                                const struct gen_progress *progress);

/* The same for the last chunk, with the usage and timings that were asked for. */
void srv_gen_end_last_chunk(struct srv_gen *g, struct gen_event *e);

/* Answers {"object", "input_tokens"}, without object if that is NULL, and ends the request. */
void srv_gen_reply_count(struct srv_gen *g, const char *object);

/* ---- values -------------------------------------------------------------------------------- */

/* Arrays of ids: tokens [from, to) of a choice; a prompt. */
void srv_gen_write_ids(struct jw *w, const char *name, const struct gen_choice *c, int64_t from,
                       int64_t to);
void srv_gen_write_prompt_ids(struct jw *w, const char *name, const struct gen_prompt *p);

/* Bytes [from, to) of a choice's text. */
void srv_gen_write_text(struct jw *w, const char *name, const struct gen_choice *c, size_t from,
                        size_t to);

/* A token as the legacy arrays show it: its text, or bytes:\xNN if that is not UTF-8 alone. As a
 * value and as the name of a member. */
void srv_gen_write_token(const struct srv_gen *g, struct jw *w, const char *name, int32_t id);
void srv_gen_write_token_key(const struct srv_gen *g, struct jw *w, int32_t id);

/* The members "token" and "bytes" as chat shows them. */
void srv_gen_write_token_bytes(const struct srv_gen *g, struct jw *w, int32_t id);

/* Code points of valid UTF-8. */
size_t srv_gen_characters(const char *text, size_t len);
/* Code points in the first `bytes` bytes of a choice's text; quick where they only grow. */
int64_t srv_gen_characters_before(struct gen_choice *c, size_t bytes);

/* Tokens of a choice whose log-probabilities are shown: those that a stop string has swallowed
 * whole are not. */
int64_t srv_gen_shown_tokens(const struct gen_choice *c);

/* ---- whole answers, in pieces -------------------------------------------------------------- */

/* How a dialect writes its choices and what is around them. */
struct gen_writer {
    void (*head)(struct srv_gen *g, struct jw *w);
    /* The next part of the choice or of the end, of some ten kilobytes at most where it may be
     * long; returns true if that was the last. at->part and at->at begin at 0 and are the
     * function's. */
    bool (*choice)(struct srv_gen *g, struct jw *w, struct gen_prompt *p, struct gen_choice *c,
                   struct gen_cursor *at);
    bool (*tail)(struct srv_gen *g, struct jw *w, struct gen_cursor *at);
};

/* A format's `whole`: head, all shown choices, tail. */
bool srv_gen_write_piece(struct srv_gen *g, const struct gen_writer *writer, struct gen_cursor *at,
                         struct buf *b);

/* The next part of a text inside a string; returns true, and sets *at to 0, after the last. */
bool srv_gen_write_text_part(struct jw *w, const char *text, size_t len, int64_t *at);

/*
 * The next part of vLLM's "prompt_logprobs": null for the first token, then for each a map
 * id -> {logprob, rank, decoded_token}. Returns true, and sets *at to 0, after the last.
 */
bool srv_gen_write_prompt_logprobs_part(const struct srv_gen *g, struct jw *w,
                                        const struct gen_prompt *p, int64_t *at);

#endif
