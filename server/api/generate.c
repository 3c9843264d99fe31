/* SPDX-License-Identifier: MIT */
/* See generate.h. */
#include "server/api/generate.h"

#include <stdio.h>
#include <time.h>

#include "server/api/choose.h"
#include "server/api/read/prediction.h"
#include "server/api/write/generation_output.h"

static struct srv_gen *create(struct srv_request *req, const struct srv_gen_format *format)
{
    struct srv_gen *g = srv_request_alloc(req, sizeof(*g));
    if (!g) return NULL;
    g->req = req;
    g->served = srv_facts(req)->model;
    g->format = format;
    g->created = (int64_t)time(NULL);
    g->n_progress_sent = -1;
    return g;
}

static void refuse(struct srv_gen *g, const struct param_error *err)
{
    param_reply(g->req, err);
    srv_gen_release(g);
}

/* Reads the body and its fields. NULL: the error has been answered. */
static struct srv_gen *open_generation(struct srv_request *req, const struct srv_gen_format *format)
{
    struct param_error err = {0};
    struct srv_facts *facts = srv_facts(req);
    struct srv_gen *g = create(req, format);
    if (!g) {
        srv_reply_error(req, SRV_ERR_OVERLOADED, NULL,
                        "The server is out of memory for this request.");
        return NULL;
    }
    int rc = srv_body_read(&g->body, facts->body, facts->body_len, PARAM_MAX_VALUES, &err);
    if (!rc) {
        facts->account.endpoint = format->endpoint;
        rc = srv_gen_params_read(&g->params, req, format->fields, &g->body, &g->unknown, &err);
    }
    if (format->note) format->note(g);
    g->guide.ask.unknown = &g->unknown;
    g->guide.tools = &g->tools;
    if (rc || srv_cache_fields_read(&g->cache, req, &g->body, &g->params, &err) ||
        guide_ask_read(&g->guide.ask, &g->body, &err) ||
        (format->dialect &&
         srv_tools_read(&g->tools, g->served, format->dialect, &g->body, &g->unknown, &err)) ||
        srv_gen_note_ignored(req, &g->unknown, &err)) {
        refuse(g, &err);
        return NULL;
    }
    snprintf(g->id, sizeof(g->id), "%s%s", format->id_prefix, facts->unique);
    g->model = g->params.model;
    g->max_tokens = g->params.asked_tokens;
    g->n_choices = g->n_candidates = (int)g->params.n;
    return g;
}

static int check_lengths(struct srv_gen *g, struct param_error *err)
{
    char own[96] = "";
    int64_t ctx = eng_info(g->served->engine)->ctx_tokens;
    for (int i = 0; i < g->n_prompts; i++) {
        int64_t n = g->prompts[i].n_ids;
        if (n < 1)
            return param_fail(err, SRV_ERR_INVALID_VALUE, g->format->input,
                              "The prompt has no tokens.");
        if (n <= ctx) continue;
        /* Clients know the error by its words, each by those of its dialect. */
        if (g->format->dialect == TOOLS_MESSAGES)
            snprintf(own, sizeof(own), "prompt is too long: %lld tokens > %lld maximum. ",
                     (long long)n, (long long)ctx);
        return param_fail(err, SRV_ERR_CONTEXT, g->format->input,
                          "%sThis model's maximum context length is %lld tokens. However, your "
                          "prompt has %lld tokens, so the request exceeds the available context "
                          "size (%lld tokens).",
                          own, (long long)ctx, (long long)n, (long long)ctx);
    }
    return 0;
}

static void refuse_context(struct srv_gen *g, const struct param_error *err)
{
    int64_t longest = 0;
    for (int i = 0; i < g->n_prompts; i++)
        if (g->prompts[i].n_ids > longest) longest = g->prompts[i].n_ids;
    srv_gen_refuse_context(g->req, err, longest, g->max_tokens);
    srv_gen_release(g);
}

static int check_model(const struct srv_gen *g, struct param_error *err)
{
    const struct eng_info *info = eng_info(g->served->engine);
    if (info->generates) return 0;
    return param_fail(err, SRV_ERR_UNSUPPORTED_TASK, "model",
                      "This model makes no tokens: it gives %s; ask %s.",
                      info->n_labels ? "scores" : "vectors",
                      info->n_labels ? "/v1/rerank or /v1/score" : "/v1/embeddings");
}

static int check_n(const struct srv_gen *g, struct param_error *err)
{
    if (!g->format->one_choice || g->n_choices == 1) return 0;
    return param_fail(err, SRV_ERR_UNSUPPORTED, "n", "'n' must be 1 here.");
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

static int start(struct srv_gen *g, struct param_error *err)
{
    if (g->params.choice_probabilities) return srv_choose_chat(g, err);
    return srv_gen_start(g, &srv_gen_output, err);
}

void srv_gen_handle(struct srv_request *req, const struct srv_gen_format *format)
{
    struct param_error err = {0};
    struct srv_gen *g = open_generation(req, format);
    if (!g) return;
    if (!check_model(g, &err) && !check_n(g, &err) && !format->prepare(g, &err) &&
        !check_lengths(g, &err) &&
        !srv_prediction_read(req, g->params.prediction, &g->prediction, &g->n_prediction, &err) &&
        !start(g, &err))
        return;
    if (err.kind == SRV_ERR_CONTEXT)
        refuse_context(g, &err);
    else
        refuse(g, &err);
}

void srv_gen_count(struct srv_request *req, const struct srv_gen_format *format, const char *object)
{
    struct param_error err = {0};
    struct srv_gen *g = open_generation(req, format);
    if (!g) return;
    g->counts = true;
    if (format->prepare(g, &err)) {
        refuse(g, &err);
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
