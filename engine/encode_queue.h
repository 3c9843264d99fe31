/* SPDX-License-Identifier: MIT */
/*
 * The scheduler of an engine whose model is an encoder: whole texts go into a step, in the order of
 * the queue, until its rows are used up; each leaves with its row of numbers. No slots, no cache
 * and no tokens that follow, so nothing of batch.h.
 *
 * Every text is a job with want_pooled. What texts share a step with it changes no bit.
 *
 * A step's rows are bounded by time while another engine of the same cores waits. A short text of
 * a more urgent priority does not wait for the end of a step: the step rests between two phases
 * while a smaller one, with scratch of its own, reads the urgent texts.
 *
 * Threads: as scheduler.h. Events come on the thread of this scheduler.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/batch_model.h"
#include "engine/inbox.h"

struct encode_queue;

/* Of a step of urgent texts, while another step rests. */
enum { ENCODE_URGENT_ROWS = 128, ENCODE_URGENT_TEXTS = 8 };

/* Everything is borrowed. */
struct encode_params {
    struct batch_model model;
    struct batch_model urgent; /* the same with other scratch; never resumed */
    uint8_t *const *pages;     /* [encode_pages(max_rows, max_texts)]: pages of one layer */
    int max_rows, max_texts;   /* of a step */
    int64_t ctx;               /* longest text; at most max_rows */
    struct inbox_params in;    /* the engine's part, but no limits */
    struct cores_member *member;
};

/* Pages that the texts of a step may take, and of an urgent one. */
int encode_pages(int max_rows, int max_texts);

/* Starts the thread. Returns owned, or ENG_ENOMEM. */
int encode_create(struct encode_queue **ret, const struct encode_params *params, char *err,
                  size_t errlen);
/* Ends waiting jobs as cancelled, joins. NULL is fine. */
void encode_destroy(struct encode_queue *q);

/* To submit, watch, drain, pause and stop. Borrowed. */
struct inbox *encode_inbox(struct encode_queue *q);
