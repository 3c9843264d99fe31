/* SPDX-License-Identifier: MIT */
/* Tools and reasoning of a request; see tools_request.h. */
#include "server/api/read/tools_request.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "server/config/config.h"
#include "server/served_model.h"

/* ---- fields of reasoning ------------------------------------------------------------------- */

static int bad_effort(const char *path, struct param_error *err)
{
    return param_fail(err, SRV_ERR_INVALID_VALUE, path,
                      "'%s' must be one of none, minimal, low, medium, high, xhigh.", path);
}

/* The word as the template may read it, and whether it asks for reasoning at all. */
static int read_effort(struct srv_tools *t, const json_t *value, const char *path,
                       struct param_error *err)
{
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    const char *word = json_string_value(value);
    if (!value || json_is_null(value)) return 0;
    if (!word) return param_fail(err, SRV_ERR_INVALID_TYPE, path, "'%s' must be a string.", path);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(word, words[i]) != 0) continue;
        t->effort = words[i];
        t->thinking = i == 0 ? TOOLS_THINKING_OFF : TOOLS_THINKING_ON;
        return 0;
    }
    return bad_effort(path, err);
}

/* Responses: {"effort", "summary"}. */
static int read_reasoning(struct srv_tools *t, const json_t *body, struct param_unknown *ignored,
                          struct param_error *err)
{
    static const char *const summaries[] = {"summary", "generate_summary"};
    const json_t *value = json_object_get(body, "reasoning");
    if (!value || json_is_null(value)) return 0;
    if (!json_is_object(value))
        return param_fail(err, SRV_ERR_INVALID_TYPE, "reasoning", "'reasoning' must be an object.");
    for (size_t i = 0; i < sizeof(summaries) / sizeof(summaries[0]); i++) {
        const json_t *summary = json_object_get(value, summaries[i]);
        if (summary && !json_is_null(summary)) param_note(ignored, "reasoning.summary");
    }
    return read_effort(t, json_object_get(value, "effort"), "reasoning.effort", err);
}

/* Tokens that a reasoning block may have; -1 (vLLM): any number. */
static int read_budget(struct srv_tools *t, const json_t *value, const char *path,
                       struct param_unknown *ignored, struct param_error *err)
{
    if (!value || json_is_null(value)) return 0;
    if (!json_is_integer(value))
        return param_fail(err, SRV_ERR_INVALID_TYPE, path, "'%s' must be an integer.", path);
    if (json_integer_value(value) < SRV_THINK_ANY)
        return param_fail(err, SRV_ERR_INVALID_VALUE, path,
                          "'%s' must be -1 (no limit) or a number of tokens.", path);
    t->think_budget = json_integer_value(value);
    if (!t->can_reason) param_note(ignored, path);
    return 0;
}

/* Messages: {"type": "enabled" | "disabled" | "adaptive", "budget_tokens"}. */
static int read_thinking(struct srv_tools *t, const json_t *body, struct param_unknown *ignored,
                         struct param_error *err)
{
    const json_t *value = json_object_get(body, "thinking");
    const char *type = json_string_value(json_object_get(value, "type"));
    if (!value || json_is_null(value)) return 0;
    if (!json_is_object(value))
        return param_fail(err, SRV_ERR_INVALID_TYPE, "thinking", "'thinking' must be an object.");
    if (!type || (strcmp(type, "enabled") && strcmp(type, "disabled") && strcmp(type, "adaptive")))
        return param_fail(err, SRV_ERR_INVALID_VALUE, "thinking.type",
                          "'thinking.type' must be 'enabled', 'disabled' or 'adaptive'.");
    t->thinking = strcmp(type, "disabled") ? TOOLS_THINKING_ON : TOOLS_THINKING_OFF;
    return read_budget(t, json_object_get(value, "budget_tokens"), "thinking.budget_tokens",
                       ignored, err);
}

static int read_format(struct srv_tools *t, const json_t *body, struct param_error *err)
{
    const json_t *value = json_object_get(body, "reasoning_format");
    const char *word = json_string_value(value);
    t->no_reasoning = !strcmp(t->served->config->reasoning_format, "none");
    if (!value || json_is_null(value)) return 0;
    if (!word || (strcmp(word, "auto") && strcmp(word, "none")))
        return param_fail(err, SRV_ERR_INVALID_VALUE, "reasoning_format",
                          "'reasoning_format' must be 'auto' or 'none'.");
    t->no_reasoning = !strcmp(word, "none");
    return 0;
}

/* Names what the template does not read. */
static void note_words(const struct srv_tools *t, const char *field, struct param_unknown *ignored)
{
    const struct tools_style *style = &t->served->style;
    bool reads = (t->thinking && style->reads_enable_thinking) ||
                 (t->effort && style->reads_reasoning_effort);
    bool none_asked = t->thinking == TOOLS_THINKING_OFF && !style->think_open[0];
    if (t->thinking && !reads && !none_asked) param_note(ignored, field);
}

static int read_reasoning_fields(struct srv_tools *t, const json_t *body,
                                 struct param_unknown *ignored, struct param_error *err)
{
    static const char budget[] = "thinking_token_budget";
    t->think_budget = SRV_THINK_UNSAID;
    if (read_format(t, body, err)) return -1;
    t->can_reason = t->served->style.think_open[0] && !t->no_reasoning;
    switch (t->ask.dialect) {
    case TOOLS_CHAT:
        if (read_effort(t, json_object_get(body, "reasoning_effort"), "reasoning_effort", err))
            return -1;
        note_words(t, "reasoning_effort", ignored);
        return read_budget(t, json_object_get(body, budget), budget, ignored, err);
    case TOOLS_RESPONSES:
        if (read_reasoning(t, body, ignored, err)) return -1;
        note_words(t, "reasoning.effort", ignored);
        return read_budget(t, json_object_get(body, budget), budget, ignored, err);
    default:
        if (read_thinking(t, body, ignored, err)) return -1;
        note_words(t, "thinking", ignored);
        return 0;
    }
}

/* ---- the request --------------------------------------------------------------------------- */

/* Without a chat template the prompt is refused, whether there are tools or not. */
static int check_format(const struct srv_tools *t, struct param_error *err)
{
    enum tools_format format = t->served->style.format;
    bool reads = format != TOOLS_NONE && format != TOOLS_UNKNOWN;
    if (t->ask.n == 0 || reads || !t->served->chat) return 0;
    return param_fail(err, SRV_ERR_UNSUPPORTED, "tools",
                      format == TOOLS_NONE
                          ? "Calls of tools are switched off on this server (--tool-format none)."
                          : "This model's chat template writes tool calls in a form this server "
                            "does not know; start it with --tool-format.");
}

int srv_tools_read(struct srv_tools *t, const struct srv_model *model, enum tools_dialect dialect,
                   const struct srv_body *body, struct param_unknown *ignored,
                   struct param_error *err)
{
    t->served = model;
    if (getrandom(t->random, sizeof(t->random), 0) != (ssize_t)sizeof(t->random))
        memcpy(t->random, &t, sizeof(t));
    int rc = tools_ask_read(&t->ask, dialect, body, ignored, err) ||
             read_reasoning_fields(t, body->root, ignored, err) || check_format(t, err);
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
