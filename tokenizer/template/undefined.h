/* SPDX-License-Identifier: MIT */
/*
 * Undefined values: the result of a name, attribute or item that does not exist. They print as
 * nothing, and fail in most other uses with a sentence about where they came from.
 */
#ifndef HEARTH_TOKENIZER_TEMPLATE_UNDEFINED_H
#define HEARTH_TOKENIZER_TEMPLATE_UNDEFINED_H

#include "tokenizer/template/value.h"

/* Undefined by variable name (borrowed for the run), by attribute of an object, or with a sentence
 * of its own (borrowed for the run). */
struct jinja_value jinja_undefined_name(struct jinja_run *r, const char *name);
struct jinja_value jinja_undefined_attr(struct jinja_run *r, struct jinja_value owner,
                                        const struct jinja_str *name);
struct jinja_value jinja_undefined_hint(struct jinja_run *r, const char *hint);
_Noreturn void jinja_fail_undefined(struct jinja_run *r, struct jinja_value v);

#endif
