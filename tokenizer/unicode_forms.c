/* SPDX-License-Identifier: MIT */
/*
 * Normalization forms. Whether two characters compose is asked of utf8proc by composing the pair.
 */
#include "tokenizer/unicode_forms.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/array.h"
#include "base/auto.h"
#include "tokenizer/tok_types.h"
#include "tokenizer/unicode.h"

#define MAX_DECOMPOSED 32 /* the longest compatible decomposition has 18 */
#define SHORT_RUN 16

void tok_norm_chars_destroy(struct tok_norm_chars *c)
{
    if (!c) return;
    free(c->v);
    free(c);
}

static int append(struct tok_norm_chars *c, uint32_t cp, uint32_t origin)
{
    if (ARRAY_ROOM(c->v, c->cap, c->n + 1, 256)) return TOK_ENOMEM;
    uint8_t ccc = 0;
    if (cp >= 0x300 && !tok_uni_is_inert(cp))
        ccc = (uint8_t)utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
    c->v[c->n++] = (struct tok_norm_char){cp, origin, ccc};
    return 0;
}

int tok_uniform_decompose(struct tok_norm_chars *c, uint32_t cp, uint32_t origin, bool compat)
{
    utf8proc_int32_t out[MAX_DECOMPOSED];
    int options = UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0), boundary = 0;
    int rc = 0;
    if (cp < 0x80 || tok_uni_is_inert(cp)) return append(c, cp, origin);
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, out, MAX_DECOMPOSED,
                                                 (utf8proc_option_t)options, &boundary);
    if (n <= 0 || n > MAX_DECOMPOSED) return append(c, cp, origin);
    for (utf8proc_ssize_t i = 0; i < n && !rc; i++)
        rc = append(c, (uint32_t)out[i], origin);
    return rc;
}

/* Stable, for the short runs of real text. */
static void order_short(struct tok_norm_char *v, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct tok_norm_char moved = v[i];
        size_t k = i;
        for (; k > 0 && v[k - 1].ccc > moved.ccc; k--)
            v[k] = v[k - 1];
        v[k] = moved;
    }
}

/* Stable counting sort, for runs that no one writes but some one sends. */
static int order_long(struct tok_norm_char *v, size_t n)
{
    size_t start[257] = {0};
    AUTO_FREE struct tok_norm_char *sorted = malloc(n * sizeof(*sorted));
    if (!sorted) return TOK_ENOMEM;
    for (size_t i = 0; i < n; i++)
        start[v[i].ccc + 1]++;
    for (size_t i = 1; i < 257; i++)
        start[i] += start[i - 1];
    for (size_t i = 0; i < n; i++)
        sorted[start[v[i].ccc]++] = v[i];
    memcpy(v, sorted, n * sizeof(*sorted));
    return 0;
}

int tok_uniform_order(struct tok_norm_chars *c)
{
    int rc = 0;
    for (size_t i = 0; i < c->n && !rc;) {
        size_t begin = i;
        while (i < c->n && c->v[i].ccc)
            i++;
        if (i - begin > SHORT_RUN)
            rc = order_long(c->v + begin, i - begin);
        else
            order_short(c->v + begin, i - begin);
        if (i == begin) i++;
    }
    return rc;
}

/* The composition of two characters, or 0. */
static uint32_t composed(uint32_t first, uint32_t second)
{
    utf8proc_int32_t pair[3] = {(utf8proc_int32_t)first, (utf8proc_int32_t)second, 0};
    if (second < 0x300) return 0;
    utf8proc_ssize_t n =
        utf8proc_normalize_utf32(pair, 2, (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    return n == 1 && !tok_uni_is_inert((uint32_t)pair[0]) ? (uint32_t)pair[0] : 0;
}

void tok_uniform_compose(struct tok_norm_chars *c)
{
    size_t starter = SIZE_MAX, out = 0;
    int last_ccc = -1; /* of the character kept last after the starter; -1: none is kept */
    for (size_t i = 0; i < c->n; i++) {
        struct tok_norm_char ch = c->v[i];
        uint32_t joined = 0;
        if (starter != SIZE_MAX && last_ccc < (int)ch.ccc)
            joined = composed(c->v[starter].cp, ch.cp);
        if (joined) {
            c->v[starter].cp = joined;
            continue;
        }
        if (ch.ccc == 0) {
            starter = out;
            last_ccc = -1;
        } else {
            last_ccc = ch.ccc;
        }
        c->v[out++] = ch;
    }
    c->n = out;
}
