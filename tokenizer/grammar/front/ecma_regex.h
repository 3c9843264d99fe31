/* SPDX-License-Identifier: MIT */
/*
 * ECMA-262 regular expressions with Unicode, as `pattern` and `regex` have them, to expressions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct gram_build;
struct gram_ex;
struct gram_js;

/* Where a pattern is from, for errors. */
struct gram_regex_source {
    struct gram_js *at; /* its place in a schema, with the keyword; NULL: */
    const char *keyword;
    const char *what; /* the name of the request's field, as "regex" */
    bool search;      /* some part of a text matches; else the whole must */
};

/*
 * Parses text[0..len). Leaves by gram_fail for a malformed text, with the byte, and by
 * gram_leave_out for what a pattern may say and no automaton here follows.
 */
struct gram_ex *gram_regex_parse(struct gram_build *b, const char *text, size_t len,
                                 const struct gram_regex_source *source);
