/* SPDX-License-Identifier: MIT */
/*
 * The tools and the reasoning of one generation: what its body says of them, together with how the
 * model writes them. In between are the prompt (chat_input.h), the guide (guide.h) and the parts of
 * the answer (choice_text.h), which take what they need from here.
 *
 * Threads: the text worker that holds the request. Lives in the request's memory, zeroed at first.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "server/api/read/json_fields.h"
#include "server/api/read/tools_fields.h"
#include "tokenizer/tools/tools.h"

struct srv_model;

struct srv_tools {
    const struct srv_model *served; /* NULL: the endpoint knows no tools */
    struct tools_ask ask;
    enum tools_thinking thinking;
    const char *effort;                        /* a word, or NULL */
    int64_t think_budget;                      /* tokens, or one of the values below */
    const char *thinking_field, *budget_field; /* that said so, or NULL */
    bool no_reasoning;                         /* reasoning_format: none */
    bool active;     /* the answer may hold calls: there are tools, and the choice allows them */
    bool can_reason; /* answers of the model have reasoning of their own */
    /* Of srv_tools_set_prompt: */
    bool think_open, begun;       /* how the prompt ends */
    bool may_think;               /* the answer may begin with reasoning, or go on with it */
    struct tools_request request; /* as tokenizer/tools takes it; borrows */
    struct tools_set *set;        /* owned, of the run; NULL: the text is not told apart */
    uint8_t random[16];           /* that ids of calls are made of */
};

enum { SRV_THINK_UNSAID = -2, SRV_THINK_ANY = -1 };

/*
 * Reads the tools and the fields of reasoning, and notes words that change nothing in this model's
 * prompts. Returns 0, or -1 after param_fail.
 */
int srv_tools_read(struct srv_tools *t, const struct srv_model *model, enum tools_dialect dialect,
                   const struct srv_body *body, struct param_unknown *ignored);

/* Sets how the prompt ends, and what follows from it. */
void srv_tools_set_prompt(struct srv_tools *t, const struct tools_prompt *prompt);

/* A zeroed one is fine. */
void srv_tools_release(struct srv_tools *t);
