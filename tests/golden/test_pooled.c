/* SPDX-License-Identifier: MIT */
/*
 * Vectors of texts and logits of labels, as sentence-transformers and transformers computed them
 * (golden.json: cases with ids; raw float32 rows beside it), and their bits: a text's row is the
 * same alone and in batches of any size and order, beside texts whose numbers are not finite, with
 * one thread and two, cached or not.
 *
 *   test_pooled [MODEL ...]  models with their answers in their own folder; and, where
 *                            HEARTH_REFERENCE is set, all of its
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine_job.h"

enum { MAX_CASES = 200, MAX_IDS = 1024, MAX_BATCH = 2048 };

/* What is refused when the model is opened, and the words that say why. */
static const struct {
    const char *model, *why;
} refused[] = {
    {"st-embeddinggemma-like-bf16", "use_bidirectional_attention"},
    {"st-bert-maxmean", "two poolings joined"},
};

struct text {
    int32_t ids[MAX_IDS];
    int64_t n, n_first;
};

static struct text texts[MAX_CASES];
static int n_models;

static json_t *load_json(const char *dir, const char *name)
{
    char *path = NULL;
    REQUIRE(asprintf(&path, "%s/%s", dir, name) > 0);
    json_t *root = json_load_file(path, 0, NULL);
    REQUIRE_MSG(root, "%s", path);
    free(path);
    return root;
}

static int read_texts(const json_t *golden)
{
    const json_t *cases = json_object_get(golden, "cases");
    int n = (int)json_array_size(cases);
    REQUIRE(n > 0 && n < MAX_CASES);
    for (int i = 0; i < n; i++) {
        const json_t *ids = json_object_get(json_array_get(cases, (size_t)i), "ids");
        texts[i].n = (int64_t)json_array_size(ids);
        REQUIRE(texts[i].n > 0 && texts[i].n <= MAX_IDS);
        const json_t *types = json_object_get(json_array_get(cases, (size_t)i), "type_ids");
        texts[i].n_first = 0;
        for (size_t k = 0; k < json_array_size(types); k++)
            texts[i].n_first += json_integer_value(json_array_get(types, k)) == 0;
        for (size_t k = 0; k < json_array_size(ids); k++)
            texts[i].ids[k] = (int32_t)json_integer_value(json_array_get(ids, k));
    }
    return n;
}

static float *read_rows(const char *dir, const json_t *golden, size_t n)
{
    char *path = NULL;
    const char *file = json_string_value(json_object_get(golden, "vectors_file"));
    if (!file) file = json_string_value(json_object_get(golden, "logits_file"));
    REQUIRE(file);
    REQUIRE(asprintf(&path, "%s/%s", dir, file) > 0);
    FILE *f = fopen(path, "rb");
    float *rows = malloc(n * sizeof(*rows));
    REQUIRE_MSG(f && rows && fread(rows, sizeof(*rows), n, f) == n, "%s", path);
    free(path);
    fclose(f);
    return rows;
}

static struct eng_params params_of(const char *dir)
{
    return (struct eng_params){.model_dir = dir,
                               .numerics = "exact",
                               .n_threads = 2,
                               .n_parallel = 8,
                               .reads_only = true,
                               .max_queued_jobs = MAX_BATCH,
                               .max_queued_tokens = MAX_BATCH * MAX_IDS};
}

/* Opens a model; NULL if it is refused as it should be. */
static struct eng *open_model(const char *name, const struct eng_params *params)
{
    struct eng *e = NULL;
    char err[512] = "";
    int rc = eng_open(&e, params, err, sizeof(err));
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (strcmp(refused[i].model, name) != 0) continue;
        REQUIRE_MSG(rc == ENG_EUNSUPPORTED && strstr(err, refused[i].why), "%s: %s", name, err);
        return NULL;
    }
    REQUIRE_MSG(rc == 0, "%s: %s", name, err);
    return e;
}

/* The answers to a batch: the row of each text, and how its job ended. */
struct batch {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_done;
    float *rows;             /* [n][width] */
    enum eng_finish *finish; /* [n] */
    struct member {
        struct batch *of;
        int at;
    } * members;
};

static void on_event(void *ctx, const struct eng_event *e)
{
    const struct member *m = ctx;
    struct batch *b = m->of;
    if (e->type == ENG_EVENT_POOLED)
        memcpy(b->rows + m->at * e->n_logits, e->logits, (size_t)e->n_logits * sizeof(*b->rows));
    pthread_mutex_lock(&b->lock);
    if (e->type == ENG_EVENT_CHOICE_DONE) b->finish[m->at] = e->finish;
    b->n_done += e->type == ENG_EVENT_JOB_DONE;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

/* Submits the texts named by which[n], all at once, and waits for all. */
static void run_batch(struct eng *e, const int *which, int n, struct batch *b)
{
    size_t width = (size_t)eng_info(e)->pooled_width;
    *b = (struct batch){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    b->rows = calloc((size_t)n * width, sizeof(*b->rows));
    b->finish = calloc((size_t)n, sizeof(*b->finish));
    b->members = calloc((size_t)n, sizeof(*b->members));
    REQUIRE(b->rows && b->finish && b->members);
    for (int i = 0; i < n; i++) {
        const struct text *t = &texts[which[i]];
        struct eng_job *job = NULL;
        char err[300] = "";
        b->members[i] = (struct member){b, i};
        struct eng_job_params p = {.prompt = t->ids,
                                   .n_prompt = t->n,
                                   .n_first = t->n_first,
                                   .n_choices = 1,
                                   .sampling = eng_sampling_default(),
                                   .n_logprobs = -1,
                                   .n_prompt_logprobs = -1,
                                   .want_pooled = true,
                                   .on_event = on_event,
                                   .ctx = &b->members[i]};
        REQUIRE_MSG(eng_job_submit(e, &p, &job, err, sizeof(err)) == 0, "%s", err);
        eng_job_release(job);
    }
    pthread_mutex_lock(&b->lock);
    while (b->n_done < n)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

static void free_batch(struct batch *b)
{
    free(b->rows);
    free(b->finish);
    free(b->members);
}

/* Rows of all texts, [n][width]. */
static float *rows_of(struct eng *e, int n)
{
    int which[MAX_CASES] = {0};
    struct batch b;
    for (int i = 0; i < n; i++)
        which[i] = i;
    run_batch(e, which, n, &b);
    for (int i = 0; i < n; i++)
        REQUIRE_MSG(b.finish[i] == ENG_FINISH_LENGTH, "text %d ended with %d", i, (int)b.finish[i]);
    float *rows = b.rows;
    b.rows = NULL;
    free_batch(&b);
    return rows;
}

/*
 * In a batch of any size and order every text has the row that it has in `rows`; those of the
 * poisoned text, if the model has one, fail, and no other does.
 */
static void check_batch(struct eng *e, const char *name, const float *rows, int n, int size,
                        int poisoned)
{
    static int which[MAX_BATCH];
    size_t width = (size_t)eng_info(e)->pooled_width;
    struct batch b;
    for (int i = 0; i < size; i++)
        which[i] = poisoned >= 0 && i % 5 == 1 ? poisoned : (i * 7 + size) % n;
    run_batch(e, which, size, &b);
    for (int i = 0; i < size; i++) {
        bool fails = which[i] == poisoned;
        REQUIRE_MSG(b.finish[i] == (fails ? ENG_FINISH_ERROR : ENG_FINISH_LENGTH),
                    "%s: text %d of a batch of %d ended with %d", name, i, size, (int)b.finish[i]);
        REQUIRE_MSG(fails || memcmp(b.rows + (size_t)i * width, rows + (size_t)which[i] * width,
                                    width * sizeof(*rows)) == 0,
                    "%s: other bits of text %d in a batch of %d", name, i, size);
    }
    free_batch(&b);
}

static void check_bits(const char *name, const char *dir, const float *rows, int n, int poisoned,
                       bool large)
{
    static const struct {
        int threads, slots, chunk;
        bool no_cache;
    } makes[] = {{1, 1, 7, true}, {2, 3, 33, false}};
    static const int sizes[] = {1, 7, 256, 2048};
    for (size_t i = 0; i < sizeof(makes) / sizeof(makes[0]); i++) {
        struct eng_params params = params_of(dir);
        params.n_threads = makes[i].threads;
        params.n_parallel = makes[i].slots;
        params.chunk_tokens = makes[i].chunk;
        params.no_prefix_cache = makes[i].no_cache;
        struct eng *e = open_model(name, &params);
        for (int k = 0; k < (large ? 4 : 2); k++)
            check_batch(e, name, rows, n, sizes[k], poisoned);
        check_batch(e, name, rows, n, n, poisoned);
        eng_close(e);
    }
}

static double largest_difference(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= most)) most = d;
    }
    return most;
}

/* A reranker without a head of its own: the logits of yes and no after the prompt's last token. */
static double check_yes_no(struct eng *e, const json_t *golden, int n)
{
    const json_t *cases = json_object_get(golden, "cases");
    static const char *const names[] = {"yes", "no"};
    double most = 0;
    for (int i = 0; i < n; i++) {
        struct test_job *job = test_job_new();
        struct eng_job_params p = test_job_greedy(job, texts[i].ids, texts[i].n, 0);
        p.want_logits = true;
        test_job_submit(e, job, &p);
        test_job_await_done(job);
        const float *last = job->rows + (job->n_rows - 1) * job->row_len;
        for (int k = 0; k < 2; k++) {
            char id[16], logit[16];
            snprintf(id, sizeof(id), "%s_id", names[k]);
            snprintf(logit, sizeof(logit), "%s_logit", names[k]);
            const json_t *want = json_object_get(json_array_get(cases, (size_t)i), logit);
            float got = last[json_integer_value(json_object_get(golden, id))];
            most = fmax(most, fabs((double)got - json_real_value(want)));
        }
        test_job_free(job);
    }
    return most;
}

/* A text of `n` ids of which one makes its numbers infinite; -1: the model has no such id. */
static int add_poisoned(const json_t *golden, int n)
{
    const json_t *id = json_object_get(golden, "poison_id");
    if (!id) return -1;
    texts[n] = texts[n - 1];
    texts[n].ids[texts[n].n / 2] = (int32_t)json_integer_value(id);
    return n;
}

static void check_model(const char *name, const char *dir, const char *answers, bool large)
{
    json_t *golden = load_json(answers, "golden.json");
    int n = read_texts(golden);
    struct eng_params params = params_of(dir);
    struct eng *e = open_model(name, &params);
    double off = 0, allowed = 3e-5;
    n_models++;
    if (e && json_object_get(golden, "yes_id")) {
        off = check_yes_no(e, golden, n);
    } else if (e) {
        size_t width = (size_t)eng_info(e)->pooled_width;
        float *want = read_rows(answers, golden, (size_t)n * width), *rows = rows_of(e, n);
        off = largest_difference(rows, want, (size_t)n * width);
        double sum = 0;
        for (size_t i = 0; i < width; i++)
            sum += (double)want[i] * (double)want[i];
        if (fabs(sum - 1) < 1e-3) allowed = 1e-5; /* vectors of length 1 */
        check_bits(name, dir, rows, n, add_poisoned(golden, n), large);
        free(want);
        free(rows);
    }
    eng_close(e);
    json_decref(golden);
    printf("%s: %s, %d texts, largest difference %.2g\n", name, e ? "ok" : "refused", n, off);
    REQUIRE_MSG(off <= allowed, "%s: off by %g", name, off);
}

/* The answers to a model of the reference's folders, if they are in this one. */
static void check_reference(const char *families, const char *folder, const char *name)
{
    char *model = NULL, *answers = NULL, *golden = NULL;
    REQUIRE(asprintf(&model, "%s/encoders/%s", families, name) > 0);
    REQUIRE(asprintf(&answers, "%s/%s/%s", families, folder, name) > 0);
    REQUIRE(asprintf(&golden, "%s/golden.json", answers) > 0);
    if (access(golden, R_OK) == 0) check_model(name, model, answers, false);
    free(model);
    free(answers);
    free(golden);
}

int main(int argc, char **argv)
{
    const char *reference = getenv("HEARTH_REFERENCE"), *name;
    json_t *value;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        const char *slash = strrchr(argv[i], '/');
        check_model(slash ? slash + 1 : argv[i], argv[i], argv[i], true);
    }
    if (reference && *reference) {
        char *families = NULL;
        REQUIRE(asprintf(&families, "%s/goldens/families", reference) > 0);
        json_t *list = load_json(families, "encoders.json");
        json_object_foreach(list, name, value)
        {
            check_reference(families, "vectors", name);
            check_reference(families, "scores", name);
        }
        json_decref(list);
        free(families);
    }
    return n_models ? 0 : 77;
}
