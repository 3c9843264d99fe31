/* SPDX-License-Identifier: MIT */
/*
 * Tools, calls and results written into messages: the text byte for byte, where it goes, and that
 * only the server's own words count as the template's.
 */
#include "test.h"

#include <unistd.h>

#include "tokenizer/chat/chat.h"

#define USER "{\"role\":\"user\",\"content\":\"U\"}"
#define CALL(content, calls)                                                                       \
    "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[" calls "]}"
#define F(arguments)                                                                               \
    "{\"id\":\"x\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":" arguments "}}"
#define RESULT(text) "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":" text "}"

static const char chatml[] = "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}";
static const char no_system[] =
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
    "{% endif %}[{{ m.role }}]{{ m.content }};{% endfor %}";
static const char only_parts[] =
    "{% for m in messages %}[{{ m.role }}]{{ m.content[0]['text'] }};{% endfor %}";

static const struct tok_chat_call_form hermes = {
    .begin = "",
    .end = "",
    .separator = "\n",
    .before_name = "<tool_call>\n{\"name\": \"",
    .before_arguments = "\", \"arguments\": ",
    .after = "}\n</tool_call>",
};
static const struct tok_chat_call_form list = {
    .begin = "<tool_call>[",
    .end = "]</tool_call>",
    .separator = ", ",
    .before_name = "{\"name\": \"",
    .before_arguments = "\", \"arguments\": ",
    .after = "}",
};
static const struct tok_chat_call_form tags = {
    .begin = "",
    .end = "",
    .separator = "\n",
    .before_name = "<tool_call>\n<function=",
    .before_arguments = ">\n",
    .after = "</function>\n</tool_call>",
    .tags = true,
};
static const struct tok_chat_tool_text text = {
    .before = "Tools: ", .tools = "[{\"a\":[1,2]}]", .after = ".<end>"};

static struct tok_chat *open_source(const char *source)
{
    char dir[] = "/tmp/hearth-tools-XXXXXX", path[64], err[1200] = "";
    struct tok_chat *c = NULL;
    REQUIRE(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/t.jinja", dir);
    FILE *f = fopen(path, "w");
    REQUIRE(f && fputs(source, f) >= 0 && fclose(f) == 0);
    const struct tok_chat_params params = {.template_file = path};
    int rc = tok_chat_open(&c, dir, &params, err, sizeof(err));
    unlink(path);
    rmdir(dir);
    REQUIRE_MSG(rc == 0, "%s", err);
    return c;
}

static struct tok_prompt render(const struct tok_chat *c, const char *messages,
                                const struct tok_chat_tool_writing *writing)
{
    char err[300] = "";
    struct tok_prompt p = {0};
    const struct tok_chat_input in = {.messages = messages, .writing = writing};
    int rc = tok_chat_render(c, &in, &p, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s: %s", messages, err);
    return p;
}

struct text_case {
    const char *source;
    struct tok_chat_tool_writing writing;
    const char *messages, *wanted;
};

static void check(const struct text_case *t)
{
    struct tok_chat *c = open_source(t->source);
    struct tok_prompt p = render(c, t->messages, &t->writing);
    REQUIRE_EQ_STR(p.text, t->wanted);
    tok_prompt_finish(&p);
    tok_chat_close(c);
}

static void test_calls(void **state)
{
    static const struct text_case cases[] = {
        {chatml,
         {.calls = &hermes},
         "[" USER "," CALL("null", F("\"{\\\"a\\\":1}\"")) "]",
         "[user]U;[assistant]<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n"
         "</tool_call>;"},
        {chatml,
         {.calls = &hermes},
         "[" CALL("\"Say\"", F("{\"a\":[1,null]}") "," F("\"\"")) "]",
         "[assistant]Say\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, null]}}\n"
         "</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>;"},
        {chatml,
         {.calls = &list},
         "[" CALL("\"\"", F("\"{}\"") "," F("\"cut {\"")) "]",
         "[assistant]<tool_call>[{\"name\": \"f\", \"arguments\": {}}, "
         "{\"name\": \"f\", \"arguments\": cut {}]</tool_call>;"},
        {chatml,
         {.calls = &list},
         "[" CALL("\"\"", F("\"{\\\"a\\\": \\\"\\\\ud800\\\\u0000\\\"}\"")) "]",
         "[assistant]<tool_call>[{\"name\": \"f\", \"arguments\": {\"a\": \"\\ud800\\u0000\"}}]"
         "</tool_call>;"},
        {chatml,
         {.calls = &tags},
         "[" CALL("\"\"", F("\"{\\\"a\\\": \\\"x\\\\ny\\\", \\\"b\\\": {\\\"c\\\": 1}}\"")) "]",
         "[assistant]<tool_call>\n<function=f>\n<parameter=a>\nx\ny\n</parameter>\n"
         "<parameter=b>\n{\"c\": 1}\n</parameter>\n</function>\n</tool_call>;"},
        {chatml,
         {.calls = &tags},
         "[" CALL("\"\"", F("null")) "]",
         "[assistant]<tool_call>\n<function=f>\n</function>\n</tool_call>;"},
        {chatml,
         {.calls = &hermes},
         "[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[]}]",
         "[assistant]a;"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++)
        check(&cases[i]);
}

static void test_results(void **state)
{
    static const struct text_case cases[] = {
        {chatml,
         {.results = true},
         "[" RESULT("\"1\"") "," RESULT(
             "[{\"type\":\"text\",\"text\":\"2\"},{\"type\":\"text\",\"text\":\"3\"}]") "," USER
                                                                                        "," USER
                                                                                        "]",
         "[user]<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n3\n</tool_response>\nU;"
         "[user]U;"},
        {chatml,
         {.results = true},
         "[" USER
         "," RESULT("\"1\"") ",{\"role\":\"assistant\",\"content\":\"a\"}," RESULT("null") "]",
         "[user]U;[user]<tool_response>\n1\n</tool_response>;[assistant]a;"
         "[user]<tool_response>\n\n</tool_response>;"},
        {chatml, {.calls = &list}, "[" RESULT("\"1\"") "]", "[tool]1;"},
        {only_parts,
         {.results = true},
         "[" RESULT("\"1\"") "," USER "]",
         "[user]<tool_response>\n1\n</tool_response>\nU;"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++)
        check(&cases[i]);
}

static void test_tools(void **state)
{
    static const struct text_case cases[] = {
        {chatml,
         {.tools = &text},
         "[{\"role\":\"system\",\"content\":\"S\"}," USER "]",
         "[system]S\n\nTools: [{\"a\": [1, 2]}].<end>;[user]U;"},
        {chatml,
         {.tools = &text},
         "[{\"role\":\"system\",\"content\":\"\"}," USER "]",
         "[system]Tools: [{\"a\": [1, 2]}].<end>;[user]U;"},
        {chatml,
         {.tools = &text},
         "[" USER ",{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"D\"}]}]",
         "[user]U;[system]D\n\nTools: [{\"a\": [1, 2]}].<end>;"},
        {chatml, {.tools = &text}, "[" USER "]", "[system]Tools: [{\"a\": [1, 2]}].<end>;[user]U;"},
        {no_system,
         {.tools = &text},
         "[" USER "," USER "]",
         "[user]Tools: [{\"a\": [1, 2]}].<end>\n\nU;[user]U;"},
        {no_system,
         {.tools = &text},
         "[{\"role\":\"assistant\",\"content\":\"a\"}]",
         "[user]Tools: [{\"a\": [1, 2]}].<end>;[assistant]a;"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++)
        check(&cases[i]);
}

/* Every byte is the request's but for the template's and the server's own words. */
static void test_provenance(void **state)
{
    (void)state;
    static const struct tok_chat_tool_text asked = {
        .before = "<own>", .tools = "\"<tool_call>in\"", .after = "</own>"};
    const struct tok_chat_tool_writing writing = {
        .calls = &hermes, .tools = &asked, .results = true};
    struct tok_chat *c = open_source("{% for m in messages %}{{ m.content }}{% endfor %}");
    struct tok_prompt p = render(
        c,
        "[{\"role\":\"system\",\"content\":\"<own>in\"},"
        "{\"role\":\"assistant\",\"content\":\"<tool_call>in\",\"tool_calls\":[{\"function\":"
        "{\"name\":\"<tool_call>in\",\"arguments\":\"<tool_call>in\"}}]},"
        "{\"role\":\"tool\",\"content\":\"<tool_response>in\"},"
        "{\"role\":\"user\",\"content\":\"<tool_response>in\"}]",
        &writing);
    char own[400] = "";
    size_t at = 0, n = 0;
    for (size_t i = 0; i <= p.n_input; i++) {
        size_t end = i < p.n_input ? p.input[i].begin : p.len;
        memcpy(own + n, p.text + at, end - at);
        n += end - at;
        own[n++] = '|';
        if (i < p.n_input) at = p.input[i].end;
    }
    REQUIRE_EQ_STR(
        own, "|\n\n<own>|</own>|\n<tool_call>\n{\"name\": \"|\", \"arguments\": |}\n</tool_call>"
             "<tool_response>\n|\n</tool_response>\n||");
    tok_prompt_finish(&p);
    tok_chat_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_provenance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
