/* SPDX-License-Identifier: MIT */
/*
 * Prefix cache fields of requests and answers: breakpoints (cache_control,
 * prompt_cache_breakpoint), prompt_cache_retention and _options, and the report of where the prompt
 * left what the cache holds.
 *
 * For that the texts of the request are found again in the prompt that the template made of them,
 * one after another. A text that the template has changed is not found: then the place of the next
 * one counts. Only numbers for the client come of it.
 *
 * Threads: text workers.
 */
#pragma once

#include "server/api/read/generation_fields.h"
#include "tokenizer/chat/chat.h"

enum { CHAT_MOST_ENDS = ENG_MAX_MARKS - 1 };

/* One text of the request in the prompt. */
struct cache_part {
    char path[64];     /* as "system[1]", "messages[3].content[0]" */
    size_t begin, end; /* bytes of the prompt */
    size_t skipped;    /* bytes of the text before them */
};

struct srv_cache_fields {
    const struct srv_body *body;
    bool reports; /* usage has cache_report */
    bool has_breakpoints;
    int64_t n_marked;      /* prompt tokens up to the last breakpoint */
    int64_t n_marked_hour; /* up to the last with a ttl of an hour */
    int marked_seconds;    /* the ttl of the others */
    bool keeps_all;        /* the whole prompt is wanted again as soon as that */
    enum eng_kv_disk_use disk;
    int64_t ends[CHAT_MOST_ENDS]; /* [n_ends] of chat_input_ends; if the model has states */
    int n_ends;
    const bool *dropped; /* of messages or items: which are not in the prompt; or NULL. Borrowed */
    struct cache_part *parts; /* [n_parts], in the request's arena; NULL without a report */
    int n_parts, n_front;     /* all; those of the system prompt */
};

/* Reads and checks the fields of a body, which is borrowed; params, which have been read, lose
 * cache_prompt if nothing of the prompt is to be cached. 0, or -1 after param_fail. */
int srv_cache_fields_read(struct srv_cache_fields *c, struct srv_request *req,
                          const struct srv_body *body, struct srv_gen_params *params);

/* Finds breakpoints and parts in the prompt, if the request has a use for them. 0, or -1 when out
 * of memory. */
int srv_cache_fields_place(struct srv_cache_fields *c, struct srv_request *req,
                           const struct tok_prompt *prompt, const int32_t *ids, int64_t n_ids);

enum { CACHE_CONTROL_MAX = 4 }; /* breakpoints on blocks and tools, as in Anthropic's API */

/*
 * The members cache_control of a Messages body: on system blocks, tools, blocks of content, blocks
 * inside results of tools, and on the body itself. Checks type and ttl of each, and their number,
 * in Anthropic's words. 0, or -1 after param_fail.
 */
int cache_control_check(const json_t *body);
