/* SPDX-License-Identifier: MIT */
/*
 * Text <-> token ids and chat messages -> prompt: the whole of what the server knows of this library.
 *
 * The library reads tokenizer.json (struct tok) and chat templates (struct tok_chat), and nothing
 * else of a model directory. It knows neither tensors nor HTTP; JSON crosses this header as text.
 * It does not log, does not exit, and keeps no global state.
 *
 * Threads: an opened tok or tok_chat is immutable and may be used from any number of threads at
 * once. A tok_decoder belongs to one thread at a time.
 *
 * Errors: functions return 0 or a negative enum tok_error. Where an `err` buffer is given, a failed
 * call leaves one sentence for a human in it. Outputs (ret_...) are written only on success.
 */
#ifndef HEARTH_TOKENIZER_H
#define HEARTH_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tok_error {
    TOK_EINVAL = -1, /* the file or the request is wrong; err says what */
    TOK_ENOMEM = -2,
    TOK_EIO = -3,    /* a file cannot be read */
    TOK_ENOENT = -4, /* the file, or the thing asked for, is not there */
    TOK_ELIMIT = -5, /* a budget (steps, depth, output) ran out */
    TOK_EUTF8 = -6,  /* the text is not valid UTF-8 */
    TOK_ERAISE = -7, /* the template called raise_exception; err holds its message */
};

struct tok;
struct tok_decoder;
struct tok_chat;

/* A growable list of token ids. Zero-initialise, fill by the calls below, tok_ids_finish at the end. */
struct tok_ids {
    int32_t *ids;
    size_t n;
    size_t cap;
};

void tok_ids_finish(struct tok_ids *ids);

/* Bytes [begin, end) of a text. */
struct tok_range {
    size_t begin;
    size_t end;
};

/* ---- tokenizer ----------------------------------------------------------------------------- */

/* Reads DIR/tokenizer.json. An unknown component is refused with its name. Returns owned: tok_close. */
int tok_open(struct tok **ret, const char *dir, char *err, size_t errlen);

/* NULL is fine. */
void tok_close(struct tok *t);

enum tok_encode_flags {
    TOK_ADD_SPECIAL = 1,   /* run the post-processor: begin-of-text and its like are added */
    TOK_PARSE_SPECIAL = 2, /* special tokens written in the text become their ids */
};

/*
 * Appends the ids of text[0..len) to *ids. Without TOK_PARSE_SPECIAL special tokens in the text are
 * plain text (added tokens that are not special are still recognised, as the reference does).
 * The time is O(n log n) at worst. TOK_EUTF8 for invalid UTF-8.
 */
int tok_encode(const struct tok *t, const char *text, size_t len, unsigned flags,
               struct tok_ids *ids, char *err, size_t errlen);

/*
 * The same for text of which some ranges came from outside: a special token is recognised only
 * where none of its bytes lies in a range. Ranges are sorted and do not overlap. Apart from that the
 * text is encoded as one piece, so harmless input gives the ids of the plain call.
 */
int tok_encode_marked(const struct tok *t, const char *text, size_t len,
                      const struct tok_range *input, size_t n_input, unsigned flags,
                      struct tok_ids *ids, char *err, size_t errlen);

/* One more than the largest id, added tokens included. */
int32_t tok_vocab_size(const struct tok *t);

/* The id of a token by its exact content (added tokens first), or -1. */
int32_t tok_token_id(const struct tok *t, const char *content, size_t len);

/* Whether the id is an added token marked special (control token). False for ids out of range. */
bool tok_is_special(const struct tok *t, int32_t id);

/* Whether the id names a token at all (vocabularies may have holes). */
bool tok_has_id(const struct tok *t, int32_t id);

/*
 * The raw bytes one token stands for, as they would stand in the middle of a text; they need not be
 * UTF-8 alone. Copies at most size bytes, returns the full length, or 0 for an id that is none.
 */
size_t tok_token_bytes(const struct tok *t, int32_t id, char *buf, size_t size);

/* The token as the vocabulary file spells it (byte alphabet and space marks untouched). Borrowed from t. */
const char *tok_token_string(const struct tok *t, int32_t id, size_t *ret_len);

/* SHA-256 of tokenizer.json, 32 bytes, borrowed from t. */
const uint8_t *tok_fingerprint(const struct tok *t);

/* ---- decoding ------------------------------------------------------------------------------ */

/* A decoder of one stream of ids. Borrows t until destroyed. Returns owned: tok_decoder_destroy. */
int tok_decoder_create(struct tok_decoder **ret, const struct tok *t, bool skip_special);
void tok_decoder_destroy(struct tok_decoder *d);

/* Forgets the stream; the decoder is as new. */
void tok_decoder_reset(struct tok_decoder *d);

/*
 * Takes the next id and gives out every character that is now complete; never half a character,
 * nothing complete is held back. Invalid bytes come out as U+FFFD by the reference's rules. The text
 * is valid UTF-8, may be empty, and is borrowed until the next call. Ids that are no token are skipped.
 */
int tok_decoder_push(struct tok_decoder *d, int32_t id, const char **ret_text, size_t *ret_len);

/* End of the stream: gives out what was held back. Borrowed as above. */
int tok_decoder_flush(struct tok_decoder *d, const char **ret_text, size_t *ret_len);

/* All ids at once; the same text as push and flush joined. Returns owned (free), NUL-terminated. */
int tok_decode(const struct tok *t, const int32_t *ids, size_t n, bool skip_special,
               char **ret_text, size_t *ret_len);

/* ---- chat ---------------------------------------------------------------------------------- */

/*
 * The source of a template and the bounds of one render. Zero is the default of every field.
 *
 * Steps are the bound that decides: they are counted, so the same messages are accepted or refused
 * on every machine, however busy. The worst templates known take 2 million of them in 180 ms;
 * processor time is a last resort for slower machines, and wall time is never looked at. With the
 * templates of known model families 4,096 messages with a megabyte of text take at most 740,000
 * steps, 22 MiB and 40 ms.
 */
struct tok_chat_params {
    /* instead of the directory's own; NULL: chat_template.jinja, then tokenizer_config.json */
    const char *template_file;
    size_t max_output_bytes; /* 0: 16 MiB */
    size_t max_memory_bytes; /* 0: 64 MiB, the messages and the text included */
    uint64_t max_steps;      /* 0: 2 million evaluation steps */
    unsigned max_cpu_ms;     /* 0: 250 ms of the calling thread */
};

/*
 * Reads and parses the chat template of a model directory and probes what the server must do around
 * it (system role, null content, content parts, arguments as object or string). TOK_ENOENT: the
 * directory has no template. TOK_EINVAL: it does not parse; err has the line. Returns owned.
 */
int tok_chat_open(struct tok_chat **ret, const char *dir, const struct tok_chat_params *params,
                  char *err, size_t errlen);
void tok_chat_close(struct tok_chat *c);

struct tok_chat_input {
    const char *messages; /* JSON array; required unless context is set */
    const char *tools;    /* JSON array or NULL (none) */
    const char *kwargs;   /* JSON object of further variables, or NULL */
    const char *context;  /* JSON object: the template's whole set of variables, or NULL */
    bool add_generation_prompt;
    bool continue_final_message; /* the last message is left open; excludes add_generation_prompt */
    bool verbatim; /* messages reach the template as they stand; otherwise they are first
                                 brought to what the probing at load found this template to need */
};

/* A rendered prompt; `input` are the ranges of text that came from the request. */
struct tok_prompt {
    char *text;
    size_t len;
    struct tok_range *input;
    size_t n_input;
};

/*
 * Renders. TOK_ERAISE: the template refused the messages; err is its own message. TOK_EINVAL: the
 * template failed on them. TOK_ELIMIT: a budget ran out. *ret is owned: tok_prompt_finish.
 */
int tok_chat_render(const struct tok_chat *c, const struct tok_chat_input *in,
                    struct tok_prompt *ret, char *err, size_t errlen);
void tok_prompt_finish(struct tok_prompt *p);

/* Template source, borrowed, NUL-terminated: for /props. */
const char *tok_chat_source(const struct tok_chat *c);

/* What probing found, for /props and the server's own checks. */
struct tok_chat_caps {
    bool system_role;      /* a system message is accepted */
    bool null_content;     /* content: null is accepted */
    bool content_parts;    /* content as a list of parts is understood */
    bool tools;            /* tools change the output */
    bool object_arguments; /* tool-call arguments are wanted as an object, not as JSON text */
};
const struct tok_chat_caps *tok_chat_caps(const struct tok_chat *c);

#endif
