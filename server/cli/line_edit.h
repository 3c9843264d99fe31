/* SPDX-License-Identifier: MIT */
/*
 * Line editing on a terminal by libedit: the only part of the program that knows it. The library is
 * opened when the first editor is; a build without it has line_edit_none.c.
 *
 * Threads: one owner. Signals come through interrupt.h.
 */
#pragma once

struct line_edit;

enum line_end {
    LINE_OK,
    LINE_EOF,
    LINE_CLEARED, /* by SIGINT; it was not empty */
    LINE_SIGNAL,  /* SIGINT, SIGTERM or SIGHUP came; *ret_signal has it */
    LINE_NOMEM,
};

enum {
    LINE_HISTORY_ENTRIES = 1000,
    LINE_PASTE_MAX_BYTES = 1 << 20, /* a longer paste is refused with a beep */
};

/*
 * words: completed by Tab at the start of a line; NULL-terminated, borrowed. Returns owned, or
 * NULL: libedit is not installed or not in this build.
 */
struct line_edit *line_edit_create(const char *const *words);
void line_edit_destroy(struct line_edit *e);

/* Makes the entries of a file those of the history. */
void line_edit_load(struct line_edit *e, const char *path);

/* An entry of the history, the latest last, and of the file, unless path is NULL. That is replaced
 * under flock, so that two programs lose nothing of each other's. */
void line_edit_add(struct line_edit *e, const char *text, const char *path);

/* One line, which has more than one only if they were pasted together. *ret is owned (free). */
enum line_end line_edit_read(struct line_edit *e, const char *prompt, char **ret, int *ret_signal);
