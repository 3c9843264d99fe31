/* SPDX-License-Identifier: MIT */
/*
 * Reads how a directory describes the vectors of its model: modules.json and the configuration of
 * each module it names, as sentence-transformers writes them.
 */
#pragma once

#include <stdbool.h>

#include "engine/model/model.h"
#include "engine/model/problems.h"

enum { ENG_FOLDER_BYTES = 256 };

/* A Dense module: the product that is one of the heads' ops, before its weights are found. */
struct eng_dense {
    char folder[ENG_FOLDER_BYTES]; /* within the model's */
    int n_in, n_out;               /* 0: the op is not a Dense module */
    bool bias;
};

/*
 * Reads the heads of a model whose hidden states are d_model wide; dense[i] describes ops[i].
 * Without modules.json: that of 1_Pooling if it is there, else the mean. What is not known is a
 * problem that names it. The bytes read are added to `hash`, two numbers. Returns 0 if there are no
 * problems.
 */
int eng_heads_read(struct eng_heads *ret, struct eng_dense dense[ENG_MAX_HEAD_OPS], int d_model,
                   const char *dir, uint64_t hash[2], struct eng_report *r);
