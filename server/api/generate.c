/* SPDX-License-Identifier: MIT */
#include "server/api/generate.h"

#include <stdio.h>
#include <time.h>

#include "base/auto.h"
#include "server/api/pooled/pooled.h"
#include "server/api/read/metadata_lines.h"
#include "server/api/read/generation_fields.h"
#include "server/api/read/json_fields.h"
#include "server/api/read/truncate.h"
#include "server/api/routes.h"
#include "server/api/write/dialects.h"
#include "server/metrics.h"
#include "server/models/app.h"

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
    g->created = facts->is_fixed ? facts->created_s : (int64_t)time(NULL);
    g->n_progress_sent = -1;
    g->guide.ask.unknown = &g->unknown;
    g->guide.tools = &g->tools;
    return g;
}

static void refuse(struct srv_gen *g)
{
    int64_t longest = 0;
    for (int i = 0; i < g->n_prompts; i++)
        if (g->prompts[i].n_ids > longest) longest = g->prompts[i].n_ids;
    if (param_error.kind == SRV_ERR_CONTEXT)
        srv_gen_refuse_context(g->req, longest, g->max_tokens);
    else
        param_reply(g->req);
    srv_gen_release(g);
}

/* Reads the body and its fields. NULL: the error has been answered. */
static struct srv_gen *open_generation(struct srv_request *req)
{
    struct srv_gen *g = create(req);
    if (!g) return NULL;
    struct srv_facts *facts = srv_facts(req);
    const struct srv_gen_format *format = g->format;
    int rc = srv_body_take(&g->body, facts, PARAM_MAX_VALUES);
    if (!rc) {
        facts->account.endpoint = format->endpoint;
        rc = srv_gen_params_read(&g->params, req, format->fields, &g->body, &g->unknown);
    }
    if (format->note) format->note(g);
    if (rc || srv_cache_fields_read(&g->cache, req, &g->body, &g->params) ||
        guide_ask_read(&g->guide.ask, &g->body) ||
        (format->dialect &&
         srv_tools_read(&g->tools, g->served, format->dialect, &g->body, &g->unknown)) ||
        param_name_ignored(req, &g->unknown)) {
        refuse(g);
        return NULL;
    }
    snprintf(g->id, sizeof(g->id), "%s%s", format->id_prefix, facts->unique);
    g->model = g->params.model;
    g->max_tokens = g->params.asked_tokens;
    g->n_choices = g->n_candidates = (int)g->params.n;
    return g;
}

/* A prompt of n tokens that is empty or longer than the context. */
static int refuse_length(const struct srv_gen *g, int64_t n)
{
    char own[96] = "";
    int64_t ctx = eng_info(g->served->engine)->ctx_tokens;
    if (n < 1)
        return param_fail(SRV_ERR_INVALID_VALUE, g->format->input, "The prompt has no tokens.");
    /* Clients know the error by its words, each by those of its dialect. */
    if (g->format->dialect == TOOLS_MESSAGES)
        snprintf(own, sizeof(own), "prompt is too long: %lld tokens > %lld maximum. ", (long long)n,
                 (long long)ctx);
    return param_fail(SRV_ERR_CONTEXT, g->format->input,
                      "%sThis model's maximum context length is %lld tokens. However, your "
                      "prompt has %lld tokens, so the request exceeds the available context "
                      "size (%lld tokens).",
                      own, (long long)ctx, (long long)n, (long long)ctx);
}

static int refuse_task(const struct eng_info *info)
{
    return param_fail(SRV_ERR_UNSUPPORTED_TASK, "model",
                      "This model makes no tokens: it gives %s; ask %s.",
                      info->n_labels ? "scores" : "vectors",
                      info->n_labels ? "/v1/rerank or /v1/score" : "/v1/embeddings");
}

/* The prompt, and where the cache finds its parts. */
static int make_chat_prompt(struct srv_gen *g, const struct chat_input *in, struct truncation *t)
{
    struct srv_cache_fields *cache = &g->cache;
    AUTO(tok_prompt_finish) struct tok_prompt prompt = {0};
    struct tok_ids ids = {0};
    int rc = truncate_make(t, g->served, in, &prompt, &ids);
    cache->dropped = t->dropped;
    if (!rc && srv_cache_fields_place(cache, g->req, &prompt, ids.ids, (int64_t)ids.n))
        rc = param_no_memory();
    cache->dropped = NULL;
    if (!rc && eng_info(g->served->engine)->memory.state_bytes > 0)
        cache->n_ends = chat_input_ends(g->served->tok, &prompt, ids.ids, (int64_t)ids.n,
                                        t->kept ? t->kept : in->messages, cache->ends);
    return param_keep_ids(g->req, rc, &ids, &g->prompts->ids, &g->prompts->n_ids);
}

int srv_gen_chat_prompt(struct srv_gen *g, struct chat_input *in, const char *place)
{
    char first[32];
    snprintf(first, sizeof(first), "%.20s[0]", in->field);
    struct metadata_lines lines = {.place = place ? place : first, .noted = &g->unknown};
    struct truncation t = {.max_tokens = g->max_tokens, .automatic = g->params.truncate};
    in->metadata = &lines;
    in->tools = &g->tools;
    g->prompts = srv_request_alloc(g->req, sizeof(*g->prompts));
    if (!g->prompts) return param_no_memory();
    g->n_prompts = 1;
    if (in->body && !in->messages) return param_missing(in->body->root, in->field);
    if ((in->body && chat_input_check_flags(in->body->root)) ||
        chat_input_check(in->messages, in->field) ||
        param_name_ignored(g->req, &g->unknown) || /* once more, with parts of the messages */
        truncate_read(&t, g->body.root))
        return -1;
    int rc = make_chat_prompt(g, in, &t);
    g->n_dropped_items = (int64_t)t.n_dropped;
    truncate_name(&t, g->req);
    truncate_finish(&t);
    if (rc) return -1;
    struct srv_metrics *metrics = srv_facts(g->req)->app->metrics;
    if (g->n_dropped_items > 0 && !g->counts) srv_metrics_count(metrics, SRV_COUNT_TRUNCATED);
    if (lines.n > 0) {
        srv_metrics_add(metrics, SRV_COUNT_METADATA_LINES, lines.n);
        param_name_ignored(g->req, &g->unknown); /* once more, with the lines */
    }
    srv_gen_default_tokens(g, eng_info(g->served->engine)->ctx_tokens);
    return 0;
}

void srv_gen_handle(struct srv_request *req)
{
    struct srv_gen *g = open_generation(req);
    if (!g) return;
    const struct eng_info *info = eng_info(g->served->engine);
    int rc = info->generates ? 0 : refuse_task(info);
    if (!rc && g->format->one_choice && g->n_choices != 1)
        rc = param_fail(SRV_ERR_UNSUPPORTED, "n", "'n' must be 1 here.");
    if (!rc) rc = g->format->prepare(g);
    if (rc == SRV_GEN_ANSWERED) {
        srv_gen_release(g);
        return;
    }
    for (int i = 0; !rc && i < g->n_prompts; i++) {
        int64_t n = g->prompts[i].n_ids;
        if (n < 1 || n > info->ctx_tokens) rc = refuse_length(g, n);
    }
    if (!rc && g->params.prediction)
        rc = srv_prediction_read(req, g->params.prediction, &g->prediction, &g->n_prediction);
    if (!rc)
        rc =
            g->params.choice_probabilities ? srv_choose_chat(g) : srv_gen_start(g, &srv_gen_output);
    if (rc) refuse(g);
}

void srv_gen_count(struct srv_request *req)
{
    struct srv_gen *g = open_generation(req);
    if (!g) return;
    const char *object = g->format->counted;
    g->counts = true;
    if (g->format->prepare(g)) {
        param_reply(req);
        srv_gen_release(g);
        return;
    }
    struct srv_object a;
    struct jw *w = srv_object_open(&a, 256);
    if (object) jw_text(w, "object", object);
    jw_int(w, "input_tokens", g->prompts[0].n_ids);
    srv_gen_release(g);
    srv_facts(req)->account.endpoint = "count_tokens";
    srv_object_reply(req, 200, &a);
}
