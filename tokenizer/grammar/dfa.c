/* SPDX-License-Identifier: MIT */
/*
 * Takes the dead ends out of a subset automaton, and works out which lengths of text are possible
 * from each state, and which characters are safe there.
 *
 * Lengths: row k says from which states some text of exactly k more code points is complete. Row 0
 * are the complete states; row k + 1 follows from row k alone, so the rows repeat after a while.
 */
#include "tokenizer/grammar/dfa.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/expr.h"
#include "tokenizer/grammar/lexer.h"
#include "tokenizer/grammar/nfa.h"

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

static bool has_bit(const uint64_t *set, uint32_t i)
{
    return set[i / 64] >> i % 64 & 1;
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
        for (uint32_t s = n; s-- > 0;)
            for (uint32_t c = 0; !m->alive[s] && c < k; c++) {
                if (!has_bit(m->spelled, c) || !m->alive[m->sub->next[(size_t)s * k + c]]) continue;
                m->alive[s] = 1;
                changed = true;
            }
        gram_steps(m->b, (uint64_t)n * k / 64 + 1);
    }
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
            if (!has_bit(m->spelled, c)) to = GRAM_DFA_DEAD;
            next[q * k + c] = to;
            if (to != GRAM_DFA_DEAD) live[q * words + c / 64] |= (uint64_t)1 << c % 64;
        }
    }
    d->next = next;
    d->outcome = outcome;
    d->live = live;
}

/* ---- lengths ------------------------------------------------------------------------------- */

/* Row k + 1 from row k. */
static void step_row(struct gram_build *b, const struct gram_dfa *d, const uint64_t *row,
                     uint64_t *next_row)
{
    uint64_t n = 0;
    for (uint32_t q = 0; q < d->n_states; q++)
        for (uint32_t c = 0; c < d->n_classes; c++, n++) {
            uint32_t to = gram_dfa_next(d, q, c);
            if (to == GRAM_DFA_DEAD || !has_bit(row, to)) continue;
            next_row[q / 64] |= (uint64_t)1 << q % 64;
            break;
        }
    gram_steps(b, 1 + (n + d->n_states) / 32);
}
/* Rows until one comes again, or until no longer text is wanted. False if there are too many. */
static bool find_rows(struct gram_build *b, struct gram_dfa *d)
{
    uint32_t words = d->n_states / 64 + 1, limit = d->max < MAX_ROWS ? d->max + 1 : MAX_ROWS;
    uint64_t *row = gram_temp_array(b, words, sizeof(*row));
    size_t bytes = words * sizeof(*row);
    struct gram_table rows = {0};
    for (uint32_t q = 0; q < d->n_states; q++)
        if (d->outcome[q]) row[q / 64] |= (uint64_t)1 << q % 64;
    gram_table_add(b, &rows, row, bytes);
    while (d->period == 0 && rows.n < limit) {
        uint32_t n = rows.n;
        if (n * bytes > MAX_ROW_BYTES) return false;
        memset(row, 0, bytes);
        step_row(b, d, rows.entries[n - 1].key, row);
        uint32_t k = gram_table_add(b, &rows, row, bytes);
        if (k < n) d->period = n - k;
    }
    if (!d->period && limit == MAX_ROWS) return false;
    d->n_rows = rows.n;
    d->row_words = words;
    uint64_t *kept = gram_keep_array(b, (size_t)rows.n * words, sizeof(*kept));
    for (uint32_t i = 0; i < rows.n; i++)
        memcpy(kept + i * words, rows.entries[i].key, bytes);
    d->rows = kept;
    return true;
}

static const uint64_t *row_at(const struct gram_dfa *d, uint64_t k)
{
    assert(d->period <= d->n_rows);
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
        if (has_bit(row, q)) return true;
    }
    return false;
}

/*
 * For each state the first row that has it or, from the last row backwards, the number of the row
 * after the first that has it not; `none` for states without such a row.
 */
static void first_rows(struct gram_build *b, const struct gram_dfa *d, bool backwards,
                       uint32_t none, uint32_t *first)
{
    uint64_t *left = gram_temp_array(b, d->row_words, sizeof(*left));
    memset(left, 0xFF, d->row_words * sizeof(*left));
    for (uint32_t q = 0; q < d->n_states; q++)
        first[q] = none;
    for (uint32_t i = 0; i < d->n_rows; i++) {
        uint32_t k = backwards ? d->n_rows - 1 - i : i;
        for (uint32_t w = 0; w < d->row_words; w++) {
            uint64_t row = d->rows[k * d->row_words + w], now = left[w] & (backwards ? ~row : row);
            left[w] &= ~now;
            for (; now; now &= now - 1) {
                uint32_t q = w * 64 + (uint32_t)__builtin_ctzll(now);
                if (q < d->n_states) first[q] = backwards ? k + 1 : k;
            }
        }
    }
    gram_steps(b, (d->n_rows * d->row_words + d->n_states) / 16);
}

/* The most that `of` is in any state after each state, until nothing changes. */
static const uint32_t *find_most(struct gram_build *b, const struct gram_dfa *d, const uint32_t *of)
{
    uint32_t *most = gram_keep_array(b, d->n_states, sizeof(*most));
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t q = d->n_states; q-- > 0;)
            for (uint32_t c = 0; c < d->n_classes; c++) {
                uint32_t to = gram_dfa_next(d, q, c);
                if (to == GRAM_DFA_DEAD) continue;
                uint32_t more = of[to] > most[to] ? of[to] : most[to];
                if (more <= most[q]) continue;
                most[q] = more;
                changed = true;
            }
        gram_steps(b, d->n_states * d->n_classes / 32 + 1);
    }
    return most;
}

static bool bound_lengths(struct gram_build *b, struct gram_dfa *d)
{
    if (d->min == 0 && d->max == GRAM_INFINITE) return true;
    if (!find_rows(b, d)) return false;
    assert(d->n_rows > 0);
    uint32_t *nearest = gram_keep_array(b, d->n_states, sizeof(*nearest));
    first_rows(b, d, false, UINT32_MAX - 1, nearest);
    d->nearest = nearest;
    d->tail = find_most(b, d, d->nearest);
    /* steady: the least k so that texts of k and of every larger number lead from q to an end */
    uint32_t *steady = gram_temp_array(b, d->n_states, sizeof(*steady));
    first_rows(b, d, true, 0, steady);
    for (uint32_t q = 0; q < d->n_states; q++)
        if (!d->period || steady[q] > d->n_rows - d->period) steady[q] = GRAM_INFINITE;
    d->ready = find_most(b, d, steady);
    d->bounded = true;
    if (!gram_dfa_fits(d, d->start, 0)) d->n_states = 0;
    return true;
}

/* The fewest bytes of a character of each class. */
static void find_sizes(const struct gram_dfa *d, uint8_t size[256])
{
    memset(size, 6, 256);
    for (uint32_t i = 0; i < d->classes.n_runs; i++) {
        const struct gram_class_run *run = &d->classes.runs[i];
        uint8_t n = run->lo < 0x80 ? 2 : run->lo < 0x800 ? 2 : run->lo < 0x10000 ? 3 : 4;
        if (n < size[run->class]) size[run->class] = n;
    }
    for (uint32_t c = 0; c < 128; c++)
        if (d->decoder.root[c] & GRAM_DEC_CLASS && d->decoder.root[c] < GRAM_DEC_QUOTE)
            size[d->decoder.root[c] & 0xFF] = 1;
}

/* The least way on from each state, until nothing changes. */
static void find_rest(struct gram_build *b, struct gram_dfa *d)
{
    uint32_t *rest = gram_keep_array(b, d->n_states, sizeof(*rest));
    uint8_t size[256];
    bool changed = true;
    find_sizes(d, size);
    for (uint32_t q = 0; q < d->n_states; q++)
        rest[q] = d->outcome[q] ? 0 : GRAM_INFINITE;
    while (changed) {
        changed = false;
        for (uint32_t q = d->n_states; q-- > 0;)
            for (uint32_t c = 0; rest[q] && c < d->n_classes; c++) {
                uint32_t to = gram_dfa_next(d, q, c);
                if (to == GRAM_DFA_DEAD || rest[to] >= GRAM_INFINITE - size[c]) continue;
                if (rest[to] + size[c] >= rest[q]) continue;
                rest[q] = rest[to] + size[c];
                changed = true;
            }
        gram_steps(b, d->n_states * d->n_classes / 64 + 1);
    }
    d->rest = rest;
}

uint32_t gram_dfa_rest(const struct gram_dfa *d, uint32_t q, uint32_t decoder, uint64_t n)
{
    const uint64_t *live = d->live + (size_t)q * d->decoder.n_words;
    uint32_t best = GRAM_INFINITE, nearest = d->bounded ? d->nearest[q] : 0, k = nearest;
    for (uint32_t w = 0; decoder && w < d->decoder.n_words; w++)
        for (uint64_t left = live[w] & d->decoder.reach[decoder * d->decoder.n_words + w]; left;
             left &= left - 1) {
            uint32_t to = gram_dfa_next(d, q, w * 64 + (uint32_t)__builtin_ctzll(left));
            if (!gram_dfa_fits(d, to, n + 1)) continue;
            uint32_t rest = gram_dfa_rest(d, to, 0, n + 1);
            if (rest < best) best = rest + 1;
        }
    if (decoder) return best;
    if (!d->bounded || n >= d->min) return d->rest[q];
    if (k < d->min - n) k = (uint32_t)(d->min - n);
    for (uint32_t i = 0; i < d->n_rows && row_at(d, k) && !has_bit(row_at(d, k), q); i++)
        k++;
    return d->rest[q] + (k - nearest);
}

/* ---- characters that always fit ------------------------------------------------------------ */

enum { ALL_GROUPS = (1u << GRAM_CHAR_GROUPS) - 1 };

/* Adds the classes of the characters of each group that can be spelled. */
static void find_groups(const struct gram_dfa *d, const uint64_t *spelled,
                        uint64_t groups[GRAM_CHAR_GROUPS][4])
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
    for (int g = 0; g < GRAM_CHAR_GROUPS; g++)
        for (uint32_t w = 0; w < d->decoder.n_words; w++)
            groups[g][w] &= spelled[w];
}

/* Groups that are safe in state q and not after some class; all if a class has no way on. */
static uint32_t find_lost(const struct gram_dfa *d, const uint32_t *safe, uint32_t q,
                          const uint64_t classes[4])
{
    uint32_t lost = 0;
    for (uint32_t w = 0; w < d->decoder.n_words; w++)
        for (uint64_t left = classes[w]; left; left &= left - 1) {
            uint32_t to = gram_dfa_next(d, q, w * 64 + (uint32_t)__builtin_ctzll(left));
            if (to == GRAM_DFA_DEAD) return ALL_GROUPS;
            lost |= safe[q] & ~safe[to];
        }
    return lost;
}

/* The group of a set that most others go without, or would have to; -1 if none does. */
static int find_worst(uint32_t set, const uint32_t lost[GRAM_CHAR_GROUPS])
{
    int votes[GRAM_CHAR_GROUPS] = {0}, worst = -1;
    for (int g = 0; g < GRAM_CHAR_GROUPS; g++) {
        uint32_t left = set >> g & 1 ? set & lost[g] : 0;
        votes[g] += __builtin_popcount(left);
        for (; left; left &= left - 1)
            votes[__builtin_ctz(left)]++;
    }
    for (int g = 0; g < GRAM_CHAR_GROUPS; g++)
        if (votes[g] && (worst < 0 || votes[g] > votes[worst])) worst = g;
    return worst;
}

/*
 * Takes groups out of a state's set until those that stay are safe in all states they lead to.
 * Returns true if there was something to take.
 */
static bool shrink_safe(const struct gram_dfa *d, uint32_t *safe, uint32_t q,
                        const uint64_t groups[GRAM_CHAR_GROUPS][4])
{
    uint32_t lost[GRAM_CHAR_GROUPS], before = safe[q];
    int worst;
    for (uint32_t left = before; left; left &= left - 1)
        lost[__builtin_ctz(left)] = find_lost(d, safe, q, groups[__builtin_ctz(left)]);
    while (safe[q] && (worst = find_worst(safe[q], lost)) >= 0)
        safe[q] &= ~(1u << worst);
    return safe[q] != before;
}

/* Finds groups by which all texts go on, from all those that lead on at once downwards. */
static void find_safe(struct gram_build *b, struct gram_dfa *d, const uint64_t *spelled)
{
    uint32_t *safe = gram_keep_array(b, d->n_states, sizeof(*safe));
    uint8_t *immortal = gram_keep(b, d->n_states);
    uint64_t groups[GRAM_CHAR_GROUPS][4] = {{0}};
    bool changed = true;
    find_groups(d, spelled, groups);
    for (uint32_t q = 0; q < d->n_states; q++)
        for (int g = 0; g < GRAM_CHAR_GROUPS; g++)
            if (find_lost(d, safe, q, groups[g]) != ALL_GROUPS) safe[q] |= 1u << g;
    while (changed) {
        changed = false;
        for (uint32_t q = d->n_states; q-- > 0;)
            changed |= shrink_safe(d, safe, q, groups);
        gram_steps(b, d->n_states * (d->n_classes + GRAM_CHAR_GROUPS) / 64 + 1);
    }
    for (uint32_t q = 0; q < d->n_states; q++) {
        immortal[q] = safe[q] == ALL_GROUPS;
        safe[q] &= ~(1u << GRAM_CHAR_OTHER);
    }
    d->safe = safe;
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
    for (uint32_t s = 0; s < m->sub->n_states; s++)
        m->number[s] = m->alive[s] ? (uint16_t)d->n_states++ : GRAM_DFA_DEAD;
    assert(d->n_states <= GRAM_DFA_DEAD);
    d->start = m->number[0];
    d->min = m->params->min;
    d->max = m->params->max;
    if (d->start == GRAM_DFA_DEAD) {
        d->n_states = 0;
        return d;
    }
    copy_states(m, d);
    find_safe(b, d, m->spelled);
    find_rest(b, d);
    return bound_lengths(b, d) ? d : NULL;
}

struct gram_dfa *gram_dfa_build(struct gram_build *b, const struct gram_dfa_params *params)
{
    struct maker m = {.b = b, .params = params};
    struct gram_nfa *nfa =
        gram_nfa_build(b, params->parts, params->n_parts, params->needed, MAX_NFA_STATES);
    if (!nfa) return NULL;
    uint64_t rest = (b->max_steps - b->steps) / 8 * 7 + 1;
    m.sub = gram_subset_build(b, nfa, MAX_STATES, params->max_steps ? params->max_steps : rest);
    if (!m.sub) return NULL;
    m.outcome = gram_temp_array(b, m.sub->n_states, sizeof(*m.outcome));
    m.alive = gram_temp(b, m.sub->n_states);
    m.number = gram_temp_array(b, m.sub->n_states, sizeof(*m.number));
    for (uint32_t s = 0; s < m.sub->n_states; s++) {
        uint64_t matched = gram_nfa_matched(nfa, m.sub->matched[s]);
        m.outcome[s] = params->outcome ? params->outcome(params->ctx, matched) : matched != 0;
    }
    gram_steps(b, (uint64_t)m.sub->n_states * nfa->n_ways / 16);
    return finish(&m, nfa);
}
bool gram_dfa_extends(const struct gram_dfa *d, uint32_t q, uint32_t decoder, uint64_t n)
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
        return gram_dfa_extends(d, p->q, to, p->n) ? GRAM_DFA_STEP_ON : GRAM_DFA_STEP_DEAD;
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

/* Runs over valid UTF-8, whatever its length and bytes; GRAM_DFA_DEAD if it does not fit. */
static uint32_t run(const struct gram_dfa *d, const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + len;
    uint32_t q = d->n_states ? d->start : GRAM_DFA_DEAD;
    while (p < end && q != GRAM_DFA_DEAD)
        q = gram_dfa_next(d, q, d->classes.runs[gram_run_of(&d->classes, utf8_next(&p))].class);
    return q;
}

bool gram_dfa_accepts(const struct gram_dfa *d, const char *text, size_t len)
{
    uint32_t q = run(d, text, len);
    uint64_t n = utf8_count(text, len);
    return q != GRAM_DFA_DEAD && d->outcome[q] && n >= d->min && n <= d->max;
}
