/* SPDX-License-Identifier: MIT */
/*
 * The steps of a pull against a fake hub: what is fetched in which order, what a second run asks
 * for, what ends it before its weights, copies used without the hub, counts and events.
 */
#include "fake_repo.h"

#include <sys/stat.h>
#include <unistd.h>

#include "server/hub/settings.h"

#define REPO "/hub/models--org--x"
#define SNAPSHOT REPO "/snapshots/" COMMIT

static struct hub_settings settings;
static struct hub_name name;
static struct hub_pull *pull;
static struct hub_progress progress;
static char err[HUB_ERR_SIZE], seen[2000];

static void note(void *ctx, const struct hub_event *e)
{
    size_t len = strlen(seen);
    (void)ctx;
    if (e->kind == HUB_PLAN)
        snprintf(seen + len, sizeof(seen) - len, "plan %d %lld/%lld; ", e->n_files,
                 (long long)e->n_bytes, (long long)e->n_total);
    else if (e->kind == HUB_FILE)
        snprintf(seen + len, sizeof(seen) - len, "%s %lld; ", e->what, (long long)e->n_total);
    else if (e->text)
        snprintf(seen + len, sizeof(seen) - len, "%s; ", e->text);
}

enum { FORCE = 1, DRY_RUN = 2, TO_SERVE = 4 };

/* Runs a pull of spec; it stays in `pull` until the next one. */
static int run(const char *spec, int flags)
{
    hub_pull_destroy(pull);
    REQUIRE_MSG(hub_pull_prepare(&settings, fake_env, err) == 0, "%s", err);
    REQUIRE_EQ_INT(hub_name_parse(&name, spec, err), 0);
    settings.first_wait_ms = 1;
    struct hub_pull_params params = {
        .settings = &settings,
        .name = &name,
        .force = flags & FORCE,
        .dry_run = flags & DRY_RUN,
        .to_serve = flags & TO_SERVE,
        .event = note,
    };
    pull = hub_pull_create(&params);
    n_fake_log = 0;
    err[0] = seen[0] = '\0';
    int rc = hub_pull_run(pull, err);
    hub_pull_progress(pull, &progress);
    return rc;
}

static int setup(void **state)
{
    fake_status = 0;
    fake_offline = NULL;
    return fake_root_make(state);
}

static int teardown(void **state)
{
    hub_pull_destroy(pull);
    pull = NULL;
    return fake_root_remove(state);
}

/* Whether fake_root has the file, with this text if one is given. */
static bool has(const char *path, const char *wanted)
{
    char whole[600], text[400] = "";
    snprintf(whole, sizeof(whole), "%s%s", fake_root, path);
    FILE *f = fopen(whole, "r");
    if (!f) return false;
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    return !wanted || strcmp(text, wanted) == 0;
}

static int requests_of(const char *part)
{
    int n = 0;
    for (int i = 0; i < n_fake_log; i++)
        n += strstr(fake_log[i].url, part) != NULL;
    return n;
}

static void a_whole_model(void **state)
{
    (void)state;
    FILES(MODEL);
    REQUIRE_MSG(run("org/x", 0) == 0, "%s", err);
    REQUIRE(has(SNAPSHOT "/config.json", REPO_CONFIG) && has(SNAPSHOT "/model.safetensors", NULL));
    REQUIRE(has(SNAPSHOT "/tokenizer.json", "{\"t\":1}") &&
            has(SNAPSHOT "/vocab.json", "{\"t\":1}"));
    REQUIRE(!has(SNAPSHOT "/README.md", NULL));
    REQUIRE(has(REPO "/refs/main", COMMIT) && has(REPO "/trees/" COMMIT ".json", NULL));
    REQUIRE_MSG(strstr(hub_pull_snapshot(pull), SNAPSHOT), "%s", hub_pull_snapshot(pull));
    REQUIRE_EQ_INT(n_fake_log, 5); /* equal content comes once */
    REQUIRE_MSG(strstr(fake_log[2].url, "config.json"), "%s", fake_log[2].url);
    REQUIRE_EQ_INT(progress.n_bytes, strlen(REPO_CONFIG) + 7 + 20);
    REQUIRE_EQ_INT(progress.n_total, progress.n_bytes);
    REQUIRE_EQ_INT(progress.n_fetched, progress.n_bytes);
    REQUIRE_EQ_INT(hub_progress_percent(&progress), 100);
    REQUIRE_EQ_INT(hub_pull_kept_percent(pull), 100);
    REQUIRE_MSG(strncmp(seen, "config.json", 11) == 0 && strstr(seen, "plan 4 ") &&
                    strstr(seen, "vocab.json 7; "),
                "%s", seen);
}

static void a_second_pull(void **state)
{
    char path[600];
    (void)state;
    FILES(MODEL);
    REQUIRE_EQ_INT(run("org/x", 0), 0);
    REQUIRE_EQ_INT(run("org/x", 0), 0);
    REQUIRE_EQ_INT(n_fake_log, 1);
    REQUIRE_EQ_INT(progress.n_fetched, 0);
    REQUIRE_EQ_INT(progress.n_bytes, progress.n_total);
    REQUIRE_EQ_INT(run("org/x@" COMMIT, 0), 0);
    REQUIRE_EQ_INT(n_fake_log, 0);
    REQUIRE_EQ_INT(run("org/x@v1", 0), 0);
    REQUIRE_EQ_INT(n_fake_log, 1);
    REQUIRE(has(REPO "/refs/v1", COMMIT));
    snprintf(path, sizeof(path), "%s" SNAPSHOT "/model.safetensors", fake_root);
    REQUIRE_EQ_INT(unlink(path), 0);
    REQUIRE_EQ_INT(run("org/x", 0), 0); /* the blob is there, the link is not */
    REQUIRE_EQ_INT(requests_of("/tree/"), 0);
    REQUIRE_EQ_INT(progress.n_fetched, 0);
    REQUIRE(has(SNAPSHOT "/model.safetensors", NULL));
    REQUIRE_EQ_INT(run("org/x", FORCE), 0);
    REQUIRE_EQ_INT(n_fake_log, 5);
    REQUIRE_EQ_INT(progress.n_fetched, progress.n_total);
}

static void shards(void **state)
{
    (void)state;
    FILES({"config.json", REPO_CONFIG}, {"tokenizer.json", "{}"}, {"1.safetensors", "one"},
          {"2.safetensors", "two"}, {"3.safetensors", "not named"},
          {"model.safetensors.index.json",
           "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}"});
    REQUIRE_MSG(run("org/x", 0) == 0, "%s", err);
    REQUIRE(has(SNAPSHOT "/1.safetensors", "one") && has(SNAPSHOT "/2.safetensors", "two"));
    REQUIRE(!has(SNAPSHOT "/3.safetensors", NULL));
    REQUIRE_EQ_INT(run("org/x", 0), 0);
    REQUIRE_EQ_INT(n_fake_log, 1);
    fake_offline = "1";
    REQUIRE_EQ_INT(run("org/x", 0), 0);
}

static void ends_before_any_weight(void **state)
{
    (void)state;
    FILES({"config.json", "{\"architectures\":[\"WhisperForConditionalGeneration\"]}"},
          {"tokenizer.json", "{}"}, {"model.safetensors", "x"});
    REQUIRE_EQ_INT(run("org/x", 0), HUB_ENOTSERVED);
    REQUIRE_MSG(strstr(err, "org/x: ") && strstr(err, "WhisperForConditionalGeneration"), "%s",
                err);
    REQUIRE_EQ_INT(requests_of("model.safetensors"), 0);
    REQUIRE(!has(REPO "/refs/main", NULL));
    FILES({"config.json", REPO_CONFIG}, {"tokenizer.json", "{}"},
          {"model.safetensors.index.json", "{\"weight_map\":{\"a\":\"1.safetensors\"}}"});
    REQUIRE_EQ_INT(run("org/x", FORCE), HUB_EWRONG);
    REQUIRE_MSG(strstr(err, "names 1.safetensors, which the hub does not list"), "%s", err);
    FILES({"config.json", REPO_CONFIG});
    REQUIRE_EQ_INT(run("org/x", FORCE), HUB_ENOTSERVED);
}

static void list(void *ctx, const struct hub_file *f, bool cached)
{
    snprintf(seen + strlen(seen), 100, "%s %s; ", f->path, cached ? "cached" : "missing");
    (void)ctx;
}

static void dry_runs(void **state)
{
    (void)state;
    FILES(MODEL);
    REQUIRE_MSG(run("org/x", DRY_RUN) == 0, "%s", err);
    REQUIRE(!has("/hub/CACHEDIR.TAG", NULL));
    REQUIRE_EQ_INT(hub_pull_kept_percent(pull), 0);
    hub_pull_visit(pull, list, NULL);
    REQUIRE_EQ_STR(seen, "config.json missing; model.safetensors missing; tokenizer.json missing; "
                         "vocab.json missing; ");
    REQUIRE_EQ_INT(run("org/x", 0), 0);
    REQUIRE_EQ_INT(run("org/x", DRY_RUN), 0);
    hub_pull_visit(pull, list, NULL);
    REQUIRE_MSG(strstr(seen, "config.json cached") && !strstr(seen, "missing"), "%s", seen);
}

static void without_the_hub(void **state)
{
    (void)state;
    FILES(MODEL);
    fake_offline = "1";
    REQUIRE_EQ_INT(run("org/x", 0), HUB_ENETWORK);
    REQUIRE_EQ_STR(err, "offline (HF_HUB_OFFLINE), and org/x is not in the cache");
    fake_offline = NULL;
    REQUIRE_EQ_INT(run("org/x", 0), 0);
    fake_status = -1;
    REQUIRE_EQ_INT(run("org/x", TO_SERVE), 0);
    REQUIRE_EQ_INT(n_fake_log, 1); /* one short try: there is a copy */
    REQUIRE_MSG(strstr(seen, "as scripted; the hub cannot be reached; serving the copy of 2"), "%s",
                seen);
    REQUIRE(progress.n_total == 0 && strstr(hub_pull_snapshot(pull), SNAPSHOT));
    REQUIRE_EQ_INT(run("org/x", 0), HUB_ENETWORK);
    REQUIRE_EQ_INT(n_fake_log, 5);
    REQUIRE_MSG(strstr(seen, "try 5 follows in"), "%s", seen);
    REQUIRE_EQ_INT(run("org/x@v9", TO_SERVE), HUB_ENETWORK);
    REQUIRE(!strstr(seen, "serving"));
    fake_offline = "1";
    REQUIRE_EQ_INT(run("org/x", 0), 0);
    REQUIRE_EQ_INT(n_fake_log, 0);
    REQUIRE_EQ_INT(run("org/x@v9", 0), HUB_ENETWORK);
    REQUIRE_EQ_STR(err, "offline (HF_HUB_OFFLINE), and org/x is not complete in the cache");
}

static void parts_count(void **state)
{
    char etag[41], path[200];
    (void)state;
    FILES(MODEL);
    fake_etag("weights of the model", etag);
    snprintf(path, sizeof(path), REPO "/blobs/%s.1.incomplete", etag);
    fake_root_put(path, "weights of");
    fake_files[3].content = "weights of the model";
    REQUIRE_EQ_INT(run("org/x", 0), 0);
    REQUIRE_EQ_INT(progress.n_bytes, progress.n_total);
    /* This hub sends all from the start: what comes twice is fetched, but not more than there is. */
    REQUIRE_EQ_INT(progress.n_fetched, progress.n_total);
    snprintf(path, sizeof(path), "plan 4 %zu/%zu; ", strlen(REPO_CONFIG) + 10,
             strlen(REPO_CONFIG) + 27);
    REQUIRE_MSG(strstr(seen, path), "%s: %s", path, seen);
}

static void a_stopped_pull(void **state)
{
    (void)state;
    FILES(MODEL);
    REQUIRE_EQ_INT(hub_pull_prepare(&settings, fake_env, err), 0);
    REQUIRE_EQ_INT(hub_name_parse(&name, "org/x", err), 0);
    struct hub_pull_params params = {.settings = &settings, .name = &name, .event = note};
    pull = hub_pull_create(&params);
    fake_status = 503;
    hub_pull_stop(pull);
    REQUIRE_EQ_INT(hub_pull_run(pull, err), HUB_ESTOPPED);
}

int main(void)
{
#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        ON_DISK(a_whole_model), ON_DISK(a_second_pull),
        ON_DISK(shards),        ON_DISK(ends_before_any_weight),
        ON_DISK(dry_runs),      ON_DISK(without_the_hub),
        ON_DISK(parts_count),   ON_DISK(a_stopped_pull),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
