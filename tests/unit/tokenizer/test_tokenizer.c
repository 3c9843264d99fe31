/* SPDX-License-Identifier: MIT */
/*
 * The tokenizer's own promises: what it refuses and how it says so, special tokens in marked text,
 * bytes of tokens, the streaming decoder, and that round trips return. Equality with the reference
 * library is the business of tests/golden.
 */
#include "test.h"

#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sha256.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer_internal.h"

static char err[512];

/* ---- helpers ------------------------------------------------------------------------------- */

/* Loads JSON in which ' stands for ". NULL and err when it is refused. */
static struct tok *load(const char *json)
{
    size_t len = strlen(json);
    char *text = malloc(len + 1);
    struct tok *t = calloc(1, sizeof(*t));

    REQUIRE(text && t);
    for (size_t i = 0; i <= len; i++)
        text[i] = json[i] == '\'' ? '"' : json[i];
    err[0] = 0;
    int rc = tok_load(t, text, len, err, sizeof(err));
    free(text);
    if (rc == 0) return t;
    REQUIRE_MSG(err[0], "no sentence for %s", json);
    tok_close(t);
    return NULL;
}

static struct tok *load_good(const char *json)
{
    struct tok *t = load(json);
    REQUIRE_MSG(t, "%s", err);
    return t;
}

static struct tok *open_demo(void)
{
    char dir[4096];
    struct tok *t = NULL;

    snprintf(dir, sizeof(dir), "%s/deploy/demo", test_source_root());
    REQUIRE_MSG(tok_open(&t, dir, err, sizeof(err)) == 0, "%s", err);
    return t;
}

static char *print_ids(const struct tok_ids *ids)
{
    static char out[1024];
    size_t n = 0;

    out[0] = 0;
    for (size_t i = 0; i < ids->n && n < sizeof(out) - 16; i++) {
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%d", i ? " " : "", ids->ids[i]);
    }
    return out;
}

/* Ids of a text as "1 2 3". */
static char *encode(const struct tok *t, const char *text, unsigned flags)
{
    struct tok_ids ids = {0};
    int rc = tok_encode(t, text, strlen(text), flags, &ids, err, sizeof(err));

    REQUIRE_MSG(rc == 0, "\"%s\": %s", text, err);
    char *out = print_ids(&ids);
    tok_ids_finish(&ids);
    return out;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* ---- what is refused ----------------------------------------------------------------------- */

#define MODEL "'model':{'type':'BPE','vocab':{'a':0,'b':1,'ab':2},'merges':['a b']}"
#define ADDED(id, content)                                                                         \
    "{'id':" #id ",'content':'" content "','special':true,'normalized':false,"                     \
    "'single_word':false,'lstrip':false,'rstrip':false}"

static void wrong_files_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *json, *why;
    } cases[] = {
        {"", "byte 0"},
        {"{", "byte 1"},
        {"[]", "object"},
        {"{} x", "follows the value"},
        {"{}", "no \"model\""},
        {"{'model':null}", "object"},
        {"{'model':{}}", "\"vocab\""},
        {"{'model':{'vocab':{}}}", "\"merges\""},
        {"{'model':{'vocab':{},'merges':[],}}", "expected a string"},
        {"{'model':{'vocab':{'a':-1},'merges':[]}}", "an integer from 0"},
        {"{'model':{'vocab':{'a':1.0},'merges':[]}}", "an integer from 0"},
        {"{'model':{'vocab':{'a':01},'merges':[]}}", "comma"},
        {"{'model':{'vocab':{'a':2097152},'merges':[]}}", "limit"},
        {"{'model':{'vocab':{'a':99999999999999999999},'merges':[]}}", "limit"},
        {"{'model':{'vocab':{'a':0,'a':1},'merges':[]}}", "occurs twice"},
        {"{'model':{'vocab':{'a':0,'b':0},'merges':[]}}", "another token"},
        {"{'model':{'vocab':{'a':0},'merges':['a b']}}", "right part"},
        {"{'model':{'vocab':{'b':0},'merges':['a b']}}", "left part"},
        {"{'model':{'vocab':{'a':0,'b':1},'merges':['a b']}}", "the result"},
        {"{'model':{'vocab':{'a':0,'b':1},'merges':['ab']}}", "blank between"},
        {"{'model':{'vocab':{'a':0},'merges':['a  a']}}", "blank between"},
        {"{'model':{'vocab':{'a':0},'merges':[['a']]}}", "two strings"},
        {"{'model':{'vocab':{'a':0,'aa':1},'merges':[['a','a','a']]}}", "two strings"},
        {"{'model':{'vocab':{'a':0,'aa':1},'merges':['a a',['a','a']]}}", "mixes"},
        {"{'model':{'vocab':{'a':0},'merges':[['a',1]]}}", "two strings"},
        {"{" MODEL "," MODEL "}", "twice"},
        {"{'model':{'type':'Unigram','vocab':[['a',0.5]]}}", "\"Unigram\""},
        {"{'model':{'type':'WordPiece','vocab':{'a':0}}}", "\"WordPiece\""},
        {"{'model':{'vocab':{},'merges':[],'dropout':0.1}}", "dropout"},
        {"{'model':{'vocab':{},'merges':[],'end_of_word_suffix':'</w>'}}", "end_of_word_suffix"},
        {"{'model':{'vocab':{},'merges':[],'continuing_subword_prefix':'##'}}",
         "continuing_subword_prefix"},
        {"{'model':{'vocab':{},'merges':[],'byte_fallback':1}}", "byte_fallback"},
        {"{'model':{'vocab':{},'merges':[],'unk_token':1}}", "unk_token"},
        {"{'version':'2.0'," MODEL "}", "version"},
        {"{'normalizer':{'type':'BertNormalizer'}," MODEL "}", "\"BertNormalizer\""},
        {"{'normalizer':{'type':'Precompiled'}," MODEL "}", "\"Precompiled\""},
        {"{'normalizer':3," MODEL "}", "type"},
        {"{'normalizer':{'type':'Sequence'}," MODEL "}", "normalizers"},
        {"{'normalizer':{'type':'Prepend'}," MODEL "}", "prepend"},
        {"{'normalizer':{'type':'Replace','pattern':' ','content':''}," MODEL "}", "pattern"},
        {"{'normalizer':{'type':'Replace','pattern':{'Regex':'['},'content':''}," MODEL "}",
         "[ without ]"},
        {"{'pre_tokenizer':{'type':'BertPreTokenizer'}," MODEL "}", "\"BertPreTokenizer\""},
        {"{'pre_tokenizer':{'type':'Split','pattern':{'String':'a'},'behavior':'Glued','invert':"
         "false}," MODEL "}",
         "\"Glued\""},
        {"{'pre_tokenizer':{'type':'Split','pattern':{'String':'a'},'behavior':'Isolated'}," MODEL
         "}",
         "invert"},
        {"{'pre_tokenizer':{'type':'Digits'}," MODEL "}", "individual_digits"},
        {"{'pre_tokenizer':{'type':'Metaspace','replacement':'ab'}," MODEL "}", "one character"},
        {"{'pre_tokenizer':{'type':'Metaspace','replacement':'_','prepend_scheme':'last'}," MODEL
         "}",
         "\"last\""},
        {"{'pre_tokenizer':{'type':'Metaspace','replacement':'_','add_prefix_space':false}," MODEL
         "}",
         "contradicts"},
        {"{'post_processor':{'type':'RobertaProcessing'}," MODEL "}", "\"RobertaProcessing\""},
        {"{'post_processor':{'type':'TemplateProcessing','single':[]}," MODEL "}", "sequence A"},
        {"{'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'x'}}],'"
         "special_tokens':{}}," MODEL "}",
         "\"ids\""},
        {"{'decoder':{'type':'WordPiece'}," MODEL "}", "\"WordPiece\""},
        {"{'decoder':{'type':'Sequence','decoders':[{'type':'Fuse'},{'type':'ByteFallback'}]}"
         "," MODEL "}",
         "behind"},
        {"{'decoder':{'type':'Strip','content':' ','start':-1,'stop':0}," MODEL "}", "start"},
        {"{'added_tokens':{}," MODEL "}", "array"},
        {"{'added_tokens':[{'id':3}]," MODEL "}", "content"},
        {"{'added_tokens':[" ADDED(5, "x") "]," MODEL "}", "another id"},
        {"{'added_tokens':[" ADDED(1, "a") "]," MODEL "}", "another id"},
        {"{'added_tokens':[" ADDED(3, "x") "," ADDED(3, "x") "]," MODEL "}", "occurs twice"},
        {"{'added_tokens':[" ADDED(3, "x") "," ADDED(3, "y") "]," MODEL "}", "occurs twice"},
        {"{'model':{'vocab':{'\\ud800':0},'merges':[]}}", "surrogate"},
        {"{'model':{'vocab':{'\\udc00':0},'merges':[]}}", "surrogate"},
        {"{'model':{'vocab':{'\\q':0},'merges':[]}}", "escape"},
        {"{'model':{'vocab':{'\n':0},'merges':[]}}", "control character"},
        {"{'truncation':tru," MODEL "}", "true or false"},
        {"{'truncation':1e," MODEL "}", "exponent"},
        {"{'truncation':1.," MODEL "}", "point"},
        {"{'decoder':null,'decoder':null," MODEL "}", "twice"},
        {"{'x':\xff}", "UTF-8"},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok *t = load(cases[i].json);
        REQUIRE_MSG(!t, "accepted: %s", cases[i].json);
        REQUIRE_MSG(strstr(err, cases[i].why), "%s\n%s", cases[i].json, err);
    }
}

static void deep_nesting_is_refused(void **state)
{
    static char json[3000];

    (void)state;
    snprintf(json, sizeof(json), "{'x':");
    memset(json + 5, '[', 2000);
    REQUIRE(!load(json));
    REQUIRE(strstr(err, "nests deeper than 129 levels"));
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    static const char json[] =
        "{\"added_tokens\":[],\"normalizer\":{\"type\":\"NFC\"},\"model\":{\"type\":\"BPE\","
        "\"vocab\":{\"a\":0,\"\\u00e9\":1,\"aa\":2},\"merges\":[[\"a\",\"a\"]]}}";

    (void)state;
    for (size_t len = 0; len < sizeof(json) - 1; len++) {
        struct tok *t = calloc(1, sizeof(*t));
        REQUIRE(t);
        REQUIRE_MSG(tok_load(t, json, len, err, sizeof(err)) == TOK_EINVAL, "%zu bytes", len);
        tok_close(t);
    }
    tok_close(load_good(json));
}

static void escapes_and_the_order_of_members_do_not_matter(void **state)
{
    static const char *const files[] = {
        "{'model':{'vocab':{'a':0,'\xf0\x9f\x91\xa9':1,'a\xf0\x9f\x91\xa9':2,'\\u0000':3,'\\/"
        "\\t':4},"
        "'merges':['a \xf0\x9f\x91\xa9']},'decoder':{'type':'Fuse'}}",
        " { 'decoder' : {'type':'Fuse'} , 'model' : { 'merges' : [ [ '\\u0061' , '\\ud83D\\uDC69' "
        "] ] ,"
        "\n'vocab':{'\\u0061':0,'\\ud83d\\udc69':1,'\\u0061\\ud83d\\udc69':2,'\\u0000':3,'/"
        "\\u0009':4}}}",
        "{'model':{'merges':['#version: 0.2','a "
        "\\ud83d\\udc69'],'extra':[{},[1.5e-3,true,false,null]],"
        "'vocab':{'a':0,'\\ud83d\\udc69':1,'a\\ud83d\\udc69':2,'\\u0000':3,'/"
        "\\t':4}},'decoder':{'type':'Fuse'}}",
    };

    (void)state;
    for (size_t i = 0; i < N_OF(files); i++) {
        struct tok *t = load_good(files[i]);
        REQUIRE_EQ_STR(encode(t, "a\xf0\x9f\x91\xa9\xf0\x9f\x91\xa9", 0), "2 1");
        REQUIRE_EQ_INT(tok_token_id(t, "\0", 1), 3);
        REQUIRE_EQ_INT(tok_token_id(t, "/\t", 2), 4);
        tok_close(t);
    }
}

/* ---- files --------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *content)
{
    FILE *f = fopen(path, "wb");

    REQUIRE(f);
    REQUIRE_EQ_INT(fwrite(content, 1, strlen(content), f), strlen(content));
    REQUIRE_EQ_INT(fclose(f), 0);
}

static void opening_names_the_file_and_the_fault(void **state)
{
    char dir[] = "/tmp/hearth-tok-XXXXXX", path[64];
    struct tok *t = NULL;

    (void)state;
    REQUIRE(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    REQUIRE_EQ_INT(tok_open(&t, dir, err, sizeof(err)), TOK_ENOENT);
    REQUIRE(strstr(err, path));
    REQUIRE_EQ_INT(mkdir(path, 0700), 0);
    REQUIRE_EQ_INT(tok_open(&t, dir, err, sizeof(err)), TOK_EINVAL);
    REQUIRE_EQ_INT(rmdir(path), 0);
    write_file(path, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    REQUIRE_EQ_INT(tok_open(&t, dir, err, sizeof(err)), TOK_EINVAL);
    REQUIRE(strstr(err, "git-lfs"));
    write_file(path, "{}");
    REQUIRE_EQ_INT(tok_open(&t, dir, err, sizeof(err)), TOK_EINVAL);
    REQUIRE(strstr(err, path) && !t);
    write_file(path, "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    REQUIRE_EQ_INT(tok_open(&t, dir, err, sizeof(err)), 0);
    static const uint8_t digest[4] = {0xdc, 0x48, 0xb2, 0x78};
    REQUIRE_MSG(memcmp(tok_fingerprint(t), digest, 4) == 0, "%02x%02x%02x%02x",
                tok_fingerprint(t)[0], tok_fingerprint(t)[1], tok_fingerprint(t)[2],
                tok_fingerprint(t)[3]);
    tok_close(t);
    unlink(path);
    rmdir(dir);
    tok_close(NULL);
}

/* ---- ids ----------------------------------------------------------------------------------- */

static void ids_may_have_holes(void **state)
{
    struct tok *t = load_good("{'added_tokens':[" ADDED(
        3, "<s>") "],'model':{'vocab':{'a':0,'b':7,'<s>':3},'merges':[]}}");
    size_t len;

    (void)state;
    REQUIRE_EQ_INT(tok_vocab_size(t), 8);
    REQUIRE(tok_has_id(t, 0) && tok_has_id(t, 7) && tok_has_id(t, 3));
    REQUIRE(!tok_has_id(t, 1) && !tok_has_id(t, -1) && !tok_has_id(t, 8) &&
            !tok_has_id(t, INT32_MAX));
    REQUIRE(tok_is_special(t, 3) && !tok_is_special(t, 0) && !tok_is_special(t, 99));
    REQUIRE_EQ_INT(tok_token_id(t, "<s>", 3), 3);
    REQUIRE_EQ_INT(tok_token_id(t, "b", 1), 7);
    REQUIRE_EQ_INT(tok_token_id(t, "c", 1), -1);
    REQUIRE(!tok_token_string(t, 1, &len) && memcmp(tok_token_string(t, 3, &len), "<s>", 3) == 0);
    REQUIRE_EQ_INT(tok_token_bytes(t, 1, NULL, 0), 0);
    tok_close(t);
}

static void tokens_stand_for_bytes(void **state)
{
    static const char bytes[] = "{'decoder':{'type':'ByteLevel'},'model':{'vocab':{'\xc4\xa0the':0,"
                                "'\xc3\xa6':1,'\xe6\xb0\xb4':2},'merges':[]}}";
    static const char marks[] =
        "{'decoder':{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'_'},'"
        "content':' '},"
        "{'type':'ByteFallback'},{'type':'Fuse'},{'type':'Strip','content':' "
        "','start':1,'stop':0}]},"
        "'model':{'vocab':{'_the':0,'<0xE6>':1,'<0x0a>':2,'<0xZZ>':3},'merges':[]}}";
    static const struct {
        const char *json;
        int32_t id;
        const char *bytes;
    } cases[] = {{bytes, 0, " the"},  {bytes, 1, "\xe6"}, {bytes, 2, "\xe6\xb0\xb4"},
                 {marks, 0, " the"},  {marks, 1, "\xe6"}, {marks, 2, "\n"},
                 {marks, 3, "<0xZZ>"}};

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok *t = load_good(cases[i].json);
        char buf[32] = "";
        REQUIRE_EQ_INT(tok_token_bytes(t, cases[i].id, buf, sizeof(buf)), strlen(cases[i].bytes));
        REQUIRE_EQ_STR(buf, cases[i].bytes);
        char one[2] = "";
        REQUIRE_EQ_INT(tok_token_bytes(t, cases[i].id, one, 1), strlen(cases[i].bytes));
        REQUIRE(one[0] == cases[i].bytes[0] && one[1] == 0);
        tok_close(t);
    }
}

/* ---- encoding ------------------------------------------------------------------------------ */

static void text_that_is_not_utf8_is_refused(void **state)
{
    static const char *const texts[] = {"\xff",     "a\x80",           "\xc3",
                                        "\xe6\xb0", "\xed\xa0\x80",    "\xf4\x90\x80\x80",
                                        "\xc0\xaf", "\xf0\x80\x80\x80"};
    struct tok *t = open_demo();
    struct tok_ids ids = {0};

    (void)state;
    for (size_t i = 0; i < N_OF(texts); i++) {
        REQUIRE_EQ_INT(tok_encode(t, texts[i], strlen(texts[i]), 3, &ids, err, sizeof(err)),
                       TOK_EUTF8);
        REQUIRE_EQ_INT(ids.n, 0);
    }
    tok_ids_finish(&ids);
    tok_close(t);
}

static void ids_are_appended_and_kept_on_failure(void **state)
{
    struct tok *t = open_demo();
    struct tok_ids ids = {0};

    (void)state;
    REQUIRE_EQ_INT(tok_encode(t, "one", 3, 0, &ids, err, sizeof(err)), 0);
    size_t n = ids.n;
    REQUIRE_EQ_INT(tok_encode(t, "two", 3, 0, &ids, err, sizeof(err)), 0);
    REQUIRE(ids.n > n);
    n = ids.n;
    REQUIRE_EQ_INT(tok_encode(t, "\xff", 1, 0, &ids, err, sizeof(err)), TOK_EUTF8);
    REQUIRE_EQ_INT(ids.n, n);
    tok_ids_finish(&ids);
    tok_close(t);
}

#define SPECIALS                                                                                   \
    "'added_tokens':[" ADDED(3, "<a>") "," ADDED(4, "<a><b>") "," ADDED(                           \
        5, "[x]") "],"                                                                             \
                  "'model':{'vocab':{'<':0,'>':1,'a':2,'<a>':3,'<a><b>':4,'[x]':5,'b':6,'[':7,'x'" \
                  ":8,']':9},'merges':[]}"

static void special_tokens_from_input_are_plain_text(void **state)
{
    static const struct {
        const char *text;
        struct tok_range input[2];
        size_t n_input;
        unsigned flags;
        const char *ids;
    } cases[] = {
        {"<a>[x]", {{0, 0}}, 0, TOK_PARSE_SPECIAL, "3 5"},
        {"<a>[x]", {{0, 0}}, 0, 0, "0 2 1 7 8 9"},
        {"<a>[x]", {{0, 3}}, 1, TOK_PARSE_SPECIAL, "0 2 1 5"},
        {"<a>[x]", {{3, 6}}, 1, TOK_PARSE_SPECIAL, "3 7 8 9"},
        {"<a>[x]", {{2, 4}}, 1, TOK_PARSE_SPECIAL, "0 2 1 7 8 9"},
        {"<a>[x]", {{1, 2}, {5, 6}}, 2, TOK_PARSE_SPECIAL, "0 2 1 7 8 9"},
        {"<a><b>", {{0, 0}}, 0, TOK_PARSE_SPECIAL, "4"},
        {"<a><b>", {{3, 6}}, 1, TOK_PARSE_SPECIAL, "3 0 6 1"}, /* the template's token stays */
        {"<a><a>", {{0, 1}}, 1, TOK_PARSE_SPECIAL, "0 2 1 3"},
    };
    struct tok *t = load_good("{" SPECIALS "}");

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok_ids ids = {0};
        int rc = tok_encode_marked(t, cases[i].text, strlen(cases[i].text), cases[i].input,
                                   cases[i].n_input, cases[i].flags, &ids, err, sizeof(err));
        REQUIRE_EQ_INT(rc, 0);
        REQUIRE_MSG(strcmp(print_ids(&ids), cases[i].ids) == 0, "case %zu: %s, not %s", i,
                    print_ids(&ids), cases[i].ids);
        tok_ids_finish(&ids);
    }
    tok_close(t);
}

/* Special tokens that are looked for in normalized text are traced back to where they came from. */
static void marks_hold_behind_a_normalizer(void **state)
{
    static const char json[] =
        "{'normalizer':{'type':'Sequence','normalizers':[{'type':'Strip','strip_left':true,'strip_"
        "right':false},"
        "{'type':'Prepend','prepend':'__'},{'type':'Replace','pattern':{'String':'ss'},'content':'-"
        "'},{'type':'Lowercase'},{'type':'NFKC'}]},"
        "'added_tokens':[{'id':0,'content':'<E>','special':true,'normalized':true,'single_word':"
        "false,'lstrip':false,'rstrip':false}],"
        "'model':{'vocab':{'<E>':0,'<':1,'e':2,'>':3,'_':4,'-':5,'__<e>':6,'fi':7,'f':8,'i':9},'"
        "merges':[]}}";
    static const struct {
        const char *text;
        struct tok_range input;
        const char *ids;
    } cases[] = {
        {"  <E>ss<e>", {0, 0}, "0 5 1 2 3"}, /* the pattern is normalized too: it begins with the
                                                prefix */
        {"  <E>ss", {6, 7}, "0 5"},          {"  <E>ss", {3, 4}, "4 4 1 2 3 5"},
        {"  <E>ss", {0, 1}, "0 5"},          {"\xef\xac\x81", {0, 3}, "4 4 8 9"},
    };
    struct tok *t = load_good(json);

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok_ids ids = {0};
        REQUIRE_EQ_INT(tok_encode_marked(t, cases[i].text, strlen(cases[i].text), &cases[i].input,
                                         1, TOK_PARSE_SPECIAL, &ids, err, sizeof(err)),
                       0);
        REQUIRE_MSG(strcmp(print_ids(&ids), cases[i].ids) == 0, "case %zu: %s, not %s", i,
                    print_ids(&ids), cases[i].ids);
        tok_ids_finish(&ids);
    }
    tok_close(t);
}

static void harmless_marks_change_nothing(void **state)
{
    struct tok *t = open_demo();
    static const char text[] =
        "<|im_start|>user\nThe river runs past the mill. It's 12 o'clock.<|im_end|>";
    struct tok_range all = {17, 60};
    struct tok_ids plain = {0}, marked = {0};

    (void)state;
    REQUIRE_EQ_INT(
        tok_encode(t, text, sizeof(text) - 1, TOK_PARSE_SPECIAL, &plain, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(tok_encode_marked(t, text, sizeof(text) - 1, &all, 1, TOK_PARSE_SPECIAL, &marked,
                                     err, sizeof(err)),
                   0);
    REQUIRE_EQ_INT(plain.n, marked.n);
    REQUIRE(memcmp(plain.ids, marked.ids, plain.n * sizeof(*plain.ids)) == 0);
    tok_ids_finish(&plain);
    tok_ids_finish(&marked);
    tok_close(t);
}

static void an_unknown_token_that_is_missing_is_an_error_when_needed(void **state)
{
    struct tok *t = load_good("{'model':{'vocab':{'a':0},'merges':[],'unk_token':'<unk>'}}");
    struct tok_ids ids = {0};

    (void)state;
    REQUIRE_EQ_STR(encode(t, "aa", 0), "0 0");
    REQUIRE_EQ_INT(tok_encode(t, "ab", 2, 0, &ids, err, sizeof(err)), TOK_EINVAL);
    REQUIRE(strstr(err, "unknown token"));
    tok_ids_finish(&ids);
    tok_close(t);
}

/* The heap of long words and the scan of short ones choose the same merges. */
static void long_words_merge_like_short_ones(void **state)
{
    struct tok *t =
        load_good("{'model':{'vocab':{'a':0,'b':1,'aa':2,'ab':3,'aaaa':4,'ba':5,'aba':6},"
                  "'merges':['a a','a b','aa aa','b a','ab a']}}");
    static char text[1201];
    struct tok_ids ids = {0};
    char *back;
    size_t len;
    uint64_t seed = 88172645463325252u;

    (void)state;
    REQUIRE_EQ_STR(encode(t, "aaaaaaaabab", 0), "4 4 1 3");
    memset(text, 'a', 1200);
    REQUIRE_EQ_INT(tok_encode(t, text, 1200, 0, &ids, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(ids.n, 300);
    for (size_t i = 0; i < 1200; i++)
        text[i] = next_random(&seed) % 3 ? 'a' : 'b';
    ids.n = 0;
    REQUIRE_EQ_INT(tok_encode(t, text, 1200, 0, &ids, err, sizeof(err)), 0);
    for (size_t i = 0; i + 1 < ids.n; i++)
        REQUIRE(!(ids.ids[i] == 0 && ids.ids[i + 1] == 0)); /* "a a" is merged */
    tok_close(t);
    t = load_good("{'decoder':{'type':'Fuse'},'model':{'vocab':{'a':0,'b':1,'aa':2,'ab':3,'aaaa':4,"
                  "'ba':5,'aba':6},'merges':[]}}");
    REQUIRE_EQ_INT(tok_decode(t, ids.ids, ids.n, false, &back, &len), 0);
    REQUIRE_EQ_STR(back, text);
    free(back);
    tok_ids_finish(&ids);
    tok_close(t);
}

/* Canonical order and composition, also where a run of marks is longer than any text's. */
static void runs_of_combining_marks_are_ordered(void **state)
{
    static const char json[] = "{'normalizer':{'type':'NFC'},'model':{'vocab':{'e':0,'\xc3\xa9':1,'"
                               "\xcc\x81':2,'\xcc\x96':3,"
                               "'\xe1\x84\x92':4,'\xed\x95\x9c':5},'merges':[]}}";
    struct tok *t = load_good(json);
    char text[512] = "e";
    struct tok_ids ids = {0};

    (void)state;
    REQUIRE_EQ_STR(encode(t, "e\xcc\x81\xcc\x96", 0), "1 3");
    REQUIRE_EQ_STR(encode(t, "e\xcc\x96\xcc\x81", 0), "1 3");
    REQUIRE_EQ_STR(encode(t, "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab\xe1\x84\x92", 0), "5 4");
    for (size_t i = 0; i < 50; i++)
        memcpy(text + 1 + 4 * i, "\xcc\x81\xcc\x96", 4);
    REQUIRE_EQ_INT(tok_encode(t, text, 201, 0, &ids, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(ids.n, 100);
    for (size_t i = 0; i < ids.n; i++)
        REQUIRE_EQ_INT(ids.ids[i], i == 0 ? 1 : i <= 50 ? 3 : 2);
    tok_ids_finish(&ids);
    tok_close(t);
}

/*
 * Processor seconds to encode `len` bytes of one repeated unit, or of drawn letters where it is
 * NULL.
 */
static double seconds_for(const struct tok *t, const char *unit, char *text, size_t len)
{
    struct timespec from, to;
    struct tok_ids ids = {0};
    uint64_t seed = 1;
    size_t n = unit ? strlen(unit) : 1, at = 0;

    for (; at + n <= len; at += n) {
        if (unit)
            memcpy(text + at, unit, n);
        else
            text[at] = (char)('a' + next_random(&seed) % 26);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    REQUIRE_EQ_INT(tok_encode(t, text, at, 3, &ids, err, sizeof(err)), 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    REQUIRE(ids.n > 0);
    tok_ids_finish(&ids);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

/*
 * A megabyte without a break takes about 8 times as long as an 8th of one, where quadratic work
 * would take 64 times as long; the best of three tries.
 */
static void a_megabyte_without_a_break_takes_linear_time(void **state)
{
    static const char *const units[] = {"a", " ",     "\n", "\xe6\xb0\xb4",     "e\xcc\x81",
                                        "7", "<|im_", "!?", "\xf0\x9f\x91\xa9", "ab",
                                        NULL};
    struct tok *t = open_demo();
    char *text = malloc(1 << 20);

    (void)state;
    REQUIRE(text);
    for (size_t i = 0; i < N_OF(units); i++) {
        double best = 1e9;
        for (int k = 0; k < 3 && best > 30; k++) {
            double part = seconds_for(t, units[i], text, 1 << 17);
            double whole = seconds_for(t, units[i], text, 1 << 20);
            if (whole / (part + 1e-3) < best) best = whole / (part + 1e-3);
        }
        REQUIRE_MSG(best < 30, "%s: 8 times the text takes %.1f times as long",
                    units[i] ? units[i] : "letters", best);
    }
    free(text);
    tok_close(t);
}

/* ---- decoding ------------------------------------------------------------------------------ */

#define BYTES                                                                                      \
    "{'decoder':{'type':'ByteLevel'},'model':{'vocab':{'a':0,'\xc3\xa6':1,'\xc2\xb0':2,'\xc2\xb4'" \
    ":3,'\xc3\xbf':4},'merges':[]}}"
#define MARKS                                                                                      \
    "{'decoder':{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'_'},'"       \
    "content':' '},"                                                                               \
    "{'type':'ByteFallback'},{'type':'Fuse'},{'type':'Strip','content':' ','start':1,'stop':0}]}," \
    "'model':{'vocab':{'a':0,'<0xE6>':1,'<0xB0>':2,'<0xB4>':3,'<0xFF>':4,'_':5,'_a':6},'merges':[" \
    "]}}"
#define BAD "\xef\xbf\xbd"

static void characters_come_out_when_they_are_complete(void **state)
{
    static const struct {
        const char *json;
        int32_t ids[8];
        const char *pieces[8]; /* the last one is what the flush gives */
        size_t n;
    } cases[] = {
        {BYTES, {1, 2, 3}, {"", "", "\xe6\xb0\xb4", ""}, 3},
        {BYTES, {1, 2}, {"", "", BAD}, 2},
        {BYTES, {1, 2, 0}, {"", "", BAD "a", ""}, 3},
        {BYTES, {1, 1}, {"", BAD, BAD}, 2},
        {BYTES, {4, 2, 0}, {BAD, BAD, "a", ""}, 3},
        {BYTES, {1, 99, -5, 2, 3}, {"", "", "", "", "\xe6\xb0\xb4", ""}, 5},
        {MARKS, {1, 2, 3}, {"", "", "\xe6\xb0\xb4", ""}, 3},
        {MARKS, {1, 2, 0}, {"", "", BAD BAD "a", ""}, 3},
        {MARKS, {1, 2}, {"", "", BAD BAD}, 2},
        {MARKS, {4, 3, 0}, {BAD, BAD, "a", ""}, 3},
        {MARKS, {6, 6, 5, 5}, {"a", " a", " ", " ", ""}, 4},
        {MARKS, {5, 6}, {"", " a", ""}, 2},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok *t = load_good(cases[i].json);
        struct tok_decoder *d;
        const char *s;
        size_t len;
        REQUIRE_EQ_INT(tok_decoder_create(&d, t, false), 0);
        for (int round = 0; round < 2; round++) {
            for (size_t k = 0; k <= cases[i].n; k++) {
                int rc = k < cases[i].n ? tok_decoder_push(d, cases[i].ids[k], &s, &len)
                                        : tok_decoder_flush(d, &s, &len);
                REQUIRE_EQ_INT(rc, 0);
                REQUIRE_MSG(len == strlen(cases[i].pieces[k]) &&
                                memcmp(s, cases[i].pieces[k], len) == 0,
                            "case %zu, piece %zu: \"%.*s\"", i, k, (int)len, s);
            }
            tok_decoder_reset(d);
        }
        tok_decoder_destroy(d);
        tok_close(t);
    }
    tok_decoder_destroy(NULL);
}

static void special_tokens_are_skipped_when_asked(void **state)
{
    struct tok *t = load_good("{'decoder':{'type':'Fuse'}," SPECIALS "}");
    const int32_t ids[] = {3, 2, 5, 6};
    char *text;
    size_t len;

    (void)state;
    REQUIRE_EQ_INT(tok_decode(t, ids, 4, false, &text, &len), 0);
    REQUIRE_EQ_STR(text, "<a>a[x]b");
    free(text);
    REQUIRE_EQ_INT(tok_decode(t, ids, 4, true, &text, &len), 0);
    REQUIRE_EQ_STR(text, "ab");
    free(text);
    REQUIRE_EQ_INT(tok_decode(t, NULL, 0, true, &text, &len), 0);
    REQUIRE_EQ_STR(text, "");
    free(text);
    tok_close(t);
}

/* ---- properties ---------------------------------------------------------------------------- */

static size_t random_text(char *out, size_t n_chars, uint64_t *seed)
{
    static const uint32_t limits[] = {0x80, 0x80, 0x80, 0x800, 0x3000, 0x10000, 0x110000};
    size_t len = 0;

    for (size_t i = 0; i < n_chars; i++) {
        uint64_t r = next_random(seed);
        uint32_t cp = (uint32_t)(r >> 8) % limits[r % N_OF(limits)];
        if (r >> 61 == 0) cp = ' ';
        len += utf8_put(out + len, cp >= 0xD800 && cp <= 0xDFFF ? 'x' : cp);
    }
    return len;
}

static void decoding_gives_the_text_back(void **state)
{
    struct tok *t = open_demo();
    static char text[4 * 100];

    (void)state;
    for (uint64_t i = 1; i <= 3000; i++) {
        uint64_t seed = i * 0x9E3779B97F4A7C15u;
        size_t n = random_text(text, i % 100, &seed), len;
        struct tok_ids ids = {0};
        char *back;
        REQUIRE_EQ_INT(tok_encode(t, text, n, 0, &ids, err, sizeof(err)), 0);
        REQUIRE_EQ_INT(tok_decode(t, ids.ids, ids.n, false, &back, &len), 0);
        REQUIRE_MSG(len == n && memcmp(back, text, n) == 0, "seed %llu", (unsigned long long)i);
        free(back);
        tok_ids_finish(&ids);
    }
    tok_close(t);
}

static void streamed_is_plain(void **state)
{
    struct tok *t = open_demo();
    int32_t size = tok_vocab_size(t);

    (void)state;
    for (uint64_t i = 1; i <= 2000; i++) {
        uint64_t seed = i * 0xD1B54A32D192ED03u;
        int32_t ids[60];
        size_t n = i % 60, at = 0, len, plain_len;
        struct tok_decoder *d;
        const char *s;
        char *plain;
        for (size_t k = 0; k < n; k++)
            ids[k] = (int32_t)(next_random(&seed) % (uint64_t)(size + 5));
        REQUIRE_EQ_INT(tok_decode(t, ids, n, i & 1, &plain, &plain_len), 0);
        REQUIRE_EQ_INT(tok_decoder_create(&d, t, i & 1), 0);
        for (size_t k = 0; k <= n; k++) {
            REQUIRE_EQ_INT(
                k < n ? tok_decoder_push(d, ids[k], &s, &len) : tok_decoder_flush(d, &s, &len), 0);
            REQUIRE_MSG(at + len <= plain_len && memcmp(plain + at, s, len) == 0 &&
                            utf8_valid(s, len),
                        "seed %llu", (unsigned long long)i);
            at += len;
        }
        REQUIRE_EQ_INT(at, plain_len);
        tok_decoder_destroy(d);
        free(plain);
    }
    tok_close(t);
}

/* ---- growth -------------------------------------------------------------------------------- */

/* A tokenizer whose MEMBER is a Sequence (of LIST): `head`, then the components n times. Owned. */
static char *with_sequence(const char *member, const char *list, const char *head,
                           const char *components, int n)
{
    size_t size = strlen(head) + strlen(components) * (size_t)n + (size_t)n + 512;
    char *json = malloc(size);

    REQUIRE(json);
    size_t len =
        (size_t)snprintf(json, size, "{'%s':{'type':'Sequence','%s':[%s", member, list, head);
    for (int i = 0; i < n; i++)
        len += (size_t)snprintf(json + len, size - len, "%s%s", i || *head ? "," : "", components);
    snprintf(json + len, size - len,
             "]},'model':{'vocab':{'a':0,'b':1,'_':2,'.':3,' ':4},'merges':[]}}");
    return json;
}

static struct tok *load_sequence(const char *member, const char *list, const char *head,
                                 const char *components, int n)
{
    char *json = with_sequence(member, list, head, components, n);
    struct tok *t = load(json);

    free(json);
    return t;
}

#define REPLACE(kind, pattern, content)                                                            \
    "{'type':'Replace','pattern':{'" kind "':'" pattern "'},'content':'" content "'}"
#define METASPACE(mark) "{'type':'Metaspace','replacement':'" mark "','prepend_scheme':'always'}"
#define SPLIT_ALL "{'type':'Split','pattern':{'Regex':''},'behavior':'Isolated','invert':false}"
#define MAPPED "{'type':'ByteLevel','add_prefix_space':false,'use_regex':false}"
#define E_ACUTE "\xc3\xa9"

/* Every chain here makes some text at least twice as long with each of its seven rounds. */
static void chains_that_multiply_their_own_pattern_are_refused_at_load(void **state)
{
    static const struct {
        const char *member, *list, *head, *components;
    } cases[] = {
        {"normalizer", "normalizers", "", REPLACE("String", "a", "aa")},
        {"normalizer", "normalizers", "{'type':'Lowercase'}",
         REPLACE("String", "A", "b") "," REPLACE("String", "a", "aa")},
        {"normalizer", "normalizers", "", REPLACE("String", "a", "a_a")},
        {"decoder", "decoders", "", REPLACE("String", "a", "aa")},
        {"decoder", "decoders", "", REPLACE("Regex", "[ab]", "ab")},
        {"decoder", "decoders", "{'type':'ByteFallback'}",
         REPLACE("String", E_ACUTE, E_ACUTE E_ACUTE)},
        {"decoder", "decoders", "{'type':'Fuse'}", REPLACE("String", "a", "bb")},
        {"decoder", "decoders", MAPPED, REPLACE("String", "xy", "xxyy")},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok *t =
            load_sequence(cases[i].member, cases[i].list, cases[i].head, cases[i].components, 7);
        REQUIRE_MSG(!t, "accepted: %s", cases[i].components);
        REQUIRE_MSG(strstr(err, cases[i].member) && strstr(err, "16 times"), "%zu: %s", i, err);
    }
}

/* No pattern's own text shows this growth: the request that meets it is refused. */
static void growth_of_a_text_is_bounded(void **state)
{
    static const struct {
        const char *member, *list, *components;
        int n;
        const char *text;
    } cases[] = {
        {"normalizer", "normalizers", REPLACE("Regex", "[ab]", "aa"), 24, "aaaaaaaaaa"},
        {"normalizer", "normalizers", REPLACE("Regex", "", "ab"), 12, "b"},
        {"pre_tokenizer", "pretokenizers", MAPPED, 24, "a " E_ACUTE},
        {"pre_tokenizer", "pretokenizers",
         SPLIT_ALL "," METASPACE("a") "," SPLIT_ALL "," METASPACE("b"), 15, "_"},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok_ids ids = {0};
        struct tok *t =
            load_sequence(cases[i].member, cases[i].list, "", cases[i].components, cases[i].n);
        REQUIRE_MSG(t, "%zu: %s", i, err);
        int rc = tok_encode(t, cases[i].text, strlen(cases[i].text), 0, &ids, err, sizeof(err));
        REQUIRE_MSG(rc == TOK_ELIMIT && ids.n == 0, "%zu: %d, %zu ids", i, rc, ids.n);
        REQUIRE_MSG(strstr(err, "bytes to a text of"), "%zu: %s", i, err);
        tok_ids_finish(&ids);
        tok_close(t);
    }
}

/* The bound is for the whole text, however many stretches added tokens cut it into. */
static void growth_is_counted_over_all_stretches(void **state)
{
    enum { N = 1000 };
    static char json[70000], text[2 * N + 1];
    struct tok_ids ids = {0};
    size_t len =
        (size_t)snprintf(json, sizeof(json), "{'normalizer':{'type':'Prepend','prepend':'");

    (void)state;
    memset(json + len, 'b', 60000);
    snprintf(json + len + 60000, sizeof(json) - len - 60000,
             "'},'added_tokens':[" ADDED(2, "|") "],'model':{'vocab':{'a':0,'b':1},'merges':[]}}");
    struct tok *t = load_good(json);
    for (int i = 0; i < N; i++)
        memcpy(text + 2 * i, "a|", 2);
    REQUIRE_EQ_INT(tok_encode(t, text, 2, TOK_PARSE_SPECIAL, &ids, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(ids.n, 60002);
    ids.n = 0;
    int rc = tok_encode(t, text, sizeof(text) - 1, TOK_PARSE_SPECIAL, &ids, err, sizeof(err));
    REQUIRE_EQ_INT(rc, TOK_ELIMIT);
    REQUIRE_EQ_INT(ids.n, 0);
    tok_ids_finish(&ids);
    tok_close(t);
}

/* The largest growth that Unicode has: U+FDFA becomes 18 characters, a third of them blanks. */
static void growth_that_models_need_is_not_refused(void **state)
{
    enum { N = 100000 };
    struct tok_ids ids = {0};
    char *text = malloc(3 * N);
    struct tok *t = load_good(
        "{'normalizer':{'type':'Sequence','normalizers':[{'type':'NFKC'},{'type':'Prepend',"
        "'prepend':'\xe2\x96\x81'}," REPLACE("String", " ",
                                             "\xe2\x96\x81") "]},"
                                                             "'model':{'vocab':{'\xe2\x96\x81':0,'?"
                                                             "':1},'merges':[],'unk_token':'?'}}");

    (void)state;
    REQUIRE(text);
    for (int i = 0; i < N; i++)
        memcpy(text + 3 * i, "\xef\xb7\xba", 3);
    int rc = tok_encode(t, text, 3 * N, 0, &ids, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    REQUIRE_EQ_INT(ids.n, 18 * N + 1);
    tok_ids_finish(&ids);
    free(text);
    tok_close(t);
}

/* The placeholders of ten digits become three bytes each: no token grows by more than three. */
static void decoders_may_replace_many_short_tokens(void **state)
{
    char components[2048] = "";
    size_t len = 0;

    (void)state;
    for (int i = 0; i < 10; i++)
        len += (size_t)snprintf(components + len, sizeof(components) - len,
                                "%s{'type':'Replace','pattern':{'String':'%d'},'content':"
                                "'\xe0\xa5%c'}",
                                i ? "," : "", i, 0xA6 + i);
    struct tok *t = load_sequence("decoder", "decoders", "", components, 1);
    REQUIRE_MSG(t, "%s", err);
    tok_close(t);
}

/* Two thousand references to one list of two thousand ids: four million ids around each text. */
static void special_tokens_around_a_text_are_bounded(void **state)
{
    enum { NAMES = 2000 };
    static char json[200000];
    size_t len = (size_t)snprintf(json, sizeof(json),
                                  "{'post_processor':{'type':"
                                  "'TemplateProcessing','single':[{'Sequence':{'id':'A'}}");

    (void)state;
    for (int i = 0; i < NAMES; i++)
        len += (size_t)snprintf(json + len, sizeof(json) - len, ",{'SpecialToken':{'id':'x'}}");
    len += (size_t)snprintf(json + len, sizeof(json) - len, "],'special_tokens':{'x':{'ids':[0");
    for (int i = 0; i < NAMES; i++)
        len += (size_t)snprintf(json + len, sizeof(json) - len, ",0");
    snprintf(json + len, sizeof(json) - len, "]}}}," MODEL "}");
    REQUIRE(!load(json));
    REQUIRE_MSG(strstr(err, "more than 1024"), "%s", err);
}

/* Its normalized form is compared with the text; it is made when the file is loaded. */
static void added_tokens_that_grow_are_refused(void **state)
{
    char *json = with_sequence("normalizer", "normalizers", "", REPLACE("Regex", "[ab]", "aa"), 24);
    static char file[8192];

    (void)state;
    snprintf(file, sizeof(file),
             "{'added_tokens':[{'id':5,'content':'aaaa','special':false,'normalized':true,"
             "'single_word':false,'lstrip':false,'rstrip':false}],%s",
             json + 1);
    free(json);
    REQUIRE(!load(file));
    REQUIRE_MSG(strstr(err, "added_tokens") && strstr(err, "bytes to a text of"), "%s", err);
}

/* ---- threads ------------------------------------------------------------------------------- */

static void *encode_many(void *data)
{
    const struct tok *t = data;
    static const char text[] = "The miller's daughter counts 12 boats; \xe6\xb0\xb4\xe8\xbb\x8a.\n";
    struct tok_ids first = {0}, ids = {0};
    char message[128];
    uintptr_t wrong =
        tok_encode(t, text, sizeof(text) - 1, 3, &first, message, sizeof(message)) != 0;

    for (int i = 0; i < 300; i++) {
        ids.n = 0;
        wrong += tok_encode(t, text, sizeof(text) - 1, 3, &ids, message, sizeof(message)) != 0;
        wrong += ids.n != first.n || memcmp(ids.ids, first.ids, first.n * sizeof(*first.ids)) != 0;
    }
    tok_ids_finish(&first);
    tok_ids_finish(&ids);
    return (void *)wrong;
}

static void threads_share_a_tokenizer(void **state)
{
    struct tok *t = open_demo();
    pthread_t threads[4];
    void *wrong;

    (void)state;
    for (int i = 0; i < 4; i++)
        REQUIRE_EQ_INT(pthread_create(&threads[i], NULL, encode_many, t), 0);
    for (int i = 0; i < 4; i++) {
        REQUIRE_EQ_INT(pthread_join(threads[i], &wrong), 0);
        REQUIRE(!wrong);
    }
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_files_are_refused_with_a_reason),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(escapes_and_the_order_of_members_do_not_matter),
        cmocka_unit_test(opening_names_the_file_and_the_fault),
        cmocka_unit_test(ids_may_have_holes),
        cmocka_unit_test(tokens_stand_for_bytes),
        cmocka_unit_test(text_that_is_not_utf8_is_refused),
        cmocka_unit_test(ids_are_appended_and_kept_on_failure),
        cmocka_unit_test(special_tokens_from_input_are_plain_text),
        cmocka_unit_test(marks_hold_behind_a_normalizer),
        cmocka_unit_test(harmless_marks_change_nothing),
        cmocka_unit_test(an_unknown_token_that_is_missing_is_an_error_when_needed),
        cmocka_unit_test(long_words_merge_like_short_ones),
        cmocka_unit_test(runs_of_combining_marks_are_ordered),
        cmocka_unit_test(a_megabyte_without_a_break_takes_linear_time),
        cmocka_unit_test(characters_come_out_when_they_are_complete),
        cmocka_unit_test(special_tokens_are_skipped_when_asked),
        cmocka_unit_test(decoding_gives_the_text_back),
        cmocka_unit_test(streamed_is_plain),
        cmocka_unit_test(chains_that_multiply_their_own_pattern_are_refused_at_load),
        cmocka_unit_test(growth_of_a_text_is_bounded),
        cmocka_unit_test(growth_is_counted_over_all_stretches),
        cmocka_unit_test(growth_that_models_need_is_not_refused),
        cmocka_unit_test(decoders_may_replace_many_short_tokens),
        cmocka_unit_test(special_tokens_around_a_text_are_bounded),
        cmocka_unit_test(added_tokens_that_grow_are_refused),
        cmocka_unit_test(threads_share_a_tokenizer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
