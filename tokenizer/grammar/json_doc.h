/* SPDX-License-Identifier: MIT */
/*
 * The tree of a schema's text, in temporary memory. Numbers keep their spelling, strings are
 * decoded, members keep the order of the text (of equal keys the last value counts, at the place of
 * the first). Nothing here recurses deeper than the limit of the reader.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gram_build;

enum gram_js_type {
    GRAM_JS_NULL,
    GRAM_JS_FALSE,
    GRAM_JS_TRUE,
    GRAM_JS_NUMBER,
    GRAM_JS_STRING,
    GRAM_JS_ARRAY,
    GRAM_JS_OBJECT,
};

struct gram_js {
    uint8_t type;
    uint8_t marks;     /* bits of whoever walks the tree, see goals.h */
    uint8_t active[2]; /* the level of the expansion that is inside this schema, by polarity */
    uint8_t keyword;   /* its key as a keyword, see gram_kw_of */
    uint32_t n;        /* members or elements */
    uint32_t len;      /* bytes of text */
    uint32_t key_len;
    uint32_t index;   /* its place in the parent */
    uint32_t id;      /* number in order of the text, unique in the document */
    const char *text; /* a string's characters, a number's spelling */
    const char *key;  /* the name of a member; NULL for elements and the root */
    struct gram_js *parent, *child, *next;
    struct gram_js *last;       /* the last child */
    struct gram_js **sorted;    /* members by key; NULL: they are few, or not in order yet */
    struct gram_js *stands_for; /* of a const value or $ref: the schema that says the same */
};

/*
 * Parses one JSON text. Leaves by gram_fail with `code` and a message that begins with `what`.
 * *n_nodes counts ids on from its value.
 */
struct gram_js *gram_js_parse(struct gram_build *b, const char *text, size_t len, int max_depth,
                              int code, const char *what, uint32_t *n_nodes);

/* The value of a member, or NULL. */
struct gram_js *gram_js_get(const struct gram_js *object, const char *key);
struct gram_js *gram_js_get_n(const struct gram_js *object, const char *key, size_t len);

bool gram_js_key_is(const struct gram_js *v, const char *key);
bool gram_js_text_is(const struct gram_js *v, const char *text);

/* "a string", "an object", ... */
const char *gram_js_type_name(const struct gram_js *v);

/* Writes the RFC 6901 pointer of v (NULL: the root), cut at size - 1; returns its length. */
size_t gram_js_pointer(const struct gram_js *v, char *buf, size_t size);

/* Leaves with an error at a value of the schema; see gram_error. keyword may be NULL. */
_Noreturn void gram_fail_at(struct gram_build *b, const struct gram_js *at, const char *keyword,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));

/*
 * Leaves the keyword (or the schema of a pattern) out that cannot be compiled: it is named as
 * relaxed, and the building of the schema is begun again. Where nothing may be relaxed, the
 * error of gram_fail_at. See schema/front.c.
 */
_Noreturn void gram_leave_out(struct gram_build *b, struct gram_js *at, const char *keyword,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));

/* New values, for schemas that the compiler writes itself. They have no place in the text. */
struct gram_js *gram_js_new(struct gram_build *b, enum gram_js_type type, const char *text,
                            size_t len);
/* Puts the members in order, so that one is soon found. Of equal keys the last value counts. */
void gram_js_index(struct gram_build *b, struct gram_js *object);
void gram_js_append(struct gram_js *parent, struct gram_js *child, const char *key, size_t key_len);
