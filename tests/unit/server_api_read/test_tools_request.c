/* SPDX-License-Identifier: MIT */
/* Reasoning fields in three dialects, what a model ignores of them, and the request to the tools library. */
#include "server/api/read/tools_request.h"

#include "server/config/config.h"
#include "server/models/served_model.h"
#include "test.h"

#define FUNCTION "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\"}}]"

static struct srv_config config;
static struct srv_model model;

struct reading {
    struct srv_tools tools;
    struct srv_body body;
    struct param_unknown ignored;
    int rc;
};

/* Of a model that thinks and whose template reads both words, unless a test says otherwise. */
static void set_up_model(void)
{
    config = (struct srv_config){.reasoning_format = "auto"};
    memset(&model, 0, sizeof(model));
    model.config = &config;
    model.style.format = TOOLS_HERMES;
    model.style.reads_enable_thinking = model.style.reads_reasoning_effort = true;
    snprintf(model.style.think_open, sizeof(model.style.think_open), "<think>");
}

static struct reading read_request(enum tools_dialect dialect, const char *text)
{
    struct reading r = {.rc = 0};
    REQUIRE(!srv_body_read(&r.body, text, strlen(text), PARAM_MAX_VALUES));
    r.rc = srv_tools_read(&r.tools, &model, dialect, &r.body, &r.ignored);
    return r;
}

static void finish(struct reading *r)
{
    srv_tools_release(&r->tools);
    srv_body_finish(&r->body);
}

static void test_fields(void **state)
{
    static const struct {
        enum tools_dialect dialect;
        const char *body;
        enum tools_thinking thinking;
        const char *effort;
        int64_t budget;
        const char *ignored;
    } cases[] = {
        {TOOLS_CHAT, "{}", 0, NULL, SRV_THINK_UNSAID, ""},
        {TOOLS_CHAT, "{\"reasoning_effort\":null}", 0, NULL, SRV_THINK_UNSAID, ""},
        {TOOLS_CHAT, "{\"reasoning_effort\":\"none\"}", TOOLS_THINKING_OFF, "none",
         SRV_THINK_UNSAID, ""},
        {TOOLS_CHAT, "{\"reasoning_effort\":\"minimal\"}", TOOLS_THINKING_ON, "minimal",
         SRV_THINK_UNSAID, ""},
        {TOOLS_CHAT, "{\"thinking_token_budget\":5}", 0, NULL, 5, ""},
        {TOOLS_CHAT, "{\"thinking_token_budget\":-1}", 0, NULL, SRV_THINK_ANY, ""},
        {TOOLS_CHAT, "{\"enable_thinking\":false}", TOOLS_THINKING_OFF, NULL, SRV_THINK_UNSAID, ""},
        {TOOLS_CHAT, "{\"enable_thinking\":true,\"think\":null}", TOOLS_THINKING_ON, NULL,
         SRV_THINK_UNSAID, ""},
        {TOOLS_CHAT, "{\"think\":true}", TOOLS_THINKING_ON, NULL, SRV_THINK_UNSAID, ""},
        {TOOLS_CHAT, "{\"think\":\"low\"}", TOOLS_THINKING_ON, "low", SRV_THINK_UNSAID, ""},
        {TOOLS_CHAT, "{\"thinking\":{\"type\":\"disabled\"}}", TOOLS_THINKING_OFF, NULL,
         SRV_THINK_UNSAID, ""},
        {TOOLS_CHAT, "{\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":7}}", TOOLS_THINKING_ON,
         NULL, 7, ""},
        {TOOLS_CHAT, "{\"reasoning_budget\":0}", 0, NULL, 0, ""},
        {TOOLS_CHAT,
         "{\"enable_thinking\":true,\"think\":\"low\",\"reasoning_effort\":\"low\",\"thinking\":{"
         "\"type\":\"adaptive\",\"budget_tokens\":3},\"reasoning_budget\":3,"
         "\"thinking_token_budget\":3,\"chat_template_kwargs\":{\"enable_thinking\":true}}",
         TOOLS_THINKING_ON, "low", 3, ""},
        {TOOLS_CHAT, /* the template's own variables come before a word */
         "{\"reasoning_effort\":\"none\",\"chat_template_kwargs\":{\"enable_thinking\":true}}",
         TOOLS_THINKING_OFF, "none", SRV_THINK_UNSAID, ""},
        {TOOLS_RESPONSES, "{\"reasoning\":{\"effort\":\"xhigh\",\"summary\":\"auto\"}}",
         TOOLS_THINKING_ON, "xhigh", SRV_THINK_UNSAID, "reasoning.summary"},
        {TOOLS_RESPONSES, "{\"reasoning\":{\"summary\":null,\"generate_summary\":null}}", 0, NULL,
         SRV_THINK_UNSAID, ""},
        {TOOLS_RESPONSES, "{\"reasoning\":null,\"thinking_token_budget\":0}", 0, NULL, 0, ""},
        {TOOLS_MESSAGES, "{\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":7}}",
         TOOLS_THINKING_ON, NULL, 7, ""},
        {TOOLS_MESSAGES, "{\"thinking\":{\"type\":\"disabled\"}}", TOOLS_THINKING_OFF, NULL,
         SRV_THINK_UNSAID, ""},
        {TOOLS_MESSAGES, "{\"thinking\":{\"type\":\"adaptive\"}}", TOOLS_THINKING_ON, NULL,
         SRV_THINK_UNSAID, ""},
    };
    (void)state;
    set_up_model();
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct reading r = read_request(cases[i].dialect, cases[i].body);
        REQUIRE_MSG(r.rc == 0, "%s: %s", cases[i].body, param_error.message);
        REQUIRE_EQ_INT(r.tools.thinking, cases[i].thinking);
        REQUIRE_MSG(!cases[i].effort == !r.tools.effort, "%s", cases[i].body);
        if (cases[i].effort) REQUIRE_EQ_STR(r.tools.effort, cases[i].effort);
        REQUIRE_EQ_INT(r.tools.think_budget, cases[i].budget);
        REQUIRE_EQ_STR(r.ignored.list, cases[i].ignored);
        finish(&r);
    }
}

static void test_refusals(void **state)
{
    static const struct {
        enum tools_dialect dialect;
        const char *body;
        enum srv_error kind;
        const char *path;
    } cases[] = {
        {TOOLS_CHAT, "{\"reasoning_effort\":5}", SRV_ERR_INVALID_TYPE, "reasoning_effort"},
        {TOOLS_CHAT, "{\"reasoning_effort\":\"max\"}", SRV_ERR_INVALID_VALUE, "reasoning_effort"},
        {TOOLS_CHAT, "{\"thinking_token_budget\":\"5\"}", SRV_ERR_INVALID_TYPE,
         "thinking_token_budget"},
        {TOOLS_CHAT, "{\"thinking_token_budget\":-2}", SRV_ERR_INVALID_VALUE,
         "thinking_token_budget"},
        {TOOLS_CHAT, "{\"enable_thinking\":\"no\"}", SRV_ERR_INVALID_TYPE, "enable_thinking"},
        {TOOLS_CHAT, "{\"think\":1}", SRV_ERR_INVALID_TYPE, "think"},
        {TOOLS_CHAT, "{\"think\":\"most\"}", SRV_ERR_INVALID_VALUE, "think"},
        {TOOLS_CHAT, "{\"thinking\":true}", SRV_ERR_INVALID_TYPE, "thinking"},
        {TOOLS_CHAT, "{\"reasoning_budget\":-2}", SRV_ERR_INVALID_VALUE, "reasoning_budget"},
        {TOOLS_CHAT, "{\"reasoning_format\":\"deepseek\"}", SRV_ERR_INVALID_VALUE,
         "reasoning_format"},
        {TOOLS_RESPONSES, "{\"reasoning\":5}", SRV_ERR_INVALID_TYPE, "reasoning"},
        {TOOLS_RESPONSES, "{\"reasoning\":{\"effort\":\"max\"}}", SRV_ERR_INVALID_VALUE,
         "reasoning.effort"},
        {TOOLS_MESSAGES, "{\"thinking\":5}", SRV_ERR_INVALID_TYPE, "thinking"},
        {TOOLS_MESSAGES, "{\"thinking\":{}}", SRV_ERR_INVALID_VALUE, "thinking.type"},
        {TOOLS_MESSAGES, "{\"thinking\":{\"type\":\"on\"}}", SRV_ERR_INVALID_VALUE,
         "thinking.type"},
        {TOOLS_MESSAGES, "{\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1.5}}",
         SRV_ERR_INVALID_TYPE, "thinking.budget_tokens"},
    };
    (void)state;
    set_up_model();
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct reading r = read_request(cases[i].dialect, cases[i].body);
        REQUIRE_MSG(r.rc < 0 && param_error.kind == cases[i].kind, "%s: %s", cases[i].body,
                    param_error.message);
        REQUIRE_EQ_STR(param_error.path, cases[i].path);
        finish(&r);
    }
}

/* Two fields that do not agree are refused by both their names. */
static void test_disagreement(void **state)
{
    static const struct {
        const char *body, *one, *other;
    } cases[] = {
        {"{\"enable_thinking\":true,\"think\":false}", "enable_thinking", "think"},
        {"{\"think\":false,\"thinking\":{\"type\":\"enabled\"}}", "think", "thinking"},
        {"{\"enable_thinking\":true,\"reasoning_effort\":\"none\"}", "enable_thinking",
         "reasoning_effort"},
        {"{\"think\":\"low\",\"thinking\":{\"type\":\"enabled\"},\"reasoning_effort\":\"high\"}",
         "think", "reasoning_effort"},
        {"{\"thinking\":{\"type\":\"disabled\"},\"chat_template_kwargs\":{\"enable_thinking\":true}"
         "}",
         "thinking", "chat_template_kwargs.enable_thinking"},
        {"{\"thinking_token_budget\":5,\"reasoning_budget\":6}", "thinking_token_budget",
         "reasoning_budget"},
        {"{\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":-1},\"reasoning_budget\":6}",
         "thinking.budget_tokens", "reasoning_budget"},
    };
    (void)state;
    set_up_model();
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct reading r = read_request(TOOLS_CHAT, cases[i].body);
        char one[64], other[64];
        snprintf(one, sizeof(one), "'%s'", cases[i].one);
        snprintf(other, sizeof(other), "'%s'", cases[i].other);
        REQUIRE_MSG(r.rc < 0 && param_error.kind == SRV_ERR_INVALID_VALUE, "%s", cases[i].body);
        REQUIRE_MSG(strstr(param_error.message, one) && strstr(param_error.message, other), "%s",
                    param_error.message);
        finish(&r);
    }
}

/* Words that the model's template does not read, and budgets of models that do not think. */
static void test_ignored(void **state)
{
    static const struct {
        bool thinks, reads_flag, reads_effort;
        const char *body, *ignored;
    } cases[] = {
        {true, true, false, "{\"reasoning_effort\":\"low\"}", ""},
        {true, false, true, "{\"reasoning_effort\":\"low\"}", ""},
        {true, false, false, "{\"reasoning_effort\":\"low\"}", "reasoning_effort"},
        {true, false, false, "{\"reasoning_effort\":\"none\"}", "reasoning_effort"},
        {false, false, false, "{\"reasoning_effort\":\"none\"}", ""}, /* it does not think anyway */
        {false, false, false, "{\"reasoning_effort\":\"low\"}", "reasoning_effort"},
        {false, false, false, "{\"thinking_token_budget\":5}", "thinking_token_budget"},
        {true, false, true, "{\"enable_thinking\":true,\"think\":true}", "enable_thinking,think"},
        {true, false, true, "{\"think\":\"low\"}", ""},
        {false, false, false, "{\"enable_thinking\":false,\"reasoning_budget\":5}",
         "reasoning_budget"},
        {false, false, false, "{}", ""},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        set_up_model();
        if (!cases[i].thinks) model.style.think_open[0] = '\0';
        model.style.reads_enable_thinking = cases[i].reads_flag;
        model.style.reads_reasoning_effort = cases[i].reads_effort;
        struct reading r = read_request(TOOLS_CHAT, cases[i].body);
        REQUIRE_MSG(r.rc == 0 && !strcmp(r.ignored.list, cases[i].ignored), "%zu: %s", i,
                    r.ignored.list);
        finish(&r);
    }
}

static void test_can_reason(void **state)
{
    static const struct {
        const char *option, *body;
        bool can;
    } cases[] = {
        {"auto", "{}", true},
        {"none", "{}", false},
        {"none", "{\"reasoning_format\":\"auto\"}", true},
        {"auto", "{\"reasoning_format\":\"none\"}", false},
        {"none", "{\"reasoning_format\":null}", false},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        set_up_model();
        config.reasoning_format = cases[i].option;
        struct reading r = read_request(TOOLS_CHAT, cases[i].body);
        REQUIRE_MSG(r.tools.can_reason == cases[i].can, "%zu", i);
        srv_tools_set_prompt(&r.tools, &(struct tools_prompt){.begun = false});
        REQUIRE(r.tools.may_think == cases[i].can);
        srv_tools_set_prompt(&r.tools, &(struct tools_prompt){.think_closed = true});
        REQUIRE(!r.tools.may_think);
        srv_tools_set_prompt(&r.tools,
                             &(struct tools_prompt){.think_open = true, .think_closed = true});
        REQUIRE(r.tools.may_think == cases[i].can);
        finish(&r);
    }
}

/* Tools need a format, unless there is no template: then the prompt is refused. */
static void test_formats(void **state)
{
    static const struct {
        enum tools_format format;
        bool has_template;
        const char *words; /* NULL: fine */
    } cases[] = {
        {TOOLS_HERMES, true, NULL},
        {TOOLS_NONE, false, NULL},
        {TOOLS_NONE, true, "switched off"},
        {TOOLS_UNKNOWN, true, "does not know; leave 'tools' out"}, /* no format would fit */
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        static char chat;
        set_up_model();
        model.style.format = cases[i].format;
        if (cases[i].has_template) model.chat = (struct tok_chat *)(void *)&chat;
        struct reading r = read_request(TOOLS_CHAT, "{" FUNCTION "}");
        REQUIRE_MSG((r.rc < 0) == (cases[i].words != NULL), "%zu: %s", i, param_error.message);
        if (r.rc)
            REQUIRE(param_error.kind == SRV_ERR_UNSUPPORTED &&
                    strstr(param_error.message, cases[i].words));
        finish(&r);
    }
}

static void test_request(void **state)
{
    static const struct {
        const char *more;
        size_t n;
        enum tools_choice choice;
        bool one;
    } cases[] = {
        {"", 1, TOOLS_CHOICE_AUTO, false},
        {",\"parallel_tool_calls\":false", 1, TOOLS_CHOICE_AUTO, true},
        {",\"tool_choice\":\"none\"", 0, TOOLS_CHOICE_NONE, false},
        {",\"tool_choice\":\"required\"", 1, TOOLS_CHOICE_REQUIRED, false},
        {",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"add\"}}", 1,
         TOOLS_CHOICE_REQUIRED, true},
    };
    (void)state;
    set_up_model();
    for (size_t i = 0; i < N_OF(cases); i++) {
        char body[300];
        snprintf(body, sizeof(body), "{" FUNCTION "%s}", cases[i].more);
        struct reading r = read_request(TOOLS_CHAT, body);
        REQUIRE_MSG(r.rc == 0, "%s", param_error.message);
        srv_tools_set_prompt(&r.tools, &(struct tools_prompt){.begun = false});
        struct tools_request q = r.tools.request;
        REQUIRE_EQ_INT(q.n_tools, cases[i].n);
        REQUIRE_EQ_INT(q.choice, cases[i].choice);
        REQUIRE(q.one_call == cases[i].one && q.once == cases[i].one && !q.answer_begun);
        REQUIRE(q.style == &model.style);
        srv_tools_set_prompt(&r.tools, &(struct tools_prompt){.begun = true});
        REQUIRE(r.tools.request.answer_begun);
        finish(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),       cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_disagreement), cmocka_unit_test(test_ignored),
        cmocka_unit_test(test_can_reason),   cmocka_unit_test(test_formats),
        cmocka_unit_test(test_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
