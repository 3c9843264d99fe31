/* SPDX-License-Identifier: MIT */
/* Between the grammar library and the engine; see guide.h. */
#include "server/api/guide.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server/api/generation_fields.h"
#include "server/api/tool_calls.h"
#include "server/grammar_cache.h"
#include "server/http/endpoint.h"
#include "server/metrics.h"
#include "server/served_model.h"

/* A header line that proxies pass. */
enum { MAX_RELAXED_BYTES = 1000 };

/* ---- compiling ----------------------------------------------------------------------------- */

/* The field to blame if no pointer leads into a tool. */
static const char *param_of(const struct srv_guide *guide)
{
    return guide->ask.param ? guide->ask.param : "tools";
}

static int refuse(struct srv_guide *guide, const struct gram_error *e, struct param_error *err)
{
    enum srv_error kind = e->code == GRAM_ENOMEM         ? SRV_ERR_OVERLOADED
                          : e->code == GRAM_EGRAMMAR     ? SRV_ERR_INVALID_GRAMMAR
                          : e->code == GRAM_EUNSUPPORTED ? SRV_ERR_UNSUPPORTED
                                                         : SRV_ERR_INVALID_SCHEMA;
    if (kind != SRV_ERR_OVERLOADED)
        srv_metrics_count(guide->metrics, kind == SRV_ERR_INVALID_SCHEMA ? SRV_COUNT_SCHEMAS_REFUSED
                                          : kind == SRV_ERR_INVALID_GRAMMAR
                                              ? SRV_COUNT_GRAMMARS_REFUSED
                                              : SRV_COUNT_GRAMMARS_UNSUPPORTED);
    bool in_tool = e->has_pointer && !strncmp(e->pointer, "/tools/", 7);
    if (kind == SRV_ERR_INVALID_SCHEMA && (in_tool || !guide->ask.param))
        return tools_ask_refuse_schema(&guide->tools->ask, e->pointer, e->message, err);
    return param_fail(err, kind, param_of(guide), "%s", e->message);
}

static void append_encoded(struct buf *b, const char *text)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/_~.-";
    for (const char *p = text; *p; p++) {
        if (strchr(plain, *p))
            buf_add(b, p, 1);
        else
            buf_printf(b, "%%%02X", (unsigned char)*p);
    }
}

/* Pointers in text order, and how many more there are once the header is full. */
static void name_relaxed(struct srv_guide *guide, struct srv_request *req)
{
    size_t n = gram_n_relaxed(guide->gram), i = 0;
    if (n == 0) return;
    srv_metrics_count(guide->metrics, SRV_COUNT_GRAMMAR_RELAXED);
    struct buf b, one;
    buf_init(&b, 4096);
    for (; i < n; i++) {
        buf_init(&one, 4096);
        append_encoded(&one, gram_relaxed(guide->gram, i));
        bool fits = !one.failed && b.len + one.len + 2 <= MAX_RELAXED_BYTES - 16;
        if (fits) buf_printf(&b, "%s%.*s", i ? ", " : "", (int)one.len, one.data ? one.data : "");
        buf_finish(&one);
        if (!fits) break;
    }
    if (i < n) buf_printf(&b, "%s...+%zu", i ? ", " : "", n - i);
    if (!b.failed && b.data) srv_reply_header(req, "x-schema-relaxed", b.data);
    buf_finish(&b);
}

/* A reasoning block may stand before the answer, or calls in it. */
static bool has_parts(const struct srv_guide *guide)
{
    const struct srv_tools *t = guide->tools;
    if (!t || !t->served) return false;
    return srv_tools_active(t) || (srv_tools_can_reason(t) && (t->think_open || !t->begun));
}

/* The grammar of a source, compiled unless the cache has it. */
static void get(struct srv_guide *guide, const struct grammar_source *source, uint64_t tenant,
                struct grammar_result *ret)
{
    struct grammar_cache *cache = guide->served->grammars;
    if (!grammar_cache_find(cache, source, tenant, ret))
        grammar_cache_compile(cache, source, tenant, NULL, NULL, ret);
}

static void get_parts(struct srv_guide *guide, uint64_t tenant, struct grammar_result *ret)
{
    struct grammar_source source;
    const struct guide_ask *ask = &guide->ask;
    const struct gram_part content = {.kind = ask->kind,
                                      .text = ask->text.text,
                                      .len = ask->text.len,
                                      .strict = ask->options.strict};
    struct tools_request request = srv_tools_request(guide->tools);
    if (request.choice == TOOLS_CHOICE_NONE) request.choice = TOOLS_CHOICE_AUTO;
    bool free_content = !ask->param || request.choice == TOOLS_CHOICE_REQUIRED;
    const struct grammar_tools tools = {.request = &request,
                                        .think_open = guide->tools->think_open,
                                        .content = free_content ? NULL : &content};
    struct gram_options options = ask->options;
    options.strict = false; /* it is that of the part, and of each tool */
    guide->parts = (struct grammar_guide_tools){.markers = &guide->served->markers,
                                                .auto_free = free_content &&
                                                             request.choice == TOOLS_CHOICE_AUTO,
                                                .think_open = guide->tools->think_open};
    grammar_source_tools(&source, &tools, &options);
    get(guide, &source, tenant, ret);
}

static int compile(struct srv_guide *guide, struct srv_request *req, struct param_error *err)
{
    const struct guide_ask *ask = &guide->ask;
    struct grammar_source source;
    struct grammar_result result;
    uint64_t tenant;
    int64_t used;
    memcpy(&tenant, srv_facts(req)->tenant, sizeof(tenant));
    if (!guide->served->grammars)
        return param_fail(err, SRV_ERR_UNSUPPORTED, param_of(guide),
                          "'%s' is not supported: the tokens of this model spell no single bytes.",
                          param_of(guide));
    uint64_t start = clock_now_us();
    guide->has_parts = has_parts(guide);
    if (guide->has_parts) {
        get_parts(guide, tenant, &result);
    } else {
        grammar_source_text(&source, ask->kind, ask->text.text, ask->text.len, &ask->options);
        get(guide, &source, tenant, &result);
    }
    guide->gram = result.gram;
    srv_metrics_observe(guide->metrics, SRV_TIME_COMPILE, clock_now_us() - start);
    if (!guide->gram) return refuse(guide, &result.error, err);
    int64_t bytes = (int64_t)(gram_bytes(guide->gram) + gram_cache_bytes(guide->gram));
    if (!result.kept && !srv_request_charge(req, bytes, &used))
        return param_fail(
            err, SRV_ERR_OVERLOADED, param_of(guide),
            "The grammar takes %lld bytes, but the memory budget of all answers is used up.",
            (long long)bytes);
    return 0;
}

/* ---- states -------------------------------------------------------------------------------- */

static int no_memory(struct param_error *err)
{
    return param_no_memory(err);
}

static int allocate(struct srv_guide *guide, struct srv_request *req, struct param_error *err)
{
    size_t n = (size_t)guide->n_slots * (size_t)guide->n_choices, one = grammar_guide_bytes();
    int64_t used;
    if (!srv_request_charge(req, (int64_t)(n * one), &used)) return no_memory(err);
    guide->prompt_of = srv_request_alloc(req, (size_t)guide->n_slots * sizeof(int));
    guide->choices = srv_request_alloc(req, n * sizeof(*guide->choices));
    guide->guides = srv_request_alloc(req, n * sizeof(*guide->guides));
    guide->memory = aligned_alloc(64, n * one);
    if (!guide->prompt_of || !guide->choices || !guide->guides || !guide->memory)
        return no_memory(err);
    for (int i = 0; i < guide->n_slots; i++)
        guide->prompt_of[i] = -1;
    for (size_t i = 0; i < n; i++) {
        guide->choices[i].rules = &guide->rules;
        guide->guides[i] = grammar_guide(&guide->choices[i]);
    }
    return 0;
}

int srv_guide_open(struct srv_guide *guide, struct srv_request *req,
                   const struct srv_gen_params *params, int n_prompts, int n_choices,
                   struct param_error *err)
{
    guide->served = srv_facts(req)->model;
    guide->metrics = srv_facts(req)->app->metrics;
    int n_parallel = eng_info(guide->served->engine)->n_parallel;
    guide->n_slots = n_prompts < n_parallel ? n_prompts : n_parallel;
    guide->n_choices = n_choices;
    guide->rules = (struct grammar_rules){
        .info = eng_info(guide->served->engine),
        .tok = guide->served->tok,
        .stop_ids = params->stop_ids,
        .n_stop_ids = params->n_stop_ids,
        .ignore_eos = params->ignore_eos,
        .metrics = guide->metrics,
    };
    if (compile(guide, req, err) || allocate(guide, req, err)) return -1;
    name_relaxed(guide, req);
    return 0;
}

/* The prompt's own slot, if its job was refused before; else one that no running job has. */
static int choose_slot(const struct srv_guide *guide, int prompt,
                       bool (*is_done)(const void *ctx, int prompt), const void *ctx)
{
    int free_slot = -1;
    for (int i = 0; i < guide->n_slots; i++) {
        int holder = guide->prompt_of[i];
        if (holder == prompt) return i;
        if (holder < 0 || is_done(ctx, holder)) free_slot = i;
    }
    return free_slot;
}

const struct eng_guide *srv_guide_begin(struct srv_guide *guide, int prompt,
                                        bool (*is_done)(const void *ctx, int prompt),
                                        const void *ctx)
{
    int slot = choose_slot(guide, prompt, is_done, ctx);
    assert(slot >= 0 && slot < guide->n_slots); /* one per job that runs */
    guide->prompt_of[slot] = prompt;
    size_t first = (size_t)slot * (size_t)guide->n_choices;
    for (size_t i = first; i < first + (size_t)guide->n_choices; i++) {
        char *memory = guide->memory + i * grammar_guide_bytes();
        grammar_guide_begin(&guide->choices[i], memory, guide->gram,
                            guide->has_parts ? &guide->parts : NULL);
    }
    return guide->guides + first;
}

void srv_guide_release(struct srv_guide *guide)
{
    if (!guide->served) return;
    if (guide->gram) grammar_cache_put(guide->served->grammars, guide->gram);
    free(guide->memory);
    guide->gram = NULL;
    guide->memory = NULL;
}
