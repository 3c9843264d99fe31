/* SPDX-License-Identifier: MIT */
/*
 * Languages composed of parts: what they accept, what they report while an answer grows, special
 * tokens, errors with their pointers, and the cost of many tools.
 */
#include "test.h"

#include "base/utf8.h"
#include "tokenizer/grammar/grammar.h"
#include "toy_vocab.h"

static char log_text[4096];

static void note_capture(void *ctx, uint32_t number, bool begin, uint64_t offset)
{
    (void)ctx;
    size_t n = strlen(log_text);
    snprintf(log_text + n, sizeof(log_text) - n, "%s%u@%llu ", begin ? "+" : "-", number,
             (unsigned long long)offset);
}

static struct gram_state *begin(void *memory, const struct gram *g)
{
    log_text[0] = '\0';
    return gram_state_init(memory, g, note_capture, NULL);
}

/* The id of the longest token that the text goes on with. */
static int32_t longest_token(const char *text)
{
    char token[GRAM_MAX_TOKEN_BYTES];
    int32_t best = -1;
    size_t most = 0;

    for (int32_t id = 1; id < TOY_IDS; id++) {
        size_t n = toy_bytes(NULL, id, token, sizeof(token));
        if (n <= most || strlen(text) < n || memcmp(text, token, n) != 0) continue;
        best = id;
        most = n;
    }
    return best;
}

/* Token by token, each of them in the mask before it; true if the answer is complete then. */
static bool takes(struct gram_state *s, const char *text)
{
    uint64_t bits[TOY_MASK_WORDS];
    char token[GRAM_MAX_TOKEN_BYTES];

    while (*text) {
        int32_t id = longest_token(text);
        REQUIRE(id > 0 && gram_mask(s, bits) != GRAM_NEXT_FAIL);
        bool allowed = toy_allows(bits, id), taken = gram_take(s, id);
        REQUIRE_MSG(allowed == taken, "%s: mask %d, taken %d", text, allowed, taken);
        if (!taken) return false;
        text += toy_bytes(NULL, id, token, sizeof(token));
    }
    return gram_accepting(s);
}

/* ---- languages ----------------------------------------------------------------------------- */

#define CALL(inside) "\xff<call>{\"name\": \"" inside "}\xff</call>"
#define ADD CALL("add\", \"a\": {\"a\": 12}")
#define ADD_ALL CALL("add_all\", \"a\": {\"b\":[]}")

static void test_calls_of_tools(void **state)
{
    (void)state;
    static const char *const in[] = {ADD, ADD_ALL, ADD "\n" ADD_ALL "\n" ADD,
                                     CALL("say\">hello\n</\n</p>ab"), CALL("say\">\n</p>cc")};
    static const char *const out[] = {"",
                                      ADD "\n",
                                      ADD ADD,
                                      ADD "\n" ADD "\n" ADD "\n" ADD,
                                      CALL("add\", \"a\": {\"a\": true}"),
                                      CALL("add\", \"a\": 1"),
                                      CALL("ad\", \"a\": {\"a\": 1}"),
                                      CALL("say\">a\n</p>b\n</p>ab"),
                                      CALL("say\">a\n</p>abc")};
    struct gram_vocab *v = toy_vocab();
    struct gram *g = toy_compile_part(v, &toy_calls, NULL);
    void *memory = toy_state_memory();

    for (size_t i = 0; i < N_OF(in); i++)
        REQUIRE_MSG(takes(begin(memory, g), in[i]), "must accept %s", in[i]);
    for (size_t i = 0; i < N_OF(out); i++)
        REQUIRE_MSG(!takes(begin(memory, g), out[i]), "must refuse %s", out[i]);
    free(memory);
    gram_release(g);
    gram_vocab_destroy(v);
}

/* Every kind of part by itself, and the bounds of repetitions. */
static void test_parts_one_by_one(void **state)
{
    (void)state;
    static const struct gram_part x[] = {TOY_LITERAL("x"), TOY_LITERAL(", ")}, none[1];
    static const struct gram_part same[] = {TOY_LITERAL("aab"), TOY_LITERAL("aab"),
                                            TOY_LITERAL("aa"), TOY_LITERAL("")};
    static const struct {
        struct gram_part part;
        const char *in[5], *out[5];
    } rows[] = {
        {TOY_LITERAL("the end"), {"the end"}, {"", "the", "the ends"}},
        {TOY_LITERAL(""), {""}, {"a"}},
        {{.kind = GRAM_SEQUENCE, .kids = none}, {""}, {"a"}},
        {{.kind = GRAM_JSON_OBJECT}, {"{}", "{\"a\": [1]}"}, {"[]", "1", ""}},
        {{.kind = GRAM_SCHEMA, TOY_TEXT("{\"type\":[\"null\",\"object\"]}")}, {"null", "{}"}, {"1"}},
        {{.kind = GRAM_SCHEMA, .types = "\"object\"", TOY_TEXT("true")}, {"{}"}, {"null", "[]"}},
        {{.kind = GRAM_REGEX, TOY_TEXT("a+b")}, {"ab", "aab"}, {"b", "abc"}},
        {{.kind = GRAM_CHOICE, TOY_TEXT("[\"ab\",\"abc\"]")}, {"ab", "abc"}, {"a"}},
        {{.kind = GRAM_UNTIL, TOY_TEXT("aab")}, {"", "aa", "aaxb", "ab\xc3\xa4"}, {"aab", "aaab"}},
        {{.kind = GRAM_UNTIL, TOY_TEXT("\xff<")}, {"", "\n</p>"}, {"\xff<", "a\xff<"}},
        {TOY_TREE(GRAM_EITHER, same), {"aab", "aa", ""}, {"a", "aabaab"}},
        {TOY_TREE(GRAM_REPEAT, x, .max = GRAM_INFINITE), {"", "x", "x, x, x"}, {"x, ", ", x", "xx"}},
        {TOY_TREE(GRAM_REPEAT, x, .min = 2, .max = 3), {"x, x", "x, x, x"}, {"", "x", "x, x, x, x"}},
        {TOY_TREE(GRAM_REPEAT, x, .max = 1), {"", "x"}, {"x, x"}},
        {TOY_TREE(GRAM_REPEAT, x, .max = 0), {""}, {"x"}},
    };
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();

    for (size_t i = 0; i < N_OF(rows); i++) {
        struct gram *g = toy_compile_part(v, &rows[i].part, NULL);
        for (const char *const *text = rows[i].in; *text; text++)
            REQUIRE_MSG(takes(begin(memory, g), *text), "%zu must accept '%s'", i, *text);
        for (const char *const *text = rows[i].out; *text; text++)
            REQUIRE_MSG(!takes(begin(memory, g), *text), "%zu must refuse '%s'", i, *text);
        gram_release(g);
    }
    free(memory);
    gram_vocab_destroy(v);
}

/* ---- captures ------------------------------------------------------------------------------ */

static void test_captures_are_reported_early(void **state)
{
    (void)state;
    static const struct {
        const char *text, *log; /* of all that is reported so far */
    } steps[] = {
        {"\xff<call>{\"name\": \"", "+4@0 +1@17 "},
        {"add", "+4@0 +1@17 "}, /* of add or of add_all */
        {"\", \"", "+4@0 +1@17 -1@20 "},
        {"a\": ", "+4@0 +1@17 -1@20 +2@28 "},
        {"{\"a\": 12}", "+4@0 +1@17 -1@20 +2@28 -2@37 "},
        {"}\xff</call>", "+4@0 +1@17 -1@20 +2@28 -2@37 -4@46 "},
        {"\n\xff<call>{\"name\": \"sa", "+4@0 +1@17 -1@20 +2@28 -2@37 -4@46 +4@47 +1@64 "},
        {"y\">a\n</", "+4@0 +1@17 -1@20 +2@28 -2@37 -4@46 +4@47 +1@64 -1@67 +3@69 "},
        {"p", "+4@0 +1@17 -1@20 +2@28 -2@37 -4@46 +4@47 +1@64 -1@67 +3@69 "},
        {">", "+4@0 +1@17 -1@20 +2@28 -2@37 -4@46 +4@47 +1@64 -1@67 +3@69 -3@70 "},
    };
    struct gram_vocab *v = toy_vocab();
    struct gram *g = toy_compile_part(v, &toy_calls, NULL);
    void *memory = toy_state_memory();
    struct gram_state *s = begin(memory, g);

    for (size_t i = 0; i < N_OF(steps); i++) {
        uint64_t mark = gram_mark(s);
        size_t before = strlen(log_text);
        REQUIRE(gram_take_bytes(s, steps[i].text, strlen(steps[i].text)));
        REQUIRE_EQ_STR(log_text, steps[i].log);
        REQUIRE(gram_rollback(s, mark)); /* what came behind the mark is reported again */
        log_text[before] = '\0';
        REQUIRE(gram_take_bytes(s, steps[i].text, strlen(steps[i].text)));
        REQUIRE_EQ_STR(log_text, steps[i].log);
    }
    free(memory);
    gram_release(g);
    gram_vocab_destroy(v);
}

/* ---- special tokens ------------------------------------------------------------------------ */

/* No part but a literal takes byte 0xFF, at any place in a random answer. */
static void test_special_tokens_are_in_literals_alone(void **state)
{
    (void)state;
    static const struct gram_part parts[] = {
        {.kind = GRAM_SCHEMA, TOY_TEXT("true")},
        {.kind = GRAM_SCHEMA, TOY_TEXT("{\"type\":\"string\",\"pattern\":\"[^a]\"}")},
        {.kind = GRAM_SCHEMA,
         TOY_TEXT("{\"propertyNames\":{\"pattern\":\"^[^a]*$\"},\"minProperties\":"
                  "1,\"type\":\"object\"}")},
        {.kind = GRAM_SCHEMA, TOY_TEXT("{\"enum\":[\"\xc3\xbf<\",\"\\u00ff\"]}")},
        {.kind = GRAM_JSON_OBJECT},
        {.kind = GRAM_REGEX, TOY_TEXT("[^]*[\\xff\xc3\xbf]?[^a]*")},
        {.kind = GRAM_GBNF, TOY_TEXT("root ::= ([^a] | \"\\xff<\" | . | \"(\" root \")\")*")},
        {.kind = GRAM_UNTIL, TOY_TEXT("\xff<call>")},
        {.kind = GRAM_UNTIL, TOY_TEXT("aa")},
    };
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    uint64_t bits[TOY_MASK_WORDS], seed = 7;

    REQUIRE_EQ_INT(gram_vocab_byte_id(v, 0xFF), -1);
    for (size_t i = 0; i < N_OF(parts); i++) {
        struct gram *g = toy_compile_part(v, &parts[i], NULL);
        struct gram_state *s = begin(memory, g);
        for (int n = 0; n < 300 && gram_mask(s, bits) == GRAM_NEXT_MASK; n++) {
            for (int32_t id = 1; id < TOY_IDS; id++) {
                char text[GRAM_MAX_TOKEN_BYTES];
                size_t len = toy_bytes(NULL, id, text, sizeof(text));
                if (!len || !memchr(text, 0xFF, len)) continue;
                REQUIRE_MSG(!toy_allows(bits, id), "part %zu allows id %d", i, id);
                REQUIRE(!gram_take(s, id) && !gram_take_bytes(s, text, len));
            }
            int32_t id = (int32_t)toy_draw(&seed, TOY_IDS);
            for (int32_t k = 0; k < TOY_IDS && (id == TOY_END || !toy_allows(bits, id)); k++)
                id = (id + 1) % TOY_IDS;
            if (!gram_take(s, id)) break;
        }
        gram_release(g);
    }
    free(memory);
    gram_vocab_destroy(v);
}

/* ---- errors -------------------------------------------------------------------------------- */

static void test_errors_name_the_part(void **state)
{
    (void)state;
    static const struct gram_part bad[] = {
        {.kind = GRAM_SCHEMA, .pointer = "/tools/0", TOY_TEXT("{\"not\":{\"pattern\":\"a\"}}")},
        {.kind = GRAM_SCHEMA, .pointer = "/tools/1", TOY_TEXT("{\"items\":{\"minimum\":\"1\"}}")},
    };
    static const struct gram_part empty[] = {
        {.kind = GRAM_SCHEMA, TOY_TEXT("true")},
        {.kind = GRAM_SCHEMA,
         .pointer = "/a~1b",
         .types = "\"object\"",
         TOY_TEXT("{\"type\":\"string\"}")},
    };
    static const struct gram_part no_regex[] = {{.kind = GRAM_REGEX, TOY_TEXT("a[]")},
                                                TOY_LITERAL("b")};
    static const struct gram_part strict[] = {
        {.kind = GRAM_SCHEMA, .pointer = "/p", TOY_TEXT("{\"contains\":true}")},
        {.kind = GRAM_SCHEMA, .pointer = "/q", .strict = true, TOY_TEXT("{\"contains\":true}")},
    };
    static const struct {
        struct gram_part part;
        enum gram_error_code code;
        const char *message;
    } rows[] = {
        {TOY_TREE(GRAM_SEQUENCE, bad), GRAM_EINVAL,
         "/tools/1/items/minimum: must be a number, is a string."},
        {{.kind = GRAM_SCHEMA, .pointer = "/p", TOY_TEXT("{")}, GRAM_EINVAL, "/p: schema is "},
        {TOY_TREE(GRAM_EITHER, empty), GRAM_EINVAL,
         "/a~1b: no value is possible: nothing fits all that it says."},
        {TOY_TREE(GRAM_EITHER, strict), GRAM_EINVAL, "/q/contains: "},
        {TOY_TREE(GRAM_EITHER, no_regex), GRAM_EGRAMMAR, "The grammar has no text at all."},
        {{.kind = GRAM_UNTIL, TOY_TEXT("\xa4")},
         GRAM_EGRAMMAR,
         "A text can only end at valid UTF-8"},
        {{.kind = GRAM_UNTIL}, GRAM_EGRAMMAR, "A text can only end at valid UTF-8"},
        {TOY_LITERAL("a\xff<calls>"), GRAM_OK, ""}, /* special token "<", then text */
        {TOY_LITERAL("a\xff[x]"), GRAM_EUNSUPPORTED, "'a\\xff[x]' cannot be written with this"},
        {TOY_LITERAL("\xff"), GRAM_EUNSUPPORTED, "'\\xff' cannot be written with this"},
        {TOY_LITERAL("\xf1\x80\x80\x80"), GRAM_EUNSUPPORTED, "'"},
    };
    struct gram_vocab *v = toy_vocab();

    for (size_t i = 0; i < N_OF(rows); i++) {
        struct gram *g = NULL;
        struct gram_error err;
        int rc = gram_compile_parts(&g, v, &rows[i].part, NULL, &err);
        REQUIRE_MSG(rc == (int)rows[i].code && err.code == rows[i].code, "%zu: %s", i, err.message);
        REQUIRE_MSG(strncmp(err.message, rows[i].message, strlen(rows[i].message)) == 0, "%zu: %s",
                    i, err.message);
        gram_release(g);
    }
    gram_vocab_destroy(v);
}

static void test_relaxed_keywords_of_equal_schemas(void **state)
{
    (void)state;
    static const struct gram_part schemas[] = {
        {.kind = GRAM_SCHEMA, .pointer = "/tools/0/p", TOY_TEXT("{\"items\":{\"contains\":true}}")},
        {.kind = GRAM_SCHEMA, TOY_TEXT("{\"format\":\"x\"}"), .strict = true},
        {.kind = GRAM_SCHEMA, .pointer = "/tools/1/p", TOY_TEXT("{\"items\":{\"contains\":true}}")},
    };
    static const struct gram_part all = TOY_TREE(GRAM_EITHER, schemas);
    struct gram_vocab *v = toy_vocab();
    struct gram *g = toy_compile_part(v, &all, NULL);

    REQUIRE_EQ_INT((int)gram_n_relaxed(g), 3);
    REQUIRE_EQ_STR(gram_relaxed(g, 0), "/tools/0/p/items/contains");
    REQUIRE_EQ_STR(gram_relaxed(g, 1), "/format");
    REQUIRE_EQ_STR(gram_relaxed(g, 2), "/tools/1/p/items/contains");
    gram_release(g);
    gram_vocab_destroy(v);
}

/* ---- many tools ---------------------------------------------------------------------------- */

/* A step is about 50 ns: 128 tools are well within 100 ms. */
enum { N_TOOLS = 128, SCHEMA_BYTES = 2048, STEPS_PER_TOOL = 5000 };

/* A schema of about 2 KB, as tools have them; all differ. */
static size_t write_schema(char *out, int tool)
{
    size_t n = (size_t)snprintf(out, SCHEMA_BYTES, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; n < SCHEMA_BYTES - 300; i++)
        n += (size_t)snprintf(out + n, SCHEMA_BYTES - n,
                              "%s\"field_%d_%d\":{\"type\":\"%s\",\"description\":\"Some words "
                              "that say what it is.\"%s}",
                              i ? "," : "", tool, i,
                              i % 5 == 4   ? "array"
                              : i % 3 == 1 ? "integer"
                                           : "string",
                              i % 5 == 4   ? ",\"items\":{\"enum\":[\"one\",\"two\"]}"
                              : i % 3 == 1 ? ",\"minimum\":1,\"maximum\":100"
                              : i % 3 == 2 ? ",\"format\":\"date-time\""
                                           : "");
    n += (size_t)snprintf(out + n, SCHEMA_BYTES - n,
                          "},\"required\":[\"field_%d_0\",\"field_%d_2\"]}", tool, tool);
    return n;
}

/* One set of places for all tools, whatever their number, and few steps for each. */
static void test_many_tools_cost_little(void **state)
{
    (void)state;
    static char names[N_TOOLS][24], texts[N_TOOLS][SCHEMA_BYTES];
    static struct gram_part tools[N_TOOLS], kids[N_TOOLS][3];
    struct gram_part call[] = {TOY_LITERAL("{\"name\": \""),
                               {.kind = GRAM_EITHER, .kids = tools, .n_kids = N_TOOLS},
                               TOY_LITERAL("}")};
    struct gram_part root = TOY_TREE(GRAM_SEQUENCE, call);
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    uint64_t bits[TOY_MASK_WORDS];

    for (int i = 0; i < N_TOOLS; i++) {
        size_t n = write_schema(texts[i], i);
        REQUIRE(n > 1700 && n < SCHEMA_BYTES);
        snprintf(names[i], sizeof(names[i]), "tool_%d", i);
        kids[i][0] = (struct gram_part){.kind = GRAM_LITERAL, .text = names[i], .capture = 1};
        kids[i][0].len = strlen(names[i]);
        kids[i][1] = (struct gram_part)TOY_LITERAL("\", \"arguments\": ");
        kids[i][2] = (struct gram_part){
            .kind = GRAM_SCHEMA, .types = "\"object\"", .text = texts[i], .len = n, .capture = 2};
        tools[i] = (struct gram_part)TOY_TREE(GRAM_SEQUENCE, kids[i]);
    }
    for (int n = 32; n <= N_TOOLS; n += N_TOOLS - 32) {
        call[1].n_kids = (size_t)n;
        struct gram_options options = {.max_steps = (uint64_t)n * STEPS_PER_TOOL};
        struct gram *g = toy_compile_part(v, &root, &options);
        struct gram_state *s = begin(memory, g);
        REQUIRE(!takes(s, "{\"name\": \"tool_3"));
        REQUIRE(gram_mask(s, bits) == GRAM_NEXT_MASK);
        REQUIRE(!takes(s, "1\", \"arguments\": {\"field_31_0\": \"a\", \"field_31_2\": \""));
        REQUIRE_EQ_STR(log_text, "+1@10 -1@17 +2@33 ");
        REQUIRE(takes(s, "2024-02-29T12:00:00Z\"}}"));
        REQUIRE_EQ_INT((int)gram_overflows(s), 0);
        gram_release(g);
    }
    free(memory);
    gram_vocab_destroy(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_of_tools),
        cmocka_unit_test(test_parts_one_by_one),
        cmocka_unit_test(test_captures_are_reported_early),
        cmocka_unit_test(test_special_tokens_are_in_literals_alone),
        cmocka_unit_test(test_errors_name_the_part),
        cmocka_unit_test(test_relaxed_keywords_of_equal_schemas),
        cmocka_unit_test(test_many_tools_cost_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
