/* SPDX-License-Identifier: MIT */
/*
 * Values as text: Python's str() and repr(), json.dumps, and numbers.
 */
#pragma once

#include "tokenizer/template/str.h"

/* str(v). */
const struct jinja_str *jinja_to_str(struct jinja_run *r, struct jinja_value v);
/* repr(v). */
const struct jinja_str *jinja_repr(struct jinja_run *r, struct jinja_value v);
/* Appends str(v). */
void jinja_print(struct jinja_sb *sb, struct jinja_value v);

/* As repr() has it: the fewest digits that read back the same. */
enum { JINJA_FLOAT_BYTES = 64 };
void jinja_float_repr(struct jinja_run *r, double d, char buf[JINJA_FLOAT_BYTES]);

/* json.dumps options. */
struct jinja_json_style {
    bool ensure_ascii;
    bool sort_keys;
    const struct jinja_str *indent; /* of one level, or NULL: on one line */
    const struct jinja_str *item_sep;
    const struct jinja_str *key_sep;
};
struct jinja_value jinja_json_dumps(struct jinja_run *r, struct jinja_value v,
                                    const struct jinja_json_style *style);
