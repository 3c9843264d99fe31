/* SPDX-License-Identifier: MIT */
/*
 * Prompts with tools: the texts that we write where a template does not, variables, how an answer
 * begins, and the round trip: a prompt, then calls as the guide writes them, sent back as messages,
 * render as the same bytes.
 */
#include "template_dir.h"

#include <dirent.h>

#include "base/buf.h"
#include "base/json_writer.h"
#include "tests/filters/markers_by_text.h"

#define ASK "{\"role\":\"user\",\"content\":\"U\"}"
#define SYSTEM "{\"role\":\"system\",\"content\":\"S\"}"
#define TOOL_LIST                                                                                  \
    "[{\"name\":\"f\",\"description\":\"D\",\"parameters\":{\"type\":\"object\"}},{\"name\":"      \
    "\"g\"}]"
#define CALL(name, arguments)                                                                      \
    "{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"" name                      \
    "\",\"arguments\":\"" arguments "\"}}"
#define CALLS(calls) "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" calls "]}"
#define RESULT(text) "{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":\"" text "\"}"

struct model {
    struct tok_chat *chat;
    struct tools_style style;
};

static struct model open_model(const char *source, const char *option)
{
    struct model m = {.chat = template_open(source, TEMPLATE_CONFIG)};
    REQUIRE(m.chat);
    REQUIRE_EQ_INT(tools_detect(&m.style, m.chat, option), 0);
    return m;
}

static struct model open_template(const char *name, bool reference)
{
    char *source = template_read(name, reference);
    struct model m = open_model(source, NULL);
    free(source);
    return m;
}

static struct tools_prompt render(const struct model *m, struct tools_prompt_params p)
{
    struct tools_prompt ret;
    char err[300] = "";
    p.style = &m->style;
    int rc = tools_prompt_render(&ret, m->chat, &p, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s: %s", p.messages, err);
    return ret;
}

static void require_text(const struct model *m, struct tools_prompt_params p, const char *wanted)
{
    struct tools_prompt got = render(m, p);
    REQUIRE_EQ_STR(got.prompt.text, wanted);
    tok_prompt_finish(&got.prompt);
}

/* ---- written by us ------------------------------------------------------------------------- */

#define LIST_TEXT                                                                                  \
    "You can use functions. They are listed here as JSON:\n"                                       \
    "<tools>\n"                                                                                    \
    "[{\"name\": \"f\", \"description\": \"D\", \"parameters\": {\"type\": \"object\"}}, "         \
    "{\"name\": \"g\"}]\n"                                                                         \
    "</tools>\n"                                                                                   \
    "To use functions, write only a JSON list between <tool_call> and </tool_call>, one object "   \
    "for each use:\n"                                                                              \
    "<tool_call>[{\"name\": \"function name\", \"arguments\": {\"parameter name\": \"value\"}}]"   \
    "</tool_call>\n"                                                                               \
    "Use only these functions and their parameters. If none of them helps, answer in plain words."

static const char plain_source[] =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

static void test_list(void **state)
{
    (void)state;
    struct model m = open_model(plain_source, NULL);
    require_text(&m,
                 (struct tools_prompt_params){.messages = "[" SYSTEM "," ASK "]",
                                              .tools = TOOL_LIST,
                                              .add_generation_prompt = true},
                 "[system]S\n\n" LIST_TEXT ";[user]U;[assistant]");
    require_text(
        &m,
        (struct tools_prompt_params){
            .messages = "[" ASK "," CALLS(CALL("f", "{\\\"a\\\":1}") "," CALL(
                "g", "{}")) "," RESULT("R") "," RESULT("Q") "," ASK "]",
            .tools = TOOL_LIST},
        "[system]" LIST_TEXT ";[user]U;[assistant]<tool_call>[{\"name\": \"f\", \"arguments\": "
        "{\"a\":1}}, {\"name\": \"g\", \"arguments\": {}}]</tool_call>;[user]<tool_response>\n"
        "R\n</tool_response>\n<tool_response>\nQ\n</tool_response>\nU;");
    /* without tools earlier calls still reach the model */
    require_text(&m,
                 (struct tools_prompt_params){
                     .messages = "[" ASK "," CALLS(CALL("f", "{}")) "," RESULT("R") "]"},
                 "[user]U;[assistant]<tool_call>[{\"name\": \"f\", \"arguments\": {}}]</tool_call>;"
                 "[user]<tool_response>\nR\n</tool_response>;");
    tok_chat_close(m.chat);
}

/* The sentence before the example and the example are those of the format that the option names. */
static void test_other_lists(void **state)
{
    static const struct {
        const char *format, *wanted;
    } cases[] = {
        {"hermes", "\nTo use functions, write only this, once for each use:\n<tool_call>\n"
                   "{\"name\": \"function name\", \"arguments\": {\"parameter name\": \"value\"}}\n"
                   "</tool_call>\nUse only"},
        {"qwen-xml", " each use:\n<tool_call>\n<function=function name>\n<parameter=parameter "
                     "name>\nvalue\n</parameter>\n</function>\n</tool_call>\nUse only"},
        {"llama3", " each use:\n{\"name\": \"function name\", \"parameters\": {\"parameter name\": "
                   "\"value\"}}\nUse only"},
        {"mistral", " each use:\n[TOOL_CALLS][{\"name\": \"function name\", \"arguments\": "
                    "{\"parameter name\": \"value\"}}]\nUse only"},
        {"mistral-args", " each use:\n[TOOL_CALLS]function name[ARGS]{\"parameter name\": "
                         "\"value\"}\nUse only"},
        {"pythonic", " each use:\n<|tool_call_start|>[function name(parameter_name=\"value\")]"
                     "<|tool_call_end|>\nUse only"},
        {"gemma4", " each use:\n<|tool_call>call:function name{parameter_name:<|\"|>value<|\"|>}"
                   "<tool_call|>\nUse only"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct model m = open_model(plain_source, cases[i].format);
        struct tools_prompt p =
            render(&m, (struct tools_prompt_params){.messages = "[" ASK "]", .tools = TOOL_LIST});
        REQUIRE_MSG(strstr(p.prompt.text, cases[i].wanted), "%s", p.prompt.text);
        tok_prompt_finish(&p.prompt);
        tok_chat_close(m.chat);
    }
}

/* Calls and results that the template drops are in the format of its instructions. */
static void test_dropped(void **state)
{
    (void)state;
    struct model m = open_template("tools/templates/dropped.jinja", false);
    require_text(
        &m,
        (struct tools_prompt_params){.messages =
                                         "[" ASK "," CALLS(CALL("f", "{}")) "," RESULT("R") "]",
                                     .tools = "[{\"name\":\"f\"}]"},
        "<|turn|>system\nFunctions, to be called within <tool_call></tool_call>:\n"
        "{'type': 'function', 'function': {'name': 'f'}}\nSo:\n<tool_call>\n"
        "{\"name\": NAME, \"arguments\": OBJECT}\n</tool_call>\n<|end|>\n"
        "<|turn|>user\nU<|end|>\n<|turn|>assistant\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
        "{}}\n"
        "</tool_call><|end|>\n<|turn|>user\n<tool_response>\nR\n</tool_response><|end|>\n");
    tok_chat_close(m.chat);
}

/* ---- variables, and how the answer begins -------------------------------------------------- */

static void test_variables(void **state)
{
    static const struct {
        const char *server, *kwargs, *effort;
        enum tools_thinking thinking;
        const char *wanted;
    } cases[] = {
        {NULL, NULL, NULL, TOOLS_THINKING_UNSAID, "||"},
        {"{\"enable_thinking\": 1, \"v\": 2}", NULL, NULL, TOOLS_THINKING_UNSAID, "1||2"},
        {"{\"enable_thinking\":1,\"v\":2}", NULL, "low", TOOLS_THINKING_ON, "True|low|2"},
        {" { } ", "{}", "none", TOOLS_THINKING_OFF, "False|none|"},
        {"{\"v\":2}", " {\"v\" : 123456789012345678901234567890} ", "low", TOOLS_THINKING_ON,
         "True|low|123456789012345678901234567890"},
        {"{\"v\":2}", "{\"enable_thinking\":7,\"reasoning_effort\":8}", "low", TOOLS_THINKING_ON,
         "7|8|2"},
    };
    (void)state;
    struct model m = open_model("{{ enable_thinking }}|{{ reasoning_effort }}|{{ v }}", NULL);
    for (size_t i = 0; i < N_OF(cases); i++) {
        require_text(&m,
                     (struct tools_prompt_params){.messages = "[" ASK "]",
                                                  .server_kwargs = cases[i].server,
                                                  .kwargs = cases[i].kwargs,
                                                  .effort = cases[i].effort,
                                                  .thinking = cases[i].thinking},
                     cases[i].wanted);
    }
    tok_chat_close(m.chat);
}

/* Some templates fail on tools that have a name alone. */
static void test_filled_tools(void **state)
{
    (void)state;
    struct model m =
        open_model("{% for t in tools %}{{ t.function.name + '(' + t.function.description "
                   "+ ')' }}{{ t.function.parameters.properties | length }};{% endfor %}",
                   NULL);
    require_text(&m,
                 (struct tools_prompt_params){
                     .messages = "[" ASK "]",
                     .tools = "[{\"name\":\"f\"}, {\"name\":\"g\",\"description\":\"D\"},{\"name\":"
                              "\"h\",\"parameters\":{\"properties\":{\"a\":{}}}}]"},
                 "f()0;g(D)0;h()1;");
    tok_chat_close(m.chat);
}

static void test_reserved(void **state)
{
    (void)state;
    struct model m = open_model(plain_source, NULL);
    struct tools_prompt ret;
    char err[300] = "";
    const struct tools_prompt_params p = {
        .style = &m.style, .messages = "[" ASK "]", .kwargs = "{\"tools\":[]}"};
    REQUIRE_EQ_INT(tools_prompt_render(&ret, m.chat, &p, err, sizeof(err)), TOK_EINVAL);
    REQUIRE_EQ_STR(err, "kwargs must not name 'tools'");
    tok_chat_close(m.chat);
}

static void test_beginning(void **state)
{
    static const struct {
        const char *messages;
        enum tools_thinking thinking;
        bool go_on, think_open;
    } cases[] = {
        {"[" ASK "]", TOOLS_THINKING_UNSAID, false, true},
        {"[" ASK "]", TOOLS_THINKING_OFF, false, false},
        {"[{\"role\":\"user\",\"content\":\"</reason>\"}]", TOOLS_THINKING_UNSAID, false, true},
        {"[{\"role\":\"user\",\"content\":\"<reason>\"}]", TOOLS_THINKING_OFF, false, false},
        {"[" ASK ",{\"role\":\"assistant\",\"content\":\"<reason>\\nSo\"}]", TOOLS_THINKING_UNSAID,
         true, true},
        {"[{\"role\":\"user\",\"content\":\"<reason>\"},{\"role\":\"assistant\",\"content\":\"So\"}"
         "]",
         TOOLS_THINKING_UNSAID, true, false},
        {"[" ASK ",{\"role\":\"assistant\",\"content\":\"So\",\"reasoning_content\":\"R\"}]",
         TOOLS_THINKING_UNSAID, true, false},
    };
    (void)state;
    struct model m = open_template("tools/templates/marked.jinja", false);
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tools_prompt p =
            render(&m, (struct tools_prompt_params){.messages = cases[i].messages,
                                                    .thinking = cases[i].thinking,
                                                    .add_generation_prompt = !cases[i].go_on,
                                                    .continue_final_message = cases[i].go_on});
        REQUIRE_MSG(p.think_open == cases[i].think_open, "case %zu: %s", i, p.prompt.text);
        REQUIRE_EQ_INT(p.begun, cases[i].go_on);
        tok_prompt_finish(&p.prompt);
    }
    tok_chat_close(m.chat);
}

/* ---- round trip ---------------------------------------------------------------------------- */

struct call {
    const char *name, *arguments;
    const char *tags, *keywords; /* the same as qwen-xml and pythonic have it, */
    const char *quoted;          /* and Gemma's formats, with ~ around strings */
};

struct answer {
    const char *content, *reasoning;
    struct call calls[3];
};

static void add_quoted(struct buf *b, const char *text, const char *quote)
{
    for (; *text; text++)
        buf_printf(b, "%.*s", *text == '~' ? (int)strlen(quote) : 1, *text == '~' ? quote : text);
}

/* The calls as the guide writes them. Ids are of the form that every template takes. */
static void write_calls(struct buf *b, const struct tools_style *s, const struct answer *a)
{
    bool tags = s->format == TOOLS_QWEN_XML, keywords = s->format == TOOLS_PYTHONIC;
    for (size_t i = 0; a->calls[i].name; i++) {
        const struct call *c = &a->calls[i];
        bool block = i == 0 || s->one_per_block;
        if (i) buf_puts(b, s->one_per_block ? s->block_sep : s->call_sep);
        if (block) buf_puts(b, s->block_open);
        buf_printf(b, "%s%s", s->call_open, c->name);
        if (s->format == TOOLS_MISTRAL_ARGS && s->writes_id)
            buf_printf(b, "%sabcdefgh%zu", s->id_open, i);
        buf_puts(b, s->name_close);
        if (s->quote)
            add_quoted(b, c->quoted, s->quote);
        else
            buf_puts(b, tags ? c->tags : keywords ? c->keywords : c->arguments);
        if (s->format == TOOLS_MISTRAL && s->writes_id)
            buf_printf(b, "%sabcdefgh%zu%s", s->id_open, i, s->id_close);
        buf_puts(b, s->call_close);
        if (s->one_per_block || !a->calls[i + 1].name) buf_puts(b, s->block_close);
    }
}

static char *generated_text(const struct tools_style *s, const struct answer *a)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    bool channel = !strcmp(s->think_open, TOOLS_CHANNEL);
    if (a->reasoning)
        buf_printf(&b, "%s%s\n%s\n%s%s", s->think_open, channel ? "thought" : "", a->reasoning,
                   s->think_close, channel ? "" : "\n\n");
    if (a->content) buf_printf(&b, "%s\n", a->content);
    write_calls(&b, s, a);
    REQUIRE(!b.failed);
    return b.data;
}

/* The message that the reader makes of a text, with the tools of the test. */
struct message {
    struct buf content, reasoning, arguments[3];
    char name[3][TOOLS_MAX_NAME + 1], id[3][16];
    size_t n_calls;
};

static void take_event(void *ctx, const struct tools_event *e)
{
    struct message *m = ctx;
    switch (e->type) {
    case TOOLS_CONTENT: buf_add(&m->content, e->text, e->len); break;
    case TOOLS_REASONING: buf_add(&m->reasoning, e->text, e->len); break;
    case TOOLS_CALL_BEGIN:
        REQUIRE(e->index < 3 && e->id_len < 16);
        snprintf(m->name[e->index], sizeof(m->name[0]), "%.*s", (int)e->len, e->text);
        snprintf(m->id[e->index], 16, "%.*s", (int)e->id_len, e->id ? e->id : "");
        m->n_calls = e->index + 1;
        break;
    case TOOLS_CALL_ARGUMENTS: buf_add(&m->arguments[e->index], e->text, e->len); break;
    case TOOLS_CALL_END: REQUIRE(e->complete); break;
    }
}

static void read_message(struct message *m, const struct tools_style *style, bool think_open,
                         const char *text)
{
    static const char strings[] = "{\"properties\":{\"a\":{\"type\":\"string\"}}}";
    static const struct tools_tool known[] = {
        {.name = "f", .name_len = 1, .schema = strings, .schema_len = sizeof(strings) - 1},
        {.name = "g", .name_len = 1},
        {.name = "get_weather.v-2", .name_len = 15}};
    const struct tools_request request = {
        .style = style, .tools = known, .n_tools = N_OF(known), .choice = TOOLS_CHOICE_AUTO};
    struct tools_set *set = NULL;
    struct tools_markers markers;
    REQUIRE_EQ_INT(tools_set_create(&set, &request), 0);
    markers_by_text(style, &markers);
    void *memory = aligned_alloc(16, (tools_reader_bytes(TOOLS_MAX_HELD) + 15) / 16 * 16);
    const struct tools_reader_params params = {.set = set,
                                               .markers = &markers,
                                               .think_open = think_open,
                                               .max_held = TOOLS_MAX_HELD,
                                               .on_event = take_event,
                                               .ctx = m};
    struct tools_reader *r = tools_reader_init(memory, &params);
    tools_reader_text(r, text, strlen(text));
    tools_reader_end(r);
    free(memory);
    tools_set_destroy(set);
}

/* As a client sends it back: names behind arguments, as some libraries write them. */
static char *messages_with(const struct message *m)
{
    struct buf b;
    struct jw w;
    buf_init(&b, 1 << 16);
    buf_puts(&b, "[" ASK ",");
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_text(&w, "role", "assistant");
    jw_text(&w, "content", m->content.data);
    if (m->reasoning.len) jw_text(&w, "reasoning_content", m->reasoning.data);
    jw_open(&w, "tool_calls", '[');
    for (size_t i = 0; i < m->n_calls; i++) {
        char id[] = "call_0";
        id[5] = (char)('0' + i);
        jw_open(&w, NULL, '{');
        jw_text(&w, "id", m->id[i][0] ? m->id[i] : id);
        jw_text(&w, "type", "function");
        jw_open(&w, "function", '{');
        jw_text(&w, "arguments", m->arguments[i].data);
        jw_text(&w, "name", m->name[i]);
        jw_close(&w);
        jw_close(&w);
    }
    jw_close(&w);
    jw_close(&w);
    jw_end(&w);
    buf_puts(&b, ",{\"role\":\"tool\",\"tool_call_id\":\"call_0\",\"content\":\"R\"}]");
    REQUIRE(!b.failed);
    return b.data;
}

/* What was generated, read and sent back renders as the prompt and what was generated. */
static void check_round(const struct model *m, const char *name, const struct answer *a)
{
    struct message message = {0};
    buf_init(&message.content, 1 << 16);
    buf_init(&message.reasoning, 1 << 16);
    for (size_t i = 0; i < 3; i++)
        buf_init(&message.arguments[i], 1 << 16);
    struct tools_prompt_params params = {
        .messages = "[" ASK "]", .tools = TOOL_LIST, .add_generation_prompt = true};
    if (m->style.quote) params.thinking = TOOLS_THINKING_ON; /* else an empty block comes first */
    struct tools_prompt before = render(m, params);
    char *generated = generated_text(&m->style, a);
    read_message(&message, &m->style, before.think_open, generated);
    char *messages = messages_with(&message);
    params.messages = messages;
    struct tools_prompt after = render(m, params);
    size_t n = before.prompt.len;
    bool same = strncmp(after.prompt.text, before.prompt.text, n) == 0 &&
                strncmp(after.prompt.text + n, generated, strlen(generated)) == 0;
    REQUIRE_MSG(same, "%s: %s|%s\nbut %s", name, before.prompt.text, generated, after.prompt.text);
    tok_prompt_finish(&before.prompt);
    tok_prompt_finish(&after.prompt);
    free(generated);
    free(messages);
    buf_finish(&message.content);
    buf_finish(&message.reasoning);
    for (size_t i = 0; i < 3; i++)
        buf_finish(&message.arguments[i]);
}

#define ODD "{\"a\": \"caf\xC3\xA9 \\\"q\\\" \\\\ \\n <tool_call> </tool_call>\"}"
#define ODD_TAGS "<parameter=a>\ncaf\xC3\xA9 \"q\" \\ \n <tool_call> </tool_call>\n</parameter>\n"
#define ODD_KEYWORDS "a=\"caf\xC3\xA9 \\\"q\\\" \\\\ \\n <tool_call> </tool_call>\""
#define ODD_QUOTED "a:~caf\xC3\xA9 \"q\" \\ \n <tool_call> </tool_call>~"
#define NESTED                                                                                     \
    "{\"a\": {\"b\": [1, 2.5, null, true], \"c\": {}}, \"d\": 123456789012345678901234567890, "    \
    "\"e\": true, \"f\": null}"
#define NESTED_KEYWORDS                                                                            \
    "a={\"b\": [1, 2.5, null, true], \"c\": {}}, d=123456789012345678901234567890, e=True, f=None"
#define NESTED_QUOTED "a:{b:[1,2.5,None,true],c:{}},d:123456789012345678901234567890,e:true,f:None"

static const struct answer answers[] = {
    {.calls = {{"f", "{}", "", "", ""}}},
    {.calls = {{"f", "{\"a\": \"x\"}", "<parameter=a>\nx\n</parameter>\n", "a=\"x\"", "a:~x~"}}},
    {.calls = {{"get_weather.v-2", "{\"city\": \"Oslo\", \"unit\": \"c\"}",
                "<parameter=city>\nOslo\n</parameter>\n<parameter=unit>\nc\n</parameter>\n",
                "city=\"Oslo\", unit=\"c\"", "city:~Oslo~,unit:~c~"}}},
    {.calls = {{"f", "{\"a\": \"x\\ny\"}", "<parameter=a>\nx\ny\n</parameter>\n", "a=\"x\\ny\"",
                "a:~x\ny~"},
               {"g", "{\"b\": \"2\"}", "<parameter=b>\n2\n</parameter>\n", "b=\"2\"", "b:~2~"}}},
    {.calls = {{"f", ODD, ODD_TAGS, ODD_KEYWORDS, ODD_QUOTED}}},
    {.calls = {{"f", NESTED, NULL, NESTED_KEYWORDS, NESTED_QUOTED},
               {"f", NESTED, NULL, NESTED_KEYWORDS, NESTED_QUOTED}}}, /* not all are strings */
    {.content = "Let me look.", .calls = {{"f", "{}", "", "", ""}}},
    {.reasoning = "Hm.\nSo?", .calls = {{"f", "{}", "", "", ""}}},
};

/* Letters of what a template writes: several calls (2), text before calls (c), reasoning of the
 * turn (r). */
static void check_template(const char *name, bool reference, const char *can)
{
    struct model m = open_template(name, reference);
    size_t n = 0;
    for (size_t i = 0; i < N_OF(answers); i++) {
        const struct answer *a = &answers[i];
        if ((a->calls[1].name && !strchr(can, '2')) || (a->content && !strchr(can, 'c')) ||
            (a->reasoning && !strchr(can, 'r')) ||
            (m.style.format == TOOLS_QWEN_XML && !a->calls[0].tags))
            continue;
        check_round(&m, name, a);
        n++;
    }
    REQUIRE(n >= 4);
    tok_chat_close(m.chat);
}

static void test_round_trip(void **state)
{
    (void)state;
    check_template("tools/templates/hermes.jinja", false, "2c");
    check_template("tools/templates/dropped.jinja", false, "2c");
    check_template("chat/templates/chatml.jinja", false, "2c");
    check_template("tools/templates/tags.jinja", false, "2c");
    check_template("tools/templates/bare.jinja", false, "");
    check_template("tools/templates/id-list.jinja", false, "2");
    check_template("tools/templates/args.jinja", false, "2");
    check_template("tools/templates/tool-list.jinja", false, "2c");
    check_template("tools/templates/channels.jinja", false, "2r");
    check_template("tools/templates/escapes.jinja", false, "2");
}

static void test_round_trip_published(void **state)
{
    static const struct {
        const char *name, *can;
    } cases[] = {
        {"qwen2.5.jinja", "2c"},
        {"qwen3.jinja", "2cr"},
        {"smollm3.jinja", "2c"},
        {"smollm2-instruct.jinja", "2c"},
        {"hermes3-tools.jinja", "2"},
        {"qwen3-coder.jinja", "2"},
        {"llama-3.1.jinja", ""},
        {"llama-3.2.jinja", ""},
        {"mistral-nemo.jinja", "2"},
        {"mistral-small-3.2.jinja", "2"},
        {"../../templates/LFM2-8B-A1B.jinja", "2c"},
        {"../../templates/LFM2.5-Instruct.jinja", "2c"},
        {"../../templates/google-gemma-4-31B-it.jinja", "2r"},
        {"../../templates/google-gemma-4-31B-it-interleaved.jinja", "2"},
    };
    (void)state;
    if (!test_reference()) skip();
    for (size_t i = 0; i < N_OF(cases); i++)
        check_template(cases[i].name, true, cases[i].can);
}

/* ---- every published template -------------------------------------------------------------- */

/* A conversation, for each message a letter of its role: system, developer, user, assistant, call,
 * result. The i-th text is a word of its own. */
static void write_roles(char *to, size_t size, const char *roles)
{
    static const char *const names[256] = {
        ['s'] = "system",    ['d'] = "developer", ['u'] = "user",
        ['a'] = "assistant", ['c'] = "assistant", ['r'] = "tool"};
    size_t n = 0;
    for (size_t i = 0; roles[i]; i++) {
        const char *more = roles[i] == 'c'   ? ",\"tool_calls\":[" CALL("f", "{}") "]"
                           : roles[i] == 'r' ? ",\"tool_call_id\":\"call_1\""
                                             : "";
        n += (size_t)snprintf(to + n, size - n, "%c{\"role\":\"%s\",\"content\":\"zqWord%zuq\"%s}",
                              i ? ',' : '[', names[(unsigned char)roles[i]], i, more);
    }
    snprintf(to + n, size - n, "]");
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    while ((text = strstr(text, word)))
        text++, n++;
    return n;
}

/* Returns true if the messages render; then each text is in the prompt once. */
static bool renders(const struct model *m, const char *name, const char *roles)
{
    char messages[2048], err[300] = "", word[32];
    struct tools_prompt p;
    write_roles(messages, sizeof(messages), roles);
    const struct tools_prompt_params params = {
        .style = &m->style, .messages = messages, .add_generation_prompt = true};
    if (tools_prompt_render(&p, m->chat, &params, err, sizeof(err))) return false;
    for (size_t i = 0; roles[i]; i++) {
        if (roles[i] == 'c') continue; /* some templates leave out what is said beside a call */
        snprintf(word, sizeof(word), "zqWord%zuq", i);
        REQUIRE_MSG(count(p.prompt.text, word) == 1, "%s %s: %s", name, roles, p.prompt.text);
    }
    /* a role that templates know of, or print as they would any */
    REQUIRE_MSG(!strstr(p.prompt.text, "developer") ||
                    strstr(tok_chat_source(m->chat), "developer"),
                "%s %s: %s", name, roles, p.prompt.text);
    tok_prompt_finish(&p.prompt);
    return true;
}

/* Roles that a template must take if it takes a lone user; a conversation that begins with the
 * assistant or with a call it may refuse. */
static size_t check_conversations(const struct model *m, const char *name)
{
    static const char *const wanted[] = {"su",
                                         "ssu",
                                         "sssu",
                                         "du",
                                         "ddu",
                                         "sdu",
                                         "dsu",
                                         "sddu",
                                         "uu",
                                         "suu",
                                         "dduu",
                                         "uauu",
                                         "suaau",
                                         "uaua",
                                         "usu",
                                         "sucr",
                                         "ddu"
                                         "cr",
                                         "sdduucra"},
                             *const others[] = {"au", "sau", "cru", "scru", "ucru"};
    if (!renders(m, name, "u")) return 0;
    for (size_t i = 0; i < N_OF(wanted); i++)
        REQUIRE_MSG(renders(m, name, wanted[i]), "%s %s", name, wanted[i]);
    for (size_t i = 0; i < N_OF(others); i++)
        renders(m, name, others[i]);
    return 1;
}

static void test_conversations(void **state)
{
    static const char *const own[] = {
        "chat/templates/chatml.jinja",    "chat/templates/turns.jinja",
        "chat/templates/nosystem.jinja",  "chat/templates/only-parts.jinja",
        "chat/templates/reasoning.jinja", "tools/templates/hermes.jinja",
        "tools/templates/dropped.jinja",  "tools/templates/id-list.jinja",
    };
    (void)state;
    for (size_t i = 0; i < N_OF(own); i++) {
        struct model m = open_template(own[i], false);
        REQUIRE_EQ_INT(check_conversations(&m, own[i]), 1);
        tok_chat_close(m.chat);
    }
}

static void test_conversations_published(void **state)
{
    char path[4096], name[300];
    size_t n = 0, n_all = 0;
    (void)state;
    if (!test_reference()) skip();
    snprintf(path, sizeof(path), "%s/goldens/templates", test_reference());
    DIR *dir = opendir(path);
    REQUIRE_MSG(dir, "%s", path);
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strstr(e->d_name, ".jinja")) continue;
        snprintf(name, sizeof(name), "../../templates/%.200s", e->d_name);
        struct model m = open_template(name, true);
        n += check_conversations(&m, e->d_name);
        n_all++;
        tok_chat_close(m.chat);
    }
    closedir(dir);
    REQUIRE_EQ_INT(n_all, 65);
    REQUIRE_EQ_INT(n, 61); /* the others want tools, or variables of their own */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_other_lists),
        cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_filled_tools),
        cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_beginning),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_round_trip_published),
        cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_conversations_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
