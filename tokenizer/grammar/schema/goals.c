/* SPDX-License-Identifier: MIT */
/* The goals that were asked for, each with its value rule, and drafts of such rules. */
#include <stdio.h>

#include "tokenizer/grammar/decoder.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/grammar/lexer.h"
#include "tokenizer/grammar/schema/goals.h"
#include "tokenizer/grammar/vocab.h"

/* ---- goals --------------------------------------------------------------------------------- */

/* A schema that is nothing but a reference stands for what it refers to. */
static struct gram_js *follow(struct gram_build *b, struct gram_js *s)
{
    for (int i = 0; i < 100 && s->type == GRAM_JS_OBJECT; i++) {
        struct gram_js *ref = gram_js_get(s, "$ref");
        if (!ref || ref->type != GRAM_JS_STRING || (b->schema->siblings && s->n > 1)) return s;
        struct gram_js *to = gram_resolve(b, ref);
        if (to == &gram_anything) return s;
        s = to;
    }
    return s;
}

/* The members that count, each once. */
static struct gram_member *clean(struct gram_build *b, const struct gram_member *members,
                                 uint32_t n, uint32_t *ret_n)
{
    struct gram_member *out = gram_temp_array(b, n, sizeof(*out));
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct gram_member m = {follow(b, members[i].schema), members[i].negated};
        /* nothing is said, or it is there already */
        bool known = m.negated ? m.schema->type == GRAM_JS_FALSE : gram_is_trivial(m.schema);
        for (uint32_t j = 0; j < k && !known; j++)
            known = out[j].schema == m.schema && out[j].negated == m.negated;
        gram_steps(b, k / 64);
        if (!known) out[k++] = m;
    }
    *ret_n = k;
    return out;
}
uint32_t gram_goal(struct gram_build *b, const struct gram_member *members, uint32_t n)
{
    struct gram_schema *s = b->schema;
    struct gram_member *own = clean(b, members, n, &n);
    uint32_t *key = gram_temp_array(b, n, sizeof(*key));
    for (uint32_t i = 0; i < n; i++)
        key[i] = own[i].schema->id * 2 + own[i].negated;
    uint32_t number = gram_table_add(b, &s->known_goals, key, n * sizeof(*key));
    if (number == s->n_goals) {
        s->goals = gram_grow(b, s->goals, number, &s->cap_goals, sizeof(*s->goals));
        s->goals[s->n_goals++] = (struct gram_goal_entry){own, n, gram_add_value(b)};
    }
    return s->goals[number].value;
}

/* ---- drafts of values ----------------------------------------------------------------------- */

void gram_note_reason(struct gram_build *b, uint32_t value, const struct gram_js *at,
                      const char *text)
{
    struct gram_reason *r = &b->rules->reasons[value];
    if (r->text) return;
    if (at) r->at = at;
    r->text = text;
}

void gram_add_branch(struct gram_build *b, struct gram_value_draft *d, enum gram_branch_kind kind,
                     uint32_t node)
{
    gram_steps(b, d->n / 64);
    for (uint32_t i = 0; i < d->n; i++)
        if (d->branches[i].kind == kind && d->branches[i].node == node) return;
    d->branches = gram_grow(b, d->branches, d->n, &d->cap, sizeof(*d->branches));
    d->branches[d->n++] = (struct gram_branch){(uint8_t)kind, node};
}

void gram_add_literal(struct gram_build *b, struct gram_value_draft *d, const char *text,
                      size_t len, const char *same, size_t same_len)
{
    for (size_t i = 0; i < len; i++)
        if (gram_vocab_byte_id(b->vocab, (uint8_t)text[i]) < 0) return;
    if (!gram_trie_add(b, &d->literals, text, len, true, d->n_hashes)) return;
    d->hashes = gram_grow(b, d->hashes, d->n_hashes, &d->cap_hashes, sizeof(*d->hashes));
    d->hashes[d->n_hashes++] = gram_hash_bytes(GRAM_HASH_SEED, same, same_len);
}

/* All literals of the value are one branch. */
static void finish_literals(struct gram_build *b, struct gram_value_draft *d)
{
    struct gram_trie trie;
    if (!d->n_hashes) return;
    gram_trie_finish(b, &d->literals, &trie);
    if (b->schema->has_unique) {
        uint64_t *hashes = gram_keep_array(b, trie.n_leaves, sizeof(*hashes));
        for (uint32_t i = 0; i < trie.n_leaves; i++)
            hashes[i] = d->hashes[trie.leaves[i]];
        trie.hashes = hashes;
    }
    gram_add_branch(b, d, GRAM_BRANCH_LITERAL, gram_add_trie(b, &trie));
}

void gram_finish_draft(struct gram_build *b, struct gram_value_draft *d)
{
    finish_literals(b, d);
    b->rules->values[d->value].branches = d->branches;
    b->rules->values[d->value].n_branches = d->n;
}

const char *gram_json_spell(struct gram_build *b, const char *text, size_t len, size_t *ret_len)
{
    char *out = gram_temp(b, 6 * len + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        uint8_t c = (uint8_t)text[i], letter = gram_escape_letter(c);
        if (letter) {
            out[n++] = '\\';
            out[n++] = (char)letter;
        } else if (c < 0x20) {
            n += (size_t)snprintf(out + n, 7, "\\u%04x", c);
        } else {
            out[n++] = text[i];
        }
    }
    *ret_len = n;
    return out;
}
