/* SPDX-License-Identifier: MIT */
/*
 * The automaton of white space. The rule: nothing, one blank, or one or two newlines and at most 20
 * blanks or tabs. A pattern of the request is followed for at most 200 characters.
 */

#include <string.h>

#include "tokenizer/grammar/compiled.h"
#include "tokenizer/grammar/front/ecma_regex.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/grammar/vocab.h"

enum { MAX_LENGTH = 200, MAX_PATTERN_BYTES = 1024, MAX_STATES = 8000 };

static const char rule[] = " ?|\\n\\n?[ \\t]{0,20}", characters[4] = {' ', '\n', '\t', '\r'};

static struct gram_dfa *pattern_dfa(struct gram_build *b, const char *text, size_t len)
{
    static const struct gram_regex_source source = {.what = "whitespace_pattern"};
    uint64_t spaces[4] = {0};
    if (len > MAX_PATTERN_BYTES)
        gram_fail(b, GRAM_EGRAMMAR, "whitespace_pattern: %zu bytes; at most %d.", len,
                  MAX_PATTERN_BYTES);
    for (int i = 0; i < 4; i++)
        spaces[0] |= b->vocab->spellable[0] & (uint64_t)1 << characters[i];
    struct gram_ex_part part = {.x = gram_regex_parse(b, text, len, &source)};
    struct gram_dfa_params params = {
        .parts = &part, .n_parts = 1, .max = MAX_LENGTH, .spellable = spaces};
    if (text == rule) params.max = GRAM_INFINITE; /* it has an end of its own */
    struct gram_dfa *d = gram_dfa_build(b, &params);
    if (!d && text != b->options->whitespace_pattern)
        gram_fail_limit(b, b->max_steps, "compile steps");
    if (!d) gram_fail(b, GRAM_EGRAMMAR, "whitespace_pattern: too complex.");
    if (!d->n_states) gram_fail(b, GRAM_EGRAMMAR, "whitespace_pattern: it admits no white space.");
    return d;
}

/* States of the automaton with their lengths, in the order they are found. */
struct search {
    struct gram_build *b;
    const struct gram_dfa *d;
    struct gram_dfa_place *places;
    uint16_t *number; /* [n_states][MAX_LENGTH + 1] -> place + 1 */
    uint32_t n, cap;
};

static uint16_t number_of(struct search *s, struct gram_dfa_place p)
{
    uint16_t *number = &s->number[p.q * (MAX_LENGTH + 1) + p.n];
    if (*number) return (uint16_t)(*number - 1);
    if (s->n == MAX_STATES) gram_fail(s->b, GRAM_EGRAMMAR, "whitespace_pattern: too complex.");
    s->places = gram_grow(s->b, s->places, s->n, &s->cap, sizeof(*s->places));
    s->places[s->n++] = p;
    *number = (uint16_t)s->n;
    return (uint16_t)(s->n - 1);
}

void gram_spaces_build(struct gram_build *b, struct gram_spaces *ret)
{
    const struct gram_options *o = b->options;
    const char *text = o->whitespace_pattern ? o->whitespace_pattern : rule;
    size_t len = o->whitespace_pattern ? o->whitespace_pattern_len : strlen(rule);
    ret->styled = o->styled && !o->no_whitespace && !o->whitespace_pattern;
    if (ret->styled || o->no_whitespace) return;
    struct search s = {.b = b, .d = pattern_dfa(b, text, len)};
    uint16_t(*next)[4] = gram_temp_array(b, MAX_STATES, sizeof(*next));
    uint8_t *ends = gram_temp(b, MAX_STATES);
    s.number = gram_temp_array(b, (size_t)s.d->n_states * (MAX_LENGTH + 1), sizeof(*s.number));
    number_of(&s, (struct gram_dfa_place){s.d->start, 0, 0});
    for (uint32_t i = 0; i < s.n; i++) {
        ends[i] = s.d->outcome[s.places[i].q] != 0;
        for (int k = 0; k < 4; k++) {
            struct gram_dfa_place p = s.places[i];
            next[i][k] = GRAM_DFA_DEAD;
            if (gram_dfa_take(s.d, &p, (uint8_t)characters[k]) == GRAM_DFA_STEP_ON)
                next[i][k] = number_of(&s, p);
        }
        gram_steps(b, 1);
    }
    ret->next = gram_keep_copy(b, next, s.n, sizeof(*next));
    ret->ends = gram_keep_copy(b, ends, s.n, 1);
    ret->n = s.n;
}
