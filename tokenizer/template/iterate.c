/* SPDX-License-Identifier: MIT */
/*
 * Walks over values, generators and the state of for loops; see value.h. They are one file
 * because each is made of the others: a walk asks a generator, and a generator may be a walk.
 */
#include "tokenizer/template/value.h"

#include <assert.h>

#include "tokenizer/template/str.h"

/* ---- walks --------------------------------------------------------------------------------- */

void jinja_iter_start(struct jinja_run *r, struct jinja_iter *it, struct jinja_value v)
{
    if (!jinja_is_iterable(v)) jinja_raise(r, "'%s' object is not iterable", jinja_type_name(v));
    *it = (struct jinja_iter){.over = v};
}

static bool next_char(struct jinja_run *r, struct jinja_iter *it, struct jinja_value *ret)
{
    const struct jinja_str *s = it->over.u.str;
    if (it->at >= s->len) return false;
    size_t begin = it->at;
    jinja_str_next(s, &it->at);
    const struct jinja_str *c = jinja_str_part(r, s, begin, it->at - begin);
    *ret = jinja_from_str(jinja_str_as(r, c, false)); /* the elements of a Markup are plain */
    return true;
}

/* Nothing that can be walked changes its length, so a position is enough of a state. */
bool jinja_iter_next(struct jinja_run *r, struct jinja_iter *it, struct jinja_value *ret)
{
    struct jinja_value v = it->over;
    jinja_spend(r, 1);
    switch (v.type) {
    case JINJA_STR: return next_char(r, it, ret);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_VIEW:
        if (it->at >= v.u.list->n) return false;
        *ret = v.u.list->items[it->at++];
        return true;
    case JINJA_DICT:
        if (it->at >= v.u.dict->n) return false;
        *ret = v.u.dict->pairs[it->at++].key;
        return true;
    case JINJA_RANGE:
        if (it->at >= (size_t)v.u.range->n) return false;
        *ret = jinja_int(v.u.range->start + (int64_t)it->at++ * v.u.range->step);
        return true;
    case JINJA_GEN: return jinja_gen_next(r, v.u.gen, ret);
    default: return false;
    }
}

struct jinja_list *jinja_to_list(struct jinja_run *r, struct jinja_value v)
{
    struct jinja_list *l = jinja_list_new(
        r, jinja_has_length(v) && !jinja_is(v, JINJA_STR) ? (size_t)jinja_length(r, v) : 0);
    struct jinja_iter it;
    struct jinja_value item;
    jinja_iter_start(r, &it, v);
    while (jinja_iter_next(r, &it, &item))
        jinja_list_add(r, l, item);
    return l;
}

/* ---- generators ---------------------------------------------------------------------------- */

struct jinja_value jinja_gen_new(struct jinja_run *r,
                                 bool (*next)(struct jinja_run *, void *, struct jinja_value *),
                                 void *state)
{
    struct jinja_gen *gen = JINJA_NEW(r, struct jinja_gen);
    *gen = (struct jinja_gen){.next = next, .state = state};
    return (struct jinja_value){.type = JINJA_GEN, .u.gen = gen};
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

/* ---- loops --------------------------------------------------------------------------------- */

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
    assert(loop->length < 0 || loop->index0 + 1 < loop->length);
    loop->after = jinja_missing();
    loop->index0++;
    loop->before = loop->current;
    loop->current = v;
    *ret = v;
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

int64_t jinja_length(struct jinja_run *r, struct jinja_value v)
{
    switch (v.type) {
    case JINJA_UNDEFINED: return 0;
    case JINJA_STR: return (int64_t)jinja_str_chars(r, v.u.str);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_VIEW: return (int64_t)v.u.list->n;
    case JINJA_RANGE: return v.u.range->n;
    case JINJA_DICT: return (int64_t)v.u.dict->n;
    default: jinja_raise(r, "object of type '%s' has no len()", jinja_type_name(v));
    }
}
