/* SPDX-License-Identifier: MIT */
/* See encode_queue.h. */
#include "engine/encode_queue.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/clock.h"
#include "engine/cores.h"
#include "engine/job.h"
#include "engine/job_queue.h"
#include "engine/kv/kv.h"

enum {
    SHARED_STEP_US = 10000, /* of a step while another engine waits for its turn */
    MIN_ROWS = 64,          /* of a step, whatever the time: fewer cost more each */
};

/* The texts of a step. */
struct texts {
    const struct batch_model *model;
    uint8_t *const *pages;
    int max_rows, max_texts;
    struct eng_job **jobs;    /* [max_texts] */
    struct fwd_segment *segs; /* [max_texts] */
    float *pools;             /* [max_texts][d_model] */
    int n, n_rows;
    int n_running; /* of these, until the first ends; the inbox' lock */
};

struct encode_queue {
    struct inbox in;
    struct encode_params p;

    /* the scheduler's thread */
    struct texts step, urgent;
    struct eng_stats stats;
    double row_us;    /* running mean */
    bool shared;      /* another engine waited at the end of the last step */
    atomic_bool rest; /* the step is to rest: something is urgent, or the queue is closing */

    int least_urgent; /* priority of the running step; INT_MIN: none runs. The inbox' lock */
};

/* ---- on any thread ------------------------------------------------------------------------- */

/* If the next step takes it, with all that wait. */
static bool starts_at_once(void *ctx, const struct backlog *waiting, struct eng_job *job)
{
    const struct encode_queue *q = ctx;
    job->waits = true; /* every text that is in the queue counts */
    return waiting->n_jobs < q->p.max_texts && waiting->n_tokens + job->p.n_prompt <= q->p.max_rows;
}

static int n_running(void *ctx, uint64_t fair_key)
{
    const struct encode_queue *q = ctx;
    const struct texts *both[] = {&q->step, &q->urgent};
    int n = 0;
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < both[t]->n_running; i++)
            n += both[t]->jobs[i]->p.fair_key == fair_key && !both[t]->jobs[i]->p.spare;
    return n;
}

/* With the lock held: the first waiting text need not wait for the end of the step. */
static bool is_urgent(const struct encode_queue *q)
{
    const struct eng_job *job = inbox_first(&q->in);
    return job && job->p.priority < q->least_urgent && job->p.n_prompt <= ENCODE_URGENT_ROWS;
}

static void look_for_urgent(void *ctx)
{
    struct encode_queue *q = ctx;
    if (is_urgent(q)) atomic_store(&q->rest, true);
    cores_give_way(q->p.member, inbox_is_spare(&q->in));
}

static void end_step(void *ctx)
{
    struct encode_queue *q = ctx;
    atomic_store(&q->rest, true);
    cores_give_way(q->p.member, false);
}

struct inbox *encode_inbox(struct encode_queue *q)
{
    return &q->in;
}

/* ---- ends of jobs -------------------------------------------------------------------------- */

/* Counts first: a client that sees the end finds the job counted. */
static void end_job(struct encode_queue *q, struct eng_job *job, enum eng_finish finish,
                    const char *error, uint64_t now_us)
{
    q->stats.n_jobs_done++;
    q->stats.n_jobs_cancelled += finish == ENG_FINISH_CANCELLED;
    q->stats.n_jobs_failed += finish == ENG_FINISH_ERROR;
    inbox_publish(&q->in, &q->stats);
    bool last = job_emit_choice_done(job, 0, finish, -1, error, now_us);
    assert(last);
    (void)last;
    eng_job_release(job);
}

static void reap(struct encode_queue *q, uint64_t now)
{
    struct eng_job *job;
    enum eng_finish finish;
    while ((job = inbox_take_ended(&q->in, now, &finish)))
        end_job(q, job, finish, NULL, now);
}

/* ---- a step -------------------------------------------------------------------------------- */

static int rows_in(const struct encode_queue *q, double us)
{
    double rows = q->row_us > 0 ? us / q->row_us : q->p.max_rows;
    return rows < MIN_ROWS ? MIN_ROWS : rows < q->p.max_rows ? (int)rows : q->p.max_rows;
}

/* With the lock held: the next text that goes into the step, or NULL. No text makes a more urgent
 * one wait longer. */
static struct eng_job *next_text(const struct encode_queue *q, const struct texts *t, int most)
{
    struct eng_job *job = inbox_first(&q->in);
    if (!job || t->n == t->max_texts || (t == &q->urgent && !is_urgent(q))) return NULL;
    if (t->n > 0 && job->p.priority > t->jobs[0]->p.priority) return NULL;
    int64_t n = t->n_rows + job->p.n_prompt;
    return n > t->max_rows || (t->n > 0 && n > most) ? NULL : job;
}

/* Takes texts from the front of the queue; one that does not fit any more waits for the next. */
static void take_texts(struct encode_queue *q, struct texts *t)
{
    int most = q->shared ? rows_in(q, SHARED_STEP_US) : t->max_rows;
    t->n = t->n_rows = 0;
    HOLD(&q->in.lock);
    for (struct eng_job *job; (job = next_text(q, t, most));) {
        t->n_rows += (int)job->p.n_prompt;
        t->jobs[t->n++] = job;
        t->n_running = t->n;
        q->stats.n_spare += job->p.spare;
        queue_remove(&q->in.queue, job);
        job->n_admitted = 1;
        if (t == &q->step && job->p.priority > q->least_urgent) q->least_urgent = job->p.priority;
    }
    atomic_store(&q->rest, is_urgent(q) || atomic_load(&q->in.closing));
    q->stats.n_running += t->n;
    q->in.stats = q->stats; /* with the queue: a text either waits or runs */
}

static int pages_of(int max_rows, int max_texts)
{
    return max_rows / KV_PAGE_TOKENS + max_texts;
}

static void build(struct texts *t)
{
    uint8_t *const *pages = t->pages;
    for (int i = 0; i < t->n; i++) {
        const struct eng_job_params *p = &t->jobs[i]->p;
        t->segs[i] = (struct fwd_segment){
            .tokens = p->prompt,
            .n_tokens = (int)p->n_prompt,
            .pages = pages,
            .n_first = (int)p->n_first,
            .pool = t->pools + (size_t)i * (size_t)t->model->d_model,
            .n_unpooled = p->n_unpooled,
            .ends = true,
        };
        pages += kv_pages_of(p->n_prompt);
    }
    assert(pages - t->pages <= pages_of(t->max_rows, t->max_texts));
}

static void deliver_text(struct encode_queue *q, const struct texts *t, int i, uint64_t now)
{
    struct eng_job *job = t->jobs[i];
    const struct batch_model *m = t->model;
    job->usage.n_computed_prompt_tokens = job->p.n_prompt;
    if (job_emit_pooled(job, m->pooled(m->ctx, i), m->pooled_width, now))
        end_job(q, job, ENG_FINISH_LENGTH, NULL, now);
    else
        end_job(q, job, ENG_FINISH_ERROR, "the model's numbers are not finite", now);
}

/* The time of a step; its weight is that of its rows, so that single texts count little. */
static void note_step(struct encode_queue *q, int n_rows, uint64_t us, uint64_t now)
{
    double share = (double)n_rows / (n_rows + 4.0 * MIN_ROWS), each = (double)us / n_rows;
    q->row_us = q->row_us > 0 ? q->row_us + share * (each - q->row_us) : each;
    q->stats.n_steps++;
    q->stats.last_step_us = now;
    q->stats.compute_us += us;
    q->stats.n_prompt_tokens += (uint64_t)n_rows;
    q->stats.n_computed_prompt_tokens += (uint64_t)n_rows;
    eng_stats_count_step(&q->stats, (uint64_t)n_rows);
    q->stats.prompt_tokens_per_s = 1e6 / q->row_us;
}

/* Takes texts into the step and runs it. Returns false if it has to rest or to be given up. */
static bool begin(struct encode_queue *q, struct texts *t, struct fwd_step *s, uint64_t now)
{
    take_texts(q, t);
    build(t);
    for (int i = 0; i < t->n; i++)
        job_emit_started(t->jobs[i], now);
    s->segs = t->segs;
    s->n_segs = t->n;
    return t->n == 0 || t->model->run(t->model->ctx, s);
}

static void end(struct encode_queue *q, struct texts *t, bool complete, uint64_t now)
{
    q->stats.n_running -= t->n;
    for (int i = 0; i < t->n; i++)
        q->stats.n_spare -= t->jobs[i]->p.spare;
    pthread_mutex_lock(&q->in.lock);
    q->in.stats = q->stats;
    t->n_running = 0;
    if (t == &q->step) q->least_urgent = INT_MIN;
    pthread_mutex_unlock(&q->in.lock);
    for (int i = 0; i < t->n; i++)
        if (complete)
            deliver_text(q, t, i, now);
        else
            end_job(q, t->jobs[i], ENG_FINISH_CANCELLED, NULL, now);
}

/* Reads urgent texts while the step rests. Returns the time it took. */
static uint64_t read_urgent(struct encode_queue *q)
{
    struct fwd_step s = {.stop = &q->in.closing};
    uint64_t start = clock_now_us();
    bool complete = begin(q, &q->urgent, &s, start);
    uint64_t now = clock_now_us();
    end(q, &q->urgent, complete, now);
    return now - start;
}

static void step(struct encode_queue *q)
{
    struct fwd_step s = {.stop = &q->rest};
    cores_enter(q->p.member);
    uint64_t start = clock_now_us(), urgent_us = 0;
    bool complete = begin(q, &q->step, &s, start);
    while (!complete && !atomic_load(&q->in.closing)) {
        urgent_us += read_urgent(q);
        complete = q->p.model.resume(q->p.model.ctx);
    }
    uint64_t now = clock_now_us();
    if (complete && q->step.n > 0) note_step(q, q->step.n_rows, now - start - urgent_us, now);
    end(q, &q->step, complete, now);
    pthread_mutex_lock(&q->in.lock);
    bool more = q->in.queue.head != NULL;
    cores_give_way(q->p.member, inbox_is_spare(&q->in));
    pthread_mutex_unlock(&q->in.lock);
    q->shared = cores_leave(q->p.member, more);
}

static void *run(void *arg)
{
    struct encode_queue *q = arg;
    while (inbox_await(&q->in, false)) {
        reap(q, clock_now_us());
        step(q);
    }
    return NULL;
}

/* ---- lifecycle ----------------------------------------------------------------------------- */

int encode_pages(int max_rows, int max_texts)
{
    return pages_of(max_rows, max_texts) + pages_of(ENCODE_URGENT_ROWS, ENCODE_URGENT_TEXTS);
}

static bool init_texts(struct texts *t)
{
    size_t n = (size_t)t->max_texts;
    t->jobs = calloc(n, sizeof(*t->jobs));
    t->segs = calloc(n, sizeof(*t->segs));
    t->pools = calloc(n * (size_t)t->model->d_model, sizeof(*t->pools));
    return t->jobs && t->segs && t->pools;
}

static void free_texts(struct texts *t)
{
    free(t->jobs);
    free(t->segs);
    free(t->pools);
}

static bool init(struct encode_queue *q)
{
    const struct encode_params *p = &q->p;
    q->step = (struct texts){
        .model = &p->model, .pages = p->pages, .max_rows = p->max_rows, .max_texts = p->max_texts};
    q->urgent = (struct texts){.model = &p->urgent,
                               .pages = p->pages + pages_of(p->max_rows, p->max_texts),
                               .max_rows = ENCODE_URGENT_ROWS,
                               .max_texts = ENCODE_URGENT_TEXTS};
    q->least_urgent = INT_MIN;
    atomic_init(&q->rest, false);
    struct inbox_params in = p->in;
    in.limits = (struct job_limits){.vocab = p->model.vocab,
                                    .ctx = p->ctx,
                                    .max_choices = 1,
                                    .no_prefix_cache = true,
                                    .reads_only = true,
                                    .only_pools = true};
    in.n_step_jobs = p->max_texts;
    in.starts_at_once = starts_at_once;
    in.n_running = n_running;
    in.on_submit = look_for_urgent;
    in.on_stop = end_step;
    in.ctx = q;
    inbox_init(&q->in, &in);
    return init_texts(&q->step) && init_texts(&q->urgent);
}

int encode_create(struct encode_queue **ret, const struct encode_params *params, char *err,
                  size_t errlen)
{
    struct encode_queue *q = calloc(1, sizeof(*q));
    int rc = ENG_ENOMEM;
    assert(params->ctx <= params->max_rows && params->max_texts > 0);
    if (q) q->p = *params;
    if (q && init(q))
        rc = inbox_start(&q->in, "hearth-encode", run, q, err, errlen);
    else
        snprintf(err, errlen, "no memory for the texts of a step");
    if (rc)
        encode_destroy(q);
    else
        *ret = q;
    return rc;
}

void encode_destroy(struct encode_queue *q)
{
    if (!q) return;
    inbox_finish(&q->in);
    free_texts(&q->step);
    free_texts(&q->urgent);
    free(q);
}
