/* SPDX-License-Identifier: MIT */
/*
 * A JSON text as a tree of jansson's, read by json_reader.h: the parser of jansson 2.14 writes
 * beside its memory when an allocation fails.
 *
 * An integer beyond 64 bits is a real near its value in the tree, and beyond them too. So are, near
 * the largest double, the constants that JR_CONSTANTS allows: no range holds them.
 *
 * Threads: safe; nothing is kept.
 */
#pragma once

#include <stddef.h>

struct json_t; /* jansson's */

/*
 * Beside enum jr_flags. REPEATS: of members with the same name the last one counts; else it is an
 * error. ANY: the root may also be a string, a number or a word.
 */
enum { JT_REPEATS = 1 << 8, JT_ANY = 1 << 9 };

enum { JT_MAX_DEPTH = 160, JT_KEY_BYTES = 64 };

struct jt_params {
    unsigned flags; /* of enum jr_flags and the two above */
    size_t max_values;
    /* NULL, or called for each object and array with its part of the text once it is complete.
     * Returns 0, or -1 when out of memory. */
    int (*complete)(void *ctx, const struct json_t *value, size_t begin, size_t len);
    void *ctx;
};

struct jt_fault {
    char problem[80]; /* in words that quote nothing; "": memory ran out */
    int line, column;
    char key[JT_KEY_BYTES]; /* that the problem is about, or ""; a longer one is cut */
};

/*
 * Reads text[0..len), which must be followed by a byte that is not part of a number, as NUL is.
 * Returns 0 and *ret, owned (json_decref), or -1 with *ret as it was and the fault.
 */
int jt_read(struct json_t **ret, const char *text, size_t len, const struct jt_params *params,
            struct jt_fault *fault);

/*
 * The same of a file of strangers: of at most a million values, with the constants of Python; more
 * flags: `flags`. Returns 0, JR_EINVAL or JR_ENOMEM with a sentence in err that begins with `name`.
 */
int jt_read_file(struct json_t **ret, const char *name, const char *text, size_t len,
                 unsigned flags, char *err, size_t errlen);
