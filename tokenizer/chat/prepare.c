/* SPDX-License-Identifier: MIT */
/*
 * Messages as an OpenAI-style client sends them, brought to the form this model's template was
 * found to need (probe.c). Works in place on the values of a run. Everything that stays text
 * of the request stays marked as such.
 */
#include <string.h>

#include "tokenizer/chat/chat_internal.h"
#include "tokenizer/template/dict.h"
#include "tokenizer/template/json.h"
#include "tokenizer/template/print.h"

enum { CALL_ID_CHARS = 9 };

struct jinja_value *tok_chat_member(struct jinja_run *r, struct jinja_value object,
                                    const char *name)
{
    return jinja_is(object, JINJA_DICT) ? jinja_dict_get_name(r, object.u.dict, name) : NULL;
}

bool tok_chat_is_text(const struct jinja_value *v, const char *text)
{
    return v && jinja_is(*v, JINJA_STR) && jinja_str_is(v->u.str, text);
}

bool tok_chat_has_role(struct jinja_run *r, struct jinja_value message, const char *role)
{
    return tok_chat_is_text(tok_chat_member(r, message, "role"), role);
}

static struct jinja_value input_text(struct jinja_run *r, const char *text)
{
    return jinja_from_str(jinja_str_new(r, text, strlen(text), JINJA_INPUT));
}

/* ---- roles --------------------------------------------------------------------------------- */

void tok_chat_trust_roles(struct jinja_run *r, struct jinja_value messages)
{
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    for (size_t i = 0; i < messages.u.list->n; i++) {
        struct jinja_value *role = tok_chat_member(r, messages.u.list->items[i], "role");
        for (size_t k = 0; k < sizeof(roles) / sizeof(roles[0]); k++)
            if (tok_chat_is_text(role, roles[k])) *role = jinja_lit(r, roles[k]);
    }
}

/* ---- content ------------------------------------------------------------------------------- */

static bool only_text_parts(struct jinja_run *r, const struct jinja_list *parts)
{
    for (size_t i = 0; i < parts->n; i++) {
        const struct jinja_value *text = tok_chat_member(r, parts->items[i], "text");
        if (!tok_chat_is_text(tok_chat_member(r, parts->items[i], "type"), "text") || !text ||
            !jinja_is(*text, JINJA_STR))
            return false;
    }
    return true;
}

static struct jinja_value join_parts(struct jinja_run *r, const struct jinja_list *parts)
{
    struct jinja_sb sb = {.r = r};
    for (size_t i = 0; i < parts->n; i++) {
        if (i) jinja_sb_add_bytes(&sb, "\n", 1, JINJA_INPUT);
        jinja_sb_add(&sb, tok_chat_member(r, parts->items[i], "text")->u.str);
    }
    return jinja_sb_value(&sb);
}

static struct jinja_value as_part(struct jinja_run *r, struct jinja_value text)
{
    struct jinja_dict *part = jinja_dict_new(r);
    struct jinja_list *parts = jinja_list_new(r, 1);
    jinja_dict_put_name(r, part, "type", jinja_lit(r, "text"));
    jinja_dict_put_name(r, part, "text", text);
    jinja_list_add(r, parts, jinja_tainted(jinja_from_dict(part), true));
    return jinja_tainted(jinja_from_list(parts), true);
}

struct jinja_value tok_chat_content_text(struct jinja_run *r, const struct jinja_value *content)
{
    if (!content || jinja_is(*content, JINJA_NONE)) return input_text(r, "");
    if (jinja_is(*content, JINJA_LIST) && only_text_parts(r, content->u.list))
        return join_parts(r, content->u.list);
    return jinja_from_str(jinja_to_str(r, *content));
}

/* Always there, and of the one kind the template takes. */
static void prepare_content(struct jinja_run *r, const struct tok_chat *c,
                            struct jinja_value message)
{
    struct jinja_value *content = tok_chat_member(r, message, "content");
    if (!content) {
        jinja_dict_put_name(r, message.u.dict, "content", jinja_none());
        content = tok_chat_member(r, message, "content");
    }
    if (jinja_is(*content, JINJA_NONE) && !c->caps.null_content) *content = input_text(r, "");
    if (jinja_is(*content, JINJA_STR) && c->needs.only_parts) *content = as_part(r, *content);
    if (jinja_is(*content, JINJA_LIST) && !c->caps.content_parts && !c->needs.only_parts &&
        only_text_parts(r, content->u.list))
        *content = join_parts(r, content->u.list);
}

/* ---- tool calls ---------------------------------------------------------------------------- */

struct parse {
    const struct jinja_str *text;
    struct jinja_value value;
};

static void parse_text(struct jinja_run *r, void *arg)
{
    struct parse *p = arg;
    p->value = jinja_json_parse(r, p->text->s, p->text->len, JINJA_INPUT, "arguments");
}

bool tok_chat_as_object(struct jinja_run *r, struct jinja_value v, struct jinja_value *ret)
{
    struct parse p = {.value = v};
    if (jinja_is(v, JINJA_STR)) {
        p.text = v.u.str;
        int rc = jinja_guard(r, parse_text, &p);
        if (rc && rc != JINJA_EINVAL) jinja_fail_again(r);
        if (rc) return false;
    }
    if (jinja_is(p.value, JINJA_DICT)) *ret = p.value;
    return jinja_is(p.value, JINJA_DICT);
}

struct jinja_value tok_chat_json(struct jinja_run *r, struct jinja_value v)
{
    const struct jinja_json_style style = {.item_sep = jinja_lit(r, ", ").u.str,
                                           .key_sep = jinja_lit(r, ": ").u.str};
    return jinja_json_dumps(r, v, &style);
}

/* Arguments in the form that was found to come out well; text that is not an object is kept. */
static struct jinja_value prepare_arguments(struct jinja_run *r, const struct tok_chat *c,
                                            struct jinja_value arguments)
{
    if (tok_chat_is_text(&arguments, "")) arguments = input_text(r, "{}");
    if (c->caps.object_arguments)
        tok_chat_as_object(r, arguments, &arguments);
    else if (!jinja_is(arguments, JINJA_STR))
        arguments = tok_chat_json(r, arguments);
    return arguments;
}

/* The name first, whatever the order of the request: templates may print the object as it is. */
static void prepare_function(struct jinja_run *r, const struct tok_chat *c,
                             struct jinja_value *function)
{
    struct jinja_dict *d = jinja_dict_new(r);
    const struct jinja_value *name = tok_chat_member(r, *function, "name");
    const struct jinja_value *arguments = tok_chat_member(r, *function, "arguments");
    if (name) jinja_dict_put_name(r, d, "name", *name);
    if (arguments) jinja_dict_put_name(r, d, "arguments", prepare_arguments(r, c, *arguments));
    *function = jinja_tainted(jinja_from_dict(d), true);
}

static bool is_short_id(const struct jinja_str *id)
{
    for (size_t i = 0; i < id->len; i++) {
        char c = id->s[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!alnum) return false;
    }
    return id->len == CALL_ID_CHARS;
}

/* The same nine characters for the same id, so that calls and their results still match. */
static void shorten_id(struct jinja_run *r, struct jinja_value *id)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char text[CALL_ID_CHARS + 1] = "";
    if (!id || !jinja_is(*id, JINJA_STR) || is_short_id(id->u.str)) return;
    uint64_t hash = jinja_hash(r, *id);
    for (size_t i = 0; i < CALL_ID_CHARS; i++) {
        text[i] = digits[hash % 62];
        hash /= 62;
    }
    *id = input_text(r, text);
}

struct jinja_value tok_chat_without(struct jinja_run *r, struct jinja_value object,
                                    const char *name)
{
    struct jinja_dict *d = jinja_dict_new(r);
    for (size_t i = 0; i < object.u.dict->n; i++) {
        const struct jinja_pair *p = &object.u.dict->pairs[i];
        if (!tok_chat_is_text(&p->key, name)) jinja_dict_put(r, d, p->key, p->value);
    }
    return jinja_tainted(jinja_from_dict(d), object.input);
}

static void prepare_calls(struct jinja_run *r, const struct tok_chat *c,
                          struct jinja_value *message)
{
    const struct jinja_value *calls = tok_chat_member(r, *message, "tool_calls");
    if (!calls) return;
    if (!jinja_truth(*calls)) /* templates ask whether it is there: null and [] would be calls */
        *message = tok_chat_without(r, *message, "tool_calls");
    if (!jinja_is(*calls, JINJA_LIST)) return;
    for (size_t i = 0; i < calls->u.list->n; i++) {
        struct jinja_value call = calls->u.list->items[i];
        struct jinja_value *function = tok_chat_member(r, call, "function");
        if (function && jinja_is(*function, JINJA_DICT)) prepare_function(r, c, function);
        if (c->caps.short_call_ids) shorten_id(r, tok_chat_member(r, call, "id"));
    }
}

/* Both names are in use; templates know the longer one. */
static void prepare_reasoning(struct jinja_run *r, struct jinja_value message)
{
    const struct jinja_value *reasoning = tok_chat_member(r, message, "reasoning");
    const struct jinja_value *known = tok_chat_member(r, message, "reasoning_content");
    if (reasoning && jinja_is(*reasoning, JINJA_STR) && (!known || jinja_is(*known, JINJA_NONE)))
        jinja_dict_put_name(r, message.u.dict, "reasoning_content", *reasoning);
}

/* Fields that speak to the server's cache: a template that prints an object as it is must not show
 * them, since clients move them from turn to turn. */
static void drop_cache_fields(struct jinja_run *r, struct jinja_value *object)
{
    static const char *const names[] = {"cache_control", "prompt_cache_breakpoint"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (tok_chat_member(r, *object, names[i])) *object = tok_chat_without(r, *object, names[i]);
}

static void prepare_message(struct jinja_run *r, const struct tok_chat *c,
                            struct jinja_value *message)
{
    if (!jinja_is(*message, JINJA_DICT)) return;
    const struct jinja_value *content = tok_chat_member(r, *message, "content");
    drop_cache_fields(r, message);
    if (content && jinja_is(*content, JINJA_LIST))
        for (size_t i = 0; i < content->u.list->n; i++)
            drop_cache_fields(r, &content->u.list->items[i]);
    struct jinja_value *role = tok_chat_member(r, *message, "role");
    bool developer = tok_chat_is_text(role, "developer");
    if (developer && c->needs.developer_as_system) *role = jinja_lit(r, "system");
    prepare_content(r, c, *message);
    prepare_reasoning(r, *message);
    prepare_calls(r, c, message);
    if (c->caps.short_call_ids) shorten_id(r, tok_chat_member(r, *message, "tool_call_id"));
}

void tok_chat_prepare(struct jinja_run *r, const struct tok_chat *c, struct jinja_value messages)
{
    for (size_t i = 0; i < messages.u.list->n; i++)
        prepare_message(r, c, &messages.u.list->items[i]);
}
