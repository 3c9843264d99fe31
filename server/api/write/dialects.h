/* SPDX-License-Identifier: MIT */
/* How each dialect writes its answers. */
#pragma once

#include "server/api/run/generation.h"

extern const struct srv_gen_dialect srv_write_chat, srv_write_completions, srv_write_messages,
    srv_write_native, srv_write_ollama, srv_write_responses;

/* A prompt of completions as it is echoed. */
struct completion_echo {
    const char *text;
    size_t len;
    bool is_text;         /* not ids: special tokens that were added are left out */
    int64_t n_characters; /* code points of the text; 0 unless it is echoed */
    uint32_t *starts;     /* [n_ids] code points before each token; NULL unless they are shown */
};

/* srv_gen.dialect of completions. */
struct completion {
    struct completion_echo *echoes; /* [n_prompts] */
    bool cut;                       /* the prompt, to make it fit */
};

/* srv_gen.dialect of Responses: what an answer repeats of its request. */
struct response_echo {
    struct srv_span tools, metadata;                 /* JSON */
    struct srv_span instructions;                    /* plain text; text NULL: none */
    const char *prompt_cache_retention, *truncation; /* NULL: not sent; "auto" or "disabled" */
};

/* Text of a generation, while it comes, to the events or the answer of its format. */
extern const struct srv_gen_writer srv_gen_output;

/* Answers in Ollama's dialect without generating: an empty line that ends for this reason. */
void srv_write_ollama_reason(struct srv_gen *g, const char *reason);
