/* SPDX-License-Identifier: MIT */
/* The cache on disk: its layout, references, links, parts, what is refused, whole snapshots. */
#include "fake_root.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "server/hub/cache.h"
#include "server/hub/settings.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define REPO "/hub/models--org--x"
#define SNAPSHOT REPO "/snapshots/" COMMIT

static char err[HUB_ERR_SIZE];

static struct hub_cache open_cache(void)
{
    char root[300];
    struct hub_cache c;
    snprintf(root, sizeof(root), "%s/hub", fake_root);
    REQUIRE_MSG(hub_cache_open(&c, root, "org/x", err) == 0, "%s", err);
    return c;
}

static struct hub_file file_of(char *path, int64_t size)
{
    return (struct hub_file){
        .path = path, .size = size, .etag = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4"};
}

static const char *text_at(const char *path)
{
    static char text[400];
    char whole[600];
    snprintf(whole, sizeof(whole), "%s%s", fake_root, path);
    FILE *f = fopen(whole, "r");
    if (!f) return "";
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void layout(void **state)
{
    struct hub_cache c = open_cache();
    char path[600], commit[HUB_COMMIT_LEN + 1];
    struct hub_listing l = {0};
    static const char tree[] = "{\"format_version\": 1, \"files\": {\"a\": {\"size\": 2, "
                               "\"blob_id\": \"" COMMIT "\"}}}";
    (void)state;
    REQUIRE_EQ_INT(c.repo_fd, -1);
    REQUIRE_EQ_INT(hub_cache_read_ref(&c, "main", commit), -1);
    REQUIRE_EQ_INT(hub_cache_read_tree(&c, COMMIT, true, &l), -1);
    REQUIRE_EQ_INT(hub_cache_free_bytes(&c), -1);
    REQUIRE_MSG(hub_cache_make(&c, err) == 0, "%s", err);
    REQUIRE(hub_cache_free_bytes(&c) > 0);
    REQUIRE(c.repo_fd >= 0 && c.blobs_fd >= 0);
    REQUIRE_MSG(strncmp(text_at("/hub/CACHEDIR.TAG"),
                        "Signature: 8a477f597d28d172789f06886806bc55\n# This", 50) == 0,
                "tag");
    REQUIRE_EQ_INT(hub_cache_snapshot_path(&c, COMMIT, NULL, path, sizeof(path)), 0);
    REQUIRE_MSG(strstr(path, SNAPSHOT), "%s", path);
    REQUIRE_EQ_INT(hub_cache_snapshot_path(&c, COMMIT, NULL, path, 20), -1);
    REQUIRE_EQ_INT(hub_cache_write_ref(&c, "refs/pr/1", COMMIT, err), 0);
    REQUIRE_EQ_STR(text_at(REPO "/refs/refs/pr/1"), COMMIT);
    REQUIRE_EQ_INT(hub_cache_read_ref(&c, "refs/pr/1", commit), 0);
    REQUIRE_EQ_STR(commit, COMMIT);
    fake_root_put(REPO "/refs/odd", "../../../etc");
    REQUIRE_EQ_INT(hub_cache_read_ref(&c, "odd", commit), -1);
    REQUIRE_EQ_INT(hub_cache_write_tree(&c, COMMIT, "{}", 2, err), 0);
    fake_root_put(SNAPSHOT "/b/c", "1234");
    fake_root_put(SNAPSHOT "/.d", "");
    REQUIRE_EQ_INT(hub_cache_read_tree(&c, COMMIT, false, &l), -1);
    REQUIRE_EQ_INT(hub_cache_read_tree(&c, COMMIT, true, &l), 0);
    REQUIRE(l.n == 1 && !strcmp(l.files[0].path, "b/c") && l.files[0].size == 4);
    hub_listing_finish(&l);
    REQUIRE_EQ_INT(hub_cache_write_tree(&c, COMMIT, tree, sizeof(tree) - 1, err), 0);
    REQUIRE_EQ_INT(hub_cache_read_tree(&c, COMMIT, true, &l), 0);
    REQUIRE(l.n == 1 && !strcmp(l.files[0].path, "a") && l.files[0].size == 2);
    hub_listing_finish(&l);
    hub_cache_close(&c);
    REQUIRE(c.root_fd == -1 && c.repo_fd == -1 && c.blobs_fd == -1);
}

static void links(void **state)
{
    char deep_path[] = "1_Pooling/a/config.json", path[] = "config.json", target[200] = "",
         whole[400];
    struct hub_file deep = file_of(deep_path, 3), f = file_of(path, 3);
    struct hub_cache c = open_cache();
    size_t len;
    (void)state;
    REQUIRE_EQ_INT(hub_cache_make(&c, err), 0);
    REQUIRE(!hub_cache_has_blob(&c, &f) && !hub_cache_has(&c, COMMIT, &f));
    fake_root_put(REPO "/blobs/e3b0c44298fc1c149afbf4c8996fb92427ae41e4", "abc");
    REQUIRE(hub_cache_has_blob(&c, &f) && !hub_cache_has(&c, COMMIT, &f));
    REQUIRE_EQ_INT(hub_cache_link(&c, COMMIT, &f, false, err), 0);
    REQUIRE_EQ_INT(hub_cache_link(&c, COMMIT, &deep, true, err), 0);
    REQUIRE_EQ_INT(hub_cache_link(&c, COMMIT, &deep, true, err), 0);
    REQUIRE(hub_cache_has(&c, COMMIT, &f) && hub_cache_has(&c, COMMIT, &deep));
    snprintf(whole, sizeof(whole), "%s" SNAPSHOT "/1_Pooling/a/config.json", fake_root);
    REQUIRE(readlink(whole, target, sizeof(target) - 1) > 0);
    REQUIRE_EQ_STR(target, "../../../../blobs/e3b0c44298fc1c149afbf4c8996fb92427ae41e4");
    char *text = hub_cache_read(&c, COMMIT, deep_path, 3, &len);
    REQUIRE_EQ_STR(text, "abc");
    REQUIRE_EQ_INT(len, 3);
    free(text);
    REQUIRE(!hub_cache_read(&c, COMMIT, deep_path, 2, &len));
    f.size = 4;
    REQUIRE(!hub_cache_has_blob(&c, &f) && !hub_cache_has(&c, COMMIT, &f));
    REQUIRE_EQ_INT(hub_cache_sync(&c, COMMIT, err), 0);
    hub_cache_close(&c);
}

static void note_part(void *ctx, const char *name, int64_t n_bytes)
{
    char *text = ctx;
    snprintf(text + strlen(text), 200, "%s=%lld ", name + 40, (long long)n_bytes);
}

static void parts(void **state)
{
    char path[] = "x", seen[600] = "";
    struct hub_file f = file_of(path, 5);
    struct hub_cache c = open_cache();
    (void)state;
    REQUIRE_EQ_INT(hub_cache_bytes(&c, COMMIT, &f), 0);
    REQUIRE_EQ_INT(hub_cache_make(&c, err), 0);
    fake_root_put(REPO "/blobs/e3b0c44298fc1c149afbf4c8996fb92427ae41e4.01234567.incomplete",
                  "abc");
    hub_cache_visit_parts(&c, &f, note_part, seen);
    REQUIRE_EQ_STR(seen, ".01234567.incomplete=3 ");
    fake_root_put(REPO "/blobs/e3b0c44298fc1c149afbf4c8996fb92427ae41e4.incomplete", "a");
    fake_root_put(REPO "/blobs/e3b0c44298fc1c149afbf4c8996fb92427ae41e4.1.incomplete", "longer");
    fake_root_put(REPO "/blobs/e3b0c44298fc1c149afbf4c8996fb92427ae41e4.tmp", "abcde");
    fake_root_put(REPO "/blobs/03b0c44298fc1c149afbf4c8996fb92427ae41e4.1.incomplete", "abcd");
    REQUIRE_EQ_INT(hub_cache_bytes(&c, COMMIT, &f), 3);
    f.size = 6;
    REQUIRE_EQ_INT(hub_cache_bytes(&c, COMMIT, &f), 6);
    hub_cache_close(&c);
}

static void links_in_place_of_folders(void **state)
{
    char path[400], root[300];
    struct hub_cache c = open_cache();
    (void)state;
    fake_root_put("/elsewhere/x", "");
    fake_root_put(REPO "/snapshots/x", "");
    snprintf(path, sizeof(path), "%s" REPO "/refs", fake_root);
    REQUIRE_EQ_INT(symlink("../../elsewhere", path), 0);
    REQUIRE_EQ_INT(hub_cache_make(&c, err), HUB_EDISK);
    REQUIRE_MSG(strstr(err, "models--org--x/refs is not a folder (links are not followed here)"),
                "%s", err);
    hub_cache_close(&c);
    snprintf(path, sizeof(path), "%s" REPO "/blobs", fake_root);
    REQUIRE_EQ_INT(rmdir(path), 0);
    REQUIRE_EQ_INT(symlink("../../elsewhere", path), 0);
    snprintf(root, sizeof(root), "%s/hub", fake_root);
    REQUIRE_EQ_INT(hub_cache_open(&c, root, "org/x", err), HUB_EDISK);
    REQUIRE_MSG(strstr(err, "/blobs is not a folder"), "%s", err);
    REQUIRE_EQ_INT(c.root_fd, -1);
}

static void whole_snapshots(void **state)
{
    static const struct hub_name main_branch = {.revision = "main"};
    char commit[HUB_COMMIT_LEN + 1], path[300];
    struct hub_cache c;
    (void)state;
    fake_root_put(SNAPSHOT "/config.json", "{}");
    c = open_cache();
    REQUIRE_EQ_INT(hub_cache_find_commit(&c, &main_branch, commit), -1);
    fake_root_put(SNAPSHOT "/model.safetensors.index.json",
                  "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}");
    fake_root_put(SNAPSHOT "/1.safetensors", "x");
    REQUIRE_EQ_INT(hub_cache_find_commit(&c, &main_branch, commit), -1);
    fake_root_put(SNAPSHOT "/2.safetensors", "x");
    REQUIRE_EQ_INT(hub_cache_find_commit(&c, &main_branch, commit), 0);
    REQUIRE_EQ_STR(commit, COMMIT);
    snprintf(path, sizeof(path), "%s" SNAPSHOT, fake_root);
    REQUIRE(hub_snapshot_is_whole(AT_FDCWD, path));
    fake_root_put(REPO "/snapshots/not-a-commit/config.json", "{}");
    REQUIRE_EQ_INT(hub_cache_find_commit(&c, &main_branch, commit), 0);
    fake_root_put(REPO "/snapshots/abcdefabcdefabcdefabcdefabcdefabcdefabcd/model.safetensors",
                  "x");
    REQUIRE_EQ_INT(hub_cache_find_commit(&c, &main_branch, commit), -1);
    REQUIRE(
        !hub_snapshot_is_whole(c.repo_fd, "snapshots/abcdefabcdefabcdefabcdefabcdefabcdefabcd"));
    hub_cache_close(&c);
}

static void sentences(void **state)
{
    struct hub_cache c = {.root = "/c"};
    char digits[9];
    (void)state;
    errno = ENOSPC;
    REQUIRE_EQ_INT(hub_cache_cannot(&c, "write", err), HUB_EDISK);
    REQUIRE_EQ_STR(err, "no space left in /c (No space left on device)");
    errno = EROFS;
    hub_cache_cannot(&c, "write", err);
    REQUIRE_EQ_STR(err, "cannot write /c: read-only file system");
    hub_random_digits(digits);
    REQUIRE_EQ_INT(strspn(digits, "0123456789abcdef"), 8);
}

int main(void)
{
#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, fake_root_make, fake_root_remove)
    const struct CMUnitTest tests[] = {
        ON_DISK(layout),          ON_DISK(links),
        ON_DISK(parts),           ON_DISK(links_in_place_of_folders),
        ON_DISK(whole_snapshots), cmocka_unit_test(sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
