/* SPDX-License-Identifier: MIT */
/* Rules under construction: the lists that grow. */
#include "tokenizer/grammar/rules.h"

#include <string.h>

#include "tokenizer/grammar/build.h"

/* ---- adding -------------------------------------------------------------------------------- */

#define ADD(list, item)                                                                            \
    do {                                                                                           \
        struct gram_rules *r_ = b->rules;                                                          \
        if (r_->n_##list >= GRAM_MAX_RULES) gram_fail_limit(b, GRAM_MAX_RULES, "rules");           \
        r_->list = gram_grow(b, r_->list, r_->n_##list, &r_->cap_##list, sizeof(*r_->list));       \
        r_->list[r_->n_##list] = item;                                                             \
        return r_->n_##list++;                                                                     \
    } while (0)

uint32_t gram_add_value(struct gram_build *b)
{
    struct gram_rules *r = b->rules;
    struct gram_value v = {.need.height = GRAM_NEVER};
    r->reasons = gram_grow(b, r->reasons, r->n_values, &r->cap_reasons, sizeof(*r->reasons));
    r->reasons[r->n_values] = (struct gram_reason){.because = GRAM_NONE};
    ADD(values, v);
}

uint32_t gram_add_string(struct gram_build *b, const struct gram_string *s)
{
    const struct gram_rules *r = b->rules;
    for (uint32_t i = r->n_strings; i-- > 0 && i + 64 > r->n_strings;)
        if (memcmp(&r->strings[i], s, sizeof(*s)) == 0) return i;
    ADD(strings, *s);
}

uint32_t gram_add_number(struct gram_build *b, const struct gram_number *n)
{
    const struct gram_rules *r = b->rules;
    for (uint32_t i = r->n_numbers; i-- > 0 && i + 16 > r->n_numbers;)
        if (memcmp(&r->numbers[i], n, sizeof(*n)) == 0) return i;
    ADD(numbers, *n);
}

uint32_t gram_add_object(struct gram_build *b, const struct gram_object *o)
{
    ADD(objects, *o);
}

uint32_t gram_add_array(struct gram_build *b, const struct gram_array *a)
{
    ADD(arrays, *a);
}

uint32_t gram_add_trie(struct gram_build *b, const struct gram_trie *t)
{
    ADD(tries, *t);
}

uint32_t gram_add_node(struct gram_build *b, enum gram_node_kind kind)
{
    struct gram_node n = {.kind = (uint8_t)kind,
                          .need = {.height = GRAM_NEVER, .least.bytes = GRAM_INFINITE}};
    ADD(nodes, n);
}

struct gram_dfa *gram_add_dfa(struct gram_build *b, const struct gram_dfa_params *params)
{
    struct gram_dfa *d = gram_dfa_build(b, params);
    struct gram_rules *r = b->rules;
    if (!d) return NULL;
    r->dfas = gram_grow(b, r->dfas, r->n_dfas, &r->cap_dfas, sizeof(*r->dfas));
    return r->dfas[r->n_dfas++] = d;
}
