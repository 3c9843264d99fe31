/* SPDX-License-Identifier: MIT */
/*
 * KV pages: layout arithmetic, reference counts, exhaustion, and no stale value in a recycled page.
 */
#include "engine/kv/kv.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/engine.h"
#include "test.h"

static struct kv_pages *make_pages(const struct kv_layout *l, int n)
{
    struct kv_pages *p = NULL;
    char err[200] = "";
    int rc = kv_pages_create(&p, l, n, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    return p;
}

static void test_layout(void **state)
{
    (void)state;
    static const struct {
        int layers, heads, d_head;
        enum kern_kvfmt fmt;
        int d_pad;
        size_t panel, page;
    } cases[] = {
        {30, 3, 64, KERN_KV_BF16, 64, 4096, 30 * 3 * 2 * 4096},
        {30, 3, 64, KERN_KV_F32, 64, 8192, 30 * 3 * 2 * 8192},
        {1, 1, 8, KERN_KV_BF16, 32, 2048, 4096},
        {2, 4, 80, KERN_KV_F32, 96, 12288, 2 * 4 * 2 * 12288},
        {30, 3, 64, KERN_KV_I8, 64, 2176, 30 * 3 * 2 * 2176},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct kv_layout l;
        kv_layout_init(&l, cases[i].layers, cases[i].heads, cases[i].d_head, cases[i].fmt);
        REQUIRE_EQ_INT(l.layers[0].d_pad, cases[i].d_pad);
        REQUIRE_EQ_INT(l.layers[0].panel_bytes, cases[i].panel);
        REQUIRE_EQ_INT(l.page_bytes, cases[i].page);
        /* heads and layers tile the page: the last value panel ends it */
        REQUIRE_EQ_INT(kv_key_offset(&l, 0, 0), 0);
        REQUIRE_EQ_INT(kv_value_offset(&l, l.n_layers - 1, cases[i].heads - 1) + cases[i].panel,
                       l.page_bytes);
    }
}

/* Layers of different heads, one after the other. */
static void test_mixed_layout(void **state)
{
    (void)state;
    struct kv_layout l;
    kv_layout_init(&l, 0, 0, 0, KERN_KV_I8);
    kv_layout_add(&l, 2, 24);
    kv_layout_add(&l, 1, 72);
    kv_layout_add(&l, 2, 24);
    REQUIRE_EQ_INT(kv_value_offset(&l, 0, 1), 3 * 32 * 34);
    REQUIRE_EQ_INT(kv_key_offset(&l, 1, 0), 4 * 32 * 34);
    REQUIRE_EQ_INT(kv_key_offset(&l, 2, 1), (4 + 6 + 2) * 32 * 34);
    REQUIRE_EQ_INT(l.page_bytes, (4 + 6 + 4) * 32 * 34);
    REQUIRE_EQ_INT(kv_first_dim(&l, 1, 0), 64);
    REQUIRE_EQ_INT(kv_first_dim(&l, 2, 0), 64 + 96);
    REQUIRE_EQ_INT(kv_first_dim(&l, 3, 0), 64 + 96 + 64);
}

static void test_references_and_exhaustion(void **state)
{
    (void)state;
    struct kv_layout l;
    kv_layout_init(&l, 2, 1, 16, KERN_KV_BF16);
    struct kv_pages *p = make_pages(&l, 3);
    REQUIRE_EQ_INT(kv_pages_total(p), 3);
    int32_t a = kv_page_get(p), b = kv_page_get(p), c = kv_page_get(p);
    REQUIRE(a >= 0 && b >= 0 && c >= 0 && a != b && b != c && a != c);
    REQUIRE_EQ_INT(kv_pages_free(p), 0);
    REQUIRE_EQ_INT(kv_page_get(p), -1);

    kv_page_ref(p, b);
    REQUIRE_EQ_INT(kv_page_refs(p, b), 2);
    kv_page_unref(p, b);
    REQUIRE_EQ_INT(kv_pages_free(p), 0);
    kv_page_unref(p, b);
    REQUIRE_EQ_INT(kv_pages_free(p), 1);
    REQUIRE_EQ_INT(kv_page_get(p), b);
    REQUIRE_EQ_INT(kv_page_refs(p, b), 1);
    kv_pages_destroy(p);
    kv_pages_destroy(NULL);
}

static void require_zero_values(const struct kv_pages *p, const struct kv_layout *l, int32_t page)
{
    const uint8_t *data = kv_page_data(p, page);
    REQUIRE_EQ_INT((uintptr_t)data % 64, 0);
    for (int layer = 0; layer < l->n_layers; layer++)
        for (int head = 0; head < l->layers[layer].n_heads; head++)
            for (size_t i = 0; i < l->layers[layer].panel_bytes; i++)
                REQUIRE_EQ_INT(data[kv_value_offset(l, layer, head) + i], 0);
}

static void test_recycled_values_are_zero(void **state)
{
    (void)state;
    struct kv_layout l;
    kv_layout_init(&l, 3, 2, 40, KERN_KV_F32);
    struct kv_pages *p = make_pages(&l, 4);
    for (int round = 0; round < 3; round++) {
        int32_t pages[4];
        for (size_t i = 0; i < N_OF(pages); i++) {
            pages[i] = kv_page_get(p);
            require_zero_values(p, &l, pages[i]);
            memset(kv_page_data(p, pages[i]), 0xff, l.page_bytes); /* NaN in f32 and bf16 */
        }
        for (size_t i = 0; i < N_OF(pages); i++)
            kv_page_unref(p, pages[i]);
    }
    kv_pages_destroy(p);
}

static void test_bad_sizes(void **state)
{
    (void)state;
    struct kv_layout l;
    kv_layout_init(&l, 30, 3, 64, KERN_KV_BF16);
    struct kv_pages *p = NULL;
    char err[200] = "";
    REQUIRE_EQ_INT(kv_pages_create(&p, &l, 0, err, sizeof(err)), ENG_EINVAL);
    l.page_bytes = SIZE_MAX / 2;
    REQUIRE_EQ_INT(kv_pages_create(&p, &l, 5, err, sizeof(err)), ENG_ENOMEM);
    REQUIRE(p == NULL && strstr(err, "KV") != NULL);
}

/* Asserts stay on in every kind of build. */
static void test_broken_invariant_aborts(void **state)
{
    (void)state;
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        struct kv_layout l;
        signal(SIGABRT, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        kv_layout_init(&l, 1, 1, 32, KERN_KV_F32);
        struct kv_pages *p = make_pages(&l, 1);
        int32_t page = kv_page_get(p);
        kv_page_unref(p, page);
        kv_page_unref(p, page);
        _exit(0);
    }
    int status = 0;
    REQUIRE_EQ_INT(waitpid(child, &status, 0), child);
    REQUIRE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_mixed_layout),
        cmocka_unit_test(test_references_and_exhaustion),
        cmocka_unit_test(test_recycled_values_are_zero),
        cmocka_unit_test(test_bad_sizes),
        cmocka_unit_test(test_broken_invariant_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
