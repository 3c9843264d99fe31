/* SPDX-License-Identifier: MIT */
/*
 * The tools and the reasoning of one generation: what its body says of them, together with how the
 * model writes them. In between are the prompt (chat_input.h), the guide (guide.h) and the parts of
 * the answer (choice_text.h), which take what they need from here.
 *
 * Threads: the text worker that holds the request. Lives in the request's memory, zeroed at first.
 */
#ifndef HEARTH_SERVER_API_READ_TOOLS_REQUEST_H
#define HEARTH_SERVER_API_READ_TOOLS_REQUEST_H

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
    const char *effort;                   /* a word, or NULL */
    int64_t think_budget;                 /* tokens, or one of the values below */
    bool no_reasoning;                    /* reasoning_format: none */
    bool think_open, think_closed, begun; /* how the prompt ends: set with it */
    struct tools_set *set;                /* owned, of the run; NULL: the text is not told apart */
    uint8_t random[16];                   /* that ids of calls are made of */
};

enum { SRV_THINK_UNSAID = -2, SRV_THINK_ANY = -1 };

/*
 * Reads the tools and the fields of reasoning, and notes words that change nothing in this model's
 * prompts. Returns 0, or -1 with err.
 */
int srv_tools_read(struct srv_tools *t, const struct srv_model *model, enum tools_dialect dialect,
                   const struct srv_body *body, struct param_unknown *ignored,
                   struct param_error *err);

/* Returns true if the answer may hold calls: there are tools, and the choice allows them. */
static inline bool srv_tools_active(const struct srv_tools *t)
{
    return t->ask.n > 0 && t->ask.choice != TOOLS_CHOICE_NONE;
}

/* Returns true if answers of the model have reasoning of their own. */
bool srv_tools_can_reason(const struct srv_tools *t);

/* Returns true if an answer behind this prompt may begin with reasoning, or go on with it. */
static inline bool srv_tools_may_think(const struct srv_tools *t)
{
    return srv_tools_can_reason(t) && (t->think_open || !(t->begun || t->think_closed));
}

/* The request as tokenizer/tools takes it; borrows from t. */
struct tools_request srv_tools_request(const struct srv_tools *t);

/* A zeroed one is fine. */
void srv_tools_release(struct srv_tools *t);

#endif
