/* SPDX-License-Identifier: MIT */
/*
 * The parts of a tokenizer, shared by the files that load, encode and decode. Const after tok_open.
 */
#pragma once

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decode.h"
#include "tokenizer/normalize.h"
#include "tokenizer/postprocess.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/tok_types.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"
#include "tokenizer/vocab.h"
#include "tokenizer/wordpiece.h"

enum tok_model { TOK_MODEL_BPE, TOK_MODEL_WORDPIECE, TOK_MODEL_UNIGRAM };

struct tok {
    struct tok_uni uni;
    struct tok_vocab vocab;
    enum tok_model model; /* which of the next three is used; the others are zeroed */
    struct tok_bpe bpe;
    struct tok_wordpiece wordpiece;
    struct tok_unigram unigram;
    struct tok_added added;
    struct tok_normalizer normalizer;
    struct tok_pretok pretok;
    struct tok_post post;
    struct tok_decode_plan decode;
    uint8_t fingerprint[32];
    char source[40]; /* of tok_source, or "" */
};

/* Fills a zeroed t from the text of a tokenizer.json. TOK_EINVAL: err says the fault. */
int tok_load(struct tok *t, const char *text, size_t len, char *err, size_t errlen);
