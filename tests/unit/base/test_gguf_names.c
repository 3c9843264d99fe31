/* SPDX-License-Identifier: MIT */
/* Names of GGUF files: models, sets of splits, tags, and the folders that they are in. */
#include "base/gguf_names.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static void test_splits(void **state)
{
    char name[64];
    int count;
    (void)state;
    REQUIRE_EQ_INT(gguf_split("a/m-00002-of-00003.gguf", &count), 2);
    REQUIRE_EQ_INT(count, 3);
    REQUIRE_EQ_INT(gguf_split_name("a/m-00002-of-00003.GGUF", 1, name, sizeof(name)), 0);
    REQUIRE_EQ_STR(name, "a/m-00001-of-00003.GGUF");
    REQUIRE_EQ_INT(gguf_split_name("a/m-00002-of-00003.gguf", 1, name, 10), -1);
    static const char *const others[] = {
        "m.gguf",
        "m-00000-of-00003.gguf",
        "m-00004-of-00003.gguf",
        "m-00001-of-00003.bin",
        "m--0001-of-00003.gguf",
        "-00001-of-00003.gguf",
        "m-00001-of-000003.gguf",
    };
    for (size_t i = 0; i < N_OF(others); i++) {
        REQUIRE_MSG(gguf_split(others[i], &count) == 0 && count == 1, "%s", others[i]);
        REQUIRE_EQ_INT(gguf_split_name(others[i], 1, name, sizeof(name)), 0);
        REQUIRE_EQ_STR(name, others[i]);
    }
}

static void test_tags(void **state)
{
    static const struct {
        const char *path, *tag;
        bool fits;
    } cases[] = {
        {"SmolLM2.Q4_1.gguf", "q4_1", true},    {"m-Q4_K_M-00001-of-00002.gguf", "Q4_K_M", true},
        {"Q4_K_M/m.gguf", "Q4_K_M", true},      {"m-UD-Q4_K_XL.gguf", "UD-Q4_K_XL", true},
        {"m-UD-Q4_K_XL.gguf", "Q4_K_XL", true}, {"m-Q4_K_M.gguf", "Q4_K", false},
        {"m-IQ4_XS.gguf", "Q4_XS", false},      {"m-Q4_K_M.gguf", "", false},
    };
    static const char *const tags[][2] = {
        {"SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"},
        {"q8_0/m-00001-of-00002.gguf", "q8_0"},
        {"m-bf16.gguf", "bf16"},
        {"a/tiny-model.gguf", "tiny-model"},
        {"m-UD-Q2_K_XL.gguf", "UD-Q2_K_XL"},
        {"m-Q4_K_M-00001-of-00002.gguf", "Q4_K_M"},
    };
    char tag[GGUF_TAG_SIZE];
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++)
        REQUIRE_MSG(gguf_tag_fits(cases[i].path, cases[i].tag) == cases[i].fits, "%s %s",
                    cases[i].path, cases[i].tag);
    for (size_t i = 0; i < N_OF(tags); i++) {
        gguf_tag_of(tags[i][0], tag);
        REQUIRE_EQ_STR(tag, tags[i][1]);
    }
    REQUIRE(gguf_is_model("a.GGUF") && !gguf_is_model("a.bin") && !gguf_is_model(".gguf"));
    REQUIRE(!gguf_is_model("mmproj-F16.gguf") && !gguf_is_model("m.imatrix.gguf"));
}

static char root[32];

static void make(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    REQUIRE(f && fclose(f) == 0);
}

static bool collect(void *ctx, const char *name)
{
    strcat(ctx, name);
    strcat(ctx, " ");
    return true;
}

static void test_folders(void **state)
{
    char names[512] = "", path[PATH_MAX], folder[PATH_MAX], command[64];
    (void)state;
    snprintf(root, sizeof(root), "/tmp/hearth-names-XXXXXX");
    REQUIRE(mkdtemp(root));
    make("m-00001-of-00002.gguf");
    make("m-00001-x.txt");
    make("m-00002-of-00002.gguf");
    make("mmproj-F16.gguf");
    snprintf(path, sizeof(path), "%s/m-00001-of-00002.gguf", root);
    const char *of = gguf_folder_of(path, folder, sizeof(folder));
    REQUIRE(of && strcmp(of, root) == 0);
    make("m-00001-of.gguf");
    make("z.gguf");
    REQUIRE_EQ_INT(gguf_folder_visit(root, collect, names), 0);
    REQUIRE_EQ_STR(names, "m-00001-of-00002.gguf m-00001-of.gguf z.gguf ");
    REQUIRE(!gguf_folder_of(path, folder, sizeof(folder)));
    REQUIRE_EQ_INT(gguf_folder_visit("/nonexistent", collect, names), -1);
    static const char commit[] = "/c/snapshots/0123456789012345678901234567890123456789";
    snprintf(path, sizeof(path), "%s/Q8_0/m.gguf", commit);
    of = gguf_folder_of(path, folder, sizeof(folder));
    REQUIRE(of && strcmp(of, commit) == 0);
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    FILE *p = popen(command, "r");
    REQUIRE(p && pclose(p) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
