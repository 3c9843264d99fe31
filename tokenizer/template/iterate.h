/* SPDX-License-Identifier: MIT */
/*
 * Walks over the elements of a value, and the two kinds of value that have a state of their own
 * while a template runs: generators, which compute their elements as they are asked for, and the
 * `loop` of a for statement.
 */
#ifndef HEARTH_TOKENIZER_TEMPLATE_ITERATE_H
#define HEARTH_TOKENIZER_TEMPLATE_ITERATE_H

#include "tokenizer/template/value.h"

/* A place in a walk over the elements of a value. */
struct jinja_iter {
    struct jinja_value over;
    size_t at; /* element, or byte of a string */
};

/* Fails for values that are not iterable. */
void jinja_iter_start(struct jinja_run *r, struct jinja_iter *it, struct jinja_value v);
bool jinja_iter_next(struct jinja_run *r, struct jinja_iter *it, struct jinja_value *ret);
struct jinja_list *jinja_to_list(struct jinja_run *r, struct jinja_value v);

/* len(v) */
int64_t jinja_length(struct jinja_run *r, struct jinja_value v);

/*
 * A generator gives each element once. `next` computes the next one from `state` or returns false
 * from then on.
 */
struct jinja_gen {
    bool (*next)(struct jinja_run *r, void *state, struct jinja_value *ret);
    void *state;
    bool done;
};

struct jinja_value jinja_gen_new(struct jinja_run *r,
                                 bool (*next)(struct jinja_run *, void *, struct jinja_value *),
                                 void *state);
bool jinja_gen_next(struct jinja_run *r, struct jinja_gen *gen, struct jinja_value *ret);

/* The special variable of a for loop, and the walk itself. */
struct jinja_loop {
    struct jinja_value iterable;
    struct jinja_iter iter;
    int64_t index0;                            /* -1 before the first element */
    int64_t length;                            /* -1: not known yet */
    struct jinja_value before, current, after; /* after: peeked, or JINJA_MISSING */
    bool exhausted;
};

void jinja_loop_init(struct jinja_run *r, struct jinja_loop *loop, struct jinja_value iterable);
/* The next element; `loop` now describes it. */
bool jinja_loop_next(struct jinja_run *r, struct jinja_loop *loop, struct jinja_value *ret);
/* The number of elements; reads a generator to its end to know. */
int64_t jinja_loop_length(struct jinja_run *r, struct jinja_loop *loop);
/* The element after the current one, or JINJA_MISSING. */
struct jinja_value jinja_loop_peek(struct jinja_run *r, struct jinja_loop *loop);

#endif
