/* SPDX-License-Identifier: MIT */
/* What a directory's module files make of its hidden states, and what is refused by name. */
#include "engine/model/heads.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

enum { D_MODEL = 48 };

static const char *const files[] = {"modules.json", "1_Pooling/config.json", "2_Dense/config.json",
                                    "3_Dense/config.json"};
enum { N_FILES = sizeof(files) / sizeof(files[0]) };

static char dir[] = "/tmp/hearth-heads-XXXXXX";
static struct eng_heads heads;
static struct eng_dense dense[ENG_MAX_HEAD_OPS];
static uint64_t hash[2];

static void put(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (!text) {
        unlink(path);
        return;
    }
    FILE *f = fopen(path, "w");
    REQUIRE(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* The modules of these types: "Transformer Pooling Dense", in folders as they are usually named. */
static const char *modules(const char *types, char text[2000])
{
    size_t at = 1;
    strcpy(text, "[");
    for (int i = 0; *types; i++) {
        int n = (int)strcspn(types, " ");
        at += (size_t)snprintf(text + at, 2000 - at,
                               "%s{\"idx\":%d,\"type\":\"sentence_transformers.models.%.*s\","
                               "\"path\":\"",
                               i ? "," : "", i, n, types);
        if (i > 0) at += (size_t)snprintf(text + at, 2000 - at, "%d_%.*s", i, n, types);
        at += (size_t)snprintf(text + at, 2000 - at, "\"}");
        types += n + (types[n] == ' ');
    }
    strcpy(text + at, "]");
    return text;
}

/* texts: of the files, NULL: not there. Returns the first problem, "" if there is none. */
static const char *read_heads(const char *const texts[N_FILES])
{
    static char err[1000];
    char list[2000];
    err[0] = '\0';
    for (int i = 0; i < N_FILES; i++)
        put(files[i], i == 0 && texts[0] && *texts[0] == 'T' ? modules(texts[0], list) : texts[i]);
    memset(dense, 0, sizeof(dense));
    hash[0] = hash[1] = 0;
    struct eng_report r = {.err = err, .errlen = sizeof(err)};
    int rc = eng_heads_read(&heads, dense, D_MODEL, dir, hash, &r);
    REQUIRE((rc == 0) == (err[0] == '\0'));
    return err;
}

static void test_nothing_said(void **state)
{
    (void)state;
    const char *const texts[N_FILES] = {NULL};
    REQUIRE_MSG(*read_heads(texts) == '\0', "%s", read_heads(texts));
    REQUIRE(heads.pooling == ENG_POOL_MEAN && !heads.given && heads.n_ops == 0);
    REQUIRE(heads.width == D_MODEL && hash[0] == 0);
}

static void test_poolings(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        enum eng_pooling pooling;
    } cases[] = {
        {"{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":false}", ENG_POOL_MEAN},
        {"{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":false}", ENG_POOL_CLS},
        {"{\"pooling_mode_lasttoken\":true}", ENG_POOL_LAST},
        {"{\"pooling_mode_max_tokens\":true}", ENG_POOL_MAX},
        {"{\"pooling_mode_weightedmean_tokens\":true}", ENG_POOL_WEIGHTED},
        {"{\"pooling_mode_mean_sqrt_len_tokens\":true}", ENG_POOL_SQRT_LEN},
        {"{\"pooling_mode\":\"lasttoken\"}", ENG_POOL_LAST},
        {"{\"pooling_mode\":\"mean\",\"pooling_mode_mean_tokens\":true}", ENG_POOL_MEAN},
        {"{\"word_embedding_dimension\":48}", ENG_POOL_MEAN},
    };
    static const char *const names[ENG_N_POOLINGS] = {"mean", "cls",          "lasttoken",
                                                      "max",  "weightedmean", "mean_sqrt_len"};
    uint64_t seen = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const texts[N_FILES] = {i % 2 ? "Transformer Pooling" : NULL, cases[i].config};
        const char *err = read_heads(texts);
        REQUIRE_MSG(*err == '\0' && heads.pooling == cases[i].pooling && heads.given,
                    "case %zu: %s", i, err);
        REQUIRE(!heads.leaves_prompt && hash[0] != seen);
        seen = hash[0];
        char word[80];
        snprintf(word, sizeof(word), "{\"pooling_mode\":\"%s\"}", names[heads.pooling]);
        const char *const again[N_FILES] = {NULL, word};
        REQUIRE(*read_heads(again) == '\0' && heads.pooling == cases[i].pooling);
    }
    const char *const texts[N_FILES] = {NULL, "{\"include_prompt\":false}"};
    REQUIRE(*read_heads(texts) == '\0' && heads.leaves_prompt);
}

#define MEAN "{\"pooling_mode_mean_tokens\":true}"
#define ACT(name) ",\"activation_function\":\"torch.nn.modules." name "\"}"
#define SIZES(in, out) "{\"in_features\":" in ",\"out_features\":" out

static void test_ops_in_order(void **state)
{
    (void)state;
    const char *const texts[N_FILES] = {"Transformer Pooling Dense Dense Normalize", MEAN,
                                        SIZES("48", "100") ",\"bias\":false" ACT("linear.Identity"),
                                        SIZES("100", "7") ACT("activation.GELU")};
    const char *err = read_heads(texts);
    REQUIRE_MSG(*err == '\0', "%s", err);
    REQUIRE(heads.n_ops == 3 && heads.width == 7 && heads.ops[2].kind == ENG_HEAD_L2);
    REQUIRE(dense[0].n_in == 48 && dense[0].n_out == 100 && !dense[0].bias);
    REQUIRE(dense[1].n_in == 100 && dense[1].n_out == 7 && dense[1].bias && dense[2].n_in == 0);
    REQUIRE(strcmp(dense[1].folder, "3_Dense") == 0);
    REQUIRE(heads.ops[0].act == ENG_HEAD_IDENTITY && heads.ops[1].act == ENG_HEAD_GELU);
    const char *const logits[N_FILES] = {"Transformer LogitScore"};
    REQUIRE(*read_heads(logits) == '\0' && heads.n_ops == 0 && !heads.given);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *texts[N_FILES], *why;
    } cases[] = {
        {{"Transformer Pooling CNN", MEAN}, "module 2 is CNN; supported"},
        {{"Pooling", MEAN}, "path of a module"}, /* a first module without a path */
        {{"Transformer Pooling Pooling", MEAN}, "module 2 is Pooling"},
        {{"Transformer Normalize"}, "module 1 is Normalize"},
        {{"Transformer Pooling Normalize Normalize Normalize Normalize Normalize Normalize "
          "Normalize Normalize Normalize",
          MEAN},
         "more than 8 modules"},
        {{"Transformer Pooling"}, "1_Pooling/config.json, which is not there"},
        {{"Transformer Pooling Dense", MEAN}, "2_Dense/config.json, which is not there"},
        {{"{}"}, "is not a JSON array"},
        {{"["}, "modules.json: line 1"},
        {{"[{\"type\":\"a.Transformer\",\"path\":\"0_T\"}]"}, "in the folder '0_T'"},
        {{"[{\"type\":\"a.Transformer\",\"path\":\"\"},{\"type\":\"Pooling\",\"path\":\"../x\"}]"},
         "must be a folder of the model"},
        {{NULL, "{\"pooling_mode_mean_tokens\":true,\"pooling_mode_max_tokens\":true}"},
         "two poolings joined"},
        {{NULL, "{\"pooling_mode_cls_token\":false}"}, "no pooling is set"},
        {{NULL, "{\"pooling_mode\":[\"mean\"]}"}, "'not a word'"},
        {{NULL, "{\"pooling_mode_attention\":true}"}, "the pooling 'attention'"},
        {{"Transformer Pooling Dense", MEAN, SIZES("48", "9") ACT("activation.Mish")}, "'Mish'"},
        {{"Transformer Pooling Dense", MEAN, SIZES("47", "9") ACT("linear.Identity")},
         "in_features is 47, its input has 48"},
        {{"Transformer Pooling Dense", MEAN, SIZES("48", "0") ACT("linear.Identity")},
         "out_features must be within"},
        {{"Transformer Pooling Dense", MEAN,
          SIZES("48", "9") ",\"module_input_name\":\"token_embeddings\"" ACT("linear.Identity")},
         "'token_embeddings'"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *err = read_heads(
            i == 1 ? (const char *const[N_FILES]){"[{\"type\":\"Pooling\"}]"} : cases[i].texts);
        REQUIRE_MSG(strstr(err, cases[i].why), "case %zu: %s", i, err);
    }
}

static int make_folders(void **state)
{
    (void)state;
    char path[200];
    static const char *const folders[] = {"1_Pooling", "2_Dense", "3_Dense"};
    if (!mkdtemp(dir)) return -1;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, folders[i]);
        if (mkdir(path, 0700)) return -1;
    }
    return 0;
}

static int remove_folders(void **state)
{
    (void)state;
    char path[200];
    for (int i = 0; i < N_FILES; i++)
        put(files[i], NULL);
    static const char *const folders[] = {"/1_Pooling", "/2_Dense", "/3_Dense", ""};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s%s", dir, folders[i]);
        rmdir(path);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_said),
        cmocka_unit_test(test_poolings),
        cmocka_unit_test(test_ops_in_order),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
