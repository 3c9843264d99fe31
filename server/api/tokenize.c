/* SPDX-License-Identifier: MIT */
/*
 * /tokenize, /detokenize, /apply-template in the dialects that clients know; the key used selects
 * the dialect: content (llama-server), prompt or messages (vLLM), inputs (TGI). /tokenizer_info.
 */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/json_writer.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "server/api/read/chat_input.h"
#include "server/api/read/history.h"
#include "server/api/read/tools_request.h"
#include "server/api/read/truncate.h"
#include "server/api/read/json_fields.h"
#include "server/api/routes.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

enum { ANSWER_MAX = 256 << 20, TOKEN_TEXT_MAX = 4096 };

struct tokenize_params {
    struct srv_body body;
    const char *model;
    json_t *content, *prompt, *inputs, *messages, *tokens, *kwargs;
    json_t *chat; /* messages, read; owned */
    struct srv_tools tools;
    bool add_special, parse_special, with_pieces, add_special_tokens, return_token_strs;
    bool add_generation_prompt, continue_final_message;
    struct truncation truncation;
};

#define FIELD(name, type, member, preset_, otherwise, meaning)                                     \
    {                                                                                              \
        PARAM_FIELD(struct tokenize_params, name, type, member, otherwise, meaning),               \
            .preset = preset_                                                                      \
    }

const struct param_field srv_fields_tokens[] = {
    FIELD("content", PARAM_JSON, content, 0, NULL, "llama-server's text"),
    FIELD("prompt", PARAM_JSON, prompt, 0, NULL, "vLLM's text"),
    FIELD("inputs", PARAM_JSON, inputs, 0, NULL, "TGI's text"),
    FIELD("messages", PARAM_JSON, messages, 0, NULL, "a chat, through the template"),
    FIELD("tokens", PARAM_JSON, tokens, 0, NULL, "token ids"),
    FIELD("add_special", PARAM_BOOL, add_special, false, NULL,
          "with `content`: add the tokenizer's own tokens"),
    FIELD("parse_special", PARAM_BOOL, parse_special, true, NULL,
          "with `content`: read the names of special tokens as tokens"),
    FIELD("with_pieces", PARAM_BOOL, with_pieces, false, NULL,
          "with `content`: `{\"id\", \"piece\"}` for each token"),
    FIELD("add_special_tokens", PARAM_BOOL, add_special_tokens, true, NULL,
          "with `prompt`: add the tokenizer's own tokens"),
    FIELD("return_token_strs", PARAM_BOOL, return_token_strs, false, NULL,
          "with `prompt` or `messages`: the tokens as the vocabulary writes them"),
    FIELD("model", PARAM_STRING, model, 0, "served model", "as in chat"),
    FIELD("add_generation_prompt", PARAM_BOOL, add_generation_prompt, true, NULL,
          "with `messages`: as in chat"),
    FIELD("continue_final_message", PARAM_BOOL, continue_final_message, false, NULL,
          "with `messages`: as in chat"),
    FIELD("chat_template_kwargs", PARAM_JSON, kwargs, 0, NULL, "with `messages`: as in chat"),
    {PARAM_FIELD(struct tokenize_params, "max_tokens", PARAM_INT, truncation.max_tokens, "none",
                 "with `truncation`: as in chat"),
     .max = 1e15, .preset = -1, .also = "max_completion_tokens"},
    /* truncate.c and tools_fields.c read these */
    GEN_TRUNCATION,
    /* clang-format off */
    GEN_IGNORED("tools"), GEN_IGNORED("tool_choice"), GEN_IGNORED("parallel_tool_calls"),
    GEN_IGNORED("reasoning_effort"), GEN_IGNORED("enable_thinking"), GEN_IGNORED("think"),
    GEN_IGNORED("thinking"), GEN_IGNORED("reasoning_format"),
    /* clang-format on */
    {0},
};

static int encode_text(const struct srv_model *model, const json_t *value, const char *name,
                       unsigned flags, struct tok_ids *ids)
{
    if (!json_is_string(value)) return param_wrong_type(name, "a string");
    return param_encode(model->tok, json_string_value(value), json_string_length(value), flags,
                        name, ids);
}

/* ---- llama-server -------------------------------------------------------------------------- */

/* Writes the piece as text, or as a list of bytes if it is not valid UTF-8 alone. */
static void write_piece(struct jw *w, const char *bytes, size_t len)
{
    if (utf8_valid(bytes, len)) {
        jw_string(w, "piece", bytes, len);
        return;
    }
    jw_open(w, "piece", '[');
    for (size_t i = 0; i < len; i++)
        jw_int(w, NULL, (unsigned char)bytes[i]);
    jw_close(w);
}

static void write_pieces(const struct srv_model *model, struct jw *w, const struct tok_ids *ids)
{
    char bytes[TOKEN_TEXT_MAX];
    jw_open(w, "tokens", '[');
    for (size_t i = 0; i < ids->n; i++) {
        size_t len = tok_token_bytes(model->tok, ids->ids[i], bytes, sizeof(bytes));
        jw_open(w, NULL, '{');
        jw_int(w, "id", ids->ids[i]);
        write_piece(w, bytes, len < sizeof(bytes) ? len : sizeof(bytes));
        jw_close(w);
    }
    jw_close(w);
}

static int tokenize_content(const struct srv_model *model, const struct tokenize_params *p,
                            struct jw *w)
{
    AUTO(tok_ids_finish) struct tok_ids ids = {0};
    unsigned flags =
        (p->add_special ? TOK_ADD_SPECIAL : 0) | (p->parse_special ? TOK_PARSE_SPECIAL : 0);
    int rc = encode_text(model, p->content, "content", flags, &ids);
    jw_open(w, NULL, '{');
    if (p->with_pieces)
        write_pieces(model, w, &ids);
    else
        jw_ints(w, "tokens", ids.ids, ids.n);
    jw_close(w);
    return rc;
}

static struct chat_input chat_of(struct tokenize_params *p)
{
    return (struct chat_input){
        .messages = p->chat,
        .field = "messages",
        .kwargs = p->kwargs,
        .body = &p->body,
        .add_generation_prompt = p->add_generation_prompt,
        .continue_final_message = p->continue_final_message,
        .tools = &p->tools,
    };
}

/* ---- vLLM ---------------------------------------------------------------------------------- */

/* The prompt of messages, as generation would have it. */
static int make_chat(struct srv_request *req, struct tokenize_params *p, struct tok_prompt *prompt,
                     struct tok_ids *ids)
{
    const struct chat_input in = chat_of(p);
    if (chat_input_check(p->chat, "messages") ||
        truncate_make(&p->truncation, srv_facts(req)->model, &in, prompt, ids))
        return -1;
    truncate_name(&p->truncation, req);
    return 0;
}

static int encode_vllm(struct srv_request *req, struct tokenize_params *p, struct tok_ids *ids)
{
    if (p->prompt) {
        unsigned flags = TOK_PARSE_SPECIAL | (p->add_special_tokens ? TOK_ADD_SPECIAL : 0);
        return encode_text(srv_facts(req)->model, p->prompt, "prompt", flags, ids);
    }
    AUTO(tok_prompt_finish) struct tok_prompt prompt = {0};
    return make_chat(req, p, &prompt, ids);
}

static void write_token_strings(const struct srv_model *model, struct jw *w,
                                const struct tok_ids *ids)
{
    jw_open(w, "token_strs", '[');
    for (size_t i = 0; i < ids->n; i++) {
        size_t len = 0;
        const char *text = tok_token_string(model->tok, ids->ids[i], &len);
        jw_string(w, NULL, text, text ? len : 0);
    }
    jw_close(w);
}

static int tokenize_prompt(struct srv_request *req, struct tokenize_params *p, struct jw *w)
{
    const struct srv_model *model = srv_facts(req)->model;
    AUTO(tok_ids_finish) struct tok_ids ids = {0};
    int rc = encode_vllm(req, p, &ids);
    jw_fields(w, "{ count %jd max_model_len %jd", (int64_t)ids.n, srv_model_longest(model));
    jw_ints(w, "tokens", ids.ids, ids.n);
    if (p->return_token_strs)
        write_token_strings(model, w, &ids);
    else
        jw_null(w, "token_strs");
    jw_close(w);
    return rc;
}

/* ---- TGI ----------------------------------------------------------------------------------- */

/* Offsets are in characters. A special token has its text, and a place if the input has it. */
static int tokenize_inputs(const struct srv_model *model, const struct tokenize_params *p,
                           struct jw *w)
{
    AUTO(tok_ids_finish) struct tok_ids ids = {0};
    struct tok_decoder *decoder = NULL;
    int64_t at = 0;
    size_t n_before = 0, n_after = 0;
    int rc = encode_text(model, p->inputs, "inputs", TOK_PARSE_SPECIAL | TOK_ADD_SPECIAL, &ids);
    if (!rc && tok_decoder_create(&decoder, model->tok, true)) rc = param_no_memory();
    tok_special_around(model->tok, &n_before, &n_after);
    jw_open(w, NULL, '[');
    for (size_t i = 0; !rc && i < ids.n; i++) {
        const char *text = "";
        size_t len = 0;
        bool added = i < n_before || i + n_after >= ids.n;
        if (tok_is_special(model->tok, ids.ids[i]))
            text = tok_token_string(model->tok, ids.ids[i], &len);
        else
            tok_decoder_push(decoder, ids.ids[i], &text, &len);
        jw_open(w, NULL, '{');
        jw_int(w, "id", ids.ids[i]);
        jw_string(w, "text", text, len);
        jw_int(w, "start", at);
        if (!added) at += (int64_t)utf8_count(text, len);
        jw_int(w, "stop", at);
        jw_close(w);
    }
    jw_close(w);
    tok_decoder_destroy(decoder);
    return rc;
}

static int tokenize(struct srv_request *req, struct tokenize_params *p, struct jw *w)
{
    const struct srv_model *model = srv_facts(req)->model;
    if (p->content) return tokenize_content(model, p, w);
    if (p->prompt || p->messages) return tokenize_prompt(req, p, w);
    if (p->inputs) return tokenize_inputs(model, p, w);
    return param_fail(SRV_ERR_MISSING, "content",
                      "One of 'content', 'prompt', 'messages' or 'inputs' is required.");
}

/* ---- the way back -------------------------------------------------------------------------- */

static int detokenize(struct srv_request *req, struct tokenize_params *p, struct jw *w)
{
    const struct srv_model *model = srv_facts(req)->model;
    AUTO(tok_ids_finish) struct tok_ids ids = {0};
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    if (!p->tokens) return param_fail(SRV_ERR_MISSING, "tokens", "'tokens' is required.");
    if (!json_is_array(p->tokens)) return param_wrong_type("tokens", "an array of ids");
    if (param_take_ids(p->tokens, eng_info(model->engine)->vocab_size, "tokens", &ids)) return -1;
    if (tok_decode(model->tok, ids.ids, ids.n, false, &text, &len))
        return param_fail(SRV_ERR_INTERNAL, NULL, "The ids cannot be decoded.");
    jw_open(w, NULL, '{');
    /* vLLM's clients name a model and expect exactly {"prompt"}. */
    if (!p->model) jw_string(w, "content", text, len);
    jw_string(w, "prompt", text, len);
    jw_close(w);
    return 0;
}

static int apply_template(struct srv_request *req, struct tokenize_params *p, struct jw *w)
{
    AUTO(tok_prompt_finish) struct tok_prompt prompt = {0};
    AUTO(tok_ids_finish) struct tok_ids ids = {0};
    if (make_chat(req, p, &prompt, &ids)) return -1;
    jw_open(w, NULL, '{');
    jw_string(w, "prompt", prompt.text, prompt.len);
    jw_close(w);
    return 0;
}

/* ---- answering ----------------------------------------------------------------------------- */

struct way {
    const char *endpoint;
    int (*write)(struct srv_request *req, struct tokenize_params *p, struct jw *w);
};

static void handle(struct srv_request *req)
{
    struct srv_facts *facts = srv_facts(req);
    const struct way *way = facts->arg;
    struct param_unknown unknown = {0};
    struct tokenize_params p = {.chat = NULL};
    struct buf b = {.max = ANSWER_MAX};
    struct jw w = {.out = &b};
    facts->account.endpoint = way->endpoint;
    params_preset(srv_fields_tokens, &p);
    if (srv_body_take(&p.body, facts, PARAM_MAX_VALUES) ||
        params_read(p.body.root, srv_fields_tokens, &p, &unknown) ||
        history_of_chat(p.messages, "messages", &unknown, &p.chat) ||
        !srv_gen_model_name(facts, p.model) || chat_input_check_flags(p.body.root) ||
        srv_tools_read(&p.tools, facts->model, TOOLS_CHAT, &p.body, &unknown) ||
        truncate_read(&p.truncation, p.body.root) || param_name_ignored(req, &unknown) ||
        way->write(req, &p, &w)) {
        param_reply(req);
        buf_finish(&b);
    } else {
        srv_reply(req, 200, NULL, jw_end(&w));
    }
    truncate_finish(&p.truncation);
    json_decref(p.chat);
    srv_tools_release(&p.tools);
    srv_body_finish(&p.body);
}

/* ---- the tokenizer's configuration, vLLM's -------------------------------------------------- */

static void tokenizer_info(struct srv_request *req)
{
    const struct srv_model *model = srv_facts(req)->model;
    struct buf b = {.max = ANSWER_MAX};
    struct jw w = {.out = &b};
    srv_facts(req)->account.endpoint = "props";
    buf_add(&b, model->tokenizer_info, strlen(model->tokenizer_info) - 1); /* left open */
    buf_puts(&b, ", \"chat_template\": ");
    jw_text(&w, NULL, model->chat ? tok_chat_source(model->chat) : NULL);
    buf_puts(jw_end(&w), "}");
    srv_reply(req, 200, NULL, &b);
}

static const struct way ways[] = {
    {"tokenize", tokenize}, {"detokenize", detokenize}, {"apply-template", apply_template}};

const struct srv_route srv_routes_tokenize[] = {
    {"GET", "/tokenizer_info", SRV_ROUTE_INLINE, SRV_DIALECT_OPENAI, tokenizer_info, NULL},
    {"POST", "/v1/tokenize", SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, handle, &ways[0]},
    {"POST", "/v1/detokenize", SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, handle, &ways[1]},
    {"POST", "/v1/apply-template", SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, handle, &ways[2]},
    {0},
};
