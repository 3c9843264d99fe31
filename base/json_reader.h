/* SPDX-License-Identifier: MIT */
/*
 * A pull reader of JSON text: the caller asks for the value it expects, and gets strings, numbers
 * and spans without a tree. Strict as RFC 8259: no comments, no trailing commas, no control
 * characters or lone surrogates in strings. It does not check that plain bytes are UTF-8; the
 * caller does, once.
 *
 *     jr_init(&r, text, len, 0, err, sizeof(err));
 *     jr_open(&r, '{');
 *     while (jr_member(&r, &key, &key_len) > 0)
 *         jr_skip(&r, &span, &span_len);
 *     rc = jr_end(&r);
 *     jr_finish(&r);
 *
 * Threads: unsafe; one owner. Errors: the first one stays, with its sentence in err. From then on
 * each function returns it, strings are "", numbers 0, and pos does not move; so jr_end, or
 * `failed`, is looked at once. A loop that costs much between two calls had better look earlier.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum jr_error {
    JR_EINVAL = -1,
    JR_ENOMEM = -2,
};

enum jr_flags {
    JR_NUL = 1,       /* \u0000 is allowed in strings; a result may then hold NUL bytes */
    JR_CONSTANTS = 2, /* NaN, Infinity and -Infinity are numbers, as Python writes them */
};

/* Deepest nesting that jr_skip follows, and the default of max_depth. */
#define JR_MAX_DEPTH 256

struct jr {
    const char *text; /* borrowed */
    size_t len;
    size_t pos;
    unsigned flags;
    int max_depth; /* containers open at once; may be set after jr_init */
    int depth;
    bool begins;   /* a container was opened: no comma comes before its first value */
    char *scratch; /* an unescaped string */
    size_t scratch_cap;
    int failed; /* 0, or the first error */
    char *err;
    size_t errlen;
    const char *problem; /* after JR_EINVAL: the fault in words that quote nothing; static */
};

/* Borrows text and err (NULL where errlen is 0) until jr_finish. */
void jr_init(struct jr *r, const char *text, size_t len, unsigned flags, char *err, size_t errlen);
void jr_finish(struct jr *r);

/* An error of the caller's: rc is negative. Returns the first error. */
__attribute__((format(printf, 3, 4))) int jr_refuse(struct jr *r, int rc, const char *format, ...);

/* The first character of the next value ('{', '[', '"', 't', '-', ...); 0 at the end. */
char jr_peek(struct jr *r);

/* Takes the opening '{' or '['. */
int jr_open(struct jr *r, char open);

/* Before each member or element: 1 if there is one more, 0 if the closing character was taken. */
int jr_more(struct jr *r, char close);

/* A member's name and its colon. *ret is borrowed until the next string is read. */
int jr_key(struct jr *r, const char **ret, size_t *ret_len);

/* Both for the next member of an object: 1, or 0 at its end. */
int jr_member(struct jr *r, const char **ret, size_t *ret_len);

/* A string, unescaped, not NUL-terminated. *ret is borrowed until the next string is read. */
int jr_string(struct jr *r, const char **ret, size_t *ret_len);

/* A number as it is written, of any size and precision. Borrowed from the text. */
int jr_number(struct jr *r, const char **ret, size_t *ret_len);

/* An integer from 0 to max, without fraction or exponent. */
int jr_uint(struct jr *r, uint32_t max, uint32_t *ret);

/*
 * A string, a number, true, false or null by its first character, which is returned, or 0 after an
 * error. *ret: a string as above, the others as they are written.
 */
char jr_scalar(struct jr *r, const char **ret, size_t *ret_len);

/* Checks and skips any value. *ret is its text without surrounding blanks, borrowed. */
int jr_skip(struct jr *r, const char **ret, size_t *ret_len);

/* Nothing but white space is left. */
int jr_end(struct jr *r);
