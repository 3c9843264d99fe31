/* SPDX-License-Identifier: MIT */
/* Jobs: checking, copying into one allocation, and events to the caller. */
#include "engine/job.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/sha256.h"
#include "engine/kv/kv.h"
#include "engine/model/adapter.h"
#include "engine/model/hparams.h"
#include "engine/params.h"
#include "engine/sample.h"

/* ---- checking ------------------------------------------------------------------------------ */

static int check_tokens(const char *what, const int32_t *ids, int64_t n, int32_t vocab, char *err,
                        size_t errlen)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] >= 0 && ids[i] < vocab) continue;
        return fail_with(ENG_EINVAL, err, errlen,
                         "token %d at position %lld of the %s is outside [0, %d)", (int)ids[i],
                         (long long)i, what, (int)vocab);
    }
    return 0;
}

static int check_prompt(const struct eng_job_params *p, const struct job_limits *l, char *err,
                        size_t errlen)
{
    if (!p->prompt || p->n_prompt < 1)
        return fail_with(ENG_EINVAL, err, errlen,
                         "the prompt is empty: at least 1 token is needed");
    if (p->n_prompt > l->ctx)
        return fail_with(ENG_ECONTEXT, err, errlen,
                         "the prompt has %lld tokens but the context holds %lld",
                         (long long)p->n_prompt, (long long)l->ctx);
    return check_tokens("prompt", p->prompt, p->n_prompt, l->vocab, err, errlen);
}

static int check_counts(const struct eng_job_params *p, const struct job_limits *l, char *err,
                        size_t errlen)
{
    const struct {
        const char *name;
        int64_t value, min, max;
    } ranges[] = {
        {"n_choices", p->n_choices, 1, l->max_choices},
        {"first_choice", p->first_choice, 0, INT32_MAX - l->max_choices},
        {"max_tokens", p->max_tokens, 0, INT64_MAX},
        {"min_tokens", p->min_tokens, 0, INT64_MAX},
        {"n_stop_ids", p->n_stop_ids, 0, INT32_MAX},
        {"n_prediction", p->n_prediction, 0, INT64_MAX},
        {"n_listed_ids", p->n_listed_ids, 0, ENG_MAX_LISTED},
        {"n_loras", p->n_loras, 0, l->no_loras ? 0 : ENG_MAX_LORAS},
        {"n_marks", p->n_marks, 0, ENG_MAX_MARKS},
        {"n_logprobs", p->n_logprobs, -1, ENG_MAX_LOGPROBS},
        {"n_prompt_logprobs", p->n_prompt_logprobs, -1, ENG_MAX_LOGPROBS},
        {"n_first", p->n_first, 0, p->n_prompt},
        {"n_unpooled", p->n_unpooled, 0, p->n_prompt - 1},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
            return fail_with(ENG_EINVAL, err, errlen, "%s is %lld but must be in %lld to %lld",
                             ranges[i].name, (long long)ranges[i].value, (long long)ranges[i].min,
                             (long long)ranges[i].max);
    return 0;
}

static int64_t used_prediction(const struct eng_job_params *p, int64_t ctx)
{
    return p->n_prediction < ctx ? p->n_prediction : ctx;
}

static int check_params(const struct eng_job_params *p, const struct job_limits *l, char *err,
                        size_t errlen)
{
    int rc = check_prompt(p, l, err, errlen);
    if (!rc) rc = check_counts(p, l, err, errlen);
    if (!rc) rc = sample_check(&p->sampling, l->vocab, err, errlen);
    if (!rc)
        rc = check_tokens("prediction", p->prediction, used_prediction(p, l->ctx), l->vocab, err,
                          errlen);
    if (!rc) rc = check_tokens("listed ids", p->listed_ids, p->n_listed_ids, l->vocab, err, errlen);
    if (!rc) rc = check_tokens("stop ids", p->stop_ids, p->n_stop_ids, l->vocab, err, errlen);
    if (rc) return rc;
    if (p->want_pooled && (p->max_tokens != 0 || p->n_choices != 1))
        return fail_with(ENG_EINVAL, err, errlen,
                         "an embedding job has max_tokens %lld and %d choices, not 0 and 1",
                         (long long)p->max_tokens, p->n_choices);
    for (int i = 0; i < p->n_marks; i++) {
        if (p->marks[i] >= 0 && p->marks[i] <= p->n_prompt) continue;
        return fail_with(ENG_EINVAL, err, errlen, "marks[%d] is %lld but must be in 0 to %lld", i,
                         (long long)p->marks[i], (long long)p->n_prompt);
    }
    if ((l->reads_only && (p->max_tokens > 0 || p->want_logits || p->n_prompt_logprobs >= 0)) ||
        (l->only_pools && !p->want_pooled))
        return fail_with(ENG_EUNSUPPORTED, err, errlen,
                         "this model makes no tokens: it reads texts only");
    for (int i = 0; i < p->n_loras; i++)
        if (!(fabsf(p->loras[i].scale) <= ENG_MAX_LORA_SCALE))
            return fail_with(ENG_EINVAL, err, errlen,
                             "the scale of an adapter must be in -%d to %d", ENG_MAX_LORA_SCALE,
                             ENG_MAX_LORA_SCALE);
    if (!p->on_event) return fail_with(ENG_EINVAL, err, errlen, "on_event is missing");
    return 0;
}

/* ---- copying ------------------------------------------------------------------------------- */

/* The lists that are copied next to a job; to NULL they are only counted. */
struct copy {
    uint8_t *to;
    size_t n;
    bool overflows;
};

/* Returns room for n elements; NULL if they are only counted. */
static void *add_list(struct copy *c, int64_t n, size_t size)
{
    size_t bytes;
    uint8_t *to = c->to ? c->to + c->n : NULL;
    c->overflows |= __builtin_mul_overflow((size_t)n, size, &bytes) ||
                    __builtin_add_overflow(c->n, bytes, &c->n);
    return to;
}

/* Returns the copy of n elements; NULL if there are none, or they are only counted. */
static void *copy_list(struct copy *c, const void *from, int64_t n, size_t size)
{
    uint8_t *to = from && n > 0 ? add_list(c, n, size) : NULL;
    return to ? memcpy(to, from, (size_t)n * size) : NULL;
}

/* Parked choices and guides come first and need 8-byte alignment, all other elements 4. */
_Static_assert(sizeof(struct job_parked) % sizeof(int64_t) == 0, "guides are aligned");
_Static_assert(sizeof(struct eng_guide) % sizeof(int32_t) == 0, "guides keep words aligned");
_Static_assert(sizeof(struct eng_bias) % sizeof(int32_t) == 0, "so do biases");

static void copy_lists(struct copy *c, const struct eng_job_params *p, struct eng_job_params *ret)
{
    const struct eng_sampling *s = &p->sampling;
    *ret = *p;
    ret->guides = copy_list(c, p->guides, p->n_choices, sizeof(*p->guides));
    ret->prompt = copy_list(c, p->prompt, p->n_prompt, sizeof(*p->prompt));
    ret->prediction = copy_list(c, p->prediction, p->n_prediction, sizeof(*p->prediction));
    ret->stop_ids = copy_list(c, p->stop_ids, p->n_stop_ids, sizeof(*p->stop_ids));
    ret->listed_ids = copy_list(c, p->listed_ids, p->n_listed_ids, sizeof(*p->listed_ids));
    ret->sampling.bias = copy_list(c, s->bias, s->n_bias, sizeof(*s->bias));
    ret->sampling.allowed_ids =
        copy_list(c, s->allowed_ids, s->n_allowed_ids, sizeof(*s->allowed_ids));
    if (s->allowed_ids && s->n_allowed_ids == 0)
        ret->sampling.allowed_ids = ret->prompt; /* an empty list is not "all" */
}

/*
 * Tokens a choice may generate. Prompt and answer share the context; a prompt that fills it still
 * yields one token, which needs no position in the cache.
 */
static int64_t clamp_max_new(const struct eng_job_params *p, int64_t ctx)
{
    int64_t room = ctx - p->n_prompt > 1 ? ctx - p->n_prompt : 1;
    return p->max_tokens < room ? p->max_tokens : room;
}

/* Takes references to the adapters that change anything, and makes a scope of their own of it. */
static void take_loras(struct eng_job *job)
{
    struct eng_job_params *p = &job->p;
    uint8_t digest[SHA256_BYTES], *tenant = job->scope.tenant;
    struct sha256 sum;
    int n = 0;
    sha256_init(&sum);
    sha256_update(&sum, tenant, sizeof(job->scope.tenant));
    for (int i = 0; i < p->n_loras; i++) {
        if (p->loras[i].scale == 0) continue;
        p->loras[n] = p->loras[i];
        const struct eng_lora *lora = eng_lora_share(p->loras[n].lora);
        sha256_update(&sum, lora->fingerprint, sizeof(lora->fingerprint));
        sha256_update(&sum, &p->loras[n++].scale, sizeof(float));
    }
    p->n_loras = n;
    sha256_final(&sum, digest);
    if (n > 0) memcpy(tenant + ENG_KV_OWNER, digest, sizeof(job->scope.tenant) - ENG_KV_OWNER);
}

/* Copies the parameters, or counts what that takes. */
static void copy_job(struct copy *c, const struct eng_job_params *p, int64_t ctx,
                     struct eng_job *ret)
{
    if (p->spare) ret->parked = add_list(c, p->n_choices, sizeof(*ret->parked));
    copy_lists(c, p, &ret->p);
    if (p->spare)
        ret->parked_ids =
            add_list(c, p->n_choices * clamp_max_new(p, ctx), sizeof(*ret->parked_ids));
}

static void derive(struct eng_job *job, const struct job_limits *l)
{
    const struct eng_job_params *p = &job->p;
    job->max_new = clamp_max_new(p, l->ctx);
    /* The last token is never fed back, so it takes no position. */
    int64_t n_positions = p->n_prompt + (job->max_new > 0 ? job->max_new - 1 : 0);
    job->n_pages = (int)kv_pages_of(n_positions);
    job->needs_rows =
        p->n_prompt_logprobs >= 0 || p->want_logits || (p->want_pooled && !l->pools_last);

    bool shares = !p->no_cache && !l->no_prefix_cache;
    memcpy(job->scope.tenant, p->tenant, sizeof(job->scope.tenant));
    take_loras(job);
    job->scope.private_id = shares ? 0 : job->serial;
    job->publishes = shares || p->n_choices > 1;
    job->usage.n_prompt_tokens = p->n_prompt;
    assert(job->n_pages >= 1 && job->n_pages <= kv_pages_of(l->ctx));
}

int job_create(struct eng_job **ret, const struct eng_job_params *params,
               const struct job_limits *limits, uint64_t serial, char *err, size_t errlen)
{
    int rc = check_params(params, limits, err, errlen);
    if (rc) return rc;
    struct eng_job_params p = *params;
    p.n_prediction = used_prediction(params, limits->ctx);
    while (limits->pads && p.n_prompt > 1 && p.prompt[p.n_prompt - 1] == limits->pad_id)
        p.n_prompt--;
    if (p.spare) {
        p.priority = INT_MAX;
        p.key_slots = 0;
    }
    size_t head = sizeof(struct eng_job) + (size_t)p.n_choices * sizeof(atomic_bool);
    struct copy lists = {.n = (head + 7) / 8 * 8};
    struct eng_job unused;
    copy_job(&lists, &p, limits->ctx, &unused);
    struct eng_job *job = lists.overflows ? NULL : calloc(1, lists.n);
    if (!job)
        return fail_with(ENG_ENOMEM, err, errlen, "no memory for a job of %lld prompt tokens",
                         (long long)params->n_prompt);
    lists = (struct copy){.to = (uint8_t *)job, .n = (head + 7) / 8 * 8};
    copy_job(&lists, &p, limits->ctx, job);
    assert(serial > 0);
    atomic_init(&job->refs, 2);
    atomic_init(&job->cancel, false);
    for (int i = 0; i < params->n_choices; i++)
        atomic_init(&job->stop[i], false);
    job->serial = serial;
    derive(job, limits);
    job->usage.submitted_us = clock_now_us();
    *ret = job;
    return 0;
}

void eng_job_release(struct eng_job *job)
{
    if (!job) return;
    int n_refs = atomic_fetch_sub_explicit(&job->refs, 1, memory_order_acq_rel);
    assert(n_refs > 0);
    if (n_refs == 1) free(job);
}

/* ---- the handle, on any thread ------------------------------------------------------------- */

void eng_job_cancel(struct eng_job *job)
{
    atomic_store_explicit(&job->cancel, true, memory_order_relaxed);
}

void eng_job_stop_choice(struct eng_job *job, int choice)
{
    if (choice >= 0 && choice < job->p.n_choices)
        atomic_store_explicit(&job->stop[choice], true, memory_order_relaxed);
}

int job_n_waiting(const struct eng_job *job)
{
    return job->p.n_choices - job->n_admitted + job->n_parked;
}

int job_take_choice(struct eng_job *job)
{
    int i = 0;
    assert(job_n_waiting(job) > 0);
    if (job->n_parked == 0) return job->n_admitted++;
    while (!job->parked[i].waits)
        i++;
    job->parked[i].waits = false;
    job->n_parked--;
    return i;
}

bool job_is_stop_id(const struct eng_job *job, const struct eng_end_ids *eos, int32_t id)
{
    for (int i = 0; i < job->p.n_stop_ids; i++)
        if (job->p.stop_ids[i] == id) return true;
    for (int i = 0; i < eos->n && !job->p.ignore_eos; i++)
        if (eos->ids[i] == id) return true;
    return false;
}

bool job_passes(const struct eng_job *a, const struct eng_job *b)
{
    return a->p.fair_key == b->p.fair_key && a->rank == b->rank && a->p.priority < b->p.priority;
}

enum eng_finish job_verdict(const struct eng_job *job, bool closing, uint64_t now_us)
{
    if (closing || atomic_load_explicit(&job->cancel, memory_order_relaxed))
        return ENG_FINISH_CANCELLED;
    if (job->p.deadline_us && now_us >= job->p.deadline_us) return ENG_FINISH_DEADLINE;
    return 0;
}

bool job_reads_cache(const struct eng_job *job)
{
    if (!job->publishes) return false;
    return !job->needs_rows || job->n_rows_out == job->p.n_prompt;
}

const char *const eng_miss_names[ENG_N_MISSES] = {[ENG_MISS_CONTENT] = "content",
                                                  [ENG_MISS_EVICTED] = "evicted",
                                                  [ENG_MISS_SCOPE] = "scope",
                                                  [ENG_MISS_TOO_SHORT] = "too_short"};

/* ---- events -------------------------------------------------------------------------------- */

void job_emit(struct eng_job *job, struct eng_event *event, uint64_t now_us)
{
    event->now_us = now_us;
    if (event->type != ENG_EVENT_CHOICE_DONE) event->stop_id = -1;
    assert(job->n_done < job->p.n_choices || event->type == ENG_EVENT_JOB_DONE);
    job->p.on_event(job->p.ctx, event);
}

void job_emit_started(struct eng_job *job, uint64_t now_us)
{
    job->usage.started_us = now_us;
    struct eng_event e = {.type = ENG_EVENT_STARTED, .usage = &job->usage};
    job_emit(job, &e, now_us);
}

bool job_emit_pooled(struct eng_job *job, const float *row, int n, uint64_t now_us)
{
    for (int i = 0; i < n; i++)
        if (!isfinite(row[i])) return false;
    struct eng_event e = {
        .type = ENG_EVENT_POOLED, .index = job->p.n_prompt - 1, .logits = row, .n_logits = n};
    job_emit(job, &e, now_us);
    return true;
}

bool job_emit_choice_done(struct eng_job *job, int choice, enum eng_finish finish, int32_t stop_id,
                          const char *error, uint64_t now_us)
{
    struct eng_event e = {.type = ENG_EVENT_CHOICE_DONE,
                          .choice = choice,
                          .finish = finish,
                          .stop_id = stop_id,
                          .error = error};
    job->cancelled |= finish == ENG_FINISH_CANCELLED;
    job->failed |= finish == ENG_FINISH_ERROR;
    job_emit(job, &e, now_us);
    if (++job->n_done < job->p.n_choices) return false;
    for (int i = 0; i < job->p.n_loras; i++)
        eng_lora_close(job->p.loras[i].lora);
    job->usage.done_us = now_us;
    struct eng_event done = {.type = ENG_EVENT_JOB_DONE, .usage = &job->usage};
    job_emit(job, &done, now_us);
    return true;
}
