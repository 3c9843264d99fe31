/* SPDX-License-Identifier: MIT */
/*
 * The self-test at every start: the selected kernels multiply as the plain C ones do, and the
 * model's logits are finite. Takes a few milliseconds. Runs before the scheduler's thread exists.
 */
#pragma once

#include <stddef.h>

struct eng_model;
struct fwd;
struct kv_pages;

/* 0, or ENG_EFAILED and a sentence. */
int selftest_run(const struct eng_model *model, struct fwd *fwd, struct kv_pages *pages, char *err,
                 size_t errlen);
