/* SPDX-License-Identifier: MIT */
/* The race against its definition: every id's number computed on its own, in double. */
#include "test.h"

#include <math.h>

#include "engine/race.h"
#include "scratch_memory.h"

enum { MOST = 5000 };

/* ---- the numbers by definition ------------------------------------------------------------- */

static void philox(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b,
                            (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a};
        memcpy(c, next, sizeof(next));
    }
}

static double exponential(uint32_t word)
{
    return -log1p(-((double)word + 0.5) * 0x1p-32);
}

static double number_of(const struct kern_race *r, int32_t id)
{
    uint32_t c[4] = {r->index[0], r->index[1], r->choice, (uint32_t)id / 32};
    philox(c, r->key[0], r->key[1]);
    double least = exponential(c[0]) / 32;
    if (c[1] >> 27 == (uint32_t)id % 32) return least;
    uint32_t d[4] = {r->index[0], r->index[1], r->choice, 0x80000000u | (uint32_t)id / 4};
    philox(d, r->key[0], r->key[1]);
    return least + exponential(d[id % 4]);
}

/* Known answers of Philox4x32-10, from the authors' Random123 distribution. */
static void test_philox_known_answers(void **state)
{
    (void)state;
    uint32_t c[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    philox(c, 0xa4093822, 0x299f31d0);
    REQUIRE_EQ_INT(c[0], 0xd16cfe09);
    REQUIRE_EQ_INT(c[1], 0x94fdcceb);
    REQUIRE_EQ_INT(c[2], 0x5001e420);
    REQUIRE_EQ_INT(c[3], 0x24126ea1);
}

static void test_numbers_follow_definition(void **state)
{
    (void)state;
    enum { N_BLOCKS = 300 };
    float least[N_BLOCKS], noise[32];
    uint8_t place[N_BLOCKS];
    for (const char *const *name = kern_names(); *name; name++) {
        if (!kern_runs_here(*name)) continue;
        const struct kern *kern = kern_select(*name);
        struct kern_race r = race_numbers(0x123456789abcdef0ull, 3, 0x700000001ull);
        kern->race_noise(&r, 7, N_BLOCKS, least, place);
        for (int b = 0; b < N_BLOCKS; b++) {
            kern->race_block(&r, 7 + b, least[b], place[b], noise);
            for (int i = 0; i < 32; i++) {
                double want = number_of(&r, 32 * (7 + b) + i);
                REQUIRE_MSG(fabs(noise[i] - want) <= 4e-7 * want, "%s: block %d id %d: %g, not %g",
                            *name, b, i, (double)noise[i], want);
            }
        }
    }
}

/* ---- the draw ------------------------------------------------------------------------------ */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static bool is_left(const struct rank_cut *cut, float x, int32_t id)
{
    return !cut || x > cut->value || (x == cut->value && id <= cut->id);
}

/* The winner by definition; *ret_margin as race_draw's. */
static int32_t slow_draw(const struct race_field *f, int n, const struct rank_cut *cut,
                         double *ret_margin)
{
    double best = -1, second = 0;
    int32_t id = -1;
    for (int i = 0; i < n; i++) {
        if (f->x[i] == -INFINITY || !is_left(cut, f->x[i], i)) continue;
        double key = exp((double)(f->x[i] - f->top) * f->scale) / number_of(&f->numbers, i);
        if (key > best) {
            second = best > 0 ? best : 0;
            best = key;
            id = i;
        } else if (key > second) {
            second = key;
        }
    }
    *ret_margin = second > 0 ? log(best / second) : INFINITY;
    return id;
}

static float row[MOST];

/* Some masked, some equal; returns the largest. */
static float fill_row(int n, uint32_t seed)
{
    float top = -INFINITY;
    for (int i = 0; i < n; i++) {
        row[i] = next_random(&seed) % 7 == 0 ? -INFINITY
                                             : (float)(next_random(&seed) % 4000) / 250.0f - 8.0f;
        if (row[i] > top) top = row[i];
    }
    if (top == -INFINITY) top = row[n - 1] = 1.0f;
    return top;
}

static void check_draw(struct race *r, const struct race_field *f, int n,
                       const struct rank_cut *cut)
{
    float margin;
    double want_margin;
    int32_t want = slow_draw(f, n, cut, &want_margin);
    if (want_margin < 1e-5) return; /* rounding decides */
    REQUIRE_EQ_INT(race_draw(r, f, cut, NULL), want);
    REQUIRE_EQ_INT(race_draw(r, f, cut, &margin), want);
    if (want_margin > 60) want_margin = margin > 60 ? margin : 60; /* weights end at exp(-80) */
    REQUIRE_MSG(margin == (float)want_margin || fabs(margin - want_margin) < 1e-5,
                "n %d: margin %g, not %g", n, (double)margin, want_margin);
}

static void test_draw_follows_definition(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 31, 32, 33, 64, 1000, MOST};
    for (size_t k = 0; k < N_OF(sizes); k++) {
        int n = sizes[k];
        struct race r;
        struct scratch memory = new_memory();
        race_init(&r, &memory, n, kern_select("auto"));
        for (uint32_t i = 0; i < 60; i++) {
            float top = fill_row(n, 100 * (uint32_t)n + i);
            struct race_field f = {row, top, i % 3 == 0 ? 0.2f : 1.5f, race_numbers(i, i % 4, 9)};
            struct rank_cut cut = {top - 2.0f, n / 2}, at_top = {top, n};
            check_draw(&r, &f, n, NULL);
            check_draw(&r, &f, n, &cut);
            check_draw(&r, &f, n, &at_top);
        }
        free(memory.base);
    }
}

static const float *sort_values;

static int by_value(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sort_values[i] != sort_values[j]) return sort_values[i] > sort_values[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

/* A list and the cut after its last id give the same winner and margin, at every level. */
static void test_list_and_cut_agree(void **state)
{
    (void)state;
    enum { N = 1000 };
    int32_t ids[N];
    float top = fill_row(N, 5);
    for (int i = 0; i < N; i++)
        ids[i] = i;
    sort_values = row;
    qsort(ids, N, sizeof(*ids), by_value);
    int32_t first[600];
    for (const char *const *name = kern_names(); *name; name++) {
        struct race r;
        if (!kern_runs_here(*name)) continue;
        struct scratch memory = new_memory();
        race_init(&r, &memory, N, kern_select(*name));
        for (int n = 1; n < 600; n++) {
            struct race_field f = {row, top, 0.3f, race_numbers((uint64_t)n, 0, 1)};
            struct rank_cut cut = {row[ids[n - 1]], ids[n - 1]};
            float a, b;
            int32_t listed = race_draw_listed(&r, &f, ids, n, &a);
            REQUIRE_EQ_INT(race_draw(&r, &f, &cut, &b), listed);
            REQUIRE(a == b);
            if (name == kern_names()) first[n] = listed;
            REQUIRE_EQ_INT(listed, first[n]);
        }
        free(memory.base);
    }
}

/* Frequencies of a million draws: the statistic has about 210 degrees of freedom. */
static void test_frequencies(void **state)
{
    (void)state;
    enum { N = 300, N_DRAWS = 1000000 };
    static int count[N];
    struct race r;
    double sum = 0, chi = 0;
    int freedom = -1;
    struct scratch memory = new_memory();
    race_init(&r, &memory, N, kern_select("auto"));
    float top = fill_row(N, 77);
    for (int i = 0; i < N; i++)
        sum += exp(row[i] - top);
    for (int i = 0; i < N_DRAWS; i++) {
        struct race_field f = {row, top, 1.0f, race_numbers(42, 1, (uint64_t)i)};
        count[race_draw(&r, &f, NULL, NULL)]++;
    }
    for (int i = 0; i < N; i++) {
        double want = exp(row[i] - top) / sum * N_DRAWS;
        if (want < 5) continue;
        chi += (count[i] - want) * (count[i] - want) / want;
        freedom++;
    }
    double z = (chi - freedom) / sqrt(2.0 * freedom);
    REQUIRE_MSG(fabs(z) < 2.6, "chi-square %g for %d degrees of freedom", chi, freedom);
    free(memory.base);
}

/* The numbers depend on seed, choice, index and id, and on their upper halves. */
static void test_numbers_depend_on_all(void **state)
{
    (void)state;
    const struct kern *kern = kern_select("auto");
    const uint64_t high = 1ull << 32;
    const struct kern_race r[] = {race_numbers(7, 1, 5),        race_numbers(8, 1, 5),
                                  race_numbers(7 + high, 1, 5), race_numbers(7, 2, 5),
                                  race_numbers(7, 1, 6),        race_numbers(7, 1, 5 + high)};
    float least[N_OF(r)];
    uint8_t place;
    for (size_t i = 0; i < N_OF(r); i++) {
        kern->race_noise(&r[i], 0, 1, &least[i], &place);
        for (size_t j = 0; j < i; j++)
            REQUIRE(least[i] != least[j]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_numbers_follow_definition),
        cmocka_unit_test(test_numbers_depend_on_all),
        cmocka_unit_test(test_draw_follows_definition),
        cmocka_unit_test(test_list_and_cut_agree),
        cmocka_unit_test(test_frequencies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
