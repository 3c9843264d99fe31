/* SPDX-License-Identifier: MIT */
/*
 * Messages from a terminal: lines by the editor or, without it, as the terminal gives them;
 * messages of several lines; the place of the history.
 *
 * Threads: one owner.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "base/buf.h"
#include "server/cli/line_edit.h"

enum { INPUT_MAX_BYTES = 4 << 20 }; /* of a message */

struct input {
    struct line_edit *edit; /* NULL: plain lines */
    char path[PATH_MAX];    /* of the history; "": none is kept */
    struct buf plain;       /* read and not taken yet */
    bool at_end;
};

/* words: see line_edit_create. Returns 0, or -1 with a sentence in err; then only the history is
 * missing. */
int input_init(struct input *in, const char *const *words, bool keep_history, char *err,
               size_t errlen);
void input_finish(struct input *in);

/* A whole message; *ret is owned (free). See line_edit_read. */
enum line_end input_message(struct input *in, char **ret, int *ret_signal);
