/* SPDX-License-Identifier: MIT */
/*
 * Dicts, and the equality and hash of values. Equality and hash recurse into containers, with a
 * limit.
 */
#pragma once

#include "tokenizer/template/value.h"

struct jinja_dict *jinja_dict_new(struct jinja_run *r);
struct jinja_value jinja_from_dict(struct jinja_dict *d);
/* An equal key keeps its place and gets the new value. Fails for unhashable keys. */
void jinja_dict_put(struct jinja_run *r, struct jinja_dict *d, struct jinja_value key,
                    struct jinja_value value);
void jinja_dict_put_name(struct jinja_run *r, struct jinja_dict *d, const char *name,
                         struct jinja_value value);
void jinja_dict_add_all(struct jinja_run *r, struct jinja_dict *to, const struct jinja_dict *from);
/* The value of a key, or NULL. Fails for unhashable keys. */
struct jinja_value *jinja_dict_get(struct jinja_run *r, const struct jinja_dict *d,
                                   struct jinja_value key);
struct jinja_value *jinja_dict_get_name(struct jinja_run *r, const struct jinja_dict *d,
                                        const char *name);

/* a == b */
bool jinja_equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b);
/* The same for elements of containers that are `depth` deep already. */
bool jinja_equal_at(struct jinja_run *r, struct jinja_value a, struct jinja_value b, int depth);
uint64_t jinja_hash(struct jinja_run *r, struct jinja_value v);
bool jinja_is_hashable(struct jinja_run *r, struct jinja_value v);
