/* SPDX-License-Identifier: MIT */
/*
 * The intermediate form, which is also what the machine runs: value rules (what a JSON value may
 * be), the nodes they are made of, and expression nodes for grammars that are not JSON. Everything
 * is referred to by number, so that rules may be recursive.
 *
 * While a grammar is compiled the arrays grow in temporary memory; gram_rules_finish removes what
 * cannot be completed, works out least heights, and copies the rest into the grammar.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tokenizer/grammar/dfa.h"
#include "tokenizer/grammar/expr.h"
#include "tokenizer/grammar/number.h"
#include "tokenizer/grammar/trie.h"

struct gram_js;

#define GRAM_NONE UINT32_MAX

/*
 * Containers of one value that are open at once; keys or unique items that a container remembers.
 */
enum { GRAM_MAX_CONTAINERS = 128, GRAM_MAX_REMEMBERED = 1024 };

/* Heights and cells that nothing has; larger ones count as that. */
#define GRAM_NEVER UINT16_MAX

/* A shortest member without white space, and the places where a style puts a blank. */
struct gram_least {
    uint32_t bytes; /* GRAM_INFINITE: there is none, or it is too long */
    uint32_t commas, colons;
    uint32_t objects, arrays; /* that are not empty */
};

/* Needs of a least member. The shortest may be another one than the one that nests least. */
struct gram_need {
    uint32_t height; /* containers that it nests, its own included; GRAM_NEVER: there is none */
    uint32_t cells;  /* memory on the stack, see cells.h */
    struct gram_least least;
};

/* ---- values -------------------------------------------------------------------------------- */

enum gram_branch_kind {
    GRAM_BRANCH_STRING, /* node: a gram_string */
    GRAM_BRANCH_NUMBER,
    GRAM_BRANCH_OBJECT,
    GRAM_BRANCH_ARRAY,
    GRAM_BRANCH_LITERAL, /* a gram_trie: null, true, false, constants and enums */
};

struct gram_branch {
    uint8_t kind;
    uint32_t node;
};

/* Alternatives: a value is one of the branches. */
struct gram_value {
    struct gram_branch *branches;
    uint32_t n_branches;
    struct gram_need need;
    uint64_t first[2]; /* a bit per ASCII character: the value can begin so */
};

/* ---- leaves -------------------------------------------------------------------------------- */

/* Free: any characters, any escapes; or with one spelling per character, by an automaton. */
struct gram_string {
    uint32_t min, max;          /* code points, of a free one */
    const struct gram_dfa *dfa; /* with its own min and max; NULL: free */
};

/* ---- containers ---------------------------------------------------------------------------- */

struct gram_key {
    uint32_t value; /* value rule; GRAM_NONE: the key is impossible */
    bool required;
    bool watched; /* remembered when it comes, for dependencies or because it is free */
    uint32_t length;
};

/* If key `if_key` is there, `then_key` must be. */
struct gram_dependency {
    uint32_t if_key, then_key;
};

enum gram_free_kind {
    GRAM_FREE_NONE, /* no keys but those in the trie */
    GRAM_FREE_ANY,  /* any key that is not in the trie, with value rule `free_value` */
    GRAM_FREE_DFA,  /* keys that `free_keys` accepts; outcome - 1 is an index of free_values */
};

/* Keys by an automaton, while it may still have to be built again without some of its outcomes. */
struct gram_key_draft {
    struct gram_dfa_params params; /* its outcome is an index of values + 1 */
    struct gram_js *at;            /* to blame if it is too large, */
    const char *keyword;           /* and what it belongs to */
    uint32_t *values;              /* value rules; GRAM_NONE: such keys are impossible */
    uint32_t n_values;
};

struct gram_object {
    struct gram_key *keys; /* [n_keys]: declared ones in their order, then free words */
    uint32_t n_declared, n_keys;
    struct gram_trie trie;         /* of all keys with their closing quote cut off */
    const uint32_t *next_required; /* [n_declared + 1]: first required key from here */
    const uint32_t *required_left; /* [n_declared + 1]: required keys from here */
    const uint32_t *possible_left; /* [n_declared + 1]: possible keys from here */
    const uint32_t *by_bytes;      /* [n_keys], those with the shortest values first */
    uint32_t n_words_required;     /* free words that are required */
    uint32_t min, max;             /* keys */
    uint8_t free_kind;
    bool may_open; /* while compiling: without free keys, unless it has no member so */
    uint32_t free_value;
    const struct gram_dfa *free_keys;
    const uint32_t *free_values;
    const uint8_t *prefix_alive; /* [trie nodes], with GRAM_FREE_DFA: a free key may begin so */
    const uint8_t *prefix_more;  /* and a longer one may */
    bool all_alive;              /* a free key may begin wherever the automaton does not say no */
    const struct gram_dependency *dependencies;
    uint32_t n_dependencies;
    struct gram_need need, free_need; /* free_need: of the value of any free key */
    struct gram_key_draft *draft;     /* while compiling, with GRAM_FREE_DFA */
};

struct gram_array {
    const uint32_t *prefix; /* value rules of the first items */
    uint32_t n_prefix;
    uint32_t rest; /* of the others; GRAM_NONE: there are none */
    uint32_t min, max;
    bool unique;
    uint32_t unique_bytes; /* that items after the prefix need at most, if they are unique */
    struct gram_need need;
};

/* ---- expressions of grammars --------------------------------------------------------------- */

enum gram_node_kind {
    GRAM_NODE_LEAF, /* `dfa` over plain UTF-8 */
    GRAM_NODE_SEQ,  /* kids in a row */
    GRAM_NODE_ALT,
    GRAM_NODE_REP,     /* kids[0] min to max times */
    GRAM_NODE_VALUE,   /* value rule `ref` */
    GRAM_NODE_CAPTURE, /* kids[0], reported as number `ref` */
    GRAM_NODE_EMPTY,
    GRAM_NODE_LITERALS, /* `trie`: one of its strings, as capture `ref` unless 0; then its kid */
};

struct gram_node {
    uint8_t kind;
    bool nullable;
    struct gram_need need; /* its height counts frames of all kinds */
    uint32_t n;
    uint32_t min, max, ref;
    const struct gram_dfa *dfa;
    const struct gram_trie *trie;
    uint32_t *kids; /* node numbers */
};

/* The key of an object that has to have free ones, at most; no two are the same. */
enum { GRAM_FREE_KEY_BYTES = 2 };

/* Keys of an object with dependencies. */
enum { GRAM_MAX_DEPENDENT_KEYS = 1024 };

/* ---- building ------------------------------------------------------------------------------ */

/* Why a rule has no member, to be told if the root has none. */
struct gram_reason {
    const struct gram_js *at;
    const char *text; /* NULL: unknown */
    uint32_t because; /* a value rule that has no member, or GRAM_NONE */
};

struct gram_rules {
    struct gram_value *values;
    struct gram_reason *reasons; /* [n_values], while compiling */
    uint32_t n_values, cap_values, cap_reasons;
    struct gram_string *strings;
    uint32_t n_strings, cap_strings;
    struct gram_number *numbers;
    uint32_t n_numbers, cap_numbers;
    struct gram_object *objects;
    uint32_t n_objects, cap_objects;
    struct gram_array *arrays;
    uint32_t n_arrays, cap_arrays;
    struct gram_trie *tries;
    uint32_t n_tries, cap_tries;
    struct gram_node *nodes;
    uint32_t n_nodes, cap_nodes;
    struct gram_dfa **dfas; /* all automata, for their caches */
    uint32_t n_dfas, cap_dfas;
    uint32_t root; /* a node */
    bool has_captures;
};

enum { GRAM_MAX_RULES = 20000 };

uint32_t gram_add_value(struct gram_build *b);
uint32_t gram_add_string(struct gram_build *b, const struct gram_string *s);
uint32_t gram_add_number(struct gram_build *b, const struct gram_number *n);
uint32_t gram_add_object(struct gram_build *b, const struct gram_object *o);
uint32_t gram_add_array(struct gram_build *b, const struct gram_array *a);
uint32_t gram_add_trie(struct gram_build *b, const struct gram_trie *t);
uint32_t gram_add_node(struct gram_build *b, enum gram_node_kind kind);

/* A new automaton, or NULL if it is too large. It becomes part of the grammar. */
struct gram_dfa *gram_add_dfa(struct gram_build *b, const struct gram_dfa_params *params);

/*
 * The node of an expression: one automaton if it is regular and not too large; else it is taken
 * apart, its counters kept as counters. rules maps the rules that it names to their nodes; may be
 * NULL if it names none. Leaves by gram_fail if an assertion is where no automaton can hold it.
 */
uint32_t gram_node_of(struct gram_build *b, const struct gram_ex *x, const uint32_t *rules);

/* Nodes by hand. Kids are copied. */
uint32_t gram_node_with(struct gram_build *b, enum gram_node_kind kind, uint32_t n,
                        const uint32_t *kids);
uint32_t gram_node_rep(struct gram_build *b, uint32_t kid, uint32_t min, uint32_t max);
uint32_t gram_node_leaf(struct gram_build *b, const struct gram_dfa *dfa);

/* One text, or none if no tokens spell it. */
uint32_t gram_node_text(struct gram_build *b, const char *text, size_t len);

/* One of several texts; with kids, each goes on as the kid of its number. */
uint32_t gram_node_texts(struct gram_build *b, const struct gram_trie_builder *texts, uint32_t n,
                         const uint32_t *kids);

/* The automaton, in which values of the draft that became impossible have no outcome. */
struct gram_dfa *gram_free_automaton(struct gram_build *b, const struct gram_key_draft *draft);

/* Works out what the automaton of an object's free keys decides; builds it if free_keys is NULL. */
void gram_object_build_free(struct gram_build *b, struct gram_object *o);

/*
 * When all rules are there: removes what has no member, computes heights, lays everything out in
 * kept memory. Leaves by gram_fail if the root has no member; its reason is the schema's to tell.
 */
void gram_rules_finish(struct gram_build *b);
