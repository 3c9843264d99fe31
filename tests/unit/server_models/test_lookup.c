/* SPDX-License-Identifier: MIT */
/* Looking up models: directories, the Hugging Face cache, names that must not become paths. */
#include "test.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/models/lookup.h"

#define COMMIT_A "0123456789012345678901234567890123456789"
#define COMMIT_B "abcdefabcdefabcdefabcdefabcdefabcdefabcd"

static char root[64];
static const char *variable;

static const char *fake_env(const char *name)
{
    return variable && strcmp(name, variable) == 0 ? root : NULL;
}

static void make_dir(const char *below)
{
    char path[PATH_MAX], *p;
    snprintf(path, sizeof(path), "%s/%s/", root, below);
    for (p = path + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(path, 0700);
        *p = '/';
    }
}

static void make_file(const char *below, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", root, below);
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL);
    fputs(text, f);
    fclose(f);
}

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/test_hub_XXXXXX");
    if (!mkdtemp(root)) return -1;
    make_dir("models--org--name/snapshots/" COMMIT_A);
    make_dir("models--org--name/snapshots/" COMMIT_B);
    make_dir("models--org--name/refs/refs/pr");
    make_file("models--org--name/refs/main", COMMIT_A);
    make_file("models--org--name/refs/dev", COMMIT_B "\n");
    make_file("models--org--name/refs/refs/pr/1", COMMIT_B);
    make_file("models--org--name/refs/broken", "../../../etc");
    make_dir("models--bare/snapshots/" COMMIT_B);
    make_file("models--bare/snapshots/" COMMIT_B "/config.json", "{}");
    make_file("models--bare/snapshots/" COMMIT_B "/model.safetensors", "x");
    make_dir("models--half/snapshots/" COMMIT_B);
    make_file("models--half/snapshots/" COMMIT_B "/config.json", "{}");
    make_file("models--half/snapshots/" COMMIT_B "/model.safetensors.index.json",
              "{\"weight_map\": {\"a\": \"m-1.safetensors\"}}");
    make_dir("hub/models--a--b/snapshots/" COMMIT_A);
    make_dir("hub/models--a--b/refs");
    make_file("hub/models--a--b/refs/main", COMMIT_A);
    make_file("plain", "x");
    make_dir("models--old/snapshots/" COMMIT_B);
    make_dir("models--old/trees");
    make_dir("models--old/refs");
    make_file("models--old/refs/main", COMMIT_B);
    make_file("models--old/trees/" COMMIT_B ".json",
              "{\"format_version\": 1, \"files\": {\"modules.json\": {\"size\": 2, \"blob_id\": "
              "\"" COMMIT_A "\"}}}");
    return 0;
}

static int teardown(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    FILE *p = popen(command, "r");
    return p ? pclose(p) : -1;
}

static void lookups(void **state)
{
    static const struct {
        const char *variable, *spec, *wanted; /* below the root; NULL: refused */
    } cases[] = {
        {"HF_HUB_CACHE", "org/name", "models--org--name/snapshots/" COMMIT_A},
        {"HUGGINGFACE_HUB_CACHE", "org/name", "models--org--name/snapshots/" COMMIT_A},
        {"HF_HUB_CACHE", "org/name@dev", "models--org--name/snapshots/" COMMIT_B},
        {"HF_HUB_CACHE", "org/name@refs/pr/1", "models--org--name/snapshots/" COMMIT_B},
        {"HF_HUB_CACHE", "org/name@" COMMIT_B, "models--org--name/snapshots/" COMMIT_B},
        {"HF_HUB_CACHE", "bare", "models--bare/snapshots/" COMMIT_B},
        {"HF_HUB_CACHE", "half", NULL},
        {"HF_HOME", "a/b", "hub/models--a--b/snapshots/" COMMIT_A},
        {"HF_HUB_CACHE", "org/name@missing", NULL},
        {"HF_HUB_CACHE", "org/name@broken", NULL},
        {"HF_HUB_CACHE", "org/other", NULL},
        {"HF_HUB_CACHE", "org/name/more", NULL},
        {"HF_HUB_CACHE", "../etc", NULL},
        {"HF_HUB_CACHE", "org/..", NULL},
        {"HF_HUB_CACHE", "org/name@../../x", NULL},
        {"HF_HUB_CACHE", "org/na\nme", NULL},
        {"HF_HUB_CACHE", "", NULL},
        {"HF_HUB_CACHE", "/nonexistent", NULL},
        {NULL, "org/name", NULL},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char dir[PATH_MAX] = "", wanted[PATH_MAX], err[800] = "";
        variable = cases[i].variable;
        int rc = srv_hub_resolve(cases[i].spec, fake_env, dir, sizeof(dir), err, sizeof(err));
        REQUIRE_MSG((rc == 0) == (cases[i].wanted != NULL), "%s: %s", cases[i].spec, err);
        if (!cases[i].wanted) {
            REQUIRE(err[0]);
            continue;
        }
        snprintf(wanted, sizeof(wanted), "%s/%s", root, cases[i].wanted);
        REQUIRE_EQ_STR(dir, wanted);
    }
}

static void directories_and_files(void **state)
{
    char dir[PATH_MAX], path[PATH_MAX], err[800];
    (void)state;
    REQUIRE_EQ_INT(srv_hub_resolve(root, fake_env, dir, sizeof(dir), err, sizeof(err)), 0);
    REQUIRE_EQ_STR(dir, root);
    snprintf(path, sizeof(path), "%s/plain", root);
    REQUIRE(srv_hub_resolve(path, fake_env, dir, sizeof(dir), err, sizeof(err)) < 0);
    REQUIRE(strstr(err, "is a file") != NULL);
}

static void names_of_carried_models(void **state)
{
    static const char *const carried[] = {"demo", "demo-embed", "demo-rerank"};
    static const char *const others[] = {"", "demo-", "demo-embed2", "org/demo", "hearth-demo"};
    char dir[PATH_MAX], err[800] = "", before[PATH_MAX];
    (void)state;
    for (size_t i = 0; i < N_OF(carried); i++)
        REQUIRE_MSG(srv_hub_is_carried(carried[i]), "%s", carried[i]);
    for (size_t i = 0; i < N_OF(others); i++)
        REQUIRE_MSG(!srv_hub_is_carried(others[i]), "%s", others[i]);
    REQUIRE_EQ_INT(srv_hub_find_carried("demo-none", dir, sizeof(dir), err, sizeof(err)), -1);
    REQUIRE(strstr(err, "'demo-none' is not installed") != NULL);
    /* a directory of that name is meant before the model */
    make_dir("demo-embed");
    REQUIRE(getcwd(before, sizeof(before)) && chdir(root) == 0);
    REQUIRE(!srv_hub_is_carried("demo-embed") && srv_hub_is_carried("demo-rerank"));
    REQUIRE_EQ_INT(srv_hub_resolve("demo-embed", fake_env, dir, sizeof(dir), err, sizeof(err)), 0);
    REQUIRE_EQ_STR(dir, "demo-embed");
    REQUIRE_EQ_INT(chdir(before), 0);
}

static void shown_names(void **state)
{
    char path[PATH_MAX], name[200];
    (void)state;
    REQUIRE_EQ_STR(srv_hub_model_name("org/name", name, sizeof(name)), "org/name");
    REQUIRE_EQ_STR(srv_hub_model_name("org/name@dev", name, sizeof(name)), "org/name");
    snprintf(path, sizeof(path), "%s/hub/", root);
    REQUIRE_EQ_STR(srv_hub_model_name(path, name, sizeof(name)), "hub");
    snprintf(path, sizeof(path), "%s/models--org--name/snapshots/" COMMIT_A, root);
    REQUIRE_EQ_STR(srv_hub_model_name(path, name, sizeof(name)), "org/name");
}

/* A snapshot of a version that fetched no modules is not the model that its repository has. */
static void snapshots_without_their_modules(void **state)
{
    char dir[PATH_MAX], err[800] = "";
    (void)state;
    variable = "HF_HUB_CACHE";
    REQUIRE(srv_hub_resolve("old", fake_env, dir, sizeof(dir), err, sizeof(err)) < 0);
    REQUIRE_MSG(strstr(err, "`hearth pull old` completes it"), "%s", err);
    make_file("models--old/snapshots/" COMMIT_B "/modules.json", "[]");
    REQUIRE_EQ_INT(srv_hub_resolve("old", fake_env, dir, sizeof(dir), err, sizeof(err)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookups),
        cmocka_unit_test(directories_and_files),
        cmocka_unit_test(snapshots_without_their_modules),
        cmocka_unit_test(names_of_carried_models),
        cmocka_unit_test(shown_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
