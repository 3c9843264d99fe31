/* SPDX-License-Identifier: MIT */
/*
 * Free keys: those that patternProperties, additionalProperties and propertyNames leave to chance.
 *
 * One automaton runs all patterns side by side; which of them match a key decides the schema of its
 * value. propertyNames adds parts of its own. Keys that are in the object's trie are never free.
 */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/grammar/rules.h"
#include "tokenizer/grammar/schema/keys.h"
#include "tokenizer/grammar/vocab.h"

enum { MAX_WORDS = 256 };

/* ---- classes ------------------------------------------------------------------------------- */

/* Which schemas apply to a key, by the parts that it matches. */
struct classes {
    struct gram_object_facts *f;
    struct gram_name_parts p;
    uint64_t patterns;      /* the parts that are patterns */
    struct gram_table sets; /* of patterns, by class */
    uint32_t *values;       /* value rules of the classes */
    uint32_t n, cap;
};

static struct classes *classes_of(struct gram_object_facts *f)
{
    struct classes *c = gram_temp(f->b, sizeof(*c));
    c->f = f;
    c->p.b = f->b;
    for (uint32_t i = 0; i < f->n_patterns; i++) {
        struct gram_js *p = f->patterns[i];
        gram_name_part(&c->p, p,
                       gram_pattern(f->b, p, "patternProperties", p->key, p->key_len, true), true);
        c->patterns |= (uint64_t)1 << i;
    }
    gram_name_rules(&c->p, f);
    return c;
}

/* The class of a key, from 1, or 0 if there is no such key. New ones are made while rules are. */
static uint32_t classify(const void *ctx, uint64_t matched)
{
    struct classes *c = (struct classes *)ctx;
    uint64_t set = matched & c->patterns;
    if (!gram_names_hold(&c->p, matched)) return 0;
    uint32_t i = gram_table_add(c->f->b, &c->sets, &set, sizeof(set));
    if (i < c->n) return i + 1;
    uint32_t value = !set && c->f->closed ? GRAM_NONE : gram_value_of_class(c->f, set);
    c->values = gram_grow(c->f->b, c->values, c->n, &c->cap, sizeof(*c->values));
    c->values[c->n] = value;
    return ++c->n;
}

/* ---- small languages ----------------------------------------------------------------------- */

/* All words of an automaton, as long as they are few. */
struct words {
    struct gram_build *b;
    const struct gram_dfa *d;
    uint8_t *on_path; /* [n_states] */
    char *text;       /* the word so far */
    size_t len, cap;
    struct word {
        const char *text;
        uint32_t len, class;
    } list[MAX_WORDS];
    uint32_t n;
    bool too_many;
};

static void collect_words(struct words *w, uint32_t q);

static void add_word(struct words *w, uint32_t class)
{
    if (w->n == MAX_WORDS) {
        w->too_many = true;
        return;
    }
    char *text = gram_temp(w->b, w->len + 1);
    memcpy(text, w->text, w->len);
    w->list[w->n++] = (struct word){text, (uint32_t)w->len, class};
}

/* Goes on by every code point of a run, which all lead to a state. */
static void extend_words(struct words *w, uint32_t lo, uint32_t end, uint32_t to)
{
    if (end - lo > MAX_WORDS) w->too_many = true;
    for (uint32_t cp = lo; cp < end && !w->too_many; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF) continue;
        size_t n = utf8_put(w->text + w->len, cp);
        w->len += n;
        collect_words(w, to);
        w->len -= n;
    }
}

static void collect_words(struct words *w, uint32_t q)
{
    const struct gram_classes *c = &w->d->classes;
    gram_steps(w->b, 1 + c->n_runs / 64);
    if (w->on_path[q] || w->len + 8 > w->cap) w->too_many = true;
    if (w->too_many) return;
    w->on_path[q] = 1;
    if (w->d->outcome[q]) add_word(w, w->d->outcome[q] - 1);
    for (uint32_t r = 0; r < c->n_runs && !w->too_many; r++) {
        uint32_t to = gram_dfa_next(w->d, q, c->runs[r].class);
        uint32_t end = r + 1 < c->n_runs ? c->runs[r + 1].lo : 0x110000;
        if (to != GRAM_DFA_DEAD) extend_words(w, c->runs[r].lo, end, to);
    }
    w->on_path[q] = 0;
}

/* Puts the words of a small language into the list of keys. */
static bool make_words(struct gram_object_facts *f, const struct gram_dfa *d,
                       const uint32_t *values)
{
    struct words *w = gram_temp(f->b, sizeof(*w));
    w->b = f->b;
    w->d = d;
    w->cap = 1024;
    w->text = gram_temp(f->b, w->cap);
    w->on_path = gram_temp(f->b, d->n_states);
    collect_words(w, d->start);
    if (w->too_many) return false;
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t n = f->list.n;
        struct gram_named_key *k = gram_named_key(f->b, &f->list, w->list[i].text, w->list[i].len);
        if (f->list.n > n) k->value = values[w->list[i].class];
    }
    return true;
}

/* ---- free keys ----------------------------------------------------------------------------- */

/* The class, if its values are possible. */
static uint32_t outcome(const void *ctx, uint64_t matched)
{
    const struct classes *c = ctx;
    uint32_t class = classify(c, matched);
    return class && c->values[class - 1] != GRAM_NONE ? class : 0;
}

void gram_find_free_keys(struct gram_object_facts *f, struct gram_object *o)
{
    struct gram_build *b = f->b;
    if (!f->n_patterns && !f->has_names) {
        o->free_value = gram_value_of_class(f, 0);
        o->free_kind = f->closed || o->free_value == GRAM_NONE ? GRAM_FREE_NONE : GRAM_FREE_ANY;
        o->may_open = f->closed && f->count.min > 0;
        return;
    }
    if (!f->n_patterns && f->closed) return;
    struct gram_key_draft *draft = gram_temp(b, sizeof(*draft));
    struct classes *c = classes_of(f);
    draft->at = f->n_patterns ? f->patterns[0] : gram_names_of(f);
    draft->keyword = f->n_patterns ? "patternProperties" : "propertyNames";
    draft->params = (struct gram_dfa_params){.parts = c->p.parts,
                                             .n_parts = c->p.n_parts,
                                             .outcome = outcome,
                                             .ctx = c,
                                             .json = true,
                                             .max = GRAM_INFINITE,
                                             .spellable = b->vocab->spellable};
    struct gram_dfa *d = gram_free_automaton(b, draft);
    draft->values = c->values;
    draft->n_values = c->n;
    if (d->n_states == 0 || make_words(f, d, c->values)) return;
    o->free_kind = GRAM_FREE_DFA;
    o->draft = draft;
    o->free_keys = d;
}
