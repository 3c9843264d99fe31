/* SPDX-License-Identifier: MIT */
/*
 * The guide of one answer; see tools.h.
 *
 * Where any text may come and the markers are tokens, no mask is needed: only a marker leads out of
 * such a place, and the grammar's state there is the same whatever text came before. So the grammar
 * is shown the markers alone, and tokens that it could not read do no harm.
 */
#include <assert.h>
#include <string.h>

#include "tokenizer/tools/tools.h"

struct place {
    uint64_t mark; /* of the grammar */
    bool started, asked;
};

struct tools_guide {
    struct gram_state *state;
    struct tools_markers markers;
    bool free;    /* text needs no masks */
    bool started; /* reasoning can no longer begin */
    bool asked;   /* since the last call: more text may come */
    struct place places[GRAM_MAX_MARKS];
    uint32_t next_place;
};

/* The state of the grammar lies behind the guide. */
static size_t guide_size(void)
{
    return (sizeof(struct tools_guide) + 63) / 64 * 64;
}

size_t tools_guide_bytes(void)
{
    return guide_size() + gram_state_bytes();
}

struct tools_guide *tools_guide_init(void *memory, const struct gram *gram,
                                     const struct tools_markers *markers, bool auto_free,
                                     bool think_open)
{
    struct tools_guide *g = memory;
    memset(g, 0, sizeof(*g));
    g->state = gram_state_init((char *)memory + guide_size(), gram, NULL, NULL);
    g->markers = *markers;
    bool opens = think_open || markers->id[TOOLS_MARK_THINK_OPEN] >= 0;
    bool closes = markers->id[TOOLS_MARK_THINK_CLOSE] >= 0;
    g->free = auto_free && markers->id[TOOLS_MARK_OPEN] >= 0 && (closes || !opens);
    g->started = think_open;
    g->asked = true;
    return g;
}

/* Returns true where any text may come. */
static bool is_free(const struct tools_guide *g)
{
    return g->free && gram_accepting(g->state);
}

enum tools_next tools_guide_mask(struct tools_guide *g, uint64_t *bits, struct gram_pace *pace)
{
    bool free = is_free(g);
    if (free && g->asked) return TOOLS_NEXT_FREE;
    enum gram_next next = gram_mask_paced(g->state, bits, pace);
    if (next == GRAM_NEXT_LATER) return TOOLS_NEXT_LATER;
    if (next == GRAM_NEXT_END) return TOOLS_NEXT_END;
    if (next == GRAM_NEXT_FAIL) return TOOLS_NEXT_FAIL;
    if (!free) return TOOLS_NEXT_MASK;
    g->asked = true;
    return TOOLS_NEXT_FREE;
}

bool tools_guide_take(struct tools_guide *g, int32_t id)
{
    const int32_t *ids = g->markers.id;
    bool opens = id == ids[TOOLS_MARK_THINK_OPEN] && !g->started;
    bool shown = opens || id == ids[TOOLS_MARK_OPEN] || id == ids[TOOLS_MARK_THINK_CLOSE];
    if (!is_free(g)) return gram_take(g->state, id);
    if (shown && gram_take(g->state, id)) g->asked = id != ids[TOOLS_MARK_OPEN];
    g->started = true;
    return true;
}

bool tools_guide_complete(const struct tools_guide *g)
{
    return gram_accepting(g->state);
}

size_t tools_guide_forced(struct tools_guide *g, int32_t *ids, size_t n)
{
    return is_free(g) ? 0 : gram_forced(g->state, ids, n);
}

uint64_t tools_guide_mark(struct tools_guide *g)
{
    uint64_t mark = gram_mark(g->state);
    g->places[g->next_place++ % GRAM_MAX_MARKS] = (struct place){mark, g->started, g->asked};
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
        return;
    }
}

void tools_guide_forget_marks(struct tools_guide *g)
{
    gram_forget_marks(g->state);
}

uint64_t tools_guide_overflows(const struct tools_guide *g)
{
    return gram_overflows(g->state);
}
