/* SPDX-License-Identifier: MIT */
/*
 * A JSON value checked as its bytes come, in pieces of any size. Strict as RFC 8259, but lone
 * surrogates in escapes pass; plain bytes need not be UTF-8. No memory, no recursion.
 *
 * Threads: unsafe; one owner.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Containers open at once. */
enum { JSON_SCAN_DEPTH = 128 };

enum json_scan_result {
    JSON_SCAN_MORE, /* all bytes were taken, the value goes on (a number: may go on) */
    JSON_SCAN_DONE, /* the value is complete */
    JSON_SCAN_FAIL, /* the next byte cannot come here */
};

/* The containers around a place. */
struct json_nesting {
    uint8_t depth;
    uint64_t objects[JSON_SCAN_DEPTH / 64]; /* bit d: the container at depth d is an object */
};

/* Enters one more; false: too many. */
bool json_nest(struct json_nesting *n, bool object);
/* Whether the innermost is an object; there is one. */
bool json_in_object(const struct json_nesting *n);

struct json_scan {
    uint8_t state;
    bool key;            /* the string is a member's name */
    uint8_t digits;      /* hex digits of an escape that are still to come */
    const char *literal; /* the rest of true, false or null */
    struct json_nesting nesting;
};

void json_scan_begin(struct json_scan *s);

/* Takes bytes of [p, end) and returns the place after the last one taken in *ret. */
enum json_scan_result json_scan(struct json_scan *s, const char *p, const char *end,
                                const char **ret);

/* Returns true if the bytes so far are a value: a number needs no byte after it. */
bool json_scan_complete(const struct json_scan *s);

/* The inside of a string, byte by byte; zero at its beginning and between characters. */
struct json_unescape {
    uint8_t n;           /* bytes of an escape that came */
    uint32_t code, high; /* its digits; a surrogate that waits for its other half */
};

/* Bytes of text that this one completes, in `out`; -1: it cannot come here. */
int json_unescape(struct json_unescape *u, char byte, char out[4]);

/* The escape of a character of a string; 0: it needs none. */
size_t json_escape(char c, char ret[8]);

/* The text of a member in the text of an object, or NULL. */
const char *json_member(const char *object, size_t len, const char *name, size_t *ret_len);

static inline bool json_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
