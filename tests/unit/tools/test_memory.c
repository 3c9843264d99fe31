/* SPDX-License-Identifier: MIT */
/*
 * Every allocating call of the library comes through here (the linker sends it, see meson.build).
 *
 * Nothing is allocated while a text is read. If memory runs out, at any allocation of a set or of a
 * compilation, that is an error and leaves nothing behind.
 */
#include "test.h"

#include "tools/read_text.h"
#include "toy_vocab.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static int n_allocations;
static int fail_at; /* the number of the call that fails; 0: none */

static bool may_allocate(void)
{
    return ++n_allocations != fail_at;
}

void *__wrap_malloc(size_t n)
{
    return may_allocate() ? __real_malloc(n) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_allocate() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *p, size_t n)
{
    return may_allocate() ? __real_realloc(p, n) : NULL;
}

static void test_sets_without_memory(void **state)
{
    (void)state;
    struct reading r;
    int n_failed = 0;
    reading_init(&r, TOOLS_QWEN_XML, true);
    for (int k = 1;; k++) {
        struct tools_set *set = NULL;
        n_allocations = 0;
        fail_at = k;
        int rc = tools_set_create(&set, &r.request);
        bool reached = n_allocations >= k;
        fail_at = 0;
        REQUIRE(rc == 0 || rc == TOK_ENOMEM);
        n_failed += rc != 0;
        if (!rc) tools_set_destroy(set);
        if (!reached) break;
    }
    REQUIRE_MSG(n_failed > 5, "%d", n_failed);
}

static void compile_without_memory(const struct gram_vocab *v, const struct reading *r)
{
    int n_failed = 0;
    for (int k = 1;; k++) {
        struct gram *g = NULL;
        struct gram_error err;
        struct gram_options options = {.strict = false};
        n_allocations = 0;
        fail_at = k;
        int rc = tools_compile(&g, v, &r->request, &r->markers, false, NULL, &options, &err);
        bool reached = n_allocations >= k;
        fail_at = 0;
        REQUIRE_MSG(!rc || (rc == GRAM_ENOMEM && err.code == rc && err.message[0] && !g), "%d: %s",
                    rc, err.message);
        n_failed += rc != 0;
        gram_release(g);
        if (!reached) break;
    }
    REQUIRE_MSG(n_failed > 20, "%d", n_failed);
}

static void test_compiling_without_memory(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    for (int format = TOOLS_HERMES; format < TOOLS_N_FORMATS; format++) {
        struct reading r;
        reading_init(&r, (enum tools_format)format, true);
        compile_without_memory(v, &r);
    }
    gram_vocab_destroy(v);
}

static void count_event(void *ctx, const struct tools_event *e)
{
    *(size_t *)ctx += e->len;
}

static void test_nothing_is_allocated_for_text(void **state)
{
    (void)state;
    static const char text[] =
        "<think>a</think> b\n<tool_call>\n<function=write>\n<parameter=path>\n"
        "x\n</parameter>\n</function>\n</tool_call>\n<function=any>";
    struct reading r;
    size_t n = 0;
    reading_init(&r, TOOLS_QWEN_XML, true);
    reading_prepare(&r);
    struct tools_reader_params params = {
        .set = r.set, .markers = &r.markers, .max_held = 1000, .on_event = count_event, .ctx = &n};
    void *memory = malloc(tools_reader_bytes(1000));
    n_allocations = 0;
    struct tools_reader *reader = tools_reader_init(memory, &params);
    for (int i = 0; i < 1000; i++)
        tools_reader_text(reader, text, sizeof(text) - 1);
    tools_reader_end(reader);
    REQUIRE_EQ_INT(n_allocations, 0);
    REQUIRE_MSG(n > 50000, "%zu", n);
    free(memory);
    tools_set_destroy(r.set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_without_memory),
        cmocka_unit_test(test_compiling_without_memory),
        cmocka_unit_test(test_nothing_is_allocated_for_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
