/* SPDX-License-Identifier: MIT */
/*
 * A parsed template: the syntax tree, and what resolving its names has added to it. Built by
 * parser.c and parse_expr.c, completed by scope.c, walked by exec.c and eval.c. Read-only once
 * complete.
 *
 * Names are resolved before anything runs, by the reference's own rules: a template is a nest of
 * units (the template, macros, recursive loops, loop conditions), each with numbered slots for its
 * variables; a name is a slot some units further out. Scopes inside a unit (loop bodies, with,
 * captures) have their own slots, and a list of loads that fills them when the scope is entered.
 */
#pragma once

#include "tokenizer/template/str.h"

struct jinja_cursor;
struct jinja_function;

enum jinja_kind {
    /* expressions */
    JINJA_CONST,
    JINJA_NAME,
    JINJA_NSREF, /* ns.attr as the target of an assignment */
    JINJA_TUPLE_EXPR,
    JINJA_LIST_EXPR,
    JINJA_DICT_EXPR, /* below: key, value, key, value ... */
    JINJA_BINARY,
    JINJA_AND,
    JINJA_OR,
    JINJA_NOT,
    JINJA_NEG,
    JINJA_POS,
    JINJA_CONCAT,
    JINJA_COMPARE,
    JINJA_COND,
    JINJA_GETATTR,
    JINJA_GETITEM,
    JINJA_SLICE,
    JINJA_CALL,
    JINJA_FILTER,
    JINJA_TEST,
    /* statements */
    JINJA_DATA,
    JINJA_OUTPUT, /* unary: print its value */
    JINJA_IF,
    JINJA_FOR,
    JINJA_SET,
    JINJA_SET_BLOCK,
    JINJA_MACRO_DEF,
    JINJA_FILTER_BLOCK,
    JINJA_SCOPE, /* a body with a scope of its own, which no break or continue leaves */
    JINJA_BREAK,
    JINJA_CONTINUE,
};

struct jinja_node;

struct jinja_nodes {
    struct jinja_node **all;
    size_t n;
    size_t cap;
};

/* Where a variable lives: `up` units further out, slot number `slot`. */
struct jinja_ref {
    uint32_t up;
    uint32_t slot;
};

enum jinja_load_action {
    JINJA_LOAD_RESOLVE, /* from the template's variables, by name */
    JINJA_LOAD_ALIAS,   /* from an outer scope's slot */
    JINJA_LOAD_UNSET,
    JINJA_LOAD_NOTHING, /* while names are resolved: a parameter, which is there already */
};

struct jinja_load {
    enum jinja_load_action action;
    struct jinja_ref to;
    struct jinja_ref from;
    const struct jinja_str *name;
};

struct jinja_scope_code {
    struct jinja_load *loads;
    size_t n_loads;
};

/* The arguments of a call, filter or test, in source order. */
struct jinja_call {
    struct jinja_nodes args;
    const struct jinja_str **keys; /* kwargs.n of them */
    struct jinja_nodes kwargs;
};

/* Among the operators of comparison, which are their tokens. */
enum { JINJA_IN = 'i', JINJA_NOT_IN = 'n' };

struct jinja_branch {
    struct jinja_node *test;
    struct jinja_nodes body;
};

/* A macro. */
struct jinja_macro_code {
    const struct jinja_str *name;
    struct jinja_nodes params;   /* NAME nodes */
    struct jinja_nodes defaults; /* of the last params */
    struct jinja_nodes body;
    uint32_t n_slots;
    struct jinja_scope_code scope;
    struct jinja_ref *param_refs; /* params.n slots */
};

struct jinja_for {
    struct jinja_node *target, *iter;
    struct jinja_node *test; /* or NULL */
    struct jinja_nodes body, otherwise;
    bool uses_loop;        /* the body mentions `loop` */
    struct jinja_ref loop; /* where `loop` lives, if used */
    struct jinja_scope_code scope, else_scope;
    struct jinja_node *test_target; /* target and test again, in the unit of the condition */
    struct jinja_scope_code test_scope;
    uint32_t n_test_slots;
};

struct jinja_node {
    enum jinja_kind kind;
    int line;
    int height;               /* of the tree below: bounds the recursion over it */
    struct jinja_nodes below; /* in the order in which the reference keeps them */
    union {
        struct jinja_value value;     /* CONST */
        const struct jinja_str *data; /* DATA */
        struct {
            const struct jinja_str *name;
            const char *text; /* the name, for errors */
            struct jinja_ref ref;
            bool store, param; /* else: load */
        } name;                /* NAME */
        struct {
            const struct jinja_str *name;
            struct jinja_value attr;
            struct jinja_ref ref;
        } nsref; /* NSREF */
        struct {
            enum jinja_op op;
            struct jinja_node *left, *right;
        } binary;                   /* BINARY, AND, OR, GETITEM */
        struct jinja_node *operand; /* NOT, NEG, POS, OUTPUT */
        struct {
            int *ops; /* each before the node below of the next index */
            size_t cap_ops;
        } compare;
        struct {
            struct jinja_node *test, *yes, *no; /* no: or NULL */
        } cond;
        struct {
            struct jinja_node *object;
            struct jinja_value name;
        } getattr;
        struct {
            struct jinja_node *start, *stop, *step; /* each or NULL */
        } slice;
        struct {
            struct jinja_node *callee;
            struct jinja_call args;
        } call;
        struct {
            struct jinja_node *subject; /* NULL: of a filter or set block */
            const struct jinja_str *name;
            struct jinja_call args;
            const struct jinja_function *function; /* NULL: unknown, fails when reached */
        } apply;                                   /* FILTER, TEST */
        struct {
            struct jinja_branch *branches; /* if, elif ... */
            size_t n_branches, cap_branches;
            struct jinja_nodes otherwise;
        } cond_block;           /* IF */
        struct jinja_for *loop; /* FOR */
        struct {
            struct jinja_node *target; /* SET, SET_BLOCK */
            struct jinja_node *value;  /* SET */
            struct jinja_node *filter; /* SET_BLOCK, FILTER_BLOCK: a FILTER chain or NULL */
            struct jinja_nodes body;
            struct jinja_scope_code scope;
        } block; /* SET, SET_BLOCK, FILTER_BLOCK, SCOPE */
        struct {
            struct jinja_macro_code *code;
            struct jinja_ref ref; /* of the macro's name */
        } macro;                  /* MACRO_DEF */
    } u;
};

struct jinja_tree {
    struct jinja_nodes body;
    struct jinja_scope_code scope;
    uint32_t n_slots;
};

struct jinja_node *jinja_node_new(struct jinja_cursor *c, enum jinja_kind kind, int line);
/* Notes that `child`, which may be NULL, is below `node`; fails if the tree gets too deep. */
struct jinja_node *jinja_node_adopt(struct jinja_cursor *c, struct jinja_node *node,
                                    struct jinja_node *child);
void jinja_nodes_add(struct jinja_run *r, struct jinja_nodes *list, struct jinja_node *node);

/* Resolves every name, filter and test; fails on what the reference refuses at this point. */
void jinja_resolve_names(struct jinja_run *r, struct jinja_tree *tree);
