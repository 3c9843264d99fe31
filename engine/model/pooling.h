/* SPDX-License-Identifier: MIT */
/* How a directory wants its embeddings made: modules.json and the file of its pooling module. */
#ifndef HEARTH_ENGINE_MODEL_POOLING_H
#define HEARTH_ENGINE_MODEL_POOLING_H

#include "engine/model/problems.h"

/*
 * Reports everything but the mean over all tokens, perhaps scaled: another pooling, and modules
 * that change the vectors. A directory without these files declares nothing. Returns r->rc.
 */
int eng_pooling_check(const char *dir, struct eng_report *r);

#endif
