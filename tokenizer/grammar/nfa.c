/* SPDX-License-Identifier: MIT */
/* Non-deterministic automata and classes of code points; see nfa.h. */
#include "tokenizer/grammar/nfa.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/charset.h"
#include "tokenizer/grammar/expr.h"

/* ---- sets ---------------------------------------------------------------------------------- */

/* The number of a set; equal sets have one. */
static uint32_t set_number(struct gram_build *b, struct gram_nfa *nfa, const struct gram_charset *s)
{
    return gram_table_add(b, &nfa->sets, s->ranges, s->n * sizeof(*s->ranges));
}

/* ---- states -------------------------------------------------------------------------------- */

static uint32_t add(struct gram_build *b, struct gram_nfa *nfa, enum gram_nfa_kind kind, uint32_t a,
                    uint32_t other, uint32_t set)
{
    nfa->states = gram_grow(b, nfa->states, nfa->n, &nfa->cap, sizeof(*nfa->states));
    nfa->states[nfa->n] = (struct gram_nfa_state){(uint8_t)kind, a, other, set};
    return nfa->n++;
}

static uint32_t compile(struct gram_build *b, struct gram_nfa *nfa, const struct gram_ex *x,
                        uint32_t next);

/* x{min,max}: the copies after the first min can each be left out with all after them. */
static uint32_t compile_rep(struct gram_build *b, struct gram_nfa *nfa, const struct gram_ex *x,
                            uint32_t next)
{
    const struct gram_ex *body = x->kids[0];
    uint32_t s = next;
    assert(x->n == 1);
    if (x->max == GRAM_INFINITE) {
        s = add(b, nfa, GRAM_NFA_SPLIT, next, next, 0);
        uint32_t inside = compile(b, nfa, body, s); /* may move the states */
        nfa->states[s].a = inside;
    }
    for (uint32_t i = x->min; x->max != GRAM_INFINITE && i < x->max; i++) {
        uint32_t inside = compile(b, nfa, body, s);
        s = add(b, nfa, GRAM_NFA_SPLIT, inside, next, 0);
    }
    for (uint32_t i = 0; i < x->min; i++)
        s = compile(b, nfa, body, s);
    return s;
}

static uint32_t compile(struct gram_build *b, struct gram_nfa *nfa, const struct gram_ex *x,
                        uint32_t next)
{
    uint32_t s;
    switch (x->kind) {
    case GRAM_EX_EMPTY: return next;
    case GRAM_EX_SET: return add(b, nfa, GRAM_NFA_SET, next, 0, set_number(b, nfa, x->set));
    case GRAM_EX_SEQ:
        for (uint32_t i = x->n; i-- > 0;)
            next = compile(b, nfa, x->kids[i], next);
        return next;
    case GRAM_EX_ALT:
        assert(x->n > 0);
        s = compile(b, nfa, x->kids[x->n - 1], next);
        for (uint32_t i = x->n - 1; i-- > 0;) {
            uint32_t first = compile(b, nfa, x->kids[i], next);
            s = add(b, nfa, GRAM_NFA_SPLIT, first, s, 0);
        }
        return s;
    case GRAM_EX_REP: return compile_rep(b, nfa, x, next);
    case GRAM_EX_BEGIN: return add(b, nfa, GRAM_NFA_BEGIN, next, 0, 0);
    case GRAM_EX_END: return add(b, nfa, GRAM_NFA_END, next, 0, 0);
    case GRAM_EX_WORD: nfa->has_words = true; return add(b, nfa, GRAM_NFA_WORD, next, 0, 0);
    case GRAM_EX_NOT_WORD: nfa->has_words = true; return add(b, nfa, GRAM_NFA_NOT_WORD, next, 0, 0);
    case GRAM_EX_NEXT:
        nfa->has_next = true;
        return add(b, nfa, x->negated ? GRAM_NFA_NOT_NEXT : GRAM_NFA_NEXT, next, 0,
                   set_number(b, nfa, x->set));
    default: { /* nothing: a set without members */
        static const struct gram_charset none = {0};
        return add(b, nfa, GRAM_NFA_SET, next, 0, set_number(b, nfa, &none));
    }
    }
}

static uint32_t compile_part(struct gram_build *b, struct gram_nfa *nfa, uint32_t part)
{
    uint32_t match = add(b, nfa, GRAM_NFA_MATCH, 0, 0, part);
    const struct gram_ex *x = nfa->parts[part].x, *first = x->kind == GRAM_EX_SEQ ? x->kids[0] : x;
    uint32_t inside = compile(b, nfa, x, match);
    assert(part < nfa->n_parts);
    if (!nfa->parts[part].search || first->kind == GRAM_EX_BEGIN) return inside;
    uint32_t any = compile(b, nfa, gram_ex_any(b), 0);
    uint32_t loop = add(b, nfa, GRAM_NFA_SPLIT, inside, any, 0);
    nfa->states[any].a = loop;
    return loop;
}

/* ---- looking ahead ------------------------------------------------------------------------- */

enum { MAX_SPLITS = 300 }; /* which go as deep */

/* Parts on their way to ways. */
struct splitter {
    struct gram_build *b;
    struct gram_nfa *nfa;
    struct gram_ex_part *parts; /* [GRAM_MAX_PARTS], of nfa */
    bool search;                /* the part in hand */
    uint32_t n_splits;
    const struct gram_ex *refused; /* its look-ahead cannot be followed, or is one too many */
};

/* One more part of the automaton, as a bit. */
static uint64_t add_part(struct splitter *s, const struct gram_ex *x, bool search)
{
    if (s->nfa->n_parts == GRAM_MAX_PARTS) {
        s->refused = x;
        return 0;
    }
    s->parts[s->nfa->n_parts] = (struct gram_ex_part){x, search};
    return (uint64_t)1 << s->nfa->n_parts++;
}

static struct gram_ex *sequence(struct gram_build *b, struct gram_ex *first, struct gram_ex *x,
                                struct gram_ex *last)
{
    struct gram_ex_list list = {0};
    gram_ex_push(b, &list, first);
    gram_ex_push(b, &list, x);
    gram_ex_push(b, &list, last);
    return gram_ex_seq(b, &list);
}

/*
 * The code points before a kid of a sequence that begins where the text does; GRAM_INFINITE if it
 * does not, or if they are not always as many.
 */
static uint32_t offset_of(const struct splitter *s, const struct gram_ex *seq, uint32_t kid)
{
    bool anchored = !s->search;
    uint64_t offset = 0, before = 0;
    for (uint32_t i = 0; i < seq->n; i++) {
        if (i == kid) before = offset;
        anchored |= offset == 0 && seq->kids[i]->kind == GRAM_EX_BEGIN;
        offset += seq->kids[i]->length;
    }
    return anchored && before < GRAM_INFINITE ? (uint32_t)before : GRAM_INFINITE;
}

static void split(struct splitter *s, struct gram_ex *x, struct gram_nfa_way way);

/* x, whose kid `at` looks ahead, with another kid in its place. */
static void split_with(struct splitter *s, const struct gram_ex *x, uint32_t at,
                       struct gram_ex *kid, struct gram_nfa_way way)
{
    struct gram_ex *before = gram_ex_slice(s->b, x, 0, at);
    split(s, sequence(s->b, before, kid, gram_ex_slice(s->b, x, at + 1, x->n)), way);
}

/* Adds a look-ahead that is at kid `at` or, in a repetition, before each code point from there. */
static void add_look(struct splitter *s, const struct gram_ex *x, uint32_t at,
                     const struct gram_ex *look, struct gram_nfa_way *way)
{
    struct gram_build *b = s->b;
    uint32_t offset = offset_of(s, x, at);
    bool again = x->kids[at] != look;
    if (offset == GRAM_INFINITE || look->kids[0]->looks == GRAM_LOOKS_FAR) {
        s->refused = look;
        return;
    }
    struct gram_ex *before = gram_ex_rep(b, gram_ex_any(b), offset, again ? GRAM_INFINITE : offset);
    struct gram_ex *more =
        again ? gram_ex_look(b, gram_ex_any(b), false, 0) : gram_ex_new(b, GRAM_EX_EMPTY);
    before = sequence(b, gram_ex_new(b, GRAM_EX_BEGIN), before, more);
    before = sequence(b, before, look->kids[0], gram_ex_new(b, GRAM_EX_EMPTY));
    *(look->negated ? &way->must_not : &way->must) |= add_part(s, before, true);
}

static void split_look(struct splitter *s, const struct gram_ex *x, uint32_t at,
                       struct gram_nfa_way way)
{
    const struct gram_ex *look = x->kids[at];
    bool last = s->search && at + 1 == x->n && !look->negated; /* more text may follow anyway */
    if (!last) add_look(s, x, at, look, &way);
    split_with(s, x, at, last ? look->kids[0] : gram_ex_new(s->b, GRAM_EX_EMPTY), way);
}

/* X?, and (?:(?!X)C)* up to the end of the text: C*, in which no X begins. */
static void split_rep(struct splitter *s, const struct gram_ex *x, uint32_t at,
                      struct gram_nfa_way way)
{
    const struct gram_ex *rep = x->kids[at], *body = rep->kids[0];
    bool last = at + 1 == x->n && !s->search;
    bool ends = last || (at + 2 == x->n && x->kids[at + 1]->kind == GRAM_EX_END);
    if (ends && body->kind == GRAM_EX_SEQ && body->n == 2 && body->kids[0]->kind == GRAM_EX_LOOK &&
        body->kids[0]->negated && body->kids[1]->kind == GRAM_EX_SET) {
        add_look(s, x, at, body->kids[0], &way);
        split_with(s, x, at, gram_ex_rep(s->b, body->kids[1], rep->min, rep->max), way);
    } else if (rep->min == 0 && rep->max == 1) {
        split_with(s, x, at, gram_ex_new(s->b, GRAM_EX_EMPTY), way);
        split_with(s, x, at, rep->kids[0], way);
    } else {
        s->refused = rep;
    }
}

/* The kids that do not look ahead stay together. */
static void split_alt(struct splitter *s, const struct gram_ex *x, uint32_t at,
                      struct gram_nfa_way way)
{
    const struct gram_ex *alt = x->kids[at];
    struct gram_ex_list plain = {0};
    for (uint32_t i = 0; i < alt->n; i++) {
        if (alt->kids[i]->looks == GRAM_LOOKS_FAR)
            split_with(s, x, at, alt->kids[i], way);
        else
            gram_ex_push(s->b, &plain, alt->kids[i]);
    }
    if (plain.n) split_with(s, x, at, gram_ex_alt(s->b, &plain), way);
}

/* Adds the ways of x, of which each must also match what `way` says. */
static void split(struct splitter *s, struct gram_ex *x, struct gram_nfa_way way)
{
    uint32_t at = 0;
    if (!s->refused && ++s->n_splits > MAX_SPLITS) s->refused = x;
    if (s->refused) return;
    if (s->search && x->looks == GRAM_LOOKS_FAR) x = gram_ex_without_tail(s->b, x);
    if (x->looks < GRAM_LOOKS_FAR) {
        way.must |= add_part(s, x, s->search);
        if (!s->refused) s->nfa->ways[s->nfa->n_ways++] = way;
        return;
    }
    const struct gram_ex alone = {.kind = GRAM_EX_SEQ, .n = 1, .kids = &x};
    const struct gram_ex *seq = x->kind == GRAM_EX_SEQ ? x : &alone;
    while (seq->kids[at]->looks < GRAM_LOOKS_FAR)
        at++;
    switch (seq->kids[at]->kind) {
    case GRAM_EX_LOOK: split_look(s, seq, at, way); break;
    case GRAM_EX_ALT: split_alt(s, seq, at, way); break;
    default: split_rep(s, seq, at, way); break;
    }
}

/* Makes the parts of the automaton ones without look-aheads; NULL, or the one that has too many. */
static const struct gram_ex *split_parts(struct gram_build *b, struct gram_nfa *nfa)
{
    struct splitter s = {.b = b, .nfa = nfa};
    const struct gram_ex_part *given = nfa->parts;
    uint32_t n = nfa->n_parts;
    nfa->parts = s.parts = gram_temp_array(b, GRAM_MAX_PARTS, sizeof(*s.parts));
    nfa->ways = gram_temp_array(b, GRAM_MAX_PARTS, sizeof(*nfa->ways));
    nfa->n_parts = 0;
    for (uint32_t i = 0; i < n; i++) {
        s.search = given[i].search;
        split(&s, (struct gram_ex *)given[i].x, (struct gram_nfa_way){.part = i});
    }
    return s.refused;
}

const struct gram_ex *gram_nfa_refuses(struct gram_build *b, const struct gram_ex *x, bool search)
{
    struct gram_ex_part part = {x, search};
    struct gram_nfa nfa = {.parts = &part, .n_parts = 1};
    return x->looks == GRAM_LOOKS_FAR ? split_parts(b, &nfa) : NULL;
}

uint64_t gram_nfa_matched(const struct gram_nfa *nfa, uint64_t matched)
{
    uint64_t given = 0;
    if (!nfa->n_ways) return matched;
    for (uint32_t i = 0; i < nfa->n_ways; i++) {
        const struct gram_nfa_way *w = &nfa->ways[i];
        if ((matched & w->must) == w->must && !(matched & w->must_not))
            given |= (uint64_t)1 << w->part;
    }
    return given;
}

/* Of the parts as they were given, those of the automaton that match with each of them. */
static uint64_t needed_parts(const struct gram_nfa *nfa, uint64_t needed)
{
    uint64_t all = 0;
    if (!nfa->n_ways) return needed;
    for (; needed; needed &= needed - 1) {
        uint64_t every = UINT64_MAX;
        for (uint32_t i = 0; i < nfa->n_ways; i++)
            if (nfa->ways[i].part == (uint32_t)__builtin_ctzll(needed)) every &= nfa->ways[i].must;
        if (every != UINT64_MAX) all |= every;
    }
    return all;
}

/* ---- classes ------------------------------------------------------------------------------- */

/* Set `set` begins (or ends) at a code point. */
struct edge {
    uint32_t at, set;
};

static int by_place(const void *x, const void *y)
{
    const struct edge *a = x, *b = y;
    return (a->at > b->at) - (a->at < b->at);
}
static uint32_t collect_edges(struct gram_build *b, const struct gram_nfa *nfa, struct edge **ret)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < nfa->sets.n; s++)
        n += 2 * (uint32_t)(nfa->sets.entries[s].len / sizeof(struct gram_range));
    struct edge *edges = gram_temp_array(b, n + 1, sizeof(*edges));
    n = 0;
    for (uint32_t s = 0; s < nfa->sets.n; s++) {
        const struct gram_range *ranges = nfa->sets.entries[s].key;
        for (size_t r = 0; r < nfa->sets.entries[s].len / sizeof(*ranges); r++) {
            edges[n++] = (struct edge){ranges[r].lo, s};
            edges[n++] = (struct edge){ranges[r].hi + 1, s};
        }
    }
    qsort(edges, n, sizeof(*edges), by_place);
    gram_steps(b, 2 * n);
    *ret = edges;
    return n;
}
/*
 * Sweeps over the code points; a class begins wherever a set begins or ends. Signatures (which sets
 * hold a code point, a bit each) are numbered, and their number is the class.
 */
static bool find_classes(struct gram_build *b, struct gram_nfa *nfa, struct gram_table *signatures)
{
    struct edge *edges;
    uint32_t n = collect_edges(b, nfa, &edges), cap = 0, n_words = nfa->sets.n / 64 + 1;
    struct gram_classes *cl = &nfa->classes;
    uint64_t *now = gram_temp_array(b, n_words, 8);
    for (uint32_t i = 0, at = 0; at <= GRAM_MAX_CODE_POINT;) {
        for (; i < n && edges[i].at == at; i++)
            now[edges[i].set / 64] ^= (uint64_t)1 << edges[i].set % 64;
        uint32_t class = gram_table_add(b, signatures, now, n_words * sizeof(*now));
        if (class == GRAM_MAX_CLASSES) return false;
        if (!cl->n_runs || cl->runs[cl->n_runs - 1].class != class) {
            cl->runs = gram_grow(b, cl->runs, cl->n_runs, &cap, sizeof(*cl->runs));
            cl->runs[cl->n_runs++] = (struct gram_class_run){at, (uint8_t) class};
        }
        at = i < n ? edges[i].at : GRAM_MAX_CODE_POINT + 1;
    }
    cl->n = signatures->n;
    return true;
}

/* Per set, the list of its classes. */
static void list_classes(struct gram_build *b, struct gram_nfa *nfa,
                         const struct gram_table *signatures)
{
    assert(nfa->classes.n <= GRAM_MAX_CLASSES);
    nfa->set_classes = gram_temp_array(b, nfa->sets.n + 1, sizeof(*nfa->set_classes));
    nfa->n_set_classes = gram_temp_array(b, nfa->sets.n + 1, sizeof(*nfa->n_set_classes));
    for (uint32_t s = 0; s < nfa->sets.n; s++) {
        uint8_t *list = gram_temp(b, nfa->classes.n);
        uint32_t n = 0;
        for (uint32_t c = 0; c < nfa->classes.n; c++) {
            const uint64_t *signature = signatures->entries[c].key;
            if (signature[s / 64] >> s % 64 & 1) list[n++] = (uint8_t)c;
        }
        gram_steps(b, nfa->classes.n / 32);
        nfa->set_classes[s] = list;
        nfa->n_set_classes[s] = n;
    }
}

uint32_t gram_run_of(const struct gram_classes *classes, uint32_t cp)
{
    assert(classes->n_runs > 0);
    uint32_t lo = 0, hi = classes->n_runs;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (classes->runs[mid].lo <= cp)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

struct gram_nfa *gram_nfa_build(struct gram_build *b, const struct gram_ex_part *parts,
                                uint32_t n_parts, uint64_t needed, uint32_t max_states)
{
    struct gram_nfa *nfa = gram_temp(b, sizeof(*nfa));
    struct gram_table signatures = {0};
    uint64_t size = 0;
    nfa->parts = parts;
    nfa->n_parts = n_parts;
    bool far = false;
    for (uint32_t i = 0; i < n_parts; i++)
        far |= parts[i].x->looks == GRAM_LOOKS_FAR;
    if (far && split_parts(b, nfa)) return NULL;
    nfa->needed = needed_parts(nfa, needed);
    for (uint32_t i = 0; i < nfa->n_parts; i++)
        size += nfa->parts[i].x->size;
    if (size > max_states || nfa->n_parts > GRAM_MAX_PARTS) return NULL;
    for (uint32_t i = 0; i < nfa->n_parts; i++)
        nfa->start[i] = compile_part(b, nfa, i);
    uint32_t word = 0;
    if (nfa->has_words) {
        struct gram_charset *s = gram_temp(b, sizeof(*s));
        gram_charset_add_class(b, s, 'w');
        gram_charset_finish(b, s);
        word = set_number(b, nfa, s);
    }
    if (!find_classes(b, nfa, &signatures)) return NULL;
    list_classes(b, nfa, &signatures);
    for (uint32_t i = 0; nfa->has_words && i < nfa->n_set_classes[word]; i++)
        nfa->is_word[nfa->set_classes[word][i]] = 1;
    return nfa;
}
