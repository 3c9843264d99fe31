/* SPDX-License-Identifier: MIT */
/*
 * The order of values, membership, sorting.
 */
#ifndef HEARTH_TOKENIZER_TEMPLATE_ORDER_H
#define HEARTH_TOKENIZER_TEMPLATE_ORDER_H

#include "tokenizer/template/value.h"

/* a < b; `op` names the operator in the error. */
bool jinja_less(struct jinja_run *r, struct jinja_value a, struct jinja_value b, const char *op);
/* item in container */
bool jinja_contains(struct jinja_run *r, struct jinja_value container, struct jinja_value item);

/* Orders `keys` ascending (Python's sorted: stable, by < alone) and permutes `items` alike. */
void jinja_sort(struct jinja_run *r, struct jinja_value *keys, struct jinja_value *items, size_t n);

#endif
