/* SPDX-License-Identifier: MIT */
/* Tools and their choice in three dialects: what is read, what is refused and where. */
#include "test.h"

#include "server/api/read/tools_fields.h"

#define ADD "{\"type\":\"function\",\"function\":{\"name\":\"add\"}}"
#define SUB "{\"type\":\"function\",\"function\":{\"name\":\"sub\"}}"
#define FLAT "{\"type\":\"function\",\"name\":\"add\"}"
#define SPACE(name, tools) "{\"type\":\"namespace\",\"name\":" name ",\"tools\":[" tools "]}"
#define LONG_NAME "\"a123456789a123456789a123456789a123456789a123456789a123456789\""
#define CLAUDE "{\"name\":\"add\",\"input_schema\":{}}"

struct reading {
    struct tools_ask ask;
    struct param_unknown ignored;
    struct srv_body body;
    int rc;
};

static struct reading read_body(enum tools_dialect dialect, const char *body)
{
    struct reading r = {.rc = 0};
    REQUIRE(!srv_body_read(&r.body, body, strlen(body), PARAM_MAX_VALUES));
    r.rc = tools_ask_read(&r.ask, dialect, &r.body, &r.ignored);
    return r;
}

static void finish(struct reading *r)
{
    tools_ask_finish(&r->ask);
    srv_body_finish(&r->body);
}

struct refusal {
    enum tools_dialect dialect;
    const char *body;
    enum srv_error kind;
    const char *path, *words; /* the message holds */
};

static const struct refusal refusals[] = {
    {TOOLS_CHAT, "{\"tools\":{}}", SRV_ERR_INVALID_TYPE, "tools",
     "'tools' must be an array of tool objects."},
    {TOOLS_CHAT, "{\"tools\":[" ADD ",5]}", SRV_ERR_INVALID_TYPE, "tools[1]", "array of tool"},
    {TOOLS_CHAT,
     "{\"tools\":[" ADD
     ",{\"type\":\"custom\",\"custom\":{}}],\"tool_choice\":{\"type\":\"custom\","
     "\"custom\":{\"name\":\"x\"}}}",
     SRV_ERR_UNSUPPORTED, "tools[1].type", "Only tools of type 'function' are supported."},
    {TOOLS_CHAT, "{\"tools\":[{\"type\":\"function\"}]}", SRV_ERR_MISSING, "tools[0].function", ""},
    {TOOLS_CHAT, "{\"tools\":[{\"type\":\"function\",\"function\":{}}]}", SRV_ERR_MISSING,
     "tools[0].function.name", ""},
    {TOOLS_CHAT, "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]}",
     SRV_ERR_INVALID_VALUE, "tools[0].function.name", "The tool name 'a b' must be 1 to 64"},
    {TOOLS_CHAT, "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\\u0000\"}}]}",
     SRV_ERR_INVALID_VALUE, "tools[0].function.name", ""},
    {TOOLS_CHAT, "{\"tools\":[" ADD "," ADD "]}", SRV_ERR_INVALID_VALUE, "tools[1].function.name",
     "The tool name 'add' is used twice."},
    {TOOLS_CHAT,
     "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":[]}}]}",
     SRV_ERR_INVALID_SCHEMA, "tools[0].function.parameters", "object"},
    {TOOLS_CHAT, "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"strict\":1}}]}",
     SRV_ERR_INVALID_TYPE, "tools[0].function.strict", ""},
    {TOOLS_CHAT, "{\"tool_choice\":\"required\"}", SRV_ERR_INVALID_VALUE, "tool_choice",
     "'tool_choice' needs 'tools'."},
    {TOOLS_CHAT, "{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"a\"}}}",
     SRV_ERR_INVALID_VALUE, "tool_choice", "'tool_choice' needs 'tools'."},
    {TOOLS_CHAT, "{\"tools\":[" ADD "],\"tool_choice\":\"maybe\"}", SRV_ERR_INVALID_VALUE,
     "tool_choice", "must be"},
    {TOOLS_CHAT, "{\"tools\":[" ADD "],\"tool_choice\":5}", SRV_ERR_INVALID_VALUE, "tool_choice",
     ""},
    {TOOLS_CHAT,
     "{\"tools\":[" ADD "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"x\"}}}",
     SRV_ERR_INVALID_VALUE, "tool_choice.function.name", "There is no tool 'x' in 'tools'."},
    {TOOLS_CHAT,
     "{\"tools\":[" ADD "],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":"
     "\"auto\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"x\"}}]}}}",
     SRV_ERR_INVALID_VALUE, "tool_choice.allowed_tools.tools[0].function.name", "no tool 'x'"},
    {TOOLS_CHAT, "{\"parallel_tool_calls\":1}", SRV_ERR_INVALID_TYPE, "parallel_tool_calls", ""},
    {TOOLS_CHAT, "{\"functions\":[]}", SRV_ERR_UNSUPPORTED, "functions",
     "Use 'tools' and 'tool_choice'."},
    {TOOLS_RESPONSES, "{\"tools\":[" SPACE("\"\"", FLAT) "]}", SRV_ERR_INVALID_VALUE,
     "tools[0].name", ""},
    {TOOLS_RESPONSES, "{\"tools\":[{\"type\":\"namespace\",\"name\":\"a\"}]}", SRV_ERR_INVALID_TYPE,
     "tools[0].tools", "array"},
    {TOOLS_RESPONSES, "{\"tools\":[" FLAT "," SPACE("\"a\"", FLAT ",{\"type\":\"function\"}") "]}",
     SRV_ERR_MISSING, "tools[1].tools[1].name", ""},
    {TOOLS_RESPONSES, "{\"tools\":[" SPACE("\"a\"", FLAT "," FLAT) "]}", SRV_ERR_INVALID_VALUE,
     "tools[0].tools[1].name", "The tool name 'a__add' is used twice."},
    {TOOLS_RESPONSES, "{\"tools\":[" SPACE("\"a b\"", FLAT) "]}", SRV_ERR_INVALID_VALUE,
     "tools[0].tools[0].name", "The tool name 'a b__add' must be"},
    {TOOLS_RESPONSES, "{\"tools\":[" SPACE(LONG_NAME, FLAT) "]}", SRV_ERR_INVALID_VALUE,
     "tools[0].tools[0].name", "1 to 64"},
    {TOOLS_RESPONSES,
     "{\"tools\":[" FLAT
     "," SPACE("\"a\"", FLAT) "],\"tool_choice\":{\"type\":\"function\",\"name\":"
                              "\"add\",\"namespace\":\"b\"}}",
     SRV_ERR_INVALID_VALUE, "tool_choice.name", "There is no tool 'add'"},
    {TOOLS_RESPONSES, "{\"tools\":[{\"type\":\"function\",\"name\":\"\"}]}", SRV_ERR_INVALID_VALUE,
     "tools[0].name", ""},
    {TOOLS_RESPONSES,
     "{\"tools\":[" FLAT "],\"tool_choice\":{\"type\":\"function\",\"name\":\"x\"}}",
     SRV_ERR_INVALID_VALUE, "tool_choice.name", "There is no tool 'x' in 'tools'."},
    {TOOLS_RESPONSES,
     "{\"tools\":[" FLAT ",{\"type\":\"web_search\"}],\"tool_choice\":{\"type\":\"web_search\"}}",
     SRV_ERR_UNSUPPORTED, "tools[1].type", "Only tools"},
    {TOOLS_MESSAGES, "{\"tools\":[{\"name\":\"a\"}]}", SRV_ERR_MISSING, "tools.0.input_schema",
     "tools.0.input_schema: "},
    {TOOLS_MESSAGES, "{\"tools\":[" CLAUDE "],\"tool_choice\":\"auto\"}", SRV_ERR_INVALID_VALUE,
     "tool_choice", "tool_choice: "},
    {TOOLS_MESSAGES, "{\"tools\":[" CLAUDE "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"x\"}}",
     SRV_ERR_INVALID_VALUE, "tool_choice.name", "There is no tool 'x'"},
    {TOOLS_MESSAGES, "{\"tools\":[" CLAUDE "],\"tool_choice\":{\"type\":\"required\"}}",
     SRV_ERR_INVALID_VALUE, "tool_choice", "'any'"},
};

static void test_refusals(void **state)
{
    for (size_t i = 0; i < N_OF(refusals); i++) {
        const struct refusal *c = &refusals[i];
        struct reading r = read_body(c->dialect, c->body);
        REQUIRE_MSG(r.rc == -1 && param_error.kind == c->kind &&
                        !strcmp(param_error.path, c->path) && strstr(param_error.message, c->words),
                    "%s: %d %d '%s' %s", c->body, r.rc, param_error.kind, param_error.path,
                    param_error.message);
        finish(&r);
    }
}

static void test_list_is_as_sent(void **state)
{
    struct reading r = read_body(
        TOOLS_CHAT,
        "{\"tools\":[{\"type\":\"web_search\"},{\"function\":{\"x\":1,\"parameters\":{\"b\":1,"
        " \"a\":123456789012345678901234567890},\"description\":\"d\\u0041\",\"name\":\"add\","
        "\"strict\":true},\"type\":\"function\"}," SUB "]}");
    REQUIRE_EQ_INT(r.rc, 0);
    REQUIRE_EQ_STR(r.ask.list.data,
                   "[{\"name\":\"add\",\"description\":\"dA\",\"parameters\":{\"b\":1,"
                   " \"a\":123456789012345678901234567890}},{\"name\":\"sub\"}]");
    REQUIRE_EQ_INT(r.ask.n, 2);
    REQUIRE_EQ_INT(r.ask.places[0].index, 1);
    REQUIRE(r.ask.tools[0].strict && !r.ask.tools[1].strict);
    REQUIRE_EQ_STR(r.ignored.list, "tools[0]=web_search");
    finish(&r);
}

/* Functions of namespaces, between others, and tools that are none. */
static void test_namespaces(void **state)
{
    struct reading r = read_body(
        TOOLS_RESPONSES,
        "{\"tools\":[" FLAT ",{\"type\":\"custom\",\"name\":\"c\"}," SPACE(
            "\"crm\"",
            FLAT ",{\"type\":\"custom\",\"name\":\"d\"}," SPACE(
                "\"x\"", FLAT) ",{\"type\":\"function\",\"name\":\"sub\",\"strict\":true,"
                               "\"parameters\":{ }}") ",{\"type\":\"shell\"}],\"tool_choice\":{"
                                                      "\"type\":\"function\",\"name\":\"sub\","
                                                      "\"namespace\":\"crm\"}}");
    REQUIRE_EQ_INT(r.rc, 0);
    REQUIRE_EQ_STR(r.ask.list.data,
                   "[{\"name\":\"add\"},{\"name\":\"crm__add\"},{\"name\":\"crm__sub\","
                   "\"parameters\":{ }}]");
    REQUIRE_EQ_STR(r.ignored.list,
                   "tools[1]=custom,tools[2].tools[1]=custom,tools[2].tools[2]=namespace,"
                   "tools[3]=shell");
    REQUIRE(r.ask.tools[0].excluded && r.ask.tools[1].excluded && !r.ask.tools[2].excluded);
    REQUIRE(r.ask.tools[2].strict && r.ask.once);
    const struct tools_place *sub = tools_ask_place(&r.ask, "crm__sub");
    REQUIRE(sub && tools_ask_place(&r.ask, "add") && !tools_ask_place(&r.ask, "sub"));
    REQUIRE_EQ_STR(sub->space, "crm");
    REQUIRE_EQ_STR(sub->name, "sub");
    REQUIRE_EQ_STR(sub->pointer, "/tools/2/tools/3");
    REQUIRE_EQ_INT(tools_ask_refuse_schema(&r.ask, "/tools/2/tools/3/properties/x", "no"), -1);
    REQUIRE_EQ_STR(param_error.path, "tools[2].tools[3].parameters");
    finish(&r);
    r = read_body(TOOLS_RESPONSES, "{\"tools\":[" SPACE("\"a\"", "") "],\"tool_choice\":\"auto\"}");
    REQUIRE(!r.rc && r.ask.n == 0 && r.ask.choice == TOOLS_CHOICE_NONE);
    finish(&r);
}

/* 129 functions are too many, however they are grouped. */
static void test_namespaces_are_counted(void **state)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"tools\":[");
    for (int i = 0; i < 129; i++) {
        if (i == 64) buf_puts(&b, "{\"type\":\"namespace\",\"name\":\"a\",\"tools\":[");
        buf_printf(&b, "{\"type\":\"function\",\"name\":\"f%d\"}%s", i, i < 128 ? "," : "]}]}");
    }
    struct reading r = read_body(TOOLS_RESPONSES, b.data);
    REQUIRE(r.rc == -1 && strstr(param_error.message, "129 tools; at most 128"));
    finish(&r);
    buf_finish(&b);
}

/* Anthropic's own client tools are functions with the API's schemas; others are dropped. */
static void test_known_tools(void **state)
{
    struct reading r = read_body(
        TOOLS_MESSAGES,
        "{\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"},{\"type\":"
        "\"text_editor_20250124\",\"name\":\"str_replace_editor\"},{\"type\":"
        "\"text_editor_20250728\",\"name\":\"edit\",\"max_characters\":9},{\"type\":"
        "\"web_search_20260318\",\"name\":\"web_search\"},{\"type\":\"custom\",\"name\":\"f\","
        "\"input_schema\":{\"type\":\"object\"}}]}");
    REQUIRE(!r.rc && r.ask.n == 4);
    json_t *list = json_loads(r.ask.list.data, 0, NULL);
    REQUIRE(list);
    static const char *const commands[] = {NULL, "undo_edit", "insert"};
    static const char *const members[] = {"restart", "new_str", "insert_text"};
    for (size_t i = 0; i < 3; i++) {
        const json_t *schema = json_object_get(json_array_get(list, i), "parameters");
        const json_t *properties = json_object_get(schema, "properties");
        const json_t *words = json_object_get(json_object_get(properties, "command"), "enum");
        const char *last = json_string_value(json_array_get(words, json_array_size(words) - 1));
        REQUIRE(json_object_get(properties, members[i]));
        REQUIRE(commands[i] ? last && !strcmp(last, commands[i]) : !words);
        REQUIRE(json_string_length(json_object_get(json_array_get(list, i), "description")) > 0);
        json_t *given = json_loadb(r.ask.tools[i].schema, r.ask.tools[i].schema_len, 0, NULL);
        REQUIRE(json_equal(given, schema));
        json_decref(given);
    }
    json_decref(list);
    REQUIRE_EQ_STR(r.ignored.list, "tools.3=web_search_20260318");
    finish(&r);
    r = read_body(TOOLS_MESSAGES, "{\"tools\":[{\"type\":\"bash_20250124\"}]}");
    REQUIRE_EQ_STR(param_error.path, "tools.0.name");
    finish(&r);
}

struct choice {
    enum tools_dialect dialect;
    const char *fields; /* behind two tools, add and sub */
    enum tools_choice choice;
    bool add, sub, one, parallel;
};

static const struct choice choices[] = {
    {TOOLS_CHAT, "", TOOLS_CHOICE_AUTO, true, true, false, true},
    {TOOLS_CHAT, ",\"tool_choice\":null", TOOLS_CHOICE_AUTO, true, true, false, true},
    {TOOLS_CHAT, ",\"tool_choice\":\"none\"", TOOLS_CHOICE_NONE, true, true, false, true},
    {TOOLS_CHAT, ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false",
     TOOLS_CHOICE_REQUIRED, true, true, false, false},
    {TOOLS_CHAT, ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"sub\"}}",
     TOOLS_CHOICE_REQUIRED, false, true, true, true},
    {TOOLS_CHAT,
     ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":"
     "[" ADD "]}}",
     TOOLS_CHOICE_AUTO, true, false, false, true},
    {TOOLS_RESPONSES,
     ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[" FLAT "]}",
     TOOLS_CHOICE_REQUIRED, true, false, false, true},
    {TOOLS_MESSAGES, ",\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true}",
     TOOLS_CHOICE_REQUIRED, true, true, false, false},
    {TOOLS_MESSAGES, ",\"tool_choice\":{\"type\":\"tool\",\"name\":\"add\"}", TOOLS_CHOICE_REQUIRED,
     true, false, true, true},
    {TOOLS_MESSAGES, ",\"tool_choice\":{\"type\":\"none\"}", TOOLS_CHOICE_NONE, true, true, false,
     true},
};

static void test_choices(void **state)
{
    static const char *const tools[] = {
        [TOOLS_CHAT] = ADD "," SUB,
        [TOOLS_RESPONSES] = FLAT ",{\"type\":\"function\",\"name\":\"sub\"}",
        [TOOLS_MESSAGES] = CLAUDE ",{\"name\":\"sub\",\"input_schema\":{}}",
    };
    for (size_t i = 0; i < N_OF(choices); i++) {
        const struct choice *c = &choices[i];
        char body[1024];
        snprintf(body, sizeof(body), "{\"tools\":[%s]%s}", tools[c->dialect], c->fields);
        struct reading r = read_body(c->dialect, body);
        const struct tools_ask *a = &r.ask;
        REQUIRE_MSG(!r.rc && a->choice == c->choice && a->tools[0].excluded != c->add &&
                        a->tools[1].excluded != c->sub && a->once == c->one &&
                        a->parallel == c->parallel,
                    "%s: %d '%s'", body, r.rc, param_error.message);
        finish(&r);
    }
}

static void test_without_tools(void **state)
{
    static const char *const bodies[] = {"{}", "{\"tools\":[]}", "{\"tools\":null}",
                                         "{\"tools\":[],\"tool_choice\":\"auto\"}",
                                         "{\"tool_choice\":\"none\"}"};
    for (size_t i = 0; i < N_OF(bodies); i++) {
        struct reading r = read_body(TOOLS_CHAT, bodies[i]);
        REQUIRE_EQ_INT(r.rc, 0);
        REQUIRE_EQ_INT(r.ask.n, 0);
        REQUIRE_EQ_INT(r.ask.choice, TOOLS_CHOICE_NONE);
        finish(&r);
    }
}

static void test_limits(void **state)
{
    char *body = malloc(2 << 20);
    size_t at = (size_t)sprintf(body, "{\"tools\":[");
    for (int i = 0; i < 129; i++)
        at +=
            (size_t)sprintf(body + at, "%s{\"type\":\"function\",\"function\":{\"name\":\"t%d\"}}",
                            i ? "," : "", i);
    sprintf(body + at, "]}");
    struct reading r = read_body(TOOLS_CHAT, body);
    REQUIRE_EQ_STR(param_error.message, "'tools' holds 129 tools; at most 128.");
    finish(&r);
    at = (size_t)sprintf(body, "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\","
                               "\"description\":\"");
    memset(body + at, 'x', 1 << 20);
    sprintf(body + at + (1 << 20), "\"}}]}");
    r = read_body(TOOLS_CHAT, body);
    REQUIRE_EQ_STR(param_error.path, "tools");
    REQUIRE(strstr(param_error.message, "at most 1048576"));
    finish(&r);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_list_is_as_sent),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_without_tools),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_namespaces),
        cmocka_unit_test(test_namespaces_are_counted),
        cmocka_unit_test(test_known_tools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
