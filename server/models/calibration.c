/* SPDX-License-Identifier: MIT */
/*
 * The text on which weights of four bits are calibrated: eight kinds of writing, a question and its
 * answer through the model's chat template. Another text would change all answers of int4.
 */
#include <string.h>

#include "base/auto.h"
#include "server/models/served_model.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

static const char messages[] =
    "[{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}, {\"role\": \"assistant\", "
    "\"content\": \"Air scatters short waves of light more than long ones, so blue reaches us from "
    "every side.\"}]";

static const char text[] =
    "Two men carried nets to their boat while gulls waited on the harbour wall, and nobody "
    "spoke.\n\n"
    "def mean(values):\n    total = sum(values)\n    return total / len(values) if values else "
    "None\n\n"
    "To bake bread you need:\n1. 500 g of flour\n2. 350 ml of water\n\n"
    "{\"name\": \"Anna\", \"age\": 42, \"tags\": [\"new\"], \"price\": 19.75}\n\n"
    "Der Zug nach Hamburg hat heute Versp\xc3\xa4tung, weil es schneit.\n\n"
    "La biblioteca abre a las nueve y los ni\xc3\xb1os llevan tres libros.\n";

/* Appends the ids of a text as far as there is room. */
static int append(const struct tok *tok, const char *s, unsigned flags, int32_t *ids, int n,
                  int max)
{
    AUTO(tok_ids_finish) struct tok_ids more = {0};
    char err[64];
    if (!tok_encode(tok, s, strlen(s), flags, &more, err, sizeof(err)))
        for (size_t i = 0; i < more.n && n < max; i++)
            ids[n++] = more.ids[i];
    return n;
}

int srv_calibration_ids(const struct tok *tok, const struct tok_chat *chat, int32_t *ret_ids,
                        int max)
{
    const struct tok_chat_input in = {.messages = messages};
    AUTO(tok_prompt_finish) struct tok_prompt prompt = {0};
    char err[64];
    bool renders = chat && !tok_chat_render(chat, &in, &prompt, err, sizeof(err));
    int n = renders ? append(tok, prompt.text, TOK_PARSE_SPECIAL, ret_ids, 0, max) : 0;
    return append(tok, text, n ? 0 : TOK_ADD_SPECIAL, ret_ids, n, max);
}
