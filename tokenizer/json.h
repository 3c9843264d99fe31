/* SPDX-License-Identifier: MIT */
/*
 * A pull reader for the big members of tokenizer.json: it walks the text once and hands out strings
 * without building a tree. Small members are skipped to get at their text, which a tree parser
 * reads.
 *
 * Strict as RFC 8259: no comments, no trailing commas, no control characters or lone surrogates in
 * strings. The caller has validated the UTF-8. Nesting is limited, nothing recurses.
 *
 * Threads: unsafe; one owner. Errors: TOK_EINVAL with a sentence in the reader's err buffer.
 */
#ifndef HEARTH_TOKENIZER_JSON_H
#define HEARTH_TOKENIZER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Deepest nesting that is accepted. */
#define TOK_JSON_MAX_DEPTH 128

struct tok_json {
    const char *text; /* borrowed */
    size_t len;
    size_t pos;
    char *scratch; /* an unescaped string */
    size_t scratch_cap;
    char *err;
    size_t errlen;
};

/* Borrows text and err until tok_json_finish. */
void tok_json_init(struct tok_json *r, const char *text, size_t len, char *err, size_t errlen);
void tok_json_finish(struct tok_json *r);

/* The first character of the next value ('{', '[', '"', 't', '-', ...), or 0 at the end of the
 * text. */
char tok_json_peek(struct tok_json *r);

/* Takes the opening '{' or '['. */
int tok_json_open(struct tok_json *r, char open);

/*
 * Before each member or element: 1 when there is one more, 0 when the closing character was taken.
 * *first is true before the first call of a loop.
 */
int tok_json_more(struct tok_json *r, char close, bool *first);

/* A member's name and its colon. *ret is borrowed until the next string is read. */
int tok_json_key(struct tok_json *r, const char **ret, size_t *ret_len);

/* A string, unescaped, not NUL-terminated. *ret is borrowed until the next string is read. */
int tok_json_string(struct tok_json *r, const char **ret, size_t *ret_len);

/* A whole number from 0 to max. */
int tok_json_uint(struct tok_json *r, uint32_t max, uint32_t *ret);

/* Checks and skips any value; *ret is its text, borrowed from the text given at first. */
int tok_json_skip(struct tok_json *r, const char **ret, size_t *ret_len);

/* Nothing but white space is left. */
int tok_json_end(struct tok_json *r);

#endif
