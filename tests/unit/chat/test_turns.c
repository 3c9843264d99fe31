/* SPDX-License-Identifier: MIT */
/*
 * Messages joined and moved until a template has a place for each: instructions before the
 * conversation, neighbours of one role, and that only the server's own words count as the template's.
 */
#include "test.h"

#include "tokenizer/chat/chat.h"

#define S(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define D(text) "{\"role\":\"developer\",\"content\":\"" text "\"}"
#define U(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define R(text) "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"" text "\"}"
#define CALL                                                                                       \
    "{\"role\":\"assistant\",\"content\":\"c\",\"tool_calls\":[{\"id\":\"x\",\"type\":"            \
    "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}"
#define PARTS(role, a, b)                                                                          \
    "{\"role\":\"" role "\",\"content\":[{\"type\":\"text\",\"text\":\"" a                         \
    "\"},{\"type\":\"text\",\"text\":\"" b "\"}]}"

#define SHOW "[{{ m.role }}]{{ m.content }};"
#define EACH "{% for m in messages %}" SHOW "{% endfor %}"

/* Ways in which published templates are narrow. */
static const char
    each[] = EACH,
    first_only[] = "{% if messages[0].role == 'system' %}[S]{{ messages[0].content }};{% endif %}"
                   "{% for m in messages if m.role != 'system' %}" SHOW "{% endfor %}",
    last_only[] = "{% set ns = namespace(s='') %}{% for m in messages if m.role == 'system' %}"
                  "{% set ns.s = m.content %}{% endfor %}[S]{{ ns.s }};"
                  "{% for m in messages if m.role in ['user', 'assistant'] %}" SHOW "{% endfor %}",
    at_beginning[] = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
                     "{{ raise_exception('not first') }}{% elif m.role not in ['system', 'user', "
                     "'assistant', 'tool'] %}{{ raise_exception('unknown role') }}{% endif %}" SHOW
                     "{% endfor %}",
    knows_developer[] = "{% for m in messages %}[{{ 'DEV' if m.role == 'developer' else m.role }}]"
                        "{{ m.content }};{% endfor %}",
    developer_first[] = /* and neither role again */
    "{% for m in messages %}{% if loop.first or m.role not in ['system', "
    "'developer'] %}[{{ 'DEV' if m.role == 'developer' else m.role }}]"
    "{{ m.content }};{% endif %}{% endfor %}",
    alternating[] = "{% set ns = namespace(n=0) %}{% for m in messages %}"
                    "{% if m.role in ['user', 'assistant'] and not m.tool_calls %}"
                    "{% if (m.role == 'user') != (ns.n % 2 == 0) %}"
                    "{{ raise_exception('not alternating') }}{% endif %}{% set ns.n = ns.n + 1 %}"
                    "{% elif m.role not in ['tool', 'assistant'] and not loop.first %}"
                    "{{ raise_exception('not first') }}{% endif %}" SHOW "{% endfor %}",
    no_system[] =
        "{% for m in messages %}{% if m.role == 'system' %}"
        "{{ raise_exception('no system role') }}{% elif (m.role == 'user') != "
        "(loop.index0 % 2 == 0) %}{{ raise_exception('not alternating') }}{% endif %}" SHOW
        "{% endfor %}",
    only_parts[] = "{% for m in messages %}{% if loop.first or m.role == 'user' %}[{{ m.role }}]"
                   "{{ m.content[0]['text'] }};{% endif %}{% endfor %}",
    needs_tools[] = "{{ tools[0].type }};{% for m in messages %}{% if loop.first or "
                    "m.role == 'user' %}" SHOW "{% endif %}{% endfor %}",
    needs_tools_and_parts[] =
        "{{ tools[0].type }};{% for m in messages %}{% if loop.first or m.role == "
        "'user' %}[{{ m.role }}]{{ m.content[0]['text'] }};{% endif %}{% endfor %}",
    last_user[] = "{% set s = messages[0].content + '|' if messages[0].role == 'system' else '' %}"
                  "{% for m in messages %}{% if m.role == 'user' %}{% if not loop.first and "
                  "messages[loop.index0 - 1].role == 'user' %}{{ raise_exception('twice') }}"
                  "{% endif %}[user]{{ s if loop.last }}"
                  "{{ m.content }};{% elif m.role != 'system' %}" SHOW "{% endif %}{% endfor %}";

static const struct {
    const char *template, *messages, *wanted; /* "E " and a part of the error */
} cases[] = {
    /* apart where each is shown in its place; a role that is printed for want of a better one */
    {each, "[" S("A") "," S("B") "," U("C") "," U("D") "]", "[system]A;[system]B;[user]C;[user]D;"},
    {each, "[" D("A") "," S("B") "," U("C") "]", "[system]A;[system]B;[user]C;"},
    {knows_developer, "[" D("A") "," D("B") "," S("C") "," U("D") "]",
     "[DEV]A;[DEV]B;[system]C;[user]D;"},
    /* one where not, whatever loses the others */
    {first_only, "[" S("A") "," U("B") "]", "[S]A;[user]B;"},
    {first_only, "[" S("A") "," S("B") "," U("C") "]", "[S]A\n\nB;[user]C;"},
    {first_only, "[" D("A") "," D("B") "," U("C") "," U("D") "]", "[S]A\n\nB;[user]C;[user]D;"},
    {first_only, "[" S("A") "," D("B") "," S("C") "," U("D") "]", "[S]A\n\nB\n\nC;[user]D;"},
    {first_only, "[" S("") "," S("B") "," S("") "," U("C") "]", "[S]B;[user]C;"},
    {first_only, "[" PARTS("system", "A", "B") "," S("C") "," U("D") "]", "[S]A\nB\n\nC;[user]D;"},
    {last_only, "[" D("A") "," S("B") "," U("C") "]", "[S]A\n\nB;[user]C;"},
    {at_beginning, "[" D("A") "," D("B") "," U("C") "," A("D") "," U("E") "]",
     "[system]A\n\nB;[user]C;[assistant]D;[user]E;"},
    {at_beginning, "[" S("A") "," CALL "," R("B") "]", "[system]A;[assistant]c;[tool]B;"},
    {developer_first, "[" S("A") "," D("B") "," U("C") "]", "[system]A\n\nB;[user]C;"},
    {developer_first, "[" D("A") "," S("B") "," D("C") "," U("D") "]", "[DEV]A\n\nB\n\nC;[user]D;"},
    {only_parts, "[" S("A") "," S("B") "," U("C") "]", "[system]A\n\nB;[user]C;"},
    /* between the turns they are reminders, as ever */
    {first_only, "[" S("A") "," U("B") "," S("C") "," U("D") "]",
     "[S]A;[user]B;[user]<system-reminder>\nC\n</system-reminder>\nD;"},
    /* neighbours where they are refused; calls and results stay as they are */
    {alternating, "[" D("A") "," D("B") "," U("C") "," U("D") "]", "[system]A\n\nB;[user]C\n\nD;"},
    {alternating, "[" U("A") "," A("B") "," A("C") "," PARTS("user", "D", "E") "," U("F") "]",
     "[user]A;[assistant]B\n\nC;[user]D\nE\n\nF;"},
    {alternating, "[" U("A") "," S("B") "," U("C") "]",
     "[user]A\n\n<system-reminder>\nB\n</system-reminder>\nC;"},
    {alternating, "[" U("A") "," CALL "," CALL "," R("B") "," R("C") "," A("D") "]",
     "[user]A;[assistant]c;[assistant]c;[tool]B;[tool]C;[assistant]D;"},
    {alternating, "[" U("A") "," CALL "," R("B") "," U("C") "]", "E not alternating"},
    {alternating, "[" A("A") "," U("B") "]", "E not alternating"},
    /* with the user's last message alone: else before that text of the user */
    {last_user, "[" S("A") "," D("B") "," U("C") "," A("D") "," U("E") "]",
     "[user]C;[assistant]D;[user]A\n\nB|E;"},
    {last_user, "[" S("A") "," U("B") "," CALL "," R("C") "]",
     "[user]A\n\nB;[assistant]c;[tool]C;"},
    {last_user, "[" S("A") "," U("B") "," A("C") "," U("D") "," A("E") "]",
     "[user]B;[assistant]C;[user]A\n\nD;[assistant]E;"},
    {last_user, "[" S("A") "," U("B") "," U("C") "," CALL "," R("D") "]",
     "[user]A\n\nB\n\nC;[assistant]c;[tool]D;"},
    /* without a system role */
    {no_system, "[" S("A") "," D("B") "," U("C") "," A("D") "," U("E") "]",
     "[user]A\n\nB\n\nC;[assistant]D;[user]E;"},
    {no_system, "[" S("A") "," PARTS("user", "B", "C") "," U("D") "]", "[user]A\n\nB\nC\n\nD;"},
    {no_system, "[" S("A") "," U("") "]", "[user]A;"},
    {no_system, "[" S("A") "]", "[user]A;"},
    {no_system, "[" S("A") "," A("B") "]", "[user]A;[assistant]B;"},
    {no_system, "[" S("A") "," A("B") "," U("C") "]", "E not alternating"},
};

static struct tok_chat *open_text(const char *text)
{
    struct tok_chat *c = NULL;
    char err[1200] = "";
    const struct tok_chat_params params = {.template_text = text};
    int rc = tok_chat_open(&c, NULL, &params, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    return c;
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok_chat *c = open_text(cases[i].template);
        struct tok_prompt p = {0};
        char got[1024] = "E ";
        const struct tok_chat_input in = {.messages = cases[i].messages};
        if (tok_chat_render(c, &in, &p, got + 2, sizeof(got) - 2) == 0)
            snprintf(got, sizeof(got), "%s", p.text);
        REQUIRE_EQ_STR(got, cases[i].wanted);
        tok_prompt_finish(&p);
        tok_chat_close(c);
    }
}

/* A template that fails without tools is asked with some, about parts of a content too. */
static void test_needs_tools(void **state)
{
    static const char *const templates[] = {needs_tools, needs_tools_and_parts};
    (void)state;
    for (size_t i = 0; i < N_OF(templates); i++) {
        struct tok_chat *c = open_text(templates[i]);
        struct tok_prompt p = {0};
        char err[200] = "";
        const struct tok_chat_input in = {.messages = "[" D("A") "," D("B") "," U("C") "]",
                                          .tools = "[{\"type\":\"function\"}]"};
        REQUIRE(tok_chat_caps(c)->system_role);
        REQUIRE_MSG(tok_chat_render(c, &in, &p, err, sizeof(err)) == 0, "%s", err);
        REQUIRE_EQ_STR(p.text, "function;[system]A\n\nB;[user]C;");
        tok_prompt_finish(&p);
        tok_chat_close(c);
    }
}

/* The blank line between two texts is the server's; what is around it, the request's. */
static void test_marks(void **state)
{
    static const char *const templates[] = {first_only, alternating, no_system};
    (void)state;
    for (size_t i = 0; i < N_OF(templates); i++) {
        struct tok_chat *c = open_text(templates[i]);
        struct tok_prompt p = {0};
        char err[200] = "";
        const struct tok_chat_input in = {.messages = "[" S("<|A|>") "," D("<|B|>") "," U("C") "]"};
        REQUIRE_MSG(tok_chat_render(c, &in, &p, err, sizeof(err)) == 0, "%s", err);
        REQUIRE_EQ_INT(p.n_input, 3);
        for (size_t k = 0; k < 3; k++) {
            static const char *const texts[] = {"<|A|>", "<|B|>", "C"};
            size_t len = p.input[k].end - p.input[k].begin;
            REQUIRE_EQ_INT(len, strlen(texts[k]));
            REQUIRE(memcmp(p.text + p.input[k].begin, texts[k], len) == 0);
        }
        tok_prompt_finish(&p);
        tok_chat_close(c);
    }
}

/* Reasoning of joined answers is not lost. */
static void test_reasoning(void **state)
{
    (void)state;
    struct tok_chat *c =
        open_text("{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
                  "{{ raise_exception('not alternating') }}{% endif %}[{{ m.reasoning_content "
                  "}}]{{ m.content }};"
                  "{% endfor %}");
    struct tok_prompt p = {0};
    char err[200] = "";
    const struct tok_chat_input in = {
        .messages =
            "[" U("A") ",{\"role\":\"assistant\",\"content\":\"B\",\"reasoning_content\":\"x\"},"
                       "{\"role\":\"assistant\",\"content\":\"C\",\"reasoning_content\":\"y\"}]"};
    REQUIRE_MSG(tok_chat_render(c, &in, &p, err, sizeof(err)) == 0, "%s", err);
    REQUIRE_EQ_STR(p.text, "[]A;[x\n\ny]B\n\nC;");
    tok_prompt_finish(&p);
    tok_chat_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_needs_tools),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_reasoning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
