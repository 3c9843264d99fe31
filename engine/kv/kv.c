/* SPDX-License-Identifier: MIT */
/*
 * Pages of KV cache: one reserved mapping, reference counts, and a stack of freed pages. Page
 * numbers from n_used on were never handed out; the mapping's untouched memory is zero there.
 */
#include "engine/kv/kv.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fail.h"
#include "engine/eng_error.h"

enum { KV_ALIGN = 32, HUGE_PAGE_BYTES = 2 << 20 };
_Static_assert((int)KV_PAGE_TOKENS == KERN_PANEL, "a page of keys is a panel");
_Static_assert((int)KV_PAGE_TOKENS == KERN_GROUP, "a page of values is a group of inputs");

struct kv_pages {
    struct kv_layout layout;
    void *mapping;
    size_t mapping_bytes;
    uint8_t *data; /* page 0, aligned for huge pages inside the mapping */
    int n_pages;
    int n_used; /* pages ever handed out */
    int n_freed;
    int32_t *freed;   /* [n_pages], the last freed on top */
    int32_t *refs;    /* [n_pages] */
    uint8_t *drafted; /* [n_pages] */
};

void kv_layout_init(struct kv_layout *l, int n_layers, int n_heads, int d_head, enum kern_kvfmt fmt)
{
    static const size_t dim_bytes[] = {
        [KERN_KV_F32] = 4 * KV_PAGE_TOKENS,
        [KERN_KV_BF16] = 2 * KV_PAGE_TOKENS,
        [KERN_KV_I8] = KV_PAGE_TOKENS + 2, /* and a scale per 32 dims of a position */
    };
    *l = (struct kv_layout){.fmt = fmt, .dim_bytes = dim_bytes[fmt]};
    for (int i = 0; i < n_layers; i++)
        kv_layout_add(l, n_heads, d_head);
}

void kv_layout_add(struct kv_layout *l, int n_heads, int d_head)
{
    assert(l->n_layers < KV_MAX_LAYERS && n_heads > 0 && d_head > 0);
    int d_pad = (d_head + KV_ALIGN - 1) / KV_ALIGN * KV_ALIGN;
    size_t panel = (size_t)d_pad * l->dim_bytes;
    l->layers[l->n_layers++] = (struct kv_layer){n_heads, d_head, d_pad, panel, l->page_bytes};
    l->page_bytes += (size_t)n_heads * 2 * panel;
}

static int reserve(struct kv_pages *p, char *err, size_t errlen)
{
    size_t bytes;
    if (__builtin_mul_overflow(p->layout.page_bytes, (size_t)p->n_pages, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)HUGE_PAGE_BYTES, &bytes))
        return fail_with(ENG_ENOMEM, err, errlen,
                         "%d KV pages of %zu bytes exceed the address space", p->n_pages,
                         p->layout.page_bytes);
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return fail_with(ENG_ENOMEM, err, errlen, "%zu bytes of KV cache cannot be reserved: %s",
                         bytes, strerror(errno));
    p->mapping = map;
    p->mapping_bytes = bytes;
    uintptr_t start = ((uintptr_t)map + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    p->data = (uint8_t *)start;
    madvise(p->data, bytes - HUGE_PAGE_BYTES, MADV_HUGEPAGE); /* only faster */
    return 0;
}

int kv_pages_create(struct kv_pages **ret, const struct kv_layout *layout, int n_pages, char *err,
                    size_t errlen)
{
    if (n_pages < 1)
        return fail_with(ENG_EINVAL, err, errlen, "%d KV pages: at least 1 is needed", n_pages);
    struct kv_pages *p = calloc(1, sizeof(*p));
    if (p) {
        p->layout = *layout;
        p->n_pages = n_pages;
        p->freed = calloc((size_t)n_pages, sizeof(*p->freed));
        p->refs = calloc((size_t)n_pages, sizeof(*p->refs));
        p->drafted = calloc((size_t)n_pages, sizeof(*p->drafted));
    }
    int rc =
        p && p->freed && p->refs && p->drafted
            ? reserve(p, err, errlen)
            : fail_with(ENG_ENOMEM, err, errlen, "no memory for the list of %d KV pages", n_pages);
    if (rc)
        kv_pages_destroy(p);
    else
        *ret = p;
    return rc;
}

void kv_pages_destroy(struct kv_pages *p)
{
    if (!p) return;
    if (p->mapping) munmap(p->mapping, p->mapping_bytes);
    free(p->freed);
    free(p->refs);
    free(p->drafted);
    free(p);
}

/* Keys may stay: a masked score is replaced, not multiplied. */
static void zero_values(const struct kv_pages *p, int32_t page)
{
    const struct kv_layout *l = &p->layout;
    uint8_t *data = kv_page_data(p, page);
    for (int layer = 0; layer < l->n_layers; layer++)
        for (int head = 0; head < l->layers[layer].n_heads; head++)
            memset(data + kv_value_offset(l, layer, head), 0, l->layers[layer].panel_bytes);
}

int32_t kv_page_get(struct kv_pages *p)
{
    int32_t page;
    if (p->n_freed > 0) {
        page = p->freed[--p->n_freed];
        zero_values(p, page);
    } else if (p->n_used < p->n_pages) {
        page = p->n_used++;
    } else {
        return -1;
    }
    p->refs[page] = 1;
    p->drafted[page] = 0;
    return page;
}

void kv_page_ref(struct kv_pages *p, int32_t page)
{
    assert(page >= 0 && page < p->n_used && p->refs[page] > 0);
    p->refs[page]++;
}

void kv_page_unref(struct kv_pages *p, int32_t page)
{
    assert(page >= 0 && page < p->n_used && p->refs[page] > 0);
    if (--p->refs[page] == 0) p->freed[p->n_freed++] = page;
}

int kv_page_refs(const struct kv_pages *p, int32_t page)
{
    return p->refs[page];
}

uint8_t *kv_page_data(const struct kv_pages *p, int32_t page)
{
    assert(page >= 0 && page < p->n_used);
    return p->data + (size_t)page * p->layout.page_bytes;
}

void kv_page_clear(const struct kv_pages *p, const struct kern *kern, int32_t page, int slot)
{
    static const float zeros[KERN_GROUP];
    const struct kv_layout *l = &p->layout;
    for (int layer = 0; layer < l->n_layers; layer++)
        for (int head = 0; head < l->layers[layer].n_heads; head++)
            for (int d = 0; d < l->layers[layer].d_pad; d += KERN_GROUP) {
                size_t at = kv_value_offset(l, layer, head) + (size_t)d * l->dim_bytes;
                kern->put_value[l->fmt](kv_page_data(p, page) + at, zeros, KERN_GROUP, KERN_GROUP,
                                        slot);
            }
}

int kv_page_drafted(const struct kv_pages *p, int32_t page)
{
    assert(page >= 0 && page < p->n_used);
    return p->drafted[page];
}

void kv_page_set_drafted(struct kv_pages *p, int32_t page, int n)
{
    assert(page >= 0 && page < p->n_used && n >= 0 && n <= KV_PAGE_TOKENS);
    p->drafted[page] = (uint8_t)n;
}

int kv_pages_free(const struct kv_pages *p)
{
    return p->n_freed + (p->n_pages - p->n_used);
}

int kv_pages_total(const struct kv_pages *p)
{
    return p->n_pages;
}
