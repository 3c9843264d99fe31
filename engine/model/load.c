/* SPDX-License-Identifier: MIT */
/* Opens a model by its plan and closes it; the mappings that hold its weights. */
#include "engine/model/load.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/eng_error.h"
#include "engine/model/numerics.h"
#include "engine/model/plan.h"

/* ---- mappings ------------------------------------------------------------------------------ */

/* Mappings are cut at multiples of the largest base page of any system. */
static const size_t huge_page_bytes = 2u << 20, small_page_bytes = 64u << 10;

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

void *eng_arena_map(size_t bytes)
{
    bytes = round_up(bytes, small_page_bytes);
    size_t room = bytes + huge_page_bytes;
    uint8_t *at = mmap(NULL, room, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    size_t before = round_up((uintptr_t)at, huge_page_bytes) - (uintptr_t)at;
    if (before) munmap(at, before);
    if (before + bytes < room) munmap(at + before + bytes, room - before - bytes);
    assert((uintptr_t)(at + before) % huge_page_bytes == 0);
    madvise(at + before, bytes, MADV_HUGEPAGE); /* only faster */
    return at + before;
}

void eng_arena_give_back(uint8_t *from, size_t bytes)
{
    size_t before = round_up((uintptr_t)from, small_page_bytes) - (uintptr_t)from;
    if (before < bytes)
        madvise(from + before, (bytes - before) / small_page_bytes * small_page_bytes,
                MADV_DONTNEED);
}

void eng_arena_unmap(void *arena, size_t bytes)
{
    if (arena) munmap(arena, round_up(bytes, small_page_bytes));
}

/* ---- opening and closing ------------------------------------------------------------------- */

static int choose_numerics(struct eng_model *m, const struct eng_model_params *params,
                           struct eng_report *r)
{
    const char *gemm = params->gemm;
    bool quantised = eng_plan_is_quantised(m->load), blas = strcmp(gemm, "blas") == 0;
    m->numerics = params->numerics               ? params->numerics
                  : params->drafts && !quantised ? eng_numerics_find("int4")
                  : blas && !quantised           ? eng_numerics_find("exact")
                                                 : eng_plan_default_path(m->load);
    if (quantised && strcmp(m->numerics->name, "int4") == 0)
        return eng_report_problem(
            r, ENG_EUNSUPPORTED,
            "--numerics int4 would quantise quantised weights again; use file");
    if (!quantised && m->numerics->keep_blocks)
        return eng_report_problem(
            r, ENG_EUNSUPPORTED,
            "--numerics file is for files of quantised weights, which these are not; use auto");
    if (strcmp(gemm, "blas") == 0 && m->numerics->act != KERN_A_F32)
        return eng_report_problem(r, ENG_EUNSUPPORTED, "--gemm blas needs --numerics exact, not %s",
                                  m->numerics->name);
    return 0;
}

int eng_model_open(struct eng_model **ret, const struct eng_model_params *params, char *err,
                   size_t errlen)
{
    struct eng_report r = {.err = err, .errlen = errlen};
    struct eng_model *m = calloc(1, sizeof(*m));
    if (!m) return eng_report_problem(&r, ENG_ENOMEM, "no memory to open the model");
    m->kern = params->kern;
    m->stop = params->stop;
    m->adapters = params->adapters;
    m->calibrate = params->calibrate;
    m->calibrate_ctx = params->calibrate_ctx;
    const char *coding = params->weight_coding ? params->weight_coding : "auto";
    m->reading = (struct eng_reading){
        .coded = strcmp(coding, "off") != 0,
        .may_be_plain = strcmp(coding, "auto") == 0,
    };
    int rc = eng_plan_make(m, params->dir, &r);
    if (rc == 0) rc = choose_numerics(m, params, &r);
    if (rc == 0) {
        if (m->numerics->matrix != KERN_W_I4K) m->calibrate = NULL; /* only those weights are */
        eng_plan_stream(m);
        eng_plan_place(m, params->gemm);
    }
    if (rc == 0 && params->memory_bytes && m->weights_bytes > params->memory_bytes)
        rc = eng_report_problem(
            &r, ENG_ENOMEM,
            "the weights may take %lld MiB on --numerics %s, the memory limit is %lld MiB",
            (long long)(m->weights_bytes >> 20), m->numerics->name,
            (long long)(params->memory_bytes >> 20));
    if (rc)
        eng_model_close(m);
    else
        *ret = m;
    return rc;
}

void eng_load_destroy(struct eng_load *load)
{
    if (!load) return;
    eng_weights_close(load->weights);
    for (int i = 0; i < ENG_MAX_HEAD_OPS; i++)
        eng_weights_close(load->dense_weights[i]);
    free(load->mats);
    free(load->parts);
    free(load->vecs);
    free(load);
}

void eng_model_close(struct eng_model *m)
{
    if (!m) return;
    eng_load_destroy(m->load);
    eng_arena_unmap(m->arena, m->arena_bytes);
    eng_arena_unmap(m->plain, m->plain_bytes);
    free(m->layers);
    free(m->distance_bias);
    free(m);
}

int64_t eng_model_positions(const struct eng_model *m, int64_t ctx)
{
    int64_t text = m->hp.ctx_max < ENG_CALIBRATE_TOKENS ? m->hp.ctx_max : ENG_CALIBRATE_TOKENS;
    return m->calibrate && ctx < text ? text : ctx;
}

int64_t eng_model_rope_bytes(const struct eng_model *m, int64_t ctx)
{
    int n = eng_rope_pairs(&m->hp, false) + m->hp.has_local_rope * eng_rope_pairs(&m->hp, true);
    return 2 * eng_model_positions(m, ctx) * n * (int64_t)sizeof(float);
}

static int64_t mat_bytes(const struct eng_mat *m)
{
    return (int64_t)eng_mat_offset(m, m->n_panels);
}

int64_t eng_model_step_bytes(const struct eng_model *m)
{
    int64_t sum = (m->has_head ? mat_bytes(&m->head) : 0) + mat_bytes(&m->ple_model);
    for (int i = 0; i < m->hp.n_layers; i++) {
        const struct eng_layer *l = &m->layers[i];
        sum += mat_bytes(&l->qkv) + mat_bytes(&l->o) + mat_bytes(&l->gate_up) + mat_bytes(&l->down);
        sum += mat_bytes(&l->ple_gate) + mat_bytes(&l->ple_proj);
        if (!m->hp.layer_experts[i]) continue;
        sum += mat_bytes(&l->experts.router);
        sum += (mat_bytes(&l->experts.gate_up) + mat_bytes(&l->experts.down)) / m->hp.n_experts *
               m->hp.n_chosen;
    }
    return sum;
}
