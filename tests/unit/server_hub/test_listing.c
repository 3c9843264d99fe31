/* SPDX-License-Identifier: MIT */
/*
 * Listings: pages of the hub and trees of the cache, every refusal with its sentence, order, the
 * text that is written, and which files of a repository are taken.
 */
#include "test.h"

#include "server/hub/settings.h"
#include "server/hub/listing.h"

#define OID "0123456789abcdef0123456789abcdef01234567"
#define SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define FILE_OF(path) "{\"type\":\"file\",\"oid\":\"" OID "\",\"size\":5,\"path\":\"" path "\"}"

static char err[HUB_ERR_SIZE];

static int add_page(struct hub_listing *l, const char *text)
{
    err[0] = '\0';
    return hub_listing_add_page(l, text, strlen(text), err);
}

static void paths(void **state)
{
    static const char *const good[] = {"a",   "a/b", "1_Pooling/config.json",
                                       "..a", "a..", "\u00e4/b"};
    static const char *const bad[] = {"",    "/a",    "a/",   "a//b", ".",     "..",     "a/..",
                                      "./a", "a/./b", "a\\b", "a\nb", "a\x7f", "a/../b", "\xff"};
    char longest[HUB_PATH_MAX + 2], segment[HUB_SEGMENT_MAX + 2];
    (void)state;
    for (size_t i = 0; i < N_OF(good); i++)
        REQUIRE_MSG(hub_path_is_safe(good[i], strlen(good[i])), "%s", good[i]);
    for (size_t i = 0; i < N_OF(bad); i++)
        REQUIRE_MSG(!hub_path_is_safe(bad[i], strlen(bad[i])), "case %zu", i);
    memset(segment, 'x', sizeof(segment));
    REQUIRE(hub_path_is_safe(segment, HUB_SEGMENT_MAX));
    REQUIRE(!hub_path_is_safe(segment, HUB_SEGMENT_MAX + 1));
    for (size_t i = 0; i < sizeof(longest); i++)
        longest[i] = i % 2 ? '/' : 'x';
    REQUIRE(hub_path_is_safe(longest, HUB_PATH_MAX - 1));
    REQUIRE(!hub_path_is_safe(longest, HUB_PATH_MAX + 1));
}

static void pages(void **state)
{
    struct hub_listing l = {0};
    (void)state;
    REQUIRE_EQ_INT(add_page(&l, "[" FILE_OF("b") "," FILE_OF("a") "]"), 0);
    REQUIRE_EQ_INT(add_page(&l,
                            "[{\"type\":\"directory\",\"oid\":\"" OID "\",\"path\":\"d\"},"
                            "{\"type\":\"file\",\"path\":\"c\",\"oid\":\"" OID "\",\"size\":130,"
                            "\"lfs\":{\"oid\":\"" SHA256 "\",\"size\":70368744177664},"
                            "\"xetHash\":\"" SHA256 "\",\"more\":[{}]},"
                            "{\"type\":\"file\",\"path\":\"d/e\",\"oid\":\"" OID
                            "\",\"size\":0,\"lfs\":null,\"xetHash\":null}]"),
                   0);
    REQUIRE_EQ_INT(hub_listing_sort(&l, err), 0);
    REQUIRE_EQ_INT(l.n, 4);
    REQUIRE_EQ_STR(l.files[0].path, "a");
    REQUIRE_EQ_STR(l.files[0].etag, OID);
    REQUIRE_EQ_INT(l.files[0].size, 5);
    REQUIRE(!l.files[0].is_lfs && !l.files[0].xet[0] && !l.odd_xet);
    const struct hub_file *c = hub_listing_find(&l, "c");
    REQUIRE(c && c->is_lfs);
    REQUIRE_EQ_STR(c->etag, SHA256);
    REQUIRE_EQ_STR(c->oid, OID);
    REQUIRE_EQ_INT(c->size, INT64_C(1) << 46);
    REQUIRE_EQ_INT(c->listed_size, 130);
    REQUIRE(!hub_listing_find(&l, "d"));
    REQUIRE_EQ_INT(add_page(&l, "[" FILE_OF("a") "]"), 0);
    REQUIRE_EQ_INT(hub_listing_sort(&l, err), HUB_EWRONG);
    REQUIRE_EQ_STR(err, "the hub lists twice \"a\"");
    hub_listing_finish(&l);
}

static void odd_pages(void **state)
{
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"{}", "not a file list"},
        {"[1]", "not a file list"},
        {"[", "not a file list"},
        {"[] x", "not a file list"},
        {"[{\"size\":9223372036854775808}]", "an unsafe path"},
        {"[" FILE_OF("../x") "]", "an unsafe path \"../x\""},
        {"[{\"type\":\"directory\",\"path\":\"/\"}]", "an unsafe path"},
        {"[{\"type\":\"file\",\"path\":\"x\",\"oid\":\"0123\",\"size\":1}]",
         "no valid hash for \"x\""},
        {"[{\"type\":\"file\",\"path\":\"x\",\"oid\":\"" OID "\",\"size\":-1}]", "no valid size"},
        {"[{\"type\":\"file\",\"path\":\"x\",\"oid\":\"" OID "\",\"size\":\"1\"}]",
         "no valid size"},
        {"[{\"type\":\"file\",\"path\":\"x\",\"oid\":\"" OID "\",\"size\":70368744177665}]",
         "no valid size"},
        {"[{\"type\":\"file\",\"path\":\"x\",\"oid\":\"" OID "\",\"size\":1,\"lfs\":{\"oid\":\"" OID
         "\",\"size\":1}}]",
         "no valid hash"},
        {"[{\"type\":\"file\",\"path\":\"x\",\"oid\":\"" OID
         "\",\"size\":1,\"lfs\":{\"oid\":\"" SHA256 "\"}}]",
         "no valid size"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct hub_listing l = {0};
        REQUIRE_MSG(add_page(&l, cases[i].text) == HUB_EWRONG, "%s", cases[i].text);
        REQUIRE_MSG(strstr(err, cases[i].sentence), "%s: %s", cases[i].text, err);
        REQUIRE_EQ_INT(l.n, 0);
        hub_listing_finish(&l);
    }
}

static void too_many_files(void **state)
{
    struct hub_listing l = {0};
    (void)state;
    REQUIRE_EQ_INT(add_page(&l, "[" FILE_OF("a") "]"), 0);
    l.n = HUB_ENTRIES_MAX; /* as if they had been listed */
    REQUIRE_EQ_INT(add_page(&l, "[" FILE_OF("b") "]"), HUB_EWRONG);
    REQUIRE_EQ_STR(err, "the hub lists more than 100000 files");
    l.n = 1;
    hub_listing_finish(&l);
}

/* As huggingface_hub writes it: json.dump(indent=1), sorted, ASCII. */
static void trees(void **state)
{
    static const char text[] =
        "{\n \"format_version\": 1,\n \"files\": {\n"
        "  \"a\\u00e4\\ud83d\\ude00\\\"\": {\n   \"size\": 130,\n   \"blob_id\": \"" OID
        "\",\n   \"lfs_sha256\": \"" SHA256 "\",\n   \"lfs_size\": 7,\n"
        "   \"xet_hash\": \"" SHA256 "\"\n  },\n"
        "  \"b\": {\n   \"size\": 5,\n   \"blob_id\": \"" OID "\"\n  }\n }\n}";
    static const char *const bad[] = {
        "{\"files\":{}}",
        "{\"format_version\":2,\"files\":{}}",
        "{\"format_version\":1,\"files\":[]}",
        "{\"format_version\":1,\"files\":{\"../x\":{\"size\":1,\"blob_id\":\"" OID "\"}}}",
        "{\"format_version\":1,\"files\":{\"x\":{\"size\":1}}}",
        "{\"format_version\":1,\"files\":{},\"files\":{}}",
    };
    struct hub_listing l = {0};
    size_t len;
    (void)state;
    REQUIRE_EQ_INT(hub_listing_add_tree(&l, text, strlen(text), err), 0);
    REQUIRE_EQ_INT(hub_listing_sort(&l, err), 0);
    REQUIRE_EQ_INT(l.n, 2);
    REQUIRE_EQ_INT(l.files[0].size, 7);
    char *written = hub_listing_write(&l, &len);
    REQUIRE_EQ_STR(written, text);
    REQUIRE_EQ_INT(len, strlen(text));
    free(written);
    hub_listing_finish(&l);
    written = hub_listing_write(&l, &len);
    REQUIRE_EQ_STR(written, "{\n \"format_version\": 1,\n \"files\": {}\n}");
    free(written);
    for (size_t i = 0; i < N_OF(bad); i++) {
        REQUIRE_MSG(hub_listing_add_tree(&l, bad[i], strlen(bad[i]), err) == HUB_EWRONG, "%s",
                    bad[i]);
        hub_listing_finish(&l);
    }
}

static void commits(void **state)
{
    char commit[HUB_COMMIT_LEN + 1];
    static const char good[] = "{\"siblings\":[{\"sha\":1}],\"sha\":\"" OID "\",\"x\":{}}";
    static const char *const bad[] = {"{}",
                                      "[]",
                                      "{\"sha\":\"main\"}",
                                      "{\"sha\":\"" OID "0\"}",
                                      "{\"sha\":null}",
                                      "{\"sha\":\"" OID "\"",
                                      "<html>"};
    (void)state;
    REQUIRE_EQ_INT(hub_commit_read(good, strlen(good), commit), 0);
    REQUIRE_EQ_STR(commit, OID);
    for (size_t i = 0; i < N_OF(bad); i++)
        REQUIRE_MSG(hub_commit_read(bad[i], strlen(bad[i]), commit) == -1, "%s", bad[i]);
}

/* A listing of these files, separated by blanks. */
static struct hub_listing listing_of(const char *names)
{
    struct hub_listing l = {0};
    char page[300];
    while (*names) {
        int len = (int)strcspn(names, " ");
        snprintf(page, sizeof(page),
                 "[{\"type\":\"file\",\"oid\":\"" OID "\",\"size\":5,\"path\":\"%.*s\"}]", len,
                 names);
        REQUIRE_EQ_INT(add_page(&l, page), 0);
        names += len + (names[len] == ' ');
    }
    REQUIRE_EQ_INT(hub_listing_sort(&l, err), 0);
    return l;
}

/* The files that are taken, in order. */
static const char *wanted(const struct hub_listing *l)
{
    static char text[600];
    text[0] = '\0';
    for (size_t i = 0; i < l->n; i++)
        if (l->files[i].wanted)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s ", l->files[i].path);
    return text;
}

static void choice(void **state)
{
    static const struct {
        const char *files, *wanted, *sentence;
    } cases[] = {
        {"config.json tokenizer.json model.safetensors model.safetensors.index.json README.md "
         "pytorch_model.bin model.fp16.safetensors original/model.safetensors vocab.json",
         "config.json model.safetensors tokenizer.json vocab.json ", NULL},
        {"additional_chat_templates/a.jinja additional_chat_templates/a/b.jinja "
         "additional_chat_templates/a.py chat_template.jinja config.json "
         "model.safetensors.index.json tokenizer.json",
         "additional_chat_templates/a.jinja chat_template.jinja config.json "
         "model.safetensors.index.json tokenizer.json ",
         NULL},
        {"1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors 2_Dense/x.bin "
         "3_Normalize/y/config.json a_b/config.json config.json "
         "config_sentence_transformers.json model.safetensors modules.json onnx/config.json "
         "sentence_bert_config.json tokenizer.json",
         "1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors config.json "
         "config_sentence_transformers.json model.safetensors modules.json "
         "sentence_bert_config.json tokenizer.json ",
         NULL},
        {"1_Pooling/config.json config.json model.safetensors tokenizer.json",
         "config.json model.safetensors tokenizer.json ", NULL},
        {"config.json model.safetensors", "", "org/x has no tokenizer.json"},
        {"config.json tokenizer.json weights/x.bin", "", "it has weights/x.bin; pickle files can"},
        {"config.json tokenizer.json x.gguf", "", "org/x has GGUF files only; add one of :x"},
        {"README.md adapter_config.json adapter_model.safetensors tokenizer.json",
         "adapter_config.json adapter_model.safetensors ", NULL},
        {"adapter_config.json adapter_model.bin", "", "it has adapter_model.bin; pickle files can"},
        {"config.json", "", "org/x has neither safetensors nor GGUF weights"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct hub_listing l = listing_of(cases[i].files);
        int rc = hub_choose(&l, &(struct hub_name){.repo = "org/x"}, err);
        REQUIRE_EQ_INT(rc, cases[i].sentence ? HUB_ENOTSERVED : 0);
        if (cases[i].sentence)
            REQUIRE_MSG(strstr(err, cases[i].sentence), "%s", err);
        else
            REQUIRE_EQ_STR(wanted(&l), cases[i].wanted);
        hub_listing_finish(&l);
    }
}

/* Which model in GGUF a tag means, and what comes with it. */
static void ggufs(void **state)
{
    static const char parts[] = "Q8_0/m-00001-of-00002.gguf Q8_0/m-00002-of-00002.gguf "
                                "chat_template.jinja config.json m-Q4_K_M.gguf m-UD-Q4_K_M.gguf "
                                "mmproj-Q8_0.gguf tokenizer.json ";
    static const struct {
        const char *files, *tag, *wanted, *sentence;
    } cases[] = {
        {parts, "", "chat_template.jinja m-Q4_K_M.gguf tokenizer.json ", NULL},
        {parts, "q4_k_m", "chat_template.jinja m-Q4_K_M.gguf tokenizer.json ", NULL},
        {parts, "UD-Q4_K_M", "chat_template.jinja m-UD-Q4_K_M.gguf tokenizer.json ", NULL},
        {parts, "Q8_0",
         "Q8_0/m-00001-of-00002.gguf Q8_0/m-00002-of-00002.gguf chat_template.jinja "
         "tokenizer.json ",
         NULL},
        {parts, "Q5_0", "",
         "org/x has no GGUF file for the tag Q5_0; it has :Q8_0, :Q4_K_M, :UD-Q4_K_M"},
        {"a-Q4_0.gguf a-Q8_0.gguf", "", "a-Q8_0.gguf ", NULL},
        {"a.Q4_0.gguf b.Q4_0.gguf", "Q4_0", "a.Q4_0.gguf ", NULL},
        {"a-IQ4_XS.gguf a-Q5_K_M.gguf", "", "",
         "org/x has GGUF files only; add one of :IQ4_XS, :Q5_K_M"},
        {"config.json m-Q4_0.gguf model.safetensors tokenizer.json", "",
         "config.json model.safetensors tokenizer.json ", NULL},
        {"config.json m-Q4_0.gguf model.safetensors tokenizer.json", "Q4_0",
         "m-Q4_0.gguf tokenizer.json ", NULL},
        {"config.json model.safetensors tokenizer.json", "Q4_0", "", "org/x has no GGUF files"},
        {"m-Q8_0-00001-of-00003.gguf m-Q8_0-00003-of-00003.gguf", "Q8_0", "",
         "org/x has no m-Q8_0-00002-of-00003.gguf, a part of the model"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct hub_listing l = listing_of(cases[i].files);
        struct hub_name name = {.repo = "org/x"};
        snprintf(name.tag, sizeof(name.tag), "%s", cases[i].tag);
        int rc = hub_choose(&l, &name, err);
        REQUIRE_EQ_INT(rc, cases[i].sentence ? HUB_ENOTSERVED : 0);
        if (cases[i].sentence)
            REQUIRE_MSG(strstr(err, cases[i].sentence), "%s", err);
        else
            REQUIRE_EQ_STR(wanted(&l), cases[i].wanted);
        hub_listing_finish(&l);
    }
}

static void shards(void **state)
{
    static const struct {
        const char *index, *sentence;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":\"1.safetensors\"}"
         "}",
         NULL},
        {"{\"weight_map\":{\"a\":\"9.safetensors\"}}",
         "names 9.safetensors, which the hub does not list"},
        {"{\"weight_map\":{\"a\":\"x.bin\"}}", "names x.bin, which is not a safetensors file"},
        {"{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "names a shard by an unsafe path"},
        {"{\"weight_map\":{}}", HUB_INDEX_NAME " names no shard"},
        {"{\"metadata\":{}}", HUB_INDEX_NAME " names no shard"},
        {"[]", HUB_INDEX_NAME " names no shard"},
        {"[", HUB_INDEX_NAME ": line 1: "},
        {"{\"weight_map\":{\"a\":1}}", "names a shard by an unsafe path"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct hub_listing l = listing_of("1.safetensors 2.safetensors 3.safetensors x.bin");
        int rc = hub_choose_shards(&l, cases[i].index, strlen(cases[i].index), err);
        REQUIRE_EQ_INT(rc, cases[i].sentence ? HUB_EWRONG : 0);
        if (cases[i].sentence)
            REQUIRE_MSG(strstr(err, cases[i].sentence), "%s", err);
        else
            REQUIRE_EQ_STR(wanted(&l), "1.safetensors 2.safetensors ");
        hub_listing_finish(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths),          cmocka_unit_test(pages), cmocka_unit_test(odd_pages),
        cmocka_unit_test(too_many_files), cmocka_unit_test(trees), cmocka_unit_test(commits),
        cmocka_unit_test(choice),         cmocka_unit_test(ggufs), cmocka_unit_test(shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
