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
    uint64_t hash = gram_charset_hash(b, s);
    uint32_t n = nfa->n_sets, i = gram_find(b, nfa->set_hashes, 0, n, hash);

    while (i < n && !gram_charset_equal(nfa->sets[i], s))
        i = gram_find(b, nfa->set_hashes, i + 1, n, hash);
    if (i < n) return i;
    nfa->sets = gram_grow(b, nfa->sets, n, &nfa->cap_sets, sizeof(*nfa->sets));
    nfa->set_hashes = gram_grow(b, nfa->set_hashes, n, &nfa->cap_hashes, sizeof(hash));
    nfa->sets[n] = s;
    nfa->set_hashes[n] = hash;
    return nfa->n_sets++;
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

/* x{min,max}: the copies beyond min can each be left out with all behind them. */
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
    default: { /* nothing: a set without members */
        static const struct gram_charset none = {0};
        return add(b, nfa, GRAM_NFA_SET, next, 0, set_number(b, nfa, &none));
    }
    }
}

static uint32_t compile_part(struct gram_build *b, struct gram_nfa *nfa, uint32_t part)
{
    uint32_t match = add(b, nfa, GRAM_NFA_MATCH, 0, 0, part);
    uint32_t inside = compile(b, nfa, nfa->parts[part].x, match);

    assert(part < nfa->n_parts);
    if (!nfa->parts[part].search) return inside;
    uint32_t any = compile(b, nfa, gram_ex_any(b), 0);
    uint32_t loop = add(b, nfa, GRAM_NFA_SPLIT, inside, any, 0);
    nfa->states[any].a = loop;
    return loop;
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
    for (uint32_t s = 0; s < nfa->n_sets; s++)
        n += 2 * nfa->sets[s]->n;
    struct edge *edges = gram_temp_array(b, n + 1, sizeof(*edges));
    n = 0;
    for (uint32_t s = 0; s < nfa->n_sets; s++) {
        for (uint32_t r = 0; r < nfa->sets[s]->n; r++) {
            edges[n++] = (struct edge){nfa->sets[s]->ranges[r].lo, s};
            edges[n++] = (struct edge){nfa->sets[s]->ranges[r].hi + 1, s};
        }
    }
    qsort(edges, n, sizeof(*edges), by_place);
    gram_steps(b, 2 * n);
    *ret = edges;
    return n;
}

/* Signatures (which sets hold a code point) that have been seen; their number is the class. */
struct signatures {
    uint64_t *words;  /* [n][n_words] */
    uint64_t *hashes; /* [n] */
    size_t n_words;
    uint32_t n;
};

/* The share of a set in the hash of a signature. */
static uint64_t hash_of_set(uint32_t set)
{
    uint64_t h = (set + 1) * 0x9E3779B97F4A7C15u;
    return (h ^ h >> 29) * 0xBF58476D1CE4E5B9u;
}

static uint32_t class_of_signature(struct gram_build *b, struct signatures *s, const uint64_t *now,
                                   uint64_t hash)
{
    size_t bytes = s->n_words * sizeof(*now);
    uint32_t c = gram_find(b, s->hashes, 0, s->n, hash);

    gram_steps(b, 1 + s->n_words / 64);
    while (c < s->n && memcmp(s->words + c * s->n_words, now, bytes) != 0)
        c = gram_find(b, s->hashes, c + 1, s->n, hash);
    if (c < s->n) return c;
    if (s->n > GRAM_MAX_CLASSES) return GRAM_MAX_CLASSES;
    memcpy(s->words + s->n * s->n_words, now, bytes);
    s->hashes[s->n] = hash;
    return s->n++;
}

/* Sweeps over the code points; a class begins wherever a set begins or ends. */
static bool find_classes(struct gram_build *b, struct gram_nfa *nfa, struct signatures *sig)
{
    struct edge *edges;
    uint32_t n = collect_edges(b, nfa, &edges), cap = 0;
    struct gram_classes *cl = &nfa->classes;
    uint64_t hash = 0;

    sig->n_words = nfa->n_sets / 64 + 1;
    sig->words = gram_temp_array(b, (GRAM_MAX_CLASSES + 1) * sig->n_words, 8);
    sig->hashes = gram_temp_array(b, GRAM_MAX_CLASSES + 1, 8);
    uint64_t *now = gram_temp_array(b, sig->n_words, 8);
    for (uint32_t i = 0, at = 0; at <= GRAM_MAX_CODE_POINT;) {
        for (; i < n && edges[i].at == at; i++) {
            now[edges[i].set / 64] ^= (uint64_t)1 << edges[i].set % 64;
            hash ^= hash_of_set(edges[i].set);
        }
        uint32_t class = class_of_signature(b, sig, now, hash);
        if (class == GRAM_MAX_CLASSES) return false;
        if (!cl->n_runs || cl->runs[cl->n_runs - 1].class != class) {
            cl->runs = gram_grow(b, cl->runs, cl->n_runs, &cap, sizeof(*cl->runs));
            cl->runs[cl->n_runs++] = (struct gram_class_run){at, (uint8_t) class};
        }
        at = i < n ? edges[i].at : GRAM_MAX_CODE_POINT + 1;
    }
    cl->n = sig->n;
    return true;
}

/* Per set, the list of its classes. */
static void list_classes(struct gram_build *b, struct gram_nfa *nfa, const struct signatures *sig)
{
    assert(nfa->classes.n <= GRAM_MAX_CLASSES);
    nfa->set_classes = gram_temp_array(b, nfa->n_sets + 1, sizeof(*nfa->set_classes));
    nfa->n_set_classes = gram_temp_array(b, nfa->n_sets + 1, sizeof(*nfa->n_set_classes));
    for (uint32_t s = 0; s < nfa->n_sets; s++) {
        uint8_t *list = gram_temp(b, nfa->classes.n);
        uint32_t n = 0;
        for (uint32_t c = 0; c < nfa->classes.n; c++)
            if (sig->words[c * sig->n_words + s / 64] >> s % 64 & 1) list[n++] = (uint8_t)c;
        gram_steps(b, nfa->classes.n / 32);
        nfa->set_classes[s] = list;
        nfa->n_set_classes[s] = n;
    }
}

uint8_t gram_class_of(const struct gram_classes *classes, uint32_t cp)
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
    return classes->runs[lo].class;
}

struct gram_nfa *gram_nfa_build(struct gram_build *b, const struct gram_ex_part *parts,
                                uint32_t n_parts, uint32_t max_states)
{
    struct gram_nfa *nfa = gram_temp(b, sizeof(*nfa));
    struct signatures sig = {0};
    uint64_t size = 0;

    nfa->parts = parts;
    nfa->n_parts = n_parts;
    for (uint32_t i = 0; i < n_parts; i++)
        size += parts[i].x->size;
    if (size > max_states || n_parts > GRAM_MAX_PARTS) return NULL;
    for (uint32_t i = 0; i < n_parts; i++)
        nfa->start[i] = compile_part(b, nfa, i);
    uint32_t word = 0;
    if (nfa->has_words) {
        struct gram_charset *s = gram_temp(b, sizeof(*s));
        gram_charset_add_class(b, s, 'w');
        gram_charset_finish(b, s);
        word = set_number(b, nfa, s);
    }
    if (!find_classes(b, nfa, &sig)) return NULL;
    list_classes(b, nfa, &sig);
    for (uint32_t i = 0; nfa->has_words && i < nfa->n_set_classes[word]; i++)
        nfa->is_word[nfa->set_classes[word][i]] = 1;
    return nfa;
}
