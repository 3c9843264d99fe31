/* SPDX-License-Identifier: MIT */
/*
 * A vocabulary for tests of grammars: id 0 ends an answer, ids 1 to 256 are the bytes 0 to 255 but
 * for two that no token spells, and the rest are tokens of several bytes, cut in awkward places,
 * and three special tokens. And a language of tool calls that uses them.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/grammar/grammar.h"

static const char *const toy_words[] = {
    "ab",         "abc",
    "hello",      "the",
    " a",         "aa",
    "aaa",        "aaaaaaaa",
    "name",       "true",
    "false",      "null",
    "ue",         "alse",
    "12",         "00",
    "1.5",        "-1",
    "e+",         ".0",
    "2024-",      "-02-",
    "T12",        ":00",
    "\"}",        "\",",
    "\", \"",     "\":",
    "\": ",       "\": \"",
    "{\"",        "{}",
    "[]",         "[1",
    "},",         "}}",
    "]}",         "\"]",
    "\",\"",      ", ",
    "\n",         "\n  ",
    "\n\n",       "    ",
    " {",         " [",
    "\\n",        "\\\"",
    "\\u",        "\\u00",
    "d83",        "\\ud83d",
    "\xc3\xa4",   "\xc3\xa4\xc3\xb6",
    "\xe2\x82",   "\xe2\x82\xac",
    "\xac\"",     "\xf0\x9f\x98\x80",
    "\xf0\x9f",   "a\":",
    "b\":1,\"",   "x\"",
    "ab\",",      "/*",
    "*/",         "()",
    ");",         "+1",
    "hello",      " ",
    "\xff<call>", "\xff</call>",
    "\xff<",      "\n</p>",
};

enum {
    TOY_END = 0,
    TOY_BYTES = 1,
    TOY_WORDS = 257,
    TOY_IDS = TOY_WORDS + sizeof(toy_words) / sizeof(toy_words[0])
};
enum { TOY_MASK_WORDS = (TOY_IDS + 63) / 64 };

/* Never spelled: they begin characters beyond U+3FFFF that real vocabularies lack too. */
static inline bool toy_lacks(int32_t byte)
{
    return byte == 0xF1 || byte == 0xF2;
}

static inline size_t toy_bytes(void *ctx, int32_t id, char *buf, size_t size)
{
    (void)ctx;
    (void)size;
    if (id < TOY_BYTES) return 0;
    if (id < TOY_WORDS) {
        buf[0] = (char)(id - TOY_BYTES);
        return !toy_lacks(id - TOY_BYTES);
    }
    const char *word = toy_words[id - TOY_WORDS];
    memcpy(buf, word, strlen(word));
    return strlen(word);
}

static inline struct gram_vocab *toy_vocab(void)
{
    static const int32_t end[] = {TOY_END};
    struct gram_vocab *v = NULL;
    struct gram_vocab_params params = {
        .n_ids = TOY_IDS, .bytes = toy_bytes, .end_ids = end, .n_end_ids = 1};
    if (gram_vocab_create(&v, &params)) abort();
    return v;
}

static inline bool toy_allows(const uint64_t *bits, int32_t id)
{
    return bits[id / 64] >> id % 64 & 1;
}

/* ---- calls of tools ------------------------------------------------------------------------ */

#define TOY_TEXT(s) .text = (s), .len = sizeof(s) - 1
#define TOY_LITERAL(s, ...)                                                                        \
    {                                                                                              \
        .kind = GRAM_LITERAL, TOY_TEXT(s), __VA_ARGS__                                             \
    }
#define TOY_TREE(tree, list, ...)                                                                  \
    {                                                                                              \
        .kind = (tree), .kids = (list), .n_kids = sizeof(list) / sizeof((list)[0]), __VA_ARGS__    \
    }

/* What capture numbers mean. */
enum { TOY_NAME = 1, TOY_ARGUMENTS, TOY_VALUE, TOY_CALL };

static const struct gram_part toy_add[] = {
    TOY_LITERAL("add", .capture = TOY_NAME),
    TOY_LITERAL("\", \"a\": "),
    {.kind = GRAM_SCHEMA,
     .types = "\"object\"",
     .capture = TOY_ARGUMENTS,
     .pointer = "/tools/0/p",
     TOY_TEXT("{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],"
              "\"additionalProperties\":false}")},
};
static const struct gram_part toy_add_all[] = {
    TOY_LITERAL("add_all", .capture = TOY_NAME),
    TOY_LITERAL("\", \"a\": "),
    {.kind = GRAM_JSON_OBJECT, .capture = TOY_ARGUMENTS},
};
static const struct gram_part toy_say[] = {
    TOY_LITERAL("say", .capture = TOY_NAME),
    TOY_LITERAL("\">"),
    {.kind = GRAM_UNTIL, TOY_TEXT("\n</p>"), .capture = TOY_VALUE},
    TOY_LITERAL("\n</p>"),
    {.kind = GRAM_REGEX, TOY_TEXT("[a-c]{2}")},
};
static const struct gram_part toy_either[] = {
    TOY_TREE(GRAM_SEQUENCE, toy_add),
    TOY_TREE(GRAM_SEQUENCE, toy_add_all),
    TOY_TREE(GRAM_SEQUENCE, toy_say),
};
static const struct gram_part toy_call[] = {
    TOY_LITERAL("\xff<call>{\"name\": \""),
    TOY_TREE(GRAM_EITHER, toy_either),
    TOY_LITERAL("}\xff</call>"),
};
static const struct gram_part toy_rounds[] = {
    TOY_TREE(GRAM_SEQUENCE, toy_call, .capture = TOY_CALL),
    TOY_LITERAL("\n"),
};

/* One to three calls, a newline between them. */
static const struct gram_part toy_calls = TOY_TREE(GRAM_REPEAT, toy_rounds, .min = 1, .max = 3);

/* ---- compiling ----------------------------------------------------------------------------- */

/* A part of a kind that has a text, or the calls above for GRAM_REPEAT. */
static inline struct gram_part toy_part(enum gram_kind kind, const char *text)
{
    if (kind == GRAM_REPEAT) return toy_calls;
    return (struct gram_part){.kind = kind, .text = text, .len = strlen(text)};
}

static inline struct gram *toy_compile_part(const struct gram_vocab *v,
                                            const struct gram_part *part,
                                            const struct gram_options *options)
{
    struct gram *g = NULL;
    struct gram_error err;
    if (gram_compile_parts(&g, v, part, options, &err)) {
        fprintf(stderr, "%.80s: %s\n", part->text ? part->text : "a tree", err.message);
        abort();
    }
    return g;
}

static inline struct gram *toy_compile(const struct gram_vocab *v, enum gram_kind kind,
                                       const char *text, const struct gram_options *options)
{
    struct gram_part part = toy_part(kind, text);
    return toy_compile_part(v, &part, options);
}

static inline void *toy_state_memory(void)
{
    void *memory = aligned_alloc(64, gram_state_bytes());
    if (!memory) abort();
    return memory;
}

/* xorshift64*: the tests' own draws, the same everywhere. */
static inline uint32_t toy_draw(uint64_t *seed, uint32_t n)
{
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    return (uint32_t)((*seed * 0x2545F4914F6CDD1Du >> 33) % n);
}
