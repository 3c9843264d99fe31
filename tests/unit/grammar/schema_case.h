/* SPDX-License-Identifier: MIT */
/* A schema, whether something of it has to be relaxed, and texts that it takes and refuses. */
#pragma once

#include "test.h"

#include "toy_vocab.h"

enum { CASE_TEXTS = 8 };

struct schema_case {
    const char *schema;
    const char *relaxed; /* pointer of the only relaxed keyword, or NULL: none */
    const char *in[CASE_TEXTS], *out[CASE_TEXTS];
};

static inline bool takes(const struct gram *g, void *memory, const char *text)
{
    struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
    for (; *text; text++)
        if (!gram_take(s, TOY_BYTES + (uint8_t)*text)) return false;
    return gram_accepting(s);
}

static inline void check_schemas(const struct schema_case *cases, size_t n)
{
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();

    for (size_t i = 0; i < n; i++) {
        const struct schema_case *c = &cases[i];
        struct gram *g = toy_compile(v, GRAM_SCHEMA, c->schema, NULL);
        REQUIRE_MSG(gram_n_relaxed(g) == (c->relaxed != NULL), "%s", c->schema);
        if (c->relaxed) REQUIRE_EQ_STR(gram_relaxed(g, 0), c->relaxed);
        for (const char *const *text = c->in; *text; text++)
            REQUIRE_MSG(takes(g, memory, *text), "%s must take %s", c->schema, *text);
        for (const char *const *text = c->out; *text; text++)
            REQUIRE_MSG(!takes(g, memory, *text), "%s must refuse %s", c->schema, *text);
        gram_release(g);
    }
    free(memory);
    gram_vocab_destroy(v);
}
