/* SPDX-License-Identifier: MIT */
/*
 * The known name most like a mistyped one, for "did you mean". It speaks only when the two are
 * near: a third of the typed characters may differ, three at most; an exchange of two neighbours
 * counts once (optimal string alignment). Pure; any thread.
 */
#pragma once

#include <stddef.h>

struct srv_nearest {
    const char *name; /* the nearest name offered so far, or NULL; borrowed, not NUL-terminated */
    size_t name_len;
    const char *typed;
    size_t typed_len;
    int edits; /* those of `name`, or one more than is near */
};

/* Borrows typed for as long as names are offered. */
void srv_nearest_init(struct srv_nearest *n, const char *typed, size_t typed_len);

/* Keeps the name if it is nearer than those before. Borrows it. */
void srv_nearest_offer(struct srv_nearest *n, const char *name, size_t name_len);
