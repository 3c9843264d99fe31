/* SPDX-License-Identifier: MIT */
/* JSON files of a model directory as jansson trees of bounded size. Pure; any thread. */
#pragma once

#include <jansson.h>
#include <stddef.h>

/*
 * Parses a text without duplicate keys, which must be followed by a byte that is not part of a
 * number. `name` is for error messages; errors are enum eng_error. *ret is owned: json_decref.
 */
int eng_json_read(json_t **ret, const char *text, size_t len, const char *name, char *err,
                  size_t errlen);

/* The same of an object. */
int eng_json_parse(json_t **ret, const char *text, size_t len, const char *name, char *err,
                   size_t errlen);
