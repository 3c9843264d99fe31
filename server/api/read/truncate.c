/* SPDX-License-Identifier: MIT */
#include "server/api/read/truncate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "engine/engine.h"
#include "server/models/served_model.h"

enum { MOST_GUESSES = 6 }; /* then halves */

/* A place where a conversation may be cut. */
struct cut {
    size_t first; /* the first message that stays of those that may go */
    size_t bytes; /* of text in the messages that go */
};

struct search {
    const struct srv_model *model;
    const struct chat_input *in;
    const json_t *messages;
    size_t n, last_user;
    struct cut *cuts; /* [n_cuts] where turns begin, then rounds of the last one */
    size_t n_turns, n_cuts;
    size_t n_bytes; /* of text in all messages */
    int64_t n_tokens, target;
    /* A cut that drops less than the target, or none. */
    size_t low_bytes;
    int64_t low_tokens;
};

/* ---- messages ------------------------------------------------------------------------------ */

static bool has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && !strcmp(own, role);
}

static bool instructs(const json_t *message)
{
    return has_role(message, "system") || has_role(message, "developer");
}

static size_t text_bytes(const json_t *value)
{
    const char *key;
    json_t *member;
    size_t n = json_string_length(value);
    for (size_t i = 0; json_is_array(value) && i < json_array_size(value); i++)
        n += text_bytes(json_array_get(value, i));
    json_object_foreach((json_t *)value, key, member) /* reads only */
        n += text_bytes(member);
    return n;
}

static bool is_kept(const struct search *s, size_t i, size_t first)
{
    return i >= first || i == s->last_user || instructs(json_array_get(s->messages, i));
}

/* A new reference. */
static json_t *kept_messages(const struct search *s, const struct cut *cut)
{
    json_t *kept = json_array();
    for (size_t i = 0; i < s->n; i++)
        if (is_kept(s, i, cut->first)) json_array_append(kept, json_array_get(s->messages, i));
    return kept;
}

/* ---- places -------------------------------------------------------------------------------- */

/*
 * Returns [n + 1], owned: for each message, how many results in it or behind it have their call
 * before it, less those of the message before. NULL: out of memory.
 */
static int *find_parted(const json_t *messages)
{
    int *parted = calloc(json_array_size(messages) + 1, sizeof(*parted));
    json_auto_t *callers = json_object(); /* id -> the message of the last call that has it */
    for (size_t i = 0; parted && i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i),
                     *calls = json_object_get(message, "tool_calls");
        const char *id = json_string_value(json_object_get(message, "tool_call_id"));
        const json_t *caller = id ? json_object_get(callers, id) : NULL;
        if (caller && has_role(message, "tool")) {
            parted[json_integer_value(caller) + 1]++;
            parted[i + 1]--;
        }
        for (size_t k = 0; json_is_array(calls) && k < json_array_size(calls); k++) {
            id = json_string_value(json_object_get(json_array_get(calls, k), "id"));
            if (id) json_object_set_new(callers, id, json_integer((json_int_t)i));
        }
    }
    return parted;
}

/* parted: [n + 1] of find_parted. */
static void find_cuts(struct search *s, const int *parted)
{
    size_t bytes = 0;
    int n_parted = 0;
    for (size_t i = 0; i < s->n; i++) {
        const json_t *message = json_array_get(s->messages, i);
        size_t own = text_bytes(message);
        bool calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
        bool begins =
            i <= s->last_user ? has_role(message, "user") : has_role(message, "assistant") && calls;
        n_parted += parted[i];
        if (begins && n_parted == 0 && bytes > 0) s->cuts[s->n_cuts++] = (struct cut){i, bytes};
        if (i <= s->last_user) s->n_turns = s->n_cuts;
        if (!instructs(message) && i != s->last_user) bytes += own;
        s->n_bytes += own;
    }
}

/* ---- the search ---------------------------------------------------------------------------- */

/* How many tokens less the prompt has. */
static int measure(const struct search *s, const struct cut *cut, int64_t *ret)
{
    AUTO(tok_prompt_finish) struct tok_prompt prompt = {0};
    AUTO(tok_ids_finish) struct tok_ids ids = {0};
    struct chat_input in = *s->in;
    json_auto_t *kept = kept_messages(s, cut);
    in.messages = kept;
    in.metadata = NULL;
    int rc = srv_json_ran_out() ? param_no_memory() : chat_input_make(s->model, &in, &prompt, &ids);
    *ret = s->n_tokens - (int64_t)ids.n;
    return rc;
}

/*
 * Finds the first of the cuts [from, to) that drops the target, `to` if none does. Bytes say where
 * to look: as many tokens for each as between the cuts measured so far. Of the cuts that drop less
 * s->low_ is then the last.
 */
static int find_first(struct search *s, size_t from, size_t to, size_t *ret)
{
    double rate = (double)s->n_tokens / (double)s->n_bytes;
    size_t high_bytes = 0;
    int64_t high_tokens = 0, tokens;
    for (int n = 0; from < to; n++) {
        double wanted = (double)s->low_bytes + (double)(s->target - s->low_tokens) / rate;
        size_t at = n < MOST_GUESSES ? from : from + (to - from) / 2;
        while (n < MOST_GUESSES && at + 1 < to && (double)s->cuts[at].bytes < wanted)
            at++;
        if (measure(s, &s->cuts[at], &tokens)) return -1;
        if (tokens >= s->target) {
            to = at;
            high_bytes = s->cuts[at].bytes;
            high_tokens = tokens;
        } else {
            from = at + 1;
            s->low_bytes = s->cuts[at].bytes;
            s->low_tokens = tokens;
        }
        if (high_tokens > s->low_tokens && high_bytes > s->low_bytes)
            rate = (double)(high_tokens - s->low_tokens) / (double)(high_bytes - s->low_bytes);
    }
    *ret = to;
    return 0;
}

/* The cut to take, or NULL: none is enough. A last turn that fits is not cut. */
static int find_cut(struct search *s, int64_t needed, const struct cut **ret)
{
    const size_t ends[] = {s->n_turns, s->n_cuts};
    size_t from = 0, at = 0;
    *ret = NULL;
    for (int stage = 0; stage < 2 && !*ret; stage++) {
        size_t end = ends[stage];
        if (find_first(s, from, end, &at)) return -1;
        if (at == end && at > from && s->low_tokens >= needed) at--;
        if (at < end) *ret = &s->cuts[at];
        from = end;
    }
    return 0;
}

/* ---- the request --------------------------------------------------------------------------- */

int truncate_read(struct truncation *t, const json_t *root)
{
    const json_t *field = json_object_get(root, "truncation");
    const char *value = json_string_value(field);
    if (!field || json_is_null(field)) return 0;
    t->automatic = value && !strcmp(value, "auto");
    if (t->automatic || (value && !strcmp(value, "disabled"))) return 0;
    return param_fail(value ? SRV_ERR_INVALID_VALUE : SRV_ERR_INVALID_TYPE, "truncation",
                      "'truncation' must be 'auto' or 'disabled'.");
}

/* Notes which items of the client's are gone. */
static int note_dropped(struct truncation *t, const struct search *s, const struct cut *cut)
{
    const json_t *ends = s->in->ends;
    t->n_items = ends ? json_array_size(ends) : s->n;
    t->dropped = calloc(t->n_items + 1, sizeof(*t->dropped));
    if (!t->dropped) return param_no_memory();
    for (size_t i = 0; i < t->n_items; i++) {
        size_t end = i + 1;
        if (ends) end = (size_t)json_integer_value(json_array_get(ends, i));
        t->dropped[i] = end > 0 && !is_kept(s, end - 1, cut->first);
        t->n_dropped += t->dropped[i];
    }
    return 0;
}

/* Sets t->kept and t->dropped, if a cut is enough. s->cuts has room. */
static int cut_oldest(struct truncation *t, struct search *s, const int *parted, int64_t ctx)
{
    int64_t step = ctx / 4 > 0 ? ctx / 4 : 1, room = step;
    const struct cut *cut = NULL;
    find_cuts(s, parted);
    if (t->max_tokens >= 0 && t->max_tokens < room) room = t->max_tokens;
    int64_t needed = s->n_tokens - (ctx - room);
    s->target = (needed + step - 1) / step * step;
    if (srv_json_ran_out()) return param_no_memory();
    if (find_cut(s, needed, &cut)) return -1;
    if (!cut) return 0;
    t->kept = kept_messages(s, cut);
    return srv_json_ran_out() ? param_no_memory() : note_dropped(t, s, cut);
}

int truncate_make(struct truncation *t, const struct srv_model *model, const struct chat_input *in,
                  struct tok_prompt *prompt, struct tok_ids *ids)
{
    int64_t ctx = eng_info(model->engine)->ctx_tokens;
    if (chat_input_make(model, in, prompt, ids)) return -1;
    if (!t->automatic || (int64_t)ids->n <= ctx) return 0;
    struct search s = {.model = model,
                       .in = in,
                       .messages = in->messages,
                       .n = json_array_size(in->messages),
                       .n_tokens = (int64_t)ids->n};
    s.last_user = s.n;
    while (s.last_user > 0 && !has_role(json_array_get(s.messages, s.last_user - 1), "user"))
        s.last_user--;
    if (s.last_user-- == 0) return 0; /* without the user nothing would be left to answer */
    int *parted = find_parted(s.messages);
    s.cuts = calloc(s.n + 1, sizeof(*s.cuts));
    int rc = parted && s.cuts ? cut_oldest(t, &s, parted, ctx) : param_no_memory();
    free(parted);
    free(s.cuts);
    if (rc || !t->kept) return rc;
    struct chat_input cut = *in;
    cut.messages = t->kept;
    cut.metadata = NULL;
    tok_prompt_finish(prompt);
    tok_ids_finish(ids);
    *prompt = (struct tok_prompt){0};
    *ids = (struct tok_ids){0};
    return chat_input_make(model, &cut, prompt, ids);
}

void truncate_name(const struct truncation *t, struct srv_request *req)
{
    char text[32];
    snprintf(text, sizeof(text), "%zu", t->n_dropped);
    if (t->n_dropped > 0) srv_reply_header(req, "x-dropped-input-items", text);
}

void truncate_finish(struct truncation *t)
{
    json_decref(t->kept);
    free(t->dropped);
    *t = (struct truncation){0};
}
