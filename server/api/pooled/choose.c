/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/choose: the exact probabilities of a closed list of continuations; and chats that ask
 * for those of their structured choices.
 *
 * A text prompt is tokenized together with each choice. Scoring starts at the first id in which any
 * of them differs from the prompt's own ids, so that all choices are measured from the same place.
 * After a chat's generation prompt a choice is a text of its own.
 *
 * A choice's tokens are forced by a guide, and their log-probabilities summed, as scoring by echo
 * does. Choices of one token, scored without their end, are read off one row by the first job.
 */

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "server/api/pooled/pooled.h"
#include "server/api/read/chat_input.h"
#include "server/api/read/history.h"
#include "server/api/read/json_fields.h"
#include "server/api/routes.h"
#include "server/api/write/openai_json.h"
#include "server/models/served_model.h"

enum { MAX_CHOICES = 1000, MAX_CHOICE_TOKENS = 256 };
enum { CHOICE_BYTES = 160, JSON_FACTOR = 6 }; /* of the answer, and for each byte of a text */

struct choosing;

/* Its numbers are written by the engine's thread before the job's `finish`. */
struct choice {
    const struct choosing *owner;
    const char *text; /* as asked; NULL: ids were */
    size_t len;
    const int32_t *ids; /* [n_ids] that are scored, n_ids >= 1 */
    int64_t n_ids;
    int64_t n_same;        /* ids of the prompt in front of these */
    int64_t at;            /* ids taken */
    double logprob, score; /* in the end the score is its probability */
};

struct choosing {
    struct srv_pooled p;  /* its n are choices, in fewer jobs; no numbers in rows */
    struct srv_gen *chat; /* that asks, owned; NULL: the route of its own */
    json_t *prompt, *messages, *kwargs, *list;
    const char *normalise;
    bool ends, add_special, add_generation_prompt, continue_final_message;
    unsigned prompt_flags;    /* of tok_encode */
    int64_t top;              /* how many are shown, best first; 0: all, in their order */
    const int32_t *context;   /* [n_context] the prompt; once all choices are read, */
    int64_t n_context;        /* the part of it that is in front of each */
    struct choice *choices;   /* [p.n_max] in the request's order */
    struct choice **order;    /* [p.n_max] by job; in the end best first */
    int32_t *listed_ids;      /* [n_listed] the ids of the first of `order`, read off one row */
    int n_listed, n_scored;   /* ids in all */
    struct eng_guide *guides; /* [max_choices] of the job that is described */
    struct eng_usage usage;   /* of the first job */
    double entropy;           /* in nats */
};

#define FIELD(...) PARAM_FIELD(struct choosing, __VA_ARGS__)

const struct param_field srv_fields_choose[] = {
    {FIELD("choices", PARAM_JSON, list, NULL,
           "2 to 1,000 texts, or lists of ids, of at most 256 tokens each")},
    {FIELD("prompt", PARAM_JSON, prompt, "none", "a text or token ids in front of the choices")},
    {FIELD("messages", PARAM_JSON, messages, "none", "or a conversation that they answer")},
    {FIELD("model", PARAM_STRING, p.model, "served model", "as in chat")},
    {FIELD("ends", PARAM_BOOL, ends, "true with messages", "the end of the answer is scored too")},
    {FIELD("normalise", PARAM_STRING, normalise, "`sum`",
           "`mean`: probabilities of the mean log-probability of the tokens")},
    {FIELD("top", PARAM_INT, top, "all", "so many choices, best first"), .min = 1,
     .max = MAX_CHOICES},
    {FIELD("add_special_tokens", PARAM_BOOL, add_special, NULL, "as in completions"), .preset = 1},
    {FIELD("add_generation_prompt", PARAM_BOOL, add_generation_prompt, NULL, "as in chat"),
     .preset = 1},
    {FIELD("continue_final_message", PARAM_BOOL, continue_final_message, NULL, "as in chat")},
    {FIELD("chat_template_kwargs", PARAM_JSON, kwargs, "none", "as in chat")},
    {.name = "user", .type = PARAM_IGNORED, .meaning = "accepted, no effect"},
    {0},
};

/* ---- the prompt ---------------------------------------------------------------------------- */

static int check(struct srv_pooled *p)
{
    struct choosing *c = (struct choosing *)p;
    char word[PARAM_WORD_MAX];
    if (!p->info->generates)
        return param_fail(SRV_ERR_UNSUPPORTED_TASK, "model",
                          "This model makes no tokens, so choices have no probabilities; ask "
                          "/v1/rerank or /v1/embeddings.");
    if (!json_is_boolean(json_object_get(p->body.root, "ends"))) c->ends = c->messages != NULL;
    if (c->normalise && strcmp(c->normalise, "sum") && strcmp(c->normalise, "mean"))
        return param_fail(SRV_ERR_INVALID_VALUE, "normalise",
                          "'normalise' is '%s', but must be 'sum' or 'mean'.",
                          param_word(c->normalise, word));
    c->prompt_flags = TOK_PARSE_SPECIAL | (c->add_special ? TOK_ADD_SPECIAL : 0);
    return chat_input_check_flags(p->body.root);
}

static int encode_messages(struct choosing *c, struct tok_ids *made)
{
    json_auto_t *messages = NULL;
    AUTO(tok_prompt_finish) struct tok_prompt prompt = {0};
    struct chat_input in = {
        .field = "messages",
        .kwargs = c->kwargs,
        .body = &c->p.body,
        .add_generation_prompt = c->add_generation_prompt,
        .continue_final_message = c->continue_final_message,
    };
    int rc = history_of_chat(c->messages, "messages", &c->p.unknown, &messages);
    in.messages = messages;
    if (!rc) rc = chat_input_check(messages, "messages");
    return rc ? rc : chat_input_make(c->p.served, &in, &prompt, made);
}

static int read_prompt(struct choosing *c)
{
    struct tok_ids made = {0};
    int rc;
    if (!c->prompt == !c->messages)
        return param_fail(SRV_ERR_MISSING, "prompt",
                          "Exactly one of 'prompt' and 'messages' is required.");
    if (c->messages)
        rc = encode_messages(c, &made);
    else if (json_is_string(c->prompt))
        rc = param_encode(c->p.served->tok, json_string_value(c->prompt),
                          json_string_length(c->prompt), c->prompt_flags, "prompt", &made);
    else if (json_is_array(c->prompt))
        rc = param_take_ids(c->prompt, c->p.info->vocab_size, "prompt", &made);
    else
        rc = param_wrong_type("prompt", "a string or an array of token ids");
    return param_keep_ids(c->p.req, rc, &made, &c->context, &c->n_context);
}

/* ---- the choices --------------------------------------------------------------------------- */

static int open_choices(struct srv_pooled *p)
{
    struct choosing *c = (struct choosing *)p;
    const char *field = c->chat ? c->chat->guide.ask.param : "choices";
    size_t n = json_array_size(c->list), prompt = json_string_length(c->prompt);
    if (!c->chat && read_prompt(c)) return -1;
    if (!json_is_array(c->list))
        return param_fail(c->list ? SRV_ERR_INVALID_TYPE : SRV_ERR_MISSING, "choices",
                          "'choices' must be an array of strings or of lists of token ids.");
    if (n < 2 || n > MAX_CHOICES)
        return param_fail(SRV_ERR_INVALID_VALUE, field,
                          "'%s' holds %zu choices; 2 to %d are allowed.", field, n, MAX_CHOICES);
    if (n * prompt > SRV_JOINED_TEXTS_BYTES)
        return param_fail(SRV_ERR_INVALID_VALUE, "choices",
                          "%zu choices behind a prompt of %zu bytes are %zu bytes to tokenize; at "
                          "most %d are allowed. Send fewer choices at once, or 'messages', or ids.",
                          n, prompt, n * prompt, SRV_JOINED_TEXTS_BYTES);
    int most = p->info->max_choices;
    c->choices = srv_request_alloc(p->req, n * sizeof(*c->choices));
    c->order = srv_request_alloc(p->req, n * sizeof(*c->order));
    c->listed_ids = srv_request_alloc(p->req, n * sizeof(*c->listed_ids));
    c->guides = srv_request_alloc(p->req, (size_t)most * sizeof(*c->guides));
    if (!c->choices || !c->order || !c->listed_ids || !c->guides) return param_no_memory();
    return srv_pooled_open(p, field, n, 0);
}

/* Prompt and choice as one text. Sets how many ids the prompt begins with as well, and makes the
 * others. */
static int encode_joined(struct choosing *c, struct choice *o, const char *path,
                         struct tok_ids *made)
{
    size_t n_prompt = json_string_length(c->prompt), n = n_prompt + o->len, same = 0;
    struct tok_range chosen = {n_prompt, n};
    char message[200] = "";
    char *text = malloc(n + 1);
    if (!text) return param_no_memory();
    memcpy(text, json_string_value(c->prompt), n_prompt);
    memcpy(text + n_prompt, o->text, o->len);
    int rc = tok_encode_marked(c->p.served->tok, text, n, &chosen, 1, c->prompt_flags, made,
                               message, sizeof(message));
    free(text);
    while (same < made->n && same < (size_t)c->n_context && made->ids[same] == c->context[same])
        same++;
    o->n_same = (int64_t)same;
    made->n -= same;
    if (same) memmove(made->ids, made->ids + same, made->n * sizeof(*made->ids));
    return param_encode_failed(rc, path, message);
}

static int read_choice(struct choosing *c, int i)
{
    const json_t *value = json_array_get(c->list, (size_t)i);
    struct choice *o = &c->choices[i];
    struct tok_ids made = {0};
    char path[PARAM_PATH_MAX];
    *o = (struct choice){.owner = c,
                         .text = json_string_value(value),
                         .len = json_string_length(value),
                         .n_same = c->n_context};
    snprintf(path, sizeof(path), "%s[%d]", c->p.field, i);
    if (!o->text && (c->chat || !json_is_array(value)))
        return param_fail(SRV_ERR_INVALID_TYPE, path, "'%s' must be a string%s.", path,
                          c->chat ? "" : " or an array of token ids");
    int rc = !o->text ? param_take_ids(value, c->p.info->vocab_size, path, &made)
             : json_is_string(c->prompt)
                 ? encode_joined(c, o, path, &made)
                 : param_encode(c->p.served->tok, o->text, o->len, 0, path, &made);
    c->p.answer_bytes += CHOICE_BYTES + JSON_FACTOR * o->len;
    if (param_keep_ids(c->p.req, rc, &made, &o->ids, &o->n_ids)) return -1;
    if (o->n_ids > 0 && o->n_ids <= MAX_CHOICE_TOKENS) return 0;
    return param_fail(SRV_ERR_INVALID_VALUE, path,
                      "'%s' adds %lld tokens to the prompt; 1 to %d are allowed.", path,
                      (long long)o->n_ids, MAX_CHOICE_TOKENS);
}

/* The context is what all have in common with the prompt; what is left of that goes in front of
 * each choice. */
static int set_context(struct choosing *c)
{
    int64_t n = c->n_context;
    for (int i = 0; i < c->p.n; i++)
        if (c->choices[i].n_same < n) n = c->choices[i].n_same;
    if (n == 0)
        return param_fail(SRV_ERR_INVALID_VALUE, "prompt",
                          "'prompt' has no token that stays the same in front of every choice; "
                          "begin it with more text.");
    for (int i = 0; i < c->p.n; i++) {
        struct choice *o = &c->choices[i];
        size_t n_more = (size_t)(o->n_same - n), n_ids = (size_t)o->n_ids;
        if (n_more == 0) continue;
        int32_t *ids = srv_request_alloc(c->p.req, (n_more + n_ids) * sizeof(*ids));
        if (!ids) return param_no_memory();
        memcpy(ids, c->context + n, n_more * sizeof(*ids));
        memcpy(ids + n_more, o->ids, n_ids * sizeof(*ids));
        o->ids = ids;
        o->n_ids += (int64_t)n_more;
    }
    c->n_context = c->p.n_tokens = n;
    return 0;
}

static int check_choices(struct choosing *c)
{
    const struct choice *o = c->choices;
    int64_t ctx = c->p.info->ctx_tokens, longest = 0;
    for (int i = 0; i < c->p.n; i++) {
        c->n_scored += (int)o[i].n_ids + c->ends;
        if (o[i].n_ids > longest) longest = o[i].n_ids;
        for (int k = 0; k < i; k++)
            if (o[i].n_ids == o[k].n_ids &&
                !memcmp(o[i].ids, o[k].ids, (size_t)o[i].n_ids * sizeof(*o[i].ids)))
                return param_fail(SRV_ERR_INVALID_VALUE, c->p.field,
                                  "'%s[%d]' and '%s[%d]' are the same tokens.", c->p.field, k,
                                  c->p.field, i);
    }
    longest += c->ends;
    if (c->n_context + longest <= ctx) return 0;
    return param_fail(SRV_ERR_CONTEXT, c->messages ? "messages" : "prompt",
                      "This model's maximum context length is %lld tokens. However, the prompt has "
                      "%lld tokens and the longest choice %lld; shorten them.",
                      (long long)ctx, (long long)c->n_context, (long long)longest);
}

/* Those that are read off one row come first. */
static void plan_jobs(struct choosing *c)
{
    int most = c->p.info->max_choices, n = 0;
    for (int listed = 1; listed >= 0; listed--)
        for (int i = 0; i < c->p.n; i++) {
            struct choice *o = &c->choices[i];
            if ((o->n_ids == 1 && !c->ends) != listed) continue;
            if (listed) c->listed_ids[c->n_listed++] = o->ids[0];
            c->order[n++] = o;
        }
    c->p.jobs.n = (c->n_listed > 0) + (c->p.n - c->n_listed + most - 1) / most;
}

static int add(struct srv_pooled *p, int i)
{
    struct choosing *c = (struct choosing *)p;
    if (read_choice(c, i)) return -1;
    if (++p->n < p->n_max) return 0;
    if (set_context(c) || check_choices(c)) return -1;
    plan_jobs(c);
    return 0;
}

/* ---- the guide that forces a choice -------------------------------------------------------- */

static enum eng_guide_next force_mask(void *ctx, uint64_t *bits, struct eng_pace *pace)
{
    const struct choice *o = ctx;
    const struct eng_info *info = o->owner->p.info;
    bool ended = o->at >= o->n_ids;
    const int32_t *ids = ended ? info->eos_ids : o->ids + o->at;
    if (o->at >= o->n_ids + o->owner->ends) return ENG_GUIDE_END;
    memset(bits, 0, ((size_t)info->vocab_size + 63) / 64 * sizeof(*bits));
    for (int i = 0; i < (ended ? info->n_eos_ids : 1); i++)
        bits[ids[i] / 64] |= UINT64_C(1) << (ids[i] % 64);
    return ENG_GUIDE_MASK;
}

static bool force_take(void *ctx, int32_t id)
{
    struct choice *o = ctx;
    assert(o->at >= o->n_ids || id == o->ids[o->at]);
    o->at++;
    return true;
}

static bool force_complete(void *ctx)
{
    const struct choice *o = ctx;
    return o->at >= o->n_ids;
}

static int force_foresee(void *ctx, const int32_t *ids, int n)
{
    const struct choice *o = ctx;
    int i = 0;
    while (i < n && o->at + i < o->n_ids && ids[i] == o->ids[o->at + i])
        i++;
    return i;
}

static int force_propose(void *ctx, int32_t *ids, int n)
{
    const struct choice *o = ctx;
    int64_t left = o->n_ids - o->at;
    if (n > left) n = left > 0 ? (int)left : 0;
    memcpy(ids, o->ids + o->at, (size_t)n * sizeof(*ids));
    return n;
}

/* ---- jobs ---------------------------------------------------------------------------------- */

/* The place in `order` of the first choice of job i; after its last is that of the next job. */
static int place_of(const struct choosing *c, int i)
{
    int n_lists = c->n_listed > 0;
    int place = i < n_lists ? 0 : c->n_listed + (i - n_lists) * c->p.info->max_choices;
    return place < c->p.n ? place : c->p.n;
}

static void describe(struct srv_pooled *p, int i, struct eng_job_params *job)
{
    struct choosing *c = (struct choosing *)p;
    int first = place_of(c, i);
    bool listed = first < c->n_listed;
    job->prompt = c->context;
    job->n_prompt = c->n_context;
    job->priority = 0;
    job->sampling.temperature = 0;
    job->ignore_eos = true; /* a choice may hold such an id; the guide ends it */
    job->n_logprobs = 0;
    job->max_tokens = listed ? 1 : MAX_CHOICE_TOKENS + 1;
    if (c->chat) srv_gen_describe(c->chat, job);
    job->listed_ids = listed ? c->listed_ids : c->ends ? p->info->eos_ids : NULL;
    job->n_listed_ids = listed ? c->n_listed : c->ends ? p->info->n_eos_ids : 0;
    if (listed) return;
    job->n_choices = place_of(c, i + 1) - first;
    job->guides = c->guides;
    for (int k = 0; k < job->n_choices; k++)
        c->guides[k] =
            (struct eng_guide){c->order[first + k], force_mask,    force_take, force_complete,
                               force_foresee,       force_propose, NULL,       NULL};
}

/* The logarithm of the summed probabilities; of one, its own. */
static double log_sum(const struct eng_logprob *of, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp(of[i].logprob);
    return n == 1 ? of[0].logprob : log(sum);
}

static void event(struct srv_pooled *p, int i, const struct eng_event *ev)
{
    struct choosing *c = (struct choosing *)p;
    if (ev->type == ENG_EVENT_JOB_DONE && i == 0) c->usage = *ev->usage;
    if (ev->type != ENG_EVENT_TOKEN) return;
    int first = place_of(c, i);
    struct choice *o = c->order[first + ev->choice];
    if (first < c->n_listed)
        for (int k = 0; k < ev->n_top; k++)
            c->order[k]->logprob = ev->top[k].logprob;
    else
        o->logprob += ev->index < o->n_ids ? ev->logprob : log_sum(ev->top, ev->n_top);
}

/* ---- answer -------------------------------------------------------------------------------- */

/* Best first, ties in the request's order. */
static int by_score(const void *a, const void *b)
{
    const struct choice *x = *(struct choice *const *)a, *y = *(struct choice *const *)b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void weigh(struct srv_pooled *p)
{
    struct choosing *c = (struct choosing *)p;
    struct srv_account *a = &srv_facts(p->req)->account;
    bool by_mean = c->normalise && !strcmp(c->normalise, "mean");
    double sum = 0;
    for (int i = 0; i < p->n; i++) {
        struct choice *o = c->order[i] = &c->choices[i];
        o->score = by_mean ? o->logprob / (double)(o->n_ids + c->ends) : o->logprob;
    }
    qsort(c->order, (size_t)p->n, sizeof(*c->order), by_score);
    double best = c->order[0]->score;
    for (int i = 0; i < p->n; i++)
        sum += exp(c->choices[i].score - best);
    for (int i = 0; i < p->n; i++) {
        double share = c->choices[i].score = exp(c->choices[i].score - best) / sum;
        if (share > 0) c->entropy -= share * log(share);
    }
    if (c->top && c->top < p->n) p->n_items = (int)c->top;
    a->n_cached_tokens = c->usage.n_cached_tokens;
    if (c->chat) a->model = c->chat->model;
}

static void write_choice(struct srv_pooled *p, struct jw *w, int i)
{
    const struct choosing *c = (const struct choosing *)p;
    const struct choice *o = c->top ? c->order[i] : &c->choices[i];
    jw_fields(w, "{ index %jd", o - c->choices);
    jw_string_or_null(w, "text", o->text, o->len);
    jw_fields(w, "logprob %g tokens %jd probability %g }", o->logprob, o->n_ids, o->score);
}

static void begin(struct srv_pooled *p, struct jw *w)
{
    char id[48];
    snprintf(id, sizeof(id), "choose-%s", srv_facts(p->req)->unique);
    jw_fields(w, "{ id %s object %s model %s", id, "choices", p->model);
    jw_open(w, p->dialect->list, '[');
}

static void end(struct srv_pooled *p, struct jw *w)
{
    const struct choosing *c = (const struct choosing *)p;
    jw_close(w);
    jw_string_or_null(w, "best", c->order[0]->text, c->order[0]->len);
    jw_fields(
        w,
        "entropy %g usage { prompt_tokens %jd completion_tokens %d total_tokens %jd scored_tokens "
        "%d prompt_tokens_details { cached_tokens %jd } } system_fingerprint %s }",
        c->entropy, c->n_context, 0, c->n_context, c->n_scored,
        srv_facts(p->req)->account.spare ? 0 : c->usage.n_cached_tokens /* see srv_gen_totals */,
        p->served->fingerprint);
}

/* A chat completion: the best choice is its message. */
static void begin_chat(struct srv_pooled *p, struct jw *w)
{
    const struct choosing *c = (const struct choosing *)p;
    srv_gen_open_answer(c->chat, w);
    jw_fields(w, "{ index %d message { role %s", 0, "assistant");
    jw_string(w, "content", c->order[0]->text, c->order[0]->len);
    jw_fields(w, "refusal null } logprobs null finish_reason %s", "stop");
    jw_open(w, p->dialect->list, '[');
}

static void end_chat(struct srv_pooled *p, struct jw *w)
{
    const struct choosing *c = (const struct choosing *)p;
    jw_fields(w, "} } }");
    c->chat->prompts[0].usage = c->usage;
    atomic_store(&c->chat->prompts[0].stage, GEN_DONE);
    srv_gen_write_usage(c->chat, w);
    jw_close(w);
}

/* ---- request ------------------------------------------------------------------------------- */

static void release(struct srv_pooled *p)
{
    struct srv_gen *chat = ((const struct choosing *)p)->chat;
    if (chat) srv_gen_release(chat);
}

static const struct pooled_endpoint choose = {
    .name = "choose",
    .bytes = sizeof(struct choosing),
    .fields = srv_fields_choose,
    .check = check,
    .open = open_choices,
    .add = add,
    .describe = describe,
    .event = event,
    .sort = weigh,
    .release = release,
};
static const struct pooled_dialect own = {&choose,   NULL,         TEXTS_REFUSE, 0,
                                          "choices", write_choice, begin,        end};
static const struct pooled_dialect in_chat = {
    &choose, NULL, TEXTS_REFUSE, 0, "choice_probabilities", write_choice, begin_chat, end_chat};

/* The choices take the place of sampled tokens, so fields that report on those are refused. */
static int check_chat(const struct srv_gen *g)
{
    const struct srv_gen_params *p = &g->params;
    const char *other = p->stream                 ? "stream"
                        : p->n > 1                ? "n"
                        : p->want_logprobs        ? "logprobs"
                        : p->prompt_logprobs >= 0 ? "prompt_logprobs"
                        : p->return_token_ids     ? "return_token_ids"
                        : g->tools.active         ? "tools"
                                                  : NULL;
    if (other)
        return param_fail(SRV_ERR_UNSUPPORTED, other,
                          "'%s' cannot be combined with 'choice_probabilities'; leave it out.",
                          other);
    if (!g->guide.ask.param || g->guide.ask.kind != GRAM_CHOICE)
        return param_fail(SRV_ERR_MISSING, "structured_outputs.choice",
                          "'choice_probabilities' needs 'structured_outputs.choice', the list of "
                          "texts to choose from.");
    if (!g->tools.think_open) return 0;
    return param_fail(
        SRV_ERR_INVALID_VALUE, "choice_probabilities",
        "The prompt ends inside the model's reasoning, where a choice is not an answer; "
        "turn reasoning off in 'chat_template_kwargs' or 'reasoning_effort'.");
}

int srv_choose_chat(struct srv_gen *g)
{
    const struct gen_prompt *prompt = &g->prompts[0];
    json_t *list = json_object_get(json_object_get(g->body.root, "structured_outputs"), "choice");
    struct choosing *c = srv_request_alloc(g->req, sizeof(*c));
    if (!c) return param_no_memory();
    if (!json_is_array(list)) list = json_object_get(g->body.root, "guided_choice");
    c->list = list;
    c->messages = g->params.messages;
    c->ends = true;
    c->context = prompt->ids;
    c->n_context = c->p.n_long = prompt->n_ids;
    c->p.max_tokens = g->max_tokens;
    c->chat = g;
    srv_pooled_init(&c->p, g->req, &in_chat);
    if (check_chat(g) || open_choices(&c->p)) return -1;
    srv_pooled_start(&c->p);
    return 0;
}

const struct srv_route srv_routes_choose[] = {
    {"POST", "/v1/choose", 0, SRV_DIALECT_OPENAI, srv_pooled_handle, &own},
    {0},
};
