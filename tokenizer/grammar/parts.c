/* SPDX-License-Identifier: MIT */
/*
 * From a tree of parts to nodes. Leaves that a text says are made once for each text, so that a
 * hundred equal schemas, or values that end alike, cost as much as one.
 */
#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/front/ecma_regex.h"
#include "tokenizer/grammar/json_doc.h"
#include "tokenizer/grammar/rules.h"
#include "tokenizer/grammar/vocab.h"

enum {
    MAX_REGEX_BYTES = 16 * 1024,
    MAX_CHOICES = 1000,
    MAX_CHOICE_BYTES = 4096,
    MAX_DEPTH = 256,
};

/* A leaf that was made of a text. It must have a member. */
struct gram_leaf {
    struct gram_leaf *next;
    const struct gram_part *part;
    struct gram_schema *schema; /* NULL: of another kind */
    uint32_t node;
};

/* ---- regular expressions and texts --------------------------------------------------------- */

static uint32_t regex_node(struct gram_build *b, const char *text, size_t len)
{
    static const struct gram_regex_source source = {.what = "regex"};
    if (len > MAX_REGEX_BYTES)
        gram_fail(b, GRAM_EGRAMMAR, "regex: %zu bytes; at most %d.", len, MAX_REGEX_BYTES);
    if (len == 0) gram_fail(b, GRAM_EGRAMMAR, "regex: it is empty.");
    return gram_node_of(b, gram_regex_parse(b, text, len, &source), NULL);
}

static uint32_t choice_node(struct gram_build *b, const char *text, size_t len)
{
    uint32_t n_nodes = 0;
    struct gram_trie_builder trie = {0};
    const struct gram_js *list = gram_js_parse(b, text, len, 4, GRAM_EGRAMMAR, "choice", &n_nodes);
    if (list->type != GRAM_JS_ARRAY)
        gram_fail(b, GRAM_EGRAMMAR, "choice: must be a list of strings, is %s.",
                  gram_js_type_name(list));
    if (list->n == 0) gram_fail(b, GRAM_EGRAMMAR, "choice: it is empty.");
    if (list->n > MAX_CHOICES)
        gram_fail(b, GRAM_EGRAMMAR, "choice: %u items; at most %d.", list->n, MAX_CHOICES);
    for (const struct gram_js *v = list->child; v; v = v->next) {
        if (v->type != GRAM_JS_STRING)
            gram_fail(b, GRAM_EGRAMMAR, "choice: item %u must be a string, is %s.", v->index,
                      gram_js_type_name(v));
        if (v->len == 0) gram_fail(b, GRAM_EGRAMMAR, "choice: item %u is empty.", v->index);
        if (v->len > MAX_CHOICE_BYTES)
            gram_fail(b, GRAM_EGRAMMAR, "choice: item %u has %u bytes; at most %d.", v->index,
                      v->len, MAX_CHOICE_BYTES);
        if (gram_vocab_spells(b->vocab, v->text, v->len))
            gram_trie_add(b, &trie, v->text, v->len, false, v->index);
    }
    return gram_node_texts(b, &trie, 0, NULL);
}

static uint32_t not_found(const void *ctx, uint64_t matched)
{
    return matched == 0;
}

static void add_end(struct gram_build *b, struct gram_ex_list *ends, const char *text, size_t len)
{
    if (len && memchr(text, 0xFF, len)) return; /* never found in a text */
    if (!len || !utf8_valid(text, len))
        gram_fail(b, GRAM_EGRAMMAR, "A text can only end at valid UTF-8 or a special token.");
    gram_ex_push(b, ends, gram_ex_text(b, text, len));
}

/* Any text that neither the part's text nor that of one of its kids is found in. */
static uint32_t until_node(struct gram_build *b, const struct gram_part *p)
{
    struct gram_ex_list ends = {0};
    struct gram_ex_part part = {.x = gram_ex_new(b, GRAM_EX_NONE), .search = true};
    struct gram_dfa_params params = {.parts = &part,
                                     .n_parts = 1,
                                     .outcome = not_found,
                                     .max = GRAM_INFINITE,
                                     .spellable = b->vocab->spellable};
    if (p->len || !p->n_kids) add_end(b, &ends, p->text, p->len);
    for (size_t i = 0; i < p->n_kids; i++)
        add_end(b, &ends, p->kids[i].text, p->kids[i].len);
    if (ends.n) part.x = gram_ex_alt(b, &ends);
    struct gram_dfa *d = gram_add_dfa(b, &params);
    if (!d) gram_fail(b, GRAM_EGRAMMAR, "The ends of a text are too long together.");
    return gram_node_leaf(b, d);
}

/* ---- leaves -------------------------------------------------------------------------------- */

static bool same_leaf(const struct gram_part *x, const struct gram_part *y)
{
    return x->kind == y->kind && x->len == y->len && x->strict == y->strict &&
           x->types == y->types && x->kids == y->kids && x->bare == y->bare &&
           x->nullable == y->nullable && x->optional == y->optional &&
           (!x->len || memcmp(x->text, y->text, x->len) == 0);
}

static uint32_t make_leaf(struct gram_build *b, const struct gram_part *p)
{
    bool strict = p->strict || b->options->strict;
    switch (p->kind) {
    case GRAM_SCHEMA:
        return p->bare ? gram_schema_text_node(b, p, strict)
                       : gram_schema_node(b, p->text, p->len, strict, p->types);
    case GRAM_JSON_OBJECT: return gram_schema_node(b, "true", 4, false, "\"object\"");
    case GRAM_REGEX: return regex_node(b, p->text, p->len);
    case GRAM_CHOICE: return choice_node(b, p->text, p->len);
    case GRAM_GBNF: return gram_gbnf_node(b, p->text, p->len);
    default: return until_node(b, p);
    }
}

static uint32_t leaf_node(struct gram_build *b, const struct gram_part *p)
{
    struct gram_leaf *leaf = b->leaves;
    for (; leaf && !same_leaf(leaf->part, p); leaf = leaf->next)
        gram_steps(b, 1 + (leaf->part->len == p->len ? p->len / 1024 : 0));
    b->pointer = p->pointer ? p->pointer : "";
    if (!leaf) {
        leaf = gram_temp(b, sizeof(*leaf));
        leaf->part = p;
        leaf->node = make_leaf(b, p);
        if (p->kind == GRAM_SCHEMA || p->kind == GRAM_JSON_OBJECT) leaf->schema = b->schema;
        leaf->next = b->leaves;
        b->leaves = leaf;
    }
    if (leaf->schema) gram_schema_relaxed(b, leaf->schema);
    b->pointer = "";
    return leaf->node;
}

void gram_parts_check(struct gram_build *b)
{
    const struct gram_leaf *first = NULL;
    for (const struct gram_leaf *l = b->leaves; l; l = l->next)
        if (b->rules->nodes[l->node].need.height == GRAM_NEVER && !l->part->optional) first = l;
    if (!first) return;
    b->pointer = first->part->pointer ? first->part->pointer : "";
    if (first->schema) gram_schema_empty(b, first->schema);
    gram_fail(b, GRAM_EGRAMMAR, "The grammar has no text at all.");
}

/* ---- trees --------------------------------------------------------------------------------- */

static uint32_t node_of(struct gram_build *b, const struct gram_part *p, int depth);

static uint32_t sequence_node(struct gram_build *b, const struct gram_part *kids, size_t n,
                              int depth)
{
    uint32_t *nodes = gram_temp_array(b, n, sizeof(*nodes));
    for (size_t i = 0; i < n; i++)
        nodes[i] = node_of(b, &kids[i], depth);
    if (n == 0) return gram_add_node(b, GRAM_NODE_EMPTY);
    return n == 1 ? nodes[0] : gram_node_with(b, GRAM_NODE_SEQ, (uint32_t)n, nodes);
}

/* The literal that a kid of a choice begins with, or NULL. */
static const struct gram_part *head_of(const struct gram_part *p)
{
    if (p->kind == GRAM_SEQUENCE && !p->capture && p->n_kids) p = p->kids;
    return p->kind == GRAM_LITERAL && p->len ? p : NULL;
}

/* Kids with different literals under one capture become one trie; the others stay as they are. */
static uint32_t either_node(struct gram_build *b, const struct gram_part *p, int depth)
{
    uint32_t *alts = gram_temp_array(b, p->n_kids + 1, sizeof(*alts)), n = 0;
    uint32_t *tails = gram_temp_array(b, p->n_kids, sizeof(*tails)), n_tails = 0;
    struct gram_trie_builder trie = {0};
    const struct gram_part *first = NULL;
    for (size_t i = 0; i < p->n_kids; i++) {
        const struct gram_part *head = head_of(&p->kids[i]);
        if (!first) first = head;
        bool joins = head && head->capture == first->capture &&
                     gram_vocab_spells(b->vocab, head->text, head->len) &&
                     gram_trie_add(b, &trie, head->text, head->len, false, n_tails);
        if (joins)
            tails[n_tails++] = head == &p->kids[i]
                                   ? gram_add_node(b, GRAM_NODE_EMPTY)
                                   : sequence_node(b, head + 1, p->kids[i].n_kids - 1, depth);
        else
            alts[n++] = node_of(b, &p->kids[i], depth);
    }
    if (n_tails) {
        uint32_t node = gram_node_texts(b, &trie, n_tails, tails);
        b->rules->nodes[node].ref = first->capture;
        alts[n++] = node;
    }
    return n == 1 ? alts[0] : gram_node_with(b, GRAM_NODE_ALT, n, alts);
}

/* x, then rounds of a separator and x. */
static uint32_t repeat_node(struct gram_build *b, const struct gram_part *p, int depth)
{
    uint32_t x = node_of(b, &p->kids[0], depth), more = p->max == GRAM_INFINITE ? 0 : 1;
    assert(p->min <= p->max);
    if (p->max == 0) return gram_add_node(b, GRAM_NODE_EMPTY);
    if (p->n_kids == 1) return gram_node_rep(b, x, p->min, p->max);
    uint32_t round[2] = {node_of(b, &p->kids[1], depth), x};
    uint32_t rounds = gram_node_rep(b, gram_node_with(b, GRAM_NODE_SEQ, 2, round),
                                    p->min ? p->min - 1 : 0, p->max - more);
    uint32_t all[2] = {x, rounds}, node = gram_node_with(b, GRAM_NODE_SEQ, 2, all);
    return p->min ? node : gram_node_rep(b, node, 0, 1);
}

static uint32_t bare_node(struct gram_build *b, const struct gram_part *p, int depth)
{
    switch (p->kind) {
    case GRAM_RELAXED:
        b->pointer = p->pointer ? p->pointer : "";
        gram_name_relaxed(b, p->text, p->len, p->strict || b->options->strict);
        b->pointer = "";
        return gram_add_node(b, GRAM_NODE_EMPTY);
    case GRAM_LITERAL:
        if (!p->len) return gram_add_node(b, GRAM_NODE_EMPTY);
        if (!gram_vocab_spells(b->vocab, p->text, p->len))
            gram_fail(b, GRAM_EUNSUPPORTED, "%s cannot be written with this tokenizer.",
                      gram_quote(b, p->text, p->len));
        return gram_node_text(b, p->text, p->len);
    case GRAM_SEQUENCE: return sequence_node(b, p->kids, p->n_kids, depth);
    case GRAM_EITHER: return either_node(b, p, depth);
    case GRAM_REPEAT: return repeat_node(b, p, depth);
    default: return leaf_node(b, p);
    }
}

static uint32_t node_of(struct gram_build *b, const struct gram_part *p, int depth)
{
    if (depth == MAX_DEPTH) gram_fail(b, GRAM_EGRAMMAR, "Parts nest deeper than %d.", MAX_DEPTH);
    gram_steps(b, 1);
    uint32_t node = bare_node(b, p, depth + 1);
    if (!p->capture) return node;
    node = gram_node_with(b, GRAM_NODE_CAPTURE, 1, &node);
    b->rules->nodes[node].ref = p->capture;
    return node;
}

uint32_t gram_part_node(struct gram_build *b, const struct gram_part *root)
{
    return node_of(b, root, 0);
}
