/* SPDX-License-Identifier: MIT */
/* Texts of models to content, reasoning and calls: the same however they are cut. */
#include "test.h"

#include "tools/read_text.h"

enum { OPEN = 1, REASONS = 2, ANY_NAME = 4, ONE_CALL = 8, BEGUN = 16, NO_REASONING = 32 };

static const struct {
    enum tools_format format;
    unsigned flags;
    const char *text, *line;
} cases[] = {
    /* text, and white space */
    {TOOLS_HERMES, 0, "", ""},
    {TOOLS_HERMES, 0, "  plain \n", "C(  plain \n)"},
    {TOOLS_NONE, 0, "<tool_call>{\"name\":\"ping\"}", "C(<tool_call>{\"name\":\"ping\"})"},
    {TOOLS_HERMES, 0, "a <tool_ b <<tool_call>", "C(a <tool_ b <<tool_call>)"},
    {TOOLS_HERMES, 0, "a\n<tool_call>{\"name\":\"ping\"}</tool_call>\n", "C(a)ping({})"},
    {TOOLS_HERMES, 0, "<tool_call>{\"name\":\"ping\"}</tool_call>\n b", "ping({})C(b)"},
    {TOOLS_HERMES, 0, "a<tool_call>{\"name\":\"ping\"}</tool_call>\n b", "C(a)ping({})C(\n b)"},
    {TOOLS_HERMES, 0, "<tool_call>{\"name\":\"ping\"} </tool_ b", "ping({})C(</tool_ b)"},
    {TOOLS_HERMES, 0, "<tool_call> <tool_call>{\"name\":\"ping\"}", "C(<tool_call>)ping({})"},
    /* hermes and list */
    {TOOLS_HERMES, 0, "<tool_call>{\"name\":\"ping_all\",\"arguments\":{\"n\":1}}",
     "ping_all({\"n\":1})"},
    {TOOLS_HERMES, 0, "<tool_call>{\"name\":\"ping_al\"}", "C(<tool_call>{\"name\":\"ping_al\"})"},
    {TOOLS_HERMES, 0, "<tool_call>{\"name\":\"ping\",\"name\":\"ping\"}",
     "C(<tool_call>{\"name\":\"ping\",\"name\":\"ping\"})"},
    {TOOLS_HERMES, 0,
     "<tool_call>{\"id\":7,\"arguments\":\"{\\\"a\\\":\\\"\\\\u00e9\\\\n\\\"} \","
     "\"type\":[\"x\"],\"name\":\"any\"}",
     "any({\"a\":\"\\u00e9\\n\"} )"},
    {TOOLS_HERMES, 0, "<tool_call>{\"name\":\"any\",\"arguments\":\"{\\\"a\\\":\\\"\\ud83d\\ude00",
     "any({\"a\":\"\xf0\x9f\x98\x80)!"},
    {TOOLS_HERMES, 0, "<tool_call>{\"name\":\"any\",\"arguments\":\"{\\\"a\\\":\\\"\\ud83d\\\"}\"}",
     "C(<tool_call>{\"name\":\"any\",\"arguments\":\"{\\\"a\\\":\\\"\\ud83d\\\"}\"})"},
    {TOOLS_HERMES, 0, "<tool_call>{\"name\":\"any\",\"arguments\":{\"a\":1}", "any({\"a\":1})"},
    {TOOLS_HERMES, 0, "<tool_call>{\"name\":\"any\",\"arguments\":nul", "any()!"},
    {TOOLS_HERMES, 0, "<tool_call>{\"name\":\"any\",\"arguments\":{\"a\":01}}",
     "C(<tool_call>{\"name\":\"any\",\"arguments\":{\"a\":01}})"},
    {TOOLS_HERMES, ANY_NAME, "<tool_call>{\"name\":\"x.y-z_1\"}</tool_call>", "x.y-z_1({})"},
    {TOOLS_HERMES, ANY_NAME, "<tool_call>{\"name\":\"\"}", "C(<tool_call>{\"name\":\"\"})"},
    {TOOLS_HERMES, ONE_CALL, "<tool_call>{\"name\":\"ping\"}{\"name\":\"ping\"}",
     "ping({})C({\"name\":\"ping\"})"},
    {TOOLS_LIST, ONE_CALL, "<tool_call>[{\"name\":\"ping\"} ] </tool_call>x", "ping({})C(x)"},
    {TOOLS_LIST, 0, "<tool_call>[ ]</tool_call> x", "C(x)"},
    {TOOLS_LIST, 0, "<tool_call>[{\"name\":\"ping\"}, {\"name\":\"pong\"}]",
     "ping({})C(, {\"name\":\"pong\"}])"},
    {TOOLS_LIST, 0, "<tool_call>[{\"name\":\"ping\"}] no", "ping({})C(no)"},
    /* results in the form of the server's prompts, copied by the model */
    {TOOLS_HERMES, 0, "<tool_response>\n7\n</tool_response>\nSeven", "C(Seven)"},
    {TOOLS_LIST, 0, "a\n\n<tool_response>7</tool_response>\n<tool_response></tool_response> ",
     "C(a)"},
    {TOOLS_LIST, 0, "a\n<tool_response>7</tool_response>\nb", "C(a\nb)"},
    {TOOLS_HERMES, 0,
     "<tool_call>{\"name\":\"ping\"}</tool_call>\n<tool_response>\n<7> </tool\n</tool_response>\nx",
     "ping({})C(x)"},
    {TOOLS_HERMES, ONE_CALL,
     "<tool_call>{\"name\":\"ping\"}</tool_call><tool_response>7</tool_response>x", "ping({})C(x)"},
    {TOOLS_LLAMA3, 0, "<tool_response>{\"name\":\"ping\",\"parameters\":{}}</tool_response>x",
     "C(x)"},
    {TOOLS_HERMES, REASONS, "<think>a</think>\n<tool_response>7</tool_response>x", "R(a)C(x)"},
    {TOOLS_HERMES, 0, "in <tool_response>7</tool_response>",
     "C(in <tool_response>7</tool_response>)"},
    {TOOLS_HERMES, 0, "<tool_response>\n7 </tool_respons", "C(<tool_response>\n7 </tool_respons)"},
    {TOOLS_HERMES, 0, "<tool_response>7<tool_call>{\"name\":\"ping\"}</tool_call>",
     "C(<tool_response>7)ping({})"},
    {TOOLS_NONE, 0, "<tool_response>7</tool_response>", "C(<tool_response>7</tool_response>)"},
    /* mistral, mistral-args */
    {TOOLS_MISTRAL, 0, "a [TOOL_CALLS]b", "C(a b)"},
    {TOOLS_MISTRAL, 0, "[TOOL_CALLS][TOOL_CALLS][{\"name\":\"ping\",\"id\":\"a\\n\"}]",
     "ping[a\n]({})"},
    {TOOLS_MISTRAL, 0, "[TOOL_CALLS][{\"name\":\"ping\",\"id\": 5}]", "ping({})"},
    {TOOLS_MISTRAL, 0, "[TOOL_CALLS]{\"name\":\"ping\"}", "C({\"name\":\"ping\"})"},
    {TOOLS_MISTRAL_ARGS, 0, "[TOOL_CALLS] any[CALL_ID]x1[ARGS] {\"a\":[]}y",
     "any[x1]({\"a\":[]})C(y)"},
    {TOOLS_MISTRAL_ARGS, 0, "[TOOL_CALLS]any[CALL_ID][ARGS]{}", "C(any[CALL_ID][ARGS]{})"},
    {TOOLS_MISTRAL_ARGS, 0, "[TOOL_CALLS]ping[TOOL_CALLS]any{}", "C(ping)any({})"},
    {TOOLS_MISTRAL_ARGS, 0, "[TOOL_CALLS]ping[ARGS]", "ping()!"},
    {TOOLS_MISTRAL_ARGS, 0, "[TOOL_CALLS]pin", "C(pin)"},
    /* llama3 */
    {TOOLS_LLAMA3, 0, "{{\"name\":\"any\",\"parameters\":{}};{\"name\":\"ping\",\"arguments\":{}}",
     "C({)any({})ping({})"},
    {TOOLS_LLAMA3, 0, "{\"name\":\"ping\",\"parameters\":{}} ; x", "ping({})C(; x)"},
    {TOOLS_LLAMA3, 0, "{\"name\":\"ping\",\"parameters\":{}};", "ping({})C(;)"},
    {TOOLS_LLAMA3, 0, "{\"name\":\"ping\",\"parameters\":nu",
     "C({\"name\":\"ping\",\"parameters\":nu)"},
    {TOOLS_LLAMA3, 0, "{\"parameters\":{},\"name\":\"ping\"", "ping({})"},
    {TOOLS_LLAMA3, 0, "x <|python_tag|> y", "C(x y)"},
    {TOOLS_LLAMA3, 0, "<|python_tag|> {\"type\":\"function\",\"name\":\"ping\",\"parameters\":{}}",
     "ping({})"},
    /* qwen-xml */
    {TOOLS_QWEN_XML, 0,
     "<function=write><parameter=path>a</parameter><parameter=tags> [1] "
     "</parameter><parameter=note>\nnull\n</parameter></function>x",
     "write({\"path\": \"a\", \"tags\": [1], \"note\": null})C(x)"},
    {TOOLS_QWEN_XML, 0,
     "<tool_call><function=write><parameter=path>\n\n\x01\"\\/\n\n</parameter>"
     "</function></tool_call>",
     "write({\"path\": \"\\n\\u0001\\\"\\\\/\\n\"})"},
    {TOOLS_QWEN_XML, 0,
     "<function=write><parameter=path>a\n<parameter=note>b\n<parameter=zz>c"
     "</parameter></function>",
     "write({\"path\": \"a\", \"note\": \"b\\n<parameter=zz>c\"})"},
    {TOOLS_QWEN_XML, ANY_NAME,
     "<function=f><parameter=a>1\n<parameter=a>2\n<parameter=b>null"
     "</parameter></function>",
     "f({\"a\": \"1\\n<parameter=a>2\", \"b\": \"null\"})"},
    {TOOLS_QWEN_XML, 0, "<function=write><parameter=path>a</parameter><parameter=tags>[1, 2",
     "write({\"path\": \"a\", \"tags\": [1, 2)!"},
    {TOOLS_QWEN_XML, 0, "<function=write><parameter=path>a</param", "write({\"path\": \"a)!"},
    {TOOLS_QWEN_XML, 0, "<function=ping></function></tool_call>", "ping({})"},
    {TOOLS_QWEN_XML, 0, "<function=ping>x</function>", "C(<function=ping>x</function>)"},
    /* reasoning */
    {TOOLS_HERMES, REASONS, "\n<think>\n a \n</think>\n b", "R(a)C(b)"},
    {TOOLS_HERMES, REASONS, "x<think>a</think>", "C(x<think>a</think>)"},
    {TOOLS_HERMES, REASONS | OPEN, "<think> a <think>b", "R(a <think>b)"},
    {TOOLS_HERMES, REASONS | BEGUN, "<think>a</think>", "C(<think>a</think>)"},
    {TOOLS_HERMES, REASONS | NO_REASONING | OPEN, "a</think>", "C(a</think>)"},
    {TOOLS_HERMES, REASONS | OPEN, "a <tool_call>[]</tool_call> b",
     "R(a <tool_call>[]</tool_call> b)"},
    {TOOLS_HERMES, REASONS | OPEN, "a <tool_call>{\"name\":\"ping\"", "R(a)ping()!"},
    {TOOLS_HERMES, REASONS | OPEN, "a \xe2\x82</think> b\xe2", "R(a )C(b)"},
};

static void prepare(struct reading *r, enum tools_format format, unsigned flags)
{
    reading_init(r, format, flags & REASONS);
    r->think_open = flags & OPEN;
    r->begun = flags & BEGUN;
    r->request.one_call = flags & ONE_CALL;
    r->request.no_reasoning = flags & NO_REASONING;
    r->request.any_name = flags & ANY_NAME;
    if (flags & ANY_NAME) r->request.n_tools = 0;
    reading_prepare(r);
}

static void expect(char *line, const char *wanted, const char *text)
{
    REQUIRE_MSG(strcmp(line, wanted) == 0, "%s\n  read as %s\n  wanted  %s", text, line, wanted);
    free(line);
}

static void test_texts_at_every_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct reading r;
        const char *text = cases[i].text;
        size_t len = strlen(text);
        prepare(&r, cases[i].format, cases[i].flags);
        expect(read_whole(&r, text, len), cases[i].line, text);
        expect(read_bytes(&r, text, len), cases[i].line, text);
        for (size_t cut = 0; cut <= len; cut++)
            expect(read_pieces(&r, text, len, &cut, 1), cases[i].line, text);
        tools_set_destroy(r.set);
    }
}

static void feed(struct tools_reader *reader, const char *text)
{
    tools_reader_text(reader, text, strlen(text));
}

/* Markers that are tokens are found by id alone, and lead out of a half marker of text. */
static void test_marker_tokens(void **state)
{
    (void)state;
    struct reading r;
    struct line l;
    prepare(&r, TOOLS_HERMES, REASONS);
    r.markers.id[TOOLS_MARK_OPEN] = 7;
    r.markers.id[TOOLS_MARK_CLOSE] = 8;
    r.markers.id[TOOLS_MARK_THINK_CLOSE] = 9;
    struct tools_reader *reader = read_line(&r, &l);
    feed(reader, "<think>a</think> <tool_call>");
    REQUIRE(tools_reader_reasoning(reader));
    tools_reader_marker(reader, TOOLS_MARK_THINK_CLOSE);
    REQUIRE(!tools_reader_reasoning(reader));
    feed(reader, "b <tool_call>{\"name\":\"ping\"} <th");
    tools_reader_marker(reader, TOOLS_MARK_OPEN);
    feed(reader, "{\"name\":\"any\",\"arguments\":{\"a\":\"");
    tools_reader_marker(reader, TOOLS_MARK_OPEN);
    feed(reader, "\"}}");
    tools_reader_marker(reader, TOOLS_MARK_CLOSE);
    tools_reader_marker(reader, TOOLS_MARK_CLOSE);
    expect(read_end(reader, &l),
           "R(a</think> <tool_call>)C(b <tool_call>{\"name\":\"ping\"} <th)"
           "any({\"a\":\"<tool_call>\"})C(</tool_call>)",
           "tokens");
    tools_set_destroy(r.set);
}

/* A name goes out when it is complete, and arguments as they come, if a guide holds. */
static void test_guided_calls_go_out_at_once(void **state)
{
    (void)state;
    static const struct {
        enum tools_format format;
        const char *text, *line;
    } guided[] = {
        {TOOLS_HERMES, "<tool_call>\n{\"name\": \"ping\"", "ping("},
        {TOOLS_HERMES, "<tool_call>\n{\"name\": \"any\", \"arguments\": {\"a\": \"\xc3",
         "any({\"a\": \""},
        {TOOLS_LIST, "<tool_call>[{\"name\": \"any\", \"arguments\": {\"a", "any({\"a"},
        {TOOLS_MISTRAL_ARGS, "[TOOL_CALLS]any[CALL_ID]123456789[ARGS]{\"a", "any[123456789]({\"a"},
        {TOOLS_LLAMA3, "a {\"name\": \"any\", \"parameters\": {\"a", "C(a)any({\"a"},
        {TOOLS_LLAMA3, "a {\"name\": \"any\", \"parameters\": ", "C(a"},
        {TOOLS_QWEN_XML, "<tool_call>\n<function=write>\n<parameter=path>\na\"\n\xc3",
         "write({\"path\": \"a\\\"\\n"},
        {TOOLS_QWEN_XML, "<tool_call>\n<function=write>\n<parameter=note>\nnul",
         "write({\"note\": "},
    };
    for (size_t i = 0; i < sizeof(guided) / sizeof(guided[0]); i++) {
        struct reading r;
        struct line l;
        prepare(&r, guided[i].format, 0);
        r.guided = true;
        struct tools_reader *reader = read_line(&r, &l);
        tools_reader_text(reader, guided[i].text, strlen(guided[i].text));
        REQUIRE_EQ_STR(l.text.data, guided[i].line);
        free(read_end(reader, &l));
        tools_set_destroy(r.set);
    }
}

/* A call that is longer than what may be held is content, wherever the text is cut. */
static void test_what_is_held_is_bounded(void **state)
{
    (void)state;
    struct reading r;
    char text[2000], *first = NULL;
    prepare(&r, TOOLS_HERMES, 0);
    r.max_held = 300;
    int n = snprintf(text, sizeof(text),
                     "a%500s<tool_call>{\"name\": \"any\", \"arguments\": {\"a\": ", "");
    memset(text + n, '1', 700);
    size_t len = (size_t)n + 700;
    len += (size_t)snprintf(text + len, sizeof(text) - len, "}}<tool_call>{\"name\":\"ping\"}");
    first = read_whole(&r, text, len);
    REQUIRE(strstr(first, "ping({})") && !strstr(first, "any("));
    REQUIRE_EQ_INT(strlen(first),
                   len - strlen("<tool_call>{\"name\":\"ping\"}") + strlen("C()ping({})"));
    for (size_t cut = 0; cut <= len; cut += 7)
        expect(read_pieces(&r, text, len, &cut, 1), first, "held");
    expect(read_bytes(&r, text, len), first, "held");
    free(first);
    r.guided = true; /* nothing is held then but what is not decided */
    reading_prepare(&r);
    char *line = read_bytes(&r, text, len);
    REQUIRE(strstr(line, "any({\"a\": 111"));
    free(line);
    tools_set_destroy(r.set);
}

/* A value that ends at the next parameter's tag, however its bytes came; the tags are at the end of
 * the window each time. */
static void test_guided_values_end_at_the_next_key(void **state)
{
    (void)state;
    static const char *const values[] = {"",        "\n",    "\n\n", "\nx", "\nx\n",
                                         "\nx\n\n", "\n \n", "x",    " "};
    struct reading r;
    prepare(&r, TOOLS_QWEN_XML, 0);
    r.guided = true;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char text[300];
        size_t len = (size_t)snprintf(
            text, sizeof(text),
            "<tool_call>\n<function=write>\n<parameter=path>%s<parameter=mode>\nnew\n"
            "</parameter>\n</function>\n</tool_call>",
            values[i]);
        char *whole = read_whole(&r, text, len);
        for (size_t cut = 0; cut <= len; cut++)
            expect(read_pieces(&r, text, len, &cut, 1), whole, text);
        expect(read_bytes(&r, text, len), whole, text);
        free(whole);
    }
    tools_set_destroy(r.set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_at_every_cut),
        cmocka_unit_test(test_marker_tokens),
        cmocka_unit_test(test_guided_calls_go_out_at_once),
        cmocka_unit_test(test_what_is_held_is_bounded),
        cmocka_unit_test(test_guided_values_end_at_the_next_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
