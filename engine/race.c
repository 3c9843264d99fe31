/* SPDX-License-Identifier: MIT */
/* The draw as a race; see race.h. */
#include "engine/race.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "engine/scratch.h"

enum { BLOCK = KERN_RACE_BLOCK };

/* Exponentials are not strictly monotonic: a key may exceed its block's bound by this factor. */
static const float BOUND_SLACK = 1.0f + 0x1p-20f;

/* The best so far. Keys are positive. */
struct winner {
    float best, second;
    int32_t id;
};

static size_t n_blocks(int32_t vocab)
{
    return ((size_t)vocab + BLOCK - 1) / BLOCK;
}

void race_init(struct race *r, struct scratch *m, int32_t vocab, const struct kern *kern)
{
    size_t n = n_blocks(vocab);
    *r = (struct race){.kern = kern,
                       .vocab = vocab,
                       .least = scratch_take(m, n, sizeof(float)),
                       .top = scratch_take(m, n, sizeof(float)),
                       .bound = scratch_take(m, n, sizeof(float)),
                       .place = scratch_take(m, n, sizeof(uint8_t))};
}

struct kern_race race_numbers(uint64_t seed, uint32_t choice, uint64_t index)
{
    return (struct kern_race){.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                              .index = {(uint32_t)index, (uint32_t)(index >> 32)},
                              .choice = choice};
}

static void enter(struct winner *w, float key, int32_t id)
{
    if (key > w->best || (key == w->best && id < w->id)) {
        w->second = w->best;
        w->best = key;
        w->id = id;
    } else if (key > w->second) {
        w->second = key;
    }
}

/* A key below it changes nothing. The second matters to the margin only. */
static float threshold(const struct winner *w, bool margin)
{
    return margin ? w->second : w->best;
}

/* Two keys, or one, that are likely to be high: those of the first ids of promising blocks. */
static float likely_threshold(const struct race *r, const struct race_field *f,
                              const struct rank_cut *cut, bool margin)
{
    struct winner w = {0};
    for (size_t b = 0; b < n_blocks(r->vocab); b++) {
        if (r->bound[b] <= threshold(&w, margin)) continue;
        int32_t id = (int32_t)b * BLOCK + r->place[b];
        float key;
        if (id >= r->vocab || !rank_is_left(cut, f->x[id], id)) continue;
        r->kern->race_keys(&f->x[id], &r->least[b], 1, f->top, f->scale, &key);
        enter(&w, key, id);
    }
    return threshold(&w, margin);
}

static void open_block(const struct race *r, const struct race_field *f, const struct rank_cut *cut,
                       int b, struct winner *w)
{
    float noise[BLOCK], keys[BLOCK];
    int32_t first = b * BLOCK;
    int n = r->vocab - first < BLOCK ? (int)(r->vocab - first) : BLOCK;
    r->kern->race_block(&f->numbers, b, r->least[b], r->place[b], noise);
    r->kern->race_keys(f->x + first, noise, n, f->top, f->scale, keys);
    for (int i = 0; i < n; i++)
        if (rank_is_left(cut, f->x[first + i], first + i)) enter(w, keys[i], first + i);
}

static int32_t finish(const struct winner *w, float *ret_margin)
{
    assert(w->best > 0.0f);
    if (ret_margin) *ret_margin = w->second > 0.0f ? logf(w->best / w->second) : INFINITY;
    return w->id;
}

int32_t race_draw(struct race *r, const struct race_field *f, const struct rank_cut *cut,
                  float *ret_margin)
{
    int n = (int)n_blocks(r->vocab);
    struct winner w = {0};
    r->kern->race_noise(&f->numbers, 0, n, r->least, r->place);
    r->kern->block_max(f->x, r->vocab, r->top);
    r->kern->race_keys(r->top, r->least, n, f->top, f->scale, r->bound);
    float least = likely_threshold(r, f, cut, ret_margin);
    for (int b = 0; b < n; b++) {
        float bound = r->bound[b] * BOUND_SLACK;
        if (bound < least || bound < threshold(&w, ret_margin)) continue;
        if (!cut || r->top[b] >= cut->value) open_block(r, f, cut, b, &w);
    }
    return finish(&w, ret_margin);
}

int32_t race_draw_listed(struct race *r, const struct race_field *f, const int32_t *ids, int n,
                         float *ret_margin)
{
    struct winner w = {0};
    for (int i = 0; i < n; i++) {
        float least, key, noise[BLOCK];
        uint8_t place;
        int block = ids[i] / BLOCK;
        const float *x = &f->x[ids[i]];
        r->kern->race_noise(&f->numbers, block, 1, &least, &place);
        r->kern->race_keys(x, &least, 1, f->top, f->scale, &key);
        if (key < threshold(&w, ret_margin)) continue;
        r->kern->race_block(&f->numbers, block, least, place, noise);
        r->kern->race_keys(x, &noise[ids[i] % BLOCK], 1, f->top, f->scale, &key);
        enter(&w, key, ids[i]);
    }
    return finish(&w, ret_margin);
}
