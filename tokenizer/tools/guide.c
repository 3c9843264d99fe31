/* SPDX-License-Identifier: MIT */
/*
 * The guide of one answer; see tools.h.
 *
 * Where any text may come and the markers are tokens, no mask is needed: only a marker leads out of
 * such a place, and the grammar's state there is the same whatever text came before. So the grammar
 * is shown the markers alone, and tokens that it could not read do no harm.
 *
 * A reasoning block that has used up its tokens gets its closing marker as soon as the grammar lets
 * that come, which is after the character in hand.
 */
#include <assert.h>
#include <string.h>

#include "tokenizer/tools/tools.h"

/* A reasoning block. */
struct thought {
    bool in;
    int64_t n_tokens;
    int n_closing; /* of the closing marker's ids, those that were demanded in a row */
};

struct place {
    uint64_t mark; /* of the grammar */
    bool started, asked;
    struct thought thought;
};

struct tools_guide {
    struct gram_state *state;
    struct tools_markers markers;
    bool free;    /* text needs no masks */
    bool started; /* reasoning can no longer begin */
    bool asked;   /* since the last call: more text may come */
    struct thought thought;
    int64_t think_budget; /* tokens, or negative */
    size_t n_words;       /* of a mask */
    struct place places[GRAM_MAX_MARKS];
    uint32_t next_place;
};

/* The state of the grammar lies after the guide. */
static size_t guide_size(void)
{
    return (sizeof(struct tools_guide) + 63) / 64 * 64;
}

size_t tools_guide_bytes(void)
{
    return guide_size() + gram_state_bytes();
}

static void on_capture(void *ctx, uint32_t number, bool begin, uint64_t offset)
{
    struct tools_guide *g = ctx;
    if (number == TOOLS_CAPTURE_THOUGHT) g->thought.in = begin;
}

struct tools_guide *tools_guide_init(void *memory, const struct gram *gram,
                                     const struct tools_markers *markers, bool auto_free,
                                     bool think_open, int64_t think_budget)
{
    struct tools_guide *g = memory;
    memset(g, 0, sizeof(*g));
    g->state = gram_state_init((char *)memory + guide_size(), gram, on_capture, g);
    g->thought.in = think_open;
    g->think_budget = think_budget;
    g->n_words = gram_mask_words(gram);
    if (markers)
        g->markers = *markers;
    else
        memset(&g->markers, 0xFF, sizeof(g->markers));
    const int32_t *ids = g->markers.id;
    bool opens = think_open || ids[TOOLS_MARK_THINK_OPEN] >= 0;
    bool closes = ids[TOOLS_MARK_THINK_CLOSE] >= 0;
    g->free = auto_free && ids[TOOLS_MARK_OPEN] >= 0 && (closes || !opens);
    g->started = think_open;
    g->asked = true;
    return g;
}

struct gram_state *tools_guide_state(struct tools_guide *g)
{
    return g->state;
}

/* Returns true where any text may come. */
static bool is_free(const struct tools_guide *g)
{
    return g->free && gram_accepting(g->state);
}

/* The id that a reasoning block without tokens left needs next; -1: none. */
static int32_t closing_id(const struct tools_guide *g)
{
    const struct thought *t = &g->thought;
    bool used_up = t->in && g->think_budget >= 0 && t->n_tokens >= g->think_budget;
    return used_up && t->n_closing < g->markers.n_think_close_ids
               ? g->markers.think_close_ids[t->n_closing]
               : -1;
}

enum tools_next tools_guide_mask(struct tools_guide *g, uint64_t *bits, struct gram_pace *pace)
{
    bool free = is_free(g);
    int32_t closing = closing_id(g);
    if (free && g->asked && closing < 0) return TOOLS_NEXT_FREE;
    enum gram_next next = gram_mask_paced(g->state, bits, pace);
    if (next == GRAM_NEXT_LATER) return TOOLS_NEXT_LATER;
    if (next == GRAM_NEXT_END) return TOOLS_NEXT_END;
    if (next == GRAM_NEXT_FAIL) return TOOLS_NEXT_FAIL;
    uint64_t bit = closing < 0 ? 0 : bits[closing / 64] & (uint64_t)1 << closing % 64;
    if (bit) {
        memset(bits, 0, g->n_words * sizeof(*bits));
        bits[closing / 64] = bit;
        return TOOLS_NEXT_MASK;
    }
    if (!free) return TOOLS_NEXT_MASK;
    g->asked = true;
    return TOOLS_NEXT_FREE;
}

static void count_thought(struct thought *t, int32_t id, int32_t closing)
{
    if (!t->in) return;
    t->n_tokens++;
    t->n_closing = id == closing ? t->n_closing + 1 : 0;
}

bool tools_guide_take(struct tools_guide *g, int32_t id)
{
    struct thought before = g->thought;
    count_thought(&g->thought, id, closing_id(g));
    const int32_t *ids = g->markers.id;
    bool opens = id == ids[TOOLS_MARK_THINK_OPEN] && !g->started;
    bool shown = opens || id == ids[TOOLS_MARK_OPEN] || id == ids[TOOLS_MARK_THINK_CLOSE];
    if (!is_free(g)) {
        bool taken = gram_take(g->state, id);
        if (!taken) g->thought = before;
        return taken;
    }
    if (shown && gram_take(g->state, id)) g->asked = id != ids[TOOLS_MARK_OPEN];
    g->started = true;
    return true;
}

bool tools_guide_complete(const struct tools_guide *g)
{
    return gram_accepting(g->state) && closing_id(g) < 0;
}

size_t tools_guide_forced(struct tools_guide *g, int32_t *ids, size_t n)
{
    return is_free(g) ? 0 : gram_forced(g->state, ids, n);
}

uint64_t tools_guide_mark(struct tools_guide *g)
{
    uint64_t mark = gram_mark(g->state);
    g->places[g->next_place++ % GRAM_MAX_MARKS] =
        (struct place){mark, g->started, g->asked, g->thought};
    return mark;
}

void tools_guide_rollback(struct tools_guide *g, uint64_t mark)
{
    bool known = gram_rollback(g->state, mark);
    assert(known);
    (void)known;
    for (uint32_t i = 0; i < GRAM_MAX_MARKS; i++) {
        const struct place *place = &g->places[(g->next_place - 1 - i) % GRAM_MAX_MARKS];
        if (place->mark != mark) continue;
        g->started = place->started;
        g->asked = place->asked;
        g->thought = place->thought;
        return;
    }
}
