/* SPDX-License-Identifier: MIT */
/*
 * hearth inspect --model DIR: whether a model directory can be served, what it contains, and every
 * problem found. The report goes to stdout, as text or with --json as one JSON object; the first
 * problem also to stderr, and the status is then 1. --check-config looks in the same way and prints
 * none.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/gguf.h"
#include "base/gguf_names.h"
#include "base/shown.h"
#include "engine/engine.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "server/models/lookup.h"
#include "server/models/served_model.h"
#include "server/models/retrieval.h"
#include "server/models/token_facts.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tools/tools.h"

struct inspection {
    const struct srv_config *config;
    FILE *text;                            /* the report as text, or NULL */
    json_t *report;                        /* as JSON; else NULL */
    json_t *problems, *tensors, *numerics; /* its arrays, borrowed */
    bool failed;                           /* memory for the JSON report ran out */
    bool has_config;
    int32_t eos[32]; /* [n_eos] */
    int n_eos;
    long long n_tensors, n_bytes, n_unused;
    char first_problem[1024];
};

/* ---- output -------------------------------------------------------------------------------- */

/* One line of the text report. Names from files may hold anything, a line is text. */
#define say(in, ...) ((in)->text ? shown_line((in)->text, __VA_ARGS__) : (void)0)

/* Takes the value, which is discarded if the report is text. */
static void add(struct inspection *in, const char *name, json_t *value)
{
    if (!in->report)
        json_decref(value);
    else if (json_object_set_new(in->report, name, value))
        in->failed = true;
}

static void append(struct inspection *in, json_t *array, json_t *value)
{
    if (!in->report)
        json_decref(value);
    else if (json_array_append_new(array, value))
        in->failed = true;
}

static void note_problem(void *ctx, const char *sentence)
{
    struct inspection *in = ctx;
    say(in, "problem: %s", sentence);
    if (!in->first_problem[0])
        snprintf(in->first_problem, sizeof(in->first_problem), "%s", sentence);
    if (!in->report) return;
    json_t *text = json_string(sentence); /* NULL if a cut has left an incomplete UTF-8 sequence */
    append(in, in->problems, text ? text : json_string("a name that is not UTF-8"));
}

/* ---- from the engine ----------------------------------------------------------------------- */

/* "Gemma 3: 26 layers, window 512 on 22, two rotary bases, tied" */
static void say_family(const struct inspection *in, const struct eng_inspect_config *c)
{
    char window[64] = "", nope[64] = "", conv[64] = "", experts[96] = "";
    if (c->n_windowed_layers)
        snprintf(window, sizeof(window), ", window %d on %d", c->window_tokens,
                 c->n_windowed_layers);
    if (c->n_layers_without_rope)
        snprintf(nope, sizeof(nope), ", %d without RoPE", c->n_layers_without_rope);
    if (c->n_convolutions) snprintf(conv, sizeof(conv), ", %d convolutions", c->n_convolutions);
    if (c->n_delta_nets) snprintf(conv, sizeof(conv), ", %d delta nets", c->n_delta_nets);
    if (c->n_experts)
        snprintf(experts, sizeof(experts), ", %d experts, %d a token (%lld active parameters)",
                 c->n_experts, c->n_chosen, (long long)c->n_active_params);
    say(in, "family: %s: %d layers%s%s%s%s%s%s", c->family, c->n_layers, conv, experts, window,
        nope, c->local_rope_theta > 0 ? ", two rotary bases" : "", c->tied_head ? ", tied" : "");
}

static void add_eos(struct inspection *in, int32_t id)
{
    for (int i = 0; i < in->n_eos; i++)
        if (in->eos[i] == id) return;
    if (id >= 0 && in->n_eos < (int)(sizeof(in->eos) / sizeof(in->eos[0])))
        in->eos[in->n_eos++] = id;
}

static void show_eos(struct inspection *in)
{
    char ids[512] = "none";
    json_t *list = json_array();
    for (int i = 0, at = 0; i < in->n_eos; i++) {
        at += snprintf(ids + at, sizeof(ids) - (size_t)at, "%s%d", i ? ", " : "", in->eos[i]);
        append(in, list, json_integer(in->eos[i]));
    }
    if (in->has_config) say(in, "end of sequence: %s", ids);
    add(in, "eos_ids", list);
}

static void show_config(void *ctx, const struct eng_inspect_config *c)
{
    struct inspection *in = ctx;
    say_family(in, c);
    say(in, "architecture: %s (model_type %s)", c->architecture, c->model_type);
    say(in,
        "sizes: hidden %d, %d layers, %d heads (%d kv) of %d, feed-forward %d, vocabulary %d, "
        "%s head",
        c->hidden_size, c->n_layers, c->n_heads, c->n_kv_heads, c->d_head, c->d_ff,
        (int)c->vocab_size, c->tied_head ? "tied" : "separate");
    say(in, "context: %lld tokens; RoPE %s, theta %g, factor %g", (long long)c->ctx_tokens, c->rope,
        c->rope_theta, c->rope_factor);
    if (c->local_rope_theta > 0)
        say(in, "layers with a window: RoPE default, theta %g", c->local_rope_theta);
    if (c->full_d_head)
        say(in,
            "layers without a window: heads of %d (%d kv); %d layers share keys and values; "
            "per-layer embeddings of %d",
            c->full_d_head, c->full_kv_heads, c->n_shared, c->d_ple);
    in->has_config = true;
    for (int i = 0; i < c->n_eos_ids; i++)
        add_eos(in, c->eos_ids[i]);
    if (!in->report) return;
    json_auto_t *facts = json_pack(
        "{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:I, s:{s:s, s:f, s:f}, "
        "s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:i, s:i, s:i, s:i}",
        "family", c->family, "architecture", c->architecture, "model_type", c->model_type,
        "hidden_size", c->hidden_size, "layers", c->n_layers, "heads", c->n_heads, "kv_heads",
        c->n_kv_heads, "head_dim", c->d_head, "feed_forward", c->d_ff, "vocab_size",
        (int)c->vocab_size, "tied_head", c->tied_head, "context_tokens", (json_int_t)c->ctx_tokens,
        "rope", "type", c->rope, "theta", c->rope_theta, "factor", c->rope_factor,
        "layers_without_rope", c->n_layers_without_rope, "layers_with_window", c->n_windowed_layers,
        "convolutions", c->n_convolutions, "delta_nets", c->n_delta_nets, "experts", c->n_experts,
        "experts_per_token", c->n_chosen, "active_parameters", (json_int_t)c->n_active_params,
        "full_head_dim", c->full_d_head, "full_kv_heads", c->full_kv_heads, "shared_kv_layers",
        c->n_shared, "per_layer_embeddings", c->d_ple);
    if (!facts || json_object_update(in->report, facts)) in->failed = true;
}

static void show_tensor(void *ctx, const struct eng_inspect_tensor *t)
{
    struct inspection *in = ctx;
    char shape[128] = "[";
    int at = 1;
    for (int i = 0; i < t->rank && at < (int)sizeof(shape) - 24; i++)
        at += snprintf(shape + at, sizeof(shape) - (size_t)at, "%s%lld", i ? ", " : "",
                       (long long)t->shape[i]);
    bool renamed = strcmp(t->name, t->file_name) != 0;
    say(in, "tensor: %s %s %s] %lld bytes in %s%s%s%s", t->file_name, t->dtype, shape,
        (long long)t->n_bytes, t->file, renamed ? " as " : "", renamed ? t->name : "",
        t->used ? "" : " (not used)");
    in->n_tensors++;
    in->n_bytes += t->n_bytes;
    in->n_unused += !t->used;
    if (!in->report) return;
    json_t *dims = json_array();
    for (int i = 0; i < t->rank; i++)
        append(in, dims, json_integer(t->shape[i]));
    append(in, in->tensors,
           json_pack("{s:s, s:s*, s:s, s:o, s:I, s:s, s:b}", "name", t->name, "file_name",
                     renamed ? t->file_name : NULL, "dtype", t->dtype, "shape", dims, "bytes",
                     (json_int_t)t->n_bytes, "file", t->file, "used", t->used));
}

static void show_weights(void *ctx, int64_t n_params, const char *dtype)
{
    struct inspection *in = ctx;
    say(in, "parameters: %lld, %s", (long long)n_params, dtype);
    add(in, "parameters", json_integer(n_params));
    add(in, "weights_dtype", json_string(dtype));
}

/* With the context that serve would take; where none fits, the longest. */
static int64_t weights_bytes(const struct inspection *in, const struct eng_inspect_path *p)
{
    struct srv_config c = *in->config;
    const struct srv_model_params params = {.config = &c, .dir = c.model};
    struct eng_memory plan;
    char err[512];
    c.numerics = (char *)p->numerics;
    return srv_model_plan(&plan, &params, 0, err, sizeof(err)) ? p->weights_bytes
                                                               : plan.weights_bytes;
}

static void show_path(void *ctx, const struct eng_inspect_path *p)
{
    struct inspection *in = ctx;
    if (!in->text && !in->report) return;
    int64_t bytes = weights_bytes(in, p);
    say(in, "numerics %s: at most %lld bytes of weights in memory, %lld read for a token%s",
        p->numerics, (long long)bytes, (long long)p->step_bytes,
        p->is_default ? " (the default here)" : "");
    append(in, in->numerics,
           json_pack("{s:s, s:I, s:I, s:b}", "name", p->numerics, "weights_bytes",
                     (json_int_t)bytes, "step_bytes", (json_int_t)p->step_bytes, "default",
                     p->is_default));
}

/* ---- from the tokenizer -------------------------------------------------------------------- */

/* Its tokenizer; whether it is small enough depends on the numeric path, which a plan knows. */
static void inspect_draft(struct inspection *in, const struct tok *tok)
{
    const char *name = in->config->draft_shown;
    AUTO_FREE uint64_t *ids = NULL;
    char err[900];
    int n = 0;
    if (srv_draft_ids(&ids, NULL, tok, in->config->draft_model, err, sizeof(err))) {
        note_problem(in, err);
        return;
    }
    for (int i = 0; i < (tok_vocab_size(tok) + 63) / 64; i++)
        n += __builtin_popcountll(ids[i]);
    say(in, "draft model: %s, with %d of the tokens", name, n);
    add(in, "draft_model", json_pack("{s:s, s:i}", "model", name, "shared_tokens", n));
}

static void inspect_tokenizer(struct inspection *in)
{
    struct tok *tok = NULL;
    char *info = NULL, err[900] = "tokenizer.json cannot be used";
    if (tok_open_from(&tok, in->config->model, in->config->tokenizer, err, sizeof(err))) {
        note_problem(in, err);
    } else {
        const char *source = tok_source(tok);
        say(in, "tokenizer: %d tokens%s%s", (int)tok_vocab_size(tok), source ? ", by " : "",
            source ? source : "");
        add(in, "tokenizer",
            json_pack("{s:i, s:s*}", "tokens", (int)tok_vocab_size(tok), "source", source));
        const struct srv_config *c = in->config;
        if (c->draft_model && (!strcmp(c->speculate, "auto") || !strcmp(c->speculate, "always")))
            inspect_draft(in, tok);
        /* Faults of that file are the chat template's. */
        if (!tok_chat_info_read(&info, in->config->model, err, sizeof(err)))
            add_eos(in, srv_tokenizer_eos(tok, info));
    }
    free(info);
    tok_close(tok);
}

static void show_style(struct inspection *in, const struct tools_style *s)
{
    const char *format = tools_format_name(s->format), *source = tools_source_names[s->source];
    if (s->open[0])
        say(in, "tool calls: %s (%s), behind %s%s%s", format, source, s->open,
            s->close[0] ? " and before " : "", s->close);
    else
        say(in, "tool calls: %s (%s)", format, source);
    if (s->think_open[0])
        say(in, "reasoning: between %s and %s%s", s->think_open, s->think_close,
            s->think_forced ? ", begun by the prompt" : "");
    else
        say(in, "reasoning: none");
    add(in, "tool_format",
        json_pack("{s:s, s:s, s:s, s:s}", "id", format, "source", source, "open", s->open, "close",
                  s->close));
    add(in, "reasoning",
        s->think_open[0] ? json_pack("{s:s, s:s, s:b}", "open", s->think_open, "close",
                                     s->think_close, "forced", s->think_forced)
                         : json_null());
}

static void inspect_template(struct inspection *in)
{
    struct tok_chat *chat = NULL;
    struct tools_style style;
    char err[900] = "the chat template cannot be used";
    const char *file = in->config->chat_template_file;
    struct tok_chat_params params = {.template_file = file, .tokenizer_dir = in->config->tokenizer};
    int rc = tok_chat_open(&chat, in->config->model, &params, err, sizeof(err));
    if (rc == 0) {
        const struct tok_chat_caps *caps = tok_chat_caps(chat);
        size_t bytes = strlen(tok_chat_source(chat));
        say(in, "chat template: %zu bytes of %s; system role %s, tools %s", bytes,
            tok_chat_file(chat), caps->system_role ? "yes" : "no", caps->tools ? "yes" : "no");
        add(in, "chat_template",
            json_pack("{s:I, s:s, s:b, s:b}", "bytes", (json_int_t)bytes, "file",
                      tok_chat_file(chat), "system_role", caps->system_role, "tools", caps->tools));
        if (tools_detect(&style, chat, in->config->tool_format))
            note_problem(in, "out of memory while reading the chat template");
        else
            show_style(in, &style);
    } else if (rc == TOK_ENOENT && !file) {
        say(in, "chat template: none");
        add(in, "chat_template", json_null());
    } else {
        note_problem(in, err);
    }
    tok_chat_close(chat);
}

/* ---- all of it ----------------------------------------------------------------------------- */

/* Version, keys, and how many tensors of each type: also of a file that is refused. */
static void inspect_file(struct inspection *in)
{
    char err[900], types[400];
    struct gguf *g;
    if (!gguf_is_path(in->config->model) ||
        gguf_open(&g, NULL, in->config->model, 0, err, sizeof(err)))
        return;
    say(in, "format: GGUF %u, %zu keys", (unsigned)g->version, g->n_keys);
    add(in, "format",
        json_pack("{s:s, s:i, s:i}", "name", "GGUF", "version", (int)g->version, "keys",
                  (int)g->n_keys));
    gguf_close(g);
    say(in, "contents: %s", srv_gguf_types(in->config->model, types, sizeof(types)));
}

static void inspect(struct inspection *in)
{
    const struct eng_inspector engine = {
        .problem = note_problem,
        .config = show_config,
        .tensor = show_tensor,
        .weights = show_weights,
        .path = show_path,
        .ctx = in,
    };
    AUTO(srv_retrieval_finish) struct srv_retrieval files = {0};
    char err[900];
    inspect_file(in);
    if (srv_hub_is_adapter(in->config->model, err, sizeof(err)))
        note_problem(in, err);
    else
        eng_inspect(in->config->model, &engine);
    say(in, "tensors: %lld of %lld bytes, %lld not used", in->n_tensors, in->n_bytes, in->n_unused);
    inspect_tokenizer(in);
    show_eos(in);
    inspect_template(in);
    if (in->has_config && srv_retrieval_read(&files, in->config->model, 1, err, sizeof(err)))
        note_problem(in, err);
    add(in, "can_be_served", json_boolean(!in->first_problem[0]));
}

static void start_json(struct inspection *in)
{
    in->problems = json_array();
    in->tensors = json_array();
    in->numerics = json_array();
    in->report =
        json_pack("{s:s, s:b, s:o, s:o, s:o}", "model", in->config->model, "can_be_served", 0,
                  "problems", in->problems, "tensors", in->tensors, "numerics", in->numerics);
    in->failed = !in->report;
}

int srv_inspect_check(const struct srv_config *config, char *err, size_t errlen)
{
    struct inspection in = {.config = config};
    inspect(&in);
    if (in.first_problem[0])
        snprintf(err, errlen, "%.200s cannot be served: %s", config->model, in.first_problem);
    return in.first_problem[0] ? -1 : 0;
}

int srv_cmd_inspect(const struct srv_config *config)
{
    char *text = NULL;
    size_t len = 0;
    struct inspection in = {.config = config};
    if (config->json)
        start_json(&in);
    else
        in.text = open_memstream(&text, &len); /* the first lines are known last */
    inspect(&in);
    bool written = in.text ? fclose(in.text) == 0 : in.report && !in.failed;
    if (text && written) {
        shown_line(stdout, "verdict: %s be served%s%s", in.first_problem[0] ? "cannot" : "can",
                   in.first_problem[0] ? ": " : "", in.first_problem);
        fwrite(text, 1, len, stdout);
    }
    free(text);
    if (in.report && written)
        written = json_dumpf(in.report, stdout, JSON_INDENT(2)) == 0 && putchar('\n') == '\n';
    json_decref(in.report);
    if (!written || fflush(stdout) || ferror(stdout))
        return srv_cmd_fail(EXIT_FAILURE, "the report cannot be written");
    if (!in.first_problem[0]) return EXIT_SUCCESS;
    return srv_cmd_fail(EXIT_FAILURE, "%s cannot be served: %s", config->model, in.first_problem);
}
