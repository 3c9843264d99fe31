/* SPDX-License-Identifier: MIT */
/*
 * A Jinja interpreter, equal to what transformers renders chat templates with: jinja2's immutable
 * sandbox with trim_blocks, lstrip_blocks, loop controls, generation blocks, its own tojson,
 * raise_exception and strftime_now, and no autoescape. Parts left out and why, and what bounds a
 * render: docs/internals/templates.md.
 *
 * A parsed template is immutable: any number of threads may render it, each in a run of its own.
 * The files are layers; each rests on those below it (tests/check_tree.py):
 *
 *   template                                         the door
 *   eval, exec                                       running; an expression may call a macro
 *   lexer, ast, parse_expr, parser, scope            syntax
 *   library, attributes, operators, format, methods, filters, filters_text, is_tests, globals
 *   print, json, text_ops                            output
 *   str, value, undefined, number, dict, iterate, order
 *                                                    text with provenance, values
 *   run                                              memory, budgets, errors
 */
#pragma once

#include "tokenizer/template/str.h"

struct tm;
struct jinja_template;

/*
 * Parses a template. An error leaves a sentence with the line in err. Returns owned:
 * jinja_template_close, which takes NULL.
 */
int jinja_template_open(struct jinja_template **ret, const char *source, size_t len, char *err,
                        size_t errlen);
void jinja_template_close(struct jinja_template *t);

/* Borrowed, NUL-terminated, as given to open. */
const char *jinja_template_source(const struct jinja_template *t);

/*
 * Renders inside a run (see jinja_guard). `context` holds the template's variables and gets the
 * global functions added where it has none of their names; `now` is the clock. The text is the
 * run's. Fails with JINJA_ERAISE when the template calls raise_exception.
 */
const struct jinja_str *jinja_template_render(struct jinja_run *r, const struct jinja_template *t,
                                              struct jinja_dict *context, const struct tm *now);
