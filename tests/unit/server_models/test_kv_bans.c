/* SPDX-License-Identifier: MIT */
/* Banned owners of pages: what is removed, when, and how long they stay banned. */
#include "server/models/kv_bans.h"

#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "engine/engine.h"
#include "server/config/config.h"
#include "test.h"

enum { N_VISITS = 64 };

static const uint8_t owner_a[ENG_KV_OWNER] = "owner a", owner_b[ENG_KV_OWNER] = "owner b";

/* The directories: what is asked of them, and whether they let files be removed. */
static struct {
    char dir[N_VISITS][8];
    uint8_t owner[N_VISITS][ENG_KV_OWNER];
    atomic_int n;
    atomic_bool fails;
    sem_t visited;
} disk;

int __wrap_eng_kv_visit(const char *dir, const uint8_t *owner,
                        bool (*visit)(void *ctx, const struct eng_kv_file *file), void *ctx,
                        char *err, size_t errlen);

int __wrap_eng_kv_visit(const char *dir, const uint8_t *owner,
                        bool (*visit)(void *ctx, const struct eng_kv_file *file), void *ctx,
                        char *err, size_t errlen)
{
    struct eng_kv_file file = {.sound = true};
    int i = disk.n % N_VISITS;
    memcpy(file.owner, owner, ENG_KV_OWNER);
    REQUIRE(visit(ctx, &file));
    file.owner[ENG_KV_OWNER - 1]++;
    REQUIRE(!visit(ctx, &file)); /* another's, in the same folder */
    snprintf(disk.dir[i], sizeof(disk.dir[i]), "%s", dir);
    memcpy(disk.owner[i], owner, ENG_KV_OWNER);
    bool fails = disk.fails;
    disk.n++;
    sem_post(&disk.visited);
    snprintf(err, errlen, "a test");
    return fails ? ENG_EIO : 0;
}

static struct srv_kv_bans *open_bans(const struct srv_config *config)
{
    struct srv_kv_bans *b;
    char err[300] = "";
    disk.n = 0;
    disk.fails = false;
    sem_init(&disk.visited, 0, 0);
    REQUIRE_MSG(srv_kv_bans_create(&b, config, err, sizeof(err)) == 0, "%s", err);
    return b;
}

static bool was(int i, const char *dir, const uint8_t *owner)
{
    return strcmp(disk.dir[i], dir) == 0 && memcmp(disk.owner[i], owner, ENG_KV_OWNER) == 0;
}

static void every_directory_once(void **state)
{
    struct srv_config more[] = {{.kv_disk = "x"}, {.kv_disk = NULL}, {.kv_disk = "y"}};
    const struct srv_config config = {
        .kv_disk = "x", .api_key_file = "keys", .more = more, .n_more = 3};
    struct srv_kv_bans *b = open_bans(&config);
    (void)state;
    srv_kv_ban(b, owner_a, true);
    REQUIRE(srv_kv_is_banned(b, owner_a) && !srv_kv_is_banned(b, owner_b));
    srv_kv_bans_destroy(b);
    REQUIRE(disk.n == 2 && was(0, "x", owner_a) && was(1, "y", owner_a));
}

static void nothing_to_erase(void **state)
{
    const struct srv_config no_disk = {.api_key_file = "keys"}, no_file = {.kv_disk = "x"};
    (void)state;
    REQUIRE(!open_bans(&no_disk) && !open_bans(&no_file));
    srv_kv_ban(NULL, owner_a, true);
    srv_kv_bans_destroy(NULL);
}

/* What cannot be removed is tried again, and a key that is back waits for it. */
static void until_it_is_done(void **state)
{
    const struct srv_config config = {.kv_disk = "x", .api_key_file = "keys"};
    struct srv_kv_bans *b = open_bans(&config);
    (void)state;
    disk.fails = true;
    srv_kv_ban(b, owner_a, true);
    sem_wait(&disk.visited);
    srv_kv_ban(b, owner_b, true);
    srv_kv_ban(b, owner_a, false);
    for (bool both = false; !both;) {
        sem_wait(&disk.visited);
        both = was(disk.n - 1, "x", owner_b); /* it has its turn */
    }
    REQUIRE(srv_kv_is_banned(b, owner_a) && srv_kv_is_banned(b, owner_b));
    disk.fails = false;
    srv_kv_ban(b, owner_b, true);
    while (srv_kv_is_banned(b, owner_a))
        sched_yield();
    REQUIRE(srv_kv_is_banned(b, owner_b));
    srv_kv_bans_destroy(b);
}

static void a_key_comes_back(void **state)
{
    const struct srv_config config = {.kv_disk = "x", .api_key_file = "keys"};
    struct srv_kv_bans *b = open_bans(&config);
    (void)state;
    for (int i = 0; i < 3; i++) {
        srv_kv_ban(b, owner_a, true);
        REQUIRE(srv_kv_is_banned(b, owner_a));
        srv_kv_ban(b, owner_a, false);
        while (srv_kv_is_banned(b, owner_a))
            sched_yield();
    }
    srv_kv_bans_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_directory_once),
        cmocka_unit_test(nothing_to_erase),
        cmocka_unit_test(until_it_is_done),
        cmocka_unit_test(a_key_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
