/* SPDX-License-Identifier: MIT */
/*
 * Running a parsed template: expressions (eval.c) and statements (exec.c).
 */
#pragma once

#include "tokenizer/template/ast.h"
#include "tokenizer/template/library.h"

/* The variables of one running unit. */
struct jinja_frame {
    struct jinja_frame *up;    /* of the unit it was defined in */
    struct jinja_value *slots; /* [n_slots] */
    uint32_t n_slots;
};

struct jinja_frame *jinja_frame_new(struct jinja_run *r, struct jinja_frame *up, uint32_t n_slots);
/* The slot itself. */
struct jinja_value *jinja_slot(struct jinja_frame *f, struct jinja_ref ref);
/* Fills the slots of a scope that is being entered. */
void jinja_enter_scope(struct jinja_run *r, struct jinja_frame *f,
                       const struct jinja_scope_code *scope);

struct jinja_value jinja_eval(struct jinja_run *r, struct jinja_frame *f,
                              const struct jinja_node *node);

/* The text that a macro renders. */
struct jinja_value jinja_call_macro(struct jinja_run *r, const struct jinja_macro *macro,
                                    const struct jinja_args *args);

/* Renders the whole template; r->context holds its variables, r->out takes the text. */
void jinja_exec_tree(struct jinja_run *r, const struct jinja_tree *tree);
