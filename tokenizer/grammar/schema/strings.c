/* SPDX-License-Identifier: MIT */
/*
 * Strings: patterns, formats, lengths and excluded constants become the parts of one automaton, or
 * nothing but a length. Equal strings are one node.
 */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/grammar/expr.h"
#include "tokenizer/grammar/format.h"
#include "tokenizer/grammar/front/ecma_regex.h"
#include "tokenizer/grammar/rules.h"
#include "tokenizer/grammar/schema/goals.h"
#include "tokenizer/grammar/vocab.h"

/* ---- patterns ------------------------------------------------------------------------------ */

/* A pattern or format that was parsed, and its automaton, if it was needed to check a text. */
struct gram_pattern_entry {
    struct gram_pattern_entry *next;
    const char *text;
    uint32_t len;
    bool search;
    const struct gram_ex *x;
    struct gram_dfa *checker;
};

static const uint64_t all_bytes[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

static struct gram_pattern_entry *find_pattern(struct gram_build *b, const struct gram_js *at,
                                               const char *keyword, const char *text, uint32_t len,
                                               bool search)
{
    struct gram_schema *s = b->schema;
    struct gram_regex_source source = {
        .at = (struct gram_js *)at, .keyword = keyword, .what = "pattern", .search = search};
    uint32_t n = 0;
    for (struct gram_pattern_entry *e = s->patterns; e; e = e->next) {
        if (++n % 16 == 0) gram_steps(b, 1);
        if (e->len == len && e->search == search && memcmp(e->text, text, len) == 0) return e;
    }
    if (len > GRAM_MAX_PATTERN_BYTES)
        gram_leave_out(b, source.at, keyword, "%u bytes; at most %d.", len, GRAM_MAX_PATTERN_BYTES);
    struct gram_pattern_entry *e = gram_temp(b, sizeof(*e));
    *e = (struct gram_pattern_entry){.text = text, .len = len, .search = search};
    e->x = gram_regex_parse(b, text, len, &source);
    e->next = s->patterns;
    s->patterns = e;
    return e;
}

const struct gram_ex *gram_pattern(struct gram_build *b, const struct gram_js *at,
                                   const char *keyword, const char *text, uint32_t len, bool search)
{
    return find_pattern(b, at, keyword, text, len, search)->x;
}

bool gram_pattern_matches(struct gram_build *b, const struct gram_js *at, const char *keyword,
                          const char *pattern, uint32_t pattern_len, const char *text, size_t len)
{
    struct gram_pattern_entry *e = find_pattern(b, at, keyword, pattern, pattern_len, true);
    if (!e->checker) {
        struct gram_ex_part part = {.x = e->x, .search = true};
        struct gram_dfa_params params = {
            .parts = &part, .n_parts = 1, .max = GRAM_INFINITE, .spellable = all_bytes};
        b->keep_nothing = true;
        e->checker = gram_dfa_build(b, &params);
        b->keep_nothing = false;
        if (!e->checker) gram_leave_out(b, (struct gram_js *)at, keyword, "too complex.");
    }
    gram_steps(b, 1 + len / 8);
    return gram_dfa_accepts(e->checker, text, len);
}

/* ---- facts --------------------------------------------------------------------------------- */

/* The largest pattern, or else the format, goes first. */
_Noreturn static void too_complex(struct gram_build *b, const struct gram_string_facts *f)
{
    if (!f->at) gram_fail_at(b, NULL, NULL, "too complex.");
    const char *keyword = gram_kw_of(b, f->at) == GRAM_KW_FORMAT ? "format" : "pattern";
    gram_leave_out(b, f->at, keyword, "too complex.");
}

static void add_part(struct gram_build *b, struct gram_string_facts *f, const struct gram_ex *x,
                     const struct gram_ex *source, bool search, bool wanted)
{
    if (f->n_parts == GRAM_MAX_PARTS) too_complex(b, f);
    f->parts[f->n_parts] = (struct gram_ex_part){.x = x, .search = search};
    f->sources[f->n_parts] = source;
    f->wanted[f->n_parts++] = wanted;
}

/* A long count is a length of the whole. */
static struct gram_ex *hoist(struct gram_build *b, struct gram_string_facts *f, struct gram_ex *x)
{
    uint32_t min, max;
    if (!gram_ex_hoist_count(b, &x, &min, &max)) return x;
    if (min > f->min) f->min = min;
    if (max < f->max) f->max = max;
    return x;
}

/* So it is in the look-ahead that a sequence begins with, as in (?=.{8,64}$). */
static struct gram_ex *hoist_look(struct gram_build *b, struct gram_string_facts *f,
                                  struct gram_ex *x)
{
    struct gram_ex *look = x->kind == GRAM_EX_SEQ ? x->kids[0] : x;
    struct gram_ex_list two = {0}, all = {0};
    if (look == x || look->kind != GRAM_EX_LOOK || look->negated) return x;
    const struct gram_ex *in = look->kids[0];
    if (in->kind != GRAM_EX_SEQ || in->kids[in->n - 1]->kind != GRAM_EX_END) return x;
    gram_ex_push(b, &two, hoist(b, f, gram_ex_slice(b, in, 0, in->n - 1)));
    gram_ex_push(b, &two, in->kids[in->n - 1]);
    gram_ex_push(b, &all, gram_ex_look(b, gram_ex_seq(b, &two), false, look->ref));
    gram_ex_push(b, &all, gram_ex_slice(b, x, 1, x->n));
    return gram_ex_seq(b, &all);
}

/* A pattern between ^ and $ needs no search. */
static void add_pattern(struct gram_build *b, struct gram_string_facts *f,
                        const struct gram_item *i)
{
    struct gram_js *v = (struct gram_js *)i->value;
    struct gram_ex *x = (struct gram_ex *)gram_pattern(b, v, "pattern", v->text, v->len, true);
    bool anchored = x->kind == GRAM_EX_SEQ && x->kids[0]->kind == GRAM_EX_BEGIN &&
                    x->kids[x->n - 1]->kind == GRAM_EX_END;
    const struct gram_ex *source = x;
    if (x->size >= f->at_size) {
        f->at = v;
        f->at_size = x->size;
    }
    anchored &= x->n > 2 && !i->negated;
    if (anchored) x = hoist(b, f, hoist_look(b, f, gram_ex_slice(b, x, 1, x->n - 1)));
    add_part(b, f, x, source, !anchored, !i->negated);
}

static void add_format(struct gram_build *b, struct gram_string_facts *f, const struct gram_js *v,
                       bool listed)
{
    uint32_t max = 0;
    enum gram_format format = gram_format_find(v->text, v->len);
    const char *regex = gram_format_regex(v->text, v->len, listed, &max);
    if (format == GRAM_FORMAT_INTEGER) return;
    if (!f->at) f->at = (struct gram_js *)v;
    if (max && max < f->max) f->max = max;
    const struct gram_ex *x = gram_pattern(b, v, "format", regex, (uint32_t)strlen(regex), false);
    add_part(b, f, x, x, false, true);
}

const struct gram_ex *gram_listed_strings(struct gram_build *b, const struct gram_item *i)
{
    struct gram_ex_list texts = {0};
    for (const struct gram_js *v = NULL; (v = gram_next_listed(i, v));)
        if (v->type == GRAM_JS_STRING) gram_ex_push(b, &texts, gram_ex_text(b, v->text, v->len));
    return gram_ex_alt(b, &texts);
}

static void add_fact(struct gram_build *b, struct gram_string_facts *f, const struct gram_item *i,
                     bool listed)
{
    struct gram_count length = {f->min, f->max};
    const struct gram_ex *listed_strings;
    if (gram_count_add(b, &length, i, GRAM_KW_MIN_LENGTH, GRAM_KW_MAX_LENGTH)) {
        f->min = length.min;
        f->max = length.max;
        return;
    }
    switch (i->kw) {
    case GRAM_KW_PATTERN: add_pattern(b, f, i); break;
    case GRAM_KW_FORMAT: add_format(b, f, i->value, listed); break;
    case GRAM_KW_CONST:
    case GRAM_KW_ENUM:
        if (!i->negated) break;
        listed_strings = gram_listed_strings(b, i);
        if (listed_strings->kind != GRAM_EX_NONE)
            add_part(b, f, listed_strings, NULL, false, false);
        break;
    default: break;
    }
}

void gram_string_facts(struct gram_build *b, const struct gram_alt *alt, bool listed,
                       struct gram_string_facts *f)
{
    memset(f, 0, sizeof(*f));
    f->max = GRAM_INFINITE;
    for (const struct gram_item *i = alt->last; i; i = i->before)
        add_fact(b, f, i, listed);
    gram_steps(b, 1 + alt->n / 4);
}

/* The parts that must and must not match, as the outcome of an automaton wants them. */
struct wanted {
    uint64_t must, must_not;
};

static uint32_t wanted_outcome(const void *wanted, uint64_t matched)
{
    const struct wanted *w = wanted;
    return (matched & w->must) == w->must && !(matched & w->must_not);
}

static void want(struct gram_build *b, const struct gram_string_facts *f,
                 struct gram_dfa_params *params)
{
    struct wanted *w = gram_temp(b, sizeof(*w));
    for (uint32_t i = 0; i < f->n_parts; i++)
        *(f->wanted[i] ? &w->must : &w->must_not) |= (uint64_t)1 << i;
    params->ctx = w;
    params->needed = w->must;
}

/* ---- checking constants -------------------------------------------------------------------- */

/* An automaton for what the alternative says; kept for the next constant of the same one. */
static struct gram_dfa *checker_of(struct gram_build *b, const struct gram_alt *alt,
                                   const struct gram_string_facts *f)
{
    struct gram_schema *s = b->schema;
    struct gram_dfa_params params = {.parts = f->parts,
                                     .n_parts = f->n_parts,
                                     .outcome = wanted_outcome,
                                     .max = GRAM_INFINITE,
                                     .spellable = all_bytes};
    if (s->checked == alt->last && s->checker && s->n_checked == alt->n) return s->checker;
    want(b, f, &params);
    b->keep_nothing = true;
    s->checker = gram_dfa_build(b, &params);
    b->keep_nothing = false;
    if (!s->checker) too_complex(b, f);
    s->checked = alt->last;
    s->n_checked = alt->n;
    return s->checker;
}

static bool has_string_facts(const struct gram_alt *alt)
{
    for (const struct gram_item *i = alt->last; i; i = i->before)
        if (i->kw >= GRAM_KW_CONST && i->kw <= GRAM_KW_MAX_LENGTH) return true;
    return false;
}

bool gram_string_fits(struct gram_build *b, const struct gram_alt *alt, const char *text,
                      size_t len)
{
    struct gram_string_facts *f;
    if (!has_string_facts(alt)) return true;
    f = gram_temp(b, sizeof(*f));
    gram_string_facts(b, alt, true, f);
    uint64_t n = utf8_count(text, len);
    if (n < f->min || (f->max < GRAM_INFINITE && n > f->max)) return false;
    return !f->n_parts || gram_dfa_accepts(checker_of(b, alt, f), text, len);
}

/* ---- nodes --------------------------------------------------------------------------------- */

/* A string that was built from parts that all have a text. */
struct gram_string_entry {
    struct gram_string_entry *next;
    const struct gram_string_facts *facts;
    bool bare; /* node is one of expressions */
    uint32_t node;
};

static bool same_facts(const struct gram_string_facts *x, const struct gram_string_facts *y)
{
    if (x->n_parts != y->n_parts || x->min != y->min || x->max != y->max) return false;
    for (uint32_t i = 0; i < x->n_parts; i++) {
        if (x->wanted[i] != y->wanted[i] || x->parts[i].search != y->parts[i].search) return false;
        if (!x->sources[i] || x->sources[i] != y->sources[i]) return false;
    }
    return true;
}

/* bare: as a node of expressions, without quotes and escapes. Borrows f, temporary memory. */
static uint32_t build_node(struct gram_build *b, const struct gram_string_facts *f, bool bare)
{
    struct gram_string s;
    struct gram_dfa_params params = {.parts = f->parts,
                                     .n_parts = f->n_parts,
                                     .outcome = wanted_outcome,
                                     .json = !bare,
                                     .min = (uint32_t)f->min,
                                     .max =
                                         f->max < GRAM_INFINITE ? (uint32_t)f->max : GRAM_INFINITE,
                                     .spellable = b->vocab->spellable};
    struct gram_string_entry *e = gram_temp(b, sizeof(*e));
    memset(&s, 0, sizeof(s));
    want(b, f, &params);
    s.dfa = gram_add_dfa(b, &params);
    if (!s.dfa) too_complex(b, f);
    *e = (struct gram_string_entry){b->schema->strings, f, bare, 0};
    e->node = bare ? gram_node_leaf(b, s.dfa) : gram_add_string(b, &s);
    b->schema->strings = e;
    return e->node;
}

/* One that was built of the same facts, or a new one. */
static uint32_t string_node(struct gram_build *b, const struct gram_string_facts *f, bool bare)
{
    for (struct gram_string_entry *e = b->schema->strings; e; e = e->next) {
        gram_steps(b, 1);
        if (e->bare == bare && same_facts(e->facts, f)) return e->node;
    }
    return build_node(b, f, bare);
}

uint32_t gram_string_text_node(struct gram_build *b, const struct gram_alt *alt,
                               const struct gram_part *part)
{
    struct gram_string_facts *f = gram_temp(b, sizeof(*f));
    const struct gram_part *end = part->kids;
    gram_string_facts(b, alt, false, f);
    const struct gram_ex *x = gram_pattern(b, f->at, NULL, end->text, (uint32_t)end->len, false);
    add_part(b, f, x, x, true, false);
    if (part->nullable) {
        x = gram_pattern(b, f->at, NULL, "null", 4, false);
        add_part(b, f, x, x, false, false);
    }
    if (f->min > f->max || f->min >= GRAM_INFINITE)
        return gram_node_with(b, GRAM_NODE_ALT, 0, NULL);
    return string_node(b, f, true);
}

static void add_free(struct gram_build *b, struct gram_value_draft *d, uint32_t min, uint32_t max)
{
    struct gram_string s;
    memset(&s, 0, sizeof(s));
    s.min = min;
    s.max = max;
    gram_add_branch(b, d, GRAM_BRANCH_STRING, gram_add_string(b, &s));
}

void gram_build_string(struct gram_build *b, struct gram_value_draft *d, const struct gram_alt *alt)
{
    if (!has_string_facts(alt)) {
        add_free(b, d, 0, GRAM_INFINITE);
        return;
    }
    struct gram_string_facts *f = gram_temp(b, sizeof(*f));
    gram_string_facts(b, alt, false, f);
    if (f->min > f->max || f->min >= GRAM_INFINITE) {
        gram_note_reason(b, d->value, NULL,
                         f->min >= GRAM_INFINITE
                             ? "no length is possible"
                             : gram_text(b, "minLength is %llu and maxLength is %llu",
                                         (unsigned long long)f->min, (unsigned long long)f->max));
        return;
    }
    if (!f->n_parts) {
        add_free(b, d, (uint32_t)f->min, (uint32_t)f->max);
        return;
    }
    uint32_t node = string_node(b, f, false);
    const struct gram_string *built = &b->rules->strings[node];
    if (!built->dfa->n_states)
        gram_note_reason(b, d->value, NULL, "no string fits its pattern, format and lengths");
    else
        gram_add_branch(b, d, GRAM_BRANCH_STRING, node);
}
