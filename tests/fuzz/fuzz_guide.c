/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes answers: the first byte picks a grammar, the others are what happens: ids that are taken,
 * allowed or not, marks and rollbacks. After a rollback the state is as at the mark; an id is taken
 * if and only if the mask has it.
 */
#include "grammar_check.h"

static const struct {
    enum gram_kind kind;
    const char *text;
} grammars[] = {
    {GRAM_SCHEMA, "true"},
    {GRAM_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":5},"
     "\"ab\":{\"type\":\"number\",\"maximum\":12.5},\"name\":{\"format\":\"time\"}},"
     "\"required\":[\"ab\"],\"maxProperties\":4}"},
    {GRAM_SCHEMA,
     "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"anyOf\":[{\"type\":\"string\","
     "\"pattern\":\"^a+b?$\"},{\"enum\":[1,12,null]}]}}"},
    {GRAM_SCHEMA, "{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"$ref\":\"#\"}},"
                  "\"additionalProperties\":false}"},
    {GRAM_SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"x\":{}},"
                  "\"dependentRequired\":{\"a\":[\"x\"]},\"minProperties\":2}"},
    {GRAM_REGEX, "(?:hello|aa?b){2,60}[^a]*"},
    {GRAM_GBNF, "root ::= t (\" \" t){0,4}\nt ::= \"the\" | \"(\" root \")\" | [0-9]{1,200}"},
};

enum { N_GRAMMARS = sizeof(grammars) / sizeof(grammars[0]), MAX_STEPS = 200 };

struct guide {
    struct gram_state *s;
    uint64_t bits[TOY_MASK_WORDS], marked[TOY_MASK_WORDS];
    uint64_t mark; /* 0: none */
    size_t since;  /* bytes since the mark */
};

static void take(struct guide *w, int32_t id)
{
    char text[64];
    bool allowed = toy_allows(w->bits, id) && id != TOY_END;

    CHECK(gram_take(w->s, id) == allowed);
    if (allowed) w->since += toy_bytes(NULL, id, text, sizeof(text));
}

static void mark(struct guide *w)
{
    memcpy(w->marked, w->bits, sizeof(w->bits));
    w->mark = gram_mark(w->s);
    w->since = 0;
}

static void roll_back(struct guide *w)
{
    if (!w->mark) return;
    CHECK(gram_rollback(w->s, w->mark) || w->since > GRAM_MARK_BYTES);
    if (w->since > GRAM_MARK_BYTES) return;
    gram_mask(w->s, w->bits);
    CHECK(memcmp(w->bits, w->marked, sizeof(w->bits)) == 0);
    w->since = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gram *compiled[N_GRAMMARS];
    static void *memory;
    struct guide w = {.mark = 0};

    if (size == 0) return 0;
    size_t which = data[0] % N_GRAMMARS;
    if (!compiled[which])
        compiled[which] = fuzz_compile(grammars[which].kind, (const uint8_t *)grammars[which].text,
                                       strlen(grammars[which].text), false);
    if (!memory) memory = toy_state_memory();
    w.s = gram_state_init(memory, compiled[which], NULL, NULL);
    for (size_t i = 1; i + 1 < size && i < 2 * MAX_STEPS; i += 2) {
        CHECK(gram_mask(w.s, w.bits) != GRAM_NEXT_FAIL);
        switch (data[i] % 8) {
        case 0: mark(&w); break;
        case 1: roll_back(&w); break;
        default: take(&w, (data[i] / 8 * 256 + data[i + 1]) % TOY_IDS); break;
        }
    }
    return 0;
}
