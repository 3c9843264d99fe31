/* SPDX-License-Identifier: MIT */
/* Records to text; see choice_text.h. */
#include "server/api/choice_text.h"

#include <assert.h>

#include "tokenizer/tokenizer.h"

enum { PRIME_TOKENS = 8 };

static int64_t offsets_bytes(int64_t capacity)
{
    return (capacity * (int64_t)sizeof(uint32_t) + 15) / 16 * 16;
}

int64_t choice_text_bytes(int64_t capacity, int64_t n_top)
{
    return choice_log_bytes(capacity, n_top) + offsets_bytes(capacity);
}

int choice_text_init(struct gen_choice *c, const struct choice_rules *rules, const int32_t *prompt,
                     int64_t n_prompt, int64_t capacity, int64_t n_top, char **at)
{
    c->stop_id = -1;
    textout_init(&c->text, &rules->stops, rules->include_stop, CHOICE_TEXT_MAX_BYTES);
    choice_log_init(&c->log, capacity, n_top, at);
    c->offsets = (uint32_t *)(void *)*at;
    *at += offsets_bytes(capacity);
    int rc = tok_decoder_create(&c->decoder, rules->tok, rules->skip_special);
    /* The decoder sees the prompt's last tokens first, so that a space mark in front of the answer
     * stays. */
    int64_t from = n_prompt > PRIME_TOKENS ? n_prompt - PRIME_TOKENS : 0;
    const char *text;
    size_t len;
    for (int64_t i = from; !rc && i < n_prompt; i++)
        rc = tok_decoder_push(c->decoder, prompt[i], &text, &len);
    return rc ? -1 : 0;
}

void choice_text_finish(struct gen_choice *c)
{
    textout_finish(&c->text);
    tok_decoder_destroy(c->decoder);
    c->decoder = NULL;
}

static bool is_stop_id(const struct choice_rules *rules, int32_t id)
{
    for (int list = 0; list < 2; list++)
        for (int i = 0; i < rules->n_ids[list]; i++)
            if (rules->ids[list][i] == id) return true;
    return false;
}

/* Makes text of what the decoder still holds (an incomplete UTF-8 sequence). */
static void flush_decoder(struct gen_choice *c, bool armed)
{
    const char *text = "";
    size_t len = 0;
    if (!tok_decoder_flush(c->decoder, &text, &len)) textout_push(&c->text, text, len, armed);
}

static void end_choice(struct gen_choice *c, const char *reason)
{
    assert(!c->ended);
    bool stopped = c->text.stop_index >= 0;
    c->ended = true;
    c->finish_reason = stopped ? "stop" : reason;
    if (stopped) c->stop_string = c->text.stops->stop[c->text.stop_index].text;
    textout_flush(&c->text);
    tok_decoder_destroy(c->decoder);
    c->decoder = NULL;
}

/* Returns true if the token completes a stop string. */
static bool take_record(struct gen_choice *c, const struct choice_rules *rules, int64_t at)
{
    const struct gen_record *record = &c->log.records[at];
    bool armed = at >= rules->min_tokens;
    assert(at == c->n_tokens && at < c->log.capacity);
    c->offsets[at] = (uint32_t)c->text.text.len;
    c->n_tokens = at + 1;
    c->sum_logprob += record->logprob;
    /* Decided by the id itself: the engine's CHOICE_DONE may come after the token. */
    bool is_stop = is_stop_id(rules, record->id);
    if (is_stop) c->stop_id = record->id;
    if (is_stop && !rules->include_stop) {
        flush_decoder(c, armed);
        end_choice(c, "stop");
        return false;
    }
    const char *text = "";
    size_t len = 0;
    if (tok_decoder_push(c->decoder, record->id, &text, &len)) return false;
    bool stopped = textout_push(&c->text, text, len, armed);
    if (stopped || is_stop) end_choice(c, "stop");
    return stopped;
}

/* Reads the new records; returns true if a stop string was found. */
static bool read_log(struct gen_choice *c, const struct choice_rules *rules)
{
    bool stopped = false;
    int finish = atomic_load_explicit(&c->finish, memory_order_acquire);
    int64_t n = atomic_load_explicit(&c->log.n_written, memory_order_acquire);
    assert(c->log.n_read <= n && n <= c->log.capacity);
    for (; c->log.n_read < n; c->log.n_read++)
        if (!c->ended) stopped |= take_record(c, rules, c->log.n_read);
    if (c->ended || !finish || finish == ENG_FINISH_CANCELLED) return stopped;
    flush_decoder(c, c->n_tokens >= rules->min_tokens);
    end_choice(c, finish == ENG_FINISH_STOP ? "stop" : "length");
    return false;
}

static int64_t showable_tokens(const struct gen_choice *c)
{
    int64_t n = c->n_shown;
    if (c->ended) {
        if (!c->stop_string) return c->n_tokens;
        while (n < c->n_tokens && c->offsets[n] < c->text.text.len)
            n++;
        return n;
    }
    while (n + 1 < c->n_tokens && c->offsets[n + 1] <= c->text.n_released)
        n++;
    if (n + 1 == c->n_tokens && c->text.text.len <= c->text.n_released) n++;
    return n;
}

static int64_t eventable_tokens(const struct gen_choice *c, int64_t n_showable)
{
    if (c->ended) return c->n_tokens;
    bool is_last = n_showable > 0 && n_showable == c->n_tokens;
    return is_last && c->offsets[n_showable - 1] == c->text.text.len ? n_showable - 1 : n_showable;
}

bool choice_text_advance(struct gen_choice *c, const struct choice_rules *rules)
{
    bool stopped = read_log(c, rules);
    c->n_showable = showable_tokens(c);
    c->n_eventable = eventable_tokens(c, c->n_showable);
    assert(c->n_shown <= c->n_tokens && c->n_showable <= c->n_tokens);
    return stopped;
}
