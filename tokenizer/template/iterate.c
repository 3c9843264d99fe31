/* SPDX-License-Identifier: MIT */
/*
 * Generators and the state of for loops; see iterate.h.
 */
#include "tokenizer/template/iterate.h"

struct jinja_value jinja_gen_new(struct jinja_run *r, const char *name,
                                 bool (*next)(struct jinja_run *, void *, struct jinja_value *),
                                 void *state)
{
    struct jinja_gen *gen = JINJA_NEW(r, struct jinja_gen);
    *gen = (struct jinja_gen){.name = name, .next = next, .state = state};
    return (struct jinja_value){.type = JINJA_GEN, .u.gen = gen};
}

static bool next_over(struct jinja_run *r, void *state, struct jinja_value *ret)
{
    return jinja_iter_next(r, state, ret);
}

struct jinja_value jinja_gen_over(struct jinja_run *r, const char *name, struct jinja_value v)
{
    struct jinja_iter *it = JINJA_NEW(r, struct jinja_iter);
    jinja_iter_start(r, it, v);
    return jinja_gen_new(r, name, next_over, it);
}

bool jinja_gen_next(struct jinja_run *r, struct jinja_gen *gen, struct jinja_value *ret)
{
    if (gen->done) return false;
    jinja_enter(r); /* generators over generators recurse */
    bool more = gen->next(r, gen->state, ret);
    jinja_leave(r);
    gen->done = !more;
    return more;
}

const char *jinja_gen_name(const struct jinja_gen *gen)
{
    return gen->name;
}

void jinja_loop_init(struct jinja_run *r, struct jinja_loop *loop, struct jinja_value iterable)
{
    *loop = (struct jinja_loop){.iterable = iterable, .index0 = -1, .length = -1};
    jinja_iter_start(r, &loop->iter, iterable);
}

static bool advance(struct jinja_run *r, struct jinja_loop *loop, struct jinja_value *ret)
{
    if (loop->exhausted) return false;
    loop->exhausted = !jinja_iter_next(r, &loop->iter, ret);
    return !loop->exhausted;
}

bool jinja_loop_next(struct jinja_run *r, struct jinja_loop *loop, struct jinja_value *ret)
{
    struct jinja_value v = loop->after;
    if (jinja_is(v, JINJA_MISSING) && !advance(r, loop, &v)) return false;
    loop->after = jinja_missing();
    loop->index0++;
    loop->before = loop->current;
    loop->current = v;
    *ret = v;
    return true;
}

bool jinja_loop_next_pair(struct jinja_run *r, struct jinja_value loop, struct jinja_value *ret)
{
    struct jinja_value v;
    if (!jinja_loop_next(r, loop.u.loop, &v)) return false;
    *ret = jinja_pair_tuple(r, v, loop);
    return true;
}

struct jinja_value jinja_loop_peek(struct jinja_run *r, struct jinja_loop *loop)
{
    struct jinja_value v;
    if (jinja_is(loop->after, JINJA_MISSING) && advance(r, loop, &v)) loop->after = v;
    return loop->after;
}

int64_t jinja_loop_length(struct jinja_run *r, struct jinja_loop *loop)
{
    if (loop->length >= 0) return loop->length;
    if (jinja_has_length(loop->iterable)) return loop->length = jinja_length(r, loop->iterable);
    struct jinja_list *rest = jinja_list_new(r, 4);
    struct jinja_value v;
    while (advance(r, loop, &v))
        jinja_list_add(r, rest, v);
    jinja_iter_start(r, &loop->iter, jinja_from_list(rest));
    loop->exhausted = false;
    bool peeked = !jinja_is(loop->after, JINJA_MISSING);
    return loop->length = (int64_t)rest->n + loop->index0 + 1 + peeked;
}
