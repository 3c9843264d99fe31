/* SPDX-License-Identifier: MIT */
/*
 * Expressions: what a regular expression or a GBNF rule says, as a tree in temporary memory. Sets
 * of code points are the leaves; sequences are flat; repetitions keep their counts. The builders
 * below simplify as they go, and share nothing they change.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/grammar/gram_types.h"

struct gram_build;
struct gram_charset;

enum gram_ex_kind {
    GRAM_EX_EMPTY, /* the empty text */
    GRAM_EX_NONE,  /* no text at all */
    GRAM_EX_SET,   /* one code point of a set */
    GRAM_EX_SEQ,   /* kids in a row */
    GRAM_EX_ALT,   /* one of the kids */
    GRAM_EX_REP,   /* kids[0], min to max times */
    GRAM_EX_BEGIN, /* assertions: nothing before, nothing after, (not) between words */
    GRAM_EX_END,
    GRAM_EX_WORD,
    GRAM_EX_NOT_WORD,
    GRAM_EX_NEXT, /* one of the set follows; negated: none of it does */
    GRAM_EX_LOOK, /* a text of kids[0] begins here, and may go on; negated: none does */
    GRAM_EX_RULE, /* rule number `ref` of a grammar */
};

/* How far an expression looks ahead of where it is, other than by $ and \b. */
enum gram_ex_looks {
    GRAM_LOOKS_NOWHERE,
    GRAM_LOOKS_NEXT, /* to one code point; an automaton does that anywhere */
    GRAM_LOOKS_FAR,  /* see gram_nfa_refuses */
};

struct gram_ex {
    uint8_t kind;
    bool has_rules;    /* it names rules of a grammar */
    uint8_t looks;     /* enum gram_ex_looks, the most of its kids */
    bool negated;      /* of a look-ahead */
    uint32_t size;     /* states of an automaton with repetitions written out; saturates */
    uint32_t length;   /* code points, if all texts have the same; GRAM_INFINITE: they have not */
    uint32_t n;        /* kids */
    uint32_t min, max; /* of a repetition; max may be GRAM_INFINITE */
    uint32_t ref;      /* number of a rule; or, if it looks far, the byte of the look-ahead */
    const struct gram_charset *set;
    struct gram_ex **kids;
};

/* A list of expressions being collected. Zero-initialise. */
struct gram_ex_list {
    struct gram_ex **items;
    uint32_t n, cap;
};

void gram_ex_push(struct gram_build *b, struct gram_ex_list *list, struct gram_ex *x);

struct gram_ex *gram_ex_new(struct gram_build *b, enum gram_ex_kind kind);
struct gram_ex *gram_ex_set(struct gram_build *b, const struct gram_charset *finished);
struct gram_ex *gram_ex_char(struct gram_build *b, uint32_t cp);
struct gram_ex *gram_ex_any(struct gram_build *b);
struct gram_ex *gram_ex_seq(struct gram_build *b, const struct gram_ex_list *list);
struct gram_ex *gram_ex_alt(struct gram_build *b, const struct gram_ex_list *list);
/* Kids from..to-1 of a sequence as one expression. */
struct gram_ex *gram_ex_slice(struct gram_build *b, const struct gram_ex *x, uint32_t from,
                              uint32_t to);
struct gram_ex *gram_ex_rule(struct gram_build *b, uint32_t rule);
/* The empty text is one of x, whatever is around it; rules: those of the grammar that have it. */
bool gram_ex_is_optional(struct gram_build *b, const struct gram_ex *x, const bool *rules);

/*
 * The look-ahead at a byte of a pattern: x begins here, or it does not. What x may end in and leave
 * out is left out.
 */
struct gram_ex *gram_ex_look(struct gram_build *b, struct gram_ex *x, bool negated, uint32_t at);

/* x without what it may end in and leave out: the same where more text may follow. */
struct gram_ex *gram_ex_without_tail(struct gram_build *b, struct gram_ex *x);

struct gram_ex *gram_ex_rep(struct gram_build *b, struct gram_ex *x, uint32_t min, uint32_t max);

/* The characters of valid UTF-8 in a row. */
struct gram_ex *gram_ex_text(struct gram_build *b, const char *text, size_t len);

/*
 * Takes a large counter out of an expression that is anchored at both ends: X C{m,n} Y with X, C, Y
 * of fixed length is X C* Y where the whole length lies in *min..*max. Returns true, and the
 * changed expression in *x, if it had that form; *max may be GRAM_INFINITE.
 */
bool gram_ex_hoist_count(struct gram_build *b, struct gram_ex **x, uint32_t *ret_min,
                         uint32_t *ret_max);
