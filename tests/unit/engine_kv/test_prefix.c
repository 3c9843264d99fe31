/* SPDX-License-Identifier: MIT */
/* The prefix cache over real pages: finding, sharing, eviction in order, private scopes. */
#include "test.h"

#include "engine/kv/prefix.h"

enum { N_PAGES = 8, N_SNAPSHOTS = 3 };

struct fixture {
    struct kv_pages *pages;
    struct prefix *cache;
    struct eng_stats *stats;
};

static struct fixture open_fixture(void)
{
    struct kv_layout layout;
    char err[200];
    struct fixture f;
    kv_layout_init(&layout, 1, 1, 32, KERN_KV_F32);
    REQUIRE_EQ_INT(kv_pages_create(&f.pages, &layout, N_PAGES, err, sizeof(err)), 0);
    f.stats = calloc(1, sizeof(*f.stats));
    f.cache = prefix_create(f.pages, 99, N_SNAPSHOTS, 2, f.stats);
    REQUIRE(f.cache);
    return f;
}

static void close_fixture(struct fixture *f)
{
    prefix_destroy(f->cache);
    free(f->stats);
    kv_pages_destroy(f->pages);
}

static const struct prefix_scope common;

/* Tokens of a page that starts with `first`. */
static const int32_t *tokens_of(int32_t first)
{
    static int32_t tokens[KV_PAGE_TOKENS];
    for (int i = 0; i < KV_PAGE_TOKENS; i++)
        tokens[i] = first + i;
    return tokens;
}

/* Computes and publishes one page; *page is held by the caller. */
static int32_t publish(struct fixture *f, int32_t parent, const struct prefix_scope *scope,
                       int32_t first, int32_t *page)
{
    *page = prefix_page_get(f->cache);
    REQUIRE(*page >= 0);
    return prefix_publish(f->cache, parent, scope, tokens_of(first), page);
}

static struct eng_stats counts(const struct fixture *f)
{
    return *f->stats;
}

static void test_finds_by_tokens_parent_and_scope(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    struct prefix_scope other = {.tenant = {1}}, private = {.private_id = 3};
    int32_t page_a, page_b;
    int32_t a = publish(&f, PREFIX_NONE, &common, 100, &page_a);
    int32_t b = publish(&f, a, &common, 200, &page_b);
    REQUIRE_EQ_INT(prefix_find(f.cache, PREFIX_NONE, &common, tokens_of(100)), a);
    REQUIRE_EQ_INT(prefix_find(f.cache, a, &common, tokens_of(200)), b);
    REQUIRE_EQ_INT(prefix_find(f.cache, PREFIX_NONE, &common, tokens_of(200)), PREFIX_NONE);
    REQUIRE_EQ_INT(prefix_find(f.cache, a, &common, tokens_of(201)), PREFIX_NONE);
    REQUIRE_EQ_INT(prefix_find(f.cache, PREFIX_NONE, &other, tokens_of(100)), PREFIX_NONE);
    REQUIRE_EQ_INT(prefix_find(f.cache, PREFIX_NONE, &private, tokens_of(100)), PREFIX_NONE);
    int32_t changed[KV_PAGE_TOKENS];
    memcpy(changed, tokens_of(100), sizeof(changed));
    changed[KV_PAGE_TOKENS - 1]++;
    REQUIRE_EQ_INT(prefix_find(f.cache, PREFIX_NONE, &common, changed), PREFIX_NONE);
    close_fixture(&f);
}

static void test_second_computation_takes_the_first_page(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    int32_t first, second;
    int32_t a = publish(&f, PREFIX_NONE, &common, 1, &first);
    int32_t b = publish(&f, PREFIX_NONE, &common, 1, &second);
    REQUIRE_EQ_INT(a, b);
    REQUIRE_EQ_INT(first, second);
    REQUIRE_EQ_INT(kv_page_refs(f.pages, first), 3); /* two sequences and the cache */
    REQUIRE_EQ_INT(kv_pages_free(f.pages), N_PAGES - 1);
    prefix_release(f.cache, a, first);
    REQUIRE_EQ_INT(counts(&f).n_pages_cached, 0);
    prefix_release(f.cache, a, first);
    REQUIRE_EQ_INT(counts(&f).n_pages_cached, 1);
    close_fixture(&f);
}

static void test_evicts_least_recently_used_leaves(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    int32_t page[3], node[3];
    node[0] = publish(&f, PREFIX_NONE, &common, 1000, &page[0]);
    node[1] = publish(&f, node[0], &common, 2000, &page[1]);
    node[2] = publish(&f, node[0], &common, 3000, &page[2]);   /* a second branch */
    REQUIRE_EQ_INT(prefix_acquire(f.cache, node[0]), page[0]); /* which holds the root too */
    prefix_release(f.cache, node[1], page[1]);
    prefix_release(f.cache, node[0], page[0]);
    REQUIRE_EQ_INT(counts(&f).n_pages_cached, 1); /* the root is held by the second branch */
    prefix_release(f.cache, node[2], page[2]);
    prefix_release(f.cache, node[0], page[0]);
    REQUIRE_EQ_INT(counts(&f).n_pages_cached, 3);

    for (int i = 0; i < N_PAGES - 3; i++)
        REQUIRE(prefix_page_get(f.cache) >= 0); /* the free ones */
    REQUIRE_EQ_INT(counts(&f).n_pages_cached, 3);
    REQUIRE_EQ_INT(prefix_page_get(f.cache), page[1]); /* the oldest leaf */
    REQUIRE_EQ_INT(prefix_find(f.cache, node[0], &common, tokens_of(2000)), PREFIX_NONE);
    REQUIRE_EQ_INT(prefix_find(f.cache, node[0], &common, tokens_of(3000)), node[2]);
    REQUIRE_EQ_INT(prefix_page_get(f.cache), page[2]);
    REQUIRE_EQ_INT(prefix_page_get(f.cache), page[0]); /* the root last */
    REQUIRE_EQ_INT(prefix_page_get(f.cache), -1);
    close_fixture(&f);
}

static void test_use_renews(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    int32_t page[2], node[2];
    for (int i = 0; i < 2; i++) {
        node[i] = publish(&f, PREFIX_NONE, &common, 100 * (i + 1), &page[i]);
        prefix_release(f.cache, node[i], page[i]);
    }
    prefix_acquire(f.cache, node[0]);
    prefix_release(f.cache, node[0], page[0]);
    for (int i = 0; i < N_PAGES - 2; i++)
        prefix_page_get(f.cache);
    REQUIRE_EQ_INT(prefix_page_get(f.cache), page[1]);
    close_fixture(&f);
}

static const uint64_t minute = 60000000;

/* Publishes, keeps for so many seconds (0: not), and releases a chain of n pages; returns how many
 * could be kept. */
static int keep_chain(struct fixture *f, int32_t first, int n, uint64_t key, int64_t seconds)
{
    int32_t page[N_PAGES], node[N_PAGES], parent = PREFIX_NONE;
    int n_kept = 0;
    for (int i = 0; i < n; i++)
        parent = node[i] = publish(f, parent, &common, first + 100 * i, &page[i]);
    while (seconds && n_kept < n && prefix_keep(f->cache, node[n_kept], key, seconds))
        n_kept++;
    for (int i = n - 1; i >= 0; i--)
        prefix_release(f->cache, node[i], page[i]);
    return n_kept;
}

static bool is_cached(struct fixture *f, int32_t first)
{
    return prefix_find(f->cache, PREFIX_NONE, &common, tokens_of(first)) != PREFIX_NONE;
}

/* A key alone keeps half; the third finds something left; what is kept goes last. */
static void test_keeps_bounded(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    prefix_tick(f.cache, minute);
    REQUIRE_EQ_INT(keep_chain(&f, 1000, 6, 1, 300), N_PAGES / 2);
    REQUIRE_EQ_INT(counts(&f).n_pages_kept, 4);
    REQUIRE_EQ_INT(keep_chain(&f, 1000, 4, 1, 300), 4); /* the same ones */
    REQUIRE_EQ_INT(keep_chain(&f, 2000, 2, 1, 300), 0);
    REQUIRE_EQ_INT(keep_chain(&f, 3000, 2, 2, 300), 2); /* 3 quarters */
    REQUIRE_EQ_INT(keep_chain(&f, 4000, 1, 3, 300), 0);
    REQUIRE_EQ_INT(counts(&f).n_pages_kept, 6);
    REQUIRE(is_cached(&f, 1000) && is_cached(&f, 3000));
    keep_chain(&f, 5000, 2, 4, 0);
    REQUIRE(is_cached(&f, 1000) && is_cached(&f, 3000) && is_cached(&f, 5000));
    keep_chain(&f, 6000, 2, 4, 0);
    REQUIRE(is_cached(&f, 1000) && is_cached(&f, 3000) && !is_cached(&f, 5000));
    for (int i = 0; i < 8; i++) /* what a request needs it gets */
        REQUIRE(prefix_page_get(f.cache) >= 0);
    REQUIRE_EQ_INT(counts(&f).n_pages_kept, 0);
    close_fixture(&f);
}

/* Keeping ends, from the end of a chain on, and is renewed by use. */
static void test_keeps_end(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    prefix_tick(f.cache, minute);
    REQUIRE_EQ_INT(keep_chain(&f, 1000, 2, 1, 300), 2);
    REQUIRE_EQ_INT(keep_chain(&f, 2000, 2, 1, 3600), 2);
    prefix_tick(f.cache, 6 * minute - 1);
    REQUIRE_EQ_INT(counts(&f).n_pages_kept, 4);
    prefix_tick(f.cache, 6 * minute);
    REQUIRE_EQ_INT(counts(&f).n_pages_kept, 2);
    keep_chain(&f, 3000, 2, 2, 0);
    keep_chain(&f, 4000, 4, 2, 0);
    REQUIRE(!is_cached(&f, 1000) && is_cached(&f, 2000) && is_cached(&f, 3000));
    REQUIRE_EQ_INT(keep_chain(&f, 2000, 2, 1, 300), 2); /* an hour is longer */
    prefix_tick(f.cache, 60 * minute);
    REQUIRE_EQ_INT(counts(&f).n_pages_kept, 2);
    REQUIRE_EQ_INT(keep_chain(&f, 2000, 2, 1, 3600), 2);
    prefix_tick(f.cache, 62 * minute);
    REQUIRE_EQ_INT(counts(&f).n_pages_kept, 2);
    int32_t node = prefix_find(f.cache, PREFIX_NONE, &common, tokens_of(2000));
    int32_t page = prefix_acquire(f.cache, node);
    prefix_tick(f.cache, 200 * minute); /* while it is held */
    prefix_release(f.cache, node, page);
    REQUIRE_EQ_INT(counts(&f).n_pages_kept, 0);
    close_fixture(&f);
}

/* Of leaves as old as each other one on disk goes first; an older one goes before both. */
static void test_prefers_pages_on_disk(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    prefix_tick(f.cache, minute);
    for (int i = 1; i <= 4; i++) {
        if (i == 2) prefix_tick(f.cache, 2 * minute);
        keep_chain(&f, 1000 * i, 1, 0, 0);
    }
    for (int i = 3; i <= 4; i++)
        prefix_note_disk(f.cache, prefix_find(f.cache, PREFIX_NONE, &common, tokens_of(1000 * i)));
    for (int i = 0; i < N_PAGES - 4; i++)
        REQUIRE(prefix_page_get(f.cache) >= 0);
    static const int order[] = {1, 3, 4, 2};
    for (int i = 0; i < 4; i++) {
        REQUIRE(is_cached(&f, 1000 * order[i]));
        REQUIRE(prefix_page_get(f.cache) >= 0);
        REQUIRE_MSG(!is_cached(&f, 1000 * order[i]), "%d", i);
    }
    close_fixture(&f);
}

static void test_forgets_private_scopes(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    struct prefix_scope private = {.private_id = 17};
    int32_t page[3], node[3];
    node[0] = publish(&f, PREFIX_NONE, &private, 1, &page[0]);
    node[1] = publish(&f, node[0], &private, 50, &page[1]);
    node[2] = publish(&f, PREFIX_NONE, &common, 1, &page[2]);
    prefix_release(f.cache, node[1], page[1]);
    prefix_release(f.cache, node[0], page[0]);
    prefix_release(f.cache, node[2], page[2]);
    prefix_forget(f.cache, 17);
    REQUIRE_EQ_INT(counts(&f).n_pages_cached, 1);
    REQUIRE_EQ_INT(kv_pages_free(f.pages), N_PAGES - 1);
    REQUIRE_EQ_INT(prefix_find(f.cache, PREFIX_NONE, &common, tokens_of(1)), node[2]);
    close_fixture(&f);
}

static enum eng_miss why(struct fixture *f, int32_t parent, const struct prefix_scope *scope,
                         int32_t first, int n_as_before, int *ret_n_equal)
{
    int32_t tokens[KV_PAGE_TOKENS];
    for (int i = 0; i < KV_PAGE_TOKENS; i++)
        tokens[i] = first + i + (i < n_as_before ? 0 : 1000);
    return prefix_why(f->cache, parent, scope, tokens, ret_n_equal);
}

static void test_tells_why_a_page_is_not_there(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    struct prefix_scope other = {.tenant = {1}};
    int32_t page[3], filler[N_PAGES];
    int n;
    REQUIRE_EQ_INT(why(&f, PREFIX_NONE, &common, 100, 0, &n), ENG_MISS_NONE);
    int32_t a = publish(&f, PREFIX_NONE, &common, 100, &page[0]);
    int32_t b = publish(&f, a, &common, 200, &page[1]);
    publish(&f, a, &common, 300, &page[2]);
    REQUIRE_EQ_INT(why(&f, PREFIX_NONE, &common, 100, 7, &n), ENG_MISS_CONTENT);
    REQUIRE_EQ_INT(n, 7);
    REQUIRE_EQ_INT(why(&f, a, &common, 200, 31, &n), ENG_MISS_CONTENT);
    REQUIRE_EQ_INT(n, 31);
    REQUIRE_EQ_INT(why(&f, a, &common, 400, 32, &n), ENG_MISS_CONTENT);
    REQUIRE_EQ_INT(n, 0);
    REQUIRE_EQ_INT(why(&f, b, &common, 100, 32, &n), ENG_MISS_NONE);
    /* Nothing is said of pages of other scopes. */
    REQUIRE_EQ_INT(why(&f, PREFIX_NONE, &other, 100, 7, &n), ENG_MISS_NONE);
    for (int i = 2; i >= 0; i--)
        prefix_release(f.cache,
                       i == 2 ? prefix_find(f.cache, a, &common, tokens_of(300))
                       : i    ? b
                              : a,
                       page[i]);
    for (int i = 0; i < N_PAGES; i++)
        publish(&f, PREFIX_NONE, &other, 1000 * i, &filler[i]);
    REQUIRE_EQ_INT(why(&f, PREFIX_NONE, &common, 100, 32, &n), ENG_MISS_EVICTED);
    REQUIRE_EQ_INT(why(&f, PREFIX_NONE, &common, 100, 31, &n), ENG_MISS_NONE);
    REQUIRE_EQ_INT(why(&f, PREFIX_NONE, &other, 0, 3, &n), ENG_MISS_CONTENT);
    /* A page that came back at another place makes the same chain of hashes. */
    int32_t last = prefix_find(f.cache, PREFIX_NONE, &other, tokens_of(7000));
    prefix_release(f.cache, last, filler[N_PAGES - 1]);
    a = publish(&f, PREFIX_NONE, &common, 100, &page[0]);
    REQUIRE_EQ_INT(why(&f, a, &common, 300, 32, &n), ENG_MISS_EVICTED);
    REQUIRE_EQ_INT(why(&f, a, &common, 300, 31, &n), ENG_MISS_NONE);
    close_fixture(&f);
}

/* ---- against a list of what ought to be there ---------------------------------------------- */

/*
 * Random chains held and released; afterwards every page is free or idle, and no more is found than
 * is held.
 */
static void test_random_use_keeps_count(void **state)
{
    (void)state;
    enum { N_SEQS = 3, DEPTH = 2, ROUNDS = 5000 };
    struct fixture f = open_fixture();
    int32_t node[N_SEQS][DEPTH], page[N_SEQS][DEPTH];
    int depth[N_SEQS] = {0};
    uint32_t seed = 12345;
    for (int round = 0; round < ROUNDS; round++) {
        seed = seed * 1664525u + 1013904223u;
        int s = (int)(seed >> 8) % N_SEQS;
        if (depth[s] == DEPTH) {
            while (depth[s] > 0) {
                depth[s]--;
                prefix_release(f.cache, node[s][depth[s]], page[s][depth[s]]);
            }
            continue;
        }
        int d = depth[s]++;
        int32_t parent = d ? node[s][d - 1] : PREFIX_NONE, first = (int32_t)(seed >> 16) % 5 * 40;
        int32_t found = prefix_find(f.cache, parent, &common, tokens_of(first));
        if (found != PREFIX_NONE) {
            node[s][d] = found;
            page[s][d] = prefix_acquire(f.cache, found);
        } else {
            node[s][d] = publish(&f, parent, &common, first, &page[s][d]);
        }
        int n_equal; /* the new child is seen among those of its parent */
        enum eng_miss miss = why(&f, parent, &common, first, 9, &n_equal);
        REQUIRE_MSG(miss == ENG_MISS_CONTENT && n_equal == 9, "round %d", round);
        REQUIRE_MSG(kv_pages_free(f.pages) + counts(&f).n_pages_cached >= N_PAGES - N_SEQS * DEPTH,
                    "round %d", round);
    }
    for (int s = 0; s < N_SEQS; s++)
        while (depth[s] > 0) {
            depth[s]--;
            prefix_release(f.cache, node[s][depth[s]], page[s][depth[s]]);
        }
    REQUIRE_EQ_INT(kv_pages_free(f.pages) + counts(&f).n_pages_cached, N_PAGES);
    close_fixture(&f);
}

/* A chain of n pages from `first` on; held by the caller. */
static void publish_chain(struct fixture *f, int n, int32_t first, int32_t *nodes, int32_t *pages)
{
    for (int i = 0; i < n; i++)
        nodes[i] = publish(f, i ? nodes[i - 1] : PREFIX_NONE, &common, first + 100 * i, &pages[i]);
}

static void keep(struct fixture *f, int32_t node, float value)
{
    float *kept = prefix_keep_snapshot(f->cache, node);
    REQUIRE(kept);
    kept[0] = kept[1] = value;
}

static void require_counts(const struct fixture *f, int kept, uint64_t hits, uint64_t evicted)
{
    struct eng_stats s = *f->stats;
    REQUIRE_EQ_INT(s.n_snapshots, kept);
    REQUIRE_EQ_INT((int)s.n_snapshot_hits, (int)hits);
    REQUIRE_EQ_INT((int)s.n_snapshots_evicted, (int)evicted);
}

/* Snapshots belong to nodes, are dropped with them, and are not made twice. */
static void test_snapshots(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    int32_t nodes[4], pages[4];
    publish_chain(&f, 4, 1000, nodes, pages);
    REQUIRE(!prefix_has_snapshot(f.cache, nodes[3]));
    keep(&f, nodes[1], 1);
    keep(&f, nodes[3], 3);
    REQUIRE(prefix_has_snapshot(f.cache, nodes[1]) && !prefix_has_snapshot(f.cache, nodes[2]));
    REQUIRE(prefix_keep_snapshot(f.cache, nodes[3]) == NULL);
    REQUIRE(prefix_use_snapshot(f.cache, nodes[1])[1] == 1.0f);
    REQUIRE(prefix_use_snapshot(f.cache, nodes[3])[0] == 3.0f);
    require_counts(&f, 2, 2, 0);
    prefix_drop_snapshot(f.cache, nodes[1]);
    prefix_drop_snapshot(f.cache, nodes[1]);
    require_counts(&f, 1, 2, 0);
    REQUIRE(!prefix_has_snapshot(f.cache, nodes[1]) && prefix_has_snapshot(f.cache, nodes[3]));
    for (int i = 3; i >= 0; i--)
        prefix_release(f.cache, nodes[i], pages[i]);
    for (int i = 0; i < N_PAGES; i++) /* all are evicted */
        REQUIRE(prefix_page_get(f.cache) >= 0);
    require_counts(&f, 0, 2, 1);
    close_fixture(&f);
    f = open_fixture();
    publish_chain(&f, 4, 1000, nodes, pages); /* the same nodes again */
    for (int i = 0; i < 4; i++)
        REQUIRE(!prefix_has_snapshot(f.cache, nodes[i]));
    close_fixture(&f);
}

/* The one that saves least gives way; those that are not used lose their worth to later ones. */
static void test_snapshots_give_way_by_what_they_save(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    int32_t a[4], b[3], pages[4], one, other;
    publish_chain(&f, 4, 1000, a, pages);
    publish_chain(&f, 3, 5000, b, pages);
    keep(&f, a[2], 0); /* 96 tokens */
    keep(&f, a[3], 1); /* 32 behind it */
    keep(&f, b[1], 2); /* 64 */
    keep(&f, b[0], 3); /* 32, in place of 32: from now on all have 32 more */
    require_counts(&f, 3, 0, 1);
    REQUIRE(!prefix_has_snapshot(f.cache, a[3]) && prefix_has_snapshot(f.cache, a[2]));
    REQUIRE(prefix_has_snapshot(f.cache, b[1]) && prefix_has_snapshot(f.cache, b[0]));
    prefix_use_snapshot(f.cache, b[1]); /* 32 behind b[0], + 32: 64 as b[0] */
    prefix_use_snapshot(f.cache, a[2]); /* 96 + 32 */
    one = publish(&f, PREFIX_NONE, &common, 9000, &other);
    keep(&f, one, 4); /* 32 + 64, in place of b[1] or b[0] */
    REQUIRE(prefix_has_snapshot(f.cache, b[1]) + prefix_has_snapshot(f.cache, b[0]) == 1);
    keep(&f, a[0], 5); /* in place of the other one */
    REQUIRE(!prefix_has_snapshot(f.cache, b[1]) && !prefix_has_snapshot(f.cache, b[0]));
    REQUIRE(prefix_has_snapshot(f.cache, one) && prefix_has_snapshot(f.cache, a[2]));
    keep(&f, b[2], 6); /* 96 + 64, in place of `one` or a[0], 96 each */
    REQUIRE(prefix_has_snapshot(f.cache, a[2]) && prefix_has_snapshot(f.cache, b[2]));
    close_fixture(&f);
    struct prefix *none = NULL;
    struct fixture g = open_fixture();
    none = prefix_create(g.pages, 1, 0, 0, g.stats);
    int32_t page = prefix_page_get(none);
    REQUIRE(prefix_keep_snapshot(
                none, prefix_publish(none, PREFIX_NONE, &common, tokens_of(1), &page)) == NULL);
    prefix_destroy(none);
    close_fixture(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_by_tokens_parent_and_scope),
        cmocka_unit_test(test_second_computation_takes_the_first_page),
        cmocka_unit_test(test_evicts_least_recently_used_leaves),
        cmocka_unit_test(test_use_renews),
        cmocka_unit_test(test_keeps_bounded),
        cmocka_unit_test(test_keeps_end),
        cmocka_unit_test(test_prefers_pages_on_disk),
        cmocka_unit_test(test_forgets_private_scopes),
        cmocka_unit_test(test_tells_why_a_page_is_not_there),
        cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_snapshots_give_way_by_what_they_save),
        cmocka_unit_test(test_random_use_keeps_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
