/* SPDX-License-Identifier: MIT */
/*
 * Computed when all rules are known: their heights, which of them match nothing, the layout.
 *
 * A rule's height is how many containers its least member nests, its cells are how much memory that
 * one needs on a stack. Both come of the rules it refers to, so they are computed in rounds until
 * nothing changes, from "never": a rule that keeps that has no member (Knuth, "A generalization of
 * Dijkstra's algorithm", 1977, without the queue).
 */
#include <assert.h>
#include <stdlib.h>

#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/rules.h"

/* ---- heights of values --------------------------------------------------------------------- */

static const struct gram_need never = {GRAM_NEVER, 0, {.bytes = GRAM_INFINITE}};

static struct gram_need need_of(const struct gram_rules *r, uint32_t value)
{
    return value == GRAM_NONE ? never : r->values[value].need;
}

static bool is_empty(const struct gram_rules *r, uint32_t value)
{
    return need_of(r, value).height == GRAM_NEVER;
}

static uint32_t product(uint32_t sum, uint32_t one, uint32_t times)
{
    uint64_t all = sum + (uint64_t)one * times;
    return all < GRAM_INFINITE ? (uint32_t)all : GRAM_INFINITE;
}

/* So many of a member come one after the other. */
static void enlarge(struct gram_need *all, struct gram_need one, uint32_t times)
{
    struct gram_least *a = &all->least, *l = &one.least;
    if (one.height > all->height) all->height = one.height;
    if (one.cells > all->cells) all->cells = one.cells;
    a->bytes = product(a->bytes, l->bytes, times);
    a->commas = product(a->commas, l->commas, times);
    a->colons = product(a->colons, l->colons, times);
    a->objects = product(a->objects, l->objects, times);
    a->arrays = product(a->arrays, l->arrays, times);
}

/* Room for either of two members. */
static void either(struct gram_need *all, struct gram_need one)
{
    if (one.least.bytes < all->least.bytes) one.least = all->least;
    all->least = (struct gram_least){0};
    enlarge(all, one, 1);
}

/* One of two members will do; returns true if the second is better in something. */
static bool improve(struct gram_need *best, struct gram_need one)
{
    bool shorter = one.least.bytes < best->least.bytes;
    bool lower =
        one.height < best->height || (one.height == best->height && one.cells < best->cells);
    if (shorter) best->least = one.least;
    if (lower) best->height = one.height, best->cells = one.cells;
    return shorter || lower;
}

/* A key with its quotes and colon. */
static void add_key(struct gram_need *all, uint32_t length, struct gram_need value)
{
    value.least.bytes = product(value.least.bytes, length + 3, 1);
    value.least.colons = product(value.least.colons, 1, 1);
    enlarge(all, value, 1);
}

/* One container around n things, with so many of them to remember. */
static struct gram_need around(struct gram_need inside, bool object, uint32_t n,
                               uint32_t remembered)
{
    if (inside.height >= GRAM_MAX_CONTAINERS || remembered > GRAM_MAX_REMEMBERED) return never;
    inside.height++;
    inside.cells += 2 + remembered;
    inside.least.bytes = product(inside.least.bytes, n ? n + 1 : 2, 1);
    inside.least.commas = product(inside.least.commas, n ? n - 1 : 0, 1);
    inside.least.objects = product(inside.least.objects, object && n, 1);
    inside.least.arrays = product(inside.least.arrays, !object && n, 1);
    return inside;
}

/* A key with its value. */
struct member {
    uint32_t key;
    struct gram_need need;
};

static struct member key_with_value(const struct gram_rules *r, const struct gram_object *o,
                                    uint32_t key)
{
    struct member m = {.key = key};
    add_key(&m.need, o->keys[key].length, need_of(r, o->keys[key].value));
    return m;
}

static int by_height(const void *x, const void *y)
{
    const struct member *a = x, *b = y;
    return (a->need.height > b->need.height) - (a->need.height < b->need.height);
}

static int by_bytes(const void *x, const void *y)
{
    const struct member *a = x, *b = y;
    uint32_t i = a->need.least.bytes, k = b->need.least.bytes;
    return i != k ? (i > k) - (i < k) : (a->key > b->key) - (a->key < b->key);
}

/* Marks the keys that must come in any member; false if one of them cannot. */
static bool mark_needed(struct gram_build *b, const struct gram_object *o, uint8_t *needed)
{
    const struct gram_rules *r = b->rules;
    bool changed = true;
    for (uint32_t k = 0; k < o->n_keys; k++)
        needed[k] = o->keys[k].required;
    while (changed) {
        changed = false;
        gram_steps(b, o->n_dependencies / 32);
        for (uint32_t i = 0; i < o->n_dependencies; i++) {
            const struct gram_dependency *d = &o->dependencies[i];
            if (!needed[d->if_key] || needed[d->then_key]) continue;
            needed[d->then_key] = 1;
            changed = true;
        }
    }
    for (uint32_t k = 0; k < o->n_keys; k++)
        if (needed[k] && is_empty(r, o->keys[k].value)) return false;
    return true;
}

/*
 * The keys besides the needed ones that make up the least number of keys: those that nest least for
 * height and cells, the shortest ones for the rest.
 */
static bool add_extra(struct gram_build *b, const struct gram_object *o, const uint8_t *needed,
                      uint32_t extra, struct gram_need *all, uint32_t *remembered)
{
    const struct gram_rules *r = b->rules;
    struct member *keys = gram_temp_array(b, o->n_keys + 1, sizeof(*keys));
    struct gram_need value = need_of(r, o->free_kind == GRAM_FREE_ANY ? o->free_value : GRAM_NONE);
    struct gram_need free = {0}, chosen[2] = {{0}};
    uint32_t n = 0, longest = GRAM_FREE_KEY_BYTES;
    for (uint32_t i = 0; o->free_kind == GRAM_FREE_DFA && i < o->draft->n_values; i++) {
        struct gram_need one = need_of(r, o->draft->values[i]);
        if (one.height < value.height) value = one;
    }
    if (o->free_keys && o->free_keys->n_states) longest += o->free_keys->rest[o->free_keys->start];
    add_key(&free, longest, value);
    for (uint32_t k = 0; k < o->n_keys; k++)
        if (!needed[k] && !is_empty(r, o->keys[k].value)) keys[n++] = key_with_value(r, o, k);
    gram_steps(b, n);
    for (int by = 0; by < 2; by++) {
        uint32_t taken = 0;
        qsort(keys, n, sizeof(*keys), by ? by_bytes : by_height);
        while (taken < n && taken < extra &&
               (by ? keys[taken].need.least.bytes <= free.least.bytes
                   : keys[taken].need.height <= free.height))
            enlarge(&chosen[by], keys[taken++].need, 1);
        if (taken < extra && free.height == GRAM_NEVER) return false;
        if (taken < extra) enlarge(&chosen[by], free, extra - taken);
    }
    chosen[1].height = chosen[0].height;
    chosen[1].cells = chosen[0].cells;
    enlarge(all, chosen[1], 1);
    *remembered += extra;
    return true;
}

static struct gram_need object_need(struct gram_build *b, const struct gram_object *o,
                                    uint8_t *needed)
{
    const struct gram_rules *r = b->rules;
    struct gram_need all = {0};
    uint32_t n = 0, remembered = 0;
    if (!mark_needed(b, o, needed)) return never;
    for (uint32_t k = 0; k < o->n_keys; k++) {
        if (!needed[k]) continue;
        add_key(&all, o->keys[k].length, need_of(r, o->keys[k].value));
        n++;
        remembered += o->keys[k].watched;
    }
    if (n > o->max) return never;
    if (n < o->min && !add_extra(b, o, needed, o->min - n, &all, &remembered)) return never;
    return around(all, true, n < o->min ? o->min : n, remembered);
}

/* Unique items may have to be longer than the least one. */
static uint32_t unique_bytes(const struct gram_rules *r, const struct gram_value *v)
{
    uint32_t bytes = product(v->need.least.bytes, 2, 1);
    for (uint32_t i = 0; i < v->n_branches; i++) {
        if (v->branches[i].kind != GRAM_BRANCH_LITERAL) continue;
        const struct gram_trie *t = &r->tries[v->branches[i].node];
        for (uint32_t k = 0; k < t->n_leaves; k++)
            if (t->lengths[k] > bytes) bytes = t->lengths[k];
    }
    return bytes;
}

static struct gram_need array_need(const struct gram_rules *r, struct gram_array *a)
{
    struct gram_need all = {0};
    if (a->min > a->max) return never;
    for (uint32_t i = 0; i < a->min && i <= a->n_prefix; i++) {
        uint32_t value = i < a->n_prefix ? a->prefix[i] : a->rest;
        struct gram_need one = need_of(r, value);
        if (one.height == GRAM_NEVER) return never;
        if (a->unique) one.least.bytes = unique_bytes(r, &r->values[value]);
        enlarge(&all, one, i < a->n_prefix ? 1 : a->min - a->n_prefix);
    }
    if (a->unique && a->rest != GRAM_NONE) a->unique_bytes = unique_bytes(r, &r->values[a->rest]);
    return around(all, false, a->min, a->unique ? a->min : 0);
}

static uint32_t leaf_bytes(const struct gram_rules *r, const struct gram_branch *branch)
{
    if (branch->kind == GRAM_BRANCH_NUMBER)
        return gram_number_rest(&r->numbers[branch->node], &(struct gram_num_state){0});
    if (branch->kind == GRAM_BRANCH_LITERAL) return gram_trie_rest(&r->tries[branch->node], 0);
    const struct gram_string *s = &r->strings[branch->node];
    return s->dfa ? gram_dfa_rest(s->dfa, s->dfa->start, 0, 0) + 2 : product(2, s->min, 1);
}

/* Of a branch, with containers as they are known so far; of others the bytes are left out. */
static struct gram_need branch_need(const struct gram_rules *r, const struct gram_branch *branch)
{
    if (branch->kind == GRAM_BRANCH_OBJECT) return r->objects[branch->node].need;
    if (branch->kind == GRAM_BRANCH_ARRAY) return r->arrays[branch->node].need;
    return (struct gram_need){0};
}

/* leaves: the branches that are no containers too, whose needs do not change. */
static bool improve_value(struct gram_build *b, struct gram_value *v, bool leaves)
{
    const struct gram_rules *r = b->rules;
    bool better = false;
    gram_steps(b, v->n_branches / 16);
    for (uint32_t i = 0; i < v->n_branches; i++) {
        const struct gram_branch *branch = &v->branches[i];
        bool leaf = branch->kind != GRAM_BRANCH_OBJECT && branch->kind != GRAM_BRANCH_ARRAY;
        if (leaf && !leaves) continue;
        struct gram_need one = branch_need(r, branch);
        if (leaf) one.least.bytes = leaf_bytes(r, branch);
        if (one.height == GRAM_NEVER) continue;
        better |= improve(&v->need, one);
    }
    return better;
}

static void find_heights(struct gram_build *b)
{
    struct gram_rules *r = b->rules;
    uint32_t n_keys = 0;
    bool changed = true, first = true;
    for (uint32_t i = 0; i < r->n_objects; i++) {
        struct gram_object *o = &r->objects[i];
        if (o->n_keys > n_keys) n_keys = o->n_keys;
        for (uint32_t k = 0; k < o->trie.n_leaves; k++)
            o->keys[o->trie.leaves[k]].length = o->trie.lengths[k];
    }
    uint8_t *needed = gram_temp(b, n_keys + 1);
    for (uint32_t i = 0; i < r->n_values; i++)
        r->values[i].need = never;
    for (uint32_t i = 0; i < r->n_objects; i++)
        r->objects[i].need = never;
    for (uint32_t i = 0; i < r->n_arrays; i++)
        r->arrays[i].need = never;
    while (changed) {
        changed = false;
        for (uint32_t i = r->n_values; i-- > 0;)
            changed |= improve_value(b, &r->values[i], first);
        first = false;
        for (uint32_t i = r->n_objects; i-- > 0;) {
            r->objects[i].need = object_need(b, &r->objects[i], needed);
            gram_steps(b, r->objects[i].n_keys / 16 + 1);
        }
        for (uint32_t i = r->n_arrays; i-- > 0;)
            r->arrays[i].need = array_need(r, &r->arrays[i]);
        for (uint32_t i = r->n_values; i-- > 0;)
            changed |= improve_value(b, &r->values[i], false);
        gram_steps(b, r->n_values / 16 + 1);
    }
}

/* Gives an object that has no member otherwise the free keys that it went without. */
static bool open_object(struct gram_build *b, struct gram_object *o)
{
    if (!o->may_open || o->need.height != GRAM_NEVER) return false;
    o->free_kind = GRAM_FREE_ANY;
    o->may_open = object_need(b, o, gram_temp(b, o->n_keys + 1)).height == GRAM_NEVER;
    if (o->may_open) o->free_kind = GRAM_FREE_NONE;
    return !o->may_open;
}

/* Why a value has no member: a rule of something that every member of its container must have. */
static void find_reason(const struct gram_rules *r, uint32_t value)
{
    const struct gram_value *v = &r->values[value];
    uint32_t *because = &r->reasons[value].because;
    for (uint32_t i = 0; i < v->n_branches && *because == GRAM_NONE; i++) {
        const struct gram_branch *branch = &v->branches[i];
        if (branch->kind == GRAM_BRANCH_OBJECT) {
            const struct gram_object *o = &r->objects[branch->node];
            for (uint32_t k = 0; k < o->n_keys && *because == GRAM_NONE; k++)
                if (o->keys[k].required && is_empty(r, o->keys[k].value))
                    *because = o->keys[k].value;
        } else if (branch->kind == GRAM_BRANCH_ARRAY) {
            const struct gram_array *a = &r->arrays[branch->node];
            for (uint32_t k = 0; k < a->min && k <= a->n_prefix && *because == GRAM_NONE; k++) {
                uint32_t item = k < a->n_prefix ? a->prefix[k] : a->rest;
                if (is_empty(r, item)) *because = item;
            }
        }
    }
}

/* ---- taking out what has no member --------------------------------------------------------- */

/* Impossible keys; true if an automaton had to be built again without some. */
static bool prune_object(struct gram_build *b, struct gram_object *o)
{
    const struct gram_rules *r = b->rules;
    bool rebuild = false;
    for (uint32_t k = 0; k < o->n_keys; k++)
        if (is_empty(r, o->keys[k].value)) o->keys[k].value = GRAM_NONE;
    if (o->free_kind == GRAM_FREE_ANY && is_empty(r, o->free_value)) o->free_kind = GRAM_FREE_NONE;
    for (uint32_t i = 0; o->free_kind == GRAM_FREE_DFA && i < o->draft->n_values; i++) {
        if (o->draft->values[i] == GRAM_NONE || !is_empty(r, o->draft->values[i])) continue;
        o->draft->values[i] = GRAM_NONE;
        rebuild = true;
    }
    if (rebuild) {
        o->free_keys = NULL;
        gram_object_build_free(b, o);
    }
    return rebuild;
}

static void prune_array(const struct gram_rules *r, struct gram_array *a)
{
    for (uint32_t i = 0; i < a->n_prefix; i++)
        if (is_empty(r, a->prefix[i]) && a->max > i) a->max = i;
    if (is_empty(r, a->rest)) {
        a->rest = GRAM_NONE;
        if (a->max > a->n_prefix) a->max = a->n_prefix;
    }
}

/* Bytes that a value can begin with. */
static void find_first(const struct gram_rules *r, struct gram_value *v)
{
    static const char *const beginnings[] = {
        [GRAM_BRANCH_STRING] = "\"",
        [GRAM_BRANCH_NUMBER] = "-0123456789",
        [GRAM_BRANCH_OBJECT] = "{",
        [GRAM_BRANCH_ARRAY] = "[",
    };
    for (uint32_t i = 0; i < v->n_branches; i++) {
        const struct gram_branch *branch = &v->branches[i];
        if (branch->kind != GRAM_BRANCH_LITERAL) {
            for (const char *p = beginnings[branch->kind]; *p; p++)
                v->first[*p / 64] |= (uint64_t)1 << *p % 64;
            continue;
        }
        const struct gram_trie *t = &r->tries[branch->node];
        for (uint32_t e = 0; e < t->nodes[0].n_edges; e++)
            v->first[t->bytes[e] / 64] |= (uint64_t)1 << t->bytes[e] % 64;
    }
}

/* Sums over the declared keys, and what free keys need. */
static void finish_object(struct gram_build *b, struct gram_object *o)
{
    const struct gram_rules *r = b->rules;
    struct member *sorted = gram_temp_array(b, o->n_keys + 1, sizeof(*sorted));
    uint32_t *order = gram_keep_array(b, o->n_keys + 1, sizeof(*order)), n = o->n_declared;
    assert(n <= o->n_keys);
    uint32_t *next = gram_keep_array(b, n + 1, sizeof(*next));
    uint32_t *required = gram_keep_array(b, n + 1, sizeof(*required));
    uint32_t *possible = gram_keep_array(b, n + 1, sizeof(*possible));
    next[n] = n;
    for (uint32_t k = n; k-- > 0;) {
        next[k] = o->keys[k].required ? k : next[k + 1];
        required[k] = required[k + 1] + o->keys[k].required;
        possible[k] = possible[k + 1] + (o->keys[k].value != GRAM_NONE);
    }
    for (uint32_t k = n; k < o->n_keys; k++)
        o->n_words_required += o->keys[k].required;
    for (uint32_t k = 0; k < o->n_keys; k++)
        sorted[k] = key_with_value(r, o, k);
    qsort(sorted, o->n_keys, sizeof(*sorted), by_bytes);
    for (uint32_t k = 0; k < o->n_keys; k++)
        order[k] = sorted[k].key;
    o->by_bytes = order;
    o->next_required = next;
    o->required_left = required;
    o->possible_left = possible;
    if (o->free_kind == GRAM_FREE_ANY) o->free_need = need_of(r, o->free_value);
    for (uint32_t i = 0; o->free_kind == GRAM_FREE_DFA && i < o->draft->n_values; i++)
        if (o->draft->values[i] != GRAM_NONE)
            either(&o->free_need, need_of(r, o->draft->values[i]));
    o->draft = NULL;
}

/* ---- expression nodes ---------------------------------------------------------------------- */

/* Below one more frame of the stack. */
static struct gram_need in_frame(struct gram_need n)
{
    if (n.height < GRAM_NEVER) n.height++;
    return n;
}

/* By the kids as they are known so far. */
static struct gram_need node_need(const struct gram_rules *r, const struct gram_node *n)
{
    struct gram_need all = {0}, one = n->n ? r->nodes[n->kids[0]].need : all, best = never;
    switch (n->kind) {
    case GRAM_NODE_VALUE: return r->values[n->ref].need;
    case GRAM_NODE_CAPTURE: return in_frame(one);
    case GRAM_NODE_LEAF:
        if (!n->dfa->n_states) return never;
        all.least.bytes = gram_dfa_rest(n->dfa, n->dfa->start, 0, 0);
        return all;
    case GRAM_NODE_REP:
        if (n->min && one.least.bytes) enlarge(&all, in_frame(one), n->min);
        return all;
    case GRAM_NODE_SEQ:
        for (uint32_t i = 0; i < n->n; i++) {
            one = r->nodes[n->kids[i]].need;
            enlarge(&all, i + 1 < n->n ? in_frame(one) : one, 1);
        }
        return all;
    case GRAM_NODE_ALT:
        for (uint32_t i = 0; i < n->n; i++)
            improve(&best, r->nodes[n->kids[i]].need);
        return best;
    case GRAM_NODE_LITERALS:
        for (uint32_t i = 0; i < n->trie->n_leaves; i++) {
            one = (struct gram_need){.least.bytes = n->trie->lengths[i]};
            if (n->n) enlarge(&one, r->nodes[n->kids[n->trie->leaves[i]]].need, 1);
            improve(&best, one);
            if (one.height > all.height) all.height = one.height;
        }
        if (all.height == GRAM_NEVER) return never;
        if (n->trie->n_leaves) best.height = all.height; /* any may come: all need room */
        return best;
    default: return all;
    }
}

static void finish_nodes(struct gram_build *b)
{
    struct gram_rules *r = b->rules;
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = r->n_nodes; i-- > 0;) {
            changed |= improve(&r->nodes[i].need, node_need(r, &r->nodes[i]));
            gram_steps(b, r->nodes[i].n / 16);
        }
        gram_steps(b, r->n_nodes / 8 + 1);
    }
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        struct gram_node *n = &r->nodes[i];
        n->nullable = !n->need.least.bytes;
        n->kids = gram_keep_copy(b, n->kids, n->n, sizeof(*n->kids));
        bool literals = n->kind == GRAM_NODE_LITERALS;
        if (n->kind == GRAM_NODE_CAPTURE || (literals && n->ref)) r->has_captures = true;
    }
}

/* ---- all of it ----------------------------------------------------------------------------- */

static void keep_arrays(struct gram_build *b)
{
    struct gram_rules *r = b->rules;
    for (uint32_t i = 0; i < r->n_values; i++) {
        struct gram_value *v = &r->values[i];
        v->branches = gram_keep_copy(b, v->branches, v->n_branches, sizeof(*v->branches));
    }
    for (uint32_t i = 0; i < r->n_objects; i++) {
        struct gram_object *o = &r->objects[i];
        o->keys = gram_keep_copy(b, o->keys, o->n_keys, sizeof(*o->keys));
    }
    r->values = gram_keep_copy(b, r->values, r->n_values, sizeof(*r->values));
    r->strings = gram_keep_copy(b, r->strings, r->n_strings, sizeof(*r->strings));
    r->numbers = gram_keep_copy(b, r->numbers, r->n_numbers, sizeof(*r->numbers));
    r->objects = gram_keep_copy(b, r->objects, r->n_objects, sizeof(*r->objects));
    r->arrays = gram_keep_copy(b, r->arrays, r->n_arrays, sizeof(*r->arrays));
    r->tries = gram_keep_copy(b, r->tries, r->n_tries, sizeof(*r->tries));
    r->nodes = gram_keep_copy(b, r->nodes, r->n_nodes, sizeof(*r->nodes));
    r->dfas = gram_keep_copy(b, r->dfas, r->n_dfas, sizeof(*r->dfas));
}

/* Different values among the literals of a value rule that has nothing else; GRAM_NONE: unknown. */
static uint32_t count_literals(struct gram_build *b, uint32_t value)
{
    const struct gram_rules *r = b->rules;
    const struct gram_value *v = &r->values[value];
    struct gram_table different = {0};
    if (v->n_branches != 1 || v->branches[0].kind != GRAM_BRANCH_LITERAL) return GRAM_NONE;
    const struct gram_trie *t = &r->tries[v->branches[0].node];
    for (uint32_t i = 0; i < t->n_leaves; i++)
        gram_table_add(b, &different, &t->hashes[i], sizeof(t->hashes[i]));
    return different.n;
}

void gram_rules_finish(struct gram_build *b)
{
    struct gram_rules *r = b->rules;
    bool again = true;
    for (uint32_t i = 0; i < r->n_arrays; i++) {
        struct gram_array *a = &r->arrays[i];
        uint32_t n = a->unique && a->rest != GRAM_NONE ? count_literals(b, a->rest) : GRAM_NONE;
        if (n < a->max) a->max = n; /* unique items end when all values are used */
    }
    while (again) {
        again = false;
        find_heights(b);
        for (uint32_t i = 0; i < r->n_objects; i++)
            again |= open_object(b, &r->objects[i]);
        if (again) continue;
        for (uint32_t i = 0; i < r->n_values; i++)
            if (is_empty(r, i)) find_reason(r, i);
        for (uint32_t i = 0; i < r->n_objects; i++)
            again |= prune_object(b, &r->objects[i]);
    }
    for (uint32_t i = 0; i < r->n_arrays; i++)
        prune_array(r, &r->arrays[i]);
    for (uint32_t i = 0; i < r->n_values; i++) {
        struct gram_value *v = &r->values[i];
        uint32_t n = 0;
        for (uint32_t k = 0; k < v->n_branches; k++)
            if (branch_need(r, &v->branches[k]).height != GRAM_NEVER)
                v->branches[n++] = v->branches[k];
        v->n_branches = n;
        find_first(r, v);
    }
    for (uint32_t i = 0; i < r->n_objects; i++)
        finish_object(b, &r->objects[i]);
    finish_nodes(b);
    keep_arrays(b);
}
