/* SPDX-License-Identifier: MIT */
/*
 * Texts that a guide lets come: each is read as the same calls whether it is read as guided text or
 * not, and is complete where the guide says so.
 */
#include "test.h"

#include "tools/read_text.h"
#include "toy_vocab.h"

enum { N_FORMATS = 10, MAX_TOKENS = 120, MAX_TEXT = 1 << 16 };

static const enum tools_format formats[N_FORMATS] = {
    TOOLS_HERMES,       TOOLS_LIST,        TOOLS_QWEN_XML, TOOLS_LLAMA3, TOOLS_MISTRAL,
    TOOLS_MISTRAL_ARGS, TOOLS_FUNCTIONARY, TOOLS_PYTHONIC, TOOLS_GEMMA4, TOOLS_FUNCTIONGEMMA};

static struct gram *compile(const struct gram_vocab *v, const struct reading *r)
{
    struct gram *g = NULL;
    struct gram_error err;
    struct gram_options options = {.strict = false};
    if (tools_compile(&g, v, &r->request, &r->markers, r->think_open, NULL, &options, &err)) {
        print_error("%s: %s\n", err.pointer, err.message);
        fail();
    }
    return g;
}

/* ---- random texts -------------------------------------------------------------------------- */

/* A token that the mask allows, often one that closes something; the end if there is no other. */
static int32_t draw(const uint64_t *bits, uint64_t *seed)
{
    static const char closers[] = "\"}]<>/\n";
    int32_t closer = TOY_BYTES + closers[toy_draw(seed, sizeof(closers) - 1)];
    if (toy_draw(seed, 4) && toy_allows(bits, closer)) return closer;
    int32_t id = (int32_t)toy_draw(seed, TOY_IDS);
    for (int32_t i = 0; i < TOY_IDS && (!toy_allows(bits, id) || id == TOY_END); i++)
        id = (id + 1) % TOY_IDS;
    return toy_allows(bits, id) && id != TOY_END ? id : TOY_END;
}

/* A text by the grammar. Returns its length; *complete: it may end there. */
static size_t sample(const struct gram *g, void *memory, uint64_t seed, char *text, bool *complete)
{
    struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
    uint64_t bits[TOY_MASK_WORDS];
    size_t n = 0, max = 4 + toy_draw(&seed, MAX_TOKENS);
    for (size_t i = 0; i < max && gram_mask(s, bits) == GRAM_NEXT_MASK; i++) {
        int32_t id = draw(bits, &seed);
        if (id == TOY_END) break;
        REQUIRE(gram_take(s, id));
        n += toy_bytes(NULL, id, text + n, MAX_TEXT);
    }
    *complete = gram_accepting(s);
    return n;
}

/* The calls of a line alone, since content may be cut off in another place. */
static void check_text(struct reading *r, const char *text, size_t len, bool complete)
{
    r->guided = false;
    char *plain = read_whole(r, text, len);
    r->guided = true;
    char *guided = read_whole(r, text, len), *bytes = read_bytes(r, text, len);
    bool cut_value = !complete && r->style.format == TOOLS_QWEN_XML;
    REQUIRE_EQ_STR(guided, bytes);
    if (!cut_value) REQUIRE_EQ_STR(guided, plain);
    if (complete && r->request.choice == TOOLS_CHOICE_REQUIRED)
        REQUIRE_MSG(!strstr(plain, "C(") || strstr(plain, "write") || strstr(plain, "any"), "%s",
                    plain);
    if (complete) REQUIRE_MSG(!strstr(plain, ")!"), "%s", plain);
    free(plain);
    free(guided);
    free(bytes);
}

static void sample_format(const struct gram_vocab *v, enum tools_format format,
                          enum tools_choice choice)
{
    static char text[MAX_TEXT * 2];
    void *memory = toy_state_memory();
    struct reading r;
    int n_complete = 0, n_calls = 0;
    reading_init(&r, format, false);
    r.request.choice = choice;
    reading_prepare(&r);
    struct gram *g = compile(v, &r);
    for (uint64_t seed = 1; seed <= 500; seed++) {
        bool complete;
        size_t n = sample(g, memory, seed * 977, text, &complete);
        check_text(&r, text, n, complete);
        n_complete += complete;
        char *line = read_whole(&r, text, n);
        n_calls += strstr(line, "ping") || strstr(line, "write") || strstr(line, "any");
        free(line);
    }
    REQUIRE_MSG(n_complete > 3, "%s: %d", tools_format_name(format), n_complete);
    REQUIRE_MSG(choice == TOOLS_CHOICE_AUTO || n_calls > 200, "%d", n_calls);
    gram_release(g);
    tools_set_destroy(r.set);
    free(memory);
}

static void test_guided_texts_read_the_same(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    for (int i = 0; i < N_FORMATS; i++) {
        sample_format(v, formats[i], TOOLS_CHOICE_AUTO);
        sample_format(v, formats[i], TOOLS_CHOICE_REQUIRED);
    }
    gram_vocab_destroy(v);
}

/* ---- languages ----------------------------------------------------------------------------- */

enum { REQUIRED = 1, ONCE = 2, THINK = 4, OPEN = 8, ONLY_PING = 16 };

#define PY "<|tool_call_start|>"
#define PY_END "<|tool_call_end|>"
#define Q "<|\"|>"
#define GEMMA(call) "<|tool_call>call:" call "<tool_call|>"
#define PING "{\"name\": \"ping\", \"arguments\": {}}"

static const struct {
    enum tools_format format;
    unsigned flags;
    const char *text;
    int within; /* bytes; -1: all, and it may end there; -2: all, and it may not */
} texts[] = {
    {TOOLS_HERMES, 0, "plain <tool_ text", -1},
    {TOOLS_HERMES, 0, "a<tool_call>\n" PING, -2},
    {TOOLS_HERMES, 0, "a<tool_call>\n" PING "\n</tool_call> b", -1},
    {TOOLS_HERMES, 0, "<tool_call> ", 11},
    {TOOLS_HERMES, 0, "<tool_call>\n{\"name\": \"pingx", 26},
    {TOOLS_HERMES, REQUIRED, "a", 0},
    {TOOLS_HERMES, REQUIRED, "<tool_call>\n" PING "\n</tool_call>\n", -2},
    {TOOLS_HERMES, REQUIRED | ONCE, "<tool_call>\n" PING "\n</tool_call>\n", 58},
    {TOOLS_HERMES, ONCE, "<tool_call>\n" PING "\n</tool_call>\n", 58},
    {TOOLS_HERMES, ONLY_PING, "<tool_call>\n{\"name\": \"any", 22},
    {TOOLS_HERMES, THINK, "<think><tool_call> x</think>\n<tool_call>\n" PING "\n</tool_call>", -1},
    {TOOLS_HERMES, THINK, "<think>a", -1},
    {TOOLS_HERMES, THINK | REQUIRED, "<think>a", -2},
    {TOOLS_HERMES, THINK | REQUIRED, "<think>a</think>\n\n<tool_call>\n" PING "\n</tool_call>", -1},
    {TOOLS_HERMES, THINK | REQUIRED | OPEN, "a</think>b", 9},
    {TOOLS_HERMES, THINK | OPEN, "a</think>b", -1},
    {TOOLS_LIST, REQUIRED, "<tool_call>[" PING ", " PING "]</tool_call>", -1},
    {TOOLS_MISTRAL, REQUIRED,
     "[TOOL_CALLS][{\"name\": \"ping\", \"arguments\": {}, \"id\": \"123456789\"}]", -1},
    {TOOLS_MISTRAL, REQUIRED,
     "[TOOL_CALLS][{\"name\": \"ping\", \"arguments\": {}, \"id\": \"12\"}]", 56},
    {TOOLS_MISTRAL_ARGS, REQUIRED, "[TOOL_CALLS]any[ARGS]{\"a\": 1}[TOOL_CALLS]ping[ARGS]{}", -1},
    {TOOLS_LLAMA3, 0, "{\"name\": \"pin\"} {\"name\": \"ping\"}", 31},
    {TOOLS_LLAMA3, 0, "{\"name\": \"ping\", \"parameters\": {}}; {\"name\": \"any\", \"p", -2},
    {TOOLS_LLAMA3, ONLY_PING, "{\"name\": \"any\"}", -1},
    {TOOLS_QWEN_XML, REQUIRED,
     "<tool_call>\n<function=write>\n<parameter=path>\n\n</p\n</parameter>\n"
     "<parameter=mode>\nnew\n</parameter>\n</function>\n</tool_call>",
     -1},
    {TOOLS_QWEN_XML, REQUIRED, "<tool_call>\n<function=write>\n</function>", 30},
    {TOOLS_QWEN_XML, REQUIRED, "<tool_call>\n<function=write>\n<parameter=path>\na\n<parameter=n",
     58},
    {TOOLS_QWEN_XML, REQUIRED, "<tool_call>\n<function=ping_all>\n<parameter=n>\nx", 46},
    {TOOLS_QWEN_XML, REQUIRED,
     "<tool_call>\n<function=any>\n<parameter=k>\nv\n</parameter>\n</function>"
     "\n</tool_call>",
     -1},
    {TOOLS_PYTHONIC, REQUIRED, PY "[ping(), write(path=\"a\", tags=[])]" PY_END, -1},
    {TOOLS_PYTHONIC, REQUIRED, PY "[write(path=\"a\", mode=\"new\", note=null)]" PY_END, -1},
    {TOOLS_PYTHONIC, REQUIRED, PY "[write(mode=\"new\")]", 26},
    {TOOLS_PYTHONIC, REQUIRED, PY "[write(path=\"a\",tags=[])]", 35},
    {TOOLS_PYTHONIC, REQUIRED, PY "[write(path=\"a\", tags=[], mode", 45},
    {TOOLS_PYTHONIC, REQUIRED, PY "[ping_all(n=1)]" PY_END, -1},
    {TOOLS_PYTHONIC, REQUIRED, PY "[ping_all(n=x", 31},
    {TOOLS_PYTHONIC, REQUIRED, PY "[ping_all()]" PY_END, -1},
    {TOOLS_PYTHONIC, REQUIRED | ONCE, PY "[ping(),", 26},
    {TOOLS_PYTHONIC, 0, "a" PY "[any(k=[1], l={\"m\": true})]" PY_END "b", -1},
    {TOOLS_GEMMA4, REQUIRED, GEMMA("ping{}") GEMMA("write{path:" Q "a \"\n" Q ",tags:[]}"), -1},
    {TOOLS_GEMMA4, REQUIRED,
     GEMMA("write{mode:" Q "new" Q ",note:null,path:" Q Q ",tags:[" Q "x" Q "," Q "y" Q "]}"), -1},
    {TOOLS_GEMMA4, REQUIRED, GEMMA("write{note:None,path:" Q "<|" Q "}"), -1},
    {TOOLS_GEMMA4, REQUIRED, "<|tool_call>call:write{path:" Q "a" Q ",m", 40},
    {TOOLS_GEMMA4, REQUIRED, "<|tool_call>call:write{tags:[],", 23},
    {TOOLS_GEMMA4, REQUIRED, "<|tool_call>call:write{path:\"", 28},
    {TOOLS_GEMMA4, REQUIRED, "<|tool_call>call:write{mode:" Q "ol", 33},
    {TOOLS_GEMMA4, REQUIRED, "<|tool_call>call:ping_all{n:x", 28},
    {TOOLS_GEMMA4, REQUIRED, GEMMA("ping_all{n:-12}"), -1},
    {TOOLS_GEMMA4, REQUIRED | ONCE, GEMMA("ping{}") "<", 35},
    {TOOLS_GEMMA4, 0, "a" GEMMA("any{k:[1.5,{}],l:{m:true,n:[" Q "x" Q "]},o:null}") "b", -1},
    {TOOLS_FUNCTIONGEMMA, REQUIRED,
     "<start_function_call>call:write{path:<escape>a<escape>}<end_function_call>", -1},
};

static void prepare(struct reading *r, enum tools_format format, unsigned flags)
{
    static struct tools_tool tools[N_READ_TOOLS];
    reading_init(r, format, flags & THINK);
    memcpy(tools, read_tools, sizeof(tools));
    for (int i = 1; i < N_READ_TOOLS; i++)
        tools[i].excluded = flags & ONLY_PING;
    r->request.tools = tools;
    r->request.choice = flags & REQUIRED ? TOOLS_CHOICE_REQUIRED : TOOLS_CHOICE_AUTO;
    r->request.once = flags & ONCE;
    r->think_open = flags & OPEN;
}

static void test_languages(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct reading r;
        const char *text = texts[i].text;
        int n = 0;
        prepare(&r, texts[i].format, texts[i].flags);
        struct gram *g = compile(v, &r);
        struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
        while (text[n] && gram_take_bytes(s, text + n, 1))
            n++;
        int within = text[n] ? n : gram_accepting(s) ? -1 : -2;
        REQUIRE_MSG(within == texts[i].within, "%s: %d, not %d", text, within, texts[i].within);
        gram_release(g);
    }
    free(memory);
    gram_vocab_destroy(v);
}

/* ---- texts as values ----------------------------------------------------------------------- */

/* The error, or "" and the grammar of calls of one tool with this schema. */
static struct gram_error compile_as(const struct gram_vocab *v, enum tools_format format,
                                    const char *schema, bool strict, struct gram **ret)
{
    static struct tools_tool tool;
    struct reading r;
    struct gram_error err;
    struct gram_options options = {.strict = false};
    prepare(&r, format, REQUIRED | ONCE);
    tool = (struct tools_tool){.name = "f",
                               .name_len = 1,
                               .schema = schema,
                               .schema_len = strlen(schema),
                               .pointer = "/tools/0",
                               .strict = strict};
    r.request.tools = &tool;
    r.request.n_tools = 1;
    tools_compile(ret, v, &r.request, &r.markers, false, NULL, &options, &err);
    return err;
}

static struct gram_error compile_schema(const struct gram_vocab *v, const char *schema, bool strict,
                                        struct gram **ret)
{
    return compile_as(v, TOOLS_QWEN_XML, schema, strict, ret);
}

/* Keywords come in the schema's order with commas between them, whichever are left out. */
static void test_keywords(void **state)
{
    (void)state;
    static const char optional[] =
        "{\"properties\":{\"a\":{\"type\":\"boolean\"},\"b\":{\"type\":\"integer\"},"
        "\"c\":{\"type\":[\"boolean\",\"null\"]},\"d\":{\"const\":true},\"(\":{},\"e\":false}}";
    static const char required[] =
        "{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"},"
        "\"c\":{\"type\":\"integer\"},\"d\":{\"type\":\"integer\"}},\"required\":[\"d\",\"b\"]}";
    static const struct {
        const char *schema, *arguments;
        bool fits;
    } rows[] = {
        {optional, "", true},
        {optional, "a=True", true},
        {optional, "a=False, b=1, c=None, d=true", true},
        {optional, "b=1, d=true", true},
        {optional, "c=True", true},
        {optional, "a=true", false},
        {optional, "a=None", false},
        {optional, "d=True", false},
        {optional, "b=1, a=True", false},
        {optional, "b=1, b=1", false},
        {optional, "b=1,", false},
        {optional, "e=1", false},
        {required, "b=1, d=2", true},
        {required, "a=0, b=1, c=3, d=2", true},
        {required, "a=0, d=2", false},
        {required, "b=1", false},
        {required, "b=1, c=2", false},
        {required, ", b=1, d=2", false},
    };
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[200];
        struct gram *g = NULL;
        int n = snprintf(text, sizeof(text), PY "[f(%s)]" PY_END, rows[i].arguments);
        REQUIRE_EQ_STR(compile_as(v, TOOLS_PYTHONIC, rows[i].schema, false, &g).message, "");
        struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
        bool fits = gram_take_bytes(s, text, (size_t)n) && gram_accepting(s);
        REQUIRE_MSG(fits == rows[i].fits, "%s", rows[i].arguments);
        gram_release(g);
    }
    free(memory);
    gram_vocab_destroy(v);
}

/* Values of Gemma's form, at any depth: texts around strings, bare and sorted keys. */
static void test_quoted_values(void **state)
{
    (void)state;
    static const char nested[] =
        "{\"properties\":{\"p\":{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"},"
        "\"A\":{\"enum\":[\"x\",\"y\"]},\"c\":{\"type\":\"boolean\"}},\"required\":[\"b\"]}}}";
    static const char list[] = "{\"properties\":{\"p\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
                               "l\"},{\"type\":\"null\"}]}},\"$defs\":{"
                               "\"l\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
                               "s\"},\"minItems\":1,\"maxItems\":2},"
                               "\"s\":{\"type\":\"string\",\"maxLength\":2}}}";
    static const char tree[] =
        "{\"properties\":{\"p\":{\"$ref\":\"#/$defs/t\"}},\"$defs\":{\"t\":{\"type\":\"object\","
        "\"properties\":{\"v\":{\"type\":[\"number\",\"string\"]},\"k\":{\"type\":\"array\","
        "\"items\":"
        "{\"$ref\":\"#/$defs/t\"}}},\"required\":[\"v\",\"k\"],\"additionalProperties\":false}}}";
    static const char map[] =
        "{\"properties\":{\"p\":{\"type\":\"object\",\"additionalProperties\":"
        "{\"type\":\"integer\"}}}}";
    static const char deep[] =
        "{\"properties\":{\"p\":{\"$ref\":\"#/$defs/d\"}},\"$defs\":{\"d\":"
        "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/d\"}}}}}";
    static const char odd[] =
        "{\"properties\":{\"p\":{\"anyOf\":[{\"type\":\"string\",\"minLength\":2,\"maxLength\":1},"
        "{\"type\":\"array\",\"items\":false}]}}}";
    static const struct {
        const char *schema, *value;
        bool fits;
    } rows[] = {
        {nested, "{A:" Q "y" Q ",b:1,c:true}", true},
        {nested, "{b:-1}", true},
        {nested, "{A:" Q "x" Q "}", false},
        {nested, "{b:1,A:" Q "x" Q "}", false},
        {nested, "{b:1,c:" Q "x" Q "}", false},
        {nested, "{\"b\":1}", false},
        {nested, "null", false},
        {list, "null", true},
        {list, "None", true},
        {list, "[" Q "ab" Q "," Q "\"" Q "]", true},
        {list, "[]", false},
        {list, "[" Q Q "," Q Q "," Q Q "]", false},
        {list, "[" Q "abc" Q "]", false},
        {list, "[1]", false},
        {tree, "{k:[{k:[],v:1.5}],v:" Q "x" Q "}", true},
        {tree, "{k:[{k:[{k:[{k:[],v:1}],v:2}],v:3}],v:4}", true},
        {tree, "{k:[{v:1}],v:2}", false},
        {tree, "{v:1}", false},
        {tree, "{k:[],v:true}", false},
        {map, "{}", true},
        {map, "{a:1,b_c:2}", true},
        {map, "{a:" Q "x" Q "}", false},
        {odd, "[]", true},
        {deep, "{a:{a:{a:{a:{a:{a:{a:{a:{a:{a:{a:{\"a\": {\"a\": {}}}}}}}}}}}}}}", true},
        {deep, "{a:{\"a\": {}}}", false},
        {odd, Q "a" Q, false},
        {odd, "[1]", false},
        {"{\"properties\":{\"p\":true}}", "[{a:[" Q Q ",null]},1e5,false]", true},
        {"{\"properties\":{\"p\":{\"type\":[\"integer\",\"array\"]}}}", "12", true},
        {"{\"properties\":{\"p\":{\"type\":[\"integer\",\"array\"]}}}", "[12,{}]", true},
        {"{\"properties\":{\"p\":{\"type\":[\"integer\",\"array\"]}}}", "1.5", false},
        {"{\"properties\":{\"p\":{\"type\":\"string\",\"pattern\":\"^[a-c]+$\"}}}", Q "abc" Q,
         true},
        {"{\"properties\":{\"p\":{\"type\":\"string\",\"pattern\":\"^[a-c]+$\"}}}", Q "abd" Q,
         false},
    };
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[200];
        struct gram *g = NULL;
        int n = snprintf(text, sizeof(text), GEMMA("f{p:%s}"), rows[i].value);
        REQUIRE_EQ_STR(compile_as(v, TOOLS_GEMMA4, rows[i].schema, true, &g).message, "");
        struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
        bool fits = gram_take_bytes(s, text, (size_t)n) && gram_accepting(s);
        REQUIRE_MSG(fits == rows[i].fits, "%s: %s", rows[i].schema, rows[i].value);
        gram_release(g);
    }
    free(memory);
    gram_vocab_destroy(v);
}

/* Keywords that a guide cannot follow are named with their place. */
static void test_quoted_rules_are_named(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"properties\":{\"a\":{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":"
        "\"object\","
        "\"properties\":{\"x\":{\"type\":\"array\",\"uniqueItems\":false}},\"minProperties\":1}},"
        "\"b\":{\"type\":\"object\",\"patternProperties\":{}}}}";
    struct gram_vocab *v = toy_vocab();
    struct gram *g = NULL;
    REQUIRE_EQ_STR(compile_as(v, TOOLS_GEMMA4, schema, false, &g).message, "");
    REQUIRE_EQ_INT((int)gram_n_relaxed(g), 3);
    REQUIRE_EQ_STR(gram_relaxed(g, 0), "/tools/0/properties/a/uniqueItems");
    REQUIRE_EQ_STR(gram_relaxed(g, 1), "/tools/0/properties/a/items/minProperties");
    REQUIRE_EQ_STR(gram_relaxed(g, 2), "/tools/0/properties/b/patternProperties");
    gram_release(g);
    REQUIRE_EQ_STR(compile_as(v, TOOLS_GEMMA4, schema, true, &g).keyword, "uniqueItems");
    static const char impossible[] =
        "{\"properties\":{\"a\":{\"type\":[\"string\",\"array\"],\"minLength\":2,\"maxLength\":1,"
        "\"minItems\":2,\"maxItems\":1}},\"required\":[\"a\"]}";
    struct gram_error err = compile_as(v, TOOLS_GEMMA4, impossible, false, &g);
    REQUIRE(err.code == GRAM_EINVAL && !strcmp(err.pointer, "/tools/0/properties/a"));
    err = compile_as(v, TOOLS_GEMMA4, "{\"properties\":{\"a\":{\"items\":3}}}", false, &g);
    REQUIRE(err.code == GRAM_EINVAL && !strcmp(err.pointer, "/tools/0/properties/a/items"));
    gram_vocab_destroy(v);
}

/* A text parameter follows its pattern, format and lengths, in code points and without quotes. */
static void test_texts_fit_their_schema(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *value;
        bool fits;
    } values[] = {
        {"{\"type\":\"string\"}", "a \"b\"\n<x>", true},
        {"{\"type\":\"string\"}", "a</parameter>", false},
        {"{\"pattern\":\"^[a-c]+$\"}", "abc", true},
        {"{\"pattern\":\"^[a-c]+$\"}", "abd", false},
        {"{\"pattern\":\"b\"}", "a\nb\nc", true},
        {"{\"pattern\":\"b\"}", "ac", false},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\xc3\xa9\xc3\xa9", true},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\xc3\xa9", false},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "aaaa", false},
        {"{\"type\":\"string\",\"format\":\"date\"}", "2024-02-29", true},
        {"{\"type\":\"string\",\"format\":\"date\"}", "2023-02-29", false},
        {"{\"type\":\"string\",\"format\":\"date-time\"}", "2023-02-28T10:00:00Z", true},
        {"{\"allOf\":[{\"minLength\":2},{\"maxLength\":1}]}", "", false},
        {"{\"enum\":[\"a\",\"\",1,\"x</parameter>\"]}", "a", true},
        {"{\"enum\":[\"a\",\"\",1,\"x</parameter>\"]}", "", true},
        {"{\"enum\":[\"a\",\"\",1,\"x</parameter>\"]}", "1", false},
        {"{\"enum\":[\"a\",\"bc\"],\"minLength\":2}", "a", false},
        {"{\"const\":\"a\\nb\"}", "a\nb", true},
        {"{\"type\":[\"string\",\"null\"],\"maxLength\":2}", "null", true},
        {"{\"type\":[\"string\",\"null\"],\"maxLength\":2}", "nul", false},
        {"{\"type\":[\"string\",\"null\"],\"not\":{\"const\":null}}", "null", false},
        {"{\"enum\":[\"null\",\"b\"]}", "null", true},
        {"{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^a\"},{\"type\":\"integer\"}]}", "12",
         false},
        {"{\"$ref\":\"#/$defs/s\"}", "b", true},
        {"{\"$ref\":\"#/$defs/s\"}", "c", false},
        {"{\"type\":\"integer\",\"maximum\":12}", "12", true},
        {"{\"type\":\"integer\",\"maximum\":12}", "13", false},
    };
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char schema[400], text[400];
        struct gram *g = NULL;
        snprintf(schema, sizeof(schema),
                 "{\"properties\":{\"p\":%s},\"$defs\":{\"s\":{\"const\":\"b\"}}}",
                 values[i].schema);
        int n = snprintf(text, sizeof(text),
                         "<tool_call>\n<function=f>\n<parameter=p>\n%s\n</parameter>\n</function>"
                         "\n</tool_call>",
                         values[i].value);
        REQUIRE_EQ_STR(compile_schema(v, schema, true, &g).message, "");
        struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
        bool fits = gram_take_bytes(s, text, (size_t)n) && gram_accepting(s);
        REQUIRE_MSG(fits == values[i].fits, "%s: %s", values[i].schema, values[i].value);
        gram_release(g);
    }
    free(memory);
    gram_vocab_destroy(v);
}

/* A parameter that nothing fits is left out, or an error if it is required. */
static void test_parameters_that_nothing_fits(void **state)
{
    (void)state;
    static const char *const impossible[] = {
        "{\"type\":\"integer\",\"enum\":[\"a\"]}",
        "{\"type\":\"string\",\"minLength\":2,\"maxLength\":1}",
        "{\"enum\":[1],\"type\":[\"string\",\"null\"]}", "false"};
    static const char ping[] = "<tool_call>\n<function=f>\n</function>\n</tool_call>";
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    for (size_t i = 0; i < sizeof(impossible) / sizeof(impossible[0]); i++) {
        char schema[300];
        struct gram *g = NULL;
        snprintf(schema, sizeof(schema), "{\"properties\":{\"p\":%s}}", impossible[i]);
        REQUIRE_EQ_STR(compile_schema(v, schema, false, &g).message, "");
        struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
        REQUIRE(gram_take_bytes(s, ping, sizeof(ping) - 1) && gram_accepting(s));
        s = gram_state_init(memory, g, NULL, NULL);
        REQUIRE(!gram_take_bytes(s, "<tool_call>\n<function=f>\n<p", 28));
        gram_release(g);
        snprintf(schema, sizeof(schema), "{\"properties\":{\"p\":%s},\"required\":[\"p\"]}",
                 impossible[i]);
        struct gram_error err = compile_schema(v, schema, false, &g);
        REQUIRE(err.code == GRAM_EINVAL && !strncmp(err.pointer, "/tools/0/properties/p", 21));
    }
    free(memory);
    gram_vocab_destroy(v);
}

/* Keywords that a list of parameters does not follow are named, and refused under strict. */
static void test_rules_are_named(void **state)
{
    (void)state;
    static const char schema[] = "{\"properties\":{\"a/b\":{\"type\":\"array\",\"contains\":{}},"
                                 "\"c\":{\"$ref\":\"https://x.org/y\",\"type\":\"integer\"}},"
                                 "\"minProperties\":1,\"$defs\":{}}";
    struct gram_vocab *v = toy_vocab();
    struct gram *g = NULL;
    REQUIRE_EQ_STR(compile_schema(v, schema, false, &g).message, "");
    REQUIRE_EQ_INT((int)gram_n_relaxed(g), 3);
    REQUIRE_EQ_STR(gram_relaxed(g, 0), "/tools/0/minProperties");
    REQUIRE_EQ_STR(gram_relaxed(g, 1), "/tools/0/properties/a~1b/contains");
    REQUIRE_EQ_STR(gram_relaxed(g, 2), "/tools/0/properties/c/$ref");
    gram_release(g);
    struct gram_error err = compile_schema(v, schema, true, &g);
    REQUIRE(err.code == GRAM_EINVAL && !strcmp(err.keyword, "minProperties"));
    REQUIRE_MSG(strstr(err.message, "minProperties") && strstr(err.message, "strict"), "%s",
                err.message);
    gram_vocab_destroy(v);
}

/* ---- many tools ---------------------------------------------------------------------------- */

/* As many tools as there may be with the longest names, where the head of a call is its marker. */
static void test_many_long_names(void **state)
{
    (void)state;
    static struct tools_tool tools[TOOLS_MAX_TOOLS];
    static char names[TOOLS_MAX_TOOLS][TOOLS_MAX_NAME + 1];
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    struct reading r;
    uint64_t seed = 1;
    char text[200];
    prepare(&r, TOOLS_LLAMA3, 0);
    for (int i = 0; i < TOOLS_MAX_TOOLS; i++) {
        for (int k = 0; k < TOOLS_MAX_NAME; k++)
            names[i][k] = (char)('a' + toy_draw(&seed, 26));
        tools[i] = (struct tools_tool){.name = names[i], .name_len = TOOLS_MAX_NAME};
    }
    r.request.tools = tools;
    r.request.n_tools = TOOLS_MAX_TOOLS;
    struct gram *g = compile(v, &r);
    struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
    for (int i = 0; i < TOOLS_MAX_TOOLS; i += 9) {
        int n = snprintf(text, sizeof(text),
                         "a {\"name\": \"b\"} {\"name\": \"%s\", \"parameters\": {}}", names[i]);
        REQUIRE_MSG(gram_take_bytes(s, text, (size_t)n) && gram_accepting(s), "%s", text);
    }
    gram_release(g);
    free(memory);
    gram_vocab_destroy(v);
}

/* ---- marker tokens ------------------------------------------------------------------------- */

enum { CALL_ID = TOY_WORDS + 70, CALL_CLOSE_ID };

static void take_text(struct tools_guide *g, const char *text)
{
    for (; *text; text++)
        REQUIRE_MSG(tools_guide_take(g, TOY_BYTES + (unsigned char)*text), "%s", text);
}

/* Where the markers are tokens, text needs no mask, and what it holds does not matter. */
static void test_text_is_free_with_marker_tokens(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    struct reading r;
    uint64_t bits[TOY_MASK_WORDS];
    prepare(&r, TOOLS_HERMES, ONLY_PING);
    REQUIRE_EQ_STR(toy_words[CALL_ID - TOY_WORDS], "\xff<call>");
    snprintf(r.style.open, sizeof(r.style.open), "<call>");
    snprintf(r.style.close, sizeof(r.style.close), "</call>");
    snprintf(r.style.block_open, sizeof(r.style.block_open), "<call>\n");
    snprintf(r.style.block_close, sizeof(r.style.block_close), "\n</call>");
    r.markers.id[TOOLS_MARK_OPEN] = CALL_ID;
    r.markers.id[TOOLS_MARK_CLOSE] = CALL_CLOSE_ID;
    struct gram *gram = compile(v, &r);
    void *memory = aligned_alloc(64, (tools_guide_bytes() + 63) / 64 * 64);
    REQUIRE(memory);
    struct tools_guide *g = tools_guide_init(memory, gram, &r.markers, true, false, -1);
    for (int round = 0; round < 3; round++) {
        REQUIRE_EQ_INT(tools_guide_mask(g, bits, NULL), TOOLS_NEXT_FREE);
        take_text(g, "text \xe2\xff");
        REQUIRE(tools_guide_complete(g));
        uint64_t mark = tools_guide_mark(g);
        REQUIRE(tools_guide_take(g, CALL_ID));
        REQUIRE_EQ_INT(tools_guide_mask(g, bits, NULL), TOOLS_NEXT_MASK);
        REQUIRE(!toy_allows(bits, TOY_BYTES + 'a') && toy_allows(bits, TOY_BYTES + '\n'));
        tools_guide_rollback(g, mark);
        REQUIRE_EQ_INT(tools_guide_mask(g, bits, NULL), TOOLS_NEXT_FREE);
        REQUIRE(tools_guide_take(g, CALL_ID));
        take_text(g, "\n" PING "\n");
        REQUIRE(!tools_guide_take(g, TOY_BYTES + 'x') && !tools_guide_complete(g));
        REQUIRE(tools_guide_take(g, CALL_CLOSE_ID));
    }
    gram_release(gram);
    r.request.once = true; /* nothing follows the only call */
    gram = compile(v, &r);
    g = tools_guide_init(memory, gram, &r.markers, true, false, -1);
    take_text(g, "text");
    REQUIRE(tools_guide_take(g, CALL_ID));
    take_text(g, "\n" PING "\n");
    REQUIRE(tools_guide_take(g, CALL_CLOSE_ID));
    REQUIRE_EQ_INT(tools_guide_mask(g, bits, NULL), TOOLS_NEXT_END);
    gram_release(gram);
    free(memory);
    gram_vocab_destroy(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guided_texts_read_the_same),
        cmocka_unit_test(test_languages),
        cmocka_unit_test(test_keywords),
        cmocka_unit_test(test_quoted_values),
        cmocka_unit_test(test_quoted_rules_are_named),
        cmocka_unit_test(test_texts_fit_their_schema),
        cmocka_unit_test(test_parameters_that_nothing_fits),
        cmocka_unit_test(test_rules_are_named),
        cmocka_unit_test(test_many_long_names),
        cmocka_unit_test(test_text_is_free_with_marker_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
