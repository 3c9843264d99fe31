/* SPDX-License-Identifier: MIT */
/*
 * The tools of a request and what it says of their use, in the spellings of chat completions,
 * Responses and Messages.
 *
 * Schemas are taken from the text of the body, not from the parsed tree: the order of their keys
 * counts, and their integers may have any size.
 *
 * Threads: pure; each call works on its caller's data.
 */
#pragma once

#include <stdbool.h>

#include <jansson.h>

#include "base/buf.h"
#include "server/api/read/json_fields.h"
#include "tokenizer/tools/tools.h"

enum { TOOLS_TEXT_MAX = 1 << 20 }; /* bytes of all tools of a request */

enum tools_dialect {
    TOOLS_NO_DIALECT, /* the endpoint has no tools */
    TOOLS_CHAT,
    TOOLS_RESPONSES,
    TOOLS_MESSAGES,
};

/* The place of a tool in the request. */
struct tools_place {
    int index, inner;         /* in 'tools', and in a namespace's own 'tools' or -1 */
    const char *space, *name; /* the namespace, or NULL, and its name there; borrowed */
    char pointer[32];         /* "/tools/0", "/tools/0/tools/1" */
    char full[TOOLS_MAX_NAME + 1];
};

struct tools_ask {
    enum tools_dialect dialect;
    int n;                      /* tools of the request, without those that were dropped */
    struct tools_tool *tools;   /* [n], owned; of a namespace by the name NAMESPACE__NAME */
    struct tools_place *places; /* [n], owned */
    struct buf list;            /* [{"name", "description"?, "parameters" as sent?}], JSON; owned */
    enum tools_choice choice;
    bool once;                   /* a function is named: exactly one call of it */
    bool parallel;               /* more than one call in an answer */
    struct srv_span choice_text; /* as received; text NULL: absent */
};

/*
 * Reads tools, tool_choice and parallel_tool_calls. body is borrowed until tools_ask_finish. Tools
 * that are not functions are dropped and noted. Returns 0 or -1 after param_fail. tools_ask_finish
 * is due in both cases.
 */
int tools_ask_read(struct tools_ask *a, enum tools_dialect dialect, const struct srv_body *body,
                   struct param_unknown *ignored);
/* The place of the tool that a call names; NULL: there is none. */
const struct tools_place *tools_ask_place(const struct tools_ask *a, const char *name);

/* A zeroed one is fine. */
void tools_ask_finish(struct tools_ask *a);

/*
 * Refuses the tool whose schema a pointer ("/tools/0/properties/x") leads into, or all of them: the
 * message follows the path in the dialect's words. Returns -1.
 */
int tools_ask_refuse_schema(const struct tools_ask *a, const char *pointer, const char *message);
