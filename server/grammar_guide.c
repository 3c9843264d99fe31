/* SPDX-License-Identifier: MIT */
/* A grammar's state as the engine's guide; see grammar_guide.h. */
#include "server/grammar_guide.h"

#include <assert.h>

#include "base/clock.h"
#include "server/metrics.h"
#include "tokenizer/tokenizer.h"

static void set_bit(uint64_t *bits, int32_t id, bool on)
{
    uint64_t bit = 1ull << id % 64;
    bits[id / 64] = on ? bits[id / 64] | bit : bits[id / 64] & ~bit;
}

/* Ids that end an answer and stand for no text: allowed where it is complete. */
static void set_ends(const struct grammar_rules *rules, uint64_t *bits, bool complete)
{
    const struct eng_info *info = rules->info;
    for (int i = 0; i < info->n_eos_ids; i++)
        set_bit(bits, info->eos_ids[i], complete && !rules->ignore_eos);
    for (int i = 0; i < rules->n_stop_ids; i++)
        if (tok_is_special(rules->tok, rules->stop_ids[i]))
            set_bit(bits, rules->stop_ids[i], complete);
}

static enum eng_guide_next mask(void *ctx, uint64_t *bits)
{
    struct grammar_choice *c = ctx;
    uint64_t start = clock_now_us();
    assert(c->state);
    enum gram_next next = gram_mask(c->state, bits);
    if (c->rules->metrics)
        srv_metrics_observe(c->rules->metrics, SRV_TIME_MASK, clock_now_us() - start);
    if (next == GRAM_NEXT_END) return ENG_GUIDE_END;
    if (next == GRAM_NEXT_FAIL) return ENG_GUIDE_FAIL;
    set_ends(c->rules, bits, gram_accepting(c->state));
    return ENG_GUIDE_MASK;
}

static bool take(void *ctx, int32_t id)
{
    struct grammar_choice *c = ctx;
    bool taken = gram_take(c->state, id);
    uint64_t n = gram_overflows(c->state);
    if (n > c->n_overflows && c->rules->metrics)
        srv_metrics_count(c->rules->metrics, SRV_COUNT_GRAMMAR_OVERFLOWS);
    c->n_overflows = n;
    return taken;
}

static bool complete(void *ctx)
{
    const struct grammar_choice *c = ctx;
    return gram_accepting(c->state);
}

static uint64_t mark(void *ctx)
{
    struct grammar_choice *c = ctx;
    return gram_mark(c->state);
}

static void rollback(void *ctx, uint64_t to)
{
    struct grammar_choice *c = ctx;
    bool known = gram_rollback(c->state, to);
    assert(known);
    (void)known;
}

void grammar_guide_begin(struct grammar_choice *c, void *memory, const struct gram *gram)
{
    c->state = gram_state_init(memory, gram, NULL, NULL);
    c->n_overflows = 0;
}

struct eng_guide grammar_guide(struct grammar_choice *c)
{
    return (struct eng_guide){c, mask, take, complete, mark, rollback};
}
