/* SPDX-License-Identifier: MIT */
/*
 * All tensors of a model: those of model.safetensors, of the shards that
 * model.safetensors.index.json names, or of a GGUF file or set of files.
 *
 * Opened and checked by one thread; afterwards tensors may be read from any.
 */
#ifndef HEARTH_ENGINE_MODEL_WEIGHTS_H
#define HEARTH_ENGINE_MODEL_WEIGHTS_H

#include <stddef.h>

#include "engine/model/problems.h"
#include "engine/model/safetensors.h"

/* An index: which file holds which tensor. Zero-initialise; strings are borrowed from `root`. */
struct eng_index {
    void *root;         /* the JSON tree */
    const char **files; /* each once, in order of first mention */
    size_t n_files;
};

/* Reads the text of an index; every file name must stay inside the directory. */
int eng_index_parse(struct eng_index *index, const char *text, size_t len, char *err,
                    size_t errlen);
/* The file that holds a tensor, or NULL. */
const char *eng_index_find(const struct eng_index *index, const char *tensor);
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
void eng_weights_close(struct eng_weights *w);

/*
 * For eng_weights_open: the GGUF file of that path, and the others of its set, into w->shards and
 * w->gguf (gguf.c). Every problem goes to the report.
 */
int eng_gguf_open(struct eng_weights *w, const char *path, struct eng_report *r);

/*
 * The tensor of that name, or NULL. LayerNorm.weight and LayerNorm.bias may be called
 * LayerNorm.gamma and LayerNorm.beta, as in checkpoints of the first BERT.
 */
struct eng_tensor *eng_weights_find(const struct eng_weights *w, const char *name);

#endif
