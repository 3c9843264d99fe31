/* SPDX-License-Identifier: MIT */
/* Tools and their choice in three dialects: what is read, what is refused and where. */
#include "test.h"

#include "server/api/tools_fields.h"

#define ADD "{\"type\":\"function\",\"function\":{\"name\":\"add\"}}"
#define SUB "{\"type\":\"function\",\"function\":{\"name\":\"sub\"}}"
#define FLAT "{\"type\":\"function\",\"name\":\"add\"}"
#define CLAUDE "{\"name\":\"add\",\"input_schema\":{}}"

struct reading {
    struct tools_ask ask;
    struct param_unknown ignored;
    struct param_error err;
    json_t *body;
    int rc;
};

static struct reading read_body(enum tools_dialect dialect, const char *body)
{
    struct reading r = {.rc = 0};
    r.body = params_parse(body, strlen(body), &r.err);
    REQUIRE(r.body);
    r.rc = tools_ask_read(&r.ask, dialect, (struct srv_span){body, strlen(body)}, r.body,
                          &r.ignored, &r.err);
    return r;
}

static void finish(struct reading *r)
{
    tools_ask_finish(&r->ask);
    json_decref(r->body);
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
    {TOOLS_CHAT, "{\"tools\":[{\"type\":\"custom\",\"custom\":{}}]}", SRV_ERR_UNSUPPORTED,
     "tools[0].type", "Only tools of type 'function' are supported."},
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
    {TOOLS_RESPONSES, "{\"tools\":[{\"type\":\"custom\",\"name\":\"a\"}]}", SRV_ERR_UNSUPPORTED,
     "tools[0].type", ""},
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
        REQUIRE_MSG(r.rc == -1 && r.err.kind == c->kind && !strcmp(r.err.path, c->path) &&
                        strstr(r.err.message, c->words),
                    "%s: %d %d '%s' %s", c->body, r.rc, r.err.kind, r.err.path, r.err.message);
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
                   "[{\"name\":\"add\",\"description\":\"d\\u0041\",\"parameters\":{\"b\":1,"
                   " \"a\":123456789012345678901234567890}},{\"name\":\"sub\"}]");
    REQUIRE_EQ_INT(r.ask.n, 2);
    REQUIRE_EQ_INT(r.ask.places[0].index, 1);
    REQUIRE(r.ask.tools[0].strict && !r.ask.tools[1].strict);
    REQUIRE_EQ_STR(r.ignored.list, "tools[0]=web_search");
    finish(&r);
    r = read_body(TOOLS_MESSAGES,
                  "{\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"},{\"type\":\"custom\","
                  "\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}]}");
    REQUIRE_EQ_STR(r.ask.list.data, "[{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}]");
    REQUIRE_EQ_STR(r.ignored.list, "tools.0=bash_20250124");
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
                    "%s: %d '%s'", body, r.rc, r.err.message);
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
    REQUIRE_EQ_STR(r.err.message, "'tools' holds 129 tools; at most 128.");
    finish(&r);
    at = (size_t)sprintf(body, "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\","
                               "\"description\":\"");
    memset(body + at, 'x', 1 << 20);
    sprintf(body + at + (1 << 20), "\"}}]}");
    r = read_body(TOOLS_CHAT, body);
    REQUIRE_EQ_STR(r.err.path, "tools");
    REQUIRE(strstr(r.err.message, "at most 1048576"));
    finish(&r);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_list_is_as_sent),
        cmocka_unit_test(test_choices),  cmocka_unit_test(test_without_tools),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
