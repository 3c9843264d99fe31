/* SPDX-License-Identifier: MIT */
/*
 * The language of schemas, regexes, choices and grammars: which texts are accepted, byte by byte
 * under masks, and what is refused with which words.
 */
#include "test.h"

#include "tokenizer/grammar/grammar.h"
#include "toy_vocab.h"

/* ---- texts --------------------------------------------------------------------------------- */

/* Every byte is in the mask before it, and the answer is complete at the end. */
static bool accepts(const struct gram *g, void *memory, const char *text)
{
    struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
    uint64_t bits[TOY_MASK_WORDS];

    for (const char *p = text; *p; p++) {
        int32_t id = TOY_BYTES + (uint8_t)*p;
        enum gram_next next = gram_mask(s, bits);
        bool allowed = toy_allows(bits, id), taken = gram_take(s, id);
        REQUIRE_MSG(allowed == taken, "%s at %zu: mask %d, taken %d", text, (size_t)(p - text),
                    allowed, taken);
        if (!taken) return false;
        REQUIRE(next == GRAM_NEXT_MASK);
    }
    bool complete = gram_accepting(s);
    enum gram_next next = gram_mask(s, bits);
    REQUIRE_MSG(toy_allows(bits, TOY_END) == complete, "%s: end", text);
    REQUIRE(next != GRAM_NEXT_FAIL && (complete || next != GRAM_NEXT_END));
    return complete;
}

enum { MAX_TEXTS = 24 };

struct language {
    enum gram_kind kind;
    const char *source;
    const char *in[MAX_TEXTS], *out[MAX_TEXTS];
};

static void check_languages(const struct language *rows, size_t n,
                            const struct gram_options *options)
{
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();

    for (size_t i = 0; i < n; i++) {
        struct gram *g = toy_compile(v, rows[i].kind, rows[i].source, options);
        REQUIRE_MSG(gram_n_relaxed(g) == 0, "%s: %s is relaxed", rows[i].source,
                    gram_relaxed(g, 0));
        for (const char *const *text = rows[i].in; *text; text++)
            REQUIRE_MSG(accepts(g, memory, *text), "%.200s must accept %s", rows[i].source, *text);
        for (const char *const *text = rows[i].out; *text; text++)
            REQUIRE_MSG(!accepts(g, memory, *text), "%.200s must refuse %s", rows[i].source, *text);
        gram_release(g);
    }
    free(memory);
    gram_vocab_destroy(v);
}

#define S GRAM_SCHEMA

static const struct language types[] = {
    {S,
     "{\"type\":\"integer\"}",
     {"0", "-1", "12", "1234567890123456789"},
     {"", "-0", "01", "1.0", "1e3", "-", "12345678901234567890", "\"1\"", " 1", "1 "}},
    {S,
     "{\"type\":\"number\"}",
     {"0", "0.0", "-0.5", "1.25", "1e5", "1E-199", "1e+05", "10.5e1"},
     {"-0", "-0.0", ".5", "1.", "1e", "1e200", "1e0001", "+1", "0.123456789012345678"}},
    {S, "{\"type\":\"boolean\"}", {"true", "false"}, {"tru", "null", "True"}},
    {S, "{\"type\":\"null\"}", {"null"}, {"nul", "\"null\""}},
    {S, "{\"type\":[\"string\",\"null\"]}", {"\"\"", "null"}, {"1"}},
    {S, "{\"type\":[\"integer\",\"number\"]}", {"1", "1.5"}, {"\"1\""}},
    {S, "{\"type\":\"string\",\"nullable\":true}", {"\"a\"", "null"}, {"0"}},
    {S, "true", {"1", "{}", "[[]]", "\"a\"", "{\"a\":{\"b\":null}}"}, {"", "a"}},
    {GRAM_JSON_OBJECT, "", {"{}", "{\"a\": [1, {}]}"}, {"[]", "1", "{\"a\"}", "{\"a\":1,\"a\":2}"}},
    {S,
     "{\"type\":\"string\"}",
     {"\"a b\"", "\"\\n\\\"\\/\\u00e4\"", "\"\xc3\xa4\"", "\"\\ud83d\\ude00\"",
      "\"\xf0\x9f\x98\x80\""},
     {"\"", "\"a", "\"\t\"", "\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\ud83d\\n\"",
      "\"\xc3\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf5\x80\x80\x80\"", "\"\\u12g4\""}},
};

static const struct language numbers[] = {
    {S,
     "{\"type\":\"integer\",\"minimum\":3,\"maximum\":120}",
     {"3", "9", "10", "99", "120"},
     {"2", "121", "-3", "1000", "0", "03"}},
    {S,
     "{\"type\":\"integer\",\"exclusiveMinimum\":-5,\"exclusiveMaximum\":2}",
     {"-4", "-1", "0", "1"},
     {"-5", "2", "-10", "10", "-0"}},
    {S, "{\"type\":\"integer\",\"minimum\":0,\"exclusiveMinimum\":true}", {"1"}, {"0"}},
    {S,
     "{\"type\":\"number\",\"minimum\":0.5,\"maximum\":1.25}",
     {"0.5", "1", "1.25", "0.75", "1.2"},
     {"0.4", "1.26", "1.251", "2", "1e0", "0"}},
    {S, "{\"type\":\"integer\",\"multipleOf\":7}", {"0", "7", "-14", "700"}, {"1", "8", "-1"}},
    {S, "{\"type\":\"number\",\"multipleOf\":0.01}", {"0", "1.25", "3", "0.10"}, {"0.001", "1.255"}},
    {S,
     "{\"type\":\"integer\",\"maximum\":18446744073709551615}",
     {"9223372036854775808"},
     {"99999999999999999999"}},
    {S,
     "{\"type\":\"integer\",\"format\":\"int32\"}",
     {"2147483647", "-2147483648"},
     {"2147483648", "-2147483649"}},
};

static const struct language strings[] = {
    {S,
     "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"",
      "\"\xc3\xa4\xf0\x9f\x98\x80"
      "c\"",
      "\"\\n\\u0041\"", "\"\\ud83d\\ude00a\""},
     {"\"a\"", "\"abcd\"", "\"\\n\"", "\"\\ud83d\\ude00\""}},
    {S, "{\"type\":\"string\",\"pattern\":\"b\"}", {"\"b\"", "\"abc\""}, {"\"ac\"", "\"\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"^a|b$\"}",
     {"\"ax\"", "\"xb\""},
     {"\"xa\"", "\"bx\"", "\"b\\n\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"^[a-c]{2,}$\",\"maxLength\":3}",
     {"\"ab\"", "\"abc\""},
     {"\"a\"", "\"abca\"", "\"ad\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"^\\\\d+\\\\s\\\\S\\\\w$\"}",
     {"\"12 -_\"", "\"1\xe2\x80\xa8"
                   "ab\""},
     {"\"1ab\"", "\"\xd9\xa1 aa\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"^\\\\u0041\\\\x42\\\\u{43}\\\\cA$\"}",
     {"\"ABC\\u0001\""},
     {"\"ABCA\"", "\"\\u0041BC\\u0001\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"^\\\\n\\\\x1f$\"}",
     {"\"\\n\\u001f\"", "\"\\n\\u001F\""},
     {"\"\\u000a\\u001f\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"^\\\\p{Lu}\\\\p{Script=Greek}\\\\P{L}$\"}",
     {"\"A\xce\xb1"
      "1\""},
     {"\"a\xce\xb1"
      "1\"",
      "\"Ab1\"", "\"A\xce\xb1z\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"\\\\bcat\\\\b\"}",
     {"\"a cat.\"", "\"cat\""},
     {"\"cats\"", "\"concat\""}},
    {S, "{\"type\":\"string\",\"pattern\":\"^x{,3}$\"}", {"\"x{,3}\""}, {"\"xx\""}},
    {S,
     "{\"type\":\"string\",\"pattern\":\"^(?<year>\\\\d{4}?)(?:-)\\\\/$\"}",
     {"\"2024-/\""},
     {"\"24-/\""}},
    {S, "{\"type\":\"string\",\"pattern\":\"^.$\"}", {"\"\xc3\xa4\""}, {"\"\\n\"", "\"\\r\""}},
    {S, "{\"type\":\"string\",\"pattern\":\"^a+$\",\"minLength\":3}", {"\"aaa\""}, {"\"aa\""}},
    {S, "{\"type\":\"string\",\"enum\":[\"a\",\"bcd\"],\"maxLength\":2}", {"\"a\""}, {"\"bcd\""}},
};

#define LONG60 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz01234567"

static const struct language formats[] = {
    {S,
     "{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"0001-01-31\""},
     {"\"2023-02-29\"", "\"0000-01-01\"", "\"2024-13-01\"", "\"2024-04-31\"", "\"1900-02-29\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"time\"}",
     {"\"08:30:06.283185z\"", "\"01:29:59+01:30\"", "\"12:00:00-00:00\""},
     {"\"22:59:60Z\"", "\"24:00:00Z\"", "\"12:00:00\"", "\"12:00:61Z\"", "\"12:00:00+24:00\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"1963-06-19t08:30:06.28z\"", "\"1998-12-31T15:59:59.123-08:00\""},
     {"\"1998-12-31T15:59:60-07:00\"", "\"1990-02-31T15:59:59Z\"", "\"1963-06-19 08:30:06Z\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"duration\"}",
     {"\"P4DT12H30M5S\"", "\"P1W\"", "\"PT36H\"", "\"P1Y\""},
     {"\"P\"", "\"PT\"", "\"P1D2H\"", "\"P1Y2W\"", "\"PT1D\"", "\"4DT\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"email\"}",
     {"\"joe.bloggs@example.com\"", "\"te~st@x.y\"", "\"\\\"joe b\\\"@x.y\"", "\"a@[127.0.0.1]\""},
     {"\"2962\"", "\".a@x.y\"", "\"a..b@x.y\"", "\"a@\"", "\"a@[127.0.0.300]\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"email\"}",
     {"\"" LONG60 "abcd@x.y\"", "\"\\\"" LONG60 "ab\\\"@x.y\"", "\"\\\"@\\\\ \\\"@x.y\""},
     {"\"" LONG60 "abcde@x.y\"", "\"\\\"" LONG60 "abc\\\"@x.y\"", "\"" LONG60 "a.bcd@x.y\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"hostname\"}",
     {"\"www.example.com\"", "\"a\"", "\"1x\""},
     {"\"-a\"", "\"a-\"", "\"a_b\"", "\"\"", "\"a.\"",
      "\"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"ipv4\"}",
     {"\"0.0.0.0\"", "\"255.199.10.9\""},
     {"\"256.0.0.0\"", "\"01.0.0.0\"", "\"1.2.3\"", "\"1.2.3.4.5\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"ipv6\"}",
     {"\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:192.168.0.1\"", "\"1::8\""},
     {"\":\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7\"", "\"fe80::a%1\"", "\":::\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"uuid\"}",
     {"\"2EB8AA08-aa98-11ea-b4aa-73b441d16380\""},
     {"\"2eb8aa08aa9811eab4aa73b441d16380\"", "\"2eb8aa08-aa98-11ea-b4aa-73b441d1638\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"uri\"}",
     {"\"http://a.b/c?d#e\"", "\"urn:x:y\"", "\"mailto:a@b\"", "\"ftp://[::1]:80/%20\""},
     {"\"/a\"", "\"http://a b\"", "\"http://a/%2\"", "\"a\"", "\"http://[1::2::3]/\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"uri-reference\"}",
     {"\"/a\"", "\"\"", "\"#x\"", "\"//h/p\""},
     {"\"a b\"", "\"\\\\\\\\x\"", "\"#a#b\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"json-pointer\"}",
     {"\"\"", "\"/a~0b/~1\"", "\"/\""},
     {"\"a\"", "\"/~\"", "\"/~2\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"relative-json-pointer\"}",
     {"\"0\"", "\"1#\"", "\"10/a\""},
     {"\"/a\"", "\"01/a\"", "\"-1\"", "\"0##\""}},
    {S,
     "{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^2024\",\"maxLength\":10}",
     {"\"2024-01-01\""},
     {"\"2023-01-01\""}},
};

static const struct language objects[] = {
    {S,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
     "\"null\"}},\"required\":[\"b\"],\"additionalProperties\":false}",
     {"{\"b\":null}", "{\"a\": 1, \"b\": null}", "{ \"b\" : null }", "{\n  \"b\":null\n}"},
     {"{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"b\":null,\"b\":null}", "{\"b\":null,\"c\":1}",
      "{\"b\":null,}", "{  \"b\":null}", "{\n\n\n\"b\":null}", "{\"\\u0062\":null}"}},
    {S,
     "{\"properties\":{\"a\":{\"type\":\"integer\"}},\"type\":\"object\"}",
     {"{}", "{\"a\":1,\"x\":[],\"y\":2}", "{\"x\":1}", "{\"aa\":\"s\"}"},
     {"{\"a\":\"s\"}", "{\"x\":1,\"x\":2}", "{\"x\":1,\"a\":1}", "{\"a\":1,\"x\":1,\"a\":2}"}},
    {S,
     "{\"type\":\"object\",\"patternProperties\":{\"^n\":{\"type\":\"integer\"},\"x$\":{"
     "\"maximum\":5}},\"additionalProperties\":{\"type\":\"boolean\"}}",
     {"{\"n1\":77}", "{\"nx\":5,\"b\":true}", "{\"ax\":\"s\"}"},
     {"{\"nx\":6}", "{\"n\":true}", "{\"b\":1}", "{\"n1\":1,\"n1\":2}"}},
    {S,
     "{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2,\"properties\":{\"a\":{},"
     "\"b\":{},\"c\":{}},\"additionalProperties\":false}",
     {"{\"a\":1}", "{\"a\":1,\"c\":1}"},
     {"{}", "{\"a\":1,\"b\":1,\"c\":1}"}},
    {S,
     "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"a\":["
     "\"b\"]},\"additionalProperties\":false}",
     {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
     {"{\"a\":1}"}},
    {S,
     "{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"k\",\"l\"]}}",
     {"{}", "{\"l\":1,\"k\":2}"},
     {"{\"m\":1}", "{\"k\":1,\"k\":1}"}},
    {S,
     "{\"type\":\"object\",\"required\":[\"z\"],\"additionalProperties\":{\"type\":\"null\"}}",
     {"{\"z\":null}", "{\"z\":null,\"y\":null}"},
     {"{}", "{\"y\":null}", "{\"z\":1}"}},
    {S,
     "{\"type\":\"object\",\"properties\":{\"a\\n\":{\"const\":1}},\"additionalProperties\":"
     "false}",
     {"{\"a\\n\":1}"},
     {"{\"a\\u000a\":2}", "{\"an\":1}"}},
    {S,
     "{\"type\":\"object\",\"properties\":{\"no\":false},\"additionalProperties\":false}",
     {"{}"},
     {"{\"no\":1}"}},
    {S,
     "{\"type\":\"object\",\"properties\":{\"a\":{}},\"dependentSchemas\":{\"a\":{\"required\":["
     "\"b\"]}}}",
     {"{}", "{\"a\":1,\"b\":1}", "{\"b\":1}"},
     {"{\"a\":1}", "{\"a\":1,\"c\":1}"}},
};

static const struct language arrays[] = {
    {S,
     "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
     {"[1]", "[1, 2,3]", "[\n1\n]"},
     {"[]", "[1,2,3,4]", "[\"a\"]", "[1,]", "[,1]"}},
    {S,
     "{\"type\":\"array\",\"maxItems\":2147483647,\"minItems\":2}",
     {"[1,2]", "[1,2,3,4]"},
     {"[1]"}},
    {S,
     "{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":\"b\"}],\"items\":false}",
     {"[]", "[1]", "[1,\"b\"]"},
     {"[2]", "[1,\"b\",3]", "[\"b\"]"}},
    {S,
     "{\"type\":\"array\",\"items\":[{\"const\":1}],\"additionalItems\":{\"type\":\"null\"}}",
     {"[1,null,null]"},
     {"[1,1]"}},
    {S,
     "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true}",
     {"[\"a\",\"b\"]", "[]", "[\"a\",\"\\u0062\"]"},
     {"[\"a\",\"a\"]", "[\"b\",\"\\u0062\"]", "[\"a\",\"b\",\"a\"]"}},
    {S,
     "{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"uniqueItems\":true}",
     {"[1,2]", "[2,1]"},
     {"[1,1]", "[1,2,1]"}},
    {S,
     "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"uniqueItems\":true}",
     {"[1,11,111]", "[0,1,-1]"},
     {"[1,11,1]", "[0,0]", "[1,0,2,0]"}},
    {S,
     "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":-1,\"maximum\":12},"
     "\"uniqueItems\":true}",
     {"[10,11,12,1]", "[-1,0,9]"},
     {"[10,10]", "[9,9]", "[0,1,0]"}},
};

static const struct language constants[] = {
    {S,
     "{\"enum\":[1,\"a\",null,[1,{\"b\":2}],1.5]}",
     {"1", "\"a\"", "null", "[1, {\"b\": 2}]", "1.5"},
     {"2", "\"b\"", "[1]", "1.50", "1.0", "[1,{\"b\":3}]"}},
    {S, "{\"const\":1.0}", {"1", "1.0"}, {"1.00", "10"}},
    {S, "{\"const\":{\"a\":1,\"b\":2}}", {"{\"a\":1,\"b\":2}"}, {"{\"b\":2,\"a\":1}", "{\"a\":1}"}},
    {S, "{\"enum\":[\"a\",\"a\",\"\\u0061b\"]}", {"\"a\"", "\"ab\""}, {"\"b\""}},
    {S, "{\"enum\":[1,2,\"x\"],\"type\":\"string\"}", {"\"x\""}, {"1"}},
    {S, "{\"const\":\"\\u0000\\u001f\"}", {"\"\\u0000\\u001f\"", "\"\\u0000\\u001F\""}, {"\"\""}},
};

static const struct language mixtures[] = {
    {S,
     "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
     {"12", "\"a\""},
     {"\"ab\"", "null"}},
    {S,
     "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"a\"},\"v\":{\"type\":"
     "\"integer\"}},\"required\":[\"t\",\"v\"]},{\"type\":\"object\",\"properties\":{\"t\":{"
     "\"const\":\"b\"},\"v\":{\"type\":\"string\"}},\"required\":[\"t\",\"v\"]}]}",
     {"{\"t\":\"a\",\"v\":1}", "{\"t\":\"b\",\"v\":\"x\"}"},
     {"{\"t\":\"a\",\"v\":\"x\"}", "{\"t\":\"c\",\"v\":1}", "{\"v\":1}"}},
    {S,
     "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"minimum\":3}}},{\"properties\":{"
     "\"a\":{\"type\":\"integer\",\"maximum\":4},\"b\":{}},\"required\":[\"a\"]}]}",
     {"{\"a\":3}", "{\"a\":4,\"b\":0}"},
     {"{\"a\":5}", "{}", "{\"b\":0,\"a\":3}"}},
    {S, "{\"type\":\"integer\",\"not\":{\"enum\":[3,5]}}", {"4", "35", "33"}, {"3", "5", "\"a\""}},
    {S, "{\"not\":{\"type\":[\"object\",\"array\",\"string\"]}}", {"1", "null"}, {"\"a\"", "{}"}},
    {S,
     "{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"a\",\"b\"]},\"v\":{}},\"required\":"
     "[\"k\"],\"if\":{\"properties\":{\"k\":{\"const\":\"a\"}}},\"then\":{\"required\":[\"v\"]}}",
     {"{\"k\":\"a\",\"v\":1}", "{\"k\":\"b\"}"},
     {"{\"k\":\"a\"}", "{}"}},
    {S,
     "{\"$ref\":\"#/$defs/list\",\"$defs\":{\"list\":{\"type\":\"array\",\"items\":{\"$ref\":"
     "\"#/$defs/list\"}}}}",
     {"[]", "[[],[[]]]"},
     {"[1]", "["}},
    {S,
     "{\"$id\":\"http://x.org/a.json\",\"type\":\"array\",\"items\":{\"$ref\":\"a.json#n\"},"
     "\"definitions\":{\"n\":{\"$anchor\":\"n\",\"type\":\"null\"}}}",
     {"[null]"},
     {"[1]"}},
    {S, "{\"$ref\":\"#/a~1b/c%25\",\"a/b\":{\"c%\":{\"type\":\"null\"}}}", {"null"}, {"1"}},
    {S,
     "{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"definitions\":{\"i\":{\"type\":"
     "\"integer\"}},\"allOf\":[{\"$ref\":\"#/definitions/i\",\"maximum\":3}]}",
     {"7"},
     {"\"a\""}},
    {S,
     "{\"$defs\":{\"i\":{\"type\":\"integer\"}},\"$ref\":\"#/$defs/i\",\"maximum\":3}",
     {"3"},
     {"7"}},
    {S,
     "{\"oneOf\":[{\"minimum\":1,\"type\":\"integer\"},{\"maximum\":5,\"type\":\"integer\"}]}",
     {"0", "-4", "6"},
     {"1", "3", "5"}},
    {S, "{\"minLength\":3}", {"7", "\"abc\"", "null"}, {"\"ab\""}},
};

static const struct language plain[] = {
    {GRAM_REGEX, "[a-z]+\\d{2,3}", {"a12", "xyz123"}, {"", "a1", "a1234", "A12"}},
    {GRAM_REGEX, "^(yes|no)$", {"yes", "no"}, {"y", "yesno", "yes\n"}},
    {GRAM_REGEX,
     "abc|ab|abd?e|[ab]b|[ab]bx|x|xy|xyz",
     {"ab", "abc", "abe", "abde", "bb", "bbx", "abx", "x", "xy", "xyz"},
     {"", "a", "b", "abd", "bbc", "xz", "y"}},
    {GRAM_REGEX, "(?:ab|ac|ab||a\\b)*d", {"d", "abd", "acabd"}, {"ad", "ab", "bd", ""}},
    {GRAM_REGEX, "a{1,129}b", {"ab", "aaaaab"}, {"b", "aa"}},
    {GRAM_REGEX, "(ab{3,}c){2}", {"abbbcabbbbc"}, {"abbbc", "abbcabbbc"}},
    {GRAM_REGEX, "\xc3\xa4+|\\u20ac", {"\xc3\xa4\xc3\xa4", "\xe2\x82\xac"}, {"\xc3", "a"}},
    {GRAM_REGEX, "\\ba\\b.\\bb\\Bc", {"a.bc"}, {"axbc", "a.b.c"}},
    {GRAM_CHOICE,
     "[\"red\",\"redder\",\"r\xc3\xb6t\"]",
     {"red", "redder", "r\xc3\xb6t"},
     {"", "re", "redd", "reds"}},
    {GRAM_GBNF,
     "root ::= \"a\" x* # comment\nx ::= [0-9]+ | \"(\" x \")\"\n",
     {"a", "a1", "a((2))3"},
     {"a(", "a()", "b"}},
    {GRAM_GBNF,
     "root ::= (\"x\" |\n  \"y\"){2,3} \"\\x41\\u00e4\\n\\\"\"",
     {"xyA\xc3\xa4\n\"", "xxxA\xc3\xa4\n\""},
     {"xA\xc3\xa4\n\"", "xyxyA\xc3\xa4\n\""}},
    {GRAM_GBNF, "root ::= [^a-c\\]] . \"\"?", {"d\n", "\xc3\xa4x"}, {"ax", "]x", "d"}},
    {GRAM_GBNF, "root ::= item{3}\nitem ::= \"(\" item? \")\"", {"()(())()"}, {"()()", "()()()()"}},
    {GRAM_GBNF, "root ::= \"a\"{2147483647} | \"b\"", {"b"}, {"a", "aa"}},
    {GRAM_GBNF,
     "root ::= \"a\" ws \"b\"\nws ::= ([ \\t] ws)?",
     {"ab", "a b", "a \t  b"},
     {"a", "a ", "a c", "a b "}},
    {GRAM_GBNF,
     "root ::= a\na ::= (\"x\" b)?\nb ::= (\"y\" a | \"z\")?",
     {"", "x", "xy", "xyx", "xyxz"},
     {"y", "xx", "xzx", "xyy"}},
};

#define LANGUAGE_TEST(name)                                                                        \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        check_languages(name, N_OF(name), NULL);                                                   \
    }

LANGUAGE_TEST(types)
LANGUAGE_TEST(numbers)
LANGUAGE_TEST(strings)
LANGUAGE_TEST(formats)
LANGUAGE_TEST(objects)
LANGUAGE_TEST(arrays)
LANGUAGE_TEST(constants)
LANGUAGE_TEST(mixtures)
LANGUAGE_TEST(plain)

/* ---- complaints about others --------------------------------------------------------------- */

/* A text of n times one character between two others. */
static char *long_text(const char *before, char c, size_t n, const char *after)
{
    size_t head = strlen(before), tail = strlen(after);
    char *text = malloc(head + n + tail + 1);
    REQUIRE(text);
    memcpy(text, before, head);
    memset(text + head, c, n);
    memcpy(text + head + n, after, tail + 1);
    return text;
}

static void test_large_counts_are_counters(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    static const struct {
        enum gram_kind kind;
        const char *source, *before, *after;
        char c;
        size_t min, max;
    } rows[] = {
        {GRAM_SCHEMA, "{\"type\":\"string\",\"maxLength\":2000}", "\"", "\"", 'a', 0, 2000},
        {GRAM_SCHEMA,
         "{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":90,\"maxLength\":999}", "\"",
         "\"", 'a', 90, 999},
        {GRAM_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^x[a-z]{5,1000}y$\"}", "\"x", "y\"", 'a',
         5, 1000},
        {GRAM_REGEX, "a{3000}", "", "", 'a', 3000, 3000},
        {GRAM_REGEX, "(?:a|bc){2,4000}", "", "", 'a', 2, 4000},
        {GRAM_GBNF, "root ::= \"<\" \"a\"{10,5001} \">\"", "<", ">", 'a', 10, 5001},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct gram *g = toy_compile(v, rows[i].kind, rows[i].source, NULL);
        REQUIRE_MSG(gram_bytes(g) < 600000, "%s: %zu bytes", rows[i].source, gram_bytes(g));
        for (int which = 0; which < 4; which++) {
            size_t n = which < 2 ? rows[i].min - (which == 0) : rows[i].max + (which == 3);
            if (which == 0 && rows[i].min == 0) continue;
            char *text = long_text(rows[i].before, rows[i].c, n, rows[i].after);
            REQUIRE_MSG(accepts(g, memory, text) == (which == 1 || which == 2), "%s, %zu",
                        rows[i].source, n);
            free(text);
        }
        gram_release(g);
    }
    free(memory);
    gram_vocab_destroy(v);
}

static void test_nesting_is_bounded(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    struct gram *g = toy_compile(v, GRAM_SCHEMA, "true", NULL);

    for (size_t n = 127; n <= 129; n++) {
        char *open = long_text("", '[', n, ""), *both = long_text(open, ']', n, "");
        REQUIRE_MSG(accepts(g, memory, both) == (n <= 128), "%zu containers", n);
        free(open);
        free(both);
    }
    gram_release(g);
    free(memory);
    gram_vocab_destroy(v);
}

static void test_options(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\"]}";
    static const struct {
        struct gram_options options;
        const char *in[4], *out[4];
    } rows[] = {
        {{.no_whitespace = true},
         {"{\"a\":1}", "{\"a\":1,\"b\":[1,2]}"},
         {"{\"a\": 1}", "{ \"a\":1}"}},
        {{.whitespace_pattern = "[ ]{0,3}", .whitespace_pattern_len = 8},
         {"{   \"a\":1}", "{\"a\" :  1}"},
         {"{    \"a\":1}", "{\n\"a\":1}"}},
        {{.closed_objects = true}, {"{\"a\":1}", "{\"a\":{\"b\":1}}"}, {"{\"a\":1,\"b\":1}"}},
        {{.strict = true}, {"{\"a\":1,\"b\":2}"}, {"{\"b\":2}"}},
    };
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct gram *g = toy_compile(v, GRAM_SCHEMA, schema, &rows[i].options);
        for (const char *const *text = rows[i].in; *text; text++)
            REQUIRE_MSG(accepts(g, memory, *text), "row %zu must accept %s", i, *text);
        for (const char *const *text = rows[i].out; *text; text++)
            REQUIRE_MSG(!accepts(g, memory, *text), "row %zu must refuse %s", i, *text);
        gram_release(g);
    }
    free(memory);
    gram_vocab_destroy(v);
}

/* Objects that say nothing about other keys have those alone that something names or demands. */
static void test_closed_objects(void **state)
{
    (void)state;
    static const struct language rows[] = {
        {S, "{\"properties\":{\"a\":{}}}", {"{}", "{\"a\":1}"}, {"{\"b\":1}", "{\"a\":1,\"b\":1}"}},
        {S, "{\"properties\":{}}", {"{}", "1"}, {"{\"b\":1}"}},
        {S, "{\"type\":\"object\"}", {"{}", "{\"b\":1}"}, {"1"}},
        {S,
         "{\"properties\":{\"a\":{\"properties\":{\"c\":{}}}}}",
         {"{\"a\":{\"c\":1}}"},
         {"{\"a\":{\"b\":1}}"}},
        {S,
         "{\"properties\":{\"a\":{}},\"additionalProperties\":true}",
         {"{\"b\":1}", "{\"a\":1,\"b\":1}"},
         {"1x"}},
        {S,
         "{\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":\"null\"}}",
         {"{\"b\":null}"},
         {"{\"b\":1}"}},
        {S, "{\"properties\":{\"a\":{}},\"unevaluatedProperties\":true}", {"{\"b\":1}"}, {"{"}},
        {S,
         "{\"allOf\":[{\"properties\":{\"a\":{}}}],\"unevaluatedProperties\":{}}",
         {"{\"b\":1}"},
         {"{"}},
        /* the merged object */
        {S,
         "{\"properties\":{\"a\":{}},\"required\":[\"z\"]}",
         {"{\"z\":1}", "{\"a\":1,\"z\":2}"},
         {"{}", "{\"z\":1,\"b\":1}"}},
        {S,
         "{\"allOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"b\":{}}}]}",
         {"{\"a\":1,\"b\":1}", "{\"b\":1}"},
         {"{\"c\":1}"}},
        {S,
         "{\"properties\":{\"a\":{}},\"anyOf\":[{\"properties\":{\"b\":{}}},{\"required\":[\"c\"]}]"
         "}",
         {"{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":1}", "{}"},
         {"{\"b\":1,\"c\":1}", "{\"d\":1}"}},
        {S,
         "{\"anyOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"type\":\"object\","
         "\"maxProperties\":1}]}",
         {"{\"a\":1}", "{\"b\":1}"},
         {"{\"a\":1,\"b\":1}"}},
        {S,
         "{\"$defs\":{\"x\":{\"properties\":{\"b\":{}}}},\"$ref\":\"#/$defs/x\","
         "\"properties\":{\"a\":{}}}",
         {"{\"b\":1,\"a\":1}"},
         {"{\"c\":1}"}},
        {S,
         "{\"properties\":{\"a\":{}},\"patternProperties\":{\"^x\":{\"type\":\"null\"}}}",
         {"{\"x\":null,\"xy\":null}", "{\"a\":1}"},
         {"{\"b\":1}", "{\"b\":null}"}},
        {S,
         "{\"properties\":{\"a\":{}},\"propertyNames\":{\"maxLength\":3}}",
         {"{\"a\":1}"},
         {"{\"b\":1}"}},
        {S,
         "{\"if\":{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},\"then\":{"
         "\"required\":[\"b\"]}}",
         {"{\"a\":1,\"b\":2}", "{\"c\":1}", "{\"a\":1,\"b\":2,\"c\":1}"},
         {"{\"a\":1}"}},
        /* what something demands */
        {S,
         "{\"properties\":{\"a\":{}},\"dependentRequired\":{\"a\":[\"b\"],\"y\":[\"z\"]}}",
         {"{}", "{\"a\":1,\"b\":1}"},
         {"{\"a\":1}", "{\"y\":1,\"z\":1}", "{\"c\":1}"}},
        {S,
         "{\"properties\":{\"a\":{}},\"minProperties\":1}",
         {"{\"a\":1}"},
         {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}"}},
        {S,
         "{\"properties\":{\"a\":{}},\"minProperties\":2}",
         {"{\"a\":1,\"b\":1}", "{\"b\":1,\"c\":1}"},
         {"{\"a\":1}"}},
        {S,
         "{\"properties\":{\"a\":{\"enum\":[]}},\"minProperties\":1}",
         {"{\"b\":1}"},
         {"{}", "{\"a\":1}"}},
        {S,
         "{\"properties\":{\"a\":{\"properties\":{\"c\":false},\"minProperties\":1,\"type\":"
         "\"object\"}},\"required\":[\"a\"]}",
         {"{\"a\":{\"x\":1}}"},
         {"{\"a\":{}}", "{\"a\":{\"x\":1},\"b\":1}"}},
        {S, "{\"not\":{\"properties\":{\"a\":{\"type\":\"null\"}}}}", {"{\"a\":1,\"b\":2}"}, {"{}"}},
    };
    static const struct gram_options closed = {.closed_objects = true};
    check_languages(rows, N_OF(rows), &closed);
}

/* Answers have no leap seconds, unless the schema lists them. */
static void test_no_leap_seconds(void **state)
{
    (void)state;
    static const struct language rows[] = {
        {S,
         "{\"type\":\"string\",\"format\":\"time\"}",
         {"\"23:59:59Z\"", "\"06:06:06+06:06\""},
         {"\"23:59:60Z\"", "\"01:29:60+01:30\""}},
        {S,
         "{\"type\":\"string\",\"format\":\"date-time\"}",
         {"\"1998-12-31T23:59:59.06Z\""},
         {"\"1998-12-31T23:59:60Z\""}},
        {S,
         "{\"type\":\"string\",\"format\":\"time\",\"pattern\":\"Z$\"}",
         {"\"23:59:59Z\""},
         {"\"23:59:60Z\""}},
        {S, "{\"const\":\"23:59:60Z\",\"format\":\"time\"}", {"\"23:59:60Z\""}, {"\"23:59:59Z\""}},
    };
    check_languages(rows, N_OF(rows), NULL);
}

/* ---- relaxed and refused ------------------------------------------------------------------- */

static void test_relaxed_keywords_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *pointers[4];
        bool strict_refuses;
    } rows[] = {
        {"{\"oneOf\":[{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},"
         "{\"type\":\"array\",\"items\":{\"type\":\"number\",\"minimum\":0}}]}",
         {"/oneOf"},
         true},
        {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":2}",
         {"/contains", "/minContains"},
         true},
        {"{\"properties\":{\"a/b\":{\"type\":\"string\",\"format\":\"color\"}}}",
         {"/properties/a~1b/format"},
         false},
        {"{\"type\":\"array\",\"items\":{\"type\":\"object\"},\"uniqueItems\":true}",
         {"/uniqueItems"},
         true},
        {"{\"not\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}}", {"/not"}, true},
    };
    struct gram_vocab *v = toy_vocab();
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct gram *g = toy_compile(v, GRAM_SCHEMA, rows[i].schema, NULL);
        size_t n = 0;
        while (rows[i].pointers[n])
            n++;
        REQUIRE_MSG(gram_n_relaxed(g) == n, "%s: %zu relaxed", rows[i].schema, gram_n_relaxed(g));
        for (size_t k = 0; k < n; k++)
            REQUIRE_EQ_STR(gram_relaxed(g, k), rows[i].pointers[k]);
        REQUIRE(gram_relaxed(g, n) == NULL);
        gram_release(g);
        struct gram_options strict = {.strict = true};
        struct gram_error err;
        int rc =
            gram_compile(&g, v, GRAM_SCHEMA, rows[i].schema, strlen(rows[i].schema), &strict, &err);
        REQUIRE_MSG((rc == GRAM_EINVAL) == rows[i].strict_refuses, "%s: %s", rows[i].schema,
                    err.message);
        if (!rc) gram_release(g);
    }
    gram_vocab_destroy(v);
}

/* 50 characters of two bytes. */
#define E10 "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
#define E50 E10 E10 E10 E10 E10

static void test_errors_name_place_and_reason(void **state)
{
    (void)state;
    static const struct {
        enum gram_kind kind;
        const char *source;
        int code;
        const char *pointer, *keyword, *message;
    } rows[] = {
        {GRAM_SCHEMA, "{\"properties\":{\"age\":{\"minimum\":\"x\"}}}", GRAM_EINVAL,
         "/properties/age/minimum", "minimum",
         "/properties/age/minimum: must be a number, is a string."},
        {GRAM_SCHEMA, "{\"properties\":{\"a\":{\"$ref\":\"https://x.org/y.json\"}}}", GRAM_EINVAL,
         "/properties/a/$ref", "$ref",
         "/properties/a/$ref: 'https://x.org/y.json' is not inside this schema; only local "
         "references are supported."},
        {GRAM_SCHEMA,
         "{\"type\":\"object\",\"required\":[\"b\"],\"properties\":{\"b\":{\"type\":"
         "\"array\",\"minItems\":3,\"maxItems\":2}}}",
         GRAM_EINVAL, "/properties/b", "",
         "/properties/b: no value is possible: minItems is 3 and maxItems is 2."},
        {GRAM_SCHEMA, "{\"pattern\":\"a*(?=bc)d\"}", GRAM_EINVAL, "/pattern", "pattern",
         "look-ahead at byte 2"},
        {GRAM_SCHEMA, "{\"pattern\":\"(a)\\\\1\"}", GRAM_EINVAL, "/pattern", "pattern",
         "at byte 3"},
        {GRAM_SCHEMA, "{\"$dynamicRef\":\"#a\"}", GRAM_EINVAL, "/$dynamicRef", "$dynamicRef", ""},
        {GRAM_SCHEMA, "{\"$ref\":\"#/nowhere\"}", GRAM_EINVAL, "/$ref", "$ref", "nowhere"},
        {GRAM_SCHEMA, "{\"$ref\":\"#\"}", GRAM_EINVAL, NULL, "", "no value is possible"},
        {GRAM_SCHEMA, "false", GRAM_EINVAL, NULL, "", "no value is possible"},
        {GRAM_SCHEMA, "{\"enum\":[]}", GRAM_EINVAL, NULL, NULL, ""},
        {GRAM_SCHEMA, "{\"type\":\"text\"}", GRAM_EINVAL, "/type", "type", "'text'"},
        {GRAM_SCHEMA, "{\"properties\":{\"a\\fb\":{\"type\":5}}}", GRAM_EINVAL,
         "/properties/a\fb/type", "type", "/properties/a\\x0cb/type: "},
        {GRAM_SCHEMA,
         "{\"properties\":{\"" E50 E50 "\":{\"properties\":{\"" E50 "\":{\"type\":5}}}}}",
         GRAM_EINVAL, NULL, "type", "...: must be"},
        {GRAM_SCHEMA, "[]", GRAM_EINVAL, NULL, "", "an object or a boolean"},
        {GRAM_SCHEMA, "{\"a\":", GRAM_EINVAL, NULL, "", ""},
        {GRAM_REGEX, "a*(?=bc)d", GRAM_EGRAMMAR, NULL, "",
         "regex: look-ahead at byte 2 is not supported."},
        {GRAM_REGEX, "", GRAM_EGRAMMAR, NULL, "", "regex: it is empty."},
        {GRAM_REGEX, "a**", GRAM_EGRAMMAR, NULL, "", "regex"},
        {GRAM_REGEX, "[b-a]", GRAM_EGRAMMAR, NULL, "", "regex"},
        {GRAM_REGEX, "\\y", GRAM_EGRAMMAR, NULL, "", "regex"},
        {GRAM_REGEX, "(?i)a", GRAM_EGRAMMAR, NULL, "", "regex"},
        {GRAM_REGEX, "a\\bb", GRAM_EGRAMMAR, NULL, "", "no text"},
        {GRAM_CHOICE, "[]", GRAM_EGRAMMAR, NULL, "", "choice: it is empty."},
        {GRAM_CHOICE, "[1]", GRAM_EGRAMMAR, NULL, "", "item 0 must be a string"},
        {GRAM_GBNF, "root ::= \"a\"\nx ::= y\n", GRAM_EGRAMMAR, NULL, "",
         "grammar line 2: rule 'y' is not defined."},
        {GRAM_GBNF, "root ::= x\nx ::= x \"a\" | \"b\"", GRAM_EGRAMMAR, NULL, "", "left-recursive"},
        {GRAM_GBNF, "root ::= e? root \"a\"\ne ::= \"b\"", GRAM_EGRAMMAR, NULL, "",
         "left-recursive"},
        {GRAM_GBNF, "a ::= \"b\"", GRAM_EGRAMMAR, NULL, "", "root"},
        {GRAM_GBNF, "root ::= \"a\"\nroot ::= \"b\"", GRAM_EGRAMMAR, NULL, "", "line 2"},
        {GRAM_GBNF, "root ::= \"a\"*+", GRAM_EGRAMMAR, NULL, "", "line 1"},
        {GRAM_GBNF, "root ::= \"a\" root", GRAM_EGRAMMAR, NULL, "", "no text"},
        {GRAM_GBNF, "root ::= <[123]>", GRAM_EUNSUPPORTED, NULL, "", ""},
    };
    struct gram_vocab *v = toy_vocab();
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct gram *g;
        struct gram_error err;
        const struct gram_options o = {.strict = true}; /* else keywords would be left out */
        int rc =
            gram_compile(&g, v, rows[i].kind, rows[i].source, strlen(rows[i].source), &o, &err);
        REQUIRE_MSG(rc == rows[i].code && err.code == rows[i].code, "%s: %d, %s", rows[i].source,
                    rc, err.message);
        if (rows[i].pointer) REQUIRE_EQ_STR(err.pointer, rows[i].pointer);
        if (rows[i].keyword) REQUIRE_EQ_STR(err.keyword, rows[i].keyword);
        REQUIRE_MSG(strstr(err.message, rows[i].message), "%s: %s", rows[i].source, err.message);
        REQUIRE_MSG(err.has_pointer || !rows[i].pointer, "%s: %s", rows[i].source, err.message);
    }
    gram_vocab_destroy(v);
}

/* The same text needs the same steps; one step less is an error that says how many were allowed. */
static void test_steps_bound_the_work(void **state)
{
    (void)state;
    static const char schema[] = "{\"enum\":[\"a\",\"b\",\"c\"]}";
    struct gram_vocab *v = toy_vocab();
    struct gram_error err;
    struct gram *g;
    uint64_t least = 1;

    for (struct gram_options o = {.max_steps = 1};; o.max_steps = ++least) {
        int rc = gram_compile(&g, v, GRAM_SCHEMA, schema, strlen(schema), &o, &err);
        if (!rc) break;
        char expected[80];
        snprintf(expected, sizeof(expected), "more than %llu compile steps",
                 (unsigned long long)least);
        REQUIRE_MSG(rc && strstr(err.message, expected), "%s", err.message);
    }
    gram_release(g);
    REQUIRE_MSG(least > 10, "%llu steps", (unsigned long long)least);
    gram_vocab_destroy(v);
}

static bool stop_at_third(void *n_looks)
{
    return ++*(int *)n_looks == 3;
}

static bool count_only(void *n_looks)
{
    ++*(int *)n_looks;
    return false;
}

/* A compilation is asked whether to stop again and again, as often as its steps say, and obeys. */
static void test_stops_when_told(void **state)
{
    (void)state;
    static const char text[] = "{\"type\":\"string\",\"pattern\":\"^[ab]*a[ab]{16}$\"}";
    enum { STEPS = 60000 };
    struct gram_vocab *v = toy_vocab();
    struct gram_error err;
    struct gram *g = NULL;
    int n = 0;
    struct gram_options o = {
        .strict = true, .max_steps = STEPS, .stop = stop_at_third, .stop_ctx = &n};
    REQUIRE_EQ_INT(gram_compile(&g, v, GRAM_SCHEMA, text, strlen(text), &o, &err), GRAM_ESTOPPED);
    REQUIRE(!g && n == 3 && err.code == GRAM_ESTOPPED && strstr(err.message, "stopped"));
    n = 0;
    o.stop = count_only;
    REQUIRE_EQ_INT(gram_compile(&g, v, GRAM_SCHEMA, text, strlen(text), &o, &err), GRAM_EINVAL);
    REQUIRE_MSG(n > STEPS / 4096 / 4 && n <= STEPS / 4096 + 1, "%d looks", n);
    gram_vocab_destroy(v);
}

/* Bytes that no token spells are never asked for. */
static void test_what_cannot_be_spelled_is_not_required(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    REQUIRE_EQ_INT(gram_vocab_byte_id(v, 0xF1), -1);
    struct gram *g = toy_compile(v, GRAM_SCHEMA, "{\"enum\":[\"\xf1\x80\x80\x80\",\"a\"]}", NULL);
    REQUIRE(accepts(g, memory, "\"a\""));
    REQUIRE(!accepts(g, memory, "\"\xf1\x80\x80\x80\""));
    gram_release(g);
    struct gram_error err;
    int rc = gram_compile(&g, v, GRAM_CHOICE, "[\"\xf1\x80\x80\x80\"]", 8, NULL, &err);
    REQUIRE_EQ_INT(rc, GRAM_EGRAMMAR);
    free(memory);
    gram_vocab_destroy(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_stops_when_told),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_mixtures),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_large_counts_are_counters),
        cmocka_unit_test(test_nesting_is_bounded),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_relaxed_keywords_are_named),
        cmocka_unit_test(test_errors_name_place_and_reason),
        cmocka_unit_test(test_closed_objects),
        cmocka_unit_test(test_no_leap_seconds),
        cmocka_unit_test(test_steps_bound_the_work),
        cmocka_unit_test(test_what_cannot_be_spelled_is_not_required),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
