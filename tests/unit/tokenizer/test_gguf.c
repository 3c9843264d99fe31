/* SPDX-License-Identifier: MIT */
/* Tokenizers from the keys of GGUF files: what is built, what is refused and in which words. */
#include "tokenizer/gguf.h"

#include <sys/stat.h>

#include "gguf_file.h"
#include "load_tokenizer.h"

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED, UNUSED, BYTE };

struct token {
    const char *text;
    int type;
    float score;
};

/* A file in the making: its keys are counted as they are put. */
static struct buf keys;
static uint64_t n_keys;

static void text_key(const char *name, const char *value)
{
    put_key_text(&keys, name, value);
    n_keys++;
}

static void int_key(const char *name, uint32_t value)
{
    put_key_u32(&keys, name, value);
    n_keys++;
}

static void bool_key(const char *name, bool value)
{
    put_key_type(&keys, name, GGUF_BOOL);
    put_int(&keys, value, 1);
    n_keys++;
}

static void put_tokens(const struct token *tokens, size_t n, bool scores)
{
    put_key_array(&keys, "tokenizer.ggml.tokens", GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        put_text(&keys, tokens[i].text);
    put_key_array(&keys, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (size_t i = 0; i < n; i++)
        put_int(&keys, (uint32_t)tokens[i].type, 4);
    n_keys += 2;
    if (!scores) return;
    put_key_array(&keys, "tokenizer.ggml.scores", GGUF_F32, n);
    for (size_t i = 0; i < n; i++)
        buf_add(&keys, (const char *)&tokens[i].score, 4);
    n_keys++;
}

static void put_merge(const char *merge)
{
    put_key_array(&keys, "tokenizer.ggml.merges", GGUF_STRING, 1);
    put_text(&keys, merge);
    n_keys++;
}

static void begin(const char *model)
{
    buf_clear(&keys);
    n_keys = 0;
    text_key("tokenizer.ggml.model", model);
}

static void finish(char path[32])
{
    struct buf file;
    buf_init(&file, 1 << 20);
    put_start(&file, 0, n_keys);
    buf_add(&file, keys.data, keys.len);
    put_padding(&file, 32);
    REQUIRE(!file.failed && !keys.failed && write_gguf(&file, path) == 0);
    buf_finish(&file);
}

/* Opens what was put; NULL, and err begins with the file, if it is refused. */
static struct tok *open_file(const char *dir)
{
    char path[32];
    struct tok *t = NULL;
    *err = '\0';
    finish(path);
    int rc = tok_open_from(&t, path, dir, err, sizeof(err));
    unlink(path);
    REQUIRE((rc == 0) == (*err == '\0') && (rc == 0) == (t != NULL));
    if (rc) REQUIRE_MSG(strncmp(err, path, strlen(path)) == 0, "%s", err);
    return t;
}

#define REFUSED(dir, words)                                                                        \
    do {                                                                                           \
        REQUIRE(!open_file(dir));                                                                  \
        REQUIRE_MSG(strstr(err, words), "%s", err);                                                \
    } while (0)

static const struct token bpe[] = {
    {"<|im_end|>", CONTROL, 0}, {"t", NORMAL, 0},      {"h", NORMAL, 0},     {"th", NORMAL, 0},
    {"<x>", USER_DEFINED, 0},   {"[PAD5]", UNUSED, 0}, {"</s>", CONTROL, 0},
};

static void put_bpe(const char *pre)
{
    begin("gpt2");
    if (pre) text_key("tokenizer.ggml.pre", pre);
    put_tokens(bpe, N_OF(bpe), false);
    put_merge("t h");
    int_key("tokenizer.ggml.eos_token_id", 6);
}

static const char *encoded(const struct tok *t, const char *text, unsigned flags)
{
    static char line[256];
    struct tok_ids ids = {0};
    size_t at = 0;
    REQUIRE_EQ_INT(tok_encode(t, text, strlen(text), flags, &ids, err, sizeof(err)), 0);
    *line = '\0';
    for (size_t i = 0; i < ids.n; i++)
        at += (size_t)snprintf(line + at, sizeof(line) - at, "%s%d", i ? " " : "", ids.ids[i]);
    tok_ids_finish(&ids);
    return line;
}

static void test_bpe(void **state)
{
    (void)state;
    put_bpe("smollm");
    bool_key("tokenizer.ggml.add_eos_token", true);
    struct tok *t = open_file(NULL);
    REQUIRE_MSG(t, "%s", err);
    REQUIRE_EQ_STR(tok_source(t), "rule smollm");
    REQUIRE_EQ_STR(encoded(t, "th<x>t<|im_end|>", TOK_PARSE_SPECIAL), "3 4 1 0");
    REQUIRE_EQ_STR(encoded(t, "h", TOK_ADD_SPECIAL), "2 6");
    REQUIRE(tok_is_special(t, 0) && !tok_is_special(t, 4) && !tok_token_string(t, 5, &(size_t){0}));
    tok_close(t);
}

static void test_refused_rules(void **state)
{
    (void)state;
    put_bpe("default");
    REFUSED(NULL, "tokenizer.ggml.pre 'default' does not say how text is split; pass the base "
                  "model's: --tokenizer org/name");
    put_bpe("poro-chat");
    text_key("general.base_model.0.repo_url", "https://hub/org/base");
    REFUSED(NULL, "'poro-chat' is a rule for splitting text that is not known; pass the base "
                  "model's: --tokenizer org/name (https://hub/org/base)");
    put_bpe(NULL);
    REFUSED(NULL, "tokenizer.ggml.pre is missing");
    static const char *const models[] = {"bert", "t5", "rwkv", "plamo2", "none"};
    for (size_t i = 0; i < N_OF(models); i++) {
        char words[64];
        begin(models[i]);
        put_tokens(bpe, N_OF(bpe), false);
        snprintf(words, sizeof(words), "tokenizer.ggml.model '%s'", models[i]);
        REFUSED(NULL, words);
    }
    begin("llama");
    put_tokens(bpe, N_OF(bpe), true);
    REFUSED(NULL, "'llama' with a blank in front");
}

static void test_refused_values(void **state)
{
    static const struct token twins[] = {{"a", NORMAL, 0}, {"a", NORMAL, 0}};
    static const struct token empty[] = {{"a", NORMAL, 0}, {"", NORMAL, 0}};
    static const struct token odd[] = {{"a", 7, 0}};
    (void)state;
    begin("gpt2");
    REFUSED(NULL, "key tokenizer.ggml.tokens is missing");
    put_tokens(twins, 2, false);
    REFUSED(NULL, "\"a\" with id 1: the token occurs twice");
    begin("gpt2");
    put_tokens(empty, 2, false);
    REFUSED(NULL, "key tokenizer.ggml.tokens: id 1 has 0 bytes");
    begin("gpt2");
    put_tokens(odd, 1, false);
    REFUSED(NULL, "key tokenizer.ggml.token_type: id 0 has 7");
    put_bpe("smollm");
    int_key("tokenizer.ggml.padding_token_id", 7);
    REFUSED(NULL, "key tokenizer.ggml.padding_token_id is 7; 0 to 6 are read");
    put_bpe("smollm");
    int_key("tokenizer.ggml.padding_token_id", 5);
    REFUSED(NULL, "key tokenizer.ggml.padding_token_id is 5, which is an unused token");
    put_bpe("smollm");
    bool_key("tokenizer.ggml.add_bos_token", true);
    REFUSED(NULL, "key tokenizer.ggml.bos_token_id is missing");
    begin("gpt2");
    text_key("tokenizer.ggml.pre", "smollm");
    put_tokens(bpe, N_OF(bpe), false);
    REFUSED(NULL, "key tokenizer.ggml.merges is missing");
    put_merge("t x");
    REFUSED(NULL, "merge 0");
    begin("llama");
    bool_key("tokenizer.ggml.add_space_prefix", false);
    put_tokens(bpe, N_OF(bpe), false);
    REFUSED(NULL, "key tokenizer.ggml.scores is missing");
}

/* Merges follow from scores: of "abc", "ab" has the better one than "bc". */
static void test_sentencepiece(void **state)
{
    static const struct token tokens[] = {
        {"<unk>", CONTROL, -1000},
        {"<bos>", CONTROL, -1000},
        {"a", NORMAL, -5},
        {"b", NORMAL, -6},
        {"c", NORMAL, -7},
        {"\xe2\x96\x81", NORMAL, -4},
        {"bc", NORMAL, -2},
        {"ab", NORMAL, -1},
        {"abc", NORMAL, -3},
        {"\xe2\x96\x81"
         "a",
         NORMAL, -8},
        {"  ", USER_DEFINED, -1000},
        {"<0x64>", BYTE, -1000},
    };
    (void)state;
    begin("llama");
    bool_key("tokenizer.ggml.add_space_prefix", false);
    put_tokens(tokens, N_OF(tokens), true);
    int_key("tokenizer.ggml.unknown_token_id", 0);
    int_key("tokenizer.ggml.bos_token_id", 1);
    struct tok *t = open_file(NULL);
    REQUIRE_MSG(t, "%s", err);
    REQUIRE_EQ_STR(tok_source(t), "rule llama");
    REQUIRE_EQ_STR(encoded(t, "abc bc", 0), "8 5 6");
    REQUIRE_EQ_STR(encoded(t, "a  a", TOK_ADD_SPECIAL), "1 2 10 2");
    REQUIRE_EQ_STR(encoded(t, "ade", 0), "2 11 0");
    tok_close(t);
}

/* From elsewhere only with the file's tokens. */
static void test_another_tokenizer(void **state)
{
    char dir[] = "/tmp/hearth-gguf-dir-XXXXXX", path[64];
    static const char text[] =
        "{\"added_tokens\":[],\"model\":{\"vocab\":{\"<|im_end|>\":0,\"t\":1,\"h\":2,\"%s\":3,"
        "\"<x>\":4,\"</s>\":6},\"merges\":[]}}";
    (void)state;
    REQUIRE(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    for (int wrong = 0; wrong < 2; wrong++) {
        FILE *f = fopen(path, "w");
        REQUIRE(f && fprintf(f, text, wrong ? "ht" : "th") > 0 && fclose(f) == 0);
        put_bpe("default");
        struct tok *t = open_file(dir);
        REQUIRE_MSG((t == NULL) == wrong, "%s", err);
        if (t) REQUIRE_EQ_STR(tok_source(t), "tokenizer.json");
        tok_close(t);
    }
    REQUIRE_MSG(strstr(err, "of another model: id 3 is \"ht\", in the file \"th\""), "%s", err);
    unlink(path);
    rmdir(dir);
    put_bpe("default");
    char whole[256];
    snprintf(whole, sizeof(whole), text, "th");
    text_key("tokenizer.huggingface.json", whole);
    struct tok *t = open_file(NULL);
    REQUIRE_MSG(t, "%s", err);
    REQUIRE_EQ_STR(tok_source(t), "tokenizer.huggingface.json");
    tok_close(t);
}

static void test_config(void **state)
{
    char path[32], *text = NULL;
    size_t len;
    (void)state;
    put_bpe("default");
    text_key("tokenizer.chat_template", "{{ x }}");
    finish(path);
    REQUIRE_EQ_INT(tok_gguf_config(&text, &len, path, err, sizeof(err)), 0);
    REQUIRE_EQ_STR(text, "{\"eos_token\":\"</s>\",\"chat_template\":{\"default\":\"{{ x }}\"}}");
    free(text);
    unlink(path);
    REQUIRE_EQ_INT(tok_gguf_config(&text, &len, path, err, sizeof(err)), TOK_ENOENT);
}

static int init(void **state)
{
    (void)state;
    buf_init(&keys, 1 << 20);
    return 0;
}

static int fini(void **state)
{
    (void)state;
    buf_finish(&keys);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe),
        cmocka_unit_test(test_refused_rules),
        cmocka_unit_test(test_refused_values),
        cmocka_unit_test(test_sentencepiece),
        cmocka_unit_test(test_another_tokenizer),
        cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests(tests, init, fini);
}
