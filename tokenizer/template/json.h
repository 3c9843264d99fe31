/* SPDX-License-Identifier: MIT */
/*
 * JSON text to values, as Python's json.loads reads it: integers of any size, floats, duplicate
 * keys (the last wins), NaN and Infinity. Refused besides what json.loads refuses: half surrogates,
 * which no UTF-8 text can hold, and nesting deeper than JINJA_MAX_VALUE_DEPTH.
 */
#pragma once

#include "tokenizer/template/value.h"

/* Every string and value gets this origin. `what` names the text in errors. */
struct jinja_value jinja_json_parse(struct jinja_run *r, const char *text, size_t len,
                                    uint8_t origin, const char *what);
