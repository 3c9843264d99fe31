/* SPDX-License-Identifier: MIT */
/*
 * Inside of struct tok_chat: what open.c, template_files.c (loading), probe.c (finding
 * out what a template needs), turns.c and prepare.c (giving it that) and render.c share.
 */
#pragma once

#include "tokenizer/chat/chat.h"
#include "tokenizer/template/template.h"

/* The form of messages that a template needs, besides the public caps. */
struct tok_chat_needs {
    bool developer_as_system; /* the developer role is not one that the template knows */
    bool no_system;           /* the system role is refused or dropped */
    bool with_last_user; /* it comes out if the last message is the user's, and is dropped else */
    bool one_user;       /* a user message after another is refused or dropped */
    bool one_assistant;  /* likewise of the assistant */
    /* Of two instructions before the conversation, by role (0 system, 1 developer), the template
     * does not show each in its place. */
    bool joined[2][2];
    bool only_parts; /* content must be a list of parts */
    bool reminders;  /* system messages between the turns are refused, dropped or moved elsewhere */
};

struct tok_chat {
    struct jinja_template *plain;      /* the default template */
    struct jinja_template *with_tools; /* the one named tool_use, or NULL; plain may then be NULL */
    char *variables;                   /* special tokens, a JSON object */
    size_t max_output_bytes, max_memory_bytes;
    uint64_t max_steps;
    unsigned max_cpu_ms;
    struct tok_chat_caps caps;
    struct tok_chat_needs needs;
    bool has_another; /* of tok_chat_has_another */
    char file[64];    /* of tok_chat_file */
};

/* Template sources and special tokens of a model directory. Owned: tok_chat_files_finish. */
struct tok_chat_files {
    char *plain; /* template source, or NULL */
    char *with_tools;
    char *variables;
    const char *plain_file, *tools_file; /* names of their files */
    bool has_another;                    /* of tok_chat_has_another */
};

int tok_chat_files_read(struct tok_chat_files *ret, const char *dir,
                        const struct tok_chat_params *params, char *err, size_t errlen);
void tok_chat_files_finish(struct tok_chat_files *f);

/* Fills caps and needs by rendering small conversations. Fails only when out of memory. */
int tok_chat_probe(struct tok_chat *c);

/* Joins and moves messages (a list, changed in place) until the template has a place for each. Runs
 * in a guard, before tools are written. */
void tok_chat_arrange(struct jinja_run *r, const struct tok_chat *c, struct jinja_value messages);

/* Brings messages (a list, changed in place) to what the template needs. Runs in a guard. */
void tok_chat_prepare(struct jinja_run *r, const struct tok_chat *c, struct jinja_value messages);

/* Puts tools, calls and results into messages as text (a list; the new one is returned). */
struct jinja_value tok_chat_write_tools(struct jinja_run *r, struct jinja_value messages,
                                        const struct tok_chat_tool_writing *writing,
                                        bool system_role);

/* A member of a value, NULL where it is not an object or has none. */
struct jinja_value *tok_chat_member(struct jinja_run *r, struct jinja_value object,
                                    const char *name);
/* A copy of an object without a member. */
struct jinja_value tok_chat_without(struct jinja_run *r, struct jinja_value object,
                                    const char *name);
/* True if v is this string. */
bool tok_chat_is_text(const struct jinja_value *v, const char *text);
/* The text of a content: of parts one per line, of anything else as it prints; "" for none. */
struct jinja_value tok_chat_content_text(struct jinja_run *r, const struct jinja_value *content);
/* An object, or the object that a JSON text is; false where it is neither. */
bool tok_chat_as_object(struct jinja_run *r, struct jinja_value v, struct jinja_value *ret);
bool tok_chat_has_role(struct jinja_run *r, struct jinja_value message, const char *role);
/* As json.dumps writes it. */
struct jinja_value tok_chat_json(struct jinja_run *r, struct jinja_value v);

/* Roles of the API are names the server itself has checked: they count as the template's text. */
void tok_chat_trust_roles(struct jinja_run *r, struct jinja_value messages);
