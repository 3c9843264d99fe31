/* SPDX-License-Identifier: MIT */
/* See calibrate.h. */
#include "engine/calibrate.h"

#include <stdlib.h>

#include "base/auto.h"
#include "base/fail.h"
#include "engine/attention.h"
#include "engine/eng_error.h"
#include "engine/forward.h"
#include "engine/kv/kv.h"
#include "engine/state.h"

enum { MAX_PAGES = ENG_CALIBRATE_TOKENS / KV_PAGE_TOKENS };

/* The text as a step; `pool` keeps the rows of the last layer without logits. */
static void run(const struct eng_model *m, struct fwd *fwd, struct kv_pages *pages,
                const int32_t *ids, int n, float *pool)
{
    uint8_t *data[MAX_PAGES];
    for (int i = 0; i < MAX_PAGES; i++)
        data[i] = kv_page_data(pages, kv_page_get(pages));
    struct fwd_segment seg = {.tokens = ids,
                              .n_tokens = n,
                              .pages = data,
                              .state = pool + m->hp.d_model,
                              .n_first = n,
                              .pool = pool,
                              .ends = true};
    struct fwd_step step = {&seg, 1, m->stop};
    fwd_run(fwd, &step);
}

int calibrate_run(void *ctx, const struct eng_model *m, struct pool *pool, char *err, size_t errlen)
{
    const struct calibrate_text *text = ctx;
    int32_t ids[ENG_CALIBRATE_TOKENS];
    int n = 0, rc = 0;
    for (int i = 0; i < text->n && n < m->hp.ctx_max; i++)
        if (text->ids[i] < m->hp.vocab) ids[n++] = text->ids[i];
    if (n == 0) return 0;
    struct kv_layout layout;
    struct state_layout states;
    struct kv_pages *pages = NULL;
    struct fwd *fwd = NULL;
    attn_layout(&layout, &m->hp, KERN_KV_BF16);
    state_layout_init(&states, &m->hp, m->kern);
    struct fwd_params params = {.model = m,
                                .layout = &layout,
                                .pool = pool,
                                .max_rows = n,
                                .max_segs = 1,
                                .max_logit_rows = 1,
                                .ctx = n};
    AUTO_FREE float *rows = calloc((size_t)m->hp.d_model + states.n_floats, sizeof(*rows));
    if (!rows) rc = fail_with(ENG_ENOMEM, err, errlen, "no memory to calibrate the model");
    if (!rc) rc = kv_pages_create(&pages, &layout, MAX_PAGES, err, errlen);
    if (!rc) rc = fwd_create(&fwd, &params, err, errlen);
    if (!rc) run(m, fwd, pages, ids, n, rows);
    fwd_destroy(fwd);
    kv_pages_destroy(pages);
    return rc;
}
