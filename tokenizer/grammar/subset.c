/* SPDX-License-Identifier: MIT */
/*
 * The subset construction. A deterministic state is what was read last (nothing, a word character,
 * another) and the sorted set of automaton states that stand between code points: sets, matches,
 * and assertions that look ahead. Splits are followed and ^ is decided at once; the others wait
 * until the next code point, or the end, is known. Once a part that searches has matched, its other
 * states do not matter any more.
 */
#include <string.h>

#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/nfa.h"

enum before { BEGIN, OTHER, WORD };

struct state {
    const uint32_t *members;
    uint32_t n;
    enum before before;
};

struct maker {
    struct gram_build *b;
    const struct gram_nfa *nfa;
    struct gram_subset *out;
    struct gram_table states; /* the members of each, and what was read last */
    uint32_t cap_next, cap_matched;
    /* the set being made */
    uint32_t *set, n_set;
    uint64_t n_seen;            /* states and targets looked at, not yet counted as steps */
    uint32_t *stamp, stamp_now; /* [nfa->n] */
    uint32_t *stack;
    uint64_t *bits;   /* [nfa->n], all zero: for sorting */
    uint8_t *part_of; /* [nfa->n] */
    /* targets per class while a state is expanded */
    uint32_t **targets, *n_targets, *cap_targets;
    uint64_t *hashes; /* of the targets */
    uint32_t max_states;
};

/* ---- sets ---------------------------------------------------------------------------------- */

/* Adds a state and all that it leads to without a code point being read. */
static void add(struct maker *m, uint32_t s, enum before before)
{
    uint32_t depth = 0, n = 0;
    m->stack[depth++] = s;
    for (; depth > 0; n++) {
        s = m->stack[--depth];
        if (m->stamp[s] == m->stamp_now) continue;
        m->stamp[s] = m->stamp_now;
        const struct gram_nfa_state *at = &m->nfa->states[s];
        if (at->kind == GRAM_NFA_SPLIT) {
            m->stack[depth++] = at->b;
            m->stack[depth++] = at->a;
        } else if (at->kind == GRAM_NFA_BEGIN) {
            if (before == BEGIN) m->stack[depth++] = at->a;
        } else {
            m->set[m->n_set++] = s;
        }
    }
    m->n_seen += n;
}
static void sort(struct maker *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_set; i++)
        m->bits[m->set[i] / 64] |= (uint64_t)1 << m->set[i] % 64;
    for (uint32_t w = 0; n < m->n_set; w++)
        for (; m->bits[w]; m->bits[w] &= m->bits[w] - 1)
            m->set[n++] = w * 64 + (uint32_t)__builtin_ctzll(m->bits[w]);
    gram_steps(m->b, m->nfa->n / 8192);
}

/* Of a part that searches and has matched, keeps the match alone. */
static void absorb(struct maker *m)
{
    uint64_t done = 0;
    uint32_t out = 0;
    for (uint32_t i = 0; i < m->n_set; i++) {
        const struct gram_nfa_state *n = &m->nfa->states[m->set[i]];
        if (n->kind == GRAM_NFA_MATCH && m->nfa->parts[n->set].search)
            done |= (uint64_t)1 << n->set;
    }
    if (!done) return;
    for (uint32_t i = 0; i < m->n_set; i++) {
        bool keep = !(done >> m->part_of[m->set[i]] & 1) ||
                    m->nfa->states[m->set[i]].kind == GRAM_NFA_MATCH;
        if (keep) m->set[out++] = m->set[i];
    }
    m->n_set = out;
}

static void count_seen(struct maker *m)
{
    gram_steps(m->b, 1 + m->n_seen / 16);
    m->n_seen = 0;
}

/* What follows: the end, or a character that is of a word or not; its class, if that matters. */
struct next {
    bool at_end, word;
    uint32_t class;
};

static bool holds(const struct maker *m, const struct gram_nfa_state *s, enum before before,
                  const struct next *next)
{
    switch (s->kind) {
    case GRAM_NFA_END: return next->at_end;
    case GRAM_NFA_WORD: return (before == WORD) != next->word;
    case GRAM_NFA_NOT_WORD: return (before == WORD) == next->word;
    case GRAM_NFA_NEXT:
    case GRAM_NFA_NOT_NEXT: {
        uint32_t n = m->nfa->n_set_classes[s->set];
        bool in = !next->at_end && memchr(m->nfa->set_classes[s->set], (int)next->class, n);
        return in == (s->kind == GRAM_NFA_NEXT);
    }
    default: return false;
    }
}

/* The parts that match before what follows. */
static uint64_t look_ahead(struct maker *m, const struct state *d, const struct next *next)
{
    uint64_t matched = 0;
    m->stamp_now++;
    m->n_set = 0;
    for (uint32_t i = 0; i < d->n; i++)
        add(m, d->members[i], d->before);
    for (uint32_t i = 0; i < m->n_set; i++) { /* the set grows while it is walked */
        const struct gram_nfa_state *n = &m->nfa->states[m->set[i]];
        if (n->kind == GRAM_NFA_MATCH) matched |= (uint64_t)1 << n->set;
        if (holds(m, n, d->before, next)) add(m, n->a, d->before);
    }
    count_seen(m);
    return matched;
}
/* Of no interest any more: some part that is needed can no longer match. */
static bool is_lost(const struct maker *m)
{
    uint64_t left = m->nfa->needed;
    for (uint32_t i = 0; i < m->n_set && left; i++)
        left &= ~((uint64_t)1 << m->part_of[m->set[i]]);
    return left != 0;
}

/* The number of the state that m->set is, after what was read last. */
static uint32_t intern(struct maker *m, enum before before)
{
    absorb(m);
    if (is_lost(m)) m->n_set = 0;
    sort(m);
    m->set[m->n_set] = before;
    return gram_table_add(m->b, &m->states, m->set, (m->n_set + 1) * sizeof(*m->set));
}

/* ---- transitions --------------------------------------------------------------------------- */

static void push_target(struct maker *m, uint32_t class, uint32_t s)
{
    m->targets[class] = gram_grow(m->b, m->targets[class], m->n_targets[class],
                                  &m->cap_targets[class], sizeof(uint32_t));
    m->targets[class][m->n_targets[class]++] = s;
    m->hashes[class] = (m->hashes[class] + s + 1) * 0x9E3779B97F4A7C15u;
}

/* Sorts what m->set leads to by class; only one class or kind, if those matter. */
static void collect_targets(struct maker *m, const struct next *next)
{
    for (uint32_t i = 0; i < m->n_set; i++) {
        const struct gram_nfa_state *n = &m->nfa->states[m->set[i]];
        bool lasting = n->kind == GRAM_NFA_MATCH && m->nfa->parts[n->set].search;
        uint32_t n_classes = lasting ? m->nfa->classes.n : m->nfa->n_set_classes[n->set];
        if (n->kind != GRAM_NFA_SET && !lasting) continue;
        for (uint32_t k = 0; k < n_classes; k++) {
            uint32_t class = lasting ? k : m->nfa->set_classes[n->set][k];
            if (m->nfa->has_words && m->nfa->is_word[class] != next->word) continue;
            if (m->nfa->has_next && class != next->class) continue;
            push_target(m, class, lasting ? m->set[i] : n->a);
        }
        m->n_seen += 2 + n_classes;
    }
}

/* The state after a class: many classes lead where one before them leads. */
static uint32_t go(struct maker *m, uint32_t from, uint32_t class)
{
    const uint32_t *next = m->out->next + (size_t)from * m->out->n_classes;
    uint32_t n = m->n_targets[class];
    bool word = m->nfa->has_words && m->nfa->is_word[class];
    const uint64_t *hashes = m->hashes, hash = hashes[class];
    m->n_seen += class / 4;
    for (uint32_t c = 0; c < class; c++) {
        if (hashes[c] != hash) continue;
        m->n_seen += 1 + n / 8;
        if (m->n_targets[c] == n && m->nfa->is_word[c] == m->nfa->is_word[class] &&
            (n == 0 || memcmp(m->targets[c], m->targets[class], n * sizeof(uint32_t)) == 0))
            return next[c];
    }
    m->stamp_now++;
    m->n_set = 0;
    for (uint32_t i = 0; i < n; i++)
        add(m, m->targets[class][i], word ? WORD : OTHER);
    count_seen(m);
    return intern(m, word ? WORD : OTHER);
}

static void expand(struct maker *m, uint32_t from)
{
    uint32_t n_classes = m->out->n_classes;
    memset(m->n_targets, 0, n_classes * sizeof(*m->n_targets));
    for (uint32_t c = 0; c < n_classes; c++)
        m->hashes[c] = m->nfa->is_word[c];
    const uint32_t *members = m->states.entries[from].key;
    uint32_t n = (uint32_t)(m->states.entries[from].len / sizeof(*members)) - 1;
    struct state d = {members, n, (enum before)members[n]};
    uint32_t n_groups = m->nfa->has_next ? n_classes : 1u + m->nfa->has_words;
    for (uint32_t group = 0; group < n_groups; group++) {
        struct next next = {.word = m->nfa->has_next ? m->nfa->is_word[group] : group,
                            .class = group};
        look_ahead(m, &d, &next);
        collect_targets(m, &next);
        count_seen(m);
    }
    while ((from + 1) * n_classes > m->cap_next)
        m->out->next = gram_grow(m->b, m->out->next, m->cap_next, &m->cap_next, sizeof(uint32_t));
    for (uint32_t c = 0; c < n_classes; c++) {
        uint32_t to = go(m, from, c);
        m->out->next[(size_t)from * n_classes + c] = to;
    }
    m->out->matched =
        gram_grow(m->b, m->out->matched, from, &m->cap_matched, sizeof(*m->out->matched));
    m->out->matched[from] = look_ahead(m, &d, &(struct next){.at_end = true});
}

/* ---- all of it ----------------------------------------------------------------------------- */

static struct maker *prepare(struct gram_build *b, const struct gram_nfa *nfa)
{
    struct maker *m = gram_temp(b, sizeof(*m));
    uint32_t part = 0;
    m->b = b;
    m->nfa = nfa;
    m->out = gram_temp(b, sizeof(*m->out));
    m->out->n_classes = nfa->classes.n;
    m->set = gram_temp_array(b, nfa->n + 1, sizeof(uint32_t));
    m->stamp = gram_temp_array(b, nfa->n, sizeof(uint32_t));
    m->stack = gram_temp_array(b, 2 * (size_t)nfa->n + 2, sizeof(uint32_t));
    m->bits = gram_temp_array(b, nfa->n / 64 + 1, sizeof(uint64_t));
    m->part_of = gram_temp(b, nfa->n);
    m->targets = gram_temp_array(b, nfa->classes.n, sizeof(uint32_t *));
    m->n_targets = gram_temp_array(b, nfa->classes.n, sizeof(uint32_t));
    m->cap_targets = gram_temp_array(b, nfa->classes.n, sizeof(uint32_t));
    m->hashes = gram_temp_array(b, nfa->classes.n, sizeof(uint64_t));
    for (uint32_t s = 0; s < nfa->n; s++) { /* a part's states begin with its match */
        if (nfa->states[s].kind == GRAM_NFA_MATCH) part = nfa->states[s].set;
        m->part_of[s] = (uint8_t)part;
    }
    return m;
}

struct gram_subset *gram_subset_build(struct gram_build *b, const struct gram_nfa *nfa,
                                      uint32_t max_states, uint64_t max_steps)
{
    uint64_t begin = b->steps;
    struct maker *m = prepare(b, nfa);
    m->stamp_now++;
    for (uint32_t p = 0; p < nfa->n_parts; p++)
        add(m, nfa->start[p], BEGIN);
    intern(m, BEGIN);
    for (uint32_t s = 0; s < m->states.n; s++) {
        if (m->states.n > max_states) return NULL;
        if (b->steps - begin > max_steps) return NULL;
        expand(m, s);
    }
    m->out->n_states = m->states.n;
    return m->out;
}
