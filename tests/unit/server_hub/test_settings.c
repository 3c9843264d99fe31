/* SPDX-License-Identifier: MIT */
/* Names of models and revisions, addresses, folders of the cache, and the environment. */
#include "fake_transfer.h"

#include <limits.h>
#include <unistd.h>

#include "server/hub/settings.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static char err[HUB_ERR_SIZE];

static void names(void **state)
{
    static const char *const good[] = {"org/name",   "name",  "a/b",
                                       "A-b.c_d/x1", "_x/y_", "org/x.gitx"};
    static const char *const bad[] = {"",     "a/b/c",  "/a",        "a/",      "-a/b",
                                      "a/b-", "a..b/c", "a--b/c",    "a/b.git", "a b/c",
                                      "a/.b", "../x",   "a/\xc3\xa4"};
    static const char *const bad_revisions[] = {"",       "-x",   "a..b", "a b",  "/a",
                                                "a/",     "a//b", ".a",   "a.",   "a~b",
                                                "a.lock", "a@{b", "@",    "a\x7f"};
    char longest[200], spec[300];
    struct hub_name n;
    (void)state;
    for (size_t i = 0; i < N_OF(good); i++) {
        REQUIRE_MSG(hub_name_parse(&n, good[i], err) == 0, "%s: %s", good[i], err);
        REQUIRE_EQ_STR(n.repo, good[i]);
        REQUIRE_EQ_STR(n.revision, "main");
        REQUIRE(!n.has_revision && !n.is_commit);
    }
    for (size_t i = 0; i < N_OF(bad); i++)
        REQUIRE_MSG(hub_name_parse(&n, bad[i], err) == HUB_EUSAGE, "%s", bad[i]);
    for (size_t i = 0; i < N_OF(bad_revisions); i++) {
        snprintf(spec, sizeof(spec), "org/name@%s", bad_revisions[i]);
        REQUIRE_MSG(hub_name_parse(&n, spec, err) == HUB_EUSAGE, "%s", spec);
        REQUIRE_MSG(strstr(err, "is not a revision"), "%s", err);
    }
    memset(longest, 'x', sizeof(longest));
    longest[96] = '\0';
    REQUIRE_EQ_INT(hub_name_parse(&n, longest, err), 0);
    longest[96] = 'x';
    longest[97] = '\0';
    REQUIRE_EQ_INT(hub_name_parse(&n, longest, err), HUB_EUSAGE);
    REQUIRE_EQ_INT(hub_name_parse(&n, "org/name@refs/pr/1", err), 0);
    REQUIRE_EQ_STR(n.repo, "org/name");
    REQUIRE_EQ_STR(n.revision, "refs/pr/1");
    REQUIRE(n.has_revision && !n.is_commit);
    REQUIRE_EQ_INT(hub_name_parse(&n, "name@" COMMIT, err), 0);
    REQUIRE(n.is_commit);
    REQUIRE_EQ_STR(n.tag, "");
    REQUIRE_EQ_INT(hub_name_parse(&n, "org/name:UD-Q4_K.M@dev", err), 0);
    REQUIRE_EQ_STR(n.repo, "org/name");
    REQUIRE_EQ_STR(n.tag, "UD-Q4_K.M");
    REQUIRE_EQ_STR(n.revision, "dev");
    REQUIRE_EQ_INT(hub_name_parse(&n, "org/name:a/b", err), HUB_EUSAGE);
    REQUIRE_EQ_INT(hub_name_parse(&n, "org/name:", err), HUB_EUSAGE);
}

static void addresses(void **state)
{
    static const struct {
        const char *spec, *endpoint, *name;
        int rc;
    } cases[] = {
        {"https://huggingface.co/org/name", NULL, "org/name", 1},
        {"HTTP://www.huggingface.co/org/name/", NULL, "org/name", 1},
        {"hf.co/org/name?x=1", NULL, "org/name", 1},
        {"huggingface.co/org/name/tree/dev", NULL, "org/name@dev", 1},
        {"huggingface.co/org/name/blob/v1/config.json", NULL, "org/name@v1", 1},
        {"huggingface.co/org/name/resolve/v1/x", NULL, "org/name@v1", 1},
        {"huggingface.co/org/name/discussions/1", NULL, "org/name", 1},
        {"https://hub.test/org/name", "https://hub.test/", "org/name", 1},
        {"https://hub.test/org/name", NULL, NULL, -1},
        {"org/name", "https://hub.test", NULL, 0},
    };
    char name[100];
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        int rc = hub_name_from_address(cases[i].spec, cases[i].endpoint, name, sizeof(name));
        REQUIRE_MSG(rc == cases[i].rc, "%s: %d", cases[i].spec, rc);
        if (rc == 1) REQUIRE_EQ_STR(name, cases[i].name);
    }
}

static void folders_and_hashes(void **state)
{
    static const char *const bad[] = {"datasets--a--b", "models--", "models--a--", "models--..--x",
                                      "models--a--b.git"};
    char folder[HUB_FOLDER_SIZE], repo[HUB_REPO_SIZE];
    (void)state;
    hub_folder_name("org/name", folder);
    REQUIRE_EQ_STR(folder, "models--org--name");
    REQUIRE_EQ_INT(hub_folder_parse(folder, repo), 0);
    REQUIRE_EQ_STR(repo, "org/name");
    hub_folder_name("name", folder);
    REQUIRE_EQ_STR(folder, "models--name");
    REQUIRE_EQ_INT(hub_folder_parse(folder, repo), 0);
    REQUIRE_EQ_STR(repo, "name");
    for (size_t i = 0; i < N_OF(bad); i++)
        REQUIRE_MSG(hub_folder_parse(bad[i], repo) == -1, "%s", bad[i]);
    REQUIRE(hub_is_commit(COMMIT) && hub_is_etag(COMMIT));
    REQUIRE(!hub_is_commit(COMMIT "0") && !hub_is_etag(COMMIT "0"));
    REQUIRE(!hub_is_commit("0123456789ABCDEF0123456789abcdef01234567"));
    REQUIRE(!hub_is_commit(COMMIT COMMIT) && hub_is_etag(COMMIT "0123456789abcdef01234567"));
}

/* ---- the environment ------------------------------------------------------------------------ */

static const char *variables[12]; /* name, value, ... NULL */

static const char *env(const char *name)
{
    for (const char **v = variables; *v; v += 2)
        if (strcmp(*v, name) == 0) return v[1];
    return NULL;
}

#define ENV(...)                                                                                   \
    do {                                                                                           \
        const char *list_[] = {__VA_ARGS__, NULL};                                                 \
        _Static_assert(sizeof(list_) <= sizeof(variables), "more variables");                      \
        memcpy(variables, list_, sizeof(list_));                                                   \
    } while (0)

static void cache_roots(void **state)
{
    char root[PATH_MAX], little[8];
    (void)state;
    ENV("HOME", "/h");
    REQUIRE_EQ_INT(hub_cache_root(env, root, sizeof(root), err), 0);
    REQUIRE_EQ_STR(root, "/h/.cache/huggingface/hub");
    REQUIRE_EQ_INT(hub_cache_root(env, little, sizeof(little), err), HUB_EUSAGE);
    ENV("HOME", "/h", "XDG_CACHE_HOME", "/x");
    hub_cache_root(env, root, sizeof(root), err);
    REQUIRE_EQ_STR(root, "/x/huggingface/hub");
    ENV("HOME", "/h", "XDG_CACHE_HOME", "/x", "HF_HOME", "/hf", "HF_HUB_CACHE", "");
    hub_cache_root(env, root, sizeof(root), err);
    REQUIRE_EQ_STR(root, "/hf/hub");
    ENV("HF_HOME", "/hf", "HUGGINGFACE_HUB_CACHE", "/two");
    hub_cache_root(env, root, sizeof(root), err);
    REQUIRE_EQ_STR(root, "/two");
    ENV("HUGGINGFACE_HUB_CACHE", "/two", "HF_HUB_CACHE", "/one");
    hub_cache_root(env, root, sizeof(root), err);
    REQUIRE_EQ_STR(root, "/one");
    ENV("USER", "x");
    REQUIRE_EQ_INT(hub_cache_root(env, root, sizeof(root), err), HUB_EUSAGE);
}

static void endpoints_and_times(void **state)
{
    struct hub_settings s;
    (void)state;
    ENV("HF_HUB_CACHE", "/c");
    REQUIRE_EQ_INT(hub_settings_read(&s, env, err), 0);
    REQUIRE_EQ_STR(s.endpoint, "https://huggingface.co");
    REQUIRE(!s.allow_http && !s.offline && !s.no_bars && !s.token[0]);
    REQUIRE_EQ_INT(s.head_timeout_ms, 10000);
    REQUIRE_EQ_INT(s.body_timeout_ms, 10000);
    REQUIRE_EQ_INT(s.first_wait_ms, 500);
    ENV("HF_HUB_CACHE", "/c", "HF_ENDPOINT", "http://127.0.0.1:1//", "HF_HUB_ETAG_TIMEOUT", "3",
        "HF_HUB_DOWNLOAD_TIMEOUT", "0", "HF_HUB_DISABLE_PROGRESS_BARS", "True");
    REQUIRE_EQ_INT(hub_settings_read(&s, env, err), 0);
    REQUIRE_EQ_STR(s.endpoint, "http://127.0.0.1:1");
    REQUIRE(s.allow_http && s.no_bars);
    REQUIRE_EQ_INT(s.head_timeout_ms, 3000);
    REQUIRE_EQ_INT(s.body_timeout_ms, 10000);
    ENV("HF_HUB_CACHE", "/c", "HF_ENDPOINT", "ftp://x", "HF_HUB_OFFLINE", "YES");
    REQUIRE_EQ_INT(hub_settings_read(&s, env, err), 0);
    REQUIRE_EQ_STR(s.offline, "HF_HUB_OFFLINE");
    ENV("TRANSFORMERS_OFFLINE", "1");
    REQUIRE_EQ_STR(hub_settings_offline(env), "TRANSFORMERS_OFFLINE");
    ENV("TRANSFORMERS_OFFLINE", "0");
    REQUIRE(!hub_settings_offline(env));
}

static void unusable_environments(void **state)
{
    static const char *const cases[][3] = {
        {"HF_ENDPOINT", "ftp://x", "has the scheme 'ftp'"},
        {"HF_ENDPOINT", "https://me@x", "is not the address of a hub"},
        {"HF_ENDPOINT", "https://x/?y", "is not the address of a hub"},
        {"HF_HUB_ETAG_TIMEOUT", "soon", "is not a number of seconds from 0 to 86400"},
        {"HF_HUB_ETAG_TIMEOUT", "86401", "HF_HUB_ETAG_TIMEOUT: '86401'"},
        {"HF_HUB_DOWNLOAD_TIMEOUT", "-1", "HF_HUB_DOWNLOAD_TIMEOUT"},
        {"HF_TOKEN", "a\nb", "the token in HF_TOKEN has control characters inside"},
    };
    struct hub_settings s;
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        ENV("HF_HUB_CACHE", "/c", cases[i][0], cases[i][1]);
        REQUIRE_MSG(hub_settings_read(&s, env, err) == HUB_EUSAGE, "%s", cases[i][1]);
        REQUIRE_MSG(strstr(err, cases[i][2]), "%s", err);
    }
    ENV("USER", "x");
    REQUIRE_EQ_INT(hub_settings_read(&s, env, err), HUB_EUSAGE);
    REQUIRE_MSG(strstr(err, "set --cache-dir"), "%s", err);
}

static void tokens(void **state)
{
    char path[] = "/tmp/hearth-token-XXXXXX", most[HUB_TOKEN_SIZE + 1];
    struct transfer_origin other;
    struct hub_settings s;
    (void)state;
    ENV("HF_HUB_CACHE", "/c", "HUGGING_FACE_HUB_TOKEN", " hf_b\n", "HF_TOKEN", "");
    REQUIRE_EQ_INT(hub_settings_read(&s, env, err), 0);
    REQUIRE_EQ_STR(s.token, "hf_b");
    REQUIRE_EQ_STR(s.token_from, "HUGGING_FACE_HUB_TOKEN");
    REQUIRE(hub_settings_may_send_token(&s, &s.origin));
    transfer_url_origin("https://other.test", &other);
    REQUIRE(!hub_settings_may_send_token(&s, &other));
    ENV("HF_HUB_CACHE", "/c", "HF_TOKEN", "x", "HF_ENDPOINT", "http://hub.test");
    REQUIRE_EQ_INT(hub_settings_read(&s, env, err), 0);
    REQUIRE(!hub_settings_may_send_token(&s, &s.origin));
    ENV("HF_HUB_CACHE", "/c", "HF_TOKEN", "x", "HF_ENDPOINT", "http://127.0.0.1:1");
    REQUIRE_EQ_INT(hub_settings_read(&s, env, err), 0);
    REQUIRE(hub_settings_may_send_token(&s, &s.origin));
    memset(most, 'x', sizeof(most));
    most[HUB_TOKEN_SIZE] = '\0';
    ENV("HF_HUB_CACHE", "/c", "HF_TOKEN", most);
    REQUIRE_EQ_INT(hub_settings_read(&s, env, err), HUB_EUSAGE);
    REQUIRE_MSG(strstr(err, "has 512 bytes; at most 511"), "%s", err);
    int fd = mkstemp(path);
    REQUIRE(fd >= 0 && write(fd, "\thf_file\r\n", 10) == 10);
    close(fd);
    ENV("HF_HUB_CACHE", "/c", "HF_TOKEN_PATH", path);
    REQUIRE_EQ_INT(hub_settings_read(&s, env, err), 0);
    REQUIRE_EQ_STR(s.token, "hf_file");
    REQUIRE_EQ_STR(s.token_from, path);
    ENV("HF_HUB_CACHE", "/c", "HF_TOKEN_PATH", path, "HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
    REQUIRE_EQ_INT(hub_settings_read(&s, env, err), 0);
    REQUIRE(!s.token[0]);
    unlink(path);
    ENV("HF_HUB_CACHE", "/c", "HF_TOKEN_PATH", path);
    REQUIRE_EQ_INT(hub_settings_read(&s, env, err), 0);
    REQUIRE(!s.token[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(addresses),
        cmocka_unit_test(folders_and_hashes),
        cmocka_unit_test(cache_roots),
        cmocka_unit_test(endpoints_and_times),
        cmocka_unit_test(unusable_environments),
        cmocka_unit_test(tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
