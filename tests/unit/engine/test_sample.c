/* SPDX-License-Identifier: MIT */
/* The sampling chain, its random numbers, and the partial order they rest on. */
#include "test.h"

#include <math.h>

#include "engine/kernels/kernels.h"
#include "engine/sample.h"
#include "engine/topk.h"
#include "scratch_memory.h"

enum { VOCAB = 300 };

/* A small generator for test data; the engine's own is one of the things under test. */
static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void fill_logits(float *x, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)(next_random(&seed) % 4000) / 200.0f - 10.0f; /* ties occur */
}

/* ---- rank ---------------------------------------------------------------------------------- */

static const float *sort_values;

static int compare_ids(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sort_values[i] != sort_values[j]) return sort_values[i] > sort_values[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

static void check_rank(const float *values, int n, const int *steps, int n_steps)
{
    struct rank r;
    struct scratch memory = new_memory();
    rank_init(&r, &memory, n, kern_select("auto"));
    int32_t *want = malloc((size_t)n * sizeof(*want));
    for (int i = 0; i < n; i++)
        want[i] = i;
    sort_values = values;
    qsort(want, (size_t)n, sizeof(*want), compare_ids);
    rank_begin(&r, values, n);
    for (int s = 0; s < n_steps; s++) {
        int got = rank_upto(&r, steps[s]);
        REQUIRE_EQ_INT(got, steps[s] < n ? steps[s] : n);
        for (int i = 0; i < got; i++)
            REQUIRE_MSG(r.ids[i] == want[i], "n %d step %d place %d: %d, not %d", n, steps[s], i,
                        (int)r.ids[i], (int)want[i]);
    }
    free(want);
    free(memory.base);
}

static void test_rank_orders(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 31, 32, 33, 100, 1000, 5000, 49152};
    static const int steps[] = {1, 2, 5, 6, 24, 25, 40, 100, RANK_MAX};
    for (size_t i = 0; i < N_OF(sizes); i++) {
        int n = sizes[i];
        float *x = malloc((size_t)n * sizeof(*x));
        fill_logits(x, n, (uint32_t)n);
        check_rank(x, n, steps, N_OF(steps));
        for (int j = 0; j < n; j += 3)
            x[j] = -INFINITY;
        check_rank(x, n, steps, N_OF(steps));
        for (int j = 0; j < n; j++)
            x[j] = j % 2 ? 0.0f : -0.0f;
        check_rank(x, n, steps, N_OF(steps));
        free(x);
    }
}

/* The cut at a mass is where the sorted order reaches it; ties and weights of 0 included. */
static void test_mass_cut(void **state)
{
    (void)state;
    enum { N = 3000 };
    static float x[N], w[N];
    static int32_t ids[N];
    for (uint32_t seed = 0; seed < 30; seed++) {
        int n = seed % 3 ? N : 1 + (int)seed;
        double total = 0, sum = 0;
        fill_logits(x, n, seed);
        if (seed % 2) x[n / 2] = -INFINITY;
        for (int i = 0; i < n; i++) {
            ids[i] = i;
            w[i] = x[i] < -9.0f ? 0.0f : ldexpf(1.0f, (int)x[i]); /* sums are exact */
            total += w[i];
        }
        sort_values = x;
        qsort(ids, (size_t)n, sizeof(*ids), compare_ids);
        for (int i = 0; i < n && sum < total; i += 1 + i / 8) {
            sum = 0;
            for (int j = 0; j <= i; j++)
                sum += w[ids[j]];
            struct rank_cut cut = rank_mass_cut(x, NULL, n, i + 1);
            REQUIRE(cut.id == ids[i] && cut.value == x[ids[i]]);
            cut = rank_mass_cut(x, w, n, sum);
            if (w[ids[i]] <= 0.0f) break;
            REQUIRE_MSG(cut.id == ids[i] && cut.value == x[ids[i]],
                        "seed %u, %d of %d: id %d at %g", seed, i, n, (int)cut.id,
                        (double)cut.value);
        }
    }
}

/* ---- the chain against its definition ------------------------------------------------------ */

struct candidate {
    int32_t id;
    double x, p;
};

static int by_logit(const void *a, const void *b)
{
    const struct candidate *c = a, *d = b;
    if (c->x != d->x) return c->x > d->x ? -1 : 1;
    return c->id < d->id ? -1 : 1;
}

static double typical_mean;

static int by_surprise(const void *a, const void *b)
{
    const struct candidate *c = a, *d = b;
    double e = fabs(-log(c->p) - typical_mean), f = fabs(-log(d->p) - typical_mean);
    if (e != f) return e < f ? -1 : 1;
    return c->id < d->id ? -1 : 1;
}

static void normalise(struct candidate *c, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += c[i].p;
    for (int i = 0; i < n; i++)
        c[i].p /= sum;
}

static int until_mass(const struct candidate *c, int n, double mass)
{
    double sum = 0;
    int m = 0;
    while (m < n && (m == 0 || sum < mass))
        sum += c[m++].p;
    return m;
}

/*
 * The chain as its definition reads, in double and with whole sorts; returns the candidates left.
 */
static int slow_chain(const float *logits, int vocab, const struct eng_sampling *s,
                      struct candidate *c)
{
    for (int i = 0; i < vocab; i++)
        c[i] = (struct candidate){i, logits[i], 0};
    int n = vocab;
    qsort(c, (size_t)n, sizeof(*c), by_logit);
    for (int i = n - 1; i >= 0; i--)
        c[i].p = exp((c[i].x - c[0].x) / s->temperature);
    if (s->top_k > 0 && s->top_k < n) n = s->top_k;
    normalise(c, n);
    if (s->typical_p > 0 && s->typical_p < 1) {
        typical_mean = 0;
        for (int i = 0; i < n; i++)
            typical_mean -= c[i].p * log(c[i].p);
        qsort(c, (size_t)n, sizeof(*c), by_surprise);
        n = until_mass(c, n, s->typical_p);
        qsort(c, (size_t)n, sizeof(*c), by_logit);
        normalise(c, n);
    }
    if (s->top_p < 1) n = until_mass(c, n, s->top_p);
    int m = 1;
    while (m < n && c[m].p >= s->min_p * c[0].p)
        m++;
    normalise(c, m);
    return m;
}

/* Of each chain; `engine_sample 1000000` for a closer look. */
static int n_draws = 8000;

/* A chi-square statistic as a number of standard deviations (Wilson and Hilferty). */
static double deviations(double chi, int freedom)
{
    double v = 2.0 / (9 * freedom);
    return (cbrt(chi / freedom) - (1 - v)) / sqrt(v);
}

/* Draws many times and compares the frequencies with the definition's probabilities, p > 0.01. */
static void check_chain(const struct eng_sampling *s, uint32_t seed, const char *name)
{
    float logits[VOCAB];
    static struct candidate want[VOCAB];
    static int count[VOCAB];
    memset(count, 0, sizeof(count));
    fill_logits(logits, VOCAB, seed);
    int n = slow_chain(logits, VOCAB, s, want);
    struct scratch memory = new_memory();
    struct sampler *sampler = sampler_init(&memory, VOCAB, kern_select("auto"));
    struct sample_row row = {.logits = logits, .chain = s};
    for (int i = 0; i < n_draws; i++) {
        row.index = i;
        int32_t id = sampler_draw(sampler, &row);
        REQUIRE(id >= 0 && id < VOCAB);
        count[id]++;
    }
    int n_seen = 0, n_classes = 0;
    double chi = 0, rare = 0, n_rare = 0;
    for (int i = 0; i < n; i++) {
        double expected = want[i].p * n_draws, d = count[want[i].id] - expected;
        n_seen += count[want[i].id];
        if (expected < 10) { /* they are one class */
            rare += expected;
            n_rare += count[want[i].id];
            continue;
        }
        chi += d * d / expected;
        n_classes++;
    }
    if (rare >= 10) {
        chi += (n_rare - rare) * (n_rare - rare) / rare;
        n_classes++;
    }
    free(memory.base);
    REQUIRE_MSG(n_seen == n_draws, "%s: %d draws outside the candidates", name, n_draws - n_seen);
    if (n_classes < 2) return;
    double z = deviations(chi, n_classes - 1);
    print_message("%s: chi-square %.1f for %d degrees of freedom, %.2f deviations\n", name, chi,
                  n_classes - 1, z);
    REQUIRE_MSG(z < 2.33, "%s: %.2f deviations", name, z);
}

static void test_chain_follows_definition(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        float temperature;
        int top_k;
        float top_p, min_p, typical_p;
    } cases[] = {
        {"plain", 1, 0, 1, 0, 1},
        {"hot", 2.5f, 0, 1, 0, 1},
        {"cold", 0.3f, 0, 1, 0, 1},
        {"top-k", 1, 40, 1, 0, 1},
        {"top-k of all", 1, VOCAB, 1, 0, 1},
        {"top-p", 1, 0, 0.9f, 0, 1},
        {"top-p hot", 3, 0, 0.95f, 0, 1},
        {"min-p", 1, 0, 1, 0.05f, 1},
        {"typical", 1, 0, 1, 0, 0.8f},
        {"typical hot", 3, 0, 1, 0, 0.5f},
        {"all", 1.2f, 50, 0.95f, 0.02f, 0.9f},
        {"tiny top-p", 1, 0, 1e-6f, 0, 1},
        {"top-p 0", 1, 0, 0, 0, 1},
        {"typical 0", 1, 0, 1, 0, 0},
        {"top-k -1", 1, -1, 0.9f, 0, 1},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct eng_sampling s = eng_sampling_default();
        s.temperature = cases[i].temperature;
        s.top_k = cases[i].top_k;
        s.top_p = cases[i].top_p;
        s.min_p = cases[i].min_p;
        s.typical_p = cases[i].typical_p;
        s.seed = 1234 + i;
        check_chain(&s, (uint32_t)i + 1, cases[i].name);
    }
}

/* With many candidates left, every step follows its definition too. */
static void test_flat_chain(void **state)
{
    (void)state;
    enum { N = 4000, N_DRAWS = 3000 };
    static const struct {
        int top_k;
        float top_p, min_p, typical_p;
    } cases[] = {
        {0, 0.7f, 0, 1},       {0, 0.7f, 0.5f, 1},    {1500, 1, 0, 1},
        {2500, 0.7f, 0, 1},    {1500, 1, 0.3f, 1},    {0, 1, 0, 0.6f},
        {2500, 0.8f, 0, 0.8f}, {0, 0.9f, 0.3f, 0.8f}, {129, 0.97f, 0.01f, 0.99f},
    };
    static float logits[N];
    static struct candidate want[N];
    static int count[N];
    uint32_t seed = 9;
    for (int i = 0; i < N; i++)
        logits[i] = (float)(next_random(&seed) % 100000) / 50000.0f;
    struct scratch memory = new_memory();
    struct sampler *sampler = sampler_init(&memory, N, kern_select("auto"));
    for (size_t k = 0; k < N_OF(cases); k++) {
        struct eng_sampling s = eng_sampling_default();
        s.top_k = cases[k].top_k;
        s.top_p = cases[k].top_p;
        s.min_p = cases[k].min_p;
        s.typical_p = cases[k].typical_p;
        int n = slow_chain(logits, N, &s, want), n_seen = 0, n_low = 0;
        double p_low = 0;
        REQUIRE(n > 100 && n < 3000);
        memset(count, 0, sizeof(count));
        for (int i = 0; i < N_DRAWS; i++) {
            struct sample_row row = {.logits = logits, .chain = &s, .index = i};
            count[sampler_draw(sampler, &row)]++;
        }
        for (int i = 0; i < n; i++) {
            n_seen += count[want[i].id];
            if (i < n / 2) continue;
            n_low += count[want[i].id];
            p_low += want[i].p;
        }
        REQUIRE_MSG(n_seen == N_DRAWS, "case %zu: %d draws of others", k, N_DRAWS - n_seen);
        REQUIRE_MSG(fabs(n_low - p_low * N_DRAWS) < 125, "case %zu: %d low ids, not %g", k, n_low,
                    p_low * N_DRAWS);
    }
    free(memory.base);
}

/* ---- adjustments --------------------------------------------------------------------------- */

static int32_t greedy(const float *logits, struct eng_sampling s, const struct sample_history *h,
                      const int32_t *banned, int n_banned)
{
    struct scratch memory = new_memory();
    struct sampler *sampler = sampler_init(&memory, 8, kern_select("auto"));
    s.temperature = 0;
    struct sample_row row = {
        .logits = logits, .chain = &s, .history = h, .banned = {banned}, .n_banned = {n_banned}};
    int32_t id = sampler_draw(sampler, &row);
    free(memory.base);
    return id;
}

static void test_greedy_adjustments(void **state)
{
    (void)state;
    const float logits[8] = {1, 5, 5, 4, -1, 0, 2, 3};
    struct eng_sampling s = eng_sampling_default();
    REQUIRE_EQ_INT(greedy(logits, s, NULL, NULL, 0), 1); /* lowest id on a tie */

    const int32_t ban[] = {1, 2};
    REQUIRE_EQ_INT(greedy(logits, s, NULL, ban, 2), 3);

    const struct eng_bias bias[] = {{1, -INFINITY}, {6, 3.5f}};
    s.bias = bias;
    s.n_bias = 2;
    REQUIRE_EQ_INT(greedy(logits, s, NULL, NULL, 0), 6);

    const int32_t allowed[] = {4, 5};
    s = eng_sampling_default();
    s.allowed_ids = allowed;
    s.n_allowed_ids = 2;
    REQUIRE_EQ_INT(greedy(logits, s, NULL, NULL, 0), 5);
    REQUIRE_EQ_INT(greedy(logits, s, NULL, allowed, 2), SAMPLE_NOTHING);
}

static void test_penalties(void **state)
{
    (void)state;
    const float logits[8] = {1, 5, 4.9f, 4, -1, 0, 2, 3};
    struct sample_history h;
    struct scratch memory = new_memory();
    sample_history_init(&h, &memory, 8);
    sample_history_add(&h, 1, true);
    sample_history_add(&h, 2, false);
    sample_history_add(&h, 2, false);

    struct eng_sampling s = eng_sampling_default();
    s.repetition_penalty = 1.1f; /* both: 5 / 1.1 = 4.55, 4.9 / 1.1 = 4.45 */
    REQUIRE_EQ_INT(greedy(logits, s, &h, NULL, 0), 1);
    s.repetition_penalty = 2.0f;
    REQUIRE_EQ_INT(greedy(logits, s, &h, NULL, 0), 3);

    s = eng_sampling_default();
    s.presence_penalty = 1.0f; /* output only: 1 stays at 5 */
    REQUIRE_EQ_INT(greedy(logits, s, &h, NULL, 0), 1);
    sample_history_add(&h, 1, false);
    s.presence_penalty = 0.95f;
    REQUIRE_EQ_INT(greedy(logits, s, &h, NULL, 0), 1); /* 4.05 against 4 */
    s.presence_penalty = 1.05f;
    REQUIRE_EQ_INT(greedy(logits, s, &h, NULL, 0), 3);

    s = eng_sampling_default();
    s.frequency_penalty = 0.6f; /* 1: 4.4, 2: 3.7 */
    REQUIRE_EQ_INT(greedy(logits, s, &h, NULL, 0), 1);
    s.frequency_penalty = -2.0f; /* 1: 7, 2: 8.9 */
    REQUIRE_EQ_INT(greedy(logits, s, &h, NULL, 0), 2);

    sample_history_clear(&h);
    REQUIRE_EQ_INT(h.n_touched, 0);
    for (int i = 0; i < 8; i++)
        REQUIRE_EQ_INT(h.counts[i], 0);
    free(memory.base);
}

/* A banned id is never drawn, at any level, whatever the random number. */
static void test_banned_is_never_drawn(void **state)
{
    (void)state;
    float logits[64];
    for (int i = 0; i < 64; i++)
        logits[i] = i == 5 ? 100.0f : 0.0f;
    struct eng_bias bias[63];
    for (int i = 0, n = 0; i < 64; i++)
        if (i != 20) bias[n++] = (struct eng_bias){i, -INFINITY};
    for (const char *const *name = kern_names(); *name; name++) {
        if (!kern_runs_here(*name)) continue;
        struct scratch memory = new_memory();
        struct sampler *sampler = sampler_init(&memory, 64, kern_select(*name));
        struct eng_sampling s = eng_sampling_default();
        s.temperature = 50.0f;
        s.bias = bias;
        s.n_bias = 63;
        for (int top_p = 0; top_p < 2; top_p++) {
            s.top_p = top_p ? 0.999f : 1.0f;
            for (int i = 0; i < 200; i++) {
                struct sample_row row = {.logits = logits, .chain = &s, .index = i};
                REQUIRE_EQ_INT(sampler_draw(sampler, &row), 20);
            }
        }
        free(memory.base);
    }
}

/* ---- log-probabilities --------------------------------------------------------------------- */

static void test_logprobs(void **state)
{
    (void)state;
    float logits[VOCAB];
    fill_logits(logits, VOCAB, 3);
    double sum = 0;
    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)logits[i]);
    struct scratch memory = new_memory();
    struct sampler *sampler = sampler_init(&memory, VOCAB, kern_select("auto"));
    struct eng_logprob top[ENG_MAX_LOGPROBS];
    float lp = sampler_logprobs(sampler, logits, 77, NULL, 20, top);
    REQUIRE(fabs(lp - (logits[77] - log(sum))) < 1e-5);
    for (int i = 0; i < 20; i++) {
        REQUIRE(fabs(top[i].logprob - (logits[top[i].id] - log(sum))) < 1e-5);
        REQUIRE_EQ_INT(sample_rank(logits, VOCAB, top[i].id), i + 1);
    }
    free(memory.base);
}

/* ---- checking ------------------------------------------------------------------------------ */

static void test_check_names_the_field(void **state)
{
    (void)state;
    static const struct eng_bias bad_bias[] = {{8, 1}, {0, NAN}, {0, INFINITY}, {-1, 0}};
    char err[200] = "";
    struct eng_sampling s = eng_sampling_default();
    REQUIRE_EQ_INT(sample_check(&s, 8, err, sizeof(err)), 0);
    s.temperature = NAN;
    REQUIRE_EQ_INT(sample_check(&s, 8, err, sizeof(err)), ENG_EINVAL);
    REQUIRE(strstr(err, "temperature"));
    s = eng_sampling_default();
    s.n_bias = -1;
    REQUIRE_EQ_INT(sample_check(&s, 8, err, sizeof(err)), ENG_EINVAL);
    for (size_t i = 0; i < N_OF(bad_bias); i++) {
        s = eng_sampling_default();
        s.bias = &bad_bias[i];
        s.n_bias = 1;
        REQUIRE_EQ_INT(sample_check(&s, 8, err, sizeof(err)), ENG_EINVAL);
    }
}

/* The ends of each range are valid, rounded to the member's type as they are; beyond is not. */
static void test_check_keeps_ranges(void **state)
{
    (void)state;
    char err[200];
#define CHECK(name, type, least, most, ...)                                                        \
    for (int end = 0; end < 2; end++) {                                                            \
        struct eng_sampling s = eng_sampling_default();                                            \
        s.name = (type)(end ? most : least);                                                       \
        REQUIRE_EQ_INT(sample_check(&s, 8, err, sizeof(err)), 0);                                  \
        if (end && (double)(most) >= 2147483647.0) continue; /* of int: nothing is beyond */       \
        s.name = (type)(end ? s.name + (type)1 : s.name - (type)1);                                \
        REQUIRE_EQ_INT(sample_check(&s, 8, err, sizeof(err)), ENG_EINVAL);                         \
        REQUIRE_MSG(strstr(err, #name " is "), "%s", err);                                         \
    }
    ENG_SAMPLING_PARAMS(CHECK)
}

int main(int argc, char **argv)
{
    if (argc > 1) n_draws = atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_orders),
        cmocka_unit_test(test_mass_cut),
        cmocka_unit_test(test_chain_follows_definition),
        cmocka_unit_test(test_flat_chain),
        cmocka_unit_test(test_greedy_adjustments),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_banned_is_never_drawn),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_check_names_the_field),
        cmocka_unit_test(test_check_keeps_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
