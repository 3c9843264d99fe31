/* SPDX-License-Identifier: MIT */
/* The form of a call, read off the text that a chat template renders for a call of known words. */
#pragma once

#include "tokenizer/tools/tools.h"

/* Words that no template has by itself: of a call, and of a second one after it. Ids are of the
 * length that every template takes. */
#define SHAPE_NAME "zqCallName"
#define SHAPE_KEY "zqKey"
#define SHAPE_VALUE "zqValue"
#define SHAPE_ID "zqIdOne01"
#define SHAPE_NEXT_NAME "zqNextName"
#define SHAPE_NEXT_ID "zqIdTwo02"

/* A part of a text, borrowed. */
struct tools_span {
    const char *s;
    size_t len;
};

struct tools_span tools_span_trim(struct tools_span s); /* without white space around it */
/* Copies it. False, and nothing is copied: it is too long. */
bool tools_span_put(char to[TOOLS_TEXT_BYTES], struct tools_span s);

/*
 * Finds the form of the one call in `text`, which runs from the end of the generation prompt to
 * past the end of the turn. turn_end is text that follows an answer without calls: where it
 * begins in `text`, the call's text ends. The style gets format, markers and texts of a call;
 * false, and the style unchanged: no known form.
 */
bool tools_shape_find(struct tools_style *style, struct tools_span text,
                      struct tools_span turn_end);

/*
 * Reads the separator of calls off a text with two of them. Leaves it as it is where it is not
 * seen.
 */
void tools_shape_find_separator(struct tools_style *style, struct tools_span text);

/* Returns true if the instructions of a template show an example of a call in this format. */
bool tools_shape_is_shown(enum tools_format format, const char *text);
