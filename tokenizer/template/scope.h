/* SPDX-License-Identifier: MIT */
/*
 * Names of a parsed template to slots.
 */
#ifndef HEARTH_TOKENIZER_TEMPLATE_SCOPE_H
#define HEARTH_TOKENIZER_TEMPLATE_SCOPE_H

#include "tokenizer/template/ast.h"

/* Resolves every name, filter and test; fails on what the reference refuses at this point. */
void jinja_resolve_names(struct jinja_run *r, struct jinja_tree *tree);

#endif
