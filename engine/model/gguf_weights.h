/* SPDX-License-Identifier: MIT */
/*
 * A model in a GGUF file, or in a set of them: translated into what the checks of a directory read,
 * the text of a config.json and tensors under the reference's names.
 *
 * As the reference's but for: rows of queries and keys that lie as RoPE's pairs in most families
 * (`pairs`); norms that already have the 1 added; A_log as -exp(A_log); convolutions without their
 * middle dimension; value heads of a delta net in turn over the key heads.
 */
#ifndef HEARTH_ENGINE_MODEL_GGUF_WEIGHTS_H
#define HEARTH_ENGINE_MODEL_GGUF_WEIGHTS_H

#include <stdbool.h>

#include "engine/model/problems.h"

struct buf;
struct eng_family;
struct eng_weights;
struct gguf;

enum { ENG_GGUF_NAME = 192 };

/* One of the format's architectures. */
struct eng_gguf {
    const char *name;         /* general.architecture, and the first part of its keys */
    const char *architecture; /* of config.json */
    bool pairs;               /* rows of q and k lie as dimensions 2i and 2i + 1 */
    bool keeps_window;        /* the reference's default counts if no key gives a window */
    int other_scale_layers;   /* a size of the family with a scale that is in no key; 0: none */
};

/* Appends the text of the config.json that says what the keys say. */
int eng_gguf_config(const struct eng_weights *w, struct buf *text, struct eng_report *r);

/* Whether the header of a file, the first one of a set or another, is of something that is read. */
int eng_gguf_check(const struct gguf *g, struct eng_report *r);

/* The file's name of a tensor of the reference, in buf; the same if the file would have none. */
const char *eng_gguf_file_name(const struct eng_weights *w, const char *name,
                               char buf[ENG_GGUF_NAME]);

#endif
