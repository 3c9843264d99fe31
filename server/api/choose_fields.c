/* SPDX-License-Identifier: MIT */
/* See choose_fields.h. */
#include "server/api/choose_fields.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/read/token_ids.h"
#include "server/bounds.h"
#include "engine/engine.h"
#include "server/api/read/chat_input.h"
#include "server/api/read/generation_fields.h"
#include "server/api/read/history.h"
#include "server/models/served_model.h"
#include "tokenizer/tokenizer.h"

struct fields {
    const char *model, *normalise;
    json_t *prompt, *messages, *kwargs, *choices;
    bool ends, add_special, add_generation_prompt, continue_final_message;
    int64_t top;
};

#define FIELD(name_, type_, member, otherwise_, meaning_)                                          \
    .name = name_, .type = type_, .offset = offsetof(struct fields, member),                       \
    .otherwise = otherwise_, .meaning = meaning_

const struct param_field srv_fields_choose[] = {
    {FIELD("choices", PARAM_JSON, choices, NULL,
           "2 to 1,000 texts, or lists of ids, of at most 256 tokens each")},
    {FIELD("prompt", PARAM_JSON, prompt, "none", "a text or token ids in front of the choices")},
    {FIELD("messages", PARAM_JSON, messages, "none", "or a conversation that they answer")},
    {FIELD("model", PARAM_STRING, model, "served model", "as in chat")},
    {FIELD("ends", PARAM_BOOL, ends, "true with messages", "the end of the answer is scored too")},
    {FIELD("normalise", PARAM_STRING, normalise, "`sum`",
           "`mean`: probabilities of the mean log-probability of the tokens")},
    {FIELD("top", PARAM_INT, top, "all", "so many choices, best first"), .min = 1,
     .max = CHOOSE_MAX_CHOICES},
    {FIELD("add_special_tokens", PARAM_BOOL, add_special, NULL, "as in completions"), .preset = 1},
    {FIELD("add_generation_prompt", PARAM_BOOL, add_generation_prompt, NULL, "as in chat"),
     .preset = 1},
    {FIELD("continue_final_message", PARAM_BOOL, continue_final_message, NULL, "as in chat")},
    {FIELD("chat_template_kwargs", PARAM_JSON, kwargs, "none", "as in chat")},
    {.name = "user", .type = PARAM_IGNORED, .meaning = "accepted, no effect"},
    {0},
};

struct ids {
    const int32_t *ids;
    size_t n;
};

/* One reading of a body, in the request's memory. */
struct choose_reading {
    struct srv_request *req;
    const struct srv_model *model;
    struct fields fields;
    const struct srv_body *tree;
    struct choose_body *body;
    const char *list; /* the name of the field with the choices */
    bool only_texts;  /* no ids */
    struct ids prompt;
    size_t *same; /* [n_options] of the prompt's ids, those that stay with the choice behind it */
    struct param_unknown *unknown; /* of the body's own reading; while the prompt is read */
    struct param_error *err;
};

/* Keeps what was made of a text, unless rc says that it failed. */
static int keep_ids(struct choose_reading *r, int rc, struct tok_ids *made, struct ids *ret)
{
    int64_t n;
    rc = param_keep_ids(r->req, rc, made, &ret->ids, &n, r->err);
    ret->n = (size_t)n;
    return rc;
}

static int encode(struct choose_reading *r, const json_t *text, unsigned flags, const char *path,
                  struct ids *ret)
{
    struct tok_ids made = {0};
    int rc = param_encode(r->model->tok, json_string_value(text), json_string_length(text), flags,
                          path, &made, r->err);
    return keep_ids(r, rc, &made, ret);
}

static int read_ids(struct choose_reading *r, const json_t *list, const char *path, struct ids *ret)
{
    size_t n = json_array_size(list);
    int32_t vocab = eng_info(r->model->engine)->vocab_size;
    int32_t *ids = srv_request_alloc(r->req, (n ? n : 1) * sizeof(*ids));
    if (!ids) return param_no_memory(r->err);
    if (param_read_ids(list, vocab, path, ids, r->err)) return -1;
    *ret = (struct ids){ids, n};
    return 0;
}

/* ---- the prompt ---------------------------------------------------------------------------- */

static unsigned prompt_flags(const struct choose_reading *r)
{
    return TOK_PARSE_SPECIAL | (r->fields.add_special ? TOK_ADD_SPECIAL : 0);
}

static int encode_messages(struct choose_reading *r)
{
    const struct fields *f = &r->fields;
    json_t *messages = NULL;
    struct chat_input in = {
        .field = "messages",
        .kwargs = f->kwargs,
        .body = r->tree,
        .add_generation_prompt = f->add_generation_prompt,
        .continue_final_message = f->continue_final_message,
    };
    struct tok_ids made = {0};
    int rc = history_of_chat(f->messages, "messages", r->unknown, &messages, r->err);
    in.messages = messages;
    if (!rc) rc = param_name_ignored(r->req, r->unknown, r->err);
    if (!rc) rc = chat_input_check(messages, "messages", r->err);
    if (!rc) rc = keep_ids(r, chat_input_encode(r->model, &in, &made, r->err), &made, &r->prompt);
    json_decref(messages);
    return rc;
}

static int read_prompt(struct choose_reading *r)
{
    const struct fields *f = &r->fields;
    if (!f->prompt == !f->messages)
        return param_fail(r->err, SRV_ERR_MISSING, "prompt",
                          "Exactly one of 'prompt' and 'messages' is required.");
    if (f->messages) return encode_messages(r);
    if (json_is_string(f->prompt))
        return encode(r, f->prompt, prompt_flags(r), "prompt", &r->prompt);
    if (json_is_array(f->prompt)) return read_ids(r, f->prompt, "prompt", &r->prompt);
    return param_fail(r->err, SRV_ERR_INVALID_TYPE, "prompt",
                      "'prompt' must be a string or an array of token ids.");
}

/* ---- choices ------------------------------------------------------------------------------- */

/* Of prompt and choice as one text: how many ids the prompt begins with as well, and the others. */
static int encode_joined(struct choose_reading *r, const char *path, const json_t *choice,
                         struct ids *ret, size_t *ret_same)
{
    const json_t *prompt = r->fields.prompt;
    size_t n_prompt = json_string_length(prompt), n = n_prompt + json_string_length(choice);
    struct tok_range chosen = {n_prompt, n};
    struct tok_ids made = {0};
    char message[200] = "";
    char *text = malloc(n + 1);
    if (!text) return param_no_memory(r->err);
    memcpy(text, json_string_value(prompt), n_prompt);
    memcpy(text + n_prompt, json_string_value(choice), n - n_prompt);
    int rc = tok_encode_marked(r->model->tok, text, n, &chosen, 1, prompt_flags(r), &made, message,
                               sizeof(message));
    free(text);
    size_t same = 0;
    while (same < made.n && same < r->prompt.n && made.ids[same] == r->prompt.ids[same])
        same++;
    *ret_same = same;
    made.n -= same;
    if (same) memmove(made.ids, made.ids + same, made.n * sizeof(*made.ids));
    return keep_ids(r, param_encode_failed(rc, path, message, r->err), &made, ret);
}

static int read_choice(struct choose_reading *r, int i)
{
    const json_t *choice = json_array_get(r->fields.choices, (size_t)i);
    char path[PARAM_PATH_MAX];
    struct choose_option *o = &r->body->options[i];
    struct ids ids = {0};
    size_t same = r->prompt.n;
    snprintf(path, sizeof(path), "%s[%d]", r->list, i);
    bool is_text = json_is_string(choice);
    int rc = 0;
    if (!is_text && (r->only_texts || !json_is_array(choice)))
        return param_fail(r->err, SRV_ERR_INVALID_TYPE, path, "'%s' must be a string%s.", path,
                          r->only_texts ? "" : " or an array of token ids");
    if (!is_text)
        rc = read_ids(r, choice, path, &ids);
    else if (json_is_string(r->fields.prompt))
        rc = encode_joined(r, path, choice, &ids, &same);
    else
        rc = encode(r, choice, 0, path, &ids);
    if (rc) return rc;
    if (ids.n == 0 || ids.n > CHOOSE_MAX_CHOICE_TOKENS)
        return param_fail(r->err, SRV_ERR_INVALID_VALUE, path,
                          "'%s' adds %zu tokens to the prompt; 1 to %d are allowed.", path, ids.n,
                          CHOOSE_MAX_CHOICE_TOKENS);
    *o = (struct choose_option){.ids = ids.ids, .n_ids = (int)ids.n};
    if (is_text) o->text = json_string_value(choice);
    if (is_text) o->len = json_string_length(choice);
    r->same[i] = same;
    return 0;
}

/* The prompt's ids from place `from` on, up to where the option's own begin, go in front of it. */
static int extend_option(struct choose_reading *r, int i, size_t from)
{
    struct choose_option *o = &r->body->options[i];
    size_t n_more = r->same[i] - from, n = n_more + (size_t)o->n_ids;
    if (n_more == 0) return 0;
    int32_t *ids = srv_request_alloc(r->req, n * sizeof(*ids));
    if (!ids) return param_no_memory(r->err);
    memcpy(ids, r->prompt.ids + from, n_more * sizeof(*ids));
    memcpy(ids + n_more, o->ids, (size_t)o->n_ids * sizeof(*ids));
    o->ids = ids;
    o->n_ids = (int)n;
    return 0;
}

/* The context is what all have in common with the prompt. */
static int set_context(struct choose_reading *r)
{
    struct choose_body *b = r->body;
    size_t n = r->prompt.n;
    for (int i = 0; i < b->n_options; i++)
        if (r->same[i] < n) n = r->same[i];
    if (n == 0)
        return param_fail(r->err, SRV_ERR_INVALID_VALUE, "prompt",
                          "'prompt' has no token that stays the same in front of every choice; "
                          "begin it with more text.");
    for (int i = 0; i < b->n_options; i++)
        if (extend_option(r, i, n)) return -1;
    b->context = r->prompt.ids;
    b->n_context = (int64_t)n;
    return 0;
}

static bool same_ids(const struct choose_option *a, const struct choose_option *b)
{
    return a->n_ids == b->n_ids && !memcmp(a->ids, b->ids, (size_t)a->n_ids * sizeof(*a->ids));
}

static int check_options(struct choose_reading *r)
{
    const struct choose_body *b = r->body;
    int64_t room = eng_info(r->model->engine)->ctx_tokens - b->n_context, longest = 0;
    for (int i = 0; i < b->n_options; i++) {
        if (b->options[i].n_ids > longest) longest = b->options[i].n_ids;
        for (int k = 0; k < i; k++)
            if (same_ids(&b->options[i], &b->options[k]))
                return param_fail(r->err, SRV_ERR_INVALID_VALUE, r->list,
                                  "'%s[%d]' and '%s[%d]' are the same tokens.", r->list, k, r->list,
                                  i);
    }
    if (longest + b->ends <= room) return 0;
    return param_fail(r->err, SRV_ERR_CONTEXT, r->fields.messages ? "messages" : "prompt",
                      "This model's maximum context length is %lld tokens. However, the prompt has "
                      "%lld tokens and the longest choice %lld; shorten them.",
                      (long long)(room + b->n_context), (long long)b->n_context,
                      (long long)(longest + b->ends));
}

int choose_option_read(struct choose_body *body, struct param_error *err)
{
    struct choose_reading *r = body->reading;
    r->err = err;
    if (read_choice(r, body->n_options)) return -1;
    if (++body->n_options < body->n_all) return 0;
    return set_context(r) ? -1 : check_options(r);
}

static int open_choices(struct choose_reading *r)
{
    const json_t *list = r->fields.choices;
    size_t n = json_array_size(list), prompt = json_string_length(r->fields.prompt);
    if (!json_is_array(list))
        return param_fail(r->err, list ? SRV_ERR_INVALID_TYPE : SRV_ERR_MISSING, "choices",
                          "'choices' must be an array of strings or of lists of token ids.");
    if (n < 2 || n > CHOOSE_MAX_CHOICES)
        return param_fail(r->err, SRV_ERR_INVALID_VALUE, r->list,
                          "'%s' holds %zu choices; 2 to %d are allowed.", r->list, n,
                          CHOOSE_MAX_CHOICES);
    if (n * prompt > SRV_JOINED_TEXTS_BYTES)
        return param_fail(r->err, SRV_ERR_INVALID_VALUE, "choices",
                          "%zu choices behind a prompt of %zu bytes are %zu bytes to tokenize; at "
                          "most %d are allowed. Send fewer choices at once, or 'messages', or ids.",
                          n, prompt, n * prompt, SRV_JOINED_TEXTS_BYTES);
    r->body->options = srv_request_alloc(r->req, n * sizeof(*r->body->options));
    r->same = srv_request_alloc(r->req, n * sizeof(*r->same));
    if (!r->body->options || !r->same) return param_no_memory(r->err);
    r->body->reading = r;
    r->body->n_all = (int)n;
    return 0;
}

/* ---- the body ------------------------------------------------------------------------------ */

static int check_normalise(const struct fields *f, struct param_error *err)
{
    char word[PARAM_WORD_MAX];
    if (!f->normalise || !strcmp(f->normalise, "sum") || !strcmp(f->normalise, "mean")) return 0;
    return param_fail(err, SRV_ERR_INVALID_VALUE, "normalise",
                      "'normalise' is '%s', but must be 'sum' or 'mean'.",
                      param_word(f->normalise, word));
}

int choose_body_open(struct choose_body *ret, struct srv_request *req, struct srv_body *tree,
                     struct param_error *err)
{
    const struct srv_facts *facts = srv_facts(req);
    struct param_unknown unknown = {0};
    struct choose_reading *r = srv_request_alloc(req, sizeof(*r));
    if (!r) return param_no_memory(err);
    struct fields *f = &r->fields;
    params_preset(srv_fields_choose, f);
    if (srv_body_read(tree, facts->body, facts->body_len, PARAM_MAX_VALUES, err)) return -1;
    f->ends = json_object_get(tree->root, "messages") != NULL;
    if (params_read(tree->root, srv_fields_choose, f, &unknown, err) || check_normalise(f, err) ||
        chat_input_check_flags(tree->root, err) || param_name_ignored(req, &unknown, err))
        return -1;
    *ret = (struct choose_body){.ends = f->ends,
                                .by_mean = f->normalise && !strcmp(f->normalise, "mean"),
                                .top = f->top,
                                .model = srv_gen_model_name(facts->model, f->model, err)};
    if (!ret->model) return -1;
    r->req = req;
    r->model = facts->model;
    r->tree = tree;
    r->body = ret;
    r->list = "choices";
    r->unknown = &unknown;
    r->err = err;
    return read_prompt(r) || open_choices(r) ? -1 : 0;
}

int choose_chat_open(struct choose_body *ret, const struct srv_gen *g, struct param_error *err)
{
    const struct gen_prompt *p = &g->prompts[0];
    json_t *list = json_object_get(json_object_get(g->body.root, "structured_outputs"), "choice");
    struct choose_reading *r = srv_request_alloc(g->req, sizeof(*r));
    if (!r) return param_no_memory(err);
    if (!json_is_array(list)) list = json_object_get(g->body.root, "guided_choice");
    *r = (struct choose_reading){.req = g->req,
                                 .model = g->served,
                                 .fields = {.choices = list, .messages = g->params.messages},
                                 .body = ret,
                                 .list = g->guide.ask.param,
                                 .only_texts = true,
                                 .prompt = {p->ids, (size_t)p->n_ids},
                                 .err = err};
    *ret = (struct choose_body){.ends = true};
    return open_choices(r);
}
