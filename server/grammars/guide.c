/* SPDX-License-Identifier: MIT */
/* A grammar's state as the engine's guide; see guide.h. */
#include "server/grammars/guide.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "server/metrics.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tools/tools.h"

/* The steps of a mask that is looked at in advance, some 100 us: no sequence waits for it. */
enum { GRAMMAR_PEEK_STEPS = 2000 };

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

static bool complete(void *ctx)
{
    const struct grammar_choice *c = ctx;
    return tools_guide_complete(c->guide);
}

static enum eng_guide_next next_of(struct grammar_choice *c, uint64_t *bits, struct gram_pace *pace)
{
    enum tools_next next = tools_guide_mask(c->guide, bits, pace);
    return next == TOOLS_NEXT_FREE    ? ENG_GUIDE_FREE
           : next == TOOLS_NEXT_MASK  ? ENG_GUIDE_MASK
           : next == TOOLS_NEXT_END   ? ENG_GUIDE_END
           : next == TOOLS_NEXT_LATER ? ENG_GUIDE_LATER
                                      : ENG_GUIDE_FAIL;
}

/* The engine's pace as the grammar's, and how long it has paused. */
struct pace {
    struct gram_pace gram; /* first, so that one is the other */
    struct eng_pace *engine;
    uint64_t paused_us;
};

static bool more(struct gram_pace *gram)
{
    struct pace *pace = (struct pace *)gram;
    uint64_t start = clock_now_us();
    bool has_time = pace->engine->more(pace->engine);
    pace->paused_us += clock_now_us() - start;
    gram->left = pace->engine->left;
    return has_time;
}

/* ---- closing ------------------------------------------------------------------------------- */

/* The answer can be completed in so many tokens. An id is a byte at least. */
static bool has_room(struct grammar_choice *c, int64_t left)
{
    uint64_t rest = gram_rest(c->state);
    uint32_t n_values;
    return 4 * rest + 16 < (uint64_t)left ||
           gram_close(c->state, (size_t)left, NULL, NULL, 0, &n_values) != SIZE_MAX;
}

/* The sampling bans an id. */
static bool is_banned(const void *ctx, int32_t id)
{
    const struct eng_sampling *s = ctx;
    for (int k = 0; k < s->n_bias; k++)
        if (s->bias[k].value == -INFINITY && s->bias[k].id == id) return true;
    bool listed = !s->allowed_ids;
    for (int k = 0; !listed && k < s->n_allowed_ids; k++)
        listed = s->allowed_ids[k] == id;
    return !listed;
}

/* From here on the answer is closed; returns its first id, -1 if it is complete, or the one drawn
 * if it cannot be closed after all. */
static int32_t begin_closing(struct grammar_choice *c, int32_t drawn)
{
    const struct gram_bans bans = {is_banned, c->rules->sampling};
    int32_t id = -1;
    uint32_t n_values = 0;
    size_t n = gram_close(c->state, (size_t)c->left, bans.ctx ? &bans : NULL, &id, 1, &n_values);
    if (n == SIZE_MAX) {
        c->left = -1;
        return drawn;
    }
    c->closing = true;
    atomic_fetch_add(&c->rules->closed->n_tokens, (long long)n);
    atomic_fetch_add(&c->rules->closed->n_values, n_values);
    if (c->rules->metrics && n > 0) srv_metrics_count(c->rules->metrics, SRV_COUNT_CLOSED_ANSWERS);
    return id;
}

static int32_t settle(void *ctx, int32_t id)
{
    struct grammar_choice *c = ctx;
    if (c->left < 0) return id;
    if (!c->closing) {
        uint64_t start = tools_guide_mark(c->guide);
        bool fits = !tools_guide_take(c->guide, id) || has_room(c, c->left - 1);
        tools_guide_rollback(c->guide, start);
        gram_forget_marks(c->state);
        if (!fits) id = begin_closing(c, id);
    }
    if (c->left > 0) c->left--;
    return id;
}

static enum eng_guide_next mask_closing(struct grammar_choice *c, uint64_t *bits)
{
    uint32_t n_values;
    int32_t id;
    size_t n = gram_close(c->state, (size_t)c->left, NULL, &id, 1, &n_values);
    if (n == SIZE_MAX) return ENG_GUIDE_FAIL;
    if (n == 0) return ENG_GUIDE_CUT;
    memset(bits, 0, c->n_words * sizeof(*bits));
    set_bit(bits, id, true);
    return ENG_GUIDE_MASK;
}

/* ---- the engine's calls -------------------------------------------------------------------- */

static enum eng_guide_next mask(void *ctx, uint64_t *bits, struct eng_pace *engine)
{
    struct grammar_choice *c = ctx;
    struct pace pace = {{engine->left, more}, engine, 0};
    uint64_t start = clock_now_us();
    if (c->closing) return mask_closing(c, bits);
    enum eng_guide_next next = next_of(c, bits, &pace.gram);
    if (c->rules->metrics && next != ENG_GUIDE_FREE && next != ENG_GUIDE_LATER)
        srv_metrics_observe(c->rules->metrics, SRV_TIME_MASK,
                            clock_now_us() - start - pace.paused_us);
    if (next == ENG_GUIDE_MASK) set_ends(c->rules, bits, complete(ctx));
    return next;
}

static bool take(void *ctx, int32_t id)
{
    struct grammar_choice *c = ctx;
    bool taken = tools_guide_take(c->guide, id);
    uint64_t n = gram_overflows(c->state);
    if (n > c->n_overflows && c->rules->metrics)
        srv_metrics_count(c->rules->metrics, SRV_COUNT_GRAMMAR_OVERFLOWS);
    c->n_overflows = n;
    return taken;
}

/* Takes ids, to go back; no more bytes than that can go back. Special tokens count one more. */
static int take_ahead(struct grammar_choice *c, const int32_t *ids, int n)
{
    size_t n_bytes = 0;
    int i = 0;
    for (; i < n; i++) {
        n_bytes += tok_token_bytes(c->rules->tok, ids[i], NULL, 0) + 1;
        if (n_bytes > GRAM_MARK_BYTES || !tools_guide_take(c->guide, ids[i])) break;
    }
    return i;
}

static void go_back(struct grammar_choice *c, uint64_t start)
{
    tools_guide_rollback(c->guide, start);
    gram_forget_marks(c->state);
    c->n_overflows = gram_overflows(c->state);
}

static int foresee(void *ctx, const int32_t *ids, int n)
{
    uint64_t start = tools_guide_mark(((struct grammar_choice *)ctx)->guide);
    int taken = take_ahead(ctx, ids, n);
    go_back(ctx, start);
    return taken;
}

static bool give_up(struct gram_pace *pace)
{
    return false;
}

static enum eng_guide_next peek(void *ctx, const int32_t *ids, int n, uint64_t *bits)
{
    struct grammar_choice *c = ctx;
    struct gram_pace pace = {GRAMMAR_PEEK_STEPS, give_up};
    enum eng_guide_next next = ENG_GUIDE_LATER;
    uint64_t start = tools_guide_mark(c->guide);
    if (take_ahead(c, ids, n) == n) next = next_of(c, bits, &pace);
    if (next == ENG_GUIDE_MASK) set_ends(c->rules, bits, complete(ctx));
    go_back(c, start);
    return next;
}

static int propose(void *ctx, int32_t *ids, int n)
{
    struct grammar_choice *c = ctx;
    size_t most = (size_t)n;
    uint32_t n_values;
    if (c->closing) {
        size_t n_ids = gram_close(c->state, (size_t)c->left, NULL, ids, most, &n_values);
        return n_ids == SIZE_MAX ? 0 : n_ids < most ? (int)n_ids : n;
    }
    return (int)tools_guide_forced(c->guide, ids, most);
}

size_t grammar_guide_bytes(void)
{
    return (tools_guide_bytes() + 63) / 64 * 64;
}

struct eng_guide grammar_guide_begin(struct grammar_choice *c, void *memory,
                                     const struct gram *gram,
                                     const struct grammar_guide_tools *tools, int64_t tokens)
{
    static const struct grammar_guide_tools none = {.markers = NULL, .think_budget = -1};
    if (!tools) tools = &none;
    c->guide = tools_guide_init(memory, gram, tools->markers, tools->auto_free, tools->think_open,
                                tools->think_budget);
    c->state = tools_guide_state(c->guide);
    c->n_overflows = 0;
    c->n_words = gram_mask_words(gram);
    c->closing = false;
    c->left = tokens >= 0 && has_room(c, tokens) ? tokens : -1;
    return (struct eng_guide){.ctx = c,
                              .mask = mask,
                              .take = take,
                              .settle = c->left < 0 ? NULL : settle,
                              .complete = complete,
                              .foresee = foresee,
                              .propose = propose,
                              .peek = peek};
}
