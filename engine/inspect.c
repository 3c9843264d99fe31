/* SPDX-License-Identifier: MIT */
/* A model directory as a report for people: what it is, what is in it, what would be served. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "engine/model_plan.h"

static void list_config(const struct eng_hparams *hp, const struct eng_report *r)
{
    static const char *const rope_names[] = {"default", "linear", "llama3", "yarn", "dynamic"};
    eng_report_line(r, "architecture: %s (model_type %s)", hp->family->architecture,
                    hp->family->model_type);
    eng_report_line(r, "sizes: hidden %d, %d layers, %d heads (%d kv) of %d, feed-forward %d, "
                    "vocabulary %d, %s head", hp->d_model, hp->n_layers, hp->n_heads,
                    hp->n_kv_heads, hp->d_head, hp->d_ff, (int)hp->vocab,
                    hp->tied ? "tied" : "separate");
    eng_report_line(r, "context: %lld tokens; RoPE %s, theta %g, factor %g",
                    (long long)hp->ctx_max, rope_names[hp->rope.type], hp->rope.theta,
                    hp->rope.factor);
    int n_nope = 0, n_windows = 0, window = 0;
    for (int i = 0; i < hp->n_layers; i++) {
        n_nope += !hp->layer_rope[i];
        n_windows += hp->layer_window[i] > 0;
        if (hp->layer_window[i] > 0) window = hp->layer_window[i];
    }
    if (n_nope) eng_report_line(r, "layers without RoPE: %d", n_nope);
    if (n_windows)
        eng_report_line(r, "layers with a sliding window of %d tokens: %d", window, n_windows);
    char ids[ENG_MAX_EOS * 12] = "none";
    int at = 0;
    for (int i = 0; i < hp->n_eos_ids; i++)
        at += snprintf(ids + at, sizeof(ids) - (size_t)at, "%s%d", i ? ", " : "",
                       (int)hp->eos_ids[i]);
    eng_report_line(r, "end of sequence: %s", ids);
}

static void list_tensors(const struct eng_weights *w, const struct eng_report *r)
{
    long long bytes = 0;
    size_t n_unused = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct eng_tensor *t = w->by_name[i];
        char shape[ENG_SHAPE_TEXT];
        eng_tensor_shape(t, shape);
        eng_report_line(r, "tensor: %s %s %s %lld bytes in %s%s", t->name,
                        eng_dtype_name(t->dtype), shape, (long long)t->n_bytes, t->shard->name,
                        t->used ? "" : " (not used)");
        bytes += t->n_bytes;
        n_unused += !t->used;
    }
    eng_report_line(r, "tensors: %zu of %lld bytes in %zu files, %zu not used", w->n_tensors, bytes,
                    w->n_shards, n_unused);
}

/* What each numeric path would take. */
static void list_paths(struct eng_model *m, const struct eng_report *r)
{
    bool bf16 = kern_has_bf16() && eng_plan_is_bf16(m->load);
    eng_report_line(r, "parameters: %lld, %s", (long long)m->n_params, m->weights_dtype);
    for (const char *const *name = eng_numerics_names(); *name; name++) {
        m->numerics = eng_numerics_find(*name);
        eng_plan_place(m, "native");
        bool is_default = m->numerics == eng_numerics_find(bf16 ? "bf16" : "exact");
        eng_report_line(r, "numerics %s: at most %lld bytes of weights in memory%s", *name,
                        (long long)m->weights_bytes, is_default ? " (the default here)" : "");
    }
}

int eng_inspect(const char *model_dir, void (*line)(void *ctx, const char *text), void *ctx)
{
    char err[8];
    struct eng_report r = {.err = err, .errlen = sizeof(err), .line = line, .ctx = ctx};
    struct eng_model *m = calloc(1, sizeof(*m));
    if (!m) return ENG_ENOMEM;
    m->kern = kern_select("auto");
    int rc = eng_plan_make(m, model_dir, &r);
    if (m->hp.family) list_config(&m->hp, &r);
    if (m->load && m->load->weights) list_tensors(m->load->weights, &r);
    if (rc == 0) list_paths(m, &r);
    eng_model_close(m);
    return rc;
}
