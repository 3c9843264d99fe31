/* SPDX-License-Identifier: MIT */
/*
 * What is tried at every start: that the kernels chosen multiply as the plain C ones do, and that
 * the model gives finite logits. Takes a few milliseconds. Scheduler's side, before its thread
 * exists.
 */
#ifndef HEARTH_ENGINE_SELFTEST_H
#define HEARTH_ENGINE_SELFTEST_H

#include <stddef.h>

struct eng_model;
struct fwd;
struct kv_pages;

/* 0, or ENG_EFAILED and a sentence. */
int selftest_run(const struct eng_model *model, struct fwd *fwd, struct kv_pages *pages, char *err,
                 size_t errlen);

#endif
