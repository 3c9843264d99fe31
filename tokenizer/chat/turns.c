/* SPDX-License-Identifier: MIT */
/*
 * Messages in the number and order that this model's template takes (probe.c): instructions before
 * the conversation, system messages between the turns, and neighbours of one role. Texts are joined
 * by words of the server; everything else stays marked as text of the request.
 */
#include <string.h>

#include "tokenizer/chat/chat_internal.h"
#include "tokenizer/template/dict.h"

static bool is_instruction(struct jinja_run *r, struct jinja_value message)
{
    return tok_chat_has_role(r, message, "system") || tok_chat_has_role(r, message, "developer");
}

static void add_text(struct jinja_run *r, struct jinja_sb *sb, struct jinja_value message)
{
    jinja_sb_add(sb, tok_chat_content_text(r, tok_chat_member(r, message, "content")).u.str);
}

/* The text so far becomes the content of a message; the next one begins. */
static void set_text(struct jinja_run *r, struct jinja_sb *sb, struct jinja_value message)
{
    jinja_dict_put_name(r, message.u.dict, "content", jinja_sb_value(sb));
    *sb = (struct jinja_sb){.r = r};
}

/* A member of `message` becomes its text, a blank line, and the text of that member of `next`. */
static void join_member(struct jinja_run *r, struct jinja_value message, struct jinja_value next,
                        const char *name)
{
    const struct jinja_value *first = tok_chat_member(r, message, name),
                             *second = tok_chat_member(r, next, name);
    const struct jinja_str *added = tok_chat_content_text(r, second).u.str;
    if (!added->len) return;
    struct jinja_sb sb = {.r = r};
    const struct jinja_str *text = tok_chat_content_text(r, first).u.str;
    jinja_sb_add(&sb, text);
    if (text->len) jinja_sb_add_lit(&sb, "\n\n");
    jinja_sb_add(&sb, added);
    jinja_dict_put_name(r, message.u.dict, name, jinja_sb_value(&sb));
}

/* ---- instructions before the conversation -------------------------------------------------- */

/* Those that the template does not show each in its place become one. */
static void join_instructions(struct jinja_run *r, const struct tok_chat *c, struct jinja_list *l)
{
    size_t n = 0, i = 0;
    for (int before = 0, role; i < l->n && is_instruction(r, l->items[i]); i++) {
        role = tok_chat_has_role(r, l->items[i], "developer") && !c->needs.developer_as_system;
        if (n > 0 && c->needs.joined[before][role]) {
            join_member(r, l->items[n - 1], l->items[i], "content");
        } else {
            l->items[n++] = l->items[i];
            before = role;
        }
    }
    if (i == n) return;
    memmove(l->items + n, l->items + i, (l->n - i) * sizeof(*l->items));
    l->n -= i - n;
}

/* They become the beginning of the first text of the user, or of the last. */
static void move_instructions(struct jinja_run *r, struct jinja_list *l, bool last)
{
    size_t user = 0;
    if (!l->n || !is_instruction(r, l->items[0])) return;
    for (size_t i = 1; i < l->n && (last || !user); i++)
        if (tok_chat_has_role(r, l->items[i], "user")) user = i;
    struct jinja_value first = l->items[0], with = l->items[user];
    if (user) join_member(r, first, with, "content");
    jinja_dict_put_name(r, with.u.dict, "role", jinja_lit(r, "user"));
    jinja_dict_put_name(r, with.u.dict, "content",
                        tok_chat_content_text(r, tok_chat_member(r, first, "content")));
    if (!user) return;
    l->n--;
    memmove(l->items, l->items + 1, l->n * sizeof(*l->items));
}

/* ---- system messages between the turns ----------------------------------------------------- */

/* Reminders that no user's text follows go after the last one's, or become a message. */
static void end_with_reminders(struct jinja_run *r, struct jinja_list *l,
                               struct jinja_sb *reminders)
{
    if (l->n && tok_chat_has_role(r, l->items[l->n - 1], "user")) {
        struct jinja_value last = l->items[l->n - 1];
        struct jinja_sb sb = {.r = r};
        add_text(r, &sb, last);
        jinja_sb_add_lit(&sb, "\n");
        jinja_sb_add(&sb, jinja_sb_value(reminders).u.str);
        set_text(r, &sb, last);
        return;
    }
    struct jinja_value message = jinja_from_dict(jinja_dict_new(r));
    jinja_dict_put_name(r, message.u.dict, "role", jinja_lit(r, "user"));
    set_text(r, reminders, message);
    jinja_list_add(r, l, message);
}

/*
 * For templates that have no place for them there: they become text of the next user's, so that
 * everything before them stays as it was rendered.
 */
static void join_reminders(struct jinja_run *r, struct jinja_list *l)
{
    struct jinja_sb reminders = {.r = r};
    size_t n = 0, n_in = l->n;
    bool begun = false, any = false;
    for (size_t i = 0; i < n_in; i++) {
        struct jinja_value m = l->items[i];
        bool system = is_instruction(r, m);
        begun = begun || !system;
        if (system && begun) {
            jinja_sb_add_lit(&reminders, "<system-reminder>\n");
            add_text(r, &reminders, m);
            jinja_sb_add_lit(&reminders, "\n</system-reminder>\n");
            any = true;
            continue;
        }
        if (any && tok_chat_has_role(r, m, "user")) {
            add_text(r, &reminders, m);
            set_text(r, &reminders, m);
            any = false;
        }
        l->items[n++] = m;
    }
    l->n = n;
    if (any) end_with_reminders(r, l, &reminders);
}

/* ---- neighbours of one role ---------------------------------------------------------------- */

static bool has_calls(struct jinja_run *r, struct jinja_value message)
{
    const struct jinja_value *calls = tok_chat_member(r, message, "tool_calls");
    return calls && jinja_truth(*calls);
}

static bool are_joined(struct jinja_run *r, const struct tok_chat *c, struct jinja_value message,
                       struct jinja_value next)
{
    if (tok_chat_has_role(r, message, "user") && tok_chat_has_role(r, next, "user"))
        return c->needs.one_user;
    return c->needs.one_assistant && tok_chat_has_role(r, message, "assistant") &&
           tok_chat_has_role(r, next, "assistant") && !has_calls(r, message) && !has_calls(r, next);
}

static void join_neighbours(struct jinja_run *r, const struct tok_chat *c, struct jinja_list *l)
{
    static const char *const texts[] = {"content", "reasoning_content", "reasoning"};
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (n == 0 || !are_joined(r, c, l->items[n - 1], l->items[i])) {
            l->items[n++] = l->items[i];
            continue;
        }
        for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++)
            join_member(r, l->items[n - 1], l->items[i], texts[k]);
    }
    l->n = n;
}

void tok_chat_arrange(struct jinja_run *r, const struct tok_chat *c, struct jinja_value messages)
{
    struct jinja_list *l = messages.u.list;
    join_instructions(r, c, l);
    if (c->needs.reminders) join_reminders(r, l);
    join_neighbours(r, c, l);
    bool user_last = l->n && tok_chat_has_role(r, l->items[l->n - 1], "user");
    if (c->needs.no_system) move_instructions(r, l, false);
    if (c->needs.with_last_user && !user_last) move_instructions(r, l, true);
}
