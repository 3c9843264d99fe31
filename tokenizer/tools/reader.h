/* SPDX-License-Identifier: MIT */
/*
 * The parts of a reader, each on top of the next: reader.c reads text and reasoning and finds the
 * openings of calls, call.c walks through a call, call_output.c gives it out, reader_modes.c knows
 * the openings and gives text out.
 *
 * The text that is not given out yet is a window: bytes [sent, len) of `text`, read up to `pos`.
 * Places in it are indexes; they stay valid while a call is held, since the window moves only when
 * nothing but its end is still needed.
 */
#pragma once

#include "tokenizer/tools/keyword_scan.h"
#include "tokenizer/tools/tool_set.h"
#include "tokenizer/tools/tools.h"

/* No place. */
#define NOWHERE SIZE_MAX

struct range {
    size_t begin, end; /* end NOWHERE: goes on */
};

/* Where the reader is in the text outside of calls; each looks for openings of its own. */
enum mode {
    MODE_START,           /* nothing but white space came: reasoning may begin */
    MODE_TEXT,            /* content */
    MODE_REASONING_START, /* after its opening: one more opening is dropped */
    MODE_REASONING,
    N_MODES
};

enum { MAX_XML_PARAMS = 128, MAX_XML_KEY = 256, MAX_ID = 64 };

enum opening_index {
    OPENING_THINK,
    OPENING_THINK_CLOSE,
    OPENING_BLOCK,
    OPENING_FUNCTION, /* of qwen-xml, without its block */
    OPENING_OBJECT,   /* of llama3 */
    OPENING_TAG,      /* of llama3 */
    OPENING_CALL,     /* of gemma4, without its marker */
    OPENING_LABEL,    /* the name of a block of reasoning */
    OPENING_RESULT,   /* a result in the form of tok_chat_write_tools, copied: no content */
    N_OPENINGS
};

/* Flags of a byte, by mode: it may be space, or begin an opening. */
enum { BYTE_SPACE = 1, BYTE_OPENING = 2 };

/* The effect of a text marker that begins at a byte; see openings in reader_modes.c. */
struct opening {
    const char *text; /* NULL: not in this style */
    size_t len;
    enum tools_marker marker; /* TOOLS_N_MARKERS: only ever text */
    unsigned modes;           /* bits 1 << enum mode */
};

/* The forms in which arguments are written. */
enum arguments {
    ARGUMENTS_NONE, /* not yet, or null */
    ARGUMENTS_OBJECT,
    ARGUMENTS_STRING, /* JSON text in a JSON string */
    ARGUMENTS_XML,
    ARGUMENTS_KEYWORDS,
};

/* How the text of a qwen-xml value goes out. */
enum value_form {
    VALUE_UNDECIDED,
    VALUE_STRING,
    VALUE_JSON,
};

struct xml_param {
    struct range key, value;
    const struct param *schema; /* NULL: nothing is known */
};

/* One call, and its place in its block. */
struct call {
    uint8_t step;      /* enum step of call.c */
    uint8_t after;     /* the step that follows a call in this block */
    uint8_t alive;     /* alternatives of the step that the bytes from `match` on still fit */
    uint8_t members;   /* seen in the object */
    bool first;        /* the block has had no call yet */
    bool control;      /* the opening is a control token */
    bool canonical;    /* opened as the guide does it */
    bool live;         /* given out while it comes */
    bool plain;        /* name and id stand outside of JSON */
    bool named;        /* the name is complete */
    bool closed;       /* the arguments are */
    bool lead;         /* qwen-xml: nothing of the value came, not even its newline */
    bool line;         /* qwen-xml: the byte before param.value.begin is a newline */
    bool value_sent;   /* something of the value in hand was given out */
    size_t opened;     /* after the opening and white space */
    size_t match;      /* NOWHERE, or where the literal in hand begins */
    struct range name; /* end: NOWHERE while it is read */
    struct name_range tools;
    const struct tool_entry *tool; /* NULL: none, or any_name */
    enum arguments form;
    struct range arguments, id;
    struct json_scan scan;
    struct keyword_scan keywords;
    struct json_unescape string; /* ARGUMENTS_STRING */
    struct xml_param param;      /* the one in hand; value.begin: not given out yet */
    enum value_form value_form;
    size_t n_params;
    struct xml_param params[MAX_XML_PARAMS]; /* of a held call; last, as it is not cleared */
};

struct tools_reader {
    const struct tools_set *set;
    struct tools_markers markers;
    bool guided;
    size_t max_held;
    tools_event_fn on_event;
    void *ctx;

    enum mode mode;
    bool in_call;     /* the bytes from `held` on may be a call */
    bool shown;       /* content was given out, or will be */
    bool after_close; /* the white space at `space` follows a closing marker */
    bool calls_on;    /* calls are read here */
    uint32_t n_calls;
    struct opening openings[N_OPENINGS];
    uint8_t first[N_MODES][256]; /* BYTE_SPACE, BYTE_OPENING or 0 */
    bool second[N_MODES][256];   /* an opening, or a call after it, may go on */
    struct call call;

    size_t sent, pos, len;
    size_t space; /* where white space that reaches up to pos or held begins, or NOWHERE */
    size_t match; /* where an opening may have begun, or NOWHERE */
    size_t held;  /* where the call in hand begins, its marker included */
    unsigned alive;
    uint64_t base; /* offset of text[0] in what was fed */
    size_t size;   /* of text */
    char text[];
};

/* ---- reader_modes.c ------------------------------------------------------------------------ */

/* Sets the openings that each mode looks for, by the style and calls_on. */
void reader_set_openings(struct tools_reader *r);

/* Returns true if an opening may be found by the bytes of its text. */
bool reader_opening_is_text(const struct tools_reader *r, const struct opening *o);

/* The end of the last whole character of [begin, end). */
size_t reader_whole(const struct tools_reader *r, size_t begin, size_t end);

/* Bytes [sent, end) are content or reasoning; final: the half of a character is dropped. */
void reader_send_text(struct tools_reader *r, size_t end, bool final);

/* The byte at `at` is text, and not white space: what that means for white space before it. */
void reader_decide_space(struct tools_reader *r, size_t at);

/* Text begins at pos, after a closing marker. */
void reader_begin_text(struct tools_reader *r, enum mode mode);

/* Text before the call goes out, reasoning ends, white space in between is dropped. */
void reader_confirm(struct tools_reader *r);

/* The block is over: text begins at pos, after its closing. */
void reader_block_done(struct tools_reader *r);

/* Bytes [held, end) are text after all, and reading goes on at end. */
void reader_fail(struct tools_reader *r, size_t end);

/* ---- call.c -------------------------------------------------------------------------------- */

/* Begins a call whose opening ends at pos; held is set. */
void call_open(struct tools_reader *r, enum opening_index opening);

/* Reads on up to len, or until there is no call any more. */
void call_read(struct tools_reader *r);

/* A marker token is at pos, up to len. Returns true if the call takes it. */
bool call_marker(struct tools_reader *r, enum tools_marker marker);

/* The end of the text. */
void call_end(struct tools_reader *r);

/* ---- call_output.c ------------------------------------------------------------------------- */

enum value_end {
    VALUE_GOES_ON,
    VALUE_CLOSED,
    VALUE_CUT, /* by the end of the text */
};

/* The name, and the id if there is one. */
void call_send_begin(struct tools_reader *r);

/* The arguments of a held call, as far as they came. */
void call_send_held(struct tools_reader *r, bool complete);

/* JSON of keyword arguments; ctx: the reader. */
void call_send_keywords(void *ctx, const char *text, size_t len);

/* A live call's bytes up to end are arguments. */
void call_send_raw(struct tools_reader *r, size_t end);

/* Arguments that are not bytes of the text. */
void call_send_text(struct tools_reader *r, const char *text);

void call_send_end(struct tools_reader *r, bool complete);

/* qwen-xml: the name of a parameter; the new part of its value up to `end`. `number` counts the
 * parameters of the call from 0. */
void call_send_key(struct tools_reader *r, const struct xml_param *param, size_t number);
void call_send_value(struct tools_reader *r, struct xml_param *param, size_t end,
                     enum value_end how);
