/* SPDX-License-Identifier: MIT */
/*
 * The text of calls in all formats as one table. A step says which literals may come next, and
 * which step follows each; the steps from READ_NAME on read a value and are functions of call.c. No
 * literal of a step begins another, so a byte decides.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum step {
    /* hermes and list */
    STEP_BLOCK, /* after the opening marker: an object or a list */
    STEP_BARE,  /* after an object outside of a list */
    /* lists of hermes, list and mistral */
    STEP_LIST, /* after '[' */
    STEP_NEXT, /* after an object */
    STEP_ITEM, /* after ',' */
    STEP_LIST_END,
    /* mistral and mistral-args */
    STEP_MISTRAL,   /* after the opening marker: a list or a name */
    STEP_NAMED,     /* after a name: arguments, or markers in front of them */
    STEP_WITH_ID,   /* after the id */
    STEP_BARE_ARGS, /* after [ARGS] */
    /* llama3 */
    STEP_TAG,  /* after <|python_tag|> */
    STEP_CALL, /* after a call */
    STEP_SEP,  /* after ';' */
    /* qwen-xml */
    STEP_XML, /* after the opening marker */
    STEP_XML_BODY,
    STEP_CLOSE, /* after </function> and the like */
    /* pythonic */
    STEP_PYTHON,      /* after the opening marker */
    STEP_PYTHON_LIST, /* after '[' */
    STEP_PYTHON_NEXT, /* after a call */
    STEP_PYTHON_ITEM, /* after ',' */
    /* gemma4 and functiongemma */
    STEP_GEMMA, /* after the opening marker */
    /* the object of a call: {"name": ..., "arguments": ...} */
    STEP_KEY,
    STEP_MEMBER, /* after a member */
    STEP_NAME_COLON,
    STEP_NAME,
    STEP_ARGS_COLON,
    STEP_ARGS,
    STEP_TYPE_COLON,
    STEP_ID_COLON,
    N_STEPS,

    READ_NAME = N_STEPS, /* ended by a quote */
    READ_XML_NAME,       /* by '>' */
    READ_PLAIN_NAME,     /* by what cannot be part of it */
    READ_ARGS,           /* a JSON object, its '{' taken */
    READ_KEYWORDS,       /* up to ')' or '}' */
    READ_STRING,         /* the same as text in a JSON string */
    READ_NULL,           /* instead of arguments, taken already */
    READ_TYPE,           /* any JSON value */
    READ_ID,             /* any JSON value */
    READ_PLAIN_ID,
    READ_XML_KEY,
    READ_XML_VALUE,
    READ_XML_NEXT_KEY, /* that may end the value before it, which has no closing tag */
    READ_RESULT,       /* up to its closing tag */
    CALL_COMPLETE,
    BLOCK_DONE,
};

/* Members of a call's object. */
enum member {
    MEMBER_NAME = 1,
    MEMBER_ARGS = 2,
    MEMBER_TYPE = 4,
    MEMBER_ID = 8,
    ALL_MEMBERS = 15,
};

/* When a literal may come. */
enum when {
    ALWAYS,
    IF_MORE,   /* calls may still follow */
    IF_UNSEEN, /* a member is still to come */
    IF_WHOLE,  /* the object has all it needs */
    IF_TEXT,   /* outside of reasoning */
};

enum { MAX_LITERALS = 5, NO_MARKER = -1 };

struct literal {
    const char *text; /* NULL: the marker's */
    int8_t marker;    /* enum tools_marker, or NO_MARKER */
    uint8_t next;     /* enum step */
    uint8_t when;
    uint8_t member; /* that it begins; it may not have been seen */
};

struct step_row {
    bool spaces; /* white space may come first */
    bool name;   /* else, a name of READ_PLAIN_NAME */
    uint8_t n;
    struct literal literals[MAX_LITERALS];
};

extern const struct step_row call_steps[N_STEPS];
