/* SPDX-License-Identifier: MIT */
/*
 * What is fetched: commit and pages; a file's blob, resumed where a part is there, with every
 * answer to a range, wrong content, too much of it, a lock of somebody else.
 */
#include "fake_root.h"
#include "fake_transfer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/hub/fetch.h"
#include "server/hub/settings.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define CONTENT "The content of a file, in some pieces."
#define SHA1 "5ef8d7e0276486294159059bb578f890d2c57eea"
#define SHA256 "11651edba1843c8ec3f70627f9dad27c17b8a17dab5e02bfc35f8e89b093ed42"
#define BLOBS "/hub/models--org--x/blobs/"

static struct hub_settings settings;
static struct hub_name name = {.repo = "org/x", .revision = "main"};
static atomic_bool stop;
static struct hub_client client;
static struct hub_cache cache;
static struct hub_fetch fetch;
static char path[] = "model.safetensors", err[HUB_ERR_SIZE];
static int n_waits, n_retries;
static int64_t n_there, n_new;

static struct fake_answer script[8];

static struct fake_answer next_answer(const char *url, const char *range)
{
    (void)url, (void)range;
    REQUIRE(n_fake_log <= (int)N_OF(script));
    return script[n_fake_log - 1];
}

#define SCRIPT(...)                                                                                \
    do {                                                                                           \
        const struct fake_answer answers_[] = {__VA_ARGS__};                                       \
        memset(script, 0, sizeof(script));                                                         \
        memcpy(script, answers_, sizeof(answers_));                                                \
        n_fake_log = n_waits = n_retries = 0;                                                      \
        n_new = 0;                                                                                 \
        fake_hub = next_answer;                                                                    \
    } while (0)

#define BODY(s, text) .status = (s), .body = (text), .len = sizeof(text) - 1

static void note_wait(void *ctx, const char *what)
{
    (void)ctx, (void)what;
    n_waits++;
    atomic_store(&stop, true); /* or it waits for ever */
}

static void note_retry(void *ctx, const char *reason, int n_try, int wait_ms)
{
    (void)ctx, (void)reason, (void)n_try, (void)wait_ms;
    n_retries++;
}

static void note_bytes(void *ctx, const struct hub_file *f, int64_t there, int64_t new)
{
    (void)ctx, (void)f;
    n_there = there;
    n_new += new;
}

static int setup(void **state)
{
    char root[300];
    if (fake_root_make(state)) return -1;
    snprintf(root, sizeof(root), "%s/hub", fake_root);
    settings =
        (struct hub_settings){.endpoint = "https://hub.test", .first_wait_ms = 1, .umask = 022};
    transfer_url_origin(settings.endpoint, &settings.origin);
    atomic_store(&stop, false);
    client = (struct hub_client){
        .settings = &settings, .name = &name, .stop = &stop, .on_retry = note_retry};
    fetch = (struct hub_fetch){.client = &client,
                               .cache = &cache,
                               .commit = COMMIT,
                               .on_wait = note_wait,
                               .on_bytes = note_bytes};
    client.transfer = transfer_create(&client.settings->transfer);
    return !client.transfer || hub_cache_open(&cache, root, "org/x", err) ||
           hub_cache_make(&cache, err);
}

static int teardown(void **state)
{
    transfer_destroy(client.transfer);
    hub_cache_close(&cache);
    return fake_root_remove(state);
}

static struct hub_file file_of(bool is_lfs)
{
    struct hub_file f = {.path = path, .size = sizeof(CONTENT) - 1, .is_lfs = is_lfs};
    snprintf(f.etag, sizeof(f.etag), "%s", is_lfs ? SHA256 : SHA1);
    return f;
}

static int64_t size_of(const char *name_)
{
    char whole[600];
    struct stat st;
    snprintf(whole, sizeof(whole), "%s%s", fake_root, name_);
    return stat(whole, &st) ? -1 : (int64_t)st.st_size;
}

static void whole_files(void **state)
{
    char whole[600];
    struct stat st;
    (void)state;
    for (int is_lfs = 0; is_lfs < 2; is_lfs++) {
        struct hub_file f = file_of(is_lfs);
        SCRIPT({BODY(200, CONTENT)});
        REQUIRE_MSG(hub_fetch_blob(&fetch, &f, err) == 0, "%s", err);
        REQUIRE_EQ_STR(fake_log[0].url,
                       "https://hub.test/org/x/resolve/" COMMIT "/model.safetensors");
        REQUIRE_EQ_STR(fake_log[0].range, "");
        REQUIRE(hub_cache_has_blob(&cache, &f));
        REQUIRE_EQ_INT(n_there, f.size);
        REQUIRE_EQ_INT(n_new, f.size);
        SCRIPT({0});
        REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), 0);
        REQUIRE_EQ_INT(n_fake_log, 0); /* it is there */
    }
    snprintf(whole, sizeof(whole), "%s" BLOBS SHA256, fake_root);
    REQUIRE_EQ_INT(stat(whole, &st), 0);
    REQUIRE_EQ_INT(st.st_mode & 0777, 0644);
    struct hub_file f = file_of(true);
    fetch.force = true;
    SCRIPT({BODY(200, CONTENT)});
    REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), 0);
    REQUIRE_EQ_INT(n_fake_log, 1);
}

static void parts_are_continued(void **state)
{
    struct hub_file f = file_of(true);
    (void)state;
    fake_root_put(BLOBS SHA256 ".1.incomplete", "The content");
    fake_root_put(BLOBS SHA256 ".incomplete", "The");
    SCRIPT(
        {BODY(206, " of a file, in some pieces."), .headers = "Content-Range: bytes 11-37/38\n"});
    REQUIRE_MSG(hub_fetch_blob(&fetch, &f, err) == 0, "%s", err);
    REQUIRE_EQ_STR(fake_log[0].range, "bytes=11-");
    REQUIRE_EQ_INT(n_new, 27);
    REQUIRE_EQ_INT(n_there, 38);
    REQUIRE_EQ_INT(size_of(BLOBS SHA256), 38);
    REQUIRE_EQ_INT(size_of(BLOBS SHA256 ".1.incomplete"), -1);
    REQUIRE_EQ_INT(size_of(BLOBS SHA256 ".incomplete"), -1);
}

static void whole_and_overlong_parts(void **state)
{
    struct hub_file f = file_of(true);
    (void)state;
    fake_root_put(BLOBS SHA256 ".1.incomplete", CONTENT);
    SCRIPT({0});
    REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), 0);
    REQUIRE_EQ_INT(n_fake_log, 0); /* only checked */
    f = file_of(false);
    fake_root_put(BLOBS SHA1 ".1.incomplete", CONTENT "x");
    SCRIPT({BODY(200, CONTENT)});
    REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), 0);
    REQUIRE_EQ_STR(fake_log[0].range, "");
}

/* Anything but exactly the rest begins the file anew. */
static void answers_to_a_range(void **state)
{
    static const struct fake_answer odd[] = {
        {BODY(206, "rest"), .headers = "Content-Range: bytes 0-37/38\n"},
        {BODY(206, "rest"), .headers = "Content-Range: bytes 11-37/39\n"},
        {BODY(206, "rest")},
        {BODY(204, "")},
        {BODY(416, "no")},
    };
    struct hub_file f = file_of(true);
    (void)state;
    fetch.force = true;
    for (size_t i = 0; i < N_OF(odd); i++) {
        fake_root_put(BLOBS SHA256 ".1.incomplete", "The content");
        SCRIPT(odd[i], {BODY(200, CONTENT)});
        REQUIRE_MSG(hub_fetch_blob(&fetch, &f, err) == 0, "%zu: %s", i, err);
        REQUIRE_EQ_STR(fake_log[1].range, "");
        REQUIRE_EQ_INT(n_retries, 1);
    }
    fake_root_put(BLOBS SHA256 ".1.incomplete", "The content");
    SCRIPT({BODY(200, CONTENT)});
    REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), 0);
    REQUIRE_EQ_INT(n_fake_log, 1);
    fake_root_put(BLOBS SHA256 ".1.incomplete", "The content");
    SCRIPT(odd[0], odd[0], odd[0], odd[0], odd[0]);
    for (int i = 1; i < 5; i++) /* a 206 to a request of everything is as wrong */
        script[i].headers = "Content-Range: bytes 0-37/38\n";
    REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), HUB_ENETWORK);
    REQUIRE_EQ_STR(
        err, "model.safetensors: the server sent a different byte range than requested, 5 tries");
}

static void early_ends_and_too_much(void **state)
{
    struct hub_file f = file_of(true);
    (void)state;
    SCRIPT({BODY(200, "The content")}, {BODY(206, " of a file, in some pieces."),
                                        .headers = "Content-Range: bytes 11-37/38\n"});
    REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), 0);
    REQUIRE_EQ_STR(fake_log[1].range, "bytes=11-");
    fetch.force = true;
    SCRIPT({BODY(200, CONTENT " and more of it")});
    REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), 0);
    REQUIRE_EQ_INT(n_new, 38);
    for (int i = 0; i < 5; i++)
        script[i] = (struct fake_answer){BODY(200, "The content")};
    for (int i = 1; i < 5; i++)
        script[i] = (struct fake_answer){.end = TRANSFER_SLOW};
    n_fake_log = 0;
    REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), HUB_ENETWORK);
    REQUIRE_EQ_STR(err, "model.safetensors: as scripted, 5 tries");
    REQUIRE_EQ_INT(unlinkat(cache.blobs_fd, f.etag, 0), 0);
    REQUIRE_EQ_INT(hub_cache_bytes(&cache, COMMIT, &f), 11); /* kept for the next pull */
}

static void wrong_content(void **state)
{
    static const char wrong[] = "Some other content, as long as it was.";
    struct hub_file f = file_of(true);
    (void)state;
    SCRIPT({BODY(200, wrong)}, {BODY(200, CONTENT)});
    REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), 0);
    REQUIRE_EQ_INT(n_retries, 1);
    f = file_of(false);
    SCRIPT({BODY(200, wrong)}, {BODY(200, wrong)});
    REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), HUB_EWRONG);
    REQUIRE_EQ_STR(err, "model.safetensors: SHA-1 mismatch on two attempts: expected "
                        "5ef8d7e0\u2026, got bb8b5f6d\u2026");
    REQUIRE_EQ_INT(hub_cache_bytes(&cache, COMMIT, &f), 0);
    REQUIRE(!hub_cache_has_blob(&cache, &f));
}

static void locks(void **state)
{
    struct hub_file f = file_of(true);
    char whole[600];
    (void)state;
    fake_root_put("/hub/.locks/models--org--x/" SHA256 ".lock", "");
    snprintf(whole, sizeof(whole), "%s/hub/.locks/models--org--x/" SHA256 ".lock", fake_root);
    int fd = open(whole, O_RDWR);
    REQUIRE(fd >= 0 && flock(fd, LOCK_EX) == 0);
    SCRIPT({BODY(200, CONTENT)});
    REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), HUB_ESTOPPED);
    REQUIRE_EQ_INT(n_waits, 1);
    close(fd);
    atomic_store(&stop, false);
    REQUIRE_EQ_INT(hub_fetch_blob(&fetch, &f, err), 0);
    REQUIRE_EQ_INT(n_waits, 1);
}

static void into_memory(void **state)
{
    struct hub_file f = file_of(false);
    struct buf b;
    (void)state;
    buf_init(&b, 1000);
    SCRIPT({BODY(200, "wrong")}, {BODY(200, CONTENT)});
    REQUIRE_EQ_INT(hub_fetch_text(&fetch, &f, &b, err), 0);
    REQUIRE_EQ_INT(b.len, 38);
    REQUIRE_EQ_INT(n_fake_log, 2);
    SCRIPT({BODY(200, "x")}, {BODY(200, "x")});
    REQUIRE_EQ_INT(hub_fetch_text(&fetch, &f, &b, err), HUB_EWRONG);
    REQUIRE_EQ_STR(err, "model.safetensors: the content is not the one listed");
    buf_finish(&b);
    REQUIRE_EQ_INT(hub_cache_bytes(&cache, COMMIT, &f), 0);
}

/* To every request the first one. */
static struct fake_answer same_answer(const char *url, const char *range)
{
    (void)url, (void)range;
    n_fake_log = 0;
    return script[0];
}

#define PAGE(path) "[{\"type\":\"file\",\"oid\":\"" COMMIT "\",\"size\":1,\"path\":\"" path "\"}]"

static void commits_and_pages(void **state)
{
    static const char loop[] = "Link: <https://hub.test/api/models/org/x/tree/" COMMIT
                               "?recursive=true&expand=false>; rel=\"next\"\n";
    char commit[HUB_COMMIT_LEN + 1];
    struct hub_listing l = {0};
    (void)state;
    SCRIPT({BODY(200, "{\"sha\":\"" COMMIT "\"}")});
    REQUIRE_EQ_INT(hub_fetch_commit(&client, commit, err), 0);
    REQUIRE_EQ_STR(commit, COMMIT);
    REQUIRE_EQ_STR(fake_log[0].url, "https://hub.test/api/models/org/x/revision/main");
    SCRIPT({BODY(200, "{}")});
    REQUIRE_EQ_INT(hub_fetch_commit(&client, commit, err), HUB_EWRONG);
    REQUIRE_EQ_STR(err, "the answer does not name a commit; is HF_ENDPOINT a hub?");
    SCRIPT({BODY(200, PAGE("b")), .headers = "Link: </2>; rel=\"next\"\n"}, {BODY(200, PAGE("a"))});
    REQUIRE_EQ_INT(hub_fetch_listing(&client, COMMIT, &l, err), 0);
    REQUIRE_EQ_INT(l.n, 2);
    REQUIRE_EQ_STR(l.files[0].path, "a");
    REQUIRE_EQ_STR(fake_log[1].url, "https://hub.test/2");
    hub_listing_finish(&l);
    SCRIPT({BODY(200, PAGE("b")), .headers = loop});
    fake_hub = same_answer;
    REQUIRE_EQ_INT(hub_fetch_listing(&client, COMMIT, &l, err), HUB_EWRONG);
    REQUIRE_EQ_STR(err, "the hub's file list has more than 200 pages");
    hub_listing_finish(&l);
    SCRIPT({BODY(200, PAGE("b")), .headers = "Link: <bad>; rel=\"next\"\n"});
    REQUIRE_EQ_INT(hub_fetch_listing(&client, COMMIT, &l, err), HUB_EWRONG);
    REQUIRE_EQ_STR(err, "the hub's file list has an invalid next-page URL");
    hub_listing_finish(&l);
}

int main(void)
{
#define WITH_CACHE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_CACHE(whole_files),
        WITH_CACHE(parts_are_continued),
        WITH_CACHE(whole_and_overlong_parts),
        WITH_CACHE(answers_to_a_range),
        WITH_CACHE(early_ends_and_too_much),
        WITH_CACHE(wrong_content),
        WITH_CACHE(locks),
        WITH_CACHE(into_memory),
        WITH_CACHE(commits_and_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
