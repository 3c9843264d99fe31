/* SPDX-License-Identifier: MIT */
/*
 * Free keys: those that patternProperties, additionalProperties and propertyNames leave to chance.
 *
 * One automaton runs all patterns side by side; which of them match a key decides the schema of its
 * value. propertyNames adds parts of its own. Keys that are in the object's trie are never free.
 */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/grammar/expr.h"
#include "tokenizer/grammar/schema/keys.h"
#include "tokenizer/grammar/vocab.h"

enum { MAX_WORDS = 256, MAX_NAME_LENGTH = 4000 };

/* ---- propertyNames ------------------------------------------------------------------------- */

/* One way that a name may fit: parts that must and must not match. */
struct way {
    struct way *next;
    uint64_t must, must_not;
};

/* One propertyNames: some way must hold. */
struct rule {
    struct rule *next;
    struct way *ways;
};

/* Which schemas apply to a key, by the parts that it matches. */
struct classes {
    struct gram_object_facts *f;
    struct rule *rules;
    uint64_t patterns; /* the parts that are patterns */
    uint64_t *sets;    /* of patterns, by class */
    uint32_t *values;  /* value rules of the classes */
    uint32_t n, cap_sets, cap_values;
    struct gram_ex_part parts[GRAM_MAX_PARTS];
    uint32_t n_parts;
};

static uint32_t add_part(struct classes *c, const struct gram_js *at, const struct gram_ex *x,
                         bool search)
{
    if (c->n_parts == GRAM_MAX_PARTS)
        gram_fail_at(c->f->b, at, NULL, "too complex: more than %d patterns.", GRAM_MAX_PARTS);
    c->parts[c->n_parts] = (struct gram_ex_part){x, search};
    return c->n_parts++;
}

/* The listed strings of const and enum as a part. */
static uint32_t add_values(struct classes *c, const struct gram_item *i)
{
    struct gram_ex_list texts = {0};
    const struct gram_js *v = i->kw == GRAM_KW_ENUM ? i->value->child : i->value;

    for (; v; v = i->kw == GRAM_KW_ENUM ? v->next : NULL)
        if (v->type == GRAM_JS_STRING)
            gram_ex_push(c->f->b, &texts, gram_ex_text(c->f->b, v->text, v->len));
    return add_part(c, i->value, gram_ex_alt(c->f->b, &texts), false);
}

static void add_length(struct classes *c, struct way *way, const struct gram_string_facts *facts,
                       const struct gram_js *at)
{
    struct gram_build *b = c->f->b;
    uint32_t max = facts->max < GRAM_INFINITE ? (uint32_t)facts->max : GRAM_INFINITE;

    if (facts->min == 0 && max == GRAM_INFINITE) return;
    if (facts->min > MAX_NAME_LENGTH || (max != GRAM_INFINITE && max > MAX_NAME_LENGTH))
        gram_fail_at(b, at, "propertyNames", "too complex: lengths of names above %d.",
                     MAX_NAME_LENGTH);
    struct gram_ex *x = gram_ex_rep(b, gram_ex_any(b), (uint32_t)facts->min, max);
    way->must |= (uint64_t)1 << add_part(c, at, x, false);
}

static void add_way(struct classes *c, struct rule *rule, const struct gram_alt *alt,
                    const struct gram_js *at)
{
    struct gram_build *b = c->f->b;
    struct gram_string_facts *facts = gram_temp(b, sizeof(*facts));
    struct way *way = gram_temp(b, sizeof(*way));

    if (!(alt->types & GRAM_T_STRING)) return;
    gram_string_facts(b, alt, facts);
    if (facts->min > facts->max || facts->min >= GRAM_INFINITE) return;
    for (uint32_t i = 0; i < facts->n_parts; i++) {
        uint64_t bit = (uint64_t)1 << add_part(c, at, facts->parts[i].x, facts->parts[i].search);
        *(facts->wanted[i] ? &way->must : &way->must_not) |= bit;
    }
    for (const struct gram_item *i = alt->last; i; i = i->before)
        if (!i->negated && (i->kw == GRAM_KW_CONST || i->kw == GRAM_KW_ENUM))
            way->must |= (uint64_t)1 << add_values(c, i);
    add_length(c, way, facts, at);
    way->next = rule->ways;
    rule->ways = way;
}

static void add_rules(struct classes *c)
{
    struct gram_object_facts *f = c->f;

    for (uint32_t i = 0; i < f->alt->n; i++) {
        struct gram_js *schema = (struct gram_js *)f->items[i]->value;
        if (f->items[i]->kw != GRAM_KW_PROPERTY_NAMES || schema->type == GRAM_JS_TRUE) continue;
        struct rule *rule = gram_temp(f->b, sizeof(*rule));
        struct gram_member member = {schema, false};
        struct gram_alts alts = gram_expand(f->b, &member, 1);
        for (uint32_t k = 0; k < alts.n; k++)
            add_way(c, rule, &alts.alts[k], schema);
        rule->next = c->rules;
        c->rules = rule;
    }
}

static bool rules_hold(const struct classes *c, uint64_t matched)
{
    for (const struct rule *r = c->rules; r; r = r->next) {
        const struct way *w = r->ways;
        while (w && ((matched & w->must) != w->must || (matched & w->must_not)))
            w = w->next;
        if (!w) return false;
    }
    return true;
}

/* ---- patterns ------------------------------------------------------------------------------ */

static bool same_pattern(const struct gram_js *x, const struct gram_js *y)
{
    return x->key_len == y->key_len && memcmp(x->key, y->key, x->key_len) == 0;
}

static void add_pattern(struct gram_object_facts *f, const struct gram_js *pattern)
{
    for (uint32_t i = 0; i < f->n_patterns; i++)
        if (same_pattern(f->patterns[i], pattern)) return;
    if (f->n_patterns == GRAM_MAX_PARTS)
        gram_fail_at(f->b, pattern, "patternProperties", "too complex: more than %d patterns.",
                     GRAM_MAX_PARTS);
    f->patterns[f->n_patterns++] = pattern;
}

void gram_collect_patterns(struct gram_object_facts *f)
{
    for (uint32_t i = 0; i < f->alt->n; i++) {
        const struct gram_item *item = f->items[i];
        if (item->kw == GRAM_KW_PROPERTY_NAMES && item->value->type != GRAM_JS_TRUE)
            f->has_names = true;
        if (item->kw != GRAM_KW_PATTERN_PROPERTIES) continue;
        for (const struct gram_js *p = item->value->child; p; p = p->next)
            add_pattern(f, p);
    }
}

static struct classes *classes_of(struct gram_object_facts *f)
{
    struct classes *c = gram_temp(f->b, sizeof(*c));

    c->f = f;
    for (uint32_t i = 0; i < f->n_patterns; i++) {
        const struct gram_js *p = f->patterns[i];
        add_part(c, p, gram_pattern(f->b, p, "patternProperties", p->key, p->key_len), true);
        c->patterns |= (uint64_t)1 << i;
    }
    add_rules(c);
    return c;
}

/* The class of a key, from 1, or 0 if there is no such key. New ones are made while rules are. */
static uint32_t classify(const void *ctx, uint64_t matched)
{
    struct classes *c = (struct classes *)ctx;
    uint64_t set = matched & c->patterns;

    if (!rules_hold(c, matched)) return 0;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->sets[i] == set) return i + 1;
    uint32_t value = gram_value_of_class(c->f, set);
    c->sets = gram_grow(c->f->b, c->sets, c->n, &c->cap_sets, sizeof(*c->sets));
    c->values = gram_grow(c->f->b, c->values, c->n, &c->cap_values, sizeof(*c->values));
    c->sets[c->n] = set;
    c->values[c->n] = value;
    return ++c->n;
}

/* ---- checking names ------------------------------------------------------------------------ */

static uint32_t holds(const void *ctx, uint64_t matched)
{
    return rules_hold(ctx, matched);
}

bool gram_name_fits(struct gram_object_facts *f, const char *name, uint32_t len)
{
    static const uint64_t all_bytes[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

    if (!f->name_checker) {
        struct classes *c = gram_temp(f->b, sizeof(*c));
        c->f = f;
        add_rules(c);
        struct gram_dfa_params params = {.parts = c->parts,
                                         .n_parts = c->n_parts,
                                         .outcome = holds,
                                         .ctx = c,
                                         .max = GRAM_INFINITE,
                                         .spellable = all_bytes};
        f->b->keep_nothing = true;
        f->name_checker = gram_dfa_build(f->b, &params);
        f->b->keep_nothing = false;
        if (!f->name_checker)
            gram_fail_at(f->b, f->items[0]->schema, "propertyNames", "too complex.");
    }
    return gram_dfa_accepts(f->name_checker, name, len);
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

/* Goes on by every code point of a class. */
static void extend_words(struct words *w, uint32_t class, uint32_t to)
{
    const struct gram_classes *c = &w->d->classes;

    for (uint32_t r = 0; r < c->n_runs && !w->too_many; r++) {
        uint32_t end = r + 1 < c->n_runs ? c->runs[r + 1].lo : 0x110000;
        if (c->runs[r].class != class) continue;
        if (end - c->runs[r].lo > MAX_WORDS) w->too_many = true;
        for (uint32_t cp = c->runs[r].lo; cp < end && !w->too_many; cp++) {
            if (cp >= 0xD800 && cp <= 0xDFFF) continue;
            size_t n = utf8_put(w->text + w->len, cp);
            w->len += n;
            collect_words(w, to);
            w->len -= n;
        }
    }
}

static void collect_words(struct words *w, uint32_t q)
{
    gram_steps(w->b, 1);
    if (w->on_path[q] || w->len + 8 > w->cap) w->too_many = true;
    if (w->too_many) return;
    w->on_path[q] = 1;
    if (w->d->outcome[q]) add_word(w, w->d->outcome[q] - 1);
    for (uint32_t class = 0; class < w->d->n_classes && !w->too_many; class ++) {
        uint32_t to = gram_dfa_next(w->d, q, class);
        if (to != GRAM_DFA_DEAD) extend_words(w, class, to);
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

/* The outcome of the automaton: the class, if its values are possible. */
static uint32_t outcome(const void *ctx, uint64_t matched)
{
    const struct gram_key_draft *draft = ctx;
    uint32_t class = draft->classify(draft->ctx, matched);
    const struct classes *c = draft->ctx;
    return class && c->values[class - 1] != GRAM_NONE ? class : 0;
}

static struct gram_dfa *build_automaton(struct gram_build *b, const struct gram_key_draft *draft)
{
    const struct classes *c = draft->ctx;
    struct gram_dfa_params params = draft->params;

    params.outcome = outcome;
    params.ctx = draft;
    struct gram_dfa *d = gram_add_dfa(b, &params);
    if (!d) gram_fail_at(b, c->f->items[0]->schema, NULL, "too complex: patterns of keys.");
    return d;
}

void gram_find_free_keys(struct gram_object_facts *f, struct gram_object *o)
{
    struct gram_build *b = f->b;

    if (!f->n_patterns && !f->has_names) {
        o->free_value = gram_value_of_class(f, 0);
        o->free_kind = o->free_value == GRAM_NONE ? GRAM_FREE_NONE : GRAM_FREE_ANY;
        return;
    }
    struct gram_key_draft *draft = gram_temp(b, sizeof(*draft));
    struct classes *c = classes_of(f);
    draft->params = (struct gram_dfa_params){.parts = c->parts,
                                             .n_parts = c->n_parts,
                                             .json = true,
                                             .max = GRAM_INFINITE,
                                             .spellable = b->vocab->spellable};
    draft->classify = classify;
    draft->ctx = c;
    struct gram_dfa *d = build_automaton(b, draft);
    draft->values = c->values;
    draft->n_values = c->n;
    if (d->n_states == 0 || make_words(f, d, c->values)) return;
    o->free_kind = GRAM_FREE_DFA;
    o->draft = draft;
    o->free_keys = d;
    o->free_values = c->values;
}

/* ---- prefixes of declared keys ------------------------------------------------------------- */

/* Where the automaton stands at a node of the trie; dead: q is GRAM_DFA_DEAD. */
static void place_nodes(const struct gram_object *o, struct gram_dfa_place *places)
{
    const struct gram_trie *t = &o->trie;

    for (uint32_t i = 0; i < t->n_nodes; i++)
        places[i].q = GRAM_DFA_DEAD;
    places[0] = (struct gram_dfa_place){o->free_keys->start, 0, 0};
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        for (uint32_t e = t->nodes[i].edges; e < t->nodes[i].edges + t->nodes[i].n_edges; e++) {
            struct gram_dfa_place p = places[i];
            if (p.q == GRAM_DFA_DEAD) continue;
            if (gram_dfa_take(o->free_keys, &p, t->bytes[e]) == GRAM_DFA_STEP_ON)
                places[t->to[e]] = p;
        }
    }
}

/* Some longer key that is not in the trie begins like node i. */
static bool continues(const struct gram_object *o, uint32_t i, const struct gram_dfa_place *place,
                      const uint8_t *alive)
{
    for (int byte = 255; byte >= 0; byte--) {
        struct gram_dfa_place p = *place;
        uint32_t child = gram_trie_step(&o->trie, i, (uint8_t)byte);
        if (child != GRAM_TRIE_NONE && !alive[child]) continue;
        if (gram_dfa_take(o->free_keys, &p, (uint8_t)byte) == GRAM_DFA_STEP_ON) return true;
    }
    return false;
}

void gram_object_build_free(struct gram_build *b, struct gram_object *o)
{
    uint32_t n = o->trie.n_nodes;
    uint8_t *alive = gram_keep(b, n), *more = gram_keep(b, n);
    struct gram_dfa_place *places = gram_temp_array(b, n, sizeof(*places));

    if (!o->free_keys) o->free_keys = build_automaton(b, o->draft);
    o->free_values = gram_keep_copy(b, o->draft->values, o->draft->n_values, sizeof(uint32_t));
    o->prefix_alive = alive;
    o->prefix_more = more;
    if (o->free_keys->n_states == 0) {
        o->free_kind = GRAM_FREE_NONE;
        return;
    }
    place_nodes(o, places);
    o->all_alive = true;
    for (uint32_t i = n; i-- > 0;) {
        const struct gram_dfa_place *p = &places[i];
        if (p->q == GRAM_DFA_DEAD) continue;
        more[i] = continues(o, i, p, alive);
        bool is_key = !p->decoder && o->free_keys->outcome[p->q] && !o->trie.nodes[i].is_leaf;
        alive[i] = more[i] || is_key;
        o->all_alive &= alive[i];
    }
    gram_steps(b, n / 4 + 1);
    if (!alive[0]) o->free_kind = GRAM_FREE_NONE;
}
