/* SPDX-License-Identifier: MIT */
/*
 * Languages as they are given to the compiler, its options and its errors. The public header is
 * grammar.h, which includes this.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gram;
struct gram_vocab;

enum gram_kind {
    GRAM_SCHEMA,      /* a JSON schema; the answer is one JSON value */
    GRAM_JSON_OBJECT, /* any JSON object; the text is ignored */
    GRAM_REGEX,       /* ECMA-262 with Unicode, matching the whole answer */
    GRAM_CHOICE,      /* a JSON list of strings; the answer is one of them */
    GRAM_GBNF,        /* llama.cpp's grammar notation, root rule "root" */
    /* only of parts, see struct gram_part: */
    GRAM_LITERAL,  /* the text itself, any bytes */
    GRAM_UNTIL,    /* any UTF-8 text, empty too, in which neither the text nor a kid's occurs */
    GRAM_SEQUENCE, /* all kids in a row */
    GRAM_EITHER,   /* one of the kids */
    GRAM_REPEAT,   /* kids[0], min to max times, kids[1] in between if there is one */
    GRAM_RELAXED,  /* no text; keyword `text` at `pointer` is approximated, an error if strict */
};

/* Zero is the default of every field. */
struct gram_options {
    bool strict;         /* refuse what would be relaxed */
    bool closed_objects; /* with `properties`, and no word on other keys: as few as are needed */
    bool no_whitespace;  /* between the tokens of JSON */
    bool styled;         /* white space between them in one style only, see style.h */
    const char *whitespace_pattern; /* regex, full match, instead of the rule; NULL: none */
    size_t whitespace_pattern_len;
    uint64_t max_steps; /* 0: 2,000,000 */
    /* Called on the compiling thread at the first step and about every 4096 steps; true ends the
     * compilation with GRAM_ESTOPPED. It may take its time. NULL: nothing stops it. */
    bool (*stop)(void *ctx);
    void *stop_ctx;
};

enum gram_error_code {
    GRAM_OK = 0,
    GRAM_EINVAL = -1, /* the schema: invalid_json_schema */
    GRAM_ENOMEM = -2,
    GRAM_EGRAMMAR = -3,     /* regex, choice, GBNF, whitespace pattern: invalid_grammar */
    GRAM_EUNSUPPORTED = -4, /* a notation we know and do not support: unsupported_parameter */
    GRAM_ESTOPPED = -5,     /* gram_options.stop said so */
};

#define GRAM_POINTER_BYTES 1024

struct gram_error {
    enum gram_error_code code;
    uint64_t steps;                   /* that were taken, set if it compiles too */
    bool has_pointer;                 /* pointer says where in the schema */
    char pointer[GRAM_POINTER_BYTES]; /* RFC 6901; "" is the root; cut if longer */
    char keyword[64];                 /* "" if none is to blame */
    char message[304];                /* one sentence of at most 300 bytes, valid UTF-8 */
};

#define GRAM_INFINITE UINT32_MAX

/*
 * A part of a language. Parts form a tree; the same array of kids may be used in several places.
 *
 * Byte 0xFF marks special tokens: a vocabulary spells one as 0xFF and its text, and of all parts
 * only a literal can contain that. Offsets in an answer count these bytes.
 *
 * Of GRAM_EITHER, all kids that begin with a literal are matched as one, if they do so under the
 * same capture number: a literal, or a sequence without a capture of its own whose first kid is
 * one. So a choice among tools costs the same for one or a hundred, provided that each kid begins
 * with the tool's name, and all they have in common before it comes before the choice.
 */
struct gram_part {
    enum gram_kind kind;
    uint32_t capture; /* reported as this number; 0: not */
    const char *text;
    size_t len;
    const struct gram_part *kids; /* [n_kids] */
    size_t n_kids;
    uint32_t min, max;   /* of a repetition; max may be GRAM_INFINITE */
    const char *pointer; /* of a schema: put before all pointers into it; NULL: nothing */
    bool strict;         /* of a schema: refuse what would be relaxed */
    const char *types;   /* of a schema: only values of these, JSON as of `type`; NULL: of any */
    bool optional;       /* a schema that nothing matches drops the part; otherwise an error */
    /*
     * Of a schema: not a JSON value, but the text of a string that fits, in which kids[0], an
     * expression, is not found. nullable: the text null is the value null instead.
     */
    bool bare, nullable;
};
