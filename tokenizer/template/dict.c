/* SPDX-License-Identifier: MIT */
/*
 * Dicts, and the equality and hash of values they rest on; see dict.h. A dict keeps its pairs in
 * order of insertion in an array, with an open-addressing index at most half full.
 */
#include "tokenizer/template/dict.h"

#include <assert.h>
#include <string.h>

#include "tokenizer/template/str.h"

enum {
    MAX_PAIRS = 1 << 30,
    PROBED_PER_STEP = 16,
};

/* ---- equality ------------------------------------------------------------------------------ */

static bool lists_equal(struct jinja_run *r, const struct jinja_list *a, const struct jinja_list *b,
                        int depth)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!jinja_equal_at(r, a->items[i], b->items[i], depth)) return false;
    return true;
}

static bool dicts_equal(struct jinja_run *r, const struct jinja_dict *a, const struct jinja_dict *b,
                        int depth)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct jinja_value *v = jinja_dict_get(r, b, a->pairs[i].key);
        if (!v || !jinja_equal_at(r, a->pairs[i].value, *v, depth)) return false;
    }
    return true;
}

/* True equals 1; a list is never a tuple. */
bool jinja_equal_at(struct jinja_run *r, struct jinja_value a, struct jinja_value b, int depth)
{
    jinja_check_depth(r, depth);
    if (jinja_is_number(a) && jinja_is_number(b)) return jinja_num_compare(r, a, b) == 0;
    if (a.type != b.type) return false;
    switch (a.type) {
    case JINJA_STR: jinja_spend_bytes(r, a.u.str->len); return jinja_str_equal(a.u.str, b.u.str);
    case JINJA_LIST:
    case JINJA_TUPLE: return lists_equal(r, a.u.list, b.u.list, depth + 1);
    case JINJA_DICT: return dicts_equal(r, a.u.dict, b.u.dict, depth + 1);
    case JINJA_RANGE:
    case JINJA_VIEW:
        jinja_raise(r, "comparing a %s is not supported in chat templates", jinja_type_name(a));
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
    case JINJA_NONE: return true;
    default: return a.u.dict == b.u.dict; /* whatever it points to */
    }
}

bool jinja_equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    return jinja_equal_at(r, a, b, 0);
}

/* ---- hashing ------------------------------------------------------------------------------- */

static uint64_t hash_bytes(const char *s, size_t len)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001B3u;
    return h ^ h >> 29;
}

/* Equal values must have equal hashes: 1, 1.0 and True share theirs. */
static uint64_t hash_in(struct jinja_run *r, struct jinja_value v, int depth)
{
    uint64_t h = 0x345678;
    jinja_check_depth(r, depth);
    if (jinja_is_number(v)) return jinja_num_hash(r, v);
    switch (v.type) {
    case JINJA_STR: jinja_spend_bytes(r, v.u.str->len); return hash_bytes(v.u.str->s, v.u.str->len);
    case JINJA_TUPLE:
        for (size_t i = 0; i < v.u.list->n; i++)
            h = (h ^ hash_in(r, v.u.list->items[i], depth + 1)) * 0x100000001B3u + 97531;
        return h;
    case JINJA_LIST:
    case JINJA_DICT:
    case JINJA_VIEW: jinja_raise(r, "unhashable type: '%s'", jinja_type_name(v));
    case JINJA_RANGE: return (uint64_t)v.u.range->n;
    case JINJA_NONE:
    case JINJA_UNDEFINED: return v.type;
    default: return (uint64_t)(uintptr_t)v.u.dict >> 4;
    }
}

uint64_t jinja_hash(struct jinja_run *r, struct jinja_value v)
{
    return hash_in(r, v, 0);
}

bool jinja_is_hashable(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_LIST) || jinja_is(v, JINJA_DICT) || jinja_is(v, JINJA_VIEW)) return false;
    if (!jinja_is(v, JINJA_TUPLE)) return true;
    jinja_spend(r, 1 + v.u.list->n);
    for (size_t i = 0; i < v.u.list->n; i++)
        if (!jinja_is_hashable(r, v.u.list->items[i])) return false;
    return true;
}

/* ---- dicts --------------------------------------------------------------------------------- */

struct jinja_dict *jinja_dict_new(struct jinja_run *r)
{
    return JINJA_NEW(r, struct jinja_dict);
}

struct jinja_value jinja_from_dict(struct jinja_dict *d)
{
    return (struct jinja_value){.type = JINJA_DICT, .u.dict = d};
}

/* Compares hashes first, because comparing keys is slow. */
static struct jinja_pair *find_pair(struct jinja_run *r, const struct jinja_dict *d,
                                    struct jinja_value key, uint64_t hash)
{
    struct jinja_pair *found = NULL;
    if (d->n == 0) return NULL;
    size_t n = 0, i = hash & (d->n_index - 1);
    for (; d->index[i] && !found; i = (i + 1) & (d->n_index - 1), n++) {
        struct jinja_pair *p = &d->pairs[d->index[i] - 1];
        if (p->hash == hash && jinja_equal(r, p->key, key)) found = p;
    }
    jinja_spend(r, n / PROBED_PER_STEP); /* keys of a request may be chosen to meet here */
    return found;
}

/* Linear probing; there is always a free place. */
static void index_pair(struct jinja_run *r, struct jinja_dict *d, size_t at)
{
    assert(at < d->n && d->n < d->n_index);
    size_t n = 0, i = d->pairs[at].hash & (d->n_index - 1);
    for (; d->index[i]; i = (i + 1) & (d->n_index - 1))
        n++;
    jinja_spend(r, n / PROBED_PER_STEP);
    d->index[i] = (uint32_t)(at + 1);
}

/* The pair is appended before the index grows, so that a new index leaves it to the last line. */
void jinja_dict_put(struct jinja_run *r, struct jinja_dict *d, struct jinja_value key,
                    struct jinja_value value)
{
    uint64_t hash = jinja_hash(r, key);
    struct jinja_pair *p = find_pair(r, d, key, hash);
    if (p) {
        p->value = value;
        return;
    }
    if (d->n >= MAX_PAIRS) jinja_fail(r, JINJA_ELIMIT, "a dict of more than %zu entries", d->n);
    d->pairs = jinja_room(r, d->pairs, d->n, &d->cap, sizeof(*p));
    d->pairs[d->n++] = (struct jinja_pair){.key = key, .value = value, .hash = hash};
    if (d->n * 2 > d->n_index) {
        d->n_index = d->n_index ? d->n_index * 2 : 16;
        d->index = JINJA_NEW_N(r, d->n_index, uint32_t);
        for (size_t i = 0; i + 1 < d->n; i++)
            index_pair(r, d, i);
    }
    index_pair(r, d, d->n - 1);
}

void jinja_dict_put_name(struct jinja_run *r, struct jinja_dict *d, const char *name,
                         struct jinja_value value)
{
    jinja_dict_put(r, d, jinja_lit(r, name), value);
}

void jinja_dict_add_all(struct jinja_run *r, struct jinja_dict *to, const struct jinja_dict *from)
{
    for (size_t i = 0; i < from->n; i++)
        jinja_dict_put(r, to, from->pairs[i].key, from->pairs[i].value);
}

struct jinja_value *jinja_dict_get(struct jinja_run *r, const struct jinja_dict *d,
                                   struct jinja_value key)
{
    struct jinja_pair *p = find_pair(r, d, key, jinja_hash(r, key));
    return p ? &p->value : NULL;
}

struct jinja_value *jinja_dict_get_name(struct jinja_run *r, const struct jinja_dict *d,
                                        const char *name)
{
    struct jinja_str s = {.s = name, .len = strlen(name), .origin = JINJA_TRUSTED};
    return jinja_dict_get(r, d, jinja_from_str(&s));
}
