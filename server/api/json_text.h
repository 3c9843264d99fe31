/* SPDX-License-Identifier: MIT */
/*
 * Reads the text of a JSON body if the parsed tree is not enough: jansson refuses integers beyond
 * 64 bits, although they are valid JSON, and a number in its tree has lost its digits.
 *
 * JSON that a request passes through (messages, template variables, later schemas) is taken from
 * the body by its span, so its integers may have any size.
 *
 * Threads: pure; each call works on its caller's data.
 */
#ifndef HEARTH_SERVER_API_JSON_TEXT_H
#define HEARTH_SERVER_API_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A part of a text; borrowed from it, not NUL-terminated. */
struct srv_span {
    const char *text;
    size_t len;
};

/*
 * Returns true if the text holds an integer that no int64_t holds. The text need not be valid; what
 * is not a JSON integer is not looked at.
 */
bool srv_json_has_huge_integer(const char *text, size_t len);

/*
 * Overwrites each such integer with a real number of the same length (blanks fill it up) near its
 * value, beyond the range of int64_t too. A text that was not valid JSON does not become valid. The
 * text must be NUL-terminated.
 */
void srv_json_round_huge_integers(char *text, size_t len);

/*
 * Finds the value of a member in the text of an object. The text must be valid JSON (params_parse
 * has accepted it). Returns false if the object has no such member, or when out of memory.
 */
bool srv_json_member(const char *object, size_t len, const char *key, struct srv_span *ret);

#endif
