/* SPDX-License-Identifier: MIT */
/*
 * Keyword arguments as Python writes them, `a=1, b="x", c=[True, None])`, or as Gemma does,
 * `a:1,b:<|"|>x<|"|>,c:{d:[true]}}`, checked as their bytes come, in pieces of any size, and
 * translated to the JSON object {"a": 1, "b": "x", ...}.
 *
 * Values are numbers as JSON has them, strings in either quotes, True, False, None, lists, and
 * dictionaries whose keys are strings; JSON's own spellings pass too. A comma may follow the last
 * item. Of escapes in strings, \x and \u are read; a backslash before a letter that begins none
 * stands for itself, as in Python. In Gemma's form keys of dictionaries may be bare, and strings
 * may stand between two texts of the form, without escapes. No memory, no recursion.
 *
 * Threads: unsafe; one owner.
 */
#pragma once

#include "tokenizer/tools/json_scan.h"

enum { KEYWORD_MAX_NAME = 256, KEYWORD_OUT_BYTES = 64 };

/* Takes JSON text: whole characters if the input is UTF-8. */
typedef void (*keyword_scan_fn)(void *ctx, const char *text, size_t len);

struct keyword_scan {
    uint8_t state;
    bool first;       /* nothing came of this container */
    bool key;         /* the string is a key of a dictionary */
    char quote;       /* that ends the string */
    const char *form; /* Gemma's text around strings; NULL: Python's form */
    uint8_t n_match;  /* bytes of it that came */
    char digits[4];
    uint8_t n_digits, max_digits; /* of an escape */
    uint16_t n_name;              /* bytes of the keyword in hand */
    const char *literal, *json;   /* the rest of a word; its JSON */
    struct json_nesting nesting;
    struct json_scan number;
    keyword_scan_fn give; /* NULL: the text is only checked */
    void *ctx;
    uint8_t n_out;
    char out[KEYWORD_OUT_BYTES]; /* not given out yet */
};

/* Begins after the opening parenthesis or brace. form: borrowed; see the struct. */
void keyword_scan_begin(struct keyword_scan *s, const char *form, keyword_scan_fn give, void *ctx);

/* Takes bytes of [p, end) up to the closing parenthesis or brace, gives out their JSON, and returns
 * the place after the last byte taken in *ret. */
enum json_scan_result keyword_scan(struct keyword_scan *s, const char *p, const char *end,
                                   const char **ret);

/* Returns true if a keyword may have this byte. */
bool keyword_scan_is_name(char c);
