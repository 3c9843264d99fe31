/* SPDX-License-Identifier: MIT */
#include "server/api/pooled/texts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "server/api/pooled/pooled.h"
#include "server/api/read/json_fields.h"
#include "server/bounds.h"
#include "engine/engine.h"
#include "server/models/served_model.h"
#include "server/models/retrieval.h"
#include "tokenizer/tokenizer.h"

enum { NAMES_BYTES = 176 };

/* ---- the prompt ---------------------------------------------------------------------------- */

static int set_text(struct texts_rules *rules, const char *text, size_t len)
{
    rules->prompt = text;
    rules->prompt_len = len;
    return 0;
}

static int set_named(struct srv_pooled *p, const char *field, const char *name)
{
    const struct srv_retrieval *r = &p->served->retrieval;
    const json_t *text = srv_text_prompt(r, name);
    char names[NAMES_BYTES], word[PARAM_WORD_MAX];
    if (text) return set_text(&p->rules, json_string_value(text), json_string_length(text));
    return param_fail(SRV_ERR_INVALID_VALUE, field, "'%s' is '%s', but this model has %s.", field,
                      param_word(name, word), srv_text_prompt_names(r, names, sizeof(names)));
}

/* The form that Qwen's embedding models were trained with. */
static int set_instruction(struct srv_pooled *p, const char *instruction)
{
    static const char form[] = "Instruct: %s\nQuery:";
    size_t size = sizeof(form) + strlen(instruction);
    char *text = srv_request_alloc(p->req, size);
    if (!text) return param_no_memory();
    return set_text(&p->rules, text, (size_t)snprintf(text, size, form, instruction));
}

static int set_prompt(struct srv_pooled *p)
{
    const struct texts_fields *f = &p->asked;
    struct texts_rules *rules = &p->rules;
    const struct srv_retrieval *r = &p->served->retrieval;
    const char *text = f->prompt ? f->prompt : f->prefix;
    const char *side = f->input_type ? f->input_type : f->task;
    const char *side_field = f->input_type ? "input_type" : "task";
    int n = !!f->prompt_name + !!f->input_type + !!f->task + !!f->instruction + !!f->prompt +
            !!f->prefix;
    if (n > 1)
        return param_fail(SRV_ERR_INVALID_VALUE, NULL,
                          "At most one of 'prompt_name', 'input_type', 'task', 'instruction', "
                          "'prompt' and 'prefix' may be given.");
    if (f->prompt_name) return set_named(p, "prompt_name", f->prompt_name);
    if (text) return set_text(rules, text, strlen(text));
    if (f->instruction) return set_instruction(p, f->instruction);
    if (side && r->prompts) return set_named(p, side_field, side);
    if (side) param_note(&p->unknown, side_field);
    if (r->standard_prompt) return set_named(p, "prompt_name", r->standard_prompt);
    return set_text(rules, "", 0);
}

/* ---- lengths ------------------------------------------------------------------------------- */

static int set_cut(struct texts_rules *rules, const struct texts_fields *f)
{
    const char *word = json_string_value(f->truncate), *side = f->truncation_side;
    char shown[PARAM_WORD_MAX];
    if (side && strcmp(side, "left") != 0 && strcmp(side, "right") != 0)
        return param_fail(SRV_ERR_INVALID_VALUE, "truncation_side",
                          "'truncation_side' is '%s', but must be 'left' or 'right'.",
                          param_word(side, shown));
    enum texts_cut cut = side && !strcmp(side, "left") ? TEXTS_KEEP_LAST : TEXTS_KEEP_FIRST;
    if (word && !strcmp(word, "NONE"))
        rules->cut = TEXTS_REFUSE;
    else if (word && !strcmp(word, "START"))
        rules->cut = TEXTS_KEEP_LAST;
    else if (word && !strcmp(word, "END"))
        rules->cut = TEXTS_KEEP_FIRST;
    else if (json_is_boolean(f->truncate))
        rules->cut = json_is_true(f->truncate) ? cut : TEXTS_REFUSE;
    else if (f->truncate && !json_is_null(f->truncate))
        return param_wrong_type("truncate", "true, false, 'NONE', 'START' or 'END'");
    else if (f->truncate_prompt_tokens || (side && rules->cut != TEXTS_REFUSE))
        rules->cut = cut;
    return 0;
}

int texts_rules_set(struct srv_pooled *p)
{
    struct texts_rules *rules = &p->rules;
    int64_t asked = p->asked.truncate_prompt_tokens;
    char message[200] = "";
    rules->cut = p->dialect->cut;
    rules->max_tokens = srv_text_longest(&p->served->retrieval, p->info);
    if (asked > rules->max_tokens)
        return param_fail(
            SRV_ERR_INVALID_VALUE, "truncate_prompt_tokens",
            "'truncate_prompt_tokens' is %lld, but the longest text of this model has "
            "%lld tokens.",
            (long long)asked, (long long)rules->max_tokens);
    if (asked > 0) rules->max_tokens = asked;
    if (set_prompt(p) || set_cut(rules, &p->asked)) return -1;
    int rc = srv_text_unpooled(p->served->tok, p->info, rules->prompt, rules->prompt_len,
                               &rules->n_unpooled, message, sizeof(message));
    if (rc && rc != TOK_ENOMEM) return param_fail(SRV_ERR_INVALID_VALUE, "prompt", "%s", message);
    return rc ? param_no_memory() : 0;
}

int texts_check_joined(const struct srv_pooled *p, size_t n_bytes)
{
    if (n_bytes <= SRV_JOINED_TEXTS_BYTES) return 0;
    return param_fail(SRV_ERR_INVALID_VALUE, p->field,
                      "'%s' holds %d texts with %zu bytes in front of them to tokenize; at most %d "
                      "are allowed. Send fewer texts at once, or less in front of each.",
                      p->field, p->n_max, n_bytes, SRV_JOINED_TEXTS_BYTES);
}

/* ---- texts --------------------------------------------------------------------------------- */

static void was_cut(struct texts_rules *rules, int input)
{
    size_t n = strlen(rules->cut_inputs), room = sizeof(rules->cut_inputs) - n;
    char item[16];
    int len = snprintf(item, sizeof(item), "%s%d", rules->n_cut ? "," : "", input);
    if ((size_t)len < room) memcpy(rules->cut_inputs + n, item, (size_t)len + 1);
    rules->n_cut++;
}

/* A limit that is not the model's own is told to be the request's or the server's. */
static const char *whose_limit(const struct srv_model *m, const struct texts_rules *rules,
                               char shown[80])
{
    const struct eng_info *info = eng_info(m->engine);
    int64_t own = m->retrieval.max_tokens, most = info->ctx_max_tokens;
    if (own && own < most) most = own;
    bool asked = rules->max_tokens < srv_text_longest(&m->retrieval, info);
    if (!asked && rules->max_tokens >= most) return "";
    if (asked) return " by 'truncate_prompt_tokens'";
    snprintf(shown, 80, " on this server (--ctx-size; its files allow %lld)", (long long)most);
    return shown;
}

/* Adds ids, cut where the rules say so: the first n_head and the last n_tail stay. The last input
 * names those that were cut in a header. */
static int add_ids(struct srv_pooled *p, struct srv_pair_ids *made, size_t n_head, const char *path)
{
    struct texts_rules *rules = &p->rules;
    size_t most = (size_t)rules->max_tokens, n = made->ids.n;
    bool cut = made->cut || n > most;
    char shown[80];
    if (n == 0) return param_fail(SRV_ERR_INVALID_VALUE, path, "'%s' has no tokens.", path);
    if (n > most && (rules->cut == TEXTS_REFUSE ||
                     !srv_text_cut(made->ids.ids, &n, most, rules->cut == TEXTS_KEEP_LAST, n_head,
                                   made->n_tail))) {
        p->n_long = (int64_t)n;
        return param_fail(
            SRV_ERR_CONTEXT, p->field,
            "This model's maximum context length is %zu tokens%s. However, '%s' has %zu "
            "tokens; shorten it, or send \"truncate_prompt_tokens\": -1.",
            most, whose_limit(p->served, rules, shown), path, n);
    }
    if (cut) was_cut(rules, p->n);
    if (p->n_tokens + (int64_t)n > TEXTS_MAX_TOKENS)
        return param_fail(SRV_ERR_INVALID_VALUE, p->field,
                          "'%s' holds more than %d tokens; send it in several requests.", p->field,
                          TEXTS_MAX_TOKENS);
    if (srv_pooled_add(p, made->ids.ids, n)) return -1;
    p->rows[p->n - 1].n_first = (int64_t)made->n_first;
    if (p->n == p->n_max && rules->n_cut > 0)
        srv_reply_header(p->req, "x-truncated-inputs", rules->cut_inputs);
    return 0;
}

static int add_text(struct srv_pooled *p, const json_t *text, const char *path)
{
    const struct texts_rules *rules = &p->rules;
    const struct tok *tok = p->served->tok;
    size_t n = json_string_length(text), n_head;
    struct srv_pair_ids made = {0};
    char message[200] = "";
    if (n == 0)
        return param_fail(SRV_ERR_INVALID_VALUE, p->field, "'%s' must not be empty.", p->field);
    int rc = srv_text_encode(tok, rules->prompt, rules->prompt_len, json_string_value(text), n,
                             &made.ids, message, sizeof(message));
    tok_special_around(tok, &n_head, &made.n_tail);
    rc = param_encode_failed(rc, path, message);
    if (!rc) rc = add_ids(p, &made, n_head, path);
    tok_ids_finish(&made.ids);
    return rc;
}

/* Of a client that counts tokens itself, by the vocabulary of OpenAI's models. */
static int foreign_id(const char *path, size_t place, long long id, int32_t vocab)
{
    return param_fail(SRV_ERR_INVALID_VALUE, path,
                      "%s[%zu] is token %lld, the model has %d: this client tokenised for another "
                      "model. LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False)",
                      path, place, id, (int)vocab);
}

static int add_list(struct srv_pooled *p, const json_t *list, const char *path)
{
    size_t n = json_array_size(list);
    int32_t vocab = p->info->vocab_size;
    if (n == 0)
        return param_fail(SRV_ERR_INVALID_VALUE, p->field, "'%s' must not be empty.", p->field);
    AUTO_FREE int32_t *ids = malloc(n * sizeof(*ids));
    if (!ids) return param_no_memory();
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        if (json_integer_value(id) >= vocab)
            return foreign_id(path, i, json_integer_value(id), vocab);
        if (param_read_id(id, vocab, p->field, &ids[i])) return -1;
    }
    struct srv_pair_ids made = {.ids = {.ids = ids, .n = n}};
    return add_ids(p, &made, 0, path);
}

int texts_open(struct srv_pooled *p, int width)
{
    const char *field = p->dialect->input;
    json_t *own = json_object_get(p->body.root, field);
    if (own && !json_is_null(own)) p->input = own;
    if (!p->input) return param_missing(p->body.root, field);
    p->many = json_is_array(p->input) && !json_is_number(json_array_get(p->input, 0));
    size_t n = p->many ? json_array_size(p->input) : 1;
    if (n == 0 || n > TEXTS_MAX_INPUTS)
        return param_fail(SRV_ERR_INVALID_VALUE, field,
                          "'%s' holds %zu inputs; 1 to %d are allowed.", field, n,
                          TEXTS_MAX_INPUTS);
    if (srv_pooled_open(p, field, n, width)) return -1;
    return texts_check_joined(p, n * p->rules.prompt_len);
}

int texts_add(struct srv_pooled *p, int i)
{
    const json_t *value = p->many ? json_array_get(p->input, (size_t)i) : p->input;
    char path[PARAM_PATH_MAX];
    snprintf(path, sizeof(path), p->many ? "%s[%d]" : "%s", p->field, i);
    if (json_is_string(value)) return add_text(p, value, path);
    if (json_is_array(value)) return add_list(p, value, path);
    return param_wrong_type(p->field, "a string, an array of strings, or token ids");
}

int texts_add_pair(struct srv_pooled *p, const struct srv_pair_text *pair, const char *path)
{
    struct texts_rules *rules = &p->rules;
    struct srv_pair_text cut = *pair;
    struct srv_pair_ids ids = {0};
    char message[200] = "";
    cut.most_tokens = rules->cut == TEXTS_REFUSE ? 0 : rules->max_tokens;
    cut.front = &rules->front;
    int rc = srv_pairs_encode(&p->served->pairs, &cut, &ids, message, sizeof(message));
    rc = param_encode_failed(rc, path, message);
    if (!rc) rc = add_ids(p, &ids, 0, path);
    tok_ids_finish(&ids.ids);
    return rc;
}
