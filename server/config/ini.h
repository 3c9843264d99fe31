/* SPDX-License-Identifier: MIT */
/*
 * Reader of ini text: sections in brackets, `key = value`, comments from # or ; at the start of a
 * line, values optionally in double or single quotes. No continuation lines, no escapes, no length
 * limit but the text's own; a comment after a value must follow a quoted value. NUL bytes are
 * refused.
 */
#pragma once

#include <stddef.h>

/* One setting. section is "" before the first heading. All strings are borrowed for the call.
 * Returns 0 to go on; otherwise err has been filled and reading stops. */
typedef int srv_ini_setting(void *ctx, int line, const char *section, const char *key,
                            const char *value, char *err, size_t errlen);

/* Reads text[0..len), calling `setting` for each. Returns 0, or -1 with a sentence in err that
 * begins with the name and the line ("hearth.ini:3: ..."). */
int srv_ini_parse(const char *name, const char *text, size_t len, srv_ini_setting *setting,
                  void *ctx, char *err, size_t errlen);
