/* SPDX-License-Identifier: MIT */
/* The two small products of adapters; see lora.h. */
#include "engine/lora.h"

#include <string.h>

#include "engine/job_types.h"

static void add_piece(struct lora_pieces *p, const struct eng_lora_use *use, int row, int n_rows,
                      int tallest)
{
    struct lora_piece *last = p->n > 0 ? &p->list[p->n - 1] : NULL;
    if (last && last->lora == use->lora && last->scale == use->scale &&
        last->row + last->n_rows == row && last->n_rows + n_rows <= tallest) {
        last->n_rows += n_rows;
    } else {
        p->list[p->n++] = (struct lora_piece){use->lora, use->scale, row, n_rows, p->n_u};
    }
    p->n_u += n_rows;
}

void lora_add(struct lora_pieces *p, const struct eng_lora_use *uses, int n_uses, int row,
              int n_rows, int tallest)
{
    for (int at = 0; at < n_rows; at += tallest)
        for (int i = 0; i < n_uses; i++)
            if (uses[i].scale != 0)
                add_piece(p, &uses[i], row + at, n_rows - at < tallest ? n_rows - at : tallest,
                          tallest);
}

void lora_shrink(const struct kern *kern, const struct lora_piece *piece, int site,
                 const struct gemm_source *src, float *tile, float *u, size_t ld)
{
    const struct eng_lora *lora = piece->lora;
    const struct eng_lora_pair *p = &lora->pairs[site];
    const float *factors = (const void *)(lora->arena + p->factors);
    const float *x = src->x + (size_t)piece->row * src->ld;
    size_t n_in = (size_t)p->n_in, ld_x = src->ld;
    if (p->n_u == 0) return;
    for (int i = 0; (src->norm || src->map) && i < piece->n_rows; i++) {
        size_t row = (size_t)(src->map ? src->map[piece->row + i] : piece->row + i);
        float *to = tile + (size_t)i * n_in;
        if (src->norm)
            kern->rmsnorm(src->x + row * src->ld, src->norm, to, p->n_in, src->eps);
        else
            memcpy(to, src->x + row * src->ld, n_in * sizeof(*to));
        x = tile;
        ld_x = n_in;
    }
    struct kern_out out = {u + (size_t)piece->u_row * ld, ld, false};
    kern->narrow(x, ld_x, piece->n_rows, p->n_in, lora->fmt, lora->arena + p->a,
                 p->n_u / KERN_NARROW, &out);
    for (int i = 0; i < piece->n_rows; i++)
        for (int k = 0; k < p->n_u; k++)
            out.c[(size_t)i * ld + (size_t)k] *= piece->scale * factors[k];
}

/* Rows of u times the pieces of B of n panels. */
static void add_panels(const struct kern *kern, const struct eng_lora *lora,
                       const struct eng_lora_panel *p, int n, const float *u, size_t ld, int n_rows,
                       struct kern_out out)
{
    for (int i = 0, run; i < n; i += run, out.c += (size_t)run * KERN_PANEL) {
        const struct eng_lora_panel *first = &p[i];
        for (run = 1; i + run < n && first[run].first == first->first && first[run].n == first->n;)
            run++;
        if (first->n)
            kern->narrow(u + first->first, ld, n_rows, first->n, lora->fmt, lora->arena + first->b,
                         run * KERN_PANEL / KERN_NARROW, &out);
    }
}

/* The first piece that ends after a row. */
static int first_piece(const struct lora_pieces *p, int row)
{
    int low = 0, high = p->n;
    while (low < high) {
        int i = (low + high) / 2;
        if (p->list[i].row + p->list[i].n_rows <= row)
            low = i + 1;
        else
            high = i;
    }
    return low;
}

void lora_expand(const struct kern *kern, const struct lora_pieces *p, int site, const float *u,
                 size_t ld, int panel, int n, int row, int n_rows, const struct kern_out *out)
{
    for (int i = first_piece(p, row); i < p->n && p->list[i].row < row + n_rows; i++) {
        const struct lora_piece *piece = &p->list[i];
        const struct eng_lora_pair *pair = &piece->lora->pairs[site];
        int first = piece->row > row ? piece->row : row, end = piece->row + piece->n_rows;
        if (end > row + n_rows) end = row + n_rows;
        if (pair->n_u == 0) continue;
        struct kern_out at = {out->c + (size_t)(first - row) * out->ld, out->ld, true};
        add_panels(kern, piece->lora, pair->panels + panel, n,
                   u + (size_t)(piece->u_row + first - piece->row) * ld, ld, end - first, at);
    }
}
