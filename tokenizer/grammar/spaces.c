/* SPDX-License-Identifier: MIT */
/*
 * The automaton of white space. The rule: nothing, one blank, or one or two newlines and at most 20
 * blanks or tabs. A pattern of the request is followed for at most 200 characters.
 */

#include <assert.h>
#include <string.h>

#include "tokenizer/grammar/compiled.h"
#include "tokenizer/grammar/front/ecma_regex.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/grammar/vocab.h"

enum { MAX_LENGTH = 200, MAX_PATTERN_BYTES = 1024 };

static const char rule[] = " ?|\\n\\n?[ \\t]{0,20}", characters[4] = {' ', '\n', '\t', '\r'};

/* The pattern, and the length, if that is the other part. */
static uint32_t both(const void *ctx, uint64_t matched)
{
    (void)ctx;
    return matched == 3;
}

static struct gram_dfa *pattern_dfa(struct gram_build *b, const char *text, size_t len)
{
    static const struct gram_regex_source source = {.what = "whitespace_pattern"};
    uint64_t spaces[4] = {0};
    if (len > MAX_PATTERN_BYTES)
        gram_fail(b, GRAM_EGRAMMAR, "whitespace_pattern: %zu bytes; at most %d.", len,
                  MAX_PATTERN_BYTES);
    for (int i = 0; i < 4; i++)
        spaces[0] |= b->vocab->spellable[0] & (uint64_t)1 << characters[i];
    struct gram_ex_part parts[2] = {{.x = gram_regex_parse(b, text, len, &source)},
                                    {.x = gram_ex_rep(b, gram_ex_any(b), 0, MAX_LENGTH)}};
    struct gram_dfa_params params = {
        .parts = parts, .n_parts = 1, .max = GRAM_INFINITE, .spellable = spaces};
    if (text != rule) params.n_parts = 2, params.outcome = both; /* that has an end of its own */
    struct gram_dfa *d = gram_dfa_build(b, &params);
    if (!d && text != b->options->whitespace_pattern)
        gram_fail_limit(b, b->max_steps, "compile steps");
    if (!d) gram_fail(b, GRAM_EGRAMMAR, "whitespace_pattern: too complex.");
    if (!d->n_states) gram_fail(b, GRAM_EGRAMMAR, "whitespace_pattern: it admits no white space.");
    return d;
}

void gram_spaces_build(struct gram_build *b, struct gram_spaces *ret)
{
    const struct gram_options *o = b->options;
    const char *text = o->whitespace_pattern ? o->whitespace_pattern : rule;
    size_t len = o->whitespace_pattern ? o->whitespace_pattern_len : strlen(rule);
    ret->styled = o->styled && !o->no_whitespace && !o->whitespace_pattern;
    if (ret->styled || o->no_whitespace) return;
    ret->dfa = pattern_dfa(b, text, len);
    ret->n = ret->dfa->n_states;
    assert(ret->dfa->start == 0);
}
