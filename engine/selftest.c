/* SPDX-License-Identifier: MIT */
/* The self-test at start; see selftest.h. */
#include "engine/selftest.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/fail.h"
#include "engine/eng_error.h"
#include "engine/forward.h"
#include "engine/kernels/blocks.h"
#include "engine/kernels/kernels.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/model/numerics.h"
#include "engine/state.h"

enum { ROWS = 3, K = 256, SCRATCH_BYTES = 128 << 10, MAX_BLOCKS = K / 32 * 34 };

/* Both levels see the same packed bits, so only rounding can differ. */
static const float TOLERANCE = 1e-4f;

/* Small numbers of both signs, the same every time. */
static float number(uint32_t i)
{
    return (float)(int)((i * 2654435761u >> 16) % 257) / 128.0f - 1.0f;
}

/* A panel of a form that holds blocks, whose scales are all below 2. */
static void pack_blocks(enum kern_wfmt fmt, void *panel)
{
    uint8_t blocks[KERN_PANEL][MAX_BLOCKS];
    const void *rows[KERN_PANEL];
    enum kern_src src = KERN_SRC_Q4_0;
    while (kern_blocks_form(src) != fmt)
        src++;
    for (int n = 0; n < KERN_PANEL; n++) {
        for (int i = 0; i < MAX_BLOCKS; i++)
            blocks[n][i] = (uint32_t)(n * MAX_BLOCKS + i) * 2654435761u >> 16 & 0x3f;
        rows[n] = blocks[n];
    }
    kern_pack_blocks(src, rows, K, K, panel);
}

/* ROWS x K times one panel, all packed by the kernels under test; memory: SCRATCH_BYTES. */
static void multiply(const struct kern *kern, enum kern_afmt act, enum kern_wfmt fmt,
                     uint8_t *memory, float *out)
{
    float x[ROWS][K], w[KERN_PANEL][K];
    const void *rows[KERN_PANEL];
    for (int n = 0; n < KERN_PANEL; n++) {
        for (int k = 0; k < K; k++)
            w[n][k] = number((uint32_t)(n * K + k));
        rows[n] = w[n];
    }
    size_t panel_bytes = kern_panel_bytes(fmt, K);
    assert(panel_bytes + sizeof(x) <= SCRATCH_BYTES / 2);
    uint8_t *words = memory + SCRATCH_BYTES / 2; /* a BF16 panel that is compressed next */
    if (fmt >= KERN_W_I4)
        pack_blocks(fmt, memory);
    else /* these numbers fit B12 */
        kern_pack_panel(kern, fmt, KERN_SRC_F32, rows, NULL, K, K, words, memory);
    float scale[ROWS * K / KERN_GROUP];
    int32_t corr[ROWS * K / KERN_GROUP];
    struct kern_tile tile = {memory + panel_bytes, scale, corr, ROWS};
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < K; k++)
            x[i][k] = number((uint32_t)(100000 + i * K + k));
        kern->pack_row[act](x[i], K, K, fmt, &tile, i);
    }
    struct kern_out to = {out, KERN_PANEL, false};
    kern->matmul[act][fmt](&tile, K, memory, panel_bytes, 1, &to, NULL);
}

static int compare_kernels(const struct eng_model *model, const struct eng_mat *m, uint8_t *memory,
                           char *err, size_t errlen)
{
    float got[ROWS * KERN_PANEL], want[ROWS * KERN_PANEL];
    enum kern_afmt act = model->numerics->act;
    if (!model->kern->matmul[act][m->fmt]) return 0;
    multiply(model->kern, act, m->fmt, memory, got);
    multiply(kern_select("c"), act, m->fmt, memory, want);
    for (int i = 0; i < ROWS * KERN_PANEL; i++) {
        if (fabsf(got[i] - want[i]) <= TOLERANCE * (1.0f + fabsf(want[i]))) continue;
        return fail_with(ENG_EFAILED, err, errlen,
                         "self-test: the %s kernels give %g, the plain C kernels %g",
                         model->kern->name, (double)got[i], (double)want[i]);
    }
    return 0;
}

/* One token through the whole model. */
static int check_token(const struct eng_model *model, struct fwd *fwd, struct kv_pages *pages,
                       char *err, size_t errlen)
{
    int32_t token = model->hp.eos.n > 0 ? model->hp.eos.ids[0] : 0;
    int32_t page = kv_page_get(pages);
    assert(page >= 0); /* nothing else runs yet */
    uint8_t *data = kv_page_data(pages, page);
    struct state_layout states;
    state_layout_init(&states, &model->hp, model->kern);
    float *pool = calloc((size_t)model->hp.d_model + states.n_floats, sizeof(*pool));
    struct fwd_segment seg = {.tokens = &token,
                              .n_tokens = 1,
                              .pages = &data,
                              .state = pool ? pool + model->hp.d_model : NULL,
                              .want = model->has_head ? FWD_WANT_LAST : FWD_WANT_NONE,
                              .pool = pool,
                              .ends = true};
    struct fwd_step step = {&seg, 1, NULL};
    bool finite = true;
    if (pool) fwd_run(fwd, &step);
    if (pool && model->has_head) fwd_argmax(fwd, 0, &finite);
    for (int i = 0; pool && i < model->heads.width; i++)
        finite = finite && isfinite(fwd_pooled(fwd, 0)[i]);
    kv_page_unref(pages, page);
    free(pool);
    if (!pool) return fail_with(ENG_ENOMEM, err, errlen, "no memory for the self-test");
    if (finite) return 0;
    return fail_with(ENG_EFAILED, err, errlen,
                     "self-test: the model's numbers after token %d are not finite", (int)token);
}

int selftest_run(const struct eng_model *model, struct fwd *fwd, struct kv_pages *pages, char *err,
                 size_t errlen)
{
    AUTO_FREE uint8_t *memory = aligned_alloc(64, SCRATCH_BYTES);
    if (!memory) return fail_with(ENG_ENOMEM, err, errlen, "no memory for the self-test");
    /* neither the first nor the last layer, if there are others: those have the head's format */
    const struct eng_layer *middle = &model->layers[model->hp.n_layers / 2];
    const struct eng_mat *down = middle->down.n_panels > 0 ? &middle->down : &middle->experts.down;
    int rc = compare_kernels(model, down, memory, err, errlen);
    if (!rc && model->has_head) rc = compare_kernels(model, &model->head, memory, err, errlen);
    return rc ? rc : check_token(model, fwd, pages, err, errlen);
}
