/* SPDX-License-Identifier: MIT */
/*
 * The engine's life: it owns model, pool, pages, forward pass and scheduler, and creates and
 * destroys them in order. Everything that a request needs is sized here; afterwards only jobs are
 * allocated.
 *
 * Threads: eng_open and eng_close on the caller's; the scheduler's thread is started last and
 * joined first.
 */
#include "engine/engine.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/fail.h"
#include "engine/attention.h"
#include "base/os_error.h"
#include "base/sha256.h"
#include "base/thread.h"
#include "engine/calibrate.h"
#include "engine/drafter.h"
#include "engine/encode_queue.h"
#include "engine/forward.h"
#include "engine/gemm.h"
#include "engine/gemm_blas.h"
#include "engine/inbox.h"
#include "engine/job.h"
#include "engine/key_centre.h"
#include "engine/kernels/kernels.h"
#include "engine/kv/kv.h"
#include "engine/kv/disk.h"
#include "engine/memory_plan.h"
#include "engine/model/adapter.h"
#include "engine/model/config.h"
#include "engine/model/load.h"
#include "engine/model/model.h"
#include "engine/model/numerics.h"
#include "engine/model/reading.h"
#include "engine/model/rope.h"
#include "engine/pool.h"
#include "engine/scheduler.h"
#include "engine/selftest.h"
#include "engine/state.h"
#include "engine/cores.h"

enum {
    DEFAULT_PARALLEL = 4,
    MAX_PARALLEL = 4096,
    DEFAULT_CHUNK = 128,
    EXPERTS_CHUNK = 256, /* a step reads all experts, however few rows each has */
    ENCODER_TEXTS = 64,  /* of a step */
    ENCODER_ROWS = 512,
    ENCODER_CTX = 2048, /* by default */
    MAX_CHUNK = 65536,
    DEFAULT_CHOICES = 16,
    MAX_CHOICES = 1024,
    DEFAULT_LORA_RANK = 64,
    QUEUE_PER_SLOT = 4, /* waiting jobs per slot, by default */
    QUEUE_CONTEXTS = 8, /* waiting prompt tokens, in contexts, by default */
    QUEUE_STEPS = 16,   /* the same of an encoder, in steps */
    STARVING_US = 15000000,
    ANSWER_SHARE = 16, /* of the memory, by default */
};

#define MIN_ANSWER_BYTES ((int64_t)16 << 20)
#define MAX_ANSWER_BYTES ((int64_t)1 << 30)

struct eng {
    struct eng_params p; /* defaults filled in; its strings are not kept */
    const struct kern *kern;
    bool any_chunk;        /* p.chunk_tokens was not given */
    const char *gemm;      /* passed to the loader: "native", "blas" or "auto" */
    const char *blas_core; /* NULL: no BLAS loaded */
    char gemm_name[64];
    struct eng_cores *own_cores; /* NULL: those of p.cores */
    struct pool *pool;           /* of the cores */
    struct cores_member *member;
    struct eng_model *model;
    struct kv_layout layout;
    struct state_layout states;
    struct mem_plan plan;
    struct kv_pages *pages;
    float *key_centre; /* of the layout; NULL: none */
    struct fwd *fwd;
    struct sched *sched;
    uint8_t **texts;             /* an encoder's pages */
    struct fwd *urgent;          /* and its second forward */
    struct encode_queue *encode; /* of an encoder, instead of sched */
    struct inbox *inbox;         /* of the one that there is */
    struct drafters drafters;
    struct eng_lora_memory lora_memory;
    struct calibrate_text text; /* of models on int4, once read_text was called */
    bool has_text;
    bool repeatable; /* BLAS gives the same bits whatever the batch, or is not used */
    double self_test_seconds;
    struct eng_info info;
};

/* ---- choices ------------------------------------------------------------------------------- */

static bool is_auto(const char *s)
{
    return !s || !*s || strcmp(s, "auto") == 0;
}

static int64_t answer_share(int64_t memory_bytes)
{
    int64_t share = memory_bytes / ANSWER_SHARE;
    if (share > MAX_ANSWER_BYTES) return MAX_ANSWER_BYTES;
    return share < MIN_ANSWER_BYTES ? MIN_ANSWER_BYTES : share;
}

static int settle_params(struct eng *e, char *err, size_t errlen)
{
    struct eng_params *p = &e->p;
    e->any_chunk = p->chunk_tokens == 0;
    if (p->cores) p->n_threads = pool_n_threads(cores_pool(p->cores));
    int n_cores = p->n_threads ? 0 : pool_usable_cores("");
    const struct {
        const char *name;
        int *value;
        int def, max;
    } fields[] = {
        {"n_threads", &p->n_threads, n_cores, 1024},
        {"n_parallel", &p->n_parallel, DEFAULT_PARALLEL, MAX_PARALLEL},
        {"chunk_tokens", &p->chunk_tokens, DEFAULT_CHUNK, MAX_CHUNK},
        {"lora_rank", &p->lora_rank, DEFAULT_LORA_RANK, ENG_LORA_MAX_RANK},
        {"n_batch_choices", &p->n_batch_choices, DEFAULT_CHOICES, MAX_CHOICES},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        int *value = fields[i].value;
        if (*value == 0) *value = fields[i].def;
        if (*value >= 1 && *value <= fields[i].max) continue;
        return fail_with(ENG_EINVAL, err, errlen, "%s is %d but must be in 1 to %d", fields[i].name,
                         *value, fields[i].max);
    }
    if (p->ctx_tokens < 0 || p->memory_bytes < 0 || p->kv_bytes < 0 || p->caller_bytes < 0 ||
        p->caller_bytes_per_id < 0 || p->answer_bytes < -1 || p->max_queued_jobs < 0 ||
        p->max_queued_tokens < 0 || p->request_bytes < 0 || p->reserved_bytes < 0 ||
        p->lora_bytes < 0)
        return fail_with(ENG_EINVAL, err, errlen,
                         "sizes of context, memory and queue must not be negative");
    if (p->memory_bytes == 0) p->memory_bytes = eng_memory_limit(0);
    if (p->reserved_bytes >= p->memory_bytes)
        return fail_with(ENG_ENOMEM, err, errlen,
                         "%lld MiB of memory are reserved, but the limit is %lld MiB",
                         (long long)(p->reserved_bytes >> 20), (long long)(p->memory_bytes >> 20));
    if (p->answer_bytes < 0) p->answer_bytes = answer_share(p->memory_bytes);
    if (p->lora_bytes == 0) p->lora_rank = 0;
    return 0;
}

static int choose_kernels(struct eng *e, char *err, size_t errlen)
{
    e->kern = kern_select(e->p.kernels);
    if (e->kern) return 0;
    size_t at =
        (size_t)snprintf(err, errlen, "kernels %s cannot run on this CPU; it runs", e->p.kernels);
    for (const char *const *name = kern_names(); *name; name++)
        if (kern_runs_here(*name) && at < errlen)
            at += (size_t)snprintf(err + at, errlen - at, " %s", *name);
    return ENG_EUNSUPPORTED;
}

/* OpenBLAS is loaded only if it may be used: on request, or if only the plain C kernels run. */
static int choose_gemm(struct eng *e, char *err, size_t errlen)
{
    const char *asked = is_auto(e->p.gemm) ? "auto" : e->p.gemm;
    bool blas = strcmp(asked, "blas") == 0, native = strcmp(asked, "native") == 0;
    if (!blas && !native && strcmp(asked, "auto") != 0)
        return fail_with(ENG_EINVAL, err, errlen,
                         "gemm \"%s\" is unknown; supported: auto, native, blas", asked);
    if (blas || (!native && strcmp(e->kern->name, "c") == 0)) e->blas_core = gemm_blas_init();
    if (blas && !e->blas_core)
        return fail_with(ENG_EUNSUPPORTED, err, errlen,
                         "gemm \"blas\": OpenBLAS cannot be loaded, or is not part of this build");
    e->gemm = e->blas_core ? asked : "native";
    return 0;
}

static int check_coding(const struct eng *e, char *err, size_t errlen)
{
    const char *asked = e->p.weight_coding;
    if (is_auto(asked) || strcmp(asked, "on") == 0 || strcmp(asked, "off") == 0) return 0;
    return fail_with(ENG_EINVAL, err, errlen,
                     "weight_coding \"%s\" is unknown; supported: auto, on, off", asked);
}

static int choose(struct eng *e, char *err, size_t errlen)
{
    int rc = settle_params(e, err, errlen);
    e->lora_memory.whole = e->p.lora_bytes;
    atomic_init(&e->lora_memory.left, e->p.lora_bytes);
    if (!rc) rc = choose_kernels(e, err, errlen);
    if (!rc) rc = check_coding(e, err, errlen);
    return rc ? rc : choose_gemm(e, err, errlen);
}

static const char *const kv_names[] = {
    [KERN_KV_F32] = "f32", [KERN_KV_BF16] = "bf16", [KERN_KV_I8] = "int8"};

static int choose_kv(const struct eng *e, enum kern_kvfmt *ret_fmt, char *err, size_t errlen)
{
    const char *asked = e->p.kv_dtype;
    enum kern_kvfmt own = e->model->numerics->kv;
    /* An encoder's pages hold a layer at a time: there is little to save. */
    if (own == KERN_KV_I8 && (e->model->hp.encoder || e->kern->fast_bf16)) own = KERN_KV_BF16;
    *ret_fmt = own;
    if (is_auto(asked) || strcmp(asked, kv_names[own]) == 0) return 0;
    for (int i = KERN_KV_BF16; own != KERN_KV_F32 && i <= KERN_KV_I8; i++)
        if (strcmp(asked, kv_names[i]) == 0) {
            *ret_fmt = (enum kern_kvfmt)i;
            return 0;
        }
    return fail_with(ENG_EUNSUPPORTED, err, errlen,
                     "KV cache type %s is not supported with numerics %s; supported: %s", asked,
                     e->model->numerics->name, own == KERN_KV_F32 ? "f32" : "bf16, int8");
}

/* ---- opening ------------------------------------------------------------------------------- */

/* The text that weights are calibrated on. */
static void read_text(struct eng *e)
{
    if (!e->has_text && e->p.calibration)
        e->text.n = e->p.calibration(e->p.calibration_ctx, e->text.ids, ENG_CALIBRATE_TOKENS);
    e->has_text = true;
}

static int calibrate(void *ctx, const struct eng_model *m, struct pool *pool, char *err,
                     size_t errlen)
{
    struct eng *e = ctx;
    read_text(e);
    return calibrate_run(&e->text, m, pool, err, errlen);
}

static int open_model(struct eng *e, char *err, size_t errlen)
{
    const struct eng_numerics *numerics = NULL;
    if (!is_auto(e->p.numerics)) {
        numerics = eng_numerics_find(e->p.numerics);
        if (!numerics)
            return fail_with(ENG_EINVAL, err, errlen, "numerics \"%s\" is unknown", e->p.numerics);
    }
    struct eng_model_params params = {
        .dir = e->p.model_dir,
        .numerics = numerics,
        .kern = e->kern,
        .gemm = e->gemm,
        .weight_coding = is_auto(e->p.weight_coding) ? "auto" : e->p.weight_coding,
        .memory_bytes = e->p.memory_bytes - e->p.reserved_bytes,
        .stop = e->p.stop,
        .adapters = e->p.lora_bytes > 0,
        .calibrate = e->p.calibration ? calibrate : NULL,
        .calibrate_ctx = e,
    };
    char why[512];
    int rc = eng_model_open(&e->model, &params, why, sizeof(why));
    if (!rc && !e->model->has_head && !e->p.reads_only) {
        struct eng_report r = {.err = why, .errlen = sizeof(why)};
        rc = eng_config_refuse_reader(&e->model->hp, &r);
    }
    if (!rc) return 0;
    bool named = strstr(why, e->p.model_dir) || rc == ENG_ENOMEM;
    return fail_with(rc, err, errlen, "%.200s%s%s", named ? "" : e->p.model_dir, named ? "" : ": ",
                     why);
}

/* An encoder's step holds its longest text. */
static void settle_steps(struct eng *e)
{
    struct eng_params *p = &e->p;
    const struct eng_hparams *hp = &e->model->hp;
    if (hp->encoder) {
        if (p->ctx_tokens == 0)
            p->ctx_tokens = hp->ctx_max < ENCODER_CTX ? hp->ctx_max : ENCODER_CTX;
        p->n_parallel = ENCODER_TEXTS;
        p->chunk_tokens = p->ctx_tokens > ENCODER_ROWS ? (int)p->ctx_tokens : ENCODER_ROWS;
        p->kv_bytes = 0;
    }
    if (e->any_chunk && hp->n_experts > 0) p->chunk_tokens = EXPERTS_CHUNK;
    if (p->max_queued_jobs == 0) p->max_queued_jobs = QUEUE_PER_SLOT * p->n_parallel;
}

static struct fwd_params step_params(const struct eng *e, int max_rows, int max_segs,
                                     int max_logit_rows)
{
    return (struct fwd_params){
        .model = e->model,
        .layout = &e->layout,
        .pool = e->pool,
        .max_rows = max_rows,
        .max_segs = max_segs,
        .max_logit_rows = max_logit_rows,
        .ctx = e->plan.memory.ctx_tokens,
        .lora_rank = e->model->hp.encoder ? 0 : e->p.lora_rank,
    };
}

static struct fwd_params urgent_params(const struct eng *e)
{
    return step_params(e, ENCODE_URGENT_ROWS, ENCODE_URGENT_TEXTS, 1);
}

static struct fwd_params forward_params(const struct eng *e)
{
    int n = e->p.n_parallel, n_rows = n + e->p.chunk_tokens;
    if (e->model->hp.encoder) return step_params(e, e->p.chunk_tokens, ENCODER_TEXTS, 1);
    if (e->p.speculate != ENG_SPECULATE_OFF) n_rows += BATCH_EXTRA_LOGIT_ROWS;
    return step_params(e, n_rows, n, n + BATCH_EXTRA_LOGIT_ROWS);
}

/* ---- the plan ------------------------------------------------------------------------------ */

/* AUTO has a twin from so many bytes of weights on, if both take at most this share of memory. */
#define MIN_TWINNED_BYTES ((int64_t)64 << 20)
enum { TWINNED_SHARE = 2 };

/* A twin of a model with as few bits would not be faster; one of 8 bits gains little. */
static bool wants_twin(const struct eng *e)
{
    enum kern_wfmt fmt = e->model->numerics->matrix;
    /* each row of a draft reads experts of its own */
    if (!e->model->has_head || e->model->hp.n_experts > 0) return false;
    if (e->p.speculate == ENG_SPECULATE_ALWAYS) return fmt != KERN_W_I4K;
    return e->p.speculate == ENG_SPECULATE_AUTO && fmt != KERN_W_I4K && fmt != KERN_W_I8 &&
           e->model->weights_bytes >= MIN_TWINNED_BYTES;
}

/* The twin comes last: nothing else becomes smaller for it. */
static void plan_twin(struct eng *e)
{
    struct eng_memory *m = &e->plan.memory;
    struct drafter *twin = &e->drafters.twin;
    int64_t most = m->limit_bytes;
    char err[512];
    if (!wants_twin(e) || drafter_open(&e->drafters, twin, e->p.model_dir, err, sizeof(err)))
        return;
    int64_t bytes = drafter_bytes(&e->drafters, twin, e->plan.memory.ctx_tokens, e->plan.n_pages);
    if (e->p.speculate == ENG_SPECULATE_AUTO) most /= TWINNED_SHARE;
    if (bytes <= most - mem_plan_bytes(m)) {
        m->twin_bytes = bytes;
        return;
    }
    m->no_twin_bytes = bytes;
    drafter_close(twin);
    twin->state = ENG_DRAFTS_NONE;
}

/* One that cannot draft is refused; one that cannot be read is done without. */
static int open_draft_model(struct eng *e, char *err, size_t errlen)
{
    bool drafts = e->p.speculate == ENG_SPECULATE_AUTO || e->p.speculate == ENG_SPECULATE_ALWAYS;
    struct drafter *d = &e->drafters.model;
    char why[384];
    if (!e->p.draft_dir || !drafts || !e->model->has_head) return 0;
    int rc = drafter_open(&e->drafters, d, e->p.draft_dir, why, sizeof(why));
    if (rc) drafter_fail(d, why);
    if (rc != ENG_EUNSUPPORTED && rc != ENG_ENOMEM) return 0;
    return fail_with(rc, err, errlen, "%s", d->error);
}

static int prepare_centre(struct eng *e, char *err, size_t errlen)
{
    if (!key_centre_helps(e->model, &e->layout)) return 0;
    e->key_centre = calloc(key_centre_floats(&e->layout), sizeof(*e->key_centre));
    e->layout.key_centre = e->key_centre;
    if (e->key_centre) return 0;
    return fail_with(ENG_ENOMEM, err, errlen, "no memory for the centre of keys");
}

static int plan_memory(struct eng *e, char *err, size_t errlen)
{
    const struct eng_hparams *hp = &e->model->hp;
    enum kern_kvfmt fmt;
    int rc = choose_kv(e, &fmt, err, errlen);
    if (rc) return rc;
    settle_steps(e);
    attn_layout(&e->layout, hp, fmt);
    rc = prepare_centre(e, err, errlen);
    if (rc) return rc;
    e->drafters.target = e->model;
    e->drafters.layout = &e->layout;
    e->drafters.pool = e->pool;
    e->drafters.n_threads = e->p.n_threads;
    e->drafters.lora_rank = e->p.lora_rank;
    if (e->p.calibration) e->drafters.text = &e->text;
    rc = open_draft_model(e, err, errlen);
    if (rc) return rc;
    state_layout_init(&e->states, hp, e->model->kern);
    struct mem_params params = {
        .own = e->p,
        .fwd = forward_params(e),
        .states = e->states,
        .drafters = e->drafters.model.weights ? &e->drafters : NULL,
    };
    if (hp->encoder) {
        params.own.n_parallel = 1;
        params.own.kv_disk.dir = NULL;
        params.own.kv_bytes =
            (int64_t)e->layout.page_bytes * encode_pages(e->p.chunk_tokens, ENCODER_TEXTS);
        params.urgent = urgent_params(e);
    }
    rc = mem_plan_make(&e->plan, &params, err, errlen);
    if (rc) return rc;
    e->drafters.ctx = e->plan.memory.ctx_tokens;
    e->drafters.n_pages = e->plan.n_pages;
    plan_twin(e);
    if (e->p.max_queued_tokens == 0)
        e->p.max_queued_tokens = hp->encoder ? (int64_t)QUEUE_STEPS * e->p.chunk_tokens
                                             : QUEUE_CONTEXTS * e->plan.memory.ctx_tokens;
    return rc;
}

/* The memory of the weights is known exactly once they are packed. */
static void settle_plan(struct eng *e)
{
    struct eng_memory *m = &e->plan.memory;
    int64_t taken =
        e->model->weights_bytes + eng_model_rope_bytes(e->model, e->plan.memory.ctx_tokens);
    m->spare_bytes = m->weights_bytes - taken;
    m->weights_bytes = taken;
}

struct fill_task {
    struct eng *e;
    char *err;
    size_t errlen;
    int rc;
};

/*
 * A thread with a pool of its own. In the background all have the lowest priority, and end with the
 * loading, since only a privileged process could raise them again.
 */
static void *fill_beside(void *arg)
{
    struct fill_task *t = arg;
    struct eng *e = t->e;
    struct pool *pool = NULL;
    struct sched_param none = {0};
    int n = e->p.in_background ? e->p.n_threads - 1 : e->p.n_threads / 2;
    if (n < 1) n = 1;
    if (e->p.in_background)
        pthread_setschedparam(pthread_self(), SCHED_IDLE, &none); /* only politer */
    t->rc = pool_create(&pool, n, t->err, t->errlen);
    if (!t->rc)
        t->rc = eng_model_fill(e->model, pool, e->plan.memory.ctx_tokens, t->err, t->errlen);
    pool_destroy(pool);
    return NULL;
}

/* Other engines wait meanwhile. */
static int fill_alone(struct eng *e, char *err, size_t errlen)
{
    cores_enter(e->member);
    int rc = eng_model_fill(e->model, e->pool, e->plan.memory.ctx_tokens, err, errlen);
    cores_leave(e->member, false);
    return rc;
}

static int fill_model(struct eng *e, char *err, size_t errlen)
{
    if (!e->p.in_background && !e->p.beside_others) return fill_alone(e, err, errlen);
    struct fill_task task = {.e = e, .err = err, .errlen = errlen};
    pthread_t thread;
    int failed = thread_start(&thread, "hearth-load", 0, fill_beside, &task);
    if (failed)
        return fail_with(ENG_ENOMEM, err, errlen, "the loading thread cannot be started: %s%s",
                         strerror(failed), os_error_remedy(failed));
    pthread_join(thread, NULL);
    return task.rc;
}

static int test_model(struct eng *e, char *err, size_t errlen)
{
    uint64_t start = clock_now_us();
    if (e->p.on_self_test) e->p.on_self_test(e->p.on_self_test_ctx);
    cores_enter(e->member);
    e->repeatable = !e->blas_core || gemm_blas_settle_model(e->model);
    int rc = selftest_run(e->model, e->fwd, e->pages, err, errlen);
    if (!rc && e->key_centre)
        rc = key_centre_fill(e->model, e->fwd, e->p.chunk_tokens, e->plan.memory.ctx_tokens,
                             e->pages, &e->layout, e->key_centre, err, errlen);
    cores_leave(e->member, false);
    e->self_test_seconds = (double)(clock_now_us() - start) * 1e-6;
    return rc;
}

static int join_cores(struct eng *e, char *err, size_t errlen)
{
    struct eng_cores *cores = e->p.cores;
    int rc = cores ? 0 : eng_cores_create(&e->own_cores, e->p.n_threads, err, errlen);
    if (rc) return rc;
    if (!cores) cores = e->own_cores;
    e->pool = cores_pool(cores);
    rc = cores_join(cores, e->p.share, &e->member);
    if (rc) snprintf(err, errlen, "no memory to open the engine");
    return rc;
}

static int load(struct eng *e, char *err, size_t errlen)
{
    int rc = join_cores(e, err, errlen);
    if (!rc) rc = open_model(e, err, errlen);
    if (rc) return rc;
    cores_enter(e->member); /* all threads, also in the background: as steps will read */
    eng_reading_choose(e->model, e->pool);
    cores_leave(e->member, false);
    rc = plan_memory(e, err, errlen);
    if (!rc) rc = fill_model(e, err, errlen);
    if (!rc) settle_plan(e);
    if (!rc) rc = kv_pages_create(&e->pages, &e->layout, e->plan.n_pages, err, errlen);
    if (rc) return rc;
    struct fwd_params fwd = forward_params(e);
    rc = fwd_create(&e->fwd, &fwd, err, errlen);
    if (!rc) rc = test_model(e, err, errlen);
    return rc;
}

/* ---- starting ------------------------------------------------------------------------------ */

static struct inbox_params inbox_params(const struct eng *e)
{
    const struct eng_hparams *hp = &e->model->hp;
    return (struct inbox_params){
        .max_jobs = e->p.max_queued_jobs,
        .max_tokens = e->p.max_queued_tokens,
        .global_priority = e->p.global_priority,
        .limits = {.max_choices = e->p.n_batch_choices,
                   .no_prefix_cache = e->p.no_prefix_cache,
                   .no_loras = e->p.lora_bytes == 0,
                   .reads_only = !e->model->has_head,
                   .pools_last = e->model->heads.pooling == ENG_POOL_LAST,
                   .pads = hp->task == ENG_TASK_LABELS && hp->pad_id >= 0,
                   .pad_id = hp->pad_id},
    };
}

static int start_encoder(struct eng *e, char *err, size_t errlen)
{
    struct fwd_params fwd = urgent_params(e);
    int rc = fwd_create(&e->urgent, &fwd, err, errlen);
    if (rc) return rc;
    e->texts = calloc((size_t)e->plan.n_pages, sizeof(*e->texts));
    if (!e->texts) return fail_with(ENG_ENOMEM, err, errlen, "no memory for the pages of texts");
    for (int i = 0; i < e->plan.n_pages; i++)
        e->texts[i] = kv_page_data(e->pages, kv_page_get(e->pages));
    struct encode_params params = {
        .model = batch_model_of(e->model, e->fwd),
        .urgent = batch_model_of(e->model, e->urgent),
        .pages = e->texts,
        .max_rows = e->p.chunk_tokens,
        .max_texts = ENCODER_TEXTS,
        .ctx = e->plan.memory.ctx_tokens,
        .in = inbox_params(e),
        .member = e->member,
    };
    int failed = encode_create(&e->encode, &params, err, errlen);
    if (!failed) e->inbox = encode_inbox(e->encode);
    return failed;
}

/*
 * Raised whenever a change gives other bits in pages; a test holds it against the logits of the
 * demo, so that no build reads pages of another arithmetic.
 */
enum { BITS_REVISION = 4 };

/* Of all that the bits of a page depend on besides its ids and those before them. */
static void page_fingerprint(const struct eng *e, uint8_t ret[EXTENT_DIGEST])
{
    char text[400];
    struct sha256 h;
    int n = snprintf(text, sizeof(text), "%d %s %s %s %s %zu %s", BITS_REVISION, e->info.numerics,
                     e->info.kernels, e->info.gemm, e->info.kv_dtype, e->layout.page_bytes,
                     e->info.rope);
    sha256_init(&h);
    sha256_update(&h, text, n < (int)sizeof(text) ? (size_t)n : sizeof(text));
    sha256_update(&h, e->info.fingerprint, sizeof(e->info.fingerprint));
    if (e->model->numerics->fine == KERN_W_I5K)
        sha256_update(&h, e->text.ids, (size_t)e->text.n * sizeof(*e->text.ids));
    sha256_final(&h, ret);
}

static int start_scheduler(struct eng *e, char *err, size_t errlen)
{
    if (e->model->hp.encoder) return start_encoder(e, err, errlen);
    uint64_t seed = clock_now_us();
    ssize_t got = getrandom(&seed, sizeof(seed), GRND_NONBLOCK);
    (void)got; /* a guessable seed costs only speed: tokens are compared in full */
    struct kv_disk_params disk = {.user = e->p.kv_disk,
                                  .page_bytes = e->layout.page_bytes,
                                  .state_bytes = e->states.n_kept * sizeof(float),
                                  .ctx = e->plan.memory.ctx_tokens};
    page_fingerprint(e, disk.fingerprint);
    /* pages whose bits do not repeat cannot be found again */
    bool keeps_pages = e->p.kv_disk.dir && e->repeatable && !e->p.no_prefix_cache;
    struct sched_params params = {
        .disk = keeps_pages ? &disk : NULL,
        .batch = {.model = batch_model_of(e->model, e->fwd),
                  .kern = e->kern,
                  .pool = e->pool,
                  .pages = e->pages,
                  .page_bytes = e->layout.page_bytes,
                  .states = e->states,
                  .n_snapshots = e->plan.n_snapshots,
                  .hash_seed = seed,
                  .n_parallel = e->p.n_parallel,
                  .chunk_tokens = e->p.chunk_tokens,
                  .ctx = e->plan.memory.ctx_tokens,
                  .speculate = e->p.speculate,
                  .drafters = &e->drafters},
        .in = inbox_params(e),
        .starving_us = STARVING_US,
        .member = e->member,
    };
    int failed = sched_create(&e->sched, &params, err, errlen);
    if (!failed) e->inbox = sched_inbox(e->sched);
    return failed;
}

/* ---- facts --------------------------------------------------------------------------------- */

static bool uses_blas(const struct eng_model *m)
{
    bool blas = m->head.use_blas;
    for (int i = 0; i < m->hp.n_layers; i++)
        blas = blas || m->layers[i].qkv.use_blas || m->layers[i].down.use_blas;
    return blas;
}

static void describe(struct eng *e, double load_seconds)
{
    const struct eng_model *m = e->model, *draft = e->drafters.model.weights;
    const struct eng_hparams *hp = &m->hp;
    bool blas = uses_blas(m);
    if (blas)
        snprintf(e->gemm_name, sizeof(e->gemm_name), "blas:%s", e->blas_core);
    else
        snprintf(e->gemm_name, sizeof(e->gemm_name), "native");
    double bf16_rate = 0;
    if (is_auto(e->p.kernels)) kern_automatic(&bf16_rate);
    e->info = (struct eng_info){
        .architecture = hp->architecture,
        .rope = eng_rope_name(&hp->rope, e->plan.memory.ctx_tokens),
        .numerics = m->numerics->name,
        .kernels = e->kern->name,
        .bf16_rate = bf16_rate,
        .gemm = e->gemm_name,
        .kv_dtype = kv_names[e->layout.fmt],
        .weights_coded = m->layers[0].qkv.fmt == KERN_W_B12,
        .read_ahead_bytes = (int64_t)m->reading.ahead,
        .coded_rate = m->reading.coded_rate,
        .plain_rate = m->reading.plain_rate,
        .step_bytes = eng_model_step_bytes(m),
        .draft_step_bytes = draft ? eng_model_step_bytes(draft) : 0,
        .repeatable = e->repeatable,
        .n_threads = e->p.n_threads,
        .n_parallel = e->p.n_parallel,
        .chunk_tokens = e->p.chunk_tokens,
        .page_tokens = KV_PAGE_TOKENS,
        .n_pages = e->plan.n_pages,
        .max_choices = e->p.n_batch_choices,
        .max_queued_jobs = e->p.max_queued_jobs,
        .ctx_tokens = e->plan.memory.ctx_tokens,
        .ctx_train_tokens = hp->ctx_train,
        .ctx_max_tokens = hp->ctx_max,
        .n_params = m->n_params,
        .n_rounded_mats = m->n_rounded_mats,
        .vocab_size = hp->vocab,
        .eos_ids = hp->eos.ids,
        .n_eos_ids = hp->eos.n,
        .generates = m->has_head,
        .pooled_width = m->heads.width,
        .n_labels = hp->n_labels,
        .unpooled_prompt = m->heads.leaves_prompt,
        .weights_dtype = m->weights_dtype,
        .memory = e->plan.memory,
        .load_seconds = load_seconds - e->self_test_seconds,
        .self_test_seconds = e->self_test_seconds,
    };
    memcpy(e->info.fingerprint, m->fingerprint, sizeof(e->info.fingerprint));
}

/* ---- the public functions ------------------------------------------------------------------ */

static struct eng *create(const struct eng_params *params, char *err, size_t errlen)
{
    struct eng *e = calloc(1, sizeof(*e));
    if (!e) {
        snprintf(err, errlen, "no memory to open the engine");
        return NULL;
    }
    drafters_init(&e->drafters);
    e->p = *params;
    return e;
}

int eng_open(struct eng **ret, const struct eng_params *params, char *err, size_t errlen)
{
    uint64_t start = clock_now_us();
    struct eng *e = create(params, err, errlen);
    if (!e) return ENG_ENOMEM;
    int rc = choose(e, err, errlen);
    if (!rc) rc = load(e, err, errlen);
    if (!rc) describe(e, (double)(clock_now_us() - start) * 1e-6);
    if (!rc && (e->drafters.twin.weights || e->drafters.model.weights)) read_text(e);
    if (!rc) rc = start_scheduler(e, err, errlen);
    e->p.model_dir = e->p.numerics = e->p.gemm = e->p.kernels = e->p.kv_dtype = e->gemm = NULL;
    e->p.weight_coding = e->p.draft_dir = NULL;
    e->p.kv_disk.dir = e->p.kv_disk.model = NULL;
    if (rc)
        eng_close(e);
    else
        *ret = e;
    return rc;
}

int eng_read_speed(struct eng *e, double *ret_bytes_per_s, char *err, size_t errlen)
{
    struct cores_member *member; /* the other one is the scheduler's */
    int rc = cores_join(e->own_cores ? e->own_cores : e->p.cores, 0, &member);
    if (rc) return fail_with(rc, err, errlen, "no memory to read the weights");
    cores_enter(member);
    *ret_bytes_per_s = read_speed(e->kern, e->model->arena, e->model->arena_bytes, e->pool);
    cores_leave(member, false);
    cores_quit(member);
    return 0;
}

int64_t eng_memory_limit(int64_t asked_bytes)
{
    if (!asked_bytes) return mem_limit_bytes("");
    int64_t most = cgroup_memory_limit("");
    return asked_bytes < most ? asked_bytes : most;
}

int eng_plan(struct eng_memory *ret, const struct eng_params *params, char *err, size_t errlen)
{
    struct eng *e = create(params, err, errlen);
    if (!e) return ENG_ENOMEM;
    int rc = choose(e, err, errlen);
    if (!rc) rc = open_model(e, err, errlen);
    if (!rc) rc = plan_memory(e, err, errlen);
    if (!rc) *ret = e->plan.memory;
    eng_close(e);
    return rc;
}

void eng_load_drafts(struct eng *e, const uint64_t *draft_ids)
{
    drafters_load(&e->drafters, draft_ids);
}

void eng_await_drafts(struct eng *e)
{
    drafters_await(&e->drafters);
}

void eng_drop_twin(struct eng *e)
{
    drafters_drop_twin(&e->drafters);
}

const char *eng_drafts(const struct eng *e)
{
    bool twin = drafter_is_on(&e->drafters.twin), model = drafter_is_on(&e->drafters.model);
    if (e->p.speculate == ENG_SPECULATE_OFF) return "off";
    return model && twin ? "model+self" : model ? "model" : twin ? "self" : "lookup";
}

enum eng_draft_state eng_draft_state(const struct eng *e, const char **ret_error)
{
    const struct drafter *d = &e->drafters.model;
    enum eng_draft_state state = atomic_load(&d->state);
    if (ret_error && state == ENG_DRAFTS_FAILED) *ret_error = d->error;
    return state;
}

void eng_stop(struct eng *e)
{
    inbox_stop(e->inbox);
}

bool eng_stop_begin(struct eng *e)
{
    inbox_close(e->inbox);
    return !e->sched || !sched_writes(e->sched);
}

void eng_close(struct eng *e)
{
    if (!e) return;
    drafters_drop_twin(&e->drafters); /* a loading is not waited for */
    sched_destroy(e->sched);
    drafters_finish(&e->drafters);
    encode_destroy(e->encode);
    free(e->texts);
    fwd_destroy(e->urgent);
    fwd_destroy(e->fwd);
    kv_pages_destroy(e->pages);
    free(e->key_centre);
    eng_model_close(e->model);
    cores_quit(e->member);
    eng_cores_destroy(e->own_cores);
    free(e);
}

bool eng_add_end_id(struct eng *e, int32_t id)
{
    bool added = eng_config_add_end(&e->model->hp, id);
    e->info.n_eos_ids = e->model->hp.eos.n;
    return added;
}

const struct eng_info *eng_info(const struct eng *e)
{
    return &e->info;
}

int eng_lora_open(struct eng *e, const char *dir, struct eng_lora **ret, char *err, size_t errlen)
{
    char why[512];
    int rc = e->p.lora_bytes == 0
                 ? fail_with(ENG_EUNSUPPORTED, why, sizeof(why), "there is no memory for adapters")
                 : eng_adapter_open(ret, e->model, dir, e->p.lora_rank, &e->lora_memory, why,
                                    sizeof(why));
    return rc ? fail_with(rc, err, errlen, "adapter %.200s: %s", dir, why) : 0;
}

bool eng_lora_is_shared(const struct eng_lora *lora)
{
    return atomic_load(&lora->refs) > 1;
}

int eng_job_submit(struct eng *e, const struct eng_job_params *params, struct eng_job **ret,
                   char *err, size_t errlen)
{
    return inbox_submit(e->inbox, params, ret, err, errlen);
}

void eng_stats(struct eng *e, struct eng_stats *ret_stats)
{
    inbox_stats(e->inbox, ret_stats);
    if (e->sched) sched_disk_stats(e->sched, &ret_stats->kv_disk);
    ret_stats->drafts_since_ms = atomic_load(&e->drafters.since_ms);
}

int eng_kv_visit(const char *dir, const uint8_t *owner,
                 bool (*visit)(void *ctx, const struct eng_kv_file *file), void *ctx, char *err,
                 size_t errlen)
{
    static const uint8_t none[EXTENT_DIGEST];
    struct extent_store *s;
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/secret", dir);
    if (n >= (int)sizeof(path) || access(path, F_OK)) { /* it would be made */
        return fail_with(ENG_EINVAL, err, errlen,
                         "%.400s: is not a directory of pages: it has no file `secret`", dir);
    }
    int rc = extent_store_open(&s, dir, none, 1, NULL, err, errlen);
    if (rc) return rc;
    rc = extent_visit(s, owner, visit, ctx);
    extent_store_close(s);
    if (!rc) return 0;
    return fail_with(rc, err, errlen,
                     "%.400s: its files cannot be listed, or some cannot be removed", dir);
}

void eng_drain(struct eng *e)
{
    inbox_drain(e->inbox);
}

void eng_debug_pause(struct eng *e, bool paused)
{
    inbox_pause(e->inbox, paused);
}
