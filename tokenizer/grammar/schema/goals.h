/* SPDX-License-Identifier: MIT */
/*
 * JSON schemas to value rules.
 *
 * A rule is a goal: a list of schemas of the document that all apply to one value, some of them
 * negated. A goal is expanded into alternatives, each a flat list of plain keywords (assertions) in
 * the order of the text: allOf and $ref are followed, anyOf multiplies, not is pushed inwards as
 * far as that is exact. An alternative is split by type, and every type becomes a node of the
 * rules. The schemas of a property or an item are goals again; equal goals are one rule, so
 * recursion ends.
 *
 * Files, each resting on those before it: keywords.c; ref.c ($ref); goals.c; numbers.c; expand.c
 * (alternatives), negate.c (what can be negated) and disjoint.c (oneOf), which call each other;
 * strings.c; arrays.c; names.c, members.c, keys.c and objects.c; values.c (const, enum, and
 * alternatives by type); front.c (the whole).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/charset.h"
#include "tokenizer/grammar/schema/decimal.h"
#include "tokenizer/grammar/json_doc.h"
#include "tokenizer/grammar/rules.h"

enum {
    GRAM_MAX_SCHEMA_BYTES = 512 * 1024,
    GRAM_MAX_SCHEMA_DEPTH = 128,
    GRAM_MAX_ENUM = 10000,
    GRAM_MAX_PATTERN_BYTES = 4096,
    GRAM_MAX_ALTERNATIVES = 256, /* of a goal, when several things multiply */
    GRAM_MAX_BRANCHES = 4096,    /* of a goal, when nothing multiplies */
};

/* ---- keywords ------------------------------------------------------------------------------ */

enum gram_kw {
    GRAM_KW_NONE, /* an annotation, or unknown */
    GRAM_KW_REF,
    GRAM_KW_DYNAMIC_REF,
    GRAM_KW_ALL_OF,
    GRAM_KW_ANY_OF,
    GRAM_KW_ONE_OF,
    GRAM_KW_NOT,
    GRAM_KW_IF,
    GRAM_KW_TYPE,
    GRAM_KW_CONST,
    GRAM_KW_ENUM,
    GRAM_KW_FORMAT,
    GRAM_KW_PATTERN,
    GRAM_KW_MIN_LENGTH,
    GRAM_KW_MAX_LENGTH,
    GRAM_KW_MINIMUM,
    GRAM_KW_MAXIMUM,
    GRAM_KW_EXCLUSIVE_MINIMUM,
    GRAM_KW_EXCLUSIVE_MAXIMUM,
    GRAM_KW_MULTIPLE_OF,
    GRAM_KW_PROPERTIES,
    GRAM_KW_PATTERN_PROPERTIES,
    GRAM_KW_ADDITIONAL_PROPERTIES,
    GRAM_KW_UNEVALUATED_PROPERTIES,
    GRAM_KW_PROPERTY_NAMES,
    GRAM_KW_REQUIRED,
    GRAM_KW_MIN_PROPERTIES,
    GRAM_KW_MAX_PROPERTIES,
    GRAM_KW_DEPENDENT_REQUIRED,
    GRAM_KW_DEPENDENT_SCHEMAS,
    GRAM_KW_DEPENDENCIES,
    GRAM_KW_ITEMS,
    GRAM_KW_PREFIX_ITEMS,
    GRAM_KW_ADDITIONAL_ITEMS,
    GRAM_KW_UNEVALUATED_ITEMS,
    GRAM_KW_MIN_ITEMS,
    GRAM_KW_MAX_ITEMS,
    GRAM_KW_UNIQUE_ITEMS,
    GRAM_KW_CONTAINS,
    GRAM_KW_CONTAINS_COUNT, /* minContains, maxContains */
    GRAM_KW_NULLABLE,
    GRAM_KW_THEN_ELSE, /* read with `if` */
    GRAM_KW_LEFT_OUT,  /* it cannot be compiled; nothing is known of what it says */
    /* not in a text: */
    GRAM_KW_PRESENT,      /* the object has key `name` */
    GRAM_KW_ABSENT,       /* it has not */
    GRAM_KW_NOT_PROPERTY, /* the value of key `name` does not fit schema `value` */
    GRAM_KW_WANTS,        /* if the object has key `name`, it has the keys of list `value` */
};

/* The keyword that the name of a member is in the document's draft. */
enum gram_kw gram_kw_of(const struct gram_build *b, struct gram_js *member);

/* 1: the value of the keyword is a schema; 2: its members or items are; 0: neither. */
int gram_kw_schemas(const struct gram_build *b, struct gram_js *member);

/* Bits of gram_js.marks. */
enum {
    GRAM_MARK_RESOURCE = 1, /* a schema with an identifier of its own */
    GRAM_MARK_RELAXED = 2,  /* in the list of relaxed keywords */
    GRAM_MARK_CAN_NEGATE = 4,
    GRAM_MARK_CANNOT_NEGATE = 8,
    GRAM_MARK_EXACT = 16,
    GRAM_MARK_INEXACT = 32,
    GRAM_MARK_CHECKED = 64, /* the keyword's value has the right type */
    GRAM_MARK_BUSY = 128,
};

/* Types of values, as bits. An integer is a number without fraction. */
enum {
    GRAM_T_NULL = 1,
    GRAM_T_BOOLEAN = 2,
    GRAM_T_INTEGER = 4,
    GRAM_T_FRACTION = 8, /* numbers that are not integers */
    GRAM_T_NUMBER = GRAM_T_INTEGER | GRAM_T_FRACTION,
    GRAM_T_STRING = 16,
    GRAM_T_ARRAY = 32,
    GRAM_T_OBJECT = 64,
    GRAM_T_ALL = 127,
};

/* The type of a value, and of a list or name of types. */
uint32_t gram_type_of_value(struct gram_build *b, const struct gram_js *v);
uint32_t gram_types_named(struct gram_build *b, const struct gram_js *type);

/* An object or a boolean. */
bool gram_js_is_schema(const struct gram_js *v);

/* Checks that the value of a keyword has the right type; leaves if not. */
void gram_check_keyword(struct gram_build *b, enum gram_kw kw, struct gram_js *value);

/* ---- alternatives -------------------------------------------------------------------------- */

/* An assertion of an alternative. Lists grow at the front, so alternatives share their tails. */
struct gram_item {
    const struct gram_item *before; /* the one before it in text order */
    const struct gram_js *schema;   /* that the keyword is in; NULL for some of our own */
    const struct gram_js *value;    /* of the keyword; value->key is its name */
    uint8_t kw;
    bool negated;
    bool quiet;       /* a condition: its names do not order the keys */
    const char *name; /* a key */
    uint32_t name_len;
};

struct gram_alt {
    const struct gram_item *last;
    uint32_t types;
    uint32_t n; /* items */
};

struct gram_alts {
    struct gram_alt *alts;
    uint32_t n, cap;
    bool too_many; /* the list was cut: more than was allowed */
};

/* A schema of the document, or its opposite. */
struct gram_member {
    struct gram_js *schema;
    bool negated;
};

/* Several schemas taken together. Leaves if there are too many alternatives. */
struct gram_alts gram_expand(struct gram_build *b, const struct gram_member *members, uint32_t n);

/* The same for one more schema, on top of alternatives. */
struct gram_alts gram_apply(struct gram_build *b, struct gram_alts in, struct gram_js *schema,
                            bool negated);

void gram_alts_push(struct gram_build *b, struct gram_alts *list, struct gram_alt alt);
struct gram_alts gram_alts_join(struct gram_build *b, struct gram_alts x, struct gram_alts y);

/* The alternatives that are left when values must be of some types. */
struct gram_alts gram_restrict(struct gram_build *b, struct gram_alts in, uint32_t types);

/* Every alternative with one more assertion, for values of some types. */
struct gram_alts gram_assert(struct gram_build *b, struct gram_alts in, struct gram_item item,
                             uint32_t types);

/* The items of an alternative in text order, in temporary memory. */
const struct gram_item **gram_items(struct gram_build *b, const struct gram_alt *alt);

/* A keyword cannot be followed exactly: it is named, or refused if that is wanted. */
void gram_relax(struct gram_build *b, struct gram_js *value, const char *why);

/* Negation: exact for this schema; the schema says exactly what its rule will say. */
bool gram_can_negate(struct gram_build *b, struct gram_js *schema);
bool gram_is_exact(struct gram_build *b, struct gram_js *schema);
struct gram_alts gram_apply_negated(struct gram_build *b, struct gram_alts in,
                                    struct gram_js *schema);

/* Any of a list, which is the value of a keyword; and oneOf: exactly if that is possible. */
struct gram_alts gram_apply_any_of(struct gram_build *b, struct gram_alts in, struct gram_js *list,
                                   const char *keyword);
struct gram_alts gram_apply_one_of(struct gram_build *b, struct gram_alts in, struct gram_js *list);

/* The alternatives without those that show at a look to be impossible. */
struct gram_alts gram_drop_contradictions(struct gram_build *b, struct gram_alts in);

/* ---- rules --------------------------------------------------------------------------------- */

/* A goal that was asked for. */
struct gram_goal_entry {
    struct gram_member *members;
    uint32_t n;
    uint32_t value;
};

/* The rule of a goal; it is built later, unless it is there. No members: any value. */
uint32_t gram_goal(struct gram_build *b, const struct gram_member *members, uint32_t n);

/* A value rule being built, from all alternatives of its goal. */
struct gram_value_draft {
    uint32_t value;
    struct gram_branch *branches;
    uint32_t n, cap;
    struct gram_trie_builder literals;
    uint64_t *hashes; /* of the literals, by number */
    uint32_t n_hashes, cap_hashes;
};

void gram_add_branch(struct gram_build *b, struct gram_value_draft *d, enum gram_branch_kind kind,
                     uint32_t node);

/*
 * A JSON text as a literal of the value; nothing if it cannot be spelled. Literals with equal
 * `same` are one value; for strings that is the spelling without quotes.
 */
void gram_add_literal(struct gram_build *b, struct gram_value_draft *d, const char *text,
                      size_t len, const char *same, size_t same_len);

/* The draft becomes the value rule. */
void gram_finish_draft(struct gram_build *b, struct gram_value_draft *d);

/* Nodes for one type of an alternative; `why` of a value is set if there is none. */
void gram_build_string(struct gram_build *b, struct gram_value_draft *d,
                       const struct gram_alt *alt);
void gram_build_number(struct gram_build *b, struct gram_value_draft *d,
                       const struct gram_alt *alt);
void gram_build_object(struct gram_build *b, struct gram_value_draft *d,
                       const struct gram_alt *alt);
void gram_build_array(struct gram_build *b, struct gram_value_draft *d, const struct gram_alt *alt);
void gram_build_alt(struct gram_build *b, struct gram_value_draft *d, const struct gram_alt *alt);

/* The node of the texts of strings that fit some alternative; see `bare` in struct gram_part. */
uint32_t gram_build_texts(struct gram_build *b, const struct gram_alts *alts,
                          const struct gram_part *part);
uint32_t gram_string_text_node(struct gram_build *b, const struct gram_alt *alt,
                               const struct gram_part *part);

/* Notes why the rule has no member, unless a reason is known. at: NULL for the goal's schema. */
void gram_note_reason(struct gram_build *b, uint32_t value, const struct gram_js *at,
                      const char *text);

/* A constant fits what the alternative says about its type, const and enum left aside. */
bool gram_string_fits(struct gram_build *b, const struct gram_alt *alt, const char *text,
                      size_t len);
bool gram_number_fits(struct gram_build *b, const struct gram_alt *alt,
                      const struct gram_decimal *v);

/* Some number is within the bounds of the alternative. */
bool gram_number_possible(struct gram_build *b, const struct gram_alt *alt);

/* The expression of a pattern, parsed once. at: its place, to be left out; search: not a whole
 * text. */
const struct gram_ex *gram_pattern(struct gram_build *b, const struct gram_js *at,
                                   const char *keyword, const char *text, uint32_t len,
                                   bool search);

/* Returns true if the pattern is found in the text. */
bool gram_pattern_matches(struct gram_build *b, const struct gram_js *at, const char *keyword,
                          const char *pattern, uint32_t pattern_len, const char *text, size_t len);

/* Rules of an alternative for strings: parts of an automaton, and the length. */
struct gram_string_facts {
    uint64_t min, max; /* code points; max: no limit from GRAM_INFINITE on */
    struct gram_ex_part parts[GRAM_MAX_PARTS];
    const struct gram_ex *sources[GRAM_MAX_PARTS]; /* as it was parsed; NULL: not from a text */
    bool wanted[GRAM_MAX_PARTS];                   /* the part must match; else it must not */
    uint32_t n_parts;
    struct gram_js *at; /* the keyword that is to blame if it is too complex: the largest */
    uint32_t at_size;
};

/* listed: for constants, which may have leap seconds. */
void gram_string_facts(struct gram_build *b, const struct gram_alt *alt, bool listed,
                       struct gram_string_facts *f);

/* The strings that a const or enum lists, as one expression. */
const struct gram_ex *gram_listed_strings(struct gram_build *b, const struct gram_item *i);

/* The text of a string as JSON in the plain dialect, without quotes. */
const char *gram_json_spell(struct gram_build *b, const char *text, size_t len, size_t *ret_len);

/* A schema that restricts nothing. */
static inline bool gram_is_trivial(const struct gram_js *schema)
{
    return schema->type == GRAM_JS_TRUE || (schema->type == GRAM_JS_OBJECT && schema->n == 0);
}

/* The value after `last` (NULL: the first) that a const or enum lists, or NULL. */
static inline const struct gram_js *gram_next_listed(const struct gram_item *i,
                                                     const struct gram_js *last)
{
    if (i->kw == GRAM_KW_CONST) return last ? NULL : i->value;
    return last ? last->next : i->value->child;
}

/* A const or enum. */
static inline bool gram_is_values(const struct gram_item *i)
{
    return i->kw == GRAM_KW_CONST || i->kw == GRAM_KW_ENUM;
}

/* The value is of a right type, and each const and enum but `from` lists it, or not if negated. */
bool gram_lists_fit(struct gram_build *b, const struct gram_alt *alt, const struct gram_item *from,
                    const struct gram_js *v);

/* A pair of keywords that count something; takes an item if it is one of them. */
struct gram_count {
    uint64_t min, max; /* max: no limit from GRAM_INFINITE on */
};
bool gram_count_add(struct gram_build *b, struct gram_count *r, const struct gram_item *i,
                    enum gram_kw min, enum gram_kw max);

/* ---- references ---------------------------------------------------------------------------- */

/* Finds identifiers and anchors in the document. */
void gram_find_resources(struct gram_build *b);

/* The schema that a $ref names; `true` for one that was left out. */
extern struct gram_js gram_anything; /* the schema `true`, which nobody writes to */
struct gram_js *gram_resolve(struct gram_build *b, struct gram_js *ref);

/* ---- the whole ----------------------------------------------------------------------------- */

struct gram_resource;
struct gram_pattern_entry;
struct gram_string_entry;

struct gram_schema {
    struct gram_js *root;
    int draft;                     /* 3, 4, 6, 7, 2019, 2020 */
    bool strict;                   /* nothing may be relaxed */
    bool siblings;                 /* those of $ref count */
    bool has_unique;               /* uniqueItems is used: literals need hashes */
    uint32_t n_ids;                /* from 1 */
    uint32_t value;                /* rule of the root */
    struct gram_goal_entry *goals; /* in the order of being asked for */
    uint32_t n_goals, cap_goals;
    struct gram_table known_goals; /* by the ids of their members */
    struct gram_resource *resources;
    struct gram_pattern_entry *patterns;
    struct gram_string_entry *strings;
    const struct gram_item *checked; /* gram_string_fits: of the last alternative */
    struct gram_dfa *checker;
    uint32_t n_checked;
    struct gram_js **relaxed;
    uint32_t n_relaxed, cap_relaxed;
    int depth;     /* of expansions inside each other */
    int quiet;     /* conditions that are being applied */
    uint8_t level; /* 1; more while looking for contradictions, which builds nothing */
};
