/* SPDX-License-Identifier: MIT */
/*
 * Tool calls and reasoning in the text of a model: which form a chat template gives them, how a
 * text is read into content, reasoning and calls, and which tokens may come next so that a call is
 * one of the request's tools with arguments of its schema.
 *
 * A style says how a model writes calls. A request brings tools and a choice. A set is what reading
 * needs of the two; a grammar (tokenizer/grammar) is what guiding needs. Per choice of a request a
 * reader turns text into events and a guide masks tokens. Both walk the same text on different
 * threads and share nothing that changes: a reader told that its text is guided gives out a call
 * while it comes, since the guide lets nothing come that is not a call.
 *
 * Reading is one pass: a call is a walk through a table of steps (call_steps.c), and the first byte
 * that has no step is where reading goes on as text. So it takes linear time whatever comes.
 *
 * Threads: styles, sets and grammars are immutable and may be used by any number of threads; a
 * reader or guide belongs to one thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/chat/chat.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/tok_types.h"

struct gram_part;

/* ---- styles -------------------------------------------------------------------------------- */

enum tools_format {
    TOOLS_NONE,    /* calls are not read */
    TOOLS_UNKNOWN, /* the template writes calls in a form that is not one of these */
    TOOLS_HERMES,
    TOOLS_LIST,
    TOOLS_QWEN_XML,
    TOOLS_LLAMA3,
    TOOLS_MISTRAL,
    TOOLS_MISTRAL_ARGS,
    TOOLS_FUNCTIONARY,
    TOOLS_PYTHONIC,
    TOOLS_GEMMA4,
    TOOLS_FUNCTIONGEMMA,
    TOOLS_N_FORMATS
};

/* The name of a format ("none", "hermes", ...), and back; false for another name. */
const char *tools_format_name(enum tools_format format);
bool tools_format_find(const char *name, enum tools_format *ret);

enum tools_source {
    TOOLS_DETECTED, /* from the template's renderings */
    TOOLS_OPTION,   /* --tool-format */
    TOOLS_FALLBACK, /* the template does not print tools: our own form */
};
extern const char *const tools_source_names[];

enum { TOOLS_TEXT_BYTES = 64 };

/* Opens a block of reasoning that begins with its name, a line that is not part of it. */
#define TOOLS_CHANNEL "<|channel>"

/* Texts are NUL-terminated, "" if there is none. */
struct tools_style {
    enum tools_format format;
    enum tools_source source;

    char open[TOOLS_TEXT_BYTES];  /* opening marker: "<tool_call>"; llama3: "" */
    char close[TOOLS_TEXT_BYTES]; /* closing marker: "</tool_call>" */

    /*
     * Texts around the values of a call, as the template writes them:
     *   block_open (call_open NAME name_close ARGUMENTS [id_open ID id_close] call_close)+
     *   block_close
     * with call_sep between the calls of a block and block_sep between blocks. mistral-args has the
     * id before name_close. qwen-xml writes parameters in fixed tags instead of ARGUMENTS, pythonic
     * and Gemma's formats as keywords.
     */
    char block_open[TOOLS_TEXT_BYTES], block_close[TOOLS_TEXT_BYTES], block_sep[TOOLS_TEXT_BYTES];
    char call_open[TOOLS_TEXT_BYTES], call_close[TOOLS_TEXT_BYTES], call_sep[TOOLS_TEXT_BYTES];
    char name_close[TOOLS_TEXT_BYTES];
    char id_open[TOOLS_TEXT_BYTES], id_close[TOOLS_TEXT_BYTES];
    /* Keywords: between a key and its value; between two; and Gemma's text around strings. Static;
     * NULL: no keywords, strings as JSON has them. */
    const char *assign, *comma, *quote;
    const char *result_open; /* static: a token that ends the answer, the client's turn; or NULL */
    bool one_per_block;      /* a block holds one call; else call_sep and more of them */
    bool writes_id;
    bool short_ids; /* ids must be nine letters or digits */

    char think_open[TOOLS_TEXT_BYTES], think_close[TOOLS_TEXT_BYTES];
    bool think_forced; /* the generation prompt ends inside an open block by default */
    bool think_kept;   /* past reasoning is rendered where a later turn follows */

    /* The prompt side: parts that the template leaves out, so that we write them. */
    bool writes_tools, writes_calls, writes_results; /* by the template, given tools */
    bool plain_writes_calls, plain_writes_results;   /* by the template, given none */
    bool object_arguments;                           /* of past calls; else text */
    bool fills_tools; /* the template fails on tools without description and parameters */
    bool reads_enable_thinking, reads_reasoning_effort, reads_xml_tools;
};

/* The style of a format's canonical text, with reasoning markers or none (NULL, NULL); source is
 * TOOLS_OPTION. Texts longer than TOOLS_TEXT_BYTES - 1 are refused: false. */
bool tools_style_of(struct tools_style *ret, enum tools_format format, const char *think_open,
                    const char *think_close);

/*
 * Finds the style of a chat template by rendering small conversations and comparing the texts.
 * option: --tool-format, the name of a format; NULL and "auto": the one found. A style that is
 * found to have this format is kept, else the canonical one is used and calls are written by us.
 * chat may be NULL (a model without a template): TOOLS_NONE. Takes about a millisecond. Returns 0,
 * TOK_EINVAL (no format has this name) or TOK_ENOMEM.
 */
int tools_detect(struct tools_style *ret, const struct tok_chat *chat, const char *option);

/* Returns true if a text that ends with text[0..len) (a prompt) ends inside a reasoning block; the
 * other: if it ends, but for white space, with the closing marker. */
bool tools_think_is_open(const struct tools_style *style, const char *text, size_t len);
bool tools_think_is_closed(const struct tools_style *style, const char *text, size_t len);

/* ---- markers ------------------------------------------------------------------------------- */

/* The markers that a vocabulary may have as one token. */
enum tools_marker {
    TOOLS_MARK_OPEN,
    TOOLS_MARK_CLOSE,
    TOOLS_MARK_THINK_OPEN,
    TOOLS_MARK_THINK_CLOSE,
    TOOLS_MARK_ARGS,       /* [ARGS] */
    TOOLS_MARK_CALL_ID,    /* [CALL_ID] */
    TOOLS_MARK_PYTHON_TAG, /* <|python_tag|> */
    TOOLS_MARK_QUOTE,      /* around strings */
    TOOLS_N_MARKERS
};

/* The text of a marker in a style; "" if the style has none. Borrowed from the style. */
const char *tools_marker_text(const struct tools_style *style, enum tools_marker marker);

/*
 * How the markers reach the reader. One that is a token of the vocabulary (id >= 0) is recognised
 * by its id alone: its bytes in other tokens are text. control: the token is a control token, which
 * is not shown if no call follows it.
 */
struct tools_markers {
    int32_t id[TOOLS_N_MARKERS]; /* -1: by its bytes */
    bool control[TOOLS_N_MARKERS];
    int32_t think_close_ids[TOOLS_TEXT_BYTES]; /* that spell the closing marker of reasoning, */
    int n_think_close_ids;                     /* 0: not known */
};

/* ---- requests ------------------------------------------------------------------------------ */

enum { TOOLS_MAX_TOOLS = 128, TOOLS_MAX_NAME = 64, TOOLS_MAX_CALLS = 64 };

/* A tool as the request has it; borrowed. */
struct tools_tool {
    const char *name;
    size_t name_len;    /* 1 .. TOOLS_MAX_NAME of A-Z a-z 0-9 _ - . */
    const char *schema; /* JSON text of the parameters' schema; NULL: any object */
    size_t schema_len;
    const char *pointer; /* of the schema in the request, for errors; NULL: nothing */
    bool strict;
    bool excluded; /* not in the language of the guide: a tool that tool_choice does not name */
};

enum tools_choice {
    TOOLS_CHOICE_NONE, /* calls are not read */
    TOOLS_CHOICE_AUTO,
    TOOLS_CHOICE_REQUIRED, /* also a named function, with all others excluded and `once` set */
};

struct tools_request {
    const struct tools_style *style;
    const struct tools_tool *tools;
    size_t n_tools;
    bool any_name; /* the tools are not known: every name is one; n_tools is 0 */
    enum tools_choice choice;
    bool one_call;     /* parallel_tool_calls: false */
    bool once;         /* the guide's language ends after one call; set with one_call too */
    bool no_reasoning; /* reasoning_format: none */
    bool answer_begun; /* no reasoning block can begin where the guide rules what follows it */
};

bool tools_name_valid(const char *name, size_t len);

/* The part of a request that reading needs. Copies; returns owned: tools_set_destroy. Every schema
 * must be valid JSON. Returns 0, TOK_EINVAL (a name is invalid or used twice, or too many tools) or
 * TOK_ENOMEM. */
struct tools_set;
int tools_set_create(struct tools_set **ret, const struct tools_request *request);
void tools_set_destroy(struct tools_set *s);

/* ---- prompts ------------------------------------------------------------------------------- */

enum tools_thinking { TOOLS_THINKING_UNSAID, TOOLS_THINKING_ON, TOOLS_THINKING_OFF };

/* The input of a rendering; borrowed. Every text is JSON, or NULL if absent. */
struct tools_prompt_params {
    const struct tools_style *style;
    const char *messages;         /* array, as tok_chat_input has it */
    const char *tools;            /* array of {"name", "description"?, "parameters"?} to be shown */
    const char *server_kwargs;    /* object: --chat-template-kwargs */
    enum tools_thinking thinking; /* overrides them as enable_thinking */
    const char *effort;           /* likewise as reasoning_effort; a word, not JSON */
    const char *kwargs;           /* object: chat_template_kwargs of the request, overrides all */
    bool add_generation_prompt, continue_final_message; /* as in tok_chat_input */
};

/* A prompt and how the answer begins. Owned: tok_prompt_finish(&p->prompt). */
struct tools_prompt {
    struct tok_prompt prompt;
    bool think_open;   /* it ends inside a reasoning block */
    bool think_closed; /* it ends after one */
    bool begun;        /* it ends with a beginning of the answer that the request gave */
};

/* Renders the messages with their tools in the way of the style: what generation, /apply-template,
 * /tokenize and counting have in common. Errors as tok_chat_render. */
int tools_prompt_render(struct tools_prompt *ret, const struct tok_chat *chat,
                        const struct tools_prompt_params *params, char *err, size_t errlen);

/* ---- reading ------------------------------------------------------------------------------- */

enum tools_event_type {
    TOOLS_REASONING,      /* text */
    TOOLS_CONTENT,        /* text */
    TOOLS_CALL_BEGIN,     /* text: the name; id if the model wrote one */
    TOOLS_CALL_ARGUMENTS, /* text: the next bytes of a JSON object */
    TOOLS_CALL_END,       /* complete */
};

/* Texts are never empty and hold whole characters if the input is UTF-8. Borrowed for the call. */
struct tools_event {
    enum tools_event_type type;
    const char *text;
    size_t len;
    uint64_t offset; /* of text in what was fed, markers with their length; content, reasoning */
    uint32_t index;  /* of the call, from 0 */
    const char *id;  /* NULL: none */
    size_t id_len;
    bool complete; /* the arguments were closed */
};

typedef void (*tools_event_fn)(void *ctx, const struct tools_event *event);

struct tools_reader_params {
    const struct tools_set *set;         /* borrowed */
    const struct tools_markers *markers; /* copied */
    bool guided;                         /* a guide holds in calls: they go out while they come */
    bool think_open;                     /* the prompt ended inside a reasoning block */
    bool begun;      /* the prompt holds a beginning of the answer: no reasoning block can begin */
    size_t max_held; /* bytes held back at most; a call that is longer is content */
    tools_event_fn on_event;
    void *ctx;
};

/* The most that the filter holds back, and a value that is enough for guided text: there only
 * calls whose id follows the arguments, and forms outside of the guide, are held back. */
enum { TOOLS_MAX_HELD = 1 << 20, TOOLS_GUIDED_HELD = 1 << 16 };

struct tools_reader;

/* Bytes of memory, aligned to 16, that a reader needs. Nothing else is ever allocated. */
size_t tools_reader_bytes(size_t max_held);

/* Begins an answer. `memory` belongs to the caller, who just drops it at the end. */
struct tools_reader *tools_reader_init(void *memory, const struct tools_reader_params *params);

/* Text that is not one of the marker tokens, cut anywhere. Events come during the calls. */
void tools_reader_text(struct tools_reader *r, const char *text, size_t len);

/* A marker token. */
void tools_reader_marker(struct tools_reader *r, enum tools_marker marker);

/* The end of the answer: gives out or drops the held text. A call that is open ends incomplete. */
void tools_reader_end(struct tools_reader *r);

/* Returns true inside a reasoning block. A token counts as reasoning if this is true before or
 * after it. */
bool tools_reader_reasoning(const struct tools_reader *r);

/* ---- guiding ------------------------------------------------------------------------------- */

/*
 * The language of an answer: auto, free text with calls; without tools, content; required, calls
 * alone; all after a reasoning block if the style has one. think_open: the prompt ended inside
 * one. content: language of the text that is not a call, instead of free text; NULL: free. Markers
 * with an id are spelled as the vocabulary spells special tokens, 0xFF and their text (struct
 * gram_part). Not for TOOLS_CHOICE_NONE. Returns 0 or the code in *err; *ret is owned:
 * gram_release.
 */
int tools_compile(struct gram **ret, const struct gram_vocab *vocab,
                  const struct tools_request *request, const struct tools_markers *markers,
                  bool think_open, const struct gram_part *content,
                  const struct gram_options *options, struct gram_error *err);

/* The functions below have the form of the engine's struct eng_guide; the values are the same. */
enum tools_next {
    TOOLS_NEXT_FREE,
    TOOLS_NEXT_MASK,
    TOOLS_NEXT_END,
    TOOLS_NEXT_FAIL,
    TOOLS_NEXT_LATER,
};

enum { TOOLS_CAPTURE_THOUGHT = 1 }; /* the grammar's number of the text in a reasoning block */

struct tools_guide;

/* Bytes of memory, aligned to 64, that a guide needs. */
size_t tools_guide_bytes(void);

/*
 * Puts a guide at the beginning of an answer. Borrows the grammar; auto_free: the request's choice
 * is auto and no content language was given, so that free text needs no masks where the markers
 * are tokens. think_budget: tokens after which a reasoning block is closed; negative: any number.
 * markers: copied; NULL: the whole answer is of the grammar.
 */
struct tools_guide *tools_guide_init(void *memory, const struct gram *gram,
                                     const struct tools_markers *markers, bool auto_free,
                                     bool think_open, int64_t think_budget);

/* bits: gram_vocab_mask_words() words; untouched if the next token is free. End ids of the
 * vocabulary are set where the answer may end. pace: see gram_mask_paced. */
enum tools_next tools_guide_mask(struct tools_guide *g, uint64_t *bits, struct gram_pace *pace);
bool tools_guide_take(struct tools_guide *g, int32_t id);
bool tools_guide_complete(const struct tools_guide *g);
size_t tools_guide_forced(struct tools_guide *g, int32_t *ids, size_t n); /* see gram_forced */
uint64_t tools_guide_mark(struct tools_guide *g);
void tools_guide_rollback(struct tools_guide *g, uint64_t mark);

/* Of the grammar, borrowed; it is moved by the calls above alone. */
struct gram_state *tools_guide_state(struct tools_guide *g);
