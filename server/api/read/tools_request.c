/* SPDX-License-Identifier: MIT */
/* Tools and reasoning of a request; see tools_request.h. */
#include "server/api/read/tools_request.h"

#include <string.h>
#include <sys/random.h>

#include "server/config/config.h"
#include "server/models/served_model.h"

/* ---- fields of reasoning ------------------------------------------------------------------- */

/* The state of reading one request. */
struct reading {
    struct srv_tools *t;
    const json_t *body;
    struct param_unknown *ignored;
};

static int disagree(const char *path, const char *other)
{
    return param_fail(SRV_ERR_INVALID_VALUE, path, "'%s' and '%s' do not agree; send one of them.",
                      other, path);
}

/* A field, a literal, switches reasoning on or off; effort: its word for how much, or NULL. It is
 * noted if the template reads nothing of it. */
static int switch_thinking(const struct reading *r, bool on, const char *effort, const char *path)
{
    struct srv_tools *t = r->t;
    const struct tools_style *style = &t->served->style;
    enum tools_thinking thinking = on ? TOOLS_THINKING_ON : TOOLS_THINKING_OFF;
    bool reads = style->reads_enable_thinking || (effort && style->reads_reasoning_effort);
    if ((t->thinking && t->thinking != thinking) ||
        (effort && t->effort && strcmp(effort, t->effort) != 0))
        return disagree(path, t->thinking_field);
    t->thinking = thinking;
    if (effort || !t->thinking_field) t->thinking_field = path;
    if (effort) t->effort = effort;
    if (!reads && (on || style->think_open[0])) param_note(r->ignored, path);
    return 0;
}

/* The word as the template may read it, and whether it asks for reasoning at all. */
static int read_effort(const struct reading *r, const json_t *value, const char *path)
{
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh", NULL};
    int i = param_find_word(words, json_string_value(value));
    if (!value || json_is_null(value)) return 0;
    if (!json_is_string(value)) return param_wrong_type(path, "a string");
    if (i >= 0) return switch_thinking(r, i > 0, words[i], path);
    return param_fail(SRV_ERR_INVALID_VALUE, path,
                      "'%s' must be one of none, minimal, low, medium, high, xhigh.", path);
}

/* Responses: {"effort", "summary"}. */
static int read_reasoning(const struct reading *r)
{
    static const char *const summaries[] = {"summary", "generate_summary"};
    const json_t *value = json_object_get(r->body, "reasoning");
    if (!value || json_is_null(value)) return 0;
    if (!json_is_object(value)) return param_wrong_type("reasoning", "an object");
    for (size_t i = 0; i < sizeof(summaries) / sizeof(summaries[0]); i++) {
        const json_t *summary = json_object_get(value, summaries[i]);
        if (summary && !json_is_null(summary)) param_note(r->ignored, "reasoning.summary");
    }
    return read_effort(r, json_object_get(value, "effort"), "reasoning.effort");
}

/* Tokens that a reasoning block may have; -1 (vLLM): any number. */
static int read_budget(const struct reading *r, const json_t *value, const char *path)
{
    struct srv_tools *t = r->t;
    if (!value || json_is_null(value)) return 0;
    if (!json_is_integer(value)) return param_wrong_type(path, "an integer");
    if (json_integer_value(value) < SRV_THINK_ANY)
        return param_fail(SRV_ERR_INVALID_VALUE, path,
                          "'%s' must be -1 (no limit) or a number of tokens.", path);
    if (t->budget_field && t->think_budget != json_integer_value(value))
        return disagree(path, t->budget_field);
    t->think_budget = json_integer_value(value);
    t->budget_field = path;
    if (!t->can_reason) param_note(r->ignored, path);
    return 0;
}

/* Messages, and chat: {"type": "enabled" | "disabled" | "adaptive", "budget_tokens"}. */
static int read_thinking(const struct reading *r)
{
    const json_t *value = json_object_get(r->body, "thinking");
    const char *type = json_string_value(json_object_get(value, "type"));
    if (!value || json_is_null(value)) return 0;
    if (!json_is_object(value)) return param_wrong_type("thinking", "an object");
    if (!type || (strcmp(type, "enabled") && strcmp(type, "disabled") && strcmp(type, "adaptive")))
        return param_fail(SRV_ERR_INVALID_VALUE, "thinking.type",
                          "'thinking.type' must be 'enabled', 'disabled' or 'adaptive'.");
    if (switch_thinking(r, strcmp(type, "disabled") != 0, NULL, "thinking")) return -1;
    return read_budget(r, json_object_get(value, "budget_tokens"), "thinking.budget_tokens");
}

/* Chat: enable_thinking (Qwen's API), think (Ollama's: also a word), thinking, reasoning_effort.
 * The template's own variable comes before a word, but must agree with a switch. */
static int read_switches(const struct reading *r)
{
    static const char variable[] = "chat_template_kwargs.enable_thinking";
    const json_t *flag = json_object_get(r->body, "enable_thinking"),
                 *think = json_object_get(r->body, "think"),
                 *kwargs = json_object_get(r->body, "chat_template_kwargs");
    const json_t *own = json_object_get(kwargs, "enable_thinking");
    if (flag && !json_is_null(flag) && !json_is_boolean(flag))
        return param_wrong_type("enable_thinking", "true or false");
    if (json_is_boolean(flag) && switch_thinking(r, json_is_true(flag), NULL, "enable_thinking"))
        return -1;
    const char *word = json_string_value(think);
    if (json_is_boolean(think)         ? switch_thinking(r, json_is_true(think), NULL, "think")
        : word && !strcmp(word, "max") ? switch_thinking(r, true, "xhigh", "think")
                                       : read_effort(r, think, "think"))
        return -1;
    if (read_thinking(r)) return -1;
    bool on = r->t->thinking == TOOLS_THINKING_ON;
    if (r->t->thinking && json_is_boolean(own) && json_is_true(own) != on)
        return disagree(variable, r->t->thinking_field);
    return read_effort(r, json_object_get(r->body, "reasoning_effort"), "reasoning_effort");
}

static int read_format(const struct reading *r)
{
    const json_t *value = json_object_get(r->body, "reasoning_format");
    const char *word = json_string_value(value);
    r->t->no_reasoning = !strcmp(r->t->served->config->reasoning_format, "none");
    if (!value || json_is_null(value)) return 0;
    if (!word || (strcmp(word, "auto") && strcmp(word, "none")))
        return param_fail(SRV_ERR_INVALID_VALUE, "reasoning_format",
                          "'reasoning_format' must be 'auto' or 'none'.");
    r->t->no_reasoning = !strcmp(word, "none");
    return 0;
}

static int read_reasoning_fields(const struct reading *r)
{
    static const char budget[] = "thinking_token_budget", other[] = "reasoning_budget";
    struct srv_tools *t = r->t;
    t->think_budget = SRV_THINK_UNSAID;
    if (read_format(r)) return -1;
    t->can_reason = t->served->style.think_open[0] && !t->no_reasoning;
    switch (t->ask.dialect) {
    case TOOLS_CHAT:
        if (read_switches(r) || read_budget(r, json_object_get(r->body, other), other)) return -1;
        return read_budget(r, json_object_get(r->body, budget), budget);
    case TOOLS_RESPONSES:
        if (read_reasoning(r)) return -1;
        return read_budget(r, json_object_get(r->body, budget), budget);
    default: return read_thinking(r);
    }
}

/* ---- the request --------------------------------------------------------------------------- */

/* Without a chat template the prompt is refused, whether there are tools or not. */
static int check_format(const struct srv_tools *t)
{
    enum tools_format format = t->served->style.format;
    bool reads = format != TOOLS_NONE && format != TOOLS_UNKNOWN;
    if (t->ask.n == 0 || reads || !t->served->chat) return 0;
    return param_fail(SRV_ERR_UNSUPPORTED, "tools",
                      format == TOOLS_NONE
                          ? "Calls of tools are switched off on this server (--tool-format none)."
                          : "This model's chat template writes tool calls in a form this server "
                            "does not know; leave 'tools' out, or serve another model.");
}

int srv_tools_read(struct srv_tools *t, const struct srv_model *model, enum tools_dialect dialect,
                   const struct srv_body *body, struct param_unknown *ignored)
{
    t->served = model;
    if (getrandom(t->random, sizeof(t->random), 0) != (ssize_t)sizeof(t->random))
        memcpy(t->random, &t, sizeof(t));
    const struct reading r = {t, body->root, ignored};
    int rc = tools_ask_read(&t->ask, dialect, body, ignored) || read_reasoning_fields(&r) ||
             check_format(t);
    t->active = t->ask.n > 0 && t->ask.choice != TOOLS_CHOICE_NONE;
    return rc ? -1 : 0;
}

void srv_tools_set_prompt(struct srv_tools *t, const struct tools_prompt *prompt)
{
    bool begun = prompt->begun || prompt->think_closed;
    t->think_open = prompt->think_open;
    t->begun = prompt->begun;
    t->may_think = t->can_reason && (t->think_open || !begun);
    t->request = (struct tools_request){
        .style = &t->served->style,
        .tools = t->ask.tools,
        .n_tools = t->active ? (size_t)t->ask.n : 0,
        .choice = t->active ? t->ask.choice : TOOLS_CHOICE_NONE,
        .one_call = !t->ask.parallel || t->ask.once,
        .once = !t->ask.parallel || t->ask.once,
        .no_reasoning = t->no_reasoning,
        .answer_begun = begun,
    };
}

void srv_tools_release(struct srv_tools *t)
{
    tools_ask_finish(&t->ask);
    tools_set_destroy(t->set);
    t->set = NULL;
}
