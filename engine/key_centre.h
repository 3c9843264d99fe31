/* SPDX-License-Identifier: MIT */
/*
 * The centre of a head's keys: subtracted from every key before it is stored as int8, so that the
 * largest of its numbers, and the error of all of them with it, is smaller. All scores of a row
 * lose the same product of query and centre, so no probability changes. (As SmoothK of Zhang et
 * al.: "SageAttention", 2024, but a constant: what is stored does not depend on the prompt.)
 *
 * It is a constant of the model and its numeric path, whatever the threads: the mean of the keys of
 * KEY_CENTRE_TOKENS fixed tokens without their rotation, rotated to each of KEY_CENTRE_POSITIONS
 * positions and averaged over these.
 *
 * Threads: the one that opens the engine.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eng_model;
struct fwd;
struct kv_layout;
struct kv_pages;

enum { KEY_CENTRE_TOKENS = 64, KEY_CENTRE_POSITIONS = 2048 };

/* Not if softmax is of more than the product of query and key. */
bool key_centre_helps(const struct eng_model *m, const struct kv_layout *l);

/* Floats of the centres: see kv_first_dim. */
size_t key_centre_floats(const struct kv_layout *l);

/*
 * Computes the tokens, in steps of at most max_rows, with nothing subtracted: `centre`, to which
 * the layouts of fwd and pages refer, is all zero until this sets it. ctx: of fwd. Nothing else
 * uses fwd or pages meanwhile. 0 or ENG_ENOMEM.
 */
int key_centre_fill(const struct eng_model *m, struct fwd *fwd, int max_rows, int64_t ctx,
                    struct kv_pages *pages, const struct kv_layout *l, float *centre, char *err,
                    size_t errlen);
