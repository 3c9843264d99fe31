/* SPDX-License-Identifier: MIT */
/*
 * Character classes of Python's str. Pure functions of one code point, from utf8proc's tables and
 * the few lists utf8proc does not have.
 */
#ifndef HEARTH_TOKENIZER_TEMPLATE_CHAR_CLASS_H
#define HEARTH_TOKENIZER_TEMPLATE_CHAR_CLASS_H

#include <stdbool.h>
#include <stdint.h>

bool jinja_cp_space(int32_t cp);
bool jinja_cp_alpha(int32_t cp);
bool jinja_cp_lower(int32_t cp);
bool jinja_cp_upper(int32_t cp);
bool jinja_cp_title(int32_t cp);
bool jinja_cp_printable(int32_t cp);
bool jinja_cp_ident_start(int32_t cp);
bool jinja_cp_ident(int32_t cp);
/* True if case mapping looks through it (for the final sigma). */
bool jinja_cp_case_ignorable(int32_t cp);

/* True if its upper and its title case may be several characters. */
bool jinja_cp_long_upper(int32_t cp);

#endif
