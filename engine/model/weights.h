/* SPDX-License-Identifier: MIT */
/*
 * All tensors of a model: those of model.safetensors, of the shards that
 * model.safetensors.index.json names, or of a GGUF file or set of files.
 *
 * Opened and checked by one thread; afterwards tensors may be read from any.
 */
#pragma once

#include <stddef.h>

#include "engine/model/problems.h"
#include "engine/model/safetensors.h"

struct buf;
struct gguf;

/* An index: which file holds which tensor. Zero-initialise; strings are borrowed from `root`. */
struct eng_index {
    void *root;         /* the JSON tree */
    const char **files; /* each once, in order of first mention */
    size_t n_files;
};

/* Reads an index, text[len] is NUL; every file name must stay inside the directory. */
int eng_index_parse(struct eng_index *index, const char *text, size_t len, char *err,
                    size_t errlen);
void eng_index_finish(struct eng_index *index);

/* All tensors of a model. */
struct eng_weights {
    struct eng_shard *shards;
    size_t n_shards;
    struct eng_tensor **by_name; /* [n_tensors], sorted by name */
    size_t n_tensors;
    const struct eng_gguf *gguf; /* of a GGUF file: its architecture; NULL: safetensors */
};

/*
 * Opens every file of the model in dir, or the GGUF file of that path; problems go to the report.
 * Returns 0 only if there are none; *ret_weights always holds what could be read. Returns owned:
 * eng_weights_close.
 */
int eng_weights_open(struct eng_weights **ret_weights, const char *dir, struct eng_report *r);
/* The same of one safetensors file, whatever its names. */
int eng_weights_open_file(struct eng_weights **ret_weights, const char *dir, const char *name,
                          struct eng_report *r);
void eng_weights_close(struct eng_weights *w);

/*
 * The tensor of that name, or NULL. LayerNorm.weight and LayerNorm.bias may be called
 * LayerNorm.gamma and LayerNorm.beta, as in checkpoints of the first BERT.
 */
struct eng_tensor *eng_weights_find(const struct eng_weights *w, const char *name);

/* ---- GGUF files ---------------------------------------------------------------------------- */

/*
 * A model in a GGUF file, or in a set of them: translated into what the checks of a directory read,
 * the text of a config.json and tensors under the reference's names.
 *
 * As the reference's but for: rows of queries and keys that lie as RoPE's pairs in most families
 * (`pairs`); norms that already have the 1 added; A_log as -exp(A_log); convolutions without their
 * middle dimension; value heads of a delta net in turn over the key heads; the matrices of a
 * layer's experts in one tensor, [n_experts, rows, inputs].
 */
enum { ENG_GGUF_NAME = 192 };

/* One of the format's architectures. */
struct eng_gguf {
    const char *name;         /* general.architecture, and the first part of its keys */
    const char *architecture; /* of config.json */
    bool pairs;               /* rows of q and k lie as dimensions 2i and 2i + 1 */
    bool keeps_window;        /* the reference's default counts if no key gives a window */
    bool renorm;              /* the weights of a token's experts are divided by their sum */
    int other_scale_layers;   /* a size of the family with a scale that is in no key; 0: none */
    bool full_heads;          /* Gemma 4: layers without a window have heads of their own */
};

/* Appends the text of the config.json that says what the keys say. */
int eng_gguf_config(const struct eng_weights *w, struct buf *text, struct eng_report *r);

/* Whether the header of a file, the first one of a set or another, is of something that is read. */
int eng_gguf_check(const struct gguf *g, struct eng_report *r);

/* The file's name of a tensor of the reference, in buf; the same if the file would have none. */
const char *eng_gguf_file_name(const struct eng_weights *w, const char *name,
                               char buf[ENG_GGUF_NAME]);

/*
 * For eng_weights_open: the GGUF file of that path, and the others of its set, into w->shards and
 * w->gguf. Every problem goes to the report.
 */
int eng_gguf_open(struct eng_weights *w, const char *path, struct eng_report *r);
