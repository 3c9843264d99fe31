/* SPDX-License-Identifier: MIT */
/* Compiling, from the front ends to a grammar that can be used; and its life. */
#include "tokenizer/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_reader.h"
#include "base/utf8.h"
#include "tokenizer/grammar/compiled.h"
#include "tokenizer/grammar/front.h"
#include "tokenizer/grammar/json_doc.h"
#include "tokenizer/grammar/nodes.h"
#include "tokenizer/grammar/ecma_regex.h"
#include "tokenizer/grammar/spaces.h"
#include "tokenizer/grammar/vocab.h"

enum {
    MAX_STEPS = 2000000,
    MAX_REGEX_BYTES = 16 * 1024,
    MAX_CHOICES = 1000,
    MAX_CHOICE_BYTES = 4096,
};

/* ---- the small front ends ------------------------------------------------------------------ */

void gram_front_regex(struct gram_build *b, const void *text, size_t len)
{
    static const struct gram_regex_source source = {.what = "regex"};

    if (len > MAX_REGEX_BYTES)
        gram_fail(b, GRAM_EGRAMMAR, "regex: %zu bytes; at most %d.", len, MAX_REGEX_BYTES);
    if (len == 0) gram_fail(b, GRAM_EGRAMMAR, "regex: it is empty.");
    b->rules->root = gram_node_of(b, gram_regex_parse(b, text, len, &source), NULL);
}

static void add_choice(struct gram_build *b, struct gram_trie_builder *trie,
                       const struct gram_js *v)
{
    if (v->type != GRAM_JS_STRING)
        gram_fail(b, GRAM_EGRAMMAR, "choice: item %u must be a string, is %s.", v->index,
                  gram_js_type_name(v));
    if (v->len == 0) gram_fail(b, GRAM_EGRAMMAR, "choice: item %u is empty.", v->index);
    if (v->len > MAX_CHOICE_BYTES)
        gram_fail(b, GRAM_EGRAMMAR, "choice: item %u has %u bytes; at most %d.", v->index, v->len,
                  MAX_CHOICE_BYTES);
    for (uint32_t i = 0; i < v->len; i++)
        if (gram_vocab_byte_id(b->vocab, (uint8_t)v->text[i]) < 0) return;
    gram_trie_add(b, trie, v->text, v->len, false, v->index);
}

void gram_front_choice(struct gram_build *b, const void *text, size_t len)
{
    uint32_t n_nodes = 0;
    struct gram_trie_builder trie = {0};
    struct gram_trie *kept = gram_keep(b, sizeof(*kept));
    const struct gram_js *list = gram_js_parse(b, text, len, 4, GRAM_EGRAMMAR, "choice", &n_nodes);

    if (list->type != GRAM_JS_ARRAY)
        gram_fail(b, GRAM_EGRAMMAR, "choice: must be a list of strings, is %s.",
                  gram_js_type_name(list));
    if (list->n == 0) gram_fail(b, GRAM_EGRAMMAR, "choice: it is empty.");
    if (list->n > MAX_CHOICES)
        gram_fail(b, GRAM_EGRAMMAR, "choice: %u items; at most %d.", list->n, MAX_CHOICES);
    for (const struct gram_js *v = list->child; v; v = v->next)
        add_choice(b, &trie, v);
    gram_trie_finish(b, &trie, kept);
    b->rules->root = gram_add_node(b, GRAM_NODE_LITERALS);
    b->rules->nodes[b->rules->root].trie = kept;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static void require_json(struct gram_build *b)
{
    uint8_t missing;
    if (gram_vocab_spells_json(b->vocab, &missing)) return;
    gram_fail(b, GRAM_EUNSUPPORTED, "JSON cannot be written with this tokenizer: no token is '%c'.",
              missing);
}

static void front_json_schema(struct gram_build *b, const void *text, size_t len)
{
    require_json(b);
    gram_front_schema(b, text, len);
}

static void front_json_object(struct gram_build *b, const void *text, size_t len)
{
    (void)text;
    (void)len;
    front_json_schema(b, "{\"type\":\"object\"}", 17);
}

static const gram_front_fn fronts[] = {
    [GRAM_SCHEMA] = front_json_schema, [GRAM_JSON_OBJECT] = front_json_object,
    [GRAM_REGEX] = gram_front_regex,   [GRAM_CHOICE] = gram_front_choice,
    [GRAM_GBNF] = gram_front_gbnf,
};

/* Entries of the mask cache, and each state's place for the number of its entry. */
static void plan_cache(struct gram_build *b, struct gram *g)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < g->rules.n_dfas; i++) {
        struct gram_dfa *d = g->rules.dfas[i];
        d->slots = gram_keep_array(b, d->n_states, sizeof(*d->slots));
        n = n + d->n_states < GRAM_MAX_CACHED ? n + d->n_states : GRAM_MAX_CACHED;
    }
    if (!n) return;
    g->cache.bits = calloc((size_t)n * b->vocab->n_words, sizeof(*g->cache.bits));
    if (!g->cache.bits) gram_fail_memory(b);
    g->cache.n = n;
}

static void build(struct gram_build *b, struct gram *g, gram_front_fn front, const void *text,
                  size_t len)
{
    struct gram_rules *r = b->rules;

    gram_spaces_build(b, &g->spaces);
    front(b, text, len);
    gram_rules_finish(b);
    if (r->nodes[r->root].height == GRAM_NEVER) {
        if (b->schema) gram_schema_empty(b);
        gram_fail(b, GRAM_EGRAMMAR, "The grammar has no text at all.");
    }
    g->n_relaxed = (uint32_t)gram_schema_relaxed(b, &g->relaxed);
    g->rules = *r;
    plan_cache(b, g);
}

static void destroy(struct gram *g)
{
    gram_arena_finish(&g->keep);
    free(g->cache.bits);
    free(g);
}

int gram_compile_front(struct gram **ret, const struct gram_vocab *vocab, gram_front_fn front,
                       const void *text, size_t len, const struct gram_options *options,
                       struct gram_error *err)
{
    static const struct gram_options defaults = {0};
    struct gram *g = calloc(1, sizeof(*g));
    struct gram_build *b = calloc(1, sizeof(*b));
    struct gram_rules *rules = calloc(1, sizeof(*rules));

    *err = (struct gram_error){.code = GRAM_ENOMEM, .message = "There is no memory to compile."};
    if (g && b && rules) {
        b->err = err;
        b->vocab = vocab;
        b->options = options ? options : &defaults;
        b->max_steps = b->options->max_steps ? b->options->max_steps : MAX_STEPS;
        b->rules = rules;
        if (!setjmp(b->out)) {
            build(b, g, front, text, len);
            *err = (struct gram_error){.code = GRAM_OK};
        }
        if (b->reader) jr_finish(b->reader);
        gram_arena_finish(&b->temp);
        g->keep = b->keep;
    }
    free(b);
    free(rules);
    if (err->code) {
        if (g) destroy(g);
        return err->code;
    }
    g->vocab = vocab;
    atomic_init(&g->refs, 1);
    *ret = g;
    return 0;
}

int gram_compile(struct gram **ret, const struct gram_vocab *vocab, enum gram_kind kind,
                 const char *text, size_t len, const struct gram_options *options,
                 struct gram_error *err)
{
    return gram_compile_front(ret, vocab, fronts[kind], text, len, options, err);
}

struct gram *gram_retain(struct gram *g)
{
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return g;
}

void gram_release(struct gram *g)
{
    if (g && atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) == 1) destroy(g);
}

size_t gram_n_relaxed(const struct gram *g)
{
    return g->n_relaxed;
}

const char *gram_relaxed(const struct gram *g, size_t i)
{
    return i < g->n_relaxed ? g->relaxed[i] : NULL;
}

size_t gram_bytes(const struct gram *g)
{
    return sizeof(*g) + g->keep.bytes;
}

size_t gram_cache_bytes(const struct gram *g)
{
    return (size_t)g->cache.n * g->vocab->n_words * sizeof(*g->cache.bits);
}
