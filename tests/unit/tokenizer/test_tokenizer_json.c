/* SPDX-License-Identifier: MIT */
/* tokenizer.json: which files are refused, with a reason, and what does not matter in them. */
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "load_tokenizer.h"

static void wrong_files_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *json, *why;
    } cases[] = {
        {"", "byte 0"},
        {"{", "byte 1"},
        {"[]", "object"},
        {"{} x", "text after the end"},
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
        {"{'model':{'type':'WordLevel','vocab':[['a',0.5]]}}", "\"WordLevel\""},
        {"{'model':{'type':'WordPiece','vocab':{'a':0}}}", "unk_token"},
        {"{'model':{'vocab':{},'merges':[],'dropout':0.1}}", "dropout"},
        {"{'model':{'vocab':{},'merges':[],'end_of_word_suffix':'</w>'}}", "end_of_word_suffix"},
        {"{'model':{'vocab':{},'merges':[],'continuing_subword_prefix':'##'}}",
         "continuing_subword_prefix"},
        {"{'model':{'vocab':{},'merges':[],'byte_fallback':1}}", "byte_fallback"},
        {"{'model':{'vocab':{},'merges':[],'unk_token':1}}", "unk_token"},
        {"{'version':'2.0'," MODEL "}", "version"},
        {"{'normalizer':{'type':'Nmt'}," MODEL "}", "\"Nmt\""},
        {"{'normalizer':{'type':'Precompiled'}," MODEL "}", "base64"},
        {"{'normalizer':3," MODEL "}", "type"},
        {"{'normalizer':{'type':'Sequence'}," MODEL "}", "normalizers"},
        {"{'normalizer':{'type':'Prepend'}," MODEL "}", "prepend"},
        {"{'normalizer':{'type':'Replace','pattern':' ','content':''}," MODEL "}", "pattern"},
        {"{'normalizer':{'type':'Replace','pattern':{'Regex':'['},'content':''}," MODEL "}",
         "[ without ]"},
        {"{'pre_tokenizer':{'type':'UnicodeScripts'}," MODEL "}", "\"UnicodeScripts\""},
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
        {"{'post_processor':{'type':'PairProcessing'}," MODEL "}", "\"PairProcessing\""},
        {"{'post_processor':{'type':'TemplateProcessing','single':[]}," MODEL "}", "sequence A"},
        {"{'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'x'}}],'"
         "special_tokens':{}}," MODEL "}",
         "\"ids\""},
        {"{'decoder':{'type':'CTC'}," MODEL "}", "\"CTC\""},
        {"{'decoder':{'type':'WordPiece','cleanup':1}," MODEL "}", "\"cleanup\""},
        {"{'normalizer':{'type':'BertNormalizer','clean_text':true}," MODEL "}", "chinese"},
        {"{'normalizer':{'type':'Precompiled','precompiled_charsmap':7}," MODEL "}", "base64"},
        {"{'model':{'type':'Unigram','vocab':{'a':0}}}", "list"},
        {"{'model':{'type':'Unigram','vocab':[['a',0.5]],'merges':[]}}", "merges"},
        {"{'model':{'type':'Unigram','vocab':[['a',0.5],['a',1]]}}", "twice"},
        {"{'model':{'type':'Unigram','vocab':[['a',0.5,1]]}}", "its score"},
        {"{'model':{'type':'Unigram','vocab':[['a']]}}", "its score"},
        {"{'model':{'type':'Unigram','vocab':[[]]}}", "its score"},
        {"{'model':{'type':'Unigram','vocab':[['a','b']]}}", "expected a value"},
        {"{'model':{'type':'Unigram','vocab':[['a',1e400]]}}", "finite"},
        {"{'model':{'type':'Unigram','unk_id':1,'vocab':[['a',1]]}}", "unk_id"},
        {"{'model':{'type':'Unigram','unk_id':-1,'vocab':[['a',1]]}}", "unk_id"},
        {"{'model':{'type':'Unigram','byte_fallback':0,'vocab':[['a',1]]}}", "byte_fallback"},
        {"{'model':{'type':'WordPiece','vocab':[['a',1]]}}", "unk_token"},
        {"{'model':{'type':'WordPiece','unk_token':'a','max_input_chars_per_word':9,'"
         "vocab':{'a':1}}}",
         "prefix"},
        {"{'model':{'type':'WordPiece','unk_token':'a','continuing_subword_prefix':'','"
         "max_input_chars_per_word':-1,'vocab':{'a':1}}}",
         "max_input_chars_per_word"},
        {"{'model':{'vocab':[['a',1]],'merges':[]}}", "object"},
        {"{'decoder':{'type':'Sequence','decoders':[{'type':'Fuse'},{'type':'ByteFallback'}]}"
         "," MODEL "}",
         "after"},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_files_are_refused_with_a_reason),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(escapes_and_the_order_of_members_do_not_matter),
        cmocka_unit_test(opening_names_the_file_and_the_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
