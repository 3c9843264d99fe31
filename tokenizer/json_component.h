/* SPDX-License-Identifier: MIT */
/*
 * Shared by the components of tokenizer.json: typed access to their members, sequences of
 * them, and patterns ({"String": ...} or {"Regex": ...}) with the successive matches in a text.
 *
 * Errors: TOK_EINVAL with a sentence in err that names the component and the member.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/bounded_regex.h"

/* Components a Sequence may hold in all. */
#define TOK_MAX_COMPONENTS 64

/*
 * Bytes that normalizers and pre-tokenizers may add to one text, all of them together and over all
 * stretches of it. Most components replace a character by another or by a few, but a Sequence may
 * multiply what it is given: 24 steps that replace "a" by "aa" make 16 MiB of one letter. The bound
 * is 16 bytes per byte of the text, which is above the worst that Unicode's forms do (11 for U+FDFA
 * under NFKC, 13 with a space mark for each blank), and 64 KiB. It bounds memory, and also time,
 * because no step ever sees more than the text and what was added to it.
 */
#define TOK_GROWTH_PER_BYTE 16
#define TOK_GROWTH_BASE (64u << 10)

struct tok_growth {
    size_t text_len; /* bytes */
    size_t max;      /* bytes that may be added */
    size_t left;     /* of max */
};

/* The budget of a text. text_len is at most 1 GiB; text and growth stay below 4 GiB. */
struct tok_growth tok_growth(size_t text_len);

/* A component made `after` bytes of `before`. TOK_ELIMIT, with a sentence, if that is too many. */
int tok_growth_spend(struct tok_growth *g, size_t before, size_t after, char *err, size_t errlen);

/* A string of ours, owned. */
struct tok_component_text {
    char *s;
    size_t len;
};
void tok_component_text_finish(struct tok_component_text *t);

/*
 * A component, or another object whose members are read one by one. The first one that is wrong
 * sets rc, and err; what is read after it means nothing, and rc is looked at in the end.
 */
struct tok_component {
    const json_t *json;
    const struct tok_uni *uni; /* borrowed */
    int rc;
    char *err;
    size_t errlen;
};

bool tok_member_bool(struct tok_component *c, const char *name);
/* JSON null counts as absent. */
bool tok_member_bool_or(struct tok_component *c, const char *name, bool otherwise);
uint32_t tok_member_uint(struct tok_component *c, const char *name, uint32_t max);
/* Owned: tok_component_text_finish. */
struct tok_component_text tok_member_text(struct tok_component *c, const char *name);
/* A string of exactly one character. */
void tok_member_char(struct tok_component *c, const char *name, char ret[5]);

/* The "unknown component" sentence; returns TOK_EINVAL. what is "normalizer" or the like. */
int tok_component_unknown(struct tok_component *c, const char *what, const char *name);

/* Returns 0 or a tok_error; c->rc counts too. */
typedef int tok_component_fn(void *data, const char *type, struct tok_component *c);

/*
 * Calls fn for the component, or for each one of a Sequence in order (sequences may nest); `list`
 * is the Sequence's member. For NULL and JSON null fn is not called. Stops at the first error.
 */
int tok_component_visit(const char *what, const char *list, const json_t *json,
                        const struct tok_uni *uni, tok_component_fn *fn, void *data, char *err,
                        size_t errlen);

/* A pattern: a literal, or a regular expression when re is set. */
struct tok_component_pattern {
    struct tok_component_text literal;
    struct tok_regex *re;
};

/* The member "pattern". Owned: tok_component_pattern_finish. */
struct tok_component_pattern tok_member_pattern(struct tok_component *c);
void tok_component_pattern_finish(struct tok_component_pattern *p);

struct tok_pattern_iter {
    const struct tok_component_pattern *p;
    struct tok_regex_iter re;
};

struct tok_pattern_iter tok_pattern_iter(const struct tok_component_pattern *p, const char *text,
                                         size_t len);

/* As tok_regex_next. */
int tok_pattern_next(struct tok_pattern_iter *it, struct tok_regex_scratch *s, size_t *ret_begin,
                     size_t *ret_end, char *err, size_t errlen);
