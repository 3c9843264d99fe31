/* SPDX-License-Identifier: MIT */
/* The memory limit and the plan against it; see memory_plan.h. */
#include "engine/memory_plan.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/fail.h"
#include "engine/batch.h"
#include "engine/drafter.h"
#include "engine/kv/kv.h"
#include "engine/kv/disk.h"
#include "engine/model/load.h"
#include "engine/model/model.h"
#include "engine/kv/prefix.h"

/* Shorter contexts are chosen only if the model's own is shorter. */
enum { MIN_CTX_TOKENS = 256 };

/* ---- the limit ----------------------------------------------------------------------------- */

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t mem_limit_bytes(const char *root)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    int64_t physical = pages > 0 && page_bytes > 0 ? pages * page_bytes : INT64_MAX;
    return min_i64(physical / 4 * 3, cgroup_memory_limit(root));
}

/* ---- the plan ------------------------------------------------------------------------------ */

int64_t mem_plan_bytes(const struct eng_memory *m)
{
    int64_t sum = m->weights_bytes;
    const int64_t parts[] = {m->kv_bytes,     m->state_bytes,  m->scratch_bytes,
                             m->logits_bytes, m->answer_bytes, m->request_bytes,
                             m->other_bytes,  m->draft_bytes,  m->reserved_bytes};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (__builtin_add_overflow(sum, parts[i], &sum)) return INT64_MAX;
    return sum;
}

/*
 * There is a snapshot for every so many pages, if all take at most such a part of the pages'
 * memory; but at least so many per running sequence.
 */
enum { SNAPSHOT_PAGES = 4, SNAPSHOT_SHARE = 4, LEAST_SNAPSHOTS = 2 };

/* Sets the snapshots of states and the memory of both. Returns false if a sum overflows. */
static bool plan_states(const struct mem_params *p, int64_t n_pages, struct mem_plan *ret)
{
    struct eng_memory *m = &ret->memory;
    int64_t live = (int64_t)(p->states.n_floats * sizeof(float)), n = n_pages / SNAPSHOT_PAGES;
    int64_t one = prefix_snapshot_bytes(p->states.n_kept), all;
    ret->n_snapshots = 0;
    if (p->states.n_layers == 0) return true;
    n = min_i64(n, m->kv_bytes / SNAPSHOT_SHARE / one);
    if (n < LEAST_SNAPSHOTS * p->own.n_parallel) n = LEAST_SNAPSHOTS * p->own.n_parallel;
    ret->n_snapshots = (int)n;
    return !__builtin_mul_overflow(live, p->own.n_parallel, &m->state_bytes) &&
           !__builtin_mul_overflow(one, n, &all) &&
           !__builtin_add_overflow(m->state_bytes, all, &m->state_bytes);
}

/* Adds an encoder's second forward. Returns false if a sum overflows. */
static bool add_urgent(const struct mem_params *p, int64_t ctx, struct eng_memory *m)
{
    struct fwd_params fwd = p->urgent;
    int64_t scratch, logits;
    if (fwd.max_rows == 0) return true;
    fwd.ctx = ctx;
    fwd_plan(&fwd, p->own.n_threads, &scratch, &logits);
    return !__builtin_add_overflow(m->scratch_bytes, scratch, &m->scratch_bytes) &&
           !__builtin_add_overflow(m->logits_bytes, logits, &m->logits_bytes);
}

/* The plan for ctx tokens and n_pages pages. Returns false if a sum overflows. */
static bool plan_at(const struct mem_params *p, int64_t ctx, int64_t n_pages, struct mem_plan *ret)
{
    const struct eng_model *model = p->fwd.model;
    struct fwd_params fwd = p->fwd;
    struct eng_memory *m = &ret->memory;
    fwd.ctx = ctx;
    *m = (struct eng_memory){
        .weights_bytes = model->weights_bytes + eng_model_rope_bytes(model, ctx),
        .answer_bytes = p->own.answer_bytes,
        .request_bytes = p->own.request_bytes,
        .other_bytes = MEM_ALLOWANCE_BYTES + p->own.caller_bytes + p->own.lora_bytes +
                       (int64_t)p->own.caller_bytes_per_id * model->hp.vocab,
        .limit_bytes = p->own.memory_bytes,
        .reserved_bytes = p->own.reserved_bytes,
        .ctx_tokens = ctx,
    };
    fwd_plan(&fwd, p->own.n_threads, &m->scratch_bytes, &m->logits_bytes);
    if (!add_urgent(p, ctx, m)) return false;
    if (n_pages > INT32_MAX ||
        __builtin_mul_overflow((int64_t)fwd.layout->page_bytes, n_pages, &m->kv_bytes))
        return false;
    if (!plan_states(p, n_pages, ret)) return false;
    int64_t state = batch_bytes(p->own.n_parallel, p->own.n_threads, n_pages, ctx, model->hp.vocab,
                                model->hp.d_model);
    if (__builtin_add_overflow(m->scratch_bytes, state, &m->scratch_bytes)) return false;
    if (p->own.kv_disk.dir &&
        __builtin_add_overflow(
            m->kv_bytes,
            kv_disk_bytes(fwd.layout->page_bytes, p->states.n_kept * sizeof(float), ctx),
            &m->kv_bytes))
        return false;
    if (p->drafters) m->draft_bytes = drafter_bytes(p->drafters, &p->drafters->model, ctx, n_pages);
    ret->n_pages = (int)n_pages;
    return true;
}

static bool fits(const struct mem_params *p, int64_t ctx, int64_t n_pages, struct mem_plan *ret)
{
    return plan_at(p, ctx, n_pages, ret) && mem_plan_bytes(&ret->memory) <= p->own.memory_bytes;
}

/* The pages of a context: those that kv_bytes holds, else enough for all slots at full length. */
static int64_t wanted_pages(const struct mem_params *p, int64_t ctx)
{
    if (p->own.kv_bytes > 0) return p->own.kv_bytes / (int64_t)p->fwd.layout->page_bytes;
    return kv_pages_of(ctx) * p->own.n_parallel;
}

/* The same, or fewer if memory is too small, but at least the pages of one sequence. */
static int64_t choose_pages(const struct mem_params *p, int64_t ctx)
{
    struct mem_plan plan;
    int64_t wanted = wanted_pages(p, ctx), least = kv_pages_of(ctx);
    if (p->own.kv_bytes > 0 || fits(p, ctx, wanted, &plan)) return wanted;
    if (!plan_at(p, ctx, least, &plan)) return least;
    int64_t rest = p->own.memory_bytes - mem_plan_bytes(&plan.memory);
    int64_t page_bytes = (int64_t)p->fwd.layout->page_bytes + prefix_bytes(1);
    if (p->states.n_layers > 0)
        page_bytes += min_i64(prefix_snapshot_bytes(p->states.n_kept) / SNAPSHOT_PAGES + 1,
                              (int64_t)p->fwd.layout->page_bytes / SNAPSHOT_SHARE + 1);
    if (p->drafters) page_bytes += (int64_t)p->drafters->model.layout.page_bytes;
    int64_t more = rest / page_bytes;
    return more > 0 ? min_i64(wanted, least + more) : least;
}

/* The longest context, in whole pages, for which all slots fit. */
static int64_t choose_ctx(const struct mem_params *p, int64_t ctx_max)
{
    struct mem_plan plan;
    if (p->own.kv_bytes > 0) ctx_max = min_i64(ctx_max, wanted_pages(p, 0) * KV_PAGE_TOKENS);
    if (fits(p, ctx_max, wanted_pages(p, ctx_max), &plan)) return ctx_max;
    int64_t low = kv_pages_of(min_i64(ctx_max, MIN_CTX_TOKENS)), high = kv_pages_of(ctx_max);
    while (high - low > 1) { /* low fits or is the least; high does not fit */
        int64_t mid = low + (high - low) / 2, ctx = mid * KV_PAGE_TOKENS;
        if (fits(p, ctx, wanted_pages(p, ctx), &plan))
            low = mid;
        else
            high = mid;
    }
    return min_i64(low * KV_PAGE_TOKENS, ctx_max);
}

static long long mib(int64_t bytes)
{
    return (long long)((bytes + (1 << 20) - 1) >> 20);
}

static int refuse(const struct mem_params *p, const struct mem_plan *plan, char *err, size_t errlen)
{
    const struct eng_memory *m = &plan->memory;
    int64_t sum = mem_plan_bytes(m);
    char reserved[48] = "", states[48] = "", draft[48] = "";
    if (m->state_bytes) snprintf(states, sizeof(states), " + states %lld MiB", mib(m->state_bytes));
    if (m->draft_bytes)
        snprintf(draft, sizeof(draft), " + draft model %lld MiB", mib(m->draft_bytes));
    if (m->reserved_bytes)
        snprintf(reserved, sizeof(reserved), " + reserved %lld MiB", mib(m->reserved_bytes));
    bool kv_is_all = sum - m->kv_bytes < p->own.memory_bytes;
    bool weights_are = sum - m->weights_bytes < p->own.memory_bytes;
    snprintf(
        err, errlen,
        "memory: weights %lld MiB + KV cache %lld MiB (%d pages of %d tokens)%s + scratch %lld MiB "
        "+ logits %lld MiB + answers %lld MiB + requests %lld MiB + program %lld MiB%s%s = %lld "
        "MiB, but the limit is %lld MiB; %s",
        mib(m->weights_bytes), mib(m->kv_bytes), plan->n_pages, KV_PAGE_TOKENS, states,
        mib(m->scratch_bytes), mib(m->logits_bytes), mib(m->answer_bytes), mib(m->request_bytes),
        mib(m->other_bytes), draft, reserved, mib(sum), mib(p->own.memory_bytes),
        m->draft_bytes && sum - m->draft_bytes <= p->own.memory_bytes
            ? "leave out --draft-model, or give more with --memory"
        : kv_is_all   ? "lower --ctx-size, or give more with --memory"
        : weights_are ? "choose --numerics int8 or int4, or give more with --memory"
                      : "give more with --memory, or lower --answer-memory and --grammar-cache-mb");
    return ENG_ENOMEM;
}

int mem_plan_make(struct mem_plan *ret, const struct mem_params *p, char *err, size_t errlen)
{
    int64_t ctx_max = p->fwd.model->hp.ctx_max;
    if (p->own.ctx_tokens > ctx_max) {
        snprintf(
            err, errlen,
            "a context of %lld tokens exceeds the model's %lld: lower --ctx-size, or leave it out",
            (long long)p->own.ctx_tokens, (long long)ctx_max);
        return ENG_EINVAL;
    }
    int64_t ctx = p->own.ctx_tokens > 0 ? p->own.ctx_tokens : choose_ctx(p, ctx_max);
    int64_t n_pages = choose_pages(p, ctx);
    if (ctx < 1 || n_pages < kv_pages_of(ctx))
        return fail_with(ENG_ENOMEM, err, errlen,
                         "a KV cache of %lld KiB holds %lld tokens, fewer than the context of "
                         "%lld: raise --kv-memory, or lower --ctx-size",
                         (long long)(p->own.kv_bytes >> 10), (long long)n_pages * KV_PAGE_TOKENS,
                         (long long)(ctx < 1 ? 1 : ctx));
    struct mem_plan plan;
    if (!plan_at(p, ctx, n_pages, &plan))
        return fail_with(ENG_ENOMEM, err, errlen, "%lld pages of KV cache exceed the address space",
                         (long long)n_pages);
    if (mem_plan_bytes(&plan.memory) > p->own.memory_bytes) return refuse(p, &plan, err, errlen);
    assert(ctx <= ctx_max && plan.n_pages >= kv_pages_of(ctx));
    *ret = plan;
    return 0;
}
