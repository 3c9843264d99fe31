/* SPDX-License-Identifier: MIT */
/* Names of keys: what propertyNames says of them, as parts of an automaton that reads a key. */
#include "tokenizer/grammar/expr.h"
#include "tokenizer/grammar/schema/keys.h"

enum { MAX_NAME_LENGTH = 4000 };

/* One way that a name may fit: parts that must and must not match. */
struct way {
    struct way *next;
    uint64_t must, must_not;
};

/* One propertyNames: some way must hold. */
struct gram_name_rule {
    struct gram_name_rule *next;
    struct way *ways;
};

uint32_t gram_name_part(struct gram_name_parts *c, struct gram_js *at, const struct gram_ex *x,
                        bool search)
{
    if (c->n_parts == GRAM_MAX_PARTS)
        gram_leave_out(c->b, at, at->key, "too complex: more than %d patterns.", GRAM_MAX_PARTS);
    c->parts[c->n_parts] = (struct gram_ex_part){x, search};
    return c->n_parts++;
}

static void add_length(struct gram_name_parts *c, struct way *way,
                       const struct gram_string_facts *facts, struct gram_js *at)
{
    struct gram_build *b = c->b;
    uint32_t max = facts->max < GRAM_INFINITE ? (uint32_t)facts->max : GRAM_INFINITE;
    if (facts->min == 0 && max == GRAM_INFINITE) return;
    if (facts->min > MAX_NAME_LENGTH || (max != GRAM_INFINITE && max > MAX_NAME_LENGTH))
        gram_leave_out(b, at, "propertyNames", "too complex: lengths of names above %d.",
                       MAX_NAME_LENGTH);
    struct gram_ex *x = gram_ex_rep(b, gram_ex_any(b), (uint32_t)facts->min, max);
    way->must |= (uint64_t)1 << gram_name_part(c, at, x, false);
}

static void add_way(struct gram_name_parts *c, struct gram_name_rule *rule,
                    const struct gram_alt *alt, struct gram_js *at)
{
    struct gram_build *b = c->b;
    struct gram_string_facts *facts = gram_temp(b, sizeof(*facts));
    struct way *way = gram_temp(b, sizeof(*way));
    if (!(alt->types & GRAM_T_STRING)) return;
    gram_string_facts(b, alt, true, facts); /* a declared key may be one */
    if (facts->min > facts->max || facts->min >= GRAM_INFINITE) return;
    for (uint32_t i = 0; i < facts->n_parts; i++) {
        uint64_t bit = (uint64_t)1
                       << gram_name_part(c, at, facts->parts[i].x, facts->parts[i].search);
        *(facts->wanted[i] ? &way->must : &way->must_not) |= bit;
    }
    for (const struct gram_item *i = alt->last; i; i = i->before)
        if (!i->negated && (i->kw == GRAM_KW_CONST || i->kw == GRAM_KW_ENUM))
            way->must |= (uint64_t)1 << gram_name_part(c, at, gram_listed_strings(b, i), false);
    add_length(c, way, facts, at);
    way->next = rule->ways;
    rule->ways = way;
}

void gram_name_rules(struct gram_name_parts *c, const struct gram_object_facts *f)
{
    for (uint32_t i = 0; i < f->alt->n; i++) {
        struct gram_js *schema = (struct gram_js *)f->items[i]->value;
        if (f->items[i]->kw != GRAM_KW_PROPERTY_NAMES || schema->type == GRAM_JS_TRUE) continue;
        struct gram_name_rule *rule = gram_temp(f->b, sizeof(*rule));
        struct gram_member member = {schema, false};
        struct gram_alts alts = gram_expand(f->b, &member, 1);
        for (uint32_t k = 0; k < alts.n; k++)
            add_way(c, rule, &alts.alts[k], schema);
        rule->next = c->rules;
        c->rules = rule;
    }
}

bool gram_names_hold(const struct gram_name_parts *c, uint64_t matched)
{
    uint32_t n = 0;
    for (const struct gram_name_rule *r = c->rules; r; r = r->next) {
        const struct way *w = r->ways;
        for (; w && ((matched & w->must) != w->must || (matched & w->must_not)); w = w->next)
            if (++n % 16 == 0) gram_steps(c->b, 1);
        if (!w) return false;
    }
    return true;
}

/* ---- checking names ------------------------------------------------------------------------ */

static uint32_t holds(const void *ctx, uint64_t matched)
{
    return gram_names_hold(ctx, matched);
}

struct gram_js *gram_names_of(const struct gram_object_facts *f)
{
    uint32_t i = 0;
    while (f->items[i]->kw != GRAM_KW_PROPERTY_NAMES)
        i++;
    return (struct gram_js *)f->items[i]->value;
}

bool gram_name_fits(struct gram_object_facts *f, const char *name, uint32_t len)
{
    static const uint64_t all_bytes[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    if (!f->name_checker) {
        struct gram_name_parts *c = gram_temp(f->b, sizeof(*c));
        c->b = f->b;
        gram_name_rules(c, f);
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
            gram_leave_out(f->b, gram_names_of(f), "propertyNames", "too complex.");
    }
    return gram_dfa_accepts(f->name_checker, name, len);
}
