/* SPDX-License-Identifier: MIT */
/*
 * Writing that the dialects share. Everything appends to a caller's writer or stream.
 *
 * Threads: the text worker that holds the request.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json_writer.h"
#include "server/api/run/generation.h"

/* The members of usage that closed answers have. */
void srv_gen_write_closing(struct jw *w, const struct gen_totals *t);

/* The member "timings", similar to llama-server's, if the request asks for it: so far, or of the
 * whole answer at its end. */
void srv_gen_write_timings(const struct srv_gen *g, struct jw *w);

/* The member "usage" of the OpenAI dialects, and the timings. */
void srv_gen_write_usage(const struct srv_gen *g, struct jw *w);

/* The member "prompt_progress" in llama-server's shape. */
void srv_gen_write_progress(struct jw *w, const struct gen_progress *progress);

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

/* Sends a text and `end`; the stream ends where memory for it cannot be had. Takes the buffer. */
void srv_gen_send_text(struct srv_gen *g, struct buf *text, const char *end);

/* An event {"type": type, ...} with that name; srv_gen_close_event ends it. */
void srv_gen_begin_typed_event(struct gen_event *e, const char *type);

/* Closes the event's object and sends it. */
void srv_gen_close_event(struct srv_gen *g, struct gen_event *e);

/* ---- chunks: chat completions and completions ---------------------------------------------- */

/* Opens an answer's object up to its choices: a format's head. */
void srv_gen_open_answer(struct srv_gen *g, struct jw *w);

/* A chunk up to the members of its choice. */
void srv_gen_begin_chunk(struct srv_gen *g, struct gen_event *e, int choice_index);

/* Ends a chunk after its choice, and sends it. If usage was asked for it is null, or with
 * continuous_usage_stats that of one choice after n_tokens of its tokens. */
void srv_gen_end_chunk(struct srv_gen *g, struct gen_event *e, const struct gen_choice *c,
                       int64_t n_tokens);

/* The client's stop string that ended the choice, or NULL; it may hold NUL characters. */
const char *srv_gen_stop_string(const struct gen_choice *c, size_t *ret_len);

/* vLLM's member "stop_reason": that string, the client's stop id, or null. Left out unless the
 * request has stop strings or ids. */
void srv_gen_write_stop_reason(const struct srv_gen *g, struct jw *w, const struct gen_choice *c);

/* The same of a chunk whose choice is closed, for members behind it. */
void srv_gen_close_chunk(struct srv_gen *g, struct gen_event *e, const struct gen_prompt *p,
                         int64_t n_tokens);

/* A format's stream_progress: a chunk without choices. */
void srv_gen_progress_chunk(struct srv_gen *g, const struct gen_progress *progress);

/* A format's stream_error: the error object, and [DONE]. */
void srv_gen_error_chunk(struct srv_gen *g, enum srv_error kind, const char *message);

/* A format's stream_end: the usage and timings that were asked for, and [DONE]. */
void srv_gen_last_chunk(struct srv_gen *g);

/* ---- values -------------------------------------------------------------------------------- */

/* An array of the ids of tokens [from, to) of a choice. */
void srv_gen_write_ids(struct jw *w, const char *name, const struct gen_choice *c, int64_t from,
                       int64_t to);

/* Bytes [from, to) of a choice's text. */
void srv_gen_write_text(struct jw *w, const char *name, const struct gen_choice *c, size_t from,
                        size_t to);

/* Whether part i of it is shown: a stop string may have taken all text of the last one. */
bool srv_gen_is_shown(const struct gen_choice *c, int i);

/* Part i of it as a string. */
void srv_gen_write_part(struct jw *w, const char *name, const struct gen_choice *c, int i);

/* The id of a call; see srv_gen_call_id. */
void srv_gen_write_call_id(const struct srv_gen *g, struct jw *w, const char *name,
                           const struct gen_choice *c, const struct choice_part *call,
                           const char *prefix);

/* A token as the legacy arrays show it: its text, or bytes:\xNN if that is not UTF-8 alone. As a
 * value and as the name of a member. */
void srv_gen_write_token(const struct srv_gen *g, struct jw *w, const char *name, int32_t id);
void srv_gen_write_token_key(const struct srv_gen *g, struct jw *w, int32_t id);

/* The objects of tokens [from, to) with their log-probabilities as chat and Responses show them:
 * those that gave bytes to the content, or to that part of it (-1: any). */
void srv_gen_write_logprobs(const struct srv_gen *g, struct jw *w, const struct gen_choice *c,
                            int part, int64_t from, int64_t to);

/* Code points in the first `bytes` bytes of a choice's text. Fast if `bytes` grows from call to
 * call. */
int64_t srv_gen_characters_before(struct gen_choice *c, size_t bytes);

/* The next piece of all parts of a kind, joined, inside a string; returns true, and sets *at to 0,
 * after the last. */
bool srv_gen_write_kind_part(struct jw *w, const struct gen_choice *c, enum choice_kind kind,
                             int64_t *at);

/* The next tokens of n to write, from *at to *ret_to; moves *at there. Returns true, and sets *at
 * to 0, for the last. */
bool srv_gen_next_tokens(int64_t n, int64_t *at, int64_t *ret_to);

/* The next part of vLLM's "prompt_logprobs": null for the first token, then for each a map id ->
 * {logprob, rank, decoded_token}. Returns true, and sets *at to 0, after the last. */
bool srv_gen_write_prompt_logprobs_part(const struct srv_gen *g, struct jw *w,
                                        const struct gen_prompt *p, int64_t *at);

enum { SRV_CALL_ID_CHARS = 24, SRV_CALL_ID_MAX = 40 };

/*
 * The id of a call: the prefix and 24 letters or digits; for templates that want short ids, nine
 * without a prefix, which may be the model's own. Ids of the request are not given out again.
 */
void srv_gen_call_id(const struct srv_gen *g, const struct gen_choice *c,
                     const struct choice_part *call, const char *prefix, char ret[SRV_CALL_ID_MAX]);

/* Prompt tokens that were computed up to the last breakpoint; *ret_hour: of these, up to the last
 * with a ttl of an hour. */
int64_t srv_cache_created(const struct srv_gen *g, int64_t n_cached, int64_t *ret_hour);

/* Writes the members cache_report, if asked for, and dropped_input_items, if there are any. */
void srv_cache_write_report(const struct srv_gen *g, struct jw *w);
