/* SPDX-License-Identifier: MIT */
/* The two small products of adapters; see lora.h. */
#include "engine/lora.h"

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
    for (int i = 0; i < n_uses; i++)
        for (int at = 0; uses[i].scale != 0 && at < n_rows; at += tallest)
            add_piece(p, &uses[i], row + at, n_rows - at < tallest ? n_rows - at : tallest,
                      tallest);
}

void lora_shrink(const struct kern *kern, const struct lora_piece *piece, int site,
                 const struct gemm_source *src, float *tmp, float *tile, float *u, size_t ld)
{
    const struct eng_lora_pair *pair = &piece->lora->pairs[site];
    const struct eng_mat *a = &pair->a;
    struct kern_tile t = {.data = tile, .n_rows = piece->n_rows};
    if (a->n_out == 0) return;
    for (int i = 0; i < piece->n_rows; i++) {
        size_t row = (size_t)(src->map ? src->map[piece->row + i] : piece->row + i);
        const float *x = src->x + row * src->ld;
        if (src->norm) {
            kern->rmsnorm(x, src->norm, tmp, a->n_in, src->eps);
            x = tmp;
        }
        kern->pack_row[KERN_A_F32](x, a->n_in, a->k_pad, a->fmt, &t, i);
    }
    struct kern_out out = {u + (size_t)piece->u_row * ld, ld, false};
    kern->matmul[KERN_A_F32][a->fmt](&t, a->k_pad, a->panels, a->panel_bytes, a->n_panels, &out,
                                     NULL);
    for (int i = 0; i < piece->n_rows; i++)
        for (int k = 0; k < a->n_out; k++)
            out.c[(size_t)i * ld + (size_t)k] *= piece->scale * pair->factors[k];
}

void lora_expand(const struct kern *kern, const struct lora_pieces *p, int site, const float *u,
                 size_t ld, int panel, int n, int row, int n_rows, const struct kern_out *out,
                 float *tile)
{
    for (int i = 0; i < p->n; i++) {
        const struct lora_piece *piece = &p->list[i];
        const struct eng_mat *b = &piece->lora->pairs[site].b;
        int first = piece->row > row ? piece->row : row, end = piece->row + piece->n_rows;
        if (end > row + n_rows) end = row + n_rows;
        if (first >= end || b->n_out == 0) continue;
        struct kern_tile t = {.data = tile, .n_rows = end - first};
        for (int k = 0; k < t.n_rows; k++)
            kern->pack_row[KERN_A_F32](u + (size_t)(piece->u_row + first - piece->row + k) * ld,
                                       b->n_in, b->k_pad, b->fmt, &t, k);
        struct kern_out at = {out->c + (size_t)(first - row) * out->ld, out->ld, true};
        kern->matmul[KERN_A_F32][b->fmt](&t, b->k_pad, b->panels + (size_t)panel * b->panel_bytes,
                                         b->panel_bytes, n, &at, NULL);
    }
}
