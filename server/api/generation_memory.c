/* SPDX-License-Identifier: MIT */
/* The memory of a generation's logs; see generation.h. Called on text workers. */
#include <assert.h>
#include <stdlib.h>

#include "server/api/generation.h"

enum { CHOICE_BYTES = 1024 }; /* of a choice besides its logs and text: its struct and decoder */

_Static_assert(sizeof(struct gen_choice) <= CHOICE_BYTES - 256,
               "CHOICE_BYTES covers the decoder too");

int64_t srv_gen_token_capacity(const struct srv_gen *g, const struct gen_prompt *p)
{
    int64_t room = eng_info(g->app->engine)->ctx_tokens - p->n_ids + 1;
    return g->max_tokens < room ? g->max_tokens : room;
}

static int64_t prompt_log_capacity(const struct srv_gen *g, const struct gen_prompt *p)
{
    return g->params.prompt_logprobs >= 0 ? p->n_ids : 0;
}

static int64_t steps_bytes(const struct srv_gen *g, const struct gen_prompt *p)
{
    return srv_gen_reports_progress(g) ? p->n_ids * (int64_t)sizeof(struct gen_step) : 0;
}

/* No overflow: prompts and contexts are far below 2^40 tokens. */
static int64_t prompt_bytes(const struct srv_gen *g, const struct gen_prompt *p)
{
    int64_t choice = choice_text_bytes(srv_gen_token_capacity(g, p), g->params.logprobs_count);
    return choice_log_bytes(prompt_log_capacity(g, p), g->params.prompt_logprobs) +
           steps_bytes(g, p) + g->n_candidates * (choice + CHOICE_BYTES);
}

static long long mib(int64_t bytes)
{
    return (long long)((bytes + (1 << 20) - 1) >> 20);
}

int srv_gen_charge(struct srv_gen *g, struct param_error *err)
{
    int64_t bytes = 0, used = 0, limit = eng_info(g->app->engine)->memory.answer_bytes;
    for (int i = 0; i < g->n_prompts; i++)
        bytes += prompt_bytes(g, &g->prompts[i]);
    if (bytes > limit)
        return param_fail(
            err, SRV_ERR_TOO_LARGE, NULL,
            "The answer may take %lld MiB of memory (%d prompts, %d choices each, up "
            "to %lld tokens per choice, %d log-probabilities per token), but this server "
            "has %lld MiB for all answers.",
            mib(bytes), g->n_prompts, g->n_candidates,
            (long long)srv_gen_token_capacity(g, &g->prompts[0]), (int)g->params.logprobs_count + 1,
            mib(limit));
    if (srv_request_charge(g->req, bytes, &used)) return 0;
    return param_fail(err, SRV_ERR_QUEUE_FULL, NULL,
                      "The answer may take %lld MiB of memory, but answers under way hold %lld of "
                      "the %lld MiB there are.",
                      mib(bytes), mib(used), mib(limit));
}

/* Zero pages from the system: of the logs only what is used becomes resident. */
int srv_gen_prepare(struct srv_gen *g, struct gen_prompt *p)
{
    int64_t bytes = prompt_bytes(g, p);
    p->choices = srv_request_alloc(g->req, (size_t)g->n_candidates * sizeof(*p->choices));
    p->memory = calloc(1, (size_t)bytes);
    if (!p->choices || !p->memory) return -1;
    char *at = p->memory;
    choice_log_init(&p->log, prompt_log_capacity(g, p), g->params.prompt_logprobs, &at);
    for (int k = 0; k < g->n_candidates; k++) {
        struct gen_choice *c = &p->choices[k];
        c->index = (int)(p - g->prompts) * g->n_choices + k;
        if (choice_text_init(c, &g->rules, p->ids, p->n_ids, srv_gen_token_capacity(g, p),
                             g->params.logprobs_count, &at))
            return -1;
    }
    if (srv_gen_reports_progress(g)) p->steps = (struct gen_step *)(void *)at;
    at += steps_bytes(g, p);
    assert(at - p->memory <= bytes);
    return 0;
}
