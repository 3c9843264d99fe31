/* SPDX-License-Identifier: MIT */
/*
 * Problems that the checks of a model directory find. Opening a model needs the first as one
 * sentence, inspection all of them, so checks report and continue if they can.
 *
 * One thread at a time.
 */
#pragma once

#include <stddef.h>

struct eng_report {
    char *err; /* receives the sentence of the first problem */
    size_t errlen;
    int rc; /* error code of the first problem; 0: none so far */
    int n_problems;
    void (*problem)(void *ctx, const char *sentence); /* NULL, or called for every problem */
    void *ctx;
};

/* Records a problem and returns rc, so that a check can return the call. */
int eng_report_problem(struct eng_report *r, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
