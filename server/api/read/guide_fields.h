/* SPDX-License-Identifier: MIT */
/*
 * The constraint that a request puts on its answer: a schema, a regular expression, a list of
 * choices or a grammar, in the spellings of OpenAI, vLLM, llama-server, SGLang, TGI and Anthropic.
 *
 * Schemas are taken from the text of the body, not from the parsed tree: the order of their keys
 * counts, and their integers may have any size.
 *
 * Threads: pure; each call works on its caller's data.
 */
#pragma once

#include <jansson.h>

#include "server/api/read/json_fields.h"
#include "tokenizer/grammar/grammar.h"

struct guide_ask {
    const char *param; /* the field that asks; NULL: the answer is free */
    enum gram_kind kind;
    struct srv_span text; /* borrowed from the body */
    struct gram_options options;
    bool any_whitespace;           /* not in one style */
    bool stays_cut;                /* an answer whose tokens run out */
    struct srv_span format;        /* of guide_ask_read_format, as received; text NULL: absent */
    struct param_unknown *unknown; /* borrowed: members without effect are added, or NULL */
    char param_text[PARAM_PATH_MAX];
};

/*
 * Reads the fields of completions and chat completions. Two fields that constrain the answer in
 * different ways are an error; equal ones are the first. Returns 0, or -1 after param_fail.
 */
int guide_ask_read(struct guide_ask *a, const struct srv_body *body);

/*
 * Reads one format object: {"type": "text" | "json_object" | "json_schema", ...} with the schema in
 * it or in its member json_schema, or TGI's {"type": "json" | "regex", "value": ...}. path: where
 * it is in the body ("text.format"), one or two names.
 */
int guide_ask_read_format(struct guide_ask *a, const struct srv_body *body, const char *path);

/* Reads Ollama's `format`: "json", a schema, or nothing. */
int guide_ask_read_ollama(struct guide_ask *a, const struct srv_body *body);
