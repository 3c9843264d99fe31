/* SPDX-License-Identifier: MIT */
/*
 * Takes the dead ends out of a subset automaton, and works out which lengths of text are possible
 * from each state, and which characters leave it as it is.
 *
 * Lengths: row k says from which states some text of exactly k more code points is complete. Row 0
 * are the complete states; row k + 1 follows from row k alone, so the rows repeat after a while.
 */
#include "tokenizer/grammar/dfa.h"

#include <string.h>

#include "base/utf8.h"
#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/expr.h"
#include "tokenizer/grammar/lexer.h"
#include "tokenizer/grammar/subset.h"

enum { MAX_NFA_STATES = 12000, MAX_STATES = 6000, MAX_ROWS = 8192, MAX_ROW_BYTES = 1 << 21 };

/* A subset automaton on its way to a gram_dfa. */
struct maker {
    struct gram_build *b;
    const struct gram_dfa_params *params;
    struct gram_subset *sub;
    uint32_t *outcome; /* [n_states] */
    uint8_t *alive;
    uint16_t *number;        /* [n_states] -> state of the result */
    const uint64_t *spelled; /* classes that can be spelled at all */
};

static bool has_class(const uint64_t *set, uint32_t class)
{
    return set[class / 64] >> class % 64 & 1;
}

/* Marks the states from which an outcome can be reached, backwards until nothing changes. */
static void find_alive(struct maker *m)
{
    uint32_t n = m->sub->n_states, k = m->sub->n_classes;
    bool changed = true;

    for (uint32_t s = 0; s < n; s++)
        m->alive[s] = m->outcome[s] != 0;
    while (changed) {
        changed = false;
        for (uint32_t s = n; s-- > 0;) {
            for (uint32_t c = 0; !m->alive[s] && c < k; c++) {
                if (!has_class(m->spelled, c) || !m->alive[m->sub->next[(size_t)s * k + c]])
                    continue;
                m->alive[s] = 1;
                changed = true;
            }
        }
        gram_steps(m->b, (uint64_t)n * k / 64 + 1);
    }
}

/* Numbers the states that stay. */
static uint32_t number_states(struct maker *m)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < m->sub->n_states; s++)
        m->number[s] = m->alive[s] ? (uint16_t)n++ : GRAM_DFA_DEAD;
    return n;
}

static void copy_states(struct maker *m, struct gram_dfa *d)
{
    uint32_t k = m->sub->n_classes, words = d->decoder.n_words;
    uint16_t *next = gram_keep_array(m->b, (size_t)d->n_states * k, sizeof(*next));
    uint32_t *outcome = gram_keep_array(m->b, d->n_states, sizeof(*outcome));
    uint64_t *live = gram_keep_array(m->b, (size_t)d->n_states * words, sizeof(*live));

    for (uint32_t s = 0; s < m->sub->n_states; s++) {
        uint32_t q = m->number[s];
        if (q == GRAM_DFA_DEAD) continue;
        outcome[q] = m->outcome[s];
        for (uint32_t c = 0; c < k; c++) {
            uint16_t to = m->number[m->sub->next[(size_t)s * k + c]];
            if (!has_class(m->spelled, c)) to = GRAM_DFA_DEAD;
            next[q * k + c] = to;
            if (to != GRAM_DFA_DEAD) live[q * words + c / 64] |= (uint64_t)1 << c % 64;
        }
    }
    d->next = next;
    d->outcome = outcome;
    d->live = live;
}

/* ---- lengths ------------------------------------------------------------------------------- */

static bool row_has(const uint64_t *row, uint32_t q)
{
    return row[q / 64] >> q % 64 & 1;
}

/* Row k + 1 from row k. */
static void step_row(const struct gram_dfa *d, const uint64_t *row, uint64_t *next_row)
{
    for (uint32_t q = 0; q < d->n_states; q++) {
        for (uint32_t c = 0; c < d->n_classes; c++) {
            uint32_t to = gram_dfa_next(d, q, c);
            if (to == GRAM_DFA_DEAD || !row_has(row, to)) continue;
            next_row[q / 64] |= (uint64_t)1 << q % 64;
            break;
        }
    }
}

/* Rows until one comes again, or until no longer text is wanted. False if there are too many. */
static bool find_rows(struct gram_build *b, struct gram_dfa *d)
{
    uint32_t words = d->n_states / 64 + 1, n = 1, cap = 8, limit = MAX_ROWS;
    uint64_t *rows = gram_temp_array(b, cap * words, 8);

    if (d->max < limit) limit = d->max + 1;
    for (uint32_t q = 0; q < d->n_states; q++)
        if (d->outcome[q]) rows[q / 64] |= (uint64_t)1 << q % 64;
    while (d->period == 0) {
        if (n == limit) {
            if (limit == MAX_ROWS) return false;
            break;
        }
        if (n == cap) {
            uint64_t *bigger = gram_temp_array(b, 2 * (size_t)cap * words, 8);
            memcpy(bigger, rows, (size_t)cap * words * 8);
            rows = bigger;
            cap *= 2;
        }
        if ((size_t)n * words * 8 > MAX_ROW_BYTES) return false;
        step_row(d, rows + (n - 1) * words, rows + n * words);
        gram_steps(b, 1 + d->n_states * d->n_classes / 32);
        for (uint32_t k = n; k-- > 0 && !d->period;)
            if (memcmp(rows + k * words, rows + n * words, words * 8) == 0) d->period = n - k;
        gram_steps(b, n * words / 64);
        if (!d->period) n++;
    }
    d->n_rows = n;
    d->row_words = words;
    d->rows = gram_keep_copy(b, rows, (size_t)n * words, 8);
    return true;
}

static const uint64_t *row_at(const struct gram_dfa *d, uint64_t k)
{
    if (k >= d->n_rows) {
        if (!d->period) return NULL; /* longer than max */
        uint64_t first = d->n_rows - d->period;
        k = first + (k - first) % d->period;
    }
    return d->rows + k * d->row_words;
}

bool gram_dfa_fits_slow(const struct gram_dfa *d, uint32_t q, uint64_t lo, uint64_t hi)
{
    for (uint64_t k = lo, n = 0; k <= hi && n <= d->n_rows; k++, n++) {
        const uint64_t *row = row_at(d, k);
        if (!row) return false;
        if (row_has(row, q)) return true;
    }
    return false;
}

static void find_nearest(struct gram_build *b, struct gram_dfa *d)
{
    uint32_t *nearest = gram_keep_array(b, d->n_states, sizeof(*nearest));

    d->all_endless = true;
    for (uint32_t q = 0; q < d->n_states; q++) {
        uint32_t k = 0;
        while (k < d->n_rows && !row_has(d->rows + k * d->row_words, q))
            k++;
        nearest[q] = k < d->n_rows ? k : UINT32_MAX - 1;
        bool endless = false;
        for (k = d->n_rows - d->period; k < d->n_rows; k++)
            endless |= row_has(d->rows + k * d->row_words, q);
        d->all_endless &= endless;
    }
    gram_steps(b, d->n_states * d->n_rows / 64);
    d->nearest = nearest;
}

/* The longest `nearest` on the way, until nothing changes. */
static void find_tail(struct gram_build *b, struct gram_dfa *d)
{
    uint32_t *tail = gram_keep_copy(b, d->nearest, d->n_states, sizeof(*tail));
    bool changed = true;

    while (changed) {
        changed = false;
        for (uint32_t q = d->n_states; q-- > 0;) {
            for (uint32_t c = 0; c < d->n_classes; c++) {
                uint32_t to = gram_dfa_next(d, q, c);
                if (to == GRAM_DFA_DEAD || tail[to] <= tail[q]) continue;
                tail[q] = tail[to];
                changed = true;
            }
        }
        gram_steps(b, d->n_states * d->n_classes / 64 + 1);
    }
    d->tail = tail;
}

static bool bound_lengths(struct gram_build *b, struct gram_dfa *d)
{
    if (d->min == 0 && d->max == GRAM_INFINITE) return true;
    if (!find_rows(b, d)) return false;
    find_nearest(b, d);
    find_tail(b, d);
    d->bounded = true;
    if (!gram_dfa_fits(d, d->start, 0)) d->n_states = 0;
    return true;
}

/* ---- characters that change nothing -------------------------------------------------------- */

/* Adds the classes of the characters of each group, code points beyond ASCII being one group. */
static void find_groups(const struct gram_dfa *d, uint64_t groups[GRAM_CHAR_GROUPS][4])
{
    for (uint8_t c = 0; c < 128; c++) {
        uint32_t class = d->decoder.ascii[c] & 0xFF;
        groups[gram_char_group(c)][class / 64] |= (uint64_t)1 << class % 64;
    }
    for (uint32_t i = 0; i < d->classes.n_runs; i++) {
        const struct gram_class_run *run = &d->classes.runs[i];
        uint32_t end = i + 1 < d->classes.n_runs ? run[1].lo : 0x110000;
        if (end <= 0x80 || (run->lo >= 0xD800 && end <= 0xE000)) continue;
        groups[GRAM_CHAR_BEYOND][run->class / 64] |= (uint64_t)1 << run->class % 64;
    }
}

static void find_loops(struct gram_build *b, struct gram_dfa *d)
{
    uint32_t *loops = gram_keep_array(b, d->n_states, sizeof(*loops));
    uint64_t groups[GRAM_CHAR_GROUPS][4] = {{0}};

    find_groups(d, groups);
    for (uint32_t q = 0; q < d->n_states; q++) {
        uint64_t same[4] = {0};
        for (uint32_t c = 0; c < d->n_classes; c++)
            if (gram_dfa_next(d, q, c) == q) same[c / 64] |= (uint64_t)1 << c % 64;
        for (int g = 0; g < GRAM_CHAR_OTHER; g++) {
            bool all = true;
            for (int w = 0; w < 4; w++)
                all &= !(groups[g][w] & ~same[w]);
            loops[q] |= (uint32_t)all << g;
        }
    }
    gram_steps(b, d->n_states * (d->n_classes + 64) / 64 + 1);
    d->loops = loops;
}

/* Marks the states from which no text leads nowhere: all of them, but those that may. */
static void find_immortal(struct gram_build *b, struct gram_dfa *d, const uint64_t *spelled)
{
    uint8_t *immortal = gram_keep(b, d->n_states);
    bool changed = true;

    memset(immortal, 1, d->n_states);
    while (changed) {
        changed = false;
        for (uint32_t q = d->n_states; q-- > 0;) {
            for (uint32_t c = 0; immortal[q] && c < d->n_classes; c++) {
                uint32_t to = gram_dfa_next(d, q, c);
                if (!has_class(spelled, c) || (to != GRAM_DFA_DEAD && immortal[to])) continue;
                immortal[q] = 0;
                changed = true;
            }
        }
        gram_steps(b, d->n_states * d->n_classes / 64 + 1);
    }
    d->immortal = immortal;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static struct gram_dfa *finish(struct maker *m, const struct gram_nfa *nfa)
{
    struct gram_build *b = m->b;
    struct gram_dfa *d = gram_keep(b, sizeof(*d));

    d->n_classes = m->sub->n_classes;
    d->classes = nfa->classes;
    d->classes.runs =
        gram_keep_copy(b, nfa->classes.runs, nfa->classes.n_runs, sizeof(*nfa->classes.runs));
    if (!gram_decoder_build(b, &d->decoder, &d->classes, m->params->spellable, m->params->json))
        return NULL;
    m->spelled = d->decoder.reach;
    find_alive(m);
    d->n_states = number_states(m);
    d->start = m->number[0];
    d->min = m->params->min;
    d->max = m->params->max;
    if (d->start == GRAM_DFA_DEAD) {
        d->n_states = 0;
        return d;
    }
    copy_states(m, d);
    find_loops(b, d);
    find_immortal(b, d, m->spelled);
    return bound_lengths(b, d) ? d : NULL;
}

struct gram_dfa *gram_dfa_build(struct gram_build *b, const struct gram_dfa_params *params)
{
    struct maker m = {.b = b, .params = params};
    struct gram_nfa *nfa = gram_nfa_build(b, params->parts, params->n_parts, MAX_NFA_STATES);

    if (!nfa) return NULL;
    m.sub = gram_subset_build(b, nfa, MAX_STATES);
    if (!m.sub) return NULL;
    m.outcome = gram_temp_array(b, m.sub->n_states, sizeof(*m.outcome));
    m.alive = gram_temp(b, m.sub->n_states);
    m.number = gram_temp_array(b, m.sub->n_states, sizeof(*m.number));
    for (uint32_t s = 0; s < m.sub->n_states; s++)
        m.outcome[s] = params->outcome(params->ctx, m.sub->matched[s]);
    return finish(&m, nfa);
}

bool gram_dfa_extends(const struct gram_dfa *d, uint32_t q, uint64_t n)
{
    const uint64_t *live = d->live + (size_t)q * d->decoder.n_words;

    for (uint32_t w = 0; w < d->decoder.n_words; w++) {
        for (uint64_t left = live[w]; left; left &= left - 1) {
            uint32_t class = w * 64 + (uint32_t)__builtin_ctzll(left);
            if (gram_dfa_fits(d, gram_dfa_next(d, q, class), n + 1)) return true;
        }
    }
    return false;
}

/* Inside a character: some class that it can turn out to be leads on. */
static bool can_become(const struct gram_dfa *d, uint32_t q, uint32_t decoder, uint64_t n)
{
    const uint64_t *live = d->live + (size_t)q * d->decoder.n_words;
    const uint64_t *reach = d->decoder.reach + (size_t)decoder * d->decoder.n_words;

    for (uint32_t w = 0; w < d->decoder.n_words; w++) {
        uint64_t both = live[w] & reach[w];
        if (both && !d->bounded) return true;
        for (; both; both &= both - 1) {
            uint32_t class = w * 64 + (uint32_t)__builtin_ctzll(both);
            if (gram_dfa_fits(d, gram_dfa_next(d, q, class), n + 1)) return true;
        }
    }
    return false;
}

enum gram_dfa_step gram_dfa_take(const struct gram_dfa *d, struct gram_dfa_place *p, uint8_t byte)
{
    uint16_t to = gram_decoder_step(&d->decoder, p->decoder, byte);

    if (to == GRAM_DEC_DEAD) return GRAM_DFA_STEP_DEAD;
    if (to == GRAM_DEC_QUOTE)
        return d->outcome[p->q] && (!d->bounded || p->n >= d->min) ? GRAM_DFA_STEP_QUOTE
                                                                   : GRAM_DFA_STEP_DEAD;
    if (!(to & GRAM_DEC_CLASS)) {
        p->decoder = to;
        return can_become(d, p->q, to, p->n) ? GRAM_DFA_STEP_ON : GRAM_DFA_STEP_DEAD;
    }
    uint32_t q = gram_dfa_next(d, p->q, to & 0xFF);
    if (q == GRAM_DFA_DEAD) return GRAM_DFA_STEP_DEAD;
    if (d->bounded) {
        if (!gram_dfa_fits(d, q, (uint64_t)p->n + 1)) return GRAM_DFA_STEP_DEAD;
        if (d->max != GRAM_INFINITE || p->n < d->min) p->n++;
    }
    p->q = q;
    p->decoder = 0;
    return GRAM_DFA_STEP_ON;
}

uint32_t gram_dfa_run(const struct gram_dfa *d, const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + len;
    uint32_t q = d->n_states ? d->start : GRAM_DFA_DEAD;

    while (p < end && q != GRAM_DFA_DEAD)
        q = gram_dfa_next(d, q, gram_class_of(&d->classes, utf8_next(&p)));
    return q;
}

bool gram_dfa_accepts(const struct gram_dfa *d, const char *text, size_t len)
{
    uint32_t q = gram_dfa_run(d, text, len);
    uint64_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return q != GRAM_DFA_DEAD && d->outcome[q] && n >= d->min && n <= d->max;
}
