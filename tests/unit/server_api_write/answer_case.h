/* SPDX-License-Identifier: MIT */
/*
 * A generation that is over, or as far as a test says, and what a dialect writes of it. One at a time. The token with id n
 * stands for the n-th letter from 'a' on; the two of E_ACUTE for the halves of one. The test is linked with --wrap=eng_info
 * and --wrap=tok_token_bytes.
 */
#pragma once

#include "open_request.h"
#include "server/api/run/generation.h"
#include "server/api/write/dialects.h"

enum { ANSWER_CHOICES = 3, ANSWER_PARTS = 5, ANSWER_TOKENS = 40, E_ACUTE = 26, NO_TEXT = 28 };

static struct {
    struct srv_gen g;
    struct srv_gen_format format;
    struct gen_prompt prompt;
    struct gen_choice choices[ANSWER_CHOICES];
    struct choice_part parts[ANSWER_CHOICES][ANSWER_PARTS];
    struct gen_record records[ANSWER_CHOICES][ANSWER_TOKENS], prompt_records[ANSWER_TOKENS];
    struct eng_logprob tops[ANSWER_CHOICES][ANSWER_TOKENS], prompt_tops[ANSWER_TOKENS];
    uint32_t offsets[ANSWER_CHOICES][ANSWER_TOKENS];
    struct textout_stops stops;
} ac;

size_t __wrap_tok_token_bytes(const struct tok *t, int32_t id, char *buf, size_t size);

size_t __wrap_tok_token_bytes(const struct tok *t, int32_t id, char *buf, size_t size)
{
    const char byte = id == E_ACUTE ? '\xc3' : id == E_ACUTE + 1 ? '\xa9' : (char)('a' + id);
    (void)t;
    if (size) *buf = byte;
    return id != NO_TEXT;
}

/* An answer of one choice without text or tokens to the prompt "abc", of which one token was cached. */
static inline struct srv_gen *open_answer(const struct srv_gen_dialect *dialect)
{
    static const int32_t ids[] = {0, 1, 2};
    memset(&ac, 0, sizeof(ac));
    test_config = (struct srv_config){.reasoning_field = "reasoning_content"};
    snprintf(test_model.fingerprint, sizeof(test_model.fingerprint), "fp");
    ac.format.answer = dialect;
    ac.prompt = (struct gen_prompt){.ids = ids,
                                    .n_ids = 3,
                                    .choices = ac.choices,
                                    .stage = GEN_DONE,
                                    .usage = {.n_cached_tokens = 1, .n_written_tokens = 2}};
    ac.g = (struct srv_gen){.req = open_request(),
                            .served = &test_model,
                            .format = &ac.format,
                            .prompts = &ac.prompt,
                            .n_prompts = 1,
                            .n_choices = 1,
                            .n_candidates = 1,
                            .id = "id-1",
                            .created = 7,
                            .model = "demo"};
    ac.g.tools.served = &test_model;
    for (int k = 0; k < ANSWER_CHOICES; k++) {
        struct gen_choice *c = &ac.choices[k];
        *c = (struct gen_choice){.index = k,
                                 .prompt = &ac.prompt,
                                 .parts = ac.parts[k],
                                 .offsets = ac.offsets[k],
                                 .finish_reason = "stop"};
        c->log = (struct gen_log){.records = ac.records[k],
                                  .tops = ac.tops[k],
                                  .capacity = ANSWER_TOKENS,
                                  .top_width = 1};
        c->text.stops = &ac.stops;
        c->stop_id = -1;
        buf_init(&c->text.text, 1 << 20);
    }
    return &ac.g;
}

static inline void close_answer(struct srv_gen *g)
{
    for (int k = 0; k < ANSWER_CHOICES; k++)
        buf_finish(&ac.choices[k].text.text);
    close_request(g->req);
}

/* Logs the prompt's tokens after the first as add_tokens does. */
static inline void log_prompt(void)
{
    ac.prompt.log =
        (struct gen_log){.records = ac.prompt_records, .tops = ac.prompt_tops, .top_width = 1};
    for (int i = 1; i < ac.prompt.n_ids; i++) {
        ac.prompt_records[i - 1] =
            (struct gen_record){.id = ac.prompt.ids[i], .logprob = -1, .n_top = 1};
        ac.prompt_tops[i - 1] = (struct eng_logprob){ac.prompt.ids[i] - 1, -0.5f};
    }
}

/* Appends a part with its text. */
static inline struct choice_part *add_part(struct gen_choice *c, enum choice_kind kind,
                                           const char *text)
{
    struct choice_part *part = &c->parts[c->n_parts++];
    *part = (struct choice_part){
        .kind = kind, .from = (uint32_t)c->text.text.len, .ended = true, .complete = true};
    if (kind == CHOICE_CALL) part->call = c->n_calls++;
    buf_puts(&c->text.text, text);
    c->text.n_released = c->text.text.len;
    return part;
}

static inline void add_call(struct gen_choice *c, const char *name, const char *arguments)
{
    struct choice_part *part = add_part(c, CHOICE_CALL, arguments);
    snprintf(part->name, sizeof(part->name), "%s", name);
    snprintf(part->id, sizeof(part->id), "call56789");
}

/* Appends tokens, each with the log-probability -1, and -0.5 for the token before it in the alphabet. They begin at the
 * end of the text, which gets theirs. */
static inline void add_tokens(struct gen_choice *c, const int32_t *ids, int n)
{
    for (int i = 0; i < n; i++) {
        int64_t at = c->n_tokens++;
        c->log.records[at] = (struct gen_record){.id = ids[i], .logprob = -1, .n_top = 1};
        c->log.tops[at] = (struct eng_logprob){ids[i] - 1, -0.5f};
        c->offsets[at] = (uint32_t)c->text.text.len;
        if (!c->n_parts) add_part(c, CHOICE_CONTENT, "");
        char text[2];
        buf_add(&c->text.text, text, __wrap_tok_token_bytes(NULL, ids[i], text, 1));
    }
    c->n_showable = c->n_eventable = c->n_placed = c->n_tokens;
    c->log.n_written = c->log.n_read = c->n_tokens;
    c->text.n_released = c->text.text.len;
}

/* Compares, and frees the answer. Expected: with ' for ", which is easier to read. */
static inline void check_text(char *answer, const char *expected)
{
    char *text = strdup(expected);
    REQUIRE(text);
    for (char *p = text; *p; p++)
        if (*p == '\'') *p = '"';
    REQUIRE_EQ_STR(answer, text);
    free(text);
    free(answer);
}

/* An event of the text [from, to) and the tokens [token_from, token_to). */
static inline void send_delta(struct srv_gen *g, struct gen_choice *c,
                              const struct choice_part *part, size_t from, size_t to,
                              int64_t token_from, int64_t token_to)
{
    c->n_sent = from;
    c->n_shown = token_from;
    g->format->answer->stream_delta(g, c, part, to, token_to);
}

/* The whole answer to the one prompt. */
static inline void check_whole(struct srv_gen *g, const char *expected)
{
    const struct srv_gen_dialect *d = g->format->answer;
    struct gen_cursor at = {.begun = true};
    struct buf b;
    buf_init(&b, 1 << 20);
    jw_init(&at.w, &b);
    if (d->head) d->head(g, &at.w);
    for (; d->choice && at.choice < g->n_choices; at.choice++) {
        while (!d->choice(g, &at.w, &g->prompts->choices[at.choice], &at))
            ;
        at.part = 0;
        at.at = 0;
    }
    while (!d->tail(g, &at.w, &at))
        ;
    buf_add(jw_end(&at.w), "", 1);
    REQUIRE(!b.failed);
    check_text(b.data, expected);
}

/* The events written since the last call, without what separates them. */
static inline void check_events(struct srv_gen *g, const char *expected)
{
    check_text(take_answer(g->req), expected);
}
