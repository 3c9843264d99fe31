/* SPDX-License-Identifier: MIT */
/*
 * The contents of a model directory: configuration, tensors, and the paths it can be served with.
 */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "engine/engine.h"
#include "engine/model/config.h"
#include "engine/model/family.h"
#include "engine/model/load.h"
#include "engine/model/numerics.h"
#include "engine/model/plan.h"
#include "engine/model/rope.h"
#include "engine/model/weights.h"

static void report_config(const struct eng_model *m, const struct eng_inspector *in)
{
    const struct eng_hparams *hp = &m->hp;
    struct eng_inspect_config c = {
        .architecture = hp->architecture,
        .model_type = hp->family->model_type,
        .family = hp->family->title,
        .rope = eng_rope_name(&hp->rope, hp->ctx_max),
        .hidden_size = hp->d_model,
        .n_layers = hp->n_layers,
        .n_heads = hp->n_heads,
        .n_kv_heads = hp->n_kv_heads,
        .d_head = hp->d_head,
        .d_ff = hp->d_ff,
        .vocab_size = hp->vocab,
        .tied_head = hp->tied,
        .generates = m->has_head,
        .ctx_tokens = hp->ctx_max,
        .rope_theta = hp->rope.theta,
        .rope_factor = hp->rope.factor,
        .local_rope_theta = hp->has_local_rope ? hp->local_rope.theta : 0,
        .eos_ids = hp->eos.ids,
        .n_eos_ids = hp->eos.n,
        .n_experts = hp->n_experts,
        .n_chosen = hp->n_chosen,
        .n_active_params = m->n_active_params,
        .full_d_head = hp->full.d_head,
        .full_kv_heads = hp->full.n_kv_heads,
        .n_shared = hp->n_shared,
        .d_ple = hp->d_ple,
    };
    for (int i = 0; i < hp->n_layers; i++) {
        c.n_layers_without_rope += !hp->layer_rope[i];
        c.n_convolutions += hp->layer_mixer[i] == ENG_CONV;
        c.n_delta_nets += hp->layer_mixer[i] == ENG_DELTA;
        c.n_windowed_layers += hp->layer_window[i] > 0;
        if (hp->layer_window[i] > 0) c.window_tokens = hp->layer_window[i];
    }
    in->config(in->ctx, &c);
}

static void report_tensors(const struct eng_weights *w, const struct eng_inspector *in)
{
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct eng_tensor *t = w->by_name[i];
        in->tensor(in->ctx, &(struct eng_inspect_tensor){
                                .name = t->name,
                                .file_name = t->file_name,
                                .dtype = eng_dtype_name(t->dtype),
                                .file = t->shard->name,
                                .shape = t->shape,
                                .rank = t->rank,
                                .n_bytes = t->n_bytes,
                                .used = t->used,
                            });
    }
}

/* The memory that each numeric path needs. */
static void report_paths(struct eng_model *m, const struct eng_inspector *in)
{
    const struct eng_numerics *chosen = eng_plan_default_path(m->load);
    bool quantised = eng_plan_is_quantised(m->load);
    for (const char *const *name = eng_path_names(); *name; name++) {
        m->numerics = eng_numerics_find(*name);
        if (strcmp(*name, quantised ? "int4" : "file") == 0) continue; /* refused */
        eng_plan_place(m, "native");
        in->path(in->ctx,
                 &(struct eng_inspect_path){
                     .numerics = *name,
                     .weights_bytes = m->weights_bytes + eng_model_rope_bytes(m, m->hp.ctx_max),
                     .step_bytes = eng_model_step_bytes(m),
                     .is_default = m->numerics == chosen,
                 });
    }
}

int eng_inspect(const char *model_dir, const struct eng_inspector *in)
{
    char err[8];
    struct eng_report r = {
        .err = err, .errlen = sizeof(err), .problem = in->problem, .ctx = in->ctx};
    struct eng_model *m = calloc(1, sizeof(*m));
    if (!m) return ENG_ENOMEM;
    m->kern = kern_select("auto");
    m->reading.coded = true;
    int rc = eng_plan_make(m, model_dir, &r);
    if (m->hp.family && in->config) report_config(m, in);
    if (m->load && m->load->weights && in->tensor) report_tensors(m->load->weights, in);
    if (rc == 0 && in->weights) in->weights(in->ctx, m->n_params, m->weights_dtype);
    if (rc == 0 && in->path) report_paths(m, in);
    eng_model_close(m);
    return rc;
}

int eng_check_config(const char *text, size_t len, char *err, size_t errlen)
{
    struct eng_report r = {.err = err, .errlen = errlen};
    AUTO_FREE struct eng_hparams *hp = calloc(1, sizeof(*hp));
    if (!hp) return ENG_ENOMEM;
    return eng_config_parse(hp, text, len, NULL, 0, &r);
}

int eng_check_gguf(const struct gguf *g, char *err, size_t errlen)
{
    struct eng_report r = {.err = err, .errlen = errlen};
    return eng_gguf_check(g, &r);
}
