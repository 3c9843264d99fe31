/* SPDX-License-Identifier: MIT */
/*
 * Text out of HTML. Results are plain strings, also those of Markup.
 */
#ifndef HEARTH_TOKENIZER_TEMPLATE_HTML_H
#define HEARTH_TOKENIZER_TEMPLATE_HTML_H

#include "tokenizer/template/str.h"

/* Character references become the characters they name. */
struct jinja_value jinja_html_unescape(struct jinja_run *r, const struct jinja_str *s);
/* The same without tags and comments, and with single blanks between words. */
struct jinja_value jinja_html_striptags(struct jinja_run *r, const struct jinja_str *s);

#endif
