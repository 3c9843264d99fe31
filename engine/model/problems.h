/* SPDX-License-Identifier: MIT */
/*
 * Where the checks of a model directory put what they find. Opening a model wants the first problem
 * as one sentence; inspecting one wants them all, so checks report and go on where they can.
 *
 * One thread at a time.
 */
#ifndef HEARTH_ENGINE_MODEL_PROBLEMS_H
#define HEARTH_ENGINE_MODEL_PROBLEMS_H

#include <stddef.h>

struct eng_report {
    char *err; /* receives the sentence of the first problem */
    size_t errlen;
    int rc; /* error code of the first problem; 0: none so far */
    int n_problems;
    void (*problem)(void *ctx, const char *sentence); /* NULL, or: also given every problem */
    void *ctx;
};

/* Notes a problem and returns rc, so that a check can end with it. */
int eng_report_problem(struct eng_report *r, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
