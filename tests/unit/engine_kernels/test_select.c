/* SPDX-License-Identifier: MIT */
/* The level that "auto" takes: by the features of a CPU and the rate of its bf16 dot product. */
#include "engine/kernels/levels.h"
#include "test.h"

static void test_best(void **state)
{
    (void)state;
    REQUIRE_EQ_STR(kern_best(0, 0), "c");
#if defined(__x86_64__)
    const unsigned avx512 = KERN_CPU_AVX2 | KERN_CPU_AVX512 | KERN_CPU_AVX512_VNNI;
    const unsigned bf16 = avx512 | KERN_CPU_AVX512_BF16;
    REQUIRE_EQ_STR(kern_best(KERN_CPU_AVX2 | KERN_CPU_AVX_VNNI, 0), "avx2vnni");
    REQUIRE_EQ_STR(kern_best(avx512, 0), "avx512vnni");
    REQUIRE_EQ_STR(kern_best(bf16, 2), "avx512bf16");
    REQUIRE_EQ_STR(kern_best(bf16, 1), "avx512bf16");
    REQUIRE_EQ_STR(kern_best(bf16, 0.99), "avx512vnni");
    REQUIRE_EQ_STR(kern_best(bf16, 0.5), "avx512vnni");
    REQUIRE_EQ_STR(kern_best(bf16 | KERN_CPU_AMX, 0.5), "avx512amx");
#endif
}

/* Measured once, and only where the level depends on it; a level named is taken as it is. */
static void test_automatic(void **state)
{
    (void)state;
    double rate, again;
    const char *name = kern_automatic(&rate);
    REQUIRE_EQ_STR(kern_select("auto")->name, name);
    REQUIRE_EQ_STR(kern_automatic(&again), name);
    REQUIRE(rate == again);
    bool depends = kern_runs_here("avx512bf16") && !kern_runs_here("avx512amx");
    REQUIRE((rate > 0) == depends);
    REQUIRE_EQ_STR(kern_best(kern_cpu_flags(), rate), name);
    if (depends) REQUIRE_EQ_STR(kern_select("avx512bf16")->name, "avx512bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best),
        cmocka_unit_test(test_automatic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
