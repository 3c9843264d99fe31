/* SPDX-License-Identifier: MIT */
/*
 * Finding the style of a template: of the project's own templates and, where HEARTH_REFERENCE names
 * them, of published ones; with one byte of a marker changed it is the generic form or unknown; an
 * option; and the time it takes.
 */
#include "template_dir.h"

static struct tools_style detect(const char *source, const char *option)
{
    struct tools_style s;
    struct tok_chat *c = template_open(source, TEMPLATE_CONFIG);
    REQUIRE_MSG(c, "%s", source);
    REQUIRE_EQ_INT(tools_detect(&s, c, option), 0);
    tok_chat_close(c);
    return s;
}

/* ---- what is found ------------------------------------------------------------------------- */

struct wanted {
    const char *template;
    enum tools_format format;
    const char *open, *close, *think_open;
    const char *flags; /* letters, as flags_of writes them */
};

/* f: fallback; T, C, R: the template writes tools, calls, results; c, r: the last two without
 * tools; i: ids; s: short ids; F: forced; k: reasoning is kept; e, o, x: variables that are read. */
static const char *flags_of(const struct tools_style *s)
{
    static char text[20];
    const struct {
        bool is;
        char letter;
    } flags[] = {
        {s->source == TOOLS_FALLBACK, 'f'},
        {s->writes_tools, 'T'},
        {s->writes_calls, 'C'},
        {s->writes_results, 'R'},
        {s->plain_writes_calls, 'c'},
        {s->plain_writes_results, 'r'},
        {s->writes_id, 'i'},
        {s->short_ids, 's'},
        {s->think_forced, 'F'},
        {s->think_kept, 'k'},
        {s->reads_enable_thinking, 'e'},
        {s->reads_reasoning_effort, 'o'},
        {s->reads_xml_tools, 'x'},
    };
    size_t n = 0;
    for (size_t i = 0; i < N_OF(flags); i++)
        if (flags[i].is) text[n++] = flags[i].letter;
    text[n] = '\0';
    return text;
}

static const struct wanted own[] = {
    {"tools/templates/hermes.jinja", TOOLS_HERMES, "<tool_call>", "</tool_call>", "", "TCRcr"},
    {"tools/templates/marked.jinja", TOOLS_HERMES, "<call>", "</call>", "<reason>", "TCRcrFe"},
    {"tools/templates/tags.jinja", TOOLS_QWEN_XML, "<tool_call>", "</tool_call>", "", "TCRcr"},
    {"tools/templates/bare.jinja", TOOLS_LLAMA3, "", "", "", "TCRcr"},
    {"tools/templates/id-list.jinja", TOOLS_MISTRAL, "[TOOL_CALLS]", "", "", "TCRcris"},
    {"tools/templates/args.jinja", TOOLS_MISTRAL_ARGS, "[TOOL_CALLS]", "", "[THINK]", "TCRcr"},
    {"tools/templates/functions.jinja", TOOLS_FUNCTIONARY, "<function=", "</function>", "",
     "TCRcr"},
    {"tools/templates/dropped.jinja", TOOLS_HERMES, "<tool_call>", "</tool_call>", "<think>",
     "Tex"},
    {"tools/templates/keywords.jinja", TOOLS_PYTHONIC, "<|tool_call_start|>", "<|tool_call_end|>",
     "", "TCRcr"},
    {"tools/templates/tool-list.jinja", TOOLS_PYTHONIC, "<|tool_call_start|>", "<|tool_call_end|>",
     "<think>", "TRr"},
    {"tools/templates/channels.jinja", TOOLS_GEMMA4, "<|tool_call>", "<tool_call|>", "<|channel>",
     "TCRcre"},
    {"tools/templates/escapes.jinja", TOOLS_FUNCTIONGEMMA, "<start_function_call>",
     "<end_function_call>", "", "TCRcr"},
    {"chat/templates/chatml.jinja", TOOLS_LIST, "<tool_call>", "</tool_call>", "", "f"},
    {"chat/templates/tools-text.jinja", TOOLS_LIST, "<tool_call>", "</tool_call>", "<think>", "fF"},
    {"tools/templates/code.jinja", TOOLS_UNKNOWN, "", "", "", "TCRcr"},
};

static const struct wanted published[] = {
    {"qwen2.5.jinja", TOOLS_HERMES, "<tool_call>", "</tool_call>", "", "TCRcr"},
    {"qwen3.jinja", TOOLS_HERMES, "<tool_call>", "</tool_call>", "<think>", "TCRcre"},
    {"smollm3.jinja", TOOLS_HERMES, "<tool_call>", "</tool_call>", "<think>", "Tex"},
    {"hermes3-tools.jinja", TOOLS_HERMES, "<tool_call>", "</tool_call>", "", "TCR"},
    {"smollm2-instruct.jinja", TOOLS_LIST, "<tool_call>", "</tool_call>", "", "f"},
    {"qwen3-coder.jinja", TOOLS_QWEN_XML, "<tool_call>", "</tool_call>", "", "TCRcr"},
    {"llama-3.1.jinja", TOOLS_LLAMA3, "", "", "", "TCRcr"},
    {"llama-3.2.jinja", TOOLS_LLAMA3, "", "", "", "TCRcr"},
    {"mistral-nemo.jinja", TOOLS_MISTRAL, "[TOOL_CALLS]", "", "", "TCRcris"},
    {"mistral-small-3.2.jinja", TOOLS_MISTRAL_ARGS, "[TOOL_CALLS]", "", "", "TCRcris"},
    {"../../templates/meetkai-functionary-medium-v3.1.jinja", TOOLS_FUNCTIONARY,
     "<function=", "</function>", "", "TCRcr"},
    {"../../templates/Apriel-1.6-15b-Thinker-fixed.jinja", TOOLS_LIST, "<tool_calls>",
     "</tool_calls>", "Here are my reasoning steps:", "TCRcriF"},
    {"../../templates/LFM2-8B-A1B.jinja", TOOLS_PYTHONIC, "<|tool_call_start|>",
     "<|tool_call_end|>", "", "TRr"},
    {"../../templates/LFM2.5-Instruct.jinja", TOOLS_PYTHONIC, "<|tool_call_start|>",
     "<|tool_call_end|>", "<think>", "TRr"},
    {"../../templates/LFM2.5-8B-A1B.jinja", TOOLS_PYTHONIC, "<|tool_call_start|>",
     "<|tool_call_end|>", "<think>", "TCRcr"},
    {"../../templates/google-gemma-4-31B-it.jinja", TOOLS_GEMMA4, "<|tool_call>", "<tool_call|>",
     "<|channel>", "TCRcre"},
    {"../../templates/google-gemma-4-31B-it-interleaved.jinja", TOOLS_GEMMA4, "<|tool_call>",
     "<tool_call|>", "<|channel>", "TCRcre"},
};

static void check_wanted(const struct wanted *w, bool reference)
{
    char *source = template_read(w->template, reference);
    struct tools_style s = detect(source, NULL);
    REQUIRE_EQ_STR(tools_format_name(s.format), tools_format_name(w->format));
    REQUIRE_EQ_STR(s.open, w->open);
    REQUIRE_EQ_STR(s.close, w->close);
    REQUIRE_EQ_STR(s.think_open, w->think_open);
    REQUIRE_EQ_STR(flags_of(&s), w->flags);
    free(source);
}

static void test_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(own); i++)
        check_wanted(&own[i], false);
}

static void test_published(void **state)
{
    (void)state;
    if (!test_reference()) skip();
    for (size_t i = 0; i < N_OF(published); i++)
        check_wanted(&published[i], true);
}

/* ---- texts of a call ----------------------------------------------------------------------- */

/* The texts are the template's, not only the markers. */
static void test_texts(void **state)
{
    (void)state;
    char *source = template_read("tools/templates/marked.jinja", false);
    struct tools_style s = detect(source, NULL);
    REQUIRE_EQ_STR(s.block_open, "<call>\n");
    REQUIRE_EQ_STR(s.block_close, "\n</call>");
    REQUIRE_EQ_STR(s.block_sep, "\n");
    REQUIRE_EQ_STR(s.call_open, "{\"name\":\"");
    REQUIRE_EQ_STR(s.name_close, "\",\"arguments\":");
    REQUIRE_EQ_STR(s.call_close, "}");
    REQUIRE_EQ_STR(s.think_close, "</reason>");
    free(source);
    source = template_read("tools/templates/id-list.jinja", false);
    s = detect(source, NULL);
    REQUIRE_EQ_STR(s.block_open, "[TOOL_CALLS] [");
    REQUIRE_EQ_STR(s.block_close, "]");
    REQUIRE_EQ_STR(s.id_open, ", \"id\": \"");
    REQUIRE_EQ_STR(s.id_close, "\"");
    REQUIRE_EQ_STR(s.call_close, "}");
    REQUIRE_EQ_STR(s.call_sep, ", ");
    free(source);
}

/* A list between markers of the template's own. */
static void test_marked_list(void **state)
{
    (void)state;
    struct tools_style s = detect(
        "{{ tools }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.tool_calls "
        "%}<CALLS>["
        "{% for c in m.tool_calls %}{\"name\": \"{{ c.function.name }}\", \"arguments\": "
        "{{ c.function.arguments | tojson }}}{{ ', ' if not loop.last }}{% endfor %}]</CALLS>"
        "{% endif %};{% endfor %}",
        NULL);
    REQUIRE_EQ_STR(tools_format_name(s.format), "list");
    REQUIRE_EQ_INT(s.source, TOOLS_DETECTED);
    REQUIRE_EQ_STR(s.block_open, "<CALLS>[");
    REQUIRE_EQ_STR(s.block_close, "]</CALLS>");
    REQUIRE_EQ_STR(s.call_sep, ", ");
    REQUIRE_EQ_STR(flags_of(&s), "TCRcr");
}

/* Of a pair of templates the one without tools may drop calls that the other writes. */
static void test_two_templates(void **state)
{
    (void)state;
    struct tools_style s;
    struct tok_chat *c = template_open(
        NULL,
        "{\"chat_template\": {\"default\": \"{% for m in messages %}{{ m.content }}|{% endfor %}\","
        "\"tool_use\": \"{{ tools }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls"
        " or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}|{% endfor %}\"}}");
    REQUIRE(c);
    REQUIRE_EQ_INT(tools_detect(&s, c, NULL), 0);
    REQUIRE_EQ_STR(tools_format_name(s.format), "hermes");
    REQUIRE_EQ_STR(flags_of(&s), "TCR");
    tok_chat_close(c);
}

static void test_option(void **state)
{
    (void)state;
    char *source = template_read("tools/templates/marked.jinja", false);
    struct tools_style s = detect(source, "hermes");
    REQUIRE_EQ_STR(s.open, "<call>"); /* found, and the same */
    REQUIRE_EQ_INT(s.source, TOOLS_OPTION);
    s = detect(source, "list");
    REQUIRE_EQ_STR(s.open, "<tool_call>");
    REQUIRE_EQ_STR(s.think_open, "<reason>");
    REQUIRE_EQ_STR(flags_of(&s), "TFe"); /* calls in this form are written by us */
    s = detect(source, "none");
    REQUIRE_EQ_INT(s.format, TOOLS_NONE);
    free(source);
    REQUIRE_EQ_INT(tools_detect(&s, NULL, "auto"), 0);
    REQUIRE_EQ_INT(s.format, TOOLS_NONE);
    REQUIRE_EQ_INT(tools_detect(&s, NULL, "python"), TOK_EINVAL);
}

/* ---- one changed byte ---------------------------------------------------------------------- */

/* The same format, with markers that it has in the text, or unknown. */
static void check_one_changed(const char *source, const char *name, enum tools_format format,
                              size_t at)
{
    struct tok_chat *c = template_open(source, TEMPLATE_CONFIG);
    if (!c) return; /* it was an escape sequence */
    struct tools_style s;
    REQUIRE_EQ_INT(tools_detect(&s, c, NULL), 0);
    tok_chat_close(c);
    bool found = s.format == format && strstr(source, s.open) && strstr(source, s.close);
    REQUIRE_MSG(found || s.format == TOOLS_UNKNOWN, "%s: byte %zu: %s '%s' '%s'", name, at,
                tools_format_name(s.format), s.open, s.close);
}

/* Changes each byte of each place of a marker, in turn. */
static void check_changed(const char *name, bool reference, const char *marker,
                          enum tools_format format)
{
    static const char others[] = {'x', ' ', '['};
    char *source = template_read(name, reference);
    size_t n = 0;
    for (char *at = source; (at = strstr(at, marker)); at += strlen(marker)) {
        for (size_t i = 0; i < strlen(marker) * N_OF(others); i++, n++) {
            char *changed = at + i / N_OF(others), byte = *changed;
            *changed = others[i % N_OF(others)];
            if (*changed != byte)
                check_one_changed(source, name, format, (size_t)(changed - source));
            *changed = byte;
        }
    }
    REQUIRE_MSG(n > 0, "%s: %s", name, marker);
    free(source);
}

static void check_markers(const char *name, bool reference, enum tools_format format)
{
    static const char *const markers[TOOLS_N_FORMATS][8] = {
        [TOOLS_HERMES] = {"<tool_call>\\n{\"name\": \"", "\", \"arguments\": ", "}\\n</tool_call>"},
        [TOOLS_QWEN_XML] = {"<tool_call>\\n<function=", "<parameter=", "\\n</parameter>",
                            "</function>\\n</tool_call>"},
        [TOOLS_LLAMA3] = {"{\"name\": \"", "\"parameters\": "},
        [TOOLS_MISTRAL] = {"[TOOL_CALLS]", ", \"id\": \"", "[:-1]", "]' + eos", "\"]\" + eos"},
        [TOOLS_MISTRAL_ARGS] = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"},
        [TOOLS_GEMMA4] = {"<|tool_call>call:", "}<tool_call|>"},
        [TOOLS_FUNCTIONGEMMA] = {"<start_function_call>call:", "<escape>", "}<end_function_call>"},
    };
    char *source = template_read(name, reference);
    for (size_t i = 0; i < N_OF(markers[format]) && markers[format][i]; i++)
        if (strstr(source, markers[format][i]))
            check_changed(name, reference, markers[format][i], format);
    free(source);
}

static void test_changed_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(own); i++)
        if (own[i].format != TOOLS_UNKNOWN && own[i].format != TOOLS_LIST)
            check_markers(own[i].template, false, own[i].format);
}

static void test_changed_byte_published(void **state)
{
    (void)state;
    if (!test_reference()) skip();
    for (size_t i = 0; i < N_OF(published); i++)
        if (published[i].format != TOOLS_LIST)
            check_markers(published[i].template, true, published[i].format);
}

/* ---- odd templates ------------------------------------------------------------------------- */

#define EACH "{% for m in messages %}{{ m.role }}:{{ m.content }}"
#define EACH_CALL "{% for c in m.tool_calls or [] %}"

/* Nothing is found, in bounded time. */
static void test_odd(void **state)
{
    static const char *const sources[] = {
        "",
        "x",
        "{{ raise_exception('never') }}",
        "{{ messages | tojson }}",
        "{% for i in range(100000000) %}a{% endfor %}",
        "{% for i in range(90000) %}a{% endfor %}" EACH "{% endfor %}",
        EACH EACH_CALL
        "{{ 'a' * 30000 }}{{ c.function.name }}{{ 'a' * 30000 }}{% endfor %}{% endfor %}",
        EACH EACH_CALL "{{ '{' * 30000 }}{{ c.function | tojson }}{% endfor %}{% endfor %}",
        EACH EACH_CALL
        "{{ '[' * 900 }}{{ c.function | tojson }}{{ ']' * 900 }}{% endfor %}{% endfor %}",
        EACH EACH_CALL
        "{{ '<' * 64 }}{{ c.function | tojson }}{{ '>' * 64 }}{% endfor %}{% endfor %}",
        EACH EACH_CALL
        "{{ c.function.name }}{{ '\\x00' }}{{ c.function | tojson }}{% endfor %}{% endfor %}",
        "{{ messages[1].reasoning_content }}{{ messages[1].content }}",
    };
    (void)state;
    for (size_t i = 0; i < N_OF(sources); i++) {
        struct tools_style s = detect(sources[i], NULL);
        REQUIRE_MSG(s.format == TOOLS_LIST && s.source == TOOLS_FALLBACK, "%s: %s", sources[i],
                    tools_format_name(s.format));
        REQUIRE_EQ_STR(s.think_open, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),           cmocka_unit_test(test_published),
        cmocka_unit_test(test_texts),         cmocka_unit_test(test_marked_list),
        cmocka_unit_test(test_two_templates), cmocka_unit_test(test_option),
        cmocka_unit_test(test_changed_byte),  cmocka_unit_test(test_changed_byte_published),
        cmocka_unit_test(test_odd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
