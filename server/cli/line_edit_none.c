/* SPDX-License-Identifier: MIT */
/* Replaces line_edit.c in a build without libedit: lines are read as the terminal edits them. */
#include <stddef.h>

#include "server/cli/line_edit.h"

struct line_edit *line_edit_create(const char *const *words)
{
    return NULL;
}

void line_edit_destroy(struct line_edit *e)
{
}

void line_edit_load(struct line_edit *e, const char *path)
{
}

void line_edit_add(struct line_edit *e, const char *text, const char *path)
{
}

enum line_end line_edit_read(struct line_edit *e, const char *prompt, char **ret, int *ret_signal)
{
    return LINE_EOF;
}
