/* SPDX-License-Identifier: MIT */
/* hearth kv: what is in a directory of pages, and what of it is erased. */
#include "run_command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sha256.h"
#include "engine/kv/extent.h"
#include "server/cli/cli.h"

enum { PAGE = 100000, HOUR = 3600 };

static char dir[64], key_file[80];
static struct ran ran;

static void kv(const char *options)
{
    char line[400];
    snprintf(line, sizeof(line), "kv --kv-disk %s %s", dir, options);
    run_command(&ran, srv_cmd_kv, line, "");
}

/* An extent of n pages that a key ("": none) computed with a model, used so many hours ago. */
static void add(const char *model, const char *key, int n_pages, int hours)
{
    static const uint8_t page[PAGE], parent[EXTENT_DIGEST];
    static int32_t ids[EXTENT_IDS];
    uint8_t fingerprint[EXTENT_DIGEST] = {(uint8_t)model[0]}, scope[EXTENT_DIGEST] = {0};
    const uint8_t *pages[EXTENT_PAGES];
    struct extent_store *s;
    char err[700];
    if (*key) sha256(scope, key, strlen(key));
    ids[0] = hours;
    for (int i = 0; i < n_pages; i++)
        pages[i] = page;
    struct extent x = {scope, parent, ids, n_pages, false};
    REQUIRE(!extent_store_open(&s, dir, fingerprint, PAGE, model, err, sizeof(err)));
    REQUIRE_EQ_INT(extent_write(s, &x, 0, pages), 0);
    int64_t at = extent_now() - (int64_t)hours * HOUR * 1000000;
    extent_touch(s, &x, &at);
    extent_store_close(s);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/hearth-kv-XXXXXX");
    REQUIRE(mkdtemp(dir));
    snprintf(key_file, sizeof(key_file), "%s/keys", dir);
    FILE *f = fopen(key_file, "w");
    REQUIRE(f && fputs("# gone\nkey-one\n", f) >= 0 && fclose(f) == 0);
    add("small", "", 2, 1);
    add("small", "key-one", 3, 5);
    add("small", "key-one", 4, 30);
    add("large", "key-two", 1, 30);
    return 0;
}

static int tear_down(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

/* The row that begins so, its columns apart by one blank. */
static const char *row(const char *model, const char *key)
{
    static char line[200];
    char *save = NULL, *copy = strdup(ran.out);
    line[0] = '\0';
    for (char *s = strtok_r(copy, "\n", &save); s && !line[0]; s = strtok_r(NULL, "\n", &save)) {
        char m[41], bits[13], k[13], files[9], tokens[11], size[20], unit[4];
        REQUIRE(sscanf(s, "%40s %12s %12s %8s %10s %19s %3s", m, bits, k, files, tokens, size,
                       unit) == 7);
        if (!strcmp(m, model) && !strncmp(k, key, strlen(key)))
            snprintf(line, sizeof(line), "%s %s %s %s %s", bits, files, tokens, size, unit);
    }
    free(copy);
    return line;
}

static void test_ls(void **state)
{
    (void)state;
    kv("ls");
    REQUIRE_EQ_INT(ran.status, 0);
    REQUIRE_MSG(strncmp(ran.out, "MODEL ", 6) == 0, "%s", ran.out);
    REQUIRE_EQ_STR(row("small", "-"), "730000000000 1 64 204 kB");
    uint8_t digest[SHA256_BYTES];
    char key[16];
    sha256(digest, "key-one", 7);
    snprintf(key, sizeof(key), "%02x%02x%02x%02x", digest[0], digest[1], digest[2], digest[3]);
    REQUIRE_EQ_STR(row("small", key), "730000000000 2 224 708 kB");
    sha256(digest, "key-two", 7);
    snprintf(key, sizeof(key), "%02x%02x%02x%02x", digest[0], digest[1], digest[2], digest[3]);
    REQUIRE_EQ_STR(row("large", key), "6c0000000000 1 32 104 kB");
    REQUIRE_MSG(strstr(ran.err, "4 files of "), "%s", ran.err);
    time_t at = time(NULL) - HOUR;
    char used[40];
    strftime(used, sizeof(used), "%Y-%m-%d %H:", localtime(&at));
    REQUIRE_MSG(strstr(ran.out, used), "%s: %s", used, ran.out);
    kv("ls --model large");
    REQUIRE(!row("small", "-")[0] && row("large", "")[0] && strstr(ran.err, "1 files of "));
    kv("ls --model none");
    REQUIRE_EQ_STR(ran.out, "");
}

static void erases(const char *options, const char *want)
{
    char line[200];
    snprintf(line, sizeof(line), "erase %s", options);
    kv(line);
    REQUIRE_MSG(ran.status == 0 && strncmp(ran.out, want, strlen(want)) == 0, "%s: %s%s", options,
                ran.out, ran.err);
}

static void test_erase(void **state)
{
    char options[120];
    (void)state;
    erases("--older 31h", "erased 0 files");
    erases("--older 2d", "erased 0 files");
    snprintf(options, sizeof(options), "--key-file %s --older 6h", key_file);
    erases(options, "erased 1 files");
    erases("--model large --older 1d", "erased 1 files");
    snprintf(options, sizeof(options), "--key-file %s", key_file);
    erases(options, "erased 1 files");
    kv("ls");
    REQUIRE(row("small", "-")[0] && strstr(ran.err, "1 files of "));
    erases("--all --model large", "erased 0 files");
    erases("--all", "erased 1 files");
}

static void refuses(const char *options, int status, const char *part)
{
    kv(options);
    REQUIRE_MSG(ran.status == status && strstr(ran.err, part) && !ran.out[0], "%s: %d %s", options,
                ran.status, ran.err);
}

static void test_refusals(void **state)
{
    char path[100];
    (void)state;
    refuses("", 2, "ls or erase");
    refuses("look", 2, "'look'");
    refuses("erase", 2, "erase needs --all, --older or --key-file");
    refuses("ls --all", 2, "ls takes no --all");
    refuses("ls --older 7d", 2, "ls takes no --all");
    refuses("ls --key-file x", 2, "ls takes no --all");
    static const char *const times[] = {"7", "7w", "-1d", "d", "7dd", "1e9d", "nan", "x"};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        snprintf(path, sizeof(path), "erase --older=%s", times[i]);
        refuses(path, 2, "12h, 7d");
    }
    refuses("erase --key-file /nowhere", 2, "/nowhere");
    kv("ls");
    REQUIRE(strstr(ran.err, "4 files of "));
    run_command(&ran, srv_cmd_kv, "kv ls", "");
    REQUIRE(ran.status == 2 && strstr(ran.err, "--kv-disk DIR"));
    snprintf(path, sizeof(path), "%s/secret", dir);
    REQUIRE(unlink(path) == 0);
    refuses("ls", 1, "it has no file `secret`");
    refuses("erase --all", 1, "it has no file `secret`");
    REQUIRE(access(path, F_OK) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ls, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_erase, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
