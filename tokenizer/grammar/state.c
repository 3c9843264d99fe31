/* SPDX-License-Identifier: MIT */
/*
 * Taking tokens, marks, captures.
 *
 * A token is taken byte by byte from the current set into two others in turn; only when all of its
 * bytes are taken does the result become current. A mark is the number of bytes taken since the
 * oldest mark that is kept; going back restores the state at that one and takes the bytes again, so
 * a rollback cannot differ from not having gone on.
 */
#include "tokenizer/grammar/state.h"

#include <assert.h>
#include <string.h>

#include "tokenizer/grammar/grammar.h"
#include "tokenizer/grammar/vocab.h"

_Static_assert(sizeof(struct gram_state) <= 128 * 1024,
               "one per slot, see docs/internals/grammar.md");

size_t gram_state_bytes(void)
{
    return (sizeof(struct gram_state) + 63) & ~(size_t)63;
}

/* ---- cells --------------------------------------------------------------------------------- */

static uint32_t mark_set(struct gram_cells *cells, const struct gram_set *set)
{
    uint32_t n = 0;
    for (uint32_t i = 0; set && i < set->n; i++)
        n += gram_cells_mark(cells, set->c[i].stack) + gram_cells_mark(cells, set->c[i].events);
    return n;
}

static void renumber(const struct gram_cells *cells, struct gram_set *set)
{
    for (uint32_t i = 0; set && i < set->n; i++) {
        set->c[i].stack = cells->moved[set->c[i].stack];
        set->c[i].events = cells->moved[set->c[i].events];
    }
}

void gram_collect(struct gram_cells *cells, struct gram_set *set, struct gram_set *more)
{
    mark_set(cells, set);
    mark_set(cells, more);
    gram_cells_mark_all(cells);
    gram_cells_collect(cells);
    renumber(cells, set);
    renumber(cells, more);
}

void gram_settle(struct gram_cells *cells, struct gram_set *set)
{
    while (cells->top > GRAM_LIVE_CELLS && set->n > 1) {
        uint32_t n_live = mark_set(cells, set);
        n_live += gram_cells_mark_all(cells);
        gram_cells_unmark(cells);
        if (n_live <= GRAM_LIVE_CELLS) break;
        set->n--;
        set->stacks -= gram_stack_size(cells, set->c[set->n].stack);
        set->overflow = true;
    }
}

/* ---- stepping ------------------------------------------------------------------------------ */

void gram_step_set(struct gram_machine *m, const struct gram_set *from, struct gram_set *to,
                   uint8_t byte)
{
    gram_machine_open(m, to);
    for (uint32_t i = 0; i < from->n; i++)
        gram_step(m, &from->c[i], byte);
    gram_settle(m->cells, to);
}

void gram_begin_bytes(struct gram_state *s, struct gram_visits *visits, struct gram_set two[2])
{
    gram_machine_lend(&s->m, visits);
    gram_set_init(&two[0], s->pool, GRAM_MAX_CONFIGS);
    gram_set_init(&two[1], s->pool + GRAM_MAX_CONFIGS, GRAM_MAX_CONFIGS);
}

bool gram_make_room(struct gram_state *s, struct gram_set *from, struct gram_advance *a)
{
    if (s->cells.top <= GRAM_CELLS - GRAM_STEP_CELLS) return true;
    gram_collect(&s->cells, from, from == &s->set || a->lost ? NULL : &s->set);
    a->collected = true;
    return s->cells.top <= GRAM_CELLS - GRAM_STEP_CELLS;
}

/*
 * The current set is kept too, to come back to; only if both are huge it is given up, which shows
 * only if the bytes are refused after all (masks do not allow such).
 */
static void make_room(struct gram_state *s, struct gram_set *from, struct gram_advance *a)
{
    if (gram_make_room(s, from, a) || from == &s->set) return;
    gram_collect(&s->cells, from, NULL);
    a->lost = true;
}

/* All bytes, from the current set into another. NULL if some cannot be taken. */
static struct gram_set *step_bytes(struct gram_state *s, struct gram_advance *a, const char *bytes,
                                   size_t n)
{
    struct gram_set *from = &s->set, *to = &a->two[0];
    for (size_t i = 0; i < n; i++) {
        make_room(s, from, a);
        s->m.offset = (uint32_t)(s->offset + i + 1);
        gram_step_set(&s->m, from, to, (uint8_t)bytes[i]);
        a->overflow |= to->overflow;
        if (to->n == 0) return NULL;
        from = to;
        to = to == &a->two[0] ? &a->two[1] : &a->two[0];
    }
    return from;
}

/* ---- captures ------------------------------------------------------------------------------ */

enum { MAX_PENDING = 64 };

/* The events of a list, oldest first; only the newest MAX_PENDING of them. */
static uint32_t list_events(const struct gram_cells *c, uint32_t list, uint32_t out[MAX_PENDING])
{
    uint32_t n = 0;
    for (uint32_t e = list; e && n < MAX_PENDING; e = c->cell[e].e.next)
        n++;
    uint32_t i = n;
    for (uint32_t e = list; e && i > 0; e = c->cell[e].e.next)
        out[--i] = e;
    return n;
}

/* How many events all configurations have in common, from the oldest on; they go to out. */
static uint32_t agreed_events(const struct gram_state *s, uint32_t out[MAX_PENDING])
{
    uint32_t n = list_events(&s->cells, s->set.c[0].events, out), other[MAX_PENDING];
    const union gram_cell *cell = s->cells.cell;
    for (uint32_t i = 1; i < s->set.n && n > 0; i++) {
        uint32_t k = list_events(&s->cells, s->set.c[i].events, other), same = 0;
        while (same < n && same < k && cell[out[same]].e.what == cell[other[same]].e.what &&
               cell[out[same]].e.offset == cell[other[same]].e.offset)
            same++;
        n = same;
    }
    return n;
}

/* The list without its n oldest events. */
static uint32_t cut_events(struct gram_cells *c, uint32_t list, uint32_t n)
{
    uint32_t events[MAX_PENDING], total = list_events(c, list, events), out = 0;
    for (uint32_t i = n; i < total; i++) {
        const struct gram_event *e = &c->cell[events[i]].e;
        out = gram_event_add(c, e->what, e->offset, out);
    }
    return out;
}

static void report_events(struct gram_state *s, bool silent)
{
    uint32_t events[MAX_PENDING];
    if (!s->g->rules.has_captures) return;
    uint32_t n = agreed_events(s, events);
    for (uint32_t i = 0; i < n && s->capture && !silent; i++) {
        const struct gram_event *e = &s->cells.cell[events[i]].e;
        uint64_t offset = (s->offset & ~(uint64_t)UINT32_MAX) | e->offset;
        if (offset > s->offset) offset -= (uint64_t)UINT32_MAX + 1;
        s->capture(s->ctx, e->what / 2, e->what & 1, offset);
    }
    for (uint32_t i = 0; n > 0 && i < s->set.n; i++)
        s->set.c[i].events = cut_events(&s->cells, s->set.c[i].events, n);
}

/* ---- taking -------------------------------------------------------------------------------- */

static void forget_old_marks(struct gram_state *s, size_t n);

static bool advance(struct gram_state *s, const char *bytes, size_t n, bool silent)
{
    struct gram_advance a = {.overflow = false};
    struct gram_visits visits;
    uint32_t top = s->cells.top;
    gram_begin_bytes(s, &visits, a.two);
    const struct gram_set *result = step_bytes(s, &a, bytes, n);
    if (!result) {
        if (!a.collected) gram_cells_pop(&s->cells, top);
        if (a.lost) s->set.n = 0;
        return false;
    }
    if (result != &s->set) {
        memcpy(s->current, result->c, result->n * sizeof(result->c[0]));
        s->set.n = result->n;
        s->set.stacks = result->stacks;
    }
    s->offset += n;
    s->overflows += a.overflow && !silent;
    report_events(s, silent);
    return true;
}

bool gram_take_bytes(struct gram_state *s, const char *bytes, size_t n)
{
    if (s->n_marks) forget_old_marks(s, n);
    if (!advance(s, bytes, n, false)) return false;
    if (s->n_marks) {
        memcpy(s->log + s->log_len, bytes, n);
        s->log_len += (uint32_t)n;
    }
    return true;
}

bool gram_take(struct gram_state *s, int32_t id)
{
    size_t n;
    const char *text = gram_vocab_text(s->g->vocab, id, &n);
    return text && !gram_vocab_is_end(s->g->vocab, id) && gram_take_bytes(s, text, n);
}

bool gram_accepting(const struct gram_state *s)
{
    for (uint32_t i = 0; i < s->set.n; i++)
        if (s->set.c[i].kind == GRAM_AT_END) return true;
    return false;
}

uint64_t gram_overflows(const struct gram_state *s)
{
    return s->overflows;
}

/* ---- what must come ------------------------------------------------------------------------ */

/* More ASCII bytes than these that may come at a first look are not tried. */
enum { MAX_TRIES = 4 };

/* Bytes after so many steps are not looked for. */
enum { FORCED_WORK = 2000 };

/* The bytes that may come after a set, at a first look, which is close for ASCII; returns true if
 * one of them may be the only one. */
static bool look_at_bytes(const struct gram_state *s, const struct gram_set *set, uint64_t bytes[4])
{
    memset(bytes, 0, 4 * sizeof(*bytes));
    for (uint32_t i = 0; i < set->n; i++) {
        if (set->c[i].kind == GRAM_AT_END) return false;
        gram_config_bytes(&s->m, &set->c[i], bytes);
    }
    return __builtin_popcountll(bytes[0]) + __builtin_popcountll(bytes[1]) <= MAX_TRIES;
}

/* The only byte that can come after a set, and the set after it; -1 if there are more. */
static int only_byte(struct gram_state *s, const struct gram_set *from, struct gram_set *to)
{
    uint64_t bytes[4];
    uint32_t top = s->cells.top;
    int only = -1, last = -1;
    if (!look_at_bytes(s, from, bytes)) return -1;
    for (int byte = 0; byte < 256; byte++) {
        if (!(bytes[byte / 64] >> byte % 64 & 1)) continue;
        gram_cells_pop(&s->cells, top);
        gram_step_set(&s->m, from, to, (uint8_t)byte);
        last = byte;
        if (to->n == 0) continue;
        if (only >= 0) return -1;
        only = byte;
    }
    if (only < 0 || only == last) return only;
    gram_cells_pop(&s->cells, top);
    gram_step_set(&s->m, from, to, (uint8_t)only);
    return only;
}

static size_t forced_bytes(struct gram_state *s, char *buf, size_t size)
{
    struct gram_visits visits;
    struct gram_set two[2];
    const struct gram_set *from = &s->set;
    uint32_t top = s->cells.top;
    size_t n = 0;
    gram_begin_bytes(s, &visits, two);
    uint64_t limit = s->m.work + FORCED_WORK;
    for (; n < size && s->cells.top <= GRAM_CELLS - GRAM_STEP_CELLS && s->m.work < limit; n++) {
        s->m.offset = (uint32_t)(s->offset + n + 1);
        int byte = only_byte(s, from, &two[n % 2]);
        if (byte < 0) break;
        buf[n] = (char)byte;
        from = &two[n % 2];
    }
    gram_cells_pop(&s->cells, top);
    return n;
}

size_t gram_forced(struct gram_state *s, int32_t *ids, size_t n)
{
    char text[GRAM_FORCED_BYTES];
    size_t len = forced_bytes(s, text, sizeof(text)), n_ids = 0;
    for (size_t at = 0, token; at < len && n_ids < n; at += token) {
        int32_t id = gram_vocab_longest(s->g->vocab, text + at, len - at, &token);
        if (id < 0 || at + token == len) break;
        ids[n_ids++] = id;
    }
    return n_ids;
}

/* ---- marks --------------------------------------------------------------------------------- */

/* Keeps the present state as the base of marks. */
static void save_base(struct gram_state *s)
{
    struct gram_snapshot *b = &s->base;
    gram_collect(&s->cells, &s->set, NULL);
    assert(s->set.n <= GRAM_MAX_CONFIGS && s->cells.top <= GRAM_LIVE_CELLS + 1);
    b->n_cells = s->cells.top;
    memcpy(b->cells, s->cells.cell, b->n_cells * sizeof(b->cells[0]));
    memcpy(b->kinds, s->cells.kind, b->n_cells);
    memcpy(b->c, s->current, s->set.n * sizeof(b->c[0]));
    b->n = s->set.n;
    b->stacks = s->set.stacks;
    b->offset = s->offset;
    s->log_len = 0;
}

/* Goes back to the base, then on by n bytes of the log. */
static void replay(struct gram_state *s, uint32_t n)
{
    const struct gram_snapshot *b = &s->base;
    assert(n <= s->log_len);
    gram_cells_restore(&s->cells, b->cells, b->kinds, b->n_cells);
    memcpy(s->current, b->c, b->n * sizeof(b->c[0]));
    s->set.n = b->n;
    s->set.stacks = b->stacks;
    s->offset = b->offset;
    bool taken = advance(s, s->log, n, true);
    assert(taken);
    (void)taken;
}

static void drop_first_mark(struct gram_state *s)
{
    assert(s->n_marks > 0);
    s->n_marks--;
    memmove(s->marks, s->marks + 1, s->n_marks * sizeof(s->marks[0]));
}

/*
 * Before n bytes are taken: drops marks that will be too far back, and moves the base past them.
 */
static void forget_old_marks(struct gram_state *s, size_t n)
{
    uint32_t len = s->log_len;
    if (len + n <= GRAM_LOG_BYTES) return;
    while (s->n_marks && len + n - s->marks[0].at > GRAM_MARK_BYTES)
        drop_first_mark(s);
    if (!s->n_marks) return;
    uint32_t first = s->marks[0].at;
    replay(s, first);
    save_base(s);
    bool taken = advance(s, s->log + first, len - first, true);
    assert(taken);
    (void)taken;
    memmove(s->log, s->log + first, len - first);
    s->log_len = len - first;
    for (uint32_t i = 0; i < s->n_marks; i++)
        s->marks[i].at -= first;
}

uint64_t gram_mark(struct gram_state *s)
{
    if (s->n_marks == GRAM_MAX_MARKS) drop_first_mark(s);
    if (s->n_marks == 0) save_base(s);
    s->marks[s->n_marks++] = (struct gram_mark){++s->next_mark, s->log_len};
    return s->next_mark;
}

bool gram_rollback(struct gram_state *s, uint64_t mark)
{
    for (uint32_t i = 0; i < s->n_marks; i++) {
        if (s->marks[i].id != mark) continue;
        if (s->log_len - s->marks[i].at > GRAM_MARK_BYTES) return false;
        s->n_marks = i + 1;
        if (s->marks[i].at == s->log_len) return true; /* nothing has been taken since */
        replay(s, s->marks[i].at);
        s->log_len = s->marks[i].at;
        return true;
    }
    return false;
}

void gram_forget_marks(struct gram_state *s)
{
    s->n_marks = 0;
}

/* ---- beginning ----------------------------------------------------------------------------- */

struct gram_state *gram_state_init(void *memory, const struct gram *g, gram_capture_fn capture,
                                   void *ctx)
{
    struct gram_state *s = memory;
    struct gram_visits visits;
    s->g = g;
    s->capture = capture;
    s->ctx = ctx;
    s->offset = s->overflows = s->next_mark = 0;
    s->n_marks = s->log_len = 0;
    gram_cells_init(&s->cells);
    gram_set_init(&s->set, s->current, GRAM_MAX_CONFIGS);
    gram_machine_init(&s->m, g, &s->cells);
    gram_machine_lend(&s->m, &visits);
    gram_machine_open(&s->m, &s->set);
    gram_enter(&s->m, g->rules.root, 0, 0);
    gram_settle(&s->cells, &s->set);
    report_events(s, false);
    return s;
}
