/* SPDX-License-Identifier: MIT */
/*
 * Text <-> token ids. The library reads a model directory's tokenizer.json, or what a GGUF file has
 * in its place; it knows neither chats (tokenizer/chat/chat.h) nor tensors nor HTTP. It does not
 * log, does not exit, and keeps no global state.
 *
 * Threads: an opened tok is immutable and may be used from any number of threads at once. A
 * tok_decoder belongs to one thread at a time.
 *
 * Errors: functions return 0 or a negative enum tok_error. Where an `err` buffer is given, a failed
 * call leaves one sentence for a human in it. Outputs (ret_...) are written only on success.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/tok_types.h"

struct tok;
struct tok_decoder;

/* ---- tokenizer ----------------------------------------------------------------------------- */

/*
 * Reads DIR/tokenizer.json. Refuses an unknown component by its name. Returns owned: tok_close.
 * `model` may also be a GGUF file: then it is the tokenizer.json of the folder that goes with it
 * (base/gguf_names.h), or what its keys give.
 */
int tok_open(struct tok **ret, const char *model, char *err, size_t errlen);

/* With the tokenizer.json of dir, unless dir is NULL. It must have a GGUF file's tokens. */
int tok_open_from(struct tok **ret, const char *model, const char *dir, char *err, size_t errlen);

/* NULL is fine. */
void tok_close(struct tok *t);

enum tok_encode_flags {
    TOK_ADD_SPECIAL = 1,   /* run the post-processor, which adds begin-of-text and the like */
    TOK_PARSE_SPECIAL = 2, /* special tokens written in the text become their ids */
};

/*
 * Appends the ids of text[0..len) to *ids. Without TOK_PARSE_SPECIAL special tokens in the text are
 * plain text (added tokens that are not special are still recognised, as the reference does).
 * The time is O(n log n) at worst, or O(n) times the longest token for WordPiece and Unigram.
 * TOK_EUTF8 for invalid UTF-8.
 */
int tok_encode(const struct tok *t, const char *text, size_t len, unsigned flags,
               struct tok_ids *ids, char *err, size_t errlen);

/*
 * The same for text of which some ranges came from outside: a special token is recognised only
 * if none of its bytes lies in a range. Ranges are sorted and do not overlap. Apart from that
 * the text is encoded as one piece, so harmless input gives the ids of the plain call.
 */
int tok_encode_marked(const struct tok *t, const char *text, size_t len,
                      const struct tok_range *input, size_t n_input, unsigned flags,
                      struct tok_ids *ids, char *err, size_t errlen);

/*
 * The number of special tokens that tok_join adds to one text, or to a pair: what a limit on tokens
 * leaves for the texts is the limit less these.
 */
size_t tok_n_special(const struct tok *t, bool pair);

/* Of those around one text, which TOK_ADD_SPECIAL adds too, how many are on each side of it. */
void tok_special_around(const struct tok *t, size_t *ret_before, size_t *ret_after);

/*
 * Appends the ids of a text a (b is NULL), or of two texts, with the special tokens that the model
 * expects around and between them. a and b are from tok_encode without TOK_ADD_SPECIAL, cut as the
 * caller likes. The first *ret_n_first of the appended ids have token type 0, the others 1.
 * TOK_EINVAL for a pair if the tokenizer has no form for pairs that is supported.
 */
int tok_join(const struct tok *t, const struct tok_ids *a, const struct tok_ids *b,
             struct tok_ids *ids, size_t *ret_n_first, char *err, size_t errlen);

/*
 * Cuts the lengths of two texts to `room` ids together, the longer one first, as the reference
 * does: if both are cut and room is odd, the one that was longer, or else b, keeps one more.
 */
void tok_cut_pair(size_t room, size_t *n_a, size_t *n_b);

/* One more than the largest id, added tokens included. */
int32_t tok_vocab_size(const struct tok *t);

/* The id of a token by its exact content (added tokens first), or -1. */
int32_t tok_token_id(const struct tok *t, const char *content, size_t len);

/* Returns true if the id is an added token marked special (control token); false out of range. */
bool tok_is_special(const struct tok *t, int32_t id);

/*
 * The raw bytes that one token contributes in the middle of a text; they need not be UTF-8 by
 * themselves. Copies at most size bytes, returns the full length, or 0 for an id that is none.
 */
size_t tok_token_bytes(const struct tok *t, int32_t id, char *buf, size_t size);

/* The token as in the vocabulary file, with byte alphabet and space marks, borrowed from t; NULL if
 * the id is none. */
const char *tok_token_string(const struct tok *t, int32_t id, size_t *ret_len);

/*
 * Compares the tables of two tokenizers. Returns true if each id that both have stands for the same
 * bytes, with the same spelling, and is of the same kind (added, special); then bits has
 * those ids: (tok_vocab_size(a) + 63) / 64 words. Else err names the first id that differs, with
 * both spellings.
 */
bool tok_fits(const struct tok *a, const struct tok *b, uint64_t *bits, char *err, size_t errlen);

/* The source of a GGUF file's tokenizer: "tokenizer.json", a key, or "rule smollm", by which it is
 * built; NULL for a directory's. */
const char *tok_source(const struct tok *t);

/* SHA-256 of the text of tokenizer.json, 32 bytes, borrowed from t. */
const uint8_t *tok_fingerprint(const struct tok *t);

/* ---- filling in the middle ----------------------------------------------------------------- */

enum tok_fim_mark {
    TOK_FIM_PREFIX,
    TOK_FIM_SUFFIX,
    TOK_FIM_MIDDLE,
    TOK_FIM_REPO, /* the name of a repository, its files */
    TOK_FIM_FILE,
    TOK_FIM_PAD, /* as the two before and the next, it ends an answer */
    TOK_FIM_END,
    TOK_FIM_MARKS
};

/* The marks around the texts before and after a hole. The model has them if id[TOK_FIM_PREFIX] is
 * not -1; others are -1 where it does without. */
struct tok_fim {
    int32_t id[TOK_FIM_MARKS];
    const char *text[TOK_FIM_MARKS]; /* of marks that are not special, borrowed; else NULL */
    size_t len[TOK_FIM_MARKS];
    bool suffix_first;
    bool blank; /* the tokenizer puts a blank in front of a text, and a suffix must have none */
};

/*
 * Finds the marks, ids below n_ids, of a family that the table knows, or, with an option that is
 * not NULL, those that it names: "PREFIX,SUFFIX,MIDDLE[,REPO,FILE][,spm]". Borrows from t. 0, also
 * without marks, or TOK_EINVAL for an option with another form or with words that are not tokens.
 */
int tok_fim_find(struct tok_fim *ret, const struct tok *t, int32_t n_ids, const char *option,
                 char *err, size_t errlen);

/* As tok_encode with no flags, but no mark in the text becomes its id. The second: of the text that
 * follows the hole. */
int tok_fim_encode(const struct tok *t, const struct tok_fim *fim, const char *text, size_t len,
                   struct tok_ids *ids, char *err, size_t errlen);
int tok_fim_encode_suffix(const struct tok *t, const struct tok_fim *fim, const char *text,
                          size_t len, struct tok_ids *ids, char *err, size_t errlen);

/* ---- decoding ------------------------------------------------------------------------------ */

/* A decoder of one stream of ids. Borrows t until destroyed. Returns owned: tok_decoder_destroy. */
int tok_decoder_create(struct tok_decoder **ret, const struct tok *t, bool skip_special);
void tok_decoder_destroy(struct tok_decoder *d);

/* Forgets the stream; the decoder is as new. */
void tok_decoder_reset(struct tok_decoder *d);

/*
 * Takes the next id and returns every character that is complete now, and no incomplete one.
 * Invalid bytes become U+FFFD by the reference's rules. The text is valid UTF-8, may be empty, and
 * is borrowed until the next call. Ids that are not tokens are skipped.
 */
int tok_decoder_push(struct tok_decoder *d, int32_t id, const char **ret_text, size_t *ret_len);

/* Ends the stream: returns the text that was held back. Borrowed as above. */
int tok_decoder_flush(struct tok_decoder *d, const char **ret_text, size_t *ret_len);

/* All ids at once; the same text as push and flush joined. Returns owned (free), NUL-terminated. */
int tok_decode(const struct tok *t, const int32_t *ids, size_t n, bool skip_special,
               char **ret_text, size_t *ret_len);
