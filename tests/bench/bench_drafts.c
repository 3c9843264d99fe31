/* SPDX-License-Identifier: MIT */
/*
 * Drafts on and off, in turns, on texts of known kinds.
 *
 *   bench_drafts MODEL_DIR [-f numerics] [-t threads] [-c clients] [-r rounds] [-n tokens]
 *                [-k kind of text] [-x file of text] [-p prompt ids] [-T temperature]
 *                [-m draft model's directory] [-s percent of drafted ids that are right]
 *                [-a: always draft] [-l: next to drafts without a twin rather than none]
 *
 * The weights may be random (make_model.py): a guide that allows one id per position makes the model
 * write a given text, while everything is computed as ever. The engine's guide says beforehand
 * that any id may come, so drafts are found and verified as without a guide. Texts:
 *
 *   quotes     quotes passages of 20 to 40 ids of its prompt, 3 new ids between them
 *   edits      is its prompt with one id in ten replaced
 *   predicted  is new; one id in ten of its prediction is wrong
 *   chat       is a file's text (default: story.txt), whose first half is the prompt
 *   certain    is random, but 6 of 14 ids are certain: the guide says them, as at keys of a schema
 *   random     is random
 *   self       is what the model draws after random ids or, with -x, that text, with drafts by the
 *              twin or, with -m, by that model; only by -k self. With -s the ids they draw are
 *              replaced, after everything was computed, by those that the engine without drafts
 *              wrote, or by wrong ones
 *
 * Prompts come from the prefix cache. Per text: tokens per second without and with drafts, the
 * median and range of the rounds' ratios, the ratio of processor time, tokens per step, and the
 * share of the draft tokens that were right. For `self` also the time of a step without drafts and
 * the longest time between tokens; its answers must be equal with and without. With one client and
 * -a also the share of its draws that were right, by place, if those before them were.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/sample.h"
#include "tokenizer/tokenizer.h"

enum {
    CERTAIN_CYCLE = 14,
    MAX_CLIENTS = 64,
    MAX_ROUNDS = 99,
    N_PROMPT = 480,
    MAX_IDS = 4096,
    MAX_PLACES = 16
};

struct text {
    const char *name;
    int32_t prompt[MAX_IDS], answer[MAX_IDS], prediction[MAX_IDS];
    int n_prompt, n_answer, n_prediction;
    int n_certain; /* ids at the start of each CERTAIN_CYCLE that the guide says beforehand */
    bool self;     /* no guide: the model's own */
    float temperature;
};

/* One request: its guide and its end. */
struct client {
    const struct text *text;
    int at;
    int32_t vocab;
    uint64_t seed;
    int32_t ids[MAX_IDS]; /* the answer */
    int n_ids;
    uint64_t last_us, gap_us; /* the newest step's end; the longest time between two of them */
    bool done;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

struct result {
    double tok_s, cpu_s, gap_ms;
    struct eng_stats stats;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_drafts: %s\n", what);
    exit(1);
}

/* ---- ids that are right as often as asked for ------------------------------------------------ */

/* Of the draws of one client's drafts, by place in the draft: those after right ones alone, and the
 * right ones among them. A draft goes on with the next index; another one never begins there if
 * all that is drawn is tried (-a). */
static bool counts_places;
static int n_tried[MAX_PLACES], n_right[MAX_PLACES];

static void note_place(int64_t index, bool right)
{
    static int64_t next = -1;
    static int place;
    static bool good;
    place = index == next ? place + 1 : 0;
    if (place == 0) good = true;
    next = index + 1;
    if (!good || !counts_places || place >= MAX_PLACES) return;
    good = right;
    n_tried[place]++;
    n_right[place] += right;
}

static double right_percent = -1;              /* of the drafted ids; negative: as they are drawn */
static int32_t recorded[MAX_CLIENTS][MAX_IDS]; /* the answers without drafts */

/* The linker puts __wrap_f in the place of f and calls the real one __real_f. */
int32_t __real_sampler_draw(struct sampler *s, const struct sample_row *row);
int32_t __wrap_sampler_draw(struct sampler *s, const struct sample_row *row);

/* Only draws of drafts want a margin; these come from one thread. A client's number is the last
 * digit of its seed. */
int32_t __wrap_sampler_draw(struct sampler *s, const struct sample_row *row)
{
    static uint32_t state = 7;
    int32_t id = __real_sampler_draw(s, row);
    if (!row->ret_margin || id == SAMPLE_NOTHING) return id;
    int32_t right = recorded[row->chain->seed % MAX_CLIENTS][row->index];
    state = state * 1664525u + 1013904223u;
    if (right_percent >= 0)
        id = (state >> 8) % 10000 < 100 * right_percent ? right : right > 0 ? right - 1 : 1;
    note_place(row->index, id == right);
    return id;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static uint32_t random_state = 1;

static int random_below(int n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)((random_state >> 8) % (uint32_t)n);
}

static void fill(int32_t *ids, int n, int32_t vocab)
{
    for (int i = 0; i < n; i++)
        ids[i] = random_below(vocab);
}

static void replace_some(int32_t *ids, int n, int32_t vocab)
{
    for (int i = 0; i < n; i++)
        if (random_below(10) == 0) ids[i] = random_below(vocab);
}

static void make_quotes(struct text *t, int32_t vocab)
{
    for (int at = 0; at < t->n_answer;) {
        int n = 20 + random_below(21), from = random_below(t->n_prompt - n);
        for (int i = 0; i < n + 3 && at < t->n_answer; i++)
            t->answer[at++] = i < n ? t->prompt[from + i] : random_below(vocab);
    }
}

static void make_text(struct text *t, const char *name, int n_prompt, int n, int32_t vocab)
{
    *t = (struct text){.name = name, .n_prompt = n_prompt, .n_answer = n, .temperature = 1};
    t->self = strcmp(name, "self") == 0;
    fill(t->prompt, t->n_prompt, vocab);
    fill(t->answer, n, vocab);
    if (!strcmp(name, "quotes")) make_quotes(t, vocab);
    if (!strcmp(name, "edits")) {
        for (int i = 0; i < n; i++)
            t->answer[i] = t->prompt[i % t->n_prompt];
        replace_some(t->answer, n, vocab);
    }
    if (!strcmp(name, "certain")) t->n_certain = 6;
    if (strcmp(name, "predicted") != 0) return;
    t->n_prediction = n;
    memcpy(t->prediction, t->answer, (size_t)n * sizeof(int32_t));
    replace_some(t->prediction, n, vocab);
}

static void read_text(struct text *t, const char *model_dir, const char *file, int n_answer)
{
    static char bytes[64 << 10];
    char err[300];
    struct tok *tok;
    struct tok_ids ids = {0};
    FILE *f = fopen(file, "r");
    if (!f) fail(file);
    size_t n = fread(bytes, 1, sizeof(bytes), f);
    fclose(f);
    if (tok_open(&tok, model_dir, err, sizeof(err)) ||
        tok_encode(tok, bytes, n, 0, &ids, err, sizeof(err)))
        fail(err);
    int half = (int)(ids.n < 2 * MAX_IDS ? ids.n : 2 * MAX_IDS) / 2;
    *t = (struct text){.name = "chat", .n_prompt = half, .temperature = 1};
    t->n_answer = half < n_answer ? half : n_answer;
    memcpy(t->prompt, ids.ids, (size_t)half * sizeof(int32_t));
    memcpy(t->answer, ids.ids + half, (size_t)half * sizeof(int32_t));
    tok_ids_finish(&ids);
    tok_close(tok);
}

/* ---- requests -------------------------------------------------------------------------------- */

static enum eng_guide_next one_id(void *ctx, uint64_t *bits, struct eng_pace *pace)
{
    (void)pace;
    const struct client *c = ctx;
    if (c->at == c->text->n_answer) return ENG_GUIDE_END;
    memset(bits, 0, ((size_t)c->vocab + 63) / 64 * 8);
    int32_t id = c->text->answer[c->at];
    bits[id / 64] |= 1ull << id % 64;
    return ENG_GUIDE_MASK;
}

static bool take_id(void *ctx, int32_t id)
{
    struct client *c = ctx;
    (void)id;
    c->at++;
    return true;
}

static bool always_complete(void *ctx)
{
    (void)ctx;
    return true;
}

static int any_id(void *ctx, const int32_t *ids, int n)
{
    (void)ctx, (void)ids;
    return n;
}

/* The rest of a passage that the guide is sure of. */
static int certain_ids(void *ctx, int32_t *ids, int n)
{
    const struct client *c = ctx;
    int n_certain = c->text->n_certain - c->at % CERTAIN_CYCLE, i = 0;
    for (; i < n && i < n_certain && c->at + i < c->text->n_answer; i++)
        ids[i] = c->text->answer[c->at + i];
    return i;
}

static void note_token(struct client *c, const struct eng_event *e)
{
    uint64_t us = c->last_us ? e->now_us - c->last_us : 0;
    if (us > c->gap_us) c->gap_us = us;
    c->last_us = e->now_us;
    c->ids[c->n_ids++] = e->id;
}

static void on_event(void *ctx, const struct eng_event *e)
{
    struct client *c = ctx;
    if (e->type == ENG_EVENT_TOKEN) note_token(c, e);
    if (e->type != ENG_EVENT_JOB_DONE) return;
    pthread_mutex_lock(&c->lock);
    c->done = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static struct eng_job *submit(struct eng *e, struct client *c, const struct text *t)
{
    char err[300];
    struct eng_job *job;
    struct eng_guide guide = {c, one_id, take_id, always_complete, any_id, certain_ids, NULL, NULL};
    c->text = t;
    c->at = 0;
    c->vocab = eng_info(e)->vocab_size;
    c->done = false;
    c->n_ids = 0;
    c->last_us = c->gap_us = 0;
    struct eng_job_params p = {
        .prompt = t->prompt,
        .n_prompt = t->n_prompt,
        .n_choices = 1,
        .max_tokens = t->n_answer,
        .sampling = eng_sampling_default(),
        .guides = t->self ? NULL : &guide,
        .prediction = t->prediction,
        .n_prediction = t->n_prediction,
        .ignore_eos = true,
        .n_logprobs = -1,
        .n_prompt_logprobs = -1,
        .on_event = on_event,
        .ctx = c,
    };
    p.sampling.temperature = t->temperature;
    p.sampling.seed = c->seed;
    if (eng_job_submit(e, &p, &job, err, sizeof(err))) fail(err);
    return job;
}

static void await(struct client *c)
{
    pthread_mutex_lock(&c->lock);
    while (!c->done)
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_s(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static struct result run(struct eng *e, struct client *clients, int n, const struct text *t)
{
    struct eng_job *jobs[MAX_CLIENTS];
    struct eng_stats before;
    struct result r;
    eng_stats(e, &before);
    double start = now_s(), cpu = cpu_s();
    for (int i = 0; i < n; i++)
        jobs[i] = submit(e, &clients[i], t);
    for (int i = 0; i < n; i++) {
        await(&clients[i]);
        eng_job_release(jobs[i]);
    }
    r.tok_s = n * t->n_answer / (now_s() - start);
    r.cpu_s = cpu_s() - cpu;
    r.gap_ms = 0;
    for (int i = 0; i < n; i++)
        if (1e-3 * (double)clients[i].gap_us > r.gap_ms)
            r.gap_ms = 1e-3 * (double)clients[i].gap_us;
    do /* the snapshot follows the last event */
        eng_stats(e, &r.stats);
    while (r.stats.n_running > 0);
    r.stats.n_steps -= before.n_steps;
    for (int i = 0; i < ENG_DRAFT_SOURCES; i++) {
        r.stats.n_draft_tokens[i] -= before.n_draft_tokens[i];
        r.stats.n_accepted_draft_tokens[i] -= before.n_accepted_draft_tokens[i];
    }
    return r;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Both engines in turns. */
struct rounds {
    double off[MAX_ROUNDS], on[MAX_ROUNDS], ratio[MAX_ROUNDS], cpu[MAX_ROUNDS];
    double gap_ms[2][MAX_ROUNDS];
    struct result last; /* with drafts */
};

/* The same requests without drafts and with them. */
static void run_both(struct eng *const *engine, struct client *clients, int n, const struct text *t,
                     struct result *ret)
{
    ret[0] = run(engine[0], clients, n, t);
    for (int k = 0; k < n; k++)
        memcpy(recorded[k], clients[k].ids, sizeof(recorded[k]));
    ret[1] = run(engine[1], clients, n, t);
    for (int k = 0; k < n; k++)
        if (memcmp(recorded[k], clients[k].ids, sizeof(recorded[k])) != 0)
            fail("drafts have changed an answer");
}

static void measure(struct eng *const *engine, struct client *clients, int n, int n_rounds,
                    const struct text *t, struct rounds *ret)
{
    struct result r[2];
    for (int i = -1; i < n_rounds; i++) { /* the prompts are cached from the first on */
        for (int k = 0; k < n; k++)
            clients[k].seed = (uint64_t)((i + 1) * MAX_CLIENTS + k);
        run_both(engine, clients, n, t, r);
        if (i < 0) {
            memset(n_tried, 0, sizeof(n_tried));
            memset(n_right, 0, sizeof(n_right));
            continue;
        }
        ret->off[i] = r[0].tok_s;
        ret->on[i] = r[1].tok_s;
        ret->ratio[i] = r[1].tok_s / r[0].tok_s;
        ret->cpu[i] = r[0].cpu_s / r[1].cpu_s;
        ret->gap_ms[0][i] = r[0].gap_ms;
        ret->gap_ms[1][i] = r[1].gap_ms;
        ret->last = r[1];
    }
}

static void print(struct rounds *r, int n_rounds, int n, const struct text *t)
{
    const struct eng_stats *s = &r->last.stats;
    double middle = median(r->ratio, n_rounds), off = median(r->off, n_rounds);
    double tried = (double)eng_draft_sum(s->n_draft_tokens);
    printf("%-10s %8.1f %8.1f   %5.2f (%.2f to %.2f)   %5.2f   %5.2f   %3.0f %% of %d\n", t->name,
           off, median(r->on, n_rounds), middle, r->ratio[0], r->ratio[n_rounds - 1],
           median(r->cpu, n_rounds), (double)n * t->n_answer / (double)s->n_steps,
           tried > 0 ? 100.0 * (double)eng_draft_sum(s->n_accepted_draft_tokens) / tried : 0.0,
           (int)tried);
    double gaps[2] = {median(r->gap_ms[0], n_rounds), median(r->gap_ms[1], n_rounds)};
    if (t->self)
        printf("           a step without drafts %.2f ms, longest gap %.2f ms, with drafts %.2f ms "
               "(%.1f steps)\n",
               1e3 * n / off, gaps[0], gaps[1], gaps[1] * off / (1e3 * n));
    for (int i = 0; t->self && i < MAX_PLACES && n_tried[i]; i++)
        printf("%s %.3f%s", i ? "" : "           right by place", (double)n_right[i] / n_tried[i],
               i + 1 < MAX_PLACES && n_tried[i + 1] ? "" : "\n");
    fflush(stdout);
}

static void load_drafts(struct eng *e, const char *draft_model)
{
    static uint64_t all[1 << 14];
    const char *why = NULL;
    memset(all, 0xff, sizeof(all));
    if (draft_model && eng_info(e)->vocab_size > 64 * (int)(sizeof(all) / sizeof(*all)))
        fail("the vocabulary is larger than any known");
    if (!draft_model && eng_info(e)->memory.twin_bytes == 0)
        fail("the model has no twin (with -a it may have one)");
    eng_load_drafts(e, all);
    eng_await_drafts(e);
    if (draft_model && eng_draft_state(e, &why) != ENG_DRAFTS_ON)
        fail(why ? why : "the draft model is not used");
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"quotes",  "edits",  "predicted", "chat",
                                        "certain", "random", "self"};
    static struct client clients[MAX_CLIENTS];
    static struct text text;
    static struct rounds result;
    enum eng_speculate with = ENG_SPECULATE_AUTO, without = ENG_SPECULATE_OFF;
    float temperature = 1;
    const char *file = NULL, *only = NULL;
    int n = 1, rounds = 5, n_tokens = 256, n_prompt = N_PROMPT, opt;
    struct eng_params p = {.numerics = "auto", .n_threads = 2, .max_queued_jobs = MAX_CLIENTS};
    struct eng *engine[2];
    char err[300];
    while ((opt = getopt(argc, argv, "f:t:c:r:n:k:x:p:T:m:s:al")) != -1) {
        if (opt == 'f') p.numerics = optarg;
        if (opt == 't') p.n_threads = atoi(optarg);
        if (opt == 'c') n = atoi(optarg);
        if (opt == 'r') rounds = atoi(optarg);
        if (opt == 'n') n_tokens = atoi(optarg);
        if (opt == 'k') only = optarg;
        if (opt == 'x') file = optarg;
        if (opt == 'p') n_prompt = atoi(optarg);
        if (opt == 'T') temperature = (float)atof(optarg);
        if (opt == 'm') p.draft_dir = optarg;
        if (opt == 's') right_percent = atof(optarg);
        if (opt == 'a') with = ENG_SPECULATE_ALWAYS;
        if (opt == 'l') without = ENG_SPECULATE_LOOKUP;
        if (opt == '?') return 2;
    }
    counts_places = n == 1 && with == ENG_SPECULATE_ALWAYS;
    if (optind + 1 != argc) fail("name one model directory");
    if (n < 1 || n > MAX_CLIENTS || rounds < 1 || rounds > MAX_ROUNDS || n_tokens < 2 ||
        n_tokens > MAX_IDS || n_prompt < 1 || n_prompt > MAX_IDS)
        fail("1 to 64 clients, 1 to 99 rounds, 2 to 4096 tokens");
    p.model_dir = argv[optind];
    p.n_parallel = n;
    p.ctx_tokens = n_prompt + 1024 > 2 * n_tokens ? n_prompt + 1024 : 2 * n_tokens;
    for (int i = 0; i < 2; i++) {
        p.speculate = i == 0 ? without : with;
        if (eng_open(&engine[i], &p, err, sizeof(err))) fail(err);
    }
    for (int i = 0; i < MAX_CLIENTS; i++) {
        pthread_mutex_init(&clients[i].lock, NULL);
        pthread_cond_init(&clients[i].changed, NULL);
    }
    const struct eng_info *info = eng_info(engine[0]);
    printf("%s, %s, %s, %d threads, %d clients, %d rounds\n", p.model_dir, info->numerics,
           info->kernels, info->n_threads, n, rounds);
    printf("%-10s %8s %8s   %-20s   %5s   %5s   %s\n", "text", "off", "on tok/s", "ratio (range)",
           "CPU", "/step", "right, of draft tokens per round");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bool self = strcmp(names[i], "self") == 0;
        if (only ? strcmp(only, names[i]) != 0 : self) continue;
        if (self) load_drafts(engine[1], p.draft_dir);
        if (strcmp(names[i], "chat") == 0 || (self && file))
            read_text(&text, p.model_dir, file ? file : "tests/bench/story.txt", n_tokens);
        else
            make_text(&text, names[i], n_prompt, n_tokens, info->vocab_size);
        text.name = names[i];
        text.self = self;
        if (self) text.n_answer = n_tokens;
        if (self) text.temperature = temperature;
        measure(engine, clients, n, rounds, &text, &result);
        print(&result, rounds, n, &text);
    }
    eng_close(engine[0]);
    eng_close(engine[1]);
    return 0;
}
