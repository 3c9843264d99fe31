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

static void put_merges(const char *const *merges, size_t n)
{
    put_key_array(&keys, "tokenizer.ggml.merges", GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        put_text(&keys, merges[i]);
    n_keys++;
}

static void put_merge(const char *merge)
{
    put_merges(&merge, 1);
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

#define MARK "\xe2\x96\x81"

/* A vocabulary of the kind of Gemma 4's: newlines, merges over words, bytes without 0xE2. */
static const struct token gemma4[] = {
    {"<pad>", CONTROL, 0},
    {"<eos>", CONTROL, 0},
    {"<bos>", CONTROL, 0},
    {"<unk>", CONTROL, 0},
    {"<|call>", USER_DEFINED, 0},
    {"<turn|>", CONTROL, 0},
    {"\n", NORMAL, 0},
    {"\n\n", NORMAL, 0},
    {"\n\n\n", NORMAL, 0},
    {MARK, NORMAL, 0},
    {MARK MARK, NORMAL, 0},
    {"a", NORMAL, 0},
    {"b", NORMAL, 0},
    {"ab", NORMAL, 0},
    {MARK "b", NORMAL, 0},
    {"a" MARK "b", NORMAL, 0},
    {"b\n", NORMAL, 0},
    {"<0xC3>", BYTE, 0},
    {"<0xA9>", BYTE, 0},
};
static const char *const gemma4_merges[] = {"\n\n \n",     "\n \n", MARK " " MARK, MARK " b",
                                            "a " MARK "b", "a b",   "b \n"};

/* The same as tokenizer.json has it. */
#define GEMMA4_FIRST ADDED(0, "<pad>") "," ADDED(1, "<eos>") "," ADDED(2, "<bos>")
#define GEMMA4_MORE ADDED(3, "<unk>") "," ADDED(4, "<|call>") "," ADDED(5, "<turn|>")
static const char gemma4_json[] =
    "{'added_tokens':[" GEMMA4_FIRST "," GEMMA4_MORE "],"
    "'normalizer':{'type':'Replace','pattern':{'String':' '},'content':'\\u2581'},"
    "'pre_tokenizer':{'type':'Split','pattern':{'String':' '},'behavior':'MergedWithPrevious',"
    "'invert':false},'decoder':{'type':'Sequence','decoders':[{'type':'Replace','pattern':{"
    "'String':'\\u2581'},'content':' '},{'type':'ByteFallback'},{'type':'Fuse'}]},"
    "'model':{'type':'BPE','unk_token':'<unk>','fuse_unk':true,'byte_fallback':true,'vocab':{"
    "'<pad>':0,'<eos>':1,'<bos>':2,'<unk>':3,'<|call>':4,'<turn|>':5,'\\n':6,'\\n\\n':7,"
    "'\\n\\n\\n':8,'\\u2581':9,'\\u2581\\u2581':10,'a':11,'b':12,'ab':13,'\\u2581b':14,"
    "'a\\u2581b':15,'b\\n':16,'<0xC3>':17,'<0xA9>':18},'merges':[['\\n\\n','\\n'],['\\n','\\n'],"
    "['\\u2581','\\u2581'],['\\u2581','b'],['a','\\u2581b'],['a','b'],['b','\\n']]}}";

static void test_gemma4(void **state)
{
    static const char texts[][24] = {"",
                                     "ab",
                                     "a b",
                                     "a  b",
                                     "  a   b ",
                                     "\n\n\n\n\na\n\nb\n",
                                     "a b\n b\n",
                                     "\xc3\xa9",
                                     MARK "b",
                                     "a\xe2\x82\xac\xe2\x82\xac b",
                                     "<|call>a<turn|>\n",
                                     "\tab\r\n"};
    (void)state;
    begin("gemma4");
    put_tokens(gemma4, N_OF(gemma4), true);
    put_merges(gemma4_merges, N_OF(gemma4_merges));
    int_key("tokenizer.ggml.unknown_token_id", 3);
    int_key("tokenizer.ggml.bos_token_id", 2);
    struct tok *t = open_file(NULL), *published = load_good(gemma4_json);
    REQUIRE_MSG(t, "%s", err);
    REQUIRE_EQ_STR(tok_source(t), "rule gemma4");
    for (size_t i = 0; i < N_OF(texts); i++) {
        for (unsigned flags = 0; flags <= TOK_PARSE_SPECIAL; flags += TOK_PARSE_SPECIAL) {
            char wanted[256];
            snprintf(wanted, sizeof(wanted), "%s", encoded(published, texts[i], flags));
            REQUIRE_EQ_STR(encoded(t, texts[i], flags), wanted);
        }
    }
    REQUIRE_EQ_STR(encoded(t, "a b\n\n\n\xc3\xa9", TOK_ADD_SPECIAL), "2 15 8 17 18");
    REQUIRE_EQ_STR(encoded(t, "<|call>a", TOK_PARSE_SPECIAL), "4 11");
    for (int32_t id = 0; id < (int32_t)N_OF(gemma4); id++)
        REQUIRE_EQ_INT(tok_is_special(t, id), tok_is_special(published, id));
    tok_close(published);
    tok_close(t);
    bool_key("tokenizer.ggml.add_space_prefix", true);
    REFUSED(NULL, "'gemma4' with a blank in front");
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
        cmocka_unit_test(test_gemma4),
        cmocka_unit_test(test_another_tokenizer),
        cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests(tests, init, fini);
}
