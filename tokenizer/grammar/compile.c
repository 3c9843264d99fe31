/* SPDX-License-Identifier: MIT */
/* Compiling, from parts to a grammar that can be used; and its life. */
#include "tokenizer/grammar/grammar.h"

#include <stdlib.h>

#include "base/json_reader.h"
#include "tokenizer/grammar/compiled.h"
#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/vocab.h"

enum { MAX_STEPS = 2000000 };

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

static void build(struct gram_build *b, struct gram *g, const struct gram_part *part)
{
    gram_spaces_build(b, &g->spaces);
    b->rules->root = gram_part_node(b, part);
    gram_rules_finish(b);
    gram_parts_check(b);
    g->relaxed = gram_keep_copy(b, b->relaxed, b->n_relaxed, sizeof(*b->relaxed));
    g->n_relaxed = b->n_relaxed;
    g->rules = *b->rules;
    plan_cache(b, g);
}

void gram_release(struct gram *g)
{
    if (!g) return;
    gram_arena_finish(&g->keep);
    free(g->cache.bits);
    free(g);
}

int gram_compile_parts(struct gram **ret, const struct gram_vocab *vocab,
                       const struct gram_part *root, const struct gram_options *options,
                       struct gram_error *err)
{
    static const struct gram_options defaults = {0};
    struct gram *g = calloc(1, sizeof(*g));
    struct gram_build *b = calloc(1, sizeof(*b));
    struct gram_rules *rules = calloc(1, sizeof(*rules));
    *err = (struct gram_error){.code = GRAM_ENOMEM, .message = "Out of memory while compiling."};
    if (g && b && rules) {
        b->err = err;
        b->vocab = vocab;
        b->options = options ? options : &defaults;
        b->max_steps = b->options->max_steps ? b->options->max_steps : MAX_STEPS;
        b->rules = rules;
        b->pointer = "";
        if (!setjmp(b->out)) {
            build(b, g, root);
            *err = (struct gram_error){.code = GRAM_OK};
        }
        err->steps = b->steps;
        if (b->reader) jr_finish(b->reader);
        gram_arena_finish(&b->temp);
        g->keep = b->keep;
    }
    free(b);
    free(rules);
    if (err->code) {
        gram_release(g);
        return err->code;
    }
    g->vocab = vocab;
    *ret = g;
    return 0;
}

int gram_compile(struct gram **ret, const struct gram_vocab *vocab, enum gram_kind kind,
                 const char *text, size_t len, const struct gram_options *options,
                 struct gram_error *err)
{
    struct gram_part part = {.kind = kind, .text = text, .len = len};
    return gram_compile_parts(ret, vocab, &part, options, err);
}

size_t gram_mask_words(const struct gram *g)
{
    return gram_vocab_mask_words(g->vocab);
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
