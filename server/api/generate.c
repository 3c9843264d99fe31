/* SPDX-License-Identifier: MIT */
/* See generate.h. */
#include "server/api/generate.h"

#include <stdio.h>
#include <time.h>

#include "server/api/choose.h"
#include "server/api/read/prediction.h"
#include "server/api/write/generation_output.h"

static struct srv_gen *create(struct srv_request *req)
{
    const struct srv_facts *facts = srv_facts(req);
    struct srv_gen *g = srv_request_alloc(req, sizeof(*g));
    if (!g) {
        srv_reply_error(req, SRV_ERR_OVERLOADED, NULL,
                        "The server is out of memory for this request.");
        return NULL;
    }
    g->req = req;
    g->served = facts->model;
    g->format = facts->arg;
    g->created = (int64_t)time(NULL);
    g->n_progress_sent = -1;
    g->guide.ask.unknown = &g->unknown;
    g->guide.tools = &g->tools;
    return g;
}

static void refuse(struct srv_gen *g, const struct param_error *err)
{
    int64_t longest = 0;
    for (int i = 0; i < g->n_prompts; i++)
        if (g->prompts[i].n_ids > longest) longest = g->prompts[i].n_ids;
    if (err->kind == SRV_ERR_CONTEXT)
        srv_gen_refuse_context(g->req, err, longest, g->max_tokens);
    else
        param_reply(g->req, err);
    srv_gen_release(g);
}

/* Reads the body and its fields. NULL: the error has been answered. */
static struct srv_gen *open_generation(struct srv_request *req)
{
    struct param_error err = {0};
    struct srv_gen *g = create(req);
    if (!g) return NULL;
    struct srv_facts *facts = srv_facts(req);
    const struct srv_gen_format *format = g->format;
    int rc = srv_body_read(&g->body, facts->body, facts->body_len, PARAM_MAX_VALUES, &err);
    if (!rc) {
        facts->account.endpoint = format->endpoint;
        rc = srv_gen_params_read(&g->params, req, format->fields, &g->body, &g->unknown, &err);
    }
    if (format->note) format->note(g);
    if (rc || srv_cache_fields_read(&g->cache, req, &g->body, &g->params, &err) ||
        guide_ask_read(&g->guide.ask, &g->body, &err) ||
        (format->dialect &&
         srv_tools_read(&g->tools, g->served, format->dialect, &g->body, &g->unknown, &err)) ||
        param_name_ignored(req, &g->unknown, &err)) {
        refuse(g, &err);
        return NULL;
    }
    snprintf(g->id, sizeof(g->id), "%s%s", format->id_prefix, facts->unique);
    g->model = g->params.model;
    g->max_tokens = g->params.asked_tokens;
    g->n_choices = g->n_candidates = (int)g->params.n;
    return g;
}

/* A prompt of n tokens that is empty or longer than the context. */
static int refuse_length(const struct srv_gen *g, int64_t n, struct param_error *err)
{
    char own[96] = "";
    int64_t ctx = eng_info(g->served->engine)->ctx_tokens;
    if (n < 1)
        return param_fail(err, SRV_ERR_INVALID_VALUE, g->format->input,
                          "The prompt has no tokens.");
    /* Clients know the error by its words, each by those of its dialect. */
    if (g->format->dialect == TOOLS_MESSAGES)
        snprintf(own, sizeof(own), "prompt is too long: %lld tokens > %lld maximum. ", (long long)n,
                 (long long)ctx);
    return param_fail(err, SRV_ERR_CONTEXT, g->format->input,
                      "%sThis model's maximum context length is %lld tokens. However, your "
                      "prompt has %lld tokens, so the request exceeds the available context "
                      "size (%lld tokens).",
                      own, (long long)ctx, (long long)n, (long long)ctx);
}

static int refuse_task(const struct eng_info *info, struct param_error *err)
{
    return param_fail(err, SRV_ERR_UNSUPPORTED_TASK, "model",
                      "This model makes no tokens: it gives %s; ask %s.",
                      info->n_labels ? "scores" : "vectors",
                      info->n_labels ? "/v1/rerank or /v1/score" : "/v1/embeddings");
}

int srv_gen_chat_prompt(struct srv_gen *g, struct chat_input *in, const char *place,
                        struct param_error *err)
{
    in->tools = &g->tools;
    in->unknown = &g->unknown;
    in->cache = &g->cache;
    g->prompts = srv_request_alloc(g->req, sizeof(*g->prompts));
    if (!g->prompts) return param_no_memory(err);
    g->n_prompts = 1;
    if (chat_input_prompt(g->req, in, place, &g->prompts->ids, &g->prompts->n_ids, err)) return -1;
    if (g->max_tokens < 0) g->max_tokens = eng_info(g->served->engine)->ctx_tokens;
    return 0;
}

void srv_gen_handle(struct srv_request *req)
{
    struct param_error err = {0};
    struct srv_gen *g = open_generation(req);
    if (!g) return;
    const struct eng_info *info = eng_info(g->served->engine);
    int rc = info->generates ? 0 : refuse_task(info, &err);
    if (!rc && g->format->one_choice && g->n_choices != 1)
        rc = param_fail(&err, SRV_ERR_UNSUPPORTED, "n", "'n' must be 1 here.");
    if (!rc) rc = g->format->prepare(g, &err);
    for (int i = 0; !rc && i < g->n_prompts; i++) {
        int64_t n = g->prompts[i].n_ids;
        if (n < 1 || n > info->ctx_tokens) rc = refuse_length(g, n, &err);
    }
    if (!rc && g->params.prediction)
        rc = srv_prediction_read(req, g->params.prediction, &g->prediction, &g->n_prediction, &err);
    if (!rc)
        rc = g->params.choice_probabilities ? srv_choose_chat(g, &err)
                                            : srv_gen_start(g, &srv_gen_output, &err);
    if (rc) refuse(g, &err);
}

void srv_gen_count(struct srv_request *req)
{
    struct param_error err = {0};
    struct srv_gen *g = open_generation(req);
    if (!g) return;
    const char *object = g->format->counted;
    g->counts = true;
    if (g->format->prepare(g, &err)) {
        param_reply(req, &err);
        srv_gen_release(g);
        return;
    }
    struct buf b;
    struct jw w;
    buf_init(&b, 256);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    if (object) jw_text(&w, "object", object);
    jw_int(&w, "input_tokens", g->prompts[0].n_ids);
    jw_close(&w);
    srv_gen_release(g);
    srv_facts(req)->account.endpoint = "count_tokens";
    srv_reply(req, 200, NULL, jw_end(&w));
}
