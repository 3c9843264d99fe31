/* SPDX-License-Identifier: MIT */
/* Chains of pages go to a directory and come back, into a cache as the scheduler has it. */
#include "engine/kv/disk.h"

#include <semaphore.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "test.h"

enum { N_PAGES = 64, CHAIN = 20, CTX = N_PAGES * KV_PAGE_TOKENS, HOUR = 3600 };

static const struct prefix_scope us = {.tenant = "us"};

struct fixture {
    char dir[64];
    struct kv_layout layout;
    struct kv_pages *pages;
    struct prefix *cache;
    struct eng_stats stats;
    struct kv_disk *disk;
    sem_t woken;
    int32_t ids[CTX];
    int32_t held[CHAIN], nodes[CHAIN];
    atomic_bool us_banned, others_banned;
};

static bool is_banned(void *ctx, const uint8_t *owner)
{
    struct fixture *f = ctx;
    bool ours = memcmp(owner, us.tenant, ENG_KV_OWNER) == 0;
    return ours ? f->us_banned : f->others_banned;
}

/* While `hangs`, reads of files wait for `answers`. */
static atomic_bool hangs;
static sem_t reads, answers;

int __real_file_pread(int fd, void *buf, size_t n, int64_t offset);
int __wrap_file_pread(int fd, void *buf, size_t n, int64_t offset);

int __wrap_file_pread(int fd, void *buf, size_t n, int64_t offset)
{
    if (atomic_load(&hangs)) {
        sem_post(&reads);
        sem_wait(&answers);
    }
    return __real_file_pread(fd, buf, n, offset);
}

static void wake(void *ctx)
{
    struct fixture *f = ctx;
    sem_post(&f->woken);
}

static void open_disk(struct fixture *f)
{
    struct kv_disk_params params = {.user = {.dir = f->dir,
                                             .bytes = 1 << 30,
                                             .seconds = HOUR,
                                             .is_banned = is_banned,
                                             .bans = f},
                                    .fingerprint = "a model",
                                    .page_bytes = f->layout.page_bytes,
                                    .ctx = CTX,
                                    .wake = wake,
                                    .wake_ctx = f};
    char err[700] = "";
    int rc = kv_disk_create(&f->disk, &params, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
}

/* A published chain, each page full of its own number. */
static void publish_chain(struct fixture *f)
{
    for (int i = 0; i < CHAIN; i++) {
        f->held[i] = prefix_page_get(f->cache);
        memset(kv_page_data(f->pages, f->held[i]), i + 1, f->layout.page_bytes);
        f->nodes[i] = prefix_publish(f->cache, i ? f->nodes[i - 1] : PREFIX_NONE, &us,
                                     f->ids + (size_t)i * KV_PAGE_TOKENS, &f->held[i]);
    }
    for (int i = CHAIN - 1; i >= 0; i--)
        prefix_release(f->cache, f->nodes[i], f->held[i]);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    char err[200];
    REQUIRE(f);
    snprintf(f->dir, sizeof(f->dir), "/tmp/hearth-kv-XXXXXX");
    REQUIRE(mkdtemp(f->dir));
    kv_layout_init(&f->layout, 1, 1, 32, KERN_KV_F32);
    REQUIRE_EQ_INT(kv_pages_create(&f->pages, &f->layout, N_PAGES, err, sizeof(err)), 0);
    f->cache = prefix_create(f->pages, 7, 0, 0, &f->stats);
    REQUIRE(f->cache && sem_init(&f->woken, 0, 0) == 0);
    for (int i = 0; i < CTX; i++)
        f->ids[i] = 3 * i + 1;
    publish_chain(f);
    open_disk(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char command[100];
    kv_disk_destroy(f->disk);
    prefix_destroy(f->cache);
    kv_pages_destroy(f->pages);
    sem_destroy(&f->woken);
    snprintf(command, sizeof(command), "rm -rf %s", f->dir);
    int rc = system(command);
    free(f);
    return rc;
}

static void note(struct fixture *f, int n_pages)
{
    kv_disk_note(f->disk, &(struct kv_chain){us.tenant, f->ids, n_pages, false, false});
}

/* Gives the writer pages, n at a time, until it wants no more. */
static struct eng_kv_disk_stats feed(struct fixture *f, int n)
{
    struct eng_kv_disk_stats stats;
    while (kv_disk_busy(f->disk))
        kv_disk_pump(f->disk, f->cache, f->pages, n);
    kv_disk_stats(f->disk, &stats);
    return stats;
}

/* Asks for a prompt of the ids into pages full of ones, and returns how many came. */
static int restore(struct fixture *f, const int32_t *ids, int first, int n_pages, uint8_t **data)
{
    struct kv_restore r = {
        .scope = us.tenant, .ids = ids, .pages = data, .first = first, .n_pages = n_pages};
    for (int i = 0; i < n_pages; i++)
        memset(data[i], 0xff, f->layout.page_bytes);
    kv_disk_ask(f->disk, &r);
    while (!kv_disk_done(&r))
        sem_wait(&f->woken);
    for (int i = 0; i < r.n_read; i++)
        REQUIRE_EQ_INT(data[i][9], i < first ? 0xff : i + 1);
    return r.n_read;
}

static void test_comes_back(void **state)
{
    struct fixture *f = *state;
    uint8_t *data[CHAIN];
    note(f, CHAIN);
    struct eng_kv_disk_stats stats = feed(f, 3);
    REQUIRE(stats.n_written_bytes == CHAIN * f->layout.page_bytes && stats.n_dropped == 0);
    note(f, CHAIN);
    stats = feed(f, EXTENT_PAGES);
    REQUIRE(stats.n_written_bytes == CHAIN * f->layout.page_bytes); /* it is there */
    kv_disk_destroy(f->disk);
    open_disk(f);
    for (int i = 0; i < CHAIN; i++)
        data[i] = kv_page_data(f->pages, prefix_page_get(f->cache));
    REQUIRE_EQ_INT(restore(f, f->ids, 0, CHAIN, data), CHAIN);
    REQUIRE_EQ_INT(restore(f, f->ids, 5, CHAIN, data), CHAIN);
    REQUIRE_EQ_INT(restore(f, f->ids, 17, CHAIN, data), CHAIN);
    REQUIRE_EQ_INT(restore(f, f->ids, 0, 18, data), EXTENT_PAGES); /* the short one is longer */
    f->ids[18 * KV_PAGE_TOKENS]++;
    REQUIRE_EQ_INT(restore(f, f->ids, 2, CHAIN, data), EXTENT_PAGES);
    f->ids[0]++;
    REQUIRE_EQ_INT(restore(f, f->ids, 0, CHAIN, data), 0);
    kv_disk_stats(f->disk, &stats);
    REQUIRE(stats.n_restores == 5 &&
            stats.n_read_tokens == (20 + 15 + 3 + 16 + 14) * KV_PAGE_TOKENS);
}

static void test_evicted_before_it_is_written(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < N_PAGES; i++)
        REQUIRE(prefix_page_get(f->cache) >= 0);
    note(f, CHAIN);
    REQUIRE(feed(f, EXTENT_PAGES).n_written_bytes == 0);
}

static void test_short_chains_and_many(void **state)
{
    struct fixture *f = *state;
    struct eng_kv_disk_stats stats;
    note(f, KV_DISK_LEAST_CHAIN - 1);
    REQUIRE(!kv_disk_busy(f->disk));
    for (int i = 0; i < 30; i++) /* nobody gives the writer pages */
        note(f, CHAIN);
    kv_disk_stats(f->disk, &stats);
    REQUIRE(stats.n_dropped >= 20 && stats.n_dropped < 30);
    REQUIRE(feed(f, EXTENT_PAGES).n_written_bytes == CHAIN * f->layout.page_bytes);
}

static void test_cannot_write(void **state)
{
    struct fixture *f = *state;
    char path[100];
    snprintf(path, sizeof(path), "%s/secret", f->dir);
    REQUIRE(unlink(path) == 0 && rmdir(f->dir) == 0);
    note(f, CHAIN);
    struct eng_kv_disk_stats stats = feed(f, EXTENT_PAGES);
    REQUIRE(stats.paused && stats.n_write_errors == 1 && stats.n_written_bytes == 0);
    note(f, CHAIN);
    REQUIRE(!kv_disk_busy(f->disk));
}

/* Nothing of a banned owner is written or read, nor left if it was being written at that moment. */
static void test_banned(void **state)
{
    struct fixture *f = *state;
    uint8_t *data[CHAIN];
    for (int i = 0; i < CHAIN; i++)
        data[i] = kv_page_data(f->pages, prefix_page_get(f->cache));
    f->others_banned = true;
    note(f, CHAIN);
    struct eng_kv_disk_stats stats = feed(f, EXTENT_PAGES);
    REQUIRE_EQ_INT(restore(f, f->ids, 0, CHAIN, data), CHAIN);
    REQUIRE(kv_disk_pays(f->disk, us.tenant, CHAIN, 0));
    f->us_banned = true;
    REQUIRE(!kv_disk_pays(f->disk, us.tenant, CHAIN, 0));
    f->ids[0]++;
    publish_chain(f);
    note(f, CHAIN);
    REQUIRE(!kv_disk_busy(f->disk));
    f->us_banned = false;
    while (sem_trywait(&f->woken) == 0)
        continue;
    note(f, CHAIN);
    sem_wait(&f->woken); /* the writer wants pages */
    f->us_banned = true;
    REQUIRE(feed(f, EXTENT_PAGES).n_written_bytes > stats.n_written_bytes);
    f->us_banned = false;
    REQUIRE_EQ_INT(restore(f, f->ids, 0, CHAIN, data), 0);
}

/* Chains that are wanted again are written before others, and survive a full queue. */
static void test_first(void **state)
{
    struct fixture *f = *state;
    uint8_t *data[CHAIN];
    struct kv_chain first = {us.tenant, f->ids, KV_DISK_LEAST_CHAIN, true, false};
    for (int i = 0; i < CHAIN; i++)
        data[i] = kv_page_data(f->pages, prefix_page_get(f->cache));
    note(f, CHAIN); /* the writer has it in hand, and waits for its pages */
    kv_disk_note(f->disk, &first);
    for (int i = 0; i < 30; i++) {
        f->ids[CTX - 1] = i; /* others */
        kv_disk_note(f->disk,
                     &(struct kv_chain){(const uint8_t *)"another tenant, of 32 bytes.....", f->ids,
                                        CHAIN, false, false});
    }
    feed(f, EXTENT_PAGES);
    REQUIRE_EQ_INT(restore(f, f->ids, 0, KV_DISK_LEAST_CHAIN, data), KV_DISK_LEAST_CHAIN);
}

/* An owner with many chains, all of which are wanted again, makes no other wait or forget. */
static void test_owners_take_turns(void **state)
{
    struct fixture *f = *state;
    uint8_t *data[CHAIN];
    for (int i = 0; i < CHAIN; i++)
        data[i] = kv_page_data(f->pages, prefix_page_get(f->cache));
    note(f, CHAIN); /* the writer has it in hand, and waits for its pages */
    f->ids[0]++;
    publish_chain(f);
    for (int i = 0; i < 60; i++) {
        f->ids[CTX - 1] = i;
        kv_disk_note(f->disk,
                     &(struct kv_chain){(const uint8_t *)"another tenant, of 32 bytes.....", f->ids,
                                        CHAIN, true, false});
        if (i == 30) note(f, CHAIN);
    }
    feed(f, EXTENT_PAGES);
    REQUIRE_EQ_INT(restore(f, f->ids, 0, CHAIN, data), CHAIN);
}

/* A chain on a disk that does not answer, and pages full of ones for what is read of it. */
static void hang(struct fixture *f, uint8_t **data)
{
    note(f, CHAIN);
    feed(f, EXTENT_PAGES);
    for (int i = 0; i < CHAIN; i++) {
        data[i] = kv_page_data(f->pages, prefix_page_get(f->cache));
        memset(data[i], 0xff, f->layout.page_bytes);
    }
    atomic_store(&hangs, true);
}

static void answer(int n_reads)
{
    atomic_store(&hangs, false);
    while (n_reads-- > 0)
        sem_post(&answers);
}

/* It ends at once, and its pages are not touched any more. */
static void test_given_up(void **state)
{
    struct fixture *f = *state;
    uint8_t *data[CHAIN];
    hang(f, data);
    struct kv_restore r = {.scope = us.tenant, .ids = f->ids, .pages = data, .n_pages = CHAIN};
    struct kv_restore queued = r;
    kv_disk_ask(f->disk, &r);
    sem_wait(&reads);
    kv_disk_ask(f->disk, &queued);
    REQUIRE(!kv_disk_done(&r) && !kv_disk_done(&queued));
    kv_disk_cancel(f->disk, &queued);
    kv_disk_cancel(f->disk, &r);
    REQUIRE(kv_disk_done(&r) && kv_disk_done(&queued) && r.n_read == 0 && queued.n_read == 0);
    answer(1);
    uint8_t *others[CHAIN];
    for (int i = 0; i < CHAIN; i++)
        others[i] = kv_page_data(f->pages, prefix_page_get(f->cache));
    REQUIRE_EQ_INT(restore(f, f->ids, 0, CHAIN, others), CHAIN);
    for (int i = 0; i < CHAIN; i++)
        REQUIRE_EQ_INT(data[i][9], 0xff);
}

/* Prompts wait no longer than computing takes, of which a second is nothing, nor for a dead disk. */
static void test_late(void **state)
{
    struct fixture *f = *state;
    uint8_t *data[CHAIN];
    const uint64_t second = 1000000, now = clock_now_us();
    hang(f, data);
    struct kv_restore fast = {.scope = us.tenant, .ids = f->ids, .pages = data, .n_pages = CHAIN};
    struct kv_restore slow = fast, unknown = fast;
    fast.tokens_per_s = 1e6;
    slow.tokens_per_s = CHAIN * KV_PAGE_TOKENS / 3.0;
    kv_disk_ask(f->disk, &fast);
    sem_wait(&reads);
    kv_disk_ask(f->disk, &slow);
    kv_disk_ask(f->disk, &unknown);
    kv_disk_expire(f->disk, now);
    REQUIRE(!kv_disk_done(&fast));
    kv_disk_expire(f->disk, now + 2 * second);
    REQUIRE(kv_disk_done(&fast) && !kv_disk_done(&slow));
    kv_disk_expire(f->disk, now + 4 * second);
    REQUIRE(kv_disk_done(&slow) && !kv_disk_done(&unknown));
    kv_disk_expire(f->disk, now + 100 * second);
    REQUIRE(kv_disk_done(&unknown));
    REQUIRE(!kv_disk_pays(f->disk, us.tenant, CHAIN, 1e6)); /* as slow as it was */
    answer(1);
}

/* The reader that hangs is left to itself. */
static void test_ends_while_it_hangs(void **state)
{
    struct fixture *f = *state;
    uint8_t *data[CHAIN];
    hang(f, data);
    struct kv_restore r = {.scope = us.tenant, .ids = f->ids, .pages = data, .n_pages = CHAIN};
    kv_disk_ask(f->disk, &r);
    sem_wait(&reads);
    kv_disk_cancel(f->disk, &r);
    kv_disk_destroy(f->disk);
    answer(1);
    open_disk(f);
    REQUIRE_EQ_INT(restore(f, f->ids, 0, CHAIN, data), CHAIN);
}

static void test_pays(void **state)
{
    struct fixture *f = *state;
    uint8_t *data[CHAIN];
    REQUIRE(kv_disk_pays(f->disk, us.tenant, CHAIN, 0) &&
            kv_disk_pays(f->disk, us.tenant, CHAIN, 1e12)); /* unknown */
    note(f, CHAIN);
    feed(f, EXTENT_PAGES);
    for (int i = 0; i < CHAIN; i++)
        data[i] = kv_page_data(f->pages, prefix_page_get(f->cache));
    REQUIRE_EQ_INT(restore(f, f->ids, 0, CHAIN, data), CHAIN);
    REQUIRE(kv_disk_pays(f->disk, us.tenant, CHAIN, 0.001));
    int n = 0;
    while (!kv_disk_pays(f->disk, us.tenant, CHAIN, 1e9) && n < 1000)
        n++;
    REQUIRE(n > 0 && n < 1000); /* it is tried again later */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_evicted_before_it_is_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_short_chains_and_many, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cannot_write, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_banned, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_owners_take_turns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_given_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_late, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ends_while_it_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pays, set_up, tear_down),
    };
    sem_init(&reads, 0, 0);
    sem_init(&answers, 0, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
