/* SPDX-License-Identifier: MIT */
/*
 * Text of strangers on a terminal. Control characters, which could change the terminal's state, and
 * those that reorder text are shown as `\x1b` or `\u202e` and never sent; words are wrapped to the
 * width. What is not a terminal gets the text as it is.
 *
 * Threads: one owner. The locale's LC_CTYPE must be a UTF-8 one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct screen {
    FILE *out;
    bool tty, moves, colours; /* moves: the terminal can move its cursor */
    int column, width;        /* width 0: nothing is wrapped */
    bool has_progress;
    char word[256]; /* the one being written, on this line, so that it can be moved to the next */
    size_t word_len;
    int word_width;
};

/* Looks at the terminal and its environment: TERM, NO_COLOR. Borrows out. */
void screen_init(struct screen *s, FILE *out);

/* Any bytes. Returns false if they cannot be written. */
bool screen_text(struct screen *s, const char *text, size_t len);

/* A line of ours with strangers' words in it, from the left margin. */
void screen_say(struct screen *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line that the next text or progress replaces; "" removes it. Terminals only. */
void screen_progress(struct screen *s, const char *text);

void screen_begin_answer(struct screen *s); /* in its colour */
void screen_end_answer(struct screen *s);   /* at the left margin */
